"""Arithmetic whose time does not depend on the numbers: no denormals, and exponentials without branches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from dbdp.learning.compiled import _kernel as compiled

SHRINK = 1.0 - 2.0**-28  # a clipped gradient has norm ≤ clip as real numbers: its norm errs by less than 2²⁴·2⁻⁵³

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def flushed(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function so that numbers below 2⁻¹⁰²² count as 0 in this thread while it runs.

    Processors need a hundred times as long for such numbers, so that one row could slow down a training.
    The guarantee covers the change: rows are read in the same way, and privacy.md §14.2 bounds the error.
    """

    @wraps(function)
    def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        with flushing():
            return function(*arguments, **options)

    return call


@contextmanager
def flushing() -> Iterator[None]:
    """Let such numbers count as 0 in this thread within the block."""
    former = compiled.begin_flushing()
    try:
        yield
    finally:
        compiled.end_flushing(former)


def exponential(exponents: np.ndarray) -> np.ndarray:
    """Return eˣ within 4·2⁻⁵³ of itself for |x| ≤ 708, and 0 or infinity beyond; NaN of NaN."""
    return _of_each(compiled.exponential, exponents)


def log1p_exponential(exponents: np.ndarray) -> np.ndarray:
    """Return log(1 + eˣ) for x ≤ 0, within 10·2⁻⁵³ of itself for x ≥ -708, and 0 below; NaN of NaN."""
    return _of_each(compiled.log1p_exponential, exponents)


def _of_each(function: Callable[[np.ndarray], np.ndarray], values: np.ndarray) -> np.ndarray:
    return function(np.ravel(values).astype(np.float64)).reshape(np.shape(values))
