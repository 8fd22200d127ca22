"""The engine that trains on Spark: what a client's session asks before the charge, and the rows after it.

The rows are in files, or in a table of PostgreSQL. Everything that can be refused is refused before the charge, from
public facts: the algorithm, the files, their columns, the number of rows, and whether the workers have this package and
reach PostgreSQL where they need it. The driver is the client: it charges in PostgreSQL, draws the noise, and has the
models without noise.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import dbdp
from dbdp.algorithms import AUTO, Request
from dbdp.algorithms.rows import Layout, Progress, silent
from dbdp.packing.spark import columns, files, tables, workers
from dbdp.packing.spark.packed import SparkRows, rows_on_spark
from dbdp.registry import places
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.registration import Registration
from dbdp.registry.tables import records
from dbdp.sessions.client import ClientSession

ALGORITHMS = (
    "bolt_on",
    "nsgd",
    "rsgd_ar",
    "output_perturbation_gd",
    "objective_perturbation",
    "preconditioned_gd",
    "private_splines",
    "dp_blgd",
    "majority",
    "naive_bayes",
)


class SparkEngine:
    """Trains datasets whose rows Spark's workers read; an `dbdp.sessions.session.Engine`."""

    def __init__(self, spark: Any, session: ClientSession, allowed: Iterable[str] = ()) -> None:
        self._spark, self._session = spark, session
        self._allowed = places.checked(allowed) + places.checked(places.listed(os.environ.get(places.VARIABLE, "")))
        self._checked: dict[int, files.Files] = {}

    def check_rows(self, dataset: Any) -> None:
        """Raise ValueError unless the files, or the number of rows of the table, are those that were registered."""
        if dataset.place is None:
            self._session.check_rows(dataset)
            return
        found = files.files_of(self._spark, self._path(dataset))
        if (found.rows, found.digest) != (dataset.rows, dataset.digest):
            raise ValueError(
                f"the files of {dataset.place!r} are not those that dataset {dataset.name!r} was registered with: they "
                f"have {found.rows} rows, it has {dataset.rows}, or one was replaced; register the new files as a "
                "separate dataset"
            )
        self._checked[dataset.id] = found

    def check(self, dataset: Any, request: Request) -> None:
        """Raise ValueError unless the request can be trained here; called before the charge."""
        if request.algorithm not in (AUTO, *ALGORITHMS):
            raise ValueError(
                f"algorithm {request.algorithm!r} draws noise or mini-batches at every step, which dbdp does not do on "
                f"Spark; choose one of {', '.join(ALGORITHMS)}, or train in PostgreSQL"
            )
        if dataset.place is None:
            records.check_by_row(dataset)
            self._check_workers()
            self._check_connections(tables.readers_of(dataset.rows))
        else:
            self._check_columns(dataset)
            self._check_workers()

    @contextmanager
    def rows(self, dataset: RegisteredDataset, layout: Layout, progress: Progress = silent) -> Iterator[SparkRows]:
        """Yield the packed rows of a dataset."""
        if dataset.place is None:
            with (
                tables.opened_table(self._session, dataset) as table,
                rows_on_spark(self._spark, dataset, table, layout, progress) as rows,
            ):
                yield rows
            return
        found = self._checked.get(dataset.id) or files.files_of(self._spark, self._path(dataset))
        with rows_on_spark(self._spark, dataset, found, layout, progress) as rows:
            yield rows

    def described(self, registration: Registration) -> tuple[dict[str, str], files.Files]:
        """Return the type that each declared column has in PostgreSQL, and the files, of a place to register."""
        path = files.path_of(registration.source)
        types = columns.postgres_types(self._spark.read.parquet(path))
        for column in registration.columns:
            if column not in types:
                listed = ", ".join(sorted(types))
                raise ValueError(f"column {column!r} is not among those of {path} that dbdp reads: {listed}")
        found = files.files_of(self._spark, path)
        if not found.rows:
            raise ValueError(f"the files of {path} have no rows; register files with at least one row")
        return {column: types[column] for column in registration.columns}, found

    def _path(self, dataset: Any) -> str:
        """Return where a dataset's files are; raise ValueError unless this role registered it, or its user allows it.

        Whatever opens the place of a dataset has the path from here.
        """
        if not dataset.is_own:
            places.check_allowed(dataset.name, dataset.registered_by, dataset.place, self._allowed)
        return files.path_of(dataset.place)

    def _check_columns(self, dataset: Any) -> None:
        present = columns.postgres_types(self._spark.read.parquet(self._path(dataset)))
        for column, kind in dataset.column_types.items():
            if present.get(column) != kind:
                raise ValueError(
                    f"column {column!r} was {kind} when dataset {dataset.name!r} was registered and is now "
                    f"{present.get(column, 'gone')} in {dataset.place!r}; register the new files as another dataset"
                )

    def _check_workers(self) -> None:
        """Raise ValueError unless a worker can import this version of dbdp, and so NumPy and PyArrow."""
        probe = self._spark.range(1).mapInArrow(workers.version, workers.VERSION)
        try:
            versions = {row.version for row in probe.collect()}
        except Exception:
            raise ValueError(
                "the workers of Spark could not import dbdp; install it with its extra spark on every node, "
                f"where PYSPARK_PYTHON points to, with Python {sys.version_info.major}.{sys.version_info.minor}"
            ) from None
        if versions != {dbdp.__version__}:
            raise ValueError(
                f"the workers of Spark have dbdp {', '.join(versions)}, and the driver {dbdp.__version__}; install the "
                "same version on every node"
            )

    def _check_connections(self, count: int) -> None:
        """Raise ValueError unless as many workers as read the table can open sessions in the driver's snapshot."""
        with tables.in_snapshot(self._session) as (_, access):
            probe = self._spark.range(0, count, 1, count).mapInArrow(access.probe, "id long")
            try:
                probe.collect()
            except Exception:
                raise ValueError(
                    "the workers of Spark could not connect to PostgreSQL as the driver did, each task by its own "
                    f"connection, of which at most {count} run at a time; let every node reach the server, and allow "
                    "this role as many connections"
                ) from None
