"""The estimators on a caller's rows and on datasets: scikit-learn's checks, what is public, what is left behind."""

import inspect
import math
import pickle
import re
import secrets
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from sqlalchemy import MetaData, Table, select

import dbdp
from dbdp.controller import ChargedError
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.estimators import base

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

NEAR_EXACT = {"epsilon": 1e6, "delta": 1e-3, "algorithm": "output_perturbation_gd", "progress": False}
NETWORK = {"epsilon": 1e6, "delta": 1e-3, "hidden_layer_sizes": (8,), "epochs": 200, "progress": False}
STATED = {"bounds": {"age": [0, 100], "ward": ["A", "B"], "smoker": [0, 1]}, "classes": ["no", "yes"]}
EXACT_ONLY = "asks two fits for one model, and each has noise of its own, also at ε = 1e6"
EXPECTED = {
    "check_parameters_default_constructible": "ε has no default; scikit-learn before 1.6 asks for one",
    "check_fit_idempotent": EXACT_ONLY,
    "check_supervised_y_2d": EXACT_ONLY,
    "check_classifier_data_not_an_array": EXACT_ONLY,
    "check_regressor_data_not_an_array": EXACT_ONLY,
    "check_regressors_int": EXACT_ONLY,
}


def left_behind(connection: psycopg.Connection) -> int:
    """Return how many tables and open datasets of rows at hand there are."""
    sql = """select (select count(*) from pg_class where relname like 'dbdp\\_rows\\_%')
        + (select count(*) from dbdp.dataset where name like 'dbdp\\_rows\\_%' and dropped_at is null)"""
    return connection.execute(sql).fetchone()[0]


def evenly(rows: int, columns: int) -> np.ndarray:
    """Rows within 0 and 1 that are the same in each run: only noise is random here (Kronecker's sequence)."""
    return np.outer(np.arange(1, rows + 1), [math.sqrt(2), math.sqrt(3), math.sqrt(5)][:columns]) % 1


def points(rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two numbers spread evenly within ±1, and whether the first is positive."""
    features = 2 * evenly(rows, 2) - 1
    return features, features[:, 0] > 0


def people(rows: int = 200) -> dict[str, list[Any]]:
    """Return columns of every kind; a person older than 50 is ill."""
    age, ward, smoker = (evenly(rows, 3) * [100, 1, 1]).T
    return {
        "age": age.tolist(),
        "ward": np.where(ward < 0.5, "A", "B").tolist(),
        "smoker": (smoker < 0.5).tolist(),
        "ill": np.where(age > 50, "yes", "no").tolist(),
    }


@contextmanager
def no_leaks() -> Iterator[None]:
    """Fail where something was read from the rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", dbdp.PrivacyLeakWarning)
        yield


# --- scikit-learn's own checks ------------------------------------------------------------------------------


def outcomes(estimator: Any) -> dict[str, str]:
    """Return the result of each of scikit-learn's checks that did not pass."""
    results: dict[str, str] = {}

    def note(*, check_name: str, exception: BaseException | None, status: str, **_: Any) -> None:
        if status == "failed":
            results[check_name] = repr(exception)

    if "on_fail" in inspect.signature(check_estimator).parameters:
        check_estimator(estimator, on_fail=None, on_skip=None, callback=note)
        return results
    for each, check in check_estimator(estimator, generate_only=True):  # before scikit-learn 1.6
        try:
            check(each)
        except Exception as error:
            if type(error).__name__ != "SkipTest":
                results[check.func.__name__] = repr(error)
    return results


@pytest.mark.filterwarnings("ignore::dbdp.PrivacyLeakWarning", "ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.usefixtures("private")
@pytest.mark.parametrize(
    "estimator",
    [
        dbdp.LogisticRegression(**NEAR_EXACT, epochs=40),
        pytest.param(dbdp.LinearSVC(**NEAR_EXACT, epochs=60), marks=pytest.mark.slow),
        pytest.param(dbdp.LogisticRegression(**NEAR_EXACT, epochs=60, bounds=4.0), marks=pytest.mark.slow),
        pytest.param(dbdp.Ridge(**NEAR_EXACT, epochs=60, bounds=4.0, radius=3.0), marks=pytest.mark.slow),
        pytest.param(
            dbdp.HuberRegressor(**NEAR_EXACT, epochs=60, bounds=4.0, radius=3.0),
            marks=pytest.mark.slow,
        ),
        pytest.param(dbdp.MLPClassifier(**NETWORK, bounds=4.0), marks=pytest.mark.slow),
    ],
    ids=lambda each: f"{type(each).__name__}-{each.bounds}",
)
def test_scikit_learns_checks_pass_but_for_equal_fits(estimator, connection):
    result = outcomes(estimator)
    assert {name: why for name, why in result.items() if name not in EXPECTED} == {}
    assert left_behind(connection) == 0


# --- what is public -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("private")
def test_noise_decides_once_in_a_thousand_million_fits():
    """6.3 deviations in each of three coordinates: together they move no score by a twentieth of the coefficient."""
    for rows, epochs in ((120, 10), (120, 20), (240, 10)):
        model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=epochs, bounds=2.0, classes=[False, True])
        model.fit(*points(rows))
        assert 3 * math.erfc(6.3 / math.sqrt(2)) < 1e-9
        assert 3 * 6.3 * model.receipt_["noise_scale"] < 0.05 * model.coef_[0, 0]


@pytest.mark.usefixtures("private")
def test_what_is_stated_of_an_array_is_not_read_from_it():
    features, labels = points()
    with no_leaks():
        for bounds in ([-1, 1], ([-1, -1], [1, 1]), {"x0": [-1, 1], "x1": [-1, 1]}, 1.5):
            model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=30, bounds=bounds).fit(features, labels)
            assert model.score(features, labels) > 0.85
        numbers = dbdp.Ridge(**NEAR_EXACT, bounds=[-1, 1], label_bounds=[0, 1]).fit(features, labels.astype(float))
    assert numbers.declaration_.label_bounds == (0, 1)
    assert (numbers.declaration_.numeric[0].lower, numbers.declaration_.numeric[0].upper) == (-1, 1)


