"""Errors: SQLSTATEs, what failed after a charge, and what a failure may show. No SQL, and no library of a client."""

from typing import Any

PUBLIC_SQLSTATE = "DP001"  # of errors whose text has public facts only
PREFIX = "dbdp: "  # of their text: PL/Python shows the name of the server's error
NOT_ALLOWED = "42501"  # SQLSTATE of a right that is missing
DATA_EXCEPTION = "22"  # class of SQLSTATEs: a value that its type, or a parameter, does not take
UNIQUE_VIOLATION, INVALID_NAME = "23505", "42602"
_CANCELLED = ("57014", "57P01", "57P02", "57P03")
CHARGED = "training stopped after its charge, which stands: "


class ChargedError(RuntimeError):
    """A training that failed after its charge; no row decides anything of the text."""

    def __init__(self, sqlstate: str, reason: str) -> None:
        super().__init__(f"{CHARGED}{reason}")
        self.sqlstate, self.reason = sqlstate, reason

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle it, as between the processes of a search."""
        return type(self), (self.sqlstate, self.reason)


def is_cancel(sqlstate: str) -> bool:
    """Return whether somebody cancelled the statement that failed with this SQLSTATE, or the server was stopped."""
    return sqlstate in _CANCELLED


def public_failure(error: BaseException, sqlstate: str, text: str) -> tuple[str, str]:
    """Return SQLSTATE and text of an error after a charge, without anything that a row could decide.

    The text of an error of the server may quote a row; ours (PUBLIC_SQLSTATE) never do.

    Parameters
    ----------
    sqlstate, text : str
        Of the error, as `Session.failure` returns them.
    """
    if sqlstate == PUBLIC_SQLSTATE:
        return sqlstate, text
    if is_cancel(sqlstate) or type(error).__name__ == "OperationalError":  # the connection broke
        return sqlstate, "it was cancelled, or the server was stopped"
    return (
        sqlstate or PUBLIC_SQLSTATE,
        f"{type(error).__name__} (SQLSTATE {sqlstate or 'none'})",
    )
