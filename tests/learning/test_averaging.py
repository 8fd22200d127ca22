"""Which iterates are averaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.learning.schedules import NONE, Averaging


def test_none_is_the_default():
    assert Averaging() == NONE == Averaging(0, 0)
    assert NONE.summed(1000) == 0


@given(first=st.integers(1, 100), updates=st.integers(0, 200))
def test_iterates_count_from_the_first_on(first, updates):
    assert Averaging(first).summed(updates) == sum(t >= first for t in range(1, updates + 1))


@pytest.mark.parametrize("wrong", [(-1, 0), (0, -1), (1, -5)])
def test_negative_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="choose 0 or more"):
        Averaging(*wrong)


def test_a_restart_without_anything_to_average_is_refused():
    with pytest.raises(ValueError, match="every 5 updates needs iterates to average; choose first = 1"):
        Averaging(0, 5)
