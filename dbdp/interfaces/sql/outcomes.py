"""What a function of SQL refused, from its body in Python to `dbdp_internal.accepted`, which raises it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dbdp.sessions.errors import PREFIX, PUBLIC_SQLSTATE
from dbdp.sessions.inside.backend import identity


class Outcome(NamedTuple):
    """How a call ended."""

    # message, code: text and SQLSTATE of its error; None for a call that succeeded.
    message: str | None = None
    code: str | None = None
    remedy: str | None = None  # PostgreSQL's own detail and hint of its error, if it has any
    warnings: tuple[str, ...] = ()  # sentences for the caller, from public facts only


_last: list[tuple[int, Outcome]] = []  # the role, and how its call ended last, if `last_refusal` has not returned it


def record(outcome: Outcome) -> None:
    """Store how the last call ended, for the role in force."""
    _last[:] = [(identity()[0].value, outcome)]


def last_refusal() -> Outcome:
    """Return how the last call of the role in force ended, once: after that, and for other roles, it is a success."""
    if not _last or _last[0][0] != identity()[0].value:
        return Outcome()
    return _last.pop()[1]


def recorded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function that writes nothing; None if it refuses, which is recorded."""
    result, outcome = None, Outcome()
    try:
        result = function(*arguments)
    except ValueError as error:
        outcome = Outcome(f"{PREFIX}{error}", PUBLIC_SQLSTATE)
    record(outcome)
    return result
