"""The checked values and defaults of the options that several algorithms share.

Every message names the value, the limit and the remedy.
"""

import math
from dataclasses import replace
from numbers import Real
from typing import Any, get_type_hints

from dbdp.algorithms.plan import Facts, Request
from dbdp.checks import between, model_name, one_of, positive, whole
from dbdp.learning.losses import Logistic, Loss, Squared, loss_named
from dbdp.learning.objectives import Linear, Objective
from dbdp.learning.schedules import NONE, Averaging, Constant, Decreasing, InverseTime, Schedule, SquareRoot
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import check_epsilon_delta
from dbdp.privacy.accounting.padding import PoissonSamples, padded_samples

DEFAULT_REGULARISATION = 0.001
DEFAULT_BATCH_SIZE = 50
MOST_UPDATES = 10**7  # of a default: seconds to plan
DEFAULT_EPOCHS = 10
SEARCH_REGULARISATION = 1e-4  # of descents with a search, whose noise does not depend on it
DEFAULT_EXPONENT = 0.5
CLASS_NOISE, NUMBER_NOISE = 0.4, 0.06  # deviation that the noise of a default may cause in a row's score
MAX_REGULARISATION = 1e6
MAX_EPOCHS = 100_000
MOST_NUMBERS = 3 << 23  # of all models together: a state is one value with four such vectors, 0.8 GB
MAX_SHARDS = 1024
LEAST_RADIUS, LARGEST_RADIUS = 1e-6, 1e6
SHARD_AVERAGING = ("once", "each_epoch")
AVERAGING = ("none", "all", "last_epoch")
SCHEDULES = (Constant.name, InverseTime.name, Decreasing.name, SquareRoot.name)  # schedules of Wu et al. 2017


def check_numbers(models: int, each: int, remedy: str) -> None:
    """Raise ValueError if the models together are too large for one value of the server."""
    if models * each > MOST_NUMBERS:
        raise ValueError(
            f"{models} models of {each} parameters are above the limit of {MOST_NUMBERS} numbers; {remedy}"
        )


def check_request(request: Request, facts: Facts) -> None:
    """Raise ValueError for a request that no algorithm can plan."""
    check_epsilon_delta(request.epsilon, request.delta)
    _check_kinds(request)
    whole("rows", facts.rows, 1, 2**62, "at least one is needed to train")
    whole("max_rows", facts.unit_rows, 1, facts.rows, "every unit has as many of the rows")
    if facts.rows % facts.unit_rows:
        raise ValueError(
            f"rows = {facts.rows} must be a multiple of max_rows = {facts.unit_rows}: units times max_rows"
        )
    whole("features", facts.dimension, 1, 2**24, "declare fewer or shorter columns")
    whole("classes", facts.outputs, 1, 10_000, "each has its own model")
    check_numbers(facts.outputs, facts.dimension, "register fewer classes or features")
    if request.epochs is not None:
        whole("epochs", request.epochs, 1, MAX_EPOCHS, "more passes only add noise")
    whole("shards", request.shards, 1, min(MAX_SHARDS, facts.rows), "each needs a row and a connection")
    if (request.projection_dimension is None) != (request.projection_seed is None):
        raise ValueError("projection_dimension and projection_seed belong together; give both, or neither")
    if request.name is not None:
        model_name(request.name)
    if request.projection_dimension is not None:
        whole("projection_dimension", request.projection_dimension, 1, facts.dimension, "features after the projection")


def _check_kinds(request: Request) -> None:
    """Raise ValueError for a string instead of a number, or the reverse, as JSON may contain."""
    for name, hint in get_type_hints(Request).items():
        value, kinds = getattr(request, name), getattr(hint, "__args__", (hint,))
        kind = "string" if str in kinds else "number"
        if not isinstance(value, (str if kind == "string" else Real, *kinds)):
            raise ValueError(f"{name} = {value!r} must be a {kind}")


def refuse_given(request: Request, *names: str, of: str, remedy: str) -> None:
    """Raise ValueError if the request sets options that have no meaning with another choice, `of`."""
    for name in names:
        value = getattr(request, name)
        if value != getattr(Request, name):
            raise ValueError(f"{of} does not support {name} (got {value}); {remedy}")


def chosen(name: str, value: str | None, options: tuple[str, ...]) -> str:
    """Return the option of that name, or the first one for None; raise ValueError for an unknown name."""
    return options[0] if value is None else one_of(name, value, options)


def loss_of(request: Request, facts: Facts) -> Loss:
    """Return the loss; raise ValueError unless it fits the dataset's label."""
    name = request.loss_on(is_classifier=facts.is_classifier)
    reach = facts.reach if request.radius is None else request.radius
    radius = reach if name == Squared.name else None
    loss = loss_named(name, width=request.huber_width, radius=radius, positive_weight=request.positive_weight)
    if loss.is_classifier and not facts.is_classifier:
        raise ValueError(
            f"loss {loss.name!r} is for classes, but this label is a number; use squared or huber_regression"
        )
    if not loss.is_classifier and facts.outputs > 1:
        raise ValueError(
            f"loss {loss.name!r} is for numeric labels, but this label has classes; use logistic or huber_svm"
        )
    return loss


