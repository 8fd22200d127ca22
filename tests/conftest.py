"""A server for the tests: a private cluster of their own, the one that DBDP_TEST_URL names, or a container of
the image that DBDP_TEST_IMAGE names.
"""

import json
import re
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import settings
from psycopg import conninfo
from psycopg.rows import tuple_row
from servers import drop_datasets, is_here, server, temporary_cluster

from dbdp.deployment.cluster import Cluster
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database

CASTS = {"source": "::regclass", "features": "::json", "epsilon": "::float8", "delta": "::float8"}
CASTS |= {"classes": "::text[]", "label_bounds": "::float8[]", "max_rows": "::int4", "capacity": "::int8"}
# What "discard all" does, but for the statements that the client prepared and will use again.
AS_IF_FRESH = """
close all; set session authorization default; reset all; unlisten *; select pg_advisory_unlock_all();
discard plans; discard temp; discard sequences"""
REGISTRATION = {
    "label": "y",
    "positive": "1",
    "features": {"x": {"length": 3, "norm": 1}},
    "epsilon": 1000,
    "delta": 1e-3,
    "mode": "basic",
}

# Generated examples: the ordinary ones are the same in every run; `--hypothesis-profile=search` looks for others.
settings.register_profile("search", deadline=None)  # machines are busy
settings.register_profile("ordinary", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ordinary")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and their children, ignore Ctrl-C


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """URL of a superuser of a server with the extension."""
    with server() as url:
        yield url


@pytest.fixture(scope="session")
def server_is_here(server_url: str) -> bool:
    """Whether the server is on this machine."""
    return is_here(server_url)


@pytest.fixture
def server_machine(server_is_here: bool) -> None:
    """Skip a test that looks at the server's files or processes, where they are on another machine."""
    if not server_is_here:
        pytest.skip("looks at files or processes of the server, which is on another machine")


@pytest.fixture(scope="session")
def backend(server_url: str) -> Iterator[Callable[[], psycopg.Connection]]:
    """Give a session of the superuser as if it were fresh; its backend has loaded Python but once."""
    kept: list[psycopg.Connection] = []

    def session() -> psycopg.Connection:
        if not kept or kept[-1].closed:
            kept.append(psycopg.connect(server_url, autocommit=True))
        kept[-1].rollback()
        kept[-1].autocommit = True
        kept[-1].row_factory = tuple_row
        kept[-1].execute(AS_IF_FRESH, prepare=False)
        return kept[-1]

    yield session
    for each in kept:
        each.close()


@pytest.fixture
def connection(backend: Callable[[], psycopg.Connection]) -> Iterator[psycopg.Connection]:
    """A session of the superuser, autocommit; it holds nothing when the test has ended."""
    yield backend()
    backend()


@pytest.fixture
def database(connection: psycopg.Connection) -> Database:
    """The same as a `Database`."""
    return connect(connection)


@pytest.fixture
def make_table(connection: psycopg.Connection) -> Iterator[Callable[..., str]]:
    """Make tables (x float8[], y int) with labels -1 and 1; they and their datasets go at the end."""
    made: list[str] = []

    def make(name: str, features: np.ndarray, labels: np.ndarray) -> str:
        connection.execute(f"create table {name} (x float8[], y int)")
        made.append(name)
        with connection.cursor().copy(f"copy {name} from stdin") as copy:
            for row, label in zip(features.tolist(), labels.tolist(), strict=True):
                copy.write_row(("{" + ",".join(map(repr, row)) + "}", int(label)))
        return name

    yield make
    drop_datasets(connection, "split_part(source, '.', 2) = any(%s)", made)
    for name in made:
        connection.execute(f"drop table if exists {name}")


@pytest.fixture
def schema(connection: psycopg.Connection) -> Iterator[str]:
    """A schema for one test, first on the search_path; its datasets and its tables go at the end."""
    name = f"place_{secrets.token_hex(4)}"
    connection.execute(f"create schema {name}; grant usage on schema {name} to public")
    connection.execute(f"set search_path = {name}, public, dbdp")
    yield name
    connection.execute("reset session authorization; reset role; reset statement_timeout")
    connection.execute("reset default_transaction_isolation")
    drop_datasets(connection, "split_part(source, '.', 1) = %s", name)
    connection.execute(f"drop schema {name} cascade")


@pytest.fixture
def register(connection: psycopg.Connection, schema: str) -> Callable[..., str]:
    """Register a table under a name of its own, by default x of length 3 with a large budget; give the name."""

    def call(source: str, **given: Any) -> str:
        options = REGISTRATION | {"name": f"{schema}_{source}", "source": source} | given
        if not isinstance(options["features"], str | None):
            options["features"] = json.dumps(options["features"])
        arguments = ", ".join(f"{key} => %({key})s{CASTS.get(key, '')}" for key in options)
        connection.execute(f"select dbdp.register_dataset({arguments})", options)
        return options["name"]

    return call


@pytest.fixture
def spent(connection: psycopg.Connection) -> Callable[[str], tuple[int, int]]:
    """Read the odometers of a dataset, in units."""

    def call(name: str) -> tuple[int, int]:
        sql = "select max(id) from dbdp.dataset where name = %s"
        number = connection.execute(sql, (name,)).fetchone()[0]
        values = [f"(select last_value from dbdp.{word}_{number})" for word in ("charge", "leak")]
        return connection.execute(f"select {', '.join(values)}").fetchone()

    return call


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> str:
    """A table of 60 rows of norm below 1, with labels 0 and 1, not yet registered."""
    connection.execute(
        "create table t as select array[.1, .2, i / 99.0]::float8[] x, i % 2 y from generate_series(1, 60) i"
    )
    return "t"


@pytest.fixture
def dataset(table: str, register: Callable[..., str]) -> str:
    """That table, registered with a large budget."""
    return register(table)


@pytest.fixture
def make_role(connection: psycopg.Connection, schema: str) -> Iterator[Callable[..., str]]:
    """Create roles, as members of these groups; they, their datasets and all that they own go at the end."""
    made: list[str] = []

    def make(kind: str, *groups: str) -> str:
        made.append(f"{kind}_{schema}")
        connection.execute(f"create role {made[-1]}" + (f" in role {', '.join(groups)}" if groups else ""))
        return made[-1]

    yield make
    connection.execute("reset session authorization; reset role")
    drop_datasets(connection, "split_part(source, '.', 1) = %s", schema)
    for name in made:
        connection.execute(f"drop owned by {name} cascade; drop role {name}")


@pytest.fixture
def analyst(make_role: Callable[..., str]) -> str:
    """An analyst without any grant."""
    return make_role("analyst", "dbdp_analyst")


@pytest.fixture
def make_database(server_url: str) -> Iterator[Callable[..., str]]:
    """Make empty databases or copies of one, with options, each given as its URL; they go at the end."""
    made: list[str] = []

    def make(template: str = "template0") -> str:
        made.append(f"made_{secrets.token_hex(4)}")
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f"create database {made[-1]} template {template}")
        return conninfo.make_conninfo(server_url, dbname=made[-1])

    yield make
    with psycopg.connect(server_url, autocommit=True) as connection:
        for name in made:
            connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def pg_dump(connection: psycopg.Connection) -> None:
    """Skip a test that dumps, where this machine's pg_dump is older than the server."""
    output = subprocess.run(["pg_dump", "--version"], capture_output=True, check=True, text=True).stdout
    major, server_major = int(re.findall(r"(\d+)\.", output)[0]), connection.info.server_version // 10000
    if major < server_major:
        pytest.skip(f"pg_dump {major} of this machine does not dump PostgreSQL {server_major}")


@pytest.fixture
def private_cluster() -> Iterator[Cluster]:
    """A running cluster that a test may stop, crash or damage."""
    with temporary_cluster() as cluster:
        yield cluster
