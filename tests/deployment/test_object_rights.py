"""The rights on the extension's objects are those that its script grants, no matter what was added or granted."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import each_value_quick

from dbdp.deployment import inventory
from dbdp.deployment.extension import installer

OTHERS = ("eve", "crowd", "public", "pg_monitor", "dbdp_predictor", "dbdp_analyst", "dbdp_data_owner", "dbdp_owner")
KINDS = {
    "tables": ("all", "select", "insert", "update", "delete", "truncate", "references", "trigger"),
    "sequences": ("all", "usage", "select", "update"),
    "functions": ("all", "execute"),
    "types": ("all", "usage"),
    "schemas": ("all", "usage", "create"),
}
# Makers of objects: the role that installs, and those as which the script never makes any.
MAKERS = ("current_user", "dbdp_owner", "dbdp_analyst", "eve")
CHECK_OF_ROLES = "may use (tables|sequences).* that dbdp_owner creates"
MADE_BEFORE = "create role eve; create role crowd; grant crowd to eve"
REGISTER = """
create schema alice; grant usage on schema alice to public;
create table alice.t as select array[.1, .2, i / 99.0]::float8[] as x, i % 2 as y from generate_series(1, 60) as i;
select dbdp.register_dataset('d', 'alice.t', 'y', '1', '{"x": {"length": 3, "norm": 1}}', 100, 1e-3, mode => 'basic')"""
GRANTED = (
    "trigger on dbdp.ledger",
    "update (epsilon) on dbdp.dataset",
    "all on all tables in schema dbdp",
    "all on all routines in schema dbdp",
    "all on all sequences in schema dbdp",
    "create on schema dbdp",
    "references (id) on dbdp.model",
)


@st.composite
def default_privileges(draw: st.DrawFn) -> tuple[str, bool]:
    """A statement on default privileges, and whether an installation refuses it."""
    kind, maker = draw(st.sampled_from(sorted(KINDS))), draw(st.sampled_from(MAKERS))
    word, other = draw(st.sampled_from(KINDS[kind])), draw(st.sampled_from(OTHERS))
    place = draw(st.sampled_from(["", "in schema public "])) if kind != "schemas" else ""
    if draw(st.booleans()) and not place:
        return f"alter default privileges for role {maker} revoke {word} on {kind} from {other}", False
    option = " with grant option" if other != "public" and draw(st.booleans()) else ""
    refused = maker == "dbdp_owner" != other and kind in ("tables", "sequences")
    return f"alter default privileges for role {maker} {place}grant {word} on {kind} to {other}{option}", refused


@st.composite
def grants(draw: st.DrawFn) -> str:
    """A grant that somebody made after the installation."""
    other = draw(st.sampled_from(OTHERS))
    option = " with grant option" if other != "public" and draw(st.booleans()) else ""
    return f"grant {draw(st.sampled_from(GRANTED))} to {other}{option}"


@contextmanager
def undone(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url) as connection:
        connection.execute("set search_path = pg_catalog")
        yield connection
        connection.rollback()


def differing(connection: psycopg.Connection) -> set[str]:
    """The rights that are in only one of the database and the list."""
    return set(inventory.intended("rights")) ^ set(inventory.rights(lambda sql: connection.execute(sql).fetchall()))


@pytest.fixture(scope="module")
def empty(server_url: str) -> Iterator[str]:
    """URL of a database without the extension."""
    name = f"empty_{secrets.token_hex(4)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0")
        yield psycopg.conninfo.make_conninfo(server_url, dbname=name)
        connection.execute(f"drop database {name} with (force)")


GENERATED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
FEW = settings(GENERATED, max_examples=4)


def check_installation(url: str, altered: list[tuple[str, bool]]) -> None:
    """Install with these default privileges, and compare; then register, which makes odometers."""
    with undone(url) as connection:
        connection.execute(MADE_BEFORE)
        for statement, _ in altered:
            connection.execute(statement.encode())
        try:
            connection.execute("create extension dbdp cascade")
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            assert any(refused for _, refused in altered), error
            return
        assert not differing(connection), altered
        connection.execute(REGISTER)
        assert not differing(connection), altered


@FEW
@given(altered=st.lists(default_privileges(), min_size=1, max_size=4))
def test_an_installation_grants_what_is_listed_only(empty, altered):
    """The control is below: a right that is not listed is seen."""
    check_installation(empty, altered)


@pytest.mark.slow
@GENERATED
@given(altered=st.lists(default_privileges(), min_size=1, max_size=8))
def test_no_default_privilege_changes_an_installation(empty, altered):
    """As above, with more examples."""
    check_installation(empty, altered)


def check_update(url: str, altered: list[tuple[str, bool]], granted: list[str]) -> None:
    with undone(url) as connection:
        connection.execute(MADE_BEFORE)
        for statement in [*(statement for statement, refused in altered if not refused), *granted]:
            connection.execute(statement.encode())
        connection.execute("alter extension dbdp update")
        assert not differing(connection), (altered, granted)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["0.2.0", "0.3.0"])
@GENERATED
@given(altered=st.lists(default_privileges(), max_size=4), granted=st.lists(grants(), max_size=4))
def test_an_update_grants_what_is_listed_only(old, state, altered, granted):
    """Whatever was granted before the update, or would be granted on what it makes."""
    check_update(old(state), altered, granted)


@pytest.fixture
def old(make_old: Callable[[str], str]) -> Iterator[Callable[[str], str]]:
    """A database of a released version, made once for all examples of a test."""
    made: dict[str, str] = {}
    yield lambda state: made.setdefault(state, make_old(state)) if state not in made else made[state]


def test_an_update_revokes_what_was_granted_before(old):
    check_update(old("0.3.0"), [], [f"grant {right} to eve with grant option" for right in GRANTED])


@pytest.mark.parametrize("right", GRANTED)
def test_a_right_that_is_not_listed_is_seen(server_url, right):
    """The control, and the SQL that ends it."""

    def query(sql: str) -> list[tuple[str, ...]]:
        return connection.execute(sql.encode()).fetchall()

    with undone(server_url) as connection:
        connection.execute("create role eve")
        connection.execute(f"grant {right} to eve with grant option".encode())
        assert any(line.startswith("eve: ") for line in differing(connection))
        for remedy in inventory.foreign(query).values():
            connection.execute(remedy.encode())
        assert not differing(connection)


def test_a_right_or_policy_that_is_lost_is_named(server_url):
    with undone(server_url) as connection:
        connection.execute("set search_path = pg_catalog; drop policy visible on dbdp.model")
        connection.execute("revoke all on dbdp.ledger from dbdp_owner; drop index dbdp.ledger_height")
        lost = inventory.missing(lambda sql: connection.execute(sql.encode()).fetchall())
    assert [line.partition(",")[0] for line in lost] == [
        "INDEX ledger_height ON dbdp.ledger USING btree (dataset_id",
        "dbdp_owner: insert on table dbdp.ledger",
        "dbdp_owner: select on table dbdp.ledger",
        "policy visible on dbdp.model",
    ]


def test_every_member_of_the_extension_is_compared(connection):
    """In one of the two schemas, too: nothing has rights that the list does not show."""
    sql = """
