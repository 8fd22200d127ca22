"""Random settings of role, database and session: each interface trains for one charge, or refuses before any."""

import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from commands import run_here
from environments import ROUTES, TRAINED, outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.sql import SQL, Identifier, Literal
from servers import temporary_cluster

from dbdp.sessions.errors import CHARGED

pytestmark = pytest.mark.slow
SETTABLE = "select name, vartype, enumvals, min_val, max_val, boot_val from pg_settings where context = any (%s)"
KINDS = ["user", "superuser", "superuser-backend", "backend"]
LEFT_OUT = {  # of a developer, or of the connection itself; they end a session, or wait, as they are meant to
    "role",
    "session_authorization",
    "post_auth_delay",
    "pre_auth_delay",
    "ignore_system_indexes",
    "zero_damaged_pages",
    "ignore_checksum_failure",
    "allow_system_table_mods",
    "allow_in_place_tablespaces",
    "exit_on_error",
    "debug_discard_caches",
    "session_preload_libraries",
    "local_preload_libraries",
    "jit_provider",
    "dynamic_library_path",
    "extension_control_path",
    "log_connections",
    "log_disconnections",
    "trace_sort",
    "session_replication_role",
    "wal_consistency_checking",
    "backtrace_functions",
    "vacuum_cost_delay",
    "commit_delay",
}
REGISTER = """
select dbdp.register_dataset(%s, 'public.set_rows'::regclass, label => 'y', positive => 'true',
    features => '{"x": [0, 9]}', epsilon => 1000, delta => 1e-3)
"""
PASSWORD = "of the tests alone"
TIMEOUTS = "timeout"  # in their names: after a charge they end a training, as documented
TEXTS = {
    "client_encoding": ["UTF8", "LATIN1", "SQL_ASCII", "EUC_JP", "WIN1252"],
    "DateStyle": ["ISO, MDY", "SQL, DMY", "German", "Postgres, YMD"],
    "TimeZone": ["UTC", "America/St_Johns", "posix/Asia/Kathmandu", "<x>-13:37"],
    "lc_messages": ["C", "C.UTF-8", ""],
    "lc_monetary": ["C", "C.UTF-8"],
    "lc_numeric": ["C", "C.UTF-8"],
    "lc_time": ["C", "C.UTF-8"],
    "search_path": ["", "pg_temp, public", '"$user"', "dbdp, dbdp_internal, pg_catalog"],
    "default_text_search_config": ["simple", "pg_catalog.german"],
    "default_tablespace": ["", "pg_default"],
    "temp_tablespaces": ["", "pg_default"],
    "default_table_access_method": ["heap"],
    "restrict_nonsystem_relation_kind": ["", "view", "foreign-table", "view, foreign-table"],
    "timezone_abbreviations": ["Default", "India", "Australia"],
    "application_name": ["", "größe", "x" * 90],
    "createrole_self_grant": ["", "set", "inherit, set"],
}


def values_of(kind: str, choices: list[str] | None, least: str | None, most: str | None, name: str, now: str) -> Any:
    """A strategy for the values of a setting, the ends of its range among them."""
    if name in TEXTS:
        return st.sampled_from(TEXTS[name])
    if kind == "bool":
        return st.sampled_from(["on", "off"])
    if kind == "enum":
        return st.sampled_from(choices or [now])
    if kind == "integer":
        return st.sampled_from([least, most, now]) | st.integers(int(least), int(most)).map(str)
    if kind == "real":
        return st.sampled_from([least, most, now])
    return st.just(now or "")


@pytest.fixture(scope="module")
def admin() -> Iterator[psycopg.Connection]:
    """A superuser's session on a server of its own, which a setting may not reach."""
    with temporary_cluster() as cluster, psycopg.connect(cluster.url, autocommit=True) as session:
        session.execute(
            "create table public.set_rows as select i % 10 as x, i % 2 = 0 as y from generate_series(1, 60) i"
        )
        session.execute(f"create role settled superuser login password '{PASSWORD}'")
        yield session


