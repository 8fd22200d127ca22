"""Private splines: moments on explicit neighbours, coordinates by their definition, and curves that are learned."""

import math
from dataclasses import replace

import numpy as np
import pytest
from chance import usually
from hypothesis import given
from hypothesis import strategies as st
from memory import RowsInMemory, RowsInPlaces

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.preconditioned.column_bases import additive_preconditioner, basis_of, ridge_for
from dbdp.algorithms.families.preconditioned.flattening import CutMomentRelease, cut_moment_of, flattened
from dbdp.algorithms.rows import silent
from dbdp.algorithms.stages.column_moments import ColumnRelease, nearest_shares
from dbdp.algorithms.stages.label_window import LabelWindow, WindowRelease
from dbdp.learning.counts import tallies
from dbdp.learning.counts.block_moments import PARTS, BlockMoments
from dbdp.learning.counts.cut_moments import STEPS, CutMoment
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, INDICATOR, ColumnBlock, RowBlocks
from dbdp.learning.rows.encoding import ColumnEncoder
from dbdp.learning.rows.features import Numeric
from dbdp.learning.rows.monotone import monotone_models
from dbdp.learning.rows.placed import moment_of_steps
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

RANDOM = np.random.default_rng()
KNOTS = 8
BLOCKS = RowBlocks((ColumnBlock(CURVE, KNOTS), ColumnBlock(CATEGORY, 3), ColumnBlock(INDICATOR, 1)), 2.0)
DIMENSION = KNOTS + 3 + 1 + 1
UNIFORM = np.diag([2, *[4] * (KNOTS - 2), 2]) + np.eye(KNOTS, k=1) + np.eye(KNOTS, k=-1)  # the moment of a number
UNIFORM = UNIFORM / UNIFORM.sum()  # that is uniform within its bounds
ENCODER = ColumnEncoder(
    (Numeric("a", 0.0, 1.0, knots=KNOTS), Numeric("b", 0.0, 1.0)), ((0.0, 1.0, 2.0),), intercept=True
)


def encoded(number, category, flag):
    """Rows (n, DIMENSION) of a number in [0, 1], a category 0, 1, 2 or -1, and a flag 0 or 1, not yet packed."""
    number, category, flag = (np.atleast_1d(each).astype(float) for each in (number, category, flag))
    places = number * (KNOTS - 1)
    hats = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(KNOTS)))
    parts = [hats, category[:, None] == np.arange(3), flag[:, None], np.ones((len(number), 1))]
    return np.hstack(parts) / BLOCKS.radius


def counted(features, labels, *, is_number=False, outputs=1):
    tally = BlockMoments(**BLOCKS.as_data(), is_number=is_number, outputs=outputs)
    described = tallies.described(tally, outputs=1, dimension=BLOCKS.places)
    return RowsInPlaces(features, labels, BLOCKS).tally(np.zeros(1), described) / PARTS


def test_the_encoder_packs_such_rows():
    records = np.zeros(1, [("label", "<i4"), ("header", "<i4", (5,)), ("elements", "<f8", (3,))])
    records["label"], records["header"], records["elements"] = 1, (1, 0, 701, 3, 1), [0.3, 1.0, 2.0]
    packed = ENCODER.rows(records.tobytes())[0, : ENCODER.dimension]
    row = encoded(0.3, 2, 1)[0]
    order = [*range(KNOTS), KNOTS + 3, KNOTS, KNOTS + 1, KNOTS + 2, KNOTS + 4]  # numbers come before categories
    assert packed[:KNOTS] == pytest.approx(row[order][:KNOTS], abs=1e-6)
    assert np.linalg.norm(packed) <= 1


# --- the release of the columns' moments ----------------------------------------------------------------------


