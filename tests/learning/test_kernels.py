"""Both kernels are the textbook's mini-batch SGD, wherever blocks begin and end."""

import math
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_kernel import kernel
from pairs import pairwise
from textbook import literal

from dbdp.learning import kernels
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic, Squared
from dbdp.learning.rows import blocks
from dbdp.learning.schedules import NONE, Averaging, Constant, Decreasing, InverseTime, Restarted, SquareRoot
from dbdp.learning.state import State

KERNELS = [False, True]
BOTH = pytest.mark.parametrize("compiled", KERNELS)
LOGISTIC, STEPS = Logistic(), np.ones(2)
LOSSES = [LOGISTIC, Logistic(3.0), HuberSvm(0.5), HuberSvm(0.05, 0.3), HuberRegression(0.2), Squared(0.8)]
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=str)
SCHEDULES = [
    (Constant(0.7), 0.0),
    (Constant(0.3), 0.05),
    (InverseTime(0.26, 0.01), 0.01),
    (Decreasing(0.26, 3.0), 0.01),
    (SquareRoot(0.26, 3.0), 0.01),
    (Restarted(0.9, 9, 2), 0.01),
]
TARGETS = [0, 1, 3]
RADII = [math.inf, 0.4]
AVERAGED = ["none", "all", "last_epoch", "restarts"]
ROWS = 103
EPOCHS = 3
TINY = 1e-12


def labels_for(loss, target, count):
    """Labels that the training takes; those of a target are its classes."""
    random = np.random.default_rng()
    if target:
        return random.integers(1, 5, count)
    return random.choice([-1.0, 1.0], count) if loss.is_classifier else random.uniform(-1, 1, count)


def packed(count, dimension, loss=LOGISTIC, target=0):
    """Random packed rows, some of them zero rows."""
    random = np.random.default_rng()
    features = random.normal(size=(count, dimension))
    features *= random.uniform(0, 1 - 2**-22, (count, 1)) / np.linalg.norm(features, axis=1, keepdims=True)
    rows = blocks.encode(features, labels_for(loss, target, count))
    rows[random.random(count) < 0.1] = 0.0
    return rows


