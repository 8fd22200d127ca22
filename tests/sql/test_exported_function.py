"""Predictions of an exported function are those of dbdp, for every kind of column, label and value."""

import json
import re
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import psycopg
import pyarrow
import pytest
from click.testing import CliRunner
from psycopg import sql
from psycopg.rows import dict_row
from released import stored

import dbdp
from dbdp.interfaces.cli.main import app
from dbdp.registry.declarations import declare
from dbdp.registry.results.exporting.exported_function import ExportedModel, functions
from dbdp.registry.results.exporting.sql_dialects import dialect_named

Register = Callable[..., str]

TABLE = """
create table t as
select (array[null, 'NaN', 'Infinity', '-Infinity', -1e300, -7, -1, 0, 1, 1.25, 2.5, 3.999999, 4, 11, 1e300])
    [1 + i % 15]::float8 as a,
  i % 101 - 50 as b, (i % 2)::int2 as flag, (array['A', 'B', 'it''s \\ "', null, 'no', ''])[1 + i % 6] as ward,
  (array['u', 'v', null])[1 + i % 3] as other, {label} as y
from generate_series(0, 1499) as i"""
PLAIN: dict[str, Any] = {
    "a": [-1, 4],
    "b": [-50, 50],
    "flag": [0, 1],
    "ward": ["A", "B", "it's \\ \""],
    "other": ["u", "v"],
}
DECLARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # features, and entries of the receipt
    "lines": (PLAIN, {}),
    "bins": (PLAIN | {"a": {"bounds": [-1, 4], "bins": 5}, "b": {"bounds": [-50, 50], "bins": 2}}, {}),
    "a scale": (
        PLAIN
        | {"a": {"bounds": [-1e6, 1e7], "scale": "asinh"}, "b": {"bounds": [-50, 50], "scale": "asinh", "bins": 4}},
        {},
    ),
    "curves": (PLAIN | {"a": {"bounds": [-1e6, 1e7], "scale": "asinh"}}, {"knots": 8}),
    "two knots": (PLAIN, {"knots": 2}),
    "null is a coordinate": (
        PLAIN
        | {
            "a": {"bounds": [-1, 4], "missing": "indicator"},
            "b": {"bounds": [-50, 50], "bins": 3, "missing": "indicator"},
        }
        | {
            "ward": {"categories": ["A", "B"], "missing": "category"},
            "other": {"categories": ["u"], "missing": "category"},
        },
        {},
    ),
    "null has no answer": (
        PLAIN
        | {"a": {"bounds": [-1, 4], "missing": "required"}, "ward": {"categories": ["A", "B"], "missing": "required"}},
        {},
    ),
    "null is a number": (PLAIN | {"a": {"bounds": [-1, 4], "bins": 5, "missing": 2}}, {}),
    "pairs": (PLAIN, {"pairs": "a*b,a*ward,ward*other", "pair_cells": 30}),
    "pairs of curves": (
        PLAIN | {"ward": {"categories": ["A", "B"], "missing": "category"}},
        {"knots": 4, "pairs": "a*b,b*ward", "pair_cells": 60, "pair_bins": 8},
    ),
}
THREE = {"positive": None, "classes": ["0", "1", "it's"]}
LABELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # values, registration, entries of the receipt
    "two classes": ("i % 2", {}, {}),
    "classes": ("(array['0', '1', 'it''s'])[1 + i % 3]", THREE, {}),
    "softmax": ("(array['0', '1', 'it''s'])[1 + i % 3]", THREE, {"loss": "logistic", "classes": "softmax"}),
    "one against the rest": ("(array['0', '1', 'it''s'])[1 + i % 3]", THREE, {"loss": "logistic"}),
    "a number": ("i % 9", {"positive": None, "label_bounds": [-3, 5]}, {}),
}
OWN = {"two classes": "predict_probability", "classes": "predict_class", "a number": "predict_value"}
ENGINES = ("postgresql", "duckdb")


def exported(
    connection: psycopg.Connection, engine: str, label: str, model: int, columns: str, arguments: str
) -> list[Any]:
    """Return the predictions of each row of t by the model's function in an engine, in the order of t."""
    text = connection.execute("select dbdp.export_sql(%s, 'exported', %s)", (model, engine)).fetchone()[0]
    call = f"exported{'' if label in OWN else '_probabilities'}({arguments})"
    if engine == "postgresql":
        connection.execute(text)
        return [found for (found,) in connection.execute(f"select {call} from t order by ctid")]
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(f"select {columns} from t order by ctid").fetchall()
    with duckdb.connect() as other:
        other.register("t", pyarrow.Table.from_pylist(rows))
        other.execute(text)
        found = [each for (each,) in other.execute(f"select {call} from t").fetchall()]
    return found if label in OWN else [None if each is None else json.loads(each) for each in found]


def predicted(connection: psycopg.Connection, label: str, model: int, row: str = "t") -> list[Any]:
    """Return what dbdp predicts of each row of t."""
    own = f"dbdp.{OWN.get(label, 'predict_probabilities')}({model}, {row})"
    return [each for (each,) in connection.execute(f"select {own} from t order by ctid")]


