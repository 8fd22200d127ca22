"""Rows are encoded alike in a training, in every way of prediction, in a score and in Python; old models stay."""

import json
from typing import Any

import numpy as np
import psycopg
import pytest
from shuffles import shuffled

from dbdp.interfaces.python.estimators.design import design_matrix
from dbdp.learning.rows.pairs import EARLIER_WEIGHT, weight_of, written
from dbdp.registry.declarations import Declaration
from dbdp.registry.results.column_units import decisions, in_column_units

COUNT = 80
TABLE = f"""
create table t as
select j, j::text k, j % 2 y, (j * 7919 % 1000) / 100.0 - 5 a, 10 ^ (j % 17 - 8) * (-1) ^ j w, 1.3 ^ j s,
  (array['u', 'v', 'other'])[1 + j % 3] c, (j % 5) / 4.0::float4 f
from generate_series(1, {COUNT}) j;
update t set a = -4 where j = 1; update t set a = 4 where j = 2; update t set a = 0 where j = 3;
update t set w = 1e300 where j = 4; update t set w = -1e300 where j = 5;
update t set a = null where j = 7; update t set w = 'NaN' where j = 8; update t set s = 'infinity' where j = 9;
update t set c = null where j = 10;
create table twin as select * from t"""
NULLS = {7, 8, 9, 10}
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {"a": [-4, 4], "w": {"bounds": [-1e6, 1e6]}, "s": [0, 100], "f": [0, 1], "c": ["u", "v"]},
    "bins": {
        "a": {"bounds": [-4, 4], "bins": 8},
        "w": {"bounds": [-1e6, 1e6], "bins": 7, "scale": "asinh"},
        "s": {"bounds": [0, 100], "scale": "asinh"},
        "f": [0, 1],
        "c": ["u", "v"],
    },
}
FEATURES["pairs"] = FEATURES["earlier pairs"] = FEATURES["bins"]
FEATURES["knots"] = FEATURES["bins"] | {
    "a": {"bounds": [-4, 4], "knots": 5},
    "w": {"bounds": [-1e6, 1e6], "knots": 4, "scale": "asinh"},
    "s": {"bounds": [0, 100], "knots": 2},
}
MEANINGS: dict[str, tuple[Any, Any]] = {  # of NULL: as a number, and as a category; None is not declared
    "required": ("required", "required"),
    "usual": (None, None),
    "told": (0.25, "category"),
    "indicator": ("indicator", "outside"),
}
NAMED = (("a", "c"), ("c", "w"), ("s", "a"), ("f", "w"))
PAIRS: dict[str, dict[str, Any]] = {
    "pairs": {"pairs": NAMED, "weight": weight_of(len(NAMED))},
    "earlier pairs": {"pairs": NAMED},  # the receipts of earlier versions state no weight
}
JSON_OF = dict.fromkeys(MEANINGS, "jsonb_strip_nulls(to_jsonb(r))") | {"required": "to_jsonb(r)"}
LABELS: dict[str, dict[str, Any]] = {"unit": {"positive": "1"}, "centred": {"positive": None, "label_bounds": [0, 1]}}


def with_nulls(features: dict[str, Any], meaning: str) -> dict[str, Any]:
    """The features, with a meaning of NULL in each column."""
    number, category = MEANINGS[meaning]
    if number is None:
        return features
    return {
        name: {"categories": each, "missing": category}
        if isinstance(each[0] if isinstance(each, list) else None, str)
        else {"scale": "linear", **(each if isinstance(each, dict) else {"bounds": each}), "missing": number}
        for name, each in features.items()
    }


IDS = [str(j) for j in range(1, COUNT + 1)]


def packed(connection: psycopg.Connection, name: str, declaration: Declaration) -> dict[int, np.ndarray]:
    """The rows as a training sees them, by the number that is their class."""
    dimension, coding = declaration.dimension, {"encoding": declaration.encoding, **declaration.paired}
    rows = np.concatenate(shuffled(connection, name, dimension, coding=coding))
    return {int(row[-1]): row[:dimension].astype(float) for row in rows if row[-1]}


def released(
    connection: psycopg.Connection, name: str, pairs: tuple[tuple[str, str], ...] = (), weight: float | None = None
) -> tuple[int, Declaration, np.ndarray]:
    """Store a random model over packed rows; its number, its declaration, and the model."""
    sql = "select declaration::text from dbdp.dataset where name = %s"
    declaration = Declaration.from_json(connection.execute(sql, (name,)).fetchone()[0]).current
    declaration = declaration.with_pairs(pairs, 12, EARLIER_WEIGHT if weight is None else weight)
    model = np.random.default_rng().normal(size=(1, declaration.dimension)) / 4
    coefficients, intercepts = (each.tolist() for each in in_column_units(declaration, model))
    sql = "select dbdp_internal.store_release(%s, %s::float8[], %s::float8[], %s) ->> 'id'"
    receipt = {"pairs": written(pairs), "pair_cells": 12} | ({} if weight is None else {"pair_weight": weight})
    number = int(connection.execute(sql, (name, coefficients[0], intercepts, json.dumps(receipt))).fetchone()[0])
    return number, declaration, model[0]


