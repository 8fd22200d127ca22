"""Each environment in which dbdp may run: a training succeeds for one charge, or is refused by name before a charge."""

import ast
import inspect
import json
import os
import pwd
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial, partialmethod
from itertools import product
from pathlib import Path

import psycopg
import pytest
from commands import run_here
from environments import ROUTES, TRAINED, Left, outcome
from pairs import others_slow
from psycopg import conninfo
from psycopg.types.json import set_json_loads
from psycopg.types.numeric import NumericLoader
from servers import temporary_cluster

from dbdp.controller.charging import _workers
from dbdp.deployment.doctor import FAULT, examine
from dbdp.deployment.extension import installer
from dbdp.deployment.extension.source import PACKAGE, InstallError
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.estimators.linear import LogisticRegression
from dbdp.sessions import support
from dbdp.sessions.client import Another, ClientSession
from dbdp.sessions.connections import PINNED, connected, is_direct, opened

FUNCTIONS = PACKAGE / "interfaces" / "sql" / "functions.py"
REGISTER = """
select dbdp.register_dataset(%s, %s::regclass, label => 'y', positive => 'true', features => '{"größe": [0, 9]}',
    epsilon => 1000, delta => 1e-3)
"""


@pytest.fixture(scope="module")
def admin(server_url: str) -> Iterator[psycopg.Connection]:
    """A session of the superuser; it reads the ledger."""
    with psycopg.connect(server_url, autocommit=True) as session:
        yield session


@pytest.fixture
def dataset(admin: psycopg.Connection) -> Iterator[str]:
    """A registered table with a column outside ASCII."""
    yield from registered(admin)


def registered(admin: psycopg.Connection) -> Iterator[str]:
    name = f"environment_{secrets.token_hex(4)}"
    admin.execute(
        f'create table public.{name} as select i % 10 as "größe", i % 2 = 0 as y from generate_series(1, 50) i'
    )
    admin.execute(REGISTER, (name, name))
    yield name
    admin.execute("select dbdp.drop_dataset(%s)", (name,))
    admin.execute(f"drop table public.{name}")


# --- encodings and locales ---------------------------------------------------------------------------------

FOREIGN = {  # encoding, and options of its database
    "LATIN1": "encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'",
    "LATIN9": "encoding 'LATIN9' lc_collate 'C' lc_ctype 'C'",
    "WIN1252": "encoding 'WIN1252' lc_collate 'C' lc_ctype 'C'",
    "EUC_JP": "encoding 'EUC_JP' lc_collate 'C' lc_ctype 'C'",
    "SQL_ASCII": "encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'",
}


@pytest.mark.parametrize("encoding", FOREIGN)
@pytest.mark.attack("encoding")
def test_install_refuses_another_encoding(make_database, encoding):
    """install and doctor name the encoding, and nothing is installed."""
    url = make_database(f"template0 {FOREIGN[encoding]}")
    with pytest.raises(InstallError, match=f"^the database has the encoding {encoding}, and dbdp needs UTF8; create"):
        installer.install(url)
    done = run_here("install", "--url", url)
    assert done.returncode, encoding
    assert re.fullmatch(r"error: the database has the encoding [^\n]+\n", done.stderr)
    assert [finding.check for finding in examine(url) if finding.state == FAULT and "encoding" in finding.found]
    with psycopg.connect(url) as session:
        assert session.execute("select 1 from pg_extension where extname = 'dbdp'").fetchall() == []


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252"])
@pytest.mark.attack("encoding")
def test_each_call_refuses_another_encoding(make_database, encoding):
    """An extension that was created there without `dbdp install` answers no call, and the server lives."""
    with psycopg.connect(make_database(f"template0 {FOREIGN[encoding]}"), autocommit=True) as session:
        session.execute("create extension dbdp schema pg_catalog cascade")
        for statement in (
            "select dbdp.register_dataset('a', 'pg_class'::regclass)",
            "select dbdp.dp_logreg('a', 1)",
            "select dbdp.dp_explain('a', 1)",
            "select dbdp_internal.charge('a', '{}')",
            "select dbdp_internal.shuffle('a', 'b', '{}')",
        ):
            with pytest.raises(psycopg.Error, match=f"the database has the encoding {encoding}, and dbdp needs UTF8"):
                session.execute(statement)


LOCALES = {
    "C": "encoding 'UTF8' lc_collate 'C' lc_ctype 'C'",
    "ICU": "encoding 'UTF8' locale_provider icu icu_locale 'de' lc_collate 'C' lc_ctype 'C'",
    "Turkish by ICU": "encoding 'UTF8' locale_provider icu icu_locale 'tr' lc_collate 'C.UTF-8' lc_ctype 'C.UTF-8'",
}


