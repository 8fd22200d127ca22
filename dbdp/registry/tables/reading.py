"""Reads a registered table: records of a public size, some rows at a time, in bounded memory.

How many records are in memory at a time depends on the size of a record and on the memory, never on a row's content.
No statement here sorts, hashes or materialises rows, so that nothing is written to a temporary file. This module runs
in the server, where search_path is pinned to pg_catalog.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dbdp.sessions.inside import guarded_reads
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Row

MOST_BYTES = 1 << 28  # of records in memory at a time, whatever the setting: a value has 1 GB at most
_MOST_ROWS = 1 << 14  # of a batch: more rows are not faster
_PAGE_HEADER, _LEAST_TUPLE = 24, 28  # bytes: a page has (block_size - 24) / 28 tuples at most, whatever they contain
EVERY_PAGE = (0, 2**32 - 1)  # from the first one to before the last one that PostgreSQL may number


@dataclass(frozen=True)
class Record:
    """What is read of each row."""

    # Expression over the row `source`: bytes, as many as `blank` has, whatever the row contains. $1 is `blank`, or
    # empty bytes, which are then replaced by it; the record's own parameters begin with $4.
    sql: str
    blank: bytes  # the record of a row for which the expression is empty
    held: int  # bytes of memory that one record needs until it is processed
    where: str = "true"  # condition of the rows that are read, on public facts
    parameters: tuple[object, ...] = ()  # values of $4, $5, …


_TABLES = """
select coalesce(array_agg(relid::oid::int8 order by relid), array[$1::regclass::oid::int8]) as tables,
       current_setting('block_size')::int8 as block_size
