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
from dbdp.algorithms.families.preconditioned.column_bases import additive_preconditioner
from dbdp.algorithms.families.preconditioned.flattening import flattened
from dbdp.algorithms.families.preconditioned.preconditioned_gd import (
    LABEL_SHARE,
    MOST_PASSES,
    RESIDUAL_SHARE,
    PreconditionedDescent,
    PreconditionedPlan,
    has_residuals,
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
from dbdp.learning.objectives import Linear, projected
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.learning.rows.monotone import monotone_models
from dbdp.learning.second_moments import MOST_DIMENSION
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release
from dbdp.privacy.mechanisms import ROOM, Gaussian

KNOTS = 8  # of each number
COLUMN_SHARE, CROSS_SHARE = 0.1, 0.03  # of μ², for the moments of each column, and of all together
ROWS_PER_DIMENSION, OF_NUMBERS = 80, 50  # nμ that pay for a dimension
PASSES, MORE_PASSES = 16, 40  # more where the noise can pay for every coordinate
CLIP, OF_A_NUMBER, LONGEST = 0.25, 0.13, 0.26  # c
ENOUGH, FOR_A_CURVE = 300, 30  # nμ from which curves pay, in all and for each: below, straight lines cost less
FEWEST = 0.3  # of a dimension for each column, below which RMSE was above the constant's on wine
LEAST_SIGNAL_OF_RESIDUALS = 500  # nμ


@dataclass(frozen=True)
class SplineSettings(OwnSettings):
    """What only private_splines has."""

    passes: int | None = automatic(1, MOST_PASSES, "T: gradient steps over all rows; by default 16 or 40")
    evaluation_share: float | None = automatic(
        0.0, 0.8, "fraction of μ² for the table of scores that calibrates and evaluates classes; by default .05"
    )
    clip: float | None = automatic(
        1e-6, 100.0, "c: gradients are clipped to c·√d_eff, of numbers in units of their spread; by default .13 to .26"
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


def enough_signal(curves: int, *, is_classifier: bool) -> float:
    """Return the n·μ from which so many curves and pairs pay: by experiments, on real and generated tables (§24.8)."""
    return max(ENOUGH if is_classifier else LEAST_SIGNAL_OF_RESIDUALS, FOR_A_CURVE * curves)


def private_splines_plan(request: Request, facts: Facts) -> PreconditionedPlan:
    """Return the plan of private splines.

    Proof (privacy.md §24, §16.3, §21.1). Where a record is replaced, the columns' moments move by at most √(2(F + 1)),
    and given them that of cut rows by √2, and the labels' second histogram by √2. Then W, the clip C and the start are
    fixed: each of the T sums of clipped gradients moves by at most 2C, and the table of scores of the released model by
    √2. Of numbers there are a table of residuals and sums (§16.3) instead. C depends on what was released, but the
    quotients of sensitivity and deviation do not: adaptively composed, these Gaussians are one of
    μ² = μ_A² + μ_B² + μ_L² + Tμ_g² + μ_s² (§13), which is at most 1/z², z the analytic multiplier of (ε, δ). Curves and
    calibration are post-processing. ∎

    Raise ValueError if the request cannot be planned: the message names the value, the limit and the remedy.
    """
    blocks = _checked(request, facts)
    own, multiplier = own_settings(request, SplineSettings), analytic_noise_multiplier(request.epsilon, request.delta)
    loss, signal = settings.loss_of(request, facts), facts.rows / multiplier
    affordable = signal / (ROWS_PER_DIMENSION if facts.is_classifier else OF_NUMBERS)
    is_free = facts.is_classifier and affordable > facts.dimension
    step = (2 if facts.is_classifier else 1) / loss.smoothness
    cross = _cross_share(affordable, facts, blocks)
    labels = 0.0 if facts.is_classifier else LABEL_SHARE
    moments = COLUMN_SHARE + cross
    descent = SplineDescent(
        objective=Linear(loss, facts.dimension, 1),
        facts=facts,
        multiplier=multiplier,
        moment_share=moments,
        cross_share=cross,
        label_share=labels,
        evaluation_share=share_for_scores(own.evaluation_share, facts, moments),
        residual_share=_residual_share(signal, facts, own),
        passes=own.passes or (MORE_PASSES if is_free else PASSES),
        clip=own.clip or (CLIP if facts.is_classifier else min(LONGEST, OF_A_NUMBER * max(1.0, signal / 1000) ** 0.4)),
        step_size=step if request.step_size is None else step_given(request.step_size),
        radius=math.inf if request.radius is None else settings.radius_of(request, loss),
        blocks=blocks,
        affordable=affordable,
    )
    guarantee = Release(GaussianDpEvent(multiplier), request.epsilon, request.delta)
    return PreconditionedPlan(request, facts, guarantee, descent.described() | _warning(descent), descent)


def _warning(descent: "SplineDescent") -> dict[str, str]:
    """Return a sentence if the noise leaves too little to each column; else nothing."""
    columns = len(descent.blocks.blocks)
    if descent.affordable >= FEWEST * columns:
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
        f"the label has {facts.outputs} classes, and it learns two classes or a number": facts.outputs > 1,
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
        return ColumnRelease(self.blocks, is_number, self.facts.dimension, multiplier)

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
        """Return models over packed rows, which keep the directions of monotone columns; their noise is that before."""
        released = super()._in_rows(way, model, noise, clip)
        if way.shares is None or not any(block.direction for block in self.blocks.blocks):
            return released
        models = monotone_models(released.models, self.blocks, way.shares)
        return replace(released, models=projected(models, self.radius))

    @property
    def _passes_before(self) -> int:
        """Passes before the first step: one to three releases of moments and labels, and the change of coordinates."""
        return 2 + bool(self.cross_share) + bool(self.label_share)

    def _first(self, rows: Rows, found: NoisyColumns) -> tuple[float, float]:
        """Return the constant at which the descent begins, log-odds or a mean of numbers, and the unit of its clips."""
        if not self.label_share:
            return math.log(found.labels[1] / found.labels[0]), 1.0
        release = WindowRelease(self.facts.rows, self.facts.dimension, self._multiplier_of(self.label_share))
        window = release.released(rows, *coarse_window(found.labels, found.deviation))
        return window.mean, window.width

    def _described_before(self) -> dict[str, Any]:
        """Return what `explain` shows of the columns' moments and the mechanism."""
        return {
            "knots": KNOTS,
            "affordable_dimension": self.affordable,
            "mechanism": Gaussian.name,
            "noise_scale": self.columns.noise.noise_scale,
        }
