"""Evaluation: the confusion matrix of a released model on a registered dataset, charged before a row is read.

It runs in the server, as dbdp_owner, for every door. The rows are packed as for a training, and counted by one
aggregate; the exact matrix never leaves the backend.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

import dbdp
from dbdp import controller, datasets, ledger, network_models, parts
from dbdp.algorithms import Request
from dbdp.algorithms.confusion import ConfusionPlan, scores
from dbdp.datasets import Dataset
from dbdp.declarations import Declaration
from dbdp.learning import blocks, confusions
from dbdp.learning.encoding import HEADER_BYTES, ColumnEncoder, VectorEncoder
from dbdp.learning.objectives import objective_from
from dbdp.sessions import Session, public_failure

_STRAY = 1e-9  # what rounding leaves of an intercept that was never there, as a share of what it is made of


@dataclass(frozen=True)
class Classifier:
    """A released model as it judges packed rows.

    Attributes
    ----------
    vectors : linear models (outputs, d), or the parameters of a network (1, P)
    network : None for linear models
    dimension : coordinates of a packed row
    request : says which rows to pack: with the projection of a network, if it has one
    """

    vectors: np.ndarray
    network: str | None
    dimension: int
    request: Request


def confusion(session: Session, model: int, name: str, *, epsilon: float, delta: float) -> dict[str, Any]:
    """Return a released model's noisy confusion matrix on a dataset, what follows from it, and the receipt.

    Raises
    ------
    ValueError
        Before anything is spent: the model, the dataset or the budget does not allow it.
    ChargedError
        After the charge: the server failed, or the counting was cancelled.
    """
    dataset = datasets.load(session, name)
    declaration = dataset.declaration
    classifier = _classifier(session, model, dataset, epsilon)
    plan = ConfusionPlan(epsilon, delta, dataset.rows, max(declaration.outputs, 2))
    described = plan.explain() | {"model": model}
    datasets.check_rows(session, dataset)
    controller.check_session(session, dataset, classifier.request)
    charged = ledger.charge(session, dataset, described, plan.guarantee)  # before the first row
    try:
        with ledger.failure_noted(session, charged):
            matrix = plan.release(_counted(session, dataset, classifier))
            ledger.await_durable(session, charged)
            ledger.note(session, charged.ledger, "shown")
    except Exception as error:
        raise controller.ChargedError(*public_failure(session, error)) from None
    return {
        "classes": list(declaration.classes) or [declaration.negative, declaration.positive],
        "matrix": matrix.tolist(),
        **scores(matrix),
        "receipt": controller.receipt_of(dataset, described, plan.guarantee)
        | {"ledger": charged.ledger, "version": dbdp.__version__},
    }


def _counted(session: Session, dataset: Dataset, classifier: Classifier) -> np.ndarray:
    """Return the exact matrix, which is secret."""
    options = controller.shuffle_options(classifier.request)
    sql = "select dbdp.confusion(block, $1, $2::pg_catalog.int4, $3) as counts from {}"
    with parts.shuffled(session, dataset, (dataset.rows,), dimension=classifier.dimension, options=options) as made:
        query, vectors = sql.format(made.parts[0].table), classifier.vectors
        return np.array(session.query(query, vectors.tobytes(), len(vectors), classifier.network)[0]["counts"])


def confusion_transition(counts: bytes | None, block: bytes, models: bytes, outputs: int, network: str | None) -> bytes:
    """One block: count its rows by true and predicted class."""
    vectors = np.frombuffer(models, "<f8").reshape(outputs, -1)
    if network is None:
        rows = blocks.decode(block, vectors.shape[1])
        found = confusions.confusion(confusions.linear_scores(vectors, rows), rows[:, -1])
    else:
        objective = objective_from(network)
        rows = blocks.decode(block, objective.inputs)
        found = confusions.confusion(objective.scores(vectors[0], rows), rows[:, -1])  # type: ignore[attr-defined]
    return (found if counts is None else np.frombuffer(counts, "<i8").reshape(found.shape) + found).tobytes()


def confusion_terminate(counts: bytes | None) -> list[list[int]] | None:
    """End the counting: the matrix as an array."""
    if counts is None:
        return None
    cells = np.frombuffer(counts, "<i8")
    return cells.reshape(int(np.sqrt(len(cells))), -1).tolist()


# --- released models ------------------------------------------------------------------------------------

_MODEL = """
select m.declaration::pg_catalog.text as declaration,
       m.coefficients,
       m.intercepts,
       m.network::pg_catalog.text as network,
       dbdp.array_bytes(m.parameters) as parameters
