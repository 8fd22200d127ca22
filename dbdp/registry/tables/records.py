"""Raw records: the SQL that writes a dataset's rows as bytes, and the encoder that decodes them.

`array_bytes` returns an array's own bytes, and no Python runs for a row. No expression here can raise, whatever a row
contains, and none fetches an array whose length is not the declared one. This module runs in the server, where
search_path is pinned to pg_catalog.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import (
    NO_ARRAY,
    SIGNS,
    BinnedLabels,
    ColumnEncoder,
    Encoder,
    IntegerLabels,
    LabelEncoding,
    RandomProjection,
    RealLabels,
    VectorEncoder,
)
from dbdp.learning.rows.features import CATEGORY, OUTSIDE, Categorical, Numeric
from dbdp.privacy.shuffling import Subset
from dbdp.registry.datasets import RegisteredDataset, count
from dbdp.registry.declarations import Declaration
from dbdp.registry.tables import privacy_units, reading
from dbdp.registry.tables.reading import Record
from dbdp.sessions.inside import guarded_reads
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session

TEXT_TYPES = ("text", "character varying", "character")
DAYS = {  # since the public ORIGIN; infinity has no distance from it
    "date": "case when isfinite({0}) then ({0} - date '2000-01-01')::float8 else 'NaN' end",
    "timestamp without time zone": "coalesce(date_part('epoch', {0}) / 86400 - 10957, 'NaN')",
    "timestamp with time zone": "coalesce(date_part('epoch', {0}) / 86400 - 10957, 'NaN')",
}
ORIGIN = "2000-01-01"
UNKNOWN_NUMBER, ABSENT_NUMBER = 0.5, -0.5  # no category, and that of NULL: the others are hashes, which are integers
_COUNTING_BYTES = 1 << 26  # of memory, to count rows of groups and of bins
_NO_NUMBER = np.array(np.nan, ">f8").tobytes()


def encoder_of(session: Session, dataset: RegisteredDataset, projection: RandomProjection | None = None) -> Encoder:
    """Return the encoder that decodes a dataset's records into packed rows."""
    declaration = dataset.declaration
    labels = labels_of(declaration)
    if vector := declaration.vector:
        element = "<f8" if dataset.column_types[vector.column] == "double precision[]" else "<f4"
        public = vector.length, vector.norm_bound, declaration.intercept
        return VectorEncoder(*public, element, labels, projection, declaration.encoding)
    return ColumnEncoder(
        declaration.numeric,
        tuple(map(partial(_numbers_of_values, session), declaration.categorical)),
        declaration.intercept,
        labels,
        projection,
        declaration.encoding,
        declaration.products,
    )


def labels_of(declaration: Declaration) -> LabelEncoding:
    """Return how the labels of a declaration are stored in a record."""
    if binned_label := declaration.binned_label:
        return BinnedLabels(binned_label)
    if declaration.label_bounds:
        return RealLabels(*declaration.label_bounds)
    return IntegerLabels(1, len(declaration.classes)) if declaration.classes else SIGNS


