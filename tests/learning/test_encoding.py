"""Every packed row has norm at most 1 as real numbers, and is a function of its record alone."""

from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy_kernel import kernel
from pairs import pairwise

from dbdp.learning import kernels
from dbdp.learning.losses import Logistic
from dbdp.learning.rows import blocks, encoding
from dbdp.learning.rows.encoding import (
    HEADER_BYTES,
    ColumnEncoder,
    IntegerLabels,
    RandomProjection,
    RealLabels,
    VectorEncoder,
    image,
)
from dbdp.learning.rows.features import Numeric

pytestmark = pytest.mark.usefixtures("packer")

WIDEST = st.floats(allow_nan=True, allow_infinity=True)
EXTREMES = [0.0, -0.0, 5e-324, -5e-324, 1e-310, 2.2e-308, 1e-45, 1e-39, 1.0, -1.0, 1e154, 1e200, 1e308, -1e308]
COLUMN_VALUES = st.sampled_from([*EXTREMES, 3.0, -7.0, 11.0, np.nan])
NUMBERS = (Numeric("a", 0.0, 10.0), Numeric("b", -5.0, 5.0))
COLUMNS = ColumnEncoder(NUMBERS, ((3.0, -7.0, 0.0), (11.0,)), intercept=True)


def records(elements, labels=None, *, header=None, element="<f8", label="<i4"):
    """Records as the server hands them out: label, array header, elements."""
    elements = np.atleast_2d(elements)
    layout = [("label", label), ("header", "<i4", (5,)), ("elements", element, (elements.shape[1],))]
    encoded = np.zeros(len(elements), layout)
    encoded["label"] = 1 if labels is None else labels
    encoded["header"] = header or (1, 0, 701, elements.shape[1], 1)
    encoded["elements"] = elements
    return encoded.tobytes()


def vector(length, *, norm_bound=1.0, intercept=False, element="<f8"):
    return VectorEncoder(length, norm_bound, intercept, element)


def norm_squared(row):
    """The exact one of what is stored, label apart."""
    return sum(Fraction(float(value)) ** 2 for value in row[:-1])


def just_above_norm_one(count, length):
    directions = np.random.default_rng().normal(size=(count, length))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * (1 + np.random.default_rng().integers(0, 64, (count, 1)) * 2.0**-52)


def difficult_rows(count, length):
    random = np.random.default_rng()
    return np.concatenate(
        [
            just_above_norm_one(count, length),
            random.choice(EXTREMES, (count, length)),
            random.normal(size=(count, length)) * 10.0 ** random.uniform(-320, 307, (count, length)),
            random.normal(size=(count, length)) * 10.0 ** random.uniform(-3, 3, (count, 1)),
        ]
    )


@pytest.mark.parametrize("intercept", [False, True])
def test_the_stored_norm_is_at_most_one_exactly(intercept):
    for length in (1, 2, 7, 54):
        rows = vector(length, intercept=intercept).rows(records(difficult_rows(100, length)))
        assert max(map(norm_squared, rows)) <= 1


@given(elements=hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 9)), elements=WIDEST))
def test_no_record_at_all_is_stored_with_a_norm_above_one(elements):
    for encode in (vector, unit):
        rows = encode(elements.shape[1], norm_bound=0.3, intercept=True).rows(records(elements))
        assert np.isfinite(rows).all()
        assert max(map(norm_squared, rows)) <= 1
    whole = (np.abs(elements) < 1e307).all(axis=1)  # whose shares of the bound are finite
    for row in rows[whole]:
        assert_norm_is_one(row)


def test_plain_division_by_the_norm_would_store_norms_above_one():
    rows = just_above_norm_one(500, 7)
    plain = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    assert any(sum(Fraction(float(value)) ** 2 for value in row) > 1 for row in plain)


def test_a_long_row_keeps_its_direction_and_norm_one():
    rows = vector(3).rows(records([[3e200, 0.0, -4e200]]))
    assert rows[0, :3] == pytest.approx([0.6, 0.0, -0.8], rel=1e-6)
    assert norm_squared(rows[0]) > 1 - Fraction(1, 10**6)


