"""A dump has names of roles, and gives nobody anything until somebody says which role each of them is."""

import json
import lzma
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from commands import run_here
from people import People, refused
from psycopg import conninfo
from servers import execute

from dbdp.deployment.doctor import examine

pytestmark = pytest.mark.usefixtures("pg_dump")
RELEASED = Path(__file__).parent / "released"
WAITING = "select role_name, is_role_here from dbdp.unconfirmed_roles order by 1"
CONFIRM, RETIRE = "select dbdp.confirm_role(%s, %s)", "select dbdp.retire_role(%s)"
CONFIRM_ALL = "select dbdp.confirm_role(role_name) from dbdp.unconfirmed_roles where is_role_here"
MakeDatabase = Callable[[], str]


@pytest.fixture
def people(make_database: MakeDatabase) -> Iterator[People]:
    """Berta's dataset d with allowances of xenia and alice, and carla's dataset e with one of alice."""
    url = make_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create extension dbdp cascade")
        made = People(connection, url)
        for name, kind in (("berta", "owner"), ("carla", "owner"), ("xenia", "analyst"), ("alice", "analyst")):
            made.create(name, kind)
        for owner, dataset in (("berta", "d"), ("carla", "e")):
            made.register(owner, dataset)
            made.grant(owner, dataset, "alice", 10)
        made.grant("berta", "d", "xenia", 10)
        made.train("xenia", "d", 2.5, "named")
        yield made
        made.leave()


def copied(source: str, target: str, *options: str) -> None:
    """Dump a database, and restore it into an empty one."""
    dump = subprocess.run(["pg_dump", *options, source], capture_output=True, check=True, text=True).stdout
    command = ["psql", "--quiet", "--set=ON_ERROR_STOP=1", target]
    done = subprocess.run(command, input=dump, capture_output=True, check=False, text=True)
    assert done.stderr == ""


@pytest.fixture
def restored(people: People, make_database: MakeDatabase) -> Iterator[Callable[..., People]]:
    """Restore a dump of the people's database; give the same people there."""
    made: list[People] = []

    def restore(of: People = people, *options: str) -> People:
        copy = make_database()
        copied(of.url, copy, *options)
        made.append(People(psycopg.connect(copy, autocommit=True), copy, people.ending))
        return made[-1]

    yield restore
    for each in made:
        each.leave_database()
        each.connection.close()


def waiting(people: People) -> dict[str, bool]:
    return {name.removesuffix(f"_{people.ending}"): here for name, here in people.connection.execute(WAITING)}


@pytest.mark.parametrize("options", [(), ("--inserts",)], ids=["copy", "inserts"])
@pytest.mark.attack("restored-dump")
def test_restored_dump_gives_nothing_until_confirmed(people, restored, options):
    """Then each has its own, as before the dump; the control is the database that was dumped."""
    copy = restored(people, *options)
    everybody = dict.fromkeys(["alice", "berta", "carla", "xenia"], True)
    assert waiting(copy) == everybody
    assert waiting(people) == {}
    for name in everybody:
        assert people.datasets(name) != set()
        assert copy.datasets(name) == set()
        for view in ("models", "history", "allowances"):
            assert copy.call(name, f"select * from dbdp.{view}") == []
        with refused(f"nobody confirmed that role '{copy.full(name)}'.* call dbdp.confirm_role"):
            copy.train(name, "d")
    with refused("nobody confirmed that role"):
        copy.register("berta", "f")
    assert copy.connection.execute("select count(*) from dbdp.ledger").fetchone() == (1,)
    copy.connection.execute(CONFIRM_ALL)
    assert waiting(copy) == {}
    for name in everybody:
        assert copy.datasets(name) == people.datasets(name)
    assert copy.allowances("berta", "d") == people.allowances("berta", "d") == {"alice": 1.0, "xenia": 0.75}
    copy.train("xenia", "d", 2.5, "named")
    assert copy.allowances("berta", "d") == {"alice": 1.0, "xenia": 0.5}


@pytest.mark.attack("restored-dump")
def test_a_dump_has_the_names_of_its_day(people, restored):
    """Bertha was berta when she registered; at the dump another role is berta, and it gets nothing from either name."""
    people.rename("berta", "bertha")
    people.create("berta", "owner")
    people.again("xenia", "analyst")
    copy = restored()
    assert waiting(copy) == {"alice": True, "bertha": True, "carla": True}
    copy.connection.execute(CONFIRM_ALL)
    assert (copy.datasets("bertha"), copy.datasets("berta"), copy.datasets("xenia")) == ({"d"}, set(), set())
    assert copy.allowances("bertha", "d") == {"alice": 1.0, "former xenia": 0.75}


