"""Objects of users that call what an update replaces: it keeps them as they are, or names them and changes nothing."""

import re
import secrets
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from pairs import others_slow
from releases import RELEASED
from servers import execute

from dbdp import __version__
from dbdp.deployment import inventory
from dbdp.deployment.extension import installer
from dbdp.deployment.extension.source import ExtensionSource, InstallError

STATES = sorted(path.name.removeprefix("dbdp--").removesuffix(".sql.xz") for path in RELEASED.glob("dbdp--*"))
EVERY_STATE = pytest.mark.parametrize("state", others_slow(STATES, "0.2.0+last", "0.3.0"))
USER = f"user_{secrets.token_hex(4)}"  # owns all objects of these tests, and may call whatever the former version has
TRAININGS = {f"dp_{name}" for name in ("train", "logreg", "svm", "linreg", "tune")}  # with other results since 0.3.0
ALLOWANCES = {"allowances", "allowance"}  # a view and its table, which had other columns
PLANS = {f"dp_explain{name}" for name in ("", "_tuning")}  # which had the option tolerance, that no version has since
REFUSED = {  # functions and views of users' objects that an update names, and that stop it
    "0.1.0": TRAININGS | PLANS | {"close_dataset", "dp_confusion", "charge", "record_dataset"},
    "0.2.0": TRAININGS | PLANS | {"dp_confusion", "dp_train_groups", "dp_explain_groups"} | ALLOWANCES,
    "0.2.0+later": TRAININGS | {"dp_train_groups", "dp_summarize"} | ALLOWANCES,
    "0.2.0+last": TRAININGS | {"dp_train_groups", "dp_summarize"},
    "0.3.0": set(),
}
PUBLIC = """
select p.proname, p.proretset, p.prorettype = 'trigger'::regtype,
       coalesce(array(
         select case format_type(a.type, null) when 'anyelement' then 'null::int' when 'record' then 'row(1)'
                else 'null::' || format_type(a.type, null) end
         from unnest(p.proargtypes::oid[]) with ordinality as a (type, place) order by a.place), '{}'),
       p.proargnames, p.oid::regprocedure::text
from pg_proc as p
where p.pronamespace = 'dbdp'::regnamespace and p.prokind = 'f'
and p.proname !~ '^try_' and obj_description(p.oid, 'pg_proc') !~ '^internal:'
order by p.oid::regprocedure::text"""
RELATIONS = """
select relname from pg_class where relnamespace = 'dbdp'::regnamespace and relkind in ('r', 'v') order by relname"""
# What is made with each call: {n} is its number, {call} all arguments by place, {named} all of them by their names.
OF_A_CALL = (
    "create view mine.call_{n} with (security_barrier) as select count(*) as number from {call} as a",
    "create view mine.above_{n} as select number from mine.call_{n}",
    "create materialized view mine.stored_{n} as select count(*) as number from {named} as a with no data",
    "create function mine.body_{n}() returns bigint language sql begin atomic select count(*) from {named} as a; end",
)
OF_A_VALUE = (  # a call that returns no set
    "create table mine.table_{n} (id int, d boolean default ({named} is null), check ({named} is not null))",
    "alter table mine.table_{n} enable row level security",
    'create policy "policy_{n}%s" on mine.table_{n} using ({call} is null) with check ({named} is null)',
    "create trigger trigger_{n} before update on mine.table_{n} for each row when ({call} is null) "
    "execute function suppress_redundant_updates_trigger()",
    "create domain mine.domain_{n} as boolean default ({named} is null) check ({call} is null)",
    "create rule rule_{n} as on delete to mine.table_{n} where {call} is null do instead nothing",
)
OBJECTS = """
select 'relation', c.oid, c.relname, c.relowner::regrole::text, c.relacl::text, c.reloptions::text,
       c.relispopulated::text, pg_get_viewdef(c.oid)
from pg_class as c where c.relnamespace = 'mine'::regnamespace
union all
select 'function', p.oid, p.proname, p.proowner::regrole::text, p.proacl::text, null, null,
       pg_get_function_sqlbody(p.oid)
from pg_proc as p where p.pronamespace = 'mine'::regnamespace
union all
select 'default', d.oid, d.adrelid::regclass::text, null, a.attacl::text, null, null, pg_get_expr(d.adbin, d.adrelid)
from pg_attrdef as d join pg_attribute as a on a.attrelid = d.adrelid and a.attnum = d.adnum
join pg_class as c on c.oid = d.adrelid where c.relnamespace = 'mine'::regnamespace
union all
select 'constraint', k.oid, k.conname, null, null, null, k.convalidated::text, pg_get_constraintdef(k.oid)
from pg_constraint as k where k.connamespace = 'mine'::regnamespace
union all
select 'policy', p.oid, p.polname, p.polroles::text, p.polcmd::text, null, null,
       concat(pg_get_expr(p.polqual, p.polrelid), '; ', pg_get_expr(p.polwithcheck, p.polrelid))
from pg_policy as p join pg_class as c on c.oid = p.polrelid where c.relnamespace = 'mine'::regnamespace
union all
select 'trigger', t.oid, t.tgname, null, null, null, t.tgenabled::text, pg_get_triggerdef(t.oid)
from pg_trigger as t join pg_class as c on c.oid = t.tgrelid where c.relnamespace = 'mine'::regnamespace
union all
select 'domain', t.oid, t.typname, t.typowner::regrole::text, t.typacl::text, null, null,
       pg_get_expr(t.typdefaultbin, 0)
from pg_type as t where t.typnamespace = 'mine'::regnamespace and t.typtype = 'd'
union all
select 'rule', r.oid, r.rulename, null, null, null, null, pg_get_ruledef(r.oid)
from pg_rewrite as r join pg_class as c on c.oid = r.ev_class
where c.relnamespace = 'mine'::regnamespace and r.rulename <> '_RETURN'
order by 1, 2"""


