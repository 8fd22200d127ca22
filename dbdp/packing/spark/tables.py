"""A table of PostgreSQL as the source of rows: each worker reads some pages of it, and all see one snapshot.

The driver exports the snapshot, and stays in its transaction until the training ends, so that a task that is retried
reads the same rows. A row's slot is its place in the order of storage. Workers call functions of dbdp, which read as
the table's owner, if the role of the connection may read the table. What opens the connection is in the function that
Spark sends to its workers pickled, as the key is: in no SQL expression, no plan and no text. How many slots a task
reads, and in how many batches, follows from the public number of rows alone, not from which pages have them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from dbdp.learning.rows.encoding import Encoder, RandomProjection
from dbdp.packing.spark import workers
from dbdp.packing.spark.jobs import unlogged
from dbdp.packing.spark.workers import INCOMPLETE, UNREADABLE, Batches, PublicError
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.tables import records
from dbdp.sessions import transactions
from dbdp.sessions.client import Another, ClientSession

MOST_READERS = 16  # tasks that read a table; each has a connection while it runs
LEAST_SLOTS = 10_000  # of a task, so that few rows need few connections
_TOGETHER = 10_000  # slots that a worker packs together
# The driver's connection waits in its transaction for as long as the training takes.
_PATIENT = """
select pg_catalog.count(pg_catalog.set_config(s.name, '0', false))
from pg_catalog.pg_settings as s
where s.name = any($1)
"""
_TIMEOUTS = ["idle_in_transaction_session_timeout", "transaction_timeout", "idle_session_timeout"]
_RECORDS = "select dbdp_internal.records_on_pages($1, $2, $3)"


@dataclass(frozen=True)
class Access:
    """What opens a worker's session in the driver's snapshot."""

    another: Another
    snapshot: str

    @contextmanager
    def opened(self) -> Iterator[ClientSession]:
        """Yield a session; an error has a constant text."""
        try:
            with self.another.opened() as session:
                transactions.see(session, self.snapshot)
                yield session
        except (PublicError, GeneratorExit):
            raise
        except Exception:
            raise PublicError(UNREADABLE) from None

    def probe(self, batches: Batches) -> Batches:
        """Open a session in a worker, and yield the batches."""
        with self.opened():
            yield from batches


@dataclass(frozen=True)
class TableRows:
    """Reads in a worker the slots of each task, whose number is its only row."""

    access: Access = field(repr=False)  # opens a session
    name: str  # name of the dataset
    pages: int  # number of pages that are read together, as one piece of the table
    ends: np.ndarray  # 0, and the number of slots in each piece and those before it, increasing
    record_bytes: int  # bytes of a raw record
    readers: int  # number of tasks

    def __call__(self, batches: Batches) -> Iterator[tuple[np.ndarray, bytes]]:
        """Yield slots and raw records, a public number at a time."""
        for batch in batches:
            for task in batch.column("id").to_pylist():
                yield from self._of_task(task)

    def _of_task(self, task: int) -> Iterator[tuple[np.ndarray, bytes]]:
        slots = int(self.ends[-1])
        first, last = (slots * place // self.readers for place in (task, task + 1))
        held = bytearray()
        for raw in self._raw(first, last):
            held += raw
            while first < last and len(held) >= (size := min(_TOGETHER, last - first) * self.record_bytes):
                count = size // self.record_bytes
                yield np.arange(first, first + count), bytes(held[:size])
                del held[:size]
                first += count

    def _raw(self, first: int, last: int) -> Iterator[bytes]:
        """Yield the raw records of the slots first, …, last - 1, a piece of the table at a time."""
        begin = int(np.searchsorted(self.ends, first, side="right")) - 1
        with self.access.opened() as session:
            for piece in range(begin, int(np.searchsorted(self.ends, last, side="left"))):
                start, end = self.ends[piece : piece + 2].tolist()
                raw = self._piece(session, piece)
                if len(raw) != (end - start) * self.record_bytes:
                    raise PublicError(INCOMPLETE)
                yield raw[max(0, first - start) * self.record_bytes : (min(last, end) - start) * self.record_bytes]

    def _piece(self, session: ClientSession, piece: int) -> bytes:
        return session.bytes_of(_RECORDS, self.name, piece * self.pages, (piece + 1) * self.pages)


@dataclass(frozen=True)
class Table:
    """A table in the driver's snapshot; a `dbdp.packing.spark.packed.Source`."""

    session: ClientSession
    access: Access
    name: str
    pages: int
    ends: np.ndarray

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.ends[-1])

    def encoder(self, dataset: RegisteredDataset, projection: RandomProjection | None) -> Encoder:
        """Return the encoder of the records that the server returns."""
        return records.encoder_of(self.session, dataset, projection)

    def read(self, spark: Any, _dataset: RegisteredDataset, encoder: Encoder) -> tuple[Any, workers.Read]:
        """Return a DataFrame with a row for each task, and what reads the task's slots."""
        readers = readers_of(self.rows)
        rows = TableRows(self.access, self.name, self.pages, self.ends, encoder.record_bytes, readers)
        return spark.range(0, readers, 1, readers), rows


def readers_of(rows: int) -> int:
    """Return how many tasks read a table of so many rows, a public number."""
    return min(MOST_READERS, -(-rows // LEAST_SLOTS))


@contextmanager
def in_snapshot(session: ClientSession) -> Iterator[tuple[ClientSession, Access]]:
    """Yield a session in a transaction of its own, and how a worker sees what it sees."""
    another = session.another()
    with unlogged(), another.opened() as own:
        own.query(_PATIENT, _TIMEOUTS)
        yield own, Access(another, transactions.exported_snapshot(own))


@contextmanager
def opened_table(session: ClientSession, dataset: RegisteredDataset) -> Iterator[Table]:
    """Yield the table of a dataset in a snapshot, which ends with the block."""
    with in_snapshot(session) as (own, access):
        found = own.query("select pages, rows from dbdp_internal.rows_by_pages($1)", dataset.name)[0]
        ends = np.array([0, *accumulate(found["rows"])], np.int64)
        if ends[-1] != dataset.rows:
            raise PublicError(INCOMPLETE)
        yield Table(own, access, dataset.name, found["pages"], ends)
