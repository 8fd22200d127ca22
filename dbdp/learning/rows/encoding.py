"""Encoders: from raw records, as the server returns them, to packed rows with ‖x‖₂ ≤ 1.

Every encoder is a function of one record alone and of public facts, so it maps replace-one
neighbours to replace-one neighbours (privacy.md §11.1). The encoding determines the length of a row:

- `unit`: the row is divided by its own norm, so that its norm is 1; a row of zeros stays. For classes, where the sign
  of ⟨model, row⟩, or the largest of them, decides, and noise weighs more the shorter the rows are (privacy.md §16.5).
- `centred`: numbers are in [-1, 1] around the middle of their bounds, and the row is divided by the largest norm that
  the declaration allows. For labels that are numbers, where a row's length matters.
- `scaled`: numbers are in [0, 1], and the row is divided by that largest norm. For networks, and models of earlier
  versions.

Shapes: a raw record is its label as `LabelEncoding` reads it, the header of a PostgreSQL array (20 bytes:
dimensions, offset of the data or 0 when no element is null, element type, length, lower bound), then
the elements in the machine's own representation. Without an array of the declared length the dimensions are NO_ARRAY;
without a record all bytes are 0. A packed label is ±1, a class's number 1, 2, …, or a number in [-1, 1].
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.checks import whole
from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import flushed
from dbdp.learning.rows import blocks
from dbdp.learning.rows.blocks import Raw
from dbdp.learning.rows.features import SCALED, UNIT, Numeric, constant_of
from dbdp.learning.rows.pairs import Pair, Side

HEADER_BYTES = 20  # of an array
NO_ARRAY = -1  # dimensions in the header of a record whose array is absent
UNANSWERED = 2.0  # first coordinate of a row with a label and without features; no other row is as long
MAX_SEED = 2**32 - 1  # the largest that NumPy's frozen generator accepts
_FEW = 64  # edges, which are compared with all values faster than each value is searched for
SHRINK = 1.0 - 2.0**-22  # leaves room for the rounding to float32: ‖x‖ ≤ 1 holds exactly (privacy.md §14.1)


@dataclass(frozen=True)
class IntegerLabels:
    """Labels as int32 numbers of the server; 0, and those not from `least` to `most`, are invalid."""

    least: int
    most: int
    layout = "<i4"

    def packed(self, stored: np.ndarray) -> np.ndarray:
        """Return packed labels, NaN for an invalid one, shape (n,)."""
        valid = (stored != 0) & (self.least <= stored) & (stored <= self.most)
        return np.where(valid, stored.astype(np.float64), np.nan)


@dataclass(frozen=True)
class RealLabels:
    """Labels as `float8send` returns them: clipped to public bounds, and mapped to [-1, 1]."""

    lower: float
    upper: float
    layout = ">f8"

    def packed(self, stored: np.ndarray) -> np.ndarray:
        """Return packed labels, NaN for a value that is not finite, shape (n,).

        All are in [-1, 1]: the rounded quotient of two numbers is at most 1 if the first is not larger.
        """
        values = stored.astype(np.float64)
        shares = (np.clip(values, self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        return np.where(np.isfinite(values), 2.0 * shares - 1.0, np.nan)


@dataclass(frozen=True)
class BinnedLabels:
    """Labels as `float8send` returns them: the number of the bin, from 1, of a value clipped to public bounds."""

    column: Numeric
    layout = ">f8"

    def packed(self, stored: np.ndarray) -> np.ndarray:
        """Return packed labels, NaN for a value that is not finite, shape (n,)."""
        values = stored.astype(np.float64)
        return np.where(np.isfinite(values), 1.0 + bins_of(self.column, values), np.nan)


LabelEncoding = IntegerLabels | RealLabels | BinnedLabels
SIGNS = IntegerLabels(-1, 1)


@dataclass(frozen=True)
class RandomProjection:
    """A Gaussian random projection of the features to fewer coordinates, with a public seed.

    Norms hardly change (Johnson & Lindenstrauss), and fewer coordinates need noise. The seed
    does not depend on the rows (privacy.md §11.7).
    """

    dimension: int
    seed: int

    def __post_init__(self) -> None:
        whole("dimension of the projection", self.dimension, 1, 2**20)
        whole("seed of the projection", self.seed, 0, MAX_SEED)

    def matrix(self, features: int) -> np.ndarray:
        """Return the projection's matrix, shape (features, dimension), rounded for `image`."""
        matrix = np.random.RandomState(self.seed).standard_normal((features, self.dimension))
        matrix /= np.sqrt(self.dimension)
        return _rounded(matrix, _grid(matrix))