@pytest.mark.slow
@pytest.mark.parametrize("locale", LOCALES)
def test_a_training_succeeds_in_each_locale(make_database, locale):
    """Locales of UTF8 and their providers decide nothing."""
    url = make_database(f"template0 {LOCALES[locale]}")
    installer.install(url)
    with psycopg.connect(url, autocommit=True) as session:
        for name in registered(session):
            for route in ROUTES:
                assert outcome(session, url, name, route) == TRAINED, route


# --- versions ----------------------------------------------------------------------------------------------


def test_the_server_of_the_tests_is_supported(admin):
    """Tests that pass show that this version is supported, and no other."""
    assert admin.info.server_version // 10000 in support.MAJORS


@pytest.mark.parametrize("major", [14, 16, 19, 99])
@pytest.mark.attack("version")
def test_another_version_is_refused(major):
    """A version that was not tested is refused, older, between and newer."""
    with pytest.raises(ValueError, match=rf"PostgreSQL {major}, and dbdp is tested on 15, 17 and 18 only; move"):
        support.check_server({"version": major * 10000 + 3, "encoding": "UTF8", "assertions": "off"})


@pytest.mark.attack("version")
def test_a_server_with_assertions_is_refused():
    """They end the server where a process without a type reads a page (`_of_no_type`)."""
    with pytest.raises(ValueError, match=r"was built with assertions, .* without --enable-cassert"):
        support.check_server({"version": 180006, "encoding": "UTF8", "assertions": "on"})


@pytest.mark.attack("version")
def test_the_versions_are_listed_once():
    """No other module compares the server's version, or has a table by version."""
    compared = re.compile(r"server_version|\bmajor\b *(<|>|==|in\b|not in\b)|MAJORS *=|MINIMUM_(SERVER|POSTGRESQL)")
    found = {path.relative_to(PACKAGE).as_posix(): compared.findall(path.read_text()) for path in PACKAGE.rglob("*.py")}
    # It finds a place's fitting package and installed servers; the versions come from the list.
    assert {path for path, places in found.items() if places} <= {
        "sessions/support.py",
        "deployment/bootstrap.py",
        "deployment/extension/installer.py",
        "deployment/following/source_checks.py",  # of a server that dbdp follows, and is not on
        "deployment/following/subscriber_checks.py",  # as whom changes are written
        "deployment/doctor.py",  # the same
    }


# --- transactions ------------------------------------------------------------------------------------------

SERIALIZABLE = "this transaction is serializable: .*; "
READ_ONLY = "this transaction is read-only, and this call writes; "
DEFAULTS = {  # of a session, and the refusal
    "default_transaction_isolation=serializable": SERIALIZABLE + "set default_transaction_isolation = 'read committed'",
    "default_transaction_read_only=on": READ_ONLY + "set default_transaction_read_only = 'off'",
    "default_transaction_isolation=repeatable\\ read": None,
    "default_transaction_isolation=read\\ uncommitted": None,
    "default_transaction_deferrable=on": None,
    "session_replication_role=replica": "fires no triggers, .*; set session_replication_role = 'origin'",
    "session_replication_role=local": None,
}


ACCEPTED = [default for default, refusal in DEFAULTS.items() if refusal is None]


@pytest.mark.parametrize(
    ("default", "route"),
    others_slow(
        list(product(DEFAULTS, ROUTES)),
        *product([default for default in DEFAULTS if default not in ACCEPTED], ROUTES),
        *zip(ACCEPTED, ROUTES, strict=True),  # each is accepted by one interface at least
    ),
)
@pytest.mark.attack("serializable")
def test_each_interface_refuses_a_default_of_transactions(admin, server_url, dataset, default, route):
    """A session's default decides before the charge, by its name."""
    url = conninfo.make_conninfo(server_url, options=f"-c {default}")
    result = outcome(admin, url, dataset, route)
    assert re.search(DEFAULTS[default], result) if DEFAULTS[default] else result == TRAINED


BEGUN = {
    "isolation level serializable": f"{SERIALIZABLE}begin it with isolation level read committed",
    "read only": f"{READ_ONLY}begin it with read write",
}


def spending() -> set[str]:
    """The functions of SQL that spend, amend or read rows."""
    return {
        function.name
        for function in ast.parse(FUNCTIONS.read_text()).body
        if isinstance(function, ast.FunctionDef) and "in_own_transaction" in ast.unparse(function.decorator_list)
    }


