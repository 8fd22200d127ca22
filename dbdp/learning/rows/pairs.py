"""Pairs of columns: cells of two columns' bins or categories, from public facts alone.

A pair of columns is one more exclusive feature beside them: a row is in one of its cells, and each cell is a
coordinate. Numbers are cut into bins of equal width on their scale, categories are merged into runs of neighbours in
their declared order. Prediction imports this module, so it imports only `checks`, `features` and the standard library.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from dbdp.checks import nearest, whole
from dbdp.learning.rows.features import Categorical, Numeric

Names = tuple[str, str]
USUAL_CELLS, LEAST_CELLS, MOST_CELLS = 20, 4, 1000
CELLS_OF_NAMED = 64  # as usual of a pair that is named: it counts more than one that is tried
MOST_PAIRS = 1000
PAIRED = ("pair_cells", "pair_weight", "pair_bins")  # how a declaration has its pairs
LEAST_WEIGHT = 0.01
MOST_COMBINED = 100  # columns that pairs are chosen among, which takes the square of their number
FINEST = 8  # bins of a number that has none of its own
MOST_BINS = 64  # that pairs may have instead
EARLIER_WEIGHT = 0.25  # of the pairs of models that do not state one, see `weight_of`
NONE = "none"
CHOSEN = "chosen"  # by the training itself, privately
BINS_OF_CHOSEN, CELLS_OF_CHOSEN = 16, 400  # of a number, and of a pair, that a training chooses
LONGEST_TEXT = 1 << 16
PRIOR = 4.0  # of a pair that is named: what it says is mostly news
_NAME = r'"(?:[^"]|"")+"|[^\s"*,](?:[^"*,]*[^\s"*,])?'
_PAIR = re.compile(rf"\s*({_NAME})\s*\*\s*({_NAME})\s*(?:,|$)")
_PLAIN = re.compile(_NAME.rpartition('"|')[2])


@dataclass(frozen=True)
class Side:
    """A column of a pair."""

    place: int  # place of the column in a record
    feature: Numeric | Categorical  # the column; a number with as many bins as there are groups
    groups: int  # number of groups of its values

    @classmethod
    def of(cls, place: int, feature: Numeric | Categorical, groups: int) -> "Side":
        """Return a column in that many groups."""
        return cls(place, replace(feature, bins=groups, knots=0) if isinstance(feature, Numeric) else feature, groups)

    @property
    def names(self) -> list[str]:
        """A name for each group: that of a bin, of a category, or of the first and the last of a run."""
        if isinstance(self.feature, Numeric):
            return self.feature.bin_names
        runs: list[list[str]] = [[] for _ in range(self.groups)]
        for group, category in zip(self.group_of_category, self.feature.values, strict=True):
            runs[group].append(category)
        return [f"{self.feature.column}={'…'.join(dict.fromkeys((run[0], run[-1])))}" for run in runs]

    @property
    def group_of_category(self) -> list[int]:
        """The group of each category, with that of NULL if it is one: runs of equal lengths, up to one."""
        if isinstance(self.feature, Numeric):
            return []
        count = self.feature.width
        return [place * self.groups // count for place in range(count)]


@dataclass(frozen=True)
class Pair:
    """Two columns; a row is in cell i·(groups of the second) + j, or in none if a category is not declared."""

    first: Side
    second: Side
    weight: float = 1.0  # the coordinate of a row's cell, where that of a category is 1

    @property
    def width(self) -> int:
        """Number of cells."""
        return self.first.groups * self.second.groups

    @property
    def prior(self) -> float:
        """The prior variance of the cells, where that of a column's categories is 1."""
        return PRIOR * self.weight * self.weight

    @property
    def names(self) -> list[str]:
        """A name for each cell."""
        return [f"{first} × {second}" for first in self.first.names for second in self.second.names]

    @property
    def keeps_categories(self) -> bool:
        """Whether no categories are merged."""
        return all(
            isinstance(side.feature, Numeric) or side.groups == side.feature.width for side in (self.first, self.second)
        )


