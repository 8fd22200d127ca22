"""Receipts: the public record of what a release does and costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dbdp
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.accounting.events import Release
from dbdp.privacy.attacks import attack_powers
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.spending.odometers import Price


@dataclass(frozen=True)
class Receipt:
    """What a release does and costs, before and after its charge."""

    dataset: str  # name of the dataset
    plan: dict[str, Any]  # what is done: algorithm, neighbours, rows, epsilon, delta, and the algorithm's own details
    price: Price  # the guarantee that is charged, the budget, and the cost in it
    relation: Mapping[str, Any]  # the neighbouring relation and the unit; empty if the unit is one row
    # Other public facts: the chosen candidate, the plans of all groups, the answer time.
    notes: Mapping[str, Any] = field(default_factory=dict)
    ledger: int | None = None  # id of the charge in the ledger; None before the charge
    version: str | None = None  # version of dbdp; None before the charge

    @classmethod
    def of(cls, dataset: RegisteredDataset, plan: dict[str, Any], guarantee: Release) -> "Receipt":
        """Return the receipt of a planned release, before its charge."""
        plan = plan | _cohort(dataset, plan)
        notes = _warning(plan, guarantee.delta, dataset.budget.delta)
        return cls(dataset.name, plan, Price.of(dataset.budget, guarantee), dataset.relation, notes)

    def charged(self, ledger: int) -> "Receipt":
        """Return the receipt with the id of its charge in the ledger."""
        return replace(self, ledger=ledger, version=dbdp.__version__)

    def noting(self, notes: Mapping[str, Any]) -> "Receipt":
        """Return the receipt with further notes."""
        return replace(self, notes={**self.notes, **notes})

    def of_group(self, plan: dict[str, Any]) -> "Receipt":
        """Return the receipt of one group's model, whose capacity is its share of the dataset's."""
        shared = {"capacity": plan["rows"]} if "capacity" in self.relation else {}
        return replace(self, plan=plan, relation={**self.relation, **shared})

    def as_data(self) -> dict[str, Any]:
        """Return all entries by name, as users see them and as dbdp.model stores them."""
        paid = {} if self.ledger is None else {"ledger": self.ledger, "version": self.version}
        budget, (charge, leak) = self.price.budget, self.price.costs
        cost = {"mode": budget.mode, "order": budget.order, "charge": charge / CHARGE_UNITS, "leak": leak / LEAK_UNITS}
        attacks = {"attack_power": attack_powers(self.price.release)}
        return {"dataset": self.dataset, **self._planned, **self.relation, **cost, **attacks, **self.notes, **paid}

    @property
    def _planned(self) -> dict[str, Any]:
        """The plan; with a capacity, which is an entry of its own, without the numbers of slots."""
        hidden = {"rows", "units"} if "capacity" in self.relation else set()
        return {name: value for name, value in self.plan.items() if name not in hidden}


def _cohort(dataset: RegisteredDataset, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataset's cohort, and what it costs, as entries of a plan; empty for all rows."""
    if dataset.cohort is None:
        return {}
    cost = "costs nothing: charge and noise are those of all slots, and a row outside counts as a zero row"
    forecast = "; predicted_loss assumes that all slots are inside, as the cohort's size is private"
    return {"cohort": dict(dataset.cohort), "cohort_cost": cost + forecast * ("predicted_loss" in plan)}


def _warning(plan: Mapping[str, Any], delta: float, most: float) -> dict[str, str]:
    """Return a plan's warning with one for a δ above the dataset's; empty if that is not so.

    Such a release is sound in a mode that charges divergences: all releases together keep the dataset's δ.
    """
    if delta <= most:
        return {}
    text = f"delta = {delta:g} of this release is above the {most:g} of the dataset, which all releases together keep"
    return {"warning": "; ".join([*filter(None, [plan.get("warning")]), f"{text}; choose a smaller delta"])}
