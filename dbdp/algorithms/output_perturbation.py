"""What all output perturbation shares: from a way of learning to sensitivity, noise, and a plan.

privacy.md §1–§3: nothing here depends on the data. The noise is calibrated to the worst position of the
record, or to the mixture over all positions that a secret, fresh permutation gives.
"""

import math
from collections.abc import Callable
from functools import partial

from dbdp.algorithms.options import LEARNING, Values, anything
from dbdp.algorithms.plan import Facts, Learning, Plan, Request
from dbdp.privacy.calibration import (
    Mixture,
    hockey_stick_multiplier,
    paper_conversion,
    renyi_multiplier,
    too_small_multiplier,
)
from dbdp.privacy.events import Release, ShuffledGaussianDpEvent
from dbdp.privacy.mechanisms import MECHANISMS, ROOM, Gaussian, Mechanism, grid_for, mechanism_named
from dbdp.privacy.renyi import conversion
from dbdp.privacy.sensitivity import Sensitivity, Training, sgd_sensitivity, sharded_sensitivity

WORST = "worst_position"
MIXTURES: dict[str, Callable[[float, float, Mixture], float]] = {
    "hockey_stick": hockey_stick_multiplier,
    "rdp_tight": partial(renyi_multiplier, conversion=conversion),
    "rdp": partial(renyi_multiplier, conversion=paper_conversion),
}
CALIBRATIONS = (WORST, *MIXTURES)
HAS: dict[str, Values] = {  # the options of all output perturbation
    **LEARNING,
    **anything("epochs", "step_size", "radius"),
    "mechanism": tuple(MECHANISMS),
    "calibration": CALIBRATIONS,
}


def planned(request: Request, facts: Facts, learning: Learning, *, calibration: str = WORST) -> Plan:
    """Return the plan of that learning; `calibration` is what None stands for where there is a δ.

    Raises
    ------
    ValueError
        If it has no sensitivity, or the noise cannot be calibrated as asked.
    """
    name = _calibration(request, facts, learning, calibration)
    trainings = [_training(facts, learning, rows) for rows in learning.shard_rows]
    if len(trainings) == 1:
        single = sgd_sensitivity(trainings[0], by_position=name != WORST)
    else:
        single = sharded_sensitivity(trainings, each_epoch=learning.shard_averaging == "each_epoch")
    sensitivity = _joint(single, facts, learning).of_units(facts.unit_rows)
    dimension = facts.dimension * facts.outputs
    if name == WORST:
        mechanism: Mechanism = mechanism_named(request.mechanism, delta=request.delta).calibrated(
            epsilon=request.epsilon, delta=request.delta, sensitivity=sensitivity.total, dimension=dimension
        )
    else:
        mechanism = _shuffled_gaussian(request, name, trainings[0], sensitivity, dimension)
    return Plan(request, facts, learning, sensitivity, name, mechanism)


def _calibration(request: Request, facts: Facts, learning: Learning, default: str) -> str:
    alone, single = len(learning.shard_rows) == 1, facts.unit_rows == 1
    if request.calibration is None:
        usable = request.delta > 0 and request.mechanism in (None, Gaussian.name) and alone and single
        return default if usable and learning.permutation == "reused" else WORST
    if request.calibration == WORST:
        return WORST
    if request.delta == 0:
        raise ValueError(
            f"calibration {request.calibration!r} needs a delta > 0: shuffling amplifies no pure guarantee "
            f"(privacy.md §3); give one, or choose {WORST!r}"
        )
    if request.mechanism not in (None, Gaussian.name):
        raise ValueError(f"calibration {request.calibration!r} needs mechanism 'gaussian', not {request.mechanism!r}")
    if not alone:
        raise ValueError(f"calibration {request.calibration!r} is for one shard; choose {WORST!r}, or shards = 1")
    if not single:
        raise ValueError(
            f"calibration {request.calibration!r} is for the position of one row, and a unit has {facts.unit_rows} "
            f"rows in different positions (privacy.md §11.6); choose {WORST!r}, or leave it out"
        )
    return request.calibration


def _training(facts: Facts, learning: Learning, rows: int) -> Training:
    loss = learning.loss
    return Training(
        rows=rows,
        dimension=facts.dimension,
        batch_size=learning.batch_size,
        epochs=learning.epochs,
        step_sizes=learning.schedule.step_sizes,
        lipschitz=loss.lipschitz,
        smoothness=loss.smoothness,
        regularisation=learning.regularisation,
        scalar_error=loss.scalar_error,
        permutation=learning.permutation,
        averaged_from=0 if learning.averaging.interval else learning.averaging.first,
        restart_every=learning.averaging.interval,
        radius=learning.radius,
    )


def _joint(single: Sensitivity, facts: Facts, learning: Learning) -> Sensitivity:
    """Return the sensitivity of the K models of a one-vs-rest training together.

    Proof. One record is a positive row, of weight ω, for one class, and a negative one for the others:
    replacing it changes the gradient of model c by at most s_c + s'_c with s the weights of the two
    records. Σ_c (s_c + s'_c)² is largest where the class stays: 4ω² + 4(K - 1), since the other case
    is smaller by 2(ω - 1)². Model by model Δ is linear in that, so the joint L2 sensitivity is that of
    one model for weights of 1, times √(ω² + K - 1): √K without weights, never K times ε.
    """
    if facts.outputs == 1:
        return single
    weight, outputs = learning.loss.positive_weight, facts.outputs
    exact = math.sqrt(weight**2 + outputs - 1) / max(1.0, weight)
    return single.joint(exact * ROOM, math.sqrt(outputs) * ROOM)


def _shuffled_gaussian(
    request: Request, name: str, training: Training, sensitivity: Sensitivity, dimension: int
) -> Gaussian:
    """Return Gaussian noise calibrated to the mixture over the record's positions (§3).

    The grid's rounding adds the same g√d to every position, before the multiplier is solved for.
    """
    if sensitivity.by_position is None:
        raise AssertionError("a mixture needs the sensitivity of each position")
    exact = Mixture(training.shares, sensitivity.by_position).plus(sensitivity.margin)
    largest = math.nextafter(exact.largest, math.inf)
    grid = grid_for(largest, dimension, too_small_multiplier(request.epsilon, request.delta, exact))
    mixture = exact.plus(grid * math.sqrt(dimension) * ROOM)
    multiplier = MIXTURES[name](request.epsilon, request.delta, mixture) * ROOM
    told = mixture.summary()
    event = ShuffledGaussianDpEvent(tuple(told.shares.tolist()), tuple((told.multipliers(multiplier) / ROOM).tolist()))
    return Gaussian.with_scale(
        sensitivity=mixture.largest,
        grid=grid,
        noise_scale=mixture.largest * multiplier * ROOM,
        guarantee=Release(event, request.epsilon, request.delta),
    )
