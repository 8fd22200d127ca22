"""Noisy sums over the rows, for algorithms that choose steps by noisy gradients and losses.

privacy.md §8, §9, §14.8. Neighbours are replace-one. Gaussian noise on a grid is added to a sum of
clipped gradients; sums of clipped losses are only compared, by a private selection. The regulariser depends on
no row and is added outside, at no cost. Shapes: a model is (P,), candidates are (C, P).
"""

import math
from dataclasses import dataclass

import numpy as np

from dbdp.algorithms.plan import Facts, Request
from dbdp.algorithms.rows import Rows
from dbdp.checks import between
from dbdp.learning import kernels
from dbdp.learning.compiled.sums import PIECE
from dbdp.learning.losses import LARGEST, SMALLEST
from dbdp.learning.objectives import Linear, Objective, Softmax
from dbdp.learning.rows import blocks
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.learning.second_moments import LONG, NARROW
from dbdp.privacy.accounting.events import GaussianDpEvent, Release
from dbdp.privacy.mechanisms import ROOM, Gaussian, covered_sensitivity, grid_for

UNIT = 2.0**-53  # u, the relative error of one operation
EXTENDED = 2.0**-64  # of one operation of long double, at most
PLACED = 2.0**-32
NETWORK_CLIP = 1.0  # a network's gradients have no public bound: a usual value for rows of norm at most 1


def lipschitz_of(objective: Objective) -> float:
    """Return L: a row's loss changes by at most L‖w - w'‖ between two models; infinity if no bound is known.

    Proof. A row has ‖x‖ ≤ 1, and the slope of class c is at most s_c: the weight ω for the class of a
    positive row, else 1. Σ_c s_c|⟨w_c - w'_c, x⟩| ≤ √(Σ_c s_c²)‖w - w'‖, and a record is positive for
    one class at most: Σ_c s_c² ≤ max(1, ω²) + K - 1. The gradient's norm has the same bound. Softmax has the slopes
    p - e_y: ‖p - e_y‖² = Σ_{c ≠ y} p_c² + (1 - p_y)² ≤ 2(1 - p_y)² ≤ 2.
    """
    if isinstance(objective, Softmax):
        return math.sqrt(2) * ROOM
    if not isinstance(objective, Linear):
        return math.inf
    if objective.outputs == 1:
        return objective.loss.lipschitz
    return math.sqrt(objective.loss.lipschitz**2 + objective.outputs - 1) * ROOM


def clip_of(request: Request, objective: Objective) -> float:
    """Return C, the largest norm of a row's gradient; by default that of one linear model, which clips none of its own.

    K linear models have one clip together, of their concatenated gradients (privacy.md §16.4): where a row's slopes are
    as large as they may be it is √K times too long, but with noise for one model instead of √K as much they learn more.
    """
    if request.clip_norm is not None:
        between("clip_norm", request.clip_norm, SMALLEST, LARGEST)
        return float(request.clip_norm)
    return objective.loss.lipschitz if isinstance(objective, Linear) else NETWORK_CLIP


def models_worth(objective: Objective, facts: Facts) -> float:
    """Return the factor by which a row's loss may exceed a binary model's: the losses of K linear models add up.

    A network of K classes begins with a loss of about ln K: the papers' clip of 3 suits ten classes.
    """
    if isinstance(objective, Linear):
        return max(1.0, objective.loss.positive_weight) + objective.outputs - 1
    return max(1.0, math.log10(facts.outputs))


