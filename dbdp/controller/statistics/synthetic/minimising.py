"""L-BFGS for a smooth convex function, as the server's environment has NumPy only."""

from collections import deque
from collections.abc import Callable

import numpy as np

MOST_STEPS = 300
_KEPT = 10  # pairs of moves
_ENOUGH = 1e-9  # relative decrease of the value by a step, at which it ends
_SUFFICIENT = 1e-4  # of the decrease that the gradient says

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


def minimised(function: Function, start: np.ndarray) -> np.ndarray:
    """Return a point of about the least value; `function` returns value and gradient."""
    point, pairs = start, deque[tuple[np.ndarray, np.ndarray]](maxlen=_KEPT)
    value, gradient = function(point)
    for _ in range(MOST_STEPS):
        direction = -_scaled(gradient, pairs)
        step, slope = 1.0, float(gradient @ direction)
        moved = point + direction
        new, slopes = function(moved)
        while not new <= value + _SUFFICIENT * step * slope and step > 1e-10:
            step /= 2
            moved = point + step * direction
            new, slopes = function(moved)
        if not value - new > _ENOUGH * abs(value):
            return point
        if (moved - point) @ (slopes - gradient) > 0:
            pairs.append((moved - point, slopes - gradient))
        point, value, gradient = moved, new, slopes
    return point


def _scaled(gradient: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the inverse Hessian that the last moves show, times the gradient (the two loops of L-BFGS)."""
    result, factors = gradient.copy(), []
    for move, change in reversed(pairs):
        factors.append((move @ result) / (move @ change))
        result -= factors[-1] * change
    if pairs:
        move, change = pairs[-1]
        result *= (move @ change) / (change @ change)
    for (move, change), factor in zip(pairs, reversed(factors), strict=True):
        result += move * (factor - (change @ result) / (move @ change))
    return result
