"""The non-private baseline, for the owner of the rows alone: what a model without noise would be.

It runs in a client, with that client's own right to read the table; no door of the server reaches it. Nothing
is charged and nothing is stored: what comes back is not private, and must not be published.
"""

from dataclasses import dataclass

from dbdp import access, controller, datasets, releases
from dbdp.algorithms import Request, settings
from dbdp.algorithms.minimisation import minimise
from dbdp.learning.objectives import Linear
from dbdp.sessions import Session


@dataclass(frozen=True)
class Baseline:
    """A linear model without privacy, in the units of the user's columns.

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
    if session.in_server:
        raise ValueError("the baseline is not private and runs in a client that may read the table; call it from there")
    dataset = datasets.load(session, name)
    facts = controller.facts(dataset, request)
    objective = settings.objective_of(request, facts)
    if not isinstance(objective, Linear):
        raise ValueError(f"the baseline is a linear model, not network {request.network!r}; leave network out")
    regularisation = settings.regularisation_of(request, settings.DEFAULT_REGULARISATION)
    options = controller.shuffle_options(request)
    with access.packed_rows(session, dataset, dimension=facts.dimension, options=options) as rows:
        models = minimise(rows, objective, regularisation, facts.rows).reshape(facts.shape)
        errors = rows.errors(models) if facts.is_classifier else None
    units = releases.in_column_units(dataset.declaration, models, controller.projection_of(request))
    coefficients, intercepts = (each.tolist() for each in units)
    return Baseline(name, dataset.declaration.feature_names, coefficients, intercepts, errors)
