"""Objective perturbation against exact densities of its minimisers, and the solver against other solvers."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from goodness import ALPHA, of_reals
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import RowsInMemory
from pairs import pairwise
from scipy import optimize, special, stats
from textbook import gaussian_delta

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.perturbed_objective.minimisation import AcceleratedDescent, minimise
from dbdp.algorithms.families.perturbed_objective.objective_perturbation import (
    MOST_PASSES,
    corners,
    curvature,
    error_of,
    gaussian_multiplier,
    projected,
)
from dbdp.algorithms.noisy_sums import lipschitz_of
from dbdp.algorithms.rows import silent
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic, softmax_slopes
from dbdp.learning.objectives import Linear, Softmax
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.curves import perturbed_divergence
from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent, Release

SHRUNK = 1 - 2.0**-22  # the longest stored row
LOSSES = {"logistic": Logistic(), "huber_svm": HuberSvm(), "huber_regression": HuberRegression(0.5)}
WIDTHS = {"logistic": None, "huber_svm": 0.5, "huber_regression": 0.5}


def planned(loss="logistic", *, epsilon=1.0, delta=0.0, rows=100, dimension=2, outputs=1, **request):
    facts = Facts(rows, dimension, outputs, is_classifier=loss != "huber_regression")
    reads = {"algorithm": "objective_perturbation", "loss": loss, "huber_width": WIDTHS[loss]} | request
    reads = {"settings": {"evaluation_share": 0}} | reads  # the table of scores has tests of its own
    return plan(Request(epsilon, delta, **reads), facts)


def detail(release_plan, name):
    return release_plan.explain()[name]


# --- the losses once more, from the textbook: first and second derivative in the score --------------------------


def slope(loss, score, label):
    if loss == "logistic":
        return -label * special.expit(-label * score)
    if loss == "huber_svm":
        return -label * np.clip(1.5 - label * score, 0, 1)
    return np.clip(score - label, -0.5, 0.5)


def bend(loss, score, label):
    if loss == "logistic":
        return special.expit(score) * special.expit(-score)
    if loss == "huber_svm":
        return 1.0 * (np.abs(1 - label * score) < 0.5)
    return 1.0 * (np.abs(score - label) < 0.5)


@dataclass(frozen=True)
class Table:
    """Rows (n, d) with labels ±1, classes 1, …, K, or numbers, and n times the regularisation."""

    features: np.ndarray
    labels: np.ndarray
    loss: str
    scale: float
    outputs: int = 1

    def signs(self):
        """Labels as each of the K models sees them, shape (K, n)."""
        if self.outputs == 1:
            return self.labels[None]
        return np.where(self.labels == np.arange(1, self.outputs + 1)[:, None], 1.0, -1.0)

    def shares(self, models):
        """The softmax of the scores, shape (K, n)."""
        return special.softmax(models @ self.features.T, axis=0)

    def noise(self, models):
        """b such that these models (K, d) are the minimiser."""
        if self.loss == "softmax":
            slopes = self.shares(models) - (self.labels == np.arange(1, self.outputs + 1)[:, None])
        else:
            slopes = slope(self.loss, models @ self.features.T, self.signs())
        return -(self.scale * models + slopes @ self.features)

    def joint_derivative(self, models):
        """Minus that of b for softmax, whose models have no block each, shape (Kd, Kd)."""
        total = self.scale * np.eye(models.size)
        for shares, row in zip(self.shares(models).T, self.features, strict=True):
            total += np.kron(np.diag(shares) - np.outer(shares, shares), np.outer(row, row))
        return total

    def log_determinant(self, models):
        """Of the derivative of b."""
        if self.loss == "softmax":
            return np.linalg.slogdet(self.joint_derivative(models))[1]
        bends = bend(self.loss, models @ self.features.T, self.signs())
        eye = self.scale * np.eye(models.shape[1])
        return sum(np.linalg.slogdet(eye + (self.features.T * each) @ self.features)[1] for each in bends)

    def replaced(self, features, label):
        """The neighbour whose first row is another."""
        return replace(
            self, features=np.vstack([features, self.features[1:]]), labels=np.concatenate([[label], self.labels[1:]])
        )

    def minimiser(self, noise):
        """Of the objective perturbed by it, by Newton's method with line search; shape (K, d)."""
        models = -noise.reshape(self.outputs, -1) / self.scale
        if self.loss == "softmax":
            solution = optimize.root(
                lambda f: noise - self.noise(f.reshape(models.shape)).ravel(),
                np.zeros(models.size),
                jac=lambda f: self.joint_derivative(f.reshape(models.shape)),
                tol=1e-13,
            )
            return solution.x.reshape(models.shape)
        for _ in range(200):
            gradient = -(self.noise(models) - noise.reshape(models.shape))
            bends = bend(self.loss, models @ self.features.T, self.signs())
            for k, each in enumerate(bends):
                hessian = self.scale * np.eye(models.shape[1]) + (self.features.T * each) @ self.features
                models[k] -= self._damped(models, noise, k, np.linalg.solve(hessian, gradient[k]))
        return models

    def _damped(self, models, noise, k, step):
        """The largest of the halved steps at which the objective still falls along it: it is convex."""
        while np.abs(step).max() > 1e-300:
            moved = models.copy()
            moved[k] -= step
            if -(self.noise(moved) - noise.reshape(models.shape))[k] @ step >= -1e-14 * np.abs(step).max():
                return step
            step = step / 2
        return step