CALLS = """
select p.proname,
       format('select dbdp_internal.%I(%s)', p.proname,
              (select string_agg(format('null::%s', t.type::regtype), ', ') from unnest(p.proargtypes) as t (type))),
       p.proisstrict
from pg_proc as p
join pg_language as l on l.oid = p.prolang
where p.pronamespace = 'dbdp_internal'::regnamespace
and l.lanname = 'plpython3u'
"""


@pytest.mark.parametrize("mode", BEGUN)
@pytest.mark.attack("serializable")
def test_each_function_that_spends_refuses_a_transaction(admin, mode):
    """The list of functions is the code's, and their arguments are null: the transaction is refused before them."""
    functions, met = spending(), set()
    for name, call, is_strict in admin.execute(CALLS).fetchall():
        if (body := name.removeprefix("try_")) in functions and not is_strict:
            admin.execute(f"begin transaction {mode}")
            with pytest.raises(psycopg.Error, match=BEGUN[mode]):
                admin.execute(call)
                admin.execute("select dbdp_internal.accepted()")
            admin.execute("rollback")
            met.add(body)
    assert met == functions
    assert len(functions) > 30


def test_models_are_used_in_each_transaction(admin, dataset):
    """The control: a prediction and a plan are allowed where a training is refused."""
    ((model,),) = admin.execute("select model from dbdp.dp_logreg(%s, 1)", (dataset,)).fetchall()
    for mode in BEGUN:
        admin.execute(f"begin transaction {mode}")
        ((probability,),) = admin.execute(
            f"select dbdp.predict_probability(%s, t) from public.{dataset} as t limit 1", (model,)
        ).fetchall()
        assert 0 <= probability <= 1
        assert admin.execute("select dbdp.dp_explain(%s, 1)", (dataset,)).fetchall()
        admin.execute("rollback")


@pytest.mark.slow
def test_a_standby_predicts_and_refuses_trainings():
    """Each interface names the primary; a model answers."""
    with temporary_cluster() as cluster:
        with psycopg.connect(cluster.url, autocommit=True) as session:
            name = next(registered(session))
            ((model,),) = session.execute("select model from dbdp.dp_logreg(%s, 1)", (name,)).fetchall()
        cluster.stop()
        (cluster.home / "data" / "standby.signal").touch()
        cluster.start()
        with psycopg.connect(cluster.url, autocommit=True) as session:
            for route in ROUTES:
                assert "this server is a standby, which cannot record a charge; connect to the primary" in outcome(
                    session, cluster.url, name, route
                )
            sql = f"select dbdp.predict_probability(%s, t) from public.{name} as t limit 1"
            assert 0 <= session.execute(sql, (model,)).fetchone()[0] <= 1
        with pytest.raises(InstallError, match="a standby"):
            installer.install(cluster.url)


# --- settings that decide how results are written ------------------------------------------------------------

WRITTEN = {  # settings of a database, as another application may need them
    "client_encoding": "LATIN1",
    "datestyle": "SQL, DMY",
    "intervalstyle": "iso_8601",
    "quote_all_identifiers": "on",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "xmlbinary": "hex",
    "row_security": "off",
    "search_path": "dbdp",  # a name in it is written without its schema
}
COMMANDS = ("datasets", "ledger", "models", "budget {}", "explain {} --epsilon 1", "doctor", "columns {}")


def printed(url: str, dataset: str) -> list[str]:
    """What commands print, without the times that differ."""
    done = [run_here(*command.format(dataset).split(), "--url", url) for command in COMMANDS]
    return [f"{each.returncode} {each.stdout} {each.stderr}" for each in done]


TOGETHER = list(WRITTEN)


@pytest.mark.parametrize("names", others_slow([TOGETHER, *([name] for name in WRITTEN)], TOGETHER), ids=str)
@pytest.mark.attack("output-settings")
def test_no_setting_changes_what_commands_print(admin, server_url, dataset, names):
    """Settings of a role, together and each by itself; the control: datestyle changes what is not pinned."""
    admin.execute("select dbdp.dp_logreg(%s, 1)", (dataset,))
    expected = printed(server_url, dataset)
    try:
        for name in names:
            value = psycopg.sql.Literal(WRITTEN[name]).as_string()
            admin.execute(f"alter role current_user set {name} = {value}")
        assert printed(server_url, dataset) == expected
        if "datestyle" in names:
            with psycopg.connect(server_url) as session:
                assert "/" in session.execute("select now()::text").fetchone()[0]
    finally:
        for name in names:
            admin.execute(f"alter role current_user reset {name}")


