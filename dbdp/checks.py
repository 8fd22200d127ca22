"""Checks of single values: an error names the value, the limit and the remedy. Imports nothing of dbdp."""

import math
from collections.abc import Collection
from typing import Any, TypeGuard


def is_whole(value: Any) -> TypeGuard[int]:
    """Return whether a value is an int; a bool and a float are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is an int or a float, NaN and infinities included; a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(name: str, value: Any, least: int, most: int, remedy: str = "") -> None:
    """Raise ValueError unless a value is an int from `least` to `most`."""
    if not is_whole(value) or not least <= value <= most:
        raise ValueError(f"{name} = {value!r} must be a whole number between {least} and {most}{_after(remedy)}")


def between(name: str, value: float, least: float, most: float, remedy: str = "") -> None:
    """Raise ValueError unless a number is from `least` to `most`; NaN is not."""
    if not least <= value <= most:
        raise ValueError(f"{name} = {value} must be between {least:g} and {most:g}{_after(remedy)}")


def positive(name: str, value: float, remedy: str) -> None:
    """Raise ValueError unless a number is positive and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} = {value} must be positive and finite{_after(remedy)}")


def truth(name: str, value: Any) -> None:
    """Raise ValueError unless a value is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} = {value!r} must be true or false")


def one_of(name: str, value: str, options: Collection[str]) -> str:
    """Return the value; raise ValueError unless it is one of the options."""
    if value not in options:
        raise ValueError(f"{name} {value!r} is unknown; choose one of {', '.join(options)}")
    return value


def _after(remedy: str) -> str:
    return f": {remedy}" if remedy else ""
