"""Non-private baselines, for a role that may read the rows: a linear model without noise.

They run in a client, with that client's own right to read the table; no interface of the server reaches them. Nothing
is charged and nothing is stored: the results are not private, and must not be published.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from dbdp.algorithms import PERTURBED_ONCE, Request, catalogue, settings
from dbdp.algorithms.families.perturbed_objective.minimisation import minimise
from dbdp.algorithms.families.perturbed_once.shared import PerturbedOnce
from dbdp.algorithms.rows import Layout
from dbdp.controller.facts import facts, paired, within
from dbdp.controller.packed_rows import PackedRows, packed_rows
from dbdp.learning.losses import Squared
from dbdp.learning.objectives import Linear, Objective
from dbdp.registry import datasets
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.results.column_units import in_column_units
from dbdp.sessions.session import Session

LEAST_PENALTY = 0.1  # nλ of a baseline: the best linear model without noise needs next to none


@dataclass(frozen=True)
class Baseline:
    """A linear model without privacy, in the units of the user's columns; rows are encoded as for a private one.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    feature_names : list[str]
        A name for each coefficient.
    coefficients : list[list[float]], shape (outputs, features)
        In the units of the columns.
    intercepts : list[float], shape (outputs,)
        In the unit of the label, if that is a number.
    errors : int | None
        Rows of the dataset that it classifies wrongly, with those that cannot be used; with a capacity, rows with a
        label. None for a label that is a number.
    accuracy : float | None
        Share of the rows with a label that it classifies rightly; None for a label that is a number.
    majority_share : float | None
        Fraction of the majority class among them, which a useful model exceeds.
    private : bool
        False: the model must not be published.
    """

    dataset: str
    feature_names: list[str]
    coefficients: list[list[float]]
    intercepts: list[float]
    errors: int | None
    accuracy: float | None = None
    majority_share: float | None = None
    private: bool = False


def minimum(session: Session, name: str, request: Request) -> Baseline:
    """Minimise the request's loss and regulariser over a dataset by L-BFGS (SciPy), without privacy.

    Parameters
    ----------
    session : Session
        A client's session, whose role may read the table.
    name : str
        Name of the dataset.
    request : Request
        Loss, regularisation and projection; epsilon is not used. By default λ = 0.1/n, a tenth of scikit-learn's.

    Returns
    -------
    Baseline
        The model, in the units of the columns.
    """
    dataset, request = paired(_own(session, name, request), request)
    public = facts(dataset, request)
    if request.loss is None and request.huber_width is None and not public.is_classifier:
        request = replace(request, loss=Squared.name)  # no noise depends on the loss
    objective = settings.objective_of(request, public)
    if not isinstance(objective, Linear):
        raise ValueError(f"the baseline is a linear model, not network {request.network!r}; leave network out")
    regularisation = settings.regularisation_of(request, LEAST_PENALTY / public.rows)
    layout = Layout(public.dimension, (public.rows,), request.projection)
    with packed_rows(session, dataset, layout) as rows:
        models = minimise(rows, objective, regularisation, public.rows).reshape(public.shape)
        scores = _exact_scores(rows, models, dataset) if public.is_classifier else (None, None, None)
    units = in_column_units(dataset.declaration, models, request.projection)
    coefficients, intercepts = (each.tolist() for each in units)
    return Baseline(name, dataset.declaration.feature_names, coefficients, intercepts, *scores)


def _exact_scores(rows: PackedRows, models: np.ndarray, dataset: RegisteredDataset) -> tuple[int, float, float]:
    """Return errors, accuracy and the fraction of the majority class; the shares are of the rows with a label."""
    errors, counts = rows.errors(models), rows.label_counts(dataset.declaration.outputs)
    labelled = int(counts.sum())
    unlabelled = dataset.rows - labelled if dataset.capacity or dataset.cohort else 0  # empty slots among them
    right, some = dataset.rows - errors, max(labelled, 1)
    return errors - unlabelled, right / some, int(counts.max()) / some


def _own(session: Session, name: str, request: Request) -> RegisteredDataset:
    """Return the rows of a request, for a computation without privacy; raise ValueError in the server."""
    session.check_exact_results()
    return within(session, datasets.load(session, name), request.cohort)


@dataclass(frozen=True)
class Descent:
    """The objective of an exact model after each epoch of its training, without privacy.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    objective : list[float], shape (epochs,)
        Mean loss over the dataset's rows plus (λ/2)‖model‖², after each epoch.
    minimum : float | None
        The minimum, by L-BFGS; None for λ = 0, where it may not be attained.
    private : bool
        False: the values must not be published.
    """

    dataset: str
    objective: list[float]
    minimum: float | None
    private: bool = False


def descent(session: Session, name: str, request: Request) -> Descent:
    """Train as a request plans it, release nothing, and return the objective after each epoch."""
    dataset, request = paired(_own(session, name, request), request)
    request, public = catalogue.with_exact_model(request), facts(dataset, request)
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
