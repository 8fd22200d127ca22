"""Releases: the noisy models in the units of the user's columns, their receipt, and where they are kept.

Shapes: models (outputs, dimension), coefficients (outputs, features), intercepts (outputs,).
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.datasets import Dataset
from dbdp.declarations import Declaration
from dbdp.learning.encoding import ColumnEncoder, RandomProjection, VectorEncoder
from dbdp.sessions import Session


@dataclass(frozen=True)
class Model:
    """A released linear model: decision = intercept + ⟨coefficients, features⟩, for each class one.

    Attributes
    ----------
    id : number in dbdp.models
    dataset : name of the dataset
    feature_names : a name for each coefficient: a column, `column=category`, or `column[index]`
    coefficients : (features,) per unit of a column, or for a category; for classes (classes, features).
        Of a label that is a number they are in its units
    intercept : 0 where the declaration has none; None for classes
    intercepts : (outputs,)
    receipt : what was done and what it cost
    """

    id: int
    dataset: str
    feature_names: list[str]
    coefficients: list[Any]
    intercept: float | None
    intercepts: list[float]
    receipt: dict[str, Any]


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


def store(
    session: Session,
    dataset: Dataset,
    models: np.ndarray,
    receipt: dict[str, Any],
    projection: RandomProjection | None = None,
) -> Model:
    """Store released models through the server's `dbdp.store_release`."""
    units = in_column_units(dataset.declaration, np.atleast_2d(models), projection)
    coefficients, intercepts = (each.tolist() for each in units)
    if dataset.declaration.kind != "classes":
        coefficients = coefficients[0]
    if session.in_server:  # as dbdp_owner already
        made = record(session, dataset, coefficients, intercepts, receipt)
    else:
        sql = (
            "select dbdp.store_release($1, $2::pg_catalog.float8[], $3::pg_catalog.float8[], $4::pg_catalog.json)"
            "::pg_catalog.text as made"
        )
        stored = session.query(sql, dataset.name, coefficients, intercepts, json.dumps(receipt))
        made = json.loads(stored[0]["made"])
    names = dataset.declaration.feature_names
    intercept = intercepts[0] if dataset.declaration.kind != "classes" else None
    return Model(made["id"], dataset.name, names, coefficients, intercept, intercepts, made["receipt"])


def record(
    session: Session, dataset: Dataset, coefficients: list[Any], intercepts: list[float], receipt: dict[str, Any]
) -> dict[str, Any]:
    """Write the row of dbdp.model (runs in the server, as dbdp_owner); return id and receipt.

    Raises
    ------
    ValueError
        If the shapes are not those that the declaration asks for, or a number is null.
    """
    _check(dataset.declaration, coefficients, intercepts)
    row = session.query("select nextval('dbdp.model_id_seq') as id, now()::text as at, session_user::text as by")[0]
    receipt = {"model": row["id"], **receipt, "released_at": row["at"], "released_by": row["by"]}
    session.query(
        "insert into dbdp.model (id, dataset_id, feature_names, coefficients, intercepts, declaration, receipt) "
        "overriding system value values ($1, $2, $3, $4, $5, $6::json, $7::json)",
        row["id"],
        dataset.id,
        dataset.declaration.feature_names,
        coefficients,
        intercepts,
        dataset.declaration.to_json(),
        json.dumps(receipt),
    )
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
    if np.isnan(np.array(coefficients, np.float64)).any() or np.isnan(np.array(intercepts, np.float64)).any():
        raise ValueError("a coefficient or an intercept is null or NaN; a release has numbers only")
