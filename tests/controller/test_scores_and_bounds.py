"""Scores, bounds and class balance in the server: what is counted, what it costs, what no row can make them do."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from released import stored
from scipy.stats import chisquare, rankdata

from dbdp.algorithms import Request
from dbdp.algorithms.scores.class_balance import ClassBalancePlan
from dbdp.algorithms.scores.column_bounds import BETA, EDGES, BoundsPlan
from dbdp.algorithms.scores.confusion import AccuracyPlan, ConfusionPlan
from dbdp.algorithms.scores.metrics import OF_CLASSES, OF_FIT, OF_NUMBERS, ScoreRequest
from dbdp.algorithms.scores.residuals import POWERS
from dbdp.algorithms.scores.score_bins import BINS
from dbdp.controller.packed_rows import packed_rows
from dbdp.controller.statistics import noisy_scores
from dbdp.controller.statistics.scorers import released_model, scorer_of
from dbdp.interfaces.cli.demo import adult
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.database import Database
from dbdp.learning.counts import tallies
from dbdp.learning.counts.tallies import STEPS, ResidualsAndLabels
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS
from dbdp.registry import datasets
from dbdp.sessions.client import ClientSession
from dbdp.sessions.inside import guarded_reads
from dbdp.sessions.session import Row, Session


class Watched(ClientSession):
    """A session that keeps its statements in order.

    A client in place of the server, it has what evaluation needs of a session there; `scan_at_once` reads its tables.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        super().__init__(connection)
        self.statements: list[str] = []

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        self.statements.append(sql)
        return super().query(sql, *parameters)

    def undone(self) -> AbstractContextManager[Any]:
        """Undo what the block did."""
        return self.connection.transaction(force_rollback=True)

    def place(self, word: str) -> int:
        """Where the first statement with a word is; behind all others if there is none."""
        return next((place for place, sql in enumerate(self.statements) if word in sql), len(self.statements))


def scan_at_once(
    session: Watched, _source: str, _least: int, value: str, rows: str, receive: Any, *parameters: Any
) -> Iterator[None]:
    """Give each value at once."""
    for row in session.query(f"select {value} as value {rows}", *parameters):
        receive(row["value"])
    yield


Register = Callable[..., str]
WithModel = Callable[..., tuple[str, int]]
ROWS = 120
EXACT = 1e4  # with so much ε no count has noise, and a sum of errors hardly any
FEATURES = {"u": [-5, 20], "v": [0, 1]}
LABELS: dict[str, dict[str, Any]] = {
    "binary": {"label": "y", "positive": "1", "negative": "-1"},
    "classes": {"label": "k", "positive": None, "classes": ["a", "b", "c"]},
    "real": {"label": "r", "positive": None, "label_bounds": [-3, 5]},
}
MODELS: dict[str, tuple[Any, Any]] = {
    "binary": ([1.0, 0.0], [-7.0]),
    "classes": ([[-1.0, 0.0], [0.0, 2.0], [1.0, 0.0]], [2.0, 0.0, -12.0]),
    "real": ([10.0, 1.0], [-75.0]),  # beyond the label's bounds nearly everywhere
}
KINDS_AND_METRICS = [(kind, metric) for kind in ("binary", "classes") for metric in OF_CLASSES]
KINDS_AND_METRICS += [("real", metric) for metric in OF_NUMBERS]
EVERY_KIND = pytest.mark.parametrize(("kind", "metric"), KINDS_AND_METRICS)


def scores_of(kind: str, features: np.ndarray) -> np.ndarray:
    """A classifier's score of each class for rows (u, v), shape (n, classes)."""
    coefficients, intercepts = (np.atleast_2d(np.array(each)) for each in MODELS[kind])
    lengths = np.sqrt(1 + ((features[:, 0] + 5) / 12.5 - 1) ** 2 + features[:, 1] ** 2)  # packed rows have norm 1
    scores = (features @ coefficients.T + intercepts[0]) / lengths[:, None]
    return np.hstack([-scores, scores]) if kind == "binary" else scores


