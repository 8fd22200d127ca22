"""Transactions of a client: shared snapshots, blocks behind a pooler, and what an interrupt leaves open."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from psycopg import DatabaseError, OperationalError
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.sql import SQL, Literal

from dbdp.sessions.connections import POOLED, is_direct
from dbdp.sessions.session import Row

_BEGIN = "begin transaction isolation level repeatable read"
_MOST_RESULTS = 100  # of a pipeline: a statement, and the settings before and after it


class Controlled(Protocol):
    """A session over a psycopg connection that runs statements which control its transaction."""

    connection: Any

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement; return its rows as dictionaries by column name."""

    def control(self, sql: str) -> None:
        """Run a statement that controls a transaction."""

    def failure(self, error: BaseException) -> tuple[str, str]:
        """Return the SQLSTATE and the text of a failed statement."""


def exported_snapshot(session: Controlled) -> str:
    """Begin a transaction, and return the name of its snapshot, which other sessions may use until it ends."""
    session.control(_BEGIN)
    return str(session.query("select pg_catalog.pg_export_snapshot() as name")[0]["name"])


def see(session: Controlled, snapshot: str) -> None:
    """Begin a transaction with another one's snapshot."""
    session.control(_BEGIN)
    session.control(SQL("set transaction snapshot {}").format(Literal(snapshot)).as_string())


@contextmanager
def in_one_session(session: Controlled) -> Iterator[None]:
    """Run the statements of the block in one session of the server: behind a pooler as one transaction."""
    connection = session.connection
    if not connection.autocommit or _is_in_transaction(connection) or is_direct(connection):
        yield
        return
    _begin_at_pooler(session)
    try:
        yield
        session.control("commit")
    finally:
        settle(connection)
        if not connection.closed and _is_in_transaction(connection):
            session.control("rollback")


def _is_in_transaction(connection: Any) -> bool:
    status: int = connection.info.transaction_status
    return status != TransactionStatus.IDLE


def _begin_at_pooler(session: Controlled) -> None:
    try:
        session.control("begin")
    except DatabaseError as error:
        raise ValueError(
            f"{POOLED}, and it refuses a transaction ({session.failure(error)[1]}); connect to the server "
            "itself, or train by SQL, as in select dbdp.dp_logreg('dataset', epsilon => 1)"
        ) from None


def recover(connection: Any) -> None:
    """Roll back a transaction that a failed statement left behind."""
    settle(connection)
    if not connection.closed and connection.info.transaction_status == TransactionStatus.INERROR:
        connection.rollback()


def settle(connection: Any) -> None:
    """Cancel a statement that an interrupt left running: psycopg may be interrupted before the statement ends.

    It may also be interrupted before its pipeline ends, in which no statement of the cleanup could be sent.
    """
    if connection.closed:
        return
    driver, is_running = connection.pgconn, connection.info.transaction_status == TransactionStatus.ACTIVE
    if is_running:
        connection.cancel()
    if driver.pipeline_status != PipelineStatus.OFF:
        _leave_pipeline(driver)
    while is_running and driver.get_result():
        pass


def _leave_pipeline(driver: Any) -> None:
    """Read the results that are left in a pipeline, and leave it."""
    driver.pipeline_sync()
    for _ in range(_MOST_RESULTS):
        try:
            driver.exit_pipeline_mode()
            return
        except OperationalError:  # results are left
            driver.get_result()
