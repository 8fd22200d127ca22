"""Columns of a DataFrame as numbers: expressions that Spark evaluates, of public facts alone, and that never raise.

A category or a class is the number of its place in the declaration. A null number becomes NaN, which the encoder reads
as declared; an array of another length than the declared one becomes null, which makes the row a zero row. This module
imports PySpark.
"""

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

from pyspark.sql import functions as F

from dbdp.learning.rows.encoding import ColumnEncoder, Encoder, RandomProjection, VectorEncoder
from dbdp.learning.rows.features import CATEGORY, OUTSIDE, Categorical
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.tables.records import labels_of, numbered

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
        tuple(tuple(map(float, range(1, each.width + 1))) for each in declaration.categorical),
        declaration.intercept,
        labels,
        projection,
        declaration.encoding,
        declaration.products,
    )


def selected(dataset: RegisteredDataset, kinds: Mapping[str, str]) -> list[Any]:
    """Return the label and the declared columns of a dataset as two columns: a number, and an array of numbers."""
    declaration = dataset.declaration
    if vector := declaration.vector:
        column = _named(vector.column)
        values = F.when(F.size(column) == vector.length, column.cast("array<double>"))
    else:
        numbers = [_number(each.column) for each in declaration.numeric]
        values = F.array(*numbers, *map(_category, declaration.categorical))
    return [_label(dataset, kinds[declaration.label]).cast("double").alias(LABEL), values.alias(VALUES)]


def _named(column: str) -> Any:
    doubled = column.replace("`", "``")
    return F.col(f"`{doubled}`")


def _number(column: str) -> Any:
    return F.coalesce(_named(column).cast("double"), F.lit(float("nan")))


def _category(feature: Categorical) -> Any:
    """Return the place of a column's value in its categories, from 1; 0 for another value; for null its meaning."""
    places = F.array_position(F.array(*map(F.lit, feature.categories)), _named(feature.column).cast("string"))
    absent = {OUTSIDE: 0.0, CATEGORY: float(feature.width)}.get(feature.null, float("nan"))
    return F.coalesce(places.cast("double"), F.lit(absent))


def _label(dataset: RegisteredDataset, kind: str) -> Any:
    declaration = dataset.declaration
    column = _named(declaration.label)
    if declaration.kind == "real":
        return column
    cases: Any = F
    only_positive = declaration.kind == "binary" and declaration.negative is None
    for value, number in numbered(declaration).items():
        cases = cases.when(_equals(column, kind, value), F.lit(number))
    return cases.otherwise(F.when(column.isNotNull(), F.lit(-1)).otherwise(F.lit(0)) if only_positive else F.lit(0))


def _equals(column: Any, kind: str, value: str) -> Any:
    """Return whether a column is a class, compared in the own type of the column: two types of decimals may raise.

    A class that is no number of a decimal type equals none of its values.
    """
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[len("decimal(") : -1].split(","))
        scaled = Context(prec=10_000).scaleb(Decimal(value), scale)
        if scaled != scaled.to_integral_value() or abs(scaled) >= 10**precision:
            return F.lit(False)
    return column == F.lit(value).cast("smallint" if kind == "tinyint" else kind)
