"""What many training runs leave behind: memory, plans, rows of catalogues (operations.md, decision 035)."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pytest
from dbdp.interfaces.sql._scorer import MOST_KNOWN, Scorers, VectorScorer
from servers import temporary_cluster
from short import FEW

CATALOGUES = ("pg_class", "pg_attribute", "pg_type", "pg_depend", "pg_index", "pg_shdepend")
OURS = ("ledger", "model", "dataset")
MEMORY = "select count(*), sum(total_bytes)::int8 from pg_backend_memory_contexts where name = %s"
WARM = 200  # trainings until libraries are loaded, and the C library's heap has its size
REQUESTS: list[dict[str, Any]] = [
    {"algorithm": name} | options for name, options in {"bolt_on": {"epochs": 2}, **FEW}.items()
]
REQUESTS.append({"algorithm": "dp_sgd", "network": "mlp:2", "epochs": 2})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A cluster of its own: catalogues that nobody else fills, with a dataset t of 60 rows."""
    with temporary_cluster() as cluster:
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute("alter system set wal_writer_delay = '10ms'")
            connection.execute("select pg_reload_conf()")
            connection.execute(
                "create table t as select '{.1,.2,.3}'::float8[] x, i % 2 y from generate_series(1, 60) i"
            )
            declared = '{"x": {"length": 3, "norm": 1}}'
            register = "select dbdp.register_dataset('t', 't', 'y', '1', %s, 1e6, 0.5, mode => 'basic')"
            connection.execute(register, (declared,))
        yield cluster.url


def train(connection: psycopg.Connection, number: int) -> None:
    """Train by one of the algorithms, in turn, and predict with the model."""
    request = {"epsilon": 1.0, "delta": 1e-6} | REQUESTS[number % len(REQUESTS)]
    options = ", ".join(f"{name} => {value!r}" for name, value in request.items())
    model = connection.execute(f"select model from dbdp.dp_train('t', {options})").fetchone()[0]
    connection.execute("select dbdp.predict(%s, array[.1, .2, .3])", (model,))


@pytest.mark.slow
def test_a_session_keeps_no_plan_of_a_table_that_is_gone(url):
    """The blocks of each training have a table of their own, whose name never comes again."""
    with psycopg.connect(url, autocommit=True) as connection:
        counts = []
        for number in range(45):
            train(connection, number % 3)
            counts.append(connection.execute(MEMORY, ("CachedPlanSource",)).fetchone()[0])
    assert counts[14] > 64  # it does keep plans
    assert counts[-1] < 160


def test_a_session_keeps_no_more_scorers_than_it_uses():
    scorers = Scorers()
    for model in range(2 * MOST_KNOWN + 1):
        scorers.add(model, 0, VectorScorer([1.0], 0.0))
        assert scorers.knows(model, 0)
    assert sum(scorers.knows(model, 0) for model in range(2 * MOST_KNOWN + 1)) <= MOST_KNOWN


def anonymous_kb(pid: int) -> int:
    """Memory of a process that is no file's and shared with nobody, in kB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.slow
def test_backend_is_flat_over_500_trainings(url):
    """Its buffers for temporary tables fill up first: to temp_buffers, which is small here."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set dbdp.pack_memory = '2MB'; set temp_buffers = '1MB'")
        memory, times = [], []
        for number in range(WARM + 500):
            began = time.monotonic()
            train(connection, number)
            times.append(time.monotonic() - began)
            memory.append(anonymous_kb(connection.info.backend_pid))
        buffers = connection.execute(MEMORY, ("LocalBufferContext",)).fetchone()[1]
    assert buffers < 2 << 20
    assert memory[-1] - memory[WARM - 1] < 5 << 10  # 0.4 to 2.5 MB were seen, and 55 MB when plans were kept
    assert median(times[-100:]) < 2 * median(times[WARM : WARM + 100])


def sizes(connection: psycopg.Connection) -> dict[str, int]:
    """Bytes of the catalogues and of our tables, with indexes and TOAST."""
    names = [f"pg_catalog.{name}" for name in CATALOGUES] + [f"dbdp.{name}" for name in OURS]
    sql = "select n, pg_total_relation_size(n::regclass) from unnest(%s::text[]) as n"
    return dict(connection.execute(sql, (names,)).fetchall())


@pytest.mark.slow
def test_a_thousand_trainings_bloat_no_catalogue_for_good(url):
    """Without any vacuum a training adds some kilobytes to the catalogues; after one the space is used again."""
    with psycopg.connect(url, autocommit=True) as admin:
        for name in CATALOGUES:
            admin.execute(f"vacuum full pg_catalog.{name}")
        before = sizes(admin)
        _train_in_sessions(url, 1000)
        after = sizes(admin)
        for name in CATALOGUES:
            admin.execute(f"vacuum pg_catalog.{name}")
        _train_in_sessions(url, 200)
        again = sizes(admin)
        left = "select count(*) from pg_class where relpersistence = 't' and relname like '%dbdp%'"
        assert admin.execute(left).fetchone() == (0,)
    for name, size in after.items():
        assert size - before[name] < 1000 * (8 << 10), name
    for name in CATALOGUES:
        assert again[f"pg_catalog.{name}"] - after[f"pg_catalog.{name}"] < 256 << 10, name


def _train_in_sessions(url: str, count: int) -> None:
    """Train in four sessions, in turn."""
    sessions = [psycopg.connect(url, autocommit=True) for _ in range(4)]
    for number in range(count):
        train(sessions[number % 4], number)
    for session in sessions:
        session.close()
