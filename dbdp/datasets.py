"""Datasets: what an owner declares once about a table, as public facts.

Bounds, categories and classes are stated by the owner; nothing is read from the rows but their
number, which is public under replace-one neighbours.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbdp.privacy.accounting import Budget
from dbdp.sessions import Session

MAX_BOUND = 1e300


@dataclass(frozen=True)
class Numeric:
    """A numeric column with public bounds; values outside are clipped to them."""

    column: str
    lower: float
    upper: float


@dataclass(frozen=True)
class Categorical:
    """A column with public categories; any other value has none of them."""

    column: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Vector:
    """One float8[] or float4[] column of a public length, with a public bound on its L2 norm."""

    column: str
    length: int
    norm_bound: float


@dataclass(frozen=True)
class Declaration:
    """What the owner states about the columns of a table.

    Either one `vector`, or `numeric` and `categorical` columns in the order of the model.
    `negative` None means every other value that is not null.
    """

    label: str
    positive: str
    negative: str | None
    intercept: bool
    vector: Vector | None = None
    numeric: tuple[Numeric, ...] = ()
    categorical: tuple[Categorical, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the feature columns, in the order of a record."""
        if self.vector:
            return [self.vector.column]
        return [each.column for each in self.numeric] + [each.column for each in self.categorical]

    @property
    def feature_names(self) -> list[str]:
        """A name for each coefficient, without the intercept."""
        if self.vector:
            return [f"{self.vector.column}[{index}]" for index in range(1, self.vector.length + 1)]
        indicators = [f"{each.column}={category}" for each in self.categorical for category in each.categories]
        return [each.column for each in self.numeric] + indicators

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model, with the intercept."""
        categories = sum(len(feature.categories) for feature in self.categorical)
        length = self.vector.length if self.vector else 0
        return len(self.numeric) + categories + length + self.intercept

    @property
    def features(self) -> dict[str, Any]:
        """The features as `parse_features` reads them."""
        if self.vector:
            return {self.vector.column: {"length": self.vector.length, "norm": self.vector.norm_bound}}
        bounds: dict[str, Any] = {feature.column: [feature.lower, feature.upper] for feature in self.numeric}
        return bounds | {feature.column: list(feature.categories) for feature in self.categorical}

    def to_json(self) -> str:
        """Return the declaration as JSON."""
        names = ("label", "positive", "negative", "intercept", "features")
        return json.dumps({name: getattr(self, name) for name in names})

    @classmethod
    def from_json(cls, text: str) -> "Declaration":
        """Return the declaration that `to_json` wrote."""
        return declare(**json.loads(text))


def declare(
    *,
    label: str,
    positive: str,
    features: Mapping[str, Any],
    negative: str | None = None,
    intercept: bool = True,
) -> Declaration:
    """Return a declaration, checked.

    Parameters
    ----------
    features : column → `[lower, upper]` (public bounds), `["a", "b", …]` (public categories), or, as
        the only entry, `{"length": d, "norm": bound}` for an array column

    Raises
    ------
    ValueError
        If the declaration is not sound; the message names the column and the remedy.
    """
    for name, value in (("label", label), ("positive", positive), ("intercept", intercept)):
        if value is None:
            raise ValueError(f"{name} is null; give a value")
    if not isinstance(features, Mapping):
        raise ValueError(f"features is {features!r}; give an object: column → bounds, categories, or length and norm")
    if not features:
        raise ValueError("features is empty; declare at least one column with its bounds or categories")
    if label in features:
        raise ValueError(f"column {label!r} is the label and cannot be a feature too; take it out of features")
    if positive == negative:
        raise ValueError(f"positive and negative are both {positive!r}; they must differ")
    parsed = [_feature(column, declared) for column, declared in features.items()]
    numeric = tuple(feature for feature in parsed if isinstance(feature, Numeric))
    categorical = tuple(feature for feature in parsed if isinstance(feature, Categorical))
    vectors = [feature for feature in parsed if isinstance(feature, Vector)]
    if vectors and len(parsed) > 1:
        raise ValueError(f"array column {vectors[0].column!r} must be the only feature; declare it alone")
    vector = vectors[0] if vectors else None
    return Declaration(label, positive, negative, intercept, vector, numeric, categorical)


def _feature(column: str, declared: Any) -> Numeric | Categorical | Vector:
    if isinstance(declared, Mapping):
        return _vector(column, declared)
    if isinstance(declared, Sequence) and not isinstance(declared, str) and declared:
        if all(isinstance(value, str) for value in declared):
            return _categorical(column, declared)
        if len(declared) == 2 and all(_is_number(value) for value in declared):
            return _numeric(column, *declared)
    raise ValueError(
        f"feature {column!r} is declared as {declared!r}; give [lower, upper] for bounds, a list of strings "
        'for categories, or {"length": …, "norm": …} for an array'
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numeric(column: str, lower: float, upper: float) -> Numeric:
    if not -MAX_BOUND <= lower < upper <= MAX_BOUND:
        shown = ", ".join(str(bound)[:24] for bound in (lower, upper))
        raise ValueError(f"bounds of {column!r} are [{shown}]; they must be finite and rising, within ±{MAX_BOUND:g}")
    return Numeric(column, float(lower), float(upper))


def _categorical(column: str, categories: Sequence[str]) -> Categorical:
    if len(set(categories)) != len(categories):
        raise ValueError(f"categories of {column!r} hold a value twice; list each once")
    return Categorical(column, tuple(categories))


def _vector(column: str, declared: Mapping[str, Any]) -> Vector:
    if set(declared) != {"length", "norm"}:
        raise ValueError(f'array column {column!r} needs exactly "length" and "norm", not {sorted(declared)}')
    length, norm = declared["length"], declared["norm"]
    if not (isinstance(length, int) and not isinstance(length, bool) and 1 <= length <= 1_000_000):
        raise ValueError(f"length of {column!r} is {length}; it must be a whole number from 1 to 1000000")
    if not (_is_number(norm) and 1e-100 <= norm <= 1e100):
        raise ValueError(f"norm of {column!r} is {norm}; it must be between 1e-100 and 1e100")
    return Vector(column, length, float(norm))


@dataclass(frozen=True)
class Dataset:
    """A registered dataset, as the catalogue has it; `source` is a quoted, qualified name."""

    id: int
    name: str
    source: str
    rows: int
    declaration: Declaration
    budget: Budget
    column_types: Mapping[str, str] = field(default_factory=dict)


_LOAD = """
select d.id,
       d.name,
       d.source_name,
       d.source::pg_catalog.oid::pg_catalog.int8 as source_oid,
       d.source::pg_catalog.text as source,
       d.rows,
       d.declaration::pg_catalog.text as declaration,
       d.column_types::pg_catalog.text as column_types,
       d.epsilon, d.delta, d.mode, d.rdp_order, d.charge_limit, d.leak_limit,
       d.registered_in = pg_catalog.pg_current_xact_id_if_assigned() as uncommitted
