"""The functions that PL/Python bodies call: one for each, without logic of its own.

This module is imported in the server's hot path: the standard library and NumPy only. BLAS is limited to one thread
before NumPy is loaded, since a backend is one core and sums must not depend on the number of threads.
"""

from dbdp.interfaces.sql import threads

threads.limit_blas_to_one()

import json  # noqa: E402
import math  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from contextlib import AbstractContextManager, ExitStack, contextmanager  # noqa: E402
from dataclasses import fields  # noqa: E402
from functools import wraps  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import plpy  # noqa: E402  (exists inside PostgreSQL only)

from dbdp import checks  # noqa: E402
from dbdp.algorithms import Request  # noqa: E402
from dbdp.algorithms.scores.metrics import ScoreRequest  # noqa: E402
from dbdp.algorithms.several import tuning  # noqa: E402
from dbdp.algorithms.several.groups import GroupsRequest  # noqa: E402
from dbdp.algorithms.several.tuning import TuningRequest  # noqa: E402
from dbdp.controller import evaluation, requests, summaries  # noqa: E402
from dbdp.deployment import about as runtime  # noqa: E402
from dbdp.interfaces.sql.server_registry import ServerRegistry  # noqa: E402
from dbdp.learning import kernels, noisy, second_moments  # noqa: E402
from dbdp.learning.noisy import NoisyState  # noqa: E402
from dbdp.learning.objectives import objective_from  # noqa: E402
from dbdp.learning.rows import blocks  # noqa: E402
from dbdp.learning.state import State  # noqa: E402
from dbdp.learning.tallies import Labels  # noqa: E402
from dbdp.packing import dealing  # noqa: E402
from dbdp.packing.options import Share  # noqa: E402
from dbdp.packing.packer import shuffle_and_pack  # noqa: E402
from dbdp.packing.writers import named  # noqa: E402
from dbdp.privacy import sensitivity  # noqa: E402
from dbdp.privacy.noise import streams  # noqa: E402
from dbdp.registry import amendments, datasets, registering, releases  # noqa: E402
from dbdp.registry.declarations import MAX_CLASSES  # noqa: E402
from dbdp.registry.registration import Registration  # noqa: E402
from dbdp.registry.spending import budgets, ledger, rights  # noqa: E402
from dbdp.registry.tables import reading  # noqa: E402
from dbdp.sessions import advisory_locks  # noqa: E402
from dbdp.sessions.callers import Transactions  # noqa: E402
from dbdp.sessions.errors import PUBLIC_SQLSTATE, ChargedError  # noqa: E402
from dbdp.sessions.server import ServerSession, unmetered  # noqa: E402

_session = ServerSession(plpy, ServerRegistry())
_transactions = Transactions(_session)
_LONGEST_ERROR = 4000  # characters
_NESTS, _MOST_LEVELS = (list, dict), 100  # levels of JSON that is stored: more than any record of dbdp has