def test_every_packed_row_is_one_that_the_kernels_count():
    rows = vector(7, intercept=True).rows(records(just_above_norm_one(200, 7)))
    _, labels = kernels.labelled(Logistic(), 0, rows, 8)
    assert (labels == 1).all()


def test_a_vector_is_divided_by_bound_and_intercept():
    expected = np.array([[0.25 / np.sqrt(2), -0.5 / np.sqrt(2), 1 / np.sqrt(2), 1.0]])
    rows = vector(2, norm_bound=4.0, intercept=True).rows(records([[1.0, -2.0]]))
    assert rows[:, [0, 1, 2, -1]] == pytest.approx(expected, rel=1e-6)


def test_without_an_intercept_no_coordinate_is_added():
    rows = vector(2, norm_bound=4.0).rows(records([[1.0, -2.0]], [-1]))
    assert rows[0, :3] == pytest.approx([0.25, -0.5, 0.0], rel=1e-6)
    assert rows[0, -1] == -1


@pairwise(intercept=[False, True], kind=["scaled", "centred", "unit"], length=[1, 7, 8, 54])
def test_records_are_packed_alike_directly_and_by_features(length, kind, intercept):
    """Records are packed to their places bit for bit as through an array of features."""
    elements = difficult_rows(50, length)
    raw = bytearray(records(np.where(np.abs(elements) < 2.0**-1022, 0.0, elements)))  # which count as 0
    encoder = VectorEncoder(length, 0.7, intercept, encoding=kind)
    for row, (place, byte) in enumerate([(0, 9), (4, 2), (8, 20), (16, 200), (4, 0)]):  # labels and headers of no kind
        raw[row * encoder.record_bytes + place] = byte
    places = np.random.default_rng().permutation(300)[:200]
    direct, through = np.zeros((2, 300, blocks.stride_of(encoder.dimension)), np.float32)
    with kernel(compiled=True):
        encoder.write(bytes(raw), direct, places)
        with patch.object(VectorEncoder, "_packs_directly", False):
            encoder.write(bytes(raw), through, places)
        for wrong in (places[1:], places + 101, places - 1 - places.min()):
            with pytest.raises(ValueError, match=r"fit|places"):
                encoder.write(bytes(raw), direct, wrong)
    assert direct.tobytes() == through.tobytes()
    assert not direct[places[:5]].any()
    assert direct[places[5:]].any(axis=1).sum() > 100


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_makes_the_zero_row(bad):
    for encoder in (vector(4, intercept=True), projecting(4, projection=RandomProjection(2, 1)), COLUMNS, UNITED):
        for place in range(4):
            elements = np.full((2, 4), 0.25)
            elements[1, place] = bad
            assert encoder.rows(records(elements)).any(axis=1).tolist() == [True, False]


@pytest.mark.parametrize(
    "header",
    [
        pytest.param((1, 48, 701, 4, 1), id="holds a null"),
        pytest.param((0, 0, 701, 4, 1), id="is empty"),
        pytest.param((2, 0, 701, 4, 1), id="has two dimensions"),
        pytest.param((1, 0, 701, 3, 1), id="is shorter"),
        pytest.param((1, 0, 701, 5, 1), id="is longer"),
    ],
)
def test_an_array_of_another_shape_makes_the_zero_row(header):
    for encoder in (vector(4, intercept=True), COLUMNS):
        assert not encoder.rows(records(np.zeros(4), header=header)).any()
        assert encoder.rows(records(np.zeros(4))).any()


def test_a_label_that_is_none_of_the_declared_makes_the_zero_row():
    for label in (0, 2, -2, 2**31 - 1, -(2**31)):
        for encoder in (vector(4, intercept=True), COLUMNS):
            assert not encoder.rows(records(np.zeros(4), [label])).any()


