"""Prediction for JSON: what prediction for a row, or an array, with the same values returns."""

import json

import psycopg
import pytest
from test_prediction import FEATURES, PREDICTOR, array_model, fitted, of_kind  # noqa: F401
from test_prediction_by_name import named

JOINED = """
with x as (select t.*, t.ctid as place, 'more' as other from t)
select dbdp.predict_probability(%s, to_jsonb(x)) from x order by place"""
PLAIN = "select dbdp.predict_probability(%s, w) from t as w order by ctid"
ROW = {"a": 0.5, "n": 3, "i": 4, "b": True, "r": 0.25, "t": "u", "c": "ab  ", "e": "sad", "f": False, "s": -2}


def values(connection: psycopg.Connection, sql: str, model: int | str) -> list[float | None]:
    return [value for (value,) in connection.execute(sql, (model,)).fetchall()]


def test_rows_of_a_query_are_scored_as_rows_of_its_table(connection, schema, fitted):  # noqa: F811
    connection.execute("update t set n = 1e200 where i = 5")
    connection.execute("update t set a = 'NaN' where i = 6")
    connection.execute("update t set t = null where i = 7")
    expected = values(connection, PLAIN, fitted.model_id_)
    assert 0 < expected.count(None) < 100
    for model in (fitted.model_id_, named(connection, schema, fitted.model_id_)):
        assert values(connection, JOINED, model) == pytest.approx(expected, abs=1e-6)  # a real has 7 digits
        assert values(connection, JOINED, model) == values(connection, JOINED, model)


@pytest.mark.parametrize("kind", PREDICTOR)
def test_models_of_every_kind_score_json(connection, schema, register, kind):
    model, _, _ = of_kind(connection, register, kind)
    by_row, by_json = (
        [value for (value,) in connection.execute(f"select dbdp.{PREDICTOR[kind]}(%s, {what}) from t as w", (model,))]
        for what in ("w", "to_jsonb(w)")
    )
    assert by_json == (by_row if kind == "classes" else pytest.approx(by_row, abs=1e-6))


def of_json(connection: psycopg.Connection, model: int, value: object) -> float | None:
    sql = "select dbdp.predict_probability(%s, %s::jsonb)"
    return connection.execute(sql, (model, value if isinstance(value, str) else json.dumps(value))).fetchone()[0]


@pytest.mark.parametrize("changed", [{"n": "3"}, {"i": []}, {"b": {}}, {"a": "x" * 100}])
def test_a_value_that_is_not_a_number_is_named(connection, fitted, changed):  # noqa: F811
    assert of_json(connection, fitted.model_id_, ROW) is not None
    with pytest.raises(
        psycopg.Error, match=f"^dbdp: column '{next(iter(changed))}' of the JSON is .*; it must be a number"
    ):
        of_json(connection, fitted.model_id_, ROW | changed)


@pytest.mark.parametrize("value", [{}, [1, 2], 7, "null", {"A": 1}, "[" * 6000 + "]" * 6000], ids=str)
def test_json_without_the_models_columns_is_refused(connection, fitted, value):  # noqa: F811
    text = (
        r"^dbdp: the JSON (does not have the columns a, n, i.*to_jsonb of a row|is nested too deeply; pass an object)"
    )
    with pytest.raises(psycopg.Error, match=text):
        of_json(connection, fitted.model_id_, value)


def test_odd_values_of_json_are_scored(connection, fitted):  # noqa: F811
    plain = of_json(connection, fitted.model_id_, ROW)
    assert of_json(connection, fitted.model_id_, ROW | {"more": [1, {"a": None}]}) == plain
    for changed in ({"n": None}, {"t": None}, {"a": "NaN"}, {"a": "-Infinity"}):
        assert of_json(connection, fitted.model_id_, ROW | changed) is None
    huge = json.dumps(ROW).replace('"n": 3', '"n": 1' + "0" * 6000)
    assert of_json(connection, fitted.model_id_, huge) == of_json(connection, fitted.model_id_, ROW | {"n": 10})
    unknown = of_json(connection, fitted.model_id_, ROW | {"t": "nobody's", "s": 7})
    assert of_json(connection, fitted.model_id_, ROW | {"t": [1], "s": {"a": 1}}) == unknown


def test_arrays_are_scored_from_json(connection, array_model):  # noqa: F811
    array = connection.execute("select dbdp.predict_probability(%s, array[1, 2, 2.5])", (array_model,)).fetchone()[0]
    assert (
        of_json(connection, array_model, [1, 2, 2.5]) == of_json(connection, array_model, {"x": [1, 2, 2.5]}) == array
    )
    for odd in ([1, None, 2], [1, "NaN", 2], {"x": None}):
        assert of_json(connection, array_model, odd) is None
    refused = {
        "the array has 2 numbers, the model was trained on 3": [[1, 2], {"x": [1, 2]}],
        "an element of the array is '2'; each must be a number": [[1, "2", 3]],
        "an element of the array is 'True'": [[1, 2, True]],
        "is not an array of 3 numbers": [{"x": 3}, 7],
        "does not have the column x of the model": [{"y": [1, 2, 3]}],
    }
    for message, values_refused in refused.items():
        for value in values_refused:
            with pytest.raises(psycopg.Error, match=f"^dbdp: .*{message}"):
                of_json(connection, array_model, value)
    assert connection.execute("select dbdp.predict(%s, null::jsonb)", (array_model,)).fetchone() == (None,)


def test_every_feature_of_the_control_is_in_the_row():
    assert ROW.keys() == FEATURES.keys()
