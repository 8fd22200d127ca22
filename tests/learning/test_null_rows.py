"""Rows with missing values: their encoding is a function of the row, of norm at most 1, as of rows without any."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.learning.rows.encoding import ColumnEncoder
from dbdp.learning.rows.features import ENCODINGS
from dbdp.registry.declarations import Declaration, declare

NULLS = ["required", "indicator", -3.0, 10.0, None]
CATEGORIES = ((1.0, 2.0), (1.0, 2.0, 3.0))
FINITE = st.floats(-30, 30, width=32)
NUMBER = FINITE | st.sampled_from([math.nan, math.inf, -math.inf])
ROW = st.tuples(NUMBER, NUMBER, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.5, 1.0, 2.0, 3.0]))


def declared(encoding: str, null: str | float | None, bins: int, *, pairs: bool) -> Declaration:
    stated = {} if null is None else {"missing": null}
    return declare(
        label="y",
        positive="1",
        features={
            "a": {"bounds": [-3, 10], **({"bins": bins} if bins else {}), **stated},
            "b": {"bounds": [-3, 10], "scale": "asinh", **stated},
            "c": {"categories": ["u", "v"], "missing": "outside"},
            "d": {"categories": ["u", "v"], "missing": "category"},
        },
        encoding=encoding,
        pairs=[("a", "d"), ("b", "c")] if pairs else [],
    )


def encoded(declaration: Declaration, rows: list[tuple[float, ...]]) -> np.ndarray:
    encoder = ColumnEncoder(
        declaration.numeric, CATEGORIES, True, encoding=declaration.encoding, pairs=declaration.products
    )
    head = struct.pack("<6i", 1, 1, 0, 701, 4, 1)
    packed = encoder.rows(b"".join(head + struct.pack("<4d", *row) for row in rows))
    return packed[:, : declaration.dimension].astype(np.float64)


@pytest.mark.parametrize("null", NULLS, ids=str)
@pytest.mark.parametrize("encoding", ENCODINGS)
@given(rows=st.lists(ROW, min_size=1, max_size=6), other=ROW, bins=st.sampled_from([0, 4]), pairs=st.booleans())
def test_a_replaced_row_changes_no_other(encoding, null, rows, other, bins, pairs):
    declaration = declared(encoding, null, bins, pairs=pairs)
    before, after = encoded(declaration, rows), encoded(declaration, [other, *rows[1:]])
    assert (before[1:] == after[1:]).all()
    squares = np.square(np.vstack([before, after])).sum(axis=1)
    assert (squares <= 1).all()
    gaps = [not all(map(math.isfinite, row[:2])) for row in rows]
    assert [(row == 0).all() for row in before] == (gaps if null == "required" else [False] * len(rows))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("bins", [0, 4])
def test_a_null_counts_as_the_public_number(encoding, bins):
    """With an indicator the same row has one more coordinate, which the divisor counts."""
    rows = [(math.nan, 1.0, 1.0, 2.0), (math.inf, 1.0, 1.0, 2.0), (3.5, 1.0, 1.0, 2.0)]
    for null in (None, 3.5):
        of_nan, of_infinity, of_number = encoded(declared(encoding, null, bins, pairs=True), rows)
        assert (of_nan == of_number).all()
        assert (of_infinity == of_number).all()
    declaration = declared(encoding, "indicator", bins, pairs=True)
    of_nan, _, of_number = encoded(declaration, rows)
    place = declaration.feature_names.index("a=missing")
    assert of_nan[place] > 0 == of_number[place]
    scale = of_number[-1] / of_nan[-1]
    assert np.delete(of_nan * scale, place) == pytest.approx(np.delete(of_number, place), abs=1e-6)


def test_the_longest_row_attains_the_divisor():
    """Scaled: NULL in a number in bins with an indicator, and declared categories, is as long as a row can be."""
    declaration = declare(
        label="y", positive="1", features={"a": {"bounds": [0, 1], "bins": 2, "missing": "indicator"}}
    )
    encoder = ColumnEncoder(declaration.numeric, (), True)
    head = struct.pack("<6i", 1, 1, 0, 701, 1, 1)
    row = encoder.rows(head + struct.pack("<d", math.nan))[0, : declaration.dimension].astype(np.float64)
    assert 1 - 1e-6 < np.linalg.norm(row) <= 1
