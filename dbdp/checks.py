"""Checks of values: an error names the value, the limit and the remedy. Imports nothing of dbdp."""

import math
import re
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
        raise ValueError(unknown(name, value, options))
    return value


def unknown(name: str, value: str, options: Collection[str]) -> str:
    """Return the message that refuses a word that is not one of the options, with the most similar one."""
    return f"{name} {value!r} is unknown; choose one of {', '.join(options)}{nearest(value, options)}"


def nearest(word: str, known: Collection[str]) -> str:
    """Return `; did you mean 'NAME'?` for the most similar known name; nothing if none is similar."""
    from difflib import get_close_matches

    folded = {name.casefold(): name for name in known}
    similar = get_close_matches(word.casefold(), folded, 1)
    return f"; did you mean {folded[similar[0]]!r}?" if similar else ""


def no_model(name: str, known: Collection[str]) -> str:
    """Return the message that refuses a name that no model has, with the most similar known one."""
    return f"model {name!r} does not exist; see dbdp.models{nearest(name, known)}"


def columns(names: Collection[str]) -> str:
    """Return `column a`, or `columns a, b`."""
    return f"column{'s' if len(names) > 1 else ''} {', '.join(names)}"


def wrong_length(length: int, expected: int) -> str:
    """Return the message that refuses an array of another length than a model's."""
    numbers = "1 number" if length == 1 else f"{length} numbers"
    return f"the array has {numbers}, the model was trained on {expected}; pass as many"


_MODEL_NAME = re.compile(r"[^\W\d][\w.-]{0,62}")


def model_name(name: Any) -> None:
    """Raise ValueError unless a value can name models; one of digits, or with @, would be mistaken for a reference."""
    if not isinstance(name, str) or not _MODEL_NAME.fullmatch(name):
        shown = f"{name!r}"[:100]
        raise ValueError(
            f"name = {shown} must begin with a letter and have at most 63 letters, digits, '_', '-' and '.'"
        )


def _after(remedy: str) -> str:
    return f": {remedy}" if remedy else ""
