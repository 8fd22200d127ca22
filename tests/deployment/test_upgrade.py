"""An update from each released version: the catalogue is then that of a new installation, and nothing is lost.

Databases were installed as 0.2.0 from several states of the tree: `0.2.0` is the first, `0.2.0+later` the one before
allowances were budgets of their own, `0.2.0+last` the last. `used--*.sql.xz` are dumps of databases that the code of
that state made and used: budgets in every mode, allowances, charges, one of them rolled back, and models with what they
predicted.
"""

import json
import secrets
from collections.abc import Callable, Iterator

import psycopg
import pytest
from pairs import others_slow
from released import released
from releases import RELEASED, unpacked, version_of
from servers import execute

from dbdp import __version__
from dbdp.deployment.extension import installer, script
from dbdp.deployment.extension.source import MADE_ONCE, ExtensionSource, InstallError
from dbdp.interfaces.python.client.connecting import connect
from dbdp.privacy.accounting.budget import Budget

STATES = sorted(path.name.removeprefix("dbdp--").removesuffix(".sql.xz") for path in RELEASED.glob("dbdp--*"))
EVERY_STATE = pytest.mark.parametrize("state", STATES)
OF_ONE_SCHEMA = pytest.mark.parametrize("state", [state for state in STATES if state < "0.3"])
USED = [state for state in STATES if (RELEASED / f"used--{state}.sql.xz").exists()]
EVERY_USED_STATE = pytest.mark.parametrize("state", others_slow(USED, "0.2.0", "0.3.0"))

# What the extension is, without numbers that depend on the order of making. Columns are compared by name.
CATALOGUE = {
    "functions": """
select p.oid::regprocedure::text, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prokind,
    p.proowner::regrole::text, p.prosecdef, p.provolatile, p.proparallel, p.proisstrict, p.procost, p.proconfig,
    l.lanname, p.prosrc, p.probin, pg_get_function_sqlbody(p.oid), obj_description(p.oid, 'pg_proc')
from pg_proc as p join pg_language as l on l.oid = p.prolang
where p.pronamespace = any ('{dbdp,dbdp_internal}'::regnamespace[])""",
    "aggregates": """
select a.aggfnoid::text, a.aggtransfn::text, a.aggfinalfn::text, a.aggtranstype::regtype::text, a.agginitval
from pg_aggregate as a join pg_proc as p on p.oid = a.aggfnoid
where p.pronamespace = any ('{dbdp,dbdp_internal}'::regnamespace[])""",
    "relations": """
select c.oid::regclass::text, c.relkind, c.relowner::regrole::text, c.relpersistence, c.reloptions, c.relrowsecurity,
    c.relforcerowsecurity, obj_description(c.oid, 'pg_class'), case when c.relkind = 'v' then pg_get_viewdef(c.oid) end
from pg_class as c where c.relnamespace = any ('{dbdp,dbdp_internal}'::regnamespace[])""",
    "columns": """
select a.attrelid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
    a.attgenerated, a.attstorage, pg_get_expr(d.adbin, d.adrelid), a.attacl::text
from pg_attribute as a join pg_class as c on c.oid = a.attrelid
left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
where c.relnamespace = 'dbdp'::regnamespace and a.attnum > 0 and not a.attisdropped""",
    "constraints": """
select conrelid::regclass::text, conname, pg_get_constraintdef(oid)
from pg_constraint where connamespace = 'dbdp'::regnamespace""",
    "indexes": "select indexname, indexdef from pg_indexes where schemaname = 'dbdp'",
    "policies": "select * from pg_policies where schemaname = 'dbdp'",
    "triggers": """
select tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) from pg_trigger
where not tgisinternal and tgrelid in (select oid from pg_class where relnamespace = 'dbdp'::regnamespace)""",
    "types": """
select format_type(oid, null), typowner::regrole::text from pg_type where typnamespace = 'dbdp'::regnamespace""",
    "privileges": """
with granted as (
    select p.oid::regprocedure::text as name, coalesce(p.proacl, acldefault('f', p.proowner)) as acl from pg_proc as p
    where p.pronamespace = any ('{dbdp,dbdp_internal}'::regnamespace[])
    union all
    select c.oid::regclass::text,
        coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))
    from pg_class as c where c.relnamespace = any ('{dbdp,dbdp_internal}'::regnamespace[])
        and c.relkind not in ('i', 'I')
    union all select nspname, nspacl from pg_namespace where nspname in ('dbdp', 'dbdp_internal'))
select g.name, a.grantor::regrole::text, case a.grantee when 0 then 'public' else a.grantee::regrole::text end,
    a.privilege_type, a.is_grantable
from granted as g, aclexplode(g.acl) as a""",
    "privileges that a dump leaves out": """
select pg_describe_object(i.classoid, i.objoid, i.objsubid), a.grantor::regrole::text,
    case a.grantee when 0 then 'public' else a.grantee::regrole::text end, a.privilege_type
from pg_init_privs as i, aclexplode(i.initprivs) as a
where (i.classoid, i.objoid) in (select d.classid, d.objid from pg_depend as d join pg_extension as e
    on d.refobjid = e.oid and d.refclassid = 'pg_extension'::regclass where e.extname = 'dbdp')""",
    "members": """
select pg_describe_object(d.classid, d.objid, d.objsubid) from pg_depend as d
join pg_extension as e on d.refobjid = e.oid and d.refclassid = 'pg_extension'::regclass
where e.extname = 'dbdp' and d.deptype = 'e'""",
    "tables in a dump": """
select config::regclass::text, condition from pg_extension, unnest(extconfig, extcondition) as t (config, condition)
where extname = 'dbdp'""",
    "version": "select extversion from pg_extension where extname = 'dbdp'",
}


