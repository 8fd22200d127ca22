"""Registers and drops datasets, inside the server.

Granting and revoking dbdp_owner's right to read the table use the caller's rights, since only the table's owner may
do so; the catalogue is written as dbdp_owner.
"""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from dbdp.checks import nearest
from dbdp.learning.rows import blocks
from dbdp.registry.datasets import LONGEST_PADDED, VIRTUAL, check_kind, column_types, count
from dbdp.registry.declarations import Declaration
from dbdp.registry.registration import Registration
from dbdp.registry.spending import identities, odometers, rights
from dbdp.registry.tables import records
from dbdp.registry.tables.privacy_units import UNIT_TYPES
from dbdp.sessions.errors import DATA_EXCEPTION, UNIQUE_VIOLATION
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Row

NUMERIC_TYPES = ("smallint", "integer", "bigint", "real", "double precision", "numeric", "boolean")
_WHOLE_TYPES = ("smallint", "integer", "bigint")
_CATEGORY_TYPES = (*records.TEXT_TYPES, *_WHOLE_TYPES, "boolean", "enum")
_LABEL_TYPES = (*records.TEXT_TYPES, *NUMERIC_TYPES, "enum")
_VECTOR_TYPES = ("double precision[]", "real[]")
_KEY_TYPES = (*records.TEXT_TYPES, *_WHOLE_TYPES, "boolean", "enum", "date", "uuid")


@dataclass(frozen=True)
class Renewal:
    """What a registration inherits from the one that it renews; all None for a first one."""

    period: int | None = None  # id of the registration that it renews
    reason: str | None = None  # why, for the record
    # The server answers at multiples of so many seconds after each charge; None: as soon as it can.
    answer_seconds: int | None = None


_FIRST = Renewal()
_EPSILON_WITHOUT_PROMISE = 20.0
_LARGE_PACK = 4e9  # bytes
_REMEDY_OF_TEXT = (
    "; for numbers written as text alter the column's type (using column::float8), for words declare them: "
    "categories of a feature, positive or classes of a label"
)
_REMEDY_OF_PADDED = (
    f"; alter its type to text, or to character(n) with n up to {LONGEST_PADDED}: values of longer ones take memory "
    "and time by their padding"
)
_REMEDY_OF_VIRTUAL = (
    "; a virtual generated column is computed while a training run reads it, and would fail on a row after the charge: "
    "add the column as stored (generated always as … stored), or declare the columns of its expression"
)


def register(session: SpiSession, registration: Registration) -> None:
    """Register a dataset: grant dbdp_owner the right to read the table, and write its row and its odometers."""
    registration.check()
    source = registration.source
    check_source(session, registration)
    check_owner(session, source)
    session.query(f"lock table only {source} in share update exclusive mode")  # two simultaneous grants would fail
    session.query(f"grant select on {source} to dbdp_owner")
    with session.as_owner():
        types = check_source(session, registration)  # again, now that the table is locked
        check_opened(session, source)
        _check_new(session, registration.name, source)
        identities.check_confirmed(session)
        enter(session, registration, types)


