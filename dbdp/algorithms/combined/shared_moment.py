"""A private choice among settings: the descents share one noisy preconditioner (privacy.md §6)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbdp.algorithms.families.preconditioned.preconditioned_gd import PreconditionedPlan, preconditioned_gd_plan
from dbdp.algorithms.families.preconditioned.private_splines import private_splines_plan
from dbdp.algorithms.families.preconditioned.spline_descent import SplineDescent
from dbdp.algorithms.noisy_sums import gaussian_sum
from dbdp.algorithms.plan import Facts, Released, Request
from dbdp.algorithms.rows import Layout, Pace, Progress, Rows, silent
from dbdp.learning.counts import tallies
from dbdp.privacy.accounting.events import Release
from dbdp.privacy.mechanisms import ROOM, Gaussian

METHOD = "shared_moment"
PLANS = {"preconditioned_gd": preconditioned_gd_plan, "private_splines": private_splines_plan}
CHOICE_SHARE = 0.1  # of what the steps would have of μ², for the counts of errors by which one is chosen
WORTH = 30  # of nμ/d that each candidate's steps should have: with less, more noise costs more than settings gain


@dataclass(frozen=True)
class SharedTuning:
    """The plan: one second moment, a descent for each candidate, and a choice by noisy counts of their errors."""

    request: Request
    candidates: tuple[Mapping[str, Any], ...]
    facts: Facts
    plans: tuple[PreconditionedPlan, ...]  # each has its part of μ²
    choice_multiplier: float  # σ of the counts, in units of their sensitivity
    guarantee: Release

    @property
    def layout(self) -> Layout:
        """All rows in one slice."""
        return self.plans[0].layout

    def run(self, rows: Rows, progress: Progress = silent) -> tuple[int, Released]:
        """Pack the rows, train the candidates, and return the chosen one's index and its noisy models."""
        descents = [each.method for each in self.plans]
        way, trained, pace = descents[0].prepared(rows), [], Pace(silent, 0, 1)
        for number, each in enumerate(descents):
            trained.append(each.trained(rows, way, pace))
            progress("candidate", number + 1, len(descents))
        errors = np.array([float(self._errors(rows, each.models)) for each in trained])
        chosen = int(np.argmin(self.choice.release(errors)))
        return chosen, descents[chosen].evaluated(rows, way, trained[chosen], pace)

    def _errors(self, rows: Rows, models: np.ndarray) -> int:
        """Return how many rows the models classify wrongly; a zero row counts as an error."""
        blocks = self.plans[0].method.blocks
        if blocks is None:
            return rows.errors(models)
        right = tallies.described(
            tallies.Correct(), outputs=self.facts.outputs, dimension=self.facts.dimension, rows_of=blocks
        )
        return self.facts.rows - int(rows.tally(models, right)[0])

    @property
    def choice(self) -> Gaussian:
        """The noise of each candidate's count of wrongly classified rows.

        Proof. A replaced record changes each of k counts by at most 1: the vector by √k. Counts are exact. ∎ Attained
        by a record that all candidates classify wrongly, replaced by one that none does.
        """
        candidates = len(self.plans)
        return gaussian_sum(math.sqrt(candidates) * ROOM, candidates, multiplier=self.choice_multiplier)

    @property
    def price(self) -> float:
        """How many times the noise of a training run without tuning each step has."""
        return math.sqrt(self._alone / self.plans[0].method.steps_share)

    @property
    def _alone(self) -> float:
        return 1 - self.plans[0].method.moment_share - self.plans[0].method.evaluation_share

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""
        return {
            "algorithm": "tuning",
            "method": METHOD,
            **self.facts.relation,
            "candidates": [dict(candidate) for candidate in self.candidates],
            "plans": [each.explain() for each in self.plans],
            "selection_noise_scale": self.choice.noise_scale,
            "price": f"{self.price:.3g} times the noise that each step has without tuning",
            **self._warning(),
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
        }

    def _warning(self) -> dict[str, str]:
        """Return a sentence if tuning is expected to cost more than it gains; else nothing."""
        descent = self.plans[0].method
        affordable = descent.affordable if isinstance(descent, SplineDescent) else math.inf
        signal = descent.facts.rows / descent.multiplier / min(descent.facts.dimension, affordable) / self.price
        if signal >= WORTH:
            return {}
        return {
            "warning": f"tuning probably costs more than it gains: {len(self.plans)} candidates leave each a signal "
            f"n·μ/d of {signal:.2g}, below {WORTH}; train without tuning, or give fewer candidates"
        }


def shared_plan(
    base: Request, candidates: tuple[Mapping[str, Any], ...], requests: Sequence[Request], facts: Facts
) -> SharedTuning:
    """Return the plan of a tuning of checked requests of one of PLANS, from public facts only.

    Proof (privacy.md §6, §16.1, §21.1). The moments, the steps of k descents, the k counts of errors of their
    models and the chosen one's table of scores are Gaussian releases of fixed quotients, each given those before: the
    choice follows from noisy counts. Adaptively composed they are one Gaussian (§13) of
    μ² = μ_A² + Σ_i T_i·μ_gi² + μ_c² + μ_h². The parts of 1/z², z the multiplier of (ε, δ), add up to it: m for the
    moment, e for the table, and of the rest r = 1 - m - e the tenth for the counts and (9/10)·r/k for each descent. ∎
    """
    plans = [PLANS[each.algorithm](each, facts) for each in requests]
    first = plans[0].method
    shares = {(each.method.moment_share, each.method.evaluation_share) for each in plans}
    if len(shares) > 1:
        raise ValueError(
            f"candidates of {requests[0].algorithm} share one noisy moment and one table of scores; give moment_share "
            "and evaluation_share the same value in all of them, or leave them out"
        )
    rest = 1 - first.moment_share - first.evaluation_share
    own = rest * (1 - CHOICE_SHARE) / len(plans)
    parted = tuple(_with_share(each, own) for each in plans)
    multiplier = first.multiplier / math.sqrt(rest * CHOICE_SHARE) * ROOM
    return SharedTuning(base, candidates, facts, parted, multiplier, plans[0].guarantee)


def _with_share(plan: PreconditionedPlan, share: float) -> PreconditionedPlan:
    """Return the plan of a descent with that share of μ² for its steps."""
    method = replace(plan.method, reserved=plan.method.steps_share - share)
    return replace(plan, method=method, details=method.described())