def clear_of_borders(random: np.random.Generator) -> tuple[float, float]:
    """A row (u, v) of which no rounding to float32 changes the class, or the fifth of its probability."""
    while True:
        u, v = random.uniform(-5, 20), random.random()
        scores = [scores_of(kind, np.array([[u, np.float32(v)]]))[0] for kind in ("binary", "classes")]
        gaps = [np.diff(np.sort(each)[-2:]).item() for each in scores]
        fifths = [abs(5 / (1 + np.exp(-each[1])) % 1 - 0.5) for each in scores]
        if min(gaps) > 1e-4 and max(fifths) < 0.4999:
            return u, v


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> str:
    """Rows within the declared bounds."""
    random = np.random.default_rng()
    connection.execute("create table t (id int, u float8, v float4, y int, k text, r float8)")
    with connection.cursor().copy("copy t from stdin") as copy:
        for number in range(ROWS):
            u, v = clear_of_borders(random)
            y, r = (1 if u > 7 else -1) * random.choice([1, 1, 1, -1]), np.clip(random.normal(u / 4, 1), -3, 5)
            copy.write_row((number, u, v, int(y), "abc"[random.integers(3)], r))
    return "t"


@pytest.fixture
def with_model(connection: psycopg.Connection, table: str, register: Register) -> WithModel:
    """Register the table with a label of some kind, and release a model for it."""

    def call(kind: str = "binary", **given: Any) -> tuple[str, int]:
        name = register(table, **{"epsilon": 1e6, "delta": 0.1, "features": FEATURES} | LABELS[kind] | given)
        return name, stored(connection, name, *MODELS[kind])

    return call


def request_for(kind: str, metric: str, epsilon: float = EXACT, delta: float = 0.0) -> ScoreRequest:
    positive = "b" if kind == "classes" and metric in ("auc", "calibration") else None
    return ScoreRequest(metric, epsilon, delta, 5, positive)


def scored(database: Database, model: int, name: str, request: ScoreRequest) -> dict[str, Any]:
    return database.score(
        model,
        name,
        request.metric,
        epsilon=request.epsilon,
        delta=request.delta,
        bins=request.bins,
        positive=request.positive,
    )


def exact_tally(database: Database, model: int, name: str, tally: tallies.Tally) -> np.ndarray:
    """A tally of the rows through packing and the aggregate."""
    session = database._session
    dataset = datasets.load(session, name)
    scorer = scorer_of(model, released_model(session, model), dataset, 1.0)
    with packed_rows(session, dataset, scorer.layout(dataset.rows)) as rows:
        rows.pack()
        return rows.tally(scorer.vectors, scorer.of(tally))


def counts(found: dict[str, Any]) -> np.ndarray:
    """The counts behind an answer; a sum of errors in units of what one row may add."""
    if "matrix" in found or "counts" in found:
        return np.array(found.get("matrix") or found["counts"]).ravel()
    metric = found["receipt"]["metric"]
    if metric in OF_FIT:
        return np.array([found["rmse"], found["r2"]])
    if metric in POWERS:
        return np.array([found[metric] * ROWS / 8.0 ** POWERS[metric]])
    count = round(found[metric] * ROWS)  # a share is a count over the rows, but for its rounding
    assert found[metric] == pytest.approx(count / ROWS, rel=1e-12)
    return np.array([count])


# --- what is counted ------------------------------------------------------------------------------------


def expected(connection: psycopg.Connection, kind: str, metric: str) -> np.ndarray:
    """The counts, from the model's formula."""
    rows = connection.execute("select u, v, y, k, r from t").fetchall()
    features, labels = (
        np.array([row[:2] for row in rows]),
        [row[{"binary": 2, "classes": 3, "real": 4}[kind]] for row in rows],
    )
    if kind == "real":
        coefficients, intercepts = MODELS[kind]
        errors = np.abs(np.clip(features @ coefficients + intercepts[0], -3, 5) - labels) / 8
        if metric in POWERS:
            return np.array([(errors ** POWERS[metric]).sum()])
        mean = np.square(errors * 8).mean()
        return np.array([math.sqrt(mean), 1 - mean / np.var(labels)])
    names, wide = [-1, 1] if kind == "binary" else list("abc"), scores_of(kind, features)
    true, chosen = np.array([names.index(label) for label in labels]), wide.argmax(axis=1)
    if metric in ("accuracy", "confusion"):
        matrix = np.bincount(true * len(names) + chosen, minlength=len(names) ** 2)
        return matrix if metric == "confusion" else np.array([(true == chosen).sum()])
    places = np.minimum((5 / (1 + np.exp(-wide[:, 1]))).astype(int), 4)
    return np.bincount(5 * (true == 1) + places, minlength=10)


@EVERY_KIND
def test_every_score_is_its_formula_with_much_epsilon(database, with_model, kind, metric):
    name, model = with_model(kind)
    result = scored(database, model, name, request_for(kind, metric))
    exact = expected(database.connection, kind, metric)
    assert counts(result) == pytest.approx(exact, abs=0.02 if kind == "real" else 0)
    assert metric == "r2" or exact.sum() > 0
    assert (result["receipt"]["model"], result["receipt"]["metric"]) == (model, metric)
    assert "classes" in result if kind != "real" else "classes" not in result


