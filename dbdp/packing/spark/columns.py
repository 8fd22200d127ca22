"""Columns of a DataFrame as numbers: expressions that Spark evaluates, of public facts alone, and that never raise.

A category or a class is the number of its place in the declaration; a null, or an array of another length than the
declared one, becomes NaN or null, from which the encoder makes the zero row. This module imports PySpark.
"""

from typing import Any

from pyspark.sql import functions as F

from dbdp.learning.rows.encoding import ColumnEncoder, Encoder, RandomProjection, VectorEncoder
from dbdp.registry.datasets import Dataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.tables.records import is_text, labels_of, numbered

LABEL, VALUES = "label", "values"
_TYPES = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "string": "text",
    "date": "date",
    "array<double>": "double precision[]",
    "array<float>": "real[]",
}


def postgres_types(frame: Any) -> dict[str, str]:
    """Return the type that PostgreSQL has for each column of a DataFrame; other columns cannot be declared."""
    named = ((name, "decimal" if kind.startswith("decimal") else kind) for name, kind in frame.dtypes)
    types = _TYPES | {"decimal": "numeric"}
    return {name: types[kind] for name, kind in named if kind in types}


def encoder_of(declaration: Declaration, projection: RandomProjection | None) -> Encoder:
    """Return the encoder of the numbers that `selected` returns."""
    labels = labels_of(declaration)
    if vector := declaration.vector:
        public = vector.length, vector.norm_bound, declaration.intercept
        return VectorEncoder(*public, "<f8", labels, projection, declaration.encoding)
    return ColumnEncoder(
        declaration.numeric,
        tuple(tuple(map(float, range(1, len(each.categories) + 1))) for each in declaration.categorical),
        declaration.intercept,
        labels,
        projection,
        declaration.encoding,
        declaration.products,
    )


def selected(dataset: Dataset) -> list[Any]:
    """Return the label and the declared columns of a dataset as two columns: a number, and an array of numbers."""
    declaration = dataset.declaration
    if vector := declaration.vector:
        column = _named(vector.column)
        values = F.when(F.size(column) == vector.length, column.cast("array<double>"))
    else:
        numbers = [_number(each.column) for each in declaration.numeric]
        values = F.array(*numbers, *(_category(each.column, each.categories) for each in declaration.categorical))
    return [_label(dataset).cast("double").alias(LABEL), values.alias(VALUES)]


def _named(column: str) -> Any:
    doubled = column.replace("`", "``")
    return F.col(f"`{doubled}`")


def _number(column: str) -> Any:
    return F.coalesce(_named(column).cast("double"), F.lit(float("nan")))


def _category(column: str, categories: tuple[str, ...]) -> Any:
    """Return the place of a column's value in its categories, from 1; 0 for another value, NaN for null."""
    places = F.array_position(F.array(*map(F.lit, categories)), _named(column).cast("string"))
    return F.coalesce(places.cast("double"), F.lit(float("nan")))


def _label(dataset: Dataset) -> Any:
    declaration = dataset.declaration
    column, is_words = _named(declaration.label), is_text(dataset.column_types[declaration.label])
    if declaration.kind == "real":
        return column
    cases: Any = F
    only_positive = declaration.kind == "binary" and declaration.negative is None
    for value, number in numbered(declaration).items():
        literal = F.lit(value) if is_words else F.lit(value).cast(_spark_type(dataset, declaration.label))
        cases = cases.when(column == literal, F.lit(number))
    return cases.otherwise(F.when(column.isNotNull(), F.lit(-1)).otherwise(F.lit(0)) if only_positive else F.lit(0))


def _spark_type(dataset: Dataset, column: str) -> str:
    """Return a type of Spark in which a class is compared with the column."""
    names = {name: kind for kind, name in _TYPES.items() if kind != "tinyint"}
    return (names | {"numeric": "decimal(38,10)"})[dataset.column_types[column]]
