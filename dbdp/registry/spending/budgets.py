"""Reports what a dataset has spent, what remains, and whether the ledger and the odometers agree.

This module runs in the server, as dbdp_owner. Charges and leaks are functions of public facts and earlier releases, so
every role that may train may see them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dbdp.checks import between
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, Budget, largest_epsilon, one_release
from dbdp.privacy.accounting.events import MAX_EPSILON, MIN_EPSILON, EpsilonDeltaDpEvent
from dbdp.registry import datasets
from dbdp.registry.declarations import Declaration
from dbdp.registry.spending import ledger, odometers
from dbdp.sessions.session import Session

_TOLERANCE = 1e-9  # relative, of a recomputed limit, in addition to one unit
_TYPICAL = 10  # a release that no one describes has this part of the budget's ε and δ


@dataclass(frozen=True)
class Period:
    """A registration of a table with its budget, ledger and odometers; amounts are (charge, leak), in units."""

    id: int  # id of the registration in dbdp.dataset
    dataset: str  # name of the dataset
    is_open: bool  # whether the registration has not ended
    budget: Budget  # its budget
    releases: int  # number of its rows in the ledger
    recorded: tuple[int, int]  # sum of the amounts in the ledger
    height: tuple[int, int]  # the odometers after the highest charge in the ledger
    spent: tuple[int, int] | None  # the odometers now; None if one is missing
    parameters: int  # of the linear models of a release

    @property
    def unrecorded(self) -> int | None:
        """Charge without a row in the ledger, since a rollback, an error or a crash undid the row; None if unknown."""
        return None if self.spent is None else self.spent[0] - self.recorded[0]

    @property
    def counts(self) -> bool:
        """Whether the budget counts towards the table's total guarantee: not if it ended before anything was spent."""
        return self.is_open or self.spent != (0, 0) or self.releases > 0


_PERIODS = """
select d.id,
       d.name,
       d.dropped_at is null as is_open,
       d.epsilon, d.delta, d.mode, d.rdp_order, d.charge_limit, d.leak_limit, d.declaration::text as declaration,
       l.releases, l.charge, l.leak
from dbdp.dataset as d
left join lateral (
    select count(*) as releases, coalesce(sum(charge), 0)::int8 as charge, coalesce(sum(leak), 0)::int8 as leak
    from dbdp.ledger
    where dataset_id = d.id
) as l on true
where {condition}
order by d.id
"""
_OPEN = "d.name = $1 and d.dropped_at is null and d.id in (select o.id from dbdp.open_datasets as o)"
_OWN = "d.id in (select o.id from dbdp.own_datasets as o)"
_SAME_TABLE = """
exists (
    select
    from dbdp.dataset as named
    where named.id = $1
    and (d.source_name = named.source_name
        or d.source = named.source
        or d.source in (select relid from pg_partition_ancestors(named.source))
        or d.source in (select relid from pg_partition_tree(named.source)))
)
"""


def budget(
    session: Session, name: str, release_delta: float | None = None, release_epsilon: float | None = None
) -> dict[str, Any]:
    """Return the row of dbdp.budget for a dataset."""
    periods = list(_periods(session, _OPEN, name))
    if not periods:
        raise datasets.unknown(session, name)
    period, limits = periods[0], periods[0].budget
    together = [each for each in _periods(session, _SAME_TABLE, period.id) if each.counts]
    charged, leaked = period.spent or (None, None)
    return {
        **_left(period, _release(limits, release_epsilon, release_delta)),
        "epsilon": limits.epsilon,
        "delta": limits.delta,
        "releases": period.releases,
        "registrations": len(together),
        "total_epsilon": sum(each.budget.epsilon for each in together),
        "total_delta": min(1.0, sum(each.budget.delta for each in together)),
        "mode": limits.mode,
        "rdp_order": limits.order,
        "charge_limit": _shown(limits.charge_limit, CHARGE_UNITS),
        "charged": _shown(charged, CHARGE_UNITS),
        "leak_limit": _shown(limits.leak_limit, LEAK_UNITS),
        "leaked": _shown(leaked, LEAK_UNITS),
        "recorded": _shown(period.recorded[0], CHARGE_UNITS),
        "unrecorded": _shown(period.unrecorded, CHARGE_UNITS),
    }


