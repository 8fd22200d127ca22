"""The session of a client: psycopg, with the client's own rights."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from dbdp.sessions.errors import PREFIX, PUBLIC_SQLSTATE
from dbdp.sessions.session import FLUSHED, Engine, Json, LedgerCharge, Registered, Row, Session, wait_until

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

# A table that a caller names is looked up along the caller's own search_path, and then by its oid.
_OID_OF_TABLE = "select pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid as oid"
_NAME_OF_TABLE = """
select pg_catalog.format('%I.%I', n.nspname, c.relname) as name
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.oid = $1::pg_catalog.oid
"""


# A client reaches the registry through the server's SQL functions, which check the caller.
_CHARGE = """
select c.ledger_id as ledger, c.wal_position::pg_catalog.text as position
from dbdp_internal.charge($1, $2::pg_catalog.json) as c
"""
_STORE_RELEASE = """
select dbdp_internal.store_release(
    $1, $2::pg_catalog.float8[], $3::pg_catalog.float8[], $4::pg_catalog.json)::pg_catalog.text as stored
"""
_STORE_NETWORK = """
select dbdp_internal.store_network(
    $1, $2::pg_catalog.json, $3::pg_catalog.float8[], $4::pg_catalog.json)::pg_catalog.text as stored
"""


@dataclass(frozen=True)
class Another:
    """What opens a session like another one, also in another process; its text does not show the password."""

    dsn: str = field(repr=False)  # parameters of libpq, without the password
    password: str | None = field(repr=False)  # the password
    # Names and values of the settings that the session has of its own, in the order in which they are set.
    settings: tuple[tuple[str, str], ...] = field(repr=False)

    @contextmanager
    def opened(self) -> Iterator["ClientSession"]:
        """Yield a session, which is closed at the end."""
        from dbdp.sessions.connections import opened

        with opened(self.dsn, password=self.password) as connection:
            session = ClientSession(connection)
            for name, setting in self.settings:
                session.query("select pg_catalog.set_config($1, $2, false)", name, setting)
            yield session


class ClientSession:
    """A session over a psycopg connection."""

    def __init__(self, connection: Any, engine: Engine | None = None) -> None:
        self.connection = connection
        self.engine = engine

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement, with names resolved in pg_catalog whatever the connection's search_path; return its rows.

        Raise psycopg.DatabaseError if the statement fails. Where dbdp refuses it is a ValueError too, after a charge a
        ChargedError.
        """
        from dbdp.sessions import connections

        return self._run(connections.pinned, sql, parameters)

    def table(self, name: str) -> str | None:
        """Return the qualified, quoted name of a table on the connection's own search_path; None if there is none.

        The first statement resolves only the table's name along that path: it has no operator, and its function, types
        and casts are qualified.
        """
        oid = self._run(nullcontext, _OID_OF_TABLE, (name,))[0]["oid"]
        found = self.query(_NAME_OF_TABLE, oid)  # since PostgreSQL 16 any number has an oid
        return str(found[0]["name"]) if found else None

    def uncounted(self) -> AbstractContextManager[None]:
        """Do nothing: the role that runs the training may read the table itself."""
        return nullcontext()

    def control(self, sql: str) -> None:
        """Run a statement that controls a transaction; it resolves no name, so it needs no pinned search_path."""
        self._run(nullcontext, sql, ())

    def _run(
        self, scope: Callable[[Any], AbstractContextManager[Any]], sql: str, parameters: tuple[Any, ...]
    ) -> list[Row]:
        from psycopg import DatabaseError, RawCursor
        from psycopg.rows import dict_row

        from dbdp.sessions import connections, refusals, transactions

        with RawCursor(self.connection, row_factory=dict_row) as cursor:
            connections.read_as_pinned(cursor)
            try:
                with scope(self.connection):
                    # Not prepared: behind a pooler the next one may run in a session that does not have it.
                    cursor.execute(sql.encode(), parameters or None, prepare=False)
            except KeyboardInterrupt:
                transactions.settle(self.connection)
                raise
            except DatabaseError as error:
                if isinstance(error.__context__, KeyboardInterrupt):  # which the end of the pipeline replaced
                    transactions.settle(self.connection)
                    raise error.__context__ from None
                raise refusals.client_error(error, is_public=error.sqlstate == PUBLIC_SQLSTATE) from None
            return cursor.fetchall() if cursor.description else []

    def bytes_of(self, sql: str, *parameters: Any) -> bytes:
        """Return the bytes that a statement returns, as they are; for connections that dbdp opened itself."""
        from psycopg import RawCursor

        with RawCursor(self.connection) as cursor:
            ((value,),) = cursor.execute(sql.encode(), parameters, binary=True).fetchall()
            return bytes(value)

    def recover(self) -> None:
        """Roll back a transaction that a failed statement left behind."""
        from dbdp.sessions import transactions

        transactions.recover(self.connection)

    def another(self) -> "Another":
        """Return what opens a further session with the same parameters, role and memory."""
        from psycopg.conninfo import make_conninfo

        info, settings = self.connection.info, self.query(_SETTINGS)
        # A name of a host may have several addresses, of as many servers.
        place = {} if info.host.startswith("/") or not info.hostaddr else {"hostaddr": info.hostaddr}
        dsn = make_conninfo(info.dsn, **place)
        return Another(dsn, info.password or None, tuple((row["name"], row["setting"]) for row in settings))

    @contextmanager
    def workers(self, count: int) -> Iterator[list[Session]]:
        """Open further connections with the same parameters, role and memory; they close at the end."""
        another = self.another()
        with ExitStack() as stack:
            yield [stack.enter_context(another.opened()) for _ in range(count)]

    @contextmanager
    def one_snapshot(self, workers: list[Any]) -> Iterator[None]:
        """Run a transaction in each worker, all with the snapshot of the first one."""
        from dbdp.sessions import transactions

        first, *others = workers
        snapshot = transactions.exported_snapshot(first)
        for worker in others:
            transactions.see(worker, snapshot)
        yield  # an error leaves the transactions to `recover`
        for worker in workers:
            worker.control("commit")

    def atomic(self) -> AbstractContextManager[Any]:
        """Run a transaction, or a savepoint within the current one."""
        transaction: AbstractContextManager[Any] = self.connection.transaction()
        return transaction

    def in_one_session(self) -> AbstractContextManager[None]:
        """Run the statements of the block in one session of the server: behind a pooler as one transaction."""
        from dbdp.sessions import transactions

        return transactions.in_one_session(self)

    def cancel(self) -> None:
        """Cancel the statement that runs, from another thread."""
        self.connection.cancel()

    @contextmanager
    def messages_to(self, receive: Callable[[str], None], level: str = "INFO") -> Iterator[None]:
        """Call a function with each message of that level that the server sends within the block."""

        def handler(notice: Any) -> None:
            if notice.severity_nonlocalized == level:
                receive(notice.message_primary)

        self.connection.add_notice_handler(handler)
        try:
            yield
        finally:
            self.connection.remove_notice_handler(handler)

    def failure(self, error: BaseException) -> tuple[str, str]:
        """Return the SQLSTATE and the text of a failed statement."""
        text = getattr(getattr(error, "diag", None), "message_primary", None)
        return getattr(error, "sqlstate", None) or "", (text or str(error).strip()).removeprefix(PREFIX)

    def check_rows(self, dataset: Registered) -> None:
        """Call dbdp_internal.check_rows: planning a statement on the table here could run code of the table's owner."""
        if self.engine is not None:
            self.engine.check_rows(dataset)
            return
        self.query("select dbdp_internal.check_rows($1)", dataset.name)

    def check_exact_results(self) -> None:
        """Do nothing: rows are read with the caller's own rights."""

    def charge(self, dataset: Registered, plan: Json, price: Any = None) -> LedgerCharge:
        """Call dbdp_internal.charge."""
        return LedgerCharge(**self.query(_CHARGE, dataset.name, json.dumps(plan))[0])

    def leaving_at_multiples(self, seconds: int | None) -> AbstractContextManager[None]:
        """Leave at once: the role that runs a training from a client may read the table."""
        return nullcontext()

    def await_durable(self, charge: LedgerCharge) -> None:
        """Wait for the disk: the charge has committed, and PostgreSQL itself has waited for the standbys."""
        wait_until(self, FLUSHED, charge.position)

    def note(self, ledger: int, outcome: str, detail: str | None = None) -> None:
        """Call dbdp_internal.record_outcome."""
        self.query("select dbdp_internal.record_outcome($1, $2, $3)", ledger, outcome, detail)

    def store_release(
        self, dataset: Registered, coefficients: list[Any], intercepts: list[float], receipt: Json
    ) -> Json:
        """Call dbdp_internal.store_release."""
        return self._stored(_STORE_RELEASE, dataset.name, coefficients, intercepts, json.dumps(receipt))

    def store_network(self, dataset: Registered, network: Json, parameters: list[float], receipt: Json) -> Json:
        """Call dbdp_internal.store_network."""
        return self._stored(_STORE_NETWORK, dataset.name, json.dumps(network), parameters, json.dumps(receipt))

    def _stored(self, sql: str, *parameters: Any) -> Json:
        stored: Json = json.loads(self.query(sql, *parameters)[0]["stored"])
        return stored
