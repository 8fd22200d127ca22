"""Shapes are the parts of a model's score, listed value by value, with bands of the released standard errors."""

from collections.abc import Callable

import numpy as np
import psycopg
import pytest
from acting import acting
from letters import TABLE

from dbdp.interfaces.python.client.database import Database
from dbdp.registry.declarations import Declaration, declare
from dbdp.registry.results.column_units import decisions, standard_errors
from dbdp.registry.results.shapes import INTERCEPT, WIDTH, importance, shapes

FEATURES = {
    "age": {"bounds": [20, 60], "knots": 3, "missing": "indicator"},
    "hours": {"bounds": [0, 40], "bins": 2, "missing": "indicator"},
    "money": {"bounds": [0, 100000], "scale": "asinh", "missing": "indicator"},
    "flag": [0, 1],
    "ward": ["A", "B"],
    "sex": {"categories": ["f", "m"], "missing": "category"},
}


def declared(**changed: object) -> Declaration:
    given = {"label": "y", "features": FEATURES, "positive": "1", "encoding": "scaled", "pairs": [("ward", "sex")]}
    return declare(**given | changed)


def model_of(declaration: Declaration) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng()
    return random.normal(size=(declaration.outputs, declaration.dimension - 1)), random.normal(size=declaration.outputs)


def unknown(declaration: Declaration) -> list[None]:
    return [None] * declaration.dimension


VALUES = {  # places of the coordinates that are not 0, for each listed value; a number's own is its position
    "age": {20.0: {0: 1}, 40.0: {1: 1}, 60.0: {2: 1}, "missing": {1: 1, 3: 1}},
    "hours": {"[0,20)": {4: 1}, "[20,40]": {5: 1}, "missing": {5: 1, 6: 1}},
    "flag": {"0": {9: 0}, "1": {9: 1}},
    "ward": {"A": {10: 1}, "B": {11: 1}, None: {}},
    "sex": {"f": {12: 1}, "m": {13: 1}, "missing": {14: 1}, None: {}},
}


def chosen(random: np.random.Generator, row: dict[str, dict], name: str) -> tuple[object, dict[int, float]]:
    values = list(row[name].items())
    return values[random.integers(len(values))]


def test_contributions_and_intercept_add_up_to_the_score():
    declaration, random = declared(), np.random.default_rng()
    money = declaration.numeric[2]
    for _ in range(50):
        coefficients, intercepts = model_of(declaration)
        rows = shapes(declaration, coefficients, intercepts, unknown(declaration))
        listed = {(row["column_name"], row["category"] if row["x"] is None else row["x"]): row for row in rows}
        picked = {name: chosen(random, VALUES, name) for name in VALUES}
        feature = np.zeros(declaration.dimension - 1)
        for _, places in picked.values():
            for place, value in places.items():
                feature[place] = value
        x = [row["x"] for row in rows if row["column_name"] == "money" and row["x"] is not None][random.integers(9)]
        feature[7] = money.position(x)
        cells = [each for each in declaration.feature_names if " × " in each]
        named = [f"{name}={picked[name][0]}" for name in ("ward", "sex")]
        cell = " × ".join(named)
        if cell in cells:
            feature[15 + cells.index(cell)] = 1
        keys = [(name, value) for name, (value, _) in picked.items()]
        keys += [("money", x), ("ward*sex", cell if cell in cells else None), (INTERCEPT, None)]
        expected = decisions(declaration, feature[None], coefficients, intercepts).item()
        assert sum(listed[key]["contribution"] for key in keys) == pytest.approx(expected)


def test_each_column_is_listed_at_its_values_in_its_own_units():
    declaration = declared()
    rows = shapes(declaration, *model_of(declaration), unknown(declaration))
    found: dict[str, list] = {}
    for row in rows:
        found.setdefault(row["column_name"], []).append(row["category"] if row["x"] is None else row["x"])
    assert {name: found[name] for name in VALUES} == {name: list(values) for name, values in VALUES.items()}
    assert (found["money"][0], found["money"][-2:], len(found["money"])) == (0, [100000, "missing"], 10)
    assert found["ward*sex"][:2] == ["ward=A × sex=f", "ward=A × sex=m"]
    assert list(found)[-1] == INTERCEPT
    plain = declared(features={"flag": [0, 1], "age": [20, 60]}, pairs=())
    lines = shapes(plain, *model_of(plain), unknown(plain))
    assert [row["x"] for row in lines] == [0, 1, 20, 60, None]


