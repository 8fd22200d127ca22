"""A released linear model as one SQL function, for a database without dbdp.

The function reads the summands of `row_columns`, as the scorers do, and so predicts the same: of two classes the
probability of the positive one, of several the class, of a number its value, and NULL where they have no prediction.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dbdp.learning.rows.features import SCALED
from dbdp.registry.declarations import Declaration
from dbdp.registry.results import class_probabilities, row_columns
from dbdp.registry.results.exporting.sql_dialects import Dialect
from dbdp.registry.results.row_columns import Column, ColumnGroups, Crossing, Ending

_MOST_BYTES = 63  # of a function's name
_PROBABILITIES = "_probabilities"  # ends the name of a second function, of the probability of each of several classes
_STEEP = 700.0  # log-odds of which PostgreSQL has the exponential
_MOST_DECISION = 1e300  # differences of such decisions are finite


@dataclass(frozen=True)
class ExportedModel:
    """A released linear model: coefficients (outputs, features), intercepts (outputs,), in units of the columns."""

    declaration: Declaration
    coefficients: Sequence[Any]
    intercepts: Sequence[float]
    receipt: Mapping[str, Any]

    @property
    def has_probabilities(self) -> bool:
        """Whether it has several classes, each with a probability."""
        return self.declaration.kind == "classes" and class_probabilities.exist(dict(self.receipt))


def functions(model: ExportedModel, name: str, about: str, dialect: Dialect) -> str:
    """Return statements that create the function of a model in a dialect; `about` is its comment.

    A model of several classes with probabilities has a second function, which returns them as a JSON object.
    """
    declaration = model.declaration
    _check_name(name, len(_PROBABILITIES) * model.has_probabilities)
    if declaration.vector:
        arguments = {declaration.vector.column: "float8[]"}
    else:
        arguments = {each.column: "float8" for each in declaration.numeric}
        arguments |= {each.column: "text" for each in declaration.categorical}
    predict = _Predictor(model, arguments, dialect)
    returns = "text" if declaration.kind == "classes" else "float8"
    text = dialect.definition(name, arguments, returns, predict.answer, about)
    if model.has_probabilities:
        own = f"probabilities of the classes of {about}"
        text += dialect.definition(f"{name}{_PROBABILITIES}", arguments, "jsonb", predict.probabilities, own)
    return text


def about(declaration: Declaration, receipt: Mapping[str, Any]) -> str:
    """Return the comment of a model's function: what it predicts, and what the model's release promises."""
    label, is_binary = declaration.label, declaration.kind == "binary"
    says = f"probability that {label} is {declaration.positive}" if is_binary else label
    promise = ", ".join(f"{name} = {receipt[name]}" for name in ("epsilon", "delta") if name in receipt)
    model = f"model {receipt.get('model')} of dataset {receipt.get('dataset')}"
    return f"{says}, by {model}, released by dbdp with {promise}"


def _check_name(name: str, ending: int) -> None:
    most = _MOST_BYTES - ending
    if not name or len(name.encode()) > most or "\0" in name:
        raise ValueError(f"name is {name!r}; give the name of a function, of 1 to {most} bytes")


@dataclass(frozen=True)
class _Argument:
    """SQL of what a column adds; `raw` is the value that is passed."""

    raw: str
    of: Column
    dialect: Dialect

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
        return self.dialect.bucket(self.value, [each.begin for each in self.of.intervals[1:]])

    @property
    def share(self) -> str:
        """The share of the way between two knots; 0 for bins."""
        starts = [each.start for each in self.of.intervals]
        lengths = [each.length for each in self.of.intervals]
        if math.inf in lengths:
            return "0"
        start, length = (self._chosen(each) for each in (starts, lengths))
        return f"least(greatest(({self.position} - {start}) / {length}, 0), 1)"

    @property
    def summand(self) -> str:
        """What it adds to the decision."""
        if self.is_category:
            return self._case(self.of.lookup, "0")
        summand = self.line if self.of.intervals else f"{_number(self.of.numbers[0])} * ({self.coordinate})"
        return summand if self.of.indicator is None else f"{summand} + {self._indicated(_number(self.of.indicator))}"

    @property
    def line(self) -> str:
        """The line of the number's interval, from the first position on: nothing large cancels. Bins are flat."""
        first = self.of.intervals[0].start
        rises = [each.rise / each.length for each in self.of.intervals]
        flat = [each.weight - rise * (each.start - first) for each, rise in zip(self.of.intervals, rises, strict=True)]
        if not any(rises):
            return self._chosen(flat)
        moved = f"({self.position} - {_number(first)})"
        return f"{self._chosen(flat)} + {self._chosen(rises)} * {moved}"

    @property
    def square(self) -> str:
        """What it adds to the squared norm of the row."""
        if self.is_category:
            return self._case(dict.fromkeys(self.of.lookup, 1.0), "0")
        coordinates = [self.share, f"1 - {self.share}"] if self.of.intervals else [self.coordinate]
        square = " + ".join(f"({each}) ^ 2" for each in coordinates)
        return square if self.of.indicator is None else f"{square} + {self._indicated('1')}"

    def _indicated(self, value: str) -> str:
        return f"case when {_finite(self.raw)} then 0 else {value} end"

    def group(self, of: ColumnGroups) -> str:
        """Return SQL of the group of the value in pairs, NULL without one."""
        if of.lookup is None:
            return self.dialect.bucket(self.value, of.edges)
        return f"({self._case(of.lookup, 'null')})::int"

    def _case(self, lookup: Mapping[bytes | None, float], otherwise: str) -> str:
        """Return SQL of the number of a text."""
        known = [
            f"when {self.dialect.written(key.decode())} then {_number(each)}"
            for key, each in lookup.items()
            if key is not None
        ]
        found = f"case {self.raw} {' '.join(known)} else {otherwise} end" if known else otherwise
        is_null = f"case when {self.raw} is null then"
        return f"{is_null} {_number(lookup[None])} else {found} end" if None in lookup else found

    def _chosen(self, values: Sequence[float]) -> str:
        """Return SQL of the number of the interval; of equal ones that number."""
        if len(set(values)) == 1:
            return _number(values[0])
        return f"({self.dialect.numbers(values)})[1 + {self.interval}]"