def scores(connection: psycopg.Connection, model: int, kind: str, row: str = "r") -> dict[int, float | None]:
    """What SQL predicts, as decisions."""
    predictor = "predict_value" if kind == "centred" else "predict_probability"
    result = dict(connection.execute(f"select j, dbdp.{predictor}(%s, {row}) from t as r", (model,)).fetchall())
    if kind == "centred":
        return result
    return {j: None if p is None else float(np.log(p) - np.log1p(-p)) for j, p in result.items()}


def of_design(connection: psycopg.Connection, model: int, kind: str, zero_rows: set[int] = NULLS) -> dict[int, float]:
    """What Python makes of the rows that are no zero rows."""
    text, coefficients, intercepts = connection.execute(
        "select declaration::text, coefficients, intercepts from dbdp.model where id = %s", (model,)
    ).fetchone()
    declaration = Declaration.from_json(text)
    rows = connection.execute(f"select j, {', '.join(declaration.columns)} from t").fetchall()
    rows = [row for row in rows if row[0] not in zero_rows]
    design = design_matrix(declaration, [row[1:] for row in rows])
    made = decisions(declaration, design, np.array(coefficients), np.array(intercepts))
    return dict(zip([row[0] for row in rows], made[:, 0].tolist(), strict=True))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("meaning", MEANINGS)
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("kind", LABELS)
def test_a_row_is_the_same_in_a_training_in_sql_and_in_python(
    connection, schema, register, kind, features, meaning, intercept
):
    """Null, and a number that is not finite, have one meaning in all of them, and no row of it is longer than 1."""
    connection.execute(TABLE)
    zero_rows = NULLS if meaning == "required" else set()
    options = {"features": with_nulls(FEATURES[features], meaning), "intercept": intercept}
    name = register("t", **options, **LABELS[kind])
    twin = register("twin", **options, label="k", positive=None, classes=IDS)
    number, declaration, model = released(connection, name, **PAIRS.get(features, {}))
    rows = packed(connection, twin, declaration)
    assert set(rows) == set(range(1, COUNT + 1)) - zero_rows
    assert max(np.linalg.norm(row) for row in rows.values()) <= 1
    expected = {j: float(row @ model) for j, row in rows.items()}
    if kind == "centred":
        expected = {j: min(max(0.5 + value / 2, 0), 1) for j, value in expected.items()}
    stored = scores(connection, number, kind)
    assert {j for j, value in stored.items() if value is None} == zero_rows
    for found in (
        stored,
        scores(connection, number, kind, "(select x from t as x where x.j = r.j)"),
        scores(connection, number, kind, "to_jsonb(r)"),
        scores(connection, number, kind, JSON_OF[meaning]),
        of_design(connection, number, kind, zero_rows),
    ):
        assert max(abs(found[j] - value) for j, value in expected.items()) < 1e-5
    assert np.std(list(rows.values()), axis=0).max() > 0.01


@pytest.mark.parametrize("element", ["float8", "float4"])
@pytest.mark.parametrize("intercept", [True, False])
def test_an_array_is_divided_by_its_norm_despite_overflow(connection, schema, register, element, intercept):
    connection.execute(
        f"create table v as select array[j - 3, j % 3, 0.5 * j, 0, 1]::{element}[] x, j % 2 y, j "
        "from generate_series(1, 9) j"
    )
    connection.execute(f"insert into v values (array[0, 0, 0, 0, 0]::{element}[], 1, 10)")
    name = register("v", features={"x": {"length": 5, "norm": 3}}, intercept=intercept)
    number, _, model = released(connection, name)
    sql = "select dbdp.predict_probability(%s, {}), x::float8[] from v where j <= 10 order by j"
    sizes = (1.0, 1e-30, 1e30) if element == "float4" else (1.0, 1e-200, 1e200, 1e300)
    for size in sizes:
        scaled = f"array[x[1] * {size}, x[2] * {size}, x[3] * {size}, x[4], x[5] * {size}]::{element}[]"
        for probability, values in connection.execute(sql.format(scaled), (number,)).fetchall():
            row = np.array(values) * size / 3
            row = np.append(row, [5**-0.25] * intercept)
            longest = np.abs(row).max() or 1.0
            direction = row / longest / (np.linalg.norm(row / longest) or 1.0)
            assert np.log(probability) - np.log1p(-probability) == pytest.approx(direction @ model, abs=1e-6)


OLD = """
update dbdp.model set declaration = replace(declaration::text, ', "encoding": "unit"', '')::json where id = %s
returning declaration ->> 'encoding' is null"""
MATRIX = "select dbdp.dp_score(%s, %s, 'confusion', 1e5) -> 'matrix'"


