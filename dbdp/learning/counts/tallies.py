"""Tallies: counts and sums over packed rows, by their labels and by the scores of a released model.

A row's contribution depends on its label and its own scores alone, and no value of them raises an error. Tallies of
several blocks add up. A row without an answer has NaN as scores: tallies that are `partial` count it apart.
Shapes: scores (n, outputs) float64, labels (n,) as in `blocks`; a tally is a vector of int64.
"""

from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from dbdp.learning.compiled.arithmetic import exponential
from dbdp.learning.counts import residual_tables, score_tables
from dbdp.learning.counts.block_moments import BlockMoments
from dbdp.learning.counts.cut_moments import CutMoment
from dbdp.learning.counts.entry_moments import EntryMoment
from dbdp.learning.counts.label_tables import LabelTables
from dbdp.learning.counts.product_sums import ProductTally, pieces
from dbdp.learning.objectives import objective_from
from dbdp.learning.rows import placed
from dbdp.learning.rows.column_blocks import RowBlocks, row_blocks_from
from dbdp.learning.rows.encoding import UNANSWERED
from dbdp.learning.rows.products import ProductRows, product_rows


def linear_scores(models: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the scores (n, outputs) of linear models; a row's depend on it and the models alone, to the last bit.

    Each is a sum over the row's own products, in an order that its length decides: not on the number of the
    other rows, as a matrix product of BLAS does.
    """
    features = rows[:, : models.shape[1]].astype(np.float64)
    scores = np.empty((len(rows), len(models)))
    with np.errstate(all="ignore"):
        for output, model in enumerate(models):
            scores[:, output] = (features * model).sum(axis=1)
    return scores


def true_classes(labels: np.ndarray, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows have a valid label, shape (n,), and for these the class, counted from 0."""
    numbers = labels.astype(np.float64)
    if outputs == 1:
        valid, places = np.abs(numbers) == 1.0, (numbers + 1.0) / 2.0
    else:
        valid, places = (numbers >= 1.0) & (numbers <= outputs) & (numbers == np.floor(numbers)), numbers - 1.0
    return valid, places[valid].astype(np.int64)


def unanswered(scores: np.ndarray) -> np.ndarray:
    """Return which rows have no answer, shape (n,)."""
    return np.isnan(scores).any(axis=1)


def confusion(scores: np.ndarray, labels: np.ndarray, *, partial: bool = False) -> np.ndarray:
    """Return the confusion matrix (K, K), int64; a row without a valid label is not counted.

    A single score above 0 predicts +1; of several the largest decides, the first of equal ones. A NaN raises no
    error: whatever a row contains, it is in at most one cell. If `partial`, rows without an answer are in one more
    column.
    """
    classes = max(scores.shape[1], 2)
    width = classes + partial
    valid, true = true_classes(labels, scores.shape[1])
    predicted = scores[:, 0] > 0.0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    if partial:
        predicted = np.where(unanswered(scores), classes, predicted)
    return np.bincount(width * true + predicted[valid], minlength=classes * width).reshape(classes, width)


STEPS = 2**20  # per unit of a packed label: rounds an error by a millionth of half the label's range


@dataclass(frozen=True)
class Confusion:
    """Rows by true and predicted class, row-major; see `confusion`."""

    partial: bool = False

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (K²,), or (K² + K,)."""
        return confusion(scores, labels, partial=self.partial).ravel()


@dataclass(frozen=True)
class Correct:
    """Rows whose predicted class is right; a row without a label is not counted."""

    wrong: bool = False  # whether the other rows with a label are counted too
    partial: bool = False

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (1,), (2,) or (3,): right rows, then wrong ones, then those without an answer."""
        matrix = confusion(scores, labels, partial=self.partial)
        right, answered = np.trace(matrix), matrix[:, : len(matrix)].sum()
        lost = [matrix.sum() - answered] if self.partial else []
        return np.array([right, answered - right, *lost] if self.wrong else [right])


@dataclass(frozen=True)
class Labels:
    """Rows of each label; rows without one are not counted. `classes` = 1 stands for -1 and +1."""

    classes: int
    partial: bool = False

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (max(2, K),); if `partial`, of rows with an answer, and then how many others there are."""
        valid, true = true_classes(labels, self.classes)
        classes = max(self.classes, 2)
        places = np.where(unanswered(scores)[valid], classes, true) if self.partial else true
        return np.bincount(places, minlength=classes + self.partial)


@dataclass(frozen=True)
class ScoreBins:
    """Rows of other classes, then rows of one class, by the predicted probability of that class.

    The bins are [0, 1/B), …, [(B - 1)/B, 1]. A NaN is counted in the first bin; rows without a label are not
    counted.
    """

    bins: int  # B
    output: int  # the score of that class, from 0; of one output, the label +1's
    # Whether the scores of several classes are a network's; else each has a logistic probability of its own.
    softmax: bool
    # Whether a row of a binary label is in the upper half of the bins if and only if its score is above 0, as it is
    # decided, also where its probability rounds to 1/2.
    parted: bool = False
    partial: bool = False

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (2B,); if `partial`, (2B + 2,): rows without an answer are in one more bin of each."""
        valid, true = true_classes(labels, scores.shape[1])
        with np.errstate(all="ignore"):
            places = np.nan_to_num(self._probabilities(scores[valid]) * self.bins)
        bins = np.clip(places, 0, self.bins - 1).astype(np.int64)
        if self.parted:
            middle = self.bins // 2
            bins = np.where(scores[valid, 0] > 0.0, np.maximum(bins, middle), np.minimum(bins, middle - 1))
        if self.partial:
            bins = np.where(unanswered(scores)[valid], self.bins, bins)
        positive, width = true == (self.output if scores.shape[1] > 1 else 1), self.bins + self.partial
        return np.bincount(width * positive + bins, minlength=2 * width)

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        if not self.softmax or scores.shape[1] == 1:
            return 1.0 / (1.0 + exponential(-scores[:, self.output]))
        return 1.0 / exponential(scores - scores[:, [self.output]]).sum(axis=1)


@dataclass(frozen=True)
class Scores:
    """Rows by class and score, see `score_tables`; rows without a label are not counted."""

    softmax: bool  # whether the scores of several classes are softmax's: each class is counted by its log-odds then
    # Whether the last score is none, but a row's coordinate of the intercept, from 0 to 1: a last number adds them up.
    has_constant: bool = False

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally, a table (outputs, 2, NODES) as a vector, and the sum of the constants, in PARTS of 1."""
        own = scores[:, :-1] if self.has_constant else scores
        valid, true = true_classes(labels, own.shape[1])
        counted = own[valid]
        if self.softmax and own.shape[1] > 1:
            counted = score_tables.against_the_rest(counted)
        table = score_tables.table(counted, true).ravel()
        return np.append(table, score_tables.parts(scores[valid, -1]).sum()) if self.has_constant else table


@dataclass(frozen=True)
class NumberCells:
    """Rows by a label that is a number, in equal cells of [low, high]; a label beyond them is in the nearest cell."""

    low: float
    high: float
    cells: int

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (cells,); rows without a label are not counted."""
        present = labels[~np.isnan(labels)].astype(np.float64)
        places = (np.clip(present, self.low, self.high) - self.low) * (self.cells / (self.high - self.low))
        return np.bincount(np.clip(places, 0, self.cells - 1).astype(np.int64), minlength=self.cells)


OCTAVES = 20  # of residuals in packed labels: (1, 2], (1/2, 1], …, [0, 2⁻¹⁸]


@dataclass(frozen=True)
class Residuals:
    """Rows by the residual, score less label: those at most 0, then the others, each by octaves from 2 down."""

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (2·OCTAVES,); rows without a label are not counted."""
        numbers = labels.astype(np.float64)
        residuals = np.nan_to_num(scores[:, 0]) - numbers
        present = ~np.isnan(numbers)
        exponents = np.frexp(np.clip(np.abs(residuals[present]), 2.0**-OCTAVES, 1.75))[1]  # 2^(e - 1) ≤ |r| < 2^e
        octaves = np.clip(1 - exponents, 0, OCTAVES - 1)
        return np.bincount(OCTAVES * (residuals[present] > 0) + octaves, minlength=2 * OCTAVES)


@dataclass(frozen=True)
class Squares:
    """Sums over the rows of squared error / bound², y², y = (label - centre) / half, and 1, in steps of 1/STEPS.

    The prediction is clipped to [-1, 1], its error to ±bound, and y to ±1; a zero row, whose label is NaN here, adds
    nothing.
    """

    bound: float
    centre: float = 0.0
    half: float = 1.0

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (4,)."""
        present = ~np.isnan(labels)
        true = np.clip(labels[present].astype(np.float64), -1.0, 1.0)
        errors = np.clip(np.nan_to_num(scores[present, 0]), -1.0, 1.0) - true
        squares = np.minimum(np.square(errors / self.bound), 1.0)
        places = np.clip((true - self.centre) / self.half, -1.0, 1.0)
        sums = np.stack([squares, np.square(places), places, np.ones(len(true))])
        return np.rint(sums * STEPS).astype(np.int64).sum(axis=1)


@dataclass(frozen=True)
class Errors:
    """Sum over the rows of |prediction - label|^power, in steps of 1/STEPS; both are clipped to [-1, 1].

    A zero row, whose label is NaN here, has no error.
    """

    power: int  # 1 or 2
    rows: bool = False  # whether the rows with a label are counted too, each as `most`
    partial: bool = False

    @property
    def most(self) -> int:
        """The largest contribution of one row; the smallest is 0."""
        return STEPS * 2**self.power

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally (1,), (2,) or (3,): the errors, then the rows, then those without an answer, as the rows."""
        predicted, true = (np.clip(np.nan_to_num(each), -1.0, 1.0) for each in (scores[:, 0], labels.astype(float)))
        errors, present = np.rint(np.abs(predicted - true) ** self.power * STEPS), ~np.isnan(labels)
        lost = present & unanswered(scores) & self.partial
        total = np.where(present & ~lost, errors, 0.0).astype(np.int64).sum()
        counted = [np.count_nonzero(present & ~lost), np.count_nonzero(lost)][: self.rows + self.partial]
        return np.array([total, *(self.most * count for count in counted)])


@dataclass(frozen=True)
class ResidualsAndLabels:
    """Rows by the residual, and by the label, see `residual_tables`; each is 1 in steps of 1/STEPS, in both tables.

    The prediction is clipped to [-1, 1]. A zero row, whose label is NaN here, adds nothing. If `partial`, a row without
    an answer has no residual, and its label is in further cells.
    """

    partial: bool = False

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the tally, both tables one after the other."""
        true, lost = np.clip(labels.astype(np.float64), -1.0, 1.0), unanswered(scores) & self.partial
        present = ~np.isnan(true)
        counted = present & ~lost
        residuals = np.clip(np.nan_to_num(scores[counted, 0]), -1.0, 1.0) - true[counted]
        of_labels = [residual_tables.of_labels(true[which], STEPS) for which in (counted, present & lost)]
        return np.concatenate([residual_tables.of_residuals(residuals, STEPS), *of_labels[: 1 + self.partial]])


ScoreTally = (
    Confusion | Correct | Labels | NumberCells | ScoreBins | Scores | Residuals | Squares | Errors | ResidualsAndLabels
)
Tally = ScoreTally | BlockMoments | LabelTables | CutMoment | EntryMoment | ProductTally
_KINDS: dict[str, type[Tally]] = {kind.__name__: kind for kind in get_args(Tally)}


def as_data(tally: Tally) -> dict[str, Any]:
    """Return a tally as data, for `tally_from`."""
    return {"kind": type(tally).__name__} | asdict(tally)


def described(
    tally: Tally, *, outputs: int, dimension: int, network: str | None = None, rows_of: RowBlocks | None = None
) -> dict[str, Any]:
    """Return a tally of scores, with the shape or the network of the models, as `tally_of_rows` reads it.

    `rows_of` are the blocks of rows in places.
    """
    shared = {"tally": as_data(tally), "outputs": outputs, "network": network}
    if rows_of is None:
        return shared | {"dimension": dimension}
    return shared | {"dimension": rows_of.places, "placed": rows_of.as_data()}


def tally_from(data: dict[str, Any]) -> Tally:
    """Return the tally of `as_data`."""
    fields = dict(data)
    return _KINDS[fields.pop("kind")](**fields)


def tally_of_rows(vectors: np.ndarray, rows: np.ndarray, described: dict[str, Any]) -> np.ndarray:
    """Return the tally of packed rows by their labels and a model's scores; a zero row has no label.

    Vectors (P,) are the linear models, one after the other, or the parameters of a network; rows have the shape (n,
    stride). Described are `tally` as `as_data` describes it, the description of the `network` or None, and the number
    of `outputs`. A tally of the rows themselves needs no model. If `products` are described, models are of those
    coordinates.
    """
    counted = tally_from(described["tally"])
    labels = np.where(np.abs(rows).max(axis=1) > 0.0, rows[:, -1], np.nan)
    if described.get("products"):
        seen = product_rows(described["products"])
        return np.sum([_of_products(counted, seen, vectors, rows[each], labels[each]) for each in pieces(rows)], axis=0)
    if isinstance(counted, BlockMoments | LabelTables):
        return counted.of_rows(rows, labels)
    if isinstance(counted, EntryMoment):
        return counted.of_rows(rows)
    if isinstance(counted, CutMoment):
        return counted.of_rows(vectors.reshape(described["outputs"], -1), rows)
    if isinstance(counted, ProductTally):
        raise ValueError("a tally of products needs their description; pass products")
    scores = _scores(vectors, rows, described)
    return counted(np.where(rows[:, :1] == UNANSWERED, np.nan, scores), labels)


def _scores(vectors: np.ndarray, rows: np.ndarray, described: dict[str, Any]) -> np.ndarray:
    if described["network"] is not None:
        return objective_from(described["network"]).scores(vectors, rows)  # type: ignore[attr-defined]
    models = vectors.reshape(described["outputs"], -1)
    if "placed" in described:
        return placed.scores(models, rows, row_blocks_from(**described["placed"]))
    return linear_scores(models, rows)


def _of_products(
    counted: Tally, seen: ProductRows, vectors: np.ndarray, rows: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Return the tally of rows in other coordinates, in which a model has one output.

    NumPy adds up the only row of an array in another order than those of several: it has a zero row with it.
    """
    if len(rows) == 1:
        rows, labels = np.vstack([rows, np.zeros_like(rows)]), np.append(labels, np.nan)
    coordinates = seen.of_rows(rows)
    if isinstance(counted, ProductTally):
        return counted(vectors, coordinates, labels)
    return counted((vectors[:, None] * coordinates).sum(axis=0)[:, None], labels)  # type: ignore[operator]