@dataclass(frozen=True)
class _Predictor:
    """SQL of the predictions of a model, from its arguments: their types by their names."""

    model: ExportedModel
    arguments: Mapping[str, str]
    dialect: Dialect

    @property
    def answer(self) -> str:
        """The prediction, NULL without one."""
        if self.model.declaration.kind == "classes":  # the norm of a row divides all decisions, which changes no class
            return self._guarded(self._class, replace(self.model.declaration, encoding=SCALED))
        return self._guarded(self._finished, self.model.declaration)

    @property
    def probabilities(self) -> str:
        """A JSON object of the probability of each class, NULL without a prediction."""
        return self._guarded(self._of_each, self.model.declaration)

    def _guarded(self, finish: Callable[[list[str]], str], declaration: Declaration) -> str:
        """Return SQL of what the decisions of all outputs become, where the row has them."""
        if declaration.vector:
            return self._of_array(finish, declaration)
        read = [self._columns(declaration, *output) for output in self._outputs]
        required = [each.is_number for each in read[0][0] if each.is_required]
        found = finish([self._decision(declaration, *each) for each in read])
        return f"case when {' and '.join(required)} then {found} end" if required else found

    @property
    def _outputs(self) -> Iterator[tuple[list[float], float]]:
        return zip(map(list, self.model.coefficients), self.model.intercepts, strict=True)

    def _columns(
        self, declaration: Declaration, coefficients: list[float], intercept: float
    ) -> tuple[list[_Argument], Crossing, float]:
        """Return the columns of an output, its pairs and its intercept."""
        types = {name: "text" if kind == "text" else "double precision" for name, kind in self.arguments.items()}
        weights, last = row_columns.of_coordinates(declaration, coefficients, intercept)
        read = zip(self.arguments.items(), row_columns.columns(declaration, weights, types, ">"), strict=True)
        columns = [
            _Argument(self.dialect.argument(place, *argument), column, self.dialect)
            for place, (argument, column) in enumerate(read, start=1)
        ]
        return columns, row_columns.crossing(declaration, weights, types, ">"), last

    def _decision(self, declaration: Declaration, columns: list[_Argument], crossing: Crossing, last: float) -> str:
        cells = self._cells(crossing, columns)
        score = " + ".join([_number(last), *[each.summand for each in columns], *[summand for summand, _ in cells]])
        square = " + ".join([*[each.square for each in columns], *[square for _, square in cells]])
        return _ended(score, square, row_columns.ending(declaration))

    def _cells(self, crossing: Crossing, columns: Sequence[_Argument]) -> list[tuple[str, str]]:
        """Return SQL of what each pair adds to the decision, and to the square of the row."""
        groups = [columns[each.place].group(each) for each in crossing.groups]
        found = []
        for pair in crossing.pairs:
            cell = f"{groups[pair.first]} * {crossing.groups[pair.second].groups} + {groups[pair.second]}"
            square = f"case when {cell} is null then 0 else {_number(crossing.square)} end"
            found.append((f"coalesce(({self.dialect.numbers(pair.weights)})[1 + {cell}], 0)", square))
        return found

    def _of_array(self, finish: Callable[[list[str]], str], declaration: Declaration) -> str:
        """Return the same of an array: NULL unless it is one list of so many finite numbers."""
        ((name, kind),) = self.arguments.items()
        ending, length = row_columns.ending(declaration), len(declaration.feature_names)
        cases = []
        for condition, array in self.dialect.lists(self.dialect.argument(1, name, kind), length).items():
            square = self.dialect.square(array, length, _number(ending.norm_bound))
            scores = [f"{_number(last)} + {self.dialect.product(array, weights)}" for weights, last in self._outputs]
            cases.append(f"when {condition} then {finish([_ended(score, square, ending) for score in scores])}")
        return f"case {' '.join(cases)} end"

    def _finished(self, decisions: list[str]) -> str:
        """Return SQL of what one decision that is not NULL becomes: of two classes a probability."""
        if self.model.declaration.kind != "binary":
            return decisions[0]
        return f"1 / (1 + exp(-least(greatest({decisions[0]}, {_number(-_STEEP)}), {_number(_STEEP)})))"

    def _class(self, decisions: list[str]) -> str:
        """Return SQL of the class with the largest decision, the first of equal ones: lists compare by it first."""
        scored = ", ".join(f"array[{each}, {_number(-place)}]" for place, each in enumerate(decisions, start=1))
        return f"(array[{', '.join(self._labels)}])[-(greatest({scored}))[2]::int]"

    def _of_each(self, decisions: list[str]) -> str:
        """Return SQL of a softmax of the decisions, or of their logarithms; see `ProbabilitiesScorer`."""
        bounded = [
            f"least(greatest({each}, {_number(-_MOST_DECISION)}), {_number(_MOST_DECISION)})" for each in decisions
        ]
        scores = ", ".join(f"{each} as s{place}" for place, each in enumerate(bounded))
        names = [f"s{place}" for place in range(len(decisions))]
        if not class_probabilities.are_softmax(dict(self.model.receipt)):
            logarithm = "least({0}, 0) - ln(1 + exp(greatest(-abs({0}), {1})))"
            apart = ", ".join(f"{logarithm.format(name, _number(-_STEEP))} as {name}" for name in names)
            scores = f"{apart} from (select {scores} offset 0) as d"
        largest = f"greatest({', '.join(names)})"
        powers = [f"exp(greatest({name} - {largest}, {_number(-_STEEP)})) as e{name}" for name in names]
        total = " + ".join(f"e{name}" for name in names)
        object_ = self.dialect.json(
            {label: f"e{name} / ({total})" for label, name in zip(self._labels, names, strict=True)}
        )
        return (
            f"(select {object_} from (select {', '.join(powers)} from (select {scores} offset 0) as s offset 0) as e)"
        )

    @property
    def _labels(self) -> list[str]:
        return [self.dialect.written(each) for each in self.model.declaration.classes]


def _ended(score: str, square: str, ending: Ending) -> str:
    """Return SQL of a decision, from those of a sum and of the square of the row without its constant."""
    if not math.isnan(ending.square):
        length = f"sqrt({square} + {_number(ending.square)})"
        score = f"({score}) / {length}" if ending.square else f"coalesce(({score}) / nullif({length}, 0), 0)"
    if ending.most < math.inf:
        score = f"least(greatest({score}, {_number(ending.least)}), {_number(ending.most)})"
    return score


def _finite(value: str) -> str:
    """Return SQL for whether a number is finite; NULL for NULL, and NaN is above all."""
    return f"{value} between {_number(-sys.float_info.max)} and {_number(sys.float_info.max)}"


def _number(value: float) -> str:
    return f"'{float(value)!r}'::float8"
