"""A released linear model as one SQL function, for a PostgreSQL without dbdp.

The function reads the summands of `row_columns`, as the scorers do, and so predicts the same: of two classes the
probability of the positive one, of several the class, of a number its value, and NULL where they have no prediction.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from dbdp.learning.rows.features import SCALED
from dbdp.registry.declarations import Declaration
from dbdp.registry.results import row_columns
from dbdp.registry.results.row_columns import Column, ColumnGroups, Crossing, Ending

LONGEST_NAME = 63  # bytes of an identifier
_STEEP = 700.0  # log-odds of which PostgreSQL has the exponential


def function(
    name: str, declaration: Declaration, coefficients: Sequence[Any], intercepts: Sequence[float], about: str
) -> str:
    """Return statements that create the function of a model, from what is stored of it; `about` is its comment.

    Coefficients have the shape (outputs, features), and intercepts (outputs,).
    """
    if not name or len(name.encode()) > LONGEST_NAME or "\0" in name:
        raise ValueError(f"name is {name!r}; give the name of a function, of 1 to {LONGEST_NAME} bytes")
    if declaration.vector:
        arguments = [(declaration.vector.column, "float8[]")]
    else:
        arguments = [(each.column, "float8") for each in declaration.numeric]
        arguments += [(each.column, "text") for each in declaration.categorical]
    decisions = [_decision(declaration, own, last) for own, last in zip(coefficients, intercepts, strict=True)]
    listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in arguments)
    signature = f"{quoted(name)}({', '.join(kind for _, kind in arguments)})"
    return (
        f"create or replace function {quoted(name)}({listed})\n"
        f"returns {'text' if declaration.kind == 'classes' else 'float8'}\nlanguage sql immutable parallel safe\n"
        f"as {written(f'select {_answer(declaration, decisions)}')};\n"
        f"comment on function {signature} is {written(about)};\n"
    )


def about(declaration: Declaration, receipt: Mapping[str, Any]) -> str:
    """Return the comment of a model's function: what it predicts, and what the model's release promises."""
    label, is_binary = declaration.label, declaration.kind == "binary"
    says = f"probability that {label} is {declaration.positive}" if is_binary else label
    promise = ", ".join(f"{name} = {receipt[name]}" for name in ("epsilon", "delta") if name in receipt)
    model = f"model {receipt.get('model')} of dataset {receipt.get('dataset')}"
    return f"{says}, by {model}, released by dbdp with {promise}"


def quoted(identifier: str) -> str:
    """Return an identifier in quotation marks, without a character that cannot be printed."""
    doubled = identifier.replace('"', '""')
    if identifier.isprintable():
        return f'"{doubled}"'
    return f'U&"{_escaped(doubled, "")}"'


def written(text: str) -> str:
    """Return a text as a literal, without a character that cannot be printed."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'" if text.isprintable() and "\\" not in text else f"E'{_escaped(doubled, 'u')}'"


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


def _number(value: float) -> str:
    return f"'{float(value)!r}'::float8"


def _list(values: Sequence[float]) -> str:
    return f"'{{{','.join(repr(float(value)) for value in values)}}}'::float8[]"


def _answer(declaration: Declaration, decisions: list[str]) -> str:
    """Return SQL of a prediction, from that of each output."""
    if declaration.kind == "classes":
        labels = zip(decisions, map(written, declaration.classes), strict=True)
        rows = ", ".join(f"({place}, {score}, {label})" for place, (score, label) in enumerate(labels))
        scored = f"(values {rows}) as t(place, score, label) where score is not null"
        return f"label from {scored} order by score desc, place limit 1"
    return decisions[0]


def _finished(declaration: Declaration, decision: str) -> str:
    """Return SQL of what a decision that is not NULL becomes: of two classes a probability."""
    if declaration.kind != "binary":
        return decision
    return f"1 / (1 + exp(-least(greatest({decision}, {_number(-_STEEP)}), {_number(_STEEP)})))"


