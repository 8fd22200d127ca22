"""A table owner who wants the rights of dbdp_owner, which reads every registered table and sets every odometer.

Reading a table can run its owner's code: functions in its indexes, constraints and statistics are evaluated
where a query is planned. It may run; not with rights that its owner has not got.
"""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from attacker import DECLARED, REGISTER, ROWS, TRAIN, Arena, allow, attempt
from pairs import each_value_quick, others_slow

pytestmark = pytest.mark.security

# An immutable function of constants is evaluated by the planner, whatever it calls.
SPY = """
create table {s}.seen (who name, session name, loot text);
create function {s}.act() returns int language plpgsql as $$
declare found text; begin
  begin execute {s}.order_of_the_day() into found; exception when others then found := sqlstate; end;
  insert into {s}.seen values (current_user, session_user, found);
  return 1;
end $$;
create function {s}.order_of_the_day() returns text language sql immutable as $$ select 'select null' $$;
create function {s}.spy(int) returns int language plpgsql immutable as $$ begin return {s}.act(); end $$;
create function {s}.spy_trigger() returns trigger language plpgsql as $$ begin perform {s}.act(); return new; end $$;
grant insert on {s}.seen to public
"""
PLANNED = {  # what is evaluated where a query on the table is planned
    "an index on an expression": "create index on {t} (({s}.spy(1) + y))",
    "a CHECK constraint": "alter table {t} add check ({s}.spy(3) + y > -9)",
}


@pytest.fixture
def spied(arena: Arena, owner: psycopg.Connection, dataset: str) -> Iterator[str]:
    """A registered table of an owner with a spy; the name."""
    if attempt(owner, "select from seen"):
        owner.execute(SPY.format(s=arena.names["owner"]))
    owner.execute(f"truncate seen; alter table {dataset} set (autovacuum_enabled = off)")
    yield dataset


def plant(arena: Arena, owner: psycopg.Connection, name: str, statement: str) -> None:
    schema = arena.names["owner"]
    owner.execute(statement.format(t=f"{schema}.{name}", s=schema, n=name))
    owner.execute("truncate seen")


def ran_as(owner: psycopg.Connection) -> set[str]:
    owner.rollback()
    return {who for (who,) in owner.execute("select distinct who from seen").fetchall()}


def orders(arena: Arena, owner: psycopg.Connection, sql: str) -> None:
    """Have the spy run a statement, and note what it gives."""
    schema = arena.names["owner"]
    body = sql.replace("'", "''")
    owner.execute(
        f"create or replace function {schema}.order_of_the_day() returns text language sql immutable "
        f"as $f$ select '{body}' $f$"
    )
    owner.execute("truncate seen")


INTERFACES = {
    "dp_logreg": "select dbdp.dp_logreg('{n}', 1, algorithm => 'bolt_on', batch_size => 20, epochs => 1)",
    "dp_train": "select dbdp.dp_train('{n}', 1, 1e-6, 'dp_sgd', batch_size => 20, epochs => 1)",
    "dp_tune": """select dbdp.dp_tune('{n}', '[{{"epochs": 1}}, {{"epochs": 2}}]', 1,
        algorithm => 'bolt_on', batch_size => 10)""",
    "dp_score": "select dbdp.dp_score(model, '{n}', 'confusion', 1) "
    "from dbdp.dp_logreg('{m}', 1, algorithm => 'bolt_on', batch_size => 20)",
    "dp_explain": "select dbdp.dp_explain('{n}', 1)",
}


@pytest.mark.parametrize("interface", others_slow(list(INTERFACES), "dp_logreg", "dp_tune"))
@pytest.mark.attack("planner")
def test_no_interface_lends_a_tables_owner_any_rights(arena, admin, owner, make, spied, interface):
    """The loot would be a row of another owner's table, and its odometer."""
    other = make("rival")
    number = admin.execute("select max(id) from dbdp.dataset").fetchone()[0]
    row = f"select x::text from {arena.names['rival']}.{other} limit 1"
    orders(arena, owner, f"select setval('dbdp.charge_{number}', 0)::text || ({row})")
    plant(arena, owner, spied, PLANNED["an index on an expression"])
    with arena.login("analyst") as fresh:
        fresh.execute(INTERFACES[interface].format(n=spied, m=other))
    seen = set(owner.execute("select who, loot from seen").fetchall())
    assert seen == ({(arena.names["owner"], "42501")} if interface != "dp_explain" else set())