from dbdp.dataset as d
where d.name = $1
and d.dropped_at is null
"""


def load(session: Session, name: str) -> Dataset:
    """Return the registered dataset of that name, checked against the table as it is now.

    Raises
    ------
    ValueError
        If there is none, or its table was dropped or altered.
    """
    found = session.query(_LOAD, name)
    if not found:
        raise ValueError(f"dataset {name!r} is not registered; see dbdp.datasets, or call dbdp.register_dataset")
    row = found[0]
    if row["uncommitted"]:
        raise ValueError(
            f"dataset {name!r} was registered in this transaction, which could still undo its budget; commit first"
        )
    expected = json.loads(row["column_types"])
    if not check_kind(session, row["source_oid"]):
        raise ValueError(
            f"table {row['source_name']} of dataset {name!r} was dropped; call dbdp.drop_dataset({name!r}) "
            "and register the new table"
        )
    _check_unaltered(session, row, expected)
    limits = (row["rdp_order"], row["charge_limit"], row["leak_limit"])
    return Dataset(
        row["id"],
        name,
        row["source"],
        row["rows"],
        Declaration.from_json(row["declaration"]),
        Budget(row["epsilon"], row["delta"], row["mode"], *limits),
        expected,
    )


_KINDS = """
select c.oid::pg_catalog.regclass::pg_catalog.text as source,
       c.relkind in ('r', 'p') and c.relpersistence <> 't' as is_table,
       c.relrowsecurity as is_filtered,
       c.relkind = 'r' and exists (select from pg_catalog.pg_inherits as i where i.inhparent = c.oid) as is_inherited
