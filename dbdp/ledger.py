"""The ledger: what each dataset has spent, charged before a row is read.

privacy.md §13. Two odometers for each dataset are the truth: sequences, since a
ROLLBACK does not undo `setval`. They are read and advanced together under a lock, refused beyond the
limit, never refunded. The ledger's rows are the readable history.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from dbdp.datasets import Dataset
from dbdp.privacy.accounting import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.events import Release
from dbdp.sessions import ServerSession, Session

Result = TypeVar("Result")

_POLL_SECONDS = 0.005
_WAL_NUDGE_BYTES = 16384  # the WAL writer flushes completed pages only: two of them push the charge out


def charge(session: Session, dataset: Dataset, plan: dict[str, Any], release: Release) -> str:
    """Charge a release through the server's `dbdp.charge`, before a row is read.

    Returns the position that the WAL must be flushed to before anything that was paid for is shown.
    """
    described = plan | {"guarantee": release.as_data()}
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
    _locked(session, dataset, lambda: _advance(session, dataset, cost, leak))
    session.query(
        "insert into dbdp.ledger (dataset_id, algorithm, epsilon, delta, charge, leak, plan) "
        "values ($1, $2, $3, $4, $5, $6, $7::json)",
        dataset.id,
        plan["algorithm"],
        release.epsilon,
        release.delta,
        cost,
        leak,
        json.dumps(plan),
    )
    nudge = "select pg_logical_emit_message(false, 'dbdp', repeat(' ', $1::int4))::text as position"
    return session.query(nudge, _WAL_NUDGE_BYTES)[0]["position"]


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


def _advance(session: Session, dataset: Dataset, cost: int, leak: int) -> None:
    spent = odometers(session, dataset.id)
    limits = (dataset.budget.charge_limit, dataset.budget.leak_limit)
    units = (CHARGE_UNITS, LEAK_UNITS)
    for word, before, more, limit, unit in zip(("charge", "leak"), spent, (cost, leak), limits, units, strict=True):
        if before + more > limit:
            raise ValueError(
                f"the budget of dataset {dataset.name!r} does not cover this release: it would add a {word} of "
                f"{more / unit:.9g} to {before / unit:.9g} spent of {limit / unit:.9g}; ask for less "
                "(a smaller epsilon or delta: dbdp.dp_explain shows the charge before it is spent)"
            )
    for word, before, more in zip(("charge", "leak"), spent, (cost, leak), strict=True):
        session.query(f"select setval('dbdp.{word}_{dataset.id}'::regclass, $1)", before + more)


def odometers(session: Session, dataset_id: int) -> tuple[int, int]:
    """Return the charge and the leak spent, in units."""
    read = "select o.last_value as value from dbdp.{}_{} as o"
    charge, leak = (session.query(read.format(word, dataset_id))[0]["value"] for word in ("charge", "leak"))
    return charge, leak