def catalogue(url: str) -> dict[str, set[tuple]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set search_path = ''")
        return {name: {tuple(map(str, row)) for row in connection.execute(sql)} for name, sql in CATALOGUE.items()}


MISPLACED = """
select p.oid::regprocedure::text
from pg_proc as p
cross join lateral (select p.proname ~ '^try_' or obj_description(p.oid, 'pg_proc') ~ '^internal:' as is_internal) as i
where p.pronamespace = 'dbdp'::regnamespace and i.is_internal is distinct from false
or p.pronamespace = 'dbdp_internal'::regnamespace and i.is_internal is distinct from true"""


def misplaced(url: str) -> list[str]:
    """Internal functions in the schema of what users call, public ones in the other, and those without a comment."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set search_path = pg_catalog")
        return [name for (name,) in connection.execute(MISPLACED).fetchall()]


@pytest.mark.usefixtures("server_machine")
def test_internal_functions_have_their_schema_and_no_stray(make_database):
    """Internal functions have a schema of their own and a stray would be seen."""
    installer.install(url := make_database())
    assert misplaced(url) == []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("alter function dbdp.budget set schema dbdp_internal")
        connection.execute("alter function dbdp_internal.charge set schema dbdp")
        connection.execute("alter function dbdp_internal.try_budget set schema dbdp")
        connection.execute("create function dbdp.bare() returns int language sql return 1")
    assert {name.partition("(")[0] for name in misplaced(url)} == {
        "dbdp_internal.budget",
        "dbdp.charge",
        "dbdp.try_budget",
        "dbdp.bare",
    }


@OF_ONE_SCHEMA
def test_update_leaves_no_internal_function_to_users(make_old, state):
    """After an update no internal function is where users look."""
    url = make_old(state)
    assert misplaced_in_old(url)
    with updated(url):
        assert misplaced(url) == []


def misplaced_in_old(url: str) -> list[str]:
    """Internal functions of a former version, all in the one schema that it has."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema dbdp_internal")
        names = [name for (name,) in connection.execute(MISPLACED).fetchall()]
        connection.execute("drop schema dbdp_internal")
        return names


