"""DP-AGD never overdraws its budget, is Algorithm 2 as repaired, and its sensitivities are attained."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from chance import usually
from goodness import ALPHA, of_cells
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import RowsInMemory
from pairs import each_value_quick
from scipy import optimize

from dbdp.algorithms import noisy_sums, plan
from dbdp.algorithms.families.noisy_search import access_prices, agd_settings, dp_agd
from dbdp.algorithms.plan import Facts, Request
from dbdp.algorithms.rows import silent
from dbdp.learning.compiled.arithmetic import SHRINK
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic, Squared
from dbdp.learning.objectives import Linear
from dbdp.privacy.accounting.composition import rho_of
from dbdp.privacy.accounting.events import PaddedDpEvent, RenyiDpEvent, ZCDpEvent
from dbdp.privacy.accounting.renyi import conversion
from dbdp.privacy.accounting.subsampling import poisson_gaussian_divergence
from dbdp.privacy.mechanisms import Gaussian
from dbdp.privacy.noisy_min import NoisyMin
from dbdp.privacy.selection import ExponentialMechanism

RANDOM = np.random.default_rng()


def planned(facts, *, epsilon=1.0, delta=1e-6, own_settings=None, **given):
    return dp_agd.dp_agd_plan(
        Request(epsilon=epsilon, delta=delta, algorithm="dp_agd", settings=own_settings or {}, **given), facts
    )


def some_rows(count, dimension, *, classes=1):
    features = RANDOM.normal(size=(count, dimension)) / math.sqrt(dimension)
    features[:, -1] = 0.5
    if classes > 1:
        return features, RANDOM.integers(1, classes + 1, count)
    return features, np.where(features @ np.linspace(1, 2, dimension) + 0.3 * RANDOM.normal(size=count) > 0, 1.0, -1.0)


class Spy:
    """Takes the place of noise and selections: records what each access was charged for, and answers as told."""

    def __init__(self, monkeypatch, *, noise=None, choose=None):
        self.noise, self.choose = noise or (lambda vector: vector), choose or (lambda losses: int(np.argmin(losses)))
        self.accesses = []
        spy = self

        def release(mechanism, vector):
            spy.accesses.append(("gradient", mechanism))
            return spy.noise(np.asarray(vector))

        def chosen(mechanism, losses):
            spy.accesses.append(("selection", mechanism))
            return spy.choose(losses)

        monkeypatch.setattr(Gaussian, "release", release)
        monkeypatch.setattr(ExponentialMechanism, "choose", chosen)
        monkeypatch.setattr(NoisyMin, "choose", chosen)

    @property
    def selections(self):
        return sum(kind == "selection" for kind, _ in self.accesses)


@pytest.fixture
def spied(monkeypatch):
    return lambda **how: Spy(monkeypatch, **how)


# --- the budget -----------------------------------------------------------------------------------------


def rho_spent(accesses, clip, rows):
    """What the accesses cost in zCDP, from their scales alone, exactly."""
    spent = Fraction(0)
    for kind, mechanism in accesses:
        if kind == "gradient":
            assert mechanism.sensitivity >= 2 * clip * (1 + rows**2 * 2.0**-53)
            spent += (Fraction(mechanism.sensitivity) / Fraction(mechanism.noise_scale)) ** 2 / 2
        else:
            spent += Fraction(mechanism.epsilon) ** 2 / (8 if isinstance(mechanism, ExponentialMechanism) else 2)
    return spent


def divergence_in_range(reach, order):
    """The largest Rényi divergence of a privacy loss that has the two values θ and θ - reach, by a search for θ."""
    level = np.linspace(-order * reach - 5, 5, 100_001)
    least, most = np.logaddexp(0, level), np.logaddexp(0, level + reach)
    return float(np.max(np.logaddexp(0, level + order * reach) - least - order * (most - least))) / (order - 1)


def divergence_spent(accesses, clip, probability, order):
    """The same of mini-batches, as Rényi divergence at one order."""
    spent = Fraction(0)
    for kind, mechanism in accesses:
        if kind == "gradient":
            assert mechanism.sensitivity >= clip
            spent += Fraction(
                poisson_gaussian_divergence(probability, mechanism.noise_scale / mechanism.sensitivity, order)
            )
        else:
            assert isinstance(mechanism, ExponentialMechanism)
            reach = 2 * math.log1p(probability * math.expm1(mechanism.epsilon / 2))
            spent += Fraction(divergence_in_range(reach, order))
    return spent


answers = st.lists(st.integers(0, 4), min_size=1, max_size=12)
budgets = {
    "epsilon": st.floats(-2, 4).map(lambda exponent: 10.0**exponent),
    "delta": st.floats(-12, -1).map(lambda exponent: 10.0**exponent),
    "splits": st.integers(1, 12),
    "growth": st.floats(-2, 1).map(lambda exponent: 10.0**exponent),
    "shares": st.sampled_from(agd_settings.SHARES),
}


@settings(max_examples=60)
@given(answered=answers, selection=st.sampled_from(agd_settings.SELECTIONS), **budgets)
def test_no_selection_overdraws_the_budget_or_leaves_it(answered, selection, epsilon, delta, splits, growth, shares):
    """Any answers, in a circle: every cost is recomputed from the scale of the noise that was used."""
    own_settings = {"splits": splits, "growth": growth, "shares": shares, "selection": selection, "step_candidates": 5}
    plan = planned(Facts(6, 3), epsilon=epsilon, delta=delta, own_settings=own_settings)
    rows = RowsInMemory(*some_rows(6, 3))
    with pytest.MonkeyPatch.context() as patched:
        spy = Spy(patched, choose=lambda _: answered[(spy.selections - 1) % len(answered)])
        plan.method(rows, silent)
    rho = Fraction(rho_of(epsilon, delta))
    assert rho_spent(spy.accesses, 1.0, 6) <= rho
    assert plan.guarantee.event == ZCDpEvent(float(rho))
    assert rows.reads == ["gradient_sum", "loss_sums"] * spy.selections
    assert plan.details["selections_at_least"] <= spy.selections <= plan.details["selections_at_most"]
    assert rho - rho_spent(spy.accesses, 1.0, 6) < price_of_more(spy, answered, growth)


def price_of_more(spy, answered, growth):
    """What one more measurement and selection would cost, with a thousandth on top for the grids."""
    costs, known = [], Fraction(0)
    for kind, mechanism in spy.accesses:
        if kind == "gradient":
            known += (Fraction(mechanism.sensitivity) / Fraction(mechanism.noise_scale)) ** 2 / 2
        else:
            costs.append(Fraction(mechanism.epsilon) ** 2 / (8 if isinstance(mechanism, ExponentialMechanism) else 2))
            zero = answered[(len(costs) - 1) % len(answered)] == 0
            last, known = known, known if zero else Fraction(0)
    return (last * (Fraction(growth) if zero else 1) + costs[-1]) * Fraction(1001, 1000)


@pytest.mark.slow
@settings(max_examples=25)
@given(answered=answers, probability=st.sampled_from([1, 3, 5]), **budgets)
def test_mini_batches_never_overdraw_the_budget(answered, probability, epsilon, delta, splits, growth, shares):
    """Mini batches never overdraw it either and none is read twice."""
    own_settings = {"splits": splits, "growth": growth, "shares": shares, "step_candidates": 5}
    plan = planned(Facts(6, 3), epsilon=epsilon, delta=delta, batch_size=probability, own_settings=own_settings)
    rows = Batches(*some_rows(6, 3))
    with pytest.MonkeyPatch.context() as patched:
        spy = Spy(patched, choose=lambda _: answered[(spy.selections - 1) % len(answered)])
        plan.method(rows, silent)
    order = plan.details["renyi_order"]
    limit = epsilon - conversion(order, delta)
    assert float(divergence_spent(spy.accesses, 1.0, probability / 6, order)) <= limit
    event = plan.guarantee.event
    event = event.event if isinstance(event, PaddedDpEvent) else event
    assert event == RenyiDpEvent(order, plan.method.prices.limit)
    assert len(rows.read) == len(set(rows.read)) == 2 * spy.selections
    [samples] = rows.samples
    assert samples.probability == probability / 6
    assert len(rows.read) <= samples.draws  # what the cutting of each may leak is paid
    assert plan.details["selections_at_least"] <= spy.selections <= plan.details["selections_at_most"]


class Batches(RowsInMemory):
    """Records which mini-batch of which draw each access reads."""

    def __init__(self, features, labels):
        super().__init__(features, labels, portion=7)
        self.draws, self.read, self.samples = 0, [], set()

    def draw(self, samples, most):
        self.draws += 1
        self.samples.add(samples)
        return super().draw(samples, most)

    def _of(self, batch):
        assert batch is not None
        self.read.append((self.draws, batch))
        return super()._of(batch)


def test_without_a_step_the_first_model_is_released(spied):
    """Only zeros: one gradient is measured ever better, the budget ends within the inner loop."""
    spy = spied(choose=lambda _: 0)
    plan = planned(Facts(6, 3))
    assert not plan.method(RowsInMemory(*some_rows(6, 3)), silent).any()
    scales = [mechanism.noise_scale for kind, mechanism in spy.accesses if kind == "gradient"]
    rho = np.cumsum([2 / scale**2 for scale in scales])  # (2C)²/2σ²
    assert np.allclose(rho[1:] / rho[:-1], 1.3, rtol=1e-6)  # (1 + γ) ρ_old is what is known then


def test_a_mini_batch_selections_charge_is_nearly_attained():
    """The charge of a selection from a mini batch bounds the exact divergence and is attained.

    Enumerated: odds against a mini-batch without the record move by at most ε/2 each way.
    """
    best = 0.0
    for _ in range(2000):
        epsilon, probability = 10 ** RANDOM.uniform(-2, 1), RANDOM.uniform(0.01, 1)
        order, count = 1 + 10 ** RANDOM.uniform(-1, 2), int(RANDOM.integers(2, 5))
        without = RANDOM.dirichlet(np.ones(count)) + 1e-9
        ends = RANDOM.integers(0, 2, (2, count)) if RANDOM.random() < 0.5 else RANDOM.random((2, count))
        both = [without * np.exp(-epsilon * moved / 2) for moved in ends]
        mixed = [(1 - probability) * without / without.sum() + probability * each / each.sum() for each in both]
        exact = math.log(np.sum(mixed[0] * (mixed[0] / mixed[1]) ** (order - 1))) / (order - 1)
        prices = access_prices.MiniBatches(1.0, 1.0, epsilon, agd_settings.EXPONENTIAL, probability, order)
        best = max(best, exact / prices.selection_charge)
    assert 0.7 < best <= 1


@pytest.mark.parametrize("selection", agd_settings.SELECTIONS)
def test_a_small_selection_costs_what_it_is_charged(selection):
    """Two candidates at even odds: the exponential mechanism attains ε²/8, and Laplace noise needs more than that."""
    request = Request(epsilon=0.5, delta=1e-6, algorithm="dp_agd")
    prices = access_prices.AllRows.of(request, agd_settings.AgdSettings(selection=selection))
    epsilon, order = prices.selection_epsilon, 2.0
    chance = 1 / (1 + math.exp(-epsilon / 2)) if selection == agd_settings.EXPONENTIAL else above(epsilon)
    law, other = np.array([chance, 1 - chance]), np.array([1 - chance, chance])
    exact = math.log(np.sum(law**order * other ** (1 - order))) / (order - 1)
    share = exact / (order * prices.selection_charge)
    assert share <= 1
    assert share == pytest.approx(1 if selection == agd_settings.EXPONENTIAL else 0.25, rel=1e-3)


def above(difference):
    """P(X - Y ≤ d/2) of two Laplace variables of scale 1: what a difference of d/2 scales makes of even odds."""
    half = difference / 2
    return 1 - math.exp(-half) * (2 + half) / 4


# --- it is Algorithm 2 ----------------------------------------------------------------------------------


PUBLISHED = {
    "splits": 60, "step_candidates": 20, "step_sizes": "equal", "largest_step": 2.0, "momentum": 0.0, "mean_weight": 0.0
}  # fmt: skip


def algorithm_2(data, *, epsilon, delta, regularisation, noises, gumbels, how, growth=0.3, clip=3.0):
    """Lee & Kifer 2018, Algorithm 2 with the repairs of privacy.md §8, for logistic regression, row by row.

    `how` has dbdp's settings, of which momentum and halves are not in the paper.
    Yields after each selection: the model, the ρ of the last measurement, the candidates, α_max.
    """
    (features, labels), (count, dimension) = data, data[0].shape

    def gradient(w):
        total = np.zeros(dimension)
        for x, y in zip(features, labels, strict=True):
            g = -y * x / (1 + math.exp(y * float(w @ x)))
            total += g / max(1.0, float(np.linalg.norm(g)))
        return total

    def objective(w):
        losses = [min(clip, math.log1p(math.exp(-y * float(w @ x)))) for x, y in zip(features, labels, strict=True)]
        return math.fsum(losses) + count * regularisation / 2 * float(w @ w)

    rho = rho_of(epsilon, delta)
    splits, candidates = how["splits"], how["step_candidates"]
    rho_nmax = rho_ng = min((epsilon / (2 * splits)) ** 2 / 2, rho / (2 * splits))
    w, largest, taken, before = np.zeros(dimension), how["largest_step"], [], np.zeros(dimension)
    while rho >= rho_ng + rho_nmax:
        rho -= rho_ng
        cost, raw, i = rho_ng, gradient(w) + next(noises), 0
        while i == 0:
            whole = raw / count + regularisation * w + how["momentum"] * before
            halves = [0, *(largest / 2**j for j in range(candidates - 2, -1, -1))]
            equal = [largest * j / (candidates - 1) for j in range(candidates)]
            steps = halves if how["step_sizes"] == "halves" else equal
            models = [w - alpha * whole / np.linalg.norm(whole) for alpha in steps]
            rho -= rho_nmax
            i = int(np.argmin([objective(each) - noise for each, noise in zip(models, next(gumbels), strict=True)]))
            yield models[i], cost, np.array(models), largest
            if i == 0:
                rho_old, rho_ng, before = rho_ng, (1 + growth) * rho_ng, before / 2
                cost = rho_ng - rho_old
                if rho < cost + rho_nmax:
                    return
                rho -= cost
                raw = (rho_old * raw + cost * (gradient(w) + next(noises))) / rho_ng
        w, before = models[i], whole
        taken.append(steps[i])
        if len(taken) == 10:
            largest, taken = min(1.1 * max(taken), how["largest_step"]), []


def endless(count, dimension, own_settings, how):
    """Yield rows, noise and what Algorithm 2 does with them, each time others."""
    while True:
        rows = Candidates(*some_rows(count, dimension))
        noises = [3 * RANDOM.normal(size=dimension) for _ in range(1000)]
        places = np.arange(own_settings["step_candidates"])
        refusals = RANDOM.random(1000) < 0.05
        gumbels = [0.6 * RANDOM.gumbel(size=len(places)) + 6 * refused * (places == 0) for refused in refusals]
        data = rows.all[:, :dimension].astype(float), rows.all[:, -1].astype(float)
        yield (
            rows,
            noises,
            gumbels,
            list(algorithm_2(data, noises=iter(noises), gumbels=iter(gumbels), how=own_settings, **how)),
        )


def varied(script):
    """Whether steps were taken, some refused, and the range of steps adapted."""
    *_, expected = script
    refused = sum(np.array_equal(chosen, candidates[0]) for chosen, _, candidates, _ in expected)
    return len(expected) > 30 and 2 < refused < len(expected) - 10 and len({largest for *_, largest in expected}) > 1


@pytest.mark.parametrize(
    "changed", [{}, {"momentum": 0.7, "step_sizes": "halves", "step_candidates": 6, "mean_weight": 0.85}]
)
def test_with_the_same_noise_it_is_algorithm_2_step_by_step(spied, changed):
    """Noise large enough that steps are refused, gradients averaged and the range adapted, many times."""
    count, dimension, how = 60, 4, {"epsilon": 2.0, "delta": 1e-5, "regularisation": 0.01}
    own_settings = PUBLISHED | changed
    rows, noises, gumbels, expected = next(filter(varied, endless(count, dimension, own_settings, how)))
    left, right = iter(noises), iter(gumbels)
    spy = spied(noise=lambda vector: vector + next(left), choose=lambda losses: int(np.argmin(losses - next(right))))
    model = planned(Facts(count, dimension), own_settings=own_settings, **how).method(rows, silent)
    assert len(expected) == spy.selections
    for (_, rho, candidates, largest), seen, measured, selected in zip(
        expected, rows.seen, spy.accesses[::2], spy.accesses[1::2], strict=True
    ):
        assert np.abs(seen - candidates).max() < 1e-10
        assert measured[1].noise_scale == pytest.approx(2 / math.sqrt(2 * rho), rel=1e-6)
        assert selected[1].epsilon == pytest.approx(2 * how["epsilon"] / 120, rel=1e-6)
        assert selected[1].sensitivity == pytest.approx(min(3.0, largest), rel=1e-6)
    shares = own_settings["mean_weight"] ** np.arange(len(expected))[::-1]
    mean = np.average([chosen for chosen, *_ in expected], axis=0, weights=shares)
    assert np.abs(model - mean).max() < 1e-10


class Candidates(RowsInMemory):
    """Records the models whose losses are asked for."""

    def __init__(self, features, labels):
        super().__init__(features, labels)
        self.seen = []

    def loss_sums(self, objective, models, *, limit, batch=None):
        self.seen.append(np.array(models))
        return super().loss_sums(objective, models, limit=limit, batch=batch)


CASES = {
    "logistic": ("logistic", 1, {}),
    "weighted": ("logistic", 1, {"positive_weight": 3.0}),
    "huber_svm": ("huber_svm", 1, {}),
    "one_vs_rest": ("logistic", 3, {}),
    "huber_regression": ("huber_regression", 1, {"huber_width": 0.5}),
    "squared": ("squared", 1, {"radius": 2.0}),
}


@pytest.mark.parametrize(("case", "selection"), each_value_quick(list(CASES), agd_settings.SELECTIONS))
def test_with_a_large_epsilon_it_comes_to_the_minimum(case, selection):
    assert usually(lambda: way_left(case, 1e6, {"splits": 3000, "selection": selection}) < 0.02)
    if case == "logistic":  # little of the way is gone with little
        assert usually(lambda: way_left(case, 0.01, {"splits": 60, "selection": selection}) > 0.1)


def way_left(case, epsilon, own_settings):
    """The share of the way from the first model's objective to the least that a run leaves."""
    loss, classes, given = CASES[case]
    features, labels = some_rows(300, 4, classes=classes)
    if loss in ("huber_regression", "squared"):
        labels = np.clip(features @ np.array([0.5, -0.4, 0.3, 0.1]), -1, 1)
    rows = RowsInMemory(features, labels)
    facts = Facts(300, 4, outputs=classes, is_classifier=loss not in ("huber_regression", "squared"))
    plan = planned(facts, epsilon=epsilon, loss=loss, regularisation=0.01, own_settings=own_settings, **given)
    return left_by(plan, rows)


