"""The encoder of rows in places, see `placed`: of raw records as `encoding` reads them."""

from dataclasses import dataclass, fields

import numpy as np

from dbdp.learning import kernels
from dbdp.learning.rows import blocks
from dbdp.learning.rows.blocks import Raw
from dbdp.learning.rows.encoding import (
    SHRINK,
    ColumnEncoder,
    Encoder,
    bins_of,
    is_complete,
    known,
    positions,
    record_layout,
)
from dbdp.learning.rows.features import UNIT, Numeric
from dbdp.learning.rows.placed import FINEST


@dataclass(frozen=True)
class PlacedEncoder(ColumnEncoder):
    """Rows with one number for each column: its place among the knots, bins or categories of a `ColumnEncoder`.

    With the encoding `unit` the first number is s = (1 - 2⁻²²)/‖x‖ in 24 bits, x the coordinates of the places. Proof
    that ‖sx‖ ≤ 1: as ‖x‖² is a sum of F + 1 squares, each within 4u, s errs by less than 2⁻²⁴ + (F + 9)u of itself. ∎
    """

    @property
    def dimension(self) -> int:
        """Numbers of a row, the constant's first."""
        numbers = sum(1 + feature.indicator for feature in self.numeric)
        return 1 + numbers + len(self.categories) + len(self.pairs)

    def rows(self, raw: Raw) -> np.ndarray:
        """Return packed rows, shape (n, stride); an invalid one is the zero row."""
        records = np.frombuffer(raw, record_layout(self))
        labels = self.labels.packed(records["label"])
        with np.errstate(all="ignore"):
            places = self._places(records["elements"])
        valid = is_complete(records) & np.isfinite(labels) & np.isfinite(places).all(axis=1)
        return blocks.encode(kernels.valid_or_zero(places, valid), kernels.valid_or_zero(labels, valid))

    def _places(self, values: np.ndarray) -> np.ndarray:
        """Return the places of rows (n, columns), NaN in a row with a value that is not finite."""
        places, first = np.empty((len(values), self.dimension)), 1
        values, absent = known(self.numeric, values)
        squares = np.ones(len(values))
        for column, feature in enumerate(self.numeric):
            places[:, first] = _place(feature, values[:, column]).astype(blocks.ELEMENT)  # as it is stored
            squares += _square(feature, self.encoding, places[:, first])
            if feature.indicator:
                places[:, first + 1] = absent[:, column]
                squares += absent[:, column]
            first += 1 + feature.indicator
        for place, (width, weight, cells) in enumerate(self._cells(values), start=first):
            places[:, place] = np.where(cells < 0, width, cells)
            squares += (weight * weight) * (cells >= 0)
        factor = SHRINK / np.sqrt(squares) if self.encoding == UNIT else 1.0
        places[:, 0] = np.where(np.isfinite(values).all(axis=1), factor, np.nan)
        return places


def _place(feature: Numeric, values: np.ndarray) -> np.ndarray:
    """Return the places of numbers (n,) of a column: among its knots, its bins, or from 0 to 1 between its bounds."""
    if feature.bins:
        return bins_of(feature, values)
    least, most = feature.ends
    last = max(feature.knots, 2) - 1
    reached = np.clip((positions(feature, values) - least) / (most - least) * last, 0.0, last)
    return np.rint(reached / FINEST) * FINEST


def _square(feature: Numeric, encoding: str, places: np.ndarray) -> np.ndarray | float:
    """Return the squared length of a number's coordinates, without its indicator, from its places (n,)."""
    if feature.bins:
        return 1.0
    if feature.knots:
        parts = places - np.floor(places)
        return parts * parts + (1.0 - parts) * (1.0 - parts)
    coordinates = feature.least(encoding) * (1.0 - places) + places
    return coordinates * coordinates


def in_places(encoder: Encoder) -> Encoder:
    """Return the encoder of the same records that packs rows in places."""
    is_suited = isinstance(encoder, ColumnEncoder) and encoder.projection is None and encoder.intercept
    if not is_suited or not isinstance(encoder, ColumnEncoder):
        raise ValueError("in_places needs columns and an intercept, without a projection; leave it out")
    return PlacedEncoder(**{each.name: getattr(encoder, each.name) for each in fields(ColumnEncoder)})
