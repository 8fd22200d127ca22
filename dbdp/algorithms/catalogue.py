"""The algorithms by name, and checks of a request against their options."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from itertools import islice
from typing import Any, Generic, TypeVar

from dbdp.algorithms.declared_options import COMMON, DEFAULTS, Options
from dbdp.algorithms.families.perturbed_once.shared import PerturbedOnce
from dbdp.algorithms.families.preconditioned import preconditioned_gd
from dbdp.algorithms.plan import AUTO, Facts, NoisyWhileTraining, Plan, Request
from dbdp.algorithms.settings import NOISE_WINS, check_request, reason_of_loss, warning_of
from dbdp.algorithms.stages.evaluated_plan import evaluated_plan, evaluation_share, without_share
from dbdp.algorithms.stages.forecast import forecast, noise_of_prediction
from dbdp.checks import unknown
from dbdp.learning.rows.pairs import NONE
from dbdp.learning.second_moments import MOST_DIMENSION
from dbdp.privacy.accounting import group_privacy
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

AnyPlan = PerturbedOnce | NoisyWhileTraining
Plan_co = TypeVar("Plan_co", bound=Plan, covariant=True)


@dataclass(frozen=True)
class Algorithm(Generic[Plan_co]):
    """The `OPTIONS` of the module of an algorithm NAME, and its function `NAME_plan`.

    The function returns the plan of a request with checked options; it raises ValueError if there is none.
    """

    OPTIONS: Options
    plan: Callable[[Request, Facts], Plan_co]


class Modules(Mapping[str, Algorithm[Plan_co]]):
    """Algorithms by name; a module is imported when it is first looked up, since a request needs one of all."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._paths = {name: f"{__package__}.families.{folder}" for name, folder in folders.items()}

    def __getitem__(self, name: str) -> Algorithm[Plan_co]:
        """Return an algorithm; raise KeyError if there is none."""
        module = import_module(self._paths[name])
        return Algorithm(module.OPTIONS, getattr(module, f"{name}_plan"))

    def __contains__(self, name: object) -> bool:
        """Return whether there is such an algorithm."""
        return name in self._paths

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._paths)

    def __len__(self) -> int:
        """Return the number of algorithms."""
        return len(self._paths)


_ONCE = {
    "bolt_on": "perturbed_once.bolt_on",
    "nsgd": "perturbed_once.nsgd",
    "rsgd_ar": "perturbed_once.rsgd_ar",
    "output_perturbation_gd": "perturbed_once.output_perturbation_gd",
}
_NOISY = {
    "scs13": "noisy_sgd.scs13",
    "bst14": "noisy_sgd.bst14",
    "dp_sgd": "noisy_sgd.dp_sgd",
    "dp_adam": "noisy_sgd.dp_adam",
    "sgd_adv": "noisy_sgd.sgd_adv",
    "rrpsgd": "noisy_sgd.rrpsgd",
    "dp_agd": "noisy_search.dp_agd",
    "dp_blsgd": "noisy_search.dp_blsgd",
    "dp_blgd": "noisy_search.dp_blgd",
    "dp_blsgd_ac": "noisy_search.dp_blsgd_ac",
    "preconditioned_gd": "preconditioned.preconditioned_gd",
    "private_splines": "preconditioned.private_splines",
    "objective_perturbation": "perturbed_objective.objective_perturbation",
    "privgene": "selections.privgene",
    "majority": "selections.majority",
    "naive_bayes": "counted.naive_bayes",
}
PERTURBED_ONCE: Mapping[str, Algorithm[PerturbedOnce]] = Modules(_ONCE)
NOISY_WHILE_TRAINING: Mapping[str, Algorithm[NoisyWhileTraining]] = Modules(_NOISY)
ALGORITHMS: Mapping[str, Algorithm[Plan]] = Modules(_ONCE | _NOISY)
_BEST_OF_NOISY = ("dp_sgd",)  # named first to those who give options that only such algorithms have
USUAL = "bolt_on"  # of `auto`, if facts rule out the others; and where models are exact inside
_NO_FEATURES = (
    f"{NOISE_WINS}, so only the majority class is released, and nothing of the features; use a larger epsilon, more "
    "rows or fewer features"
)
LEAST_SIGNAL = 0.5  # n·μ/d of a table from which more than its majority class can be learned
COUNTED = 60, 300  # n·μ from which, and below which, counts of each column say more than steps (privacy.md §27.3)


