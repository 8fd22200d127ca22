"""Releases: the noisy model in the units of the user's columns, its receipt, and its scorer."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.datasets import Dataset, Declaration
from dbdp.learning.encoding import ColumnEncoder, VectorEncoder
from dbdp.sessions import Session


@dataclass(frozen=True)
class Model:
    """A released linear model: decision = intercept + ⟨coefficients, features⟩.

    Attributes
    ----------
    id : number in dbdp.models
    dataset : name of the dataset
    feature_names : a name for each coefficient: a column, `column=category`, or `column[index]`
    coefficients : (features,) per unit of a column, or for a category
    intercept : 0 where the declaration has none
    receipt : what was done and what it cost
    """

    id: int
    dataset: str
    feature_names: list[str]
    coefficients: list[float]
    intercept: float
    receipt: dict[str, Any]


def in_column_units(declaration: Declaration, model: np.ndarray) -> tuple[list[float], float]:
    """Return coefficients and intercept for the columns as they are, from the model over packed rows.

    A linear map with public constants: post-processing.
    """
    if vector := declaration.vector:
        scaled = model * VectorEncoder(vector.length, vector.norm_bound, declaration.intercept).scales
        return scaled[: vector.length].tolist(), float(scaled[vector.length :].sum())
    lower = np.array([feature.lower for feature in declaration.numeric])
    upper = np.array([feature.upper for feature in declaration.numeric])
    categories = tuple((0.0,) * len(feature.categories) for feature in declaration.categorical)
    encoder = ColumnEncoder(tuple(lower), tuple(upper), categories, declaration.intercept)
    coefficients = model / encoder.radius
    intercept = float(coefficients[-1]) if declaration.intercept else 0.0
    coefficients = coefficients[: len(declaration.feature_names)]
    coefficients[: len(lower)] /= upper - lower
    intercept -= float(coefficients[: len(lower)] @ lower)
    return coefficients.tolist(), intercept


def store(session: Session, dataset: Dataset, model: np.ndarray, receipt: dict[str, Any]) -> Model:
    """Store a released model through the server's `dbdp.store_release`."""
    coefficients, intercept = in_column_units(dataset.declaration, model)
    if session.in_server:  # as dbdp_owner already
        made = record(session, dataset, coefficients, intercept, receipt)
    else:
        sql = "select dbdp.store_release($1, $2::pg_catalog.float8[], $3, $4::pg_catalog.json)::pg_catalog.text as made"
        stored = session.query(sql, dataset.name, coefficients, intercept, json.dumps(receipt))
        made = json.loads(stored[0]["made"])
    names = dataset.declaration.feature_names
    return Model(made["id"], dataset.name, names, coefficients, intercept, made["receipt"])


def record(
    session: Session, dataset: Dataset, coefficients: list[float], intercept: float, receipt: dict[str, Any]
) -> dict[str, Any]:
    """Write the row of dbdp.model (runs in the server, as dbdp_owner); return id and receipt."""
    row = session.query("select nextval('dbdp.model_id_seq') as id, now()::text as at, session_user::text as by")[0]
    receipt = {"model": row["id"], **receipt, "released_at": row["at"], "released_by": row["by"]}
    session.query(
        "insert into dbdp.model (id, dataset_id, feature_names, coefficients, intercept, declaration, receipt) "
        "overriding system value values ($1, $2, $3, $4, $5, $6::json, $7::json)",
        row["id"],
        dataset.id,
        dataset.declaration.feature_names,
        coefficients,
        intercept,
        dataset.declaration.to_json(),
        json.dumps(receipt),
    )
    return {"id": row["id"], "receipt": receipt}
