"""The keywords of the estimators, for type checkers; at run time `estimators` derives them from `Request`."""

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict


class _OfEstimators(TypedDict, total=False):
    epsilon: Required[float]
    delta: float
    algorithm: str
    epochs: int | None
    batch_size: int | None
    schedule: str | None
    step_size: float | None
    exponent: float | None
    averaging: str | None
    averaging_interval: int | None
    permutation: str | None
    shards: int
    shard_averaging: str | None
    regularisation: float | None
    radius: float | None
    mechanism: str | None
    calibration: str | None
    clip_norm: float | None
    settings: str | Mapping[str, Any] | None
    name: str | None
    database: Any
    bounds: Any
    intercept: bool
    progress: bool


class _OfLinearModels(_OfEstimators, total=False):
    huber_width: float | None
    positive_weight: float
    projection_dimension: int | None
    projection_seed: int | None
    summary: int | None
    pairs: str | int | Sequence[Sequence[str]] | None
    pair_cells: int | None


class OfNetworks(_OfEstimators, total=False):
    """The keywords of a network."""

    classes: Sequence[Any] | None
    hidden_layer_sizes: Sequence[int]


class OfClassifiers(_OfLinearModels, total=False):
    """The keywords of a classifier."""

    classes: Sequence[Any] | None


class OfRegressors(_OfLinearModels, total=False):
    """The keywords of a regressor."""

    label_bounds: Sequence[float] | None
