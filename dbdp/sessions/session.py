"""The session's interface: what the controller needs of the place where SQL runs, and helpers on it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

Row = dict[str, Any]
Json = dict[str, Any]  # a JSON object

_POSTGRES_TYPES = {
    bool: "bool",
    int: "int8",
    float: "float8",
    str: "text",
    bytes: "bytea",
    type(None): "text",
}


# Whether the WAL is on disk up to a position.
FLUSHED = "select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), $1::pg_catalog.pg_lsn) >= 0 as done"
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class LedgerCharge:
    """A charge, as the ledger records it."""

    ledger: int  # the id of its row in dbdp.ledger
    position: str  # the WAL position that must be on disk before the charged release is shown


class Registered(Protocol):
    """The part of a registered dataset that every session needs."""

    @property
    def name(self) -> str:
        """Its name in dbdp.datasets."""


class Engine(Protocol):
    """The interface of a place other than the session's database where the rows of a dataset are read and trained on.

    The session still plans, charges and stores; a dataset is a `dbdp.registry.datasets.RegisteredDataset`.
    """

    def check_rows(self, dataset: Any) -> None:
        """Raise ValueError unless the rows are those that were registered, by public facts."""

    def check(self, dataset: Any, request: Any) -> None:
        """Raise ValueError unless a `dbdp.algorithms.Request` can be trained there; called before the charge."""

    def rows(self, dataset: Any, layout: Any, progress: Any) -> AbstractContextManager[Any]:
        """Return a context manager of the packed rows, a `dbdp.algorithms.rows.Rows`."""


class Session(Protocol):
    """The interface that the controller needs of the place where SQL runs.

    An implementation runs PostgreSQL's SQL on a database with dbdp: parameters are $1, $2, …, rows are dictionaries,
    and the types of parameters are those of `query`. It has three groups of methods:

    - statements: `query`, `recover`, `failure`, `atomic`, `in_one_session`, `messages_to`, `uncounted`,
      `cancel`;
    - parallel sessions: `workers`, `one_snapshot`; a session that cannot open another returns itself alone;
    - the border, which differs in who checks, who writes and who waits: `check_rows`, `check_exact_results`,
      `charge`, `leaving_at_multiples`, `await_durable`, `note`, `store_release`, `store_network`. Outside the server
      these call its SQL functions of similar names, which check the caller; see `ClientSession`.

    `tests/sessions/test_session_contract.py` tests every implementation.
    """

    @property
    def engine(self) -> Engine | None:
        """Where rows are read and trained on; None is the session's own database."""

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement; return its rows as dictionaries by column name."""

    def recover(self) -> None:
        """Make the session usable after a failed statement; do nothing where it is usable."""

    def failure(self, error: BaseException) -> tuple[str, str]:
        """Return the SQLSTATE and the text of a failed statement; an empty SQLSTATE for an error that is not SQL's."""

    def workers(self, count: int) -> AbstractContextManager[list["Session"]]:
        """Open `count` further sessions of the same role for parallel work; or return this one alone."""

    def one_snapshot(self, workers: list["Session"]) -> AbstractContextManager[None]:
        """Show all workers the same rows within the block."""

    def atomic(self) -> AbstractContextManager[Any]:
        """Apply the statements of the block together, or none of them if an error leaves the block."""

    def in_one_session(self) -> AbstractContextManager[None]:
        """Run the statements of the block in one session of the server, as temporary tables need."""

    def uncounted(self) -> AbstractContextManager[None]:
        """Switch off the server's statistics of pages that are read within the block."""

    def cancel(self) -> None:
        """Cancel the running statement, from another thread; do nothing where there is no other thread."""

    def check_rows(self, dataset: Registered) -> None:
        """Raise ValueError unless the table still has the registered, public number of rows, or of units."""

    def check_exact_results(self) -> None:
        """Raise ValueError unless results without noise may be computed here: by a caller that may read the rows."""

    def charge(self, dataset: Registered, plan: Json, price: Any = None) -> LedgerCharge:
        """Charge a planned release, before a row is read; a ROLLBACK does not undo it.

        `price` is its `registry.spending.odometers.Price`, which spares the server a second computation. Only the
        server's own process passes it on: for a client the server computes the cost from the plan.

        Raise ValueError before anything is spent, if the budget does not cover the release, or the plan has no
        algorithm or guarantee. In a client it is a `psycopg.DatabaseError` too.
        """

    def leaving_at_multiples(self, seconds: int | None) -> AbstractContextManager[None]:
        """Leave the block, also after an error, a multiple of `seconds` after it was entered; None: at once.

        Only the server waits. A cancel ends the block and the wait at once.
        """

    def await_durable(self, charge: LedgerCharge) -> None:
        """Wait until neither a crash nor a failover to a synchronous standby can undo the charge."""

    def note(self, ledger: int, outcome: str, detail: str | None = None) -> None:
        """Record the outcome of a charge without a model: `shown`, or `failed` with a public reason.

        A failure is recorded only where it does not roll back the ledger's row.
        """

    def store_release(
        self, dataset: Registered, coefficients: list[Any], intercepts: list[float], receipt: Json
    ) -> Json:
        """Store linear models with their receipt, which names the charge as `ledger`; return `id` and `receipt`.

        Coefficients have the shape (features,), for classes (classes, features), intercepts (outputs,).
        """

    def store_network(self, dataset: Registered, network: Json, parameters: list[float], receipt: Json) -> Json:
        """Store a network (`network_models.as_data`) and its parameters, shape (P,), as `store_release` does."""

    def messages_to(self, receive: Callable[[str], None]) -> AbstractContextManager[None]:
        """Call a function with each message that the server sends the client within the block."""


def wait_until(session: Session, condition: str, *parameters: Any) -> None:
    """Poll a query until its column `done` is true."""
    while not session.query(condition, *parameters)[0]["done"]:
        session.query("select pg_catalog.pg_sleep($1)", _POLL_SECONDS)


def postgres_type(value: Any) -> str:
    """Return the name of the PostgreSQL type of a parameter."""
    if isinstance(value, list):
        return postgres_type(value[0]) + "[]" if value else "text[]"
    return _POSTGRES_TYPES[type(value)]


@contextmanager
def temporary_table(session: Session, name: str, columns: str) -> Iterator[str]:
    """Create a temporary table for the block, with a `bytea` column `block`; yield its qualified name.

    It is dropped at the end, also after an error or a cancel, or with its backend.
    `block` is stored without compression, since packed rows do not compress.
    """
    table = f'pg_temp."{name}"'
    try:
        session.query(f"create temporary table {table} ({columns})")
        session.query(f"alter table {table} alter column block set storage external")
        yield table
    finally:
        session.recover()
        session.query(f"drop table if exists {table}")
