"""Draws of rows from a distribution on a label tree, systematic in each cell, so that tables hardly vary by chance.

Shapes: codes (rows, columns) are numbers of levels; the last column is the label.
"""

import numpy as np

from dbdp.controller.statistics.synthetic.label_tree import LabelTree
from dbdp.controller.statistics.synthetic.max_entropy import Conditionals


def drawn(found: Conditionals, tree: LabelTree, rows: int, random: np.random.Generator) -> np.ndarray:
    """Return the codes of so many rows, in random order."""
    codes = np.zeros((rows, len(tree.order) + 1), np.int64)
    codes[:, -1] = _systematic(found.label[None, :], np.zeros(rows, np.int64), random)
    for child in tree.order:
        conditional, cells, parent = found.features[child], codes[:, -1], tree.parents.get(child)
        if parent is not None:
            cells = cells * conditional.shape[1] + codes[:, parent]
        codes[:, child] = _systematic(conditional.reshape(-1, conditional.shape[-1]), cells, random)
    return codes


def _systematic(shares: np.ndarray, cells: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a level for each row, by the shares (cells, levels) of its cell.

    The m rows of a cell, in random order, are at (r + u)/m of the cumulative shares for r = 0, …, m - 1 and one u: a
    level of share s has ⌊ms⌋ or ⌈ms⌉ rows, ms in the mean.
    """
    order = np.lexsort((random.random(len(cells)), cells))
    counts = np.bincount(cells, minlength=len(shares))
    firsts = np.cumsum(counts) - counts
    own = cells[order]
    ranks = np.arange(len(cells)) - firsts[own]
    places = (ranks + random.random(len(shares))[own]) / counts[own]
    ends = np.cumsum(shares, axis=1)
    ends[:, -1] = 1.0
    steps = ends + np.arange(len(shares))[:, None]
    levels = (
        np.searchsorted(steps.ravel(), own + np.minimum(places, 1 - 2.0**-40), side="right") - own * shares.shape[1]
    )
    result = np.empty(len(cells), np.int64)
    result[order] = np.clip(levels, 0, shares.shape[1] - 1)
    return result