@pytest.mark.attack("planner")
def test_a_registration_lends_no_rights_either(arena, owner, spied):
    schema = arena.names["owner"]
    owner.execute(f"create table {schema}.trap as {ROWS}")
    plant(arena, owner, "trap", PLANNED["an index on an expression"])
    with arena.login("owner") as fresh:
        fresh.execute(REGISTER, (f"trap_{schema}", f"{schema}.trap", DECLARED, 9))
    assert ran_as(owner) <= {schema}


@pytest.mark.attack("planner-client")
def test_client_reading_a_table_lends_its_owner_no_rights(arena, admin, owner, spied):
    """Nor does a superuser, who may call dbdp_internal.shuffle on any table."""
    plant(arena, owner, spied, PLANNED["an index on an expression"])
    admin.execute("create temporary table b (block_no int8, block bytea)")
    admin.execute("select dbdp_internal.shuffle(%s, 'pg_temp.b')", (spied,))
    assert ran_as(owner) == {arena.names["owner"]}


@pytest.mark.attack("spending-code")
def test_code_run_by_a_read_cannot_spend_for_the_reader(arena, owner, make, spied, spent):
    """Interfaces check the role that logged in. The owner would train on another table with the analyst's rights."""
    other = make("rival")
    for call in (f"dbdp.dp_logreg('{other}', 1)", f"dbdp.dp_explain('{other}', 1)", f"dbdp.drop_dataset('{other}')"):
        orders(arena, owner, f"select {call}::text")
        plant(arena, owner, spied, PLANNED["an index on an expression"])
        before = spent(other)  # making the index, the owner spent as itself
        with arena.login("analyst") as fresh:
            fresh.execute(TRAIN, (spied,))
        sql = "select distinct loot from seen where session = %s"
        assert owner.execute(sql, (arena.names["analyst"],)).fetchall() == [("DP001",)], call
        assert spent(other) == before


MAINTENANCE = {
    "ANALYZE": "analyze {s}.{n}",
    "REINDEX": "reindex table {s}.{n}",
    "VACUUM FULL": "vacuum full {s}.{n}",
    "a foreign key": "insert into {s}.{n}_child values (1)",
}


def maintain(arena: Arena, admin: psycopg.Connection, owner: psycopg.Connection, spied: str, command: str) -> None:
    """Have a superuser maintain a table whose indexes call the spy."""
    schema = arena.names["owner"]
    owner.execute(f"create table {spied}_key (id int primary key); insert into {spied}_key values (1)")
    owner.execute(f"create table {spied}_child (id int references {spied}_key)")
    plant(arena, owner, f"{spied}_key", "create index on {t} (({s}.spy(1) + id))")
    plant(arena, owner, spied, PLANNED["an index on an expression"])
    admin.execute(MAINTENANCE[command].format(s=schema, n=spied))


@pytest.mark.parametrize("command", others_slow(list(MAINTENANCE), "ANALYZE"))
@pytest.mark.attack("maintenance-ledger")
def test_code_in_maintenance_sees_only_its_ledger(arena, admin, owner, make, spied, command):
    """Code that runs where a superuser maintains a table sees the ledger of its role only."""
    other = make("rival")
    with arena.login("analyst") as analyst:
        for name in (other, spied):
            analyst.execute(TRAIN, (name,))
    looks = ("datasets where name", "history where dataset", "models where dataset", "allowances where dataset")
    for name, seen in ((other, "0000"), (spied, "1112")):
        counts = ", ".join(f"(select count(*) from dbdp.{look} = '{name}')" for look in looks)
        orders(arena, owner, f"select concat({counts})")
        maintain(arena, admin, owner, spied, command)
        loot = owner.execute("select distinct who, loot from seen where session = 'postgres'").fetchall()
        assert loot == [(arena.names["owner"], seen)]
        owner.execute(f"drop table {spied}_child, {spied}_key cascade")


@pytest.mark.parametrize("command", others_slow(list(MAINTENANCE), "ANALYZE"))
@pytest.mark.attack("maintenance")
def test_code_in_maintenance_cannot_call_the_interfaces(arena, admin, owner, make, spied, command):
    """For the interfaces a superuser is a member of every role, and autovacuum is a superuser's session."""
    schema, other = arena.names["owner"], make("rival")
    orders(arena, owner, f"select dbdp.drop_dataset('{other}')::text")
    maintain(arena, admin, owner, spied, command)
    sql = "select distinct who, loot from seen where session = 'postgres'"
    assert owner.execute(sql).fetchall() == [(schema, "DP001")]
    assert admin.execute("select count(*) from dbdp.datasets_details where name = %s", (other,)).fetchone() == (1,)
    admin.execute("select dbdp.drop_dataset(%s)", (other,))  # it may, where it calls by itself


