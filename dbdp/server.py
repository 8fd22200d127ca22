"""What the PL/Python functions call: one function for each, and no logic of its own.

This module is imported in the server's hot path: the standard library and NumPy only. BLAS is held
to one thread before NumPy is loaded: a backend is one core, and sums must not depend on a count of
threads.
"""

import os

for _library in ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import json  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import wraps  # noqa: E402
from typing import Any  # noqa: E402

import plpy  # type: ignore[import-not-found]  # noqa: E402  (exists inside PostgreSQL only)

from dbdp import controller, datasets, ledger, packing, registry, releases  # noqa: E402
from dbdp.algorithms import Request  # noqa: E402
from dbdp.learning import blocks, kernels  # noqa: E402
from dbdp.learning.state import State  # noqa: E402
from dbdp.privacy import sensitivity  # noqa: E402
from dbdp.sessions import PUBLIC_SQLSTATE, ServerSession  # noqa: E402

_session = ServerSession(plpy)


class DoorError(plpy.Error):
    """An error whose text says public facts only; PostgreSQL shows it as `dbdp: text`."""

    def __init__(self, text: str, sqlstate: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


DoorError.__module__, DoorError.__name__, DoorError.__qualname__ = "builtins", "dbdp", "dbdp"


def _pause() -> None:
    """Notice a cancel: a query does, arithmetic does not."""
    _session.query("select")


sensitivity.pause = _pause


def door(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn our errors into PostgreSQL's, with the bare text."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except controller.ChargedError as error:
            sqlstate, text = error.sqlstate, str(error)
        except (ValueError, PermissionError) as error:
            sqlstate, text = PUBLIC_SQLSTATE, str(error)
        except plpy.SPIError as error:
            sqlstate, text = _session.failure(error)
            if sqlstate != PUBLIC_SQLSTATE:
                raise
        raise DoorError(text, sqlstate)

    return call


@door
def register_dataset(
    name: str,
    source: str,
    label: str,
    positive: str,
    features: str,
    epsilon: float,
    delta: float,
    negative: str | None,
    intercept: bool,
    mode: str,
) -> None:
    """dbdp.register_dataset, with the caller's rights."""
    given = {"name": name, "source": source, "features": features, "epsilon": epsilon, "delta": delta, "mode": mode}
    _check_given(**given)
    declaration = datasets.declare(
        label=label,
        positive=positive,
        negative=negative,
        intercept=intercept,
        features=json.loads(features),
    )
    registry.register(
        _session, name=name, source=source, declaration=declaration, epsilon=epsilon, delta=delta, mode=mode
    )


@door
def record_dataset(name: str, source: str, declaration: str, epsilon: float, delta: float, mode: str) -> None:
    """dbdp.record_dataset, as dbdp_owner."""
    registry.record(
        _session, name=name, source=source, declaration=declaration, epsilon=epsilon, delta=delta, mode=mode
    )


@door
def drop_dataset(name: str) -> None:
    """dbdp.drop_dataset, with the caller's rights."""
    registry.drop(_session, name)


@door
def close_dataset(name: str) -> str:
    """dbdp.close_dataset, as dbdp_owner."""
    return registry.close(_session, name)


@door
def charge(name: str, plan: str) -> str:
    """dbdp.charge, as dbdp_owner."""
    dataset = datasets.load(_session, name)
    registry.check_may_read(_session, dataset.source)
    return ledger.record_charge(_session, dataset, json.loads(plan))


@door
def shuffle(name: str, table: str) -> None:
    """dbdp.shuffle, with the caller's rights."""
    packing.shuffle_and_pack(_session, datasets.load(_session, name), table)


@door
def store_release(name: str, coefficients: list[float], intercept: float, receipt: str) -> str:
    """dbdp.store_release, as dbdp_owner."""
    dataset = datasets.load(_session, name)
    registry.check_may_read(_session, dataset.source)
    return json.dumps(releases.record(_session, dataset, coefficients, intercept, json.loads(receipt)))


def sgd_transition(state: bytes | None, block: bytes, initial: bytes) -> bytes:
    """One block: many mini-batches."""
    current = State.decode(initial if state is None else state)
    return kernels.transition(current, blocks.decode(block, current.dimension)).encode()


def sgd_terminate(state: bytes | None) -> bytes | None:
    """End an epoch: the last mini-batch may be short."""
    return None if state is None else kernels.terminate(State.decode(state)).encode()


@door
def dp_logreg(dataset: str, *options: Any) -> dict[str, Any]:
    """dbdp.dp_logreg, as dbdp_owner."""
    model = controller.train(_session, dataset, _request(*options))
    return {
        "model": model.id,
        "coefficients": model.coefficients,
        "intercept": model.intercept,
        "receipt": json.dumps(model.receipt),
    }


@door
def dp_explain(dataset: str, *options: Any) -> str:
    """dbdp.dp_explain, as dbdp_owner."""
    return json.dumps(controller.explain(_session, dataset, _request(*options)))


def _request(
    epsilon: float,
    delta: float,
    epochs: int,
    batch_size: int,
    schedule: str,
    step_size: float | None,
    regularisation: float | None,
    mechanism: str | None,
    algorithm: str,
) -> Request:
    given = locals()
    optional = ("step_size", "regularisation", "mechanism")
    _check_given(**{name: value for name, value in given.items() if name not in optional})
    return Request(loss="logistic", **given)


def _check_given(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"{name} is null; give a value")
