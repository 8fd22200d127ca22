"""Being another role in a session of the superuser."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg


@contextmanager
def acting(connection: psycopg.Connection, role: str) -> Iterator[None]:
    """Be a role, as if it had logged in."""
    connection.execute(f"set session authorization {role}")
    try:
        yield
    finally:
        connection.execute("reset session authorization")
