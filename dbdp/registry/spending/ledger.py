"""The ledger: what each dataset has spent, charged before a row is read (privacy.md §13).

Two odometers of each dataset (`odometers`) are authoritative. They are read and advanced together under a lock; a
charge beyond a limit is refused, and none is refunded. The ledger's rows are the readable history. Each records the
odometers after its charge, so that odometers which were set back are detected; then every charge is refused.

A charge of a role that trains by an allowance also advances that allowance's two odometers: all four or none.
"""

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from dbdp.privacy.accounting.budget import rounded_down
from dbdp.privacy.accounting.events import Release
from dbdp.registry import datasets
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.spending import identities, names, rights
from dbdp.registry.spending.odometers import OF_ALLOWANCE, OF_DATASET, Account, Amounts, NotCoveredError, Price
from dbdp.sessions.inside import waiting
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import LedgerCharge, Session

Result = TypeVar("Result")
Spent = list[tuple[Account, Amounts]]  # the odometers after a charge: of the dataset, and of the allowance that is used

_WAL_NUDGE_BYTES = 16384  # two pages: the WAL writer flushes completed pages only
_LONGEST_DETAIL = 1000
_CHANNEL, _ALARM_SHARE = "dbdp_budget", 0.8


def record_charge(
    session: SpiSession, dataset: RegisteredDataset, plan: dict[str, Any], price: Price | None = None
) -> LedgerCharge:
    """Advance the odometers and write the ledger's row (as dbdp_owner); without a price its cost is computed here.

    Raise ValueError before anything is spent: the plan has no algorithm or guarantee, the caller may not use the name,
    or the budget does not cover it.
    """
    if not isinstance(plan.get("algorithm"), str):
        raise ValueError(f"algorithm of the plan is {plan.get('algorithm')!r}; give the algorithm's name")
    identities.check_confirmed(session)
    waiting.synchronous_standbys(session)  # raises before the charge if the standbys could not be awaited after it
    if price is None:
        price = Price.of(dataset.budget, Release.from_data(plan.get("guarantee")))
    price.release.event.check_parts()
    release, plan_json = price.release, json.dumps(plan)
    with session.undone():
        _lock_releases(session, plan.get("summary"), plan.get("model"))
    version = names.reserve(session, dataset, plan.get("name"))
    spent = _locked(session, dataset, lambda allowances: _advance(session, dataset, price, allowances))
    _notify(session, dataset.id, spent)
    (_, after), *of_allowance = spent
    row = session.query(
        "insert into dbdp.ledger (dataset_id, algorithm, epsilon, delta, charge, leak, allowance_id, plan, "
        "charge_after, leak_after, model_name, model_version) "
        "values ($1, $2, $3, $4, $5, $6, $7::int4, $8::json, $9, $10, $11, $12::int4) returning id",
        dataset.id,
        plan["algorithm"],
        release.epsilon,
        release.delta,
        *price.at(dataset.budget),
        of_allowance[0][0].id if of_allowance else None,
        plan_json,
        *after,
        *version,
    )[0]
    position = session.query("select pg_current_wal_insert_lsn()::text as position")[0]["position"]
    session.query("select pg_logical_emit_message(false, 'dbdp', repeat(' ', $1::int4))", _WAL_NUDGE_BYTES)
    return LedgerCharge(row["id"], position)  # of before the message, whose own last page may not be flushed for long


def _lock_releases(session: SpiSession, *releases: Any) -> None:
    """Lock the caller's grants of a summary or model, if it is the number of one: a client's plan may have anything."""
    for release in releases:
        if type(release) is int and 0 <= release < 2**63:
            rights.lock_predictions(session, release)


def _locked(session: SpiSession, dataset: RegisteredDataset, action: Callable[[list[Account]], Result]) -> Result:
    """Run the action under locks that dbdp_owner alone can take, and release them directly afterwards.

    The locks are on the rows of the caller's allowances and of the dataset, so that no other role can block them. They
    are taken in a subtransaction that is rolled back, so that they end before the caller's transaction; the odometers
    are sequences and stay. A row that was changed since an old snapshot (a right revoked or lowered, a dataset dropped,
    renewed or redeclared) cannot be locked: PostgreSQL raises 40001, before anything is spent.
    """
    with session.undone():
        allowances = _allowances(session, dataset)
        sql = "select from dbdp.dataset where id = $1 and dropped_at is null for no key update"
        if not session.query(sql, dataset.id):
            raise ValueError(f"dataset {dataset.name!r} was dropped meanwhile; see dbdp.datasets")
        return action(allowances)


def _advance(session: Session, dataset: RegisteredDataset, price: Price, allowances: list[Account]) -> Spent:
    """Advance the dataset's odometers and those of the allowance that is used, all or none, and return them."""
    title = f"the budget of dataset {dataset.name!r}"
    recorded = height(session, dataset.id)
    parameters = dataset.declaration.parameters
    budget = Account(title, OF_DATASET, dataset.id, dataset.budget, dataset.budget.epsilon, recorded, parameters)
    try:
        spent = [(budget, budget.after(session, price))]
        if allowances:
            spent.append(_first_that_covers(session, allowances, price))
    except NotCoveredError as refusal:
        raise ValueError(f"{refusal}; {_remedy(session, budget, allowances, price.release.delta)}") from None
    for account, total in spent:
        account.set(session, total)
    return spent


