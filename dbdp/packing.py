"""Shuffle and pack: a table, to packed blocks in a secret uniform order, in bounded memory.

The server concatenates the raw records of some pages at a time (`array_bytes` shows an array's own
bytes, `string_agg` appends them: no Python for a row), NumPy decodes them at once. Rows that fit the
memory given are put straight to their places of a uniform permutation. When they do not fit, each
row is first dealt to a uniform bucket, kept in a temporary table, and each bucket is permuted by
itself: again exactly a uniform permutation, and each row is written twice, however many there are.
All of it runs in the server, where search_path is pinned to pg_catalog.
"""

import re
from collections.abc import Iterator

import numpy as np

from dbdp import records, shuffling
from dbdp.datasets import Dataset
from dbdp.learning import blocks
from dbdp.learning.encoding import Encoder
from dbdp.sessions import ServerSession, Session, temporary_table

_TUPLES_PER_PAGE = 291  # MaxHeapTuplesPerPage at 8 KiB: no page gives more records, whatever its rows hold
DEFAULT_MEMORY = 256 << 20
LEAST_MEMORY, MOST_MEMORY = 1 << 20, 1 << 40
_SIZE = re.compile(r"(\d{1,15}) *(B|kB|MB|GB)?")
_UNITS = {"B": 0, "kB": 10, "MB": 20, "GB": 30}


def keep_blocks_at_hand(session: Session, rows: int, dimension: int) -> None:
    """Have blocks that fit half the memory given stay in the session's own buffers between epochs.

    It works until the session first touches a temporary table; without it every epoch reads the blocks
    from the operating system again, which takes about a third longer.
    """
    half = memory_given(session) // 2
    if rows * blocks.stride_of(dimension) * blocks.ELEMENT.itemsize * 9 // 8 <= half:  # with what TOAST adds
        session.prefer("temp_buffers", f"{half >> 10}kB")  # taken as they are used


def shuffle_and_pack(session: ServerSession, dataset: Dataset, table: str) -> None:
    """Fill `table` (block_no, block) with the dataset in a fresh secret order.

    Raises
    ------
    ValueError
        If the number of rows is no longer the registered one.
    """
    memory = memory_given(session)
    encoder = records.encoder_of(session, dataset)
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
    tables = len(session.query(_TABLES.replace("$3", "$1"), dataset.source))
    pages = max(1, memory // 8 // (_TUPLES_PER_PAGE * encoder.record_bytes * tables))
    label, elements = records.record_sql(session, dataset, encoder)
    query = _CHUNKS.format(label=label, elements=elements, source=dataset.source, tables=_TABLES)
    for row in session.stream(query, bytes(encoder.record_bytes), pages, dataset.source):
        if row["raw"] is not None:
            yield encoder.rows(row["raw"])


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
        case when octet_length(r.elements) = octet_length($1) - 4 then r.label || r.elements else $1 end,
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


def memory_given(session: Session) -> int:
    """Return the bytes that packing may use: the setting `dbdp.pack_memory`, by default 256 MB.

    Raises
    ------
    ValueError
        If the setting is no size, or too small.
    """
    setting = session.query("select pg_catalog.current_setting('dbdp.pack_memory', true) as given")[0]["given"]
    if not setting:
        return DEFAULT_MEMORY
    written = _SIZE.fullmatch(setting.strip())
    memory = int(written[1]) << _UNITS[written[2] or "B"] if written else 0
    if not LEAST_MEMORY <= memory <= MOST_MEMORY:
        raise ValueError(
            f"dbdp.pack_memory = {setting!r} must be a size from {LEAST_MEMORY >> 20}MB to {MOST_MEMORY >> 30}GB, "
            "such as '256MB'"
        )
    return memory
