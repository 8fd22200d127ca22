"""Plans for units of privacy with several rows: every algorithm's guarantee, noise and charge."""

import json
import math
from functools import cache

import pytest
from accountant import recomputed
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import each_value_quick, others_slow, pairwise
from public_facts import facts_of
from short import FEW

from dbdp.algorithms import NOISY_WHILE_TRAINING, PERTURBED_ONCE, Request, plan
from dbdp.algorithms.combined import tuning
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.algorithms.families.perturbed_once.shared import MIXTURES
from dbdp.privacy.accounting.budget import MODES, Budget
from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent, PaddedDpEvent, Release
from dbdp.privacy.accounting.group_privacy import share
from dbdp.privacy.mechanisms import MECHANISMS

ROWS, FEATURES, EPSILON, DELTA = 20_000, 6, 1.0, 1e-6
UNIT_ROWS = pytest.mark.parametrize("unit_rows", [2, 5])
PURE = ("scs13", "objective_perturbation", "privgene", "majority")
CANDIDATES = ({"regularisation": 0.01}, {"regularisation": 0.1})


def facts(unit_rows=1, outputs=1):
    return facts_of(ROWS, FEATURES, outputs, unit_rows=unit_rows)


PINNED = {  # the defaults of what adds noise once depend on the unit
    name: {"regularisation": 0.01, "batch_size": 50}
    if name != "output_perturbation_gd"
    else {"step_size": 0.5, "epochs": 10}
    for name in PERTURBED_ONCE
}
WITHOUT_TABLE = {"objective_perturbation": {"settings": '{"evaluation_share": 0}'}}  # test_evaluated_plan has it


@cache
def planned(name, unit_rows, *, delta=DELTA, outputs=1, epsilon=EPSILON, **more):
    few = FEW.get(name, PINNED.get(name, {})) | WITHOUT_TABLE.get(name, {})
    return plan(Request(epsilon, delta, algorithm=name, **(few | more)), facts(unit_rows, outputs))


# --- noise once -----------------------------------------------------------------------------------------


@pairwise(name=PERTURBED_ONCE, mechanism=MECHANISMS, unit_rows=[2, 5], outputs=[1, 3])
def test_output_perturbation_of_units_costs_one_row(name, mechanism, unit_rows, outputs):
    """Output perturbation covers r times the sensitivity at the charge of one row."""
    one, unit = (planned(name, r, mechanism=mechanism, calibration="worst_position", outputs=outputs)
                 for r in (1, unit_rows))  # fmt: skip
    assert unit.sensitivity.exact >= unit_rows * one.sensitivity.exact
    assert unit.sensitivity.margin >= unit_rows * one.sensitivity.margin
    assert unit.mechanism.sensitivity == pytest.approx(unit_rows * one.mechanism.sensitivity, rel=1e-6)
    assert unit.mechanism.noise_scale == pytest.approx(unit_rows * one.mechanism.noise_scale, rel=1e-6)
    assert (unit.guarantee.epsilon, unit.guarantee.delta) == (one.guarantee.epsilon, one.guarantee.delta)
    for mode in MODES:
        budget = Budget.of(epsilon=4.0, delta=1e-4, mode=mode)
        charges = [budget.cost(release_plan.guarantee) for release_plan in (one, unit)]
        assert charges[1] == pytest.approx(charges[0], rel=1e-6)  # that of Δ → rΔ, never r times


@pytest.mark.parametrize("name", ["nsgd", "rsgd_ar"])
def test_a_units_worst_position_is_covered(name):
    """A units rows have no single position so the worst one is covered."""
    given = {"regularisation": 0.1, "batch_size": 2000}
    assert planned(name, 1, **given).calibration == "hockey_stick"
    assert planned(name, 2, **given).calibration == "worst_position"
    for mixture in MIXTURES:
        with pytest.raises(ValueError, match=rf"'{mixture}' is for the position of one row, and a unit has 2 rows"):
            planned(name, 2, calibration=mixture, **given)


def test_shards_of_units_cover_r_times_the_sensitivity_too():
    one, unit = (planned("bolt_on", r, shards=4, shard_averaging="each_epoch") for r in (1, 5))
    assert unit.mechanism.sensitivity == pytest.approx(5 * one.mechanism.sensitivity, rel=1e-6)


# --- noise while training -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "unit_rows"), each_value_quick(list(NOISY_WHILE_TRAINING), [2, 5]))
def test_the_claim_of_a_unit_follows_from_its_events(name, unit_rows):
    guarantee = planned(name, unit_rows).guarantee
    assert guarantee.epsilon == EPSILON
    assert guarantee.delta in (DELTA, 0.0)
    event, delta = guarantee.event, guarantee.delta
    if isinstance(event, PaddedDpEvent):
        event, delta = event.event, delta - event.total_variation * (1 + math.exp(EPSILON))
    assert recomputed(event, delta) <= EPSILON * (1 + 1e-6)