@dataclass(frozen=True)
class Summed:
    """How a sum over rows is computed: of b terms, `rows`, each of which passes through at most `depth` additions."""

    rows: int
    depth: int

    @classmethod
    def together(cls, rows: int) -> "Summed":
        """Return a sum of so many terms in any order."""
        return cls(rows, rows)

    @classmethod
    def of_whole_numbers(cls, rows: int) -> "Summed":
        """Return a sum of whole numbers, which has no error; that of what is computed from it is 3u of itself."""
        return cls(rows, 0)

    @classmethod
    def of_objective(cls, rows: int, objective: Objective) -> "Summed":
        """Return a sum of gradients or losses over packed rows: of linear models as a tree within a block."""
        if isinstance(objective, (Linear, Softmax)):
            return cls.in_tree(rows)
        return cls.by_blocks(rows, objective.inputs)

    @classmethod
    def in_tree(cls, rows: int) -> "Summed":
        """Return a sum of 64 terms in any order, of pairs of such sums, pairs of these, …, in blocks of a MiB.

        Proof of its depth (privacy.md §14.8). A block has at most 2¹⁵ rows, and 2⁹ such sums: 64 + 2·9 + 1. Of blocks a
        few are added, and then these, each with the errors of the additions: by `sums.with_part` both err by 2u of all
        that is added, as four additions do, up to 2²⁶ of them. ∎
        """
        return cls(rows, min(rows, PIECE + 2 * 9 + 1 + 4))

    @classmethod
    def by_blocks(cls, rows: int, inputs: int) -> "Summed":
        """Return a sum over packed rows of so many coordinates: in any order within a block, then as `in_tree`."""
        return cls(rows, min(rows, blocks.rows_per_block(inputs) + 4))

    @classmethod
    def of_moment(cls, rows: int, coordinates: int) -> "Summed":
        """Return a sum of products of so many coordinates, see `second_moments.SecondMoment`.

        Proof of the depth of wide ones. LONG products in any order, then as many sums as LONG rows in a reference. ∎
        """
        if coordinates <= NARROW:
            return cls.in_tree(rows)
        return cls(rows, min(rows, LONG + blocks.rows_per_reference(coordinates) // LONG + 1 + 4))

    @classmethod
    def by_mini_batch(cls, rows: int, objective: Objective) -> "Summed":
        """Return the sum of a mini-batch in a scan with noise in every update: see `kernels.depth_of_sum`."""
        in_pieces = isinstance(objective, (Linear, Softmax))
        return cls(rows, kernels.depth_of_sum(rows, objective.inputs, in_pieces=in_pieces))

    def error(self, norm: float) -> float:
        """Return 2.02(D + 5)u·b·norm, D the depth: a bound on the errors of two such sums of terms of that norm.

        Proof (privacy.md §14.8). A sum errs by at most γ_D times the sum of the terms' norms (Higham 2002, (4.4)). ∎
        """
        return 2.02 * (self.depth + 5) * UNIT * self.rows * norm


# --- gradients ------------------------------------------------------------------------------------------


def replaced_sensitivity(clip: float, summed: Summed, *, evaluated: float = 0.0) -> float:
    """Return 2C with its margin: a bound on the change of a computed sum over all rows by one replaced record.

    Proof (§14.2, §14.8). The iterate is the same in both worlds, and a computed summand depends on it and on its row
    only, with norm at most C. Two sums of b of them err by `Summed.error`. Where a computed summand may vary with its
    place, all b of them may, by twice their error, `evaluated`.
    """
    return (2 * clip + summed.error(clip) + 2 * summed.rows * evaluated) * ROOM


def measured_sensitivity(
    clip: float, largest: float, rows: int, dimension: int, *, rows_of: RowBlocks | None = None
) -> float:
    """Return 2C with its margin, for a sum of c_i ⊗ Mx_i over n rows that is computed as (Σc_i ⊗ x_i)Mᵀ.

    Given ‖c_i‖‖Mx_i‖ ≤ C as real numbers, ‖c_i‖ ≤ L = `largest`, ‖x_i‖ ≤ 1, ‖M‖ ≤ 1. Proof (privacy.md §14.2, §14.8).
    The iterate and M are the same in both worlds: the exact sums move by 2C. The sums err by `Summed.error`, and M
    makes that no longer. The last product errs by γ_d·‖M‖_F·nL, of numbers of 64 bits, and is rounded, in both:
    2.02(d√d·2⁻⁶⁴ + u)nL. ∎

    In places (privacy.md §24.10) the sums are of the parts of cells, ≥ 0 and of length ≤ 1 in each block. They err by
    as much in each, and their coordinates by at most √2·size/radius times that, Σ size² ≤ radius²: √2 times as much.
    In rows that are divided by their own norm, coordinates that are parts times a size err as in dense rows, and each
    of ℓ lines by √2 times as much, since both of its parts may be as long as the row: √2·(1 + √ℓ) in all.
    """
    summed = Summed.by_blocks(rows, rows_of.places) if rows_of else Summed.in_tree(rows)
    error = summed.error(largest) + 2.02 * (dimension**1.5 * EXTENDED + UNIT) * rows * largest
    lines = rows_of.lines if rows_of and rows_of.is_unit else 0
    return (2 * clip + (2 + 2 * math.sqrt(lines) if rows_of else 1) * error) * ROOM


def sampled_sensitivity(clip: float, summed: Summed, *, evaluated: float = 0.0) -> float:
    """Return C with its margin: a bound on the change of a Poisson mini-batch's computed sum by one record.

    Proof. Given the other records of the batch, the sums of neighbours lie within this distance of the
    computed sum without the record, which is the same in both worlds: at worst on opposite sides of it, as
    `PoissonGaussianDpEvent` assumes. The margin is that of `replaced_sensitivity`; b is M, the public number of rows
    to which a batch is padded or cut: what cutting leaks is charged (privacy.md §14.8, §10.8). Without the record those
    behind it have other places. ∎
    """
    return (clip + summed.error(clip) + 2 * summed.rows * evaluated) * ROOM


def gradient_error(objective: Objective, model: np.ndarray, clip: float) -> float:
    """Return a bound on the error of a row's computed gradient, whatever its place; for a network an *assumed* one.

    No bound is known for a network: 2⁻³²C is assumed, and a test observes less than 2⁻⁴⁰C.

    Proof (§14.2). A score errs by γ_d·W, W ≥ ‖w‖, its slope by β times that and c_ℓu for the scalar code, in
    each of K models; the products add less than (d + 8)u·L. A clipped row has ‖x‖ ≥ C/L; its ‖x‖² may be computed
    as a sum less the label's 1, within (d + 8)u, so that the clipped gradient errs by (d + 8)u·C(L/C)² more.
    """
    if not isinstance(objective, Linear):
        return PLACED * clip
    loss, outputs, inputs = objective.loss, objective.outputs, objective.inputs
    slopes = inputs * loss.smoothness * _norm(model[None]) + loss.scalar_error * math.sqrt(outputs)
    largest = lipschitz_of(objective)
    return 1.01 * UNIT * (slopes + (inputs + 8) * largest * (1 + max(1.0, largest / clip)))


def gaussian_sum(sensitivity: float, parameters: int, *, multiplier: float) -> Gaussian:
    """Return noise of standard deviation `multiplier` × Δ*, where Δ* = Δ + g√P covers the grid too (§14.8).

    Only its event is used for accounting; no finite ε is claimed for one sum alone.
    """
    grid = grid_for(sensitivity, parameters, multiplier)
    covered = covered_sensitivity(sensitivity, parameters, grid)
    alone = Release(GaussianDpEvent(multiplier), math.inf, 0.0)
    return Gaussian.with_scale(sensitivity=covered, grid=grid, noise_scale=covered * multiplier * ROOM, guarantee=alone)


def multiplier_of_rho(rho: float) -> float:
    """Return σ/Δ* at which a Gaussian sum is ρ-zCDP: ρ = Δ*²/2σ² (§2)."""
    return math.sqrt(0.5 / rho) * ROOM


def noisy_gradient_sum(
    rows: Rows, objective: Objective, model: np.ndarray, *, clip: float, noise: Gaussian, batch: int | None = None
) -> np.ndarray:
    """Return the noisy sum of the clipped gradients at a model, shape (P,); the exact sum is not returned."""
    return noise.release(rows.gradient_sum(objective, model, clip=clip, batch=batch))


# --- losses ---------------------------------------------------------------------------------------------


def compared_sensitivity(
    limit: float, summed: Summed, *, spread: float = math.inf, added: float = 0.0, evaluated: float = 0.0
) -> float:
    """Return s: replacing one record moves the difference of two candidates' sums of losses by at most 2s.

    So the exponential mechanism and a noisy minimum may take every sum to move by at most s, since both
    depend on differences only. Proof. A loss lies in [0, limit], so a sum moves by at most `limit`, in any
    direction (§8: under replace-one the sums are not monotone), and the difference of two by at most twice
    that. If no row's losses differ by more than `spread` among the candidates, the difference of two sums,
    Σ(ℓ_i - ℓ_j), moves by at most 2·spread. A sum of b losses, plus a public term of at most `added`, errs by
    e ≤ 1.01u((D + 5)b·limit + added), D its depth, and four sums are computed: 4e. A record *in* a Poisson
    batch, against none there, moves the difference by min(limit, spread) + 4e ≤ s: half as far; and it moves
    others to other places, where their losses have new errors, each at most `evaluated`: four times b of that.
    """
    margin = 2 * (summed.error(limit) + 2.02 * UNIT * added) + 4 * summed.rows * evaluated
    return (min(limit, spread) + margin) * ROOM


def spread_of(objective: Objective, candidates: np.ndarray) -> float:
    """Return a bound on the differences of one row's computed losses among candidates; infinity if none is known.

    Proof. Candidates lie in a box of diagonal D, so the exact losses differ by at most LD; and two losses err.
    """
    if not isinstance(objective, Linear):
        return math.inf
    diagonal = _norm(np.ptp(candidates, axis=0)[None])
    return lipschitz_of(objective) * diagonal + 2 * loss_error(objective, candidates)


def loss_error(objective: Objective, candidates: np.ndarray) -> float:
    """Return a bound on the error of a row's computed loss; 0 for a network, for which none is known.

    Proof (§14.2). A score errs by γ_d·W, W ≥ ‖w‖, and the loss by L times that; a label or margin 1 next to the
    score, K terms and the scalar code (16u, log(1 + exp) within 10u) add (K + 16)u·L(W + √K).
    """
    if not isinstance(objective, Linear):
        return 0.0
    operations = objective.inputs + objective.outputs + 16
    size = _norm(candidates) + math.sqrt(objective.outputs)
    return 1.01 * UNIT * operations * lipschitz_of(objective) * size


def penalties(candidates: np.ndarray, regularisation: float, rows: float) -> np.ndarray:
    """Return rows·λ/2·‖w‖² of each candidate, shape (C,): the public part of the regularised sum of losses."""
    return 0.5 * regularisation * rows * np.einsum("ij,ij->i", candidates, candidates)


def _norm(vectors: np.ndarray) -> float:
    """Return the largest norm of some vectors, rounded up."""
    room = 1 + (vectors.shape[1] + 10) * UNIT
    return float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors).max())) * room
