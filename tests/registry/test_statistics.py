"""dbdp.stat_datasets: what it counts, and to whom it is shown."""

from collections.abc import Callable

import psycopg
import pytest
from acting import acting

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect
from dbdp.sessions.client import ClientSession
from dbdp.sessions.session import Row

TRAIN = "select model from dbdp.dp_logreg(%s, epsilon => %s, algorithm => 'bolt_on', epochs => 1, batch_size => 20)"
CHARGE = "select ledger_id from dbdp_internal.charge(%s, %s)"
OF_TWO = '{"event": {"event": "EpsilonDeltaDpEvent", "epsilon": 2, "delta": 0}, "epsilon": 2, "delta": 0}'
PLAN = f'{{"algorithm": "some", "guarantee": {OF_TWO}}}'
SECONDS = (
    "select extract(epoch from ended_at - charged_at)::float8 from dbdp.history_details "
    "where dataset = %s and outcome = 'released'"
)
WATCHERS = {"monitor": ["pg_monitor"], "analyst": ["dbdp_analyst"], "rival": ["dbdp_data_owner"], "stranger": []}


@pytest.fixture
def watchers(make_role: Callable[..., str]) -> dict[str, str]:
    """A role of each kind."""
    return {kind: make_role(kind, *groups) for kind, groups in WATCHERS.items()}


def statistics(connection: psycopg.Connection, name: str) -> list[Row]:
    return ClientSession(connection).query("select * from dbdp.stat_datasets_details where dataset = $1", name)


def test_statistics_count_charges_by_how_they_ended(connection, table, register):
    name = register(table, epsilon=8)
    (row,) = statistics(connection, name)
    assert (row["charges"], row["spent_share"], row["total_seconds"], row["last_release"]) == (0, 0, 0, None)
    connection.execute(TRAIN, (name, 1))
    connect(connection).train(name, Request(epsilon=1, algorithm="bolt_on", epochs=1, batch_size=20))
    failing, _ = (connection.execute(CHARGE, (name, PLAN)).fetchone()[0] for _ in "ab")
    connection.execute("select dbdp_internal.record_outcome(%s, 'failed', 'by hand')", (failing,))
    (row,) = statistics(connection, name)
    assert [row[count] for count in ("charges", "releases", "failures", "unfinished")] == [4, 2, 1, 1]
    assert (row["spent_share"], row["unrecorded_share"]) == (6 / 8, 0)
    seconds = [duration for (duration,) in connection.execute(SECONDS, (name,))]
    assert row["total_seconds"] == pytest.approx(sum(seconds))
    assert (row["mean_seconds"], row["max_seconds"]) == pytest.approx((sum(seconds) / 2, max(seconds)))
    assert row["registered_at"] < row["last_release"] < row["last_charge"]


def test_a_charge_that_is_rolled_back_is_in_the_shares(connection, table, register):
    name = register(table, epsilon=8)
    with connection.transaction(force_rollback=True):
        connection.execute(TRAIN, (name, 2))
        assert statistics(connection, name)[0]["releases"] == 1
    (row,) = statistics(connection, name)
    assert (row["charges"], row["spent_share"], row["unrecorded_share"]) == (0, 0.25, 0.25)


def test_the_share_of_delta_counts_where_it_is_the_larger_one(connection, table, register):
    name = register(table, epsilon=8, delta=1e-6)
    connection.execute("select model from dbdp.dp_train(%s, 1, 5e-7, 'bolt_on', epochs => 1)", (name,))
    assert statistics(connection, name)[0]["spent_share"] == 0.5


def test_statistics_are_for_registrants_and_monitors(connection, dataset, watchers):
    """Statistics are for who registered a dataset and for monitors."""
    connection.execute("select dbdp.grant_training(%s, %s)", (dataset, watchers["analyst"]))
    with acting(connection, watchers["monitor"]):
        (row,) = statistics(connection, dataset)
        assert (row["charges"], row["spent_share"]) == (0, 0)
    with acting(connection, watchers["rival"]):
        assert statistics(connection, dataset) == []
        spent = connection.execute("select * from dbdp_internal.dataset_spent(%s)", (row["period"],))
        assert spent.fetchone() == (None, None)
    for kind in ("analyst", "stranger"):
        with acting(connection, watchers[kind]), pytest.raises(psycopg.errors.InsufficientPrivilege):
            statistics(connection, dataset)


def test_a_readers_condition_is_not_evaluated_on_rows_of_others(connection, dataset, watchers):
    connection.execute(
        "create function noted(seen text) returns boolean language plpgsql cost 0.0001 as "
        "$$begin raise exception 'saw %', seen; end$$"
    )
    seen = "select dataset from dbdp.stat_datasets_details where noted(dataset)"
    with acting(connection, watchers["monitor"]), pytest.raises(psycopg.errors.RaiseException, match="saw "):
        connection.execute(seen)
    with acting(connection, watchers["rival"]):
        assert connection.execute(seen).fetchall() == []
    assert dataset