def test_every_number_is_the_sum_over_the_rows():
    found = counted(encoded([0.0, 0.5, 1.0, 0.5], [0, 1, -1, 1], [0, 1, 1, 0]), np.array([1, -1, 1, 1]))
    assert found[:KNOTS].tolist() == [1, 0, 0, 0.5, 0.5, 0, 0, 1]  # squares of the coordinates, twice (½, ½)
    assert found[KNOTS : 2 * KNOTS - 1].tolist() == [0, 0, 0, 0.5, 0, 0, 0]
    assert found[2 * KNOTS - 1 :].tolist() == [1, 2, 0, 2, 2, 1, 3]
    assert counted(encoded(0.2, 0, 0), np.array([np.nan])).sum() == 0  # a zero row is none
    assert counted(encoded(0.2, 0, 0), np.array([0.999]), is_number=True)[-1] == 1
    several = counted(encoded([0.2, 0.3, 0.4], [0, 0, 0], [0, 0, 0]), np.array([3, 1, 3]), outputs=4)
    assert several[-4:].tolist() == [1, 0, 2, 0]


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_curve_adds_a_vector_that_is_no_longer_than_1(one, other):
    """With √2 for a number off the diagonal; and no two of them are further apart than √2."""
    weights = np.where(np.arange(2 * KNOTS - 1) < KNOTS, 1, math.sqrt(2))
    added = [counted(encoded(number, 0, 0), np.ones(1))[: 2 * KNOTS - 1] * weights for number in (one, other)]
    assert max(np.linalg.norm(each) for each in added) <= 1
    assert np.linalg.norm(added[0] - added[1]) <= math.sqrt(2)


@pytest.mark.parametrize(("outputs", "names"), [(1, (-1.0, 1.0)), (5, (1.0, 2.0, 5.0))])
def test_records_without_a_common_cell_attain_the_bound(outputs, names):
    """One record replaced by another: at most the bound for any of them, and the bound for these."""
    release = ColumnRelease(BLOCKS, False, 1.0, outputs)
    some = [
        (encoded(number, category, flag), label)
        for number in (0.0, 0.43, 1.0)
        for category in (-1, 0, 2)
        for flag in (0, 1)
        for label in names
    ]
    some.append((np.zeros((1, DIMENSION)), 1.0))
    tables = [counted(row, np.array([label]), outputs=outputs) * release._weights for row, label in some]
    furthest = max(float(np.linalg.norm(one - other)) for one in tables for other in tables)
    assert furthest == pytest.approx(math.sqrt(2 * (3 + 1)))
    assert furthest <= release.sensitivity <= furthest * (1 + 1e-9)


def test_without_noise_the_moments_are_those_of_the_rows():
    random = np.random.default_rng()
    features = encoded(random.random(5000), random.choice(3, 5000), random.random(5000) < 0.2)
    found = ColumnRelease(BLOCKS, False, 1e-7).released(RowsInPlaces(features, np.ones(5000), BLOCKS))
    hats = features[:, :KNOTS] * BLOCKS.radius
    assert found.columns[0] == pytest.approx(hats.T @ hats / 5000, abs=1e-4)
    assert found.columns[1] == pytest.approx((features[:, KNOTS : KNOTS + 3] > 0).mean(axis=0), abs=1e-3)
    assert found.labels == pytest.approx([0, 1], abs=1e-3)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=30))
def test_nearest_shares_are_shares(noisy):
    found = nearest_shares(np.array(noisy))
    assert found.sum() == pytest.approx(1)
    assert (found > 0).all()


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize(("is_classifier", "outputs"), [(True, 1), (True, 3), (False, 1)])
def test_the_parts_of_the_noise_add_up(epsilon, is_classifier, outputs):
    descent = planned(epsilon=epsilon, is_classifier=is_classifier, outputs=outputs).method
    square = descent.columns.multiplier**-2 + descent.passes * descent.step_multiplier**-2
    square += sum(descent._multiplier_of(each) ** -2 for each in (descent.cross_share, descent.label_share) if each)
    square += descent.evaluation.noise.multiplier**-2 if descent.evaluation else 0
    square += 2 * descent.residuals.multiplier**-2 if descent.residuals else 0
    assert 1 - 1e-9 < square * analytic_noise_multiplier(epsilon, 1e-6) ** 2 <= 1


# --- the coordinates ------------------------------------------------------------------------------------------


def found_of(features):
    """The moments of these rows, without noise."""
    return ColumnRelease(BLOCKS, False, 1e-7).released(RowsInPlaces(features, np.ones(len(features)), BLOCKS))


