"""The plan of a training, the training itself, and the page that shows it while it runs."""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse

from dbdp.algorithms import Request as Training
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.routes import paged_lists, plan_form
from dbdp.interfaces.web.routes.pages import JobNumber, Name
from dbdp.interfaces.web.sign_in.links import drawn
from dbdp.interfaces.web.sign_in.visits import Sent, Visitor, jobs_of
from dbdp.interfaces.web.views import bars, charts, receipt_entries
from dbdp.interfaces.web.views.page_refusals import Refusal, missing
from dbdp.interfaces.web.views.rendering import link
from dbdp.sessions.session import Row

router = APIRouter(default_response_class=HTMLResponse)
_REFRESH_SECONDS = 2
# A role's own allowance replaces those of its teams.
_OWN_ALLOWANCES = """
select a.role, a.charge_limit, a.charged, a.leak_limit, a.leaked, spent.epsilon_left
from dbdp.allowances_details as a
join dbdp.dataset as d on d.name = a.dataset and d.dropped_at is null
join dbdp.allowance as own on own.dataset_id = d.id and dbdp_internal.role_name(own.role_id, own.role) = a.role
cross join lateral dbdp_internal.allowance_spent(own.id, $2::float8) as spent
where a.dataset = $1::text
and own.role_id = any (dbdp_internal.own_roles())
and (a.role = session_user or not exists (
    select from dbdp.allowances_details as o where o.dataset = a.dataset and o.role = session_user
))
order by a.role
"""


@router.get("/plan")
def plan_page(visit: Visitor, dataset: Name = "") -> HTMLResponse:
    """Show what a training would do and cost; nothing is spent."""
    texts = {name: text for name, text in visit.request.query_params.items() if name != "dataset"}
    fields, training = plan_form.read(texts)
    with visit.database() as database:
        names = paged_lists.names(database)
        if not texts and names:
            known = paged_lists.public_facts(database, dataset or names[0])
            fields = plan_form.suggested(fields, known) if known else fields
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
    return visit.page(
        "plan.html",
        dataset=dataset,
        names=names,
        fields=fields,
        given={field.name: texts[field.name] for field in fields if texts.get(field.name)},
        number=drawn(),
        planned=planned,
        problem=problem,
    )


@router.post("/train")
def train(visit: Visitor, sent: Sent) -> RedirectResponse:
    """Begin a planned training in the server; a form that is sent twice begins one."""
    _, training = plan_form.read(sent)
    dataset, number = sent.get("dataset", ""), sent.get("number", "")
    if training is None or not number:
        raise Refusal(400, "Not a plan", "The request has no ε, or a field that cannot be read.", "Plan it again.")

    def work(database: Database) -> dict[str, Any]:
        model = database.train_in_server(dataset, training)["model"]
        return {"released": "model", "onward": link("/model", id=model)}

    jobs_of(visit).start(number, f"The training on {dataset}", work)
    return RedirectResponse(link("/job", number=number), 303)


@router.get("/job")
def job(visit: Visitor, number: JobNumber) -> HTMLResponse:
    """Show a training, a score or a describe: that it runs, why it failed, or what was released."""
    shown = jobs_of(visit).find(number)
    if shown is None:
        raise missing(
            "There is no such training run, score or describe here, or not any more.", "The ledger shows the charges."
        )
    if not shown.is_done:
        response = visit.page("job.html", job=shown)
        response.headers["Refresh"] = str(_REFRESH_SECONDS)
        return response
    if shown.refusal:
        return visit.page("job.html", job=shown)
    if onward := shown.result.get("onward"):
        visit.session.notice = f"{shown.title} released this {shown.result['released']}."
        return RedirectResponse(onward, 303)  # type: ignore[return-value]
    return visit.page("scored.html", job=shown, **shown.result)


@router.post("/job/stop")
def stop(visit: Visitor, sent: Sent) -> RedirectResponse:
    """Stop a training or a score that runs; its charge stands."""
    number = sent.get("number", "")
    if running := jobs_of(visit).find(number):
        running.stop()
    return RedirectResponse(link("/job", number=number), 303)


def _planned(database: Database, name: str, training: Training) -> dict[str, Any]:
    """Return a plan with its receipt in sections, what would be left, and the largest ε that fits if it does not."""
    receipt = database.explain_in_server(name, training)
    budget = database.budget(name, release_delta=receipt["delta"])
    within = _own_allowances(database, name, receipt["delta"])
    others = _others(database, name, training, receipt)
    left = [_left(limit, receipt) for limit in ({"role": None, **budget}, *within)]
    return {
        "receipt": receipt,
        "sections": receipt_entries.sections(receipt),
        "bar": bars.budget_bar(budget, database.spending(name), receipt["charge"]),
        "unit": bars.UNITS[budget["mode"]],
        "budget": budget,
        "left": left,
        "fits": left[0]["is_enough"] and (not within or any(each["is_enough"] for each in left[1:])),
        "fitting": min(budget["epsilon_left"], max((row["epsilon_left"] for row in within), default=math.inf)),
        "statement": plan_form.statement(name, training),
        "others": others,
        "entry": charts.noise_of(receipt),
        "noise": charts.noise(others, training.epsilon),
        "attacks": charts.attacks(receipt),
    }


def _others(database: Database, name: str, training: Training, receipt: dict[str, Any]) -> list[dict[str, Any]]:
    """Return plans of a training with several ε, in ascending order; an ε that cannot be planned is left out."""
    plans = []
    for factor in charts.FACTORS if charts.noise_of(receipt) else ():
        with suppress(ValueError), database.connection.transaction():
            plans.append(database.explain_in_server(name, replace(training, epsilon=factor * training.epsilon)))
    return plans


def _own_allowances(database: Database, name: str, release_delta: float) -> list[Row]:
    """Return the allowances that limit the role; none for the owner, and where one of them has no limit."""
    if paged_lists.dataset_named(database, name)["own"]:
        return []
    rows = database.query(_OWN_ALLOWANCES, name, release_delta)
    return [] if any(row["charge_limit"] is None for row in rows) else rows


def _left(limit: Row, receipt: dict[str, Any]) -> dict[str, Any]:
    """Return what a training would leave of both limits, that of charges, in the limit's unit, and that of leaked δ."""
    cost = receipt.get("allowance_charges", {}).get(limit["role"], receipt["charge"])
    charge = bars.Rest.of(limit["charge_limit"], limit["charged"], cost)
    leak = bars.Rest.of(limit["leak_limit"], limit["leaked"], receipt["leak"])
    return {"role": limit["role"], "charge": charge, "leak": leak, "is_enough": charge.is_enough and leak.is_enough}
