"""The ledger: what each dataset has spent, charged before a row is read.

privacy.md §13. Two odometers for each dataset are the truth: sequences, since a
ROLLBACK does not undo `setval`. They are read and advanced together under a session-level advisory
lock, refused beyond the limit, never refunded. The ledger's rows are the readable history: each has the
odometers as they stood behind its charge, so that odometers which were wound back show; then nothing is charged.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from dbdp.datasets import Dataset
from dbdp.privacy.accounting import CHARGE_UNITS, LEAK_UNITS
from dbdp.privacy.events import Release
from dbdp.sessions import Session, public_failure

_LOCK_CLASS = 0x64626470  # "dbdp": advisory locks of ours do not meet those of others
_POLL_SECONDS = 0.005
_WAL_NUDGE_BYTES = 16384  # the WAL writer flushes completed pages only: two of them push the charge out
_LONGEST_DETAIL = 1000


@dataclass(frozen=True)
class Charge:
    """A charge that was made.

    Attributes
    ----------
    ledger : the number of its row in dbdp.ledger
    position : of the WAL, to be on disk before anything that was paid for is shown
    """

    ledger: int
    position: str


def charge(session: Session, dataset: Dataset, plan: dict[str, Any], release: Release) -> Charge:
    """Charge a release through the server's `dbdp.charge`, before a row is read."""
    described = plan | {"guarantee": release.as_data()}
    if session.in_server:  # as dbdp_owner already
        return record_charge(session, dataset, described)
    sql = (
        "select c.ledger_id as ledger, c.wal_position::pg_catalog.text as position "
        "from dbdp.charge($1, $2::pg_catalog.json) as c"
    )
    return Charge(**session.query(sql, dataset.name, json.dumps(described))[0])


def await_durable(session: Session, charged: Charge) -> None:
    """Wait until neither a crash nor a failover to a synchronous standby can undo the charge.

    A client's charge has committed, and PostgreSQL itself has waited for the standbys. In the server nothing has:
    the release may be seen in a transaction that never commits.
    """
    flushed = (
        "select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), $1::pg_catalog.pg_lsn) >= 0 as done"
    )
    _await(session, flushed, charged.position)
    if session.in_server and (standbys := _synchronous_standbys(session)):
        _await(session, _REPLICATED, charged.position, standbys)


_REPLICATED = """
select count(*) >= $2 as done
from pg_stat_get_wal_senders() -- what pg_stat_replication adds is frozen within a transaction
where sync_state in ('sync', 'quorum')
and flush_lsn >= $1::pg_lsn
"""


def _await(session: Session, condition: str, *parameters: Any) -> None:
    while not session.query(condition, *parameters)[0]["done"]:
        session.query("select pg_catalog.pg_sleep($1)", _POLL_SECONDS)


def _synchronous_standbys(session: Session) -> int:
    """Return how many standbys synchronous_standby_names asks for, 0 if it is empty (as dbdp_owner).

    Raises
    ------
    ValueError
        If it is not empty, and dbdp_owner may not see how far the standbys are.
    """
    row = session.query(
        "select current_setting('synchronous_standby_names') as names, "
        "pg_has_role(current_user, 'pg_read_all_stats', 'usage') as may"
    )[0]
    if not row["names"].strip():
        return 0
    if not row["may"]:
        raise ValueError(
            "synchronous_standby_names is set, and dbdp_owner may not see how far the standbys are, so that a failover "
            "could undo a charge; grant pg_read_all_stats to dbdp_owner"
        )
    counted = re.match(r"\s*(?:(?:first|any)\s+)?(\d+)\s*\(", row["names"], re.IGNORECASE)
    return int(counted[1]) if counted else 1


def record_charge(session: Session, dataset: Dataset, plan: dict[str, Any]) -> Charge:
    """Advance the odometers, write the ledger's row (as dbdp_owner)."""
    _synchronous_standbys(session)  # raises now what could not be awaited later
    release = Release.from_data(plan["guarantee"])
    cost = dataset.budget.cost(release)
    with _locked(session, dataset):
        after = _advanced(session, dataset, cost)
    row = session.query(
        "insert into dbdp.ledger (dataset_id, algorithm, epsilon, delta, charge, leak, plan, charge_after, leak_after) "
        "values ($1, $2, $3, $4, $5, $6, $7::json, $8, $9) returning id",
        dataset.id,
        plan["algorithm"],
        release.epsilon,
        release.delta,
        *cost,
        json.dumps(plan),
        *after,
    )[0]
    nudge = "select pg_logical_emit_message(false, 'dbdp', repeat(' ', $1::int4))::text as position"
    return Charge(row["id"], session.query(nudge, _WAL_NUDGE_BYTES)[0]["position"])


@contextmanager
def _locked(session: Session, dataset: Dataset) -> Iterator[None]:
    """Hold the dataset's session-level lock, which an error or a cancel releases too."""
    try:
        session.query(
            "select pg_advisory_lock($1::int4, $2::int4)",
            _LOCK_CLASS,
            dataset.id,
        )
        yield
    finally:
        session.query(
            "select pg_advisory_unlock($1::int4, $2::int4) "
            "from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and granted "
            "and classid::int8 = $1 and objid::int8 = $2 and objsubid = 2",
            _LOCK_CLASS,
            dataset.id,
        )


