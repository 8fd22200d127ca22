"""The functions of the registry that a server's session calls; implements `sessions.Registry`."""

from dbdp.registry import datasets
from dbdp.registry.results import models
from dbdp.registry.spending import ledger


class ServerRegistry:
    """The registry for a session inside a backend; the caller's rights are checked before."""

    check_rows = staticmethod(datasets.check_rows)
    charge = staticmethod(ledger.record_charge)
    note = staticmethod(ledger.note)
    store_release = staticmethod(models.record)
    store_network = staticmethod(models.record_network)