def radius_of(request: Request, loss: Loss) -> float:
    """Return the radius of the ball that the model is projected onto; infinity without one."""
    if loss.radius is not None:
        return loss.radius
    if request.radius is None:
        return math.inf
    between("radius", request.radius, LEAST_RADIUS, LARGEST_RADIUS)
    return request.radius


def regularisation_of(request: Request, default: float) -> float:
    """Return λ; raise ValueError if it is out of range."""
    if request.regularisation is None:
        return default
    if not (request.regularisation == 0 or 1e-12 <= request.regularisation <= MAX_REGULARISATION):
        raise ValueError(
            f"regularisation = {request.regularisation} must be 0, or between 1e-12 and {MAX_REGULARISATION:g}; "
            "0.0001 to 0.1 suits most data"
        )
    return request.regularisation


def noise_of_bound(request: Request, parameters: int) -> float:
    """Return the deviation of a coordinate of noise for a sensitivity of 1: Gaussian, or Laplace's for δ = 0."""
    if request.delta > 0:
        return analytic_noise_multiplier(request.epsilon, request.delta)
    return math.sqrt(parameters + 1) / request.epsilon


def score_noise_of(loss: Loss) -> float:
    """Return the deviation of a row's score that the noise of a default may cause, for rows of norm 1."""
    return CLASS_NOISE if loss.is_classifier else NUMBER_NOISE


def travel_of(request: Request, facts: Facts, loss: Loss) -> float:
    """Return τ, a sum of step sizes after which the noise of output perturbation moves a row's score as intended.

    Steps that add up to τ have a sensitivity of 2Lτ/n, for a convex loss and batches of any size, and 1/(λt) steps
    one of 2L/(nλ): 1/λ stands for τ (privacy.md §1.3). K models and units of r rows multiply it by √K·r.
    Noise of deviation σ moves the score of a row of norm 1 by σ: that is `score_noise_of` at
    τ = σn/(2L√K·r·z), z the noise for a sensitivity of 1. It is a default, on which no guarantee depends.
    """
    unit = noise_of_bound(request, facts.dimension * facts.outputs) * facts.unit_rows * math.sqrt(facts.outputs)
    return score_noise_of(loss) * facts.rows / (2 * loss.lipschitz * unit)


_PURE_SQUARED = (
    "the squared loss at delta = 0 has twice the noise of the loss huber_regression, and much more than "
    "preconditioned_gd, which needs a delta above 0; choose one of these if few labels are near a bound"
)


_HALF = (
    "it has half the noise of the squared loss, which it is for residuals of up to huber_width; where a few labels are "
    "far from the others, choose loss squared"
)


def reason_of_loss(request: Request, facts: Facts) -> dict[str, str]:
    """Return why a number is learned by Huber's loss, if none was given; else nothing."""
    is_given = request.loss is not None or request.huber_width is not None
    if is_given or facts.is_classifier or request.loss_on(is_classifier=False) == Squared.name:
        return {}
    return {"loss_chosen_because": _HALF}


NOISE_WINS = "the noise will probably dominate"


def warning_of(request: Request, facts: Facts, least: float) -> dict[str, str]:
    """Return sentences under `warning` if δ or the loss is ill chosen, or noise is expected to win; else nothing."""
    sentences = [*_warning_of_delta(request, facts), *_warning_of_noise(request, facts, least)]
    if request.loss == "squared" and request.delta == 0 and request.network is None:
        sentences.append(_PURE_SQUARED)
    return {"warning": "; ".join(sentences)} if sentences else {}


def _warning_of_delta(request: Request, facts: Facts) -> list[str]:
    """Return a sentence if δ is at least one over the number of rows, or of units of privacy.

    To publish each row as it is with probability δ is (0, δ)-DP: from there on some row is expected to be published.
    """
    count = facts.rows // facts.unit_rows
    if request.delta * count < 1:
        return []
    what = "rows" if facts.unit_rows == 1 else "units"
    return [
        f"delta = {request.delta:g} is at least 1/{count}, one over the number of {what}: it would allow one to "
        f"be published as it is; use a delta well below that, such as {0.1 / count:.0e}"
    ]


def _warning_of_noise(request: Request, facts: Facts, least: float) -> list[str]:
    """Return a sentence if noise is expected to win over what a linear model learns.

    Steps of sum τ learn most directions of d, with a curvature of about 1/d each, as far as τ/d goes: τ/d is the
    signal, and `least` what the algorithm needs of it (`Options.least_signal`). A network has no such rule.
    """
    if request.network is not None:
        return []
    signal = travel_of(request, facts, loss_of(request, facts)) / facts.dimension
    if signal >= least:
        return []
    simple = "the majority class" if facts.is_classifier else "the mean label"
    return [
        f"{NOISE_WINS}: {facts.rows} rows at epsilon = {request.epsilon:g} leave "
        f"{facts.dimension} features a signal of {signal:.2g}, below {least:g}, and the model is hardly better "
        f"than {simple}, or worse; use a larger epsilon, more rows or fewer features"
    ]


