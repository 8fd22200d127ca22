"""Cohorts of trainings, summaries and scores: a row outside counts as one without an answer, and costs nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import exact
import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from perturbed_once import SCHEDULED, requests
from released import released, stored
from short import FEW

import dbdp
from dbdp.algorithms import ALGORITHMS, Facts, Request, plan
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.controller.packed_rows import _options
from dbdp.controller.requests import Planned
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.connecting import connect

ROWS, KEY = 400, "5a" * 32
COLUMNS: dict[str, Any] = {"u": [-1, 1], "v": {"bounds": [0, 9], "bins": 3}, "c": ["a", "b", "it's"]}
ARRAY = {"x": {"length": 3, "norm": 2}}
LABELS: dict[str, dict[str, Any]] = {
    "binary": {"label": "y", "positive": "1", "negative": "-1"},
    "one against others": {"label": "y", "positive": "1", "negative": None},
    "classes": {"label": "k", "positive": None, "classes": ["a", "b", "d"]},
    "real": {"label": "r", "positive": None, "label_bounds": [-1, 5]},
}
COHORT = {"u": [-0.5, 0.5], "c": ["a", "it's"]}
INSIDE = "u between -0.5 and 0.5 and c in ('a', 'it''s')"
OF_LABEL: dict[str, tuple[Any, str]] = {  # by kind: a cohort of the label, and SQL for it
    "binary": ({"y": ["1"]}, "y = 1"),
    "one against others": ({"y": ["1"]}, "y = 1"),
    "classes": ({"k": ["d", "a"]}, "k in ('a', 'd')"),
    "real": ({"r": [-1, 1.5]}, "r between -1 and 1.5"),
}
OF_UNITS = {"unit": "who", "max_rows": 2}
UNITS = {"rows": {}, "capacity": {"capacity": 350}, "units": OF_UNITS, "some units": OF_UNITS | {"capacity": 150}}
TABLE = f"""
create table t as
select i, i / 2 as who, i % 4 as g, case when i % 13 > 0 then (i * 37 % 211) / 105.0 - 1 end as u, i % 10 as v,
  case i % 7 when 0 then null when 1 then 'other' when 2 then 'it''s' when 3 then 'b' else 'a' end as c,
  case when i % 11 > 0 then case when i * 37 % 211 > 100 then 1 else -1 end end as y,
  case when i % 11 > 0 then (array['a', 'b', 'd'])[1 + i % 3] end as k,
  case when i % 11 > 0 then i % 17 / 4.0 end::float8 as r,
  case when i % 19 > 0 then array[i % 3, i % 5, i % 2]::float8[] end as x
