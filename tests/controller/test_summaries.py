"""Summaries through the database: their neighbours, their charge, and what is computed from them for free."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest
from click.testing import CliRunner
from memory import RowsInMemory
from sklearn.linear_model import LinearRegression
from test_audit_of_releases import audited

from dbdp.algorithms import Request
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.algorithms.families.preconditioned import preconditioned_gd
from dbdp.algorithms.families.preconditioned.preconditioning import coordinates_of, moment_sensitivity
from dbdp.algorithms.noisy_sums import Summed
from dbdp.algorithms.rows import Layout
from dbdp.algorithms.scores.summary import SummaryPlan
from dbdp.controller.packed_rows import packed_rows
from dbdp.controller.statistics.summary_requests import plan_of
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.summaries import ReleasedSummary
from dbdp.learning import second_moments
from dbdp.learning.rows.features import CENTRED
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.noise import streams
from dbdp.registry import datasets
from dbdp.registry.results import stored_summaries

Register = Callable[..., str]
EXACT = {"epsilon": 9e5, "delta": 1e-3}  # hardly any noise
ROWS = 30_000  # three blocks
SHRUNK = (1 - 2.0**-21) * (1 - 2.0**-23)  # a weight's square is less than 1/5 by at most this factor
FEATURES = {"age": [20, 80], "flag": [0, 1], "dose": {"bounds": [-5, 2000], "scale": "asinh"}, "ward": ["a", "b"]}
LABELS: dict[str, dict[str, Any]] = {
    "real": {"label": "cost", "positive": None, "label_bounds": [-50, 400]},
    "binary": {"label": "ill", "positive": "yes", "negative": "no"},
    "classes": {"label": "kind", "positive": None, "classes": ["x", "y", "z"]},
}
TRAIN = {"algorithm": "preconditioned_gd"}


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> pd.DataFrame:
    """Rows within the declared bounds; a row of ward `c` belongs to neither category."""
    random = np.random.default_rng(8)
    count = 3000
    frame = pd.DataFrame(
        {
            "age": random.uniform(20, 80, count),
            "flag": random.integers(0, 2, count),
            "dose": random.uniform(-5, 50, count),
            "ward": random.choice(list("abc"), count),
            "unit": np.arange(count) // 3,
        }
    )
    frame["cost"] = 3 * frame.age - 40 * frame.flag + 20 * (frame.ward == "a") + random.normal(0, 20, count)
    frame["ill"] = np.where(frame.cost > 120, "yes", "no")
    frame["kind"] = np.select([frame.cost < 80, frame.cost < 160], ["x", "y"], "z")
    columns = "age float8, flag float8, dose float8, ward text, unit int, cost float8, ill text, kind text"
    connection.execute(f"create table t ({columns})")
    with connection.cursor().copy("copy t from stdin") as copy:
        for row in frame.itertuples(index=False):
            copy.write_row(row)
    return frame


@pytest.fixture
def summarized(
    database: Database, register: Register, table: pd.DataFrame
) -> Callable[..., tuple[str, ReleasedSummary]]:
    """Register the table with a kind of label, and release a summary with hardly any noise."""

    def make(kind: str, **given: Any) -> tuple[str, ReleasedSummary]:
        options = {"features": FEATURES, "epsilon": 1e6, "delta": 0.5} | LABELS[kind]
        name = register("t", **options | given)
        return name, database.summarize(name, **EXACT)

    return make


def numbers_of(frame: pd.DataFrame, label: str) -> pd.DataFrame:
    """The table as numbers: dose on its scale, indicators of wards, and the label."""
    factor = 1000.0 / 2005
    shown = frame[["age", "flag"]].assign(dose=np.arcsinh(frame.dose * factor))
    shown["ward=a"], shown["ward=b"] = (frame.ward == "a") * 1.0, (frame.ward == "b") * 1.0
    if label == "kind":
        return shown.assign(**{f"kind={each}": (frame.kind == each) * 1.0 for each in "xyz"})
    return shown.assign(**{label: (frame.ill == "yes") * 1.0 if label == "ill" else frame[label]})


# --- what one record moves --------------------------------------------------------------------------------

RECORDS = {"ahead": (1, 1, 1), "behind": (-1, -1, -1), "aside": (-1, -1, 1)}  # a, b and the label


@pytest.fixture(scope="module")
def neighbours(server_url: str) -> Iterator[None]:
    """Datasets that differ in one record, named after it."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create schema summed; grant usage on schema summed to public")
        connection.execute(f"""
create table summed.others as
select random() * 2 - 1 as a, random() * 2 - 1 as b, random() * 2 - 1 as y from generate_series(2, {ROWS})""")
        given: dict[str, Any] = {"label": "y", "label_bounds": [-1, 1], "features": {"a": [-1, 1], "b": [-1, 1]}}
        for name, record in RECORDS.items():
            connection.execute(f"create table summed.{name} as table summed.others")
            connection.execute(f"insert into summed.{name} values (%s, %s, %s)", record)
            connect(connection).register_dataset(name, f"summed.{name}", **given, epsilon=10, delta=0.5)
        yield
        for name in RECORDS:
            connection.execute("select dbdp.drop_dataset(%s)", (name,))
        connection.execute("drop schema summed cascade")


