"""The odometers: how much of a budget or of an allowance is spent, in sequences that a ROLLBACK does not undo.

Each account has two, of its charge and of its leak (privacy.md §13). The ledger reads and advances them under a lock.
"""

from dataclasses import dataclass

from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS
from dbdp.sessions.session import Session

OF_DATASET, OF_ALLOWANCE = ("charge", "leak"), ("allowance_charge", "allowance_leak")
_UNITS = (CHARGE_UNITS, LEAK_UNITS)
Amounts = tuple[int, int]  # a charge and a leak, in units
_REMEDY = "restore what is missing from a dump, or begin a new budget with dbdp.renew_budget"


@dataclass(frozen=True)
class Account:
    """An account that is charged: a dataset's budget, or an allowance of it.

    Attributes
    ----------
    title : str
        How messages name it.
    words : tuple[str, str]
        Begin the names of its two odometers.
    id : int
        Ends the names of its odometers.
    limits : Amounts | None
        Limits of the charge and the leak; None for an allowance without its own.
    recorded : Amounts
        The ledger's minimum for the odometers.
    """

    title: str
    words: tuple[str, str]
    id: int
    limits: Amounts | None
    recorded: Amounts = (0, 0)

    def after(self, session: Session, costs: Amounts) -> Amounts:
        """Return the odometers after a release of some costs.

        Raises
        ------
        ValueError
            If they would be above a limit, or the amount spent is unknown.
        """
        spent = self._spent(session)
        for word, before, more, limit, unit in zip(
            ("charge", "leak"), spent, costs, self.limits or (None, None), _UNITS, strict=True
        ):
            if limit is not None and before + more > limit:
                raise ValueError(
                    f"{self.title} does not cover this release: it would add a {word} of "
                    f"{more / unit:.9g} to {before / unit:.9g} spent of {limit / unit:.9g}; choose a smaller epsilon "
                    "or delta (dbdp.dp_explain shows the charge before it is spent)"
                )
        return spent[0] + costs[0], spent[1] + costs[1]

    def _spent(self, session: Session) -> Amounts:
        """Return the odometers; raise ValueError if one is missing, or below the ledger's minimum."""
        spent = read(session, self.id, self.words)
        if spent is None:
            names = " or ".join(f"dbdp.{word}_{self.id}" for word in self.words)
            raise ValueError(
                f"an odometer of {self.title}, {names}, is missing or does not belong to dbdp_owner, so that the "
                f"amount spent is unknown; {_REMEDY}"
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
"""


def read(session: Session, owner: int, words: tuple[str, str] = OF_DATASET) -> Amounts | None:
    """Return the charge and the leak spent, in units; None if an odometer is missing, or belongs to another role."""
    names = [f"dbdp.{word}_{owner}" for word in words]
    if session.query(_OWN_SEQUENCE, *names)[0]["number"] < len(names):
        return None
    charge, leak = (session.query(f"select o.last_value as value from {name} as o")[0]["value"] for name in names)
    return charge, leak
