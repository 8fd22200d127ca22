"""Preconditioned descent: what one record moves, what follows from the noisy second moment, and what is learned."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from chance import usually
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import RowsInMemory
from scipy import stats

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.preconditioned.momentum import accumulated_noise
from dbdp.algorithms.families.preconditioned.preconditioning import (
    coordinates_of,
    matrix_of,
    moment_noise,
    moment_sensitivity,
    preconditioner_of,
    ridge_of,
)
from dbdp.algorithms.noisy_sums import Summed, measured_sensitivity
from dbdp.algorithms.plan import Moment
from dbdp.learning import second_moments
from dbdp.learning.counts.score_tables import NODES
from dbdp.learning.losses import HuberSvm
from dbdp.learning.objectives import Linear, Softmax, objective_from
from dbdp.learning.rows import blocks
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.mechanisms import Gaussian

SHRUNK = 1 - 2.0**-22  # the longest stored row
RANDOM = np.random.default_rng()
SILENT = lambda *_: None  # noqa: E731


def planned(facts=None, *, epsilon=1.0, delta=1e-6, own=None, **request):
    asked = {"algorithm": "preconditioned_gd", "settings": json.dumps(own or {})} | request
    return plan(Request(epsilon, delta, **asked), facts or Facts(300, 3))


def some_rows(count, dimension, *, classes=1, length=1.0):
    features = RANDOM.normal(size=(count, dimension))
    features *= length * RANDOM.uniform(size=(count, 1)) / np.linalg.norm(features, axis=1, keepdims=True)
    return features, RANDOM.integers(1, classes + 1, count) if classes > 1 else RANDOM.choice([-1.0, 1.0], count)


def packed(features, labels):
    return RowsInMemory(features, labels).all


def with_record(record, label, count=40, dimension=3, classes=1, rows=None):
    """Rows among which one is this record."""
    features, labels = rows or some_rows(count, dimension, classes=classes)
    return packed(np.vstack([features, record]), np.append(labels, label))


# --- the second moment --------------------------------------------------------------------------------------


def test_orthogonal_records_attain_the_moments_sensitivity():
    rows = some_rows(40, 3)
    one, other = (with_record(record, 1.0, rows=rows) for record in ([1, 0, 0], [0, 1, 0]))
    moved = np.subtract(*(coordinates_of(second_moments.SecondMoment(3).of_rows(each)) for each in (one, other)))
    assert 0.999999 < np.linalg.norm(moved) / moment_sensitivity(Summed.together(41)) <= 1


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 9), length=st.floats(0, 1))
def test_no_record_moves_the_second_moment_further(seed, dimension, length):
    random = np.random.default_rng(seed)
    rows = some_rows(20, dimension)
    records = random.normal(size=(2, dimension))
    records *= np.array([[1.0], [length]]) / np.linalg.norm(records, axis=1, keepdims=True)
    both = (
        coordinates_of(second_moments.SecondMoment(dimension).of_rows(with_record(each, 1.0, rows=rows)))
        for each in records
    )
    assert np.linalg.norm(np.subtract(*both)) <= moment_sensitivity(Summed.together(21))


def test_the_moments_margin_covers_its_rounding():
    """The margin of the second moment covers its rounding and the rounding is there."""
    rows = packed(*some_rows(3000, 4))
    found = coordinates_of(second_moments.SecondMoment(4).of_rows(rows))
    numbers = [[Fraction(float(value)) for value in row[:4]] for row in rows]
    exact = [[sum(row[i] * row[j] for row in numbers) for j in range(4)] for i in range(4)]
    errors = [float(Fraction(float(found[i])) - exact[i][i]) for i in range(4)]
    above = zip(found[4:], zip(*np.triu_indices(4, 1), strict=True), strict=True)
    errors += [float(Fraction(float(value) / math.sqrt(2)) - exact[i][j]) * math.sqrt(2) for value, (i, j) in above]
    assert 0 < 2 * np.linalg.norm(errors) <= moment_sensitivity(Summed.together(3000)) - math.sqrt(2)


def test_coordinates_are_orthonormal():
    one, other = (each + each.T for each in RANDOM.normal(size=(2, 5, 5)))
    assert coordinates_of(one).shape == (15,)
    assert coordinates_of(one) @ coordinates_of(other) == pytest.approx(np.sum(one * other))
    assert matrix_of(coordinates_of(one), 5) == pytest.approx(one)


def test_a_row_without_numbers_counts_for_nothing():
    """A row that is not packed and a row without a number count for nothing."""
    features, labels = some_rows(30, 3)
    sound = packed(features, labels)
    broken = blocks.encode(np.array([[2.0, 0, 0], [np.nan, 0, 0], [np.inf, 0, 0]]), np.ones(3))
    both = np.concatenate([sound, broken])
    assert second_moments.SecondMoment(3).of_rows(both) == pytest.approx(second_moments.SecondMoment(3).of_rows(sound))
    lengths = second_moments.lengths_by(np.eye(3))(both)
    assert lengths[:30] == pytest.approx(np.linalg.norm(sound[:, :3], axis=1), rel=2e-6, abs=1e-6)
    assert np.isfinite(lengths[30:]).all()


# --- coordinates ----------------------------------------------------------------------------------------------


def test_in_its_coordinates_the_second_moment_is_the_identity():
    vectors, _ = np.linalg.qr(RANDOM.normal(size=(6, 6)))
    mean = (vectors * RANDOM.uniform(1e-3, 1, 6)) @ vectors.T  # no value near the ridge, which would show
    way = preconditioner_of(mean, 1e-12)
    whitening = way.matrix * way.scale
    assert whitening @ mean @ whitening.T == pytest.approx(np.eye(6), abs=1e-6)
    assert way.effective_dimension == pytest.approx(6, rel=1e-6)
    assert np.linalg.norm(way.matrix, 2) < 1


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 12), size=st.integers(-9, 3), ridge=st.integers(-9, 3))
def test_whatever_noise_leaves_the_map_makes_no_row_longer(seed, dimension, size, ridge):
    random = np.random.default_rng(seed)
    noisy = random.normal(size=(dimension, dimension)) * 10.0**size
    way = preconditioner_of(noisy + noisy.T, 10.0**ridge)
    assert np.linalg.norm(way.matrix, 2) < 1
    assert 1 <= way.effective_dimension <= dimension


def test_a_release_that_is_all_noise_leaves_a_model():
    way = preconditioner_of(-np.eye(4), 0.25)
    assert (way.effective_dimension, way.scale) == (1.0, pytest.approx(2.0, rel=1e-5))
    assert np.isfinite(planned(epsilon=1e-4).run(RowsInMemory(*some_rows(300, 3)), SILENT).models).all()


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 20), small=st.integers(0, 12))
def test_a_length_is_above_the_exact_one_and_hardly_longer(seed, dimension, small):
    random = np.random.default_rng(seed)
    features = random.normal(size=(3, dimension))
    rows = packed(10.0**-small * features / np.linalg.norm(features, axis=1, keepdims=True), np.ones(3))
    matrix = np.linalg.qr(random.normal(size=(dimension, dimension)))[0] * (1 - 2.0**-20)
    for row, length in zip(rows[:, :dimension], map(float, second_moments.lengths_by(matrix)(rows)), strict=True):
        moved = (
            sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(line, row, strict=True)) for line in matrix
        )
        square = sum(each**2 for each in moved)
        assert Fraction(length) ** 2 > square
        assert length == pytest.approx(math.sqrt(square), rel=1e-5, abs=1e-5)


def test_the_bound_on_lengths_refuses_a_longer_matrix():
    with pytest.raises(ValueError, match="above √2, the limit"):
        second_moments.lengths_by(2 * np.eye(2))


@pytest.mark.parametrize("objective", [Linear(HuberSvm(), 3), Linear(HuberSvm(), 3, 4), Softmax(3, 4)])
def test_clipped_by_lengths_the_sum_is_that_of_the_moved_rows(objective):
    features, labels = some_rows(50, 3, classes=objective.outputs)
    matrix = np.array([[0.5, 0.1, 0], [0.2, 0.4, 0.2], [0, 0.1, 0.3]])
    rows, moved = packed(features, labels), packed(features @ matrix.T, labels)
    model = RANDOM.normal(size=(objective.outputs, 3))
    lengths = second_moments.lengths_by(matrix)(rows)
    sums = objective.gradient_sum((model @ matrix).ravel(), rows, clip=0.1, lengths=lengths)
    expected = objective.gradient_sum(model.ravel(), moved, clip=0.1)
    assert (sums.reshape(-1, 3) @ matrix.T).ravel() == pytest.approx(expected, rel=1e-5, abs=1e-6)


# --- steps ----------------------------------------------------------------------------------------------------


OBJECTIVES = {"huber_svm": (Linear(HuberSvm(), 3), 1), "softmax": (Softmax(3, 4), 4)}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_opposite_records_attain_the_sensitivity_of_a_step(name):
    objective, classes = OBJECTIVES[name]
    rows = some_rows(40, 3, classes=classes)
    matrix, clip = 0.5 * np.eye(3), 0.3
    one, other = (with_record([sign, 0, 0], 1.0, rows=rows) for sign in (1.0, -1.0))
    lengths = second_moments.lengths_by(matrix)(one)
    sums = [objective.gradient_sum(objective.initial(), each, clip=clip, lengths=lengths) for each in (one, other)]
    moved = np.linalg.norm(np.subtract(*sums).reshape(-1, 3) @ matrix.T)
    assert 0.99999 < moved / measured_sensitivity(clip, 2.0, 41, 3) <= 1


def test_the_margin_of_a_step_covers_its_rounding():
    """Every row has the slope -1: the sum errs by its additions, and the last product by its own."""
    features, _ = some_rows(3000, 4)
    rows, matrix = packed(features, np.ones(3000)), np.linalg.qr(RANDOM.normal(size=(4, 4)))[0] * (1 - 2.0**-20)
    lengths = np.ones(3000, np.float32)
    computed = Linear(HuberSvm(), 4).gradient_sum(np.zeros(4), rows, clip=2.0, lengths=lengths) @ matrix.T
    sums = [-sum(Fraction(float(value)) for value in column) for column in rows[:, :4].T]
    exact = [sum(Fraction(float(entry)) * each for entry, each in zip(line, sums, strict=True)) for line in matrix]
    errors = [float(Fraction(float(one)) - other) for one, other in zip(computed, exact, strict=True)]
    assert 0 < 2 * np.linalg.norm(errors) <= measured_sensitivity(2.0, 1.0, 3000, 4) - 4.0


def test_one_clip_holds_the_gradients_of_all_classes_together():
    """K clips would let a record move the sum by √K times as much."""
    objective, rows = Softmax(3, 4), packed(*some_rows(200, 3, classes=4))
    model = 20 * RANDOM.normal(size=12)
    gradients = np.array([objective.gradient_sum(model, row[None]) for row in rows])
    clipped = np.array([objective.gradient_sum(model, row[None], clip=0.1) for row in rows])
    norms = np.linalg.norm(gradients, axis=1)
    assert (norms > 0.1).any()
    assert np.linalg.norm(clipped, axis=1).max() <= 0.1
    assert clipped == pytest.approx(gradients * np.minimum(1, 0.1 / norms)[:, None], rel=1e-6, abs=1e-15)
    assert objective.gradient_sum(model, rows, clip=0.1) == pytest.approx(clipped.sum(axis=0))


@pytest.mark.parametrize(("loss", "is_centred"), [("logistic", True), ("huber_svm", False)])
def test_models_of_a_softmax_have_no_noise_in_common(loss, is_centred):
    """Their mean is 0; control: models of each class against the rest have another."""
    made = planned(Facts(300, 3, 4), loss=loss)
    models = made.run(RowsInMemory(*some_rows(300, 3, classes=4)), SILENT).models
    assert (np.abs(models.mean(axis=0)).max() < 1e-9 * np.abs(models).max()) == is_centred


def test_softmax_has_the_gradient_of_its_loss():
    objective, rows = Softmax(3, 4), packed(*some_rows(50, 3, classes=4))
    model, direction, step = RANDOM.normal(size=12), RANDOM.normal(size=12), 1e-6
    up, down = objective.loss_sums(np.array([model + step * direction, model - step * direction]), rows)
    assert objective.gradient_sum(model, rows) @ direction == pytest.approx(
        (up - down) / (2 * step), rel=1e-5, abs=1e-6
    )
    assert objective_from(json.dumps(objective.as_data())) == objective


@pytest.mark.parametrize("label", [0.0, -1.0, 1.5, 5.0, np.inf, np.nan])
def test_a_row_without_a_class_is_in_no_sum_of_softmax(label):
    objective, rows = Softmax(3, 4), packed(*some_rows(20, 3, classes=4))
    more = np.concatenate([rows, blocks.encode(np.array([[0.5, 0.5, 0.5]]), np.array([label]))])
    model = RANDOM.normal(size=12)
    assert objective.gradient_sum(model, more) == pytest.approx(objective.gradient_sum(model, rows))
    assert objective.loss_sums(model[None], more) == pytest.approx(objective.loss_sums(model[None], rows))


class Watched(RowsInMemory):
    """Rows that remember the matrix that they were transformed by."""

    def transform(self, matrix, placed=None):
        self.matrix = matrix
        super().transform(matrix, placed)


# --- the plan -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [{}, {"passes": 7, "moment_share": 0.6, "evaluation_share": 0}])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_the_parts_of_the_noise_add_up_to_what_is_charged(epsilon, own):
    descent = planned(epsilon=epsilon, own=own).method
    square = descent.moment_multiplier**-2 + descent.passes * descent.step_multiplier**-2
    square += descent.evaluation.noise.multiplier**-2 if descent.evaluation else 0
    assert 1 - 1e-9 < square * analytic_noise_multiplier(epsilon, 1e-6) ** 2 <= 1


def test_what_is_drawn_is_what_is_planned(monkeypatch):
    """The second moment and each step by its own Gaussian, of all coordinates, whose sensitivity is covered."""
    released, sound = [], Gaussian.release

    def seen(noise, vector):
        released.append((noise, len(vector)))
        return sound(noise, vector)

    monkeypatch.setattr(Gaussian, "release", seen)
    made = planned(Facts(300, 4), own={"passes": 5})
    made.run(RowsInMemory(*some_rows(300, 4)), SILENT)
    (moment, count), *steps, (table, cells) = released
    descent = made.method
    assert (count, [each for _, each in steps], cells) == (10, [4] * 5, 2 * NODES)
    assert table.noise_scale >= descent.evaluation.noise.multiplier * math.sqrt(2)
    assert moment.noise_scale >= descent.moment_multiplier * moment_sensitivity(Summed.together(300))
    assert all(noise.noise_scale >= descent.step_multiplier * noise.sensitivity for noise, _ in steps)
    expected = moment_noise(Summed.together(300), 4, descent.moment_multiplier)
    assert moment.noise_scale == made.details["noise_scale"] == expected.noise_scale
    assert made.details["ridge"] == ridge_of(moment, 300, 4)


@pytest.mark.parametrize(
    ("signal", "outputs", "passes", "clip", "step"),
    [
        (1, 1, 10, 0.15, 4.0),
        (8, 1, 10, 0.25, 4.0),
        (15, 1, 16, 0.4, 4.0),
        (10, 0, 16, 0.13, 1.0),
        (100, 0, 18, 0.326, 1.0),
        (1000, 0, 18, 0.4, 1.0),
        (100, 1, 16, 0.4, 8.0),
        (1, 5, 20, 0.25, 8.0),
        (39, 5, 20, 0.25, 8.0),
        (100, 5, 40, 0.25, 8.0),
    ],
)
def test_passes_and_clip_follow_from_public_facts(signal, outputs, passes, clip, step):
    """Without outputs the label is a number."""
    rows = math.ceil(signal * 10 * analytic_noise_multiplier(1.0, 1e-6))
    facts = Facts(rows, 10, max(1, outputs), is_classifier=outputs > 0)
    details = planned(facts, loss="logistic" if outputs else "huber_regression").details
    assert [details[name] for name in ("steps", "step_size")] == [passes, step]
    assert details["clip"] == pytest.approx(clip, rel=1e-2)
    assert details["moment_share"] == {0: 0.2, 1: 0.3}.get(outputs, 0.15)


@pytest.mark.parametrize(("outputs", "factor"), [(1, 1), (3, 2)])
def test_several_classes_have_twice_the_ridge_of_one_model(outputs, factor):
    """Of a moment that is released now, and of a summary's, whose coordinates show it: W² is 1/(1 + κ) and 1/κ."""
    facts = Facts(300, 2, outputs)
    made = planned(facts, own={"moment_share": 0.3})
    noise = moment_noise(Summed.together(300), 2, made.method.moment_multiplier)
    assert made.details["ridge"] == factor * ridge_of(noise, 300, 2)
    made = planned(replace(facts, moment=Moment(np.diag([1.0, 0.0]), 0.1)), summary=7)
    rows = Watched(*some_rows(300, 2, classes=outputs))
    made.run(rows, SILENT)
    ridge = made.details["ridge"]
    assert ridge == factor * 0.1
    assert (rows.matrix[0, 0] / rows.matrix[1, 1]) ** 2 == pytest.approx(ridge / (1 + ridge))


