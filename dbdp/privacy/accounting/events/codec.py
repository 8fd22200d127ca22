"""A release's guarantees, and how the ledger stores them: events as data, checked when they are read."""

import math
from dataclasses import dataclass, fields
from typing import Any

from dbdp.privacy.accounting.events.bounds import check_epsilon_delta
from dbdp.privacy.accounting.events.event import EVENTS, Event
from dbdp.privacy.accounting.events.single import EpsilonDeltaDpEvent

REPLACE_ONE, ADD_REMOVE = "replace-one", "add-remove"
REPLACE_ONE_UNIT = "replace-one-unit"  # neighbours differ in all records of one unit (§11.6)
CHANGE_ONE, CHANGE_ONE_UNIT = "change-one", "change-one-unit"  # one is replaced, added or removed: a capacity (§18)
MOST_LEVELS = 20  # of nested events; those of our algorithms have five


@dataclass(frozen=True)
class Release:
    """A mechanism's two guarantees: its event, and its stand-alone (ε, δ)."""

    event: Event
    epsilon: float
    delta: float
    neighbours: str = REPLACE_ONE

    def as_gaussian(self) -> tuple[float, Event]:
        """Return μ², and the event whose leak is charged with it: the event itself, or its stand-alone (ε, δ)."""
        own, alone = self.event.gaussian_square(), self.alone()
        return (alone.gaussian_square(), alone) if own is None else (own, self.event)

    def as_concentrated(self) -> tuple[float, Event]:
        """Return ρ, and the event whose leak is charged with it: the event itself, or its stand-alone (ε, δ)."""
        own, alone = self.event.concentration(), self.alone()
        return (alone.concentration(), alone) if own is None else (own, self.event)

    def alone(self) -> EpsilonDeltaDpEvent:
        """Return the stand-alone guarantee as an event."""
        return EpsilonDeltaDpEvent(self.epsilon, self.delta)

    def as_replace_one(self) -> "Release":
        """Return the release for replace-one neighbours; raise ValueError if its event has no such form."""
        if self.neighbours == REPLACE_ONE:
            return self
        doubled = self.alone().as_replace_one()
        return Release(self.event.as_replace_one(), doubled.epsilon, doubled.delta)

    def as_data(self) -> dict[str, Any]:
        """Return the release as data, for the ledger."""
        return {
            "event": _event_data(self.event),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.neighbours,
        }

    @classmethod
    def from_data(cls, data: Any) -> "Release":
        """Return the release that `as_data` described."""
        if not isinstance(data, dict) or not {"event", "epsilon", "delta"} <= set(data):
            raise ValueError("the guarantee of a charge is incomplete; give event, epsilon and delta")
        neighbours = data.get("neighbours", REPLACE_ONE)
        if neighbours not in (REPLACE_ONE, ADD_REMOVE):
            raise ValueError(f"neighbours {neighbours!r} are unknown; they are {REPLACE_ONE} or {ADD_REMOVE}")
        check_epsilon_delta(data["epsilon"], data["delta"])
        try:
            return cls(_event_from(data["event"]), data["epsilon"], data["delta"], neighbours)
        except (KeyError, TypeError) as error:
            raise ValueError(
                "the event of a charge does not have the numbers of its kind; give all of them, and no others"
            ) from error


def _event_data(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = {"event": type(event).__name__}
    for each in fields(event):  # type: ignore[arg-type]
        if getattr(event, each.name) != each.default:
            data[event.written_names.get(each.name, each.name)] = _value_data(getattr(event, each.name))
    return data


def _value_data(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value_data(item) for item in value]
    if isinstance(value, float):
        return "inf" if math.isinf(value) else value
    return _event_data(value) if isinstance(value, Event) else value


def _event_from(data: dict[str, Any], levels: int = MOST_LEVELS) -> Event:
    if not levels:
        raise ValueError(f"event cannot be charged: its events are nested more than {MOST_LEVELS} levels deep")
    values = dict(data) if isinstance(data, dict) else {"event": data}
    kind = values.pop("event")
    if kind not in EVENTS:
        raise ValueError(f"event {kind!r} cannot be charged; known are {', '.join(EVENTS)}")
    names = {written: name for name, written in EVENTS[kind].written_names.items()}
    if unwritten := values.keys() & names.values():
        raise KeyError(*unwritten)
    event = EVENTS[kind](**{names.get(name, name): _value_from(value, levels - 1) for name, value in values.items()})
    event.check()
    return event


def _value_from(value: Any, levels: int) -> Any:
    if isinstance(value, list):
        return tuple(_value_from(item, levels) if isinstance(item, dict) else _number(item) for item in value)
    if isinstance(value, dict):
        return _event_from(value, levels)
    return _number(value)


def _number(value: Any) -> Any:
    return math.inf if value == "inf" else value
