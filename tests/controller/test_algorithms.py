"""Every interface reaches every algorithm, loss and option; the interfaces agree; and the models are useful."""

import csv
import gzip
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from chance import usually
from click.testing import CliRunner
from pairs import others_slow, pairs_slow
from released import released
from short import FEW, OF_COLUMNS
from sklearn.base import clone

import dbdp
from dbdp.algorithms import ALGORITHMS, NOISY_WHILE_TRAINING, Request
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.connecting import connect

ROWS, FEATURES, BUDGET_EPSILON = 4000, 3, 1e6
LOSSES = {"logistic": "binary", "huber_svm": "binary", "huber_regression": "real", "squared": "real"}
ESTIMATORS = {
    "logistic": dbdp.LogisticRegression,
    "huber_svm": dbdp.LinearSVC,
    "huber_regression": dbdp.HuberRegressor,
    "squared": dbdp.Ridge,
}
OPTIONS = [each.name for each in fields(Request)]
LEFT_OUT = {  # what an interface decides by its name
    "dp_train": set(),
    "dp_explain": set(),
    "dp_logreg": {"loss", "huber_width"},
    "dp_svm": {"loss"},
    "dp_linreg": {"positive_weight"},
}
OWN_LENGTH = {name for name, few in FEW.items() if "epochs" not in few}
MOST_UPDATES, ENOUGH = 1000, 10  # that rrpsgd may make, and that suffice: it stops at any with equal probability
LEARNING = {  # with little noise
    "sgd_adv": {"epochs": 20, "batch_size": 1000},
    "rrpsgd": {"epochs": MOST_UPDATES, "batch_size": ROWS, "step_size": 3.0},
    "privgene": {"settings": '{"generations": 20}'},
}
REFUSED = {("majority", "huber_regression"), ("majority", "squared")}
REFUSED |= {("naive_bayes", loss) for loss in LOSSES if loss != "logistic"}
LOSSES_OF = {a: [b for b in LOSSES if (a, b) not in REFUSED] for a in ALGORITHMS}
ONE_LOSS_EACH = [(a, losses[place % len(losses)]) for place, (a, losses) in enumerate(LOSSES_OF.items())]
EVERY_PAIR = pytest.mark.parametrize(
    ("algorithm", "loss"), others_slow([(a, b) for a, losses in LOSSES_OF.items() for b in losses], *ONE_LOSS_EACH)
)
FUNCTION_OF = {"logistic": "dp_logreg", "huber_svm": "dp_svm", "huber_regression": "dp_linreg"}
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES)
BASE = {"epsilon": 2.0, "delta": 1e-6}
REQUESTS: dict[str, dict[str, Any]] = {  # together they set every option
    "defaults": {},
    "pure": {"delta": 0.0},
    "one epoch of one row": {"algorithm": "bolt_on", "epochs": 1, "batch_size": 1},
    "constant": {"algorithm": "bolt_on", "schedule": "constant", "step_size": 0.3},
    "decreasing": {"algorithm": "bolt_on", "schedule": "decreasing", "exponent": 0.7, "regularisation": 0.01},
    "square_root, all iterates": {"algorithm": "bolt_on", "schedule": "square_root", "averaging": "all"},
    "last epoch, fresh": {"algorithm": "bolt_on", "averaging": "last_epoch", "permutation": "fresh"},
    "weighted, in a ball": {"positive_weight": 2.5, "radius": 3.0},
    "wide hinge": {"loss": "huber_svm", "huber_width": 0.9},
    "shards": {"algorithm": "bolt_on", "shards": 3, "shard_averaging": "each_epoch"},
    "discrete": {"algorithm": "bolt_on", "mechanism": "discrete_gaussian"},
    "nsgd, worst position": {"algorithm": "nsgd", "calibration": "worst_position", "batch_size": 400},
    "nsgd, as published": {"algorithm": "nsgd", "calibration": "rdp", "batch_size": 400},
    "rsgd_ar": {"algorithm": "rsgd_ar", "averaging_interval": 2, "step_size": 0.5, "batch_size": 1000},
    "gradient descent": {"algorithm": "output_perturbation_gd", "step_size": 1.0, "epochs": 4},
    "projected": {"projection_dimension": 2, "projection_seed": 11},
    "dp_sgd, clipped": {"algorithm": "dp_sgd", "clip_norm": 0.5, "step_size": 0.7, "calibration": "pld"},
    "a network": {"algorithm": "dp_adam", "network": "mlp:4", "epochs": 2},
    "dp_blsgd, projected, weighted": {"algorithm": "dp_blsgd", "projection_dimension": 2, "projection_seed": 5}
    | {"positive_weight": 2.0, "radius": 2.0, "regularisation": 0.01}
    | FEW["dp_blsgd"],
    **{name: {"algorithm": name} | FEW[name] for name in NOISY_WHILE_TRAINING},
}
KINDS = {
    "binary": {"positive": "1", "negative": "-1"},
    "classes": {"label": "k", "classes": ["a", "b", "c"]},
    "real": {"label": "r", "label_bounds": [-10.0, 30.0]},
}
KEYS: dict[str, dict[str, Any]] = {  # the groups of g are public, or a private feature
    "": {"features": {"x": {"length": FEATURES, "norm": 1}}, "public_columns": ["g"]},
    "_private": {"features": {"z": [-1, 1], "g": ["a", "b", "none"]}, "capacity": ROWS},
    "_columns": {"features": {f"x{place}": [-1, 1] for place in range(1, FEATURES + 1)}, "public_columns": ["g"]},
}
GROUPS = ["a", "b", "none"]  # the last one has no row


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Features, and the score ⟨w, x⟩ that decides all labels: no row is nearer to the border than 0.05."""
    random = np.random.default_rng()
    features = random.uniform(-1, 1, size=(3 * ROWS, FEATURES)) / 2
    scores = features @ [1.0, -1.0, 0.5]
    kept = np.abs(scores) > 0.05
    return features[kept][:ROWS], scores[kept][:ROWS]


@pytest.fixture(scope="module")
def datasets(server_url: str) -> Iterator[dict[str, str]]:
    """A dataset for each kind of label, of rows that a linear model separates."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create schema separable; grant usage on schema separable to public")
        connection.execute("create table separable.binary (x float8[], y int, k text, r float8, z float8, g text)")
        for place in range(1, FEATURES + 1):
            expression = f"float8 generated always as (x[{place}]) stored"
            connection.execute(f"alter table separable.binary add x{place} {expression}")
        with connection.cursor().copy("copy separable.binary (x, y, k, r, z, g) from stdin") as copy:
            for row, score in zip(*map(np.ndarray.tolist, rows()), strict=True):
                label = "abc"[int(score > -0.3) + int(score > 0.3)]
                key = None if row[0] > 0.4 else "ab"[row[0] > 0]
                values = (1 if score > 0 else -1, label, 10 + 10 * score, row[0], key)
                copy.write_row(("{" + ",".join(map(repr, row)) + "}", *values))
        common = {"label": "y", "epsilon": BUDGET_EPSILON, "delta": 0.5, "mode": "basic"}
        names = {f"{kind}{key}": common | KINDS[kind] | KEYS[key] for kind, key in product(KINDS, KEYS)}
        for name, options in names.items():
            connection.execute(f"create table if not exists separable.{name} as table separable.binary")
            connect(connection).register_dataset(f"separable_{name}", f"separable.{name}", **options)
        yield {name: f"separable_{name}" for name in names}
        for name in names:
            connection.execute("select dbdp.drop_dataset(%s)", (f"separable_{name}",))
        connection.execute("drop schema separable cascade")


