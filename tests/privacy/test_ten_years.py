"""The years of decision 036: what 0.2.0 charged for them, what is charged now, and what their releases lose."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from textbook import gaussian_delta
from truth import (
    LIMIT,
    STEP,
    delta_of,
    gaussian,
    randomised_response,
    sampled_gaussian,
    spectrum_of,
    spherical,
    years,
)

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.combined import tuning
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import (
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    PaddedDpEvent,
    PoissonGaussianDpEvent,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
)
from dbdp.privacy.accounting.loss_distribution import poisson_gaussian_delta
from dbdp.privacy.accounting.subsampling import poisson_gaussian_multiplier
from dbdp.privacy.counts import CountLaplace

TEXT = (Path(__file__).parents[2] / "docs" / "decisions" / "036-tighter-charges.md").read_text()
BUDGET = Budget.of(epsilon=4.0, delta=1e-5)
FACTS = Facts(48_840, 105, budget=BUDGET, least_order=BUDGET.order)
EPSILON, DELTA = 0.5, 1e-7


@dataclass(frozen=True)
class Kind:
    """A release: as 0.2.0 charged it, as it is charged, and the laws of its losses under the worst neighbours."""

    before: object
    now: object
    losses: Callable[[], list]


def as_claimed(release):
    return replace(release, event=EpsilonDeltaDpEvent(release.epsilon, release.delta))


def trained(algorithm, delta=DELTA, unit_rows=1, **more):
    own = replace(FACTS, unit_rows=unit_rows)
    return plan(Request(EPSILON, delta, algorithm=algorithm, **more), own).guarantee


def noisy(multiplier):
    return lambda: [(1, gaussian(1 / multiplier))]


def default():
    guarantee = trained("preconditioned_gd")
    return Kind(guarantee, guarantee, noisy(guarantee.event.noise_multiplier))


def pure():
    guarantee = trained("bolt_on", 0.0)
    return Kind(as_claimed(guarantee), guarantee, lambda: [(1, spherical(EPSILON, FACTS.dimension))])


def minimum(delta):
    """Its neighbours of steepest slopes shift the noise by 2L and change no curvature: it loses at least that."""
    guarantee = trained("objective_perturbation", delta, settings={"evaluation_share": 0})
    first, last = guarantee.event.events
    before = EpsilonDeltaDpEvent(first.epsilon, first.delta)
    of = noisy(first.noise.noise_multiplier) if delta else lambda: [(1, spherical(first.noise.epsilon, 105))]
    old_last = last if delta else EpsilonDeltaDpEvent(last.epsilon, 0.0)
    return Kind(replace(guarantee, event=replace(guarantee.event, events=(before, old_last))), guarantee, of)


def steps(unit_rows=1):
    guarantee = trained("dp_sgd", unit_rows=unit_rows, batch_size=1000)
    run = guarantee.event.event if isinstance(guarantee.event, PaddedDpEvent) else guarantee.event
    before = guarantee if unit_rows == 1 else as_claimed(guarantee)

    def losses():
        return [(run.steps, sampled_gaussian(run.sampling_probability, run.noise_multiplier, run.rows))]

    return Kind(before, guarantee, losses)


def updates():
    """0.2.0 had the multiplier of the curve of sampling."""
    guarantee = trained("dp_sgd", batch_size=FACTS.rows, epochs=10)
    run = guarantee.event
    more = PoissonGaussianDpEvent(1.0, poisson_gaussian_multiplier(EPSILON, DELTA, 1.0, run.steps), run.steps)
    return Kind(replace(guarantee, event=more), guarantee, noisy(run.noise_multiplier / (2 * run.steps**0.5)))


def tuned():
    """0.2.0 chose at the whole ε, and charged a range as pure, or as ε²/8-zCDP."""
    base = Request(EPSILON, DELTA, "bolt_on", calibration="worst_position")
    candidates = tuple({"regularisation": each} for each in (1e-4, 1e-3, 1e-2, 1e-1))
    guarantee = tuning.tuning_plan(TuningRequest(base, candidates), FACTS).guarantee
    models = guarantee.event.events[:-1]
    choices = (EpsilonDeltaDpEvent(EPSILON, 0.0), ZCDpEvent(EPSILON**2 / 8))
    choice = min(choices, key=lambda each: each.divergence(BUDGET.order))
    before = replace(guarantee, event=DisjointDpEvent((*models, choice)))
    return Kind(before, guarantee, noisy(min(each.noise_multiplier for each in models)))


def balance():
    """Two counts that move by one."""
    guarantee = CountLaplace(2, 0.1).guarantee
    return Kind(guarantee, guarantee, lambda: [(2, randomised_response(0.05))])


YEARS = {
    "12 of `preconditioned_gd`": [(12, default)],
    "12 of `bolt_on` with pure noise": [(12, pure)],
    "12 of `objective_perturbation`": [(12, lambda: minimum(DELTA))],
    "12 of `objective_perturbation` with pure noise": [(12, lambda: minimum(0.0))],
    "12 of `dp_sgd` on mini-batches of 1,000": [(12, steps)],
    "12 of `dp_sgd` on all rows, ten updates": [(12, updates)],
    "12 of `dp_sgd` for units of 5 rows": [(12, lambda: steps(5))],
    "12 tunings of four candidates": [(12, tuned)],
    "52 class balances at ε = 0.1": [(52, balance)],
    "12 of `preconditioned_gd`, 12 class balances, 4 tunings, 4 of `bolt_on` with pure noise": [
        (12, default),
        (12, balance),
        (4, tuned),
        (4, pure),
    ],
}


def lasting(year, charged):
    """How many such years the ledger takes."""
    costs = [(count, BUDGET.cost(charged(kind))) for count, kind in year]
    charge, leaked = (sum(count * cost[place] for count, cost in costs) for place in (0, 1))
    return min(BUDGET.charge_limit / charge, BUDGET.leak_limit / leaked if leaked else math.inf)


@pytest.mark.parametrize("what", YEARS)
def test_ten_years_last_as_long_as_the_table_has_it(what):
    """No ledger takes more than is true, and none takes less than 0.2.0 did."""
    year = [(count, kind()) for count, kind in YEARS[what]]
    laws = [(count * times, law) for count, kind in year for times, law in kind.losses()]
    before, now = (lasting(year, attrgetter(name)) for name in ("before", "now"))
    true = years(laws, BUDGET.epsilon, BUDGET.delta)
    bound = "≤ " if "objective_perturbation" in what else ""
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {what} |"))
    assert line.split(" | ")[1:] == [f"{before:.3g}", f"{now:.3g}", f"{bound}{true:.3g} |"]
    assert now < true and before < 1.14 * now
    assert before <= now or what == "12 of `dp_sgd` on all rows, ten updates"


def test_the_exact_law_is_that_of_known_compositions():
    """Control: a hundredth more or less noise is another result."""
    mean = math.sqrt(60) / 9
    exact, more = (gaussian_delta(4.0, each) for each in (mean, 1.01 * mean))
    assert delta_of(spectrum_of([(12, gaussian(1 / 9))]), 4.0, 5) == pytest.approx(exact, rel=1e-4)
    assert more > 1.05 * exact
    sampled = delta_of(spectrum_of([(5000, sampled_gaussian(0.02, 3.0))]), 4.0, 1)
    assert sampled == pytest.approx(poisson_gaussian_delta(4.0, 0.02, 3.0, 5000), rel=1e-3)
    law = spherical(0.5, 105)
    moment = np.sum(law * np.exp((np.arange(len(law)) * STEP - LIMIT) * 5.0))
    assert math.log(moment) / 5.0 == pytest.approx(SphericalLaplaceDpEvent(0.5, 105).divergence(6.0), rel=1e-2)
