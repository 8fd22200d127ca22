"""The private cluster: complete, alone, idempotent, and closed to everybody else."""

import multiprocessing
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from dbdp import __version__
from dbdp.deployment import cluster as cluster_module
from dbdp.deployment import cluster_files
from dbdp.deployment.cluster import Cluster, ClusterError
from dbdp.deployment.extension.source import ExtensionSource
from dbdp.deployment.server_account import server_account

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")

CONTROL = f"""
default_version = '{__version__}'
module_pathname = '@python_directory@'
relocatable = false
schema = dbdp
"""
PYTHON = "create function {} returns text language plpython3u as 'import sys; return str(sys.{})'"


@pytest.fixture(scope="module", autouse=True)
def small_extension(folder: Path) -> Iterator[None]:
    """These tests are about the server, so a small extension stands in for ours."""
    source = ExtensionSource(folder / "sql", folder / "plpython")
    source.sql.mkdir()
    source.plpython.mkdir()
    (source.sql / "dbdp.control").write_text(CONTROL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExtensionSource, "installed", lambda: source)
        yield


@pytest.fixture(scope="module")
def make_cluster(folder: Path) -> Iterator[Callable[[str], Cluster]]:
    made = []

    def make(name: str) -> Cluster:
        made.append(Cluster(folder / name))
        return made[-1]

    yield make
    for cluster in made:
        cluster.remove()


@pytest.fixture(scope="module")
def running(make_cluster: Callable[[str], Cluster]) -> Cluster:
    cluster = make_cluster("running")
    cluster.start()
    return cluster


def value_of(cluster: Cluster, query: str) -> str:
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        return connection.execute(query).fetchone()[0]


def execute(cluster: Cluster, statement: str) -> None:
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute(statement)


def test_a_start_can_be_repeated(running):
    before = running.status()
    running.start()
    assert before["running"]
    assert running.status() == before


def test_status_of_no_cluster_creates_nothing(folder):
    """The status of a cluster that does not exist creates nothing."""
    status = Cluster(folder / "nowhere").status()
    assert (status["running"], status["pid"], status["version"]) == (False, None, None)
    assert not (folder / "nowhere").exists()


def test_another_pythons_environment_is_refused_first(folder, monkeypatch):
    """An environment of another Python is refused before anything is created."""
    monkeypatch.setattr(cluster_module, "linked_python", lambda _: ((3, 99), Path("libpython3.99.so")))
    ours = "{}.{}".format(*sys.version_info[:2])
    with pytest.raises(ClusterError, match=rf"Python 3\.99, .* Python {ours}: create the environment with python3\.99"):
        Cluster(folder / "of_another_python").start()
    assert not (folder / "of_another_python").exists()


def test_a_stop_can_be_repeated_and_keeps_the_data(running):
    execute(running, "create table stopped as select 7 as value")
    running.stop()
    running.stop()
    assert not running.status()["running"]
    running.start()
    assert value_of(running, "select value from stopped") == 7


@pytest.mark.slow
def test_two_homes_do_not_disturb_each_other(running, make_cluster):
    other = make_cluster("other")
    other.start()
    execute(other, "create table here_only ()")
    assert value_of(running, "select to_regclass('here_only')") is None
    pid = running.status()["pid"]
    other.remove()
    assert running.status()["pid"] == pid
    assert value_of(running, "select 1") == 1