REPLACED: dict[str, tuple[Any, ...]] = {
    "one end": (-5.0, 0.0, -1, "a", -3.0),
    "the other, taken rightly": (20.0, 1.0, 1, "c", 5.0),
    "the other, taken wrongly": (20.0, 1.0, -1, "a", -3.0),
    "another class": (7.5, 1.0, 1, "b", 1.0),
    "beyond the bounds": (1e308, -3e38, 1, "b", 1e308),
    "hardly a number": (5e-324, 1e-40, -1, "b", -5e-324),
    "nothing": (None, None, None, None, None),
    "NaN": (math.nan, math.nan, 1, "b", math.nan),
    "an infinity": (math.inf, 0.0, 1, "b", -math.inf),
    "unknown labels": (1.0, 1.0, 7, "z" * 10_000, math.nan),
}


@EVERY_KIND
def test_a_replaced_row_moves_the_counts_as_covered(database, with_model, kind, metric):
    """Through packing and the aggregate; some rows attain it."""
    name, model = with_model(kind)
    plan = database.explain_score(name, metric, epsilon=1, positive=request_for(kind, metric).positive)
    results = []
    for row in REPLACED.values():
        database.connection.execute("update t set (u, v, y, k, r) = (%s, %s, %s, %s, %s) where id = 0", row)
        found = exact_tally(database, model, name, ResidualsAndLabels()) if metric in OF_FIT else None
        results.append(counts(scored(database, model, name, request_for(kind, metric))) if found is None else found)
    furthest = max(np.abs(one - other).sum() for one in results for other in results)
    step = STEPS * 2 ** POWERS[metric] if metric in POWERS else 1
    assert furthest == pytest.approx(plan["sensitivity"] / step, abs=0.02 if metric in POWERS else 0)


def test_networks_and_projections_are_scored_by_probability(database, with_model):
    name, _ = with_model("classes")
    more = {"projection_dimension": 1, "projection_seed": 3}
    request = Request(10.0, 1e-3, algorithm="dp_sgd", network="mlp:4", batch_size=50, epochs=1, **more)
    model = database.train(name, request).id
    result = database.score(model, name, "auc", epsilon=EXACT, bins=10, positive="c")
    assert np.sum(result["counts"]) == ROWS
    table = database.qualified_table("t")
    wins = database.query(f"select count(*) as c from {table} where k = 'c'")[0]["c"]
    assert np.sum(result["counts"][1]) == wins
    assert 0 <= result["auc"] <= 1
    chosen = database.query(f"select count(*) as c from {table} as t where dbdp.predict_class($1, t) = k", model)[0][
        "c"
    ]
    assert abs(database.score(model, name, "accuracy", epsilon=EXACT)["accuracy"] * ROWS - chosen) < 1.5


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_a_balance_counts_the_rows_of_each_class(database, with_model, kind):
    name, _ = with_model(kind)
    database.connection.execute("update t set y = 7, k = 'z' where id < 5; update t set u = 'NaN' where id = 5")
    result = database.class_balance(name, epsilon=EXACT)
    column, names = ("y", [-1, 1]) if kind == "binary" else ("k", ["a", "b", "c"])
    sql = f"select count(*) as c from {database.qualified_table('t')} where {column} = $1"
    assert result["counts"] == [database.query(sql, name)[0]["c"] for name in names]
    assert sum(result["counts"]) == ROWS - 5
    assert result["shares"] == pytest.approx(np.array(result["counts"]) / (ROWS - 5))
    if kind == "binary":
        assert (result["classes"], result["positive_weight"]) == (
            ["-1", "1"],
            result["counts"][0] / result["counts"][1],
        )


