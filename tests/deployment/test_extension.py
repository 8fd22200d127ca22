"""The extension is created and dropped completely, imports from one place, and grants nothing to the public."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psycopg
import pytest
from servers import execute

from dbdp import __version__
from dbdp.deployment.extension import installer, script
from dbdp.interfaces.python.client.connecting import connect

TRAIN = "select model from dbdp.dp_logreg(%s, epsilon => 1)"
# A query calls these for each row, where a setting would cost as much as predicting: sql/functions/6-prediction.sql.
PER_ROW = {"predict", "predict_probability", "predict_stored", "probability", "probability_stored"}
PER_ROW |= {"predict_class", "predict_class_stored", "predict_value", "predict_value_stored"}
PER_ROW |= {"predict_probabilities", "probabilities", "probabilities_stored"}
PER_ROW |= {"knows", "fits", "try_learn", "model_description"}
# Aggregates, and functions of the server itself, look nothing up.
IN_C = {
    "array_bytes",
    "array_size",
    "row_bytes",
    "row_sent",
    "sgd_epoch",
    "count_errors",
    "noisy_steps",
    "gradient_sum",
    "loss_sum",
}
IN_C |= {"label_counts", "tally", "second_moment", "joint_moment", "measured_gradient_sum"}
LEFT_BY_EXTENSION = """
select classid::regclass::text, objid from pg_depend
where refclassid = 'pg_namespace'::regclass
and refobjid in (to_regnamespace('dbdp')::oid, to_regnamespace('dbdp_internal')::oid)
union all select 'schema', oid from pg_namespace where nspname in ('dbdp', 'dbdp_internal')
union all select 'class', oid from pg_class where relnamespace not in (select oid from pg_namespace)
union all select 'owned', objid from pg_shdepend
where refobjid = 'dbdp_owner'::regrole and deptype = 'o'
and dbid in (0, (select oid from pg_database where datname = current_database()))"""
GRANTS = """
select relname from pg_class, aclexplode(relacl) as a
where a.grantee in (select oid from pg_roles where rolname like 'dbdp%%')
and relnamespace = %s::regnamespace"""
OPEN_TO_PUBLIC = """
select p.oid::regprocedure::text from pg_proc as p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
where p.pronamespace = any ('{dbdp,dbdp_internal}'::regnamespace[]) and a.grantee = 0"""
WHERE = "create or replace function where_is_dbdp() returns text[] language plpython3u as $$\n{}\n$$"
WHERE_BODY = """import dbdp, numpy
from dbdp.interfaces.sql import functions
return [dbdp.__file__, functions.__file__, numpy.__file__]"""


@pytest.fixture
def fresh(make_database: Callable[..., str]) -> str:
    """URL of a new database with the extension."""
    url = make_database()
    execute(url, "create extension dbdp cascade")
    return url


@pytest.fixture
def copy(make_database: Callable[..., str]) -> str:
    """URL of an empty database to restore into."""
    return make_database()


def trained(connection: psycopg.Connection, name: str = "kept") -> None:
    """Make a table, a dataset and a model."""
    connection.execute(
        f"create table {name} as select array[0.1, 0.2, i]::float8[] x, i %% 2 y from generate_series(1, 60) i", ()
    )
    declared = '{"x": {"length": 3, "norm": 100}}'
    sql = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 100, 0, mode => 'basic')"
    connection.execute(sql, (name, name, declared))
    connection.execute(TRAIN, (name,))


def python_directory(connection: psycopg.Connection) -> Path:
    share = connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0]
    return Path(share) / "dbdp" / __version__


@contextmanager
def renamed(path: Path) -> Iterator[None]:
    away = path.with_name(path.name + ".away")
    path.rename(away)
    try:
        yield
    finally:
        away.rename(path)


@contextmanager
def changed(path: Path, old: str, new: str) -> Iterator[None]:
    """Replace a text in a module; Python compares compiled modules by seconds and sizes, so the seconds differ."""
    content, before = path.read_text(), path.stat()
    assert old in content
    try:
        path.write_text(content.replace(old, new))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**10))
        yield
    finally:
        path.write_text(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_drop_extension_leaves_nothing_behind(fresh):
    with psycopg.connect(fresh, autocommit=True) as connection:
        trained(connection)
        assert len(connection.execute(LEFT_BY_EXTENSION).fetchall()) > 20
        connection.execute("drop extension dbdp")
        assert connection.execute(LEFT_BY_EXTENSION).fetchall() == []
        assert connection.execute("select count(*) from kept").fetchone() == (60,)


def test_a_closed_dataset_leaves_no_grant_on_the_table(fresh):
    with psycopg.connect(fresh, autocommit=True) as connection:
        trained(connection)
        assert connection.execute(GRANTS, ("public",)).fetchall() == [("kept",)]
        connection.execute("select dbdp.drop_dataset('kept')")
        assert connection.execute(GRANTS, ("public",)).fetchall() == []


def test_the_extension_can_be_created_again(fresh):
    for _ in range(2):
        with psycopg.connect(fresh, autocommit=True) as connection:
            trained(connection)
            connection.execute("drop extension dbdp; drop table kept; create extension dbdp cascade")
            assert connection.execute("select count(*) from dbdp.models_details").fetchone() == (0,)


def test_new_extension_in_old_session_uses_its_own_models(fresh):
    """Model 1 of the new extension is another model than model 1 of the old one."""
    sql = "select dbdp.predict_probability(1, array[1, 2, 3]::float8[])"
    with psycopg.connect(fresh, autocommit=True) as connection:
        trained(connection)
        before = connection.execute(sql).fetchone()
        connection.execute("drop extension dbdp; drop table kept; create extension dbdp")
        trained(connection)
        after = connection.execute(sql).fetchone()
        with psycopg.connect(fresh) as other:
            assert after == other.execute(sql).fetchone()
        assert after != before


@pytest.mark.parametrize("schema", installer.SCHEMAS)
def test_a_foreign_schema_of_that_name_is_not_taken_over(fresh, schema):
    with psycopg.connect(fresh, autocommit=True) as connection:
        connection.execute(f"drop extension dbdp; create schema {schema}")
        with pytest.raises(psycopg.errors.DuplicateSchema):
            connection.execute("create extension dbdp")


PREPARED = {
    "a login": ("alter role dbdp_analyst login", "dbdp_analyst has login"),
    "rights of the server": ("alter role dbdp_owner superuser bypassrls", "dbdp_owner has superuser, bypassrls"),
    "a member": ("create role intruder; grant dbdp_owner to intruder", "intruder is a member of dbdp_owner"),
    "a member of a superuser that is a member": (
        "create role chief superuser; grant dbdp_owner to chief; create role helper; grant chief to helper",
        "chief is a member of dbdp_owner",
    ),
    "what it makes is lent": (
        "create role intruder; alter default privileges for role dbdp_owner grant update on sequences to intruder",
        "intruder may use sequences that dbdp_owner creates",
    ),
    "what it makes in a schema is lent": (
        "alter default privileges for role dbdp_owner in schema public grant select on tables to public",
        "public may use tables that dbdp_owner creates",
    ),
}


@pytest.mark.parametrize("name", PREPARED)
def test_prepared_role_is_refused_until_the_remedy(copy, name):
    """A role that somebody prepared is refused until the remedy is done."""
    prepare, fault = PREPARED[name]
    with psycopg.connect(copy) as connection:
        connection.execute(prepare.encode())
        refusal = pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=fault)
        with refusal as refused, connection.transaction():
            connection.execute("create extension dbdp cascade")
        connection.execute((refused.value.diag.message_hint or "").encode())
        connection.execute("create extension dbdp cascade")
        connection.rollback()


def test_a_superuser_may_be_a_member_of_the_owner_role(copy):
    with psycopg.connect(copy) as connection:
        connection.execute("create role chief superuser; grant dbdp_owner to chief")
        connection.execute("create extension dbdp cascade")
        connection.rollback()


def test_owner_of_the_database_cannot_drop_the_extension(fresh):
    """Who owns the database and its schemas cannot drop the extension."""
    name = f"landlord_{secrets.token_hex(4)}"
    with psycopg.connect(fresh, autocommit=True) as connection:
        connection.execute(f"create role {name}; alter schema public owner to {name}; set role {name}")
        connection.execute("drop schema public cascade; reset role")
        assert connection.execute("select count(*) from dbdp.datasets_details").fetchone() == (0,)
        connection.execute(f"drop role {name}")


@pytest.mark.parametrize("place", ["", "schema public"])
def test_extension_belongs_to_pg_catalog_always(copy, place):
    """The extension belongs to pg_catalog, even if another schema is requested."""
    with psycopg.connect(copy, autocommit=True) as connection:
        connection.execute(f"create extension dbdp {place} cascade".encode())
        result = connection.execute("select extnamespace::regnamespace::text from pg_extension where extname = 'dbdp'")
        assert result.fetchone() == ("pg_catalog",)


def test_client_of_another_version_is_refused_with_both(connection):
    """A client of another version is refused with both versions."""
    set_version = "update pg_extension set extversion = %s where extname = 'dbdp'"
    try:
        connection.execute(set_version, ("0.0.9",))
        with pytest.raises(ValueError, match=f"server has dbdp 0.0.9, this Python has {__version__}; install the same"):
            connect(connection)
    finally:
        connection.execute(set_version, (__version__,))


def test_database_without_extension_names_the_remedy(fresh):
    """A database without the extension is refused with the remedy."""
    with psycopg.connect(fresh, autocommit=True) as connection:
        connection.execute("drop extension dbdp")
        with pytest.raises(ValueError, match="dbdp is not in this database; run `dbdp install"):
            connect(connection)


@pytest.mark.usefixtures("server_machine")
def test_a_package_of_another_version_in_the_server_is_refused(fresh):
    with psycopg.connect(fresh) as connection:
        init = python_directory(connection) / "dbdp" / "__init__.py"
    with changed(init, __version__, "0.0.9"), psycopg.connect(fresh) as connection:
        with pytest.raises(
            psycopg.Error, match=f"dbdp is {__version__}, its Python package in the server is 0.0.9"
        ) as error:
            connection.execute("select dbdp.dp_explain('any', epsilon => 1)")
        assert "run `dbdp install`" in error.value.diag.message_hint
    with psycopg.connect(fresh) as connection, pytest.raises(psycopg.Error, match="is not registered"):
        connection.execute("select dbdp.dp_explain('any', epsilon => 1)")


@pytest.mark.usefixtures("server_machine")
def test_a_server_that_cannot_import_dbdp_names_the_remedy(fresh):
    with psycopg.connect(fresh) as connection:
        directory = python_directory(connection)
    with renamed(directory), psycopg.connect(fresh) as connection:
        with pytest.raises(psycopg.Error, match="PL/Python cannot import dbdp") as error:
            connection.execute("select dbdp.dp_explain('any', epsilon => 1)")
        assert "run `dbdp install`" in error.value.diag.message_hint
        assert str(directory) in error.value.diag.message_hint


def test_nothing_that_a_role_can_set_moves_the_import(server_url, tmp_path):
    package = tmp_path / "dbdp"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = 'evil'")
    settings = ["dbdp.path", "dbdp.python_path", "dbdp.python_directory", "dbdp.module_pathname", "dbdp.home"]
    settings += ["plpython3.path", "plpython.python_path", "python.path", "dbdp.PYTHONPATH", "plpython3u.sys_path"]
    options = " ".join(f"-c {name}={tmp_path}" for name in settings)
    with psycopg.connect(server_url, autocommit=True, options=options) as connection:
        connection.execute("create role ordinary in role dbdp_analyst")
        try:
            connection.execute("set session authorization ordinary")
            for name in (*settings, "search_path"):
                connection.execute("select set_config(%s, %s, false)", (name, str(tmp_path)))
            with pytest.raises(psycopg.Error, match="is not registered"):
                connection.execute("select dbdp.dp_explain('any', epsilon => 1)")
            refused = []
            for name in ("dynamic_library_path", "session_preload_libraries"):
                try:
                    connection.execute("select set_config(%s, %s, false)", (name, str(tmp_path)))
                except psycopg.errors.InsufficientPrivilege:
                    refused.append(name)
            assert len(refused) == 2
        finally:
            connection.execute("reset session authorization; reset search_path; drop role ordinary")
        connection.execute(WHERE.format(WHERE_BODY))
        result = connection.execute("select where_is_dbdp()").fetchone()[0]
        connection.execute("drop function where_is_dbdp")
        home = str(python_directory(connection))
    assert all(path.startswith(home) for path in result)


def test_a_role_cannot_name_a_module_of_its_own(connection, schema):
    """sys.path begins with the installed folder, and holds none that a role could write to."""
    connection.execute("select dbdp_internal.model_description(1)")
    with pytest.raises(psycopg.Error, match="is not registered"):
        connection.execute("select dbdp.dp_explain('any', epsilon => 1)")
    connection.execute(WHERE.format("import sys\nreturn sys.path"))
    path = connection.execute("select where_is_dbdp()").fetchone()[0]
    assert path[0] == str(python_directory(connection))
    assert "" not in path
    assert "." not in path


def test_a_backend_has_one_thread(connection, make_table, register):
    random = np.random.default_rng(1)
    table = make_table("threads", random.normal(size=(3000, 40)), random.integers(0, 2, 3000))
    name = register(table, features={"x": {"length": 40, "norm": 1}})
    connection.execute(TRAIN, (name,))
    connection.execute(WHERE.format("import numpy\nnumpy.ones((700, 700)) @ numpy.ones((700, 700))\nreturn []"))
    connection.execute("select where_is_dbdp()")  # BLAS itself, which starts its threads when it is loaded
    tasks = Path(f"/proc/{connection.info.backend_pid}/task")
    if not tasks.exists():
        pytest.skip("the server is not on this machine")
    assert len(list(tasks.iterdir())) == 1


def test_every_function_of_an_interface_pins_its_search_path(connection):
    rows = connection.execute(
        "select proname, proconfig from pg_proc where pronamespace = any ('{dbdp,dbdp_internal}'::regnamespace[])"
    ).fetchall()
    names = {name for name, _ in rows}
    assert names >= {"predict", "dp_logreg", "dp_explain", "shuffle", "charge", "register_dataset"}
    for name, settings in rows:
        if name in PER_ROW | IN_C:
            continue
        assert "search_path=pg_catalog, pg_temp" in (settings or []), name


def test_no_function_table_or_sequence_is_open_to_the_public(connection, make_table, register):
    register(make_table("open_to_none", np.ones((3, 3)), np.ones(3)))
    results = {name for (name,) in connection.execute(OPEN_TO_PUBLIC).fetchall()}
    of_arrays = {
        f"dbdp_internal.{name}({type_name}[])"
        for name in ("array_bytes", "array_size")
        for type_name in ("double precision", "real")
    }
    # For owners of tables: of their own arrays, and for a name that only the read has which calls it.
    assert results == of_arrays | {"dbdp_internal.receive(text,bytea)"}
    relations = """
