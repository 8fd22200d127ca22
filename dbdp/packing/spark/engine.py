"""The engine that trains on Spark: what a client's session asks before the charge, and the rows after it.

Everything that can be refused is refused before the charge, from public facts: the algorithm, the files, their columns,
and whether the workers have this package. The driver is the client: it charges in PostgreSQL, draws the noise, and has
the models without noise; no worker has a connection to PostgreSQL.
"""

import sys
from contextlib import AbstractContextManager
from typing import Any

import dbdp
from dbdp.algorithms import AUTO, Request
from dbdp.algorithms.rows import Layout, Progress, silent
from dbdp.packing.spark import columns, files, workers
from dbdp.packing.spark.packed import SparkRows, rows_on_spark
from dbdp.registry.datasets import Dataset
from dbdp.registry.registration import Registration

ALGORITHMS = (
    "bolt_on",
    "nsgd",
    "rsgd_ar",
    "output_perturbation_gd",
    "objective_perturbation",
    "preconditioned_gd",
    "dp_blgd",
    "majority",
)


class SparkEngine:
    """Trains datasets whose rows are in files that Spark reads; an `dbdp.sessions.session.Engine`.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session of Spark, classic or Connect.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._checked: dict[int, files.Files] = {}

    def check_rows(self, dataset: Any) -> None:
        """Raise ValueError unless the files are those that were registered."""
        found = files.files_of(self._spark, _path_of(dataset))
        if (found.rows, found.digest) != (dataset.rows, dataset.digest):
            raise ValueError(
                f"the files of {dataset.place} are not those that dataset {dataset.name!r} was registered with: they "
                f"have {found.rows} rows, it has {dataset.rows}, or one was replaced; register the new files as a "
                "dataset of their own"
            )
        self._checked[dataset.id] = found

    def check(self, dataset: Any, request: Request) -> None:
        """Raise ValueError unless the request can be trained here; called before the charge."""
        if request.algorithm not in (AUTO, *ALGORITHMS):
            raise ValueError(
                f"algorithm {request.algorithm!r} draws noise or mini-batches at every step, which dbdp does not do on "
                f"Spark; choose one of {', '.join(ALGORITHMS)}, or train in PostgreSQL"
            )
        self._check_columns(dataset)
        self._check_workers()

    def rows(self, dataset: Dataset, layout: Layout, progress: Progress = silent) -> AbstractContextManager[SparkRows]:
        """Return a context manager of the packed rows of a dataset."""
        path = _path_of(dataset)
        source = self._checked.get(dataset.id) or files.files_of(self._spark, path)
        return rows_on_spark(self._spark, dataset, source, path, layout, progress)

    def described(self, registration: Registration) -> tuple[dict[str, str], files.Files]:
        """Return the type that each declared column has in PostgreSQL, and the files, of a place to register.

        Raises
        ------
        ValueError
            If a declared column is missing or has a type that dbdp does not read, or there is no row.
        """
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

    def _check_columns(self, dataset: Any) -> None:
        present = columns.postgres_types(self._spark.read.parquet(_path_of(dataset)))
        for column, kind in dataset.column_types.items():
            if present.get(column) != kind:
                raise ValueError(
                    f"column {column!r} was {kind} when dataset {dataset.name!r} was registered and is now "
                    f"{present.get(column, 'gone')} in {dataset.place}; register the new files as another dataset"
                )

    def _check_workers(self) -> None:
        """Raise ValueError unless a worker can import this version of dbdp, and so NumPy and PyArrow."""
        probe = self._spark.range(1).mapInArrow(workers.version, workers.VERSION)
        try:
            versions = {row.version for row in probe.collect()}
        except Exception:
            raise ValueError(
                "the workers of Spark could not import dbdp; install dbdp[spark] where PYSPARK_PYTHON points to on "
                f"every node, with Python {sys.version_info.major}.{sys.version_info.minor}"
            ) from None
        if versions != {dbdp.__version__}:
            raise ValueError(
                f"the workers of Spark have dbdp {', '.join(versions)}, and the driver {dbdp.__version__}; install the "
                "same version on every node"
            )


def _path_of(dataset: Any) -> str:
    if dataset.place is None:
        raise ValueError(
            f"dataset {dataset.name!r} is a table of PostgreSQL, which dbdp does not read from Spark yet; train it "
            f"there, or export its rows to Parquet files and register {files.PREFIX}/path"
        )
    return files.path_of(dataset.place)
