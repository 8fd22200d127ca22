"""The read-only pages: overview, datasets, budgets, ledger, models, allowances."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.routes import paged_lists
from dbdp.interfaces.web.sign_in.visits import Visitor, jobs_of
from dbdp.interfaces.web.views import bars, charts, receipt_entries, shape_charts
from dbdp.interfaces.web.views.declared_columns import declared
from dbdp.interfaces.web.views.page_refusals import missing_model
from dbdp.registry.declarations import Declaration
from dbdp.registry.results.shapes import importance
from dbdp.sessions.session import Row

router = APIRouter(default_response_class=HTMLResponse)
Search = Annotated[str, Query(max_length=200)]
Name = Annotated[str, Query(max_length=63)]
Number = Annotated[int, Query(alias="page", ge=1, le=10**6)]
TableName = Annotated[str, Query(max_length=200)]
JobNumber = Annotated[str, Query(max_length=100)]
Category = Annotated[str, Query(max_length=1000)]
ModelNumber = Annotated[int, Query(alias="id", ge=1, lt=2**63)]
_MOST_COEFFICIENTS = 500  # that a page shows
_MODEL = """
select m.id, m.dataset, m.feature_names, m.coefficients, m.intercepts, m.network, m.receipt,
       r.declaration::text as declaration,
       r.released_by_id = any (dbdp_internal.own_roles())
           or r.dataset_id in (select o.id from dbdp.own_datasets as o) as own
from dbdp.models_details as m
join dbdp.model as r on r.id = m.id
where m.id = $1::int8
"""
_CHARGES = """
select h.charged_at, h.charge
from dbdp.history_details as h
join dbdp.dataset as d on d.id = h.period
where d.name = $1::text
and d.dropped_at is null
order by h.id
limit $2
"""
_MOST_CHARGES = 2000  # that a chart shows
_PREDICTORS = (
    "select dbdp_internal.role_name(g.role_id, g.role)::text as role from dbdp.prediction_grant as g "
    "where g.model_id = $1::int8 order by role"
)
_MAY = """
select has_table_privilege('dbdp.prediction_grant', 'select') as reads,
       has_function_privilege('dbdp.grant_prediction(int8, name)', 'execute') as grants
