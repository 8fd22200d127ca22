"""What PostgreSQL 18 lets a table have: virtual generated columns, temporal keys, constraints that are not enforced."""

import psycopg
import pytest

ROLES = {  # of a virtual column, and how a dataset is declared with it
    "a feature": {"features": {"v": [0, 1]}},
    "a vector": {"features": {"w": {"length": 2, "norm": 1}}},
    "a label": {"label": "k", "features": {"z": [0, 1]}},
    "a public column": {"public_columns": ["k"], "features": {"z": [0, 1]}},
    "a unit": {"unit": "k", "max_rows": 60, "features": {"z": [0, 1]}},
}
VIRTUAL = """
create table t (
    i int, z float8, y int, v float8 generated always as (1 / z) virtual, k int generated always as (y % 2) virtual,
    w float8[] generated always as (array[z, z]) virtual);
insert into t select i, i / 60.0, i % 2 from generate_series(0, 59) as i"""
OTHERS = """
create table wards (ward int4range, during tsrange, primary key (ward, during without overlaps));
insert into wards values ('[1,2)', '[2020-01-01,2030-01-01)');
create table t (
    i int, z float8, y int, v float8 generated always as (1 / (z - z)), ward int4range default '[1,2)',
    during tsrange default '[2021-01-01,2022-01-01)',
    nobody int4range default '[8,9)',
    constraint small check (z < 0.1) not enforced,
    foreign key (ward, period during) references wards (ward, period during),
    unique (i, y));
insert into t select i, case when i > 0 then i / 60.0 end, i % 2 from generate_series(0, 59) as i;
alter table t add constraint known not null z not valid;
create table beds (bed int primary key);
alter table t add foreign key (i) references beds not enforced"""
TRAIN = "select model, dbdp.receipt(model, 'rows') from dbdp.dp_logreg(%s, epsilon => 1)"


@pytest.fixture(autouse=True)
def _of_18(connection: psycopg.Connection) -> None:
    if connection.info.server_version < 180000:
        pytest.skip("PostgreSQL before 18 has no such tables")


@pytest.mark.parametrize("role", ROLES)
def test_a_virtual_column_is_not_declared(connection, schema, register, role):
    """Its expression would run, and could fail, on each row that a training run reads."""
    connection.execute(VIRTUAL)
    with pytest.raises(psycopg.Error, match=r"of \S+ is virtual .*generated always as … stored"):
        register("t", **ROLES[role])
    assert connection.execute("select 1 from dbdp.datasets where name = %s", (f"{schema}_t",)).fetchall() == []


def test_a_column_that_becomes_virtual_stops_before_the_charge(connection, schema, register, spent):
    connection.execute(VIRTUAL)
    name = register("t", features={"z": [0, 1]})
    connection.execute("alter table t drop column v, drop column w")
    connection.execute("alter table t drop column z, add column z float8 generated always as (1 / i) virtual")
    with pytest.raises(psycopg.Error, match=r"was double precision when .* and is now virtual double precision"):
        connection.execute(TRAIN, (name,))
    assert spent(name) == (0, 0)


def test_a_table_with_other_new_objects_trains(connection, schema, register):
    """An undeclared virtual column that cannot be read, temporal keys, and constraints that the rows break."""
    connection.execute(OTHERS)
    with pytest.raises(psycopg.errors.DivisionByZero):  # control
        connection.execute("select v from t")
    name = register("t", features={"z": [0, 1]})
    assert connection.execute(TRAIN, (name,)).fetchone()[1] == "60"
    (shown,) = connection.execute("select dbdp.dp_summarize(%s, epsilon => 1, delta => 1e-6)::text", (name,)).fetchone()
    assert shown


def test_units_that_a_key_does_not_enforce_are_counted(connection, schema, register):
    """A key that is not enforced says that each person is known; the rows say which there are."""
    connection.execute(OTHERS)
    connection.execute("alter table t add column person int generated always as (i / 2) stored")
    connection.execute("create table people (person int primary key)")
    connection.execute("alter table t add foreign key (person) references people not enforced")
    name = register("t", features={"z": [0, 1]}, unit="person", max_rows=3)
    assert connection.execute("select rows from dbdp.dataset where name = %s", (name,)).fetchone() == (90,)  # 30 people
    assert connection.execute(TRAIN, (name,)).fetchone()
