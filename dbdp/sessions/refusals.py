"""The errors that a client raises where the server refuses: psycopg's errors that are also this project's own."""

import psycopg

from dbdp.sessions.errors import CHARGED, PREFIX, ChargedError


class RefusedError(psycopg.DatabaseError, ValueError):
    """The server refused, before anything was spent; the text is the server's, without the location in its code."""


class StoppedError(psycopg.DatabaseError, ChargedError):
    """A training in the server failed after its charge."""

    sqlstate: str


def client_error(error: psycopg.DatabaseError, *, is_public: bool) -> psycopg.DatabaseError:
    """Return the error that this client's interfaces raise for an error of a statement."""
    text = (error.diag.message_primary or "").removeprefix(PREFIX)
    if text.startswith(CHARGED):
        return StoppedError(error.sqlstate or "", text.removeprefix(CHARGED), info=error.pgresult)
    return RefusedError(text, info=error.pgresult) if is_public else error
