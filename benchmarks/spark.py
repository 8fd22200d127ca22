"""Speed on Apache Spark beside MLlib on the same rows and cores: `make bench-spark`, written to build/bench-spark.json.

Runs alternate, and medians are compared, with quartiles: a whole private run of 10 epochs from Parquet with MLlib's
fits of 10 iterations without a cache, and a further epoch in a job with a further iteration of MLlib. Each figure is
measured as time and as processor time of the JVM and its workers, which other load on the machine disturbs less. Then
our own runs against rows, shards and features, and the most memory that driver, executors and workers had in whole runs
on two executors of 1 GB. Arguments: numbers of rows to compare at, `--growth ROWS …` and `--memory ROWS …`; files stay
in the folder that `--data` names.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
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
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import declare

FEATURES, CORES, SHARDS = 54, 2, 2
GROWTH, MORE_SHARDS, MORE_FEATURES = (1_000_000, 3_000_000), (1, 4, 16), (10, 200, 1000)
EPOCHS, ITERATIONS = (10, 210), (2, 32)  # whose difference is that of so many further ones
SMALL_CLUSTER, ROWS_OF_SHARD = "local-cluster[2,1,1024]", 500_000


def names_of(features: int) -> list[str]:
    """Return the names of so many columns."""
    return [f"f{number}" for number in range(features)]


def write(data: Path, rows: int, features: int = FEATURES, each: int = 250_000) -> str:
    """Write logistic rows in files of so many rows, unless they are there; return their folder."""
    folder, begun = data / f"{rows}x{features}", data / f"{rows}x{features}.begun"
    if folder.exists():
        return str(folder)
    begun.mkdir(parents=True)
    random, weights = np.random.default_rng(7), np.random.default_rng(8).normal(size=features) * 4
    for number, first in enumerate(range(0, rows, each)):
        values = random.normal(size=(min(each, rows - first), features))
        values /= np.linalg.norm(values, axis=1)[:, None]
        labels = (values @ weights + random.logistic(size=len(values)) > 0).astype(np.int32)
        columns = dict(zip(names_of(features), values.T, strict=True)) | {"label": labels}
        pq.write_table(pa.table(columns), begun / f"{number:05}.parquet", row_group_size=50_000)
    return str(begun.rename(folder))


def dataset_of(rows: int, features: int = FEATURES) -> RegisteredDataset:
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
    return RegisteredDataset(1, "bench", "bench", rows, declared, None, types)  # type: ignore[arg-type]


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


def most_memory() -> dict[str, int]:
    """Return the most memory in MB that the driver had in Python and in its JVM, an executor, and a Python worker."""
    found = dict.fromkeys(("driver", "driver's JVM", "executor", "worker"), 0)
    for process in (os.getpid(), *descendants(os.getpid())):
        try:
            status, command = (Path(f"/proc/{process}/{name}").read_text() for name in ("status", "cmdline"))
        except OSError:
            continue
        is_java = status.startswith("Name:\tjava")
        java = "executor" if "CoarseGrainedExecutorBackend" in command else "driver's JVM"
        name = java if is_java else "driver" if process == os.getpid() else "worker"
        peaks = [int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")]
        found[name] = max(found[name], *peaks, 0)
    return found


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

    def packing_and_epoch(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what packing takes, with one epoch in the same job, and what each further epoch inside a job takes."""
        with self.rows() as rows:
            rows.shuffle()
            states = self.plan._encoded()
            packing = taken(lambda: rows.epoch(states, 1))
            few, many = (taken(lambda passes=passes: rows.epoch(states, passes)) for passes in EPOCHS)
        return packing, (many - few) / (EPOCHS[1] - EPOCHS[0])


class MLlib:
    """MLlib's fits on the same files."""

    def __init__(self, spark: Any, path: str) -> None:
        from pyspark.ml.feature import VectorAssembler

        assembler = VectorAssembler(inputCols=names_of(FEATURES), outputCol="features")
        self.frame = assembler.transform(spark.read.parquet(path)).select("features", "label")

    def fit(self, kind: str, iterations: int) -> int:
        """Fit for so many iterations, as far as the optimiser goes on; return their number."""
        from pyspark.ml import classification

        options = {"maxIter": iterations, "tol": 0.0, "regParam": 1e-4, "standardization": False}
        summary = getattr(classification, kind)(**options).fit(self.frame).summary
        return int((summary() if callable(summary) else summary).totalIterations)

    def iteration(self, kind: str) -> np.ndarray:
        """Return what a further iteration takes."""
        made: list[int] = []
        few, many = (taken(lambda number=number: made.append(self.fit(kind, number))) for number in ITERATIONS)
        return (many - few) / (made[1] - made[0])


