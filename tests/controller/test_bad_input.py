"""Bad input, through both interfaces: a clear error, and nothing lost or spent (issue 2, §8)."""

import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from acting import acting
from examples import GIVEN, example
from short import FEW, OF_COLUMNS

from dbdp import algorithms
from dbdp.algorithms import ALGORITHMS, NOISY_WHILE_TRAINING, Facts, Request
from dbdp.controller import ChargedError
from dbdp.deployment.cluster import Cluster
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.estimators.linear import LogisticRegression

Register = Callable[..., str]
Spent = Callable[[str], tuple[int, int]]
NAN, INFINITY = float("nan"), float("inf")
ROWS = 60
CASTS = dict.fromkeys(("epsilon", "delta", "step_size", "regularisation", "clip_norm"), "float8")
SHORT = {"algorithm": "bolt_on", "batch_size": 20, "epochs": 2}

WHITE_BOX = {"delta": 1e-6}
NOT_COVERED = "does not cover this release: it needs"
# Some of each kind: tests/algorithms/test_plans.py has all that a plan refuses, test_own_settings.py all settings.
REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": NAN}, "epsilon = nan must be positive"),
    ({"epsilon": INFINITY}, "epsilon = inf must be positive"),
    ({"epsilon": 1e308}, "epsilon = 1e.308 must be positive, from 1e-09 to 1,000,000"),
    ({"epsilon": 5e-324}, "epsilon"),
    (
        {"epsilon": 10.5},
        "does not cover this release: it needs 105 %, and 100 % is left; an epsilon up to 10 fits at delta = 0,",
    ),
    ({"delta": -1e-9}, "delta = -1e-09 must be at least 0 and below 1"),
    ({"delta": NAN}, "delta = nan must be at least 0 and below 1"),
    (
        {"delta": 0.5},
        "does not cover this release: it needs 50000 % of its delta, and 100 % is left; an epsilon up to 10 fits",
    ),
    ({"algorithm": "sgd"}, "algorithm 'sgd' is unknown; choose one of auto, bolt_on"),
    ({"schedule": "constant", "step_size": 8.01}, "step size 8.01 is above 2/β = 8"),
    ({"schedule": "constant", "step_size": INFINITY}, "step_size = inf must be positive and finite"),
    ({"schedule": "constant", "step_size": 5e-324}, "step_size|step size|sensitivity"),
    ({"regularisation": NAN}, "regularisation = nan must be 0, or between"),
    ({"regularisation": 1e308}, "regularisation = 1e.308 must be 0, or between"),
    ({"batch_size": 61}, "batch_size = 61 must be a whole number between 1 and 60: it cannot exceed the number"),
    ({"batch_size": 2**31 - 1}, "batch_size = 2147483647 must be a whole number"),
    ({"epochs": -1}, "epochs = -1 must be a whole number between 1 and"),
    ({"algorithm": "dp_sgd"}, "adds Gaussian noise and needs a delta > 0; give one"),
    ({"algorithm": "dp_adam", "clip_norm": NAN} | WHITE_BOX, "clip_norm = nan must be between 1e-06 and"),
    ({"algorithm": "dp_sgd", "network": "rnn:3"} | WHITE_BOX, "network 'rnn:3'"),
    ({"algorithm": "dp_sgd", "network": "mlp:1000000000"} | WHITE_BOX, "network|parameters"),
    (
        {"algorithm": "dp_agd", "settings": "splits"} | WHITE_BOX,
        "settings = splits of algorithm 'dp_agd' must be a JSON object with any of splits",
    ),
    ({"algorithm": "dp_agd", "settings": '{"growth": NaN}'} | WHITE_BOX, "growth = nan must be between"),
    (
        {"algorithm": "dp_blgd", "settings": '{"planned_steps": 1e999}'} | WHITE_BOX,
        "planned_steps = inf must be a whole number",
    ),
    ({"algorithm": "dp_sgd", "step_size": 1e308} | WHITE_BOX, r"step_size = 1e\+308 must be between 0 and 1e\+06"),
    *(
        (
            {"algorithm": name, "epsilon": 10.5} | WHITE_BOX,
            f"{NOT_COVERED} 105 %, and 100 % is left; an epsilon up to 10 fits at delta =",
        )
        for name in NOISY_WHILE_TRAINING
        if name not in OF_COLUMNS
    ),
]
EVERY_INTERFACE = pytest.mark.parametrize("interface", ["server", "client"])


