"""The registry as the server's session writes it: what `sessions.Registry` lists."""

from dbdp.registry import datasets, releases
from dbdp.registry.spending import ledger


class ServerRegistry:
    """The functions of the registry that a session inside a backend calls, its caller having been checked."""

    check_rows = staticmethod(datasets.check_rows)
    charge = staticmethod(ledger.record_charge)
    note = staticmethod(ledger.note)
    store_release = staticmethod(releases.record)
    store_network = staticmethod(releases.record_network)
