"""Sensitivity of permuted mini-batch SGD: how far one replaced record can move the model.

The exact recursion of privacy.md §1.2 in O(T), with the numerical margins of §14. Neighbours are
replace-one. Shapes: step sizes (T,), one for each update, T = epochs × ⌈rows / batch_size⌉.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import pairwise

import numpy as np

UNIT_ROUNDOFF = 2.0**-53
FLUSHED = 2.0**-960  # bounds the error of one update that comes from treating numbers below 2⁻¹⁰²² as 0
REUSED, FRESH = "reused", "fresh"  # the permutation of each epoch
MAX_POSITIONS = 10**7  # 80 MB of sensitivities; calibrating noise to them needs a gigabyte for a moment
MAX_UPDATES = 5 * 10**8  # half a minute of arithmetic, and Tu ≤ 10⁻⁷ (§14.3)
_UP = 1 + 2.0**-50  # exceeds the rounding of two products
_CLOSE = 1e-4  # of D(R)
_LEAST_BALL, _LARGEST_BALL = 0.5, 30.0  # below, D is within 3 % of 1; above, of 2
_PIECE = 1 << 15  # updates processed at once: they stay in the processor's cache
_REMEMBERED = 16  # groups of updates that are computed once for both walks: 8 MB


def pause() -> None:
    """Do nothing; called after every piece, so that a server can replace it with a check for cancellation."""


@dataclass(frozen=True)
class Training:
    """The public facts that determine the sensitivity of a training."""

    # rows, dimension: n and d.
    rows: int
    dimension: int
    # batch_size, epochs: rows of a mini-batch, passes over the data.
    batch_size: int
    epochs: int
    # `step_sizes(first, count)` returns the step sizes of updates first, …, counted from 1, shape (count,).
    step_sizes: Callable[[int, int], np.ndarray]
    # lipschitz, smoothness: constants of the loss without the regulariser, for ‖x‖₂ ≤ 1.
    lipschitz: float
    smoothness: float
    regularisation: float  # λ of (λ/2)‖w‖²
    scalar_error: float  # error of the computed derivative of the loss, in units of 2⁻⁵³
    permutation: str = REUSED  # REUSED in every epoch, or FRESH in each
    # The result is the mean of the iterates from this update on (the first of an epoch); 0: the last iterate.
    averaged_from: int = 0
    # After this many updates (complete epochs) the model becomes the mean of the iterates since the last restart; 0:
    # never.
    restart_every: int = 0
    radius: float = math.inf  # the model is projected onto ‖w‖₂ ≤ radius after every update
    # Bound on the distance between the gradients of two records at one iterate, where it is below 2L.
    difference: float = math.inf
    # Operations through which a gradient passes in a mini-batch's sum, and a product in a score or a norm; 0: as many
    # as in any order.
    depth: int = 0
    score_depth: int = 0

    @property
    def batches(self) -> int:
        """Mini-batches of one epoch, N = ⌈rows / batch_size⌉; the last may be short."""
        return -(-self.rows // self.batch_size)

    @property
    def updates(self) -> int:
        """Updates of all epochs, T."""
        return self.epochs * self.batches

    @property
    def shares(self) -> np.ndarray:
        """P(record in mini-batch j) of a uniform permutation, shape (batches,)."""
        shares = np.full(self.batches, self.batch_size / self.rows)
        shares[-1] = (self.rows - (self.batches - 1) * self.batch_size) / self.rows
        return shares


@dataclass(frozen=True)
class Sensitivity:
    """An upper bound on ‖w - w'‖₂ for neighbours: `exact` in real arithmetic, plus a `margin` for rounding.

    `by_position`, if computed, is the exact bound for each mini-batch that may contain the record, shape (N,).
    """

    exact: float
    margin: float
    by_position: np.ndarray | None = None

    @property
    def total(self) -> float:
        """The bound with its margin, rounded up, which noise must cover."""
        return math.nextafter(self.exact + self.margin, math.inf)

    def joint(self, exact: float, margin: float) -> "Sensitivity":
        """Return the sensitivity multiplied by a factor for the exact bound and one for the margin."""
        positions = None if self.by_position is None else self.by_position * exact
        return Sensitivity(self.exact * exact, self.margin * margin, positions)

    def of_units(self, rows: int) -> "Sensitivity":
        """Return the sensitivity for units of r records: rΔ, by a chain of r neighbours (§11.6).

        The records of a unit are in several positions, so that a mixture over one position does not cover them.
        """
        return self if rows == 1 else Sensitivity(self.exact * rows * _UP, self.margin * rows * _UP)


def sgd_sensitivity(training: Training, *, by_position: bool = False) -> Sensitivity:
    """Return the sensitivity of mini-batch SGD over a permutation that is independent of the values.

    privacy.md §1.2. A record in mini-batch j of every epoch moves the result by at most
    Δ_j = Σ_p c_{pN+j}, with c_t = (2Lη_t / b) V_t, where V_t bounds the change of the result per change of w_t;
    Δ = max_j Δ_j. With a fresh permutation in each epoch its position may change each time:
    Δ = Σ_p max_j c_{pN+j}. For the last iterate V_t = Π_{s>t} ρ_s; for a mean Σ a_t w_t,
    V_t = a_t + ρ_{t+1} V_{t+1}.

    Proof. One update is ρ-Lipschitz in w with ρ = max(|1 - ηγ|, |1 - ηβ|) for γ-strongly convex,
    β-smooth losses (Lemma A, §1.1); so is a projection, with 1. Where the mini-batches differ in one
    record, add and subtract the other mini-batch's update at w': the regulariser cancels and what
    remains is at most ρ‖w - w'‖ + (η/b)‖∇φ(w'; z) - ∇φ(w'; z')‖ ≤ ρ‖w - w'‖ + 2ηL/b (Lemma B).
    Unrolled over the T updates, and by the triangle inequality over a mean, this is Δ_j. It holds
    for every permutation, so also for a random one. Iterates in a ball may have a `difference` below 2L in its place
    (`logistic_difference`). A last mini-batch of s < b rows is divided by b
    as well (§1.4, layout A): additive term 2ηL/b, smoothness β_φ s/b + λ.

    The updates are processed in pieces, of which a few are in memory at a time, and a few numbers for each.

    Raise ValueError if an assumption of the proof does not hold: a step size above 2/β, or too many updates.
    """
    _check(training, by_position)
    return _moved(training, _groups(training), None, by_position)


def sharded_sensitivity(shards: Sequence[Training], *, each_epoch: bool) -> Sensitivity:
    """Return the sensitivity of the mean of models trained on disjoint shards, weighted by their rows.

    privacy.md §1.6. The shards' sizes are public and their members chosen without the values.
    Proof. The record is in one shard p. Averaging once, the mean moves by α_p Δ^(p). Averaging each
    epoch and going on from the mean, the other shards contract the common start by their own
    products: δ_{e+1} = R_e δ_e + α_p c_{e,j} with R_e = Σ_q α_q Π_{t in e} ρ_t^(q), where c_{e,j}
    counts to the end of its own epoch only. The maximum over p and j is the sensitivity. All shards err
    in their arithmetic: Σ_p α_p of their margins is at most the largest; a mean of P models errs by
    1.01(P + 2)uW, and the last one is counted once more.

    Raise ValueError as for `sgd_sensitivity`, or if shards averaged in each epoch also average iterates.
    """
    kinds = list({shard.rows: shard for shard in shards}.values())
    for kind in kinds:
        _check(kind, by_position=False)
        if each_epoch and (kind.averaged_from or kind.restart_every):
            raise ValueError(
                "shards averaged in each epoch cannot average iterates too; average shards once, or leave averaging out"
            )
    rows = sum(shard.rows for shard in shards)
    weights = np.array([kind.rows * sum(shard.rows == kind.rows for shard in shards) / rows for kind in kinds])
    contraction, stretch = np.array([_epochs(kind) for kind in kinds]).swapaxes(0, 1)
    retained = _products_after((weights[:, None] * contraction).sum(axis=0))
    reached = np.append(0.0, np.cumsum(stretch.max(axis=0)))
    common = _Common(retained, reached[:-1]) if each_epoch else None
    moved = [
        _moved(kind, _groups(kind, alone=each_epoch), common, by_position=False).joint(kind.rows / rows, 1.0)
        for kind in kinds
    ]
    terms = (len(shards) + 2) * (float(retained.sum()) + 1 if each_epoch else 1.0)
    means = _means_error(shards[0], terms, reached[-1])
    return Sensitivity(max(each.exact for each in moved), max(each.margin for each in moved) + means)


@lru_cache(maxsize=64)
def logistic_difference(radius: float) -> float:
    """Return D(R) < 2, rounded up: gradients of the logistic loss at one ‖w‖ ≤ R differ by no more (§1.7).

    They are -s(⟨w, v⟩)v, v = yx, ‖v‖ ≤ 1, s(u) = 1/(1 + e^u). Proof. Given a = s(⟨w, v⟩) and b = s(⟨w, v'⟩) the
    distance is largest where the parts across w are opposite and as long as may be: ‖v‖ = ‖v'‖ = 1, in a plane with w,
    at angles t and u on either side of it; F = a² + b² - 2ab cos ψ, ψ = t + u. Where cos ψ ≥ 0, F ≤ 2s(-R)². Else F
    rises in a and b: while ‖w‖ < R, w may move along -(v + v'), and ⟨w, v⟩, ⟨w, v'⟩ fall by 1 + cos ψ alike. So
    a = s(R cos t), b = s(R cos u). Each gradient moves by at most K = √(1 + R²/16) per radian: in a square of
    [0, π]² of half-width h, √F is at most 2Kh above its value in the middle. Squares that stay below the largest value
    are dropped, all others split, until 2Kh is below `_CLOSE`; one of t ≤ u and t ≥ u suffices. ∎ Values err by < 10⁻⁹.
    """
    reach = max(radius * (1 + 1e-6), _LEAST_BALL)  # the computed iterates may be that far outside
    if reach > _LARGEST_BALL:
        return 2.0
    moving, half = math.sqrt(1 + reach * reach / 16), math.pi / 2
    middles, corners = np.full((1, 2), half), np.indices((2, 2)).reshape(2, 4).T - 0.5
    while True:
        half /= 2
        middles = (middles[:, None] + 2 * half * corners).reshape(-1, 2)
        slopes, slack = 1 / (1 + np.exp(reach * np.cos(middles))), 2 * moving * half
        mixed = 2 * slopes.prod(axis=1) * np.cos(middles.sum(axis=1))
        values = np.sqrt(np.maximum((slopes * slopes).sum(axis=1) - mixed, 0.0))
        if slack < _CLOSE:
            return max(float(values.max()) + slack, math.sqrt(2) / (1 + math.exp(-reach))) + 1e-9
        near = values + slack >= values.max()
        middles = middles[near & (middles[:, 0] <= middles[:, 1] + 2 * half)]


@dataclass(frozen=True)
class _Group:
    """Consecutive updates: mini-batches first, …, last - 1 of some epochs; all of them if epochs > 1."""

    epoch: int
    epochs: int
    first: int
    last: int


@dataclass(frozen=True)
class _Carried:
    """Change of the result per change of a group's last iterate, through later updates, and of each iterate."""

    gain: float
    weight: float


@dataclass(frozen=True)
class _Common:
    """Common values of shards that are averaged in each epoch; shapes (epochs,)."""

    retained: np.ndarray  # change of the result per change of the model at the end of each epoch
    before: np.ndarray  # Σ η of all earlier epochs, each in the shard where it is largest


def _groups(training: Training, *, alone: bool = False) -> np.ndarray:
    """Return the updates in groups of about _PIECE: complete epochs, or parts of one, shape (rows, parts).

    No group crosses a restart or the beginning of a mean; with `alone` none crosses an epoch's end.
    """
    batches = training.batches
    together = 1 if alone else max(1, _PIECE // batches)
    period = training.restart_every // batches or training.epochs
    cuts = {*range(0, training.epochs, period), max(0, training.averaged_from - 1) // batches, training.epochs}
    ends = sorted(cuts)
    epochs = [
        (epoch, min(together, end - epoch)) for begin, end in pairwise(ends) for epoch in range(begin, end, together)
    ]
    parts = [(first, min(first + _PIECE, batches)) for first in range(0, batches, _PIECE)]
    groups = np.empty((len(epochs), len(parts)), object)
    for row, (epoch, count) in enumerate(epochs):
        for column, (first, last) in enumerate(parts):
            groups[row, column] = _Group(epoch, count, first, last)
    return groups


def _check(training: Training, by_position: bool) -> None:
    batches, first, period = training.batches, training.averaged_from, training.restart_every
    if period % batches or (first and ((first - 1) % batches or first > training.updates or period)):
        raise ValueError(
            f"the mean from update {first} on, or of every {period} updates, is not over complete epochs of {batches}; "
            "choose one of the two, and the first update of an epoch or a multiple of its updates"
        )
    if training.updates > MAX_UPDATES:
        raise ValueError(
            f"{training.updates} updates are more than {MAX_UPDATES}, the most for which it is computed; "
            "choose fewer epochs or a larger batch_size"
        )
    if by_position and training.batches > MAX_POSITIONS:
        raise ValueError(
            f"{training.batches} mini-batches are more than {MAX_POSITIONS}, the most that are stored; "
            "choose a larger batch_size or calibration 'worst_position'"
        )
    if by_position and training.permutation == FRESH:
        raise ValueError(
            "a fresh permutation in each epoch has no sensitivity by position; choose permutation 'reused' or "
            "calibration 'worst_position'"
        )


def _moved(training: Training, groups: np.ndarray, common: _Common | None, by_position: bool) -> Sensitivity:
    updates = cache(partial(_updates, training)) if groups.size <= _REMEMBERED else partial(_updates, training)
    carried, before, means = _walk(training, groups, common, updates)
    by_epoch, positions, errors, exact = np.zeros(training.epochs), [], 0.0, 0.0
    for column in range(groups.shape[1]):
        moved: float | np.ndarray = 0.0
        for row in range(groups.shape[0]):
            pause()
            group = groups[row, column]
            steps, expansions = updates(group)
            gains = _gains(expansions, carried[row, column])
            errors += float(np.sum(_errors(training, steps, before[row, column]) * gains))
            shifts = (steps * gains).reshape(group.epochs, -1)
            moved = moved + shifts.sum(axis=0)
            span = slice(group.epoch, group.epoch + group.epochs)
            by_epoch[span] = np.maximum(by_epoch[span], shifts.max(axis=1))
        exact = max(exact, float(np.max(moved)))
        positions += [moved] if by_position else []
    scale = min(2.0 * training.lipschitz, training.difference) / training.batch_size
    exact = scale * (float(by_epoch.sum()) if training.permutation == FRESH else exact)
    each = scale * np.concatenate(positions) if by_position else None
    return Sensitivity(exact, _margin(training, exact, errors, means), each)


def _check_steps(training: Training, steps: np.ndarray) -> None:
    largest, limit = float(steps.max()), 2.0 / (training.smoothness + training.regularisation)
    if not np.isfinite(steps).all() or steps.min() <= 0:
        raise ValueError(f"step sizes must be positive and finite; the smallest is {steps.min():g}")
    if largest > limit:
        raise ValueError(
            f"step size {largest} is above 2/β = {limit}, where updates stop contracting and "
            f"the sensitivity explodes; choose step_size ≤ {limit}"
        )


def _walk(
    training: Training,
    groups: np.ndarray,
    common: _Common | None,
    updates: Callable[[_Group], tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return for every group its `_Carried`, Σ η of all earlier groups, and the rounding error of all means.

    It runs from the last update to the first. Each of the M iterates of a mean has weight 1/M
    of the mean's, and the last iterate has no further weight.
    """
    carried, sums = np.empty(groups.shape, object), np.zeros(groups.shape)
    count = training.updates - training.averaged_from + 1 if training.averaged_from else 0
    gain, weight, terms = (0.0, 1.0 / count, count + 2.0) if count else (1.0, 0.0, 0.0)
    restarted = training.restart_every // training.batches or training.epochs + 1
    for place in reversed(list(np.ndindex(groups.shape))):
        pause()
        group: _Group = groups[place]  # type: ignore[assignment]
        ended = group.epoch + group.epochs
        if group.last == training.batches and common is not None:
            gain = float(common.retained[group.epoch])
        if group.last == training.batches and ended % restarted == 0:
            terms += gain * (training.restart_every + 2)
            gain, weight = 0.0, gain / training.restart_every
        if count and ended * training.batches < training.averaged_from:
            weight = 0.0
        steps, expansions = updates(group)
        _check_steps(training, steps)
        carried[place], sums[place] = _Carried(gain, weight), steps.sum()
        gain *= float(expansions.prod())
        gain += weight * float(expansions[0] * _sums_after(expansions)[0]) if weight else 0.0
    if common is not None:
        return carried, common.before[:, None] + np.cumsum(sums, axis=1) - sums, 0.0
    before = np.cumsum(sums) - sums.ravel()
    return carried, before.reshape(groups.shape), _means_error(training, terms, float(sums.sum()))


def _gains(expansions: np.ndarray, carried: _Carried) -> np.ndarray:
    """Return V_t of a group's updates: V_t = weight + ρ_{t+1} V_{t+1}, and weight + gain for the last."""
    gains = carried.gain * _products_after(expansions)
    return gains + carried.weight * _sums_after(expansions) if carried.weight else gains


def _updates(training: Training, group: _Group) -> tuple[np.ndarray, np.ndarray]:
    """Return η_t and ρ_t (Lemma A, with the 4u of §14.3) of a group's updates."""
    convexity, width = training.regularisation, group.last - group.first
    steps = training.step_sizes(group.epoch * training.batches + group.first + 1, group.epochs * width)
    smoothness = np.full(width, training.smoothness + convexity)
    if group.last == training.batches:
        rows = training.rows - (training.batches - 1) * training.batch_size
        smoothness[-1] = training.smoothness * rows / training.batch_size + convexity
    slowest = np.abs(1.0 - steps.reshape(group.epochs, width) * smoothness).ravel()
    return steps, np.maximum(np.abs(1.0 - steps * convexity), slowest) + 4 * UNIT_ROUNDOFF


def _products_after(expansions: np.ndarray) -> np.ndarray:
    """Return Π_{s>t} of the values for every t: V_t of §1.2."""
    after = np.ones_like(expansions)
    after[:-1] = np.cumprod(expansions[:0:-1])[::-1]
    return after


def _sums_after(expansions: np.ndarray) -> np.ndarray:
    """Return S_t = 1 + ρ_{t+1} S_{t+1}, S = 1 for the last; by doubling, which needs no division."""
    sums, factors, reach = np.ones_like(expansions), np.append(expansions[1:], 0.0), 1
    while reach < len(expansions):
        sums[:-reach] = sums[:-reach] + factors[:-reach] * sums[reach:]
        factors[:-reach] = factors[:-reach] * factors[reach:]
        reach *= 2
    return sums


def _epochs(training: Training) -> tuple[np.ndarray, np.ndarray]:
    """Return Π ρ_t and Σ η_t of each epoch, both of shape (epochs,)."""
    products, sums = np.ones(training.epochs), np.zeros(training.epochs)
    for group in _groups(training, alone=True).ravel():
        pause()
        steps, expansions = _updates(training, group)
        _check_steps(training, steps)
        products[group.epoch] *= expansions.prod()
        sums[group.epoch] += steps.sum()
    return products, sums


def _errors(training: Training, steps: np.ndarray, before: float) -> np.ndarray:
    """Return e_t, a bound on the rounding error of each update, shape (T,) (§14.2).

    Proof. A dot product of depth q, d in any order, errs by ≤ γ_q‖w‖‖x‖, hence the derivative by β_φγ_qW + c_ℓu, the
    batch sum by ≤ γ_D·bL, D its depth, the update by 3uW + 4.1uη(L + λW), as a rounded 1 - ηλ times w. A projection
    adds (q/2 + 3)uW: its norm is the root of a sum of d squares, which errs by ≤ γ_q of itself. Numbers below 2⁻¹⁰²²
    are 0: 2d in a dot product, carried on by ηβ ≤ 2, eight in a slope, by η/h ≤ 4, 2b in each sum, by η/b, eight
    in each coordinate's update: < 2⁻¹⁰²²(4d + 32 + (2η + 8)√d) < 2⁻⁹⁶⁰, as η ≤ 8, d ≤ 2²⁸.
    """
    reach, depth = _reach(training, steps, before), training.score_depth or training.dimension
    projection = depth / 2 + 3 if training.radius < math.inf else 0.0
    gradient = (
        (depth * training.smoothness + 5 * training.regularisation) * reach
        + ((training.depth or training.batch_size) + 5) * training.lipschitz
        + training.scalar_error
    )
    return 1.01 * UNIT_ROUNDOFF * ((4 + projection) * reach + steps * gradient) + FLUSHED


def _reach(training: Training, steps: np.ndarray, before: float) -> np.ndarray:
    """Return W_t ≥ ‖w_t‖ from w = 0: L Σ_{s≤t} η_s, at most L/λ where all ηλ ≤ 1, at most the radius (§14.2).

    A mean is no longer than the longest iterate. For λ ≤ β_φ all ηλ are: η ≤ 2/β was checked.
    """
    convexity, most = training.regularisation, training.radius
    if 0 < convexity <= training.smoothness:
        most = min(most, training.lipschitz / convexity)
    if training.lipschitz * before >= most:  # so are all that follow
        return np.full(len(steps), most * (1 + 1e-9))
    return np.minimum(training.lipschitz * (before + np.cumsum(steps)), most) * (1 + 1e-9)


def _means_error(training: Training, terms: float, steps: float) -> float:
    """Return e_avg of both trajectories: a mean of M iterates errs by 1.01(M + 2)uW in each (§14.2).

    `terms` is Σ (M + 2)·V over the means, `steps` Σ η of all updates, which gives the largest W.
    """
    return 2.02 * UNIT_ROUNDOFF * terms * float(_reach(training, np.zeros(1), steps)[0])


def _margin(training: Training, exact: float, errors: float, means: float) -> float:
    """Return Δ̂·4(T + k + 10)u + 2 Σ_t e_t V_t + e_avg (§14).

    Both trajectories err, and by Lemma A each error enters the result with factor V_t; the recursion itself has only
    sums and products of positive terms.
    """
    recursion = 4 * (training.updates + training.epochs + 10) * UNIT_ROUNDOFF * exact
    return float(recursion + 2.0 * errors * (1 + 1e-9) + means)
