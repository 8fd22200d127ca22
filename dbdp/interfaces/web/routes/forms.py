"""The routes that grant or revoke training, after a page that confirms it."""

from typing import Annotated

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from dbdp.interfaces.python.database import Database
from dbdp.interfaces.web.accounts.visits import Visitor
from dbdp.interfaces.web.guards import check_form
from dbdp.interfaces.web.routes import lists
from dbdp.interfaces.web.views.refusals import Refusal, missing_dataset
from dbdp.interfaces.web.views.rendering import link
from dbdp.privacy.accounting.budget import Budget

router = APIRouter(default_response_class=HTMLResponse)
Typed = Annotated[str, Form(max_length=1000)]
Parameter = Annotated[str, Query(max_length=63)]
Named = Annotated[str, Form(max_length=63)]


@router.get("/allowances/grant")
def ask_grant(visit: Visitor, dataset: Parameter, role: Parameter, epsilon: Parameter = "") -> HTMLResponse:
    """Show a page that confirms a grant, if the grant is allowed."""
    part = _part(epsilon)
    with visit.database() as database:
        _check_grant(database, dataset, role, part)
    return visit.page("grant.html", dataset=dataset, role=role, epsilon=part)


@router.post("/allowances/grant")
def grant(visit: Visitor, dataset: Named, role: Named, epsilon: Named = "", csrf: Typed = "") -> RedirectResponse:
    """Grant a role the right to train."""
    check_form(visit.session, csrf)
    part = _part(epsilon)
    with visit.database(writing=True) as database:
        database.grant_training(dataset, role, epsilon=part)
    visit.session.notice = f"{role} may train on {dataset}."
    return RedirectResponse(link("/allowances", dataset=dataset), 303)


@router.get("/allowances/revoke")
def ask_revoke(visit: Visitor, dataset: Parameter, role: Parameter) -> HTMLResponse:
    """Show a page that confirms a revocation."""
    return visit.page("revoke.html", dataset=dataset, role=role)


@router.post("/allowances/revoke")
def revoke(visit: Visitor, dataset: Named, role: Named, csrf: Typed = "") -> RedirectResponse:
    """Revoke a role's right to train."""
    check_form(visit.session, csrf)
    with visit.database(writing=True) as database:
        database.revoke_training(dataset, role)
    visit.session.notice = f"{role} may no longer train on {dataset}."
    return RedirectResponse(link("/allowances", dataset=dataset), 303)


def _check_grant(database: Database, dataset: str, role: str, part: float | None) -> None:
    """Raise Refusal where dbdp.grant_training would refuse."""
    row = lists.dataset_named(database, dataset)
    if row is None:
        raise missing_dataset(dataset)
    if not row["own"]:
        raise Refusal(
            403,
            "Not yours to grant",
            f"{dataset} belongs to {row['registered_by']}; only that role may grant training.",
        )
    if not database.query("select rolname from pg_catalog.pg_roles where rolname = $1::name", role):
        text = f"There is no role “{role}”."
        raise Refusal(400, "No such role", text, "Write its name as in pg_roles, or have the role created first.")
    if part is not None:
        try:
            Budget.of(epsilon=row["epsilon"], delta=row["delta"], mode=row["mode"]).allowance(part)
        except ValueError as error:
            raise Refusal(
                400, "No such allowance", str(error), "Go back and write another ε, or leave it empty for all."
            ) from None


def _part(text: str) -> float | None:
    """Return the ε of an allowance; None if the field is empty, for all of the dataset's ε."""
    try:
        return float(text) if text.strip() else None
    except ValueError:
        raise Refusal(
            400,
            "Not a number",
            f"ε = {text!r} is not a number.",
            "Go back and write one such as 0.5, or leave it empty for all.",
        ) from None
