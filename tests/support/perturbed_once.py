"""Requests of every kind of output perturbation, and how far models moved beside the bounds of their plans."""

from collections.abc import Mapping
from itertools import product
from typing import Any

EPOCHS = 3
LOSSES: dict[str, dict[str, Any]] = {
    "logistic": {},
    "huber_svm": {"huber_width": 0.1},
    "huber_regression": {"huber_width": 0.1},
    "squared": {},
}
SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {"schedule": "constant", "step_size": 0.2},
    "constant, strongly convex": {"schedule": "constant", "step_size": 0.2, "regularisation": 0.2},
    "inverse_time": {"schedule": "inverse_time", "regularisation": 0.2},
    "decreasing": {"schedule": "decreasing", "exponent": 0.5},
    "square_root": {"schedule": "square_root", "exponent": 0.3, "regularisation": 0.1},
}
SCHEDULED = {f"bolt_on, {name}": settings for name, settings in SCHEDULES.items()}
RESTARTED: dict[str, dict[str, Any]] = {
    "nsgd": {"algorithm": "nsgd", "regularisation": 0.1},
    "nsgd, convex": {"algorithm": "nsgd", "step_size": 0.3, "regularisation": 0.0},
    "rsgd_ar": {"algorithm": "rsgd_ar", "averaging_interval": 2, "epochs": 5, "regularisation": 0.001},
    "rsgd_ar, strongly convex": {"algorithm": "rsgd_ar", "averaging_interval": 3, "regularisation": 0.3},
}
SHARDED = {
    f"{name}, {when}": settings | {"shards": 2, "shard_averaging": when}
    for (name, settings), when in product(SCHEDULED.items(), ("once", "each_epoch"))
}
FULL_BATCH: dict[str, dict[str, Any]] = {
    "output_perturbation_gd": {"algorithm": "output_perturbation_gd"},
    "output_perturbation_gd, strongly convex": {"algorithm": "output_perturbation_gd", "regularisation": 0.2},
}


def requests(cases: Mapping[str, Mapping[str, Any]], loss: str, **more: Any) -> dict[str, dict[str, Any]]:
    """The cases as requests, with pure ε: the noise is never drawn."""
    return {
        name: {"epsilon": 1.0, "algorithm": "bolt_on", "loss": loss, "epochs": EPOCHS}
        | LOSSES[loss]
        | more
        | dict(settings)
        for name, settings in cases.items()
    }


def beyond(moved: Mapping[str, float], bounds: Mapping[str, float]) -> dict[str, float]:
    """The cases that moved further than their bound, and how many times as far."""
    return {name: moved[name] / bounds[name] for name in moved if moved[name] > bounds[name]}


def loose(moved: Mapping[str, float], bounds: Mapping[str, float]) -> dict[str, float]:
    """The cases that stayed more than a hundredth below their bound, and at what share of it."""
    return {name: moved[name] / bounds[name] for name in moved if moved[name] < 0.99 * bounds[name]}
