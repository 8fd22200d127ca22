"""Act as another role in a superuser's session."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg


@contextmanager
def acting(connection: psycopg.Connection, role: str) -> Iterator[None]:
    """Act as a role within the block, as if it had logged in."""
    connection.execute(f"set session authorization {role}")
    try:
        yield
    finally:
        connection.execute("reset session authorization")