from generate_series(1, {ROWS}) as i"""


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> None:
    """Rows with NULLs in each column, and with values that are not declared."""
    connection.execute(TABLE)


def derived(connection: psycopg.Connection, name: str, inside: str, **others: str) -> None:
    """Make a table of the same rows in the same places, with other values in the rows outside."""
    columns = {each: each for each in ("i", "who", "g", "u", "v", "c", "y", "k", "r", "x")}
    changed = {each: f"case when {inside} then {each} else {value} end" for each, value in others.items()}
    values = ", ".join(f"{value} as {each}" for each, value in (columns | changed).items())
    connection.execute(f"create table {name} as select {values} from t order by i")


def packed(connection: psycopg.Connection, name: str, **options: Any) -> bytes:
    """Return the packed rows of a dataset in the order of a key."""
    with connection.transaction(force_rollback=True):
        connection.execute("create temporary table packed (block_no int8, block bytea)")
        given = json.dumps(options | {"key": KEY, "held": False, "rows": None})
        connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, given))
        return b"".join(row[0] for row in connection.execute("select block from packed order by block_no").fetchall())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_ignore_rows_outside(connection, database, table, register, algorithm):
    """Other values of the rows outside change no packed row of any algorithm, as it packs them."""
    other = {"u": "case when u > 0.5 then -0.9 else 0.9 end", "v": "9 - v", "y": "-coalesce(y, 1)", "c": "'b'"}
    derived(connection, "changed", INSIDE, **other)
    label = LABELS["binary"]
    names = [register(each, features=COLUMNS, epsilon=1e6, delta=0.1, **label) for each in ("t", "changed")]
    options = FEW.get(algorithm, {"epochs": 2})
    found = {}
    for cohort in (COHORT, None):
        request = Request(1.0, 1e-6, algorithm=algorithm, cohort=cohort, **options)
        for name in names:
            job = Planned.of(database._session, name, request)
            found[name, cohort is None] = packed(connection, name, **_options(job.dataset, job.plan.layout))
    one, other = names
    assert found[one, False] == found[other, False]
    assert found[one, True] != found[other, True]  # control: all rows
    assert len(found[one, False]) == len(found[one, True])


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("shape", ["columns", "columns by label", "array by label"])
def test_rows_outside_are_packed_as_without_an_answer(connection, table, register, kind, unit, shape):
    """Bit by bit, of columns and of arrays, by cohorts of features and of the label."""
    cohort, inside = OF_LABEL[kind] if "label" in shape else (COHORT, INSIDE)
    derived(connection, "less", inside, y="null", k="null", r="null")
    features = ARRAY if "array" in shape else COLUMNS
    given = UNITS[unit] | LABELS[kind] | {"features": features, "epsilon": 1e6, "delta": 0.1}
    t, less = (register(each, **given) for each in ("t", "less"))
    for flags in ({}, {"marks": True}, {"in_places": True} if features is COLUMNS else {}):
        coding = {"encoding": "scaled", "cohort": cohort}
        rows = packed(connection, t, coding=coding, **flags)
        assert rows == packed(connection, less, coding={"encoding": "scaled"}, **flags)
        assert rows != packed(connection, t, coding={"encoding": "scaled"}, **flags)  # control: all rows
        assert any(rows)


@pytest.fixture(scope="module")
def twins(server_url: str) -> Iterator[Any]:
    """Tables of 23 rows that differ in one: its value or its label, and so whether it is in the cohort of label 1."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create schema cohorts; grant usage on schema cohorts to public; set search_path = cohorts")
        declared = {"label": "y", "positive": "1", "negative": "-1", "features": {"x": {"length": 1, "norm": 1}}}
        declared |= {"intercept": False, "epsilon": 1.0, "delta": 1e-3}
        for name, values in {"ahead": (1, 1), "behind": (-1, 1), "outside": (1, -1), "none": (1, None)}.items():
            connection.execute(f"create table {name} (x float8[], y int)")
            for slot in range(23):
                x, y = values if slot == 11 else (0, 1)
                connection.execute(f"insert into {name} values (array[%s::float8], %s)", (x, y))
            connect(connection).register_dataset(name, f"cohorts.{name}", **declared)
        with exact.installed(connection):
            yield connection
        for name in ("ahead", "behind", "outside", "none"):
            connection.execute("select dbdp.drop_dataset(%s)", (name,))
        connection.execute("drop schema cohorts cascade")


def test_a_row_that_leaves_a_cohort_stays_within_the_bound(twins):
    """Through the real aggregate: leaving moves a model as a NULL label does, and two rows inside attain the bound."""
    given = requests(SCHEDULED, "huber_svm", batch_size=5)
    bounds = [plan(Request(**each), Facts(23, 1)).sensitivity.total for each in given.values()]
    moved = np.zeros((2, len(given)))
    for place in (0, 5, 10, 15, 20):
        orders, cohort = [exact.order_with(11, place, 23)], json.dumps({"y": ["1"]})
        cases = [each | {"cohort": cohort} for each in given.values()]
        names = ("ahead", "behind", "outside", "none")
        models = {name: exact.exact_models(twins, name, cases, orders) for name in names}
        for one, other in zip(models["outside"], models["none"], strict=True):
            assert (one == other).all()
        for row, pairs in enumerate([combinations(("ahead", "behind"), 2), combinations(names, 2)]):
            for pair in pairs:
                apart = [np.abs(one - other).max() for one, other in zip(*(models[each] for each in pair), strict=True)]
                moved[row] = np.maximum(moved[row], apart)
    assert (moved[1] <= bounds).all()
    assert (moved[0] >= 0.99 * np.array(bounds)).all()
    assert (moved[1] >= moved[0]).all()


@pytest.fixture
def dataset(connection: psycopg.Connection, table: None, register: Any) -> str:
    return register("t", features=COLUMNS, public_columns=["g"], epsilon=1e6, delta=0.1, **LABELS["binary"])


