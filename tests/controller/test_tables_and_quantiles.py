"""Tables and quantiles through the database: their rows, charge, storage, Python and command line."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner

from dbdp.interfaces.cli.main import app

Register = Callable[..., str]
EXACT = "4e5, 1e-3"
DECLARED: dict[str, Any] = {
    "features": {"age": [20, 80], "ward": ["A", "B"], "sex": ["f", "m"], "dose": {"bounds": [0, 50], "bins": 5}},
    "label": "cost",
    "positive": None,
    "label_bounds": [0, 100],
}


@pytest.fixture
def name(connection: psycopg.Connection, schema: str, register: Register) -> str:
    """A registered table with NULLs in a group and in a number."""
    connection.execute("""
create table t as
select i / 2 as person, 20 + i * 7 % 61 as age, case i % 3 when 0 then 'A' when 1 then 'B' end as ward,
       case when i % 5 = 0 then 'm' else 'f' end as sex, i % 50 + 0.5 as dose,
       case when i % 7 > 0 then (i * 13 % 101)::float8 end as cost
from generate_series(1, 6000) as i""")
    return register("t", **DECLARED, epsilon=1e6, delta=0.5)


def rows_of(connection: psycopg.Connection, call: str, *parameters: Any) -> dict[Any, tuple[float, float]]:
    """Value and ± of a table by groups and figure."""
    rows = connection.execute(f"select groups, figure, value, plus_minus from dbdp.{call}", parameters).fetchall()
    return {(*groups, figure): (value, width) for groups, figure, value, width in rows}


def test_counts_and_means_are_those_of_a_group_by(connection, name):
    measures = "'{count,mean age,mean cost}'"
    found = rows_of(connection, f"dp_table(%s, '{{ward,sex}}', {EXACT}, measures => {measures})", name)
    query = "select coalesce(ward, '(null)'), sex, count(*), avg(age), avg(cost) from t group by 1, 2"
    for ward, sex, count, age, cost in connection.execute(query).fetchall():
        assert found[ward, sex, "count"][0] == count
        assert found[ward, sex, "mean age"][0] == pytest.approx(float(age), abs=0.01)
        assert found[ward, sex, "mean cost"][0] == pytest.approx(cost, abs=0.01)  # NULLs are in the count only
    assert found["A", "(other)", "count"][0] == 0
    value, width = found["A", "(other)", "mean age"]
    assert value is None or width > 5  # by noise above six deviations it would be less, with probability 1e-9
    assert found["(all)", "(all)", "count"] == (6000, 0)
    assert len(found) == 4 * 4 * 3 + 1


def test_margins_are_the_totals(connection, name):
    call = f"dp_table(%s, '{{ward,dose}}', {EXACT}, margins => true, measures => '{{count,mean age}}')"
    found = rows_of(connection, call, name)
    for low in range(0, 50, 10):
        word = f"[{low},{low + 10}{']' if low == 40 else ')'}"
        assert found["(all)", word, "count"][0] == 1200
    (mean,) = connection.execute("select avg(age) from t where ward = 'B'").fetchone()
    assert found["B", "(all)", "mean age"][0] == pytest.approx(float(mean), abs=0.01)
    assert len(found) == (4 + 1) * (6 + 1) * 2


def test_a_cohort_is_counted_without_a_public_number(connection, name):
    cohort = '{"age": [30, 40], "ward": ["A"]}'
    found = rows_of(connection, f"dp_table(%s, '{{sex}}', {EXACT}, cohort => %s)", name, cohort)
    inside = "age between 30 and 40 and ward = 'A'"
    counts = dict(connection.execute(f"select sex, count(*) from t where {inside} group by 1").fetchall())
    assert {sex: found[sex, "count"][0] for sex in "fm"} == counts
    assert found["(all)", "count"] == (sum(counts.values()), 1)
    [[described]] = connection.execute(
        f"select count from dbdp.dp_describe(%s, {EXACT}, cohort => %s) where column_name = '(all)'", (name, cohort)
    ).fetchall()
    assert described == sum(counts.values())
    (receipt,) = connection.execute("select receipt from dbdp.model order by id desc limit 1").fetchone()
    assert receipt["cohort"] == {"age": [30.0, 40.0], "ward": ["A"]}


def test_pure_counts_are_whole_numbers_with_a_laplace_charge(connection, name, spent):
    found = rows_of(connection, "dp_table(%s, '{ward}', 2)", name)
    assert all(value.is_integer() for value, _ in found.values())
    (plan,) = connection.execute("select dbdp.dp_explain_table(%s, '{ward}', 2)", (name,)).fetchone()
    assert (plan["mechanism"], plan["sensitivity"], plan["delta"]) == ("discrete_laplace", 2.0, 0.0)
    assert found["A", "count"][1] == plan["count_noise"]


def test_people_are_weighed_in_tables(connection, schema, register, name):
    connection.execute("create table people as table t")
    units = register("people", **DECLARED, epsilon=1e6, delta=0.5, unit="person", max_rows=2)
    found = rows_of(connection, f"dp_table(%s, '{{sex}}', {EXACT}, measures => '{{count,mean age}}')", units)
    assert found["f", "count"][0] + found["m", "count"][0] == pytest.approx(3001, abs=0.1)
    assert found["(all)", "count"] == (3001, 0)


def test_a_mean_of_all_rows_needs_no_groups(connection, name):
    found = rows_of(connection, f"dp_table(%s, '{{}}', {EXACT}, measures => '{{mean age}}', margins => true)", name)
    (mean,) = connection.execute("select avg(age) from t").fetchone()
    assert found["count",][0] == 6000
    assert found["mean age",][0] == pytest.approx(float(mean), abs=0.01)


@pytest.mark.parametrize("column", ["age", "cost", "dose"])
def test_quantiles_are_those_of_the_rows(connection, name, column):
    levels = [0.1, 0.5, 0.9]
    query = f"select quantile, value, lower, upper, statistic from dbdp.dp_quantiles(%s, %s, %s, {EXACT})"
    rows = connection.execute(query, (name, column, levels)).fetchall()
    (expected,) = connection.execute(
        f"select percentile_disc(%s::float8[]) within group (order by {column}) from t", (levels,)
    ).fetchone()
    assert [row[1] for row in rows] == pytest.approx(np.array(expected, float), abs=1.1)
    assert all(lower <= value <= upper for _, value, lower, upper, _ in rows)
    again = connection.execute("select value from dbdp.statistic_quantiles(%s, '{.5}')", (rows[0][4],)).fetchone()
    assert again == (rows[1][1],)


def test_a_describe_has_all_quantiles(connection, name):
    (number,) = connection.execute(f"select max(statistic) from dbdp.dp_describe(%s, {EXACT})", (name,)).fetchone()
    query = "select value from dbdp.statistic_quantiles(%s, '{.5}', column_name => 'age')"
    assert connection.execute(query, (number,)).fetchone() == (50,)
    with pytest.raises(psycopg.DatabaseError, match="is a describe of several columns; name one"):
        connection.execute("select * from dbdp.statistic_quantiles(%s, '{.5}')", (number,))
    with pytest.raises(psycopg.DatabaseError, match=r"not table; call dbdp\.statistic_describe"):
        connection.execute("select * from dbdp.statistic_table(%s)", (number,))


REFUSED = {
    "dp_table(%s, '{wardd}', 1)": "is not declared; choose among age, dose, ward, sex, cost.*did you mean 'ward'",
    "dp_table(%s, '{ward,ward}', 1)": "names a column twice",
    "dp_table(%s, '{ward}', 1, measures => '{median age}')": "for quantiles call dbdp.dp_quantiles",
    "dp_table(%s, '{ward}', 1, measures => '{mean sex}')": "has categories and no mean",
    "dp_table(%s, '{ward}', 1, bins => 1)": "bins = 1 must be a whole number between 2",
    "dp_table(%s, '{ward}', 1e-3)": "each cell would be noise",
    "dp_table(%s, '{ward,sex,age}', 1, margins => true)": "delta = 0 with 7 tables has more noise",
    "dp_table(%s, '{ward}', 1, cohort => '{}')": "give an object such as",
    "dp_table(%s, null, 1)": "by is required",
    "dp_table(%s, '{ward,null}', 1)": "has NULL, or names a column twice",
    "dp_quantiles(%s, 'ward', '{.5}', 1, 1e-6)": "call dbdp.dp_table for its counts",
    "dp_quantiles(%s, 'age', '{.5}', 1, 0)": "needs a delta > 0",
    "dp_quantiles(%s, 'age', '{1}', 1, 1e-6)": "numbers between 0 and 1",
    "dp_quantiles(%s, 'person', '{.5}', 1, 1e-6)": "is not declared",
    "dp_describe(%s, 1, 1e-6, cohort => '[1]')": "give an object such as",
}


@pytest.mark.parametrize("call", REFUSED)
def test_requests_are_refused_before_a_charge(connection, name, spent, call):
    with pytest.raises(psycopg.DatabaseError, match=REFUSED[call]):
        connection.execute(f"select * from dbdp.{call}", (name,))
    assert spent(name) == (0, 0)


def test_a_table_is_shown_again_for_free(connection, name, spent):
    rows = connection.execute("select * from dbdp.dp_table(%s, '{ward}', 1, margins => true)", (name,)).fetchall()
    once = spent(name)
    again = connection.execute("select * from dbdp.statistic_table(%s)", (rows[0][4],)).fetchall()
    assert [row[:3] for row in rows] == [row[:3] for row in again]
    assert spent(name) == once
    plan = "select dbdp.dp_explain_table(%s, %s, 1, margins => %s) ->> 'stored'"
    asked = [(["ward"], True), (["ward"], False), (["ward", "sex"], True)]
    found = [connection.execute(plan, (name, *each)).fetchone()[0] for each in asked]
    assert found == [str(rows[0][4]), None, None]
    kinds = connection.execute("select kind from dbdp.statistics where id = %s", (rows[0][4],)).fetchall()
    assert kinds == [("table",)]


def test_python_and_the_command_line_have_tables_and_quantiles(database, name, server_url):
    table = database.table(name, ["ward"], epsilon=1, measures=["count", "mean age"], cohort={"sex": ["f"]})
    assert database.tabled(table.statistic)[0]["value"] == table[0]["value"]
    assert table.frame["figure"].unique().tolist() == ["count", "mean age"]
    quantiles = database.quantiles(name, "cost", [0.5], epsilon=1, delta=1e-6)
    assert database.quantiles_of(quantiles.statistic, [0.5])[0]["value"] == quantiles[0]["value"]
    plan = database.explain_table(name, ["ward"], epsilon=1)
    assert plan["cells"] == 5
    assert database.explain_quantiles(name, "cost", epsilon=1, delta=1e-6)["rank_noise"] > 0
    for given in (
        ["table", name, "--by", "ward,sex", "--mean", "age", "--epsilon", "1", "--cohort", '{"sex": ["f"]}'],
        ["quantiles", name, "cost", "--at", "0.1,0.9", "--epsilon", "1", "--delta", "1e-6"],
    ):
        printed, rows = (CliRunner().invoke(app, [*given, "--url", server_url, *more]) for more in ([], ["--json"]))
        assert (printed.exit_code, rows.exit_code) == (0, 0), (printed.output, rows.output)
        assert "shows it again, for free" in printed.output
        assert json.loads(rows.stdout)
