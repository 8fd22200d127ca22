"""The matrix that coefficients of a linear model multiply, from rows as a caller has them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dbdp.interfaces.python import frames
from dbdp.learning.rows.encoding import bins_of, cells_of, groups_of, positions, sides
from dbdp.learning.rows.features import Numeric
from dbdp.learning.rows.pairs import Side
from dbdp.registry.declarations import Declaration


def design_matrix(declaration: Declaration, X: Any) -> np.ndarray:
    """Return the matrix that coefficients multiply: clipped numbers on their scales or as bins, then indicators.

    Parameters
    ----------
    declaration : Declaration
        The declared columns.
    X : array, shape (n, columns), or (n, length) for an array column
        Rows, in the order of `declaration.columns`.

    Returns
    -------
    array, shape (n, features)
        float64.

    Raises
    ------
    ValueError
        If X has another shape.
    """
    rows = shaped(declaration, X)
    if declaration.vector:
        return rows
    numbers = [
        coordinates
        for place, feature in enumerate(declaration.numeric)
        for coordinates in _numbers(feature, rows[:, place].astype(np.float64))
    ]
    texts = {
        place: texts_of(rows[:, place], is_boolean=set(feature.categories) <= {"true", "false"})
        for place, feature in enumerate(declaration.categorical, len(declaration.numeric))
    }
    indicators = [
        texts[place] == category
        for place, feature in enumerate(declaration.categorical, len(declaration.numeric))
        for category in feature.categories
    ]
    return np.column_stack([*numbers, *indicators, *_cells(declaration, rows, texts)]).astype(np.float64)


def _cells(declaration: Declaration, rows: np.ndarray, texts: Mapping[int, np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the coordinates of the cells of pairs; NaN in a column gives NaN in every cell."""
    groups = {side: _groups(side, rows, texts) for side in sides(declaration.products)}
    for pair in declaration.products:
        (first, unknown), (second, missing) = groups[pair.first], groups[pair.second]
        cells = cells_of(pair, first, second)
        yield from ((cells == cell) + unknown + missing for cell in range(pair.width))


def _groups(side: Side, rows: np.ndarray, texts: Mapping[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups of a column of a pair, and NaN for each missing number, else 0."""
    if isinstance(side.feature, Numeric):
        values = rows[:, side.place].astype(np.float64)
        return groups_of(side, values, None), np.where(np.isnan(values), np.nan, 0.0)
    known = {category: place for place, category in enumerate(side.feature.categories)}
    places = np.array([known.get(text, -1) for text in texts[side.place]], np.int64)
    return groups_of(side, places, places), np.zeros(len(rows))


def _numbers(feature: Numeric, values: np.ndarray) -> list[np.ndarray]:
    """Return the coordinates of a numeric column; NaN gives NaN in every bin."""
    if not feature.bins:
        return [positions(feature, values)]
    places, missing = bins_of(feature, values), np.where(np.isnan(values), np.nan, 0.0)
    return [(places == place) + missing for place in range(feature.bins)]


def texts_of(values: np.ndarray, *, is_boolean: bool) -> np.ndarray:
    """Return the values of a column as the texts of its categories; a boolean column may hold 0 and 1."""

    def text(value: Any) -> str | None:
        as_bool = is_boolean and not isinstance(value, str) and value in (0, 1)
        return frames.as_text(bool(value) if as_bool else value)

    return np.array([text(value) for value in values], dtype=object)


def shaped(declaration: Declaration, X: Any) -> np.ndarray:
    """Return rows as an array (n, columns) of float64 or, with categories, of objects."""
    rows = np.asarray(X, dtype=object if declaration.categorical else np.float64)
    expected = declaration.vector.length if declaration.vector else len(declaration.columns)
    if rows.ndim != 2 or rows.shape[1] != expected:
        raise ValueError(f"X has shape {rows.shape}; it must be (n, {expected}): {', '.join(declaration.columns)}")
    return rows