@pytest.mark.parametrize("is_number", [False, True])
@pytest.mark.parametrize("spread", [1.0, 0.02], ids=["wide", "narrow"])
def test_coordinates_have_the_variances_of_their_prior(is_number, spread):
    """Rows of independent columns have uncorrelated coordinates of variance λ/(λ + κ), in any part of the bounds."""
    random = np.random.default_rng()
    rows = 200_000
    category = random.choice(3, rows, p=[0.6, 0.3, 0.1])
    features = encoded(0.4 + spread * (random.beta(1, 2, rows) - 0.4), category, random.random(rows) < 0.2)
    way, variances = additive_preconditioner(BLOCKS, found_of(features), 1e9, np.zeros(1), is_number=is_number)
    moved = features @ way.matrix.T * way.scale
    variance = np.cov(moved.T)
    assert moved.mean(axis=0) == pytest.approx(np.eye(DIMENSION)[0], abs=0.02)
    assert np.trace(variance) + 1 == pytest.approx(way.effective_dimension, rel=0.1)
    assert np.diagonal(variance)[1 : len(variances)] == pytest.approx(variances[1:], rel=0.1, abs=0.01)
    assert np.abs(variance - np.diag(np.diagonal(variance))).max() < 0.03
    assert np.linalg.norm(way.matrix, 2) < 1


def test_noise_makes_no_coordinate_long():
    """A number that hardly varies, in noise that hides it: its coordinates vary less than they would, not more."""
    random = np.random.default_rng()
    moments = np.zeros((KNOTS, KNOTS))
    moments[3:5, 3:5] = 0.25
    for _ in range(50):
        noise = np.triu(random.normal(0, 0.02, (KNOTS, KNOTS)), 0) * (np.abs(np.subtract.outer(range(8), range(8))) < 2)
        basis = basis_of(ColumnBlock(CURVE, KNOTS), moments + noise + np.triu(noise, 1).T, 0.02, is_number=False)
        hats = np.zeros((200, KNOTS))
        hats[:, 3] = 0.5 + random.normal(0, 0.01, 200)
        hats[:, 4] = 1 - hats[:, 3]
        assert np.var(hats @ basis.directions, axis=0).max() < 0.25


def test_a_number_that_is_only_at_its_bounds_has_one_direction():
    """As an indicator has it: its prior is its variance, so a rare one counts little; control: a uniform number."""
    ends = np.diag([0.97, *[0.0] * (KNOTS - 2), 0.03])
    basis = basis_of(ColumnBlock(CURVE, KNOTS), ends, 1e-4, is_number=False)
    assert basis.variances == pytest.approx([0.03 * 0.97])
    assert np.diff(basis.directions[:, 0]) == pytest.approx(1 / (KNOTS - 1))
    assert len(basis_of(ColumnBlock(CURVE, KNOTS), UNIFORM, 1e-4, is_number=False).variances) == KNOTS - 1


def test_the_smoothest_direction_has_the_largest_prior():
    basis = basis_of(ColumnBlock(CURVE, KNOTS), UNIFORM, 0.0, is_number=False)
    order = np.argsort(basis.variances)[::-1]
    roughness = [np.square(np.diff(direction)).sum() for direction in (basis.directions / np.sqrt(basis.variances)).T]
    assert (np.diff(np.array(roughness)[order]) > -1e-9).all()
    assert basis.variances.max() == pytest.approx(0.25, rel=1e-3)


@given(st.lists(st.floats(1e-4, 1), min_size=1, max_size=40), st.floats(0.5, 100))
def test_the_ridge_leaves_the_dimension_that_the_noise_pays_for(variances, dimension):
    variances = np.array(variances)
    ridge = ridge_for(variances, dimension)
    used = np.sum(variances / (variances + ridge))
    assert used <= dimension * (1 + 1e-6) or ridge > 49
    assert ridge == 0.01 or used == pytest.approx(dimension, rel=1e-6) or ridge > 49


# --- columns that go together -----------------------------------------------------------------------------------


CORNERS = RowBlocks((ColumnBlock(CATEGORY, 2), ColumnBlock(CATEGORY, 2)), 1.5)


