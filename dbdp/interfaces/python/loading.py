"""Load a caller's rows into a temporary dataset of the private server, for one training.

The table is dropped at the end, also after an error or Ctrl-C; the next call drops the table of a killed process. The
charge and the released model stay in the private server's history.
"""

import re
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

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
from dbdp.registry.releases import OF_ROWS

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


@contextmanager
def temporary_dataset(
    frame: Frame, labels: np.ndarray, features: Mapping[str, Any], request: Request, **declared: Any
) -> Iterator[tuple[Database, str]]:
    """Load rows into the private server and register them with a budget for one release.

    Parameters
    ----------
    frame : Frame
        The rows.
    labels : array, shape (n,)
        float64 or texts.
    features : mapping
        As `Registration` takes them.
    request : Request
        Options of the training, for its ε and δ.
    **declared
        Other fields of a `Registration`.
    """
    with connect(embedded()) as database:
        name = claimed_name(database)
        try:
            label = _load(database, name, frame, labels, as_array=isinstance(features.get(ROW), Mapping))
            stated = {"label": label, "features": features} | declared
            register(database, request, name=name, source=f"{SCHEMA}.{name}", **stated)
            yield database, name
        finally:
            drop(database, SCHEMA, name)


def register(database: Database, request: Request, **stated: Any) -> None:
    """Register rows, by the other fields of a `Registration`, with a budget for one release."""
    with warnings.catch_warnings(action="ignore"):  # the plan's own warning is of the same δ
        database.register(Registration(**stated, **_budget(request)))


def claimed_name(database: Database) -> str:
    """Return a name for a new dataset, locked for the connection; drop the tables of killed processes."""
    for row in database.query(_ABANDONED, OF_ROWS, SCHEMA):
        drop(database, row["schema"], row["name"])
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


def _load(database: Database, table: str, frame: Frame, labels: np.ndarray, *, as_array: bool) -> str:
    """Create the table and copy the rows into it; return the name of the label's column."""
    label = LABEL
    while label in frame:
        label += "_"
    if as_array:
        names, kinds, columns = [ROW], ["float8[]"], [values_of(frame).tolist()]
    else:
        names, kinds = list(frame), ["text" if column.is_text else "float8" for column in frame.values()]
        columns = [column.values.tolist() for column in frame.values()]
    kinds.append("text" if labels.dtype == object else "float8")
    place = sql.Identifier(SCHEMA, table)
    definitions = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind))
        for column, kind in zip([*names, label], kinds, strict=True)
    )
    database.query(sql.SQL("create table {} ({})").format(place, definitions).as_string(database.connection))
    with database.connection.cursor().copy(sql.SQL("copy {} from stdin (format binary)").format(place)) as copy:
        copy.set_types(kinds)
        for row in zip(*columns, labels.tolist(), strict=True):
            copy.write_row(row)
    return label


def drop(database: Database, schema: str, name: str) -> None:
    """Close the dataset and drop its table; do nothing if the connection is lost."""
    database.recover()
    if database.connection.closed:
        return
    if any(row["name"] == name for row in database.datasets()):
        database.drop_dataset(name)
    database.query(sql.SQL("drop table if exists {}").format(sql.Identifier(schema, name)).as_string())
