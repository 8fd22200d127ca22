"""Statistics through the database: their rows, their charge, and that they are stored."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner

from dbdp.interfaces.cli.main import app
from dbdp.statistics.coded_columns import EMPTY, FIRST, NULL, OTHER

Register = Callable[..., str]
EXACT = (9e5, 1e-3)  # hardly any noise
FEATURES = {"age": [20, 80], "dose": {"bounds": [-5, 2000], "scale": "asinh"}, "ward": ["a", "b"], "kind": ["x", "yy"]}
COLUMNS = "person int, age int, dose numeric, ward text, kind text, ill text"
LABELS = {
    "binary": {"label": "ill", "positive": "yes", "negative": "no"},
    "one against others": {"label": "ill", "positive": "yes", "negative": None},
    "real": {"label": "cost", "positive": None, "label_bounds": [0, 10]},
}


@pytest.fixture
def visits(connection: psycopg.Connection, schema: str) -> None:
    """Rows with NULLs and odd values in one column each."""
    connection.execute(f"create table t ({COLUMNS}, cost float8)")
    connection.execute("""
insert into t select i / 3, 20 + i % 61, i % 50, case when i % 2 = 0 then 'a' else 'b' end, 'x',
  case when i % 4 = 0 then 'yes' else 'no' end, i % 11 from generate_series(0, 2999) as i""")
    connection.execute("update t set age = null where person < 100")
    connection.execute(
        "update t set dose = case person % 4 when 0 then 'nan' when 1 then 'infinity' when 2 then '-infinity' "
        "else 1e400::numeric end where person between 100 and 139"
    )
    connection.execute("update t set ward = null where person between 200 and 299")
    connection.execute("update t set ward = repeat('long ', 100000) where person between 300 and 319")
    connection.execute("update t set ill = 'maybe' where person between 400 and 449")
    connection.execute("update t set ill = null, cost = 'nan' where person between 500 and 549")


def described(
    connection: psycopg.Connection, name: str, given: tuple[float, float] = EXACT
) -> dict[Any, dict[str, Any]]:
    """The rows of a describe, by column and value."""
    cursor = connection.execute("select * from dbdp.dp_describe(%s, %s, %s)", (name, *given))
    names = [each.name for each in cursor.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {(row["column_name"], row["value"]): row for row in rows}


@pytest.mark.parametrize("label", LABELS)
def test_each_column_is_described_by_itself(connection, visits, register, label):
    name = register("t", **LABELS[label], features=FEATURES, epsilon=1e6, delta=0.5)
    rows = described(connection, name)
    assert (rows["(all)", None]["count"], rows["(all)", None]["count_noise"]) == (3000, 0)
    age, dose = rows["age", None], rows["dose", None]
    assert (age["count"], age["nulls"], age["outside"]) == (2700, 300, 0)
    ages, mean = connection.execute("select array_agg(age), avg(age) from t where age is not null").fetchone()
    assert (age["mean"], age["sd"]) == pytest.approx((float(mean), np.std(ages)), abs=1e-3)
    assert (age["q25"], age["q50"], age["q75"]) == tuple(np.percentile(ages, [25, 50, 75], method="inverted_cdf"))
    assert (dose["nulls"], dose["outside"]) == (30, 90)  # NaN is NULL, and infinities are outside
    assert dose["mean"] == pytest.approx((24.5 * 2880 + 2000 * 60 - 5 * 30) / 2970, abs=0.6)
    counts = {key: row["count"] for key, row in rows.items() if key[0] in ("ward", "kind", "ill")}
    assert counts["ward", "(null)"] == 300
    assert counts["ward", "(other)"] == 60
    assert counts["ward", "a"] + counts["ward", "b"] == 2640
    assert [counts["kind", word] for word in ("x", "yy", "(other)", "(null)")] == [3000, 0, 0, 0]
    if label == "real":
        assert rows["cost", None]["nulls"] == 150
    else:
        others = (
            150 if label == "binary" else connection.execute("select count(*) from t where ill <> 'yes'").fetchone()[0]
        )
        assert (counts["ill", "(other)"], counts["ill", "(null)"]) == (others, 150)


def test_people_are_counted_where_they_are_protected(connection, visits, register):
    given = LABELS["binary"] | {"features": FEATURES, "unit": "person", "max_rows": 3}
    name = register("t", **given, epsilon=1e6, delta=0.5)
    rows = described(connection, name)
    assert rows["(all)", None]["count"] == 1000
    assert rows["age", None]["count"] == pytest.approx(900, abs=0.01)
    assert rows["ward", "(null)"]["count"] == pytest.approx(100, abs=0.01)


@pytest.mark.parametrize("capacity", [5000, 2000])
def test_the_number_of_rows_of_a_capacity_is_a_noisy_count(connection, visits, register, capacity):
    name = register("t", **LABELS["binary"], features=FEATURES, epsilon=1e6, delta=0.5, capacity=capacity)
    row = described(connection, name)["(all)", None]
    assert (row["count"], row["count_noise"]) == (min(3000, capacity), 1)


def test_a_describe_is_charged_once_and_shown_again_for_free(connection, visits, register, spent):
    name = register("t", **LABELS["binary"], features=FEATURES, epsilon=10, delta=1e-3)
    plan = connection.execute("select dbdp.dp_explain_score(%s, 'describe', 1, 1e-6)", (name,)).fetchone()[0]
    assert spent(name)[0] == 0
    rows = described(connection, name, (1, 1e-6))
    once, number = spent(name), rows["(all)", None]["statistic"]
    assert "stored" not in plan
    (plan,) = connection.execute("select dbdp.dp_explain_score(%s, 'describe', 1, 1e-6)", (name,)).fetchone()
    assert plan["stored"] == number
    assert once[0] > 0
    again = connection.execute("select * from dbdp.statistic_describe(%s)", (number,)).fetchall()
    assert [row[2] for row in again] == [row["count"] for row in rows.values()]
    assert spent(name) == once
    receipt = dict(connection.execute("select entry, value from dbdp.receipt(%s)", (number,)).fetchall())
    assert float(receipt["count_noise"]) == plan["count_noise"]
    listed = connection.execute("select id, kind, epsilon from dbdp.statistics where dataset = %s", (name,)).fetchall()
    assert listed == [(number, "describe", 1.0)]
    assert connection.execute("select count(*) from dbdp.summaries where dataset = %s", (name,)).fetchone() == (0,)
    for call in ("summary_pca(%s)", "predict(%s, array[1.0])"):
        with pytest.raises(psycopg.DatabaseError, match="does not exist"):
            connection.execute(f"select dbdp.{call}", (number,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dp_describe({name}, 1, 0)", "needs a delta > 0; give one, such as 1e-6"),
        ("dp_describe({name}, 1e-3, 1e-6)", r"each count would be noise: it has ± \d+, and 3000 rows at most"),
        ("dp_describe({name}, null, 1e-6)", "epsilon is required"),
        ("statistic_describe(-1)", "statistic -1 does not exist; see dbdp.statistics"),
    ],
)
def test_other_calls_are_refused_before_a_charge(connection, visits, register, spent, call, message):
    name = register("t", **LABELS["binary"], features=FEATURES, epsilon=10, delta=1e-3)
    with pytest.raises(psycopg.DatabaseError, match=message):
        connection.execute(f"select * from dbdp.{call.format(name=chr(39) + name + chr(39))}")
    assert spent(name) == (0, 0)


def test_of_an_array_only_the_label_is_described(connection, dataset):
    assert {column for column, _ in described(connection, dataset, (500, 1e-4))} == {"(all)", "y"}


CODES = """
create function pg_temp.codes(name text, cohort text) returns text language plpython3u
set search_path = pg_catalog, pg_temp as $$
import json
from dbdp.interfaces.sql.boundary import session
from dbdp.registry import datasets
from dbdp.registry.tables import coded_rows
from dbdp.statistics.cohorts import Cohort
with session.as_owner():
    dataset = datasets.load(session, name)
    codes = coded_rows.codes_of(dataset)
    inside = Cohort.of(json.loads(cohort), codes, name)
    pieces = list(coded_rows.coded(session, dataset, codes, cohort=inside, memory=1 << 26))
