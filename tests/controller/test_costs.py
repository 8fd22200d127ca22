"""The cost of a guarantee is computed once for each charge and account, and for a client by the server."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from acting import acting

from dbdp.privacy.accounting.budget import CHARGE_UNITS

COUNTED = """
do $$
from dbdp.privacy.accounting.budget import Budget
whole, GD["orders"] = Budget.cost, []
def counted(self, release):
    GD["orders"].append(self.order)
    return whole(self, release)
Budget.cost = counted
$$ language plpython3u;
create function pg_temp.orders() returns json language plpython3u as $$
import json
orders, GD["orders"] = GD["orders"], []
return json.dumps(orders)
$$"""
TRAIN = "select model from dbdp.dp_logreg(%s, epsilon => 1, delta => 1e-6)"


@pytest.fixture
def counting(server_url: str) -> Iterator[psycopg.Connection]:
    """A session of the superuser, in which each cost that is computed is noted, by its Rényi order."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("select dbdp.about()")
        connection.execute(COUNTED)
        yield connection


@pytest.fixture
def name(connection, table, register) -> str:
    return register(table, mode="renyi", epsilon=100, delta=1e-5)


def orders(connection: psycopg.Connection) -> Any:
    return connection.execute("select pg_temp.orders()").fetchone()[0]


def test_a_training_in_the_server_computes_its_cost_once(counting, name):
    (order,) = counting.execute("select rdp_order from dbdp.dataset where name = %s", (name,)).fetchone()
    orders(counting)
    counting.execute(TRAIN, (name,))
    assert orders(counting) == [order]


def test_an_allowance_of_another_order_computes_one_more(counting, connection, name, analyst):
    connection.execute("select dbdp.grant_training(%s, %s, 10)", (name, analyst))
    sql = "select d.rdp_order, a.rdp_order from dbdp.dataset d join dbdp.allowance a on a.dataset_id = d.id "
    expected = connection.execute(f"{sql} where d.name = %s", (name,)).fetchone()
    assert len(set(expected)) == 2
    orders(counting)
    with acting(counting, analyst):
        counting.execute(TRAIN, (name,))
    assert orders(counting) == list(expected)


def test_the_server_computes_a_clients_cost_from_its_events(counting, connection, table, register, spent):
    name = register(table, name="of_a_client", mode="basic", epsilon=10, delta=0)
    pure = {"event": {"event": "EpsilonDeltaDpEvent", "epsilon": 1, "delta": 0}, "epsilon": 1, "delta": 0}
    forged = {"charge": 0, "leak": 0, "costs": [0, 0], "price": 0}
    orders(counting)
    plan = json.dumps({"algorithm": "bolt_on", "guarantee": pure | forged} | forged)
    counting.execute("select dbdp_internal.charge(%s, %s)", (name, plan))
    assert orders(counting) == [None]
    assert spent(name) == (CHARGE_UNITS, 0)


@pytest.mark.parametrize("epsilon", [np.nan, 1e30])
def test_a_guarantee_out_of_range_is_refused_within_the_server(epsilon):
    from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent
    from dbdp.privacy.accounting.events.combined import ComposedDpEvent

    with pytest.raises(ValueError, match="event cannot be charged"):
        ComposedDpEvent((EpsilonDeltaDpEvent(1.0, 0.0), EpsilonDeltaDpEvent(epsilon, 0.0))).check_parts()
