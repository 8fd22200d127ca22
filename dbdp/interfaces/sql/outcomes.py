"""What a function of SQL refused, from its body in Python to `dbdp_internal.accepted`, which raises it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dbdp.sessions.errors import PREFIX, PUBLIC_SQLSTATE


class Outcome(NamedTuple):
    """How a call ended.

    Attributes
    ----------
    message, code : str | None
        Text and SQLSTATE of its error; None for a call that succeeded.
    remedy : str | None
        PostgreSQL's own detail and hint of its error, if it has any.
    warnings : tuple of str
        Sentences for the caller, from public facts only.
    """

    message: str | None = None
    code: str | None = None
    remedy: str | None = None
    warnings: tuple[str, ...] = ()


_last: list[Outcome] = []  # of the call that ended last, if `last_refusal` has not returned it


def record(outcome: Outcome) -> None:
    """Store how the last call ended."""
    _last[:] = [outcome]


def last_refusal() -> Outcome:
    """Return how the last call ended, once: a second time it is a success."""
    return _last.pop() if _last else Outcome()


def recorded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function that writes nothing; None if it refuses, which is recorded."""
    result, outcome = None, Outcome()
    try:
        result = function(*arguments)
    except ValueError as error:
        outcome = Outcome(f"{PREFIX}{error}", PUBLIC_SQLSTATE)
    record(outcome)
    return result
