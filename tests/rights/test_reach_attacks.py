"""Reaching for what the server holds beside tables: files, Python, roles, libraries; and for what stops others."""

import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from attacker import DECLARED, REGISTER, TRAIN, Arena, allow, attempt, left_behind, registered
from servers import temporary_cluster

from dbdp.privacy.accounting.budget import CHARGE_UNITS

pytestmark = pytest.mark.security

CLOSED = {
    "a function in Python": "create function pg_temp.f() returns int language plpython3u as $$ return 1 $$",
    "a block in Python": "do language plpython3u $$ GD['x'] = 1 $$",
    "a library": "load '$libdir/plpython3'",
    "a function in C": "create function pg_temp.f() returns int language c as '$libdir/plpython3', 'PLy_spi_execute'",
    "an internal function": "create function pg_temp.f(bytea) returns cstring language internal as 'byteaout'",
    "a file of the server": "select pg_read_file('PG_VERSION')",
    "a file by its bytes": "select pg_read_binary_file('global/pg_control')",
    "the folder of temporary files": "select * from pg_ls_tmpdir()",
    "a folder": "select * from pg_ls_dir('base')",
    "the log": "select * from pg_ls_logdir()",
    "a file's facts": "select * from pg_stat_file('PG_VERSION')",
    "COPY from a file": "copy (select 1) to '/tmp/dbdp_attack'",
    "COPY to a program": "copy (select 1) to program 'cat'",
    "a large object of a file": "select lo_import('/etc/passwd')",
    "a large object to a file": "select lo_export(1, '/tmp/dbdp_attack')",
    "the role that owns the interfaces": "set role dbdp_owner",
    "membership in it": "grant dbdp_owner to current_user",
    "another's session": "set session authorization postgres",
    "default privileges of it": "alter default privileges for role dbdp_owner grant select on tables to public",
    "an event trigger": "create event trigger e on ddl_command_end execute function pg_temp.f()",
    "another function": "create or replace function dbdp.dp_explain() returns int language sql as 'select 1'",
    "the settings of an interface": "alter function dbdp.dp_svm reset all",
    "the extension": "drop extension dbdp",
    "an update of the extension": "alter extension dbdp update",
    "a table in the schema": "create table dbdp.mine (a int)",
    "the odometer": "select setval('dbdp.charge_{id}', 0)",
    "a look at the odometer": "select last_value from dbdp.charge_{id}",
    "the next value of it": "select nextval('dbdp.charge_{id}')",
    "another odometer": "drop sequence dbdp.charge_{id}; create sequence dbdp.charge_{id}",
    "a restart of it": "alter sequence dbdp.charge_{id} restart",
    "the limit": "update dbdp.dataset set charge_limit = 9e15",
    "the ledger": "truncate dbdp.ledger",
    "a lock on a dataset's row": "select from dbdp.dataset for update",
    "a lock on a table of the registry": "begin; lock table dbdp.model in exclusive mode",
    "an index on a table of the registry": "create index on dbdp.dataset (name)",
    "a trigger on the ledger": "create trigger t before insert on dbdp.ledger execute function "
    "suppress_redundant_updates_trigger()",
    "a publication": "create publication p for table dbdp.dataset",
    "a subscription": "create subscription s connection '' publication p",
    "a slot": "select pg_create_logical_replication_slot('s', 'test_decoding')",
    "what other sessions wrote": "select * from pg_logical_slot_peek_changes('s', null, null)",
    "the memory of another backend": "select pg_log_backend_memory_contexts(1)",
    "the secrets of roles": "select rolpassword from pg_authid",
    "a function of the extension no more": "alter extension dbdp drop function dbdp_internal.charge(text, json)",
    "another charge": "create or replace function dbdp_internal.charge(text, json) returns pg_lsn "
    "language sql as 'select null::pg_lsn'",
    "a function in dbdp_internal": "create function dbdp_internal.mine() returns int language sql as 'select 1'",
    "a greater allowance": "update dbdp.allowance set charge_limit = null",
    "an allowance of his own": "insert into dbdp.allowance (dataset_id, role) values (1, session_user)",
    "any model": "insert into dbdp.prediction_grant (model_id, role) values (1, session_user)",
    "writing history": "insert into dbdp.ledger (dataset_id) values (1)",
    "changing a budget": "update dbdp.dataset set epsilon = 99",
    "forging a dataset": "insert into dbdp.dataset (name) values ('z')",
    "forging a model": "insert into dbdp.model (dataset_id) values (1)",
    "deleting a model": "delete from dbdp.model",
    "deleting history": "delete from dbdp.ledger",
    "forging an outcome": "insert into dbdp.outcome (ledger_id, outcome) values (1, 'shown')",
    "changing an outcome": "update dbdp.outcome set outcome = 'failed'",
    "deleting an outcome": "delete from dbdp.outcome",
}
NETWORK = (
    '{{"inputs": 4, "outputs": 1, "intercept": true, "scale": 1, "channels": [], "hidden": []}}'  # to be formatted
)
OF_THE_OWNER = {
    "the rows": "select * from {s}.{name}",
    "the number of rows of the table": "select count(*) from {s}.{name}",
    "the right to train": "select dbdp.grant_training('{name}', session_user)",
    "taking a right away": "select dbdp.revoke_training('{name}', session_user)",
    "packing": "create temporary table b (block_no int8, block bytea); "
    "select dbdp_internal.shuffle('{name}', 'pg_temp.b')",
    "packing a share": "create temporary table c (block_no int8, block bytea); "
    f"""select dbdp_internal.shuffle('{{name}}', 'pg_temp.c', '{{{{"key": "{"00" * 32}", "last": 5}}}}')""",
    "an epoch": "select dbdp_internal.sgd_epoch(null::bytea, null)",
    "a transition": "select dbdp_internal.sgd_transition(null, null, null)",
    "a termination": "select dbdp_internal.sgd_terminate(null)",
    "noisy updates": "select dbdp_internal.noisy_steps(null::bytea, null)",
    "a noisy transition": "select dbdp_internal.noisy_transition(null, null, null)",
    "a noisy termination": "select dbdp_internal.noisy_terminate(null)",
    "a sum of gradients": "select dbdp_internal.gradient_sum(null::bytea, null, null, 1)",
    "the gradients of a block": "select dbdp_internal.gradient_transition(null, null, null, null, 1)",
    "a sum of losses": "select dbdp_internal.loss_sum(null::bytea, null, null, 1)",
    "the losses of a block": "select dbdp_internal.loss_transition(null, null, null, null, 1)",
    "a second moment": "select dbdp_internal.second_moment(null::bytea, 1)",
    "the second moment of a block": "select dbdp_internal.second_moment_transition(null, null, 1)",
    "lengths in other coordinates": "select dbdp_internal.lengths(null, null, null)",
    "a sum in other coordinates": "select dbdp_internal.measured_gradient_sum(null::bytea, null, null, null, 1)",
    "counts of labels": "select dbdp_internal.label_counts(null::bytea, 1, 1)",
    "the labels of a block": "select dbdp_internal.label_transition(null, null, 1, 1)",
    "an exact tally": "select dbdp_internal.tally(null::bytea, null, null)",
    "the tally of a block": "select dbdp_internal.tally_transition(null, null, null, null)",
    "the end of a tally": "select dbdp_internal.tally_terminate(null)",
    "counts of errors": "select dbdp_internal.count_errors(null::bytea, null, 1)",
    "the errors of a block": "select dbdp_internal.count_errors_transition(0, null, null, 1)",
    "the sizes of groups": "select dbdp_internal.group_sizes('{name}', 'y', '{{1}}')",
    "dealing groups": "select dbdp_internal.deal_groups('{name}', 'pg_temp.b', 'y', '{{1}}', '{{30}}')",
    "a charge of his own": "select dbdp_internal.charge('{name}', '{{}}')",
    "a release of his own": "select dbdp_internal.store_release('{name}', '{{1, 2, 3}}', '{{0}}', '{{}}')",
    "a network of his own": f"select dbdp_internal.store_network('{{name}}', '{NETWORK}', "
    "'{{1, 1, 1, 1}}', '{{}}')",
    "a registration": "select dbdp.register_dataset('z', '{s}.{name}', 'y', '1', '{{}}', 1, 0)",
    "closing": "select dbdp.drop_dataset('{name}')",
    "bounds of a column": "select dbdp.dp_bounds('{name}', 'y', 1)",
    "categories of a column": "select * from dbdp.dp_categories('{name}', 'y', 9, 1e-6)",
    "former declarations": "select * from dbdp.former_declaration",
    "an outcome of his own": "select dbdp_internal.record_outcome(1, 'failed')",
    "a check of the ledger": "select dbdp.check_ledger()",
    "a renewal": "select dbdp.renew_budget('{name}', ' ')",
    "a redeclaration": "select dbdp.redeclare('{name}', ' ')",
}


