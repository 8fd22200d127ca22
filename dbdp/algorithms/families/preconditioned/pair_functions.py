"""PairProducts of functions of two columns each, and the choice of pairs by a noisy gradient in them: post-processing.

privacy.md §24.11. The functions of a column are about uncorrelated, by its noisy moments: first the curve that was
learned, then the coordinates of `column_bases` of the largest variance. Each is constant in a group of the column's
values, so that products of two are constant in a cell of the pair.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.algorithms.families.preconditioned.column_bases import Basis
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, ColumnBlock, RowBlocks
from dbdp.learning.rows.products import Candidate, GroupedBlock, GroupTable, ProductRows

OF_A_PAIR = 24  # products of a pair that is learned
LEADING, ALL_FUNCTIONS = 2, 25  # functions of each column: of pairs to choose from, and that are learned
LARGEST = 2.0  # of a function's value
CLEAR = 3.0  # standard deviations of noise, by which a pair's gradient is above it
MOST_PRODUCTS = 1000  # of all pairs that are learned: their second moment is a matrix
_NOTHING = 1e-9  # variance of the one function, 0, of a column that has no coordinates


@dataclass(frozen=True)
class LearnedColumns:
    """The columns as they were learned so far."""

    rows_of: RowBlocks
    bases: Sequence[Basis]
    ridge: float
    matrix: np.ndarray  # (a, d), from packed rows to the coordinates of columns
    model: np.ndarray  # (a,)

    @cached_property
    def variances(self) -> np.ndarray:
        """The prior variances of the coordinates (a,), that of the constant first."""
        each = [basis.variances / (basis.variances + self.ridge) for basis in self.bases]
        return np.concatenate([[1.0], *each])

    def vary(self, candidate: Candidate) -> bool:
        """Return whether both columns of a pair have coordinates: one with a single value has none."""
        return all(len(self.bases[each.place].variances) > 0 for each in (candidate.first, candidate.second))

    def functions(self, grouped: GroupedBlock, most: int) -> tuple[GroupTable, np.ndarray]:
        """Return a column's leading functions, and their prior variances."""
        block, basis = self.rows_of.blocks[grouped.place], self.bases[grouped.place]
        first = sum(each.width for each in self.rows_of.blocks[: grouped.place])
        if not len(basis.variances):
            return GroupTable(first, block, grouped, np.zeros((grouped.groups, 1))), np.array([_NOTHING])
        begin = 1 + sum(len(each.variances) for each in self.bases[: grouped.place])
        spread = basis.variances / (basis.variances + self.ridge)
        values = (
            (_points(block, grouped, basis.mean) - basis.mean)
            @ basis.directions
            / np.sqrt(basis.variances + self.ridge)
        )
        learned = np.sqrt(spread) * self.model[begin : begin + len(spread)]
        order = np.argsort(-spread, kind="stable")
        curve = values @ (learned / max(float(np.linalg.norm(learned)), 1e-12) / np.sqrt(spread))
        kept = order[: most - 1] if len(order) > 1 else order[:0]
        table = np.column_stack([curve * np.sqrt(spread[order[0]]), values[:, kept]])
        side = GroupTable(first, block, grouped, np.clip(table, -LARGEST, LARGEST))
        return side, np.concatenate([spread[order[:1]], spread[kept]])


def _points(block: ColumnBlock, grouped: GroupedBlock, shares: np.ndarray) -> np.ndarray:
    """Return about the mean coordinates (groups, width) of the rows of each group."""
    if block.kind == CURVE:
        places = (np.arange(grouped.groups) + 0.5) / grouped.groups * (block.width - 1)
        return np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(block.width)))
    if block.kind == CATEGORY:
        members = (np.arange(grouped.groups)[:, None] == np.array(grouped.of_category)) * np.maximum(shares, 1e-12)
        return np.asarray(members / members.sum(axis=1, keepdims=True) * block.size)
    return np.array([[block.least], [block.size]])


@dataclass(frozen=True)
class PairProducts:
    """PairProducts of functions of pairs."""

    rows: ProductRows  # the coordinates of a row: those of columns, then the products
    variances: np.ndarray  # (m,), of the products, if columns are independent
    of: np.ndarray  # (m,): the place of each product's pair among the candidates

    def sums(self, of_products: np.ndarray, candidates: int) -> np.ndarray:
        """Return the sums (candidates,) of numbers of the products of each candidate."""
        return np.bincount(self.of, of_products, minlength=candidates)


def products_of(columns: LearnedColumns, candidates: Iterable[Candidate], functions: int) -> PairProducts:
    """Return the products of pairs: of each those OF_A_PAIR with the largest variance."""
    sides: dict[GroupedBlock, int] = {}
    found: list[tuple[GroupTable, np.ndarray]] = []
    listed: list[tuple[float, int, tuple[int, int, int, int]]] = []
    for place, candidate in enumerate(candidates):
        for grouped in (candidate.first, candidate.second):
            if grouped not in sides:
                sides[grouped] = len(found)
                found.append(columns.functions(grouped, functions))
        one, other = sides[candidate.first], sides[candidate.second]
        variances = np.outer(found[one][1], found[other][1])
        for first, second in _largest(variances):
            listed.append((float(variances[first, second]), place, (one, first, other, second)))
    tables = tuple(side for side, _ in found)
    rows = ProductRows(columns.matrix, columns.rows_of, tables, tuple(each for _, _, each in listed))
    of = np.array([place for _, place, _ in listed], np.int64)
    return PairProducts(rows, np.array([variance for variance, _, _ in listed]), of)


def _largest(variances: np.ndarray) -> list[tuple[int, int]]:
    order = np.argsort(-variances, axis=None, kind="stable")[:OF_A_PAIR]
    return [(int(first), int(second)) for first, second in zip(*np.unravel_index(order, variances.shape), strict=True)]


def chosen_pairs(
    columns: LearnedColumns,
    candidates: Sequence[Candidate],
    few: PairProducts,
    noisy: np.ndarray,
    noise: float,
    most: float,
) -> list[Candidate]:
    """Return the pairs with the most gain for each dimension, until these are `most`.

    `noisy` (m,) is a gradient in a few products of each candidate, with noise of that deviation. Of a pair it counts by
    how far it is above its noise.
    """
    count = len(candidates)
    gains = few.sums((np.square(noisy) - noise**2) / few.variances, count)
    doubts = np.sqrt(few.sums(2 * (noise**2 / few.variances) ** 2, count))
    learned = products_of(columns, candidates, ALL_FUNCTIONS)
    costs, sizes = learned.sums(learned.variances, count), learned.sums(np.ones(len(learned.of)), count)
    left, room, found = most, MOST_PRODUCTS, []
    for place in np.argsort(-gains / costs, kind="stable"):
        if gains[place] < CLEAR * doubts[place] or not columns.vary(candidates[place]):
            continue
        left, room = left - costs[place], room - sizes[place]
        if left < 0 or room < 0:
            break
        found.append(candidates[place])
    return found


def cells_of(products: PairProducts, chosen: Sequence[Candidate]) -> np.ndarray:
    """Return the value of each product (m, cells) in each cell of all pairs, pair by pair, in the order of cells."""
    sides = [side.table for side in products.rows.sides]
    ends = np.cumsum([0, *(pair.first.groups * pair.second.groups for pair in chosen)])
    cells = np.zeros((len(products.of), ends[-1]))
    for row, (place, (one, first, other, second)) in enumerate(zip(products.of, products.rows.products, strict=True)):
        own = np.outer(sides[one][:, first], sides[other][:, second])
        cells[row, ends[place] : ends[place + 1]] = own.ravel()
    return cells
