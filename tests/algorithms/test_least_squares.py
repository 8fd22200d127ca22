"""The squared loss by any algorithm: which labels its models can say, and at what noise."""

import math

import numpy as np
import pytest
from chance import usually
from memory import RowsInMemory
from public_facts import facts_of

from dbdp.algorithms import ALGORITHMS, PERTURBED_ONCE, Request, plan
from dbdp.algorithms.settings import loss_of
from dbdp.learning.losses import HuberRegression, Squared
from dbdp.registry.declarations import declare
from dbdp.registry.results.column_units import column_scales, vector_scales

RANDOM = np.random.default_rng()
ROWS = 20_000
NUMBERS = facts_of(ROWS, 3, is_classifier=False, reach=2.0)
EVERY = [name for name in ALGORITHMS if name not in ("preconditioned_gd", "majority", "naive_bayes")]
COLUMNS = {"age": [0, 90], "income": {"bounds": [0, 1e5], "missing": "indicator"}, "sex": ["f", "m"]}


def declared(features, **more):
    return declare(label="y", label_bounds=(0, 100), features=features, **more)


def test_the_intercept_says_any_label_at_the_default_radius():
    """The intercept's coordinate of a row is at least √2/reach."""
    for declaration in (declared(COLUMNS), declared({"sex": ["f", "m"]})):
        assert column_scales(declaration)[2] == pytest.approx(declaration.reach / math.sqrt(2))
    vector = declared({"x": {"length": 5, "norm": 3.0}})
    assert vector_scales(vector)[1] == pytest.approx(math.sqrt(2) / vector.reach)


@pytest.mark.parametrize("algorithm", EVERY)
def test_the_default_radius_reaches_at_the_same_noise(algorithm):
    """Labels in [-1, 1] and predictions there have residuals of up to 2: a larger ball makes no slope longer."""
    request = Request(1.0, 1e-6, algorithm, loss="squared")
    small, reaching = (plan(request, facts_of(ROWS, 3, is_classifier=False, reach=reach)) for reach in (1.0, 3.0))
    assert loss_of(request, reaching.facts) == Squared(3.0)
    assert Squared(3.0).lipschitz == Squared(1.0).lipschitz == 2.0
    if algorithm in PERTURBED_ONCE:
        assert reaching.sensitivity.exact == pytest.approx(small.sensitivity.exact)
    elif "noise_scale" in small.details:
        assert reaching.details["noise_scale"] == pytest.approx(small.details["noise_scale"], rel=0.01)


def means_of(algorithm, means=(5, 15), **more):
    """The means that a model says of two groups, whose labels in 0..100 have these means."""
    groups = RANDOM.integers(0, 2, ROWS)
    labels = np.clip(np.take(means, groups) + RANDOM.normal(0, 2, ROWS), 0, 100) / 50 - 1
    features = np.stack([groups == 0, groups == 1, np.ones(ROWS)], axis=1) / math.sqrt(2)
    request = Request(10.0, algorithm=algorithm, loss="squared", **{"delta": 1e-6} | more)
    model = plan(request, NUMBERS).run(RowsInMemory(features, labels)).models[0]
    return 50 * (1 + np.array([[1, 0, 1], [0, 1, 1]]) / math.sqrt(2) @ model)


LEARNED = [("objective_perturbation", {"delta": 0.0}), ("dp_sgd", {"batch_size": 1000})]


@pytest.mark.parametrize(("algorithm", "more"), LEARNED)
def test_means_near_a_bound_are_learned(algorithm, more):
    assert usually(lambda: means_of(algorithm, **more) == pytest.approx([5, 15], abs=2))


@pytest.mark.parametrize(("algorithm", "more"), LEARNED)
def test_two_groups_at_opposite_bounds_are_learned(algorithm, more):
    """A ball of norm √2 says 15 and 85."""
    assert usually(lambda: means_of(algorithm, (2, 98), **more) == pytest.approx([2, 98], abs=4))


def test_a_short_radius_cannot_say_them():
    """The control."""
    far = {"batch_size": 1000, "radius": 0.7}
    assert usually(lambda: means_of("dp_sgd", **far) != pytest.approx([5, 15], abs=2))


def test_a_plan_states_its_noise_in_units_of_the_label():
    facts = facts_of(ROWS, 3, is_classifier=False, label_half=50.0)
    made = plan(Request(1.0, 0.0, "bolt_on", loss="squared"), facts)
    deviation = made.mechanism.deviation(3)
    assert f"± {float(f'{1.96 * 50 * deviation:.2g}'):.7g} units of the label" in made.explain()["predicted_noise"]
    assert "may leave an R² below 0" not in made.explain().get("warning", "")
    drawn = np.array([made.mechanism.release(np.zeros(3))[0] for _ in range(5000)])
    assert 0.8 < drawn.std() / deviation < 1.2
    far = {"schedule": "constant", "step_size": 1.0, "batch_size": 50, "epochs": 100}
    noisy = plan(Request(1.0, 0.0, "bolt_on", loss="squared", **far), facts).explain()
    assert "use narrower label_bounds" in noisy["warning"]


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
