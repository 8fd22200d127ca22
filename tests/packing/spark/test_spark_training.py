"""Datasets whose rows Spark reads: charged in PostgreSQL before the first job, and refused where they do not fit."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from dbdp.algorithms import Request
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.controller import ChargedError
from dbdp.interfaces.cli.printing import opened_on
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.estimators.linear import LogisticRegression
from dbdp.interfaces.python.estimators.on_spark import PredictionTransformer
from dbdp.packing.spark import workers
from dbdp.packing.spark.engine import SparkEngine

ROWS = 2000
TRUE = np.array([2.0, -1.0, 0.5])
REQUESTS = {
    "default": Request(epsilon=1.0, delta=1e-7),
    "shards": Request(epsilon=1.0, delta=1e-7, algorithm="bolt_on", shards=2, epochs=3),
    "objective": Request(epsilon=1.0, delta=1e-7, algorithm="objective_perturbation"),
}
DECLARED: dict[str, Any] = {
    "label": "y",
    "positive": "1",
    "negative": "-1",
    "features": {"a": [-3, 3], "b": [-3, 3], "c": ["x", "y", "ü"]},
    "epsilon": 50.0,
    "delta": 1e-5,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("columns"))


def write(folder: Path, rows: int = ROWS) -> Path:
    """Write columns a, b, c and a label y."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(4)
    a, b = random.normal(size=(2, rows))
    c = random.choice(["x", "y", "ü", "undeclared"], rows)
    y = np.where(2 * a - b + (c == "x") + random.logistic(size=rows) > 0, 1, -1)
    columns = {"a": pa.array(a), "b": pa.array(b, pa.float32()), "c": pa.array(c), "y": pa.array(y, pa.int32())}
    pq.write_table(pa.table(columns), folder / "only.parquet", row_group_size=500)
    return folder


@pytest.fixture
def on_spark(spark: Any, database: Database, schema: str) -> Database:
    return database.on_spark(spark)


@pytest.fixture
def visits(on_spark: Database, schema: str, folder: Path) -> Iterator[str]:
    """A dataset of files."""
    name = f"visits_{schema}"
    on_spark.register_dataset(name, f"spark:parquet:{folder}", **DECLARED)
    yield name
    on_spark.drop_dataset(name)


@pytest.fixture
def same(database: Database, schema: str, folder: Path, connection: psycopg.Connection) -> Iterator[str]:
    """A dataset of the same rows in a table."""
    import pyarrow.parquet as pq

    connection.execute("create table same (a float8, b real, c text, y int)")
    with connection.cursor().copy("copy same from stdin") as copy:
        for row in pq.read_table(folder).to_pylist():
            copy.write_row(row.values())
    name = f"same_{schema}"
    database.register_dataset(name, f"{schema}.same", **DECLARED | {"epsilon": 5000.0})
    yield name
    database.drop_dataset(name)


def spent(database: Database, name: str) -> float:
    return float(database.budget(name)["charged"])


def test_a_training_charges_once_and_stores_a_model_that_learned(on_spark: Database, visits: str) -> None:
    for request in REQUESTS.values():
        before = len(on_spark.history(visits))
        model = on_spark.train(visits, request)
        assert len(on_spark.history(visits)) == before + 1
        assert model.receipt["rows"] == ROWS
        knots = model.receipt.get("knots", 0)
        rising, falling = model.coefficients[: max(knots, 1)], model.coefficients[max(knots, 1) :][: max(knots, 1)]
        if knots:  # of a curve, what its value adds to that of the least one
            rising, falling = np.array(rising) - rising[0], np.array(falling) - falling[0]
        assert rising[-1] > 0 > falling[-1]
    place = on_spark.query("select place from dbdp.datasets_details where name = $1", visits)[0]["place"]
    assert place.startswith("spark:parquet:/")


def test_exact_baseline_is_that_of_postgresql(on_spark: Database, database: Database, visits: str, same: str) -> None:
    """The exact baseline is that of the same rows in PostgreSQL."""
    models = [each.baseline(name, Request(epsilon=1.0)) for each, name in ((on_spark, visits), (database, same))]
    assert models[0].errors == models[1].errors
    assert np.allclose(models[0].coefficients, models[1].coefficients, rtol=1e-6)


SCORES: dict[str, Callable[[Database, int, str], Any]] = {
    "accuracy": lambda database, model, name: database.score(model, name, "accuracy", epsilon=200.0),
    "confusion": lambda database, model, name: database.confusion(str(model), name, epsilon=200.0),
    "auc": lambda database, model, name: database.score(model, name, "auc", epsilon=200.0, bins=10),
    "evaluation": lambda database, model, name: database.evaluate(model, name, epsilon=400.0),
    "class balance": lambda database, _, name: database.class_balance(name, epsilon=200.0),
}