def left_by(plan, rows):
    """The same of a run of the plan, whose regularisation is 0.01."""
    objective, count = plan.method.objective, len(rows.all)

    def value(w):
        return objective.loss_sums(w[None], rows.all)[0] / count + 0.005 * w @ w

    best = optimize.minimize(value, np.zeros(objective.parameters), method="BFGS")
    slope = objective.gradient_sum(best.x, rows.all, clip=math.inf) / count + 0.01 * best.x
    reached = value(plan.method(rows, silent))
    assert reached > best.fun - slope @ slope / 0.02 - 1e-12  # no value of a 0.01-convex function is below that
    return (reached - best.fun) / (value(objective.initial()) - best.fun)


def test_mini_batches_come_near_the_minimum_too():
    plan = planned(Facts(2000, 3), epsilon=1e5, batch_size=500, regularisation=0.01)
    assert usually(lambda: left_by(plan, RowsInMemory(*some_rows(2000, 3))) < 0.3)


def test_a_network_is_trained_too():
    rows = RowsInMemory(*some_rows(200, 5, classes=3))
    plan = planned(Facts(200, 5, outputs=3), epsilon=1e4, network="mlp:4", own_settings={"splits": 20})
    objective = plan.method.objective

    def loss(model):
        return objective.loss_sums(model[None], rows.all)[0]

    assert usually(lambda: loss(plan.method(rows, silent)) < loss(objective.initial()))
    assert plan.details["clip_norm"] == 1.0
    assert plan.details["loss_limit"] == pytest.approx(3)