from pg_partition_tree($1::regclass)
where isleaf
"""

# A partitioned table is read through its root, so that its own rights apply; pages with the same numbers in all
# partitions are read together. The sizes are looked up after the snapshot is taken: all rows in it are below them.
_PAGES = """
from (
    select generate_series(
        {first},
        least({last} - 1, greatest(
            pg_relation_size($3::regclass),
            (select max(pg_relation_size(relid)) from pg_partition_tree($3::regclass) where isleaf)
        ) / current_setting('block_size')::int8),
        $2
    ) as number
) as page
where true
"""
_ON_PAGES = """(
    select {value}
    from {source} as source
    where source.ctid >= format('(%s,0)', page.number)::tid
    and source.ctid < format('(%s,0)', least(page.number + $2, {last}))::tid
    and {where}
)"""
_COUNT_BY_PAGES = f"select {_ON_PAGES} as raw {_PAGES}"
_JOINED = "string_agg({record}, ''::bytea)"

_ROWS = """
from {source} as source
where source.ctid >= '({first},0)'::tid
and source.ctid < '({last},0)'::tid
"""
_OF_ROW = "case when {where} then {value} end"

_BY_PLACES = """
select coalesce(string_agg({record}, ''::bytea), '') as raw
from {source} as source
where source.ctid = any($2::tid[])
and source.tableoid = $3::oid
"""


Keep = Callable[[bytes], bytes]


def records(
    session: SpiSession,
    source: str,
    record: Record,
    *,
    most: int,
    memory: int,
    one_order: bool = False,
    within: tuple[int, int] = EVERY_PAGE,
    keep: Keep = bytes,
) -> Iterator[bytes]:
    """Yield the records of all rows, joined, `batch_size` of them at a time; all from one snapshot.

    They are read page by page where one page of each partition fits (one aggregate joins their records in the server),
    else row by row. Proof that what is received together is bounded: a page has at most (block_size - 24) / 28 tuples,
    so P pages of T tables have at most P·T times as many, of `held` bytes each, which is at most `MOST_BYTES`; the
    product does not depend on any row. Before it is received, fewer than `batch_size` records are there: more were
    yielded.

    The session reads the table (a qualified, quoted name) as its owner, with `memory` bytes. `most` is the public
    number of records that are kept at most: how often the server is asked depends on it, and not on how many there are,
    or on how many pages. With `one_order` the order is the same in every session: table by table, whatever the memory.
    `within` has the first page that is read, and the one after the last. `keep` gets the records of each page, or row,
    in their order, and returns those that are kept. Raise PermissionError if this role may not read the table.
    """
    size, held = batch_size(record, memory) * len(record.blank), bytearray()

    def receive(piece: bytes) -> bool:
        held.extend(keep(piece))
        return len(held) >= size

    asked = most * len(record.blank) // size + 1
    for _ in _scan(session, source, record, asked, receive, memory, one_order=one_order, within=within):
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)


def scan(
    session: SpiSession,
    source: str,
    record: Record,
    receive: Callable[[bytes], None],
    *,
    memory: int,
    one_order: bool = False,
) -> None:
    """Call a function with the records of all rows, some at a time, in one statement; otherwise as `records`."""

    def received(piece: bytes) -> bool:
        receive(piece)
        return False

    for _ in _scan(session, source, record, 1, received, memory, one_order=one_order, within=EVERY_PAGE):
        pass


def _scan(
    session: SpiSession,
    source: str,
    record: Record,
    asked: int,
    receive: Callable[[bytes], bool],
    memory: int,
    *,
    one_order: bool,
    within: tuple[int, int],
) -> Iterator[None]:
    tables, pages = _tables_and_pages(session, source, record, memory)
    if one_order and tables > 1:
        pages = 0
    value, blank = (_JOINED.format(record=record.sql), record.blank) if pages else (record.sql, b"")
    what, where = (_ON_PAGES, _PAGES) if pages else (_OF_ROW, _ROWS)
    names = {"source": source, "where": record.where, "value": value, "first": within[0], "last": within[1]}

    def received(piece: bytes | None) -> bool:
        return piece is not None and receive(piece or record.blank)

    sql = what.format(**names), where.format(**names)
    return guarded_reads.scan(session, source, asked, *sql, received, blank, pages, source, *record.parameters)


def _room(memory: int) -> int:
    """Return the bytes of one piece."""
    return min(memory // 4, MOST_BYTES)


def _tables_and_pages(session: SpiSession, source: str, record: Record, memory: int) -> tuple[int, int]:
    """Return how many tables a table consists of, and how many of their pages are read together; public facts.

    The second number is 0 if the records of one page may be too many.
    """
    facts = session.query(_TABLES, source)[0]
    tables = len(facts["tables"])
    each = (facts["block_size"] - _PAGE_HEADER) // _LEAST_TUPLE * record.held * tables
    return tables, _room(memory) // each


def leaves(session: SpiSession, source: str) -> list[int]:
    """Return the oids, ascending, of the tables that store the rows of a table: its partitions, or itself."""
    return list(session.query(_TABLES, source)[0]["tables"])


def pages_together(session: SpiSession, source: str, record: Record, memory: int) -> int:
    """Return of how many pages the records may be joined."""
    return max(1, _tables_and_pages(session, source, record, memory)[1])


def counted_by_pages(session: SpiSession, source: str, pages: int) -> list[int]:
    """Return the number of rows on each so many pages, in the order of storage."""
    first, last = EVERY_PAGE
    sql = _COUNT_BY_PAGES.format(value="count(*)", source=source, where="true", first=first, last=last)
    batches = guarded_reads.batches_of(session, source, _MOST_ROWS, sql, b"", pages, source)
    return [row["raw"] for batch in batches for row in batch]


def stored_at(session: SpiSession, source: str, record: Record, table: int, places: Sequence[str]) -> bytes:
    """Return the records of the rows at increasing places (ctid) of one table, joined in that order."""
    sql = _BY_PLACES.format(record=record.sql, source=source)
    with guarded_reads.reading(session, source):
        return bytes(session.query(sql, record.blank, list(places), table, *record.parameters)[0]["raw"])


def batch_size(record: Record, memory: int) -> int:
    """Return how many records are read in one batch."""
    return max(1, min(_MOST_ROWS, _room(memory) // record.held))


_KIND = """
select c.reltype::int8 as row_type, c.relkind in ('r', 'p', 'm') and not c.relrowsecurity as is_plain
from pg_class as c
where c.oid = $1::regclass
"""
# `t.*`, since `t` alone would be a column of that name if the table has one.
_SHOWN = "select row_to_json(t.*)::text as shown, {features} as features from {source} as t limit $1::int8"


def shown(session: SpiSession, source: str, vector: str | None, most: int | None) -> list[Row]:
    """Return rows of a table for a role that may read it: each as JSON, with the bytes that a prediction needs.

    The table is read as its owner: in a query of the reader's own, the owner's code in its indexes would have the
    reader's rights.
    """
    kind = session.query(_KIND, source)[0]
    if not kind["is_plain"]:
        raise ValueError(
            f"{source} is a view, a foreign table, or has row-level security; predict in your own query, in which "
            "PostgreSQL may run code of its owner with your privileges"
        )
    column = vector and session.query("select quote_ident($1) as name", vector)[0]["name"]
    features = f"dbdp_internal.array_bytes(t.{column}::float8[])" if column else "record_send(t.*)"
    with guarded_reads.reading(session, source):
        rows = session.query(_SHOWN.format(features=features, source=source), most)
    row_type = 0 if column else kind["row_type"]
    return [row | {"row_type": row_type} for row in rows]