@pytest.fixture
def dataset(table: str, register: Register) -> str:
    return register(table, epsilon=10.0)


def train(connection: psycopg.Connection, interface: str, name: str | None, **given: Any) -> None:
    """Train through an interface, on this connection: for a short time, unless the algorithm fixes the length."""
    algorithm = given.get("algorithm", "bolt_on")
    options = {"epsilon": 1.0} | (SHORT if algorithm not in FEW or FEW[algorithm] == {"epochs": 2} else {}) | given
    if interface == "client" and {"loss", "network"} & set(options):
        connect(connection).train(name, Request(**options))
    elif interface == "client":
        LogisticRegression(progress=False, **options).fit(connect(connection), name)
    else:
        arguments = ", ".join(f"{key} => %({key})s::{CASTS.get(key, kind(value))}" for key, value in options.items())
        function = "dp_train" if "loss" in options else "dp_logreg"
        connection.execute(f"select model from dbdp.{function}(%(name)s, {arguments})", options | {"name": name})


def kind(value: object) -> str:
    return "int" if isinstance(value, int) or value is None else "text"


@contextmanager
def nothing_lost(connection: psycopg.Connection, spent: Spent, name: str) -> Iterator[None]:
    """Odometers, history, models and temporary tables are afterwards as before."""
    sql = """
select (select count(*) from dbdp.model), (select count(*) from dbdp.ledger),
  (select count(*) from pg_class where relpersistence = 't' and relname like '%dbdp%'),
  (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())"""
    before = spent(name), connection.execute(sql).fetchone()
    yield
    assert (spent(name), connection.execute(sql).fetchone()) == before
    assert before[0] == (0, 0)


def assert_clear(error: Exception) -> None:
    """Our own words, without a Python exception's name or a traceback's lines."""
    text = error.diag.message_primary if isinstance(error, psycopg.Error) else str(error)
    if isinstance(error, psycopg.Error):
        assert text.startswith("dbdp: "), text
    assert not any(word in text for word in ("Error:", "Traceback", "NoneType", "math domain")), text


@EVERY_INTERFACE
def test_a_bad_request_is_refused(connection, dataset, spent, interface):
    for given, message in REQUESTS:
        with nothing_lost(connection, spent, dataset):
            with pytest.raises((psycopg.Error, ValueError), match=message) as error:
                train(connection, interface, dataset, **given)
            assert_clear(error.value)


def test_a_null_is_refused(connection, dataset, spent):
    for argument in ("epsilon", "delta", "shards", "positive_weight", "algorithm"):
        values = ", ".join(f"{key} => {value}" for key, value in ({"epsilon": 1.0} | {argument: "null"}).items())
        message = f"dbdp: {argument} is (required, e.g. epsilon => 1|null; leave it out, or pass a value)"
        with nothing_lost(connection, spent, dataset), pytest.raises(psycopg.Error, match=message):
            connection.execute(f"select dbdp.dp_logreg('{dataset}', {values})")


def test_a_null_where_a_default_stands_is_the_default(connection, dataset):
    nulls = "step_size => null, epochs => null, regularisation => null, mechanism => null"
    sql = f"select dbdp.dp_explain(%s, 1, {nulls})::text"
    plain = connection.execute("select dbdp.dp_explain(%s, 1)::text", (dataset,)).fetchone()
    assert connection.execute(sql, (dataset,)).fetchone() == plain


