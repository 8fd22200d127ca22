"""Evaluation: noisy scores of a released model on a registered dataset, and noisy statistics of the dataset itself.

Each is charged before a row is read, and runs in the server, as dbdp_owner, for every interface. For scores and for
class balance the rows are packed as for a training, and tallied by one aggregate; the exact tally never leaves the
backend. Where a client trains on an engine these three run there, and the exact tally is in the client, as its models
are.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dbdp.algorithms import Request
from dbdp.algorithms.rows import Layout
from dbdp.algorithms.scores.class_balance import ClassBalancePlan
from dbdp.algorithms.scores.column_bounds import BETA, EDGES, BoundsPlan
from dbdp.algorithms.scores.counting import CountPlan
from dbdp.algorithms.scores.evaluation import EvaluationPlan
from dbdp.algorithms.scores.metrics import ScoredFacts, ScoreRequest, evaluation_plan, score_plan
from dbdp.algorithms.scores.summary import SummaryPlan
from dbdp.controller import charging, summaries
from dbdp.controller.receipts import Receipt
from dbdp.controller.rows import packed_rows
from dbdp.learning import tallies
from dbdp.learning.rows.encoding import HEADER_BYTES
from dbdp.packing.options import Coding
from dbdp.registry import datasets, network_models, registering
from dbdp.registry.datasets import Dataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.releases import column_scales, vector_scales
from dbdp.registry.spending import names, rights
from dbdp.registry.tables import records
from dbdp.sessions.server import ServerSession
from dbdp.sessions.session import Charge, Row, Session

_ROUNDING = 1e-9  # relative rounding error of an intercept that is 0 in exact arithmetic


@dataclass(frozen=True)
class Scorer:
    """A released model, prepared to score packed rows.

    Attributes
    ----------
    vectors : np.ndarray
        Linear models, shape (outputs, d), or the parameters of a network, shape (1, P).
    network : str | None
        The network as JSON; None for linear models.
    dimension : int
        Coordinates of a packed row, d.
    request : Request
        How to pack the rows: with the projection of a network, if it has one.
    coding : Coding | None
        How the rows are encoded: as the model's were for its training; None is the dataset's own encoding.
    """

    vectors: np.ndarray
    network: str | None
    dimension: int
    request: Request
    coding: Coding | None = None

    def encoded(self, dataset: Dataset) -> Dataset:
        """Return the dataset with the encoding of the model."""
        return dataset if self.coding is None else self.coding.of(dataset)

    def layout(self, rows: int) -> Layout:
        """Return the layout in which the rows of a dataset are packed to be scored."""
        coding = None if self.coding is None else asdict(self.coding)
        return Layout(self.dimension, (rows,), self.request.projection, coding=coding)

    def of(self, tally: tallies.Tally) -> dict[str, Any]:
        """Return the description of a tally of this model's scores for `tally_transition`."""
        data = tallies.as_data(tally)
        return {"tally": data, "outputs": len(self.vectors), "dimension": self.dimension, "network": self.network}


def score(session: Session, model: int | str, name: str, request: ScoreRequest) -> dict[str, Any]:
    """Return a noisy score of a released model on a dataset, the figures derived from it, and the receipt.

    Raises
    ------
    ValueError
        Before anything is spent: the request, the model, the dataset or the budget does not allow it.
    ChargedError
        After the charge: the server failed, or the counting was cancelled.
    """
    dataset, model = datasets.load(session, name), names.number(session, model)
    row = _model(session, model)
    plan = score_plan(request, _facts(dataset, is_network=row["network"] is not None))
    scorer = _scorer(model, row, dataset, request.epsilon)
    details = {"model": model, "metric": request.metric}
    return _names(dataset) | _tallied(session, dataset, plan, plan.tally, details, scorer)


def evaluate(
    session: Session, model: int | str, name: str, *, epsilon: float, delta: float, bins: int
) -> list[dict[str, Any]]:
    """Return accuracy, fraction of the majority class and AUC of a classifier, each with its error, for one charge.

    Raises
    ------
    ValueError, ChargedError
        As `score` does.
    """
    dataset, model = datasets.load(session, name), names.number(session, model)
    row = _model(session, model)
    plan = evaluation_plan(epsilon, delta, bins, _facts(dataset, is_network=row["network"] is not None))
    figures = _tallied(session, dataset, plan, plan.tally, {"model": model}, _scorer(model, row, dataset, epsilon))
    return [{"figure": name} | pair for name, pair in figures.items() if name != "receipt"]