def _decision(declaration: Declaration, coefficients: Sequence[float], intercept: float) -> str:
    """Return SQL of what an output says of a row, NULL without an answer."""
    if declaration.kind == "classes":  # the norm of a row would divide all decisions, which changes no class
        declaration = replace(declaration, encoding=SCALED)
    ending = row_columns.ending(declaration)
    if declaration.vector:
        return _of_array(declaration, coefficients, intercept, ending)
    types = {each.column: "double precision" for each in declaration.numeric}
    types |= {each.column: "text" for each in declaration.categorical}
    weights, last = row_columns.of_coordinates(declaration, list(coefficients), intercept)
    read = enumerate(row_columns.columns(declaration, weights, types, ">"), start=1)
    columns = [_Argument(f"${place}", column) for place, column in read]
    cells = _cells(row_columns.crossing(declaration, weights, types, ">"), columns)
    score = " + ".join([_number(last), *[each.summand for each in columns], *[summand for summand, _ in cells]])
    square = " + ".join([*[each.square for each in columns], *[square for _, square in cells]])
    ended = _finished(declaration, _ended(score, square, ending))
    required = [each.is_number for each in columns if each.is_required]
    return f"case when {' and '.join(required)} then {ended} end" if required else ended


def _cells(crossing: Crossing, columns: Sequence["_Argument"]) -> list[tuple[str, str]]:
    """Return SQL of what each pair adds to the decision, and to the square of the row."""
    groups = [_group(columns[each.place], each) for each in crossing.groups]
    found = []
    for pair in crossing.pairs:
        cell = f"{groups[pair.first]} * {crossing.groups[pair.second].groups} + {groups[pair.second]}"
        square = f"case when {cell} is null then 0 else {_number(crossing.square)} end"
        found.append((f"coalesce(({_list(pair.weights)})[1 + {cell}], 0)", square))
    return found


def _ended(score: str, square: str, ending: Ending) -> str:
    """Return SQL of a decision, from those of a sum and of the square of the row without its constant."""
    if not math.isnan(ending.square):
        length = f"sqrt({square} + {_number(ending.square)})"
        score = f"({score}) / {length}" if ending.square else f"coalesce(({score}) / nullif({length}, 0), 0)"
    if ending.most < math.inf:
        score = f"least(greatest({score}, {_number(ending.least)}), {_number(ending.most)})"
    return score


def _of_array(declaration: Declaration, weights: Sequence[float], intercept: float, ending: Ending) -> str:
    """Return SQL of the decision of an array: NULL unless it is one list of so many finite numbers."""
    numbers, square = f"count(*) filter (where {_finite('v')}) = {len(weights)}", "sum(v * v)"
    if not math.isnan(ending.square):
        square = f"sum((v / {_number(ending.norm_bound)}) ^ 2)"
    ended = _finished(declaration, _ended(f"{_number(intercept)} + sum(w * v)", square, ending))
    valid = f"count(*) = {len(weights)} and {numbers} and array_ndims($1) = 1"
    return f"(select case when {valid} then {ended} end from unnest($1, {_list(weights)}) as u(v, w))"


def _finite(value: str) -> str:
    """Return SQL for whether a number is finite; NULL for NULL, and NaN is above all."""
    return f"{value} between {_number(-sys.float_info.max)} and {_number(sys.float_info.max)}"


