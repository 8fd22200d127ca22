"""The doctor reports each real fault; after the remedy that it names, the fault is no longer reported."""

import json
import lzma
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from commands import run
from psycopg.pq import ConnStatus, PGconn
from servers import temporary_cluster

from dbdp import __version__
from dbdp.deployment.cluster import Cluster
from dbdp.deployment.doctor import ADVICE, FAULT, OK, UNKNOWN, Diagnosis, examine
from dbdp.deployment.extension import installer, packages
from dbdp.sessions import support

RELEASED = Path(__file__).parent / "released" / "dbdp--0.1.0.sql.xz"
TIMEOUT = 120  # seconds for a new setting to reach new sessions


ON_ITS_OWN = pytest.mark.slow  # a server that can be damaged takes its time


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A running server with pg_stat_statements, to be damaged and healed."""
    with temporary_cluster() as made:
        execute(made, "alter system set shared_preload_libraries = 'pg_stat_statements'")
        made.stop()
        made.start()
        yield made


def execute(cluster: Cluster, *statements: str) -> None:
    """Run each statement in a session of its own."""
    for statement in filter(str.strip, (part for each in statements for part in each.split(";"))):
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute(statement.encode())


def share(cluster: Cluster) -> Path:
    with psycopg.connect(cluster.url) as connection:
        return Path(connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0])


def do(cluster: Cluster, remedy: str) -> None:
    """Apply the remedy of a finding: SQL as the superuser, or a command in a shell."""
    if remedy.endswith(";"):
        execute(cluster, remedy)
        return
    words = shlex.split(remedy)
    done = run(*words[1:]) if words[0] == "dbdp" else subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def bad(cluster: Cluster) -> list[Diagnosis]:
    return [finding for finding in examine(cluster.url) if finding.state != OK]


def found(cluster: Cluster, check: str, state: str) -> Diagnosis:
    """Wait for the only finding that is not ok, and return it."""
    deadline = time.monotonic() + TIMEOUT
    while (findings := bad(cluster)) == [] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [(each.check, each.state) for each in findings] == [(check, state)]
    return findings[0]


def until(cluster: Cluster, query: str, value: str) -> None:
    """Wait until fresh sessions answer a query so."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        with psycopg.connect(cluster.url) as connection:
            if connection.execute(query).fetchone() == (value,):
                return
        time.sleep(0.05)
    raise AssertionError(f"{query} did not come to {value}")


def is_well(cluster: Cluster) -> bool:
    deadline = time.monotonic() + TIMEOUT
    while bad(cluster) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bad(cluster) == []


def test_server_of_the_tests_lacks_only_what_they_took(server_url):
    """The server of the tests lacks nothing but what they took."""
    done = run("doctor", "--json", DBDP_URL=server_url)
    findings = json.loads(done.stdout)
    fsync = [each for each in findings if each["check"] == "fsync"]
    assert [each for each in findings if each["state"] == FAULT] == fsync
    assert done.returncode == len(fsync)
    assert {"this Python", "server", "PL/Python", "extension files", "extension", "server's Python"} <= {
        each["check"] for each in findings
    }


@ON_ITS_OWN
def test_a_sound_server_is_all_well(cluster):
    done = run("doctor", DBDP_URL=cluster.url)
    assert done.returncode == 0, done.stdout
    assert bad(cluster) == []


