"""An owner may have the server answer at a public time: at multiples of so many seconds after the charge.

All bounds of time are lower ones, but of what is not to wait: that ends before a multiple of many minutes.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from acting import acting
from pairs import others_slow

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect

Register = Callable[..., str]
LATE = 3600
TRAIN = (
    "select model from dbdp.dp_logreg(%s, epsilon => 1, delta => 0, "
    "algorithm => 'bolt_on', epochs => 1, batch_size => 20)"
)
CALLS = {
    "a training": TRAIN,
    "a tuning": """select model from dbdp.dp_tune(%s, '[{"epochs": 1}, {"epochs": 2}]', epsilon => 1, delta => 1e-6,
    algorithm => 'bolt_on')""",
    "groups": "select model from dbdp.dp_train_groups(%s, 'k', array['0', '1'], epsilon => 1, delta => 0)",
    "a class balance": "select dbdp.dp_class_balance(%s, epsilon => 1)",
    "bounds": "select dbdp.dp_bounds(%s, 'k', epsilon => 1)",
    "categories": "select * from dbdp.dp_categories(%s, 'k', epsilon => 9, delta => 1e-6)",
    "a summary": "select dbdp.dp_summarize(%s, epsilon => 1, delta => 1e-6)",
    "a table": "select * from dbdp.dp_table(%s, '{y}', epsilon => 1)",
    "a describe": "select * from dbdp.dp_describe(%s, epsilon => 1, delta => 1e-6)",
}
SET = "select dbdp.answer_at_multiples(%s, 'the time is nobody''s', %s)"


@pytest.fixture
def name(connection: psycopg.Connection, schema: str, register: Register) -> str:
    connection.execute(
        "create table t as select array[.1, .2, i / 99.0]::float8[] x, i % 2 y, i % 2 k from generate_series(1, 60) i"
    )
    return register("t", public_columns=["k"])


@pytest.fixture
def analyst(connection: psycopg.Connection, name: str, analyst: str) -> str:
    connection.execute("select dbdp.grant_training(%s, %s)", (name, analyst))
    return analyst


def seconds_of(connection: psycopg.Connection, sql: str, *parameters: object) -> float:
    begun = time.monotonic()
    connection.execute(sql, parameters)
    return time.monotonic() - begun


@pytest.mark.parametrize("call", others_slow(list(CALLS), *list(CALLS)[::2]))
def test_every_charged_call_answers_at_the_multiple(connection, name, call):
    connection.execute(CALLS[call], (name,))  # the control: at once, and all is loaded
    connection.execute(SET, (name, 1))
    assert seconds_of(connection, CALLS[call], name) >= 1


def test_a_score_answers_no_earlier_than_the_multiple(connection, name):
    model = connection.execute(TRAIN, (name,)).fetchone()[0]
    connection.execute(SET, (name, 1))
    assert seconds_of(connection, "select dbdp.dp_score(%s, %s, 'accuracy', 1)", model, name) >= 1


def test_what_the_ledger_shows_has_the_time_after_the_wait(connection, name):
    late = (
        "select extract(epoch from ended_at - charged_at) from dbdp.history_details where dataset = %s order by id desc"
    )
    connection.execute(SET, (name, 1))
    connection.execute(TRAIN, (name,))
    assert connection.execute(late, (name,)).fetchone()[0] >= 0.9


@contextmanager
def failing(connection: psycopg.Connection, schema: str) -> Iterator[None]:
    """Make each call fail where its temporary table is created, right after the charge."""
    connection.execute(f"""