@dataclass(frozen=True)
class _Argument:
    """SQL of what a column adds; `raw` is the value that is passed."""

    raw: str
    of: Column

    @property
    def is_category(self) -> bool:
        """Whether its values are texts."""
        return isinstance(self.of.lookup, dict)

    @property
    def is_required(self) -> bool:
        """Whether a row without it has no prediction."""
        return math.isnan(self.of.missing)

    @property
    def is_number(self) -> str:
        """Whether the row has it; not null."""
        return f"{self.raw} is not null" if self.is_category else f"coalesce({_finite(self.raw)}, false)"

    @cached_property
    def value(self) -> str:
        """A finite number."""
        if self.is_required:
            return self.raw
        return f"case when {_finite(self.raw)} then {self.raw} else {_number(self.of.missing)} end"

    @cached_property
    def position(self) -> str:
        """The position of the number on its scale."""
        _, lower, upper = self.of.numbers
        clipped = f"least(greatest({self.value}, {_number(lower)}), {_number(upper)})"
        if self.of.bend is None:
            return clipped
        centre, factor = self.of.bend
        return f"asinh(({clipped} - {_number(centre)}) * {_number(factor)})"

    @cached_property
    def coordinate(self) -> str:
        """The coordinate of a number without intervals."""
        origin, length = self.of.affine
        return (
            self.position
            if (origin, length) == (0.0, 1.0)
            else f"({self.position} - {_number(origin)}) / {_number(length)}"
        )

    @cached_property
    def interval(self) -> str:
        """The place of the number's interval."""
        return _bucket(self.value, [each.begin for each in self.of.intervals[1:]])

    @property
    def share(self) -> str:
        """The share of the way between two knots; 0 for bins."""
        starts = [each.start for each in self.of.intervals]
        lengths = [each.length for each in self.of.intervals]
        if math.inf in lengths:
            return "0"
        start, length = (_chosen(each, self.interval) for each in (starts, lengths))
        return f"least(greatest(({self.position} - {start}) / {length}, 0), 1)"

    @property
    def summand(self) -> str:
        """What it adds to the decision."""
        if self.is_category:
            return _case(self.raw, self.of.lookup, "0")
        summand = self.line if self.of.intervals else f"{_number(self.of.numbers[0])} * ({self.coordinate})"
        return summand if self.of.indicator is None else f"{summand} + {self._indicated(_number(self.of.indicator))}"

    @property
    def line(self) -> str:
        """The line of the number's interval, from the first position on: nothing large cancels. Bins are flat."""
        first = self.of.intervals[0].start
        rises = [each.rise / each.length for each in self.of.intervals]
        flat = [each.weight - rise * (each.start - first) for each, rise in zip(self.of.intervals, rises, strict=True)]
        if not any(rises):
            return _chosen(flat, self.interval)
        moved = f"({self.position} - {_number(first)})"
        return f"{_chosen(flat, self.interval)} + {_chosen(rises, self.interval)} * {moved}"

    @property
    def square(self) -> str:
        """What it adds to the squared norm of the row."""
        if self.is_category:
            return _case(self.raw, dict.fromkeys(self.of.lookup, 1.0), "0")
        coordinates = [self.share, f"1 - {self.share}"] if self.of.intervals else [self.coordinate]
        square = " + ".join(f"({each}) ^ 2" for each in coordinates)
        return square if self.of.indicator is None else f"{square} + {self._indicated('1')}"

    def _indicated(self, value: str) -> str:
        return f"case when {_finite(self.raw)} then 0 else {value} end"


def _group(column: _Argument, of: ColumnGroups) -> str:
    """Return SQL of the group of a column's value in pairs, NULL without one."""
    if of.lookup is None:
        return _bucket(column.value, of.edges)
    return f"({_case(column.raw, of.lookup, 'null')})::int"


def _case(value: str, lookup: Mapping[bytes | None, float], otherwise: str) -> str:
    """Return SQL of the number of a text."""
    known = [f"when {written(key.decode())} then {_number(each)}" for key, each in lookup.items() if key is not None]
    found = f"case {value} {' '.join(known)} else {otherwise} end" if known else otherwise
    return f"case when {value} is null then {_number(lookup[None])} else {found} end" if None in lookup else found


def _bucket(value: str, begins: Sequence[float]) -> str:
    """Return SQL of how many of the ascending numbers are not above a value."""
    return f"width_bucket({value}, {_list(begins)})" if begins else "0"


def _chosen(values: Sequence[float], place: str) -> str:
    """Return SQL of the number at a place; of equal ones that number."""
    return _number(values[0]) if len(set(values)) == 1 else f"({_list(values)})[1 + {place}]"
