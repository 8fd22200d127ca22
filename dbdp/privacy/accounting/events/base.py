"""What every event answers, and the checks of its numbers."""

import math
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, ClassVar

from dbdp import checks

MAX_COUNT = 10**12  # of repetitions: below it they are exact in floating point
EVENTS: dict[str, type["Event"]] = {}


class Event:
    """A mechanism. Neighbours are replace-one, unless its release says otherwise."""

    written_names: ClassVar[dict[str, str]] = {}  # of fields, in data, that are written under another name

    def __init_subclass__(cls) -> None:
        EVENTS[cls.__name__] = cls

    def divergence(self, order: float) -> float:
        """Return an upper bound on the Rényi divergence of order α > 1, infinity if none is known."""
        raise TypeError(f"{type(self).__name__} has no charge")

    def leak(self, epsilon: float) -> float:
        """Return the probability with which `divergence` may fail: to be added to δ, in a ledger of ε."""
        return 0.0

    def gaussian_square(self) -> float | None:
        """Return μ² such that, leaks apart, the event is at least as private as N(μ, 1) against N(0, 1), or None.

        Of mixtures, a joint distribution with the shares shown has the hockey-sticks' mean, so that the worst μ holds.
        """
        return None

    def concentration(self) -> float | None:
        """Return ρ such that D_α ≤ αρ for every α > 1 at once, leaks apart; None for an event without such a ρ."""
        return None

    def as_replace_one(self) -> "Event":
        """Return the replace-one form of an add-remove event (§13): replacing a record is removing and adding one."""
        raise ValueError(
            f"an add-remove {type(self).__name__} cannot be charged to a replace-one dataset; analyse it for "
            "replace-one"
        )

    def is_known_at(self, order: float) -> bool:
        """Return whether a divergence of that order is known of the event, and of all of its parts."""
        return all(part.is_known_at(order) for part in self._parts())

    def is_run(self) -> bool:
        """Return whether no part of the event is a repetition: each level of them multiplies the computation."""
        return all(part.is_run() for part in self._parts())

    def _parts(self) -> list["Event"]:
        values = [getattr(self, each.name) for each in fields(self)]  # type: ignore[arg-type]
        parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
        return [part for part in parts if isinstance(part, Event)]

    def check(self) -> None:
        """Raise ValueError unless every number is in its range."""
        for each in fields(self):  # type: ignore[arg-type]
            holds, condition = each.metadata["check"]
            if not holds(getattr(self, each.name)):
                raise ValueError(f"event cannot be charged: {condition.format(each.name)}")

    def check_parts(self) -> None:
        """Raise ValueError unless every number of the event and of its parts is in its range."""
        self.check()
        for part in self._parts():
            part.check_parts()


def checked(holds: Callable[[Any], bool], condition: str, **given: Any) -> Any:
    """Return a field with the check of its value."""
    return field(metadata={"check": (holds, condition)}, **given)


def within(low: float, high: float) -> Callable[[Any], bool]:
    """Return the check that a value is a number from low to high."""
    return lambda value: isinstance(value, int | float) and low <= value <= high


def between(low: float, high: float) -> Any:
    """Return a field of numbers from low to high."""
    return checked(within(low, high), f"{{}} must be between {low:g} and {high:g}")


def whole(most: int = MAX_COUNT, **given: Any) -> Any:
    """Return a field of whole numbers from 1 on."""
    condition = f"{{}} must be a whole number from 1 to {most}"
    return checked(lambda value: checks.is_whole(value) and 1 <= value <= most, condition, **given)


def delta() -> Any:
    """Return a field of probabilities below 1."""
    return checked(within(0, math.nextafter(1, 0)), "{} must be at least 0 and below 1")


def every(low: float, high: float) -> Callable[[Any], bool]:
    """Return the check that a tuple has numbers from low to high, one or more."""
    return lambda value: bool(value) and all(map(within(low, high), value))
