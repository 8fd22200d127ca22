"""Sensitivity of permuted mini-batch SGD: how far one replaced record can move the model.

The exact recursion of privacy.md §1.2 in O(T), with the numerical margins of §14. Neighbours are
replace-one. Shapes: step sizes (T,), one for each update, T = epochs × ⌈rows / batch_size⌉.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

UNIT_ROUNDOFF = 2.0**-53
MAX_UPDATES = 5 * 10**8  # half a minute of arithmetic, and Tu ≤ 10⁻⁷ (§14.3)
_PIECE = 1 << 15  # updates walked at once: they stay in the processor's cache


def pause() -> None:
    """Is called after every piece; a server puts its own look for a cancel here."""


@dataclass(frozen=True)
class Training:
    """The public facts of a training that decide its sensitivity.

    Attributes
    ----------
    rows, dimension : n and d
    batch_size, epochs : rows of a mini-batch, passes over the data
    step_sizes : `step_sizes(first, count)` gives the step sizes of updates first, …, counted from 1
    lipschitz, smoothness : of the data part of the loss alone, for ‖x‖₂ ≤ 1
    regularisation : λ of (λ/2)‖w‖²
    scalar_error : error of the computed derivative of the loss, in units of 2⁻⁵³
    """

    rows: int
    dimension: int
    batch_size: int
    epochs: int
    step_sizes: Callable[[int, int], np.ndarray]
    lipschitz: float
    smoothness: float
    regularisation: float
    scalar_error: float

    @property
    def batches(self) -> int:
        """Mini-batches of one epoch, N = ⌈rows / batch_size⌉; the last may be short."""
        return -(-self.rows // self.batch_size)

    @property
    def updates(self) -> int:
        """Updates of the whole training, T."""
        return self.epochs * self.batches


@dataclass(frozen=True)
class Sensitivity:
    """An upper bound on ‖w - w'‖₂ for neighbours: the exact one and what rounding adds."""

    exact: float
    margin: float

    @property
    def total(self) -> float:
        """What noise must cover, rounded up."""
        return math.nextafter(self.exact + self.margin, math.inf)


def sgd_sensitivity(training: Training) -> Sensitivity:
    """Return the sensitivity of SGD whose permutation is reused in every epoch.

    privacy.md §1.2. A record that sits in mini-batch j of every epoch moves the model by at most
    Δ_j = Σ_p c_{pN+j}, with c_t = (2Lη_t / b) Π_{s>t} ρ_s; Δ = max_j Δ_j.

    Proof. One update is ρ-Lipschitz in w with ρ = max(|1 - ηγ|, |1 - ηβ|) for γ-strongly convex,
    β-smooth losses (Lemma A, §1.1). Where the mini-batches differ in one record, add and subtract
    the other mini-batch's update at w': the regulariser cancels and what remains is at most
    ρ‖w - w'‖ + (η/b)‖∇φ(w'; z) - ∇φ(w'; z')‖ ≤ ρ‖w - w'‖ + 2ηL/b (Lemma B). Unrolled over the T
    updates this is Δ_j. It holds for every permutation, so also for a random one. A last mini-batch
    of s < b rows is divided by b as well (§1.4, layout A): additive term 2ηL/b, smoothness
    β_φ s/b + λ.

    The updates are walked in pieces: memory is a piece, and two numbers for each.

    Raises
    ------
    ValueError
        If an assumption of the proof does not hold: a step size above 2/β, or too many updates.
    """
    _check_updates(training)
    groups = _groups(training)
    after, before = _walk(training, groups)
    exact = errors = 0.0
    for column in range(groups.shape[1]):
        moved: float | np.ndarray = 0.0
        for row in range(groups.shape[0]):
            pause()
            group = groups[row, column]
            steps, expansions = _updates(training, group)
            carried = after[row, column] * _products_after(expansions)
            moved = moved + (steps * carried).reshape(group.epochs, -1).sum(axis=0)
            errors += _errors(training, steps, before[row, column]) @ carried
        exact = max(exact, float(np.max(moved)))
    exact *= 2.0 * training.lipschitz / training.batch_size
    return Sensitivity(exact, _margin(training, exact, errors))


