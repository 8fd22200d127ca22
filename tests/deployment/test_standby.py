"""Synchronous standbys: nothing is shown before they have the charge."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from dbdp.deployment.cluster import Cluster
from dbdp.sessions.inside.waiting import synchronous_standbys

REGISTER = "select dbdp.register_dataset('t', 't', 'y', '1', '{\"x\": [0, 1]}', 100, 0, mode => 'basic')"
TRAIN = "select model from dbdp.dp_logreg('t', 1)"


class Settings:
    """A session that returns a server's settings."""

    def __init__(self, names: str, *, may: bool = True) -> None:
        self.row = {"names": names, "may": may}

    def query(self, sql: str, *parameters: object) -> list[dict[str, object]]:
        return [self.row]


@pytest.mark.parametrize(
    ("names", "standbys"),
    [("", 0), (" ", 0), ("a", 1), ("*", 1), ("a, b", 1), ("2 (a, b)", 2), ("FIRST 3 (*)", 3), ("any 2 (a,b,c)", 2)],
)
def test_as_many_standbys_are_awaited_as_postgresql_would(names, standbys):
    assert synchronous_standbys(Settings(names)) == standbys


def test_unwatchable_standbys_are_reported_before_charge():
    """Standbys that cannot be watched are reported before the charge."""
    assert synchronous_standbys(Settings("", may=False)) == 0
    with pytest.raises(ValueError, match="grant pg_read_all_stats to dbdp_owner"):
        synchronous_standbys(Settings("a", may=False))


@pytest.fixture
def replicated(private_cluster: Cluster) -> Iterator[psycopg.Connection]:
    """A session of a server that waits for a standby named nearby, which is not there."""
    with psycopg.connect(private_cluster.url, autocommit=True) as connection:
        connection.execute("create table t as select i / 60.0 as x, i % 2 as y from generate_series(1, 60) as i")
        connection.execute(REGISTER)
        connection.execute("alter system set synchronous_standby_names = 'nearby'")
        connection.execute("select pg_reload_conf()")
        connection.execute("set synchronous_commit = local")  # of this session's own commits, as an analyst may
        while connection.execute("show synchronous_standby_names").fetchone() == ("",):
            time.sleep(0.01)
        yield connection


@contextmanager
def standby(connection: psycopg.Connection, cluster: Cluster, folder: Path) -> Iterator[None]:
    """What a standby does for the charge: it receives the WAL and flushes it."""
    hba = Path(connection.execute("show hba_file").fetchone()[0])
    hba.write_text(hba.read_text() + "local replication postgres trust\n")
    connection.execute("select pg_reload_conf()")
    url = f"{cluster.url}{'&' if '?' in cluster.url else '?'}application_name=nearby"
    command = ["pg_receivewal", "--synchronous", f"--directory={folder}", f"--dbname={url}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_release_waits_for_the_standby_to_have_the_charge(replicated, private_cluster, tmp_path):
    """No release is shown before the synchronous standby has the charge."""
    with pytest.raises(psycopg.Error, match="grant pg_read_all_stats to dbdp_owner"):
        replicated.execute(TRAIN)
    charged = "select last_value from dbdp.charge_1"
    assert replicated.execute(charged).fetchone() == (0,)
    replicated.execute("grant pg_read_all_stats to dbdp_owner; set statement_timeout = '10s'")
    with pytest.raises(psycopg.Error, match="the charge is not refunded: it was cancelled"):
        replicated.execute(TRAIN)
    assert replicated.execute(charged).fetchone() == (10**9,)
    replicated.execute("set statement_timeout = '60s'")
    with standby(replicated, private_cluster, tmp_path):
        assert replicated.execute(TRAIN).fetchone()
