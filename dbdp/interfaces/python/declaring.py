"""Features of a caller's rows: the bounds and categories that the caller states, else those of the rows.

Bounds, categories and classes decide how much noise hides a row, so they must be public: known without the rows.
What is read from the rows is listed, so that the caller can be warned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from dbdp.checks import nearest
from dbdp.interfaces.python.frames import Bounds, Frame, FrameColumn, as_text
from dbdp.learning.rows.features import REQUIRED

WIDEST = 900  # columns of a table; a row with more does not fit a page of PostgreSQL
LONGEST_NAME = 63  # bytes of a column's name
SYSTEM_COLUMNS = ("tableoid", "ctid", "xmin", "xmax", "cmin", "cmax")
_MOST_NAMES = 12  # columns that a message lists
_SHOWN = 5  # categories that a message lists
ROW = "x"  # the array column of rows that are bounded by a norm


class PrivacyLeakWarning(UserWarning):
    """Warns that bounds, categories or classes were read from the rows, or that rows were read without a charge."""


@dataclass(frozen=True)
class Declared:
    """The features of rows, as `register_dataset` declares them."""

    features: dict[str, Any]  # column → bounds, categories, or length and norm
    leaks: list[str] = field(default_factory=list)  # names of the facts that were read from the rows


def features_of(frame: Frame, bounds: Any) -> Declared:
    """Return the features of rows."""
    if isinstance(bounds, Mapping):
        bounds = {str(name): stated for name, stated in bounds.items()}
        for name in bounds:
            if name not in frame:
                raise ValueError(_no_column(name, frame))
        return _by_column(frame, bounds)
    if bounds is None and len(frame) <= WIDEST:
        return _by_column(frame, {})
    if bounds is None or isinstance(bounds, Real):
        return _by_norm(frame, None if bounds is None else float(bounds))
    return _by_column(frame, _each(frame, bounds))


def kept_columns(bounds: Any) -> set[str]:
    """Return the names of the columns that bounds declare a meaning of missing values for, other than `required`."""
    stated = bounds.items() if isinstance(bounds, Mapping) else ()
    return {
        str(name) for name, each in stated if isinstance(each, Mapping) and each.get("missing", REQUIRED) != REQUIRED
    }


def requiring(declared: Declared) -> Declared:
    """Return features that refuse missing values in every column without a declared meaning of them."""
    return replace(declared, features={name: _requiring(each) for name, each in declared.features.items()})


def _requiring(stated: Any) -> Any:
    if isinstance(stated, Mapping):
        return {"missing": REQUIRED, **stated} if {"bounds", "categories"} & set(stated) else stated
    if not isinstance(stated, list):
        return stated
    are_categories = any(isinstance(value, str) for value in stated)
    return {"categories" if are_categories else "bounds": stated, "missing": REQUIRED}


def misfits(columns: Frame, features: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each column of which at least half the values are not as declared.

    A misspelt category, or bounds in another unit, would else train a model that knows nothing of the column.
    """
    sentences = []
    for name, declared in features.items():
        stated = declared.get("bounds", declared.get("categories")) if isinstance(declared, Mapping) else declared
        if name not in columns or not isinstance(stated, list):
            continue
        values = columns[name].values
        if columns[name].is_text:
            strange, what = (
                [value is not None and value not in stated for value in values],
                "are none of its categories",
            )
        else:
            strange, what = (values < stated[0]) | (values > stated[1]), "are clipped to its bounds"
        if 2 * np.count_nonzero(strange) >= len(values):
            sentences.append(f"most values of {name!r} {what} {_shown(stated)}")
    return sentences


def _shown(values: list[Any]) -> str:
    return f"[{', '.join(map(repr, values[:_SHOWN]))}{', …' if len(values) > _SHOWN else ''}]"


def _no_column(name: str, frame: Frame) -> str:
    """Return the message that refuses bounds of a name that no column has."""
    listed = ", ".join(list(frame)[:_MOST_NAMES]) + (", …" if len(frame) > _MOST_NAMES else "")
    message = f"bounds name {name!r}, which is not a column; the columns are {listed}{nearest(name, frame)}"
    if list(frame) == [f"x{place}" for place in range(len(frame))]:
        message += (
            "; those of an array have no other names: pass a data frame, and in a Pipeline call "
            'set_output(transform="pandas") on the steps before'
        )
    return message


def _each(frame: Frame, bounds: Any) -> dict[str, Bounds]:
    """Return a pair of bounds for every column of numbers."""
    if isinstance(bounds, str):
        raise ValueError(
            f"bounds = {bounds!r} is text; pass bounds=dbdp.propose_declaration({bounds!r}) if that file is a data "
            "dictionary, else column → [lower, upper] or categories"
        )
    _check_is_no_pair_for_each(frame, bounds)
    try:
        lower, upper = (np.broadcast_to(np.asarray(side, dtype=np.float64), len(frame)).tolist() for side in bounds)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds = {bounds!r} are neither column → [lower, upper], nor a pair for {len(frame)} columns, nor a norm"
        ) from None
    pairs = dict(zip(frame, zip(lower, upper, strict=True), strict=True))
    _check_one_reading(bounds, pairs)
    return {name: pair for name, pair in pairs.items() if not frame[name].is_text}