return json.dumps([[found.tolist(), positions.tolist()] for found, positions in pieces])
$$"""


def read(connection: psycopg.Connection, name: str, stated: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The codes and positions of all slots, as the server reads them."""
    connection.execute("select dbdp.about()")
    connection.execute(CODES)
    pieces = json.loads(connection.execute("select pg_temp.codes(%s, %s)", (name, json.dumps(stated))).fetchone()[0])
    codes, positions = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return codes, positions


def test_a_row_of_nulls_is_a_row_and_no_empty_slot(connection, schema, register):
    connection.execute(f"create table t ({COLUMNS}, cost float8)")
    connection.execute("insert into t (person) values (1)")
    connection.execute("insert into t values (1, 30, 5, 'a', 'yy', 'yes'), (1, 30, 5, 'c', 'yyy', 'other')")
    name = register("t", **LABELS["binary"], features=FEATURES, unit="person", max_rows=4)
    codes, positions = read(connection, name)
    rows = {tuple(row) for row in codes.tolist()}
    assert {row[2:] for row in rows} == {(NULL,) * 3, (FIRST, FIRST + 1, FIRST), (OTHER,) * 3, (EMPTY,) * 3}
    assert {row[0] for row in rows} == {EMPTY, NULL, FIRST + 11}
    assert np.unique(positions[:, 0]).tolist() == pytest.approx([-2 / 3, 0])


def test_a_row_outside_a_cohort_is_an_empty_slot(connection, visits, register):
    name = register("t", **LABELS["binary"], features=FEATURES)
    codes, positions = read(connection, name, {"age": [30, 40.5], "ward": ["a"]})
    inside = codes[:, 0] != EMPTY
    expected = connection.execute("select count(*) from t where age between 30 and 40 and ward = 'a'").fetchone()
    assert (inside.sum(), len(codes)) == (*expected, 3000)
    assert not codes[~inside].any()
    assert not positions[~inside].any()


# --- Python and the command line ----------------------------------------------------------------------------


def test_python_has_rows_and_a_frame(visits, register, database):
    name = register("t", **LABELS["binary"], features=FEATURES, epsilon=10, delta=1e-3)
    figures = database.describe(name, epsilon=1, delta=1e-6)
    assert [row["count"] for row in database.described(figures.statistic)] == [row["count"] for row in figures]
    frame = figures.frame.set_index(["column_name", "value"])
    assert frame.loc["(all)", "count"].tolist() == [3000]
    assert "statistic" not in frame.columns
    assert database.statistics()[-1]["id"] == figures.statistic
    assert "<td>(other)</td>" in figures._repr_html_()


def test_the_command_line_prints_tables_or_json(visits, register, server_url):
    name = register("t", **LABELS["binary"], features=FEATURES, epsilon=10, delta=1e-3)
    given = ["describe", name, "--epsilon", "1", "--delta", "1e-6", "--url", server_url]
    printed, rows = (CliRunner().invoke(app, [*given, *more]) for more in ([], ["--json"]))
    assert (printed.exit_code, rows.exit_code) == (0, 0), (printed.output, rows.output)
    assert "(other)" in printed.output
    assert "shows it again, for free" in printed.output
    assert {row["column_name"] for row in json.loads(rows.stdout)} == {"(all)", "age", "dose", "ward", "kind", "ill"}