def test_scores_of_adult_are_within_their_noise(database, schema):
    """The noise exceeds seven times its stated error once in 10⁹ releases."""
    connection, (text, _) = database.connection, adult.read()
    columns = ", ".join(
        f"{name} {'int' if name in adult.NUMERIC else 'text'}" for name in text.partition("\n")[0].split(",")
    )
    connection.execute(f"create table a ({columns})")
    with connection.cursor().copy("copy a from stdin (format csv, header)") as copy:
        copy.write(text)
    name = f"{schema}_a"
    options = {"label": adult.LABEL, "positive": adult.POSITIVE, "negative": adult.NEGATIVE, "features": adult.DECLARED}
    database.register_dataset(name, f"{schema}.a", epsilon=100, delta=1e-3, mode="basic", **options)
    model = database.train(name, Request(1.0, 1e-6, algorithm="bolt_on", batch_size=500)).id
    sql = "select dbdp.predict_probability(%s, a), income = %s from a"
    probabilities, own = np.array(connection.execute(sql, (model, adult.POSITIVE)).fetchall(), float).T
    own = own == 1
    ranks = rankdata(probabilities)[own].sum()
    area = (ranks - own.sum() * (own.sum() + 1) / 2) / (own.sum() * (~own).sum())
    exact = {
        "auc": area,
        "brier": ((probabilities - own) ** 2).mean(),
        "accuracy": ((probabilities > 0.5) == own).mean(),
    }
    result = database.score(model, name, "auc", epsilon=0.2) | database.score(model, name, "accuracy", epsilon=0.2)
    room = {"auc": result["auc_discretisation"] * 1.5, "brier": 1 / BINS, "accuracy": 1e-4}
    for figure, value in exact.items():
        assert abs(result[figure] - value) < 7 * result[f"{figure}_noise"] + room[figure], figure
        assert result[f"{figure}_noise"] < 0.02, figure
    balance = database.class_balance(name, epsilon=0.2)
    assert abs(balance["counts"][1] - own.sum()) < 7 * balance["count_noise"]
    bounds = database.bounds(name, "age", epsilon=0.2)
    least, most = connection.execute("select min(age), max(age) from a").fetchone()
    assert bounds["lower"] <= least * 2
    assert most / 2 <= bounds["upper"] <= 128
    assert abs(bounds["outside"]) < 0.01


# --- bounds ---------------------------------------------------------------------------------------------

TYPES = {
    "smallint": ["0", "-32768", "7"],
    "bigint": ["9223372036854775807", "-9223372036854775808", "1"],
    "numeric": ["1e400", "-1e400", "1e-400", "NaN", "infinity", "-infinity", "0.1", "8"],
    "real": ["NaN", "infinity", "-infinity", "1e-40", "-3e38", "8"],
    "double precision": ["NaN", "infinity", "-infinity", "5e-324", "-1.7e308", "1.7976931348623157e308", "-0", "8"],
    "boolean": ["true", "false"],
    "length": ["-8", "NaN", "8"],
}


@pytest.mark.parametrize("type_name", TYPES)
def test_no_number_raises_and_each_is_in_its_bin(database, schema, register, type_name):
    connection, values = database.connection, [*TYPES[type_name], None]
    connection.execute('create domain length as float8; create table t ("a ""b" length, y int, x float8[])')
    connection.execute(f'alter table t alter "a ""b" type {type_name} using null')
    with connection.cursor().copy("copy t from stdin") as copy:
        for number in range(40 * len(values)):
            copy.write_row((values[number % len(values)], 1, "{1,2,3}"))
    name = register("t", epsilon=1e6)
    result = database.bounds(name, 'a "b', epsilon=EXACT)
    numbers = [float({"true": 1, "false": 0}.get(value, value)) for value in values[:-1]]
    if type_name == "numeric":
        numbers = [1e300, -1e300, 0.0, math.nan, math.nan, math.nan, 0.1, 8.0]  # as a training reads them
    finite = [number for number in numbers if math.isfinite(number)]
    expected: dict[int, int] = {}
    for number in finite:
        place = int(np.searchsorted(EDGES, number, side="right")) - 1
        expected[place] = expected.get(place, 0) + 40
    assert [each["rows"] for each in result["bins"]] == [expected[place] for place in sorted(expected)]
    assert result["lower"] <= min(finite) <= max(finite) or min(finite) < -1e300
    assert result["upper"] > max(finite) or max(finite) >= 1e300
    assert result["outside"] == pytest.approx(1 - len(finite) / len(values))
    assert result["receipt"]["column"] == 'a "b'


DAY, LATER = "2010-01-01", "2010-01-01 06:00"  # 3,653 days after 2000-01-01: in the bin from 2,048 to 4,096
ODD_DAYS = ["infinity", "-infinity", None]
MEASURED = {
    "date": ([DAY, "1999-12-31", "4713-01-01 BC", "5874897-12-31", *ODD_DAYS], (-(2.0**22), 2.0**31), 3 / 7),
    "timestamp": ([LATER, "4713-01-01 BC", "294276-12-31", *ODD_DAYS], (-(2.0**22), 2.0**27), 3 / 6),
    "timestamptz": ([LATER, "2000-01-01 12:00+00", *ODD_DAYS], (0.5, 4096.0), 3 / 5),
    "text": (["", "abc", "é" * 3, None], (0.0, 8.0), 1 / 4),
    "varchar(9)": (["abc", None], (2.0, 4.0), 1 / 2),
}


