"""The spellings in which databases differ, of a function that predicts: PostgreSQL and DuckDB."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

from dbdp.checks import one_of

_MOST_ARGUMENTS = 50  # pairs of a function that PostgreSQL calls with 100 arguments or fewer
_MOST_SUBSCRIPTS = 200  # numbers of an array that is not compressed, so that reading each of them is fast


class Dialect(ABC):
    """How a database spells a function of numbers, texts and arrays; values are SQL."""

    name: str
    brackets: tuple[str, str]  # of a list of numbers

    def numbers(self, values: Sequence[float]) -> str:
        """Return a list of numbers."""
        first, last = self.brackets
        return f"'{first}{','.join(repr(float(value)) for value in values)}{last}'::float8[]"

    @abstractmethod
    def argument(self, place: int, name: str, kind: str) -> str:
        """Return the value that is passed as an argument; places begin at 1."""

    @abstractmethod
    def quoted(self, identifier: str) -> str:
        """Return an identifier in quotation marks, without a character that cannot be printed."""

    @abstractmethod
    def written(self, text: str) -> str:
        """Return a text as a literal, without a character that cannot be printed."""

    @abstractmethod
    def bucket(self, value: str, begins: Sequence[float]) -> str:
        """Return how many of the ascending numbers are not above a value."""

    @abstractmethod
    def lists(self, array: str, length: int) -> Mapping[str, str]:
        """Return lists of finite numbers, subscripted from 1 on, by the conditions that an array is one so long."""

    def product(self, array: str, weights: Sequence[float]) -> str:
        """Return the sum of weighted numbers of such a list."""
        terms = enumerate(weights, start=1)
        return " + ".join(f"'{float(each)!r}'::float8 * {array}[{place}]" for place, each in terms)

    def square(self, array: str, length: int, unit: str) -> str:
        """Return the sum of the squares of the numbers, divided by a unit."""
        return " + ".join(f"({array}[{place}] / {unit}) ^ 2" for place in range(1, length + 1))

    @abstractmethod
    def json(self, values: Mapping[str, str]) -> str:
        """Return a JSON object of numbers by the literals of their keys."""

    @abstractmethod
    def definition(self, name: str, arguments: Mapping[str, str], returns: str, body: str, about: str) -> str:
        """Return statements that create a function, and its comment; types by the names of arguments."""


class _PostgreSQL(Dialect):
    """A function that the planner replaces by its expression, unless it has a subquery."""

    name, brackets = "postgresql", ("{", "}")

    def argument(self, place: int, name: str, kind: str) -> str:
        return f"${place}"

    def quoted(self, identifier: str) -> str:
        doubled = identifier.replace('"', '""')
        return f'"{doubled}"' if identifier.isprintable() else f'U&"{_escaped(doubled, "")}"'

    def written(self, text: str) -> str:
        doubled = text.replace("'", "''")
        return f"'{doubled}'" if text.isprintable() and "\\" not in text else f"E'{_escaped(doubled, 'u')}'"

    def bucket(self, value: str, begins: Sequence[float]) -> str:
        return f"width_bucket({value}, {self.numbers(begins)})" if begins else "0"

    def lists(self, array: str, length: int) -> Mapping[str, str]:
        infinite = f"{array} && '{{NaN,Infinity,-Infinity}}'::float8[]"
        finite = f"not {infinite} and array_position({array}, null) is null"
        valid = f"case when array_ndims({array}) = 1 and cardinality({array}) = {length} then {finite} end"
        if length > _MOST_SUBSCRIPTS:
            return {valid: array}
        return {f"array_lower({array}, 1) = 1 and {valid}": array, valid: f"({array}[:])"}

    def product(self, array: str, weights: Sequence[float]) -> str:
        if len(weights) > _MOST_SUBSCRIPTS:
            return f"(select sum(w * v) from unnest({array}, {self.numbers(weights)}) as u(v, w))"
        return super().product(array, weights)

    def square(self, array: str, length: int, unit: str) -> str:
        if length > _MOST_SUBSCRIPTS:
            return f"(select sum((v / {unit}) ^ 2) from unnest({array}) as u(v))"
        return super().square(array, length, unit)

    def json(self, values: Mapping[str, str]) -> str:
        entries = [f"{key}, {value}" for key, value in values.items()]
        parts = [entries[first : first + _MOST_ARGUMENTS] for first in range(0, len(entries), _MOST_ARGUMENTS)]
        return " || ".join(f"jsonb_build_object({', '.join(part)})" for part in parts)

    def definition(self, name: str, arguments: Mapping[str, str], returns: str, body: str, about: str) -> str:
        listed = ", ".join(f"{self.quoted(column)} {kind}" for column, kind in arguments.items())
        return (
            f"create or replace function {self.quoted(name)}({listed})\n"
            f"returns {returns}\nlanguage sql immutable parallel safe\n"
            f"as {self.written(f'select {body}')};\n"
            f"comment on function {self.quoted(name)}({', '.join(arguments.values())}) is {self.written(about)};\n"
        )


class _DuckDB(Dialect):
    """A macro; an argument of any type is converted."""

    name, brackets = "duckdb", ("[", "]")

    def argument(self, place: int, name: str, kind: str) -> str:
        return f"({self.quoted(name)}::{kind})"

    def quoted(self, identifier: str) -> str:
        return f'"{_printable(identifier).replace(chr(34), chr(34) * 2)}"'

    def written(self, text: str) -> str:
        doubled = _printable(text).replace("'", "''")
        return f"'{doubled}'"

    def bucket(self, value: str, begins: Sequence[float]) -> str:
        return f"({' + '.join(f'({value} >= {float(each)!r}::float8)::int' for each in begins) or '0'})"

    def lists(self, array: str, length: int) -> Mapping[str, str]:
        finite = f"isfinite(list_min({array})) and isfinite(list_max({array}))"
        return {f"len({array}) = {length} and list_count({array}) = {length} and {finite}": array}

    def json(self, values: Mapping[str, str]) -> str:
        return f"json_object({', '.join(f'{key}, {value}' for key, value in values.items())})"

    def definition(self, name: str, arguments: Mapping[str, str], returns: str, body: str, about: str) -> str:
        listed = ", ".join(map(self.quoted, arguments))
        return (
            f"create or replace macro {self.quoted(name)}({listed}) as\n{body};\n"
            f"comment on macro {self.quoted(name)} is {self.written(about)};\n"
        )


POSTGRESQL = _PostgreSQL.name
_DIALECTS = {each.name: each for each in (_PostgreSQL(), _DuckDB())}


def dialect_named(name: str) -> Dialect:
    """Return the dialect of that name; raise ValueError for another one."""
    return _DIALECTS[one_of("dialect", name, _DIALECTS)]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text!r} has a character that cannot be printed; DuckDB has no escape for it")
    return text


def _escaped(text: str, sign: str) -> str:
    """Return a text with escapes of four or, of E literals after U, of identifiers after +, more digits."""
    return "".join(map(partial(_escape, sign=sign), text))


def _escape(character: str, sign: str) -> str:
    if character == "\\":
        return "\\\\"
    code = ord(character)
    if character.isprintable():
        return character
    if code < 1 << 16:
        return f"\\{sign}{code:04x}"
    return f"\\U{code:08x}" if sign else f"\\+{code:06x}"
