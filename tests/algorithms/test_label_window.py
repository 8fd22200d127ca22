"""Where the labels of a regression are: the histogram on explicit neighbours, windows, and models of narrow labels."""

import json
import math

import numpy as np
import pytest
from chance import usually
from hypothesis import given
from hypothesis import strategies as st
from memory import RowsInMemory, rows_for

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.preconditioned.preconditioning import preconditioner_of
from dbdp.algorithms.rows import silent
from dbdp.algorithms.stages.label_window import CELLS, LabelWindow, WindowRelease, coarse_window, window_of
from dbdp.learning.counts import tallies
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, ColumnBlock, RowBlocks

RANDOM = np.random.default_rng()
RELEASE = WindowRelease(2, 2, 1.0)
LABELS = st.one_of(st.floats(-1, 1), st.just(math.nan))


def counted(label, low=-0.5, high=0.25):
    """What one packed record with this label adds; NaN stands for a zero row."""
    row = np.array([[0.5, 0.5]]) if not math.isnan(label) else np.zeros((1, 2))
    described = tallies.described(tallies.NumberCells(low, high, CELLS), outputs=1, dimension=2)
    return RowsInMemory(row, np.nan_to_num(np.array([label]))).tally(np.zeros(2), described).astype(float)


# --- the release ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("label", "cell"), [(-1, 0), (-0.5, 0), (-0.49, 0), (-0.125, 32), (0.249, 63), (0.9, 63)])
def test_a_label_beyond_the_cells_is_in_the_nearest(label, cell):
    assert np.flatnonzero(counted(label)).tolist() == [cell]
    assert counted(label).sum() == 1


def test_labels_at_both_ends_attain_the_bound():
    moved = np.linalg.norm(counted(-1.0) - counted(1.0))
    assert moved == pytest.approx(math.sqrt(2))
    assert moved <= RELEASE.sensitivity <= moved * (1 + 1e-9)
    assert np.linalg.norm(counted(math.nan)) == 0


@given(LABELS, LABELS, st.floats(-1, 0.5), st.floats(0.05, 0.5))
def test_no_record_moves_the_histogram_further(one, other, low, width):
    assert np.linalg.norm(counted(one, low, low + width) - counted(other, low, low + width)) <= RELEASE.sensitivity


# --- what follows from it ---------------------------------------------------------------------------------------


def histogram(labels, low, high):
    return np.histogram(np.clip(labels, low, high), CELLS, (low, high))[0].astype(float)