def test_doctor_runs_no_statement_unpinned():
    """Its connection may be a pooler's, so that no path is set on it: each statement is pinned by itself."""
    text = (PACKAGE / "deployment" / "doctor.py").read_text()
    assert ".session.query(" in text  # which pins
    assert "execute(" not in text
    assert "cursor" not in text


@pytest.mark.attack("output-settings")
def test_dates_are_read_as_they_are_written(server_url):
    """A user's connection keeps its settings, and dbdp's statements return dates and intervals all the same."""
    sql = "select now() as a, date '2020-02-03' as b, timestamp '2020-02-03 4:05' as c, interval '26 hours' as d"
    with psycopg.connect(server_url, autocommit=True, options="-c datestyle=SQL,DMY -c intervalstyle=iso_8601") as own:
        with pytest.raises(NotImplementedError):
            own.execute(sql).fetchall()
        row = connect(own).query(sql)[0]
        assert (row["b"].month, row["c"].hour, row["d"].total_seconds()) == (2, 4, 26 * 3600)
        assert own.execute("show datestyle").fetchone() == ("SQL, DMY",)


def test_another_client_encoding_is_refused(server_url):
    """A user's connection in another encoding is refused by name; dbdp's own connections have theirs."""
    with (
        psycopg.connect(server_url, client_encoding="latin1") as own,
        pytest.raises(ValueError, match="LATIN1, and dbdp"),
    ):
        connect(own)
    with connect(conninfo.make_conninfo(server_url, client_encoding="latin1")) as database:
        assert database.query("select 'µ' as mu") == [{"mu": "µ"}]


def test_nothing_registered_changes_what_is_read(admin, server_url, dataset):
    """A program's own conversions of JSON and numbers; the control is its own statement."""
    loads = partial(json.loads, parse_float=Decimal)
    with psycopg.connect(server_url, autocommit=True) as own:
        set_json_loads(loads, own)
        own.adapters.register_loader("float8", NumericLoader)
        assert own.execute("select '1.5'::json, 1.5::float8").fetchone() == (Decimal("1.5"), Decimal("1.5"))
        assert connect(own).query("select '1.5'::json as a, 1.5::float8 as b, '{1.5}'::float8[] as c") == [
            {"a": 1.5, "b": 1.5, "c": [1.5]}
        ]
        row = connect(own).query("select '1.5'::json as a, 1.5::float8 as b")[0]
        assert {type(value) for value in row.values()} == {float}
    set_json_loads(loads)
    try:
        assert outcome(admin, server_url, dataset, "Python") == TRAINED
    finally:
        set_json_loads(json.loads)


def test_a_pipeline_of_the_user_is_refused(admin, server_url, dataset):
    """A training in it failed after its charge, as results of its statements come later."""
    before = Left.by(admin, dataset)
    with psycopg.connect(server_url, autocommit=True) as own:
        database = connect(own)
        with own.pipeline(), pytest.raises(ValueError, match="in pipeline mode; call dbdp outside"):
            LogisticRegression(database=database, epsilon=1, progress=False).fit(dataset)
    assert Left.by(admin, dataset) == before


def test_shards_are_on_the_server_of_the_first(server_url, monkeypatch):
    """A session on another server does not see the snapshot, which is found before the charge."""
    with connect(server_url) as database, temporary_cluster() as elsewhere:
        session = ClientSession(database.connection)
        with _workers(session, 2) as workers:
            assert len(workers) == 2  # the control
        foreign = replace(session.another(), dsn=elsewhere.url)
        real = session.another()
        places = iter([real, foreign])
        monkeypatch.setattr(Another, "opened", partialmethod(opened_at, places))
        refused = pytest.raises(ValueError, match=r"shards = 2 needs .*, and one failed: .*snapshot")
        with refused, _workers(session, 2):
            pass


@contextmanager
def opened_at(_another: Another, places: Iterator[Another]) -> Iterator[ClientSession]:
    with opened(next(places).dsn) as connection:
        yield ClientSession(connection)


def test_all_settings_are_pinned_for_one_statement(server_url):
    """They are in force in the statement, and the session's own after it; in a transaction too."""
    shown = f"select array[{', '.join(f'current_setting({name!r})' for name in PINNED)}] as all"
    with psycopg.connect(server_url, autocommit=True) as own:
        before = own.execute(shown).fetchone()
        database = connect(own)
        assert database.query(shown)[0]["all"][1:] == list(PINNED.values())[1:]
        with own.transaction():
            assert database.query(shown)[0]["all"][1:] == list(PINNED.values())[1:]
            assert own.execute(shown).fetchone() == before
        assert own.execute(shown).fetchone() == before