def _advanced(session: Session, dataset: Dataset, cost: tuple[int, int]) -> tuple[int, int]:
    """Advance the odometers, or refuse to; return how they stand."""
    spent = _trusted_odometers(session, dataset)
    limits = (dataset.budget.charge_limit, dataset.budget.leak_limit)
    units = (CHARGE_UNITS, LEAK_UNITS)
    for word, before, more, limit, unit in zip(("charge", "leak"), spent, cost, limits, units, strict=True):
        if before + more > limit:
            raise ValueError(
                f"the budget of dataset {dataset.name!r} does not cover this release: it would add a {word} of "
                f"{more / unit:.9g} to {before / unit:.9g} spent of {limit / unit:.9g}; ask for less "
                "(a smaller epsilon or delta: dbdp.dp_explain shows the charge before it is spent)"
            )
    after = (spent[0] + cost[0], spent[1] + cost[1])
    for word, value in zip(("charge", "leak"), after, strict=True):
        session.query(f"select setval('dbdp.{word}_{dataset.id}'::regclass, $1)", value)
    return after


def _trusted_odometers(session: Session, dataset: Dataset) -> tuple[int, int]:
    """Return the odometers, in units.

    Raises
    ------
    ValueError
        If one is missing, or shows less than the ledger says was spent: then nobody knows what is left.
    """
    remedy = "restore what is missing from a dump, or begin a new budget with dbdp.renew_budget"
    spent = odometers(session, dataset.id)
    if spent is None:
        raise ValueError(
            f"an odometer of dataset {dataset.name!r}, dbdp.charge_{dataset.id} or dbdp.leak_{dataset.id}, is missing "
            f"or not dbdp_owner's, so that nobody knows what was spent; {remedy}"
        )
    recorded = height(session, dataset.id)
    if spent[0] < recorded[0] or spent[1] < recorded[1]:
        raise ValueError(
            f"the odometers of dataset {dataset.name!r} were wound back: they show a charge of "
            f"{spent[0] / CHARGE_UNITS:.9g} and a leak of {spent[1] / LEAK_UNITS:.9g}, the ledger "
            f"{recorded[0] / CHARGE_UNITS:.9g} and {recorded[1] / LEAK_UNITS:.9g}; {remedy}"
        )
    return spent


def height(session: Session, dataset_id: int) -> tuple[int, int]:
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


def odometers(session: Session, dataset_id: int) -> tuple[int, int] | None:
    """Return the charge and the leak spent, in units; None if an odometer is missing, or another role's."""
    names = [f"dbdp.{word}_{dataset_id}" for word in ("charge", "leak")]
    if session.query(_OWN_SEQUENCE, *names)[0]["found"] < len(names):
        return None
    charge, leak = (session.query(f"select o.last_value as value from {name} as o")[0]["value"] for name in names)
    return charge, leak


# --- what became of a charge -----------------------------------------------------------------------------


@contextmanager
def failure_noted(session: Session, charged: Charge) -> Iterator[None]:
    """Note the failure of what was charged, where the row of the ledger can still be known to outlive it.

    In the server an error undoes the ledger's row with all else; in a client the charge has committed by itself.
    """
    try:
        yield
    except BaseException as error:
        if not session.in_server:
            _, reason = public_failure(session, error)
            session.recover()
            with suppress(Exception):  # the connection broke, or a rollback took the ledger's row along
                note(session, charged.ledger, "failed", detail=reason)
            session.recover()
        raise


def note(session: Session, ledger: int, outcome: str, *, model: int | None = None, detail: str | None = None) -> None:
    """Write what became of a charge: `released`, with the model, or `shown`, or `failed`."""
    if session.in_server:  # as dbdp_owner already
        sql = "insert into dbdp.outcome (ledger_id, outcome, model, detail) values ($1, $2, $3::int8, $4)"
        session.query(sql, ledger, outcome, model, detail)
    else:
        session.query("select dbdp.record_outcome($1, $2, $3)", ledger, outcome, detail)


def check_own(session: Session, ledger: Any, dataset_id: int | None = None) -> None:
    """Raise ValueError unless this role made the charge, of that dataset (in the server, as dbdp_owner)."""
    sql = "select dataset_id as dataset from dbdp.ledger where id = $1 and charged_by = session_user"
    found = session.query(sql, ledger) if type(ledger) is int and ledger < 2**63 else []
    if not found:
        raise ValueError(f"charge {ledger} is not in the ledger, or another role made it; see dbdp.history")
    if dataset_id not in (None, found[0]["dataset"]):
        raise ValueError(f"charge {ledger} is of another dataset, or of a budget that has ended; see dbdp.history")


def record_outcome(session: Session, ledger: int, outcome: str, detail: str | None) -> None:
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