def class_balance(session: Session, name: str, *, epsilon: float, delta: float) -> dict[str, Any]:
    """Return the noisy number of rows of each class of a dataset, and the receipt; raises as `score` does."""
    dataset = datasets.load(session, name)
    plan = _balance_plan(dataset, epsilon, delta)
    dimension = dataset.declaration.dimension
    scorer = Scorer(np.zeros((1, dimension)), None, dimension, Request(epsilon))  # the tally ignores its scores
    return _names(dataset) | _tallied(session, dataset, plan, plan.tally, {}, scorer)


def bounds(
    session: ServerSession, name: str, column: str, *, epsilon: float, delta: float, beta: float
) -> dict[str, Any]:
    """Return noisy bounds of a numeric column of a dataset's table, and the receipt; raises as `score` does too."""
    dataset = datasets.load(session, name)
    rights.registered(session, name, action="estimate bounds of its columns")
    type_name = registering.numeric_type(session, dataset.source, column)
    plan = _bounds_plan(dataset, epsilon, delta, beta)
    receipt = Receipt.of(dataset, plan.explain() | {"column": column}, plan.guarantee)
    session.check_rows(dataset)
    with charging.charged(session, dataset, receipt) as charge:
        with charging.answering(session, dataset, charge):
            noisy = plan.release(records.binned(session, dataset, column, type_name, EDGES))
        return _shown(session, plan, noisy, receipt, charge)


def explain(session: Session, name: str, request: ScoreRequest) -> dict[str, Any]:
    """Return the plan of a metric, evaluation, class_balance, bounds or summary, and its charge; spend nothing."""
    dataset = datasets.load(session, name)
    if request.metric == SummaryPlan.algorithm:
        plan: CountPlan | SummaryPlan = summaries.plan_of(dataset, request.epsilon, request.delta)
    elif request.metric == ClassBalancePlan.algorithm:
        plan = _balance_plan(dataset, request.epsilon, request.delta)
    elif request.metric == BoundsPlan.algorithm:
        plan = _bounds_plan(dataset, request.epsilon, request.delta, BETA)
    elif request.metric == EvaluationPlan.algorithm:
        facts = _facts(dataset, is_network=False)
        plan = evaluation_plan(request.epsilon, request.delta, request.bins, facts)
    else:
        plan = score_plan(request, _facts(dataset, is_network=False))
    return charging.explained(dataset, plan.explain() | {"metric": request.metric}, plan.guarantee)


def _bounds_plan(dataset: Dataset, epsilon: float, delta: float, beta: float) -> BoundsPlan:
    known = dataset.has_public_rows
    return BoundsPlan(epsilon, delta, dataset.rows, beta, moved=dataset.unit_rows, has_public_rows=known)


def _balance_plan(dataset: Dataset, epsilon: float, delta: float) -> ClassBalancePlan:
    declaration = dataset.declaration
    if declaration.kind == "real":
        raise ValueError(
            f"label {declaration.label!r} of dataset {dataset.name!r} is a number and has no classes; call "
            "dbdp.dp_bounds for bounds of the column"
        )
    return ClassBalancePlan(epsilon, delta, dataset.rows, declaration.outputs, moved=dataset.unit_rows)


def _tallied(
    session: Session,
    dataset: Dataset,
    plan: CountPlan,
    tally: tallies.Tally,
    details: dict[str, Any],
    scorer: Scorer,
) -> dict[str, Any]:
    """Charge, tally the packed rows, and add noise; the ledger and the receipt show the plan and `details`."""
    receipt = Receipt.of(dataset, plan.explain() | details, plan.guarantee)
    layout = scorer.layout(dataset.rows)
    charging.check_trainable(session, scorer.encoded(dataset), scorer.request, layout)
    with charging.charged(session, dataset, receipt) as charge:
        with charging.answering(session, dataset, charge), packed_rows(session, dataset, layout) as rows:
            rows.pack()
            noisy = plan.release(rows.tally(scorer.vectors, scorer.of(tally)))
        return _shown(session, plan, noisy, receipt, charge)


def _shown(session: Session, plan: CountPlan, noisy: np.ndarray, receipt: Receipt, charge: Charge) -> dict[str, Any]:
    session.note(charge.ledger, "shown")
    return plan.answer(noisy) | {"receipt": receipt.charged(charge.ledger).as_data()}


def _facts(dataset: Dataset, *, is_network: bool) -> ScoredFacts:
    """Return the public facts of a dataset that the plan of a metric depends on."""
    declaration = dataset.declaration
    classes = _names(dataset).get("classes", [])
    public = dataset.rows, classes, declaration.outputs, declaration.label_bounds
    return ScoredFacts(*public, is_network, dataset.unit_rows, dataset.has_public_rows)