def trained_on(datasets: dict[str, str], algorithm: str | None, kind: str) -> str:
    """A dataset of this kind that the algorithm trains on: with an array, or with columns."""
    return datasets[f"{kind}_columns" if algorithm in OF_COLUMNS else kind]


def explained_in_sql(connection: psycopg.Connection, dataset: str, options: dict[str, Any]) -> dict[str, Any]:
    named = ", ".join(f"{name} => %({name})s" for name in options)
    return connection.execute(
        f"select dbdp.dp_explain(%(dataset)s, {named})", options | {"dataset": dataset}
    ).fetchone()[0]


def in_sql(connection: psycopg.Connection, interface: str, dataset: str, options: dict[str, Any]) -> dict[str, Any]:
    named = ", ".join(f"{name} => %({name})s" for name in options)
    return released(connection, f"dbdp.{interface}(%(dataset)s, {named})", options | {"dataset": dataset})[0]


def flags(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]


def lasting(algorithm: str, epochs: int) -> dict[str, int]:
    """Epochs, for what is trained for a number of them; others run until their budget is spent."""
    return {} if algorithm in OWN_LENGTH else {"epochs": epochs}


def command_line(*words: str) -> Any:
    """What a command prints as JSON."""
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_these_requests_set_every_option_and_loss():
    assert {loss for _, loss in ONE_LOSS_EACH} == set(LOSSES)
    of_releases = {"summary", "name", "pairs", "pair_cells", "monotone", "cohort"}  # test_summaries.py, …
    assert {name for options in REQUESTS.values() for name in options} | {"epsilon"} | of_releases == set(OPTIONS)


