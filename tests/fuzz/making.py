"""Tables and registrations as SQL."""

import json
from typing import Any

import psycopg
from psycopg import sql
from values import Table
from watch import Outcome, Watch

from dbdp.controller import training_options

CASTS = {"features": "json", "classes": "text[]", "label_bounds": "float8[]", "source": "regclass", "intercept": "bool"}
CASTS |= {
    "candidates": "json",
    "repetitions": "float8",
    "selection_epsilon": "float8",
    "plan": "json",
    "receipt": "json",
    "options": "json",
}
CASTS |= {"coefficients": "float8[]", "intercepts": "float8[]", "parameters": "float8[]"}
CASTS |= {each.name: {float: "float8", int: "int"}.get(kind, "text") for each, kind in training_options.options()}
ANALYST = "fuzz_analyst"
PARTS = "create table t_0 partition of t for values in (0); create table t_1 partition of t default"


def create(connection: psycopg.Connection, table: Table) -> None:
    """Make table t anew, in its layout, with its rows."""
    connection.execute("drop table if exists t cascade")
    columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in table.columns]
    extra = {
        "dropped column": [sql.SQL("gone float8[]")],
        "partitioned": [sql.SQL("part int")],
        "generated": [sql.SQL("made int generated always as (1) stored")],
    }.get(table.layout, [])
    head = sql.SQL("create unlogged table t ({})" if table.layout == "unlogged" else "create table t ({})")
    tail = sql.SQL(" partition by list (part)" if table.layout == "partitioned" else "")
    connection.execute(head.format(sql.SQL(", ").join([*extra, *columns])) + tail)
    if table.layout == "partitioned":
        connection.execute(PARTS)
    if table.layout == "compressed elsewhere":
        _store_apart(connection, table)
    _insert(connection, table)
    if table.layout == "dropped column":
        connection.execute("alter table t drop column gone")


def _store_apart(connection: psycopg.Connection, table: Table) -> None:
    for name, kind in table.columns:
        if kind in ("text", "fuzz_word", "double precision[]", "real[]", "fuzz_vector"):
            alter = sql.SQL("alter table t alter column {} set storage {}")
            connection.execute(alter.format(sql.Identifier(name), sql.SQL("external" if len(name) > 1 else "main")))


def _insert(connection: psycopg.Connection, table: Table) -> None:
    for number, row in enumerate(table.rows):
        names = [name for name, _ in table.columns]
        values: list[Any] = list(row)
        if table.layout == "partitioned":
            names, values = ["part", *names], [str(number % 2), *values]
        insert = sql.SQL("insert into t ({}) values ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.SQL(", ").join(
                sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(kind_of(table, name)))
                for name, value in zip(names, values, strict=True)
            ),
        )
        connection.execute(insert)


def kind_of(table: Table, column: str) -> str:
    return dict(table.columns).get(column, "int")


INTERNAL = {"charge", "store_release", "store_network", "shuffle", "check_rows"}


def call(interface: str, given: dict[str, Any]) -> tuple[str, list[Any]]:
    """Return a call of an interface by named arguments, and its parameters."""
    casts = CASTS | ({"network": "json"} if interface == "store_network" else {})
    arguments = ", ".join(f"{name} => %s::{casts.get(name) or type_of(value)}" for name, value in given.items())
    schema = "dbdp_internal" if interface in INTERNAL else "dbdp"
    return f"select * from {schema}.{interface}({arguments})", list(map(_plain, given.values()))


def _plain(value: Any) -> Any:
    """A list of numbers in one type."""
    return [float(each) if type(each) is int else each for each in value] if isinstance(value, list) else value


def type_of(value: Any) -> str:
    return {bool: "bool", int: "int8", float: "float8"}.get(type(value), "text")


def opened(owner: Watch, name: str, **given: Any) -> None:
    """Register a dataset, which must succeed, and let the analyst train on it."""
    assert register(owner, name, **given).error is None
    if owner.ledger.execute("select to_regproc('dbdp.grant_training')").fetchone()[0]:
        owner.connection.execute("select dbdp.grant_training(%s, %s)", (name, ANALYST))


def register(watch: Watch, name: str | None, **given: Any) -> Outcome:
    """Attempt a registration of table t, or of another source, by default with the largest budget."""
    arguments = {"name": name, "source": "t", "epsilon": 1e6, "delta": 0.5, "mode": "basic"} | given
    if not isinstance(arguments["features"], str | None):
        arguments["features"] = json.dumps(arguments["features"])
    return watch.attempt(*call("register_dataset", arguments))
