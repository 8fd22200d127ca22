"""One file for each published system: a plan = learning × privacy."""

from dbdp.algorithms.catalogue import ALGORITHMS, NOISY_WHILE_TRAINING, PERTURBED_ONCE, plan
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Plan, Request

__all__ = [
    "ALGORITHMS",
    "NOISY_WHILE_TRAINING",
    "PERTURBED_ONCE",
    "Facts",
    "NoisyWhileTraining",
    "Plan",
    "Request",
    "plan",
]
