"""What fits on rows at hand spend together: the sum of a process, its warnings, and a limit that no loop exceeds."""

import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import joblib
import numpy as np
import pytest
from pairs import others_slow
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import dbdp
from dbdp.interfaces.python.client.connecting import embedded
from dbdp.interfaces.python.estimators import odometer
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent, GaussianDpEvent, Release

X, Y = np.linspace(-1, 1, 60)[:, None], np.arange(60) % 2
OPTIONS: dict[str, Any] = {"bounds": 1.0, "classes": [0, 1], "progress": False, "algorithm": "bolt_on", "epochs": 1}
PURE = Release(EpsilonDeltaDpEvent(1.0, 0.0), 1.0, 0.0)
GAUSSIAN = Release(GaussianDpEvent(5.0), 1.0, 1e-6)


@pytest.fixture
def quiet() -> Iterator[None]:
    """No warning of sums."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dbdp.PrivacySpendingWarning)
        yield


def model(epsilon: float = 1.0, **options: Any) -> dbdp.LogisticRegression:
    return dbdp.LogisticRegression(epsilon=epsilon, **OPTIONS | options)


# --- the sum ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("private")
def test_a_cross_validation_says_what_its_fits_spend_in_sum():
    with pytest.warns(dbdp.PrivacySpendingWarning, match="columns x0 spend epsilon = ") as warned:
        cross_val_score(model(), X, Y, cv=KFold(5, shuffle=True))
    texts = [str(each.message) for each in warned if each.category is dbdp.PrivacySpendingWarning]
    assert [text.partition(" ")[0] for text in texts] == ["2", "4"]
    assert ["epsilon = 2," in texts[0], "epsilon = 4," in texts[1]] == [True, True]
    assert dbdp.spending() == [{"columns": ["x0"], "fits": 5, "epsilon": 5.0, "delta": 0.0}]


@pytest.mark.usefixtures("private")
def test_the_warning_names_the_line_of_the_fit():
    model().fit(X, Y)
    with pytest.warns(dbdp.PrivacySpendingWarning) as warned:
        model().fit(X, Y)
    assert warned[0].filename == __file__


@pytest.mark.usefixtures("private", "quiet")
def test_a_grid_search_counts_its_last_fit():
    """A grid search counts its last fit and sums of decimals are exact."""
    search = GridSearchCV(model(0.1), {"regularisation": [0.1, 1.0]}, cv=KFold(2, shuffle=True), error_score="raise")
    search.fit(X, Y)
    assert dbdp.spending() == [{"columns": ["x0"], "fits": 5, "epsilon": 0.5, "delta": 0.0}]


def test_warnings_become_rarer():
    """Warnings become rarer and other columns have a sum of their own."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(20):
            odometer.charge(["a", "b"], GAUSSIAN)
        odometer.charge(["c"], PURE)
    assert [int(str(each.message).partition(" ")[0]) for each in warned] == [2, 4, 8, 16]
    assert [(row["fits"], row["epsilon"], row["delta"]) for row in dbdp.spending()] == [(20, 20, 2e-5), (1, 1, 0)]


@pytest.mark.usefixtures("private")
def test_a_fit_on_a_dataset_is_counted_in_its_budget_only(database, dataset):
    dbdp.LogisticRegression(epsilon=1, database=database, progress=False).fit(dataset)
    assert dbdp.spending() == []


def test_a_limit_without_a_delta_refuses_a_fit_with_one():
    with (
        dbdp.SpendingLimit(epsilon=3) as limit,
        pytest.raises(
            ValueError,
            match=r"delta = 1e-06 does not fit .* pass SpendingLimit\(epsilon=3, delta=1e-05\), or fit at delta=0",
        ),
    ):
        odometer.charge(["a"], GAUSSIAN)
    assert limit.fits == 0
    with dbdp.SpendingLimit(epsilon=3, delta=1e-5) as limit:
        odometer.charge(["a"], GAUSSIAN)
    assert limit.fits == 1


