"""An update from each released version: the catalogue is then that of a new installation, and nothing is lost."""

import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from dbdp import __version__
from dbdp.deployment import installer
from dbdp.interfaces.python.database import connect
from dbdp.privacy.accounting.budget import Budget

RELEASED = Path(__file__).parent / "released"  # the scripts as they were released, packed
VERSIONS = sorted(path.name.removeprefix("dbdp--").removesuffix(".sql.xz") for path in RELEASED.iterdir())
EVERY_VERSION = pytest.mark.parametrize("version", VERSIONS)

# What the extension is, without numbers that depend on the order of making. Columns are compared by name.
CATALOGUE = {
    "functions": """
select p.oid::regprocedure::text, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prokind,
    p.proowner::regrole::text, p.prosecdef, p.provolatile, p.proparallel, p.proisstrict, p.procost, p.proconfig,
    l.lanname, p.prosrc, p.probin, pg_get_function_sqlbody(p.oid), obj_description(p.oid, 'pg_proc')
from pg_proc as p join pg_language as l on l.oid = p.prolang where p.pronamespace = 'dbdp'::regnamespace""",
    "aggregates": """
select a.aggfnoid::text, a.aggtransfn::text, a.aggfinalfn::text, a.aggtranstype::regtype::text, a.agginitval
from pg_aggregate as a join pg_proc as p on p.oid = a.aggfnoid where p.pronamespace = 'dbdp'::regnamespace""",
    "relations": """
select c.oid::regclass::text, c.relkind, c.relowner::regrole::text, c.relpersistence, c.reloptions, c.relrowsecurity,
    c.relforcerowsecurity, obj_description(c.oid, 'pg_class'), case when c.relkind = 'v' then pg_get_viewdef(c.oid) end
from pg_class as c where c.relnamespace = 'dbdp'::regnamespace""",
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
    where p.pronamespace = 'dbdp'::regnamespace
    union all
    select c.oid::regclass::text,
        coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))
    from pg_class as c where c.relnamespace = 'dbdp'::regnamespace and c.relkind not in ('i', 'I')
    union all select 'schema', nspacl from pg_namespace where nspname = 'dbdp')
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


@pytest.fixture
def make_old(server_machine: None, make_database: Callable[[], str], server_url: str) -> Iterator[Callable[[str], str]]:
    """Make databases with the extension of a released version."""
    with psycopg.connect(server_url) as connection:
        share = connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0]
    written: list[Path] = []

    def make(version: str) -> str:
        script = RELEASED / f"dbdp--{version}.sql.xz"
        written.append(Path(share) / "extension" / script.stem)
        written[-1].write_bytes(lzma.decompress(script.read_bytes()))
        url = make_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"create extension dbdp schema pg_catalog version '{version}' cascade")
        return url

    yield make
    for path in written:
        path.unlink(missing_ok=True)


def catalogue(url: str) -> dict[str, set[tuple]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set search_path = ''")
        return {name: {tuple(map(str, row)) for row in connection.execute(sql)} for name, sql in CATALOGUE.items()}


@EVERY_VERSION
def test_an_updated_catalogue_is_that_of_a_new_installation(make_database, make_old, version):
    new, old = make_database(), make_old(version)
    with psycopg.connect(new, autocommit=True) as connection:
        connection.execute("create extension dbdp schema pg_catalog cascade")
    with psycopg.connect(old, autocommit=True) as connection:
        connection.execute("alter extension dbdp update")
    expected, found = catalogue(new), catalogue(old)
    assert [name for name, rows in expected.items() if not rows] == ["triggers"]
    for name, rows in expected.items():
        missing, stray = sorted(rows - found[name]), sorted(found[name] - rows)
        assert (missing, stray) == ([], []), f"{name}: change sql/upgrade/{version}--*.sql"


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


@EVERY_VERSION
def test_an_update_keeps_data_odometers_and_views_and_training_goes_on(make_old, version):
    url = make_old(version)
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
        receipt = connection.execute("select receipt from dbdp.dp_logreg('kept', 0.1)").fetchone()[0]
        assert connection.execute("select last_value from dbdp.charge_1").fetchone()[0] == SPENT[0] + round(
            receipt["charge"] * 1e9
        )
        assert [row["outcome"] for row in database.query("select outcome from dbdp.history order by id")] == [
            None,
            None,
            "released",
        ]
        assert connection.execute("select rows, capacity from dbdp.datasets").fetchone() == (60, None)
        connection.execute("insert into rows_of_1 values (0.5, 1, 1)")
        with pytest.raises(psycopg.Error, match=r"61 rows, .* registered with 60; .* dbdp\.raise_capacity"):
            connection.execute("select dbdp.dp_logreg('kept', 0.01)")
        connection.execute("select dbdp.raise_capacity('kept', 'the table grows', 90)")
        receipt = connection.execute("select receipt from dbdp.dp_logreg('kept', 0.01)").fetchone()[0]
        assert (receipt["capacity"], receipt["neighbours"]) == (90, "change-one")
        connection.execute("select setval('dbdp.charge_1', 1)")
        with pytest.raises(psycopg.Error, match="the odometers of the budget of dataset 'kept' were wound back"):
            connection.execute("select dbdp.dp_logreg('kept', 0.1)")


@EVERY_VERSION
def test_an_installation_brings_an_older_database_up_to_date(make_old, version):
    url = make_old(version)
    installer.install(url)
    with psycopg.connect(url) as connection:
        assert connect(connection).query("select count(*) as number from dbdp.history") == [{"number": 0}]


@EVERY_VERSION
def test_an_update_refuses_roles_that_are_not_as_they_must_be(make_old, version):
    with psycopg.connect(make_old(version)) as connection:
        connection.execute("alter role dbdp_owner login")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="dbdp_owner has login"):
            connection.execute("alter extension dbdp update")


def test_every_version_but_this_one_has_its_script_and_a_step_from_it():
    steps = installer._migrations(installer.Source.installed())
    assert list(steps) == VERSIONS
    assert __version__ not in VERSIONS


def test_the_parts_that_an_update_runs_again_make_nothing_that_is_there_already():
    source = installer.Source.installed()
    parts = [part for name, part in source.parts().items() if name not in installer.MADE_ONCE]
    lines = [line for part in parts for line in part.read_text().splitlines() if line.startswith("create ")]
    assert len(lines) > 50
    careless = [line for line in lines if "or replace" not in line and "if not exists" not in line]
    assert all(line.startswith("create policy ") for line in careless)
    assert (
        "drop policy %I on %s" in (source.sql / "policies" / "1-rows.sql").read_text()
    )  # all of them, before it makes them
