"""Statistics of declared columns: one charged release, stored, and the figures that follow from it at no charge.

A release runs in the server, as dbdp_owner, for every interface. Figures of a stored one are read with the caller's
rights. privacy.md §25.
"""

from collections.abc import Callable, Sequence
from typing import Any

from dbdp.checks import whole
from dbdp.controller import charging
from dbdp.controller.receipts import Receipt
from dbdp.packing.memory import pack_memory
from dbdp.registry import datasets
from dbdp.registry.border import ServerSession
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import MAX_BINS
from dbdp.registry.results import stored_statistics
from dbdp.registry.results.stored_statistics import StoredStatistic
from dbdp.registry.tables import coded_rows
from dbdp.sessions.session import Session
from dbdp.statistics import column_figures, crosstabs, quantile_figures, table_figures
from dbdp.statistics.coded_columns import NumberCode, code_of
from dbdp.statistics.crosstabs import Axis, TablePlan
from dbdp.statistics.describing import DescribePlan
from dbdp.statistics.quantile_plan import QuantilesPlan
from dbdp.statistics.stepped_noise import Population

StatisticPlan = DescribePlan | TablePlan | QuantilesPlan
Figures = list[dict[str, Any]]


def released(
    session: ServerSession, name: str, planned: Callable[[RegisteredDataset], StatisticPlan]
) -> StoredStatistic:
    """Charge a statistic of a dataset, sum up the rows, add noise, and store the release.

    Raise ValueError before anything is spent: the guarantee, the dataset or the budget does not allow it. Raise
    ChargedError after the charge: the server failed, or the reading was cancelled.
    """
    dataset = datasets.load(session, name)
    plan = planned(dataset)
    receipt, memory = Receipt.of(dataset, plan.explain(), plan.guarantee), pack_memory(session)
    session.check_rows(dataset)
    with charging.charged(session, dataset, receipt) as charge:
        with charging.answering(session, dataset, charge):
            sums: Any = plan.sums()
            cohort = plan.population.cohort
            for slots in coded_rows.coded(session, dataset, plan.codes, cohort=cohort, memory=memory):
                sums.add(*slots)
            noisy = plan.release(sums)
        return stored_statistics.record(session, dataset, noisy, receipt.charged(charge.ledger).as_data())


def explained(session: Session, name: str, planned: Callable[[RegisteredDataset], StatisticPlan]) -> dict[str, Any]:
    """Return the plan of a statistic, its charge, and a stored one that answers the same question; spend nothing."""
    dataset = datasets.load(session, name)
    plan = planned(dataset)
    shown = plan.explain()
    stored = stored_statistics.answering(session, dataset, shown)
    return charging.explained(dataset, shown, plan.guarantee) | stored


def describe_plan(dataset: RegisteredDataset, epsilon: float, delta: float, cohort: Any = None) -> DescribePlan:
    """Return the plan of a describe, from public facts only; raise ValueError if there is none."""
    return DescribePlan(epsilon, delta, coded_rows.codes_of(dataset), _population(dataset, cohort))


def quantiles_plan(
    dataset: RegisteredDataset, column: str, epsilon: float, delta: float, cohort: Any = None
) -> QuantilesPlan:
    """Return the plan of all quantiles of a number, from public facts only; raise ValueError if there is none."""
    code = code_of(coded_rows.codes_of(dataset), column, dataset.name)
    return QuantilesPlan.of(epsilon, delta, code, _population(dataset, cohort))


def table_plan(
    dataset: RegisteredDataset,
    by: Sequence[str],
    epsilon: float,
    delta: float,
    measures: Any,
    cohort: Any,
    margins: bool,
    bins: int,
) -> TablePlan:
    """Return the plan of tables, from public facts only; raise ValueError if there is none."""
    whole("bins", bins, 2, MAX_BINS, "10 suit most columns")
    if not all(isinstance(column, str) for column in by) or len(set(by)) != len(by):
        raise ValueError(f"by = {list(by)!r} has NULL, or names a column twice; name each column once")
    coarse, fine = coded_rows.codes_of(dataset, bins), coded_rows.codes_of(dataset)
    axes = tuple(Axis(code_of(coarse, column, dataset.name)) for column in by)
    columns = crosstabs.measured_columns(measures)
    numbers = crosstabs.numbers_of([code_of(fine, column, dataset.name) for column in columns])
    return TablePlan(epsilon, delta, axes, numbers, margins, _population(dataset, cohort))


def _population(dataset: RegisteredDataset, stated: Any) -> Population:
    cohort = coded_rows.cohort_of(dataset, stated)
    return Population(dataset.units, dataset.unit_rows, dataset.capacity is None and stated is None, cohort)


def described(stored: StoredStatistic) -> Figures:
    """Return the figures of a describe."""
    return _numbered(stored, column_figures.figures_of(DescribePlan.of_receipt(stored.receipt), stored.noisy))


def tabled(stored: StoredStatistic) -> Figures:
    """Return the figures of tables."""
    return _numbered(stored, table_figures.figures_of(TablePlan.of_receipt(stored.receipt), stored.noisy))


def quantiles(stored: StoredStatistic, probabilities: list[float], column: str | None = None) -> Figures:
    """Return quantiles with their intervals, of the column of a distribution or of one of a describe."""
    if stored.receipt["algorithm"] == DescribePlan.algorithm:
        described_plan = DescribePlan.of_receipt(stored.receipt)
        if column is None:
            raise ValueError(f"statistic {stored.id} is a describe of several columns; name one: column_name => …")
        code = code_of(described_plan.codes, column, stored.receipt["dataset"])
        plan = QuantilesPlan.of(described_plan.epsilon, described_plan.delta, code, described_plan.population)
        noisy = dict(described_plan.blocks(stored.noisy))[code][4:]
        return _numbered(stored, _of_cells(plan.code, noisy, described_plan.noise.scale, probabilities))
    plan = QuantilesPlan.of_receipt(stored.receipt)
    if column not in (None, plan.code.column):
        raise ValueError(f"statistic {stored.id} is of column {plan.code.column!r}, not of {column!r}; leave it out")
    return _numbered(stored, _of_cells(plan.code, stored.noisy, plan.noise.scale, probabilities))


def _of_cells(code: NumberCode, noisy: Any, scale: float, probabilities: list[float]) -> Figures:
    return list(quantile_figures.with_intervals(code, noisy, scale, probabilities))


def _numbered(stored: StoredStatistic, rows: Any) -> Figures:
    return [row | {"statistic": stored.id} for row in rows]
