"""A state survives its bytes; bytes that are no state are refused."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbdp.learning.losses import Logistic
from dbdp.learning.schedules import Constant, InverseTime
from dbdp.learning.state import State

# where the header keeps its numbers
LOSS, SCHEDULE, DIMENSION, BATCH_SIZE, FILLED, UPDATES, VECTORS = 4, 5, 8, 16, 24, 32, 64

positive = st.floats(1e-9, 10)
schedules = st.builds(Constant, positive) | st.builds(InverseTime, positive, positive)


@st.composite
def states(draw):
    batch_size, dimension = draw(st.integers(1, 10**12)), draw(st.integers(1, 20))
    vector = hnp.arrays(np.float64, dimension, elements=st.floats(allow_nan=False))
    return State(
        Logistic(),
        draw(schedules),
        batch_size,
        draw(st.floats(0, 10)),
        draw(vector),
        draw(vector),
        filled=draw(st.integers(0, batch_size - 1)),
        updates=draw(st.integers(0, 2**62)),
    )


def encoded(dimension=3, batch_size=4):
    return State.initial(
        loss=Logistic(),
        schedule=Constant(0.1),
        batch_size=batch_size,
        regularisation=0.0,
        dimension=dimension,
    ).encode()


def damaged(place, layout, value):
    bytes_ = bytearray(encoded())
    struct.pack_into(layout, bytes_, place, value)
    return bytes(bytes_)


@given(state=states())
def test_a_state_survives_its_bytes(state):
    decoded = State.decode(state.encode())
    assert decoded.encode() == state.encode()
    for name in ("loss", "schedule", "batch_size", "regularisation", "filled", "updates"):
        assert getattr(decoded, name) == getattr(state, name)
    assert decoded.model.tolist() == state.model.tolist()
    assert decoded.gradient.tolist() == state.gradient.tolist()


def test_a_decoded_state_can_be_advanced_in_place():
    state = State.decode(encoded())
    state.model += 1.0
    assert state.gradient.tolist() == [0.0, 0.0, 0.0]


def test_a_training_begins_at_zero():
    state = State.decode(encoded())
    assert (state.filled, state.updates) == (0, 0)
    assert not state.model.any()


@pytest.mark.parametrize("length", [*range(VECTORS + 48), VECTORS + 49, VECTORS + 64])
def test_a_state_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match="start with a new one"):
        State.decode((encoded() + bytes(16))[:length])


@pytest.mark.parametrize(
    ("place", "layout", "value"),
    [
        (0, "<4s", b"dbs0"),
        (LOSS, "<B", 0),
        (LOSS, "<B", 200),
        (SCHEDULE, "<B", 0),
        (SCHEDULE, "<B", 200),
        (DIMENSION, "<q", 0),
        (DIMENSION, "<q", -3),
        (DIMENSION, "<q", 2),
        (DIMENSION, "<q", 2**62),
        (BATCH_SIZE, "<q", 0),
        (BATCH_SIZE, "<q", -4),
        (FILLED, "<q", 4),
        (FILLED, "<q", -1),
        (UPDATES, "<q", -1),
    ],
)
def test_a_damaged_state_is_refused(place, layout, value):
    with pytest.raises(ValueError, match=r"state|schedule"):
        State.decode(damaged(place, layout, value))


def test_the_places_of_the_damage_above_are_the_right_ones():
    assert State.decode(damaged(FILLED, "<q", 3)).filled == 3
    assert State.decode(damaged(UPDATES, "<q", 7)).updates == 7
    assert State.decode(damaged(BATCH_SIZE, "<q", 9)).batch_size == 9
    assert State.decode(damaged(VECTORS, "<d", 0.5)).model[0] == 0.5


@given(value=st.binary(max_size=200) | st.binary(max_size=120).map(lambda tail: b"dbs1\x01\x01\0\0" + tail))
def test_no_bytes_raise_anything_but_a_value_error(value):
    try:
        State.decode(value)
    except ValueError as error:
        assert str(error)