def test_every_interface_trains_and_records_a_cohort(connection, database, dataset):
    """SQL, Python, an analyst's call and the command line: request, plan, receipt, ledger and model have it."""
    given, settled = json.dumps(COHORT), {"u": [-0.5, 0.5], "c": ["a", "it's"]}
    request = Request(1.0, 1e-6, cohort=COHORT)
    sql = "select dbdp.{}(%s, %s, 1e-6, cohort => %s)"
    (plan_in_sql,) = connection.execute(sql.format("dp_explain"), (dataset, 1.0, given)).fetchone()
    models = [
        row["model"] for row in released(connection, "dbdp.dp_logreg(%s, 1, 1e-6, cohort => %s)", (dataset, given))
    ]
    models += [row["model"] for row in released(connection, "dbdp.dp_svm(%s, 1, 1e-6, cohort => %s)", (dataset, given))]
    models += [database.train(dataset, request).id, database.train_in_server(dataset, request)["model"]]
    tuning = TuningRequest(request, ({"settings": {"passes": 4}}, {"settings": {"passes": 6}}))
    models.append(database.tune(dataset, tuning).id)
    models.append(
        dbdp.LogisticRegression(epsilon=1, delta=1e-6, cohort=COHORT, database=database).fit(dataset).model_id_
    )
    options = ["train", dataset, "--epsilon", "1", "--delta", "1e-6", "--cohort", given, "--json", "--url"]
    result = CliRunner().invoke(app, [*options, connection.info.dsn])
    assert result.exit_code == 0, result.output
    for model in models:
        receipt = database.receipt(model)
        assert receipt["cohort"] == settled
        assert receipt["rows"] == ROWS
        plans = "select plan -> 'cohort' from dbdp.ledger where id = %s"
        assert connection.execute(plans, (receipt["ledger"],)).fetchone()[0] == settled
    whole = database.explain(dataset, Request(1.0, 1e-6))
    steps = database.explain(dataset, replace(request, algorithm="preconditioned_gd"))
    assert "predicted_loss" in steps
    for shown in (plan_in_sql, database.explain(dataset, request), steps):
        assert shown["cohort_cost"].startswith("costs nothing")
        assert ("predicted_loss assumes" in shown["cohort_cost"]) == ("predicted_loss" in shown)
        assert {key: shown[key] for key in ("charge", "epsilon", "rows")} == {
            key: whole[key] for key in ("charge", "epsilon", "rows")
        }
    assert "cohort_cost" not in whole
    predicted = "select count(dbdp.predict_probability(%s, t)) from t"  # also outside
    assert connection.execute(predicted, (models[0],)).fetchone() == (ROWS,)


def test_a_model_of_a_cohort_learns_only_from_it(connection, database, table, register):
    """Outside, the labels say the opposite; so it is for the baseline without privacy, which scores the same rows."""
    derived(connection, "flipped", "v < 6", y="-y")
    name = register("flipped", features=COLUMNS, epsilon=1e6, delta=0.1, **LABELS["binary"])
    for bounds, others, sign in (([0, 5], [6, 9], 1), ([6, 9], [0, 5], -1)):
        request = Request(1e4, 1e-6, algorithm="preconditioned_gd", cohort={"v": bounds})
        model, exactly = database.train(name, request), database.baseline(name, request)
        assert sign * np.ravel(model.coefficients)[0] > 0
        assert sign * np.ravel(exactly.coefficients)[0] > 0
        assert exactly.accuracy > 0.9
        scored = [
            database.score(model.id, name, "accuracy", epsilon=1e4, cohort={"v": each})["accuracy"]
            for each in (bounds, others)
        ]
        assert scored[0] > 0.9
        assert scored[1] < 0.7