@pytest.mark.usefixtures("private")
def test_what_is_read_from_the_rows_is_listed_in_a_warning():
    features, labels = points()
    numbers, words = np.where(labels, 7, 3), {"ward": np.where(labels, "A", "B").tolist()}
    told = {
        "bounds of 'x0', bounds of 'x1'": ({"classes": [3, 7]}, features, numbers),
        "the classes of y": ({"bounds": 2.0}, features, numbers),
        "categories of 'ward'": ({"classes": [3, 7]}, words, numbers),
        "the norm of a row": ({"classes": [3, 7]}, np.tile(features, 451), numbers),
    }
    for message, (given, X, y) in told.items():
        with pytest.warns(dbdp.PrivacyLeakWarning, match=f"voids the guarantee: {message};") as warned:
            dbdp.LogisticRegression(**NEAR_EXACT, epochs=1, **given).fit(X, y)
        assert warned[0].filename == __file__
    with pytest.warns(dbdp.PrivacyLeakWarning, match="bounds of y"):
        dbdp.HuberRegressor(**NEAR_EXACT, bounds=2.0).fit(features, numbers)


@pytest.mark.usefixtures("private")
def test_a_label_outside_its_classes_is_refused():
    """Values outside their bounds are clipped and a label outside its classes is refused."""
    features, labels = points()
    stated = dbdp.LogisticRegression(**NEAR_EXACT, epochs=30, bounds=[-1, 1])
    with no_leaks():
        model = stated.fit(features * 1e6, labels)
    assert model.score(features * 1e6, labels) > 0.85
    with pytest.raises(ValueError, match=r"y holds 2, which is not one of the classes \[0, 1\]"):
        stated.set_params(classes=[0, 1]).fit(features[:2], [1, 2])


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize(
    ("bounds", "columns", "told"),
    [
        ({"height": [0, 1]}, {"age": [1, 2]}, "'height', which is not a column; the columns are age"),
        ([0, 1, 2], {"age": [1, 2]}, "nor a pair for 1 columns"),
        (2.0, {"ward": ["A", "B"]}, "'ward' holds texts, which have no norm"),
        ([0, 1], {f"c{number}": [0, 1] for number in range(901)}, "901 columns.*at most 900.*bounds=norm"),
        ({"age": [2, 1]}, {"age": [1, 2]}, "must be finite and increasing"),
        (None, {"age": [1, None]}, "'age' has missing or infinite values"),
        (None, {"age": [1, float("inf")]}, "'age' has missing or infinite values"),
        (None, {"ward": ["A", None]}, "'ward' has missing or infinite values"),
        (None, {}, "no rows or no columns"),
        (
            {"age": {"minimum": 0, "maximum": 9}},
            {"age": [1, 2]},
            "'age' is declared as .*minimum.* give .lower, upper.",
        ),
        ({"agee": [0, 9]}, {"age": [1, 2]}, "columns are age; did you mean 'age'"),
        ("facts.json", {"age": [1, 2]}, r"dbdp.propose_declaration\('facts.json'\)"),
        ([[0, 9], [0, 5]], {"age": [1, 2], "bmi": [1, 2]}, r"pairs.*\{'age': \[0.0, 9.0\], 'bmi': \[0.0, 5.0\]\}"),
        ([[0, 9]], {"age": [1, 2]}, r"name the columns: \{'age': \[0.0, 9.0\]\}"),
        ([[0, 9], [5, 10]], {"age": [1, 2], "bmi": [1, 2]}, "may be one pair for each column, or all lower"),
    ],
)
@pytest.mark.filterwarnings("ignore::dbdp.PrivacyLeakWarning")
def test_what_does_not_fit_is_refused_with_the_remedy(connection, bounds, columns, told):
    charged = connection.execute("select count(*) from dbdp.ledger").fetchone()
    with pytest.raises(ValueError, match=told):
        dbdp.LogisticRegression(**NEAR_EXACT, bounds=bounds).fit(columns, [0, 1])
    assert connection.execute("select count(*) from dbdp.ledger").fetchone() == charged
    assert left_behind(connection) == 0


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize(("rows", "delta", "is_large"), [(5, 0.5, True), (100, 0.01, True), (100, 0.0099, False)])
def test_a_delta_of_one_over_the_number_of_rows_is_warned_of(rows, delta, is_large):
    model = dbdp.LogisticRegression(epsilon=1000, delta=delta, bounds=1.0, classes=[0, 1], progress=False)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.fit(np.linspace(-1, 1, rows)[:, None], np.arange(rows) % 2)
    texts = [str(each.message) for each in warned if f"at least 1/{rows}" in str(each.message)]
    assert len(texts) == is_large
    assert (f"at least 1/{rows}" in model.receipt_.get("warning", "")) == is_large
    assert all(each.filename == __file__ for each in warned)


def test_an_estimator_has_no_seed():
    assert not {"random_state", "seed"} & set(dbdp.LogisticRegression(epsilon=1).get_params())


