"""The registration of a dataset: the public facts and the total budget that an owner states once, as one record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dbdp import checks
from dbdp.learning.rows.features import ASINH, Numeric
from dbdp.privacy.accounting.budget import Budget
from dbdp.registry import places
from dbdp.registry.declarations import Declaration, Unit, declare, unit_of

LONGEST_NAME = 63  # characters of a dataset's name
WIDE = 10_000.0  # width of bounds: values over such a range, as amounts and counts, are seldom evenly spread
BINS = 8
MAX_CAPACITY = 10**12
_LARGEST_GROWTH = 0.25  # of the number of coordinates, by bins chosen by default: noise grows with them
_ROWS_PER_COORDINATE = 200  # with fewer rows, bins chosen by default cost more accuracy than they bring


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What an owner states of a table; every interface builds this record, with the fields of dbdp.register_dataset.

    The other fields are the parameters of `dbdp.registry.declarations.declare`, and those of the budget, `epsilon`,
    `delta`, `mode`, `rho` and `rdp_order`, the order, of `dbdp.privacy.accounting.budget.Budget.of`.

    Attributes
    ----------
    name : str
        Name of the dataset, 1 to 63 printable characters.
    source : str
        Name of the table, as SQL writes it.
    unit : str | None
        All rows with one value of this column are protected together; None protects single rows.
    max_rows : int | None
        At most so many rows of each unit are read; None without a unit.
    capacity : int | None
        At most so many rows, or units, are read, whatever their number, which is then private (privacy.md §18); None
        makes their present number public, and a table with another number is refused.
    """

    name: str
    source: str
    label: str
    positive: str | None = None
    features: Mapping[str, Any]
    epsilon: float | None = None
    delta: float
    negative: str | None = None
    intercept: bool = True
    mode: str = "renyi"
    classes: Sequence[str] | None = None
    label_bounds: Sequence[float] | None = None
    unit: str | None = None
    max_rows: int | None = None
    public_columns: Sequence[str] | None = None
    rho: float | None = None
    capacity: int | None = None
    rdp_order: float | None = None

    @cached_property
    def declaration(self) -> Declaration:
        """The checked declaration of the columns; raises ValueError as `declare` does."""
        return declare(
            label=self.label,
            features=self.features,
            positive=self.positive,
            negative=self.negative,
            classes=self.classes,
            label_bounds=self.label_bounds,
            intercept=self.intercept,
            public_columns=self.public_columns,
        )

    def coded(self, rows: int) -> "Registration":
        """Return the registration with a scale, and possibly bins, for wide numbers declared by their bounds alone.

        Public facts decide: for classes a number whose bounds are WIDE apart is put on the scale `asinh`, and in BINS
        bins if all of them together add few coordinates, and there are enough rows. A column declared as
        `{"bounds": …}` is unchanged. This is chosen once and not for each training, so that all models of a dataset,
        and every summary that several of them share, have the same coordinates.
        """
        wide = [] if self.declaration.kind == "real" else list(filter(self._is_wide, self.declaration.numeric))
        coordinates = self.declaration.dimension + (BINS - 1) * len(wide)
        is_binned = (
            coordinates <= self.declaration.dimension * (1 + _LARGEST_GROWTH)
            and rows >= coordinates * _ROWS_PER_COORDINATE
        )
        chosen = [replace(each, scale=ASINH, bins=BINS if is_binned else 0) for each in wide]
        return replace(self, features={**self.features, **{each.column: each.declared for each in chosen}})

    def _is_wide(self, feature: Numeric) -> bool:
        is_plain = not isinstance(self.features[feature.column], Mapping)
        return is_plain and feature.upper - feature.lower >= WIDE

    @cached_property
    def privacy_unit(self) -> Unit | None:
        """The checked unit of privacy, None if it is one row; raises ValueError as `unit_of` does."""
        return unit_of(self.declaration, self.unit, self.max_rows)

    @cached_property
    def budget(self) -> Budget:
        """The checked budget; raises ValueError as `Budget.of` does."""
        return Budget.of(epsilon=self.epsilon, delta=self.delta, mode=self.mode, rho=self.rho, order=self.rdp_order)

    @property
    def columns(self) -> list[str]:
        """Names of the declared columns and of the unit's: those whose types may not change."""
        declared = self.declaration
        named = [self.unit] if self.unit is not None else []
        return [declared.label, *declared.columns, *declared.public_columns, *named]

    def check(self) -> None:
        """Raise ValueError if the registration is not valid for any table; no database is needed."""
        if not 1 <= len(self.name) <= LONGEST_NAME:
            raise ValueError(
                f"dataset name {self.name!r} has {len(self.name)} characters; choose one with 1 to {LONGEST_NAME}"
            )
        if not self.name.isprintable():
            raise ValueError(
                f"dataset name {self.name!r} has characters that cannot be printed; choose a name without them"
            )
        _ = self.declaration, self.privacy_unit, self.budget
        if self.capacity is not None:
            check_capacity(self.capacity)


def check_capacity(capacity: int) -> None:
    """Raise ValueError unless a capacity is a whole number within the limit."""
    checks.whole("capacity", capacity, 1, MAX_CAPACITY, "choose how many rows, or units, the table may come to have")


def check_elsewhere(registration: Registration) -> None:
    """Raise ValueError unless the registration can be of files: rows by themselves, of a public and fixed number."""
    for name, value in (("unit", registration.unit), ("capacity", registration.capacity)):
        if value is not None:
            raise ValueError(f"{name} = {value!r} is for tables of PostgreSQL; leave it out to register files")
    places.parts(registration.source)