IN_PUBLIC = """
update pg_extension set extnamespace = 'public'::regnamespace where extname = 'dbdp';
insert into pg_depend select 'pg_extension'::regclass, oid, 0, 'pg_namespace'::regclass, extnamespace, 0, 'n'
from pg_extension where extname = 'dbdp'
"""
FAULTS = {
    "no extension": ("extension", FAULT, "drop extension dbdp cascade"),
    "an old one": ("extension", FAULT, "drop extension dbdp cascade; create extension dbdp version '0.1.0'"),
    "no role": ("roles", FAULT, "drop owned by dbdp_predictor; drop role dbdp_predictor"),
    "no member": ("roles", FAULT, "revoke dbdp_analyst from dbdp_data_owner"),
    "a member": ("roles", FAULT, "create role intruder; grant dbdp_owner to intruder"),
    "a login": ("roles", FAULT, "alter role dbdp_predictor login createdb"),
    "a schema that can be dropped": ("schema of the extension", FAULT, IN_PUBLIC),
    "a right of others": ("objects", FAULT, "grant trigger on dbdp.ledger to pg_monitor with grant option"),
    "a right on an odometer": (
        "objects",
        FAULT,
        "create sequence dbdp.charge_0; alter sequence dbdp.charge_0 owner to dbdp_owner; "
        "grant update on sequence dbdp.charge_0 to public",
    ),
    "a right that is lost": ("objects", FAULT, "revoke execute on function dbdp.dp_train from dbdp_analyst"),
    "a policy that is lost": ("objects", FAULT, "drop policy visible on dbdp.model"),
    "a foreign key": ("objects", FAULT, "create table strange (id int8 references dbdp.model)"),
    "a rule": ("objects", FAULT, "create rule r as on insert to dbdp.ledger do also notify charged"),
    "a child": ("objects", FAULT, "create table child () inherits (dbdp.outcome)"),
    "a trigger": (
        "objects",
        FAULT,
        "create trigger t before update on dbdp.ledger for each row execute function "
        "suppress_redundant_updates_trigger()",
    ),
    "who writes everything": (
        "pg_write_all_data",
        ADVICE,
        "create role etl in role pg_write_all_data",
    ),
    "a policy": ("objects", FAULT, "create policy p on dbdp.ledger using (true)"),
    "an index": ("objects", FAULT, "create index on dbdp.ledger (epsilon)"),
    "statistics": ("objects", FAULT, "create statistics dbdp.s on id, epsilon from dbdp.ledger"),
    "a publication": ("objects", FAULT, "create publication p for table dbdp.ledger"),
    "no temporary tables": ("temporary tables", FAULT, "revoke temporary on database dbdp from public"),
    "no size": ("dbdp.pack_memory", FAULT, "alter database dbdp set dbdp.pack_memory = 'much'"),
    "no fsync": ("fsync", FAULT, "alter system set fsync = off; select pg_reload_conf()"),
    "standbys unseen": (
        "standbys",
        FAULT,
        "alter system set synchronous_commit = local; select pg_reload_conf(); "
        "alter system set synchronous_standby_names = 'far'; select pg_reload_conf()",
    ),
    "debugging": ("log_min_messages", ADVICE, "alter system set log_min_messages = 'debug1'; select pg_reload_conf()"),
    "statements recorded": (
        "pg_stat_statements.track",
        ADVICE,
        "alter system set pg_stat_statements.track = 'all'; select pg_reload_conf()",
    ),
}


@ON_ITS_OWN
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_reported_alone_and_its_remedy_ends_it(cluster, name):
    check, state, cause = FAULTS[name]
    (share(cluster) / "extension" / RELEASED.stem).write_bytes(lzma.decompress(RELEASED.read_bytes()))
    assert is_well(cluster)
    execute(cluster, cause)
    do(cluster, found(cluster, check, state).remedy)
    assert is_well(cluster)


@ON_ITS_OWN
def test_extension_moved_to_pg_catalog_needs_no_schema(cluster):
    """An extension that was moved to pg_catalog depends on no other schema."""
    execute(cluster, IN_PUBLIC)
    do(cluster, found(cluster, "schema of the extension", FAULT).remedy)
    sql = """select count(*) from pg_depend where classid = 'pg_extension'::regclass
and objid = (select oid from pg_extension where extname = 'dbdp') and refclassid = 'pg_namespace'::regclass"""
    with psycopg.connect(cluster.url) as connection:
        assert connection.execute(sql).fetchone() == (0,)


@ON_ITS_OWN
def test_remedy_needs_no_access_to_files_in_place(cluster):
    """Where the files are in place the remedy needs no access to them."""
    execute(cluster, "drop extension dbdp cascade")
    remedy = found(cluster, "extension", FAULT).remedy
    assert remedy == "create extension dbdp schema pg_catalog cascade;"
    do(cluster, remedy)
    execute(cluster, "drop extension dbdp cascade", "create extension dbdp version '0.1.0'")
    remedy = found(cluster, "extension", FAULT).remedy
    assert remedy == "alter extension dbdp update;"
    do(cluster, remedy)
    assert is_well(cluster)


@ON_ITS_OWN
def test_plans_that_auto_explain_writes_are_reported(cluster):
    execute(cluster, "alter system set session_preload_libraries = 'auto_explain'; select pg_reload_conf()")
    until(cluster, "show session_preload_libraries", "auto_explain")
    execute(cluster, "alter system set auto_explain.log_nested_statements = on; select pg_reload_conf()")
    do(cluster, found(cluster, "auto_explain.log_nested_statements", ADVICE).remedy)
    assert is_well(cluster)


@ON_ITS_OWN
def test_server_without_plpython_names_the_package(cluster):
    """A server without PL/Python is refused with the missing package."""
    control = share(cluster) / "extension" / "plpython3u.control"
    target = control.readlink()
    control.unlink()
    finding = found(cluster, "PL/Python", FAULT)
    assert finding.remedy == f"apt-get install postgresql-plpython3-{major(cluster)}"
    control.symlink_to(target)  # as the package does
    assert is_well(cluster)


def major(cluster: Cluster) -> int:
    with psycopg.connect(cluster.url) as connection:
        return connection.info.server_version // 10000


