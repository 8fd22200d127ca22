"""Steps of SARAH over packed rows: each is the textbook's, by the kernel and by its reference."""

import numpy as np
import pytest
from numpy_kernel import kernel
from pairs import pairwise

from dbdp.learning import kernels
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic, Squared
from dbdp.learning.objectives import Linear
from dbdp.learning.rows.encoding import pack

FEATURES = 11
LOSSES = [Logistic(3.0), HuberSvm(0.3, 2.0), HuberRegression(0.4), Squared(2.0)]


def some_rows(count, target):
    """Packed rows; among them are some that are none."""
    random = np.random.default_rng()
    labels = random.integers(0, 4, count) if target else random.choice([-1.0, 1.0, 0.0, 0.5], count)
    rows = pack(random.normal(size=(count, FEATURES)), labels.astype(float))
    rows[::5] = np.nan
    return rows


def moved(objective, rows, *, compiled, step=0.3, regularisation=0.01):
    model, direction = np.linspace(-2, 2, objective.parameters), np.linspace(1, -1, objective.parameters)
    with kernel(compiled=compiled), np.errstate(all="ignore"):
        objective.recursive_steps(model, direction, rows, step=step, regularisation=regularisation)
    return np.array([model, direction])


@pairwise(count=[0, 1, 2, 50], outputs=[1, 3], loss=LOSSES)
def test_compiled_steps_are_those_of_the_reference(loss, outputs, count):
    rows, objective = some_rows(count, outputs > 1), Linear(loss, FEATURES, outputs)
    compiled, reference = (moved(objective, rows, compiled=each) for each in (True, False))
    assert compiled == pytest.approx(reference, abs=1e-11)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_step_changes_the_direction_as_its_rows_gradient(loss, compiled):
    rows, objective = some_rows(30, target=0), Linear(loss, FEATURES)
    model, direction = np.linspace(-2, 2, FEATURES), np.linspace(1, -1, FEATURES)
    for row in rows:
        after = model - 0.3 * direction
        change = objective.gradient_sum(after, row[None]) - objective.gradient_sum(model, row[None])
        model, direction = after, direction + change + 0.01 * (after - model)
    assert moved(objective, rows, compiled=compiled) == pytest.approx(np.array([model, direction]), abs=1e-11)


def test_vectors_that_do_not_fit_the_rows_are_refused():
    rows = some_rows(3, target=0)
    for model, direction in ((np.zeros(16), np.zeros(16)), (np.zeros(11), np.zeros(12))):
        with pytest.raises(ValueError, match="do not fit each other"):
            kernels.compiled.recursive_steps(Logistic(), 0, model, direction, rows, 0.1, 0.1)
