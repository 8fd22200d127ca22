"""Threads of a backend: independent parts of a computation, each on a core.

A thread calls nothing of PostgreSQL, and blocks all signals, so that no handler of the server's runs in it. No result
depends on how many threads there are: the parts are of public sizes, and the caller adds them up in their order.
"""

import ctypes
import math
import os
import re
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from dbdp.learning.compiled.arithmetic import flushing
from dbdp.sessions.inside.backend import backend
from dbdp.sessions.server import SpiSession

MOST_THREADS = 256
_SETTINGS = """
select pg_catalog.current_setting('dbdp.threads', true) as threads,
       pg_catalog.current_setting('max_parallel_workers_per_gather')::pg_catalog.int4 as workers
"""
_LOOK = 0.02  # seconds between two looks for a cancel
_GROUPS, _OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
Given = TypeVar("Given")
Result = TypeVar("Result")


def each(session: SpiSession, task: Callable[[Given], Result], given: Sequence[Given]) -> list[Result]:
    """Return a task's result for each of what is given, computed by `threads_of` a session at once.

    A cancel takes effect between two tasks of a thread: all threads end before PostgreSQL handles it, so that none
    computes while the process may end. Numbers below 2⁻¹⁰²² count as 0 in every task.
    """
    threads = min(len(given), threads_of(session)) if len(given) > 1 else 1
    results: dict[int, Result] = {}
    left = deque(enumerate(given))
    while left:
        if threads == 1:
            number, own = left.popleft()
            with flushing():
                results[number] = task(own)
        else:
            _run(task, left, results, threads)
        session.pause()
    return [results[number] for number in range(len(given))]


def _run(
    task: Callable[[Given], Result], left: deque[tuple[int, Given]], results: dict[int, Result], threads: int
) -> None:
    """Do the tasks that are left, until PostgreSQL has something to handle."""
    stopped = False

    def work() -> None:
        with flushing():
            while left and not stopped:
                try:
                    number, own = left.popleft()
                except IndexError:  # another thread took the last one
                    return
                results[number] = task(own)

    with ThreadPoolExecutor(threads) as pool:
        with _signals_blocked():
            running: list[Future[None]] = [pool.submit(work) for _ in range(threads)]
        try:
            while wait(running, _LOOK).not_done:
                stopped = stopped or _is_interrupted()
        finally:
            stopped = True
    for thread in running:
        thread.result()


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block all signals of threads that start in the block, which have the mask of this one."""
    former = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _is_interrupted() -> bool:
    """Return whether the server wants this process to handle something, such as a cancel."""
    return bool(ctypes.c_int.in_dll(backend(), "InterruptPending").value)


def threads_of(session: SpiSession) -> int:
    """Return how many threads a session's computations have, from settings and the machine.

    That is the setting `dbdp.threads`, by default as many processes as one query may have, but at most one for each
    core. Raise ValueError for a setting that is no such number.
    """
    [settings] = session.query(_SETTINGS)
    given = settings["threads"] or str(settings["workers"] + 1)
    if not re.fullmatch(r"[1-9]\d{0,3}", given) or (settings["threads"] and int(given) > MOST_THREADS):
        raise ValueError(f"dbdp.threads = {given!r} must be a whole number from 1 to {MOST_THREADS}, such as '4'")
    return min(int(given), cores())


@cache
def cores() -> int:
    """Return how many cores this process may use, by its affinity and its control group."""
    return math.ceil(min(len(os.sched_getaffinity(0)), _quota()))


def _quota() -> float:
    """Return how many cores' time the control groups of this process allow; infinity without a limit."""
    try:
        group = _OWN_GROUP.read_text(encoding="ascii").rpartition("0::/")[2].strip()
        limits = [folder / "cpu.max" for folder in (_GROUPS / group, *(_GROUPS / group).parents)]
        shares = [limit.read_text(encoding="ascii").split() for limit in limits if limit.is_file()]
    except (OSError, UnicodeDecodeError):
        return math.inf
    return min((int(most) / int(period) for most, period in shares if most != "max"), default=math.inf)
