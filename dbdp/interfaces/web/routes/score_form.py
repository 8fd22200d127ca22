"""The form of a score of a released model, its plan, and its release."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from dbdp.algorithms.scores.metrics import METRICS
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.routes import paged_lists
from dbdp.interfaces.web.routes.pages import Name
from dbdp.interfaces.web.sign_in.links import drawn
from dbdp.interfaces.web.sign_in.visits import Sent, Visitor, jobs_of
from dbdp.interfaces.web.views import bars, charts
from dbdp.interfaces.web.views.page_refusals import Refusal, missing_model
from dbdp.interfaces.web.views.rendering import link

router = APIRouter(default_response_class=HTMLResponse)
_DATASET_OF = "select m.dataset from dbdp.models_details as m where m.id = $1::int8"
Text = Annotated[str, Query(max_length=100)]


@router.get("/score")
def plan_score(
    visit: Visitor,
    model: Annotated[int, Query(ge=1, lt=2**63)],
    dataset: Name = "",
    metric: Text = "",
    epsilon: Text = "",
    delta: Text = "",
    positive: Text = "",
) -> HTMLResponse:
    """Show the form of a score, and its noise and cost once it has an ε; nothing is spent."""
    given = {"metric": metric, "epsilon": epsilon, "delta": delta, "positive": positive}
    with visit.database() as database:
        of_model = database.query(_DATASET_OF, model)
        if not of_model:
            raise missing_model(model)
        names = paged_lists.names(database)
    planned, problem, dataset = None, None, dataset or of_model[0]["dataset"]
    if epsilon:
        try:
            with visit.database() as database:
                planned = planned_figure(database, dataset, **_options(given))
        except Refusal as refusal:
            if refusal.status >= 500:
                raise
            problem = refusal
    return visit.page(
        "score.html",
        model=model,
        dataset=dataset,
        names=names,
        metrics=METRICS,
        given=given,
        number=drawn(),
        planned=planned,
        problem=problem,
    )


@router.post("/score")
def score(visit: Visitor, sent: Sent) -> RedirectResponse:
    """Begin a score in the server; a form that is sent twice begins one."""
    model, dataset, number = sent.get("model", ""), sent.get("dataset", ""), sent.get("number", "")
    chosen = _options(sent)
    if not (model.isascii() and model.isdigit() and number):
        raise Refusal(400, "Not a plan", "The form has no model.", "Open the model, and score it from there.")

    def work(database: Database) -> dict[str, Any]:
        result = database.score(int(model), dataset, **chosen)
        return {"model": int(model), "dataset": dataset, "score": result, "roc": charts.roc(result)}

    jobs_of(visit).start(number, f"The score of model {model} on {dataset}", work)
    return RedirectResponse(link("/job", number=number), 303)


def planned_figure(database: Database, name: str, metric: str, **options: Any) -> dict[str, Any]:
    """Return the plan of a score or of a statistic, and what it would leave of the budget."""
    receipt = database.explain_score(name, metric, **options)
    budget = database.budget(name)
    rest = bars.Rest.of(budget["charge_limit"], budget["charged"], receipt["charge"])
    return {"receipt": receipt, "rest": rest}


def _options(given: dict[str, str]) -> dict[str, Any]:
    """Return the options of a score as `Database.score` takes them; raises Refusal for what is not a number."""
    positive = given.get("positive", "") or None
    return {"metric": given.get("metric", ""), **guarantee_in(given), "positive": positive}


def guarantee_in(given: dict[str, str]) -> dict[str, Any]:
    """Return the ε and the δ of a form; raises Refusal for what is not a number."""
    try:
        return {"epsilon": float(given.get("epsilon", "")), "delta": float(given.get("delta", "") or 0.0)}
    except ValueError:
        raise Refusal(400, "Not a number", "ε and δ are numbers, such as 0.5 and 1e-6.", "Write them again.") from None