def aggregated(database: Database, name: str) -> tuple[np.ndarray, SummaryPlan]:
    """The coordinates of the joint moment as a summary reads it, by the real aggregate."""
    dataset = datasets.load(database._session, name)
    plan = plan_of(dataset, 1.0, 1e-6)
    layout = Layout(plan.dimension, (dataset.rows,), coding={"encoding": CENTRED})
    with packed_rows(database._session, dataset, layout) as rows:
        rows.shuffle()
        return coordinates_of(rows.joint_moment(plan.labels, plan.weight)), plan


def test_orthogonal_records_attain_the_joint_moments_bound(database, neighbours):
    """(a, b, 1, y) = (1, 1, 1, 1) and (-1, -1, 1, 1) are orthogonal, and as long as a record can be."""
    (ahead, plan), (aside, _), (behind, _) = (aggregated(database, name) for name in ("ahead", "aside", "behind"))
    bound = moment_sensitivity(Summed.of_moment(ROWS, plan.coordinates), square=1 + plan.weight**2)
    assert 0.99999 < np.linalg.norm(ahead - aside) / bound <= 1
    assert np.linalg.norm(ahead - behind) < 0.99 * bound  # they differ in the products with the constant alone
    assert plan.noise.sensitivity >= bound


def test_the_aggregate_is_that_of_the_rows_in_memory(database, neighbours):
    query = "select a, b, 1, y from summed.ahead"
    rows = np.array(database.connection.execute(query).fetchall(), np.float64) / math.sqrt(3)
    assert aggregated(database, "ahead")[0] == pytest.approx(coordinates_of(rows.T @ rows), rel=1e-6, abs=1e-2)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("3, -1, 0.5", "labels = -1 must be a whole number between 0 and 2048"),
        ("0, 1, 0.5", "dimension = 0 must be a whole number"),
        ("2000, 2000, 0.5", r"dimension \+ labels = 4000 must be a whole number between 1 and 2048"),
    ],
)
def test_sizes_beyond_all_limits_are_refused(connection, sizes, message):
    with pytest.raises(psycopg.Error, match=message):
        connection.execute(f"select dbdp_internal.joint_moment('\\x00'::bytea, {sizes})")


# --- the charge ----------------------------------------------------------------------------------------------


def test_a_summary_is_charged_once_and_its_use_is_free(database, register, spent, table):
    name = register("t", features=FEATURES, **LABELS["real"])
    planned = database.explain_score(name, "summary", epsilon=2, delta=1e-6)
    assert spent(name) == (0, 0)
    summary = database.summarize(name, epsilon=2, delta=1e-6)
    charged = (2 * CHARGE_UNITS, round(1e-6 * LEAK_UNITS))
    assert spent(name) == charged
    assert {key: value for key, value in planned.items() if key != "metric"}.items() <= summary.receipt.items()
    multiplier = analytic_noise_multiplier(2, 1e-6)
    row = database.history(name)[-1]
    assert (row["outcome"], row["models"], row["algorithm"]) == ("released", [summary.id], "summary")
    assert row["event"] == {"event": "GaussianDpEvent", "noise_multiplier": multiplier}
    assert summary.receipt["noise_scale"] >= multiplier * moment_sensitivity(
        Summed.together(3000), square=1 + 0.2 * SHRUNK
    )
    for follow in (lambda: summary.linreg("cost"), summary.pca, summary.correlations):
        assert follow()["noise_scale"] > 0
    assert spent(name) == charged
    assert [each["id"] for each in database.summaries() if each["dataset"] == name] == [summary.id]
    assert summary.id not in [each["id"] for each in database.models()]


