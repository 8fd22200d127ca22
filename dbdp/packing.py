"""Shuffle and pack: a table, to packed blocks in a secret uniform order, in bounded memory.

The server concatenates the raw records of some pages at a time (`array_bytes` shows an array's own
bytes, `string_agg` appends them: no Python for a row), NumPy decodes them at once. Rows that fit the
memory given are put straight to their places of a uniform permutation. When they do not fit, each
row is first dealt to a uniform bucket, kept in a temporary table, and each bucket is permuted by
itself: again exactly a uniform permutation, and each row is written twice, however many there are.
All of it runs in the server, where search_path is pinned to pg_catalog.
"""

from collections.abc import Iterator

import numpy as np

from dbdp import shuffling
from dbdp.datasets import Categorical, Dataset, Numeric
from dbdp.learning import blocks
from dbdp.learning.encoding import HEADER_BYTES, ColumnEncoder, Encoder, VectorEncoder
from dbdp.sessions import ServerSession, temporary_table

_ARRAY_HEADER_BYTES = 20
_TUPLES_PER_PAGE = 291  # MaxHeapTuplesPerPage at 8 KiB: no page gives more records, whatever its rows hold
_LABELS = {1: r"'\x01000000'", -1: r"'\xffffffff'", 0: r"'\x00000000'"}
DEFAULT_MEMORY = 256 << 20
_LEAST_MEMORY = 1 << 20


