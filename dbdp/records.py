"""Raw records: the SQL that hands out a dataset's rows as bytes, and the encoder that reads them.

The server concatenates the records of some pages at a time: `array_bytes` shows an array's own bytes,
`string_agg` appends them, and no Python runs for a row. No expression here can raise, whatever a row
holds, and none reads a value that is far longer than declared. It runs in the server, where
search_path is pinned to pg_catalog.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dbdp.datasets import Dataset, unit_value
from dbdp.declarations import Categorical, Declaration, Numeric, Unit
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
_GROUP_BYTES = 1 << 18  # of units that are read together: a part of the least memory
_MOST_BYTES = 1 << 24  # of slots that are decoded at once: more is no faster
_MARK_BYTES = 32
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
    session: ServerSession, dataset: Dataset, encoder: Encoder, *, memory: int, key: bytes | None = None
) -> Iterator[tuple[int, bytes]]:
    """Give the raw records of some slots at a time, and how many were before; all from one snapshot.

    Sessions with the same key and snapshot number the slots alike.

    Raises
    ------
    ValueError
        At the end, if the number of rows, or of units, is not the registered one.
    """
    if dataset.unit is None:
        yield from _rows(session, dataset, encoder, memory, keyed=key is not None)
    else:
        yield from _slots_of_units(session, dataset, dataset.unit, encoder, memory, key or os.urandom(_MARK_BYTES))


def _rows(
    session: ServerSession, dataset: Dataset, encoder: Encoder, memory: int, *, keyed: bool
) -> Iterator[tuple[int, bytes]]:
    """Give all rows, some pages at a time."""
    query = _chunks(session, dataset, encoder)
    pages, seen = _pages(session, dataset, encoder, memory, keyed=keyed), 0
    for raw in _pieces(session, dataset, query, bytes(encoder.record_bytes), pages, dataset.source):
        count = len(raw) // encoder.record_bytes
        if seen + count <= dataset.rows:
            yield seen, raw
        seen += count
    _check_seen(dataset, seen)


def _check_seen(dataset: Dataset, seen: int) -> None:
    if seen != dataset.rows:
        raise _changed(dataset, f"{seen} rows", str(dataset.rows))


def _slots_of_units(
    session: ServerSession, dataset: Dataset, unit: Unit, encoder: Encoder, memory: int, key: bytes
) -> Iterator[tuple[int, bytes]]:
    """Give at most r rows of each unit, and zero records for the slots that are left (privacy.md §11.6).

    Which rows of a unit: those with the least marks, a hash of the secret key and of where the row is stored: a
    uniformly random subset, wherever that is. Slots are numbered as they come: only the law of a permutation, or of
    independent draws, counts.
    """
    seen, most = 0, max(1, min(memory // 4, _MOST_BYTES) // _bytes_each(encoder))
    marks = hashlib.shake_256(key + b"rows").digest(_MARK_BYTES)
    for raw in _joined(_kept(session, dataset, unit, encoder, marks), most * encoder.record_bytes):
        yield seen, raw
        seen += len(raw) // encoder.record_bytes
    for first in range(seen, dataset.rows, most):
        yield first, bytes(encoder.record_bytes * min(most, dataset.rows - first))


def _kept(session: ServerSession, dataset: Dataset, unit: Unit, encoder: Encoder, marks: bytes) -> Iterator[bytes]:
    """Give the kept rows of all units, some units at a time, in an order that the marks decide."""
    query, units = _units_sql(session, dataset, unit, encoder), 0
    groups = dataset.rows * _bytes_each(encoder) // _GROUP_BYTES  # by public facts alone: all sessions do alike
    mask = (1 << groups.bit_length()) - 1
    for row in session.stream_of(dataset.source, query, bytes(encoder.record_bytes), mask, marks, unit.max_rows):
        units += row["units"]
        if units <= dataset.units:
            yield row["raw"]
    if units != dataset.units:
        raise _changed(dataset, f"{units} units", str(dataset.units))


def _joined(pieces: Iterable[bytes], enough: int) -> Iterator[bytes]:
    """Join pieces until they have so many bytes."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= enough:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _changed(dataset: Dataset, found: str, registered: str) -> ValueError:
    return ValueError(
        f"{dataset.source} had {found} while it was read, dataset {dataset.name!r} has {registered}: "
        "the table changed during training; the charge stands"
    )


