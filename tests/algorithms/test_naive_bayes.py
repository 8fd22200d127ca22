"""Naive Bayes: counts on explicit neighbours, effects by their definition, and the rule by which `auto` counts."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory import RowsInPlaces

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.catalogue import COUNTED
from dbdp.algorithms.families.counted.cell_effects import effects, totals
from dbdp.algorithms.families.counted.naive_bayes import _coordinates
from dbdp.algorithms.stages.label_counts import LabelCounts
from dbdp.learning.counts import tallies
from dbdp.learning.counts.label_tables import LabelTables
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, INDICATOR, ColumnBlock, RowBlocks
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent

KNOTS = 8
BLOCKS = RowBlocks((ColumnBlock(CURVE, KNOTS), ColumnBlock(CATEGORY, 3), ColumnBlock(INDICATOR, 1)), 2.0)
SIZES = [KNOTS, 4, 2]
DIMENSION = KNOTS + 3 + 1 + 1
REQUEST = Request(1.0, 1e-6, algorithm="naive_bayes")


def encoded(number, category, flag):
    """Rows (n, DIMENSION) of a number in [0, 1], a category 0, 1, 2 or -1, and a flag 0 or 1, not yet packed."""
    number, category, flag = (np.atleast_1d(each).astype(float) for each in (number, category, flag))
    hats = np.maximum(0, 1 - np.abs(number[:, None] * (KNOTS - 1) - np.arange(KNOTS)))
    parts = [hats, category[:, None] == np.arange(3), flag[:, None], np.ones((len(number), 1))]
    return np.hstack(parts) / BLOCKS.radius


def counted(features, labels):
    described = tallies.described(LabelTables(**BLOCKS.as_data()), outputs=1, dimension=BLOCKS.places)
    return RowsInPlaces(features, labels, BLOCKS).tally(np.zeros(1), described)


def drawn(rows, strength):
    """Rows of three independent columns, each of which says as much of the label as `strength`."""
    random = np.random.default_rng()
    number, category, flag = random.random(rows), random.choice(3, rows), random.random(rows) < 0.4
    score = strength * (4 * (number - 0.5) + (category - 1.0) + (flag - 0.4)) - 1
    return encoded(number, category, flag), np.where(random.random(rows) < 1 / (1 + np.exp(-score)), 1.0, -1.0), score


def facts_of(rows, blocks=BLOCKS):
    return Facts(rows, blocks.dimension, blocks=blocks)


# --- the release ----------------------------------------------------------------------------------------------


def test_each_row_is_in_its_nearest_cell_by_its_label():
    found = counted(encoded([0.0, 0.99, 0.5, 0.4], [0, -1, 2, 2], [1, 0, 0, 1]), np.array([-1.0, 1, 1, np.nan]))
    number, category, flag = np.split(found, np.cumsum([2 * size for size in SIZES])[:-1])
    assert np.flatnonzero(number).tolist() == [0, KNOTS + 4, KNOTS + 7]  # halves are rounded to even
    assert category.reshape(2, -1).tolist() == [[1, 0, 0, 0], [0, 0, 1, 1]]  # the last cell is no category
    assert flag.reshape(2, -1).tolist() == [[0, 1], [2, 0]]
    assert found.sum() == 3 * 3  # the row without a label is in none


def test_records_without_a_common_cell_attain_the_bound():
    """One record replaced by another: at most the bound for any of them, and the bound for some."""
    some = [
        (encoded(number, category, flag), label)
        for number, category, flag, label in product((0.0, 0.43, 1.0), (-1, 0, 2), (0, 1), (-1.0, 1.0, np.nan))
    ]
    tables = [counted(row, np.array([label])) for row, label in some]
    furthest = max(float(np.linalg.norm(one - other)) for one in tables for other in tables)
    bound = LabelCounts(BLOCKS, 1.0).sensitivity
    assert furthest == pytest.approx(math.sqrt(2 * 3))
    assert furthest <= bound <= furthest * (1 + 1e-9)


def test_the_parts_are_those_of_the_guarantee():
    """1/z² of the tables and of the scores add up to at most that of the whole, and to no less than nearly that."""
    made = plan(REQUEST, facts_of(5000))
    method, whole = made.method, analytic_noise_multiplier(REQUEST.epsilon, REQUEST.delta)
    parts = method.counts.multiplier**-2 + method.evaluation.noise.multiplier**-2
    assert whole**-2 * (1 - 1e-9) < parts <= whole**-2
    assert made.guarantee.event == GaussianDpEvent(whole)
    for noise in (method.counts.noise, method.evaluation.noise._noise):
        assert noise.noise_scale >= noise.sensitivity * whole


# --- the model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [*BLOCKS.blocks, ColumnBlock(INDICATOR, 1, -1.0), ColumnBlock(CATEGORY, 2, 0.0, 0.5)])
def test_a_cell_has_its_effect(block):
    of_cells = np.random.default_rng().normal(size=block.cells)
    weights, constant = _coordinates(block, of_cells)
    places = [min(cell, block.width - 1) for cell in range(block.cells)]
    found = weights[places] * block.heights + constant
    assert len(weights) == block.width
    assert found == pytest.approx(of_cells)


def test_independent_columns_have_their_log_odds():
    features, labels, score = drawn(60_000, 1.0)
    models = (
        plan(Request(20.0, 1e-6, "naive_bayes"), facts_of(60_000)).run(RowsInPlaces(features, labels, BLOCKS)).models
    )
    found = features @ models[0]
    assert np.corrcoef(found, score)[0, 1] > 0.98
    assert np.abs(found - score).mean() < 0.2


def test_effects_are_smaller_where_noise_hides_them():
    """With noise of 10⁴ rows nothing is left of the effects that are there, without it all of them are."""
    table = np.array([[3000.0, 2000, 1000], [1000, 2000, 3000]])
    for noise, least, most in ((1.0, 0.9, 1.2), (1e4, 0.0, 0.1)):
        (found,) = effects([table], [False], noise, totals([table], noise))
        assert least <= found[2] <= most
        assert -most <= found[0] <= -least


def test_the_base_rate_is_that_of_the_tables():
    table = np.array([[900.0, 900], [100, 100]])
    found = totals([table, table], 1.0)
    assert found.rows == pytest.approx(2000)
    assert found.log_odds == pytest.approx(math.log(0.1 / 0.9), abs=0.02)
    hidden = totals([table], 1e5)
    assert abs(hidden.log_odds) < 0.2  # nothing is known


@given(st.lists(st.floats(-1e9, 1e9), min_size=2 * sum(SIZES), max_size=2 * sum(SIZES)), st.floats(1e-3, 1e9))
def test_any_noisy_tables_give_a_finite_model(numbers, noise):
    parts = np.split(np.array(numbers), np.cumsum([2 * size for size in SIZES])[:-1])
    tables = [each.reshape(2, -1) for each in parts]
    found = totals(tables, noise)
    assert all(np.isfinite(each).all() for each in effects(tables, [True, False, False], noise, found))
    assert math.isfinite(found.log_odds) and found.rows >= 1


@pytest.mark.parametrize("labels", [np.full(50, np.nan), np.ones(50)])
def test_rows_without_labels_or_of_one_class_have_a_model(labels):
    features = encoded(np.linspace(0, 1, 50), np.zeros(50), np.zeros(50))
    models = plan(REQUEST, facts_of(50)).run(RowsInPlaces(features, labels, BLOCKS)).models
    assert models.shape == (1, DIMENSION) and np.isfinite(models).all()


@pytest.mark.parametrize(
    ("request_of", "facts", "reason"),
    [
        ({"delta": 0.0}, facts_of(5000), "delta = 0"),
        ({}, Facts(5000, 20), "array"),
        ({}, Facts(5000, DIMENSION, 3, blocks=BLOCKS), "two classes"),
        ({}, Facts(5000, DIMENSION, is_classifier=False, blocks=BLOCKS), "two classes"),
        ({}, Facts(5000, DIMENSION, intercept=False, blocks=BLOCKS), "no intercept"),
    ],
)
def test_an_unsuited_request_is_refused_with_a_reason(request_of, facts, reason):
    options = {"epsilon": 1.0, "delta": 1e-6, "algorithm": "naive_bayes"} | request_of
    with pytest.raises(ValueError, match=rf"naive_bayes cannot learn this: .*{reason}.*; choose algorithm => 'auto'$"):
        plan(Request(**options), facts)


# --- auto -----------------------------------------------------------------------------------------------------


def rows_of(signal):
    """So many rows have this n·μ."""
    return math.ceil(signal * analytic_noise_multiplier(1.0, 1e-6))


@pytest.mark.parametrize(
    ("signal", "options", "algorithm"),
    [
        (COUNTED[0] + 1, {}, "naive_bayes"),
        (COUNTED[1] - 1, {}, "naive_bayes"),
        (COUNTED[0] - 1, {}, "private_splines"),
        (COUNTED[1] + 1, {}, "private_splines"),
        (COUNTED[0] + 1, {"radius": 2.0}, "private_splines"),
        (COUNTED[0] + 1, {"pairs": "a*b"}, "private_splines"),
        (COUNTED[0] + 1, {"loss": "huber_svm"}, "private_splines"),
    ],
)
def test_auto_counts_where_the_signal_is_weak(signal, options, algorithm):
    made = plan(Request(1.0, 1e-6, **options), facts_of(rows_of(signal)))
    assert made.request.algorithm == algorithm
    assert "n·μ" in made.explain()["chosen_because"]
