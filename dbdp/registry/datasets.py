"""Datasets: registered tables, and checks that they are unchanged since registration.

The only thing read from the rows is their number, or that of the units of privacy, which is public under replace-one
neighbours.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dbdp.checks import nearest
from dbdp.privacy.accounting.budget import Budget
from dbdp.privacy.accounting.events import CHANGE_ONE, CHANGE_ONE_UNIT, REPLACE_ONE_UNIT
from dbdp.registry.declarations import Declaration
from dbdp.registry.spending import identities
from dbdp.registry.tables import privacy_units
from dbdp.registry.units import Unit
from dbdp.sessions.inside import guarded_reads
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session

_WHOLE = ("smallint", "integer", "bigint", "boolean")  # types of a column that is 0 or 1 and nothing between


@dataclass(frozen=True)
class Group:
    """The rows of one value of a public key, whose records are in a bucket of a temporary table."""

    bucket: int  # number of the bucket
    staged: str  # unqualified name of the table (bucket, block) of raw records
    blocks: str  # qualified, quoted name of the table into which the groups are packed, one after the other


@dataclass(frozen=True)
class RegisteredDataset:
    """A registered dataset, as the catalogue describes it, or a group of it."""

    id: int  # id of its row in dbdp.dataset
    name: str  # its name in dbdp.datasets
    source: str  # qualified, quoted name of the table
    rows: int  # public number of slots: the capacity, or the number of rows, or of units; times `unit_rows`
    declaration: Declaration  # what the owner stated about the columns
    budget: Budget  # the total budget
    # Type of each declared column, and of the unit's, at registration.
    column_types: Mapping[str, str] = field(default_factory=dict)
    unit: Unit | None = None  # the unit of privacy; None is one row
    group: Group | None = None  # the group; None is all rows
    # A public condition on declared columns, see `statistics.cohorts`: a row outside is packed as one without an
    # answer. None is all rows.
    cohort: Mapping[str, Any] | None = None
    # The server answers at multiples of so many seconds after each charge; None: as soon as it can.
    answer_seconds: int | None = None
    # Rényi orders of the caller's allowances by role, where they have their own.
    allowance_orders: Mapping[str, float] = field(default_factory=dict)
    # At most so many rows, or units, are read, and their number is private; None: their number is public.
    capacity: int | None = None
    # Where the rows are, as `spark:parquet:/path`; the table is empty then. None: in the table.
    place: str | None = None
    digest: str | None = None  # a hash of public facts of the files at that place
    registered_by: str = ""  # the role that registered it
    is_own: bool = False  # whether that is the role that logged in

    @property
    def unit_rows(self) -> int:
        """Number of slots of each unit, r."""
        return self.unit.max_rows if self.unit else 1

    def with_knots(self, knots: int) -> Declaration:
        """Return the declaration with so many knots for each number that is not 0 or 1, by its bounds and its type."""
        indicators = [
            each.column
            for each in self.declaration.numeric
            if each.is_flag and self.column_types.get(each.column) in _WHOLE
        ]
        return self.declaration.with_knots(knots, indicators)

    @property
    def units(self) -> int:
        """Number of units, or of slots for them, public."""
        return self.rows // self.unit_rows

    @property
    def relation(self) -> dict[str, Any]:
        """The neighbouring relation as data; empty if the unit is one row, and the number of rows is public."""
        named = {} if self.unit is None else {"unit": self.unit.column, "max_rows": self.unit_rows}
        if self.capacity is not None:
            return {"neighbours": CHANGE_ONE_UNIT if named else CHANGE_ONE, "capacity": self.capacity, **named}
        return {"neighbours": REPLACE_ONE_UNIT, **named, "units": self.units} if named else {}

    @property
    def has_public_rows(self) -> bool:
        """Whether the number of records is public: without capacity and cohort, where each unit is one row."""
        return self.unit is None and self.capacity is None and self.cohort is None


_LOAD = """
select d.id,
       d.name,
       d.source_name,
       d.source::pg_catalog.oid::pg_catalog.int8 as source_oid,
       d.source::pg_catalog.text as source,
       d.rows,
       d.declaration::pg_catalog.text as declaration,
       d.column_types::pg_catalog.text as column_types,
       d.unit, d.max_rows, d.answer_seconds, d.capacity, d.place, d.digest,
       d.registered_by::pg_catalog.text as registered_by,
       d.registered_by_id = dbdp_internal.identity_of(session_user) as is_own,
       d.epsilon, d.delta, d.mode, d.rdp_order, d.charge_limit, d.leak_limit,
       d.registered_in = pg_catalog.pg_current_xact_id_if_assigned() as uncommitted,
       (
           select pg_catalog.json_object_agg(dbdp_internal.role_name(a.role_id, a.role), a.rdp_order)
           from dbdp.allowance as a
           where a.dataset_id = d.id
           and a.revoked_at is null
           and a.rdp_order is not null
           and a.role_id = any (dbdp_internal.own_roles())
           and not d.id in (select o.id from dbdp.own_datasets as o)
       )::pg_catalog.text as allowance_orders
