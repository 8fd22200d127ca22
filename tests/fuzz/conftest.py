"""A session of its own for fuzzing, with a schema, types, and a role of either kind."""

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from making import ANALYST
from values import TYPES
from watch import Watch

OWNER = "fuzz_owner"
ROLES = f"create role {ANALYST} in role dbdp_analyst; create role {OWNER} in role dbdp_data_owner"


@pytest.fixture
def place(connection: psycopg.Connection) -> Iterator[str]:
    """A schema of a data owner; its tables, datasets and the roles go at the end."""
    name = f"fuzz_{secrets.token_hex(4)}"
    connection.execute(f"{ROLES}; create schema {name} authorization {OWNER}; grant usage on schema {name} to public")
    yield name
    for (dataset,) in connection.execute("select name from dbdp.datasets_details").fetchall():
        connection.execute("select dbdp.drop_dataset(%s)", (dataset,))
    connection.execute(f"drop schema {name} cascade; drop owned by {ANALYST}, {OWNER} cascade")
    connection.execute(f"drop role {ANALYST}, {OWNER}")


@pytest.fixture
def owner(server_url: str, place: str) -> Iterator[psycopg.Connection]:
    """A session of the data owner, autocommit, with the schema first on its search_path."""
    with psycopg.connect(server_url, autocommit=True) as session:
        session.execute(f"set session authorization {OWNER}")
        session.execute(f"set search_path = {place}, dbdp")
        session.execute(TYPES)
        yield session


@pytest.fixture
def analyst(server_url: str, place: str) -> Iterator[psycopg.Connection]:
    """A session of an analyst, autocommit, with the same search_path."""
    with psycopg.connect(server_url, autocommit=True) as session:
        session.execute(f"set session authorization {ANALYST}")
        session.execute(f"set search_path = {place}, dbdp")
        yield session


@pytest.fixture
def watch(owner: psycopg.Connection, connection: psycopg.Connection) -> Watch:
    """The owner's session, watched."""
    return Watch(owner, connection)


@pytest.fixture
def watched_analyst(analyst: psycopg.Connection, connection: psycopg.Connection) -> Watch:
    """The analyst's session, watched."""
    return Watch(analyst, connection)
