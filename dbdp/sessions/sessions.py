"""Where SQL runs: in the server through plpy, or in a client through psycopg.

Both speak the same dialect: parameters are $1, $2, …, rows are dictionaries. Nothing else in the
project knows plpy or psycopg.
"""

import ctypes
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import ModuleType
from typing import Any, Protocol

from dbdp.sessions.errors import DATA_EXCEPTION, PREFIX, PUBLIC_SQLSTATE, is_cancel

Row = dict[str, Any]
Json = dict[str, Any]  # an object, as `json` has it

_MOST_PLANS = 128  # prepared at a time; a training takes some thirty, and those of its own tables are of no use later

_POSTGRES_TYPES = {
    bool: "bool",
    int: "int8",
    float: "float8",
    str: "text",
    bytes: "bytea",
    type(None): "text",
}


# In this order: a new session_authorization resets the role.
_SETTINGS = """
select name, setting
from (
    values
        (1, 'session_authorization', session_user::pg_catalog.text),
        (2, 'role', pg_catalog.current_setting('role')),
        (3, 'dbdp.pack_memory', pg_catalog.current_setting('dbdp.pack_memory', true))
) as settings (place, name, setting)
where setting is not null
order by place
"""


# Whose rights a table is read with: its owner's, or of a table of a superuser still the reader's own.
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

# A table is read by one plan, whatever the session has set: from place to place, without sorting, hashing or keeping
# rows aside, which would take temporary files. The costs are the server's own: beyond some all plans cost alike.
PLANNED = {
    "constraint_exclusion": "off",
    "cpu_index_tuple_cost": "0.005",
    "cpu_operator_cost": "0.0025",
    "cpu_tuple_cost": "0.01",
    "cursor_tuple_fraction": "1",
    "effective_cache_size": "4GB",
    "enable_async_append": "off",
    "enable_bitmapscan": "off",
    "enable_distinct_reordering": "off",
    "enable_gathermerge": "off",
    "enable_group_by_reordering": "off",
    "enable_hashagg": "off",
    "enable_hashjoin": "off",
    "enable_incremental_sort": "off",
    "enable_indexonlyscan": "off",
    "enable_indexscan": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "enable_mergejoin": "off",
    "enable_nestloop": "on",
    "enable_parallel_append": "off",
    "enable_parallel_hash": "off",
    "enable_partition_pruning": "off",
    "enable_partitionwise_aggregate": "off",
    "enable_partitionwise_join": "off",
    "enable_presorted_aggregate": "off",
    "enable_self_join_elimination": "off",
    "enable_seqscan": "off",
    "enable_sort": "off",
    "enable_tidscan": "on",
    "from_collapse_limit": "8",
    "geqo": "off",
    "geqo_effort": "5",
    "geqo_generations": "0",
    "geqo_pool_size": "0",
    "geqo_seed": "0",
    "geqo_selection_bias": "2",
    "geqo_threshold": "12",
    "hash_mem_multiplier": "2",
    "jit": "off",
    "jit_above_cost": "-1",
    "jit_inline_above_cost": "-1",
    "jit_optimize_above_cost": "-1",
    "join_collapse_limit": "8",
    "max_parallel_workers_per_gather": "0",
    "min_parallel_index_scan_size": "512kB",
    "min_parallel_table_scan_size": "8MB",
    "parallel_leader_participation": "on",
    "parallel_setup_cost": "1000",
    "parallel_tuple_cost": "0.1",
    "plan_cache_mode": "force_custom_plan",
    "random_page_cost": "4",
    "recursive_worktable_factor": "10",
    "seq_page_cost": "1",
    "work_mem": "4MB",
}
_PLAN = """
select pg_catalog.count(pg_catalog.set_config(p.name, p.value, true))
from (select pg_catalog.unnest($1) as name, pg_catalog.unnest($2) as value) as p
where pg_catalog.current_setting(p.name, true) is not null
"""

