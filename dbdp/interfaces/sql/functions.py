"""The functions of SQL that users and clients call: one for each, without logic of its own.

This module is imported in the server's hot path: the standard library and NumPy only. `boundary` comes first: it
limits BLAS to one thread before NumPy is loaded.
"""

from dbdp.interfaces.sql.boundary import (  # isort: split
    InterfaceError,
    check_caller,
    in_own_transaction,
    interface,
    refusing,
    session,
)

import gc
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from dbdp.algorithms.rows import RecursiveStages
from dbdp.algorithms.scores.metrics import ScoreRequest
from dbdp.controller import requests
from dbdp.controller.facts import check_regression
from dbdp.controller.statistics import noisy_scores, summary_requests
from dbdp.deployment import about as runtime
from dbdp.interfaces.sql.answers import in_lines, released, shown
from dbdp.interfaces.sql.arguments import (
    by_field,
    check_not_null,
    client_receipt,
    groups_request,
    json_object,
    json_value,
    training_request,
    tuning_request,
)
from dbdp.learning.objectives import Linear, objective_from
from dbdp.packing import grouping, record_store, resident, room, sampling
from dbdp.packing.memory import pack_memory
from dbdp.packing.packer import shuffle_and_pack
from dbdp.packing.shuffle_options import Share
from dbdp.packing.writers import named, table_name
from dbdp.registry import changes, datasets, register
from dbdp.registry.registration import Registration
from dbdp.registry.spending import budgets, identities, ledger, rights
from dbdp.registry.tables import reading, records
from dbdp.sessions.errors import PUBLIC_SQLSTATE
from dbdp.sessions.inside import guarded_reads, parallel


@interface()
def about() -> str:
    """Return the versions of the programs that run in the server, as JSON."""
    return json.dumps(runtime.about())


@refusing(in_own_transaction)
def register_dataset(*values: Any) -> None:
    """dbdp.register_dataset, with the caller's rights and as dbdp_owner."""
    arguments = by_field(Registration, values)
    features = json_value("features", arguments["features"])
    register.register(session, Registration(**arguments | {"features": features}))


@interface(in_own_transaction, session.as_owner)
def place_dataset(name: str, place: str, digest: str) -> None:
    """dbdp_internal.place_dataset, as dbdp_owner."""
    check_not_null(dataset=name, place=place, digest=digest)
    changes.place(session, name, place, digest)


@refusing(in_own_transaction)
def drop_dataset(name: str) -> None:
    """dbdp.drop_dataset, as dbdp_owner and with the caller's rights."""
    check_not_null(name=name)
    register.drop(session, name)


@refusing(in_own_transaction, session.as_owner)
def grant_training(name: str, role: str, epsilon: float | None) -> None:
    """dbdp.grant_training, as dbdp_owner."""
    check_not_null(dataset=name, role=role)
    rights.grant_training(session, name, role, epsilon)


@refusing(in_own_transaction, session.as_owner)
def revoke_training(name: str, role: str) -> None:
    """dbdp.revoke_training, as dbdp_owner."""
    check_not_null(dataset=name, role=role)
    rights.revoke_training(session, name, role)


@refusing(in_own_transaction, session.as_owner)
def grant_prediction(model: int | str, role: str) -> None:
    """dbdp.grant_prediction, as dbdp_owner."""
    check_not_null(model=model, role=role)
    rights.grant_prediction(session, model, role)


@refusing(in_own_transaction, session.as_owner)
def revoke_prediction(model: int | str, role: str) -> None:
    """dbdp.revoke_prediction, as dbdp_owner."""
    check_not_null(model=model, role=role)
    rights.revoke_prediction(session, model, role)


@refusing(in_own_transaction, session.as_owner)
def confirm_role(former: str, role: str | None) -> None:
    """dbdp.confirm_role, as dbdp_owner."""
    check_not_null(former=former)
    identities.confirm(session, former, role)


@refusing(in_own_transaction, session.as_owner)
def retire_role(former: str) -> None:
    """dbdp.retire_role, as dbdp_owner."""
    check_not_null(former=former)
    identities.retire(session, former)


@refusing(in_own_transaction, session.as_owner)
def renew_budget(name: str, reason: str, epsilon: float | None, delta: float | None, capacity: int | None) -> None:
    """dbdp.renew_budget, as dbdp_owner."""
    check_not_null(dataset=name, reason=reason)
    changes.renew(session, name, reason, epsilon, delta, capacity)


@refusing(in_own_transaction, session.as_owner)
def raise_capacity(name: str, reason: str, capacity: int) -> None:
    """dbdp.raise_capacity, as dbdp_owner."""
    check_not_null(dataset=name, reason=reason, capacity=capacity)
    changes.raise_capacity(session, name, reason, capacity)