def cut_sum(rows, release, matrix):
    """The orthonormal coordinates of the sum of cut rows, as the release adds noise to them."""
    tally = tallies.described(
        CutMoment(release.length, release.coordinates, **CORNERS.as_data()), outputs=5, dimension=3
    )
    features = np.array([corner(*row) for row in rows])
    return RowsInPlaces(features, np.ones(len(rows)), CORNERS).tally(matrix, tally) / STEPS * release.weights


def corner(first, second, constant=1.0):
    """A row of two categories, -1 for none; it is the zero row without the constant."""
    return np.array([first == 0, first == 1, second == 0, second == 1, 1.0]) * constant / CORNERS.radius


def test_orthogonal_rows_attain_the_bound_of_the_cut_moment():
    """One of them replaced by another moves it by √2, also where they are longer than the length; others by less."""
    matrix = np.diag([0.9, 0.5, 0.3, 0.6, 0.0])
    release = CutMomentRelease(2, 4, 0.01, 1.0, CORNERS)
    rows = [(-1, -1), (-1, -1, 0.0), (0, -1), (1, -1), (-1, 0), (0, 0), (1, 1), (0, 1)]
    sums = [cut_sum([(0, 0), row], release, matrix) for row in rows]
    furthest = max(float(np.linalg.norm(one - other)) for one in sums for other in sums)
    assert furthest == pytest.approx(math.sqrt(2), rel=0.02)  # whole numbers of 1/128, below what rounding could add
    assert furthest <= release.sensitivity <= math.sqrt(2) * (1 + 1e-9)
    assert (sums[0] == sums[1]).all()


def test_rows_in_whole_numbers_are_within_the_length():
    """Also of many coordinates, each of which is rounded; and short rows keep their length."""
    random = np.random.default_rng()
    features, blocks, labels = together(12)
    rows = RowsInPlaces(features, labels, blocks).packed
    matrix = np.linalg.qr(random.normal(size=(features.shape[1],) * 2))[0] / 1.001
    lengths = np.linalg.norm(features @ matrix.T, axis=1)
    for length, most in ((lengths.min() / 3, 1.0), (2 * lengths.max(), 0.5)):
        traces = [np.trace(moment_of_steps(rows[[place]], matrix, blocks, length)) / STEPS for place in range(50)]
        assert 0.5 * most**2 < min(traces) <= max(traces) <= most**2 * (1 if most == 1 else 1.05)


def together(copies):
    """Rows of one number, in so many columns that say the same; the blocks, and labels that it decides."""
    random = np.random.default_rng()
    number = random.random(20_000)
    row = np.hstack(
        [encoded(number, 0 * number, 0 * number)[:, :KNOTS] * BLOCKS.radius] * copies + [np.ones((20_000, 1))]
    )
    blocks = RowBlocks((ColumnBlock(CURVE, KNOTS),) * copies, math.sqrt(copies + 1))
    return row / blocks.radius, blocks, np.where(random.random(20_000) < number, 1.0, -1.0)


@pytest.mark.parametrize("copies", [1, 12])
def test_columns_that_say_the_same_are_no_steep_direction(copies):
    features, blocks, labels = together(copies)
    rows = RowsInPlaces(features, labels, blocks)
    found = ColumnRelease(blocks, False, 1e-7).released(rows)
    way, variances = additive_preconditioner(blocks, found, 1e9, np.array([0.3, -0.3]), is_number=False)
    flat = flattened(rows, way, variances, cut_moment_of(way, len(variances), blocks, len(features), 0.01))
    before, after = (np.linalg.eigvalsh(np.cov((features @ each.matrix.T * each.scale).T))[-1] for each in (way, flat))
    assert (before > 5) == (copies > 1)
    assert after < 1.5
    assert flat.effective_dimension < way.effective_dimension + 0.1
    for each in (way, flat):
        moved = features @ each.matrix.T * each.scale
        for start, constant in zip(each.start.reshape(2, -1), (0.3, -0.3), strict=True):
            assert moved @ start / each.scale == pytest.approx(np.full(len(moved), constant), abs=0.01)