# A table that a caller names: along the caller's own path, and then by its number.
_OID_OF_TABLE = "select pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid as oid"
_NAME_OF_TABLE = """
select pg_catalog.format('%I.%I', n.nspname, c.relname) as name
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.oid = $1::pg_catalog.oid
"""
_LOCAL_USER, _RESTRICTED = 1, 2  # of miscadmin.h: no SET ROLE, nothing that outlives the operation
_OWNER = "select r.oid::pg_catalog.int8 as number from pg_catalog.pg_roles as r where r.rolname = 'dbdp_owner'"
_IN_FORCE = "select current_user::pg_catalog.text as code, session_user::pg_catalog.text as session"


# How far the WAL is on disk, and on how many synchronous standbys.
_FLUSHED = (
    "select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), $1::pg_catalog.pg_lsn) >= 0 as done"
)
_REPLICATED = """
select count(*) >= $2 as done
from pg_stat_get_wal_senders() -- what pg_stat_replication adds is frozen within a transaction
where sync_state in ('sync', 'quorum')
and flush_lsn >= $1::pg_lsn
"""
_POLL_SECONDS = 0.005
_NAP = 0.02  # seconds; a cancel is noticed between two of them

# What a client has of the registry: the server's interfaces, which check who calls.
_CHARGE = """
select c.ledger_id as ledger, c.wal_position::pg_catalog.text as position
from dbdp.charge($1, $2::pg_catalog.json) as c
"""
_STORE_RELEASE = """
select dbdp.store_release($1, $2::pg_catalog.float8[], $3::pg_catalog.float8[], $4::pg_catalog.json)::pg_catalog.text
    as stored
"""
_STORE_NETWORK = """
select dbdp.store_network($1, $2::pg_catalog.json, $3::pg_catalog.float8[], $4::pg_catalog.json)::pg_catalog.text
    as stored
"""


@dataclass(frozen=True)
class Charge:
    """A charge that was made.

    Attributes
    ----------
    ledger : the number of its row in dbdp.ledger
    position : of the WAL, to be on disk before anything that was paid for is shown
    """

    ledger: int
    position: str


class Registered(Protocol):
    """A registered dataset, as far as every session knows it."""

    @property
    def name(self) -> str:
        """Its name in dbdp.datasets."""


