"""Rows in places against the coordinates that they stand for: the same sums, scores, lengths and moments."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from dbdp.algorithms.noisy_sums import Summed, measured_sensitivity
from dbdp.learning.counts.entry_moments import FINEST_GRID, EntryMoment, grid_of
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic
from dbdp.learning.objectives import Additive, Linear, Softmax, objective_from
from dbdp.learning.rows import blocks, encoding, placed
from dbdp.learning.rows.column_blocks import (
    CATEGORY,
    CURVE,
    INDICATOR,
    ColumnBlock,
    Placed,
    RowBlocks,
    placed_from,
    row_blocks_from,
)
from dbdp.learning.rows.encoding import ColumnEncoder, RealLabels, VectorEncoder
from dbdp.learning.rows.features import ASINH, CENTRED, SCALED, UNIT, Categorical, Numeric
from dbdp.learning.rows.pairs import Pair, Side
from dbdp.learning.rows.placed_encoding import in_places

CURVES = (ColumnBlock(CURVE, 8), ColumnBlock(CURVE, 3))
OTHERS = (ColumnBlock(CATEGORY, 4), ColumnBlock(INDICATOR, 1, -1.0), ColumnBlock(CATEGORY, 6, size=0.5, groups=2))
SOME = [RowBlocks(CURVES + OTHERS, math.sqrt(5.25)), RowBlocks(CURVES[:1], math.sqrt(2.0))]
SOME.append(RowBlocks((*CURVES, *OTHERS) * 6, math.sqrt(6 * 4.25 + 1)))
SOME.append(RowBlocks((*OTHERS, *CURVES, ColumnBlock(INDICATOR, 1)), 1.0))
NAMES = ["mixed", "one column", "many columns", "of norm 1"]
OF_SOME = pytest.mark.parametrize("rows_of", SOME, ids=NAMES)


def drawn(rows_of, count=203, *, is_number=False):
    """Rows in places, their coordinates by definition, and labels; zero rows, and places at the ends, among them."""
    random = np.random.default_rng()
    places = random.random((count, rows_of.places)) * (np.array(rows_of.sizes) - 1)
    for place, block in enumerate(rows_of.blocks, start=1):
        if block.kind == CATEGORY:
            places[:, place] = random.integers(0, block.cells, count)
    places[: count // 10, 1:] = np.array(rows_of.sizes[1:]) - 1
    places[count // 10 : count // 5, 1:] = 0
    places[:, 0] = 1
    places = np.rint(places / placed.FINEST) * placed.FINEST
    if rows_of.is_unit:
        norms = np.linalg.norm(coordinates(places, rows_of), axis=1)
        places[:, 0] = (encoding.SHRINK / norms).astype(np.float32)
    labels = random.uniform(-1, 1, count) if is_number else random.choice([-1.0, 1.0], count)
    places[-7:], labels[-7:] = 0, 0
    rows = blocks.encode(places, labels)
    return rows, coordinates(rows[:, : rows_of.places].astype(float), rows_of), labels


def coordinates(places, rows_of):
    """The coordinates of rows in places, column by column."""
    columns = []
    for place, block in enumerate(rows_of.blocks, start=1):
        at = places[:, [place]]
        if block.kind == CURVE:
            columns.append(np.maximum(0, 1 - np.abs(at - np.arange(block.width))))
        elif block.kind == CATEGORY:
            columns.append(block.size * (at == np.arange(block.width)))
        else:
            columns.append(block.least + (block.size - block.least) * at)
    return np.hstack([*columns, np.ones((len(places), 1))]) * places[:, [0]] / rows_of.radius


def turned(dimension):
    """A matrix of norm just below 1."""
    matrix = np.random.default_rng().normal(size=(dimension, dimension))
    return matrix / np.linalg.norm(matrix, 2) / 1.0001


@OF_SOME
@pytest.mark.parametrize("loss", [Logistic(), HuberSvm(0.5), HuberRegression(0.2)], ids=lambda loss: loss.name)
def test_rows_in_places_have_the_sums_of_their_coordinates(rows_of, loss):
    """With and without clipping; a zero row adds nothing, although its label is valid for a number."""
    rows, features, labels = drawn(rows_of, is_number=not loss.is_classifier)
    assert np.linalg.norm(features, axis=1).max() <= 1
    model = np.random.default_rng().normal(size=rows_of.dimension)
    lengths = (np.linalg.norm(features, axis=1) + 1e-3).astype(np.float32)
    objective = Additive(Linear(loss, rows_of.dimension), rows_of)
    for clip in (0.05, 1e6):
        found = objective.gradient_sum(model, rows, clip=clip, lengths=lengths)
        dense = encoding.pack(features.copy(), labels)
        expected = Linear(loss, rows_of.dimension).gradient_sum(model, dense, clip=clip, lengths=lengths)
        assert found == pytest.approx(expected, abs=1e-5 * len(rows))
        assert np.abs(found).max() > 1e-3
        nothing = objective.gradient_sum(model, rows[-7:], clip=clip, lengths=lengths[-7:])
        assert not nothing.any()
    assert placed.scores(np.stack([model, -model]), rows, rows_of) == pytest.approx(
        features @ np.stack([model, -model]).T, abs=1e-12
    )


@pytest.mark.parametrize("kind", ["softmax", "one against the rest"])
@pytest.mark.parametrize("rows_of", SOME[::3], ids=NAMES[::3])
def test_sums_of_several_classes_are_those_of_coordinates(rows_of, kind):
    """Labels that are no class add nothing."""
    rows, features, _ = drawn(rows_of)
    labels = np.random.default_rng().integers(0, 4, len(rows)).astype(float)
    rows[:-7, -1] = labels[:-7]
    dimension, lengths = rows_of.dimension, (np.linalg.norm(features, axis=1) + 1e-3).astype(np.float32)
    of = Softmax(dimension, 3) if kind == "softmax" else Linear(HuberSvm(0.5), dimension, 3)
    model = np.random.default_rng().normal(size=3 * dimension)
    dense = encoding.pack(features.copy(), rows[:, -1].astype(float))
    for clip in (0.05, 1e6):
        found = Additive(of, rows_of).gradient_sum(model, rows, clip=clip, lengths=lengths)
        assert found == pytest.approx(of.gradient_sum(model, dense, clip=clip, lengths=lengths), abs=1e-5 * len(rows))
    beyond = rows[:, -1] < 1
    assert not Additive(of, rows_of).gradient_sum(model, rows[beyond], clip=1.0, lengths=lengths[beyond]).any()


@OF_SOME
@pytest.mark.parametrize("rank", [0, 1, 11])
def test_a_length_is_a_bound_that_is_hardly_above(rows_of, rank):
    """For a matrix from its factors: the square of a direct one less that of one of low rank."""
    rows, features, _ = drawn(rows_of)
    less, matrix = np.random.default_rng().normal(size=(rank, rows_of.dimension)) / 10, turned(rows_of.dimension)
    direct = np.linalg.cholesky(matrix.T @ matrix + less.T @ less).T
    factors = np.vstack([direct, less])
    bounds = placed.lengths(rows, factors, rows_of)
    exact = np.linalg.norm(features @ matrix.T, axis=1)
    assert (bounds >= exact).all()
    assert np.square(bounds) == pytest.approx(np.square(exact), rel=6e-6, abs=1e-10 * np.square(factors).sum())


@OF_SOME
def test_lengths_of_products_are_bounds_hardly_above(rows_of):
    rows, features, _ = drawn(rows_of)
    matrix = turned(rows_of.dimension)
    bounds = placed.measured(rows, Placed(rows_of, matrix.T @ matrix, squared=True))
    exact = np.linalg.norm(features @ matrix.T, axis=1)
    assert (bounds >= exact).all()
    assert bounds == pytest.approx(exact, rel=3e-6, abs=1e-5)
    assert (placed.measured(rows, Placed(rows_of, matrix)) >= exact).all()


@OF_SOME
@pytest.mark.parametrize("grid", [1 << 22, 1 << 7])
def test_a_moment_is_that_of_whole_coordinates(rows_of, grid):
    """Of coordinates in whole numbers of 1/grid, rounded towards 0, which makes no row longer.

    A few coordinates next to a whole number may be rounded the other way here.
    """
    rows, features, _ = drawn(rows_of)
    whole = np.trunc(features * (1 + 2.0**-50) * grid).astype(np.int64)
    expected = whole.T @ whole
    found = EntryMoment(grid, **rows_of.as_data()).of_rows(rows)
    above = expected[np.triu_indices(rows_of.dimension, 1)]
    assert np.abs(found - np.concatenate([np.diagonal(expected), above])).max() <= 8 * grid
    assert np.square(whole).sum(axis=1).max() <= grid**2
    assert found[: rows_of.dimension].sum() > len(rows) * grid**2 / 2


def test_a_tally_of_moments_has_room_for_all_rows():
    for rows in (1, 1000, 2**19, 2**31 - 1, 2**40):
        assert rows * grid_of(rows) ** 2 < 2**63
        assert grid_of(rows) == FINEST_GRID or 16 * rows * grid_of(rows) ** 2 >= 2**62


@OF_SOME
def test_the_moment_of_steps_is_that_of_rounded_coordinates(rows_of):
    rows, features, _ = drawn(rows_of, 3000)
    matrix = turned(rows_of.dimension)[: rows_of.dimension - 1]
    moved = features @ matrix.T
    length = float(np.median(np.linalg.norm(moved, axis=1)))
    found = placed.moment_of_steps(rows, matrix, rows_of, length)
    scaled = moved * placed.STEP / length
    most = placed.STEP - math.sqrt(len(matrix)) / 2 - 2.0**-20
    cut = np.rint(scaled * np.minimum(1, most / np.maximum(np.linalg.norm(scaled, axis=1), 1e-9))[:, None])
    assert np.abs(found - cut.T @ cut).max() <= 2 * placed.STEP  # one coordinate may be rounded the other way
    assert np.linalg.norm(cut, axis=1).max() <= placed.STEP
    assert np.trace(found) > len(rows) * placed.STEP**2 / 4


def test_no_bytes_make_a_kernel_read_elsewhere():
    """Rows of arbitrary floats, NaN and infinity among them, and of other layouts, which are refused."""
    rows_of, random = SOME[0], np.random.default_rng()
    rows = np.frombuffer(random.bytes(4 * 16 * 4096), np.float32).reshape(-1, 16)[:, : blocks.stride_of(rows_of.places)]
    rows = np.ascontiguousarray(rows)
    rows[::2, 0] = 1.0
    with np.errstate(all="ignore"):
        objective = Additive(Linear(Logistic(), rows_of.dimension), rows_of)
        found = objective.gradient_sum(np.ones(rows_of.dimension), rows, clip=1.0, lengths=np.ones(4096, np.float32))
        placed.lengths(rows, np.eye(rows_of.dimension), rows_of)
        placed.lengths_of_products(rows, np.eye(rows_of.dimension), rows_of)
        EntryMoment(1 << 20, **rows_of.as_data()).of_rows(rows)
    assert len(found) == rows_of.dimension
    with pytest.raises(ValueError, match="do not have the 8 of their layout"):
        placed.scores(np.ones((1, rows_of.dimension)), np.zeros((3, 16), np.float32), rows_of)


def test_blocks_and_objectives_survive_a_text():
    rows_of = SOME[0]
    for of in (Linear(HuberRegression(0.3), rows_of.dimension), Softmax(rows_of.dimension, 3)):
        text = json.dumps(of.as_data() | {"rows_of": rows_of.as_data()})
        assert objective_from(text) == Additive(of, rows_of)
    assert row_blocks_from(**json.loads(json.dumps(rows_of.as_data()))) == rows_of
    for squared in (False, True):
        by = Placed(rows_of, np.eye(rows_of.dimension), squared)
        read = placed_from(by.as_text(), by.factors.tobytes())
        assert (read.rows_of, read.squared) == (rows_of, squared)
        assert (read.factors == by.factors).all()


@pytest.mark.parametrize("encoding_of", [SCALED, CENTRED, UNIT])
def test_the_encoder_packs_the_coordinates_of_the_dense_one(encoding_of):
    """Curves on both scales, bins, plain numbers, NULLs with an indicator, a category and a pair; no row above 1."""
    numeric = (
        Numeric("a", -2.0, 5.0, knots=8, missing=1.0, indicator=True),
        Numeric("b", 0.0, 1e7, knots=40, scale=ASINH),
        Numeric("c", 0.0, 3.0, bins=3),
        Numeric("d", 0.0, 1.0, missing=0.5),
        Numeric("f", -3.0, 0.5, scale=ASINH),
    )
    category = Categorical("e", ("u", "v", "w"))
    pair = Pair(Side.of(0, numeric[0], 2), Side.of(5, category, 3), 0.5)
    labels = RealLabels(-1.0, 1.0)
    dense = ColumnEncoder(numeric, ((4.0, 2.0, 7.0),), True, labels, encoding=encoding_of, pairs=(pair,))
    least, of_number = (-1.0 if encoding_of == CENTRED else 0.0), (0.0 if encoding_of == SCALED else -1.0)
    kinds = [ColumnBlock(CURVE, 8), ColumnBlock(INDICATOR, 1), ColumnBlock(CURVE, 40), ColumnBlock(CATEGORY, 3)]
    kinds += [ColumnBlock(INDICATOR, 1, least), ColumnBlock(INDICATOR, 1, of_number)]
    kinds += [ColumnBlock(CATEGORY, 3), ColumnBlock(CATEGORY, 6, size=0.5)]
    rows_of = RowBlocks(tuple(kinds), dense.radius)
    random = np.random.default_rng()
    records = np.zeros(500, encoding.record_layout(dense))
    records["label"], records["header"] = random.uniform(-1.5, 1.5, 500), (1, 0, 701, 6, 1)
    values = [random.uniform(-3, 6, 500), 10 ** random.uniform(-2, 8, 500), random.uniform(-1, 4, 500)]
    values += [random.integers(0, 2, 500), random.uniform(-4, 1, 500), random.choice([2.0, 4, 7, 9], 500)]
    records["elements"] = np.column_stack(values)
    records["elements"][random.random((500, 6)) < 0.04] = np.nan
    records["header"][:20, 0], records["label"][20:40] = -1, np.nan
    packed, expected = in_places(dense).rows(records.tobytes()), dense.rows(records.tobytes())
    found = coordinates(packed[:, : rows_of.places].astype(float), rows_of)
    assert found == pytest.approx(expected[:, : dense.dimension], abs=4e-6)
    assert (packed[:, -1] == expected[:, -1]).all()
    assert 200 < np.count_nonzero(packed[:, 0]) < 480
    assert packed.shape[1] < expected.shape[1]
    squares = [sum(Fraction(each) ** 2 for each in row) for row in found[:100]] if encoding_of == UNIT else []
    assert all(1 - Fraction(2) ** -20 < square <= 1 for square in squares if square)


def test_rows_in_places_are_of_columns_with_an_intercept():
    number = Numeric("x", 0.0, 1.0)
    for other in (VectorEncoder(3, 1.0, True), ColumnEncoder((number,), (), False)):
        with pytest.raises(ValueError, match="in_places needs columns and an intercept"):
            in_places(other)


@OF_SOME
def test_the_margin_of_a_step_covers_the_rounding_of_cells(rows_of):
    """Every row has the slope -1: sums of parts err by their additions, and coordinates by those of their cells."""
    rows, features, _ = drawn(rows_of, 2000)
    rows[:, -1] = rows[:, 0] > 0
    objective, lengths = Additive(Linear(HuberSvm(), rows_of.dimension), rows_of), np.ones(2000, np.float32)
    computed = objective.gradient_sum(np.zeros(rows_of.dimension), rows, clip=2.0, lengths=lengths)
    errors = computed + [math.fsum(column) for column in features.T]
    margin = measured_sensitivity(2.0, 1.0, 2000, rows_of.dimension, rows_of=rows_of) - 4.0
    assert 2 * np.linalg.norm(errors) <= margin
    assert errors.any() or not rows_of.is_unit  # sums of multiples of 2⁻²⁰ are exact
    assert rows_of.is_unit == (margin > 3 * Summed.by_blocks(2000, rows_of.places).error(1.0))
