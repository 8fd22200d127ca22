"""Training algorithms, one file for each: plans that combine learning and privacy."""

from dbdp.algorithms.catalogue import ALGORITHMS, NOISY_WHILE_TRAINING, PERTURBED_ONCE, plan
from dbdp.algorithms.plan import AUTO, Facts, NoisyWhileTraining, Plan, Request

__all__ = [
    "ALGORITHMS",
    "AUTO",
    "NOISY_WHILE_TRAINING",
    "PERTURBED_ONCE",
    "Facts",
    "NoisyWhileTraining",
    "Plan",
    "Request",
    "plan",
]
