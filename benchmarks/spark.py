"""Speed on Apache Spark beside MLlib on the same rows and cores: `make bench-spark`, written to build/bench-spark.json.

Runs alternate, and medians are compared: a whole private run of 10 epochs from Parquet with MLlib's fits of 10
iterations without a cache, and a further epoch in a job with a further iteration of MLlib. Arguments: numbers of rows.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbdp.algorithms import Facts, Request, plan
from dbdp.packing.spark import files
from dbdp.packing.spark.packed import rows_on_spark
from dbdp.registry.datasets import Dataset
from dbdp.registry.declarations import declare

FEATURES, CORES, SHARDS = 54, 2, 2
NAMES = [f"f{number}" for number in range(FEATURES)]
TYPES = {name: "double precision" for name in NAMES} | {"label": "integer"}


def write(folder: Path, rows: int, each: int = 250_000) -> str:
    """Write logistic rows of 54 columns in files of so many rows."""
    random, weights = np.random.default_rng(7), np.random.default_rng(8).normal(size=FEATURES) * 4
    for number, first in enumerate(range(0, rows, each)):
        features = random.normal(size=(min(each, rows - first), FEATURES))
        features /= np.linalg.norm(features, axis=1)[:, None]
        labels = (features @ weights + random.logistic(size=len(features)) > 0).astype(np.int32)
        columns = dict(zip(NAMES, features.T, strict=True)) | {"label": labels}
        pq.write_table(pa.table(columns), folder / f"{number:05}.parquet", row_group_size=50_000)
    return str(folder)


def dataset_of(rows: int) -> Dataset:
    """The rows as a registered dataset."""
    declared = declare(
        label="label",
        features={name: [-1, 1] for name in NAMES},
        positive="1",
        negative="0",
        classes=None,
        label_bounds=None,
        intercept=True,
        public_columns=None,
    )
    return Dataset(1, "bench", "bench", rows, declared, None, TYPES)  # type: ignore[arg-type]


def seconds(action: Callable[[], Any]) -> float:
    """Return the duration of an action."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


class Ours:
    """Private runs of bolt_on over two shards."""

    def __init__(self, spark: Any, path: str, rows: int) -> None:
        self.spark, self.path, self.source = spark, path, files.files_of(spark, path)
        self.dataset = dataset_of(rows)
        facts = Facts(rows, self.dataset.declaration.dimension)
        options = {"epsilon": 1.0, "delta": 1e-8, "regularisation": 1e-4, "epochs": 10, "batch_size": 50}
        self.plan: Any = plan(Request(algorithm="bolt_on", shards=SHARDS, **options), facts)

    def rows(self) -> Any:
        """A context manager of packed rows."""
        return rows_on_spark(self.spark, self.dataset, self.source, self.path, self.plan.layout)

    def whole_run(self) -> None:
        """Pack, train for 10 epochs, and release."""
        with self.rows() as rows:
            self.plan.run(rows)

    def epoch_in_a_job(self) -> float:
        """Return the duration of each of 10 further epochs inside one job."""
        with self.rows() as rows:
            rows.shuffle()
            states = self.plan._encoded()
            rows.epoch(states, 1)  # packs
            few, many = (seconds(lambda passes=passes: rows.epoch(states, passes)) for passes in (10, 20))
        return (many - few) / 10


class MLlib:
    """MLlib's fits on the same files."""

    def __init__(self, spark: Any, path: str) -> None:
        from pyspark.ml.feature import VectorAssembler

        assembler = VectorAssembler(inputCols=NAMES, outputCol="features")
        self.frame = assembler.transform(spark.read.parquet(path)).select("features", "label")

    def fit(self, kind: str, iterations: int) -> None:
        """Fit for exactly so many iterations, as far as the optimiser goes on."""
        from pyspark.ml import classification

        options = {"maxIter": iterations, "tol": 0.0, "regParam": 1e-4, "standardization": False}
        getattr(classification, kind)(**options).fit(self.frame)

    def iteration(self, kind: str) -> float:
        """Return the duration of a further iteration."""
        few, many = (seconds(lambda number=number: self.fit(kind, number)) for number in (2, 10))
        return (many - few) / 8


def compared(spark: Any, rows: int, repetitions: int) -> dict[str, Any]:
    """Return medians in seconds and their ratios, of alternating runs."""
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), rows)
        ours, theirs = Ours(spark, path, rows), MLlib(spark, path)
        actions: dict[str, Callable[[], float]] = {
            "run of 10 epochs": lambda: seconds(ours.whole_run),
            "LogisticRegression, 10 iterations": lambda: seconds(lambda: theirs.fit("LogisticRegression", 10)),
            "LinearSVC, 10 iterations": lambda: seconds(lambda: theirs.fit("LinearSVC", 10)),
            "epoch in a job": ours.epoch_in_a_job,
            "LogisticRegression, iteration": lambda: theirs.iteration("LogisticRegression"),
            "LinearSVC, iteration": lambda: theirs.iteration("LinearSVC"),
        }
        for repetition in range(repetitions + 1):  # the first warms up
            for name, action in actions.items():
                taken = action()
                if repetition:
                    measured.setdefault(name, []).append(taken)
    figures = {name: median(values) for name, values in measured.items()}
    ratios = {
        f"{ours} / {theirs}": figures[ours] / figures[theirs]
        for ours, kind in (("run of 10 epochs", "10 iterations"), ("epoch in a job", "iteration"))
        for theirs in (f"LogisticRegression, {kind}", f"LinearSVC, {kind}")
    }
    return {"rows": rows, "load": os.getloadavg()[0], "seconds": figures, "ratios": ratios}


def main() -> None:
    """Compare on each number of rows that is given; 500,000 by default."""
    from dbdp.packing.spark.jobs import started

    sizes = [int(word) for word in sys.argv[1:]] or [500_000]
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 6g pyspark-shell")
    with started(f"local[{CORES}]") as spark:
        results = [compared(spark, rows, 3) for rows in sizes]
    Path("build").mkdir(exist_ok=True)
    text = json.dumps(results, indent=1)
    Path("build/bench-spark.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
