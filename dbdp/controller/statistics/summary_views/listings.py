"""The columns of a summary described, and its tables of two columns, with the caller's rights."""

from collections.abc import Iterator, Sequence
from typing import Any

from dbdp.controller.statistics.summary_views.noisy_figures import Figure, SummaryFigures
from dbdp.controller.statistics.summary_views.viewed_columns import ALL, ViewedColumn
from dbdp.learning.rows.features import REQUIRED
from dbdp.registry.results import stored_summaries
from dbdp.registry.results.stored_summaries import StoredSummary
from dbdp.sessions.session import Session

MOST_CELLS = 100_000  # of a table

Entry = dict[str, Any]


def describe(session: Session, number: int) -> list[Entry]:
    """Return the number of rows, and the levels or the mean and deviation of each column, from a summary alone."""
    figures = SummaryFigures(stored_summaries.load(session, number))
    rows = [_entry(ALL, None, figures.count(figures.everything), _counted(figures.summary))]
    for column in figures.columns.values():
        rows += _of_column(figures, column)
    return rows


def _of_column(figures: SummaryFigures, column: ViewedColumn) -> Iterator[Entry]:
    for place, level in enumerate(column.levels):
        yield _entry(column.name, level.name, figures.count(level.vector), "" if place else column.remark)
    if column.number:
        entry = _entry(column.name, None, figures.count(column.number.present), column.remark)
        mean, deviation = figures.mean(column.number), figures.deviation(column.number)
        yield entry | _pair("mean", mean.shown) | _pair("sd", deviation.shown)
    elif not column.levels:
        yield _entry(column.name, None, figures.count(figures.everything), column.remark)


def _entry(column: str, value: str | None, count: Figure, remark: str) -> Entry:
    unknown = _pair("mean", (None, None)) | _pair("sd", (None, None))
    named = {"column_name": column, "value": value}
    return named | _pair("count", count.counted) | unknown | {"remark": remark or None}


def _pair(name: str, shown: tuple[float | None, float | None]) -> Entry:
    return dict(zip((name, f"{name}_noise"), shown, strict=True))


def _counted(summary: StoredSummary) -> str:
    """Return which rows a summary has, for a reader."""
    declaration = summary.declaration
    required = [each.column for each in declaration.parts if each.null == REQUIRED]
    needed = [declaration.label, *([declaration.vector.column] if declaration.vector else required)]
    rows = "rows" if summary.cohort is None else stored_summaries.rows_of(summary.cohort)
    return f"{rows} with a value of {', '.join(needed[:5])}{', …' * (len(needed) > 5)}"


def table(session: Session, number: int, by: Sequence[str], mean: str | None) -> list[Entry]:
    """Return the number of rows, or the mean of a column, by one or two columns, from a summary alone."""
    figures = SummaryFigures(stored_summaries.load(session, number))
    columns = [_grouped(figures, name) for name in by]
    _check_columns(figures.summary, by, mean)
    if mean is not None:
        return _means(figures, columns[0], mean)
    if len(columns) == 1:
        return [_cell([each.name], "count", figures.count(each.vector).counted) for each in columns[0].levels]
    first, second = (column.levels for column in columns)
    if (cells := len(first) * len(second)) > MOST_CELLS:
        raise ValueError(f"a table by {', '.join(by)} has {cells} cells, above {MOST_CELLS}; choose one of the columns")
    return [
        _cell([one.name, other.name], "count", figures.cell(one.vector, other.vector).counted)
        for one in first
        for other in second
    ]


def _check_columns(summary: StoredSummary, by: Sequence[str], mean: str | None) -> None:
    """Raise ValueError unless a summary has the table: products of two columns, and no more."""
    most = 2 if mean is None else 1
    if not 1 <= len(by) <= most or len(set(by)) < len(by):
        what = "counts by one or two different columns" if mean is None else "means by one column"
        raise ValueError(
            f"by = {list(by)} has {len(by)} columns; summary {summary.id} has {what}, as it holds "
            "products of two columns"
        )


def _means(figures: SummaryFigures, column: ViewedColumn, mean: str) -> list[Entry]:
    number = _column(figures, mean).number
    if number is None:
        raise ValueError(
            f"mean = {mean!r} is no number with one coordinate in summary {figures.summary.id}; choose among "
            f"{_listed(each.name for each in figures.columns.values() if each.number)}"
        )
    return [
        _cell([level.name], f"mean {mean}", figures.group_mean(number, level.vector).shown) for level in column.levels
    ]


def _cell(groups: list[str], figure: str, shown: tuple[float | None, float | None]) -> Entry:
    return {"groups": groups, "figure": figure, "value": shown[0], "plus_minus": shown[1]}


def _grouped(figures: SummaryFigures, name: str) -> ViewedColumn:
    """Return a column with levels, else raise ValueError."""
    column = _column(figures, name)
    if not column.levels:
        raise ValueError(
            f"column {name!r} has no categories or bins in summary {figures.summary.id}; release one with bins of it, "
            f"such as dbdp.dp_summarize(…, bins => '{{\"{name}\": 8}}'), or choose among "
            f"{_listed(each.name for each in figures.columns.values() if each.levels)}"
        )
    return column


def _column(figures: SummaryFigures, name: str) -> ViewedColumn:
    if not isinstance(name, str) or name not in figures.columns:
        names = _listed(figures.columns)
        raise ValueError(f"summary {figures.summary.id} has no column {name!r}; choose among {names}")
    return figures.columns[name]


def _listed(names: Any) -> str:
    present = list(names)
    return ", ".join(present[:20]) + (", …" if len(present) > 20 else "") if present else "none"