from pg_catalog.pg_class as c
where c.oid = ($1::pg_catalog.int8)::pg_catalog.oid
or c.oid in (
    select t.relid
    from pg_catalog.pg_partition_tree((($1::pg_catalog.int8)::pg_catalog.oid)::pg_catalog.regclass) as t
)
"""


def check_kind(session: Session, source_oid: int) -> bool:
    """Return whether the table exists.

    Raises
    ------
    ValueError
        If it, or a partition of it, is no ordinary table: reading it could run its owner's code with
        our rights, or one record could show up as many.
    """
    found = session.query(_KINDS, source_oid)
    for row in found:
        _check_kind(row)
    return bool(found)


def _check_kind(row: Mapping[str, Any]) -> None:
    if not row["is_table"]:
        raise ValueError(
            f"{row['source']} is no ordinary table; one record of a view or a foreign table may depend on many "
            "others, and a temporary table goes with its session: register the table that holds the records"
        )
    if row["is_inherited"]:
        raise ValueError(
            f"{row['source']} has inheriting tables; register a partitioned table, or each table by itself"
        )
    if row["is_filtered"]:
        raise ValueError(
            f"{row['source']} has row-level security, which would hide records from training; disable it there"
        )


def _check_unaltered(session: Session, row: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    present = column_types(session, row["source_oid"])
    for column, type_name in expected.items():
        if present.get(column) != type_name:
            raise ValueError(
                f"column {column!r} of {row['source']} was {type_name} when dataset {row['name']!r} was registered "
                f"and is now {present.get(column, 'gone')}; drop the dataset and register it again"
            )


_COLUMN_TYPES = """
with recursive base as (
    select attname, attnum, atttypid as type
    from pg_catalog.pg_attribute
    where attrelid = ($1::pg_catalog.int8)::pg_catalog.oid
    and attnum > 0
    and not attisdropped
    union all
    select base.attname, base.attnum, t.typbasetype
    from base
    join pg_catalog.pg_type as t on t.oid = base.type
    where t.typtype = 'd'
)
select base.attname::pg_catalog.text as column,
       case t.typtype
           when 'e' then pg_catalog.format('enum %I.%I', n.nspname, t.typname)
           else pg_catalog.format_type(t.oid, null)
       end as type
from base
join pg_catalog.pg_type as t on t.oid = base.type
join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
where t.typtype <> 'd'
order by base.attnum
"""


def column_types(session: Session, source_oid: int) -> dict[str, str]:
    """Return the type of each column; of a domain the type below it, of an enum `enum <name>`."""
    return {row["column"]: row["type"] for row in session.query(_COLUMN_TYPES, source_oid)}


_SAME_NUMBER = "select pg_catalog.count(*) as rows from {source}"


def check_rows(session: Session, dataset: Dataset) -> None:
    """Raise ValueError if the table no longer has the registered, public number of rows."""
    rows = session.query(_SAME_NUMBER.format(source=dataset.source))[0]["rows"]
    if rows != dataset.rows:
        raise ValueError(
            f"{dataset.source} has {rows} rows, but dataset {dataset.name!r} was registered with {dataset.rows}; "
            "the number of rows is part of the guarantee: drop the dataset and register it again"
        )