def test_what_is_given_replaces_the_rule():
    details = planned(own={"passes": 3, "clip": 0.7, "moment_share": 0.5}, step_size=2.0).details
    assert [details[name] for name in ("steps", "clip", "moment_share", "step_size")] == [3, 0.7, 0.5, 2.0]


REFUSED = {
    "pure ε": ({"delta": 0.0}, "needs a delta > 0; give one, or choose objective_perturbation"),
    "too many features": (
        {"facts": Facts(10**6, 2049)},
        "features = 2049 .* between 1 and 2048: give a projection_dimension",
    ),
    "weighted softmax": (
        {"facts": Facts(300, 3, 4), "positive_weight": 2.0},
        "softmax.* does not support positive_weight",
    ),
    "epochs": ({"epochs": 3}, "does not support epochs .* give passes in settings"),
    "a clip of its own": ({"clip_norm": 0.5}, "does not support clip_norm .* give clip in settings"),
    "a regulariser": ({"regularisation": 0.1}, "does not support regularisation .* the coordinates regularise"),
    "endless steps": ({"step_size": 1e7}, "step_size = 1e\\+07|step_size = 10000000"),
    "denormal steps": ({"step_size": 1e-310}, "step_size = 1e-310 must be between 1e-06 and 1e\\+06"),
    "a share and a summary": (
        {"summary": 7, "own": {"moment_share": 0.4}},
        "no effect with summary 7; drop one of them",
    ),
}