class Session(Protocol):
    """What the controller needs of the place where SQL runs.

    An implementation runs PostgreSQL's SQL on a database with dbdp: parameters are $1, $2, …, rows are dictionaries,
    and the types of parameters are those of `query`. Three groups of methods:

    - statements: `query`, `recover`, `failure`, `prefer`, `at_once`, `hearing`, `uncounted`, `cancel`;
    - sessions side by side: `workers`, `one_snapshot`; one that opens no other returns itself alone;
    - the border, where the place decides who checks, who writes and who waits: `check_rows`, `check_exact_results`,
      `charge`, `leaving_at_multiples`, `await_durable`, `note`, `store_release`, `store_network`. Outside the server
      these call its SQL functions of like names, which check the caller; see `ClientSession`.

    `tests/server/test_session_contract.py` holds for every implementation.
    """

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement; return its rows, by the names of their columns.

        A parameter is a bool, int, float, str, bytes or None, or a list of one of these; SQL casts it where its type
        matters.

        Raises
        ------
        Exception
            The driver's own, which `failure` reads. It is a ValueError outside the server where dbdp refuses.
        """

    def recover(self) -> None:
        """Make the session usable after a failed statement; do nothing where it is usable."""

    def prefer(self, parameter: str, value: str) -> None:
        """Set a parameter where the server still allows it in this session; else do nothing."""

    def failure(self, error: BaseException) -> tuple[str, str]:
        """Return SQLSTATE and text of a failed statement; an empty SQLSTATE for an error that is not the server's."""

    def workers(self, count: int) -> AbstractContextManager[list["Session"]]:
        """Open so many further sessions of the same role, to work side by side; or return this one alone."""

    def one_snapshot(self, workers: list["Session"]) -> AbstractContextManager[None]:
        """Have all workers see the same rows within the block."""

    def at_once(self) -> AbstractContextManager[Any]:
        """Have the statements within the block take effect together, or none where an error leaves the block."""

    def uncounted(self) -> AbstractContextManager[None]:
        """Have the server's interfaces keep no statistics of pages that are read within the block."""

    def cancel(self) -> None:
        """Cancel the statement that runs, from another thread; do nothing where there is no other thread."""

    def check_rows(self, dataset: Registered) -> None:
        """Raise ValueError unless the table still has the registered, public number of rows, or of units."""

    def check_exact_results(self) -> None:
        """Raise ValueError unless results without noise may be computed here, by the caller's right to read rows."""

    def charge(self, dataset: Registered, plan: Json) -> Charge:
        """Charge a planned release, before a row is read; a ROLLBACK does not undo it.

        Parameters
        ----------
        plan : what was planned, as JSON has it: its `algorithm`, its `guarantee` (`Release.as_data`), and public facts

        Raises
        ------
        ValueError
            Before anything is spent: the budget does not cover it, or the plan has no algorithm or guarantee. Of a
            client it is a `psycopg.DatabaseError` as well.
        """

    def leaving_at_multiples(self, seconds: int | None) -> AbstractContextManager[None]:
        """Leave the block a multiple of `seconds` after it was entered, where an answer is the server's; None: at once.

        Also after an error; a cancel ends block and wait at once.
        """

    def await_durable(self, charge: Charge) -> None:
        """Wait until neither a crash nor a failover to a synchronous standby can undo the charge."""

    def note(self, ledger: int, outcome: str, detail: str | None = None) -> None:
        """Record what became of a charge that no model came of: `shown`, or `failed` with a public reason.

        A failure is recorded only where the ledger's row outlives it.
        """

    def store_release(
        self, dataset: Registered, coefficients: list[Any], intercepts: list[float], receipt: Json
    ) -> Json:
        """Store linear models with their receipt, which names the charge as `ledger`; return `id` and `receipt`.

        Parameters
        ----------
        coefficients : shape (features,), for classes (classes, features)
        intercepts : shape (outputs,)

        Raises
        ------
        ValueError
            If the shapes are not the declaration's, a number is null or not finite, or the charge is another's.
        """

    def store_network(self, dataset: Registered, network: Json, parameters: list[float], receipt: Json) -> Json:
        """Store a network (`network_models.as_data`) and its parameters, shape (P,), as `store_release` does."""

    def hearing(self, hear: Callable[[str], None]) -> AbstractContextManager[None]:
        """Have a function called with what the server tells the client within the block."""


@cache
def _backend() -> ctypes.PyDLL:
    """Return the server's own functions: this interpreter is part of it."""
    functions = ctypes.PyDLL(None)
    functions.GetSessionUserId.restype = functions.GetOuterUserId.restype = ctypes.c_uint
    return functions


def _identity() -> tuple[ctypes.c_uint, ctypes.c_int]:
    """Return the current role's number, and the restrictions that it works under."""
    user, context = ctypes.c_uint(), ctypes.c_int()
    _backend().GetUserIdAndSecContext(ctypes.byref(user), ctypes.byref(context))
    return user, context


# Bytes of BufferUsage, by the server's major version (executor/instrument.h): ten counts of blocks, then the times
# spent on them, of 16 bytes each before 16 and of 8 since: two for blocks and two for temporary files, and in 17
# two for shared, two for local blocks and two for temporary files. WalUsage is three counts in all of them.
_BUFFER_BYTES = {15: 80 + 4 * 16, 16: 80 + 4 * 8, 17: 80 + 6 * 8}
_WAL_BYTES = 24


@contextmanager
def unmetered(version: int) -> Iterator[None]:
    """Have what the block reads and writes not count in what `EXPLAIN (ANALYZE, BUFFERS, WAL)` shows of the statement.

    Pages of a table and of what it stores out of line depend on how wide its rows are stored: on their values. What
    training writes has public sizes anyway (`packing`); this is the second line, and it hides the first, too.

    Parameters
    ----------
    version : the server's major version; of one that is not known nothing is touched
    """
    if version not in _BUFFER_BYTES:
        yield
        return
    sizes = {"pgBufferUsage": _BUFFER_BYTES[version], "pgWalUsage": _WAL_BYTES}
    places = [(ctypes.c_char * size).in_dll(_backend(), name) for name, size in sizes.items()]
    before = [place.raw for place in places]
    try:
        yield
    finally:
        for place, counts in zip(places, before, strict=True):
            place.raw = counts