# --- the limit ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("release", [PURE, GAUSSIAN])
@pytest.mark.parametrize("mode", ["renyi", "basic"])
def test_the_first_fit_beyond_the_limit_is_refused(release, mode):
    """As the budget of a dataset counts: to one unit."""
    budget = Budget.of(epsilon=7, delta=1e-5, mode=mode)
    charge, leak = budget.cost(release)
    count = min(budget.charge_limit // charge, budget.leak_limit // leak if leak else budget.charge_limit)
    with dbdp.SpendingLimit(epsilon=7, delta=1e-5, mode=mode) as limit:
        for _ in range(count):
            odometer.charge(["a"], release)
        with pytest.raises(ValueError, match=f"of which {count} fits have spent .*largest epsilon that still fits"):
            odometer.charge(["a"], release)
        assert limit.fits == count
        assert 0 < limit.share <= 1
    odometer.charge(["a"], release)  # outside the block
    assert limit.fits == count


def test_composition_is_tighter_than_the_sum():
    with dbdp.SpendingLimit(epsilon=2, delta=1e-5) as limit:
        for _ in range(5):
            odometer.charge(["a"], GAUSSIAN)
    assert limit.share < 1
    assert dbdp.spending()[0]["epsilon"] == 5


@pytest.mark.usefixtures("private", "quiet")
def test_what_is_left_fits_and_a_little_more_does_not():
    with dbdp.SpendingLimit(epsilon=1) as limit:
        model(0.6).fit(X, Y)
        left = limit.epsilon_left()
        assert left == pytest.approx(0.4)
        with pytest.raises(ValueError, match=r"the largest epsilon that still fits is 0[.]4"):
            model(0.41).fit(X, Y)
        model(left).fit(X, Y)
        assert limit.epsilon_left() == 0
    assert repr(limit) == "<SpendingLimit: 2 fits, 100.0% of ε = 1>"


@pytest.mark.usefixtures("private", "quiet")
def test_a_refused_fit_trains_and_charges_nothing(connection):
    count = "select count(*) from dbdp.ledger"
    before = connection.execute(count).fetchone()
    refused = model(2.0)
    with dbdp.SpendingLimit(epsilon=1) as limit, pytest.raises(ValueError, match="would exceed the SpendingLimit"):
        refused.fit(X, Y)
    assert (limit.fits, hasattr(refused, "coef_"), connection.execute(count).fetchone()) == (0, False, before)


@pytest.mark.usefixtures("private", "quiet")
def test_no_grid_search_exceeds_the_limit():
    """scikit-learn replaces the errors of single fits by NaN and goes on; the last fit raises."""
    search = GridSearchCV(model(), {"regularisation": [0.1, 1.0]}, cv=KFold(2, shuffle=True))
    with dbdp.SpendingLimit(epsilon=3) as limit, warnings.catch_warnings(), pytest.raises(ValueError, match="exceed"):
        warnings.simplefilter("ignore")
        search.fit(X, Y)
    assert limit.fits == 3


def test_of_nested_limits_a_refusal_by_one_charges_none():
    with dbdp.SpendingLimit(epsilon=5) as outer, dbdp.SpendingLimit(epsilon=1) as inner:
        odometer.charge(["a"], PURE)
        with pytest.raises(ValueError, match="would exceed"):
            odometer.charge(["a"], PURE)
        assert (outer.fits, inner.fits) == (1, 1)
        with pytest.raises(ValueError, match="already active"), inner:
            pass
    with outer:
        odometer.charge(["a"], PURE)
    assert outer.fits == 2


def test_threads_together_never_exceed_it():
    def fit(_: int) -> bool:
        try:
            odometer.charge(["a"], PURE)
        except ValueError:
            return False
        return True

    with dbdp.SpendingLimit(epsilon=100) as limit, ThreadPoolExecutor(16) as pool:
        accepted = sum(pool.map(fit, range(400)))
    assert accepted == limit.fits == 100


def test_threads_of_joblib_count():
    def fit() -> None:
        odometer.charge(["a"], PURE)

    with dbdp.SpendingLimit(epsilon=9) as limit, joblib.parallel_config(backend="threading"):
        joblib.Parallel(n_jobs=2)(joblib.delayed(fit)() for _ in range(6))
    assert limit.fits == 6


# --- other processes ----------------------------------------------------------------------------------------

ELSEWHERE = """
import pickle, sys, numpy
import dbdp
model = pickle.loads(sys.stdin.buffer.read())
from sklearn.base import clone
from dbdp.interfaces.python.estimators import odometer
for each in (model, clone(model), pickle.loads(pickle.dumps(model))):
    try:
        odometer.check_process(each._limited_in)
        print("fits")
    except ValueError as error:
        print(error)
"""


@pytest.mark.parametrize("is_limited", others_slow([True, False], True))
def test_a_limit_is_refused_in_another_process(is_limited):
    """Also a copy of it; without a limit it may fit, and counts for itself."""
    with dbdp.SpendingLimit(epsilon=1) if is_limited else nullcontext():
        sent = pickle.dumps(clone(model()))
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=sent, capture_output=True, check=True, timeout=60)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 3
    assert all(("n_jobs=1" in line) if is_limited else (line == "fits") for line in lines)


def test_a_forked_process_does_not_spend_its_copy(monkeypatch):
    with dbdp.SpendingLimit(epsilon=9) as limit:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ValueError, match="n_jobs=1"):
            odometer.charge(["a"], PURE)
        assert limit.fits == 0


@pytest.mark.slow
def test_processes_of_a_search_are_refused_under_a_limit(monkeypatch, private_cluster):
    """Processes of a search are refused under a limit and count for themselves without."""
    monkeypatch.setenv("DBDP_HOME", str(private_cluster.home.parent))
    assert embedded() == private_cluster.url
    with dbdp.SpendingLimit(epsilon=100) as limit, pytest.raises(ValueError, match="n_jobs=1"):
        cross_val_score(model(), X, Y, cv=KFold(2), n_jobs=2, error_score="raise")
    assert limit.fits == 0
    cross_val_score(model(), X, Y, cv=KFold(2), n_jobs=2, error_score="raise")
    assert dbdp.spending() == []
