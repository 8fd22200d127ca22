"""Which options of a request an algorithm has: a declaration beside each `plan`, read wherever options are listed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dbdp.algorithms.own_settings import OwnSettings
from dbdp.algorithms.plan import Request
from dbdp.learning.losses import LOSSES

Values = tuple[Any, ...] | None  # None: any value; its range is the plan's to check
ALL_ROWS = "all rows"  # of batch_size: as many as the dataset has
DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Request)}


def anything(*names: str) -> dict[str, Values]:
    """Declare options that may have any value."""
    return dict.fromkeys(names)


EVERY: dict[str, Values] = {
    **anything("epsilon", "delta", "algorithm", "projection_dimension", "projection_seed"),
    "loss": tuple(LOSSES),
}
LEARNING = anything("regularisation", "huber_width", "positive_weight")  # of all that learns from the features


@dataclass(frozen=True)
class Options:
    """The options that an algorithm has beside those of every algorithm; the others keep their defaults.

    Attributes
    ----------
    values : by option, the values that it may have, beside its default; `None` for any
    reason : why the algorithm does not have others, as a clause
    remedies : by option that it does not have, what to do other than to leave it out or to change the algorithm
    own_settings : the settings that only this algorithm has
    """

    values: Mapping[str, Values]
    reason: str
    remedies: Mapping[str, str] = field(default_factory=dict)
    own_settings: type[OwnSettings] | None = None

    def has(self, name: str) -> bool:
        """Whether the option is a choice: more than one value is accepted."""
        values = self._values(name)
        return values is None or len(values) > 1

    def accepts(self, name: str, value: Any, rows: int) -> bool:
        """Whether the option may have the value, for a dataset of so many rows."""
        values = self._values(name)
        return values is None or value in (DEFAULTS[name], *(rows if each == ALL_ROWS else each for each in values))

    def refusal(self, request: Request, name: str, others: tuple[str, ...]) -> str:
        """Return why the request's value is refused, and what to do; `others` are the algorithms that accept it."""
        value, values = getattr(request, name), self._values(name) or ()
        if len(values) > 1:
            choice = f"choose one of {', '.join(values)}"
            if not others:
                return f"{name} {value!r} is unknown; {choice}"
            named = f"algorithm {request.algorithm!r} has no {name} {value!r}"
            return f"{named}; {choice}, or algorithm {', '.join(others)}"
        shown, only = (f"{value!r}", f", always with {name} {values[0]}") if values else (f"(given: {value})", "")
        remedy = self.remedies.get(name, "leave it out") + (f", or choose {', '.join(others)}" if others else "")
        return f"algorithm {request.algorithm!r} has no {name} {shown}; {self.reason}{only}; {remedy}"

    def _values(self, name: str) -> Values:
        if name == "settings":
            return None if self.own_settings else ()
        return (EVERY | dict(self.values)).get(name, ())
