"""A tuning of preconditioned_gd: descents share one second moment, and all together are one Gaussian release."""

import math
from dataclasses import replace

import numpy as np
import pytest
from memory import RowsInMemory

from dbdp.algorithms import Facts, Request
from dbdp.algorithms.combined import tuning
from dbdp.algorithms.combined.shared_moment import SharedTuning
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.algorithms.families.preconditioned.preconditioned_gd import PreconditionedDescent
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent
from dbdp.privacy.mechanisms import Gaussian

FACTS = Facts(4000, 5)
CLIPS = ({}, {"settings": '{"clip": 0.2}'}, {"settings": {"passes": 30}})


def tuned(*candidates, facts=FACTS, **given):
    own = {name: given.pop(name) for name in ("method", "repetitions", "selection_epsilon") if name in given}
    base = Request(**{"epsilon": 1.0, "delta": 1e-6} | given)
    return tuning.tuning_plan(TuningRequest(base, candidates or CLIPS, **own), facts)


def rows_of(facts=FACTS):
    """Rows that their first feature decides, or a class for each of three parts of its range."""
    features = np.random.default_rng().uniform(-0.4, 0.4, (facts.rows, facts.dimension))
    features[:, -1] = 0.4
    return RowsInMemory(features, np.where(features[:, 0] > 0, 1, -1))


@pytest.mark.parametrize("candidates", [CLIPS, ({},), CLIPS * 20])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_parts_of_the_budget_add_up_to_it(candidates, outputs):
    """The sum of all μ² is just below that of the whole; a control with one candidate more is above."""
    planned = tuned(*candidates, facts=Facts(4000, 5, outputs))
    assert isinstance(planned, SharedTuning)
    assert planned.guarantee.event == GaussianDpEvent(analytic_noise_multiplier(1.0, 1e-6))
    descents = [each.method for each in planned.plans]
    steps = [each.passes / each.step_multiplier**2 for each in descents]
    once = [descents[0].moment_multiplier, descents[0].evaluation.noise.multiplier, planned.choice_multiplier]
    total = sum(steps) + sum(each**-2 for each in once)
    whole = analytic_noise_multiplier(1.0, 1e-6) ** -2
    assert 0.999 * whole < total <= whole < total + min(steps)


def test_the_noise_covers_a_record_that_moves_all_counts():
    """Explicit neighbours: a record that every candidate classifies wrongly is replaced by one that none does."""
    planned = tuned()
    rows = rows_of(Facts(200, 5))
    model = np.array([[1.0, 0, 0, 0, 0]])
    rows.all[0, -1] *= -1
    counts = np.array([rows.errors(model)] * 3)
    rows.all[0, -1] *= -1
    moved = np.linalg.norm(counts - [rows.errors(model)] * 3)
    assert moved == math.sqrt(3)
    covered = planned.choice.noise_scale / planned.choice_multiplier
    assert moved <= covered < 1.001 * moved


def test_one_moment_is_released_and_all_candidates_trained():
    """The rows are read as often as the plan says, whichever candidate is chosen."""
    planned, rows = tuned(), rows_of()
    planned.run(rows)
    passes = sum(each.method.passes for each in planned.plans)
    assert rows.reads.count("second_moment") == rows.reads.count("transform") == rows.reads.count("tally") == 1
    assert rows.reads.count("gradient_sum") == passes
    assert rows.reads.count("errors") == len(planned.plans)


def test_a_clearly_better_candidate_is_chosen(monkeypatch):
    """Models of the others have the wrong sign; a control reverses the counts."""
    trained, released_of = PreconditionedDescent.trained, Gaussian.release
    bad = {"settings": '{"clip": 0.123}'}

    def wrong(descent, *given):
        found = trained(descent, *given)
        return replace(found, models=-found.models) if descent.clip == 0.123 else found

    def reversed_counts(noise, exact):
        return released_of(noise, exact) * (-1 if exact.shape == (3,) else 1)

    monkeypatch.setattr(PreconditionedDescent, "trained", wrong)
    planned = tuned(bad, {}, bad, epsilon=30.0)
    chosen, released = planned.run(rows_of())
    assert chosen == 1 and released.models[0, 0] > 5 * np.abs(released.models[0, 1:]).max()
    assert {"evaluation", "score_calibration"} <= set(released.figures)
    monkeypatch.setattr(Gaussian, "release", reversed_counts)
    assert planned.run(rows_of())[0] != 1


def test_the_plan_announces_the_price():
    """Three candidates have √3/√.9 times the noise; a weak signal is advised against, and a strong one is not."""
    explained = tuned(facts=Facts(100_000, 5)).explain()
    assert explained["price"] == f"{math.sqrt(3 / 0.9):.3g} times the noise that each step has without tuning"
    assert explained["method"] == "shared_moment" and "warning" not in explained
    assert not any("predicted_loss" in each for each in explained["plans"])
    weak = tuned(facts=Facts(100_000, 5), epsilon=0.005).explain()
    assert weak["warning"].startswith("tuning probably costs more than it gains: 3 candidates leave each a signal")


REFUSED = {
    "an option of mini-batches": (({"epochs": 3},), {}, "auto chooses preconditioned_gd .* or use algorithm bolt_on$"),
    "an algorithm for some": (({}, {"algorithm": "bolt_on"}), {}, "only some candidates are of preconditioned_gd"),
    "two second moments": (
        ({}, {"settings": '{"moment_share": 0.2}'}),
        {},
        "share one noisy moment .* give moment_share",
    ),
    "a method of others": (CLIPS, {"method": "disjoint_portions"}, "does not tune preconditioned_gd; leave method out"),
    "this method for others": (
        ({},),
        {"method": "shared_moment", "algorithm": "bolt_on"},
        "'shared_moment' tunes only preconditioned_gd",
    ),
    "repetitions": (CLIPS, {"repetitions": 2.0}, "without repetitions, distribution and selection_epsilon"),
    "a summary of one candidate": (({"summary": 3},), {}, "sets summary; it may set"),
    "a pure guarantee": (
        ({},),
        {"delta": 0.0},
        "chooses objective_perturbation by public facts, .* or choose .*bolt_on",
    ),
    "hardly a signal": (({},), {"epsilon": 1e-4}, "chooses majority by public facts, .* train without tuning"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_tuned_is_refused_with_a_remedy(case):
    candidates, given, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        tuned(*candidates, **given)


def test_the_remedies_can_be_followed():
    assert isinstance(tuned({"epochs": 3}, algorithm="bolt_on"), tuning.TuningPlan)
    assert isinstance(tuned({}, delta=0.0, algorithm="bolt_on"), tuning.TuningPlan)
    shares = {"settings": '{"moment_share": 0.2}'}
    assert isinstance(tuned(shares, shares), SharedTuning)


def test_a_unit_of_many_rows_has_its_share():
    planned = tuned(facts=Facts(4000, 5, unit_rows=2))
    assert planned.explain()["neighbours"] == "replace-one-unit"
    assert planned.guarantee.epsilon == 1.0
    assert planned.plans[0].method.multiplier > tuned().plans[0].method.multiplier
