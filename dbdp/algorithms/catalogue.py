"""The algorithms by name."""

from collections.abc import Callable

from dbdp.algorithms import bolt_on, nsgd, output_perturbation_gd, rsgd_ar
from dbdp.algorithms.plan import Facts, Plan, Request
from dbdp.algorithms.settings import check_request

ALGORITHMS: dict[str, Callable[[Request, Facts], Plan]] = {
    "bolt_on": bolt_on.plan,
    "nsgd": nsgd.plan,
    "rsgd_ar": rsgd_ar.plan,
    "output_perturbation_gd": output_perturbation_gd.plan,
}


def plan(request: Request, facts: Facts) -> Plan:
    """Return the plan of a request, from public facts only.

    Raises
    ------
    ValueError
        If there is no such algorithm, or it cannot be planned.
    """
    check_request(request, facts)
    if request.algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm {request.algorithm!r} is unknown; choose one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[request.algorithm](request, facts)