@pytest.mark.attack("left-path")
def test_settings_of_code_in_a_read_do_not_last(arena, owner, analyst, spied):
    """With a search_path of its own it would put its functions and operators before the server's."""
    schema = arena.names["owner"]
    shadows = {"octet_length(bytea)": "int", "count(bigint)": "bigint", "setval(regclass, bigint)": "bigint"}
    for shadow, result in shadows.items():
        body = f"$$ begin perform {schema}.act(); return 1; end $$"
        owner.execute(f"create function {schema}.{shadow} returns {result} language plpgsql as {body}")
    orders(arena, owner, f"select set_config('search_path', '{schema}, pg_catalog', false)")
    plant(arena, owner, spied, PLANNED["an index on an expression"])
    with arena.login("analyst") as fresh:
        fresh.execute("set search_path = public")
        fresh.execute(TRAIN, (spied,))
        assert fresh.execute("show search_path").fetchone() == ("public",)
    assert owner.execute("select distinct who, loot from seen").fetchall() == [(schema, f"{schema}, pg_catalog")]
    for shadow in shadows:
        owner.execute(f"drop function {schema}.{shadow}")


HELD = (
    "select classid, objid, objsubid, mode from pg_locks "
    "where locktype = 'advisory' and pid = pg_backend_pid() order by 1, 2, 3, 4"
)
TAKEN = (
    "select concat(pg_advisory_lock(7), pg_advisory_lock(7), pg_advisory_lock(-7), pg_advisory_lock(-1, 2147483647), "
    "pg_advisory_lock_shared(8), pg_try_advisory_lock(9223372036854775807))"
)


SAYING = ("debug", "log", "info", "notice", "warning")
READING = {  # calls that read the table as its owner, by a role that may read it
    "training": "select dbdp.dp_logreg('{n}', 1, algorithm => 'bolt_on', batch_size => 20, epochs => 1)",
    "rows": "select * from dbdp_internal.table_rows('{s}.{n}', null, 9)",
    "check": "select dbdp_internal.check_rows('{n}')",
    "shuffle": "create temporary table if not exists b (block_no int8, block bytea); "
    "select dbdp_internal.shuffle('{n}', 'pg_temp.b')",
}


@pytest.fixture
def loud(arena: Arena, owner: psycopg.Connection, spied: str) -> Iterator[str]:
    """A table that speaks at every level when a query on it is planned; then it may end in an error."""
    schema = arena.names["owner"]
    words = " ".join(f"raise {level} 'from the owner';" for level in SAYING)
    owner.execute(
        f"create or replace function {schema}.loud() returns text language plpgsql as $$ begin {words} "
        "if current_setting('application_name') = 'fails' then perform 1 / 0; end if; "
        "if current_setting('application_name') = 'sleeps' then perform pg_sleep(60); end if; return ''; end $$"
    )
    owner.execute(
        f"create or replace function {schema}.say(int) returns int language plpgsql immutable "
        f"as $$ begin perform {schema}.loud(); return $1; end $$"
    )
    owner.execute(f"create index on {spied} (y) where {schema}.say(1) = y")
    owner.execute(f"grant select on {spied} to public")
    yield spied


def heard(session: psycopg.Connection, sql: str) -> list[str]:
    """The messages of a statement, but for those of dbdp itself."""
    messages: list[str] = []
    session.add_notice_handler(lambda each: messages.append(str(each.severity_nonlocalized)))
    session.execute("set client_min_messages = debug1")
    attempt(session, sql)
    return [word for word in messages if word != "DEBUG"]


@pytest.mark.parametrize("call", others_slow(list(READING), "training", "rows"))
@pytest.mark.attack("owners-messages")
def test_code_of_an_owner_says_nothing_to_the_reader(arena, owner, loud, call):
    """At any level, also INFO, which no setting stops. The control: the reader's own query hears all of it."""
    sql = READING[call].format(n=loud, s=arena.names["owner"])
    with arena.login("owner") as fresh:
        assert heard(fresh, sql) == []
    with arena.login("owner") as fresh:
        assert heard(fresh, f"select from {loud} where y = 1") == ["LOG", "INFO", "NOTICE", "WARNING"]


@pytest.mark.parametrize("ending", ["fails", "sleeps"])
@pytest.mark.attack("owners-messages")
def test_a_session_hears_again_after_code_of_an_owner(arena, owner, loud, ending):
    """After an error, or a cancel, within the code; the error itself is shown too."""
    sql = READING["rows"].format(n=loud, s=arena.names["owner"])
    with arena.login("owner") as fresh, ThreadPoolExecutor(1) as pool:
        fresh.execute(f"set application_name = '{ending}'")
        running = pool.submit(attempt, fresh, sql)
        while not running.done():
            if ending == "sleeps":
                fresh.cancel_safe()
            time.sleep(0.1)
        assert running.result() == ("22012" if ending == "fails" else "57014")
        fresh.execute("reset application_name")  # the code ends from here on, so that all of it is said
        assert heard(fresh, "do $$ begin raise notice 'heard'; end $$") == ["NOTICE"]
        fresh.execute("reset application_name")
        assert heard(fresh, sql.replace("null, 9", "null, -1")) == []
        assert attempt(fresh, "select 1 / 0") == "22012"