# --- what is left behind ------------------------------------------------------------------------------------


def failing(action: Callable[[], None]) -> Any:
    """A progress bar that acts when the first epoch is done."""

    @contextmanager
    def bar(*, enabled: bool = True) -> Iterator[Any]:
        yield lambda stage, done, _: action() if (stage, done) == ("epoch", 1) else None

    return bar


def fail() -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize(
    ("action", "error"),
    [(fail, ChargedError), (lambda: signal.raise_signal(signal.SIGINT), KeyboardInterrupt)],
    ids=["an error", "Ctrl-C"],
)
def test_nothing_is_left_behind_after(private, monkeypatch, action, error):
    features, labels = points()
    monkeypatch.setattr(base, "progress_bar", failing(action))
    model = dbdp.LogisticRegression(epsilon=1, bounds=2.0, algorithm="bolt_on")
    with pytest.raises(error):
        model.fit(features, labels)
    assert left_behind(private) == 0
    assert not hasattr(model, "coef_")


def test_the_charge_and_the_released_model_stay(private):
    features, labels = points()
    model = dbdp.LogisticRegression(epsilon=1 / 3, delta=1e-7, bounds=2.0).fit(features, labels)
    sql = "select outcome, charge::float8, models from dbdp.history_details order by id desc limit 1"
    assert private.execute(sql).fetchone() == ("released", pytest.approx(1 / 3), [model.model_id_])
    assert left_behind(private) == 0


def test_what_a_killed_process_left_is_dropped_by_the_next(private, server_url):
    """What a killed process left is dropped by the next and what is at work is not."""
    features, labels = points()
    dead, alive = "dbdp_rows_0000000000000000", "dbdp_rows_1111111111111111"
    with psycopg.connect(server_url, autocommit=True) as other:
        other.execute("select pg_advisory_lock(hashtextextended(%s, 0))", (alive,))
        for name in (dead, alive):
            other.execute(f"create table public.{name} (x float8)")
        dbdp.LogisticRegression(epsilon=1, bounds=2.0).fit(features, labels)
        rows = other.execute("select relname from pg_class where relname like 'dbdp\\_rows\\_%'").fetchall()
        other.execute(f"drop table public.{alive}")
    assert rows == [(alive,)]


@pytest.fixture
def stranger(private: psycopg.Connection) -> Iterator[str]:
    """A role that may create in public, and whose objects there are gone at the end."""
    name = f"stranger_{secrets.token_hex(4)}"
    private.execute(f"create role {name}; grant create on schema public to {name}")
    yield name
    private.execute(f"reset role; drop owned by {name} cascade; drop role {name}")


@pytest.mark.attack("sql-as-name")
def test_a_table_whose_name_is_sql_is_not_run(private, stranger):
    """A table whose name is sql is not run and those of others are not dropped."""
    injected = f"dbdp_rows_a;alter role {stranger} superuser"
    names = {injected, "dbdp_rows_0123456789abcdef", "dbdp_rows_0123456789ABCDEF", f"dbdp_rows_{'0' * 16}\n"}
    private.execute(f"set role {stranger}")
    for name in names:
        private.execute(sql.SQL("create table {} (i int)").format(sql.Identifier("public", name)))
    private.execute("reset role")
    dbdp.LogisticRegression(epsilon=1, bounds=2.0).fit(*points())
    there = private.execute("select relname from pg_class where relname like 'dbdp\\_rows\\_%'").fetchall()
    assert {name for (name,) in there} == names
    is_superuser = f"select rolsuper from pg_roles where rolname = '{stranger}'"
    assert private.execute(is_superuser).fetchone() == (False,)
    private.execute(f"drop table if exists public.{injected}")  # as it was done before
    assert private.execute(is_superuser).fetchone() == (True,)
    private.execute(f"alter role {stranger} nosuperuser")


@pytest.mark.parametrize("planted", ["authorization {}", "; grant create on schema dbdp_rows to {}"])
@pytest.mark.attack("sql-as-name")
def test_rows_are_not_put_where_others_may_create(private, stranger, planted):
    private.execute("drop schema if exists dbdp_rows cascade")
    private.execute(f"create schema dbdp_rows {planted.format(stranger)}")
    with pytest.raises(
        PermissionError, match="another role owns schema dbdp_rows of the private server, or may create in it"
    ):
        dbdp.LogisticRegression(epsilon=1, bounds=2.0).fit(*points())
    private.execute("drop schema dbdp_rows cascade")
    dbdp.LogisticRegression(epsilon=1, bounds=2.0).fit(*points())


# --- kinds of rows ------------------------------------------------------------------------------------------


def as_pandas(columns: dict[str, list[Any]]) -> Any:
    frame = pandas.DataFrame(columns)
    return frame.astype({"ward": pandas.CategoricalDtype(["A", "B"])})


def as_arrow(columns: dict[str, list[Any]]) -> Any:
    wards = pyarrow.DictionaryArray.from_arrays(
        [["A", "B"].index(ward) for ward in columns["ward"]], ["A", "B"], ordered=True
    )
    return pyarrow.table(columns | {"ward": wards})


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("made", [as_pandas, as_arrow])
def test_frames_bring_names_and_the_categories_of_their_types(made):
    columns = people()
    frame = made(columns)
    model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=40, bounds={"age": [0, 100]}, classes=["no", "yes"])
    with no_leaks():
        model.fit(frame, y="ill")
    assert model.feature_names_in_.tolist() == ["age", "ward", "smoker"]
    assert model.feature_names_ == ["age", "smoker", "ward=A", "ward=B"]
    assert (model.n_features_in_, model.classes_.tolist()) == (3, ["no", "yes"])
    features = frame.drop(columns="ill") if made is as_pandas else frame.drop_columns(["ill"])
    assert model.score(features, columns["ill"]) > 0.85
    by_place = np.array([columns["age"], columns["ward"], columns["smoker"]], dtype=object).T
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert model.decision_function(by_place) == pytest.approx(model.decision_function(features))


