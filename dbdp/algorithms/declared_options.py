"""Which options of a request an algorithm has: the declarations from which checks, help and documents are derived."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from dbdp import checks
from dbdp.algorithms.plan import Request
from dbdp.learning.losses import LOSSES

Default = TypeVar("Default", int, float)
Own = TypeVar("Own", bound="OwnSettings")


@dataclass(frozen=True)
class Limits:
    """The allowed values of a setting, and its meaning."""

    kind: type  # int, float or str
    # least, most: the range of a number, both ends included.
    least: float
    most: float
    choices: tuple[str, ...]  # the values of a string; empty for a number
    meaning: str  # one line for a user

    @property
    def text(self) -> str:
        """The range, or the choices, as text."""
        return ", ".join(self.choices) or f"{_shown(self.least)} to {_shown(self.most)}"

    def check(self, name: str, value: Any, default: float | str | None) -> None:
        """Raise ValueError unless the value is one of the choices, or in the range; NaN is not."""
        if value is None:  # chosen automatically
            return
        if self.choices:
            checks.one_of(name, value, self.choices)
        elif self.kind is int:
            checks.whole(name, value, int(self.least), int(self.most), f"default: {shown(default)}")
        else:
            checks.between(name, value, self.least, self.most, f"default: {shown(default)}")


def shown(default: float | str | None) -> str:
    """Return the default of a setting as text."""
    return "chosen automatically" if default is None else str(default)


def _shown(limit: float) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


def number(default: Default, least: float, most: float, meaning: str) -> Default:
    """Declare a setting that is a number in a range that includes both ends, an integer if its default is one."""
    setting: Default = field(default=default, metadata={"limits": Limits(type(default), least, most, (), meaning)})
    return setting


def automatic(least: Default, most: Default, meaning: str) -> Default | None:
    """Declare a number that follows from public facts if it is left out, an integer if the ends of its range are."""
    setting: Default | None = field(default=None, metadata={"limits": Limits(type(least), least, most, (), meaning)})
    return setting


def word(choices: tuple[str, ...], meaning: str) -> str:
    """Declare a setting that is one of some strings, the first by default."""
    setting: str = field(default=choices[0], metadata={"limits": Limits(str, 0, 0, choices, meaning)})
    return setting


@dataclass(frozen=True)
class OwnSettings:
    """The settings of one algorithm; its subclasses are dataclasses of `number` and `word`."""

    network_defaults: ClassVar[Mapping[str, Any]] = {}  # those that are others for a network

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, (default, limits) in declared(type(self)).items():
            limits.check(name, getattr(self, name), default)


def declared(kind: type[OwnSettings]) -> dict[str, tuple[Any, Limits]]:
    """Return the default and the limits of each setting."""
    return {each.name: (each.default, each.metadata["limits"]) for each in fields(kind)}


def own_settings(request: Request, kind: type[Own]) -> Own:
    """Return the settings that only this algorithm has: its defaults, overridden by the request's JSON."""
    try:
        values = json.loads(request.settings or "{}")
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        values = request.settings
    _check_settings(request, values, declared(kind))
    return kind(**(dict(kind.network_defaults) if request.network else {}) | values)


_KINDS = {int: "a whole number", float: "a number", str: "a string"}


def _check_settings(request: Request, values: Any, known: Mapping[str, tuple[Any, Limits]]) -> None:
    """Raise ValueError unless the values are an object of known settings, each of its type."""
    of = f"of algorithm {request.algorithm!r}"
    listed = ", ".join(f"{name} (default: {shown(default)})" for name, (default, _) in known.items())
    if not isinstance(values, dict):
        raise ValueError(f"settings = {request.settings} {of} must be a JSON object with any of {listed}")
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"unknown setting {name!r} {of}; use {listed}{checks.nearest(name, known)}")
        kind = known[name][1].kind
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise ValueError(f"setting {name} = {value!r} must be {_KINDS[kind]}")


Values = tuple[Any, ...] | None  # None: any value; its plan checks the range
ALL_ROWS = "all rows"  # of batch_size: the number of rows of the dataset
DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Request)}


def anything(*names: str) -> dict[str, Values]:
    """Declare options that may have any value."""
    return dict.fromkeys(names)


COMMON: dict[str, Values] = {
    **anything("epsilon", "delta", "algorithm", "projection_dimension", "projection_seed"),
    **anything("name", "pairs", "pair_cells", "cohort"),
    "loss": tuple(LOSSES),
}
LEARNING = anything("regularisation", "huber_width", "positive_weight")  # of algorithms that use the features


@dataclass(frozen=True)
class Options:
    """The options that an algorithm has in addition to the common ones; the others keep their defaults."""

    values: Mapping[str, Values]  # for each option, its values other than the default; None for any
    # For options that it does not have, an action other than to drop them or to change the algorithm.
    remedies: Mapping[str, str] = field(default_factory=dict)
    own_settings: type[OwnSettings] | None = None  # the settings that only this algorithm has
    # The signal τ/d below which its noise is expected to dominate, see `dbdp.algorithms.settings.warning_of`. On the
    # tables of decision 034 no algorithm with the default beat the majority class, or the mean, below it.
    least_signal: float = 0.4

    def has(self, name: str) -> bool:
        """Return whether more than one value of the option is accepted."""
        values = self._values(name)
        return values is None or len(values) > 1

    def accepts(self, name: str, value: Any, rows: int) -> bool:
        """Return whether the option may have the value, for a dataset of that many rows."""
        values = self._values(name)
        return values is None or value in (DEFAULTS[name], *(rows if each == ALL_ROWS else each for each in values))

    def refusal(self, request: Request, name: str, others: tuple[str, ...]) -> str:
        """Return the message that refuses the request's value; `others` are the algorithms that accept it."""
        value, values = getattr(request, name), self._values(name) or ()
        if len(values) > 1:
            choice = f"choose one of {', '.join(values)}"
            if not others:
                return checks.unknown(name, value, values)
            named = f"algorithm {request.algorithm!r} does not support {name} {value!r}"
            return f"{named}; {choice}, or use algorithm {', '.join(others)}"
        got = f"{name} {value!r}" if values else f"{name} (got {value})"
        only = f", only {values[0]!r}" if values else ""
        remedy = self.remedies.get(name, f"drop {name}") + (f", or use algorithm {', '.join(others)}" if others else "")
        return f"algorithm {request.algorithm!r} does not support {got}{only}; {remedy}"

    def _values(self, name: str) -> Values:
        if name == "settings":
            return None if self.own_settings else ()
        return (COMMON | dict(self.values)).get(name, ())
