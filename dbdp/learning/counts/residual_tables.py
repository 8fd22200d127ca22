"""Tables of residuals and of labels, from which mean squares follow exactly: each row has a weight of one in both.

A squared residual lies between the squares of two nodes, and its row is divided between them by its distance from
each, so that sums of squares over the table are right, also of residuals that are cut at a node. A label y in [-1, 1]
divides its row into ((1 - y)²/4, (1 - y²)/2, (1 + y)²/4), from which 1, y and y² follow. Shapes: rows (n,) float64.
"""

import numpy as np

OCTAVES = 12  # between the nodes above 0: 2⁻¹¹, …, 1, 2
LENGTHS = np.append(0.0, 2.0 ** np.arange(2 - OCTAVES, 2))  # of residuals in packed labels, ascending
LABEL_CELLS = 3
# From the three cells of a row with the label y to 1, y and y².
MOMENTS = np.array([[1.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 1.0]])


def of_residuals(residuals: np.ndarray, parts: int) -> np.ndarray:
    """Return the parts of rows by the length of the residual, shape (len(LENGTHS),), int64; a NaN counts as 0."""
    squares = np.square(np.clip(np.nan_to_num(residuals), -2.0, 2.0))
    nodes = np.square(LENGTHS)
    lower = np.clip(np.searchsorted(nodes, squares, side="right") - 1, 0, len(nodes) - 2)
    shares = (squares - nodes[lower]) / (nodes[lower + 1] - nodes[lower])
    upper = np.rint(shares * parts).astype(np.int64)
    table = np.zeros(len(nodes), np.int64)
    np.add.at(table, lower, parts - upper)
    np.add.at(table, lower + 1, upper)
    return table


def of_labels(labels: np.ndarray, parts: int) -> np.ndarray:
    """Return the parts of rows by label, shape (LABEL_CELLS,), int64; no label is a NaN."""
    numbers = np.clip(labels, -1.0, 1.0)
    outer = np.rint(np.square([1.0 - numbers, 1.0 + numbers]) * (parts / 4)).astype(np.int64)
    return np.array([outer[0].sum(), (parts - outer.sum(axis=0)).sum(), outer[1].sum()], np.int64)
