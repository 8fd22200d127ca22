"""A training that spends a share of its ε on a table of its scores: calibrated, and with figures of itself.

privacy.md §21.4. Any algorithm of linear models has this stage, if its settings derive from `Evaluates`.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options, OwnSettings, automatic, own_settings
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Released, Request
from dbdp.algorithms.rows import Layout, Progress, Rows, silent
from dbdp.algorithms.stages.self_evaluation import SelfEvaluation, are_log_odds
from dbdp.algorithms.stages.table_noise import LaplaceTable
from dbdp.learning.objectives import projected
from dbdp.privacy.accounting.events import ComposedDpEvent, Release

CLEAR = 240  # of n·ε_t/(K·r), at which a table is clear of its noise: it has n·ε_t/(2K·r) times the noise of a cell
LEAST_SHARE, MOST_SHARE, TOO_MUCH = 0.04, 0.1, 0.15  # of ε: none is worth TOO_MUCH
LEAST_EPSILON = 1e-6  # of the table: far above one unit of a charge, and far below any use
MOST_CLASSES = 100  # with more, a table has more noise than rows


@dataclass(frozen=True)
class Evaluates(OwnSettings):
    """The settings of an algorithm that has the stage; a subclass may have more."""

    evaluation_share: float | None = automatic(
        0.0, 0.9, "fraction of ε for the table of scores that calibrates and evaluates classes; by default 0, .04 to .1"
    )


def usual_share(request: Request, facts: Facts) -> float:
    """Return the default share of ε: as much as a clear table needs, 0 where that is too much (§21.4)."""
    needed = CLEAR * facts.outputs * facts.unit_rows / (facts.rows * request.epsilon)
    return 0.0 if needed > TOO_MUCH else min(max(needed, LEAST_SHARE), MOST_SHARE)


def evaluation_share(request: Request, facts: Facts, options: Options) -> float:
    """Return the share of ε for the table of scores, 0 where an algorithm or its model has none; by public facts."""
    kind = options.own_settings
    if kind is None or not issubclass(kind, Evaluates):
        return 0.0
    given = own_settings(request, kind).evaluation_share
    is_suited = facts.is_classifier and facts.outputs <= MOST_CLASSES and request.network is None
    if given and not is_suited:
        raise ValueError(
            f"evaluation_share = {given} is for linear models of up to {MOST_CLASSES} classes; leave it out"
        )
    share = usual_share(request, facts) if given is None else given
    return share if is_suited and share * request.epsilon >= LEAST_EPSILON else 0.0


def without_share(request: Request, share: float) -> Request:
    """Return the request with the ε that is left for the training, rounded down."""
    left = math.nextafter(request.epsilon - share * request.epsilon, 0)
    return replace(request, epsilon=left) if share else request


def evaluated_plan(trained: NoisyWhileTraining, request: Request, facts: Facts, share: float) -> "EvaluatedPlan":
    """Return the plan of a training at a part of ε, `without_share`, and of the table of its scores at the rest.

    Proof (privacy.md §21.4, §13). Given the noisy models, the table is a release of its ε: adaptively composed, both
    are (ε, δ) by the sum of theirs, and have the divergences of both events. The rest is post-processing. ∎
    """
    epsilon = share * request.epsilon
    while Fraction(trained.guarantee.epsilon) + Fraction(epsilon) > Fraction(request.epsilon):
        epsilon = math.nextafter(epsilon, 0)
    table = LaplaceTable(facts.outputs, epsilon, facts.unit_rows, has_constant=facts.intercept)
    loss, is_softmax = settings.loss_of(request, facts), trained.details.get("classes") == "softmax"
    calibrates = (is_softmax or facts.outputs == 1) and are_log_odds(loss)
    evaluation = SelfEvaluation(facts.outputs, facts.dimension, softmax=is_softmax, noise=table, calibrates=calibrates)
    event = ComposedDpEvent((trained.guarantee.event, table.event))
    guarantee = Release(event, request.epsilon, trained.guarantee.delta)
    own = {
        "expected_passes": trained.details["expected_passes"] + 1,
        "evaluation_share": share,
        "evaluation_epsilon": epsilon,
    }
    if facts.unit_rows > 1:
        own["row_epsilon"] = trained.details["row_epsilon"] + epsilon / facts.unit_rows
    return EvaluatedPlan(request, facts, guarantee, trained.details | own, trained.method, trained, evaluation)


@dataclass(frozen=True)
class EvaluatedPlan(NoisyWhileTraining):
    """The plan of a training and of the table of its scores."""

    trained: NoisyWhileTraining
    evaluation: SelfEvaluation

    @property
    def layout(self) -> Layout:
        """That of the training."""
        return self.trained.layout

    def run(self, rows: Rows, progress: Progress = silent) -> Released:
        """Pack the rows, train, and return the noisy models, calibrated, in the ball that they are asked to be in."""
        released = self.evaluation.evaluated(rows, self.trained.run(rows, progress))
        radius = settings.radius_of(self.request, settings.loss_of(self.request, self.facts))
        return replace(released, models=projected(released.models, radius))
