"""Evaluation: noisy scores of a released model on a registered dataset, and noisy statistics of the dataset itself.

Each is charged before a row is read, and runs in the server, as dbdp_owner, for every interface. For scores and for
class balance the rows are packed as for a training, and tallied by one aggregate; the exact tally never leaves the
backend. Where a client trains on an engine these three run there, and the exact tally is in the client, as its models
are.
"""

from functools import partial
from typing import Any

import numpy as np

from dbdp.algorithms import Request
from dbdp.algorithms.scores.class_balance import ClassBalancePlan
from dbdp.algorithms.scores.column_bounds import BETA, EDGES, BoundsPlan
from dbdp.algorithms.scores.counting import CountPlan
from dbdp.algorithms.scores.evaluation import THRESHOLD, EvaluationPlan
from dbdp.algorithms.scores.metrics import ScoredFacts, ScoreRequest, evaluation_plan, score_plan
from dbdp.algorithms.scores.summary import SummaryPlan
from dbdp.controller import charging
from dbdp.controller.facts import within
from dbdp.controller.packed_rows import packed_rows
from dbdp.controller.receipts import Receipt
from dbdp.controller.statistics import category_discovery, column_statistics, summary_requests
from dbdp.controller.statistics.category_discovery import CategoriesPlan
from dbdp.controller.statistics.scorers import Scorer, released_model, scorer_of
from dbdp.learning.counts import tallies
from dbdp.registry import datasets, register
from dbdp.registry.border import ServerSession
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.spending import names, rights
from dbdp.registry.tables import records
from dbdp.sessions.session import LedgerCharge, Row, Session
from dbdp.statistics.describing import DescribePlan


def score(session: Session, model: int | str, name: str, request: ScoreRequest) -> dict[str, Any]:
    """Return a noisy score of a released model on a dataset, the figures derived from it, and the receipt.

    Raise ValueError before anything is spent: the request, the model, the dataset or the budget does not allow it.
    Raise ChargedError after the charge: the server failed, or the counting was cancelled.
    """
    dataset = within(session, datasets.load(session, name), request.cohort)
    model = names.number(session, model)
    row = released_model(session, model)
    plan = score_plan(request, _facts(dataset, row))
    scorer = scorer_of(model, row, dataset, request.epsilon)
    details = {"model": model, "metric": request.metric}
    return _names(dataset) | _tallied(session, dataset, plan, plan.tally, details, scorer)


def evaluate(
    session: Session,
    model: int | str,
    name: str,
    *,
    epsilon: float,
    delta: float,
    bins: int,
    threshold: float = THRESHOLD,
    cohort: Any = None,
) -> list[dict[str, Any]]:
    """Return the figures of a model, each with its error, for one charge: see `EvaluationPlan`, `RegressionFitPlan`.

    With a cohort they are those of its rows.

    Raise ValueError, ChargedError as `score` does.
    """
    dataset, model = within(session, datasets.load(session, name), cohort), names.number(session, model)
    row = released_model(session, model)
    plan = evaluation_plan(epsilon, delta, bins, _facts(dataset, row), threshold)
    scorer = scorer_of(model, row, dataset, epsilon)
    figures = _tallied(session, dataset, plan, plan.tally, {"model": model}, scorer)
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
    """Return noisy bounds of a column of a dataset's table, and the receipt; raises as `score` does too."""
    dataset = datasets.load(session, name)
    rights.registered(session, name, action="estimate bounds of its columns")
    type_name = register.measured_type(session, dataset.source, column)
    plan = _bounds_plan(dataset, epsilon, delta, beta)
    receipt = Receipt.of(dataset, plan.explain() | {"column": column} | _unit(type_name), plan.guarantee)
    session.check_rows(dataset)
    with charging.charged(session, dataset, receipt) as charge:
        with charging.answering(session, dataset, charge):
            noisy = plan.release(records.binned(session, dataset, column, type_name, EDGES))
        return _unit(type_name) | _shown(session, plan, noisy, receipt, charge)


def _unit(type_name: str) -> dict[str, str]:
    """Return what the bounds of a date or a text count; nothing for a number."""
    if type_name in records.DAYS:
        return {"unit": f"days since {records.ORIGIN}"}
    return {"unit": "bytes of the text"} if type_name in records.TEXT_TYPES else {}


