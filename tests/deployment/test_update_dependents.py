"""Objects of users that call what an update replaces: it keeps them as they are, or names them and changes nothing."""

import re
import subprocess
from collections.abc import Callable, Iterator

import psycopg
import pytest
from pairs import others_slow
from releases import RELEASED
from servers import execute

from dbdp.deployment import inventory
from dbdp.deployment.extension import installer
from dbdp.deployment.extension.source import ExtensionSource, InstallError

STATES = sorted(path.name.removeprefix("dbdp--").removesuffix(".sql.xz") for path in RELEASED.glob("dbdp--*"))
EVERY_STATE = pytest.mark.parametrize("state", others_slow(STATES, "0.2.0+last", "0.3.0"))
USER = "user_of_update"  # owns all objects of these tests, and may call whatever the former version has
TRAININGS = {f"dp_{name}" for name in ("train", "logreg", "svm", "linreg", "tune")}  # with other results since 0.3.0
PLANS = {f"dp_explain{name}" for name in ("", "_tuning")}  # which had the option tolerance, that no version has since
REFUSED = {  # functions and views of users' objects that an update names, and that stop it
    "0.1.0": TRAININGS | PLANS | {"close_dataset", "dp_confusion", "charge", "record_dataset"},
    "0.2.0": TRAININGS | PLANS | {"dp_confusion", "dp_train_groups", "dp_explain_groups", "allowances"},
    "0.2.0+later": TRAININGS | {"dp_train_groups", "dp_summarize", "allowances"},
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
VIEWS = """
select relname from pg_class
where relnamespace = 'dbdp'::regnamespace and relkind = 'v' and relname <> 'watched_datasets' -- which only dbdp_owner reads
order by relname"""
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
    "create policy policy_{n} on mine.table_{n} using ({call} is null) with check ({named} is null)",
    "create trigger trigger_{n} before update on mine.table_{n} for each row when ({call} is null) "
    "execute function suppress_redundant_updates_trigger()",
    "create domain mine.domain_{n} as boolean default ({named} is null) check ({call} is null)",
    "create rule rule_{n} as on delete to mine.table_{n} where {call} is null do instead nothing",
)
OBJECTS = """
select 'relation', c.oid, c.relname, c.relowner::regrole::text, c.relacl::text, c.reloptions::text, c.relispopulated::text,
       pg_get_viewdef(c.oid)
from pg_class as c where c.relnamespace = 'mine'::regnamespace
union all
select 'function', p.oid, p.proname, p.proowner::regrole::text, p.proacl::text, null, null, pg_get_function_sqlbody(p.oid)
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
    """Make objects of every kind over every public function and view; return what each number in their names calls."""
    numbered: dict[str, str] = {}
    statements: list[str] = []
    for number, (identity, (call, named, is_set)) in enumerate(public_calls(url).items()):
        numbered[str(number)] = identity.partition("(")[0].partition(".")[2]
        kinds = OF_A_CALL if is_set else (*OF_A_CALL, *OF_A_VALUE)
        statements += [each.format(n=number, call=call, named=named) for each in kinds]
    with psycopg.connect(url) as connection:
        views = [name for (name,) in connection.execute(VIEWS).fetchall()]
    for number, name in enumerate(views, start=len(numbered)):
        numbered[str(number)] = name
        statements.append(f"create view mine.call_{number} as table dbdp.{name}")
        statements.append(f"create materialized view mine.stored_{number} as table dbdp.{name} with no data")
    statements.append("grant select on mine.call_0 to public; grant select (number), update (number) on mine.above_0 to public")
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
            "select extversion, (select array_agg(p.oid::text || p.prosrc || p.proname order by p.oid) from pg_proc as p "
            "where p.pronamespace = 'dbdp'::regnamespace) from pg_extension where extname = 'dbdp'"
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
    refused = {numbered[n] for text in named for n in re.findall(r"mine\.(?:call|stored|body|table|domain)_(\d+)\b", text)}
    assert refused == REFUSED[state]
    kept = {row for row in before if numbered[re.findall(r"_(\d+)", row[2])[0]] not in refused}
    assert kept <= objects(url)
    answers = outcomes(url)
    assert len(answers) == sum(name not in refused for name in numbered.values())
    assert [each for each in answers if each.startswith("42")] == []  # such as a function that does not exist


def outcomes(url: str) -> list[str]:
    """Select from every view; return what was answered, or the refusal, of null arguments for example."""
    found = []
    with psycopg.connect(url, autocommit=True) as connection:
        views = connection.execute("select oid::regclass::text from pg_class where relname ~ '^call_' and relkind = 'v'")
        for (view,) in views.fetchall():
            try:
                connection.execute(f"select * from {view}".encode())
                found.append("answered")
            except psycopg.Error as error:
                found.append(f"{error.sqlstate} {error.diag.message_primary}")
    return found
