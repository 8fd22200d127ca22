"""Writers of packed blocks to a table, and of records to buckets of one; and the temporary tables for them."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dbdp.learning.rows import blocks
from dbdp.packing import held
from dbdp.registry.datasets import Dataset
from dbdp.sessions.errors import INVALID_NAME
from dbdp.sessions.server import ServerSession
from dbdp.sessions.session import Session, temporary_table

BLOCK_COLUMNS = "block_no int8 not null, block bytea not null"

_DROPPED = "select t as name from unnest($1) as t where to_regclass(format('pg_temp.%I', t)) is null"
_NAME = """
select format('%I.%I', n.nspname, c.relname) as name
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where c.oid = to_regclass($1)
"""


def named(session: ServerSession, argument: str, table: str, columns: str) -> str:
    """Return the name of a table as statements write it: qualified, and quoted by the server.

    Parameters
    ----------
    session : ServerSession
        Looks the name up.
    argument : str
        Name of the caller's argument, for the message.
    table : str
        The name to look up.
    columns : str
        Columns that the table should have, for the message.

    Raises
    ------
    ValueError
        If there is no such table.
    """
    try:
        rows = session.query(_NAME, table)
    except Exception as error:  # plpy's exceptions have names in the server only
        if session.failure(error)[0] != INVALID_NAME:
            raise
        rows = []
    if not rows:
        raise ValueError(f"{argument} = {table!r} is not a table; create one with the columns {columns}")
    return rows[0]["name"]


def table_name(qualified: str) -> str:
    """Return the bare name of a qualified, quoted temporary table."""
    return qualified.partition(".")[2].strip('"')


@contextmanager
def block_table(session: Session, dataset: Dataset) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a temporary table for packed blocks, and the options by which dbdp_internal.shuffle locates the rows.

    Groups share a table, one after the other.
    """
    if dataset.group:
        yield dataset.group.blocks, {"group": [dataset.group.bucket, dataset.group.staged]}
        return
    with temporary_blocks(session, f"dbdp_blocks_{secrets.token_hex(8)}") as table:
        yield table, {}


@contextmanager
def temporary_blocks(session: Session, name: str) -> Iterator[str]:
    """Create a temporary table for packed blocks, for the block; yield its qualified name.

    At its end the table is dropped, and the rows are freed that the backend held for it.
    """
    with temporary_table(session, name, BLOCK_COLUMNS) as table:
        try:
            yield table
        finally:
            session.recover()
            session.query("select dbdp_internal.forget_blocks($1)", table)


class BlockWriter:
    """Writes permuted rows as numbered blocks.

    Parameters
    ----------
    session : ServerSession
        Runs the inserts.
    table : str
        Qualified, quoted name of a table with `BLOCK_COLUMNS`.
    dimension : int
        Coordinates of a packed row.
    cuts : Sequence[int]
        Increasing numbers of rows after which a block ends, even if it is not full.
    room : int
        How many bytes of rows this session may hold in memory, with blocks that refer to them.
    """

    def __init__(self, session: ServerSession, table: str, dimension: int, cuts: Sequence[int], room: int = 0) -> None:
        self.has_cuts = bool(cuts)
        self._session = session
        self._insert = f"insert into {table} (block_no, block) values ($1, $2)"
        self._number = self._written = 0
        self._block_rows, self._stride = blocks.rows_per_block(dimension), blocks.stride_of(dimension)
        self._cuts = list(reversed(cuts))
        self._open: list[bytes] = []
        self._missing = self._size_of_next()
        self._table, self._room = table_name(table), room
        self._forget_dropped()

    def _forget_dropped(self) -> None:
        """Free rows that this table referred to, and those of tables that a client dropped without `forget_blocks`."""
        held.forget(self._table)
        if tables := held.tables():
            for row in self._session.query(_DROPPED, tables):
                held.forget(row["name"])

    def write_all(self, rows: np.ndarray, order: np.ndarray | None = None) -> None:
        """Write all rows of the table, as they are or those of an order; where there is room, they stay in memory."""
        if rows.nbytes > self._room - held.size():
            self.write(rows, order)
            return
        kept = rows if order is None else rows[order]
        key = held.hold(self._table, kept)
        self._append(len(kept), lambda first, last: held.reference(key, first, last))

    def write(self, rows: np.ndarray, order: np.ndarray | None = None) -> None:
        """Append rows, as they are or in this order; the last block may stay open."""
        if order is None:
            self._append(len(rows), lambda first, last: rows[first:last].tobytes())
        else:
            self._append(len(order), lambda first, last: rows[order[first:last]].tobytes())

    def _append(self, count: int, piece: Callable[[int, int], bytes]) -> None:
        """Append so many rows, from a function that returns the bytes of some of them."""
        first = 0
        while first < count:
            last = min(first + self._missing, count)
            self._open.append(piece(first, last))
            self._missing -= last - first
            self._written += last - first
            first = last
            if not self._missing:
                self.end_block()

    def fill(self, count: int) -> None:
        """Append `count` zero rows."""
        while count:
            zeros = np.zeros((min(count, self._block_rows), self._stride), blocks.ELEMENT)
            self.write(zeros)
            count -= len(zeros)

    def end_block(self) -> None:
        """Write the open block, if it has rows."""
        if self._open:
            self._session.query(self._insert, self._number, b"".join(self._open))
            self._number += 1
            self._open = []
        self._missing = self._size_of_next()

    def _size_of_next(self) -> int:
        while self._cuts and self._cuts[-1] <= self._written:
            self._cuts.pop()
        return min(self._block_rows, self._cuts[-1] - self._written) if self._cuts else self._block_rows