@contextmanager
def _uncounted() -> Iterator[None]:
    """Have the server keep no statistics of what is read within the block: tuples, pages, values stored out of line.

    They are for every role to see, of any table. It is `track_counts`, of which no more than this is switched off:
    tables that are made and dropped go on to count for the server's own upkeep.
    """
    counting = ctypes.c_bool.in_dll(_backend(), "pgstat_track_counts")
    before = counting.value
    counting.value = False
    try:
        yield
    finally:
        counting.value = before


@contextmanager
def _being(user: ctypes.c_uint, added: int) -> Iterator[None]:
    """Be a role within the block, with more restrictions; the server ends it itself where a transaction aborts."""
    former, context = _identity()
    _backend().SetUserIdAndSecContext(user, ctypes.c_int(context.value | added))
    try:
        yield
    finally:
        _backend().SetUserIdAndSecContext(former, context)


@contextmanager
def _settings_undone() -> Iterator[None]:
    """Undo at the end of the block what was set within it."""
    level = _backend().NewGUCNestLevel()
    try:
        yield
    finally:
        _backend().AtEOXact_GUC(ctypes.c_bool(False), level)


@contextmanager
def _acting_as(owner: int | None) -> Iterator[None]:
    """Be a role within the block, None the current one, restricted and uncounted; undo what is set there."""
    user = _identity()[0] if owner is None else ctypes.c_uint(owner)
    with _being(user, _LOCAL_USER | _RESTRICTED), _uncounted(), _settings_undone():
        yield


class _Undo(Exception):
    """Ends a subtransaction that is to be undone."""


class Registry(Protocol):
    """What the server's session checks and writes in the registry; each dataset is a `datasets.Dataset`.

    What writes runs as dbdp_owner. Parameters, results and errors are those of `Session`.
    """

    def check_rows(self, session: "ServerSession", dataset: Any) -> None:
        """Check the number of rows, with the rights in force."""

    def charge(self, session: "ServerSession", dataset: Any, plan: Json) -> Charge:
        """Advance the odometers and write the ledger's row."""

    def note(self, session: "ServerSession", ledger: int, outcome: str) -> None:
        """Write an outcome."""

    def store_release(
        self, session: "ServerSession", dataset: Any, coefficients: list[Any], intercepts: list[float], receipt: Json
    ) -> Json:
        """Write linear models, and that they are the outcome of their charge."""

    def store_network(
        self, session: "ServerSession", dataset: Any, network: Json, parameters: list[float], receipt: Json
    ) -> Json:
        """Write a network, and that it is the outcome of its charge."""


