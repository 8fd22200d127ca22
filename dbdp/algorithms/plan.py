"""A plan: what one release will do and cost, from public facts only."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from dbdp.algorithms.rows import Layout, Progress, Rows, silent
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.learning.rows.features import SCALED
from dbdp.privacy.accounting.events import REPLACE_ONE, REPLACE_ONE_UNIT, Release


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
    network : linear (None), or a network's name and sizes, see `dbdp.learning.networks.networks`
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
    def projection(self) -> RandomProjection | None:
        """The random projection of the features, if there is one."""
        if self.projection_dimension is None or self.projection_seed is None:
            return None
        return RandomProjection(self.projection_dimension, self.projection_seed)

    @property
    def coding(self) -> dict[str, Any] | None:
        """How rows are encoded otherwise than for a linear model: for a network their lengths count."""
        return None if self.network is None else {"encoding": SCALED}

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, but for epsilon and delta."""
        asked = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {
            name: value
            for name, (value, default) in asked.items()
            if value != default and name not in ("epsilon", "delta")
        }


class Plan(Protocol):
    """What one release will do and cost. Neighbours are replace-one, of a record or a unit."""

    @property
    def request(self) -> Request:
        """What was asked for."""

    @property
    def facts(self) -> Facts:
        """What the plan was made from, with the request."""

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""

    @property
    def layout(self) -> Layout:
        """How the rows are packed that it runs over."""

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""

    def run(self, rows: Rows, progress: Progress = silent) -> np.ndarray:
        """Pack the rows, train, and return the noisy models, shape (outputs, dimension); of a network (P,)."""


@dataclass(frozen=True)
class NoisyWhileTraining:
    """The plan of an algorithm that adds its noise while it trains.

    Attributes
    ----------
    guarantee : the event and the stand-alone (ε, δ) of the whole run
    details : what `explain` shows beside the request: steps, sampling rate, expected passes, noise scale, …
    method : trains over packed rows; returns the noisy model, shape (P,). All that the rows return
        is exact: it must release what depends on them through mechanisms whose events make up `guarantee`
    """

    request: Request
    facts: Facts
    guarantee: Release
    details: dict[str, Any]
    method: Callable[[Rows, Progress], np.ndarray]

    @property
    def layout(self) -> Layout:
        """All rows in one slice."""
        return Layout(self.facts.dimension, (self.facts.rows,), self.request.projection, coding=self.request.coding)

    def run(self, rows: Rows, progress: Progress = silent) -> np.ndarray:
        """Pack the rows, train, and return the noisy models."""
        model = self.method(rows, progress)
        return model if self.request.network is not None else model.reshape(self.facts.shape)

    def explain(self) -> dict[str, Any]:
        """Return the plan as data: the options that were given, and what was made of them."""
        return {
            "algorithm": self.request.algorithm,
            "loss": self.request.loss if self.request.network is None else "cross_entropy",
            **self.facts.relation,
            "features": self.facts.dimension,
            **({"classes": self.facts.outputs} if self.facts.outputs > 1 else {}),
            **self.request.given,
            **self.details,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
        }
