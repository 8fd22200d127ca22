"""An arena for the attacks, and a server that is watched closely."""

from collections.abc import Iterator

import pytest
from arena import admin, analyst, arena, dataset, make, owner
from attacker import Arena, arena_of
from servers import temporary_cluster

__all__ = ["admin", "analyst", "arena", "dataset", "make", "owner"]

WATCHED = {
    "shared_preload_libraries": "'auto_explain, pg_stat_statements'",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_nested_statements": "on",
    "pg_stat_statements.track": "'all'",
    "max_prepared_transactions": "5",
    "wal_writer_delay": "'10ms'",
}


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
