"""The tests' servers, and the removal of datasets and roles at a test's end."""

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from dbdp.deployment.cluster import Cluster
from dbdp.deployment.extension import installer

IMAGE = os.environ.get("DBDP_TEST_IMAGE")  # an image of docker/Dockerfile to test, instead of a private cluster
MEMORY, ROOM = Path("/dev/shm"), 8 << 30  # bytes: of two workers with a few clusters each
URL = os.environ.get("DBDP_TEST_URL")  # a superuser's URL of a server to test, instead of a private cluster


@contextmanager
def server() -> Iterator[str]:
    """Yield the superuser's URL of the server that the environment names, with the extension."""
    if IMAGE:
        with server_of_image(IMAGE) as url:
            _hurry(url)
            yield url
    elif URL:
        if is_here(URL):
            installer.install(URL)
        else:
            with psycopg.connect(URL, autocommit=True) as connection:
                connection.execute("create extension if not exists dbdp cascade")
        yield URL
    else:
        with temporary_cluster() as cluster:
            _hurry(cluster.url)
            yield cluster.url


def is_here(url: str) -> bool:
    """Return whether the server reads files of this machine."""
    with tempfile.NamedTemporaryFile("w") as file, psycopg.connect(url) as connection:
        Path(file.name).chmod(0o644)
        file.write(secret := secrets.token_hex(8))
        file.flush()
        return connection.execute("select pg_read_file(%s, 0, 100, true)", [file.name]).fetchone() == (secret,)


@contextmanager
def server_of_image(image: str) -> Iterator[str]:
    """Yield the superuser's URL of a container of the image, with a random password."""
    from testcontainers.community.postgres import PostgresContainer

    password = secrets.token_urlsafe()
    container = PostgresContainer(image, username="postgres", password=password, dbname="dbdp", driver=None)
    with container.with_kwargs(shm_size="256m") as started:
        yield started.get_connection_url()


def _hurry(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as hurried:  # a release waits for the WAL writer
        hurried.execute("alter system set wal_writer_delay = '10ms'")
        hurried.execute("alter system set fsync = off")  # no test cuts the power
        hurried.execute("select pg_reload_conf()")


@contextmanager
def temporary_cluster() -> Iterator[Cluster]:
    """Yield a cluster in a folder that the server's account can enter, named as the default one."""
    if IMAGE:
        pytest.skip(f"needs a private cluster, and {IMAGE} is tested")
    root = Path(tempfile.mkdtemp(prefix="dbdp-test-", dir=in_memory()))
    root.chmod(0o755)  # as root the server runs as another account, which must get through
    cluster = Cluster(root / Cluster.default().home.name)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()
        shutil.rmtree(root, ignore_errors=True)


def in_memory() -> Path | None:
    """Return a folder in memory with room for clusters; without one they are on the disk."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        return MEMORY
    return None


def execute(url: str, statement: str) -> None:
    """Run a statement in a session of its own, outside of a transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def drop_datasets(connection: psycopg.Connection, condition: str, *parameters: object) -> None:
    """Close the datasets that meet a condition."""
    names = connection.execute(f"select name from dbdp.datasets_details where {condition}", parameters)
    for (name,) in names.fetchall():
        connection.execute("select dbdp.drop_dataset(%s)", (name,))


@contextmanager
def stopping_once_charged(url: str, pid: int, name: str, stop: str = "pg_cancel_backend") -> Iterator[None]:
    """Cancel what a backend runs in the block, or end the backend, a moment after the charge of a dataset.

    A cancel that arrives between two statements is lost: it is repeated until the block has ended.
    """
    over = threading.Event()

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            number = other.execute("select max(id) from dbdp.dataset where name = %s", (name,)).fetchone()[0]
            while other.execute(f"select last_value from dbdp.charge_{number}").fetchone() == (0,):
                over.wait(0.01)
            over.wait(0.2)
            statement = f"select {stop}(pid) from pg_stat_activity where pid = %s and state = 'active'"
            while not over.is_set():
                sent = other.execute(statement, (pid,)).fetchall()
                over.wait(5 if sent else 0.001)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
