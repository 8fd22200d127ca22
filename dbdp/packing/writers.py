"""The writer of packed blocks, and the temporary tables for them."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dbdp.learning.rows import blocks
from dbdp.packing import resident
from dbdp.packing.record_store import RecordFile, RecordsInMemory
from dbdp.registry.datasets import RegisteredDataset
from dbdp.sessions.errors import INVALID_NAME
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session, temporary_table

BLOCK_COLUMNS = "block_no int8 not null, block bytea not null"

_DROPPED = "select t as name from unnest($1) as t where to_regclass(format('pg_temp.%I', t)) is null"
_NAME = """
select format('%I.%I', n.nspname, c.relname) as name
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where c.oid = to_regclass($1)
"""


def named(session: SpiSession, argument: str, table: str, columns: str) -> str:
    """Return the name of a table as statements write it: qualified, and quoted by the server."""
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
def block_table(session: Session, dataset: RegisteredDataset) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a temporary table for packed blocks, and the options by which dbdp_internal.shuffle locates the rows.

    Groups share a table, one after the other.
    """
    if dataset.group:
        yield dataset.group.blocks, {"group": [dataset.group.bucket, dataset.group.staged]}
        return
    with temporary_blocks(session, f"dbdp_blocks_{secrets.token_hex(8)}") as table:
        yield table, {}


@contextmanager
def temporary_blocks(session: Session, name: str, columns: str = BLOCK_COLUMNS) -> Iterator[str]:
    """Create a temporary table of packed blocks, or of other references, for the block; yield its qualified name.

    At its end the table is dropped, and the rows are freed that the backend held for it.
    """
    with temporary_table(session, name, columns) as table:
        try:
            yield table
        finally:
            session.recover()
            session.query("select dbdp_internal.forget_blocks($1)", table)


class BlockWriter:
    """Writes rows as numbered blocks.

    The table (a qualified, quoted name) has `BLOCK_COLUMNS`. A block ends after the numbers of rows in `cuts`, which
    increase, even if it is not full. If the rows are `held`, this session keeps them, with blocks in the table that
    refer to them: in memory, if they and all that is held but `copy` need at most `room` bytes, else in a file. At most
    `rows` are written, a public number. The rows of `copy` are packed again, and do not count.
    """

    def __init__(
        self,
        session: SpiSession,
        table: str,
        dimension: int,
        cuts: Sequence[int] = (),
        *,
        held: bool = False,
        room: int = 0,
        rows: int,
        copy: str | None = None,
    ) -> None:
        self._session, self._table, self._name, self._held, self._room = session, table, table_name(table), held, room
        self._rows, self._copy = rows, copy
        self._insert = f"insert into {table} (block_no, block) values ($1, $2)"
        self._number = self._written = self._begin = 0
        self._dimension = dimension
        self._block_rows = blocks.rows_per_reference(dimension) if held else blocks.rows_per_block(dimension)
        self._cuts = list(reversed(cuts))
        self._open: list[bytes] = []
        self._file: RecordFile | None = None
        self._key = b""
        self._missing = self._size_of_next()
        self._forget_dropped()

    def _forget_dropped(self) -> None:
        """Free rows that this table referred to, and those of tables that a client dropped without `forget_blocks`."""
        resident.forget(self._name)
        if tables := resident.tables():
            for row in self._session.query(_DROPPED, tables):
                resident.forget(row["name"])

    def write_all(self, rows: np.ndarray, order: np.ndarray | None = None) -> None:
        """Write all rows of the table, as they are or those of an order; where there is room, they stay in memory."""
        if not self._held or rows.nbytes > self._room - resident.size(self._copy):
            self.write(rows, order)
            return
        kept = rows if order is None else rows[order]
        self._key = resident.hold(self._name, RecordsInMemory(kept))
        self._append(len(kept), lambda first, last: None)

    def hold_steps(self, rows: np.ndarray, ends: np.ndarray) -> None:
        """Hold the rows of Poisson steps in memory, as one block; each step ends after so many of them."""
        key = resident.hold(self._name, RecordsInMemory(rows, ends))
        self._session.query(self._insert, self._number, resident.reference(key, 0, len(rows)))
        self._number += 1

    def write(self, rows: np.ndarray, order: np.ndarray | None = None) -> None:
        """Append rows, as they are or in this order; the last block may stay open."""
        if self._held and self._file is None:
            row_bytes = blocks.row_bytes(self._dimension)
            self._file = RecordFile.beside(self._session, self._table, row_bytes, self._rows)
            self._key = resident.hold(self._name, self._file)
        if order is None:
            self._append(len(rows), lambda first, last: self._keep(rows[first:last]))
        else:
            self._append(len(order), lambda first, last: self._keep(rows[order[first:last]]))

    def _keep(self, rows: np.ndarray) -> None:
        if self._file is not None:
            self._file.write(self._written, rows)
        else:
            self._open.append(rows.tobytes())

    def _append(self, count: int, keep: Callable[[int, int], None]) -> None:
        """Append so many rows, by a function that keeps some of them."""
        first = 0
        while first < count:
            last = min(first + self._missing, count)
            keep(first, last)
            self._missing -= last - first
            self._written += last - first
            first = last
            if not self._missing:
                self.end_block()

    def fill(self, count: int) -> None:
        """Append `count` zero rows."""
        while count:
            zeros = np.zeros((min(count, self._block_rows), blocks.stride_of(self._dimension)), blocks.ELEMENT)
            self.write(zeros)
            count -= len(zeros)

    def end_block(self) -> None:
        """Write the open block, if it has rows."""
        if self._written > self._begin:
            block = resident.reference(self._key, self._begin, self._written) if self._held else b"".join(self._open)
            self._session.query(self._insert, self._number, block)
            self._number += 1
            self._open, self._begin = [], self._written
        self._missing = self._size_of_next()

    def _size_of_next(self) -> int:
        while self._cuts and self._cuts[-1] <= self._written:
            self._cuts.pop()
        return min(self._block_rows, self._cuts[-1] - self._written) if self._cuts else self._block_rows
