"""The encoder of rows in places, see `placed`: of raw records as `encoding` reads them."""

from dataclasses import dataclass, fields

import numpy as np

from dbdp.learning import kernels
from dbdp.learning.rows import blocks
from dbdp.learning.rows.blocks import Raw
from dbdp.learning.rows.encoding import (
    ColumnEncoder,
    Encoder,
    bins_of,
    is_complete,
    known,
    positions,
    record_layout,
)
from dbdp.learning.rows.features import Numeric
from dbdp.learning.rows.placed import FINEST


@dataclass(frozen=True)
class PlacedEncoder(ColumnEncoder):
    """Rows with one number for each column: its place among the knots, bins or categories of a `ColumnEncoder`."""

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
        places[:, 0] = np.where(np.isfinite(values).all(axis=1), 1.0, np.nan)
        for column, feature in enumerate(self.numeric):
            places[:, first] = _place(feature, values[:, column])
            if feature.indicator:
                places[:, first + 1] = absent[:, column]
            first += 1 + feature.indicator
        for place, (width, _, cells) in enumerate(self._cells(values), start=first):
            places[:, place] = np.where(cells < 0, width, cells)
        return places


def _place(feature: Numeric, values: np.ndarray) -> np.ndarray:
    """Return the places of numbers (n,) of a column: among its knots, its bins, or from 0 to 1 between its bounds."""
    if feature.bins:
        return bins_of(feature, values)
    least, most = feature.ends
    last = max(feature.knots, 2) - 1
    reached = np.clip((positions(feature, values) - least) / (most - least) * last, 0.0, last)
    return np.rint(reached / FINEST) * FINEST


def in_places(encoder: Encoder) -> Encoder:
    """Return the encoder of the same records that packs rows in places."""
    if not isinstance(encoder, ColumnEncoder) or encoder.projection is not None:
        raise ValueError("in_places needs columns, without a projection; leave it out")
    return PlacedEncoder(**{each.name: getattr(encoder, each.name) for each in fields(ColumnEncoder)})