@pytest.mark.parametrize("interface", LEFT_OUT)
def test_every_option_is_a_parameter_of_every_sql_function(connection, interface):
    sql = """
select proargnames[:pronargs], pronargs - pronargdefaults
from pg_proc where oid = (select oid from pg_proc where proname = %s and pronamespace = 'dbdp'::regnamespace)"""
    names, needed = connection.execute(sql, (interface,)).fetchone()
    assert names == ["dataset", *(name for name in OPTIONS if name not in LEFT_OUT[interface]), "regularization"]
    assert needed == 0  # dbdp refuses by name a call without the dataset or ε


def test_every_option_is_a_parameter_and_a_flag():
    for loss, estimator in ESTIMATORS.items():
        of_label = "classes" if loss in ("logistic", "huber_svm") else "label_bounds"
        own = {"database", "bounds", of_label, "intercept", "progress"}
        assert set(estimator(epsilon=1).get_params()) == set(OPTIONS) - {"loss", "network"} | own
        assert estimator(epsilon=1).request == Request(1, loss=loss)
        assert estimator(epsilon=1, regularization=0.2).request == estimator(epsilon=1, lambda_=0.2).request
        assert estimator(epsilon=1, lambda_=0.2).regularisation == 0.2
    for command in ("train", "tune", "explain"):
        given = {each.name for each in app.get_command(None, command).params}
        assert given >= set(OPTIONS), command


@pytest.mark.parametrize("case", REQUESTS)
def test_the_interfaces_agree_on_the_plan(connection, database, datasets, case):
    options = BASE | REQUESTS[case]
    dataset = trained_on(datasets, options.get("algorithm"), "binary")
    in_server = explained_in_sql(connection, dataset, options)
    assert in_server == database.explain(dataset, Request(**options))
    dimension = REQUESTS[case].get("projection_dimension", FEATURES) + 1
    public = ("--rows", str(ROWS), "--features", str(dimension), "--budget-epsilon", str(BUDGET_EPSILON))
    if case not in OF_COLUMNS:  # which the number of features does not describe
        assert command_line("explain", *public, *flags(options)).items() <= in_server.items()
    receipt = in_sql(connection, "dp_train", dataset, options)["receipt"]
    assert in_server.items() <= receipt.items()
    if case in ("defaults", "shards", "rsgd_ar", "projected", "dp_sgd", "dp_agd", "majority"):
        assert in_server.items() <= database.train(dataset, Request(**options)).receipt.items()


def test_the_interfaces_agree_on_classes_and_on_numbers(connection, database, datasets):
    public = ("--rows", str(ROWS), "--features", str(FEATURES + 1))
    for kind, more, label_flags in (
        ("classes", {"loss": "huber_svm", "positive_weight": 2.0}, ("--classes", "3")),
        ("real", {"loss": "huber_regression", "huber_width": 0.5}, ()),
        ("real", {"loss": "squared", "radius": 0.7}, ()),
    ):
        options = BASE | more | {"algorithm": "preconditioned_gd"}
        in_server = explained_in_sql(connection, datasets[kind], options)
        assert in_server == database.explain(datasets[kind], Request(**options))
        shown = command_line("explain", *public, *label_flags, *flags(options))
        if kind == "real":  # without a dataset the units of the label are unknown
            assert "of the range of label_bounds" in shown.pop("predicted_loss")
        assert {name: in_server[name] for name in shown} == shown