def log_ratio(table, neighbour, models, scale):
    """ln p_D(f)/p_D'(f), where b has a density ∝ exp(-‖b‖/scale)."""
    own, other = table.noise(models), neighbour.noise(models)
    shifted = (np.linalg.norm(other) - np.linalg.norm(own)) / scale
    return shifted + table.log_determinant(models) - neighbour.log_determinant(models)


def unit_rows(random, count, dimension):
    rows = random.normal(size=(count, dimension))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * random.choice([0.1, 0.7, 1.0], (count, 1))


def some_labels(random, loss, count, outputs):
    if loss == "huber_regression":
        return random.uniform(-1, 1, count)
    return random.integers(1, outputs + 1, count) if outputs > 1 else random.choice([-1.0, 1.0], count)


def learned(release_plan):
    """What the rows are learned by: several classes together, where the noise is pure."""
    request = release_plan.request
    together = release_plan.facts.outputs > 1 and request.loss == "logistic" and request.delta == 0
    return "softmax" if together else request.loss


def random_pair(random, release_plan):
    facts = release_plan.facts
    table = Table(
        unit_rows(random, facts.rows, facts.dimension),
        some_labels(random, release_plan.request.loss, facts.rows, facts.outputs),
        learned(release_plan),
        facts.rows * detail(release_plan, "regularisation"),
        facts.outputs,
    )
    (label,) = some_labels(random, release_plan.request.loss, 1, facts.outputs)
    return table, table.replaced(unit_rows(random, 1, facts.dimension)[0], label)


# --- pure ε --------------------------------------------------------------------------------------------------


@pairwise(outputs=[1, 3], regularisation=[0.02, 0.1, 1.0], loss=LOSSES)
def test_no_pairs_densities_are_apart_beyond_the_claim(loss, regularisation, outputs):
    if loss == "huber_regression" and outputs > 1:
        outputs = 1  # a number, not a class
    random, furthest = np.random.default_rng(), 0.0
    release_plan = planned(loss, rows=4, outputs=outputs, regularisation=regularisation)
    scale, claim = detail(release_plan, "objective_noise_scale"), detail(release_plan, "objective_epsilon")
    for _ in range(60):
        table, neighbour = random_pair(random, release_plan)
        for length in (0.0, 0.3, 1.0, 5.0, 30.0):
            models = length * random.normal(size=(outputs, 2))
            furthest = max(furthest, abs(log_ratio(table, neighbour, models, scale)))
    assert claim / 4 < furthest <= claim


def hinge_pair(rows, scale):
    """Rows of margin 0 in one dimension, where the slope of a hinge is exactly -y: only the label of one differs."""
    table = Table(np.ones((rows, 1)), np.ones(rows), "huber_svm", scale)
    return table, table.replaced([1.0], -1.0)


def test_the_pure_claim_is_attained_and_no_less_noise():
    release_plan = planned("huber_svm", rows=1000, dimension=1, regularisation=1.0)
    scale, claim = detail(release_plan, "objective_noise_scale"), detail(release_plan, "objective_epsilon")
    reached = log_ratio(*hinge_pair(1000, 1000.0), np.zeros((1, 1)), scale)
    assert 0.998 * claim < abs(reached) <= claim
    assert abs(log_ratio(*hinge_pair(1000, 1000.0), np.zeros((1, 1)), 0.99 * scale)) > claim


def logistic_pair(release_plan):
    """Two rows far on the wrong side, nearly opposite: their gradients differ by nearly 2, across b's direction."""
    angle = 1.27
    ahead, aside = np.array([math.cos(angle), math.sin(angle)]), np.array([0.0, 1.0])
    table = Table(
        np.vstack([ahead, np.tile(aside, (release_plan.facts.rows - 1, 1))]),
        np.ones(release_plan.facts.rows),
        "logistic",
        release_plan.facts.rows * detail(release_plan, "regularisation"),
    )
    return table, table.replaced(ahead * [1, -1], 1.0), np.array([[-30.0, 0.0]])


def test_half_the_noise_would_be_noticed_for_the_logistic_loss():
    release_plan = planned(rows=3000, regularisation=0.001)
    scale, claim = detail(release_plan, "objective_noise_scale"), detail(release_plan, "objective_epsilon")
    table, neighbour, models = logistic_pair(release_plan)
    assert 0.8 * claim < abs(log_ratio(table, neighbour, models, scale)) <= claim
    assert abs(log_ratio(table, neighbour, models, scale / 2)) > 1.5 * claim


def bent_pair(loss, scale):
    """A row where it bends most, against none; the others are on the wrong side, where nothing bends."""
    row, others, models = ([1.0, 0.0], [-0.8, -0.6], [[0.0, 30.0]])
    if loss == "huber_svm":
        row, others, models = ([1.0], [-1.0], [[1.0]])
    table = Table(np.array([row] + 9 * [others]), np.ones(10), loss, scale)
    return table, table.replaced(0 * np.array(row), 1.0), np.array(models)


@pytest.mark.parametrize("loss", ["logistic", "huber_svm"])
def test_the_curvature_is_attained_and_cannot_be_forgotten(loss):
    release_plan = planned(loss, rows=10, dimension=2, regularisation=1e-9, epsilon=4.0)
    table, neighbour, models = bent_pair(loss, 10 * detail(release_plan, "regularisation"))
    curved = detail(release_plan, "curvature_epsilon")
    assert table.log_determinant(models) - neighbour.log_determinant(models) == pytest.approx(curved, rel=1e-5)
    reached = abs(log_ratio(table, neighbour, models, detail(release_plan, "objective_noise_scale")))
    assert (
        1.1 * (detail(release_plan, "objective_epsilon") - curved)
        < reached
        <= detail(release_plan, "objective_epsilon")
    )