from dbdp.dataset as d
where d.name = $1
and d.dropped_at is null
and d.id in (select o.id from dbdp.open_datasets as o)
"""


_OPEN = """
select d.name
from dbdp.dataset as d
where d.dropped_at is null
and d.id in (select o.id from dbdp.open_datasets as o)
order by d.name
"""


def unknown(session: Session, name: str | None) -> ValueError:
    """Return the one error for both a missing dataset and one on which the caller may not train.

    It names the most similar of those on which the caller may.
    """
    if name is None:
        return ValueError("dataset is required, e.g. dataset => a name from dbdp.datasets")
    known = [row["name"] for row in session.query(_OPEN) if row["name"] != name]
    similar = nearest(name, known) or nearest(name.rpartition(".")[2], known)  # of `public.loans`
    if waiting := identities.waiting(session):
        return ValueError(waiting)
    text = f"dataset {name!r} is not registered; see dbdp.datasets, or call dbdp.register_dataset"
    return ValueError(f"{text}{similar}")


def budget_of(row: Mapping[str, Any]) -> Budget:
    """Return the budget in a row of dbdp.dataset."""
    limits = (row["rdp_order"], row["charge_limit"], row["leak_limit"])
    return Budget(row["epsilon"], row["delta"], row["mode"], *limits)


def load(session: Session, name: str) -> RegisteredDataset:
    """Return the registered dataset of a name, checked against the table as it is now."""
    rows = session.query(_LOAD, name)
    if not rows:
        raise unknown(session, name)
    row = rows[0]
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
    return RegisteredDataset(
        row["id"],
        name,
        row["source"],
        row["rows"],
        Declaration.from_json(row["declaration"]).current,
        budget_of(row),
        expected,
        None if row["unit"] is None else Unit(row["unit"], row["max_rows"]),
        answer_seconds=row["answer_seconds"],
        allowance_orders=json.loads(row["allowance_orders"] or "{}"),
        capacity=row["capacity"],
        place=row["place"],
        digest=row["digest"],
        registered_by=row["registered_by"],
        is_own=row["is_own"],
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
    """Return whether the table exists."""
    rows = session.query(_KINDS, source_oid)
    for row in rows:
        _check_kind(row)
    return bool(rows)


def _check_kind(row: Mapping[str, Any]) -> None:
    if not row["is_table"]:
        raise ValueError(
            f"{row['source']} is not an ordinary table; one record of a view or a foreign table may depend on many "
            "others, and a temporary table is dropped with its session: register the table that holds the records"
        )
    if row["is_inherited"]:
        raise ValueError(
            f"{row['source']} has inheriting tables; register a partitioned table, or each table by itself"
        )
    if row["is_filtered"]:
        raise ValueError(
            f"{row['source']} has row-level security, which would hide records from training; disable it there"
        )


_AS_NOW = "call dbdp.redeclare with a reason: it takes the types as they are now, and keeps budget, grants and models"
_RENAMED = (
    "rename it back, or declare other features with dbdp.redeclare, which keeps budget, grants and models; for another "
    "label, unit or public column drop the dataset and register it again"
)


def _check_unaltered(session: Session, row: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    present = column_types(session, row["source_oid"])
    for column, type_name in expected.items():
        if present.get(column) != type_name:
            remedy = _AS_NOW if column in present else _RENAMED
            raise ValueError(
                f"column {column!r} of {row['source']} was {type_name} when dataset {row['name']!r} was declared, and "
                f"is now {present.get(column, 'gone')}; {remedy}"
            )


# A `character` that is not short is another type: its casts trim blanks, for which they fetch and copy all of a value.
LONGEST_PADDED = 1 << 14  # characters
_LONGEST_MODIFIER = LONGEST_PADDED + 4  # as pg_attribute has it
VIRTUAL = "virtual "  # a column that is computed whenever it is read, by an expression that may fail on a row
_COLUMN_TYPES = f"""
with recursive base as (
    select attname, attnum, attgenerated as generated, atttypid as type, atttypmod as modifier
    from pg_catalog.pg_attribute
    where attrelid = ($1::pg_catalog.int8)::pg_catalog.oid
    and attnum > 0
    and not attisdropped
    union all
    select base.attname, base.attnum, base.generated, t.typbasetype, t.typtypmod
    from base
    join pg_catalog.pg_type as t on t.oid = base.type
    where t.typtype = 'd'
)
select base.attname::pg_catalog.text as column,
       case base.generated when 'v' then '{VIRTUAL}' else '' end || case t.typtype
           when 'e' then pg_catalog.format('enum %I.%I', n.nspname, t.typname)
           else pg_catalog.format_type(t.oid, case
               when t.oid = 'pg_catalog.bpchar'::pg_catalog.regtype
               and not base.modifier between 1 and {_LONGEST_MODIFIER}
               then base.modifier
           end)
       end as type