@pytest.mark.parametrize("kind", ["analyst", "stranger", "owner"])
@pytest.mark.attack("odometer", "channels", "languages", "event-triggers", "internal-functions")
def test_what_is_beside_the_tables_is_closed(arena, admin, dataset, kind):
    """To a data owner, too, even with its own dataset's number, but for what is the owner's."""
    [(number,)] = admin.execute("select id from dbdp.dataset where name = %s", (dataset,)).fetchall()
    session = arena.session(kind)
    session.execute("create or replace function pg_temp.f() returns event_trigger language plpgsql as 'begin end'")
    for goal, statement in (CLOSED if kind == "owner" else CLOSED | OF_THE_OWNER).items():
        state = attempt(session, statement.format(id=number, name=dataset, s=arena.names["owner"]))
        session.rollback()
        assert state == "42501", (goal, state)


@pytest.mark.attack("channels")
def test_large_objects_are_the_callers_own(arena, analyst):
    """They hold what their maker wrote: nothing of ours is ever in one."""
    [(number,)] = analyst.execute("select lo_from_bytea(0, 'mine')").fetchall()
    assert attempt(arena.session("colleague"), f"select lo_get({number})") == "42501"
    assert analyst.execute("select count(*) from pg_largeobject_metadata").fetchone() >= (1,)
    analyst.execute(f"select lo_unlink({number})")