class Strategies(dict[str, Any]):
    """For each setting a strategy of its values; reports of failures leave them out."""

    def __repr__(self) -> str:
        return "…"


@pytest.fixture(scope="module")
def strategies(admin: psycopg.Connection) -> Strategies:
    """Those of the settings that a superuser may set for a role or a database."""
    found = admin.execute(SETTABLE, (KINDS,)).fetchall()
    chosen = {
        name: values_of(kind, choices, least, most, name, now)
        for name, kind, choices, least, most, now in found
        if name not in LEFT_OUT and not name.startswith(("log_", "debug_", "trace_")) and TIMEOUTS not in name
    }
    return Strategies(chosen)


def apply(admin: psycopg.Connection, where: str, name: str, value: str) -> None:
    """Set it for the role or the database, if PostgreSQL accepts the value."""
    target = SQL("role {}").format(Identifier("settled")) if where == "role" else SQL("database dbdp")
    statement = SQL("alter {} set {} = {}").format(target, Identifier(name), Literal(value))
    if name in ("search_path", "temp_tablespaces", "DateStyle") and value:  # lists, which would be quoted as one name
        statement = SQL("alter {} set {} = {}").format(target, Identifier(name), SQL(value))  # type: ignore[arg-type]
    try:
        admin.execute(statement)
    except psycopg.Error as refused:
        assert refused.sqlstate not in (None, "XX000"), (name, value)


@settings(suppress_health_check=list(HealthCheck), max_examples=25)
@given(data=st.data())
def test_no_setting_costs_a_charge_without_a_model(admin, strategies, data):
    """Settings are of role, database or both; then installation, doctor, registration, training and prediction."""
    names = data.draw(st.lists(st.sampled_from(sorted(strategies)), min_size=1, max_size=6, unique=True))
    chosen = {name: (data.draw(st.sampled_from(["role", "database"])), data.draw(strategies[name])) for name in names}
    admin.execute("alter role settled reset all; alter database dbdp reset all")
    for name, (where, value) in chosen.items():
        apply(admin, where, name, value)
    url = psycopg.conninfo.make_conninfo(admin.info.dsn, user="settled", password=PASSWORD)
    try:
        check(admin, url, data.draw(st.sampled_from(sorted(ROUTES))))
    finally:
        admin.execute("alter role settled reset all; alter database dbdp reset all")


def test_a_setting_reaches_each_interface(admin):
    """The control: one that is refused is refused, whether it is the role's or the database's."""
    url = psycopg.conninfo.make_conninfo(admin.info.dsn, user="settled", password=PASSWORD)
    name = f"settled_{secrets.token_hex(4)}"
    admin.execute(REGISTER, (name,))
    for where in ("role", "database"):
        apply(admin, where, "default_transaction_isolation", "serializable")
        for route in ROUTES:
            assert "this transaction is serializable" in outcome(admin, url, name, route)
        admin.execute("alter role settled reset all; alter database dbdp reset all")
    admin.execute("select dbdp.drop_dataset(%s)", (name,))


def check(admin: psycopg.Connection, url: str, route: str) -> None:
    """Run each command; no traceback, and one model for one charge."""
    name = f"settled_{secrets.token_hex(4)}"
    for command in (["doctor"], ["install"]):
        done = run_here(*command, "--url", url)
        assert "Traceback" not in done.stderr + done.stdout
    admin.execute(REGISTER, (name,))
    try:
        result = outcome(admin, url, name, route)
        assert result == TRAINED or CHARGED not in result
        if result == TRAINED:
            with psycopg.connect(url, autocommit=True) as session:
                sql = (
                    "select dbdp.predict_probability((select max(m.id) from dbdp.model as m), t) "
                    "from public.set_rows as t limit 1"
                )
                try:
                    assert 0 <= session.execute(sql).fetchone()[0] <= 1
                except psycopg.Error as refused:  # such as a relation of a kind that a setting forbids
                    assert refused.sqlstate != "XX000"
    finally:
        admin.execute("select dbdp.drop_dataset(%s)", (name,))