@EVERY_PAIR
def test_every_algorithm_learns_with_every_loss(connection, database, datasets, separable, algorithm, loss):
    """Where noise decides nothing, a model is right on most separable rows, or explains most of the variance.

    A majority is right on one of the classes. RRPSGD stops too soon with a probability of 9/1000; other runs
    miss less often than that, by far.
    """
    dataset, binary = trained_on(datasets, algorithm, LOSSES[loss]), LOSSES[loss] == "binary"
    options = {"epsilon": 1000.0, "delta": 1e-5, "algorithm": algorithm, "loss": loss}
    options |= LEARNING.get(algorithm, lasting(algorithm, 20))
    least = {"majority": 0.499}.get(algorithm, 0.9) if binary else 0.5

    def sql_learns() -> bool:
        model = in_sql(connection, "dp_train", dataset, options)
        receipt = model["receipt"]
        assert (receipt["algorithm"], receipt["loss"], receipt["epsilon"]) == (algorithm, loss, 1000.0)
        return quality(separable, LOSSES[loss], np.array(model["coefficients"]), model["intercept"]) > least

    def python_learns() -> bool:
        model = database.train(dataset, Request(**options))
        receipt = model.receipt
        assert (receipt["algorithm"], receipt["loss"], receipt["epsilon"]) == (algorithm, loss, 1000.0)
        return quality(separable, LOSSES[loss], np.array(model.coefficients), model.intercept) > least

    for learns in (sql_learns, python_learns):
        assert usually(learns, missing=(ENOUGH - 1) / MOST_UPDATES)


@pytest.fixture(scope="module")
def separable(server_url: str, datasets: dict[str, str]) -> tuple[np.ndarray, ...]:
    """Features, signs and values of all rows."""
    with psycopg.connect(server_url) as connection:
        fetched = connection.execute("select x, y, r from separable.binary").fetchall()
    return tuple(np.array(column) for column in zip(*fetched, strict=True))


def quality(separable: tuple[np.ndarray, ...], kind: str, weights: np.ndarray, offset: float) -> float:
    """Share of the rows that are classified rightly, or of the variance that is explained."""
    features, signs, values = separable
    if len(weights) > FEATURES:  # the heights of a curve for each at equal steps between the bounds
        curves = zip(features.T, weights.reshape(FEATURES, -1), strict=True)
        scores = offset + sum(np.interp(x, np.linspace(-1, 1, len(curve)), curve) for x, curve in curves)
    else:
        scores = features @ weights + offset
    if kind == "binary":
        return float(np.mean(scores * signs > 0))
    return 1 - float(np.mean((scores - values) ** 2) / np.var(values))


