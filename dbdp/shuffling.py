"""Uniform secret permutations, from the operating system's entropy.

There is no seed: nobody can repeat, choose or predict an order (privacy.md §3, §11.5).
"""

import os

import numpy as np


def permutation(count: int) -> np.ndarray:
    """Return a uniform permutation of 0, …, count - 1, shape (count,).

    The order of distinct random 64-bit keys; where two keys are equal all are drawn again, so that
    every order is equally likely.
    """
    while True:
        keys = np.frombuffer(os.urandom(8 * count), np.uint64)
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        if not (ranked[1:] == ranked[:-1]).any():
            return order


def buckets(count: int, number: int) -> np.ndarray:
    """Return `count` independent uniform buckets in 0, …, number - 1.

    Raises
    ------
    ValueError
        If the number is not a power of two up to 2³²: only those divide random bits evenly.
    """
    if number < 1 or number > 2**32 or number & (number - 1):
        raise ValueError(f"number = {number} must be a power of two up to 2**32")
    return np.frombuffer(os.urandom(4 * count), np.uint32) & np.uint32(number - 1)