def _names(dataset: Dataset) -> dict[str, Any]:
    """Return the names of the classes, in the order of counts and matrices; nothing if the label is a number."""
    declaration = dataset.declaration
    if declaration.kind == "real":
        return {}
    return {"classes": list(declaration.classes) or [declaration.negative, declaration.positive]}


# --- released models ------------------------------------------------------------------------------------

_MODEL = """
select m.declaration::pg_catalog.text as declaration,
       m.coefficients,
       m.intercepts,
       m.network::pg_catalog.text as network,
       dbdp_internal.array_bytes(m.parameters) as parameters
from dbdp.model as m
where m.id = $1
and not m.is_summary
"""


def _model(session: Session, model: int) -> Row:
    """Return the row of a released model, if the caller may predict with it; the charge fails if that has ended."""
    rows = session.query(_MODEL, model)
    if not rows:
        raise ValueError(f"model {model} does not exist; see dbdp.models")
    return rows[0]


def _scorer(model: int, row: Row, dataset: Dataset, epsilon: float) -> Scorer:
    """Return the scorer of a released model on a dataset."""
    declaration, request = Declaration.from_json(row["declaration"]), Request(epsilon)
    _check_fit(model, declaration, dataset)
    coding = Coding(declaration.encoding, declaration.features, declaration.pairs, declaration.pair_cells)
    if row["network"] is None:
        vectors = in_packed_coordinates(declaration, np.array(row["coefficients"]), np.array(row["intercepts"]))
        return Scorer(vectors, None, declaration.dimension, request, coding)
    network, projection = network_models.parsed(json.loads(row["network"]))
    if projection:
        request = Request(epsilon, projection_dimension=projection.dimension, projection_seed=projection.seed)
    parameters = np.frombuffer(row["parameters"], np.float64, offset=HEADER_BYTES)
    return Scorer(parameters[None], row["network"], network.inputs, request, coding)


def _check_fit(model: int, trained: Declaration, dataset: Dataset) -> None:
    """Raise ValueError for a model whose features or classes are not the dataset's; the label's column may differ.

    Bins and scales may differ too: the rows are encoded as the model's were.
    """
    for field in ("kind", "classes", "label_bounds", "columns", "plain_features", "intercept"):
        if getattr(trained, field) != getattr(dataset.declaration, field):
            raise ValueError(
                f"the declaration of model {model} differs from that of dataset {dataset.name!r} in "
                f"{field.removeprefix('plain_')}; choose a dataset with the same declaration: see declaration in "
                "dbdp.datasets and dbdp.model"
            )


def in_packed_coordinates(declaration: Declaration, coefficients: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
    """Return linear models over packed rows, from those in column units: the inverse of `releases.in_column_units`.

    Packing divides a row, if it is too long or if every row is divided, by a positive number, including its
    intercept, so that the signs and the order of the scores stay. So a packed row has the predicted class of the row,
    unless scores differ by less than the rounding to float32.

    Parameters
    ----------
    declaration : Declaration
        The model's declaration.
    coefficients : np.ndarray, shape (features,) or (outputs, features)
        In the units of the columns.
    intercepts : np.ndarray, shape (outputs,)
        In the unit of the label.

    Returns
    -------
    np.ndarray, shape (outputs, dimension)
        The models over packed rows.
    """
    models, offsets, size = _per_packed_label(declaration, np.atleast_2d(coefficients).astype(np.float64), intercepts)
    if declaration.vector:
        elements, last = vector_scales(declaration)
        packed, shift = models / elements, np.zeros(len(models))
    else:
        origins, lengths, radius = column_scales(declaration)
        shift = models @ origins
        packed, last = models * (lengths * radius), np.full(int(declaration.intercept), 1 / radius)
    offsets = offsets + shift
    if declaration.intercept:
        return np.hstack([packed, (offsets / last)[:, None]])
    if (np.abs(offsets) > _ROUNDING * (size + np.abs(shift))).any():
        raise ValueError(
            "the model has an intercept, but the dataset is declared without one; choose a dataset with an intercept"
        )
    return packed


def _per_packed_label(
    declaration: Declaration, models: np.ndarray, intercepts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return models and intercepts for the packed label, and the size of the intercepts' terms."""
    if declaration.label_bounds is None:
        return models, intercepts, np.abs(intercepts)
    lower, upper = declaration.label_bounds
    half, middle = (upper - lower) / 2.0, (lower + upper) / 2.0
    return models / half, (intercepts - middle) / half, (np.abs(intercepts) + abs(middle)) / half