def test_a_role_that_is_another_person_is_retired(people, restored):
    """Xenia here is not the xenia of the dump: retired, the former one has nothing for good, in later dumps too."""
    copy = restored()
    copy.again("xenia", "analyst")
    copy.connection.execute(CONFIRM, (copy.full("berta"), None))
    with refused("nobody confirmed that role"):
        copy.grant("berta", "d", "xenia", 1)
    copy.connection.execute(RETIRE, (copy.full("xenia"),))
    assert copy.datasets("xenia") == set()
    copy.grant("berta", "d", "xenia", 1)
    assert copy.allowances("berta", "d") == {"unconfirmed alice": 1.0, "former xenia": 0.75, "xenia": 1.0}
    with refused("does not wait for confirmation"):
        copy.call("berta", CONFIRM, copy.full("xenia"), None)
    later = restored(copy)
    later.connection.execute(CONFIRM_ALL)
    assert later.allowances("berta", "d") == {"alice": 1.0, "former xenia": 0.75, "xenia": 1.0}


@pytest.mark.attack("confirmation")
def test_owner_confirms_only_roles_of_its_own_tables(people, restored):
    """Berta confirms herself and xenia, but not alice, who has a right on carla's dataset too."""
    copy = restored()
    with refused("concerns tables of other owners too; only a superuser may confirm it"):
        copy.call("carla", CONFIRM, copy.full("berta"), None)
    with refused("concerns tables of other owners too"):
        copy.call("carla", RETIRE, copy.full("berta"))
    with refused("only a superuser may confirm another name"):
        copy.call("berta", CONFIRM, copy.full("berta"), copy.full("carla"))
    with refused("permission denied"):
        copy.call("xenia", CONFIRM, copy.full("xenia"), None)
    copy.call("berta", CONFIRM, copy.full("berta"), None)
    assert copy.datasets("berta") == {"d"}
    copy.call("berta", CONFIRM, copy.full("xenia"), None)
    assert copy.datasets("xenia") == {"d"}
    with refused("concerns tables of other owners too"):
        copy.call("berta", CONFIRM, copy.full("alice"), None)
    with refused("does not wait for confirmation"):
        copy.call("berta", CONFIRM, copy.full("nobody"), None)
    assert waiting(copy) == {"alice": True, "carla": True}
    copy.connection.execute(CONFIRM, (copy.full("alice"), None))
    assert copy.datasets("alice") == {"d", "e"}


def test_a_superuser_confirms_a_role_under_another_name(people, restored):
    """It must exist, and have no rights here yet: a role has one identity, and one allowance on a dataset."""
    copy = restored()
    copy.drop("xenia")
    copy.create("yvonne", "analyst")
    confirm = (copy.full("xenia"), copy.full("yvonne"))
    with refused("does not exist; create it first"):
        copy.connection.execute(CONFIRM, (copy.full("xenia"), None))
    copy.connection.execute(CONFIRM, (copy.full("berta"), None))
    with refused("has rights in this database already; create a role without"):
        copy.connection.execute(CONFIRM, (copy.full("xenia"), copy.full("berta")))
    copy.connection.execute(CONFIRM, confirm)
    assert copy.allowances("berta", "d") == {"unconfirmed alice": 1.0, "yvonne": 0.75}
    copy.train("yvonne", "d", 2.5, "named")
    copy.rename("yvonne", "zoe")
    assert copy.allowances("berta", "d") == {"unconfirmed alice": 1.0, "zoe": 0.5}
    with refused("does not wait for confirmation"):
        copy.connection.execute(CONFIRM, confirm)


def test_a_dump_of_a_restored_database_keeps_who_is_who(people, restored):
    """Roles that wait still wait, under the names of the first dump, and those that were confirmed have their own."""
    copy = restored()
    copy.connection.execute(CONFIRM, (copy.full("berta"), None))
    copy.rename("berta", "bertha")
    copy.rename("xenia", "yvonne")
    again = restored(copy)
    assert waiting(again) == {"alice": True, "bertha": True, "carla": True, "xenia": False}
    again.connection.execute(CONFIRM_ALL)
    assert (again.datasets("bertha"), again.datasets("yvonne")) == ({"d"}, set())
    again.connection.execute(CONFIRM, (again.full("xenia"), again.full("yvonne")))
    assert again.allowances("bertha", "d") == {"alice": 1.0, "yvonne": 0.75}


