"""Charges a request before the first row is read: the checks before the charge, and what happens after it.

After the charge nothing raises, reports or branches because of a row's value.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from dbdp.algorithms import Request
from dbdp.algorithms.rows import Layout
from dbdp.controller import storing
from dbdp.controller.receipts import Receipt
from dbdp.packing.shuffle_options import Share, check_share
from dbdp.privacy.accounting.budget import CHARGE_UNITS
from dbdp.privacy.accounting.events import Release
from dbdp.privacy.shuffling import section_rows
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.spending.odometers import Price
from dbdp.sessions.errors import ChargedError, public_failure
from dbdp.sessions.session import LedgerCharge, Session

_CHECK_ROOM = "select dbdp_internal.check_room($1, $2::pg_catalog.int4, $3, $4::pg_catalog.int4)"


def check_trainable(
    session: Session, dataset: RegisteredDataset, request: Request, layout: Layout, *, staged: int = 0
) -> None:
    """Raise ValueError unless table, session, disk and network fit the request; called before the charge.

    A score packs rows as a training does, and so calls it too. Groups need a file of `staged` bytes for their records.
    """
    if request.network is not None:
        storing.network_of(dataset, request)
    session.check_rows(dataset)
    if session.engine is None:
        _check_session(session, dataset, request)
        _check_room(session, dataset.rows, layout, staged)
    else:
        session.engine.check(dataset, request)


def _check_session(session: Session, dataset: RegisteredDataset, request: Request) -> None:
    """Raise ValueError unless the session can pack the dataset."""
    check_share(session, dataset, Share(projection=request.projection))
    allowed = session.query(
        "select pg_catalog.has_database_privilege(pg_catalog.current_database(), 'temporary') as temporary, "
        "current_user::pg_catalog.text as role, pg_catalog.current_database()::pg_catalog.text as name"
    )[0]
    if not allowed["temporary"]:
        raise ValueError(
            f"role {allowed['role']} may not create temporary tables; grant temporary on database {allowed['name']} "
            f"to {allowed['role']}"
        )


def _check_room(session: Session, slots: int, layout: Layout, staged: int) -> None:
    """Raise ValueError unless each session that packs rows can be opened, and may have the files that these take."""
    with _workers(session, len(layout.slices) if layout.side_by_side else 1) as workers:
        apart = len(workers) > 1
        rows = section_rows(slots, max(layout.slices)) if apart else sum(layout.slices)
        for worker in workers:
            worker.query(_CHECK_ROOM, rows, layout.dimension, staged, len(workers))


@contextmanager
def _workers(session: Session, count: int) -> Iterator[list[Session]]:
    """Yield the sessions that pack so many slices side by side; raise ValueError if one cannot be opened."""
    if count == 1:
        yield [session]
        return
    with ExitStack() as stack:
        try:
            workers = stack.enter_context(session.workers(count))
            with session.one_snapshot(workers):  # one sees another's: on the same server
                pass
        except ValueError as error:  # a pooler
            raise ValueError(f"shards = {count} needs further connections: {error}, or choose shards = 1") from None
        except Exception as error:
            raise ValueError(
                f"shards = {count} needs as many further connections, and one failed: {session.failure(error)[1]}; "
                f"allow this role {count} more connections, or choose shards = 1"
            ) from None
        yield workers


@contextmanager
def charged(session: Session, dataset: RegisteredDataset, receipt: Receipt) -> Iterator[LedgerCharge]:
    """Charge a release before the first row is read; the block computes and stores the release.

    Raise ValueError before anything is spent: the budget does not cover it. Raise ChargedError after the charge, if
    anything fails in the block.
    """
    with session.in_one_session():
        charge = charge_for(session, dataset, receipt.plan, receipt.price)
        try:
            with _failure_noted(session, charge.ledger):
                yield charge
        except Exception as error:
            raise ChargedError(*public_failure(error, *session.failure(error))) from None


@contextmanager
def answering(session: Session, dataset: RegisteredDataset, charge: LedgerCharge) -> Iterator[None]:
    """Leave the block at a public time, if the owner has set one, and not before the charge is durable.

    The duration of the block, and whether it fails, may depend on the rows; the release is stored after the block, and
    so after the wait.
    """
    with session.leaving_at_multiples(dataset.answer_seconds):
        yield
    session.await_durable(charge)


def charge_for(session: Session, dataset: RegisteredDataset, described: dict[str, Any], price: Price) -> LedgerCharge:
    """Charge a release, before a row is read; raises as `Session.charge` does."""
    plan = described | dataset.relation | {"guarantee": price.release.as_data()}
    return session.charge(dataset, plan, price)


@contextmanager
def _failure_noted(session: Session, ledger: int) -> Iterator[None]:
    """Record a failure in the block as the charge's outcome, where the session and the ledger's row still exist."""
    try:
        yield
    except BaseException as error:
        _, reason = public_failure(error, *session.failure(error))
        session.recover()
        with suppress(Exception):
            session.note(ledger, "failed", reason)
        session.recover()
        raise


def explained(dataset: RegisteredDataset, described: dict[str, Any], guarantee: Release) -> dict[str, Any]:
    """Return the plan and its cost as data, also in allowances; with the dataset's answer time if it has one."""
    receipt, notes = Receipt.of(dataset, described, guarantee), dict[str, Any]()
    if dataset.allowance_orders:
        orders = dataset.allowance_orders.items()
        costs = {role: receipt.price.at(replace(dataset.budget, order=order))[0] for role, order in orders}
        notes["allowance_charges"] = {role: cost / CHARGE_UNITS for role, cost in costs.items()}
    if dataset.answer_seconds is not None:
        notes["answer_seconds"] = dataset.answer_seconds
    return receipt.noting(notes).as_data()
