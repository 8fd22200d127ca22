"""One model for each group of a public key: together they cost as much as the most expensive one."""

from itertools import product

import numpy as np
import pytest
from textbook import hockey_stick, renyi

from dbdp.algorithms import Facts, Request
from dbdp.algorithms.combined.groups import GroupsPlan, GroupsRequest, groups_plan
from dbdp.algorithms.families.perturbed_once.shared import PerturbedOnce
from dbdp.algorithms.settings import MOST_NUMBERS
from dbdp.privacy.accounting.budget import MODES, Budget
from dbdp.privacy.accounting.events import (
    DisjointDpEvent,
    EpsilonDeltaDpEvent,
    SelfComposedDpEvent,
)

FACTS = Facts(1000, 4)


def planned(sizes: dict[str, int], facts: Facts = FACTS, *, is_private: bool = False, **options: object) -> GroupsPlan:
    usual = {"algorithm": "bolt_on", "batch_size": 50, "regularisation": 0.01}
    request = Request(**{"epsilon": 1.0, "delta": 1e-6} | usual | options)
    return groups_plan(GroupsRequest(request, "g", tuple(sizes)), facts, tuple(sizes.values()), is_private=is_private)


def test_groups_have_no_name_since_each_has_a_model():
    with pytest.raises(ValueError, match="name 'n' would be of several models, one for each group; leave it out"):
        planned({"a": 500}, name="n")


# --- the charge ----------------------------------------------------------------------------------------------


def response(epsilon: float, delta: float, bit: int) -> np.ndarray:
    """Randomised response to a bit that leaks it with probability δ: outputs 0, 1, leaked 0, leaked 1."""
    likely = np.exp(epsilon) / (1 + np.exp(epsilon))
    answers = np.array([likely, 1 - likely])[[bit, 1 - bit]]
    return np.concatenate([(1 - delta) * answers, delta * np.eye(2)[bit]])


def together(parts: list[tuple[float, float]], bits: tuple[int, ...]) -> np.ndarray:
    """The law of the answers of all groups, group i answering by its own bit."""
    law = np.ones(1)
    for part, bit in zip(parts, bits, strict=True):
        law = np.outer(law, response(*part, bit)).ravel()
    return law


PARTS = [(0.3, 0.0), (1.2, 0.0), (0.7, 0.0)]
LEAKING = [(0.3, 1e-3), (1.2, 1e-4), (0.7, 5e-3)]


@pytest.mark.parametrize("order", [1.5, 4.0, 20.0])
def test_neighbours_in_a_group_attain_the_dearest_groups_bound(order):
    """Every pair of worlds that differ in one group's record, whatever the others hold; the bound is attained."""
    event = DisjointDpEvent(tuple(EpsilonDeltaDpEvent(*part) for part in PARTS))
    result, moving = [], []
    for bits in product((0, 1), repeat=len(PARTS)):
        for group in range(len(PARTS)):
            other = tuple(bit ^ (place == group) for place, bit in enumerate(bits))
            result.append(renyi(together(PARTS, bits), together(PARTS, other), order))
        for group in range(len(PARTS)):  # no neighbours: the record goes from one group to the next
            two = (group, (group + 1) % len(PARTS))
            moved = tuple(bit ^ (place in two) for place, bit in enumerate(bits))
            moving.append(renyi(together(PARTS, bits), together(PARTS, moved), order))
    assert max(result) == pytest.approx(event.divergence(order), rel=1e-9)
    assert max(moving) > 1.2 * event.divergence(order)  # why the key must be public and fixed


def test_neighbours_in_a_group_leak_as_the_worst_group():
    event = DisjointDpEvent(tuple(EpsilonDeltaDpEvent(*part) for part in LEAKING))
    epsilon, deltas = max(part[0] for part in LEAKING), []
    for group in range(len(LEAKING)):
        other = tuple(int(place == group) for place in range(len(LEAKING)))
        deltas.append(hockey_stick(together(LEAKING, (0,) * len(LEAKING)), together(LEAKING, other), epsilon))
    assert max(deltas) <= event.leak(epsilon) * (1 + 1e-9)
    assert max(deltas) >= 0.99 * event.leak(epsilon)


