"""Runs requests in the order of the proof: plan, charge, shuffle, epochs, release.

The same code runs in the server and in a client; only the session differs. After the charge nothing raises, reports or
branches because of a row's value.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dbdp import algorithms
from dbdp.algorithms import Facts, Request
from dbdp.algorithms.combined import groups, tuning
from dbdp.algorithms.combined.groups import GroupsPlan, GroupsRequest
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.algorithms.plan import Released
from dbdp.algorithms.rows import Progress, silent
from dbdp.controller import storing
from dbdp.controller.charging import answering, charged, check_trainable, explained
from dbdp.controller.facts import coded, coded_for_several, within
from dbdp.controller.packed_rows import PackedRows, packed_rows
from dbdp.controller.receipts import Receipt
from dbdp.controller.statistics.summary_requests import known
from dbdp.packing import grouping
from dbdp.privacy.accounting.events import Release
from dbdp.registry import datasets
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.results.models import ReleasedModel
from dbdp.sessions.session import LedgerCharge, Session


@dataclass(frozen=True)
class Planned:
    """A request on a dataset with its plan, from public facts only."""

    dataset: RegisteredDataset  # with the pairs of columns of the request
    request: Request  # of each training run
    plan: Any
    checked: Request  # what table and session must fit
    described: dict[str, Any]  # the plan as users see it

    @classmethod
    def of(cls, session: Session, name: str, request: Request | TuningRequest | GroupsRequest) -> "Planned":
        """Plan a request; read no row and spend nothing."""
        cohort = request.cohort if isinstance(request, Request) else request.base.cohort
        dataset = within(session, datasets.load(session, name), cohort)
        if isinstance(request, Request):
            dataset, request = coded(dataset, request)
            plan = algorithms.plan(request, known(session, dataset, request))
            return cls(dataset, request, plan, plan.request, plan.explain() | request.naming)
        dataset, base = coded_for_several(dataset, request)
        facts, request = known(session, dataset, base), replace(request, base=base)
        if isinstance(request, TuningRequest):
            choice = tuning.tuning_plan(request, facts)
            return cls(dataset, base, choice, base, choice.explain() | base.naming)
        models = _plan_groups(session, dataset, request, facts)
        return cls(dataset, base, models, replace(base, shards=1), models.explain())  # one session trains a group

    def explained(self) -> dict[str, Any]:
        """Return the plan and its cost."""
        return explained(self.dataset, self.described, self.plan.guarantee)

    @contextmanager
    def charged(self, session: Session) -> Iterator[tuple[LedgerCharge, Receipt]]:
        """Check and charge the request before the first row is read; the block computes and stores the release."""
        receipt = Receipt.of(self.dataset, self.described, self.plan.guarantee)
        sizes = self.plan.sizes if isinstance(self.plan, GroupsPlan) else ()
        staged = grouping.staged_bytes(session, self.dataset, sizes)
        check_trainable(session, self.dataset, self.checked, self.plan.layout, staged=staged)
        with charged(session, self.dataset, receipt) as charge:
            yield charge, receipt.charged(charge.ledger)

    @contextmanager
    def rows(self, session: Session, charge: LedgerCharge, progress: Progress) -> Iterator[PackedRows]:
        """Yield the rows; leave the block at the time at which the release may be shown."""
        packed = packed_rows(session, self.dataset, self.plan.layout, progress)
        with answering(session, self.dataset, charge), packed as rows:
            yield rows


def explain(session: Session, name: str, request: Request | TuningRequest) -> dict[str, Any]:
    """Return the plan of a request and its charge; read no row and spend nothing."""
    return Planned.of(session, name, request).explained()


def guarantee(session: Session, name: str, request: Request) -> Release:
    """Return the guarantee that a planned request would charge; read no row and spend nothing."""
    planned: Release = Planned.of(session, name, request).plan.guarantee
    return planned


def explain_groups(session: Session, name: str, request: GroupsRequest) -> dict[str, Any]:
    """Return the plan of each group and the charge for all; count a public key, and spend nothing."""
    job = Planned.of(session, name, request)
    return job.explained() | {"plans": job.plan.explain_each()}


def train(session: Session, name: str, request: Request, progress: Progress = silent) -> ReleasedModel:
    """Train a private model on a registered dataset, and release it once.

    Raise ValueError before anything is spent: the request, the dataset or the budget does not allow it. Raise
    ChargedError after the charge: the server failed, or the training was cancelled.
    """
    job = Planned.of(session, name, request)
    with job.charged(session) as (charge, receipt):
        with job.rows(session, charge, progress) as rows:
            released = job.plan.run(rows, progress)
            dataset = storing.with_chosen(job.dataset, job.request, released)
            released = storing.with_standard_errors(dataset, job.request, released)
        return storing.store(session, dataset, job.request, released, receipt)


def tune(session: Session, name: str, request: TuningRequest, progress: Progress = silent) -> ReleasedModel:
    """Choose among settings privately, and release the chosen model once; raises as `train` does."""
    job = Planned.of(session, name, request)
    with job.charged(session) as (charge, receipt):
        with job.rows(session, charge, progress) as rows:
            chosen, released = job.plan.run(rows, progress)
            released = storing.with_standard_errors(job.dataset, job.request, released)
        return storing.store(session, job.dataset, job.request, released, receipt.noting({"chosen": chosen}))


def train_groups(
    session: Session, name: str, request: GroupsRequest, progress: Progress = silent
) -> dict[str, ReleasedModel]:
    """Train a private model on each group of a key, for one charge, and release all of them together.

    A group is trained like a dataset. Return the models by group; raises as `train` does.
    """
    job = Planned.of(session, name, request)
    with job.charged(session) as (charge, receipt):
        with answering(session, job.dataset, charge):
            released = _releases_of_groups(session, job.dataset, job.plan, progress)
        receipts = [receipt.of_group(of_group) for of_group in job.plan.explain_each()]
        with session.atomic():
            models = [
                storing.store(session, job.dataset, job.request, *each) for each in zip(released, receipts, strict=True)
            ]
        return dict(zip(request.groups, models, strict=True))


def _plan_groups(session: Session, dataset: RegisteredDataset, request: GroupsRequest, facts: Facts) -> GroupsPlan:
    if session.engine is not None:
        raise ValueError("groups are trained only in PostgreSQL; register the rows of each group as a dataset")
    if dataset.cohort is not None:
        raise ValueError(
            f"cohort = {request.base.cohort!r} is for one model, and groups are trained on all of their rows; leave it "
            "out, or train a model of the cohort with dbdp.dp_train"
        )
    sizes = grouping.sizes(session, dataset, request.group_by, request.groups)
    return groups.groups_plan(request, facts, sizes, is_private=grouping.is_private(dataset, request.group_by))


def _releases_of_groups(
    session: Session, dataset: RegisteredDataset, plan: GroupsPlan, progress: Progress
) -> list[Released]:
    """Return the noisy models of the groups; a group without a row is not trained."""
    released: list[Released] = []
    progress("group", 0, len(plan.plans))
    with closing(grouping.each_group(session, dataset, plan.request, plan.sizes)) as datasets_of_groups:
        for group, own in zip(datasets_of_groups, plan.plans, strict=True):
            base = plan.request.base
            released.append(Released(plan.untrained) if own is None else _model_of_group(session, group, base, own))
            progress("group", len(released), len(plan.plans))
    return released


def _model_of_group(session: Session, group: RegisteredDataset, base: Request, plan: algorithms.Plan) -> Released:
    with packed_rows(session, group, plan.layout) as rows:
        return storing.with_standard_errors(group, base, plan.run(rows))
