"""PrivGene: the cost of selections, the sensitivity of the compared losses, and that nothing else reads a row."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from chance import usually
from goodness import ALPHA, of_cells
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import RowsInMemory
from pairs import others_slow
from textbook import renyi

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.selections import privgene
from dbdp.algorithms.families.selections.privgene import Breeding, Fitness, sampled_epsilon, sensitivity_among
from dbdp.algorithms.noisy_sums import UNIT, Summed
from dbdp.algorithms.rows import silent
from dbdp.learning import kernels
from dbdp.learning.losses import HuberSvm, Logistic
from dbdp.learning.objectives import Linear
from dbdp.privacy.accounting.events import (
    ExponentialMechanismDpEvent,
    PaddedDpEvent,
    SelfComposedDpEvent,
)
from dbdp.privacy.accounting.renyi import best_order, conversion
from dbdp.privacy.accounting.subsampling import amplified
from dbdp.privacy.selection import ExponentialMechanism

FACTS = Facts(1000, 5)
AHEAD = np.array([1.0, 0.0, 0.0, 0.0])


def planned(epsilon=1.0, delta=0.0, facts=FACTS, batch_size=None, regularisation=None, loss="logistic", **own_settings):
    request = Request(
        epsilon,
        delta,
        algorithm="privgene",
        loss=loss,
        batch_size=batch_size,
        regularisation=regularisation,
        settings=own_settings or None,
    )
    return plan(request, facts)


def separable(count, dimension, *, flipped=0.0):
    """Rows whose label is the sign of their first coordinate, but for some."""
    random = np.random.default_rng()
    features = random.uniform(-1, 1, size=(count, dimension)) / math.sqrt(dimension)
    labels = np.where(features[:, 0] > 0, 1.0, -1.0)
    labels[: int(flipped * count)] *= -1
    return features, labels


# --- what it costs --------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    epsilon=st.floats(1e-3, 50),
    delta=st.sampled_from([0.0, 1e-12, 1e-6, 1e-2]),
    generations=st.integers(1, 300),
    parents=st.integers(1, 20),
    batch_size=st.sampled_from([None, 1, 10, 999, 1000]),
)
def test_every_selection_is_charged_as_promised(epsilon, delta, generations, parents, batch_size):
    plan = planned(epsilon, delta, batch_size=batch_size, generations=generations, parents=parents)
    selections = generations * parents + 1
    event, each, paid = plan.guarantee.event, plan.details["selection_charge"], 0.0
    if isinstance(event, PaddedDpEvent):  # samples that may be cut, which is paid for by a part of δ
        paid = plan.details["padding_leak"]
        assert 0 < event.leak(epsilon) == paid <= delta / 1000
        event = event.event
    assert event == SelfComposedDpEvent(ExponentialMechanismDpEvent(each), selections)
    assert plan.details["selections"] == selections
    if plan.guarantee.delta > paid:
        assert plan.guarantee.delta == delta
        order = best_order(epsilon, delta - paid)
        assert event.divergence(order) + conversion(order, delta - paid) <= epsilon
        assert each * selections > epsilon  # else pure ε would have been the better bound
    else:
        assert plan.guarantee.delta == paid  # pure, but for what is cut
        assert each * selections <= epsilon * (1 + 1e-15 * selections)
        assert each * selections >= epsilon * (1 - 1e-12)


def test_the_better_of_the_two_public_bounds_is_taken():
    assert planned(1.0, 1e-6, generations=1, parents=1).guarantee.delta == 0.0
    assert planned(1.0, 1e-6, generations=100, parents=2).guarantee.delta == 1e-6


def test_delta_buys_more_for_each_of_many_selections():
    pure, concentrated = (planned(1.0, delta, generations=100).details["selection_epsilon"] for delta in (0.0, 1e-6))
    assert concentrated > 4 * pure


def test_the_generations_are_the_papers_rule_within_their_range():
    """At pure ε the selections are c·n·ε; with a δ each selection is worth as much as there."""
    for rows, epsilon, expected in ((10**5, 1.0, 35), (10**5, 0.5, 18), (10**4, 0.1, 10), (10**7, 1.0, 100)):
        assert planned(epsilon, facts=Facts(rows, 5)).details["steps"] == expected
    pure, concentrated = (planned(0.3, delta, facts=Facts(10**5, 5)).details for delta in (0.0, 1e-6))
    assert concentrated["steps"] > pure["steps"]
    worth = (0.3 / pure["selections"], concentrated["selection_epsilon"])
    assert max(worth) / min(worth) < 1.2


# --- samples --------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(spent=st.floats(1e-9, 300), probability=st.floats(1e-9, 1))
def test_a_sampled_selection_costs_what_is_charged(spent, probability):
    epsilon = sampled_epsilon(spent, probability)
    assert epsilon >= spent * (1 - 1e-11)
    cost = 2 * amplified(epsilon / 2, probability)
    assert cost <= spent * (1 + 3e-14)
    assert spent > 100 or cost >= spent * (1 - 1e-9)


def mixture(mechanism, probability, others, record, many=1):
    """The exact probability of each candidate over all Poisson samples; a row is its loss at each candidate.

    The last candidate stands for `many` alike.
    """
    rows, q = [*others, record], Fraction(probability)
    total = [Fraction(0)] * len(record)
    for chosen in itertools.product((0, 1), repeat=len(rows)):
        sampled = math.prod(q if each else 1 - q for each in chosen)
        sums = [sum(row[i] for row, each in zip(rows, chosen, strict=True) if each) for i in range(len(record))]
        *weights, last = mechanism.weights(sums)
        for place, weight in enumerate([*weights, last]):
            total[place] += sampled * Fraction(weight, sum(weights) + many * last)
    return total


def spread(one, other):
    logs = [math.log(p / q) for p, q in zip(one, other, strict=True)]
    return max(logs) - min(logs), max(map(abs, logs))


@settings(max_examples=40)
@given(
    spent=st.floats(0.05, 3),
    probability=st.sampled_from([0.01, 0.2, 0.5, 0.9]),
    rows=st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=2, max_size=5),
)
def test_no_record_loses_more_by_a_sample_than_charged(spent, probability, rows):
    mechanism = ExponentialMechanism(sampled_epsilon(spent, probability), 1.0)
    *others, one, other = rows
    pair = [mixture(mechanism, probability, others, record) for record in (one, other)]
    assert spread(*pair)[1] <= spent
    laws = np.array(pair, float)
    for order in (1.5, 4.0, 20.0):
        cost = ExponentialMechanismDpEvent(spent).divergence(order)
        assert max(renyi(*laws, order), renyi(*laws[::-1], order)) <= cost + 1e-12


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.7])
def test_the_charge_of_a_sampled_selection_is_attained(probability):
    """Rare candidates that only one of the neighbours speaks for, among many that neither does."""
    spent, many = 0.5, 10**6
    mechanism = ExponentialMechanism(sampled_epsilon(spent, probability), 1.0)
    neighbours = ((0.0, 1.0, 1.0), (1.0, 0.0, 1.0))
    result, largest = spread(*(mixture(mechanism, probability, [], record, many) for record in neighbours))
    assert 0.999 * spent < result <= spent
    assert largest <= spent
    unamplified, _ = spread(*(mixture(mechanism, 1.0, [], record, many) for record in neighbours))
    assert unamplified > 1.2 * spent  # sampling is what pays for it


# --- fitness --------------------------------------------------------------------------------------------


def moved(fitness, models, one, other):
    """How far replacing one record moves the difference of two candidates' losses at most."""
    change = [fitness.losses(RowsInMemory(*record), models, None, 1.0) for record in (one, other)]
    return float(np.ptp(change[1] - change[0]))


