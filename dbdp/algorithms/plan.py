"""A plan: what one release will do and cost, from public facts only."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dbdp.algorithms.access import Access, Progress
from dbdp.learning.averaging import Averaging
from dbdp.learning.losses import Loss
from dbdp.learning.schedules import Schedule
from dbdp.learning.state import State
from dbdp.privacy.events import REPLACE_ONE, REPLACE_ONE_UNIT, Release
from dbdp.privacy.mechanisms import Mechanism
from dbdp.privacy.sensitivity import Sensitivity

LONGEST_LIST = 1000  # sensitivities shown one by one


@dataclass(frozen=True)
class Facts:
    """What a dataset says in public.

    Attributes
    ----------
    rows : number of records; of slots, where a unit of privacy has several
    dimension : coordinates of one model, with the intercept
    outputs : models trained at once: the classes of a one-vs-rest training, else 1
    is_classifier : whether the label is a class; otherwise it is a number in [-1, 1]
    intercept : whether the last coordinate is the intercept's
    unit_rows : slots of each unit of privacy, r: neighbours differ in up to so many records (privacy.md §11.6)
    budget_epsilon : ε of the dataset's budget, which a leak is weighed with
    """

    rows: int
    dimension: int
    outputs: int = 1
    is_classifier: bool = True
    intercept: bool = True
    unit_rows: int = 1
    budget_epsilon: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the models together."""
        return self.outputs, self.dimension

    @property
    def relation(self) -> dict[str, Any]:
        """What neighbours are, and what is public of them, as data."""
        return relation(self.rows, self.unit_rows)


def relation(rows: int, unit_rows: int) -> dict[str, Any]:
    """Return what neighbours are among that many slots, and what is public of them, as data."""
    if unit_rows == 1:
        return {"neighbours": REPLACE_ONE, "rows": rows}
    return {"neighbours": REPLACE_ONE_UNIT, "rows": rows, "units": rows // unit_rows, "max_rows": unit_rows}


def plain(value: Any) -> Any:
    """Return a value, NumPy's scalars as Python's own, also those in a mapping."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class Request:
    """What a user asks for; every door builds this record. None takes the algorithm's own default.

    Attributes
    ----------
    epsilon, delta : the stand-alone guarantee of this release; delta = 0 asks for pure ε
    algorithm, loss, schedule, mechanism, calibration : names
    huber_width : half-width h of huber_svm, or δ of huber_regression
    positive_weight : what the loss of positive rows is multiplied by (classes: of each class's own rows)
    epochs, batch_size : passes over the data, rows of a mini-batch
    step_size : of the constant and the restarted schedule
    exponent : c of the offset m^c, of the decreasing and the square_root schedule
    averaging : none, all (iterates) or last_epoch
    averaging_interval : epochs between the restarts of rsgd_ar
    permutation : reused, or fresh in each epoch
    shards, shard_averaging : disjoint parts trained side by side, averaged once or each_epoch
    regularisation : λ
    radius : the model is projected onto ‖w‖₂ ≤ radius
    projection_dimension, projection_seed : Gaussian random projection of the features, by a public seed
    clip_norm : C, what the gradient of a row is clipped to, in the algorithms that add noise while they train
    network : linear (None), or a network's name and sizes, see `dbdp.learning.networks`
    settings : what only this algorithm has, as JSON; a mapping is taken too
    tolerance : refused: a stop that depends on the data is not covered by any bound
    """

    epsilon: float
    delta: float = 0.0
    algorithm: str = "bolt_on"
    loss: str = "logistic"
    huber_width: float | None = None
    positive_weight: float = 1.0
    epochs: int = 10
    batch_size: int | None = None
    schedule: str | None = None
    step_size: float | None = None
    exponent: float | None = None
    averaging: str | None = None
    averaging_interval: int | None = None
    permutation: str | None = None
    shards: int = 1
    shard_averaging: str | None = None
    regularisation: float | None = None
    radius: float | None = None
    mechanism: str | None = None
    calibration: str | None = None
    projection_dimension: int | None = None
    projection_seed: int | None = None
    clip_norm: float | None = None
    network: str | None = None
    settings: str | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, plain(getattr(self, each.name)))
        if isinstance(self.settings, Mapping):
            object.__setattr__(self, "settings", json.dumps(self.settings))

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, but for epsilon and delta."""
        asked = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {
            name: value
            for name, (value, default) in asked.items()
            if value != default and name not in ("epsilon", "delta")
        }


@dataclass(frozen=True)
class Learning:
    """How the models are trained: the request with every default in its place."""

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
    def updates(self) -> int:
        """Updates of the longest shard."""
        return self.epochs * -(-max(self.shard_rows) // self.batch_size)


@dataclass(frozen=True)
class Plan:
    """What will be done; `explain` is the same as data. Neighbours are replace-one, of a record or a unit."""

    request: Request
    facts: Facts
    learning: Learning
    sensitivity: Sensitivity
    calibration: str
    mechanism: Mechanism

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return self.mechanism.guarantee

    def initial_states(self) -> list[State]:
        """Return the states before the first row, one for each output."""
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

        `sensitivity` is what the noise covers: the exact bound, plus `sensitivity_margin` for
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
        }

    def _settings(self) -> Iterator[tuple[str, Any]]:
        """Give what only some plans have."""
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
        if self.facts.outputs > 1:
            yield "classes", self.facts.outputs
        if len(learning.shard_rows) > 1:
            yield "shards", len(learning.shard_rows)
            yield "shard_averaging", learning.shard_averaging
        if self.request.projection_dimension is not None:
            yield "projection_dimension", self.request.projection_dimension
            yield "projection_seed", self.request.projection_seed

    def _positions(self) -> dict[str, Any]:
        """Return the sensitivity of each mini-batch that the record may sit in, or a summary of many."""
        found = self.sensitivity.by_position
        if found is None:
            return {}
        if len(found) <= LONGEST_LIST:
            return {"sensitivity_by_position": found.tolist()}
        summary = {"positions": len(found), "first": float(found[0]), "last": float(found[-1])}
        quantiles = np.quantile(found, [0, 0.25, 0.5, 0.75, 1])
        names = ("smallest", "lower_quartile", "median", "upper_quartile", "largest")
        return {"sensitivity_by_position": summary | dict(zip(names, quantiles.tolist(), strict=True))}


@dataclass(frozen=True)
class WhiteBox:
    """What an algorithm that adds its noise while it trains will do. Neighbours are replace-one, of a record or a unit.

    Attributes
    ----------
    guarantee : the event and the stand-alone (ε, δ) of the whole run
    told : what `explain` says beside the request: steps, sampling rate, expected passes, noise scale, …
    run : trains over packed rows; returns the noisy model, shape (parameters,). All that it gets from the
        rows is exact: it must release what depends on them through mechanisms whose events make up `guarantee`
    """

    request: Request
    facts: Facts
    guarantee: Release
    told: dict[str, Any]
    run: Callable[[Access, Progress], np.ndarray]

    def explain(self) -> dict[str, Any]:
        """Return the plan as data: the options that were given, and what was made of them."""
        return {
            "algorithm": self.request.algorithm,
            "loss": self.request.loss if self.request.network is None else "cross_entropy",
            **self.facts.relation,
            "features": self.facts.dimension,
            **({"classes": self.facts.outputs} if self.facts.outputs > 1 else {}),
            **self.request.given,
            **self.told,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
        }
