"""Exact models, without noise, from the server's own session and aggregate.

`train_exactly` becomes the body of a PL/Python function in a separate schema, which only a superuser
can create, in the test database only. An installed extension has no such function.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg

from dbdp import __version__
from dbdp.privacy import shuffling

SCHEMA = "test_build"
MAKE = """
create schema {schema};
create function {schema}.exact_models(dataset text, requests json, orders text[], fault text) returns json
language plpython3u
set search_path = pg_catalog, pg_temp
set jit = off
as $exact$
from collections.abc import Callable
from typing import Any

{source}
return train_exactly(dataset, requests, orders, fault)
$exact$;
create function {schema}.exact_groups(dataset text, request json, group_by text, groups text[], "order" text)
returns json
language plpython3u
set search_path = pg_catalog, pg_temp
set jit = off
as $exact$
from typing import Any

{groups_source}
return train_groups_exactly(dataset, request, group_by, groups, order)
$exact$;
"""


def in_secret_order(session: Any, dataset: Any, plan: Any) -> Any:
    """Return the exact models of a plan over rows in a secret order."""
    from dbdp.controller.packed_rows import packed_rows

    with packed_rows(session, dataset, plan.layout) as rows:
        rows.shuffle()
        return plan.exact(rows).tolist()


def train_exactly(name: str, requests: str, orders: list[str], fault: str | None) -> str:
    """Train as the controller does, in the server, and return the exact models of each request as JSON.

    Parameters
    ----------
    requests : JSON list of requests; all of them have the same shards, projection and cohort
    orders : hexadecimal keys of the order of the rows, one for each epoch, the last for all that follow;
        without any the order is secret, and each request has one of its own
    fault : a fault to plant in what is executed, see `FAULTS`
    """
    import json
    import sys
    from contextlib import ExitStack
    from dataclasses import replace
    from unittest.mock import patch

    if "DIRECTORY" not in sys.path:
        sys.path.insert(0, "DIRECTORY")
    from dbdp import algorithms
    from dbdp.controller.facts import facts, within
    from dbdp.controller.packed_rows import packed_rows
    from dbdp.interfaces.sql.boundary import session
    from dbdp.learning import kernels
    from dbdp.registry import datasets

    given, models_of_requests = [algorithms.Request(**each) for each in json.loads(requests)], []
    dataset = within(session, datasets.load(session, name), given[0].cohort)
    plans = [algorithms.plan(each, facts(dataset, each)) for each in given]
    if not orders:
        return json.dumps([in_secret_order(session, dataset, plan) for plan in plans])
    with ExitStack() as stack:
        if fault == "short batch":
            stack.enter_context(patch.object(kernels, "terminate", divided_by_own_size(kernels.terminate)))
        rows = stack.enter_context(packed_rows(session, dataset, plans[0].layout))
        (packing,) = rows.packings
        packing.options["key"] = orders[0]
        rows.shuffle()

        def take_order(_stage: str, done: int, _total: int) -> None:
            packing.options["key"] = orders[min(done, len(orders) - 1)]

        for number, plan in enumerate(plans):
            if number and len(orders) > 1:
                take_order("epoch", 0, 1)
                rows.shuffle()
            learning = misweighted(plan.learning) if fault == "weights" else plan.learning
            models_of_requests.append(replace(plan, learning=learning).exact(rows, take_order).tolist())
    return json.dumps(models_of_requests)


def train_groups_exactly(name: str, request: str, group_by: str, groups: list[str], order: str) -> str:
    """Train each group as the controller does, in the order of a key, and return the exact models as JSON."""
    import json
    import sys

    if "DIRECTORY" not in sys.path:
        sys.path.insert(0, "DIRECTORY")
    from dbdp.algorithms import Request
    from dbdp.algorithms.combined import groups as by_groups
    from dbdp.controller.facts import facts
    from dbdp.controller.packed_rows import packed_rows
    from dbdp.interfaces.sql.boundary import session
    from dbdp.packing import grouping
    from dbdp.registry import datasets

    dataset, models = datasets.load(session, name), []
    groups_request = by_groups.GroupsRequest(Request(**json.loads(request)), group_by, tuple(groups))
    sizes = grouping.sizes(session, dataset, group_by, groups_request.groups)
    plan = by_groups.groups_plan(groups_request, facts(dataset, groups_request.base), sizes)
    for group, own in zip(grouping.each_group(session, dataset, groups_request, sizes), plan.plans, strict=True):
        with packed_rows(session, group, own.layout) as rows:
            rows.packings[0].options["key"] = order
            rows.shuffle()
            models.append(own.exact(rows).tolist())
    return json.dumps(models)


def divided_by_own_size(terminate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a `kernels.terminate` that divides a short mini-batch by the rows that it has."""

    def wrong(state: Any) -> Any:
        state.gradient *= state.batch_size / max(state.filled, 1)
        return terminate(state)

    return wrong


def misweighted(learning: Any) -> Any:
    """Return a learning whose first shard counts for nearly all, where the noise covers equal ones."""
    from dataclasses import replace

    others = len(learning.shard_rows) - 1
    return replace(learning, shard_rows=(sum(learning.shard_rows) - others, *[1] * others))


FAULTS = ("short batch", "weights")
BODY = (divided_by_own_size, misweighted, in_secret_order, train_exactly)


@contextmanager
def installed(connection: psycopg.Connection) -> Iterator[None]:
    """Install the functions in this database for the duration of the block."""
    share = connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0]
    source = "".join(map(inspect.getsource, BODY)).replace("DIRECTORY", f"{share}/dbdp/{__version__}")
    connection.execute(f"drop schema if exists {SCHEMA} cascade")
    groups_source = inspect.getsource(train_groups_exactly).replace("DIRECTORY", f"{share}/dbdp/{__version__}")
    connection.execute(MAKE.format(schema=SCHEMA, source=source, groups_source=groups_source).encode())
    try:
        yield
    finally:
        connection.execute(f"drop schema {SCHEMA} cascade")


def exact_models(
    connection: psycopg.Connection,
    dataset: str,
    requests: Sequence[Mapping[str, Any]],
    orders: Sequence[bytes] = (),
    fault: str | None = None,
) -> list[np.ndarray]:
    """Return the exact models of each request, shape (outputs, dimension); see `train_exactly`."""
    given = (dataset, json.dumps([dict(each) for each in requests]), [key.hex() for key in orders], fault)
    row = connection.execute(f"select {SCHEMA}.exact_models(%s, %s, %s, %s)", given).fetchone()
    return [np.array(models) for models in row[0]]


def exact_groups(
    connection: psycopg.Connection,
    dataset: str,
    request: Mapping[str, Any],
    group_by: str,
    groups: Sequence[str],
    order: bytes,
) -> list[np.ndarray]:
    """Return the exact models of each group; see `train_groups_exactly`."""
    given = (dataset, json.dumps(dict(request)), group_by, list(groups), order.hex())
    row = connection.execute(f"select {SCHEMA}.exact_groups(%s, %s, %s, %s, %s)", given).fetchone()
    return [np.array(models) for models in row[0]]


def order_with(slot: int, place: int, rows: int) -> bytes:
    """Return a key whose order puts the row of a slot at a place; slots are the rows of a table as inserted."""
    random = np.random.default_rng()
    while True:
        key = random.bytes(32)
        order = shuffling.KeyedOrder(key, rows)
        if order.order(order.words(0, rows))[place] == slot:
            return key