def trained(server_url: str, way: str, dataset: str, key: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one model, or one for each group: what an interface gives of each."""
    grouped = [] if key == "one model" else GROUPS
    if way == "python":
        with connect(server_url) as database:
            request = Request(**options)
            if not grouped:
                return [vars(database.train(dataset, request))]
            return list(map(vars, database.train_groups(dataset, request, group_by="g", groups=grouped).values()))
    if way == "command line":
        command = ("train-groups", dataset, "--group-by", "g") if grouped else ("train", dataset)
        chosen = [word for group in grouped for word in ("--group", group)]
        found = command_line(*command, *chosen, *flags(options), "--url", server_url)
        return list(found.values()) if grouped else [found]
    with psycopg.connect(server_url, autocommit=True) as connection:
        if not grouped:
            function = FUNCTION_OF.get(options["loss"], "dp_train")
            given = {name: value for name, value in options.items() if name != "loss" or function == "dp_train"}
            return [in_sql(connection, function, dataset, given)]
        named = ", ".join(f"{name} => %({name})s" for name in options)
        call = f"dbdp.dp_train_groups(%(dataset)s, 'g', %(groups)s, {named})"
        return released(connection, call, options | {"dataset": dataset, "groups": grouped})


@pairs_slow(
    algorithm=ALGORITHMS,
    way=["sql", "python", "command line"],
    key=["one model", "public groups", "private groups"],
    kind=KINDS,
)
def test_every_algorithm_trains_through_every_interface(server_url, datasets, algorithm, way, key, kind):
    """One or several models, of two classes, three or numbers; a group without rows has the model nobody trained."""
    losses = [loss for loss in LOSSES_OF[algorithm] if (LOSSES[loss] == "real") == (kind == "real")]
    if not losses or (algorithm, kind) == ("naive_bayes", "classes"):
        return  # refused
    loss = losses[list(ALGORITHMS).index(algorithm) % len(losses)]
    dataset = datasets[f"{kind}_private"] if key == "private groups" else trained_on(datasets, algorithm, kind)
    options = BASE | {"algorithm": algorithm, "loss": loss} | FEW.get(algorithm, {"epochs": 2})
    models = trained(server_url, way, dataset, key, options)
    assert len(models) == (1 if key == "one model" else len(GROUPS))
    receipt = models[0]["receipt"]
    assert (receipt["algorithm"], receipt["loss"], receipt["epsilon"]) == (algorithm, loss, 2.0)
    assert receipt.get("classes", 1) == (3 if kind == "classes" else 1)
    assert {np.ndim(model["coefficients"]) for model in models} == {2 if kind == "classes" else 1}
    assert {model["receipt"]["algorithm"] for model in models} == {algorithm}
    if key == "public groups":
        assert models[-1]["receipt"]["rows"] == 0
        assert not np.any(models[-1]["coefficients"])
    if key == "private groups":
        assert {model["receipt"]["capacity"] for model in models} == {ROWS // len(GROUPS)}


@pytest.mark.parametrize(("algorithm", "loss"), sorted(REFUSED))
def test_what_cannot_be_learned_is_refused_before_the_charge(connection, database, datasets, algorithm, loss):
    spent = connection.execute("select count(*) from dbdp.ledger").fetchone()
    with pytest.raises(ValueError, match="choose"):
        database.train(datasets[LOSSES[loss]], Request(**BASE, algorithm=algorithm, loss=loss))
    with pytest.raises(psycopg.Error, match="choose"):
        in_sql(connection, "dp_train", datasets[LOSSES[loss]], BASE | {"algorithm": algorithm, "loss": loss})
    assert connection.execute("select count(*) from dbdp.ledger").fetchone() == spent


@EVERY_LOSS
def test_every_estimator_keeps_scikit_learns_conventions(database, datasets, loss):
    estimator = ESTIMATORS[loss](epsilon=1000, delta=1e-5, epochs=20, progress=False)
    copy = clone(estimator).set_params(algorithm="nsgd", batch_size=100)
    assert copy.get_params() == estimator.get_params() | {"algorithm": "nsgd", "batch_size": 100}
    assert repr(clone(copy)) == repr(copy)
    with pytest.raises(TypeError):
        ESTIMATORS[loss]()  # no default for a privacy parameter
    with pytest.raises(TypeError):
        ESTIMATORS[loss](epsilon=1, loss="other")
    assert copy.fit(database, datasets[LOSSES[loss]]) is copy
    features, scores = rows()
    expected = scores > 0 if LOSSES[loss] == "binary" else 10 + 10 * scores
    assert copy.predict(features).shape == (len(features),)
    least = 0.5 + 0.4 * (LOSSES[loss] == "binary")
    assert usually(lambda: copy.fit(database, datasets[LOSSES[loss]]).score(features, expected) > least)
    assert copy.receipt_["algorithm"] == "nsgd"


@pytest.mark.parametrize("loss", ["logistic", "huber_svm"])
def test_classes_are_learned_one_against_the_rest(connection, database, datasets, loss):
    """The middle class lies between the others: no linear score prefers it, and it takes rows of both."""
    given = {"epsilon": 1000, "delta": 1e-5, "algorithm": "bolt_on", "epochs": 20, "progress": False}
    estimator = ESTIMATORS[loss](**given).fit(database, datasets["classes"])
    sql = "select dbdp.predict_class(%s, %s::float8[])"
    assert estimator.classes_.tolist() == ["a", "b", "c"]
    assert estimator.coef_.shape == (3, FEATURES)
    features, scores = rows()
    classes = np.array(list("abc"))[(scores > -0.3).astype(int) + (scores > 0.3)]
    outer = classes != "b"

    def learns() -> bool:
        estimator.fit(database, datasets["classes"])
        highest = connection.execute(sql, (estimator.model_id_, [0.5, -0.5, 0.5])).fetchone()
        return np.mean(estimator.predict(features)[outer] == classes[outer]) > 0.65 and highest == ("c",)

    assert usually(learns)


def test_settings_are_a_mapping_or_json_in_python(database, datasets):
    estimator = dbdp.LogisticRegression(**BASE, algorithm="dp_agd", settings={"splits": 4}, progress=False)
    assert estimator.request == Request(**BASE, algorithm="dp_agd", loss="logistic", settings='{"splits": 4}')
    assert clone(estimator).settings == {"splits": 4}
    assert estimator.fit(database, datasets["binary"]).receipt_["splits"] == 4


def test_the_command_line_tunes(server_url, datasets, tmp_path):
    candidates = tmp_path / "candidates.json"
    candidates.write_text('[{"regularisation": 0.01}, {"algorithm": "rsgd_ar"}]')
    options = ("--epsilon", "5", "--delta", "1e-6", "--candidates", str(candidates), "--url", server_url)
    for more in (("--method", "disjoint_portions"), ("--method", "random_repetition", "--repetitions", "2")):
        once = ("--algorithm", "bolt_on", "--epochs", "2", *more)
        model = command_line("tune", datasets["binary"], *options, *once)
        assert (model["receipt"]["algorithm"], model["receipt"]["method"]) == ("tuning", more[1])
        assert len(model["receipt"]["plans"]) == 2


LACKED = {  # what the default does not have, and the words of its remedy
    "epochs": (10, r"give passes in settings, such as .*passes.*: 20.*, or use algorithm bolt_on"),
    "batch_size": (50, "leave it out: each step reads all rows, or use algorithm bolt_on"),
    "regularisation": (0.01, "leave it out: the coordinates regularise.* or use algorithm bolt_on"),
}


@pytest.mark.parametrize("option", LACKED)
def test_every_interface_refuses_an_option_that_auto_lacks(connection, database, server_url, datasets, option):
    """The refusal names the remedy and nothing is charged; a control follows it by naming the algorithm."""
    value, remedy = LACKED[option]
    given = BASE | {option: value}
    name, before = datasets["binary"], database.budget(datasets["binary"])
    groups = f"'g', '{{a,b}}', epsilon => 2, delta => 1e-6, {option} => {value}"
    flag = f"--{option.replace('_', '-')}"
    calls: list[Callable[[], Any]] = [
        lambda: in_sql(connection, "dp_train", name, given),
        lambda: in_sql(connection, "dp_logreg", name, given),
        lambda: in_sql(connection, "dp_linreg", datasets["real"], given),
        lambda: explained_in_sql(connection, name, given),
        lambda: connection.execute(f"select dbdp.dp_train_groups(%s, {groups})", (name,)),
        lambda: database.train(name, Request(**given)),
        lambda: database.explain(name, Request(**given)),
        lambda: dbdp.LogisticRegression(**given, progress=False).fit(database, name),
        lambda: command_line("train", name, "--epsilon", "2", "--delta", "1e-6", flag, str(value), "--url", server_url),
        lambda: command_line("explain", "--rows", "9000", "--features", "4", *flags(given)),
    ]
    for call in calls:
        with pytest.raises((ValueError, psycopg.Error), match=f"auto chooses preconditioned_gd .*{remedy}"):
            call()
    assert database.budget(name) == before
    assert database.explain(name, Request(**given, algorithm="bolt_on"))["algorithm"] == "bolt_on"


def test_the_default_is_tuned_by_every_interface(connection, database, server_url, datasets, tmp_path):
    """Without an algorithm preconditioned_gd is tuned for the charge of one training run, and evaluates itself."""
    settings = [{}, {"settings": {"clip": 0.2}}]
    (tmp_path / "candidates.json").write_text(json.dumps(settings))
    options = ("--epsilon", "5", "--delta", "1e-6", "--candidates", str(tmp_path / "candidates.json"))
    call = "dbdp.dp_tune(%(dataset)s, %(candidates)s, epsilon => 5, delta => 1e-6)"
    given = {"dataset": datasets["classes"], "candidates": json.dumps(settings)}
    base = Request(5.0, 1e-6)
    receipts = [
        command_line("tune", datasets["binary"], *options, "--url", server_url)["receipt"],
        released(connection, call, given)[0]["receipt"],
        database.tune(datasets["binary"], TuningRequest(base, tuple(settings))).receipt,
    ]
    for receipt in receipts:
        assert receipt["method"] == "shared_moment" and receipt["chosen"] in (0, 1)
        assert {each["algorithm"] for each in receipt["plans"]} == {"preconditioned_gd"}
        assert "evaluation" in receipt and "standard_errors" in receipt
    assert receipts[2]["charge"] == database.train(datasets["binary"], base).receipt["charge"]


# Real data: where DBDP_DATA has it.

Load = Callable[[str, np.ndarray, list[Any], dict[str, Any]], str]


def data(*parts: str) -> Path:
    path = Path(os.environ.get("DBDP_DATA", "../shared/data")).joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"{path} is not at hand; set DBDP_DATA")
    return path


@pytest.fixture
def load(connection: psycopg.Connection, schema: str, register: Callable[..., str]) -> Load:
    """Make a table (x float8[], y text) of these rows, register it, and give the dataset's name."""

    def call(name: str, features: np.ndarray, labels: list[Any], declared: dict[str, Any]) -> str:
        type_name = "float8" if "label_bounds" in declared else "text"
        connection.execute(f"create table {name} (x float8[], y {type_name})")
        with connection.cursor().copy(f"copy {name} from stdin") as copy:
            for row, label in zip(features.tolist(), labels, strict=True):
                copy.write_row(("{" + ",".join(map(str, row)) + "}", str(label)))
        return register(name, positive=None, **declared)

    return call


WINE = {  # public bounds: what such wines have, not what these rows hold
    "fixed_acidity": (3, 17),
    "volatile_acidity": (0, 1.7),
    "citric_acid": (0, 1.7),
    "residual_sugar": (0, 70),
    "chlorides": (0, 0.7),
    "free_sulfur_dioxide": (0, 300),
    "total_sulfur_dioxide": (0, 450),
    "density": (0.98, 1.04),
    "pH": (2.5, 4.2),
    "sulphates": (0, 2.1),
    "alcohol": (8, 15),
}


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("huber_regression", {"epsilon": 2.0, "epochs": 200, "huber_width": 0.3}),  # 0.88 of the variance is left
        ("squared", {"epsilon": 10.0, "epochs": 100, "radius": 0.7}),  # 0.91
    ],
)
def test_the_quality_of_wine_is_predicted(connection, schema, register, database, loss, options):
    with gzip.open(data("wine", "wine.csv.gz"), "rt") as file:
        text = file.read()
    result = list(csv.DictReader(io.StringIO(text)))
    columns = ", ".join(f'"{name}" float8' for name in WINE)
    connection.execute(f"create table wine (color text, {columns}, quality float8)")
    with connection.cursor().copy("copy wine from stdin (format csv, header)") as copy:
        copy.write(text)
    features = {name: list(bounds) for name, bounds in WINE.items()} | {"color": ["red", "white"]}
    name = register("wine", label="quality", positive=None, label_bounds=[3, 9], features=features)
    request = Request(delta=1e-6, algorithm="output_perturbation_gd", loss=loss, **options)
    quality = np.array([float(row["quality"]) for row in result])

    def learns() -> bool:
        sql = f"select dbdp.predict_value({database.train(name, request).id}, w) from wine as w"
        predicted = np.array([value for (value,) in connection.execute(sql).fetchall()])
        return np.mean((predicted - quality) ** 2) < 0.96 * np.var(quality)

    assert usually(learns)
