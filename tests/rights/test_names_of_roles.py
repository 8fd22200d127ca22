"""Rights do not follow names: a renamed role keeps its own, and another role of the name has none of them."""

from collections.abc import Iterator

import psycopg
import pytest
from people import People, refused

from dbdp.registry import datasets
from dbdp.sessions.client import ClientSession

pytestmark = pytest.mark.security


@pytest.fixture
def people(connection: psycopg.Connection) -> Iterator[People]:
    """Roles that are gone at the end: at first Berta, the owner of dataset d."""
    made = People(connection)
    made.create("berta", "owner")
    made.register("berta", "d")
    yield made
    made.leave()


@pytest.mark.attack("reused-name")
def test_a_renamed_owner_keeps_its_dataset(people):
    """She grants and trains under her new name; a new role of her former name has nothing, not even a sight of it."""
    people.rename("berta", "bertha")
    people.create("berta", "owner")
    people.create("xenia", "analyst")
    assert (people.datasets("bertha"), people.datasets("berta")) == ({"d"}, set())
    people.grant("bertha", "d", "xenia")
    people.train("bertha", "d")
    people.train("xenia", "d")
    with refused("is not registered"):
        people.grant("berta", "d", "berta")
    with refused("is not registered"):
        people.train("berta", "d")
    shown = people.call("xenia", "select registered_by from dbdp.datasets where name = %s", people.full("d"))
    assert shown == [(people.full("bertha"),)]


@pytest.mark.attack("reused-name")
def test_a_dataset_is_own_to_its_role_by_any_name(people):
    """A client opens the files of its own datasets: those of a former role of the name are another's."""
    assert own(people, "berta", "d")
    people.rename("berta", "bertha")
    people.create("berta", "analyst")
    people.grant("bertha", "d", "berta")
    assert (own(people, "bertha", "d"), own(people, "berta", "d")) == (True, False)


def own(people: People, name: str, dataset: str) -> bool:
    with people.acting(name) as connection:
        return datasets.load(ClientSession(connection), people.full(dataset)).is_own


@pytest.mark.attack("recreated-role")
def test_role_created_again_has_nothing_of_the_former(people):
    """Neither allowance nor spending, models, name of a model or grants of prediction; the owner sees a former role."""
    people.create("xenia", "analyst")
    people.grant("berta", "d", "xenia", 10)
    own, of_owner = people.train("xenia", "d", 2.5, "named"), people.train("berta", "d", 1, "of_owner")
    people.call("berta", "select dbdp.grant_prediction(%s, %s)", of_owner, people.full("xenia"))
    people.call("berta", "select dbdp.grant_prediction(%s, %s)", people.full("of_owner"), people.full("xenia"))
    may = [people.predicts("xenia", model) for model in (own, of_owner, "named", "of_owner")]
    assert may == [True] * 4
    people.again("xenia", "analyst")
    assert people.datasets("xenia") == set()
    may = [people.predicts("xenia", model) for model in (own, of_owner, "named", "of_owner")]
    assert may == [False] * 4
    with refused("is not registered"):
        people.train("xenia", "d")
    assert people.call("xenia", "select * from dbdp.history") == []
    assert people.allowances("berta", "d") == {"former xenia": 0.75}
    people.grant("berta", "d", "xenia", 10)
    assert people.allowances("berta", "d") == {"former xenia": 0.75, "xenia": 1.0}
    with refused("belongs to another role"):
        people.train("xenia", "d", 1, "named")
    people.revoke("berta", "d", people.full("former xenia"))
    assert people.allowances("berta", "d") == {"xenia": 1.0}


@pytest.mark.attack("swapped-names")
def test_two_roles_that_swap_names_keep_their_allowances(people):
    """Alice, who spent a half, goes on with a half under the name of bob."""
    for name in ("alice", "bob"):
        people.create(name, "analyst")
        people.grant("berta", "d", name, 10)
    model = people.train("alice", "d", 5, "of_alice")
    people.swap("alice", "bob")
    assert people.allowances("berta", "d") == {"bob": 0.5, "alice": 1.0}
    assert (people.predicts("bob", model), people.predicts("alice", model)) == (True, False)
    people.train("bob", "d", 1, "of_alice")
    assert people.allowances("berta", "d") == {"bob": 0.4, "alice": 1.0}
    with refused("alice.* does not cover this release"):
        people.train("alice", "d", 10.5)
    with refused("belongs to another role"):
        people.train("alice", "d", 1, "of_alice")
    people.revoke("berta", "d", people.full("alice"))
    assert (people.datasets("bob"), people.datasets("alice")) == ({"d"}, set())


@pytest.mark.attack("reused-name")
def test_a_renamed_team_keeps_its_grants(people):
    """Its members train and predict; members of a new team of the former name do not."""
    people.create("team", "team")
    people.create("carol", "analyst", "team")
    people.grant("berta", "d", "team")
    model = people.train("berta", "d")
    people.call("berta", "select dbdp.grant_prediction(%s, %s)", model, people.full("team"))
    people.rename("team", "crew")
    people.create("team", "team")
    people.create("dora", "analyst", "team")
    assert (people.datasets("carol"), people.datasets("dora")) == ({"d"}, set())
    assert (people.predicts("carol", model), people.predicts("dora", model)) == (True, False)
    people.train("carol", "d")
    assert people.allowances("berta", "d") == {"crew": None}


