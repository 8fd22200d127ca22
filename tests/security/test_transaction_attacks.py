"""Undoing a charge: whatever ends a transaction, what was spent stays spent, and no model is had for nothing."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from attacker import DECLARED, REGISTER, ROWS, TRAIN, Arena, attempt, left_behind, registered

from dbdp.privacy.accounting.budget import CHARGE_UNITS

pytestmark = pytest.mark.security
Spent = Callable[[str], tuple[int, int]]

CALL = "dbdp.dp_logreg('{name}', 1, algorithm => 'bolt_on', batch_size => 20, epochs => 2)"
UNDONE = {  # statements, and how many trainings they start; {call} trains
    "ROLLBACK": ("begin; select model from {call}; rollback", 1),
    "ROLLBACK AND CHAIN": (
        "begin; select model from {call}; rollback and chain; select model from {call}; rollback",
        2,
    ),
    "COMMIT AND CHAIN, then ROLLBACK": ("begin; commit and chain; select model from {call}; rollback", 1),
    "ROLLBACK TO SAVEPOINT": ("begin; savepoint a; select model from {call}; rollback to a; commit", 1),
    "nested savepoints": (
        "begin; savepoint a; savepoint b; select model from {call}; release b; rollback to a; select {call}; rollback",
        2,
    ),
    "an exception that PL/pgSQL catches": (
        "do $$ begin perform model from {call}; raise exception 'undo'; exception when others then null; end $$",
        1,
    ),
    "a subtransaction in a subtransaction": (
        "do $$ begin begin perform model from {call}; perform 1 / 0; exception when others then null; end; "
        "raise exception 'undo'; exception when others then null; end $$",
        1,
    ),
    "a division by zero in the same statement": ("select 1 / (model - model) from {call}", 1),
    "a cursor WITH HOLD": ("begin; declare c cursor with hold for select model from {call}; fetch c; rollback", 1),
    "a cursor that is never read": ("begin; declare c cursor for select model from {call}; commit", 0),
    "a statement that is prepared and not run": ("prepare p as select model from {call}", 0),
    "a statement that is prepared and run": ("prepare p as select model from {call}; begin; execute p; rollback", 1),
    "EXPLAIN": ("explain select model from {call}", 0),
    "EXPLAIN ANALYZE": ("begin; explain analyze select model from {call}; rollback", 1),
    "a trigger": (
        "create temporary table bait (a int); create function pg_temp.f() returns trigger language plpgsql as "
        "$$ begin perform model from {call}; return null; end $$; create trigger t before insert on bait for each row "
        "execute function pg_temp.f(); begin; insert into bait values (1), (2); rollback",
        2,
    ),
    "a column's default": (
        "create function pg_temp.f() returns bigint language sql as $$ select model from {call} $$; "
        "create temporary table bait (a int, m bigint default pg_temp.f()); "
        "begin; insert into bait values (1); rollback",
        1,
    ),
    "repeatable read": ("begin isolation level repeatable read; select model from {call}; rollback", 1),
    "a serializable transaction, which is refused": ("begin isolation level serializable; select {call}; rollback", 0),
    "a deferred trigger": (
        "create temporary table bait (a int); create function pg_temp.f() returns trigger language plpgsql as "
        "$$ begin perform model from {call}; return null; end $$; create constraint trigger t after insert on bait "
        "deferrable initially deferred for each row execute function pg_temp.f(); insert into bait values (1)",
        1,
    ),
}


@pytest.mark.parametrize("way", UNDONE)
@pytest.mark.attack("rollback")
def test_no_end_of_a_transaction_refunds_a_charge(analyst, dataset, spent, way):
    statements, trainings = UNDONE[way]
    attempt(analyst, statements.replace("{call}", CALL.format(name=dataset)))
    analyst.rollback()
    assert spent(dataset) == (trainings * CHARGE_UNITS, 0)


@pytest.mark.attack("rollback")
def test_an_ordinary_row_would_have_been_rolled_back(analyst):
    """The attacks above work on a counter in a table."""
    analyst.execute("create temporary table counter as select 0 as spent")
    for statements, _ in UNDONE.values():
        if statements.startswith("begin") and "commit" not in statements and "explain" not in statements:
            attempt(analyst, statements.replace("select model from {call}", "update counter set spent = 1"))
            analyst.rollback()
    assert analyst.execute("select spent from counter").fetchone() == (0,)


@pytest.mark.slow
@pytest.mark.attack("prepared-charge")
def test_a_prepared_transaction_refunds_no_charge(watched):
    """Training makes temporary tables, with which no transaction is prepared; a mere charge stays, too."""
    name = registered(watched)
    analyst, owner = watched.session("analyst"), watched.session("owner")
    analyst.execute("begin")
    analyst.execute(TRAIN, (name,))
    assert attempt(analyst, "prepare transaction 'spent'") == "0A000"
    analyst.rollback()
    plan = (
        '{"algorithm": "bolt_on", "guarantee": {"epsilon": 1, "delta": 0, "event": {"event": "ZCDpEvent", "rho": 1}}}'
    )
    owner.execute("begin")
    owner.execute("select dbdp_internal.charge(%s, %s)", (name, plan))
    owner.execute("prepare transaction 'charged'")
    with watched.admin() as admin:
        number = admin.execute("select id from dbdp.dataset where name = %s", (name,)).fetchone()[0]
        assert admin.execute("select gid from pg_prepared_xacts").fetchall() == [("charged",)]
        analyst.execute(TRAIN, (name,))  # it holds nobody up
        admin.execute("rollback prepared 'charged'")
        assert admin.execute(f"select last_value from dbdp.charge_{number}").fetchone() == (3 * CHARGE_UNITS,)


@pytest.mark.slow
@pytest.mark.attack("prepared-registration")
def test_prepared_registration_is_none_until_it_commits(watched):
    """A registration in a prepared transaction is none until it commits."""
    owner, rival = watched.session("owner"), watched.session("rival")
    owner.execute(f"create table halfway as {ROWS}; create table other as {ROWS}")
    owner.execute("begin")
    owner.execute(REGISTER, ("halfway", f"{watched.names['owner']}.halfway", DECLARED, 9))
    owner.execute("prepare transaction 'halfway'")
    assert attempt(rival, TRAIN, "halfway") == "DP001"
    assert attempt(owner, TRAIN, "halfway") == "DP001"
    owner.execute(REGISTER, ("other", f"{watched.names['owner']}.other", DECLARED, 9))  # it holds up no other
    owner.execute("commit prepared 'halfway'")
    owner.execute(TRAIN, ("halfway",))


@pytest.mark.attack("re-registration")
def test_dataset_its_transaction_can_undo_is_not_trained_on(arena, owner, dataset, spent):
    """Drop, register afresh, train, roll back: the old odometer would know of nothing."""
    source = f"{arena.names['owner']}.{dataset}"
    with owner.transaction(force_rollback=True):
        owner.execute("select dbdp.drop_dataset(%s)", (dataset,))
        owner.execute(REGISTER, (dataset, source, DECLARED, 1000))
        assert attempt(owner, TRAIN, dataset) == "DP001"
    assert spent(dataset) == (0, 0)


class Account:
    """What an analyst holds against what was charged."""

    def __init__(self, admin: psycopg.Connection, name: str) -> None:
        self._admin, self._name = admin, name

    def check(self, spent: Spent) -> int:
        """Return the number of charges; every stored model is among them, and nothing lies about."""
        sql = "select count(*) from dbdp.{} as a join dbdp.dataset as d on d.id = a.dataset_id where d.name = %s"
        models, rows = (self._admin.execute(sql.format(t), (self._name,)).fetchone()[0] for t in ("model", "ledger"))
        charges, left = divmod(spent(self._name)[0], CHARGE_UNITS)
        assert left == 0
        assert models <= rows <= charges
        assert left_behind(self._admin) == []
        half = "select count(*) from dbdp.models_details where dataset = %s and receipt ->> 'version' is null"
        assert self._admin.execute(half, (self._name,)).fetchone() == (0,)
        return charges


def interrupted(arena: Arena, name: str, times: int, how: str) -> int:
    """Train so often, each time stopped at a moment of chance; return how many models came back."""
    came, session = 0, arena.login("analyst")
    session.execute(TRAIN, (name,))
    longest = 0.06
    for _ in range(times):
        if how == "statement_timeout":
            session.execute(f"set statement_timeout = {random.randint(1, int(longest * 1000))}")
            stop = None
        else:
            stop = threading.Timer(random.uniform(0, longest), session.cancel)
            stop.start()
        state = attempt(session, TRAIN, name)
        assert state in (None, "57014"), state
        came += state is None
        if stop:
            stop.join()
            attempt(session, "select 1")  # a cancel that came too late
    session.close()
    return came + 1


@pytest.mark.parametrize("how", ["cancel", "statement_timeout"])
@pytest.mark.parametrize("times", [25, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.attack("stop")
def test_stop_at_any_moment_leaves_nothing_uncharged(arena, admin, dataset, spent, times, how):
    """A stop at any moment leaves no model without a charge and nothing behind."""
    came = interrupted(arena, dataset, times, how)
    charges = Account(admin, dataset).check(spent)
    assert came <= charges <= times + 1
    assert came < times + 1  # some were stopped


@pytest.mark.attack("own-kill")
def test_role_stopping_its_own_training_gains_nothing(arena, admin, dataset, spent):
    """The same role stops its training from another session and gains nothing."""
    attacker = arena.session("analyst")
    long = "select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', batch_size => 20, epochs => 100000)"
    for number, function in enumerate(("pg_cancel_backend", "pg_terminate_backend")):
        with arena.login("analyst") as victim, ThreadPoolExecutor(1) as pool:
            training = pool.submit(attempt, victim, long, dataset)
            while spent(dataset)[0] == number * CHARGE_UNITS:
                time.sleep(0.01)
            attacker.execute(f"select {function}(%s)", (victim.info.backend_pid,))
            assert training.result() in ("57014", "57P01")
        assert Account(admin, dataset).check(spent) == number + 1
    assert admin.execute("select count(*) from dbdp.models_details where dataset = %s", (dataset,)).fetchone() == (0,)
