"""Watching a training: plans, messages, statistics, locks, logs and files that the server keeps while it runs."""

import ast
import itertools
import re
import struct
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import psycopg
import pytest
from attacker import DECLARED, DOCUMENT, PASSWORD, REGISTER, TRAIN, Arena, allow, arena_of, attempt, registered
from psycopg.conninfo import make_conninfo
from servers import temporary_cluster

import dbdp

pytestmark = pytest.mark.security
Spent = Callable[[str], tuple[int, int]]

TALKATIVE = {
    "client_min_messages": "debug5",
    "debug_print_parse": "on",
    "debug_print_rewritten": "on",
    "debug_print_plan": "on",
    "debug_pretty_print": "off",
    "trace_sort": "on",
}
LONG = "select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', batch_size => 60, epochs => 100000)"


def listened(session: psycopg.Connection, name: str) -> list[str]:
    """Return all messages of the server while a session trains, with every setting that adds messages."""
    messages: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        messages.append(f"{notice.message_primary}\n{notice.message_detail}\n{notice.context}")

    for name_of, value in TALKATIVE.items():
        session.execute(f"set {name_of} = {value}")
    session.add_notice_handler(listen)
    try:
        session.execute(TRAIN, (name,))
    finally:
        session.remove_notice_handler(listen)
        session.execute("reset all")
    return messages


def exact_states(messages: list[str]) -> list[np.ndarray]:
    """Models without noise among printed constants: states of the aggregate."""
    results = []
    for constant in re.findall(r"constvalue \d+ \[ ([-\d ]+)\]", "\n".join(messages).replace("\n", " ")):
        raw = bytes(int(byte) % 256 for byte in constant.split())
        if raw[4:8] == b"dbs3":
            dimension = struct.unpack_from("<q", raw, 12)[0]
            results.append(np.frombuffer(raw, "<f8", dimension, 4 + struct.calcsize("<4sBBxx8q7d")))
    return results


@pytest.mark.attack("printed-plans")
def test_no_message_and_no_printed_plan_shows_an_exact_model(arena, admin, analyst, dataset):
    """A plan holds the model of the epoch before as a constant. The control takes away what keeps it from print."""
    within = re.compile("dbdp_blocks|sgd_epoch|SubTransaction|tuple sort|index sort|SQL statement")
    assert not any(within.search(text) for text in listened(analyst, dataset))
    functions = admin.execute(
        "select p.oid::regprocedure::text, p.proconfig from pg_proc as p where p.oid = %s::regproc",
        ("dbdp_internal.try_dp_logreg",),
    ).fetchall()
    [(function, settings)] = functions
    admin.execute(
        f"alter function {function} reset all; alter function {function} set search_path = pg_catalog, pg_temp"
    )
    try:
        with arena.login("analyst") as fresh:
            shown = exact_states(listened(fresh, dataset))
    finally:
        for setting in settings:
            name, _, value = setting.partition("=")
            admin.execute(f"alter function {function} set {name} = {value}")
    assert any(np.linalg.norm(state) > 0 for state in shown)
    assert exact_states(listened(analyst, dataset)) == []


@pytest.mark.attack("printed-plans")
def test_whatever_runs_as_dbdp_owner_prints_nothing_on_its_way(admin):
    source = ast.parse((Path(dbdp.__file__).parent / "interfaces/sql/functions.py").read_text(encoding="utf-8"))
    functions_of = [node for node in source.body if isinstance(node, ast.FunctionDef)]
    decorated = {f.name: " ".join(map(ast.unparse, f.decorator_list)) for f in functions_of}
    acting = [name for name, by in decorated.items() if "session.as_owner" in by]
    acting += ["register_dataset", "drop_dataset", "allowance_spent", "dataset_spent"]  # in part
    acting = [f"try_{name}" if "refusing" in decorated[name] else name for name in acting]
    of = "pronamespace = 'dbdp_internal'::regnamespace and proname = any(%s)"
    functions = admin.execute(f"select proname, proconfig from pg_proc where {of}", (acting,)).fetchall()
    assert {name for name, _ in functions} == set(acting)
    assert len(acting) >= 12
    silent = {"client_min_messages=error", *(f"{name}=off" for name, value in TALKATIVE.items() if value == "on")}
    for name, settings in functions:
        assert silent <= set(settings), name


