"""The functions of SQL that release statistics, and show stored ones: one for each, without logic of its own."""

from dbdp.interfaces.sql.boundary import refusing, session  # isort: split

from typing import Any

from dbdp.controller.statistics.summary_views import listings
from dbdp.controller.statistics.synthetic import fake_rows
from dbdp.interfaces.sql.arguments import check_not_null


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