select relname from pg_class as c, aclexplode(coalesce(c.relacl, acldefault(
    case c.relkind when 'S' then 'S' else 'r' end::"char", c.relowner))) as a
where c.relnamespace = 'dbdp'::regnamespace and a.grantee = 0 and c.relkind in ('r', 'v', 'S')"""
    assert connection.execute(relations).fetchall() == []


def test_no_function_has_owners_rights_nor_dbdp_owner_power(connection):
    """No function runs with its owner's rights, and dbdp_owner has no power."""
    definers = (
        "select count(*) filter (where prosecdef), count(*) > 50 from pg_proc "
        "where pronamespace = any ('{dbdp,dbdp_internal}'::regnamespace[])"
    )
    assert connection.execute(definers).fetchone() == (1, True)
    only = "select proname, prolang = (select oid from pg_language where lanname = 'sql') from pg_proc where prosecdef"
    assert connection.execute(only).fetchall() == [("vouched", True)]  # which shows nothing
    powers = "rolsuper or rolcreaterole or rolcreatedb or rolcanlogin or rolreplication or rolbypassrls"
    assert connection.execute(f"select {powers} from pg_roles where rolname = 'dbdp_owner'").fetchone() == (False,)


@pytest.mark.usefixtures("server_machine")
def test_the_script_that_runs_is_the_one_in_the_repository(connection):
    folder = (
        Path(connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0]) / "extension"
    )
    for name, content in script.render_extension(python_directory(connection)).items():
        assert (folder / name).read_text() == content