def test_values_of_a_column_are_centred():
    declaration = declared()
    rows = shapes(declaration, *model_of(declaration), unknown(declaration))
    for name in ("age", "hours", "money", "flag", "ward", "sex", "ward*sex"):
        own = [row for row in rows if row["column_name"] == name]
        has_null = declaration.parts[declaration.columns.index(name)] if name in declaration.columns else None
        is_number = has_null in declaration.numeric
        values = [row["contribution"] for row in own if (row["x"] is not None or row["category"] is not None)]
        values = values[: -1 if is_number and name != "flag" else None]  # without that of NULL
        assert np.mean(values[:: max(1, len(values) - 1)] if name == "money" else values) == pytest.approx(0, abs=1e-12)


def test_bands_are_of_the_noise_that_the_release_has():
    """The deviation of a knot's band is that of noise with the root's covariance; of a sum at least its deviation."""
    declaration, random = declared(pairs=()), np.random.default_rng()
    root = random.normal(size=(40, declaration.dimension))
    errors = standard_errors(declaration, root)
    listed = [*errors["standard_errors"], errors["intercept_standard_error"]]

    def contributions(packed: np.ndarray) -> np.ndarray:
        from dbdp.registry.results.column_units import in_column_units

        found = shapes(declaration, *in_column_units(declaration, packed[None]), listed)
        return np.array([row["contribution"] for row in found])

    start = contributions(np.zeros(declaration.dimension))
    true = np.sqrt(np.sum([np.square(contributions(each) - start) for each in root], axis=0))
    rows = shapes(declaration, *model_of(declaration), listed)
    assert {row["column_name"] for row in rows if row["upper"] is None} == {"ward", "sex", INTERCEPT}  # some unknown
    for row, deviation in zip(rows, true, strict=True):
        if row["upper"] is None:
            assert (row["column_name"] == INTERCEPT) or (row["x"], row["category"]) == (None, None)
            continue
        half = (row["upper"] - row["lower"]) / 2
        assert row["contribution"] == pytest.approx((row["upper"] + row["lower"]) / 2)
        if row["category"] == "missing" and row["column_name"] != "sex":
            assert half >= WIDTH * deviation * (1 - 1e-3)
        else:
            assert half == pytest.approx(WIDTH * deviation, rel=1e-3)


def test_importance_is_the_deviation_over_the_values_of_a_column():
    rows = [
        {"class": None, "column_name": name, "x": x, "category": category, "contribution": value, "upper": upper}
        for name, x, category, value, upper in [
            ("line", 0.0, None, -3.0, -2.5),
            ("line", 1.0, None, 3.0, 3.5),
            ("line", None, "missing", 90.0, 95.0),
            ("ward", None, "A", -4.0, -3.0),
            ("ward", None, "B", 4.0, 11.0),
            ("ward", None, None, 90.0, None),
            (INTERCEPT, None, None, 90.0, None),
        ]
    ]
    line, ward = 3 / np.sqrt(3), 4.0
    assert importance(rows) == [
        {"class": None, "column_name": "ward", "importance": ward, "lower": 0.0, "upper": ward + 5},
        {"class": None, "column_name": "line", "importance": pytest.approx(line)}
        | {"lower": pytest.approx(line - 0.5), "upper": pytest.approx(line + 0.5)},
    ]
    unknown_rows = [row | {"upper": None} for row in rows]
    assert {row["lower"] for row in importance(unknown_rows)} == {None}


def test_the_spread_of_a_curve_is_that_of_many_of_its_points():
    knots = np.random.default_rng().normal(size=8)
    rows = [
        {"class": None, "column_name": "age", "x": float(x), "category": None, "contribution": value, "upper": None}
        for x, value in enumerate(knots)
    ]
    points = np.interp((np.arange(700000) + 0.5) / 100000, np.arange(8), knots)
    assert importance(rows)[0]["importance"] == pytest.approx(points.std(), rel=1e-6)


@pytest.fixture
def dataset(connection: psycopg.Connection, schema: str, register: Callable[..., str]) -> str:
    connection.execute(TABLE)
    return register("t", features={"a": [0, 2], "b": ["u", "v"]})


def trained(connection: psycopg.Connection, dataset: str, *options: str) -> int:
    given = "".join(f", {option}" for option in options)
    query = f"select model from dbdp.dp_train(%s, 1, 1e-6, name => %s{given})"
    return connection.execute(query, (dataset, f"shapes.{dataset}")).fetchone()[0]