def averaging_named(name, *, count, batch_size):
    batches = -(-count // batch_size)
    return {
        "none": NONE,
        "all": Averaging(1),
        "last_epoch": Averaging((EPOCHS - 1) * batches + 1),
        "restarts": Averaging(1, 2 * batches),
    }[name]


def initial(dimension, *, batch_size, loss=LOGISTIC, schedule=SCHEDULES[0][0], regularisation=0.0, **training):
    return State.initial(
        loss=loss,
        schedule=schedule,
        batch_size=batch_size,
        regularisation=regularisation,
        dimension=dimension,
        **training,
    )


def advanced(state, pieces, *, compiled):
    """One epoch over the rows as pieces, each through the bytes that the server would see."""
    with kernel(compiled=compiled):
        for piece in pieces:
            rows = blocks.decode(piece.tobytes(), state.dimension)
            state = State.decode(kernels.transition(state, rows).encode())
        return State.decode(kernels.terminate(state).encode())


def trained(rows, dimension, *, compiled, borders=(), epochs=EPOCHS, **training):
    state = initial(dimension, **training)
    for _ in range(epochs):
        state = advanced(state, np.split(rows, sorted(borders)), compiled=compiled)
    return state.result()


def slope_of(loss, score, label):
    """The derivative as the textbook writes it, for one row."""
    weight, margin = loss.positive_weight if label > 0 else 1.0, label * score
    if loss.name == "logistic":
        return -weight * label / (1 + math.exp(margin))
    if loss.name == "huber_svm":
        reach = (1 + loss.width - margin) / (2 * loss.width)
        return -weight * label * (0.0 if reach < 0 else 1.0 if reach > 1 else reach)
    residual = score - label
    return residual if abs(residual) <= loss.lipschitz else math.copysign(loss.lipschitz, residual)


def textbook_model(
    rows, dimension, *, batch_size, schedule, regularisation, loss=LOGISTIC, averaging=NONE, radius=math.inf, target=0
):
    features, labels = rows[:, :dimension].astype(float), rows[:, -1].astype(float)
    if target:
        labels = np.where(labels == target, 1.0, -1.0)
    model, iterates = np.zeros(dimension), []
    for _ in range(EPOCHS):
        for first in range(0, len(rows), batch_size):
            gradient = np.zeros(dimension)
            for x, y in zip(features[first : first + batch_size], labels[first : first + batch_size], strict=True):
                if x.any():
                    gradient += slope_of(loss, x @ model, y) * x
            step = schedule.step_sizes(len(iterates) + 1, 1)[0]
            model = model - step * (gradient / batch_size + regularisation * model)
            model = model * min(1.0, radius / max(np.linalg.norm(model), 1e-300))
            iterates.append(model)
        if averaging.interval and len(iterates) % averaging.interval == 0:
            model = np.mean(iterates[-averaging.interval :], axis=0)
    return np.mean(iterates[averaging.first - 1 :], axis=0) if averaging.first and not averaging.interval else model


def distance(one, other):
    return np.abs(one - other).max()


@pairwise(compiled=KERNELS, kind=SCHEDULES, batch_size=[1, 2, 3, 7, 50, ROWS - 1, ROWS])
def test_a_kernel_is_the_textbooks_sgd(compiled, kind, batch_size):
    rows = packed(ROWS, 10)
    training = {"batch_size": batch_size, "schedule": kind[0], "regularisation": kind[1]}
    model = trained(rows, 10, compiled=compiled, borders=[40, 41, 80], **training)
    assert distance(model, textbook_model(rows, 10, **training)) < TINY
    assert distance(model, textbook_model(rows, 10, **training | {"batch_size": batch_size + 1})) > TINY


@pairwise(compiled=KERNELS, loss=LOSSES, target=TARGETS, radius=RADII, averaged=AVERAGED, batch_size=[1, 6, ROWS])
def test_every_kind_of_training_is_the_textbooks(compiled, loss, target, radius, averaged, batch_size):
    rows = packed(ROWS, 5, loss, target)
    training = {
        "batch_size": batch_size,
        "schedule": Constant(0.5),
        "regularisation": 0.02,
        "loss": loss,
        "radius": radius,
        "target": target,
        "averaging": averaging_named(averaged, count=ROWS, batch_size=batch_size),
    }
    model = trained(rows, 5, compiled=compiled, borders=[32, 64, 96], **training)
    assert distance(model, textbook_model(rows, 5, **training)) < TINY


OTHERWISE = {"loss": HuberSvm(0.9), "weight": Logistic(1.01), "averaging": Averaging(2), "radius": 0.399, "target": 2}


@BOTH
@pytest.mark.parametrize("other", OTHERWISE, ids=str)
def test_every_setting_changes_the_model(compiled, other):
    rows = packed(ROWS, 5, Logistic(), 1)
    training = {
        "batch_size": 1,
        "schedule": Constant(1.0),
        "regularisation": 0.0,
        "loss": HuberSvm(1.0) if other == "loss" else Logistic(),
        "radius": 0.4,
        "target": 1,
        "averaging": Averaging(1),
    }
    changed = {"loss" if other == "weight" else other: OTHERWISE[other]}
    models = [trained(rows, 5, compiled=compiled, **given) for given in (training, training | changed)]
    assert distance(*models) > 1e-6


trainings = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 60),
        "loss": st.sampled_from(LOSSES),
        "radius": st.just(math.inf) | st.floats(0.01, 2),
        "target": st.integers(0, 4),
        "averaging": st.just(NONE) | st.builds(Averaging, st.integers(1, 100)),
    }
)
borders = st.lists(st.integers(0, 60), max_size=8)


