"""The request, in the order of the proof: plan, charge, shuffle, epochs, release.

One controller runs in the server and in a client; only the session differs. Nothing after the charge
raises, reports or branches because of a row's value.
"""

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dbdp import access, algorithms, datasets, dealing, network_models, packing, parts, releases
from dbdp.algorithms import Facts, Plan, Request, WhiteBox, groups, settings, tuning
from dbdp.algorithms.access import Progress, silent
from dbdp.algorithms.groups import GroupsPlan, GroupsRequest
from dbdp.algorithms.tuning import TuningPlan, TuningRequest
from dbdp.charging import check_trainable, explained, paid_for
from dbdp.datasets import Dataset
from dbdp.errors import ChargedError as ChargedError  # noqa: PLC0414  (a public name)
from dbdp.facts import facts, projection_of, shuffle_options
from dbdp.learning.networks import Network
from dbdp.receipts import Receipt
from dbdp.sessions import Session
from dbdp.training import exact_models

Answer = tuple[np.ndarray, dict[str, Any]]  # the noisy models, and what else the receipt says


def explain(session: Session, name: str, request: Request) -> dict[str, Any]:
    """Return the plan of a request and what it would be charged; nothing is read or spent."""
    dataset = datasets.load(session, name)
    plan = algorithms.plan(request, facts(dataset, request))
    return explained(dataset, plan.explain(), plan.guarantee)


def explain_tuning(session: Session, name: str, request: TuningRequest) -> dict[str, Any]:
    """Return the plan of a tuning and what it would be charged; nothing is read or spent."""
    dataset = datasets.load(session, name)
    plan = tuning.plan(request, facts(dataset, request.base))
    return explained(dataset, plan.explain(), plan.guarantee)


def explain_groups(session: Session, name: str, request: GroupsRequest) -> dict[str, Any]:
    """Return the plan of each group and what all would be charged; the public key is counted, and nothing spent."""
    dataset = datasets.load(session, name)
    plan = _plan_groups(session, dataset, request)
    return explained(dataset, plan.explain(), plan.guarantee) | {"plans": plan.explain_each()}


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
    plan = algorithms.plan(request, facts(dataset, request))

    def answer() -> Answer:
        return _noisy_model(session, dataset, plan, progress), {}

    _check_network(dataset, request)
    return _charged(session, dataset, request, Receipt.of(dataset, plan.explain(), plan.guarantee), answer)


def train_groups(
    session: Session, name: str, request: GroupsRequest, progress: Progress = silent
) -> dict[str, releases.Model]:
    """Train a private model on each group of a public key, for one charge, and release all of them at once.

    Returns the models by group; raises as `train` does. A group is trained like a dataset.
    """
    dataset = datasets.load(session, name)
    plan = _plan_groups(session, dataset, request)
    _check_network(dataset, request.base)
    receipt = Receipt.of(dataset, plan.explain(), plan.guarantee)

    def answer() -> list[np.ndarray]:
        return _noisy_models_of_groups(session, dataset, plan, progress)

    def store(found: list[np.ndarray], paid: Receipt) -> dict[str, releases.Model]:
        receipts = [replace(paid, plan=of_group) for of_group in plan.explain_each()]
        with session.at_once():
            made = [_store(session, dataset, request.base, *each) for each in zip(found, receipts, strict=True)]
        return dict(zip(request.groups, made, strict=True))

    here = replace(request.base, shards=1)  # the shards of a group are trained in this session
    check_trainable(session, dataset, here)
    return paid_for(session, dataset, receipt, answer, store)


def _plan_groups(session: Session, dataset: Dataset, request: GroupsRequest) -> GroupsPlan:
    sizes = dealing.sizes(session, dataset, request.group_by, request.groups)
    return groups.plan(request, facts(dataset, request.base), sizes)


def _noisy_models_of_groups(
    session: Session, dataset: Dataset, plan: GroupsPlan, progress: Progress
) -> list[np.ndarray]:
    """Return the noisy models of the groups; the table is read once. What no row has, is not trained."""

    def model(place: int, group: Dataset) -> np.ndarray:
        own = plan.plans[place]
        found = plan.untrained if own is None else _noisy_model(session, group, own, silent)
        progress("group", place + 1, len(plan.plans))
        return found

    packing.keep_blocks_at_hand(session, max(plan.sizes), plan.facts.dimension)
    progress("group", 0, len(plan.plans))
    return dealing.each(session, dataset, plan.request, plan.sizes, model)


def tune(session: Session, name: str, request: TuningRequest, progress: Progress = silent) -> releases.Model:
    """Choose among settings privately, and release the chosen model once; raises as `train` does."""
    dataset = datasets.load(session, name)
    plan = tuning.plan(request, facts(dataset, request.base))
    run = _repeated if plan.repetitions else _disjoint

    def answer() -> Answer:
        options = shuffle_options(request.base)
        dimension = plan.plans[0].facts.dimension
        with parts.shuffled(
            session, dataset, plan.portions, dimension=dimension, options=options, progress=progress
        ) as shuffled:
            chosen, model = run(plan, shuffled, progress)
        return model, {"chosen": chosen}

    return _charged(session, dataset, request.base, Receipt.of(dataset, plan.explain(), plan.guarantee), answer)


