"""The figures of decision 036: what releases cost before and after their charges were computed more closely."""

from dataclasses import replace
from pathlib import Path

import pytest

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.combined import tuning
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import (
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    Release,
    SelfComposedDpEvent,
    SphericalLaplaceDpEvent,
)

TEXT = (Path(__file__).parents[2] / "docs" / "decisions" / "036-tighter-charges.md").read_text()
BUDGETS = [Budget.of(epsilon=2.0, delta=1e-5, mode=mode) for mode in ("renyi", "gaussian", "zcdp")]


def facts(budget):
    return Facts(20_000, 20, budget=budget, least_order=budget.order or 0.0)


def as_claimed(release):
    return replace(release, event=EpsilonDeltaDpEvent(release.epsilon, release.delta))


def choice(budget):
    """A tuning of two candidates: its choice had all of ε, at α a pure one."""
    base = Request(1.0, 1e-7, "bolt_on", calibration="worst_position")
    guarantee = tuning.tuning_plan(TuningRequest(base, ({"regularisation": 0.1}, {})), facts(budget)).guarantee
    return replace(guarantee, event=DisjointDpEvent((guarantee.event, EpsilonDeltaDpEvent(1.0, 0.0)))), guarantee


def run(algorithm, unit_rows=1, **more):
    def planned(budget):
        own = replace(facts(budget), unit_rows=unit_rows)
        guarantee = plan(Request(1.0, 1e-7, algorithm=algorithm, **more), own).guarantee
        return as_claimed(guarantee), guarantee

    return planned


def minimum(delta):
    def planned(_budget):
        request = Request(1.0, delta, algorithm="objective_perturbation", settings={"evaluation_share": 0})
        return None, plan(request, Facts(48_842, 105)).guarantee

    return planned


def updates(budget):
    """Their noise was more: a charge before is not that of the same noise."""
    return None, plan(Request(1.0, 1e-7, algorithm="dp_sgd", batch_size=20_000, epochs=10), facts(budget)).guarantee


def pure(event):
    return lambda _budget: (Release(EpsilonDeltaDpEvent(1.0, 0.0), 1.0, 0.0), Release(event, 1.0, 0.0))


def alone(event):
    return lambda _budget: (None, Release(event, 1.0, 0.0))


ROWS = {
    "pure, spherical Laplace, ε = 1, d = 10": pure(SphericalLaplaceDpEvent(1.0, 10)),
    "… d = 105": pure(SphericalLaplaceDpEvent(1.0, 105)),
    "… d = 785": pure(SphericalLaplaceDpEvent(1.0, 785)),
    "perturbed minimum, (1, 10⁻⁷), 48,842 rows, d = 105": minimum(1e-7),
    "… pure": minimum(0.0),
    "selection of bounded range, ε = 1": alone(ExponentialMechanismDpEvent(1.0)),
    "two counts with Laplace noise, ε = ½ each": alone(SelfComposedDpEvent(EpsilonDeltaDpEvent(0.5, 0.0), 2)),
    "ten updates on all rows, (1, 10⁻⁷)": updates,
    "choice of a tuning among disjoint portions": choice,
    "`dp_blsgd`": run("dp_blsgd"),
    "`dp_agd` on mini-batches of 2,000": run("dp_agd", batch_size=2000),
    "`dp_sgd`, units of 5 rows": run("dp_sgd", 5),
    "… of 20 rows": run("dp_sgd", 20),
}


def shown(budget, release):
    """Percent of a budget, and of its leaks in brackets."""
    charge, leaks = budget.cost(release)
    percent = [100 * charge / budget.charge_limit, 100 * leaks / budget.leak_limit]
    return f"{percent[0]:.3g}" + (f" ({percent[1]:.2g})" if percent[1] > 0.01 else "")


def charge_of(text):
    return float(text.split()[0])


@pytest.mark.parametrize("what", ROWS)
def test_the_table_has_what_the_ledgers_charge(what):
    """And no charge grew, but that of updates which have less noise; what cannot be computed any more is as it was."""
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {what} |"))
    for cell, budget in zip(line.split(" | ")[1:4], BUDGETS, strict=True):
        before, after = ROWS[what](budget)
        written = cell.split(" → ")
        assert written[1] == shown(budget, after)
        assert before is None or written[0] == shown(budget, before)
        assert charge_of(written[1]) <= charge_of(written[0]) or ROWS[what] is updates


@pytest.mark.parametrize("classes", [3, 10])
def test_classes_with_one_clip_have_the_noise_of_one_model(classes):
    for algorithm in ("scs13", "dp_sgd", "dp_adam", "dp_agd", "dp_blgd"):
        of = {"batch_size": 1000, "epochs": 3} if algorithm in ("scs13", "dp_sgd", "dp_adam") else {}
        one, several = (
            plan(Request(1.0, 1e-6, algorithm=algorithm, **of), Facts(20_000, 20, outputs)).explain()["noise_scale"]
            for outputs in (1, classes)
        )
        assert several == pytest.approx(one, rel=1e-3)
    pure = [
        plan(
            Request(1.0, 0.0, algorithm="scs13", clip_norm=clip, batch_size=1000, epochs=3), Facts(20_000, 20, classes)
        )
        for clip in (None, 100.0)
    ]
    scales = [each.explain()["noise_scale"] for each in pure]
    assert scales == pytest.approx([6, 6 * classes], rel=1e-4)  # the second was √K times that
