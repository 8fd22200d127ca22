"""Private splines: an additive model, a curve for each number and a value for each category, by noisy steps.

privacy.md §24. The rows have hat functions for each number, see `Numeric.knots`. A part of the budget releases the
second moments of each column's coordinates and a histogram of the label; from these, W maps a row to coordinates that
are uncorrelated within a column. There the steps of `preconditioned_gd` are taken, and its table of scores calibrates
and evaluates the model. Of numbers two counts show where most labels are: there the descent begins, and clips are in
units of how wide they lie.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options, OwnSettings, anything, automatic, own_settings
from dbdp.algorithms.families.preconditioned.momentum import MOMENTUM
from dbdp.algorithms.families.preconditioned.pair_descent import (
    ALL_STEPS,
    MOST_EVALUATION,
    PairDescent,
    coordinates_of,
    reserved_for,
)
from dbdp.algorithms.families.preconditioned.pair_descent import ENOUGH as ENOUGH_FOR_PAIRS
from dbdp.algorithms.families.preconditioned.preconditioned_gd import (
    LABEL_SHARE,
    MOST_PASSES,
    RESIDUAL_SHARE,
    SOFTMAX_LIPSCHITZ,
    PreconditionedPlan,
    has_residuals,
    objective_of,
    share_for_scores,
    step_given,
)
from dbdp.algorithms.families.preconditioned.spline_descent import COLUMN_SHARE, SplineDescent
from dbdp.algorithms.plan import Facts, Request
from dbdp.algorithms.stages.forecast import MAY_WIN
from dbdp.learning.counts.product_sums import MOST_SUMMED
from dbdp.learning.losses import Logistic, Squared
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.learning.rows.pairs import CHOSEN
from dbdp.learning.second_moments import MOST_DIMENSION
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release
from dbdp.privacy.mechanisms import Gaussian

CROSS_SHARE = 0.03  # of μ², for the moment of all columns together
ROWS_PER_DIMENSION, OF_SEVERAL, OF_NUMBERS = 80, 160, 50  # nμ that pay for a dimension; more with several classes
CROSS_SIGNAL = 65  # of nμ/√d, from which on a direction of 1/3 of all variance is clear of the noise
PASSES, MORE_PASSES, MORE_OF_SEVERAL = 16, 20, 24  # more where the noise can pay for every coordinate
MORE_MOMENTUM = 0.7  # of two classes there: 20 passes come as far as 40 with 1/2
CLIP, OF_A_NUMBER, LONGEST = 0.25, 0.13, 0.26  # c
# nμ from which curves pay, in all and for each, of several classes: below, straight lines cost less
ENOUGH, FOR_A_CURVE, FOR_ONE_OF_SEVERAL = 300, 30, 60
FAIR_OF_SEVERAL = 16  # of nμ/d: from there on the clip of several classes grows
# of a dimension for each column, below which RMSE was above the constant's on wine; several classes need one more
FEWEST = 0.3
LEAST_SIGNAL_OF_RESIDUALS = 500  # nμ


@dataclass(frozen=True)
class SplineSettings(OwnSettings):
    """What only private_splines has."""

    passes: int | None = automatic(1, MOST_PASSES, "T: gradient steps over all rows; by default 16, 20 or 24")
    evaluation_share: float | None = automatic(
        0.0, 0.8, "fraction of μ² for the table of scores that calibrates and evaluates classes; by default .05 or .02"
    )
    clip: float | None = automatic(
        1e-6, 100.0, "c: gradients are clipped to c·√d_eff, of numbers in their spread; by default .13 to 1.5"
    )


OPTIONS = Options(
    {**anything("huber_width", "positive_weight", "step_size", "radius", "monotone"), "mechanism": (Gaussian.name,)},
    {
        "epochs": "give passes in settings",
        "clip_norm": "give clip in settings",
        "regularisation": "leave it out: the coordinates regularise",
        "summary": "leave it out, or choose preconditioned_gd",
    },
    SplineSettings,
    least_signal=0.1,
)


def enough_signal(curves: int, outputs: int) -> float:
    """Return the n·μ from which so many curves and pairs pay: by experiments, on real and generated tables (§24.8)."""
    return max(ENOUGH, (FOR_A_CURVE if outputs == 1 else FOR_ONE_OF_SEVERAL) * curves)


def private_splines_plan(request: Request, facts: Facts) -> "SplinePlan":
    """Return the plan of private splines.

    Proof (privacy.md §24, §16.3, §21.1). Where a record is replaced, the columns' moments move by at most √(2(F + 1)),
    and given them that of cut rows by √2, and each of two counts of labels by √2. Then W, the clip C and the start are
    fixed: each of the T sums of clipped gradients moves by at most 2C, of K classes together (§16.4), and the table of
    scores of the released models by √(2K), K = 1 of two classes. Of numbers there are a table of residuals and sums
    (§16.3) instead. C depends on what was released, but the quotients of sensitivity and deviation do not: adaptively
    composed, these Gaussians are one of μ² = μ_A² + μ_B² + 2μ_L² + Tμ_g² + μ_s² (§13), which is at most 1/z², z the
    analytic multiplier of (ε, δ). Curves and calibration are post-processing. ∎ If pairs are
    chosen, the proof is that of `PairDescent`.

    Raise ValueError if the request cannot be planned: the message names the value, the limit and the remedy.
    """
    blocks = _checked(request, facts)
    own, multiplier = own_settings(request, SplineSettings), analytic_noise_multiplier(request.epsilon, request.delta)
    loss, signal = settings.loss_of(request, facts), facts.rows / multiplier
    affordable = signal / _rows_per_dimension(facts)
    step = (2 if facts.is_classifier else 1) / loss.smoothness
    cross = _cross_share(affordable, facts, blocks)
    labels = 0.0 if facts.is_classifier else LABEL_SHARE
    moments, (passes, momentum) = COLUMN_SHARE + cross, usual_pace(affordable, facts)
    descent = SplineDescent(
        objective=objective_of(request, facts),
        facts=facts,
        multiplier=multiplier,
        moment_share=moments,
        cross_share=cross,
        label_share=labels,
        evaluation_share=share_for_scores(own.evaluation_share, facts, moments),
        residual_share=_residual_share(signal, facts, own),
        passes=own.passes or passes,
        momentum=momentum,
        clip=own.clip or usual_clip(signal, facts),
        step_size=step if request.step_size is None else step_given(request.step_size),
        radius=math.inf if request.radius is None else settings.radius_of(request, loss),
        blocks=blocks,
        affordable=affordable,
    )
    guarantee = Release(GaussianDpEvent(multiplier), request.epsilon, request.delta)
    chosen = _with_choice(request, descent, own) if request.pairs == CHOSEN else {}
    descent = chosen.pop("descent", descent)
    return SplinePlan(request, facts, guarantee, descent.described() | chosen | _warning(descent), descent)


def _with_choice(request: Request, descent: SplineDescent, own: SplineSettings) -> dict[str, Any]:
    """Return a descent that chooses pairs, if the noise leaves enough for them, and what the plan says of it.

    Raise ValueError for an option that the choice lacks.
    """
    facts, loss = descent.facts, settings.loss_of(request, descent.facts)
    obstacles = {
        f"a label of {facts.outputs} classes": facts.outputs > 1,
        f"loss {loss.name!r}": loss.name not in (Logistic.name, Squared.name),
        f"positive_weight = {request.positive_weight}": request.positive_weight != 1,
        f"radius = {request.radius}": request.radius is not None,
        f"passes = {own.passes}": own.passes is not None,
        f"evaluation_share = {own.evaluation_share}, above {MOST_EVALUATION}": (own.evaluation_share or 0)
        > MOST_EVALUATION,
    }
    if found := next((obstacle for obstacle, is_there in obstacles.items() if is_there), None):
        raise ValueError(f"pairs = {CHOSEN!r} does not support {found}; leave it out, or name pairs")
    least = ENOUGH_FOR_PAIRS * coordinates_of(descent.blocks)
    if descent.affordable < least or not facts.candidates or facts.rows > MOST_SUMMED:
        needed = f"{least:.0f} affordable dimensions, two columns and at most {MOST_SUMMED} rows"
        return {"pair_choice": f"none: it needs {needed}"}
    public = {each.name: getattr(descent, each.name) for each in fields(SplineDescent)}
    changed = {
        "passes": ALL_STEPS,
        "momentum": MOMENTUM,  # with 0.7, and 12 and 16 steps, Covertype had .7 points less AUC at ε = 1.6
        "reserved": reserved_for(is_classifier=facts.is_classifier),
        "candidates": facts.candidates,
    }
    return {"descent": PairDescent(**(public | changed))}


def _rows_per_dimension(facts: Facts) -> int:
    """Return the nμ that pays for a dimension."""
    if not facts.is_classifier:
        return OF_NUMBERS
    return OF_SEVERAL if facts.outputs > 1 else ROWS_PER_DIMENSION


def usual_pace(affordable: float, facts: Facts) -> tuple[int, float]:
    """Return T and the momentum, where the noise leaves so many dimensions."""
    if not facts.is_classifier or affordable <= facts.dimension:
        return PASSES, MOMENTUM
    return (MORE_OF_SEVERAL, MOMENTUM) if facts.outputs > 1 else (MORE_PASSES, MORE_MOMENTUM)


def usual_clip(signal: float, facts: Facts) -> float:
    """Return c of a signal nμ: several classes and numbers bear a longer clip with a strong one."""
    if not facts.is_classifier:
        return min(LONGEST, OF_A_NUMBER * max(1.0, signal / 1000) ** 0.4)
    if facts.outputs > 1:
        return min(SOFTMAX_LIPSCHITZ, CLIP * max(1.0, signal / facts.dimension / FAIR_OF_SEVERAL) ** 0.5)
    return CLIP


def _warning(descent: SplineDescent) -> dict[str, str]:
    """Return a sentence if the noise leaves too little to each column; else nothing."""
    columns = len(descent.blocks.blocks)
    if descent.affordable >= FEWEST * columns + (descent.facts.outputs > 1):
        return {}
    return {
        "warning": f"{MAY_WIN}: it leaves {descent.affordable:.2g} dimensions to {columns} columns; choose "
        "preconditioned_gd, a larger epsilon, more rows or fewer features"
    }


def _residual_share(signal: float, facts: Facts, own: SplineSettings) -> float:
    """Return the share of μ² for residuals of numbers: where a signal is left after it, and no clip is given."""
    is_strong = signal >= LEAST_SIGNAL_OF_RESIDUALS
    return RESIDUAL_SHARE if is_strong and has_residuals(facts, own.clip, own.passes) else 0.0


def _cross_share(affordable: float, facts: Facts, blocks: RowBlocks) -> float:
    """Return the share of μ² for the moment of all columns together: with little signal noise hides it."""
    is_seen = not facts.is_classifier and affordable * OF_NUMBERS >= CROSS_SIGNAL * math.sqrt(facts.dimension)
    return CROSS_SHARE if affordable >= len(blocks.blocks) or is_seen else 0.0


def _checked(request: Request, facts: Facts) -> RowBlocks:
    """Return the blocks of a row; raise ValueError unless private splines can learn from such rows."""
    obstacles = {
        "delta = 0, and it adds Gaussian noise": request.delta == 0,
        "it has a curve for each column, and the feature is an array": facts.blocks is None,
        "a projection mixes its columns": request.projection_dimension is not None,
        "the dataset has no intercept": not facts.intercept,
        f"{facts.dimension} coordinates are above {MOST_DIMENSION}": facts.dimension > MOST_DIMENSION,
    }
    found = next((obstacle for obstacle, is_there in obstacles.items() if is_there), None)
    if facts.outputs > 1:
        settings.refuse_given(request, "monotone", of="a label of several classes", remedy="leave it out")
    if found or facts.blocks is None:
        raise ValueError(f"private_splines cannot learn this: {found}; choose algorithm => 'auto'")
    return facts.blocks


@dataclass(frozen=True)
class SplinePlan(PreconditionedPlan):
    """The plan of private splines: their rows are in places."""

    method: SplineDescent
