"""The declared constants of losses hold, and are nearly attained."""

import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import literal

from dbdp.learning.losses import LOSSES, HuberRegression, HuberSvm, Logistic, Squared, loss_named, loss_with

EVERY = [
    Logistic(),
    Logistic(0.2),
    Logistic(4.0),
    HuberSvm(),
    HuberSvm(1e-6),
    HuberSvm(1.0),
    HuberSvm(0.1, 0.2),
    HuberSvm(0.1, 4.0),
    HuberRegression(),
    HuberRegression(1e-6),
    HuberRegression(30.0),
    Squared(),
    Squared(1e-6),
    Squared(30.0),
]
EVERY_LOSS = pytest.mark.parametrize("loss", EVERY, ids=str)
UNIT = 2.0**-53
FAR = 1e9  # further than any of these losses bends
EXTREMES = [0.0, 5e-324, 1e-300, 709.0, 710.0, 745.2, 1e4, 1e100, 1e300]
scores = st.floats(-1e4, 1e4) | st.floats(-3, 3) | st.sampled_from([*EXTREMES, *(-extreme for extreme in EXTREMES)])
positions = st.floats(0, 1)


def label_of(loss, position):
    """A label that the loss takes, from the lowest to the highest."""
    return np.where(np.asarray(position) < 0.5, -1.0, 1.0) if loss.is_classifier else 2.0 * np.asarray(position) - 1.0


def bends(loss, label):
    """Rising scores around the place where the loss of that label bends, twice as far as it does."""
    centre, reach = {
        "logistic": (0.0, 10.0),
        "huber_svm": (label, 2.0 * (loss.width or 1.0)),
        "huber_regression": (label, 2.0 * loss.lipschitz),
        "squared": (label, 2.0 * loss.lipschitz),
    }[loss.name]
    return np.linspace(centre - reach, centre + reach, 4001)


def derivative(loss, score, label):
    return float(loss.derivative(np.array([score]), np.array([label]))[0])


@settings(max_examples=400)
@given(loss=st.sampled_from(EVERY), score=scores, position=positions)
def test_a_derivative_is_within_its_declared_error(loss, score, position):
    label = float(label_of(loss, position))
    with mpmath.workprec(400):
        error = abs(literal(loss, score, label)[1] - derivative(loss, score, label))
        assert error <= loss.scalar_error * mpmath.mpf(UNIT)


@settings(max_examples=400)
@given(loss=st.sampled_from(EVERY), score=scores, position=positions)
def test_a_value_is_the_textbooks(loss, score, position):
    label = float(label_of(loss, position))
    with mpmath.workprec(400):
        value, slope = literal(loss, score, label)
        error = abs(value - float(loss.value(np.array([score]), np.array([label]))[0]))
        condition = abs(slope) * (abs(mpmath.mpf(score)) + 1) + loss.scalar_error
        assert error <= 8 * mpmath.mpf(UNIT) * (abs(value) + condition)


@EVERY_LOSS
def test_the_derivative_is_the_slope_of_the_value(loss):
    for position in (0.0, 0.3, 1.0):
        label = float(label_of(loss, position))
        at = bends(loss, label)
        spacing = at[1] - at[0]
        step = 0.05 * spacing

        def slope(place, step=step, label=label):
            return (loss.value(place + step, label) - loss.value(place - step, label)) / (2 * step)

        allowed = 2 * loss.smoothness * step + 8 * UNIT * (loss.value(at, label).max() + loss.lipschitz) / step
        assert np.abs(slope(at) - loss.derivative(at, label)).max() <= allowed
        fault = np.abs(slope(at + 4 * spacing) - loss.derivative(at, label)).max()
        assert fault > allowed  # as small a fault would be seen


@settings(max_examples=400)
@given(loss=st.sampled_from(EVERY), score=st.floats(allow_nan=False, allow_infinity=False), position=positions)
def test_no_derivative_is_above_the_lipschitz_constant(loss, score, position):
    with np.errstate(over="ignore"):
        assert abs(derivative(loss, score, float(label_of(loss, position)))) <= loss.lipschitz


def test_the_lipschitz_constant_is_reached():
    for loss in EVERY:
        reached = [abs(derivative(loss, score, label)) for score in (-FAR, FAR) for label in (-1.0, 1.0)]
        assert max(reached) == loss.lipschitz


@settings(max_examples=400)
@given(loss=st.sampled_from(EVERY), first=scores, second=scores, position=positions)
def test_derivatives_differ_no_more_than_the_smoothness_allows(loss, first, second, position):
    label = float(label_of(loss, position))
    low, high = (derivative(loss, score, label) for score in sorted((first, second)))
    assert high - low <= loss.smoothness * abs(second - first) + 2 * loss.scalar_error * UNIT
    assert high - low >= -2 * loss.scalar_error * UNIT  # convex


def test_the_smoothness_is_reached():
    for loss in EVERY:
        places = [(bends(loss, label), label) for label in (-1.0, 1.0)]
        slopes = [np.diff(loss.derivative(at, label)) / np.diff(at) for at, label in places]
        assert np.max(slopes) >= 0.999 * loss.smoothness


def test_nothing_overflows_far_out():
    for loss in EVERY:
        far = np.array([*EXTREMES, *(-extreme for extreme in EXTREMES)])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for label in (-1.0, 1.0):
                assert np.isfinite(loss.value(far, label)).all()
                assert np.isfinite(loss.derivative(far, label)).all()