def _release(budget: Budget, epsilon: float | None, delta: float | None) -> EpsilonDeltaDpEvent:
    """Return the guarantee of a release to come; raise ValueError if it is out of range."""
    own = max(_typical(budget.epsilon), MIN_EPSILON) if epsilon is None else epsilon
    between("release_epsilon", own, MIN_EPSILON, MAX_EPSILON)
    return EpsilonDeltaDpEvent(own, _release_delta(delta, budget.delta))


def _release_delta(delta: float | None, of: float) -> float:
    if delta is None:
        return _typical(of)
    if not 0 <= delta < 1:
        raise ValueError(f"release_delta = {delta} must be at least 0 and below 1")
    return delta


def _left(period: Period, each: EpsilonDeltaDpEvent) -> dict[str, Any]:
    """Return what remains: its share, how many of these releases, and the largest ε; nothing if it is unknown."""
    limits = period.budget.charge_limit, period.budget.leak_limit
    spent = limits if _finding(period) or period.spent is None else period.spent
    rest = limits[0] - spent[0], limits[1] - spent[1]
    costs = one_release(period.budget, each.epsilon, each.delta, period.parameters)
    return {
        "left_share": rest[0] / limits[0],
        "releases_left": min(left // cost for left, cost in zip(rest, costs, strict=True) if cost),
        "of_epsilon": each.epsilon,
        "of_delta": each.delta,
        "epsilon_left": largest_epsilon(period.budget, *rest, each.delta, period.parameters),
    }


def _typical(value: float) -> float:
    """Return that part of an ε or a δ, as the decimal number that is written: 0.11 of 1.1."""
    return float(Decimal(repr(value)) / _TYPICAL)


def check(session: Session) -> list[dict[str, Any]]:
    """Return the rows of dbdp.check_ledger: the result for each registration of this role."""
    return [
        {
            "dataset": period.dataset,
            "period": period.id,
            "charged": _shown(period.spent and period.spent[0], CHARGE_UNITS),
            "recorded": _shown(period.recorded[0], CHARGE_UNITS),
            "unrecorded": _shown(period.unrecorded, CHARGE_UNITS),
            "ok": not (finding := _finding(period)),
            "finding": finding or _without_role(session, period),
        }
        for period in _periods(session, _OWN)
    ]


_WITHOUT_ROLE = """
select dbdp_internal.role_name(g.identity, g.known)::text as name
from (
    select d.registered_by_id, d.registered_by from dbdp.dataset as d where d.id = $1 and d.dropped_at is null
    union
    select a.role_id, a.role from dbdp.allowance as a where a.dataset_id = $1 and a.revoked_at is null
) as g (identity, known)
where dbdp_internal.role_of(g.identity) is null
order by name
"""


def _without_role(session: Session, period: Period) -> str | None:
    """Return which rights on a period belong to no role, as text; None if all do. They do no harm."""
    listed = ", ".join(row["name"] for row in session.query(_WITHOUT_ROLE, period.id)) if period.is_open else ""
    if not listed:
        return None
    return f"rights without a role: {listed}; revoke them, or see dbdp.unconfirmed_roles after a restore"


UNKNOWN: dict[str, float | None] = dict.fromkeys(("charged", "leaked", "left_share", "epsilon_left"))
_SEEN_ALLOWANCE = """
select a.id, a.dataset_id, dbdp_internal.role_name(a.role_id, a.role)::text as role,
       a.epsilon, a.delta, a.rdp_order, a.charge_limit, a.leak_limit
from dbdp.allowance as a
where a.id = $1
and (a.role_id = any (dbdp_internal.own_roles()) or a.dataset_id in (select o.id from dbdp.own_datasets as o))
"""


def allowance_spent(session: Session, allowance: int, release_delta: float | None = None) -> dict[str, float | None]:
    """Return what an allowance has spent and has left; None unless it, or its dataset, belongs to the caller.

    `epsilon_left` is of one more release at release_delta, a tenth of the allowance's δ by default.
    """
    rows = session.query(_SEEN_ALLOWANCE, allowance)
    spent = odometers.read(session, allowance, odometers.OF_ALLOWANCE) if rows else None
    if spent is None:
        return UNKNOWN
    known = UNKNOWN | {"charged": spent[0] / CHARGE_UNITS, "leaked": spent[1] / LEAK_UNITS}
    if rows[0]["epsilon"] is None:
        return known
    (dataset,) = _periods(session, "d.id = $1", rows[0]["dataset_id"])
    account = odometers.Account.of_allowance(dataset.dataset, dataset.budget, rows[0], dataset.parameters)
    limit = rows[0]["charge_limit"]
    delta = _release_delta(release_delta, rows[0]["delta"])
    left = {"left_share": max(limit - spent[0], 0) / limit, "epsilon_left": account.epsilon_left(session, delta)}
    return known | left


UNKNOWN_SHARES: dict[str, float | None] = dict.fromkeys(("spent_share", "unrecorded_share"))
_WATCHED = "d.id = $1 and d.id in (select w.id from dbdp.watched_datasets as w)"


def dataset_spent(session: Session, dataset_id: int) -> dict[str, float | None]:
    """Return the shares of a budget that were spent, and spent without a row in the ledger.

    They are None if the caller may not see them, or if an odometer is missing.
    """
    for period in _periods(session, _WATCHED, dataset_id):
        if period.spent is not None and period.unrecorded is not None:
            unrecorded = period.unrecorded / period.budget.charge_limit
            return {"spent_share": period.budget.share(*period.spent), "unrecorded_share": unrecorded}
    return UNKNOWN_SHARES


def _periods(session: Session, condition: str, *parameters: Any) -> Iterator[Period]:
    for row in session.query(_PERIODS.format(condition=condition), *parameters):
        yield Period(
            row["id"],
            row["name"],
            row["is_open"],
            datasets.budget_of(row),
            row["releases"],
            (row["charge"], row["leak"]),
            ledger.height(session, row["id"]),
            odometers.read(session, row["id"]),
            Declaration.from_json(row["declaration"]).parameters,
        )


def _finding(period: Period) -> str | None:
    """Return what is wrong with a period, as text; None if nothing is."""
    limits = (period.budget.charge_limit, period.budget.leak_limit)
    if period.spent is None:
        return "an odometer is missing, or another role than dbdp_owner may change it; training is refused"
    if _any_above(period.height, period.spent) or _any_above(period.recorded, period.spent):
        return "the odometers show less than the ledger: they were wound back; training is refused"
    if _any_above(period.spent, limits):
        return "more was spent than the limits allow"
    if not _as_promised(period.budget):
        return "the limits are not those of the promised epsilon and delta: they were changed"
    return None


def _any_above(some: tuple[int, int], others: tuple[int, int]) -> bool:
    return some[0] > others[0] or some[1] > others[1]


def _as_promised(budget: Budget) -> bool:
    """Return whether a budget's limits are those that follow from its ε, δ, mode and order."""
    try:
        expected = Budget.of(epsilon=budget.epsilon, delta=budget.delta, mode=budget.mode, order=budget.order)
    except ValueError:
        return False
    pairs = [(budget.charge_limit, expected.charge_limit), (budget.leak_limit, expected.leak_limit)]
    return all(abs(one - other) <= 1 + _TOLERANCE * other for one, other in pairs)


def _shown(units: int | None, units_of_one: int) -> Decimal | None:
    """Return an amount in units as an exact numeric."""
    return None if units is None else Decimal(units) / units_of_one