def matrix(connection: psycopg.Connection, model: int) -> list[list[int]]:
    """The confusion matrix of the predictions in SQL."""
    result = np.zeros((2, 2), int)
    for true, predicted in connection.execute("select y, dbdp.predict(%s, r) from t as r", (model,)).fetchall():
        if predicted is not None:
            result[true, int(predicted)] += 1
    return result.tolist()


def test_a_model_of_a_version_before_is_scored_as_it_was(connection, schema, register):
    connection.execute(TABLE)
    name = register("t", features=with_nulls(FEATURES["plain"], "required"), negative="0", epsilon=1e6, delta=0.1)
    number, declaration, _ = released(connection, name)
    now = scores(connection, number, "unit")
    assert connection.execute(OLD, (number,)).fetchone() == (True,)
    before = of_design(connection, number, "unit")
    sql = "select coefficients, intercept from dbdp.models_details where id = %s"
    coefficients, intercept = connection.execute(sql, (number,)).fetchone()
    named = dict(zip(declaration.feature_names, coefficients, strict=True))
    rows = connection.execute("select j, a, w, s, f, c from t").fetchall()
    with psycopg.connect(connection.info.dsn, password=connection.info.password) as fresh:  # that has no scorer yet
        fresh.execute(f"set search_path = {schema}")
        result = scores(fresh, number, "unit")
    for j, *numbers, category in rows:
        if j in NULLS:
            assert result[j] is None
            continue
        clipped = np.clip(np.array(numbers, float), [-4, -1e6, 0, 0], [4, 1e6, 100, 1])
        by_hand = intercept + sum(named[name] * value for name, value in zip("awsf", clipped, strict=True))
        by_hand += named.get(f"c={category}", 0.0)
        assert result[j] == pytest.approx(by_hand, abs=1e-6)
        assert before[j] == pytest.approx(by_hand, abs=1e-9)
        assert abs(now[j]) <= abs(by_hand) + 1e-6
    assert connection.execute(MATRIX, (number, name)).fetchone()[0] == matrix(connection, number)


@pytest.mark.parametrize("trained", FEATURES)
def test_a_model_is_scored_with_its_own_bins(connection, schema, register, trained):
    connection.execute(TABLE)
    other = "bins" if trained == "plain" else "plain"
    options: dict[str, Any] = {"negative": "0", "epsilon": 1e6, "delta": 0.1}
    name = register("t", features=FEATURES[other], **options)
    twin = register("twin", features=FEATURES[trained], **options)
    number, _, _ = released(connection, twin, **PAIRS.get(trained, {}))
    result = connection.execute(MATRIX, (number, name)).fetchone()[0]
    assert result == matrix(connection, number)
    assert np.count_nonzero(result) > 1


def test_a_model_is_not_scored_where_bounds_differ(connection, schema, register):
    connection.execute(TABLE)
    options: dict[str, Any] = {"negative": "0", "epsilon": 1e6, "delta": 0.1}
    name = register("t", features=FEATURES["plain"], **options)
    number, _, _ = released(connection, register("twin", features=FEATURES["bins"] | {"s": [0, 99]}, **options))
    with pytest.raises(psycopg.Error, match=r"differs from that of dataset .* in features"):
        connection.execute(MATRIX, (number, name))


@pytest.mark.parametrize(
    ("coding", "message"),
    [
        ({"encoding": "long"}, "encoding = 'long' is not one of scaled, unit, centred"),
        ({"encoding": ["unit"]}, "encoding = .*unit.* is not one of"),
        ({"features": {}}, 'coding needs "encoding", and may have "features"'),
        ({"encoding": "unit", "pairs": [["a", "z"]]}, "pairs names 'z'; columns of pairs are declared features"),
        ({"encoding": "unit", "pairs": "a*c"}, "pairs is 'a[*]c'; give a list"),
        ({"encoding": "unit", "pairs": [["a", "c"]], "pair_cells": 3}, "pair_cells = 3 must be"),
        ({"encoding": "unit", "pairs": [["a", "c"]], "pair_weight": 1.5}, "pair_weight = 1.5 must be .* between"),
        ({"encoding": "unit", "features": {"a": [0, 1]}}, "more than bins, scales and NULL"),
        ({"encoding": "unit", "features": 3}, "features is 3; give an object"),
        ("unit", 'coding needs "encoding"'),
    ],
)
def test_a_coding_that_is_none_is_refused(connection, schema, register, coding, message):
    connection.execute(TABLE)
    name = register("t", features=FEATURES["plain"])
    connection.execute("create temporary table packed (block_no int8, block bytea)")
    with pytest.raises(psycopg.Error, match=message):
        connection.execute(
            "select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s)", (name, json.dumps({"coding": coding}))
        )
    connection.execute("drop table pg_temp.packed")