@given(
    count=st.integers(1, 60),
    dimension=st.integers(1, 20) | st.sampled_from([54, 123]),
    borders=borders,
    training=trainings,
    kind=st.sampled_from(SCHEDULES),
    restarts=st.booleans(),
)
def test_both_kernels_leave_the_same_state(count, dimension, borders, training, kind, restarts):
    rows = packed(count, dimension, training["loss"], training["target"])
    rows[:, -1] = np.random.default_rng().choice([1.0, 0.0, np.nan, 7.5, -1.0, 2.0**20], count, p=[0.5, *[0.1] * 5])
    if restarts:
        training["averaging"] = averaging_named("restarts", count=count, batch_size=training["batch_size"])
    start = initial(dimension, schedule=kind[0], regularisation=kind[1], **training)
    states = [start, State.decode(start.encode())]
    for _ in range(EPOCHS):
        pieces = np.split(rows, sorted(borders))
        states = [advanced(state, pieces, compiled=c) for state, c in zip(states, (False, True), strict=True)]
        reference, compiled = states
        for name in ("filled", "counted", "updates"):
            assert getattr(compiled, name) == getattr(reference, name)
        for name in ("model", "gradient", "total"):
            one, other = getattr(compiled, name), getattr(reference, name)
            assert one.shape == other.shape
            assert np.allclose(one, other, rtol=TINY, atol=TINY)


@BOTH
@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 60),
    borders=borders,
    kind=st.sampled_from(SCHEDULES),
    averaged=st.sampled_from(AVERAGED),
)
def test_block_borders_never_change_the_model(compiled, count, batch_size, borders, kind, averaged):
    rows, (schedule, regularisation) = packed(count, 5), kind
    averaging = averaging_named(averaged, count=count, batch_size=batch_size)
    training = {"batch_size": batch_size, "schedule": schedule, "regularisation": regularisation}
    whole = trained(rows, 5, compiled=compiled, averaging=averaging, **training)
    parts = trained(rows, 5, compiled=compiled, averaging=averaging, borders=borders, **training)
    assert distance(parts, whole) < TINY


@pairwise(compiled=KERNELS, loss=LOSSES, target=TARGETS)
def test_the_gradient_is_that_of_the_loss(compiled, loss, target):
    rows, state = packed(40, 5, loss, target), initial(5, batch_size=50, loss=loss, target=target)
    features, labels = kernels.labelled(loss, target, rows, 5)

    def total_loss(model):
        return loss.value(features @ model, labels).sum()

    step = 1e-6
    allowed = 40 * loss.smoothness * step + 1e-7
    gradient = np.zeros(5)
    while distance(gradient, 0) <= 2000 * allowed:  # a model near a minimum, where a fault of 1e-3 is not seen
        state.model[:], state.gradient[:], state.filled = np.random.default_rng().normal(size=5), 0.0, 0
        at = state.model.copy()
        with kernel(compiled=compiled):
            gradient = kernels.transition(state, rows).gradient.copy()
    slopes = [(total_loss(at + step * way) - total_loss(at - step * way)) / (2 * step) for way in np.eye(5)]
    assert distance(gradient, slopes) < allowed
    assert distance(gradient * (1 + 1e-3), slopes) > allowed


@BOTH
@EVERY_LOSS
@given(
    score=st.floats(-1e4, 1e4) | st.floats(-2, 2) | st.sampled_from([709.0, 710.0, 745.2, -709.8, 1e100, -1e100]),
    label=st.sampled_from([-1.0, 1.0]) | st.floats(-1, 1, width=32),
)
def test_the_kernels_derivative_is_within_the_declared_error(compiled, loss, score, label):
    label = math.copysign(1.0, label) if loss.is_classifier else label
    state = initial(1, batch_size=2, loss=loss)
    state.model[:] = 2.0 * score  # so that the score of the feature 1/2 is exact, and its share of the gradient
    with kernel(compiled=compiled):
        kernels.transition(state, blocks.encode(np.array([[0.5]]), np.array([label])))
    derivative = 2.0 * float(state.gradient[0])
    assert abs(derivative) <= loss.lipschitz
    with mpmath.workprec(400):
        error = abs(literal(loss, score, label)[1] - derivative)
        assert error <= loss.scalar_error * mpmath.mpf(2) ** -53


@BOTH
def test_rows_and_updates_are_counted_over_all_epochs(compiled):
    state = advanced(initial(4, batch_size=5), [packed(10, 4)], compiled=compiled)
    assert (state.filled, state.updates) == (0, 2)  # a full last mini-batch ends without another update
    with kernel(compiled=compiled):
        begun = kernels.transition(State.decode(state.encode()), packed(3, 4))
    assert (begun.filled, begun.updates, begun.model.tolist()) == (3, 2, state.model.tolist())
    assert advanced(state, [packed(7, 4)], compiled=compiled).updates == 4


