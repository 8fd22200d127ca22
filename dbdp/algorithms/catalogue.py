"""The algorithms by name."""

from collections.abc import Callable
from dataclasses import replace

from dbdp.algorithms import (
    bolt_on,
    bst14,
    dp_adam,
    dp_agd,
    dp_blgd,
    dp_blsgd,
    dp_blsgd_ac,
    dp_sgd,
    majority,
    nsgd,
    objective_perturbation,
    output_perturbation_gd,
    privgene,
    rrpsgd,
    rsgd_ar,
    scs13,
    sgd_adv,
)
from dbdp.algorithms.plan import Facts, Plan, Request, WhiteBox
from dbdp.algorithms.settings import check_request
from dbdp.privacy import groups

PERTURBED_ONCE: dict[str, Callable[[Request, Facts], Plan]] = {
    "bolt_on": bolt_on.plan,
    "nsgd": nsgd.plan,
    "rsgd_ar": rsgd_ar.plan,
    "output_perturbation_gd": output_perturbation_gd.plan,
}
NOISY_WHILE_TRAINING: dict[str, Callable[[Request, Facts], WhiteBox]] = {
    "scs13": scs13.plan,
    "bst14": bst14.plan,
    "dp_sgd": dp_sgd.plan,
    "dp_adam": dp_adam.plan,
    "sgd_adv": sgd_adv.plan,
    "rrpsgd": rrpsgd.plan,
    "dp_agd": dp_agd.plan,
    "dp_blsgd": dp_blsgd.plan,
    "dp_blgd": dp_blgd.plan,
    "dp_blsgd_ac": dp_blsgd_ac.plan,
    "objective_perturbation": objective_perturbation.plan,
    "privgene": privgene.plan,
    "majority": majority.plan,
}
ALGORITHMS: dict[str, Callable[[Request, Facts], Plan | WhiteBox]] = {**PERTURBED_ONCE, **NOISY_WHILE_TRAINING}


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
    if request.algorithm in PERTURBED_ONCE:
        return PERTURBED_ONCE[request.algorithm](request, facts)
    return _of_units(NOISY_WHILE_TRAINING[request.algorithm], request, facts)


def _of_units(make: Callable[[Request, Facts], WhiteBox], request: Request, facts: Facts) -> WhiteBox:
    """Plan for single records at the share of (ε, δ) whose group privacy for a unit is (ε, δ) (privacy.md §11.6)."""
    if facts.unit_rows == 1:
        return make(request, facts)
    epsilon, delta = groups.share(request.epsilon, request.delta, facts.unit_rows)
    made = make(replace(request, epsilon=epsilon, delta=delta), replace(facts, unit_rows=1))
    guarantee = groups.grouped(made.guarantee, facts.unit_rows, epsilon=request.epsilon, delta=request.delta)
    told = {"row_epsilon": made.guarantee.epsilon, "row_delta": made.guarantee.delta} | made.told
    return replace(made, request=request, facts=facts, guarantee=guarantee, told=told)