U = np.eye(7)[0]  # coefficients of u, the bins of v, and the categories of c
MODELS: dict[str, Any] = {
    "binary": ((U + 0.1 * np.eye(7)[3]).tolist(), [-0.01]),
    "classes": ([(-U).tolist(), (2 * np.eye(7)[3]).tolist(), U.tolist()], [0.2, 0.0, -0.1]),
    "real": ((2 * U + np.eye(7)[6]).tolist(), [1.5]),
}
EXPECTED = {  # the figure of a model `{0}` of rows `t`, in SQL
    "binary": ("accuracy", "avg(((dbdp.predict_probability({0}, t) > 0.5) = (y = 1))::int)"),
    "classes": ("accuracy", "avg((dbdp.predict_class({0}, t) = k)::int)"),
    "real": ("rmse", "sqrt(avg((dbdp.predict_value({0}, t) - r) ^ 2))"),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", MODELS)
def test_figures_are_those_of_the_cohort(connection, database, table, register, kind, unit):
    """Of an evaluation and of a score, where rows outside are in no count."""
    figure, expression = EXPECTED[kind]
    given = UNITS[unit] | ({"capacity": 500} if "capacity" in UNITS[unit] else {})
    name = register("t", features=COLUMNS, epsilon=1e6, delta=0.1, **LABELS[kind], **given)
    model = stored(connection, name, *MODELS[kind])
    label = LABELS[kind]["label"]
    sql = f"select {expression.format(model)}::float8 from t where {label} is not null"
    (expected,) = connection.execute(f"{sql} and {INSIDE}").fetchone()
    (everywhere,) = connection.execute(sql).fetchone()
    figures = {row["figure"]: row["value"] for row in database.evaluate(model, name, epsilon=1e5, cohort=COHORT)}
    score = database.score(model, name, figure, epsilon=1e5, cohort=COHORT)[figure]
    tolerance = 5e-3 if kind == "real" else 1e-3
    assert (figures[figure], figures["coverage"]) == pytest.approx((expected, 1.0), abs=tolerance)
    assert score == pytest.approx(expected, abs=tolerance)
    assert abs(everywhere - expected) > 2 * tolerance  # control


def test_a_summary_of_a_cohort_serves_trainings_of_it(connection, database, dataset):
    """It describes the cohort's rows, and trainings of other rows refuse it."""
    given = {"epsilon": 1e5, "delta": 1e-3}
    summary = database.summarize(dataset, **given, cohort=COHORT)
    (count,) = connection.execute(f"select count(*) from t where y is not null and {INSIDE}").fetchone()
    assert summary.receipt["cohort"] == COHORT
    assert summary.describe()[0]["count"] == pytest.approx(count, abs=1)
    assert summary.describe()[0]["remark"].startswith('rows of cohort {"c": ["a", "it\'s"], "u": [-0.5, 0.5]}')
    training = Request(1.0, 1e-6, algorithm="preconditioned_gd", summary=summary.id, cohort=COHORT)
    assert database.receipt(database.train(dataset, training).id)["summary"] == summary.id
    whole = database.summarize(dataset, **given)
    for number, cohort in ((summary.id, None), (summary.id, {"u": [0, 1]}), (whole.id, COHORT)):
        request = Request(1.0, 1e-6, algorithm="preconditioned_gd", summary=number, cohort=cohort)
        with pytest.raises(ValueError, match=r"pass the summary's cohort, or drop it, or release a new one"):
            database.explain(dataset, request)


WRONG = {
    '{"u": [0.5, -0.5]}': r"give finite numbers \[lower, upper\]",
    '{"u": ["a"]}': r"give finite numbers \[lower, upper\]",
    '{"c": ["z"]}': "some of its categories: a, b, it's",
    '{"c": []}': "some of its categories",
    '{"g": ["1"]}': "declare it with dbdp.redeclare",
    '{"cc": ["a"]}': "did you mean 'c'",
    "{}": "give an object such as",
    "[1]": "give an object such as",
}


@pytest.mark.parametrize("cohort", WRONG)
def test_a_cohort_that_is_none_is_refused(connection, database, dataset, spent, cohort):
    """Before anything is spent, with a remedy, by each call."""
    model, before = stored(connection, dataset, *MODELS["binary"]), spent(dataset)
    calls = {
        "dbdp.dp_train(%s, 1, 1e-6, cohort => %s)": (dataset, cohort),
        "dbdp.dp_explain(%s, 1, 1e-6, cohort => %s)": (dataset, cohort),
        "dbdp.dp_summarize(%s, 1, 1e-6, cohort => %s)": (dataset, cohort),
        "dbdp.evaluate(%s::int8, %s, 1, cohort => %s)": (model, dataset, cohort),
        "dbdp.dp_score(%s::int8, %s, 'accuracy', 1, cohort => %s)": (model, dataset, cohort),
        "dbdp.dp_explain_score(%s, 'evaluation', 1, cohort => %s)": (dataset, cohort),
    }
    for call, given in calls.items():
        with pytest.raises(psycopg.Error, match=WRONG[cohort]):
            connection.execute(f"select * from {call}", given)
    assert spent(dataset) == before


def test_spark_refuses_a_cohort(database, dataset, monkeypatch):
    """Its workers read rows without the condition."""
    monkeypatch.setattr(database._session, "engine", object())
    with pytest.raises(ValueError, match="leave it out, or call without Spark"):
        database.explain(dataset, Request(1.0, 1e-6, cohort=COHORT))


def test_calls_without_a_cohort_say_so(database, dataset):
    """Groups, candidates of a tuning, balances and bounds have none; their errors say what has one."""
    request = Request(1.0, 1e-6, cohort=COHORT)
    with pytest.raises(ValueError, match="leave it out, or train a model of the cohort"):
        database.explain_groups(dataset, request, group_by="g", groups=["0", "1"])
    with pytest.raises(ValueError, match="cohort"):
        database.explain_tuning(dataset, TuningRequest(Request(1.0, 1e-6), ({"cohort": COHORT}, {})))
    for metric in ("class_balance", "bounds", "categories"):
        with pytest.raises(psycopg.Error, match="leave it out, or call dbdp"):
            database.explain_score(dataset, metric, epsilon=1, cohort=COHORT)
    for metric in ("evaluation", "summary", "describe", "accuracy"):
        plan_of = database.explain_score(dataset, metric, epsilon=1, delta=1e-6, cohort=COHORT)
        assert plan_of["cohort"] == COHORT
        without = database.explain_score(dataset, metric, epsilon=1, delta=1e-6)
        assert plan_of["charge"] == without["charge"]
