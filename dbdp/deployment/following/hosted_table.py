"""The table that is followed, as its server describes it, and the part of it that is copied.

Names and types come from another server. Names are quoted again here, and a type is accepted only if it looks like one
of PostgreSQL's own, so that no text of that server becomes SQL on this one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from dbdp.checks import nearest

SAFE_TYPE = re.compile(r"[a-z][a-z0-9_ ]*(\([0-9, -]+\))?[a-z ]*(\[\])?")
PARSED = "select parse_ident(%s)"
TABLE: LiteralString = """
select c.oid::int8 as oid,
       n.nspname::text as schema,
       c.relname::text as name,
       c.relkind::text as kind,
       c.relpersistence::text as persistence,
       c.relreplident::text as identity,
       greatest(c.reltuples, 0)::float8 as rows,
       row_security_active(c.oid) as is_filtered,
       pg_has_role(c.relowner, 'usage') as is_own,
       c.relowner::regrole::text as owner
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s
"""
COLUMNS: LiteralString = """
select a.attname::text as name,
       format_type(b.oid, case when t.typtype = 'd' then t.typtypmod else a.atttypmod end) as type,
       format_type(a.atttypid, a.atttypmod) as own_type,
       b.oid < 16384 and b.typtype in ('b', 'r', 'm') as is_built_in,
       b.typtype = 'e' or b.typcategory = 'S' as is_text,
       a.attgenerated::text as generated,
       has_column_privilege(a.attrelid, a.attnum, 'select') as is_readable
from pg_attribute as a
join pg_type as t on t.oid = a.atttypid
join pg_type as b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
KEY: LiteralString = """
select a.attname::text
from pg_index as i
cross join unnest(i.indkey) with ordinality as k (number, place)
join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.number
where i.indrelid = %s and k.place <= i.indnkeyatts and case when %s = 'i' then i.indisreplident else i.indisprimary end
order by k.place
"""


class FollowError(ValueError):
    """A table cannot be followed; the message says why and what to do."""


@dataclass(frozen=True)
class HostedColumn:
    """A column of the table."""

    name: str
    type: str  # as its server writes it; of a domain the base type
    own_type: str
    is_built_in: bool
    is_text: bool  # an enum, or a text type of an extension: it arrives as text
    generated: str
    is_readable: bool

    @property
    def copied_type(self) -> str | None:
        """The type of its copy; None if its values do not arrive."""
        if self.is_built_in and SAFE_TYPE.fullmatch(self.type):
            return self.type
        return "text" if self.is_text else None


@dataclass(frozen=True)
class _Facts:
    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    rows: float
    is_filtered: bool
    is_own: bool
    owner: str


@dataclass(frozen=True)
class HostedTable:
    """The table, and which of its columns are copied."""

    facts: _Facts
    key: tuple[str, ...]
    columns: tuple[HostedColumn, ...]  # those that are copied
    is_whole: bool  # whether all columns are copied

    @property
    def identifier(self) -> sql.Identifier:
        """Its name in SQL, the same on both servers."""
        return sql.Identifier(self.facts.schema, self.facts.name)

    @property
    def shown(self) -> str:
        """Its name in messages and in statements that are shown."""
        return f"{shown_name(self.facts.schema)}.{shown_name(self.facts.name)}"

    @property
    def names(self) -> sql.Composed:
        """The copied columns in SQL."""
        return sql.SQL(", ").join(sql.Identifier(each.name) for each in self.columns)

    def definition(self, *, keyed: bool) -> sql.Composed:
        """Return the statement that creates the copy."""
        parts: list[sql.Composable] = [
            sql.SQL("{} {}").format(sql.Identifier(each.name), sql.SQL(each.copied_type))  # type: ignore[arg-type]
            for each in self.columns
        ]
        if keyed and self.key:
            parts.append(sql.SQL("primary key ({})").format(sql.SQL(", ").join(map(sql.Identifier, self.key))))
        return sql.SQL("create table {} ({})").format(self.identifier, sql.SQL(", ").join(parts))


def shown_name(name: str) -> str:
    """Return a name as SQL writes it."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"{}"'.format(name.replace('"', '""'))


def hosted_table(connection: psycopg.Connection, name: str, columns: Sequence[str] | None) -> HostedTable:
    """Return a table of a server with the columns to copy: those that are named and the key, or all."""
    schema, table = parsed_name(connection, name)
    with connection.cursor(row_factory=class_row(_Facts)) as cursor:
        facts = cursor.execute(TABLE, [schema, table]).fetchone()
    if facts is None:
        raise FollowError(f"the source has no table {schema}.{table}; write its schema too, such as clinic.people")
    with connection.cursor(row_factory=class_row(HostedColumn)) as described:
        present = described.execute(COLUMNS, [facts.oid]).fetchall()
    key = tuple(each for (each,) in connection.execute(KEY, [facts.oid, facts.identity]).fetchall())
    wanted = _wanted(facts, [each.name for each in present], key, columns)
    copied = tuple(each for each in present if each.name in wanted)
    return HostedTable(facts, key, copied, len(copied) == len(present))


def parsed_name(connection: psycopg.Connection, name: str) -> tuple[str, str]:
    """Return schema and name of a table as SQL writes it; the schema is public by default."""
    try:
        row = connection.execute(PARSED, [name]).fetchone()
    except psycopg.errors.InvalidParameterValue:
        row = None
    parts = row[0] if row else []
    if not 1 <= len(parts) <= 2:
        raise FollowError(f"{name!r} is not the name of a table; write it as in SQL, such as clinic.people")
    return parts[0] if len(parts) == 2 else "public", parts[-1]


def _wanted(facts: _Facts, present: list[str], key: Sequence[str], columns: Sequence[str] | None) -> set[str]:
    for each in columns or []:
        if each not in present:
            raise FollowError(
                f"{facts.schema}.{facts.name} has no column {each!r}; its columns are {', '.join(present)}"
                f"{nearest(each, present)}"
            )
    return set(present) if columns is None else {*columns, *key}


def refused_columns(table: HostedTable, *, generated_arrive: bool) -> Iterator[str]:
    """Yield why columns cannot be copied, each with its remedy."""
    unreadable = [each.name for each in table.columns if not each.is_readable]
    if unreadable:
        names = ", ".join(map(shown_name, unreadable))
        yield f"the source's role may not read {names}: grant select ({names}) on {table.shown} to it"
    for each in table.columns:
        if each.copied_type is None:
            yield (
                f"column {each.name} is {each.own_type}, which does not arrive as it is: leave it out of --columns, or "
                "add a column of a plain type that holds the same"
            )
        elif each.generated and not (generated_arrive and each.generated == "s"):
            yield (
                f"column {each.name} is generated, which logical replication sends between servers of PostgreSQL 18, "
                "if it is stored: leave it out of --columns, or make it an ordinary column"
            )
