"""Statistics of declared columns: one charged release, stored, and the figures that follow from it at no charge.

A release runs in the server, as dbdp_owner, for every interface. Figures of a stored one are read with the caller's
rights. privacy.md §25.
"""

from typing import Any

from dbdp.controller import charging
from dbdp.controller.receipts import Receipt
from dbdp.packing.memory import pack_memory
from dbdp.registry import datasets
from dbdp.registry.border import ServerSession
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.results import stored_statistics
from dbdp.registry.results.stored_statistics import StoredStatistic
from dbdp.registry.tables import coded_rows
from dbdp.sessions.session import Session
from dbdp.statistics import column_figures
from dbdp.statistics.describing import DescribePlan
from dbdp.statistics.unit_sums import ColumnSums


def describe(session: ServerSession, name: str, *, epsilon: float, delta: float) -> list[dict[str, Any]]:
    """Release counts, means, deviations and quartiles of all declared columns, and return them by column.

    Raise ValueError before anything is spent: the guarantee, the dataset or the budget does not allow it. Raise
    ChargedError after the charge: the server failed, or the reading was cancelled.
    """
    dataset = datasets.load(session, name)
    return _described(_released(session, dataset, describe_plan(dataset, epsilon, delta)))


def described(session: Session, number: int) -> list[dict[str, Any]]:
    """Return the figures of a stored describe."""
    return _described(stored_statistics.load(session, number, DescribePlan.algorithm))


def describe_plan(dataset: RegisteredDataset, epsilon: float, delta: float) -> DescribePlan:
    """Return the plan of a describe, from public facts only; raise ValueError if there is none."""
    public = dataset.units, dataset.unit_rows, dataset.capacity is None
    return DescribePlan(epsilon, delta, coded_rows.codes_of(dataset), *public)


def _described(stored: StoredStatistic) -> list[dict[str, Any]]:
    figures = column_figures.figures_of(DescribePlan.of_receipt(stored.receipt), stored.noisy)
    return [row | {"statistic": stored.id} for row in figures]


def _released(session: ServerSession, dataset: RegisteredDataset, plan: DescribePlan) -> StoredStatistic:
    """Charge a plan, sum up the rows, add noise, and store the release."""
    receipt = Receipt.of(dataset, plan.explain(), plan.guarantee)
    memory = pack_memory(session)
    session.check_rows(dataset)
    with charging.charged(session, dataset, receipt) as charge:
        with charging.answering(session, dataset, charge):
            sums = ColumnSums(plan.codes, dataset.unit_rows)
            for codes, positions in coded_rows.coded(session, dataset, plan.codes, memory=memory):
                sums.add(codes, positions)
            noisy = plan.release(sums)
        return stored_statistics.record(session, dataset, noisy, receipt.charged(charge.ledger).as_data())