create function {schema}.act() returns event_trigger language plpgsql as $$ begin raise exception 'no room'; end $$;
create event trigger act_{schema} on ddl_command_end when tag in ('CREATE TABLE') execute function {schema}.act()""")
    try:
        yield
    finally:
        connection.execute(f"drop event trigger act_{schema}")


def test_a_failure_after_the_charge_comes_at_the_multiple(connection, schema, name, spent):
    connection.execute(SET, (name, 1))
    begun = time.monotonic()
    with failing(connection, schema), pytest.raises(psycopg.Error, match="failed after it was charged"):
        connection.execute(TRAIN, (name,))
    assert time.monotonic() - begun >= 1
    assert spent(name)[0] > 0


REFUSED = {
    "a request that cannot be": TRAIN.replace("epochs => 1", "epochs => 0"),
    "a budget that does not cover it": TRAIN.replace("epsilon => 1", "epsilon => 1e5"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused_before_the_charge_does_not_wait(connection, name, spent, why):
    connection.execute(SET, (name, LATE))
    with pytest.raises(psycopg.Error, match=r"epochs|does not cover"):
        connection.execute(REFUSED[why], (name,))
    assert spent(name) == (0, 0)


def test_a_plan_states_the_answer_time_and_is_itself_not_delayed(connection, name):
    explain = "select dbdp.dp_explain(%s, epsilon => 1) -> 'answer_seconds'"
    assert connection.execute(explain, (name,)).fetchone() == (None,)
    connection.execute(SET, (name, LATE))
    assert connection.execute(explain, (name,)).fetchone() == (LATE,)
    for other in (
        "dp_explain_score(%s, 'class_balance', 1)",
        "dp_explain_tuning(%s, '[{\"epochs\": 1}]', epsilon => 1, algorithm => 'bolt_on')",
    ):
        row = connection.execute(f"select (dbdp.{other})::json -> 'answer_seconds'", (name,)).fetchone()
        assert row == (LATE,)


@pytest.mark.attack("public-times")
def test_a_cancel_ends_the_wait_and_the_charge_stands(connection, name, spent):
    connection.execute(TRAIN, (name,))
    before = spent(name)[0]
    connection.execute(SET, (name, LATE))
    connection.execute("set statement_timeout = '1s'")
    with pytest.raises(psycopg.Error, match="the charge is not refunded: it was cancelled"):
        connection.execute(TRAIN, (name,))
    connection.execute("reset statement_timeout")
    assert spent(name)[0] == 2 * before


def test_the_activity_hides_whether_a_call_waits(server_url, connection, name):
    """The control is PostgreSQL's own sleep."""
    connection.execute(TRAIN, (name,))  # all is loaded
    connection.execute(SET, (name, LATE))
    (pid,) = connection.execute("select pg_backend_pid()").fetchone()
    train = TRAIN.replace("%s", f"'{name}'")
    for sql, seconds, expected in ((train, 1, set()), ("select pg_sleep(3600)", 0.3, {"PgSleep"})):
        seen: set[str] = set()
        with psycopg.connect(server_url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
            running = pool.submit(connection.execute, sql)
            time.sleep(seconds)  # the training has long ended
            for _ in range(100):
                seen |= set(other.execute("select wait_event from pg_stat_activity where pid = %s", (pid,)).fetchone())
            other.execute("select pg_cancel_backend(%s)", (pid,))
            with pytest.raises(psycopg.Error):
                running.result()
        assert seen & {"PgSleep"} == expected


def test_a_client_that_may_read_the_table_does_not_wait(connection, name):
    connection.execute(SET, (name, LATE))
    assert connect(connection).train(name, Request(epsilon=1.0, algorithm="bolt_on", epochs=1, batch_size=20)).id


@pytest.mark.attack("public-times")
def test_only_the_role_that_registered_the_dataset_sets_the_time(connection, name, analyst):
    with acting(connection, analyst), pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(SET, (name, 10))
    connection.execute(f"grant dbdp_data_owner to {analyst}")
    with acting(connection, analyst), pytest.raises(psycopg.Error, match="only that role may set when it answers"):
        connection.execute(SET, (name, 10))
    with acting(connection, analyst), pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("update dbdp.dataset set answer_seconds = null")
    connection.execute(f"revoke dbdp_data_owner from {analyst}")


def test_the_time_survives_a_renewal_and_is_on_record(connection, name):
    now = "select answer_seconds from dbdp.datasets_details where name = %s"
    connection.execute(SET, (name, 10))
    connection.execute("select dbdp.renew_budget(%s, 'because')", (name,))
    connection.execute("""select dbdp.redeclare(%s, 'because', '{"x": {"length": 3, "norm": 2}}')""", (name,))
    assert connection.execute(now, (name,)).fetchone() == (10,)
    connect(connection).answer_at_multiples(name, "not needed", seconds=None)
    assert connection.execute(now, (name,)).fetchone() == (None,)
    former = (
        "select f.seconds, f.reason from dbdp.former_answer_time as f join dbdp.dataset as d on d.id = f.dataset_id "
    )
    rows = connection.execute(former + "where d.name = %s order by f.id", (name,)).fetchall()
    assert rows == [(None, "the time is nobody's"), (10, "not needed")]


@pytest.mark.parametrize(
    ("reason", "seconds", "message"),
    [
        ("because", 0, "seconds = 0 must be a whole number between 1 and 86400"),
        ("because", -5, "seconds = -5 must be"),
        ("because", 86401, "seconds = 86401 must be"),
        (" ", 5, "reason is empty"),
        ("because", None, "has this answer time already"),
        (None, 5, "reason is required"),
    ],
)
def test_a_time_that_cannot_be_is_refused(connection, name, reason, seconds, message):
    with pytest.raises(psycopg.Error, match=message):
        connection.execute("select dbdp.answer_at_multiples(%s, %s, %s::int4)", (name, reason, seconds))


@pytest.mark.attack("public-times")
def test_an_old_snapshot_does_not_escape_a_new_time(server_url, connection, name, spent):
    with psycopg.connect(server_url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("select 1 from dbdp.datasets_details")
        connection.execute(SET, (name, LATE))
        with pytest.raises(psycopg.errors.SerializationFailure):
            old.execute(TRAIN, (name,))
    assert spent(name) == (0, 0)
