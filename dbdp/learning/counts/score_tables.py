"""Tables of scores: how many rows of a class, and of the others, have about which score.

A score s lies between two nodes, and its row is divided between them by its distance from each, so that sums of s over
the table are right and no row crosses the decision at 0. The nodes ±BEND·g/(1 - g) are dense near 0 and reach ±LONGEST.
Shapes: scores (n, outputs) float64; a table is (outputs, 2, NODES), the rows of the other classes first.
"""

from functools import cache

import numpy as np

from dbdp.learning.compiled.arithmetic import exponential

BEND, LONGEST, SIDE = 2.0, 12.0, 10  # SIDE nodes on each side of the decision, the first at 0
NODES = 2 * SIDE
PARTS = 2**10  # a row is counted in so many parts
_TOP = LONGEST / (BEND + LONGEST)
_TINY = 2.0**-100


@cache
def nodes() -> np.ndarray:
    """Return the scores of the nodes, ascending, shape (NODES,), read-only; the two in the middle are -0 and +0."""
    shares = np.arange(SIDE) / (SIDE - 1) * _TOP
    side = BEND * shares / (1.0 - shares)
    scores = np.concatenate([-side[::-1], side])
    scores.flags.writeable = False
    return scores


def edges() -> np.ndarray:
    """Return the ends of the range of scores that each node stands for, ascending, shape (NODES + 1,)."""
    own = nodes()
    middles = (own[1:] + own[:-1]) / 2
    return np.concatenate([own[:1], middles, own[-1:]])


def counted(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each score the node next to it on the side of 0, and the parts that the node beyond it has.

    A NaN counts as 0. Both are int64, of the shape of the scores; the node beyond is one further from 0.
    """
    away = np.minimum(np.abs(np.nan_to_num(scores, nan=0.0)), LONGEST)
    inner = np.minimum((away / (BEND + away) * ((SIDE - 1) / _TOP)).astype(np.int64), SIDE - 2)
    side = nodes()[SIDE:]
    return inner, parts((away - side[inner]) / (side[inner + 1] - side[inner]))


def parts(shares: np.ndarray) -> np.ndarray:
    """Return shares, clipped to [0, 1], in whole PARTS; a NaN is none."""
    return np.rint(np.clip(np.nan_to_num(shares, nan=0.0), 0.0, 1.0) * PARTS).astype(np.int64)


def against_the_rest(scores: np.ndarray) -> np.ndarray:
    """Return the log-odds of each class by softmax, s_c - log Σ_{k ≠ c} exp(s_k), shape (n, outputs)."""
    with np.errstate(all="ignore"):
        shares = exponential(scores - scores.max(axis=1, keepdims=True))
        others = np.maximum(shares.sum(axis=1, keepdims=True) - shares, _TINY)
        return np.log(np.maximum(shares, _TINY)) - np.log(others)


def table(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the parts of rows by score, shape (outputs, 2, NODES), int64; a row adds PARTS for each output.

    Scores have the shape (n, outputs). Classes (n,) count from 0; with one output, 1 is the class of the score.
    """
    outputs = scores.shape[1]
    inner, beyond = counted(scores)
    own = classes[:, None] == (np.arange(outputs) if outputs > 1 else 1)
    above = scores > 0.0
    first = (np.arange(outputs) * 2 + own) * NODES
    cells = outputs * 2 * NODES
    places = first + np.where(above, SIDE + inner, SIDE - 1 - inner)
    further = first + np.where(above, SIDE + inner + 1, SIDE - 2 - inner)
    total = np.bincount(places.ravel(), (PARTS - beyond).ravel(), cells)
    total += np.bincount(further.ravel(), beyond.ravel(), cells)
    return np.rint(total).astype(np.int64).reshape(outputs, 2, NODES)
