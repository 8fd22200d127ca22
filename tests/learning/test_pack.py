"""Packing preserves labels of every kind, and recognises a record without one by NaN."""

import numpy as np
import numpy_kernel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbdp.learning import kernels
from dbdp.learning.rows import blocks, encoding

pytestmark = pytest.mark.usefixtures("packer")


def packed(labels, features=0.25, dimension=9):
    labels = np.asarray(labels)
    return encoding.pack(np.full((len(labels), dimension), features), labels)


def without_denormals(numbers):
    return np.where(np.abs(numbers) < np.finfo(np.float32).tiny, np.float32(0), numbers)


@given(labels=hnp.arrays(np.float64, st.integers(0, 20), elements=st.floats(-1, 1)))
def test_a_real_label_as_float32_stays_in_its_bounds(labels):
    stored = packed(labels)[:, -1]
    assert (stored == without_denormals(labels.astype(np.float32))).all()
    assert (np.abs(stored) <= 1).all()


@given(labels=hnp.arrays(np.float64, st.integers(0, 20), elements=st.integers(1, 2**24)))
def test_the_number_of_a_class_is_stored_as_it_is(labels):
    assert (packed(labels)[:, -1] == labels).all()


def test_a_label_of_zero_keeps_its_features():
    (row,) = packed([0.0])
    assert row[-1] == 0
    assert (row[:9] > 0.24).all()


@pytest.mark.parametrize(
    "labels", [np.array([-1, 1], np.int32), np.array([-1, 1], np.float32), np.array([-1, 1, 1])[::2]]
)
def test_labels_of_any_number_type_are_taken(labels):
    assert packed(labels)[:, -1].tolist() == labels.tolist()


@given(
    features=hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 20)), elements=st.floats(width=64)),
    data=st.data(),
)
def test_whatever_is_packed_is_taken_by_a_training_or_is_zero(features, data):
    labels = data.draw(hnp.arrays(np.float64, len(features), elements=st.floats() | st.floats(-1, 1)))
    rows = encoding.pack(features.copy(), labels)
    _, _, valid = kernels.unpacked(rows, features.shape[1])
    assert valid.all()
    with np.errstate(over="ignore"):
        kept = np.isfinite(features).all(axis=1) & np.isfinite(labels.astype(np.float32))
    assert (rows[~kept] == 0).all()
    assert (rows[kept, -1] == without_denormals(labels[kept].astype(np.float32))).all()


@given(
    rows=hnp.arrays(
        np.float32, st.tuples(st.integers(0, 6), st.sampled_from([8, 16, 24])), elements=st.floats(width=32)
    ),
    data=st.data(),
)
def test_the_compiled_unpacking_is_the_reference(rows, data):
    rows = without_denormals(rows) * np.float32(data.draw(st.sampled_from([1, 0.1])))
    dimension = data.draw(st.integers(0, rows.shape[1] - 1))
    for one, other in zip(kernels.unpacked(rows, dimension), numpy_kernel.unpack(rows, dimension), strict=True):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype


def test_places_between_the_features_and_the_label_are_zero():
    rows = packed([0.5, 3.0])
    assert rows.shape == (2, blocks.stride_of(9))
    assert not rows[:, 9:-1].any()
