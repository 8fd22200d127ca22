"""Servers of the tests, and what is closed on them at a test's end."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from dbdp.cluster import Cluster


@contextmanager
def temporary_cluster() -> Iterator[Cluster]:
    """A cluster in a folder that the server's account can enter; the default one where DBDP_HOME is its parent."""
    root = Path(tempfile.mkdtemp(prefix="dbdp-test-"))
    root.chmod(0o755)  # as root the server runs as another account, which must get through
    cluster = Cluster(root / Cluster.default().home.name)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()
        shutil.rmtree(root, ignore_errors=True)


def drop_datasets(connection: psycopg.Connection, condition: str, *parameters: object) -> None:
    """Close the datasets that meet a condition."""
    found = connection.execute(f"select name from dbdp.datasets where {condition}", parameters)
    for (name,) in found.fetchall():
        connection.execute("select dbdp.drop_dataset(%s)", (name,))
