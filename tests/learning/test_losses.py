"""The constants that losses declare hold, and are not looser than they need be."""

import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.learning.losses import LOSSES, Logistic, loss_named

EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
margins = st.floats(-1e4, 1e4)


@EVERY_LOSS
def test_the_derivative_is_the_slope_of_the_value(loss):
    at, step = np.linspace(-30, 30, 2001), 1e-5
    slope = (loss.value(at + step) - loss.value(at - step)) / (2 * step)
    assert np.abs(slope - loss.derivative(at)).max() < 1e-8
    assert np.abs(slope - loss.derivative(at + 1e-4)).max() > 1e-8  # a small fault would be seen


@EVERY_LOSS
@given(margin=margins)
def test_no_derivative_is_above_the_lipschitz_constant(loss, margin):
    assert abs(loss.derivative(np.array([margin]))[0]) <= loss.lipschitz


@EVERY_LOSS
def test_the_lipschitz_constant_is_reached(loss):
    assert np.abs(loss.derivative(np.array([-1e4, 1e4]))).max() >= 0.999 * loss.lipschitz


@EVERY_LOSS
@given(first=margins, second=margins)
def test_derivatives_differ_no_more_than_the_smoothness_allows(loss, first, second):
    low, high = loss.derivative(np.array([first, second]))
    assert abs(high - low) <= loss.smoothness * abs(second - first) * (1 + 1e-12) + 1e-15


@EVERY_LOSS
def test_the_smoothness_is_reached(loss):
    at = np.linspace(-3, 3, 6001)
    assert np.diff(loss.derivative(at)).max() >= 0.999 * loss.smoothness * (at[1] - at[0])


@EVERY_LOSS
def test_nothing_overflows_far_out(loss):
    far = np.array([-1e4, -800.0, 800.0, 1e4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(loss.value(far)).all()
        assert np.isfinite(loss.derivative(far)).all()


def test_logistic_has_its_limits_far_out():
    far = np.array([-1e4, 1e4])
    assert Logistic().value(far).tolist() == [1e4, 0.0]
    assert Logistic().derivative(far).tolist() == [-1.0, 0.0]


@given(margin=st.floats(-800, 800))
def test_the_logistic_derivative_is_within_its_declared_error(margin):
    with mpmath.workprec(200):
        error = abs(-1 / (1 + mpmath.exp(margin)) - Logistic().derivative(np.array([margin]))[0])
        assert error <= Logistic().scalar_error * mpmath.mpf(2) ** -53


def test_losses_are_found_by_name_and_by_code_without_doubt():
    assert all(loss_named(name) is loss for name, loss in LOSSES.items())
    assert len({loss.code for loss in LOSSES.values()}) == len(LOSSES)


def test_an_unknown_loss_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'perceptron' is unknown; choose one of .*logistic"):
        loss_named("perceptron")
