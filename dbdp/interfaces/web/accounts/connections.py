"""Connections of signed-in roles: one for each request, in one transaction."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dbdp.interfaces.python.database import Database
from dbdp.interfaces.web.views.refusals import Crowded, Denied, Refusal, closed, lost
from dbdp.sessions.connections import opened
from dbdp.sessions.errors import NOT_ALLOWED, PREFIX, PUBLIC_SQLSTATE
from dbdp.sessions.urls import libpq_url

_DROPPED = ("user", "password", "passfile", "application_name")  # the user who signs in types the first two
_CONNECT_SECONDS = 5
_SETTINGS = """
select pg_catalog.set_config('statement_timeout', '30s', true),
       pg_catalog.set_config('timezone', 'UTC', true),
       pg_catalog.set_config('datestyle', 'ISO, YMD', true)
"""
_SUPERUSER = (
    "select r.rolsuper or r.rolbypassrls as is_above from pg_catalog.pg_roles as r where r.rolname = session_user"
)
# When a connection fails, libpq returns the server's message and no SQLSTATE, in the language of its lc_messages.
_DENYING = re.compile(
    r"authentication failed|is not permitted to log in|pg_hba\.conf|no password supplied|role .* does"
)
_CROWDED = re.compile(r"too many (?:connections|clients)|connection slots are reserved")
_CLOSED = re.compile(r"permission denied for database|database .* does not exist|not currently accepting connections")
_PAUSES = (0.05, 0.2, 0.5)  # seconds; a connection that was closed counts until the server has noticed
_CANCELLED, _BROKEN = "57014", ("08", "57P")


class Server:
    """The database server that the page shows.

    Parameters
    ----------
    target : str
        Its libpq or SQLAlchemy URL; user and password in it are not used.

    Raises
    ------
    ValueError
        If the target is not such a URL.
    """

    def __init__(self, target: str) -> None:
        parsed = conninfo_to_dict(libpq_url(target))
        used = {name: value for name, value in parsed.items() if name not in _DROPPED}
        self._conninfo = make_conninfo("", **{"connect_timeout": _CONNECT_SECONDS, **used})
        self.place = f"{used.get('dbname', 'the default database')} on {used.get('host', 'this machine')}"

    @contextmanager
    def acting(self, user: str, password: str, *, writing: bool = False) -> Iterator[Database]:
        """Yield a connection of a role, in a transaction that is committed at the end, or rolled back on an error.

        Raises
        ------
        Denied
            If the server rejects the password, or does not require one: anybody who reaches the page could then act as
            that role.
        Refusal
            If the server does not answer, rejects the connection for another reason, or refuses a statement.
        """
        connection = self._connect(user, password)
        connection.read_only = not writing
        with _errors_as_refusals(), connection:
            connection.execute(_SETTINGS)
            yield _database(connection)

    def sign_in(self, user: str, password: str) -> None:
        """Check a name and a password.

        Raises
        ------
        Denied
            As `acting` does.
        Refusal
            As `acting` does, and if the role bypasses row-level security.
        """
        with self.acting(user, password) as database:
            if database.query(_SUPERUSER)[0]["is_above"]:
                raise Refusal(
                    403,
                    "Not for superusers",
                    "This role bypasses row-level security, and the page would hold its password in memory.",
                    "Sign in as a role that is a member of dbdp_data_owner or dbdp_analyst.",
                )

    def _connect(self, user: str, password: str) -> psycopg.Connection:
        for pause in _PAUSES:
            try:
                return self._connect_at_once(user, password)
            except Crowded:
                time.sleep(pause)
        return self._connect_at_once(user, password)

    def _connect_at_once(self, user: str, password: str) -> psycopg.Connection:
        if not (user and password) or not (user + password).isprintable():
            raise Denied  # libpq would search for another password, or end the name at a zero byte
        try:
            connection = opened(
                self._conninfo,
                autocommit=False,
                user=user,
                password=password,
                application_name="dbdp web",
                client_encoding="utf8",
            )
        except psycopg.Error as error:
            raise self._refusal(str(error)) from None
        if not connection.pgconn.used_password:
            connection.close()
            raise Denied
        return connection

    def _refusal(self, message: str) -> Exception:
        """Return the error for a server's message at connecting; an unknown message may mean a wrong password."""
        if pq.PGconn.ping(self._conninfo.encode()) != pq.Ping.OK:
            return lost()
        if _DENYING.search(message):
            return Denied()
        if _CROWDED.search(message):
            return Crowded()
        return closed() if _CLOSED.search(message) else Denied(is_certain=False)


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
            503, "It took too long", text, "Request less, or use psql, which does not have the page's limit."
        )
    if sqlstate.startswith(_BROKEN) or (not sqlstate and isinstance(error, psycopg.OperationalError)):
        return lost()
    if isinstance(error, psycopg.DataError):
        return Refusal(
            400, "A value cannot be sent", text or str(error), "Go back and write it without unprintable characters."
        )
    return Refusal(500, "The server refused this", text or type(error).__name__)
