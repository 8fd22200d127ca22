"""The room for files of packed rows: what a packing takes, by its public sizes, and what session and disk allow.

These files have no name, so PostgreSQL's own accounting does not count them: `temp_file_limit` is applied here. A
request is checked before its charge, and each file once more when it is made, for a direct call of a packing.
"""

import os
import re

from dbdp.learning.rows import blocks
from dbdp.packing.memory import MOST_MEMORY, pack_memory
from dbdp.sessions.session import Row, Session

SPARE, LARGEST_SPARE = 1 / 16, 1 << 30  # of a disk, in bytes: before the charge so much must stay free
STEP = 16 << 20  # bytes: free space is compared, and shown, in multiples of it
_WORD_BYTES = 8  # before each row of a keyed order, while it is in a bucket
_IDENTIFIER = re.compile(r'"((?:[^"]|"")*)"|([^\s,"]+)')

_LIMIT = """
select pg_catalog.current_setting('temp_file_limit') as setting,
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('temp_file_limit')) as bytes
"""
_TABLESPACES = """
select t.oid::pg_catalog.int8 as oid,
       t.spcname::pg_catalog.text as name,
       t.oid = d.dattablespace as is_default,
       pg_catalog.current_setting('temp_tablespaces') as listed
from pg_catalog.pg_tablespace as t
join pg_catalog.pg_database as d on d.datname = pg_catalog.current_database()
where t.oid = d.dattablespace
or pg_catalog.has_tablespace_privilege(t.oid, 'create')
"""
_DEFAULT_TABLESPACE = 1663


def file_bytes(rows: int, dimension: int, memory: int) -> int:
    """Return the most bytes of files that packing rows takes: none if they fit in half of the memory.

    Otherwise every row is written twice: to a bucket and to a block, or to a copy and to a mini-batch.
    """
    row_bytes = blocks.row_bytes(dimension)
    return 0 if rows * row_bytes <= memory // 2 else rows * (2 * row_bytes + _WORD_BYTES)


def check(session: Session, rows: int, dimension: int, staged: int, sessions: int, used: tuple[int, int]) -> None:
    """Raise ValueError unless a packing has the room that it may take; called in the server, before the charge."""
    memory = pack_memory(session)
    needed = staged + file_bytes(rows, dimension, max(0, memory - 2 * used[0]))
    if not needed:
        return
    enough = -(-2 * (rows * blocks.row_bytes(dimension) + used[0]) >> 20) << 20
    remedy = "" if staged or enough > MOST_MEMORY else f", set dbdp.pack_memory = '{enough >> 20}MB'"
    check_limit(session, needed, used[1], remedy)
    for folder in _folders(session):
        check_disk(folder, needed * sessions, 1.0, remedy)


def check_limit(session: Session, size: int, used: int, remedy: str = ", raise dbdp.pack_memory") -> None:
    """Raise ValueError if a session may not have files of so many bytes, in addition to those that it uses."""
    limit = session.query(_LIMIT)[0]
    if 0 <= limit["bytes"] < size + used:
        others = f" in addition to {_megabytes(used)} MB that this session uses" if used else ""
        raise ValueError(
            f"the packed rows take files of up to {_megabytes(size)} MB{others}, above temp_file_limit = "
            f"{limit['setting']} of this session: let an administrator raise it{remedy}, or train on a dataset of a "
            "smaller capacity"
        )


def check_disk(folder: str, size: int, spare: float, remedy: str = ", raise dbdp.pack_memory") -> None:
    """Raise ValueError if the disk of a folder has no room for files of so many bytes and this share of what it spares.

    Free space is rounded down to a multiple of `STEP`. It follows from no row that is being packed.
    """
    try:
        disk = os.statvfs(folder)
    except OSError:
        return  # the file cannot be made there either, which says why
    spared = spare * min(LARGEST_SPARE, SPARE * disk.f_blocks * disk.f_frsize)
    free = max(0, int(disk.f_bavail * disk.f_frsize - spared)) // STEP * STEP
    if size > free:
        raise ValueError(
            f"the packed rows take files of up to {_megabytes(size)} MB, and the disk of temporary tables has room for "
            f"{free >> 20} MB: make room there, choose another disk by temp_tablespaces{remedy}, or train on a dataset "
            "of a smaller capacity"
        )


def _folders(session: Session) -> list[str]:
    """Return the folders in which PostgreSQL may create a temporary table of this session."""
    spaces = session.query(_TABLESPACES)
    listed = _identifiers(spaces[0]["listed"])
    chosen = [space for space in spaces if space["name"] in listed or (space["is_default"] and "" in listed)]
    return [_folder(space) for space in chosen or spaces if chosen or space["is_default"]]


def _identifiers(text: str) -> list[str]:
    """Return the names in a list of identifiers, as PostgreSQL reads them."""
    return [quoted.replace('""', '"') if not plain else plain.lower() for quoted, plain in _IDENTIFIER.findall(text)]


def _folder(space: Row) -> str:
    return "base" if space["oid"] == _DEFAULT_TABLESPACE else f"pg_tblspc/{space['oid']}"


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):.3g}" if size < 100 << 20 else str(-(-size >> 20))
