"""The ledger: what each dataset has spent, charged before a row is read.

privacy.md §13. Two odometers for each dataset are the truth: sequences, since a
ROLLBACK does not undo `setval`. They are read and advanced together under a lock, refused beyond the
limit, never refunded. The ledger's rows are the readable history.

Who trains by an allowance advances two odometers of that too, with the dataset's: all or none.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dbdp import datasets
from dbdp.datasets import Dataset
from dbdp.privacy.accounting import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.events import Release
from dbdp.sessions import ServerSession, Session

_POLL_SECONDS = 0.005
_WAL_NUDGE_BYTES = 16384  # the WAL writer flushes completed pages only: two of them push the charge out


def charge(session: Session, dataset: Dataset, plan: dict[str, Any], release: Release) -> str:
    """Charge a release through the server's `dbdp.charge`, before a row is read.

    Returns the position that the WAL must be flushed to before anything that was paid for is shown.
    """
    described = plan | dataset.relation | {"guarantee": release.as_data()}
    if isinstance(session, ServerSession):  # as dbdp_owner already
        return record_charge(session, dataset, described)
    sql = "select dbdp.charge($1, $2::pg_catalog.json)::pg_catalog.text as position"
    return session.query(sql, dataset.name, json.dumps(described))[0]["position"]


def await_durable(session: Session, position: str) -> None:
    """Wait until a crash cannot undo the charge at that WAL position."""
    flushed = (
        "select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), $1::pg_catalog.pg_lsn) >= 0 as done"
    )
    while not session.query(flushed, position)[0]["done"]:
        session.query("select pg_catalog.pg_sleep($1)", _POLL_SECONDS)


def record_charge(session: ServerSession, dataset: Dataset, plan: dict[str, Any]) -> str:
    """Advance the odometers, write the ledger's row, return the WAL position (as dbdp_owner).

    Raises
    ------
    ValueError
        Before anything is spent: the plan says not what is done, or the budget does not cover it.
    """
    if not isinstance(plan, dict) or not isinstance(plan.get("algorithm"), str) or "guarantee" not in plan:
        raise ValueError('the plan of a charge must be an object with the name of an "algorithm" and a "guarantee"')
    release = Release.from_data(plan["guarantee"])
    cost, leak = dataset.budget.cost(release)
    allowance = _locked(session, dataset, lambda: _advance(session, dataset, (cost, leak)))
    session.query(
        "insert into dbdp.ledger (dataset_id, algorithm, epsilon, delta, charge, leak, allowance_id, plan) "
        "values ($1, $2, $3, $4, $5, $6, $7::int4, $8::json)",
        dataset.id,
        plan["algorithm"],
        release.epsilon,
        release.delta,
        cost,
        leak,
        allowance,
        json.dumps(plan),
    )
    position = session.query("select pg_current_wal_insert_lsn()::text as position")[0]["position"]
    session.query("select pg_logical_emit_message(false, 'dbdp', repeat(' ', $1::int4))", _WAL_NUDGE_BYTES)
    return position  # before the message, whose own last page may stay for long


Result = TypeVar("Result")


def _locked(session: ServerSession, dataset: Dataset, action: Callable[[], Result]) -> Result:
    """Run the action under a lock of the dataset that dbdp_owner alone can take, and let it go at once.

    It is a row's, so that no other role can hold it up, in a subtransaction that is undone, so that it does
    not last as long as the caller's transaction: the odometers are sequences and stay.
    """
    with session.undone():
        sql = "select from dbdp.dataset where id = $1 and dropped_at is null for no key update"
        if not session.query(sql, dataset.id):
            raise ValueError(f"dataset {dataset.name!r} was dropped meanwhile; see dbdp.datasets")
        return action()


# --- odometers ------------------------------------------------------------------------------------------

OF_DATASET, OF_ALLOWANCE = ("charge", "leak"), ("allowance_charge", "allowance_leak")
_UNITS = (CHARGE_UNITS, LEAK_UNITS)
Amounts = tuple[int, int]  # a charge and a leak, in units


@dataclass(frozen=True)
class Account:
    """Something that is spent: a dataset's budget, or an allowance of it.

    Attributes
    ----------
    title : in words
    words, id : name its odometers
    limits : None for an allowance that has none of its own
    """

    title: str
    words: tuple[str, str]
    id: int
    limits: Amounts | None

    def after(self, session: Session, costs: Amounts) -> Amounts:
        """Return what would be spent after a release.

        Raises
        ------
        ValueError
            If that is beyond a limit.
        """
        spent = odometers(session, self.id, self.words)
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

    def set(self, session: Session, spent: Amounts) -> None:
        """Set the odometers."""
        for word, value in zip(self.words, spent, strict=True):
            session.query(f"select setval('dbdp.{word}_{self.id}'::regclass, $1)", value)


def _advance(session: Session, dataset: Dataset, costs: Amounts) -> int | None:
    """Advance the dataset's odometers and those of the allowance that is used, and return its id; all or none."""
    limits = (dataset.budget.charge_limit, dataset.budget.leak_limit)
    budget = Account(f"the budget of dataset {dataset.name!r}", OF_DATASET, dataset.id, limits)
    spent = [(budget, budget.after(session, costs))]
    if allowances := _allowances(session, dataset):
        spent.append(_first_that_covers(session, allowances, costs))
    for account, total in spent:
        account.set(session, total)
    return spent[1][0].id if allowances else None


_ALLOWANCES = """
select a.id, a.role::text as role, a.role = session_user as is_personal, a.charge_limit, a.leak_limit
from dbdp.allowance as a
where a.dataset_id = $1
and a.revoked_at is null
and a.role = any (dbdp.own_roles())
order by a.role
"""


def _allowances(session: Session, dataset: Dataset) -> list[Account]:
    """Return what the caller may spend by: its own allowance, else those of roles that it is a member of, by name.

    None are asked of the role that registered the dataset.
    """
    if session.query("select $1 = any (dbdp.own_datasets()) as own", dataset.id)[0]["own"]:
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


def odometers(session: Session, owner: int, words: tuple[str, str] = OF_DATASET) -> Amounts:
    """Return the charge and the leak spent, in units."""
    read = "select o.last_value as value from dbdp.{}_{} as o"
    charge, leak = (session.query(read.format(word, owner))[0]["value"] for word in words)
    return charge, leak