# --- rows never matter beyond their bound ---------------------------------------------------------------


LOSSES = st.one_of(
    st.builds(Logistic, st.sampled_from([0.3, 1.0, 4.0])),
    st.builds(HuberSvm, st.sampled_from([0.1, 1.0]), st.sampled_from([1.0, 4.0])),
    st.builds(HuberRegression, st.sampled_from([0.2, 1.0, 5.0])),
    st.builds(Squared, st.sampled_from([0.5, 3.0])),
)


@settings(max_examples=200)
@given(loss=LOSSES, classes=st.integers(1, 3), size=st.floats(-9, 4), length=st.floats(-18, 2))
def test_a_rows_losses_spread_within_their_bound(loss, classes, size, length):
    """Also candidates so near that only rounding tells them apart."""
    outputs = classes if loss.is_classifier else 1
    objective = Linear(loss, 5, outputs)
    features = RANDOM.normal(size=(30, 5)) * 10 ** RANDOM.uniform(-2, 2, (30, 1))
    own = RANDOM.integers(1, outputs + 1, 30) if outputs > 1 else RANDOM.choice([-1.0, 1.0], 30)
    rows = RowsInMemory(features, own).all
    direction = np.concatenate([sign * rows[0, :5] for sign in RANDOM.choice([-1, 1], outputs)])
    direction = direction / max(np.linalg.norm(direction), 1e-30)
    middle = 10**size * RANDOM.normal(size=objective.parameters)
    candidates = middle - np.outer(np.linspace(0, 10**length, 6), direction)
    losses = np.array([objective.loss_sums(candidates, row[None]) for row in rows])
    assert np.ptp(losses, axis=1).max() <= noisy_sums.spread_of(objective, candidates)