def schedule_of(request: Request, name: str, facts: Facts, loss: Loss, regularisation: float) -> Schedule:
    """Return the schedule of that name, one of Wu et al. 2017; raise ValueError if an option does not fit it."""
    smoothness = loss.smoothness + regularisation
    if name == Constant.name:
        if request.step_size is None:
            raise ValueError(f"schedule 'constant' needs a step_size; give one, at most 2/β = {2 / smoothness}")
        _no_exponent(request, name)
        return Constant(positive_step(request.step_size))
    if request.step_size is not None:
        raise ValueError(f"schedule {name!r} sets its own step sizes; leave step_size out")
    if name == InverseTime.name:
        _no_exponent(request, name)
        if regularisation == 0:
            raise ValueError("schedule 'inverse_time' needs regularisation > 0; give one, or choose 'constant'")
        return InverseTime(smoothness, regularisation)
    kind = Decreasing if name == Decreasing.name else SquareRoot
    return kind(smoothness, float(facts.rows) ** _exponent(request))


def _no_exponent(request: Request, name: str) -> None:
    if request.exponent is not None:
        raise ValueError(f"schedule {name!r} does not support exponent; drop exponent or use decreasing, square_root")


def _exponent(request: Request) -> float:
    exponent = DEFAULT_EXPONENT if request.exponent is None else request.exponent
    if not 0 <= exponent < 1:
        raise ValueError(f"exponent = {exponent} must be at least 0 and below 1; 0.5 suits most data")
    return exponent


def positive_step(step_size: float) -> float:
    """Return the step size; raise ValueError unless it is positive and finite."""
    positive("step_size", step_size, "0.1 to 1 suits most data")
    return step_size


def epochs_of(request: Request, default: int = DEFAULT_EPOCHS) -> int:
    """Return the number of passes over the data."""
    return default if request.epochs is None else request.epochs


def batch_size_of(request: Request, rows: int, default: float = DEFAULT_BATCH_SIZE) -> int:
    """Return b, the default rounded up; raise ValueError if it is above the rows of the smallest shard."""
    if request.batch_size is None:
        return min(math.ceil(default), rows)
    whole("batch_size", request.batch_size, 1, rows, "it cannot exceed the number of rows (of a shard)")
    return request.batch_size


def least_batch_size(rows: int, epochs: int) -> float:
    """Return the least default of b for steps without noise."""
    return max(DEFAULT_BATCH_SIZE, rows * epochs / MOST_UPDATES)


def samples_of(request: Request, facts: Facts, probability: float, draws: int) -> PoissonSamples:
    """Return the padded Poisson mini-batches of a run that reads at most `draws` of them."""
    return padded_samples(
        facts.rows,
        probability,
        draws,
        epsilon=request.epsilon,
        delta=request.delta,
        weight=0.0 if facts.budget is None else facts.budget.epsilon,
    )


def without_leak(request: Request, samples: PoissonSamples | None) -> Request:
    """Return the request with the δ for its noise: without the leak from cutting mini-batches."""
    leak = 0.0 if samples is None else samples.leak(request.epsilon)
    return replace(request, delta=math.nextafter(request.delta - leak, 0)) if leak else request


def shown_samples(request: Request, samples: PoissonSamples | None) -> dict[str, Any]:
    """Return the mini-batches' public size and the leak from cutting them, for `explain`."""
    if samples is None:
        return {}
    return {"padded_size": samples.size, "padding_leak": samples.leak(request.epsilon)}


def averaging_of(name: str, batches: int, epochs: int) -> Averaging:
    """Return the averaging of that name."""
    return {"none": NONE, "all": Averaging(1), "last_epoch": Averaging((epochs - 1) * batches + 1)}[name]


def shard_rows(rows: int, shards: int) -> tuple[int, ...]:
    """Return the public sizes of the shards: equal, or one row more for the first ones."""
    return tuple(rows // shards + (shard < rows % shards) for shard in range(shards))


def objective_of(request: Request, facts: Facts) -> Objective:
    """Return the objective: a network, or the linear models of all outputs together."""
    if request.network is None:
        return Linear(loss_of(request, facts), facts.dimension, facts.outputs)
    from dbdp.learning.networks.architecture import network_named  # only a training of one needs it

    remedy = "it minimises its cross-entropy; leave it out, or leave network out"
    names = ("huber_width", "loss", "positive_weight")
    plain = replace(request, loss=None) if request.loss == Logistic.name else request
    refuse_given(plain, *names, of=f"network {request.network!r}", remedy=remedy)
    if not facts.is_classifier:
        raise ValueError(f"network {request.network!r} is for classes, but this label is a number; drop network")
    return network_named(request.network, inputs=facts.dimension, outputs=facts.outputs, intercept=facts.intercept)
