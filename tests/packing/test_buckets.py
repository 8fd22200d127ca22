"""Buckets: every record is written once; how many inserts and pieces there are follows from the sizes alone."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from dbdp.packing.writers import Buckets


class Inserts:
    """A session that keeps what is inserted: for each insert its buckets and pieces."""

    def __init__(self) -> None:
        self.made: list[list[tuple[int, bytes]]] = []

    def query(self, _sql: str, numbers: list[int], pieces: list[bytes]) -> list[Any]:
        self.made.append(list(zip(numbers, pieces, strict=True)))
        return []


def written(numbers: np.ndarray, batch: int, buckets: int, cuts: list[int]) -> list[list[tuple[int, bytes]]]:
    """The inserts for records 0, 1, …, which come in chunks that end at the cuts."""
    session, records = Inserts(), np.arange(len(numbers))
    writer = Buckets(session, "t", buckets, batch)
    for chunk in np.split(np.arange(len(numbers)), cuts):
        writer.append(numbers[chunk], records[chunk])
    writer.close()
    return session.made


SHAPES = [(1000, 90, 7), (1000, 100, 7), (1000, 3, 10), (1000, 5000, 7), (900, 90, 9), (1, 1, 1), (40, 39, 40)]


@pytest.mark.parametrize(("count", "batch", "buckets"), SHAPES)
def test_order_and_chunks_of_the_records_do_not_change_the_number_of_inserts(count, batch, buckets):
    """Sorted, the buckets fill one after the other; the control is a writer that inserts when a piece is full."""
    random, numbers = np.random.default_rng(1), np.sort(np.arange(count) % buckets)
    seen = set()
    for order in (numbers, numbers[::-1], *(random.permutation(numbers) for _ in range(20))):
        cuts = np.sort(random.integers(0, count + 1, size=random.integers(0, 12))).tolist()
        inserts = written(order, batch, buckets, cuts)
        assert all(inserts)  # each writes a tuple, and so takes a transaction number
        sizes = Counter((bucket, len(piece)) for each in inserts for bucket, piece in each)
        seen.add((len(inserts), tuple(sorted(sizes.items()))))
    assert len(seen) == 1


@pytest.mark.parametrize(("count", "batch", "buckets"), SHAPES)
def test_every_record_is_written_once_to_its_bucket(count, batch, buckets):
    numbers = np.random.default_rng(2).integers(buckets, size=count)
    pieces = [piece for each in written(numbers, batch, buckets, [count // 3]) for piece in each]
    records = [(bucket, record) for bucket, piece in pieces for record in np.frombuffer(piece, np.int64).tolist()]
    assert sorted(records, key=lambda pair: pair[1]) == list(zip(numbers.tolist(), range(count), strict=True))
