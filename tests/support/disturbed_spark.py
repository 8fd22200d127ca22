"""Packs and trains on clusters that are disturbed at a stage; prints a digest for each stage.

`python disturbed_spark.py HOW FOLDER …` prints JSON: for each stage whether it was disturbed, and SHA-256 of the
blocks, of the states after three epochs in one job, and of a sum.

- `killed FOLDER KEY_HEX`: on two executors, of which one is killed; or a worker, or the files of the shuffle are lost.
- `killed URL KEY_HEX NAME`: the same, of the dataset NAME in PostgreSQL.
- `slow FOLDER KEY_HEX`: on two hosts, where a task is so slow that the other one runs a copy.
- `connect FOLDER KEY_HEX`: undisturbed, by Spark Connect.
- `charged FOLDER URL NAME`: trains the dataset NAME, and is killed after its charge.
- `full FOLDER URL NAME DISK`: trains it where the disk for the shuffle is full, and prints the error.
"""

import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sparks

from dbdp.algorithms import Request
from dbdp.algorithms.rows import Layout
from dbdp.interfaces.python.client.connecting import connect as connected
from dbdp.learning.rows.features import SCALED
from dbdp.packing.spark import files, packed, tables, workers
from dbdp.packing.spark.engine import SparkEngine
from dbdp.packing.spark.masks import Named, padded
from dbdp.registry import datasets
from dbdp.sessions.client import ClientSession
from dbdp.sessions.connections import opened

SLICES = (500, 300, 200)
STAGES = ("nothing", "map", "reduce", "epoch", "sum", "worker", "shuffle")
LEAST_SLOTS = 63  # of a task that reads a table: as many tasks as there may be
SLOW = 600  # seconds of a task of which a copy is run
here = {"stage": "", "marker": "", "disk": ""}


