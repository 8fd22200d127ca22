"""What surrounds every function that SQL calls: its caller is checked, and its errors become PostgreSQL's.

BLAS is limited to one thread before NumPy is loaded, since a backend is one core and sums must not depend on the
number of threads; so modules of the server's functions import this one first.
"""

from dbdp.interfaces.sql import threads

threads.limit_blas_to_one()

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, wraps
from typing import Any, get_origin

import plpy  # exists inside PostgreSQL only

from dbdp.interfaces.sql import outcomes
from dbdp.interfaces.sql.outcomes import Outcome
from dbdp.packing import resident
from dbdp.privacy import sensitivity
from dbdp.registry.border import ServerSession
from dbdp.sessions import support
from dbdp.sessions.errors import PREFIX, PUBLIC_SQLSTATE, ChargedError
from dbdp.sessions.inside import advisory_locks, callers
from dbdp.sessions.inside.backend import check_has_postmaster, check_meters, unmetered
from dbdp.sessions.inside.planner import PLANNED
from dbdp.sessions.server import read_any_error

read_any_error()
session = ServerSession(plpy)
_transactions = callers.Transactions(session)
_LONGEST_ERROR = 4000  # characters


class InterfaceError(plpy.Error):
    """An error whose text has public facts only; PostgreSQL shows it as `dbdp: text`."""

    def __init__(self, text: str, sqlstate: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


InterfaceError.__module__, InterfaceError.__name__, InterfaceError.__qualname__ = "builtins", "dbdp", "dbdp"


pause = sensitivity.pause = session.pause


def interface(*contexts: Callable[[], AbstractContextManager[None]]) -> Callable[..., Callable[..., Any]]:
    """Decorate a function that SQL calls: check server and caller, enter the contexts, raise errors as PostgreSQL's."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any) -> Any:
            try:
                check_server()
                check_caller()
                with ExitStack() as stack:
                    for context in (*_EVERYWHERE, *contexts):
                        stack.enter_context(context())
                    return function(*arguments)
            except (ChargedError, ValueError, PermissionError, RecursionError, plpy.SPIError) as error:
                sqlstate, text = _shown(error)
            raise InterfaceError(_shortened(text), sqlstate)

        return call

    return decorate


def refusing(*contexts: Callable[[], AbstractContextManager[None]]) -> Callable[..., Callable[..., Any]]:
    """Decorate the function behind try_NAME: as `interface`, but an error undoes the call and is recorded.

    Proof that dbdp_internal.try_NAME, called alone, gains nothing over dbdp.NAME: its work is a subtransaction, which
    an error rolls back before the function returns, as a block of PL/pgSQL with EXCEPTION rolls back dbdp.NAME.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        answer = interface(*contexts)(function)
        kind: Any = get_origin(function.__annotations__["return"])
        refused = [None] if kind is list else None  # one row, for which `accepted` is called

        @wraps(function)
        def call(*arguments: Any) -> Any:
            with resident.forgotten(), session.warning() as warnings:
                try:
                    with plpy.subtransaction():
                        result, outcome = answer(*arguments), Outcome()
                except (InterfaceError, plpy.SPIError) as error:
                    result, outcome = refused, _refusal(error)
                outcomes.record(outcome._replace(warnings=tuple(warnings)))
            return result

        return call

    return decorate


def _refusal(error: Exception) -> Outcome:
    """Return an error as it is raised again: PostgreSQL's own with its SQLSTATE, detail and hint."""
    if isinstance(error, InterfaceError):
        return Outcome(f"{PREFIX}{error}", error.sqlstate)
    sqlstate, text = session.failure(error)
    _, detail, hint, *_ = getattr(error, "spidata", (None, None, None))
    remedy = " ".join(filter(None, (detail, hint)))
    return Outcome(text, sqlstate, remedy or None)


def _locks_released() -> AbstractContextManager[None]:
    return advisory_locks.preserved(session)


def _in_own_memory() -> AbstractContextManager[None]:
    """Give statements the default `work_mem`, whatever the session has set.

    So a list of datasets or of locks needs no temporary file, which `temp_file_limit` might refuse.
    """
    return session.setting("work_mem", PLANNED["work_mem"])


_EVERYWHERE = (unmetered, _in_own_memory, session.cursors.noted, _locks_released)


def _shown(error: Exception) -> tuple[str, str]:
    """Return SQLSTATE and text of an error of dbdp; raise one of PostgreSQL's own again."""
    if isinstance(error, ChargedError):
        return error.sqlstate, str(error)
    if isinstance(error, RecursionError):
        return PUBLIC_SQLSTATE, "an argument is nested too deeply; pass one with fewer levels"
    if isinstance(error, plpy.SPIError):
        sqlstate, text = session.failure(error)
        if sqlstate != PUBLIC_SQLSTATE:
            raise error
        return sqlstate, text
    return PUBLIC_SQLSTATE, str(error)


@contextmanager
def in_own_transaction() -> Iterator[None]:
    """Refuse an interface that spends, amends or reads rows in a transaction that is not supported or not its own.

    It is not its own while code of others may run in it with the caller's rights.
    """
    if callers.acts_as_owner(session):  # within another interface, which was checked
        yield
        return
    support.check_transaction(session.query(support.TRANSACTION)[0])
    _transactions.check()
    yield
    _transactions.note()


@cache
def check_server() -> None:
    """Raise ValueError unless the server is supported; neither its version nor its encoding changes in a session."""
    support.check_server(session.query(support.SERVER)[0])
    check_meters()
    check_has_postmaster()


def _shortened(text: str) -> str:
    """Return a text without its middle if it is too long, as where it quotes a large value."""
    half = _LONGEST_ERROR // 2
    return text if len(text) <= _LONGEST_ERROR else f"{text[:half]} … {text[-half:]}"


def check_caller() -> None:
    """Raise PermissionError if code of another role calls, with or without that role's rights.

    Interfaces check the rights of the role that logged in. Code of another role runs in its session where the server
    reads or maintains a table and evaluates the owner's functions (for an analyst who trains, or a superuser who runs
    ANALYZE), and in a SECURITY DEFINER function.
    """
    if callers.is_restricted():
        raise PermissionError(
            "dbdp was called by a function that the server runs to read or to maintain a table; call it directly"
        )
    callers.check_role(session)