@pytest.mark.parametrize("how", SCORES)
def test_score_is_that_of_postgresql_for_one_charge(
    how: str, on_spark: Database, database: Database, same: str, schema: str, folder: Path
) -> None:
    """At ε = 200 or more a count has noise with probability below 4e^-50: the shares of ε are at least a quarter."""
    name = f"rich_{schema}"
    on_spark.register_dataset(name, f"spark:parquet:{folder}", **DECLARED | {"epsilon": 5000.0})
    try:
        model = on_spark.train(name, REQUESTS["shards"]).id
        places = (on_spark, name), (database, same), (on_spark, same)
        found = [SCORES[how](each, model, where) for each, where in places]
        history = on_spark.history(name)
        assert sorted(each["outcome"] for each in history) == ["released", "shown"]
    finally:
        on_spark.drop_dataset(name)
    for each in found:
        assert not isinstance(each, dict) or each.pop("receipt")["rows"] == ROWS
    here, in_server, of_table = map(rounded, found)
    assert here == in_server == of_table


def rounded(figures: Any) -> Any:
    """Figures to nine digits: the server's NumPy may add them otherwise."""
    return json.loads(json.dumps(figures), parse_float=lambda text: round(float(text), 9))


def test_failed_score_stays_charged_and_names_no_row(
    on_spark: Database, visits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score that fails on Spark stays charged and names no row."""
    model = on_spark.train(visits, REQUESTS["shards"]).id
    monkeypatch.setattr(SparkEngine, "rows", lambda *_: 1 / 0)
    with pytest.raises(ChargedError, match="ZeroDivisionError"):
        on_spark.score(model, visits, "accuracy", epsilon=1.0)
    assert sorted(each["outcome"] for each in on_spark.history(visits)) == ["failed", "released"]


REFUSED: dict[str, Callable[[Database, Database, str], Any]] = {
    "PostgreSQL": lambda _, here, name: here.train(name, REQUESTS["default"]),
    "an analyst's SQL": lambda _, here, name: here.query("select dbdp.dp_logreg($1, 1.0, 1e-7)", name),
    "noise in every step": lambda on, _, name: on.train(name, Request(epsilon=1.0, delta=1e-7, algorithm="dp_sgd")),
    "a network": lambda on, _, name: on.train(
        name, Request(epsilon=1.0, delta=1e-7, algorithm="dp_adam", network="mlp:2")
    ),
    "groups": lambda on, _, name: on.train_groups(name, REQUESTS["shards"], group_by="c", groups=["x"]),
    "bounds": lambda on, _, name: on.bounds(name, "a", epsilon=1.0),
    "class balance": lambda _, here, name: here.class_balance(name, epsilon=1.0),
    "a summary": lambda on, _, name: on.summarize(name, epsilon=1.0, delta=1e-7),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_cannot_run_is_refused_before_the_charge(
    how: str, on_spark: Database, database: Database, visits: str
) -> None:
    with pytest.raises(ValueError, match=r"PostgreSQL|every step"):
        REFUSED[how](on_spark, database, visits)
    trainings = len(on_spark.query("select id from dbdp.models where dataset = $1", visits))
    assert len(on_spark.history(visits)) == trainings
    assert (spent(database, visits) == 0) == (trainings == 0)


@pytest.mark.parametrize("method", ["disjoint_portions", pytest.param("random_repetition", marks=pytest.mark.slow)])
def test_a_tuning_releases_one_model_for_one_charge(on_spark: Database, schema: str, folder: Path, method: str) -> None:
    name = f"tuned_{schema}"
    on_spark.register_dataset(name, f"spark:parquet:{folder}", **DECLARED | {"epsilon": 10.0})
    base = Request(epsilon=1.0, delta=1e-7, algorithm="bolt_on", epochs=2)
    candidates = ({"regularisation": 0.001}, {"regularisation": 0.1})
    model = on_spark.tune(name, TuningRequest(base, candidates, method))
    assert [each["outcome"] for each in on_spark.history(name)] == ["released"]
    assert model.receipt["chosen"] in (0, 1, None)
    on_spark.drop_dataset(name)


def test_files_that_were_replaced_are_refused_before_the_charge(
    on_spark: Database, tmp_path: Path, schema: str
) -> None:
    name = f"replaced_{schema}"
    on_spark.register_dataset(name, f"spark:parquet:{write(tmp_path)}", **DECLARED)
    write(tmp_path, ROWS + 1)
    with pytest.raises(ValueError, match="not those that dataset"):
        on_spark.train(name, REQUESTS["shards"])
    assert spent(on_spark, name) == 0
    on_spark.drop_dataset(name)


def test_replaced_files_end_the_training_but_charge(
    on_spark: Database, tmp_path: Path, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files replaced after the charge end the training which stays charged."""
    name = f"late_{schema}"
    on_spark.register_dataset(name, f"spark:parquet:{write(tmp_path)}", **DECLARED)
    monkeypatch.setattr(SparkEngine, "check", lambda *_: write(tmp_path, ROWS + 1))
    with pytest.raises(ChargedError, match=workers.CHANGED):
        on_spark.train(name, REQUESTS["shards"])
    assert spent(on_spark, name) > 0
    assert not on_spark.query("select id from dbdp.models where dataset = $1", name)
    (charge,) = on_spark.history(name)
    assert charge["outcome"] == "failed"
    on_spark.drop_dataset(name)


def test_number_of_rows_stays_and_new_dataset_has_place(on_spark: Database, visits: str) -> None:
    """The number of rows of files stays and only a new dataset has a place."""
    for sql in (
        "select dbdp.raise_capacity($1, 'grown', 99999999)",
        "select dbdp.renew_budget($1, 'a new year')",
        "select dbdp_internal.place_dataset($1, 'spark:parquet:/other', repeat('0', 64))",
    ):
        with pytest.raises(ValueError, match=r"fixed|not registered in this transaction"):
            on_spark.query(sql, visits)


def commanded(server_url: str, *words: str) -> Any:
    """What a command prints as JSON; each is a process of its own, which does not stop the session of these tests."""
    chosen = ["--engine", "spark", "--master", "local[2]", "--url", server_url, "--json"]
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", *words, *chosen]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_command_line_trains_and_scores_on_spark_to_its_end(
    visits: str, on_spark: Database, server_url: str
) -> None:
    options = ["--epsilon", "1", "--delta", "1e-7", "--algorithm", "bolt_on", "--shards", "2", "--epochs", "2"]
    model = commanded(server_url, "train", visits, *options)
    assert 0 <= commanded(server_url, "score", str(model["id"]), visits, "--epsilon", "1")["accuracy"] <= 1
    assert (model["dataset"], model["receipt"]["rows"], model["receipt"]["shards"]) == (visits, ROWS, 2)
    (row,) = on_spark.query("select id from dbdp.models where dataset = $1", visits)
    assert row["id"] == model["id"]