@pytest.mark.parametrize("type_name", MEASURED)
def test_bounds_of_dates_and_texts_are_days_and_bytes(database, schema, register, type_name):
    """No value raises, the far ends of time among them; infinities and nulls are in no bin."""
    values, (lower, upper), outside = MEASURED[type_name]
    connection = database.connection
    connection.execute(f"create table t (moment {type_name}, y int, x float8[])")
    with connection.cursor().copy("copy t from stdin") as copy:
        for number in range(40 * len(values)):
            copy.write_row((values[number % len(values)], 1, "{1,2,3}"))
    connection.execute("set timezone = 'Pacific/Kiritimati'")
    name = register("t", epsilon=1e6)
    with pytest.raises(psycopg.Error, match=r"column 'x' of .* is double precision\[\]; it must be one of smallint"):
        database.bounds(name, "x", epsilon=EXACT)
    result = database.bounds(name, "moment", epsilon=EXACT)
    assert (result["lower"], result["upper"]) == (lower, upper)
    assert result["outside"] == pytest.approx(outside)
    assert result["unit"] == result["receipt"]["unit"]
    is_time = type_name.startswith(("date", "timestamp"))
    assert result["unit"] == ("days since 2000-01-01" if is_time else "bytes of the text")
    if is_time:
        assert {"lower": 2048.0, "upper": 4096.0, "rows": 40} in result["bins"]


def test_a_replaced_number_moves_two_counts_by_one(database, table, register, monkeypatch):
    monkeypatch.setattr(guarded_reads, "scan", scan_at_once)
    name, found = register(table, **{"epsilon": 1e6, "features": FEATURES} | LABELS["binary"]), []
    session = Watched(database.connection)
    for value in (None, 0.0, -1e308, 1e308, math.nan, math.inf, 3.0):
        database.connection.execute("update t set u = %s where id = 0", (value,))
        dataset = noisy_scores.datasets.load(session, name)
        found.append(noisy_scores.records.binned(session, dataset, "u", "double precision", EDGES))
    moved = {int(np.abs(one - other).sum()) for one in found for other in found}
    assert moved == {0, 1, 2}
    assert BoundsPlan(1.0, 0.0, ROWS).mechanism.sensitivity == 2


@pytest.mark.parametrize(
    ("column", "named"),
    [
        ("nowhere", "column 'nowhere' does not exist in .*; its columns are id, k, r, u, v, y"),
        ("u; drop table t", "does not exist"),
        ("ctid", "does not exist"),
        (None, "column_name is required"),
    ],
)
def test_what_is_no_numeric_column_is_refused_before_the_charge(database, with_model, spent, column, named):
    name, _ = with_model()
    with pytest.raises(psycopg.Error, match=named):
        database.query("select dbdp.dp_bounds($1, $2, 1)", name, column)
    assert spent(name) == (0, 0)


# --- what it costs --------------------------------------------------------------------------------------


def every_interface(name: str, model: int, epsilon: float, delta: float) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """A call of each interface on a dataset with a binary label."""
    scores = {
        metric: ("select dbdp.dp_score($1, $2, $3, $4, $5) as f", (model, name, metric, epsilon, delta))
        for metric in OF_CLASSES
    }
    return scores | {
        "bounds": ("select dbdp.dp_bounds($1, 'u', $2, $3) as f", (name, epsilon, delta)),
        "class_balance": ("select dbdp.dp_class_balance($1, $2, $3) as f", (name, epsilon, delta)),
    }


@pytest.mark.parametrize(("mode", "delta"), [("basic", 0.0), ("basic", 1e-7), ("renyi", 0.0), ("gaussian", 1e-7)])
def test_every_interface_is_charged_what_is_explained(database, with_model, spent, mode, delta):
    name, model = with_model(epsilon=20.0, delta=1e-5, mode=mode)
    total = np.zeros(2, np.int64)
    for interface, (sql, parameters) in every_interface(name, model, 0.5, delta).items():
        explanation = database.explain_score(name, interface, epsilon=0.5, delta=delta)
        assert spent(name) == tuple(total)
        receipt = database.query(sql, *parameters)[0]["f"]["receipt"]
        total += [round(explanation["charge"] * CHARGE_UNITS), round(explanation["leak"] * LEAK_UNITS)]
        assert spent(name) == tuple(total), interface
        assert {key: receipt[key] for key in explanation if key != "metric"} == {
            key: value for key, value in explanation.items() if key != "metric"
        }
        if mode == "basic":
            assert (explanation["charge"], explanation["leak"]) == (0.5, delta)
    kept = database.query("select algorithm, plan::text as plan from dbdp.ledger order by id desc limit 6")
    assert [row["algorithm"] for row in kept[::-1]] == [
        *("accuracy", "confusion", "score_bins", "score_bins", "bounds", "class_balance")
    ]
    assert all(json.loads(row["plan"])["guarantee"]["epsilon"] == 0.5 for row in kept)


