"""Errors: SQLSTATEs, failures after a charge, and what their text may show. No SQL and no client library."""

from typing import Any

PUBLIC_SQLSTATE = "DP001"  # of errors whose text has public facts only
PREFIX = "dbdp: "  # the class name with which PL/Python begins their text
NOT_ALLOWED = "42501"  # SQLSTATE of a missing right
DATA_EXCEPTION = "22"  # class of SQLSTATEs: a value that its type, or a parameter, does not accept
UNIQUE_VIOLATION, INVALID_NAME, LOCK_NOT_AVAILABLE = "23505", "42602", "55P03"
_CANCELLED = ("57014", "57P01", "57P02", "57P03")
CHARGED = "the call failed after it was charged; the charge is not refunded: "


class ChargedError(RuntimeError):
    """A training that failed after its charge; its text does not depend on any row."""

    def __init__(self, sqlstate: str, reason: str) -> None:
        super().__init__(f"{CHARGED}{reason}")
        self.sqlstate, self.reason = sqlstate, reason

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Return how to pickle the error, as between the processes of a search."""
        return type(self), (self.sqlstate, self.reason)


def is_cancel(sqlstate: str) -> bool:
    """Return whether this SQLSTATE means that the statement was cancelled, or the server stopped."""
    return sqlstate in _CANCELLED


def public_failure(error: BaseException, sqlstate: str, text: str) -> tuple[str, str]:
    """Return the SQLSTATE and a text of an error after a charge that do not depend on any row.

    The text of an error of the server may quote a row; that of dbdp's own (PUBLIC_SQLSTATE) never does.
    """
    if sqlstate == PUBLIC_SQLSTATE:
        return sqlstate, text
    if is_cancel(sqlstate) or type(error).__name__ == "OperationalError":  # the connection broke
        return sqlstate, "it was cancelled, or the server was stopped"
    return (
        sqlstate or PUBLIC_SQLSTATE,
        f"{type(error).__name__} (SQLSTATE {sqlstate or 'none'})",
    )