def test_a_record_of_bytes_zero_makes_the_zero_row():
    for encoder in (vector(4, intercept=True), COLUMNS):
        assert not encoder.rows(bytes(encoder.record_bytes)).any()


def test_a_part_of_a_record_is_refused():
    for encoder in (vector(4), COLUMNS):
        with pytest.raises(ValueError, match="size"):
            encoder.rows(bytes(encoder.record_bytes - 1))


def test_a_record_is_as_long_as_it_says():
    assert vector(4).record_bytes == len(records(np.zeros(4))) == 4 + HEADER_BYTES + 32
    assert vector(4, element="<f4").record_bytes == len(records(np.zeros(4), element="<f4"))
    assert COLUMNS.record_bytes == len(records(np.zeros(4)))


def test_minus_zero_is_zero():
    for encoder in (vector(4, intercept=True), COLUMNS):
        plus, minus = (encoder.rows(records(np.full(4, zero))) for zero in (0.0, -0.0))
        assert (plus == minus).all()


def test_single_precision_arrays_are_read_as_they_are():
    elements = np.array([[0.1, -0.2, 0.3]], np.float32)
    single = vector(3, norm_bound=2.0, element="<f4").rows(records(elements, element="<f4"))
    double = vector(3, norm_bound=2.0).rows(records(elements.astype(np.float64)))
    assert (single == double).all()


def coordinates(*values):
    return COLUMNS.rows(records(values))[0, :7] * COLUMNS.radius


def test_columns_have_the_coordinates_of_their_declaration():
    """Numbers from 0 to 1; a place for each category in its order, of which an unknown one has none; no row is long."""
    assert coordinates(2.5, 0.0, 3.0, 11.0)[:2] == pytest.approx([0.25, 0.5], rel=1e-6)
    assert coordinates(-1e300, 1e300, 3.0, 11.0)[:2] == pytest.approx([0.0, 1.0], rel=1e-6)
    for place, number in enumerate((3.0, -7.0, 0.0)):
        assert coordinates(0.0, -5.0, number, 11.0)[2:6] == pytest.approx([*np.eye(3)[place], 1.0], rel=1e-6)
    for unknown in (2.0, -8.0, 3.0000000000000004, 1e300, 11.0):
        assert coordinates(5.0, 5.0, unknown, 11.0) == pytest.approx([0.5, 1, 0, 0, 0, 1, 1], rel=1e-6)
    assert coordinates(10.0, 5.0, 3.0, 11.0) == pytest.approx([1, 1, 1, 0, 0, 1, 1], rel=1e-6)


def test_columns_are_stored_with_norm_at_most_one_exactly():
    elements = np.random.default_rng().choice([0.0, 10.0, 5.0, 3.0, 11.0, 1e308, -1e308], (500, 4))
    assert max(map(norm_squared, COLUMNS.rows(records(elements)))) <= 1


@given(data=st.data(), length=st.integers(1, 40))
def test_a_rows_encoding_does_not_depend_on_the_other_rows(data, length):
    encoder = vector(length, intercept=data.draw(st.booleans()))
    seen, other = (data.draw(hnp.arrays(np.float64, (3, length), elements=WIDEST)) for _ in range(2))
    alone = encoder.rows(records(seen))
    among = encoder.rows(records(np.concatenate([other, seen, other[:1]])))
    assert among[3:6].tobytes() == alone.tobytes()


@given(rows=st.lists(st.tuples(*[COLUMN_VALUES] * 4), min_size=1, max_size=6))
def test_a_row_of_columns_does_not_depend_on_the_other_rows(rows):
    together = COLUMNS.rows(records(rows))
    assert [row.tobytes() for row in together] == [COLUMNS.rows(records(row)).tobytes() for row in rows]


def packed_by_both(features, labels, least):
    """The packed rows by the compiled kernel, and by NumPy."""
    for compiled in (True, False):
        with kernel(compiled=compiled):
            yield encoding.pack(features.copy(), labels, least)


