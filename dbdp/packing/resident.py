"""Packed rows that stay with the backend that packed them, in memory or in a file; a table of blocks refers to them.

A reference is 36 bytes: a key of 128 random bits, which exists in that table alone, and the range of rows. So whoever
may not read the table reaches no rows: another key has none, and a range beyond them is refused. A packed row has a
multiple of 32 bytes, so no reference is a block.
"""

import secrets
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dbdp.learning.compiled.sums import with_part
from dbdp.learning.rows import blocks
from dbdp.packing.record_store import RecordFile, RecordsInMemory
from dbdp.sessions.inside import parallel
from dbdp.sessions.server import SpiSession

_REFERENCE = struct.Struct("<4s16sqq")
_MAGIC = b"dbh1"
_LEAST_TASK = 4  # pieces that a thread takes together, unless a result is long: a millisecond or two
_SHORT = 1 << 10  # numbers of a short result
_NUMBERS = 1 << 21  # of the results of all tasks together
_NOT_HELD = "a block refers to rows that this session does not hold; pack the dataset again"
_keys: dict[str, bytes] = {}  # by the name of the table
_stores: dict[bytes, RecordsInMemory | RecordFile] = {}  # by their keys


def size(but: str | None = None) -> int:
    """Return the bytes of memory of all rows that are held, but for those of one table."""
    left_out = _keys.get(but or "")
    return sum(store.memory for key, store in _stores.items() if key != left_out)


def hold(table: str, store: RecordsInMemory | RecordFile) -> bytes:
    """Hold records until the table is forgotten or filled again; return the key of references to them."""
    forget(table)
    key = secrets.token_bytes(16)
    _keys[table], _stores[key] = key, store
    return key


def store_of(table: str) -> RecordsInMemory | RecordFile:
    """Return what is held for a table; raise ValueError if nothing is."""
    return _store(_keys.get(table, b""))


def _store(key: bytes) -> RecordsInMemory | RecordFile:
    if key not in _stores:
        raise ValueError(_NOT_HELD)
    return _stores[key]


def tables() -> list[str]:
    """Return the names of the temporary tables that refer to rows."""
    return list(_keys)


def forget(table: str) -> None:
    """Free the records to which a table refers, if there are any."""
    store = _stores.pop(_keys.pop(table, b""), None)
    if store is not None:  # an empty store is false
        store.close()


@contextmanager
def forgotten() -> Iterator[None]:
    """Free at the end, however it comes, the rows that the block began to hold."""
    before = set(_keys)
    try:
        yield
    finally:
        for table in set(_keys) - before:
            forget(table)


def reference(key: bytes, first: int, last: int) -> bytes:
    """Return the block that stands for the rows first, …, last - 1."""
    return _REFERENCE.pack(_MAGIC, key, first, last)


def count(block: bytes) -> int:
    """Return how many records a reference stands for."""
    _, _, first, last = _REFERENCE.unpack(block)
    return int(last - first)


@dataclass(frozen=True)
class BlockRows:
    """The rows of a block, or those that it refers to, which are read piece by piece."""

    store: RecordsInMemory | RecordFile
    first: int
    count: int
    dimension: int

    @property
    def pieces(self) -> list[slice]:
        """Which rows of these are read together: at most a MiB, from a public place on."""
        together = blocks.rows_per_block(self.dimension)
        return [slice(first, min(first + together, self.count)) for first in range(0, self.count, together)]

    @property
    def ends(self) -> np.ndarray | None:
        """After how many rows each Poisson step ends, if the rows are of such steps."""
        return self.store.ends

    def tasks(self, size: int = 1) -> list[list[slice]]:
        """Return the pieces of each task of a thread, which results in so many numbers.

        How many pieces a task has depends on public sizes only, and never on the threads. So no bit of a sum depends on
        their number.
        """
        pieces = self.pieces
        together = max(1, min(_LEAST_TASK, _SHORT // size), -(-len(pieces) * size // _NUMBERS))
        return [pieces[first : first + together] for first in range(0, len(pieces), together)]

    def sum(self, session: SpiSession, size: int, of_piece: Callable[[np.ndarray, slice], np.ndarray]) -> np.ndarray:
        """Return the sum of what a function gives for each piece, so many numbers: a total of `sums`, (2, size)."""

        def task(pieces: list[slice]) -> np.ndarray:
            total = np.zeros((2, size))
            for piece in pieces:
                total = with_part(total, of_piece(self.read(piece), piece))
            return total

        total = np.zeros((2, size))
        for part, errors in parallel.each(session, task, self.tasks(size)):
            total = with_part(with_part(total, part), errors)
        return total

    def read(self, piece: slice) -> np.ndarray:
        """Return the rows of a piece, shape (rows, stride); without a copy, but of a file."""
        return self.store.read(self.first + piece.start, self.first + piece.stop).view(blocks.ELEMENT)


def rows_of(block: bytes, dimension: int) -> BlockRows:
    """Return the rows of a block; raise ValueError for what is no block, or refers to rows that are not held."""
    if not _refers(block):
        rows = blocks.decode(block, dimension)
        return BlockRows(RecordsInMemory(rows), 0, len(rows), dimension)
    store, first, last = _referred(block, blocks.row_bytes(dimension))
    if store.ends is None and last - first > blocks.rows_per_reference(dimension):
        raise ValueError(_NOT_HELD)
    return BlockRows(store, first, last - first, dimension)


def _refers(block: bytes) -> bool:
    return len(block) == _REFERENCE.size and block.startswith(_MAGIC)


def records(block: bytes, width: int) -> Iterator[np.ndarray]:
    """Yield the records of `width` bytes that a reference stands for, some at a time; as they are held."""
    store, first, last = _referred(block, width)
    together = max(1, blocks.BLOCK_BYTES // width)
    for begin in range(first, last, together):
        yield store.read(begin, min(begin + together, last))


def _referred(block: bytes, width: int) -> tuple[RecordsInMemory | RecordFile, int, int]:
    """Return what holds the records of a reference, and which they are."""
    _, key, first, last = _REFERENCE.unpack(block)
    store = _store(key)
    if store.width != width or not 0 <= first <= last <= len(store):
        raise ValueError(_NOT_HELD)
    return store, first, last
