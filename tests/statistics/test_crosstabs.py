"""Tables and quantiles without a database: bounds are attained, margins agree, intervals cover."""

import itertools
import math

import numpy as np
import pytest
from chance import ALARM
from scipy.stats import binom

from dbdp.learning.rows.features import ASINH, LINEAR, Numeric
from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent, SelfComposedDpEvent
from dbdp.statistics import prefix_sums, quantile_figures, table_figures
from dbdp.statistics.coded_columns import EVERY, FIRST, NULL, CategoryCode, NumberCode
from dbdp.statistics.crosstabs import Axis, TablePlan, measured_columns
from dbdp.statistics.quantile_plan import QuantilesPlan
from dbdp.statistics.stepped_noise import Population
from dbdp.statistics.unit_sums import STEPS

AGE = NumberCode.of(Numeric("age", 20.0, 80.0), "integer")
COST = NumberCode.of(Numeric("cost", 0.0, 1200.0), "double precision")
DECADE = Axis(NumberCode.of(Numeric("age", 20.0, 80.0, bins=3), "integer", 5))
WARD, SEX = Axis(CategoryCode("ward", ("A", "B", "C"))), Axis(CategoryCode("sex", ("f", "m")))
MANY = Population(10**6)


def plan_of(*axes, measures=(), epsilon=1.0, delta=1e-6, margins=False, population=MANY):
    return TablePlan(epsilon, delta, axes, measures, margins, population)


def released(plan, rows):
    """The exact coordinates of rows, in units of 1: for each axis a code, for each measure a number or None."""
    sums = plan.sums()
    codes, positions = np.zeros((len(rows), len(plan.codes)), np.int64), np.zeros((len(rows), len(plan.codes)))
    for slot, row in enumerate(rows):
        for place, (code, value) in enumerate(zip(plan.codes, row or [], strict=row is not None)):
            if isinstance(code, NumberCode) and place >= len(plan.axes):
                number = np.array([np.nan if value is None else value], np.float64)
                codes[slot, place], positions[slot, place] = code.coded(number)[0], code.positions(number)[0]
            else:
                codes[slot, place] = value
    sums.add(codes, positions)
    return plan.coordinates(sums) / plan.step


def norms(plan, one, other):
    """How far two units are apart, as a fraction of the L1 and of the L2 distance that the noise covers."""
    change = released(plan, one) - released(plan, other)
    return np.abs(change).sum() / plan.groups, np.linalg.norm(change) / math.sqrt(plan.groups)


PLANS = {
    "counts": plan_of(WARD, SEX),
    "counts with margins": plan_of(WARD, SEX, margins=True),
    "a mean": plan_of(WARD, measures=(AGE,)),
    "two means with margins": plan_of(WARD, SEX, measures=(AGE, COST), margins=True),
}


def extremes(plan):
    """Rows of two groups of each column, with least and largest numbers and NULL."""
    groups = [(FIRST, NULL)] * len(plan.axes)
    numbers = [(code.lower, code.upper, None) for code in plan.measures]
    return [[list(row)] for row in itertools.product(*groups, *numbers)]


@pytest.mark.parametrize("name", PLANS)
def test_two_rows_attain_both_bounds_of_a_table(name):
    """With margins the table of all rows has both of them in one cell, where only means differ."""
    plan = PLANS[name]
    found = np.array([norms(plan, *pair) for pair in itertools.combinations([*extremes(plan), [None]], 2)])
    assert (found <= 1).all()
    assert found[:, 1].max() > 0.9999
    assert found[:, 0].max() > (0.6 if plan.measures and plan.margins else 0.9999)


@pytest.mark.parametrize("unit_rows", [1, 4])
def test_no_two_units_are_further_apart_than_the_noise_covers(unit_rows):
    random = np.random.default_rng()
    plan = plan_of(WARD, SEX, measures=(AGE, COST), margins=True, population=Population(10**6, unit_rows, False))
    covered = 1 + unit_rows / STEPS

    def row():
        numbers = [None if random.random() < 0.2 else random.uniform(-1, 2) * code.upper for code in plan.measures]
        return [int(random.integers(NULL, 6)), int(random.integers(NULL, 5)), *numbers]

    for _ in range(300):
        pair = [[row() if random.random() < 0.8 else None for _ in range(unit_rows)] for _ in range(2)]
        assert max(norms(plan, *pair)) <= covered