class Buckets:
    """Writes records to the numbered buckets of a temporary table, in pieces with the same number of records each.

    Only the last piece of a bucket may have fewer. So where the sizes of the buckets are public, the sizes and the
    number of all pieces are public too, and so is the number of inserts: each writes a tuple, and so takes a command
    number and a transaction number, which every role may see of its own transaction.

    Proof. An insert follows each `batch` records. By then at least `batch` records are in memory, which is
    `number` times `piece_records` or more, or `piece_records` is 1: some bucket has a full piece, so the insert writes
    one. All that is left is one further insert; whether anything is left follows from the buckets' sizes.

    Parameters
    ----------
    session : ServerSession
        Runs the inserts.
    table : str
        Qualified, quoted name of a table (bucket, block).
    number : int
        Number of buckets.
    batch : int
        Records after which full pieces are written.
    """

    def __init__(self, session: ServerSession, table: str, number: int, batch: int) -> None:
        self._session = session
        self._insert = f"insert into {table} select * from unnest($1, $2)"
        self._batch, self._piece_records = batch, max(1, batch // number)
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._missing = batch
        self._open: list[list[np.ndarray]] = [[] for _ in range(number)]
        self._held = np.zeros(number, np.int64)

    def append(self, numbers: np.ndarray, records: np.ndarray) -> None:
        """Append records, shape (n,) or (n, …), to the buckets with these numbers, shape (n,)."""
        first = 0
        while first < len(records):
            last = min(first + self._missing, len(records))
            self._waiting.append((numbers[first:last], records[first:last].copy()))
            self._missing -= last - first
            first = last
            if not self._missing:
                self._distribute()
                self._write(self._full_pieces())

    def close(self) -> None:
        """Write the remaining records of each bucket."""
        if self._waiting:
            self._distribute()
        full = self._full_pieces()  # first, so that where a piece is stored follows from public sizes too
        self._write(full + [(bucket, _joined(self._open[bucket])) for bucket in np.flatnonzero(self._held).tolist()])

    def _distribute(self) -> None:
        """Move what waits to its buckets."""
        numbers, records = (np.concatenate(each) for each in zip(*self._waiting, strict=True))
        self._waiting, self._missing = [], self._batch
        order = np.argsort(numbers, kind="stable")
        present, begins = np.unique(numbers[order], return_index=True)
        for bucket, added in zip(present.tolist(), np.split(records[order], begins[1:]), strict=True):
            self._open[bucket].append(added)
            self._held[bucket] += len(added)

    def _full_pieces(self) -> list[tuple[int, bytes]]:
        """Take the full pieces out of the buckets."""
        taken = []
        for bucket in np.flatnonzero(self._held >= self._piece_records).tolist():
            joined = np.concatenate(self._open[bucket])
            *full, rest = np.split(joined, range(self._piece_records, len(joined) + 1, self._piece_records))
            self._open[bucket], self._held[bucket] = [rest.copy()] if len(rest) else [], len(rest)
            taken += [(bucket, piece.tobytes()) for piece in full]
        return taken

    def _write(self, pieces: list[tuple[int, bytes]]) -> None:
        if pieces:
            self._session.query(self._insert, [bucket for bucket, _ in pieces], [piece for _, piece in pieces])


def _joined(pieces: Sequence[np.ndarray]) -> bytes:
    return b"".join(piece.tobytes() for piece in pieces)
