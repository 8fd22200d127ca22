"""The routes that grant or revoke training and prediction, after a page that confirms it. The server refuses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.guards import check_form
from dbdp.interfaces.web.sign_in.visits import Visit, Visitor
from dbdp.interfaces.web.views.page_refusals import Refusal
from dbdp.interfaces.web.views.rendering import link, number

router = APIRouter(default_response_class=HTMLResponse)
Typed = Annotated[str, Form(max_length=1000)]
Parameter = Annotated[str, Query(max_length=63)]
Named = Annotated[str, Form(max_length=63)]
AskedModel = Annotated[int, Query(ge=1, lt=2**63)]
SentModel = Annotated[int, Form(ge=1, lt=2**63)]


@dataclass(frozen=True)
class Action:
    """A change of a role's grants."""

    title: str
    text: str  # the question, with the names of the form's fields in braces
    meaning: str  # of the answer yes
    done: str  # the notice after it
    call: Callable[..., Any]  # changes the grants: called with the database and the form's fields
    is_danger: bool = False  # whether it takes something away


ACTIONS = {
    "/allowances/grant": Action(
        "Grant training",
        "{role}, and every member of it, may train on {dataset} {until}.",
        "What they spend stays spent, even if you revoke the right. This allowance replaces one that the role has; "
        "what it has spent still counts.",
        "{role} may train on {dataset}.",
        lambda database, dataset, role, epsilon: database.grant_training(dataset, role, epsilon=_part(epsilon)),
    ),
    "/allowances/revoke": Action(
        "Revoke training",
        "{role} may no longer train on {dataset}.",
        "What it has spent stays spent, and it keeps the models that it released.",
        "{role} may no longer train on {dataset}.",
        lambda database, dataset, role, epsilon: database.revoke_training(dataset, role),
        is_danger=True,
    ),
    "/predictions/grant": Action(
        "Grant prediction",
        "{role}, and every member of it, may predict with model {model}, and see its coefficients.",
        "This costs nothing: a released model is private already. It needs the right to use dbdp: membership in "
        "dbdp_predictor.",
        "{role} may predict with model {model}.",
        Database.grant_prediction,
    ),
    "/predictions/revoke": Action(
        "Revoke prediction",
        "{role} may no longer predict with model {model}.",
        "A session that has used the model may use it until it ends, and nobody forgets coefficients.",
        "{role} may no longer predict with model {model}.",
        Database.revoke_prediction,
        is_danger=True,
    ),
}


@router.get("/allowances/grant")
@router.get("/allowances/revoke")
def ask_training(visit: Visitor, dataset: Parameter, role: Parameter, epsilon: Parameter = "") -> HTMLResponse:
    """Show a page that confirms a grant of training, or its end."""
    part = _part(epsilon)
    until = (
        "as long as anything is left of its budget"
        if part is None
        else f"until all their releases together would exceed ε = {number(part)}"
    )
    fields = {"dataset": dataset, "role": role, "epsilon": "" if part is None else part}
    return _asked(visit, link("/allowances", dataset=dataset), fields, until=until)


@router.post("/allowances/grant")
@router.post("/allowances/revoke")
def change_training(
    visit: Visitor, dataset: Named, role: Named, epsilon: Named = "", csrf: Typed = ""
) -> RedirectResponse:
    """Grant a role the right to train, or revoke it."""
    fields = {"dataset": dataset, "role": role, "epsilon": epsilon}
    return _changed(visit, csrf, link("/allowances", dataset=dataset), fields)


@router.get("/predictions/grant")
@router.get("/predictions/revoke")
def ask_prediction(visit: Visitor, model: AskedModel, role: Parameter) -> HTMLResponse:
    """Show a page that confirms a grant of prediction, or its end."""
    return _asked(visit, link("/model", id=model), {"model": model, "role": role})


@router.post("/predictions/grant")
@router.post("/predictions/revoke")
def change_prediction(visit: Visitor, model: SentModel, role: Named, csrf: Typed = "") -> RedirectResponse:
    """Grant a role the right to predict with a model, or revoke it."""
    return _changed(visit, csrf, link("/model", id=model), {"model": model, "role": role})


def _asked(visit: Visit, back: str, fields: dict[str, Any], **words: str) -> HTMLResponse:
    action = ACTIONS[visit.request.url.path]
    text = action.text.format(**fields, **words)
    return visit.page("confirm.html", action=action, text=text, fields=fields, back=back)


def _changed(visit: Visit, csrf: str, back: str, fields: dict[str, Any]) -> RedirectResponse:
    check_form(visit.session, csrf)
    action = ACTIONS[visit.request.url.path]
    with visit.database(writing=True) as database:
        action.call(database, **fields)
    visit.session.notice = action.done.format(**fields)
    return RedirectResponse(back, 303)


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