@pytest.fixture
def make_mine(make_old: Callable[[str], str], server_url: str) -> Iterator[Callable[[str], str]]:
    """Make databases of a released version with a schema of a user, who may call all functions and see all views."""
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(f"create role {USER}")
    urls: list[str] = []

    def make(state: str) -> str:
        urls.append(make_old(state))
        execute(
            urls[-1],
            f"grant execute on all functions in schema dbdp to {USER}; grant usage on schema dbdp to {USER}; "
            f"grant select on all tables in schema dbdp to {USER}; create schema mine authorization {USER}; "
            f"grant dbdp_data_owner, pg_read_all_stats to {USER}",
        )
        return urls[-1]

    yield make
    for url in urls:
        execute(url, f"drop owned by {USER} cascade")
    execute(server_url, f"drop role {USER}")


def as_user(url: str, statements: list[str]) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("set search_path = ''")
        connection.execute(f"set role {USER}")
        for statement in statements:
            connection.execute(statement.encode())


def public_calls(url: str) -> dict[str, tuple[str, str, bool]]:
    """Return each public function with its calls, with arguments by place and by name, and whether it returns a set."""
    with psycopg.connect(url) as connection:
        connection.execute("set search_path = ''")
        rows = connection.execute(PUBLIC).fetchall()
    calls = {}
    for name, is_set, is_trigger, values, names, identity in rows:
        assert not is_trigger
        placed = f"dbdp.{name}({', '.join(values)})"
        named = [f"{key} => {value}" for key, value in zip(names or [], values, strict=False)]
        calls[identity] = (placed, f"dbdp.{name}({', '.join(named)})" if all(names or []) and names else placed, is_set)
    return calls