from dbdp.model as m
where m.id = $1
"""


def _classifier(session: Session, model: int, dataset: Dataset, epsilon: float) -> Classifier:
    """Return a released model that fits the dataset.

    Raises
    ------
    ValueError
        If there is none, or it was trained on other columns, or predicts a number.
    """
    found = session.query(_MODEL, model)
    if not found:
        raise ValueError(f"model {model} does not exist; see dbdp.models")
    row, declaration, request = found[0], dataset.declaration, Request(epsilon)
    _check_fit(model, Declaration.from_json(row["declaration"]), dataset)
    if row["network"] is None:
        vectors = in_packed_coordinates(declaration, np.array(row["coefficients"]), np.array(row["intercepts"]))
        return Classifier(vectors, None, declaration.dimension, request)
    network, projection = network_models.parsed(json.loads(row["network"]))
    if projection:
        request = Request(epsilon, projection_dimension=projection.dimension, projection_seed=projection.seed)
    parameters = np.frombuffer(row["parameters"], np.float64, offset=HEADER_BYTES)
    return Classifier(parameters[None], row["network"], network.inputs, request)


def _check_fit(model: int, trained: Declaration, dataset: Dataset) -> None:
    """Raise ValueError for a model whose features or classes are not the dataset's; the label's column may differ."""
    given = dataset.declaration
    if given.kind == "real":
        raise ValueError(
            f"label {given.label!r} of dataset {dataset.name!r} is a number, and a confusion matrix is of classes; "
            "choose a dataset whose label has classes"
        )
    for word in ("kind", "classes", "feature_names", "features", "intercept"):
        if getattr(trained, word) != getattr(given, word):
            raise ValueError(
                f"model {model} was trained on rows whose declaration differs from that of dataset {dataset.name!r} "
                f"in {word}; choose a dataset that is declared alike: see declaration in dbdp.datasets and dbdp.model"
            )


def in_packed_coordinates(declaration: Declaration, coefficients: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
    """Return linear models over packed rows, from those in column units: the inverse of `releases.in_column_units`.

    Packing divides a row that is too long by a positive number, intercept and all: signs and the largest of
    several scores stay. So a packed row is taken for the class that the row is predicted to be, but where scores
    are so near that the rounding to float32 decides.

    Raises
    ------
    ValueError
        If there is an intercept, and the declaration has none.
    """
    models = np.atleast_2d(coefficients).astype(np.float64)
    if vector := declaration.vector:
        scales = VectorEncoder(vector.length, vector.norm_bound, declaration.intercept).scales
        packed, shift, last = models / scales[: vector.length], np.zeros(len(models)), scales[vector.length :]
    else:
        lower, widths, radius = _column_scales(declaration)
        shift = models[:, : len(lower)] @ lower
        packed, last = models * (widths * radius), np.full(int(declaration.intercept), 1 / radius)
    offsets = intercepts + shift
    if declaration.intercept:
        return np.hstack([packed, (offsets / last)[:, None]])
    if (np.abs(offsets) > _STRAY * (np.abs(intercepts) + np.abs(shift))).any():
        raise ValueError(
            "the model has an intercept, and the dataset is declared without one; choose a dataset with an intercept"
        )
    return packed


def _column_scales(declaration: Declaration) -> tuple[np.ndarray, np.ndarray, float]:
    """Return lower bounds of the numeric columns, the width of each feature, and what packing divides a row by."""
    lower = np.array([feature.lower for feature in declaration.numeric])
    upper = np.array([feature.upper for feature in declaration.numeric])
    categories = tuple((0.0,) * len(feature.categories) for feature in declaration.categorical)
    encoder = ColumnEncoder(tuple(lower), tuple(upper), categories, declaration.intercept)
    widths = np.ones(encoder.width - declaration.intercept)
    widths[: len(lower)] = upper - lower
    return lower, widths, encoder.radius
