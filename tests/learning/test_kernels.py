"""Both kernels are the textbook's mini-batch SGD, wherever blocks begin and end."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.learning import blocks, kernels
from dbdp.learning.losses import Logistic
from dbdp.learning.schedules import Constant, InverseTime
from dbdp.learning.state import State

NEEDS_KERNEL = pytest.mark.skipif(not kernels.COMPILED, reason="no compiled kernel: built without a compiler")
BOTH = pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=NEEDS_KERNEL)])
SCHEDULES = [(Constant(0.7), 0.0), (Constant(0.3), 0.05), (InverseTime(0.26, 0.01), 0.01)]
EVERY_SCHEDULE = pytest.mark.parametrize(("schedule", "regularisation"), SCHEDULES)
ROWS = 103
EPOCHS = 3
TINY = 1e-12


def packed(count, dimension):
    """Random packed rows, some of them zero rows."""
    random = np.random.default_rng()
    features = random.normal(size=(count, dimension))
    features *= random.uniform(0, 1 - 2**-22, (count, 1)) / np.linalg.norm(features, axis=1, keepdims=True)
    labels = random.choice([-1, 0, 1], count, p=[0.45, 0.1, 0.45])
    return blocks.encode(features * (labels != 0)[:, None], labels)


def initial(dimension, *, batch_size, schedule=SCHEDULES[0][0], regularisation=0.0):
    return State.initial(
        loss=Logistic(),
        schedule=schedule,
        batch_size=batch_size,
        regularisation=regularisation,
        dimension=dimension,
    )


def advanced(state, pieces, *, compiled):
    """One epoch over the rows as pieces, each through the bytes that the server would see."""
    with patch.object(kernels, "COMPILED", compiled):
        for piece in pieces:
            rows = blocks.decode(piece.tobytes(), state.dimension)
            state = State.decode(kernels.transition(state, rows).encode())
        return kernels.terminate(state)


def trained(rows, dimension, *, compiled, borders=(), epochs=EPOCHS, **training):
    state = initial(dimension, **training)
    for _ in range(epochs):
        state = advanced(state, np.split(rows, sorted(borders)), compiled=compiled)
    return state.model


def textbook(rows, dimension, *, batch_size, schedule, regularisation):
    features, labels = rows[:, :dimension].astype(float), rows[:, -1].astype(float)
    model, update = np.zeros(dimension), 0
    for _ in range(EPOCHS):
        for first in range(0, len(rows), batch_size):
            update += 1
            batch = slice(first, first + batch_size)
            slopes = -labels[batch] / (1 + np.exp(labels[batch] * (features[batch] @ model)))
            gradient = (slopes[:, None] * features[batch]).sum(axis=0) / batch_size + regularisation * model
            model = model - schedule.step_sizes(update, 1)[0] * gradient
    return model


def distance(one, other):
    return np.abs(one - other).max()


@BOTH
@EVERY_SCHEDULE
@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 50, ROWS - 1, ROWS])
def test_a_kernel_is_the_textbooks_sgd(compiled, schedule, regularisation, batch_size):
    rows = packed(ROWS, 10)
    training = {"batch_size": batch_size, "schedule": schedule, "regularisation": regularisation}
    model = trained(rows, 10, compiled=compiled, borders=[40, 41, 80], **training)
    assert distance(model, textbook(rows, 10, **training)) < TINY
    assert distance(model, textbook(rows, 10, **training | {"batch_size": batch_size + 1})) > TINY


@NEEDS_KERNEL
@EVERY_SCHEDULE
@pytest.mark.parametrize("dimension", [1, 6, 7, 8, 54, 123])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 50, 100])
def test_the_compiled_kernel_is_the_reference(schedule, regularisation, dimension, batch_size):
    rows = packed(100, dimension)
    training = {"batch_size": batch_size, "schedule": schedule, "regularisation": regularisation}
    borders = [32, 64, 96]
    models = [trained(rows, dimension, compiled=c, borders=borders, **training) for c in (True, False)]
    assert distance(*models) < TINY


@BOTH
@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 60),
    borders=st.lists(st.integers(0, 60), max_size=8),
    kind=st.sampled_from(SCHEDULES),
)
def test_block_borders_never_change_the_model(compiled, count, batch_size, borders, kind):
    rows, (schedule, regularisation) = packed(count, 5), kind
    training = {"batch_size": batch_size, "schedule": schedule, "regularisation": regularisation}
    whole = trained(rows, 5, compiled=compiled, **training)
    assert distance(trained(rows, 5, compiled=compiled, borders=borders, **training), whole) < TINY


@BOTH
def test_block_borders_within_a_mini_batch_keep_what_it_has_so_far(compiled):
    state = advanced(initial(4, batch_size=5), [], compiled=compiled)
    with patch.object(kernels, "COMPILED", compiled):
        state = kernels.transition(state, packed(3, 4))
    assert (state.filled, state.updates) == (3, 0)
    assert not state.model.any()


@BOTH
def test_a_short_last_mini_batch_is_divided_by_the_batch_size(compiled):
    rows = blocks.encode(np.array([[0.5], [0.5], [0.5]]), np.array([1, 1, 1]))
    (model,) = trained(rows, 1, compiled=compiled, batch_size=50, schedule=Constant(1.0), epochs=1)
    assert model == pytest.approx(3 * 0.5 * 0.5 / 50, rel=1e-14)


@BOTH
def test_an_epoch_without_a_short_mini_batch_ends_without_an_update(compiled):
    state = advanced(initial(4, batch_size=5), [packed(10, 4)], compiled=compiled)
    assert (state.filled, state.updates) == (0, 2)


@BOTH
def test_updates_are_counted_over_all_epochs(compiled):
    state = initial(4, batch_size=4)
    for _ in range(3):
        state = advanced(state, [packed(10, 4)], compiled=compiled)
    assert state.updates == 9


NO_PACKED_ROWS = {
    "norm above 1": ([0.9, 0.9], 1),
    "norm of 1, which no packed row has": ([1.0, 0.0], 1),
    "NaN": ([0.1, np.nan], 1),
    "infinity": ([np.inf, 0.1], -1),
    "minus infinity": ([0.1, -np.inf], -1),
    "a square that overflows float32": ([3e38, 3e38], 1),
    "label 0": ([0.5, 0.5], 0),
    "label 2": ([0.5, 0.5], 2),
    "label 0.5": ([0.5, 0.5], 0.5),
    "label NaN": ([0.5, 0.5], np.nan),
    "label -NaN": ([0.5, 0.5], -np.nan),
    "label infinity": ([0.5, 0.5], np.inf),
}


@BOTH
@pytest.mark.parametrize("batch_size", [1, 2, 4, 5, 50])
@pytest.mark.parametrize("bad", NO_PACKED_ROWS.values(), ids=list(NO_PACKED_ROWS))
def test_what_is_no_packed_row_counts_as_the_zero_row(compiled, batch_size, bad):
    rows = packed(21, 2)
    training = {"batch_size": batch_size, "schedule": Constant(1.0), "regularisation": 0.01}
    zeroed, replaced = rows.copy(), rows.copy()
    for place in (0, 6, 20):
        zeroed[place] = 0.0
        replaced[place] = blocks.encode(np.array([bad[0]]), np.array([bad[1]]))[0]
    models = [trained(given, 2, compiled=compiled, **training) for given in (replaced, zeroed)]
    assert models[0].tolist() == models[1].tolist()


@BOTH
@pytest.mark.parametrize("batch_size", [1, 2, 50])
def test_the_longest_packed_row_does_count(compiled, batch_size):
    rows = blocks.encode(np.array([[1 - 2.0**-22, 0.0]]), np.array([1]))
    assert trained(rows, 2, compiled=compiled, batch_size=batch_size)[0] > 0


@BOTH
@pytest.mark.parametrize("batch_size", [1, 4])
def test_no_margin_overflows(compiled, batch_size):
    rows = blocks.encode(np.array([[0.9], [-0.9], [0.9], [-0.9]]), np.array([1, 1, -1, -1]))
    state = initial(1, batch_size=batch_size, schedule=Constant(1e-3))
    state.model[:] = 1e5
    model = advanced(state, [rows], compiled=compiled).model
    assert np.isfinite(model).all()
    assert distance(model, 1e5) > 1e-5


def compiled_call(**changes):
    arguments = {
        "loss": Logistic(),
        "rows": packed(8, 3),
        "model": np.zeros(3),
        "gradient": np.zeros(3),
        "filled": 0,
        "step_sizes": np.ones(2),
        "batch_size": 4,
        "regularisation": 0.0,
    }
    return kernels.compiled.add_rows(*(arguments | changes).values())


@NEEDS_KERNEL
@pytest.mark.parametrize(
    "changes",
    [
        {"step_sizes": np.ones(1)},
        {"step_sizes": np.ones(3)},
        {"batch_size": 0},
        {"filled": 4},
        {"filled": -1},
        {"model": np.zeros(4)},
        {"model": np.zeros(8), "gradient": np.zeros(8)},
        {"rows": np.zeros((8, 9), np.float32)},
        {"loss": Logistic(name="perceptron", code=2)},
    ],
)
def test_the_compiled_kernel_refuses_arguments_that_do_not_fit(changes):
    assert compiled_call() == 0
    with pytest.raises(ValueError, match=r"fit|step size|no loss"):
        compiled_call(**changes)
