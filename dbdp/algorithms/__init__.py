"""One file for each published system: a plan = learning × privacy."""

from collections.abc import Callable

from dbdp.algorithms import bolt_on
from dbdp.algorithms.plan import Plan, Request

ALGORITHMS: dict[str, Callable[..., Plan]] = {"bolt_on": bolt_on.plan}

__all__ = ["ALGORITHMS", "Plan", "Request", "plan"]


def plan(request: Request, *, rows: int, dimension: int) -> Plan:
    """Return the plan of a request, from public facts only.

    Raises
    ------
    ValueError
        If there is no such algorithm, or it cannot be planned.
    """
    if request.algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm {request.algorithm!r} is unknown; choose one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[request.algorithm](request, rows=rows, dimension=dimension)
