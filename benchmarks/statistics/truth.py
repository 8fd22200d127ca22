"""The table, and how far released figures are from its own."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

import numpy as np
import pandas as pd

from dbdp.interfaces.cli.demo import adult

NUMBERS, LABEL = list(adult.NUMERIC), adult.LABEL
CATEGORIES: Mapping[str, list[str]] = adult.CATEGORIES | {LABEL: [adult.NEGATIVE, adult.POSITIVE]}
QUARTILES = (0.25, 0.5, 0.75)
GROUPS = ("occupation", "income")  # of the table
_WIDE, _BINS = 1024, 8  # whole values that have a cell each; bins of a number in a table of three columns


@dataclass
class Figures:
    """Released figures: means, quartiles and category counts by column, and counts of a table by its groups."""

    means: dict[str, float] = field(default_factory=dict)
    quartiles: dict[str, Sequence[float]] = field(default_factory=dict)
    counts: dict[tuple[str, ...], float] = field(default_factory=dict)


@lru_cache
def rows() -> pd.DataFrame:
    """Return the 48,842 rows, real or generated: see `adult.read`."""
    return pd.read_csv(io.StringIO(adult.read()[0]), keep_default_na=False)


def mean_errors(figures: Figures) -> list[float]:
    """Return the error of each mean, in standard deviations of its column."""
    table = rows()
    return [abs(mean - table[name].mean()) / table[name].std() for name, mean in figures.means.items()]


def rank_errors(figures: Figures) -> list[float]:
    """Return by which fraction of the rows each quartile misses its rank, beyond a thousandth of wide bounds."""
    found = []
    for name, values in figures.quartiles.items():
        ordered, (lower, upper) = np.sort(rows()[name].to_numpy(float)), adult.NUMERIC[name]
        cell = (upper - lower) / (_WIDE - 2) if upper - lower > _WIDE else 0.0
        for value, rank in zip(values, QUARTILES, strict=True):
            least = np.searchsorted(ordered, value - cell, side="left") / len(ordered)
            most = np.searchsorted(ordered, value + cell, side="right") / len(ordered)
            found.append(max(least - rank, rank - most, 0.0))
    return found


def count_errors(figures: Figures, by: Sequence[str] | None = None) -> list[float]:
    """Return the error of each declared cell of a table, or of each category of every column, in rows."""
    if by is None:
        return [error for name in CATEGORIES for error in count_errors(figures, [name])]
    true = rows().groupby(list(by)).size()
    cells = pd.MultiIndex.from_product([CATEGORIES[name] for name in by])
    known = {cell: true.get(cell if len(by) > 1 else cell[0], 0) for cell in cells}
    return [abs(figures.counts.get(cell if len(by) > 1 else (by[0], *cell), 0.0) - n) for cell, n in known.items()]


def coded(table: pd.DataFrame) -> np.ndarray:
    """Return the cell of each value, (n, columns): a category, or one of eight bins of equal width."""
    parts = []
    for name in table.columns:
        if name in CATEGORIES:
            parts.append(pd.Categorical(table[name], CATEGORIES[name]).codes.astype(int) + 1)
        else:
            edges = np.linspace(*adult.NUMERIC[name], _BINS + 1)[1:-1]
            parts.append(np.searchsorted(edges, table[name].to_numpy(float), side="right"))
    return np.column_stack(parts)


def distance(one: pd.DataFrame, other: pd.DataFrame, ways: int) -> float:
    """Return the total variation distance of two tables' distributions of some columns, averaged over all choices."""
    first, second = coded(one), coded(other)
    sizes = np.maximum(first.max(axis=0), second.max(axis=0)) + 1
    found = []
    for chosen in combinations(range(len(sizes)), ways):
        size = sizes[list(chosen)]
        shares = [
            np.bincount(np.ravel_multi_index(tuple(each[:, list(chosen)].T), size), minlength=size.prod()) / len(each)
            for each in (first, second)
        ]
        found.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(found))


def boosting_auc(train: pd.DataFrame, test: pd.DataFrame) -> float:
    """Return the AUC on test rows of scikit-learn's boosting, trained on other rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    features = [name for name in train.columns if name != LABEL]
    is_category = [name in CATEGORIES for name in features]
    known = train[train[LABEL].isin(CATEGORIES[LABEL])]
    model = HistGradientBoostingClassifier(categorical_features=is_category)
    model.fit(coded_fine(known[features]), known[LABEL] == adult.POSITIVE)
    scores = model.predict_proba(coded_fine(test[features]))[:, 1]
    return float(roc_auc_score(test[LABEL] == adult.POSITIVE, scores))


def coded_fine(table: pd.DataFrame) -> np.ndarray:
    """Return numbers as they are, and categories as whole numbers; NaN for others."""
    parts = [
        pd.Categorical(table[name], CATEGORIES[name]).codes if name in CATEGORIES else table[name].to_numpy(float)
        for name in table.columns
    ]
    values = np.column_stack(parts).astype(float)
    values[values < 0] = np.nan
    return values
