"""The algorithms by name."""

from collections.abc import Callable

from dbdp.algorithms import (
    bolt_on,
    bst14,
    dp_adam,
    dp_sgd,
    nsgd,
    output_perturbation_gd,
    rrpsgd,
    rsgd_ar,
    scs13,
    sgd_adv,
)
from dbdp.algorithms.plan import Facts, Plan, Request, WhiteBox
from dbdp.algorithms.settings import check_request

ALGORITHMS: dict[str, Callable[[Request, Facts], Plan | WhiteBox]] = {
    "bolt_on": bolt_on.plan,
    "nsgd": nsgd.plan,
    "rsgd_ar": rsgd_ar.plan,
    "output_perturbation_gd": output_perturbation_gd.plan,
    "scs13": scs13.plan,
    "bst14": bst14.plan,
    "dp_sgd": dp_sgd.plan,
    "dp_adam": dp_adam.plan,
    "sgd_adv": sgd_adv.plan,
    "rrpsgd": rrpsgd.plan,
}


def plan(request: Request, facts: Facts) -> Plan | WhiteBox:
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