def make_objects(url: str) -> dict[str, str]:
    """Make objects of every kind over every function, view and table; return what each number in their names uses."""
    numbered: dict[str, str] = {}
    statements: list[str] = []
    for number, (identity, (call, named, is_set)) in enumerate(public_calls(url).items()):
        numbered[str(number)] = identity.partition("(")[0].partition(".")[2]
        kinds = OF_A_CALL if is_set else (*OF_A_CALL, *OF_A_VALUE)
        statements += [each.format(n=number, call=call, named=named) for each in kinds]
    with psycopg.connect(url) as connection:
        relations = [name for (name,) in connection.execute(RELATIONS).fetchall()]
    for number, name in enumerate(relations, start=len(numbered)):
        numbered[str(number)] = name
        statements.append(f"create view mine.call_{number} as table dbdp.{name}")
        statements.append(f"create materialized view mine.stored_{number} as table dbdp.{name} with no data")
    statements.append("grant select on mine.call_0 to public; grant select (number) on mine.above_0 to public")
    as_user(url, statements)
    return numbered


def objects(url: str) -> set[tuple]:
    """Return all objects of the user, with owner, rights and definition; functions have the names that they had."""
    with psycopg.connect(url) as connection:
        connection.execute("set search_path = ''")
        rows = connection.execute(OBJECTS).fetchall()
    for was, name in (("dbdp_internal.", "dbdp."), ("former_", ""), ("_details", "")):
        rows = [tuple(each.replace(was, name) if isinstance(each, str) else each for each in row) for row in rows]
    return set(rows)


def extension(url: str) -> list[tuple]:
    with psycopg.connect(url) as connection:
        return connection.execute(
            "select extversion, (select array_agg(p.oid::text || p.prosrc || p.proname order by p.oid) "
            "from pg_proc as p where p.pronamespace = 'dbdp'::regnamespace) from pg_extension where extname = 'dbdp'"
        ).fetchall()


def updated_by_remedies(url: str) -> list[str]:
    """Update, as often as it is refused after the SQL that the refusal names; return what was named."""
    named = []
    while True:
        before = objects(url), extension(url)
        try:
            installer.install(url)
        except InstallError as error:
            assert (objects(url), extension(url)) == before
            named.append(str(error))
            execute(url, str(error).split("`")[1])
        else:
            return named


@EVERY_STATE
def test_an_update_keeps_objects_over_every_function(make_mine, state):
    """Views, materialised views, bodies, defaults, checks, policies, triggers, rules and domains; or it names them."""
    url = make_mine(state)
    numbered = make_objects(url)
    assert len(numbered) > 20
    before = objects(url)
    named = updated_by_remedies(url)
    refused = {numbered[n] for text in named for n in re.findall(r"mine\.[a-z]+_(\d+)", text)}
    assert refused == REFUSED[state]
    kept = {row for row in before if numbered[re.findall(r"_(\d+)", row[2])[0]] not in refused}
    assert kept <= objects(url)
    answers = outcomes(url)
    assert len(answers) == sum(name not in refused for name in numbered.values())
    # An update revokes rights on tables that others gave. No function is missing, nor a right to call it.
    wrong = [each for each in answers if each.startswith("42")]
    assert [each for each in wrong if not re.match("42501 permission denied for (table|view) ", each)] == []


def outcomes(url: str) -> list[str]:
    """Select from every view; return what was answered, or the refusal, of null arguments for example."""
    found = []
    with psycopg.connect(url, autocommit=True) as connection:
        views = connection.execute("select oid::regclass::text from pg_class where relname ~ '^call_'")
        for (view,) in views.fetchall():
            try:
                connection.execute(f"select * from {view}".encode())
                found.append("answered")
            except psycopg.Error as error:
                found.append(f"{error.sqlstate} {error.diag.message_primary}")
    return found