@pytest.mark.parametrize("is_number", [False, True])
def test_little_signal_leaves_no_coordinate_far_from_its_mean(is_number):
    """The noise of a mean that is on no simplex, or of the number of rows, made coordinates of thousands."""
    features, blocks, _ = together(4)
    labels = np.where(RANDOM.random(len(features)) < 0.5, 1.0, -1.0)

    def is_short():
        release = ColumnRelease(blocks, is_number, 10_000.0)
        found = release.released(RowsInPlaces(features, labels, blocks))
        way, _ = additive_preconditioner(blocks, found, 3.0, np.zeros(1), is_number=is_number)
        return np.square(features @ way.matrix.T * way.scale).sum(axis=1).max() < 500

    assert usually(lambda: all(is_short() for _ in range(10)))


def test_noise_flattens_no_direction():
    """What is not clear of the noise stays as it was thought."""
    features, blocks, labels = together(1)
    rows = RowsInPlaces(features, labels, blocks)
    way, variances = additive_preconditioner(
        blocks, ColumnRelease(blocks, False, 1e-7).released(rows), 1e9, np.zeros(1), is_number=False
    )

    release = cut_moment_of(way, len(variances), blocks, len(features), 1e5)

    def stays():
        flat = flattened(rows, way, variances, release)
        return np.linalg.norm(flat.matrix * flat.scale - way.matrix * way.scale, 2) < 0.5 * way.scale

    assert usually(stays, 0.2)  # one run in 11 has noise beyond its usual largest eigenvalue


# --- the training ---------------------------------------------------------------------------------------------


def planned(rows=20_000, *, epsilon=1.0, is_classifier=True, outputs=1, **more):
    facts = Facts(rows, DIMENSION, outputs, is_classifier=is_classifier, blocks=BLOCKS)
    return plan(Request(epsilon, 1e-6, algorithm="private_splines", **more), facts)


def curved(is_classifier):
    """Rows whose label is high in the middle of the number, as no line can say."""
    random = np.random.default_rng()
    number, category = random.random(20_000), random.choice(3, 20_000)
    height = np.where(np.abs(number - 0.5) < 0.25, 1.0, -1.0) + 0.3 * (category == 1)
    noise = random.logistic(size=20_000)
    labels = np.where(2 * height + noise > 0, 1.0, -1.0) if is_classifier else 0.5 * height + 0.1 * np.tanh(noise)
    return encoded(number, category, random.random(20_000) < 0.5), np.clip(labels, -1, 1)


@pytest.mark.parametrize("is_classifier", [True, False])
def test_a_curve_is_learned_that_no_line_says(is_classifier):
    features, labels = curved(is_classifier)

    def learns():
        model = planned(is_classifier=is_classifier).run(RowsInPlaces(features, labels, BLOCKS), silent).models[0]
        scores = features @ model
        if is_classifier:
            return np.mean((scores > 0) == (labels > 0)) > 0.8
        return 1 - np.mean((labels - scores) ** 2) / np.var(labels) > 0.6

    assert usually(learns)


def test_the_preconditioned_line_does_not_say_it():
    """Control: the default on the number itself is hardly better than the larger class."""
    features, labels = curved(True)
    line = np.column_stack([features[:, :KNOTS] @ np.arange(KNOTS) / (KNOTS - 1), features[:, KNOTS:]])
    made = plan(Request(1.0, 1e-6, algorithm="preconditioned_gd"), Facts(20_000, line.shape[1]))
    model = made.run(RowsInMemory(line, labels), silent).models[0]
    assert np.mean((line @ model > 0) == (labels > 0)) < 0.65


def of_several():
    """Rows of three classes, of which the second is the one in the middle of the number, as no lines say."""
    random = np.random.default_rng()
    number, category = random.random(20_000), random.choice(3, 20_000)
    heights = np.column_stack([0.5 * category, np.where(np.abs(number - 0.5) < 0.25, 4.0, -1.0), 2 - 0.5 * category])
    labels = (heights + random.gumbel(size=heights.shape)).argmax(axis=1) + 1.0
    return encoded(number, category, random.random(20_000) < 0.5), labels


