"""The values of one column as texts of a public length, counted in one pass (privacy.md §26).

A longer text is not fetched, and no value raises. This module runs in the server, where search_path is pinned to
pg_catalog.
"""

from collections import Counter

import numpy as np

from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.tables import records
from dbdp.registry.tables.reading import Record
from dbdp.sessions.server import SpiSession
from dbdp.statistics.coded_columns import NO_CATEGORY, NO_VALUE

LONGEST = 128  # bytes of a text
_VALUE, _OTHER, _NULL = b"\x01", b"\x02", b"\x03"  # the first byte of a record; 0 is a slot without a row
_READING_BYTES = 1 << 24  # of memory for records that are read at a time
_HELD_BYTES = 256  # for a value with its count


def counted(session: SpiSession, dataset: RegisteredDataset, column: str, type_name: str) -> dict[str, int]:
    """Return the exact count of each value of a column, of NULL, and of other values, under their two words.

    A text of more than LONGEST bytes is another value, and one that is written as one of the two words. At most r rows
    of each unit are counted, selected as for a training (privacy.md §11.6).
    """
    name = session.query("select quote_ident($1) as n", column)[0]["n"]
    blank = bytes(LONGEST + 1)
    record = Record(_record_sql(f"source.{name}", type_name), blank, len(blank) + _HELD_BYTES)
    counts, seen = Counter[bytes](), 0
    for raw in records.slots(session, dataset, record, _READING_BYTES):
        values = np.frombuffer(raw, f"S{len(blank)}").tolist()
        counts.update(values)
        seen += len(values)
    records.check_seen(dataset, seen)
    counts.pop(b"", None)
    return {_word(value): count for value, count in counts.items()}


def _word(value: bytes) -> str:
    words = {_OTHER: NO_CATEGORY, _NULL: NO_VALUE}
    return words[value] if value in words else value[1:].decode("utf-8", "replace")


def _record_sql(column: str, type_name: str) -> str:
    """Return SQL for a kind and a text, filled with zero bytes, which no text has."""
    text = records.as_text(column, type_name)
    value = (
        f"case when {column} is null then {_bytes(_NULL)} when octet_length({text}) > {LONGEST} then {_bytes(_OTHER)} "
        f"when ({text}) collate \"C\" in ('{NO_CATEGORY}', '{NO_VALUE}') then {_bytes(_OTHER)} "
        f"else {_bytes(_VALUE)} || convert_to({text}, 'UTF8') end"
    )
    return f"substr({value} || {_bytes(bytes(LONGEST))}, 1, {LONGEST + 1})"


def _bytes(value: bytes) -> str:
    return f"decode('{value.hex()}', 'hex')"
