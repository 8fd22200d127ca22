"""The confusion matrix of a released model, with noise: how many rows of each class are taken for each class.

A record with a label of the declaration is in one cell: true × predicted class. A record without one, or whose
features cannot be packed, is in none. Shapes: matrices are (K, K), K classes, two for a binary label (-1, +1).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dbdp.algorithms.plan import relation
from dbdp.privacy.counts import CountLaplace
from dbdp.privacy.events import Release, check_epsilon_delta
from dbdp.privacy.mechanisms import ROOM, Gaussian

MOVED = 2  # cells that one replaced record moves, by 1 each


@dataclass(frozen=True)
class ConfusionPlan:
    """What showing a matrix will do and cost, from public facts only. Neighbours are replace-one.

    Proof. The model is released, so a record's cell, or that it has none, is a function of the record alone (and
    of its place among the rows, which neighbours share, where a score's last bit depends on that). Replacing it
    takes 1 from one cell at most and adds 1 to one at most: L1 distance 2, L2 distance √2. Without a δ every
    cell gets discrete Laplace noise of scale 2/ε (`CountLaplace`); with one, Gaussian noise for √2, and the whole
    numbers nearest to the noisy counts are a function of those. A unit of r records takes r at most and adds r at
    most: L1 distance 2r, and L2 distance √2·r, attained where all leave one cell for another (privacy.md §11.6).
    """

    epsilon: float
    delta: float
    rows: int
    classes: int = 2
    unit_rows: int = 1

    def __post_init__(self) -> None:
        """Check ε and δ."""
        check_epsilon_delta(self.epsilon, self.delta)

    @cached_property
    def mechanism(self) -> CountLaplace | Gaussian:
        """The noise of all cells."""
        if self.delta == 0:
            return CountLaplace(MOVED, self.epsilon, self.unit_rows)
        distance = math.sqrt(MOVED) * self.unit_rows * ROOM
        return Gaussian.calibrated(
            epsilon=self.epsilon, delta=self.delta, sensitivity=distance, dimension=self.classes**2
        )

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return self.mechanism.guarantee

    def release(self, counts: np.ndarray) -> np.ndarray:
        """Return the noisy matrix, int64; a cell may be below 0."""
        noisy = self.mechanism.release(counts.ravel().astype(np.float64))
        return np.rint(noisy).astype(np.int64).reshape(self.classes, self.classes)

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""
        return {
            "algorithm": "confusion",
            **relation(self.rows, self.unit_rows),
            "cells": self.classes**2,
            "sensitivity": self.mechanism.sensitivity,
            "mechanism": self.mechanism.name,
            "noise_scale": self.mechanism.noise_scale,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
        }


def scores(matrix: np.ndarray) -> dict[str, Any]:
    """Return accuracy, precision and recall of each class by a noisy matrix; None where it has no rows.

    A function of what is released: it costs nothing. Cells below 0 count as 0.
    """
    counts = np.maximum(matrix, 0).astype(np.float64)
    right = np.diag(counts)
    return {
        "accuracy": _share(right.sum(), counts.sum()),
        "precision": [_share(*pair) for pair in zip(right, counts.sum(axis=0), strict=True)],
        "recall": [_share(*pair) for pair in zip(right, counts.sum(axis=1), strict=True)],
    }


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
