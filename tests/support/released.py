"""What a training in SQL released: its functions return the number of a model, and dbdp.models has the rest."""

from typing import Any

import psycopg
from psycopg.rows import dict_row


def released(connection: psycopg.Connection, training: str, parameters: Any = ()) -> list[dict[str, Any]]:
    """Run a call such as `dbdp.dp_logreg('t', 1)`; return its rows with what dbdp.models has of each model."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(f"select * from {training}", parameters).fetchall()
        models = "select coefficients, intercept, intercepts, receipt from dbdp.models_details where id = %s"
        return [row | cursor.execute(models, (row["model"],)).fetchone() for row in rows]
