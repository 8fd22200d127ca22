"""Limit BLAS to one thread: a backend is one core, and sums must not depend on the number of threads."""

import os

_LIBRARIES = ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM")


def limit_blas_to_one() -> None:
    """Limit BLAS to one thread; call it before NumPy is loaded."""
    for library in _LIBRARIES:
        os.environ[f"{library}_NUM_THREADS"] = "1"