def test_a_table_of_a_bound_for_one_mean_is_exceeded_by_two():
    """One count and m sums would have √(2k(1 + m)), which is too small from two means on."""
    plan = plan_of(WARD, measures=(AGE, COST))
    change = released(plan, [[FIRST, 20, 0]]) - released(plan, [[FIRST, 80, 1200]])
    assert np.linalg.norm(change) > math.sqrt(2 * (1 + 2)) * 1.1


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 5.0, 20.0])
def test_a_sum_that_moves_by_two_costs_no_more_than_four_counts(epsilon):
    """In every accounting; three counts would be charged less than it costs where ε is small."""
    two, one = EpsilonDeltaDpEvent(2 * epsilon, 0.0), EpsilonDeltaDpEvent(epsilon, 0.0)
    three, four = (SelfComposedDpEvent(one, count) for count in (3, 4))
    orders = 1 + np.geomspace(1e-6, 1e6, 50)
    assert all(two.divergence(order) <= four.divergence(order) * (1 + 1e-9) for order in orders)
    assert two.gaussian_square() <= four.gaussian_square() * (1 + 1e-9)
    assert two.concentration() <= four.concentration() * (1 + 1e-9)
    assert (two.divergence(1.5) > three.divergence(1.5)) == (epsilon < 1)


def test_groups_of_numbers_are_their_bins_and_null():
    assert DECADE.words == ["[20,40)", "[40,60)", "[60,80]", "(null)"]
    values = np.array([19.0, 20, 39, 40, 80, 99, np.nan, np.inf])
    assert DECADE.groups(DECADE.code.coded(values)).tolist() == [0, 0, 0, 1, 2, 2, 3, 2]
    assert SEX.words == ["f", "m", "(other)", "(null)"]
    assert SEX.groups(np.array([NULL, 2, FIRST, FIRST + 1])).tolist() == [3, 2, 0, 1]
    assert Axis(NumberCode.of(Numeric("flag", 0.0, 1.0), "smallint", 12)).words == ["0", "1", "(null)"]


@pytest.mark.parametrize("bounds", [(1.7e9, 1.7e9 + 86_400), (44.0, 44.001), (-1e12 - 3, -1e12), (-1e300, 1.0)])
@pytest.mark.parametrize("scale", [LINEAR, ASINH])
def test_groups_have_different_words(bounds, scale):
    """Also of numbers that differ late, such as seconds since 1970 within a day, which six digits do not show."""
    axis = Axis(NumberCode.of(Numeric("n", *bounds, scale=scale), "double precision", 12))
    assert len(set(axis.words)) == axis.size == 11
    knots = Numeric("n", *bounds, knots=8, scale=scale).names
    assert len(set(knots)) == 8


# --- margins ------------------------------------------------------------------------------------------------


def by_design(plan, noisy):
    """Weighted least squares by the matrix of all cells: the oracle of the orthogonal components."""
    sizes = [axis.size for axis in plan.axes]
    cells = list(np.ndindex(*sizes))
    rows, values = [], []
    for table, numbers in plan.split(noisy):
        for cell in np.ndindex(numbers.shape[1:]):
            rows.append([all(each[axis] == place for axis, place in zip(table, cell, strict=True)) for each in cells])
            values.append(numbers[(0, *cell)])
    rows.append([True] * len(cells))
    values.append(noisy[-1])
    design = np.array(rows, float)
    solved, *_ = np.linalg.lstsq(design, np.array(values), rcond=None)
    covariance = design @ np.linalg.pinv(design.T @ design) @ design.T
    return design @ solved, np.sqrt(np.diag(covariance))


def test_margins_are_those_of_exact_least_squares():
    plan = plan_of(WARD, SEX, DECADE, margins=True, population=Population(10**6, 1, False))
    noisy = np.random.default_rng().normal(100, 20, plan.cells)
    measured = dict(plan.split(noisy)) | {(): np.array([noisy[-1]])}
    tables, spreads = table_figures._consistent(plan, measured, {})
    expected, deviations = by_design(plan, noisy)
    assert np.concatenate([each.ravel() for each in tables.values()]) == pytest.approx(expected)
    found = np.concatenate([np.full(plan.cells_of(table), spreads[table]) for table in tables])
    assert found == pytest.approx(deviations)