@refusing(in_own_transaction, session.as_owner)
def answer_at_multiples(name: str, reason: str, seconds: int | None) -> None:
    """dbdp.answer_at_multiples, as dbdp_owner."""
    check_not_null(dataset=name, reason=reason)
    changes.answer_at_multiples(session, name, reason, seconds)


@refusing(in_own_transaction, session.as_owner)
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
    check_not_null(dataset=name, reason=reason)
    corrections = {
        "features": None if features is None else json_value("features", features),
        "positive": positive,
        "negative": negative,
        "classes": classes,
        "label_bounds": label_bounds,
    }
    changes.redeclare(session, name, reason, corrections)


@refusing(session.as_owner)
def budget(name: str, release_delta: float | None, release_epsilon: float | None) -> dict[str, Any]:
    """dbdp.budget, as dbdp_owner."""
    check_not_null(dataset=name)
    return budgets.budget(session, name, release_delta, release_epsilon)


@refusing(session.as_owner)
def check_ledger() -> list[dict[str, Any]]:
    """dbdp.check_ledger, as dbdp_owner."""
    return budgets.check(session)


def allowance_spent(allowance: int, release_delta: float | None = None) -> dict[str, Any]:
    """dbdp_internal.allowance_spent, as dbdp_owner; to code with another role's rights it returns nulls."""
    try:
        check_caller()
    except PermissionError:
        return budgets.UNKNOWN
    with session.as_owner():
        return budgets.allowance_spent(session, allowance, release_delta)


def dataset_spent(dataset_id: int) -> dict[str, Any]:
    """dbdp_internal.dataset_spent, as dbdp_owner; to code with another role's rights it returns nulls."""
    try:
        check_caller()
    except PermissionError:
        return budgets.UNKNOWN_SHARES
    with session.as_owner():
        return budgets.dataset_spent(session, dataset_id)


@interface(in_own_transaction)
def check_rows(name: str) -> None:
    """dbdp_internal.check_rows, with the caller's rights."""
    check_not_null(dataset=name)
    session.check_rows(datasets.load(session, name))


@interface(in_own_transaction, session.as_owner)
def charge(name: str, plan: str) -> dict[str, Any]:
    """dbdp_internal.charge, as dbdp_owner."""
    check_not_null(plan=plan)
    dataset = datasets.load(session, name)
    register.check_may_read(session, dataset.source)
    charged = session.charge(dataset, json_object("plan", plan))
    return {"ledger_id": charged.ledger, "wal_position": charged.position}


@interface(in_own_transaction, session.as_owner)
def record_outcome(ledger_id: int, outcome: str, detail: str | None) -> None:
    """dbdp_internal.record_outcome, as dbdp_owner."""
    check_not_null(ledger_id=ledger_id, outcome=outcome)
    ledger.record_outcome(session, ledger_id, outcome, detail)


@interface(in_own_transaction)
def shuffle(name: str, table: str, options: str) -> None:
    """dbdp_internal.shuffle, with the caller's rights."""
    check_not_null(blocks=table, options=options)
    dataset, share = datasets.load(session, name), Share.from_data(json_value("options", options))
    blocks_table = named(session, "blocks", table, "block_no int8, block bytea")
    shuffle_and_pack(session, dataset, blocks_table, share)


@interface()
def check_room(rows: int, dimension: int, staged: int, sessions: int) -> None:
    """dbdp_internal.check_room, of the caller's session."""
    check_not_null(rows=rows, dimension=dimension, staged=staged, sessions=sessions)
    parallel.threads_of(session)  # refuses a wrong setting
    if record_store.planned():
        gc.collect()  # a cancel may have left a file open that nobody uses
    room.check(session, rows, dimension, staged, sessions, (resident.size(), record_store.planned()))


@interface()
def forget_blocks(table: str) -> None:
    """dbdp_internal.forget_blocks: free the memory that the caller's own session holds for a table."""
    check_not_null(blocks=table)
    resident.forget(table_name(table))


@interface(in_own_transaction)
def rows_by_pages(name: str) -> dict[str, Any]:
    """dbdp_internal.rows_by_pages, with the caller's rights."""
    pages, rows = records.counted_by_pages(session, datasets.load(session, name), pack_memory(session))
    return {"pages": pages, "rows": rows}


@interface(in_own_transaction)
def records_on_pages(name: str, first: int, last: int) -> bytes:
    """dbdp_internal.records_on_pages, with the caller's rights."""
    check_not_null(first=first, last=last)
    return records.on_pages(session, datasets.load(session, name), first, last, pack_memory(session))


