"""Raw records: the SQL that hands out a dataset's rows as bytes, and the encoder that reads them.

The server concatenates the records of some pages at a time: `array_bytes` shows an array's own bytes,
`string_agg` appends them, and no Python runs for a row. No expression here can raise, whatever a row
holds, and none reads a value that is far longer than declared. It runs in the server, where
search_path is pinned to pg_catalog.
"""

from collections.abc import Iterator

import numpy as np

from dbdp.datasets import Dataset
from dbdp.declarations import Categorical, Declaration, Numeric
from dbdp.learning import blocks
from dbdp.learning.encoding import (
    HEADER_BYTES,
    SIGNS,
    ColumnEncoder,
    Encoder,
    Labels,
    RandomProjection,
    RealLabels,
    VectorEncoder,
    WholeLabels,
)
from dbdp.sessions import ServerSession

TEXT_TYPES = ("text", "character varying", "character")
_UNKNOWN = 0.5  # no category: those are hashes, whole numbers
_TUPLES_PER_PAGE = 291  # MaxHeapTuplesPerPage at 8 KiB: no page gives more records, whatever its rows hold


def encoder_of(session: ServerSession, dataset: Dataset, projection: RandomProjection | None = None) -> Encoder:
    """Return the encoder of a dataset's records."""
    declaration = dataset.declaration
    labels = _labels(declaration)
    if vector := declaration.vector:
        element = "<f8" if dataset.column_types[vector.column] == "double precision[]" else "<f4"
        return VectorEncoder(vector.length, vector.norm_bound, declaration.intercept, element, labels, projection)
    return ColumnEncoder(
        tuple(feature.lower for feature in declaration.numeric),
        tuple(feature.upper for feature in declaration.numeric),
        tuple(category_numbers(session, feature.categories) for feature in declaration.categorical),
        declaration.intercept,
        labels,
        projection,
    )


def _labels(declaration: Declaration) -> Labels:
    if declaration.label_bounds:
        return RealLabels(*declaration.label_bounds)
    return WholeLabels(1, len(declaration.classes)) if declaration.classes else SIGNS


def read(
    session: ServerSession, dataset: Dataset, encoder: Encoder, *, memory: int, keyed: bool
) -> Iterator[tuple[int, bytes]]:
    """Give the raw records of some pages at a time, and how many were before; all from one snapshot.

    Raises
    ------
    ValueError
        At the end, if the number of records is not the registered one.
    """
    label, elements = record_sql(session, dataset, encoder)
    query = _CHUNKS.format(
        label=label,
        label_bytes=np.dtype(encoder.labels.layout).itemsize,
        elements=elements,
        source=dataset.source,
        tables=_TABLES,
    )
    pages, seen = _pages(session, dataset, encoder, memory, keyed=keyed), 0
    for row in session.stream_of(dataset.source, query, bytes(encoder.record_bytes), pages, dataset.source):
        if row["raw"] is None:
            continue
        count = len(row["raw"]) // encoder.record_bytes
        if seen + count <= dataset.rows:
            yield seen, row["raw"]
        seen += count
    if seen != dataset.rows:
        raise ValueError(
            f"{dataset.source} had {seen} rows while it was read, dataset {dataset.name!r} has {dataset.rows}: "
            "the table changed during training; the charge stands"
        )


def _pages(session: ServerSession, dataset: Dataset, encoder: Encoder, memory: int, *, keyed: bool) -> int:
    """Return how many pages of each table are read at a time.

    The rows of several tables take turns, some pages of each: for a key, whose every session must
    number them alike, that may not depend on the memory.
    """
    tables = len(session.query(_TABLES.replace("$3", "$1"), dataset.source))
    if keyed and tables > 1:
        return 1
    bytes_each = encoder.record_bytes + 8 * encoder.width + 4 * blocks.stride_of(encoder.dimension)
    return max(1, memory // 4 // (_TUPLES_PER_PAGE * bytes_each * tables))


# A partitioned table is read through itself, so that its own rights count; pages of the same numbers
# of all partitions together.
_TABLES = """
        select relid
        from pg_partition_tree($3::regclass)
        where isleaf
        union
        select $3::regclass
"""

# The sizes are looked up after the snapshot is taken: every row that it sees is below them.
_CHUNKS = """
select (
    select string_agg(
        case when octet_length(r.elements) = octet_length($1) - {label_bytes} then r.label || r.elements else $1 end,
        ''::bytea)
    from (
        select {label} as label, {elements} as elements
        from {source} as source
        where ctid >= format('(%s,0)', page)::tid
        and ctid < format('(%s,0)', page + $2)::tid
        offset 0
    ) as r
) as raw
from generate_series(
    0,
    (
        select max(pg_relation_size(t.relid)) / current_setting('block_size')::int8
        from ({tables}) as t
    ),
    $2
) as page
"""


def record_sql(session: ServerSession, dataset: Dataset, encoder: Encoder) -> tuple[str, str]:
    """Return SQL for a record's label and its array's bytes, of the row `source`."""
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
    """Return SQL for the bytes of the label as the encoder reads them."""
    declaration = dataset.declaration
    type_name = dataset.column_types[declaration.label]
    if declaration.kind == "real":
        return f"float8send({_float(column, type_name)})"
    compared = f'({_as_text(column, type_name)}) collate "C"' if is_text(type_name) else f"{column}::{type_name}"
    literals = session.query(
        "select quote_literal(v) as q from unnest($1) with ordinality as u(v, i) order by i",
        list(_numbered(declaration)),
    )
    cases = " ".join(
        f"when {row['q']}::{'text' if is_text(type_name) else type_name} then {_number_bytes(number)}"
        for row, number in zip(literals, _numbered(declaration).values(), strict=True)
    )
    other = _number_bytes(0)
    if declaration.kind == "binary" and declaration.negative is None:
        other = f"case when {column} is not null then {_number_bytes(-1)} else {other} end"
    return f"case {compared} {cases} else {other} end"


def _numbered(declaration: Declaration) -> dict[str, int]:
    """Return the declared values of a label, with the number that each is packed as."""
    if declaration.classes:
        return {value: number for number, value in enumerate(declaration.classes, start=1)}
    values = {declaration.positive: 1, declaration.negative: -1}
    return {value: number for value, number in values.items() if value is not None}


def _number_bytes(number: int) -> str:
    return f"decode('{number.to_bytes(4, 'little', signed=True).hex()}', 'hex')"


def is_text(type_name: str) -> bool:
    """Return whether values of a type are compared as text."""
    return type_name in TEXT_TYPES or type_name.startswith("enum ")


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
    return _float(column, type_name)


def _float(column: str, type_name: str) -> str:
    """Return SQL for a number's float; of null NaN."""
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
