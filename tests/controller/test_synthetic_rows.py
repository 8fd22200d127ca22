"""Synthetic rows of a summary: its tables and types without noise, rights, refusals, draws, and the fit."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest
from acting import acting
from click.testing import CliRunner

from dbdp.controller.statistics.synthetic.drawing import drawn
from dbdp.controller.statistics.synthetic.label_tree import LabelTree, label_tree
from dbdp.controller.statistics.synthetic.max_entropy import Conditionals, TreeModel
from dbdp.controller.statistics.synthetic.minimising import minimised
from dbdp.controller.statistics.synthetic.pair_tables import NoisyTable, PairTables, pair_tables
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.database import Database
from dbdp.registry.results import stored_summaries

EXACT = {"epsilon": 9e5, "delta": 1e-3}  # hardly any noise
ROWS = 6000
COLUMNS = (
    "age int, height float8, member boolean, dose numeric, ward text, sex text, ill boolean, kind int, cost float8"
)
FEATURES: dict[str, Any] = {
    "age": [20, 80],
    "height": {"bounds": [100, 200], "missing": "indicator"},
    "member": [0, 1],
    "dose": {"bounds": [0, 2000], "scale": "asinh"},
    "ward": ["a", "b"],
    "sex": {"categories": ["f", "m"], "missing": "category"},
}
LABELS: dict[str, dict[str, Any]] = {
    "binary": {"label": "ill", "positive": "true"},
    "classes": {"label": "kind", "classes": ["1", "2", "3"], "positive": None},
    "real": {"label": "cost", "label_bounds": [0, 100], "positive": None},
}


def people() -> pd.DataFrame:
    random = np.random.default_rng()
    frame = pd.DataFrame({"age": random.integers(20, 81, ROWS)})
    frame["height"] = np.where(frame.age < 40, 160, 140) + random.normal(0, 8, ROWS)
    frame["member"] = random.random(ROWS) < frame.age / 100
    frame["dose"] = random.exponential(20, ROWS).round(2)
    frame["ward"] = np.where(frame.member, random.choice(list("aab"), ROWS), random.choice(list("bbc"), ROWS))
    frame["sex"] = random.choice(list("fmx"), ROWS)
    frame["ill"] = random.random(ROWS) < np.where(frame.ward == "a", 0.7, 0.2)
    frame["kind"] = np.where(frame.height > 150, random.choice([1, 2], ROWS), 3)
    frame["cost"] = np.clip(frame.age + random.normal(0, 5, ROWS), 0, 100)
    frame = frame.astype(object)
    frame.loc[random.random(ROWS) < 0.2, "height"] = None
    frame.loc[random.random(ROWS) < 0.1, "sex"] = None
    return frame


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> pd.DataFrame:
    frame = people()
    connection.execute(f"create table t ({COLUMNS}, note text)")
    with connection.cursor().copy("copy t (age, height, member, dose, ward, sex, ill, kind, cost) from stdin") as copy:
        for row in frame.itertuples(index=False):
            copy.write_row(row)
    return frame


@pytest.fixture
def summarized(database: Database, register: Callable[..., str], table: pd.DataFrame) -> Callable[..., int]:
    def make(kind: str, bins: Any = 12, **given: Any) -> int:
        options = {"features": FEATURES, "epsilon": 1e6, "delta": 0.5} | LABELS[kind]
        return database.summarize(register("t", **options | given), **EXACT, bins=bins).id

    return make


def fake(connection: psycopg.Connection, summary: int, rows: int | None = None) -> pd.DataFrame:
    query = "select r.* from json_populate_recordset(null::t, dbdp.summary_rows(%s, %s)) as r"
    cursor = connection.execute(query, (summary, rows))
    return pd.DataFrame(cursor.fetchall(), columns=[each.name for each in cursor.description or ()])


def shares(frame: pd.DataFrame, *columns: str) -> pd.Series:
    return frame[list(columns)].astype(str).value_counts(normalize=True)


def distance(one: pd.DataFrame, other: pd.DataFrame, *columns: str) -> float:
    """The total variation distance of two tables."""
    return float(shares(one, *columns).subtract(shares(other, *columns), fill_value=0).abs().sum() / 2)


# --- rows of a table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LABELS)
def test_rows_have_the_columns_types_and_tables_of_the_table(connection, summarized, table, kind):
    rows = fake(connection, summarized(kind), 20_000)
    assert len(rows) == 20_000
    assert rows.note.isna().all()
    assert rows.age.between(20, 80).all() and rows.height.dropna().between(100, 200).all()
    assert rows.height.isna().mean() == pytest.approx(table.height.isna().mean(), abs=0.01)
    assert rows.age.mean() == pytest.approx(table.age.mean(), abs=0.5)
    assert rows.dose.astype(float).mean() == pytest.approx(table.dose.astype(float).mean(), rel=0.1)
    real = table.assign(ward=table.ward.replace({"c": None}), sex=table.sex.replace({"x": "(other)"}))
    assert distance(rows.astype(object).where(rows.notna(), None), real, "ward", "member") < 0.02
    assert distance(rows.astype(object).where(rows.notna(), None), real, "sex") < 0.02
    label = LABELS[kind]["label"]
    if kind != "real":
        assert distance(rows, real, label) < 0.01
    else:
        assert rows.cost.corr(rows.age.astype(float)) > 0.9
    if kind == "binary":
        assert distance(rows.astype(object).where(rows.notna(), None), real, "ward", "ill") < 0.02
    if kind == "classes":
        tall = [each.height.dropna().astype(float).groupby(each.kind).mean() for each in (rows, table)]
        assert (tall[0] - tall[1]).abs().max() < 2


@pytest.mark.parametrize(
    ("type_name", "others"),
    [("mood", {None}), ("text", {"(other)"}), ("varchar(3)", {"0"}), ("char(3)", {"0"})],
)
def test_labels_without_a_negative_value_have_one_of_their_type(connection, register, database, type_name, others):
    """Of an enum no other value is declared, so that others are NULL."""
    connection.execute("create type mood as enum ('sad', 'ok')")
    connection.execute(
        f"create table t as select i age, (array['sad', 'ok'])[1 + i % 2]::{type_name} y from "
        "generate_series(1, 4000) as i"
    )
    name = register("t", label="y", positive="sad", features={"age": [0, 4000]}, epsilon=1e6, delta=0.5)
    rows = fake(connection, database.summarize(name, **EXACT, bins=4).id)
    assert {each.strip() if isinstance(each, str) else None for each in rows.y} == {"sad"} | others


@pytest.mark.parametrize("type_name", ["smallint", "int", "bigint", "real", "float8", "numeric"])
def test_numbers_are_those_of_the_type_within_wider_bounds(connection, register, database, type_name):
    """Noise of a small ε draws numbers in all bins."""
    connection.execute(f"create table t as select (i % 3)::{type_name} a, i % 2 = 0 y from generate_series(1, 2000) i")
    name = register("t", label="y", positive="true", features={"a": [-1, 1e100]}, epsilon=10, delta=1e-2)
    rows = fake(connection, database.summarize(name, epsilon=0.1, delta=1e-3, bins=8).id, 5000)
    assert (rows.a >= -1).all()
    assert (rows.a > 10_000).any()


def test_there_are_as_many_rows_as_the_summary_counted(connection, summarized):
    assert len(fake(connection, summarized("binary"))) == ROWS


def test_rows_are_free_and_differ_from_call_to_call(connection, database, summarized, spent):
    summary = summarized("binary")
    name = database.query("select dataset from dbdp.summaries where id = $1", summary)[0]["dataset"]
    before = spent(name)
    one, other = (database.summary(summary).rows(50) for _ in range(2))
    assert one != other
    assert spent(name) == before


def test_a_role_without_the_table_makes_a_copy_of_fakes(connection, summarized, schema):
    summary = summarized("binary")
    connection.execute(f"create role app_{schema} in role dbdp_predictor")
    connection.execute(f"grant usage, create on schema {schema} to app_{schema}")
    with acting(connection, f"app_{schema}"), pytest.raises(psycopg.Error, match=f"summary {summary} does not exist"):
        connection.execute("select dbdp.summary_rows(%s, 1)", (summary,))
    connection.execute("select dbdp.grant_prediction(%s, %s)", (summary, f"app_{schema}"))
    statement = (
        "create table fakes as select r.* from json_populate_recordset(null::t, dbdp.summary_rows(%s, 100)) as r"
    )
    try:
        with acting(connection, f"app_{schema}"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("select from t")
            connection.execute(statement, (summary,))
            assert connection.execute("select count(*), count(age) from fakes").fetchone() == (100, 100)
    finally:
        connection.execute(f"drop owned by app_{schema} cascade; drop role app_{schema}")


def test_an_older_summary_knows_no_types_and_has_rows_too(connection, database, summarized):
    summary = summarized("classes", {"age": 61, "height": 4, "member": 2, "dose": 4})
    stored = stored_summaries.load(database._session, summary)
    assert stored.column_types["age"] == "integer"
    connection.execute(
        "update dbdp.model set receipt = (receipt::jsonb - 'column_types')::json where id = %s", (summary,)
    )
    assert set(fake(connection, summary, 50).member) <= {True, False}
    rows = json.loads(json.dumps(database.summary(summary).rows(50)))
    assert all(isinstance(row["age"], int) and isinstance(row["height"], float | None) for row in rows)


@pytest.mark.parametrize(
    ("bins", "given", "message"),
    [
        (None, {}, r"has no bins of age, height, member, dose.*dp_summarize\(.*bins => '16'"),
        (8, {"intercept": False}, "has no means"),
    ],
)
def test_a_summary_without_tables_has_no_rows(connection, summarized, bins, given, message):
    with pytest.raises(psycopg.Error, match=message):
        fake(connection, summarized("binary", bins, **given), 10)


@pytest.mark.parametrize("rows", [0, -1, 10**6])
def test_a_number_of_rows_out_of_range_is_refused(connection, summarized, rows):
    with pytest.raises(psycopg.Error, match=f"rows = {rows} must be a whole number between 1 and 285714"):
        fake(connection, summarized("binary"), rows)


def test_an_array_has_no_rows(connection, database, register, make_table):
    make_table("arrays", np.ones((100, 3)) / 2, np.ones(100))
    name = register("arrays", features={"x": {"length": 3, "norm": 2}}, epsilon=1e6, delta=0.5)
    with pytest.raises(psycopg.Error, match="is of the array 'x', of which there are no synthetic rows"):
        connection.execute("select dbdp.summary_rows(%s, 5)", (database.summarize(name, **EXACT).id,))


def test_noise_that_hides_all_pairs_is_warned_of(connection, database, register, table):
    """In about a third of such summaries chance alone makes a pair clear of the noise: not in 25 of them."""
    options = {"features": FEATURES, "epsilon": 10, "delta": 1e-3} | LABELS["binary"]
    name = register("t", **options)
    notices: list[str] = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    for _ in range(25):
        summary = database.summarize(name, epsilon=0.005, delta=1e-6, bins=12)
        assert len(fake(connection, summary.id, 100)) == 100
        if any("noise hides how the features depend on each other" in each for each in notices):
            return
    raise AssertionError(notices)


def test_the_command_makes_rows_and_a_table(connection, summarized, schema, server_url):
    command = ["fake", str(summarized("binary")), "--url", server_url, "--rows", "30"]
    rows = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (len(rows), list(rows[0])) == (30, [*FEATURES, "ill"])
    made = CliRunner().invoke(app, [*command, "--into", f'{schema}."Fake"', "--like", f"{schema}.t", "--json"])
    assert json.loads(made.stdout) == {"table": f'{schema}."Fake"', "rows": 30}
    assert connection.execute('select count(*) from "Fake"').fetchone() == (30,)
    refused = CliRunner().invoke(app, [*command, "--into", "x"])
    assert "--into and --like belong together" in str(refused.exception)


# --- the fit and the draws -----------------------------------------------------------------------------------


def tables_of(codes: np.ndarray, sizes: list[int], deviation: float) -> PairTables:
    units = np.hstack([np.eye(size)[codes[:, place]] for place, size in enumerate(sizes)])
    shares = units.T @ units / len(codes)
    ends = np.cumsum([0, *sizes])
    singles = tuple(
        NoisyTable(np.diagonal(shares)[first:last], np.full(last - first, deviation)) for first, last in pairwise(ends)
    )

    class Column:
        def __init__(self, size: int) -> None:
            self.levels = range(size)

    columns = tuple(Column(size) for size in sizes)
    return PairTables(columns, singles, NoisyTable(shares, np.full(shares.shape, deviation)), len(codes))  # type: ignore[arg-type]


def chain(count: int) -> np.ndarray:
    """Rows of a label, and of features that each depend on the label and on the one before."""
    random = np.random.default_rng()
    label, codes = random.integers(0, 2, count), np.zeros((count, 5), np.int64)
    codes[:, 0] = (random.random(count) < 0.3 + 0.4 * label) * 2
    for place in range(1, 4):
        codes[:, place] = (
            codes[:, place - 1] + (random.random(count) < 0.2) + label * (random.random(count) < 0.3)
        ) % 3
    codes[:, 4] = label
    return codes


def test_the_tree_joins_features_that_depend_on_each_other():
    tables = tables_of(chain(50_000), [3, 3, 3, 3, 2], 1e-4)
    tree = label_tree(tables)
    assert {frozenset(edge) for edge in tree.parents.items()} == {frozenset(each) for each in ((0, 1), (1, 2), (2, 3))}
    places = {each: place for place, each in enumerate(tree.order)}
    assert sorted(places) == [0, 1, 2, 3]
    assert all(places[parent] < places[child] for child, parent in tree.parents.items())


def test_noise_joins_no_features():
    tables = tables_of(chain(50_000), [3, 3, 3, 3, 2], 10.0)
    assert label_tree(tables).is_independent


def test_the_fit_has_the_tables_of_its_tree():
    codes = chain(50_000)
    tables = tables_of(codes, [3, 3, 3, 3, 2], 1e-6)
    model = TreeModel.of(tables, label_tree(tables))
    found = model.tables(model.fitted())
    for key, target in model.targets.items():
        assert found[key] == pytest.approx(target.shares, abs=2e-4), key
    assert {len(key) for key in model.targets} == {1, 2}


def test_the_gradient_of_the_dual_is_that_of_differences():
    tables = tables_of(chain(2000), [3, 3, 3, 3, 2], 1e-2)
    model = TreeModel.of(tables, label_tree(tables))
    random = np.random.default_rng()
    point, along = random.normal(size=len(model.shares)), random.normal(size=len(model.shares))
    ahead, behind = (model.dual(point + sign * 1e-5 * along)[0] for sign in (1, -1))
    assert (ahead - behind) / 2e-5 == pytest.approx(model.dual(point)[1] @ along, rel=1e-5, abs=1e-7)


def test_the_minimum_of_a_quadratic_is_found():
    random = np.random.default_rng()
    roots = random.normal(size=(40, 40))
    matrix, middle = roots @ roots.T + np.eye(40), random.normal(size=40)

    def quadratic(point: np.ndarray) -> tuple[float, np.ndarray]:
        away = point - middle
        return float(away @ matrix @ away) / 2 + 1, matrix @ away

    assert minimised(quadratic, np.zeros(40)) == pytest.approx(middle, abs=1e-2)


def test_draws_differ_from_their_shares_by_less_than_a_row():
    random = np.random.default_rng()
    label, child = random.dirichlet(np.ones(3)), random.dirichlet(np.ones(5), 3)
    grandchild = random.dirichlet(np.ones(4), (3, 5))
    tree = LabelTree((0, 1), {1: 0})
    codes = drawn(Conditionals(label, {0: child, 1: grandchild}, 0.0), tree, 10_000, random)
    counts = np.bincount(codes[:, 2], minlength=3)
    assert np.abs(counts - 10_000 * label).max() <= 1
    for one in range(3):
        own = codes[codes[:, 2] == one]
        cells = np.bincount(own[:, 0], minlength=5)
        assert np.abs(cells - len(own) * child[one]).max() <= 1 + 1e-6
        for other in range(5):
            pairs = np.bincount(own[own[:, 0] == other][:, 1], minlength=4)
            assert np.abs(pairs - cells[other] * grandchild[one, other]).max() <= 1 + 1e-6
    assert abs(np.corrcoef(codes[:, 0], np.arange(10_000))[0, 1]) < 0.07  # in random order: false alarm below 1e-9


def test_rows_of_fourteen_columns_take_seconds_and_little_memory():
    import tracemalloc

    random = np.random.default_rng()
    codes = np.hstack([random.integers(0, 16, (20_000, 14)), random.integers(0, 2, (20_000, 1))])
    codes[:, 1] = codes[:, 0]
    tables = tables_of(codes, [16] * 14 + [2], 1e-3)
    tracemalloc.start()
    tree = label_tree(tables)
    rows = drawn(TreeModel.of(tables, tree).fitted(), tree, 50_000, random)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(rows) == 50_000
    assert peak < 100e6


def test_the_tables_of_a_summary_are_those_of_its_rows(database, summarized, table):
    tables = pair_tables(stored_summaries.load(database._session, summarized("classes")))
    names = [column.name for column in tables.columns]
    found = tables.of(names.index("ward"), names.index("kind"))
    exact = pd.crosstab(table.ward, table.kind, normalize="all").to_numpy()
    assert found.shares == pytest.approx(exact, abs=1e-4)
    assert (found.deviations < 1e-4).all()