@interface()
def recursive_stages(table: str, model: bytes, centre: bytes, objective: str, stages: str) -> bytes:
    """dbdp_internal.recursive_stages, with the caller's rights."""
    check_not_null(blocks=table, model=model, centre=centre, objective=objective, stages=stages)
    parsed, how = objective_from(objective), _stages(stages)
    begin, middle = np.frombuffer(model, "<f8"), np.frombuffer(centre, "<f8")
    if not isinstance(parsed, Linear) or {len(begin), len(middle)} != {parsed.parameters}:
        raise ValueError(
            f"model and centre have {len(begin)} and {len(middle)} numbers; pass as many as a linear objective has"
        )
    blocks_table = named(session, "blocks", table, "block_no int8, block bytea")
    return sampling.recursive_stages(session, blocks_table, parsed, begin, middle, how).tobytes()


def _stages(text: str) -> RecursiveStages:
    """Return the stages of a JSON argument."""
    try:
        return RecursiveStages(**json_object("stages", text))
    except TypeError:
        raise ValueError(
            "stages must have the numbers stages, steps, step, regularisation and rows; pass only these"
        ) from None


@interface()
def table_rows(source: str, vector: str | None, limit: int | None) -> list[dict[str, Any]]:
    """dbdp_internal.table_rows, with the caller's rights."""
    check_not_null(source=source)
    return reading.shown(session, source, vector, limit)


@interface()
def resume(name: str) -> Iterator[bytes]:
    """dbdp_internal.resume, with the caller's rights."""
    return guarded_reads.resumed(name)


def receive(name: str, piece: bytes | None) -> bool:
    """dbdp_internal.receive, as the owner of a table that is read, for each of its pages or rows."""
    try:
        call = guarded_reads.receiver(name)
    except ValueError as error:
        text = str(error)
    else:
        return call(piece)
    raise InterfaceError(text, PUBLIC_SQLSTATE)


@interface(in_own_transaction, session.as_owner)
def store_release(name: str, coefficients: list[Any], intercepts: list[float], receipt: str) -> str:
    """dbdp_internal.store_release, as dbdp_owner."""
    check_not_null(coefficients=coefficients, intercepts=intercepts, receipt=receipt)
    dataset = datasets.load(session, name)
    register.check_may_read(session, dataset.source)
    return json.dumps(session.store_release(dataset, coefficients, intercepts, client_receipt(receipt)))


@interface(in_own_transaction, session.as_owner)
def store_network(name: str, network: str, parameters: list[float], receipt: str) -> str:
    """dbdp_internal.store_network, as dbdp_owner."""
    check_not_null(network=network, parameters=parameters, receipt=receipt)
    dataset = datasets.load(session, name)
    register.check_may_read(session, dataset.source)
    checked = client_receipt(receipt)
    return json.dumps(session.store_network(dataset, json_object("network", network), parameters, checked))


@interface(in_own_transaction)
def group_sizes(dataset: str, group_by: str, groups: list[str]) -> list[int]:
    """dbdp_internal.group_sizes, with the caller's rights."""
    check_not_null(group_by=group_by, groups=groups)
    return grouping.count(session, datasets.load(session, dataset), group_by, groups)


@interface(in_own_transaction)
def deal_groups(dataset: str, table: str, group_by: str, groups: list[str], sizes: list[int]) -> None:
    """dbdp_internal.deal_groups, with the caller's rights."""
    check_not_null(target=table, group_by=group_by, groups=groups, sizes=sizes)
    loaded, target = datasets.load(session, dataset), named(session, "target", table, grouping.COLUMNS)
    grouping.distribute(session, loaded, target, group_by, groups, sizes)