@EVERY_INTERFACE
def test_an_unknown_dataset_is_named(connection, dataset, spent, interface):
    message = r"dataset .*is (not registered; see|required, e.g. .* from) dbdp.datasets"
    for name in ("nope", "", "x" * 500, "it's \"", None):
        refused = pytest.raises((psycopg.Error, ValueError), match=message)
        with nothing_lost(connection, spent, dataset), refused:
            train(connection, interface, name)


@EVERY_INTERFACE
def test_after_a_bad_request_the_next_one_is_served(connection, dataset, interface):
    with pytest.raises((psycopg.Error, ValueError)):
        train(connection, interface, dataset, epsilon=0.0)
    train(connection, interface, dataset)
    assert connection.execute("select count(*) from dbdp.models_details where dataset = %s", (dataset,)).fetchone() == (
        1,
    )


def test_explain_refuses_what_training_refuses(connection, dataset):
    for given, message in (
        ({"epsilon": 0}, "epsilon = 0.0 must"),
        ({"epsilon": 1, "algorithm": "'bolt_on'", "batch_size": 61}, "batch_size = 61"),
    ):
        values = ", ".join(f"{key} => {value}" for key, value in given.items())
        with pytest.raises(psycopg.Error, match=message):
            connection.execute(f"select dbdp.dp_explain('{dataset}', {values})")