@pytest.mark.parametrize("measures", [(), (AGE,)])
@pytest.mark.parametrize("is_full", [True, False])
def test_totals_agree(measures, is_full):
    random = np.random.default_rng()
    plan = plan_of(WARD, SEX, measures=measures, margins=True, population=Population(5000, 1, is_full), epsilon=2.0)
    rows = [[int(random.integers(1, 6)), int(random.integers(1, 5)), *[50] * len(measures)] for _ in range(5000)]
    figures = list(table_figures.figures_of(plan, noise_added(plan, released(plan, rows))))
    counts = {tuple(row["groups"]): row["value"] for row in figures if row["figure"] == "count"}
    assert len(counts) == (5 + 1) * (4 + 1)
    for ward in (*WARD.words, EVERY):
        assert sum(counts[ward, sex] for sex in SEX.words) == pytest.approx(counts[ward, EVERY], abs=5)
    if is_full and not measures:
        assert counts[EVERY, EVERY] == 5000


def noise_added(plan, exact):
    return exact + (plan.mechanism.release(np.zeros(plan.cells, np.int64)) / plan.step)


# --- intervals ----------------------------------------------------------------------------------------------

RELEASES, MANY_RELEASES = 400, 10_000
SAMPLED = {
    "Gaussian counts": plan_of(WARD, population=Population(3000)),
    "Laplace counts": plan_of(WARD, delta=0.0, population=Population(3000)),
    "Gaussian means": plan_of(SEX, measures=(AGE,), population=Population(3000)),
    "Laplace means of units": plan_of(SEX, measures=(AGE,), delta=0.0, population=Population(1500, 2, False)),
    "Gaussian margins": plan_of(WARD, SEX, margins=True, population=Population(3000)),
    "Laplace margins": plan_of(WARD, SEX, margins=True, delta=0.0, population=Population(3000)),
}


def misses_of(plan, factor, releases=RELEASES):
    """How many figures are further from those without noise than their ±, of all figures with a ±."""
    random = np.random.default_rng()
    columns = [random.integers(NULL, axis.code.codes, 3000) for axis in plan.axes]
    numbers = [np.where(random.random(3000) < 0.1, None, random.integers(20, 81, 3000)) for _ in plan.measures]
    exact = released(plan, [list(row) for row in zip(*columns, *numbers, strict=True)])
    truth = list(table_figures.figures_of(plan, exact))
    missed = np.zeros(len(truth))
    for _ in range(releases):
        noisy = exact + factor * (noise_added(plan, exact) - exact)
        found = table_figures.figures_of(plan, noisy)
        missed += [
            abs(row["value"] - true["value"]) > 1.01 * row["plus_minus"] + (true["figure"] == "count") / 2
            for row, true in zip(found, truth, strict=True)
        ]
    return np.array([count for count, row in zip(missed, truth, strict=True) if row["plus_minus"]])


@pytest.mark.parametrize("name", SAMPLED)
def test_each_figure_is_covered_in_19_releases_of_20(name):
    """A count is shown, and its ± stated, as a whole number, which covers a little more at little noise."""
    misses = misses_of(SAMPLED[name], 1.0)
    least, most = binom.ppf([ALARM / 60, 1 - ALARM / 60], RELEASES, [0.025, 0.06])  # at least 1 of 400
    assert ((least <= misses) & (misses <= most)).all(), misses


@pytest.mark.statistical
@pytest.mark.parametrize("name", SAMPLED)
def test_coverage_of_tables_is_94_to_97_percent(name):
    """Whole numbers add up to one percent. With 20 % more noise 90 % would be covered, which is seen."""
    least, most = binom.ppf([ALARM / 60, 1 - ALARM / 60], MANY_RELEASES, [0.02, 0.065])
    misses = misses_of(SAMPLED[name], 1.0, MANY_RELEASES)
    assert ((least <= misses) & (misses <= most)).all(), misses / MANY_RELEASES
    assert (misses_of(SAMPLED[name], 1.25, MANY_RELEASES) > most).mean() > 0.5


def test_tables_with_a_third_of_the_noise_would_be_seen():
    least = binom.ppf(ALARM / 60, RELEASES, 0.025)
    assert (misses_of(SAMPLED["Gaussian counts"], 1 / 3) < max(least, 2)).all()