@pytest.mark.attack("explain-analyze")
def test_explain_analyze_shows_one_row_and_nothing_of_the_way(analyst, dataset):
    sql = f"explain (analyze, verbose, settings, wal, summary off, timing off, costs off) {TRAIN}"
    plan = "\n".join(line for (line,) in analyst.execute(sql, (dataset,)).fetchall())
    assert re.findall(r"actual rows=([\d.]+)", plan) in (["1"], ["1.00"])
    assert not re.search("dbdp_blocks|sgd_epoch|Seq Scan|ctid", plan)


@pytest.mark.attack("recorders")
def test_an_analyst_cannot_load_what_records_queries(analyst):
    assert attempt(analyst, "load 'auto_explain'") == "42501"
    for name in (
        "session_preload_libraries",
        "log_statement",
        "log_min_messages",
        "log_executor_stats",
        "track_functions",
    ):
        assert attempt(analyst, f"set {name} = 'all'") in ("42501", "22023", "55P02"), name


@pytest.mark.slow
@pytest.mark.attack("recorders")
def test_what_an_administrator_records_reaches_no_analyst(watched):
    """With auto_explain and pg_stat_statements for every nested statement; the administrator does see it."""
    name = registered(watched)
    messages: list[str] = []
    analyst = watched.session("analyst")
    analyst.add_notice_handler(lambda notice: messages.append(str(notice.message_primary)))
    analyst.execute("set client_min_messages = log")
    analyst.execute(TRAIN, (name,))
    assert not any("sgd_epoch" in text for text in messages)
    assert "sgd_epoch" in watched.log()
    sql = "select query from pg_stat_statements"
    with watched.admin() as admin:
        assert any("sgd_epoch" in query for (query,) in admin.execute(sql).fetchall())
    seen = [query for (query,) in analyst.execute(sql).fetchall()]
    assert not any("sgd_epoch" in query for query in seen)
    assert "<insufficient privilege>" in seen


@pytest.mark.slow
@pytest.mark.attack("server-log")
def test_server_log_shows_no_model_at_an_analysts_will(watched):
    """The log of the server shows no model to its readers by the will of an analyst."""
    name = registered(watched)
    analyst = watched.session("analyst")
    before = len(watched.log())
    listened(analyst, name)
    assert "constvalue" in watched.log()[before:]  # of the analyst's own call
    assert exact_states([watched.log()[before:]]) == []


def during(arena: Arena, name: str, spent: Spent, look: Callable[[psycopg.Connection], object]) -> object:
    """Look around as the analyst, while another session of the same role trains; return what was seen."""
    with arena.login("analyst") as training, ThreadPoolExecutor(1) as pool:
        running = pool.submit(attempt, training, LONG, name)
        looking = arena.session("analyst")
        while spent(name) == (0, 0) and not running.done():
            time.sleep(0.01)
        time.sleep(0.1)
        try:
            seen = look(looking)
            assert not running.done()
            return seen
        finally:
            training.cancel()
            running.result()


@pytest.mark.attack("temporary-tables")
def test_the_blocks_of_a_running_training_are_not_even_listed(arena, admin, dataset, spent):
    """Locks show the oid of a relation. Its name is not committed, and a query of its size waits for its end."""

    def look(session: psycopg.Connection) -> list[str | None]:
        sql = "select distinct relation from pg_locks where relation not in (select oid from pg_class)"
        numbers = session.execute(sql).fetchall()
        assert numbers
        session.execute("set lock_timeout = '50ms'")
        return [attempt(session, f"select pg_relation_size({n}::oid::regclass)") for (n,) in numbers]

    assert set(during(arena, dataset, spent, look)) <= {"55P03", None}


