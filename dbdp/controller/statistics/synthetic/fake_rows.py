"""Synthetic rows of a summary, with the caller's rights: free, and as private as the summary (privacy.md §16.7)."""

import numpy as np

from dbdp import checks
from dbdp.controller.statistics.synthetic.decoding import written
from dbdp.controller.statistics.synthetic.drawing import drawn
from dbdp.controller.statistics.synthetic.label_tree import label_tree
from dbdp.controller.statistics.synthetic.max_entropy import TreeModel
from dbdp.controller.statistics.synthetic.pair_tables import pair_tables
from dbdp.registry.results import stored_summaries
from dbdp.sessions.session import Session

MOST_VALUES = 2_000_000  # rows times columns: tens of megabytes
INDEPENDENT = (
    "noise hides how the features depend on each other: in these rows they are independent, given the label; release a "
    "summary with a larger epsilon, or with fewer bins"
)


def rows(session: Session, number: int, count: int | None) -> tuple[str, str | None]:
    """Return rows as JSON, by default as many as the summary counted, and a warning if there is one."""
    summary = stored_summaries.load(session, number)
    tables = pair_tables(summary)
    most = MOST_VALUES // len(tables.columns)
    wanted = min(most, max(1, round(tables.rows))) if count is None else count
    checks.whole("rows", wanted, 1, most, "make more in several calls, and join them with union all")
    tree, random = label_tree(tables), np.random.default_rng()
    codes = drawn(TreeModel.of(tables, tree).fitted(), tree, wanted, random)
    warning = INDEPENDENT if tree.is_independent and len(tree.order) > 1 else None
    return written(summary.declaration, summary.column_types, codes, random), warning
