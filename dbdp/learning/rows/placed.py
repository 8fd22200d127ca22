"""Packed rows in places: one number for each column, from which the kernels know all its coordinates.

A number t in the place of a block with some cells stands for the part 1 - f of cell k and f of cell k + 1, k + f = t,
which are exact as t is a multiple of `FINEST`. The cells of a curve are its knots, at two of which its coordinates are
not 0. A category has its number, and one above all of them if it is none. An indicator has its share of the way from
its lower to its upper coordinate, as does a number with one coordinate. The first place is 1, or a factor of all parts
of the row, and 0 in a zero row: its coordinates are 0. Sums over rows are sums over cells first, and a public map makes
coordinates of them: `of_rows`.

Shapes: rows (n, stride) float32 as in `blocks`; d coordinates, and the constant is the last of them.
"""

import math
from functools import lru_cache

import numpy as np

from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import flushed
from dbdp.learning.rows import blocks
from dbdp.learning.rows.column_blocks import Placed, RowBlocks

FINEST = 2.0**-20  # all places are multiples of it, so that the parts of both cells are exact
STEP = 128  # whole numbers that a row's length may have: products of 1,024 rows are exact in float32
_PIECE = 1024


@lru_cache(maxsize=8)
def layout_of(rows_of: RowBlocks) -> kernels.compiled.PlacedLayout:
    """Return the layout of rows for the compiled kernels."""
    stride, coordinates = blocks.stride_of(rows_of.places), rows_of.coordinates
    sizes, split = np.array(rows_of.sizes), rows_of.split
    return kernels.compiled.PlacedLayout(sizes, stride, split, rows_of.dimension, *coordinates, rows_of.two)


