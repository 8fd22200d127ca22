"""The session inside a backend: SPI through plpy, with the rights of dbdp_owner or of a table's owner."""

import codecs
import ctypes
import math
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from itertools import count
from types import ModuleType
from typing import Any

from dbdp.sessions.errors import PREFIX, PUBLIC_SQLSTATE, is_cancel
from dbdp.sessions.inside.backend import (
    LOCAL_USER,
    SUPERUSER,
    acting_as,
    as_role,
    backend,
    identity,
    is_role_taken,
    settings_undone,
    uncounted,
)
from dbdp.sessions.inside.callers import OpenCursors
from dbdp.sessions.inside.planner import PLANNED, SET_PLANNER
from dbdp.sessions.session import FLUSHED, LedgerCharge, Row, Session, postgres_type, wait_until

_MOST_PLANS = 128  # prepared at a time; a training needs about 30, and those on its own tables are useless afterwards

# A table is read with its owner's rights; a superuser's table with the reader's own.
_READER = """
select pg_catalog.format('%I', current_user) as reader,
       n.nspname::pg_catalog.text as schema,
       pg_catalog.has_schema_privilege(n.oid, 'usage') as may_enter,
       pg_catalog.has_table_privilege(c.oid, 'select') as may_read,
       case when not r.rolsuper then r.oid::pg_catalog.int8 end as owner
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
join pg_catalog.pg_roles as r on r.oid = c.relowner
where c.oid = $1::pg_catalog.regclass
"""

_OWNER = "select r.oid::pg_catalog.int8 as number from pg_catalog.pg_roles as r where r.rolname = 'dbdp_owner'"
# The tables of values that are stored out of line: those of a table or of its partitions, and of the statistics that
# a plan looks up. Each is named after its table; a look-up in pg_class could see an older one by an old snapshot.
_OUT_OF_LINE = """
select o.name::text as name
from (
    select to_regclass(format('pg_toast.pg_toast_%s', r.number)) as name
    from (
        select relid::oid as number from pg_partition_tree($1::regclass)
        union
        values ($1::regclass::oid), ('pg_statistic'::regclass), ('pg_statistic_ext_data'::regclass)
    ) as r
) as o
where o.name is not null
order by o.name
"""
_IN_FORCE = "select current_user::pg_catalog.text as code, session_user::pg_catalog.text as session"
_REPLICATED = """
select count(*) >= $2 as done
from pg_stat_get_wal_senders() -- what pg_stat_replication adds is frozen within a transaction
where sync_state in ('sync', 'quorum')
and flush_lsn >= $1::pg_lsn
"""
_NAP = 0.02  # seconds of one sleep; a cancel is noticed between two sleeps


def read_any_error() -> None:
    """Let statements of this module fail with an error whose text is not UTF-8: odd bytes of it are replaced.

    PL/Python decodes the fields of a failed statement's error. If it cannot, it raises an error of the server from
    among Python's own calls, which never return: the next ones find them still running, until the process crashes and
    takes all sessions with it. Some of PostgreSQL's messages cut a character in two, and a table's owner decides which
    errors its code raises.
    """
    codecs.register_error("strict", _replaced_here)


def _replaced_here(error: UnicodeError) -> tuple[str, int]:
    """Replace odd bytes if the call came from this module, which decodes nothing itself; else raise the error."""
    if isinstance(error, UnicodeDecodeError) and sys._getframe(1).f_globals is globals():
        return "\N{REPLACEMENT CHARACTER}", error.end
    raise error


def _number_of(state: str) -> int:
    """Return an SQLSTATE as PostgreSQL's errors have it."""
    return sum((ord(letter) - ord("0")) << (6 * place) for place, letter in enumerate(state))


class _Undo(Exception):
    """Raised to roll back a subtransaction."""


