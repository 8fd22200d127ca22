"""A describe without a database: its sensitivity is attained, its sums are exact, its intervals cover."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from chance import ALARM
from scipy.stats import binom
from sklearn.isotonic import IsotonicRegression

from dbdp.learning.rows.features import ASINH, Numeric
from dbdp.statistics import _sums as compiled
from dbdp.statistics import column_figures, prefix_sums
from dbdp.statistics.coded_columns import EMPTY, FIRST, NULL, OTHER, CategoryCode, NumberCode, from_data
from dbdp.statistics.cohorts import Cohort
from dbdp.statistics.describing import DescribePlan, number_reach
from dbdp.statistics.stepped_noise import Population
from dbdp.statistics.unit_sums import STEPS, ColumnSums, weights_of

AGE = NumberCode.of(Numeric("age", 20.0, 80.0), "integer")
COST = NumberCode.of(Numeric("cost", 0.0, 1200.0), "double precision")
FLAG = NumberCode.of(Numeric("flag", 0.0, 1.0), "boolean")
INCOME = NumberCode.of(Numeric("income", 0.0, 1e6), "double precision")
WARD = CategoryCode("ward", ("A", "B", "C"))
COLUMNS = (AGE, COST, FLAG, INCOME, WARD)
MANY = 10**6


def plan_of(*codes, epsilon=1.0, units=MANY, unit_rows=1, public=True):
    return DescribePlan(epsilon, 1e-6, codes, Population(units, unit_rows, public))


def sums_of(plan, rows):
    """The sums of rows: for each column a number, None for NULL, or a code of a category; None is an empty slot."""
    sums = ColumnSums(plan.codes, plan.population.unit_rows)
    codes, positions = np.zeros((len(rows), len(plan.codes)), np.int64), np.zeros((len(rows), len(plan.codes)))
    for slot, row in enumerate(rows):
        for place, (code, value) in enumerate(zip(plan.codes, row or [], strict=bool(row))):
            if isinstance(code, NumberCode):
                number = np.array([np.nan if value is None else value], np.float64)
                codes[slot, place], positions[slot, place] = code.coded(number)[0], code.positions(number)[0]
            else:
                codes[slot, place] = value
    sums.add(codes, positions)
    return sums


def apart(plan, one, other):
    """How far two units move the weighted release."""
    first, second = (plan.coordinates(sums_of(plan, rows)) for rows in (one, other))
    return float(np.linalg.norm((first - second) * plan.weights))


# --- sensitivity ------------------------------------------------------------------------------------------


def worst_numbers(code):
    """The two values, or a value and NULL, that are the furthest apart."""
    middles = code.edges[:-1] / 2 + code.edges[1:] / 2
    ends = [code.lower - 1, code.upper + 1, None, *middles[[0, -1]], *middles[:: max(1, code.inner // 60)]]
    plan = plan_of(code)
    return max(itertools.product(ends[:5], ends), key=lambda pair: apart(plan, [[pair[0]]], [[pair[1]]]))


@pytest.mark.parametrize(("code", "slack"), [(AGE, 1e-5), (FLAG, 1e-5), (COST, 3e-3), (INCOME, 2e-2)])
def test_two_values_of_a_number_attain_its_bound(code, slack):
    plan = plan_of(code)
    one, other = worst_numbers(code)
    assert 1 - slack < apart(plan, [[one]], [[other]]) / plan.sensitivity <= 1


def test_columns_attain_the_bound_together():
    worst = [worst_numbers(code) for code in COLUMNS[:4]]
    plan = plan_of(*COLUMNS)
    one, other = ([*(pair[side] for pair in worst), FIRST + side] for side in (0, 1))
    assert 0.99 < apart(plan, [one], [other]) / plan.sensitivity <= 1


def test_a_record_more_attains_the_bound_with_the_number_of_rows():
    plan = plan_of(AGE, FLAG, WARD, public=False)
    longest = max(apart(plan, [[age, flag, NULL]], [None]) for age in (19, 20, 80, 81) for flag in (-1, 0, 1))
    assert 1 - 1e-5 < longest / plan.sensitivity <= 1


def random_row(random):
    numbers = [random.choice([code.lower, code.upper, random.uniform(-1, 2) * code.upper]) for code in COLUMNS[:4]]
    numbers[0], numbers[2] = round(numbers[0]), round(numbers[2])
    return [None if random.random() < 0.2 else each for each in numbers] + [int(random.integers(NULL, WARD.codes))]


@pytest.mark.parametrize("unit_rows", [1, 3])
def test_no_two_units_are_further_apart(unit_rows):
    random, plan = np.random.default_rng(), plan_of(*COLUMNS, unit_rows=unit_rows, public=False)
    for _ in range(150):
        pair = [[random.choice([None, 1]) and random_row(random) for _ in range(unit_rows)] for _ in range(2)]
        assert apart(plan, *pair) <= plan.sensitivity


def test_a_unit_of_equal_rows_attains_the_bound_of_one_row():
    plan = plan_of(FLAG, WARD, unit_rows=3)
    one, other = worst_numbers(FLAG)
    assert 1 - 1e-5 < apart(plan, [[one, FIRST]] * 3, [[other, OTHER]] * 3) / plan.sensitivity <= 1


def test_a_bound_that_is_a_hundredth_too_small_would_be_seen():
    plan, (one, other) = plan_of(AGE), worst_numbers(AGE)
    assert apart(plan, [[one]], [[other]]) > 0.99 * plan.sensitivity


def test_the_weighted_noise_is_that_of_one_gaussian():
    plan = plan_of(*COLUMNS, public=False)
    for weight in np.unique(plan.weights).tolist():
        noise = plan.noise.of_weight(weight)
        assert noise.noise_scale >= plan.sensitivity * plan.noise.multiplier / weight
        assert noise.noise_scale <= plan.sensitivity * plan.noise.multiplier / weight * (1 + 1e-6)
        assert (1 / STEPS / noise.grid).is_integer()  # so that no value is rounded
    assert {math.sqrt(2), plan.rows_weight, 1.0} == set(plan.weights.tolist())


# --- exact sums -------------------------------------------------------------------------------------------


def test_the_square_of_the_root_is_the_triangle_of_ones():
    matrix = prefix_sums.root(64) / STEPS
    assert matrix @ matrix == pytest.approx(np.tril(np.ones((64, 64))), abs=1e-4)
    assert prefix_sums.inverse(64) @ matrix == pytest.approx(np.tril(np.ones((64, 64))), abs=1e-9)
    assert [prefix_sums.distances(size).max() for size in (64, 256, 1024)] == pytest.approx(
        [3.66, 4.54, 5.42], abs=0.01
    )


def test_a_transformed_histogram_is_exact_for_large_tables():
    random = np.random.default_rng()
    histogram = random.integers(0, 1 << 52, 60)
    exact = (prefix_sums.root(60).astype(object) * histogram.astype(object)).sum(axis=1)
    halves = [math.floor(Fraction(each, STEPS) + Fraction(1, 2)) for each in exact]
    assert prefix_sums.transformed(histogram).tolist() == halves


def test_weights_of_a_unit_add_up_to_one_at_most():
    is_read = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1], bool)
    weights = weights_of(is_read, 3).reshape(-1, 3)
    assert weights.tolist() == [[STEPS // 3] * 3, [STEPS, 0, 0], [0, 0, 0], [STEPS // 2, 0, STEPS // 2]]


def test_moments_of_units_are_means_of_their_rows():
    plan = plan_of(COST, unit_rows=2)
    sums = sums_of(plan, [[1200], [600], [0], None])
    assert sums.moments[0] / STEPS == pytest.approx([0.5 - 1, 0.5 + 1], abs=1e-6)
    assert (sums.rows, sums.counts[0][EMPTY]) == (2 * STEPS, 0)


def test_the_increasing_fit_is_the_nearest_one():
    values = np.cumsum(np.random.default_rng().normal(0.1, 1, 300))
    assert prefix_sums.increasing(values) == pytest.approx(IsotonicRegression().fit_transform(range(300), values))


# --- codes ------------------------------------------------------------------------------------------------


def test_odd_numbers_have_codes():
    odd = np.array([np.nan, -np.inf, 19.0, 20.0, 80.0, 81.0, np.inf, 1e300])
    assert AGE.coded(odd).tolist() == [NULL, FIRST, FIRST, FIRST + 1, FIRST + 61, FIRST + 62, FIRST + 62, FIRST + 62]
    assert AGE.positions(odd).tolist() == [0, -1, -1, -1, 1, 1, 1, 1]
    assert COST.coded(np.array([0.0, 1200.0, np.nextafter(1200, 9e9)])).tolist() == [
        FIRST + 1,
        FIRST + 1022,
        FIRST + 1023,
    ]
    assert INCOME.scale == ASINH
    widths = np.diff(INCOME.edges)
    assert widths[0] < 20
    assert widths[-1] > 5000


def test_compiled_codes_are_those_of_numpy():
    """The values lie apart in memory that cannot be written, as those of records do."""
    random = np.random.default_rng()
    odd = [np.nan, np.inf, -np.inf, 5e-324, *COST.edges, *np.nextafter(COST.edges, -np.inf)]
    drawn = np.concatenate([odd, random.uniform(-100, 1300, 3000)])
    values = np.frombuffer(np.column_stack([drawn, drawn]).tobytes()).reshape(-1, 2)[:, 1]
    borders = np.append(COST.edges[:-1], np.nextafter(COST.edges[-1], np.inf))
    expected = np.where(np.isnan(values), NULL, FIRST + np.searchsorted(borders, values, side="right"))
    assert COST.coded(values).tolist() == expected.tolist()
    clipped = (np.clip(values, COST.lower, COST.upper) - COST.middle) / COST.half
    assert COST.positions(values).tolist() == np.nan_to_num(clipped).tolist()


@pytest.mark.parametrize("unit_rows", [1, 3])
def test_compiled_sums_are_exact(unit_rows):
    random, plan = np.random.default_rng(), plan_of(COST, unit_rows=unit_rows)
    rows = [random.choice([None, 1]) and [random.choice([None, random.uniform(0, 1200)])] for _ in range(600)]
    once, twice = Fraction(0), Fraction(0)
    for unit in range(0, 600, unit_rows):
        read = [row[0] for row in rows[unit : unit + unit_rows] if row]
        weight = STEPS // max(len(read), 1)
        steps = [round(float(COST.positions(np.array([each]))[0]) * STEPS) for each in read if each is not None]
        once += math.floor(Fraction(weight * sum(steps), STEPS) + Fraction(1, 2))
        twice += math.floor(Fraction(weight * sum(each**2 for each in steps), STEPS**2) + Fraction(1, 2))
    assert sums_of(plan, rows).moments[0].tolist() == [once, twice]


def test_sums_of_arrays_that_do_not_fit_are_refused():
    numbers, counts, sums = np.zeros(3, np.int64), np.zeros(5, np.int64), np.zeros(2, np.int64)
    for codes in (numbers + 5, numbers - 1, numbers[:2]):
        with pytest.raises(ValueError, match="do not fit"):
            compiled.add_counts(codes, numbers, counts)
    with pytest.raises(ValueError, match="do not fit"):
        compiled.add_moments(numbers, np.zeros(2), numbers, 1, FIRST, 20, sums)
    with pytest.raises(ValueError, match="as many of both"):
        compiled.matches(np.zeros(1), np.zeros(2), numbers, OTHER)


def test_categories_have_codes_in_their_order():
    numbers = (5.0, -7.0, 3.0)
    values = np.array([-0.5, 0.5, 5.0, -7.0, 3.0, 4.0])
    assert WARD.coded(values, numbers, -0.5).tolist() == [NULL, OTHER, FIRST, FIRST + 1, FIRST + 2, OTHER]


@pytest.mark.parametrize("word", ["(null)", "(other)", "(all)"])
def test_a_category_like_a_word_of_results_is_refused(word):
    with pytest.raises(ValueError, match=r"rename it in the table, and declare it with dbdp\.redeclare"):
        CategoryCode("ward", ("A", word))


def test_a_plan_is_read_from_its_receipt():
    plan = plan_of(*COLUMNS, units=300, unit_rows=2, public=False)
    receipt = {**plan.explain(), "capacity": 300, "max_rows": 2}
    receipt.pop("rows"), receipt.pop("units")
    assert DescribePlan.of_receipt(receipt) == plan
    assert tuple(from_data(receipt["columns"])) == COLUMNS


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delta": 0.0}, "needs a delta > 0"),
        ({"population": Population(20)}, r"each count would be noise: it has ± \d+, and 20 rows at most"),
    ],
)
def test_a_describe_that_cannot_be_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        DescribePlan(**{"epsilon": 1.0, "delta": 1e-6, "codes": COLUMNS, "population": Population(1000)} | given)


def test_a_table_whose_sums_are_not_exact_is_refused():
    with pytest.raises(ValueError, match="use a smaller table"):
        Population(2**33)


# --- cohorts ----------------------------------------------------------------------------------------------


def test_a_cohort_has_the_rows_that_meet_each_condition():
    cohort = Cohort.of({"age": [30, 40], "ward": ["A", "C"]}, COLUMNS, "d")
    values = np.array([[30.0, 0], [40, 0], [29.999, 0], [np.nan, 0], [35, 0], [35, 0]])
    codes = np.array([[0, FIRST], [0, FIRST + 2], [0, FIRST], [0, FIRST], [0, NULL], [0, FIRST + 1]])
    assert cohort.contains(values, codes).tolist() == [True, True, False, False, False, False]
    assert cohort.as_data == {"cohort": {"age": [30.0, 40.0], "ward": ["A", "C"]}}


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({}, "give an object such as"),
        ({"agee": [1, 2]}, "did you mean 'age'"),
        ({"age": [2, 1]}, r"give \[lower, upper\]"),
        ({"age": ["1", 2]}, r"give \[lower, upper\]"),
        ({"ward": "A"}, "some of its categories: A, B, C"),
        ({"ward": ["D"]}, "some of its categories"),
        ({"ward": []}, "some of its categories"),
    ],
)
def test_other_conditions_are_refused(stated, message):
    with pytest.raises(ValueError, match=message):
        Cohort.of(stated, COLUMNS, "d")


# --- figures ----------------------------------------------------------------------------------------------

ROWS, RELEASES, MANY_RELEASES = 3000, 400, 10_000
SHOWN = ("count", "mean", "sd", "share", "outside")


@pytest.fixture(scope="module")
def sample():
    """A plan with much noise, the sums of rows, and their true figures by column and value."""
    random, plan = np.random.default_rng(4), plan_of(FLAG, WARD, epsilon=1.0, units=ROWS)
    values, wards = random.choice([0, 1, 3, np.nan], ROWS, p=[0.5, 0.3, 0.1, 0.1]), random.integers(NULL, 6, ROWS)
    sums = ColumnSums(plan.codes, 1)
    sums.add(np.column_stack([FLAG.coded(values), wards]), np.column_stack([FLAG.positions(values), np.zeros(ROWS)]))
    clipped = np.clip(values[~np.isnan(values)], 0, 1)
    truth = {("flag", "mean"): clipped.mean(), ("flag", "sd"): clipped.std(), ("flag", "count"): len(clipped)}
    truth["flag", "outside"] = int((values == 3).sum())
    for place, word in enumerate(WARD.words, NULL):
        truth[word, "count"], truth[word, "share"] = (wards == place).sum(), (wards == place).mean()
    return plan, sums, truth


def misses_of(sample, factor, releases=RELEASES):
    """How often each figure is further from the truth than its ±, with noise that is larger by a factor."""
    plan, sums, truth = sample
    exact, counted = plan.coordinates(sums), dict.fromkeys(truth, 0)
    for _ in range(releases):
        noisy = exact + factor * (plan.release(sums) - exact)
        for row in column_figures.figures_of(plan, noisy)[1:]:
            for name in SHOWN:
                key = row["value"] or row["column_name"], name
                if key in truth:
                    value, width = row[name], row[f"{name}_noise"]
                    counted[key] += value is None or abs(value - truth[key]) > width * 1.01 + (name == "count")
    return np.array(list(counted.values()))


def test_each_interval_covers_19_releases_in_20(sample):
    """Counts are shown as whole numbers, so that a difference of less than 1 is none."""
    misses = misses_of(sample, 1.0)
    least, most = binom.ppf([ALARM / 40, 1 - ALARM / 40], RELEASES, [0.02, 0.06])
    assert ((least <= misses) & (misses <= most)).all(), misses


@pytest.mark.statistical
def test_coverage_is_94_to_97_percent(sample):
    """Whole numbers add up to half a percent. With 15 % more noise 91 % would be covered, which is seen."""
    least, most = binom.ppf([ALARM / 40, 1 - ALARM / 40], MANY_RELEASES, [0.025, 0.06])
    misses = misses_of(sample, 1.0, MANY_RELEASES)
    assert ((least <= misses) & (misses <= most)).all(), misses / MANY_RELEASES
    assert (misses_of(sample, 1.15, MANY_RELEASES) > most).mean() > 0.5
    assert (misses_of(sample, 0.8, MANY_RELEASES) < least).mean() > 0.5


@pytest.mark.parametrize("factor", [0.5, 1.7])
def test_noise_of_another_scale_would_be_seen(sample, factor):
    misses = misses_of(sample, factor)
    least, most = binom.ppf([ALARM / 40, 1 - ALARM / 40], RELEASES, [0.02, 0.06])
    assert ((misses < least) | (misses > most)).all() or (factor < 1 and misses.mean() < 2)


def test_quartiles_are_those_of_the_rows_at_little_noise():
    random, plan = np.random.default_rng(), plan_of(COST, AGE, epsilon=9e4)
    costs, ages = random.normal(500, 200, 5000), random.integers(15, 70, 5000).astype(float)
    sums = ColumnSums(plan.codes, 1)
    coded = [(COST, costs), (AGE, ages)]
    sums.add(*(np.column_stack([getattr(c, how)(v) for c, v in coded]) for how in ("coded", "positions")))
    cost, age = column_figures.figures_of(plan, plan.release(sums))[1:]
    for name, level in [("q25", 25), ("q50", 50), ("q75", 75)]:
        assert cost[name] == pytest.approx(np.percentile(costs, level), abs=2.4)  # two cells
        assert age[name] == np.percentile(ages, level, method="inverted_cdf")
    assert age["outside"] == (ages < 20).sum()
    assert number_reach(AGE)[0] < 8 < number_reach(COST)[0]


@pytest.mark.parametrize(
    "bounds", [(1e300, np.nextafter(1e300, np.inf)), (-1e300, 1e300), (0.0, 1e-100), (1e18, 1e18 + 512)]
)
def test_bounds_at_the_ends_of_floats_have_figures(bounds):
    for type_name in ("double precision", "bigint"):
        code = NumberCode.of(Numeric("x", *map(float, bounds)), type_name)
        plan = plan_of(code)
        sums = sums_of(plan, [[value] for value in (*bounds, None, np.inf, -np.inf) * 200])
        for _ in range(20):
            [_, row] = column_figures.figures_of(plan, plan.release(sums))
            assert row["q50"] is None or bounds[0] <= row["q50"] <= bounds[1]
            assert np.isfinite(row["count"])
