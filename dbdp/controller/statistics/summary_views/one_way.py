"""Sums of one column over the rows, from all entries of a noisy second moment that have them (privacy.md §16.7).

Shapes: a summary has C coordinates c, of which one is the constant 1; its moment M, shape (C, C), is the mean of ccᵀ
over all slots, with noise of standard deviation s on each orthonormal coordinate: ⟨W, M⟩ of a symmetric W has s·‖W‖_F,
and two such figures the covariance s²·⟨W, V⟩.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class OneWay:
    """The mean of each coordinate over all slots, by least squares, and the covariance of its noise.

    Σc_i stands in several entries of M: in M_i0, as c_0 = 1; in the sum of M_ih over the coordinates h of a column H of
    bins or classes, of which each row has one; and in M_ii if c_i is 0 or 1. These are figures of orthogonal matrices,
    so that their noise is independent, of variances s²/2, |H|s²/2 and s². Weighed by the inverse of these, their mean
    has the least variance. It is ⟨a_i, M_i⟩ for the row M_i of M. The constant's has pairs of columns H, too.
    """

    means: np.ndarray  # shape (C,)
    weights: np.ndarray  # rows a_i, shape (C, C); that of the constant is 0
    covariance: np.ndarray  # of the means, divided by s², shape (C, C)

    def overlap(self, vector: np.ndarray) -> np.ndarray:
        """Return the covariances, divided by s², of uᵀMu with each mean, for u without the constant, shape (C,)."""
        return vector * (self.weights @ vector)


def one_way(
    moment: np.ndarray, constant: int, partitions: Sequence[np.ndarray], flags: np.ndarray, signs: np.ndarray
) -> OneWay:
    """Return the means of all coordinates, from entries with independent noise.

    `partitions` are the coordinates of columns of which each row has exactly one, `flags` (C,) says which coordinates
    are 0 or 1, `signs` (C,) which are -1 or 1: their squares are the constant.
    """
    weights = _weights(len(moment), constant, partitions, flags)
    whole = _of_constant(len(moment), constant, partitions, signs)
    means = np.einsum("ij,ij->i", weights, moment)
    means[constant] = np.sum(whole * moment)
    covariance = (np.diag(np.einsum("ij,ij->i", weights, weights)) + weights * weights.T) / 2
    covariance[constant] = covariance[:, constant] = np.einsum("ij,ij->i", whole, weights)
    covariance[constant, constant] = np.sum(whole**2)
    return OneWay(means, weights, covariance)


def _weights(size: int, constant: int, partitions: Sequence[np.ndarray], flags: np.ndarray) -> np.ndarray:
    """Return the vectors a_i, shape (C, C)."""
    weights, totals = np.diag(flags), 2.0 + flags
    weights[:, constant] = 2.0
    for places in partitions:
        others = np.setdiff1d(np.arange(size), places)
        weights[np.ix_(others, places)] = 2.0 / len(places)
        totals[others] += 2.0 / len(places)
    weights[constant] = 0.0
    return weights / totals[:, None]


def _of_constant(size: int, constant: int, partitions: Sequence[np.ndarray], signs: np.ndarray) -> np.ndarray:
    """Return the symmetric W, shape (C, C), of the constant's mean.

    With r = e_0 + Σ p_H/|H| for the indicators p_H of the columns H, rrᵀ has M_00 and all pairs of different columns
    with the inverses of their variances; within a column only its diagonal is a count.
    """
    rates = np.zeros(size)
    rates[constant] = 1.0
    for places in partitions:
        rates[places] = 1.0 / len(places)
    whole = np.outer(rates, rates)
    for places in partitions:
        whole[np.ix_(places, places)] = np.diag(rates[places])
    whole[np.diag_indices(size)] += signs
    return whole / np.sum(whole**2)  # the sum of those inverses
