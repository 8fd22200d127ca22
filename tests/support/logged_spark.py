"""Trains on planted values with every log of Spark at level DEBUG, for a test that searches what was written.

`python logged_spark.py FOLDER URL NAME DISK` trains the datasets `NAME_files` and `NAME_table` on two executors, scores
a model, and lets a worker fail with a planted value in its error; it prints JSON: the text of that error, and the
folder of the executors' logs. Files of Spark are in DISK.
"""

import json
import logging
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sparks
from psycopg.conninfo import make_conninfo

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.packing.spark import packed, workers

KEY = bytes(range(101, 133))
PASSWORD, TEXT, NUMBER, WHOLE = "planted-password-8315", "planted-text-7204", 0.271828182845904, 918273645
CATEGORY = "declared-category"  # public
ROWS = 600
DECLARED: dict[str, Any] = {
    "label": "y",
    "positive": "1",
    "negative": "0",
    "features": {"a": [-1, 1], "b": [0, 10**9], "c": [CATEGORY, "other"]},
    "epsilon": 50.0,
    "delta": 1e-5,
}
COLUMNS = "a float8, b bigint, c text, y int"
REQUESTS = (
    Request(epsilon=1.0, delta=1e-7),
    Request(epsilon=1.0, delta=1e-7, algorithm="bolt_on", shards=2, epochs=2),
)
_LOGGED = """
rootLogger.level = debug
rootLogger.appenderRef.all.ref = all
appender.all.type = File
appender.all.name = all
appender.all.fileName = {file}
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %p %c: %m%n%ex
"""


def planted() -> dict[str, list[Any]]:
    """Columns of rows, of which one has planted values."""
    random = np.random.default_rng(9)
    columns: dict[str, list[Any]] = {
        "a": random.normal(size=ROWS).clip(-1, 1).tolist(),
        "b": random.integers(0, 10**9, ROWS).tolist(),
        "c": random.choice([CATEGORY, "other"], ROWS).tolist(),
        "y": random.integers(0, 2, ROWS).tolist(),
    }
    columns["a"][17], columns["b"][17], columns["c"][17] = NUMBER, WHOLE, TEXT
    return columns


class Leaking(workers.FileRows):
    """Fails with the rows in the text of its error."""

    def __call__(self, batches: Any) -> Iterator[Any]:
        for batch in batches:
            raise ValueError(f"could not read {NUMBER}, {WHOLE} or {TEXT} of {batch.to_pylist()}")
        yield from ()


def loud_session(disk: Path) -> Any:
    """A session on two executors whose driver and executors write every message."""
    (disk / "events").mkdir(parents=True)
    loud = {}
    for name, file in (
        ("driver", f"{disk}/driver.log"),
        ("executor", "everything.log"),
    ):  # a shell's console is filtered
        (disk / f"{name}.properties").write_text(_LOGGED.format(file=file))
        loud[name] = f"-Dlog4j2.configurationFile=file:{disk}/{name}.properties"
    settings = {
        "spark.driver.extraJavaOptions": f"{sparks.SETTINGS['spark.driver.extraJavaOptions']} {loud['driver']}",
        "spark.executor.extraJavaOptions": loud["executor"],
        "spark.executor.memory": "1g",
        "spark.local.dir": f"{disk}/local",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (disk / "events").as_uri(),
        "spark.log.level": "DEBUG",
    }
    spark = sparks.spark_session("local-cluster[2,1,1024]", **settings)
    spark.sparkContext.setLogLevel("DEBUG")
    return spark


def trained(database: Database, name: str) -> None:
    """Train by several algorithms, and score a model."""
    models = [database.train(name, request).id for request in REQUESTS]
    database.score(models[0], name, "confusion", epsilon=1.0)
    database.class_balance(name, epsilon=1.0)


def main(folder: str, url: str, name: str, disk: str) -> None:
    """Train, score and fail."""
    logging.basicConfig(level=logging.DEBUG)
    packed.os = types.SimpleNamespace(urandom=lambda _: KEY)  # type: ignore[attr-defined]
    spark = loud_session(Path(disk))
    with connect(make_conninfo(url, password=PASSWORD)) as plain:
        database = plain.on_spark(spark)
        database.register_dataset(f"{name}_files", f"spark:parquet:{folder}", **DECLARED)
        for each in ("files", "table"):
            trained(database, f"{name}_{each}")
        workers.FileRows = Leaking  # type: ignore[misc]
        try:
            database.train(f"{name}_files", REQUESTS[1])
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
    logs = Path(os.environ.get("SPARK_HOME", spark_home())) / "work" / spark.sparkContext.applicationId
    spark.stop()
    print(json.dumps({"raised": raised, "logs": str(logs)}))


def spark_home() -> str:
    """Return where PySpark has Spark."""
    import pyspark

    return str(Path(pyspark.__file__).parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
