"""The routes of an owner: register a table, and renew its budget."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse

from dbdp.interfaces.web.routes import paged_lists, register_form
from dbdp.interfaces.web.routes.pages import Name, TableName
from dbdp.interfaces.web.sign_in.visits import Sent, Visit, Visitor
from dbdp.interfaces.web.views.page_refusals import Refusal
from dbdp.interfaces.web.views.rendering import link

router = APIRouter(default_response_class=HTMLResponse)


@router.get("/register")
def ask_registration(visit: Visitor, source: TableName = "") -> HTMLResponse:
    """Show the tables that may be registered, or the form of one."""
    return _form(visit, {"source": source})


@router.post("/register")
def register(visit: Visitor, sent: Sent) -> HTMLResponse:
    """Register a table, or show the form again with what is wrong."""
    try:
        registration = register_form.read(sent)
        with visit.database(writing=True) as database:
            if registration.source not in register_form.tables(database):
                raise Refusal(400, "No such table", f"{visit.session.role} owns no such table that is not registered.")
            database.register(registration)
    except (ValueError, Refusal) as error:
        if not isinstance(error, Refusal):
            error = Refusal(400, "dbdp refused this", str(error))
        if error.status >= 500:
            raise error from None
        return _form(visit, sent, error)
    visit.session.notice = f"{registration.name} is registered: trainings may spend its budget now."
    return RedirectResponse(link("/dataset", name=registration.name), 303)  # type: ignore[return-value]


@router.get("/renew")
def ask_renewal(visit: Visitor, dataset: Name) -> HTMLResponse:
    """Show the form of a new budget."""
    with visit.database() as database:
        row = paged_lists.own_dataset(database, dataset, "renew its budget")
        budget = database.budget(dataset)
    return visit.page("renew.html", dataset=row, budget=budget)


@router.post("/renew")
def renew(visit: Visitor, sent: Sent) -> RedirectResponse:
    """End a budget, and begin a new one."""
    name, reason = sent.get("dataset", ""), sent.get("reason", "").strip()
    if not reason:
        raise Refusal(400, "A reason is missing", "The record needs to show why the budget was renewed.", "Go back.")
    try:
        budget = {part: register_form.number_in(sent, part) for part in ("epsilon", "delta")}
        capacity = register_form.number_in(sent, "capacity", int)
    except ValueError as error:
        raise Refusal(400, "Not a number", str(error), "Go back and write a number, or leave it empty.") from None
    with visit.database(writing=True) as database:
        database.renew_budget(name, reason, **budget, capacity=capacity)
    visit.session.notice = f"{name} has a new budget."
    return RedirectResponse(link("/dataset", name=name), 303)


def _form(visit: Visit, texts: dict[str, Any], problem: Refusal | None = None) -> HTMLResponse:
    source = texts.get("source", "")
    with visit.database() as database:
        tables = register_form.tables(database)
        columns = register_form.columns(database, source) if source in tables else []
    response = visit.page(
        "register.html",
        tables=tables,
        source=source,
        columns=columns[: register_form.MOST_COLUMNS],
        is_long=len(columns) > register_form.MOST_COLUMNS,
        texts=texts,
        modes=register_form.MODES,
        problem=problem,
    )
    response.status_code = problem.status if problem else 200
    return response
