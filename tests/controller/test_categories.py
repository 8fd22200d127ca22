"""Values of a column through the database: which are counted, what is charged, and who may ask."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from dbdp.controller.statistics import category_discovery
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.database import Database

EXACT = (1e5, 1e-3)  # hardly any noise
CALL = "select * from dbdp.dp_categories(%s, %s, %s, %s)"
Register = Callable[..., str]


@pytest.fixture
def named(connection: psycopg.Connection, schema: str, register: Register) -> str:
    connection.execute(f"""
create type {schema}.colour as enum ('red', 'light blue');
create table t as
select i as id, i % 2 as y, array[.1, .2, i / 999.0]::float8[] as x, i % 4 as whole, i % 2 = 0 as truth,
  (case when i % 3 = 0 then 'red' else 'light blue' end)::{schema}.colour as colour, i / 20 as person, 1.5 as number,
  case when i % 10 < 5 then 'Zürich' when i % 10 < 7 then '' when i % 10 = 7 then '(null)' when i % 10 = 8 then null
    else repeat('long', 40 + i) end as city,
  case when i = 17 then 'rare' else E'a\\nb' end::varchar(20) as fixed
from generate_series(0, 999) as i""")
    return register("t", epsilon=1e6, delta=0.5)


def found(connection: psycopg.Connection, name: str, column: str) -> dict[str, int]:
    return {value: count for value, count, _ in connection.execute(CALL, (name, column, *EXACT)).fetchall()}


@pytest.mark.parametrize(
    ("column", "counts"),
    [
        ("city", {"Zürich": 500, "": 200, "(other)": 200, "(null)": 100}),  # the text (null) is not NULL
        ("whole", {"0": 250, "1": 250, "2": 250, "3": 250, "(other)": 0, "(null)": 0}),
        ("truth", {"true": 500, "false": 500, "(other)": 0, "(null)": 0}),
        ("colour", {"light blue": 666, "red": 334, "(other)": 0, "(null)": 0}),
        ("fixed", {"a\nb": 999, "(other)": 0, "(null)": 0}),
    ],
)
def test_each_value_is_counted_once(connection, named, column, counts):
    """Values of every type; long texts are others, NULL is no text, and the value of one row is not shown."""
    assert found(connection, named, column) == counts
    assert list(found(connection, named, column))[-2:] == ["(other)", "(null)"]


def test_rows_of_a_unit_and_of_a_capacity_are_counted(connection, named, register):
    connection.execute("create table u as select * from t")
    unit = register("u", epsilon=1e6, delta=0.5, unit="person", max_rows=4, capacity=60)
    counts = found(connection, unit, "fixed")
    assert counts["a\nb"] in range(198, 201) and counts["(null)"] == 0  # 4 of 20 rows of 50 people; 10 slots are empty
    plan = connection.execute("select dbdp.dp_explain_score(%s, 'categories', 1, 1e-6)", (unit,)).fetchone()[0]
    assert plan["sensitivity"] == 8 and plan["threshold"] > plan["count_noise"]


REFUSED = {
    "number": ("number", 1, 1e-6, "column 'number' of .* is numeric; it must be one of text"),
    "array": ("x", 1, 1e-6, "column 'x' of .* is double precision"),
    "unknown": ("cty", 1, 1e-6, "did you mean 'city'"),
    "odd name": ("city; drop table t", 1, 1e-6, "does not exist"),
    "pure": ("city", 1, 0, "delta = 0.0 must be above 0"),
    "too little": ("city", 0.001, 1e-6, r"more than the 1000 of the dataset; raise epsilon"),
    "null": (None, 1, 1e-6, "column_name is required"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_shown_is_refused_before_the_charge(connection, named, spent, case):
    *given, message = REFUSED[case]
    with pytest.raises(psycopg.Error, match=message):
        connection.execute(CALL, (named, *given))
    assert spent(named) == (0, 0)


def test_more_slots_than_are_held_are_refused(connection, named, monkeypatch):
    assert category_discovery.CategoriesPlan(1.0, 1e-6, category_discovery.MOST_SLOTS, 1).half_width == 6
    with pytest.raises(ValueError, match=r"1048577 slots, above 1048576.*declare the categories"):
        category_discovery.CategoriesPlan(1.0, 1e-6, category_discovery.MOST_SLOTS + 1, 1)


@pytest.mark.parametrize("mode", ["basic", "renyi", "gaussian", "zcdp"])
def test_the_charge_is_the_one_that_is_explained(connection, named, register, spent, mode):
    connection.execute("create table v as select * from t")
    name = register("v", epsilon=20.0, delta=1e-4, mode=mode)
    plan = connection.execute("select dbdp.dp_explain_score(%s, 'categories', 1, 1e-6)", (name,)).fetchone()[0]
    assert spent(name) == (0, 0)
    rows = connection.execute(CALL, (name, "city", 1, 1e-6)).fetchall()
    assert spent(name)[0] == pytest.approx(plan["charge"] * 10**9, abs=1)
    assert {row[2] for row in rows} == {plan["count_noise"]} == {6}
    assert min(count for value, count, _ in rows if value not in ("(other)", "(null)")) >= plan["threshold"]


def test_an_analyst_may_not_list_values(connection, named, analyst, spent):
    connection.execute("select dbdp.grant_training(%s, %s)", (named, analyst))
    connection.execute(f"set role {analyst}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(CALL, (named, "city", 1, 1e-6))
    connection.execute("reset role")
    assert spent(named) == (0, 0)


def test_python_and_the_command_list_the_same_values(connection, named, server_url):
    rows: list[Any] = Database(connection).categories(named, "city", epsilon=EXACT[0], delta=EXACT[1])
    assert [row["value"] for row in rows] == ["Zürich", "", "(other)", "(null)"]
    given = [named, "city", "--epsilon", str(EXACT[0]), "--delta", str(EXACT[1]), "--json", "--url", server_url]
    result = CliRunner().invoke(app, ["categories", *given])
    assert result.exit_code == 0, result.output
    assert {row["value"]: row["count"] for row in json.loads(result.output)} == {r["value"]: r["count"] for r in rows}
