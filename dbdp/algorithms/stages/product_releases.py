"""Releases of rows in the coordinates of `products`: noisy gradients, and the comparison of two models.

privacy.md §24.11. Shapes: a model is (p,), over the coordinates z of `ProductRows`.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dbdp.algorithms.noisy_sums import UNIT, gaussian_sum
from dbdp.algorithms.rows import Rows
from dbdp.learning.counts import tallies
from dbdp.learning.counts.product_sums import LOSS_STEPS, PARTS, SHORTEST, LossGap, ProductGradient
from dbdp.learning.losses import Loss
from dbdp.learning.rows.products import ProductRows
from dbdp.privacy.mechanisms import ROOM, Gaussian

_PER_PIECE = 1024 + 5  # rows that are summed as floats, with the operations around them


@dataclass(frozen=True)
class SeenRows:
    """Packed rows of dimension d, seen in other coordinates: models of one output are over those."""

    rows: Rows
    products: ProductRows

    def tally(self, vectors: np.ndarray, described: dict[str, Any]) -> np.ndarray:
        """Return the exact tally of the rows in their coordinates, see `learning.tallies.tally_of_rows`."""
        seen = {"products": self._data, "outputs": 1, "dimension": self.products.rows_of.places}
        return self.rows.tally(np.ascontiguousarray(vectors, np.float64).ravel(), described | seen)

    @cached_property
    def _data(self) -> dict[str, Any]:
        return self.products.as_data()


@dataclass(frozen=True)
class GradientRelease:
    """The release of a sum of clipped gradients in Wz, from public facts only, in units of the clip.

    `multiplier` is σ in units of the sensitivity.
    """

    rows: int
    coordinates: int  # of the gradient
    multiplier: float

    @property
    def sensitivity(self) -> float:
        """2 with its margins: how far one replaced record moves the computed sum, in units of the clip.

        Proof (privacy.md §24.11). The model, W and the clip C are fixed by what was released before. A row's z and its
        factor f = g/C depend on that row only, to the last bit, and ‖fWz‖ ≤ 1: two records move the real sum by 2. A
        piece of at most 1024 rows errs by γ·1024·‖fz‖ ≤ 1024γ/SHORTEST, in all n·γ/SHORTEST, and is rounded to whole
        PARTS: at most n pieces of a coordinates, √a/2 each. There are two sums, and ‖W‖ ≤ 1. Pieces add up exactly. The
        product with W errs by γ_a√a·n/SHORTEST. ∎ Attained by rows of opposite slopes.
        """
        summed = 2.02 * UNIT * (_PER_PIECE + self.coordinates**1.5) * self.rows / SHORTEST
        return (2 + summed + self.rows * math.sqrt(self.coordinates) / PARTS) * ROOM

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each coordinate."""
        return gaussian_sum(self.sensitivity, self.coordinates, multiplier=self.multiplier)

    def released(
        self, rows: SeenRows, model: np.ndarray, clip: float, loss: Loss, flat: "Flattening | None" = None
    ) -> np.ndarray:
        """Return the noisy sum of clipped gradients in Wz, (a,), in the last a coordinates: one pass."""
        tally = ProductGradient(clip, len(model) - self.coordinates, loss.code, loss.parameters)
        vectors = np.vstack([model, *([] if flat is None else flat.steep)])
        described = tallies.described(tally, outputs=1, dimension=rows.products.count)
        total = rows.tally(vectors, described) / PARTS
        return self.noise.release(total if flat is None else flat.shorter @ total) * clip


@dataclass(frozen=True)
class Flattening:
    """W, of ‖W‖ ≤ 1, which shortens directions of the coordinates."""

    spread: np.ndarray  # (p,): the variance in each direction
    directions: np.ndarray  # (p, p), one a column

    @cached_property
    def shorter(self) -> np.ndarray:
        """W, (p, p)."""
        return (self.directions * np.maximum(self.spread, 1.0) ** -0.5) @ self.directions.T

    @cached_property
    def steep(self) -> np.ndarray:
        """V, a row for each direction that is shortened: W² = I - VᵀV."""
        is_steep = self.spread > 1.0
        return np.asarray((self.directions[:, is_steep] * np.sqrt(1 - 1 / self.spread[is_steep])).T)

    @property
    def dimension(self) -> float:
        """About E‖Wz‖²."""
        return float(np.minimum(self.spread, 1.0).sum())


@dataclass(frozen=True)
class ComparisonRelease:
    """The release of how much better one of two models is; `multiplier` is σ in units of the sensitivity."""

    multiplier: float

    @property
    def sensitivity(self) -> float:
        """2: how far one replaced record moves the sum of clipped differences, in units of the limit.

        Proof (privacy.md §24.11). Given what was released before, a record adds a function of itself in [-1, 1], in
        whole steps, so that nothing is rounded. ∎ Attained by records on which either model is wrong.
        """
        return 2 * ROOM

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of the sum."""
        return gaussian_sum(self.sensitivity, 1, multiplier=self.multiplier)

    def released(self, rows: SeenRows, models: np.ndarray, gap: LossGap) -> float:
        """Return the noisy sum of the first model's losses less those of the second, in units of the limit."""
        described = tallies.described(gap, outputs=1, dimension=rows.products.count)
        return float(self.noise.release(rows.tally(models, described) / LOSS_STEPS)[0])
