"""Connections, and what a name means in a statement that dbdp sends over one.

Names without a schema (functions, operators, types, tables, collations) are looked up along `search_path`, where an
operator of anybody's whose types fit better is preferred to the server's own. With PATH the server's own are found.
Two ways set it, and nothing else in dbdp does; with it `row_security` is on, since off stops each statement that
a policy of dbdp's own tables is about:

- `opened` sets it for the life of a connection that dbdp opens for its own statements;
- `pinned` sets it for one statement on a connection that its user shares, whose settings stay as they are.

Proof that no name is met on the way there: PIN and READ have no operator; each names one function, by its schema, and
that takes what stands there without a cast that could be planted (casts belong to types, not schemas).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

PATH = "pg_catalog, pg_temp"  # temporary objects last: they hide nothing of the server's
PIN = b"""select pg_catalog.set_config('search_path', $1::pg_catalog.text, $3::pg_catalog.bool),
       pg_catalog.set_config('row_security', $2::pg_catalog.text, $3::pg_catalog.bool)"""
READ = b"select pg_catalog.current_setting('search_path'), pg_catalog.current_setting('row_security')"
_PINNED = (PATH, "on")


def opened(url: str = "", *, autocommit: bool = True, **options: Any) -> psycopg.Connection:
    """Connect, and have names mean the server's own from the first statement on.

    A statement sets the path, since a startup option would be refused by some poolers; it comes behind, and so undoes,
    what the URL, the environment, a service file, the role or the database set.

    Parameters
    ----------
    url : str
        libpq URL or connection string.
    autocommit : bool
        Whether each statement is a transaction of its own.
    **options
        Further parameters of libpq.
    """
    connection = psycopg.connect(url, autocommit=True, **options)
    try:
        _set(connection, _PINNED, is_local=False)
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def pinned(connection: psycopg.Connection) -> Iterator[None]:
    """Have names mean the server's own in the one statement of the block; its results are there when that ends.

    Settings and statement are sent in one pipeline. Without a transaction they are one, which ends with the block and
    takes the settings along; within one they are put back behind the statement, or, where that fails, by the rollback
    that must follow.
    """
    is_alone = connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
    before = None if is_alone else _settings_of(connection)
    with connection.pipeline():
        _set(connection, _PINNED, is_local=True)
        yield
        if before is not None:
            _set(connection, before, is_local=True)


def _settings_of(connection: psycopg.Connection) -> tuple[str, str]:
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        path, row_security = cursor.execute(READ, prepare=False).fetchall()[0]
        return str(path), str(row_security)


def _set(connection: psycopg.Connection, settings: tuple[str, str], *, is_local: bool) -> None:
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        # Not prepared: nothing of ours is kept beside the user's statements.
        cursor.execute(PIN, (*settings, is_local), prepare=False)
