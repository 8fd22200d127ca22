"""Linear models in the units of the user's columns: the affine map from packed rows, and its inverse.

Shapes: models (outputs, dimension), coefficients (outputs, features), intercepts (outputs,).
"""

from collections.abc import Collection, Mapping
from itertools import combinations, islice
from typing import Any

import numpy as np

from dbdp.learning.rows import blocks
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, INDICATOR, ColumnBlock, RowBlocks
from dbdp.learning.rows.encoding import ColumnEncoder, RandomProjection, VectorEncoder
from dbdp.learning.rows.features import CENTRED, UNIT, Categorical, Numeric, constant_of
from dbdp.learning.rows.pairs import MOST_COMBINED, MOST_PAIRS, pair_of
from dbdp.learning.rows.products import Candidate, GroupedBlock
from dbdp.registry.declarations import Declaration

MOST_LISTED = 256  # features that a receipt has a standard error for each of
MOST_MAPPED = 2048  # features that standard errors are computed for: a matrix of 32 MiB at most
_ROUNDING = 1e-9  # relative rounding error of an intercept that is 0 in exact arithmetic


def in_column_units(
    declaration: Declaration, models: np.ndarray, projection: RandomProjection | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and intercepts in the units of the columns, from models over packed rows.

    This is an affine map with public constants, and so post-processing. With the encoding `unit` the decision is then
    divided by the norm of the row, see `decisions`.

    Models over packed rows have the shape (outputs, dimension), coefficients (outputs, features) and intercepts
    (outputs,); for one model all are without `outputs`. Declaration and projection are those of the training.
    """
    if projection:
        features = declaration.dimension - declaration.intercept
        inner = models[..., : projection.dimension] @ projection.matrix(features).T
        models = np.concatenate([inner, models[..., projection.dimension :]], axis=-1)
    coefficients, intercepts = (
        _of_vector(declaration, models) if declaration.vector else _of_columns(declaration, models)
    )
    if declaration.label_bounds:
        lower, upper = declaration.label_bounds
        coefficients = coefficients * ((upper - lower) / 2.0)
        intercepts = intercepts * ((upper - lower) / 2.0) + (lower + upper) / 2.0
    return coefficients, intercepts


def in_packed_coordinates(declaration: Declaration, coefficients: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
    """Return linear models over packed rows, from those in column units: the inverse of `in_column_units`.

    Packing divides a row, if it is too long or if every row is divided, by a positive number, including its
    intercept, so that the signs and the order of the scores stay. So a packed row has the predicted class of the row,
    unless scores differ by less than the rounding to float32.

    Coefficients have the shape (features,) or (outputs, features), intercepts, in the unit of the label, (outputs,);
    the result has (outputs, dimension).
    """
    models, offsets, size = _per_packed_label(declaration, np.atleast_2d(coefficients).astype(np.float64), intercepts)
    if declaration.vector:
        elements, last = vector_scales(declaration)
        packed, shift = models / elements, np.zeros(len(models))
    else:
        origins, lengths, radius = column_scales(declaration)
        shift = models @ origins
        packed, last = models * (lengths * radius), np.full(int(declaration.intercept), 1 / radius)
    offsets = offsets + shift
    if declaration.intercept:
        return np.hstack([packed, (offsets / last)[:, None]])
    if (np.abs(offsets) > _ROUNDING * (size + np.abs(shift))).any():
        raise ValueError(
            "the model has an intercept, but the dataset is declared without one; choose a dataset with an intercept"
        )
    return packed


def _per_packed_label(
    declaration: Declaration, models: np.ndarray, intercepts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return models and intercepts for the packed label, and the size of the intercepts' terms."""
    if declaration.label_bounds is None:
        return models, intercepts, np.abs(intercepts)
    lower, upper = declaration.label_bounds
    half, middle = (upper - lower) / 2.0, (lower + upper) / 2.0
    return models / half, (intercepts - middle) / half, (np.abs(intercepts) + abs(middle)) / half


def centred(
    declaration: Declaration, coefficients: np.ndarray, intercepts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients as differences from their mean over a column's categories, bins or knots, or a pair's cells.

    They are for a reader. A row with a declared category has one of them, so that a number may be added to all if the
    intercept loses it. No such row decides which number that is: noise does, and a single coefficient would say
    nothing. Without an intercept nothing changes.

    Coefficients, shape (outputs, features), and intercepts (outputs,) are results of `in_column_units`; for one model
    without `outputs`.
    """
    if declaration.vector or not declaration.intercept:
        return coefficients, intercepts
    coefficients, end = coefficients.copy(), 0
    widths = [
        part
        for each in declaration.numeric
        for part in ((each.width - each.indicator, each.is_shared), (int(each.indicator), False))
    ]
    widths += [(each.width, True) for each in declaration.categorical]
    for width, is_exclusive in widths + [(pair.width, True) for pair in declaration.products]:
        start, end = end, end + width
        if is_exclusive and width:
            means = coefficients[..., start:end].mean(axis=-1)
            coefficients[..., start:end] -= means[..., None]
            intercepts = intercepts + means
    return coefficients, intercepts


def standard_errors(
    declaration: Declaration, root: np.ndarray | None, projection: RandomProjection | None = None
) -> dict[str, Any]:
    """Return the standard deviations that the noise for privacy gives a weight, and an intercept, at most.

    They are those of `centred` coefficients. `in_column_units` is affine, and `centred` linear: the linear part maps
    each row of R, and the squares of a column add up to a variance.

    The root is R, shape (m, dimension), see `dbdp.algorithms.plan.Released`; None if it is not known. Declaration and
    projection are those of the training.
    """
    if root is None or len(declaration.feature_names) > MOST_MAPPED:
        return {}
    origin = in_column_units(declaration, np.zeros(root.shape[1]), projection)
    mapped = in_column_units(declaration, root, projection)
    moved = centred(declaration, *(each - start for each, start in zip(mapped, origin, strict=True)))
    features, intercept = (np.sqrt(np.sum(np.square(each), axis=0)) for each in moved)
    if features.size > MOST_LISTED:
        features = np.sqrt(np.mean(np.square(features)))
    errors = {"standard_errors": np.vectorize(_four_digits, otypes=[float])(features).tolist()}
    return errors | ({"intercept_standard_error": _four_digits(float(intercept))} if declaration.intercept else {})


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def _of_vector(declaration: Declaration, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    elements, last = vector_scales(declaration)
    scaled = models * np.concatenate([elements, last])
    return scaled[..., : len(elements)], scaled[..., len(elements) :].sum(axis=-1)


def _of_columns(declaration: Declaration, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    origins, lengths, radius = column_scales(declaration)
    scaled = models / radius
    coefficients, intercepts = scaled[..., : len(origins)] / lengths, scaled[..., len(origins) :].sum(axis=-1)
    return coefficients, intercepts - coefficients @ origins


def row_blocks(declaration: Declaration, directions: Mapping[str, int]) -> RowBlocks | None:
    """Return the coordinates of each column of a row; None of an array, and where a number has one coordinate.

    Directions are those of `monotone`, of some of the numbers.
    """
    if declaration.vector or any(not each.is_shared and not each.is_flag for each in declaration.numeric):
        return None
    return _row_blocks(declaration, directions)


def smaller_blocks(declaration: Declaration) -> RowBlocks | None:
    """Return the coordinates of each column, if rows in places are smaller than dense ones; else None.

    None also of an array, and without an intercept, with which every row is at least as long as 1 before it is divided.
    """
    places = 1 + sum(map(_blocks_of, declaration.parts)) + len(declaration.products)
    is_smaller = blocks.row_bytes(places) < blocks.row_bytes(declaration.dimension)
    if declaration.vector or not declaration.intercept or not is_smaller:
        return None
    return _row_blocks(declaration, {})


def _row_blocks(declaration: Declaration, directions: Mapping[str, int]) -> RowBlocks:
    found = []
    for each in declaration.numeric:
        kind = CURVE if each.knots else CATEGORY if each.bins else INDICATOR
        least = each.least(declaration.encoding) if kind == INDICATOR else 0.0
        found.append(ColumnBlock(kind, each.width - each.indicator, least, direction=directions.get(each.column, 0)))
        found += [ColumnBlock(INDICATOR, 1)] * each.indicator
    found += [ColumnBlock(CATEGORY, each.width) for each in declaration.categorical]
    for pair in declaration.products:
        found.append(ColumnBlock(CATEGORY, pair.width, 0.0, pair.weight, pair.prior, pair.first.groups))
    return RowBlocks(tuple(found), column_scales(declaration)[2])


def pair_candidates(
    declaration: Declaration, cells: int, bins: int, *, without: Collection[str] = ()
) -> tuple[Candidate, ...]:
    """Return the pairs of columns with knots, categories, or one column of 0 and 1; numbers with bins are in none."""
    firsts, usable = dict[str, int](), []
    for each in declaration.parts:
        firsts[each.column] = sum(_blocks_of(other) for other in declaration.parts[: len(firsts)])
        has_groups = each.width > 1 if isinstance(each, Categorical) else not each.bins
        if has_groups and each.column not in without:
            usable.append(each)
    found = []
    for one, other in islice(combinations(usable[:MOST_COMBINED], 2), MOST_PAIRS):
        if any(isinstance(each, Categorical) or each.knots for each in (one, other)):
            pair = pair_of(declaration.parts, (one.column, other.column), cells, 1.0, bins)
            grouped = [
                GroupedBlock(firsts[side.feature.column], side.groups, tuple(side.group_of_category))
                for side in (pair.first, pair.second)
            ]
            found.append(Candidate((one.column, other.column), *grouped))
    return tuple(found)


def _blocks_of(feature: Numeric | Categorical) -> int:
    """Return how many blocks a column has."""
    return 1 + (isinstance(feature, Numeric) and feature.indicator)


def vector_scales(declaration: Declaration) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of packing an array: of its elements, shape (features,), and of the intercept, if any."""
    vector = declaration.vector
    if vector is None:
        raise AssertionError("a declaration of columns has no array")
    encoder = VectorEncoder(vector.length, vector.norm_bound, declaration.intercept, encoding=declaration.encoding)
    return encoder.scales[: vector.length], encoder.scales[vector.length :]


def column_scales(declaration: Declaration) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the affine map of packing: origins and lengths, shapes (features,), and the divisor of the row.

    A coordinate is (feature - origin) / length; bins, categories and indicators are 0 or 1, and unchanged, and
    cells of pairs are 0 or 1, times their weight.
    """
    spread = [pair for each in declaration.numeric for pair in each.affine_of_each(declaration.encoding)]
    categories = tuple((0.0,) * feature.width for feature in declaration.categorical)
    spread += [(0.0, 1.0)] * sum(map(len, categories))
    spread += [(0.0, 1.0 / pair.weight) for pair in declaration.products for _ in range(pair.width)]
    origins, lengths = np.array(spread).reshape(-1, 2).T
    encoding, products = declaration.encoding, declaration.products
    encoder = ColumnEncoder(declaration.numeric, categories, declaration.intercept, encoding=encoding, pairs=products)
    return origins, lengths, encoder.radius


def decisions(
    declaration: Declaration, features: np.ndarray, coefficients: np.ndarray, intercepts: np.ndarray
) -> np.ndarray:
    """Return the decisions of linear models in the units of the columns, as the prediction in SQL computes them.

    Features (n, features) are one coordinate for each coefficient: numbers at their positions, bins and categories as 0
    and 1. Coefficients have the shape (features,) or (outputs, features), intercepts, in the unit of the label,
    (outputs,). Decisions (n, outputs) of a label that is a number are within its bounds.
    """
    scores: np.ndarray = features @ np.atleast_2d(coefficients).T + intercepts
    if declaration.encoding == UNIT:
        norms = _row_norms(declaration, features)
        return scores / (norms + (norms == 0.0))[:, None]
    if declaration.encoding == CENTRED and declaration.label_bounds:
        return np.clip(scores, *declaration.label_bounds)
    return scores


def _row_norms(declaration: Declaration, features: np.ndarray) -> np.ndarray:
    """Return the norms (n,) by which packing divides rows with the encoding `unit`; no square overflows."""
    constant = float(declaration.intercept)
    if declaration.vector:
        coordinates = features / declaration.vector.norm_bound
        constant *= constant_of(declaration.vector.length)
    else:
        origins, lengths, _ = column_scales(declaration)
        coordinates = (features - origins) / lengths
    norms: np.ndarray = np.hypot.reduce(coordinates, axis=1, initial=constant)
    return norms
