"""What is passed to `fit` and `predict`: the name of a dataset, a table, a query, or rows with their labels."""

import contextlib
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dbdp
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.declaring import Declared, PrivacyLeakWarning, misfits
from dbdp.interfaces.python.frames import Frame, FrameColumn

_OURS = (f"{Path(dbdp.__file__).parent}{os.sep}", contextlib.__file__)  # files that the caller did not write


@dataclass(frozen=True)
class StoredLabels:
    """Labels of a caller's rows, ready to be stored."""

    stored: np.ndarray  # shape (n,), float64 or texts
    declared: dict[str, Any]  # fields of a registration: positive and negative, classes, or label_bounds
    classes: np.ndarray | None  # in the caller's own type, shape (classes,); None for numbers
    leaks: list[str]  # names of the facts that were read from the labels


@dataclass(frozen=True)
class GivenRows:
    """A caller's rows, ready to be loaded."""

    frame: Frame
    labels: StoredLabels
    features: Declared
    are_extremes: bool = False  # the frame has what was read of the rows, and not their values

    @property
    def misfits(self) -> list[str]:
        """A sentence for each column, and for the labels, of which most values are not as declared."""
        if self.are_extremes:
            return []
        bounds = self.labels.declared.get("label_bounds")
        labels = {"y": FrameColumn(self.labels.stored)} if bounds else {}
        return misfits(self.frame, self.features.features) + misfits(labels, {"y": bounds})


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line that called dbdp, however deep the call is."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def check_are_rows(X: Any) -> None:
    """Raise ValueError for the name of a dataset, which is neither predicted nor scored exactly."""
    if isinstance(X, str):
        raise ValueError(
            f"X = {X!r} is a name, not rows; predict and score are for rows, charged_score for a dataset: "
            f"charged_score({X!r}, METRIC, epsilon=…)"
        )


def is_sql(rows: Any) -> bool:
    """Return whether rows are a SQLAlchemy table, mapped class or query."""
    return hasattr(rows, "__visit_name__") or hasattr(rows, "__table__")


def check_is_no_file(X: Any) -> None:
    """Raise ValueError for the name of a file in place of a dataset's."""
    if isinstance(X, str) and X.lower().endswith((".csv", ".csv.gz", ".parquet", ".feather", ".json")):
        raise ValueError(
            f"X = {X!r} is the name of a file, not of a dataset; pass its rows, such as "
            f"pandas.{'read_parquet' if X.lower().endswith('.parquet') else 'read_csv'}({X!r})"
        )


def check_is_no_feature(label: str, bounds: Any, of_label: str) -> None:
    """Raise ValueError if bounds name the label, as those from a dictionary of all columns do."""
    if isinstance(bounds, Mapping) and label in bounds:
        raise ValueError(f"bounds name {label!r}, which is the label; leave it out there, and pass {of_label}=")


def dataset_of(database: Database, X: Any) -> str | None:
    """Return the dataset that a table is registered as; None for a query."""
    from dbdp.interfaces.python import alchemy

    if alchemy.table_of(X) is None:
        return None
    name = database.dataset_of(X)
    if name is None:
        raise ValueError(
            f"table {alchemy.source_name(X)} is not a dataset that this role may train on; register it, or pass "
            "select(table) to read its rows with your own rights"
        )
    return name


def values_of(database: Database, X: Any) -> dict[str, list[Any]]:
    """Return the values of a query by column; warn if it reads rows of a dataset."""
    from dbdp.interfaces.python import alchemy

    values = database.rows(X)
    for name in filter(None, map(database.dataset_of, alchemy.tables_of(X))):
        warn(
            f"the query reads rows of dataset {name!r} with your own rights, and a model trained on them is not "
            f"charged to its budget: do not publish it, or train by fit({name!r})",
            PrivacyLeakWarning,
        )
    return values