def _notify(session: Session, dataset_id: int, spent: Spent) -> None:
    """Notify of each account of which 80 % or more is spent now; every role may listen, so numbers alone name it.

    PostgreSQL sends a notification when the transaction commits. One that is rolled back is lost, though the charge
    stays; so each charge above the limit notifies, and not only the one that crosses it.
    """
    for account, total in spent:
        if account.epsilon is not None and account.budget.share(*total) >= _ALARM_SHARE:
            allowance = account.id if account.words == OF_ALLOWANCE else None
            payload = {"period": dataset_id, "allowance": allowance, "threshold": _ALARM_SHARE}
            session.query("select pg_notify($1, $2)", _CHANNEL, json.dumps(payload))


_ALLOWANCES = """
select a.id,
       dbdp_internal.role_name(a.role_id, a.role)::text as role,
       a.role_id = dbdp_internal.identity_of(session_user) as is_personal,
       a.epsilon, a.rdp_order, a.charge_limit, a.leak_limit
from dbdp.allowance as a
where a.dataset_id = $1
and a.revoked_at is null
and a.role_id = any (dbdp_internal.own_roles())
order by role
for no key update
"""

# An old snapshot does not show an allowance of the caller's own that is newer, but PostgreSQL raises 40001 where a row
# of the same key cannot be inserted for it.
_NO_NEWER = """
insert into dbdp.allowance (dataset_id, role)
select $1, session_user
where current_setting('transaction_isolation') in ('repeatable read', 'serializable')
on conflict do nothing
"""


def _allowances(session: Session, dataset: RegisteredDataset) -> list[Account]:
    """Lock and return the allowances of the caller: its own, else those of its roles, ordered by name.

    The role that registered the dataset needs none. Raise ValueError if the caller needs one and has none. The caller
    rolls back what this does.
    """
    if session.query("select $1 in (select o.id from dbdp.own_datasets as o) as own", dataset.id)[0]["own"]:
        return []
    rows = session.query(_ALLOWANCES, dataset.id)
    if not rows:
        raise datasets.unknown(session, dataset.name)
    personal = [row for row in rows if row["is_personal"]]
    if not personal:
        session.query(_NO_NEWER, dataset.id)
    return [
        Account.of_allowance(dataset.name, dataset.budget, row, dataset.declaration.parameters)
        for row in personal or rows
    ]


def _first_that_covers(session: Session, allowances: list[Account], price: Price) -> tuple[Account, Amounts]:
    """Return the first account that covers a release, and its odometers after it; else raise the first one's error."""
    refusals = []
    for account in allowances:
        try:
            return account, account.after(session, price)
        except ValueError as refusal:
            refusals.append(refusal)
    raise refusals[0]


def _remedy(session: Session, budget: Account, allowances: list[Account], delta: float) -> str:
    """Return the largest ε, up to theirs, that fits the budget and one of the allowances: at δ, else at 0."""
    for at in sorted({delta, 0.0}, reverse=True):
        within = max((each.epsilon_left(session, at) for each in allowances), default=math.inf)
        largest = min(budget.epsilon_left(session, at), within)
        if largest > 0:
            views = "dbdp.allowances and dbdp.budget show" if allowances else "dbdp.budget shows"
            fits = f"an epsilon up to {rounded_down(largest):g} fits at delta = {at:g}, with noise at the end"
            return f"{fits} ({views} what is left)"
    return "nothing more fits: its owner may grant more, or renew the budget"


def height(session: Session, dataset_id: int) -> Amounts:
    """Return the odometers after the highest charge in the ledger, in units; an index serves the query."""
    sql = "select charge_after, leak_after from dbdp.ledger where dataset_id = $1 order by charge_after desc limit 1"
    rows = session.query(sql, dataset_id)
    return (rows[0]["charge_after"], rows[0]["leak_after"]) if rows else (0, 0)


def note(
    session: SpiSession, ledger: int, outcome: str, *, model: int | None = None, detail: str | None = None
) -> None:
    """Write the outcome of a charge: `released`, with the model, or `shown`, or `failed`."""
    sql = "insert into dbdp.outcome (ledger_id, outcome, model, detail) values ($1, $2, $3::int8, $4)"
    session.query(sql, ledger, outcome, model, detail)


_OWN_CHARGE = """
select l.dataset_id as dataset
from dbdp.ledger as l
where l.id = $1
and l.charged_by_id = dbdp_internal.identity_of(session_user)
"""


def check_own(session: Session, ledger: Any, dataset_id: int | None = None) -> None:
    """Raise ValueError unless this role made the charge, of that dataset (in the server, as dbdp_owner)."""
    rows = session.query(_OWN_CHARGE, ledger) if type(ledger) is int and ledger < 2**63 else []
    if not rows:
        raise ValueError(f"charge {ledger} is not in the ledger, or another role made it; see dbdp.history")
    if dataset_id not in (None, rows[0]["dataset"]):
        raise ValueError(f"charge {ledger} is of another dataset, or of a budget that has ended; see dbdp.history")


def record_outcome(session: SpiSession, ledger: int, outcome: str, detail: str | None) -> None:
    """Write the outcome of a client's charge, once (in the server, as dbdp_owner)."""
    if outcome not in ("failed", "shown"):
        raise ValueError(f"outcome {outcome!r} must be failed or shown; storing a model records released")
    check_own(session, ledger)
    if session.query("select from dbdp.outcome where ledger_id = $1", ledger):
        raise ValueError(f"charge {ledger} has an outcome already; see dbdp.history")
    note(session, ledger, outcome, detail=detail and detail[:_LONGEST_DETAIL])
