"""DP-BLSGD, DP-BLSGD-AC and DP-BLGD stay within their budget, and follow the paper where it is sound."""

import json
import math
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from chance import usually
from goodness import ALPHA
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as some
from memory import RowsInMemory
from pairs import others_slow
from scipy import optimize, stats

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.noisy_search import dp_blsgd
from dbdp.algorithms.families.noisy_search.line_search import angle_between, compared, threshold_of
from dbdp.algorithms.rows import silent
from dbdp.learning.compiled.arithmetic import SHRINK
from dbdp.learning.losses import loss_named
from dbdp.learning.rows.blocks import encode
from dbdp.privacy.accounting import filters
from dbdp.privacy.accounting.composition import rho_of
from dbdp.privacy.accounting.events import RenyiDpEvent, ZCDpEvent, pure_divergence
from dbdp.privacy.accounting.renyi import conversion
from dbdp.privacy.accounting.subsampling import amplified, poisson_gaussian_divergence
from dbdp.privacy.mechanisms import Gaussian
from dbdp.privacy.selection import AboveThreshold

ALGORITHMS = ("dp_blgd", "dp_blsgd", "dp_blsgd_ac")
SAMPLED = ("dp_blsgd", "dp_blsgd_ac")
SHRUNK = 1 - 2.0**-22  # the norm of the longest stored row


def planned(algorithm="dp_blsgd", *, rows=200, dimension=3, outputs=1, **request):
    counts = Request(**{"epsilon": 1.0, "delta": 1e-6, "algorithm": algorithm} | request)
    return plan(counts, Facts(rows, dimension, outputs))


def separable(rows=200, dimension=3, seed=None):
    """Rows in the unit ball whose labels mostly follow one direction."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, dimension))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    return features, np.where(features[:, 0] + 0.3 * random.normal(size=rows) > 0, 1.0, -1.0)


# --- spies ------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a run did, in order: ("spend", charge), ("gradient", noise, clip), ("search", mechanism, limit)."""

    log: list
    batches: list

    def of(self, kind):
        return [entry[1:] for entry in self.log if entry[0] == kind]


@contextmanager
def watched(release=None, first_above=None):
    """Record spending and mechanisms; `release(noise, exact)` and `first_above(mechanism, values)` replace them."""
    seen, spend = Seen([], []), filters.Filter.spend
    released, result = Gaussian.release, AboveThreshold.first_above

    def spy_spend(self, charge):
        spend(self, charge)
        seen.log.append(("spend", charge))

    def spy_release(self, exact):
        seen.log.append(("gradient", self))
        return released(self, exact) if release is None else release(self, exact)

    def spy_first(self, values, threshold):
        assert threshold == 0
        seen.log.append(("search", self))
        return result(self, values, threshold) if first_above is None else first_above(self, list(values))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters.Filter, "spend", spy_spend)
        patch.setattr(Gaussian, "release", spy_release)
        patch.setattr(AboveThreshold, "first_above", spy_first)
        yield seen


class Watched(RowsInMemory):
    """Rows that write down who reads which batch."""

    def __init__(self, features, labels, seen=None, **options):
        super().__init__(features, labels, **options)
        self.seen, self.drawn, self.read, self.limits = seen, 0, [], []

    def draw(self, samples, most):
        self.drawn += 1
        self._note("draw")
        return super().draw(samples, most)

    def gradient_sum(self, objective, model, *, clip, batch=None):
        self._read("gradient rows", clip, batch)
        return super().gradient_sum(objective, model, clip=clip, batch=batch)

    def loss_sums(self, objective, models, *, limit=math.inf, batch=None):
        self._read("loss rows", limit, batch)
        return super().loss_sums(objective, models, limit=limit, batch=batch)

    def _read(self, kind, bound, batch):
        self.read.append((self.drawn, batch))
        self.limits.append((kind, bound))
        self._note(kind)

    def _note(self, kind):
        if self.seen is not None:
            self.seen.log.append((kind,))


# --- what is spent ----------------------------------------------------------------------------------------


def poisson_search_epsilon(epsilon, probability):
    up, down = ((1 - probability) + probability * math.exp(sign * epsilon / 2) for sign in (1, -1))
    return math.log(up / down)


def charges(plan, seen):
    """The cost of every access made, from the mechanisms that were used, not from what the run says."""
    if plan.details["sampling"] == "all":
        gradients = [0.5 * (noise.sensitivity / noise.noise_scale) ** 2 for (noise,) in seen.of("gradient")]
        return gradients, [search.epsilon**2 / 2 for (search,) in seen.of("search")]
    q, order = plan.details["sampling_rate"], plan.details["renyi_order"]
    gradients = [
        poisson_gaussian_divergence(q, noise.noise_scale / noise.sensitivity, order) for (noise,) in seen.of("gradient")
    ]
    searches = [pure_divergence(poisson_search_epsilon(each.epsilon, q), order) for (each,) in seen.of("search")]
    return gradients, searches


