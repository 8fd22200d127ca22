"""Cells of pairs of columns follow from declarations alone, and no row is longer than the declared bound."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.learning.rows import encoding, pairs
from dbdp.learning.rows.encoding import ColumnEncoder
from dbdp.learning.rows.features import Categorical, Numeric
from dbdp.learning.rows.pairs import pair_of, parsed, simple_pairs, weight_of, written

AGE, HOURS, INDICATOR = Numeric("age", 20.0, 100.0), Numeric("hours", 0.0, 99.0, bins=3), Numeric("is_new", 0.0, 1.0)
SEX, GRADE = Categorical("sex", ("f", "m")), Categorical("grade", tuple("abcdefghij"))
FEATURES = (AGE, HOURS, INDICATOR, SEX, GRADE)
NUMBERS = {"sex": (3.0, -7.0), "grade": tuple(float(number) for number in range(10, 20))}
WEIGHT = weight_of(3)
ALL = tuple(pair_of(FEATURES, names, 20, WEIGHT) for names in (("age", "grade"), ("sex", "age"), ("hours", "is_new")))


def encoder(kind, products=ALL, *, intercept=True):
    numeric = (AGE, HOURS, INDICATOR)
    return ColumnEncoder(numeric, (NUMBERS["sex"], NUMBERS["grade"]), intercept, encoding=kind, pairs=products)


def records(values):
    """Records as the server returns them."""
    values = np.atleast_2d(values)
    encoded = np.zeros(len(values), [("label", "<i4"), ("header", "<i4", (5,)), ("elements", "<f8", (5,))])
    encoded["label"], encoded["header"], encoded["elements"] = 1, (1, 0, 701, 5, 1), values
    return encoded.tobytes()


def cells(row, encoding="unit", products=ALL):
    """The coordinates of each pair of one row, in units of the intercept's."""
    used = encoder(encoding, products)
    packed = used.rows(records(row))[0, : used.dimension].astype(float)
    packed /= packed[-1]
    widths = [pair.width for pair in products]
    return np.split(packed[-1 - sum(widths) : -1], np.cumsum(widths)[:-1])


def norm_squared(row):
    return sum(Fraction(float(value)) ** 2 for value in row[:-1])


def test_a_row_is_in_the_cell_of_its_groups_only():
    of_grade, of_sex, of_hours = cells([61.0, 50.0, 1.0, -7.0, 17.0])
    assert (of_grade.argmax(), of_sex.argmax(), of_hours.argmax()) == (1 * 10 + 7, 1 * 8 + 4, 1 * 2 + 1)
    for each in (of_grade, of_sex, of_hours):
        assert np.count_nonzero(each) == 1
        assert each.max() == pytest.approx(WEIGHT, rel=1e-6)


@pytest.mark.parametrize("encoding", ["unit", "centred", "scaled"])
def test_an_unknown_category_is_in_no_cell_of_its_pairs(encoding):
    of_grade, of_sex, of_hours = cells([61.0, 50.0, 1.0, 99.0, 17.0], encoding)
    assert not of_sex.any()
    assert of_grade.any()
    assert of_hours.any()


def test_a_number_beyond_its_bounds_is_in_the_outermost_cell():
    low, high = (cells([value, 50.0, 1.0, 3.0, 10.0])[1].argmax() for value in (-1e300, 1e300))
    assert (low, high) == (0, 7)


def test_a_null_or_infinite_number_makes_the_zero_row():
    for bad in (np.nan, np.inf, -np.inf):
        for place in range(5):
            row = [61.0, 50.0, 1.0, 3.0, 17.0]
            row[place] = bad
            assert not encoder("unit").rows(records(row)).any()