@OF_ONE_SCHEMA
def test_an_update_refuses_a_schema_that_another_made(make_old, state):
    """Nothing of the old version changes, and the update goes through once the schema is renamed."""
    url = make_old(state)
    before = catalogue_of_old(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema dbdp_internal")
        with pytest.raises(psycopg.errors.DuplicateSchema):
            connection.execute("alter extension dbdp update")
        with pytest.raises(InstallError, match=r"run `alter schema dbdp_internal rename to …`, or drop it"):
            installer.install(url)
        assert catalogue_of_old(url) == before
        connection.execute("alter schema dbdp_internal rename to mine")
        connection.execute("alter extension dbdp update")
    assert misplaced(url) == []


def catalogue_of_old(url: str) -> set[tuple]:
    with psycopg.connect(url, autocommit=True) as connection:
        sql = (
            "select oid, proname, proacl::text, prosrc, proowner from pg_proc where pronamespace = 'dbdp'::regnamespace"
        )
        return {tuple(map(str, row)) for row in connection.execute(sql)}


@EVERY_STATE
def test_an_updated_catalogue_is_that_of_a_new_installation(make_database, make_old, state):
    new, old = make_database(), make_old(state)
    execute(new, "create extension dbdp schema pg_catalog cascade")
    execute(old, "alter extension dbdp update")
    expected, found = catalogue(new), catalogue(old)
    assert [name for name, rows in expected.items() if not rows] == []
    for name, rows in expected.items():
        missing, stray = sorted(rows - found[name]), sorted(found[name] - rows)
        assert (missing, stray) == ([], []), f"{name}: change sql/upgrade/{version_of(state)}--*.sql"


DECLARED = {"label": "y", "positive": "1", "negative": None, "intercept": True, "features": {"a": [0, 1], "b": [0, 9]}}
BUDGET = Budget.of(epsilon=3.0, delta=1e-6)
SPENT = (BUDGET.charge_limit // 2, BUDGET.leak_limit // 2)


def old_data(connection: psycopg.Connection) -> None:
    """What a 0.1.0 in use holds, written as its functions wrote it: two charges, one of them rolled back later."""
    connection.execute(
        "create table rows_of_1 as select i / 60.0 as a, i % 9 as b, i % 2 as y from generate_series(1, 60) as i"
    )
    connection.execute("grant select on rows_of_1 to dbdp_owner")
    connection.execute(
        "insert into dbdp.dataset (name, source, source_name, rows, declaration, column_types, epsilon, delta, mode, "
        "rdp_order, charge_limit, leak_limit) values ('kept', 'rows_of_1', 'public.rows_of_1', 60, %s, %s, 3, 1e-6, "
        "'renyi', %s, %s, %s)",
        (
            json.dumps(DECLARED),
            json.dumps({"y": "integer", "a": "numeric", "b": "integer"}),
            BUDGET.order,
            BUDGET.charge_limit,
            BUDGET.leak_limit,
        ),
    )
    connection.execute("set role dbdp_owner")
    for word, value in zip(("charge", "leak"), SPENT, strict=True):
        connection.execute(f"create sequence dbdp.{word}_1 minvalue 0 start 0 owned by dbdp.dataset.id")
        connection.execute(f"select setval('dbdp.{word}_1', {value})")
    connection.execute("reset role")
    for charge, leak in ((SPENT[0] // 2, 7), (5, SPENT[1] // 2)):
        connection.execute(
            "insert into dbdp.ledger (dataset_id, algorithm, epsilon, delta, charge, leak, plan) "
            "values (1, 'bolt_on', 1, 1e-7, %s, %s, '{}')",
            (charge, leak),
        )
    connection.execute(
        "insert into dbdp.model (dataset_id, feature_names, coefficients, intercepts, declaration, receipt) "
        "values (1, '{a,b}', '{1.5,-2}', '{0.25}', %s, '{\"epsilon\": 1, \"delta\": 1e-7}')",
        (json.dumps(DECLARED),),
    )
    connection.execute(
        "create view scored as select t.*, dbdp.predict(1, t) as taken, "
        "dbdp.predict_probability(1, t) as probability from rows_of_1 as t"
    )
    connection.execute("create view listed as select name, epsilon from dbdp.datasets")
    connection.execute("create view released as select id, receipt from dbdp.models")


def catalogue_rows(connection: psycopg.Connection) -> list[object]:
    queries = [
        "select id, name, source::text, rows, declaration::text, column_types::text, epsilon, delta, charge_limit, "
        "registered_by, registered_at, dropped_at from dbdp.dataset",
        "select id, dataset_id, charged_at, charged_by, algorithm, charge, leak, plan::text from dbdp.ledger "
        "order by id",
        "select id, coefficients, intercept, receipt::text from dbdp.model",
        "select (select last_value from dbdp.charge_1), (select last_value from dbdp.leak_1)",
        "select relacl::text from pg_class where oid = 'rows_of_1'::regclass",
        "select * from listed",
    ]
    return [connection.execute(query).fetchall() for query in queries]


def test_update_keeps_data_and_views_and_trains_on(make_old):
    """An update keeps data odometers and views and training goes on."""
    url = make_old("0.1.0")
    with psycopg.connect(url, autocommit=True) as connection:
        old_data(connection)
        before = catalogue_rows(connection)
        connection.execute("alter extension dbdp update")
    with psycopg.connect(url, autocommit=True) as connection:
        assert catalogue_rows(connection) == before
        assert connection.execute("select count(taken), count(probability) from scored").fetchone() == (60, 60)
        checked = connection.execute("select ok, unrecorded * 1e9 from dbdp.check_ledger()").fetchall()
        assert checked == [(True, SPENT[0] - SPENT[0] // 2 - 5)]
        database = connect(connection)
        [model] = released(connection, "dbdp.dp_logreg('kept', 0.1)")
        receipt = model["receipt"]
        assert connection.execute("select last_value from dbdp.charge_1").fetchone()[0] == SPENT[0] + round(
            receipt["charge"] * 1e9
        )
        assert [row["outcome"] for row in database.query("select outcome from dbdp.history order by id")] == [
            None,
            None,
            "released",
        ]
        assert connection.execute("select rows, capacity from dbdp.datasets_details").fetchone() == (60, None)
        connection.execute("insert into rows_of_1 values (0.5, 1, 1)")
        with pytest.raises(psycopg.Error, match=r"61 rows, .* registered with 60; .* dbdp\.raise_capacity"):
            connection.execute("select dbdp.dp_logreg('kept', 0.01)")
        connection.execute("select dbdp.raise_capacity('kept', 'the table grows', 90)")
        [model] = released(connection, "dbdp.dp_logreg('kept', 0.01)")
        receipt = model["receipt"]
        assert (receipt["capacity"], receipt["neighbours"]) == (90, "change-one")
        connection.execute("select setval('dbdp.charge_1', 1)")
        with pytest.raises(psycopg.Error, match="the odometers of the budget of dataset 'kept' were wound back"):
            connection.execute("select dbdp.dp_logreg('kept', 0.1)")


@pytest.fixture
def make_used(make_old: Callable[[str], str]) -> Callable[[str], str]:
    """Make databases that a released version made and used."""

    def make(state: str) -> str:
        url = make_old(state)
        execute(url, unpacked(f"used--{state}"))
        return url

    return make


@pytest.fixture
def old_roles(server_url: str) -> Iterator[None]:
    """Roles whose names the dumps have; they are gone after the databases."""
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute("create role old_anna in role dbdp_analyst; create role old_app in role dbdp_predictor")
        yield
        admin.execute("drop role old_anna; drop role old_app")


SEQUENCES = """
select c.relname, s.last_value, c.relowner::regrole::text
from pg_class as c, lateral (select last_value from pg_sequences as q where q.sequencename = c.relname) as s
where c.relnamespace = 'dbdp'::regnamespace and c.relkind = 'S' and c.relname ~ '(charge|leak)_[0-9]+$'
"""
KEPT = {  # of what the first 0.2.0 had
    "odometers": SEQUENCES,
    "budgets": "select id, name, source::text, rows, declaration::text, column_types::text, epsilon, delta, mode, "
    "rdp_order, charge_limit, leak_limit, registered_by, registered_at, dropped_at, unit, max_rows, renews "
    "from dbdp.dataset",
    "charges": "select id, dataset_id, charged_at, charged_by, algorithm, epsilon, delta, charge, leak, allowance_id, "
    "plan::text, charge_after, leak_after from dbdp.ledger",
    "outcomes": "select * from dbdp.outcome",
    "models": "select id, dataset_id, feature_names, coefficients, intercepts, intercept, network::text, parameters, "
    "declaration::text, receipt::text, released_by from dbdp.model",
    "allowances": "select id, dataset_id, role, charge_limit, leak_limit, granted_by, granted_at, revoked_at "
    "from dbdp.allowance",
    "grants of models": "select model_id, role, granted_by, granted_at from dbdp.prediction_grant",
    "former declarations": "select * from dbdp.former_declaration",
    "what may be read": "select relname, relacl::text from pg_class where relnamespace = 'public'::regnamespace",
    "grants of functions": "select oid::regprocedure::text from pg_proc "
    "where has_function_privilege('old_app', oid, 'execute') and pronamespace = 'dbdp'::regnamespace "
    "and proname = 'about'",
    "listed": "select * from listed",
    "released": "select id, receipt::text from released",
}


def kept(url: str) -> dict[str, list[tuple]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set timezone = 'UTC'")
        return {what: sorted(connection.execute(sql.encode()).fetchall(), key=repr) for what, sql in KEPT.items()}


def updated(url: str) -> psycopg.Connection:
    execute(url, "alter extension dbdp update")
    return psycopg.connect(url, autocommit=True)


@EVERY_USED_STATE
def test_update_of_used_database_changes_no_result(old_roles, make_used, state):
    """An update of a used database changes no budget charge model or prediction."""
    url = make_used(state)
    before = kept(url)
    with updated(url) as connection:
        assert kept(url) == before
        assert all(before.values())
        for how in ("predict", "predict_probability", "predict_class", "predict_value"):
            compared = connection.execute(
                f"select p.value, dbdp.{how}(p.model, t)::text from predicted as p join people as t using (id) "
                "where p.how = %s",
                (how,),
            ).fetchall()
            assert len(compared) >= 40
            assert all(then == now for then, now in compared), how
        assert connection.execute("select count(value) from scored").fetchone() == (240,)
        connection.execute("update dbdp.dataset set charge_limit = charge_limit + 1; delete from dbdp.prediction_grant")
        connection.execute("select setval('dbdp.charge_1', 1)")
    changed = kept(url)
    lost = {"budgets", "grants of models", "odometers"}
    assert {what for what in before if changed[what] != before[what]} == lost


def test_an_update_gives_rights_to_the_roles_of_that_moment(old_roles, make_used):
    """A name without a role is a former role's, and one that is created later has none of its rights."""
    url = make_used("0.3.0")
    with psycopg.connect(url, autocommit=True) as connection:
        before = connection.execute("select count(*) from dbdp.allowance where role = 'old_anna'").fetchone()
        assert before > (0,)
        connection.execute("drop owned by old_anna; drop role old_anna")
    with updated(url) as connection:
        connection.execute("create role old_anna in role dbdp_analyst")
        shown = {role for (role,) in connection.execute("select role from dbdp.allowances")}
        assert "former old_anna" in shown
        assert connection.execute("select * from dbdp.unconfirmed_roles").fetchall() == []
        for role, models in (("old_app", 1), ("old_anna", 0)):
            connection.execute(f"set session authorization {role}")
            assert connection.execute("select count(*) from dbdp.models").fetchone() == (models,)
            connection.execute("reset session authorization")


@EVERY_USED_STATE
def test_former_allowance_spends_what_it_could(old_roles, make_used, state):
    """An allowance of a former version may spend what it could and shows what it guarantees."""
    with updated(make_used(state)) as connection:
        same = connection.execute(
            "select (o.charge_limit, o.charged, o.leak_limit, o.leaked, o.implied) "
            "= (a.charge_limit, a.charged, a.leak_limit, a.leaked, a.epsilon) "
            "from allowed as o left join dbdp.allowances_details as a using (dataset, role) where o.epsilon is not null"
        ).fetchall()
        assert same == [(True,)] * 2
        connection.execute("set session authorization old_anna")
        left = "select charge_limit - charged from dbdp.allowances_details where dataset = 'people'"
        (before,) = connection.execute(left).fetchone()
        connection.execute("select dbdp.dp_logreg('people', 0.1, 1e-8, 'bolt_on')")
        (after,) = connection.execute(left).fetchone()
        assert 0 < before - after == pytest.approx(cost_of_bolt_on(connection, 0.1), abs=1e-8)
        within, above = 1.0, next(each for each in range(2, 9) if cost_of_bolt_on(connection, each) > after)
        with pytest.raises(psycopg.Error, match="the allowance of role 'old_anna' on dataset 'people' does not cover"):
            connection.execute("select dbdp.dp_logreg('people', %s, 1e-8, 'bolt_on')", (above,))
        connection.execute("select dbdp.dp_logreg('people', %s, 1e-8, 'bolt_on')", (within,))


def cost_of_bolt_on(connection: psycopg.Connection, epsilon: float) -> float:
    """What a release of δ = 1e-8 costs the allowance of old_anna."""
    sql = "select dbdp.dp_explain('people', %s, 1e-8, 'bolt_on')"
    plan = connection.execute(sql, (epsilon,)).fetchone()[0]
    return plan.get("allowance_charges", {}).get("old_anna", plan["charge"])


@EVERY_USED_STATE
def test_updated_ledger_agrees_and_every_dataset_trains(old_roles, make_used, state):
    """After an update the ledger agrees and every dataset trains."""
    with updated(make_used(state)) as connection:
        checked = connection.execute("select dataset, ok, unrecorded > 0 from dbdp.check_ledger()").fetchall()
        assert {dataset for dataset, ok, lost in checked if lost} == {"people"}
        assert all(ok for _, ok, _ in checked)
        for dataset, function, delta in (
            ("people", "dp_logreg", 1e-8),
            ("visits", "dp_logreg", 0),
            ("costs", "dp_linreg", 1e-8),
            ("units", "dp_logreg", 1e-8),
            ("rho", "dp_logreg", 1e-8),
        ):
            before = connection.execute("select charged from dbdp.budget_details(%s)", (dataset,)).fetchone()[0]
            receipt = released(connection, f"dbdp.{function}(%s, 0.05, %s)", (dataset, delta))[0]["receipt"]
            charged = connection.execute("select charged from dbdp.budget_details(%s)", (dataset,)).fetchone()[0]
            assert float(charged - before) == pytest.approx(receipt["charge"], rel=1e-6)
        connection.execute("select setval('dbdp.charge_1', 1)")
        with pytest.raises(psycopg.Error, match="the odometers of the budget of dataset 'people' were wound back"):
            connection.execute("select dbdp.dp_logreg('people', 0.1, 1e-8)")


@EVERY_STATE
def test_an_installation_brings_an_older_database_up_to_date(make_old, state):
    url = make_old(state)
    installer.install(url)
    with psycopg.connect(url) as connection:
        assert connect(connection).query("select count(*) as number from dbdp.history") == [{"number": 0}]


USERS = {
    "a view": ("create view {s}.v as select dbdp.dp_explain('x', epsilon => 1, delta => 1e-6) as p", "view {s}.v"),
    "a view of a view": (
        "create view {s}.v as select dbdp.dp_explain('x', epsilon => 1, delta => 1e-6) as p; "
        "create materialized view {s}.w as table {s}.v with no data",
        "view {s}.v",
    ),
    "a default": (
        "create table {s}.t (c json default dbdp.dp_explain('x', epsilon => 1, delta => 1e-6))",
        "default value for column c of table {s}.t",
    ),
    "a function": (
        "create function {s}.f() returns json language sql "
        "begin atomic select dbdp.dp_explain('x', epsilon => 1, delta => 1e-6); end",
        "function {s}.f()",
    ),
}


@pytest.mark.parametrize("user", USERS)
def test_an_update_names_who_uses_what_it_drops(make_old, user):
    """With its owner, and SQL after which the installation goes through."""
    url, name = make_old("0.2.0"), f"user_{secrets.token_hex(4)}"
    made, shown = (text.format(s=name) for text in USERS[user])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create role {name}; create schema {name} authorization {name}")
        connection.execute(
            f"grant execute on all functions in schema dbdp to {name}; set role {name}; {made}; reset role"
        )
        with pytest.raises(InstallError) as refused:
            installer.install(url)
        assert f"{shown} of {name}" in str(refused.value)
        connection.execute(str(refused.value).split("`")[1].encode())
        installer.install(url)
        connection.execute(f"drop owned by {name} cascade; drop role {name}")


@EVERY_STATE
def test_an_update_refuses_roles_that_are_not_as_they_must_be(make_old, state):
    with psycopg.connect(make_old(state)) as connection:
        connection.execute("alter role dbdp_owner login")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="dbdp_owner has login"):
            connection.execute("alter extension dbdp update")


def test_every_other_version_has_a_script_and_a_step():
    """Every version but this one has its script and a step from it."""
    steps = script._migrations(ExtensionSource.installed())
    assert list(steps) == sorted({version_of(state) for state in STATES})
    assert __version__ not in steps


def test_parts_run_again_make_nothing_that_exists():
    """The parts that an update runs again make nothing that is there already."""
    source = ExtensionSource.installed()
    parts = [part for name, part in source.parts().items() if name not in MADE_ONCE]
    lines = [line for part in parts for line in part.read_text().splitlines() if line.startswith("create ")]
    assert len(lines) > 50
    careless = [line for line in lines if "or replace" not in line and "if not exists" not in line]
    assert all(line.startswith("create policy ") for line in careless)
    assert (
        "drop policy %I on %s" in (source.sql / "policies" / "1-rows.sql").read_text()
    )  # all of them, before it makes them
