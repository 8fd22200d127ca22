"""Pairwise combinations of a test's settings: few cases that contain every pair of values of any two settings."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, cycle, islice, product
from typing import Any

import pytest

Pair = tuple[tuple[int, int], tuple[int, int]]  # two settings, each with the place of its value


def pairwise(**settings: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by cases in which every pair of values of any two settings occurs."""
    values = [list(each) for each in settings.values()]
    cases = [tuple(each[place] for each, place in zip(values, row, strict=True)) for row in covering(values)]
    return pytest.mark.parametrize(tuple(settings), cases, ids=str)


def pairs_slow(**settings: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise a test as `pairwise` does; ordinary are few of the cases, which have every value evenly."""
    values = [list(each) for each in settings.values()]
    rows = covering(values)
    cases = [tuple(each[place] for each, place in zip(values, row, strict=True)) for row in rows]
    quick = [cases[rows.index(row)] for row in spread(rows)]
    return pytest.mark.parametrize(tuple(settings), others_slow(cases, *quick), ids=str)


def spread(rows: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return some of the rows: for each value that is not in one yet, the row with the rarest other values."""
    uses: Counter[tuple[int, int]] = Counter()
    settings = sorted(range(len(rows[0])), key=lambda setting: -max(row[setting] for row in rows))
    chosen = []
    for setting in settings:
        for value in range(max(row[setting] for row in rows) + 1):
            if not uses[setting, value]:
                having = [row for row in rows if row[setting] == value]
                chosen.append(min(having, key=lambda row: sum(uses[place] for place in enumerate(row))))
                uses.update(enumerate(chosen[-1]))
    return chosen


def covering(values: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
    """Return the places of the values in each case: the first pair that is left, filled up by what covers most."""
    left = dict.fromkeys(
        ((one, a), (other, b))
        for one, other in combinations(range(len(values)), 2)
        for a, b in product(range(len(values[one])), range(len(values[other])))
    )
    rows = []
    while left:
        row = dict(next(iter(left)))
        for setting in range(len(values)):
            if setting not in row:
                row[setting] = max(
                    range(len(values[setting])), key=lambda place: len(pairs_of(row | {setting: place}) & left.keys())
                )
        rows.append(tuple(place for _, place in sorted(row.items())))
        for pair in pairs_of(row):
            left.pop(pair, None)
    return rows


def pairs_of(row: dict[int, int]) -> set[Pair]:
    """Return the pairs of values that are in a case."""
    return set(combinations(sorted(row.items()), 2))


def others_slow(cases: Sequence[Any], *quick: Any) -> list[Any]:
    """Return the cases of a test, of which those that are not named run in the slow suite only."""
    if unknown := [each for each in quick if each not in cases]:
        raise ValueError(f"{unknown} are not among the cases")
    marked = [each if isinstance(each, tuple) else (each,) for each in cases]
    return [
        pytest.param(*values, marks=() if each in quick else pytest.mark.slow)
        for each, values in zip(cases, marked, strict=True)
    ]


def a_third_quick(*settings: Sequence[Any]) -> list[Any]:
    """Return the full cross of some settings, of which every third case is in the ordinary suite.

    Every value is in an ordinary case, as long as no setting but the first has a multiple of three values.
    """
    cases = list(product(*settings))
    return others_slow(cases, *cases[::3])


def each_value_quick(*settings: Sequence[Any]) -> list[Any]:
    """Return the full cross of some settings, of which as many cases as the longest has values are ordinary.

    Every value is in an ordinary case.
    """
    longest = max(map(len, settings))
    return others_slow(
        list(product(*settings)), *zip(*(islice(cycle(each), longest) for each in settings), strict=True)
    )