def shuffle_and_pack(session: ServerSession, dataset: Dataset, table: str) -> None:
    """Fill `table` (block_no, block) with the dataset in a fresh secret order.

    Raises
    ------
    ValueError
        If the number of rows is no longer the registered one.
    """
    memory = _memory(session)
    encoder = encoder_of(session, dataset)
    store = _BlockWriter(session, table, encoder.dimension)
    packed = _packed_chunks(session, dataset, encoder, memory)
    if dataset.rows * store.row_bytes <= memory // 2:
        store.write(_permuted(packed, dataset, store.stride))
        return
    number = 1 << (4 * dataset.rows * store.row_bytes // memory).bit_length()
    with temporary_table(session, table_name(table) + "_buckets", "bucket int8, block bytea") as staged:
        _deal(session, packed, dataset, staged, number)
        for bucket in range(number):
            store.write(_permuted_bucket(session, staged, bucket, store.stride))


def table_name(qualified: str) -> str:
    """Return the bare name of a qualified, quoted temporary table."""
    return qualified.partition(".")[2].strip('"')


class _BlockWriter:
    """Writes permuted rows as numbered blocks."""

    def __init__(self, session: ServerSession, table: str, dimension: int) -> None:
        self._session = session
        self._insert = f"insert into {table} (block_no, block) values ($1, $2)"
        self._written = 0
        self._rows = blocks.rows_per_block(dimension)
        self.stride = blocks.stride_of(dimension)
        self.row_bytes = self.stride * blocks.ELEMENT.itemsize

    def write(self, rows: np.ndarray) -> None:
        """Append rows."""
        for first in range(0, len(rows), self._rows):
            self._session.query(self._insert, self._written, rows[first : first + self._rows].tobytes())
            self._written += 1


def _permuted(packed: Iterator[np.ndarray], dataset: Dataset, stride: int) -> np.ndarray:
    rows = np.empty((dataset.rows, stride), blocks.ELEMENT)
    places = shuffling.permutation(dataset.rows)
    for first, chunk in _counted(packed, dataset):
        rows[places[first : first + len(chunk)]] = chunk
    return rows


def _counted(packed: Iterator[np.ndarray], dataset: Dataset) -> Iterator[tuple[int, np.ndarray]]:
    """Give each chunk with the number of rows before it; the total must be the registered one."""
    seen = 0
    for chunk in packed:
        if seen + len(chunk) <= dataset.rows:
            yield seen, chunk
        seen += len(chunk)
    if seen != dataset.rows:
        raise ValueError(
            f"{dataset.source} had {seen} rows while it was read, dataset {dataset.name!r} has {dataset.rows}: "
            "the table changed during training; the charge stands"
        )


def _deal(session: ServerSession, packed: Iterator[np.ndarray], dataset: Dataset, staged: str, number: int) -> None:
    """Deal every row to an independent uniform bucket."""
    insert = f"insert into {staged} (bucket, block) select * from unnest($1, $2)"
    for _, chunk in _counted(packed, dataset):
        dealt = shuffling.buckets(len(chunk), number)
        order = np.argsort(dealt, kind="stable")
        present, begins = np.unique(dealt[order], return_index=True)
        pieces = [piece.tobytes() for piece in np.split(chunk[order], begins[1:])]
        session.query(insert, present.tolist(), pieces)


def _permuted_bucket(session: ServerSession, staged: str, bucket: int, stride: int) -> np.ndarray:
    pieces = session.stream(f"select block from {staged} where bucket = $1", bucket)
    rows = np.frombuffer(b"".join(row["block"] for row in pieces), blocks.ELEMENT).reshape(-1, stride)
    return rows[shuffling.permutation(len(rows))]


def _packed_chunks(session: ServerSession, dataset: Dataset, encoder: Encoder, memory: int) -> Iterator[np.ndarray]:
    """Give the packed rows of some pages at a time, all from one snapshot."""
    pages = max(1, memory // 8 // (_TUPLES_PER_PAGE * encoder.record_bytes))
    invalid = bytes(encoder.record_bytes)
    record = _record(session, dataset, encoder)
    query = "\nunion all\n".join(_chunk_query(leaf, record, pages) for leaf in _leaves(session, dataset))
    for row in session.stream(query, invalid):
        if row["raw"] is not None:
            yield encoder.rows(row["raw"])


def _chunk_query(leaf: str, record: tuple[str, str], pages: int) -> str:
    label, elements = record
    return f"""
select (
    select string_agg(
        case when octet_length(r.elements) = octet_length($1) - 4
             then r.label || r.elements
             else $1
        end, ''::bytea)
    from (
        select {label} as label, {elements} as elements
        from only {leaf} as source
        where ctid >= format('(%s,0)', page)::tid
        and ctid < format('(%s,0)', page + {pages})::tid
        offset 0
    ) as r
) as raw
from generate_series(
    0, pg_relation_size('{leaf.replace("'", "''")}') / current_setting('block_size')::int8, {pages}
) as page"""


_LEAVES = """
select l.relid::text as leaf
from pg_partition_tree($1::regclass) as l
where l.isleaf
order by l.relid
"""


def _leaves(session: ServerSession, dataset: Dataset) -> list[str]:
    """Return the tables that hold the rows: the source itself, or its partitions."""
    return [row["leaf"] for row in session.query(_LEAVES, dataset.source)] or [dataset.source]


def _record(session: ServerSession, dataset: Dataset, encoder: Encoder) -> tuple[str, str]:
    """Return SQL for a record's label (bytea of 4) and its array's bytes."""
    declaration = dataset.declaration
    quoted = quote(session, [declaration.label, *declaration.columns])
    if isinstance(encoder, VectorEncoder):
        elements = f"dbdp.array_bytes(source.{quoted[1]})"
    else:
        types = [dataset.column_types[column] for column in declaration.columns]
        features: list[Numeric | Categorical] = [*declaration.numeric, *declaration.categorical]
        terms = [_number(*term) for term in zip(features, quoted[1:], types, strict=True)]
        elements = f"dbdp.array_bytes(array[{', '.join(terms)}]::float8[])"
    return _label(session, dataset, quoted[0]), elements


def _label(session: ServerSession, dataset: Dataset, column: str) -> str:
    """Return SQL that maps the label to +1, -1, or 0 for anything not declared."""
    declaration = dataset.declaration
    type_name = dataset.column_types[declaration.label].removeprefix("enum ")
    collation = ' collate "C"' if type_name in ("text", "character varying") else ""

    def equals(value: str) -> str:
        literal = session.query("select quote_literal($1) as q", value)[0]["q"]
        return f"source.{column}::{type_name} = {literal}::{type_name}{collation}"

    other = equals(declaration.negative) if declaration.negative is not None else f"source.{column} is not null"
    return (
        f"case when {equals(declaration.positive)} then {_LABELS[1]}::bytea "
        f"when {other} then {_LABELS[-1]} else {_LABELS[0]} end"
    )


def _number(feature: Numeric | Categorical, column: str, type_name: str) -> str:
    """Return SQL for one number of a record; null becomes NaN, which makes the row a zero row."""
    if isinstance(feature, Categorical):
        value = category_number(f"source.{column}::text")
    elif type_name == "boolean":
        value = f"source.{column}::int4"
    elif type_name == "numeric":  # its cast to float8 raises outside the range, so no such value reaches it
        size = f"abs(source.{column})"
        value = f"case when {size} < 1e-300 then 0.0 when {size} < 1e300 then source.{column}::float8 end"
    else:
        value = f"source.{column}"
    return f"coalesce(({value})::float8, 'NaN')"


def category_number(text: str) -> str:
    """Return SQL for the number that stands for a category: a 64-bit hash, as float8."""
    return f'hashtextextended({text} collate "C", 0)'


def quote(session: ServerSession, names: list[str]) -> list[str]:
    """Return the names as SQL identifiers."""
    quoted = session.query(
        "select quote_ident(n) as n from unnest($1) with ordinality as u(n, i) order by i",
        names,
    )
    return [row["n"] for row in quoted]


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


def category_numbers(session: ServerSession, categories: tuple[str, ...]) -> tuple[float, ...]:
    """Return the number of each category, as this server computes it."""
    query = f"select {category_number('c')}::float8 as number from unnest($1) with ordinality as u(c, i) order by i"
    return tuple(row["number"] for row in session.query(query, list(categories)))


def _memory(session: ServerSession) -> int:
    """Return the bytes that packing may use: the setting `dbdp.pack_memory`, by default 256 MB."""
    sql = "select pg_size_bytes(nullif(current_setting('dbdp.pack_memory', true), '')) as memory"
    memory = session.query(sql)[0]["memory"]
    if memory is not None and memory < _LEAST_MEMORY:
        raise ValueError(f"dbdp.pack_memory = {memory} bytes is below the least, {_LEAST_MEMORY} bytes; raise it")
    return DEFAULT_MEMORY if memory is None else memory


assert HEADER_BYTES == _ARRAY_HEADER_BYTES + 4
