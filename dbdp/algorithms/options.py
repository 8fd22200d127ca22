"""Which options of a request an algorithm has: a declaration beside each `plan`, read wherever options are listed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from dbdp import checks
from dbdp.algorithms.plan import Request
from dbdp.learning.losses import LOSSES

Default = TypeVar("Default", int, float, str)
Own = TypeVar("Own", bound="OwnSettings")


@dataclass(frozen=True)
class Limits:
    """What a setting may be, and what it means.

    Attributes
    ----------
    least, most : float
        The range of a number, both included.
    choices : tuple[str, ...]
        Of a word; empty for a number.
    meaning : str
        One line for a user.
    """

    least: float
    most: float
    choices: tuple[str, ...]
    meaning: str

    @property
    def text(self) -> str:
        """The range, or the choices, in words."""
        return ", ".join(self.choices) or f"{_shown(self.least)} to {_shown(self.most)}"

    def check(self, name: str, value: Any, default: float | str) -> None:
        """Raise ValueError unless the value lies within; NaN does not."""
        if self.choices:
            checks.one_of(name, value, self.choices)
        elif isinstance(default, int):
            checks.whole(name, value, int(self.least), int(self.most), f"the default is {default}")
        else:
            checks.between(name, value, self.least, self.most, f"the default is {default}")


def _shown(limit: float) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


def number(default: Default, least: float, most: float, meaning: str) -> Default:
    """Declare a setting that is a number, a whole one if its default is, in a range that includes both ends."""
    setting: Default = field(default=default, metadata={"limits": Limits(least, most, (), meaning)})
    return setting


def word(choices: tuple[str, ...], meaning: str) -> str:
    """Declare a setting that is one of some words, the first by default."""
    setting: str = field(default=choices[0], metadata={"limits": Limits(0, 0, choices, meaning)})
    return setting


@dataclass(frozen=True)
class OwnSettings:
    """The settings of one algorithm; its subclasses are dataclasses of `number` and `word`."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, (default, limits) in declared(type(self)).items():
            limits.check(name, getattr(self, name), default)


def declared(kind: type[OwnSettings]) -> dict[str, tuple[Any, Limits]]:
    """Return default and limits of each setting."""
    return {each.name: (each.default, each.metadata["limits"]) for each in fields(kind)}


def own_settings(request: Request, kind: type[Own]) -> Own:
    """Return the settings that only this algorithm has: its defaults, which the request's JSON overrides.

    Raises
    ------
    ValueError
        If it names another setting, or a value is of another kind or out of its range.
    """
    try:
        values = json.loads(request.settings or "{}")
    except (ValueError, RecursionError):  # no JSON, or numbers or levels without end
        values = request.settings
    known = {name: default for name, (default, _) in declared(kind).items()}
    if not isinstance(values, dict) or set(values) - set(known):
        raise ValueError(
            f"settings of algorithm {request.algorithm!r} are {request.settings}; give an object with any of "
            f"{', '.join(f'{name} (default {value})' for name, value in known.items())}"
        )
    for name, value in values.items():
        wanted = (int, float) if isinstance(known[name], float) else type(known[name])
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise ValueError(f"setting {name} = {value!r} must be like its default, {known[name]!r}")
    return kind(**values)


Values = tuple[Any, ...] | None  # None: any value; its range is the plan's to check
ALL_ROWS = "all rows"  # of batch_size: as many as the dataset has
DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Request)}


def anything(*names: str) -> dict[str, Values]:
    """Declare options that may have any value."""
    return dict.fromkeys(names)


COMMON: dict[str, Values] = {
    **anything("epsilon", "delta", "algorithm", "projection_dimension", "projection_seed"),
    "loss": tuple(LOSSES),
}
LEARNING = anything("regularisation", "huber_width", "positive_weight")  # of all that learns from the features


@dataclass(frozen=True)
class Options:
    """The options that an algorithm has beside those of every algorithm; the others keep their defaults.

    Attributes
    ----------
    values : Mapping[str, Values]
        By option, the values that it may have, beside its default; `None` for any.
    reason : str
        Why the algorithm does not have others, as a clause.
    remedies : Mapping[str, str]
        By option that it does not have, what to do other than to leave it out or to change the algorithm.
    own_settings : type[OwnSettings] | None
        The settings that only this algorithm has.
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
        return (COMMON | dict(self.values)).get(name, ())
