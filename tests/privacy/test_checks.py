"""Checks of single values refuse what is out of range or of another kind, and name the value and the limit."""

import math

import numpy as np
import pytest

from dbdp import checks


@pytest.mark.parametrize("value", [0, -3, 2**80])
def test_a_whole_number_is_one(value):
    assert checks.is_whole(value)
    assert checks.is_number(value)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, math.nan, np.int64(1), np.float64(1.0), [1]])
def test_what_is_not_a_whole_number_is_refused(value):
    assert not checks.is_whole(value)
    with pytest.raises(ValueError, match=r"n = .* must be a whole number between 0 and 9"):
        checks.whole("n", value, 0, 9)


@pytest.mark.parametrize("value", [True, False, "1", None, 1j])
def test_what_is_not_a_number_is_known(value):
    assert not checks.is_number(value)
    assert checks.is_number(1.5)
    assert checks.is_number(math.nan)


def test_both_ends_of_a_range_belong_to_it():
    for value in (1, 9):
        checks.whole("n", value, 1, 9)
        checks.between("x", value, 1, 9)
    for value in (0, 10):
        with pytest.raises(ValueError, match=f"n = {value} must be a whole number between 1 and 9: take fewer"):
            checks.whole("n", value, 1, 9, "take fewer")
        with pytest.raises(ValueError, match=f"x = {value} must be between 1 and 9: take less"):
            checks.between("x", value, 1, 9, "take less")


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_what_is_not_positive_and_finite_is_refused(value):
    checks.positive("x", 5e-324, "give more")
    with pytest.raises(ValueError, match=f"x = {value} must be positive and finite: give more"):
        checks.positive("x", value, "give more")


def test_nan_lies_in_no_range():
    with pytest.raises(ValueError, match="x = nan must be between 0 and 1"):
        checks.between("x", math.nan, 0, 1)


@pytest.mark.parametrize("value", [0, 1, None, "true"])
def test_only_true_and_false_are_truths(value):
    checks.truth("b", True)
    checks.truth("b", False)
    with pytest.raises(ValueError, match=r"b = .* must be true or false"):
        checks.truth("b", value)


def test_one_of_several_is_returned_and_another_is_refused():
    assert checks.one_of("mode", "a", {"a": 1, "b": 2}) == "a"
    with pytest.raises(ValueError, match="mode 'c' is unknown; choose one of a, b"):
        checks.one_of("mode", "c", ("a", "b"))
