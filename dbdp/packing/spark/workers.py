"""What runs in Spark's workers: packing, placing, and passes over blocks; functions of Arrow batches for mapInArrow.

Each is a pure function of the secret key and the rows, and none depends on the order in which rows arrive: a task that
is retried, speculative or split differently computes the same bytes. The key is in the function, which Spark sends to
its workers pickled, and in no SQL expression, which Spark would log. None raises because of a row's value, and every
error has a constant text. No noise is drawn here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import pyarrow as pa

import dbdp
from dbdp.learning import kernels
from dbdp.learning.compiled.sums import total_of, value, with_part
from dbdp.learning.rows import blocks
from dbdp.learning.rows.column_blocks import Placed
from dbdp.learning.rows.encoding import HEADER_BYTES, NO_ARRAY, Encoder, record_layout
from dbdp.learning.state import State
from dbdp.packing.spark.columns import LABEL, VALUES
from dbdp.packing.spark.masks import Named, Sealed, masked, padded
from dbdp.privacy.shuffling import KeyedOrder
from dbdp.sessions.errors import PUBLIC_SQLSTATE

CHANGED = "a source file changed while it was read"
INCOMPLETE = "rows of the source are missing, or are there twice"
UNREADABLE = "a worker could not read the table in PostgreSQL"
FAILED = "a worker of dbdp failed"
CHUNKS = "part int, slots binary, words binary, rows binary"
BLOCKS = "part int, number int, block binary"
MEASURED = "part int, number int, block binary, lengths binary"
RESULTS = "part int, result binary"
VERSION = "version string"

Batches = Iterator[pa.RecordBatch]
Pass = Callable[[Any, Batches], Batches]
Read = Callable[[Batches], Iterator[tuple[np.ndarray, bytes]]]  # slots (n,), and their raw records


class PublicError(RuntimeError):
    """An error whose text is constant."""

    sqlstate = PUBLIC_SQLSTATE  # so that the ledger has its text


def guarded(function: Pass) -> Pass:
    """Replace the text of any error by a constant one, since it may quote a row."""

    @wraps(function)
    def run(self: Any, batches: Batches) -> Batches:
        try:
            yield from function(self, batches)
        except PublicError:
            raise
        except Exception:
            raise PublicError(FAILED) from None

    return run


def version(batches: Batches) -> Batches:
    """Yield the version of dbdp that a worker has, for each batch."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"version": [dbdp.__version__]})


@dataclass(frozen=True)
class Pack:
    """Packs rows, and finds the part of the secret order to which each belongs."""

    encoder: Encoder  # decodes raw records
    order: KeyedOrder  # the secret order of the slots
    read: Read  # yields slots and their raw records, for a task's batches
    borders: np.ndarray  # first word of every part but the first one, uint64, increasing

    @guarded
    def __call__(self, batches: Batches) -> Batches:
        """Yield chunks of packed rows of one part each."""
        for slots, raw in self.read(batches):
            yield self._chunks(slots, self.encoder.rows(raw))

    def _chunks(self, slots: np.ndarray, rows: np.ndarray) -> pa.RecordBatch:
        words = self.order.words_of(slots)
        parts = np.searchsorted(self.borders, words, side="right").astype(np.int32)
        order = np.argsort(parts, kind="stable")
        present, begins = np.unique(parts[order], return_index=True)
        pieces = [[piece.tobytes() for piece in np.split(each[order], begins[1:])] for each in (slots, words, rows)]
        pieces[2] = [masked(piece, _seed(self.order, first)) for piece, first in zip(pieces[2], pieces[0], strict=True)]
        columns = {"part": pa.array(present), **dict(zip(("slots", "words", "rows"), pieces, strict=True))}
        return pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})


@dataclass(frozen=True)
class FileRows:
    """Reads batches of (tag, place, label, values) of files."""

    encoder: Encoder  # that of `columns.encoder_of`
    first_slots: Mapping[int, int]  # first slot of each file, by the file's tag

    def __call__(self, batches: Batches) -> Iterator[tuple[np.ndarray, bytes]]:
        """Yield slots and raw records; raise for a row of another file."""
        for batch in batches:
            if batch.num_rows:
                yield self._slots(batch), raw_records(self.encoder, batch)

    def _slots(self, batch: pa.RecordBatch) -> np.ndarray:
        tags, each = np.unique(batch.column("tag").to_numpy(), return_inverse=True)
        if any(tag not in self.first_slots for tag in tags.tolist()):
            raise PublicError(CHANGED)
        firsts = np.array([self.first_slots[tag] for tag in tags.tolist()], np.int64)
        return firsts[each] + batch.column("place").to_numpy()


