"""The server's own C functions, from within its process: roles, settings, counters.

Each context manager restores at its end what it changed.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

LOCAL_USER, _RESTRICTED = 1, 2  # of miscadmin.h: no SET ROLE, nothing that outlives the operation


@cache
def backend() -> ctypes.PyDLL:
    """Return the server's C functions: this interpreter runs in its process."""
    functions = ctypes.PyDLL(None)
    functions.GetSessionUserId.restype = functions.GetOuterUserId.restype = ctypes.c_uint
    return functions


def identity() -> tuple[ctypes.c_uint, ctypes.c_int]:
    """Return the current role's oid, and the restrictions (security context) under which it runs."""
    user, context = ctypes.c_uint(), ctypes.c_int()
    backend().GetUserIdAndSecContext(ctypes.byref(user), ctypes.byref(context))
    return user, context


def is_role_taken() -> bool:
    """Return whether the session itself has the role in force, by login or SET ROLE: no code of another role runs.

    Such code runs in a SECURITY DEFINER function, or where the server reads or maintains a table; both set the security
    context, of which no setting tells.
    """
    user, context = identity()
    return user.value == backend().GetOuterUserId() and not context.value


# Bytes of BufferUsage, by the server's major version (executor/instrument.h): ten counts of blocks, then the times
# spent on them, 16 bytes each in version 15, 8 bytes since 16. Versions 15 and 16 have two times for blocks and two for
# temporary files; version 17 has two for shared blocks, two for local blocks and two for temporary files. WalUsage has
# three counts in all versions.
_BUFFER_BYTES = {15: 80 + 4 * 16, 16: 80 + 4 * 8, 17: 80 + 6 * 8}
_WAL_BYTES = 24


@contextmanager
def unmetered(version: int) -> Iterator[None]:
    """Hide what the block reads and writes from `EXPLAIN (ANALYZE, BUFFERS, WAL)` of the calling statement.

    The number of pages of a table and of its out-of-line values depends on how wide its rows are stored, and so on
    their values. What training writes has public sizes anyway (`packing`); this is a second line of defence.

    Parameters
    ----------
    version : int
        The server's major version; nothing is hidden for a version that is not in `_BUFFER_BYTES`.
    """
    if version not in _BUFFER_BYTES:
        yield
        return
    sizes = {"pgBufferUsage": _BUFFER_BYTES[version], "pgWalUsage": _WAL_BYTES}
    places = [(ctypes.c_char * size).in_dll(backend(), name) for name, size in sizes.items()]
    before = [place.raw for place in places]
    try:
        yield
    finally:
        for place, counts in zip(places, before, strict=True):
            place.raw = counts


@contextmanager
def uncounted() -> Iterator[None]:
    """Switch off the statistics of what the block reads: tuples, pages, values stored out of line.

    Every role may see the statistics of any table. This is `track_counts` for reads only: tables that are created and
    dropped still count for the server's own maintenance.
    """
    counting = ctypes.c_bool.in_dll(backend(), "pgstat_track_counts")
    before = counting.value
    counting.value = False
    try:
        yield
    finally:
        counting.value = before


_TO_NOBODY = 0  # of dest.h, DestNone


@contextmanager
def silent() -> Iterator[None]:
    """Send the client no message of the block, whatever its level; the server's log is as it was.

    No setting stops `raise info`. An error within a statement of the block becomes a Python exception, which is shown
    after the block. One that ends the session closes the connection without its words.
    """
    to = ctypes.c_int.in_dll(backend(), "whereToSendOutput")
    before = to.value
    to.value = _TO_NOBODY
    try:
        yield
    finally:
        to.value = before


@contextmanager
def as_role(user: ctypes.c_uint, added: int) -> Iterator[None]:
    """Run the block as a role, with added restrictions; the server resets both itself if the transaction aborts."""
    former, context = identity()
    backend().SetUserIdAndSecContext(user, ctypes.c_int(context.value | added))
    try:
        yield
    finally:
        backend().SetUserIdAndSecContext(former, context)


@contextmanager
def settings_undone() -> Iterator[None]:
    """Reset at the end of the block the settings that were changed within it."""
    level = backend().NewGUCNestLevel()
    try:
        yield
    finally:
        backend().AtEOXact_GUC(ctypes.c_bool(False), level)


@contextmanager
def acting_as(owner: int | None) -> Iterator[None]:
    """Run the block as a role (None: the current one), restricted, silent, uncounted; reset its settings after."""
    user = identity()[0] if owner is None else ctypes.c_uint(owner)
    with silent(), as_role(user, LOCAL_USER | _RESTRICTED), uncounted(), settings_undone():
        yield
