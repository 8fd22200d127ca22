"""All tables of one and of two columns of a summary, as shares of its rows, with the noise of their cells.

All of it is post-processing (privacy.md §16.7). Shapes: column i has K_i levels, and the last column is the label.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dbdp.algorithms.scores.counting import LEVEL
from dbdp.controller.statistics.summary_views.noisy_figures import SummaryFigures
from dbdp.controller.statistics.summary_views.viewed_columns import ViewedColumn
from dbdp.registry.results.stored_summaries import StoredSummary


@dataclass(frozen=True)
class NoisyTable:
    """A table of shares of the rows, with the standard deviation of each cell's noise."""

    shares: np.ndarray
    deviations: np.ndarray  # of the same shape


@dataclass(frozen=True)
class PairTables:
    """The tables of a summary."""

    columns: tuple[ViewedColumn, ...]  # with levels each; the last one is the label
    singles: tuple[NoisyTable, ...]  # shapes (K_i,)
    products: NoisyTable  # of all levels of all columns by all, shape (ΣK, ΣK)
    rows: float  # noisy number of rows of the summary

    def of(self, first: int, second: int) -> NoisyTable:
        """Return the table of two columns, shape (K_i, K_j)."""
        ends = np.cumsum([0, *map(len, (column.levels for column in self.columns))])
        places = np.ix_(range(ends[first], ends[first + 1]), range(ends[second], ends[second + 1]))
        return NoisyTable(self.products.shares[places], self.products.deviations[places])

    def size(self, column: int) -> int:
        """Return the number of levels of a column."""
        return len(self.columns[column].levels)


def pair_tables(summary: StoredSummary) -> PairTables:
    """Return the tables of a summary; raise ValueError if a column has no levels."""
    figures = SummaryFigures(summary)
    columns = tuple(figures.columns.values())
    _check_levels(summary, columns)
    ones = max(float(figures.everything @ figures.sums.means), summary.scale)
    vectors = [np.array([level.vector for level in column.levels]) for column in columns]
    singles = tuple(
        NoisyTable(
            each @ figures.sums.means / ones,
            np.sqrt(np.einsum("ij,jk,ik->i", each, figures.sums.covariance, each)) * summary.scale / ones,
        )
        for each in vectors
    )
    stacked = np.vstack(vectors)
    inner = stacked @ stacked.T
    squares = np.outer(np.diagonal(inner), np.diagonal(inner)) + inner**2
    products = NoisyTable(stacked @ summary.mean @ stacked.T / ones, np.sqrt(squares / 2) * summary.scale / ones)
    return PairTables(columns, singles, products, ones * summary.slots)


def _check_levels(summary: StoredSummary, columns: Sequence[ViewedColumn]) -> None:
    if summary.declaration.vector:
        raise ValueError(
            f"summary {summary.id} is of the array {summary.declaration.vector.column!r}, of which there are no "
            "synthetic rows; register columns"
        )
    if plain := [column.name for column in columns if not column.levels]:
        raise ValueError(
            f"summary {summary.id} has no bins of {_listed(plain)}, so that no rows follow from it; release one with "
            f"bins: dbdp.dp_summarize({summary.dataset!r}, …, bins => '16')"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")


def dependences(tables: PairTables) -> Iterator[tuple[float, int, int]]:
    """Yield (score, i, j) of each pair of features: Σ(|table - independence| - 3 deviations)₊, 0 if noise hides it.

    It does if no cell is further off than the largest noise of all cells is, in 95 of 100 summaries.
    """
    features = len(tables.columns) - 1
    cells = sum(map(tables.size, range(features))) ** 2 / 2
    least = NormalDist().inv_cdf(1 - (1 - LEVEL) / (2 * max(cells, 1)))
    for one in range(features):
        for other in range(one):
            table = tables.of(one, other)
            product = np.outer(tables.singles[one].shares, tables.singles[other].shares)
            away = np.abs(table.shares - product)
            score = np.maximum(away - 3 * table.deviations, 0.0).sum()
            yield float(score) if (away > least * table.deviations).any() else 0.0, one, other
