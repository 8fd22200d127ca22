"""The tables, with what their owner declares; bounds and categories come from their documentation and count as public.

A table that is generated may be named with its own settings: `generated:rows=5000:features=30:share=.1`.
"""

import gzip
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy import generated
from dbdp.interfaces.cli.demo import adult

DICTIONARIES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("dictionaries.json").read_text())
BINARY, CLASSES, REGRESSION = "binary", "classes", "regression"
PIXELS, BRIGHTEST = 784, 255
TEST_SHARE = 0.2
OF_NUMBERS = (0.1, 0.4, 1, 4)  # ε
GENERATED = "generated:"


@dataclass(frozen=True, eq=False)
class Data:
    """A table of n rows and its declaration.

    `rows` has the columns of `features` and the label as PostgreSQL reads them, or, where `features` declares one
    array, a column for each of its elements.
    """

    name: str
    label: str
    declared: Mapping[str, Any]  # of the label, as register_dataset takes it
    features: Mapping[str, Any]
    rows: pd.DataFrame
    epsilons: tuple[float, ...] = (0.1, 0.4, 1.6, 4)
    delta: float = 1e-8

    @property
    def task(self) -> str:
        """Return what is predicted: one of two classes, one of several, or a number."""
        kinds = {"positive": BINARY, "classes": CLASSES, "label_bounds": REGRESSION}
        return next(kinds[key] for key in self.declared)

    @property
    def is_array(self) -> bool:
        """Return whether the features are one array column."""
        return any(isinstance(declared, dict) for declared in self.features.values())

    @cached_property
    def truth(self) -> np.ndarray:
        """Return the labels, shape (n,): 0 or 1, the place of the class, or the number within its bounds."""
        labels = self.rows[self.label]
        if self.task == BINARY:
            return (labels == self.declared["positive"]).to_numpy(int)
        if self.task == CLASSES:
            return labels.map(self.declared["classes"].index).to_numpy(int)
        return labels.to_numpy(float).clip(*self.declared["label_bounds"])


@dataclass(frozen=True, eq=False)
class Split:
    """A table with the places of the rows that train, and of those that test."""

    data: Data
    train: np.ndarray
    test: np.ndarray

    @classmethod
    @lru_cache(maxsize=1)
    def of(cls, name: str, number: int) -> "Split":
        """Return the split of this number: the same for every method, and in every run."""
        data = load(name)
        places = np.random.default_rng([number, len(data.rows)]).permutation(len(data.rows))
        tested = round(TEST_SHARE * len(places))
        return cls(data, np.sort(places[tested:]), np.sort(places[:tested]))


@lru_cache
def load(name: str) -> Data:
    """Return a table by its name.

    Raises
    ------
    ValueError
        If no table has this name.
    """
    if name.startswith(GENERATED):
        return of_family(name, generated.Family.parse(name.removeprefix(GENERATED)))
    if name not in LOADERS:
        raise ValueError(f"there is no table {name!r}: use {', '.join(NAMES)}, or {GENERATED}rows=5000:features=30")
    return LOADERS[name]()


def folder() -> Path:
    """Return the folder of the real tables."""
    return Path(os.environ.get("DBDP_DATA", "../shared/data"))


def read_csv(name: str) -> pd.DataFrame:
    """Return a real table; the values of declared categories are text."""
    text = {column: str for column, declared in DICTIONARIES[name].items() if is_text(declared)}
    return pd.read_csv(folder() / name / f"{name}.csv.gz", dtype=text, keep_default_na=False)


def is_text(declared: Any) -> bool:
    """Return whether a column is declared as a list of categories."""
    return isinstance(declared, list) and isinstance(declared[0], str)


def load_adult() -> Data:
    """Return Adult, real or generated: see `adult.read`."""
    rows = pd.read_csv(io.StringIO(adult.read()[0]), keep_default_na=False)
    return Data("adult", adult.LABEL, {"positive": adult.POSITIVE}, adult.DECLARED, rows)


def load_bank() -> Data:
    """Return Bank Marketing of UCI (Moro, Cortez & Rita 2014)."""
    return Data("bank", "y", {"positive": "yes"}, DICTIONARIES["bank"], read_csv("bank"))


def load_credit_card() -> Data:
    """Return Default of Credit Card Clients of UCI (Yeh & Lien 2009)."""
    label, declared = "default_payment_next_month", DICTIONARIES["creditcard"]
    return Data("creditcard", label, {"positive": "1"}, declared, read_csv("creditcard").astype({label: str}))


def load_covertype() -> Data:
    """Return a sixth of Covertype of UCI (Blackard 1998), class 2 against the rest."""
    rows = read_csv("covertype_part")
    numbers = DICTIONARIES["covertype_part"]
    indicators = {name: [0, 1] for name in rows.columns if name.startswith(("Wilderness", "Soil"))}
    label = "Cover_Type"
    return Data("covertype_part", label, {"positive": "2"}, numbers | indicators, rows.astype({label: str}))


def load_wine() -> Data:
    """Return Wine Quality of UCI (Cortez et al. 2009)."""
    declared = {"label_bounds": [0, 10]}
    return Data("wine", "quality", declared, DICTIONARIES["wine"], read_csv("wine"), OF_NUMBERS, 1e-6)


def load_bike() -> Data:
    """Return Bike Sharing of UCI by the hour (Fanaee-T & Gama 2013)."""
    declared = {"label_bounds": [0, 1000]}
    return Data("bike", "cnt", declared, DICTIONARIES["bike"], read_csv("bike"), OF_NUMBERS, 1e-6)


def load_mnist() -> Data:
    """Return the 70,000 digits of LeCun, Cortes & Burges as arrays of raw pixels."""
    images = np.concatenate([read_idx(f"{part}-images-idx3-ubyte.gz", 16) for part in ("train", "t10k")])
    digits = np.concatenate([read_idx(f"{part}-labels-idx1-ubyte.gz", 8) for part in ("train", "t10k")])
    rows = pd.DataFrame(images.reshape(-1, PIXELS)).assign(y=digits.astype(str))
    features = {"x": {"length": PIXELS, "norm": BRIGHTEST * PIXELS**0.5}}
    return Data("mnist", "y", {"classes": [str(digit) for digit in range(10)]}, features, rows, (1, 4))


def read_idx(name: str, header: int) -> np.ndarray:
    """Return the bytes of an idx file behind its header."""
    return np.frombuffer(gzip.decompress((folder() / "mnist" / name).read_bytes()), np.uint8, offset=header)


def of_family(name: str, family: "generated.Family") -> Data:
    """Return a generated table of numbers, with the bounds that the generator clips to."""
    columns, labels = family.draw()
    rows = pd.DataFrame(columns, columns=[f"x{place}" for place in range(family.features)])
    features = {column: [-family.bound, family.bound] for column in rows.columns}
    return Data(name, "y", {"positive": "1"}, features, rows.assign(y=labels.astype(str)))


LOADERS = {
    "adult": load_adult,
    "bank": load_bank,
    "creditcard": load_credit_card,
    "covertype_part": load_covertype,
    "wine": load_wine,
    "bike": load_bike,
    "mnist": load_mnist,
}
NAMES = (
    *LOADERS,
    GENERATED + "rows=20000:features=60:share=0.3:correlation=0.6",
    GENERATED + "rows=60000:features=40:share=0.05:density=0.1:tails=1",
)