@pytest.mark.parametrize("encoding", ["centred", "scaled"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_declared_norm_is_attained_and_never_exceeded(encoding, intercept):
    """Explicit neighbours: a row at every bound with declared categories, and its mirror image."""
    used = encoder(encoding, intercept=intercept)
    corners = list(product((20.0, 100.0), (0.0, 99.0), (0.0, 1.0), (3.0, -7.0, 99.0), (10.0, 19.0, 99.0)))
    norms = [norm_squared(row) for row in used.rows(records(corners))]
    assert max(norms) <= 1
    assert max(norms) > (1 - Fraction(1, 2**21)) ** 2
    assert used.radius == np.sqrt(5 + 3 * WEIGHT**2 + intercept)
    short = encoder(encoding, (), intercept=intercept).radius
    assert max(norms) * Fraction(used.radius) ** 2 > Fraction(short) ** 2 * (1 + Fraction(1, 100))  # not covered by it


@given(
    values=st.lists(
        st.tuples(
            *[st.floats(allow_nan=True, allow_infinity=True)] * 3, *[st.sampled_from([3.0, -7.0, 12.0, 5.5])] * 2
        ),
        min_size=1,
        max_size=6,
    )
)
@pytest.mark.parametrize("encoding", ["unit", "centred", "scaled"])
def test_no_row_is_longer_than_one_and_none_depends_on_another(encoding, values):
    used = encoder(encoding)
    together = used.rows(records(values))
    assert all(norm_squared(row) <= 1 for row in together)
    alone = np.concatenate([used.rows(records(value)) for value in values])
    assert together.tobytes() == alone.tobytes()


class Counted(np.ndarray):
    """An array that counts how many of its elements are written."""

    written = 0

    def __setitem__(self, key, value):
        Counted.written += np.broadcast(*key).size
        super().__setitem__(key, value)


def written_by(indicate, places):
    Counted.written, coordinates = 0, np.zeros((len(places), 5))
    indicate(np.array(places), WEIGHT, coordinates.view(Counted))
    return Counted.written, coordinates


@pytest.mark.parametrize("places", [[0, 4, 2], [-1, -1, -1], [-1, 3, -1]])
def test_every_row_has_one_coordinate_written(places):
    def write_known(places, value, coordinates):
        (known,) = np.nonzero(places >= 0)
        coordinates[known, places[known]] = value

    count, coordinates = written_by(encoding._indicate, places)
    control, expected = written_by(write_known, places)
    assert coordinates.tolist() == expected.tolist()
    assert count == 3
    assert control == sum(place >= 0 for place in places)


def test_every_cell_of_a_pair_has_a_row_and_a_name():
    pair = pair_of(FEATURES, ("sex", "grade"), 20)
    found = {int(cells([0, 0, 0, s, g], products=(pair,))[0].argmax()) for s, g in product(*NUMBERS.values())}
    assert found == set(range(pair.width)) == set(range(20))
    assert len(set(pair.names)) == 20
    assert pair.names[0] == "sex=f × grade=a"


def test_names_show_bins_categories_and_runs():
    assert pair_of(FEATURES, ("age", "sex"), 20).names[3] == "age=[30,40) × sex=m"
    merged = pair_of(FEATURES, ("grade", "age"), 8)
    assert (merged.first.groups, merged.second.groups) == (2, 4)
    assert merged.names[0] == "grade=a…e × age=[20,40)"


@given(
    cells=st.integers(4, 1000),
    sizes=st.tuples(st.integers(2, 60), st.integers(2, 60)),
    kinds=st.tuples(st.booleans(), st.booleans()),
)
def test_a_pair_has_few_cells_and_runs_of_categories(cells, sizes, kinds):
    """A pair has at most as many cells and categories in runs of their order."""
    columns = [
        Categorical(name, tuple(map(str, range(size)))) if kind else Numeric(name, -3.0, 8.0, bins=size)
        for name, size, kind in zip("ab", sizes, kinds, strict=True)
    ]
    pair = pair_of(columns, ("a", "b"), cells)
    assert pair.width <= cells
    assert len(pair.names) == len(set(pair.names)) == pair.width
    for side, size in zip((pair.first, pair.second), sizes, strict=True):
        assert 2 <= side.groups <= size
        groups = side.group_of_category
        assert groups == sorted(groups)
        assert not groups or set(groups) == set(range(side.groups))
    if sizes[0] * sizes[1] <= cells:
        assert pair.width == sizes[0] * sizes[1]


def test_pairs_with_the_fewest_cells_come_first():
    """Pairs without merged categories come with the fewest cells first."""
    chosen = simple_pairs(FEATURES, 20)
    widths = [pair_of(FEATURES, names, 20).width for names in chosen]
    assert widths == sorted(widths)
    assert ("sex", "grade") in chosen
    assert ("age", "grade") in chosen
    assert ("sex", "grade") not in simple_pairs(FEATURES, 19)


def test_a_column_of_one_category_is_in_no_pair():
    single = Categorical("only", ("x",))
    assert simple_pairs((AGE, single), 20) == []
    with pytest.raises(ValueError, match="'only', which has one category"):
        pairs.checked((AGE, single), [("age", "only")], 20)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=9)


@given(named=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4))
def test_what_is_written_is_parsed_again(named):
    assert parsed(written(named)) == named


def test_a_text_that_names_no_pairs_is_refused():
    for text in ("", "a", "a*", "*a", "a*b*c", "a*b,", "a*b,,c*d", "a b", '"a*b', "a*b c*d", ",", "-1"):
        with pytest.raises(ValueError, match="give auto, chosen, none, how many, or columns"):
            parsed(text)


def test_a_text_beyond_all_tables_is_refused():
    with pytest.raises(ValueError, match="characters, above the limit of 65536"):
        parsed("a*b, " * 20_000)


def test_pairs_that_are_none_of_the_columns_are_refused():
    for named, count, message in (
        ([("age", "agee")], 20, "pairs names 'agee'.*did you mean 'age'"),
        ([("age", "age")], 20, "'age' with itself"),
        ([("age", "sex"), ("sex", "age")], 20, r"lists sex\*age twice"),
        ([("age", "sex", "grade")], 20, "a pair is two columns"),
        ([("age", 3)], 20, "a pair is two columns"),
        ([3], 20, "a pair is two columns"),
        ("age*sex", 20, "give a list of pairs"),
        (7, 20, "give a list of pairs"),
        ([], 3, "pair_cells = 3 must be .* between 4 and 1000"),
        ([], 1001, "pair_cells = 1001 must be"),
        ([], "20", "pair_cells = '20' must be"),
        ([("age", "sex")] * 1001, 20, "1001 pairs, above the limit of 1000"),
    ):
        with pytest.raises(ValueError, match=message):
            pairs.checked(FEATURES, named, count)


def test_pairs_together_are_as_long_as_one_more_column():
    """A pair that is named counts like a column; however many there are, the row keeps to its columns."""
    for count in (1, 2, 20, 1000):
        assert count * weight_of(count) ** 2 == pytest.approx(1)
        pairs.checked_weight(weight_of(count))
    assert weight_of(1) == weight_of(0) == 1


@pytest.mark.parametrize("weight", [0, -0.5, 1.01, True, "1", None, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(ValueError, match=r"pair_weight = .* must be a number between 0\.01 and 1; leave it out"):
        pairs.checked_weight(weight)
