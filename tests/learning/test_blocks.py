"""Packed rows are decoded unchanged."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbdp.learning.rows import blocks

shapes = st.tuples(st.integers(0, 12), st.integers(1, 20))
features = hnp.arrays(np.float32, shapes, elements=st.floats(-1, 1, width=32))


@given(features=features, data=st.data())
def test_rows_survive_a_block(features, data):
    labels = data.draw(hnp.arrays(np.int32, len(features), elements=st.sampled_from([-1, 0, 1])))
    dimension = features.shape[1]
    rows = blocks.decode(blocks.encode(features, labels).tobytes(), dimension)
    assert (rows[:, :dimension] == features).all()
    assert (rows[:, -1] == labels).all()
    assert not rows[:, dimension:-1].any()


def test_a_row_is_little_endian_with_the_label_last():
    block = blocks.encode(np.array([[0.5, -0.25]]), np.array([-1])).tobytes()
    assert struct.unpack("<8f", block) == (0.5, -0.25, 0, 0, 0, 0, 0, -1)


@pytest.mark.parametrize("dimension", [1, 6, 7, 8, 15, 16, 54, 1000])
def test_a_row_is_the_shortest_that_has_no_ragged_end(dimension):
    stride = blocks.stride_of(dimension)
    assert stride % blocks.LANES == 0
    assert dimension + 1 <= stride < dimension + 1 + blocks.LANES


@pytest.mark.parametrize("dimension", [1, 54, 10_000])
def test_a_block_is_as_full_as_its_size_allows(dimension):
    row_bytes = 4 * blocks.stride_of(dimension)
    assert blocks.rows_per_block(dimension) * row_bytes <= blocks.BLOCK_BYTES
    assert (blocks.rows_per_block(dimension) + 1) * row_bytes > blocks.BLOCK_BYTES


def test_a_row_longer_than_a_block_still_has_a_block():
    assert blocks.rows_per_block(10**7) == 1


def test_reading_a_block_copies_nothing():
    assert not blocks.decode(bytes(64), 7).flags.owndata


@pytest.mark.parametrize("length", [1, 31, 33, 63])
def test_a_block_that_ends_within_a_row_is_refused(length):
    with pytest.raises(ValueError, match=f"{length} bytes is not a multiple of the 32 bytes of a row"):
        blocks.decode(bytes(length), 7)
