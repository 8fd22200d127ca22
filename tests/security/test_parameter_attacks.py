"""Setting every parameter that a role may set: the training is refused, or is the same."""

import secrets
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest
from attacker import TRAIN, Arena, allow, attempt
from pairs import others_slow

from dbdp.privacy.accounting.budget import CHARGE_UNITS

pytestmark = pytest.mark.security

PUBLIC = """
select receipt::jsonb - array['model', 'ledger', 'released_at', 'released_by'] from dbdp.models_details where id = %s"""
REFUSING = {
    f"{default}transaction_{mode}": value
    for default in ("", "default_")
    for mode, value in (("read_only", "on"), ("isolation", "serializable"))
}
TOO_SHORT = ("statement_timeout", "transaction_timeout")


def odd_values(kind: str, choices: list[str] | None, least: str, most: str, name: str) -> list[str]:
    """Values at the ends of a parameter's range, and beside it."""
    if kind == "bool":
        return ["on", "off"]
    if kind == "enum":
        return choices or []
    if kind in ("integer", "real"):
        return [least, most] if name not in TOO_SHORT else [most]
    return ["", "C", "nothing of the kind", '"$user", pg_temp', "pg_global"]


def parameters(session: psycopg.Connection) -> Iterator[tuple[str, str]]:
    """Every parameter that any role may set, with odd values of it, but for who the role is."""
    sql = "select name, vartype, enumvals, min_val, max_val, setting from pg_settings where context = 'user'"
    for name, kind, choices, least, most, now in sorted(session.execute(sql).fetchall()):
        if name not in ("role", "session_authorization"):
            yield from ((name, value) for value in odd_values(kind, choices, least, most, name) if value != now)


SHARES = 4


@pytest.mark.parametrize("share", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, SHARES))])
@pytest.mark.attack("parameters")
def test_no_parameter_changes_a_training_or_lets_it_off(analyst, make, spent, share):
    """Each value of each by itself, all noise-free facts compared; the quick part takes each fourth of them."""
    name = make(epsilon=1000)
    first = analyst.execute(TRAIN, (name,)).fetchone()[0]
    facts, trained = analyst.execute(PUBLIC, (first,)).fetchone(), 1
    for parameter, value in list(parameters(analyst))[share::SHARES]:
        if attempt(analyst, f"set {parameter} = '{value}'") is not None:
            continue
        state = attempt(analyst, f"create temporary table got as {TRAIN}", name)
        for undo in (f"reset {parameter}", "rollback"):
            attempt(analyst, undo)
        if state is not None:
            assert REFUSING.get(parameter) == value, (parameter, value, state)
        else:
            trained += 1
            [(model,)] = analyst.execute("select model from got").fetchall()
            assert analyst.execute(PUBLIC, (model,)).fetchone() == facts, (parameter, value)
            analyst.execute("drop table got")
        assert spent(name)[0] == trained * CHARGE_UNITS, (parameter, value)
    assert trained > 20


@pytest.mark.attack("parameters")
def test_all_of_them_at_once_refuse_before_the_charge_or_train(arena, dataset, spent):
    with arena.login("analyst") as fresh:
        for parameter, value in parameters(fresh):
            if parameter not in REFUSING and "timeout" not in parameter and parameter != "client_encoding":
                attempt(fresh, f"set {parameter} = '{value}'")
        state = attempt(fresh, TRAIN, dataset)
    assert spent(dataset) == ((CHARGE_UNITS, 0) if state is None else (0, 0))


NEIGHBOURS = {  # what is registered, and two tables that differ in one row, or in the rows of one unit
    "rows stored out of line": (
        '{"x": {"length": 600, "norm": 100}}',
        "",
        "select array_fill(i::float8, array[600]) as x, i % 2 as y from generate_series(2, 60) as i",
        ("select array_fill(1::float8, array[600]), 1", "select array_fill(1::float8, array[2]), 1"),
    ),
    "units": (
        '{"x": {"length": 2, "norm": 1}}',
        ", unit => 'u', max_rows => 3",
        "select array[.1, i / 99.0]::float8[] as x, i % 2 as y, i % 10 as u from generate_series(1, 60) as i",
        ("select '{0,1}'::float8[], 1, 5", "select '{0,1}'::float8[], 1, 5 from generate_series(1, 9000)"),
    ),
}
MEMORIES = [("dbdp.pack_memory", value) for value in ("1MB", "1024GB", "1kB", "2048GB", "")]