@pytest.mark.usefixtures("private")
def test_columns_have_any_names_and_values_any_letters():
    _, labels = points()
    frame = pandas.DataFrame({"label": labels * 1.0, 'we"ird é%s': np.where(labels, "ü'\\\t", "null")})
    classes = ["\N{SNOWMAN}", "b"]
    model = dbdp.LogisticRegression(
        **NEAR_EXACT,
        epochs=20,
        bounds={"label": [0, 1], 'we"ird é%s': ["ü'\\\t", "null"]},
        classes=classes,
    ).fit(frame, np.where(labels, *classes))
    assert model.score(frame, np.where(labels, *classes)) == 1
    assert model.feature_names_ == ["label", "we\"ird é%s=ü'\\\t", 'we"ird é%s=null']


@pytest.mark.usefixtures("private")
def test_several_classes_keep_their_type():
    features, _ = points(300)
    labels = np.select([features[:, 0] < -0.4, features[:, 0] > 0.4], [3, 1], 2)
    model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=40, bounds=1.5, classes=[1, 2, 3]).fit(features, labels)
    assert model.coef_.shape == (3, 2)
    assert set(model.predict(features)) <= {1, 2, 3}
    outer = labels != 2  # no linear score prefers the middle one
    assert np.mean(model.predict(features)[outer] == labels[outer]) > 0.7
    assert model.predict_proba(features).sum(axis=1) == pytest.approx(np.ones(300))
    assert np.allclose(np.exp(model.predict_log_proba(features)), model.predict_proba(features), rtol=1e-12)


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("algorithm", ["preconditioned_gd", "objective_perturbation", "bolt_on"])
def test_probabilities_are_of_the_loss_that_was_learned(algorithm):
    features, labels = points(120)
    y = np.where(labels, 1, 0) + (np.abs(features[:, 1]) < 0.2)
    options = NEAR_EXACT | {"algorithm": algorithm} | ({"delta": 0.0} if algorithm == "objective_perturbation" else {})
    model = dbdp.LogisticRegression(**options, bounds=2.0, classes=[0, 1, 2]).fit(features, y)
    scores = model.decision_function(features)
    together = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    each = 1 / (1 + np.exp(-scores))
    alone = each / each.sum(axis=1, keepdims=True)
    right, wrong = (alone, together) if algorithm == "bolt_on" else (together, alone)
    assert model.predict_proba(features) == pytest.approx(right)
    assert np.abs(model.predict_proba(features) - wrong).max() > 1e-3


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("classes", [["well", "ill"], pytest.param(["mild", "well", "ill"], marks=pytest.mark.slow)])
def test_scorers_do_not_depend_on_the_order_of_classes(classes):
    features, labels = points(240)
    y = np.where(labels, "well", "ill")
    if len(classes) == 3:
        y[np.abs(features[:, 1]) < 0.2] = "mild"
    model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=40, bounds=2.0, classes=classes)
    for scoring, least in (("roc_auc_ovr" if len(classes) == 3 else "roc_auc", 0.7), ("neg_log_loss", -1.1)):
        assert cross_val_score(model, features, y, cv=2, scoring=scoring).min() > least
    assert model.fit(features, y).classes_.tolist() == sorted(classes)
    stated = pandas.Series(pandas.Categorical(y, categories=classes))
    assert model.set_params(classes=None).fit(features, stated).score(features, y) > 0.6
    calibrated = CalibratedClassifierCV(model.set_params(classes=classes), cv=2).fit(features, y)
    assert calibrated.score(features, y) > 0.6


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize(
    ("given", "X", "y", "told"),
    [
        ({"bounds": {"b": [1, 2, 3, 4]}}, {"b": [1, 2]}, [0, 1], "'b' holds numbers.*its categories.*astype"),
        ({"bounds": {"b": ["1", "2"]}}, {"b": [1, 2]}, [0, 1], "'b' holds numbers.*its categories.*astype"),
        ({"bounds": {"b": [1, 2]}}, {"b": ["1", "2"]}, [0, 1], "'b' holds texts.*its bounds.*as texts"),
        ({}, {"": [1, 2]}, [0, 1], "PostgreSQL cannot have a column ''.*rename"),
        ({}, {"é" * 32: [1, 2]}, [0, 1], "1 to 63 bytes.*rename"),
        ({}, {"ctid": [1, 2]}, [0, 1], "PostgreSQL cannot have a column 'ctid'.*rename"),
        ({}, {"a\0": [1, 2]}, [0, 1], "PostgreSQL cannot have a column.*without NUL"),
        ({"bounds": [(0, 1), (10, 20)]}, [[0, 10], [1, 20]], [0, 1], r"one pair for each column.*'x1': \[10, 20\]"),
        ({}, [[0, 10], [1, 20]], "ill", "y = 'ill' names a column, and X has no names of columns"),
        ({}, {"a": [1, 2]}, pandas.Series([True, None], dtype="boolean"), "y has missing values"),
        ({"epsilon": -1}, {"a": [1, 2]}, [0, 1], "epsilon = -1 must be positive"),
        ({"epsilon": "1"}, {"a": [1, 2]}, [0, 1], "must be numbers"),
        ({"bounds": {"age": [0, 1]}}, [[0], [0]], [0, 1], r"are x0.*data frame.*set_output\(transform=\"pandas\"\)"),
        ({}, "loans.csv", None, r"name of a file.*pandas.read_csv\('loans.csv'\)"),
        ({}, "loans.parquet", None, r"pandas.read_parquet\('loans.parquet'\)"),
        ({}, pandas.Series([1, 2], name="age"), [0, 1], "X is a Series, one column.*pass a data frame"),
        ({"classes": [0, 1, 1]}, *points(), "hold '1' twice; list each once"),
        ({"classes": ["a", "b", "a"]}, *points(), "hold 'a' twice; list each once"),
        ({"classes": np.array([1, "1"], dtype=object)}, *points(), "hold '1' twice; list each once"),
        ({"classes": np.array([1, "a"], dtype=object)}, *points(), "are of several types"),
        ({"classes": [0, None]}, *points(), "hold a missing value"),
        ({"classes": "ab"}, *points(), "classes = 'ab'; pass a list"),
    ],
)
@pytest.mark.filterwarnings("ignore::dbdp.PrivacyLeakWarning")
def test_what_would_be_misread_is_refused_with_the_remedy(given, X, y, told):
    with pytest.raises(ValueError, match=told):
        dbdp.LogisticRegression(**NEAR_EXACT | {"classes": [0, 1]} | given).fit(X, y)


