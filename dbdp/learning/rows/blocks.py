"""The packed block: some thousand rows of the shuffled table in one bytea value.

A block is row-major, little-endian float32, shape (rows, stride). A row holds its d features, then
zeros, then the label in the last place; the stride is a multiple of 8, so that the kernel reads full
vectors (it relies on the zeros). A label of 0 marks the zero row, which stands for an invalid record.
"""

import numpy as np

from dbdp.checks import is_whole

LANES = 8  # float64 numbers of one vector register of 512 bits
BLOCK_BYTES = 1 << 20  # one call into Python for each MiB: its cost is negligible, and the block stays in cache
REFERRED = 256  # blocks of rows that a backend holds, to which one value of a table refers
ELEMENT = np.dtype("<f4")
Raw = bytes | memoryview  # raw records, one after the other


def stride_of(dimension: int) -> int:
    """Return the number of float32 values of one packed row: d features and the label, rounded up to LANES."""
    return -(-(dimension + 1) // LANES) * LANES


def row_bytes(dimension: int) -> int:
    """Return the bytes of one packed row; raise ValueError unless the dimension is a whole number from 1 on."""
    if not is_whole(dimension) or dimension < 1:
        raise ValueError(f"dimension = {dimension!r} of a packed row must be a whole number, at least 1")
    return stride_of(dimension) * ELEMENT.itemsize


def rows_per_block(dimension: int) -> int:
    """Return how many rows one block holds."""
    return max(1, BLOCK_BYTES // row_bytes(dimension))


def rows_per_reference(dimension: int) -> int:
    """Return how many rows that a backend holds one value refers to."""
    return REFERRED * rows_per_block(dimension)


def decode(block: bytes | np.ndarray, dimension: int) -> np.ndarray:
    """Return the rows of a block, bytes or an array of bytes, without a copy; shape (rows, stride)."""
    width = row_bytes(dimension)
    if len(block) > max(BLOCK_BYTES, width):
        raise ValueError(
            f"a block of {len(block)} bytes is above the limit of {max(BLOCK_BYTES, width)}; pack the dataset again"
        )
    if len(block) % width:
        raise ValueError(
            f"a block of {len(block)} bytes is not a multiple of the {width} bytes of a row; pack the dataset again"
        )
    return np.frombuffer(block, ELEMENT).reshape(-1, stride_of(dimension))


def encode(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return packed rows of features (n, d) that already have norm ≤ 1 and labels (n,)."""
    rows = np.zeros((len(features), stride_of(features.shape[1])), ELEMENT)
    rows[:, : features.shape[1]] = features
    rows[:, -1] = labels
    return rows


class PackedRecords:
    """Decodes records that are packed rows themselves; in place of an encoder."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.record_bytes = row_bytes(dimension)

    def rows(self, raw: Raw) -> np.ndarray:
        """Return packed rows, shape (rows, stride), without a copy."""
        return np.frombuffer(raw, ELEMENT).reshape(-1, stride_of(self.dimension))
