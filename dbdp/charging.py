"""A charge, before the first row: what is checked before it, what it pays for, what the receipt says of it.

Nothing after the charge raises, reports or branches because of a row's value.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from dbdp import packing
from dbdp.algorithms import Request
from dbdp.datasets import Dataset
from dbdp.errors import ChargedError, public_failure
from dbdp.facts import projection_of
from dbdp.privacy.events import Release
from dbdp.receipts import Receipt
from dbdp.sessions import Charge, Session

Answered = TypeVar("Answered")
Stored = TypeVar("Stored")


def check_trainable(session: Session, dataset: Dataset, request: Request) -> None:
    """Raise ValueError if the table or the session would not do: better before the charge than after it."""
    session.check_rows(dataset)
    check_session(session, dataset, request)


def check_session(session: Session, dataset: Dataset, request: Request) -> None:
    """Raise ValueError if the session could not train: better before the charge than after it."""
    packing.check_share(session, dataset, packing.Share(projection=projection_of(request)))
    allowed = session.query(
        "select pg_catalog.has_database_privilege(pg_catalog.current_database(), 'temporary') as temporary, "
        "current_user::pg_catalog.text as role, pg_catalog.current_database()::pg_catalog.text as name"
    )[0]
    if not allowed["temporary"]:
        raise ValueError(
            f"role {allowed['role']} may not create temporary tables; grant temporary on database {allowed['name']} "
            f"to {allowed['role']}"
        )
    if request.shards > 1:
        _check_workers(session, request.shards)


def _check_workers(session: Session, count: int) -> None:
    try:
        with session.workers(count):
            pass
    except Exception as error:
        raise ValueError(
            f"shards = {count} need as many further connections, and one failed: {session.failure(error)[1]}; let "
            "this role connect so often, or choose shards = 1"
        ) from None


def paid_for(
    session: Session,
    dataset: Dataset,
    receipt: Receipt,
    answer: Callable[[], Answered],
    store: Callable[[Answered, Receipt], Stored],
) -> Stored:
    """Charge, compute the answer, await the charge's durability, and store what is released.

    Parameters
    ----------
    answer : its time and its failures may depend on the rows: it is left at a public time, where the owner has set one
    store : takes the answer and the receipt with its charge; what it writes has the time after the wait

    Raises
    ------
    ValueError
        Before anything is spent: the budget does not cover it.
    ChargedError
        After the charge, whatever fails.
    """
    charge = charge_for(session, dataset, receipt.plan, receipt.guarantee)  # before the first row
    try:
        with _failure_noted(session, charge.ledger):
            with session.leaving_at_multiples(dataset.answer_seconds):
                answered = answer()
            session.await_durable(charge)
            return store(answered, receipt.charged(charge.ledger))
    except Exception as error:
        raise ChargedError(*public_failure(error, *session.failure(error))) from None


def charge_for(session: Session, dataset: Dataset, described: dict[str, Any], guarantee: Release) -> Charge:
    """Charge a release, before a row is read; raises as `Session.charge` does."""
    return session.charge(dataset, described | dataset.relation | {"guarantee": guarantee.as_data()})


@contextmanager
def _failure_noted(session: Session, ledger: int) -> Iterator[None]:
    """Note the failure of what was charged, where the session, and the ledger's row, are still there."""
    try:
        yield
    except BaseException as error:
        _, reason = public_failure(error, *session.failure(error))
        session.recover()
        with suppress(Exception):
            session.note(ledger, "failed", reason)
        session.recover()
        raise


def explained(dataset: Dataset, described: dict[str, Any], guarantee: Release) -> dict[str, Any]:
    """Return what would be done and what it costs the dataset, and when the server answers, where that is public."""
    when = {} if dataset.answer_seconds is None else {"answer_seconds": dataset.answer_seconds}
    return Receipt.of(dataset, described, guarantee).noting(when).as_data()
