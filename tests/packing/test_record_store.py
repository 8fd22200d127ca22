"""Records in files: what is written is read, each bucket gets its own, and a disk that is full is an error."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from dbdp.packing.record_store import Buckets, RecordFile


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RecordFile]:
    opened = RecordFile(str(tmp_path), 8)
    yield opened
    opened.close()


def test_what_is_written_is_read_and_the_file_has_no_name(file, tmp_path):
    numbers = np.arange(100)
    for first in (60, 0, 99, 30):
        file.write(first, numbers[first : first + 40])
    assert len(file) == 100
    for first, last in ((0, 100), (17, 18), (59, 61), (5, 5)):
        assert np.array_equal(file.read(first, last).view(np.int64).ravel(), numbers[first:last])
    assert list(tmp_path.iterdir()) == []


def test_records_of_any_layout_are_written(tmp_path):
    layout = np.dtype([("word", "<u8"), ("row", "<f4", 3)])
    records = np.zeros(7, layout)
    records["word"], records["row"] = np.arange(7), np.arange(21).reshape(7, 3)
    file = RecordFile(str(tmp_path), layout.itemsize)
    file.write(0, records)
    file.write(7, records["row"].view("V12")[::-1].repeat(1))  # 7 records of 12 bytes, in another layout
    assert np.array_equal(file.read(0, 7).view(layout)[:, 0], records)
    file.close()


SIZES = [[3, 0, 5, 1], [100], [1] * 9]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_each_bucket_keeps_the_order_of_its_records(file, sizes, chunk):
    numbers = np.random.default_rng(3).permutation(np.repeat(np.arange(len(sizes)), sizes))
    buckets, records = Buckets(file, sizes), np.arange(len(numbers))
    for first in range(0, len(numbers), chunk):
        buckets.append(numbers[first : first + chunk], records[first : first + chunk])
    for number, block in enumerate(buckets):
        assert np.array_equal(block.view(np.int64).ravel(), np.flatnonzero(numbers == number))


def test_a_bucket_takes_no_more_records_than_were_counted(file):
    buckets = Buckets(file, [2, 3])
    buckets.append(np.array([1, 0, 0]), np.arange(3))
    with pytest.raises(ValueError, match="more records than were counted"):
        buckets.append(np.array([1, 0]), np.arange(2))
    assert len(file) == 3  # of the second call nothing was written


def test_a_full_disk_is_an_error_with_its_remedy(file):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with patch.object(os, "pwrite", full), pytest.raises(ValueError, match=r"temp_tablespaces.*dbdp\.pack_memory"):
        file.write(0, np.arange(3))


def test_a_folder_that_takes_no_file_is_an_error_with_its_remedy(tmp_path):
    with pytest.raises(ValueError, match=r"No such file.*temp_tablespaces"):
        RecordFile(str(tmp_path / "none"), 8)


def test_a_write_in_parts_is_completed(file):
    write = os.pwrite
    with patch.object(os, "pwrite", lambda number, data, place: write(number, data[:5], place)):
        file.write(2, np.arange(50))
    assert np.array_equal(file.read(2, 52).view(np.int64).ravel(), np.arange(50))


def test_a_disk_that_does_not_return_records_is_an_error(file):
    file.write(0, np.arange(3))
    with pytest.raises(ValueError, match="did not return"):
        file.read(2, 4)
    broken = patch.object(os, "preadv", side_effect=OSError(errno.EIO, "Input/output error"))
    with broken, pytest.raises(ValueError, match="did not return"):
        file.read(0, 1)