def test_a_regression_on_words_names_the_first_and_the_remedy():
    X, _ = points()
    with pytest.raises(
        ValueError, match="y has a value that is not a number, such as 'b'; pass numbers, or use Logist"
    ):
        dbdp.Ridge(**NEAR_EXACT, bounds=2.0, label_bounds=[0, 1]).fit(X, np.array(["1"] + ["b"] * (len(X) - 1)))


@pytest.mark.usefixtures("private")
def test_label_bounds_that_are_not_a_pair_are_refused():
    for bounds in (5, [1, 2, 3], ["a", "b"]):
        with pytest.raises(ValueError, match=r"label_bounds = .*; pass \[lower, upper\]"):
            dbdp.Ridge(**NEAR_EXACT, bounds=2.0, label_bounds=bounds).fit(*points())


@pytest.mark.usefixtures("private")
def test_a_delta_below_the_ledgers_unit_has_its_budget():
    with no_leaks():
        model = dbdp.LogisticRegression(epsilon=1, delta=1e-19, bounds=2.0, classes=[False, True]).fit(*points())
    assert model.receipt_["delta"] == 1e-19


@pytest.mark.usefixtures("private")
def test_nullable_booleans_are_taken_as_they_are():
    """Nullable booleans and numbered columns are taken as they are."""
    features, labels = points()
    frame = pandas.DataFrame(features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=20, bounds={0: [-1, 1], 1: [-1, 1]})
        model.fit(frame, pandas.Series(labels, dtype="boolean"))
    assert model.classes_.tolist() == [False, True]
    assert model.score(frame, labels) > 0.85


@pytest.mark.usefixtures("private")
def test_integers_are_written_as_postgresql_writes_them():
    _, labels = points()
    frame = pandas.DataFrame({"code": np.where(labels, "1", "2")})
    stated = {"bounds": {"code": ["1", "2"]}, "classes": [False, True]}
    model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=20, **stated).fit(frame, labels)
    assert model.score(frame.astype(int), labels) == 1


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize(("is_stated", "told"), [(True, None), (False, "categories of 'ward'")])
def test_only_an_ordered_dictionary_declares_its_categories(is_stated, told):
    """As polars.Enum has one, and polars.Categorical and dictionary_encode() have none."""
    wards = pyarrow.DictionaryArray.from_arrays([0, 1, 1, 0], ["A", "B", "C"], ordered=is_stated)
    model = dbdp.LogisticRegression(epsilon=1, algorithm="bolt_on", batch_size=2, classes=[0, 1])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.fit(pyarrow.table({"ward": wards}), [0, 1, 1, 0])
    leaks = [str(each.message) for each in warned if each.category is dbdp.PrivacyLeakWarning]
    assert [told in leak for leak in leaks] == ([True] if told else [])
    assert model.feature_names_ == [f"ward={name}" for name in ("ABC" if is_stated else "AB")]


@pytest.mark.usefixtures("private")
def test_columns_mostly_not_as_declared_are_warned_of():
    """Columns and labels of which most values are not as declared are warned of and others are not."""
    rows = {"age": [30, 40, 50, 60], "ward": ["A", "B", "A", "B"], "code": [1, 2, 3, 4]}
    wrong = {"age": [300, 900], "ward": ["a", "b"], "code": {"bounds": [0, 2.5], "bins": 2}}
    right = {"age": [35, 90], "ward": ["A", "B"], "code": {"bounds": [0, 3.5], "bins": 2}}  # a quarter is clipped
    for bounds, labels, told in ((wrong, [0, 0.5], ["age", "ward", "code", "y"]), (right, [0, 3], [])):
        model = dbdp.HuberRegressor(epsilon=1, delta=1e-6, bounds=bounds, label_bounds=labels, progress=False)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.fit(rows, [1, 2, 3, 3])
        texts = [text for each in warned if (text := str(each.message)).startswith("most values of")]
        assert [text.split("'")[1] for text in texts] == told
        assert all("spelling, case and units" in text for text in texts)


