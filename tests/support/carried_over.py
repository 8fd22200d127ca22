"""A database in use, and all that an upgrade must carry over."""

import psycopg
import pytest

DECLARED = '{"x": {"length": 3, "norm": 1}}'
ROWS = "array[.1, .2, i / 99.0]::float8[] as x, i % 2 as y from generate_series(1, 60) as i"
FACTS = {
    "odometers": "select sequencename, last_value, sequenceowner from pg_sequences "
    "where schemaname = 'dbdp' order by 1",
    "budgets": "select b.*::text from dbdp.datasets_details as d, dbdp.budget_details(d.name) as b order by 1",
    "allowances": "select a::text from dbdp.allowances_details as a order by 1",
    "predictions": "select m.id, i, encode(float8send(dbdp.predict_probability(m.id, array[.1, .2, i / 99.0])), 'hex') "
    "from dbdp.models as m, generate_series(1, 60) as i order by 1, 2",
    "members": "select roleid::regrole::text, member::regrole::text from pg_auth_members order by 1, 2",
    "rights": "select p.oid::regprocedure::text, p.proowner::regrole::text, a.grantee, a.privilege_type "
    "from pg_proc as p, lateral (select coalesce(nullif(g.grantee, 0)::regrole::text, 'all'), g.privilege_type "
    "from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as g) as a (grantee, privilege_type) "
    "where p.pronamespace = any ('{dbdp,dbdp_internal}'::regnamespace[]) order by 1, 3",
}
TABLES = "select relname from pg_class where relnamespace = 'dbdp'::regnamespace and relkind = 'r' order by 1"


def use(connection: psycopg.Connection) -> None:
    """Register datasets, grant, train named models, leave a charge without an outcome, and fill one budget."""
    connection.execute("create role anna in role dbdp_analyst")
    connection.execute("create role otto in role dbdp_predictor")
    for name, epsilon in (("ample", 3), ("spent", 0.5)):
        connection.execute(f"create table {name} as select {ROWS}")
        registered = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, %s, 1e-6, mode => 'basic')"
        connection.execute(registered, (name, name, DECLARED, epsilon))
    connection.execute("select dbdp.grant_training('ample', 'anna', 1)")
    connection.execute("select dbdp.dp_logreg('spent', 0.5, 1e-8, 'bolt_on', name => 'last')")
    connection.execute("set session authorization anna")
    connection.execute("select dbdp.dp_logreg('ample', 0.2, 1e-8, name => 'readmission')")
    connection.execute("select dbdp.dp_logreg('ample', 0.1, 1e-8, 'bolt_on', name => 'readmission')")
    connection.execute("begin")
    connection.execute("select dbdp.dp_logreg('ample', 0.1, 1e-8)")
    connection.execute("rollback")
    connection.execute("select dbdp.grant_prediction('readmission@2', 'otto')")
    connection.execute("reset session authorization")


def facts(connection: psycopg.Connection) -> dict[str, list[tuple]]:
    """Return the rows of every table of the extension, its odometers, rights, remaining budgets and predictions."""
    names = [name for (name,) in connection.execute(TABLES).fetchall()]
    tables = {name: f"select t::text from dbdp.{name} as t order by 1" for name in names}
    return {what: connection.execute(query.encode()).fetchall() for what, query in (tables | FACTS).items()}


def check_refused(connection: psycopg.Connection) -> None:
    """Check that what the budget, the allowance or a right does not cover is refused."""
    refused = {
        ("postgres", "select dbdp.dp_logreg('spent', 0.1, 1e-8, 'bolt_on')"): "does not cover",
        ("anna", "select dbdp.dp_logreg('ample', 2, 1e-8, 'bolt_on')"): "the allowance of role 'anna'",
        ("anna", "select dbdp.dp_logreg('spent', 0.01, 1e-8)"): "spent",
        ("otto", "select dbdp.predict_probability('readmission@1', '{.1, .2, .3}'::float8[])"): "readmission",
        ("otto", "select dbdp.dp_logreg('ample', 0.1, 1e-8)"): "permission denied",
    }
    for (role, statement), reason in refused.items():
        if role != "postgres":
            connection.execute(f"set session authorization {role}")
        with pytest.raises(psycopg.Error, match=reason):
            connection.execute(statement.encode())
        connection.execute("reset session authorization")


def check_training(connection: psycopg.Connection) -> None:
    """Check that the ledger agrees with the odometers, the lost charge included, and that a grant still trains."""
    checked = "select dataset, ok, unrecorded > 0 from dbdp.check_ledger() order by 1"
    assert connection.execute(checked).fetchall() == [("ample", True, True), ("spent", True, False)]
    connection.execute("set session authorization anna")
    trained = connection.execute("select version from dbdp.dp_logreg('ample', 0.1, 1e-8, name => 'readmission')")
    assert trained.fetchone() == ("readmission@3",)
    connection.execute("reset session authorization")
