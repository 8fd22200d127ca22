"""The functions of SQL that release statistics, and show stored ones: one for each, without logic of its own."""

from dbdp.interfaces.sql.boundary import in_own_transaction, refusing, session  # isort: split

from functools import partial
from typing import Any

from dbdp.controller.statistics import column_statistics
from dbdp.controller.statistics.summary_views import listings
from dbdp.controller.statistics.synthetic import fake_rows
from dbdp.interfaces.sql.answers import shown
from dbdp.interfaces.sql.arguments import check_not_null
from dbdp.registry.results import stored_statistics
from dbdp.statistics import quantile_figures
from dbdp.statistics.crosstabs import TablePlan
from dbdp.statistics.describing import DescribePlan
from dbdp.statistics.quantile_plan import QuantilesPlan

Figures = list[dict[str, Any]]


@refusing(in_own_transaction, session.as_owner)
def dp_describe(dataset: str, epsilon: float, delta: float, cohort: str | None) -> Figures:
    """dbdp.dp_describe, as dbdp_owner."""
    check_not_null(dataset=dataset, epsilon=epsilon, delta=delta)
    plan = partial(column_statistics.describe_plan, epsilon=epsilon, delta=delta, cohort=cohort)
    return column_statistics.described(column_statistics.released(session, dataset, plan))


@refusing(in_own_transaction, session.as_owner)
def dp_table(dataset: str, *arguments: Any) -> Figures:
    """dbdp.dp_table, as dbdp_owner."""
    return column_statistics.tabled(column_statistics.released(session, dataset, _table_plan(dataset, *arguments)))


@refusing(session.as_owner)
def dp_explain_table(dataset: str, *arguments: Any) -> str:
    """dbdp.dp_explain_table, as dbdp_owner."""
    return shown(column_statistics.explained(session, dataset, _table_plan(dataset, *arguments)))


@refusing(in_own_transaction, session.as_owner)
def dp_quantiles(
    dataset: str, column: str, quantiles: list[float], epsilon: float, delta: float, cohort: str | None
) -> Figures:
    """dbdp.dp_quantiles, as dbdp_owner."""
    check_not_null(quantiles=quantiles)
    probabilities = quantile_figures.checked(quantiles)
    stored = column_statistics.released(session, dataset, _quantiles_plan(dataset, column, epsilon, delta, cohort))
    return column_statistics.quantiles(stored, probabilities)


@refusing(session.as_owner)
def dp_explain_quantiles(dataset: str, column: str, epsilon: float, delta: float, cohort: str | None) -> str:
    """dbdp.dp_explain_quantiles, as dbdp_owner."""
    return shown(
        column_statistics.explained(session, dataset, _quantiles_plan(dataset, column, epsilon, delta, cohort))
    )


@refusing()
def statistic_describe(statistic: int) -> Figures:
    """dbdp.statistic_describe, with the caller's rights."""
    check_not_null(statistic=statistic)
    return column_statistics.described(stored_statistics.load(session, statistic, DescribePlan.algorithm))


@refusing()
def statistic_table(statistic: int) -> Figures:
    """dbdp.statistic_table, with the caller's rights."""
    check_not_null(statistic=statistic)
    return column_statistics.tabled(stored_statistics.load(session, statistic, TablePlan.algorithm))


@refusing()
def statistic_quantiles(statistic: int, quantiles: list[float], column: str | None) -> Figures:
    """dbdp.statistic_quantiles, with the caller's rights."""
    check_not_null(statistic=statistic, quantiles=quantiles)
    probabilities = quantile_figures.checked(quantiles)
    stored = stored_statistics.load(session, statistic, QuantilesPlan.algorithm, DescribePlan.algorithm)
    return column_statistics.quantiles(stored, probabilities, column)


@refusing()
def summary_describe(summary: int) -> list[dict[str, Any]]:
    """dbdp.summary_describe, with the caller's rights."""
    check_not_null(summary=summary)
    return listings.describe(session, summary)


@refusing()
def summary_table(summary: int, by: list[str], mean: str | None) -> list[dict[str, Any]]:
    """dbdp.summary_table, with the caller's rights."""
    check_not_null(summary=summary, by=by)
    return listings.table(session, summary, by, mean)


@refusing()
def summary_rows(summary: int, rows: int | None) -> str:
    """dbdp.summary_rows, with the caller's rights."""
    check_not_null(summary=summary)
    written, warning = fake_rows.rows(session, summary, rows)
    if warning:
        session.warn(warning)
    return written


def _table_plan(
    dataset: str,
    by: list[str],
    epsilon: float,
    delta: float,
    measures: list[str],
    cohort: str | None,
    margins: bool,
    bins: int,
) -> Any:
    given: dict[str, Any] = {
        "by": by,
        "epsilon": epsilon,
        "delta": delta,
        "measures": measures,
        "margins": margins,
        "bins": bins,
    }
    check_not_null(dataset=dataset, **given)
    return partial(column_statistics.table_plan, **given, cohort=cohort)


def _quantiles_plan(dataset: str, column: str, epsilon: float, delta: float, cohort: str | None) -> Any:
    check_not_null(dataset=dataset, column_name=column, epsilon=epsilon, delta=delta)
    how: dict[str, Any] = {"column": column, "epsilon": epsilon, "delta": delta, "cohort": cohort}
    return partial(column_statistics.quantiles_plan, **how)
