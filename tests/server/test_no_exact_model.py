"""What an installed extension has not got: a way to a model without noise, or a switch that turns noise off."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import exact
import psycopg
import pytest

import dbdp
from dbdp.algorithms import Facts, Request, plan
from dbdp.installer import Source
from dbdp.privacy.mechanisms import MECHANISMS

PACKAGE = Path(dbdp.__file__).parent
MEMBERS = """
select p.oid::regprocedure::text, l.lanname, p.prosecdef, p.proowner::regrole::text, p.prosrc,
       has_function_privilege('dbdp_analyst', p.oid, 'execute'), p.prorettype::regtype::text
from pg_depend as d
join pg_proc as p on p.oid = d.objid
join pg_language as l on l.oid = p.prolang
where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
and d.refobjid = (select oid from pg_extension where extname = 'dbdp')"""
# A body takes one name from one of two modules and calls it: what it can do is what that name does.
BODY = re.compile(r'(from dbdp\.(server|scoring) import (\w+)\s+)?return (SD\["dbdp"\]\.)?\w+\(\s*[\w\s,*]*\)\s*')
LEARNING = {"sgd_transition", "sgd_terminate", "sgd_epoch", "shuffle", "charge", "store_release"}
DOORS = {"dp_train", "dp_logreg", "dp_svm", "dp_linreg", "dp_tune"}
SWITCHES = re.compile(r"environ(?:\.get\(|\[)\s*f?[\"']?(\w*)|current_setting\('([\w.]+)'")


def suspects(connection: psycopg.Connection) -> list[str]:
    """Functions of the extension in Python that are not a call of one name of the package's doors."""
    prologue = (Source.installed().plpython / "_prologue.py").read_text().rpartition("\n")[0].splitlines()[-1].strip()
    found = []
    for name, language, *_, source, _, _ in connection.execute(MEMBERS).fetchall():
        body = source.rpartition(prologue)[2].strip() if prologue in source else source
        if language == "plpython3u" and not BODY.fullmatch(body):
            found.append(name)
    return found


def test_every_function_in_python_calls_one_name_of_the_doors(connection: psycopg.Connection) -> None:
    assert suspects(connection) == []


def test_the_hook_would_be_seen_if_it_belonged_to_the_extension(connection: psycopg.Connection) -> None:
    with connection.transaction(force_rollback=True), exact.installed(connection):
        name = f"{exact.SCHEMA}.exact_models(text,json,text[],text)"
        connection.execute(f"alter extension dbdp add function {name}")
        assert suspects(connection) == [name]
        connection.execute(f"alter extension dbdp drop function {name}")


def test_the_hook_is_gone_when_its_test_is_over(connection: psycopg.Connection) -> None:
    with exact.installed(connection):
        assert connection.execute(f"select to_regnamespace('{exact.SCHEMA}')").fetchone() != (None,)
    assert connection.execute(f"select to_regnamespace('{exact.SCHEMA}')").fetchone() == (None,)
    sql = "select count(*) from pg_proc where prosrc like '%train_exactly%'"
    assert connection.execute(sql).fetchone() == (0,)


def test_an_analyst_reaches_training_through_the_doors_that_add_noise_and_no_other_way(
    connection: psycopg.Connection,
) -> None:
    members = connection.execute(MEMBERS).fetchall()
    names = {name.partition("(")[0].removeprefix("dbdp.") for name, *_ in members}
    assert names >= LEARNING | DOORS
    for name, _, definer, owner, _, of_analysts, result in members:
        bare = name.partition("(")[0].removeprefix("dbdp.")
        if bare in LEARNING:  # a state, blocks and the odometer are for roles that may read the table
            assert not of_analysts, name
        if bare in DOORS:
            assert (definer, owner, of_analysts, result) == (True, "dbdp_owner", True, "record"), name
        assert definer == (owner == "dbdp_owner"), name
        if of_analysts and bare not in DOORS:  # no state, no block; array_bytes and row_bytes show their own argument
            assert result != "bytea" or bare in ("array_bytes", "row_bytes"), name
            assert not result.endswith("[]"), name


def calls(name: str) -> Iterator[tuple[str, str]]:
    """Module and function of every place in the package where a function of that name is called."""
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name:
                        yield path.stem, function.name


def test_wherever_the_package_trains_the_next_thing_is_noise() -> None:
    assert set(calls("exact_models")) == {("controller", "exact_model"), ("controller", "_noisy")}
    assert set(calls("exact_model")) == {("controller", "train"), ("controller", "answer")}  # answer is within train
    tree = ast.parse((PACKAGE / "controller.py").read_text(encoding="utf-8"))
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for name in ("answer", "_noisy"):
        found = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name == name]
        assert all(isinstance(function.body[-1], ast.Return) for function in found)
    for name in ("train", "_noisy"):
        source = ast.unparse(functions[name])
        assert source.index(".release(") > source.index("exact_model")


def test_no_option_no_setting_and_no_variable_of_the_environment_is_about_noise() -> None:
    assert not [each.name for each in fields(Request) if re.search("noise|exact|seed|debug|test", each.name)][1:]
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name != "bootstrap.py":  # makes the virtual environment, before there is anything to train with
            for match in SWITCHES.finditer(path.read_text(encoding="utf-8")):
                found.add(match[1] or match[2] or "")
    of_the_server = {"role", "dbdp.pack_memory", "block_size", ""}  # "": threads of BLAS, which are set and not read
    assert found == of_the_server | {"DBDP_HOME", "XDG_DATA_HOME", "DBDP_DATA", "URL_VARIABLE"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6])
def test_however_much_is_paid_there_is_noise(mechanism: str, epsilon: float) -> None:
    """At least a thousand steps of the grid that the model is rounded to."""
    delta = 0.9 if mechanism.endswith("gaussian") else 0.0
    made = plan(Request(epsilon, delta, mechanism=mechanism), Facts(10, 3)).mechanism
    assert made.steps > 1000


REFUSED = {
    "a function in Python": "create function pg_temp.mine() returns int language plpython3u as $$return 1$$",
    "a function in C": "create function pg_temp.mine() returns int language c as 'dbdp', 'mine'",
    "a function of the server": "create function pg_temp.mine() returns int language internal as 'pg_backend_pid'",
    "a block in Python": "do language plpython3u $$ pass $$",
    "the hook's schema": "create schema test_build",
    "a door of another body": "create or replace function dbdp.dp_explain(dataset text) returns json as 'select 1' "
    "language sql",
    "another setting of a door": "alter function dbdp.dp_train reset all",
    "another owner of a door": "alter function dbdp.dp_train owner to current_user",
    "the rights of a door": "alter function dbdp.dp_train security invoker",
    "another member of the extension": "alter extension dbdp drop function dbdp.dp_explain",
    "a trigger on the models": "create trigger t before insert on dbdp.model "
    "execute function tsvector_update_trigger()",
    "a preloaded library": "set session_preload_libraries = 'mine'",
}


@pytest.mark.parametrize("group", ["dbdp_analyst", "dbdp_data_owner"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_role_of_the_extension_can_put_no_code_beside_it(
    connection: psycopg.Connection, group: str, what: str
) -> None:
    connection.execute(f"create role somebody in role {group}")
    try:
        connection.execute("set session authorization somebody")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(REFUSED[what].encode())
    finally:
        connection.execute("reset session authorization; drop role somebody")
