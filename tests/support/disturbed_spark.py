"""Packs and trains on a cluster of two executors, of which one is killed at a stage; prints a digest for each stage.

`python disturbed_spark.py FOLDER KEY_HEX` prints JSON: for each stage whether it was disturbed, and SHA-256 of the
blocks, of the states after three epochs in one job, and of a sum. `python disturbed_spark.py FOLDER killed URL NAME`
trains the dataset NAME, and is killed after its charge.
"""

import hashlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sparks

from dbdp.algorithms import Request
from dbdp.algorithms.rows import Layout
from dbdp.packing.spark import files, packed, workers
from dbdp.packing.spark.engine import SparkEngine

SLICES = (500, 300, 200)
STAGES = ("nothing", "map", "reduce", "epoch", "worker")
here = {"stage": "", "marker": ""}


def disturb(place: dict[str, str], *stages: str) -> None:
    """Once in all workers: kill the executor that this worker belongs to, or end the worker itself."""
    if place["stage"] not in stages:
        return
    try:
        os.close(os.open(place["marker"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if place["stage"] == "worker":
        os._exit(1)
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)
    os._exit(1)


class Pack(workers.Pack):
    """Is disturbed after its first chunks."""

    def __call__(self, batches: Any) -> Iterator[Any]:
        place = dict(here)
        for chunk in workers.Pack.__call__(self, batches):
            yield chunk
            disturb(place, "map", "worker")


class Place(workers.Place):
    """Is disturbed after its first block."""

    def __call__(self, batches: Any) -> Iterator[Any]:
        place = dict(here)
        for block in workers.Place.__call__(self, batches):
            yield block
            disturb(place, "reduce")


class Epochs(workers.Epochs):
    """Is disturbed before its first result: the blocks that the executor kept are lost."""

    def __call__(self, part: int, pieces: Any) -> bytes:
        moved = workers.Epochs.__call__(self, part, pieces)
        disturb(dict(here), "epoch")
        return moved


def digests(spark: Any, folder: str, key: bytes, stage: str) -> dict[str, Any]:
    """Pack and train, disturbed at a stage."""
    from test_spark_rows import state

    here.update(stage=stage, marker=f"{tempfile.mkdtemp()}/done")
    found = files.files_of(spark, folder)
    layout, dataset = Layout(sparks.LENGTH, SLICES), sparks.dataset_of(found.rows)
    with packed.rows_on_spark(spark, dataset, found, folder, layout) as rows:
        rows._key = key
        frame = rows.blocks(SLICES)
        moved = rows.epoch([[state().encode()] for _ in SLICES], 3)
        blocks = sorted((row.part, row.number, bytes(row.block)) for row in frame.collect())
        sums = rows.second_moment().tobytes()
    values = {"blocks": b"".join(block for *_, block in blocks), "states": b"".join(m[0] for m in moved), "sums": sums}
    named = {name: hashlib.sha256(value).hexdigest() for name, value in values.items()}
    return named | {"disturbed": Path(here["marker"]).exists()}


def on_cluster(folder: str, key: bytes) -> None:
    """Print the digests of every stage."""
    packed.workers.Pack, packed.workers.Place, packed.workers.Epochs = Pack, Place, Epochs  # type: ignore[misc]
    spark = sparks.spark_session("local-cluster[2,1,1024]", **{"spark.executor.memory": "1g"})
    print(json.dumps({stage: digests(spark, folder, key, stage) for stage in STAGES}))


def killed_after_the_charge(folder: str, url: str, name: str) -> None:
    """Train a dataset of files, and be killed once it is charged."""
    from dbdp.interfaces.python.database import connect

    SparkEngine.rows = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, method-assign]
    database = connect(url).on_spark(sparks.spark_session("local[1]"))
    request = Request(epsilon=1.0, delta=1e-7, algorithm="bolt_on")
    facts: dict[str, Any] = {"label": "y", "positive": "1", "negative": "-1"}
    features = {"x": {"length": sparks.LENGTH, "norm": 1.0}}
    database.register_dataset(name, f"spark:parquet:{folder}", features=features, epsilon=5.0, delta=1e-5, **facts)
    database.train(name, request)


if __name__ == "__main__":
    if sys.argv[2] == "killed":
        killed_after_the_charge(sys.argv[1], *sys.argv[3:])
    else:
        on_cluster(sys.argv[1], bytes.fromhex(sys.argv[2]))
