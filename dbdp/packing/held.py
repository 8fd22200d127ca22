"""Packed rows that stay in the memory of the backend that packed them; a table of blocks then refers to them.

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

_REFERENCE = struct.Struct("<4s16sqq")
_MAGIC = b"dbh1"
_keys: dict[str, bytes] = {}  # by the name of the table
_rows: dict[bytes, np.ndarray] = {}


def size() -> int:
    """Return the bytes of all rows that are held."""
    return sum(rows.nbytes for rows in _rows.values())


def hold(table: str, rows: np.ndarray) -> bytes:
    """Hold packed rows (n, stride) until the table is forgotten or filled again; return the key of its references."""
    forget(table)
    key = secrets.token_bytes(16)
    rows.flags.writeable = False
    _keys[table], _rows[key] = key, rows
    return key


def tables() -> list[str]:
    """Return the names of the temporary tables that refer to rows."""
    return list(_keys)


def forget(table: str) -> None:
    """Free the rows to which a table refers, if there are any."""
    _rows.pop(_keys.pop(table, b""), None)


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


def decode(block: bytes, dimension: int) -> np.ndarray:
    """Return the rows of a block, or those that it refers to, shape (rows, stride), without a copy.

    Raises
    ------
    ValueError
        If it is neither, or its rows have another dimension or are held no longer.
    """
    if len(block) != _REFERENCE.size or not block.startswith(_MAGIC):
        return blocks.decode(block, dimension)
    _, key, first, last = _REFERENCE.unpack(block)
    none = blocks.decode(b"", dimension)
    rows = _rows.get(key, none)
    within = 0 <= first <= last <= min(len(rows), first + blocks.rows_per_block(dimension))
    if rows is none or not within or rows.shape[1:] != none.shape[1:]:
        raise ValueError("a block refers to rows that this session does not hold; pack the dataset again")
    return rows[first:last]
