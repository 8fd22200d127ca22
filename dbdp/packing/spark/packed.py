"""The packed rows of a dataset on Spark: implements `dbdp.algorithms.rows.Rows`, but for noise during training.

Blocks are DataFrames of (part, number, block), kept by Spark in memory and on disk. A part is a range of one secret
order: for epochs a whole slice, which one task trains on; for sums a piece of a slice, so that many tasks share the
work. The sums of the parts are added in the order of the parts, whatever the order of the tasks: those of many parts
TOGETHER at a time by workers, and what is left in the driver.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from dbdp.algorithms.rows import Layout, Progress, silent
from dbdp.learning import kernels
from dbdp.learning.counts import tallies
from dbdp.learning.objectives import Objective, additive, objective_from
from dbdp.learning.rows import blocks
from dbdp.learning.rows.column_blocks import Placed
from dbdp.learning.rows.encoding import Encoder, RandomProjection
from dbdp.learning.rows.placed_encoding import in_places
from dbdp.learning.second_moments import OtherCoordinates, SecondMoment
from dbdp.learning.state import State
from dbdp.packing.shuffle_options import KEY_BYTES, Coding
from dbdp.packing.spark import workers
from dbdp.packing.spark.jobs import collected, unlogged
from dbdp.packing.spark.masks import Sealed, masked
from dbdp.packing.spark.workers import Piece
from dbdp.privacy.shuffling import KeyedOrder
from dbdp.registry.datasets import RegisteredDataset

PART_BYTES = 1 << 25  # packed rows of one task of a sum; a public fact, so that every cluster adds alike
MOST_PARTS = 4096  # of more rows each part is larger
TOGETHER = 64  # parts whose sums a worker adds, and so sums that the driver holds


class Source(Protocol):
    """Where the workers read the rows of a dataset, each with its slot."""

    @property
    def rows(self) -> int:
        """Number of rows, public."""

    def encoder(self, dataset: RegisteredDataset, projection: RandomProjection | None) -> Encoder:
        """Return the encoder of the records that the workers read."""

    def read(self, spark: Any, dataset: RegisteredDataset, encoder: Encoder) -> tuple[Any, workers.Read]:
        """Return a DataFrame, and what reads its batches in a worker."""


@dataclass
class SparkRows:
    """The rows of a source on Spark, packed in the order of a secret key at their first use after `shuffle`."""

    spark: Any  # the session of Spark, classic or Connect
    dataset: RegisteredDataset  # the registered dataset
    source: Source  # where the workers read its rows
    layout: Layout  # how the rows are packed
    progress: Progress = silent
    joins_epochs = True
    _key: bytes = b""
    _pad: bytes = field(default_factory=lambda: os.urandom(KEY_BYTES))
    _packed: dict[tuple[int, ...], Any] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)
    _measured: Any = None

    def shuffle(self) -> None:
        """Draw a new secret order; the rows are packed when they are first needed."""
        self.close()
        self._key = os.urandom(KEY_BYTES)

    def pack(self) -> None:
        """Pack as `shuffle`, whose order costs nothing here."""
        self.shuffle()

    def close(self) -> None:
        """Free the blocks."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()
        self._packed.clear()
        self._measured = None

    def slice(self, number: int) -> "SliceRows":
        """Return one slice as rows of its own."""
        return SliceRows(self, number)

    def epoch(self, states: Sequence[list[bytes]], passes: int = 1) -> list[list[bytes]]:
        """Return the states of the models of each slice after epochs of SGD over it, all of them in one job."""
        return self.epoch_of(range(len(self.layout.slices)), states, passes)

    def epoch_of(self, slices: Sequence[int], states: Sequence[list[bytes]], passes: int = 1) -> list[list[bytes]]:
        """As `epoch`, for some slices."""
        equal: dict[bytes, bytes] = {}  # equal states, as all are at the start, are sent to a worker once
        numbered = zip(slices, map(b"".join, states), strict=True)
        joined = {number: equal.setdefault(state, state) for number, state in numbered}
        task = workers.Epochs(tuple(joined.get(part, b"") for part in range(len(self.layout.slices))), passes)
        scanned, scan = self._scanned(self.blocks(self.layout.slices), task, slices)
        moved = self._results(scanned, scan.seed, slices)
        return [[state.encode() for state in State.decode_each(each)] for each in moved]

    def gradient_sum(
        self, objective: Objective, model: np.ndarray, *, clip: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' clipped gradients, shape (P,), in the coordinates of the last `transform`."""
        if self._measured is None:
            return self.sum_of(partial(_gradient, json.dumps(objective.as_data()), model, clip))
        frame, moved, placed = self._measured
        how = json.dumps((additive(objective, placed.rows_of) if placed else objective).as_data())
        of_piece = partial(_gradient, how, moved.models(model).ravel(), clip)
        return moved.gradients(self.sum_of(of_piece, frame=frame))

    def loss_sums(
        self, objective: Objective, models: np.ndarray, *, limit: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' clipped losses for each of C models, shape (C,)."""
        return self.sum_of(partial(_losses, json.dumps(objective.as_data()), models, limit))

    def second_moment(self) -> np.ndarray:
        """Return Σ xxᵀ over the rows, shape (d, d)."""
        dimension = self.layout.dimension
        return self.sum_of(partial(_second_moment, dimension)).reshape(dimension, dimension)

    def joint_moment(self, labels: int, weight: float) -> np.ndarray:
        """Return Σ zzᵀ over z = (x, weight·y), the rows and their labels, shape (d + labels, d + labels)."""
        size = self.layout.dimension + labels
        return self.sum_of(partial(_joint_moment, self.layout.dimension, labels, weight)).reshape(size, size)

    def transform(self, matrix: np.ndarray, placed: Placed | None = None) -> None:
        """Sum gradients at matrix·x for each packed row x until they are packed anew; keep the lengths of these."""
        measure = workers.Measure(matrix, self._pad, placed)
        with_lengths = self.blocks(self._pieces()).mapInArrow(measure.__call__, workers.MEASURED)
        self._measured = self._keep(with_lengths), OtherCoordinates(matrix), placed

    def label_counts(self, classes: int) -> np.ndarray:
        """Return how many rows have each label, shape (max(2, classes),)."""
        return self.sum_of(partial(_label_counts, classes), "<i8")

    def errors(self, models: np.ndarray) -> int:
        """Return how many rows the models (outputs, dimension) classify wrongly; a zero row counts as an error."""
        return int(self.sum_of(partial(_errors, models), "<i8").item())

    def tally(self, vectors: np.ndarray, tally: dict[str, Any]) -> np.ndarray:
        """Return the exact tally of the rows by their labels and scores; see `controller.statistics.noisy_scores`."""
        return self.sum_of(partial(_tally, vectors, tally), "<i8")

    def sum_of(
        self,
        of_block: Callable[[Piece], np.ndarray],
        kind: str = "<f8",
        *,
        frame: Any = None,
        number: int | None = None,
    ) -> np.ndarray:
        """Return the sum of an array over all blocks, or over those of one slice."""
        frame = self.blocks(self._pieces()) if frame is None else frame
        parts = range(len(self._pieces())) if number is None else self._parts_of(number)
        scanned, scan = self._scanned(frame, workers.Sum(of_block), parts)
        if len(parts) <= TOGETHER:
            results = self._results(scanned, scan.seed, parts)
        else:
            add = workers.Add(scan, kind, TOGETHER, parts)
            near = scanned.repartitionById(len(add.numbers), (scanned.part / TOGETHER).cast("int"))
            results = self._results(near.mapInArrow(add.__call__, workers.RESULTS), add.seed, add.numbers)
        return workers.added([np.frombuffer(each, kind) for each in results])

    def _pieces(self) -> tuple[int, ...]:
        """Return the sizes of the parts of sums: slices, cut into pieces of at most PART_BYTES."""
        return tuple(size for rows in self.layout.slices for size in self._cut(rows))

    def _cut(self, rows: int) -> list[int]:
        row_bytes = blocks.row_bytes(self.layout.dimension)
        most = max(1, PART_BYTES // row_bytes, -(-self.source.rows // MOST_PARTS))
        count = -(-rows // most)
        return [rows * (place + 1) // count - rows * place // count for place in range(count)]

    def _parts_of(self, number: int) -> range:
        """Return the parts of sums that are in a slice."""
        ends = [0, *accumulate(len(self._cut(rows)) for rows in self.layout.slices)]
        return range(ends[number], ends[number + 1])

    def _scanned(self, frame: Any, task: Any, parts: Sequence[int]) -> tuple[Any, workers.Scan]:
        """Return a DataFrame with a task's result for each of some parts, and what computes it."""
        if len(parts) < len(self._packed_parts(frame)):
            frame = frame.filter(frame.part.isin(list(parts)))
        scan = workers.Scan(Sealed(task), self.layout.dimension, self._pad)
        return frame.mapInArrow(scan.__call__, workers.RESULTS), scan

    def _results(self, scanned: Any, seed: Callable[[int], bytes], parts: Sequence[int]) -> list[bytes]:
        """Run a job, and return the result of each part, in their order."""
        found = collected(scanned, self.spark)
        if sorted(row.part for row in found) != sorted(parts):
            raise workers.PublicError(workers.INCOMPLETE)
        results = {row.part: masked(bytes(row.result), seed(row.part)) for row in found}
        return [results[part] for part in parts]

    def _packed_parts(self, frame: Any) -> tuple[int, ...]:
        return next((sizes for sizes, packed in self._packed.items() if packed is frame), self._pieces())

    def blocks(self, sizes: tuple[int, ...]) -> Any:
        """Return the blocks of parts of these sizes as a DataFrame, packed at the first call after `shuffle`."""
        if sizes not in self._packed:
            order, borders = self._order(sizes)
            coding = self.layout.coding
            dataset = Coding(**coding).of(self.dataset) if coding else self.dataset
            encoder = replace(self.source.encoder(dataset, self.layout.projection), marks=self.layout.marks)
            encoder = in_places(encoder) if self.layout.in_places else encoder
            frame, read = self.source.read(self.spark, dataset, encoder)
            pack = workers.Pack(encoder, order, read, borders)
            chunks = frame.mapInArrow(pack.__call__, workers.CHUNKS)
            chunks = chunks.repartitionById(len(sizes), chunks.part)
            place = workers.Place(order, encoder.dimension, sizes, self._pad)
            self._packed[sizes] = self._keep(chunks.mapInArrow(place.__call__, workers.BLOCKS))
        return self._packed[sizes]

    def _order(self, sizes: tuple[int, ...]) -> tuple[KeyedOrder, np.ndarray]:
        """Return the secret order, and the first word of each part but the first one; draw again at a tie."""
        while True:
            order = KeyedOrder(self._key, self.source.rows)
            borders = order.words_at(list(accumulate(sizes))[:-1])
            if borders is not None:
                return order, borders
            self._key = os.urandom(KEY_BYTES)

    def _keep(self, frame: Any) -> Any:
        kept = frame.persist()
        self._kept.append(kept)
        return kept


@dataclass(frozen=True)
class SliceRows:
    """One slice of packed rows; it cannot be packed again."""

    rows: SparkRows
    number: int
    joins_epochs = True

    def epoch(self, states: Sequence[list[bytes]], passes: int = 1) -> list[list[bytes]]:
        """Return the states of the slice's models after epochs of SGD."""
        return self.rows.epoch_of([self.number], states, passes)

    def errors(self, models: np.ndarray) -> int:
        """Return how many rows of the slice the models classify wrongly."""
        return int(self.rows.sum_of(partial(_errors, models), "<i8", number=self.number).item())

    def loss_sums(self, objective: Objective, models: np.ndarray, *, limit: float) -> np.ndarray:
        """Return the sum of the clipped losses of the slice's rows for each of C models, shape (C,)."""
        return self.rows.sum_of(partial(_losses, json.dumps(objective.as_data()), models, limit), number=self.number)


@contextmanager
def rows_on_spark(
    spark: Any, dataset: RegisteredDataset, source: Source, layout: Layout, progress: Progress = silent
) -> Iterator[SparkRows]:
    """Yield packed rows on Spark, and free their blocks at the end; none is packed yet."""
    rows = SparkRows(spark, dataset, source, layout, progress)
    with unlogged(), closing(rows):
        yield rows


def _gradient(objective: str, model: np.ndarray, clip: float, piece: Piece) -> np.ndarray:
    lengths = {} if piece.lengths is None else {"lengths": piece.lengths}
    return objective_from(objective).gradient_sum(model, piece.rows, clip=clip, **lengths)


def _losses(objective: str, models: np.ndarray, limit: float, piece: Piece) -> np.ndarray:
    return objective_from(objective).loss_sums(models, piece.rows, limit=limit)


def _second_moment(dimension: int, piece: Piece) -> np.ndarray:
    return SecondMoment(dimension).of_rows(piece.rows)


def _joint_moment(dimension: int, labels: int, weight: float, piece: Piece) -> np.ndarray:
    return SecondMoment(dimension, labels, weight).of_rows(piece.rows)


def _label_counts(classes: int, piece: Piece) -> np.ndarray:
    return tallies.Labels(classes)(piece.rows[:, :0], piece.rows[:, -1]).astype("<i8")


def _errors(models: np.ndarray, piece: Piece) -> np.ndarray:
    return np.array([kernels.count_errors(models, piece.rows)], "<i8")


def _tally(vectors: np.ndarray, tally: dict[str, Any], piece: Piece) -> np.ndarray:
    return tallies.tally_of_rows(vectors.ravel(), piece.rows, tally).astype("<i8")
