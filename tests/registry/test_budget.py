"""The budget is charged before the first read, stays charged whatever happens next, and is never overspent."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import psycopg
import pytest
from pairs import others_slow
from servers import stopping_once_charged
from short import FEW

from dbdp.algorithms import PERTURBED_ONCE, Facts, Request, plan
from dbdp.algorithms.rows import Progress, silent
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.estimators.linear import LogisticRegression
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, Budget

TRAIN = (
    "select model from dbdp.dp_logreg(%s, epsilon => %s, delta => %s, "
    "algorithm => 'bolt_on', epochs => 1, batch_size => 20)"
)
EVERY_INTERFACE = pytest.mark.parametrize("interface", ["server", "client"])
BUDGETS = {
    "basic": Budget.of(epsilon=3.0, delta=3e-6, mode="basic"),
    "renyi": Budget.of(epsilon=3.0, delta=3e-6, mode="renyi"),
}


def cost(budget: Budget, epsilon: float, delta: float) -> tuple[int, int]:
    """Return the charge of one release on the table, as the accountant computes it."""
    request = Request(epsilon=epsilon, delta=delta, algorithm="bolt_on", epochs=1, batch_size=20)
    return budget.cost(plan(request, Facts(60, 4)).mechanism.guarantee)


def fit(database: Database, name: str, epsilon: float, delta: float) -> None:
    LogisticRegression(epsilon=epsilon, delta=delta, algorithm="bolt_on", epochs=1, batch_size=20, progress=False).fit(
        database, name
    )


def ledger(connection: psycopg.Connection, name: str) -> list[tuple]:
    sql = """
select l.charge, l.leak, l.epsilon, l.delta, l.algorithm, l.charged_by from dbdp.ledger as l
join dbdp.dataset as d on d.id = dataset_id where d.name = %s order by l.id"""
    return connection.execute(sql, (name,)).fetchall()


@pytest.mark.parametrize("interface", ["server", "client"])
@pytest.mark.parametrize("mode", BUDGETS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (0.5, 1e-7)])
def test_a_release_is_charged_as_the_accountant_computes(
    connection, database, table, register, spent, mode, epsilon, delta, interface
):
    name = register(table, epsilon=3.0, delta=3e-6, mode=mode)
    for count in (1, 2):
        if interface == "server":
            connection.execute(TRAIN, (name, epsilon, delta))
        else:
            fit(database, name, epsilon, delta)
        expected = cost(BUDGETS[mode], epsilon, delta)
        assert spent(name) == (count * expected[0], count * expected[1])
    assert ledger(connection, name) == [(*expected, epsilon, delta, "bolt_on", "postgres")] * 2
    receipt = connection.execute(
        "select receipt from dbdp.models_details where dataset = %s limit 1", (name,)
    ).fetchone()[0]
    assert receipt["charge"] == expected[0] / CHARGE_UNITS
    assert receipt["leak"] == expected[1] / LEAK_UNITS
    assert (receipt["mode"], receipt["order"]) == (mode, BUDGETS[mode].order)


def test_the_table_of_charges_is_that_of_the_law():
    """privacy.md §13: a Gaussian costs αΔ²/2σ² at the fixed order, a pure release its ε in mode basic."""
    guarantee = plan(
        Request(epsilon=0.5, delta=1e-7, algorithm="bolt_on", batch_size=20), Facts(60, 4)
    ).mechanism.guarantee
    renyi = BUDGETS["renyi"]
    exact = renyi.order / (2 * guarantee.event.noise_multiplier**2)
    assert renyi.cost(guarantee) == (math.ceil(exact * (1 + 1e-12) * CHARGE_UNITS), 0)
    assert cost(BUDGETS["basic"], 0.5, 0.0) == (500_000_000, 0)
    assert cost(BUDGETS["basic"], 0.5, 1e-7) == (500_000_000, 100_000_000_000)


def test_releases_of_one_statement_are_charged_each(connection, table, register, spent):
    name = register(table)
    sql = f"select dbdp.dp_logreg('{name}', 1, algorithm => 'bolt_on', batch_size => 20) from generate_series(1, 3)"
    assert len(connection.execute(sql).fetchall()) == 3
    assert spent(name) == (3 * CHARGE_UNITS, 0)


@contextmanager
def whenever_a_table_is_created(connection: psycopg.Connection, schema: str, action: str) -> Iterator[None]:
    """Run a PL/pgSQL statement at each CREATE TABLE: in training that is after the charge, before the first row."""
    connection.execute(f"""