@pytest.mark.parametrize("dimension", [1, 7, 8, 54])
@pytest.mark.parametrize("least", [1.0, 0.0], ids=["clipped", "of norm one"])
def test_both_packers_agree_to_the_last_place_of_float32(dimension, least):
    features, labels = difficult_rows(100, dimension), np.random.default_rng().choice([-1, 0, 1], 400)
    features[::7, 0] = np.nan
    packed, expected = packed_by_both(features, labels, least)
    assert (packed[:, -1] == expected[:, -1]).all() and (packed.any(axis=1) == expected.any(axis=1)).all()
    assert (np.abs(packed - expected) <= (np.spacing(np.abs(expected)) if least else 1e-6)).all()


CLASSES = VectorEncoder(2, 1.0, True, labels=IntegerLabels(1, 3))
BOUNDED = VectorEncoder(2, 1.0, True, labels=RealLabels(-10.0, 30.0))


def real_rows(values, encoder=BOUNDED):
    return encoder.rows(records(np.full((len(values), 2), 0.5), values, label=">f8"))


def test_classes_are_packed_by_their_numbers():
    """Classes are packed by their numbers and any other is the zero row."""
    labels = [1, 2, 3, 0, 4, -1, 2**31 - 1, -(2**31)]
    rows = CLASSES.rows(records(np.full((8, 2), 0.5), labels))
    assert rows[:, -1].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    assert rows.any(axis=1).tolist() == [True] * 3 + [False] * 5


def test_a_number_is_mapped_to_the_unit_interval():
    values = [-10.0, 30.0, 10.0, 0.0, -11.0, 31.0, 1e308, -1e308]
    assert real_rows(values)[:, -1] == pytest.approx([-1, 1, 0, -0.5, -1, 1, 1, -1])
    assert real_rows(values).any(axis=1).all()  # a label of 0 is a label like any other


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_label_that_is_no_number_makes_the_zero_row(bad):
    assert not real_rows([bad]).any()
    assert not VectorEncoder(2, 1.0, True, labels=RealLabels(0.0, 1.0)).rows(bytes(28 + 16)).any()


@given(
    bounds=st.tuples(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100)).filter(lambda b: b[1] - b[0] >= 1e-100),
    value=st.floats(allow_nan=False),
)
def test_no_packed_label_is_outside_the_unit_interval(bounds, value):
    packed = real_rows([value, *bounds], VectorEncoder(2, 1.0, True, labels=RealLabels(*bounds)))[:, -1]
    assert (np.abs(packed) <= 1).all()
    assert packed[1:].tolist() == [-1, 1]


def test_records_of_numbers_are_as_long_as_they_say():
    assert BOUNDED.record_bytes == len(records(np.zeros(2), [0.5], label=">f8")) == 8 + HEADER_BYTES + 16


MAP = RandomProjection(dimension=5, seed=7)
WIDE = 40


def projecting(length=WIDE, *, projection=MAP, intercept=True, norm_bound=1.0):
    return VectorEncoder(length, norm_bound, intercept, projection=projection)


def test_the_map_is_numpys_frozen_gaussian():
    """The map is numpys frozen gaussian over the root of its dimension."""
    expected = np.random.RandomState(7).standard_normal((WIDE, 5)) / np.sqrt(5)
    assert np.abs(MAP.matrix(WIDE) - expected).max() < 1e-6
    assert np.random.RandomState(7).standard_normal(2) == pytest.approx([1.6905257038, -0.46593737], rel=1e-6)
    assert np.abs(RandomProjection(dimension=5, seed=8).matrix(WIDE) - expected).max() > 0.1


