"""Speed on Apache Spark beside MLlib on the same rows and cores: `make bench-spark`, written to build/bench-spark.json.

Runs alternate, and medians are compared: a whole private run of 10 epochs from Parquet with MLlib's fits of 10
iterations without a cache, and a further epoch in a job with a further iteration of MLlib. Each figure is measured as
time and as processor time of the JVM and its workers, which other load on the machine disturbs less. Then our own runs
against rows, shards and features, with the most memory that a worker had. Arguments: numbers of rows to compare at, and
`--growth ROWS …`.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbdp.algorithms import Facts, Request, plan
from dbdp.packing.spark import files
from dbdp.packing.spark.engine import SparkEngine
from dbdp.packing.spark.jobs import started
from dbdp.packing.spark.packed import rows_on_spark
from dbdp.registry.datasets import Dataset
from dbdp.registry.declarations import declare

FEATURES, CORES, SHARDS = 54, 2, 2
GROWTH, MORE_SHARDS, MORE_FEATURES = (1_000_000, 3_000_000), (1, 4, 16), (10, 200)


def names_of(features: int) -> list[str]:
    """Return the names of so many columns."""
    return [f"f{number}" for number in range(features)]


def write(folder: Path, rows: int, features: int = FEATURES, each: int = 250_000) -> str:
    """Write logistic rows in files of so many rows."""
    random, weights = np.random.default_rng(7), np.random.default_rng(8).normal(size=features) * 4
    for number, first in enumerate(range(0, rows, each)):
        values = random.normal(size=(min(each, rows - first), features))
        values /= np.linalg.norm(values, axis=1)[:, None]
        labels = (values @ weights + random.logistic(size=len(values)) > 0).astype(np.int32)
        columns = dict(zip(names_of(features), values.T, strict=True)) | {"label": labels}
        pq.write_table(pa.table(columns), folder / f"{number:05}.parquet", row_group_size=50_000)
    return str(folder)


def dataset_of(rows: int, features: int = FEATURES) -> Dataset:
    """The rows as a registered dataset."""
    names = names_of(features)
    declared = declare(
        label="label",
        features={name: [-1, 1] for name in names},
        positive="1",
        negative="0",
        classes=None,
        label_bounds=None,
        intercept=True,
        public_columns=None,
    )
    types = {name: "double precision" for name in names} | {"label": "integer"}
    return Dataset(1, "bench", "bench", rows, declared, None, types)  # type: ignore[arg-type]


def descendants(process: int) -> Iterator[int]:
    """Yield the processes that a process started, and theirs."""
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from descendants(child)


def processor() -> float:
    """Return the processor time of this process and of all that it started, in seconds."""
    spent = 0
    for process in (os.getpid(), *descendants(os.getpid())):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended, and its parent has its time
            continue
        spent += sum(map(int, fields[11:15]))
    return spent / os.sysconf("SC_CLK_TCK")


def most_memory() -> float:
    """Return the most memory that a Python worker of Spark had, in MB."""
    found = [0]
    for process in descendants(os.getpid()):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        if status.startswith("Name:\tpython"):
            found += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    return max(found) / 1024


def taken(action: Callable[[], Any]) -> np.ndarray:
    """Return time and processor time of an action."""
    begin, spent = time.perf_counter(), processor()
    action()
    return np.array([time.perf_counter() - begin, processor() - spent])


class Ours:
    """Private runs of bolt_on."""

    def __init__(self, spark: Any, path: str, rows: int, shards: int = SHARDS, features: int = FEATURES) -> None:
        self.spark, self.path, self.source = spark, path, files.files_of(spark, path)
        self.dataset = dataset_of(rows, features)
        facts = Facts(rows, self.dataset.declaration.dimension)
        options = {"epsilon": 1.0, "delta": 1e-8, "regularisation": 1e-4, "epochs": 10, "batch_size": 50}
        self.plan: Any = plan(Request(algorithm="bolt_on", shards=shards, **options), facts)

    def rows(self) -> Any:
        """A context manager of packed rows."""
        return rows_on_spark(self.spark, self.dataset, self.source, self.plan.layout)

    def whole_run(self) -> None:
        """Pack, train for 10 epochs, and release."""
        with self.rows() as rows:
            self.plan.run(rows)

    def packing(self) -> np.ndarray:
        """Return what packing takes, with one epoch in the same job."""
        with self.rows() as rows:
            rows.shuffle()
            return taken(lambda: rows.epoch(self.plan._encoded(), 1))

    def epoch_in_a_job(self) -> np.ndarray:
        """Return what each of 10 further epochs inside one job takes."""
        with self.rows() as rows:
            rows.shuffle()
            states = self.plan._encoded()
            rows.epoch(states, 1)  # packs
            few, many = (taken(lambda passes=passes: rows.epoch(states, passes)) for passes in (10, 20))
        return (many - few) / 10


class MLlib:
    """MLlib's fits on the same files."""

    def __init__(self, spark: Any, path: str) -> None:
        from pyspark.ml.feature import VectorAssembler

        assembler = VectorAssembler(inputCols=names_of(FEATURES), outputCol="features")
        self.frame = assembler.transform(spark.read.parquet(path)).select("features", "label")

    def fit(self, kind: str, iterations: int) -> None:
        """Fit for exactly so many iterations, as far as the optimiser goes on."""
        from pyspark.ml import classification

        options = {"maxIter": iterations, "tol": 0.0, "regParam": 1e-4, "standardization": False}
        getattr(classification, kind)(**options).fit(self.frame)

    def iteration(self, kind: str) -> np.ndarray:
        """Return what a further iteration takes."""
        few, many = (taken(lambda number=number: self.fit(kind, number)) for number in (2, 10))
        return (many - few) / 8