def fitness_for(loss, *, limit=3.0, outputs=1):
    return Fitness(Linear(loss, 4, outputs), limit, 1.0, 0.0)


ROW = st.tuples(st.lists(st.floats(-1, 1), min_size=4, max_size=4), st.sampled_from([-1.0, 1.0, np.nan]))


@settings(max_examples=300)
@given(
    loss=st.sampled_from([Logistic(), HuberSvm(), Logistic(3.0)]),
    limit=st.sampled_from([0.3, 3.0, 1e6]),
    length=st.floats(1e-3, 30),
    one=ROW,
    other=ROW,
    words=st.binary(min_size=8 * 24, max_size=8 * 24),
)
def test_no_record_moves_a_loss_difference_beyond_its_bound(loss, limit, length, one, other, words):
    models = length * (np.frombuffer(words, np.uint64).reshape(6, 4) * 2.0**-63 - 1)
    fitness = fitness_for(loss, limit=limit)
    bound = 2 * sensitivity_among(fitness, models, 1, 1.0)
    assert moved(fitness, models, *(([features], [label]) for features, label in (one, other))) <= bound


@settings(max_examples=50)
@given(labels=st.tuples(*[st.sampled_from([1.0, 2.0, 3.0])] * 2), words=st.binary(min_size=8 * 48, max_size=8 * 48))
def test_classes_are_covered_together(labels, words):
    models = 3 * (np.frombuffer(words, np.uint64).reshape(4, 12) * 2.0**-63 - 1)
    fitness = fitness_for(Logistic(2.0), limit=9.0, outputs=3)
    bound = 2 * sensitivity_among(fitness, models, 1, 1.0)
    assert moved(fitness, models, *(([AHEAD], [label]) for label in labels)) <= bound


