"""RMSE and R² from one table of residuals and labels: its neighbours, its figures and their errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.algorithms.scores.regression_fit import RegressionFitPlan, RegressionScorePlan
from dbdp.learning.counts.residual_tables import LABEL_CELLS, LENGTHS, MOMENTS, of_labels, of_residuals
from dbdp.learning.counts.tallies import STEPS, ResidualsAndLabels

CELLS = len(LENGTHS) + LABEL_CELLS
NUMBERS = [np.nan, np.inf, -np.inf, 0.0, 5e-324, -1.0, 1.0, 0.3, -0.7, 2.0**-11, 1e300]


def plan_of(rows=5000, epsilon=1.0, delta=0.0, *, bounds=(-1.0, 1.0), moved=1):
    return RegressionFitPlan(epsilon, delta, rows, bounds, moved=moved)


def drawn(rows, *, spread=0.3, residual=0.15):
    """Scores (n, 1) and labels (n,) in packed units."""
    random = np.random.default_rng()
    predicted = random.normal(size=rows) * np.sqrt(spread**2 - residual**2)
    labels = np.clip(predicted + random.normal(size=rows) * residual, -1, 1)
    return predicted[:, None], labels


# --- one record -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [1, 3])
def test_opposite_labels_attain_the_bounds(moved):
    """A row that is predicted rightly, and one that errs by all of the range, at the other end."""
    right, wrong = (ResidualsAndLabels()(np.full((moved, 1), 1.0), np.full(moved, label)) for label in (1.0, -1.0))
    plans = plan_of(moved=moved), plan_of(delta=1e-6, moved=moved)
    assert np.abs(right - wrong).sum() == plans[0].mechanism.sensitivity == 4 * moved * STEPS
    assert np.linalg.norm(right - wrong) == pytest.approx(plans[1].mechanism.sensitivity, rel=1e-6)


@given(st.tuples(*[st.sampled_from(NUMBERS)] * 4))
def test_any_replaced_row_moves_each_table_by_two_steps_at_most(values):
    score, label, other, second = values
    tally = ResidualsAndLabels()
    one, two = tally(np.array([[score]]), np.array([label])), tally(np.array([[other]]), np.array([second]))
    assert one.shape == (CELLS,)
    for first, last in ((0, len(LENGTHS)), (len(LENGTHS), CELLS)):
        parts = [each[first:last] for each in (one, two)]
        assert min(part.min() for part in parts) >= 0
        assert {part.sum() for part in parts} <= {0, STEPS}
        assert np.abs(parts[0] - parts[1]).sum() <= 2 * STEPS


# --- the figures ----------------------------------------------------------------------------------------


def test_sums_over_the_tables_are_those_of_the_rows():
    random = np.random.default_rng()
    labels, residuals = random.uniform(-1, 1, 1000), random.normal(size=1000) * 10.0 ** random.uniform(-4, 0, 1000)
    assert of_residuals(residuals, STEPS) @ np.square(LENGTHS) / STEPS == pytest.approx(
        np.square(np.clip(residuals, -2, 2)).sum(), abs=1e-3
    )
    assert MOMENTS @ of_labels(labels, STEPS) / STEPS == pytest.approx([1000, labels.sum(), labels @ labels], abs=1e-3)


def test_a_cut_at_a_node_is_that_of_every_row():
    residuals = np.random.default_rng().normal(size=1000) * 0.3
    for cut in LENGTHS[6:]:
        cut_squares = of_residuals(residuals, STEPS) @ np.square(np.minimum(LENGTHS, cut)) / STEPS
        assert cut_squares == pytest.approx(np.square(np.minimum(np.abs(residuals), cut)).sum(), abs=1e-3)


def test_the_figures_are_in_the_labels_units():
    scores, labels = drawn(3000)
    plan = plan_of(3000, 1e4, bounds=(100.0, 140.0))
    found = plan.answer(plan.tally(scores, labels))
    mean = np.square(np.clip(scores[:, 0], -1, 1) - labels).mean()
    assert found["rmse"]["value"] == pytest.approx(20 * np.sqrt(mean), rel=1e-4)
    assert found["r2"]["value"] == pytest.approx(1 - mean / labels.var(), abs=1e-4)
    assert found["residual_cut"]["value"] in 20 * LENGTHS


def test_the_noise_is_in_proportion_to_the_residuals():
    """In bounds ten times as wide the error of the RMSE hardly grows: the control is the error of a mean square."""
    widths = []
    for factor in (1.0, 16.0):
        scores, labels = drawn(20_000)
        plan = plan_of(20_000, bounds=(-factor, factor))
        widths.append(plan.answer(plan.release(plan.tally(scores / factor, labels / factor)))["rmse"]["plus_minus"])
    assert widths[1] < 4 * widths[0]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rows", [1000, 10_000])
def test_the_error_covers_what_the_noise_does(delta, rows):
    """Of the RMSE without a cut, too. Each is missed by 5 of 100; so many misses of 400 have a chance below 1e-9."""
    scores, labels = drawn(rows)
    plan = plan_of(rows, 2.0, delta)
    cells = plan.tally(scores, labels)
    mean = np.square(np.clip(scores[:, 0], -1, 1) - labels).mean()
    exact = {"rmse": np.sqrt(mean), "r2": 1 - mean / labels.var()}
    missed, close = dict.fromkeys(exact, 0), dict.fromkeys(exact, 0)
    for _ in range(400):
        found = plan.answer(plan.release(cells))
        for name, value in exact.items():
            error = abs(found[name]["value"] - value) / found[name]["plus_minus"]
            missed[name] += error > 1
            close[name] += error < 0.5
    assert max(missed.values()) < 60
    assert max(close.values()) < 360  # 270 are expected: a width that says too much would be seen


def test_a_figure_that_the_noise_hides_is_null():
    plan = plan_of(100, 0.01)
    found = plan.answer(plan.release(plan.tally(*drawn(100))))
    assert found["r2"] == {"value": None, "plus_minus": None}
    assert {pair["value"] for name, pair in plan.answer(np.zeros(CELLS, np.int64)).items()} == {None, 2.0}


def test_a_score_has_the_figures_of_an_evaluation():
    score = RegressionScorePlan(1.0, 0.0, 5000, (-1.0, 1.0), "rmse")
    found = score.answer(score.release(score.tally(*drawn(5000))))
    assert set(found) == {"rmse", "rmse_noise", "r2", "r2_noise", "coverage", "coverage_noise", "residual_cut"}
    assert score.algorithm == "rmse"
