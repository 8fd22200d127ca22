"""The contract of all algorithms that add noise while they train, in one suite."""

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from accountant import recomputed
from chance import usually
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import RowsInMemory, rows_for
from pairs import each_value_quick
from public_facts import facts_of
from scipy.optimize import minimize
from short import FEW, OF_COLUMNS

from dbdp import algorithms
from dbdp.algorithms import NOISY_WHILE_TRAINING, NoisyWhileTraining, Request
from dbdp.algorithms.rows import silent
from dbdp.privacy.accounting.budget import MODES, Budget
from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent, PaddedDpEvent, Release, ZCDpEvent

ROWS, FEATURES = 300, 3
FACTS = facts_of(ROWS, FEATURES)
NAMES = list(NOISY_WHILE_TRAINING)
EVERY_ALGORITHM = pytest.mark.parametrize("name", NAMES)
PURE = {"scs13", "objective_perturbation", "privgene", "majority"}
NO_LEARNERS = (
    "majority",
    "privgene",
    *OF_COLUMNS,
)  # the last learn from columns: test_private_splines, test_naive_bayes
LEARNERS = pytest.mark.parametrize("name", [name for name in NAMES if name not in NO_LEARNERS])


@cache
def plan(request, facts):
    """The plan of a request, made once for all tests."""
    return algorithms.plan(request, facts)


def request_for(name, epsilon=1.0, delta=1e-6, **more):
    return Request(epsilon, delta, algorithm=name, **(FEW[name] | more))


def data(count=ROWS):
    random = np.random.default_rng()
    features = random.normal(size=(count, FEATURES)) / 3
    return features, np.where(features @ [2.0, -1.0, 0.5] + random.normal(size=count) / 4 > 0, 1.0, -1.0)


def run(release_plan, rows):
    return np.asarray(release_plan.method(rows, silent))


def test_the_issues_algorithms_are_all_here():
    assert set(NAMES) == {
        "scs13", "bst14", "dp_sgd", "dp_adam", "sgd_adv", "rrpsgd", "dp_agd", "dp_blsgd", "dp_blgd", "dp_blsgd_ac",
        "preconditioned_gd", "private_splines", "objective_perturbation", "privgene", "majority",
        "naive_bayes",
    }  # fmt: skip
    assert all(isinstance(plan(request_for(name), FACTS), NoisyWhileTraining) for name in NAMES)


@EVERY_ALGORITHM
def test_public_facts_are_enough_for_a_plan(name):
    for rows in (50, 500_000):
        explained = plan(Request(1.0, 1e-6, algorithm=name), facts_of(rows, 54)).explain()
        assert json.loads(json.dumps(explained)) == explained
        for key in ("noise_scale", "steps", "sampling_rate", "expected_passes", "mechanism", "rows", "features"):
            assert key in explained, key
        assert 0 < explained["sampling_rate"] <= 1 <= explained["steps"]
        assert explained["expected_passes"] > 0
        assert explained["epsilon"] <= 1.0
        assert explained["delta"] <= 1e-6


@EVERY_ALGORITHM
def test_without_a_delta_it_is_pure_or_says_why_not(name):
    if name in PURE:
        release_plan = plan(request_for(name, delta=0.0), FACTS)
        assert release_plan.guarantee.delta == 0
        assert release_plan.guarantee.event.leak(1.0) == 0
    else:
        with pytest.raises(ValueError, match="delta"):
            plan(request_for(name, delta=0.0), FACTS)


@pytest.mark.parametrize(("name", "epsilon"), each_value_quick(NAMES, [0.05, 1.0, 4.0]))
def test_the_claim_follows_from_the_events(name, epsilon):
    """By dp_accounting where it knows the event, else by the bounds of §13."""
    guarantee = plan(request_for(name, epsilon), facts_of(20_000, 10)).guarantee
    event, delta = guarantee.event, guarantee.delta
    if isinstance(event, PaddedDpEvent):  # cutting has the first part of δ, at the ε that is claimed
        cut = event.total_variation * (1 + math.exp(epsilon))
        assert 0 < cut <= delta / 1000
        event, delta = event.event, delta - cut
    assert recomputed(event, delta) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("name", ["dp_blsgd", "dp_blsgd_ac", "dp_agd"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 1.9])