def image(features: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return features (n, f) of norm at most 1, times a projection's matrix (f, p), shape (n, p).

    The product is exact, so that a row's image depends on that row alone: not on the order in which
    BLAS adds, which may change with the number of rows. Proof: entries are integer multiples of grids
    whose product is 2⁻⁵³⁺ᵉ, and Σ|x_j r_j| ≤ ‖x‖‖r‖ < 2ᵉ for every column r and every part of the sum.
    """
    return _rounded(features, _grid(matrix)) @ matrix


def _grid(matrix: np.ndarray) -> float:
    """Return 2⁻ᵇ with 2b ≤ 53 - e, where 2ᵉ is at least twice the longest column, for what rounding adds."""
    longest = np.sqrt(np.einsum("ij,ij->j", matrix, matrix).max())
    exponent = max(0, int(np.ceil(np.log2(longest)))) + 1
    return 2.0 ** -((53 - exponent) // 2)


def _rounded(values: np.ndarray, grid: float) -> np.ndarray:
    """Round to multiples of a power of two, in place."""
    values /= grid
    np.rint(values, out=values)
    values *= grid
    return values


@dataclass(frozen=True)
class VectorEncoder:
    """Rows from one array column of a public length, in a ball of public radius `norm_bound`.

    With an intercept the row is (x / norm_bound, 1) / √2, else x / norm_bound; longer rows are clipped to norm 1.
    With the encoding `unit` it is (x / norm_bound, `constant_of(length)`), or x / norm_bound, divided by its norm.
    """

    length: int
    norm_bound: float
    intercept: bool
    element: str = "<f8"
    labels: LabelEncoding = SIGNS
    projection: RandomProjection | None = None
    encoding: str = SCALED
    marks: bool = False  # see `_marked`

    @property
    def width(self) -> int:
        """Number of coordinates before the projection."""
        return self.length + self.intercept

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model."""
        return self.projection.dimension + self.intercept if self.projection else self.width

    @property
    def record_bytes(self) -> int:
        """Length of one raw record."""
        return record_layout(self).itemsize

    @property
    def scales(self) -> np.ndarray:
        """The factor that each coordinate of the record is multiplied by, shape (width,)."""
        if self.encoding == UNIT:
            return np.array([1.0 / self.norm_bound] * self.length + [constant_of(self.length)] * self.intercept)
        radius = np.sqrt(2.0) if self.intercept else 1.0
        return np.array([1.0 / (self.norm_bound * radius)] * self.length + [1.0 / radius] * self.intercept)

    def rows(self, raw: Raw) -> np.ndarray:
        """Return packed rows, shape (n, stride)."""
        if self._packs_directly:
            places = np.arange(len(raw) // self.record_bytes)
            rows = np.empty((len(places), blocks.stride_of(self.dimension)), blocks.ELEMENT)
            _pack_records(self, raw, rows, places)
            return rows
        records = np.frombuffer(raw, record_layout(self))
        features = np.empty((len(records), self.width))
        features[:, : self.length] = records["elements"]
        features[:, self.length :] = 1.0
        with np.errstate(all="ignore"):
            features *= self.scales
            return _packed(self, features, records)

    def write(self, raw: Raw, rows: np.ndarray, places: np.ndarray) -> None:
        """Write the packed rows of records to places (n,), each once, of rows (…, stride)."""
        if self._packs_directly:
            _pack_records(self, raw, rows, places)
        else:
            rows[places] = self.rows(raw)

    @property
    def _packs_directly(self) -> bool:
        """Whether the compiled kernel packs records without an array of features between them and the rows."""
        return self.projection is None and self.element == "<f8" and not self.marks

    @cached_property
    def matrix(self) -> np.ndarray | None:
        """The projection's matrix."""
        return self.projection.matrix(self.length) if self.projection else None


@dataclass(frozen=True)
class ColumnEncoder:
    """Rows from columns with public bounds, and from columns with public categories.

    A numeric column is clipped to its bounds and mapped to one coordinate, see `Numeric.affine`, or to one for each of
    its bins or knots; a categorical one becomes one coordinate for each category, all zero for an undeclared value. The
    row is divided by the largest norm that the declaration allows, √(columns + indicators + Σ weight² + intercept), the
    sum over the pairs, so that no row is clipped; without indicators a row with every number at a bound and with
    declared categories attains it. With the encoding `unit` it is divided by its own norm instead. A pair of columns
    becomes a coordinate for each cell: its weight for the row's own.

    A number that is not finite, as which NULL is read, counts as `Numeric.missing`. What NULL is as a category is up
    to the numbers of the record: one of the categories', another one, or NaN, which makes the row a zero row.
    """

    numeric: tuple[Numeric, ...]
    categories: tuple[tuple[float, ...], ...]
    intercept: bool
    labels: LabelEncoding = SIGNS
    projection: RandomProjection | None = None
    encoding: str = SCALED
    pairs: tuple[Pair, ...] = ()
    marks: bool = False  # see `_marked`
    element = "<f8"

    @property
    def width(self) -> int:
        """Number of coordinates before the projection."""
        cells = sum(pair.width for pair in self.pairs)
        return sum(each.width for each in self.numeric) + sum(map(len, self.categories)) + cells + self.intercept

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model."""
        return self.projection.dimension + self.intercept if self.projection else self.width

    @property
    def length(self) -> int:
        """Number of elements of a raw record, one for each column."""
        return len(self.numeric) + len(self.categories)

    @property
    def record_bytes(self) -> int:
        """Length of one raw record."""
        return record_layout(self).itemsize

    @property
    def radius(self) -> float:
        """The divisor of every row: the largest norm of one; 1 if each row is divided by its own norm."""
        indicators = sum(feature.indicator for feature in self.numeric)
        squares = sum(pair.weight * pair.weight for pair in self.pairs)
        square = self.length + indicators + squares + self.intercept
        return 1.0 if self.encoding == UNIT else float(np.sqrt(square))

    @cached_property
    def matrix(self) -> np.ndarray | None:
        """The projection's matrix."""
        return self.projection.matrix(self.width - self.intercept) if self.projection else None

    @cached_property
    def _lookups(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The sorted numbers of each categorical column, and the category of each."""
        orders = [np.argsort(numbers) for numbers in self.categories]
        return [(np.asarray(numbers)[order], order) for numbers, order in zip(self.categories, orders, strict=True)]

    def rows(self, raw: Raw) -> np.ndarray:
        """Return packed rows, shape (n, stride)."""
        records = np.frombuffer(raw, record_layout(self))
        with np.errstate(all="ignore"):
            features = self._features(records["elements"])
            features /= self.radius
            return _packed(self, features, records)

    def write(self, raw: Raw, rows: np.ndarray, places: np.ndarray) -> None:
        """Write the packed rows of records to places (n,), each once, of rows (…, stride)."""
        rows[places] = self.rows(raw)

    def _features(self, values: np.ndarray) -> np.ndarray:
        """Return coordinates, indicators and the intercept; NaN in a row with a value that is not finite."""
        features = np.zeros((len(values), self.width))
        first = 0
        values, absent = known(self.numeric, values)
        for place, feature in enumerate(self.numeric):
            columns = features[:, first : first + feature.width]
            _encode_number(feature, self.encoding, values[:, place], absent[:, place], columns)
            first += feature.width
        for width, weight, cells in self._cells(values):
            _indicate(cells, weight, features[:, first : first + width])
            first += width
        if self.intercept:
            features[:, -1] = 1.0
        features[:, 0] += np.where(np.isfinite(values).all(axis=1), 0.0, np.nan)
        return features

    def _cells(self, values: np.ndarray) -> Iterator[tuple[int, float, np.ndarray]]:
        """Yield of each category and pair its width, its weight, and the coordinate of each value (n,), -1 for none."""
        places = dict[int, np.ndarray]()
        for column, (numbers, order) in enumerate(self._lookups, start=len(self.numeric)):
            nearest = np.maximum(not_above(numbers, values[:, column]) - 1, 0)
            places[column] = np.where(numbers[nearest] == values[:, column], order[nearest], -1)
            yield len(order), 1.0, places[column]
        groups = {side: groups_of(side, values[:, side.place], places.get(side.place)) for side in sides(self.pairs)}
        for pair in self.pairs:
            yield pair.width, pair.weight, cells_of(pair, groups[pair.first], groups[pair.second])


def known(numeric: Sequence[Numeric], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values (n, columns) with public numbers where the first ones are not finite, and where these are (n, m).

    A column of `numeric` that requires numbers is unchanged.
    """
    absent = ~np.isfinite(values[:, : len(numeric)])
    counted = np.array([np.nan if feature.missing is None else feature.missing for feature in numeric])
    filled = np.where(absent & np.isfinite(counted), counted, values[:, : len(numeric)])
    return np.hstack([filled, values[:, len(numeric) :]]), absent


def positions(feature: Numeric, values: np.ndarray) -> np.ndarray:
    """Return the positions on a column's scale of numbers (n,), clipped to the bounds; NaN for NaN; see `Numeric`."""
    clipped = np.clip(values, feature.lower, feature.upper)
    if feature.bend is None:
        return clipped
    centre, factor = feature.bend
    scaled = (clipped - centre) * factor
    return np.copysign(np.log(np.abs(scaled) + np.sqrt(scaled * scaled + 1.0)), scaled)


def bins_of(feature: Numeric, values: np.ndarray) -> np.ndarray:
    """Return the index of each number's bin, from 0, shape (n,): the number of edges that are not above it."""
    return not_above(feature.edges, values)


def not_above(edges: Sequence[float] | np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return how many of some sorted edges are not above each value (n,), shape (n,)."""
    if len(edges) > _FEW:
        return np.searchsorted(edges, values, side="right")
    counts, values = np.zeros(len(values), np.uint8), np.ascontiguousarray(values)
    for edge in edges:
        counts += values >= edge
    return counts.astype(np.int64)


def knots_below(feature: Numeric, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the knot below each number (n,), from 0 to knots - 2, and the part of the way to the next.

    That is in [0, 1]; a NaN is at the first knot.
    """
    least, most = feature.ends
    reached = (np.nan_to_num(positions(feature, values), nan=least) - least) / (most - least) * (feature.knots - 1)
    places = np.clip(reached.astype(np.int64), 0, feature.knots - 2)
    return places, np.clip(reached - places, 0.0, 1.0)


def _encode_number(
    feature: Numeric, encoding: str, values: np.ndarray, absent: np.ndarray, coordinates: np.ndarray
) -> None:
    """Write the coordinates (n, width) of a numeric column to an array of zeros; see `known`."""
    if feature.bins:
        coordinates[np.arange(len(values)), bins_of(feature, values)] = 1.0
    elif feature.knots:
        places, parts = knots_below(feature, values)
        coordinates[np.arange(len(values)), places] = 1.0 - parts
        coordinates[np.arange(len(values)), places + 1] = parts
    else:
        origin, length = feature.affine(encoding)
        coordinates[:, 0] = (positions(feature, values) - origin) / length
    if feature.indicator:
        coordinates[:, -1] = absent


def _indicate(places: np.ndarray, value: float, coordinates: np.ndarray) -> None:
    """Write a value at each row's place in zeros (n, width), or 0 for place -1: as many writes for every row."""
    coordinates[np.arange(len(places)), np.maximum(places, 0)] = value * (places >= 0)


def sides(pairs: tuple[Pair, ...]) -> set[Side]:
    """Return the columns of pairs with their groups, each once."""
    return {side for pair in pairs for side in (pair.first, pair.second)}


def groups_of(side: Side, values: np.ndarray, categories: np.ndarray | None) -> np.ndarray:
    """Return the groups of a column's values (n,), or of the places of its categories, -1 for an undeclared one."""
    if isinstance(side.feature, Numeric):
        return bins_of(side.feature, values)
    return np.array([*side.group_of_category, -1])[categories]


def cells_of(pair: Pair, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cells of rows from the groups of both columns, -1 where one has none; shape (n,)."""
    return np.where((first < 0) | (second < 0), -1, first * pair.second.groups + second)


Encoder = VectorEncoder | ColumnEncoder


def record_layout(encoder: Encoder) -> np.dtype:
    """Return the layout of a raw record."""
    elements = ("elements", encoder.element, (encoder.length,))
    return np.dtype([("label", encoder.labels.layout), ("header", "<i4", (HEADER_BYTES // 4,)), elements])


def _packed(encoder: Encoder, features: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Return packed rows, projected if the encoder has a projection; changes `features` in place."""
    labels = encoder.labels.packed(records["label"])
    complete = is_complete(records)
    lost = ~(complete & np.isfinite(features).all(axis=1)) & (records["header"][:, 0] != 0)
    rows = _packed_or_zero(encoder, features, np.where(complete, labels, np.nan))
    return _marked(rows, np.where(lost, labels, np.nan)) if encoder.marks else rows


def _marked(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Write UNANSWERED and the label to each row whose label here, shape (n,), is a number: a score counts it."""
    chosen = np.isfinite(labels)
    rows[:, 0] = np.where(chosen, UNANSWERED, rows[:, 0])
    rows[:, -1] = np.where(chosen, labels, rows[:, -1])
    return rows


def _packed_or_zero(encoder: Encoder, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return packed rows; a row with a number that is not finite is the zero row."""
    least = _least(encoder)
    if encoder.matrix is None:
        return pack(features, labels, least)
    taken, projected = len(encoder.matrix), np.empty((len(features), encoder.dimension))
    _clip(features, least)
    projected[:, : encoder.dimension - encoder.intercept] = image(features[:, :taken], encoder.matrix)
    projected[:, encoder.dimension - encoder.intercept :] = features[:, taken:]
    return pack(projected, labels)


def _least(encoder: Encoder) -> float:
    """Return the least divisor of a row: 0 where each is divided by its own norm."""
    return 0.0 if encoder.encoding == UNIT else 1.0


@flushed
def _pack_records(encoder: VectorEncoder, raw: Raw, rows: np.ndarray, places: np.ndarray) -> None:
    """Write the packed rows of records of numbers of 8 bytes, those of `_packed`, to their places.

    Numbers below 2⁻¹⁰²² count as 0 before they are scaled, as they otherwise do after it.
    """
    stored = np.frombuffer(raw, record_layout(encoder))["label"]
    labels = encoder.labels.packed(np.ascontiguousarray(stored))
    kernels.compiled.pack_vectors(encoder, raw, labels, rows, places, SHRINK, _least(encoder))


def is_complete(records: np.ndarray) -> np.ndarray:
    """Return whether each array has the declared shape and holds no null."""
    dimensions, nulls, _, length, _ = records["header"].T
    return (dimensions == 1) & (nulls == 0) & (length == records["elements"].shape[1])


def _clip(features: np.ndarray, least: float) -> None:
    """Divide each row by max(1, its norm), or, if `least` is 0, by its norm, in place."""
    features /= np.maximum(_norms(features, least), 1.0)[:, None]


def _norms(features: np.ndarray, least: float) -> np.ndarray:
    """Divide each row by max(least, its largest number), in place, so that no sum overflows; return the new norms (n,).

    A row of zeros is divided by 1. With `least` 0 the new norm of every other row is at least 1.
    """
    largest = np.maximum(np.abs(features).max(axis=1), least)
    features /= (largest + (largest == 0.0))[:, None]
    return np.sqrt(np.einsum("ij,ij->i", features, features))


@flushed
def pack(features: np.ndarray, labels: np.ndarray, least: float = 1.0) -> np.ndarray:
    """Return packed rows whose stored norm is at most 1 as real numbers (privacy.md §14.1).

    Features, shape (n, d), float64, are changed in place. A row whose label, shape (n,), is not finite becomes the zero
    row. `least` = 1 divides the rows that are longer than 1 by their norm; 0 divides every row by its norm.

    With M = max(least, max|x_i|) and u = x / M, x / max(least, ‖x‖) is u / max(1, ‖u‖): no sum overflows and no path
    depends on a value (least = 0: ‖u‖ ≥ 1, since one |u_i| is 1; a row of zeros stays). Proof of the norm: its
    computed value errs by at most a factor 1 + (d + 8)u, the product and the cast to float32 by 1 + 2⁻²⁴ and √d·2⁻¹⁵⁰;
    (1 - 2⁻²²)(1 + 2⁻²⁴)(1 + (d + 8)u) + √d·2⁻¹⁵⁰ < 1 for d ≤ 2²⁸, and by the same errors the other way it is above
    1 - 2⁻²¹ where least = 0. A row with a value that is not finite becomes the zero row. Numbers below 2⁻¹²⁶ are
    stored as 0.
    """
    rows = np.empty((len(features), blocks.stride_of(features.shape[1])), blocks.ELEMENT)
    kernels.compiled.pack(features, np.ascontiguousarray(labels, np.float64), rows, SHRINK, least)
    return rows
