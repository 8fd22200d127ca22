"""pg_upgrade: a cluster of another server's folders, whose files are gone, is complete after `dbdp install`."""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from carried_over import check_refused, check_training, facts, use
from servers import temporary_cluster

from dbdp.deployment.bootstrap import find_postgresql
from dbdp.deployment.cluster import Cluster
from dbdp.deployment.extension import installer

pytestmark = pytest.mark.slow


@pytest.fixture
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    """A cluster in use, and one that is to take its place."""
    with temporary_cluster() as old, temporary_cluster() as new:
        yield old, new


def upgrade(old: Cluster, new: Cluster) -> None:
    """Run pg_upgrade as the servers' account, which is not root."""
    options = ["--username=postgres"]
    for cluster, which in ((old, "old"), (new, "new")):
        programs = all_programs(cluster)
        options += [f"--{which}-datadir={cluster.home / 'data'}", f"--{which}-bindir={programs}"]
    account = pwd.getpwuid((old.home / "data").stat().st_uid)
    with tempfile.TemporaryDirectory(prefix="dbdp-", dir="/tmp") as folder:
        os.chown(folder, account.pw_uid, account.pw_gid)
        command = [str(programs / "pg_upgrade"), *options, f"--socketdir={folder}"]
        user = account.pw_name if os.geteuid() == 0 else None
        done = subprocess.run(command, cwd=folder, user=user, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def all_programs(cluster: Cluster) -> Path:
    """The folder of a cluster's programs, with links to those that pg_upgrade needs beside them."""
    programs = cluster.files.private().programs
    for origin in find_postgresql().programs.iterdir():
        if not (programs / origin.name).exists():
            (programs / origin.name).symlink_to(origin)
    return programs


def test_pg_upgrade_weakens_no_budget_and_loses_no_model(clusters):
    """After pg_upgrade no budget is weaker no model is lost and training goes on."""
    old, new = clusters
    with psycopg.connect(old.url, autocommit=True) as connection:
        use(connection)
        before = facts(connection)
    with psycopg.connect(new.url.replace("/dbdp?", "/postgres?"), autocommit=True) as connection:
        connection.execute("drop database dbdp")
        connection.execute(f"drop role {', '.join(installer.ROLES)}")
    old.stop()
    new.stop()
    upgrade(old, new)
    old.remove()
    (new.home / "installed").unlink()
    with new._locked():
        new._launch()
    with psycopg.connect(new.url) as connection, pytest.raises(psycopg.Error, match="run `dbdp install`"):
        connection.execute("select dbdp.predict_probability(1, '{.1, .2, .3}'::float8[])")
    installer.install(new.url)
    with psycopg.connect(new.url, autocommit=True) as connection:
        assert facts(connection) == before
        check_refused(connection)
        check_training(connection)
