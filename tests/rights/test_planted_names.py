"""Each command is run where traps are planted for every operator, function, type and relation: none is met.

The server's log has every statement that a client sends, whichever part of dbdp sends it, psycopg and psql included.
"""

import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy
import traps
from click.testing import CliRunner
from planted import World, every_command
from psycopg.conninfo import make_conninfo
from psycopg.rows import tuple_row
from servers import temporary_cluster
from site_of_tests import csrf_of, served

import dbdp
from dbdp.algorithms import Request
from dbdp.deployment.extension import installer, search_path
from dbdp.deployment.extension.source import ExtensionSource
from dbdp.interfaces.cli.demo import adult
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.routes import entry, grants, owner_forms, pages, prometheus, score_form, trainings
from dbdp.sessions import connections
from dbdp.sessions.client import ClientSession

pytestmark = [pytest.mark.security, pytest.mark.slow]  # CI runs it

TOKEN = "t" * 32
FIRST, BEHIND = "traps, pg_catalog, public", '"$user", public, dbdp'  # copies are met first; pairs fit better
REGISTRATION = {"label": "y", "positive": "1", "epsilon": 1000, "delta": 1e-3, "mode": "basic"}
NOTHING_OF_OURS = {"server psql", "reproduce"}  # the user's own session; benchmarks of a clone, which are not installed
UNPLANTED = {"row_number", "over", "values", "in", "and", "or", "as", "join", "exists", "from", "filter", "any", "all"}