# --- several classes together: softmax ------------------------------------------------------------------------


def test_softmax_gradients_nearly_attain_their_noise():
    """Two rows on the wrong side, nearly opposite: each is certain of class 3, and p - e_y has a norm of √2."""
    release_plan = planned(rows=3000, outputs=3, dimension=2, regularisation=0.001)
    scale, claim = detail(release_plan, "objective_noise_scale"), detail(release_plan, "objective_epsilon")
    row = np.array([math.cos(1.5), math.sin(1.5)])
    table = Table(np.vstack([row, np.eye(2)]), np.array([1.0, 2, 3]), "softmax", 3.0, outputs=3)
    neighbour, models = table.replaced(row * [1, -1], 1.0), np.array([[-3000.0, 0], [0, 0], [3000.0, 0]])
    moved = np.linalg.norm(table.noise(models) - neighbour.noise(models))
    assert 0.99 * 2 * math.sqrt(2) < moved <= 2 * math.sqrt(2)
    pure = claim - detail(release_plan, "curvature_epsilon")
    assert moved / scale <= pure < moved / (0.98 * scale)


@pytest.mark.parametrize("objective", [Linear(Logistic(), 1, 3), *(Softmax(1, outputs) for outputs in (2, 3, 10))])
def test_the_curvature_of_several_models_is_attained(objective):
    outputs, scale = objective.outputs, 0.7
    loss = "softmax" if isinstance(objective, Softmax) else "logistic"
    table = Table(np.eye(5, 1), np.ones(5), loss, scale, outputs=outputs)
    bent = table.log_determinant(np.zeros((outputs, 1))) - outputs * math.log(scale)
    assert bent == pytest.approx(curvature(objective, scale), rel=1e-9)
    random = np.random.default_rng()
    for _ in range(50):
        models = random.normal(size=(outputs, 1)) * random.choice([0.1, 1.0, 10.0])
        assert table.log_determinant(models) - outputs * math.log(scale) <= curvature(objective, scale)


@pytest.mark.parametrize("outputs", [2, 10, 300])
def test_computed_slopes_of_softmax_err_by_less_than_their_bound(outputs):
    random = np.random.default_rng()
    for size in (0.0, 1.0, 30.0, 1e5):
        scores = random.normal(size=(200, outputs)) * size
        labels = random.integers(1, outputs + 1, 200).astype(float)
        wide = np.exp((scores - scores.max(axis=1, keepdims=True)).astype(np.longdouble))
        exact = wide / wide.sum(axis=1, keepdims=True) - np.eye(outputs)[labels.astype(int) - 1]
        errors = np.linalg.norm((softmax_slopes(scores, labels) - exact).astype(float), axis=1)
        assert errors.max() <= Softmax(1, outputs).slope_error * 2.0**-53


def test_classes_are_learned_together_where_noise_is_less():
    """Classes are learned together where that needs less noise and nothing else was asked for."""
    kinds = {
        Softmax: ({}, {"mechanism": "spherical_laplace", "delta": 1e-6}),
        Linear: ({"delta": 1e-6}, {"loss": "huber_svm"}, {"positive_weight": 2.0}),
    }
    for kind, requests in kinds.items():
        for request in requests:
            assert isinstance(planned(outputs=10, **request).method.descent.objective, kind), request
    assert isinstance(planned().method.descent.objective, Linear)
    together, apart = planned(outputs=10), planned(outputs=10, loss="huber_svm")
    scales = [detail(each, "objective_noise_scale") * detail(each, "objective_epsilon") for each in (together, apart)]
    assert detail(together, "lipschitz") == pytest.approx(math.sqrt(2)) and scales[0] < scales[1] / 2


# --- Gaussian noise ------------------------------------------------------------------------------------------


def log_densities(table, neighbour, log_law, width, *, points):
    """One-dimensional models where p has its mass, and ln p and ln q there, for noise b of that law."""
    reach = (len(table.labels) + 2 * width) / table.scale
    ends = [
        optimize.brentq(lambda f, b=b: table.noise(np.array([[f]]))[0, 0] - b, -reach, reach) for b in (-width, width)
    ]
    models, logs = np.linspace(*sorted(ends), points), []
    for each in (table, neighbour):
        slopes, bends = np.zeros(points), np.full(points, each.scale)
        rows, counts = np.unique(np.column_stack([each.features[:, 0], each.labels]), axis=0, return_counts=True)
        for (x, label), count in zip(rows, counts, strict=True):
            slopes += count * slope(each.loss, models * x, label) * x
            bends += count * bend(each.loss, models * x, label) * x**2
        logs.append(log_law(-(each.scale * models + slopes)) + np.log(bends))
    return models, *logs


def exact_delta(table, neighbour, epsilon, sigma, *, points=400_001):
    """∫ (p - e^ε q)₊ over one-dimensional models, by quadrature."""
    models, p, q = log_densities(table, neighbour, stats.norm(scale=sigma).logpdf, 12 * sigma, points=points)
    return float(np.trapezoid(np.maximum(np.exp(p) - math.exp(epsilon) * np.exp(q), 0.0), models))