def neighbours(arena: Arena, owner: psycopg.Connection, kind: str) -> list[str]:
    """Register the two tables, for the analyst to train on."""
    features, more, common, rows = NEIGHBOURS[kind]
    names = []
    for number, row in enumerate(rows):
        table = f"{kind.split(maxsplit=1)[0]}_{number}_{secrets.token_hex(4)}"
        owner.execute(f"create table {table} with (autovacuum_enabled = off) as {common}; insert into {table} {row}")
        sql = f"select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 1000, 1e-3, mode => 'basic'{more})"
        owner.execute(sql, (f"{table}_{arena.names['owner']}", table, features))
        allow(owner, f"{table}_{arena.names['owner']}", arena.names["analyst"])
        names.append(f"{table}_{arena.names['owner']}")
    return names


@pytest.mark.parametrize("kind", others_slow(list(NEIGHBOURS), "rows stored out of line"))
@pytest.mark.parametrize("share", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, SHARES))])
@pytest.mark.attack("parameters-neighbours")
def test_no_parameter_parts_neighbours(arena, owner, analyst, spent, kind, share):
    """Both answer, or both are refused before the charge, whichever parameter is at whichever end of its range."""
    names, counted = neighbours(arena, owner, kind), 0
    for parameter, value in [*MEMORIES, *list(parameters(analyst))[share::SHARES]]:
        if attempt(analyst, f"set {parameter} = '{value}'") is not None:
            continue
        sql = "select dbdp.dp_class_balance(%s, epsilon => 1)"
        states = [attempt(analyst, sql, name) for name in names]
        for undo in (f"reset {parameter}", "rollback"):
            attempt(analyst, undo)
        assert states[0] == states[1], (parameter, value, states)
        counted += states[0] is None
        assert [spent(name)[0] for name in names] == [counted * CHARGE_UNITS] * 2, (parameter, value)
    assert counted > 20


@pytest.mark.attack("no-temporary-files")
def test_no_room_for_temporary_files_parts_no_neighbours(arena, owner, admin, spent):
    """A superuser sets the limit for a role; the control is a plain query of the owner's under the same limit."""
    names = neighbours(arena, owner, "units")
    tables = [name.removesuffix(f"_{arena.names['owner']}") for name in names]
    for kind in ("analyst", "owner"):
        admin.execute(
            f"alter role {arena.names[kind]} set temp_file_limit = 0; alter role {arena.names[kind]} set work_mem = 64"
        )
    try:
        with arena.login("analyst") as fresh:
            for name in names:
                fresh.execute("select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', epochs => 1)", (name,))
                assert spent(name)[0] == CHARGE_UNITS
        with arena.login("owner") as fresh:
            states = [
                attempt(fresh, f"select count(distinct u) from {arena.names['owner']}.{table}") for table in tables
            ]
        assert states == [None, "53400"]
    finally:
        for kind in ("analyst", "owner"):
            admin.execute(f"alter role {arena.names[kind]} reset all")


@pytest.mark.parametrize(
    "statement",
    [
        "set session_replication_role = replica",
        "set role dbdp_owner",
        "set session authorization postgres",
        "set dynamic_library_path = '/tmp'",
        "set log_statement = 'all'",
        "set lc_messages = 'C'",
        "set allow_system_table_mods = on",
        "set zero_damaged_pages = on",
        "set ignore_system_indexes = on",
        "set temp_file_limit = -1",
        "set max_stack_depth = '7MB'",
        "alter role current_user superuser",
        "alter system set fsync = off",
        "alter database dbdp set session_replication_role = replica",
    ],
)
@pytest.mark.attack("superusers-settings")
def test_an_analyst_cannot_set_what_would_show_exact_results(analyst, statement):
    statement = statement.replace("dbdp set", f"{analyst.info.dbname} set") if "database" in statement else statement
    assert attempt(analyst, statement) in ("42501", "55P02")


@pytest.mark.attack("seed")
def test_the_seed_of_a_session_decides_nothing(analyst, dataset):
    """setseed repeats random(); noise and order come from the operating system."""
    models, numbers = [], []
    for _ in range(2):
        analyst.execute("select setseed(0.25)")
        numbers.append(analyst.execute("select random()").fetchone())
        analyst.execute("select setseed(0.25)")
        model = analyst.execute(TRAIN, (dataset,)).fetchone()[0]
        models.append(
            analyst.execute("select coefficients from dbdp.models_details where id = %s", (model,)).fetchone()[0]
        )
    assert numbers[0] == numbers[1]
    assert not np.array_equal(models[0], models[1])