def enter(session: SpiSession, registration: Registration, types: dict[str, str], renewal: Renewal = _FIRST) -> None:
    """Write a checked registration's row and create its odometers (as dbdp_owner)."""
    source, budget = registration.source, registration.budget
    rows = _slots(session, registration, types)
    if renewal is _FIRST:  # a renewal keeps what was chosen
        registration = registration.coded(rows)
    inserted = _insert_new(
        session,
        """
insert into dbdp.dataset (name, source, source_name, rows, declaration, column_types, epsilon, delta, mode,
                          rdp_order, charge_limit, leak_limit, unit, max_rows, renews, reason, answer_seconds, capacity,
                          registered_by, registered_by_id)
select $1, $2::regclass, $2, $3, $4::json, $5::json, $6, $7, $8,
       $9::float8, $10, $11, $12, $13::int4, $14::int4, $15, $16::int4, $17::int8,
       coalesce(renewed.registered_by, session_user), renewed.registered_by_id
from (values ($14::int4)) as this (renews)
left join dbdp.dataset as renewed on renewed.id = this.renews
returning id""",
        registration.name,
        source,
        rows,
        registration.declaration.to_json(),
        json.dumps(types),
        *astuple(budget),
        registration.unit,
        registration.max_rows,
        *astuple(renewal),
        registration.capacity,
    )
    odometers.create(session, odometers.OF_DATASET, inserted[0]["id"])
    _warn_of_delta(session, budget.delta, rows // (registration.max_rows or 1))
    _warn_of_epsilon(session, budget.epsilon)
    warn_of_codes(session, registration.declaration, types)
    if registration.capacity is not None:
        warn_of_size(session, registration.declaration, rows)


def _warn_of_delta(session: SpiSession, delta: float, units: int) -> None:
    """Warn the owner of a δ that would allow to publish one row, or unit, as it is."""
    if delta * units >= 1:
        session.warn(
            f"delta = {delta:g} is at least 1/{units}, one over the number of rows or units that are protected: it "
            f"would allow one to be published as it is; a budget does not change, so drop the dataset and register it "
            f"with about delta => {0.1 / units:.0e}"
        )


def _warn_of_epsilon(session: SpiSession, epsilon: float) -> None:
    """Warn the owner of an ε that promises next to nothing."""
    if epsilon >= _EPSILON_WITHOUT_PROMISE:
        session.warn(
            f"epsilon = {epsilon:g} promises next to nothing: from what is released, the odds on a record may "
            f"change by a factor of e^{epsilon:g}; 1 or less is strong, and above about 4 little is left"
        )


def warn_of_size(session: SpiSession, declaration: Declaration, slots: int) -> None:
    """Warn the owner of a capacity whose empty places alone take much time and disk, in every training."""
    size = slots * blocks.row_bytes(declaration.dimension)
    if size >= _LARGE_PACK:
        session.warn(
            f"each training packs {slots} places, empty ones too, which are about {size / 1e9:.0f} GB in temporary "
            "files, and minutes to hours: unless the table is to be that large, choose a lower capacity, with "
            "dbdp.renew_budget or, while nothing is charged, by dropping the dataset and registering it again"
        )


def warn_of_codes(session: SpiSession, declaration: Declaration, types: dict[str, str]) -> None:
    """Warn the owner of two categories of a column of whole numbers that look like bounds in quotation marks."""
    for feature in declaration.categorical:
        if types[feature.column] not in _WHOLE_TYPES or len(feature.categories) != 2:
            continue
        lower, upper = feature.categories
        if int(upper) - int(lower) > 1:
            session.warn(
                f"{feature.column!r} has two categories, {lower} and {upper}; a row with any number between "
                f"has neither; if they are bounds, write [{lower}, {upper}] without quotation marks in dbdp.redeclare"
            )


def _slots(session: SpiSession, registration: Registration, types: dict[str, str]) -> int:
    """Return the public number of slots: of the capacity, or else of the rows, or units, that the table has now."""
    unit, size = registration.privacy_unit, registration.capacity
    if size is None:
        size = count(session, registration.source, unit, types)
    if size == 0:
        raise ValueError(
            f"{registration.source} is empty; insert at least one row{' with a unit' if unit else ''} first, or "
            "register it with a capacity"
        )
    return size * (unit.max_rows if unit else 1)


def _insert_new(session: SpiSession, sql: str, name: str, source: str, *more: Any) -> list[Row]:
    """Insert a dataset's row; if a simultaneous registration was first, raise the ValueError that names it."""
    try:
        return session.query(sql, name, source, *more)
    except Exception as error:  # plpy's exceptions have names in the server only
        if session.failure(error)[0] == UNIQUE_VIOLATION:
            _check_new(session, name, source)  # the other registration is visible now
        raise


def drop(session: SpiSession, name: str) -> None:
    """Close a dataset, and revoke dbdp_owner's right to read the table if the caller owns it.

    History and odometers stay.
    """
    with session.as_owner():
        row = rights.registered(session, name, action="drop it")
        end(session, row["id"])
    owned = session.query(
        "select from pg_class as c where c.oid = to_regclass($1) and pg_has_role(current_user, c.relowner, 'usage')",
        row["source"],
    )
    if owned:
        session.query(f"revoke select on {row['source']} from dbdp_owner")


def end(session: SpiSession, dataset_id: int) -> None:
    """End a registration; its row and its odometers stay (as dbdp_owner)."""
    session.query("update dbdp.dataset set dropped_at = now() where id = $1", dataset_id)


_SOURCE = """
select c.oid::int8 as oid,
       c.relnamespace::regnamespace::text as schema,
       has_schema_privilege('dbdp_owner', c.relnamespace, 'usage') as is_reachable
from pg_class as c
where c.oid = to_regclass($1)
"""


def check_source(session: SpiSession, registration: Registration) -> dict[str, str]:
    """Check that the table fits the registration; return the types of the declared columns and of the unit's."""
    rows = session.query(_SOURCE, registration.source)
    if not rows:
        raise ValueError(f"source {registration.source} is not a table; give the one that holds the records")
    row = rows[0]
    check_kind(session, row["oid"])
    if not row["is_reachable"]:
        raise PermissionError(
            f"dbdp_owner may not use schema {row['schema']}; grant usage on schema {row['schema']} to dbdp_owner"
        )
    types = column_types(session, row["oid"])
    _check_columns(registration, types)
    _check_values(session, registration.declaration, types)
    return {column: types[column] for column in registration.columns}


def measured_type(session: SpiSession, source: str, column: str) -> str:
    """Return the type of a column of a table that bounds may be estimated of; for a domain its base type."""
    return _type_of(session, source, column, (*NUMERIC_TYPES, *records.DAYS, *records.TEXT_TYPES))


def category_type(session: SpiSession, source: str, column: str) -> str:
    """Return the type of a column of a table that may be declared with categories; for a domain its base type."""
    return _type_of(session, source, column, _CATEGORY_TYPES)


def _type_of(session: SpiSession, source: str, column: str, kinds: tuple[str, ...]) -> str:
    types = column_types(session, session.query("select $1::regclass::oid::int8 as oid", source)[0]["oid"])
    _check_column(source, types, column, kinds)
    return types[column]


def _check_columns(registration: Registration, types: dict[str, str]) -> None:
    declaration = registration.declaration
    allowed: list[tuple[str, tuple[str, ...]]] = [(f.column, NUMERIC_TYPES) for f in declaration.numeric]
    allowed += [(f.column, _CATEGORY_TYPES) for f in declaration.categorical]
    allowed += [(declaration.label, NUMERIC_TYPES if declaration.kind == "real" else _LABEL_TYPES)]
    allowed += [(column, _KEY_TYPES) for column in declaration.public_columns]
    if declaration.vector:
        allowed.append((declaration.vector.column, _VECTOR_TYPES))
    if registration.privacy_unit:
        allowed.append((registration.privacy_unit.column, tuple(UNIT_TYPES)))
    for column, kinds in allowed:
        _check_column(registration.source, types, column, kinds)


def _check_column(source: str, types: dict[str, str], column: str, kinds: tuple[str, ...]) -> None:
    if column not in types:
        raise ValueError(
            f"column {column!r} does not exist in {source}; its columns are {', '.join(sorted(types))}"
            f"{nearest(column, types)}"
        )
    present = "enum" if types[column].startswith("enum ") else types[column]
    if present not in kinds:
        raise ValueError(
            f"column {column!r} of {source} is {types[column]}; it must be one of {', '.join(kinds)}"
            f"{_remedy_of(present, kinds)}"
        )


def _remedy_of(present: str, kinds: tuple[str, ...]) -> str:
    """Return what to do about a column of a type that its part in the declaration cannot have."""
    if present.startswith(VIRTUAL):
        return _REMEDY_OF_VIRTUAL
    if present.startswith(("bpchar", "character(")):
        return _REMEDY_OF_PADDED
    return _REMEDY_OF_TEXT if kinds == NUMERIC_TYPES and present in _LABEL_TYPES else ""


def _check_values(session: SpiSession, declaration: Declaration, types: dict[str, str]) -> None:
    """Check that declared classes and categories are values of their columns' types."""
    if declaration.kind == "binary":
        _check_signs(session, declaration, types[declaration.label])
    if declaration.kind == "classes":
        check_canonical(session, "class", declaration.label, types[declaration.label], declaration.classes)
        _check_distinct(session, declaration.label, types[declaration.label], declaration.classes)
    for feature in declaration.categorical:
        check_canonical(session, "category", feature.column, types[feature.column], feature.categories)
        if len(set(records.category_numbers(session, feature.categories))) < len(feature.categories):
            raise ValueError(f"two categories of {feature.column!r} have the same hash; rename one of them")


def _check_signs(session: SpiSession, declaration: Declaration, type_name: str) -> None:
    label = declaration.label
    if declaration.negative is None and type_name in ("real", "double precision", "numeric"):
        raise ValueError(f"label {label!r} is {type_name}; declare its negative value too")
    for value in (declaration.positive, declaration.negative):
        if value is not None and _canonical(session, value, type_name) is None:
            raise ValueError(f"label value {value!r} is not of type {type_name}, that of column {label!r}; correct it")


def check_canonical(session: SpiSession, word: str, column: str, type_name: str, values: Sequence[str]) -> None:
    """Raise ValueError unless every value has that type, and is written as PostgreSQL writes it."""
    for value in values:
        canonical = _canonical(session, value, type_name)
        if canonical != value:
            hint = f"write it as {canonical!r}" if canonical else f"correct the {word}, or leave it out"
            raise ValueError(
                f"{word} {value!r} of {column!r} is not a value of type {type_name} as PostgreSQL writes it; {hint}"
            )


def _check_distinct(session: SpiSession, label: str, type_name: str, classes: tuple[str, ...]) -> None:
    """Raise ValueError if two classes are the same number, written in two ways."""
    if records.is_text(type_name):
        return
    query = f"select count(distinct v::{type_name}) as number from unnest($1) as u(v)"
    if session.query(query, list(classes))[0]["number"] < len(classes):
        raise ValueError(f"two classes of {label!r} are the same {type_name}; list each once")


def _canonical(session: SpiSession, value: str, type_name: str) -> str | None:
    """Return a value as PostgreSQL writes it in that type; None if it does not have the type."""
    if type_name.startswith("enum "):
        labels = session.query(
            "select from pg_enum where enumtypid = $1::regtype and enumlabel = $2",
            type_name.removeprefix("enum "),
            value,
        )
        return value if labels else None
    if type_name in records.TEXT_TYPES:
        return value
    try:
        return session.query(f"select $1::text::{type_name}::text as value", value)[0]["value"]
    except Exception as error:  # plpy's exceptions have names in the server only
        if not session.failure(error)[0].startswith(DATA_EXCEPTION):
            raise
        return None


def check_owner(session: SpiSession, source: str) -> None:
    """Raise PermissionError unless the role that logged in owns the table."""
    row = session.query(
        "select pg_has_role(session_user, c.relowner, dbdp_internal.membership()) as may, "
        "c.relowner::regrole::text as owner from pg_class as c where c.oid = $1::regclass",
        source,
    )[0]
    if not row["may"]:
        raise PermissionError(f"{source} belongs to {row['owner']}; only its owner may register it")


def check_opened(session: SpiSession, source: str) -> None:
    """Raise PermissionError unless the role that logged in owns the table and dbdp_owner, who checks, may read it."""
    check_owner(session, source)
    sql = "select has_table_privilege(current_user, $1::regclass, 'select') as readable"
    if not session.query(sql, source)[0]["readable"]:
        raise PermissionError(f"dbdp_owner may not read {source}; grant select on {source} to dbdp_owner")


_RELATIVES = """
select d.name, d.source_name as source
from dbdp.dataset as d
where d.dropped_at is null
and d.source <> $1::regclass
and d.source in (
    select t.relid
    from pg_partition_tree(coalesce(pg_partition_root($1::regclass), $1::regclass)) as t
)
limit 1
"""


def _check_new(session: SpiSession, name: str, source: str) -> None:
    for partner in session.query(_RELATIVES, source):
        raise ValueError(
            f"{source} shares records with {partner['source']}, which is registered as dataset {partner['name']!r} "
            "(one is a partition of the other): use that dataset"
        )
    rows = session.query(
        "select name from dbdp.dataset where (name = $1 or source = $2::regclass) and dropped_at is null",
        name,
        source,
    )
    if any(row["name"] == name for row in rows):
        raise ValueError(
            f"dataset {name!r} is registered already, and registering it again changes nothing: correct it with "
            "dbdp.redeclare, begin a new budget with dbdp.renew_budget, choose another name, or drop it with "
            "dbdp.drop_dataset"
        )
    if rows:
        raise ValueError(
            f"{source} is registered already as dataset {rows[0]['name']!r}; a table has one budget: use that dataset"
        )


def check_may_read(session: SpiSession, source: str) -> None:
    """Raise PermissionError unless the role that logged in may read the table itself."""
    may = session.query(
        "select has_table_privilege(session_user, $1::regclass, 'select') as may",
        source,
    )
    if not may[0]["may"]:
        raise PermissionError(f"this role may not read {source}; train in the server with dbdp.dp_logreg")