def pair_of(
    features: Sequence[Numeric | Categorical], names: Names, cells: int, weight: float = 1.0, bins: int = 0
) -> Pair:
    """Return a pair of columns with at most `cells` cells, of that weight; numbers have up to `bins`, if it is not 0.

    Of all numbers of groups, it has those that keep most columns' categories apart, of these the most cells, and of
    these the most equal numbers.
    """
    columns = [feature.column for feature in features]
    places = [columns.index(name) for name in names]
    one, other = (features[place] for place in places)
    most, others = min(_finest(one, bins), cells // 2), _finest(other, bins)
    choices = [(groups, min(others, cells // groups)) for groups in range(2, most + 1)]
    groups = max(choices, key=lambda each: (_apart(one, each[0]) + _apart(other, each[1]), *_size(each)))
    first, second = (Side.of(*each) for each in zip(places, (one, other), groups, strict=True))
    return Pair(first, second, weight)


def weight_of(pairs: int) -> float:
    """Return the weight of each of so many pairs: all of them together are as long as one more column.

    A pair that is named counts like a column. Of many, each adds little: they do not take the row from its columns.
    """
    return 1.0 / math.sqrt(max(pairs, 1))


def _finest(feature: Numeric | Categorical, bins: int = 0) -> int:
    """Return the most groups of a column: bounds of 0 and 1 are those of an indicator, unless `bins` are given."""
    if isinstance(feature, Categorical):
        return feature.width
    if bins and feature.knots:
        return bins
    return 2 if feature.is_flag else feature.bins or FINEST


def _apart(feature: Numeric | Categorical, groups: int) -> bool:
    return isinstance(feature, Categorical) and groups == feature.width


def _size(groups: tuple[int, int]) -> tuple[int, int]:
    return groups[0] * groups[1], -abs(groups[0] - groups[1])


def simple_pairs(features: Sequence[Numeric | Categorical], cells: int) -> list[Names]:
    """Return the pairs of the first columns that need no merged categories, those with the fewest cells first."""
    several = [feature for feature in features if _finest(feature) > 1][:MOST_COMBINED]
    named = [
        (pair_of(several, (one.column, other.column), cells), (one.column, other.column))
        for one, other in combinations(several, 2)
    ]
    return [names for pair, names in sorted(named, key=lambda each: each[0].width) if pair.keeps_categories]


def checked_weight(weight: Any) -> float:
    """Return a weight of pairs; raise ValueError unless it is above 0 and not above that of a column."""
    if not isinstance(weight, (int, float)) or isinstance(weight, bool) or not LEAST_WEIGHT <= weight <= 1:
        raise ValueError(f"pair_weight = {weight!r} must be a number between {LEAST_WEIGHT} and 1; leave it out")
    return float(weight)


def checked(features: Sequence[Numeric | Categorical], pairs: Any, cells: int, bins: int = 0) -> tuple[Names, ...]:
    """Return pairs of declared columns."""
    whole("pair_bins", bins, 0, MOST_BINS, "leave it out")
    usual = f"the default is {USUAL_CELLS}, or {CELLS_OF_NAMED} of named pairs"
    whole("pair_cells", cells, LEAST_CELLS, MOST_CELLS, usual)
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise ValueError(f"pairs is {pairs!r}; give a list of pairs of columns")
    listed = list(pairs)
    if len(listed) > MOST_PAIRS:
        raise ValueError(f"pairs lists {len(listed)} pairs, above the limit of {MOST_PAIRS}; name fewer")
    finest = {feature.column: _finest(feature) for feature in features}
    seen: set[frozenset[str]] = set()
    for names in listed:
        _check(names, finest)
        if frozenset(names) in seen:
            raise ValueError(f"pairs lists {written([names])} twice; name it once")
        seen.add(frozenset(names))
    return tuple((str(first), str(second)) for first, second in listed)


def _check(names: Any, finest: dict[str, int]) -> None:
    if not (isinstance(names, Sequence) and len(names) == 2 and all(isinstance(name, str) for name in names)):
        raise ValueError(f"pairs has {names!r}; a pair is two columns, such as age*education")
    for name in names:
        if name not in finest:
            columns = f"columns of pairs are declared features that are no arrays: {', '.join(finest) or 'here none'}"
            raise ValueError(f"pairs names {name!r}; {columns}{nearest(name, finest)}")
        if finest[name] < 2:
            raise ValueError(f"pairs names {name!r}, which has one category and nothing to combine; leave it out")
    if names[0] == names[1]:
        raise ValueError(f"pairs names {names[0]!r} with itself; a pair has two columns, and bins suit one")


def parsed(text: str) -> list[Names]:
    """Return the pairs in a text such as `age*education, age*"hours, a week"`; raise ValueError for another text."""
    place, pairs = 0, []
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"pairs has {len(text)} characters, above the limit of {LONGEST_TEXT}; name fewer pairs")
    while match := _PAIR.match(text, place):
        first, second = (_unquoted(name) for name in match.groups())
        pairs.append((first, second))
        place = match.end()
    if place < len(text) or not pairs or text.rstrip().endswith(","):
        raise ValueError(
            f"pairs = {text!r}; give auto, chosen, none, how many, or columns such as 'age*education, age*sex', in "
            "double quotes if a name has a comma, an asterisk or a quote"
        )
    return pairs


def as_text(pairs: Any) -> Any:
    """Return a number, or a list of pairs of columns, as text; anything else unchanged."""
    if isinstance(pairs, int) and not isinstance(pairs, bool):
        return str(pairs)
    is_list = isinstance(pairs, Sequence) and not isinstance(pairs, str)
    is_named = is_list and all(isinstance(names, (list, tuple)) and all(map(_is_text, names)) for names in pairs)
    return written(pairs) if is_named else pairs


def _is_text(name: Any) -> bool:
    return isinstance(name, str)


def written(pairs: Iterable[Sequence[str]]) -> str:
    """Return pairs as the text that `parsed` reads; `none` for none."""
    return ", ".join("*".join(map(_quoted, names)) for names in pairs) or NONE


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