@pytest.mark.parametrize("intercept", [False, True])
def test_a_row_is_scaled_clipped_projected_and_clipped_again(intercept):
    random = np.random.default_rng()
    features = random.normal(size=(50, WIDE)) * random.uniform(0, 0.5, size=(50, 1))
    encoder = projecting(norm_bound=2.0, intercept=intercept)
    scaled = np.hstack([features / 2, np.ones((50, int(intercept)))]) / (np.sqrt(2) if intercept else 1)
    scaled /= np.maximum(1, np.linalg.norm(scaled, axis=1))[:, None]
    expected = np.hstack([scaled[:, :WIDE] @ MAP.matrix(WIDE), scaled[:, WIDE:]])
    expected /= np.maximum(1, np.linalg.norm(expected, axis=1))[:, None]
    rows = encoder.rows(records(features))
    assert encoder.dimension == 5 + intercept
    assert np.abs(rows[:, : 5 + intercept] - expected).max() < 1e-6
    assert (rows[:, -1] == 1).all()


def test_columns_are_projected_after_their_indicators():
    encoder = ColumnEncoder(NUMBERS, ((3.0, -7.0, 0.0), (11.0,)), True, projection=MAP)
    plain = COLUMNS.rows(records([2.5, 0.0, 3.0, 11.0]))[0].astype(np.float64)
    expected = np.append(plain[:6] @ MAP.matrix(6), plain[6])
    assert np.abs(encoder.rows(records([2.5, 0.0, 3.0, 11.0]))[0, :6] - expected).max() < 1e-6


@pytest.mark.parametrize("intercept", [False, True])
def test_the_norm_of_a_projected_row_is_at_most_one_exactly(intercept):
    rows = projecting(7, projection=RandomProjection(3, 1), intercept=intercept).rows(records(difficult_rows(100, 7)))
    assert max(map(norm_squared, rows)) <= 1
    assert np.isfinite(rows).all()


def test_a_long_row_is_clipped_before_it_is_projected():
    huge, long = (projecting(intercept=False).rows(records(np.full(WIDE, value))) for value in (1e308, 9.0))
    assert np.abs(huge - long).max() < 1e-6
    assert huge.any()


@given(data=st.data())
def test_the_image_of_a_row_does_not_depend_on_its_chunk(data):
    """Else a wider record would move others to another chunk, and change their last places."""
    length = data.draw(st.integers(2, 300))
    encoder = projecting(length, projection=RandomProjection(data.draw(st.integers(1, 60)), 3))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = random.normal(size=(data.draw(st.integers(2, 70)), length)) / np.sqrt(length)
    together = encoder.rows(records(rows))
    first = data.draw(st.integers(0, len(rows) - 1))
    assert encoder.rows(records(rows[first])).tobytes() == together[first].tobytes()
    assert encoder.rows(records(rows[first:])).tobytes() == together[first:].tobytes()


@pytest.mark.parametrize("length", [1, 3, 300, 20_000])
def test_the_product_is_exact(length):
    """Sums of any order are equal, since none is rounded."""
    random = np.random.default_rng()
    row, matrix = random.normal(size=(1, length)), RandomProjection(2, 5).matrix(length)
    row /= np.linalg.norm(row)
    products = image(row, matrix)  # rounds the row too
    exact = [sum(Fraction(x) * Fraction(r) for x, r in zip(row[0], column, strict=True)) for column in matrix.T]
    assert [Fraction(product) for product in products[0]] == exact
    unrounded = np.random.RandomState(5).standard_normal((length, 2))
    inexact = [sum(Fraction(x) * Fraction(r) for x, r in zip(row[0], column, strict=True)) for column in unrounded.T]
    assert length < 300 or [Fraction(value) for value in (row @ unrounded)[0]] != inexact  # without the rounding


def test_a_projection_that_is_none_is_refused():
    for dimension, seed, named in (
        (0, 1, "dimension of the projection = 0"),
        (-1, 1, "dimension of the projection = -1"),
        (1.5, 1, "dimension of the projection = 1.5"),
        (True, 1, "dimension of the projection = True"),
        ("5", 1, "dimension of the projection = '5'"),
        (2**20 + 1, 1, "dimension of the projection = 1048577"),
        (5, -1, "seed of the projection = -1"),
        (5, 2**32, "seed of the projection = 4294967296"),
        (5, None, "seed of the projection = None"),
    ):
        with pytest.raises(ValueError, match=f"{named} must be a whole number"):
            RandomProjection(dimension, seed)


