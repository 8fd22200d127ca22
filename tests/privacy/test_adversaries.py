"""Neighbours that somebody chose move the model no further than the bound, and some reach it."""

import numpy as np
import pytest

from dbdp.learning import blocks, kernels
from dbdp.learning.losses import Logistic
from dbdp.learning.schedules import Constant, InverseTime
from dbdp.learning.state import State
from dbdp.privacy.sensitivity import Training, sgd_sensitivity

SHRUNK = 1 - 2.0**-22  # the longest stored row
ROWS = 43
DIMENSION = 3
SCHEDULES = {
    "convex, constant": (Constant(1.0), 0.0),
    "convex, constant at 2/β": (Constant(8.0), 0.0),
    "strongly convex, constant": (Constant(1.0), 0.05),
    "strongly convex, constant at 2/β": (Constant(2 / 0.3), 0.05),
    "inverse time": (InverseTime(0.27, 0.02), 0.02),
}
EVERY_SCHEDULE = pytest.mark.parametrize(("schedule", "regularisation"), SCHEDULES.values(), ids=list(SCHEDULES))


def bound(schedule, regularisation, *, batch_size, epochs, rows=ROWS, dimension=DIMENSION, smoothness=0.25):
    return sgd_sensitivity(
        Training(
            rows=rows,
            dimension=dimension,
            batch_size=batch_size,
            epochs=epochs,
            step_sizes=schedule.step_sizes,
            lipschitz=1.0,
            smoothness=smoothness,
            regularisation=regularisation,
            scalar_error=8.0,
        )
    )


def trained(rows, schedule, regularisation, *, batch_size, epochs):
    """The model of the library's own kernel."""
    state = State.initial(
        loss=Logistic(),
        schedule=schedule,
        batch_size=batch_size,
        regularisation=regularisation,
        dimension=DIMENSION,
    )
    for _ in range(epochs):
        state = kernels.terminate(kernels.transition(state, rows))
    return state.model


def tables():
    """Rows among which one replaced record might move the model far."""
    random = np.random.default_rng()
    anywhere = random.normal(size=(ROWS, DIMENSION))
    anywhere *= SHRUNK / np.linalg.norm(anywhere, axis=1, keepdims=True)
    along = np.tile([SHRUNK, 0.0, 0.0], (ROWS, 1))
    yield blocks.encode(np.zeros((ROWS, DIMENSION)), np.ones(ROWS))
    yield blocks.encode(anywhere, random.choice([-1, 1], ROWS))
    yield blocks.encode(along, np.ones(ROWS))
    yield blocks.encode(0.1 * along, np.tile([1, -1], ROWS)[:ROWS])


def replacements():
    """Pairs of values for the one record: opposite labels, opposite features, and no row at all."""
    ahead, aside = np.array([SHRUNK, 0, 0]), np.array([0, SHRUNK, 0])
    rows = blocks.encode(np.array([ahead, ahead, -ahead, aside, -aside, ahead]), np.array([1, -1, 1, 1, 1, 0]))
    return [(0, 1), (0, 2), (1, 2), (3, 4), (0, 5)], rows


def moved(table, position, **training):
    """How far the model moves at most when the record at that position is replaced."""
    pairs, values = replacements()
    models = []
    for value in values:
        table[position] = value
        models.append(trained(table, **training))
    return max(np.linalg.norm(models[one] - models[other]) for one, other in pairs)