@pytest.mark.attack("channels")
def test_a_listener_receives_nothing(arena, analyst, dataset):
    for channel in ("dbdp", dataset, "charge"):
        analyst.execute(f'listen "{channel}"')
    with arena.login("colleague") as other:
        other.execute(TRAIN, (dataset,))
    analyst.execute("select 1")
    assert list(analyst.notifies(timeout=0.2)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the environment of the server")
@pytest.mark.usefixtures("server_machine")
@pytest.mark.attack("languages")
def test_no_environment_variable_reaches_the_server(arena, analyst):
    """A client gives parameters, which are checked by PostgreSQL; its environment stays with it."""
    code = "import psycopg, sys; c = psycopg.connect(sys.argv[1]); print(c.info.backend_pid); sys.stdin.readline()"
    environment = os.environ | {"PYTHONPATH": "/tmp/evil", "DBDP_EVIL": "1", "PGOPTIONS": "-c search_path=evil"}
    with subprocess.Popen(
        [sys.executable, "-c", code, arena.url],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        pid = int(client.stdout.readline())
        assert "evil" not in Path(f"/proc/{pid}/environ").read_text().lower()
        client.communicate("\n")


@pytest.mark.attack("wrapper")
def test_a_wrapper_of_an_analyst_hands_on_nothing(arena, analyst, dataset, spent):
    """A SECURITY DEFINER function lends its owner's right to call an interface, which checks who logged in too.

    The control: its owner may call it.
    """
    body = f"select model from dbdp.dp_logreg('{dataset}', 1, algorithm => 'bolt_on', batch_size => 20)"
    analyst.execute(f"create function lent() returns bigint language sql security definer as $$ {body} $$")
    inner = "create function pg_temp.inner() returns bytea language sql security definer as"
    analyst.execute(f"{inner} 'select dbdp_internal.sgd_terminate(null)'")
    assert attempt(analyst, "select pg_temp.inner()") == "42501"
    assert attempt(arena.session("stranger"), f"select {arena.names['analyst']}.lent()") == "DP001"
    assert spent(dataset) == (0, 0)
    analyst.execute("select lent()")
    assert spent(dataset) == (CHARGE_UNITS, 0)
    analyst.execute("drop function lent()")


@pytest.mark.attack("advisory-locks")
def test_no_advisory_lock_of_anybody_stops_a_charge(arena, admin, analyst, make, spent):
    """Whoever guesses a key may hold it. The charge is under a row's lock, which dbdp_owner alone may take."""
    name = make()
    with arena.login("stranger") as stranger:
        [(number,)] = admin.execute("select id from dbdp.dataset where name = %s", (name,)).fetchall()
        stranger.execute("select pg_advisory_lock(x'64626470'::int, %s), pg_advisory_lock(%s)", (number, number))
        analyst.execute("set lock_timeout = '2s'")
        analyst.execute(TRAIN, (name,))
    assert spent(name) == (CHARGE_UNITS, 0)
    source = Path(__file__).parents[2] / "dbdp"
    taking = {path.stem for path in source.rglob("*.py") if "advisory" in path.read_text(encoding="utf-8")}
    assert taking == {
        *("loading", "public_rows"),  # in the caller's own private server, or as its superuser
        *("advisory_locks", "boundary"),  # those that the caller's session had anyway: it waits for none
    }


@pytest.mark.attack("open-transaction")
def test_open_transaction_after_training_stops_no_other(arena, analyst, dataset, spent):
    """A session that stays in its transaction after a training stops no other."""
    with arena.login("colleague") as other:
        other.execute("begin isolation level repeatable read")
        other.execute(TRAIN, (dataset,))
        analyst.execute("set lock_timeout = '2s'")
        analyst.execute(TRAIN, (dataset,))
        assert attempt(other, TRAIN, dataset) in (None, "40001")
        other.execute("rollback")
    assert spent(dataset)[0] >= 2 * CHARGE_UNITS


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.attack("eight-sessions")
def test_eight_sessions_spend_one_budget_to_the_unit(arena, admin, make, spent, times):
    """Each model that came back was paid for, and the budget is never overdrawn."""
    budget = 4 * times
    name = make(epsilon=budget)
    together = threading.Barrier(8)

    def attack(number: int) -> int:
        with arena.login("analyst" if number % 2 else "colleague") as session:
            came = 0
            together.wait()
            for turn in range(times):
                stop = threading.Timer(0.03 * number, session.cancel) if number % 3 == 0 else None
                if stop:
                    stop.start()
                attempt(session, "begin")
                came += attempt(session, TRAIN, name) is None
                if stop:
                    stop.join()
                attempt(session, "rollback" if turn % 2 else "commit")
                session.rollback()
            return came

    with ThreadPoolExecutor(8) as pool:
        came = sum(pool.map(attack, range(8)))
    assert came * CHARGE_UNITS <= spent(name)[0] <= budget * CHARGE_UNITS
    assert spent(name)[0] % CHARGE_UNITS == 0
    assert left_behind(admin) == []
    sql = """
select (select count(*) from dbdp.models_details where dataset = %s), coalesce(sum(l.charge), 0)
from dbdp.ledger as l join dbdp.dataset as d on d.id = l.dataset_id where d.name = %s"""
    models, recorded = admin.execute(sql, (name, name)).fetchone()
    assert models * CHARGE_UNITS <= recorded <= spent(name)[0]


@pytest.mark.attack("connection-limit")
def test_connection_limit_refuses_shards_uncharged(arena, admin, owner, dataset, spent):
    """A connection limit refuses parallel training before its charge."""
    from dbdp.algorithms import Request
    from dbdp.interfaces.python.client.connecting import connect

    role = arena.names["owner"]
    admin.execute(f"alter role {role} connection limit 2")
    try:
        with arena.login("owner") as client, pytest.raises(ValueError, match="further connections, and one failed"):
            connect(client).train(dataset, Request(epsilon=1.0, algorithm="bolt_on", batch_size=10, shards=4))
    finally:
        admin.execute(f"alter role {role} connection limit -1")
    assert spent(dataset) == (0, 0)


def blocks_on_disk(home: Path) -> list[Path]:
    """Files of temporary tables, and temporary files."""
    data = home / "data" / "base"
    return [path for path in data.rglob("*") if re.match(r"t\d+_\d+", path.name) or "pgsql_tmp" in str(path.parent)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may kill the server's processes")
@pytest.mark.attack("kill")
def test_kill_removes_packed_rows_and_keeps_the_charge():
    """Of the backend, then of the whole server: packed rows are gone from the disk, and the charge is not."""
    with temporary_cluster() as cluster:
        arena = Arena(cluster.url, "kill")
        name = registered(arena)
        owner = arena.session("owner")
        owner.execute(f"insert into {name} select t.* from {name} as t, generate_series(1, 1000)")
        owner.execute("select dbdp.drop_dataset(%s)", (name,))
        owner.execute(REGISTER, (name, f"{arena.names['owner']}.{name}", DECLARED, 9))
        allow(owner, name, arena.names["analyst"])
        [(number,)] = owner.execute("select max(id) from dbdp.own_datasets").fetchall()
        for charges in (1, 2):
            with ThreadPoolExecutor(1) as pool, arena.login("analyst") as analyst:
                analyst.execute("set temp_buffers = '800kB'; set dbdp.pack_memory = '1MB'")
                training = pool.submit(
                    attempt, analyst, "select dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', epochs => 50000)", name
                )
                while not blocks_on_disk(cluster.home) and not training.done():
                    time.sleep(0.02)
                time.sleep(1.5)  # by then the charge is on disk, which a release would have waited for
                assert not training.done()
                for pid in [cluster.status()["pid"]] * (charges - 1) + [analyst.info.backend_pid]:
                    os.kill(int(pid), 9)
                training.result()
            if charges == 2:
                cluster.start()
            looks = f"select last_value, (select count(*) from dbdp.model) from dbdp.charge_{number}"
            assert after_recovery(arena, looks) == (charges * CHARGE_UNITS, 0)
            gone_by = time.monotonic() + 60  # a busy server may answer before it has noticed that a backend died
            while blocks_on_disk(cluster.home) and time.monotonic() < gone_by:
                time.sleep(0.1)
            assert blocks_on_disk(cluster.home) == []


def after_recovery(arena: Arena, sql: str) -> tuple:
    """The row of a query, once the server is back."""
    for _ in range(400):
        try:
            with arena.admin() as admin:
                return admin.execute(sql).fetchone()
        except psycopg.OperationalError:
            time.sleep(0.05)
    raise AssertionError("the server did not come back")