PLAN = "dataset => 'd', epsilon => 1, delta => 1e-6, algorithm => 'bolt_on', epochs => 2, regularization => 0.5"
# regularization, the last one of 31, has another place now
PLACED = f"'d', 1, 1e-6, 'bolt_on', 'logistic', null, 1, 2{', null' * 7}, 1{', null' * 14}, 0.5"
CALLS = [
    f"create view mine.plan as select dbdp.dp_explain({PLAN}) as plan",
    f"create view mine.placed as select dbdp.dp_explain({PLACED}) as plan",
    "create view mine.scores as select * from dbdp.evaluate(1, 'd', 0.5)",
    "create view mine.trained as select model from dbdp.dp_logreg('d', 1, 1e-6, 'bolt_on', epochs => 2)",
    "create table mine.rows as select i / 60.0 as a, i % 2 as y from generate_series(1, 60) as i",
]
DECLARED = """'d', 'mine.rows', 'y', '1', '{"a": [0, 1]}', 10, 1e-3, mode => 'basic'"""


@pytest.fixture
def updated(make_mine: Callable[[str], str]) -> str:
    """A database of 0.3.0 with views of a user, which was updated."""
    url = make_mine("0.3.0")
    as_user(url, CALLS)
    installer.install(url)
    return url


def test_a_kept_call_answers_as_the_new_function(updated):
    """By name and by place; it plans, trains and scores with the rights of the role that calls."""
    with psycopg.connect(updated, autocommit=True) as connection:
        connection.execute(f"set session authorization {USER}; grant usage on schema mine to dbdp_owner")
        connection.execute(f"select dbdp.register_dataset({DECLARED})")
        (expected,) = connection.execute(f"select dbdp.dp_explain({PLAN})").fetchone()
        assert expected["charge"] > 0
        assert connection.execute("select plan from mine.plan").fetchone() == (expected,)
        assert connection.execute("select plan from mine.placed").fetchone() == (expected,)
        assert connection.execute("select * from mine.trained").fetchall() == [(1,)]
        assert "accuracy" in {figure for figure, *_ in connection.execute("select * from mine.scores")}
        assert len(connection.execute("select from dbdp.history").fetchall()) == 2


def test_no_role_trains_by_a_kept_call_that_may_not(updated, server_url):
    """Whoever may use the view needs the right to call the function that replaces the kept one."""
    execute(updated, "grant usage on schema mine to public; grant select on mine.plan to public")
    with psycopg.connect(updated, autocommit=True) as connection, connection.transaction(force_rollback=True):
        connection.execute("create role stranger; set local role stranger")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function dp_explain"):
            connection.execute("select * from mine.plan")


KEPT = "select oid::regprocedure::text from pg_proc where proname like 'former%'"


def test_a_dump_has_kept_calls_and_a_drop_has_none(pg_dump, updated, make_database):
    """A restored view calls the function that the update kept, rights are as they must be, and a drop leaves none."""
    restored = make_database()
    dump = subprocess.run(["pg_dump", updated], capture_output=True, check=True, text=True).stdout
    subprocess.run(["psql", "--quiet", restored], input=dump, capture_output=True, check=True, text=True)
    for url in (updated, restored):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("set search_path = pg_catalog, pg_temp")
            assert len(connection.execute(KEPT).fetchall()) == 3
            with pytest.raises(psycopg.Error, match="dataset 'd' is not registered"):
                connection.execute("select * from mine.plan")
            assert inventory.foreign(lambda sql, on=connection: on.execute(sql).fetchall()) == {}
            with pytest.raises(psycopg.errors.DependentObjectsStillExist):
                connection.execute("drop extension dbdp")
            connection.execute("drop view mine.plan, mine.placed, mine.scores, mine.trained; drop extension dbdp")
            assert connection.execute(KEPT).fetchall() == []
    execute(restored, f"drop owned by {USER} cascade")


@pytest.fixture
def later_versions(server_url: str) -> Iterator[list[str]]:
    """Two later versions, whose updates change nothing but what every update does."""
    folder = ExtensionSource.installed().sql / "upgrade"
    script = "set local search_path = pg_catalog, pg_temp;\n" + "\n".join(
        (folder / name).read_text() for name in ("before.sql", "after.sql")
    )
    with psycopg.connect(server_url) as connection:
        [share] = connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()
    versions = [__version__, "1000.1", "1000.2"]
    files = [Path(share, "extension", f"dbdp--{a}--{b}.sql") for a, b in pairwise(versions)]
    for file in files:
        file.write_text(script)
    yield versions[1:]
    for file in files:
        file.unlink()


