"""BLAS in one thread: a backend is one core, and sums must not depend on a count of threads."""

import os

_LIBRARIES = ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM")


def hold_blas_to_one() -> None:
    """Hold BLAS to one thread; to be called before NumPy is loaded."""
    for library in _LIBRARIES:
        os.environ[f"{library}_NUM_THREADS"] = "1"