# --- rows of norm 1, centred numbers, bins and scales -------------------------------------------------------------


def unit(length, *, norm_bound=1.0, intercept=False, element="<f8"):
    return VectorEncoder(length, norm_bound, intercept, element, encoding="unit")


def assert_norm_is_one(row):
    """At most 1, and above 1 - 2⁻²¹."""
    assert (1 - Fraction(1, 2**21)) ** 2 < norm_squared(row) <= 1


@pytest.mark.parametrize("intercept", [False, True])
def test_rows_for_classes_have_norm_one_exactly_or_less(intercept):
    for length in (1, 2, 7, 54):
        elements = np.concatenate([difficult_rows(100, length), np.zeros((1, length))])
        rows = unit(length, intercept=intercept).rows(records(elements))
        longest = np.abs(elements).max(axis=1)
        for row, largest in zip(rows, longest, strict=True):
            assert norm_squared(row) <= 1
            if largest > 1e-280 or intercept:
                assert_norm_is_one(row)
        assert (rows[:, -1] == 1).all()  # a row of zeros keeps its label


def test_a_row_of_norm_one_has_the_direction_that_it_had():
    rows = unit(2, norm_bound=4.0, intercept=True).rows(records([[1.0, -2.0], [1e-9, 0.0]]))
    constant = 2**-0.25
    direction = np.array([0.25, -0.5, constant])
    assert rows[0, :3] == pytest.approx(direction / np.linalg.norm(direction), rel=1e-6)
    assert rows[1, :3] == pytest.approx([0.25e-9 / constant, 0.0, 1.0], rel=1e-6)
    assert not unit(2).rows(records([[0.0, -0.0]]))[0, :-1].any()


@pytest.mark.parametrize("length", [1, 16, 784])
def test_an_arrays_constant_is_between_element_and_array(length):
    """Its length, beside an array as long as the bound, is 1/length^¼: between 1/length^½ and 1."""
    row = unit(length, norm_bound=255.0, intercept=True).rows(records(np.full((1, length), 255 / length**0.5)))[0]
    array, constant = np.linalg.norm(row[:length].astype(float)), float(row[length])
    assert constant / array == pytest.approx(length**-0.25, rel=1e-6)


def test_without_normalisation_rows_would_be_short():
    """The control: what the encoding is for."""
    elements = np.random.default_rng().normal(size=(50, 7)) * 0.05
    assert max(map(norm_squared, vector(7).rows(records(elements)))) < 0.5


BINNED = (Numeric("a", 0.0, 10.0, bins=5), Numeric("b", -5.0, 5.0), Numeric("c", 0.0, 1.0))
UNITED = ColumnEncoder(BINNED, ((3.0, -7.0),), intercept=True, encoding="unit")
CENTRED = ColumnEncoder(BINNED[1:], ((3.0, -7.0),), intercept=True, encoding="centred")


def direction_of(*values):
    row = UNITED.rows(records(values))[0, : UNITED.dimension]
    return row / row[-1]


def bin_of(value):
    return int(direction_of(value, 0.0, 0.0, 3.0)[:5].argmax())


def test_a_number_is_in_one_bin_from_its_edge_on():
    """A number is in one bin from its edge on and beyond the bounds in the last one."""
    inside = [0.0, 1.9, 2.0, 3.999, 4.0, 6.0, 8.0, 9.99, 10.0]
    assert [bin_of(value) for value in inside] == [0, 0, 1, 1, 2, 3, 4, 4, 4]
    assert [bin_of(value) for value in (-1e300, -0.1, 10.1, 1e300)] == [0, 0, 4, 4]
    assert direction_of(3.0, 0.0, 0.0, 3.0)[:5].tolist() == [0, 1, 0, 0, 0]