def exactly(loss, scores, labels):
    """Losses and slopes of scores in extended precision, from their definitions."""
    weights = np.where(labels > 0, loss.positive_weight, 1.0).astype(np.longdouble)
    margins, residuals = labels * scores, scores - labels
    if isinstance(loss, Logistic):
        return weights * np.logaddexp(0, -margins), -labels * weights * np.exp(-np.logaddexp(0, margins))
    if isinstance(loss, HuberSvm):
        beyond, width = 1 - margins, np.longdouble(loss.width)
        near = np.abs(beyond) <= width
        value = np.where(near, (beyond + width) ** 2 / (4 * width), np.maximum(beyond, 0))
        slope = np.where(near, (beyond + width) / (2 * width), np.where(beyond > 0, 1, 0))
        return weights * value, -labels * weights * slope
    limit = np.longdouble(loss.lipschitz)
    value = np.where(np.abs(residuals) <= limit, residuals**2 / 2, limit * (np.abs(residuals) - limit / 2))
    return value, np.clip(residuals, -limit, limit)


@settings(max_examples=200)
@given(loss=LOSSES, classes=st.integers(1, 3), size=st.floats(-9, 4), clip=st.sampled_from([0.25, 1e6]))
def test_losses_and_gradients_err_no_more_than_bounded(loss, classes, size, clip):
    """Against extended precision: what rows may err anew where their places change."""
    outputs = classes if loss.is_classifier else 1
    objective = Linear(loss, 5, outputs)
    features = RANDOM.normal(size=(20, 5)) * 10 ** RANDOM.uniform(-2, 2, (20, 1))
    own = RANDOM.integers(1, outputs + 1, 20) if outputs > 1 else RANDOM.choice([-1.0, 1.0], 20)
    rows = RowsInMemory(features, own).all
    model = 10**size * RANDOM.normal(size=objective.parameters)
    wide = rows[:, :5].astype(np.longdouble)
    signs = [np.where(own == each, 1.0, -1.0) for each in range(1, outputs + 1)] if outputs > 1 else [own]
    result = [exactly(loss, wide @ part, sign) for part, sign in zip(model.reshape(outputs, 5), signs, strict=True)]
    losses = sum(value for value, _ in result)
    computed = np.array([objective.loss_sums(model[None], row[None])[0] for row in rows])
    assert np.abs(computed - losses).max() <= noisy_sums.loss_error(objective, model[None])
    gradients = np.concatenate([slope[:, None] * wide for _, slope in result], axis=1)
    norms = np.sqrt((gradients**2).sum(axis=1))
    gradients *= np.minimum(1, clip * SHRINK / np.maximum(norms, np.longdouble(1e-300)))[:, None]
    computed = np.array([objective.gradient_sum(model, row[None], clip=clip) for row in rows])
    error = np.sqrt(((computed - gradients) ** 2).sum(axis=1)).max()
    assert error <= noisy_sums.gradient_error(objective, model, clip)