def read(
    session: SpiSession,
    dataset: RegisteredDataset,
    encoder: Encoder,
    *,
    memory: int,
    key: bytes | None = None,
    inside: str | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield how many slots came before, and the raw records of the next slots, some at a time; all from one snapshot.

    Sessions with the same key and snapshot number the slots alike. Each unit has r slots, with a zero record for each
    missing row; with a capacity there are as many slots as it has. Only a sum, or the law of a permutation or of
    independent draws, matters, so that slots are numbered in the order in which they are read. `inside` is SQL for 1
    if the row `source` counts, see `coded_rows.inside`; any other has no answer.
    """
    record, seen = _record(session, dataset, encoder, inside=inside), 0
    for raw in slots(session, dataset, record, memory, key):
        number = len(raw) // encoder.record_bytes
        if seen + number <= dataset.rows:
            yield seen, raw
        seen += number
    check_seen(dataset, seen)


def counted_by_pages(session: SpiSession, dataset: RegisteredDataset, memory: int) -> tuple[int, list[int]]:
    """Return how many pages `on_pages` reads at once, and the rows on each so many pages, in the order of storage."""
    _, pages = _record_by_row(session, dataset, memory)
    return pages, reading.counted_by_pages(session, dataset.source, pages)


def on_pages(session: SpiSession, dataset: RegisteredDataset, first: int, last: int, memory: int) -> bytes:
    """Return the raw records of the rows on pages first, …, last - 1.

    In one snapshot every session returns them in one order, whatever its settings: each reads by one plan.
    """
    record, pages = _record_by_row(session, dataset, memory)
    if not (0 <= first < last <= reading.EVERY_PAGE[1] and last - first <= pages):
        raise ValueError(f"pages {first} to {last} are none, or more than {pages}; pass fewer pages")
    return b"".join(reading.records(session, dataset.source, record, most=0, memory=memory, within=(first, last)))


def _record_by_row(session: SpiSession, dataset: RegisteredDataset, memory: int) -> tuple[Record, int]:
    """Return the record of a dataset whose rows are its units, and of how many pages records are joined."""
    check_by_row(dataset)
    record = _record(session, dataset, encoder_of(session, dataset))
    return record, reading.pages_together(session, dataset.source, record, memory)


def check_by_row(dataset: RegisteredDataset) -> None:
    """Raise ValueError unless each row of a dataset is one record, and their number is public."""
    if dataset.unit is not None or dataset.capacity is not None:
        what = "a capacity" if dataset.unit is None else "a unit of privacy"
        raise ValueError(
            f"dataset {dataset.name!r} has {what}, so its rows are selected while PostgreSQL reads them; "
            "train it without Spark"
        )


def slots(
    session: SpiSession, dataset: RegisteredDataset, record: Record, memory: int, key: bytes | None = None
) -> Iterator[bytes]:
    """Yield a record for each slot, some at a time; with a capacity as many as it has, whatever the table contains."""
    if dataset.unit:
        public = dataset.source, dataset.unit, dataset.column_types, record
        return privacy_units.slots(session, *public, key=key, memory=memory, capacity=dataset.capacity)
    if dataset.capacity is not None:
        drawn = _drawn(session, dataset, record, key, memory)
        return guarded_reads.in_one_snapshot(session, _filled(drawn, record, dataset.rows, memory))
    ordered = key is not None
    return reading.records(session, dataset.source, record, most=dataset.rows, memory=memory, one_order=ordered)


def _drawn(
    session: SpiSession, dataset: RegisteredDataset, record: Record, key: bytes | None, memory: int
) -> Iterator[bytes]:
    """Yield the records of at most as many rows as the capacity, a uniformly random subset of them (privacy.md §18)."""
    secret = hashlib.shake_256((key or os.urandom(privacy_units.KEY_BYTES)) + b"capacity").digest(
        privacy_units.KEY_BYTES
    )
    row_count = count(session, dataset.source, None, dataset.column_types)
    subset, seen = Subset.of(secret, row_count, dataset.rows), 0

    def chosen(raw: bytes) -> bytes:
        nonlocal seen
        records = np.frombuffer(raw, f"V{len(record.blank)}")
        first, seen = seen, seen + len(records)
        return records[subset.contains(first, seen)].tobytes()

    public = session, dataset.source, record
    yield from reading.records(*public, most=dataset.rows, memory=memory, one_order=key is not None, keep=chosen)


def _filled(pieces: Iterator[bytes], record: Record, slots: int, memory: int) -> Iterator[bytes]:
    """Yield the records of the pieces, then blank ones for the slots that are left; these are packed as zero rows.

    They are yielded in pieces of a public size, so that no later step can depend on the number of rows.
    """
    width, held = len(record.blank), bytearray()
    left, size = slots * width, reading.batch_size(record, memory) * width
    for raw in pieces:
        held += raw
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
            left -= size
    while left:
        piece = bytes(held[:size]) + record.blank * ((min(size, left) - min(size, len(held))) // width)
        yield piece
        held.clear()
        left -= len(piece)


def check_seen(dataset: RegisteredDataset, seen: int) -> None:
    """Raise ValueError if another number of slots was read than the dataset has."""
    if seen != dataset.rows:
        size = f"{seen} rows" if dataset.unit is None else f"{seen // dataset.unit_rows} units"
        raise ValueError(
            f"{dataset.source} had {size} while it was read, dataset {dataset.name!r} has {dataset.units}: "
            "the table changed during training; the charge stands"
        )


def check_memory(declaration: Declaration, memory: int) -> None:
    """Raise ValueError if one record of a declaration, whose size is public, does not fit `dbdp.pack_memory`."""
    length = declaration.vector.length if declaration.vector else len(declaration.columns)
    needed = 4 * _held(8 * length, declaration.dimension, declaration.dimension)
    if needed > memory:
        megabytes = -(-needed >> 20)
        raise ValueError(
            f"a record of {declaration.dimension} coordinates needs {megabytes} MB of memory to be packed, above "
            f"dbdp.pack_memory; set dbdp.pack_memory = '{megabytes}MB', or register fewer features"
        )


def _held(record_bytes: int, width: int, dimension: int) -> int:
    """Return the bytes that a record needs while it is decoded: as stored, in float64, and packed."""
    return record_bytes + 8 * width + 4 * blocks.stride_of(dimension)


def read_by_group(
    session: SpiSession,
    dataset: RegisteredDataset,
    encoder: Encoder,
    column: str,
    groups: Sequence[str],
    sizes: Sequence[int],
    *,
    memory: int,
) -> Iterator[np.ndarray]:
    """Yield the raw records whose key is one of the groups, some at a time, in one pass.

    Each item is an array with the fields `group`, the group's number from 0, and `raw`, the record. Their order does
    not matter, since a fresh uniform permutation follows (privacy.md §11.5). No other row is returned. With a capacity
    each group has as many records as its size, drawn and filled up as those of a dataset are.
    """
    record = _record(session, dataset, encoder, blank="$6")  # behind the parameters of the groups
    layout = np.dtype([("group", ">i4"), ("raw", f"V{len(record.blank)}")])
    number = _group_number(session, dataset, column, groups)
    numbered = replace(
        record,
        sql=f"int4send({number}) || {record.sql}",
        blank=bytes(layout.itemsize),
        where=f"{number} is not null",
        parameters=(*_numbers_of(groups), record.blank),
    )
    if dataset.capacity is None:
        pieces = reading.records(session, dataset.source, numbered, most=sum(sizes), memory=memory)
    else:
        drawn = _drawn_by_group(session, dataset, column, dict(zip(groups, sizes, strict=True)), numbered, memory)
        pieces = guarded_reads.in_one_snapshot(
            session, _filled(drawn, numbered, sum(sizes), memory)
        )  # none: in pieces of public sizes
    for raw in pieces:
        yield np.frombuffer(raw, layout)


def _drawn_by_group(
    session: SpiSession,
    dataset: RegisteredDataset,
    column: str,
    sizes: Mapping[str, int],
    numbered: Record,
    memory: int,
) -> Iterator[bytes]:
    """Yield as many records of each group as its size: a uniformly random subset of them, or all and blank ones."""
    counts = count_groups(session, dataset, column, list(sizes))
    subsets = [
        Subset.of(os.urandom(privacy_units.KEY_BYTES), *each) for each in zip(counts, sizes.values(), strict=True)
    ]
    seen = np.zeros(len(sizes), np.int64)

    def chosen(raw: bytes) -> bytes:
        records = np.frombuffer(raw, [("group", ">i4"), ("raw", f"V{len(numbered.blank) - 4}")])
        here = np.zeros(len(records), bool)
        for group in np.unique(records["group"]).tolist():
            (places,) = np.nonzero(records["group"] == group)
            here[places] = subsets[group].contains(int(seen[group]), int(seen[group]) + len(places))
            seen[group] += len(places)
        return records[here].tobytes()

    yield from reading.records(session, dataset.source, numbered, most=sum(sizes.values()), memory=memory, keep=chosen)
    for group, (size, row_count) in enumerate(zip(sizes.values(), counts, strict=True)):
        blank = replace(numbered, blank=group.to_bytes(4, "big") + numbered.blank[4:])
        yield from _filled(iter(()), blank, max(0, size - row_count), memory)


def count_groups(session: SpiSession, dataset: RegisteredDataset, column: str, groups: Sequence[str]) -> list[int]:
    """Return the number of rows with each of some values of a column."""
    number, counts = _group_number(session, dataset, column, groups), np.zeros(len(groups), np.int64)
    record = Record(f"int4send({number})", bytes(4), 16, f"{number} is not null", _numbers_of(groups))

    def receive(raw: bytes) -> None:
        counts[:] += np.bincount(np.frombuffer(raw, ">i4"), minlength=len(groups))

    reading.scan(session, dataset.source, record, receive, memory=_COUNTING_BYTES)
    return list(map(int, counts))


def _numbers_of(groups: Sequence[str]) -> tuple[list[str], list[str]]:
    return list(groups), [str(number) for number in range(len(groups))]


def _group_number(session: SpiSession, dataset: RegisteredDataset, column: str, groups: Sequence[str]) -> str:
    """Return SQL for the number of the group of the row `source`, null for none, looked up in a JSON object.

    A text that is longer than each group's is none of them, and is not fetched.

    A value of a type that a public column may have is written in one way only (dates in the style that the calling
    functions pin), so equal texts are equal values. An object's keys are compared byte by byte; a join of the rows with
    the groups would need a plan, and memory.
    """
    name = session.query("select quote_ident($1) as n", column)[0]["n"]
    key = as_text(f"source.{name}", dataset.column_types[column])
    longest = max(len(group.encode()) for group in groups)
    return f"case when octet_length({key}) <= {longest} then ((select jsonb_object($4, $5)) ->> {key})::int4 end"


def _record(
    session: SpiSession, dataset: RegisteredDataset, encoder: Encoder, *, blank: str = "$1", inside: str | None = None
) -> Record:
    """Return a dataset's record, label and array; all zero, a parameter, if the array's length is not the declared one.

    Only an array of exactly the declared length is fetched and unpacked. Label and array of a row that is not inside
    are read too, and then it has the label of a row without an answer.
    """
    label, elements = record_sql(session, dataset, encoder, _columns(session, dataset))
    if inside is not None:
        none = _NO_NUMBER if encoder.labels.layout == ">f8" else bytes(4)
        label = f"(array[decode('{none.hex()}', 'hex'), {label}])[1 + {inside}]"
    held = _held(encoder.record_bytes, encoder.width, encoder.dimension)
    return Record(f"coalesce(({label}) || ({elements}), {blank})", bytes(encoder.record_bytes), held)


def _columns(session: SpiSession, dataset: RegisteredDataset) -> list[str]:
    """Return SQL for the label and the feature columns of the row `source`."""
    names = session.query(
        "select quote_ident(n) as n from unnest($1) with ordinality as u(n, i) order by i",
        [dataset.declaration.label, *dataset.declaration.columns],
    )
    return [f"source.{row['n']}" for row in names]


def record_sql(session: SpiSession, dataset: RegisteredDataset, encoder: Encoder, values: list[str]) -> tuple[str, str]:
    """Return SQL for the bytes of a record's label and of its array, from SQL for the label and the feature columns."""
    declaration = dataset.declaration
    label, *columns = values
    if isinstance(encoder, VectorEncoder):
        size = encoder.record_bytes - np.dtype(encoder.labels.layout).itemsize
        column = columns[0]
        elements = f"case when dbdp_internal.array_size({column}) = {size} then dbdp_internal.array_bytes({column}) end"
        none = f"{_number_bytes(NO_ARRAY)} || decode(repeat('00', {size - 4}), 'hex')"  # a constant
        elements = f"coalesce({elements}, {none})"
    else:
        types = [dataset.column_types[column] for column in declaration.columns]
        features: list[Numeric | Categorical] = [*declaration.numeric, *declaration.categorical]
        terms = [number_sql(*term) for term in zip(features, columns, types, strict=True)]
        elements = f"dbdp_internal.array_bytes(array[{', '.join(terms)}]::float8[])"
    return _label(session, dataset, label), elements


def _label(session: SpiSession, dataset: RegisteredDataset, column: str) -> str:
    """Return SQL for the bytes of the label as the encoder reads them."""
    declaration = dataset.declaration
    type_name = dataset.column_types[declaration.label]
    if declaration.kind == "real":
        return f"float8send({float_sql(column, type_name)})"
    other = _number_bytes(0)
    if declaration.kind == "binary" and declaration.negative is None:
        other = f"case when {column} is not null then {_number_bytes(-1)} else {other} end"
    return label_case(session, dataset, column, _number_bytes, other)


def label_case(
    session: Session, dataset: RegisteredDataset, column: str, write: Callable[[int], str], other: str
) -> str:
    """Return SQL for the number that a label of classes is packed as, written in SQL by `write`; else `other`."""
    declaration = dataset.declaration
    type_name = dataset.column_types[declaration.label]
    compared = f'({as_text(column, type_name)}) collate "C"' if is_text(type_name) else f"{column}::{type_name}"
    literals = session.query(
        "select quote_literal(v) as q from unnest($1) with ordinality as u(v, i) order by i",
        list(numbered(declaration)),
    )
    cases = " ".join(
        f"when {row['q']}::{'text' if is_text(type_name) else type_name} then {write(number)}"
        for row, number in zip(literals, numbered(declaration).values(), strict=True)
    )
    return f"case {compared} {cases} else {other} end"


def numbered(declaration: Declaration) -> dict[str, int]:
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


def as_text(column: str, type_name: str) -> str:
    """Return SQL for a column as text, by built-in functions alone.

    A cast of an enum may be its owner's function, which would run with the reader's rights.
    """
    if type_name.startswith("enum "):
        return f"textin(enum_out({column}::{type_name.removeprefix('enum ')}))"
    return f"{column}::text"


def number_sql(feature: Numeric | Categorical, column: str, type_name: str) -> str:
    """Return SQL for one number of a record; null becomes NaN, or the number of a category that stands for it."""
    if isinstance(feature, Categorical):
        absent = {OUTSIDE: str(UNKNOWN_NUMBER), CATEGORY: str(ABSENT_NUMBER)}.get(feature.null, "'NaN'")
        longest = max(len(category.encode()) for category in feature.categories)
        text = as_text(column, type_name)
        return (
            f"case when octet_length({text}) <= {longest} then {category_number(text)}::float8 "
            f"when {column} is null then {absent} else {UNKNOWN_NUMBER} end"
        )
    return float_sql(column, type_name)


def float_sql(column: str, type_name: str) -> str:
    """Return SQL for a number as float8; null becomes NaN."""
    if type_name == "boolean":
        column = f"{column}::int4"
    elif type_name == "numeric":  # its cast to float8 raises outside the range, so such values are clipped first
        column = (
            f"case when abs({column}) < 1e-300 then 0.0 when abs({column}) < 1e300 then {column} "
            f"when abs({column}) < 'infinity' then sign({column}) * 1e300 end"
        )
    return f"coalesce(({column})::float8, 'NaN')"


def category_number(text: str) -> str:
    """Return SQL for the number that stands for a category: a 64-bit hash."""
    return f'hashtextextended({text} collate "C", 0)'


def _numbers_of_values(session: Session, feature: Categorical) -> tuple[float, ...]:
    """Return the number of each category in a record, then that of NULL if it is a category."""
    return (*category_numbers(session, feature.categories), *[ABSENT_NUMBER] * (feature.null == CATEGORY))


def category_numbers(session: Session, categories: tuple[str, ...]) -> tuple[float, ...]:
    """Return the number of each category, as this server computes it."""
    listed = "unnest($1::text[]) with ordinality as u(c, i) order by i"
    query = f"select {category_number('c')}::float8 as number from {listed}"
    return tuple(row["number"] for row in session.query(query, list(categories)))


# --- numbers of one column ------------------------------------------------------------------------------


def _measured(column: str, type_name: str) -> str:
    """Return SQL for a number, for the days of a date, or for the bytes of a text, as float8; null becomes NaN."""
    if type_name in TEXT_TYPES:
        return f"coalesce(octet_length({column}::text)::float8, 'NaN')"
    return DAYS[type_name].format(column) if type_name in DAYS else float_sql(column, type_name)


def binned(
    session: SpiSession,
    dataset: RegisteredDataset,
    column: str,
    type_name: str,
    edges: Sequence[float],
    *,
    memory: int = _COUNTING_BYTES,
) -> np.ndarray:
    """Return the exact histogram of a column: how many rows are between each edge and the next, shape (edges - 1,).

    Of a date it counts days, and of a text bytes, which are not fetched. None of these expressions can raise.
    At most r rows of each unit are counted, selected as for a training (privacy.md §11.6). NaN, which also replaces
    null, sorts above every number, and infinity above every finite one: neither is counted.
    """
    name = session.query("select quote_ident($1) as n", column)[0]["n"]
    number = Record(f"float8send({_measured(f'source.{name}', type_name)})", _NO_NUMBER, 32)
    counts, seen = np.zeros(len(edges) + 1, np.int64), 0
    for raw in slots(session, dataset, number, memory):
        values = np.frombuffer(raw, ">f8")
        counts += np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(counts))
        seen += len(values)
    check_seen(dataset, seen)
    return counts[1:-1]