class ServerSession:
    """A session inside a backend: SPI, in the caller's transaction.

    Parameters
    ----------
    plpy : PL/Python's module
    registry : what of the registry this session writes itself, its caller having been checked
    """

    def __init__(self, plpy: ModuleType, registry: Registry) -> None:
        self._plpy = plpy
        self._registry = registry
        self._prepared = lru_cache(_MOST_PLANS)(plpy.prepare)  # a plan that leaves the cache is freed
        self._suspended: dict[str, Iterator[bytes]] = {}

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement; return its rows."""
        return [dict(row) for row in self._plpy.execute(self._plan(sql, parameters), list(parameters))]

    @cached_property
    def version(self) -> int:
        """The server's major version."""
        return (
            int(self.query("select pg_catalog.current_setting('server_version_num') as number")[0]["number"]) // 10000
        )

    def stream(self, sql: str, *parameters: Any) -> Iterator[Row]:
        """Run one query with one snapshot; give its rows one at a time."""
        return iter(self._plpy.cursor(self._plan(sql, parameters), list(parameters)))

    def batches_of(self, source: str, size: int, sql: str, *parameters: Any) -> Iterator[list[Row]]:
        """Run one query that reads a table, with one snapshot and the plan of `PLANNED`; give so many rows at a time.

        The table has the same owner until the query ends, since that holds a lock on it.
        """
        owner = self._owner_of(source)
        with _acting_as(owner):
            self._plan_as_ever()
            cursor = self._plpy.cursor(self._plan(sql, parameters), list(parameters))
        while True:
            with _acting_as(owner):
                rows = list(cursor.fetch(size))
            if not rows:
                return
            yield rows

    def in_one_snapshot(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Give what an iterator gives, whose queries all see one snapshot: that of now. They only read.

        Proof. dbdp.resume, a stable function, runs the iterator; queries of a stable function see the snapshot of the
        one query that calls it.
        """
        name = secrets.token_hex(8)
        self._suspended[name] = pieces
        try:
            for row in self.stream("select dbdp.resume($1) as piece", name):
                yield row["piece"]
        finally:
            self._suspended.pop(name, None)

    def resume(self, name: str) -> Iterator[bytes]:
        """Return the iterator that `in_one_snapshot` left.

        Raises
        ------
        ValueError
            If there is none.
        """
        if name not in self._suspended:
            raise ValueError(f"nothing was left to resume as {name!r}; dbdp calls this function itself")
        return self._suspended[name]

    def uncounted(self) -> AbstractContextManager[None]:
        """Have the server keep no statistics of what the block reads, or writes to temporary tables."""
        return _uncounted()

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo what the block did, and release its locks; what a sequence was set to stays."""
        try:
            with self._plpy.subtransaction():
                yield
                raise _Undo
        except _Undo:
            pass

    @contextmanager
    def reading(self, source: str) -> Iterator[None]:
        """Read a table within the block with the rights of its owner, if this role may read it, by one plan.

        Whoever owns a table writes code that runs when others only plan to read it: functions in its indexes,
        CHECK constraints and statistics, or a view put in its place. So that it gains no rights, it runs as its
        owner and as restricted as in the server's own maintenance of tables, and what it sets is undone.

        Raises
        ------
        PermissionError
            If this role may not read the table.
        """
        with _acting_as(self._owner_of(source)):
            self._plan_as_ever()
            yield

    def _plan_as_ever(self) -> None:
        """Set what a plan depends on, until the role is given back."""
        self.query(_PLAN, list(PLANNED), list(PLANNED.values()))

    @contextmanager
    def in_own_memory(self) -> Iterator[None]:
        """Have the statements of the block use as much memory as ever, whatever `work_mem` the session has set.

        So a list of datasets or of locks goes to no temporary file, which `temp_file_limit` might refuse.
        """
        with _settings_undone():
            self.query("select pg_catalog.set_config('work_mem', $1, true)", PLANNED["work_mem"])
            yield

    def is_restricted(self) -> bool:
        """Return whether the caller is code of a table's owner, run where the server reads or maintains the table."""
        return _identity()[1].value & ~_LOCAL_USER != 0

    def check_caller(self) -> None:
        """Raise PermissionError for code that runs with the rights of another role than the session's.

        Right are the role that logged in; that of SET ROLE, outside of SECURITY DEFINER functions, whose owner may be
        a group; and dbdp_owner, which nobody is but an interface that has checked its own caller.
        """
        user, context = _identity()
        right = {_backend().GetSessionUserId(), self._dbdp_owner()}
        if not context.value & _LOCAL_USER:
            right.add(_backend().GetOuterUserId())
        if user.value not in right:
            row = self.query(_IN_FORCE)[0]
            raise PermissionError(
                f"dbdp was called by code that runs with the rights of {row['code']!r}, in a session of "
                f"{row['session']!r}; call it by itself, as the role that logged in, and have that role granted what "
                "it needs"
            )

    def acts_as_owner(self) -> bool:
        """Return whether the caller is an interface that acts as dbdp_owner."""
        return _identity()[0].value == self._dbdp_owner()

    def as_owner(self) -> AbstractContextManager[None]:
        """Act as dbdp_owner within the block, as a SECURITY DEFINER function of it would; the caller was checked."""
        return _being(ctypes.c_uint(self._dbdp_owner()), _LOCAL_USER)

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

    def prefer(self, parameter: str, value: str) -> None:
        """Set a parameter until the transaction ends, where the server still allows it; else the session lives on."""
        with _refusable(self):
            self.query("select pg_catalog.set_config('exit_on_error', 'off', true)")
            self.query("select pg_catalog.set_config($1, $2, true)", parameter, value)

    def failure(self, error: BaseException) -> tuple[str, str]:
        """Return SQLSTATE and text of a failed statement."""
        code = getattr(error, "spidata", None)
        text = str(error).removeprefix(PREFIX)
        if not code:
            return "", text
        letters = [chr(((code[0] >> shift) & 0x3F) + ord("0")) for shift in range(0, 30, 6)]
        return "".join(letters), text

    def workers(self, count: int) -> AbstractContextManager[list[Session]]:
        """A backend is one worker."""
        return nullcontext([self])

    def one_snapshot(self, workers: list[Session]) -> AbstractContextManager[None]:
        """A single statement has one snapshot anyway."""
        return nullcontext()

    def at_once(self) -> AbstractContextManager[Any]:
        """What a single statement does is undone if it fails."""
        return nullcontext()

    def cancel(self) -> None:
        """Do nothing: a backend has no other thread."""

    def hearing(self, hear: Callable[[str], None]) -> AbstractContextManager[None]:
        """A backend hears nothing: it tells."""
        return nullcontext()

    def check_rows(self, dataset: Registered) -> None:
        """Count the rows, or the units, and compare."""
        self._registry.check_rows(self, dataset)

    def check_exact_results(self) -> None:
        """Raise ValueError: the server must see no result that is not private."""
        raise ValueError("the baseline is not private and runs in a client that may read the table; call it from there")

    def charge(self, dataset: Registered, plan: Json) -> Charge:
        """Charge as dbdp_owner already."""
        return self._registry.charge(self, dataset, plan)

    @contextmanager
    def leaving_at_multiples(self, seconds: int | None) -> Iterator[None]:
        """Leave the block, also by an error, a multiple of `seconds` after it was entered; None: at once.

        A cancel ends the block, and the wait, at once: when it comes is up to whoever sends it. Nothing of the wait
        shows in pg_stat_activity, as PostgreSQL's own pg_sleep would.
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
        """Wait for the next multiple; raise what the server raises for a cancel."""
        if seconds is None:
            return
        end = entered + seconds * math.ceil((time.monotonic() - entered) / seconds)
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _NAP))
            self.query("select")

    def await_durable(self, charge: Charge) -> None:
        """Wait for the disk and the standbys: the release may be seen in a transaction that never commits."""
        _await(self, _FLUSHED, charge.position)
        if standbys := self.synchronous_standbys():
            _await(self, _REPLICATED, charge.position, standbys)

    def synchronous_standbys(self) -> int:
        """Return how many standbys synchronous_standby_names asks for, 0 if it is empty (as dbdp_owner).

        Raises
        ------
        ValueError
            If it is not empty, and dbdp_owner may not see how far the standbys are.
        """
        row = self.query(
            "select current_setting('synchronous_standby_names') as names, "
            "pg_has_role(current_user, 'pg_read_all_stats', 'usage') as may"
        )[0]
        if not row["names"].strip():
            return 0
        if not row["may"]:
            raise ValueError(
                "synchronous_standby_names is set, and dbdp_owner may not see how far the standbys are, so that a "
                "failover could undo a charge; grant pg_read_all_stats to dbdp_owner"
            )
        counted = re.match(r"\s*(?:(?:first|any)\s+)?(\d+)\s*\(", row["names"], re.IGNORECASE)
        return int(counted[1]) if counted else 1

    def note(self, ledger: int, outcome: str, detail: str | None = None) -> None:
        """Write an outcome, but not a failure: the error undoes the ledger's row with all else."""
        if outcome != "failed":
            self._registry.note(self, ledger, outcome)

    def store_release(
        self, dataset: Registered, coefficients: list[Any], intercepts: list[float], receipt: Json
    ) -> Json:
        """Write the models as dbdp_owner already."""
        return self._registry.store_release(self, dataset, coefficients, intercepts, receipt)

    def store_network(self, dataset: Registered, network: Json, parameters: list[float], receipt: Json) -> Json:
        """Write the network as dbdp_owner already."""
        return self._registry.store_network(self, dataset, network, parameters, receipt)

    def tell(self, text: str) -> None:
        """Tell the client, whatever its settings; nothing that a row could decide."""
        self._plpy.info(text)

    def _plan(self, sql: str, parameters: tuple[Any, ...]) -> Any:
        return self._prepared(sql, tuple(map(_postgres_type, parameters)))


class ClientSession:
    """A session over a psycopg connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement, whose names mean the server's own, whatever the connection's search_path; return its rows.

        What dbdp refuses is a ValueError, or after a charge a ChargedError, and psycopg's DatabaseError.
        """
        from dbdp.sessions import connections

        return self._run(connections.pinned, sql, parameters)

    def table(self, name: str) -> str | None:
        """Return a table's name with its schema, quoted, found along the connection's own path; None without one.

        The first statement looks nothing up along that path but the name: it has no operator, and its function, types
        and casts are the server's.
        """
        found = self._run(nullcontext, _OID_OF_TABLE, (name,))[0]["oid"]
        return None if found is None else str(self.query(_NAME_OF_TABLE, found)[0]["name"])

    def uncounted(self) -> AbstractContextManager[None]:
        """Leave statistics as they are: who drives the training may read the table itself."""
        return nullcontext()

    def control(self, sql: str) -> None:
        """Run a statement that controls a transaction and looks no name up, as the first of it must be."""
        self._run(nullcontext, sql, ())

    def _run(
        self, scope: Callable[[Any], AbstractContextManager[Any]], sql: str, parameters: tuple[Any, ...]
    ) -> list[Row]:
        from psycopg import DatabaseError, RawCursor
        from psycopg.rows import dict_row

        from dbdp.sessions import refusals

        with RawCursor(self.connection, row_factory=dict_row) as cursor:
            try:
                with scope(self.connection):
                    cursor.execute(sql.encode(), parameters or None)
            except KeyboardInterrupt:
                self._settle()
                raise
            except DatabaseError as error:
                raise refusals.told(error, is_ours=error.sqlstate == PUBLIC_SQLSTATE) from None
            return cursor.fetchall() if cursor.description else []

    def recover(self) -> None:
        """Roll back a transaction that a failed statement left behind."""
        from psycopg.pq import TransactionStatus

        self._settle()
        if not self.connection.closed and self.connection.info.transaction_status == TransactionStatus.INERROR:
            self.connection.rollback()

    def _settle(self) -> None:
        """End a statement that an interrupt left running: psycopg may be interrupted before it has seen the end."""
        from psycopg.pq import TransactionStatus

        if not self.connection.closed and self.connection.info.transaction_status == TransactionStatus.ACTIVE:
            self.connection.cancel()
            while self.connection.pgconn.get_result():
                pass

    def prefer(self, parameter: str, value: str) -> None:
        """Set a parameter for the session, where the server still allows it; never within a transaction."""
        from psycopg.pq import TransactionStatus

        if self.connection.autocommit and self.connection.info.transaction_status == TransactionStatus.IDLE:
            with _refusable(self):
                self.query("select pg_catalog.set_config($1, $2, false)", parameter, value)

    @contextmanager
    def workers(self, count: int) -> Iterator[list[Session]]:
        """Open further connections with the same parameters, role and memory; they close at the end."""
        from dbdp.sessions.connections import opened

        info = self.connection.info
        settings = self.query(_SETTINGS)
        with ExitStack() as stack:
            workers: list[Session] = []
            for _ in range(count):
                workers.append(ClientSession(stack.enter_context(opened(info.dsn, password=info.password or None))))
                for row in settings:
                    workers[-1].query("select pg_catalog.set_config($1, $2, false)", row["name"], row["setting"])
            yield workers

    @contextmanager
    def one_snapshot(self, workers: list[Any]) -> Iterator[None]:
        """Run a transaction in each worker, all with the snapshot of the first one."""
        from psycopg.sql import SQL, Literal

        first, *others = workers
        begin = "begin transaction isolation level repeatable read"
        first.control(begin)
        snapshot = first.query("select pg_catalog.pg_export_snapshot() as name")[0]["name"]
        for worker in others:
            worker.control(begin)
            worker.control(SQL("set transaction snapshot {}").format(Literal(snapshot)).as_string())
        yield  # an error leaves the transactions to `recover`
        for worker in workers:
            worker.control("commit")

    def at_once(self) -> AbstractContextManager[Any]:
        """Run a transaction, or a savepoint of the one that runs."""
        transaction: AbstractContextManager[Any] = self.connection.transaction()
        return transaction

    def cancel(self) -> None:
        """Cancel the statement that runs, from another thread."""
        self.connection.cancel()

    @contextmanager
    def hearing(self, hear: Callable[[str], None]) -> Iterator[None]:
        """Have a function called with what the server tells the client within the block."""

        def handler(notice: Any) -> None:
            if notice.severity_nonlocalized == "INFO":
                hear(notice.message_primary)

        self.connection.add_notice_handler(handler)
        try:
            yield
        finally:
            self.connection.remove_notice_handler(handler)

    def failure(self, error: BaseException) -> tuple[str, str]:
        """Return SQLSTATE and text of a failed statement."""
        text = getattr(getattr(error, "diag", None), "message_primary", None)
        return getattr(error, "sqlstate", None) or "", (text or str(error).strip()).removeprefix(PREFIX)

    def check_rows(self, dataset: Registered) -> None:
        """Call dbdp.check_rows: what plans a statement on a table may run code of the table's owner."""
        self.query("select dbdp.check_rows($1)", dataset.name)

    def check_exact_results(self) -> None:
        """Do nothing: rows are read by the caller's own right."""

    def charge(self, dataset: Registered, plan: Json) -> Charge:
        """Call dbdp.charge."""
        return Charge(**self.query(_CHARGE, dataset.name, json.dumps(plan))[0])

    def leaving_at_multiples(self, seconds: int | None) -> AbstractContextManager[None]:
        """Leave at once: who drives a training from a client may read the table."""
        return nullcontext()

    def await_durable(self, charge: Charge) -> None:
        """Wait for the disk: the charge has committed, and PostgreSQL itself has waited for the standbys."""
        _await(self, _FLUSHED, charge.position)

    def note(self, ledger: int, outcome: str, detail: str | None = None) -> None:
        """Call dbdp.record_outcome."""
        self.query("select dbdp.record_outcome($1, $2, $3)", ledger, outcome, detail)

    def store_release(
        self, dataset: Registered, coefficients: list[Any], intercepts: list[float], receipt: Json
    ) -> Json:
        """Call dbdp.store_release."""
        return self._stored(_STORE_RELEASE, dataset.name, coefficients, intercepts, json.dumps(receipt))

    def store_network(self, dataset: Registered, network: Json, parameters: list[float], receipt: Json) -> Json:
        """Call dbdp.store_network."""
        return self._stored(_STORE_NETWORK, dataset.name, json.dumps(network), parameters, json.dumps(receipt))

    def _stored(self, sql: str, *parameters: Any) -> Json:
        stored: Json = json.loads(self.query(sql, *parameters)[0]["stored"])
        return stored


def _await(session: Session, condition: str, *parameters: Any) -> None:
    while not session.query(condition, *parameters)[0]["done"]:
        session.query("select pg_catalog.pg_sleep($1)", _POLL_SECONDS)


@contextmanager
def _refusable(session: Session) -> Iterator[None]:
    """Pass over the server's refusal of a value; a cancel or a broken connection goes on."""
    try:
        yield
    except Exception as error:
        if not session.failure(error)[0].startswith(DATA_EXCEPTION):
            raise


def _postgres_type(value: Any) -> str:
    if isinstance(value, list):
        return _postgres_type(value[0]) + "[]" if value else "text[]"
    return _POSTGRES_TYPES[type(value)]


@contextmanager
def temporary_table(session: Session, name: str, columns: str) -> Iterator[str]:
    """Create a temporary table for the time of the block; give its qualified name.

    It is dropped at the end, also after an error or a cancel; a backend that dies takes it along.
    `bytea` columns are stored without compression: packed rows do not compress.
    """
    table = f'pg_temp."{name}"'
    try:
        session.query(f"create temporary table {table} ({columns})")
        session.query(f"alter table {table} alter column block set storage external")
        yield table
    finally:
        session.recover()
        session.query(f"drop table if exists {table}")