def test_what_cannot_be_planned_is_refused_with_a_remedy():
    for options, message in REFUSED.values():
        with pytest.raises(ValueError, match=message):
            planned(**options)


# --- runs -----------------------------------------------------------------------------------------------------


def unequal(count, dimension=8):
    """Rows whose coordinates have variances from 1 to 10⁻⁴, and labels that the small ones decide."""
    features = RANDOM.normal(size=(count, dimension)) * np.geomspace(1, 1e-2, dimension)
    features /= np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))
    return features, np.where(features[:, -1] + features[:, -2] > 0, 1.0, -1.0)


def test_it_learns_what_plain_descent_does_not_see():
    facts, train, test = Facts(20_000, 8), unequal(20_000), unequal(5000)

    def right(algorithm, **more):
        made = plan(Request(1.0, 1e-6, algorithm=algorithm, **more), facts)
        model = made.run(RowsInMemory(*train), SILENT).models[0]
        return np.mean((test[0] @ model > 0) == (test[1] > 0))

    assert usually(lambda: right("preconditioned_gd") > 0.89)
    assert usually(lambda: right("dp_sgd", batch_size=1000) < 0.89)


def test_classes_are_learned_together():
    features, _ = some_rows(20_000, 3)
    labels = 1 + np.argmax(features @ np.array([[1, -1, 0], [0, 1, -1], [-1, 0, 1]]).T, axis=1)

    def learns():
        models = planned(Facts(20_000, 3, 3)).run(RowsInMemory(features, labels), SILENT).models
        return models.shape == (3, 3) and np.mean(1 + np.argmax(features @ models.T, axis=1) == labels) > 0.9

    assert usually(learns)