@pytest.mark.parametrize(("name", "unit_rows"), each_value_quick(list(NOISY_WHILE_TRAINING), [2, 5]))
def test_a_units_plan_is_that_of_rows_at_their_share(name, unit_rows):
    epsilon, delta = share(EPSILON, DELTA, unit_rows)
    unit, row = planned(name, unit_rows), planned(name, 1, epsilon=epsilon, delta=delta)
    details, expected = unit.explain(), row.explain()
    assert details["neighbours"] == "replace-one-unit"
    assert (details["units"], details["max_rows"], details["rows"]) == (ROWS // unit_rows, unit_rows, ROWS)
    assert (details["row_epsilon"], details["row_delta"]) == (row.guarantee.epsilon, row.guarantee.delta)
    assert details["noise_scale"] == expected["noise_scale"]
    assert details["noise_scale"] > planned(name, 1).explain()["noise_scale"]
    assert json.loads(json.dumps(details)) == details


@UNIT_ROWS
@pytest.mark.parametrize(("epsilon", "delta", "cheaper"), [(1.0, 1e-6, 3), (0.5, 1e-7, 6)])
def test_poisson_runs_of_units_are_charged_their_curve(unit_rows, epsilon, delta, cheaper):
    """As (ε, δ) they cost three to seven times that, and a δ that is mostly above what the budget has."""
    budget = Budget.of(epsilon=2.0, delta=1e-6)
    guarantee = planned("dp_sgd", unit_rows, epsilon=epsilon, delta=delta).guarantee
    charge, leaks = budget.cost(guarantee)
    before = budget.cost(Release(EpsilonDeltaDpEvent(epsilon, delta), epsilon, delta))
    assert cheaper < before[0] / charge < cheaper + 1
    assert leaks <= budget.leak_limit / 1000 < before[1] / 1000 * 1.0001
    row = planned("dp_sgd", 1, epsilon=epsilon, delta=delta).guarantee
    assert charge == pytest.approx(budget.cost(row)[0], rel=0.03)  # nearly what a single row costs


@UNIT_ROWS
@pytest.mark.parametrize("name", PURE)
def test_a_unit_without_delta_is_pure_at_r_epsilons(name, unit_rows):
    unit, row = planned(name, unit_rows, delta=0.0), planned(name, 1, delta=0.0, epsilon=EPSILON / unit_rows)
    assert (unit.guarantee.epsilon, unit.guarantee.delta) == (EPSILON, 0.0)
    assert unit.explain()["noise_scale"] == pytest.approx(row.explain()["noise_scale"], rel=1e-9)


@pytest.mark.parametrize("name", others_slow(list(NOISY_WHILE_TRAINING), *list(NOISY_WHILE_TRAINING)[::3]))
def test_a_ledger_takes_it_and_charges_what_the_claim_is_worth(name):
    """Not 1/5 or 1/25 of it, as for one row; what has more noise than rΔ needs costs a little less."""
    for mode in MODES:
        budget = Budget.of(epsilon=8.0, delta=1e-3, mode=mode)
        unit, row = (budget.cost(planned(name, r).guarantee)[0] for r in (5, 1))
        assert unit >= 0.98 * row


def test_a_gaussian_run_of_units_needs_nearly_r_sensitivities():
    """The share of (1, 1e-6) for five rows, by way of δ, is less than 4 % more noise than the analytic rΔ."""
    ratio = planned("scs13", 5).explain()["noise_scale"] / planned("scs13", 1).explain()["noise_scale"]
    assert 5 < ratio < 5.2


@pytest.mark.parametrize(("unit_rows", "message"), [(3, "a multiple of max_rows = 3"), (0, "max_rows = 0")])
def test_slots_are_units_times_rows(unit_rows, message):
    with pytest.raises(ValueError, match=message):
        planned("bolt_on", unit_rows)


# --- tuning ---------------------------------------------------------------------------------------------


@UNIT_ROWS
@pytest.mark.parametrize("method", tuning.METHODS)
def test_a_tuning_is_planned_for_single_rows_at_their_share(method, unit_rows):
    """A unit's rows are spread over portions: no portion bears the whole, and the choice moves too."""
    request = TuningRequest(Request(EPSILON, DELTA, "bolt_on"), CANDIDATES, method=method)
    release_plan = tuning.tuning_plan(request, facts(unit_rows))
    assert (release_plan.guarantee.epsilon, release_plan.guarantee.delta) == (EPSILON, DELTA)
    assert release_plan.guarantee.event == EpsilonDeltaDpEvent(EPSILON, DELTA)
    epsilon, delta = share(EPSILON, DELTA, unit_rows)
    row = tuning.tuning_plan(TuningRequest(Request(epsilon, delta, "bolt_on"), CANDIDATES, method=method), facts())
    assert [each.mechanism.noise_scale for each in release_plan.plans] == [
        each.mechanism.noise_scale for each in row.plans
    ]
    assert release_plan.explain()["neighbours"] == "replace-one-unit"


@settings(max_examples=50)
@given(x=st.floats(1e-3, 20), y=st.floats(1e-3, 20), order=st.floats(1.01, 100))
def test_two_pure_releases_cost_no_more_than_one_of_their_sum(x, y, order):
    """What the charge of a matrix rests on."""
    apart = EpsilonDeltaDpEvent(x, 0.0).divergence(order) + EpsilonDeltaDpEvent(y, 0.0).divergence(order)
    assert apart <= EpsilonDeltaDpEvent(x + y, 0.0).divergence(order) * (1 + 1e-9) + 1e-14