@ON_ITS_OWN
def test_files_that_are_gone_are_put_back_by_the_remedy(cluster):
    folder = share(cluster)
    (folder / "extension" / "dbdp.control").unlink()
    do(cluster, found(cluster, "extension files", FAULT).remedy)
    (folder / "dbdp" / __version__).unlink()
    finding = found(cluster, "server's Python", FAULT)
    assert "PL/Python cannot import dbdp" in finding.found
    do(cluster, finding.remedy)
    assert is_well(cluster)


@ON_ITS_OWN
def test_a_server_without_compiled_code_is_a_fault(cluster, monkeypatch):
    files = packages.package_files()
    with monkeypatch.context() as patch:
        patch.setattr(packages, "package_files", lambda: [path for path in files if path.suffix != ".so"])
        installer.install(cluster.url)
    finding = found(cluster, "server's Python", FAULT)
    assert "PL/Python cannot import dbdp" in finding.found
    do(cluster, finding.remedy)
    assert is_well(cluster)


@ON_ITS_OWN
def test_a_newer_extension_requires_a_newer_client(cluster):
    execute(cluster, "update pg_extension set extversion = '99.1' where extname = 'dbdp'")
    assert found(cluster, "extension", FAULT).remedy == "pip install .  # in the source of version 99.1"
    execute(cluster, f"update pg_extension set extversion = '{__version__}' where extname = 'dbdp'")


@ON_ITS_OWN
def test_stranger_learns_its_part_and_no_password(cluster):
    """A stranger learns what it may and its password is never shown."""
    execute(cluster, "create role \"A stranger\" login password 'hunter2'")
    url = cluster.url.replace("postgres@", "A%20stranger:hunter2@")
    done = run("doctor", "--url", url, "--json")
    assert done.returncode == 1
    assert "hunter2" not in done.stdout + done.stderr
    states = {each["check"]: each for each in json.loads(done.stdout)}
    assert states["server's Python"]["state"] == UNKNOWN
    assert states["role"] == {
        "check": "role",
        "state": FAULT,
        "found": '"A stranger" is not a member of dbdp_data_owner, dbdp_analyst, dbdp_predictor',
        "remedy": 'grant dbdp_analyst to "A stranger";',
    }
    do(cluster, states["role"]["remedy"])
    findings = examine(url)
    assert {each.state for each in findings} == {OK}
    assert '"A stranger", a member of dbdp_analyst, may train' in next(
        each.found for each in findings if each.check == "role"
    )


@pytest.mark.parametrize(
    ("url", "part"),
    [("postgresql:///none?host=/nonexistent", "/nonexistent"), ("postgresql://me:hunter2@[broken", "not a libpq URL")],
)
def test_a_server_that_does_not_answer_is_a_fault_with_a_remedy(url, part):
    *_, server = examine(url)
    assert (server.check, server.state) == ("server", FAULT)
    assert part in server.found
    assert server.remedy
    assert "hunter2" not in str(server)


def test_a_private_server_that_sleeps_is_not_woken(tmp_path, monkeypatch):
    monkeypatch.setenv("DBDP_HOME", str(tmp_path))
    monkeypatch.delenv("DBDP_URL", raising=False)
    *_, server = examine(None)
    assert (server.state, server.remedy) == (FAULT, "dbdp server start")
    assert list(tmp_path.iterdir()) == []


@ON_ITS_OWN
def test_a_server_that_is_not_tested_is_reported(cluster, monkeypatch):
    monkeypatch.setattr(support, "MAJORS", (98, 99))
    finding = found(cluster, "server", FAULT)
    assert finding.found.endswith("and dbdp is tested on 98 and 99 only")
    assert finding.remedy == "move the database to PostgreSQL 99 by pg_upgrade or a dump"


@ON_ITS_OWN
def test_asynchronous_standbys_are_reported_as_advice(cluster):
    with (cluster.home / "pg_hba.conf").open("a") as file:
        file.write("local replication postgres peer map=dbdp\n")
    execute(cluster, "alter system reset synchronous_standby_names; select pg_reload_conf()")
    standby = PGconn.connect(f"{cluster.url}&replication=true".encode())  # as far as the server knows
    assert standby.status == ConnStatus.OK, standby.error_message
    finding = found(cluster, "standbys", ADVICE)
    assert finding.remedy == "alter system set synchronous_standby_names = '*'; select pg_catalog.pg_reload_conf();"
    standby.finish()
    assert is_well(cluster)


@ON_ITS_OWN
def test_on_a_standby_the_primary_is_named(cluster):
    signal = cluster.home / "data" / "standby.signal"
    cluster.stop()
    signal.touch()
    cluster.start()
    assert found(cluster, "primary", ADVICE).remedy == "connect to the primary for training"
    cluster.stop()
    signal.unlink()
    cluster.start()
    assert is_well(cluster)