@pytest.mark.parametrize("loss", ["logistic", "huber_svm"])
def test_curves_of_several_classes_are_learned(loss):
    """About as well as by the true heights, and better than by the larger class of each half of the number."""
    features, labels = of_several()
    made = planned(outputs=3, loss=loss)

    def learns():
        models = made.run(RowsInPlaces(features, labels, BLOCKS), silent).models
        return np.mean((features @ models.T).argmax(axis=1) + 1 == labels) > 0.75

    assert usually(learns)
    lines = np.column_stack([features[:, :KNOTS] @ np.arange(KNOTS) / (KNOTS - 1), features[:, KNOTS:]])
    line = plan(Request(1.0, 1e-6, loss=loss, algorithm="preconditioned_gd"), Facts(20_000, lines.shape[1], 3))
    models = line.run(RowsInMemory(lines, labels), silent).models
    assert np.mean((lines @ models.T).argmax(axis=1) + 1 == labels) < 0.65


@pytest.mark.parametrize("loss", ["logistic", "huber_svm"])
def test_several_classes_begin_at_their_shares(loss):
    """With steps of nearly 0 the model is the constant; softmax has the shares as probabilities."""
    features, labels = of_several()
    shares = np.bincount(labels.astype(int))[1:] / len(labels)
    found = planned(epsilon=50.0, outputs=3, loss=loss, step_size=1e-6, settings='{"evaluation_share": 0}')
    scores = features @ found.run(RowsInPlaces(features, labels, BLOCKS), silent).models.T
    expected = np.log(shares) - np.log(shares).mean() if loss == "logistic" else np.log(shares / (1 - shares))
    assert scores == pytest.approx(np.tile(expected, (len(labels), 1)), abs=0.02)


def test_the_noise_pays_for_fewer_dimensions_of_several_classes():
    two, three = (planned(outputs=outputs).method for outputs in (1, 3))
    assert two.affordable == 2 * three.affordable
    clips = [planned(rows, outputs=3).method.clip for rows in (500, 20_000, 10**6, 10**8)]
    assert clips == sorted(clips)
    assert clips[0] == two.clip
    assert clips[-1] == 1.5


def test_a_release_evaluates_itself():
    features, labels = curved(True)
    released = planned().run(RowsInPlaces(features, labels, BLOCKS), silent)
    accuracy = np.mean((features @ released.models[0] > 0) == (labels > 0))
    found = released.figures["evaluation"]["accuracy"]
    assert abs(found["value"] - accuracy) < 5 * found["plus_minus"]
    assert released.noise_root is not None


@pytest.mark.parametrize("scale", [1, 2, 4, 8, 50])
def test_residuals_shorten_the_clip_of_splines_much_or_not(scale, monkeypatch):
    """Labels in a small part of their window have short residuals; a clip that is a little shorter gains nothing."""
    monkeypatch.setattr(WindowRelease, "released", lambda *_: LabelWindow(0.0, 1.0))
    features, labels = curved(False)
    made = plan(
        Request(8.0, 1e-6, algorithm="private_splines"), Facts(20_000, DIMENSION, is_classifier=False, blocks=BLOCKS)
    )
    figures = made.run(RowsInPlaces(features, labels / scale, BLOCKS), silent).figures
    part = figures["clip_norm"] / math.sqrt(figures["effective_dimension"]) / made.method.clip
    assert part <= 0.4 or part > 1 - 1e-9
    assert part < 0.4 or scale < 50


# --- monotone columns -----------------------------------------------------------------------------------------


def with_directions(*directions):
    columns = zip(BLOCKS.blocks, directions, strict=True)
    return RowBlocks(tuple(replace(block, direction=each) for block, each in columns), BLOCKS.radius)


@pytest.mark.parametrize("is_classifier", [True, False])
@pytest.mark.parametrize("direction", [1, -1])
def test_a_monotone_curve_is_learned_calibrated_and_evaluated(is_classifier, direction):
    """The truth rises, then falls: of it only one half can be learned, and the rest is flat; control: no direction."""
    features, labels = curved(is_classifier)
    facts = Facts(20_000, DIMENSION, is_classifier=is_classifier, blocks=with_directions(direction, 0, 0))
    constrained = plan(Request(1.0, 1e-6, algorithm="private_splines"), facts).run(
        RowsInPlaces(features, labels, BLOCKS)
    )
    free = planned(is_classifier=is_classifier).run(RowsInPlaces(features, labels, BLOCKS))
    steps = direction * np.diff(constrained.models[0, :KNOTS])
    assert (steps >= 0).all()
    assert usually(lambda: steps.max() > 0.02)
    assert (direction * np.diff(free.models[0, :KNOTS]) < 0).any()
    scores = features @ constrained.models[0]
    if is_classifier:  # calibrated as it is released
        assert abs(np.mean(1 / (1 + np.exp(-scores))) - np.mean(labels > 0)) < 0.05
    found = constrained.figures["evaluation"]["accuracy" if is_classifier else "rmse"]
    truth = np.mean((scores > 0) == (labels > 0)) if is_classifier else np.sqrt(np.mean((labels - scores) ** 2))
    assert abs(found["value"] - truth) < 6 * found["plus_minus"] + 0.01