def path_of(connection: psycopg.Connection) -> str:
    """The search_path of a connection."""
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        return cursor.execute("select pg_catalog.current_setting('search_path')", prepare=False).fetchone()[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with temporary_cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBDP_HOME", str(cluster.home.parent))
        patch.setenv("DBDP_DATA", "/nonexistent")
        patch.setattr(adult, "download", _unreachable)
        with (cluster.home / "data" / "postgresql.conf").open("a") as file:
            file.write("log_statement = all\nlog_line_prefix = '@@@%q%u '\nwal_writer_delay = '10ms'\n")
        cluster.stop()
        cluster.start()
        made = World(cluster, tmp_path_factory.mktemp("files"))
        made.plant("dbdp")
        made.admin.execute("create database another template template0")
        made.plant("another")
        made.set_path(FIRST, "another")
        yield made


def _unreachable() -> str:
    raise OSError("no network here")


@pytest.fixture(params=[FIRST, BEHIND])
def path(request: pytest.FixtureRequest, world: World) -> Iterator[str]:
    """A search_path with traps on it, in force; the last dataset is gone."""
    world.set_path(request.param)
    yield request.param
    with connections.opened(world.urls["alice"]) as alice:
        for row in ClientSession(alice).query("select name from dbdp.datasets_details"):
            alice.execute("select dbdp.drop_dataset(%s)", (row["name"],))


def run(world: World, name: str, role: str | None, *arguments: Any) -> None:
    """Run a command in this process, as a role."""
    url = [] if role is None else ["--url", make_conninfo(world.cluster.url, dbname="another")]
    if role in ("alice", "bob", "postgres"):
        url = ["--url", world.urls["" if role == "postgres" else role]]
    ((newest,),) = world.admin.execute("select coalesce(max(id), 0) from dbdp.model").fetchall()
    given = [str(newest if each == "MODEL" else each) for each in arguments]
    result = CliRunner().invoke(app, [*name.split(), *given, *url])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in ((0, 1) if name == "doctor" else (0,)), (name, result.output)


@pytest.mark.control("planted-names")
def test_no_command_is_left_out(world):
    assert set(every_command()) == set(world.commands())
    without = {"web", "server stop", "follow"}  # the last needs two servers
    assert {name for name, calls in world.commands().items() if not calls} == without | NOTHING_OF_OURS


@pytest.mark.attack("planted-names")
def test_no_command_meets_a_planted_name(world, path):
    for name, calls in world.commands().items():
        for role, *arguments in calls:
            run(world, name, role, *arguments)
            assert traps.met(world.admin) == 0, (name, role)
    assert without_trap(world) == set()


# --- other ways in: rows at hand, the page, connections of the user ------------------------------------------


@pytest.mark.attack("planted-names")
def test_rows_at_hand_meet_no_planted_name(world, path):
    features = np.linspace(0, 1, 40).reshape(20, 2)
    dbdp.LogisticRegression(epsilon=1, algorithm="bolt_on", epochs=1, bounds=1.0, classes=[0, 1]).fit(
        features, np.arange(20) % 2
    )
    assert traps.met(world.admin) == 0


PAGES = (
    "/overview",
    "/register",
    "/renew?dataset=d",
    "/score?model={model}&metric=auc&epsilon=1",
    "/predictions/grant?model={model}&role=bob",
    "/predictions/revoke?model={model}&role=bob",
    "/datasets?search=d",
    "/dataset?name=d",
    "/budgets",
    "/ledger?dataset=d&search=a",
    "/models",
    "/model?id={model}",
    "/plan?dataset=d&epsilon=1",
    "/allowances",
    "/allowances/grant?dataset=d&role=bob",
    "/allowances/revoke?dataset=d&role=bob",
    "/metrics",
)


@pytest.mark.attack("planted-names")
def test_the_page_meets_no_planted_name(world, path):
    with connect(world.urls["alice"]) as alice:
        register(alice)
        model = alice.train("d", Request(1.0, algorithm="bolt_on", epochs=1)).id
    for role in ("alice", ""):  # the owner, and the superuser
        with served(world.urls[role], metrics_token=TOKEN) as site, site.open() as page:
            visit(page, model)
    assert traps.met(world.admin) == 0


def visit(page, model):
    """Open every page, and send the forms."""
    for place in PAGES:
        answer = page.get(place.format(model=model), headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200, (place, answer.text)
    csrf = {"csrf": csrf_of(page.get("/allowances").text)}
    for path, fields in forms(model):
        assert page.post(path, data=csrf | fields).status_code == 303, path
    for _ in range(600):
        if page.get("/job", params={"number": "1"}).status_code == 303:
            return
        time.sleep(0.1)
    raise AssertionError("the training has not ended")


def forms(model):
    """The forms of the page, and what is sent."""
    of_role, of_model = {"dataset": "d", "role": "bob"}, {"model": str(model), "role": "bob"}
    return [
        ("/allowances/grant", of_role | {"epsilon": "1"}),
        ("/allowances/revoke", of_role),
        ("/predictions/grant", of_model),
        ("/predictions/revoke", of_model),
        ("/renew", {"dataset": "d", "reason": "of the tests"}),
        ("/train", {"dataset": "d", "number": "1", "epsilon": "1", "algorithm": "bolt_on", "epochs": "1"}),
    ]


@pytest.mark.control("planted-names")
def test_no_page_is_left_out():
    routers = [each.router for each in (entry, grants, owner_forms, pages, prometheus, score_form, trainings)]
    made = {route.path for router in routers for route in router.routes if "GET" in route.methods}
    assert made - {place.partition("?")[0] for place in PAGES} == {"/", "/job"}  # by which visits begin and end


def register(database: Database, name: str = "d") -> None:
    """Register the table of alice by the name that only her path finds."""
    database.register_dataset(name, "rows_of_alice", features={"a": [0, 1], "b": [0, 1]}, **REGISTRATION)


def planted_in_session(connection: psycopg.Connection) -> None:
    """Plant what a session can have for itself: relations and types in pg_temp."""
    for name in ("pg_class", "pg_roles", "pg_extension", "pg_attribute"):
        connection.execute(f"create temporary view {name} as select alarm.trip('temporary {name}')")
    for name in ("text", "regclass", "float8", "int8"):
        connection.execute(f"create domain pg_temp.{name} as pg_catalog.text check (alarm.trip('temporary {name}'))")


def engine(url: str) -> sqlalchemy.Engine:
    """An engine that has run its first connection's queries, with names of its own, before a trap was there."""
    options = ["-c search_path=pg_catalog"]
    made = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(url, options=" ".join(options))
    )
    with made.connect():
        options.clear()
    made.dispose()
    return made


LENT = {
    "psycopg": psycopg.connect,
    "psycopg, autocommit": lambda url: psycopg.connect(url, autocommit=True),
    "a SQLAlchemy connection": lambda url: engine(url).connect(),
    "a SQLAlchemy engine": engine,
}


@pytest.mark.parametrize("kind", sorted(LENT))
@pytest.mark.parametrize("with_temporaries", [False, True])
@pytest.mark.attack("lent-connections")
def test_lent_connection_meets_no_planted_name(world, path, kind, with_temporaries):
    """A lent connection meets no planted name and keeps its path."""
    lent = LENT[kind](world.urls["alice"])
    with connect(lent) as database:
        connection = database.connection
        before = path_of(connection)
        if with_temporaries:
            planted_in_session(connection)
        register(database)
        connection.commit()
        assert database.dataset_of("rows_of_alice") == "d"
        database.train("d", Request(1.0, algorithm="bolt_on", epochs=1))
        with pytest.raises(ValueError, match="batch_size"):
            database.train("d", Request(1.0, algorithm="bolt_on", batch_size=10**6))
        database.recover()
        for read in (database.datasets, database.models, database.history, database.allowances, database.check_ledger):
            read()
        assert (traps.met(world.admin), path_of(connection)) == (0, before)
        connection.rollback()
    if hasattr(lent, "close"):
        lent.close()


STATEMENTS = ("select 1", "select 1 / 0", "selec", "select pg_catalog.set_config('dbdp.x', 'y', false)")


@pytest.mark.parametrize("sql", STATEMENTS)
@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("path_given", ["a", "b", None])
@pytest.mark.attack("lent-connections")
def test_the_users_path_is_as_it_was_after_each_statement(connection, sql, autocommit, path_given):
    connection.autocommit = autocommit
    connection.execute("set search_path = session_wide")
    connection.commit()
    if path_given == "a":
        connection.execute("begin" if autocommit else "select")
        connection.execute("set local search_path = of_transaction")
    if path_given == "b":
        connection.execute("begin" if autocommit else "select")
        connection.execute("savepoint s; set search_path = of_savepoint")
    shown = [path_of(connection)]
    try:
        ClientSession(connection).query(sql)
    except psycopg.Error:
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            connection.execute("rollback to s" if path_given == "b" else "rollback")
            shown = ["session_wide"]
    assert path_of(connection) == shown[0]
    connection.rollback()
    assert path_of(connection) == "session_wide"
    connection.rollback()
    connection.autocommit = True


@pytest.mark.attack("lent-connections")
def test_a_pipeline_goes_on_after_its_refusal(connection):
    """A connection in pipeline mode is refused before a statement, and its pipeline goes on with the user's path."""
    connection.execute("set search_path = mine")
    with connection.pipeline():
        first = connection.execute("select 1")
        with pytest.raises(ValueError, match="in pipeline mode; call dbdp outside"):
            ClientSession(connection).query("select pg_catalog.current_setting('search_path') as p")
        second = connection.execute("select current_setting('search_path')")
        assert (first.fetchone(), second.fetchone()) == ((1,), ("mine",))


OPTIONS = {"options": "-c search_path=traps"}


@pytest.mark.parametrize("given", [{}, OPTIONS])
@pytest.mark.attack("lent-connections")
def test_a_connection_of_ours_is_pinned_whatever_set_its_path(world, path, given, monkeypatch):
    monkeypatch.setenv("PGOPTIONS", "-c search_path=traps,pg_catalog")
    for url in world.urls.values():
        with connections.opened(url, **given) as opened:
            assert path_of(opened) == connections.PATH
            assert opened.autocommit
        with connections.opened(url, autocommit=False, **given) as opened:
            opened.rollback()
            assert path_of(opened) == connections.PATH


# --- the control: the same traps are met where the path is the user's ------------------------------------------

BEFORE = {  # statements of the code as it was, or as it is, over a connection that is not pinned
    "the roles of the doctor": (ExtensionSource.installed().sql / "schema/3-sound-roles.sql").read_text(),
    "rights of dbdp_owner": installer.GRANTS_TO_OWNER,
    "a setting of the database": search_path.SETTING_OF_DATABASE,
    "waiting for the log": "select 1::pg_catalog.numeric >= 1",
    "a dataset of a table": "select 'pg_class'::pg_catalog.regclass = 'pg_class'::pg_catalog.regclass",
    "columns of a table": "select attname::text from pg_catalog.pg_attribute where attrelid = 'pg_class'::regclass",
}


@pytest.mark.parametrize("statement", sorted(BEFORE))
@pytest.mark.control("planted-names")
def test_the_traps_are_met_where_nothing_is_pinned(world, path, statement):
    before = traps.met(world.admin)
    with psycopg.connect(world.urls[""], autocommit=True) as unpinned:
        with pytest.raises(psycopg.errors.RaiseException, match=r"trap: .* was met by postgres"):
            unpinned.execute(BEFORE[statement])
        with connections.opened(world.urls[""]) as pinned:
            pinned.execute(BEFORE[statement])
    assert traps.met(world.admin) == before + 1
    world.admin.execute("alter sequence alarm.met restart")


def without_trap(world: World) -> set[str]:
    """The server's functions and operators that statements of the log name without a schema, and that have no trap."""
    sent = statements((world.cluster.home / "server.log").read_text(errors="replace"))
    assert len(sent) > 100
    functions = {name for each in sent for name in traps.names_in(each)[0]} - UNPLANTED
    operators = {name for each in sent for name in traps.names_in(each)[1]}
    named = "select proname from pg_proc where pronamespace = %s::regnamespace"
    signs = "select oprname from pg_operator where oprnamespace = %s::regnamespace"
    lacking = set()
    for sql, found in ((named, functions), (signs, operators)):
        there, planted = ({name for (name,) in world.admin.execute(sql, (of,))} for of in ("pg_catalog", "traps"))
        lacking |= (found & there) - planted
    return lacking


def statements(log: str) -> set[str]:
    """What clients sent, as the server's log has it."""
    entries = re.split(r"^@@@", log, flags=re.MULTILINE)
    found = (re.match(r"\S* (?:LOG:  )?.*?(?:statement|execute [^:]*): (.*)", each, re.DOTALL) for each in entries)
    return {each[1] for each in found if each and "alarm" not in each[1]}
