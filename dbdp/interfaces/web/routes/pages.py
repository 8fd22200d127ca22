"""The read-only pages: datasets, budgets, ledger, models, the plan of a training, allowances."""

import math
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from dbdp.algorithms import Request as Training
from dbdp.interfaces.python.database import Database
from dbdp.interfaces.web.accounts.visits import Visitor
from dbdp.interfaces.web.routes import lists, plan_form
from dbdp.interfaces.web.views import bars, receipts
from dbdp.interfaces.web.views.columns import declared
from dbdp.interfaces.web.views.refusals import Refusal, missing, missing_dataset
from dbdp.registry.declarations import Declaration
from dbdp.sessions.session import Row

router = APIRouter(default_response_class=HTMLResponse)
Search = Annotated[str, Query(max_length=200)]
Name = Annotated[str, Query(max_length=63)]
Number = Annotated[int, Query(alias="page", ge=1, le=10**6)]
ModelNumber = Annotated[int, Query(alias="id", ge=1, lt=2**63)]
_MOST_COEFFICIENTS = 500  # that a page shows
_MODEL = """
select m.id, m.dataset, m.feature_names, m.coefficients, m.intercepts, m.network, m.receipt
from dbdp.models as m
where m.id = $1::int8
"""
# A role's own allowance replaces those of its teams.
_OWN_ALLOWANCES = """
select a.role, a.charge_limit, a.charged, a.leak_limit, a.leaked, spent.epsilon_left
from dbdp.allowances as a
join dbdp.dataset as d on d.name = a.dataset and d.dropped_at is null
join dbdp.allowance as own on own.dataset_id = d.id and own.role = a.role
cross join lateral dbdp.allowance_spent(own.id, $2::float8) as spent
where a.dataset = $1::text
and a.role = any (dbdp.own_roles())
and (a.role = session_user or not exists (
    select from dbdp.allowances as o where o.dataset = a.dataset and o.role = session_user
))
order by a.role
"""


@router.get("/datasets")
def datasets(visit: Visitor, search: Search = "", number: Number = 1) -> HTMLResponse:
    """List the datasets that the role may train on."""
    with visit.database() as database:
        listing = lists.listed(database, lists.DATASETS, search=search, number=number)
    columns = {row["dataset"]: _columns(row) for row in listing.rows}
    return visit.page("datasets.html", listing=listing, columns=columns)


@router.get("/dataset")
def dataset(visit: Visitor, name: Name) -> HTMLResponse:
    """Show the declaration of a dataset and its budget."""
    with visit.database() as database:
        row = _dataset(database, name)
        shown = _budget(database, name)
    return visit.page("dataset.html", dataset=row, columns=_columns(row), **shown)


@router.get("/budgets")
def budgets(visit: Visitor, search: Search = "", number: Number = 1) -> HTMLResponse:
    """Show the spending of each budget by role, and what is left."""
    with visit.database() as database:
        listing = lists.listed(database, lists.DATASETS, search=search, number=number)
        shown = [_budget(database, row["dataset"]) for row in listing.rows]
    return visit.page("budgets.html", listing=listing, budgets=shown)


@router.get("/ledger")
def ledger(visit: Visitor, dataset: Name = "", search: Search = "", number: Number = 1) -> HTMLResponse:
    """List the charges, the newest first."""
    with visit.database() as database:
        listing = lists.listed(database, lists.LEDGER, search=search, dataset=dataset, number=number)
    return visit.page("ledger.html", listing=listing)


@router.get("/models")
def models(visit: Visitor, dataset: Name = "", search: Search = "", number: Number = 1) -> HTMLResponse:
    """List the released models, the newest first."""
    with visit.database() as database:
        listing = lists.listed(database, lists.MODELS, search=search, dataset=dataset, number=number)
    return visit.page("models.html", listing=listing)


@router.get("/model")
def model(visit: Visitor, identity: ModelNumber) -> HTMLResponse:
    """Show a model's receipt and its coefficients."""
    with visit.database() as database:
        rows = database.query(_MODEL, identity)
    if not rows:
        raise missing(
            f"There is no model {identity}, or this role may not see it.",
            "See the list of models.",
        )
    return visit.page(
        "model.html",
        model=rows[0],
        sections=receipts.sections(rows[0]["receipt"]),
        coefficients=_coefficients(rows[0]),
        most=_MOST_COEFFICIENTS,
    )


