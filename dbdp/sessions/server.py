"""The session inside a backend: SPI through plpy, with the rights of dbdp_owner or of a table's owner."""

import codecs
import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

from dbdp.sessions.errors import PREFIX, is_cancel
from dbdp.sessions.inside import callers, waiting
from dbdp.sessions.inside.backend import LOCAL_USER, as_role, flush_wal, settings_undone, uncounted
from dbdp.sessions.session import FLUSHED, LedgerCharge, Row, Session, postgres_type, wait_until

_MOST_PLANS = 128  # prepared at a time; a training needs about 30, and those on its own tables are useless afterwards


def read_any_error() -> None:
    """Let statements of this module fail with an error whose text is not UTF-8: odd bytes of it are replaced.

    PL/Python decodes the fields of a failed statement's error. If it cannot, it raises an error of the server from
    among Python's own calls, which never return: the next ones find them still running, until the process crashes and
    takes all sessions with it. Some of PostgreSQL's messages cut a character in two, and a table's owner decides which
    errors its code raises.
    """
    codecs.register_error("strict", _replaced_here)


def _replaced_here(error: UnicodeError) -> tuple[str, int]:
    """Replace odd bytes if the call came from this module, which decodes nothing itself; else raise the error."""
    if isinstance(error, UnicodeDecodeError) and sys._getframe(1).f_globals is globals():
        return "\N{REPLACEMENT CHARACTER}", error.end
    raise error


class _Undo(Exception):
    """Raised to roll back a subtransaction."""


class SpiCursor:
    """The rows of one query, with one snapshot; they are fetched from this module, as `read_any_error` needs."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows one at a time."""
        return (row for row in self._cursor)

    def fetch(self, size: int) -> list[Row]:
        """Return up to `size` further rows."""
        return list(self._cursor.fetch(size))


class SpiSession(Session):
    """A session inside a backend: SPI, in the caller's transaction; `registry.border` adds the registry."""

    engine = None  # rows are read where they are stored

    def __init__(self, plpy: ModuleType) -> None:
        self._plpy = plpy
        self._prepared = lru_cache(_MOST_PLANS)(plpy.prepare)  # a plan that leaves the cache is freed
        self._warnings: list[str] = []
        self.cursors = callers.OpenCursors(self)

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement and return its rows; an error is plpy's."""
        return [dict(row) for row in self._plpy.execute(self._plan(sql, parameters), list(parameters))]

    def cursor(self, sql: str, *parameters: Any) -> SpiCursor:
        """Open a cursor of one query."""
        return SpiCursor(self._plpy.cursor(self._plan(sql, parameters), list(parameters)))

    def run_afresh(self, sql: str) -> None:
        """Plan a statement and run it, which takes locks that a plan which is kept does not take."""
        self._plpy.execute(sql)

    @property
    def failed_statement(self) -> Any:
        """The class of a failed statement's error."""
        return self._plpy.SPIError

    def uncounted(self) -> AbstractContextManager[None]:
        """Switch off statistics of what the block reads, or writes to temporary tables."""
        return uncounted()

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Roll back what the block did, and release its locks; the values of sequences stay."""
        try:
            with self._plpy.subtransaction():
                yield
                raise _Undo
        except _Undo:
            pass

    @contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        """Run the statements of the block with a setting, whatever the session has set."""
        with settings_undone():
            self.query("select pg_catalog.set_config($1, $2, true)", name, value)
            yield

    def as_owner(self) -> AbstractContextManager[None]:
        """Run the block as dbdp_owner, as its SECURITY DEFINER function would; the caller must have been checked."""
        return as_role(ctypes.c_uint(callers.dbdp_owner(self)), LOCAL_USER)

    def recover(self) -> None:
        """Do nothing: SPI ends the failed statement's subtransaction itself."""

    def failure(self, error: BaseException) -> tuple[str, str]:
        """Return the SQLSTATE and the text of a failed statement."""
        code = getattr(error, "spidata", None)
        text = str(error).removeprefix(PREFIX)
        if not code:
            return "", text
        letters = [chr(((code[0] >> shift) & 0x3F) + ord("0")) for shift in range(0, 30, 6)]
        return "".join(letters), text

    def workers(self, count: int) -> AbstractContextManager[list[Session]]:
        """Return this session alone: a backend is one worker."""
        return nullcontext([self])

    def one_snapshot(self, workers: list[Session]) -> AbstractContextManager[None]:
        """Do nothing: a single statement has one snapshot."""
        return nullcontext()

    def atomic(self) -> AbstractContextManager[Any]:
        """Do nothing: a single statement is atomic."""
        return nullcontext()

    def in_one_session(self) -> AbstractContextManager[None]:
        """Do nothing: a backend is a session."""
        return nullcontext()

    def cancel(self) -> None:
        """Do nothing: a backend has no other thread."""

    def messages_to(self, receive: Callable[[str], None]) -> AbstractContextManager[None]:
        """Do nothing: a backend sends messages and receives none."""
        return nullcontext()

    def check_exact_results(self) -> None:
        """Raise ValueError: no result without noise may be computed in the server."""
        raise ValueError("the baseline is not private and runs in a client that may read the table; call it from there")

    @contextmanager
    def leaving_at_multiples(self, seconds: int | None) -> Iterator[None]:
        """Leave the block, also after an error, a multiple of `seconds` after it was entered; None: at once.

        A cancel ends the block and the wait at once: the role that sends it chooses its time. Unlike PostgreSQL's
        pg_sleep, the wait does not show in pg_stat_activity.
        """
        entered = time.monotonic()
        try:
            yield
        except Exception as error:
            if not is_cancel(self.failure(error)[0]):
                waiting.await_multiple(self.pause, entered, seconds)
            raise
        waiting.await_multiple(self.pause, entered, seconds)

    def pause(self) -> None:
        """Run an empty query, so that a cancel takes effect: PostgreSQL does not interrupt arithmetic."""
        self.query("select")

    def await_durable(self, charge: LedgerCharge) -> None:
        """Wait for the disk and the standbys: a release may be read in a transaction that never commits."""
        flush_wal(charge.position)
        wait_until(self, FLUSHED, charge.position)
        waiting.await_standbys(self, charge.position)

    @contextmanager
    def warning(self) -> Iterator[list[str]]:
        """Collect the warnings of the block; those of a call around it are kept apart."""
        outer, self._warnings = self._warnings, []
        try:
            yield self._warnings
        finally:
            self._warnings = outer

    def warn(self, text: str) -> None:
        """Show the caller a sentence, of public facts only, once the call has ended."""
        self._warnings.append(f"{PREFIX}{text}")

    def report(self, text: str) -> None:
        """Send the client a message, whatever its settings; the text must not depend on any row's value."""
        self._plpy.info(text)

    def _plan(self, sql: str, parameters: tuple[Any, ...]) -> Any:
        return self._prepared(sql, tuple(map(postgres_type, parameters)))