@pytest.mark.attack("rename-inside")
def test_an_open_session_follows_its_role_through_a_rename(people, server_url):
    """Within a transaction too: who is renamed meanwhile trains, is charged, and stores a version of its name."""
    people.create("xenia", "analyst")
    people.grant("berta", "d", "xenia", 10)
    train = (
        "select model from dbdp.dp_logreg(%s, epsilon => 2.5, "
        "algorithm => 'bolt_on', epochs => 1, batch_size => 20, name => %s)"
    )
    given = (people.full("d"), people.full("named"))
    with psycopg.connect(server_url) as session:
        session.execute(f"set session authorization {people.full('xenia')}")
        session.execute(train, given)
        people.rename("xenia", "yvonne")
        people.create("xenia", "analyst")
        session.execute(train, given)
        session.commit()
        session.execute(train, given)
        session.commit()
    assert people.allowances("berta", "d") == {"yvonne": 0.25}
    charged = people.call("berta", "select charged_by from dbdp.history where dataset = %s", people.full("d"))
    assert charged == [(people.full("yvonne"),)] * 3
    versions = people.call("yvonne", "select version from dbdp.models where name = %s", people.full("named"))
    assert sorted(versions) == [(1,), (2,), (3,)]
    assert people.datasets("xenia") == set()


@pytest.mark.attack("new-table-owner")
def test_a_new_owner_of_a_table_does_not_have_the_dataset(people):
    """ALTER TABLE OWNER and REASSIGN OWNED move the table; the dataset stays with the role that registered it."""
    people.create("carla", "owner")
    people.register("berta", "e")
    table, berta, carla = f"{people.full('of_d')}.t", people.full("berta"), people.full("carla")
    people.connection.execute(f"alter table {table} owner to {carla}")
    assert (people.datasets("berta"), people.datasets("carla")) == ({"d", "e"}, set())
    people.connection.execute(f"reassign owned by {berta} to {carla}")
    assert (people.datasets("berta"), people.datasets("carla")) == ({"d", "e"}, set())
    people.drop("berta")
    people.create("berta", "owner")
    assert (people.datasets("berta"), people.datasets("carla")) == (set(), set())


@pytest.mark.attack("successor")
def test_successor_has_rights_if_a_superuser_says_so(people):
    """By a role without a login, which is granted to the successor; nobody else decides."""
    people.create("carla", "owner")
    model = people.train("berta", "d")
    people.connection.execute(f"reassign owned by {people.full('berta')} to {people.full('carla')}")
    people.drop("berta")
    sql = "select registered_by_id from dbdp.dataset where name = %s"
    [identity] = people.connection.execute(sql, (people.full("d"),)).fetchone()
    for name in ("carla", identity):
        with refused("does not wait for confirmation"):
            people.call("carla", "select dbdp.confirm_role(%s, %s)", identity, people.full(name))
    people.create("heirs", "owner")
    people.connection.execute("select dbdp.confirm_role(%s, %s)", (identity, people.full("heirs")))
    assert people.datasets("carla") == set()
    people.connection.execute(f"grant {people.full('heirs')} to {people.full('carla')}")
    assert people.datasets("carla") == {"d"}
    assert people.predicts("carla", model)
    people.train("carla", "d")
    people.rename("heirs", "heiresses")
    assert people.datasets("carla") == {"d"}


@pytest.mark.attack("mark-name")
def test_a_role_of_the_name_of_a_mark_is_not_the_marked_role(people):
    """A role may be called `former xenia`: it has nothing of xenia, and xenia's allowance can still be revoked."""
    people.create("xenia", "analyst")
    people.grant("berta", "d", "xenia", 10)
    people.drop("xenia")
    mark = people.full("former xenia")
    people.connection.execute(f'create role "{mark}" in role dbdp_analyst')
    people.connection.execute(f'set session authorization "{mark}"')
    assert people.connection.execute("select name from dbdp.datasets").fetchall() == []
    people.connection.execute("reset session authorization")
    people.call("berta", "select dbdp.revoke_training(%s, %s)", people.full("d"), people.full("xenia"))
    assert people.allowances("berta", "d") == {}
    people.connection.execute(f'drop owned by "{mark}"; drop role "{mark}"')


@pytest.mark.attack("mark-name")
def test_a_name_of_63_bytes_is_shown_with_its_mark(people):
    """The mark stays, and the end of the name goes."""
    long = "ä" * 25 + people.ending
    people.connection.execute(f'create role "{long}" in role dbdp_analyst')
    people.call("berta", "select dbdp.grant_training(%s, %s)", people.full("d"), long)
    assert [*people.allowances("berta", "d")] == [long]
    people.connection.execute(f'drop role "{long}"')
    [shown] = people.allowances("berta", "d")
    assert shown == f"former {long}".encode()[:63].decode(errors="ignore")
    people.call("berta", "select dbdp.revoke_training(%s, %s)", people.full("d"), shown)
    assert people.allowances("berta", "d") == {}


@pytest.mark.attack("rights-without-role")
def test_check_ledger_names_rights_without_a_role(people):
    """They are no fault: the ledger agrees."""
    people.create("xenia", "analyst")
    people.grant("berta", "d", "xenia", 10)
    sql = "select ok, finding from dbdp.check_ledger()"
    assert people.call("berta", sql) == [(True, None)]
    people.drop("xenia")
    [(is_ok, finding)] = people.call("berta", sql)
    assert is_ok
    assert f"rights without a role: former {people.full('xenia')}; revoke them" in finding
