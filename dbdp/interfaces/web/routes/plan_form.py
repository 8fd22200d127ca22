"""The form of a plan: read its fields as a request, and write a request as SQL."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from dbdp.algorithms import ALGORITHMS, AUTO, Request
from dbdp.controller.training_options import help_of, options
from dbdp.learning.losses import LOSSES

_FIRST = ("epsilon", "delta", "algorithm", "name")
_CHOICES = {"algorithm": (AUTO, *ALGORITHMS), "loss": ("", *LOSSES)}
_LARGEST = 2**31  # bound of SQL's int


@dataclass(frozen=True)
class Field:
    """A field of the form."""

    name: str  # of the option
    help: str
    choices: tuple[str, ...]  # the values that it may have; empty for any text
    text: str  # the text that was typed, or the default
    problem: str  # what is wrong with it; empty if nothing is

    @property
    def is_first(self) -> bool:
        """Whether it is shown without opening “More options”."""
        return self.name in _FIRST

    @property
    def is_required(self) -> bool:
        """Whether the option has no default."""
        return self.name == "epsilon"


def read(texts: Mapping[str, str]) -> tuple[list[Field], Request | None]:
    """Return all fields of the form, and the request: None if ε is missing or a field is wrong."""
    values: dict[str, Any] = {}
    fields = []
    for each, kind in options():
        text = texts.get(each.name, "").strip()
        problem = ""
        try:
            if text:
                values[each.name] = _value(text, kind)
            elif each.name == "epsilon" and texts:
                problem = "A training needs an ε."
        except ValueError as error:
            problem = str(error)
        shown = text or _default(each.name, each.default)
        fields.append(Field(each.name, help_of(each.name), _CHOICES.get(each.name, ()), shown, problem))
    is_complete = "epsilon" in values and not any(field.problem for field in fields)
    return fields, Request(**values) if is_complete else None


def suggested(fields: list[Field], facts: Mapping[str, Any]) -> list[Field]:
    """Return the fields of an empty form with values to begin with, from public facts of the dataset."""
    texts = guarantee(facts)
    return [replace(field, text=texts.get(field.name, field.text)) for field in fields]


def guarantee(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return an ε and a δ to begin with, from public facts of a dataset.

    ε is 1, or the budget's if that is less; δ the power of ten at or below 1/(10 n) and a tenth of the budget's δ, or 0
    if that is 0.
    """
    most = min(0.1 / max(facts["units"], 1), facts["delta"] / 10)
    delta = 10.0 ** math.floor(math.log10(most) + 1e-9) if most > 0 else 0.0
    return {"epsilon": f"{min(1.0, facts['epsilon']):g}", "delta": f"{delta:g}"}


def marked(fields: list[Field], message: str) -> list[Field]:
    """Return the fields, with a refusal's message at those that it is about."""
    missing = re.match(r"algorithm '\w+' does not support (\w+)", message)
    patterns = {each.name: rf"^{each.name}\b|\b{each.name} = " for each in fields}
    marks = {missing[1]} if missing else {name for name, pattern in patterns.items() if re.search(pattern, message)}
    return [replace(field, problem=message) if field.name in marks else field for field in fields]


def _default(name: str, default: Any) -> str:
    """Return the initial text of an option's field."""
    if name == "epsilon" or default is None:
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def _value(text: str, kind: type) -> Any:
    if kind is str:
        return text
    try:
        value = kind(text)
    except ValueError:
        wanted = "an integer, such as 50" if kind is int else "a number, such as 0.5 or 1e-6"
        raise ValueError(f"{text!r} is not {wanted}.") from None
    if kind is int and not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"{text} is too large; the limit is {_LARGEST - 1}.")
    return value


def statement(dataset: str, request: Request) -> str:
    """Return the SQL statement of a training, a call of dbdp.dp_train."""
    chosen = {"epsilon": request.epsilon, "delta": request.delta} | request.given
    options = [sql.SQL("{} => {}").format(sql.SQL(name), sql.Literal(value)) for name, value in chosen.items()]
    arguments = sql.SQL(", ").join([sql.Literal(dataset), *options])
    return sql.SQL("select * from dbdp.dp_train({});").format(arguments).as_string()