@pytest.mark.parametrize("loss", ["huber_regression", "squared"])
def test_numbers_are_learned(loss):
    features, _ = some_rows(20_000, 3)
    labels = features @ np.array([0.5, -0.3, 0.2])

    def learns():
        facts = Facts(20_000, 3, is_classifier=False)
        model = planned(facts, loss=loss).run(RowsInMemory(features, labels), SILENT).models[0]
        return np.mean((features @ model - labels) ** 2) < 0.1 * np.var(labels)

    assert usually(learns)


def test_the_released_model_is_within_a_radius_that_is_given():
    rows, facts = RowsInMemory(*unequal(3000)), Facts(3000, 8)
    assert np.linalg.norm(planned(facts).run(rows, SILENT).models) > 0.5
    assert np.linalg.norm(planned(facts, radius=0.5).run(rows, SILENT).models) <= 0.5 * (1 + 1e-12)


def test_long_steps_and_nothing_but_noise_leave_a_finite_model():
    made = planned(epsilon=1e-6, step_size=1e6, own={"passes": 50, "clip": 100.0})
    assert np.isfinite(made.run(RowsInMemory(*some_rows(300, 3)), SILENT).models).all()


@pytest.mark.parametrize("dimension", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_features_are_trained_on(dimension):
    made = planned(Facts(2000, dimension), own={"passes": 2})
    assert np.isfinite(made.run(RowsInMemory(*some_rows(2000, dimension)), SILENT).models).all()


# --- what a release says of itself ----------------------------------------------------------------------------


def test_a_release_shows_its_effective_dimension_and_clip(monkeypatch):
    seen, sound = [], Gaussian.release

    def released(noise, vector):
        seen.append((noise, sound(noise, vector)))
        return seen[-1][1]

    monkeypatch.setattr(Gaussian, "release", released)
    made = planned(Facts(300, 3))
    figures = made.run(RowsInMemory(*some_rows(300, 3)), SILENT).figures
    (noise, moment), (step, _), *_ = seen
    way = preconditioner_of(matrix_of(moment, 3) / 300, ridge_of(noise, 300, 3))
    assert figures["effective_dimension"] == way.effective_dimension
    assert figures["clip_norm"] == made.method.clip * math.sqrt(way.effective_dimension)
    assert step.sensitivity == pytest.approx(2 * figures["clip_norm"] / way.scale, rel=1e-4)  # what the noise covers


@pytest.mark.parametrize(("passes", "momentum"), [(1, 0.5), (2, 0.5), (10, 0.5), (16, 0.5), (20, 0.7)])
def test_curvature_only_reduces_the_noise_that_steps_accumulate(passes, momentum):
    """By the recursion itself, one unit of noise in one step at a time."""
    for curvature in (0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 2.9):
        averaged, square = -(-passes // 2), 0.0
        for noisy in range(passes):
            model = moved = total = 0.0
            for step in range(passes):
                moved = momentum * moved - curvature * model + (step == noisy)
                model += moved
                total += model if step >= passes - averaged else 0.0
            square += (total / averaged) ** 2
        bound = accumulated_noise(passes, averaged, momentum)
        assert square <= bound**2 * (1 + 1e-12)
        assert square >= bound**2 * (1 - 1e-12) or curvature > 0


RUNS = 300


def coefficients_and_errors(rows, facts, **request):
    """Coefficients of many runs, and the errors that each states, shapes (runs, features)."""
    made, pairs = planned(facts, own={"evaluation_share": 0}, **request), []
    for _ in range(RUNS):
        release = made.run(RowsInMemory(*rows), SILENT)
        pairs.append((release.models[0], np.linalg.norm(release.noise_root, axis=0)))
    return np.array(pairs).transpose(1, 0, 2)


def limits(features, freedom):
    """Limits that so many sums of squares of independent standard Gaussians pass with a probability of 10⁻⁹."""
    return stats.chi2.ppf([5e-10 / features, 1 - 5e-10 / features], freedom)


def test_the_stated_errors_are_the_spread_without_data():
    coefficients, errors = coefficients_and_errors((np.zeros((300, 3)), np.ones(300)), Facts(300, 3))
    squares, (low, high) = ((coefficients / errors) ** 2).sum(axis=0), limits(3, RUNS)
    assert (low < squares).all() and (squares < high).all()
    assert (squares > high / 4).all() and (squares < 4 * low).all()  # errors twice or half as large would fail


def test_with_data_the_coefficients_spread_no_more_than_stated():
    """Of a summary's second moment, so that all runs have the same coordinates; the rows pull back."""
    rows = unequal(300, 3)
    moment = Moment(rows[0].T @ rows[0] / 300, 0.01)
    coefficients, errors = coefficients_and_errors(rows, Facts(300, 3, moment=moment), summary=1)
    shares, high = coefficients.var(axis=0, ddof=1) / errors[0] ** 2, limits(3, RUNS - 1)[1] / (RUNS - 1)
    assert (shares < high).all()
    assert (shares * 30**2 > high).any()  # a thirtieth of the stated errors would not do