from base
join pg_catalog.pg_type as t on t.oid = base.type
join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
where t.typtype <> 'd'
order by base.attnum
"""


def column_types(session: Session, source_oid: int) -> dict[str, str]:
    """Return the type of each column; for a domain its base type, for an enum `enum <name>`.

    A `character` without a length, or of more than `LONGEST_PADDED` characters, is `bpchar` or `character(n)`. The type
    of a virtual generated column, of PostgreSQL 18, begins with `VIRTUAL`.
    """
    return {row["column"]: row["type"] for row in session.query(_COLUMN_TYPES, source_oid)}


def count(session: SpiSession, source: str, unit: Unit | None, types: Mapping[str, str]) -> int:
    """Return the public size of a table: its number of rows, or of units."""
    if unit:
        return privacy_units.count(session, source, unit, types)
    with guarded_reads.reading(session, source):
        return int(session.query(f"select count(*) as number from {source} as source")[0]["number"])


def check_rows(session: SpiSession, dataset: RegisteredDataset) -> None:
    """Raise ValueError if the rows are elsewhere, or no longer have their registered, public number, or that of units.

    With a capacity their number is private and may be any; only the right to read the table is checked.
    """
    if dataset.place is not None:
        raise ValueError(
            f"the rows of dataset {dataset.name!r} are at {dataset.place!r}, which PostgreSQL does not read; train, "
            "tune or score with Database.on_spark(spark), or with --engine spark; summaries and bounds need a table"
        )
    if dataset.capacity is not None:
        with guarded_reads.reading(session, dataset.source):
            return
    size = count(session, dataset.source, dataset.unit, dataset.column_types)
    if size != dataset.units:
        counted = "rows" if dataset.unit is None else f"units in column {dataset.unit.column!r}"
        raise ValueError(
            f"{dataset.source} has {size} {counted}, but dataset {dataset.name!r} was registered with "
            f"{dataset.units}; the number is part of the guarantee: let the table grow with dbdp.raise_capacity, which "
            f"keeps the budget, or count again with dbdp.renew_budget"
        )
