"""Released summaries: how they are stored, and what their coordinates are in the units of the columns.

A summary is the noisy sum of zzᵀ over rows z = (x, b·y) with the encoding `centred`, privacy.md §16.7. z is b·c, up to
rounding, where c has C coordinates: the features, each within its declared bounds as [-1, 1], the constant 1 if the
declaration has an intercept, and the label, as -1 and 1, as [-1, 1], or an indicator of each class. Shapes: matrices
(C, C), natural units (C,).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dbdp.algorithms.families.preconditioned.preconditioning import matrix_of, usual_ridge
from dbdp.algorithms.plan import Moment
from dbdp.learning.rows.encoding import HEADER_BYTES, SHRINK
from dbdp.learning.rows.features import CENTRED, UNIT, constant_of
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import Declaration
from dbdp.registry.results import models
from dbdp.registry.results.column_units import column_scales
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session


def weight_of(declaration: Declaration) -> float:
    """Return b, rounded to 24 bits: the factor of every column in a row with the encoding `centred`."""
    indicators = sum(feature.indicator for feature in declaration.numeric)
    return float(np.float32(SHRINK / math.sqrt(len(declaration.columns) + indicators + declaration.intercept)))


@dataclass(frozen=True)
class StoredSummary:
    """A released summary."""

    id: int  # its number in dbdp.summaries
    dataset_id: int  # of the dataset's registration
    dataset: str  # the dataset's name
    declaration: Declaration  # the declaration that its rows were packed with, with the encoding `centred`
    mean: np.ndarray  # noisy mean of ccᵀ over all slots; a record that cannot be packed counts as 0
    scale: float  # standard deviation of the noise of each orthonormal coordinate of the mean
    slots: int  # how many records the mean is over, public
    column_types: dict[str, str] = field(default_factory=dict)  # by column; empty of a summary of an earlier version
    cohort: dict[str, Any] | None = None  # the rows that it is of; None is all rows

    @property
    def names(self) -> list[str]:
        """A name for each coordinate; the constant has an empty one."""
        declaration = self.declaration
        binned = declaration.binned_label.bin_names if declaration.binned_label else [declaration.label]
        labels = [f"{declaration.label}={name}" for name in declaration.classes] or binned
        return declaration.feature_names + [""] * declaration.intercept + labels

    @property
    def columns(self) -> list[str]:
        """The column of each coordinate."""
        declaration = self.declaration
        widths = [each.width for each in declaration.numeric] + [each.width for each in declaration.categorical]
        widths = [declaration.vector.length] if declaration.vector else widths
        features = [name for name, width in zip(declaration.columns, widths, strict=True) for _ in range(width)]
        return features + [""] * declaration.intercept + [declaration.label] * declaration.outputs

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """Origins and lengths: a coordinate c is origin + length·c in the units of its column, or on its scale."""
        declaration = self.declaration
        origins, lengths = _of_features(declaration)
        lower, upper = declaration.label_bounds or (0.0, 1.0)
        is_indicator = declaration.outputs > 1
        middle, half = (0.0, 1.0) if is_indicator else (lower / 2 + upper / 2, (upper - lower) / 2)
        return np.append(origins, [middle] * declaration.outputs), np.append(lengths, [half] * declaration.outputs)

    @property
    def constant(self) -> int:
        """The place of the coordinate 1; see `check_means`."""
        return self.declaration.dimension - 1

    def check_means(self) -> None:
        """Raise ValueError unless the summary has the constant, from which counts and means follow."""
        if not self.declaration.intercept:
            raise ValueError(
                f"summary {self.id} has no means, since dataset {self.dataset!r} was registered with intercept => "
                "false; register the table with intercept => true, and summarise it again"
            )

    def place(self, name: str) -> int:
        """Return the place of a coordinate, by its name or by that of a column of one coordinate."""
        places = self.places([name])
        if len(places) > 1:
            names = ", ".join(self.names[place] for place in places[:5])
            raise ValueError(f"column {name!r} has {len(places)} coordinates; name one of them: {names}, …")
        return places[0]

    def places(self, wanted: Sequence[str]) -> list[int]:
        """Return the places of coordinates, in their order, by their names or by those of their columns."""
        names, columns = self.names, self.columns
        for each in wanted:
            if not isinstance(each, str) or not each or each not in {*names, *columns}:
                raise ValueError(f"summary {self.id} has no column {each!r}; choose among {_shown(columns)}")
        if not wanted:
            raise ValueError(f"features is empty; choose some of {_shown(columns)}, or leave it out")
        return [place for place, pair in enumerate(zip(names, columns, strict=True)) if set(pair) & set(wanted)]

    def moment_for(self, dataset: RegisteredDataset) -> Moment:
        """Return the second moment of the rows as a training packs them, and its ridge, for `preconditioned_gd`.

        Rows with the encoding `unit` are divided by their norms: their second moment is about that of the rows before
        it, divided by its trace. A preconditioner may be any matrix that follows from releases.
        """
        declaration, dimension = dataset.declaration, dataset.declaration.dimension
        self._check(dataset)
        change = self._change(declaration)
        mean = change @ self.mean[:dimension, :dimension] @ change.T
        if declaration.encoding == CENTRED:
            factor = weight_of(declaration) ** 2
        else:
            factor = 1 / max(float(np.trace(mean)), self.scale)
        return Moment(factor * mean, usual_ridge(factor * self.scale, dimension))

    def _check(self, dataset: RegisteredDataset) -> None:
        again = f"drop it, or release a new one with dbdp.dp_summarize({dataset.name!r}, …)"
        if self.dataset_id != dataset.id:
            raise ValueError(
                f"summary {self.id} is of dataset {self.dataset!r}, or of an earlier registration or period of it, and "
                f"not of {dataset.name!r} as it is registered now; {again}"
            )
        if self.declaration.features != dataset.declaration.features:
            is_recoded = self.declaration.plain_features == dataset.declaration.plain_features
            what = (
                f"summary {self.id} has other bins, scales or meanings of NULL than dataset {dataset.name!r}"
                if is_recoded
                else f"the features of dataset {dataset.name!r} were redeclared after summary {self.id}"
            )
            raise ValueError(f"{what}; {again}")

        if self.cohort != dataset.cohort:
            raise ValueError(
                f"summary {self.id} is of {rows_of(self.cohort)}, and the training of {rows_of(dataset.cohort)}; pass "
                f"the summary's cohort, or {again}"
            )

    def _change(self, declaration: Declaration) -> np.ndarray:
        """Return the matrix, shape (d, d), from c to the coordinates of another encoding, before division by norms."""
        (origins, lengths), (new_origins, new_lengths) = map(_of_features, (self.declaration, declaration))
        change, shifts = np.diag(lengths / new_lengths), (origins - new_origins) / new_lengths
        if not declaration.intercept and shifts.any():
            raise ValueError(
                f"summary {self.id} has no intercept, and a class is learned from columns with bounds 0 and 1 as "
                "indicators; leave summary out, or register with intercept => true"
            )
        if declaration.intercept:
            change[:, -1] += shifts
        return change


def _of_features(declaration: Declaration) -> tuple[np.ndarray, np.ndarray]:
    """Return origins and lengths of the features, and of the constant, shapes (d,)."""
    constant = 1.0
    if declaration.vector:
        lengths = np.full(declaration.vector.length, declaration.vector.norm_bound)
        origins = np.zeros(declaration.vector.length)
        constant = 1 / constant_of(declaration.vector.length) if declaration.encoding == UNIT else 1.0
    else:
        origins, lengths, _ = column_scales(declaration)
    return np.append(origins, [0.0] * declaration.intercept), np.append(lengths, [constant] * declaration.intercept)


def rows_of(cohort: Mapping[str, Any] | None) -> str:
    """Return a cohort for a reader."""
    return "all rows" if cohort is None else f"rows of cohort {json.dumps(cohort)}"


def _shown(columns: Sequence[str]) -> str:
    present = list(dict.fromkeys(filter(None, columns)))
    return ", ".join(present[:20]) + (", …" if len(present) > 20 else "")


def record(
    session: SpiSession, dataset: RegisteredDataset, numbers: list[float], receipt: dict[str, Any]
) -> dict[str, Any]:
    """Write a summary to dbdp.model (in the server, as dbdp_owner); return id and receipt."""
    declaration = replace(dataset.declaration, encoding=CENTRED)
    return models.insert(session, replace(dataset, declaration=declaration), receipt, None, None, None, numbers)


_LOAD = """
select m.dataset_id,
       m.declaration::pg_catalog.text as declaration,
       m.receipt::pg_catalog.text as receipt,
       dbdp_internal.array_bytes(m.parameters) as numbers
from dbdp.model as m
where m.id = $1
and m.is_summary
and m.receipt ->> 'algorithm' = 'summary'
"""


def load(session: Session, number: int) -> StoredSummary:
    """Return a released summary, with the caller's rights."""
    rows = session.query(_LOAD, number)
    if not rows:
        raise ValueError(f"summary {number} does not exist; see dbdp.summaries, or call dbdp.dp_summarize")
    row, receipt = rows[0], json.loads(rows[0]["receipt"])
    noisy = np.frombuffer(row["numbers"], np.float64, offset=HEADER_BYTES)
    slots = receipt["capacity"] * receipt.get("max_rows", 1) if "capacity" in receipt else receipt["rows"]
    square = slots * receipt["label_weight"] ** 2
    mean, scale = matrix_of(noisy, receipt["coordinates"]) / square, receipt["noise_scale"] / square
    declaration, types = Declaration.from_json(row["declaration"]), receipt.get("column_types", {})
    of_dataset = row["dataset_id"], receipt["dataset"], declaration
    return StoredSummary(number, *of_dataset, mean, scale, slots, types, receipt.get("cohort"))