@pytest.mark.parametrize(("direction", "is_kept"), [(1, True), (-1, False)])
def test_a_flag_in_the_wrong_direction_adds_to_the_intercept(direction, is_kept):
    random = np.random.default_rng()
    features = encoded(random.random(5000), random.choice(3, 5000), random.random(5000) < 0.3)
    shares = features.mean(axis=0)[:-1] * BLOCKS.radius
    model = random.normal(size=(1, DIMENSION))
    model[0, KNOTS + 3] = 0.7
    found = monotone_models(model, with_directions(0, 0, direction), shares)
    assert found[0, KNOTS + 3] == (0.7 if is_kept else 0)
    assert (features @ found[0]).mean() == pytest.approx((features @ model[0]).mean())
    assert found[0, : KNOTS + 3].tolist() == model[0, : KNOTS + 3].tolist()


@given(st.lists(st.floats(-3, 3), min_size=KNOTS, max_size=KNOTS), st.sampled_from([1, -1]))
def test_a_curve_keeps_its_mean_and_what_is_in_order(values, direction):
    random = np.random.default_rng()
    features = encoded(random.beta(1, 3, 5000), random.choice(3, 5000), random.random(5000) < 0.3)
    shares = features.mean(axis=0)[:-1] * BLOCKS.radius
    model = np.array([[*values, *[0.5] * (DIMENSION - KNOTS)]])
    found = monotone_models(model, with_directions(direction, 0, 0), shares)
    assert (direction * np.diff(found[0, :KNOTS]) >= 0).all()
    assert (features @ found[0]).mean() == pytest.approx((features @ model[0]).mean(), abs=0.01)
    assert found[0, KNOTS:].tolist() == model[0, KNOTS:].tolist()
    ordered = np.sort(values)[::direction]
    model[0, :KNOTS] = ordered
    assert monotone_models(model, with_directions(direction, 0, 0), shares)[0, :KNOTS] == pytest.approx(ordered)


# --- pairs of columns -----------------------------------------------------------------------------------------

PAIR = ColumnBlock(CATEGORY, 6, size=0.5, prior=1.0, groups=2)
PAIRED = RowBlocks((ColumnBlock(CATEGORY, 2), ColumnBlock(CATEGORY, 3), PAIR), 2.0)


def paired(first, second, radius=PAIRED.radius):
    """Rows (n, 12) of two categories, -1 for none, and the cell of both."""
    first, second = (np.atleast_1d(each).astype(int) for each in (first, second))
    cell = np.where((first < 0) | (second < 0), -1, first * 3 + second)
    parts = [first[:, None] == np.arange(2), second[:, None] == np.arange(3), 0.5 * (cell[:, None] == np.arange(6))]
    return np.hstack([*parts, np.ones((len(first), 1))]) / radius


def test_the_cells_of_a_pair_are_counted_within_the_bound():
    """Explicit neighbours: records that share no group differ in two columns, their pair and the label."""
    tally = BlockMoments(**PAIRED.as_data(), is_number=False)
    described = tallies.described(tally, outputs=1, dimension=PAIRED.places)
    tables = [
        RowsInPlaces(paired(first, second), np.array([label]), PAIRED).tally(np.zeros(1), described) / PARTS
        for first in (-1, 0, 1)
        for second in (-1, 0, 2)
        for label in (-1.0, 1.0)
    ]
    assert all(table.sum() <= 4 for table in tables)
    furthest = max(float(np.linalg.norm(one - other)) for one in tables for other in tables)
    assert furthest == pytest.approx(math.sqrt(2 * (3 + 1)))
    assert furthest <= ColumnRelease(PAIRED, False, 1.0).sensitivity <= furthest * (1 + 1e-9)