@refusing(in_own_transaction, session.as_owner)
def dp_train(dataset: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_train, as dbdp_owner."""
    return released(requests.train(session, dataset, training_request(values)))


@refusing(in_own_transaction, session.as_owner)
def dp_logreg(dataset: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_logreg, as dbdp_owner."""
    return released(requests.train(session, dataset, training_request(values, loss="logistic", huber_width=None)))


@refusing(in_own_transaction, session.as_owner)
def dp_svm(dataset: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_svm, as dbdp_owner."""
    return released(requests.train(session, dataset, training_request(values, loss="huber_svm")))


@refusing(in_own_transaction, session.as_owner)
def dp_linreg(dataset: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_linreg, as dbdp_owner."""
    check_regression(datasets.load(session, dataset))
    return released(requests.train(session, dataset, training_request(values, positive_weight=1.0)))


@refusing(session.as_owner)
def dp_explain(dataset: str, *values: Any) -> str:
    """dbdp.dp_explain, as dbdp_owner."""
    return shown(requests.explain(session, dataset, training_request(values)))


@refusing(in_own_transaction, session.as_owner)
def dp_tune(dataset: str, candidates: str, *values: Any) -> dict[str, Any]:
    """dbdp.dp_tune, as dbdp_owner."""
    return released(requests.tune(session, dataset, tuning_request(candidates, values)))


@refusing(session.as_owner)
def dp_explain_tuning(dataset: str, candidates: str, *values: Any) -> str:
    """dbdp.dp_explain_tuning, as dbdp_owner."""
    return shown(requests.explain(session, dataset, tuning_request(candidates, values)))


@refusing(in_own_transaction, session.as_owner)
def dp_train_groups(dataset: str, group_by: str, groups: list[str], *values: Any) -> list[dict[str, Any]]:
    """dbdp.dp_train_groups, as dbdp_owner."""
    models = requests.train_groups(session, dataset, groups_request(group_by, groups, values))
    return [{"group": group} | released(model) for group, model in models.items()]


@refusing(session.as_owner)
def dp_explain_groups(dataset: str, group_by: str, groups: list[str], *values: Any) -> str:
    """dbdp.dp_explain_groups, as dbdp_owner."""
    return shown(requests.explain_groups(session, dataset, groups_request(group_by, groups, values)))


@refusing(in_own_transaction, session.as_owner)
def dp_score(
    model: int | str, dataset: str, metric: str, epsilon: float, delta: float, bins: int, *optional: str | None
) -> str:
    """dbdp.dp_score, as dbdp_owner."""
    check_not_null(model=model, dataset=dataset, metric=metric, epsilon=epsilon, delta=delta, bins=bins)
    return shown(noisy_scores.score(session, model, dataset, ScoreRequest(metric, epsilon, delta, bins, *optional)))


@refusing(in_own_transaction, session.as_owner)
def evaluate(
    model: int | str, dataset: str, epsilon: float, delta: float, bins: int, threshold: float, cohort: str | None
) -> list[dict[str, Any]]:
    """dbdp.evaluate, as dbdp_owner."""
    how: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "bins": bins, "threshold": threshold}
    check_not_null(model=model, dataset=dataset, **how)
    return noisy_scores.evaluate(session, model, dataset, **how, cohort=cohort)


@refusing(session.as_owner)
def dp_explain_score(dataset: str, metric: str, epsilon: float, delta: float, bins: int, *optional: str | None) -> str:
    """dbdp.dp_explain_score, as dbdp_owner."""
    check_not_null(dataset=dataset, metric=metric, epsilon=epsilon, delta=delta, bins=bins)
    return shown(noisy_scores.explain(session, dataset, ScoreRequest(metric, epsilon, delta, bins, *optional)))


@refusing(in_own_transaction, session.as_owner)
def dp_bounds(dataset: str, column: str, epsilon: float, delta: float, beta: float) -> str:
    """dbdp.dp_bounds, as dbdp_owner."""
    check_not_null(dataset=dataset, column_name=column, epsilon=epsilon, delta=delta, beta=beta)
    return in_lines(noisy_scores.bounds(session, dataset, column, epsilon=epsilon, delta=delta, beta=beta))


@refusing(in_own_transaction, session.as_owner)
def dp_class_balance(dataset: str, epsilon: float, delta: float) -> str:
    """dbdp.dp_class_balance, as dbdp_owner."""
    check_not_null(dataset=dataset, epsilon=epsilon, delta=delta)
    return in_lines(noisy_scores.class_balance(session, dataset, epsilon=epsilon, delta=delta))


@refusing(in_own_transaction, session.as_owner)
def dp_summarize(dataset: str, epsilon: float, delta: float, bins: str | None, cohort: str | None) -> dict[str, Any]:
    """dbdp.dp_summarize, as dbdp_owner."""
    check_not_null(dataset=dataset, epsilon=epsilon, delta=delta)
    divided = None if bins is None else json_value("bins", bins)
    how: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "bins": divided, "cohort": cohort}
    stored = summary_requests.summarize(session, dataset, **how)
    receipt = stored["receipt"]
    return {"summary": stored["id"], "coordinates": receipt["coordinates"], "noise_scale": receipt["noise_scale"]}


@refusing()
def summary_linreg(summary: int, target: str, features: list[str] | None, regularisation: float | None) -> str:
    """dbdp.summary_linreg, with the caller's rights."""
    check_not_null(summary=summary, target=target)
    return in_lines(summary_requests.linreg(session, summary, target, features, regularisation))


@refusing()
def summary_pca(summary: int, components: int) -> str:
    """dbdp.summary_pca, with the caller's rights."""
    check_not_null(summary=summary, components=components)
    return in_lines(summary_requests.pca(session, summary, components))


@refusing()
def summary_correlations(summary: int) -> str:
    """dbdp.summary_correlations, with the caller's rights."""
    check_not_null(summary=summary)
    return in_lines(summary_requests.correlations(session, summary))