@BOTH
def test_a_mini_batch_of_everything_may_span_many_blocks(compiled):
    state = initial(4, batch_size=1000, averaging=Averaging(1))
    state = advanced(state, [packed(200, 4) for _ in range(5)], compiled=compiled)
    assert (state.filled, state.updates, state.counted) == (0, 1, 1)
    assert state.model.any()
    assert state.result().tolist() == state.model.tolist()


@BOTH
def test_a_short_last_mini_batch_is_divided_by_the_batch_size(compiled):
    rows = blocks.encode(np.array([[0.5], [0.5], [0.5]]), np.array([1, 1, 1]))
    (model,) = trained(rows, 1, compiled=compiled, batch_size=50, schedule=Constant(1.0), epochs=1)
    assert model == pytest.approx(3 * 0.5 * 0.5 / 50, rel=1e-14)


def iterates(rows, dimension, **training):
    """The model after every update, by an epoch of one row at a time."""
    seen, state = [], initial(dimension, **training)
    for row in np.split(rows, len(rows)):
        before = state.updates
        state = kernels.transition(state, row)
        seen += [state.model.copy()] * (state.updates - before)
    return seen


@pairwise(compiled=KERNELS, batch_size=[1, 4], borders=[[], [5, 17, 30], range(1, 48)], first=[1, 2, 8, 12])
def test_only_iterates_from_the_first_on_are_summed(compiled, batch_size, borders, first):
    rows, averaging = packed(48, 3), Averaging(first)
    counted = iterates(rows, 3, batch_size=batch_size)[first - 1 :]
    pieces = np.split(rows, borders)
    state = advanced(initial(3, batch_size=batch_size, averaging=averaging), pieces, compiled=compiled)
    assert state.counted == len(counted) == 48 // batch_size - first + 1
    assert distance(state.total, np.sum(counted, axis=0)) < TINY
    assert distance(state.result(), np.mean(counted, axis=0)) < TINY


@pairwise(compiled=KERNELS, batch_size=[1, 4], radius=[1e-3, 0.05, 0.3])
def test_no_iterate_leaves_its_ball(compiled, batch_size, radius):
    state = initial(20, batch_size=batch_size, radius=radius, schedule=Constant(1.0))
    for row in np.split(packed(60, 20), 60):
        with kernel(compiled=compiled):
            state = kernels.transition(state, row)
        assert np.linalg.norm(state.model) <= radius * (1 + 1e-14)
    assert np.linalg.norm(state.model) > 0.3 * radius


def published(epoch_batches, *, step, interval, epochs, regularisation, dimension):
    """RSGD-AR line by line (Chen, Lee & Kifer 2019, Algorithm 3), the mean stored as w_{t+1} (privacy.md §3)."""
    w, t, h = {0: np.zeros(dimension)}, 0, 0
    for s in range(1, epochs + 1):
        h = h + 1
        eta = step / h
        for features, labels in epoch_batches:
            t = t + 1
            slopes = -labels / (1 + np.exp(labels * (features @ w[t - 1])))
            g = slopes @ features / len(features) + regularisation * w[t - 1]
            w[t] = w[t - 1] - eta * g
        if s % interval == 0:
            t = t + 1
            w[t] = sum(w[t - k] for k in range(1, len(epoch_batches) * interval + 1)) / (len(epoch_batches) * interval)
            h = 0
    return w[t]


def both_ways(*, compiled, epochs, interval, batch_size, schedule=None, averaging=None):
    """A model of the kernels and one of the published algorithm, over the same rows."""
    rows, batches = packed(36, 6), 36 // batch_size
    features, labels = (np.split(values, batches) for values in kernels.labelled(Logistic(), 0, rows, 6))
    facts = {"step": 1.5, "interval": interval, "epochs": epochs, "regularisation": 0.01, "dimension": 6}
    model = trained(
        rows,
        6,
        compiled=compiled,
        borders=[7, 20],
        epochs=epochs,
        batch_size=batch_size,
        regularisation=0.01,
        schedule=schedule or Restarted(1.5, batches, interval),
        averaging=averaging or Averaging(1, batches * interval),
    )
    return model, published(list(zip(features, labels, strict=True)), **facts)