def sums_of_neighbours(objective, rows, record, other, ask):
    """The sums with one record and with another in its place."""
    return [ask(objective, RowsInMemory(*(np.vstack([rows[0], each[0]]), np.append(rows[1], each[1]))).all)
            for each in (record, other)]  # fmt: skip


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("clip", [None, 0.25])
def test_neighbours_attain_the_sensitivity_of_a_gradient_sum(outputs, clip):
    """Huber SVM at 0: every slope is 1, so that opposite records have opposite gradients of full length."""
    features, labels = some_rows(20, 3, classes=outputs)
    plan = planned(Facts(21, 3, outputs=outputs), loss="huber_svm", clip_norm=clip)
    record, objective = np.array([1.0, 0.0, 0.0]), plan.method.objective
    clip_norm = plan.details["clip_norm"]
    assert clip_norm == (1.0 if clip is None else clip)  # of all classes together

    def ask(objective, rows):
        return objective.gradient_sum(objective.initial(), rows, clip=clip_norm)

    one, other = sums_of_neighbours(objective, (features, labels), (record, 1), (-record, 1), ask)
    sensitivity = plan.method.noise(objective.initial(), 1e-4).sensitivity
    assert 0.999999 < np.linalg.norm(one - other) / sensitivity <= 1


@pytest.mark.parametrize("far", [False, True])
def test_neighbours_attain_the_sensitivity_of_a_comparison(far):
    """Two candidates: near ones are told apart by their distance at most, far ones by the clipped loss."""
    plan = planned(Facts(21, 3), loss="huber_svm")
    record, objective = np.array([1.0, 0.0, 0.0]), plan.method.objective
    ends = np.array([[40.0, 0, 0], [-40.0, 0, 0]]) * (1 if far else 0.01)
    features, labels = some_rows(20, 3)

    def ask(objective, rows):
        return objective.loss_sums(ends, rows, limit=3.0)

    one, other = sums_of_neighbours(objective, (features, labels), (record, 1), (-record, 1), ask)
    moved = abs((one[0] - one[1]) - (other[0] - other[1]))
    sensitivity = plan.method.selection(ends, np.zeros(2)).sensitivity
    assert sensitivity == pytest.approx(3.0 if far else 0.8, rel=1e-6)
    assert 0.999999 < moved / (2 * sensitivity) <= 1


