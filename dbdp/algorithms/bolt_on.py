"""Bolt-on: permuted mini-batch SGD, noise added once at the end (Wu et al. 2017, Algorithms 1 and 2).

As privacy.md §1 restores it: the sensitivity uses the Lipschitz constant of the data part alone and
is not divided by the batch size where steps shrink; noise is exact (§2).
"""

import math

from dbdp.algorithms.plan import Plan, Request
from dbdp.learning.losses import Logistic, loss_named
from dbdp.learning.schedules import SCHEDULES, Constant, InverseTime, Schedule
from dbdp.privacy.mechanisms import mechanism_named
from dbdp.privacy.sensitivity import Training, sgd_sensitivity

DEFAULT_REGULARISATION = 0.001
MAX_REGULARISATION = 1e6
MAX_EPOCHS = 100_000


def plan(request: Request, *, rows: int, dimension: int) -> Plan:
    """Return the plan of a Bolt-on release.

    Raises
    ------
    ValueError
        If the request cannot be planned: the message names the value, the limit and the remedy.
    """
    _check(request, rows, dimension)
    loss = loss_named(request.loss)
    regularisation = _regularisation(request)
    schedule = _schedule(request, loss, regularisation)
    training = Training(
        rows=rows,
        dimension=dimension,
        batch_size=request.batch_size,
        epochs=request.epochs,
        step_sizes=schedule.step_sizes,
        lipschitz=loss.lipschitz,
        smoothness=loss.smoothness,
        regularisation=regularisation,
        scalar_error=loss.scalar_error,
    )
    sensitivity = sgd_sensitivity(training)
    mechanism = mechanism_named(request.mechanism, delta=request.delta).calibrated(
        epsilon=request.epsilon, delta=request.delta, sensitivity=sensitivity.total, dimension=dimension
    )
    return Plan(request, rows, dimension, training.updates, loss, schedule, regularisation, sensitivity, mechanism)


def _check(request: Request, rows: int, dimension: int) -> None:
    limits = {
        "rows": (rows, 2**62, "at least one is needed to train"),
        "features": (dimension, 2**24, "count the model's coordinates"),
        "batch_size": (request.batch_size, rows, "it cannot exceed the number of rows"),
        "epochs": (request.epochs, MAX_EPOCHS, "more passes only add noise"),
    }
    for name, (value, most, remark) in limits.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise ValueError(f"{name} = {value} must be a whole number between 1 and {most}: {remark}")


def _regularisation(request: Request) -> float:
    if request.regularisation is None:
        return 0.0 if request.schedule == Constant.name else DEFAULT_REGULARISATION
    if not (request.regularisation == 0 or 1e-12 <= request.regularisation <= MAX_REGULARISATION):
        raise ValueError(
            f"regularisation = {request.regularisation} must be 0, or between 1e-12 and {MAX_REGULARISATION:g}; "
            "0.0001 to 0.1 suits most data"
        )
    return request.regularisation


def _schedule(request: Request, loss: Logistic, regularisation: float) -> Schedule:
    if request.schedule == Constant.name:
        if request.step_size is None:
            limit = 2 / (loss.smoothness + regularisation)
            raise ValueError(f"schedule 'constant' needs a step_size; give one, at most 2/β = {limit:g}")
        return Constant(_positive_step(request.step_size))
    if request.schedule == InverseTime.name:
        if request.step_size is not None:
            raise ValueError("schedule 'inverse_time' sets its own step sizes; leave step_size out")
        if regularisation == 0:
            raise ValueError("schedule 'inverse_time' needs regularisation > 0; give one, or choose 'constant'")
        return InverseTime(loss.smoothness + regularisation, regularisation)
    raise ValueError(f"schedule {request.schedule!r} is unknown; choose one of {', '.join(SCHEDULES)}")


def _positive_step(step_size: float) -> float:
    if not (math.isfinite(step_size) and step_size > 0):
        raise ValueError(f"step_size = {step_size} must be positive and finite; 0.1 to 1 suits most data")
    return step_size
