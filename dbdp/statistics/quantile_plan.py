"""All quantiles of a number for one charge: noisy prefix sums of its cells (privacy.md §25.7)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dbdp.privacy.accounting.events import Release
from dbdp.privacy.mechanisms import ROOM, Gaussian
from dbdp.statistics import prefix_sums
from dbdp.statistics.coded_columns import FIRST, CategoryCode, Code, NumberCode, as_data, from_data
from dbdp.statistics.stepped_noise import Population, SteppedGaussian
from dbdp.statistics.unit_sums import STEPS, ColumnSums


@dataclass(frozen=True)
class QuantilesPlan:
    """The plan of a release of A·h of one number, from public facts only. Neighbours are replace-one.

    Proof (privacy.md §25.7). A record adds a column A·e_b, and NULL or a slot without a record nothing: the largest of
    all ‖A·e_b - A·e_c‖ and ‖A·e_b‖ bounds two of them. A unit adds a convex combination (§25.2). A·h is rounded by half
    a step in each of its entries, in each world.
    """

    epsilon: float
    delta: float
    code: NumberCode
    population: Population
    algorithm: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        """Check ε and δ."""
        SteppedGaussian.check(self.epsilon, self.delta, "a distribution")

    @classmethod
    def of(cls, epsilon: float, delta: float, code: Code, population: Population) -> "QuantilesPlan":
        """Return the plan for a declared column; raise ValueError for one of categories."""
        if isinstance(code, CategoryCode):
            raise ValueError(
                f"column {code.column!r} has categories and no quantiles; call dbdp.dp_table for its counts"
            )
        return cls(epsilon, delta, code, population)

    @classmethod
    def of_receipt(cls, receipt: Mapping[str, Any]) -> "QuantilesPlan":
        """Return the plan that a receipt describes."""
        [code] = from_data(receipt["columns"])
        return cls.of(receipt["epsilon"], receipt["delta"], code, Population.of_receipt(receipt))

    @property
    def codes(self) -> tuple[Code, ...]:
        """The columns that are read."""
        return (self.code,)

    @cached_property
    def sensitivity(self) -> float:
        """The L2 sensitivity of A·h, with its rounding to steps."""
        longest = max(prefix_sums.distances(self.code.cells).max(), np.diag(prefix_sums.gram(self.code.cells)).max())
        return (math.sqrt(longest) + math.sqrt(self.code.cells) / STEPS) * ROOM

    @cached_property
    def noise(self) -> SteppedGaussian:
        """The noise."""
        return SteppedGaussian(self.epsilon, self.delta, self.sensitivity, self.code.cells)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return self.noise.guarantee

    def sums(self) -> ColumnSums:
        """Return the sums, before the first row."""
        return ColumnSums(self.codes, self.population.unit_rows)

    def release(self, sums: ColumnSums) -> np.ndarray:
        """Return a noisy A·h, (cells,)."""
        return self.noise.of_weight(1.0).release(prefix_sums.transformed(sums.counts[0][FIRST:]) / STEPS)

    def explain(self) -> dict[str, Any]:
        """Return the plan as data; `rank_noise` is the largest ± of a prefix sum."""
        norms = np.linalg.norm(prefix_sums.inverse(self.code.cells), axis=1)
        return {
            "algorithm": self.algorithm,
            "column": self.code.column,
            **self.population.explained,
            "cells": self.code.cells,
            "sensitivity": self.sensitivity,
            "mechanism": Gaussian.name,
            "noise_scale": self.noise.scale,
            "rank_noise": 1.96 * self.noise.scale * float(norms.max()),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "columns": as_data(self.codes),
        }