def test_summation_errs_within_its_margin_and_not_by_nothing():
    values = RANDOM.random(10**5) * np.exp(RANDOM.normal(size=10**5) * 3)
    margin = noisy_sums.compared_sensitivity(1.0, noisy_sums.Summed.together(10**5)) - 1
    assert 2 * error_of_a_running_sum(values / values.max()) <= margin  # it may be 0 for some values
    assert 0 < 2 * error_of_a_running_sum(np.full(10**5, 0.1)) <= margin


def error_of_a_running_sum(values):
    running = 0.0
    for value in values.tolist():
        running += value
    return abs(running - math.fsum(values))


# --- the noisy minimum ----------------------------------------------------------------------------------


def chance_of_second(mechanism, losses):
    """P(choose(two losses) = 1): the difference of two discrete Laplace variables, in closed form."""
    grid = Fraction(mechanism.grid)
    first, second = (math.floor(Fraction(loss) / grid) for loss in losses)
    with mpmath.workdps(60):
        a = mpmath.exp(mpmath.mpf(-1) / mechanism.steps)
        weight, least = ((1 - a) / (1 + a)) ** 2, abs(second - first + (second >= first))

        def tail(k):  # P(difference ≥ k), k ≥ 0
            return weight * a**k * ((k + (1 + a * a) / (1 - a * a)) / (1 - a) + a / (1 - a) ** 2)

        return tail(least) if second >= first else 1 - tail(least + 1)