def exact_divergence(table, neighbour, order, log_law, width, *, points=40_001):
    """ln(∫ p^α q^(1-α))/(α - 1) over one-dimensional models, by quadrature."""
    models, p, q = log_densities(table, neighbour, log_law, width, points=points)
    return float(np.log(np.trapezoid(np.exp(order * p + (1 - order) * q), models)) / (order - 1))


def minimum_of(release_plan):
    """The event of the perturbed minimum."""
    return release_plan.guarantee.event.events[0]


ORDERS = [1.5, 4.0, 10.3, 40.0]


@pairwise(delta=[0.0, 1e-3], regularisation=[0.02, 2.0], loss=LOSSES)
def test_no_pair_diverges_beyond_its_charge_at_any_order(loss, regularisation, delta):
    random = np.random.default_rng()
    release_plan = planned(loss, delta=delta, rows=4, dimension=1, regularisation=regularisation)
    scale, event = detail(release_plan, "objective_noise_scale"), minimum_of(release_plan)
    law, width = (
        (stats.norm(scale=scale).logpdf, 60 * scale) if delta else (stats.laplace(scale=scale).logpdf, 60 * scale)
    )
    for _ in range(5):
        table, neighbour = random_pair(random, release_plan)
        for pair, order in product(((table, neighbour), (neighbour, table)), ORDERS):
            assert exact_divergence(*pair, order, law, width) <= event.divergence(order) * (1 + 1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_the_gaussian_divergence_is_attained_to_a_hundredth(order):
    release_plan = planned("huber_svm", delta=1e-4, rows=1000, dimension=1, regularisation=1000.0)
    sigma, charge = detail(release_plan, "objective_noise_scale"), minimum_of(release_plan).divergence(order)
    pair = hinge_pair(1000, 1e6)
    width = (60 + 2 * order) * sigma
    assert 0.99 * charge < exact_divergence(*pair, order, stats.norm(scale=sigma).logpdf, width) <= charge
    assert exact_divergence(*pair, order, stats.norm(scale=0.99 * sigma).logpdf, width) > charge


def test_where_much_bends_the_corners_are_charged():
    """(α - 1)c/(nΛ) is above 1: no map of models to noise is one to one."""
    release_plan = planned("huber_svm", delta=1e-4, epsilon=4.0, rows=10, dimension=1, regularisation=1e-9)
    event, order = minimum_of(release_plan), 10.3
    assert (order - 1) * event.curvature > 1
    assert math.isinf(perturbed_divergence(1.0, event.curvature, 1, order))
    sigma = detail(release_plan, "objective_noise_scale")
    table, neighbour, _ = bent_pair("huber_svm", 10 * detail(release_plan, "regularisation"))
    reached = exact_divergence(table, neighbour, order, stats.norm(scale=sigma).logpdf, 60 * sigma)
    assert 0.02 * event.divergence(order) < reached <= event.divergence(order) < math.inf


@pytest.mark.parametrize("outputs", [1, 2, 10])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-7), (1.0, 1e-7), (4.0, 1e-7), (1.0, 0.0)])
def test_a_perturbed_minimum_costs_less_than_its_promise(outputs, epsilon, delta):
    """A ledger charges less than for epsilon and delta and nothing leaks."""
    budget = Budget.of(epsilon=max(2.0, epsilon), delta=1e-5)
    release_plan = planned(epsilon=epsilon, delta=delta, rows=10_000, dimension=50, outputs=outputs)
    event = minimum_of(release_plan)
    charge, leak = budget.cost(Release(event, epsilon, delta))
    before, leaked = budget.cost(Release(EpsilonDeltaDpEvent(event.epsilon, event.delta), epsilon, delta))
    assert leak == 0
    assert charge <= before * (0.5 if delta or outputs == 1 else 1)
    assert (leaked > 0) == (delta > 0)


@pytest.mark.parametrize("mode", ["gaussian", "basic"])
def test_other_ledgers_charge_a_minimum_its_promise(mode):
    budget, release_plan = Budget.of(epsilon=2.0, delta=1e-5, mode=mode), planned(delta=1e-6)
    alone = EpsilonDeltaDpEvent(1.0, 1e-6)
    assert budget.cost(release_plan.guarantee) == budget.cost(Release(alone, 1.0, 1e-6))


