"""Receipts: what a release does and what it costs its dataset."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dbdp
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.accounting.events import Release
from dbdp.registry.datasets import Dataset


@dataclass(frozen=True)
class Receipt:
    """What a release does and costs, as it is planned, and once it is charged.

    Attributes
    ----------
    dataset : str
        Its name.
    plan : dict[str, Any]
        What is done, by name: algorithm, neighbours, rows, epsilon, delta, and the algorithm's own details.
    guarantee : Release
        What is charged.
    relation : Mapping[str, Any]
        What neighbours are, and the unit, where that is not one row.
    mode, order : str or float | None
        How the charges of the dataset add up, and its Rényi order α, None in other modes.
    charge : float
        In the unit of the mode.
    leak : float
        Of the budget's δ.
    notes : Mapping[str, Any]
        What else is public: which candidate was chosen, the plans of all groups, when the server answers.
    ledger, version : int | None or str | None
        Entry of the ledger that pays, and the version of dbdp; None before the charge.
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
        """Return the receipt with the entry of the ledger that pays for the release."""
        return replace(self, ledger=ledger, version=dbdp.__version__)

    def noting(self, notes: Mapping[str, Any]) -> "Receipt":
        """Return the receipt with further notes."""
        return replace(self, notes={**self.notes, **notes})

    def as_data(self) -> dict[str, Any]:
        """Return all entries by name, as users see them and as dbdp.model stores them."""
        paid = {} if self.ledger is None else {"ledger": self.ledger, "version": self.version}
        cost = {"mode": self.mode, "order": self.order, "charge": self.charge, "leak": self.leak}
        return {"dataset": self.dataset, **self.plan, **self.relation, **cost, **self.notes, **paid}
