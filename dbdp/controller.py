"""The request, in the order of the proof: plan, charge, shuffle, epochs, release.

One controller runs in the server and in a client; only the session differs. Nothing after the charge
raises, reports or branches because of a row's value.
"""

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np

import dbdp
from dbdp import algorithms, datasets, ledger, packing, releases
from dbdp.algorithms import Plan, Request
from dbdp.datasets import Dataset
from dbdp.learning.state import State
from dbdp.privacy.accounting import CHARGE_UNITS, LEAK_UNITS
from dbdp.sessions import Session, public_failure, temporary_table

Progress = Callable[[str, int, int], None]


def silent(_stage: str, _done: int, _total: int) -> None:
    """Report nothing."""


class ChargedError(RuntimeError):
    """A training that failed after its charge; the text says nothing that a row could decide."""

    def __init__(self, sqlstate: str, reason: str) -> None:
        super().__init__(f"training stopped after its charge, which stands: {reason}")
        self.sqlstate = sqlstate


def explain(session: Session, name: str, request: Request) -> dict[str, Any]:
    """Return the plan of a request and what it would be charged; nothing is read or spent."""
    dataset = datasets.load(session, name)
    return _described(dataset, _plan(dataset, request))


def train(session: Session, name: str, request: Request, progress: Progress = silent) -> releases.Model:
    """Train a private model on a registered dataset, and release it once.

    Raises
    ------
    ValueError
        Before anything is spent: the request, the dataset or the budget does not allow it.
    ChargedError
        After the charge: the server failed, or the training was cancelled.
    """
    dataset = datasets.load(session, name)
    plan = _plan(dataset, request)
    datasets.check_rows(session, dataset)
    _check_session(session)
    position = ledger.charge(session, dataset, plan.explain(), plan.mechanism.guarantee)  # before the first row
    try:
        model = exact_model(session, dataset, plan, progress)
        ledger.await_durable(session, position)
        receipt = _described(dataset, plan) | {"version": dbdp.__version__}
        return releases.store(session, dataset, plan.mechanism.release(model), receipt)
    except Exception as error:
        raise ChargedError(*public_failure(session, error)) from None


def _plan(dataset: Dataset, request: Request) -> Plan:
    return algorithms.plan(request, rows=dataset.rows, dimension=dataset.declaration.dimension)


def _check_session(session: Session) -> None:
    """Raise ValueError if the session could not train: better before the charge than after it."""
    packing.memory_given(session)
    allowed = session.query(
        "select pg_catalog.has_database_privilege(pg_catalog.current_database(), 'temporary') as temporary, "
        "current_user::pg_catalog.text as role, pg_catalog.current_database()::pg_catalog.text as name"
    )[0]
    if not allowed["temporary"]:
        raise ValueError(
            f"role {allowed['role']} may not create temporary tables; grant temporary on database {allowed['name']} "
            f"to {allowed['role']}"
        )


def _described(dataset: Dataset, plan: Plan) -> dict[str, Any]:
    charge, leak = dataset.budget.cost(plan.mechanism.guarantee)
    return {
        "dataset": dataset.name,
        **plan.explain(),
        "mode": dataset.budget.mode,
        "order": dataset.budget.order,
        "charge": charge / CHARGE_UNITS,
        "leak": leak / LEAK_UNITS,
    }


def exact_model(session: Session, dataset: Dataset, plan: Plan, progress: Progress) -> np.ndarray:
    """Return the exact model. It leaves this function only to be noised."""
    state = plan.initial_state().encode()
    epochs = plan.request.epochs
    name = f"dbdp_blocks_{secrets.token_hex(8)}"
    packing.keep_blocks_at_hand(session, dataset.rows, plan.dimension)
    with temporary_table(session, name, "block_no int8 not null, block bytea not null") as blocks:
        progress("shuffle", 0, 1)
        session.query("select dbdp.shuffle($1, $2)", dataset.name, blocks)
        progress("shuffle", 1, 1)
        epoch_sql = f"select dbdp.sgd_epoch(block, $1 order by block_no) as state from {blocks}"
        for epoch in range(epochs):
            state = session.query(epoch_sql, state)[0]["state"]
            progress("epoch", epoch + 1, epochs)
    return State.decode(state).model