def disturb(place: dict[str, str], *stages: str) -> None:
    """Once in all workers: kill the executor that this worker belongs to, or end the worker itself."""
    if place["stage"] not in stages:
        return
    if place["stage"].startswith("slow"):
        slow_down(place)
        return
    try:
        os.close(os.open(place["marker"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if place["stage"] == "shuffle":
        for path in Path(place["disk"]).rglob("shuffle_*"):
            path.unlink()
    if place["stage"] in ("worker", "shuffle"):
        os._exit(1)
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)
    os._exit(1)


def slow_down(place: dict[str, str]) -> None:
    """Wait in the first attempt of the first task until it is killed; note that another attempt ran."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.partitionId():
        return
    if not context.attemptNumber():
        time.sleep(SLOW)
        os._exit(1)
    Path(place["marker"]).touch()


class Pack(workers.Pack):
    """Is disturbed after its first chunks."""

    def __call__(self, batches: Any) -> Iterator[Any]:
        place = dict(here)
        for chunk in workers.Pack.__call__(self, batches):
            yield chunk
            disturb(place, "map", "worker", "slow map")


class Place(workers.Place):
    """Is disturbed after its first block."""

    def __call__(self, batches: Any) -> Iterator[Any]:
        place = dict(here)
        for block in workers.Place.__call__(self, batches):
            yield block
            disturb(place, "reduce", "shuffle", "slow reduce")


class Epochs(workers.Epochs):
    """Is disturbed before its first result: the blocks that the executor kept are lost."""

    def __call__(self, part: int, pieces: Any) -> bytes:
        moved = workers.Epochs.__call__(self, part, pieces)
        disturb(dict(here), "epoch", "slow epoch")
        return moved


class Sum(workers.Sum):
    """Is disturbed before its first result."""

    def __call__(self, part: int, pieces: Any) -> bytes:
        result = workers.Sum.__call__(self, part, pieces)
        disturb(dict(here), "sum")
        return result


@contextmanager
def rows_of(spark: Any, source: str, name: str | None) -> Iterator[packed.SparkRows]:
    """Rows of a folder of files, or of a dataset of a server."""
    with ExitStack() as stack:
        if name is None:
            found: Any = files.files_of(spark, source)
            dataset = sparks.dataset_of(found.rows)
        else:
            session = ClientSession(stack.enter_context(opened(source)))
            dataset = datasets.load(session, name)
            dataset = replace(dataset, declaration=replace(dataset.declaration, encoding=SCALED))
            tables.LEAST_SLOTS = LEAST_SLOTS
            found = stack.enter_context(tables.opened_table(session, dataset))
        layout = Layout(sparks.LENGTH, SLICES)
        yield stack.enter_context(packed.rows_on_spark(spark, dataset, found, layout))


def digests(spark: Any, source: str, key: bytes, stage: str, name: str | None = None) -> dict[str, Any]:
    """Pack and train, disturbed at a stage."""
    from test_spark_rows import state

    here.update(stage=stage, marker=f"{tempfile.mkdtemp()}/done")
    with rows_of(spark, source, name) as rows:
        rows._key = key
        frame = rows.blocks(SLICES)
        moved = rows.epoch([[state().encode()] for _ in SLICES], 3)
        found = ((row.part, row.number, bytes(row.block)) for row in frame.collect())
        blocks = sorted((*at, padded(block, rows._pad, Named("block", *at)).tobytes()) for *at, block in found)
        sums = rows.second_moment().tobytes()
    values = {"blocks": b"".join(block for *_, block in blocks), "states": b"".join(m[0] for m in moved), "sums": sums}
    named = {name: hashlib.sha256(value).hexdigest() for name, value in values.items()}
    return named | {"disturbed": Path(here["marker"]).exists()}


def disturbed() -> None:
    """Let the workers be disturbed."""
    packed.workers.Pack, packed.workers.Place = Pack, Place  # type: ignore[misc]
    packed.workers.Epochs, packed.workers.Sum = Epochs, Sum  # type: ignore[misc]
    packed.PART_BYTES, packed.TOGETHER = 100 * 32, 4  # several parts of each slice, added by several workers


def killed(source: str, key: str, name: str | None = None) -> None:
    """Print the digests of every stage on a cluster of two executors."""
    disturbed()
    with tempfile.TemporaryDirectory() as disk:
        here["disk"] = disk
        settings = {"spark.executor.memory": "1g", "spark.local.dir": disk}
        spark = sparks.spark_session("local-cluster[2,1,1024]", **settings)
        found = {stage: digests(spark, source, bytes.fromhex(key), stage, name) for stage in STAGES}
        spark.stop()
    print(json.dumps(found))


def slow(folder: str, key: str) -> None:
    """Print the digests where a copy of a slow task finishes first: speculation needs executors on several hosts."""
    disturbed()
    settings = {
        "spark.executor.memory": "1g",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.sql.files.maxPartitionBytes": "9000",
    }
    with sparks.two_hosts() as master:
        spark = sparks.spark_session(master, **settings)
        stages = ("nothing", "slow map", "slow reduce", "slow epoch")
        found = {stage: digests(spark, folder, bytes.fromhex(key), stage) for stage in stages}
        spark.stop()
    print(json.dumps(found))


def connect(folder: str, key: str) -> None:
    """Print the digests by Spark Connect, and whether its session is one."""
    spark = sparks.connect_session()
    found = digests(spark, folder, bytes.fromhex(key), "nothing")
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    spark.stop()
    print(json.dumps({"nothing": found, "is_connect": is_connect}))


def registered(spark: Any, folder: str, url: str, name: str) -> Any:
    """Register a dataset of files; return the connection that trains it."""
    database = connected(url).on_spark(spark)
    facts: dict[str, Any] = {"label": "y", "positive": "1", "negative": "-1"}
    features = {"x": {"length": sparks.LENGTH, "norm": 1.0}}
    database.register_dataset(name, f"spark:parquet:{folder}", features=features, epsilon=5.0, delta=1e-5, **facts)
    return database


def charged(folder: str, url: str, name: str) -> None:
    """Train a dataset of files, and be killed once it is charged."""
    SparkEngine.rows = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, method-assign]
    database = registered(sparks.spark_session("local[1]"), folder, url, name)
    database.train(name, Request(epsilon=1.0, delta=1e-7, algorithm="bolt_on"))


def full(folder: str, url: str, name: str, disk: str) -> None:
    """Train a dataset of files, whose shuffle does not fit the disk; print what was raised."""
    spark = sparks.spark_session("local[2]", **{"spark.local.dir": disk})
    database = registered(spark, folder, url, name)
    try:
        database.train(name, Request(epsilon=1.0, delta=1e-7, algorithm="bolt_on"))
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]))
    spark.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