@pairwise(compiled=KERNELS, epochs=[2, 3, 6, 7], interval=[1, 2, 3], batch_size=[1, 4, 12, 36])
def test_restarts_are_those_of_the_published_algorithm(compiled, epochs, interval, batch_size):
    facts = {"epochs": epochs, "interval": interval, "batch_size": batch_size}
    assert distance(*both_ways(compiled=compiled, **facts)) < TINY


@BOTH
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"schedule": Restarted(1.5, 9, 0)}, id="the step is never reset"),
        pytest.param({"averaging": NONE}, id="no averaging"),
        pytest.param({"averaging": Averaging(2, 27)}, id="an iterate is left out"),
        pytest.param({"averaging": Averaging(1)}, id="one average at the end"),
        pytest.param({"averaging": Averaging(1, 18)}, id="averaging too often"),
    ],
)
def test_another_way_to_restart_would_be_seen(compiled, fault):
    assert distance(*both_ways(compiled=compiled, epochs=7, interval=3, batch_size=4, **fault)) > 1e-6


INSIDE = [0.5, 0.5]
NO_PACKED_ROWS = {
    "norm above 1": ([0.9, 0.9], 1),
    "norm of 1, which no packed row has": ([1.0, 0.0], 1),
    "NaN": ([0.1, np.nan], 1),
    "infinity": ([np.inf, 0.1], -1),
    "minus infinity": ([0.1, -np.inf], -1),
    "a square that overflows float32": ([3e38, 3e38], 1),
    "label NaN": (INSIDE, np.nan),
    "label -NaN": (INSIDE, -np.nan),
    "label infinity": (INSIDE, np.inf),
    "label minus infinity": (INSIDE, -np.inf),
    "label 3e38": (INSIDE, 3e38),
    "label 1.5": (INSIDE, 1.5),
    "label -2": (INSIDE, -2),
    "label just above 1": (INSIDE, np.nextafter(np.float32(1), np.float32(2))),
}
NO_LABEL_OF = {
    (True, False): {"label 0": (INSIDE, 0), "label 2": (INSIDE, 2), "label 0.5": (INSIDE, 0.5)},
    (False, False): {"label 2": (INSIDE, 2)},
    (True, True): {"label 0": (INSIDE, 0), "label 0.5": (INSIDE, 0.5), "label -1": (INSIDE, -1)},
    (False, True): {"label 0": (INSIDE, 0), "label 0.5": (INSIDE, 0.5), "label -1": (INSIDE, -1)},
}
NO_CLASS = {"label 3e38"}  # it is a whole number above 0, and so some other class


@BOTH
@pairwise(loss=[Logistic(), HuberSvm(), HuberRegression(), Squared()], target=[0, 2])
def test_what_is_no_packed_row_counts_as_the_zero_row(compiled, loss, target):
    rows, counted = packed(21, 2, loss, target), set()
    training = {"schedule": Constant(1.0), "regularisation": 0.01, "loss": loss, "target": target}
    bad = NO_PACKED_ROWS | NO_LABEL_OF[loss.is_classifier, target > 0]
    for name in bad.keys() - (NO_CLASS if target else set()):
        zeroed, replaced = rows.copy(), rows.copy()
        zeroed[[0, 6, 20]] = 0.0
        replaced[[0, 6, 20]] = blocks.encode(np.array([bad[name][0]]), np.array([bad[name][1]]))
        for size in (1, 4, 5, 50):
            models = [trained(each, 2, compiled=compiled, batch_size=size, **training) for each in (replaced, zeroed)]
            counted |= set() if models[0].tolist() == models[1].tolist() else {(name, size)}
    assert counted == set()


@pairwise(compiled=KERNELS, loss=LOSSES, target=TARGETS, batch_size=[1, 2, 50])
def test_the_longest_packed_row_does_count(compiled, loss, target, batch_size):
    rows = blocks.encode(np.array([[1 - 2.0**-22, 0.0]]), np.array([1]))
    assert trained(rows, 2, compiled=compiled, batch_size=batch_size, loss=loss, target=target)[0] != 0


