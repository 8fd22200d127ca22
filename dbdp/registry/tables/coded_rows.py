"""Rows as codes and positions of their declared columns, in one pass, for all statistics (privacy.md §11.1, §25.1).

Each is a function of its row and of public facts: no value raises, and none takes another path. A text that is longer
than each category is not fetched. This module runs in the server, where search_path is pinned to pg_catalog.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbdp.learning.rows.encoding import HEADER_BYTES
from dbdp.learning.rows.features import CATEGORY, Categorical, Numeric
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.tables import records
from dbdp.registry.tables.reading import Record
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session
from dbdp.statistics.coded_columns import EMPTY, MOST_CELLS, CategoryCode, Code, NumberCode
from dbdp.statistics.cohorts import Cohort

_DECODED = 48  # bytes of memory for a number of a record, with its code and its position


def features_of(declaration: Declaration) -> list[Numeric | Categorical]:
    """Return the declared columns, and the label as one of them; an array has no statistics, and is left out."""
    if declaration.label_bounds:
        return [*declaration.parts, Numeric(declaration.label, *declaration.label_bounds)]
    return [*declaration.parts, Categorical(declaration.label, tuple(records.numbered(declaration)))]


def codes_of(dataset: RegisteredDataset, bins: int | None = None) -> tuple[Code, ...]:
    """Return the codes of the declared columns, and of the label, from public facts.

    They are the finest ones; with `bins` a number has that many cells between its bounds at most, or its declared bins.
    """

    def most(feature: Numeric) -> int:
        return MOST_CELLS if bins is None else (feature.bins or bins) + 2

    types = dataset.column_types
    return tuple(
        NumberCode.of(feature, types[feature.column], most(feature))
        if isinstance(feature, Numeric)
        else CategoryCode.of(feature)
        for feature in features_of(dataset.declaration)
    )


def cohort_of(dataset: RegisteredDataset, stated: Any) -> Cohort:
    """Return the cohort of a dataset that an object states, or its JSON; raise ValueError unless it is one."""
    try:
        parsed = json.loads(stated) if isinstance(stated, str) else stated
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        parsed = stated
    return Cohort.of(parsed, codes_of(dataset), dataset.name)


def inside(session: Session, dataset: RegisteredDataset) -> str | None:
    """Return SQL for 1 if the row `source` is in the dataset's cohort, else 0; None for all rows.

    Each condition is computed for every row, and none is null.
    """
    if dataset.cohort is None:
        return None
    cohort = cohort_of(dataset, dataset.cohort)
    pairs = zip(cohort.codes, cohort.conditions, strict=True)
    met = (_column(session, dataset, code.column).meets(code, condition) for code, condition in pairs)
    return " * ".join(f"({each})::int4" for each in met)


@dataclass(frozen=True)
class _Column:
    """How a column is read: SQL for its number, and the numbers of its categories."""

    sql: str
    numbers: tuple[float, ...] = ()

    def coded(self, code: Code, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes and the positions of values as they were read."""
        if isinstance(code, NumberCode):
            return code.coded(values), code.positions(values)
        return code.coded(values, self.numbers, records.ABSENT_NUMBER), np.zeros(len(values))

    def meets(self, code: Code, condition: tuple[Any, ...]) -> str:
        """Return SQL for whether the value meets a condition of a cohort; NULL, which is NaN or a number, does not."""
        if isinstance(code, NumberCode):
            return f"({self.sql}) between '{condition[0]!r}'::float8 and '{condition[1]!r}'::float8"
        numbers = [repr(self.numbers[code.categories.index(each)]) for each in condition]
        return f"({self.sql})::float8 = any ('{{{', '.join(numbers)}}}'::float8[])"


def coded(
    session: SpiSession,
    dataset: RegisteredDataset,
    codes: Sequence[Code],
    *,
    cohort: Cohort | None = None,
    memory: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield codes and positions, shapes (slots, columns), of all slots of some whole units at a time.

    A row outside the cohort is coded as a slot without a row (privacy.md §25.6).
    """
    cohort = cohort or Cohort()
    pairs = [(_column(session, dataset, code.column), code) for code in (*codes, *cohort.codes)]
    elements = np.dtype([("header", "<i4", (HEADER_BYTES // 4,)), ("values", "<f8", (len(pairs),))])
    sql = f"dbdp_internal.array_bytes(array[{', '.join(column.sql for column, _ in pairs)}]::float8[])"
    record = Record(sql, bytes(elements.itemsize), elements.itemsize + _DECODED * len(pairs))
    seen = 0
    for raw in _whole_units(records.slots(session, dataset, record, memory), elements.itemsize * dataset.unit_rows):
        slots = np.frombuffer(raw, elements)
        seen += len(slots)
        parts = [pair[0].coded(pair[1], slots["values"][:, at]) for at, pair in enumerate(pairs)]
        found, positions = (np.array(each).T for each in zip(*parts, strict=True))  # each column is in one piece
        inside = (slots["header"][:, 0] != 0) & cohort.contains(
            slots["values"][:, len(codes) :], found[:, len(codes) :]
        )
        found[~inside], positions[~inside] = EMPTY, 0.0
        yield found[:, : len(codes)], positions[:, : len(codes)]
    records.check_seen(dataset, seen)


def _whole_units(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the pieces again, cut at multiples of a size."""
    held = bytearray()
    for piece in pieces:
        held += piece
        whole = len(held) // size * size
        yield bytes(held[:whole])
        del held[:whole]


def _column(session: Session, dataset: RegisteredDataset, name: str) -> _Column:
    """Return how a declared column is read."""
    features: Mapping[str, Numeric | Categorical] = {each.column: each for each in features_of(dataset.declaration)}
    feature, type_name = features[name], dataset.column_types[name]
    column = f"source.{session.query('select quote_ident($1) as n', name)[0]['n']}"
    if isinstance(feature, Numeric):
        return _Column(_with_infinities(column, type_name))
    if name == dataset.declaration.label:
        other = f"case when {column} is null then {records.ABSENT_NUMBER} else {records.UNKNOWN_NUMBER} end"
        numbers = tuple(map(float, records.numbered(dataset.declaration).values()))
        return _Column(records.label_case(session, dataset, column, str, other), numbers)
    numbers = records.category_numbers(session, feature.categories)
    return _Column(records.number_sql(replace(feature, null=CATEGORY), column, type_name), numbers)


def _with_infinities(column: str, type_name: str) -> str:
    """Return SQL for a number as float8; infinities of `numeric` stay infinite, as those of float8 do."""
    number = records.float_sql(column, type_name)
    if type_name != "numeric":
        return number
    signs = " ".join(f"when {column} = '{end}'::numeric then '{end}'::float8" for end in ("infinity", "-infinity"))
    return f"case {signs} else {number} end"