create function {schema}.act() returns event_trigger language plpgsql security definer as $$ begin {action}; end $$;
create event trigger act_{schema} on ddl_command_end when tag in ('CREATE TABLE') execute function {schema}.act()""")
    try:
        yield
    finally:
        connection.execute(f"drop event trigger act_{schema}")


def by(
    connection: psycopg.Connection,
    interface: str,
    name: str,
    algorithm: str,
    progress: Progress = silent,
    **options: object,
) -> None:
    """Train with ε = 1 through an interface; with δ = 1e-6 where noise is added while training."""
    arguments = {"epsilon": 1.0, "delta": 0.0 if algorithm in PERTURBED_ONCE else 1e-6, "algorithm": algorithm}
    arguments |= options or FEW.get(algorithm, {"epochs": 1})
    if interface == "client":
        connect(connection).train(name, Request(**arguments), progress)
    else:
        named = ", ".join(f"{each} => %({each})s" for each in arguments)
        connection.execute(f"select model from dbdp.dp_train(%(name)s, {named})", arguments | {"name": name})


def left_behind(connection: psycopg.Connection) -> list[tuple]:
    return connection.execute("select relname from pg_class where relpersistence = 't' and relname ~ 'dbdp'").fetchall()


@EVERY_INTERFACE
def test_the_charge_is_made_before_there_is_a_place_for_the_rows(connection, schema, table, register, interface):
    name = register(table)
    with whenever_a_table_is_created(connection, schema, visible_charge(connection, schema, name)):
        by(connection, interface, name, "bolt_on")
    assert connection.execute(f"select last_value from {schema}.seen").fetchone() == (CHARGE_UNITS,)


def visible_charge(connection: psycopg.Connection, schema: str, name: str) -> str:
    """A statement that notes a dataset's odometer in a sequence, which no failure undoes."""
    number = connection.execute("select id from dbdp.dataset where name = %s", (name,)).fetchone()[0]
    connection.execute(f"create sequence {schema}.seen minvalue 0")
    return f"perform setval('{schema}.seen', (select last_value from dbdp.charge_{number}))"


LASTING: dict[str, dict[str, object]] = {  # what takes seconds; rrpsgd may stop at once, and a count is short
    **{name: {"epochs": 100_000, "batch_size": 20} for name in ("scs13", "bst14", "dp_sgd", "dp_adam", "sgd_adv")},
    **{name: {"settings": '{"planned_steps": 20000}'} for name in ("dp_blsgd", "dp_blgd", "dp_blsgd_ac")},
    "dp_agd": {"settings": '{"splits": 10000}'},
    "preconditioned_gd": {"settings": '{"passes": 1000}'},
    "objective_perturbation": {"epsilon": 18.0, "regularisation": 5.7e-6},
    "privgene": {"settings": '{"generations": 5000}'},
}


@pytest.mark.parametrize("algorithm", others_slow(list(LASTING), *list(LASTING)[::3]))
def test_cancelled_training_keeps_charge_leaves_no_table(connection, server_url, table, register, spent, algorithm):
    """In the server, where all of the training is one statement."""
    connection.execute(f"insert into {table} select t.* from t, generate_series(1, 499)")
    name = register(table)
    stopped = pytest.raises(psycopg.Error, match=r"the charge is not refunded: it was cancelled")
    with stopped, stopping_once_charged(server_url, connection.info.backend_pid, name):
        by(connection, "server", name, algorithm, **LASTING[algorithm])
    assert spent(name)[0] == LASTING[algorithm].get("epsilon", 1) * CHARGE_UNITS
    assert connection.execute("select count(*) from dbdp.models_details where dataset = %s", (name,)).fetchone() == (0,)
    assert left_behind(connection) == []