@pairwise(compiled=KERNELS, batch_size=[1, 4], number=[2, 1000, 2**24])
def test_a_row_of_any_class_counts_and_none_that_is_too_long(compiled, batch_size, number):
    for norm, counts in ((1 - 2.0**-22, True), (1 + 2.0**-22, False)):
        rows = blocks.encode(np.array([[norm, 0.0]] * 4), np.full(4, number))
        for target in (number, 1):
            model = trained(rows, 2, compiled=compiled, batch_size=batch_size, target=target)
            assert model.any() == counts
            assert np.sign(model[0]) == counts * (1 if target == number else -1)


@BOTH
def test_a_label_of_zero_is_a_number_to_a_regression(compiled):
    rows = blocks.encode(np.array([[0.5], [0.5]]), np.array([1.0, 0.0]))
    training = {"batch_size": 1, "schedule": Constant(1.0), "epochs": 1}
    for loss in (HuberRegression(), Squared()):
        (model,) = trained(rows, 1, compiled=compiled, loss=loss, **training)
        assert model == 0.5 - 0.5 * 0.5 * 0.5


@pairwise(compiled=KERNELS, loss=LOSSES, batch_size=[1, 4], feature=[0.75, -0.75], label=[1, -1])
def test_no_score_overflows(compiled, loss, batch_size, feature, label):
    rows = blocks.encode(np.full((4, 1), feature), np.full(4, label))
    state = initial(1, loss=loss, batch_size=batch_size, schedule=Constant(1.0))
    state.model[:] = 1e5
    (model,) = advanced(state, [rows], compiled=compiled).model
    slope = loss.derivative(np.array([feature * 1e5]), np.array([label]))[0]
    assert abs(slope) in (0.0, loss.positive_weight if label > 0 else 1.0, loss.lipschitz)
    assert model == pytest.approx(1e5 - 4 / batch_size * slope * feature, abs=1e-10)


MODELS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])


def errors(models, *rows):
    features, labels = zip(*rows, strict=True)
    return kernels.count_errors(models, blocks.encode(np.array(features), np.array(labels)))


def test_one_model_errs_where_the_sign_is_not_the_labels():
    right = [([0.5, 0.1], 1), ([-0.5, 0.1], -1)]
    wrong = [([-0.5, 0.1], 1), ([0.5, 0.1], -1), ([0.0, 0.5], 1), ([0.0, 0.5], -1), ([0.5, 0.1], 0), ([0.0, 0.0], 0)]
    assert errors(MODELS[:1], *right) == 0
    assert errors(MODELS[:1], *right, *wrong) == len(wrong)


def test_several_models_err_where_another_scores_highest():
    right = [([0.5, 0.1], 1), ([0.1, 0.5], 2), ([-0.5, -0.1], 3)]
    wrong = [([0.5, 0.1], 2), ([0.1, 0.5], 1), ([-0.5, -0.1], 2), ([0.5, 0.1], 0), ([0.0, 0.0], 0), ([0.5, 0.1], 1.5)]
    assert errors(MODELS, *right) == 0
    assert errors(MODELS, *right, *wrong) == len(wrong)


def test_what_is_no_packed_row_is_an_error():
    for name, bad in NO_PACKED_ROWS.items():
        assert errors(MODELS, bad) == 1, name
        if bad[0] != INSIDE or not np.isfinite(bad[1]):  # any finite label has a sign
            assert errors(MODELS[:1], bad) == errors(-MODELS[:1], bad) == 1, name


@given(place=st.integers(0, 19), classes=st.integers(1, 5))
def test_a_record_changes_the_count_by_one_at_most(place, classes):
    rows, (other,) = packed(20, 3, target=classes - 1), packed(1, 3, target=classes - 1)
    models, others = np.random.default_rng().normal(size=(classes, 3)), rows.copy()
    others[place] = other
    assert abs(kernels.count_errors(models, rows) - kernels.count_errors(models, others)) <= 1


def alike(loss, batch_size, radius, averaging):
    """States of classes that differ in target, step size and regularisation."""
    named = averaging_named(averaging, count=ROWS, batch_size=batch_size)
    training = {"loss": loss, "batch_size": batch_size, "radius": radius, "averaging": named}
    return [
        initial(13, schedule=Constant(0.3 + 0.1 * k), regularisation=0.01 * k, target=k, **training)
        for k in range(1, 6)
    ]


