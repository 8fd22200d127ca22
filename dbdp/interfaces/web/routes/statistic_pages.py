"""Released statistics and summaries as charts, at no charge, and the form that plans and releases a describe."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.routes import paged_lists, plan_form
from dbdp.interfaces.web.routes.pages import ModelNumber, Name, Number, Search
from dbdp.interfaces.web.routes.score_form import guarantee_in, planned_figure
from dbdp.interfaces.web.sign_in.links import drawn
from dbdp.interfaces.web.sign_in.visits import Sent, Visitor, jobs_of
from dbdp.interfaces.web.views import figure_charts
from dbdp.interfaces.web.views.charts import Chart
from dbdp.interfaces.web.views.figure_charts import Listing, listed
from dbdp.interfaces.web.views.page_refusals import Refusal, missing_statistic
from dbdp.interfaces.web.views.rendering import link
from dbdp.sessions.session import Row

router = APIRouter(default_response_class=HTMLResponse)
Text = Annotated[str, Query(max_length=100)]
Column = Annotated[str, Query(max_length=200)]
_QUARTILES = "0.25, 0.5, 0.75"
_MOST_NUMBERS = 12  # of a describe: numbers with a drawn distribution
_RECEIPT = "select m.receipt from dbdp.model as m where m.id = $1::int8"
_TABLE = "select * from dbdp.summary_table($1, $2::text[], $3)"
Shown = dict[str, Any]


@router.get("/statistics")
def statistics(visit: Visitor, dataset: Name = "", search: Search = "", number: Number = 1) -> HTMLResponse:
    """List the released statistics and summaries, the newest first."""
    with visit.database() as database:
        listing = paged_lists.listed(database, paged_lists.STATISTICS, search=search, dataset=dataset, number=number)
    return visit.page("statistics.html", listing=listing)


@router.get("/statistic")
def statistic(
    visit: Visitor, identity: ModelNumber, at: Text = _QUARTILES, by: Column = "", other: Column = "", mean: Column = ""
) -> HTMLResponse:
    """Show the figures of a released statistic or summary; quantiles and tables may be chosen, and nothing is spent."""
    asked = {"at": at, "by": by, "other": other, "mean": mean}
    with visit.database() as database:
        row = paged_lists.statistic_numbered(database, identity)
        if row is None:
            raise missing_statistic(identity)
        receipt = database.query(_RECEIPT, identity)[0]["receipt"]
        shown = _SHOWN[row["kind"]](database, row, receipt)
    chosen, problem = None, None
    try:
        with visit.database() as database:
            chosen = _chosen(database, row, asked)
    except Refusal as refusal:
        if refusal.status >= 500:
            raise
        problem = refusal
    return visit.page(
        "statistic.html", statistic=row, receipt=receipt, asked=asked, chosen=chosen, problem=problem, **shown
    )


@router.get("/describe")
def plan_describe(visit: Visitor, dataset: Name = "", epsilon: Text = "", delta: Text = "") -> HTMLResponse:
    """Show the form of a describe, and its noise and cost once it has an ε; nothing is spent."""
    with visit.database() as database:
        names = paged_lists.names(database)
        facts = paged_lists.public_facts(database, dataset or names[0]) if names and not epsilon else None
    given = plan_form.guarantee(facts) if facts else {"epsilon": epsilon, "delta": delta}
    planned, problem = None, None
    try:
        if epsilon:
            with visit.database() as database:
                planned = planned_figure(database, dataset, "describe", **guarantee_in(given))
    except Refusal as refusal:
        if refusal.status >= 500:
            raise
        problem = refusal
    shown = {"dataset": dataset, "names": names, "given": given, "planned": planned, "problem": problem}
    return visit.page("describe.html", number=drawn(), **shown)


@router.post("/describe")
def describe(visit: Visitor, sent: Sent) -> RedirectResponse:
    """Begin a describe in the server; a form that is sent twice begins one."""
    dataset, number = sent.get("dataset", ""), sent.get("number", "")
    guarantee = guarantee_in(sent)
    if not number:
        raise Refusal(400, "Not a plan", "The form has no number.", "Open the dataset, and describe it from there.")

    def work(database: Database) -> dict[str, Any]:
        released = database.describe(dataset, **guarantee).statistic
        return {"released": "statistic", "onward": link("/statistic", id=released)}

    jobs_of(visit).start(number, f"The describe of {dataset}", work)
    return RedirectResponse(link("/job", number=number), 303)


def _describe(database: Database, row: Row, receipt: dict[str, Any]) -> Shown:
    figures = database.described(row["id"])
    numbers = [each for each in figures if each["outside"] is not None]
    charts: list[Chart | None] = [*figure_charts.columns(figures)]
    for place, each in enumerate(numbers[:_MOST_NUMBERS]):
        column = each["column_name"]
        grid = database.quantiles_of(row["id"], figure_charts.GRID, column)
        charts.append(figure_charts.distribution(f"number-{place}", column, grid))
    categories = [each for each in figures if each["value"] is not None]
    names = [each["column_name"] for each in numbers]
    return _page(figures[0], charts, [("Numbers", numbers), ("Categories", categories)]) | {"quantiles": names}


def _table(database: Database, row: Row, receipt: dict[str, Any]) -> Shown:
    figures = database.tabled(row["id"])
    return _page(None, figure_charts.groups(figures), [("Groups", figures)])


def _quantiles(database: Database, row: Row, receipt: dict[str, Any]) -> Shown:
    column = receipt["columns"][0]["column"]
    grid = database.quantiles_of(row["id"], figure_charts.GRID)
    return _page(None, [figure_charts.distribution("number-0", column, grid)], []) | {"quantiles": [column]}


def _summary(database: Database, row: Row, receipt: dict[str, Any]) -> Shown:
    figures = database.summary(row["id"]).describe()
    levels = [each for each in figures if each["value"] is not None]
    numbers = [each for each in figures[1:] if each["value"] is None]
    page = _page(figures[0], figure_charts.columns(figures), [("Numbers", numbers), ("Categories and bins", levels)])
    names = list(dict.fromkeys(each["column_name"] for each in levels))
    return page | {"groupable": names, "means": [each["column_name"] for each in numbers]}


def _page(rows: Row | None, charts: Sequence[Chart | None], tables: Sequence[tuple[str, list[Row]]]) -> Shown:
    """Return the parts of every page of a statistic: its number of rows, its charts and its tables."""
    return {
        "rows": rows,
        "charts": [chart for chart in charts if chart],
        "tables": [listed(caption, figures) for caption, figures in tables if figures],
        "quantiles": [],
        "groupable": [],
        "means": [],
    }


_SHOWN: dict[str, Callable[[Database, Row, dict[str, Any]], Shown]] = {
    "describe": _describe,
    "table": _table,
    "quantiles": _quantiles,
    "summary": _summary,
}
Chosen = tuple[list[Chart], Listing]


def _chosen(database: Database, row: Row, asked: dict[str, str]) -> Chosen | None:
    """Return the quantiles, or the table of a summary, that were asked for; None if none were."""
    if row["kind"] == "summary" and asked["by"]:
        by = [name for name in (asked["by"], asked["other"]) if name]
        cells = database.query(_TABLE, row["id"], by, asked["mean"] or None)
        return figure_charts.groups(cells), listed(", ".join(by), cells)
    if row["kind"] == "quantiles" or (row["kind"] == "describe" and asked["by"]):
        figures = database.quantiles_of(row["id"], _probabilities(asked["at"]), asked["by"] or None)
        return [], listed("Quantiles", figures)
    return None


def _probabilities(text: str) -> list[float]:
    try:
        return [float(each) for each in text.replace(",", " ").split()]
    except ValueError:
        text = f"Quantiles are numbers between 0 and 1, such as {_QUARTILES}."
        raise Refusal(400, "Not a number", text, "Write them again.") from None