@given(st.lists(st.floats(0.01, 1), min_size=6, max_size=6))
def test_a_pair_says_nothing_that_one_of_its_columns_says(shares):
    shares = np.array(shares) / np.sum(shares)
    basis = basis_of(PAIR, shares, 0.0, is_number=False)
    said = (0.5 * basis.directions).reshape(2, 3, -1) * shares.reshape(2, 3, 1)
    assert said.shape[-1] <= (2 - 1) * (3 - 1)
    assert np.abs(said.sum(axis=0)).max() < 1e-12
    assert np.abs(said.sum(axis=1)).max() < 1e-12
    variance = (np.square(0.5 * basis.directions) * shares[:, None]).sum(axis=0)
    assert variance == pytest.approx(basis.variances)


def test_a_prior_of_a_pair_is_that_of_a_column_times_its_own():
    shares = np.full(6, 1 / 6)
    once, four = (basis_of(replace(PAIR, prior=prior), shares, 0.0, is_number=False).variances for prior in (1.0, 4.0))
    assert len(once) == 2
    assert four == pytest.approx(4 * once)


@pytest.mark.parametrize("is_classifier", [True, False])
def test_a_pair_is_learned_that_no_column_says(is_classifier):
    """With the cells the descent finds it, and without them, the control, it does not."""
    random = np.random.default_rng()
    first, second = random.choice(2, 20_000), random.choice(3, 20_000)
    height = np.where((first == 1) == (second == 2), 1.0, -1.0)
    noise = random.logistic(size=20_000)
    labels = np.where(2 * height + noise > 0, 1.0, -1.0) if is_classifier else np.clip(0.5 * height, -1, 1)
    rows = paired(first, second)

    def fits(features, blocks):
        facts = Facts(20_000, features.shape[1], is_classifier=is_classifier, blocks=blocks)
        made = plan(Request(1.0, 1e-6, algorithm="private_splines"), facts)
        scores = features @ made.run(RowsInPlaces(features, labels, blocks), silent).models[0]
        return np.mean((scores > 0) == (labels > 0))

    assert usually(lambda: fits(rows, PAIRED) > 0.8)
    columns = RowBlocks(PAIRED.blocks[:2], PAIRED.radius)
    assert fits(np.delete(rows, np.s_[5:11], axis=1), columns) < 0.75


def test_a_share_for_a_table_of_scores_is_refused_for_numbers():
    """It would have no effect: numbers have a table of residuals."""
    with pytest.raises(ValueError, match=r"evaluation_share = 0\.1 is for classes, and the label is a number"):
        planned(is_classifier=False, settings='{"evaluation_share": 0.1}')


@pytest.mark.parametrize("size", [1e308, 1e-320])
def test_a_step_beyond_the_floats_is_refused(size):
    with pytest.raises(ValueError, match=r"step_size = .* must be between"):
        planned(step_size=size)


def test_options_of_one_class_are_refused_for_several():
    with pytest.raises(ValueError, match=r"several classes together, does not support positive_weight .*huber_svm"):
        planned(outputs=3, positive_weight=2.0)
    with pytest.raises(ValueError, match=r"a label of several classes does not support monotone .*leave it out"):
        planned(outputs=3, monotone='{"a": 1}')


REFUSED = {
    "a pure guarantee": ({}, {"delta": 0.0}, "it adds Gaussian noise"),
    "an array": ({"blocks": None}, {}, "it has a curve for each column, and the feature is an array"),
    "a projection": ({}, {"projection_dimension": 3, "projection_seed": 1}, "a projection mixes its columns"),
    "no intercept": ({"intercept": False}, {}, "the dataset has no intercept"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_splines_cannot_learn_is_refused_with_the_default(case):
    facts, given, message = REFUSED[case]
    request = Request(**{"epsilon": 1.0, "delta": 1e-6, "algorithm": "private_splines"} | given)
    made = replace(Facts(20_000, DIMENSION, blocks=BLOCKS), **facts)
    with pytest.raises(ValueError, match=f"{message}.*; choose algorithm => 'auto'"):
        plan(request, made)
    plan(replace(request, algorithm="auto"), made)
