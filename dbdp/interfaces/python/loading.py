"""Load rows into tables, and a caller's rows into a temporary dataset of the private server, for one training.

The table of such a dataset is dropped at the end, also after an error or Ctrl-C; the next call drops the table of a
killed process. The charge and the released model stay in the private server's history.
"""

import re
import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from psycopg import errors, sql

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect, embedded
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.declaring import ROW, values_of
from dbdp.interfaces.python.frames import Frame
from dbdp.privacy.accounting.budget import LEAK_UNITS
from dbdp.privacy.accounting.events import MAX_EPSILON, check_epsilon_delta
from dbdp.registry.registration import Registration
from dbdp.registry.results.html import OF_ROWS

LABEL = "label"
SCHEMA = "dbdp_rows"  # schema of the tables, and prefix of their names
_SLACK = 1e-6  # relative addition to ε and δ of a budget for one release: limits are rounded down and charges up
# Tables of this role that no process uses; they were in schema public until 0.2.0.
_ABANDONED = """
with own as materialized (
    select n.nspname, c.relname
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    join pg_roles as r on r.oid = c.relowner
    where c.relkind = 'r' and c.relname ~ $1 and n.nspname in ($2, 'public') and r.rolname = current_user
)
select nspname as schema, relname as name from own where pg_try_advisory_lock(hashtextextended(relname::text, 0))
"""
_CREATE = ("create schema {}", "grant usage on schema {} to dbdp_owner")
_OTHERS_MAY_CREATE = """
select r.rolname <> current_user as is_foreign, exists (
    select from aclexplode(n.nspacl) as a where a.grantee <> n.nspowner and a.privilege_type = 'CREATE'
) as is_open
from pg_namespace as n
join pg_roles as r on r.oid = n.nspowner
where n.nspname = $1
"""


class Given(Protocol):
    """A caller's rows, in memory or in Spark."""

    def written(
        self, database: Database, name: str, features: Mapping[str, Any]
    ) -> AbstractContextManager[tuple[Database, dict[str, Any]]]:
        """Write the rows under a claimed name; in the block there are a database that trains, their source and label.

        What is written elsewhere than in the table of that name is deleted at the end.
        """


@dataclass(frozen=True)
class InMemory:
    """Rows in the memory of this process.

    Attributes
    ----------
    frame : Frame
        The rows.
    labels : array, shape (n,)
        float64 or texts.
    """

    frame: Frame
    labels: np.ndarray

    @contextmanager
    def written(
        self, database: Database, name: str, features: Mapping[str, Any]
    ) -> Iterator[tuple[Database, dict[str, Any]]]:
        """Create a table and copy the rows into it."""
        label = LABEL
        while label in self.frame:
            label += "_"
        if isinstance(features.get(ROW), Mapping):
            kinds, columns = {ROW: "float8[]"}, [values_of(self.frame).tolist()]
        else:
            kinds = {name: "text" if column.is_text else "float8" for name, column in self.frame.items()}
            columns = [column.values.tolist() for column in self.frame.values()]
        kinds[label] = "text" if self.labels.dtype == object else "float8"
        create_table(database, (SCHEMA, name), kinds, zip(*columns, self.labels.tolist(), strict=True), form="binary")
        yield database, {"source": f"{SCHEMA}.{name}", "label": label}


@contextmanager
def temporary_dataset(
    given: Given, features: Mapping[str, Any], request: Request, **declared: Any
) -> Iterator[tuple[Database, str]]:
    """Write a caller's rows and register them in the private server, with a budget for one release.

    Parameters
    ----------
    given : Given
        The rows.
    features : mapping
        As `Registration` takes them.
    request : Request
        Options of the training, for its ε and δ.
    **declared
        Other fields of a `Registration`.

    Yields
    ------
    tuple of Database and str
        A connection that trains on the rows, and the name of the dataset.

    Raises
    ------
    ValueError
        If the declaration is not accepted, or the rows cannot be written.
    """
    with connect(embedded()) as here:
        name = _claimed_name(here)
        try:
            with given.written(here, name, features) as (database, place):
                stated = {"name": name, **place, "features": features, **declared, **_budget(request)}
                with warnings.catch_warnings(action="ignore"):  # the plan's own warning is of the same δ
                    database.register(Registration(**stated))
                yield database, name
        finally:
            _drop(here, SCHEMA, name)


def create_table(
    database: Database,
    name: tuple[str, str],
    kinds: Mapping[str, str],
    rows: Iterable[Sequence[Any]],
    *,
    form: Literal["text", "binary"],
) -> None:
    """Create a table, with the types of its columns, and copy rows into it."""
    place = sql.Identifier(*name)
    columns = [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in kinds.items()]
    statement = sql.SQL("create table {} ({})").format(place, sql.SQL(", ").join(columns))
    database.query(statement.as_string(database.connection))
    filling = sql.SQL("copy {} from stdin (format {})").format(place, sql.SQL(form))
    with database.connection.cursor().copy(filling) as copy:
        if form == "binary":
            copy.set_types(list(kinds.values()))
        for row in rows:
            copy.write_row(row)


def _claimed_name(database: Database) -> str:
    """Return a name for a new dataset, locked for the connection; drop the tables of killed processes."""
    for row in database.query(_ABANDONED, OF_ROWS, SCHEMA):
        _drop(database, row["schema"], row["name"])
    name = f"{SCHEMA}_{secrets.token_hex(8)}"
    database.query("select pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))", name)
    _make_schema(database)
    return name


def is_abandoned(database: Database, name: str) -> bool:
    """Return whether a name is that of a dataset of rows, and no connection has it locked."""
    free = "select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended($1, 0)) as free"
    return bool(re.match(OF_ROWS, name)) and database.query(free, name)[0]["free"]


def _make_schema(database: Database) -> None:
    """Create the schema of the tables if needed, in which no other role may create anything."""
    # Another process may create it at the same time.
    with suppress(errors.DuplicateSchema, errors.UniqueViolation), database.connection.transaction():
        if not database.query(_OTHERS_MAY_CREATE, SCHEMA):
            for statement in _CREATE:
                database.query(sql.SQL(statement).format(sql.Identifier(SCHEMA)).as_string())
    (schema,) = database.query(_OTHERS_MAY_CREATE, SCHEMA)
    if schema["is_foreign"] or schema["is_open"]:
        raise PermissionError(
            f"another role owns schema {SCHEMA} of the private server, or may create in it, so rows are not loaded "
            f"into it; run `alter schema {SCHEMA} rename to …`, or drop it"
        )


def _budget(request: Request) -> dict[str, Any]:
    """Return a budget that covers one release."""
    check_epsilon_delta(request.epsilon, request.delta)
    epsilon = min(request.epsilon * (1 + _SLACK) + 1e-8, MAX_EPSILON)
    room = 2 / LEAK_UNITS if request.delta else 0.0  # for a δ below one unit of the ledger
    delta = min(request.delta * (1 + _SLACK) + room, (1 + request.delta) / 2)
    return {"epsilon": epsilon, "delta": delta, "mode": "basic"}


def _drop(database: Database, schema: str, name: str) -> None:
    """Close the dataset and drop its table; do nothing if the connection is lost."""
    database.recover()
    if database.connection.closed:
        return
    if any(row["name"] == name for row in database.datasets()):
        database.drop_dataset(name)
    database.query(sql.SQL("drop table if exists {}").format(sql.Identifier(schema, name)).as_string())
