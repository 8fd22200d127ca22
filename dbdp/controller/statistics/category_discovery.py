"""The values of a text column for the role that registered its table: noisy counts, above a threshold."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dbdp.algorithms.plan import relation
from dbdp.algorithms.scores.counting import LEVEL
from dbdp.controller import charging
from dbdp.controller.receipts import Receipt
from dbdp.privacy.discovered_values import DiscoveredValues
from dbdp.registry import datasets, register
from dbdp.registry.border import ServerSession
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.spending import rights
from dbdp.registry.tables import text_rows
from dbdp.statistics.coded_columns import NO_CATEGORY, NO_VALUE

MOST_SLOTS = 1 << 20  # and so the most values that are held
_WORDS = (NO_CATEGORY, NO_VALUE)


@dataclass(frozen=True)
class CategoriesPlan:
    """The plan of a release of values with their counts, from public facts only. Neighbours are replace-one."""

    epsilon: float
    delta: float
    rows: int  # public number of slots
    unit_rows: int  # r
    algorithm: ClassVar[str] = "categories"

    def __post_init__(self) -> None:
        """Check ε and δ, that the values fit into memory, and that some count can reach the threshold."""
        if self.rows > MOST_SLOTS:
            raise ValueError(
                f"the dataset has {self.rows} slots, above {MOST_SLOTS}, of which each may have another value; declare "
                "the categories that you know, or register a table with a part of the rows"
            )
        if self.mechanism.threshold > self.rows:
            raise ValueError(
                f"epsilon = {self.epsilon} and delta = {self.delta} show values from {self.mechanism.threshold} rows "
                f"on, more than the {self.rows} of the dataset; raise epsilon"
            )

    @cached_property
    def mechanism(self) -> DiscoveredValues:
        """The noise and the threshold."""
        return DiscoveredValues(self.epsilon, self.delta, self.unit_rows)

    @property
    def half_width(self) -> int:
        """Half the width of a count's 95 % interval."""
        return self.mechanism.noise.tail((1 - LEVEL) / 2) - 1

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""
        noise = self.mechanism.noise
        return {
            "algorithm": self.algorithm,
            **relation(self.rows, self.unit_rows),
            "sensitivity": noise.sensitivity,
            "mechanism": noise.name,
            "noise_scale": noise.noise_scale,
            "threshold": self.mechanism.threshold,
            "count_noise": self.half_width,
            "longest": text_rows.LONGEST,
            "epsilon": self.epsilon,
            "delta": self.delta,
        }


def plan_of(dataset: RegisteredDataset, epsilon: float, delta: float) -> CategoriesPlan:
    """Return the plan for a dataset, from public facts only; raise ValueError if there is none."""
    return CategoriesPlan(epsilon, delta, dataset.rows, dataset.unit_rows)


def categories(session: ServerSession, name: str, column: str, *, epsilon: float, delta: float) -> list[dict[str, Any]]:
    """Return the noisy count of each value of a column that many rows have, then those of other values and of NULL.

    Raise ValueError before anything is spent: the column, the guarantee, the dataset or the budget does not allow it.
    Raise ChargedError after the charge: the server failed, or the reading was cancelled.
    """
    dataset = datasets.load(session, name)
    rights.registered(session, name, action="list the values of its columns")
    type_name = register.category_type(session, dataset.source, column)
    plan = plan_of(dataset, epsilon, delta)
    receipt = Receipt.of(dataset, plan.explain() | {"column": column}, plan.mechanism.guarantee)
    session.check_rows(dataset)
    with charging.charged(session, dataset, receipt) as charge:
        with charging.answering(session, dataset, charge):
            counts = text_rows.counted(session, dataset, column, type_name)
            noisy = plan.mechanism.release(counts, frozenset(_WORDS))
        session.note(charge.ledger, "shown")
    listed = sorted((pair for pair in noisy.items() if pair[0] not in _WORDS), key=lambda pair: (-pair[1], pair[0]))
    pairs = [*listed, *((word, noisy[word]) for word in _WORDS)]
    return [{"value": value, "count": count, "plus_minus": plan.half_width} for value, count in pairs]
