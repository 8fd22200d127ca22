"""Step sizes depend on the number of the update alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.learning.schedules import SCHEDULES, Constant, InverseTime, schedule_with

schedules = st.builds(Constant, st.floats(1e-6, 10)) | st.builds(InverseTime, st.floats(0.25, 2), st.floats(1e-6, 0.25))


def test_constant_is_constant():
    assert Constant(0.3).step_sizes(7, 4).tolist() == [0.3] * 4


def test_inverse_time_counts_updates_from_one():
    expected = [min(1 / 0.35, 1 / (0.1 * t)) for t in range(1, 41)]
    assert InverseTime(0.35, 0.1).step_sizes(1, 40) == pytest.approx(expected, rel=1e-15)


def test_inverse_time_is_capped_until_the_condition_number_and_falls_after_it():
    steps = InverseTime(0.25, 0.01).step_sizes(1, 100)
    assert (steps[:25] == 4.0).all()
    assert (np.diff(steps[24:]) < 0).all()


@given(schedule=schedules, first=st.integers(1, 10**9), counts=st.lists(st.integers(0, 20), max_size=5))
def test_where_a_call_ends_does_not_change_a_step(schedule, first, counts):
    whole = schedule.step_sizes(first, sum(counts))
    begins = first + np.cumsum([0, *counts])
    pieces = [schedule.step_sizes(int(begin), count) for begin, count in zip(begins, counts, strict=False)]
    assert np.concatenate([*pieces, []]).tolist() == whole.tolist()


@given(schedule=schedules)
def test_a_schedule_survives_its_code_and_parameters(schedule):
    assert schedule_with(schedule.code, schedule.parameters) == schedule


def test_no_two_schedules_share_a_code():
    assert len({schedule.code for schedule in SCHEDULES.values()}) == len(SCHEDULES)


def test_an_unknown_code_is_refused():
    with pytest.raises(ValueError, match="schedule code 9 is unknown"):
        schedule_with(9, (1.0, 1.0))
