"""A white-box training in the server that records the noise it drew and the rows it packed.

Like `exact`, it is a function in a separate schema, which only a superuser can create, in the test database only.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg

from dbdp import __version__
from dbdp.learning.rows import blocks

SCHEMA = "test_record"
MAKE = """
create schema {schema};
create function {schema}.noisy_model(dataset text, request json) returns json
language plpython3u
set search_path = pg_catalog, pg_temp
set jit = off
as $recorded$
from collections.abc import Callable
from typing import Any

{source}
return train_on_record(dataset, request)
$recorded$;
"""


def train_on_record(name: str, request: str) -> str:
    """Train as the controller does, in the server; return the model, the noise and the packed rows as JSON."""
    import json
    import sys
    from contextlib import ExitStack
    from unittest.mock import patch

    if "DIRECTORY" not in sys.path:
        sys.path.insert(0, "DIRECTORY")
    from dbdp import algorithms
    from dbdp.controller import packed_rows
    from dbdp.controller.facts import facts
    from dbdp.interfaces.sql.boundary import session
    from dbdp.packing import resident
    from dbdp.privacy.noise import streams
    from dbdp.registry import datasets

    noise, packed = list[Any](), list[Any]()
    draw, pack = streams.draw, packed_rows.Packing.fill

    def drawing(*arguments: Any) -> Any:
        noise.extend((record := draw(*arguments)).tolist())
        return record

    def packing(self: Any, how: Any) -> None:
        pack(self, {**how, "held": False})  # so that the blocks have the rows themselves
        query = f"select block from {self.table} order by block_no"
        blocks, poisson, ends = [row["block"] for row in session.query(query)], how.get("poisson", {}), None
        if poisson.get("together"):
            held = resident.rows_of(blocks[0], plan.layout.dimension)
            blocks, ends = [held.read(piece).tobytes() for piece in held.pieces], held.ends.tolist()
        elif poisson:
            ends = [poisson["size"] * (step + 1) for step in range(poisson["steps"])]
        packed.append([ends, [block.hex() for block in blocks]])

    dataset = datasets.load(session, name)
    plan = algorithms.plan(wanted := algorithms.Request(**json.loads(request)), facts(dataset, wanted))
    with ExitStack() as stack, packed_rows.packed_rows(session, dataset, plan.layout) as rows:
        for each in ((streams, "draw", drawing), (packed_rows.Packing, "fill", packing)):
            stack.enter_context(patch.object(*each))
        model = plan.run(rows).models
    return json.dumps({"model": model.tolist(), "noise": noise, "packed": packed})


@contextmanager
def installed(connection: psycopg.Connection) -> Iterator[None]:
    """Install the function in this database for the duration of the block."""
    share = connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0]
    source = inspect.getsource(train_on_record).replace("DIRECTORY", f"{share}/dbdp/{__version__}")
    connection.execute(f"drop schema if exists {SCHEMA} cascade")
    connection.execute(MAKE.format(schema=SCHEMA, source=source).encode())
    try:
        yield
    finally:
        connection.execute(f"drop schema {SCHEMA} cascade")


class Record:
    """The noise and the packed rows of a training.

    Attributes
    ----------
    model : as it would have been released, shape (outputs, dimension)
    noise : (updates, dimension), in steps of the grid
    batches : for each packing its Poisson mini-batches without what fills them, or one array of all rows
    """

    def __init__(self, record: Mapping[str, Any], dimension: int) -> None:
        self.model = np.array(record["model"])
        self.noise = np.array(record["noise"])
        self.batches = [_batches(packed, dimension) for packed in record["packed"]]


def _batches(packed: tuple[list[int] | None, list[str]], dimension: int) -> list[np.ndarray]:
    ends, pieces = packed
    rows = np.concatenate([blocks.decode(bytes.fromhex(block), dimension).astype(float) for block in pieces])
    if ends is None:
        return [rows]
    *batches, beyond = np.split(rows, ends)
    assert not beyond.any()
    return [batch[batch.any(axis=1)] for batch in batches]


def noisy_model(connection: psycopg.Connection, dataset: str, request: Mapping[str, Any], dimension: int) -> Record:
    """Train in the server, and return the record."""
    sql = f"select {SCHEMA}.noisy_model(%s, %s)"
    return Record(connection.execute(sql, (dataset, json.dumps(dict(request)))).fetchone()[0], dimension)
