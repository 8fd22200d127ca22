"""The non-private baseline, for the owner of the rows alone: what a model without noise would be.

It runs in a client, with that client's own right to read the table; no door of the server reaches it. Nothing
is charged and nothing is stored: what comes back is not private, and must not be published.
"""

import math
from dataclasses import dataclass

import numpy as np

from dbdp.algorithms import PERTURBED_ONCE, Request, catalogue, settings
from dbdp.algorithms.perturbed_once.minimisation import minimise
from dbdp.algorithms.perturbed_once.output_perturbation import PerturbedOnce
from dbdp.algorithms.rows import Layout
from dbdp.controller.facts import facts
from dbdp.controller.rows import PackedRows, packed_rows
from dbdp.learning.objectives import Linear, Objective
from dbdp.registry import datasets, releases
from dbdp.registry.datasets import Dataset
from dbdp.sessions.session import Session


@dataclass(frozen=True)
class Baseline:
    """A linear model without privacy, in the units of the user's columns; rows are encoded as for a private one.

    Attributes
    ----------
    coefficients : (outputs, features)
    intercepts : (outputs,)
    feature_names : a name for each coefficient
    errors : rows of the dataset that it classifies wrongly; None for a label that is a number
    """

    dataset: str
    feature_names: list[str]
    coefficients: list[list[float]]
    intercepts: list[float]
    errors: int | None
    private: bool = False


def minimum(session: Session, name: str, request: Request) -> Baseline:
    """Minimise the request's loss and regulariser over a dataset by L-BFGS (SciPy), without privacy.

    Raises
    ------
    ValueError
        If the session is the server's own, which must never see such a model, or the loss does not fit.
    """
    dataset = _own(session, name)
    public = facts(dataset, request)
    objective = settings.objective_of(request, public)
    if not isinstance(objective, Linear):
        raise ValueError(f"the baseline is a linear model, not network {request.network!r}; leave network out")
    regularisation = settings.regularisation_of(request, settings.DEFAULT_REGULARISATION)
    layout = Layout(public.dimension, (public.rows,), request.projection)
    with packed_rows(session, dataset, layout) as rows:
        models = minimise(rows, objective, regularisation, public.rows).reshape(public.shape)
        errors = rows.errors(models) if public.is_classifier else None
    units = releases.in_column_units(dataset.declaration, models, request.projection)
    coefficients, intercepts = (each.tolist() for each in units)
    return Baseline(name, dataset.declaration.feature_names, coefficients, intercepts, errors)


def _own(session: Session, name: str) -> Dataset:
    """Return a dataset for what is not private: never in the server, which must see no such model."""
    session.check_exact_results()
    return datasets.load(session, name)


@dataclass(frozen=True)
class Descent:
    """How the training of an exact model goes down, epoch by epoch, without privacy.

    Attributes
    ----------
    objective : (epochs,) mean loss plus (λ/2)‖model‖² after each epoch, over the dataset's own rows
    minimum : the least possible, by L-BFGS; None where λ = 0, and it may not be attained
    """

    dataset: str
    objective: list[float]
    minimum: float | None
    private: bool = False


def descent(session: Session, name: str, request: Request) -> Descent:
    """Train as a request plans it, release nothing, and tell what its model would lose after each epoch.

    Raises
    ------
    ValueError
        As `minimum` does; or the algorithm adds its noise while it trains, and has no exact model at any time.
    """
    dataset = _own(session, name)
    public = facts(dataset, request)
    catalogue.check(request, public)
    if request.algorithm not in PERTURBED_ONCE or request.shards > 1:
        raise ValueError(
            f"algorithm {request.algorithm!r} with shards = {request.shards} has no exact model after each epoch; "
            f"choose one of {', '.join(PERTURBED_ONCE)}, without shards"
        )
    plan = PERTURBED_ONCE[request.algorithm].plan(request, public)
    with packed_rows(session, dataset, plan.layout) as rows:
        rows.shuffle()
        values = [_value(rows, plan, models) for models in plan.exact_by_epoch(rows)]
        convex = plan.learning.regularisation
        least = _value(rows, plan, minimise(rows, _objective(plan), convex, plan.facts.rows)) if convex else None
    return Descent(name, values, least)


def _value(rows: PackedRows, plan: PerturbedOnce, models: np.ndarray) -> float:
    model = models.ravel()
    losses = rows.loss_sums(_objective(plan), model[None], limit=math.inf)
    return float(losses[0] / plan.facts.rows + plan.learning.regularisation / 2 * (model @ model))


def _objective(plan: PerturbedOnce) -> Objective:
    return settings.objective_of(plan.request, plan.facts)
