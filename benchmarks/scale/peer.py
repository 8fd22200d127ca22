"""One run of a peer in a process of its own: pulls the rows, fits, and prints what it took as JSON."""

import json
import resource
import sys
from collections.abc import Callable
from typing import Protocol

import numpy as np

from benchmarks import binary_copy, ours, server
from benchmarks.harness import timed
from benchmarks.scale.cells import processor_seconds


class Model(Protocol):
    """What learns from rows (n, d) and labels (n,)."""

    def fit(self, features: np.ndarray, labels: np.ndarray) -> object:
        """Fit the model."""


def scikit_learn() -> Model:
    """Return logistic regression without privacy."""
    from sklearn.linear_model import LogisticRegression

    model: Model = LogisticRegression(fit_intercept=False)
    return model


def diffprivlib() -> Model:
    """Return diffprivlib's logistic regression."""
    from diffprivlib.models import LogisticRegression

    model: Model = LogisticRegression(epsilon=ours.EPSILON, data_norm=1.0, fit_intercept=False)
    return model


MODELS: dict[str, Callable[[], Model]] = {"scikit-learn": scikit_learn, "diffprivlib": diffprivlib}


def main(name: str, table: str, features: str) -> None:
    """Run a peer on a table, and print the result."""
    model, seconds = MODELS[name](), []  # made first: what is imported is not timed
    with server.connect() as connection:

        def run() -> None:
            seconds.append(timed(lambda: model.fit(*binary_copy.read(connection, table, int(features)))))

        processor = processor_seconds(connection, run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds[0], "processor_seconds": processor, "peak_mb": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
