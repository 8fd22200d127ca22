"""Sums of many arrays with the errors of their additions: what they err by does not grow with their number."""

from collections.abc import Iterable

import numpy as np

from dbdp.learning.compiled import _kernel as compiled  # type: ignore[attr-defined]

PIECE = compiled.PIECE_ROWS  # terms that are added one after the other


def with_part(total: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Return a total, (2, …), with one more part: the sum, and the sum of what the additions erred by.

    `value` of N parts of sizes that add up to S errs by at most 2uS, N ≤ 2²⁶, u = 2⁻⁵³. Proof (Ogita, Rump & Oishi
    2005, Prop. 4.5, for each coordinate). An addition's error is a number of 53 bits and found exactly (Knuth). So only
    the sum of the errors errs, and the last addition: together by u|Σ| + γ²S, γ ≤ 1.01Nu, and γ² < u/2. ∎
    """
    former, errors = total
    moved = former + part
    back = moved - former
    return np.stack([moved, errors + ((former - (moved - back)) + (part - back))])


def total_of(parts: Iterable[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return the total, (2, …), of parts of a shape."""
    total = np.zeros((2, *shape))
    for part in parts:
        total = with_part(total, part)
    return total


def value(total: np.ndarray) -> np.ndarray:
    """Return the sum that a total stands for."""
    return total[0] + total[1]


def outer_sum(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return Σ left ⊗ right over n rows of each, (a, b): of PIECE rows in any order, then `in_pairs`."""
    whole = len(left) // PIECE * PIECE
    pieces = left[:whole].reshape(-1, PIECE, left.shape[1]).transpose(0, 2, 1)
    sums = np.matmul(pieces, right[:whole].reshape(-1, PIECE, right.shape[1]))
    return in_pairs(sums) + left[whole:].T @ right[whole:]


def in_pairs(parts: np.ndarray) -> np.ndarray:
    """Return the sum over the first axis: of pairs, of pairs of these, and so on."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = np.concatenate([parts[:half] + parts[half : 2 * half], parts[2 * half :]])
    return parts[0] if len(parts) else np.zeros(parts.shape[1:])
