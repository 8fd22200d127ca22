"""The squared loss by any algorithm: which labels its models can say, and at what noise."""

import math

import numpy as np
import pytest
from chance import usually
from memory import RowsInMemory

from dbdp.algorithms import ALGORITHMS, PERTURBED_ONCE, Facts, Request, plan
from dbdp.algorithms.settings import loss_of
from dbdp.learning.losses import HuberRegression, Squared
from dbdp.registry.declarations import declare
from dbdp.registry.results.column_units import column_scales, vector_scales

RANDOM = np.random.default_rng()
ROWS = 20_000
NUMBERS = Facts(ROWS, 3, is_classifier=False, reach=math.sqrt(2))
EVERY = [name for name in ALGORITHMS if name not in ("preconditioned_gd", "majority")]
COLUMNS = {"age": [0, 90], "income": {"bounds": [0, 1e5], "missing": "indicator"}, "sex": ["f", "m"]}


def declared(features, **more):
    return declare(label="y", label_bounds=(0, 100), features=features, **more)


def test_the_intercept_says_any_label_at_the_default_radius():
    """The last coordinate of a row is at least 1/reach."""
    for declaration in (declared(COLUMNS), declared({"sex": ["f", "m"]})):
        assert column_scales(declaration)[2] == pytest.approx(declaration.reach)
    vector = declared({"x": {"length": 5, "norm": 3.0}})
    assert vector_scales(vector)[1] == pytest.approx(1 / vector.reach)


@pytest.mark.parametrize("algorithm", EVERY)
def test_the_default_radius_reaches_at_the_same_noise(algorithm):
    """Labels in [-1, 1] and predictions there have residuals of up to 2: a larger ball makes no slope longer."""
    request = Request(1.0, 1e-6, algorithm, loss="squared")
    small, reaching = (plan(request, Facts(ROWS, 3, is_classifier=False, reach=reach)) for reach in (1.0, 3.0))
    assert loss_of(request, reaching.facts) == Squared(3.0)
    assert Squared(3.0).lipschitz == Squared(1.0).lipschitz == 2.0
    if algorithm in PERTURBED_ONCE:
        assert reaching.sensitivity.exact == pytest.approx(small.sensitivity.exact)
    elif "noise_scale" in small.details:
        assert reaching.details["noise_scale"] == pytest.approx(small.details["noise_scale"], rel=0.01)


def means_of(algorithm, **more):
    """The means that a model says of two groups, whose labels in 0..100 have the means 5 and 15."""
    groups = RANDOM.integers(0, 2, ROWS)
    labels = np.clip(np.take((5, 15), groups) + RANDOM.normal(0, 2, ROWS), 0, 100) / 50 - 1
    features = np.stack([groups == 0, groups == 1, np.ones(ROWS)], axis=1) / math.sqrt(2)
    request = Request(10.0, algorithm=algorithm, loss="squared", **{"delta": 1e-6} | more)
    model = plan(request, NUMBERS).run(RowsInMemory(features, labels)).models[0]
    return 50 * (1 + np.array([[1, 0, 1], [0, 1, 1]]) / math.sqrt(2) @ model)


LEARNED = [("objective_perturbation", {"delta": 0.0}), ("dp_agd", {}), ("dp_sgd", {"batch_size": 1000})]


@pytest.mark.parametrize(("algorithm", "more"), LEARNED)
def test_means_near_a_bound_are_learned(algorithm, more):
    assert usually(lambda: means_of(algorithm, **more) == pytest.approx([5, 15], abs=2))


def test_a_short_radius_cannot_say_them():
    """The control."""
    assert usually(lambda: means_of("dp_agd", radius=1.0) != pytest.approx([5, 15], abs=2))


def test_it_is_hubers_loss_of_the_longest_residual():
    """So the densities and bounds that are tested for Huber's loss are its own."""
    scores, labels = RANDOM.normal(0, 3, 1000), RANDOM.uniform(-1, 1, 1000)
    for part in ("value", "derivative"):
        own, other = (getattr(loss, part)(scores, labels) for loss in (Squared(5.0), HuberRegression(2.0)))
        assert (own == other).all()
    plans = [
        plan(Request(1.0, 0.0, "objective_perturbation", **loss), NUMBERS)
        for loss in ({"loss": "squared"}, {"loss": "huber_regression", "huber_width": 2.0})
    ]
    assert plans[0].guarantee == plans[1].guarantee
    assert plans[0].details["objective_noise_scale"] == plans[1].details["objective_noise_scale"]
