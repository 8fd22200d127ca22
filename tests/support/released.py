"""Models: what a training in SQL released, and ones with given numbers."""

import json
from typing import Any

import psycopg
from psycopg.rows import dict_row


def stored(
    connection: psycopg.Connection, name: str, coefficients: Any, intercepts: list[float], **receipt: Any
) -> int:
    """Store a model with these numbers, and entries of its receipt, as an owner's client does; return its number."""
    sql = "select dbdp_internal.store_release(%s, %s::float8[], %s::float8[], %s) ->> 'id'"
    return int(connection.execute(sql, (name, coefficients, intercepts, json.dumps(receipt))).fetchone()[0])


def released(connection: psycopg.Connection, training: str, parameters: Any = ()) -> list[dict[str, Any]]:
    """Run a call such as `dbdp.dp_logreg('t', 1)`; return its rows with what dbdp.models has of each model."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(f"select * from {training}", parameters).fetchall()
        models = "select coefficients, intercept, intercepts, receipt from dbdp.models_details where id = %s"
        return [row | cursor.execute(models, (row["model"],)).fetchone() for row in rows]