@pytest.mark.parametrize(
    ("models", "limit"),
    [
        ([[-2.0, 0, 0, 0], [-2.3, 0, 0, 0], [-2.1, 0.02, 0, 0]], 1e6),  # close: the Lipschitz bound
        ([[9.0, 0, 0, 0], [-9.0, 0, 0, 0]], 3.0),  # far apart: the clipping
    ],
    ids=["close", "far apart"],
)
def test_two_neighbours_attain_the_sensitivity(models, limit):
    """The record's label is flipped where the hinge is linear on both sides, or clipped on one and 0 on the other."""
    shift = 0.0 if limit < 10 else 2.15  # so that both labels' margins are below 1 - h
    candidates = np.array(models) + shift * AHEAD
    fitness = fitness_for(HuberSvm(0.1), limit=limit)
    bound = 2 * sensitivity_among(fitness, candidates, 1, 1.0)
    result = moved(fitness, candidates, ([AHEAD], [1.0]), ([AHEAD], [-1.0]))
    assert 0.999 * bound < result <= bound


def test_the_sensitivity_shrinks_with_the_candidates():
    """The sensitivity shrinks with the candidates and never grows beyond the clipping."""
    models = np.random.default_rng().normal(size=(20, 4))
    result = [sensitivity_among(fitness_for(Logistic()), scale * models, 1000, 1000.0) for scale in (1e3, 0.1, 0.01)]
    assert result[0] == pytest.approx(3.0)
    assert result[1] == pytest.approx(10 * result[2])
    assert result[2] < 0.1


def test_the_rounding_of_sums_and_penalties_is_covered():
    """privacy.md §14.2, §14.8: a sum of b losses errs by about bDu·limit (depth D), the penalty by u of itself."""
    models, rows = np.full((3, 4), 2.0), 10**6
    few, many = (sensitivity_among(fitness_for(Logistic()), models, count, count) for count in (1, rows))
    assert many - few >= 2 * UNIT * rows * Summed.in_tree(rows).depth * 3.0
    penalised = replace(fitness_for(Logistic()), regularisation=1.0)
    assert sensitivity_among(penalised, models, rows, rows) - many >= 2 * UNIT * rows * 8.0


def test_errors_are_rows_that_the_model_classifies_wrongly():
    features, labels = separable(500, 4, flipped=0.2)
    labels[:7] = np.nan
    rows = RowsInMemory(features, labels)
    fitness = planned(facts=Facts(500, 4), fitness="errors").method.fitness
    models = np.random.default_rng().normal(size=(30, 4))
    counted = np.array([kernels.count_errors(model[None], rows.all) - 7 for model in models])  # a zero row is none here
    result = fitness.losses(rows, models, None, 500.0)
    margins = (labels[7:] * (rows.all[7:, :4] @ models.T).T).T
    assert (counted <= result).all()
    assert (result <= np.sum(margins < 2.0**-10, axis=0)).all()
    assert np.ptp(counted) > 50
    assert 1 <= sensitivity_among(fitness, models, 500, 500.0) < 1 + 1e-6


# --- breeding -------------------------------------------------------------------------------------------


MUCH = [{}, {"batch_size": 400}, {"fitness": "errors"}, {"regularisation": 1e-3}]


