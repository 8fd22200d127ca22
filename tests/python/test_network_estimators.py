"""MLPClassifier: a network by scikit-learn's interface predicts as in SQL, from rows of every kind."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dbdp
from dbdp.registry.results import network_models

NEAR_EXACT: dict[str, Any] = {
    "epsilon": 1e5,
    "delta": 1e-3,
    "progress": False,
    "epochs": 20,
    "hidden_layer_sizes": (8,),
}


def rings(rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Points of a square, and whether they are in its middle: what no linear model learns."""
    features = 2 * (np.outer(np.arange(1, rows + 1), [math.sqrt(2), math.sqrt(3)]) % 1) - 1
    return features, (features**2).sum(axis=1) < 0.6


@pytest.mark.usefixtures("private")
def test_it_learns_what_no_linear_model_does():
    features, labels = rings()
    stated = {"bounds": [-1, 1], "classes": [False, True]}
    linear = dbdp.LogisticRegression(
        epsilon=1e5, delta=1e-3, algorithm="preconditioned_gd", progress=False, **stated
    ).fit(features, labels)
    options = NEAR_EXACT | {"hidden_layer_sizes": (32,), "epochs": 60}
    model = dbdp.MLPClassifier(**options, **stated).fit(features, labels)
    assert model.score(features, labels) > linear.score(features, labels) + 0.1
    assert model.predict_proba(features).sum(axis=1) == pytest.approx(np.ones(len(features)))
    assert (model.predict(features) == (model.predict_proba(features)[:, 1] > 0.5)).all()
    assert model.network_["hidden"] == [32]
    assert model.parameters_.shape == (network_models.parsed(model.network_)[0].parameters,)


@pytest.mark.parametrize("kind", ["columns", "array", "classes"])
def test_it_predicts_a_dataset_as_sql_does(database, connection, schema, kind):
    connection.execute(
        "create table shown as select i / 60.0 as a, chr(65 + i % 3) as ward, i % 2 = 0 as old, "
        "array[i / 60.0, .5]::float8[] as x, i % 2 as y, chr(67 - i % 3) as c from generate_series(1, 60) as i"
    )
    features: Any = {"x": {"length": 2, "norm": 2}}
    if kind != "array":
        features = {"a": [0, 1], "ward": ["A", "B"], "old": ["true", "false"]}
    labels: Any = {"label": "y", "positive": "1"} if kind != "classes" else {"label": "c", "classes": ["C", "A", "B"]}
    name = f"{schema}_shown"
    database.register_dataset(name, "shown", features=features, epsilon=1e6, delta=1e-2, mode="basic", **labels)
    model = dbdp.MLPClassifier(**NEAR_EXACT, database=database).fit(name)
    argument = "x" if kind == "array" else "t"
    function = "predict_class" if kind == "classes" else "predict_probability"
    sql = f"select dbdp.{function}({model.model_id_}, {argument}), a, ward, old, x from shown as t order by a"
    expected, *columns = zip(*connection.execute(sql).fetchall(), strict=True)
    rows: Any = (
        np.array(columns[3]) if kind == "array" else dict(zip(("a", "ward", "old"), map(list, columns), strict=False))
    )
    if kind != "array":
        rows["a"] = list(map(float, rows["a"]))
    if kind == "classes":
        assert model.predict(rows).tolist() == list(expected)
        assert model.classes_.tolist() == ["A", "B", "C"]
    else:
        assert model.predict_proba(rows)[:, 1] == pytest.approx(expected)
    assert len(set(expected)) > 1


@pytest.mark.usefixtures("private")
def test_copies_and_pickles_predict_the_same():
    features, labels = rings(60)
    model = dbdp.MLPClassifier(**NEAR_EXACT, bounds=[-1, 1], classes=[False, True]).fit(features, labels)
    loaded = pickle.loads(pickle.dumps(model))
    assert (loaded.predict_proba(features) == model.predict_proba(features)).all()
    assert clone(model).get_params() == model.get_params()


def test_words_of_scikit_learn_that_mean_the_same_are_understood():
    model = dbdp.MLPClassifier(
        epsilon=1, hidden_layer_sizes=(16, 8), max_iter=3, learning_rate_init=0.1, activation="relu"
    )
    assert (model.request.network, model.request.epochs, model.request.step_size) == ("mlp:16,8", 3, 0.1)
    assert dbdp.MLPClassifier(epsilon=1, hidden_layer_sizes=16).request.network == "mlp:16"
    for word in ("alpha", "solver", "early_stopping", "random_state", "huber_width"):
        with pytest.raises(TypeError, match=f"MLPClassifier has no keyword '{word}'"):
            dbdp.MLPClassifier(epsilon=1, **{word: 1})
    for sizes in ("32", ()):
        with pytest.raises(ValueError, match="pass the units of each layer"):
            _ = dbdp.MLPClassifier(epsilon=1, hidden_layer_sizes=sizes).request


def test_linear_estimators_name_it():
    for word in ("network", "hidden_layer_sizes"):
        with pytest.raises(TypeError, match=r"dbdp\.MLPClassifier has hidden layers"):
            dbdp.LogisticRegression(epsilon=1, **{word: "mlp"})