@pytest.mark.slow
def test_two_processes_may_start_at_once(make_cluster):
    cluster = make_cluster("contended")
    context = multiprocessing.get_context("fork")  # a child keeps the small extension
    processes = [context.Process(target=cluster.start) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert value_of(cluster, "select count(*) from pg_extension where extname = 'dbdp'") == 1


def test_a_killed_server_starts_again_with_what_was_committed(running):
    execute(running, "create table killed as select 7 as value")
    os.kill(running.status()["pid"], signal.SIGKILL)
    while running.status()["running"]:
        time.sleep(0.01)
    running.start()
    assert value_of(running, "select value from killed") == 7


def test_an_interrupted_first_start_is_begun_again(make_cluster):
    cluster = make_cluster("interrupted")
    (cluster.home / "data.new").mkdir(parents=True)
    (cluster.home / "data.new" / "PG_VERSION").write_text("15")
    cluster.home.chmod(0o755)
    cluster.start()
    assert value_of(cluster, "select 1") == 1
    assert not (cluster.home / "data.new").exists()


def test_a_process_id_of_another_process_is_not_the_server(make_cluster):
    cluster = make_cluster("stale")
    (cluster.home / "data").mkdir(parents=True)
    (cluster.home / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n")
    assert not cluster.status()["running"]
    cluster.stop()  # else this process would be gone


def test_a_failed_start_shows_the_end_of_the_log(make_cluster):
    cluster = make_cluster("broken")
    cluster.start()
    cluster.stop()
    with (cluster.home / "data" / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.raises(ClusterError, match="no_such_setting"):
        cluster.start()


def test_the_server_finds_its_files_in_the_private_prefix(running):
    share = value_of(running, "select setting from pg_config where name = 'SHAREDIR'")
    assert Path(share).is_relative_to(running.home / "prefix")
    assert (Path(share) / "extension" / "dbdp.control").is_file()


def test_another_installation_of_dbdp_is_not_linked(tmp_path):
    origin, private = tmp_path / "origin", tmp_path / "private"
    (origin / "dbdp").mkdir(parents=True)
    (origin / "plpgsql.control").touch()
    private.mkdir()
    (private / "vanished.control").symlink_to(origin / "vanished.control")
    cluster_files._link_entries(origin, private)
    assert [entry.name for entry in private.iterdir()] == ["plpgsql.control"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("data_checksums", "on"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", ""),
        ("log_statement", "none"),
    ],
)
def test_the_settings_are_durable_and_log_no_statement(running, setting, value):
    assert value_of(running, f"show {setting}") == value


def test_nobody_else_can_reach_the_socket(running):
    entry = Path(running.status()["socket"]).stat()
    assert stat.S_IMODE(entry.st_mode) == 0o700
    assert entry.st_uid == Path(running.home / "data").stat().st_uid


def test_a_role_without_a_password_cannot_enter(running):
    execute(running, "create role visitor login")
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(running.url.replace("postgres@", "visitor@"))


def test_the_url_is_all_that_a_client_needs(running):
    socket = running.status()["socket"]
    with psycopg.connect(host=socket, user="postgres", dbname="dbdp") as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_settings_of_the_caller_do_not_reach_the_server(make_cluster, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PGPORT", "6543")
    cluster = make_cluster("separate")
    cluster.start()
    execute(cluster, "create extension if not exists plpython3u")
    execute(cluster, PYTHON.format("base()", "base_prefix"))
    execute(cluster, PYTHON.format("path()", "path"))
    assert value_of(cluster, "select base()") == sys.base_prefix
    assert "/elsewhere" not in value_of(cluster, "select path()")


def test_psql_speaks_to_the_cluster(running, capfd):
    assert running.psql(["-Atc", "select current_database() || ':' || current_user"]) == 0
    assert capfd.readouterr().out == "dbdp:postgres\n"


@pytest.mark.slow
def test_a_long_home_gets_a_short_socket(make_cluster):
    cluster = make_cluster("long-" * 20)
    cluster.start()
    socket = Path(cluster.status()["socket"])
    assert len(bytes(socket)) < 100
    assert value_of(cluster, "select 1") == 1
    cluster.stop()
    shutil.rmtree(socket)  # as a cleaner of /tmp does
    cluster.start()
    assert value_of(cluster, "select 1") == 1
    socket = Path(cluster.status()["socket"])
    cluster.remove()
    assert not socket.exists()


@pytest.mark.slow
def test_nothing_is_left_after_a_removal(make_cluster):
    cluster = make_cluster("removed")
    cluster.start()
    pid = cluster.status()["pid"]
    cluster.remove()
    cluster.remove()
    assert not cluster.home.exists()
    assert not Path(f"/proc/{pid}/cwd").is_dir()  # a process that is gone, or about to be


def test_each_virtual_environment_has_its_own_home(monkeypatch):
    monkeypatch.setenv("DBDP_HOME", "/some/where")
    monkeypatch.setattr(sys, "prefix", "/projects/one/.venv")
    one = Cluster.default().home
    monkeypatch.setattr(sys, "prefix", "/projects/two/.venv")
    two = Cluster.default().home
    assert one.parent == two.parent == Path("/some/where")
    assert one.name.startswith("one-")
    assert two.name.startswith("two-")


def test_each_user_has_their_own_root(monkeypatch):
    monkeypatch.delenv("DBDP_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/home/someone/data")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Cluster.default().home.parent == Path("/home/someone/data/dbdp")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert Cluster.default().home.parent == Path("/var/lib/dbdp")


@as_root
def test_root_does_not_run_the_server(running):
    owner = Path(f"/proc/{running.status()['pid']}").stat().st_uid
    assert owner != 0
    assert (running.home / "prefix").stat().st_uid == 0  # the server cannot change its own programs


@as_root
def test_another_user_cannot_connect(running):
    script = f"import socket; socket.socket(socket.AF_UNIX).connect({str(running.files.socket / '.s.PGSQL.5432')!r})"
    account, found = server_account().pw_name, {}
    for user in ("daemon", account):
        command = [os.path.realpath(sys.executable), "-I", "-c", script]  # the standard library only: a clone is closed
        done = subprocess.run(command, cwd="/", user=user, env={}, capture_output=True, text=True, check=False)
        found[user] = done.stderr.strip().splitlines()[-1:]
    assert found == {"daemon": ["PermissionError: [Errno 13] Permission denied"], account: []}


@as_root
def test_a_home_of_another_user_is_refused(make_cluster):
    cluster = make_cluster("foreign")
    cluster.home.mkdir()
    os.chown(cluster.home, 65534, 65534)
    with pytest.raises(ClusterError, match="belongs to user 65534, not to 0: set DBDP_HOME"):
        cluster.start()
    cluster.home.rmdir()


@as_root
def test_a_home_that_the_server_cannot_enter_is_refused(tmp_path):
    tmp_path.chmod(0o700)
    with pytest.raises(ClusterError, match=r"cannot enter .* set DBDP_HOME"):
        Cluster(tmp_path / "home").start()


@as_root
def test_root_without_an_account_for_it_starts_nothing(make_cluster, monkeypatch):
    """As `nobody` every process of `nobody` would be the superuser, by peer authentication."""
    cluster, known = make_cluster("unowned"), pwd.getpwnam
    monkeypatch.setattr(pwd, "getpwnam", lambda name: known("no such account" if name == "postgres" else name))
    with pytest.raises(ClusterError, match="no account postgres to run it for root: create one by `useradd --system"):
        cluster.start()
    assert not cluster.home.exists()


@as_root
def test_a_cluster_of_another_account_is_refused(make_cluster):
    cluster = make_cluster("of_nobody")
    (cluster.home / "data").mkdir(parents=True)
    for owner in (65534, 0):
        os.chown(cluster.home / "data", owner, owner)
        with pytest.raises(ClusterError, match=f"belongs to user {owner}, not to postgres: .* `chown -R postgres: "):
            cluster.start()
    os.chown(cluster.home / "data", *pwd.getpwnam("postgres")[2:4])
    with pytest.raises(ClusterError, match=r"initdb failed|did not start|is not|PG_VERSION"):  # the control
        cluster.start()