def plan(request: Request, facts: Facts) -> AnyPlan:
    """Return the plan of a request, from public facts only."""
    if request.algorithm == AUTO:
        return _automatic(request, facts)
    check(request, facts)
    options = ALGORITHMS[request.algorithm].OPTIONS
    share = evaluation_share(request, facts, options)
    release = _planned(without_share(request, share), facts)
    if share and isinstance(release, NoisyWhileTraining):
        release = evaluated_plan(release, request, facts, share)
    release = _with_details(release, warning_of(request, facts, options.least_signal) | reason_of_loss(request, facts))
    if isinstance(release, PerturbedOnce) and not facts.is_classifier:
        return _with_forecast(release, noise_of_prediction(release.mechanism.deviation(facts.dimension), facts))
    return _with_forecast(release, forecast(_of_records(request, facts), facts))


def _planned(request: Request, facts: Facts) -> AnyPlan:
    if request.algorithm in PERTURBED_ONCE:
        return PERTURBED_ONCE[request.algorithm].plan(request, facts)
    return _of_units(NOISY_WHILE_TRAINING[request.algorithm], request, facts)


def _automatic(request: Request, facts: Facts) -> AnyPlan:
    """Return the plan of the best algorithm for what a request asks, from public facts only.

    Options that say how to learn never choose another algorithm: those that the best one does not have are refused.
    """
    check_request(request, facts)
    reasons, first, errors = _suitable(request, facts) | {USUAL: ""}, "", []
    for name, reason in reasons.items():
        chosen = replace(request, algorithm=name)
        try:
            planned = plan(chosen, facts)
        except ValueError as error:
            if _is_planned(_question_of(chosen), facts):
                raise _refused(chosen, facts, error) from None
            first = first or _obstacle(chosen, facts, error)
            errors.append(error)
            continue
        if name == "majority":
            planned = _with_details(planned, {"warning": _NO_FEATURES})
        return _with_details(planned, {"chosen_because": reason or first})
    raise errors[0]


def _question_of(request: Request) -> Request:
    """Return a request without the options that say how to learn, of which each algorithm has others."""
    how = {name: value for name, value in DEFAULTS.items() if name not in COMMON and name != "network"}
    return replace(request, **how)


def _is_planned(request: Request, facts: Facts) -> bool:
    """Return whether there is a plan."""
    try:
        plan(request, facts)
    except ValueError:
        return False
    return True


def _obstacle(chosen: Request, facts: Facts, error: ValueError) -> str:
    """Return why the best algorithm has no plan of what a request asks."""
    option = _refused_option(chosen, facts)
    why = f"cannot be planned: {error}" if option is None else f"does not support {option} {getattr(chosen, option)!r}"
    return f"{chosen.algorithm} {why}"


class OptionRefused(ValueError):
    """An option that the algorithm of `auto` does not have."""


def _refused(chosen: Request, facts: Facts, error: ValueError) -> ValueError:
    """Return the error for options of `auto` with which its algorithm has no plan; it names one that has them."""
    option = _refused_option(chosen, facts)
    if option is None:
        return error
    others = (
        each
        for each in dict.fromkeys((USUAL, *_BEST_OF_NOISY, *ALGORITHMS))
        if _is_planned(replace(chosen, algorithm=each), facts)
    )
    refusal = ALGORITHMS[chosen.algorithm].OPTIONS.refusal(chosen, option, tuple(islice(others, 1)))
    return OptionRefused(f"{AUTO} chooses {chosen.algorithm} by public facts, and {refusal}")


def _suitable(request: Request, facts: Facts) -> dict[str, str]:
    """Return the algorithms for a request that names none, the best first, each with its reason.

    On the tables of `benchmarks/accuracy` and on generated ones, preconditioned_gd predicted best wherever its noise
    left anything; below a signal of `LEAST_SIGNAL` of its second moment and its steps, the majority class did.
    """
    if request.network is not None:
        return {"dp_adam": "it is the best for networks"}
    if request.delta == 0:
        return {"objective_perturbation": "it has the least noise for a pure guarantee"}
    if facts.dimension > MOST_DIMENSION:
        reason = f"{facts.dimension} coordinates are above {MOST_DIMENSION}, the limit of preconditioned_gd"
        return {"objective_perturbation": reason}
    signal = signal_of(request, facts)
    if facts.blocks is not None:
        total = signal * facts.dimension
        if is_counted(request, facts):
            return {"naive_bayes": f"n·μ = {total:.3g} is too little for steps, and enough to count each column"}
        return {"private_splines": f"n·μ = {total:.3g} is enough for a curve for each number"}
    best = {"preconditioned_gd": f"n·μ/d = {signal:.3g}: least noise, in the coordinates of a noisy second moment"}
    is_hidden = facts.is_classifier and signal < LEAST_SIGNAL
    if is_hidden and _refused_option(replace(request, algorithm="majority"), facts) is None:
        noise = f"n·μ/d = {signal:.3g} is below {LEAST_SIGNAL}: noise would hide what the features say"
        best = {"majority": noise} | best
    return best


