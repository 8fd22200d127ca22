"""The routes that grant or revoke training and prediction, after a page that confirms it."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.accounts.visits import Visitor
from dbdp.interfaces.web.guards import check_form
from dbdp.interfaces.web.routes import lists
from dbdp.interfaces.web.views.refusals import Refusal, missing_model
from dbdp.interfaces.web.views.rendering import link, number
from dbdp.privacy.accounting.budget import Budget

router = APIRouter(default_response_class=HTMLResponse)
Typed = Annotated[str, Form(max_length=1000)]
Parameter = Annotated[str, Query(max_length=63)]
Named = Annotated[str, Form(max_length=63)]
AskedModel = Annotated[int, Query(ge=1, lt=2**63)]
SentModel = Annotated[int, Form(ge=1, lt=2**63)]
_OWN_MODEL = """
select dbdp_internal.role_name(m.released_by_id, m.released_by)::text as released_by,
       m.released_by_id = any (dbdp_internal.own_roles())
           or m.dataset_id in (select o.id from dbdp.own_datasets as o) as own
from dbdp.model as m
where m.id = $1::int8
"""


@dataclass(frozen=True)
class Asked:
    """What a page asks to confirm: title, sentence, meaning, the form's fields, whom it concerns, the way back."""

    title: str
    text: str
    meaning: str
    fields: dict[str, Any]
    whom: str
    back: str
    is_danger: bool = False


@router.get("/allowances/grant")
def ask_grant(visit: Visitor, dataset: Parameter, role: Parameter, epsilon: Parameter = "") -> HTMLResponse:
    """Show a page that confirms a grant, if the grant is allowed."""
    part = _part(epsilon)
    with visit.database() as database:
        _check_grant(database, dataset, role, part)
    until = (
        "as long as anything is left of its budget"
        if part is None
        else f"until all their releases together would exceed ε = {number(part)}"
    )
    asked = Asked(
        "Grant training",
        f"{role}, and every member of it, may train on {dataset} {until}.",
        "What they spend stays spent, even if you revoke the right. This allowance replaces one that the role has; "
        "what it has spent still counts.",
        {"dataset": dataset, "role": role, "epsilon": "" if part is None else part},
        f"to {role}",
        link("/allowances", dataset=dataset),
    )
    return visit.page("confirm.html", asked=asked)


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
    asked = Asked(
        "Revoke training",
        f"{role} may no longer train on {dataset}.",
        "What it has spent stays spent, and it keeps the models that it released.",
        {"dataset": dataset, "role": role},
        f"of {role}",
        link("/allowances", dataset=dataset),
        is_danger=True,
    )
    return visit.page("confirm.html", asked=asked)


@router.post("/allowances/revoke")
def revoke(visit: Visitor, dataset: Named, role: Named, csrf: Typed = "") -> RedirectResponse:
    """Revoke a role's right to train."""
    check_form(visit.session, csrf)
    with visit.database(writing=True) as database:
        database.revoke_training(dataset, role)
    visit.session.notice = f"{role} may no longer train on {dataset}."
    return RedirectResponse(link("/allowances", dataset=dataset), 303)


@router.get("/predictions/grant")
def ask_prediction(visit: Visitor, model: AskedModel, role: Parameter) -> HTMLResponse:
    """Show a page that confirms a grant of prediction, if the grant is allowed."""
    with visit.database() as database:
        _check_own_model(database, model)
        _check_role(database, role)
    asked = Asked(
        "Grant prediction",
        f"{role}, and every member of it, may predict with model {model}, and see its coefficients.",
        "This costs nothing: a released model is private already. It needs the right to use dbdp: membership in "
        "dbdp_predictor.",
        {"model": model, "role": role},
        f"to {role}",
        link("/model", id=model),
    )
    return visit.page("confirm.html", asked=asked)


@router.post("/predictions/grant")
def grant_prediction(visit: Visitor, model: SentModel, role: Named, csrf: Typed = "") -> RedirectResponse:
    """Grant a role the right to predict with a model."""
    check_form(visit.session, csrf)
    with visit.database(writing=True) as database:
        database.grant_prediction(model, role)
    visit.session.notice = f"{role} may predict with model {model}."
    return RedirectResponse(link("/model", id=model), 303)


@router.get("/predictions/revoke")
def ask_end_of_prediction(visit: Visitor, model: AskedModel, role: Parameter) -> HTMLResponse:
    """Show a page that confirms a revocation of prediction."""
    asked = Asked(
        "Revoke prediction",
        f"{role} may no longer predict with model {model}.",
        "A session that has used the model may use it until it ends, and nobody forgets coefficients.",
        {"model": model, "role": role},
        f"of {role}",
        link("/model", id=model),
        is_danger=True,
    )
    return visit.page("confirm.html", asked=asked)


@router.post("/predictions/revoke")
def revoke_prediction(visit: Visitor, model: SentModel, role: Named, csrf: Typed = "") -> RedirectResponse:
    """Revoke a role's right to predict with a model."""
    check_form(visit.session, csrf)
    with visit.database(writing=True) as database:
        database.revoke_prediction(model, role)
    visit.session.notice = f"{role} may no longer predict with model {model}."
    return RedirectResponse(link("/model", id=model), 303)


def _check_grant(database: Database, dataset: str, role: str, part: float | None) -> None:
    """Raise Refusal where dbdp.grant_training would refuse."""
    row = lists.own_dataset(database, dataset, "grant training")
    _check_role(database, role)
    if part is not None:
        try:
            Budget.of(epsilon=row["epsilon"], delta=row["delta"], mode=row["mode"]).allowance(part)
        except ValueError as error:
            raise Refusal(
                400, "No such allowance", str(error), "Go back and write another ε, or leave it empty for all."
            ) from None


def _check_own_model(database: Database, model: int) -> None:
    rows = database.query(_OWN_MODEL, model)
    if not rows:
        raise missing_model(model)
    if not rows[0]["own"]:
        raise Refusal(
            403,
            "Not yours to grant",
            f"Model {model} was released by {rows[0]['released_by']}; only that role, or the one that registered its "
            "dataset, may grant prediction.",
        )


def _check_role(database: Database, role: str) -> None:
    if not database.query("select rolname from pg_catalog.pg_roles where rolname = $1::name", role):
        text = f"There is no role “{role}”."
        raise Refusal(400, "No such role", text, "Write its name as in pg_roles, or have the role created first.")


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
