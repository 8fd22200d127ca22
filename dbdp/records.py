"""Raw records: the SQL that hands out a dataset's rows as bytes, and the encoder that reads them.

No expression here can raise, whatever a row holds, and none reads a value that is far longer than
declared. It runs in the server, where search_path is pinned to pg_catalog.
"""

from dbdp.datasets import Categorical, Dataset, Numeric
from dbdp.learning.encoding import HEADER_BYTES, ColumnEncoder, Encoder, VectorEncoder
from dbdp.sessions import ServerSession

TEXT_TYPES = ("text", "character varying", "character")
_LABELS = {label: f"decode('{label.to_bytes(4, 'little', signed=True).hex()}', 'hex')" for label in (1, -1, 0)}
_UNKNOWN = 0.5  # no category: those are hashes, whole numbers


def encoder_of(session: ServerSession, dataset: Dataset) -> Encoder:
    """Return the encoder of a dataset's records."""
    declaration = dataset.declaration
    if vector := declaration.vector:
        element = "<f8" if dataset.column_types[vector.column] == "double precision[]" else "<f4"
        return VectorEncoder(vector.length, vector.norm_bound, declaration.intercept, element)
    return ColumnEncoder(
        tuple(feature.lower for feature in declaration.numeric),
        tuple(feature.upper for feature in declaration.numeric),
        tuple(category_numbers(session, feature.categories) for feature in declaration.categorical),
        declaration.intercept,
    )


def record_sql(session: ServerSession, dataset: Dataset, encoder: Encoder) -> tuple[str, str]:
    """Return SQL for a record's label (4 bytes) and its array's bytes, of the row `source`."""
    declaration = dataset.declaration
    names = session.query(
        "select quote_ident(n) as n from unnest($1) with ordinality as u(n, i) order by i",
        [declaration.label, *declaration.columns],
    )
    label, *columns = (f"source.{row['n']}" for row in names)
    if isinstance(encoder, VectorEncoder):
        # what is stored longer than a whole record is no such array, and is not unpacked to see
        longest = encoder.record_bytes + HEADER_BYTES
        elements = f"case when pg_column_size({columns[0]}) <= {longest} then dbdp.array_bytes({columns[0]}) end"
    else:
        types = [dataset.column_types[column] for column in declaration.columns]
        features: list[Numeric | Categorical] = [*declaration.numeric, *declaration.categorical]
        terms = [_number(*term) for term in zip(features, columns, types, strict=True)]
        elements = f"dbdp.array_bytes(array[{', '.join(terms)}]::float8[])"
    return _label(session, dataset, label), elements


def _label(session: ServerSession, dataset: Dataset, column: str) -> str:
    """Return SQL that maps the label to +1, -1, or 0 for anything not declared."""
    declaration = dataset.declaration
    type_name = dataset.column_types[declaration.label]
    is_text = type_name in TEXT_TYPES or type_name.startswith("enum ")

    def equals(value: str) -> str:
        literal = session.query("select quote_literal($1) as q", value)[0]["q"]
        if is_text:
            return f'{_as_text(column, type_name)} = {literal}::text collate "C"'
        return f"{column}::{type_name} = {literal}::{type_name}"

    other = equals(declaration.negative) if declaration.negative is not None else f"{column} is not null"
    return (
        f"case when {equals(declaration.positive)} then {_LABELS[1]} when {other} then {_LABELS[-1]} "
        f"else {_LABELS[0]} end"
    )


def _as_text(column: str, type_name: str) -> str:
    """Return SQL for a column as text, by built-in functions alone.

    A cast of an enum may be its owner's function, which would run with our rights.
    """
    if type_name.startswith("enum "):
        return f"textin(enum_out({column}::{type_name.removeprefix('enum ')}))"
    return f"{column}::text"


def _number(feature: Numeric | Categorical, column: str, type_name: str) -> str:
    """Return SQL for one number of a record; null becomes NaN, which makes the row a zero row."""
    if isinstance(feature, Categorical):
        longest = max(len(category.encode()) for category in feature.categories)
        text = _as_text(column, type_name)
        return (
            f"case when octet_length({text}) <= {longest} then {category_number(text)}::float8 "
            f"when {column} is null then 'NaN' else {_UNKNOWN} end"
        )
    if type_name == "boolean":
        column = f"{column}::int4"
    elif type_name == "numeric":  # its cast to float8 raises outside the range, so no such value reaches it
        column = (
            f"case when abs({column}) < 1e-300 then 0.0 when abs({column}) < 1e300 then {column} "
            f"when abs({column}) < 'infinity' then sign({column}) * 1e300 end"
        )
    return f"coalesce(({column})::float8, 'NaN')"


def category_number(text: str) -> str:
    """Return SQL for the number that stands for a category: a 64-bit hash."""
    return f'hashtextextended({text} collate "C", 0)'


def category_numbers(session: ServerSession, categories: tuple[str, ...]) -> tuple[float, ...]:
    """Return the number of each category, as this server computes it."""
    query = f"select {category_number('c')}::float8 as number from unnest($1) with ordinality as u(c, i) order by i"
    return tuple(row["number"] for row in session.query(query, list(categories)))
