"""Connections of the page: one for each request, in one transaction, as the role of the URL."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.views.refusals import Crowded, Refusal, closed, lost
from dbdp.sessions.connections import connected, libpq_url
from dbdp.sessions.errors import NOT_ALLOWED, PREFIX, PUBLIC_SQLSTATE, ChargedError
from dbdp.sessions.session import Row

_CONNECT_SECONDS = 5
_STATEMENT_SECONDS = 30
_SETTINGS = """
select pg_catalog.set_config('statement_timeout', %s, true),
       pg_catalog.set_config('timezone', 'UTC', true)
"""
_ACCOUNT = """
select r.rolname::text as role, r.rolsuper or r.rolbypassrls as is_above
from pg_catalog.pg_roles as r
where r.rolname = session_user
"""
# When a connection fails, libpq returns the server's message and no SQLSTATE, in the language of its lc_messages.
_CROWDED = re.compile(r"too many (?:connections|clients)|connection slots are reserved")
_PAUSES = (0.05, 0.2, 0.5)  # seconds; a connection that was closed counts until the server has noticed
_CANCELLED, _BROKEN = "57014", ("08", "57P")


class Server:
    """The database server that the page shows, with the role that it logs in as."""

    def __init__(self, target: str) -> None:
        self._conninfo = make_conninfo(
            "", **{"connect_timeout": _CONNECT_SECONDS, **conninfo_to_dict(libpq_url(target))}
        )

    @contextmanager
    def acting(self, *, writing: bool = False, seconds: int = _STATEMENT_SECONDS) -> Iterator[Database]:
        """Yield a connection of the role, in a transaction that is committed at the end, or rolled back on an error.

        Parameters
        ----------
        writing : bool
            Whether the transaction may change something.
        seconds : int
            The longest time of a statement; 0 is no limit.
        """
        connection = self._connect()
        connection.read_only = not writing
        with _errors_as_refusals(), connection:
            connection.execute(_SETTINGS, (f"{seconds}s",))
            yield _database(connection)

    def account(self) -> Row:
        """Return the role that the page logs in as, and whether it is above row-level security; raises as `acting`."""
        with self.acting() as database:
            return database.query(_ACCOUNT)[0]

    def _connect(self) -> psycopg.Connection:
        for pause in _PAUSES:
            try:
                return self._connect_at_once()
            except Crowded:
                time.sleep(pause)
        return self._connect_at_once()

    def _connect_at_once(self) -> psycopg.Connection:
        try:
            connection = connected(self._conninfo, application_name="dbdp web")
        except psycopg.Error as error:
            raise self._refusal(str(error)) from None
        connection.autocommit = False
        return connection

    def _refusal(self, message: str) -> Refusal:
        """Return the refusal for a server's message at connecting."""
        if pq.PGconn.ping(self._conninfo.encode()) != pq.Ping.OK:
            return lost()
        return Crowded() if _CROWDED.search(message) else closed()


def _database(connection: psycopg.Connection) -> Database:
    try:
        return Database(connection)
    except ValueError as error:
        raise Refusal(503, "The extension is missing, or of another version", str(error)) from None


@contextmanager
def _errors_as_refusals() -> Iterator[None]:
    """Raise the server's errors as refusals, with their text alone."""
    try:
        yield
    except ChargedError as error:
        raise Refusal(500, "It stopped after its charge", str(error), "The budget counts the charge.") from None
    except psycopg.Error as error:
        raise _refusal_of(error) from None


def _refusal_of(error: psycopg.Error) -> Refusal:
    sqlstate, text = error.sqlstate or "", (error.diag.message_primary or "").removeprefix(PREFIX)
    if sqlstate == PUBLIC_SQLSTATE:
        return Refusal(400, "dbdp refused this", text, error.diag.message_hint or "")
    if sqlstate == NOT_ALLOWED:
        return Refusal(
            403,
            "This role may not see or do that",
            text,
            "An administrator can grant it membership: grant dbdp_data_owner (registers tables and grants training) or "
            "dbdp_analyst (trains where it was granted) to this role.",
        )
    if sqlstate == _CANCELLED:
        return Refusal(
            503, "The server stopped it", text, "If it took too long, use psql, which does not have the page's limit."
        )
    if sqlstate.startswith(_BROKEN) or (not sqlstate and isinstance(error, psycopg.OperationalError)):
        return lost()
    if isinstance(error, psycopg.DataError):
        return Refusal(
            400, "A value cannot be sent", text or str(error), "Go back and write it without unprintable characters."
        )
    return Refusal(500, "The server refused this", text or type(error).__name__)
