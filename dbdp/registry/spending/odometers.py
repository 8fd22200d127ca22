"""The odometers: how much of a budget or of an allowance is spent, in sequences that a ROLLBACK does not undo.

Each account has two, of its charge and of its leak (privacy.md §13). The ledger reads and advances them under a lock.
"""

import math
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, Budget, largest_epsilon
from dbdp.privacy.accounting.events import Release
from dbdp.sessions.session import Row, Session

OF_DATASET, OF_ALLOWANCE = ("charge", "leak"), ("allowance_charge", "allowance_leak")
Amounts = tuple[int, int]  # a charge and a leak, in units
_DOWN, _UP = Context(prec=3, rounding=ROUND_FLOOR), Context(prec=3, rounding=ROUND_CEILING)
_REMEDY = "restore what is missing from a dump, or begin a new budget with dbdp.renew_budget"


class NotCoveredError(ValueError):
    """A release does not fit into an account."""


@dataclass(frozen=True)
class Price:
    """A release and its charge and leak in a dataset's budget, computed once."""

    release: Release
    budget: Budget
    costs: Amounts

    @classmethod
    def of(cls, budget: Budget, release: Release) -> "Price":
        """Return the price of a release."""
        return cls(release, budget, budget.cost(release))

    def at(self, budget: Budget) -> Amounts:
        """Return the costs in a budget or an allowance, which may have another order than the dataset."""
        same = all(getattr(budget, name) == getattr(self.budget, name) for name in ("mode", "order", "epsilon"))
        return self.costs if same else budget.cost(self.release)


@dataclass(frozen=True)
class Account:
    """An account that is charged: a dataset's budget, or an allowance of it."""

    title: str  # how messages name it
    words: tuple[str, str]  # begin the names of its two odometers
    id: int  # ends the names of its odometers
    budget: Budget  # what a release costs here, and the limits
    # The ε of all its releases together; None for an allowance without an ε, whose limits do not bind.
    epsilon: float | None
    recorded: Amounts = (0, 0)  # the ledger's minimum for the odometers
    # Of a release with noise at the end, on which the cost of a pure one depends; None if they are not known.
    parameters: int | None = None

    @classmethod
    def of_allowance(cls, dataset: str, budget: Budget, row: Row, parameters: int) -> "Account":
        """Return the account of a row of dbdp.allowance: the dataset's budget, at the allowance's order and limits.

        Leaks are counted at the dataset's ε, so that they stay enough if the allowance's ε is raised.
        """
        own = budget if row["rdp_order"] is None else replace(budget, order=row["rdp_order"])
        if row["epsilon"] is not None:
            own = replace(own, charge_limit=row["charge_limit"], leak_limit=row["leak_limit"])
        title = f"the allowance of role {row['role']!r} on dataset {dataset!r}"
        return cls(title, OF_ALLOWANCE, row["id"], own, row["epsilon"], parameters=parameters)

    def after(self, session: Session, price: Price) -> Amounts:
        """Return the odometers after a release.

        Raise NotCoveredError if they would be above a limit. Raise ValueError if the amount spent is unknown.
        """
        spent, costs = self._spent(session), price.at(self.budget)
        limits = self.budget.charge_limit, self.budget.leak_limit
        for before, cost, limit, of in zip(spent, costs, limits, ("", " of its delta"), strict=True):
            if self.epsilon is not None and before + cost > limit:
                needed = f"a delta of {cost / LEAK_UNITS:g}, and its delta is 0"
                if limit:
                    left = _percent(max(limit - before, 0), limit, _DOWN)
                    needed = f"{_percent(cost, limit, _UP)}{of}, and {left} is left"
                raise NotCoveredError(f"{self.title} does not cover this release: it needs {needed}")
        return spent[0] + costs[0], spent[1] + costs[1]

    def epsilon_left(self, session: Session, delta: float) -> float:
        """Return the largest ε of one more release at δ, with noise at the end; infinite without a limit."""
        if self.epsilon is None:
            return math.inf
        spent, own = self._spent(session), replace(self.budget, epsilon=self.epsilon)
        rest = own.charge_limit - spent[0], own.leak_limit - spent[1]
        return largest_epsilon(own, *rest, delta, self.parameters)

    def _spent(self, session: Session) -> Amounts:
        """Return the odometers; raise ValueError if one is missing, or below the ledger's minimum."""
        spent = read(session, self.id, self.words)
        if spent is None:
            names = " or ".join(f"dbdp.{word}_{self.id}" for word in self.words)
            raise ValueError(
                f"an odometer of {self.title}, {names}, is missing or does not belong to dbdp_owner only, so that the "
                f"amount spent is unknown; after a restore without owners give both back by alter sequence … owned by "
                f"none, and owner to dbdp_owner; revoke the rights on them that `dbdp doctor` lists; else {_REMEDY}"
            )
        if spent[0] < self.recorded[0] or spent[1] < self.recorded[1]:
            raise ValueError(
                f"the odometers of {self.title} were wound back: they show a charge of "
                f"{spent[0] / CHARGE_UNITS:.9g} and a leak of {spent[1] / LEAK_UNITS:.9g}, the ledger "
                f"{self.recorded[0] / CHARGE_UNITS:.9g} and {self.recorded[1] / LEAK_UNITS:.9g}; {_REMEDY}"
            )
        return spent

    def set(self, session: Session, spent: Amounts) -> None:
        """Set the odometers."""
        for word, value in zip(self.words, spent, strict=True):
            session.query(f"select setval('dbdp.{word}_{self.id}'::regclass, $1)", value)


def _percent(part: int, limit: int, rounding: Context) -> str:
    """Format a part of a limit as a percentage of three digits."""
    return f"{rounding.divide(Decimal(100 * part), Decimal(limit)).normalize():f} %"


def create(session: Session, words: tuple[str, str], owner: int) -> None:
    """Create the two odometers of a dataset or an allowance."""
    for word in words:
        session.query(f"create sequence dbdp.{word}_{owner} minvalue 0 start 0 owned by dbdp.odometers.id")


_OWN_SEQUENCE = """
select count(*) as number
from pg_class as c
where c.oid in (to_regclass($1), to_regclass($2))
and c.relkind = 'S'
and pg_has_role(current_user, c.relowner, 'usage')
and not exists (
    select
    from aclexplode(c.relacl) as a
    where a.grantee <> c.relowner
    and a.privilege_type in ('UPDATE', 'USAGE')
)
"""


def read(session: Session, owner: int, words: tuple[str, str] = OF_DATASET) -> Amounts | None:
    """Return the charge and the leak spent, in units; None if an odometer is missing, or not dbdp_owner's alone."""
    names = [f"dbdp.{word}_{owner}" for word in words]
    if session.query(_OWN_SEQUENCE, *names)[0]["number"] < len(names):
        return None
    charge, leak = (session.query(f"select o.last_value as value from {name} as o")[0]["value"] for name in names)
    return charge, leak
