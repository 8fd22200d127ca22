"""For each option of a training an example that is not its default, with the other options that it needs."""

from typing import Any

from dbdp.algorithms import ALGORITHMS
from dbdp.algorithms.declared_options import ALL_ROWS

GIVEN: dict[str, dict[str, Any]] = {
    "huber_width": {"huber_width": 0.3, "loss": "huber_svm"},
    "positive_weight": {"positive_weight": 3.0},
    "epochs": {"epochs": 3},
    "batch_size": {"batch_size": 20},
    "schedule": {"schedule": "square_root"},
    "step_size": {"step_size": 0.25},
    "exponent": {"exponent": 0.25, "schedule": "decreasing"},
    "averaging": {"averaging": "all"},
    "averaging_interval": {"averaging_interval": 2},
    "permutation": {"permutation": "fresh"},
    "shards": {"shards": 3},
    "shard_averaging": {"shard_averaging": "each_epoch", "shards": 2},
    "regularisation": {"regularisation": 0.02},
    "radius": {"radius": 2.0},
    "mechanism": {"mechanism": "spherical_laplace"},
    "calibration": {"calibration": "rdp"},
    "projection_dimension": {"projection_dimension": 5, "projection_seed": 3},
    "clip_norm": {"clip_norm": 0.5},
    "network": {"network": "mlp:8"},
    "settings": {"settings": '{"loss_clip": 2.5}'},
    "summary": {"summary": 7},
    "pairs": {"pairs": "none"},
    "pair_cells": {"pair_cells": 12, "pairs": "none"},
    "monotone": {"monotone": '{"u": 1}'},
    "cohort": {"cohort": '{"u": [0, 1]}'},
}
OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("bolt_on", "step_size"): {"step_size": 0.25, "schedule": "constant"},
    **{(name, "settings"): {"settings": '{"passes": 3}'} for name in ("preconditioned_gd", "private_splines")},
    ("naive_bayes", "settings"): {"settings": '{"evaluation_share": 0.5}'},
    ("objective_perturbation", "settings"): {"settings": '{"evaluation_share": 0.3}'},
    ("bst14", "calibration"): {"calibration": "published"},
    **{(name, "calibration"): {"calibration": "pld"} for name in ("dp_sgd", "dp_adam", "rrpsgd")},
}
NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    ("bolt_on", "constant"): {"step_size": 0.25},
    **{(name, "inverse_time"): {"regularisation": 0.02} for name in ("dp_sgd", "dp_adam", "sgd_adv")},
    **{("bolt_on", name): {"shards": 2} for name in ("once", "each_epoch")},
}


def example(algorithm: str, option: str) -> dict[str, Any]:
    """Return a request with the option, which the algorithm can plan if it has it."""
    return {"algorithm": algorithm} | OWN.get((algorithm, option), GIVEN[option])


def examples_of_lists(rows: int) -> list[dict[str, Any]]:
    """Return a request for each value of each option for which an algorithm declares a list of values."""
    return [
        {"algorithm": algorithm, name: rows if value == ALL_ROWS else value} | NEEDED.get((algorithm, value), {})
        for algorithm, module in ALGORITHMS.items()
        for name, values in module.OPTIONS.values.items()
        for value in values or ()
    ]