def test_numbers_of_rows_of_norm_one_are_centred():
    """Numbers of rows of norm one are centred but those from zero to one."""
    assert direction_of(0.0, -5.0, 0.0, 9.0)[5:] == pytest.approx([-1, 0, 0, 0, 1], abs=1e-6)
    assert direction_of(0.0, 1e300, 0.25, -7.0)[5:] == pytest.approx([1, 0.25, 0, 1, 1], abs=1e-6)
    assert_norm_is_one(UNITED.rows(records([3.0, 4.0, 0.7, 3.0]))[0])


def test_centred_rows_are_as_long_as_bounds_allow():
    corners = [[b, c, k] for b in (-5.0, 5.0) for c in (0.0, 1.0) for k in (3.0, -7.0)]
    rows = CENTRED.rows(records(corners))
    for row in rows:
        assert_norm_is_one(row)
    middle = CENTRED.rows(records([0.0, 0.5, 3.0]))[0]
    assert middle[:2].tolist() == [0, 0]
    assert norm_squared(middle) == pytest.approx(1 / 2, rel=1e-5)


@given(
    bounds=st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda b: b[1] - b[0] >= 1e-100),
    bins=st.integers(2, 12),
    scale=st.sampled_from(["linear", "asinh"]),
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
)
def test_every_finite_number_has_one_bin_and_position(bounds, bins, scale, values):
    feature = Numeric("a", *bounds, bins=bins, scale=scale)
    places = encoding.bins_of(feature, np.array([*bounds, *values]))
    assert list(feature.edges) == sorted(feature.edges)
    assert len(feature.edges) == bins - 1
    assert len(feature.names) == bins
    assert (places >= 0).all()
    assert (places < bins).all()
    result = encoding.positions(feature, np.array([*bounds, *values]))
    expected = [feature.position(value) for value in (*bounds, *values)]
    assert result == pytest.approx(expected, rel=1e-12, abs=1e-12)
    for kind in ("scaled", "unit", "centred"):
        origin, length = feature.affine(kind)
        assert (np.abs((result - origin) / length) <= 1 + 1e-12).all()


@given(
    bounds=st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda b: b[1] - b[0] >= 1e-100),
    knots=st.integers(2, 12),
    scale=st.sampled_from(["linear", "asinh"]),
    values=st.lists(st.floats(), min_size=1, max_size=5),
)
def test_every_number_is_between_two_knots(bounds, knots, scale, values):
    feature = Numeric("a", *bounds, knots=knots, scale=scale)
    places, parts = encoding.knots_below(feature, np.array([*bounds, *values]))
    assert ((places >= 0) & (places <= knots - 2)).all()
    assert ((parts >= 0) & (parts <= 1)).all()
    assert (places[:2] + parts[:2]).tolist() == pytest.approx([0, knots - 1], abs=1e-9)
    assert list(feature.values_at_knots) == sorted(feature.values_at_knots)
    assert len(feature.names) == len(feature.positions_of_knots) == knots


def test_coordinates_of_knots_are_hats():
    encoder = ColumnEncoder((Numeric("a", 0.0, 9.0, knots=4),), (), intercept=True, encoding="scaled")
    assert encoder.radius == pytest.approx(2**0.5)
    rows = encoder.rows(records([[0.0], [1.5], [3.0], [7.0], [99.0]]))[:, :4] * encoder.radius
    hats = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 2 / 3, 1 / 3], [0, 0, 0, 1]]
    assert rows == pytest.approx(np.array(hats), abs=1e-6)


def test_the_asinh_bins_grow_away_from_zero():
    feature = Numeric("gain", 0.0, 100_000.0, bins=8, scale="asinh")
    assert np.diff([0.0, *feature.edges, 100_000.0]).tolist() == sorted(np.diff([0.0, *feature.edges, 100_000.0]))
    assert feature.edges[0] < 200
    signed = Numeric("balance", -1e6, 1e6, bins=8, scale="asinh")
    assert signed.edges == pytest.approx([-each for each in reversed(signed.edges)], abs=1e-6)
    assert Numeric("year", 1e6, 2e6, bins=4, scale="asinh").edges[0] > 1e6