def test_a_run_at_its_own_order_is_charged_without_a_leak(name, epsilon):
    """Half of what its (ε, δ) would cost, where that fits at all: its leak alone is ten times what the budget has."""
    budget = Budget.of(epsilon=2.0, delta=1e-6)
    facts = facts_of(20_000, 10, budget=budget, least_order=budget.order)
    guarantee = plan(request_for(name, epsilon, batch_size=2000), facts).guarantee
    charge, leaks = budget.cost(guarantee)
    before = budget.cost(Release(EpsilonDeltaDpEvent(epsilon, 1e-6), epsilon, 1e-6))
    assert before[1] == 10 * budget.leak_limit
    assert leaks <= budget.leak_limit / 1000
    assert charge <= min(0.6 * before[0], budget.charge_limit)
    run = guarantee.event.event
    assert run.order >= budget.order
    assert charge == budget.cost(Release(ZCDpEvent(run.bound / budget.order), epsilon, 1e-6))[0]
    allowance = budget.allowance(epsilon / 8)  # its order is above that of the run, whose divergence there is unknown
    assert allowance.order > run.order
    assert allowance.cost(guarantee) == allowance.cost(Release(EpsilonDeltaDpEvent(epsilon, 1e-6), epsilon, 1e-6))


@EVERY_ALGORITHM
def test_a_ledger_takes_it(name):
    """In mode basic for what it claims; the event survives its JSON."""
    release_plan = plan(request_for(name), FACTS).guarantee
    again = Release.from_data(json.loads(json.dumps(release_plan.as_data())))
    assert again == release_plan
    assert release_plan.event.divergence(10.0) > 0
    for mode in MODES:
        budget = Budget.of(epsilon=12.0, delta=1e-4, mode=mode)
        charge, leaks = budget.cost(again)
        assert 0 < charge <= budget.charge_limit
        assert 0 <= leaks <= budget.leak_limit


STRANGE = {
    "all the same row": lambda x, y: (np.repeat(x[:1], ROWS, axis=0), np.repeat(y[:1], ROWS)),
    "zero rows": lambda x, y: (np.zeros_like(x), np.full(ROWS, np.nan)),
    "one class": lambda x, y: (x, np.ones(ROWS)),
    "separable": lambda x, y: (x, np.where(x[:, 0] > 0, 1.0, -1.0)),
    "not finite": lambda x, y: (np.where(np.arange(ROWS)[:, None] % 2, np.inf, x), y),
    "long rows": lambda x, y: (x * 1e200, y),
    "labels of no kind": lambda x, y: (x, np.resize([0.0, 7.0, np.nan, np.inf], ROWS)),
}


@EVERY_ALGORITHM
def test_no_rows_make_it_fail(name):
    for place, (strange, changed) in enumerate(STRANGE.items(), start=NAMES.index(name)):
        release_plan = plan(request_for(name, (0.05, 20.0)[place % 2]), FACTS)
        result = run(release_plan, rows_for(release_plan, *changed(*data())))
        assert result.shape == (FEATURES,)
        assert np.isfinite(result).all(), strange


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_COLUMNS])
def test_models_of_classes_are_released_together(name):
    random = np.random.default_rng()
    facts = replace(FACTS, outputs=4)
    result = run(plan(request_for(name), facts), RowsInMemory(data()[0], random.integers(1, 5, ROWS).astype(float)))
    assert result.shape == (4 * FEATURES,)
    assert np.isfinite(result).all()


