"""The registration of a dataset: the public facts and the total budget that an owner states once, as one record.

The command line imports it for its fields, so that the checks import declarations and budgets when they are needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, Field, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dbdp import checks
from dbdp.registry import places

if TYPE_CHECKING:
    from dbdp.learning.rows.features import Numeric
    from dbdp.privacy.accounting.budget import Budget
    from dbdp.registry.declarations import Declaration
    from dbdp.registry.units import Unit

LONGEST_NAME = 63  # characters of a dataset's name
WIDE = 10_000.0  # width of bounds: values over such a range, as amounts and counts, are seldom evenly spread
BINS = 8
MAX_CAPACITY = 10**12
_LARGEST_GROWTH = 0.25  # of the number of coordinates, by bins chosen by default: noise grows with them
_ROWS_PER_COORDINATE = 200  # with fewer rows, bins chosen by default cost more accuracy than they bring


MEANINGS = {  # of the fields, for the reference of Python and the help of the command line
    "name": "Name of the dataset, 1 to 63 printable characters.",
    "source": "The table: its name as SQL writes it, or in Python also SQLAlchemy's table or mapped class.",
    "label": "Column of the label.",
    "positive": "The label's positive value.",
    "features": 'Column → [lower, upper] (bounds) or ["a", "b", …] (categories); or one array column → '
    '{"length": d, "norm": bound}.',
    "epsilon": "Total ε of the dataset.",
    "delta": "Total δ of the dataset, between 0 and 1.",
    "negative": "The label's negative value; default: any other.",
    "intercept": "Whether models have an intercept.",
    "mode": "How charges add up: renyi, basic, gaussian or zcdp.",
    "classes": "The values of a label of several classes.",
    "label_bounds": "[lower, upper] of a label that is a number; values outside are clipped.",
    "unit": "Column of the unit of privacy: rows with one value are protected together; default: one row.",
    "max_rows": "Largest number of rows that are read of each unit.",
    "public_columns": "Columns with a public value in every row, to group by.",
    "rho": "Total ρ of zero-concentrated differential privacy, instead of ε.",
    "capacity": "Largest number of rows, or of units, that is read. Their number is private and may change; by default "
    "the present number is public, and must stay.",
    "rdp_order": "Rényi order of mode renyi; default: at which Gaussian noise costs least.",
}


@dataclass(frozen=True)
class Registration:
    """What an owner states of a table; every interface builds this record.

    The parameters of dbdp.register_dataset, of `Database.register_dataset` and of `dbdp register` are its fields.
    `MEANINGS` describes them.
    """

    name: str
    source: Any  # a str, but for the argument of Python
    _: KW_ONLY
    label: str
    positive: str | float | None = None
    features: Mapping[str, Any]
    epsilon: float | None = None
    delta: float
    negative: str | float | None = None
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
    def declaration(self) -> "Declaration":
        """The checked declaration of the columns; raises ValueError as `declare` does."""
        from dbdp.registry.declarations import declare

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
        """Return the registration with a scale, and possibly bins, for wide numbers declared by bounds alone.

        Public facts decide: for classes a number whose bounds are WIDE apart is put on the scale `asinh`, and in BINS
        bins if all of them together add few coordinates, and there are enough rows. A column declared as
        `{"bounds": …}`, or with bins or a scale, is unchanged. This is chosen once and not for each training, so that
        all models of a dataset, and every summary that several of them share, have the same coordinates.
        """
        from dbdp.learning.rows.features import ASINH

        wide = [] if self.declaration.kind == "real" else list(filter(self._is_wide, self.declaration.numeric))
        coordinates = self.declaration.dimension + (BINS - 1) * len(wide)
        is_binned = (
            coordinates <= self.declaration.dimension * (1 + _LARGEST_GROWTH)
            and rows >= coordinates * _ROWS_PER_COORDINATE
        )
        chosen = [replace(each, scale=ASINH, bins=BINS if is_binned else 0) for each in wide]
        return replace(self, features={**self.features, **{each.column: each.declared for each in chosen}})

    def _is_wide(self, feature: "Numeric") -> bool:
        stated = self.features[feature.column]
        is_plain = not isinstance(stated, Mapping) or set(stated) == {"bounds", "missing"}
        return is_plain and feature.upper - feature.lower >= WIDE

    @cached_property
    def privacy_unit(self) -> "Unit | None":
        """The checked unit of privacy, None if it is one row; raises ValueError as `unit_of` does."""
        from dbdp.registry.units import unit_of

        return unit_of(self.declaration, self.unit, self.max_rows)

    @cached_property
    def budget(self) -> "Budget":
        """The checked budget; raises ValueError as `Budget.of` does."""
        from dbdp.privacy.accounting.budget import Budget

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


_SQL_TYPES = {"source": "regclass", "capacity": "int8", "features": "json"}
_OF_KINDS: dict[Any, str] = {
    str: "text",
    float: "float8",
    int: "int4",
    bool: "bool",
    Sequence[str]: "text[]",
    Sequence[float]: "float8[]",
}


def stated() -> Iterator[tuple[Field[Any], str]]:
    """Yield the fields of a registration, each with its type in SQL."""
    for each in fields(Registration):
        kind = next((kind for kind in getattr(each.type, "__args__", ()) if kind in _OF_KINDS), each.type)
        yield each, _SQL_TYPES.get(each.name) or _OF_KINDS[kind]


def sql_parameters() -> str:
    """Return the fields as parameters of an SQL function, one on a line; those after an optional one are optional."""
    lines, is_optional = [], False
    for each, kind in stated():
        is_optional = is_optional or each.default is not MISSING
        default = None if each.default is MISSING else each.default  # dbdp refuses null by name
        literal = "null" if default is None else repr(default).lower()
        lines.append(f"  {each.name} {kind}" + (f" default {literal}" if is_optional else ""))
    return ",\n".join(lines)


def check_capacity(capacity: int) -> None:
    """Raise ValueError unless a capacity is a whole number within the limit."""
    checks.whole("capacity", capacity, 1, MAX_CAPACITY, "choose how many rows, or units, the table may come to have")


def check_elsewhere(registration: Registration) -> None:
    """Raise ValueError unless the registration can be of files: rows by themselves, of a public and fixed number."""
    for name, value in (("unit", registration.unit), ("capacity", registration.capacity)):
        if value is not None:
            raise ValueError(f"{name} = {value!r} is for tables of PostgreSQL; leave it out to register files")
    places.parts(registration.source)
