"""Shards trained side by side move together as privacy.md §1.6 says, and neighbours attain it."""

import math
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbdp.algorithms import Facts, Request, plan
from dbdp.learning import kernels
from dbdp.learning.losses import HuberSvm
from dbdp.learning.rows import blocks
from dbdp.learning.schedules import Constant, Decreasing, InverseTime, SquareRoot
from dbdp.learning.state import State
from dbdp.privacy import sensitivity
from dbdp.privacy.sensitivity import FRESH, Training, sgd_sensitivity, sharded_sensitivity

U = 2.0**-53
SHRUNK = 1 - 2.0**-22  # the longest stored row


def shard(rows, schedule, *, regularisation=0.0, smoothness=1.0, **changes):
    facts = {
        "batch_size": 3,
        "epochs": 3,
        "dimension": 1,
        "lipschitz": 1.0,
        "smoothness": smoothness,
        "regularisation": regularisation,
        "scalar_error": 12.0,
    }
    return Training(rows=rows, step_sizes=schedule.step_sizes, **facts | changes)


@st.composite
def shardings(draw):
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=5))
    regularisation = draw(st.sampled_from([0.0, 0.1, 1.0]))
    smoothness = 1.0 + regularisation
    schedules = [
        Constant(draw(st.floats(0.01, 2 / smoothness))),
        Decreasing(smoothness, 2.0),
        SquareRoot(smoothness, 1.5),
    ]
    if regularisation:
        schedules.append(InverseTime(smoothness, regularisation))
    schedule = draw(st.sampled_from(schedules))
    batch_size, epochs = draw(st.integers(1, min(sizes))), draw(st.integers(1, 4))
    return [
        shard(size, schedule, regularisation=regularisation, batch_size=batch_size, epochs=epochs) for size in sizes
    ]


def expansions(facts, epoch):
    """(η, ρ) of the updates of one epoch."""
    for place in range(facts.batches):
        (step,) = facts.step_sizes(epoch * facts.batches + place + 1, 1).tolist()
        rows = min(facts.batch_size, facts.rows - place * facts.batch_size)
        smoothness = facts.smoothness * rows / facts.batch_size + facts.regularisation
        yield step, max(abs(1 - step * facts.regularisation), abs(1 - step * smoothness))


def distance_bound(shards, own, position, *, each_epoch):
    """All shards' distances, update by update; the record is in shard `own`, mini-batch `position`."""
    rows = sum(facts.rows for facts in shards)
    weights, distances = [facts.rows / rows for facts in shards], [0.0] * len(shards)
    for epoch in range(shards[0].epochs):
        for number, facts in enumerate(shards):
            for place, (step, expansion) in enumerate(expansions(facts, epoch)):
                distances[number] *= expansion
                if (number, place) == (own, position):
                    distances[number] += 2 * step * facts.lipschitz / facts.batch_size
        mean = sum(weight * each for weight, each in zip(weights, distances, strict=True))
        distances = [mean] * len(shards) if each_epoch else distances
    return mean


def brute_force(shards, *, each_epoch):
    return max(
        distance_bound(shards, own, position, each_epoch=each_epoch)
        for own, facts in enumerate(shards)
        for position in range(facts.batches)
    )


@pytest.mark.parametrize("each_epoch", [False, True])
@given(shards=shardings())
def test_the_sensitivity_of_shards_is_the_recursion_of_the_law(shards, each_epoch):
    expected, result = brute_force(shards, each_epoch=each_epoch), sharded_sensitivity(shards, each_epoch=each_epoch)
    assert result.exact == pytest.approx(expected, rel=1e-9)
    assert result.total >= expected


@pytest.mark.parametrize("each_epoch", [False, True])
@settings(max_examples=50)
@given(shards=shardings(), piece=st.integers(1, 7))
def test_how_many_updates_are_walked_at_once_changes_nothing(shards, each_epoch, piece):
    whole = sharded_sensitivity(shards, each_epoch=each_epoch)
    with patch.object(sensitivity, "_PIECE", piece):
        pieces = sharded_sensitivity(shards, each_epoch=each_epoch)
    assert pieces.exact == pytest.approx(whole.exact, rel=1e-12)
    assert pieces.margin == pytest.approx(whole.margin, rel=1e-6, abs=0)


@given(shards=shardings())
def test_the_order_of_the_shards_does_not_matter(shards):
    for each_epoch in (False, True):
        one, other = (sharded_sensitivity(list(each), each_epoch=each_epoch) for each in (shards, reversed(shards)))
        assert one.exact == pytest.approx(other.exact, rel=1e-12)
        assert one.margin == pytest.approx(other.margin, rel=1e-9, abs=0)


