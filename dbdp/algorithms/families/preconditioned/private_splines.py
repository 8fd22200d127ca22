"""Private splines: an additive model, a curve for each number and a value for each category, by noisy steps.

privacy.md §24. The rows have hat functions for each number, see `Numeric.knots`. A part of the budget releases the
second moments of each column's coordinates and a histogram of the label; from these, W maps a row to coordinates that
are uncorrelated within a column. There the steps of `preconditioned_gd` are taken, and its table of scores calibrates
and evaluates the model. Of numbers a second histogram shows where most labels are: there the descent begins, and clips
are in units of how wide they lie.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options, OwnSettings, anything, automatic, own_settings
from dbdp.algorithms.families.preconditioned.column_bases import AdditivePreconditioner, additive_preconditioner
from dbdp.algorithms.families.preconditioned.curve_doubts import moment_root
from dbdp.algorithms.families.preconditioned.flattening import flattened
from dbdp.algorithms.families.preconditioned.preconditioned_gd import (
    LABEL_SHARE,
    MOST_PASSES,
    RESIDUAL_SHARE,
    SOFTMAX_LIPSCHITZ,
    PreconditionedDescent,
    PreconditionedPlan,
    has_residuals,
    objective_of,
    share_for_scores,
    step_given,
)
from dbdp.algorithms.families.preconditioned.preconditioning import Preconditioner
from dbdp.algorithms.plan import Facts, Released, Request
from dbdp.algorithms.rows import Rows
from dbdp.algorithms.stages.column_moments import ColumnRelease, NoisyColumns
from dbdp.algorithms.stages.forecast import MAY_WIN
from dbdp.algorithms.stages.label_window import WindowRelease, coarse_window
from dbdp.learning.counts.cut_moments import MOST_ROWS
from dbdp.learning.objectives import Softmax, projected
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.learning.rows.monotone import monotone_models
from dbdp.learning.second_moments import MOST_DIMENSION
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release
from dbdp.privacy.mechanisms import ROOM, Gaussian

KNOTS = 8  # of each number
COLUMN_SHARE, CROSS_SHARE = 0.1, 0.03  # of μ², for the moments of each column, and of all together
ROWS_PER_DIMENSION, OF_SEVERAL, OF_NUMBERS = 80, 160, 50  # nμ that pay for a dimension; more with several classes
PASSES, MORE_PASSES, MORE_OF_SEVERAL = 16, 40, 24  # more where the noise can pay for every coordinate
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

    passes: int | None = automatic(1, MOST_PASSES, "T: gradient steps over all rows; by default 16, 24 or 40")
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


def private_splines_plan(request: Request, facts: Facts) -> PreconditionedPlan:
    """Return the plan of private splines.

    Proof (privacy.md §24, §16.3, §21.1). Where a record is replaced, the columns' moments move by at most √(2(F + 1)),
    and given them that of cut rows by √2, and the labels' second histogram by √2. Then W, the clip C and the start are
    fixed: each of the T sums of clipped gradients moves by at most 2C, of K classes together (§16.4), and the table of
    scores of the released models by √(2K), K = 1 of two classes. Of numbers there are a table of residuals and sums
    (§16.3) instead. C depends on what was released, but the quotients of sensitivity and deviation do not: adaptively
    composed, these Gaussians are one of μ² = μ_A² + μ_B² + μ_L² + Tμ_g² + μ_s² (§13), which is at most 1/z², z the
    analytic multiplier of (ε, δ). Curves and
    calibration are post-processing. ∎

    Raise ValueError if the request cannot be planned: the message names the value, the limit and the remedy.
    """
    blocks = _checked(request, facts)
    if facts.outputs > 1:
        of = f"a label of {facts.outputs} classes, none of which has a direction,"
        settings.refuse_given(request, "monotone", of=of, remedy="leave it out")
    own, multiplier = own_settings(request, SplineSettings), analytic_noise_multiplier(request.epsilon, request.delta)
    loss, signal = settings.loss_of(request, facts), facts.rows / multiplier
    affordable = signal / _rows_per_dimension(facts)
    step = (2 if facts.is_classifier else 1) / loss.smoothness
    cross = _cross_share(affordable, facts, blocks)
    labels = 0.0 if facts.is_classifier else LABEL_SHARE
    moments = COLUMN_SHARE + cross
    descent = SplineDescent(
        objective=objective_of(request, facts),
        facts=facts,
        multiplier=multiplier,
        moment_share=moments,
        cross_share=cross,
        label_share=labels,
        evaluation_share=share_for_scores(own.evaluation_share, facts, moments),
        residual_share=_residual_share(signal, facts, own),
        passes=own.passes or usual_passes(affordable, facts),
        clip=own.clip or usual_clip(signal, facts),
        step_size=step if request.step_size is None else step_given(request.step_size),
        radius=math.inf if request.radius is None else settings.radius_of(request, loss),
        blocks=blocks,
        affordable=affordable,
    )
    guarantee = Release(GaussianDpEvent(multiplier), request.epsilon, request.delta)
    return PreconditionedPlan(request, facts, guarantee, descent.described() | _warning(descent), descent)


def _rows_per_dimension(facts: Facts) -> int:
    """Return the nμ that pays for a dimension."""
    if not facts.is_classifier:
        return OF_NUMBERS
    return OF_SEVERAL if facts.outputs > 1 else ROWS_PER_DIMENSION


def usual_passes(affordable: float, facts: Facts) -> int:
    """Return T, where the noise leaves so many dimensions."""
    if not facts.is_classifier or affordable <= facts.dimension:
        return PASSES
    return MORE_OF_SEVERAL if facts.outputs > 1 else MORE_PASSES


def usual_clip(signal: float, facts: Facts) -> float:
    """Return c of a signal nμ: several classes and numbers bear a longer clip with a strong one."""
    if not facts.is_classifier:
        return min(LONGEST, OF_A_NUMBER * max(1.0, signal / 1000) ** 0.4)
    if facts.outputs > 1:
        return min(SOFTMAX_LIPSCHITZ, CLIP * max(1.0, signal / facts.dimension / FAIR_OF_SEVERAL) ** 0.5)
    return CLIP


def _warning(descent: "SplineDescent") -> dict[str, str]:
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
    return CROSS_SHARE if affordable >= len(blocks.blocks) and facts.rows <= MOST_ROWS else 0.0


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
    if found or facts.blocks is None:
        raise ValueError(f"private_splines cannot learn this: {found}; choose algorithm => 'auto'")
    return facts.blocks


@dataclass(frozen=True, kw_only=True)
class SplineDescent(PreconditionedDescent):
    """The release as it is planned; `moment_share` is the share of μ² for the columns' moments."""

    blocks: RowBlocks
    cross_share: float  # the part of moment_share for the moment of all columns together
    affordable: float  # the most dimension that the noise leaves
    spared: ClassVar[float] = 0.4  # clips that were shortened by less cost .1 to 1.1 of RMSE on bike

    @property
    def learned(self) -> float:
        """The most dimension that the noise leaves, or all coordinates."""
        return min(self.affordable, self.facts.dimension)

    @property
    def columns(self) -> ColumnRelease:
        """The release of the columns' moments."""
        is_number, multiplier = not self.facts.is_classifier, self._multiplier_of(COLUMN_SHARE)
        return ColumnRelease(self.blocks, is_number, self.facts.dimension, multiplier, self.facts.outputs)

    def _multiplier_of(self, share: float) -> float:
        """Return the multiplier of a release with that share of μ²."""
        return self.multiplier / math.sqrt(share) * ROOM

    def _preconditioner(self, rows: Rows) -> Preconditioner:
        """Return what follows from the columns' moments, which are released now."""
        found, is_number = self.columns.released(rows), not self.facts.is_classifier
        first, unit = self._first(rows, found)
        way, variances = additive_preconditioner(self.blocks, found, self.affordable, first, is_number=is_number)
        way = replace(way, unit=unit)
        if not self.cross_share:
            return way
        return flattened(rows, way, variances, self.facts.rows, self._multiplier_of(self.cross_share))

    def _in_rows(self, way: Preconditioner, model: np.ndarray, noise: float, clip: float) -> Released:
        """Return models over packed rows that keep the directions of columns.

        Their noise is that of the steps and of the moments, before the directions were kept: the mean of pooled knots
        has less, but other noise may pool others. In 50 runs its bands held 96 % or more.
        """
        released = super()._in_rows(way, model, noise, clip)
        if not isinstance(way, AdditivePreconditioner):
            raise AssertionError("the coordinates of splines are those of their columns")
        models = projected(monotone_models(released.models, self.blocks, way.shares), self.radius)
        of_moments = moment_root(self.blocks, way, released.models, noise, self.passes)
        return replace(released, models=models, noise_root=np.vstack([noise * way.matrix, of_moments]))

    @property
    def _passes_before(self) -> int:
        """Passes before the first step: one to three releases of moments and labels, and the change of coordinates."""
        return 2 + bool(self.cross_share) + bool(self.label_share)

    def _first(self, rows: Rows, found: NoisyColumns) -> tuple[np.ndarray, float]:
        """Return the constants (K,) at which the descent begins, and the unit of its clips.

        They are log-odds of two classes, log shares of several, or a mean of numbers.
        """
        logs = np.log(found.labels)
        if isinstance(self.objective, Softmax):
            return logs - logs.mean(), 1.0
        if not self.label_share:
            return (logs - np.log1p(-found.labels))[0 if self.facts.outputs > 1 else 1 :], 1.0
        release = WindowRelease(self.facts.rows, self.facts.dimension, self._multiplier_of(self.label_share))
        window = release.released(rows, *coarse_window(found.labels, found.deviation))
        return np.array([window.mean]), window.width

    def _described_before(self) -> dict[str, Any]:
        """Return what `explain` shows of the columns' moments and the mechanism."""
        return {
            "knots": KNOTS,
            "affordable_dimension": self.affordable,
            "mechanism": Gaussian.name,
            "noise_scale": self.columns.noise.noise_scale,
        }