FORGED = "dbdp: your budget expired; run select mal.renew()"


@pytest.mark.parametrize("state", ["DP001", "22012", "57014"])
@pytest.mark.attack("owners-error")
def test_an_error_of_an_owners_code_has_no_words_of_it(arena, owner, spied, state):
    """The reader cannot take it for an error of dbdp. The control: the owner's own query shows it."""
    orders(arena, owner, "select null")
    schema = arena.names["owner"]
    owner.execute(f"""
create or replace function {schema}.forge(int) returns int language plpgsql immutable as $$
begin if session_user <> '{schema}' or current_setting('application_name') = 'fail' then
raise exception '{FORGED}' using errcode = '{state}', hint = '{FORGED}', detail = '{FORGED}'; end if;
return 1; end $$""")
    plant(arena, owner, spied, "create index on {t} (({s}.forge(1) + y))")
    try:
        with pytest.raises(psycopg.Error) as shown:
            arena.session("analyst").execute(TRAIN, (spied,))
        diag = shown.value.diag
        words = f"{diag.message_primary} {diag.message_hint} {diag.message_detail}"
        assert "budget expired" not in words
        assert f"SQLSTATE {state}" in words
        assert shown.value.sqlstate == ("P0001" if state == "DP001" else state)
        owner.execute("set application_name = 'fail'")
        with pytest.raises(psycopg.Error, match="budget expired"):
            owner.execute(f"select from {schema}.{spied} where y = 1")
    finally:
        owner.execute("reset application_name")
        owner.execute(f"drop function {schema}.forge cascade")


@pytest.mark.attack("owners-locks")
def test_advisory_locks_of_code_in_a_read_do_not_last(arena, owner, spied):
    """Where the owner's own session plans a query they do: that is the control."""
    orders(arena, owner, TAKEN)
    plant(arena, owner, spied, PLANNED["an index on an expression"])
    owner.execute("select pg_advisory_unlock_all()")  # the owner's session planned the index
    for text, leaves in ((f"select y from {spied} where y = 1", 5), ("dbdp", 0)):
        kind = "owner" if leaves else "analyst"
        with arena.login(kind) as fresh:
            fresh.execute(f"set search_path = {arena.names['owner']}")
            fresh.execute(*((text,) if leaves else (TRAIN, (spied,))))
            assert len(fresh.execute(HELD).fetchall()) == leaves
            if not leaves:
                fresh.execute("select dbdp.dp_class_balance(%s, 1)", (spied,))
                attempt(fresh, "select dbdp.dp_explain(%s, -1)", spied)
                assert fresh.execute(HELD).fetchall() == []
    assert ran_as(owner) == {arena.names["owner"]}


@pytest.mark.parametrize("order", [TAKEN, "select concat(pg_advisory_unlock_all())"], ids=["taken", "given up"])
@pytest.mark.attack("owners-locks")
def test_readers_own_advisory_locks_stay(arena, owner, spied, order):
    """A reader's advisory locks stay, each as often as the reader has it."""
    orders(arena, owner, order)
    plant(arena, owner, spied, PLANNED["an index on an expression"])
    owner.execute("select pg_advisory_unlock_all()")
    with arena.login("analyst") as fresh:
        for taken in ("(7)", "(7)", "_shared(7)", "(-1, 2147483647)"):
            fresh.execute(f"select pg_advisory_lock{taken}")
        before = fresh.execute(HELD).fetchall()
        fresh.execute(TRAIN, (spied,))
        assert fresh.execute(HELD).fetchall() == before
        fresh.execute("set client_min_messages = error")
        unlocked = [fresh.execute("select pg_advisory_unlock(7)").fetchone()[0] for _ in range(3)]
        assert unlocked == [True, True, False]
        assert fresh.execute("select pg_advisory_unlock_shared(7)").fetchone() == (True,)


