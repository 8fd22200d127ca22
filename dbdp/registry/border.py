"""The border in the server: the session's functions that charge, check and store, where the registry is at hand.

The caller's rights are checked before; those that write run as dbdp_owner.
"""

from typing import Any

from dbdp.registry import datasets
from dbdp.registry.results import models
from dbdp.registry.spending import ledger
from dbdp.registry.spending.odometers import Price
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Json, LedgerCharge


class ServerSession(SpiSession):
    """The session inside a backend; a dataset is a `datasets.RegisteredDataset`."""

    def check_rows(self, dataset: Any) -> None:
        """Count the rows, or the units, and compare the number with the registered one."""
        datasets.check_rows(self, dataset)

    def charge(self, dataset: Any, plan: Json, price: Price | None = None) -> LedgerCharge:
        """Advance the odometers and write the ledger's row."""
        return ledger.record_charge(self, dataset, plan, price)

    def note(self, ledger_id: int, outcome: str, detail: str | None = None) -> None:
        """Write an outcome, but not a failure: the error rolls back the ledger's row too."""
        if outcome != "failed":
            ledger.note(self, ledger_id, outcome)

    def store_release(self, dataset: Any, coefficients: list[Any], intercepts: list[float], receipt: Json) -> Json:
        """Write linear models, and record them as the outcome of their charge."""
        return models.record(self, dataset, coefficients, intercepts, receipt)

    def store_network(self, dataset: Any, network: Json, parameters: list[float], receipt: Json) -> Json:
        """Write a network, and record it as the outcome of its charge."""
        return models.record_network(self, dataset, network, parameters, receipt)
