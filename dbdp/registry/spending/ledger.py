"""The ledger: what each dataset has spent, charged before a row is read.

privacy.md §13. Two odometers for each dataset are the truth: sequences, since a
ROLLBACK does not undo `setval`. They are read and advanced together under a lock, refused beyond the
limit, never refunded. The ledger's rows are the readable history: each has the odometers as they stood
behind its charge, so that odometers which were wound back show; then nothing is charged.

Who trains by an allowance advances two odometers of that too, with the dataset's: all or none.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.accounting.events import Release
from dbdp.registry import datasets
from dbdp.registry.datasets import Dataset
from dbdp.sessions.server import ServerSession
from dbdp.sessions.session import Charge, Session

Result = TypeVar("Result")

_WAL_NUDGE_BYTES = 16384  # the WAL writer flushes completed pages only: two of them push the charge out
_LONGEST_DETAIL = 1000


def record_charge(session: ServerSession, dataset: Dataset, plan: dict[str, Any]) -> Charge:
    """Advance the odometers, write the ledger's row (as dbdp_owner).

    Raises
    ------
    ValueError
        Before anything is spent: the plan says no algorithm or guarantee, or the budget does not cover it.
    """
    if not isinstance(plan.get("algorithm"), str):
        raise ValueError(f"algorithm of the plan is {plan.get('algorithm')!r}; give the name of what was planned")
    session.synchronous_standbys()  # raises now what could not be awaited later
    release = Release.from_data(plan.get("guarantee"))
    costs, written = dataset.budget.cost(release), json.dumps(plan)
    after, allowance = _locked(session, dataset, lambda allowances: _advance(session, dataset, costs, allowances))
    row = session.query(
        "insert into dbdp.ledger (dataset_id, algorithm, epsilon, delta, charge, leak, allowance_id, plan, "
        "charge_after, leak_after) values ($1, $2, $3, $4, $5, $6, $7::int4, $8::json, $9, $10) returning id",
        dataset.id,
        plan["algorithm"],
        release.epsilon,
        release.delta,
        *costs,
        allowance,
        written,
        *after,
    )[0]
    position = session.query("select pg_current_wal_insert_lsn()::text as position")[0]["position"]
    session.query("select pg_logical_emit_message(false, 'dbdp', repeat(' ', $1::int4))", _WAL_NUDGE_BYTES)
    return Charge(row["id"], position)  # before the message, whose own last page may stay for long


def _locked(session: ServerSession, dataset: Dataset, action: Callable[[list["Account"]], Result]) -> Result:
    """Run the action under locks that dbdp_owner alone can take, and let them go at once.

    They are of rows, the caller's allowances and the dataset, so that no other role can hold them up, in a
    subtransaction that is undone, so that they do not last as long as the caller's transaction: the odometers are
    sequences and stay. A row that was changed since an old snapshot (a right revoked or lowered, a dataset dropped,
    renewed or redeclared) cannot be locked by it: PostgreSQL's 40001, before anything is spent.
    """
    with session.undone():
        allowances = _allowances(session, dataset)
        sql = "select from dbdp.dataset where id = $1 and dropped_at is null for no key update"
        if not session.query(sql, dataset.id):
            raise ValueError(f"dataset {dataset.name!r} was dropped meanwhile; see dbdp.datasets")
        return action(allowances)


# --- odometers ------------------------------------------------------------------------------------------

OF_DATASET, OF_ALLOWANCE = ("charge", "leak"), ("allowance_charge", "allowance_leak")
_UNITS = (CHARGE_UNITS, LEAK_UNITS)
Amounts = tuple[int, int]  # a charge and a leak, in units
_NOBODY_KNOWS = "restore what is missing from a dump, or begin a new budget with dbdp.renew_budget"


@dataclass(frozen=True)
class Account:
    """Something that is spent: a dataset's budget, or an allowance of it.

    Attributes
    ----------
    title : str
        In words.
    words, id : tuple[str, str] or int
        Name its odometers.
    limits : Amounts | None
        None for an allowance that has none of its own.
    recorded : Amounts
        What the odometers show at least, by the ledger.
    """

    title: str
    words: tuple[str, str]
    id: int
    limits: Amounts | None
    recorded: Amounts = (0, 0)

    def after(self, session: Session, costs: Amounts) -> Amounts:
        """Return what would be spent after a release.

        Raises
        ------
        ValueError
            If that is beyond a limit, or nobody knows what was spent.
        """
        spent = self._spent(session)
        for word, before, more, limit, unit in zip(
            ("charge", "leak"), spent, costs, self.limits or (None, None), _UNITS, strict=True
        ):
            if limit is not None and before + more > limit:
                raise ValueError(
                    f"{self.title} does not cover this release: it would add a {word} of "
                    f"{more / unit:.9g} to {before / unit:.9g} spent of {limit / unit:.9g}; ask for less "
                    "(a smaller epsilon or delta: dbdp.dp_explain shows the charge before it is spent)"
                )
        return spent[0] + costs[0], spent[1] + costs[1]

    def _spent(self, session: Session) -> Amounts:
        """Return the odometers; raise ValueError if one is missing, or shows less than the ledger."""
        spent = odometers(session, self.id, self.words)
        if spent is None:
            names = " or ".join(f"dbdp.{word}_{self.id}" for word in self.words)
            raise ValueError(
                f"an odometer of {self.title}, {names}, is missing or not dbdp_owner's, so that nobody knows what was "
                f"spent; {_NOBODY_KNOWS}"
            )
        if spent[0] < self.recorded[0] or spent[1] < self.recorded[1]:
            raise ValueError(
                f"the odometers of {self.title} were wound back: they show a charge of "
                f"{spent[0] / CHARGE_UNITS:.9g} and a leak of {spent[1] / LEAK_UNITS:.9g}, the ledger "
                f"{self.recorded[0] / CHARGE_UNITS:.9g} and {self.recorded[1] / LEAK_UNITS:.9g}; {_NOBODY_KNOWS}"
            )
        return spent

    def set(self, session: Session, spent: Amounts) -> None:
        """Set the odometers."""
        for word, value in zip(self.words, spent, strict=True):
            session.query(f"select setval('dbdp.{word}_{self.id}'::regclass, $1)", value)


def _advance(
    session: Session, dataset: Dataset, costs: Amounts, allowances: list[Account]
) -> tuple[Amounts, int | None]:
    """Advance the dataset's odometers and those of the allowance that is used, all or none.

    Returns how the dataset's stand, and the allowance's id.
    """
    limits = (dataset.budget.charge_limit, dataset.budget.leak_limit)
    recorded = height(session, dataset.id)
    budget = Account(f"the budget of dataset {dataset.name!r}", OF_DATASET, dataset.id, limits, recorded)
    spent = [(budget, budget.after(session, costs))]
    if allowances:
        spent.append(_first_that_covers(session, allowances, costs))
    for account, total in spent:
        account.set(session, total)
    return spent[0][1], spent[1][0].id if allowances else None


_ALLOWANCES = """
select a.id, a.role::text as role, a.role = session_user as is_personal, a.charge_limit, a.leak_limit
from dbdp.allowance as a
where a.dataset_id = $1
and a.revoked_at is null
and a.role = any (dbdp.own_roles())
order by a.role
for no key update
"""


def _allowances(session: Session, dataset: Dataset) -> list[Account]:
    """Return, locked, what the caller may spend by: its own allowance, else those of its roles, by name.

    None are asked of the role that registered the dataset.
    """
    if session.query("select $1 in (select o.id from dbdp.own_datasets as o) as own", dataset.id)[0]["own"]:
        return []
    rows = session.query(_ALLOWANCES, dataset.id)
    if not rows:
        raise datasets.unknown(dataset.name)
    return [
        Account(
            f"the allowance of role {row['role']!r} on dataset {dataset.name!r}",
            OF_ALLOWANCE,
            row["id"],
            None if row["charge_limit"] is None else (row["charge_limit"], row["leak_limit"]),
        )
        for row in [row for row in rows if row["is_personal"]] or rows
    ]


def _first_that_covers(session: Session, allowances: list[Account], costs: Amounts) -> tuple[Account, Amounts]:
    """Return the first account that covers a release, and what it would have spent; raise what the first one says."""
    refusals = []
    for account in allowances:
        try:
            return account, account.after(session, costs)
        except ValueError as refusal:
            refusals.append(refusal)
    raise refusals[0]


def make_odometers(session: Session, words: tuple[str, str], owner: int) -> None:
    """Make the two odometers of a dataset or an allowance."""
    for word in words:
        session.query(f"create sequence dbdp.{word}_{owner} minvalue 0 start 0 owned by dbdp.odometers.id")


def height(session: Session, dataset_id: int) -> Amounts:
    """Return the odometers behind the highest charge that the ledger has, in units; an index has them."""
    sql = "select charge_after, leak_after from dbdp.ledger where dataset_id = $1 order by charge_after desc limit 1"
    found = session.query(sql, dataset_id)
    return (found[0]["charge_after"], found[0]["leak_after"]) if found else (0, 0)


_OWN_SEQUENCE = """
select count(*) as found
from pg_class as c
where c.oid in (to_regclass($1), to_regclass($2))
and c.relkind = 'S'
and pg_has_role(current_user, c.relowner, 'usage')
"""


def odometers(session: Session, owner: int, words: tuple[str, str] = OF_DATASET) -> Amounts | None:
    """Return the charge and the leak spent, in units; None if an odometer is missing, or another role's."""
    names = [f"dbdp.{word}_{owner}" for word in words]
    if session.query(_OWN_SEQUENCE, *names)[0]["found"] < len(names):
        return None
    charge, leak = (session.query(f"select o.last_value as value from {name} as o")[0]["value"] for name in names)
    return charge, leak