LEFT = {  # what code tries to leave -> whether it may run; none of it is there afterwards
    "listen heard": False,
    "prepare left_behind as select 1": False,
    "create temporary table left_behind (i int)": False,
    "create temporary view left_behind as select 1": False,
    "declare left_behind cursor with hold for select 1": False,
    "set role none": False,
    "reset session authorization": False,
    "load 'auto_explain'": False,
    "set work_mem = '77MB'": True,
    "set local enable_seqscan = off": True,
    "set session characteristics as transaction read only": True,
    "set client_min_messages = debug5": True,
    "set timezone = 'UTC+5'": True,
}
NEWER = "create domain pg_temp.left_behind as int"  # which 15.20 refuses, and 18.6 does not: stated
SESSION = (
    "select concat_ws('|', current_user, session_user, current_setting('work_mem'), current_setting('enable_seqscan'), "
    "current_setting('default_transaction_read_only'), current_setting('client_min_messages'), "
    "current_setting('timezone'), (select count(*) from pg_prepared_statements), (select count(*) from pg_cursors), "
    "(select count(*) from pg_listening_channels()), "
    "(select count(*) from pg_class where relname = 'left_behind'), "
    "(select count(*) from pg_type where typname = 'left_behind'), "
    "(select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'))"
)


DOING = """
create function {s}.doing() returns text language plpgsql as $$
declare
  one text;
  results text[];
begin
  foreach one in array array[{orders}] loop
    begin
      execute one;
      results := results || 'ran'::text;
    exception when others then
      results := results || sqlstate::text;
    end;
  end loop;
  perform setseed(0.5);
  return array_to_string(results, ' ');
end $$"""


@pytest.mark.attack("leftovers")
def test_what_owners_code_leaves_in_a_session_is_stated(arena, owner, spied):
    """What code of an owner leaves in the readers session is stated."""
    schema = arena.names["owner"]
    orders(arena, owner, f"select {schema}.doing()")
    plant(arena, owner, spied, PLANNED["an index on an expression"])
    quoted = ", ".join("'" + order.replace("'", "''") + "'" for order in (*LEFT, NEWER))
    owner.execute(DOING.format(s=schema, orders=quoted))
    with arena.login("analyst") as fresh:
        before = fresh.execute(SESSION).fetchone()
        fresh.execute(TRAIN, (spied,))
        *ended, newer = owner.execute("select loot from seen limit 1").fetchone()[0].split()
        assert {order: result == "ran" for order, result in zip(LEFT, ended, strict=True)} == LEFT
        if newer != "ran":
            assert fresh.execute(SESSION).fetchone() == before
        seeded = fresh.execute("select random()").fetchone()
        assert fresh.execute("select setseed(0.5)") and fresh.execute("select random()").fetchone() == seeded  # stated
    owner.execute("drop function doing()")


FETCHING = """
create function {s}.fetching() returns text language plpgsql as $$
declare one record; source refcursor; found text; all_found text := '';
begin
  for one in select name from pg_cursors loop
    begin
      source := one.name;
      fetch source into found;
      all_found := concat_ws(' ', all_found, found);
    exception when others then null; end;
  end loop;
  return all_found;
end $$"""
SECRET = "select 'secret ' || i as x from generate_series(1, 3) as i"
READ_ALL = "do $$ declare one record; begin for one in {secret} loop perform {call}; end loop; end $$"
LENT = {  # how a session has a cursor open while it calls
    "a cursor": ("begin; declare c cursor for {secret}; fetch c", "select {call}"),
    "a cursor with hold": ("declare c cursor with hold for {secret}", "select {call}"),
    "a loop of a function": ("select", READ_ALL),
}


@pytest.mark.parametrize(
    ("call", "lent"),
    each_value_quick(["dbdp.dp_logreg('{n}', 1)", "dbdp.dp_class_balance('{n}', 1)", "{rows}"], list(LENT)),
)
@pytest.mark.attack("cursors")
def test_code_of_an_owner_reads_from_no_cursor_of_the_reader(arena, owner, spied, lent, call):
    """The control: such code reads a cursor that the same session has open where no interface of dbdp is asked."""
    schema, (opened, calling) = arena.names["owner"], LENT[lent]
    orders(arena, owner, f"select {schema}.fetching()")
    plant(arena, owner, spied, PLANNED["an index on an expression"])
    owner.execute(FETCHING.format(s=schema))
    owner.execute(f"grant select on {spied} to public")
    called = call.format(n=spied, rows=f"dbdp_internal.table_rows('{schema}.{spied}', null, 1)")
    planned = f"(select count(*) from {schema}.{spied} where y > 0)"
    try:
        for sql, state, loot in ((called, "DP001", []), (planned, None, ["secret"])):
            owner.execute("truncate seen")
            with arena.login("analyst") as fresh:
                fresh.execute(opened.format(secret=SECRET))
                assert attempt(fresh, calling.format(secret=SECRET, call=sql)) == state
                fresh.execute("commit")
            read = " ".join(found or "" for (found,) in owner.execute("select loot from seen").fetchall())
            assert re.findall("secret", read)[:1] == loot
    finally:
        owner.execute("drop function fetching()")