def quartiles(measured: dict[str, list[np.ndarray]]) -> dict[str, list[list[float]]]:
    """Return the quartiles, the median in their middle, of time and of processor time."""
    parts = (25, 50, 75)
    return {name: np.round(np.percentile(values, parts, axis=0).T, 4).tolist() for name, values in measured.items()}


def compared(spark: Any, data: Path, rows: int, repetitions: int) -> dict[str, Any]:
    """Return quartiles of time and processor time, in seconds, and of their ratios run by run, of alternating runs."""
    measured: dict[str, list[np.ndarray]] = {}
    path = write(data, rows)
    ours, theirs = Ours(spark, path, rows), MLlib(spark, path)
    actions: dict[str, Callable[[], np.ndarray]] = {
        "run of 10 epochs": lambda: taken(ours.whole_run),
        "LogisticRegression, 10 iterations": lambda: taken(lambda: theirs.fit("LogisticRegression", 10)),
        "LinearSVC, 10 iterations": lambda: taken(lambda: theirs.fit("LinearSVC", 10)),
        "epoch in a job": lambda: ours.packing_and_epoch()[1],
        "LogisticRegression, iteration": lambda: theirs.iteration("LogisticRegression"),
        "LinearSVC, iteration": lambda: theirs.iteration("LinearSVC"),
    }
    for repetition in range(repetitions + 1):  # the first warms up
        for name, action in actions.items():
            found = action()
            if repetition:
                measured.setdefault(name, []).append(found)
    ratios = {
        f"{ours} / {theirs}": list(np.divide(measured[ours], measured[theirs]))
        for ours, kind in (("run of 10 epochs", "10 iterations"), ("epoch in a job", "iteration"))
        for theirs in (f"LogisticRegression, {kind}", f"LinearSVC, {kind}")
    }
    all_runs = {name: np.round(values, 4).tolist() for name, values in measured.items()}
    figures = {"seconds": quartiles(measured), "ratios": quartiles(ratios), "runs": all_runs}
    return {"rows": rows, "load": os.getloadavg()[0]} | figures


def grown(spark: Any, data: Path, rows: int, shards: int = SHARDS, features: int = FEATURES) -> dict[str, Any]:
    """Return what packing and a further epoch in a job take, as time and processor time."""
    ours = Ours(spark, write(data, rows, features), rows, shards, features)
    packing, epoch = ours.packing_and_epoch()
    facts = {"rows": rows, "shards": shards, "features": features, "load": os.getloadavg()[0]}
    return facts | {"packing": packing.round(3).tolist(), "epoch in a job": epoch.round(5).tolist()}


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


def memory(data: Path, rows: int) -> dict[str, Any]:
    """Return the most memory in MB of a whole run on a small cluster, with shards of at most so many rows."""
    shards = max(2, rows // ROWS_OF_SHARD)
    with started(SMALL_CLUSTER) as spark:
        run = taken(Ours(spark, write(data, rows), rows, shards).whole_run)
        return {"rows": rows, "shards": shards, "run": run.round(2).tolist(), "most MB": most_memory()}


def alone(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return what a function returns in a process of its own, with a driver of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> None:
    """Compare on each number of rows that is given; 500,000 by default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", type=int, default=[500_000])
    parser.add_argument("--growth", nargs="*", type=int, default=GROWTH)
    parser.add_argument("--memory", nargs="*", type=int, default=GROWTH)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 6g pyspark-shell")
    results: list[Any] = []
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for result in measured(options, options.data or Path(folder)):
            results.append(result)
            print(json.dumps(result), flush=True)
            Path("build/bench-spark.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def measured(options: argparse.Namespace, data: Path) -> Iterator[dict[str, Any]]:
    """Yield each measurement."""
    master = f"local[{CORES}]"
    for _ in range(options.repetitions):
        yield alone(own_start, master)
    with started(master) as spark:
        for rows in options.rows:
            yield compared(spark, data, rows, options.repetitions)
        for rows in options.growth:
            yield grown(spark, data, rows)
        for shards in MORE_SHARDS:
            yield grown(spark, data, options.rows[0], shards=shards)
        for features in MORE_FEATURES:
            yield grown(spark, data, options.rows[0] * 200 // max(200, features), features=features)
    for rows in options.memory:
        yield alone(memory, data, rows)


if __name__ == "__main__":
    main()