@pytest.mark.usefixtures("private")
def test_a_choice_of_the_larger_class_is_warned_of():
    model = dbdp.LogisticRegression(epsilon=0.1, delta=1e-6, bounds=[0, 1], classes=[0, 1], progress=False)
    with pytest.warns(UserWarning, match="only the majority class is released"):
        model.fit(np.linspace(0, 1, 60).reshape(-1, 3), [0, 1] * 10)
    assert model.receipt_["algorithm"] == "majority"


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("made", [as_pandas, as_arrow, dict])
def test_a_score_takes_the_name_of_the_labels_column_as_fit_does(made):
    model = dbdp.LogisticRegression(**NEAR_EXACT, **STATED).fit(made(people()), y="ill")
    columns = people()
    labels = columns.pop("ill")
    assert model.score(made(people()), "ill") == model.score(made(columns), labels) > 0.9
    with pytest.raises(ValueError, match=r"y is required, e\.g\. the labels of the rows, or the name"):
        model.score(made(columns))


@pytest.mark.parametrize("estimator", [dbdp.LogisticRegression, dbdp.MLPClassifier, dbdp.Ridge])
def test_a_label_among_the_bounds_is_refused(estimator):
    """A label that bounds name is refused with the keyword of its public facts."""
    keyword = "label_bounds" if estimator is dbdp.Ridge else "classes"
    model = estimator(epsilon=1, delta=1e-6, bounds={"age": [0, 9], "ill": ["no", "yes"]})
    with pytest.raises(ValueError, match=f"'ill', which is the label; leave it out there, and pass {keyword}="):
        model.fit({"age": [1, 2], "ill": ["no", "yes"]}, y="ill")


@pytest.mark.usefixtures("private")
def test_scalars_of_numpy_are_options_as_pythons_own():
    features, labels = points()
    options = {
        "epsilon": np.float32(8),
        "delta": np.float64(1e-3),
        "algorithm": "bolt_on",
        "epochs": np.int32(2),
        "batch_size": np.int64(20),
    }
    model = dbdp.LogisticRegression(**options, bounds=2.0, classes=[False, True]).fit(features, labels)
    assert (model.receipt_["epsilon"], model.receipt_["batch_size"]) == (8, 20)
    search = GridSearchCV(model, {"epochs": np.array([1, 2])}, cv=2, error_score="raise").fit(features, labels)
    assert search.best_params_["epochs"] in (1, 2)


# --- SQLAlchemy, and datasets -------------------------------------------------------------------------------


@pytest.fixture
def patients(private: psycopg.Connection, schema: str, engine: sqlalchemy.Engine) -> Table:
    """A table of people, not registered, as SQLAlchemy reflects it."""
    private.execute("create table patients (age float8, ward text, smoker boolean, ill text)")
    with private.cursor().copy("copy patients from stdin") as copy:
        for row in zip(*people().values(), strict=True):
            copy.write_row(row)
    return Table("patients", MetaData(), schema=schema, autoload_with=engine)


@pytest.fixture
def registered(database: Database, patients: Table) -> Iterator[str]:
    """Its dataset."""
    features = {"age": [0, 100], "ward": ["A", "B"]}
    name = f"{patients.schema}_patients"
    database.register_dataset(
        name, patients, label="ill", positive="yes", negative="no", features=features, epsilon=1e6, delta=1e-2
    )
    return name


def test_a_query_is_read_with_the_callers_rights(engine, patients):
    """A query is read with the callers rights and its columns are named."""
    model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=40, database=engine, **STATED)
    with no_leaks():
        model.fit(select(patients).where(patients.c.ward.in_(["A", "B"]), patients.c.age >= 0), y="ill")
    everybody = select(patients.c.ill, patients.c.smoker, patients.c.ward, patients.c.age)
    with engine.connect() as connection:
        ill = [row.ill for row in connection.execute(everybody)]
    assert model.score(everybody, ill) > 0.85
    assert (model.predict(patients) == model.predict(everybody)).all()
    with pytest.raises(ValueError, match="'age' has missing"):
        model.predict(select(sqlalchemy.null().label("age"), patients.c.ward, patients.c.smoker))
    with pytest.raises(ValueError, match="no column 'smoker'; their columns are age"):
        model.predict(select(patients.c.age))


def test_a_table_is_trained_in_place_where_it_is_registered(database, patients, registered):
    model = dbdp.LogisticRegression(**NEAR_EXACT | {"epsilon": 1e4}, epochs=40, database=database).fit(patients)
    assert model.receipt_["dataset"] == registered
    by_name = dbdp.LogisticRegression(epsilon=1, database=database).fit(registered)
    assert by_name.receipt_["dataset"] == registered
    assert by_name.feature_names_in_.tolist() == ["age", "ward"]
    assert by_name.predict(patients).shape == (200,)
    with pytest.raises(ValueError, match="declared label; leave y out"):
        by_name.fit(registered, "ill")


def test_bounds_that_a_dataset_does_not_use_are_warned_of(database, registered):
    given = {"epsilon": 1, "delta": 1e-6, "database": database, "progress": False}
    with pytest.warns(UserWarning, match=r"bounds and classes describe rows .* not used: dataset") as warned:
        dbdp.LogisticRegression(**given, **STATED).fit(registered)
    assert any(each.filename == __file__ for each in warned)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dbdp.LogisticRegression(**given).fit(registered)
    assert not [each for each in warned if "not used" in str(each.message)]


