"""An arena for the attacks: roles with a login, a registered table, and a server that is watched closely."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from attacker import Arena, arena_of, registered
from servers import temporary_cluster

WATCHED = {
    "shared_preload_libraries": "'auto_explain, pg_stat_statements'",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_nested_statements": "on",
    "pg_stat_statements.track": "'all'",
    "max_prepared_transactions": "5",
    "wal_writer_delay": "'10ms'",
}


@pytest.fixture(scope="module")
def arena(server_url: str) -> Iterator[Arena]:
    """The roles on the server of the tests."""
    with arena_of(server_url) as made:
        yield made


@pytest.fixture(scope="session")
def watched() -> Iterator[Arena]:
    """The roles on a server of their own, which records all it does, and prepares transactions."""
    with temporary_cluster() as cluster:
        with (cluster.home / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in WATCHED.items())
        cluster.stop()
        cluster.start()
        with arena_of(cluster.url) as made:
            with made.admin() as admin:
                admin.execute("create extension pg_stat_statements")
            made.log = lambda: (cluster.home / "server.log").read_text(errors="replace")
            yield made


@pytest.fixture
def admin(arena: Arena) -> Iterator[psycopg.Connection]:
    """A session of the superuser."""
    with arena.admin() as session:
        yield session


@pytest.fixture
def analyst(arena: Arena) -> psycopg.Connection:
    """The attacker's session."""
    return arena.session("analyst")


@pytest.fixture
def owner(arena: Arena) -> psycopg.Connection:
    """A session of a data owner, whom others may attack or who attacks."""
    return arena.session("owner")


@pytest.fixture
def make(arena: Arena) -> Iterator[Callable[..., str]]:
    """Register tables of 60 rows; they are gone with the arena."""
    yield lambda kind="owner", epsilon=1000: registered(arena, kind, epsilon)
    for kind in arena.names:
        arena.end(kind)  # no lock is left


@pytest.fixture
def dataset(make: Callable[..., str]) -> str:
    """A registered table of the owner, with a large budget."""
    return make()
