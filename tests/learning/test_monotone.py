"""Monotone constraints: pooled adjacent violators, and the columns that a request may name."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from dbdp.learning.rows.features import Categorical, Numeric
from dbdp.learning.rows.monotone import directions, isotonic

POINTS = st.lists(st.tuples(st.floats(-5, 5), st.floats(1e-3, 3)), min_size=1, max_size=40)
COLUMNS = [Numeric("age", 0, 90), Numeric("hours, a week", 0, 80), Categorical("sex", ("f", "m"))]


@given(POINTS)
def test_pools_are_the_isotonic_regression(points):
    values, weights = np.array(points).T
    found = isotonic(values, weights)
    expected = IsotonicRegression().fit(np.arange(len(values)), values, sample_weight=weights).predict
    assert found == pytest.approx(expected(np.arange(len(values))), abs=1e-9)
    assert (np.diff(found) >= 0).all()
    assert found @ weights == pytest.approx(values @ weights, abs=1e-9)


def test_values_in_order_stay_and_others_become_their_mean():
    assert isotonic(np.array([1.0, 2.0, 2.0]), np.ones(3)).tolist() == [1, 2, 2]
    assert isotonic(np.array([3.0, 0.0, 5.0]), np.array([1.0, 2.0, 1.0])).tolist() == [1, 1, 5]


def test_a_request_names_numbers_and_their_direction():
    assert directions('{"age": 1, "hours, a week": -1}', COLUMNS, ()) == {"age": 1, "hours, a week": -1}
    assert directions(None, COLUMNS, ()) == {}
    assert directions('{"age": 1.0}', COLUMNS, [("sex", "hours, a week")]) == {"age": 1}


REFUSED = {
    "an unknown column": ('{"agee": 1}', "'agee'.*use declared numbers: age, hours, a week.*did you mean 'age'"),
    "a category": ('{"sex": 1}', "'sex', a column of categories, which have no order; use declared numbers: age"),
    "another direction": ('{"age": 2}', "has 2 for 'age'; give a JSON object .*1 for rising and -1 for falling"),
    "a boolean": ('{"age": true}', "has True for 'age'"),
    "a list": ('["age"]', "names no columns; give a JSON object"),
    "nothing": ("{}", "names no columns"),
    "no JSON": ("age", "names no columns"),
    "no text": (3, "monotone = 3 names no columns"),
    "depth": ("[" * 60_000, "names no columns"),
    "a pair": ('{"age": 1}', r"'age', which is in the pair age\*sex, .*leave out the pair, or the constraint"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_requests_are_refused_with_a_remedy(case):
    text, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        directions(text, COLUMNS, [("age", "sex")] if case == "a pair" else ())


def test_long_names_are_cut_before_they_are_read():
    with pytest.raises(ValueError, match="names no columns"):
        directions(json.dumps({"x" * 70_000: 1}), COLUMNS, ())
