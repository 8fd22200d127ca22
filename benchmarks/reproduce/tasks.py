"""The tables as the papers prepare them: numbers scaled to [0, 1], categories one-hot, rows of norm at most 1.

A task is named by its table, with settings behind a colon, as in `kdd:rows=50000`. Bounds and categories count as
public; those of KDD Cup 1999 and of credit card are read from the file, which no private system may do.
Shapes: features (n, d), labels (n,).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy import encoding
from benchmarks.accuracy.datasets import (
    BINARY,
    CLASSES,
    LOADERS,
    REGRESSION,
    Data,
    Split,
    folder,
    of_family,
)
from benchmarks.accuracy.dp_sgd import to_unit
from benchmarks.accuracy.generated import Family

PROJECTED, PROJECTION_SEED = 50, 2017  # of MNIST, as in Wu et al. 2017
TEST_SHARE = 0.2
BIGGEST_CARDS = {"SEX": 2, "EDUCATION": 6, "MARRIAGE": 3}  # the codes that stand for categories


@dataclass(frozen=True, eq=False)
class Task:
    """Rows for training and for testing, with their classes: 1 for ±1 labels and for numbers."""

    name: str
    split: Split
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray

    @property
    def data(self) -> Data:
        """Return the table with what its owner declares."""
        return self.split.data

    @property
    def classes(self) -> int:
        """Return the number of models."""
        return len(self.data.declared["classes"]) if self.data.task == CLASSES else 1


@lru_cache(maxsize=2)
def task_of(name: str, repeat: int) -> Task:
    """Return the task of a name with the rows of a repeat: the same for every method, and in every run.

    Raises
    ------
    ValueError
        If no table has this name.
    """
    data = load(name)
    places = np.random.default_rng([repeat, len(data.rows)]).permutation(len(data.rows))
    tested = round(TEST_SHARE * len(places))
    split = Split(data, np.sort(places[tested:]), np.sort(places[:tested]))
    rows, labels = prepared(name)
    return Task(name, split, rows[split.train], labels[split.train], rows[split.test], labels[split.test])


@lru_cache(maxsize=2)
def load(name: str) -> Data:
    """Return the table of a task: all rows, or a sample of `rows` that is the same in every run."""
    table, _, text = name.partition(":")
    settings = dict(each.split("=") for each in text.split(":") if each)
    if table == "synthetic":
        return of_family(name, Family(rows=int(settings["rows"]), features=int(settings.get("features", 50))))
    loaders = LOADERS | {"kdd": load_kdd, "creditcard": load_creditcard, "mnist50": LOADERS["mnist"]}
    if table not in loaders:
        raise ValueError(f"there is no table {table!r}: use {', '.join(loaders)} or synthetic:rows=10000")
    data = loaders[table]()
    if "rows" not in settings or int(settings["rows"]) >= len(data.rows):
        return data
    places = np.random.default_rng(PROJECTION_SEED).permutation(len(data.rows))[: int(settings["rows"])]
    rows = data.rows.iloc[np.sort(places)].reset_index(drop=True)
    return Data(data.name, data.label, data.declared, data.features, rows, data.epsilons, data.delta)


@lru_cache(maxsize=2)
def prepared(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all rows and labels of a task: ±1, 1 to K, or numbers in [-1, 1]."""
    data = load(name)
    if data.task == REGRESSION:
        return encoding.bounded(data), to_unit(data.truth, data.declared["label_bounds"])
    rows = encoding.scaled(data) if not name.startswith("synthetic") else data.rows.drop(columns="y").to_numpy()
    if name.startswith("mnist50"):
        rows = rows @ np.random.default_rng(PROJECTION_SEED).normal(size=(rows.shape[1], PROJECTED))
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows, (2.0 * data.truth - 1 if data.task == BINARY else data.truth + 1.0)


def load_kdd() -> Data:
    """Return the 10 % file of KDD Cup 1999: attacks against the rest."""
    rows = pd.read_csv(folder() / "kddcup99_10pct" / "kddcup99_10pct.csv.gz", keep_default_na=False)
    rows["label"] = np.where(rows["label"] == "normal.", "normal", "attack")
    return Data("kdd", "label", {"positive": "attack"}, described(rows, "label"), rows, (0.1, 0.4, 1.6), 1e-12)


def load_creditcard() -> Data:
    """Return credit card default of UCI (Yeh & Lien 2009)."""
    rows = pd.read_csv(folder() / "creditcard" / "creditcard.csv.gz").drop(columns="ID")
    label = "default_payment_next_month"
    kinds: dict[str, Any] = dict.fromkeys((*BIGGEST_CARDS, label), str)
    rows = rows.astype(kinds)
    return Data("creditcard", label, {"positive": "1"}, described(rows, label), rows, (0.1, 0.5, 1, 2))


def described(rows: pd.DataFrame, label: str) -> dict[str, list[Any]]:
    """Return bounds and categories read from the rows, without columns of one value."""
    features: dict[str, list[Any]] = {}
    for name in rows.columns.drop(label):
        values = rows[name]
        if pd.api.types.is_numeric_dtype(values):
            if values.min() < values.max():
                features[name] = [float(values.min()), float(values.max())]
        else:
            features[name] = sorted(values.unique())
    return features