def _check_is_no_pair_for_each(frame: Frame, bounds: Any) -> None:
    """Raise ValueError for a list of a pair for each column that cannot be the lower and the upper bounds."""
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        return
    are_sides = len(frame) == 2 and pairs.shape == (2, 2) and bool((pairs[0] < pairs[1]).all())
    if pairs.shape == (len(frame), 2) and not are_sides:
        named = {name: pair.tolist() for name, pair in zip(list(frame)[:_SHOWN], pairs, strict=False)}
        raise ValueError(f"bounds are a list of pairs, one for each column; name the columns: {named}")


def _check_one_reading(bounds: Any, pairs: Mapping[str, Bounds]) -> None:
    """Raise ValueError for two pairs that may be [lower, upper] of each column, or the lower and the upper bounds."""
    are_sides = not isinstance(bounds, np.ndarray) and all(isinstance(side, np.ndarray) for side in bounds)
    if are_sides or len(pairs) != 2 or any(np.ndim(side) == 0 for side in bounds):
        return
    if all(np.less(*pair) for pair in pairs.values()) and all(np.less(*side) for side in bounds):
        named = dict(zip(pairs, map(list, bounds), strict=True))
        raise ValueError(
            f"bounds = {bounds!r} may be one pair for each column, or all lower and all upper bounds; pass {named}"
        )


def _by_column(frame: Frame, bounds: Mapping[str, Any]) -> Declared:
    if len(frame) > WIDEST:
        raise ValueError(
            f"the rows have {len(frame)} columns, and at most {WIDEST} can have separate bounds; pass the norm of "
            "a row, bounds=norm, for rows of numbers"
        )
    declared = Declared({})
    for name, column in frame.items():
        _check_name(name)
        stated = bounds.get(name, column.categories if column.is_text else column.bounds)
        if stated is None:
            declared.leaks.append(f"{'categories' if column.is_text else 'bounds'} of {name!r}")
            stated = _categories(column) if column.is_text else extent(column.values)
        declared.features[name] = _plain(stated)
        _check_kind(name, column, declared.features[name])
    return declared


def _check_name(name: str) -> None:
    """Raise ValueError if no column of a table can have this name."""
    if not 1 <= len(name.encode()) <= LONGEST_NAME or "\0" in name or name in SYSTEM_COLUMNS:
        raise ValueError(
            f"PostgreSQL cannot have a column {name!r}: a name has 1 to {LONGEST_NAME} bytes without NUL, and is not "
            f"one of {', '.join(SYSTEM_COLUMNS)}; rename the column"
        )


def _check_kind(name: str, column: FrameColumn, stated: Any) -> None:
    """Raise ValueError for categories of a column of numbers, or bounds of one of texts."""
    if isinstance(stated, Mapping):
        stated = stated.get("bounds", stated.get("categories"))
    are_categories = isinstance(stated, list) and any(isinstance(value, str) for value in stated)
    if are_categories and not column.is_text:
        raise ValueError(
            f"column {name!r} holds numbers, and {stated} would be its categories; pass [lower, upper], or convert it "
            "to text in a data frame, by .astype(str) or a pandas.CategoricalDtype"
        )
    if isinstance(stated, list) and not are_categories and column.is_text:
        raise ValueError(
            f"column {name!r} holds texts, and {stated} would be its bounds; pass its categories as texts, "
            "['1', '2'], or convert it to numbers"
        )


def _plain(stated: Any) -> Any:
    """Return bounds as a list of float, also inside a mapping, or categories as a list of str; others unchanged."""
    if isinstance(stated, Mapping):
        return {**stated, **{key: _plain(stated[key]) for key in ("bounds", "categories") if key in stated}}
    values = list(stated) if isinstance(stated, Sequence | np.ndarray) and not isinstance(stated, str) else stated
    if not isinstance(values, list):
        return stated
    if any(isinstance(value, str) for value in values) or len(values) != 2:
        return [as_text(value) for value in values]
    return [float(value) for value in values]


def _by_norm(frame: Frame, norm: float | None) -> Declared:
    texts = [name for name, column in frame.items() if column.is_text]
    if texts:
        raise ValueError(f"column {texts[0]!r} holds texts, which have no norm; pass bounds as column → categories")
    leaks = ["the norm of a row"] if norm is None else []
    if norm is None:
        norm = float(np.linalg.norm(values_of(frame), axis=1).max()) or 1.0
    return Declared({ROW: {"length": len(frame), "norm": float(norm)}}, leaks)


def values_of(frame: Frame) -> np.ndarray:
    """Return columns of numbers as rows, shape (n, columns)."""
    return np.column_stack([column.values for column in frame.values()])


def extent(values: np.ndarray) -> Bounds:
    """Return the least and the largest number; equal ones are widened, since bounds must differ."""
    lower, upper = float(values.min()), float(values.max())
    return (lower, upper) if lower < upper else (lower, lower + max(1.0, abs(lower)))


def _categories(column: FrameColumn) -> list[str]:
    return sorted({value for value in column.values if value is not None})
