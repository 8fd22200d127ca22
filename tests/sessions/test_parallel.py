"""Threads of a backend: the same bits for any number of them, no signal, a cancel, and how many they are."""

import json
import threading
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest

from dbdp.sessions.inside import parallel

NEVER = patch.object(parallel, "_is_interrupted", lambda: False)
ROWS = 400_000  # 12.2 MiB when packed: more than one thread's task
FILL = """
create table {0} as
select array[sin(i), cos(i * 7), sin(i * 11)] as x, (i % 3 = 0)::int * 2 - 1 as y from generate_series(1, {1}) as i"""


class Silent:
    """A session that has these settings, and counts its pauses."""

    def __init__(self, threads: str | None = None, workers: int = 2) -> None:
        self.settings, self.pauses = {"threads": threads, "workers": workers}, 0

    def query(self, _sql):
        return [self.settings]

    def pause(self):
        self.pauses += 1


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_results_come_in_the_order_of_the_tasks(threads, count):
    with NEVER, patch.object(parallel, "cores", lambda: 16):
        assert parallel.each(Silent(str(threads)), str, range(count)) == [*map(str, range(count))]


def test_several_tasks_run_at_once():
    """Each waits for the other; with one thread they would wait forever."""
    both = threading.Barrier(2, timeout=60)
    with NEVER, patch.object(parallel, "cores", lambda: 2):
        assert sorted(parallel.each(Silent("2"), lambda _: both.wait(), range(2))) == [0, 1]


def test_an_error_in_a_thread_is_raised_once_all_have_ended():
    ended = []

    def task(number):
        if number == 1:
            raise ValueError("one")
        ended.append(number)

    with NEVER, patch.object(parallel, "cores", lambda: 4), pytest.raises(ValueError, match="one"):
        parallel.each(Silent("4"), task, range(4))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]


def test_the_server_is_heard_while_no_thread_runs():
    """Every look says that something is to be handled: all tasks are done all the same, between pauses."""
    running, seen = set(), []

    class Watched(Silent):
        def pause(self):
            seen.append(set(running))

    def task(number):
        running.add(number)
        threading.Event().wait(0.05)
        running.discard(number)
        return number

    with patch.object(parallel, "_is_interrupted", lambda: True), patch.object(parallel, "cores", lambda: 2):
        assert parallel.each(Watched("2"), task, range(8)) == list(range(8))
    assert len(seen) > 1
    assert not set().union(*seen)


def test_threads_block_every_signal():
    def blocked(_number):
        lines = Path("/proc/thread-self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("SigBlk")).split()[1], 16)

    with NEVER, patch.object(parallel, "cores", lambda: 2):
        masks = parallel.each(Silent("2"), blocked, range(2))
    for mask in masks:  # but 9 and 19, which nothing blocks, and 32 and 33, which the C library keeps for itself
        assert {bit + 1 for bit in range(64) if not mask >> bit & 1} <= {9, 19, 32, 33, 34}
    assert blocked(0) not in masks  # the control: this thread


@pytest.mark.parametrize(
    ("setting", "workers", "cores", "expected"),
    [(None, 2, 8, 3), ("", 0, 8, 1), ("5", 2, 8, 5), ("5", 2, 4, 4), (None, 1024, 8, 8), ("256", 0, 300, 256)],
)
def test_the_number_of_threads_is_that_of_settings_and_cores(setting, workers, cores, expected):
    with patch.object(parallel, "cores", lambda: cores):
        assert parallel.threads_of(Silent(setting, workers)) == expected


@pytest.mark.parametrize("setting", ["0", "257", "-1", "two", "1.5", " 2", "99999"])
def test_another_setting_is_refused_before_the_charge(connection, schema, register, setting):
    """And the remedy works."""
    connection.execute("create table t as select array[.1, .2, .3]::float8[] as x, 1 as y from generate_series(1, 50)")
    name, sql = register("t"), "select from dbdp.dp_logreg(%s, 1)"
    spent = "select count(*) from dbdp.history_details where dataset = %s"
    connection.execute("select set_config('dbdp.threads', %s, false)", (setting,))
    with pytest.raises(psycopg.Error, match="must be a whole number from 1 to 256, such as '4'"):
        connection.execute(sql, (name,))
    assert connection.execute(spent, (name,)).fetchone() == (0,)
    connection.execute("set dbdp.threads = '4'")
    connection.execute(sql, (name,))


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"a/b": "150000 100000", "a": "max 100000"}, 1.5),
        ({"a/b": "max 100000", "a": "50000 100000"}, 0.5),
        ({"a/b": "max 100000"}, float("inf")),
        ({}, float("inf")),
    ],
)
def test_a_control_group_limits_the_cores(tmp_path, files, most):
    for folder, text in files.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "cpu.max").write_text(text + "\n")
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    with patch.object(parallel, "_GROUPS", tmp_path), patch.object(parallel, "_OWN_GROUP", own):
        assert parallel._quota() == most


@pytest.fixture
def packed(connection, schema, register):
    """A temporary table that refers to packed rows, in several tasks."""
    connection.execute(FILL.format("many", ROWS))
    name = register("many")
    connection.execute("create temporary table held (block_no int8, block bytea)")
    connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.held', %s)", (name, json.dumps({"held": True})))
    yield
    connection.execute("select dbdp_internal.forget_blocks('pg_temp.held'); drop table held")


LOSS = '{"kind": "linear", "loss": 1, "settings": [0, 1], "inputs": 4, "outputs": 1, "target": 0}'
CALLS = {
    "a second moment": "dbdp_internal.second_moment(block, 4)",
    "gradients": f"dbdp_internal.gradient_sum(block, '\\x{'00' * 32}', '{LOSS}', .3)",
    "losses": f"dbdp_internal.loss_sum(block, '\\x{'3f' * 32}', '{LOSS}', 9)",
    "labels": "dbdp_internal.label_counts(block, 4, 1)",
    "errors": f"dbdp_internal.count_errors(block, '\\x{'3f' * 32}', 1)",
}


@pytest.mark.parametrize("call", CALLS)
def test_no_bit_depends_on_the_number_of_threads(connection, packed, call):
    found = []
    for threads in (1, 2, 2, 1):
        connection.execute(f"set dbdp.threads = '{threads}'")
        found.append(connection.execute(f"select {CALLS[call]} from held").fetchone())
    assert found == found[:1] * 4
    nothing = connection.execute(f"select {CALLS[call]} from held where block_no < 0").fetchone()
    assert nothing != found[0]  # the control


def test_a_cancel_ends_the_threads_and_leaves_the_session(connection, packed):
    """The call would take seconds: 400,000 rows at 4,000 candidates, a task .25."""
    connection.execute("set dbdp.threads = '2'; set statement_timeout = 300")
    call = f"dbdp_internal.loss_sum(block, decode(repeat('3f', 32 * 4000), 'hex'), '{LOSS}', 9)"
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(f"select {call} from held")
    connection.execute("reset statement_timeout")
    assert connection.execute(f"select {CALLS['labels']} from held").fetchone()
    threads = "select count(*) from pg_ls_dir(format('/proc/%s/task', pg_backend_pid()))"
    while connection.execute(threads).fetchone() != (1,):  # one that has ended may still be listed for a moment
        pass
