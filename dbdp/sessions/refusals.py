"""What a client raises where the server refuses: errors of psycopg that are this project's own as well."""

import psycopg

from dbdp.sessions.errors import CHARGED, PREFIX, ChargedError


class RefusedError(psycopg.DatabaseError, ValueError):
    """The server refused, before anything was spent; the text is the server's, without the place in its code."""


class StoppedError(psycopg.DatabaseError, ChargedError):
    """A training in the server failed after its charge."""

    sqlstate: str


def told(error: psycopg.DatabaseError, *, is_ours: bool) -> psycopg.DatabaseError:
    """Return an error of a statement as the doors of this client have it.

    Parameters
    ----------
    is_ours : bool
        Whether the error's text says public facts only; others stay as they are, but for a charge that stands.
    """
    text = (error.diag.message_primary or "").removeprefix(PREFIX)
    if text.startswith(CHARGED):
        return StoppedError(error.sqlstate or "", text.removeprefix(CHARGED), info=error.pgresult)
    return RefusedError(text, info=error.pgresult) if is_ours else error