@pytest.mark.parametrize("given", others_slow(MUCH, {}, {"fitness": "errors"}), ids=str)
def test_the_model_is_good_with_much_epsilon_only(given):
    features, labels = separable(1000, 5)
    rows, facts = RowsInMemory(features, labels), Facts(1000, 5)

    def right(epsilon):
        plan = planned(epsilon, facts=facts, generations=25, population=100, **given)
        return np.mean([rows.all[:, :5] @ plan.method(rows, silent) * labels > 0 for _ in range(3)])

    assert usually(lambda: right(1e5) > 0.93)
    assert usually(lambda: right(1e-6) < 0.93, missing=4e-4)  # three random directions are as good that often


def test_regressions_and_classes_are_bred_too():
    features, _ = separable(500, 4)
    small = {"generations": 30, "population": 80}
    regression = planned(1e5, facts=Facts(500, 4, is_classifier=False), loss="huber_regression", **small)
    values = features[:, 0]

    def loss():
        return np.mean((features @ regression.method(RowsInMemory(features, values), silent) - values) ** 2)

    assert usually(lambda: loss() < np.var(values) / 4)
    labels = 1.0 + (features[:, 0] > 0.15) + (features[:, 0] > -0.15)
    classes = planned(1e5, facts=Facts(500, 4, outputs=3), **small)

    def share_right():
        models = classes.method(RowsInMemory(features, labels), silent).reshape(3, 4)
        return np.mean(np.argmax(features @ models.T, axis=1) + 1 == labels)

    assert usually(lambda: share_right() > 0.55)  # a third by chance


@pytest.mark.parametrize(("epsilon", "delta"), others_slow([(3.0, 0.0), (2.0, 1e-6)], (2.0, 1e-6)))
def test_candidates_are_selected_with_the_law_that_is_charged(epsilon, delta):
    """One selection among three candidates; half and twice the ε would be noticed."""
    features, labels = separable(200, 4, flipped=0.3)
    rows, models = RowsInMemory(features, labels), np.array([[0.5, 0, 0, 0], [0, 0.5, 0, 0], [-0.4, 0.3, 0, 0.0]])
    plan = planned(epsilon, delta, facts=Facts(200, 4), population=3, generations=1)
    run, size = replace(plan.method, generations=0), 4000
    with patch.object(Breeding, "first", lambda _: models):
        result = Counter(tuple(run(rows, silent)) for _ in range(size))
    observed = np.array([result[tuple(model)] for model in models])
    losses = run.fitness.losses(rows, models, None, 200.0)
    sensitivity = np.max([np.linalg.norm(a - b) for a, b in itertools.combinations(models, 2)])
    for factor, noticed in ((1.0, False), (2.0, True), (0.5, True)):
        law = np.exp(-factor * plan.details["selection_charge"] * (losses - losses.min()) / (2 * sensitivity))
        assert (of_cells(observed, law / law.sum()) < ALPHA) == noticed


