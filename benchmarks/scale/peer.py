"""One run of a peer in a process of its own: pulls the rows, fits, and prints what it took as JSON."""

import json
import resource
import sys
from collections.abc import Callable

import numpy as np

from benchmarks import binary_copy, ours, server
from benchmarks.harness import timed
from benchmarks.scale.cells import processor_seconds


def scikit_learn(features: np.ndarray, labels: np.ndarray) -> None:
    """Fit logistic regression without privacy."""
    from sklearn.linear_model import LogisticRegression

    LogisticRegression(fit_intercept=False).fit(features, labels)


def diffprivlib(features: np.ndarray, labels: np.ndarray) -> None:
    """Fit diffprivlib's logistic regression."""
    from diffprivlib.models import LogisticRegression

    LogisticRegression(epsilon=ours.EPSILON, data_norm=1.0, fit_intercept=False).fit(features, labels)


FITS: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {"scikit-learn": scikit_learn, "diffprivlib": diffprivlib}


def main(name: str, table: str, features: str) -> None:
    """Run a peer on a table, and print the result."""
    seconds: list[float] = []
    with server.connect() as connection:

        def run() -> None:
            seconds.append(timed(lambda: FITS[name](*binary_copy.read(connection, table, int(features)))))

        processor = processor_seconds(connection, run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds[0], "processor_seconds": processor, "peak_mb": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
