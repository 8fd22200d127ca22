"""The form of a plan: text in fields to a request, and a request to the SQL that trains so."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from dbdp.algorithms import ALGORITHMS, Request
from dbdp.controller.options import help_of, options
from dbdp.learning.losses import LOSSES

_FIRST = ("epsilon", "delta", "algorithm", "loss", "epochs", "batch_size", "regularisation")
_CHOICES = {"algorithm": tuple(ALGORITHMS), "loss": tuple(LOSSES)}
_LARGEST = 2**31  # of SQL's int


@dataclass(frozen=True)
class Field:
    """A field of the form.

    Attributes
    ----------
    name, help : of the option
    choices : what it may be; empty where any text may be typed
    text, problem : what was typed, and what is wrong with it
    """

    name: str
    help: str
    choices: tuple[str, ...]
    text: str
    problem: str

    @property
    def is_first(self) -> bool:
        """Whether it is shown at once."""
        return self.name in _FIRST

    @property
    def is_required(self) -> bool:
        """Whether the option has no default."""
        return self.name == "epsilon"


def read(given: Mapping[str, str]) -> tuple[list[Field], Request | None]:
    """Return the fields as they were filled in, and the request that they make, if they do."""
    values: dict[str, Any] = {}
    fields = []
    for each, kind in options():
        text = given.get(each.name, "").strip()
        problem = ""
        try:
            if text:
                values[each.name] = _value(text, kind)
            elif each.name == "epsilon" and given:
                problem = "A training needs an ε."
        except ValueError as error:
            problem = str(error)
        shown = text or _default(each.name, each.default)
        fields.append(Field(each.name, help_of(each.name), _CHOICES.get(each.name, ()), shown, problem))
    is_whole = "epsilon" in values and not any(field.problem for field in fields)
    return fields, Request(**values) if is_whole else None


def marked(fields: list[Field], told: str) -> list[Field]:
    """Return the fields, with a refusal's text at the option missing, else at those it begins with or has values of."""
    missing = re.match(r"algorithm '\w+' has no (\w+)", told)
    patterns = {each.name: rf"^{each.name}\b|\b{each.name} = " for each in fields}
    marks = {missing[1]} if missing else {name for name, pattern in patterns.items() if re.search(pattern, told)}
    return [replace(field, problem=told) if field.name in marks else field for field in fields]


def _default(name: str, default: Any) -> str:
    """Return what the field of an option holds at first."""
    if name == "epsilon" or default is None:
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def _value(text: str, kind: type) -> Any:
    if kind is str:
        return text
    try:
        found = kind(text)
    except ValueError:
        wanted = "a whole number, such as 50" if kind is int else "a number, such as 0.5 or 1e-6"
        raise ValueError(f"{text!r} is not {wanted}.") from None
    if kind is int and not -_LARGEST <= found < _LARGEST:
        raise ValueError(f"{text} is too large; the limit is {_LARGEST - 1}.")
    return found


def statement(dataset: str, request: Request) -> str:
    """Return the SQL that trains as requested."""
    chosen = {"epsilon": request.epsilon, "delta": request.delta} | request.given
    options = [sql.SQL("{} => {}").format(sql.SQL(name), sql.Literal(value)) for name, value in chosen.items()]
    arguments = sql.SQL(", ").join([sql.Literal(dataset), *options])
    return sql.SQL("select * from dbdp.dp_train({});").format(arguments).as_string()
