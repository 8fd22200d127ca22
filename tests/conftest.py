"""A server for the tests: a private cluster of their own, or the one that DBDP_TEST_URL names."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from dbdp import installer
from dbdp.cluster import Cluster
from dbdp.database import Database, connect


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """URL of a superuser of a server with the extension."""
    if given := os.environ.get("DBDP_TEST_URL"):
        installer.install(given)
        yield given
        return
    root = Path(tempfile.mkdtemp(prefix="dbdp-test-"))
    root.chmod(0o755)  # as root the server runs as another account, which must get through
    cluster = Cluster(root / "home")
    try:
        cluster.start()
        yield cluster.url
    finally:
        cluster.remove()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def connection(server_url: str) -> Iterator[psycopg.Connection]:
    """A fresh session of the superuser, autocommit."""
    with psycopg.connect(server_url, autocommit=True) as fresh:
        yield fresh


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
    drop_datasets(connection, made)
    for name in made:
        connection.execute(f"drop table if exists {name}")


def drop_datasets(connection: psycopg.Connection, sources: list[str]) -> None:
    """Close the datasets of these tables."""
    found = connection.execute(
        "select name from dbdp.datasets where split_part(source, '.', 2) = any(%s)", (sources,)
    )
    for (name,) in found.fetchall():
        connection.execute("select dbdp.drop_dataset(%s)", (name,))
