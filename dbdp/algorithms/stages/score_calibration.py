"""Calibration: offsets and a slope that make a noisy model's probabilities right, from a noisy table of its scores.

privacy.md §21.2: post-processing. A class with the score s has the log-odds a + b·s; a and b have the greatest
likelihood on the table, each cell weighed by its noise, with a prior at (0, 1). Shapes: a table is (K, 2, NODES), K
the outputs; parameters are the K offsets, then the slope.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dbdp.algorithms.plan import Released
from dbdp.learning.counts import score_tables

PRIOR = 0.5  # standard deviation of the offset, and of the slope: a noisy table moves a model no further
PRIOR_OF_SEVERAL = 0.15  # of several classes, whose log-odds move by the offsets only on average
LEAST_SLOPE = 0.02  # above 0, so that no order of scores is turned
LEAST_OF_SEVERAL = 0.5  # of rows that hardly differ, two neighbouring nodes have as many of a class at any slope
_STEPS = 60
_LONGEST_STEP = 0.5
_SHORTEST_STEP = 1e-8  # further ones move no probability by as much as a millionth
_NEAR = 1e-4  # probabilities are taken as at least that far from 0 and 1
Shift = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Calibration:
    """Log-odds a + b·s of calibrated scores."""

    offsets: np.ndarray  # shape (outputs,): a
    slope: float  # b, above 0
    # Shape (outputs,): how far the offsets move the log-odds of each class against the rest; of one output, the offset.
    shifts: np.ndarray
    errors: np.ndarray  # shape (outputs + 1,): standard deviations of the offsets and of the slope, from noise and rows


def calibration(table: np.ndarray, scale: float, *, has_offset: bool = True) -> Calibration:
    """Return the calibration that a noisy table of counts gives.

    Newton's method on the sum of penalised likelihoods of each class against the rest. A cell of n rows, of which h
    are the class's, has the residual h - np of variance np(1 - p) + σ²(p² + (1 - p)²), and says as much as that leaves.

    `table`, shape (K, 2, NODES), has the rows of the other classes and of the class, by score, with noise of standard
    deviation σ = `scale` in a cell. A model without an intercept has no offset: its offsets are 0.
    """
    outputs = len(table)
    shift = _shift(table, has_offset=has_offset)
    start = np.append(np.zeros(outputs), 1.0)
    inverse = np.eye(outputs + 1) / (PRIOR if outputs == 1 else PRIOR_OF_SEVERAL) ** 2
    found, information, least = start, np.zeros_like(inverse), LEAST_SLOPE if outputs == 1 else LEAST_OF_SEVERAL
    for _ in range(_STEPS):
        slopes, information = _residuals(table, scale, shift, found)
        step = _step(information + inverse, slopes - inverse @ (found - start), least - found[-1])
        longest = np.abs(step).max()
        found = found + step * min(1.0, _LONGEST_STEP / max(longest, _LONGEST_STEP))
        if longest < _SHORTEST_STEP:
            break
    centring = _centring(outputs, has_offset=has_offset)
    errors = np.sqrt(np.diagonal(centring @ np.linalg.inv(information + inverse) @ centring.T))
    found = centring @ found
    return Calibration(found[:-1], float(found[-1]), shift(found)[0], errors)


def _step(curvature: np.ndarray, slopes: np.ndarray, least: float) -> np.ndarray:
    """Return Newton's step with a last number of at least `least`; the others are the best with it."""
    step = np.linalg.solve(curvature, slopes)
    if step[-1] >= least:
        return step
    others = np.linalg.solve(curvature[:-1, :-1], slopes[:-1] - curvature[:-1, -1] * least)
    return np.append(others, least)


def none(outputs: int) -> Calibration:
    """Return the calibration that changes nothing."""
    return Calibration(np.zeros(outputs), 1.0, np.zeros(outputs), np.zeros(outputs + 1))


def applied(found: Calibration, released: Released, constant: float | None) -> Released:
    """Return calibrated linear models, whose noise has the errors of the calibration too.

    The offset goes to the intercept, which multiplies the last coordinate of a row, about `constant`; None if there is
    no intercept.
    """
    models, unit = released.models * found.slope, np.zeros(released.models.shape[1])
    if constant is not None:
        unit[-1] = 1 / constant
    root = released.noise_root
    if root is not None:
        rows = [root * found.slope, released.models * found.errors[-1], [unit * found.errors[:-1].max()]]
        root = np.concatenate(rows)
    return replace(released, models=models + np.outer(found.offsets, unit), noise_root=root)


def _centring(outputs: int, *, has_offset: bool) -> np.ndarray:
    """Return the map of parameters to those that mean the same: offsets of several classes with a mean of 0."""
    centring = np.eye(outputs + 1)
    if outputs > 1:
        centring[:-1, :-1] -= 1.0 / outputs
    if not has_offset:
        centring[:-1, :-1] = 0.0
    return centring


def _residuals(table: np.ndarray, scale: float, shift: Shift, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the slope of the likelihood (K + 1,), and its information (K + 1, K + 1)."""
    moved, by = shift(found)
    nodes = score_tables.nodes()
    probability = np.clip(logistic(moved[:, None] + found[-1] * nodes), _NEAR, 1 - _NEAR)
    rows = table.sum(axis=1)
    clear = np.where(rows > np.sqrt(2.0) * scale, rows, 0.0)  # a cell of noise says nothing
    curved = clear * probability * (1 - probability)
    variance = curved + scale**2 * (probability**2 + (1 - probability) ** 2)
    design = np.repeat(by[:, None], len(nodes), 1)
    design[:, :, -1] += nodes
    weight = curved / np.maximum(variance, _NEAR)
    slopes = np.einsum("cj,cjp->p", weight * (table[:, 1] - rows * probability), design)
    return slopes, np.einsum("cj,cjp,cjq->pq", weight * curved, design, design)


def _shift(table: np.ndarray, *, has_offset: bool) -> Shift:
    """Return how parameters move each class's log-odds b·s_c, (K,), and the derivatives, (K, K + 1).

    One class: by the offset. Several: a softmax of b·z + a has for the class c the log-odds
    b·z_c + a_c - log Σ_{k ≠ c} exp(b·z_k + a_k), which b·s_c, s_c = z_c - log Σ_{k ≠ c} exp z_k, misses by
    a_c - log Σ_{k ≠ c} ω_k^b·exp(a_k) + b·log Σ_{k ≠ c} ω_k. The means of the probabilities over the table stand for
    ω, those of a row, so that this is right where all rows have one score.
    """
    if len(table) == 1:
        return lambda found: (found[:1] * has_offset, np.array([[float(has_offset), 0.0]]))
    rows = np.maximum(table.sum(axis=1), 0.0)
    means = (rows @ logistic(score_tables.nodes()) + 1.0) / (rows.sum(axis=1) + len(table))
    logs, other = np.log(means), ~np.eye(len(table), dtype=bool)
    left = np.log((other * means).sum(axis=1))

    def moved(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offsets, slope = found[:-1] * has_offset, found[-1]
        shares = other * np.exp(slope * logs + offsets)
        total = shares.sum(axis=1)
        weights = shares / total[:, None]
        by_slope = left - weights @ logs
        by_offsets = (np.eye(len(table)) - weights) * has_offset
        return offsets - np.log(total) + slope * left, np.hstack([by_offsets, by_slope[:, None]])

    return moved


def logistic(scores: np.ndarray) -> np.ndarray:
    """Return 1/(1 + e⁻ˢ)."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-scores))
