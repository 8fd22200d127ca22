"""A caller's rows as a dataset of the private server, for the time of one training.

The table is dropped at the end, also after an error or Ctrl-C; what a killed process left, the next one drops. The
charge and the released model stay in the private server's history.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from dbdp.algorithms import Request
from dbdp.database import Database, connect, embedded
from dbdp.declaring import ROW, values_of
from dbdp.frames import Frame
from dbdp.privacy.accounting import LEAK_UNITS
from dbdp.privacy.events import MAX_EPSILON, check_epsilon_delta

LABEL = "label"
_PREFIX = "dbdp_rows_"
_SLACK = 1e-6  # of ε and δ of a budget for one release, since limits are rounded down and charges up
_ABANDONED = """
select c.relname::text as name
from pg_catalog.pg_class as c
where c.relnamespace = 'public'::regnamespace
and c.relkind = 'r'
and pg_catalog.starts_with(c.relname::text, $1)
and pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(c.relname::text, 0))
"""


@contextmanager
def temporary_dataset(
    frame: Frame, labels: np.ndarray, features: Mapping[str, Any], request: Request, **declared: Any
) -> Iterator[tuple[Database, str]]:
    """Load rows into the private server and register them with a budget for one release; give dataset and name.

    Parameters
    ----------
    labels : (n,), float64 or texts
    features, declared : see `Database.register_dataset`
    """
    with connect(embedded()) as database:
        name = f"{_PREFIX}{secrets.token_hex(8)}"
        for row in database.query(_ABANDONED, _PREFIX):
            _drop(database, row["name"])
        database.query("select pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))", name)
        try:
            label = _load(database, name, frame, labels, as_array=isinstance(features.get(ROW), Mapping))
            declared |= _budget(request)
            database.register_dataset(name, f"public.{name}", label=label, features=features, **declared)
            yield database, name
        finally:
            _drop(database, name)


def _budget(request: Request) -> dict[str, Any]:
    """Return a budget that covers one release."""
    check_epsilon_delta(request.epsilon, request.delta)
    epsilon = min(request.epsilon * (1 + _SLACK) + 1e-8, MAX_EPSILON)
    room = 2 / LEAK_UNITS if request.delta else 0.0  # of a δ that is less than a unit
    delta = min(request.delta * (1 + _SLACK) + room, (1 + request.delta) / 2)
    return {"epsilon": epsilon, "delta": delta, "mode": "basic"}


def _load(database: Database, table: str, frame: Frame, labels: np.ndarray, *, as_array: bool) -> str:
    """Make the table and copy the rows into it; return the label's column."""
    label = LABEL
    while label in frame:
        label += "_"
    if as_array:
        names, kinds, columns = [ROW], ["float8[]"], [values_of(frame).tolist()]
    else:
        names, kinds = list(frame), ["text" if column.is_text else "float8" for column in frame.values()]
        columns = [column.values.tolist() for column in frame.values()]
    kinds.append("text" if labels.dtype == object else "float8")
    written = database.query(
        "select pg_catalog.string_agg(pg_catalog.format('%I ', n) || k, ', ' order by i) as columns "
        "from rows from (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) with ordinality as u (n, k, i)",
        [*names, label],
        kinds,
    )[0]["columns"]
    database.query(f"create table public.{table} ({written})")
    with database.connection.cursor().copy(f"copy public.{table} from stdin (format binary)") as copy:
        copy.set_types(kinds)
        for row in zip(*columns, labels.tolist(), strict=True):
            copy.write_row(row)
    return label


def _drop(database: Database, name: str) -> None:
    """Close the dataset and drop its table; nothing, where the connection is lost."""
    database.recover()
    if database.connection.closed:
        return
    if any(row["name"] == name for row in database.datasets()):
        database.drop_dataset(name)
    database.query(f"drop table if exists public.{name}")
