"""A caller's DataFrame of Spark as a temporary dataset of the private server, for one training.

The rows are frozen: written once to Parquet files in a scratch folder, since a query may return other rows each time it
is run. The folder, the dataset and its empty table are deleted at the end, also after an error or Ctrl-C; the next call
deletes those of a killed process. `spark.dbdp.scratch` names the parent of the folders: every node reads and writes
there, and who can read it can read the rows until they are deleted.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dbdp.interfaces.python import loading
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.declaring import ROW
from dbdp.interfaces.python.frames import Frame, FrameColumn, as_text

SCRATCH = "spark.dbdp.scratch"
_MOST_VALUES = 1000  # classes, or categories of a column, that are read from the rows
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")


@dataclass(frozen=True)
class Frozen:
    """What is written of a DataFrame."""

    rows: Any
    label: str
    columns: Sequence[str]  # without the label
    kinds: Mapping[str, str]  # column → its type in Spark

    @classmethod
    def of(cls, rows: Any, label: Any) -> "Frozen":
        """Return what is written of rows; raise ValueError if label or columns cannot be trained on."""
        kinds = dict(rows.dtypes)
        if not isinstance(label, str) or label not in kinds:
            raise ValueError(
                f"y = {label!r} is not a column of the DataFrame; pass the name of one: {', '.join(kinds)}"
            )
        columns = [name for name in kinds if name != label]
        if not columns or len(kinds) < len(rows.columns):
            raise ValueError("the DataFrame has no column besides the label, or two of one name; select others")
        for name in (*columns, label):
            if not (kinds[name] in (*_NUMBERS, "string") or kinds[name].startswith("decimal")):
                raise ValueError(f"column {name!r} is {kinds[name]}; cast it to double or string, or leave it out")
        return cls(rows, label, columns, kinds)

    def frame(self, stated: Any) -> Frame:
        """Return the columns with what must be read of each: nothing where bounds are stated, else its extremes.

        Of numbers these are the least and the largest, of texts all values.
        """
        named = stated if isinstance(stated, Mapping) else {} if stated is None else dict.fromkeys(self.columns)
        extremes = self._extremes(
            [name for name in self.columns if name not in named and self.kinds[name] not in ("string", "boolean")]
        )
        return {name: self._column(name, extremes, is_stated=name in named) for name in self.columns}

    def label_values(self, stated: Any, *, are_classes: bool) -> np.ndarray:
        """Return what must be read of the label: nothing where classes or bounds are stated, else its extremes."""
        if stated is not None:
            return np.asarray(stated)
        return np.array(self._distinct(self.label) if are_classes else self._extremes([self.label])[self.label])

    def _column(self, name: str, extremes: Mapping[str, list[float]], *, is_stated: bool) -> FrameColumn:
        if self.kinds[name] == "string":
            return FrameColumn(np.array([] if is_stated else self._distinct(name), dtype=object))
        if self.kinds[name] == "boolean":
            return FrameColumn(np.array([0.0, 1.0]), bounds=(0.0, 1.0))
        return FrameColumn(np.array([0.0, 1.0] if is_stated else extremes[name]))

    def _extremes(self, names: Sequence[str]) -> dict[str, list[float]]:
        """Return the least and the largest number of each of some columns, by one pass over the rows."""
        from pyspark.sql import functions as F

        if not names:
            return {}
        numbers = [self.rows[name].cast("double") for name in names]
        finite = [F.when((each > float("-inf")) & (each < float("inf")), each) for each in numbers]  # null of nulls
        ends = list(self.rows.select(*(end(each) for each in finite for end in (F.min, F.max))).collect()[0])
        extremes = {name: ends[2 * place : 2 * place + 2] for place, name in enumerate(names)}
        for name, (least, _) in extremes.items():
            if least is None:
                raise ValueError(f"column {name!r} has no number; state its bounds, or leave it out")
        return extremes

    def _distinct(self, name: str) -> list[Any]:
        values = self.rows.select(self.rows[name]).dropna().distinct().limit(_MOST_VALUES + 1).collect()
        if len(values) > _MOST_VALUES:
            raise ValueError(f"column {name!r} has more than {_MOST_VALUES} values; state them, or leave it out")
        return [row[0] for row in values]

    def write(self, path: str, classes: np.ndarray | None, features: Mapping[str, Any]) -> None:
        """Write the rows: a label of texts or numbers, and the columns, or one array of them."""
        from pyspark.sql import functions as F

        if isinstance(features.get(ROW), Mapping):
            columns = [F.array(*(self.rows[name].cast("double") for name in self.columns)).alias(ROW)]
        else:
            columns = [self._stored(name) for name in self.columns]
        label = self.rows[self.label]
        if classes is None:
            stored = label.cast("double")
        else:
            cases: Any = F
            for value in classes.tolist():
                cases = cases.when(label == F.lit(value), F.lit(as_text(value)))
            stored = cases.otherwise(F.lit(None).cast("string"))
        self.rows.select(stored.alias(self.label), *columns).write.parquet(path)

    def _stored(self, name: str) -> Any:
        column = self.rows[name]
        return column if self.kinds[name] == "string" else column.cast("double").alias(name)


@dataclass(frozen=True)
class Freezing:
    """A DataFrame, of which the rows are written for one training; see `loading.Given`."""

    frozen: Frozen
    classes: np.ndarray | None  # of the label, shape (classes,); None for numbers

    @contextmanager
    def written(
        self, database: Database, name: str, features: Mapping[str, Any]
    ) -> Iterator[tuple[Database, dict[str, Any]]]:
        """Write the rows to a scratch folder, which every node has; raise ValueError if there is none."""
        spark = self.frozen.rows.sparkSession
        scratch = _Scratch.of(spark)
        scratch.sweep(database)
        database.connection.execute("select pg_catalog.set_config('search_path', %s, false)", [loading.SCHEMA])
        try:
            self.frozen.write(f"{scratch.uri}/{name}", self.classes, features)
            source = f"spark:parquet:{scratch.uri}/{name}"
            yield database.on_spark(spark), {"source": source, "label": self.frozen.label}
        finally:
            scratch.delete(name)


@dataclass(frozen=True)
class _Scratch:
    """The folder in which DataFrames are frozen, each in a folder of its own."""

    uri: str
    system: Any
    path: str

    @classmethod
    def of(cls, spark: Any) -> "_Scratch":
        """Return the folder of a session; raise ValueError if a cluster has none, or it cannot be deleted from here."""
        from pyarrow import fs

        uri = spark.conf.get(SCRATCH, None)
        if uri is None:
            master = spark.conf.get("spark.master", "") or ""
            if not master.startswith("local"):
                raise ValueError(
                    f"a DataFrame is frozen to files before it is trained on, and Spark runs on {master!r}: set "
                    f"{SCRATCH} to a folder that every node reads and writes, as hdfs:///tmp/mine, or register files"
                )
            uri = _own_folder().as_uri()
        try:
            system, path = fs.FileSystem.from_uri(uri)
        except Exception as error:
            raise ValueError(f"{SCRATCH} = {uri!r} cannot be opened from here ({error}); name another folder") from None
        return cls(uri.rstrip("/"), system, path.rstrip("/"))

    def sweep(self, database: Database) -> None:
        """Delete the folders of processes that were killed."""
        from pyarrow import fs

        for info in self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True)):
            if loading.is_abandoned(database, info.base_name):
                self.system.delete_dir(info.path)

    def delete(self, name: str) -> None:
        """Delete a folder, if it was made."""
        path = f"{self.path}/{name}"
        if self.system.get_file_info(path).type.name == "Directory":
            self.system.delete_dir(path)


def _own_folder() -> Path:
    """Return a folder of this user's temporary files that no other user may read, or put in its place."""
    import os

    folder = Path(tempfile.gettempdir()) / f"dbdp-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ValueError(f"{folder} belongs to another user, or others may read it; delete it, or set {SCRATCH}")
    return folder