def is_counted(request: Request, facts: Facts) -> bool:
    """Return whether `auto` counts, by public facts: two classes, a weak signal, and no option that counts lack."""
    if facts.blocks is None or not facts.is_classifier or facts.outputs > 1:
        return False
    has_options = _refused_option(replace(request, algorithm="naive_bayes"), facts) is not None
    is_plain = request.pairs in (None, NONE) and request.settings is None
    least, most = COUNTED
    return is_plain and not has_options and least <= signal_of(request, facts) * facts.dimension < most


def signal_of(request: Request, facts: Facts) -> float:
    """Return n·μ/d of a request with a delta above 0, for units at the share of a single record."""
    record = _of_records(request, facts)
    return preconditioned_gd.signal_of(analytic_noise_multiplier(record.epsilon, record.delta), facts)


def _of_records(request: Request, facts: Facts) -> Request:
    """Return the request with the ε and δ of a single record of a unit."""
    if facts.unit_rows == 1:
        return request
    epsilon, delta = group_privacy.share(request.epsilon, request.delta, facts.unit_rows)
    return replace(request, epsilon=epsilon, delta=delta)


def _with_forecast(release: AnyPlan, found: dict[str, str]) -> AnyPlan:
    """Return a plan with its predicted loss, and the warning of it unless the plan has a stronger one."""
    warning, known = found.pop("warning", None), release.details.get("warning", "")
    release = _with_details(release, found)
    return release if warning is None or NOISE_WINS in known else _with_details(release, {"warning": warning})


def _with_details(release: AnyPlan, details: Mapping[str, str]) -> AnyPlan:
    """Return a plan whose explanation has more entries, and after its own warning theirs."""
    warnings = [each["warning"] for each in (release.details, details) if each.get("warning")]
    joined = {"warning": "; ".join(warnings)} if warnings else {}
    return replace(release, details={**details, **release.details, **joined})


def check(request: Request, facts: Facts) -> None:
    """Raise ValueError if the algorithm is unknown, or does not have an option of the request."""
    check_request(request, facts)
    if request.algorithm not in ALGORITHMS:
        raise ValueError(unknown("algorithm", request.algorithm, (AUTO, *ALGORITHMS)))
    _check_options(request, facts)


def with_exact_model(request: Request) -> Request:
    """Return a request for an algorithm that has an exact model before its noise, which `auto` seldom chooses."""
    return replace(request, algorithm=USUAL) if request.algorithm == AUTO else request


def algorithms_with(name: str) -> tuple[str, ...]:
    """Return the algorithms that accept more than one value of an option."""
    return tuple(each for each, module in ALGORITHMS.items() if module.OPTIONS.has(name))


def values_of(name: str) -> tuple[str, ...]:
    """Return all values of an option that algorithms declare as a list."""
    lists = (module.OPTIONS.values.get(name) or () for module in ALGORITHMS.values())
    return tuple(dict.fromkeys(value for values in lists for value in values))


def _check_options(request: Request, facts: Facts) -> None:
    """Raise ValueError for the first option whose value the algorithm does not accept."""
    name = _refused_option(request, facts)
    if name is not None:
        others = () if name == "settings" else _accepting(name, getattr(request, name), facts)  # each has its own
        raise ValueError(ALGORITHMS[request.algorithm].OPTIONS.refusal(request, name, others))


def _refused_option(request: Request, facts: Facts) -> str | None:
    """Return the first option whose value the algorithm does not accept; None if it accepts all."""
    options = ALGORITHMS[request.algorithm].OPTIONS
    names = (each.name for each in fields(Request))
    return next((name for name in names if not options.accepts(name, getattr(request, name), facts.rows)), None)


def _accepting(name: str, value: Any, facts: Facts) -> tuple[str, ...]:
    return tuple(each for each, module in ALGORITHMS.items() if module.OPTIONS.accepts(name, value, facts.rows))


def _of_units(algorithm: Algorithm[NoisyWhileTraining], request: Request, facts: Facts) -> NoisyWhileTraining:
    """Plan for single records at the share of (ε, δ) whose group privacy for a unit is (ε, δ) (privacy.md §11.6)."""
    if facts.unit_rows == 1:
        return algorithm.plan(request, facts)
    row_plan = algorithm.plan(_of_records(request, facts), replace(facts, unit_rows=1))
    guarantee = group_privacy.grouped(row_plan.guarantee, facts.unit_rows, epsilon=request.epsilon, delta=request.delta)
    details = {"row_epsilon": row_plan.guarantee.epsilon, "row_delta": row_plan.guarantee.delta} | row_plan.details
    return replace(row_plan, request=request, facts=facts, guarantee=guarantee, details=details)