def test_the_command_line_names_what_spark_refuses(visits: str, on_spark: Database, server_url: str) -> None:
    words = ["train", visits, "--epsilon", "1", "--delta", "1e-7", "--algorithm", "dp_sgd"]
    words += ["--engine", "spark", "--master", "local[1]", "--url", server_url]
    ended = subprocess.run(
        [sys.executable, "-m", "dbdp.interfaces.cli.main", *words], capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert "every step" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert spent(on_spark, visits) == 0


def test_a_plan_of_many_shards_needs_neither_spark_nor_a_server() -> None:
    words = "explain --rows 5000000 --features 54 --epsilon 1 --delta 1e-8 --algorithm bolt_on --shards 16 --json"
    environment = {"PATH": "/nowhere", "DBDP_URL": "postgresql://nowhere.invalid/none"}
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", *words.split()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["shards"] == 16


def test_a_master_without_its_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="add that, or leave it out"), opened_on(None, "postgresql", "local[1]"):
        pass


def test_estimator_fits_on_spark_and_predicts_as_here(
    on_spark: Database, visits: str, spark: Any, folder: Path
) -> None:
    """An estimator fits on Spark and predicts there what it predicts here."""
    import pandas as pd
    from pyspark.ml import Pipeline

    fitted = LogisticRegression(epsilon=1.0, delta=1e-7, progress=False).fit(on_spark, visits)
    frame = spark.read.parquet(str(folder)).limit(50)
    missing = frame.limit(1).selectExpr("cast(null as double) as a", "b", "c", "y")
    rows = Pipeline(stages=[PredictionTransformer(fitted)]).fit(frame).transform(frame.union(missing)).collect()
    here = pd.DataFrame([row.asDict() for row in rows[:-1]])
    assert here.pop("prediction").tolist() == fitted.predict(here[["a", "b", "c"]]).tolist()
    assert rows[-1].prediction is None
