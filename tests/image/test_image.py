"""What the image promises: a safe first start, trainings at once, charges that last, and nothing superfluous."""

import gzip
import json
import re
import time
from pathlib import Path

import psycopg
import pytest
from containers import SCRIPTS

from dbdp import __version__

ROOT = Path(__file__).parents[2]
LARGEST = 520_000_000  # bytes; 18 on forky has 508
MANY_LINES = {"POSTGRES_PASSWORD": "one\ntwo"}
REFUSED = {
    "no password": ({}, "POSTGRES_PASSWORD_FILE"),
    "an empty password": ({"POSTGRES_PASSWORD": ""}, "POSTGRES_PASSWORD_FILE"),
    "two passwords": ({"POSTGRES_PASSWORD": "x", "POSTGRES_PASSWORD_FILE": "/etc/hostname"}, "unset one"),
    "no such file": ({"POSTGRES_PASSWORD_FILE": "/nowhere"}, "cannot read"),
    "two lines": (MANY_LINES, "use one line"),
    "a name to quote": ({"POSTGRES_PASSWORD": "x", "POSTGRES_USER": 'a"b'}, "POSTGRES_USER"),
    "trust": ({"POSTGRES_PASSWORD": "x", "POSTGRES_HOST_AUTH_METHOD": "trust"}, "leave the variable out"),
    "a carriage return": ({"POSTGRES_PASSWORD": "x\r"}, "carriage return"),
    "a directory": ({"POSTGRES_PASSWORD_FILE": "/tmp"}, "/tmp, a directory: mount a file there"),
    "a role of ours": ({"POSTGRES_PASSWORD": "x", "POSTGRES_USER": "dbdp_owner"}, "use another name"),
    "the WAL elsewhere": ({"POSTGRES_PASSWORD": "x", "POSTGRES_INITDB_WALDIR": "/tmp/wal"}, "leave them out"),
    "the WAL elsewhere, in words": (
        {"POSTGRES_PASSWORD": "x", "POSTGRES_INITDB_ARGS": "--waldir=/tmp/w"},
        "leave them",
    ),
    "a place of root's": ({"POSTGRES_PASSWORD": "x", "PGDATA": "/pgdata"}, "cannot write /, where it creates PGDATA"),
    "a mount point": ({"POSTGRES_PASSWORD": "x", "PGDATA": "/var/lib/postgresql/data"}, "mount point"),
}
PREPARE = """
create table rows_of_it as select array[.1, .2, i / 99.0]::float8[] as x, i % 2 as y from generate_series(1, 60) as i;
select dbdp.register_dataset(
    'kept', 'rows_of_it', label => 'y', positive => '1', features => '{"x": {"length": 3, "norm": 1}}',
    epsilon => 9, delta => 1e-3, mode => 'basic')"""
TRAIN = "select model from dbdp.dp_logreg('kept', epsilon => 1)"
CHARGED = "select last_value from dbdp.charge_1"
SPENT = "select charged from dbdp.budget_details('kept')"
COMPILERS = "cc gcc c++ g++ clang as ld make cmake cython pip pip3 apt-file"


@pytest.mark.parametrize("reason", REFUSED)
def test_it_refuses_to_create_a_database_and_names_the_remedy(create, reason):
    environment, remedy = REFUSED[reason]
    refused = create(environment)
    assert refused.exit_code() == 1
    assert refused.log().startswith("dbdp: ")
    assert remedy in refused.log()
    assert "database system" not in refused.log()


def test_it_refuses_another_uid_and_names_the_one_that_works(create):
    refused = create(user="1234")
    assert refused.exit_code() == 1
    assert "uid 999 alone: leave --user out" in refused.log()


@pytest.mark.parametrize("word", ["-V", "-?", "--describe-config"])
def test_printing_a_version_needs_no_password(create, word):
    container = create({}, command=["postgres", word] if word == "-V" else [word])
    assert container.exit_code() == 0
    assert "dbdp: " not in container.log()