@pytest.mark.attack("temporary-tables")
def test_temporary_tables_of_a_client_are_closed_to_others(arena, admin, owner, analyst):
    """The temporary tables of a client's training are closed to others."""
    owner.execute("create temporary table dbdp_blocks_of_mine as select 1::int8 as block_no, 'x'::bytea as block")
    sql = "select relnamespace::regnamespace::text from pg_class where relname = 'dbdp_blocks_of_mine'"
    [(schema,)] = analyst.execute(sql).fetchall()
    for statement in (
        "select * from {}",
        "copy {} to stdout",
        "truncate {}",
        "drop table {}",
        "insert into {} values (1)",
    ):
        assert attempt(analyst, statement.format(f"{schema}.dbdp_blocks_of_mine")) == "42501"
    assert attempt(admin, f"select * from {schema}.dbdp_blocks_of_mine") == "0A000"  # not even a superuser's


@pytest.mark.attack("activity")
def test_views_of_activity_show_only_a_roles_own_calls(arena, dataset, spent):
    """Views of activity show a role only its calls, and nothing within them."""
    views = (
        "pg_stat_activity",
        "pg_locks",
        "pg_prepared_statements",
        "pg_cursors",
        "pg_stat_progress_create_index",
        "pg_stat_progress_copy",
        "pg_stat_user_functions",
        "pg_stat_xact_user_functions",
        "pg_backend_memory_contexts",
    )

    def look(session: psycopg.Connection) -> str:
        shown = []
        for view in views:
            if attempt(session, f"select from {view}") is None:
                shown += session.execute(f"select v::text from {view} as v").fetchall()
        return "\n".join(row for (row,) in shown)

    seen = str(during(arena, dataset, spent, look))
    assert "dp_logreg" in seen
    assert not re.search(r"sgd_epoch|dbdp_blocks|source\.|ctid", seen)


@pytest.mark.attack("activity")
def test_another_role_sees_not_even_the_call(arena, dataset, spent):
    def look(_: psycopg.Connection) -> list[tuple]:
        return arena.session("colleague").execute("select query from pg_stat_activity").fetchall()

    assert not any("epochs => 100000" in query for (query,) in during(arena, dataset, spent, look) if query)


@pytest.mark.attack("column-statistics")
def test_column_statistics_are_for_readers_only(arena, owner, analyst, dataset):
    """Statistics of the columns are for those who may read them."""
    owner.execute(f"analyze {dataset}")
    sql = "select count(*) from pg_stats where tablename = %s"
    assert owner.execute(sql, (dataset,)).fetchone() == (3,)
    assert analyst.execute(sql, (dataset,)).fetchone() == (0,)
    assert attempt(analyst, "select * from pg_statistic") == "42501"
    assert attempt(analyst, f"explain select * from {arena.names['owner']}.{dataset}") == "42501"
    assert attempt(analyst, "select * from pg_stat_get_wal_receiver(), pg_ls_tmpdir()") == "42501"


@pytest.mark.attack("selectable")
def test_everything_an_analyst_can_select_holds_no_row(arena, owner, analyst, make):
    """Whatever relation of whatever schema: no text of it has a row's numbers, which the owner's has."""
    owner.execute("create table marked (x float8[], y int)")
    secret = "0.30271828182845906"
    owner.execute(f"insert into marked select array[{secret}, .1, i / 99.0], i % 2 from generate_series(1, 60) i")
    name = f"marked_{arena.names['owner']}"
    owner.execute(REGISTER, (name, f"{arena.names['owner']}.marked", DECLARED, 99))
    allow(owner, name, arena.names["analyst"])
    analyst.execute(TRAIN, (name,))
    analyst.execute("select dbdp.dp_summarize(%s, 1, 1e-6)", (name,))
    relations = "select oid::regclass::text from pg_class where relkind in ('r', 'v', 'm', 'p', 'S')"
    for (relation,) in analyst.execute(relations).fetchall():
        sql = f"select count(*) from {relation} as r where r::text ~ '{secret[:12]}'"
        if attempt(analyst, sql) is None and relation != "pg_stat_activity":  # which shows this very query
            assert analyst.execute(sql).fetchone() == (0,), relation
    assert owner.execute("select count(*) from marked as r where r::text ~ %s", (secret[:12],)).fetchone() == (60,)