def allowance(plan, request):
    if plan.details["sampling"] == "all":
        return rho_of(request.epsilon, request.delta)
    return request.epsilon - conversion(plan.details["renyi_order"], request.delta)


def check_spending(plan, seen, rows):
    """No charge beyond the allowance; each access paid just before it is made; sensitivities and caps are kept."""
    gradients, searches = charges(plan, seen)
    assert sum(gradients) + sum(searches) <= allowance(plan, plan.request)
    order = [entry[0] for entry in seen.log if entry[0] != "draw"]
    paid = {"gradient": ["spend", "gradient rows", "gradient"], "search": ["spend", "loss rows", "search"]}
    kinds = [kind for kind in order if kind in paid]
    assert order == [step for kind in kinds for step in paid[kind]]
    assert "draw" not in [
        before[0] for before, after in zip(seen.log, seen.log[1:], strict=False) if after[0] == "spend"
    ]
    assert len(searches) <= plan.details["steps"]
    worth = 2 if plan.details["sampling"] == "all" else 1
    clips = [bound for kind, bound in rows.limits if kind == "gradient rows"]
    assert all(noise.sensitivity >= worth * clip for (noise,), clip in zip(seen.of("gradient"), clips, strict=True))
    assert all(search.sensitivity == 1 for (search,) in seen.of("search"))


REQUESTS = some.fixed_dictionaries(
    {
        "epsilon": some.floats(-2, 2).map(lambda power: 10**power),
        "delta": some.floats(-12, -2).map(lambda power: 10**power),
        "settings": some.fixed_dictionaries(
            {
                "planned_steps": some.integers(1, 25),
                "search_share": some.floats(0.05, 0.95),
                "growth": some.floats(0.01, 5.0),
                "memory": some.integers(1, 4),
                "shrink": some.floats(0.1, 0.9),
                "candidates": some.integers(1, 12),
            }
        ),
    }
)


@budget(max_examples=40)
@given(some.sampled_from(ALGORITHMS), REQUESTS, some.data())
def test_no_adversary_overdraws_the_filter(algorithm, request, data):
    """An adversary that decides every outcome never overdraws the filter."""
    rows = data.draw(some.integers(1, 40))
    sampling = {"batch_size": data.draw(some.integers(1, rows))} if algorithm in SAMPLED else {}
    plan = planned(algorithm, rows=rows, dimension=2, **request, **sampling)
    finds = data.draw(some.lists(some.one_of(some.none(), some.integers(0, 11)), min_size=1, max_size=30))
    turns = data.draw(some.lists(some.floats(-math.pi, math.pi), min_size=1, max_size=30))
    counts = Counter()

    def turned(noise, exact):
        counts["gradient"] += 1
        angle = turns[counts["gradient"] % len(turns)]
        return 3.0 * rows * np.array([math.cos(angle), math.sin(angle)])

    def result(mechanism, values):
        counts["search"] += 1
        choice = finds[counts["search"] % len(finds)]
        return None if choice is None else choice % len(values)

    with watched(turned, result) as seen:
        access = Watched(*separable(rows, 2), seen, portion=3)
        assert np.isfinite(plan.method(access, silent)).all()
    assert counts["search"] >= 1
    check_spending(plan, seen, access)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_a_run_on_rows_spends_its_budget_and_no_more(algorithm, epsilon):
    plan = planned(algorithm, epsilon=epsilon, settings={"planned_steps": 20})
    with watched() as seen:
        rows = Watched(*separable(), seen)
        plan.method(rows, silent)
    check_spending(plan, seen, rows)
    left = allowance(plan, plan.request) - sum(map(sum, charges(plan, seen)))
    gradients, searches = charges(plan, seen)
    assert left < max(gradients) * 6 + max(searches) * 6 or len(searches) == plan.details["steps"]


def divergence_by_quadrature(q, multiplier, order):
    """D_α of (1-q)N(0, 1) + qN(μ, 1) from the same with -μ, both ways at once by symmetry."""
    mean = 1 / multiplier
    x = np.linspace(-15 - 3 * mean, 15 + 2 * order * mean, 200_001)
    density = np.array([stats.norm.logpdf(x), stats.norm.logpdf(x, mean), stats.norm.logpdf(x, -mean)])
    ahead = np.logaddexp(math.log1p(-q) + density[0], math.log(q) + density[1])
    behind = np.logaddexp(math.log1p(-q) + density[0], math.log(q) + density[2])
    return math.log(np.trapezoid(np.exp(order * ahead + (1 - order) * behind), x)) / (order - 1)