@pytest.mark.parametrize("fetched", ["a cursor", "a loop"])
@pytest.mark.attack("cursors")
def test_a_call_within_the_cursor_that_runs_is_no_open_cursor(arena, spied, fetched):
    """As psql sends each statement with FETCH_COUNT, and as a loop over the calls themselves."""
    call = f"select dbdp.dp_class_balance('{spied}', 1) as x"
    with arena.login("analyst") as fresh:
        if fetched == "a cursor":
            fresh.execute(f"begin; declare c cursor for {call}")
            assert fresh.execute("fetch c").fetchone()
        else:
            fresh.execute(READ_ALL.format(secret=call, call="1"))


@pytest.mark.attack("cursors")
def test_an_owners_own_tables_are_read_within_its_loops(owner, spied):
    owner.execute(READ_ALL.format(secret=SECRET, call=f"dbdp.dp_class_balance('{spied}', 1)"))


SWAPS = {
    "a view": "alter table {t} rename to {n}_kept; create view {t} as select x, y from {t}_kept where {s}.spy(y) = 1; "
    "grant select on {t} to dbdp_owner",
    "another table": "alter table {t} rename to {n}_kept; create table {t} as {rows}; "
    "create index on {t} (({s}.spy(1) + y)); grant select on {t} to dbdp_owner",
    "a column of another type": "create type {t}_mood as enum ('0', '1'); "
    "create function {t}_out({t}_mood) returns text language sql as $$ select {s}.spy(1)::text $$; "
    "create cast ({t}_mood as text) with function {t}_out({t}_mood); "
    "alter table {t} alter y type {t}_mood using y::text::{t}_mood",
}


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.attack("replacement")
def test_table_replaced_while_waiting_gains_no_rights(arena, owner, spied, swap):
    """The owner locks the table, the training waits for it behind its checks, and finds another one."""
    schema = arena.names["owner"]
    with arena.login("analyst") as fresh, ThreadPoolExecutor(1) as pool:
        attempt(fresh, "select dbdp.dp_explain(%s, 1)", spied)  # Python is loaded
        owner.execute("begin")
        owner.execute(f"lock table {schema}.{spied} in access exclusive mode")
        training = pool.submit(attempt, fresh, TRAIN, spied)
        waits = "select count(*) from pg_locks where not granted and pid = %s"
        for _ in range(200):
            if owner.execute(waits, (fresh.info.backend_pid,)).fetchone() == (1,):
                break
            time.sleep(0.02)
        owner.execute(SWAPS[swap].format(t=f"{schema}.{spied}", n=spied, s=schema, rows=ROWS))
        owner.execute("commit")
        training.result()
    assert ran_as(owner) <= {schema}


@pytest.mark.parametrize(
    "change",
    [
        "alter table {t} rename to {n}_kept; create view {t} as select * from {n}_kept where spy(y) = 1",
        "alter table {t} rename column y to z; alter table {t} add y int default 1",
        "alter table {t} alter y type bigint",
        "alter table {t} enable row level security",
        "create table {n}_child () inherits ({t})",
        "drop table {t}; create table {t} as " + ROWS,
        "alter table {t} drop x",
        "delete from {t} where y = 0",
        "revoke select on {t} from dbdp_owner",
        'delete from {t}; create rule "_RETURN" as on select to {t} do instead '
        "select '{{1, 2, 3}}'::float8[] as x, 1 as y, 'a' as g where spy(1) = 1; grant select on {t} to dbdp_owner",
    ],
)
@pytest.mark.attack("changed-table")
def test_source_changed_after_registration_is_refused(arena, owner, analyst, spied, spent, change):
    """A source that changes after registration is refused or still the same table."""
    if attempt(owner, change.format(t=spied, n=spied)):
        assert "_RETURN" in change
        pytest.skip("this PostgreSQL makes no view of a table")
    state = attempt(analyst, TRAIN, spied)
    if "rename" in change:  # it is followed under its new name; a new column holds what the owner says it holds
        assert state is None
    else:
        assert state == "DP001"
        assert spent(spied) == (0, 0)
    assert ran_as(owner) <= {arena.names["owner"]}


NO_TABLES = {
    "a view": "create view {t}_odd as select x, spy(y) as y from {t}",
    "a materialised view": "create materialized view {t}_odd as select x, y from {t}",
    "a foreign table": "create foreign table {t}_odd (x float8[], y int) server {s}",
    "a temporary table": "create temporary table {t}_odd as {rows}",
    "a sequence": "create sequence {t}_odd",
    "an index": "create index {t}_odd on {t} (y)",
}


