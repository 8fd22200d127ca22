"""One file for each published system: a plan = learning × privacy."""

from dbdp.algorithms.catalogue import ALGORITHMS, plan
from dbdp.algorithms.plan import Facts, Plan, Request, WhiteBox

__all__ = ["ALGORITHMS", "Facts", "Plan", "Request", "WhiteBox", "plan"]
