"""NOTIFY dbdp_budget: a charge after which 80 % of a budget or of an allowance is spent."""

import json
from collections.abc import Iterator

import psycopg
import pytest
from acting import acting

CHARGE = "select dbdp.dp_logreg(%s, epsilon => %s, algorithm => 'bolt_on', epochs => 1, batch_size => 20)"


@pytest.fixture
def listener(server_url: str) -> Iterator[psycopg.Connection]:
    """A session that listens."""
    with psycopg.connect(server_url, autocommit=True) as session:
        session.execute("listen dbdp_budget")
        yield session


def heard(listener: psycopg.Connection) -> list[dict[str, object]]:
    """What was sent until now, by any session."""
    listener.execute("notify dbdp_budget, 'end'")
    sent = []
    for each in listener.notifies():
        if each.payload == "end":
            return sent
        sent.append(json.loads(each.payload))
    return sent


def number_of(connection: psycopg.Connection, name: str) -> int:
    return connection.execute("select max(id) from dbdp.dataset where name = %s", (name,)).fetchone()[0]


def test_each_charge_from_four_fifths_of_a_budget_on_notifies(connection, table, register, listener):
    name = register(table, epsilon=10)
    message = {"period": number_of(connection, name), "allowance": None, "threshold": 0.8}
    connection.execute(CHARGE, (name, 7.9))
    assert heard(listener) == []
    connection.execute(CHARGE, (name, 0.1))
    assert heard(listener) == [message]
    with pytest.raises(psycopg.Error, match="does not cover"):
        connection.execute(CHARGE, (name, 5))
    assert heard(listener) == []
    connection.execute(CHARGE, (name, 1))
    assert heard(listener) == [message]


def test_rolled_back_charge_notifies_nobody(connection, table, register, listener):
    """A rolled back charge notifies nobody and the next one does."""
    name = register(table, epsilon=10)
    with connection.transaction(force_rollback=True):
        connection.execute(CHARGE, (name, 9))
    assert heard(listener) == []
    connection.execute(CHARGE, (name, 0.5))
    assert len(heard(listener)) == 1


def test_allowance_notifies_only_if_it_has_a_limit(connection, table, register, listener, analyst):
    """An allowance notifies by itself and one without a limit never."""
    name = register(table, epsilon=100)
    connection.execute("select dbdp.grant_training(%s, %s, 10)", (name, analyst))
    (allowance,) = connection.execute("select max(id) from dbdp.allowance").fetchone()
    with acting(connection, analyst):
        connection.execute(CHARGE, (name, 7))
        assert heard(listener) == []
        connection.execute(CHARGE, (name, 2))
    assert heard(listener) == [{"period": number_of(connection, name), "allowance": allowance, "threshold": 0.8}]
    connection.execute("select dbdp.grant_training(%s, %s)", (name, analyst))
    with acting(connection, analyst):
        connection.execute(CHARGE, (name, 60))
    assert heard(listener) == []


def test_a_notification_names_no_dataset_and_no_role(connection, table, register, listener):
    name = register(table, epsilon=1)
    connection.execute(CHARGE, (name, 1))
    (message,) = heard(listener)
    assert set(message) == {"period", "allowance", "threshold"}
    assert all(isinstance(value, int | float | None) for value in message.values())