def _bytes_each(encoder: Encoder) -> int:
    """Return what a record takes while it is decoded."""
    return encoder.record_bytes + 8 * encoder.width + 4 * blocks.stride_of(encoder.dimension)


def read_by_group(
    session: ServerSession, dataset: Dataset, encoder: Encoder, column: str, groups: Sequence[str], *, memory: int
) -> Iterator[np.ndarray]:
    """Give the raw records whose public key is one of the groups, of some pages at a time, in one pass.

    They are arrays of `group`, the group's number from 0, and `raw`, the record; in no particular order,
    which a fresh uniform permutation makes irrelevant (privacy.md §11.5). No other row is handed out.
    """
    key = group_key(session, dataset, column)
    query = _chunks(session, dataset, encoder, wanted=_WANTED.format(key=key), number="int4send(r.number) || ")
    layout = np.dtype([("group", ">i4"), ("raw", f"V{encoder.record_bytes}")])
    pages = _pages(session, dataset, encoder, memory, keyed=False)
    for raw in _pieces(session, dataset, query, bytes(encoder.record_bytes), pages, dataset.source, list(groups)):
        yield np.frombuffer(raw, layout)


def group_key(session: ServerSession, dataset: Dataset, column: str) -> str:
    """Return SQL for the value of a public column, of the row `source`, as text to compare byte by byte.

    The types that a public column may have are written in one way each, dates in the style that the functions
    which call this are pinned to: equal texts are equal values.
    """
    name = session.query("select quote_ident($1) as n", column)[0]["n"]
    return f'({_as_text(f"source.{name}", dataset.column_types[column])}) collate "C"'


def _pieces(session: ServerSession, dataset: Dataset, query: str, *parameters: object) -> Iterator[bytes]:
    rows = session.stream_of(dataset.source, query, *parameters)
    return (row["raw"] for row in rows if row["raw"] is not None)


def _chunks(session: ServerSession, dataset: Dataset, encoder: Encoder, *, wanted: str = "", number: str = "") -> str:
    """Return the query that hands out the records of some pages at a time: all, or numbered ones that are wanted."""
    label, elements = record_sql(session, dataset, encoder, _columns(session, dataset))
    return _CHUNKS.format(
        label=label,
        label_bytes=np.dtype(encoder.labels.layout).itemsize,
        elements=elements,
        source=dataset.source,
        tables=_TABLES,
        wanted=wanted,
        number=number,
        numbered=", wanted.place::int4 - 1 as number" if wanted else "",
    )


def _pages(session: ServerSession, dataset: Dataset, encoder: Encoder, memory: int, *, keyed: bool) -> int:
    """Return how many pages of each table are read at a time.

    The rows of several tables take turns, some pages of each: for a key, whose every session must
    number them alike, that may not depend on the memory.
    """
    tables = len(session.query(_TABLES.replace("$3", "$1"), dataset.source))
    if keyed and tables > 1:
        return 1
    return max(1, memory // 4 // (_TUPLES_PER_PAGE * _bytes_each(encoder) * tables))


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
        {number}
        case when octet_length(r.elements) = octet_length($1) - {label_bytes} then r.label || r.elements else $1 end,
        ''::bytea)
    from (
        select {label} as label, {elements} as elements{numbered}
        from {source} as source{wanted}
        where source.ctid >= format('(%s,0)', page.number)::tid
        and source.ctid < format('(%s,0)', page.number + $2)::tid
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
) as page (number)
"""

_WANTED = ' join unnest($4) with ordinality as wanted (value, place) on {key} = wanted.value collate "C"'


_MARK = "sha256({key} || oidsend(source.tableoid) || tidsend(source.ctid))"

# A unit's rows come in the order of their marks, and the first of them are kept. Records are made of those alone.
# Units come in groups by a hash of what names them, so that one sort by group, unit and mark serves it all; it goes
# to disk where it is large. The order by mark within a group keeps the server from gathering all groups at once.
_UNITS = """
select string_agg(
           case when octet_length(r.elements) = octet_length($1) - {label_bytes} then r.label || r.elements else $1 end,
           ''::bytea order by r.mark) as raw,
       count(*) filter (where r.place = 1) as units