class SpiSession(Session):
    """A session inside a backend: SPI, in the caller's transaction; `registry.border` adds the registry."""

    engine = None  # rows are read where they are stored

    def __init__(self, plpy: ModuleType) -> None:
        self._plpy = plpy
        self._prepared = lru_cache(_MOST_PLANS)(plpy.prepare)  # a plan that leaves the cache is freed
        self._suspended: dict[str, Iterator[bytes]] = {}
        self._receivers: dict[str, Callable[[bytes | None], bool]] = {}
        self._warnings: list[str] = []
        self.cursors = OpenCursors(self)

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement and return its rows; an error is plpy's."""
        return [dict(row) for row in self._plpy.execute(self._plan(sql, parameters), list(parameters))]

    def stream(self, sql: str, *parameters: Any) -> Iterator[Row]:
        """Run one query with one snapshot and yield its rows one at a time."""
        cursor = self._plpy.cursor(self._plan(sql, parameters), list(parameters))
        return (row for row in cursor)  # fetched from this module, as `read_any_error` needs

    def batches_of(self, source: str, size: int, sql: str, *parameters: Any) -> Iterator[list[Row]]:
        """Run one query that reads a table, with one snapshot and the plan of `PLANNED`; yield `size` rows at a time.

        The query's lock on the table ensures that its owner stays the same until the query ends.
        """
        with self.reading(source) as owner:
            cursor = self._plpy.cursor(self._plan(sql, parameters), list(parameters))
        while True:
            with self._as_table_owner(source, owner):
                rows = list(cursor.fetch(size))
            if not rows:
                return
            yield rows

    def scan(
        self, source: str, least: int, value: str, rows: str, receive: Callable[[bytes | None], bool], *parameters: Any
    ) -> Iterator[None]:
        """Call a function with a value of each row of one query that reads a table, as `batches_of` does.

        The server is asked again after each value for which the function returns true, and then this yields. How often
        it is asked shows in the number of the transaction's next subtransaction, so it must be public: it does not
        depend on what is read as long as there are fewer such values than `least`, the least number of times.
        """
        name = secrets.token_hex(8)
        self._receivers[name], given = receive, (*parameters, name)
        sql = f"select {rows} and dbdp_internal.receive(${len(given)}, {value})"
        try:
            with self.reading(source) as owner:
                cursor = self._plpy.cursor(self._plan(sql, given), list(given))
            for asked in count(1):
                with self._as_table_owner(source, owner):
                    is_over = len(cursor.fetch(1)) == 0
                yield
                if is_over and asked >= least:
                    return
        finally:
            del self._receivers[name]

    def receiver(self, name: str) -> Callable[[bytes | None], bool]:
        """Return the function that a query of `scan` calls by a name."""
        if name not in self._receivers:
            raise ValueError(f"there is no read named {name!r}; only dbdp itself calls dbdp_internal.receive")
        return self._receivers[name]

    def in_one_snapshot(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield an iterator's items; its queries, which only read, all see one snapshot, taken at the first item.

        Proof. dbdp_internal.resume, a stable function, runs the iterator; queries of a stable function see the
        snapshot of the one query that calls it.
        """
        name = secrets.token_hex(8)
        self._suspended[name] = pieces
        try:
            for row in self.stream("select dbdp_internal.resume($1) as piece", name):
                yield row["piece"]
        finally:
            self._suspended.pop(name, None)

    def resume(self, name: str) -> Iterator[bytes]:
        """Return the iterator that `in_one_snapshot` stored under a name."""
        if name not in self._suspended:
            raise ValueError(f"there is no suspended read named {name!r}; only dbdp itself calls dbdp_internal.resume")
        return self._suspended[name]

    def uncounted(self) -> AbstractContextManager[None]:
        """Switch off statistics of what the block reads, or writes to temporary tables."""
        return uncounted()

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Roll back what the block did, and release its locks; the values of sequences stay."""
        try:
            with self._plpy.subtransaction():
                yield
                raise _Undo
        except _Undo:
            pass

    @contextmanager
    def reading(self, source: str) -> Iterator[int | None]:
        """Read a table within the block by the plan of `PLANNED`, as its owner, which is yielded, if this role may.

        A table's owner writes code that runs as soon as another role plans to read it: functions in its indexes, CHECK
        constraints and statistics, or a view put in its place. So that this code gains no rights, it runs as its owner,
        as restricted as in the server's own maintenance of tables, and its settings are reset.
        """
        owner = self._owner_of(source)
        self.cursors.check(source, owner)
        self._lock(source, owner)
        with self._as_table_owner(source, owner):
            self._pin_plan()
            yield owner

    @contextmanager
    def _as_table_owner(self, source: str, owner: int | None) -> Iterator[None]:
        """Run the block as a table's owner; an error has no word of its code, which could pretend to be dbdp's."""
        try:
            with acting_as(owner):
                yield
        except self._plpy.SPIError as error:
            if owner is None or owner == backend().GetSessionUserId():
                raise
            state = self.failure(error)[0]
            shown = f"reading {source} failed (SQLSTATE {state}), in the server or in code of its owner"
            error.args = (f"{shown}; ask the owner",)
            error.spidata = (_number_of("P0001" if state == PUBLIC_SQLSTATE else state), *[None] * 3, 0, *[None] * 5)
            raise

    def _lock(self, source: str, owner: int | None) -> None:
        """Take every lock that reading a table may take, until the transaction ends.

        While the server fetches a value that is stored out of line, it locks the table of such values and its index,
        and every role sees that in pg_locks. So both are locked before, whatever the rows contain. To plan a statement
        takes the locks (but not a plan that is kept). Only a superuser may read such a table. It has no code of others,
        and what the owner's code has set is reset before, search_path above all: no other code runs as a superuser.
        """
        with self._as_table_owner(source, owner):
            self._plpy.execute(f"select from {source} limit 0")
        with acting_as(SUPERUSER):
            for row in self.query(_OUT_OF_LINE, source):
                self._plpy.execute(f"select from {row['name']} limit 0")

    def _pin_plan(self) -> None:
        """Set all that a plan depends on, until the block of `acting_as` ends."""
        self.query(SET_PLANNER, list(PLANNED), list(PLANNED.values()))

    @contextmanager
    def in_own_memory(self) -> Iterator[None]:
        """Run the statements of the block with the default `work_mem`, whatever the session has set.

        So a list of datasets or of locks needs no temporary file, which `temp_file_limit` might refuse.
        """
        with settings_undone():
            self.query("select pg_catalog.set_config('work_mem', $1, true)", PLANNED["work_mem"])
            yield

    @contextmanager
    def waiting_at_most(self, milliseconds: int) -> Iterator[None]:
        """Raise the server's error where a statement of the block waits for a lock for longer."""
        with settings_undone():
            self.query("select pg_catalog.set_config('lock_timeout', $1, true)", str(milliseconds))
            yield

    def is_restricted(self) -> bool:
        """Return whether the caller is code of a table's owner, run while the server reads or maintains the table."""
        return identity()[1].value & ~LOCAL_USER != 0

    def check_caller(self) -> None:
        """Raise PermissionError for code that runs with the rights of another role than the session's.

        Allowed are the role that logged in; the role of SET ROLE, outside SECURITY DEFINER functions, whose owner may
        be a group; and dbdp_owner, as which only an interface runs that has checked its own caller.
        """
        allowed = backend().GetSessionUserId(), self._dbdp_owner()
        if identity()[0].value not in allowed and not is_role_taken():
            row = self.query(_IN_FORCE)[0]
            raise PermissionError(
                f"dbdp was called by code that runs with the rights of {row['code']!r}, in a session of "
                f"{row['session']!r}; call it directly, as the role that logged in, and grant that role what it needs"
            )

    def acts_as_owner(self) -> bool:
        """Return whether the caller is an interface that acts as dbdp_owner."""
        return identity()[0].value == self._dbdp_owner()

    def as_owner(self) -> AbstractContextManager[None]:
        """Run the block as dbdp_owner, as its SECURITY DEFINER function would; the caller must have been checked."""
        return as_role(ctypes.c_uint(self._dbdp_owner()), LOCAL_USER)

    def _dbdp_owner(self) -> int:
        return self.query(_OWNER)[0]["number"]

    def _owner_of(self, source: str) -> int | None:
        row = self.query(_READER, source)[0]
        for may, right in ((row["may_enter"], "usage on schema {schema}"), (row["may_read"], "select on {source}")):
            if not may:
                wanted = right.format(schema=row["schema"], source=source)
                raise PermissionError(f"{row['reader']} may not read {source}; grant {wanted} to {row['reader']}")
        return row["owner"]

    def recover(self) -> None:
        """Do nothing: SPI ends the failed statement's subtransaction itself."""

    def failure(self, error: BaseException) -> tuple[str, str]:
        """Return the SQLSTATE and the text of a failed statement."""
        code = getattr(error, "spidata", None)
        text = str(error).removeprefix(PREFIX)
        if not code:
            return "", text
        letters = [chr(((code[0] >> shift) & 0x3F) + ord("0")) for shift in range(0, 30, 6)]
        return "".join(letters), text

    def workers(self, count: int) -> AbstractContextManager[list[Session]]:
        """Return this session alone: a backend is one worker."""
        return nullcontext([self])

    def one_snapshot(self, workers: list[Session]) -> AbstractContextManager[None]:
        """Do nothing: a single statement has one snapshot."""
        return nullcontext()

    def atomic(self) -> AbstractContextManager[Any]:
        """Do nothing: a single statement is atomic."""
        return nullcontext()

    def in_one_session(self) -> AbstractContextManager[None]:
        """Do nothing: a backend is a session."""
        return nullcontext()

    def cancel(self) -> None:
        """Do nothing: a backend has no other thread."""

    def messages_to(self, receive: Callable[[str], None]) -> AbstractContextManager[None]:
        """Do nothing: a backend sends messages and receives none."""
        return nullcontext()

    def check_exact_results(self) -> None:
        """Raise ValueError: no result without noise may be computed in the server."""
        raise ValueError("the baseline is not private and runs in a client that may read the table; call it from there")

    @contextmanager
    def leaving_at_multiples(self, seconds: int | None) -> Iterator[None]:
        """Leave the block, also after an error, a multiple of `seconds` after it was entered; None: at once.

        A cancel ends the block and the wait at once: the role that sends it chooses its time. Unlike PostgreSQL's
        pg_sleep, the wait does not show in pg_stat_activity.
        """
        entered = time.monotonic()
        try:
            yield
        except Exception as error:
            if not is_cancel(self.failure(error)[0]):
                self._await_multiple(entered, seconds)
            raise
        self._await_multiple(entered, seconds)

    def _await_multiple(self, entered: float, seconds: int | None) -> None:
        """Wait for the next multiple; a cancel raises the server's error."""
        if seconds is None:
            return
        end = entered + seconds * math.ceil((time.monotonic() - entered) / seconds)
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _NAP))
            self.pause()

    def pause(self) -> None:
        """Run an empty query, so that a cancel takes effect: PostgreSQL does not interrupt arithmetic."""
        self.query("select")

    def await_durable(self, charge: LedgerCharge) -> None:
        """Wait for the disk and the standbys: a release may be read in a transaction that never commits."""
        wait_until(self, FLUSHED, charge.position)
        if standbys := self.synchronous_standbys():
            wait_until(self, _REPLICATED, charge.position, standbys)

    def synchronous_standbys(self) -> int:
        """Return how many standbys synchronous_standby_names requires, 0 if it is empty (as dbdp_owner)."""
        row = self.query(
            "select current_setting('synchronous_standby_names') as names, "
            "pg_has_role(current_user, 'pg_read_all_stats', 'usage') as may"
        )[0]
        if not row["names"].strip():
            return 0
        if not row["may"]:
            raise ValueError(
                "synchronous_standby_names is set, but dbdp_owner may not see how far the standbys have replicated, so "
                "that a failover could undo a charge; grant pg_read_all_stats to dbdp_owner"
            )
        counted = re.match(r"\s*(?:(?:first|any)\s+)?(\d+)\s*\(", row["names"], re.IGNORECASE)
        return int(counted[1]) if counted else 1

    @contextmanager
    def warning(self) -> Iterator[list[str]]:
        """Collect the warnings of the block; those of a call around it are kept apart."""
        outer, self._warnings = self._warnings, []
        try:
            yield self._warnings
        finally:
            self._warnings = outer

    def warn(self, text: str) -> None:
        """Show the caller a sentence, of public facts only, once the call has ended."""
        self._warnings.append(f"{PREFIX}{text}")

    def report(self, text: str) -> None:
        """Send the client a message, whatever its settings; the text must not depend on any row's value."""
        self._plpy.info(text)

    def _plan(self, sql: str, parameters: tuple[Any, ...]) -> Any:
        return self._prepared(sql, tuple(map(postgres_type, parameters)))
