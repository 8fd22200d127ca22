"""A caller's rows as named columns: those of data frames, Arrow tables, arrays and results of queries.

Shapes: each column (n,), float64 for numbers, str or None for texts. pandas and pyarrow are imported only for rows of
theirs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isnan
from typing import Any

import numpy as np

from dbdp.optional import needing

Bounds = tuple[float, float]
_EXPONENT = 1e15  # from here PostgreSQL writes an integral float8 with an exponent


@dataclass(frozen=True)
class FrameColumn:
    """A column of a caller's rows."""

    values: np.ndarray  # shape (n,), float64 with NaN for missing values, or objects: str, with None for them
    bounds: Bounds | None = None  # that the column's type implies: (0, 1) for bool
    categories: tuple[str, ...] | None = None  # that the column's type declares

    @property
    def is_text(self) -> bool:
        """Whether the values are texts, which have categories instead of bounds."""
        return self.values.dtype == object

    @property
    def has_gaps(self) -> bool:
        """Whether a value is missing or infinite."""
        if self.is_text:
            return any(value is None for value in self.values)
        return not bool(np.isfinite(self.values).all())


Frame = dict[str, FrameColumn]


def is_frame(rows: Any) -> bool:
    """Return whether rows have named columns; otherwise they are an array or convertible to one."""
    return type(rows) is dict or _library(rows) in ("pandas", "polars") or hasattr(rows, "__arrow_c_stream__")


def is_pandas(rows: Any) -> bool:
    """Return whether rows are a pandas DataFrame."""
    return _library(rows) == "pandas"


def is_spark(rows: Any) -> bool:
    """Return whether rows are a DataFrame of Spark, classic or Connect."""
    return type(rows).__module__.startswith("pyspark.sql.") and hasattr(rows, "mapInArrow")


