"""The Parquet files of a source: which row is which slot, and whether the files are those that were registered.

A row's identity is its file and its place in it, so that every task, whatever its split, knows the row's slot. A file's
tag is a hash of its path, size and time of modification, which Spark computes for each row: a file that was replaced
has another one. This module imports PySpark.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import functions as F

from dbdp.learning.rows.encoding import Encoder, RandomProjection
from dbdp.packing.spark import columns, workers
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.places import PREFIX

TAG, PLACE = "tag", "place"
_FACTS = ("file_path", "file_size", "file_modification_time")


@dataclass(frozen=True, order=True)
class File:
    """A file: its path, size and time of modification as text, its number of rows, and the hash of the first three."""

    path: str
    version: str
    rows: int
    tag: int


@dataclass(frozen=True)
class Files:
    """The files of a path, by their own; those without a row are left out. A `dbdp.packing.spark.packed.Source`."""

    path: str
    files: tuple[File, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(file.rows for file in self.files)

    @property
    def digest(self) -> str:
        """A hash of paths, sizes, times of modification and numbers of rows: public facts."""
        facts = [[file.path, file.version, file.rows] for file in self.files]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @cached_property
    def first_slots(self) -> dict[int, int]:
        """The first slot of each file, by its tag."""
        return dict(self._slots())

    def encoder(self, dataset: RegisteredDataset, projection: RandomProjection | None) -> Encoder:
        """Return the encoder of the records that the workers read."""
        return columns.encoder_of(dataset.declaration, projection)

    def read(self, spark: Any, dataset: RegisteredDataset, encoder: Encoder) -> tuple[Any, workers.Read]:
        """Return a DataFrame, and what reads its batches in a worker."""
        rows = read(spark, self.path)
        return rows.select(TAG, PLACE, *columns.selected(dataset, dict(rows.dtypes))), workers.FileRows(
            encoder, self.first_slots
        )

    def _slots(self) -> Iterator[tuple[int, int]]:
        first = 0
        for file in self.files:
            yield file.tag, first
            first += file.rows


def path_of(place: str) -> str:
    """Return the path in a place such as `spark:parquet:/data/visits`."""
    return place.removeprefix(PREFIX)


def read(spark: Any, path: str) -> Any:
    """Return the files' rows as a DataFrame with each row's tag and place."""
    tag = F.xxhash64(*(F.col(f"_metadata.{fact}").cast("string") for fact in _FACTS))
    frame = spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(path)  # by EXCEPTION an early date stops a job
    return frame.select("*", tag.alias(TAG), F.col("_metadata.row_index").alias(PLACE))


def files_of(spark: Any, path: str) -> Files:
    """Return the files of a path, by one query; their numbers of rows are public."""
    facts = [F.col(f"_metadata.{fact}").cast("string").alias(fact) for fact in _FACTS]
    named = spark.read.parquet(path).select(*facts, F.col("_metadata.row_index").alias(PLACE))
    counted = named.groupBy(*_FACTS).agg(F.count("*").alias("rows"), F.max(PLACE).alias("last"))
    found = counted.select("*", F.xxhash64(*_FACTS).alias(TAG)).collect()
    files = tuple(
        sorted(
            (File(row.file_path, f"{row.file_size} {row.file_modification_time}", row["rows"], row.tag))
            for row in found
        )
    )
    numbered = all(row["rows"] == row["last"] + 1 for row in found)
    if not numbered or len({file.tag for file in files}) < len(files):
        raise ValueError(f"the files of {path} do not number their rows; write the rows to other Parquet files")
    return Files(path, files)