@pytest.mark.parametrize("kind", NO_TABLES)
@pytest.mark.attack("sources")
def test_what_is_no_ordinary_table_cannot_be_registered(arena, admin, owner, spied, kind):
    """A view or a function with side effects would run with other rights, and one record could be many."""
    schema = arena.names["owner"]
    if kind == "a foreign table":
        admin.execute("create extension if not exists postgres_fdw")
        admin.execute(
            f"create server {schema} foreign data wrapper postgres_fdw; alter server {schema} owner to {schema}"
        )
    owner.execute(NO_TABLES[kind].format(t=spied, s=schema, rows=ROWS))
    assert attempt(owner, REGISTER, f"{spied}_odd", f"{spied}_odd", DECLARED, 9) == "DP001"
    assert ran_as(owner) == set()
    if kind == "a foreign table":
        admin.execute(f"drop server {schema} cascade; drop extension postgres_fdw")


@pytest.mark.attack("sources")
def test_a_function_cannot_be_registered(owner, spied):
    assert attempt(owner, REGISTER, f"{spied}_odd", "spy", DECLARED, 9) == "42P01"
    assert attempt(owner, REGISTER, f"{spied}_odd", "spy(1)", DECLARED, 9) in ("42602", "42P01")


TYPES = {  # of the label column: a type with code, what the class is written as
    "a domain with a check": ("create domain {s}.odd as int check ({s}.spy(value) = 1)", "1"),
    "an enum with a cast": (
        "create type {s}.odd as enum ('0', '1'); create function {s}.out_of({s}.odd) returns text language plpgsql "
        "immutable as $$ begin perform {s}.act(); return '1'; end $$; create cast ({s}.odd as text) with function "
        "{s}.out_of({s}.odd)",
        "1",
    ),
    "an enum with a cast from text": (
        "create type {s}.odd as enum ('0', '1'); create function {s}.into(text) returns {s}.odd language plpgsql "
        "as $$ begin perform {s}.act(); return '1'; end $$; create cast (text as {s}.odd) with function {s}.into(text)",
        "1",
    ),
    "a type with an operator": (
        "create type {s}.odd as enum ('0', '1'); create function {s}.same({s}.odd, {s}.odd) returns boolean language "
        "plpgsql as $$ begin perform {s}.act(); return true; end $$; create operator {s}.= (leftarg = {s}.odd, "
        "rightarg = {s}.odd, function = {s}.same)",
        "1",
    ),
    "a domain with an operator": (
        "create domain {s}.odd as text; create function {s}.same({s}.odd, {s}.odd) returns boolean language "
        "plpgsql as $$ begin perform {s}.act(); return true; end $$; create operator {s}.= (leftarg = {s}.odd, "
        "rightarg = {s}.odd, function = {s}.same)",
        "1",
    ),
    "a composite type": ("create type {s}.odd as (a int)", "(1)"),
    "a range": (
        "create function {s}.canonical(int, int) returns float8 language plpgsql immutable as $$ begin perform "
        "{s}.act(); return 1; end $$; create type {s}.odd as range (subtype = int, subtype_diff = {s}.canonical)",
        "[1,2)",
    ),
    "a column with a collation": (
        "create collation if not exists {s}.odd_collation (provider = icu, locale = 'und', deterministic = false); "
        "create domain {s}.odd as text collate {s}.odd_collation",
        "1",
    ),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.attack("column-types")
def test_column_type_with_code_is_refused_or_inert(arena, owner, analyst, spied, kind):
    """A column type with code is refused or its code does not run."""
    schema = arena.names["owner"]
    made, value = TYPES[kind]
    owner.execute(made.format(s=schema))
    literal = "case i % 2 when 0 then '(0)' else '(1)' end" if "composite" in kind else "(i % 2)::text"
    literal = "int4range(1, 2)::text" if kind == "a range" else literal
    odd = f"({literal})::{schema}.odd as y"
    owner.execute(
        f"create table {spied}_t as select array[.1, .2, .3]::float8[] as x, {odd} from generate_series(1, 60) i"
    )
    owner.execute("truncate seen")
    name = f"{spied}_t"
    sql = "select dbdp.register_dataset(%s, %s::regclass, 'y', %s, %s, 9, 0, mode => 'basic')"
    state = attempt(owner, sql, name, f"{schema}.{name}", value, DECLARED)
    if state is None:
        allow(owner, name, arena.names["analyst"])
        analyst.execute(TRAIN, (name,))
    else:
        assert state == "DP001"
    assert ran_as(owner) == set()
    owner.execute(f"drop table {name} cascade; drop type {schema}.odd cascade")
    owner.execute(f"drop function if exists {schema}.canonical")


@pytest.mark.attack("partitions")
def test_partitions_are_read_with_the_parents_owner_rights(arena, owner, spied):
    """The expressions of a partition key, of a partition's constraint and of its indexes are evaluated too."""
    schema = arena.names["owner"]
    owner.execute(f"""
create table parted (x float8[], y int) partition by list ((y + {schema}.spy(0) - 1));
create table part_0 partition of parted for values in (0);
create table part_1 (x float8[], y int, check ({schema}.spy(1) + y > 0));
alter table parted attach partition part_1 for values in (1);
create index on part_0 (({schema}.spy(2) + y));
insert into parted {ROWS}; grant select on parted, part_0, part_1 to dbdp_owner""")
    owner.execute(REGISTER, (f"parted_{schema}", f"{schema}.parted", DECLARED, 9))
    allow(owner, f"parted_{schema}", arena.names["analyst"])
    owner.execute("truncate seen")
    with arena.login("analyst") as fresh:
        fresh.execute("set constraint_exclusion = on")
        fresh.execute(TRAIN, (f"parted_{schema}",))
        owner.execute(
            "begin; alter table parted detach partition part_1; create table part_2 as select * from part_1; "
            "alter table parted attach partition part_2 for values in (1); commit"
        )
        fresh.execute(TRAIN, (f"parted_{schema}",))  # of as many rows: the owner's data is what the owner says it is
    assert ran_as(owner) == {schema}


@pytest.mark.attack("group-table")
def test_table_of_a_registering_group_is_read(arena, admin, owner):
    """The group itself is no data owner, and is lent what reading takes."""
    schema = arena.names["owner"]
    admin.execute(
        f"create role team_{schema}; grant team_{schema} to {schema}; grant usage on schema {schema} to team_{schema}"
    )
    owner.execute(f"create table of_team as {ROWS}")
    admin.execute(f"alter table {schema}.of_team owner to team_{schema}")
    owner.execute(REGISTER, (f"team_{schema}", f"{schema}.of_team", DECLARED, 9))
    owner.execute(TRAIN, (f"team_{schema}",))
    owner.execute("select dbdp.drop_dataset(%s)", (f"team_{schema}",))
    owner.execute("drop table of_team")
    admin.execute(f"drop owned by team_{schema}; drop role team_{schema}")


ODD = {  # statements of a table's owner that raise an error with bytes that are not UTF-8
    "a message that ends within a character": "perform pg_catalog.acldefault('\u00f6', 1)",
    "a detail that begins within one": "perform ('<a>' || repeat('\u20ac', 300) || '&')::xml",
}


def broken(session: psycopg.Connection, statement: str) -> bool:
    """Whether the error of a statement has a field that is not UTF-8."""
    result = session.pgconn.exec_(f"do $$ begin {statement}; end $$".encode())
    fields = [result.error_field(field) or b"" for field in (ord("M"), ord("D"))]
    return any(field.decode(errors="replace").encode() != field for field in fields)


@pytest.mark.parametrize("error", ODD)
@pytest.mark.parametrize("place", ["an index on an expression", "a CHECK constraint"])
@pytest.mark.attack("error-bytes")
def test_no_error_of_an_owner_brings_a_backend_down(arena, owner, analyst, spied, place, error):
    """Each call ends, in Python too: without the defence a generator stays running, and a later call crashes."""
    if not broken(owner, ODD[error]):  # the control; a newer libxml2 cuts no character
        assert error == "a detail that begins within one"
        pytest.skip("this server's message is UTF-8")
    schema, session = arena.names["owner"], arena.names["analyst"]
    plant(arena, owner, spied, PLANNED[place])
    owner.execute(
        f"create or replace function {schema}.act() returns int language plpgsql as $f$ begin "
        f"if session_user = '{session}' then {ODD[error]}; end if; return 1; end $f$"
    )
    before = analyst.info.backend_pid, analyst.execute("select pg_backend_pid()").fetchone()
    for _ in range(12):
        for call in (TRAIN, "select dbdp.dp_class_balance(%s, epsilon => 1)", "select dbdp.dp_explain(%s, 1)"):
            attempt(analyst, call, spied)
            analyst.rollback()
    assert (analyst.info.backend_pid, analyst.execute("select pg_backend_pid()").fetchone()) == before
    owner.execute(f"create or replace function {schema}.act() returns int language sql as 'select 1'")
    assert attempt(analyst, TRAIN, spied) is None  # nothing of the session is left behind