@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_the_first_budgets_last_for_the_planned_steps(epsilon):
    explained = planned(epsilon=epsilon, rows=1000).details
    search = explained["threshold_epsilon"] + 2 * explained["query_epsilon"]
    one = divergence_by_quadrature(0.1, explained["noise_multiplier"], explained["renyi_order"])
    one += pure_divergence(poisson_search_epsilon(search, 0.1), explained["renyi_order"])
    limit = epsilon - conversion(explained["renyi_order"], 1e-6)
    assert 50 * one == pytest.approx(limit, rel=1e-5)
    assert explained["expected_passes"] == 10


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_no_other_order_leaves_more_noise_out(epsilon):
    explained = planned(epsilon=epsilon).details

    def left(order):  # of ε, if the searches were gradients too
        steps = 100 * poisson_gaussian_divergence(0.1, explained["noise_multiplier"], order)
        return epsilon - conversion(order, 1e-6) - steps

    others = [left(1 + factor * (explained["renyi_order"] - 1)) for factor in np.geomspace(0.2, 5, 30)]
    assert max(others) - left(explained["renyi_order"]) < 0.003 * epsilon
    assert min(others) < -0.1 * epsilon  # it matters


@pytest.mark.parametrize("turn", [-1.0, 1.0], ids=["the gradient is blamed", "the search is blamed"])
@pytest.mark.parametrize("algorithm", SAMPLED)
def test_a_budget_whose_growth_would_end_the_run_stays(algorithm, turn):
    signs, finds = iter([1.0, turn] * 100), iter([None, 0] * 100)
    with watched(lambda noise, exact: np.full(3, 9.0) * next(signs), lambda *_: next(finds)) as seen:
        plan = planned(algorithm, settings={"planned_steps": 20, "growth": 100.0})
        plan.method(RowsInMemory(*separable()), silent)
    assert len(seen.of("search")) == 20
    assert len({search.epsilon for (search,) in seen.of("search")}) == 1
    assert len({noise.noise_scale for (noise,) in seen.of("gradient")}) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_more_searches_are_made_than_the_plan_reports(algorithm):
    """Even where the filter would have more to give."""
    run = planned(algorithm).method
    generous = replace(run, searches=4, accounting=replace(run.accounting, limit=1e9))
    with watched() as seen:
        generous(RowsInMemory(*separable()), silent)
    assert len(seen.of("search")) == 4


