"""Published statements that are wrong, each with neighbours that break it; docs/privacy.md names every test.

Training is written out here, apart from the library: mini-batch SGD in one dimension. A row is one
number v = y·x in [-1, 1], tables have shape (tables, rows), and all tables are trained at once. In most
pairs one row is +1 or -1 among zero rows. As long as the margin is below 1 - h the Huber SVM's slope
there is exactly -1, so nothing is lost in the proof's inequalities, and the library's bound is attained.
"""

import ast
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from goodness import ALPHA
from pairs import a_third_quick
from scipy import optimize, special, stats
from textbook import gaussian_delta, renyi

from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    RepeatAndSelectDpEvent,
    pure_mean,
)
from dbdp.privacy.accounting.renyi import best_order, conversion
from dbdp.privacy.sensitivity import Training, sgd_sensitivity

U = 2.0**-53
ADULT, COVERTYPE = 48_842, 498_010


# --- training, written out ------------------------------------------------------------------------


def huber(rows, models, half_width=0.5):
    """Gradients of the Huber SVM."""
    return -np.clip((1 + half_width - rows * models) / (2 * half_width), 0, 1) * rows


def logistic(rows, models):
    return -rows / (1 + np.exp(rows * models))


def linear(rows, models):
    """-vw: convex, and β-smooth for every β; its gradient never changes."""
    return -rows


def quadratic(rows, models):
    """0.4w² - vw: where the smoothness is the curvature itself."""
    return 0.8 * models - rows


