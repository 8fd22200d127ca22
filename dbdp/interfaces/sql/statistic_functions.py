"""The functions of SQL that release statistics, and show stored ones: one for each, without logic of its own."""

from dbdp.interfaces.sql.boundary import in_own_transaction, refusing, session  # isort: split

from typing import Any

from dbdp.controller.statistics import column_statistics
from dbdp.interfaces.sql.arguments import check_not_null


@refusing(in_own_transaction, session.as_owner)
def dp_describe(dataset: str, epsilon: float, delta: float) -> list[dict[str, Any]]:
    """dbdp.dp_describe, as dbdp_owner."""
    check_not_null(dataset=dataset, epsilon=epsilon, delta=delta)
    return column_statistics.describe(session, dataset, epsilon=epsilon, delta=delta)


@refusing()
def statistic_describe(statistic: int) -> list[dict[str, Any]]:
    """dbdp.statistic_describe, with the caller's rights."""
    check_not_null(statistic=statistic)
    return column_statistics.described(session, statistic)