@pytest.mark.parametrize("algorithm", ["preconditioned_gd", "bolt_on", "private_splines", "dp_sgd"])
def test_sql_and_python_list_the_shapes_of_a_model(connection, database: Database, dataset, algorithm):
    model = trained(connection, dataset, f"algorithm => '{algorithm}'")
    rows, has_bands = database.shapes(model), algorithm != "dp_sgd"
    knots = 8 if algorithm == "private_splines" else 2
    assert [row["x"] for row in rows if row["column_name"] == "a"] == pytest.approx(np.linspace(0, 2, knots))
    known = [row for row in rows if row["x"] is not None or row["category"] is not None]
    assert [row["category"] for row in known[knots:]] == ["u", "v"]
    assert all((row["lower"] is not None) == has_bands for row in known)
    assert rows == database.shapes(f"shapes.{dataset}") == database.query("select * from dbdp.shapes($1::int8)", model)
    weights = {row["feature"]: row for row in database.weights(model)}
    for row in known[knots:]:
        weight = weights[f"b={row['category']}"]
        assert row["contribution"] == pytest.approx(weight["coefficient"])
        if has_bands:
            assert row["upper"] - row["contribution"] == pytest.approx(WIDTH * weight["standard_error"])
    ranked = database.importance(model)
    assert {row["column_name"] for row in ranked} == {"a", "b"}
    assert ranked[0]["importance"] >= ranked[1]["importance"]
    assert ranked == importance(rows)


def test_each_class_has_shapes(connection, database: Database, schema, register):
    connection.execute(TABLE)
    name = register("t", features={"a": [0, 2], "b": ["u", "v"]}, positive=None, classes=["0", "1", "2"])
    sql = "select dbdp_internal.store_release(%s, %s::float8[], '{10, 11, 12}', '{}') ->> 'id'"
    numbers = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    rows = database.shapes(int(connection.execute(sql, (name, numbers)).fetchone()[0]))
    found = {label: [row["contribution"] for row in rows if row["class"] == label] for label in "012"}
    assert found["1"] == pytest.approx([-4, 4, -0.5, 0.5, -5.5, 11 + 4 + 5.5])
    assert all(len(each) == 6 for each in found.values())
    assert {row["upper"] for row in rows} == {None}


def test_curves_of_all_classes_add_up_to_nothing(connection, database: Database, schema, register):
    """What speaks for one class speaks against another; and the plan's curves have bands."""
    connection.execute(TABLE)
    name = register("t", features={"a": [0, 2], "b": ["u", "v"]}, positive=None, classes=["0", "1"])
    rows = database.shapes(trained(connection, name, "algorithm => 'private_splines'"))
    by_class = [np.array([row["contribution"] for row in rows if row["class"] == label]) for label in "01"]
    assert len(by_class[0]) == 8 + 2 + 1 + 1  # knots, categories, any other and the intercept
    assert by_class[0] == pytest.approx(-by_class[1])
    assert np.abs(by_class[0][:8]).max() > 0
    known = [row for row in rows if row["x"] is not None or row["category"] is not None]
    assert all(row["lower"] < row["contribution"] < row["upper"] for row in known)


def test_other_models_have_no_shapes(connection, dataset, schema, register):
    network = trained(connection, dataset, "network => 'mlp:2'", "epochs => 1")
    connection.execute(
        "create table arrays as select array[0.5::float8, 0.5] as x, i % 2 as y from generate_series(1, 9) i"
    )
    name = register("arrays", features={"x": {"length": 2, "norm": 1}})
    array = connection.execute("select model from dbdp.dp_logreg(%s, 1, 1e-6)", (name,)).fetchone()[0]
    for model, told in ((network, "is a network"), (array, "learned from an array")):
        for call in ("shapes", "importance"):
            with pytest.raises(psycopg.Error, match=f"model {model} {told}"):
                connection.execute(f"select * from dbdp.{call}({model})")


def test_shapes_of_a_closed_model_do_not_exist(connection, make_role, dataset):
    model = trained(connection, dataset, "algorithm => 'preconditioned_gd'")
    reader = make_role("app", "dbdp_predictor")
    for call in ("shapes", "importance"):
        with acting(connection, reader), pytest.raises(psycopg.Error, match=r"does not exist; see dbdp\.models"):
            connection.execute(f"select * from dbdp.{call}({model})")
    connection.execute(f"select dbdp.grant_prediction({model}, '{reader}')")
    with acting(connection, reader):
        assert len(connection.execute(f"select * from dbdp.shapes({model})").fetchall()) == 6
        assert len(connection.execute(f"select * from dbdp.importance({model})").fetchall()) == 2