def raw_records(encoder: Encoder, batch: pa.RecordBatch) -> bytes:
    """Return raw records, as the server would return them, for batches of (label, values).

    One whose array is null or of another length has no numbers, and is packed as the zero row.
    """
    values = batch.column(VALUES)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    records = np.zeros(len(values), record_layout(encoder))
    ends = values.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    complete = ends == encoder.length
    if not complete.all():
        values = values.filter(pa.array(complete))
    numbers = values.flatten().to_numpy(zero_copy_only=False).reshape(-1, encoder.length)
    records["elements"][complete] = numbers
    records["header"][:, 0] = NO_ARRAY
    records["header"][complete] = np.array([1, 0, 0, encoder.length, 1], "<i4")[: HEADER_BYTES // 4]
    labels = batch.column(LABEL).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    unknown = 0.0 if encoder.labels.layout == "<i4" else np.nan
    records["label"] = np.where(np.isnan(labels), unknown, labels)
    return records.tobytes()


@dataclass(frozen=True)
class Place:
    """Sorts the chunks of each part by their words, and cuts them to blocks."""

    order: KeyedOrder  # the secret order of the slots
    dimension: int  # coordinates of a packed row
    sizes: tuple[int, ...]  # public number of rows of each part
    pad: bytes  # seed of the mask of blocks

    @guarded
    def __call__(self, batches: Batches) -> Batches:
        """Yield blocks; raise if a part does not have exactly its public number of rows, each of another slot."""
        parts: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            for row, part in enumerate(batch.column("part").to_pylist()):
                parts.setdefault(part, []).append(batch.slice(row, 1))
        for part in sorted(parts):
            yield from self._blocks(part, parts.pop(part))

    def _blocks(self, part: int, chunks: list[pa.RecordBatch]) -> Batches:
        slots, words, rows = self._joined(part, chunks)
        by_slot = np.argsort(slots, kind="stable")
        if (np.diff(slots[by_slot]) == 0).any():
            raise PublicError(INCOMPLETE)
        order, together = by_slot[self.order.order(words[by_slot])], blocks.rows_per_block(self.dimension)
        for number, first in enumerate(range(0, len(rows), together)):
            named = Named("block", part, number)
            block = padded(rows[order[first : first + together]].tobytes(), self.pad, named).tobytes()
            yield _batch(part=pa.array([part], pa.int32()), number=pa.array([number], pa.int32()), block=[block])

    def _joined(self, part: int, chunks: list[pa.RecordBatch]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return slots, words and rows of all chunks, each of which is freed once it is copied."""
        size, first = self.sizes[part], 0
        slots, words = np.empty(size, np.int64), np.empty(size, np.uint64)
        rows = np.empty((size, blocks.stride_of(self.dimension)), blocks.ELEMENT)
        while chunks:
            chunk = chunks.pop()
            own, word, row = (chunk.column(name)[0].as_buffer() for name in ("slots", "words", "rows"))
            here = slice(first, first := first + own.size // slots.itemsize)
            if first > size:
                break
            slots[here], words[here] = np.frombuffer(own, "<i8"), np.frombuffer(word, "<u8")
            plain = masked(row, _seed(self.order, own[:8].to_pybytes()))
            rows[here] = np.frombuffer(plain, blocks.ELEMENT).reshape(-1, rows.shape[1])
        if first != size:
            raise PublicError(INCOMPLETE)
        return slots, words, rows


def _seed(order: KeyedOrder, slots: bytes) -> bytes:
    """Return the seed of the mask of a chunk, which has these slots."""
    return order.key + b"mask" + slots[:8]


@dataclass(frozen=True)
class Measure:
    """Stores beside each block bounds on the lengths of its rows times a matrix, (d, d); `pad` masks both."""

    matrix: np.ndarray
    pad: bytes
    placed: Placed | None = None  # of rows in places

    @guarded
    def __call__(self, batches: Batches) -> Batches:
        """Yield each batch with its lengths."""
        for batch in batches:
            numbers = list(zip(batch.column("part").to_pylist(), batch.column("number").to_pylist(), strict=True))
            lengths = []
            for place, block in zip(numbers, batch.column("block"), strict=True):
                found = self._found(padded(block.as_buffer(), self.pad, Named("block", *place)))
                lengths.append(padded(found, self.pad, Named("lengths", *place)).tobytes())
            columns = {name: batch.column(name) for name in ("part", "number", "block")}
            yield _batch(**columns, lengths=lengths)

    def _found(self, block: np.ndarray) -> bytes:
        from dbdp.learning import second_moments
        from dbdp.learning.rows import placed

        if self.placed is None:
            return second_moments.lengths_by(self.matrix)(blocks.decode(block, len(self.matrix))).tobytes()
        return placed.measured(blocks.decode(block, self.placed.rows_of.places), self.placed).tobytes()


def _batch(**columns: Any) -> pa.RecordBatch:
    """Return a batch; texts of bytes become binary columns."""
    made = (pa.array(column, pa.binary()) if isinstance(column, list) else column for column in columns.values())
    return pa.RecordBatch.from_arrays(list(made), names=list(columns))


@dataclass(frozen=True)
class Piece:
    """A block of a part: its rows, and the bounds on their lengths that `Measure` stored, or None."""

    rows: np.ndarray
    lengths: np.ndarray | None


@dataclass(frozen=True)
class Scan:
    """A pass over the blocks of each part, in order: one result for each part."""

    # A function that computes a part's result from its number and its blocks, (int, Iterable[Piece]) → bytes.
    task: Sealed
    dimension: int  # coordinates of a packed row
    pad: bytes  # seed of the mask of blocks

    @guarded
    def __call__(self, batches: Batches) -> Batches:
        """Yield the result of each part, masked."""
        cursor, task = _Cursor(batches, self.dimension, self.pad), self.task.opened()
        while (part := cursor.next_part()) is not None:
            result = masked(task(part, cursor.pieces(part)), self.seed(part))
            yield _batch(part=pa.array([part], pa.int32()), result=[result])

    def seed(self, part: int) -> bytes:
        """Return the seed of the mask of a part's result."""
        return self.task.seed + b"result" + part.to_bytes(4, "little")


@dataclass(frozen=True)
class Add:
    """Adds the sums of consecutive parts, in their order: a level of a tree, of which each part's sum is a leaf."""

    scan: Scan  # computed the sums
    kind: str  # type of their elements
    together: int  # number of parts that are added: those from `together` times a number on have that number
    parts: range  # all parts that were scanned

    @guarded
    def __call__(self, batches: Batches) -> Batches:
        """Yield the sum of each number, masked; raise unless each of its parts is there once."""
        held: dict[int, list[tuple[int, bytes]]] = {}
        for batch in batches:
            for part, result in zip(batch.column("part").to_pylist(), batch.column("result").to_pylist(), strict=True):
                held.setdefault(part // self.together, []).append((part, result))
        for number in sorted(held):
            found = sorted(held.pop(number))
            if [part for part, _ in found] != [part for part in self.parts if part // self.together == number]:
                raise PublicError(INCOMPLETE)
            sums = [np.frombuffer(masked(result, self.scan.seed(part)), self.kind) for part, result in found]
            result = masked(added(sums).tobytes(), self.seed(number))
            yield _batch(part=pa.array([number], pa.int32()), result=[result])

    @property
    def numbers(self) -> range:
        """The numbers of the sums."""
        return range(self.parts[0] // self.together, self.parts[-1] // self.together + 1)

    def seed(self, number: int) -> bytes:
        """Return the seed of the mask of a sum."""
        return self.scan.seed(number) + b"added"


def added(sums: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of arrays in their order; of floats with what the additions err by."""
    if sums[0].dtype.kind == "i":
        return np.sum(sums, axis=0)
    return value(total_of(sums, sums[0].shape))


class _Cursor:
    """Reads blocks, and checks that those of a part are together and in order."""

    def __init__(self, batches: Batches, dimension: int, pad: bytes) -> None:
        self._blocks = ((batch, row) for batch in batches for row in range(batch.num_rows))
        self._dimension, self._pad = dimension, pad
        self._held = next(self._blocks, None)

    def next_part(self) -> int | None:
        """Return the part of the next block; None after the last one."""
        return None if self._held is None else int(self._column("part").as_py())

    def pieces(self, part: int) -> Iterator[Piece]:
        """Yield the next blocks of a part."""
        number = 0
        while self.next_part() == part:
            if self._column("number").as_py() != number:
                raise PublicError(INCOMPLETE)
            yield self._piece()
            number, self._held = number + 1, next(self._blocks, None)

    def _column(self, name: str) -> Any:
        batch, row = self._held  # type: ignore[misc]
        return batch.column(name)[row]

    def _piece(self) -> Piece:
        names = self._held[0].schema.names  # type: ignore[index]
        place = (self._column(name).as_py() for name in ("part", "number"))
        part, number = map(int, place)
        rows, *lengths = (
            padded(self._column(name).as_buffer(), self._pad, Named(name, part, number))
            for name in ("block", "lengths")
            if name in names
        )
        return Piece(blocks.decode(rows, self._dimension), lengths[0].view("<f4") if lengths else None)


@dataclass(frozen=True)
class Epochs:
    """Epochs of SGD over each part, by the kernels that PostgreSQL runs."""

    states: tuple[bytes, ...]  # for each part the states of its models, one after the other
    passes: int  # number of epochs; for several, the blocks of a part are held in memory

    def __call__(self, part: int, pieces: Iterable[Piece]) -> bytes:
        """Return the states after the epochs."""
        states = State.decode_each(self.states[part])
        again = list(pieces) if self.passes > 1 else pieces
        for _ in range(self.passes):
            for piece in again:
                states = [kernels.transition(state, piece.rows) for state in states]
            states = list(map(kernels.terminate, states))
        return b"".join(state.encode() for state in states)


@dataclass(frozen=True)
class Sum:
    """The sum over the blocks of each part of an array, float64 or int64, that a function computes of one block."""

    of_block: Callable[[Piece], np.ndarray]

    def __call__(self, _part: int, pieces: Iterable[Piece]) -> bytes:
        """Return the sum's bytes, block by block in order."""
        total: np.ndarray | None = None
        for piece in pieces:
            found = np.asarray(self.of_block(piece))
            if found.dtype.kind == "i":
                total = found if total is None else total + found
            else:
                total = with_part(np.zeros((2, *found.shape)) if total is None else total, found)
        if total is None:
            raise PublicError(INCOMPLETE)
        return (total if total.dtype.kind == "i" else value(total)).tobytes()