@settings(max_examples=200)
@given(
    epsilon=st.floats(-5, 1).map(lambda exponent: 10.0**exponent),
    sensitivity=st.floats(-3, 3).map(lambda exponent: 10.0**exponent),
    apart=st.floats(0, 6).map(lambda exponent: 10.0**exponent) | st.floats(-50, 50),
    offset=st.floats(0, 100),
)
def test_no_record_changes_a_noisy_minimum_beyond_epsilon(epsilon, sensitivity, apart, offset):
    """Exactly, for two candidates whose difference moves by 2s; half of it costs at most half of ε."""
    mechanism = NoisyMin(epsilon, sensitivity)
    base = [offset, offset + apart * sensitivity / epsilon]
    for moved, cost in ((2.0, 1.0), (1.0, 0.5)):
        other = [base[0], base[1] + moved * sensitivity]
        while Fraction(other[1]) - Fraction(base[1]) > Fraction(moved) * Fraction(sensitivity):
            other[1] = math.nextafter(other[1], -math.inf)  # the sum was rounded up, beyond what one record moves
        one, two = chance_of_second(mechanism, base), chance_of_second(mechanism, other)
        for law, neighbour in ((one, two), (1 - two, 1 - one)):
            assert law <= mpmath.exp(mpmath.mpf(epsilon) * cost) * neighbour