# --- what became of a charge -----------------------------------------------------------------------------


def note(
    session: ServerSession, ledger: int, outcome: str, *, model: int | None = None, detail: str | None = None
) -> None:
    """Write what became of a charge: `released`, with the model, or `shown`, or `failed`."""
    sql = "insert into dbdp.outcome (ledger_id, outcome, model, detail) values ($1, $2, $3::int8, $4)"
    session.query(sql, ledger, outcome, model, detail)


def check_own(session: Session, ledger: Any, dataset_id: int | None = None) -> None:
    """Raise ValueError unless this role made the charge, of that dataset (in the server, as dbdp_owner)."""
    sql = "select dataset_id as dataset from dbdp.ledger where id = $1 and charged_by = session_user"
    found = session.query(sql, ledger) if type(ledger) is int and ledger < 2**63 else []
    if not found:
        raise ValueError(f"charge {ledger} is not in the ledger, or another role made it; see dbdp.history")
    if dataset_id not in (None, found[0]["dataset"]):
        raise ValueError(f"charge {ledger} is of another dataset, or of a budget that has ended; see dbdp.history")


def record_outcome(session: ServerSession, ledger: int, outcome: str, detail: str | None) -> None:
    """Write what became of a client's charge, once (in the server, as dbdp_owner).

    Raises
    ------
    ValueError
        If this role did not make the charge, or its outcome is known, or is none that a client may say.
    """
    if outcome not in ("failed", "shown"):
        raise ValueError(f"outcome {outcome!r} is not for a client to say; it is failed or shown")
    check_own(session, ledger)
    if session.query("select from dbdp.outcome where ledger_id = $1", ledger):
        raise ValueError(f"the outcome of charge {ledger} is known already; see dbdp.history")
    note(session, ledger, outcome, detail=detail and detail[:_LONGEST_DETAIL])