@pytest.mark.parametrize("algorithm", ["bolt_on", "dp_sgd", "dp_agd", "rrpsgd"])
def test_all_other_options_are_refused_before_a_charge(connection, dataset, spent, algorithm):
    """The options of an algorithm are explained and all others are refused before a charge."""
    for option in GIVEN:
        given = {"epsilon": 1.0, "delta": 1e-6} | example(algorithm, option)
        given |= {"projection_dimension": 2} if option == "projection_dimension" else {}
        given |= {"cohort": '{"y": ["1"]}'} if option == "cohort" else {}  # of an array, the label only
        arguments = ", ".join(f"{name} => %({name})s" for name in given)
        explain, train_ = (f"select dbdp.{name}('{dataset}', {arguments})" for name in ("dp_explain", "dp_train"))
        if ALGORITHMS[algorithm].OPTIONS.has(option):
            if option == "summary":  # of a dataset that has none
                with pytest.raises(psycopg.Error, match=r"summary 7 does not exist; see dbdp\.summaries"):
                    connection.execute(explain, given)  # type: ignore[arg-type]
                continue
            connection.execute(explain, given)  # type: ignore[arg-type]
            continue
        for sql in (explain, train_):
            with (
                nothing_lost(connection, spent, dataset),
                pytest.raises(psycopg.Error, match=f"^dbdp: algorithm '{algorithm}' does not support ") as error,
            ):
                connection.execute(sql, given)  # type: ignore[arg-type]
            assert_clear(error.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_endless_epochs_are_refused_at_once(algorithm):
    """The plan must neither take all memory of the server nor minutes that no cancel ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, hard))
    try:
        for epochs in (2**31 - 1, 10**8):
            with within(3.0), pytest.raises(ValueError, match=r"epochs|updates"):
                algorithms.plan(Request(1.0, 1e-6, algorithm, epochs=epochs, batch_size=20), Facts(ROWS, 4))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Interrupt the block when it takes longer."""

    def interrupt(*_: object) -> None:
        raise TimeoutError(f"still at it after {seconds} s")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def processor_time(pid: int) -> int:
    """What a process has used of the processors, in ticks: other processes add nothing to it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.usefixtures("server_machine")
def test_a_statement_timeout_ends_the_planning_too(connection, dataset):
    """Before half of the work: a plan that is not stopped is the control."""
    pid, used = connection.info.backend_pid, []
    connection.execute("select dbdp.dp_explain(%s, 1)", (dataset,))  # what is imported once
    for timeout, ended in (("0", nullcontext()), ("10ms", pytest.raises(psycopg.Error))):
        connection.execute(f"set statement_timeout = '{timeout}'")
        before = processor_time(pid)
        with ended:
            connection.execute(
                "select dbdp.dp_explain(%s, 1, algorithm => 'bolt_on', epochs => 100000, batch_size => 1)", (dataset,)
            )
        used.append(processor_time(pid) - before)
    assert used[1] < used[0] / 2


@EVERY_INTERFACE
def test_a_read_only_transaction_is_refused(connection, dataset, spent, interface):
    with nothing_lost(connection, spent, dataset):
        connection.execute("set default_transaction_read_only = on")
        with pytest.raises((psycopg.Error, ValueError), match=r"transaction.* is read-only"):
            train(connection, interface, dataset)
        connection.execute("set default_transaction_read_only = off")


SETTINGS = {
    "dbdp.pack_memory": ["1kB", "-1", "garbage"],
    "standard_conforming_strings": ["off"],
    "quote_all_identifiers": ["on"],
    "transform_null_equals": ["on"],
    "backslash_quote": ["off"],
    "escape_string_warning": ["off"],
    "array_nulls": ["off"],
    "extra_float_digits": ["-15"],
    "bytea_output": ["escape"],
    "client_encoding": ["LATIN1"],
    "default_transaction_isolation": ["serializable", "repeatable read"],
    "plan_cache_mode": ["force_generic_plan", "force_custom_plan"],
    "enable_tidscan": ["off"],
    "jit": ["on"],
    "max_parallel_workers_per_gather": ["0"],
    "row_security": ["off"],
    "xmloption": ["document"],
    "IntervalStyle": ["iso_8601"],
    "DateStyle": ["SQL, DMY"],
    "search_path": ["", "pg_temp"],
    "temp_file_limit": ["0"],
}


REFUSED = ("dbdp.pack_memory", "default_transaction_isolation", "client_encoding")  # with some values


@pytest.mark.parametrize("interface", ["server", pytest.param("client", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("setting", "value"), [(name, value) for name, values in SETTINGS.items() for value in values])
def test_no_setting_of_a_session_costs_budget_without_a_model(connection, dataset, spent, setting, value, interface):
    """A training either succeeds and is charged, or fails before its charge."""
    warnings: list[str] = []
    connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    models = "select count(*) from dbdp.model as m join dbdp.dataset as d on d.id = dataset_id where d.name = %s"
    try:
        connection.execute("select set_config(%s, %s, false)", (setting, value))
    except psycopg.Error as error:
        pytest.skip(f"the server refuses it: {error}")
    for count, given in enumerate(({}, {"algorithm": "scs13"}, {"algorithm": "majority"}), start=1):
        try:
            train(connection, interface, dataset, **given)
        except (psycopg.Error, ValueError, ChargedError):
            assert spent(dataset) == (0, 0)
            assert setting in REFUSED
        else:
            assert spent(dataset)[0] == count * 10**9
            assert connection.execute(models, (dataset,)).fetchone() == (count,)
    assert warnings == []


@EVERY_INTERFACE
def test_no_temporary_tables_are_noticed_before_the_charge(connection, dataset, make_role, spent, interface):
    role = make_role("owner", "dbdp_data_owner")
    connection.execute(f"alter table t owner to {role}; grant select on t to {role}, dbdp_owner")
    connection.execute("select dbdp.grant_training(%s, %s)", (dataset, role))
    connection.execute("revoke temporary on database dbdp from public")
    try:
        with acting(connection, role), pytest.raises((psycopg.Error, ValueError), match="temporary"):
            train(connection, interface, dataset)
    finally:
        connection.execute("grant temporary on database dbdp to public")
    assert spent(dataset) == (0, 0)


@EVERY_INTERFACE
def test_an_unreadable_table_is_noticed_before_the_charge(connection, dataset, analyst, spent, interface):
    connection.execute("revoke select on t from dbdp_owner")
    connection.execute("select dbdp.grant_training(%s, %s)", (dataset, analyst))
    message = r"grant select on .*t to dbdp_owner|permission denied for table t"
    with acting(connection, analyst), pytest.raises((psycopg.Error, ValueError), match=message):
        train(connection, interface, dataset)
    assert spent(dataset) == (0, 0)


@EVERY_INTERFACE
def test_a_role_without_rights_is_refused(connection, dataset, make_role, spent, interface):
    refused = pytest.raises((psycopg.Error, ValueError), match="permission denied")
    with nothing_lost(connection, spent, dataset), acting(connection, make_role("nobody")), refused:
        train(connection, interface, dataset)


def test_a_failed_transaction_is_left_as_it_is(connection, dataset, spent):
    with nothing_lost(connection, spent, dataset), connection.transaction(force_rollback=True):
        with pytest.raises(psycopg.Error):
            connection.execute("select 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            train(connection, "client", dataset)


def test_an_early_error_does_not_end_a_clients_transaction(server_url, connection, dataset, spent):
    with nothing_lost(connection, spent, dataset), psycopg.connect(server_url) as mine:
        mine.execute("create temporary table kept (a int)")
        with pytest.raises(ValueError, match="batch_size = 0"):
            train(mine, "client", dataset, batch_size=0)
        assert mine.execute("select count(*) from kept").fetchone() == (0,)


def stop_once_charged(cluster: Cluster) -> threading.Thread:
    def watch() -> None:
        with psycopg.connect(cluster.url, autocommit=True) as other:
            while other.execute("select last_value from dbdp.charge_1").fetchone() == (0,):
                time.sleep(0.01)
        time.sleep(0.3)
        cluster.stop()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_server_that_stops_in_an_epoch_is_reported(private_cluster):
    """Through both interfaces; afterwards the charges are there and the tables are not."""
    for interface in ("server", "client"):
        private_cluster.start()
        with psycopg.connect(private_cluster.url, autocommit=True) as connection:
            fresh_table(connection, interface)
            stopping = stop_once_charged(private_cluster)
            with pytest.raises(
                (psycopg.Error, ChargedError), match=r"or the server was stopped|terminating connection"
            ) as error:
                train(connection, interface, "t", epochs=100_000, batch_size=100)
            stopping.join()
            if interface == "client":
                assert "charge is not refunded" in str(error.value)
        private_cluster.start()
        with psycopg.connect(private_cluster.url, autocommit=True) as connection:
            left = "select count(*) from pg_class where relname like 'dbdp_blocks%'"
            state = connection.execute(f"select last_value, ({left}) from dbdp.charge_1").fetchone()
            assert state == (10**9, 0), interface


def fresh_table(connection: psycopg.Connection, interface: str) -> None:
    """A new extension, table and dataset number 1."""
    connection.execute("drop extension dbdp; create extension dbdp; drop table if exists t")
    connection.execute(
        "create table t as select array_fill(.1::float8, array[50]) x, i % 2 y from generate_series(1, 20000) i"
    )
    declared = '{"x": {"length": 50, "norm": 1}}'
    connection.execute("select dbdp.register_dataset('t', 't', 'y', '1', %s, 9, 0, mode => 'basic')", (declared,))


@pytest.mark.parametrize("url", ["postgresql:///dbdp?host=/nonexistent", "sqlite://", "postgresql+psycopg2://h/d"])
def test_an_absent_server_is_a_connection_error(url):
    with pytest.raises((psycopg.Error, ValueError)):
        connect(url)


def test_the_wrong_shape_is_named_when_predicting(database, dataset):
    fitted = LogisticRegression(epsilon=1.0, algorithm="bolt_on", batch_size=20, progress=False).fit(database, dataset)
    with pytest.raises(ValueError, match=r"X has shape \(2, 2\); it must be \(n, 3\)"):
        fitted.predict([[1, 2], [3, 4]])
