"""Sums of many arrays: what they err by, against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.algorithms.noisy_sums import UNIT, Summed
from dbdp.learning.compiled import sums
from dbdp.learning.losses import HuberSvm, Logistic, Squared
from dbdp.learning.objectives import Linear, Softmax
from dbdp.learning.rows import blocks
from dbdp.learning.second_moments import NARROW, OtherCoordinates, SecondMoment

NUMBERS = st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=60)


@given(NUMBERS)
def test_a_total_errs_by_two_units_of_all_that_was_added(numbers):
    total = sums.value(sums.total_of((np.array([each]) for each in numbers), (1,)))[0]
    exact, size = sum(map(Fraction, numbers)), sum(abs(Fraction(each)) for each in numbers)
    assert abs(Fraction(total) - exact) <= 2 * Fraction(UNIT) * size


def test_a_total_keeps_what_a_plain_sum_loses():
    parts = [np.array([2.0**53])] + [np.array([1.0])] * 100
    assert sums.value(sums.total_of(parts, (1,)))[0] == 2.0**53 + 100
    assert sum(parts)[0] == 2.0**53  # the control


@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 65, 1000, 4096])
def test_sums_in_pairs_and_of_products_are_whole(count):
    random = np.random.default_rng(count)
    left, right = random.integers(-9, 9, (count, 3)) * 1.0, random.integers(-9, 9, (count, 4)) * 1.0
    assert (sums.outer_sum(left, right) == left.T @ right).all()
    assert (sums.in_pairs(left) == left.sum(axis=0)).all()


def opposed(count: int, dimension: int) -> np.ndarray:
    """Packed rows of one direction, so that all gradients add up: rounding has the same sign again and again."""
    features = np.full((count, dimension), 0.9 / math.sqrt(dimension) / 3)
    return blocks.encode(features, np.ones(count))


HINGE = HuberSvm(positive_weight=4 / 3)  # so that slopes have 53 bits
OBJECTIVES = [Linear(HINGE, 5), Linear(Logistic(), 5), Linear(Squared(), 5), Linear(HINGE, 5, 3), Softmax(5, 3)]


@pytest.mark.parametrize("count", [100, 20_000])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: f"{type(each).__name__} {each.outputs}")
def test_a_sum_of_gradients_errs_as_a_tree_does(objective, count):
    """Of equal rows, so that the exact sum is a multiple of one summand; the control adds them one after the other."""
    model = np.random.default_rng(3).normal(size=objective.parameters)
    rows = opposed(count, 5)
    one = objective.gradient_sum(model, rows[:1])
    bound = Summed.of_objective(count, objective).error(float(np.linalg.norm(one))) / 2
    exact = [Fraction(each) * count for each in one.tolist()]
    found = objective.gradient_sum(model, rows)
    error = math.sqrt(sum(float(Fraction(a) - b) ** 2 for a, b in zip(found.tolist(), exact, strict=True)))
    assert error <= bound
    chain = np.zeros_like(one)
    for _ in range(count):
        chain += one
    further = math.sqrt(sum(float(Fraction(a) - b) ** 2 for a, b in zip(chain.tolist(), exact, strict=True)))
    assert further > error or count < 1000


@pytest.mark.parametrize("candidates", [1, 3, 9])
def test_a_sum_of_losses_is_that_of_its_rows(candidates):
    random = np.random.default_rng(candidates)
    rows = blocks.encode(random.uniform(-0.4, 0.4, (1000, 5)), random.choice([-1.0, 1.0], 1000))
    objective, models = Linear(Logistic(), 5), random.normal(size=(candidates, 5))
    singly = np.array([objective.loss_sums(models, rows[place : place + 1]) for place in range(1000)])
    expected = [math.fsum(each) for each in singly.T.tolist()]
    assert objective.loss_sums(models, rows) == pytest.approx(expected, rel=87 * UNIT)


@pytest.mark.parametrize("size", [NARROW - 1, NARROW + 1])
def test_wide_and_narrow_moments_are_of_one_kind(size):
    random = np.random.default_rng(size)
    rows = blocks.encode(random.normal(size=(3000, size)) / (3 * math.sqrt(size)), np.ones(3000))
    features = rows[:, :size].astype(np.float64)
    found = SecondMoment(size).of_rows(rows)
    assert found == pytest.approx(features.T @ features, rel=1e-12, abs=1e-12)
    assert (found == found.T).all()


def test_a_sum_in_other_coordinates_errs_as_with_64_bits():
    random = np.random.default_rng(4)
    matrix, wide = random.normal(size=(40, 40)), random.normal(size=(2, 40)) * 1e9
    found = OtherCoordinates(matrix).gradients(wide).tolist()
    exact = [sum(Fraction(a) * Fraction(b) for a, b in zip(row, line, strict=True)) for row in wide for line in matrix]
    sizes = np.abs(wide) @ np.abs(matrix).T
    for value, whole, size in zip(found, exact, sizes.ravel().tolist(), strict=True):
        assert abs(Fraction(value) - whole) <= UNIT * abs(whole) + Fraction(41 * 2.0**-64 * size)