def test_the_command_releases_a_summary(database, register, table, server_url):
    name = register("t", features=FEATURES, **LABELS["real"])
    command = ["summarize", name, "--epsilon", "2", "--delta", "1e-6", "--url", server_url]
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert found["receipt"] == database.summary(found["summary"]).receipt
    assert "noise_scale" in CliRunner().invoke(app, command).stdout


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"delta": 0.0}, "delta = 0: a summary has Gaussian noise"),
        ({"epsilon": -1.0}, "epsilon = -1.0 must be positive"),
        ({"epsilon": 5e5}, "1000"),
    ],
)
def test_what_is_refused_is_refused_before_the_charge(database, register, spent, table, wrong, message):
    name = register("t", features=FEATURES, **LABELS["real"])
    with pytest.raises(ValueError, match=message):
        database.summarize(name, **{"epsilon": 1.0, "delta": 1e-6} | wrong)
    assert spent(name) == (0, 0)
    assert [each for each in database.summaries() if each["dataset"] == name] == []


def test_a_unit_of_several_rows_has_noise_for_all_of_them(database, register, table):
    name = register("t", features=FEATURES, **LABELS["real"], unit="unit", max_rows=3)
    shown = database.explain_score(name, "summary", epsilon=2, delta=1e-6)
    bound = moment_sensitivity(Summed.together(3000), square=1 + 0.2 * SHRUNK, moved=3)
    assert bound <= shown["sensitivity"] < 1.0001 * bound
    summary = database.summarize(name, **{"epsilon": 900.0, "delta": 1e-6})
    assert summary.receipt["units"] == 1000
    assert summary.linreg("cost", ["age"])["coefficients"]["age"] == pytest.approx(3, abs=0.5)


# --- an audit ------------------------------------------------------------------------------------------------

AUDIT = SummaryPlan(2.0, 0.1, 20, 2, 1, float(np.float32(0.7)))
RUNS, BORDER = 2000, 0.65


def statistics_of(record: list[float], label: float) -> np.ndarray:
    """How far releases are along the difference of two orthogonal records, in deviations from the middle."""
    rows = RowsInMemory(np.vstack([np.zeros((19, 2)), record]), np.append(np.zeros(19), label)).all
    moment = second_moments.SecondMoment(2, 1, AUDIT.weight).of_rows(rows)
    along = coordinates_of(np.outer(AHEAD, AHEAD) - np.outer(ASIDE, ASIDE))
    along /= np.linalg.norm(along)
    return np.array([AUDIT.release(moment) @ along for _ in range(RUNS)]) / AUDIT.noise.noise_scale


AHEAD = np.array([1.0, 0.0, AUDIT.weight])
ASIDE = np.array([-(AUDIT.weight**2), math.sqrt(1 - AUDIT.weight**4), AUDIT.weight])


def audit() -> float:
    ahead, aside = statistics_of([1.0, 0.0], 1.0), statistics_of(ASIDE[:2].tolist(), 1.0)
    return audited(ahead, aside, BORDER, AUDIT.delta)


def test_no_release_proves_more_than_is_claimed():
    assert audit() <= AUDIT.epsilon


