"""The momentum of the steps, and the noise that it leaves in the mean of the last iterates (privacy.md §16.8)."""

import numpy as np

MOMENTUM = 0.5  # of the step before that each step takes along: half as many passes come as far


def last_half(passes: int) -> int:
    """Return how many of a descent's iterates, the last ones, are averaged."""
    return -(-passes // 2)


def accumulated_noise(passes: int, averaged: int) -> float:
    """Return the deviation of the mean of the last iterates, for steps of 1 with noise of 1 alone, and momentum β.

    Noise in step t moves iterate t + k by r_k = 1 + β + … + β^(k-1), and the mean of the last A of T by the mean of
    their r. With a curvature of 0 ≤ h ≤ 2(1 + β) of steps of 1, which pulls back, it is at most as much. Proof. Then
    r_k = β^((k-1)/2)·U_(k-1)(x), U Chebyshev's polynomial of the second kind and x = (1 + β - h)/2√β, and |x| is at
    most its value at h = 0, which is at least 1: there |U| is largest. ∎
    """
    moved = np.concatenate([np.zeros(passes), (1 - MOMENTUM ** np.arange(1, passes + 1)) / (1 - MOMENTUM)])
    last = np.arange(passes - averaged, passes)[:, None]  # iterate s has the noise of steps t ≤ s, both from 0
    means = moved[passes + last - np.arange(passes)].mean(axis=0)
    return float(np.linalg.norm(means))