def test_plans_are_those_of_the_algorithms(database, with_model):
    name, _ = with_model()
    plans = {
        "accuracy": AccuracyPlan(0.5, 1e-6, ROWS),
        "bounds": BoundsPlan(0.5, 1e-6, ROWS),
        "confusion": ConfusionPlan(0.5, 1e-6, ROWS),
        "class_balance": ClassBalancePlan(0.5, 1e-6, ROWS, 1),
    }
    for metric, plan in plans.items():
        explanation = database.explain_score(name, metric, epsilon=0.5, delta=1e-6)
        assert {key: explanation[key] for key in plan.explain()} == plan.explain()


def test_defaults_are_the_same_in_every_interface(database):
    sql = "select pg_get_function_arguments(oid) as a from pg_proc where proname = $1"
    arguments = {
        interface: database.query(sql, interface)[0]["a"] for interface in ("dp_score", "dp_explain_score", "dp_bounds")
    }
    assert f"bins integer DEFAULT {BINS}" in arguments["dp_score"]
    assert f"bins integer DEFAULT {BINS}" in arguments["dp_explain_score"]
    assert f"beta double precision DEFAULT {BETA}" in arguments["dp_bounds"]


def direct(session: Session, interface: str, name: str, model: int) -> dict[str, Any]:
    """A call of an internal function, in a session that is watched."""
    if interface == "bounds":
        return noisy_scores.bounds(session, name, "u", epsilon=1.0, delta=0.0, beta=BETA)
    if interface == "class_balance":
        return noisy_scores.class_balance(session, name, epsilon=1.0, delta=0.0)
    return noisy_scores.score(session, model, name, ScoreRequest(interface, 1.0))


READS = {"accuracy": "dbdp_internal.shuffle(", "bounds": "float8send("}
READS |= dict.fromkeys(("confusion", "auc", "class_balance"), "dbdp_internal.tally(")


@pytest.mark.parametrize("interface", READS)
def test_the_charge_comes_before_the_first_row(connection, with_model, spent, interface, monkeypatch):
    monkeypatch.setattr(guarded_reads, "scan", scan_at_once)
    name, model = with_model()
    watched = Watched(connection)
    direct(watched, interface, name, model)
    places = [watched.place(word) for word in ("dbdp_internal.charge(", READS[interface], "wal_flush")]
    assert places == sorted(places)
    assert places[-1] < len(watched.statements)
    assert spent(name) == (CHARGE_UNITS, 0)


@pytest.mark.parametrize("interface", READS)
def test_beyond_the_budget_no_row_is_read(connection, with_model, spent, interface):
    name, model = with_model(epsilon=0.9)
    watched = Watched(connection)
    with pytest.raises(psycopg.Error, match="does not cover this release"):
        direct(watched, interface, name, model)
    assert watched.place(READS[interface]) == watched.place("dbdp_internal.shuffle(") == len(watched.statements)
    assert spent(name) == (0, 0)


def test_bounds_do_not_wait_for_later_writes(database, with_model):
    """Nothing is written behind their charge but what pushes it to the disk."""
    name, _ = with_model()
    database.connection.execute("set statement_timeout = '120s'")
    for _ in range(5):
        database.bounds(name, "u", epsilon=0.1)


def test_rows_that_came_behind_the_registration_are_noticed(connection, with_model, spent):
    name, _ = with_model()
    connection.execute("insert into t (id) values (0)")
    with pytest.raises(psycopg.Error, match=r"has 121 rows, but dataset .* was registered with 120"):
        connection.execute("select dbdp.dp_bounds(%s, 'u', 1)", (name,))
    assert spent(name) == (0, 0)