def medians(measured: dict[str, list[np.ndarray]]) -> dict[str, list[float]]:
    """Return the medians of time and of processor time."""
    return {name: np.round(np.median(values, axis=0), 4).tolist() for name, values in measured.items()}


def compared(spark: Any, rows: int, repetitions: int) -> dict[str, Any]:
    """Return medians of time and processor time, in seconds, and their ratios, of alternating runs."""
    measured: dict[str, list[np.ndarray]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), rows)
        ours, theirs = Ours(spark, path, rows), MLlib(spark, path)
        actions: dict[str, Callable[[], np.ndarray]] = {
            "run of 10 epochs": lambda: taken(ours.whole_run),
            "LogisticRegression, 10 iterations": lambda: taken(lambda: theirs.fit("LogisticRegression", 10)),
            "LinearSVC, 10 iterations": lambda: taken(lambda: theirs.fit("LinearSVC", 10)),
            "epoch in a job": ours.epoch_in_a_job,
            "LogisticRegression, iteration": lambda: theirs.iteration("LogisticRegression"),
            "LinearSVC, iteration": lambda: theirs.iteration("LinearSVC"),
        }
        for repetition in range(repetitions + 1):  # the first warms up
            for name, action in actions.items():
                found = action()
                if repetition:
                    measured.setdefault(name, []).append(found)
    figures = medians(measured)
    ratios = {
        f"{ours} / {theirs}": np.round(np.divide(figures[ours], figures[theirs]), 3).tolist()
        for ours, kind in (("run of 10 epochs", "10 iterations"), ("epoch in a job", "iteration"))
        for theirs in (f"LogisticRegression, {kind}", f"LinearSVC, {kind}")
    }
    all_runs = {name: np.round(values, 3).tolist() for name, values in measured.items()}
    return {"rows": rows, "load": os.getloadavg()[0], "medians": figures, "ratios": ratios, "runs": all_runs}


def grown(spark: Any, rows: int, shards: int = SHARDS, features: int = FEATURES) -> dict[str, Any]:
    """Return what packing and a further epoch in a job take, and the memory of a worker."""
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(spark, write(Path(folder), rows, features), rows, shards, features)
        packing, epoch = ours.packing().round(3).tolist(), ours.epoch_in_a_job().round(4).tolist()
    facts = {"rows": rows, "shards": shards, "features": features, "load": os.getloadavg()[0]}
    return facts | {"packing": packing, "epoch in a job": epoch, "MB of a worker": round(most_memory())}


def own_start(master: str) -> dict[str, float]:
    """Return the seconds until Spark has run a first Python job, and what dbdp's own checks take after that."""
    begin = time.perf_counter()
    with started(master) as spark, tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), 1000)
        spark.read.parquet(path).mapInArrow(lambda batches: batches, spark.read.parquet(path).schema).count()
        ready = time.perf_counter() - begin
        engine = SparkEngine(spark, None)  # type: ignore[arg-type]
        placed = replace(dataset_of(1000), place=f"spark:parquet:{path}", digest=files.files_of(spark, path).digest)
        checks = taken(
            lambda: (engine.check_rows(placed), engine.check(placed, Request(epsilon=1.0, algorithm="bolt_on")))
        )
    return {"Spark is ready": round(ready, 2), "checks of dbdp": round(checks[0], 2), "load": os.getloadavg()[0]}


def main() -> None:
    """Compare on each number of rows that is given; 500,000 by default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", type=int, default=[500_000])
    parser.add_argument("--growth", nargs="*", type=int, default=GROWTH)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 6g pyspark-shell")
    results: list[Any] = []
    Path("build").mkdir(exist_ok=True)
    for result in measured(options):
        results.append(result)
        print(json.dumps(result), flush=True)
        Path("build/bench-spark.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield each measurement."""
    master = f"local[{CORES}]"
    yield own_start(master)
    with started(master) as spark:
        for rows in options.rows:
            yield compared(spark, rows, options.repetitions)
        for rows in options.growth:
            yield grown(spark, rows)
        for shards in MORE_SHARDS:
            yield grown(spark, options.rows[0], shards=shards)
        for features in MORE_FEATURES:
            yield grown(spark, options.rows[0], features=features)


if __name__ == "__main__":
    main()