@pytest.mark.parametrize("each_epoch", [False, True])
def test_one_shard_is_a_training_of_its_own(each_epoch):
    alone = shard(20, InverseTime(1.1, 0.1), regularisation=0.1)
    assert sharded_sensitivity([alone], each_epoch=each_epoch).exact == pytest.approx(
        sgd_sensitivity(alone).exact, rel=1e-12
    )


def test_equal_shards_divide_convex_constant_steps():
    whole, part = shard(120, Constant(0.5)), shard(30, Constant(0.5))
    for each_epoch in (False, True):
        result = sharded_sensitivity([part] * 4, each_epoch=each_epoch)
        assert result.exact == pytest.approx(sgd_sensitivity(whole).exact / 4, rel=1e-9)


@pytest.mark.parametrize(("shards", "expected"), [(1, 4.016e-3), (4, 4.014e-3), (16, 4.013e-3)])
def test_shards_of_covertype_are_free_for_inverse_time(shards, expected):
    rows, schedule = 498_010, InverseTime(0.251, 0.001)
    parts = [
        shard(
            rows // shards + (number < rows % shards),
            schedule,
            regularisation=0.001,
            smoothness=0.25,
            batch_size=50,
            epochs=10,
        )
        for number in range(shards)
    ]
    for each_epoch in (False, True):
        assert sharded_sensitivity(parts, each_epoch=each_epoch).exact == pytest.approx(expected, abs=1.5e-6)


def test_a_small_shard_costs_no_more_than_a_large_one():
    """A small shard with the weight of its rows costs no more than a large one."""
    parts = [shard(rows, Constant(0.5), batch_size=10) for rows in (200, 10)]
    result = sharded_sensitivity(parts, each_epoch=False)
    assert result.exact == pytest.approx(sgd_sensitivity(parts[0]).exact * 200 / 210, rel=1e-9)


# --- margins ---------------------------------------------------------------------------------------


def literal_margin(shards, *, each_epoch):
    """Σ_p α_p of all errors of both trajectories, each carried on to the end, and those of the means."""
    rows, epochs, reach, total = sum(each.rows for each in shards), shards[0].epochs, 0.0, 0.0
    products = np.array([[math.prod(rho for _, rho in expansions(each, k)) for k in range(epochs)] for each in shards])
    alphas = np.array([each.rows / rows for each in shards])
    kept = [math.prod(alphas @ products[:, k + 1 :]) if each_epoch else None for k in range(epochs)]
    starts = np.zeros(len(shards))
    for epoch in range(epochs):
        for number, each in enumerate(shards):
            reach = starts[number]
            steps = list(expansions(each, epoch))
            rest = kept[epoch] if each_epoch else math.prod(products[number, epoch + 1 :])
            for place, (step, _) in enumerate(steps):
                carried = math.prod(rho for _, rho in steps[place + 1 :]) * rest
                gradient = (each.dimension * each.smoothness + 5 * each.regularisation) * reach
                gradient += (each.batch_size + 5) * each.lipschitz + each.scalar_error
                total += alphas[number] * 1.01 * U * (4 * reach + step * gradient) * carried
                reach = abs(1 - step * each.regularisation) * reach + step * each.lipschitz
            starts[number] = reach
        if each_epoch:
            starts[:] = alphas @ starts
            total += 1.01 * U * (len(shards) + 2) * starts[0] * kept[epoch]
    return 2 * (total + 1.01 * U * (len(shards) + 2) * alphas @ starts)


@pytest.mark.parametrize("each_epoch", [False, True])
@given(shards=shardings())
def test_the_margin_of_shards_covers_their_errors(shards, each_epoch):
    assert literal_margin(shards, each_epoch=each_epoch) <= sharded_sensitivity(shards, each_epoch=each_epoch).margin


def test_the_start_that_a_longer_shard_reached_is_not_forgotten():
    """A small shard with a small weight begins each epoch where the large one has come to."""
    parts = [shard(rows, Constant(0.5), batch_size=1, epochs=20, dimension=1000) for rows in (1, 40)]
    result = [sharded_sensitivity(each, each_epoch=True).margin for each in (parts, parts[::-1])]
    assert result[0] == pytest.approx(result[1], rel=1e-12, abs=0)
    assert literal_margin(parts, each_epoch=True) <= result[0]


