"""Output perturbation: from the training's parameters to its sensitivity, noise, and plan.

privacy.md §1–§3. Nothing here depends on the data. The noise is calibrated to the worst position of the
record, or to the mixture over all positions of a secret, new permutation.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dbdp.algorithms.declared_options import LEARNING, Values, anything
from dbdp.algorithms.plan import Facts, Released, Request
from dbdp.algorithms.rows import Layout, Progress, Rows, silent
from dbdp.learning import kernels
from dbdp.learning.losses import Logistic, Loss
from dbdp.learning.objectives import projected
from dbdp.learning.schedules import Averaging, Schedule
from dbdp.learning.state import State
from dbdp.privacy.accounting.calibration import (
    Mixture,
    hockey_stick_multiplier,
    paper_conversion,
    renyi_multiplier,
    too_small_multiplier,
)
from dbdp.privacy.accounting.events import Release, ShuffledGaussianDpEvent
from dbdp.privacy.accounting.renyi import conversion
from dbdp.privacy.mechanisms import MECHANISMS, ROOM, Gaussian, Mechanism, grid_for, mechanism_named
from dbdp.privacy.sensitivity import (
    FRESH,
    Sensitivity,
    Training,
    logistic_difference,
    sgd_sensitivity,
    sharded_sensitivity,
)

WORST = "worst_position"
MIXTURES: dict[str, Callable[[float, float, Mixture], float]] = {
    "hockey_stick": hockey_stick_multiplier,
    "rdp_tight": partial(renyi_multiplier, conversion=conversion),
    "rdp": partial(renyi_multiplier, conversion=paper_conversion),
}
CALIBRATIONS = (WORST, *MIXTURES)
SHARED: dict[str, Values] = {  # the options of all output perturbation
    **LEARNING,
    **anything("epochs", "step_size", "radius"),
    "mechanism": tuple(MECHANISMS),
    "calibration": CALIBRATIONS,
}
MOST_MARGIN = 1 / 200  # of the exact sensitivity, above which iterates are kept in a ball
LEAST_BALL, LARGEST_BALL = 2.0**6, 2.0**16
LONGEST_LIST = 1000  # more sensitivities are shown as a summary
LONGEST_ROOT = 1024  # coordinates of a model whose noise is described: a matrix of 8 MiB


@dataclass(frozen=True)
class Learning:
    """The parameters of a training: those of the request, with all defaults."""

    loss: Loss
    schedule: Schedule
    averaging: Averaging
    averaging_name: str
    permutation: str
    batch_size: int
    epochs: int
    regularisation: float
    radius: float
    shard_rows: tuple[int, ...]
    shard_averaging: str | None = None

    @property
    def weights(self) -> np.ndarray:
        """Share of the rows in each shard, shape (shards,)."""
        sizes = np.array(self.shard_rows)
        return sizes / sizes.sum()

    @property
    def difference(self) -> float:
        """A bound on the distance between two records' gradients at an iterate, in the ball if there is one."""
        usual = 2 * self.loss.lipschitz
        known = isinstance(self.loss, Logistic) and self.loss.positive_weight == 1 and math.isfinite(self.radius)
        return min(usual, logistic_difference(self.radius)) if known else usual

    @property
    def updates(self) -> int:
        """Number of updates of the largest shard."""
        return self.epochs * -(-max(self.shard_rows) // self.batch_size)


@dataclass(frozen=True)
class PerturbedOnce:
    """The plan of an algorithm that trains exactly and adds noise once, at the end."""

    request: Request
    facts: Facts
    learning: Learning
    sensitivity: Sensitivity
    calibration: str
    mechanism: Mechanism
    details: dict[str, Any] = field(default_factory=dict)  # what `explain` adds

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return self.mechanism.guarantee

    @property
    def layout(self) -> Layout:
        """One slice for each shard, trained in parallel."""
        return Layout(self.facts.dimension, self.learning.shard_rows, self.request.projection, side_by_side=True)

    def run(self, rows: Rows, progress: Progress = silent, *, is_packed: bool = False) -> Released:
        """Pack the rows unless they are packed, train, and return the noisy models, in the ball of the exact ones.

        The noise is equal in all coordinates. The ball is public, so the projection is post-processing, and it moves
        no model away from the minimiser.
        """
        if not is_packed:
            progress("shuffle", 0, 1)
            rows.shuffle()
            progress("shuffle", 1, 1)
        exact = self.exact(rows, progress)
        released = self.mechanism.release(exact.ravel()).reshape(exact.shape)
        models, dimension = projected(released, self.learning.radius), self.facts.dimension
        if dimension > LONGEST_ROOT:
            return Released(models)
        return Released(models, noise_root=self.mechanism.deviation(models.size) * np.eye(dimension))

    def exact(
        self, rows: Rows, progress: Progress = silent, seen: Callable[[np.ndarray], None] | None = None
    ) -> np.ndarray:
        """Train over packed rows, and return the exact models, shape (outputs, dimension), which are secret.

        `seen` receives the models after each epoch.
        """
        learning, states = self.learning, self._encoded()
        is_joined = rows.joins_epochs and learning.permutation != FRESH and learning.shard_averaging != "each_epoch"
        if is_joined and seen is None:
            return self._mean(rows.epoch(states, learning.epochs))
        progress("epoch", 0, learning.epochs)  # the remaining time can be estimated from here on
        for epoch in range(learning.epochs):
            if epoch and learning.permutation == FRESH:
                rows.shuffle()
            states = rows.epoch(states)
            if learning.shard_averaging == "each_epoch":
                states = _averaged(states, learning.weights)
            progress("epoch", epoch + 1, learning.epochs)
            if seen is not None:
                seen(self._mean(states))
        return self._mean(states)

    def exact_by_epoch(self, rows: Rows) -> list[np.ndarray]:
        """Return the exact models after each epoch, for figures that are neither private nor released."""
        models: list[np.ndarray] = []
        self.exact(rows, seen=models.append)
        return models

    def _encoded(self) -> list[list[bytes]]:
        """Return the initial states of all shards as bytes."""
        return [[state.encode() for state in self.initial_states()] for _ in self.learning.shard_rows]

    def _mean(self, states: list[list[bytes]]) -> np.ndarray:
        results = np.array([[State.decode(state).result() for state in shard] for shard in states])
        return np.einsum("s,sod->od", self.learning.weights, results)

    def initial_states(self) -> list[State]:
        """Return the initial states, one for each output."""
        targets = range(1, self.facts.outputs + 1) if self.facts.outputs > 1 else [0]
        return [self._initial_state(target) for target in targets]

    def _initial_state(self, target: int) -> State:
        learning = self.learning
        return State.initial(
            loss=learning.loss,
            schedule=learning.schedule,
            batch_size=learning.batch_size,
            regularisation=learning.regularisation,
            dimension=self.facts.dimension,
            averaging=learning.averaging,
            radius=learning.radius,
            target=target,
        )

    def explain(self) -> dict[str, Any]:
        """Return the plan as data.

        `sensitivity` is the one that the noise covers: the exact bound, plus `sensitivity_margin` for
        rounding. `noise_scale` is the standard deviation per coordinate of Gaussian noise, the scale
        Δ/ε of the norm of spherical Laplace noise, or the scale Δ₁/ε of discrete Laplace noise.
        `smoothness` and `strong_convexity` include the regulariser, `lipschitz` does not
        (privacy.md §1.1).
        """
        loss, learning = self.learning.loss, self.learning
        return {
            "algorithm": self.request.algorithm,
            "loss": loss.name,
            **self.facts.relation,
            "features": self.facts.dimension,
            "batch_size": learning.batch_size,
            "epochs": learning.epochs,
            "updates": learning.updates,
            "schedule": learning.schedule.name,
            "averaging": learning.averaging_name,
            "permutation": learning.permutation,
            **dict(self._settings()),
            "regularisation": learning.regularisation,
            "lipschitz": loss.lipschitz,
            "smoothness": loss.smoothness + learning.regularisation,
            "strong_convexity": learning.regularisation,
            "sensitivity": self.mechanism.sensitivity,
            "sensitivity_margin": self.mechanism.sensitivity - self.sensitivity.exact,
            **self._positions(),
            "mechanism": self.mechanism.name,
            "calibration": self.calibration,
            "noise_scale": self.mechanism.noise_scale,
            "epsilon": self.mechanism.guarantee.epsilon,
            "delta": self.mechanism.guarantee.delta,
            **self.details,
        }

    def _settings(self) -> Iterator[tuple[str, Any]]:
        """Yield the entries that only some plans have."""
        learning = self.learning
        for name, shown in {"step_size": "step_size", "offset": "offset", "interval": "averaging_interval"}.items():
            if value := getattr(learning.schedule, name, None):
                yield shown, value
        if learning.loss.width is not None:
            yield "huber_width", learning.loss.width
        if learning.loss.positive_weight != 1:
            yield "positive_weight", learning.loss.positive_weight
        if math.isfinite(learning.radius):
            yield "radius", learning.radius
        if learning.difference < 2 * learning.loss.lipschitz:
            yield "gradient_difference", learning.difference
        if self.facts.outputs > 1:
            yield "classes", self.facts.outputs
        if len(learning.shard_rows) > 1:
            yield "shards", len(learning.shard_rows)
            yield "shard_averaging", learning.shard_averaging
        if self.request.projection_dimension is not None:
            yield "projection_dimension", self.request.projection_dimension
            yield "projection_seed", self.request.projection_seed

    def _positions(self) -> dict[str, Any]:
        """Return the sensitivity for each mini-batch that may contain the record, or a summary of many."""
        positions = self.sensitivity.by_position
        if positions is None:
            return {}
        if len(positions) <= LONGEST_LIST:
            return {"sensitivity_by_position": positions.tolist()}
        summary = {"positions": len(positions), "first": float(positions[0]), "last": float(positions[-1])}
        quantiles = np.quantile(positions, [0, 0.25, 0.5, 0.75, 1])
        names = ("smallest", "lower_quartile", "median", "upper_quartile", "largest")
        return {"sensitivity_by_position": summary | dict(zip(names, quantiles.tolist(), strict=True))}


def _averaged(shards: list[list[bytes]], weights: np.ndarray) -> list[list[bytes]]:
    """Return the states of all shards with their mean model, weighted by rows."""
    states = [[State.decode(state) for state in shard] for shard in shards]
    for output in zip(*states, strict=True):
        mean = weights @ np.array([state.model for state in output])
        for state in output:
            state.model[:] = mean
    return [[state.encode() for state in shard] for shard in states]


def planned(request: Request, facts: Facts, learning: Learning, *, calibration: str = WORST) -> PerturbedOnce:
    """Return the plan of a training; `calibration` is the default if δ > 0."""
    name = _calibration(request, facts, learning, calibration)
    learning, single = _within_a_ball(facts, learning, by_position=name != WORST)
    sensitivity = _joint(single, facts, learning).of_units(facts.unit_rows)
    dimension = facts.dimension * facts.outputs
    if name == WORST:
        mechanism: Mechanism = mechanism_named(request.mechanism, delta=request.delta).calibrated(
            epsilon=request.epsilon, delta=request.delta, sensitivity=sensitivity.total, dimension=dimension
        )
    else:
        training = _training(facts, learning, facts.rows)
        mechanism = _shuffled_gaussian(request, name, training, sensitivity, dimension)
    return PerturbedOnce(request, facts, learning, sensitivity, name, mechanism)


def _calibration(request: Request, facts: Facts, learning: Learning, default: str) -> str:
    alone, single = len(learning.shard_rows) == 1, facts.unit_rows == 1
    if request.calibration is None:
        usable = request.delta > 0 and request.mechanism in (None, Gaussian.name) and alone and single
        return default if usable and learning.permutation == "reused" else WORST
    if request.calibration == WORST:
        return WORST
    if request.delta == 0:
        raise ValueError(
            f"calibration {request.calibration!r} needs a delta > 0: shuffling does not amplify pure guarantees "
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
        difference=learning.difference,
        depth=kernels.depth_of_sum(learning.batch_size, facts.dimension),
        score_depth=kernels.depth_of_score(facts.dimension),
    )


def _within_a_ball(facts: Facts, learning: Learning, *, by_position: bool) -> tuple[Learning, Sensitivity]:
    """Return a training with its sensitivity for one model, in a ball if rounding would add much to that.

    Rounding errs in proportion to the length W of the iterates (§14.2). Without a ball the proof has W ≤ L/λ only, and
    defaults have λ ∝ 1/n: the margin would grow with the table. A radius is chosen from public facts: the largest
    power of two up to LARGEST_BALL at which the margin is at most MOST_MARGIN of the exact sensitivity, but at least
    LEAST_BALL. Proof. A projection onto a ball is 1-Lipschitz, so Lemma B holds with it (§1.1), its rounding is in e_t,
    and W is the radius. The exact bound does not depend on it: D(R) is 2L for balls as large as LEAST_BALL. ∎
    """
    single = _single(facts, learning, by_position=by_position)
    if math.isfinite(learning.radius) or single.margin <= MOST_MARGIN * single.exact:
        return learning, single
    radius = LARGEST_BALL
    while True:
        learning = replace(learning, radius=radius)
        single = _single(facts, learning, by_position=False)
        left = MOST_MARGIN * single.exact / single.margin
        if left >= 1 or radius == LEAST_BALL:
            return learning, _single(facts, learning, by_position=True) if by_position else single
        radius = 2.0 ** math.floor(math.log2(max(radius * left, LEAST_BALL)))


def _single(facts: Facts, learning: Learning, *, by_position: bool) -> Sensitivity:
    trainings = [_training(facts, learning, rows) for rows in learning.shard_rows]
    if len(trainings) == 1:
        return sgd_sensitivity(trainings[0], by_position=by_position)
    return sharded_sensitivity(trainings, each_epoch=learning.shard_averaging == "each_epoch")


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

    Rounding to the grid adds the same g√d to every position, before the multiplier is computed.
    """
    if sensitivity.by_position is None:
        raise AssertionError("a mixture needs the sensitivity of each position")
    exact = Mixture(training.shares, sensitivity.by_position).plus(sensitivity.margin)
    largest = math.nextafter(exact.largest, math.inf)
    grid = grid_for(largest, dimension, too_small_multiplier(request.epsilon, request.delta, exact))
    mixture = exact.plus(grid * math.sqrt(dimension) * ROOM)
    multiplier = MIXTURES[name](request.epsilon, request.delta, mixture) * ROOM
    shown = mixture.summary()
    event = ShuffledGaussianDpEvent(
        tuple(shown.shares.tolist()), tuple((shown.multipliers(multiplier) / ROOM).tolist())
    )
    return Gaussian.with_scale(
        sensitivity=mixture.largest,
        grid=grid,
        noise_scale=mixture.largest * multiplier * ROOM,
        guarantee=Release(event, request.epsilon, request.delta),
    )