def test_releases_with_a_third_of_the_noise_do(monkeypatch):
    sound = streams.vector
    monkeypatch.setattr(streams, "vector", lambda law, steps, *shape: sound(law, steps // 3, *shape))
    assert audit() > AUDIT.epsilon


# --- what follows from a summary -----------------------------------------------------------------------------

TARGETS = {
    "real": [("cost", None), ("age", ["cost", "dose"]), ("ward=a", ["age"])],
    "binary": [("ill", ["age", "ward"]), ("dose", ["ill"])],
    "classes": [("kind=y", ["age", "flag"]), ("flag", ["kind=x", "ward=b"])],
}


@pytest.mark.parametrize("kind", LABELS)
def test_least_squares_are_scikit_learns_in_column_units(summarized, table, kind):
    summary = summarized(kind)[1]
    numbers = numbers_of(table, LABELS[kind]["label"])
    for target, features in TARGETS[kind]:
        fit = summary.linreg(target, features, regularisation=0)
        names = list(fit["coefficients"])
        exact = LinearRegression().fit(numbers[names], numbers[target])
        found, noise = (np.array(list(fit[key].values())) for key in ("coefficients", "coefficient_noise"))
        assert (np.abs(found - exact.coef_) < 5 * noise + 1e-6 * np.abs(exact.coef_)).all()
        assert (noise < 0.01 * np.abs(exact.coef_).max()).all()
        assert abs(fit["intercept"] - exact.intercept_) < 5 * fit["intercept_noise"] + 1e-6 * abs(exact.intercept_)
    assert set(summary.linreg("age", regularisation=0)["coefficients"]) == set(numbers) - {"age"}


@pytest.mark.parametrize("kind", LABELS)
def test_correlations_are_those_of_pandas(summarized, table, kind):
    found = summarized(kind)[1].correlations()
    exact = numbers_of(table, LABELS[kind]["label"]).corr()
    assert found["columns"] == list(exact)
    assert np.array(found["correlations"]) == pytest.approx(exact.to_numpy(), abs=1e-4)


def test_components_are_numpys_for_scaled_columns(summarized, table):
    found = summarized("real")[1].pca(5)
    numbers = numbers_of(table, "cost").drop(columns="cost")
    ends = np.arcsinh(np.array([-5, 2000]) * 1000 / 2005)
    scaled = numbers / [30, 0.5, (ends[1] - ends[0]) / 2, 1, 1]
    values, vectors = np.linalg.eigh(np.cov(scaled.T, bias=True))
    loadings = np.array([list(each["loadings"].values()) for each in found["components"]])
    assert [each["variance"] for each in found["components"]] == pytest.approx(values[::-1], rel=1e-3)
    assert np.abs(loadings @ vectors[:, ::-1]) == pytest.approx(np.eye(5), abs=1e-2)
    assert found["total_variance"] == pytest.approx(values.sum(), rel=1e-3)
    assert list(found["components"][0]["loadings"]) == list(numbers)


def test_an_array_column_has_least_squares_too(database, register, make_table):
    random = np.random.default_rng()
    features = random.uniform(-1, 1, (500, 3))
    labels = np.where(features[:, 0] > features[:, 1], 1, -1)
    make_table("arrays", features, labels)
    name = register("arrays", features={"x": {"length": 3, "norm": 2}}, epsilon=1e6, delta=0.5)
    fit = database.summarize(name, **EXACT).linreg("y", regularisation=0)
    exact = LinearRegression().fit(features, labels == 1)
    assert list(fit["coefficients"].values()) == pytest.approx(exact.coef_, rel=1e-3, abs=1e-4)
    assert fit["intercept"] == pytest.approx(exact.intercept_, rel=1e-3)
    assert list(fit["coefficients"]) == ["x[1]", "x[2]", "x[3]"]


def test_rows_that_cannot_be_read_are_left_out(connection, summarized, table):
    connection.execute("update t set cost = null where age > 50")
    numbers = numbers_of(table[table.age <= 50], "cost")
    fit = summarized("real")[1].linreg("cost", ["flag"], regularisation=0)
    exact = LinearRegression().fit(numbers[["flag"]], numbers.cost)
    assert fit["coefficients"]["flag"] == pytest.approx(exact.coef_[0], rel=1e-3)
    assert fit["intercept"] == pytest.approx(exact.intercept_, rel=1e-3)


def test_a_column_that_a_summary_does_not_have_is_refused(summarized):
    summary = summarized("real")[1]
    for arguments, message in (
        (("height",), "has no column 'height'; choose among age, flag, dose, ward, cost"),
        (("ward",), "column 'ward' has 2 coordinates; name one of them: ward=a, ward=b"),
        (("",), "has no column ''"),
        (("cost", ["cost", "age"]), "'cost' is the target and a feature; leave it out of features"),
        (("cost", []), "features is empty; choose some of age"),
    ):
        with pytest.raises(ValueError, match=message):
            summary.linreg(*arguments)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"regularisation = .* must be between 0 and 1e"):
            summary.linreg("cost", regularisation=wrong)
    for number in (0, 6):
        with pytest.raises(ValueError, match=f"components = {number} must be a whole number between 1 and 5"):
            summary.pca(number)


def test_without_an_intercept_only_trainings_can_use_it(database, summarized):
    name, summary = summarized("real", intercept=False)
    for follow in (lambda: summary.linreg("cost"), summary.pca, summary.correlations):
        with pytest.raises(ValueError, match=r"has no means.*register the table with intercept => true"):
            follow()
    request = Request(1.0, 1e-6, **TRAIN, loss="huber_regression", summary=summary.id)
    assert database.train(name, request).receipt["summary"] == summary.id


def test_a_summary_is_not_a_model(database, summarized):
    name, summary = summarized("binary")
    for statement in ("select dbdp.predict(%s, t) from t", f"select dbdp.dp_score(%s, '{name}', 'accuracy', 1)"):
        with pytest.raises(psycopg.Error, match=f"model {summary.id} does not exist"):
            database.connection.execute(statement, (summary.id,))  # type: ignore[arg-type]
    model = database.train(name, Request(1.0, 1e-6, **TRAIN)).id
    with pytest.raises(ValueError, match=f"summary {model} does not exist"):
        database.summary(model)
    with pytest.raises(psycopg.Error, match=f"summary {model} does not exist; see dbdp.summaries"):
        database.connection.execute("select dbdp.summary_pca(%s)", (model,))
    assert database.summary(summary.id).receipt == summary.receipt


# --- trainings -----------------------------------------------------------------------------------------------

LOSSES = {"real": "huber_regression", "binary": "logistic", "classes": "logistic"}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("interface", ["client", "server"])
def test_a_training_with_a_summary_spends_all_on_steps(database, summarized, spent, monkeypatch, kind, interface):
    name, summary = summarized(kind)
    before = spent(name)
    if interface == "server":
        monkeypatch.setattr(Database, "_trains_here", lambda *_: False)
    requests = [Request(1.0, 1e-6, **TRAIN, loss=LOSSES[kind], summary=each) for each in (summary.id, None)]
    model, own = (database.train(name, each) for each in requests)
    assert np.subtract(spent(name), before).tolist() == [2 * CHARGE_UNITS, 2 * round(1e-6 * LEAK_UNITS)]
    assert model.receipt["moment_share"] == 0.0 < own.receipt["moment_share"]
    for receipt in (model.receipt, own.receipt):
        shares = sum(receipt.get(f"{part}_share", 0.0) for part in ("moment", "evaluation", "residual", "label"))
        steps = receipt["noise_multiplier"] * math.sqrt((1 - shares) / receipt["steps"])
        assert steps == pytest.approx(analytic_noise_multiplier(1.0, 1e-6))
    assert "noise_scale" not in model.receipt
    assert model.receipt["expected_passes"] == own.receipt["expected_passes"] - 1


@pytest.mark.parametrize("kind", LABELS)
def test_a_training_reads_no_second_moment_and_uses_the_summarys(database, summarized, monkeypatch, kind):
    """For a number it is the second moment of the rows as they are packed; for classes nearly so."""
    name, summary = summarized(kind)
    dataset = datasets.load(database._session, name)
    with packed_rows(database._session, dataset, Layout(dataset.declaration.dimension, (dataset.rows,))) as rows:
        rows.shuffle()
        exact = rows.second_moment() / dataset.rows
    used: list[np.ndarray] = []
    sound = preconditioned_gd.preconditioner_of
    monkeypatch.setattr(preconditioned_gd, "preconditioner_of", lambda *a: used.append(a[0]) or sound(*a))
    monkeypatch.setattr(preconditioned_gd, "MomentRelease", None)
    database.train(name, Request(1.0, 1e-6, **TRAIN, loss=LOSSES[kind], summary=summary.id))
    far = np.linalg.norm(used[0] - exact) / np.linalg.norm(exact)
    assert far < (1e-4 if kind == "real" else 0.15)
    assert used[0] == pytest.approx(stored_summaries.load(database._session, summary.id).moment_for(dataset).mean)


def test_classes_have_the_summarys_second_moment_exactly(database, register, table):
    """Category, indicator of bounds 0 and 1, and intercept: every packed row is 1/√3 times them."""
    database.connection.execute("update t set flag = 1")
    features = {"flag": [0, 1], "ward": ["a", "b", "c"]}
    name = register("t", features=features, epsilon=1e6, delta=0.5, **LABELS["binary"])
    summary, dataset = database.summarize(name, **EXACT), datasets.load(database._session, name)
    moment = stored_summaries.load(database._session, summary.id).moment_for(dataset)
    shares = [(table.ward == ward).mean() for ward in "abc"]
    units = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 0, 1], [1, 0, 0, 1, 1]]) / math.sqrt(3)
    assert moment.mean == pytest.approx(units.T @ (units * np.array(shares)[:, None]), abs=1e-4)
    assert 0 < moment.ridge < 1e-4


