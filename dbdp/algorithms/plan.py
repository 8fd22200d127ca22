"""Requests, and plans: the training and the cost of one release, from public facts only."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, Protocol

import numpy as np

from dbdp.algorithms.rows import Layout, Progress, Rows, silent
from dbdp.algorithms.words import own_names
from dbdp.learning.losses import HuberRegression, Logistic, Squared
from dbdp.learning.rows import pairs
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.learning.rows.features import SCALED
from dbdp.learning.rows.products import Candidate
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import REPLACE_ONE, REPLACE_ONE_UNIT, Release

AUTO = "auto"  # the algorithm is chosen from public facts: `dbdp.algorithms.catalogue`
LEAST_SQUARES = (
    AUTO,
    "preconditioned_gd",
    "private_splines",
)  # with delta > 0 they minimise the squared loss without a ball


@dataclass(frozen=True)
class Moment:
    """A released second moment of the rows, in the coordinates in which they are packed."""

    mean: np.ndarray  # noisy mean of xxᵀ, shape (d, d)
    ridge: float  # κ > 0, which follows from its noise (privacy.md §16.2)


@dataclass(frozen=True)
class Facts:
    """The public facts of a dataset that a plan needs."""

    rows: int  # number of records; of slots, if units of privacy have several records
    dimension: int  # coordinates of one model, with the intercept
    outputs: int = 1  # number of models: the classes of a one-vs-rest training, else 1
    is_classifier: bool = True  # whether the label is a class; otherwise it is a number in [-1, 1]
    label_half: float | None = None  # half of the range of the bounds of a label that is a number, if it is known
    intercept: bool = True  # whether the last coordinate is the intercept
    reach: float = 1.0  # a norm of models that say any label in [-1, 1], see `Declaration.reach`
    unit_rows: int = 1  # r, the slots of each unit of privacy: neighbours differ in up to r records (privacy.md §11.6)
    # The budget of the dataset: what a release costs depends on it, and on its ε what a leak costs.
    budget: Budget | None = None
    # The largest Rényi order of the budgets and allowances that a release is charged to; 0 without one.
    least_order: float = 0.0
    # The second moment in the summary that the request names.
    moment: Moment | None = field(default=None, compare=False)
    blocks: RowBlocks | None = None  # the coordinates of each column, for an additive model; None of an array
    # Those of any columns, if rows in places are smaller than dense ones and steps may read them so; else None.
    places: RowBlocks | None = None
    candidates: tuple[Candidate, ...] = ()  # pairs of columns that a training may choose

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the models together."""
        return self.outputs, self.dimension

    @property
    def relation(self) -> dict[str, Any]:
        """The neighbouring relation, and the public numbers of rows and units, as data."""
        return relation(self.rows, self.unit_rows)


