"""The Python interface: every kind of connection, public names for type checkers, refusals and progress."""

import ast
import gc
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

import dbdp
from dbdp.controller import ChargedError
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.keywords import OfClassifiers, OfNetworks, OfRegressors


def targets(url: str) -> dict[str, object]:
    """Return every kind of target that `connect` takes."""
    alchemy = url.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(alchemy)
    return {
        "libpq URL": url,
        "SQLAlchemy URL": alchemy,
        "SQLAlchemy URL object": sqlalchemy.make_url(alchemy),
        "SQLAlchemy engine": engine,
        "SQLAlchemy connection": engine.connect(),
        "psycopg connection": psycopg.connect(url),
    }


@pytest.mark.parametrize(
    "kind",
    [
        "libpq URL",
        "SQLAlchemy URL",
        "SQLAlchemy URL object",
        "SQLAlchemy engine",
        "SQLAlchemy connection",
        "psycopg connection",
    ],
)
def test_connect_takes_every_kind_of_target(kind, server_url, dataset):
    with dbdp.connect(targets(server_url)[kind]) as database:
        model = dbdp.LogisticRegression(epsilon=1, delta=1e-6, algorithm="bolt_on", batch_size=10).fit(
            database, dataset
        )
        assert model.coef_.shape == (1, 3)
        database.connection.rollback()


def test_a_lent_connection_is_not_collected_while_it_is_used(server_url):
    """SQLAlchemy resets a connection whose object is gone: in the middle of a statement that would wait for itself."""
    engine = sqlalchemy.create_engine(server_url.replace("postgresql://", "postgresql+psycopg://"))
    database = dbdp.connect(engine.connect())
    gc.collect()
    assert engine.pool.checkedout() == 1
    del database
    gc.collect()
    assert engine.pool.checkedout() == 0


def test_connect_reads_the_environment(server_url, monkeypatch):
    monkeypatch.setenv("DBDP_URL", server_url)
    with dbdp.connect() as database:
        assert isinstance(database.datasets(), list)


def test_every_epoch_is_one_query_and_is_reported(database, dataset):
    reports: list[tuple[str, int, int]] = []
    request = dbdp.Request(epsilon=1, delta=1e-6, algorithm="bolt_on", epochs=4, batch_size=10)
    database.train(dataset, request, lambda *report: reports.append(report))
    assert reports == [("shuffle", 0, 1), ("shuffle", 1, 1), *(("epoch", done, 4) for done in range(5))]


def test_client_and_server_return_the_same_plan(database, dataset, connection):
    request = dbdp.Request(epsilon=1, delta=1e-6, algorithm="bolt_on", epochs=4, batch_size=7)
    in_server = connection.execute(
        "select dbdp.dp_explain(%s, epsilon => 1, delta => 1e-6, algorithm => 'bolt_on', epochs => 4, batch_size => 7)",
        (dataset,),
    ).fetchone()
    assert in_server == (database.explain(dataset, request),)


def test_a_data_dictionary_becomes_a_proposal():
    """A data dictionary becomes a proposal and never looks at data."""
    proposed = dbdp.propose_declaration({"age": {"minimum": 0, "maximum": 120}, "ward": {"values": ["A", "B"]}})
    assert proposed == {"age": [0.0, 120.0], "ward": ["A", "B"]}
    with pytest.raises(ValueError, match="'weight'"):
        dbdp.propose_declaration({"weight": {"unit": "kg"}})


@pytest.mark.parametrize(
    ("dictionary", "told"),
    [
        ([{"age": 3}], "the dictionary is a list; pass column → description"),
        ({"age": [0, 120]}, r"describes 'age' by \[0, 120\]; write \{\"minimum\""),
        ({"age": {"min": 0}}, 'neither "minimum" and "maximum" nor "values" of \'age\''),
    ],
)
def test_what_is_no_data_dictionary_is_refused_with_its_form(dictionary, told):
    with pytest.raises(ValueError, match=told):
        dbdp.propose_declaration(dictionary)