# --- refusals --------------------------------------------------------------------------------------


def test_too_many_updates_are_refused_at_once():
    part = shard(10**9, Constant(0.1), batch_size=1, epochs=1000)
    for each_epoch in (False, True):
        with pytest.raises(ValueError, match=r"1000000000000 updates are more than 500000000"):
            sharded_sensitivity([part, part], each_epoch=each_epoch)


@pytest.mark.parametrize("each_epoch", [False, True])
def test_a_step_above_two_over_beta_is_refused(each_epoch):
    with pytest.raises(ValueError, match=r"step size 2.1 is above 2/β = 2.0"):
        sharded_sensitivity([shard(20, Constant(2.1))] * 2, each_epoch=each_epoch)


def test_means_of_iterates_are_refused_with_averaged_shards():
    """Means of iterates are refused where the shards are averaged in each epoch."""
    part = shard(20, Constant(0.1), batch_size=10, averaged_from=1)
    with pytest.raises(ValueError, match="average shards once"):
        sharded_sensitivity([part] * 2, each_epoch=True)
    moved = sharded_sensitivity([part] * 2, each_epoch=False).exact
    assert moved == pytest.approx(sgd_sensitivity(part).exact / 2, rel=1e-9)


def test_fresh_permutations_in_shards_cost_the_worst_place():
    """A fresh permutation within the shards costs the worst of each epoch."""
    part = shard(20, InverseTime(1.1, 0.1), regularisation=0.1, batch_size=10)
    fresh = replace(part, permutation=FRESH)
    for each_epoch in (False, True):
        costs = [sharded_sensitivity([each] * 3, each_epoch=each_epoch).exact for each in (part, fresh)]
        assert costs[0] <= costs[1] * (1 + 1e-12)


# --- neighbours ------------------------------------------------------------------------------------


def trained(release_plan, table):
    """The exact model of a plan on rows in this order, by the library's own kernel."""
    learning, cuts = release_plan.learning, np.cumsum(release_plan.learning.shard_rows)[:-1]
    parts, weights = np.split(table, cuts), np.array(learning.shard_rows) / len(table)
    states: list[State] = [release_plan.initial_states()[0] for _ in parts]
    for _ in range(learning.epochs):
        states = [kernels.terminate(kernels.transition(state, rows)) for state, rows in zip(states, parts, strict=True)]
        mean = weights @ np.array([state.model for state in states])
        if learning.shard_averaging == "each_epoch":
            for state in states:
                state.model[:] = mean
    return mean


SHARDED = {
    "constant": {"schedule": "constant", "step_size": 0.2},
    "inverse time": {"regularisation": 0.1},
    "decreasing": {"schedule": "decreasing"},
    "square root": {"schedule": "square_root"},
    "strongly convex, constant": {"schedule": "constant", "step_size": 0.2, "regularisation": 0.1},
}


@pytest.mark.parametrize(("rows", "size", "parts"), [(100, 5, (34, 33, 33)), (25, 5, (9, 8, 8))])
@pytest.mark.parametrize("shard_averaging", ["once", "each_epoch"])
@pytest.mark.parametrize("case", SHARDED)
def test_neighbours_attain_the_sensitivity_of_the_plan(case, shard_averaging, rows, size, parts):
    """One row ±u of a Huber SVM among zero rows, in each mini-batch of each shard."""
    training = {"epochs": 3, "batch_size": size, "shards": 3, "shard_averaging": shard_averaging} | SHARDED[case]
    release_plan = plan(
        Request(1.0, 1e-6, loss="huber_svm", **{"algorithm": "bolt_on"} | training), Facts(rows=rows, dimension=1)
    )
    assert release_plan.learning.shard_rows == parts
    starts = np.cumsum((0, *parts))
    positions = [row for start, end in pairwise(starts) for row in range(start, end, size)]
    furthest = 0.0
    for position in positions:
        models = []
        for label in (1.0, -1.0):
            table = blocks.encode(np.zeros((rows, 1)), np.ones(rows))
            table[position, 0], table[position, -1] = SHRUNK, label
            models.append(trained(release_plan, table))
        furthest = max(furthest, float(np.abs(models[0] - models[1]).max()))
    assert isinstance(release_plan.learning.loss, HuberSvm)
    assert 0.99 * release_plan.sensitivity.exact <= furthest <= release_plan.sensitivity.total
    assert (
        furthest > 2.9 * release_plan.sensitivity.total / 3
    )  # dividing by the number of shards once more would be too small