def test_the_classes_of_a_dataset_are_sorted_with_their_models(database, patients):
    name = f"{patients.schema}_wards"
    classes = ["C", "A", "B"]
    database.register_dataset(
        name, patients, label="ward", classes=classes, features={"age": [0, 100]}, epsilon=1e6, delta=1e-2
    )
    model = dbdp.LogisticRegression(**NEAR_EXACT | {"epsilon": 1e3}, database=database).fit(name)
    assert model.classes_.tolist() == ["A", "B", "C"]
    sql = "select coefficients, intercepts from dbdp.model where id = $1"
    stored = database.query(sql, model.model_id_)[0]
    for place, each in enumerate(model.classes_):
        assert model.coef_[place].tolist() == stored["coefficients"][classes.index(each)]
        assert model.intercept_[place] == stored["intercepts"][classes.index(each)]


REQUIRED = {
    "age": {"bounds": [0, 100], "missing": "required"},
    "ward": {"categories": ["A", "B"], "missing": "required"},
}


@pytest.mark.parametrize("missing", [None, np.nan, np.inf])
def test_missing_values_are_not_predicted_where_required(database, patients, missing):
    ages = f"{patients.schema}.ages"
    database.query(f"create table {ages} as select age, ward, ill from {patients.schema}.patients")
    stated = {"label": "ill", "positive": "yes", "epsilon": 10, "delta": 1e-2}
    database.register_dataset(ages, ages, features=REQUIRED, **stated)
    model = dbdp.LogisticRegression(epsilon=1, database=database).fit(ages)
    assert model.predict([[50, "A"], [60.0, "no such ward"]]).shape == (2,)
    for rows in ([[missing, "A"]], np.array([[missing, "A"]], dtype=object), {"age": [missing], "ward": ["A"]}):
        with pytest.raises(ValueError, match="column 'age' has missing or infinite values"):
            model.predict(rows)
    for rows in ([[50, None]], [[50, np.nan]], {"age": [50], "ward": [None]}):
        with pytest.raises(ValueError, match="column 'ward' has missing or infinite values"):
            model.predict_proba(rows)


@pytest.mark.parametrize("missing", [None, np.nan, np.inf])
def test_missing_values_are_predicted_as_in_sql(database, patients, registered, missing):
    model = dbdp.LogisticRegression(epsilon=1, database=database).fit(registered)
    rows = [[missing, "A"], [50, None]]
    sql = "select dbdp.predict_probability($1::int8, $2::jsonb) as p"
    in_sql = [
        database.query(sql, model.model_id_, text)[0]["p"]
        for text in ('{"age": null, "ward": "A"}', '{"age": 50, "ward": null}')
    ]
    assert model.predict_proba(rows)[:, 1] == pytest.approx(in_sql, abs=1e-9)


def test_rows_with_missing_values_are_fitted_if_bounds_say_so():
    ages = np.linspace(0, 100, 200)
    ages[::7] = np.nan
    bounds = {"x0": {"bounds": [0, 100], "missing": "indicator"}}
    labels = np.where(np.isnan(ages), 1, ages > 50).astype(int)
    model = dbdp.LogisticRegression(epsilon=1e4, delta=1e-3, bounds=bounds, classes=[0, 1])
    model.fit(ages[:, None], labels)
    assert model.coef_.shape == (1, 9)  # eight knots, and whether it is missing
    assert model.predict([[np.nan], [5.0], [95.0]]).tolist() == [1, 0, 1]


def test_a_table_that_is_not_a_dataset_is_refused(database, patients):
    with pytest.raises(ValueError, match=r"patients is not a dataset.*register it, or pass select\(table\)"):
        dbdp.LogisticRegression(epsilon=1, database=database).fit(patients)


def test_a_query_over_a_dataset_warns_that_nothing_is_charged(database, patients, registered):
    before = database.budget(registered)["charged"]
    with pytest.warns(dbdp.PrivacyLeakWarning, match=f"rows of dataset '{registered}'.*not charged"):
        dbdp.LogisticRegression(epsilon=1, database=database, **STATED).fit(select(patients.alias()), y="ill")
    assert database.budget(registered)["charged"] == before


def test_a_query_is_refused_as_the_source_of_a_dataset(database, patients):
    with pytest.raises(ValueError, match="source is a Select; a row of a query may depend on many records"):
        database.register_dataset(
            "q", select(patients), label="ill", features={"age": [0, 1]}, epsilon=1, delta=0, positive="yes"
        )


def test_a_score_is_exact_on_rows_and_charged_on_a_dataset(database, patients, registered):
    model = dbdp.LogisticRegression(**NEAR_EXACT | {"epsilon": 1e4}, epochs=40, database=database).fit(registered)
    columns = people()
    rows = pandas.DataFrame(columns).drop(columns=["ill"])
    exact = model.score(rows, np.array(columns["ill"]) == "yes")
    before = float(database.budget(registered)["charged"])
    charged = model.charged_score(registered, "accuracy", epsilon=10)
    assert abs(charged["accuracy"] - exact) < 0.2
    assert float(database.budget(registered)["charged"]) > before
    with pytest.raises(ValueError, match=f"'{registered}' is a name, not rows.*charged_score for a dataset"):
        model.score(registered, None)
    with no_leaks():
        at_hand = dbdp.LogisticRegression(epsilon=1, database=database, **STATED).fit(
            pandas.DataFrame(columns), y="ill"
        )
    with pytest.raises(ValueError, match="trained on rows, and is not in the database of a dataset"):
        at_hand.charged_score(registered, "accuracy", epsilon=1)