def check_equal(expected: list[Any], found: list[Any]) -> None:
    """Check that both sides have an answer or none, and are equal to 1e-12."""
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert (one is None) == (other is None)
        if one is None or isinstance(one, str):
            assert one == other
        else:
            assert other == pytest.approx(one, rel=1e-12, abs=1e-12), (one, other)


def drawn(connection: psycopg.Connection, name: str, outputs: int, receipt: dict[str, Any]) -> int:
    """Store a model with random numbers, as many as a refusal asks for."""
    with pytest.raises(psycopg.Error) as refused, connection.transaction():
        stored(connection, name, [0.0], [0.0], **receipt)
    width = int(re.search(r"needs \((?:3, )?(\d+),?\)", str(refused.value))[1])
    random = np.random.default_rng()
    coefficients = random.normal(size=(outputs, width) if outputs > 1 else width)
    return stored(connection, name, coefficients.tolist(), random.normal(size=outputs).tolist(), **receipt)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("case", DECLARED)
def test_a_function_predicts_what_dbdp_does(connection, register, case, label):
    features, receipt = DECLARED[case]
    values, kind, of_label = LABELS[label]
    connection.execute(TABLE.format(label=values))
    name = register("t", features=json.dumps(features), **kind)
    model = drawn(connection, name, 3 if "classes" in kind else 1, receipt | of_label)
    columns, expected = "a, b, flag, ward, other", predicted(connection, label, model)
    for engine in ENGINES:
        check_equal(expected, exported(connection, engine, label, model, columns, columns))
    answered = [each for each in expected if each is not None]
    assert (len(answered) < len(expected)) == (case == "null has no answer")
    assert label == "classes" or len(set(map(str, answered))) > 20


ARRAYS = [
    ["1,2,3", "0,0,0", "-4,1e5,.5"],
    ["1,null,3", "1,NaN,3", "Infinity,1,1", "1,1,-Infinity"],
]  # with a prediction


@pytest.mark.parametrize("length", [3, 203])
@pytest.mark.parametrize("label", LABELS)
def test_a_function_of_an_array_predicts_what_dbdp_does(connection, register, label, length):
    values, kind, of_label = LABELS[label]
    arrays = [f"'{{{each}{',0.5' * (length - 3)}}}'" for part in ARRAYS for each in part]
    listed = ", ".join(f"({place}, {each})" for place, each in enumerate([*arrays, "null"]))
    connection.execute(f"create table t as select x::float8[] as x, {values} as y from (values {listed}) as t(i, x)")
    name = register("t", features=json.dumps({"x": {"length": length, "norm": 4}}), **kind)
    model = drawn(connection, name, 3 if "classes" in kind else 1, of_label)
    expected = predicted(connection, label, model, "x")
    assert [each is None for each in expected] == [False] * 3 + [True] * 5
    for engine in ENGINES:
        check_equal(expected, exported(connection, engine, label, model, "x", "x"))
    wrong = "select exported('{1,2}'), exported('{{1,2,3}}'), exported('{1,2,3,4}'), exported('{}')"
    assert connection.execute(wrong).fetchone() == (None,) * 4
    moved = "select exported(format('[0:%%s]=%%s', %s::int, x)::float8[]), exported(x) from t where x is not null"
    assert all(one == other for one, other in connection.execute(moved, (length - 1,)))


def made(connection: psycopg.Connection, model: int) -> None:
    """Create the function of a model."""
    connection.execute(connection.execute("select dbdp.export_sql(%s, 'exported')", (model,)).fetchone()[0])


@pytest.mark.parametrize("label", OWN)
def test_a_function_of_columns_costs_no_call(connection, register, label):
    """The planner replaces it by its expression, so that it is computed in place, in parallel workers too."""
    values, kind, _ = LABELS[label]
    connection.execute(TABLE.format(label=values))
    model = drawn(connection, register("t", features=PLAIN, **kind), 3 if "classes" in kind else 1, {"knots": 8})
    made(connection, model)
    plan = connection.execute("explain (verbose) select exported(a, b, flag, ward, other) from t").fetchall()
    assert "exported" not in str(plan) and "width_bucket" in str(plan)


def test_a_function_of_an_array_costs_no_call(connection, dataset):
    made(connection, stored(connection, dataset, [1.0, 2.0, 3.0], [0.5]))
    plan = connection.execute("explain (verbose) select exported(x) from t").fetchall()
    assert "exported" not in str(plan) and "cardinality" in str(plan)


TRAINED = ("preconditioned_gd", "naive_bayes", "private_splines", "objective_perturbation", "bolt_on")