@router.get("/plan")
def plan(visit: Visitor, dataset: Name = "") -> HTMLResponse:
    """Show what a training would do and cost; nothing is spent."""
    texts = {name: text for name, text in visit.request.query_params.items() if name != "dataset"}
    fields, training = plan_form.read(texts)
    with visit.database() as database:
        names = [row["name"] for row in database.query("select name from dbdp.datasets order by name limit 1000")]
    planned, problem = None, None
    try:
        if training is not None:
            with visit.database() as database:
                planned = _planned(database, dataset, training)
    except Refusal as refusal:
        if refusal.status >= 500:
            raise
        problem = refusal  # the form is shown again, to be corrected
        fields = plan_form.marked(fields, refusal.text)
    return visit.page("plan.html", dataset=dataset, names=names, fields=fields, planned=planned, problem=problem)


@router.get("/allowances")
def allowances(visit: Visitor, dataset: Name = "", search: Search = "", number: Number = 1) -> HTMLResponse:
    """List who may train on which dataset, with limits; an owner may grant and revoke."""
    with visit.database() as database:
        listing = lists.listed(database, lists.ALLOWANCES, search=search, dataset=dataset, number=number)
        own = database.query(
            "select name from dbdp.datasets where registered_by = any (dbdp.own_roles()) order by name"
        )
    return visit.page("allowances.html", listing=listing, own=[row["name"] for row in own], dataset=dataset)


def _dataset(database: Database, name: str) -> Row:
    row = lists.dataset_named(database, name)
    if row is None:
        raise missing_dataset(name)
    return row


def _columns(row: Row) -> list[tuple[str, str, str]]:
    return list(declared(Declaration.from_json(row["declaration"])))


def _budget(database: Database, name: str) -> dict[str, Any]:
    """Return a budget, its bar, what is left of its δ, and the unit of its charges."""
    budget = database.budget(name)
    bar = bars.budget_bar(budget, database.spending(name))
    leak = bars.Rest.of(budget["leak_limit"], budget["leaked"])
    return {"name": name, "budget": budget, "bar": bar, "leak": leak, "unit": bars.UNITS[budget["mode"]]}


def _coefficients(row: Row) -> list[tuple[str, float]]:
    """Return the first coefficients of a model with one output, by feature; an empty list for other models."""
    if row["coefficients"] is None or len(row["intercepts"]) != 1:
        return []
    pairs = zip(row["feature_names"], row["coefficients"], strict=False)
    return [("(intercept)", row["intercepts"][0]), *pairs][:_MOST_COEFFICIENTS]


def _planned(database: Database, name: str, training: Training) -> dict[str, Any]:
    """Return a plan with its receipt in sections, what would be left, and the largest ε that fits if it does not."""
    receipt = database.explain_in_server(name, training)
    budget = database.budget(name, release_delta=receipt["delta"])
    within = _own_allowances(database, name, receipt["delta"])
    left = [_left(limit, receipt) for limit in ({"role": None, **budget}, *within)]
    return {
        "receipt": receipt,
        "sections": receipts.sections(receipt),
        "bar": bars.budget_bar(budget, database.spending(name), receipt["charge"]),
        "unit": bars.UNITS[budget["mode"]],
        "budget": budget,
        "left": left,
        "fits": left[0]["is_enough"] and (not within or any(each["is_enough"] for each in left[1:])),
        "fitting": min(budget["epsilon_left"], max((row["epsilon_left"] for row in within), default=math.inf)),
        "statement": plan_form.statement(name, training),
    }


def _own_allowances(database: Database, name: str, release_delta: float) -> list[Row]:
    """Return the allowances that limit the role; none for the owner, and where one of them has no limit."""
    if _dataset(database, name)["own"]:
        return []
    rows = database.query(_OWN_ALLOWANCES, name, release_delta)
    return [] if any(row["charge_limit"] is None for row in rows) else rows


def _left(limit: Row, receipt: dict[str, Any]) -> dict[str, Any]:
    """Return what a training would leave of both limits, that of charges, in the limit's unit, and that of leaked δ."""
    cost = receipt.get("allowance_charges", {}).get(limit["role"], receipt["charge"])
    charge = bars.Rest.of(limit["charge_limit"], limit["charged"], cost)
    leak = bars.Rest.of(limit["leak_limit"], limit["leaked"], receipt["leak"])
    return {"role": limit["role"], "charge": charge, "leak": leak, "is_enough": charge.is_enough and leak.is_enough}
