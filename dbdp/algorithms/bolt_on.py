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
    if rows < 1:
        raise ValueError(f"the dataset has {rows} rows; at least one is needed to train")
    if dimension < 1:
        raise ValueError(f"features = {dimension} must be at least 1")
    if not 1 <= request.batch_size <= rows:
        raise ValueError(f"batch_size = {request.batch_size} must be between 1 and the number of rows, {rows}")
    if request.epochs < 1:
        raise ValueError(f"epochs = {request.epochs} must be at least 1")


def _regularisation(request: Request) -> float:
    if request.regularisation is None:
        return 0.0 if request.schedule == Constant.name else DEFAULT_REGULARISATION
    if not (math.isfinite(request.regularisation) and request.regularisation >= 0):
        raise ValueError(f"regularisation = {request.regularisation} must be at least 0 and finite")
    return request.regularisation


def _schedule(request: Request, loss: Logistic, regularisation: float) -> Schedule:
    if request.schedule == Constant.name:
        if request.step_size is None:
            raise ValueError("schedule 'constant' needs a step_size; give one, at most 2/β")
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
        raise ValueError(f"step_size = {step_size} must be positive and finite")
    return step_size