def test_a_request_of_another_kind_is_refused_with_the_call(database, dataset):
    with pytest.raises(TypeError, match=r"request is \{'epsilon': 1\}; pass dbdp.Request\(epsilon=…\)"):
        database.train(dataset, {"epsilon": 1})
    with pytest.raises(TypeError, match=r"pass dbdp.TuningRequest\(dbdp.Request\(epsilon=…\), \[\{…\}, …\]\)"):
        database.tune(dataset, [{"regularisation": 0.1}])


@pytest.mark.parametrize(
    ("kind", "positive", "negative"), [("boolean", True, None), ("int", 1, None), ("float8", 1.0, 0)]
)
def test_a_positive_value_may_have_the_type_of_its_column(database, schema, kind, positive, negative):
    database.query(f"create table {schema}.typed as select 0.5 as x, 1::int::{kind} as y from generate_series(1, 50)")
    database.register_dataset(
        f"{schema}_typed",
        f"{schema}.typed",
        label="y",
        positive=positive,
        negative=negative,
        features={"x": [0, 1]},
        epsilon=1,
        delta=1e-6,
    )
    declared = database.query("select declaration from dbdp.datasets_details where name = $1", f"{schema}_typed")
    assert declared[0]["declaration"]["positive"] == ("true" if positive is True else "1")


def test_a_connection_shows_where_it_is_and_whether_it_is_closed(server_url):
    with dbdp.connect(server_url) as database:
        row = database.query("select pg_catalog.current_database() as name, session_user as role")[0]
        assert repr(database) == f"<Database {row['name']!r} of role {row['role']!r}>"
    assert repr(database) == "<Database: closed>"


def test_candidates_understand_other_spellings(database, dataset):
    """Candidates take american spelling and refuse words of scikit learn with ours."""
    base = dbdp.Request(epsilon=1, delta=1e-6)
    both = [dbdp.TuningRequest(base, ({word: 0.1},)) for word in ("regularization", "regularisation")]
    assert both[0] == both[1]
    with pytest.raises(ValueError, match="in two spellings"):
        dbdp.TuningRequest(base, ({"regularization": 0.1, "regularisation": 0.1},))
    for setting, remedy in (("C", "pass radius"), ("epoch", "did you mean 'epochs'")):
        with pytest.raises(ValueError, match=f"sets {setting}; it may set .*{remedy}"):
            database.explain_tuning(dataset, dbdp.TuningRequest(base, ({setting: 3},)))


def test_a_password_in_a_sqlalchemy_url_is_used(server_url, monkeypatch):
    given: list[str] = []
    monkeypatch.setattr(psycopg, "connect", lambda url, **_: given.append(url))
    with pytest.raises(AttributeError):  # there is no connection
        dbdp.connect(sqlalchemy.make_url("postgresql+psycopg://me:secret@host/db"))
    assert given == ["postgresql://me:secret@host/db"]