def explain(session: Session, name: str, request: ScoreRequest) -> dict[str, Any]:
    """Return the plan of a metric, or of another score or statistic of a dataset, and its charge; spend nothing."""
    if request.metric == DescribePlan.algorithm:
        how: dict[str, Any] = {"epsilon": request.epsilon, "delta": request.delta, "cohort": request.cohort}
        plan_of = partial(column_statistics.describe_plan, **how)
        return column_statistics.explained(session, name, plan_of) | {"metric": request.metric}
    dataset = within(session, datasets.load(session, name), request.cohort)
    _check_has_cohort(request)
    if request.metric == CategoriesPlan.algorithm:
        found = category_discovery.plan_of(dataset, request.epsilon, request.delta)
        return charging.explained(dataset, found.explain() | {"metric": request.metric}, found.mechanism.guarantee)
    if request.metric == SummaryPlan.algorithm:
        plan: CountPlan | SummaryPlan = summary_requests.plan_of(dataset, request.epsilon, request.delta)
    elif request.metric == ClassBalancePlan.algorithm:
        plan = _balance_plan(dataset, request.epsilon, request.delta)
    elif request.metric == BoundsPlan.algorithm:
        plan = _bounds_plan(dataset, request.epsilon, request.delta, BETA)
    elif request.metric == EvaluationPlan.algorithm:
        facts = _facts(dataset)
        plan = evaluation_plan(request.epsilon, request.delta, request.bins, facts)
    else:
        plan = score_plan(request, _facts(dataset))
    return charging.explained(dataset, plan.explain() | {"metric": request.metric}, plan.guarantee)


def _check_has_cohort(request: ScoreRequest) -> None:
    """Raise ValueError for a cohort of a statistic that has none."""
    without = ClassBalancePlan.algorithm, BoundsPlan.algorithm, CategoriesPlan.algorithm
    if request.cohort is not None and request.metric in without:
        raise ValueError(
            f"{request.metric} has no cohort; leave it out, or call dbdp.dp_table or dbdp.dp_quantiles, which have one"
        )


def _bounds_plan(dataset: RegisteredDataset, epsilon: float, delta: float, beta: float) -> BoundsPlan:
    known = dataset.has_public_rows
    return BoundsPlan(epsilon, delta, dataset.rows, beta, moved=dataset.unit_rows, has_public_rows=known)


def _balance_plan(dataset: RegisteredDataset, epsilon: float, delta: float) -> ClassBalancePlan:
    declaration = dataset.declaration
    if declaration.kind == "real":
        raise ValueError(
            f"label {declaration.label!r} of dataset {dataset.name!r} is a number and has no classes; call "
            "dbdp.dp_bounds for bounds of the column"
        )
    moved, partial = dataset.unit_rows, not declaration.answers_every_row
    return ClassBalancePlan(epsilon, delta, dataset.rows, declaration.outputs, moved=moved, partial=partial)


def _tallied(
    session: Session,
    dataset: RegisteredDataset,
    plan: CountPlan,
    tally: tallies.Tally,
    details: dict[str, Any],
    scorer: Scorer,
) -> dict[str, Any]:
    """Charge, tally the packed rows, and add noise; the ledger and the receipt show the plan and `details`."""
    receipt = Receipt.of(dataset, plan.explain() | details, plan.guarantee)
    layout = scorer.layout(dataset.rows, marks=plan.partial)
    charging.check_trainable(session, scorer.encoded(dataset), scorer.request, layout)
    with charging.charged(session, dataset, receipt) as charge:
        with charging.answering(session, dataset, charge), packed_rows(session, dataset, layout) as rows:
            rows.pack()
            noisy = plan.release(rows.tally(scorer.vectors, scorer.of(tally)))
        return _shown(session, plan, noisy, receipt, charge)


def _shown(
    session: Session, plan: CountPlan, noisy: np.ndarray, receipt: Receipt, charge: LedgerCharge
) -> dict[str, Any]:
    session.note(charge.ledger, "shown")
    return plan.answer(noisy) | {"receipt": receipt.charged(charge.ledger).as_data()}


def _facts(dataset: RegisteredDataset, model: Row | None = None) -> ScoredFacts:
    """Return the public facts of a dataset, and of a model, that the plan of a metric depends on."""
    declaration = dataset.declaration
    classes = _names(dataset).get("classes", [])
    public = dataset.rows, classes, declaration.outputs, declaration.label_bounds
    known = dataset.unit_rows, dataset.has_public_rows
    encoded = declaration if model is None else Declaration.from_json(model["declaration"])  # as its rows are encoded
    is_network = model is not None and model["network"] is not None
    return ScoredFacts(*public, is_network, *known, not encoded.answers_every_row)


def _names(dataset: RegisteredDataset) -> dict[str, Any]:
    """Return the names of the classes, in the order of counts and matrices; nothing if the label is a number."""
    declaration = dataset.declaration
    if declaration.kind == "real":
        return {}
    return {"classes": list(declaration.classes) or [declaration.negative, declaration.positive]}