def test_a_copy_of_the_files_keeps_all_rights(people, server_url):
    """CREATE DATABASE … TEMPLATE copies files, as a base backup does: roles have their oids there."""
    source = people.connection.info.dbname
    people.connection.close()
    copy = f"copy_{people.ending}"
    execute(server_url, f"create database {copy} template {source}")
    with psycopg.connect(conninfo.make_conninfo(server_url, dbname=copy), autocommit=True) as connection:
        there = People(connection, "", people.ending)
        assert (waiting(there), there.datasets("xenia")) == ({}, {"d"})
        there.leave_database()
    execute(server_url, f"drop database {copy} with (force)")
    people.connection = psycopg.connect(conninfo.make_conninfo(server_url, dbname=source), autocommit=True)


@pytest.mark.attack("former-dump")
def test_a_dump_of_a_former_version_gives_nobody_anything_either(make_database, connection):
    """Its rows have names only; they are no roles until they are confirmed, though roles of these names exist."""
    dump = lzma.decompress((RELEASED / "used--0.3.0.sql.xz").read_bytes()).decode()
    connection.execute("create role old_anna in role dbdp_analyst; create role old_app in role dbdp_predictor")
    try:
        copy = make_database()
        execute(copy, dump)
        with psycopg.connect(copy, autocommit=True) as restored:
            names = [name for name, here in restored.execute(WAITING) if here]
            assert {"old_anna", "old_app"} <= set(names)
            sql = "select count(*) from dbdp.models"
            restored.execute("set session authorization old_app")
            assert restored.execute(sql).fetchone() == (0,)
            restored.execute("reset session authorization")
            restored.execute(CONFIRM_ALL)
            restored.execute("set session authorization old_app")
            assert restored.execute(sql).fetchone() == (1,)
    finally:
        execute(copy, "drop owned by old_anna, old_app")
        connection.execute("drop role old_anna, old_app")


def test_the_command_line_and_the_doctor_show_who_waits(people, restored):
    """Both name the roles; the command confirms one, retires one, then all others."""
    copy = restored()
    url = copy.url
    state = {each.check: each for each in examine(url)}["roles of a dump"]
    assert (state.state, state.remedy) == ("advice", "dbdp confirm-roles")
    assert f"unconfirmed {copy.full('xenia')}" in state.found
    done = run_here("confirm-roles", "--json", "--role", copy.full("berta"), "--url", url)
    assert [row["role_name"] for row in json.loads(done.stdout)] == [*map(copy.full, ("alice", "carla", "xenia"))]
    refused = run_here("confirm-roles", "--as", "somebody", "--url", url)
    assert (refused.returncode, "--as somebody needs the name in the dump" in refused.stderr) == (1, True)
    run_here("confirm-roles", "--retire", copy.full("xenia"), "--url", url)
    assert json.loads(run_here("confirm-roles", "--all", "--json", "--url", url).stdout) == []
    found = {each.check: each for each in examine(url)}
    assert "roles of a dump" not in found
    assert f"former {copy.full('xenia')} (" in found["dropped roles"].found
    assert not {"roles of a dump", "dropped roles"} & {each.check for each in examine(people.url)}


@pytest.mark.slow
@pytest.mark.attack("restored-dump")
def test_another_clusters_oids_give_nobody_anything(people, private_cluster):
    """The roles there have the same oids as other ones here, and the superuser has 10 everywhere."""
    people.connection.execute("select dbdp.grant_training(%s, 'postgres')", (people.full("d"),))
    with psycopg.connect(private_cluster.url, autocommit=True) as admin:
        admin.execute("create database other template template0")
        there = People(admin, "", people.ending)
        sql = "select oid::int8 from pg_roles where rolname = %s"
        (most,) = people.connection.execute("select max(oid::int8) from pg_roles").fetchone()
        for name, kind in (("berta", "owner"), ("carla", "owner"), ("alice", "analyst"), ("xenia", "analyst")):
            there.create(name, kind)
        assert admin.execute(sql, (there.full("xenia"),)).fetchone() != (most,)
        copied(people.url, conninfo.make_conninfo(private_cluster.url, dbname="other"))
    with psycopg.connect(conninfo.make_conninfo(private_cluster.url, dbname="other"), autocommit=True) as connection:
        there = People(connection, "", people.ending)
        assert waiting(there) == dict.fromkeys(["alice", "berta", "carla", "postgres", "xenia"], True)
        for name in ("alice", "berta", "carla", "xenia"):
            assert there.datasets(name) == set()
        with refused("nobody confirmed that role 'postgres'"):
            connection.execute("select dbdp.dp_logreg(%s, 1)", (there.full("d"),))
        connection.execute(CONFIRM_ALL)
        for name in ("alice", "berta", "carla", "xenia"):
            assert there.datasets(name) == people.datasets(name)