def _noisy_model(session: Session, dataset: Dataset, plan: Plan | WhiteBox, progress: Progress) -> np.ndarray:
    """Return the noisy models, of exact ones, or noised while they were trained.

    They have shape (outputs, dimension); a network is a vector of its parameters.
    """
    if isinstance(plan, Plan):
        exact = exact_model(session, dataset, plan, progress)
        return plan.mechanism.release(exact.ravel()).reshape(exact.shape)
    dimension, options = plan.facts.dimension, shuffle_options(plan.request)
    with access.packed_rows(session, dataset, dimension=dimension, options=options, progress=progress) as rows:
        found = plan.run(rows, progress)
    return found if plan.request.network is not None else found.reshape(plan.facts.shape)


def exact_model(session: Session, dataset: Dataset, plan: Plan, progress: Progress) -> np.ndarray:
    """Return the exact models, shape (outputs, dimension)."""
    sizes, options = plan.learning.shard_rows, shuffle_options(plan.request)
    dimension = plan.facts.dimension
    progress("shuffle", 0, 1)
    with parts.spread(session, dataset, sizes, dimension=dimension, options=options, progress=progress) as shuffled:
        progress("shuffle", 1, 1)
        return exact_models(shuffled, plan, progress)


def _charged(
    session: Session, dataset: Dataset, request: Request, receipt: Receipt, answer: Callable[[], Answer]
) -> releases.Model:
    """Charge, compute the answer, and store the release with its receipt."""

    def store(answered: Answer, paid: Receipt) -> releases.Model:
        models, notes = answered
        return _store(session, dataset, request, models, paid.noting(notes))

    check_trainable(session, dataset, request)
    return paid_for(session, dataset, receipt, answer, store)


def _store(
    session: Session, dataset: Dataset, request: Request, models: np.ndarray, receipt: Receipt
) -> releases.Model:
    if request.network is None:
        return releases.store(session, dataset, models, receipt.as_data(), projection_of(request))
    network = _network(request, facts(dataset, request))
    return releases.store_network(session, dataset, network, models, receipt.as_data(), projection_of(request))


def _check_network(dataset: Dataset, request: Request) -> None:
    if request.network is not None:
        network = _network(request, facts(dataset, request))
        network_models.check(dataset.declaration, network, projection_of(request))


def _network(request: Request, facts: Facts) -> Network:
    network = settings.objective_of(request, facts)
    if not isinstance(network, Network):
        raise AssertionError("a request that names a network has one as its objective")
    return network


def _disjoint(plan: TuningPlan, shuffled: parts.Shuffled, progress: Progress) -> tuple[int | None, np.ndarray]:
    """Algorithm 3: each candidate on its own portion, the choice by the errors on the last one."""
    *trained, scored = shuffled.parts
    models = []
    for number, (part, candidate) in enumerate(zip(trained, plan.plans, strict=True)):
        models.append(_noisy(candidate, part))
        progress("candidate", number + 1, len(trained))
    errors = [scored.errors(model) for model in models]
    if plan.selection is None:
        raise AssertionError("disjoint portions are chosen among by the exponential mechanism")
    chosen = plan.selection.choose(errors)
    return chosen, models[chosen]


def _repeated(plan: TuningPlan, shuffled: parts.Shuffled, progress: Progress) -> tuple[int | None, np.ndarray]:
    """The best by noisy score of a secret number of runs; the others run too, so that time tells nothing."""
    if plan.repetitions is None or plan.score is None:
        raise AssertionError("a random repetition has a law of runs and a score")
    trained, scored = shuffled.parts
    counted, passes = plan.repetitions.draw(), max(each.learning.epochs for each in plan.plans)
    best: tuple[float, int | None, np.ndarray] = (float("inf"), None, np.zeros(plan.facts.shape))
    for run in range(plan.repetitions.cap):
        candidate = secrets.randbelow(len(plan.plans))
        model = _noisy(plan.plans[candidate], trained)
        _read_on(plan.plans[candidate], trained, passes)
        errors = np.array([float(scored.errors(model))])
        outcome = (float(plan.score.release(errors)[0]), candidate, model)
        best = min(best, outcome, key=lambda each: each[0]) if run < counted else best
        progress("candidate", run + 1, plan.repetitions.cap)
    return best[1:]


def _noisy(plan: Plan, part: parts.Part) -> np.ndarray:
    exact = exact_models(parts.Shuffled([part], []), plan)
    return plan.mechanism.release(exact.ravel()).reshape(exact.shape)


def _read_on(plan: Plan, part: parts.Part, passes: int) -> None:
    """Make the passes that a candidate with fewer epochs leaves out: how many there are tells nobody which ran."""
    left = passes - plan.learning.epochs
    if left:
        exact_models(parts.Shuffled([part], []), replace(plan, learning=replace(plan.learning, epochs=left)))