select distinct d.classid::regclass::text,
  coalesce(p.pronamespace, c.relnamespace, t.typnamespace, d.objid)::regnamespace::text
from pg_depend as d
left join pg_proc as p on d.classid = 'pg_proc'::regclass and p.oid = d.objid
left join pg_class as c on d.classid = 'pg_class'::regclass and c.oid = d.objid
left join pg_type as t on d.classid = 'pg_type'::regclass and t.oid = d.objid
where d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
and d.refobjid = (select e.oid from pg_extension as e where e.extname = 'dbdp')"""
    found = connection.execute(sql).fetchall()
    assert {schema for _, schema in found} == set(installer.SCHEMAS)
    assert {kind for kind, _ in found} == {"pg_class", "pg_namespace", "pg_proc", "pg_type"}


# --- code of others on the tables ---------------------------------------------------------------------------------

PLANTED = {
    "a trigger": "create trigger s before insert on dbdp.{table} for each row execute function eve.steal()",
    "a constraint trigger": "create constraint trigger s after insert on dbdp.{table} deferrable initially deferred "
    "for each row execute function eve.steal()",
    "a trigger on truncate": "create trigger s before truncate on dbdp.{table} execute function eve.steal()",
    "a foreign key": "create table eve.r (id int references dbdp.{table} (id))",
}
STEAL = """
create schema eve authorization eve;
create table eve.loot (who text); grant insert on eve.loot to public; grant usage on schema eve to public;
create function eve.steal() returns trigger language plpgsql as
$$ begin insert into eve.loot values (current_user); return new; end $$;
alter function eve.steal() owner to eve"""


@pytest.mark.parametrize("planted", PLANTED)
def test_an_update_refuses_code_of_others_before_it_runs(old, planted):
    """A trigger would run as the superuser. The control: after the remedy the update goes through."""
    with undone(old("0.3.0")) as connection:
        connection.execute(f"{MADE_BEFORE}; {STEAL}; grant all on all tables in schema dbdp to eve")
        connection.execute(f"set role eve; {PLANTED[planted].format(table='allowance')}; reset role")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused, connection.transaction():
            connection.execute("alter extension dbdp update")
        connection.execute((refused.value.diag.message_hint or "").encode())
        connection.execute("alter extension dbdp update")
        assert connection.execute("select count(*) from eve.loot").fetchone() == (0,)
        assert not differing(connection)


CALLS = {
    "a training": "select dbdp.dp_logreg('{d}', 1, algorithm => 'bolt_on', batch_size => 20)",
    "a grant": "select dbdp.grant_training('{d}', 'eve')",
    "the end of a dataset": "select dbdp.drop_dataset('{d}')",
}
TRAIN = CALLS["a training"]


@pytest.fixture
def dataset(connection: psycopg.Connection, make_table: Callable[..., str], register: Callable[..., str]) -> str:
    """The name of a registered table of 60 rows."""
    return register(make_table("of_rights", np.ones((60, 3)) / 2, np.resize([-1, 1], 60)))


@pytest.mark.parametrize(
    ("call", "planted"), each_value_quick(list(CALLS), ["the right alone", "a trigger", "a constraint trigger"])
)
def test_no_interface_writes_where_code_of_others_would_run(server_url, dataset, planted, call):
    """The control: such code runs as dbdp_owner, and once it is gone the call is answered."""
    with undone(server_url) as connection:
        connection.execute(f"{MADE_BEFORE}; {STEAL}; grant trigger on dbdp.allowance to eve; savepoint granted")
        if planted in PLANTED:
            connection.execute(f"set role eve; {PLANTED[planted].format(table='allowance')}; reset role")
            connection.execute("revoke trigger on dbdp.allowance from eve")
        refusal = pytest.raises(psycopg.Error, match=r"trigger on dbdp\.allowance.* run `dbdp doctor`")
        with refusal, connection.transaction():
            connection.execute(CALLS[call].format(d=dataset))
        if planted in PLANTED:
            connection.execute("set role dbdp_owner")
            connection.execute(
                "insert into dbdp.allowance (dataset_id, role, role_id) select id, 'x', 'x' from dbdp.dataset"
            )
            connection.execute("reset role; set constraints all immediate")
            # A deferred one runs as the role that is active then, and since 18 as the one that wrote the row.
            is_writer = planted == "a trigger" or connection.info.server_version >= 180000
            assert ("dbdp_owner" if is_writer else "postgres",) in connection.execute("table eve.loot")
        connection.execute("rollback to granted; revoke trigger on dbdp.allowance from eve")
        connection.execute(CALLS[call].format(d=dataset))


def test_an_odometer_that_others_may_turn_refuses_to_train(server_url, connection, dataset):
    """As in a database that was restored with default privileges; the control trains before and after."""
    (number,) = connection.execute("select max(id) from dbdp.dataset").fetchone()
    with undone(server_url) as restored:
        restored.execute(TRAIN.format(d=dataset))
        restored.execute(f"create role eve; grant update on sequence dbdp.charge_{number} to eve")
        with pytest.raises(psycopg.Error, match="does not belong to dbdp_owner only"), restored.transaction():
            restored.execute(TRAIN.format(d=dataset))
        (remedy,) = inventory.foreign(lambda sql: restored.execute(sql.encode()).fetchall()).values()
        assert remedy == f"revoke update on sequence dbdp.charge_{number} from eve cascade;"
        restored.execute(remedy.encode())
        restored.execute(TRAIN.format(d=dataset))