@pytest.mark.parametrize("batch_size", [None, 50])
def test_nothing_but_the_selections_depends_on_a_row(batch_size):
    """With choices and chances made the same, two tables without a row in common give the same model."""
    plan, models = planned(facts=Facts(200, 4), batch_size=batch_size, generations=5), []
    for sign in (1, -1):
        features, labels = separable(200, 4)
        random = np.random.default_rng(5)
        with (
            patch.object(ExponentialMechanism, "choose", lambda _, losses: len(losses) // 2),
            patch.object(privgene, "uniform", lambda *shape: random.random(shape)),  # noqa: B023
        ):
            models.append(plan.method(RowsInMemory(features, sign * labels), silent))
    assert models[0].tolist() == models[1].tolist()


@pytest.mark.parametrize(("batch_size", "reads"), [(None, 7), (50, 13)])
def test_rows_are_read_once_a_generation_or_selection(batch_size, reads):
    rows = RowsInMemory(*separable(200, 4), portion=5)
    drawn = []
    draw = rows.draw
    rows.draw = lambda *given, **more: drawn.append(draw(*given, **more)) or drawn[-1]
    planned(facts=Facts(200, 4), batch_size=batch_size, generations=6).method(rows, silent)
    assert rows.reads == ["loss_sums"] * reads
    assert drawn == ([] if batch_size is None else [5, 5, 3])


def test_each_selection_has_a_sample_of_its_own():
    rows, batches = RowsInMemory(*separable(200, 4), portion=4), []
    loss_sums = rows.loss_sums
    rows.loss_sums = lambda *given, **more: (
        batches.append((id(rows.packed), more["batch"])) or loss_sums(*given, **more)
    )
    planned(facts=Facts(200, 4), batch_size=50, generations=6).method(rows, silent)
    assert [number for _, number in batches] == [0, 1, 2, 3] * 3 + [0]


def breeding(**own_settings):
    return planned(facts=Facts(200, 40), **own_settings).method


def test_children_are_segments_of_their_parents():
    parents = np.repeat([[1.0], [2.0], [3.0]], 40, axis=1)
    result = breeding(parents=3, mutation=0, last_mutation=0).offspring(parents, 0)
    assert result[:3].tolist() == parents.tolist()
    changes = np.count_nonzero(np.diff(result[3:], axis=1), axis=1)
    assert set(result.ravel()) == {1.0, 2.0, 3.0}
    assert set(changes) == {0, 1, 2}
    alone = breeding(parents=3, mutation=0, last_mutation=0, crossover=0).offspring(parents, 0)
    assert not np.diff(alone, axis=1).any()


def test_mutations_shrink_from_the_first_length_to_the_last():
    run = breeding(generations=9, box=10.0, mutation=0.5, last_mutation=0.01, population=2000)
    parents = np.zeros((2, 40))
    lengths = [math.sqrt(np.mean(np.sum(run.offspring(parents, g)[2:] ** 2, axis=1))) for g in range(9)]
    assert lengths[0] == pytest.approx(5, rel=0.05)
    assert lengths[-1] == pytest.approx(0.1, rel=0.05)
    assert np.ptp(np.diff(np.log(lengths))) < 0.1


def test_candidates_stay_in_the_box_and_in_the_ball():
    run = breeding(box=2.0, start=1.0, mutation=1.0, last_mutation=1.0)
    models = run.offspring(run.first()[:2], 0)
    assert 1.9 < np.abs(models).max() <= 2
    inside = replace(run, radius=0.5).within(models)
    assert np.linalg.norm(inside, axis=1).max() <= 0.5 * (1 + 1e-14)  # 40 squares, a root and a division err by less
    assert np.abs(np.abs(np.einsum("ij,ij->i", inside, models)) / np.linalg.norm(models, axis=1) - 0.5).max() < 1e-12


def test_chances_are_uniform_and_no_seed_repeats_them():
    numbers = privgene.uniform(100, 1000)
    assert of_cells(np.bincount((numbers * 50).astype(int).ravel(), minlength=50), np.full(50, 0.02)) > ALPHA
    assert 0 <= numbers.min() < numbers.max() < 1
    np.random.seed(1)
    one = privgene.uniform(4)
    np.random.seed(1)
    assert one.tolist() != privgene.uniform(4).tolist()


# --- refusals -------------------------------------------------------------------------------------------

REFUSED = {
    "epochs": ({"epochs": 3}, r"does not support epochs \(got 3\); .*give generations in settings"),
    "a population of parents": ({"settings": '{"population": 5, "parents": 5}'}, "parents = 5 must be"),
    "a width that errors have not": (
        {"settings": '{"fitness": "errors"}', "huber_width": 0.5},
        "does not support huber_width",
    ),
    "more rows than there are": ({"batch_size": 1001}, "batch_size = 1001 must be"),
    "nothing left for a selection": ({"epsilon": 1e-9}, "fewer generations or parents"),
}


def test_what_it_does_not_have_is_refused_with_a_remedy():
    for options, text in REFUSED.values():
        with pytest.raises(ValueError, match=text):
            plan(Request(**{"epsilon": 1.0, "algorithm": "privgene"} | options), FACTS)


@pytest.mark.parametrize("facts", [Facts(10, 3, outputs=3), Facts(10, 3, is_classifier=False)])
def test_errors_of_more_classes_or_of_numbers_are_refused(facts):
    request = Request(1.0, algorithm="privgene", loss="squared" if not facts.is_classifier else "logistic")
    with pytest.raises(ValueError, match="two classes; choose fitness 'loss'"):
        plan(replace(request, settings='{"fitness": "errors"}'), facts)


def test_what_is_explained_says_what_will_be_done():
    explained = planned(1.0, 1e-6, batch_size=100).explain()
    assert explained["sampling_rate"] == 0.1
    assert explained["expected_passes"] == pytest.approx(explained["selections"] / 10)
    assert explained["selection_epsilon"] > explained["selection_charge"]
    assert (explained["mechanism"], explained["neighbours"]) == ("exponential", "replace-one")
