"""Connections: URLs, and the settings that decide the meaning of dbdp's statements and the text of their results.

Names without a schema (functions, operators, types, tables, collations) are looked up along `search_path`, where any
role's operator whose types fit better is preferred to the server's own. PATH finds the server's own first. Other
settings decide how a result is written, or whether a statement fails: `row_security = off` makes each statement fail to
which a policy of dbdp's own tables applies. PINNED has all of them. Only two functions in dbdp set them:

- `opened` sets them for the life of a connection that dbdp opens for its own statements;
- `pinned` sets them for one statement on a user's connection, whose settings stay as they are.

Proof that these two statements resolve no name along the old path: they have no operator without a schema; each names
its functions with their schema, and their arguments need no cast that a role could plant (casts belong to types, not
schemas).

A pooler between client and server may give each transaction another session of the server. It answers a client in the
place of the server, so that the process whose key the client received is not the one that runs its statements:
`is_direct`. In a session that may be others', nothing is set for longer than a transaction.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg import postgres
from psycopg.adapt import AdaptersMap, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types import array, datetime
from psycopg.types.json import JsonbLoader, JsonLoader

PATH = "pg_catalog, pg_temp"  # temporary objects last, so that they hide none of the server's
PINNED = {
    "search_path": PATH,
    "row_security": "on",
    "transform_null_equals": "off",
    "standard_conforming_strings": "on",
    "backslash_quote": "safe_encoding",
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "xmloption": "content",
    "xmlbinary": "base64",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
}
_ENCODING = "UTF8"  # of clients, which the text of statements and results has
_WRITTEN = {b"DateStyle": b"ISO, YMD", b"IntervalStyle": b"postgres"}  # how psycopg has to read what PINNED writes
_PLACES = range(1, len(PINNED) + 1)
_VALUES = ", ".join(
    f"pg_catalog.set_config('{name}', ${place}::pg_catalog.text, @local@)"
    for name, place in zip(PINNED, _PLACES, strict=True)
)
_PID = "pg_catalog.pg_backend_pid()::pg_catalog.int8"
PIN = f"select {_VALUES}".replace("@local@", "true").encode()
PIN_OWN = f"""select {_VALUES} where {_PID} operator(pg_catalog.=) ${len(PINNED) + 1}::pg_catalog.int8""".replace(
    "@local@", "false"
).encode()
READ = "select {}".format(", ".join(f"pg_catalog.current_setting('{name}')" for name in PINNED)).encode()
POOLED = "the connection passes through a pooler, which may run each statement in another session of the server"
_DIRECTLY = f"{POOLED}; connect to the server itself"
URL_VARIABLE = "DBDP_URL"
_NO_URL = (
    "the target is not a libpq URL: write postgresql://user@host:port/database; in a password write %40 for @, %2F for "
    "/ and %25 for %"
)


def libpq_url(target: str) -> str:
    """Return a target as a URL that libpq accepts."""
    url = target.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        parts = conninfo_to_dict(url.replace("%40", "_"))  # an @ that is left was not escaped
    except psycopg.ProgrammingError:
        raise ValueError(_NO_URL) from None
    host, port, name = (str(parts.get(part) or "") for part in ("host", "port", "dbname"))
    if "://" in url and ("@" in host + name or not set(port) <= set("0123456789,")):
        raise ValueError(_NO_URL)
    return url


def opened(url: str = "", *, autocommit: bool = True, **options: Any) -> psycopg.Connection:
    """Connect with pinned settings, so that names mean the server's own from the first statement on.

    A statement sets them, since some poolers refuse a startup option. It runs after the URL, the environment, a
    service file, the role and the database have set theirs, and so overrides them. Behind a pooler it sets nothing, as
    other clients may get that session.
    """
    connection = connected(url, **options)
    try:
        with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(PIN_OWN, (*PINNED.values(), connection.info.backend_pid), prepare=False)
            if not cursor.fetchall():
                raise ValueError(_DIRECTLY)
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    return connection


def connected(url: str, **options: Any) -> psycopg.Connection:
    """Connect in the one encoding of dbdp's clients, whatever URL, environment, role and database say."""
    return psycopg.connect(url, autocommit=True, **options | {"client_encoding": _ENCODING})


