"""Runs requests in the order of the proof: plan, charge, shuffle, epochs, release.

The same code runs in the server and in a client; only the session differs. After the charge nothing raises, reports or
branches because of a row's value.
"""

from contextlib import closing
from dataclasses import replace
from typing import Any

from dbdp import algorithms
from dbdp.algorithms import Request
from dbdp.algorithms.plan import Released
from dbdp.algorithms.rows import Progress, silent
from dbdp.algorithms.several import groups, tuning
from dbdp.algorithms.several.groups import GroupsPlan, GroupsRequest
from dbdp.algorithms.several.tuning import TuningRequest
from dbdp.controller import release
from dbdp.controller.charging import answering, charged, check_trainable, explained
from dbdp.controller.facts import paired, paired_for_several
from dbdp.controller.receipts import Receipt
from dbdp.controller.rows import packed_rows
from dbdp.controller.summaries import known
from dbdp.packing import grouping
from dbdp.privacy.accounting.events import Release
from dbdp.registry import datasets
from dbdp.registry.datasets import Dataset
from dbdp.registry.releases import Model
from dbdp.sessions.session import Session


def explain(session: Session, name: str, request: Request) -> dict[str, Any]:
    """Return the plan of a request and its charge; read no row and spend nothing."""
    dataset, request = paired(datasets.load(session, name), request)
    plan = algorithms.plan(request, known(session, dataset, request))
    return explained(dataset, plan.explain() | request.naming, plan.guarantee)


def guarantee(session: Session, name: str, request: Request) -> Release:
    """Return the guarantee that a planned request would charge; read no row and spend nothing."""
    dataset, request = paired(datasets.load(session, name), request)
    return algorithms.plan(request, known(session, dataset, request)).guarantee


def explain_tuning(session: Session, name: str, request: TuningRequest) -> dict[str, Any]:
    """Return the plan of a tuning and its charge; read no row and spend nothing."""
    dataset, base = paired_for_several(datasets.load(session, name), request.base)
    request = replace(request, base=base)
    plan = tuning.plan(request, known(session, dataset, request.base))
    return explained(dataset, plan.explain() | request.base.naming, plan.guarantee)


def explain_groups(session: Session, name: str, request: GroupsRequest) -> dict[str, Any]:
    """Return the plan of each group and the charge for all; count a public key, and spend nothing."""
    dataset, base = paired_for_several(datasets.load(session, name), request.base)
    request = replace(request, base=base)
    plan = _plan_groups(session, dataset, request)
    return explained(dataset, plan.explain(), plan.guarantee) | {"plans": plan.explain_each()}


def train(session: Session, name: str, request: Request, progress: Progress = silent) -> Model:
    """Train a private model on a registered dataset, and release it once.

    Raises
    ------
    ValueError
        Before anything is spent: the request, the dataset or the budget does not allow it.
    ChargedError
        After the charge: the server failed, or the training was cancelled.
    """
    dataset, request = paired(datasets.load(session, name), request)
    plan = algorithms.plan(request, known(session, dataset, request))
    receipt = Receipt.of(dataset, plan.explain() | request.naming, plan.guarantee)
    check_trainable(session, dataset, plan.request)
    with charged(session, dataset, receipt) as charge:
        with answering(session, dataset, charge), packed_rows(session, dataset, plan.layout, progress) as rows:
            released = release.with_standard_errors(dataset, request, plan.run(rows, progress))
        return release.store(session, dataset, request, released, receipt.charged(charge.ledger))


def tune(session: Session, name: str, request: TuningRequest, progress: Progress = silent) -> Model:
    """Choose among settings privately, and release the chosen model once; raises as `train` does."""
    dataset, base = paired_for_several(datasets.load(session, name), request.base)
    request = replace(request, base=base)
    plan = tuning.plan(request, known(session, dataset, request.base))
    receipt = Receipt.of(dataset, plan.explain() | request.base.naming, plan.guarantee)
    check_trainable(session, dataset, request.base)
    with charged(session, dataset, receipt) as charge:
        with answering(session, dataset, charge), packed_rows(session, dataset, plan.layout, progress) as rows:
            chosen, models = plan.run(rows, progress)
        receipt = receipt.noting({"chosen": chosen}).charged(charge.ledger)
        return release.store(session, dataset, request.base, Released(models), receipt)


def train_groups(session: Session, name: str, request: GroupsRequest, progress: Progress = silent) -> dict[str, Model]:
    """Train a private model on each group of a key, for one charge, and release all of them together.

    A group is trained like a dataset. Return the models by group; raises as `train` does.
    """
    dataset, base = paired_for_several(datasets.load(session, name), request.base)
    request = replace(request, base=base)
    plan = _plan_groups(session, dataset, request)
    receipt = Receipt.of(dataset, plan.explain(), plan.guarantee)
    check_trainable(session, dataset, replace(request.base, shards=1))  # a group's shards are trained in this session
    with charged(session, dataset, receipt) as charge:
        with answering(session, dataset, charge):
            released = _releases_of_groups(session, dataset, plan, progress)
        paid = receipt.charged(charge.ledger)
        receipts = [paid.of_group(of_group) for of_group in plan.explain_each()]
        with session.atomic():
            models = [
                release.store(session, dataset, request.base, *each) for each in zip(released, receipts, strict=True)
            ]
        return dict(zip(request.groups, models, strict=True))


def _plan_groups(session: Session, dataset: Dataset, request: GroupsRequest) -> GroupsPlan:
    if session.engine is not None:
        raise ValueError("groups are trained in PostgreSQL alone; register the rows of each group as a dataset")
    sizes = grouping.sizes(session, dataset, request.group_by, request.groups)
    facts, is_private = known(session, dataset, request.base), grouping.is_private(dataset, request.group_by)
    return groups.plan(request, facts, sizes, is_private=is_private)


def _releases_of_groups(session: Session, dataset: Dataset, plan: GroupsPlan, progress: Progress) -> list[Released]:
    """Return the noisy models of the groups; a group without a row is not trained."""
    released: list[Released] = []
    progress("group", 0, len(plan.plans))
    with closing(grouping.each_group(session, dataset, plan.request, plan.sizes)) as datasets_of_groups:
        for group, own in zip(datasets_of_groups, plan.plans, strict=True):
            base = plan.request.base
            released.append(Released(plan.untrained) if own is None else _model_of_group(session, group, base, own))
            progress("group", len(released), len(plan.plans))
    return released


def _model_of_group(session: Session, group: Dataset, base: Request, plan: algorithms.Plan) -> Released:
    with packed_rows(session, group, plan.layout) as rows:
        return release.with_standard_errors(group, base, plan.run(rows))