@pytest.mark.parametrize("interface", ["server", "client"])
@pytest.mark.parametrize("mode", BUDGETS)
def test_the_limit_is_reached_and_not_passed(connection, database, table, register, spent, mode, interface):
    """Releases of half the budget's charge: the second fills the odometer to the unit, the third is refused."""
    half = 1.5 if mode == "basic" else pure_of_charge(BUDGETS["renyi"], BUDGETS["renyi"].charge_limit // 2)
    name = register(table, epsilon=3.0, delta=3e-6, mode=mode)
    act = (
        (lambda e: connection.execute(TRAIN, (name, e, 0.0)))
        if interface == "server"
        else (lambda e: fit(database, name, e, 0.0))
    )
    act(half)
    act(half)
    limit, before = BUDGETS[mode].charge_limit, spent(name)
    assert limit - 1 <= before[0] <= limit
    with pytest.raises(
        psycopg.Error, match=r"the budget of dataset .* does not cover this release: it needs \S+ %, and \S+ % is left"
    ):
        act(half)
    smallest = 2e-9 if mode == "basic" else 1e-4
    with pytest.raises(psycopg.Error, match="does not cover this release"):
        act(smallest)
    assert spent(name) == before
    assert len(ledger(connection, name)) == 2


def pure_of_charge(budget: Budget, charge: int) -> float:
    """The largest ε whose release costs at most `charge`."""
    low, high = 0.0, budget.epsilon
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(budget, middle, 0.0)[0] <= charge else (low, middle)
    return low


@pytest.mark.parametrize(
    ("epsilon", "delta", "fits"), [(3.0, 3e-6, True), (3.000001, 0.0, False), (0.1, 3.1e-6, False)]
)
def test_one_release_may_spend_all_of_the_budget_and_no_more(connection, table, register, spent, epsilon, delta, fits):
    name = register(table, epsilon=3.0, delta=3e-6)
    if fits:
        connection.execute(TRAIN, (name, epsilon, delta))
        assert spent(name) == (3 * CHARGE_UNITS, 3 * LEAK_UNITS // 10**6)
    else:
        with pytest.raises(psycopg.Error, match=r"does not cover this release: it needs \S+ %.*, and 100 % is left"):
            connection.execute(TRAIN, (name, epsilon, delta))
        assert spent(name) == (0, 0)


def test_explaining_spends_and_writes_nothing(connection, database, table, register, spent):
    name = register(table)
    explained = connection.execute(
        "select dbdp.dp_explain(%s, 1, 1e-6, algorithm => 'bolt_on', batch_size => 20)", (name,)
    ).fetchone()[0]
    assert explained == database.explain(name, Request(epsilon=1.0, delta=1e-6, algorithm="bolt_on", batch_size=20))
    assert explained["charge"] > 0
    assert spent(name) == (0, 0)
    assert ledger(connection, name) == []


def test_other_datasets_are_not_charged(connection, table, register, spent):
    connection.execute("create table other as select * from t")
    names = register(table), register("other")
    connection.execute(TRAIN, (names[0], 1.0, 0.0))
    assert [spent(name) for name in names] == [(CHARGE_UNITS, 0), (0, 0)]


@pytest.fixture
def idle_server(connection: psycopg.Connection) -> Iterator[None]:
    """The WAL writer as it is by default; the tests' own server has a faster one."""
    connection.execute("alter system reset wal_writer_delay")
    connection.execute("select pg_reload_conf()")
    yield
    connection.execute("alter system set wal_writer_delay = '10ms'")
    connection.execute("select pg_reload_conf()")


@pytest.mark.usefixtures("idle_server")
@pytest.mark.parametrize("interface", ["server", "client"])
@pytest.mark.parametrize("synchronous", ["on", "off"])
def test_the_charge_is_on_disk_when_the_release_is_shown(connection, database, table, register, synchronous, interface):
    """On an idle server; within a transaction that has not committed."""
    name = register(table)
    connection.execute(f"set synchronous_commit = {synchronous}")
    connection.execute("checkpoint")
    with connection.transaction(force_rollback=True):
        position = connection.execute("select pg_current_wal_insert_lsn()").fetchone()[0]
        if interface == "server":
            connection.execute(TRAIN, (name, 1.0, 0.0))
        else:
            fit(database, name, 1.0, 0.0)
        flushed = "select pg_current_wal_flush_lsn() > %s::pg_lsn"
        assert connection.execute(flushed, (position,)).fetchone() == (True,)


def test_noise_is_fresh_in_each_release(connection, table, register):
    name = register(table)
    for _ in range(2):
        connection.execute("select setseed(0.5)")
        connection.execute(TRAIN, (name, 1.0, 0.0))
    models = connection.execute("select coefficients from dbdp.models_details where dataset = %s", (name,)).fetchall()
    assert not np.array_equal(models[0], models[1])