def is_direct(connection: psycopg.Connection) -> bool:
    """Return whether the connection ends at the session that runs its statements, and at no pooler.

    A server sends each client the number of the process that will run its statements, with a key for cancels. A pooler
    sends numbers of its own, since its clients share the server's. One that handed on the number of a session, and
    changed sessions later, would not be recognised.
    """
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        ((pid,),) = cursor.execute(f"select {_PID}".encode(), prepare=False).fetchall()
    return bool(pid == connection.info.backend_pid)


@contextmanager
def pinned(connection: psycopg.Connection) -> Iterator[None]:
    """Pin the settings for the one statement of the block; its results are complete when the block ends.

    Settings and statement are sent in one pipeline. Outside a transaction the pipeline is one, and its settings end
    with it. Within a transaction the settings are restored after the statement, or, if it fails, by the rollback that
    must follow.
    """
    _check_connection(connection)
    is_alone = connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
    before = None if is_alone else _settings_of(connection)
    with connection.pipeline():
        _set(connection, tuple(PINNED.values()))
        yield
        if before is not None:
            _set(connection, before)


def read_as_pinned(cursor: psycopg.RawCursor[Any]) -> None:
    """Make a cursor convert values as psycopg does by default, whatever its connection or the program registered.

    Dates, times and intervals are read as the pinned settings write them.
    """
    cursor._adapters = AdaptersMap(_default_adapters())


def _check_connection(connection: psycopg.Connection) -> None:
    if connection.closed:  # lost, as its next statement says
        return
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ValueError("the connection is in pipeline mode; call dbdp outside of the block of its pipeline()")
    encoding = connection.info.parameter_status("client_encoding")
    if encoding != _ENCODING:
        raise ValueError(
            f"the connection has client_encoding {encoding}, and dbdp needs {_ENCODING}; run set client_encoding = "
            f"'{_ENCODING}' on it, or pass dbdp a URL"
        )


def _settings_of(connection: psycopg.Connection) -> tuple[str, ...]:
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        return tuple(map(str, cursor.execute(READ, prepare=False).fetchall()[0]))


def _set(connection: psycopg.Connection, settings: tuple[str, ...]) -> None:
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        # Not prepared, so that none of dbdp's statements is stored beside the user's.
        cursor.execute(PIN, settings, prepare=False)


def _reading_as_pinned(loader: Any) -> type[Loader]:
    class Pinned(loader):  # type: ignore[misc]
        def __init__(self, oid: int, context: Any = None) -> None:
            connection = context and context.connection
            super().__init__(oid, connection and _pinned_context(connection))

    return Pinned


def _pinned_context(connection: Any) -> Any:
    """Return a context for a loader: of a connection with the pinned settings, and with its own time zone."""

    def status(name: bytes) -> bytes | None:
        return _WRITTEN.get(name) or connection.pgconn.parameter_status(name)

    return SimpleNamespace(connection=SimpleNamespace(pgconn=SimpleNamespace(parameter_status=status)))


@cache
def _default_adapters() -> AdaptersMap:
    adapters = AdaptersMap(types=postgres.types)
    context = SimpleNamespace(adapters=adapters, connection=None)
    postgres.register_default_adapters(context)
    array.register_all_arrays(context)
    for name, of_json in {"json": JsonLoader, "jsonb": JsonbLoader}.items():
        adapters.register_loader(name, type(name, (of_json,), {"_loads": staticmethod(json.loads)}))
    for name, of_times in _OF_TIMES.items():
        adapters.register_loader(name, _reading_as_pinned(of_times))
    return adapters


_OF_TIMES: dict[str, Any] = {
    "date": datetime.DateLoader,
    "timestamp": datetime.TimestampLoader,
    "timestamptz": datetime.TimestamptzLoader,
    "interval": datetime.IntervalLoader,
}
