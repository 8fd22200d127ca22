"""The ledger: what each dataset has spent, charged before a row is read.

privacy.md §13. Two odometers for each dataset are the truth: sequences, since a
ROLLBACK does not undo `setval`. They are read and advanced together under a session-level advisory
lock, refused beyond the limit, never refunded. The ledger's rows are the readable history.
"""

import json
from collections.abc import Callable
from typing import Any

from dbdp.datasets import Dataset
from dbdp.privacy.accounting import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.events import Release
from dbdp.sessions import Session

_LOCK_CLASS = 0x64626470  # "dbdp": advisory locks of ours do not meet those of others
_POLL_SECONDS = 0.005
_WAL_NUDGE_BYTES = 16384  # the WAL writer flushes completed pages only: two of them push the charge out


def charge(session: Session, dataset: Dataset, plan: dict[str, Any], release: Release) -> str:
    """Charge a release through the server's `dbdp.charge`, before a row is read.

    Returns the position that the WAL must be flushed to before anything that was paid for is shown.
    """
    described = plan | {"guarantee": release.as_data()}
    if session.in_server:  # as dbdp_owner already
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


def record_charge(session: Session, dataset: Dataset, plan: dict[str, Any]) -> str:
    """Advance the odometers, write the ledger's row, return the WAL position (as dbdp_owner).

    Raises
    ------
    ValueError
        Before anything is spent: the plan says no algorithm or guarantee, or the budget does not cover it.
    """
    if not isinstance(plan.get("algorithm"), str):
        raise ValueError(f"algorithm of the plan is {plan.get('algorithm')!r}; give the name of what was planned")
    release = Release.from_data(plan.get("guarantee"))
    cost, leak = dataset.budget.cost(release)
    written = json.dumps(plan)
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
        written,
    )
    nudge = "select pg_logical_emit_message(false, 'dbdp', repeat(' ', $1::int4))::text as position"
    return session.query(nudge, _WAL_NUDGE_BYTES)[0]["position"]


def _locked(session: Session, dataset: Dataset, action: Callable[[], None]) -> None:
    """Run the action under the dataset's session-level lock, which an error or a cancel releases too."""
    try:
        session.query(
            "select pg_advisory_lock($1::int4, $2::int4)",
            _LOCK_CLASS,
            dataset.id,
        )
        action()
    finally:
        session.query(
            "select pg_advisory_unlock($1::int4, $2::int4) "
            "from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and granted "
            "and classid::int8 = $1 and objid::int8 = $2 and objsubid = 2",
            _LOCK_CLASS,
            dataset.id,
        )


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
