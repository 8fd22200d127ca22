"""Predictions of an exported function are those of dbdp, for every kind of column, label and value."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from released import stored

import dbdp
from dbdp.interfaces.cli.main import app
from dbdp.registry.declarations import declare
from dbdp.registry.results.exported_function import function, quoted, written

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
LABELS: dict[str, tuple[str, dict[str, Any]]] = {
    "two classes": ("i % 2", {}),
    "classes": ("(array['0', '1', 'it''s'])[1 + i % 3]", {"positive": None, "classes": ["0", "1", "it's"]}),
    "a number": ("i % 9", {"positive": None, "label_bounds": [-3, 5]}),
}
OWN = {"two classes": "predict_probability", "classes": "predict_class", "a number": "predict_value"}


def made(connection: psycopg.Connection, model: int, name: str = "exported") -> None:
    """Create the function of a model."""
    connection.execute(connection.execute("select dbdp.export_sql(%s, %s)", (model, name)).fetchone()[0])


def compared(
    connection: psycopg.Connection, label: str, model: int, arguments: str, row: str = "t"
) -> list[tuple[Any, Any]]:
    """Return what dbdp and the function predict of each row."""
    own = f"dbdp.{OWN[label]}({model}, {row})"
    return connection.execute(f"select {own}, exported({arguments}) from t order by ctid").fetchall()


def check_equal(pairs: list[tuple[Any, Any]]) -> None:
    """Check that both sides have an answer or none, and are equal to 1e-12."""
    for expected, found in pairs:
        assert (expected is None) == (found is None)
        if isinstance(expected, float):
            assert math.isclose(expected, found, rel_tol=1e-12, abs_tol=1e-12), (expected, found)
        else:
            assert expected == found


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
    values, kind = LABELS[label]
    connection.execute(TABLE.format(label=values))
    name = register("t", features=json.dumps(features), **kind)
    model = drawn(connection, name, 3 if label == "classes" else 1, receipt)
    made(connection, model)
    pairs = compared(connection, label, model, "a, b, flag, ward, other")
    check_equal(pairs)
    answered = [expected for expected, _ in pairs if expected is not None]
    assert (len(answered) < len(pairs)) == (case == "null has no answer")
    assert label == "classes" or len(set(answered)) > 20


@pytest.mark.parametrize("label", LABELS)
def test_a_function_of_an_array_predicts_what_dbdp_does(connection, register, label):
    arrays = ["{1,2,3}", "{0,0,0}", "{-4,1e5,.5}", "{1,null,3}", "{1,NaN,3}", "{Infinity,1,1}", None]
    values, kind = LABELS[label]
    listed = ", ".join(f"({place}, {'null' if each is None else repr(each)})" for place, each in enumerate(arrays))
    rows = f"(values {listed}) as t(i, x)"
    connection.execute(f"create table t as select x::float8[] as x, {values} as y from {rows}")
    name = register("t", features=json.dumps({"x": {"length": 3, "norm": 4}}), **kind)
    model = drawn(connection, name, 3 if label == "classes" else 1, {})
    made(connection, model)
    pairs = compared(connection, label, model, "x", "x")
    check_equal(pairs)
    assert [found is None for _, found in pairs] == [False] * 3 + [True] * 4
    wrong = "select exported('{1,2}'), exported('{{1,2,3}}'), exported('{1,2,3,4}'), exported('{}')"
    assert connection.execute(wrong).fetchone() == (None,) * 4


def test_a_function_of_columns_costs_no_call(connection, register):
    """The planner replaces it by its expression, so that it is computed in place, in parallel workers too."""
    connection.execute(TABLE.format(label="i % 2"))
    model = drawn(connection, register("t", features=json.dumps(PLAIN)), 1, {"knots": 8})
    made(connection, model)
    plan = connection.execute("explain (verbose) select exported(a, b, flag, ward, other) from t").fetchall()
    assert "exported" not in str(plan) and "width_bucket" in str(plan)


def test_names_and_texts_are_what_they_were(connection, schema):
    """Also of characters that a terminal obeys, whatever standard_conforming_strings is."""
    for text in ("it's", 'a "b" c', "a\\b", "\x1b]0;p\x07", "\u202e\U000e0041", "größe", "E'\\'"):
        for value in ("on", "off"):
            connection.execute(f"set standard_conforming_strings = {value}")
            assert written(text).isprintable()
            assert connection.execute(sql.SQL(f"select {written(text)}")).fetchone()[0] == text
        connection.execute("reset standard_conforming_strings")
        assert quoted(text).isprintable()
        assert connection.execute(sql.SQL(f"select 1 as {quoted(text)}")).description[0].name == text


def test_a_command_and_python_export_what_sql_does(connection, register, server_url):
    connection.execute(TABLE.format(label="i % 2"))
    model = drawn(connection, register("t", features=json.dumps(PLAIN)), 1, {})
    expected = connection.execute("select dbdp.export_sql(%s)", (model,)).fetchone()[0]
    assert f'create or replace function "predict_{model}"("a" float8' in expected
    assert "comment on function" in expected and f"model {model} of dataset" in expected
    assert dbdp.connect(connection).export_sql(model) == expected
    shown = CliRunner().invoke(app, ["export-sql", str(model), "--name", "f", "--url", server_url])
    assert (shown.exit_code, shown.stdout) == (0, expected.replace(f'"predict_{model}"', '"f"'))


@pytest.mark.parametrize("name", ["", "x" * 64, "ä" * 32])
def test_a_name_that_is_no_name_is_refused(name):
    with pytest.raises(ValueError, match="give the name of a function, of 1 to 63 bytes"):
        function(name, declare(label="y", positive="1", features={"a": [0, 1]}), [1.0], [0.0], "about")


def test_a_network_has_no_function(connection, dataset):
    model = connection.execute(
        "select model from dbdp.dp_train(%s, epsilon => 1, delta => 1e-6, network => 'mlp:2')", (dataset,)
    ).fetchone()[0]
    with pytest.raises(psycopg.Error, match="is a network"):
        connection.execute("select dbdp.export_sql(%s, 'f')", (model,))