TRAPPED = {  # what our SQL calls, as the trap's functions take it
    "count": "bigint",
    "format": "text, anyelement",
    "octet_length": "bytea",
    "hashtextextended": "text, bigint",
    "string_agg": "bytea",
    "current_setting": "text, boolean",
    "set_config": "text, text, boolean",
    "pg_relation_size": "regclass",
    "pg_partition_tree": "regclass",
    "setval": "regclass, bigint",
    "nextval": "regclass",
    "repeat": "text, int",
    "pg_logical_emit_message": "boolean, text, text",
    "pg_current_wal_flush_lsn": "",
    "pg_sleep": "double precision",
    "to_regclass": "text",
    "quote_ident": "text",
    "pg_has_role": "name, oid, text",
    "has_table_privilege": "oid, text",
    "float8send": "float8",
}
OPERATORS = {"=": "bigint, bigint", ">=": "tid, tid", "<": "tid, tid", "||": "bytea, bytea", "/": "bigint, bigint"}
INTERFACES = (
    TRAIN,
    "select dbdp.dp_train(%s, 1, 1e-6, 'dp_sgd', batch_size => 20, epochs => 1)",
    "select dbdp.dp_explain(%s, 1)",
)


def set_traps(session: psycopg.Connection, schema: str) -> None:
    """Plant functions, operators, types and tables that name their owner, and raise for the role that runs them."""
    stop = "$$ begin raise exception 'trapped' using errcode = 'TRAP1'; end $$"
    for name, arguments in TRAPPED.items():
        result = "anyelement" if "anyelement" in arguments else "bigint"
        session.execute(f"create function {schema}.{name}({arguments}) returns {result} language plpgsql as {stop}")
    for number, (operator, arguments) in enumerate(OPERATORS.items()):
        left, right = arguments.split(", ")
        session.execute(f"create function {schema}.o{number}({arguments}) returns boolean language plpgsql as {stop}")
        session.execute(
            f"create operator {schema}.{operator} (leftarg = {left}, rightarg = {right}, function = {schema}.o{number})"
        )
    for name in NAMES_OF_TYPES:
        session.execute(f"create type {schema}.{name} as enum ('trapped')")
    for name in NAMES_OF_TABLES:
        session.execute(f"create table {schema}.{name} (trapped int)")


NAMES_OF_TYPES = ("text", "bytea", "int4", "int8", "float8", "regclass", "tid", "json")
NAMES_OF_TABLES = ("pg_class", "pg_roles", "pg_proc", "pg_attribute", "dataset", "ledger", "model")


@pytest.mark.parametrize("place", ["a schema before pg_catalog", "pg_temp"])
@pytest.mark.attack("shadowing")
def test_objects_with_the_names_of_those_we_use_are_not_met(arena, admin, dataset, place):
    """The control: an expression of the analyst's own does meet them, where PostgreSQL looks for functions at all."""
    with arena.login("analyst") as fresh:
        fresh.execute("create temporary table seat ()")
        [(schema,)] = fresh.execute("select pg_my_temp_schema()::regnamespace::text").fetchall()
        if place != "pg_temp":
            schema = f"{dataset}_trap"
            admin.execute(f"create schema {schema} authorization {arena.names['analyst']}")
        set_traps(fresh, schema)
        fresh.execute(f"set search_path = {schema}, pg_catalog, dbdp")
        met = attempt(fresh, "select octet_length('abc'::pg_catalog.bytea)")
        assert met == (None if place == "pg_temp" else "TRAP1")
        assert attempt(fresh, "select trapped from pg_class") is None
        for interface in INTERFACES:
            assert attempt(fresh, interface, dataset) is None, interface
        if place != "pg_temp":
            admin.execute(f"drop schema {schema} cascade")


@pytest.mark.attack("shadowing")
def test_objects_in_public_are_not_met(arena, admin, dataset):
    """Where every role may create objects in it, as before PostgreSQL 15; within one transaction."""
    admin.execute("begin")
    set_traps(admin, "public")
    admin.execute(f"set local search_path = public, pg_catalog; set session authorization {arena.names['analyst']}")
    try:
        admin.execute("savepoint a")
        assert attempt(admin, "select octet_length('abc'::pg_catalog.bytea)") == "TRAP1"
        admin.execute("rollback to a")
        for interface in INTERFACES:
            admin.execute(interface, (dataset,))
    finally:
        admin.execute("rollback; reset session authorization")