def test_indicators_without_intercept_have_no_class_summary(database, summarized, spent):
    name, summary = summarized("binary", intercept=False)
    before = spent(name)
    with pytest.raises(ValueError, match=r"has no intercept.*leave summary out, or register with intercept => true"):
        database.train(name, Request(1.0, 1e-6, **TRAIN, summary=summary.id))
    assert spent(name) == before


def test_a_summarys_misfit_is_refused_before_the_charge(database, register, summarized, spent, connection):
    name, summary = summarized("real")
    connection.execute("create table t2 as table t")
    other = register("t2", features=FEATURES, **LABELS["real"])
    before = spent(name), spent(other)
    good = Request(1.0, 1e-6, **TRAIN, loss="huber_regression", summary=summary.id)
    projected = replace(good, projection_dimension=2, projection_seed=1)
    for dataset, request, message in (
        (other, good, f"summary {summary.id} is of dataset '{name}'.* and not of '{other}'.*dp_summarize"),
        (name, replace(good, summary=10**6), "summary 1000000 does not exist; see dbdp.summaries"),
        (name, projected, "without a projection; leave out the projection"),
        (
            name,
            replace(good, algorithm="dp_sgd"),
            "algorithm 'dp_sgd' does not support summary.*use algorithm preconditioned_gd",
        ),
    ):
        for call in (database.explain, database.train):
            with pytest.raises(ValueError, match=message):
                call(dataset, request)
    connection.execute(
        "select dbdp.redeclare(%s, 'wider', features => %s::json)", (name, json.dumps(FEATURES | {"age": [10, 90]}))
    )
    with pytest.raises(ValueError, match=f"the features of dataset '{name}' were redeclared after summary"):
        database.train(name, good)
    assert (spent(name), spent(other)) == before


def test_a_summary_of_an_earlier_registration_is_refused(database, register, summarized):
    name, summary = summarized("real")
    database.connection.execute("select dbdp.drop_dataset(%s)", (name,))
    register("t", features=FEATURES, **LABELS["real"])
    with pytest.raises(ValueError, match="or of an earlier registration or period of it"):
        database.train(name, Request(1.0, 1e-6, **TRAIN, loss="huber_regression", summary=summary.id))
    assert summary.linreg("cost")["coefficients"]  # the release remains


def test_groups_share_a_summary_and_a_tuning_has_none(database, summarized, spent):
    name, summary = summarized("real", public_columns=["unit"])
    request = Request(1.0, 1e-6, **TRAIN, loss="huber_regression", summary=summary.id)
    models = database.train_groups(name, request, group_by="unit", groups=["1", "2"])
    assert {model.receipt["moment_share"] for model in models.values()} == {0.0}
    before = spent(name)
    with pytest.raises(ValueError, match="algorithm 'bolt_on' does not support summary"):
        database.tune(name, TuningRequest(replace(request, algorithm="bolt_on"), ({"epochs": 1},)))
    assert spent(name) == before