from (
    select {label} as label, {elements} as elements, source.together, source.mark, source.place
    from (
        select marked.*,
               row_number() over (partition by marked.together, marked.unit order by marked.mark) as place
        from (
            select {columns},
                   {unit} as unit,
                   hash_array_extended(array[{unit}], 0) & $2 as together,
                   {mark} as mark
            from {source} as source
            where {unit} is not null
        ) as marked
    ) as source
    where source.place <= $4
    order by source.together
) as r
group by r.together
order by r.together
"""


def _units_sql(session: ServerSession, dataset: Dataset, unit: Unit, encoder: Encoder) -> str:
    """Return the query for the kept rows of all units, some units in each row."""
    columns = _columns(session, dataset)
    names = [f"c{number}" for number in range(len(columns))]
    label, elements = record_sql(session, dataset, encoder, [f"source.{name}" for name in names])
    return _UNITS.format(
        label=label,
        label_bytes=np.dtype(encoder.labels.layout).itemsize,
        elements=elements,
        columns=", ".join(f"{column} as {name}" for column, name in zip(columns, names, strict=True)),
        unit=unit_value(session, unit, dataset.column_types),
        mark=_MARK.format(key="$3"),
        source=dataset.source,
    )


def _columns(session: ServerSession, dataset: Dataset) -> list[str]:
    """Return SQL for the label and the columns of features, of the row `source`."""
    names = session.query(
        "select quote_ident(n) as n from unnest($1) with ordinality as u(n, i) order by i",
        [dataset.declaration.label, *dataset.declaration.columns],
    )
    return [f"source.{row['n']}" for row in names]


def record_sql(session: ServerSession, dataset: Dataset, encoder: Encoder, values: list[str]) -> tuple[str, str]:
    """Return SQL for a record's label and its array's bytes, from SQL for the label and the columns of features."""
    declaration = dataset.declaration
    label, *columns = values
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


# --- numbers of one column ------------------------------------------------------------------------------

# A NaN, which a null is read as, sorts above every number, and so does an infinity above all that are finite.
_BINNED = """
select width_bucket(read.number, $1) as place, count(*) as rows
from ({numbers}) as read
group by 1
"""

_KEPT_NUMBERS = """
select ranked.number
from (
    select {number} as number,
           row_number() over (partition by {unit} order by {mark}) as place
    from {source} as source
    where {unit} is not null
) as ranked
where ranked.place <= $3
"""


def binned(session: ServerSession, dataset: Dataset, column: str, type_name: str, edges: Sequence[float]) -> np.ndarray:
    """Return how many rows have a number of a column from each edge to the next, shape (edges - 1,), exact.

    Of a unit r rows are counted at most, the same choice as for a training (privacy.md §11.6).

    Parameters
    ----------
    column, type_name : of the dataset's table, declared or not; a type of `registry.NUMERIC_TYPES`
    edges : rising, from the least finite number to infinity

    Raises
    ------
    ValueError
        If the number of rows is not the registered one.
    """
    number = _float(f"source.{session.query('select quote_ident($1) as n', column)[0]['n']}", type_name)
    counts, marked = np.zeros(len(edges) + 1, np.int64), list[Any]()
    numbers = f"select {number} as number from {dataset.source} as source"
    if dataset.unit:
        unit = unit_value(session, dataset.unit, dataset.column_types)
        numbers = _KEPT_NUMBERS.format(number=number, unit=unit, mark=_MARK.format(key="$2"), source=dataset.source)
        marked = [os.urandom(_MARK_BYTES), dataset.unit.max_rows]
    with session.reading(dataset.source):
        found = session.query(_BINNED.format(numbers=numbers), list(edges), *marked)
    for row in found:
        counts[row["place"]] = row["rows"]
    if not dataset.unit:
        _check_seen(dataset, int(counts.sum()))
    return counts[1:-1]
