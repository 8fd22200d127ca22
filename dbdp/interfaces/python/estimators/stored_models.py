"""Released models of a database as fitted estimators, which then predict without it."""

from typing import Any

from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.estimators.base import Estimator
from dbdp.interfaces.python.estimators.linear import HuberRegressor, LinearSVC, LogisticRegression, Ridge
from dbdp.interfaces.python.estimators.networks import MLPClassifier
from dbdp.registry.results import class_probabilities
from dbdp.registry.results.models import ReleasedModel

_OF_LOSS: dict[str | None, type[Estimator]] = {
    each.loss: each for each in (LogisticRegression, LinearSVC, HuberRegressor, Ridge)
}


def load(model: int | str, database: Any = None) -> Estimator:
    """Return a released model as a fitted estimator, which predicts without a database.

    It needs the privilege to predict with the model, and reads only the release.

    Parameters
    ----------
    model : int or str
        Number of a released model, its name, or `name@version`.
    database : Database or anything that `connect` accepts, optional
        The database of the model (default: that of `dbdp.connect()`).

    Returns
    -------
    LogisticRegression, LinearSVC, HuberRegressor, Ridge or MLPClassifier
        The estimator of the model's loss, or MLPClassifier for a network, as if it was fitted on the dataset. Of the
        parameters it has `epsilon` and `delta`.

    Raises
    ------
    ValueError
        If there is no such model for this role, or no estimator of its kind.
    """
    if isinstance(database, Database):
        return _fitted(database, _released(database, model))
    with connect(database) as opened:
        return _fitted(opened, _released(opened, model))


def _released(database: Database, model: int | str) -> ReleasedModel:
    """Return a model that the role may predict with."""
    query = (
        "select id, receipt ->> 'dataset' as dataset, feature_names, coefficients, intercept, intercepts, receipt, "
        "network, parameters from dbdp.model where not is_summary and id = dbdp_internal.model_number($1::text)"
    )
    return ReleasedModel(**database._of_model(query, model))


def _fitted(database: Database, model: ReleasedModel) -> Estimator:
    """Return a released model of a database as a fitted estimator."""
    promise = {"epsilon": None} | {name: model.receipt[name] for name in ("epsilon", "delta") if name in model.receipt}
    if model.network is not None:
        estimator: Estimator = MLPClassifier(**promise, hidden_layer_sizes=tuple(model.network["hidden"]))
    else:
        loss = class_probabilities.loss_of(model.receipt)
        if loss not in _OF_LOSS:
            raise ValueError(
                f"the loss of model {model.id} is {loss or 'unknown'!r}, which no estimator has; see dbdp.weights"
            )
        estimator = _OF_LOSS[loss](**promise)
    estimator._set_release(database, model, None)
    return estimator
