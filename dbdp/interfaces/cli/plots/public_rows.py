"""A temporary database for public rows, in which they are registered as a dataset.

It is dropped at the end, also after an error or Ctrl-C; the next call drops the database of a killed process.
"""

import csv
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dbdp.deployment import installer
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.loading import create_table
from dbdp.registry.declarations import Declaration, declare
from dbdp.registry.registration import Registration
from dbdp.sessions.connections import opened

DATASET, TRAINED, HELD_OUT = "rows", "public.rows", "public.held_out"
_PREFIX = "dbdp_scratch_"


@dataclass(frozen=True)
class PublicRows:
    """A CSV file of public rows, with a header; an empty value is null.

    Attributes
    ----------
    path : Path
        The file.
    described : mapping
        Arguments of `declare`: label, features and the label's values.
    held_out : int
        One row in this many is held out for scoring, beginning with the first.
    """

    path: Path
    described: Mapping[str, Any]
    held_out: int = 5

    @property
    def declaration(self) -> Declaration:
        """The checked declaration of the columns; raises ValueError as `declare` does."""
        return declare(**self.described)

    def read(self) -> tuple[list[list[str | None]], list[list[str | None]]]:
        """Return the rows for training and the held-out rows, each with the declared columns and the label last.

        Returns
        -------
        tuple of list
            Both lists of rows.

        Raises
        ------
        ValueError
            If a column is missing, or there are too few rows.
        """
        declaration = self.declaration
        wanted = [*declaration.columns, declaration.label]
        with self.path.open(newline="") as file:
            reader = csv.DictReader(file)
            if missing := set(wanted) - set(reader.fieldnames or ()):
                raise ValueError(f"{self.path} has no column {', '.join(sorted(missing))}; its header must name them")
            rows = [[row[name] or None for name in wanted] for row in reader]
        held_out = rows[:: self.held_out]
        del rows[:: self.held_out]
        if not rows:
            raise ValueError(f"{self.path} has {len(held_out)} rows; at least {self.held_out} are needed")
        return rows, held_out


@contextmanager
def scratch_database(target: str | None, rows: PublicRows, *, epsilon: float, delta: float) -> Iterator[Database]:
    """Create a database in which public rows are registered as DATASET; drop it at the end.

    Parameters
    ----------
    target : str or None
        URL of a superuser; None means DBDP_URL, else the private server.
    rows : PublicRows
        The rows.
    epsilon, delta : float
        The budget.

    Yields
    ------
    Database
        A connection to the new database.

    Raises
    ------
    ValueError
        If the rows do not fit their declaration.
    PermissionError
        If the role is not a superuser.
    """
    read = rows.read()
    with connect(target) as admin, _created(admin) as url, connect_fresh(url) as database:
        for table, part in zip((TRAINED, HELD_OUT), read, strict=True):
            schema, _, name = table.partition(".")
            create_table(database, (schema, name), _kinds(rows.declaration), part, form="text")
        stated = {"epsilon": epsilon, "delta": delta, "mode": "basic", **rows.described}
        database.register(Registration(name=DATASET, source=TRAINED, **stated))
        yield database


@contextmanager
def connect_fresh(url: str) -> Iterator[Database]:
    """Create the extension in a database, as a superuser, and yield a connection to it.

    Yields
    ------
    Database
        The connection.
    """
    with opened(url) as connection:
        installer.create_extension(connection)
        yield Database(connection)


_ABANDONED = """
select d.datname as name
from pg_catalog.pg_database as d
where pg_catalog.starts_with(d.datname::text, $1)
and pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(d.datname::text, 0))
"""


@contextmanager
def _created(admin: Database) -> Iterator[str]:
    """Create a database and yield its URL; this session's lock on its name shows other processes that it is used."""
    _check_superuser(admin)
    connection = admin.connection  # `create database` cannot run in a pipeline, and looks no name up
    for row in admin.query(_ABANDONED, _PREFIX):
        with suppress(psycopg.errors.ObjectInUse):  # used by a session whose lock is in another database
            connection.execute(sql.SQL("drop database if exists {}").format(sql.Identifier(row["name"])))
    name = f"{_PREFIX}{secrets.token_hex(6)}"
    admin.query("select pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))", name)
    connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
    try:
        info = connection.info
        yield make_conninfo(info.dsn, dbname=name, **({"password": info.password} if info.password else {}))
    finally:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _check_superuser(admin: Database) -> None:
    (role,) = admin.query("select rolname, rolsuper from pg_catalog.pg_roles where rolname = current_user")
    if not role["rolsuper"]:
        raise PermissionError(
            "public rows are loaded into a new database, which only a superuser may create; role "
            f"{role['rolname']!r}, of --url or DBDP_URL, "
            'is not one: pass another URL, such as that of the private server: --url "$(dbdp server url)"'
        )


def _kinds(declaration: Declaration) -> dict[str, str]:
    """Return the types of the declared columns, and of the label at the end."""
    numeric = {each.column for each in declaration.numeric}
    if declaration.label_bounds:
        numeric.add(declaration.label)
    names = [*declaration.columns, declaration.label]
    kinds = {name: "float8" if name in numeric else "text" for name in names}
    return kinds | ({names[0]: "float8[]"} if declaration.vector else {})