@pytest.mark.parametrize("spread", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("middle", [-0.87, 0.0, 0.55])
def test_a_window_is_about_where_the_labels_are(middle, spread):
    """Both counts in turn, with noise: within half a spread or a cell, and as wide as 3 to 8 spreads or a few cells."""
    labels = np.clip(middle + spread * RANDOM.normal(size=100_000), -1, 1)
    shares = np.histogram(labels, CELLS, (-1, 1))[0] / len(labels)

    def is_near():
        low, high = coarse_window(shares + RANDOM.normal(0, 0.002, CELLS), 0.002)
        window = window_of(histogram(labels, low, high) + RANDOM.normal(0, 200, CELLS), 200, len(labels), low, high)
        cell = (high - low) / CELLS
        assert low <= middle <= high
        is_wide = 2.5 * spread <= window.width <= 8 * spread + 4 * cell
        return abs(window.mean - middle) < max(spread / 2, cell) and is_wide

    assert usually(is_near)


def test_noise_alone_leaves_the_whole_bounds():
    """What is not clear of the noise is nowhere in particular."""
    assert usually(lambda: coarse_window(RANDOM.normal(1 / CELLS, 0.3, CELLS), 0.3) == (-1.0, 1.0), missing=0.25)


def test_noise_makes_labels_all_over_their_bounds_no_narrow_ones():
    def is_wide():
        return window_of(RANDOM.normal(1000 / CELLS, 50, CELLS), 50, 1000, -1.0, 1.0).width > 0.5

    assert usually(is_wide, missing=0.05)


def test_labels_all_over_their_bounds_have_all_of_them():
    noisy = 1000 + RANDOM.normal(0, 10, CELLS)
    window = window_of(noisy, 10, 64_000, -1.0, 1.0)
    assert window.width == 1.0
    assert abs(window.mean) < 0.05


@given(st.lists(st.floats(-1e9, 1e9), min_size=CELLS, max_size=CELLS), st.floats(0, 1e6), st.integers(1, 10**9))
def test_whatever_noise_leaves_there_is_a_window(noisy, deviation, rows):
    window = window_of(np.array(noisy), deviation, rows, -0.25, 0.5)
    assert -0.25 <= window.mean <= 0.5
    assert 0 < window.width <= 1


# --- trainings ----------------------------------------------------------------------------------------------------

KNOTS, COLUMNS, CLASSES, ROWS = 8, 6, 4, 20_000
BLOCKS = RowBlocks((ColumnBlock(CURVE, KNOTS),) * COLUMNS + (ColumnBlock(CATEGORY, CLASSES),), math.sqrt(COLUMNS + 2))


def narrow(spread, middle):
    """Rows of curves and a category, and labels with that spread that they explain in part."""
    numbers, category = RANDOM.beta(2, 2, (ROWS, COLUMNS)), RANDOM.choice(CLASSES, ROWS)
    hats = np.maximum(0, 1 - np.abs(numbers[..., None] * (KNOTS - 1) - np.arange(KNOTS)))
    parts = [hats.reshape(ROWS, -1), category[:, None] == np.arange(CLASSES), np.ones((ROWS, 1))]
    effect = 3 * np.sin(3 * numbers[:, 0]) - 2 * numbers[:, 1] + 0.5 * category + RANDOM.normal(0, 0.7, ROWS)
    labels = middle + spread * (effect - effect.mean()) / effect.std()
    return np.hstack(parts) / BLOCKS.radius, np.clip(labels, -1, 1)


REACH = BLOCKS.radius * math.sqrt(2)  # as `Declaration.reach` has it


def made(epsilon, algorithm="private_splines", dimension=KNOTS * COLUMNS + CLASSES + 1, **own):
    facts = Facts(ROWS, dimension, is_classifier=False, reach=REACH, blocks=BLOCKS)
    return plan(Request(epsilon, 1e-6, algorithm=algorithm, settings=json.dumps(own)), facts)


def ratio(spread, middle, epsilon, algorithm="private_splines", **own):
    """RMSE in units of the labels' deviation, that of the best constant."""
    features, labels = narrow(spread, middle)
    release_plan = made(epsilon, algorithm, **own)
    errors = features @ release_plan.run(rows_for(release_plan, features, labels), silent).models[0] - labels
    return float(np.sqrt(np.mean(errors**2)) / labels.std())


@pytest.mark.parametrize("algorithm", ["private_splines", "preconditioned_gd"])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("spread", [0.001, 0.003, 0.01], ids=["a thousandth", "a three hundredth", "a hundredth"])
def test_labels_in_a_small_part_of_their_bounds_are_learned(spread, epsilon, algorithm):
    """Never worse than the constant, wherever they are; with more signal much better."""
    most = {0.2: 1.02, 1.0: 0.8, 4.0: 0.7}[epsilon]
    assert usually(lambda: ratio(spread, RANDOM.uniform(-0.95, 0.95), epsilon, algorithm) < most)


@pytest.mark.parametrize("algorithm", ["private_splines", "preconditioned_gd"])
def test_such_a_model_states_its_share_of_their_variance(algorithm):
    """In units of the bounds the noise of the sums was far above it, and there was none."""
    features, labels = narrow(0.003, 0.5)

    def is_stated():
        plan = made(2.0, algorithm)
        released = plan.run(rows_for(plan, features, labels), silent)
        share = 1 - np.mean((features @ released.models[0] - labels) ** 2) / labels.var()
        stated = released.figures["evaluation"]["r2"]
        return abs(stated["value"] - share) < 1.5 * stated["plus_minus"] + 0.02 and stated["plus_minus"] < 0.3

    assert usually(is_stated)


def test_the_descent_begins_at_the_mean_in_any_coordinates():
    """The model of only an intercept, over rows that W has changed, says the mean for every row."""
    features, _ = narrow(0.01, 0.5)
    way = preconditioner_of(features.T @ features / ROWS, 0.01).begun(1 / BLOCKS.radius, LabelWindow(0.37, 0.2))
    assert features @ way.matrix.T @ way.start == pytest.approx(0.37)
    assert way.window.width == 0.2


@pytest.mark.parametrize("algorithm", ["private_splines", "preconditioned_gd"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_the_parts_of_the_noise_of_numbers_add_up(algorithm, epsilon):
    """By the shares of μ², of which each release's multiplier follows."""
    method = made(epsilon, algorithm).method
    steps = method.passes * (method.multiplier / method.step_multiplier) ** 2
    shares = method.moment_share + method.label_share + method.residual_share
    assert method.label_share > 0
    assert shares + steps == pytest.approx(1)
    assert shares + steps <= 1


@pytest.mark.parametrize("missing", ["a known constant", "labels that are numbers", "a free clip"])
def test_without_what_it_needs_no_label_is_counted(missing):
    reach, is_classifier = 1.0 if missing == "a known constant" else REACH, missing == "labels that are numbers"
    own = {"clip": 0.3} if missing == "a free clip" else {}
    facts = Facts(ROWS, KNOTS * COLUMNS + CLASSES + 1, is_classifier=is_classifier, reach=reach)
    request = Request(1.0, 1e-6, algorithm="preconditioned_gd", settings=json.dumps(own))
    assert plan(request, facts).method.label_share == 0


def test_with_clips_in_units_of_the_bounds_they_are_not():
    """Control: in the unit of the bounds the noise of the steps is far above such labels."""
    from dbdp.algorithms.stages import label_window

    whole = label_window.LabelWindow(0.5, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_window, "window_of", lambda *_: whole)
        assert usually(lambda: ratio(0.001, 0.5, 0.2) > 2)
