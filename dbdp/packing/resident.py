"""Packed rows that stay with the backend that packed them, in memory or in a file; a table of blocks refers to them.

A reference is 36 bytes: a key of 128 random bits, which exists in that table alone, and the range of rows. So whoever
may not read the table reaches no rows: another key has none, and a range beyond them is refused. A packed row has a
multiple of 32 bytes, so no reference is a block.
"""

import secrets
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dbdp.learning.rows import blocks
from dbdp.packing.record_store import RecordFile, RecordsInMemory

_REFERENCE = struct.Struct("<4s16sqq")
_MAGIC = b"dbh1"
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


def decode(block: bytes, dimension: int) -> np.ndarray:
    """Return the rows of a block, or those that it refers to, shape (rows, stride); without a copy, but of a file."""
    if not _refers(block):
        return blocks.decode(block, dimension)
    return records(block, blocks.row_bytes(dimension), blocks.rows_per_block(dimension)).view(blocks.ELEMENT)


def steps(block: bytes, dimension: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the rows of Poisson steps that a block refers to, and after how many each step ends; or None."""
    if not _refers(block) or (ends := _store(_REFERENCE.unpack(block)[1]).ends) is None:
        return None
    return records(block, blocks.row_bytes(dimension), count(block)).view(blocks.ELEMENT), ends


def _refers(block: bytes) -> bool:
    return len(block) == _REFERENCE.size and block.startswith(_MAGIC)


def records(block: bytes, width: int, most: int) -> np.ndarray:
    """Return the records of `width` bytes, at most so many, that a reference stands for; as they are held."""
    _, key, first, last = _REFERENCE.unpack(block)
    store = _store(key)
    if store.width != width or not 0 <= first <= last <= min(len(store), first + most):
        raise ValueError(_NOT_HELD)
    return store.read(first, last)
