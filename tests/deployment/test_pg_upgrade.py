"""pg_upgrade: a cluster of another server's folders, whose files are gone, is complete after `dbdp install`."""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from servers import temporary_cluster

from dbdp.deployment import installer
from dbdp.deployment.bootstrap import find_postgresql
from dbdp.deployment.cluster import Cluster

pytestmark = pytest.mark.slow
FACTS = {
    "odometers": "select sequencename, last_value, sequenceowner from pg_sequences where schemaname = 'dbdp' "
    "and sequencename ~ '(charge|leak)_[0-9]+$' order by 1",
    "budgets": "select id, name, source::regclass::text, charge_limit, leak_limit, rdp_order from dbdp.dataset",
    "allowances": "select id, role, charge_limit, leak_limit from dbdp.allowance",
    "charges": "select id, charge, leak, charge_after, leak_after, plan::text from dbdp.ledger order by id",
    "models": "select id, coefficients, intercepts, receipt::text from dbdp.model order by id",
    "rights": "select p.oid::regprocedure::text, p.proowner::regrole::text, a.grantee, a.privilege_type "
    "from pg_proc as p, lateral (select coalesce(nullif(g.grantee, 0)::regrole::text, 'all'), g.privilege_type "
    "from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as g) as a (grantee, privilege_type) "
    "where p.pronamespace = any ('{dbdp,dbdp_internal}'::regnamespace[]) order by 1, 3",
}


@pytest.fixture
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    """A cluster in use, and one that is to take its place."""
    with temporary_cluster() as old, temporary_cluster() as new:
        yield old, new


def use(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role anna in role dbdp_analyst")
        connection.execute(
            "create table t as select array[.1, .2, i / 99.0]::float8[] x, i % 2 y from generate_series(1, 60) i"
        )
        declared = '{"x": {"length": 3, "norm": 1}}'
        connection.execute("select dbdp.register_dataset('t', 't', 'y', '1', %s, 3, 1e-6)", (declared,))
        connection.execute("select dbdp.grant_training('t', 'anna', 1)")
        connection.execute("set session authorization anna")
        connection.execute("select dbdp.dp_logreg('t', 0.2, 1e-8)")
        connection.execute("begin; select dbdp.dp_logreg('t', 0.1, 1e-8); rollback")


def facts(url: str) -> dict[str, list[tuple]]:
    with psycopg.connect(url) as connection:
        return {what: connection.execute(sql.encode()).fetchall() for what, sql in FACTS.items()}


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
    programs = cluster._private().programs
    for origin in find_postgresql().programs.iterdir():
        if not (programs / origin.name).exists():
            (programs / origin.name).symlink_to(origin)
    return programs


def test_after_pg_upgrade_no_budget_is_weaker_no_model_is_lost_and_training_goes_on(clusters):
    old, new = clusters
    use(old.url)
    before = facts(old.url)
    predict = "select dbdp.predict_probability(1, '{.1, .2, .3}'::float8[])"
    with psycopg.connect(old.url) as connection:
        predicted = connection.execute(predict).fetchone()
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
        connection.execute(predict)
    installer.install(new.url)
    assert facts(new.url) == before
    assert all(before.values())
    with psycopg.connect(new.url, autocommit=True) as connection:
        assert connection.execute(predict).fetchone() == predicted
        assert connection.execute("select ok, unrecorded > 0 from dbdp.check_ledger()").fetchall() == [(True, True)]
        connection.execute("set session authorization anna")
        connection.execute("select dbdp.dp_logreg('t', 0.1, 1e-8)")
        with pytest.raises(psycopg.Error, match="the allowance of role 'anna' on dataset 't' does not cover"):
            connection.execute("select dbdp.dp_logreg('t', 2, 1e-8, 'bolt_on')")