def frame_of(rows: Any, wanted: Sequence[str] | None = None) -> Frame:
    """Return the columns of rows."""
    names, column = _columns_of(rows)
    for name in wanted or ():
        if name not in names:
            raise ValueError(f"the rows have no column {name!r}; their columns are {', '.join(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"two columns of the rows have the same name ({', '.join(names)}); rename one of them")
    return {name: column(name) for name in wanted or names}


def _columns_of(rows: Any) -> tuple[list[str], Callable[[str], FrameColumn]]:
    """Return the names of the columns, and a function from a name to its column."""
    if is_pandas(rows):
        names = [str(name) for name in rows.columns]
        return names, lambda name: _of_pandas(name, rows.iloc[:, names.index(name)])
    if isinstance(rows, Mapping):
        return list(rows), lambda name: _of_values(rows[name])
    table = _arrow_table(rows)
    return table.column_names, lambda name: _of_arrow(name, table[name])


def of_array(rows: np.ndarray, names: Sequence[str]) -> Frame:
    """Return the columns of an array, shape (n, columns), of float64 or of objects."""
    column = _of_values if rows.dtype == object else FrameColumn
    return {name: column(rows[:, place]) for place, name in enumerate(names)}


def array_of(rows: Any, names: Sequence[str]) -> np.ndarray:
    """Return the named columns of rows as an array, shape (n, names), of float64 or, with texts, of objects."""
    return np.column_stack([column.values for column in frame_of(rows, names).values()])


def check_complete(frame: Frame) -> None:
    """Raise ValueError if a column has missing or infinite values."""
    for name, column in frame.items():
        if column.has_gaps:
            raise ValueError(f"column {name!r} has missing or infinite values; fill them, or leave the rows out")


def check_complete_array(rows: np.ndarray, names: Sequence[str]) -> None:
    """Raise ValueError if an array, shape (n, names), has missing or infinite values; the message names the column."""
    if rows.dtype == object or not np.isfinite(rows).all():
        check_complete(of_array(rows, names))


def arrays_of(rows: Any, name: str) -> np.ndarray:
    """Return a column whose values are arrays as one array, shape (n, length)."""
    values = rows[name]
    return np.array(values.to_pylist() if hasattr(values, "to_pylist") else list(values), dtype=np.float64)


def categories_of(values: Any) -> tuple[Any, ...] | None:
    """Return the categories that the type of a pandas Series declares; None if it declares none."""
    declared = getattr(getattr(values, "dtype", None), "categories", None)
    return None if declared is None else tuple(declared)


def labels_of(values: Any) -> Any:
    """Return labels, with nullable booleans of pandas as bool; raise ValueError if one of those is missing."""
    if getattr(getattr(values, "dtype", None), "name", None) != "boolean":  # NumPy would read these as numbers
        return values
    if values.isna().any():
        raise ValueError("y has missing values; leave those rows out")
    return values.astype(bool)


def without(rows: Any, label: str) -> tuple[Any, Any]:
    """Return rows without one column, and the values of that column."""
    if not is_frame(rows):
        raise ValueError(
            f"y = {label!r} names a column, and X has no names of columns; pass the labels (n,), or a data frame"
        )
    if not isinstance(rows, Mapping) and not is_pandas(rows):
        rows = _arrow_table(rows)
    names = list(rows) if isinstance(rows, Mapping) else list(getattr(rows, "column_names", rows.columns))
    if label not in names:
        raise ValueError(f"y = {label!r} is not a column of the rows; their columns are {', '.join(map(str, names))}")
    if isinstance(rows, Mapping):
        return {name: values for name, values in rows.items() if name != label}, rows[label]
    if is_pandas(rows):
        return rows.drop(columns=[label]), rows[label]
    return rows.drop_columns([label]), rows[label].to_pylist()


def as_text(value: Any) -> str | None:
    """Return a value as PostgreSQL writes it in text; None for a missing value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and isnan(value)):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) < _EXPONENT:
        return f"{float(value):.0f}"
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def _library(rows: Any) -> str:
    module = type(rows).__module__.partition(".")[0]
    return module if module == "polars" or hasattr(rows, "columns") else ""


def _texts(values: Iterable[Any], categories: Iterable[Any] | None = None) -> FrameColumn:
    converted = list(map(as_text, values))
    texts = np.empty(len(converted), dtype=object)
    texts[:] = converted
    return FrameColumn(
        texts, categories=None if categories is None else tuple(str(as_text(each)) for each in categories)
    )


def _of_values(values: Iterable[Any]) -> FrameColumn:
    """Return a column of Python values: of numbers if all are numbers, else of texts."""
    listed = list(values)
    kinds = {type(value) for value in listed if value is not None}
    if kinds and kinds <= {bool, np.bool_}:
        return FrameColumn(_numbers(listed), bounds=(0.0, 1.0))
    if kinds and all(issubclass(kind, int | float | Decimal | np.number | np.bool_) for kind in kinds):
        return FrameColumn(_numbers(listed))
    return _texts(listed)


def _numbers(values: list[Any]) -> np.ndarray:
    return np.array([np.nan if value is None else float(value) for value in values])


def _of_pandas(name: str, series: Any) -> FrameColumn:
    from pandas import CategoricalDtype
    from pandas.api import types

    if isinstance(series.dtype, CategoricalDtype):
        return _texts(series.astype(object), series.cat.categories)
    if types.is_bool_dtype(series.dtype):
        return FrameColumn(series.to_numpy(np.float64, na_value=np.nan), bounds=(0.0, 1.0))
    if types.is_numeric_dtype(series.dtype) and not types.is_complex_dtype(series.dtype):
        return FrameColumn(series.to_numpy(np.float64, na_value=np.nan))
    if types.is_object_dtype(series.dtype) or types.is_string_dtype(series.dtype):
        return _of_values(None if as_text(value) is None else value for value in series)
    raise _unusable(name, series.dtype)


def _arrow_table(rows: Any) -> Any:
    if getattr(rows, "ndim", 2) == 1:
        raise ValueError(f"X is a {type(rows).__name__}, one column without rows; pass a data frame")
    if not isinstance(rows, Mapping) and not hasattr(rows, "__arrow_c_stream__"):
        raise ValueError(f"rows are a {type(rows).__name__}, which holds no rows yet; pass the result of its collect()")
    with needing(f"rows, a {type(rows).__name__},"):
        import pyarrow
    return rows if isinstance(rows, pyarrow.Table) else pyarrow.table(rows)


def _of_arrow(name: str, column: Any) -> FrameColumn:
    import pyarrow
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        chunks = column.unify_dictionaries().chunks
        is_declared = kind.ordered  # as in polars.Enum; the dictionaries of other types are collected from the rows
        return _texts(column.to_pylist(), chunks[0].dictionary.to_pylist() if is_declared and chunks else None)
    if types.is_boolean(kind):
        return FrameColumn(_numbers(column.to_pylist()), bounds=(0.0, 1.0))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return FrameColumn(column.cast(pyarrow.float64()).to_numpy())
    if types.is_string(kind) or types.is_large_string(kind) or kind == getattr(pyarrow, "string_view", lambda: None)():
        return _texts(column.to_pylist())
    raise _unusable(name, kind)


def _unusable(name: str, kind: Any) -> ValueError:
    return ValueError(f"column {name!r} is {kind}; convert it to numbers, bool or categories, or leave it out")