@EVERY_SCHEDULE
@pytest.mark.parametrize("batch_size", [1, 5, 10, ROWS - 1, ROWS])
def test_one_record_moves_the_model_no_further_than_the_bound(schedule, regularisation, batch_size):
    training = {"schedule": schedule, "regularisation": regularisation, "batch_size": batch_size, "epochs": 3}
    limit, furthest = bound(**training).total, 0.0
    for table in tables():
        for position in (0, ROWS // 2, ROWS - batch_size, ROWS - 1):
            furthest = max(furthest, moved(table.copy(), position, **training))
    assert furthest <= limit
    assert furthest >= limit / 10  # else these tables could not have caught a fault


# Huber SVM: where the margin is below 1 - h the gradient is exactly -yx, so one row ±u among zero
# rows attains the recursion with equality (privacy.md §1.2).


def huber_slope(margin, half_width):
    return -np.clip((1 + half_width - margin) / (2 * half_width), 0, 1)


def huber_model(rows, schedule, regularisation, *, batch_size, epochs, half_width=0.5, divisor=None):
    """Mini-batch SGD in one dimension; rows are y·x. `divisor` of a batch is `batch_size` unless given."""
    model, update = 0.0, 0
    for _ in range(epochs):
        for first in range(0, len(rows), batch_size):
            batch = rows[first : first + batch_size]
            update += 1
            (step,) = schedule.step_sizes(update, 1)
            gradient = huber_slope(batch * model, half_width) @ batch
            model -= step * (gradient / (divisor or (lambda _: batch_size))(batch) + regularisation * model)
    return model


def huber_distance(position, rows, **training):
    pair = np.zeros((2, rows))
    pair[:, position] = 1.0, -1.0
    one, other = (huber_model(table, **training) for table in pair)
    return abs(one - other)


def furthest(rows, **training):
    return max(huber_distance(position, rows, **training) for position in range(rows))


TIGHT = {
    "convex, constant": (60, 7, 3, Constant(0.1), 0.0),
    "convex, one row a batch": (30, 1, 2, Constant(0.05), 0.0),
    "convex, one batch": (30, 30, 4, Constant(1.0), 0.0),
    "strongly convex, constant": (60, 10, 3, Constant(0.5), 0.1),
    "strongly convex, constant, short last batch": (61, 10, 3, Constant(0.5), 0.1),
    "inverse time": (203, 5, 3, InverseTime(1.1, 0.1), 0.1),
    "inverse time, one row a batch": (150, 1, 2, InverseTime(1.1, 0.1), 0.1),
    "inverse time, fewer batches than the condition number": (203, 50, 5, InverseTime(1.02, 0.02), 0.02),
}


def tight(case):
    rows, batch_size, epochs, schedule, regularisation = TIGHT[case]
    training = {"schedule": schedule, "regularisation": regularisation, "batch_size": batch_size, "epochs": epochs}
    return rows, training, bound(rows=rows, dimension=1, smoothness=1.0, **training)


@pytest.mark.parametrize("case", TIGHT)
def test_the_bound_is_attained(case):
    rows, training, limit = tight(case)
    distance = furthest(rows, **training)
    assert distance <= limit.total
    assert distance >= 0.999 * limit.exact


@pytest.mark.parametrize("case", ["convex, constant", "strongly convex, constant, short last batch", "inverse time"])
def test_dividing_a_short_batch_by_its_own_size_would_break_the_bound(case):
    rows, training, limit = tight(case)
    assert rows % training["batch_size"]
    assert furthest(rows, divisor=len, **training) > 1.3 * limit.total


@pytest.mark.parametrize("case", ["inverse time", "inverse time, fewer batches than the condition number"])
def test_dividing_the_bound_by_the_batch_size_again_would_be_too_small(case):
    rows, training, limit = tight(case)
    assert furthest(rows, **training) > 4 * limit.total / training["batch_size"]


def test_forgetting_an_epoch_would_be_too_small():
    rows, training, _ = tight("strongly convex, constant")
    once = bound(rows=rows, dimension=1, smoothness=1.0, **training | {"epochs": 2})
    assert furthest(rows, **training) > once.total


def quadratic_distance(position, *, rows, batch_size, epochs, step, smoothness, regularisation):
    """Fillers (β/2)w², one row ±w: the rows that stretch most where the step is above 2/(β + γ)."""
    models = []
    for sign in (1.0, -1.0):
        model = 0.0
        for update in range(epochs * (rows // batch_size)):
            here = update % (rows // batch_size) == position
            gradient = (batch_size - here) * smoothness * model + here * sign
            model -= step * (gradient / batch_size + regularisation * model)
        models.append(model)
    return abs(models[0] - models[1])


def test_steps_near_two_over_beta_do_move_the_model_beyond_the_textbook_formula():
    facts = {"rows": 400, "batch_size": 10, "epochs": 3, "smoothness": 0.8, "regularisation": 0.2}
    reached = max(quadratic_distance(position, step=1.99, **facts) for position in range(40))
    assert 0.398 * 1.3 < reached <= bound(Constant(1.99), **facts).exact
