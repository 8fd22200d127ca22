"""The cost of a plot: the charges of its trainings together, against what is left."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.database import Database

_SHORT = (("be charged", "epsilon"), ("leak (of δ)", "delta"))
_ROUNDED = 1e-12  # relative error of a sum of floats; the server compares each charge exactly


def cost(database: Database, dataset: str, requests: Sequence[Request], repeats: int) -> list[dict[str, Any]]:
    """Return the charge and the leak (of the budget's δ) of each request with its repeats; nothing is spent."""
    plans = [database.explain(dataset, request) for request in requests]
    return [
        {
            "algorithm": request.algorithm,
            "epsilon": request.epsilon,
            "trainings": repeats,
            "charge": repeats * planned["charge"],
            "leak": repeats * planned["leak"],
            "allowance_charges": {role: repeats * each for role, each in planned.get("allowance_charges", {}).items()},
        }
        for request, planned in zip(requests, plans, strict=True)
    ]


@dataclass(frozen=True)
class Bill:
    """The charge and the leak of several trainings together, and what is left of both."""

    charge: float
    charge_left: float
    leak: float
    leak_left: float

    def __str__(self) -> str:
        leak = f", and a leak (δ) of {self.leak:.6g} of {self.leak_left:.6g}" if self.leak else ""
        return f"{self.charge:.6g} of the {self.charge_left:.6g} that is left{leak}"


# The registering role spends the budget itself; another role its own allowance, else those of its groups.
_ALLOWED = """
select a.role::text as role,
       coalesce(a.charge_limit, 'infinity') - a.charged as charge,
       coalesce(a.leak_limit, 'infinity') - a.leaked as leak
from dbdp.allowances_details as a
join dbdp.dataset as d on d.name = a.dataset and d.dropped_at is null
where d.name = $1
and a.role in (
    select dbdp_internal.role_name(g.role_id, g.role)
    from dbdp.allowance as g
    where g.dataset_id = d.id and g.role_id = any (dbdp_internal.own_roles())
)
and not d.id in (select o.id from dbdp.own_datasets as o)
and (a.role = session_user or not exists (
    select from dbdp.allowances_details as own where own.dataset = $1 and own.role = session_user
))
"""


def _allowed(database: Database, dataset: str, priced: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what this role's allowances leave of charge and leak, in the units of the budget.

    Each allowance counts charges at its own order, so that it carries the part left / charge of the trainings.
    """
    rows = database.query(_ALLOWED, dataset)
    if not rows:
        return {"charge": math.inf, "leak": math.inf}
    total = sum(row["charge"] for row in priced)
    own = [sum(row["allowance_charges"].get(each["role"], row["charge"]) for row in priced) for each in rows]
    carried = sum(each["charge"] * total / charge for each, charge in zip(rows, own, strict=True))
    return {"charge": carried, "leak": sum(each["leak"] for each in rows)}


def check_cost(database: Database, dataset: str, priced: Sequence[Mapping[str, Any]]) -> Bill:
    """Return the charge of several trainings, as `cost` prices them; raise ValueError if this role has too little left.

    The odometers must show the spending. No training is started otherwise.
    """
    budget, allowed = database.budget(dataset), _allowed(database, dataset, priced)
    if budget["charged"] is None or budget["leaked"] is None:
        raise ValueError(
            f"the spending of dataset {dataset!r} is unknown: run `dbdp check-ledger`; no training was started"
        )
    parts = [
        (sum(row[part] for row in priced), min(float(budget[f"{part}_limit"] - budget[spent]), allowed[part]))
        for part, spent in (("charge", "charged"), ("leak", "leaked"))
    ]
    for (wanted, left), (verb, fewer) in zip(parts, _SHORT, strict=True):
        if wanted > left * (1 + _ROUNDED):
            raise ValueError(
                f"the training runs would {verb} {wanted:.6g}, and dataset {dataset!r} has {left:.6g} left for this "
                f"role; pass fewer or smaller values of {fewer}, or fewer repeats"
            )
    return Bill(*parts[0], *parts[1])