class InterfaceError(plpy.Error):
    """An error whose text has public facts only; PostgreSQL shows it as `dbdp: text`."""

    def __init__(self, text: str, sqlstate: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


InterfaceError.__module__, InterfaceError.__name__, InterfaceError.__qualname__ = "builtins", "dbdp", "dbdp"


def _pause() -> None:
    """Run an empty query, so that a cancel takes effect: PostgreSQL does not interrupt arithmetic."""
    _session.query("select")


sensitivity.pause = _pause


def interface(*contexts: Callable[[], AbstractContextManager[None]]) -> Callable[..., Callable[..., Any]]:
    """Decorate a function that SQL calls: check the caller, enter the contexts, and raise errors as PostgreSQL's."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any) -> Any:
            try:
                _check_caller()
                with ExitStack() as stack:
                    for context in (*_EVERYWHERE, *contexts):
                        stack.enter_context(context())
                    return function(*arguments)
            except (ChargedError, ValueError, PermissionError, RecursionError, plpy.SPIError) as error:
                sqlstate, text = _shown(error)
            raise InterfaceError(_shortened(text), sqlstate)

        return call

    return decorate


def _unmetered() -> AbstractContextManager[None]:
    return unmetered(_session.version)


def _locks_released() -> AbstractContextManager[None]:
    return advisory_locks.preserved(_session)


_EVERYWHERE = (_session.in_own_memory, _locks_released, _unmetered)


def _shown(error: Exception) -> tuple[str, str]:
    """Return SQLSTATE and text of an error of dbdp; raise one of PostgreSQL's own again."""
    if isinstance(error, ChargedError):
        return error.sqlstate, str(error)
    if isinstance(error, RecursionError):
        return PUBLIC_SQLSTATE, "an argument is nested too deeply; pass one with fewer levels"
    if isinstance(error, plpy.SPIError):
        sqlstate, text = _session.failure(error)
        if sqlstate != PUBLIC_SQLSTATE:
            raise error
        return sqlstate, text
    return PUBLIC_SQLSTATE, str(error)


@contextmanager
def in_own_transaction() -> Iterator[None]:
    """Refuse an interface that spends or amends while code of others may run with the caller's rights."""
    if _session.acts_as_owner():  # within another interface, which was checked
        yield
        return
    _transactions.check()
    yield
    _transactions.note()


def _shortened(text: str) -> str:
    """Return a text without its middle if it is too long, as where it quotes a large value."""
    half = _LONGEST_ERROR // 2
    return text if len(text) <= _LONGEST_ERROR else f"{text[:half]} … {text[-half:]}"


def _check_caller() -> None:
    """Raise PermissionError if code of another role calls, with or without that role's rights.

    Interfaces check the rights of the role that logged in. Code of another role runs in its session where the server
    reads or maintains a table and evaluates the owner's functions (for an analyst who trains, or a superuser who runs
    ANALYZE), and in a SECURITY DEFINER function.
    """
    if _session.is_restricted():
        raise PermissionError(
            "dbdp was called by a function that the server runs to read or to maintain a table; call it directly"
        )
    _session.check_caller()


@interface()
def about() -> str:
    """Return the versions of the programs that run in the server, as JSON."""
    return json.dumps(runtime.about())


@interface(in_own_transaction)
def register_dataset(*values: Any) -> None:
    """dbdp.register_dataset, with the caller's rights and as dbdp_owner."""
    arguments = _by_field(Registration, values)
    features = _parsed("features", arguments["features"])
    registering.register(_session, Registration(**arguments | {"features": features}))


@interface(in_own_transaction)
def drop_dataset(name: str) -> None:
    """dbdp.drop_dataset, as dbdp_owner and with the caller's rights."""
    registering.drop(_session, name)


@interface(in_own_transaction, _session.as_owner)
def grant_training(name: str, role: str, epsilon: float | None) -> None:
    """dbdp.grant_training, as dbdp_owner."""
    _check_not_null(dataset=name, role=role)
    rights.grant_training(_session, name, role, epsilon)


@interface(in_own_transaction, _session.as_owner)
def revoke_training(name: str, role: str) -> None:
    """dbdp.revoke_training, as dbdp_owner."""
    _check_not_null(dataset=name, role=role)
    rights.revoke_training(_session, name, role)


@interface(in_own_transaction, _session.as_owner)
def grant_prediction(model: int, role: str) -> None:
    """dbdp.grant_prediction, as dbdp_owner."""
    _check_not_null(model=model, role=role)
    rights.grant_prediction(_session, model, role)


@interface(in_own_transaction, _session.as_owner)
def revoke_prediction(model: int, role: str) -> None:
    """dbdp.revoke_prediction, as dbdp_owner."""
    _check_not_null(model=model, role=role)
    rights.revoke_prediction(_session, model, role)


@interface(in_own_transaction, _session.as_owner)
def renew_budget(name: str, reason: str, epsilon: float | None, delta: float | None) -> None:
    """dbdp.renew_budget, as dbdp_owner."""
    _check_not_null(dataset=name, reason=reason)
    amendments.renew(_session, name, reason, epsilon, delta)


@interface(in_own_transaction, _session.as_owner)
def answer_at_multiples(name: str, reason: str, seconds: int | None) -> None:
    """dbdp.answer_at_multiples, as dbdp_owner."""
    _check_not_null(dataset=name, reason=reason)
    amendments.answer_at_multiples(_session, name, reason, seconds)


@interface(in_own_transaction, _session.as_owner)
def redeclare(
    name: str,
    reason: str,
    features: str | None,
    positive: str | None,
    negative: str | None,
    classes: list[str] | None,
    label_bounds: list[float] | None,
) -> None:
    """dbdp.redeclare, as dbdp_owner."""
    _check_not_null(dataset=name, reason=reason)
    corrections = {
        "features": None if features is None else _parsed("features", features),
        "positive": positive,
        "negative": negative,
        "classes": classes,
        "label_bounds": label_bounds,
    }
    amendments.redeclare(_session, name, reason, corrections)


@interface(_session.as_owner)
def budget(name: str, release_delta: float) -> dict[str, Any]:
    """dbdp.budget, as dbdp_owner."""
    _check_not_null(dataset=name, release_delta=release_delta)
    return budgets.budget(_session, name, release_delta)


@interface(_session.as_owner)
def check_ledger() -> list[dict[str, Any]]:
    """dbdp.check_ledger, as dbdp_owner."""
    return budgets.check(_session)


def allowance_spent(allowance: int) -> dict[str, Any]:
    """dbdp.allowance_spent, as dbdp_owner; to code with another role's rights it returns nulls."""
    try:
        _check_caller()
    except PermissionError:
        return {"charged": None, "leaked": None}
    with _session.as_owner():
        return budgets.allowance_spent(_session, allowance)


@interface(in_own_transaction)
def check_rows(name: str) -> None:
    """dbdp.check_rows, with the caller's rights."""
    _check_not_null(dataset=name)
    _session.check_rows(datasets.load(_session, name))


@interface(in_own_transaction, _session.as_owner)
def charge(name: str, plan: str) -> dict[str, Any]:
    """dbdp.charge, as dbdp_owner."""
    _check_not_null(plan=plan)
    dataset = datasets.load(_session, name)
    registering.check_may_read(_session, dataset.source)
    charged = _session.charge(dataset, _object("plan", plan))
    return {"ledger_id": charged.ledger, "wal_position": charged.position}


@interface(_session.as_owner)
def record_outcome(ledger_id: int, outcome: str, detail: str | None) -> None:
    """dbdp.record_outcome, as dbdp_owner."""
    _check_not_null(ledger_id=ledger_id, outcome=outcome)
    ledger.record_outcome(_session, ledger_id, outcome, detail)


@interface(in_own_transaction)
def shuffle(name: str, table: str, options: str) -> None:
    """dbdp.shuffle, with the caller's rights."""
    _check_not_null(blocks=table, options=options)
    dataset, share = datasets.load(_session, name), Share.from_data(_parsed("options", options))
    blocks_table = named(_session, "blocks", table, "block_no int8, block bytea")
    shuffle_and_pack(_session, dataset, blocks_table, share)


@interface()
def table_rows(source: str, vector: str | None, limit: int | None) -> list[dict[str, Any]]:
    """dbdp.table_rows, with the caller's rights."""
    _check_not_null(source=source)
    return reading.shown(_session, source, vector, limit)


@interface()
def resume(name: str) -> Iterator[bytes]:
    """dbdp.resume, with the caller's rights."""
    return _session.resume(name)


@interface(_session.as_owner)
def store_release(name: str, coefficients: list[Any], intercepts: list[float], receipt: str) -> str:
    """dbdp.store_release, as dbdp_owner."""
    _check_not_null(coefficients=coefficients, intercepts=intercepts, receipt=receipt)
    dataset = datasets.load(_session, name)
    registering.check_may_read(_session, dataset.source)
    return json.dumps(_session.store_release(dataset, coefficients, intercepts, _receipt(receipt)))


@interface(_session.as_owner)
def store_network(name: str, network: str, parameters: list[float], receipt: str) -> str:
    """dbdp.store_network, as dbdp_owner."""
    _check_not_null(network=network, parameters=parameters, receipt=receipt)
    dataset = datasets.load(_session, name)
    registering.check_may_read(_session, dataset.source)
    checked = _receipt(receipt)
    return json.dumps(_session.store_network(dataset, _object("network", network), parameters, checked))


@interface(in_own_transaction)
def group_sizes(dataset: str, group_by: str, groups: list[str]) -> list[int]:
    """dbdp.group_sizes, with the caller's rights."""
    _check_not_null(group_by=group_by, groups=groups)
    return dealing.count(_session, datasets.load(_session, dataset), group_by, groups)


@interface(in_own_transaction)
def deal_groups(dataset: str, table: str, group_by: str, groups: list[str], sizes: list[int]) -> None:
    """dbdp.deal_groups, with the caller's rights."""
    _check_not_null(target=table, group_by=group_by, groups=groups, sizes=sizes)
    loaded, target = datasets.load(_session, dataset), named(_session, "target", table, dealing.COLUMNS)
    dealing.distribute(_session, loaded, target, group_by, groups, sizes)


def sgd_transition(state: bytes | None, block: bytes, initial: bytes) -> bytes:
    """Update the model by the mini-batches of one block."""
    current = State.decode(initial if state is None else state)
    return kernels.transition(current, blocks.decode(block, current.dimension)).encode()


def sgd_terminate(state: bytes | None) -> bytes | None:
    """End an epoch with its last mini-batch, which may be short."""
    return None if state is None else kernels.terminate(State.decode(state)).encode()


def noisy_transition(state: bytes | None, block: bytes, initial: bytes) -> bytes:
    """Update the model by the noisy updates of one block; the noise's key exists in this call only."""
    current = NoisyState.decode(initial if state is None else state)
    rows = blocks.decode(block, current.training.objective.inputs)
    return noisy.transition(current, rows, draw=_draw).encode()


def noisy_terminate(state: bytes | None) -> bytes | None:
    """End a scan with its last mini-batch, which may be short."""
    return None if state is None else noisy.terminate(NoisyState.decode(state), draw=_draw).encode()


def _draw(law: str, steps: int, updates: int, parameters: int) -> np.ndarray:
    """Draw the noise of some updates; a cancel takes effect between two draws."""
    _pause()
    return streams.draw(law, steps, updates, parameters)


def gradient_transition(total: bytes | None, block: bytes, model: bytes, objective: str, clip: float) -> bytes:
    """Add the clipped gradients of the rows of one block."""
    parsed, vector = objective_from(objective), np.frombuffer(model, "<f8")
    if len(vector) != parsed.parameters:
        raise ValueError(f"the model has {len(vector)} numbers, and its objective {parsed.parameters}; pass as many")
    gradients = parsed.gradient_sum(vector, blocks.decode(block, parsed.inputs), clip=clip)
    return (gradients if total is None else np.frombuffer(total, "<f8") + gradients).tobytes()


def loss_transition(totals: bytes | None, block: bytes, models: bytes, objective: str, limit: float) -> bytes:
    """Add the clipped losses of the rows of one block, for each of several models."""
    parsed = objective_from(objective)
    candidates = np.frombuffer(models, "<f8").reshape(-1, parsed.parameters)
    losses = parsed.loss_sums(candidates, blocks.decode(block, parsed.inputs), limit=limit)
    return (losses if totals is None else np.frombuffer(totals, "<f8") + losses).tobytes()


def second_moment_transition(total: bytes | None, block: bytes, dimension: int) -> bytes:
    """One block: add the products of all pairs of coordinates of each of its rows."""
    checks.whole("dimension", dimension, 1, second_moments.MOST_DIMENSION)
    moment = second_moments.second_moment(blocks.decode(block, dimension), dimension)
    return (moment if total is None else _square(total, dimension) + moment).tobytes()


def joint_moment_transition(total: bytes | None, block: bytes, dimension: int, labels: int, weight: float) -> bytes:
    """One block: add the products of all pairs of coordinates of each of its rows with its label."""
    for name, value in (("dimension", dimension), ("labels", labels), ("dimension + labels", dimension + labels)):
        checks.whole(name, value, 1, second_moments.MOST_DIMENSION)
    moment = second_moments.joint_moment(blocks.decode(block, dimension), dimension, labels, weight)
    return (moment if total is None else _square(total, dimension + labels) + moment).tobytes()


def transformed(block: bytes, matrix: bytes) -> bytes:
    """One block: its rows times a matrix."""
    dimension = math.isqrt(len(matrix) // 8)
    checks.whole("dimension of the matrix", dimension, 1, second_moments.MOST_DIMENSION)
    return second_moments.transformed(blocks.decode(block, dimension), _square(matrix, dimension)).tobytes()


def _square(matrix: bytes, dimension: int) -> np.ndarray:
    """Return a matrix, shape (dimension, dimension)."""
    if len(matrix) != 8 * dimension**2:
        raise ValueError(f"{len(matrix)} bytes are not a matrix of {dimension} by {dimension} numbers of 8 bytes")
    return np.frombuffer(matrix, "<f8").reshape(dimension, dimension)


def label_transition(counts: list[int] | None, block: bytes, dimension: int, classes: int) -> list[int]:
    """Add the numbers of rows of each label in one block."""
    checks.whole("classes", classes, 1, MAX_CLASSES)
    rows = blocks.decode(block, dimension)
    of_block = Labels(classes)(rows[:, :0], rows[:, -1]).tolist()
    return [one + other for one, other in zip(counts or [0] * len(of_block), of_block, strict=True)]


def count_errors_transition(errors: int, block: bytes, models: bytes, outputs: int) -> int:
    """Add the number of rows of one block that the models classify wrongly."""
    checks.whole("outputs", outputs, 1, MAX_CLASSES)
    vectors = np.frombuffer(models, "<f8").reshape(outputs, -1)
    return errors + kernels.count_errors(vectors, blocks.decode(block, vectors.shape[1]))


@interface(in_own_transaction, _session.as_owner)
def dp_train(dataset: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_train, as dbdp_owner."""
    return _released(requests.train(_session, dataset, _request(values)))


@interface(in_own_transaction, _session.as_owner)
def dp_logreg(dataset: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_logreg, as dbdp_owner."""
    return _released(requests.train(_session, dataset, _request(values, loss="logistic", huber_width=None)))


@interface(in_own_transaction, _session.as_owner)
def dp_svm(dataset: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_svm, as dbdp_owner."""
    return _released(requests.train(_session, dataset, _request(values, loss="huber_svm")))


@interface(in_own_transaction, _session.as_owner)
def dp_linreg(dataset: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_linreg, as dbdp_owner."""
    return _released(requests.train(_session, dataset, _request(values, loss="huber_regression", positive_weight=1.0)))


@interface(_session.as_owner)
def dp_explain(dataset: str, *values: Any) -> str:
    """dbdp.dp_explain, as dbdp_owner."""
    return json.dumps(requests.explain(_session, dataset, _request(values)))


@interface(in_own_transaction, _session.as_owner)
def dp_tune(dataset: str, candidates: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_tune, as dbdp_owner."""
    return _released(requests.tune(_session, dataset, _tuning(candidates, values)))


@interface(_session.as_owner)
def dp_explain_tuning(dataset: str, candidates: str, *values: Any) -> str:
    """dbdp.dp_explain_tuning, as dbdp_owner."""
    return json.dumps(requests.explain_tuning(_session, dataset, _tuning(candidates, values)))


@interface(in_own_transaction, _session.as_owner)
def dp_train_groups(dataset: str, group_by: str, groups: list[str], *values: Any) -> list[dict[str, Any]]:
    """dbdp.dp_train_groups, as dbdp_owner."""
    models = requests.train_groups(_session, dataset, _grouped(group_by, groups, values))
    return [{"group": group} | _released(model) for group, model in models.items()]


@interface(_session.as_owner)
def dp_explain_groups(dataset: str, group_by: str, groups: list[str], *values: Any) -> str:
    """dbdp.dp_explain_groups, as dbdp_owner."""
    return json.dumps(requests.explain_groups(_session, dataset, _grouped(group_by, groups, values)))


@interface(in_own_transaction, _session.as_owner)
def dp_score(
    model: int, dataset: str, metric: str, epsilon: float, delta: float, bins: int, positive: str | None
) -> str:
    """dbdp.dp_score, as dbdp_owner."""
    _check_not_null(model=model, dataset=dataset, metric=metric, epsilon=epsilon, delta=delta, bins=bins)
    return json.dumps(evaluation.score(_session, model, dataset, ScoreRequest(metric, epsilon, delta, bins, positive)))


@interface(_session.as_owner)
def dp_explain_score(dataset: str, metric: str, epsilon: float, delta: float, bins: int, positive: str | None) -> str:
    """dbdp.dp_explain_score, as dbdp_owner."""
    _check_not_null(dataset=dataset, metric=metric, epsilon=epsilon, delta=delta, bins=bins)
    return json.dumps(evaluation.explain(_session, dataset, ScoreRequest(metric, epsilon, delta, bins, positive)))


@interface(in_own_transaction, _session.as_owner)
def dp_bounds(dataset: str, column: str, epsilon: float, delta: float, beta: float) -> str:
    """dbdp.dp_bounds, as dbdp_owner."""
    _check_not_null(dataset=dataset, column_name=column, epsilon=epsilon, delta=delta, beta=beta)
    return json.dumps(evaluation.bounds(_session, dataset, column, epsilon=epsilon, delta=delta, beta=beta))


@interface(in_own_transaction, _session.as_owner)
def dp_class_balance(dataset: str, epsilon: float, delta: float) -> str:
    """dbdp.dp_class_balance, as dbdp_owner."""
    _check_not_null(dataset=dataset, epsilon=epsilon, delta=delta)
    return json.dumps(evaluation.class_balance(_session, dataset, epsilon=epsilon, delta=delta))


@interface(in_own_transaction, _session.as_owner)
def dp_summarize(dataset: str, epsilon: float, delta: float) -> dict[str, Any]:
    """dbdp.dp_summarize, as dbdp_owner."""
    _check_not_null(dataset=dataset, epsilon=epsilon, delta=delta)
    stored = summaries.summarize(_session, dataset, epsilon=epsilon, delta=delta)
    return {"summary": stored["id"], "receipt": json.dumps(stored["receipt"])}


@interface()
def summary_linreg(summary: int, target: str, features: list[str] | None, regularisation: float | None) -> str:
    """dbdp.summary_linreg, with the caller's rights."""
    _check_not_null(summary=summary, target=target)
    return json.dumps(summaries.linreg(_session, summary, target, features, regularisation))


@interface()
def summary_pca(summary: int, components: int) -> str:
    """dbdp.summary_pca, with the caller's rights."""
    _check_not_null(summary=summary, components=components)
    return json.dumps(summaries.pca(_session, summary, components))


@interface()
def summary_correlations(summary: int) -> str:
    """dbdp.summary_correlations, with the caller's rights."""
    _check_not_null(summary=summary)
    return json.dumps(summaries.correlations(_session, summary))


tally_transition, tally_terminate = evaluation.tally_transition, evaluation.tally_terminate


def _released(model: releases.Model) -> dict[str, Any]:
    return {
        "model": model.id,
        "coefficients": model.coefficients,
        "intercept": model.intercept,
        "intercepts": model.intercepts,
        "receipt": json.dumps(model.receipt),
    }


def _request(values: Sequence[Any], **fixed: Any) -> Request:
    """Return a request from fixed options and the values of all others, in order."""
    return Request(**_by_field(Request, values, *fixed), **fixed)


def _by_field(record: type[Any], values: Sequence[Any], *without: str) -> dict[str, Any]:
    """Return values by the fields of a record, in order; raise ValueError for a null where it is not the default."""
    named = [each for each in fields(record) if each.name not in without]
    arguments = {each.name: value for each, value in zip(named, values, strict=True)}
    _check_not_null(**{each.name: arguments[each.name] for each in named if each.default is not None})
    return arguments


def _tuning(candidates: str, values: Sequence[Any]) -> TuningRequest:
    *options, method, repetitions, distribution = values
    _check_not_null(candidates=candidates, method=method)
    return TuningRequest(_request(options), tuning.parsed(candidates), method, repetitions, distribution)


def _grouped(group_by: str, groups: list[str], values: Sequence[Any]) -> GroupsRequest:
    _check_not_null(group_by=group_by, groups=groups)
    return GroupsRequest(_request(values), group_by, tuple(groups))


def _object(name: str, text: str) -> dict[str, Any]:
    """Return a JSON argument; raise ValueError unless it is an object of finite numbers."""
    value = _parsed(name, text)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError(f"{name} has a number beyond the range of float8; leave it out") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {text[:200]}; pass a JSON object")
    return value


def _receipt(text: str) -> dict[str, Any]:
    """Return a client's receipt; raise ValueError for a value that the view dbdp.models could not read."""
    receipt = _object("receipt", text)
    for name, kind in (("algorithm", str), ("epsilon", float), ("delta", float)):
        value = receipt.get(name)
        if checks.is_whole(value) and abs(value) < 2**53:
            value = float(value)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name} of the receipt is {str(value)[:200]}; pass a {kind.__name__}, or leave it out")
    return receipt


def _parsed(name: str, text: str) -> Any:
    """Return a JSON argument; raise ValueError for one that PostgreSQL could store but not read again.

    Its type json accepts a NUL, half a surrogate pair and thousands of levels; a later query that reads such a value
    fails, for everybody who lists what was stored.
    """
    try:
        value = json.loads(text)
        if _levels(value) > _MOST_LEVELS:
            raise ValueError("levels")
        written = json.dumps(value, ensure_ascii=False)
        if "\\u0000" in written.replace("\\\\", ""):
            raise ValueError("a NUL")
        written.encode()
    except (ValueError, RecursionError):
        raise ValueError(
            f"{name} is JSON with a NUL or half a surrogate pair, with more than {_MOST_LEVELS} levels, or with too "
            "many digits; leave that out"
        ) from None
    return value


def _levels(value: Any) -> int:
    """Return how deeply the lists and objects of a JSON value are nested."""
    levels, present = 0, [value]
    while lists := [each.values() if isinstance(each, dict) else each for each in present if isinstance(each, _NESTS)]:
        levels, present = levels + 1, [item for each in lists for item in each]
    return levels


def _check_not_null(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"{name} is null; pass a value")
