"""Units of privacy: counts them, and selects which of their rows are read (privacy.md §11.6).

The number of rows of a unit is private. So rows are not sorted, which would need temporary files whose size depends on
it. Instead the places of the rows with the least marks are stored for each unit, in memory whose size depends on the
number of units, over as many passes as necessary. This module runs in the server, where search_path is pinned to
pg_catalog.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dbdp.privacy.shuffling import KeyedOrder
from dbdp.registry.tables import reading
from dbdp.registry.tables.reading import Record
from dbdp.registry.units import Unit
from dbdp.sessions.inside import guarded_reads
from dbdp.sessions.server import SpiSession

KEY_BYTES = 32
# Built-in types that a unit's column may have, and SQL for bytes that are equal exactly for equal values. No text of
# more than so many bytes is fetched: all of these are one unit, and protected together; no text is a byte of 0.
_LONGEST_TEXT = 1 << 20
UNIT_TYPES = {
    "smallint": "int8send(({})::int8)",
    "integer": "int8send(({})::int8)",
    "bigint": "int8send({})",
    "uuid": "uuid_send({})",
    "date": "date_send({})",
    "timestamp without time zone": "timestamp_send({})",
    "timestamp with time zone": "timestamptz_send({})",
    **dict.fromkeys(
        ("text", "character varying", "character"),
        f"case when octet_length({{0}}) <= {_LONGEST_TEXT} then convert_to(({{0}})::text, getdatabaseencoding()) "
        r"else '\x00'::bytea end",
    ),
}
# For a row with a unit: the unit's hash, and where the row is stored; in memory its mark too.
_STORED = np.dtype([("unit", "S12"), ("table", ">u4"), ("page", ">u4"), ("line", ">u2")])
ENTRY = np.dtype([*_STORED.descr, ("mark", "<u8")])
_ENTRY = "substring(sha256($4 || {unit}), 1, 12) || oidsend(source.tableoid) || tidsend(source.ctid)"
_ABOVE_ALL = b"\xff" * 13  # longer than a unit's hash
_LEAST_WAITING = 1 << 12  # entries that are sorted together
_COUNTING_BYTES = 1 << 26  # of memory, to count the units


def count(session: SpiSession, source: str, unit: Unit, types: Mapping[str, str]) -> int:
    """Return the number of units, which is public."""
    single = Unit(unit.column, 1)
    return sum(len(places) for places in selected_places(session, source, single, types, None, _COUNTING_BYTES))


def slots(
    session: SpiSession,
    source: str,
    unit: Unit,
    types: Mapping[str, str],
    record: Record,
    *,
    key: bytes | None,
    memory: int,
    capacity: int | None,
) -> Iterator[bytes]:
    """Yield the records of all units, r of each, some at a time; missing rows are blank records.

    All are read from one snapshot. The order follows a keyed hash of the unit; it is the same in every session with the
    same key and snapshot, whatever the memory, and fresh without a key. So the first units, as many as the capacity,
    are a uniformly random subset of them: of one unit more it is the same, or has that unit in place of one of them
    (privacy.md §18).

    The session reads the table (a qualified, quoted name) as its owner; `types` are those of its columns. The key
    determines which rows are selected, and the order; None draws a fresh one. Reading may use `memory` bytes. At most
    `capacity` units are read, None for all.
    """

    def read() -> Iterator[bytes]:
        most, tables = reading.batch_size(record, memory), reading.leaves(session, source)
        for places in selected_places(session, source, unit, types, key, memory, capacity):
            flat = places.ravel()
            for first in range(0, len(flat), most):
                yield _records(session, source, tables, record, flat[first : first + most])

    return guarded_reads.in_one_snapshot(session, read())


def _records(session: SpiSession, source: str, tables: Sequence[int], record: Record, entries: np.ndarray) -> bytes:
    """Return the records of entries, in their order; they are read table by table, in the order of storage.

    One statement reads each table, also if no entry is there, so that the number of statements is public.
    """
    there = np.flatnonzero(entries["line"])  # lines of a page count from 1
    there = there[np.lexsort([entries[name][there] for name in ("line", "page", "table")])]
    stored = (entries[name][there].tolist() for name in ("page", "line", "table"))
    places: dict[int, list[str]] = {table: [] for table in tables}
    for page, line, table in zip(*stored, strict=True):
        places.setdefault(table, []).append(f"({page},{line})")  # a partition may have been attached meanwhile
    raw = b"".join(reading.stored_at(session, source, record, *each) for each in sorted(places.items()))
    records = np.repeat(np.frombuffer(record.blank, f"V{len(record.blank)}"), len(entries))
    records[there] = np.frombuffer(raw, records.dtype)
    return records.tobytes()


def selected_places(
    session: SpiSession,
    source: str,
    unit: Unit,
    types: Mapping[str, str],
    key: bytes | None,
    memory: int,
    capacity: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield where the selected rows of all units are stored, shape (some units, r); missing rows are zero entries.

    Selected are a unit's rows with the least marks. Marks are independent uniform words by the rows' numbers in the
    order of reading: a uniformly random subset, independent of all other units (privacy.md §11.6).

    With a capacity there are as many units as that: missing ones are zero entries, and passes that find no unit read
    the table like the others. So the number of passes is public.
    """
    secret = key or os.urandom(KEY_BYTES)
    names, marks = (hashlib.shake_256(secret + word).digest(KEY_BYTES) for word in (b"units", b"rows"))
    record = _entry_record(session, unit, types, names)
    together = max(1, memory // 8 // (ENTRY.itemsize * unit.max_rows))
    low: bytes | None = b""
    found = 0
    while low is not None if capacity is None else found < capacity:
        units = together if capacity is None else min(together, capacity - found)
        least = _Least(low, units, unit.max_rows, KeyedOrder(marks, 0))
        reading.scan(session, source, record, least.add, memory=memory // 4, one_order=key is not None)
        yield least.places(0 if capacity is None else units)
        low, found = least.beyond, found + units


def _entry_record(session: SpiSession, unit: Unit, types: Mapping[str, str], names: bytes) -> Record:
    """Return what is read of each row to find its unit, under a key."""
    column = session.query("select quote_ident($1) as name", unit.column)[0]["name"]
    sql = _ENTRY.format(unit=UNIT_TYPES[types[unit.column]].format(f"source.{column}"))
    return Record(sql, bytes(_STORED.itemsize), 4 * ENTRY.itemsize, f"source.{column} is not null", (names,))


def _marked(stored: np.ndarray, marks: np.ndarray) -> np.ndarray:
    entries = np.empty(len(stored), ENTRY)
    for name in _STORED.names or ():
        entries[name] = stored[name]
    entries["mark"] = marks
    return entries


class _Least:
    """The entries with the least marks of each of the least units that are not below a bound; None is above all units.

    A unit is dropped only while `units` lesser ones are stored, and from then on `beyond` is at most that unit: its
    later entries are ignored, and the next pass begins at `beyond`. An entry of a stored unit is dropped only while r
    lesser entries of it are stored.
    """

    def __init__(self, low: bytes | None, units: int, rows: int, marks: KeyedOrder) -> None:
        self.beyond: bytes | None = None  # the least unit that did not fit, None if all fit; those below are complete
        self._marks, self._seen = marks, 0
        self._low, self._units, self._rows = _ABOVE_ALL if low is None else low, units, rows
        self._held = [np.zeros(0, ENTRY)]
        self._waiting = 0

    def add(self, raw: bytes) -> None:
        """Add the stored entries of some more rows; their marks are by their numbers in the order of reading."""
        stored = np.frombuffer(raw, _STORED)
        entries = _marked(stored, self._marks.words(self._seen, self._seen + len(stored)))
        self._seen += len(stored)
        wanted = entries["unit"] >= self._low
        if self.beyond is not None:
            wanted &= entries["unit"] < self.beyond
        self._held.append(entries[wanted])
        self._waiting += len(self._held[-1])
        if self._waiting >= max(_LEAST_WAITING, self._units * self._rows):
            self._drop()

    def places(self, least: int) -> np.ndarray:
        """Return the entries by unit, shape (units, r), and zero entries for units that are missing to `least`."""
        self._drop()
        [held] = self._held
        units, places = _numbered(held)
        selected = np.zeros((max([least, *units[-1:] + 1]), self._rows), ENTRY)
        selected[units, places] = held
        return selected

    def _drop(self) -> None:
        entries = np.concatenate(self._held)
        entries = entries[np.lexsort((entries["mark"], entries["unit"]))]
        units, places = _numbered(entries)
        if len(units) and units[-1] >= self._units:
            self.beyond = bytes(entries["unit"][np.searchsorted(units, self._units)])
        self._held, self._waiting = [entries[(units < self._units) & (places < self._rows)]], 0


def _numbered(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each entry's unit, and its own number within that unit, for sorted entries."""
    begins = np.flatnonzero(np.append(True, entries["unit"][1:] != entries["unit"][:-1])[: len(entries)])
    units = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(entries))))
    return units, np.arange(len(entries)) - begins[units]