@pytest.mark.parametrize("regularisation", [0.02, 0.2, 2.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_no_random_pair_exceeds_delta(loss, regularisation):
    random = np.random.default_rng()
    release_plan = planned(loss, delta=1e-3, rows=4, dimension=1, regularisation=regularisation)
    for _ in range(10):
        table, neighbour = random_pair(random, release_plan)
        for pair in ((table, neighbour), (neighbour, table)):
            result = exact_delta(
                *pair,
                detail(release_plan, "objective_epsilon"),
                detail(release_plan, "objective_noise_scale"),
                points=40_001,
            )
            assert result <= detail(release_plan, "objective_delta")


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_delta_is_attained_to_two_percent_of_the_noise(epsilon):
    release_plan = planned("huber_svm", epsilon=epsilon, delta=1e-4, rows=1000, dimension=1, regularisation=1000.0)
    sigma, delta = detail(release_plan, "objective_noise_scale"), detail(release_plan, "objective_delta")
    pair = hinge_pair(1000, 1e6)
    assert 0.99 * delta < exact_delta(*pair, detail(release_plan, "objective_epsilon"), sigma) <= delta
    assert exact_delta(*pair, detail(release_plan, "objective_epsilon"), 0.98 * sigma) > 1.02 * delta


@pytest.mark.parametrize("outputs", [1, 2, 5, 10])
def test_the_corners_add_up_to_delta_whatever_their_number(outputs):
    """Enumerated one by one, for rows whose slopes are at an end or 0 in each model."""
    for epsilon in (0.1, 1.0, 5.0):
        objective = Linear(Logistic(), 1, outputs)
        multiplier = gaussian_multiplier(objective, epsilon, 1e-6)
        sigma = multiplier * 2 * math.sqrt(outputs)
        codes = np.arange(1, 4**outputs)
        squares = np.zeros(len(codes))
        for _ in range(outputs):
            squares += np.array([0.0, 1.0, 1.0, 4.0])[codes % 4]
            codes //= 4
        norms, counts = np.unique(np.sqrt(squares), return_counts=True)
        total = sum(count * gaussian_delta(epsilon, norm / sigma) for norm, count in zip(norms, counts, strict=True))
        assert (1 - 1e-5) * 1e-6 < total <= 1e-6
        assert corners(objective)[0].sum() == 4**outputs - 1


def test_no_slopes_between_the_corners_lose_more():
    """The log-ratio at given b, over slopes of both rows and models of two classes: largest at a corner."""
    random = np.random.default_rng()
    for _ in range(200):
        one, other = unit_rows(random, 2, 3)
        noise, sigma = random.normal(size=(2, 3)) * 5, 5.0

        def loss(slopes, one=one, other=other, noise=noise, sigma=sigma):
            shift = np.outer(slopes[:2], one) - np.outer(slopes[2:], other)
            return np.sum(noise * shift) / sigma**2 + np.sum(shift**2) / (2 * sigma**2)

        ends = [loss(np.array(ends)) for ends in np.ndindex(2, 2, 2, 2)]
        inside = [loss(slopes) for slopes in random.uniform(size=(50, 4))]
        assert max(inside) <= max(ends) + 1e-12
        longest = max(np.linalg.norm(np.outer(e[:2], one) - np.outer(e[2:], other)) for e in np.ndindex(2, 2, 2, 2))
        assert longest <= corners(Linear(Logistic(), 3, 2))[1].max()


def test_the_noise_is_between_gaussian_and_tail_bound():
    for epsilon in (0.1, 1.0, 4.0):
        for delta in (1e-5, 1e-8):
            result = gaussian_multiplier(Linear(Logistic(), 1), epsilon, delta)
            tail = -special.ndtri(delta / 2)  # §7: ε₀m - 1/2m = A, 2Φ(-A) = δ
            bound = (tail + math.sqrt(tail**2 + 2 * epsilon)) / (2 * epsilon)
            assert analytic_noise_multiplier(epsilon, delta) <= result * (1 + 1e-8) < 0.95 * bound


# --- weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.2, 6.0])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_weight_of_positive_rows_is_in_both_costs(weight, outputs):
    """A row that is positive for one class, turned round: every slope of both is at its end."""
    objective = Linear(Logistic(weight), 1, outputs)
    weights = [weight] + [1.0] * (outputs - 1) if outputs > 1 else [max(1.0, weight)]
    assert (
        2 * math.hypot(*weights) <= 2 * lipschitz_of(objective) <= 2 * math.hypot(max(1, weight), *weights[1:]) * 1.001
    )
    assert curvature(objective, 1.0) >= sum(math.log1p(0.25 * each) for each in weights)
    assert corners(objective)[1].max() <= 2 * lipschitz_of(objective)


# --- how ε and δ are shared ------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-8])
def test_the_shares_add_up_to_the_request(delta):
    for epsilon in (0.01, 0.1, 1.0, 7.3):
        release_plan = planned(epsilon=epsilon, delta=delta, rows=45_000)
        perturbed, solver = release_plan.guarantee.event.events
        finishing = release_plan.method.finishing.guarantee
        assert (release_plan.guarantee.epsilon, release_plan.guarantee.delta) == (epsilon, delta)
        assert Fraction(perturbed.epsilon) + Fraction(finishing.epsilon) <= Fraction(epsilon)
        assert Fraction(perturbed.delta) + Fraction(finishing.delta) <= Fraction(delta)
        assert solver == finishing.event
        assert 0.98 * epsilon < perturbed.epsilon
        noise = release_plan.method.perturbation.guarantee
        assert noise.epsilon + detail(release_plan, "curvature_epsilon") <= perturbed.epsilon * (1 + 1e-15)
        assert noise.delta <= perturbed.delta


def test_the_solver_s_share_grows_where_rounding_asks_for_it():
    shares = [planned(rows=10**digits).method.finishing.guarantee.epsilon for digits in (5, 8, 12)]
    assert shares[0] == 0.01
    assert 0.01 < shares[1] < 0.5
    assert shares[2] == 0.5


def test_rounding_adds_less_noise_than_b_at_10_to_8_rows():
    made = planned(rows=10**8, dimension=20, delta=1e-9)
    of_b = made.method.perturbation.noise_scale / (10**8 * detail(made, "regularisation"))
    assert detail(made, "noise_scale") < 0.25 * of_b


@pairwise(delta=[0.0, 1e-6], regularisation=[0.0, 1e-6, None], outputs=[1, 4])
def test_the_curvature_takes_no_more_than_half(outputs, regularisation, delta):
    release_plan = planned(rows=20, epsilon=0.5, delta=delta, outputs=outputs, regularisation=regularisation)
    assert detail(release_plan, "curvature_epsilon") <= detail(release_plan, "objective_epsilon") / 2 * (1 + 1e-9)
    if regularisation is not None:  # then it is raised no further than that
        assert detail(release_plan, "curvature_epsilon") == pytest.approx(detail(release_plan, "objective_epsilon") / 2)
        assert detail(release_plan, "regularisation") > regularisation


def test_a_regularisation_that_leaves_enough_is_taken_as_it_is():
    assert detail(planned(rows=1000, regularisation=0.0125), "regularisation") == 0.0125


def test_the_default_regularisation_grows_with_the_noise():
    result = [
        detail(planned(rows=45_000, dimension=100, epsilon=epsilon), "regularisation") for epsilon in (10, 0.1, 0.01)
    ]
    assert result[0] == 5e-5
    assert 5e-5 < result[1] < result[2]
    release_plan = planned(rows=45_000, dimension=100, epsilon=0.01)
    deviation = math.sqrt(101) * detail(release_plan, "objective_noise_scale")  # of a coordinate
    assert deviation / (45_000 * detail(release_plan, "regularisation")) == pytest.approx(1.0, rel=0.05)


# --- the solver ------------------------------------------------------------------------------------------------


KINDS = ("separable", "zero", "same", "opposite", "mixed")


def tables():
    """Rows that might be hard to find a minimum for: separable, none at all, all the same, one alone, opposite."""
    dimension = st.integers(1, 4)
    return st.tuples(st.sampled_from(KINDS), st.integers(1, 12), dimension, st.integers(0))


def drawn(kind, rows, dimension, seed):
    random = np.random.default_rng([KINDS.index(kind), rows, dimension, seed])
    features, labels = unit_rows(random, rows, dimension), random.choice([-1.0, 1.0], rows)
    if kind == "zero":
        features *= 0.0
    elif kind in ("same", "opposite"):
        features[:] = features[0] / np.linalg.norm(features[0])
        labels[:] = 1.0
    if kind == "opposite":
        labels[::2] = -1.0
    elif kind == "separable":
        labels = np.where(features[:, 0] > 0, 1.0, -1.0)
    return features * SHRUNK, labels


@dataclass
class Given:
    """Noise that somebody gives: what is drawn is `noise`, and what is released is noted."""

    of: object
    noise: np.ndarray | float = 0.0

    def __getattr__(self, name):
        return getattr(self.of, name)

    def release(self, model):
        self.released = model
        return model + self.noise


def solved(release_plan, features, labels, noise):
    """What the run finds for that b, without the noise at the end."""
    rows = RowsInMemory(features, labels)
    method = release_plan.method
    run = replace(method, perturbation=Given(method.perturbation, noise), finishing=Given(method.finishing))
    return run(rows, silent), rows


@settings(max_examples=60)
@given(tables(), st.sampled_from(["logistic", "huber_svm", "softmax"]), st.floats(0.003, 10), st.floats(0, 5))
def test_every_minimum_is_approached_to_within_the_bound(table, loss, regularisation, strength):
    features, labels = drawn(*table)
    rows, dimension = features.shape
    outputs, how = 1, {"loss": loss, "delta": 1e-6}
    if loss == "softmax":  # of classes together, which pure noise is for
        outputs, how, labels = 4, {}, np.random.default_rng(table[-1]).integers(1, 5, rows).astype(float)
    release_plan = planned(rows=rows, dimension=dimension, outputs=outputs, regularisation=regularisation, **how)
    noise = strength * detail(release_plan, "objective_noise_scale") * np.ones(outputs * dimension)
    result, reads = solved(release_plan, features, labels, noise)
    stored = reads.all[:, :dimension].astype(float)
    exact = Table(stored, labels, loss, rows * detail(release_plan, "regularisation"), outputs)
    away = np.linalg.norm(result - exact.minimiser(noise).ravel())
    promised = detail(release_plan, "sensitivity") / 2
    assert away <= promised
    gradient = np.linalg.norm(exact.noise(result.reshape(outputs, -1)).ravel() - noise) / rows
    assert gradient <= promised * (detail(release_plan, "smoothness") + detail(release_plan, "regularisation"))


def straight(label, *, passes, regularisation):
    """A search where the slope is the same everywhere, for a minimum at 0; where it ends."""
    rows = RowsInMemory([[1.0]], [label])
    descent = AcceleratedDescent(Linear(HuberSvm(), 1), 1, regularisation, passes)
    centre = -label * rows.all[0, :1].astype(float) / regularisation
    return descent, descent.minimiser(rows, centre, silent)[0]


@pytest.mark.parametrize("passes", [1, 2, 7, 40])
def test_neighbours_with_one_minimiser_end_two_distances_apart(passes):
    """One row, its label turned round: both searches end at the promised distance of 0, on opposite sides."""
    for regularisation in (0.01, 1.0, 50.0):
        ends = []
        for label in (1.0, -1.0):
            descent, end = straight(label, passes=passes, regularisation=regularisation)
            ends.append(end)
        rounding = descent.rounding(2 * descent.reach)
        assert abs(ends[0] - ends[1]) == pytest.approx(2 * descent.distance, rel=1e-5, abs=2 * rounding)
        assert abs(ends[0] - ends[1]) <= 2 * (descent.distance + rounding)


@pytest.mark.parametrize("passes", [3, 30, 300])
@pytest.mark.parametrize("loss", LOSSES)
def test_any_start_is_as_good_as_promised(loss, passes):
    random = np.random.default_rng()
    for _ in range(5):
        features, centre = unit_rows(random, 30, 3) * SHRUNK, random.normal(size=3) * random.choice([0, 1, 100])
        labels = some_labels(random, loss, 30, 1)
        rows = RowsInMemory(features, labels)
        descent = AcceleratedDescent(Linear(LOSSES[loss], 3), 30, 0.01, passes)
        result = descent.minimiser(rows, centre, silent)
        stored = Table(rows.all[:, :3].astype(float), rows.all[:, -1].astype(float), loss, 0.3)
        away = np.linalg.norm(result - stored.minimiser(-0.3 * centre).ravel())
        assert away <= descent.distance + descent.rounding(float(np.linalg.norm(centre)) + 2 * descent.reach)


def test_rounding_is_within_its_bound_and_is_there():
    """The same passes in extended precision."""
    random, seen = np.random.default_rng(), 0.0
    descent = AcceleratedDescent(Linear(Logistic(), 3), 50, 1e-4, 400)
    for _ in range(4):
        rows = RowsInMemory(unit_rows(random, 50, 3) * SHRUNK, random.choice([-1.0, 1.0], 50))
        centre = random.normal(size=3) * 1e3
        away = np.linalg.norm(descent.minimiser(rows, centre, silent) - in_extended_precision(descent, rows, centre))
        seen = max(seen, float(away))
        assert away <= descent.rounding(float(np.linalg.norm(centre)) + descent.reach)
    assert seen > 0


def in_extended_precision(descent, rows, centre):
    wide, regularisation, smoothness = np.longdouble, np.longdouble(descent.regularisation), descent.smoothness
    features, labels = rows.all[:, :3].astype(wide), rows.all[:, -1].astype(wide)
    root = np.sqrt(regularisation / (regularisation + smoothness))
    y = z = np.zeros(3, wide)
    for _ in range(descent.passes):
        slopes = -labels / (1 + np.exp(labels * (features @ (centre + y))))
        gradient = slopes @ features / descent.rows
        z = (1 - root) * z - root / regularisation * gradient
        y = ((1 - root) * (smoothness * y - gradient) / (regularisation + smoothness) + 2 * root * z) / (1 + root)
    return centre + z


def test_the_number_of_passes_is_the_same_for_every_dataset():
    release_plan, reads = planned(rows=12, dimension=3, delta=1e-6), set()
    for seed, kind in enumerate(KINDS):
        for strength in (0.0, 1.0, 1e6):
            _, rows = solved(release_plan, *drawn(kind, 12, 3, seed), strength * np.ones(3))
            reads.add(tuple(rows.reads))
    assert reads == {("gradient_sum",) * detail(release_plan, "expected_passes")}


def test_progress_is_reported_pass_by_pass():
    release_plan, calls = planned(rows=12, regularisation=0.5), []
    release_plan.method(RowsInMemory(*drawn("mixed", 12, 2, 0)), lambda *each: calls.append(each))
    passes = detail(release_plan, "expected_passes")
    assert calls == [("pass", done + 1, passes) for done in range(passes)]


@pytest.mark.parametrize("regularisation", [1e-3, 1e-2])
def test_a_usual_table_takes_a_few_hundred_passes_at_most(regularisation):
    for delta in (0.0, 1e-8):
        release_plan = planned(rows=45_000, dimension=109, epsilon=0.1, delta=delta, regularisation=regularisation)
        assert detail(release_plan, "expected_passes") < {1e-3: 300, 1e-2: 100}[regularisation]


@pytest.mark.parametrize("delta", [0.0, 1e-8])
def test_the_solver_s_noise_is_small_beside_the_other(delta):
    for rows in (1, 30, 45_000, 10**6):
        release_plan = planned(rows=rows, dimension=50, delta=delta)
        alone = detail(release_plan, "objective_noise_scale") / (rows * detail(release_plan, "regularisation"))
        assert detail(release_plan, "noise_scale") < 0.15 * alone


# --- what comes out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
def test_given_noise_gives_the_perturbed_minimiser(outputs):
    random = np.random.default_rng()
    features, labels = unit_rows(random, 60, 3) * SHRUNK, some_labels(random, "logistic", 60, outputs)
    release_plan = planned(rows=60, dimension=3, outputs=outputs, regularisation=0.05)
    exactly = replace(release_plan.method.descent, passes=500)
    release_plan = replace(release_plan, method=replace(release_plan.method, descent=exactly, solver=exactly))
    noise = random.normal(size=3 * outputs)
    noise *= 15 / np.linalg.norm(noise)  # it moves the minimiser by ≥ 15/(60·0.05 + 60/4), a coordinate by ≥ 0.27
    result, rows = solved(release_plan, features, labels, noise)
    table = Table(rows.all[:, :3].astype(float), labels, learned(release_plan), 60 * 0.05, outputs)
    exact = table.minimiser(noise)
    assert result == pytest.approx(exact.ravel(), abs=1e-8)
    assert np.abs(exact - table.minimiser(0 * noise)).max() > 0.1


@pytest.mark.parametrize("loss", ["logistic", "huber_svm"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_baseline_is_the_minimiser(loss, outputs):
    random = np.random.default_rng()
    rows = RowsInMemory(unit_rows(random, 50, 3), some_labels(random, loss, 50, outputs))
    table = Table(rows.all[:, :3].astype(float), rows.all[:, -1].astype(float), loss, 50 * 0.01, outputs)
    result = minimise(rows, Linear(LOSSES[loss], 3, outputs), 0.01, 50)
    assert result == pytest.approx(table.minimiser(np.zeros(3 * outputs)).ravel(), abs=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_what_is_released_has_the_law_of_the_perturbed_minimum(delta):
    """b at the released model is distributed as b; the noise at the end hardly changes that."""
    release_plan = planned(rows=3, dimension=1, regularisation=3.0, delta=delta)
    rows = RowsInMemory([[1.0], [0.5], [-1.0]], [1.0, -1.0, 1.0])
    table = Table(rows.all[:, :1].astype(float), rows.all[:, -1].astype(float), "logistic", 9.0)
    models = np.array([release_plan.method(rows, silent) for _ in range(8000)])
    drawn = np.array([table.noise(each[None])[0, 0] for each in models]) / detail(release_plan, "objective_noise_scale")
    law = stats.norm if delta else stats.laplace
    assert of_reals(drawn, law) > ALPHA
    assert of_reals(drawn * 1.25, law) < ALPHA
    assert of_reals(drawn / 1.25, law) < ALPHA


# --- models far away -------------------------------------------------------------------------------------------


def test_projection_moves_no_usual_model_and_no_two_apart():
    random = np.random.default_rng()
    assert (projected(np.array([0.3, -0.4]), 0.6) == [0.3, -0.4]).all()
    assert projected(np.zeros(3), 2.0) == pytest.approx(np.zeros(3))
    for _ in range(300):
        one, other = random.normal(size=(2, 3)) * 10.0 ** random.integers(-3, 12, (2, 1))
        moved = projected(one, 5.0) - projected(other, 5.0)
        assert np.linalg.norm(moved) <= np.linalg.norm(one - other) * (1 + 1e-9)
        assert np.linalg.norm(projected(one, 5.0)) <= 5.0 * (1 + 1e-12)


def test_errors_that_grow_with_the_model_are_covered():
    """‖q - f‖ ≤ A + B‖f‖ on both sides of f: projected, they are within 2(A + 2B·radius) of each other."""
    random, radius, closest = np.random.default_rng(), 7.0, math.inf
    for _ in range(3000):
        error, growth = random.choice([1e-3, 0.1, 1.5]), random.choice([0.0, 1e-3, 0.1])
        if 2 * (error + 2 * growth * radius) > radius:
            continue
        exact = random.normal(size=2)
        exact *= radius * random.choice([0.5, 1, 1.9, 2, 2.1, 10, 1e6]) / np.linalg.norm(exact)
        away = random.normal(size=2)
        away *= (error + growth * np.linalg.norm(exact)) / np.linalg.norm(away)
        moved = np.linalg.norm(projected(exact + away, radius) - projected(exact - away, radius))
        closest = min(closest, 2 * (error + 2 * growth * radius) - moved)
    assert closest >= -1e-12
    assert closest < 0.01


def test_the_error_of_the_solver_is_the_sum_of_all_its_parts():
    release_plan = planned(rows=45_000, dimension=100, delta=1e-8, regularisation=0.001)
    run = release_plan.method
    error = error_of(run.perturbation, run.descent, run.radius)
    assert run.finishing.sensitivity >= 2 * error
    assert error >= run.descent.distance + run.descent.rounding(2 * run.radius + run.descent.reach)
    further = replace(run.descent, passes=10**5)
    assert error_of(run.perturbation, further, run.radius) < 1e-2 * error  # rounding is the rest
    with pytest.raises(ValueError, match="use fewer rows, or more regularisation"):
        error_of(run.perturbation, replace(run.descent, regularisation=1e-12), run.radius)


# --- requests that are refused ---------------------------------------------------------------------------------

REFUSED = {
    "mechanism": ({"mechanism": "discrete_gaussian"}, "gaussian, spherical_laplace"),
    "no delta": ({"mechanism": "gaussian", "delta": 0.0}, "spherical_laplace"),
    "many classes": ({"outputs": 300, "delta": 1e-6}, "more than 256"),
    "small epsilon": ({"epsilon": 1e-8}, "too small to be divided"),
    "a number": ({"loss": "logistic", "is_classifier": False}, "use squared or huber_regression"),
}


def test_a_request_that_cannot_be_planned_says_why():
    for options, message in REFUSED.values():
        request = {"epsilon": 1.0, "algorithm": "objective_perturbation"} | options
        facts = Facts(100, 2, request.pop("outputs", 1), request.pop("is_classifier", True))
        with pytest.raises(ValueError, match=message):
            plan(Request(**request), facts)


def test_too_many_passes_are_refused_and_the_remedy_works():
    with pytest.raises(ValueError, match=f"the limit is {MOST_PASSES}") as refusal:
        planned(rows=10**7, regularisation=1e-9)
    enough = float(str(refusal.value).split()[-1])
    assert detail(planned(rows=10**7, regularisation=enough), "expected_passes") <= MOST_PASSES


def test_pure_noise_may_be_requested_with_a_delta():
    release_plan = planned(delta=1e-6, mechanism="spherical_laplace")
    assert (release_plan.guarantee.delta, detail(release_plan, "objective_delta")) == (0.0, 0.0)
    assert detail(planned(delta=1e-6), "mechanism") == "gaussian"
    assert detail(planned(), "mechanism") == "spherical_laplace"