def test_it_trains_over_tcp_as_soon_as_it_is_healthy(server):
    with server.connect() as keeper:
        keeper.execute(PREPARE.encode())
        keeper.execute("create role ann login password 'for the test' in role dbdp_analyst")
        keeper.execute("select dbdp.grant_training('kept', 'ann', epsilon => 3)")
    with server.connect(user="ann", password="for the test") as analyst:
        trained = "select model, dbdp.receipt(model, 'rows') from dp_logreg('kept', epsilon => 1)"
        assert analyst.execute(trained).fetchone() == (1, "60")


def test_nobody_logs_in_without_a_password(server):
    for wrong in ("", "guess"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            server.connect(password=wrong)
    with server.connect() as keeper:
        rules = keeper.execute("select distinct type, auth_method from pg_hba_file_rules").fetchall()
        stored = keeper.execute("select rolpassword from pg_authid where rolname = 'keeper'").fetchone()[0]
    assert set(rules) == {("local", "peer"), ("local", "scram-sha-256"), ("host", "scram-sha-256")}
    assert stored.startswith("SCRAM-SHA-256$")


def test_the_variables_of_the_first_start_are_heeded(server):
    with server.connect() as keeper:
        found = keeper.execute("select current_database(), datlocprovider from pg_database where datname = 'clinic'")
        assert found.fetchone() == ("clinic", "i")
        assert keeper.execute("show data_checksums").fetchone() == ("on",)
        assert keeper.execute("show search_path").fetchone() == ('"$user", public, dbdp',)


def test_the_password_is_neither_in_the_log_nor_in_the_server(create):
    created = create().start()
    assert created.password not in created.log()
    assert created.password not in created.run("cat", "/proc/1/environ")
    assert "PGDATA" in created.run("cat", "/proc/1/environ")


def test_the_server_is_process_1_and_nothing_is_root(server):
    users = server.run("sh", "-c", "stat --format %u /proc/[0-9]*")
    assert set(users.split()) == {"999"}
    assert server.run("cat", "/proc/1/cmdline").startswith("postgres")
    assert server.run("find", "/usr", "/opt", "-writable", "-not", "-type", "l") == ""


def test_database_is_open_to_its_user_in_the_container(server):
    """Within the container the database is open to its user."""
    assert "dbdp" in server.run("psql", "-U", "keeper", "-d", "clinic", "-c", r"\dx")
    ledger = json.loads(server.run("dbdp", "check-ledger", "--json", "--url", "postgresql://keeper@/clinic"))
    assert all(each["ok"] for each in ledger)


def test_scripts_run_once_and_in_order(create):
    created = create()
    created.put(
        f"{SCRIPTS}/10-first.sql",
        "create table log_lines (number serial, who text); insert into log_lines (who) values ('sql')",
    )
    created.put(f"{SCRIPTS}/20-next.sql.gz", gzip.compress(b"insert into log_lines (who) values ('gz')"))
    created.put(f"{SCRIPTS}/30-run.sh", "#!/bin/sh\npsql -c \"insert into log_lines (who) values ('run')\"\n", 0o755)
    created.put(f"{SCRIPTS}/40-read.sh", "psql -c \"insert into log_lines (who) values ('$POSTGRES_USER')\"\n")
    created.put(f"{SCRIPTS}/50-note.txt", "not a script")
    created.start()
    created.container.restart(timeout=60)
    created.start()
    with created.connect() as connection:
        assert connection.execute("select array_agg(who order by number) from log_lines").fetchone() == (
            ["sql", "gz", "run", "postgres"],
        )
    assert "ignored" in created.log()


@pytest.mark.parametrize("name", ["20-wrong.sql", "20-wrong.sh", "20-left.sh"])
def test_a_script_that_fails_is_named_at_the_end(create, name):
    created = create({"POSTGRES_PASSWORD": "x", "PGDATA": "/var/lib/postgresql/data/deep/er/"})
    created.put(f"{SCRIPTS}/10-right.sh", 'echo "unset: $UNHEARD_OF"')
    created.put(f"{SCRIPTS}/{name}", {".sql": "select 1 / 0"}.get(name[-4:], "exit 7" if "left" in name else "false"))
    assert created.exit_code() != 0
    assert f"dbdp: {SCRIPTS}/{name} failed, or ended this shell" in created.log()
    created.put(f"{SCRIPTS}/{name}", "")
    created.start()
    assert created.run("sh", "-c", "ls /var/lib/postgresql/data/deep") == "er\n"


@pytest.mark.parametrize("end", ["an error", "a kill"])
def test_a_first_start_that_is_cut_short_leaves_no_database(create, end):
    created = create()
    created.put(f"{SCRIPTS}/10-table.sql", "create table once ()")
    created.put(f"{SCRIPTS}/20-end.sh", "exit 7" if end == "an error" else "echo asleep; sleep 600")
    if end == "an error":
        assert created.exit_code() == 7
    else:
        created.container.start()
        created.until(lambda: "asleep" in created.log())
        assert created.state()["Health"]["Status"] != "healthy"
        created.container.kill()
    created.put(f"{SCRIPTS}/20-end.sh", "echo done")
    created.start()  # which runs the first script again, in a database that does not have the table
    with created.connect() as connection:
        assert connection.execute("select count(*) from once").fetchone() == (0,)
    assert created.run("sh", "-c", "ls /var/lib/postgresql/data") == "pgdata\n"


def test_a_restart_keeps_models_and_charges_and_so_does_a_kill(create):
    created = create().start()
    with created.connect() as connection:
        connection.execute(PREPARE.encode())
        connection.execute(TRAIN)
        once = connection.execute(CHARGED).fetchone()[0]
    created.container.restart(timeout=60)
    created.start()
    session = created.connect()
    session.execute("begin")
    assert session.execute(TRAIN).fetchone() == (2,)  # seen, and never committed
    created.container.kill()
    created.start()
    with created.connect() as connection:
        assert connection.execute(CHARGED).fetchone() == (2 * once,)
        assert connection.execute("select array_agg(id) from dbdp.models_details").fetchone() == ([1],)
        assert connection.execute("select bool_and(ok) from dbdp.check_ledger()").fetchone() == (True,)


def test_stopping_is_clean_and_fast_with_open_connections(create):
    created = create().start()
    with created.connect():
        began = time.monotonic()
        created.container.stop(timeout=60)
        took = time.monotonic() - began
    assert took < 10
    assert created.state()["ExitCode"] == 0
    assert "database system is shut down" in created.log().splitlines()[-1]


def test_it_runs_with_a_read_only_system_and_no_capabilities(create):
    places = {"/tmp": "mode=1777", "/run/postgresql": "uid=999,gid=999"}
    hardened = create(read_only=True, tmpfs=places, cap_drop=["ALL"], security_opt=["no-new-privileges:true"]).start()
    with hardened.connect() as connection:
        connection.execute(PREPARE.encode())
        assert connection.execute(TRAIN).fetchone() == (1,)


def test_a_command_runs_in_place_of_the_server(create):
    created = create({}, command=["dbdp", "explain", "--rows", "60", "--features", "3", "--epsilon", "1", "--json"])
    assert created.exit_code() == 0
    assert "noise_scale" in created.log()


def test_second_database_gets_the_extension_as_elsewhere(server):
    """A second database gets the extension by the same commands as elsewhere."""
    for name in ("second", "third"):
        server.run("createdb", "-U", "keeper", name)
    server.run("dbdp", "install", "--url", "postgresql://keeper@/second")
    server.run("sh", "-c", "dbdp doctor --json --url postgresql://keeper@/third > /tmp/found || true")
    found = json.loads(server.run("cat", "/tmp/found"))
    remedies = [each["remedy"] for each in found if each["state"] == "fault"]
    assert remedies == ["create extension dbdp schema pg_catalog cascade;"]
    server.run("psql", "-U", "keeper", "-d", "third", "-c", remedies[0])
    for name in ("second", "third"):
        examine = ("dbdp", "doctor", "--json", "--url", f"postgresql://keeper@/{name}")
        assert [each for each in json.loads(server.run(*examine)) if each["state"] != "ok"] == []


def test_an_account_without_root_installs_into_its_folder(create):
    """Since PostgreSQL 18: the refusal names the way, and the way works."""
    created = create().start()
    with created.connect() as connection:
        if connection.info.server_version < 180000:
            pytest.skip("extension_control_path is new in PostgreSQL 18")
    created.run("createdb", "second")
    created.container.exec_run(["sh", "-c", "rm /usr/share/postgresql/18/extension/dbdp*"], user="root")
    install = ("dbdp", "install", "--url", "postgresql:///second")
    refusal = created.container.exec_run(list(install)).output.decode()
    assert "/usr/share/postgresql/18 cannot be written" in refusal
    (setting,) = re.findall(r"run `(alter system set extension_control_path = [^`]+)`", refusal)
    folder = "/var/lib/postgresql/data/mine"
    created.run("mkdir", "--mode", "o+w", folder)
    with created.connect(dbname="second") as connection:
        connection.execute(setting.replace("/that/folder", folder))
        connection.execute("select pg_reload_conf()")
    assert f"run `chmod o-w {folder}`" in created.container.exec_run(list(install)).output.decode()
    created.run("chmod", "o-w", folder)
    assert f"folder {folder}/dbdp/" in created.run(*install)
    assert "changed" not in created.run(*install)  # a second time
    examined = json.loads(created.run("dbdp", "doctor", "--json", *install[2:]))
    assert [each for each in examined if each["state"] != "ok"] == []
    with created.connect(dbname="second") as connection:
        connection.execute(PREPARE.encode())
        assert connection.execute(TRAIN).fetchone() == (1,)
        places = "select distinct substring(prosrc, '/[^''\"]+/dbdp/[0-9.]+') from pg_proc"
        found = {place for (place,) in connection.execute(places).fetchall() if place}
        assert found == {f"{folder}/dbdp/{__version__}"}


def test_no_file_lends_its_owners_rights(server):
    assert server.run("sh", "-c", "find / -xdev -type f -perm /6000 2>/dev/null || true") == ""


def test_its_size_is_bounded(engine, image):
    assert engine.images.get(image).attrs["Size"] < LARGEST


def test_it_has_no_compiler_and_no_installer(server):
    found = server.run("sh", "-c", f"for name in {COMPILERS} bash; do command -v $name || true; done")
    assert [Path(path).name for path in found.split()] == ["bash"]
    assert (
        server.run("sh", "-c", "find / -xdev -name 'cc1*' -o -name 'libLLVM*' -o -name '*.a' 2>/dev/null || true") == ""
    )


def test_server_imports_no_library_of_clients(server):
    """The server imports what it needs and not the clients libraries."""
    with server.connect() as keeper, keeper.transaction(force_rollback=True):
        keeper.execute("""create function pg_temp.found(name text) returns bool language plpython3u as $$
import importlib.util
return importlib.util.find_spec(name) is not None
$$""")
        keeper.execute("select dbdp.dp_explain('kept', epsilon => 1)")
        sql = "select name from unnest(array['dbdp', 'numpy', 'flint', 'sklearn', 'scipy', 'click']) as name"
        found = keeper.execute(f"{sql} where pg_temp.found(name)").fetchall()
    assert found == [("dbdp",), ("numpy",), ("flint",)]


def test_its_bill_of_materials_is_what_is_in_it(server):
    bill = json.loads(server.run("cat", "/usr/share/dbdp/sbom.cdx.json"))
    packages = [each["purl"] for each in bill["components"]]
    installed = server.run("dpkg-query", "--show", "--showformat", "${Package} ${Version}\n").splitlines()
    listed = [f"{each['name']} {each['version']}" for each in bill["components"] if "pkg:deb/" in each["purl"]]
    assert bill["bomFormat"] == "CycloneDX"
    assert sorted(listed) == sorted(installed)
    pinned = set(re.findall(r"^([\w-]+==[\w.]+)", (ROOT / "docker" / "requirements.txt").read_text(), re.MULTILINE))
    ours = {f"{each['name']}=={each['version']}" for each in bill["components"] if "pkg:pypi/" in each["purl"]}
    assert {each for each in ours if not each.startswith("dbdp==")} <= pinned
    assert {"numpy", "python-flint", "dbdp"} <= {each.partition("==")[0] for each in ours}
    assert len(packages) == len(set(packages))
