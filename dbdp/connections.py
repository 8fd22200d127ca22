"""Connections, and what a name means in a statement that dbdp sends over one.

Names without a schema (functions, operators, types, tables, collations) are looked up along `search_path`, where an
operator of anybody's whose types fit better is preferred to the server's own. With PATH the server's own are found.
Two ways set it, and nothing else in dbdp does:

- `opened` sets it for the life of a connection that dbdp opens for its own statements;
- `pinned` sets it for one statement on a connection that its user shares, whose path stays as it is.

Proof that no name is met on the way there: PIN and READ have no operator; they name one function each, by its schema,
and that function takes what stands there without a cast that could be planted (casts belong to types, not schemas).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

PATH = "pg_catalog, pg_temp"  # temporary objects last: they hide nothing of the server's
PIN = b"select pg_catalog.set_config('search_path', $1::pg_catalog.text, $2::pg_catalog.bool)"
READ = b"select pg_catalog.current_setting('search_path')"


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
        _set_path(connection, PATH, is_local=False)
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def pinned(connection: psycopg.Connection) -> Iterator[None]:
    """Have names mean the server's own in the one statement of the block; its results are there when that ends.

    Path and statement are sent in one pipeline. Without a transaction they are one, which ends with the block and
    takes the path along; within one the path is put back behind the statement, or, where that fails, by the rollback
    that must follow.
    """
    is_alone = connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
    before = None if is_alone else path_of(connection)
    with connection.pipeline():
        _set_path(connection, PATH, is_local=True)
        yield
        if before is not None:
            _set_path(connection, before, is_local=True)


def path_of(connection: psycopg.Connection) -> str:
    """Return the search_path of a connection."""
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        return str(cursor.execute(READ, prepare=False).fetchall()[0][0])


def _set_path(connection: psycopg.Connection, path: str, *, is_local: bool) -> None:
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(PIN, (path, is_local), prepare=False)  # nor is anything of ours kept for the user's statements