def physical(session: psycopg.Connection, source: str) -> dict[str, int]:
    """What PostgreSQL shows every role of the storage of a table that it may not read."""
    sql = """
select pg_relation_size(c.oid) as pages, pg_relation_size(c.reltoastrelid) as toast,
       pg_stat_get_tuples_returned(c.oid) as read, pg_stat_get_numscans(c.oid) as scans,
       pg_stat_get_tuples_fetched(i.indexrelid) as unpacked
from pg_class as c left join pg_index as i on i.indrelid = c.reltoastrelid where c.oid = %s::regclass"""
    cursor = session.execute(sql, (source,))
    return dict(zip([column.name for column in cursor.description], cursor.fetchone(), strict=True))


@pytest.mark.attack("table-sizes")
def test_storage_that_the_server_shows_is_documented(arena, owner, analyst, dataset):
    """A leak that is PostgreSQL's own, without any training: docs/security.md names it, with the remedy."""
    source = f"{arena.names['owner']}.wide"
    owner.execute("create table wide (x float8[], y int); alter table wide alter x set storage external")
    owner.execute(
        "insert into wide select array_fill(random(), array[100 + 2000 * (i % 2)]), 1 from generate_series(1, 20) i"
    )
    sizes = physical(analyst, source)
    assert sizes["toast"] >= 10 * 8 * 2000
    assert attempt(analyst, f"select * from {source}") == "42501"
    with arena.admin() as admin, admin.transaction(force_rollback=True):
        admin.execute(remedy())
        admin.execute(f"set local role {arena.names['analyst']}")
        for call in (
            "pg_relation_size",
            "pg_total_relation_size",
            "pg_stat_get_tuples_returned",
            "pg_stat_get_numscans",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), admin.transaction(force_rollback=True):
                admin.execute(f"select {call}('{source}'::regclass)")
        admin.execute(TRAIN, (dataset,))


