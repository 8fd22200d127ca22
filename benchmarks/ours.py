"""Our side of every comparison, through the doors that a user has.

Each timing function returns seconds, and leaves preparation and clean-up outside its clock.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.tables import Table


def available(connection: psycopg.Connection) -> bool:
    """Whether the extension is in the database; without it only the other sides are timed."""
    query = """
        select exists (
            select
            from pg_extension
            where extname = 'dbdp'
        )
    """
    return connection.execute(query).fetchone()[0]


@contextmanager
def registered(connection: psycopg.Connection, table: Table) -> Iterator[None]:
    """Have `table.raw` registered, with a budget that no run exhausts, and packed for `epoch`."""
    raise NotImplementedError(f"register {table.raw}, pack it, yield, drop both")


def prepare(connection: psycopg.Connection, table: Table) -> float:
    """Seconds to shuffle and pack `table.raw`."""
    raise NotImplementedError(f"shuffle and pack {table.raw}")


def epoch(connection: psycopg.Connection, table: Table, batch_size: int) -> float:
    """Seconds of one epoch over the blocks that `registered` packed."""
    raise NotImplementedError(f"one epoch over {table.raw} in mini-batches of {batch_size}")


def whole_run(connection: psycopg.Connection, table: Table, *, private: bool) -> float:
    """Seconds of a request of `peer.EPOCHS` epochs, with or without accounting and noise."""
    raise NotImplementedError(f"train on {table.raw}, private: {private}")


def smallest_call(connection: psycopg.Connection) -> float:
    """Seconds of the aggregate over one block of one row, which loads all that an epoch needs."""
    raise NotImplementedError("one epoch over one row")
