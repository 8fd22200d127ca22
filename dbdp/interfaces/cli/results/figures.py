"""Commands that release statistics of a dataset's columns, or show stored ones."""

from collections.abc import Sequence
from typing import Annotated, Any

from dbdp.interfaces.cli.click_adapter import Argument, Commands, option
from dbdp.interfaces.cli.printing import (
    AsJson,
    CohortOption,
    Delta,
    Epsilon,
    Url,
    opened,
    parsed_cohort,
    print_line,
    show,
)
from dbdp.interfaces.python.released_figures import Figures
from dbdp.sessions.session import Row

app = Commands()

GaussianDelta = Annotated[float, option(help="δ of this release, above 0.")]


@app.command()
def describe(
    dataset: str,
    epsilon: Epsilon,
    delta: GaussianDelta,
    cohort: CohortOption = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Describe all declared columns for one charge: NULLs, mean, deviation, quartiles, counts of categories."""
    with opened(url) as database:
        figures = database.describe(dataset, epsilon=epsilon, delta=delta, cohort=parsed_cohort(cohort))
    if as_json:
        show(figures, True, dataset)
        return
    numbers = [row for row in figures if row["outside"] is not None]
    counts = ("column_name", "value", "count", "count_noise", "share", "share_noise")
    show(_columns([row for row in figures if row["outside"] is None], counts), False, f"{dataset}: rows and categories")
    if numbers:
        hidden = {*counts[4:], "value", "outside_noise"}
        show(_columns(numbers, [name for name in numbers[0] if name not in hidden]), False, f"{dataset}: numbers")
    _show_number(figures, "describe")


@app.command()
def table(
    dataset: str,
    by: Annotated[str, option(help="Declared columns, separated by commas.")],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    mean: Annotated[str | None, option(help="Numbers to average in each group, separated by commas.")] = None,
    cohort: CohortOption = None,
    margins: Annotated[bool, option("--margins", help="Add all totals, which agree.")] = False,
    bins: Annotated[int, option(help="Bins of a number that has no declared ones.")] = 10,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Count the rows of each group, and average numbers in it, with noise, for one charge."""
    how: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "margins": margins, "bins": bins}
    measures = ["count", *(f"mean {each}" for each in _listed(mean))]
    with opened(url) as database:
        figures = database.table(dataset, _listed(by), measures=measures, cohort=parsed_cohort(cohort), **how)
    rows = figures if as_json else [row | {"groups": ", ".join(row["groups"])} for row in figures]
    show(rows, as_json, dataset)
    if not as_json:
        _show_number(figures, "table")


@app.command()
def quantiles(
    dataset: str,
    column: Annotated[str, Argument("A declared number.")],
    epsilon: Epsilon,
    delta: GaussianDelta,
    at: Annotated[str, option(help="Numbers between 0 and 1, separated by commas.")] = "0.25,0.5,0.75",
    cohort: CohortOption = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Estimate quantiles of a number, with noise; one charge covers all of them."""
    with opened(url) as database:
        how: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "cohort": parsed_cohort(cohort)}
        figures = database.quantiles(dataset, column, list(map(float, _listed(at))), **how)
    show(figures, as_json, f"{column} of {dataset}")
    if not as_json:
        _show_number(figures, "quantiles")


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def _columns(rows: list[Row], names: Sequence[str]) -> list[Row]:
    """Return rows with some of their columns only."""
    return [{name: row[name] for name in names} for row in rows]


def _show_number(figures: Figures, kind: str) -> None:
    print_line(f"statistic {figures.statistic}: dbdp.statistic_{kind}({figures.statistic}, …) shows it again, for free")