def remedy() -> str:
    """The statements of docs/known-limits.md that close what shows the storage of tables."""
    return re.search(r"```sql\n(.*?revoke execute.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)[1]


CALLABLE = """
select p.oid::regprocedure::text, p.proargtypes::regtype[]::text[]
from pg_proc as p
where p.pronamespace = 'pg_catalog'::regnamespace
and p.prokind = 'f'
and p.proname ~ '^pg_(stat|[a-z_]*size|[a-z_]*wal|control|[a-z_]*lsn|relation|table)'
and p.proargtypes::oid[] <@ array['oid'::regtype, 'regclass'::regtype, 'name'::regtype]::oid[]
and has_function_privilege(p.oid, 'execute')
"""
OF_SESSIONS = "activity|backend_(?!io|wal)|progress|snapshot|wal_|(xact_)?function|subscription|replication|archiver"
OF_NAMES = ("pg_table_is_visible", "pg_relation_is_publishable", "pg_relation_filenode", "pg_relation_filepath")
OF_NAMES += ("pg_get_wal_resource_managers", "pg_stat_clear_snapshot", "pg_stat_force_next_flush")
OF_NAMES += ("pg_statistics_obj_is_visible", "pg_tablespace_databases")


def shown(session: psycopg.Connection, source: str) -> dict[str, str]:
    """All that functions and pg_class show a role of the storage of a table, of its TOAST table, or of all of them."""
    [(table, toast)] = session.execute("select oid, reltoastrelid from pg_class where oid = %s::regclass", (source,))
    results = {}
    for name, arguments in session.execute(CALLABLE).fetchall():
        bare = name.partition("(")[0]
        if re.search(rf"^pg_stat_get_({OF_SESSIONS})", bare) or bare in OF_NAMES or bare.startswith("pg_switch"):
            continue
        for number in (table, toast) if arguments else (0,):
            given = ["current_database()" if kind == "name" else f"{number}::{kind}" for kind in arguments]
            call = f"{bare}({', '.join(given)})"
            with suppress(psycopg.Error), session.transaction():
                results[call] = str(session.execute(f"select {call}").fetchall())
    for column, number in itertools.product(("relpages", "reltuples", "relallvisible"), (table, toast)):
        with suppress(psycopg.Error), session.transaction():
            results[f"{column} {number}"] = str(session.execute(f"select {column} from pg_class where oid = {number}"))
    return results


@pytest.mark.attack("table-sizes")
def test_remedy_leaves_an_analyst_no_view_of_storage(arena, owner):
    """Every function of the server by its name, so that one of another release is noticed."""
    owner.execute("create table stored as select array_fill(.5::float8, array[3000]) as x from generate_series(1, 20)")
    source = f"{arena.names['owner']}.stored"
    with arena.admin() as admin, admin.transaction(force_rollback=True):
        admin.execute(f"set local role {arena.names['analyst']}")
        before = shown(admin, source)
        assert len(before) > 60
        assert {"relpages", "reltuples"} <= {name.split()[0] for name in before}
        admin.execute("reset role")
        admin.execute(remedy())
        admin.execute(f"set local role {arena.names['analyst']}")
        assert shown(admin, source) == {}
        admin.execute(f"set local role {arena.names['owner']}")
        assert len(shown(admin, source)) >= len(before)  # owners of registered tables go on seeing it


READS = ("pg_stat_get_io", "pg_stat_get_backend_io", "pg_stat_get_backend_wal")  # of PostgreSQL 16 and 18
MAY_CALL = """
select p.proname
from pg_proc as p
where p.pronamespace = 'pg_catalog'::regnamespace
and p.proname = any (%s)
and has_function_privilege(%s, p.oid, 'execute')
"""


@pytest.mark.attack("table-sizes")
def test_the_remedy_closes_counts_of_reads(arena):
    """Functions of newer versions that count pages and WAL of a session; before it, an analyst may call them."""
    analyst = arena.names["analyst"]
    with arena.admin() as admin, admin.transaction(force_rollback=True):
        newer = {15: 0, 17: 1}.get(admin.info.server_version // 10000, 3)
        assert len(admin.execute(MAY_CALL, (list(READS), analyst)).fetchall()) == newer
        admin.execute(remedy())
        assert admin.execute(MAY_CALL, (list(READS), analyst)).fetchall() == []
        for function in ("pg_stat_get_backend_pid", "pg_stat_get_backend_activity"):
            assert admin.execute(MAY_CALL, ([function], analyst)).fetchall()


@pytest.mark.usefixtures("pg_dump")
@pytest.mark.slow
@pytest.mark.attack("table-sizes")
def test_a_server_closed_by_the_remedy_serves_clients_as_before():
    """psql, pg_dump by an owner, SQLAlchemy and dbdp; on a server of its own, where the remedy stays."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    with temporary_cluster() as cluster, arena_of(cluster.url) as arena:
        name = registered(arena)
        with arena.admin() as admin:
            admin.execute(remedy())
        analyst, owner = (
            make_conninfo(cluster.url, user=arena.names[kind], password=PASSWORD) for kind in ("analyst", "owner")
        )
        for command in (r"\d dbdp.models", r"\dt *.*", r"\df dbdp.*", r"\l", r"\dn", r"\du", "table pg_stat_activity"):
            done = subprocess.run(["psql", "-d", analyst, "-c", command], check=False, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), command
        dump = ["pg_dump", "-d", owner, "-t", f"{arena.names['owner']}.{name}"]
        assert "COPY" in subprocess.run(dump, capture_output=True, check=True, text=True).stdout
        engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(analyst))
        inspector = sqlalchemy.inspect(engine)
        assert "models" in inspector.get_view_names("dbdp")
        assert inspector.get_pk_constraint("model", "dbdp") and inspector.get_columns("models", "dbdp")
        engine.dispose()
        session = arena.session("analyst")
        assert attempt(session, "select reltuples from pg_class") == "42501"
        assert session.execute(TRAIN, (name,)).fetchone()
        assert session.execute("select charged from dbdp.budget_details(%s)", (name,)).fetchone()[0] == 1
        assert session.execute("select dbdp.dp_class_balance(%s, 1)", (name,)).fetchone()