def relation(rows: int, unit_rows: int) -> dict[str, Any]:
    """Return the neighbouring relation for that many slots, and the public numbers of rows and units, as data."""
    if unit_rows == 1:
        return {"neighbours": REPLACE_ONE, "rows": rows}
    return {"neighbours": REPLACE_ONE_UNIT, "rows": rows, "units": rows // unit_rows, "max_rows": unit_rows}


def plain(value: Any) -> Any:
    """Return a value with NumPy's scalars converted to Python's, also inside a mapping."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class Request:
    """A request for private training. None stands for the algorithm's default.

    Attributes
    ----------
    epsilon, delta : float
        The stand-alone guarantee of this release. delta = 0 is pure ε.
    algorithm, loss, schedule, mechanism, calibration : str, str | None
        Names of the algorithm and its parts. The default loss suits the dataset's label.
    huber_width : float | None
        Half-width h of huber_svm, or δ of huber_regression.
    positive_weight : float
        Factor of the loss of positive rows (with several classes: of each class's own rows).
    epochs, batch_size : int | None
        Passes over the data, and rows of a mini-batch.
    step_size : float | None
        Step size of the constant and the restarted schedule.
    exponent : float | None
        c of the offset m^c, of the decreasing and the square_root schedule.
    averaging : str | None
        Averaged iterates: `none`, `all` or `last_epoch`.
    averaging_interval : int | None
        Epochs between the restarts of rsgd_ar.
    permutation : str | None
        `reused`, or `fresh` in each epoch.
    shards, shard_averaging : int, str | None
        Number of disjoint parts, trained in parallel, and when they are averaged: `once` or `each_epoch`.
    regularisation : float | None
        λ.
    radius : float | None
        Norm of the ball that the model is projected onto, ‖w‖₂ ≤ radius.
    projection_dimension, projection_seed : int | None
        Gaussian random projection of the features, by a public seed.
    clip_norm : float | None
        C, the largest norm of a row's gradient, in the algorithms that add noise while they train.
    network : str | None
        Name and sizes of a network, see `dbdp.learning.networks.architecture`, or None for a linear model.
    settings : str | None
        Settings that only this algorithm has, as JSON or as a mapping.
    summary : int | None
        Number of a released summary of the dataset, in dbdp.summaries, that gives the second moment.
    name : str | None
        Name of the model. Each training run under it is a new version.
    pairs : str | None
        Pairs of columns with their cells as features too: `auto`, `none`, a number, or pairs such as `age*education`.
    pair_cells : int | None
        The most cells of a pair.
    monotone : str | None
        Numbers that may only raise a score (1), or only lower it (-1), as JSON or as a mapping of columns.
    cohort : str | None
        Only rows that meet all of its conditions: column → [lower, upper] or a list of categories, as JSON or as a
        mapping. How many rows that are stays private.
    """

    epsilon: float
    delta: float = 0.0
    algorithm: str = AUTO
    loss: str | None = None
    huber_width: float | None = None
    positive_weight: float = 1.0
    epochs: int | None = None
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
    summary: int | None = None
    name: str | None = None
    pairs: str | None = None
    pair_cells: int | None = None
    monotone: str | None = None
    cohort: str | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, plain(getattr(self, each.name)))
        for name in ("settings", "monotone", "cohort"):
            if isinstance(getattr(self, name), Mapping):
                object.__setattr__(self, name, json.dumps(getattr(self, name)))
        if self.pairs is not None:
            object.__setattr__(self, "pairs", pairs.as_text(self.pairs))

    def loss_on(self, *, is_classifier: bool) -> str:
        """Return the name of the loss: the given one, else the logistic loss of classes and least squares of numbers.

        Other algorithms have noise in proportion to the longest residual: theirs is Huber's loss, which is the squared
        loss for residuals of up to `huber_width`, and has half of the noise.
        """
        if self.loss is not None:
            return self.loss
        if is_classifier:
            return Logistic.name
        is_free = self.delta > 0 and self.algorithm in LEAST_SQUARES and self.huber_width is None
        return Squared.name if is_free else HuberRegression.name

    def minimised(self, *, is_classifier: bool) -> str:
        """Return the name of what a training minimises, as a plan shows it: the loss, or a network's cross-entropy."""
        return self.loss_on(is_classifier=is_classifier) if self.network is None else "cross_entropy"

    @property
    def projection(self) -> RandomProjection | None:
        """The random projection of the features, or None."""
        if self.projection_dimension is None or self.projection_seed is None:
            return None
        return RandomProjection(self.projection_dimension, self.projection_seed)

    @property
    def naming(self) -> dict[str, Any]:
        """The name, column pairs and cohort, which are recorded in the plan but read by no algorithm."""
        names = "name", "pairs", "pair_cells", "cohort"
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def coding(self) -> dict[str, Any] | None:
        """The encoding of rows for a network, for which their lengths matter, or None for a linear model."""
        return None if self.network is None else {"encoding": SCALED}

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, without epsilon and delta."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {
            name: value
            for name, (value, default) in values.items()
            if value != default and name not in ("epsilon", "delta")
        }


_set_fields = Request.__init__


@wraps(_set_fields)
def _accept_synonyms(request: Request, *values: Any, **options: Any) -> None:
    """Set the fields of a request; a word of scikit-learn is refused with ours."""
    _set_fields(request, *values, **own_names("Request", options, Request.__dataclass_fields__))


Request.__init__ = _accept_synonyms  # type: ignore[method-assign, assignment]


@dataclass(frozen=True)
class Released:
    """The release of a plan, public as a whole."""

    models: np.ndarray  # noisy models over packed rows, shape (outputs, dimension); of a network (P,)
    # What the receipt shows beside the plan: figures that follow from what was released.
    figures: Mapping[str, Any] = field(default_factory=dict)
    # R, shape (m, dimension): the noise for privacy in each model has a covariance of at most RᵀR, which public facts
    # and released values determine. None where they do not, or the models are too long.
    noise_root: np.ndarray | None = None
    chosen: tuple[tuple[str, str], ...] = ()  # pairs that the training chose; their cells follow the columns


class Plan(Protocol):
    """The interface of a plan of one release. Neighbours are replace-one, for records or units."""

    @property
    def request(self) -> Request:
        """The request."""

    @property
    def facts(self) -> Facts:
        """The public facts of the dataset."""

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""

    @property
    def layout(self) -> Layout:
        """How the rows are packed."""

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""

    def run(self, rows: Rows, progress: Progress = silent) -> Released:
        """Pack the rows, train, and return the noisy models, with the figures of their receipt."""


@dataclass(frozen=True)
class NoisyWhileTraining:
    """The plan of an algorithm that adds noise while it trains."""

    request: Request
    facts: Facts
    guarantee: Release  # the event and the stand-alone (ε, δ) of the run
    details: dict[str, Any]  # what `explain` adds to the request: steps, sampling rate, expected passes, noise scale, …
    # Trains over packed rows and returns the noisy model, shape (P,). The rows return exact results: the method must
    # release what depends on them through mechanisms whose events compose to `guarantee`.
    method: Callable[[Rows, Progress], np.ndarray]

    @property
    def layout(self) -> Layout:
        """All rows in one slice."""
        return Layout(self.facts.dimension, (self.facts.rows,), self.request.projection, coding=self.request.coding)

    def run(self, rows: Rows, progress: Progress = silent) -> Released:
        """Pack the rows, train, and return the noisy models."""
        model = self.method(rows, progress)
        return Released(model if self.request.network is not None else model.reshape(self.facts.shape))

    def explain(self) -> dict[str, Any]:
        """Return the plan as data: the request's options, and the details that follow from them."""
        loss = self.request.minimised(is_classifier=self.facts.is_classifier)
        named = {"algorithm": self.request.algorithm, "loss": loss}
        return {
            **named,
            **self.facts.relation,
            "features": self.facts.dimension,
            **({"classes": self.facts.outputs} if self.facts.outputs > 1 else {}),
            **(self.request.given | named),
            **self.details,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
        }