@pytest.mark.parametrize("name", ["Gaussian counts", "Gaussian means", "Laplace margins"])
def test_tables_with_twice_the_noise_would_be_seen(name):
    most = binom.ppf(1 - ALARM / 60, RELEASES, 0.06)
    assert (misses_of(SAMPLED[name], 2.0) > most).mean() > 0.8


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"population": Population(50)}, r"each cell would be noise: 50 rows in 20 cells are fewer than ± \d+ a cell"),
        ({"delta": 0.0, "margins": True, "axes": (WARD, SEX, DECADE)}, "delta = 0 with 7 tables has more noise"),
        ({"axes": (Axis(AGE), Axis(COST), SEX)}, "above the limit of 100000; name fewer columns in by"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"axes": ()}, "by is empty, and so are the means; name a column in by"),
    ],
)
def test_a_table_that_cannot_be_is_refused(given, message):
    usual = {"epsilon": 1.0, "delta": 1e-6, "axes": (WARD, SEX), "measures": (), "margins": False, "population": MANY}
    with pytest.raises(ValueError, match=message):
        TablePlan(**usual | given)


@pytest.mark.parametrize("measures", [[], ["sum age"], ["mean age", "mean age"], None, "count", ["median age"]])
def test_other_measures_are_refused(measures):
    with pytest.raises(ValueError, match="must be a list of 'count' and 'mean COLUMN'"):
        measured_columns(measures)


# --- quantiles ----------------------------------------------------------------------------------------------

PROBABILITIES = (0.1, 0.25, 0.5, 0.9)


def quantile_plan(code, epsilon=1.0):
    return QuantilesPlan.of(epsilon, 1e-6, code, Population(4000))


@pytest.mark.parametrize("code", [AGE, COST])
def test_two_values_attain_the_bound_of_a_distribution(code):
    plan = quantile_plan(code)

    def moved(value):
        sums = plan.sums()
        number = np.array([value])
        sums.add(code.coded(number)[:, None], code.positions(number)[:, None])
        return prefix_sums.transformed(sums.counts[0][FIRST:]) / STEPS

    middles = code.edges[:-1] / 2 + code.edges[1:] / 2
    longest = max(np.linalg.norm(moved(code.lower - 1) - moved(value)) for value in middles[::7])
    assert 0.999 < longest / plan.sensitivity <= 1


@pytest.fixture(scope="module")
def values():
    random = np.random.default_rng(6)
    return np.clip(random.normal(600, 200, 4000), 1, 1199), random.integers(20, 81, 4000).astype(float)


FEW = 120  # releases


def outside(code, numbers, factor):
    """How often each quantile of the rows is outside its interval."""
    plan, sums, missed = quantile_plan(code), quantile_plan(code).sums(), np.zeros(len(PROBABILITIES))
    sums.add(code.coded(numbers)[:, None], code.positions(numbers)[:, None])
    exact = prefix_sums.transformed(sums.counts[0][FIRST:]) / STEPS
    for _ in range(FEW):
        noisy = plan.release(sums)
        noisy = noisy + (factor - 1) * (noisy - exact)
        rows = quantile_figures.with_intervals(code, noisy, plan.noise.scale, PROBABILITIES)
        true = np.quantile(numbers, PROBABILITIES, method="inverted_cdf")
        slack = 0 if code.is_whole else 1.2  # a cell, within which the rows' own steps are not seen
        missed += [
            not row["lower"] - slack <= each <= row["upper"] + slack for row, each in zip(rows, true, strict=True)
        ]
    return missed


def test_intervals_of_quantiles_hold_them_in_19_releases_of_20(values):
    for code, numbers in zip((COST, AGE), values, strict=True):
        assert (outside(code, numbers, 1.0) <= binom.ppf(1 - ALARM, FEW, 0.05)).all()


def test_quantiles_with_six_times_the_noise_would_be_seen(values):
    assert (outside(COST, values[0], 6.0) > binom.ppf(1 - ALARM, FEW, 0.05)).all()


def test_quantiles_are_not_much_wider_than_their_noise(values):
    plan = quantile_plan(COST)
    sums = plan.sums()
    sums.add(COST.coded(values[0])[:, None], COST.positions(values[0])[:, None])
    rows = quantile_figures.with_intervals(COST, plan.release(sums), plan.noise.scale, [0.5])
    slope = 4000 * 0.4 / 200  # rows for each unit of cost near the median
    assert rows[0]["upper"] - rows[0]["lower"] < 3 * plan.explain()["rank_noise"] / slope


@pytest.mark.parametrize("probabilities", [[], [0], [1.0], [0.5, math.nan], ["x"], None, [0.5] * 1001, [True]])
def test_other_quantiles_are_refused(probabilities):
    with pytest.raises(ValueError, match="numbers between 0 and 1"):
        quantile_figures.checked(probabilities)
