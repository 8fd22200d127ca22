"""The descent of private splines that chooses pairs of columns itself, and keeps them if they are better.

privacy.md §24.11. Columns are learned first. A noisy gradient in products of functions of two columns shows which pairs
would move the model; these are learned too. A noisy comparison decides whether they stay, and the better model is
learned further. Every run makes the same passes, and spends the same. Shapes: models (p,), over `ProductRows`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbdp.algorithms.families.preconditioned.column_bases import (
    AdditivePreconditioner,
    additive_preconditioner,
    basis_of,
)
from dbdp.algorithms.families.preconditioned.curve_doubts import moment_root
from dbdp.algorithms.families.preconditioned.flattening import LONGEST, CutMomentRelease, spread_of
from dbdp.algorithms.families.preconditioned.momentum import accumulated_noise, last_half
from dbdp.algorithms.families.preconditioned.pair_functions import (
    ALL_FUNCTIONS,
    LEADING,
    LearnedColumns,
    PairProducts,
    cells_of,
    chosen_pairs,
    products_of,
)
from dbdp.algorithms.families.preconditioned.preconditioning import matrix_of
from dbdp.algorithms.families.preconditioned.spline_descent import SplineDescent
from dbdp.algorithms.plan import Released
from dbdp.algorithms.rows import Pace, Progress, Rows, silent
from dbdp.algorithms.stages.product_releases import ComparisonRelease, Flattening, GradientRelease, SeenRows
from dbdp.algorithms.stages.self_evaluation import SelfEvaluation
from dbdp.algorithms.stages.table_noise import GaussianTable
from dbdp.learning.counts import tallies
from dbdp.learning.counts.cut_moments import STEPS
from dbdp.learning.counts.product_sums import LossGap, ProductMoment
from dbdp.learning.objectives import Linear
from dbdp.learning.rows.column_blocks import INDICATOR, RowBlocks
from dbdp.learning.rows.monotone import monotone_models
from dbdp.learning.rows.pairs import weight_of
from dbdp.learning.rows.products import Candidate
from dbdp.privacy.mechanisms import ROOM

# of μ²: the first model of the columns, the gradient in pairs, the second moment with them, the first model with them,
# the calibration of both models, and their comparison; the rest is for the better model
COLUMNS, GRADIENT, MOMENT, PAIRS, CALIBRATION, COMPARISON = 0.12, 0.1, 0.04, 0.1, 0.01, 0.01
FIRST_PASSES, LAST_PASSES = 20, 24  # of each of the first models, and of the better one
ALL_STEPS = 2 * FIRST_PASSES + LAST_PASSES
MOST_EVALUATION = 0.3  # of μ², for the table of scores: more leaves the better model too little
ENOUGH = 2.0  # times the coordinates of the columns: so many dimensions must be affordable
SURE, COST = 2.0, 0.5  # deviations of noise, and losses per dimension and row, by which pairs must be better
LIMIT, OF_A_NUMBER = 1.5, 0.5  # of the difference of a row's losses; of numbers in squares of the labels' width
_SPREAD = 9.0  # a number's squared width for each square of a usual residual


def reserved_for(*, is_classifier: bool) -> float:
    """Return the share of μ² of everything that the choice adds to the steps; numbers need no calibration."""
    return GRADIENT + MOMENT + COMPARISON + CALIBRATION * is_classifier


def coordinates_of(rows_of: RowBlocks) -> int:
    """Return how many coordinates of columns are not the sum of others."""
    return 1 + sum(block.width - (block.kind != INDICATOR) for block in rows_of.blocks)


@dataclass(frozen=True)
class Seen:
    """Rows in coordinates, with what is known of them."""

    rows: SeenRows
    flat: Flattening

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return self.rows.products.count


@dataclass(frozen=True, kw_only=True)
class PairDescent(SplineDescent):
    """The release as it is planned; `passes` are all steps, and `reserved` what other releases of the choice have.

    Proof (privacy.md §24.11). Given all earlier releases, each of these is a Gaussian release of a sum to which a
    record adds a function of itself: the moments (§24.1, §24.4), the labels' counts (§24.6), 64 sums of clipped
    gradients and one in products of pairs (2C, `GradientRelease`), tables of scores or residuals (§21.1, §16.3), and a
    sum of clipped differences of losses (2L, `ComparisonRelease`). Lengths, clips, matrices, and which pairs and which
    model are learned further depend on releases only; the quotients of sensitivity and deviation are public.
    Adaptively composed, they are one Gaussian of μ², the sum of the shares (§13). Each run makes the same passes. ∎
    """

    candidates: Sequence[Candidate]

    @property
    def last_share(self) -> float:
        """The share of μ² for the last steps."""
        return self.steps_share - COLUMNS - PAIRS

    @property
    def averaged(self) -> int:
        """How many of the iterates, the last ones, make up the model."""
        return last_half(LAST_PASSES)

    @property
    def loss(self) -> Any:
        """The loss of one output."""
        if not isinstance(self.objective, Linear):
            raise AssertionError("pairs are chosen for one output")
        return self.objective.loss

    def released(self, rows: Rows, progress: Progress = silent) -> Released:
        """Pack the rows; return the noisy model after a public number of passes."""
        rows.pack()
        found = self.columns.released(rows)
        first, window = self._first(rows, found)
        is_number = not self.facts.is_classifier
        way, variances = additive_preconditioner(self.blocks, found, self.affordable, first, is_number=is_number)
        moments = zip(self.blocks.blocks, found.columns, strict=True)
        bases = [basis_of(*each, found.deviation, is_number=is_number) for each in moments]
        count = len(variances)
        start = np.append(first, np.zeros(count - 1))
        columns = LearnedColumns(self.blocks, bases, way.ridge, way.matrix[:count] * way.scale, start)
        run = _Run(self, rows, replace(way, window=window), Pace(progress, self._passes_before - 1, self._all_passes))
        return run.released(columns)

    @property
    def _passes_before(self) -> int:
        return 2 + 2 * bool(self.label_share)

    @property
    def _all_passes(self) -> int:
        after = 2 * bool(self.residual_share) + bool(self.evaluation_share)
        return self._passes_before + ALL_STEPS + 3 + 2 * self.facts.is_classifier + after

    def _described_before(self) -> dict[str, Any]:
        shares = {"gradient": GRADIENT, "moment": MOMENT, "comparison": COMPARISON}
        shares |= {"calibration": CALIBRATION} if self.facts.is_classifier else {}
        steps = {"columns": COLUMNS, "pairs": PAIRS, "better": self.last_share}
        return super()._described_before() | {"pair_choice": {"candidates": len(self.candidates), **shares, **steps}}

    def multiplier_of(self, share: float) -> float:
        """Return the multiplier of a release with that share of μ²."""
        return self._multiplier_of(share)


@dataclass(frozen=True)
class _Run:
    """A run on packed rows."""

    plan: PairDescent
    rows: Rows
    way: AdditivePreconditioner
    pace: Pace

    def released(self, columns: LearnedColumns) -> Released:
        """Return the model of the better of both branches."""
        plan = self.plan
        alone = products_of(columns, [], 0)
        seen = self._seen(alone, columns.variances, plan.cross_share)
        before, _ = self._descended(seen, columns.model, COLUMNS, FIRST_PASSES)
        columns = replace(columns, model=before)
        chosen = self._chosen(columns)
        products = products_of(columns, chosen, ALL_FUNCTIONS)
        both = self._seen(products, np.concatenate([columns.variances, products.variances]), MOMENT)
        start = np.append(before, np.zeros(len(products.of)))
        paired, _ = self._descended(both, start, PAIRS, FIRST_PASSES)
        is_better = self._is_better(both, np.vstack([start, paired])) and bool(chosen)
        better, begun = (both, paired) if is_better else (seen, before)
        bound = self._bound(better, begun)
        model, noise = self._descended(better, begun, plan.last_share, LAST_PASSES)
        if not is_better:
            part = COLUMNS / (COLUMNS + plan.last_share)
            model, chosen, products = part * before + (1 - part) * model, [], alone
        released = self._in_rows(better, products, chosen, model, noise)
        return self._evaluated(better, model, released, bound)

    def _seen(self, products: PairProducts, variances: np.ndarray, share: float) -> Seen:
        """Return the rows in coordinates, of which a second moment is released now."""
        rows, count = SeenRows(self.rows, products.rows), len(variances)
        length = LONGEST * math.sqrt(variances.sum())
        multiplier = self.plan.multiplier_of(share)
        public = self.plan.facts.rows
        release = CutMomentRelease(public, count, length, multiplier, self.plan.blocks)
        described = tallies.described(ProductMoment(length), outputs=1, dimension=count)
        noisy = release.noise.release(rows.tally(np.zeros(0), described) / STEPS * release.weights)
        self.pace()
        found = matrix_of(noisy, count) / public * length**2 - np.diag(variances)
        return Seen(rows, Flattening(*spread_of(found, variances, release.spectral_edge * length**2)))

    def _descended(self, seen: Seen, start: np.ndarray, share: float, passes: int) -> tuple[np.ndarray, float]:
        """Return the mean of the last half of the iterates, and the deviation of its noise in Wz."""
        multiplier = self.plan.multiplier_of(share) * math.sqrt(passes) * ROOM
        release = GradientRelease(self.plan.facts.rows, seen.width, multiplier)
        clip = self.plan.clip * self.way.window.width * math.sqrt(seen.flat.dimension)
        step, averaged = self.plan.step_size / self.plan.facts.rows, last_half(passes)
        model, moved, total = start, np.zeros(seen.width), np.zeros(seen.width)
        for done in range(passes):
            gradient = release.released(seen.rows, model, clip, self.plan.loss, seen.flat)
            moved = self.plan.momentum * moved - step * seen.flat.shorter @ gradient
            model = model + moved
            if done >= passes - averaged:
                total += model
            self.pace()
        accumulated = accumulated_noise(passes, averaged, self.plan.momentum)
        return total / averaged, step * clip * release.noise.noise_scale * accumulated

    def _chosen(self, columns: LearnedColumns) -> list[Candidate]:
        """Return the pairs that a noisy gradient in a few products of each shows."""
        few = products_of(columns, self.plan.candidates, LEADING)
        clip = self.plan.clip * self.way.window.width * math.sqrt(few.variances.sum())
        release = GradientRelease(self.plan.facts.rows, len(few.of), self.plan.multiplier_of(GRADIENT))
        model = np.append(columns.model, np.zeros(len(few.of)))
        noisy = release.released(SeenRows(self.rows, few.rows), model, clip, self.plan.loss)
        self.pace()
        left = self.plan.affordable - columns.variances.sum()
        return chosen_pairs(columns, self.plan.candidates, few, noisy, release.noise.noise_scale * clip, left)

    def _is_better(self, seen: Seen, models: np.ndarray) -> bool:
        """Return whether the second model is clearly better than the first one."""
        release = ComparisonRelease(self.plan.multiplier_of(COMPARISON))
        limit, cost, offsets, slopes = LIMIT, COST, [0.0, 0.0], [1.0, 1.0]
        if self.plan.facts.is_classifier:
            found = [self._table(seen, model, CALIBRATION / 2).calibration(has_offset=True) for model in models]
            offsets, slopes = [float(each.shifts[0]) for each in found], [each.slope for each in found]
        else:
            limit, cost = OF_A_NUMBER * self.way.window.width**2, COST * self.way.window.width**2 / _SPREAD
        gap = LossGap(limit, tuple(offsets), tuple(slopes), not self.plan.facts.is_classifier)  # type: ignore[arg-type]
        gain = release.released(seen.rows, models, gap) * limit
        self.pace()
        return gain > SURE * release.noise.noise_scale * limit + cost * seen.flat.dimension

    def _table(self, seen: Seen, model: np.ndarray, share: float) -> Any:
        noise = GaussianTable(1, self.plan.multiplier_of(share))
        table = SelfEvaluation(1, seen.width, softmax=False, noise=noise).table(seen.rows, model[None])  # type: ignore[arg-type]
        self.pace()
        return table

    def _bound(self, seen: Seen, model: np.ndarray) -> float:
        """Return the residuals' bound of a label that is a number, which is released now."""
        if (residuals := self.plan.residuals) is None:
            return 0.0
        table = residuals.table(seen.rows, model)  # type: ignore[arg-type]
        self.pace()
        return table.bound

    def _in_rows(
        self, seen: Seen, products: PairProducts, chosen: Sequence[Candidate], model: np.ndarray, noise: float
    ) -> Released:
        """Return the model over packed rows that have the chosen pairs' cells."""
        count, blocks = len(products.rows.matrix), self.plan.blocks
        own = model[None, :count] @ products.rows.matrix
        of_moments = moment_root(blocks, self.way, own, noise * self.way.scale, LAST_PASSES)
        kept = monotone_models(own, blocks, self.way.shares)
        root = noise * seen.flat.shorter
        figures = {"effective_dimension": seen.flat.dimension, "chosen_pairs": len(chosen)}
        figures["clip_norm"] = self.plan.clip * self.way.window.width * math.sqrt(seen.flat.dimension)
        names = tuple(pair.names for pair in chosen)
        models = _with_cells(blocks.radius, kept, products, chosen, model[None, count:])
        steps = _with_cells(blocks.radius, root[:, :count] @ products.rows.matrix, products, chosen, root[:, count:])
        nothing = np.zeros((len(of_moments), len(products.of)))
        return Released(
            models,
            figures,
            np.vstack([steps, _with_cells(blocks.radius, of_moments, products, chosen, nothing)]),
            names,
        )

    def _evaluated(self, seen: Seen, model: np.ndarray, released: Released, bound: float) -> Released:
        """Return the release with figures of itself, of classes calibrated."""
        if (residuals := self.plan.residuals) is not None:
            found = residuals.evaluation(seen.rows, model, bound, self.way.window)  # type: ignore[arg-type]
            self.pace()
            return replace(released, figures={**released.figures, "evaluation": found})
        if (evaluation := self.plan.evaluation) is None:
            return released
        table = evaluation.table(seen.rows, model[None])  # type: ignore[arg-type]
        self.pace()
        radius = math.hypot(self.plan.blocks.radius, bool(released.chosen))
        return evaluation.described(table, released, 1 / radius)


def _with_cells(
    radius: float, models: np.ndarray, products: PairProducts, chosen: Sequence[Candidate], weights: np.ndarray
) -> np.ndarray:
    """Return models over rows with the cells of pairs, from those over rows without (k, d) and of products (k, m).

    All pairs together lengthen a row's square by 1, see `weight_of`.
    """
    if not chosen:
        return models
    longer = math.hypot(radius, 1.0)
    inner, last = models[:, :-1] * (longer / radius), models[:, -1:] * (longer / radius)
    return np.hstack([inner, weights @ cells_of(products, chosen) * (longer / weight_of(len(chosen))), last])