def test_logistic_has_its_limits_far_out():
    far = np.array([-1e4, 1e4])
    assert Logistic().value(far, np.ones(2)).tolist() == [1e4, 0.0]
    assert Logistic().derivative(far, np.ones(2)).tolist() == [-1.0, 0.0]
    assert Logistic().derivative(far, -np.ones(2)).tolist() == [0.0, 1.0]


def test_the_hinge_is_exact_where_it_is_not_smoothed():
    at = np.array([-3.0, 0.0, 0.5, 1.0, 1.5, 4.0])
    assert HuberSvm(0.5).value(at, np.ones(6)).tolist() == [4.0, 1.0, 0.5, 0.125, 0.0, 0.0]
    assert HuberSvm(0.5).derivative(at, np.ones(6)).tolist() == [-1.0, -1.0, -1.0, -0.5, 0.0, 0.0]


@pytest.mark.parametrize("width", [1e-6, 0.3, 1.0])
def test_a_training_begins_on_the_linear_part_of_the_hinge(width):
    assert derivative(HuberSvm(width), 0.0, 1.0) == -1.0


@pytest.mark.parametrize(("radius", "most"), [(0.5, 1.5), (1.0, 2.0), (30.0, 2.0)])
def test_the_squared_loss_is_not_clamped_within_the_bounds(radius, most):
    loss = Squared(radius)
    assert derivative(loss, most - 1, -1.0) == most
    assert derivative(loss, most, -1.0) == loss.lipschitz == most


@pytest.mark.parametrize("kind", [Logistic, HuberSvm])
@given(score=scores, weight=st.floats(1e-6, 1e6))
def test_a_weight_multiplies_positive_rows_alone(kind, score, weight):
    plain, weighted = kind(), kind(positive_weight=weight)
    assert derivative(weighted, score, 1.0) == pytest.approx(weight * derivative(plain, score, 1.0), rel=1e-15)
    assert derivative(weighted, score, -1.0) == derivative(plain, score, -1.0)


@pytest.mark.parametrize("kind", [Logistic, HuberSvm])
def test_no_weight_makes_the_constants_too_small(kind):
    for weight, factor in ((0.1, 1), (1, 1), (5, 5)):
        for name in ("lipschitz", "smoothness", "scalar_error"):
            assert getattr(kind(positive_weight=weight), name) == factor * getattr(kind(), name)


def test_losses_are_returned_by_name_and_by_code_without_doubt():
    loss_of = [loss_named(name) for name in LOSSES]
    assert [loss.name for loss in loss_of] == list(LOSSES)
    assert len({loss.code for loss in loss_of}) == len(LOSSES)
    assert loss_of == [Logistic(), HuberSvm(0.5), HuberRegression(1.0), Squared(1.0)]


def test_settings_reach_the_loss():
    assert loss_named("logistic", positive_weight=3.0) == Logistic(3.0)
    assert loss_named("huber_svm", width=0.1, positive_weight=3.0) == HuberSvm(0.1, 3.0)
    assert loss_named("huber_regression", width=0.1) == HuberRegression(0.1)
    assert loss_named("squared", radius=4.0) == Squared(4.0)


def test_a_loss_survives_its_code_and_parameters():
    for loss in EVERY:
        assert loss_with(loss.code, loss.parameters) == loss


@pytest.mark.parametrize("code", [0, 5, 200])
def test_an_unknown_code_is_refused(code):
    with pytest.raises(ValueError, match=f"loss code {code} is unknown"):
        loss_with(code, (1.0, 1.0))


def test_an_unknown_loss_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'perceptron' is unknown; choose one of logistic, huber_svm, .*squared"):
        loss_named("perceptron")


def test_nonsense_is_refused_with_the_remedy():
    for name, given_, message in (
        ("logistic", {"width": 0.5}, r"support width \(got 0.5\); drop width or use huber_svm, huber_regression"),
        ("squared", {"width": 0.5}, "'squared' does not support width"),
        ("logistic", {"radius": 2.0}, r"'logistic' does not support radius \(got 2.0\); drop radius or use squared"),
        ("huber_svm", {"radius": 2.0}, "'huber_svm' does not support radius"),
        ("huber_regression", {"positive_weight": 2.0}, "does not support positive_weight .* use logistic, huber_svm"),
        ("squared", {"positive_weight": 2.0}, "'squared' does not support positive_weight"),
        ("huber_svm", {"width": 0.0}, "width = 0.0 must be between 1e-06 and 1: "),
        ("huber_svm", {"width": 1.1}, "width = 1.1 must be between 1e-06 and 1: "),
        ("huber_svm", {"width": np.nan}, "width = nan must be between"),
        ("huber_regression", {"width": -1.0}, r"width = -1.0 must be between 1e-06 and 1e\+06"),
        ("huber_regression", {"width": np.inf}, "width = inf must be between"),
        ("squared", {"radius": 0.0}, "radius = 0.0 must be between"),
        ("logistic", {"positive_weight": 0.0}, "positive_weight = 0.0 must be between .*: 1 treats all rows alike"),
        ("logistic", {"positive_weight": -2.0}, "positive_weight = -2.0 must be between"),
        ("huber_svm", {"positive_weight": np.nan}, "positive_weight = nan must be between"),
        ("huber_svm", {"positive_weight": np.inf}, "positive_weight = inf must be between"),
    ):
        with pytest.raises(ValueError, match=message):
            loss_named(name, **given_)