# --- scikit-learn's company ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("private")
def test_a_copy_shares_the_database_and_a_pickle_leaves_it_out(database):
    features, labels = points()
    model = dbdp.LogisticRegression(**NEAR_EXACT, bounds=2.0, database=database).fit(features, labels)
    assert clone(model).database is database
    loaded = pickle.loads(pickle.dumps(model))
    assert loaded.database is None
    assert (loaded.predict_proba(features) == model.predict_proba(features)).all()


def test_a_url_with_a_password_is_not_shown():
    model = dbdp.LogisticRegression(epsilon=1, database="postgresql://me:secret@host/db")
    with pytest.raises(ValueError, match=r"database=dbdp.connect\(url\)") as raised:
        model.fit("patients")
    assert "secret" not in str(raised.value)


@pytest.mark.usefixtures("private")
def test_it_works_in_a_pipeline_and_in_a_search():
    features, labels = points()
    steps = make_pipeline(FunctionTransformer(np.tanh), dbdp.LogisticRegression(**NEAR_EXACT, epochs=20, bounds=2.0))
    search = GridSearchCV(steps, {"logisticregression__regularisation": [1e-4, 1.0]}, cv=2).fit(features, labels)
    assert search.best_params_ == {"logisticregression__regularisation": 1e-4} or search.best_score_ > 0.8
    assert search.predict(features).dtype == bool


@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("kind", [BaggingClassifier, lambda model, **_: VotingClassifier([("one", model)])])
def test_meta_estimators_that_number_classes_work(kind):
    features, labels = points()
    model = dbdp.LogisticRegression(**NEAR_EXACT, epochs=20, bounds=2.0, classes=[0, 1])
    with no_leaks():
        fitted = kind(model, n_estimators=2).fit(features, np.where(labels, "well", "ill"))
    assert fitted.score(features, np.where(labels, "well", "ill")) > 0.7


# --- the documentation --------------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL))
def test_the_code_of_the_documentation_runs_and_warns_of_nothing(code, private, server_url, monkeypatch, capsys):
    monkeypatch.setenv("DBDP_URL", server_url)
    with no_leaks():
        exec(compile(code, DOCUMENT.name, "exec"), {})
    assert capsys.readouterr().out


def test_the_documentation_lists_the_checks_that_cannot_pass():
    named = set(re.findall(r"`(check_\w+)`", DOCUMENT.read_text())) - {"check_estimator"}
    assert named == set(EXPECTED)


# --- connections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        lambda frame, _: frame.to_numpy().tolist(),
        lambda frame, _: frame.to_numpy(dtype=float),
        lambda frame, _: frame[["flag", "grade", "age"]],
        lambda frame, _: frame.convert_dtypes(),
        lambda frame, _: frame.astype({"grade": "category", "flag": "category"}),
        lambda frame, _: pyarrow.Table.from_pandas(frame),
        lambda frame, _: frame.to_dict("list"),
        lambda _, table: select(table).order_by(table.c.age),
    ],
    ids=["lists", "floats", "pandas", "pandas's own types", "pandas's categories", "arrow", "columns", "a query"],
)
def test_categories_of_numbers_predict_as_in_sql(connection, coded, given):
    model, table = coded
    sql = f"select age, grade, flag, dbdp.predict_probability({model.model_id_}, g) as p from {table.fullname} as g"
    rows = connection.execute(f"{sql} order by age").fetchall()
    frame = pandas.DataFrame([row[:3] for row in rows], columns=["age", "grade", "flag"])
    probabilities = model.predict_proba(given(frame, table))[:, 1]
    assert probabilities == pytest.approx([row[3] for row in rows])
    assert len(set(np.round(probabilities, 6))) > 6


@pytest.fixture
def coded(
    connection: psycopg.Connection, schema: str, engine: sqlalchemy.Engine
) -> tuple[dbdp.LogisticRegression, Table]:
    """A model of codes and flags that were declared as categories, and its table."""
    connection.execute("create table coded (age int, grade int, flag bool, y bool)")
    connection.execute("insert into coded select i, 1 + i % 3, i % 2 = 0, i % 3 > 0 from generate_series(1, 60) as i")
    database = dbdp.connect(connection)
    features = {"age": [0, 100], "grade": ["1", "2", "3"], "flag": ["true", "false"]}
    name = f"{schema}_coded"
    database.register_dataset(
        name, "coded", label="y", positive="true", features=features, epsilon=20, delta=1e-3, mode="basic"
    )
    model = dbdp.LogisticRegression(
        epsilon=10, delta=1e-4, algorithm="bolt_on", batch_size=10, progress=False, database=database
    ).fit(name)
    columns = (sqlalchemy.column(each) for each in ("age", "grade", "flag"))
    return model, sqlalchemy.table("coded", *columns, schema=schema)


def test_an_engine_does_not_reuse_the_connection_of_a_database(engine):
    with dbdp.connect(engine) as database, engine.connect() as other:
        assert other.connection.driver_connection is not database.connection
        assert database.connection.autocommit


def test_a_sqlalchemy_connection_is_committed_by_its_owner(engine, patients):
    name = f"{patients.schema}_mine"
    with engine.connect() as owner:
        database = dbdp.connect(owner)
        options = {"label": "ill", "positive": "yes", "features": {"age": [0, 100]}, "epsilon": 1, "delta": 1e-6}
        database.register_dataset(name, patients, **options)
        owner.commit()
    with dbdp.connect(engine) as later:
        assert later.dataset_of(patients) == name
