"""Groups: one model for each value of a key, for one charge; the key is public, or a private categorical feature.

privacy.md §11.10. Shapes: models (outputs, dimension), or the parameters of a network (P,).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dbdp.algorithms import catalogue
from dbdp.algorithms.plan import AUTO, Facts, Plan, Request
from dbdp.algorithms.rows import Layout
from dbdp.algorithms.settings import check_numbers, check_request, objective_of
from dbdp.privacy.accounting.events import REPLACE_ONE, DisjointDpEvent, Release, SelfComposedDpEvent

MOST_GROUPS = 10_000


@dataclass(frozen=True)
class GroupsRequest:
    """A request for one model for each value of a column."""

    base: Request  # the request of every group; its ε and δ hold for each model, and for all together
    group_by: str  # a public column of the dataset, or a categorical feature of a dataset with a capacity
    groups: tuple[str, ...]  # the values for which models are trained; the user declares them

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The one by which the encoding is chosen: `auto` learns no curves of groups, as nothing was measured there."""
        return (catalogue.USUAL if self.base.algorithm == AUTO else self.base.algorithm,)


@dataclass(frozen=True)
class GroupsPlan:
    """The plan of a training by groups: `plans` has one for each group, None for a group without rows.

    With a private key (`is_private`) a record may change its group, and `guarantee` covers both of them.
    """

    request: GroupsRequest
    facts: Facts
    sizes: tuple[int, ...]
    plans: tuple[Plan | None, ...]
    guarantee: Release
    is_private: bool = False

    @property
    def _key(self) -> dict[str, Any]:
        """What a private key costs, as an entry of the plan."""
        if not self.is_private:
            return {}
        shared = "; each of these has half of epsilon and delta" if _touched(self.is_private, self.sizes) > 1 else ""
        return {"key": f"private: a record may go from one group to another{shared}"}

    @property
    def layout(self) -> Layout:
        """How the rows of the largest group are packed; all are packed in one session, one after the other."""
        return Layout(self.facts.dimension, (max(self.sizes),))

    @cached_property
    def untrained(self) -> np.ndarray:
        """The model of a group without rows: zeros, or the initial network, which depend on no row."""
        if self.request.base.network is None:
            return np.zeros(self.facts.shape)
        return objective_of(self.request.base, self.facts).initial()

    @property
    def algorithm(self) -> str:
        """The algorithm of all groups; the requested one, which is `auto`, if it chose several."""
        algorithms = {each.request.algorithm for each in self.plans if each is not None}
        return algorithms.pop() if len(algorithms) == 1 else self.request.base.algorithm

    def explain(self) -> dict[str, Any]:
        """Return the plan of all groups together as data."""
        return {
            "algorithm": self.algorithm,
            "neighbours": REPLACE_ONE,
            "group_by": self.request.group_by,
            **self._key,
            "groups": dict(zip(self.request.groups, self.sizes, strict=True)),
            "rows": sum(self.sizes),
            "features": self.facts.dimension,
            **self.request.base.given,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
        }

    def explain_each(self) -> list[dict[str, Any]]:
        """Return the plan of each group as data, for its model's receipt."""
        base = self.request.base
        without = {
            "algorithm": self.algorithm,
            "loss": base.minimised(is_classifier=self.facts.is_classifier),
            "neighbours": REPLACE_ONE,
            "rows": 0,
            "features": self.facts.dimension,
            "epsilon": base.epsilon,
            "delta": base.delta,
        }
        shared = {"group_by": self.request.group_by, **self._key, "charge_shared_by": len(self.sizes)}
        total = {"epsilon": self.guarantee.epsilon, "delta": self.guarantee.delta}
        return [
            shared | {"group": group} | (without if each is None else each.explain() | total)
            for group, each in zip(self.request.groups, self.plans, strict=True)
        ]


def groups_plan(request: GroupsRequest, facts: Facts, sizes: Sequence[int], *, is_private: bool = False) -> GroupsPlan:
    """Return the plan of a training by groups, from public facts only.

    `facts` has the rows of all groups, `sizes` the public number of rows of each. With `is_private` neighbours may
    differ in a record's key. Raise ValueError if a group with rows cannot be planned, or no group has rows, or the
    models together are too large.

    Proof that all groups cost what the most expensive one costs (privacy.md §11.10). Every slot's key is public, and
    the same in neighbours: they differ in one record of one group g, or in none that is trained on. The models of all
    other groups are functions of equal rows and of randomness of their own, independent of g's: they have one law in
    both worlds, and given g's model they are post-processing without data. So every measure of all models, an (ε, δ), a
    Rényi divergence, a trade-off function, is that of g's model alone, and the largest covers every g.
    With a private key, and sizes that depend on no row, a record that goes from g to h replaces one record, or none,
    in each: these two models are releases with randomness of their own and compose; the others are as above. If only
    one group is trained, the record enters or leaves it: one release.
    """
    check_request(request.base, facts)
    if request.base.name is not None:
        raise ValueError(f"name {request.base.name!r} would be of several models, one for each group; leave it out")
    _check_numbers(request, facts)
    touched = _touched(is_private, sizes)
    base = replace(request.base, epsilon=request.base.epsilon / touched, delta=request.base.delta / touched)
    of_each = replace(request, base=base)
    first = {rows: group for group, rows in reversed(list(zip(request.groups, sizes, strict=True)))}
    plans = {rows: _planned(of_each, facts, group, rows) for rows, group in first.items() if rows}
    if not plans:
        raise ValueError(f"no group of {request.group_by!r} has a row; name values that occur in the column")
    together = _together([each.guarantee.as_replace_one() for each in plans.values()], touched)
    return GroupsPlan(request, facts, tuple(sizes), tuple(plans.get(rows) for rows in sizes), together, is_private)


def _touched(is_private: bool, sizes: Sequence[int]) -> int:
    """Return in how many of the groups neighbours may differ."""
    return 2 if is_private and len(sizes) > 1 else 1


def _together(guarantees: Sequence[Release], touched: int) -> Release:
    """Return the guarantee of all groups, of which neighbours differ in at most `touched`."""
    event = DisjointDpEvent(tuple(dict.fromkeys(each.event for each in guarantees)))
    return Release(
        event if touched == 1 else SelfComposedDpEvent(event, touched),
        touched * max(each.epsilon for each in guarantees),
        touched * max(each.delta for each in guarantees),
    )


def _check_numbers(request: GroupsRequest, facts: Facts) -> None:
    network = request.base.network
    each = facts.outputs * facts.dimension if network is None else objective_of(request.base, facts).parameters
    check_numbers(len(request.groups), each, "train fewer groups in one call")


def _planned(request: GroupsRequest, facts: Facts, group: str, rows: int) -> Plan:
    """Return the plan of a group; a small one uses mini-batches of all its rows (of a shard).

    All groups have one layout, and `auto` may choose several algorithms: none has rows in places.
    """
    base, own = request.base, replace(facts, rows=rows, places=None)
    if base.batch_size is not None and rows >= base.shards:
        base = replace(base, batch_size=min(base.batch_size, rows // base.shards))
    try:
        return catalogue.plan(base, own)
    except catalogue.OptionRefused:  # for every group
        raise
    except ValueError as error:
        raise ValueError(
            f"group {group!r} of {request.group_by!r} has {rows} rows and cannot be trained on: {error}; "
            "or leave the group out"
        ) from None