def test_a_later_update_keeps_calls_until_nobody_has_them(updated, later_versions):
    """An update replaces what an earlier one kept, and drops it once no object depends on it."""
    with psycopg.connect(updated, autocommit=True) as connection:
        kept = connection.execute(KEPT).fetchall()
        connection.execute(f"alter extension dbdp update to '{later_versions[0]}'")
        assert connection.execute(KEPT).fetchall() == kept
        with pytest.raises(psycopg.Error, match="dataset 'd' is not registered"):
            connection.execute("select * from mine.plan")
        connection.execute("drop view mine.plan, mine.placed")
        connection.execute(f"alter extension dbdp update to '{later_versions[1]}'")
        left = {name.partition("(")[0] for (name,) in connection.execute(KEPT)}
        assert left == {"dbdp_internal.former_evaluate", "dbdp_internal.former_dp_logreg"}


SPY = [
    "create table mine.seen (who name, is_superuser boolean)",
    "create function mine.spy(json) returns int language plpgsql as $$ begin insert into mine.seen select "
    "rolname, rolsuper from pg_catalog.pg_roles where rolname = current_user; return 1; end $$",
    "create view mine.v as select mine.spy(dbdp.dp_explain('d', 1, algorithm => 'auto')) as x",
    "create materialized view mine.m as select mine.spy(null) + x as x from mine.v with no data",
    "create materialized view mine.full as select case when i > 0 then mine.spy(null) "
    "else mine.spy(dbdp.dp_explain('d', 1)) end as x from generate_series(1, 3) as i",
    "create function mine.quiet(int) returns int language plpgsql immutable as $$ begin return mine.spy(null); end $$",
    "create index on mine.full (mine.quiet(x))",
    "create table mine.t (i int default mine.spy(dbdp.dp_explain('d', 1)))",
    "alter table mine.t add check (mine.spy('{}') > 0 or dbdp.dp_explain('d', 1) is null)",
    "create policy p on mine.t using (mine.spy(dbdp.dp_explain('d', 1)) > 0)",
    "create domain mine.d as int check (mine.spy('{}') > 0 or dbdp.dp_explain('d', 1) is null)",
    "create function mine.dp_explain(text, float8) returns int language sql as 'select mine.spy(null)'",
    "insert into mine.t values (1)",
    "truncate mine.seen",
]


def test_an_update_runs_no_code_of_users(make_mine):
    """Of views, materialised views with and without rows, defaults, checks, policies and indexes; a query runs it."""
    url = make_mine("0.3.0")
    as_user(url, SPY)
    installer.install(url)
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("select * from mine.seen").fetchall() == []
        assert connection.execute("select x from mine.full").fetchall() == [(1,)] * 3
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            connection.execute("select * from mine.m")  # it has no rows yet
        connection.execute("insert into mine.t values (2)")  # the control: a superuser's statement runs the check
        assert connection.execute("select is_superuser from mine.seen").fetchall() == [(True,)]


def test_what_an_installation_changes_names_users_objects(make_mine):
    """With owner and function, and nothing changes; a call of a function that stays is not named."""
    url = make_mine("0.3.0")
    as_user(url, [*CALLS, "create view mine.same as select dbdp.about() as about"])
    before = extension(url)
    listed = [line for line in installer.changes(url) if "mine." in line]
    assert [line.partition(" keeps ")[0] for line in listed] == [
        f"view mine.{view} of {USER}: its call of dbdp.{function}"
        for view, function in (
            ("placed", "dp_explain"),
            ("plan", "dp_explain"),
            ("scores", "evaluate"),
            ("trained", "dp_logreg"),
        )
    ]
    assert extension(url) == before
