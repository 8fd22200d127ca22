"""Shapes of fitted estimators are those of their stored models."""

import numpy as np
import pytest
from letters import TABLE

import dbdp

FEATURES = {"a": [0, 1], "b": ["u", "v"]}
LABELS = {
    "binary": {"positive": "1"},
    "classes": {"positive": None, "classes": ["2", "0", "1"]},
    "real": {"positive": None, "label_bounds": [0, 2]},
}


@pytest.mark.parametrize("kind", LABELS)
def test_the_shapes_of_an_estimator_are_those_in_sql(connection, database, register, kind):
    connection.execute(TABLE)
    name = register("t", features=FEATURES, **LABELS[kind])
    estimator = dbdp.Ridge if kind == "real" else dbdp.LogisticRegression
    model = estimator(epsilon=1, delta=1e-6, database=database).fit(name)
    found, stored = (
        {(row["class"], row["column_name"], row["x"], row["category"]): row for row in rows}
        for rows in (model.shapes(), database.shapes(model.model_id_))
    )
    assert found == stored
    assert {key[0] for key in found} == ({"0", "1", "2"} if kind == "classes" else {None})


@pytest.mark.usefixtures("private")
def test_an_array_has_no_shapes_and_columns_of_rows_have():
    features = np.random.default_rng().uniform(0, 1, (200, 2))
    labels = (features[:, 0] > 0.5).astype(int)
    options = {"epsilon": 1, "delta": 1e-6, "classes": [0, 1]}
    rows = dbdp.LogisticRegression(**options, bounds=[0, 1]).fit(features, labels).shapes()
    assert [(row["column_name"], row["x"]) for row in rows[:4]] == [("x0", 0), ("x0", 1), ("x1", 0), ("x1", 1)]
    for model in (dbdp.LogisticRegression(**options, bounds=2), dbdp.MLPClassifier(**options, bounds=[0, 1], epochs=1)):
        with pytest.raises(ValueError, match="a network, or learned from an array"):
            model.fit(features, labels).shapes()