@pytest.mark.parametrize("algorithm", TRAINED)
def test_a_trained_model_predicts_where_dbdp_is_not(connection, register, make_database, algorithm):
    """Its probabilities are calibrated, if its algorithm does that; the other database has no extension."""
    connection.execute(TABLE.format(label="i % 2"))
    training = "select model from dbdp.dp_train(%s, epsilon => 9, delta => 1e-6, algorithm => %s)"
    model = connection.execute(training, (register("t", features=json.dumps(PLAIN)), algorithm)).fetchone()[0]
    columns = "a, b, flag, ward, other"
    rows = connection.execute(f"select {columns} from t order by ctid").fetchall()
    with psycopg.connect(make_database()) as other:
        other.execute(connection.execute("select dbdp.export_sql(%s, 'exported')", (model,)).fetchone()[0])
        other.execute("create table t (a float8, b int, flag int2, ward text, other text)")
        with other.cursor().copy("copy t from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        assert other.execute("select count(*) from pg_extension where extname <> 'plpgsql'").fetchone() == (0,)
        named = ", ".join(f"{each} => {each}" for each in columns.split(", "))
        found = [each for (each,) in other.execute(f"select exported({named}) from t order by ctid")]
    check_equal(predicted(connection, "two classes", model), found)


def test_names_and_texts_are_what_they_were(connection, schema):
    """Also of characters that a terminal obeys, whatever standard_conforming_strings is."""
    written, quoted = dialect_named("postgresql").written, dialect_named("postgresql").quoted
    for text in ("it's", 'a "b" c', "a\\b", "\x1b]0;p\x07", "\u202e\U000e0041", "größe", "E'\\'"):
        for value in ("on", "off"):
            connection.execute(f"set standard_conforming_strings = {value}")
            assert written(text).isprintable()
            assert connection.execute(sql.SQL(f"select {written(text)}")).fetchone()[0] == text
        connection.execute("reset standard_conforming_strings")
        assert quoted(text).isprintable()
        assert connection.execute(sql.SQL(f"select 1 as {quoted(text)}")).description[0].name == text


def test_names_and_texts_of_duckdb_are_what_they_were():
    spelled = dialect_named("duckdb")
    for text in ("it's", 'a "b" c', "a\\b", "größe", "E'\\'"):
        with duckdb.connect() as other:
            found = other.execute(f"select {spelled.written(text)} as {spelled.quoted(text)}")
            assert (found.description[0][0], found.fetchone()) == (text, (text,))
    for spell in (spelled.written, spelled.quoted):
        with pytest.raises(ValueError, match="cannot be printed; DuckDB has no escape"):
            spell("\x1b]0;p\x07")


def test_duckdb_converts_arguments_of_any_type(connection, register):
    """Where PostgreSQL has no cast: booleans as numbers, numbers as categories."""
    connection.execute("create table t as select i % 2 = 0 as a, i % 3 as b, i % 2 as y from generate_series(1, 9) i")
    name = register("t", features={"a": [0, 1], "b": ["0", "1"]})
    model = drawn(connection, name, 1, {})
    expected = predicted(connection, "two classes", model)
    check_equal(expected, exported(connection, "duckdb", "two classes", model, "a, b", "a, b"))
    made(connection, model)
    found = connection.execute("select exported(a::int, b::text) from t order by ctid").fetchall()
    check_equal(expected, [each for (each,) in found])


def test_an_unknown_dialect_is_refused(connection, dataset):
    model = stored(connection, dataset, [1.0, 2.0, 3.0], [0.5])
    with pytest.raises(psycopg.Error, match="dialect 'duckbd' is unknown; choose one of postgresql, duckdb; did you"):
        connection.execute("select dbdp.export_sql(%s, dialect => 'duckbd')", (model,))


def test_a_command_and_python_export_what_sql_does(connection, register, server_url):
    connection.execute(TABLE.format(label="i % 2"))
    model = drawn(connection, register("t", features=json.dumps(PLAIN)), 1, {})
    expected = connection.execute("select dbdp.export_sql(%s)", (model,)).fetchone()[0]
    assert f'create or replace function "predict_{model}"("a" float8' in expected
    assert "comment on function" in expected and f"model {model} of dataset" in expected
    assert dbdp.connect(connection).export_sql(model) == expected
    shown = CliRunner().invoke(app, ["export-sql", str(model), "--name", "f", "--url", server_url])
    assert (shown.exit_code, shown.stdout) == (0, expected.replace(f'"predict_{model}"', '"f"'))
    macro = dbdp.connect(connection).export_sql(model, dialect="duckdb")
    assert macro.startswith(f'create or replace macro "predict_{model}"(')
    shown = CliRunner().invoke(app, ["export-sql", str(model), "--dialect", "duckdb", "--url", server_url])
    assert (shown.exit_code, shown.stdout) == (0, macro)


@pytest.mark.parametrize("name", ["", "x" * 64, "ä" * 32])
def test_a_name_that_is_no_name_is_refused(name):
    model = ExportedModel(declare(label="y", positive="1", features={"a": [0, 1]}), [[1.0]], [0.0], {})
    with pytest.raises(ValueError, match="give the name of a function, of 1 to 63 bytes"):
        functions(model, name, "about", dialect_named("postgresql"))


def test_a_network_has_no_function(connection, dataset):
    model = connection.execute(
        "select model from dbdp.dp_train(%s, epsilon => 1, delta => 1e-6, network => 'mlp:2')", (dataset,)
    ).fetchone()[0]
    with pytest.raises(psycopg.Error, match="is a network"):
        connection.execute("select dbdp.export_sql(%s, 'f')", (model,))