@pytest.mark.statistical
@pytest.mark.parametrize("interface", ["accuracy", "class_balance"])
def test_released_counts_have_the_stated_law(database, with_model, interface):
    """By chi-square over eleven bins; a scale that is twice as large, or half, would be seen."""
    name, model = with_model()
    sql, parameters = every_interface(name, model, 0.2, 0.0)[interface]
    exact = database.query(sql, *(EXACT if value == 0.2 else value for value in parameters))[0]["f"]
    results = [database.query(sql, *parameters)[0]["f"] for _ in range(300)]
    if interface == "accuracy":  # a share is cut off at 0 and 1, about ten scales away
        noise = np.array([round((one["accuracy"] - exact["accuracy"]) * ROWS) for one in results])
    else:
        noise = (np.array([one["counts"] for one in results]) - exact["counts"]).ravel()
    scale, every = results[0]["receipt"]["noise_scale"], np.arange(-500, 501)
    edges = np.array([-3, -2, -1.2, -0.7, -0.3, 0.3, 0.7, 1.2, 2, 3]) * scale

    def fits(scale: float) -> float:
        law = np.bincount(np.searchsorted(edges, every), np.exp(-np.abs(every) / scale))
        seen = np.bincount(np.searchsorted(edges, noise), minlength=len(law))
        return float(chisquare(seen, law / law.sum() * len(noise)).pvalue)

    assert scale == (5 if interface == "accuracy" else 10)
    assert fits(scale) > 1e-9
    assert fits(scale * 2) < 1e-9
    assert fits(scale / 2) < 1e-9


# --- what is refused ------------------------------------------------------------------------------------


def test_what_cannot_be_scored_is_refused_before_the_charge(connection, with_model, spent):
    name, model = with_model("real")
    score = f"select dbdp.dp_score({model}, '{name}', "
    cases = {
        score + "'auc', 1)": "metric 'auc' needs classes, and the label is a number",
        score + "'f1', 1)": "metric 'f1' is unknown; choose one of accuracy",
        score + "null, 1)": "metric is required",
        score + "'mean_absolute_error', null)": "epsilon is required",
        score + "'mean_absolute_error', 'NaN')": "epsilon = nan must be positive",
        score + "'mean_absolute_error', 1, 0, null)": "bins is required",
        f"select dbdp.dp_score(987654321, '{name}', 'mean_absolute_error', 1)": "model 987654321 does not exist",
        f"select dbdp.dp_score({model}, 'nowhere', 'accuracy', 1)": "dataset 'nowhere' is not registered",
        f"select dbdp.dp_class_balance('{name}', 1)": "label 'r' of dataset .* is a number and has no classes",
        f"select dbdp.dp_bounds('{name}', 'u', 1, 0, 0)": r"beta = 0.0 must be a number from 1e-12 to 0\.5",
        f"select dbdp.dp_bounds('{name}', 'u', -1)": "epsilon = -1.0 must be positive",
        f"select dbdp.dp_explain_score('{name}', 'f1', 1)": "metric 'f1' is unknown",
    }
    for statement, named in cases.items():
        with pytest.raises(psycopg.Error, match=named) as error:
            connection.execute(statement)
        assert error.value.sqlstate == "DP001"
    assert spent(name) == (0, 0)


def test_a_model_of_another_labels_bounds_is_refused(connection, with_model, register):
    _, model = with_model("real")
    connection.execute("create table other as table t")
    other = register("other", **{"epsilon": 10, "features": FEATURES} | LABELS["real"] | {"label_bounds": [0, 5]})
    with pytest.raises(psycopg.Error, match=r"differs from that of dataset .* in label_bounds"):
        connection.execute("select dbdp.dp_score(%s, %s, 'mean_squared_error', 1)", (model, other))


# --- who may --------------------------------------------------------------------------------------------


