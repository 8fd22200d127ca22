"""Releases: the noisy models in the units of the user's columns, their receipt, and where they are kept.

Shapes: models (outputs, dimension), coefficients (outputs, features), intercepts (outputs,); the parameters
of a network (P,).
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.learning.rows.encoding import ColumnEncoder, RandomProjection, VectorEncoder
from dbdp.registry import network_models
from dbdp.registry.datasets import Dataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.spending import ledger
from dbdp.sessions.server import ServerSession


@dataclass(frozen=True)
class Model:
    """A released model: linear, decision = intercept + ⟨coefficients, features⟩ for each class, or a network.

    Attributes
    ----------
    id : int
        Its number in dbdp.models.
    dataset : str
        Name of the dataset.
    feature_names : list of str
        A name for each coefficient: a column, `column=category`, or `column[index]`.
    coefficients : list, shape (features,), for classes (classes, features)
        Per unit of a column, or for a category; of a label that is a number in its units. None for a network.
    intercept : float
        0 where the declaration has none; None for classes and for a network.
    intercepts : list, shape (outputs,)
        None for a network.
    receipt : dict
        What was done and what it cost.
    network : dict
        What the parameters are of, see `dbdp.registry.network_models`; None for a linear model.
    parameters : list, shape (P,)
        Of a network over packed rows.
    """

    id: int
    dataset: str
    feature_names: list[str]
    coefficients: list[Any] | None
    intercept: float | None
    intercepts: list[float] | None
    receipt: dict[str, Any]
    network: dict[str, Any] | None = None
    parameters: list[float] | None = None


def in_column_units(
    declaration: Declaration, models: np.ndarray, projection: RandomProjection | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and intercepts for the columns as they are, from models over packed rows.

    An affine map with public constants: post-processing. One model (dimension,) is taken too.
    """
    if projection:
        features = declaration.dimension - declaration.intercept
        inner = models[..., : projection.dimension] @ projection.matrix(features).T
        models = np.concatenate([inner, models[..., projection.dimension :]], axis=-1)
    coefficients, intercepts = (
        _of_vector(declaration, models) if declaration.vector else _of_columns(declaration, models)
    )
    if declaration.label_bounds:
        lower, upper = declaration.label_bounds
        coefficients = coefficients * ((upper - lower) / 2.0)
        intercepts = intercepts * ((upper - lower) / 2.0) + (lower + upper) / 2.0
    return coefficients, intercepts


def _of_vector(declaration: Declaration, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    vector = declaration.vector
    if vector is None:
        raise AssertionError("a declaration of columns has no array")
    scaled = models * VectorEncoder(vector.length, vector.norm_bound, declaration.intercept).scales
    return scaled[..., : vector.length], scaled[..., vector.length :].sum(axis=-1)


def _of_columns(declaration: Declaration, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower = np.array([feature.lower for feature in declaration.numeric])
    upper = np.array([feature.upper for feature in declaration.numeric])
    categories = tuple((0.0,) * len(feature.categories) for feature in declaration.categorical)
    encoder = ColumnEncoder(tuple(lower), tuple(upper), categories, declaration.intercept)
    scaled = models / encoder.radius
    features = encoder.width - declaration.intercept
    coefficients, intercepts = scaled[..., :features], scaled[..., features:].sum(axis=-1)
    coefficients[..., : len(lower)] /= upper - lower
    return coefficients, intercepts - coefficients[..., : len(lower)] @ lower


def record(
    session: ServerSession, dataset: Dataset, coefficients: list[Any], intercepts: list[float], receipt: dict[str, Any]
) -> dict[str, Any]:
    """Write the row of dbdp.model (runs in the server, as dbdp_owner); return id and receipt.

    Raises
    ------
    ValueError
        If the shapes are not those that the declaration asks for, or a number is null or not finite.
    """
    _check(dataset.declaration, coefficients, intercepts)
    return _insert(session, dataset, receipt, coefficients, intercepts, None, None)


def record_network(
    session: ServerSession, dataset: Dataset, data: dict[str, Any], parameters: list[float], receipt: dict[str, Any]
) -> dict[str, Any]:
    """Write a network's row of dbdp.model (runs in the server, as dbdp_owner); return id and receipt.

    Raises
    ------
    ValueError
        If the data is no network of such a dataset, or the parameters are not its own, or not finite.
    """
    network, projection = network_models.parsed(data)
    network_models.check(dataset.declaration, network, projection)
    shape = np.shape(parameters)
    if shape != (network.parameters,):
        raise ValueError(f"parameters have the shape {shape}; the network's are {network.parameters} in one row")
    if not np.isfinite(np.array(parameters, np.float64)).all():
        raise ValueError("a parameter is null or not finite; a release has numbers only")
    described = json.dumps(network_models.as_data(network, projection))
    return _insert(session, dataset, receipt, None, None, described, parameters)


def _insert(
    session: ServerSession,
    dataset: Dataset,
    receipt: dict[str, Any],
    *model: list[Any] | str | None,
) -> dict[str, Any]:
    """Write a row of dbdp.model: coefficients and intercepts, or a network and parameters.

    Where the receipt names the charge that paid for it, that charge's outcome is this model.
    """
    paid = receipt.get("ledger")
    if paid is not None:
        ledger.check_own(session, paid, dataset.id)
    row = session.query("select nextval('dbdp.model_id_seq') as id, now()::text as at, session_user::text as by")[0]
    facts = {"model": row["id"], "dataset": dataset.name, "released_at": row["at"], "released_by": row["by"]}
    receipt = facts | receipt | facts  # read first, and whatever a client says of them
    session.query(
        "insert into dbdp.model (id, dataset_id, feature_names, declaration, receipt, "
        "coefficients, intercepts, network, parameters) overriding system value "
        "values ($1, $2, $3, $4::json, $5::json, $6::float8[], $7::float8[], $8::json, $9::float8[])",
        row["id"],
        dataset.id,
        dataset.declaration.feature_names,
        dataset.declaration.to_json(),
        json.dumps(receipt),
        *model,
    )
    if paid is not None:
        ledger.note(session, paid, "released", model=row["id"])
    return {"id": row["id"], "receipt": receipt}


def _check(declaration: Declaration, coefficients: list[Any], intercepts: list[float]) -> None:
    features = len(declaration.feature_names)
    expected = (declaration.outputs, features) if declaration.kind == "classes" else (features,)
    shapes = np.shape(coefficients), np.shape(intercepts)
    if shapes != (expected, (declaration.outputs,)):
        raise ValueError(
            f"coefficients have the shape {shapes[0]} and intercepts {shapes[1]}; the dataset's are {expected} and "
            f"({declaration.outputs},)"
        )
    if not all(np.isfinite(np.array(each, np.float64)).all() for each in (coefficients, intercepts)):
        raise ValueError("a coefficient or an intercept is null or not finite; a release has numbers only")
