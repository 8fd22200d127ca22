"""The check of a declaration: exact counts for a role that may read the rows, through the server, for nothing."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from acting import acting
from commands import run

from dbdp.controller import declaration_check
from dbdp.interfaces.python.client.database import Database
from dbdp.registry.border import ServerSession

FEATURES = {"age": [0, 100], "flat": [0, 9], "ward": ["A", "B", "C"], "old": ["true", "false"], "code": ["1", "2"]}
ROWS = """
create table visits as
select i as "order",
       case when i = 1 then -5 when i <= 3 then 200 when i = 4 then null when i = 5 then float8 'NaN' else i end as age,
       7 as flat,
       case when i <= 10 then 'a ' when i = 11 then null else 'A' end::text as ward,
       i % 2 = 0 as old,
       1 + i % 2 as code,
       case when i <= 30 then 'y' when i <= 33 then 'YES' else 'n' end as ill
from generate_series(1, 100) as i
"""


@pytest.fixture
def visits(connection: psycopg.Connection, schema: str) -> Callable[..., str]:
    """Register a table with every kind of mistake; by default its label as it should be."""

    def make(**given: Any) -> str:
        connection.execute(ROWS)
        options = {"label": "ill", "positive": "y", "negative": "n", "features": FEATURES} | given
        Database(connection).register_dataset(f"{schema}_visits", "visits", epsilon=1, delta=1e-6, **options)
        return f"{schema}_visits"

    return make


def findings_of(database: Database, name: str) -> set[tuple[str, str, int]]:
    return {(each.column, each.finding, each.rows) for each in database.check_declaration(name).findings}


def test_every_mistake_is_counted_exactly(database, visits):
    name = visits()
    assert findings_of(database, name) == {
        ("ill", "unknown labels: 'YES' (3)", 3),
        ("age", "NULL", 1),
        ("age", "NaN", 1),
        ("age", "below 0, which they are clipped to", 1),
        ("age", "above 100, which they are clipped to", 2),
        ("flat", "constant: 7", 100),
        ("ward", "NULL", 1),
        ("ward", "unknown categories: 'a ' (10)", 10),
        ("ward", "'B' never occurs", 0),
        ("ward", "'C' never occurs", 0),
    }
    checked = database.check_declaration(name)
    assert (checked.rows, checked.classes, checked.private) == (100, {"n": 67, "y": 30}, False)
    assert {each.share for each in checked.findings if each.column == "ward"} == {0.01, 0.1, 0}


def test_rows_and_units_that_no_training_reads_are_counted(database, visits, connection):
    """A capacity far below the rows: trainings read a few of them, and nothing else tells."""
    name = visits(capacity=60)
    assert ("", "rows beyond the capacity of 60", 40) in findings_of(database, name)
    connection.execute("select dbdp.drop_dataset(%s)", (name,))
    connection.execute("drop table visits")
    name = visits(unit="code", max_rows=20, capacity=1, features={"age": [0, 100]})
    beyond = {each for each in findings_of(database, name) if each[0] == "code"}
    assert beyond == {
        ("code", "rows beyond the 20 that are read of a unit", 60),
        ("code", "units beyond the capacity of 1", 1),
    }


def test_a_label_in_other_letters_is_reported(database, visits):
    """The most frequent mistake: a training charges for it, and learns nothing."""
    name = visits(positive="Y", negative="N")
    assert {each for each in findings_of(database, name) if each[0] == "ill"} == {
        ("ill", "unknown labels: 'n' (67), 'y' (30), 'YES' (3)", 100),
        ("ill", "'N' never occurs", 0),
        ("ill", "'Y' never occurs", 0),
    }


def test_what_agrees_is_not_reported(database, connection, schema, visits):
    name = visits(negative=None, features={"old": ["true", "false"], "code": ["1", "2"]})
    assert findings_of(database, name) == set()  # every other label is negative
    connection.execute("create table typed (a numeric, b char(5), y double precision)")
    connection.execute(
        "insert into typed select i + 0.50, case i % 2 when 0 then 'x' else 'y' end, i % 2 from generate_series(1, 9) i"
    )
    features = {"a": [0, 10], "b": ["x", "y"]}
    database.register_dataset(
        f"{schema}_typed", "typed", label="y", positive="1", negative="0", features=features, epsilon=1, delta=1e-6
    )
    assert findings_of(database, f"{schema}_typed") == set()
    assert database.check_declaration(f"{schema}_typed").classes == {"0": 4, "1": 5}


def test_a_label_that_is_a_number_has_bounds(database, connection, visits):
    name = visits(
        label="order", positive=None, negative=None, label_bounds=[11, 90], features={"old": ["true", "false"]}
    )
    assert findings_of(database, name) == {
        ("order", "below 11, which they are clipped to", 10),
        ("order", "above 90, which they are clipped to", 10),
    }


def test_arrays_have_a_length_and_a_norm(database, connection, schema):
    connection.execute("create table arrays (x float8[], y int)")
    connection.execute(
        "insert into arrays values (array[.6, .8], 1), (array[3, 4], 0), (array[1], 0), (null, 1), "
        "(array[.5, null], 1), (array[.5, 'NaN'::float8], 0)"
    )
    options = {"label": "y", "positive": "1", "features": {"x": {"length": 2, "norm": 1}}, "epsilon": 1, "delta": 1e-6}
    database.register_dataset(f"{schema}_arrays", "arrays", **options)
    assert {(text, rows) for _, text, rows in findings_of(database, f"{schema}_arrays")} == {
        ("NULL", 1),
        ("of another length than 2", 1),
        ("of a norm above 1, which they are scaled to", 1),
        ("with NULL or NaN in the array", 2),
    }


def test_a_check_charges_and_stores_nothing(database, connection, visits):
    counts = "select (select count(*) from dbdp.ledger), (select count(*) from dbdp.model)"
    name, before = visits(), connection.execute(counts).fetchone()
    database.check_declaration(name)
    assert connection.execute(counts).fetchone() == before


def test_who_may_not_read_the_table_learns_nothing(database, connection, visits, analyst):
    name = visits()
    connection.execute("select dbdp.grant_training(%s, %s)", (name, analyst))
    with (
        acting(connection, analyst),
        pytest.raises((ValueError, psycopg.errors.InsufficientPrivilege), match="may not read") as refusal,
    ):
        database.check_declaration(name)
    assert not set("123456789") & set(str(refusal.value).partition(name)[0].replace(name.partition("_v")[0], ""))


def test_the_server_itself_refuses_a_check():
    server = ServerSession(SimpleNamespace(prepare=str))
    with pytest.raises(ValueError, match="runs in a client"):
        declaration_check.check(server, "visits")


def test_the_command_marks_its_output_as_exact(server_url, visits):
    name = visits()
    shown = run("check-declaration", name, "--url", server_url, COLUMNS="120").stdout
    assert "exact counts: do not publish" in " ".join(shown.split())
    assert "class 'y': 30 of 100 rows" in shown
    assert "unknown categories: 'a ' (10)" in " ".join(shown.split())
    data = json.loads(run("check-declaration", name, "--url", server_url, "--json").stdout)
    assert (data["private"], data["rows"], len(data["findings"])) == (False, 100, 10)
