"""Scores of a released model by name: from a metric and public facts to a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dbdp.algorithms.scores.confusion import AccuracyPlan, ConfusionPlan
from dbdp.algorithms.scores.evaluation import THRESHOLD, EvaluationPlan
from dbdp.algorithms.scores.regression_fit import RegressionFitPlan, RegressionScorePlan
from dbdp.algorithms.scores.residuals import POWERS, ResidualPlan
from dbdp.algorithms.scores.score_bins import BINS, ScoreBinsPlan
from dbdp.checks import one_of
from dbdp.learning.counts.tallies import Confusion, ScoreBins

OF_CLASSES = ("accuracy", "confusion", "auc", "calibration")
OF_FIT = ("rmse", "r2")
OF_NUMBERS = (*POWERS, *OF_FIT)
METRICS = (*OF_CLASSES, *OF_NUMBERS)
ScorePlan = AccuracyPlan | ConfusionPlan | ScoreBinsPlan | ResidualPlan | RegressionScorePlan


@dataclass(frozen=True)
class ScoreRequest:
    """A request for a private score of a model."""

    # One of METRICS. auc and calibration are two names of one histogram, as rmse and r2 of one table.
    metric: str
    epsilon: float
    delta: float = 0.0
    bins: int = BINS  # bins of that histogram
    # The class that the histogram compares with the rest; for a binary label it is the positive value.
    positive: str | None = None
    cohort: Any = None  # a public condition on the rows, see `statistics.cohorts`; None is all rows


@dataclass(frozen=True)
class ScoredFacts:
    """The public facts of the rows on which a model is scored."""

    rows: int
    classes: Sequence[str | None]  # names, in the order of packed labels; empty for a numeric label
    outputs: int  # linear models of a training: 1 for a binary label, else the number of classes
    label_bounds: tuple[float, float] | None = None  # bounds of a numeric label, None for classes
    is_network: bool = False  # whether the model is a network
    moved: int = 1  # largest number of records in which neighbours differ
    has_public_rows: bool = True  # whether the number of records is public
    partial: bool = False  # whether a row may have no answer

    @property
    def of_counts(self) -> dict[str, Any]:
        """The facts that every plan of counts has."""
        return {"moved": self.moved, "has_public_rows": self.has_public_rows, "partial": self.partial}


def score_plan(request: ScoreRequest, facts: ScoredFacts) -> ScorePlan:
    """Return the plan of a request."""
    _check(request, facts)
    public, known = (request.epsilon, request.delta, facts.rows), facts.of_counts
    if facts.label_bounds is not None and request.metric in OF_FIT:
        return RegressionScorePlan(*public, facts.label_bounds, request.metric, **known)
    if facts.label_bounds is not None:
        return ResidualPlan(*public, request.metric, facts.label_bounds, **known)
    if request.metric == "accuracy":
        return AccuracyPlan(*public, **known)
    if request.metric == "confusion":
        return ConfusionPlan(*public, len(facts.classes), **known)
    tally = ScoreBins(request.bins, _output(request, facts), facts.is_network, partial=facts.partial)
    return ScoreBinsPlan(*public, tally, **known)


def evaluation_plan(
    epsilon: float, delta: float, bins: int, facts: ScoredFacts, threshold: float = THRESHOLD
) -> EvaluationPlan | RegressionFitPlan:
    """Return the plan of an evaluation; raise ValueError for a value out of range."""
    public, known = (epsilon, delta, facts.rows), facts.of_counts
    if facts.label_bounds is not None:
        if threshold != THRESHOLD:
            raise ValueError(f"threshold = {threshold!r} needs two classes, and the label is a number; leave it out")
        return RegressionFitPlan(*public, facts.label_bounds, **known)
    classes, tally = len(facts.classes), Confusion(facts.partial)
    if facts.outputs > 1:
        return EvaluationPlan(*public, classes, tally, threshold, **known)
    of_scores = ScoreBins(bins, 0, facts.is_network, parted=True, partial=facts.partial)
    return EvaluationPlan(*public, classes, of_scores, threshold, **known)


def _check(request: ScoreRequest, facts: ScoredFacts) -> None:
    one_of("metric", request.metric, METRICS)
    of_classes = request.metric in OF_CLASSES
    if of_classes and facts.label_bounds is not None:
        raise ValueError(
            f"metric {request.metric!r} needs classes, and the label is a number; choose one of {', '.join(OF_NUMBERS)}"
        )
    if not of_classes and facts.label_bounds is None:
        raise ValueError(
            f"metric {request.metric!r} needs a numeric label, and this one has classes; choose one of "
            f"{', '.join(OF_CLASSES)}"
        )
    if request.positive is not None and request.metric not in ("auc", "calibration"):
        raise ValueError(
            f"positive = {request.positive!r} has no meaning for metric {request.metric!r} of all classes; leave it out"
        )


def _output(request: ScoreRequest, facts: ScoredFacts) -> int:
    """Return the index of the score of the histogram's class."""
    allowed = list(facts.classes) if facts.outputs > 1 else [facts.classes[-1]]
    if request.positive is None and facts.outputs == 1:
        return 0
    if request.positive not in allowed:
        raise ValueError(
            f"positive = {request.positive!r} is not a class to compute metric {request.metric!r} for; choose "
            f"one of {', '.join(map(str, allowed[:20]))}"
        )
    return allowed.index(request.positive)
