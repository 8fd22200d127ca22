"""The recursive descent: what its proof says of every draw, what it promises, and what happens where it fails."""

import math
from dataclasses import replace

import numpy as np
import pytest
from memory import RowsInMemory
from pairs import pairs_slow

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.perturbed_objective.minimisation import AcceleratedDescent
from dbdp.algorithms.families.perturbed_objective.recursive_descent import FAILURE, RecursiveDescent
from dbdp.algorithms.rows import RecursiveStages, silent
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic
from dbdp.learning.objectives import Linear

LOSSES = {"logistic": Logistic(2.0), "huber_svm": HuberSvm(0.5), "huber_regression": HuberRegression(0.5)}
KINDS = ("random", "separable", "same", "opposite", "zero")
ROWS, FEATURES = 4000, 4


def drawn(kind, outputs=1):
    random = np.random.default_rng()
    features = random.normal(size=(ROWS, FEATURES))
    features /= np.linalg.norm(features, axis=1, keepdims=True) * random.choice([1.0, 1.5, 10.0], (ROWS, 1))
    labels = random.choice([-1.0, 1.0], ROWS) if outputs == 1 else random.integers(1, outputs + 1, ROWS).astype(float)
    if kind in ("same", "opposite"):
        features[:] = features[0]
    if kind == "opposite":
        labels[::2] *= -1 if outputs == 1 else 1
    elif kind == "separable":
        labels = np.where(features[:, 0] > 0, 1.0, labels)
    return RowsInMemory(features * (kind != "zero"), labels)


def solver(loss, *, regularisation=0.005, distance=1e-7, outputs=1):
    start = AcceleratedDescent(Linear(LOSSES[loss], FEATURES, outputs), ROWS, regularisation, passes=1)
    found = RecursiveDescent.of(start.reaching(distance))
    assert found is not None
    return found


def gradient(made, rows, model, centre):
    descent = made.descent
    return rows.gradient_sum(descent.objective, model, clip=math.inf) / ROWS + descent.regularisation * (model - centre)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_directions_shorten_as_proved_for_every_draw(loss, kind):
    """Also for draws that somebody chose: one row again and again, or the rows in their order."""
    made, random = solver(loss), np.random.default_rng()
    strong, smooth = made.descent.regularisation, made.descent.regularisation + made.descent.smoothness
    for step in (made.step, 1 / (strong + smooth)):
        width = step * (strong + smooth)
        for order in (random.integers(ROWS, size=300), np.zeros(300, int), np.arange(300)):
            rows, model = drawn(kind), random.normal(size=FEATURES) * random.choice([0.1, 3.0, 30.0])
            direction, changes = gradient(made, rows, model, np.zeros(FEATURES)), 0.0
            first = direction @ direction
            for row in rows.packed[order]:
                before = direction.copy()
                made.descent.objective.recursive_steps(model, direction, row[None], step=step, regularisation=strong)
                changes += (direction - before) @ (direction - before)
                falls = 1 - 2 * width * strong * smooth / (strong + smooth) ** 2
                shorter = math.sqrt(falls) * np.linalg.norm(before) * (1 + 1e-9)
                assert np.linalg.norm(direction) <= shorter + 1e-13  # by which two gradients of length 1 may err
            assert changes <= width / (2 - width) * first * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_stage_shortens_the_gradient_as_proved(kind):
    """The mean over many stages: what is observed is far below the bound, so that chance decides nothing."""
    made, random = solver("logistic"), np.random.default_rng()
    factor = math.exp((math.log(made.descent.distance / made.descent.reach / 2) + math.log(FAILURE) / 2) / made.stages)
    rows, centre = drawn(kind), random.normal(size=FEATURES)
    how = RecursiveStages(1, made.steps, made.step, made.descent.regularisation, ROWS)
    before = np.linalg.norm(gradient(made, rows, centre, centre))
    ends = [rows.recursive_stages(made.descent.objective, centre, centre, how) for _ in range(100)]
    after = [np.linalg.norm(gradient(made, rows, end, centre)) for end in ends]
    assert 0 < np.sqrt(np.mean(np.square(after))) <= factor * before


@pairs_slow(outputs=[1, 3], kind=KINDS, loss=LOSSES)
def test_the_end_is_as_near_as_promised_after_equal_passes(loss, kind, outputs):
    if outputs > 1 and loss == "huber_regression":
        outputs = 1  # a number, not a class
    made, centre = solver(loss, outputs=outputs), np.random.default_rng().normal(size=FEATURES * outputs)
    rows, calls = drawn(kind, outputs), []
    model = made.minimiser(rows, centre, lambda *each: calls.append(each))
    assert rows.reads == ["stage"] * made.stages + ["gradient_sum"]
    assert calls[-1] == ("pass", made.passes, made.passes)
    exact = replace(made.descent, passes=2 * made.descent.passes).minimiser(rows, centre, silent)
    assert np.linalg.norm(model - exact) <= made.descent.distance


class Astray(RowsInMemory):
    """Rows whose stages end elsewhere."""

    def __init__(self, of, end):
        self.__dict__.update(of.__dict__)
        self.end = end

    def recursive_stages(self, objective, model, centre, how):
        return super().recursive_stages(objective, model, centre, how) + self.end


@pytest.mark.parametrize("end", [1e-3, 1e9, math.inf, math.nan])
def test_a_stage_that_ends_elsewhere_is_noticed(end):
    """A stage that ends elsewhere is noticed and the promise is still kept."""
    made, centre = solver("logistic"), np.ones(FEATURES)
    rows = Astray(drawn("random"), end)
    with np.errstate(all="ignore"):
        model = made.minimiser(rows, centre, silent)
    assert rows.reads.count("gradient_sum") == 1 + made.descent.passes
    exact = replace(made.descent, passes=2 * made.descent.passes).minimiser(rows, centre, silent)
    assert np.linalg.norm(model - exact) <= made.descent.distance


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("rows", "most"), [(30_000, 70), (500_000, 60), (10**7, 60)])
def test_a_usual_table_takes_a_few_dozen_passes(rows, most, delta):
    without = {"evaluation_share": 0}
    made = plan(Request(1.0, delta, algorithm="objective_perturbation", settings=without), Facts(rows, 54, 1))
    assert made.explain()["expected_passes"] < most
    assert made.explain()["sensitivity"] > 2 * made.method.descent.distance  # the noise covers the same error
    assert made.method.descent.passes > 400


def test_few_rows_are_all_read_in_each_step():
    """Where few rows have little regularisation all rows are read in each step."""
    start = AcceleratedDescent(Linear(Logistic(), FEATURES), 50, 1e-4, passes=1)
    assert RecursiveDescent.of(start.reaching(1e-6)) is None
