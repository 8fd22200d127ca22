"""The installer and the bootstrap: the right files, the right Python, and errors that name the remedy."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import flint
import numpy
import psycopg
import pytest
from servers import execute

import dbdp
from dbdp import __version__
from dbdp.deployment import bootstrap
from dbdp.deployment.cluster import Cluster
from dbdp.deployment.extension import installer, packages
from dbdp.deployment.extension.script import render_extension
from dbdp.deployment.extension.source import ExtensionSource, InstallError
from dbdp.sessions import support

CONTROL = """
default_version = '@version@'
module_pathname = '@python_directory@'
relocatable = false
requires = 'plpython3u'
"""
SCRIPTS = {
    "functions/1-where.sql": """
create function dbdp.paths() returns text[] language plpython3u as $$
@plpython functions.paths@
$$;
""",
    "schema/1-role.sql": """
create schema dbdp;
create schema dbdp_internal;
do $$ begin create role dbdp_owner; exception when duplicate_object then null; end $$;
""",
}
BODY = (
    "import sys\nsys.path.insert(0, 'MODULE_PATHNAME')\nimport dbdp, flint, numpy\n"
    "return [dbdp.__file__, numpy.__file__, getattr(dbdp, 'mark', ''), flint.__file__, str(flint.arb(2).sqrt())]"
    "  # @module@.@function@\n"
)


@pytest.fixture(scope="module")
def source(folder: Path) -> ExtensionSource:
    small = ExtensionSource(folder / "sql", folder / "plpython")
    small.sql.mkdir()
    small.plpython.mkdir()
    for name, content in {"dbdp.control": CONTROL, **SCRIPTS}.items():
        (small.sql / name).parent.mkdir(exist_ok=True)
        (small.sql / name).write_text(content)
    (small.plpython / "body.py").write_text(BODY)
    return small


@pytest.fixture(scope="module")
def cluster(folder: Path, source: ExtensionSource) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExtensionSource, "installed", lambda: source)
        made = Cluster(folder / "cluster")
        made.start()
        yield made
        made.remove()


@pytest.fixture
def database(cluster: Cluster) -> Iterator[Callable[[str], str]]:
    """A fresh database; called with a role, it gives the URL."""
    name = f"d{os.urandom(4).hex()}"
    execute(cluster.url, f"create database {name}")
    yield lambda role="postgres": cluster.url.replace("postgres@/dbdp", f"{role}@/{name}")
    execute(cluster.url, f"drop database {name} (force)")


def value_of(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query).fetchone()[0]


def test_the_script_is_the_parts_in_order_with_their_bodies(source):
    files = render_extension(Path("/where/it/is"), source)
    assert sorted(files) == [f"dbdp--{__version__}.sql", "dbdp.control"]
    assert "module_pathname = '/where/it/is'" in files["dbdp.control"]
    assert f"default_version = '{__version__}'" in files["dbdp.control"]
    script = files[f"dbdp--{__version__}.sql"]
    assert script.index("create role") < script.index("create function")
    assert BODY.replace("@module@.@function@", "functions.paths") in script
    assert "@plpython" not in script


def test_installation_replaces_another_servers_folder(database):
    """After an installation, functions made for another server's folder import from this server's."""
    installer.install(database())
    define = (
        "select pg_get_functiondef('dbdp.paths'::regproc), prosrc, proacl::text from pg_proc where proname = 'paths'"
    )
    with psycopg.connect(database(), autocommit=True) as connection:
        connection.execute("grant execute on function dbdp.paths to pg_monitor")
        definition, body, rights = connection.execute(define).fetchone()
        here = re.search(r"'([^']+/dbdp/[\d.]+)'", body)[1]
        gone = f"/gone/dbdp/{__version__}"
        connection.execute(definition.replace(here, gone))
    assert f"functions (1): import from {here}, no longer from {gone}" in installer.changes(database())
    with pytest.raises(psycopg.Error, match="No module named 'dbdp'"):
        value_of(database(), "select dbdp.paths()")
    installer.install(database())
    assert not [line for line in installer.changes(database()) if line.startswith("functions")]
    assert value_of(database(), "select dbdp.paths()")[0].startswith(here)
    with psycopg.connect(database()) as connection:
        assert connection.execute(define).fetchone() == (definition, body, rights)


def test_the_server_imports_its_own_copies(cluster, database):
    installer.install(database())
    share = Path(value_of(database(), "select setting from pg_config where name = 'SHAREDIR'"))
    dbdp_file, numpy_file, _, flint_file, root = value_of(database(), "select paths()")
    assert dbdp_file == f"{share}/dbdp/{__version__}/dbdp/__init__.py"
    assert numpy_file == f"{share}/dbdp/{__version__}/numpy/__init__.py"
    assert flint_file == f"{share}/dbdp/{__version__}/flint/__init__.py"
    assert root.startswith("[1.414213562373")  # its shared objects came with it
    assert {dbdp_file, numpy_file, flint_file}.isdisjoint({dbdp.__file__, numpy.__file__, flint.__file__})


def test_the_copies_are_compiled_and_without_tests(cluster):
    python = next((cluster.home / "prefix").glob(f"share/**/dbdp/{__version__}"))
    sources = set(python.resolve().rglob("*.py"))
    compiled = list(python.resolve().rglob("*.pyc"))
    assert len(compiled) == len(sources) > 100
    assert not [path for path in sources if {"tests", "test"} & set(path.parts)]
    assert all(path.stat().st_mode & 0o004 for path in sources)


def test_a_second_installation_writes_nothing(cluster, database, monkeypatch):
    installer.install(database())
    for name in ("_copy", "write", "_link"):
        monkeypatch.setattr(packages, name, None)
    installer.install(database())


def test_a_script_that_was_changed_on_the_server_is_put_back(cluster, database):
    installer.install(database())
    share = Path(value_of(database(), "select setting from pg_config where name = 'SHAREDIR'"))
    script = share / "extension" / f"dbdp--{__version__}.sql"
    content = script.read_text()
    script.write_text("-- something else")
    installer.install(database())
    assert script.read_text() == content


def test_changed_code_of_the_same_version_serves_new_sessions(cluster, database, tmp_path, monkeypatch):
    package = tmp_path / "dbdp"
    package.mkdir()
    monkeypatch.setattr(packages, "PACKAGE", package)
    for mark in ("first", "second"):
        (package / "__init__.py").write_text(f"mark = {mark!r}\n")
        installer.install(database())
        assert value_of(database(), "select (paths())[3]") == mark
    folders = list((cluster.home / "prefix").glob(f"share/**/dbdp/{__version__}-*"))
    assert len(folders) == 1  # the old code is gone


def test_dbdp_comes_last_on_the_search_path_and_leaves_it_again(database):
    installer.install(database())
    installer.install(database())
    assert value_of(database(), "show search_path") == '"$user", public, dbdp'
    installer.uninstall(database())
    assert value_of(database(), "show search_path") == '"$user", public'
    settings = "select count(*) from pg_db_role_setting join pg_database d on d.oid = setdatabase"
    assert value_of(database(), f"{settings} where datname = current_database()") == 0


def test_the_search_path_of_the_database_is_preserved(database):
    name = value_of(database(), "select current_database()")
    execute(database(), f"""alter database {name} set search_path = 'Odd, "name"', public""")
    before = value_of(database(), "show search_path")
    installer.install(database())
    assert value_of(database(), "show search_path") == f"{before}, dbdp"
    installer.uninstall(database())
    assert value_of(database(), "show search_path") == before


def test_an_empty_search_path_stays_empty(database):
    execute(database(), f"alter database {value_of(database(), 'select current_database()')} set search_path = ''")
    installer.install(database())
    assert value_of(database(), "show search_path") == "dbdp"
    installer.uninstall(database())
    assert value_of(database(), "show search_path") == '""'


def test_an_uninstallation_leaves_only_the_files(cluster, database):
    installer.install(database())
    execute(database(), "create table dbdp.made_later ()")
    installer.uninstall(database())
    installer.uninstall(database())
    assert value_of(database(), "select count(*) from pg_extension where extname = 'dbdp'") == 0
    assert value_of(database(), "select to_regnamespace('dbdp') is null")
    installer.install(database())
    assert value_of(database(), "select paths() is not null")


def test_a_role_that_is_still_needed_stays(database):
    installer.install(database())
    execute(database(), "create table theirs (); alter table theirs owner to dbdp_owner")
    installer.uninstall(database())
    assert value_of(database(), "select to_regrole('dbdp_owner') is not null")
    execute(database(), "drop table theirs")
    installer.uninstall(database())
    assert value_of(database(), "select to_regrole('dbdp_owner') is null")


def test_role_with_members_keeps_its_memberships(database):
    """A role with members stays with the roles of which it is a member."""
    execute(database(), "create role dbdp_predictor; create role dbdp_analyst in role dbdp_predictor; create role anna")
    execute(database(), "create role dbdp_data_owner in role dbdp_analyst; grant dbdp_analyst to anna")
    installer.install(database())
    installer.uninstall(database())
    roles = "select array_agg(rolname::text order by rolname) from pg_roles where rolname like 'dbdp%'"
    assert value_of(database(), roles) == ["dbdp_analyst", "dbdp_predictor"]
    assert value_of(database(), "select pg_has_role('anna', 'dbdp_predictor', 'usage')")
    execute(database(), "drop role anna")
    installer.uninstall(database())
    assert value_of(database(), roles) is None


@pytest.mark.parametrize("schema", installer.SCHEMAS)
def test_foreign_schema_is_not_taken_and_remedy_is_named(database, schema):
    """A schema of that name is not taken over and the remedy is named."""
    execute(database(), f"create schema {schema}")
    with pytest.raises(InstallError, match=rf"not the extension's: run `alter schema {schema} rename to"):
        installer.install(database())


def test_a_refusal_of_peer_names_the_missing_role(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError('FATAL:  Peer authentication failed for user "postgres"')

    monkeypatch.setattr(psycopg, "connect", refuse)
    with pytest.raises(InstallError, match=r"Peer authentication failed.* createuser --superuser \w+`, .*over TCP"):
        installer.install("postgresql://postgres@/x")


def test_another_version_in_the_database_is_named(database, monkeypatch):
    installer.install(database())
    execute(database(), "update pg_extension set extversion = '0.0.9' where extname = 'dbdp'")
    with pytest.raises(InstallError, match=r"has dbdp 0\.0\.9, which cannot be updated to"):
        installer.install(database())


def test_role_not_superuser_is_refused_without_password(database):
    """A role that is not superuser is refused without its password."""
    execute(database(), "drop role if exists plain; create role plain login password 'hunter2'")
    with pytest.raises(InstallError, match=r"plain is not a superuser.* see docs/hosted\.md") as error:
        installer.install(database("plain:hunter2"))
    assert "hunter2" not in str(error.value)


def test_a_malformed_url_is_not_repeated():
    with pytest.raises(InstallError, match="not a libpq URL") as error:
        installer.install("postgresql://me:hunter2@[broken")
    assert "hunter2" not in str(error.value)
    assert error.value.__suppress_context__


def test_a_server_that_is_not_tested_is_named(database, monkeypatch):
    monkeypatch.setattr(support, "MAJORS", (98, 99))
    with pytest.raises(InstallError, match=r"the server is PostgreSQL \d+, and dbdp is tested on 98 and 99 only; move"):
        installer.install(database())


def test_a_server_that_does_not_see_our_files_is_elsewhere(database, monkeypatch):
    monkeypatch.setattr(installer, "_is_in_place", lambda *_: False)
    monkeypatch.setattr(packages, "write", lambda path, content: None)
    with pytest.raises(InstallError, match=r"is not on this machine: run `dbdp install` on the .* see docs/hosted\.md"):
        installer.install(database())


def test_a_folder_that_cannot_be_written_is_named(database, monkeypatch):
    def refuse(path: Path, content: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(installer, "_is_in_place", lambda *_: False)
    monkeypatch.setattr(packages, "write", refuse)
    with pytest.raises(InstallError, match=r"cannot be written \(Permission denied\): run `dbdp"):
        installer.install(database())


def test_another_server_python_is_named_and_nothing_left(database, monkeypatch):
    """Another Python in the server is named and nothing is left."""
    monkeypatch.setattr(installer, "sys", SimpleNamespace(version_info=(3, 99), prefix=sys.prefix))
    with pytest.raises(InstallError, match=r"is Python 3\.\d+, but dbdp is installed in Python 3\.99: run"):
        installer.install(database())
    assert value_of(database(), "select count(*) from pg_extension where extname <> 'plpgsql'") == 0


def test_the_interpreter_is_the_one_that_plpython_embeds(cluster):
    interpreter = bootstrap.find_interpreter(bootstrap.find_postgresql())
    execute(cluster.url, "create extension if not exists plpython3u")
    execute(
        cluster.url,
        "create or replace function embedded() returns text language plpython3u "
        "as 'import sys; return \"%d %d %s\" % (*sys.version_info[:2], sys.base_prefix)'",
    )
    assert bootstrap._identity(interpreter) == value_of(cluster.url, "select embedded()")


def test_the_first_python_on_the_path_is_ignored(tmp_path, monkeypatch):
    interpreter = bootstrap.find_interpreter(bootstrap.find_postgresql())
    for name in ("python3", interpreter.name):
        (tmp_path / name).write_text('#!/bin/sh\ntouch "$0.was-asked"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert bootstrap.find_interpreter(bootstrap.find_postgresql()) == interpreter
    assert not list(tmp_path.glob("*.was-asked"))


def test_a_library_without_its_interpreter_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "linked_python", lambda _: ((3, 11), tmp_path / "lib/libpython3.11.so"))
    with pytest.raises(bootstrap.BootstrapError, match=r"install python3\.11 and python3\.11-venv"):
        bootstrap.find_interpreter(bootstrap.find_postgresql())


def test_a_python_that_is_too_old_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "linked_python", lambda _: ((3, 10), tmp_path))
    with pytest.raises(bootstrap.BootstrapError, match=r"embeds python3\.10, but dbdp needs .* 3\.11: use"):
        bootstrap.find_interpreter(bootstrap.find_postgresql())


@pytest.fixture
def bare_machine(monkeypatch) -> list[list[str]]:
    """A Debian without PostgreSQL, whose commands are only written down."""
    ran: list[list[str]] = []

    def run(command: list[str]) -> str:
        ran.append(command)
        return "postgresql\n  Depends: postgresql-17\n"

    monkeypatch.setattr(bootstrap, "_servers", lambda: [])
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(bootstrap, "_privilege", lambda: ["sudo", "-n"])
    monkeypatch.setattr(bootstrap, "_output", run)
    return ran


def test_missing_server_headers_are_installed_for_benchmark(bare_machine, tmp_path):
    """Missing headers of the server are installed for the benchmark."""
    server = bootstrap.PostgreSQL(17, *[tmp_path] * 4)
    with pytest.raises(bootstrap.BootstrapError, match=r"has no postgres\.h: install postgresql-server-dev-17"):
        bootstrap._ensure_headers(server)  # since nothing was really installed
    assert [command[-1] for command in bare_machine] == ["postgresql-server-dev-17"]
    (tmp_path / "postgres.h").touch()
    bootstrap._ensure_headers(server)
    assert len(bare_machine) == 1


def test_a_missing_server_is_installed_from_the_distribution(bare_machine):
    with pytest.raises(bootstrap.BootstrapError, match="pg_config names no folder with initdb"):
        bootstrap._ensure_postgresql()  # since nothing was really installed
    update, _, install = bare_machine
    assert update[:2] == install[:2] == ["sudo", "-n"]
    assert update[-2:] == ["update", "-qq"]
    assert install[-2:] == ["postgresql-17", "postgresql-plpython3-17"]


def test_without_rights_bootstrap_names_what_to_install(bare_machine, monkeypatch):
    monkeypatch.setattr(bootstrap, "_privilege", lambda: None)
    with pytest.raises(bootstrap.BootstrapError, match="install postgresql-17 postgresql-plpython3-17`"):
        bootstrap._ensure_postgresql()
    assert bare_machine == [["apt-cache", "depends", "postgresql"]]


def test_bootstrap_without_package_manager_names_packages(bare_machine, monkeypatch):
    """Without a package manager bootstrap names what to install."""
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: None)
    with pytest.raises(bootstrap.BootstrapError, match=r"install one of PostgreSQL 15, 17, 18, .* PL/Python 3"):
        bootstrap._ensure_postgresql()


def test_old_distribution_is_refused_with_newer_source(bare_machine, monkeypatch):
    """A distribution with old packages is refused with the place of newer ones."""
    monkeypatch.setattr(bootstrap, "_output", lambda command: "  Depends: postgresql-14\n")
    with pytest.raises(bootstrap.BootstrapError, match=r"offer PostgreSQL 14, but .* https://apt\.postgresql\.org"):
        bootstrap._ensure_postgresql()


def test_a_folder_of_something_else_is_not_emptied(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(bootstrap.BootstrapError, match="not a virtual environment and would be emptied"):
        bootstrap._ensure_environment(tmp_path, Path(sys.executable))
    assert (tmp_path / "thesis.txt").exists()


def test_uninstallation_takes_back_grants_to_owner_role(cluster, database):
    """An uninstallation takes back what was granted to the owner role."""
    installer.install(database())
    execute(database(), "create schema s; create table s.opened (); grant usage on schema s to dbdp_owner")
    execute(database(), "grant select on s.opened to dbdp_owner")
    installer.uninstall(database())
    assert value_of(database(), "select relacl::text from pg_class where relname = 'opened'").count("dbdp_owner") == 0
    assert value_of(database(), "select nspacl::text from pg_namespace where nspname = 's'").count("dbdp_owner") == 0
    assert value_of(database(), "select to_regrole('dbdp_owner') is null")


def test_the_bootstrap_names_a_missing_compiler(monkeypatch):
    """Without a C compiler it installs one, or ends with the packages to install."""
    interpreter = bootstrap.find_interpreter(bootstrap.find_postgresql())
    bootstrap._ensure_compiler(interpreter)
    monkeypatch.setattr(bootstrap, "_has_compiler", lambda _: False)
    monkeypatch.setattr(bootstrap, "_privilege", lambda: None)
    needed = rf"apt-get install gcc libc6-dev {interpreter.name}-dev"
    with pytest.raises(bootstrap.BootstrapError, match=rf"neither root nor sudo.*{needed}"):
        bootstrap._ensure_compiler(interpreter)
    asked = []
    monkeypatch.setattr(bootstrap, "_apt_install", asked.append)
    with pytest.raises(bootstrap.BootstrapError, match=rf"no C compiler finds Python\.h: as root, `{needed}`"):
        bootstrap._ensure_compiler(interpreter)
    assert asked == [["gcc", "libc6-dev", f"{interpreter.name}-dev"]]


def test_a_build_without_a_compiler_ends_with_one_sentence(tmp_path):
    """The sentence names the packages to install; no traceback comes before it."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", tmp_path, "--build-temp", tmp_path]
    missing = os.environ | {"CC": str(tmp_path / "cc")}
    ended = subprocess.run(command, cwd=bootstrap.PROJECT, env=missing, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("dbdp needs a C compiler and Python.h: install gcc, libc6-dev")
