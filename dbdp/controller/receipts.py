"""Receipts: the public record of what a release does and costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dbdp
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.accounting.events import Release
from dbdp.registry.datasets import Dataset


@dataclass(frozen=True)
class Receipt:
    """What a release does and costs, before and after its charge.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    plan : dict[str, Any]
        What is done: algorithm, neighbours, rows, epsilon, delta, and the algorithm's own details.
    guarantee : Release
        The guarantee that is charged.
    relation : Mapping[str, Any]
        The neighbouring relation and the unit; empty if the unit is one row.
    mode : str
        How the charges of the dataset compose.
    order : float | None
        The Rényi order α of the dataset's budget; None in other modes.
    charge : float
        In the unit of the mode.
    leak : float
        Part of the budget's δ.
    notes : Mapping[str, Any]
        Other public facts: the chosen candidate, the plans of all groups, the answer time.
    ledger : int | None
        Id of the charge in the ledger; None before the charge.
    version : str | None
        Version of dbdp; None before the charge.
    """

    dataset: str
    plan: dict[str, Any]
    guarantee: Release
    relation: Mapping[str, Any]
    mode: str
    order: float | None
    charge: float
    leak: float
    notes: Mapping[str, Any] = field(default_factory=dict)
    ledger: int | None = None
    version: str | None = None

    @classmethod
    def of(cls, dataset: Dataset, plan: dict[str, Any], guarantee: Release) -> "Receipt":
        """Return the receipt of a planned release, before its charge.

        Raises
        ------
        ValueError
            If the guarantee has no cost in the budget's mode, see `Budget.cost`.
        """
        budget = dataset.budget
        charge, leak = budget.cost(guarantee)
        cost = charge / CHARGE_UNITS, leak / LEAK_UNITS
        return cls(dataset.name, plan, guarantee, dataset.relation, budget.mode, budget.order, *cost)

    def charged(self, ledger: int) -> "Receipt":
        """Return the receipt with the id of its charge in the ledger."""
        return replace(self, ledger=ledger, version=dbdp.__version__)

    def noting(self, notes: Mapping[str, Any]) -> "Receipt":
        """Return the receipt with further notes."""
        return replace(self, notes={**self.notes, **notes})

    def as_data(self) -> dict[str, Any]:
        """Return all entries by name, as users see them and as dbdp.model stores them."""
        paid = {} if self.ledger is None else {"ledger": self.ledger, "version": self.version}
        cost = {"mode": self.mode, "order": self.order, "charge": self.charge, "leak": self.leak}
        return {"dataset": self.dataset, **self.plan, **self.relation, **cost, **self.notes, **paid}