@pytest.mark.parametrize("order", [1.5, 4.0, 20.0])
def test_a_record_that_changes_its_group_costs_two_groups(order):
    """Three groups with one law, as groups of equal sizes are: all pairs in which a record goes to another group."""
    parts = [(0.7, 0.0)] * 3
    event, moving = DisjointDpEvent((EpsilonDeltaDpEvent(*parts[0]),)), []
    for bits in product((0, 1), repeat=3):
        for goes in ((0, 1), (1, 2), (2, 0)):
            other = tuple(bit ^ (place in goes) for place, bit in enumerate(bits))
            moving.append(renyi(together(parts, bits), together(parts, other), order))
    assert max(moving) == pytest.approx(SelfComposedDpEvent(event, 2).divergence(order), rel=1e-9)
    assert max(moving) > 1.2 * event.divergence(order)


def test_a_private_key_shares_epsilon_between_two_groups():
    both, one = (planned(sizes, is_private=True) for sizes in ({"a": 50, "b": 50}, {"a": 50}))
    public = planned({"a": 50, "b": 50})
    assert [each.guarantee.epsilon for each in (both, one, public)] == [1.0] * 3
    assert [each.plans[0].guarantee.epsilon for each in (both, one, public) if each.plans[0]] == [0.5, 1.0, 1.0]
    assert isinstance(both.guarantee.event, SelfComposedDpEvent)
    assert isinstance(one.guarantee.event, DisjointDpEvent)
    assert "key" in both.explain() and "key" in one.explain() and "key" not in public.explain()


@pytest.mark.parametrize("algorithm", ["bolt_on", "nsgd", "scs13", "dp_sgd", "bst14", "dp_agd"])
def test_the_cost_is_the_largest_charge_and_the_largest_leak(algorithm):
    release_plan = planned({"a": 30, "b": 200, "c": 0, "d": 7}, algorithm=algorithm)
    for mode in MODES:
        budget = Budget.of(epsilon=50.0, delta=1e-2, mode=mode)
        each = [budget.cost(own.guarantee.as_replace_one()) for own in release_plan.plans if own]
        assert budget.cost(release_plan.guarantee) == tuple(map(max, zip(*each, strict=True)))
    assert (release_plan.guarantee.epsilon, release_plan.guarantee.delta) == (1.0, 1e-6)


def test_many_groups_of_one_size_are_charged_and_written_as_one():
    release_plan = planned({str(number): 20 + number % 2 for number in range(1000)})
    assert isinstance(release_plan.guarantee.event, DisjointDpEvent)
    assert len(release_plan.guarantee.event.events) <= 2
    assert release_plan.plans[0] is release_plan.plans[2] is not release_plan.plans[1]


# --- the plans -----------------------------------------------------------------------------------------------


def test_each_group_is_planned_by_its_own_rows():
    """Each group is planned by its own rows and a small one has smaller batches."""
    large, small, none = planned({"large": 400, "small": 20, "none": 0}).plans
    assert isinstance(large, PerturbedOnce)
    assert isinstance(small, PerturbedOnce)
    assert none is None
    assert [each.facts.rows for each in (large, small)] == [400, 20]
    assert [each.learning.batch_size for each in (large, small)] == [50, 20]
    assert small.sensitivity.total > large.sensitivity.total


def test_mini_batches_are_no_larger_than_a_shard():
    (release_plan,) = planned({"a": 21}, shards=2).plans
    assert isinstance(release_plan, PerturbedOnce)
    assert (release_plan.learning.batch_size, release_plan.learning.shard_rows) == (10, (11, 10))


def test_a_group_without_rows_gets_the_model_that_nobody_trained():
    assert not planned({"a": 5, "b": 0}, Facts(5, 4, 3)).untrained.any()
    network = {"network": "mlp:3", "algorithm": "dp_sgd"}
    release_plan = planned({"a": 5, "b": 0}, **network)
    again = planned({"a": 9, "b": 0}, Facts(9, 4), **network)
    assert release_plan.untrained.any()
    assert np.array_equal(release_plan.untrained, again.untrained)


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ({"a": 0, "b": 0}, {}, "no group of 'g' has a row"),
        ({"a": 9, "b": 1}, {"shards": 2}, "group 'b' of 'g' has 1 rows and cannot be trained on: shards = 2"),
        ({"a": 9}, {"epsilon": 0.0}, r"^epsilon = 0\.0 must be positive"),
        ({"a": 9}, {"network": f"mlp:{MOST_NUMBERS // 4}", "algorithm": "dp_sgd"}, "parameters"),
    ],
)
def test_what_cannot_be_planned_is_refused(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        planned(sizes, **options)


def test_the_models_of_all_groups_are_limited():
    planned({str(number): 5 for number in range(100)}, Facts(500, MOST_NUMBERS // 100))
    with pytest.raises(ValueError, match=r"101 models of .* are above the limit"):
        planned({str(number): 5 for number in range(101)}, Facts(505, MOST_NUMBERS // 100))