@pairwise(
    loss=[LOGISTIC, Logistic(3.0), HuberSvm(0.05, 0.3)],
    batch_size=[1, 2, 7, 8, 50, ROWS, 500],
    radius=RADII,
    averaging=["none", "all", "last_epoch"],
)
def test_several_models_advance_bit_for_bit_as_each_alone(loss, batch_size, radius, averaging):
    rows = packed(ROWS, 13, loss, target=1)
    rows[3, 0], rows[17, -1], rows[40, -1], rows[71, 2] = 2.0, np.nan, 2.5, np.inf  # what no packing makes
    states, alone = (alike(loss, batch_size, radius, averaging) for _ in range(2))
    for piece in np.split(rows, [1, 30, 31, 77]):
        states = kernels.transition_of_each(states, piece)
        alone = [kernels.transition(state, piece) for state in alone]
    assert [state.encode() for state in states] == [state.encode() for state in alone]
    assert len({state.encode() for state in states}) == len(states)


@pytest.mark.parametrize(
    "changed", [{"target": 0}, {"filled": 3}, {"batch_size": 9}, {"loss": HuberSvm(0.05)}], ids=str
)
def test_models_that_are_not_alike_advance_as_each_does_alone(changed):
    rows = packed(40, 13, target=1)
    rows[:20, -1] = 1.0
    states, alone = (alike(LOGISTIC, 7, math.inf, "none") for _ in range(2))
    for several in (states, alone):
        for name, value in changed.items():
            setattr(several[2], name, value)
    states = kernels.transition_of_each(states, rows)
    assert [one.encode() for one in states] == [kernels.transition(one, rows).encode() for one in alone]
    with pytest.raises(ValueError, match=r"fit|step size"):
        kernels.compiled.add_rows_of_each(states, rows, np.ones((5, 5)), np.zeros(5, np.int64))


def compiled_call_of_each(*, steps=None, averaged=(0,) * 5, rows=None):
    states = alike(LOGISTIC, 7, math.inf, "none")
    given = packed(14, 13, target=1) if rows is None else rows
    steps = np.ones((5, 2)) if steps is None else steps
    kernels.compiled.add_rows_of_each(states, given, steps, np.array(averaged, np.int64))
    return all(state.model.any() for state in states)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": np.ones((5, 1))},
        {"steps": np.ones((4, 2))},
        {"averaged": (0,) * 4},
        {"averaged": (1,) * 5},
        {"averaged": (-1, 0, 0, 0, 0)},
        {"rows": np.zeros((14, 8), np.float32)},
        {"rows": np.zeros((14, 17), np.float32)},
    ],
    ids=str,
)
def test_the_kernel_of_several_models_refuses_misfits(changes):
    assert compiled_call_of_each()
    with pytest.raises(ValueError, match=r"fit|step size|averaged"):
        compiled_call_of_each(**changes)


@dataclass(frozen=True)
class Perceptron(Logistic):
    name: ClassVar[str] = "perceptron"
    code: ClassVar[int] = 9


def compiled_call(*, rows=None, step_sizes=STEPS, averaged=0, **changes):
    state = initial(3, batch_size=4, averaging=Averaging(1))
    for name, value in changes.items():
        setattr(state, name, value)
    kernels.compiled.add_rows(state, packed(8, 3) if rows is None else rows, step_sizes, averaged)
    return state.model.any()


@pytest.mark.parametrize(
    "changes",
    [
        {"step_sizes": np.ones(1)},
        {"step_sizes": np.ones(3)},
        {"batch_size": 0},
        {"filled": 4},
        {"filled": -1},
        {"averaged": -1},
        {"averaged": 3},
        {"gradient": np.zeros(2)},
        {"total": np.zeros(4), "averaged": 1},
        {"total": np.zeros(0), "averaged": 1},
        {"model": np.zeros(8), "gradient": np.zeros(8)},
        {"rows": np.zeros((8, 9), np.float32)},
        {"loss": Perceptron()},
    ],
    ids=str,
)
def test_the_compiled_kernel_refuses_arguments_that_do_not_fit(changes):
    assert compiled_call()
    with pytest.raises(ValueError, match=r"fit|step size|no loss|averaged"):
        compiled_call(**changes)
