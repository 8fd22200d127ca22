"""A session: where SQL runs, and what the controller needs of it. Parameters are $1, $2, …, rows are dictionaries."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from dbdp.sessions.errors import DATA_EXCEPTION

Row = dict[str, Any]
Json = dict[str, Any]  # an object, as `json` has it

_POSTGRES_TYPES = {
    bool: "bool",
    int: "int8",
    float: "float8",
    str: "text",
    bytes: "bytea",
    type(None): "text",
}


# How far the WAL is on disk, and on how many synchronous standbys.
FLUSHED = "select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), $1::pg_catalog.pg_lsn) >= 0 as done"
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Charge:
    """A charge that was made.

    Attributes
    ----------
    ledger : int
        The number of its row in dbdp.ledger.
    position : str
        Of the WAL, to be on disk before anything that was paid for is shown.
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

    `tests/sessions/test_session_contract.py` holds for every implementation.
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
        plan : Json
            What was planned, as JSON has it: its `algorithm`, its `guarantee` (`Release.as_data`), and public facts.

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
        coefficients : list[Any]
            Shape (features,), for classes (classes, features).
        intercepts : list[float]
            Shape (outputs,).

        Raises
        ------
        ValueError
            If the shapes are not the declaration's, a number is null or not finite, or the charge is another's.
        """

    def store_network(self, dataset: Registered, network: Json, parameters: list[float], receipt: Json) -> Json:
        """Store a network (`network_models.as_data`) and its parameters, shape (P,), as `store_release` does."""

    def hearing(self, hear: Callable[[str], None]) -> AbstractContextManager[None]:
        """Have a function called with what the server tells the client within the block."""


def wait_until(session: Session, condition: str, *parameters: Any) -> None:
    while not session.query(condition, *parameters)[0]["done"]:
        session.query("select pg_catalog.pg_sleep($1)", _POLL_SECONDS)


@contextmanager
def refusable(session: Session) -> Iterator[None]:
    """Pass over the server's refusal of a value; a cancel or a broken connection goes on."""
    try:
        yield
    except Exception as error:
        if not session.failure(error)[0].startswith(DATA_EXCEPTION):
            raise


def postgres_type(value: Any) -> str:
    if isinstance(value, list):
        return postgres_type(value[0]) + "[]" if value else "text[]"
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