@dataclass(frozen=True, kw_only=True)
class Run:
    """One way to train. `steps` gives η of an update, counted from 1."""

    rows: int
    steps: Callable
    batch_size: int = 1
    epochs: int = 1
    regularisation: float = 0.0
    smoothness: float = 1.0  # of the data part, for the bound
    gradient: Callable = huber
    averaged_from: int = 0
    restart_every: int = 0

    @property
    def batches(self):
        return -(-self.rows // self.batch_size)


def epoch(tables, run, models, done):
    """The models (tables,) after each update of one epoch, `done` updates after the beginning."""
    for first in range(0, tables.shape[1], run.batch_size):
        batch, done = tables[:, first : first + run.batch_size], done + 1
        gradients = run.gradient(batch, models[:, None]).sum(axis=1) / run.batch_size + run.regularisation * models
        models = models - run.steps(done) * gradients
        yield models


def trained(tables, run):
    """The models (tables,) that a run ends with, beginning at 0."""
    models, iterates = np.zeros(len(tables)), []
    for number in range(run.epochs):
        iterates += epoch(tables, run, models, number * run.batches)
        models = iterates[-1]
        if run.restart_every and len(iterates) % run.restart_every == 0:
            models = np.mean(iterates[-run.restart_every :], axis=0)
    return np.mean(iterates[run.averaged_from - 1 :], axis=0) if run.averaged_from else models


def pairs(rows, positions):
    """Tables of zero rows but for one row +1, and the same with -1, for each position."""
    tables = np.zeros((len(positions), rows))
    tables[np.arange(len(positions)), list(positions)] = 1.0
    return tables, -tables


def distances(run, positions):
    """|w - w'| for each position of the row that differs."""
    one, other = pairs(run.rows, positions)
    return np.abs(trained(one, run) - trained(other, run))


def facts(run, **more):
    """What the library is told of a run."""

    def step_sizes(first, count):
        return np.broadcast_to(run.steps(np.arange(first, first + count, dtype=float)), count).copy()

    return Training(
        rows=run.rows,
        dimension=1,
        batch_size=run.batch_size,
        epochs=run.epochs,
        step_sizes=step_sizes,
        lipschitz=1.0,
        smoothness=run.smoothness,
        regularisation=run.regularisation,
        scalar_error=12.0,
        averaged_from=run.averaged_from,
        restart_every=run.restart_every,
        **more,
    )


def attains(distance, bound):
    """The distance is not above the library's bound, and not 1 % below it."""
    return 0.99 * bound.exact <= distance <= bound.total


def constant(step):
    return lambda update: step + 0 * update


def inverse_time(smoothness, convexity):
    return lambda update: np.minimum(1 / smoothness, 1 / (convexity * update))


def decreasing(offset):
    """2/(β(t + m^c)) for β = 1."""
    return lambda update: 2 / (update + offset)


def square_root(offset):
    return lambda update: 2 / (np.sqrt(update) + offset)


def restarted(step, batches, interval):
    """η₀/h with the epoch h counted from the last restart."""
    return lambda update: step / ((update - 1) // batches % (interval or 10**9) + 1)


def firsts(run):
    """The first row of every mini-batch: one position for each."""
    return range(0, run.rows, run.batch_size)


# --- §1.1 one update -------------------------------------------------------------------------------


def test_long_steps_do_not_contract_by_one_minus_step_convexity():
    """η = 1.99 is above 2/(β + γ) for β = 1, γ = 0.2; the formula with 1 - ηγ gives half the distance."""
    run = Run(
        rows=400, batch_size=10, epochs=3, steps=constant(1.99), regularisation=0.2, smoothness=0.8, gradient=quadratic
    )
    distance, keep = distances(run, firsts(run)).max(), 1 - 1.99 * 0.2
    textbook = 2 * 1.99 / 10 * (1 - keep**120) / (1 - keep**40)
    assert textbook == pytest.approx(0.398, abs=5e-4)
    assert distance == pytest.approx(0.842, abs=5e-4)
    assert attains(distance, sgd_sensitivity(facts(run)))


# --- §1.3 closed forms, and mini-batches -----------------------------------------------------------

INVERSE_TIME = Run(rows=2000, batch_size=50, epochs=3, steps=inverse_time(1.05, 0.05), regularisation=0.05)
ADULT_RUN = Run(rows=ADULT, batch_size=50, epochs=10, steps=constant(0.01), regularisation=0.001)


def paper_decreasing(exponent, *, rows, epochs, batch_size):
    """Corollary 2, divided by the batch size as §3.2.3 of the paper has it."""
    return 4 * (rows**-exponent + math.log(epochs) / rows) / batch_size


def paper_square_root(exponent, *, rows, epochs, batch_size):
    """Corollary 3, divided by the batch size."""
    return 4 / batch_size * sum(1 / (math.sqrt(p * rows + 1) + rows**exponent) for p in range(epochs))


SIZE = {"rows": ADULT, "epochs": 10, "batch_size": 50}
# a run, what the paper prints for it, and how many times that some neighbours move
MINI_BATCHES = {
    "min(1/β, 1/(γt))": (INVERSE_TIME, 2 / (0.05 * 2000) / 50, 49.9),
    "min(1/β, 1/(γt)), logistic": (replace(INVERSE_TIME, gradient=logistic), 2 / (0.05 * 2000) / 50, 24.9),
    "strongly convex, constant": (ADULT_RUN, 0.02 / (1 - (1 - 0.01 * 0.001) ** ADULT) / 50, 3.69),
    "2/(β(t + √m))": (
        replace(ADULT_RUN, steps=decreasing(ADULT**0.5), regularisation=0.0),
        paper_decreasing(0.5, **SIZE),
        1.55,
    ),
    "2/(β(t + m^¾))": (
        replace(ADULT_RUN, steps=decreasing(ADULT**0.75), regularisation=0.0),
        paper_decreasing(0.75, **SIZE),
        4.35,
    ),
    "2/(β(√t + √m))": (
        replace(ADULT_RUN, steps=square_root(ADULT**0.5), regularisation=0.0),
        paper_square_root(0.5, **SIZE),
        1.98,
    ),
    "t counts rows": (
        Run(
            rows=100_000,
            batch_size=50,
            epochs=1,
            steps=lambda update: np.minimum(1 / 1.01, 1 / (0.01 * 50 * update)),
            regularisation=0.01,
        ),
        2 / (0.01 * 100_000 * 50),
        840,
    ),
}


@pytest.mark.parametrize("case", MINI_BATCHES)
def test_mini_batches_do_not_divide_the_sensitivity(case):
    """Where steps shrink, or contraction matters, it falls by less than b, or not at all."""
    run, printed, factor = MINI_BATCHES[case]
    last_full = (run.rows // run.batch_size - 1) * run.batch_size
    distance = distances(run, firsts(run) if run.rows < 10_000 else (0, last_full)).max()
    bound = sgd_sensitivity(facts(run))
    assert factor * printed <= distance <= bound.total
    assert distance >= 0.99 * bound.exact or run.gradient is logistic  # its slope reaches L far out only


@pytest.mark.parametrize(("rows", "gaussian"), [(ADULT, (2.22, 29.8)), (COVERTYPE, (2.26, 28.9))])
def test_published_mini_batch_noise_spends_25_times_its_claim(rows, gaussian):
    """b = 50, noise for 2·2/(γmb), which counts the regulariser in L = 2; neighbours are 2/(γm) apart."""
    distance = distances(INVERSE_TIME, firsts(INVERSE_TIME)).max()
    assert distance / (2 * 2 / (0.05 * 2000 * 50)) == pytest.approx(25)
    for claimed, true in zip((0.1, 1.0), gaussian, strict=True):
        mean = 25 * claimed / math.sqrt(2 * math.log(1.25 * rows**2))
        assert epsilon_at(rows**-2.0, lambda epsilon, mean=mean: gaussian_delta(epsilon, mean)) == pytest.approx(
            true, rel=0.05
        )


def test_corollary_2_is_too_small_even_for_single_rows():
    """Σ_{i<k} 1/i is not at most ln k."""
    run = Run(rows=2000, epochs=10, steps=decreasing(2000**0.75))
    distance = distances(run, [0]).max()
    assert distance > 1.03 * paper_decreasing(0.75, rows=2000, epochs=10, batch_size=1)
    assert attains(distance, sgd_sensitivity(facts(run)))


@pytest.mark.parametrize(
    ("rows", "exponent", "epochs", "factor"), [(COVERTYPE, 0.75, 10, 1.016), (10**6, 0.9, 50, 1.028)]
)
def test_corollary_2_is_too_small_for_large_tables(rows, exponent, epochs, factor):
    exact = 4 * sum(1 / (p * rows + 1 + rows**exponent) for p in range(epochs))
    printed = paper_decreasing(exponent, rows=rows, epochs=epochs, batch_size=1)
    assert exact / printed == pytest.approx(factor, abs=5e-4)


# --- §1.5 averages, and fresh permutations ---------------------------------------------------------


def test_a_mean_of_iterates_can_move_further_than_the_last():
    """Where the step is large the iterates move most, and early: the mean remembers it, the last does not."""
    last = Run(rows=2000, steps=inverse_time(1.05, 0.05), regularisation=0.05)
    mean = replace(last, averaged_from=1)
    moved, bound = distances(mean, firsts(mean)), sgd_sensitivity(facts(mean))
    assert moved.argmax() == 20  # = β/γ, where 1/(γt) begins
    assert attains(moved.max(), bound)
    assert moved.max() > 4.5 * sgd_sensitivity(facts(last)).total


ORDINARY = [
    # rows, from which epoch, how much further than the last iterate
    (ADULT, 1, 1.09),
    (COVERTYPE, 1, 1.38),
    (ADULT, 10, 1.026),
    (COVERTYPE, 10, 1.051),
]


@pytest.mark.parametrize(("rows", "from_epoch", "factor"), ORDINARY)
def test_the_last_iterates_noise_is_too_small_in_ordinary_runs(rows, from_epoch, factor):
    last = Run(
        rows=rows, batch_size=50, epochs=10, steps=inverse_time(0.251, 0.001), regularisation=0.001, smoothness=0.25
    )
    mean = replace(last, averaged_from=(from_epoch - 1) * last.batches + 1)
    ratio = sgd_sensitivity(facts(mean)).exact / sgd_sensitivity(facts(last)).exact
    assert ratio == pytest.approx(factor, abs=5e-3)


def test_with_convex_constant_steps_a_mean_moves_no_further():
    last = Run(rows=2000, batch_size=50, epochs=3, steps=constant(0.1))
    assert distances(replace(last, averaged_from=1), firsts(last)).max() <= distances(last, firsts(last)).max()


# --- §2 noise ---------------------------------------------------------------------------------------


def slope_of_ball_noise(radius):
    """-d/dr of the log density of (Gamma norm) × (uniform in the unit ball), in units of ε/Δ."""
    return math.exp(-radius) / (radius * special.exp1(radius))


def test_noise_in_the_unit_ball_is_private_for_no_epsilon():
    """Its density is ∝ E₁(ε‖z‖/Δ), infinite at 0: the log's slope exceeds ε/Δ everywhere, without limit."""
    slopes = [slope_of_ball_noise(radius) for radius in np.geomspace(1e-12, 500, 200)]
    assert min(slopes) > 1
    assert max(slopes) > 1e9
    expected = {1e-6: 75_000, 1: 1.68, 100: 1.01}
    for radius, slope in expected.items():
        assert slope_of_ball_noise(radius) == pytest.approx(slope, rel=0.01)


@pytest.mark.parametrize(("dimension", "radius"), [(1, 0.01), (3, 0.5), (10, 2.0)])
def test_noise_in_the_ball_has_an_exponential_integral_density(dimension, radius):
    """∫ f(r/s) s^(-d) d s^(d-1) ds over s in (0, 1), for f(x) ∝ x^(1-d) x^(d-1) e^-x."""
    points, weights = special.roots_legendre(400)
    shrink = (points + 1) / 2
    integral = 0.5 * weights @ (shrink**-dimension * np.exp(-radius / shrink) * shrink ** (dimension - 1))
    assert integral == pytest.approx(special.exp1(radius), rel=1e-6)


def laplace_like(count, *, in_ball):
    """Noise in the plane for ε = Δ = 1, as the paper's appendix draws it, or on the circle."""
    generator = np.random.default_rng()
    angles, norms = generator.uniform(0, 2 * math.pi, count), generator.gamma(2, size=count)
    stretch = norms * np.sqrt(generator.uniform(size=count)) if in_ball else norms
    return stretch * np.cos(angles), stretch * np.sin(angles)


def least_epsilon(count, *, in_ball):
    """A lower bound on ε, right with probability 1 - ALPHA, for models at 0 and 1 and the disc around 0."""
    hits = []
    for shift in (0.0, 1.0):
        across, up = laplace_like(count, in_ball=in_ball)
        hits.append(int(np.sum((across + shift) ** 2 + up**2 < 0.05**2)))
    low = stats.beta.ppf(ALPHA / 2, hits[0], count - hits[0] + 1)
    high = stats.beta.ppf(1 - ALPHA / 2, hits[1] + 1, count - hits[1])
    return math.log(low / high)


def test_an_audit_finds_noise_in_the_ball_and_not_on_the_sphere():
    assert least_epsilon(2_000_000, in_ball=True) > 1.5  # where 1 is claimed
    assert 0.4 < least_epsilon(2_000_000, in_ball=False) <= 1


def least_multiplier(epsilon, delta):
    """σ/Δ of one Gaussian by bisection on ln(Δ/σ)."""

    def excess(log_mean):
        return math.log(max(gaussian_delta(epsilon, math.exp(log_mean)), 1e-300) / delta)

    return math.exp(-optimize.brentq(excess, -6, 4, xtol=1e-13))


FAILS_FROM = [(1e-5, 8.4, 9.4), (1e-6, 8.8, 9.8), (1e-8, 9.4, 10.3), (1e-12, 10.3, 11.2)]


@pytest.mark.parametrize(("delta", "classical", "zhang"), FAILS_FROM)
def test_classical_gaussian_noise_fails_at_large_epsilon(delta, classical, zhang):
    """σ = Δ√(2 ln(1.25/δ))/ε of the textbook, and √(2 ln(2/δ)) of Zhang et al., whose Theorem 1 says "any ε"."""
    for numerator, epsilon in ((1.25, classical), (2.0, zhang)):

        def true_delta(at, numerator=numerator):
            return gaussian_delta(at, at / math.sqrt(2 * math.log(numerator / delta)))

        assert true_delta(epsilon + 0.1) > delta
        assert true_delta(epsilon - 0.1) < delta
        assert true_delta(1.0) < delta


def test_the_analytic_formula_is_not_the_discrete_gaussian_s():
    """On a coarse grid its δ is larger; that of a rounded continuous Gaussian is not."""
    sigma, shift, epsilon = 1.0, 2, 9.5
    integers = np.arange(-60, 61)
    weights = [np.exp(-((integers - at) ** 2) / (2 * sigma**2)) for at in (0, shift)]
    discrete = [weight / weight.sum() for weight in weights]
    rounded = [np.diff(stats.norm.cdf(np.append(integers, 61) - 0.5, at, sigma)) for at in (0, shift)]
    true = [float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in (discrete, rounded)]
    analytic = gaussian_delta(epsilon, shift / sigma)
    assert true[0] > 1.8 * analytic
    assert true[1] <= analytic


# --- §3 NSGD and RSGD-AR ---------------------------------------------------------------------------


def restarts(*, batches, batch_size, step, interval, epochs, **changes):
    """RSGD-AR on linear losses, for a logistic loss's smoothness: nothing is lost in the inequalities."""
    run = Run(
        rows=batches * batch_size,
        batch_size=batch_size,
        epochs=epochs,
        steps=restarted(step, batches, interval),
        regularisation=0.001,
        smoothness=0.25,
        gradient=linear,
        restart_every=interval * batches,
    )
    return replace(run, **changes)


# N, rows of a batch, η₀, τ, T; how much further the first batch moves the model than the last
RESTARTED = [(390, 100, 1.0, 5, 20, 1.143), (9, 4000, 2.0, 5, 20, 1.294), (9, 4000, 1.0, 3, 7, 1.378)]


@pytest.mark.parametrize(("batches", "size", "step", "interval", "epochs", "factor"), RESTARTED)
def test_with_averaging_the_first_batch_moves_furthest(batches, size, step, interval, epochs, factor):
    run = restarts(batches=batches, batch_size=size, step=step, interval=interval, epochs=epochs)
    moved = distances(run, (0, run.rows - 1))
    bound = sgd_sensitivity(facts(run), by_position=True)
    assert bound.by_position.argmax() == 0
    assert attains(moved[0], bound)
    assert moved[0] / moved[1] == pytest.approx(factor, abs=1e-3)


def renyi_of_mixture(order, means):
    """Proposition 3."""
    exponents = order * (order - 1) / 2 * np.asarray(means) ** 2
    return float(special.logsumexp(exponents) - math.log(len(exponents))) / (order - 1)


def test_no_pure_epsilon_is_amplified_by_shuffling():
    """The record moves the model in one position of ten only; far out, that one decides the ratio."""
    epsilon, amplified = 1.0, math.log(1 + 0.1 * (math.e - 1))
    losses = []
    for away in (0.0, 1.0, 5.0, 20.0):  # how far out the tenth component lies, in Δ
        near, far = math.exp(epsilon * away), math.exp(epsilon * (away + 1))
        losses.append(math.log((0.9 + 0.1 * far) / (0.9 + 0.1 * near)))
    assert losses[0] == pytest.approx(amplified)  # what amplification by subsampling would promise
    assert losses[1] > 1.5 * amplified
    assert losses[-1] > 0.999 * epsilon


SHUFFLED = 0.9 ** (20 * np.arange(10.0))  # Δ_j of ten positions


def epsilon_at(delta, delta_of):
    """The ε at which δ(ε) = δ."""
    return optimize.brentq(lambda epsilon: math.log(max(delta_of(epsilon), 1e-300) / delta), 0.1, 60)


def independent_delta(means, models):
    """δ(ε) of so many releases, each with a permutation of its own, whose positions are known."""
    squares, chances = [], []
    for counts in itertools.combinations_with_replacement(range(len(means)), models):
        times = np.bincount(counts, minlength=len(means))
        squares.append(times @ means**2)
        chances.append(math.factorial(models) / special.factorial(times).prod() / len(means) ** models)
    return lambda epsilon: float(np.array(chances) @ gaussian_delta(epsilon, np.sqrt(squares)))


@pytest.mark.parametrize(("models", "independent", "same"), [(2, 1.24, 1.47), (5, 1.60, 2.44)])
def test_one_shuffle_for_several_models_is_no_composition(models, independent, same):
    """Each model alone is (1, 1e-6). With one permutation a record is in a telling position for all, or for none."""
    noise = optimize.brentq(lambda scale: np.mean(gaussian_delta(1.0, scale * SHUFFLED)) - 1e-6, 0.2, 1, xtol=1e-12)
    means = noise * SHUFFLED
    together = epsilon_at(1e-6, lambda epsilon: np.mean(gaussian_delta(epsilon, math.sqrt(models) * means)))
    apart = epsilon_at(1e-6, independent_delta(means, models))
    assert apart == pytest.approx(independent, abs=6e-3)
    assert together == pytest.approx(same, abs=6e-3)
    assert together > epsilon_by_summing(means, models) > apart  # summed Rényi curves are too small as well


def epsilon_by_summing(means, models):
    """ε of the sum of the Rényi curves, by the tight conversion."""
    orders = 1 + np.geomspace(0.1, 1e3, 3000)
    return min(models * renyi_of_mixture(order, means) + conversion(order, 1e-6) for order in orders)


def test_in_a_zcdp_ledger_shuffling_saves_nothing():
    """ε(α)/α of a mixture tends to that of its worst position, so plain zCDP must charge that."""
    rates = [renyi_of_mixture(order, SHUFFLED) / order for order in (2.0, 20.0, 1e3, 1e6)]
    assert rates == sorted(rates)
    assert rates[0] < 0.3 * rates[-1]
    assert rates[-1] == pytest.approx(SHUFFLED.max() ** 2 / 2, rel=1e-4)


# --- §4 gradient descent ---------------------------------------------------------------------------


def full_batch(**changes):
    return replace(
        Run(rows=200, batch_size=200, epochs=20, steps=constant(1.0), smoothness=0.25, gradient=linear), **changes
    )


def test_published_descent_bounds_are_1_5_and_17_times_too_large():
    """3LTη/n for convex losses, and 5L(μ + β)/(nμβ) for strongly convex ones at η = 2/(β + μ), T = 20."""
    convex = full_batch()
    moved = distances(convex, [7]).max()
    assert attains(moved, sgd_sensitivity(facts(convex)))
    printed = 3 * 20 * 1.0 / 200
    assert printed == pytest.approx(1.5 * moved)
    strongly = full_batch(steps=constant(2 / 0.252), regularisation=0.001)
    moved = distances(strongly, [7]).max()
    assert attains(moved, sgd_sensitivity(facts(strongly)))
    printed = 5 * (0.001 + 0.251) / (200 * 0.001 * 0.251)
    assert printed == pytest.approx(17.0 * moved, rel=0.01)


# --- §6 tuning -------------------------------------------------------------------------------------


def exponential_mechanism(scores, epsilon):
    return special.softmax(epsilon * np.array(scores) / 2)


def tuned(values, epsilon, *, held_out):
    """The law of (choice, model) of two candidates, each a randomised response to its own part's value."""
    law = np.zeros((2, 2, 2))
    for models in itertools.product((0, 1), repeat=2):
        observed = [
            1 / (1 + math.exp(-epsilon if model == value else epsilon))
            for model, value in zip(models, values, strict=False)
        ]
        scores = [-sum(model != value for value in held_out) for model in models]
        for choice, chance in enumerate(exponential_mechanism(scores, epsilon)):
            law[choice, models[choice], 0] += chance * math.prod(observed)
    return law[..., 0].ravel()


def test_tuning_on_disjoint_parts_costs_one_part():
    """Two training parts and one held-out part, one record each: a record is in one of them."""
    losses = {"train": 0.0, "hold out": 0.0, "all three": 0.0}
    for first, second, third, new in itertools.product((0, 1), repeat=4):
        law = tuned((first, second), 1.0, held_out=[third])
        changed = {
            "train": tuned((new, second), 1.0, held_out=[third]),
            "hold out": tuned((first, second), 1.0, held_out=[new]),
        }
        if first == second == third:
            changed["all three"] = tuned((new, new), 1.0, held_out=[new])
        for name, other in changed.items():
            losses[name] = max(losses[name], float(np.abs(np.log(law / other)).max()))
    assert 0.5 < losses["train"] <= 1 + 1e-12
    assert 0.2 < losses["hold out"] <= 1 + 1e-12
    assert losses["all three"] > 1.2  # the record in every part: the costs add up


def best_of(law, generating):
    """The law of the best of K draws, the last outcome being the best, where E x^K = generating(x)."""
    reached = generating(np.append(0.0, np.cumsum(law)).clip(0, 1))
    return np.diff(reached)


def geometric(mean):
    return lambda x: x / mean / (1 - (1 - 1 / mean) * x)


def poisson(mean):
    return lambda x: np.exp(mean * (x - 1))


def pure_pairs(epsilon):
    """Pairs of laws on two or three outcomes, from worst to best, that are ε-DP of one another."""
    grow = math.exp(epsilon)
    for top in np.geomspace(1e-4, 0.3, 12):
        for low in np.geomspace(1e-3, 0.6, 12):
            p, q = np.array([grow * top, low / grow, 0]), np.array([top, low, 0])
            p[2], q[2] = 1 - p.sum(), 1 - q.sum()
            if min(*p, *q) > 0 and 1 / grow <= p[2] / q[2] <= grow:
                yield from ((p[list(order)], q[list(order)]) for order in itertools.permutations(range(3)))


@pytest.mark.parametrize("mean", [5.0, 50.0, 1000.0])
def test_the_best_of_geometric_runs_is_three_epsilon_private(mean):
    """The best of a geometric number of runs is three epsilon private and of a fixed number is not."""
    losses, fixed = [], []
    for p, q in pure_pairs(1.0):
        losses.append(np.abs(np.log(best_of(p, geometric(mean)) / best_of(q, geometric(mean)))).max())
        fixed.append(mean * abs(math.log(p[0] / q[0])))  # the best of K is the worst outcome: p₀^K
    assert 2.0 < max(losses) <= 3
    assert max(fixed) == pytest.approx(mean)  # K times ε: K must be random, and secret


@pytest.mark.parametrize(("shape", "law"), [(1, geometric), (math.inf, poisson)])
@pytest.mark.parametrize(("mean", "order"), a_third_quick([3.0, 20.0], [1.5, 4.0, 12.0]))
def test_the_charge_of_random_repetitions_is_never_too_small(shape, law, mean, order):
    charge = RepeatAndSelectDpEvent(EpsilonDeltaDpEvent(0.5, 0.0), mean, shape, 0.0).divergence(order)
    costs = [
        renyi(*(with_nothing(best_of(each, law(mean)), law(mean)(0.0)) for each in pair), order)
        for pair in pure_pairs(0.5)
    ]
    assert charge / 100 < max(costs) <= charge


def with_nothing(law, nothing):
    """Poisson repetitions may make no run at all: an outcome of its own."""
    return np.append(law, nothing) if nothing > 0 else law


# --- §1.7 projection --------------------------------------------------------------------------------


def test_a_projection_lengthens_rows_that_must_be_clipped_again():
    matrix = np.random.RandomState(1).standard_normal((784, 50)) / math.sqrt(50)
    directions, lengths, _ = np.linalg.svd(matrix, full_matrices=False)
    assert lengths[0] > 4.5
    assert np.linalg.norm(directions[:, 0] @ matrix) == pytest.approx(lengths[0])  # a row of norm 1


# --- §11 data handling ------------------------------------------------------------------------------


def stopped(table, run, tolerance, held_out):
    """(epoch, model) where the loss on `held_out` first changes by less than `tolerance` over an epoch."""
    models, before = np.zeros(1), math.log(2)
    for number in range(run.epochs):
        *_, models = epoch(table[None], run, models, number * run.batches)
        loss = np.logaddexp(0, -held_out * models[0]).mean()
        if abs(before - loss) < tolerance:
            break
        before = loss
    return number + 1, models[0]


def changes(table, run, held_out):
    """How much the loss on `held_out` changes in the second epoch."""
    losses, models = [], np.zeros(1)
    for number in range(2):
        *_, models = epoch(table[None], run, models, number * run.batches)
        losses.append(np.logaddexp(0, -held_out * models[0]).mean())
    return abs(losses[0] - losses[1])


@pytest.mark.parametrize(("rows", "factor"), [(2000, 17), (20_000, 170)])
@pytest.mark.parametrize("kind", ["training loss", "public hold-out"])
def test_a_stop_by_the_data_moves_far_beyond_the_bound(rows, factor, kind):
    """All labels +1, then all -1; one row is flipped, and the tolerance lies between the two changes of the loss."""
    run = Run(
        rows=rows,
        batch_size=10,
        epochs=5,
        steps=inverse_time(0.3, 0.05),
        regularisation=0.05,
        smoothness=0.25,
        gradient=logistic,
    )
    table = np.repeat([1.0, -1.0], rows // 2)
    neighbour = table.copy()
    neighbour[0] = -1.0
    public = np.repeat([1.0, -1.0], 50)
    seen = [(each, public if kind == "public hold-out" else each) for each in (table, neighbour)]
    tolerance = np.mean([changes(each, run, held_out) for each, held_out in seen])
    (one, model), (other, moved) = (stopped(each, run, tolerance, held_out) for each, held_out in seen)
    assert {one, other} == {2, 3}
    bound = sgd_sensitivity(facts(run)).total
    assert abs(model - moved) > factor * bound
    at_the_same_epoch = trained(np.array([table, neighbour]), replace(run, epochs=2))
    assert abs(at_the_same_epoch[0] - at_the_same_epoch[1]) <= bound


def border_rows():
    """A table over which the model swings around the bend of a Huber SVM, h = 0.05, where each border row that
    changes batch meets the other slope."""
    up, down = np.append(np.ones(49), 0.0), np.append(0.0, -np.ones(49))
    ramp = np.concatenate([np.ones(450), np.ones(26), np.zeros(24), up])
    return np.concatenate([ramp, np.tile(np.concatenate([down, up]), 100)])


@pytest.mark.parametrize("kind", ["dropped", "moved to the end"])
def test_a_dropped_row_shifts_others_and_breaks_the_bound(kind):
    """One row is replaced by a zero row that is stored elsewhere, or not at all: later rows move up by one."""
    table, run = border_rows(), Run(rows=0, batch_size=50, steps=constant(0.1), smoothness=10.0)
    run = replace(run, rows=len(table), gradient=lambda rows, models: huber(rows, models, 0.05))
    bound = sgd_sensitivity(facts(run)).total
    zeroed = np.append(0.0, table[1:])
    shifted = table[1:] if kind == "dropped" else np.append(table[1:], 0.0)
    model, in_place, out_of_place = (trained(each[None], run)[0] for each in (table, zeroed, shifted))
    assert abs(model - in_place) <= bound
    assert abs(model - out_of_place) > 20 * bound


# --- §13 composition --------------------------------------------------------------------------------

LEDGER = [
    # δ₀, ε, α*, B
    (1e-6, 0.1, 165.7, 0.05319),
    (1e-6, 0.5, 40.05, 0.2660),
    (1e-6, 1, 21.98, 0.5355),
    (1e-6, 2, 12.32, 1.086),
    (1e-6, 4, 7.171, 2.231),
    (1e-6, 8, 4.423, 4.654),
    (1e-9, 0.1, 292.4, 0.05180),
    (1e-9, 1, 34.87, 0.5220),
    (1e-9, 2, 18.80, 1.055),
    (1e-9, 8, 6.081, 4.456),
]


def kappa(order, delta):
    return math.log(1 - 1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def cheapest(epsilon, delta):
    """(α, ρ): the order at which αρ + κ(α) ≤ ε leaves most ρ to Gaussians."""
    result = optimize.minimize_scalar(
        lambda log: -(epsilon - kappa(1 + math.exp(log), delta)) / (1 + math.exp(log)),
        bounds=(-5, 12),
        method="bounded",
    )
    return 1 + math.exp(result.x), -result.fun


@pytest.mark.parametrize(("delta", "epsilon", "order", "budget"), LEDGER)
def test_orders_and_budgets_are_those_of_the_reference(delta, epsilon, order, budget):
    result, rho = cheapest(epsilon, delta)
    assert (result, result * rho) == pytest.approx((order, budget), rel=5e-4)
    assert best_order(epsilon, delta) == pytest.approx(result, rel=1e-4)
    assert Budget.of(epsilon=epsilon, delta=delta / 0.9).charge_limit == pytest.approx(1e9 * budget, rel=5e-4)


# σ/Δ of each of K Gaussians within (1, 1e-6): split evenly, the renyi ledger, the gaussian ledger
SEVERAL = [(1, 4.22, 4.53, 4.22), (2, 8.35, 6.41, 5.97), (5, 20.7, 10.1, 9.45), (10, 41.3, 14.3, 13.4)]


@pytest.mark.parametrize(("count", "basic", "renyi_", "gaussian"), SEVERAL)
def test_one_fixed_order_beats_an_even_split(count, basic, renyi_, gaussian):
    _, rho = cheapest(1.0, 1e-6)
    result = (
        least_multiplier(1 / count, 1e-6 / count),
        math.sqrt(count / (2 * rho)),
        math.sqrt(count) * least_multiplier(1.0, 1e-6),
    )
    assert result == pytest.approx((basic, renyi_, gaussian), rel=4e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_pure_release_tells_no_more_than_its_gaussian(epsilon):
    """G_μ passes below the corner of the trade-off function of pure ε, for μ = 2Φ⁻¹(e^ε/(1 + e^ε))."""
    mean, largest = pure_mean(epsilon), 0.0
    for at in np.linspace(0, epsilon, 50):
        pure = (math.exp(epsilon) - math.exp(at)) / (1 + math.exp(epsilon))
        assert pure <= gaussian_delta(at, mean) * (1 + 1e-9)
        largest = max(largest, pure / gaussian_delta(at, mean))
    assert largest == pytest.approx(1, abs=1e-6)
    assert mean < 1.26 * epsilon


def test_passing_by_any_of_several_filters_is_unsound():
    """A first Gaussian is seen. Was it telling, the rest is spent as Gaussians, within a Gaussian filter;
    else as one leak of probability δ', within the filter that adds up (ε, δ). Every end fits one filter."""
    epsilon, delta, first = 1.0, 1e-6, 0.05
    whole = 1 / least_multiplier(epsilon, delta)  # μ of the Gaussian filter
    rest = math.sqrt(whole**2 - first**2)
    leaked = float(gaussian_delta(epsilon, first))  # what the first one costs the other filter, at the same ε
    seen, width = np.linspace(-12, 12, 20_001, retstep=True)
    chance, loss = stats.norm.pdf(seen - first), first * seen - first**2 / 2
    gaussian = gaussian_delta(epsilon - loss, rest)
    alone = float((chance * gaussian).sum() * width)
    either = float((chance * np.maximum(gaussian, delta - leaked)).sum() * width)
    assert alone == pytest.approx(delta, rel=1e-3)  # a single filter is right, to the last bit
    assert either > 1.2 * delta


# --- §14 margins ------------------------------------------------------------------------------------


def test_a_dot_product_errs_by_its_dimension_times_the_norm():
    """20,000 products, each too small beside what was summed before, are all lost: the term dβW is needed."""
    dimension, large = 20_000, 256.0
    products = [large, *[0.99 * U * large] * dimension, -large]  # w = (256√2, …, 256√2), x = (1/√2, …, -1/√2)
    total = 0.0
    for product in products:
        total += product
    norm = 2 * large
    lost = abs(math.fsum(products) - total)
    assert lost > 0.49 * dimension * U * norm
    assert lost > 2000 * 4 * U * norm  # 4uW is what remains of the margin without the dimension
    assert lost <= 1.01 * dimension * U * norm


def test_single_precision_could_move_further_than_the_record():
    """The margin of float64 is nothing; the same bound with 2⁻²⁴ in place of 2⁻⁵³ is many times Δ."""
    run = Run(
        rows=ADULT, batch_size=50, epochs=10, steps=inverse_time(0.251, 0.001), regularisation=0.001, smoothness=0.25
    )
    bound = sgd_sensitivity(replace(facts(run), dimension=124))
    assert bound.margin < 1e-6 * bound.exact
    assert bound.margin * 2.0**29 > 15 * bound.exact


# --- the document -----------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "privacy.md"
SOURCES = [
    path
    for pattern in ("dbdp/**/*.py", "dbdp/**/*.h", "dbdp/**/*.pyx", "sql/*.sql", "tests/**/*.py")
    for path in ROOT.glob(pattern)
]


def functions_by_file():
    return {
        path.relative_to(ROOT).as_posix(): set(re.findall(r"\bdef (test_\w+)", path.read_text(encoding="utf-8")))
        for path in ROOT.glob("tests/**/*.py")
    }


def test_every_test_that_the_document_names_exists():
    known = functions_by_file()
    named = re.findall(r"`(test_\w+)`(?:\s+\(`?([\w/]+\.py)`?\))?", DOCUMENT.read_text(encoding="utf-8"))
    assert len(named) > 50
    here = Path(__file__).relative_to(ROOT).as_posix()
    missing = [name for name, file in named if name not in known.get(f"tests/{file}" if file else here, ())]
    assert missing == []


def test_the_document_names_every_counterexample():
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text(encoding="utf-8")))
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    written = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    about_itself = {name for name in written if "document" in name}
    assert written - named - about_itself == set()


def test_every_section_that_the_code_cites_is_in_the_document():
    """In the package every § is one of this document's, unless it says whose else; in tests those after its name."""
    document = DOCUMENT.read_text(encoding="utf-8")
    sections = set(re.findall(r"^(?:#+ |\*\*)(\d+(?:\.\d+)?)\b", document, re.MULTILINE))
    cited = set()
    for path in SOURCES:
        whose = r"privacy\.md " if "tests" in path.parts else r"(?<!design\.md )(?<!their )"
        cited |= set(re.findall(whose + r"§(\d+(?:\.\d+)?)", path.read_text(encoding="utf-8")))
    assert len(cited) > 20
    assert cited - sections == set()


def test_the_roman_parts_that_code_cites_are_in_the_document():
    document = DOCUMENT.read_text(encoding="utf-8")
    cited = {part for path in SOURCES for part in re.findall(r"§2\((i+)\)", path.read_text(encoding="utf-8"))}
    assert "ii" in cited
    assert all(f"**({part})" in document for part in cited)