def test_bounds_are_for_the_role_that_registered_the_table_alone(
    connection, schema, make_role, analyst, register, spent
):
    owner, rival = make_role("owner", "dbdp_data_owner"), make_role("rival", "dbdp_data_owner")
    connection.execute(f"grant create on schema {schema} to {owner}; set session authorization {owner}")
    connection.execute("create table t as select array[.1, .2, .3]::float8[] x, i % 2 y from generate_series(1, 60) i")
    name = register("t")
    assert set(connection.execute("select dbdp.dp_bounds(%s, 'y', 1)", (name,)).fetchone()[0]) >= {"lower", "upper"}
    connection.execute(f"grant select on t to {rival}")  # to see the rows is not to spend the budget
    connection.execute(f"set session authorization {rival}")
    with pytest.raises(psycopg.Error, match="is not registered"):  # to whom no right was given
        connection.execute("select dbdp.dp_bounds(%s, 'y', 1)", (name,))
    connection.execute(f"set session authorization {owner}")
    connection.execute("select dbdp.grant_training(%s, %s)", (name, rival))
    connection.execute(f"set session authorization {rival}")
    with pytest.raises(psycopg.Error, match=rf"belongs to {owner}; only that role may estimate bounds"):
        connection.execute("select dbdp.dp_bounds(%s, 'y', 1)", (name,))
    connection.execute(f"set session authorization {analyst}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("select dbdp.dp_bounds(%s, 'y', 1)", (name,))
    connection.execute("reset session authorization")
    assert spent(name) == (CHARGE_UNITS, 0)
    connection.execute("select dbdp.drop_dataset(%s)", (name,))


# --- scores of units ------------------------------------------------------------------------------------


@pytest.fixture
def visits(connection: psycopg.Connection, schema: str, register: Register) -> str:
    """200 patients with 1 to 5 visits each, of whom 2 visits count; the label is the sign of x[1]."""
    connection.execute(
        "create table visits as select p as patient, array[((p * 7 + v) % 20 - 9.5) / 10, .1, 0]::float8[] as x, "
        "sign((p * 7 + v) % 20 - 9.5)::int as y from generate_series(1, 200) p, generate_series(0, p % 5) v"
    )
    return register("visits", unit="patient", max_rows=2)


def test_counts_of_units_have_noise_for_all_rows_of_one(connection, visits):
    """Of units counts have noise for all rows of one and no more rows are counted."""
    model = connection.execute("select model from dbdp.dp_logreg(%s, 50, 1e-6)", (visits,)).fetchone()[0]
    queries = {
        "select dbdp.dp_score(%(model)s, %(name)s, 'confusion', 50)": "matrix",
        "select dbdp.dp_class_balance(%(name)s, 50)": "counts",
        "select dbdp.dp_bounds(%(name)s, 'y', 50)": "bins",
    }
    for sql, counts in queries.items():
        result = connection.execute(sql, {"model": model, "name": visits}).fetchone()[0]
        assert result["receipt"]["sensitivity"] == 4
        assert result["receipt"]["neighbours"] == "replace-one-unit"
        found = [each["rows"] for each in result[counts]] if counts == "bins" else np.ravel(result[counts])
        assert abs(sum(found) - 360) < 10  # 40 patients have one visit, 160 two or more


def test_of_units_the_accuracy_is_a_share_of_the_counted_rows(connection, visits):
    """The number of rows of a person is private: right and wrong rows, and those without an answer, are counted."""
    model = connection.execute("select model from dbdp.dp_logreg(%s, 50, 1e-6)", (visits,)).fetchone()[0]
    accuracy, confusion = (
        connection.execute("select dbdp.dp_score(%s, %s, %s, %s)", (model, visits, *each)).fetchone()[0]
        for each in (("accuracy", 2), ("confusion", 80))
    )
    assert (accuracy["receipt"]["sensitivity"], accuracy["receipt"]["cells"]) == (4, 3)
    assert accuracy["receipt"]["neighbours"] == "replace-one-unit"
    assert accuracy["accuracy"] == pytest.approx(confusion["accuracy"], abs=0.15)  # 54 rows: e⁻²⁷ for noise of scale 2
    assert 0 < accuracy["accuracy_noise"] < 0.15
    (explained,) = connection.execute("select dbdp.dp_explain_score(%s, 'accuracy', 2)", (visits,)).fetchone()
    assert explained["noise_scale"] == accuracy["receipt"]["noise_scale"] == 2.0


# --- the command line -----------------------------------------------------------------------------------


def test_the_command_line_shows_scores_bounds_and_balance(with_model, server_url):
    name, model = with_model()
    commands = {
        "accuracy_noise": ["score", str(model), name, "--epsilon", "10"],
        "observed": ["score", str(model), name, "--metric", "calibration", "--bins", "4", "--epsilon", "10"],
        "as 1": ["score", str(model), name, "--metric", "confusion", "--epsilon", "10"],
        "threshold": ["bounds", name, "u", "--epsilon", "10"],
        "positive_weight": ["class-balance", name, "--epsilon", "10", "--delta", "1e-6"],
    }
    for word, command in commands.items():
        shown = CliRunner().invoke(app, [*command, "--url", server_url])
        assert shown.exit_code == 0, shown.output
        assert word in shown.output
        assert "receipt" in shown.output
    result = CliRunner().invoke(app, [*commands["observed"], "--json", "--url", server_url])
    assert len(json.loads(result.output)["calibration"]) == 4


@pytest.mark.parametrize("method", ["score", "evaluate"])
def test_bins_that_are_not_whole_are_refused_by_python(database, with_model, method, spent):
    """The server would round them, and charge."""
    name, model = with_model("binary")
    metric = ("auc",) if method == "score" else ()
    with pytest.raises(ValueError, match=r"^bins = 20\.0 must be a whole number$"):
        getattr(database, method)(model, name, *metric, epsilon=0.5, bins=20.0)
    assert spent(name) == (0, 0)
    assert getattr(database, method)(model, name, *metric, epsilon=0.5, bins=np.int64(20))