@pytest.mark.parametrize("algorithm", SAMPLED)
def test_no_two_accesses_read_the_same_mini_batch(algorithm):
    rows = Watched(*separable(), portion=7)
    planned(algorithm).method(rows, silent)
    assert len(rows.read) > 20
    assert len(set(rows.read)) == len(rows.read)
    assert all(batch is not None for _, batch in rows.read)
    assert rows.drawn == -(-len(rows.read) // 7)  # drawn again only when all were read


def test_full_batches_are_packed_once_and_read_completely():
    rows = Watched(*separable())
    planned("dp_blgd").method(rows, silent)
    assert rows.drawn == 0
    assert {batch for _, batch in rows.read} == {None}


def test_a_mini_batch_is_divided_by_what_was_expected_of_it():
    """An access with no rows at all moves the model by the noise over qn alone."""
    moved = []
    with watched(lambda noise, exact: exact + 1.0, lambda mechanism, values: 0):
        plan = planned(rows=100, batch_size=20, regularisation=0.0, step_size=1.0, settings={"planned_steps": 3})
        moved = plan.method(RowsInMemory(np.zeros((100, 3)), np.zeros(100)), silent)
    assert moved == pytest.approx(np.full(3, -3 * 1 / 20), rel=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_released_decides_everything(algorithm):
    """With the same noisy answers, other rows lead to the same accesses, budgets and model."""
    runs = []
    for seed in (1, 1, 2):
        random = np.random.default_rng(seed)

        def release(noise, exact, random=random):
            return 40 * random.normal(size=3)

        def find(mechanism, values, random=random):
            return None if random.random() < 0.5 else int(random.integers(len(values)))

        with watched(release, find) as seen:
            model = planned(algorithm).method(Watched(*separable(), seen), silent)
        runs.append((model.tolist(), seen.log))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


# --- sensitivities ------------------------------------------------------------------------------------------


def packed(*rows):
    """Packed rows from (vector, label), the vectors of the longest stored norm."""
    return encode(
        np.array([np.asarray(vector) * SHRUNK for vector, _ in rows], np.float32), np.array([y for _, y in rows])
    )


def values_of(plan, models, rows):
    """The normalised values of a search over these rows."""
    run, models = plan.method, np.array(models, float)
    sums = run.objective.loss_sums(models, rows, limit=run.loss_limit)
    return np.array(compared(run, models, np.ones(len(models) - 1), sums, run.loss_limit))


SEARCHES = {
    "a short step: the slope 1 decides": ([0.0, 0.0], [0.4, 0.0]),
    "a long step: the clip of 3 decides": ([-2.5, 0.0], [2.5, 0.0]),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("models", SEARCHES.values(), ids=SEARCHES)
def test_a_turned_record_attains_a_searchs_sensitivity(algorithm, models):
    plan = planned(algorithm, loss="huber_svm", rows=5, dimension=2)
    others = [([0.6, 0.8], 1.0), ([0.0, 0.5], -1.0)]
    one, other, none = (
        values_of(plan, models, packed(*others, *extra)) for extra in ([([1.0, 0.0], 1.0)], [([1.0, 0.0], -1.0)], [])
    )
    assert 1 - 1e-5 < (one - other)[0] <= 1
    assert 0.5 - 1e-5 < (one - none)[0] <= 0.5
    assert 0.5 - 1e-5 < (none - other)[0] <= 0.5


@cache
def small(loss, positive_weight):
    return planned(loss=loss, rows=6, dimension=2, positive_weight=positive_weight)


@budget(max_examples=30)
@given(some.data())
def test_no_record_moves_a_value_by_more_than_its_sensitivity(data):
    plan = small(data.draw(some.sampled_from(["logistic", "huber_svm"])), data.draw(some.sampled_from([1.0, 3.0])))
    numbers = some.floats(-20, 20)
    models = np.array(data.draw(some.lists(some.tuples(numbers, numbers), min_size=2, max_size=5)))
    unit = some.tuples(some.floats(-0.7, 0.7), some.floats(-0.7, 0.7))
    rows = [(data.draw(unit), data.draw(some.sampled_from([-1.0, 1.0]))) for _ in range(4)]
    whole, less, changed = (
        values_of(plan, models, packed(*part)) for part in (rows[:3], rows[:2], [*rows[:2], rows[3]])
    )
    assert np.abs(whole - changed).max() <= 1
    assert max(np.abs(whole - less).max(), np.abs(changed - less).max()) <= 0.5


@pytest.mark.parametrize(("algorithm", "worth"), [("dp_blsgd", 1), ("dp_blsgd_ac", 1), ("dp_blgd", 2)])
def test_a_turned_record_attains_a_gradients_sensitivity(algorithm, worth):
    plan = planned(algorithm, loss="huber_svm", rows=3, dimension=2)
    run = plan.method
    noise = run.noise(np.zeros(2), run.clip, run.accounting.multiplier)
    here, there, away = (
        run.objective.gradient_sum(np.zeros(2), packed(([0.6, 0.8], 1.0), *extra), clip=run.clip)
        for extra in ([([1.0, 0.0], 1.0)], [([1.0, 0.0], -1.0)], [])
    )
    moved = np.linalg.norm(here - there) if worth == 2 else np.linalg.norm(here - away)
    assert worth * (1 - 1e-6) < moved <= noise.sensitivity < worth * (1 + 1e-6)
    assert noise.noise_scale >= run.accounting.multiplier * noise.sensitivity


def test_half_a_searchs_sensitivity_is_on_its_grid():
    for epsilon in (1e-6, 0.01, 0.3, 1.0, 5.0, 1000.0):
        steps = 0.5 / threshold_of(epsilon).grid
        assert steps == int(steps) >= 1
        assert threshold_of(epsilon).epsilon == epsilon


def last_found(low, last, count, epsilon):
    """P(the search finds the last value) of `count` low ones and that, with continuous Laplace noise, exactly."""
    threshold, query = stats.laplace(scale=2 / epsilon), stats.laplace(scale=4 / epsilon)
    levels = np.linspace(-20 / epsilon, 120 / epsilon, 200_001)
    missed = count * query.logcdf(levels - low)  # a low value is below the level
    return np.trapezoid(threshold.pdf(levels) * np.exp(missed) * query.sf(levels - last), levels)


def worst_ratio(epsilon, q):
    """The largest log-ratio found between mixtures over the mini-batch, with one record and with another."""
    worst = 0.0
    for count in (0, 10, 10**4, 10**8):
        for shift in (0.5, -0.5):
            absent, one, other = (last_found(-sign * shift, sign * shift, count, epsilon) for sign in (0, 1, -1))
            mixed = math.log((1 - q) * absent + q * one) - math.log((1 - q) * absent + q * other)
            worst = max(worst, abs(mixed))
    return worst


@pytest.mark.parametrize("epsilon", others_slow([0.2, 1.0, 3.0], 1.0))
@pytest.mark.parametrize("q", [0.01, 0.3, 0.9, 1.0])
def test_a_poisson_search_is_as_private_as_charged(epsilon, q):
    charged, worst = dp_blsgd.sampled_epsilon(epsilon, q), worst_ratio(epsilon, q)
    assert 0.95 * charged < worst <= charged * (1 + 1e-6)  # nearly attained: a smaller charge would be seen
    assert charged <= amplified(epsilon, q) * (1 + 1e-9)


@given(some.floats(1e-6, 1e5), some.floats(1e-6, 1.0))
def test_a_searchs_charged_epsilon_is_at_most_its_own(epsilon, q):
    charged = dp_blsgd.sampled_epsilon(epsilon, q)
    assert 0 < charged <= epsilon * (1 + 1e-9)
    assert charged <= amplified(epsilon, q) * (1 + 1e-9)


def turned(plan, runs):
    """Where whole runs end along the record in which two neighbours differ: (2, runs)."""
    ends = []
    for label in (1.0, -1.0):
        rows = RowsInMemory(np.array([[0.0, 0.1], [1.0, 0.0]]), np.array([1.0, label]))
        ends.append([plan.method(rows, silent)[0] for _ in range(runs)])
    return np.array(ends)


def least_delta(ends, epsilon):
    """A lower bound on P(end > t) - e^ε P'(end > t) over some t, both ways; false with probability ALPHA."""
    runs, result = ends.shape[1], []
    thresholds = np.quantile([ends, -ends], np.linspace(0.02, 0.98, 25))
    share = ALPHA / (4 * len(thresholds))
    for one, other in (ends, -ends, ends[::-1], -ends[::-1]):
        for threshold in thresholds:
            hits, others = np.sum(one > threshold), np.sum(other > threshold)
            low = stats.beta.ppf(share / 2, hits, runs - hits + 1) if hits else 0.0
            high = stats.beta.ppf(1 - share / 2, others + 1, runs - others) if others < runs else 1.0
            result.append(low - math.exp(epsilon) * high)
    return max(result)


@pytest.mark.statistical
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_runs_do_not_tell_neighbours_beyond_the_guarantee(algorithm):
    """Runs do not distinguish neighbours beyond the guarantee and with less noise they do."""
    sampling = {"batch_size": 1} if algorithm in SAMPLED else {}
    plan = planned(
        algorithm,
        rows=2,
        dimension=2,
        epsilon=1.0,
        delta=0.05,
        loss="huber_svm",
        settings={"planned_steps": 2},
        **sampling,
    )
    assert least_delta(turned(plan, 1500), 1.0) <= 0.05
    quiet = Gaussian.release
    with watched(lambda noise, exact: quiet(replace(noise, steps=max(1, noise.steps // 16)), exact)):
        assert least_delta(turned(plan, 1500), 1.0) > 0.05


# --- against the paper, step by step --------------------------------------------------------------------------


class Script:
    """Mini-batches and noise laid down beforehand, for the library and for the reference."""

    def __init__(self, features, labels, batch_size, seed):
        random = np.random.default_rng(seed)
        self.all = RowsInMemory(features, labels).all
        rate = 1.0 if batch_size is None else batch_size / len(labels)
        self.batches = [self.all[random.random(len(self.all)) < rate] for _ in range(400)]
        self.normal = random.normal(size=(400, features.shape[1]))
        self.thresholds, self.queries = random.laplace(size=400), random.laplace(size=(400, 40))
        self.scales, self.models, self.searches = [], [], 0

    def release(self, noise, exact):
        self.scales.append(noise.noise_scale)
        return exact + noise.noise_scale * self.normal[len(self.scales) - 1]

    def first_above(self, mechanism, values):
        self.searches += 1
        return self.first(values, mechanism.threshold_epsilon, mechanism.query_epsilon, self.searches - 1)

    def first(self, values, threshold_epsilon, query_epsilon, number):
        noisy = np.array(values) + self.queries[number][: len(values)] / query_epsilon
        above = np.flatnonzero(noisy >= self.thresholds[number] / threshold_epsilon)
        return int(above[0]) if len(above) else None


class Scripted:
    """An access to the script's mini-batches, in turn."""

    def __init__(self, script, portion=9):
        self.script, self.portion, self.next, self.first = script, portion, 0, 0

    def pack(self):
        pass

    def draw(self, samples, most):
        self.first = self.next
        return min(most, self.portion)

    def gradient_sum(self, objective, model, *, clip, batch=None):
        self.script.models.append(model.copy())
        return objective.gradient_sum(model, self._rows(batch), clip=clip)

    def loss_sums(self, objective, models, *, limit, batch=None):
        return objective.loss_sums(models, self._rows(batch), limit=limit)

    def _rows(self, batch):
        assert batch is None or self.first + batch == self.next
        self.next += 1
        return self.script.batches[self.next - 1]


class Reference:
    """The three algorithms written from the paper, for the logistic loss, with the repairs of privacy.md §9."""

    def __init__(self, script, plan):
        self.script, self.explained, self.plan = script, plan.details, plan
        self.own_settings, self.happened = plan.details, Counter()
        self.size, self.lam = plan.details["batch_size"], plan.details["regularisation"]
        self.full = plan.details["sampling"] == "all"
        self.left = allowance(plan, plan.request)
        self.multiplier = plan.details["noise_multiplier"]
        self.epsilon = plan.details["threshold_epsilon"] * 2
        self.clip, self.limit = plan.details["clip_norm"], plan.details["loss_limit"]
        self.step, self.accepted = plan.details["step_size"], []
        self.gradients = self.searches = self.accesses = 0
        self.visited = []

    def cost(self, multiplier=None, epsilon=None):
        """Of a gradient and of a search, where they are given."""
        if self.full:
            return (0 if multiplier is None else 0.5 / multiplier**2) + (0 if epsilon is None else epsilon**2 / 2)
        q, order = self.explained["sampling_rate"], self.explained["renyi_order"]
        whole = 0 if multiplier is None else poisson_gaussian_divergence(q, multiplier, order)
        return whole + (0 if epsilon is None else pure_divergence(poisson_search_epsilon(epsilon, q), order))

    def affords(self, multiplier, epsilon):
        return self.cost(multiplier, epsilon) <= self.left and self.searches < self.explained["steps"]

    def rows(self):
        self.accesses += 1
        batch = self.script.batches[self.accesses - 1].astype(float)
        return batch[:, -1:] * batch[:, : self.script.all.shape[1] - 1][:, : len(self.w)]

    def gradient(self, multiplier):
        """(g, ρ): line 5 and 6 of Algorithm 2, over qn."""
        self.left -= self.cost(multiplier)
        self.visited.append(self.w.copy())
        signed = self.rows()
        each = -signed / (1 + np.exp(signed @ self.w))[:, None]
        each /= np.maximum(1, np.linalg.norm(each, axis=1, keepdims=True) / (self.clip * SHRINK))
        scale = self.script.scales[self.gradients]
        assert scale == pytest.approx(multiplier * self.clip * (2 if self.full else 1), rel=1e-6)
        noisy = each.sum(axis=0) + scale * self.script.normal[self.gradients]
        self.gradients += 1
        return noisy / self.size + self.lam * self.w, scale**-2

    def losses(self, signed, w):
        regular = self.size * self.lam / 2 * (w @ w)
        return np.minimum(np.log1p(np.exp(-signed @ w)), self.limit).sum() + regular

    def search(self, g):
        """Algorithm 1, every query over its own sensitivity 2 min(C_obj, L‖ηg‖)."""
        self.left -= self.cost(None, self.epsilon)
        self.searches += 1
        signed, values = self.rows(), []
        steps = [self.step * self.own_settings["shrink"] ** k for k in range(self.own_settings["candidates"])]
        for eta in steps:
            fall = self.losses(signed, self.w) - self.losses(signed, self.w - eta * g)
            query = fall - self.own_settings["armijo"] * eta * (g @ g) * self.size
            values.append(query / (2 * min(self.limit, eta * np.linalg.norm(g))))
        result = self.script.first(values, self.epsilon / 2, self.epsilon / 4, self.searches - 1)
        return None if result is None else steps[result]

    def run(self):
        """Algorithm 2, or DP-BLGD with DP-AGD's budgets."""
        self.w, theta, before = np.zeros(self.script.normal.shape[1]), math.pi / 2, None
        while self.affords(self.multiplier, self.epsilon):
            shrunk = False
            g, rho = self.gradient(self.multiplier)
            eta = self.search(g)
            while eta is None:
                again = self.multiplier / (math.sqrt(self.own_settings["growth"]) if self.full else 1)
                if not self.affords(again, self.epsilon):
                    return self.w
                second, weight = self.gradient(again)
                shrunk = self.agd() if self.full else self.cheb(angle(g, second), theta, shrunk)
                g, rho = (rho * g + weight * second) / (rho + weight), rho + weight
                eta = self.search(g)
            self.w = self.w - eta * g
            self.remember(eta)
            if before is not None and not self.full:
                theta = self.own_settings["angle_decay"] * theta + (1 - self.own_settings["angle_decay"]) * angle(
                    g, before
                )
            before = g
        return self.w

    def cheb(self, between, theta, shrunk):
        """Algorithm 3, and line (9) for DP-BLSGD-AC."""
        more = 1 + self.own_settings["growth"]
        if between > math.pi / 2 or between > self.own_settings["widest_angle"] * theta:
            if not self.affords(self.multiplier / math.sqrt(more), self.epsilon):
                self.happened["refused"] += 1
                return shrunk
            self.happened["gradient"] += 1
            self.multiplier /= math.sqrt(more)
            if not shrunk and "clip_decay" in self.own_settings:
                self.happened["clip"] += 1
                self.clip *= 1 - self.own_settings["clip_decay"]
                self.limit *= 1 - self.own_settings["clip_decay"]
            return True
        if between < self.own_settings["narrowest_angle"] * theta and self.affords(
            self.multiplier, self.epsilon * more
        ):
            self.happened["search"] += 1
            self.epsilon *= more
        return shrunk

    def agd(self):
        larger = self.multiplier / math.sqrt(1 + self.own_settings["growth"])
        if self.affords(larger, self.epsilon):
            self.happened["gradient"] += 1
            self.multiplier = larger
        return False

    def remember(self, eta):
        self.accepted.append(eta)
        if len(self.accepted) == self.own_settings["memory"]:
            self.step, before = min(self.own_settings["restart"] * max(self.accepted), self.step), self.step
            self.happened["nearer"] += self.step < before
            self.accepted = []


def angle(one, other):
    return math.acos(np.clip(one @ other / np.linalg.norm(one) / np.linalg.norm(other), -1, 1))


EXPECTED = {
    "dp_blsgd": {"gradient", "search", "nearer", "refused"},
    "dp_blsgd_ac": {"gradient", "search", "nearer", "refused", "clip"},
    "dp_blgd": {"gradient", "nearer"},
}


@pytest.mark.parametrize("algorithm", others_slow(ALGORITHMS, "dp_blsgd_ac"))
def test_with_the_same_noise_every_iterate_is_that_of_the_paper(algorithm):
    happened, batch_size = Counter(), {"batch_size": 60} if algorithm in SAMPLED else {}
    for seed in range(12):
        features, labels = separable(240, 4, seed)
        settings = {"planned_steps": 40, "memory": 3, "candidates": [2, 2, 5][seed % 3], "shrink": 0.6}
        settings |= {"growth": [0.3, 4.0][seed % 2]}
        plan = planned(
            algorithm,
            rows=240,
            dimension=4,
            epsilon=[0.5, 0.5, 5.0, 30.0][seed % 4],
            clip_norm=0.5,
            settings=settings,
            **batch_size,
        )
        script = Script(features, labels, batch_size.get("batch_size"), seed)
        with watched(script.release, script.first_above):
            model = plan.method(Scripted(script), silent)
        reference = Reference(script, plan)
        expected = reference.run()
        assert len(script.models) == len(reference.visited)
        for ours, theirs in zip(script.models, reference.visited, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-10, abs=1e-10)
        assert model == pytest.approx(expected, rel=1e-10, abs=1e-10)
        happened += reference.happened
    assert set(happened) == EXPECTED[algorithm]  # every rule was followed at least once


def test_angles_do_not_fail_on_parallel_or_empty_directions():
    one = np.array([0.1, 0.2, 0.3])
    assert angle_between(one, one) == pytest.approx(0, abs=1e-7)
    assert angle_between(one, -3 * one) == pytest.approx(math.pi)
    assert angle_between(one, np.zeros(3)) == math.pi / 2


# --- what is learnt -------------------------------------------------------------------------------------------


def objective(features, labels, regularisation, w):
    return loss_named("logistic").value(features @ w, labels).mean() + regularisation / 2 * w @ w


@pytest.mark.parametrize("algorithm", SAMPLED)
def test_mini_batches_come_near_the_minimiser(algorithm):
    features, labels = separable(4000)
    best = optimize.minimize(lambda w: objective(features, labels, 0.01, w), np.zeros(3)).fun
    plan = planned(algorithm, rows=4000, epsilon=1000.0, regularisation=0.01)
    assert best + 0.02 < objective(features, labels, 0.01, np.zeros(3))

    def reached():
        return objective(features, labels, 0.01, plan.method(RowsInMemory(features, labels), silent))

    assert usually(lambda: reached() < best + 0.02)


def test_classes_are_learnt_one_against_the_rest():
    random = np.random.default_rng()
    labels = random.integers(1, 4, 600)
    features = np.eye(3)[labels - 1] * 0.9 + 0.05 * random.normal(size=(600, 3))
    for algorithm in ALGORITHMS:
        plan = planned(algorithm, rows=600, outputs=3, epsilon=200.0)
        assert plan.details["parameters"] == 9
        assert plan.details["clip_norm"] == 1  # of all classes together

        def share_right(plan=plan):
            model = plan.method(RowsInMemory(features, labels), silent).reshape(3, 3)
            return np.mean(np.argmax(features @ model.T, axis=1) + 1 == labels)

        assert usually(lambda share_right=share_right: share_right() > 0.95)


def test_the_model_stays_within_its_ball():
    plan = planned(epsilon=50.0, radius=0.5)

    def length():
        length = np.linalg.norm(plan.method(RowsInMemory(*separable()), silent))
        assert length <= 0.5 * (1 + 1e-12)
        return length

    assert usually(lambda: length() > 0.4)
    assert plan.details["radius"] == 0.5


def test_clips_shrink_once_a_step_and_never_vanish():
    nothing = iter([None, None, 0] * 1000)
    random = np.random.default_rng()
    with watched(
        lambda noise, exact: random.normal(size=3) * (-1) ** random.integers(2), lambda *_: next(nothing)
    ) as seen:
        rows = Watched(*separable(), seen)
        plan = planned(
            "dp_blsgd_ac", epsilon=100.0, settings={"planned_steps": 3000, "clip_decay": 0.9, "growth": 0.01}
        )
        plan.method(rows, silent)
    clips = [bound for kind, bound in rows.limits if kind == "gradient rows"]
    shrunk = {round(math.log10(clip), 6) for clip in clips}
    assert shrunk == {0.0, -1.0, -2.0, -3.0}
    limits = [bound for kind, bound in rows.limits if kind == "loss rows"]
    assert min(limits) == pytest.approx(3e-3)
    scaled = [noise.noise_scale / noise.sensitivity for (noise,) in seen.of("gradient")]
    assert max(scaled) / min(scaled) < 20  # the noise fell with what is clipped


# --- odd data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-4, 1e5])
def test_empty_mini_batches_are_batches_like_others(epsilon):
    rows = Watched(*separable(400), portion=5)
    model = planned(rows=400, batch_size=1, epsilon=epsilon).method(rows, silent)
    assert np.isfinite(model).all()
    assert len(rows.read) > 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_row_is_enough(algorithm):
    for rows in (1, 2):
        model = planned(algorithm, rows=rows).method(RowsInMemory(np.eye(3)[:rows], np.ones(rows)), silent)
        assert np.isfinite(model).all()


def test_a_network_is_trained_by_the_same_descent():
    plan = planned(
        "dp_blsgd", rows=200, dimension=3, outputs=2, epsilon=50.0, network="mlp:4", settings={"planned_steps": 5}
    )
    features, labels = separable()
    model = plan.method(RowsInMemory(features, np.where(labels > 0, 2.0, 1.0)), silent)
    assert model.shape == (plan.details["parameters"],)
    assert (plan.details["step_size"], plan.details["armijo"]) == (8, 0.001)


def test_a_network_has_the_papers_conditions_by_default():
    own = {"armijo": 0.3, "shrink": 0.5}
    given = planned(outputs=2, network="mlp:4", step_size=2.0, settings=own).details
    assert [given[name] for name in ("armijo", "shrink", "step_size")] == [0.3, 0.5, 2]
    assert planned().details["armijo"] == 0.5


# --- plans --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_plan_reports_its_public_facts(algorithm):
    plan = planned(algorithm)
    explained = plan.explain()
    assert json.loads(json.dumps(explained)) == explained
    names = {"batch_size", "noise_multiplier", "noise_scale", "threshold_epsilon", "query_epsilon", "steps"}
    assert names | {"expected_passes", "step_size", "clip_norm", "loss_limit", "steps", "growth"} <= set(explained)
    assert ("renyi_order" in explained) == (explained["sampling_rate"] < 1) == (algorithm in SAMPLED)
    assert ("clip_decay" in explained) == (algorithm == "dp_blsgd_ac")
    assert (plan.guarantee.epsilon, plan.guarantee.delta) == (1.0, 1e-6)


def test_a_ledger_is_charged_what_each_run_satisfies():
    run = planned()
    event = run.guarantee.event.event
    assert event == RenyiDpEvent(run.details["renyi_order"], run.method.accounting.limit)
    assert planned("dp_blgd").guarantee.event == ZCDpEvent(rho_of(1.0, 1e-6))


REFUSED = {
    "batch": {"batch_size": 201},
    "step_size": {"step_size": 1e7},
    "clip_norm": {"clip_norm": 0.0},
    "shrink^candidates": {"settings": {"shrink": 0.1, "candidates": 40}},
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_cannot_be_planned_is_refused_by_name(algorithm):
    for named, request_ in REFUSED.items():
        with pytest.raises(ValueError) as refused:
            planned(algorithm, **request_)
        assert named in str(refused.value)


def test_a_promise_too_small_to_keep_is_refused_with_a_remedy():
    for algorithm in ALGORITHMS:
        with pytest.raises(ValueError, match="larger epsilon"):
            planned(algorithm, epsilon=1e-9, delta=1e-12)
