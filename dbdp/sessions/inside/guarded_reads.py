"""How the server reads a registered table: as the table's owner, by one plan, under every lock that it may need.

SQL calls back the Python of a read by a name that only the read knows: `receiver` and `resumed`.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from dbdp.sessions.errors import PUBLIC_SQLSTATE
from dbdp.sessions.inside.backend import SUPERUSER, acting_as, backend
from dbdp.sessions.inside.planner import PLANNED, SET_PLANNER
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Row

_receivers: dict[str, Callable[[bytes | None], bool]] = {}
_suspended: dict[str, Iterator[bytes]] = {}

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


@contextmanager
def reading(session: SpiSession, source: str) -> Iterator[int | None]:
    """Read a table within the block by the plan of `PLANNED`, as its owner, which is yielded, if this role may.

    A table's owner writes code that runs as soon as another role plans to read it: functions in its indexes, CHECK
    constraints and statistics, or a view put in its place. So that this code gains no rights, it runs as its owner,
    as restricted as in the server's own maintenance of tables, and its settings are reset.
    """
    owner = _owner_of(session, source)
    session.cursors.check(source, owner)
    _lock(session, source, owner)
    with _as_table_owner(session, source, owner):
        _pin_plan(session)
        yield owner


@contextmanager
def _as_table_owner(session: SpiSession, source: str, owner: int | None) -> Iterator[None]:
    """Run the block as a table's owner; an error has no word of its code, which could pretend to be dbdp's."""
    try:
        with acting_as(owner):
            yield
    except session.failed_statement as error:
        if owner is None or owner == backend().GetSessionUserId():
            raise
        state = session.failure(error)[0]
        shown = f"reading {source} failed (SQLSTATE {state}), in the server or in code of its owner"
        error.args = (f"{shown}; ask the owner",)
        error.spidata = (_number_of("P0001" if state == PUBLIC_SQLSTATE else state), *[None] * 3, 0, *[None] * 5)
        raise


def _number_of(state: str) -> int:
    """Return an SQLSTATE as PostgreSQL's errors have it."""
    return sum((ord(letter) - ord("0")) << (6 * place) for place, letter in enumerate(state))


def _lock(session: SpiSession, source: str, owner: int | None) -> None:
    """Take every lock that reading a table may take, until the transaction ends.

    While the server fetches a value that is stored out of line, it locks the table of such values and its index,
    and every role sees that in pg_locks. So both are locked before, whatever the rows contain. To plan a statement
    takes the locks (but not a plan that is kept). Only a superuser may read such a table. It has no code of others,
    and what the owner's code has set is reset before, search_path above all: no other code runs as a superuser.
    """
    with _as_table_owner(session, source, owner):
        session.run_afresh(f"select from {source} limit 0")
    with acting_as(SUPERUSER):
        for row in session.query(_OUT_OF_LINE, source):
            session.run_afresh(f"select from {row['name']} limit 0")


def _pin_plan(session: SpiSession) -> None:
    """Set all that a plan depends on, until the block of `acting_as` ends."""
    session.query(SET_PLANNER, list(PLANNED), list(PLANNED.values()))


def _owner_of(session: SpiSession, source: str) -> int | None:
    row = session.query(_READER, source)[0]
    for may, right in ((row["may_enter"], "usage on schema {schema}"), (row["may_read"], "select on {source}")):
        if not may:
            wanted = right.format(schema=row["schema"], source=source)
            raise PermissionError(f"{row['reader']} may not read {source}; grant {wanted} to {row['reader']}")
    owner: int | None = row["owner"]
    return owner


def batches_of(session: SpiSession, source: str, size: int, sql: str, *parameters: Any) -> Iterator[list[Row]]:
    """Run one query that reads a table, with one snapshot and the plan of `PLANNED`; yield `size` rows at a time.

    The query's lock on the table ensures that its owner stays the same until the query ends.
    """
    with reading(session, source) as owner:
        cursor = session.cursor(sql, *parameters)
    while True:
        with _as_table_owner(session, source, owner):
            rows = cursor.fetch(size)
        if not rows:
            return
        yield rows


def scan(
    session: SpiSession,
    source: str,
    least: int,
    value: str,
    rows: str,
    receive: Callable[[bytes | None], bool],
    *parameters: Any,
) -> Iterator[None]:
    """Call a function with a value of each row of one query that reads a table, as `batches_of` does.

    The server is asked again after each value for which the function returns true, and then this yields. How often
    it is asked shows in the number of the transaction's next subtransaction, so it must be public: it does not
    depend on what is read as long as there are fewer such values than `least`, the least number of times.
    """
    name = secrets.token_hex(8)
    _receivers[name], given = receive, (*parameters, name)
    sql = f"select {rows} and dbdp_internal.receive(${len(given)}, {value})"
    try:
        with reading(session, source) as owner:
            cursor = session.cursor(sql, *given)
        for asked in count(1):
            with _as_table_owner(session, source, owner):
                is_over = not cursor.fetch(1)
            yield
            if is_over and asked >= least:
                return
    finally:
        del _receivers[name]


def receiver(name: str) -> Callable[[bytes | None], bool]:
    """Return the function that a query of `scan` calls by a name."""
    if name not in _receivers:
        raise ValueError(f"there is no read named {name!r}; only dbdp itself calls dbdp_internal.receive")
    return _receivers[name]


def in_one_snapshot(session: SpiSession, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield an iterator's items; its queries, which only read, all see one snapshot, taken at the first item.

    Proof. dbdp_internal.resume, a stable function, runs the iterator; queries of a stable function see the
    snapshot of the one query that calls it.
    """
    name = secrets.token_hex(8)
    _suspended[name] = pieces
    try:
        for row in session.cursor("select dbdp_internal.resume($1) as piece", name):
            yield row["piece"]
    finally:
        _suspended.pop(name, None)


def resumed(name: str) -> Iterator[bytes]:
    """Return the iterator that `in_one_snapshot` stored under a name."""
    if name not in _suspended:
        raise ValueError(f"there is no suspended read named {name!r}; only dbdp itself calls dbdp_internal.resume")
    return _suspended[name]
