"""Encoders: raw records as the server hands them out, to packed rows with ‖x‖₂ ≤ 1.

Every encoder is a function of one record alone and of public facts, so it carries replace-one
neighbours to replace-one neighbours (privacy.md §11.1).

Shapes: a raw record is `label` (int32: -1, +1, or 0 when it is none of the declared values), the
header of a PostgreSQL array (20 bytes: dimensions, offset of the data or 0 when no element is null,
element type, length, lower bound), then the elements in the machine's own representation.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.learning import blocks, kernels

HEADER_BYTES = 24  # the label and the array's header
_SHRINK = 1.0 - 2.0**-22  # leaves room for the rounding to float32: ‖x‖ ≤ 1 holds exactly (privacy.md §14.1)


@dataclass(frozen=True)
class VectorEncoder:
    """Rows from one array column of a public length, in a ball of public radius `norm_bound`.

    With an intercept the row is (x / norm_bound, 1) / √2, else x / norm_bound; longer ones are
    clipped to norm 1.
    """

    length: int
    norm_bound: float
    intercept: bool
    element: str = "<f8"

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model."""
        return self.length + self.intercept

    @property
    def record_bytes(self) -> int:
        """Length of one raw record."""
        return HEADER_BYTES + self.length * np.dtype(self.element).itemsize

    @property
    def scales(self) -> np.ndarray:
        """The factor that each coordinate of the record is multiplied by, shape (dimension,)."""
        radius = np.sqrt(2.0) if self.intercept else 1.0
        scales = np.full(self.dimension, 1.0 / (self.norm_bound * radius))
        if self.intercept:
            scales[-1] = 1.0 / radius
        return scales

    def rows(self, raw: bytes) -> np.ndarray:
        """Return packed rows, shape (n, stride)."""
        records = _records(raw, self.length, self.element)
        features = np.empty((len(records), self.dimension))
        features[:, : self.length] = records["elements"]
        features[:, self.length :] = 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            features *= self.scales
        return pack(features, _labels(records))


@dataclass(frozen=True)
class ColumnEncoder:
    """Rows from columns with public bounds, and from columns with public categories.

    A numeric column is clipped to its bounds and mapped to [0, 1]; a categorical one becomes one
    coordinate for each category, all zero for a value that is none of them. The row is divided by
    the largest norm that the declaration allows, √(columns + intercept), so that none is clipped.

    Parameters
    ----------
    lower, upper : bounds of the numeric columns
    categories : for each categorical column the numbers that stand for its categories in a record
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    categories: tuple[tuple[float, ...], ...]
    intercept: bool

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model."""
        return len(self.lower) + sum(map(len, self.categories)) + self.intercept

    @property
    def _columns(self) -> int:
        return len(self.lower) + len(self.categories)

    @property
    def record_bytes(self) -> int:
        """Length of one raw record."""
        return HEADER_BYTES + 8 * self._columns

    @property
    def radius(self) -> float:
        """The largest norm of a row before it is scaled."""
        return float(np.sqrt(self._columns + self.intercept))

    @cached_property
    def _lookups(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each categorical column its sorted numbers, and the coordinate of each."""
        first = len(self.lower)
        lookups = []
        for numbers in self.categories:
            order = np.argsort(numbers)
            lookups.append((np.asarray(numbers)[order], first + order))
            first += len(numbers)
        return lookups

    def rows(self, raw: bytes) -> np.ndarray:
        """Return packed rows, shape (n, stride)."""
        records = _records(raw, self._columns, "<f8")
        values = records["elements"]
        features = np.zeros((len(values), self.dimension))
        numeric = len(self.lower)
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        finite = np.isfinite(values).all(axis=1)
        features[:, :numeric] = (np.clip(values[:, :numeric], lower, upper) - lower) / (upper - lower)
        for column, (numbers, coordinates) in enumerate(self._lookups, start=numeric):
            found = np.minimum(np.searchsorted(numbers, values[:, column]), len(numbers) - 1)
            known = np.flatnonzero(numbers[found] == values[:, column])
            features[known, coordinates[found[known]]] = 1.0
        if self.intercept:
            features[:, -1] = 1.0
        features[~finite] = np.nan
        features /= self.radius
        return pack(features, _labels(records))


Encoder = VectorEncoder | ColumnEncoder


def _records(raw: bytes, length: int, element: str) -> np.ndarray:
    layout = np.dtype([("label", "<i4"), ("header", "<i4", 5), ("elements", element, length)])
    return np.frombuffer(raw, layout)


def _labels(records: np.ndarray) -> np.ndarray:
    """Return the labels, 0 where the array has another shape than declared or holds a null."""
    dimensions, nulls, _, length, _ = records["header"].T
    whole = (dimensions == 1) & (nulls == 0) & (length == records["elements"].shape[1])
    return np.where(whole, records["label"], 0)


def pack(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return packed rows, by the compiled kernel where there is one; see `pack_reference`."""
    if kernels.COMPILED:
        rows = np.empty((len(features), blocks.stride_of(features.shape[1])), blocks.ELEMENT)
        kernels.compiled.pack(features, labels.astype(np.int32), rows, _SHRINK)
        return rows
    return pack_reference(features, labels)


def pack_reference(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return packed rows whose stored norm is at most 1 as real numbers (privacy.md §14.1).

    Parameters
    ----------
    features : (n, d) float64, changed in place
    labels : (n,); a row whose label is not ±1 becomes the zero row

    Notes
    -----
    With M = max(1, max|x_i|) and u = x / M, x / max(1, ‖x‖) is u / max(1, ‖u‖): no sum overflows and
    no path depends on a value. Proof of the norm: its computed value errs by at most a factor
    1 + (d + 8)u, the product and the cast to float32 by 1 + 2⁻²⁴ and √d·2⁻¹⁵⁰;
    (1 - 2⁻²²)(1 + 2⁻²⁴)(1 + (d + 8)u) + √d·2⁻¹⁵⁰ < 1 for d ≤ 2²⁸. A row with a value that is not
    finite becomes the zero row.
    """
    with np.errstate(all="ignore"):
        features /= np.maximum(np.abs(features).max(axis=1), 1.0)[:, None]
        norms = np.sqrt(np.einsum("ij,ij->i", features, features))
        features *= (_SHRINK / np.maximum(norms, 1.0))[:, None]
        rows = blocks.encode(features, labels)
    rows[(np.abs(labels) != 1) | ~np.isfinite(norms)] = 0.0
    return rows
