"""Dealing: the rows of a dataset, dealt once to the groups of a public key (privacy.md §11.10).

The number of rows of each group is public. `count` and `deal` run in the server, where search_path is pinned to
pg_catalog; `sizes` and `each` call them over a session.
"""

import secrets
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from dbdp.algorithms.several.groups import MOST_GROUPS, GroupsRequest
from dbdp.packing.memory import memory_given
from dbdp.packing.writers import BLOCK_COLUMNS, Buckets
from dbdp.registry import registering
from dbdp.registry.datasets import Dataset, Group
from dbdp.registry.tables import records
from dbdp.sessions.server import ServerSession
from dbdp.sessions.session import Session, temporary_table

# Groups that are packed in one table, in turns: each truncation leaves a row in the catalogue, which every look-up
# passes until the transaction ends, as it holds the locks of each table that it made.
IN_TURNS = 64
_AT_ONCE = 1 << 14  # records
COLUMNS = "bucket int8, block bytea"


def sizes(session: Session, dataset: Dataset, group_by: str, groups: Sequence[str]) -> tuple[int, ...]:
    """Return the number of rows of each group.

    Raises
    ------
    ValueError
        If the column is not public, or the groups are none of its values as PostgreSQL writes them.
    """
    _check(dataset, group_by, groups)
    sql = "select dbdp.group_sizes($1, $2, $3::pg_catalog.text[]) as sizes"
    return tuple(session.query(sql, dataset.name, group_by, list(groups))[0]["sizes"])


def _check(dataset: Dataset, group_by: str, groups: Sequence[str]) -> None:
    if dataset.unit:
        raise ValueError(
            f"dataset {dataset.name!r} protects all rows of one {dataset.unit.column!r} together, and these may lie in "
            "several groups: one charge would not cover them (privacy.md §11.10); train on the whole dataset"
        )
    public = dataset.declaration.public_columns
    if group_by not in public:
        raise ValueError(
            f"column {group_by!r} is not among the public columns of dataset {dataset.name!r} "
            f"({', '.join(map(repr, public)) or 'it has none'}); its owner declares them at registration"
        )
    if not 1 <= len(groups) <= MOST_GROUPS:
        raise ValueError(f"{len(groups)} groups were given; give 1 to {MOST_GROUPS}")
    if not all(isinstance(group, str) for group in groups):
        raise ValueError("a group is null, or no text; give values of the column: rows without one belong to no group")
    if len(set(groups)) != len(groups):
        raise ValueError(f"group {Counter(groups).most_common(1)[0][0]!r} is given twice; list each once")


def count(session: ServerSession, dataset: Dataset, group_by: str, groups: Sequence[str]) -> list[int]:
    """Count the rows of each group, by the public column alone; raises as `sizes` does."""
    _check(dataset, group_by, groups)
    registering.check_written(session, "group", group_by, dataset.column_types[group_by], groups)
    return records.count_groups(session, dataset, group_by, groups)


def each(
    session: Session, dataset: Dataset, request: GroupsRequest, counted: Sequence[int]
) -> Generator[Dataset, None, None]:
    """Deal the raw records of the groups to a temporary table, in one pass; yield one group after the other.

    Close the generator where the groups may not be read to the end: so its tables are dropped.

    Parameters
    ----------
    counted : Sequence[int]
        The rows of each group, as the plan has them.
    """
    name = f"dbdp_groups_{secrets.token_hex(8)}"
    with temporary_table(session, name, COLUMNS) as table:
        sql = "select dbdp.deal_groups($1, $2, $3, $4::pg_catalog.text[], $5::pg_catalog.int8[])"
        session.query(sql, dataset.name, table, request.group_by, list(request.groups), list(counted))
        for first in range(0, len(counted), IN_TURNS):
            with temporary_table(session, f"dbdp_blocks_{secrets.token_hex(8)}", BLOCK_COLUMNS) as blocks:
                for place, rows in enumerate(counted[first : first + IN_TURNS], start=first):
                    yield replace(dataset, rows=rows, group=Group(place, name, blocks))


def _evenly(pieces: Iterable[np.ndarray], count: int) -> Iterator[np.ndarray]:
    """Give the same records, so many at a time: where pages end, which decides the pieces, decides nothing more."""
    held: list[np.ndarray] = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held)) >= count:
            joined = np.concatenate(held)
            whole = len(joined) - len(joined) % count
            yield from np.split(joined[:whole], range(count, whole, count))
            held = [joined[whole:]]
    yield np.concatenate(held) if held else np.zeros(0, np.dtype([("group", ">i4"), ("raw", "V1")]))


def deal(
    session: ServerSession,
    dataset: Dataset,
    table: str,
    group_by: str,
    groups: Sequence[str],
    counted: Sequence[int],
) -> None:
    """Fill `table` (bucket, block): the records of each group to the bucket of its place in the list.

    Raises
    ------
    ValueError
        If a group has no longer as many rows as were counted: a public fact.
    """
    _check(dataset, group_by, groups)
    found = np.zeros(len(groups), np.int64)
    encoder, memory = records.encoder_of(session, dataset), memory_given(session)
    held = max(1, memory // 8 // encoder.record_bytes)
    buckets = Buckets(session, table, len(groups), max(1, held // len(groups)))
    pieces = records.read_by_group(session, dataset, encoder, group_by, groups, memory=memory)
    for piece in _evenly(pieces, min(held, _AT_ONCE)):
        buckets.deal(piece["group"], piece["raw"])
        found += np.bincount(piece["group"], minlength=len(groups))
    buckets.close()
    session.query(f"create index on {table} (bucket)")
    for group, now, before in zip(groups, found.tolist(), counted, strict=True):
        if now != before:
            raise ValueError(
                f"group {group!r} of {group_by!r} had {now} rows while it was read, and {before} when it was counted: "
                f"{dataset.source} changed during training"
            )