# --- poolers -----------------------------------------------------------------------------------------------

POOLER = """
[databases]
* = host={host} port={port} user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {place}
listen_port = 6432
auth_type = any
pool_mode = {mode}
default_pool_size = 3
server_reset_query = {reset}
ignore_startup_parameters = {ignored}
logfile = {place}/log
pidfile = {place}/pid
"""
IS_POOLED = "the connection passes through a pooler, which may run each statement in another session of the server"


@contextmanager
def pooler(url: str, place: Path, mode: str, reset: str = "", ignored: str = "extra_float_digits") -> Iterator[str]:
    """Run PgBouncer before a server; yield a URL through it."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    parts = conninfo.conninfo_to_dict(url)
    if not Path(program).exists():
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    if not str(parts.get("host", "")).startswith("/"):
        pytest.skip("the pooler of the tests needs the server's socket")
    place.chmod(0o755)
    (home := place / secrets.token_hex(4)).mkdir(mode=0o755)
    account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None  # PgBouncer does not run as root
    settings = POOLER.format(
        host=parts["host"], port=parts["port"], place=home, mode=mode, reset=reset, ignored=ignored
    )
    (home / "ini").write_text(settings)
    if account:
        os.chown(home, account.pw_uid, account.pw_gid)
    user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    process = subprocess.Popen(
        [program, str(home / "ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user
    )
    try:
        while not (home / ".s.PGSQL.6432").exists():
            assert process.poll() is None, (home / "log").read_text()
            time.sleep(0.02)
        yield conninfo.make_conninfo(url, host=str(home), port=6432)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that the server's account can enter, with a short name for sockets."""
    folder = Path("/tmp") / f"dbdp-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


EXPECTED = {  # by mode, what a route does there
    "transaction": {"Python in shards": IS_POOLED},
    "session": {"Python in shards": IS_POOLED},
    "statement": {
        "Python": f"{IS_POOLED}, and it refuses a transaction",
        "Python in shards": IS_POOLED,
        "command": f"{IS_POOLED}, and it refuses a transaction",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["", "discard all"])
@pytest.mark.parametrize("mode", EXPECTED)
@pytest.mark.attack("pool")
def test_a_training_behind_a_pooler_succeeds_or_is_refused(admin, server_url, dataset, place, mode, reset):
    """Each route seven times, so that statements that a driver prepares would meet other sessions."""
    with pooler(server_url, place, mode, reset) as url:
        for route in ROUTES:
            for _ in range(7):
                assert EXPECTED[mode].get(route, TRAINED) in outcome(admin, url, dataset, route)


@pytest.mark.slow
@pytest.mark.attack("pool")
def test_clients_that_share_a_pool_train_at_once(admin, server_url, dataset, place):
    """Each of four clients trains six times on three sessions: 24 charges and models, and no setting is left."""
    from concurrent.futures import ThreadPoolExecutor

    from environments import by_python

    with pooler(server_url, place, "transaction") as url:
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
            path = other.execute("show search_path").fetchone()
        with ThreadPoolExecutor(4) as clients:
            done = list(clients.map(lambda _: by_python(url, dataset), range(24)))
        assert done == [TRAINED] * 24
        assert Left.by(admin, dataset)[:2] == (24, 24)
        for _ in range(9):
            with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
                assert other.execute("show search_path").fetchone() == path


@pytest.mark.slow
@pytest.mark.parametrize("mode", EXPECTED)
def test_a_pooler_is_recognised(server_url, place, mode):
    """Installation and dbdp's own sessions refuse it, and doctor names it; a direct connection is the control."""
    with pooler(server_url, place, mode) as url:
        with connected(url) as own:
            assert not is_direct(own)
        with pytest.raises(ValueError, match=IS_POOLED):
            opened(url)
        with pytest.raises(InstallError, match=IS_POOLED):
            installer.install(url)
        if mode != "statement":
            assert [each.found for each in examine(url) if each.check == "connection"] == [IS_POOLED]
    with opened(server_url) as own:
        assert is_direct(own)


def test_the_list_of_environments_is_documented():
    """docs/environments.md names each version and encoding."""
    text = (PACKAGE.parent / "docs" / "environments.md").read_text()
    assert f"PostgreSQL {support.listed_majors()}" in text
    assert f"`{support.ENCODING}`" in text
    assert inspect.getdoc(support)
