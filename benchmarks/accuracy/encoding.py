"""The rows that peers train on, from the same public bounds and categories that dbdp has.

Shapes: features (n, d), where the last column is the constant.
"""

from functools import lru_cache

import numpy as np

from benchmarks.accuracy.datasets import BRIGHTEST, Data, is_text


@lru_cache(maxsize=1)
def scaled(data: Data) -> np.ndarray:
    """Return numbers scaled from their bounds to [0, 1], categories one-hot, and a constant 1."""
    if data.is_array:
        columns = [data.rows.drop(columns=data.label).to_numpy(float) / BRIGHTEST]
    else:
        columns = [column for name in data.features for column in encoded(data, name)]
    return np.column_stack([*columns, np.ones(len(data.rows))])


def encoded(data: Data, name: str) -> list[np.ndarray]:
    """Return the columns in [0, 1] of one declared column."""
    values, declared = data.rows[name], data.features[name]
    if is_text(declared):
        return [(values == category).to_numpy(float) for category in declared]
    lower, upper = declared
    return [((values.to_numpy(float) - lower) / (upper - lower)).clip(0, 1)]


@lru_cache(maxsize=1)
def unit(data: Data) -> np.ndarray:
    """Return the scaled rows, each divided by its norm, in single precision: for losses of classes."""
    rows = scaled(data)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@lru_cache(maxsize=1)
def bounded(data: Data) -> np.ndarray:
    """Return rows of norm at most 1: numbers in [-1, 1], categories one-hot, by the root of the number of columns."""
    rows = scaled(data)
    if not data.is_array:
        rows = rows.copy()
        rows[:, numeric_places(data)] = 2 * rows[:, numeric_places(data)] - 1
    return rows / np.sqrt(len(data.features) + 1)


def numeric_places(data: Data) -> list[int]:
    """Return the places of the declared numbers among the encoded columns."""
    widths = [len(declared) if is_text(declared) else 1 for declared in data.features.values()]
    starts = np.cumsum([0, *widths[:-1]])
    numbers = (not is_text(declared) for declared in data.features.values())
    return [int(start) for start, number in zip(starts, numbers, strict=True) if number]
