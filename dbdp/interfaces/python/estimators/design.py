"""The matrix that coefficients of a linear model multiply, from rows as a caller has them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dbdp.interfaces.python import frames
from dbdp.learning.rows.encoding import bins_of, cells_of, groups_of, knots_below, known, positions, sides
from dbdp.learning.rows.features import CATEGORY, REQUIRED, Categorical, Numeric
from dbdp.learning.rows.pairs import Side
from dbdp.registry.declarations import Declaration


def design_matrix(declaration: Declaration, X: Any) -> np.ndarray:
    """Return the matrix that coefficients multiply: clipped numbers on their scales or as bins, then indicators.

    Rows X, shape (n, columns), are in the order of `declaration.columns`; of an array column (n, length). The matrix is
    float64, shape (n, features). Raise ValueError if X has another shape.
    """
    rows = shaped(declaration, X)
    if declaration.vector:
        return rows
    first = len(declaration.numeric)
    numbers, absent = known(declaration.numeric, numbers_of(declaration, rows))
    coordinates = [
        each
        for feature, values, nulls in zip(declaration.numeric, numbers.T, absent.T, strict=False)
        for each in _numbers(feature, values, nulls)
    ]
    indicators = [
        values == place
        for feature, values in zip(declaration.categorical, numbers.T[first:], strict=True)
        for place in range(feature.width)
    ]
    return np.column_stack([*coordinates, *indicators, *_cells(declaration, numbers)]).astype(np.float64)


def numbers_of(declaration: Declaration, rows: np.ndarray) -> np.ndarray:
    """Return rows as numbers, float64 (n, columns): a category as its place among the declared ones, -1 for none."""
    if declaration.vector:
        return rows.astype(np.float64)
    first = len(declaration.numeric)
    numbers = [values.astype(np.float64) for values in rows.T[:first]]
    places = [_places(feature, values) for feature, values in zip(declaration.categorical, rows.T[first:], strict=True)]
    return np.column_stack([*numbers, *places])


def _places(feature: Categorical, values: np.ndarray) -> np.ndarray:
    """Return the places of categories; a boolean column may hold 0 and 1, and None or NaN is NULL."""
    places: dict[str | None, int] = {category: place for place, category in enumerate(feature.categories)}
    is_boolean = places.keys() <= {"true", "false"}
    if feature.null == CATEGORY:
        places[None] = len(feature.categories)
    return np.array([places.get(_text(value, is_boolean=is_boolean), -1) for value in values], np.float64)


def _text(value: Any, *, is_boolean: bool) -> str | None:
    as_bool = is_boolean and not isinstance(value, str) and value in (0, 1)
    return frames.as_text(bool(value) if as_bool else value)


def _cells(declaration: Declaration, numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the coordinates of the cells of pairs; NaN in a column gives NaN in every cell."""
    groups = {side: _groups(side, numbers[:, side.place]) for side in sides(declaration.products)}
    for pair in declaration.products:
        missing = np.isnan(numbers[:, pair.first.place]) | np.isnan(numbers[:, pair.second.place])
        cells = cells_of(pair, groups[pair.first], groups[pair.second])
        yield from ((cells == cell) + np.where(missing, np.nan, 0.0) for cell in range(pair.width))


def _groups(side: Side, numbers: np.ndarray) -> np.ndarray:
    return groups_of(side, numbers, None if isinstance(side.feature, Numeric) else numbers.astype(np.int64))


def _numbers(feature: Numeric, values: np.ndarray, absent: np.ndarray) -> list[np.ndarray]:
    """Return the coordinates of a numeric column; a NaN that no number replaces gives NaN in every bin or knot."""
    indicators = [absent] * feature.indicator
    if not feature.is_shared:
        return [positions(feature, values), *indicators]
    missing = np.where(np.isnan(values), np.nan, 0.0)
    if feature.knots:
        below, parts = knots_below(feature, values)
        weights = ((below == knot) * (1 - parts) + (below == knot - 1) * parts for knot in range(feature.knots))
        return [weight + missing for weight in weights] + indicators
    places = bins_of(feature, values)
    return [(places == place) + missing for place in range(feature.bins)] + indicators


def keeps_nulls(declaration: Declaration) -> bool:
    """Return whether rows may have missing values in some column."""
    return any(feature.null != REQUIRED for feature in declaration.parts)


def check_complete(declaration: Declaration, rows: np.ndarray, names: Sequence[str]) -> None:
    """Raise ValueError if a column, or a number of an array, that requires values has missing or infinite ones."""
    kept = {feature.column for feature in declaration.parts if feature.null != REQUIRED}
    places = [place for place, name in enumerate(names) if name not in kept]
    frames.check_complete_array(rows[:, places], [names[place] for place in places])


def shaped(declaration: Declaration, X: Any) -> np.ndarray:
    """Return rows as an array (n, columns) of float64 or, with categories, of objects."""
    rows = np.asarray(X, dtype=object if declaration.categorical else np.float64)
    expected = declaration.vector.length if declaration.vector else len(declaration.columns)
    if rows.ndim != 2 or rows.shape[1] != expected:
        raise ValueError(f"X has shape {rows.shape}; it must be (n, {expected}): {', '.join(declaration.columns)}")
    return rows