def test_the_noisy_minimum_uses_its_epsilon_up():
    mechanism = NoisyMin(1.0, 1.0)
    ratio = chance_of_second(mechanism, [0.0, 1e4]) / chance_of_second(mechanism, [0.0, 1e4 + 2])
    assert 0.999 < mpmath.log(ratio) <= 1


def test_the_noisy_minimum_follows_its_law():
    mechanism, losses = NoisyMin(1.5, 2.0), [1.0, 3.0]
    chosen = np.bincount([mechanism.choose(losses) for _ in range(20_000)], minlength=2)
    chance = float(chance_of_second(mechanism, losses))
    assert of_cells(chosen, np.array([1 - chance, chance])) > ALPHA
    for wrong in (chance * 0.85, chance * 1.15):
        assert of_cells(chosen, np.array([1 - wrong, wrong])) < ALPHA


# --- plans ----------------------------------------------------------------------------------------------


def test_what_cannot_be_planned_is_refused_with_a_remedy():
    for options, message in (
        ({"step_size": 0.1}, "step_size.*largest_step"),
        ({"epochs": 3}, r"epochs \(got 3\).*splits"),
        ({"batch_size": 101}, "batch_size = 101.*100"),
        ({"clip_norm": 0.0}, "clip_norm = 0.0 must be between"),
        ({"settings": {"splits": 10_000}, "epsilon": 1e-6}, "fewer splits"),
    ):
        whole = {"epsilon": 1.0, "delta": 1e-6, "algorithm": "dp_agd"} | options
        with pytest.raises(ValueError, match=message):
            plan(Request(**whole), Facts(100, 3))


def test_the_published_shares_give_the_papers_noise():
    """Table 1: 0.50119 is the norm of the noise on the mean gradient, for C = 3, d = 124, ε = 1, δ = 10⁻⁸.

    For replace-one neighbours it is twice that.
    """
    own_settings = PUBLISHED | {"shares": "published"}
    plan = planned(Facts(48_842, 124), epsilon=1.0, delta=1e-8, clip_norm=3.0, own_settings=own_settings)
    assert plan.details["noise_scale"] / 48_842 * math.sqrt(124) == pytest.approx(2 * 0.50119, rel=1e-5)
    even = planned(Facts(48_842, 124), epsilon=1.0, delta=1e-8, clip_norm=3.0)
    assert even.details["noise_scale"] < plan.details["noise_scale"] / 6


def test_a_plan_reports_what_it_will_do():
    explained = planned(Facts(1000, 3), batch_size=100).explain()
    assert explained["sampling_rate"] == 0.1
    assert explained["expected_passes"] == pytest.approx(2 * explained["selections_at_most"] / 10)
    assert {"noise_scale", "selection", "selection_epsilon", "clip_norm", "loss_limit", "regularisation"} <= set(
        explained
    )
    whole = planned(Facts(1000, 3), batch_size=1000).explain()
    assert whole["rho"] == rho_of(1.0, 1e-6)
    assert whole["expected_passes"] == 2 * whole["selections_at_most"]