"""
_OVERVIEW = """
select d.name as dataset, b.left_share, b.epsilon, b.epsilon_left, b.releases_left, b.of_epsilon
from dbdp.datasets_details as d
cross join lateral dbdp.budget_details(d.name) as b
order by d.name
limit $1
"""
_SHOWN_FIRST, _SHOWN_LAST = 20, 10  # datasets and charges of the overview


@router.get("/overview")
def overview(visit: Visitor) -> HTMLResponse:
    """Show what is left of each budget, the last charges, and what runs."""
    with visit.database() as database:
        shown = database.query(_OVERVIEW, _SHOWN_FIRST + 1)
        last = paged_lists.listed(database, paged_lists.LEDGER).rows[:_SHOWN_LAST]
    running = jobs_of(visit).running()
    return visit.page("overview.html", datasets=shown, most=_SHOWN_FIRST, last=last, running=running)


@router.get("/datasets")
def datasets(visit: Visitor, search: Search = "", number: Number = 1) -> HTMLResponse:
    """List the datasets that the role may train on."""
    with visit.database() as database:
        listing = paged_lists.listed(database, paged_lists.DATASETS, search=search, number=number)
    columns = {row["dataset"]: _columns(row) for row in listing.rows}
    return visit.page("datasets.html", listing=listing, columns=columns)


@router.get("/dataset")
def dataset(visit: Visitor, name: Name) -> HTMLResponse:
    """Show the declaration of a dataset and its budget."""
    with visit.database() as database:
        row = paged_lists.dataset_named(database, name)
        shown = _budget(database, name)
        charges = database.query(_CHARGES, name, _MOST_CHARGES)
    spending = charts.spending(charges, float(shown["budget"]["charge_limit"]), row["registered_at"], row["now"])
    return visit.page("dataset.html", dataset=row, columns=_columns(row), spending=spending, **shown)


@router.get("/budgets")
def budgets(visit: Visitor, search: Search = "", number: Number = 1) -> HTMLResponse:
    """Show the spending of each budget by role, and what is left."""
    with visit.database() as database:
        listing = paged_lists.listed(database, paged_lists.DATASETS, search=search, number=number)
        shown = [_budget(database, row["dataset"]) for row in listing.rows]
    return visit.page("budgets.html", listing=listing, budgets=shown)


@router.get("/ledger")
def ledger(visit: Visitor, dataset: Name = "", search: Search = "", number: Number = 1) -> HTMLResponse:
    """List the charges, the newest first."""
    with visit.database() as database:
        listing = paged_lists.listed(database, paged_lists.LEDGER, search=search, dataset=dataset, number=number)
    return visit.page("ledger.html", listing=listing)


@router.get("/models")
def models(visit: Visitor, dataset: Name = "", search: Search = "", number: Number = 1) -> HTMLResponse:
    """List the released models, the newest first."""
    with visit.database() as database:
        listing = paged_lists.listed(database, paged_lists.MODELS, search=search, dataset=dataset, number=number)
    return visit.page("models.html", listing=listing)


@router.get("/model")
def model(visit: Visitor, identity: ModelNumber, of_class: Category = "") -> HTMLResponse:
    """Show a model's receipt, its coefficients, and its shapes, of several classes those of one, the first by default.

    A label that is not a class has no shapes.
    """
    with visit.database() as database:
        rows = database.query(_MODEL, identity)
        if not rows:
            raise missing_model(identity)
        may = database.query(_MAY)[0]
        coefficients = _coefficients(database, rows[0])
        classes = Declaration.from_json(rows[0]["declaration"]).classes
        shown = of_class or next(iter(classes), None)
        shapes = _shapes(database, rows[0], shown)
        predictors = [row["role"] for row in database.query(_PREDICTORS, identity)] if may["reads"] else []
    return visit.page(
        "model.html",
        model=rows[0],
        sections=receipt_entries.sections(rows[0]["receipt"]),
        coefficients=coefficients,
        chart=charts.coefficients(coefficients),
        shapes=shapes,
        classes=classes,
        shown=shown,
        attacks=charts.attacks(rows[0]["receipt"]),
        calibration=charts.calibration(rows[0]["receipt"]),
        most=_MOST_COEFFICIENTS,
        predictors=predictors,
        may_grant=may["grants"] and rows[0]["own"],
    )


@router.get("/allowances")
def allowances(visit: Visitor, dataset: Name = "", search: Search = "", number: Number = 1) -> HTMLResponse:
    """List who may train on which dataset, with limits; an owner may grant and revoke."""
    with visit.database() as database:
        listing = paged_lists.listed(database, paged_lists.ALLOWANCES, search=search, dataset=dataset, number=number)
        own = database.query(
            "select d.name from dbdp.dataset as d join dbdp.own_datasets as o on o.id = d.id "
            "where d.dropped_at is null order by d.name"
        )
    return visit.page("allowances.html", listing=listing, own=[row["name"] for row in own], dataset=dataset)


def _columns(row: Row) -> list[tuple[str, str, str]]:
    return list(declared(Declaration.from_json(row["declaration"])))


def _budget(database: Database, name: str) -> dict[str, Any]:
    """Return a budget, its bar, what is left of its δ, and the unit of its charges."""
    budget = database.budget(name)
    bar = bars.budget_bar(budget, database.spending(name))
    leak = bars.Rest.of(budget["leak_limit"], budget["leaked"])
    return {"name": name, "budget": budget, "bar": bar, "leak": leak, "unit": bars.UNITS[budget["mode"]]}


def _coefficients(database: Database, row: Row) -> list[tuple[str, float, float | None]]:
    """Return name, value and standard error of the first coefficients of a model with one output; else nothing."""
    if row["coefficients"] is None or len(row["intercepts"]) != 1:
        return []
    *weights, last = [
        (each["feature"], each["coefficient"], each["standard_error"]) for each in database.weights(row["id"])
    ]
    return [last, *weights][:_MOST_COEFFICIENTS]


def _shapes(database: Database, row: Row, of_class: str | None) -> list[charts.Chart]:
    """Return the charts of a linear model that learned from columns, of one class if it has several; else none."""
    if row["coefficients"] is None or not Declaration.from_json(row["declaration"]).parts:
        return []
    shapes = [each for each in database.shapes(row["id"]) if each["class"] == of_class]
    return shape_charts.shapes(shapes, importance(shapes)) if shapes else []
