"""The server's own C functions, from within its process: roles, settings, counters.

Each context manager restores at its end what it changed.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

SUPERUSER = 10  # BOOTSTRAP_SUPERUSERID of pg_authid.h: the role that initdb made
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


def active_portal() -> str:
    """Return the name of the cursor that runs now; empty if it has none, as a client's statement."""
    active = ctypes.c_void_p.in_dll(backend(), "ActivePortal").value
    name = ctypes.c_char_p.from_address(active).value if active else None  # the first field of PortalData, of portal.h
    return (name or b"").decode()


_METERS = ("pgBufferUsage", "pgWalUsage")  # counts of this process, from which EXPLAIN takes differences


class _Symbol(ctypes.Structure):
    """A symbol of an ELF file of 64 bits, as elf.h declares it."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_ubyte),
        ("other", ctypes.c_ubyte),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


class _Found(ctypes.Structure):
    """What dladdr1 finds at an address, as dlfcn.h declares it."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_WITH_SYMBOL = 1  # RTLD_DL_SYMENT of dlfcn.h


@cache
def _meters() -> tuple[ctypes.Array[ctypes.c_char], ...]:
    """Return the memory of each of `_METERS`, of the size that the server's own symbol table states.

    So nothing here depends on a layout, which differs between versions.
    """
    return tuple((ctypes.c_char * _size(name)).in_dll(backend(), name) for name in _METERS)


def _size(name: str) -> int:
    """Return how many bytes a variable of the server has."""
    try:
        address = ctypes.addressof(ctypes.c_char.in_dll(backend(), name))
        found, symbol = _Found(), ctypes.POINTER(_Symbol)()
        backend().dladdr1(
            ctypes.c_void_p(address), ctypes.byref(found), ctypes.byref(symbol), ctypes.c_int(_WITH_SYMBOL)
        )
        is_it = found.address == address and found.name == name.encode()
        size = symbol.contents.size if is_it else 0
    except (AttributeError, ValueError):
        size = 0
    if not size:
        raise ValueError(
            f"the size of the server's counters {name} is unknown, so that EXPLAIN would show pages of rows; run "
            "PostgreSQL on 64-bit Linux with glibc"
        )
    return size


def flush_wal(position: str) -> None:
    """Write the WAL up to a position, a pg_lsn of this server, to disk, as a commit does.

    Otherwise only the WAL writer would: a call that has not committed waits up to `wal_writer_delay` for it.
    """
    high, low = (int(part, 16) for part in position.split("/"))
    backend().XLogFlush(ctypes.c_uint64(high << 32 | low))


def check_meters() -> None:
    """Raise ValueError unless `unmetered` can hide what is read."""
    _meters()


def check_has_postmaster() -> None:
    """Raise ValueError in single-user mode, where no process writes the WAL for which a release waits."""
    if not ctypes.c_bool.in_dll(backend(), "IsUnderPostmaster").value:
        raise ValueError(
            "this server is in single-user mode, where a charge does not become durable; start it as usual"
        )


_NO_TYPE = 0  # B_INVALID of miscadmin.h, which no view of statistics shows


@contextmanager
def unmetered() -> Iterator[None]:
    """Hide what the block reads and writes from `EXPLAIN (ANALYZE, BUFFERS, WAL)` of the calling statement.

    The number of pages of a table and of its out-of-line values depends on how wide its rows are stored, and so on
    their values. What training writes has public sizes anyway (`packing`); this is a second line of defence.
    """
    places = _meters()
    before = [place.raw for place in places]
    try:
        with _of_no_type():
            yield
    finally:
        for place, counts in zip(places, before, strict=True):
            place.raw = counts


@contextmanager
def _of_no_type() -> Iterator[None]:
    """Hide the block's pages from `pg_stat_io` (since PostgreSQL 16) and `pg_stat_get_backend_io` (since 18).

    Proof. The server adds what it counted to the sums of a type of process, the one in force when they are reported.
    What was counted before the block is reported before it, and the rest while the process has no type: those sums are
    in no view. Of a process without a type 18 counts nothing for the process itself. Else the type decides only
    whether LISTEN is refused, as it is here, the word for the process in the server's log, and whether a session that
    ends within the block counts as ended (read in PostgreSQL 17.11 and 18.6; with assertions see `sessions.support`).
    """
    if not hasattr(backend(), "pgstat_flush_io"):
        yield
        return
    kind = ctypes.c_int.in_dll(backend(), "MyBackendType")
    _report_pages()
    before, kind.value = kind.value, _NO_TYPE
    try:
        yield
    finally:
        _report_pages()
        kind.value = before


def _report_pages() -> None:
    """Add the pages that were counted to the sums of the type of process; waits for a lock that is held briefly."""
    backend().pgstat_flush_io(ctypes.c_bool(False))


@contextmanager
def uncounted() -> Iterator[None]:
    """Switch off the statistics of what the block reads: tuples, pages, values stored out of line, calls of functions.

    Every role may see the statistics of any table, and of any function. This is `track_counts` and `track_functions`
    for reads only: tables that are created and dropped still count for the server's own maintenance.
    """
    counting = ctypes.c_bool.in_dll(backend(), "pgstat_track_counts")
    calls = ctypes.c_int.in_dll(backend(), "pgstat_track_functions")
    before = counting.value, calls.value
    counting.value, calls.value = False, 0
    try:
        yield
    finally:
        counting.value, calls.value = before


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
