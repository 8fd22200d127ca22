"""Connections with a pinned search_path, so that names in dbdp's statements mean the server's own objects.

Names without a schema (functions, operators, types, tables, collations) are looked up along `search_path`, where any
role's operator whose types fit better is preferred to the server's own. PATH finds the server's own first. Only two
functions in dbdp set it. They also switch `row_security` on, since off makes each statement fail to which a policy of
dbdp's own tables applies:

- `opened` sets it for the life of a connection that dbdp opens for its own statements;
- `pinned` sets it for one statement on a user's connection, whose settings stay as they are.

Proof that these two statements resolve no name along the old path: PIN and READ have no operator; each names its
functions with their schema, and their arguments need no cast that a role could plant (casts belong to types, not
schemas).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

PATH = "pg_catalog, pg_temp"  # temporary objects last, so that they hide none of the server's
PIN = b"""select pg_catalog.set_config('search_path', $1::pg_catalog.text, $3::pg_catalog.bool),
       pg_catalog.set_config('row_security', $2::pg_catalog.text, $3::pg_catalog.bool)"""
READ = b"select pg_catalog.current_setting('search_path'), pg_catalog.current_setting('row_security')"
_PINNED = (PATH, "on")


def opened(url: str = "", *, autocommit: bool = True, **options: Any) -> psycopg.Connection:
    """Connect with the pinned search_path, so that names mean the server's own from the first statement on.

    A statement sets the path, since some poolers refuse a startup option. It runs after the URL, the environment, a
    service file, the role and the database have set theirs, and so overrides them.

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
    """Pin search_path for the one statement of the block; its results are complete when the block ends.

    Settings and statement are sent in one pipeline. Outside a transaction the pipeline is one, and its settings end
    with it. Within a transaction the settings are restored after the statement, or, if it fails, by the rollback that
    must follow.
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
        # Not prepared, so that none of dbdp's statements is stored beside the user's.
        cursor.execute(PIN, (*settings, is_local), prepare=False)
