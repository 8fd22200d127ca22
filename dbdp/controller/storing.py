"""Stores the models that a request trained, in the units of the user's columns, with their receipt."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dbdp.algorithms import Request, settings
from dbdp.algorithms.plan import Released
from dbdp.controller.facts import facts
from dbdp.controller.receipts import Receipt
from dbdp.learning.rows.pairs import BINS_OF_CHOSEN, CELLS_OF_CHOSEN, CHOSEN, written
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.results import network_models
from dbdp.registry.results.column_units import in_column_units, standard_errors
from dbdp.registry.results.models import ReleasedModel
from dbdp.sessions.session import Session


def store(
    session: Session, dataset: RegisteredDataset, request: Request, released: Released, receipt: Receipt
) -> ReleasedModel:
    """Store released linear models or a network, and return the model as users see it."""
    if request.network is None:
        noted = receipt.noting(released.figures)
        return _store_linear(session, dataset, request, released.models, noted.as_data())
    data, vector = network_of(dataset, request), released.models.tolist()
    stored = session.store_network(dataset, data, vector, receipt.as_data())
    names = dataset.declaration.feature_names
    return ReleasedModel(stored["id"], dataset.name, names, None, None, None, stored["receipt"], data, vector)


def with_chosen(dataset: RegisteredDataset, request: Request, released: Released) -> RegisteredDataset:
    """Return the dataset with the pairs that a training chose."""
    if not released.chosen:
        return dataset
    cells = request.pair_cells or CELLS_OF_CHOSEN
    declaration = dataset.declaration.with_pairs(released.chosen, cells, bins=BINS_OF_CHOSEN)
    return replace(dataset, declaration=declaration)


def with_standard_errors(dataset: RegisteredDataset, request: Request, released: Released) -> Released:
    """Return a release whose figures have the standard errors of its coefficients in place of its noise."""
    errors = standard_errors(dataset.declaration, released.noise_root, request.projection)
    figures = _in_label_units(dataset, released.figures)
    return replace(released, figures={**figures, **errors}, noise_root=None)


def _in_label_units(dataset: RegisteredDataset, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures whose root mean squared error, if there is one, is in units of the label."""
    evaluation = figures.get("evaluation", {})
    if "rmse" not in evaluation or not dataset.declaration.label_bounds:
        return dict(figures)
    lower, upper = dataset.declaration.label_bounds
    error = {name: None if value is None else value * (upper - lower) / 2 for name, value in evaluation["rmse"].items()}
    return {**figures, "evaluation": {**evaluation, "rmse": error}}


def _store_linear(
    session: Session, dataset: RegisteredDataset, request: Request, models: np.ndarray, receipt: dict[str, Any]
) -> ReleasedModel:
    units = in_column_units(dataset.declaration, np.atleast_2d(models), request.projection)
    coefficients, intercepts = (each.tolist() for each in units)
    if dataset.declaration.kind != "classes":
        coefficients = coefficients[0]
    stored = session.store_release(dataset, coefficients, intercepts, receipt | _paired(dataset, receipt))
    names = dataset.declaration.feature_names
    intercept = intercepts[0] if dataset.declaration.kind != "classes" else None
    return ReleasedModel(stored["id"], dataset.name, names, coefficients, intercept, intercepts, stored["receipt"])


def _paired(dataset: RegisteredDataset, receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a receipt from which the stored declaration has its pairs; empty if it names none."""
    declaration = dataset.declaration
    if not declaration.pairs and receipt.get("pairs") != CHOSEN:
        return {}
    return declaration.paired | {"pairs": written(declaration.pairs)}


def network_of(dataset: RegisteredDataset, request: Request) -> dict[str, Any]:
    """Return the network of a request as data; raise ValueError unless it fits the dataset's declaration."""
    from dbdp.learning.networks.architecture import Network  # only a training of one needs it

    network = settings.objective_of(request, facts(dataset, request))
    if not isinstance(network, Network):
        raise AssertionError("a request that names a network has one as its objective")
    network_models.check(dataset.declaration, network, request.projection)
    return network_models.as_data(network, request.projection)