@flushed
def scores(models: np.ndarray, rows: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return the scores (n, K) of linear models (K, d): a row's depend on it and the models only, to the last bit."""
    return layout_of(rows_of).scores(of_cells(models, rows_of), rows)


def of_cells(matrix: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return Mx of a row in each cell, shape (m, Σ cells), for M = `matrix` (m, d)."""
    places, heights = rows_of.coordinates
    return np.take(matrix, places, axis=1) * heights


def of_rows(cells: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return the coordinates (d,) of sums over rows of their parts of each cell, and of the next one, (Σ cells, 2)."""
    places, heights = rows_of.coordinates
    return np.bincount(places, heights * (cells[:, 0] + np.roll(cells[:, 1], 1)), rows_of.dimension)


def measured(rows: np.ndarray, by: Placed) -> np.ndarray:
    """Return an upper bound on ‖Mx‖ of each row's coordinates x, shape (n,), float32, for the matrix M of `by`."""
    of = lengths_of_products if by.squared else lengths
    return of(rows, by.factors, by.rows_of)


@flushed
def lengths_of_products(rows: np.ndarray, products: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return an upper bound on ‖Mx‖ as `lengths`, from MᵀM as computed, (d, d), of a matrix M (…, d).

    Proof. Let f² = ‖M‖_F², and E ≤ d the coordinates that may differ from 0. MᵀM errs by γ_d·f² in norm, a coordinate
    by 3u (it is at most 1, and from two parts that add up to 1 or less), and x by 3√E·u: the form by 7√E·u·f². A term
    passes through 2E + 5 operations, and all of them add up to f²·(Σ|x_i|)² ≤ E·f². Together that is less than
    1.1(d + (E + 8)²)u·f². The trace is f² within 2du of itself, and the root and the cast err by 2⁻²³ of themselves. ∎
    """
    entries = rows_of.places + sum(rows_of.two)
    doubt = 2 * (len(products) + (entries + 8) ** 2) * 2.0**-53 * np.trace(products)
    forms = layout_of(rows_of).forms(rows, np.ascontiguousarray(products))
    return (np.sqrt(np.maximum(forms + doubt, 0.0)) * (1 + 2.0**-20)).astype(np.float32)


@flushed
def lengths(rows: np.ndarray, factors: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return an upper bound on ‖Mx‖ of each row's coordinates x, shape (n,), float32.

    ‖Mx‖² = ‖Wx‖² - ‖Vx‖², and `factors` are W (d, d) and V (r, d), one below the other. W may have a few coordinates
    for each column: with M itself the work would be that of all of them.

    Proof. Let f² = ‖W‖_F² + ‖V‖_F². A cell's coordinates err by γ_1, as one coordinate x is not 0 in it or the
    constant, and those of a row by γ_2F, F columns: by (2d + 1)u·f, as ‖x‖ ≤ 1 and F ≤ d. Their squares, of at most f²
    in all, err by (4d + 3)uf² and by (d + 8)u of themselves, and M from W and V by (2⁹ + 4d√d + 2d + 4√d)uf²
    (`flattening`): together by less than (8d + 2¹⁰)√d·uf². The root and the cast err by 2⁻²³ of themselves. ∎
    """
    dimension = factors.shape[1]
    direct, less = np.split(factors, [dimension])
    found = _squares(direct, rows, rows_of) - (_squares(less, rows, rows_of) if len(less) else 0.0)
    doubt = (8 * dimension + 1024) * math.sqrt(dimension) * 2.0**-53 * np.square(factors).sum()
    return (np.sqrt(np.maximum(found + doubt, 0.0)) * (1 + 2.0**-20)).astype(np.float32)


def _squares(matrix: np.ndarray, rows: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    cells = _table(matrix, rows_of)
    return layout_of(rows_of).squares(cells, _ranges(cells, rows_of), rows)


@flushed
def moment_of_steps(rows: np.ndarray, matrix: np.ndarray, rows_of: RowBlocks, length: float) -> np.ndarray:
    """Return Σ qqᵀ over the rows, (a, a), int64: q is Mx·STEP/length in whole numbers, cut to ‖q‖ ≤ STEP; M is (a, d).

    Proof of ‖q‖ ≤ STEP. Before it is rounded q is cut to STEP - √a/2 - 2⁻²⁰, and rounding moves it by √a/2 at most;
    the computed norm errs by (a + 8)u of itself. A sum of 1,024 products is at most 2²⁴ (Cauchy-Schwarz), and so are
    its parts: float32 has them exactly, in any order. ∎
    """
    count, cells = len(matrix), _table(matrix * (STEP / length), rows_of)
    ranges, most = _ranges(cells, rows_of), STEP - np.sqrt(count) / 2 - 2.0**-20
    layout, total = layout_of(rows_of), np.zeros((count, count))
    steps, product = np.empty((_PIECE, cells.shape[1]), np.float32), np.empty((count, count), np.float32)
    for first in range(0, len(rows), _PIECE):
        piece = rows[first : first + _PIECE]
        layout.steps(cells, ranges, piece, most, steps)
        own = steps[: len(piece), :count]
        total += np.matmul(own.T, own, out=product)
    return total.astype(np.int64)


def _table(matrix: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return the coordinates Mx of each cell, (cells, width): those of M (m, d), and zeros up to whole lanes."""
    width = max(1, -(-len(matrix) // blocks.LANES)) * blocks.LANES
    cells = np.zeros((sum(rows_of.sizes), width))
    cells[:, : len(matrix)] = of_cells(matrix, rows_of).T
    return cells


def _ranges(cells: np.ndarray, rows_of: RowBlocks) -> np.ndarray:
    """Return between which coordinates the cells (cells, width) of each place are not 0, in lanes: (2, places)."""
    ranges = np.zeros((2, rows_of.places), np.intc)
    for place, of_place in enumerate(np.split(cells, np.cumsum(rows_of.sizes)[:-1])):
        found = np.flatnonzero(of_place.any(axis=0)) // blocks.LANES
        if len(found):
            ranges[:, place] = found[0] * blocks.LANES, (found[-1] + 1) * blocks.LANES
    return ranges