@dataclass(frozen=True)
class _Group:
    """Consecutive updates: mini-batches first, …, last - 1 of some epochs; all of them if epochs > 1."""

    epoch: int
    epochs: int
    first: int
    last: int


def _groups(training: Training) -> np.ndarray:
    """Return the updates in groups of about _PIECE: whole epochs, or parts of one, shape (rows, parts)."""
    batches, together = training.batches, max(1, _PIECE // training.batches)
    parts = [(first, min(first + _PIECE, batches)) for first in range(0, batches, _PIECE)]
    epochs = [(epoch, min(together, training.epochs - epoch)) for epoch in range(0, training.epochs, together)]
    groups = np.empty((len(epochs), len(parts)), object)
    for row, (epoch, count) in enumerate(epochs):
        for column, (first, last) in enumerate(parts):
            groups[row, column] = _Group(epoch, count, first, last)
    return groups


def _check_updates(training: Training) -> None:
    if training.updates > MAX_UPDATES:
        raise ValueError(
            f"{training.updates} updates are more than {MAX_UPDATES}, the most whose sensitivity is computed; "
            "choose fewer epochs or a larger batch_size"
        )


def _check_steps(training: Training, steps: np.ndarray) -> None:
    largest, limit = float(steps.max()), 2.0 / (training.smoothness + training.regularisation)
    if not np.isfinite(steps).all() or steps.min() <= 0:
        raise ValueError(f"step sizes must be positive and finite; the smallest is {steps.min():g}")
    if largest > limit:
        raise ValueError(
            f"step size {largest:g} is above 2/β = {limit:g}, where updates stop contracting and "
            f"the sensitivity explodes; choose step_size ≤ {limit:g}"
        )


def _walk(training: Training, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for every group Π ρ of all later groups, and Σ η of all earlier ones."""
    products, sums = np.ones((2, *groups.shape))
    for place, group in np.ndenumerate(groups):
        pause()
        steps, expansions = _updates(training, group)
        _check_steps(training, steps)
        products[place] = expansions.prod()
        sums[place] = steps.sum()
    before = np.cumsum(sums) - sums.ravel()
    return _products_after(products.ravel()).reshape(groups.shape), before.reshape(groups.shape)


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


def _errors(training: Training, steps: np.ndarray, before: float) -> np.ndarray:
    """Return e_t: how far rounding moves one update (§14.2).

    Proof. A dot product in any order errs by ≤ γ_d‖w‖‖x‖, hence the derivative by β_φγ_dW + c_ℓu, the
    batch sum by ≤ γ_b·bL, the update by uW + 4.1uη(L + λW).
    """
    reach = _reach(training, steps, before)
    gradient = (
        (training.dimension * training.smoothness + 5 * training.regularisation) * reach
        + (training.batch_size + 5) * training.lipschitz
        + training.scalar_error
    )
    return 1.01 * UNIT_ROUNDOFF * (4 * reach + steps * gradient)


def _reach(training: Training, steps: np.ndarray, before: float) -> np.ndarray:
    """Return W_t ≥ ‖w_t‖ from w = 0: L Σ_{s≤t} η_s, and at most L/λ where all ηλ ≤ 1 (§14.2).

    For λ ≤ β_φ they all are, in every piece: η ≤ 2/β was checked.
    """
    reach = training.lipschitz * (before + np.cumsum(steps)) * (1 + 1e-9)
    convexity = training.regularisation
    if 0 < convexity <= training.smoothness:
        reach = np.minimum(reach, training.lipschitz / convexity * (1 + 1e-9))
    return reach


def _margin(training: Training, exact: float, errors: float) -> float:
    """Return Δ̂·4(T + k + 10)u + 2 Σ_t e_t V_t (§14): both trajectories err, and Lemma A carries each
    error on by V_t; the recursion itself has only sums and products of positive terms."""
    recursion = 4 * (training.updates + training.epochs + 10) * UNIT_ROUNDOFF * exact
    return float(recursion + 2.0 * errors * (1 + 1e-9))