def test_a_wrong_target_is_named(server_url):
    engine = sqlalchemy.create_engine(server_url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        with pytest.raises(ValueError, match=r"a SQLAlchemy Session; pass its connection, session\.connection\(\)"):
            dbdp.connect(session)
        assert dbdp.connect(session.connection()).datasets() is not None
    with pytest.raises(ValueError, match="the target is a dict; pass a URL"):
        dbdp.connect({"host": "here"})


def test_a_text_is_refused_as_a_list_of_groups(database):
    for function in (database.train_groups, database.explain_groups):
        with pytest.raises(ValueError, match=r"groups = 'north' would be one group for each letter.*\['north'\]"):
            function("points", dbdp.Request(epsilon=1), group_by="hospital", groups="north")


# --- errors -------------------------------------------------------------------------------------------------


def test_what_the_server_refuses_is_a_value_error(database, dataset):
    with pytest.raises(ValueError, match=r"^epsilon = -1\.0 must be positive") as refused:
        database.explain_in_server(dataset, dbdp.Request(epsilon=-1))
    assert isinstance(refused.value, psycopg.DatabaseError)
    assert refused.value.sqlstate == refused.value.diag.sqlstate == "DP001"
    assert "CONTEXT" not in str(refused.value)
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize("state", ["DP001", "P0001"])
def test_a_failure_in_the_server_is_a_charged_error(connection, database, dataset, schema, monkeypatch, state):
    """Whatever SQLSTATE it has: that of a refusal too."""
    monkeypatch.setattr(Database, "_trains_here", lambda *_: False)
    connection.execute(f"""
create function {schema}.refuse() returns boolean language plpgsql as $$
begin raise 'no room' using errcode = '{state}'; end $$;
grant execute on function {schema}.refuse() to public;
alter table dbdp.model add constraint refuse check ({schema}.refuse()) not valid""")
    try:
        with pytest.raises(ChargedError, match=r"^training failed after it was charged; .*refunded: ") as stopped:
            database.train(dataset, dbdp.Request(epsilon=1, delta=1e-6, algorithm="bolt_on", batch_size=10))
    finally:
        connection.execute("alter table dbdp.model drop constraint refuse")
    assert not isinstance(stopped.value, ValueError)
    assert isinstance(stopped.value, psycopg.DatabaseError)
    assert stopped.value.sqlstate == state
    assert str(pickle.loads(pickle.dumps(stopped.value))) == str(stopped.value)
    assert float(database.budget(dataset)["charged"]) > 0


def test_candidates_take_scalars_of_numpy(database, dataset):
    base = dbdp.Request(epsilon=np.float64(1), delta=1e-6, algorithm="bolt_on", batch_size=np.int64(5))
    request = dbdp.TuningRequest(base, [{"epochs": np.int64(2)}, {"regularisation": np.float32(0.5)}])
    model = database.tune(dataset, request)
    assert model.receipt["candidates"] == [{"epochs": 2}, {"regularisation": 0.5}]


# --- types --------------------------------------------------------------------------------------------------

TYPED = """
import dbdp

request = dbdp.Request(epsilon=1, delta=1e-6)
reveal_type(dbdp.TuningRequest(request, ({"epochs": 3},)))
reveal_type(dbdp.LogisticRegression(epsilon=1, classes=["a", "b"]))
dbdp.LogisticRegression(epsilon="x")
dbdp.Ridge(epsilon=1, classes=["a", "b"])
dbdp.HuberRegressor()
dbdp.LogisticRegresion(epsilon=1)
with dbdp.connect() as database:
    database.trian()
"""
ERRORS = {7: "arg-type", 8: "call-arg", 9: "call-arg", 10: "attr-defined", 12: "attr-defined"}


def test_a_type_checker_sees_every_public_name():
    tree = ast.parse(Path(dbdp.__file__).read_text())
    imports = (
        each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("dbdp")
    )
    assert {name.asname: each.module for each in imports for name in each.names} == dbdp._PLACES


def test_a_shell_completes_every_public_name_without_import():
    code = "import sys, dbdp; print(*dir(dbdp)); print(sum(name.startswith('dbdp.') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    names, loaded = done.stdout.splitlines()
    assert set(names.split()) == {*dbdp.__all__, "__version__"}
    assert loaded == "0"


@pytest.mark.parametrize(
    ("estimator", "typed"),
    [(dbdp.LogisticRegression, OfClassifiers), (dbdp.Ridge, OfRegressors), (dbdp.MLPClassifier, OfNetworks)],
)
def test_a_type_checker_sees_the_keywords_of_the_estimators(estimator, typed):
    hints = get_type_hints(typed)
    parameters = dict(list(inspect.signature(estimator).parameters.items()))
    assert set(hints) == set(parameters)
    assert typed.__required_keys__ == {"epsilon"}
    for name, each in parameters.items():
        if each.annotation is not inspect.Parameter.empty and name not in (
            "settings",
            "pairs",
            "monotone",
            "cohort",
        ):  # which take others too
            assert hints[name] == each.annotation, name


@pytest.mark.slow
def test_mypy_reports_wrong_types_in_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TYPED)
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", str(script)],
        env=os.environ | {"MYPYPATH": str(Path(dbdp.__file__).parents[1])},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    errors = [line.split(":") for line in result.splitlines() if line.startswith("script.py") and "error" in line]
    assert {int(number): text.rpartition("[")[2].rstrip("]") for _, number, *_, text in errors} == ERRORS, result
    assert result.count("dbdp.interfaces.python.estimators.linear.LogisticRegression") >= 1
    assert result.count("dbdp.algorithms.combined.tuning.TuningRequest") == 1
