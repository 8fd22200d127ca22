"""Distributes the rows of a dataset to the groups of a key, in one pass (privacy.md §11.10).

The number of rows of each group is public, or with a capacity its share of that. `count` and `distribute` run in the
server, where search_path is pinned to pg_catalog; `sizes` and `each_group` call them over a session.
"""

import secrets
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from dbdp.algorithms.combined.groups import MOST_GROUPS, GroupsRequest
from dbdp.packing import resident
from dbdp.packing.memory import pack_memory
from dbdp.packing.record_store import Buckets, RecordFile
from dbdp.packing.writers import table_name, temporary_blocks
from dbdp.registry import register
from dbdp.registry.datasets import Group, RegisteredDataset
from dbdp.registry.tables import records
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session

# So many groups are packed into one table, one after the other. Each truncation leaves a dead row in pg_class, which
# every look-up passes until the transaction ends; each table costs locks that the transaction holds until its end.
GROUPS_PER_TABLE = 64
COLUMNS = "bucket int8, block bytea"
_INSERT = "insert into {} values ($1, $2)"


def sizes(session: Session, dataset: RegisteredDataset, group_by: str, groups: Sequence[str]) -> tuple[int, ...]:
    """Return the number of rows of each group."""
    _check(dataset, group_by, groups)
    sql = "select dbdp_internal.group_sizes($1, $2, $3::pg_catalog.text[]) as sizes"
    return tuple(session.query(sql, dataset.name, group_by, list(groups))[0]["sizes"])


def _check(dataset: RegisteredDataset, group_by: str, groups: Sequence[str]) -> None:
    if dataset.unit:
        raise ValueError(
            f"dataset {dataset.name!r} protects all rows of one {dataset.unit.column!r} together, and these may be in "
            "several groups: one charge would not cover them (privacy.md §11.10); train on all rows"
        )
    if is_private(dataset, group_by):
        _check_private(dataset, group_by, groups)
    if not 1 <= len(groups) <= MOST_GROUPS:
        raise ValueError(f"groups has {len(groups)} values; list 1 to {MOST_GROUPS}")
    if not all(isinstance(group, str) for group in groups):
        raise ValueError("a group is null or not text; list values of the column: rows without one belong to no group")
    if len(set(groups)) != len(groups):
        raise ValueError(f"group {Counter(groups).most_common(1)[0][0]!r} is listed twice; list each once")


def is_private(dataset: RegisteredDataset, group_by: str) -> bool:
    """Return whether neighbours may differ in the value that a record has in a column."""
    return group_by not in dataset.declaration.public_columns


def _check_private(dataset: RegisteredDataset, group_by: str, groups: Sequence[str]) -> None:
    """Raise ValueError unless all groups of a private key have a public size and public names."""
    categories = {each.column: each.categories for each in dataset.declaration.categorical}.get(group_by)
    if categories is None:
        public = ", ".join(map(repr, dataset.declaration.public_columns)) or "it has none"
        raise ValueError(
            f"column {group_by!r} is not among the public columns of dataset {dataset.name!r} ({public}), nor "
            "among its features with categories; choose one that its owner declared at registration"
        )
    if dataset.capacity is None:
        raise ValueError(
            f"column {group_by!r} is private, and so is the number of rows of each of its groups: dataset "
            f"{dataset.name!r} needs a capacity, which register_dataset takes instead of the number of rows, or "
            f"{group_by!r} among its public_columns"
        )
    if unknown := [group for group in groups if group not in categories]:
        raise ValueError(
            f"group {unknown[0]!r} is not among the categories of {group_by!r}: {', '.join(map(repr, categories))}"
        )


def count(session: SpiSession, dataset: RegisteredDataset, group_by: str, groups: Sequence[str]) -> list[int]:
    """Return the public number of rows of each group; raises as `sizes` does.

    With a capacity the numbers of rows are private, and it is divided equally among the groups.
    """
    _check(dataset, group_by, groups)
    register.check_canonical(session, "group", group_by, dataset.column_types[group_by], groups)
    if dataset.capacity is not None:
        return [_share(dataset.capacity, len(groups))] * len(groups)
    return records.count_groups(session, dataset, group_by, groups)


def _share(capacity: int, groups: int) -> int:
    """Return the capacity of each group; raise ValueError if it has no slot."""
    if capacity < groups:
        raise ValueError(
            f"capacity = {capacity} is divided among {groups} groups, which leaves none for each; list fewer groups, "
            "or raise it with dbdp.raise_capacity"
        )
    return capacity // groups


def staged_bytes(session: Session, dataset: RegisteredDataset, sizes: Sequence[int]) -> int:
    """Return the bytes of the file into which the records of the groups are distributed."""
    return sum(sizes) * records.encoder_of(session, dataset).record_bytes if sizes else 0


def each_group(
    session: Session, dataset: RegisteredDataset, request: GroupsRequest, counted: Sequence[int]
) -> Generator[RegisteredDataset, None, None]:
    """Distribute the raw records of the groups to a file, in one pass; yield one group after the other.

    Close the generator if it is not read to its end, so that its tables are dropped.
    """
    name = f"dbdp_groups_{secrets.token_hex(8)}"
    with temporary_blocks(session, name, COLUMNS) as table:
        sql = "select dbdp_internal.deal_groups($1, $2, $3, $4::pg_catalog.text[], $5::pg_catalog.int8[])"
        session.query(sql, dataset.name, table, request.group_by, list(request.groups), list(counted))
        for first in range(0, len(counted), GROUPS_PER_TABLE):
            with temporary_blocks(session, f"dbdp_blocks_{secrets.token_hex(8)}") as blocks:
                for place, rows in enumerate(counted[first : first + GROUPS_PER_TABLE], start=first):
                    yield replace(dataset, rows=rows, group=Group(place, name, blocks))


def distribute(
    session: SpiSession,
    dataset: RegisteredDataset,
    table: str,
    group_by: str,
    groups: Sequence[str],
    counted: Sequence[int],
) -> None:
    """Hold the records of the groups in a file, and fill `table` (bucket, block) with references to them.

    A group's bucket is its place in the list, from 0.
    """
    _check(dataset, group_by, groups)
    encoder, memory = records.encoder_of(session, dataset), pack_memory(session)
    file = RecordFile.beside(session, table, encoder.record_bytes, sum(counted))
    row_counts = np.zeros(len(groups), np.int64)
    key, buckets = resident.hold(table_name(table), file), Buckets(file, counted)
    for piece in records.read_by_group(session, dataset, encoder, group_by, groups, counted, memory=memory):
        row_counts += np.bincount(piece["group"], minlength=len(groups))
        if np.any(row_counts > counted):
            break
        buckets.append(piece["group"], piece["raw"])
    for group, now, before in zip(groups, row_counts.tolist(), counted, strict=True):
        if now != before:
            raise ValueError(
                f"group {group!r} of {group_by!r} had {now} rows while it was read, and {before} when it was counted: "
                f"{dataset.source} changed meanwhile"
            )
    together = max(1, memory // 16 // encoder.record_bytes)
    for bucket, (begin, end) in enumerate(pairwise([0, *accumulate(counted)])):
        for first in range(begin, end, together):
            session.query(_INSERT.format(table), bucket, resident.reference(key, first, min(first + together, end)))
