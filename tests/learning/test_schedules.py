"""Step sizes depend on the number of the update alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdp.learning.schedules import SCHEDULES, Constant, Decreasing, InverseTime, Restarted, SquareRoot, schedule_with

schedules = st.one_of(
    st.builds(Constant, st.floats(1e-6, 10)),
    st.builds(InverseTime, st.floats(0.25, 2), st.floats(1e-6, 0.25)),
    st.builds(Decreasing, st.floats(0.25, 2), st.floats(0, 1e6)),
    st.builds(SquareRoot, st.floats(0.25, 2), st.floats(0, 1e6)),
    st.builds(Restarted, st.floats(1e-6, 10), st.integers(1, 10**6), st.integers(0, 50)),
)


@pytest.mark.parametrize(
    ("schedule", "law"),
    [
        (Constant(0.3), lambda t: 0.3),
        (InverseTime(0.35, 0.1), lambda t: min(1 / 0.35, 1 / (0.1 * t))),
        (Decreasing(0.25, 10.0), lambda t: 2 / (0.25 * (t + 10.0))),
        (SquareRoot(0.25, 10.0), lambda t: 2 / (0.25 * (math.sqrt(t) + 10.0))),
    ],
    ids=["constant", "inverse time", "decreasing", "square root"],
)
def test_a_step_size_follows_its_law_from_update_one_on(schedule, law):
    assert schedule.step_sizes(1, 40) == pytest.approx([law(t) for t in range(1, 41)], rel=1e-15)


def test_inverse_time_falls_after_the_condition_number():
    steps = InverseTime(0.25, 0.01).step_sizes(1, 100)
    assert (steps[:25] == 4.0).all()
    assert (np.diff(steps[24:]) < 0).all()


@pytest.mark.parametrize("schedule", [Decreasing(0.25, 0.0), SquareRoot(0.25, 0.0), Decreasing(3.0, 9.0)])
def test_no_step_is_above_the_limit_of_contraction(schedule):
    assert schedule.step_sizes(1, 100).max() <= 2.0 / schedule.smoothness


def test_restarted_counts_epochs_from_the_last_restart():
    steps = Restarted(0.6, batches=4, interval=3).step_sizes(1, 4 * 7)
    epochs = [1, 2, 3, 1, 2, 3, 1]
    assert steps.tolist() == [0.6 / epoch for epoch in epochs for _ in range(4)]


def test_without_restarts_the_epoch_itself_counts():
    steps = Restarted(0.6, batches=4, interval=0).step_sizes(1, 4 * 7)
    assert steps.tolist() == [0.6 / epoch for epoch in range(1, 8) for _ in range(4)]


def test_restarts_in_every_epoch_are_a_constant_step():
    assert (Restarted(0.6, batches=4, interval=1).step_sizes(1, 40) == 0.6).all()


@given(schedule=schedules, first=st.integers(1, 10**9), counts=st.lists(st.integers(0, 20), max_size=5))
def test_where_a_call_ends_does_not_change_a_step(schedule, first, counts):
    whole = schedule.step_sizes(first, sum(counts))
    begins = first + np.cumsum([0, *counts])
    pieces = [schedule.step_sizes(int(begin), count) for begin, count in zip(begins, counts, strict=False)]
    assert np.concatenate([*pieces, []]).tolist() == whole.tolist()


@given(schedule=schedules, first=st.integers(1, 10**9))
def test_every_step_is_positive_and_finite(schedule, first):
    steps = schedule.step_sizes(first, 50)
    assert steps.shape == (50,)
    assert (steps > 0).all()
    assert np.isfinite(steps).all()


@given(schedule=schedules)
def test_a_schedule_survives_its_code_and_parameters(schedule):
    assert len(schedule.parameters) == 3
    assert schedule_with(schedule.code, schedule.parameters) == schedule


def test_no_two_schedules_share_a_code():
    assert len({schedule.code for schedule in SCHEDULES.values()}) == len(SCHEDULES) == 5


def test_an_unknown_code_is_refused():
    with pytest.raises(ValueError, match="schedule code 9 is unknown"):
        schedule_with(9, (1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    "parameters", [(0.1, 0.0, 1.0), (0.1, 2.5, 1.0), (0.1, 2.0, -1.0), (0.1, math.nan, 0.0), (0.1, 3.0, math.inf)]
)
def test_restarts_that_no_state_can_hold_are_refused(parameters):
    with pytest.raises(ValueError, match="damaged"):
        schedule_with(Restarted.code, parameters)