@EVERY_ALGORITHM
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), epsilon=st.floats(0.02, 8))
def test_what_is_read_of_the_rows_is_bounded_by_the_plan(name, seed, epsilon):
    """However the run goes, it makes no more passes than it told."""
    random = np.random.default_rng(seed)
    release_plan = plan(request_for(name, epsilon), FACTS)
    rows = rows_for(release_plan, random.normal(size=(ROWS, FEATURES)), random.choice([-1.0, 1.0], ROWS))
    run(release_plan, rows)
    passes = release_plan.details["expected_passes"]
    if name in ("dp_agd", "dp_blgd", "objective_perturbation", "privgene"):
        assert len(rows.reads) <= passes + 1


MOST_UPDATES, ENOUGH = 400, 40  # of rrpsgd, which stops at any of them with equal probability
CLOSE = {  # settings under which a loud budget should leave the non-private solution
    "scs13": {"epochs": 200, "regularisation": 0.1, "batch_size": 100},
    "bst14": {"epochs": 200, "regularisation": 0.1, "batch_size": 100},
    "dp_sgd": {"epochs": 200, "regularisation": 0.1, "batch_size": 150, "step_size": 0.3},
    "dp_adam": {"epochs": 300, "regularisation": 0.1, "batch_size": 150, "step_size": 0.01},
    "sgd_adv": {"epochs": 200, "regularisation": 0.1, "batch_size": 150, "step_size": 0.3},
    "rrpsgd": {"epochs": MOST_UPDATES, "regularisation": 0.1, "batch_size": 300, "step_size": 2.0},
    "dp_agd": {"regularisation": 0.1, "settings": '{"splits": 400}'},
    "dp_blsgd": {"regularisation": 0.1, "batch_size": 300},
    "dp_blgd": {"regularisation": 0.1},
    "dp_blsgd_ac": {"regularisation": 0.1, "batch_size": 300},
    "objective_perturbation": {"regularisation": 0.1},
    "preconditioned_gd": {"settings": '{"passes": 400, "clip": 10.0}'},  # it has no regulariser
}


@LEARNERS
def test_a_huge_budget_leaves_the_non_private_solution(name):
    features, labels = data()
    rows = RowsInMemory(features, labels)
    release_plan = plan(Request(1e5, 1e-3, algorithm=name, **CLOSE[name]), FACTS)
    x, y = rows.all[:, :FEATURES].astype(float), rows.all[:, -1].astype(float)
    regularisation = CLOSE[name].get("regularisation", 0.0)

    def objective(w):
        return np.logaddexp(0, -y * (x @ w)).mean() + regularisation / 2 * w @ w

    best = minimize(objective, np.zeros(FEATURES), tol=1e-12).x
    gained = objective(np.zeros(FEATURES)) - objective(best)

    def comes_close():
        result = run(release_plan, rows)
        near = np.linalg.norm(result - best) < 0.1 * np.linalg.norm(best)
        return near and objective(result) - objective(best) < 0.02 * gained

    assert usually(comes_close, missing=ENOUGH / MOST_UPDATES if name == "rrpsgd" else 0.01)


@LEARNERS
def test_a_small_budget_does_not(name):
    """The control of the one above: it is the noise that is gone there."""
    rows = RowsInMemory(*data())
    release_plan = plan(Request(0.01, 1e-6, algorithm=name, **CLOSE[name]), FACTS)
    runs = np.array([run(release_plan, rows) for _ in range(3)])
    assert np.ptp(runs, axis=0).max() > 0 or name.startswith("dp_")


@EVERY_ALGORITHM
def test_more_noise_for_less_budget(name):
    def noise(epsilon):
        explained = plan(request_for(name, epsilon), facts_of(20_000, 10)).details
        return (
            explained["noise_scale"] if explained["mechanism"] != "exponential" else 1 / explained["selection_epsilon"]
        )

    assert noise(0.1) > noise(1.0) > 0
    assert math.isfinite(noise(0.1))
