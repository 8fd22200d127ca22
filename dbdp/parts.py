"""Parts: the packed blocks of a dataset in a secret order, whole or cut into disjoint parts.

A part is a range of positions of one secret uniform permutation: its size is public, and who is in it
does not depend on any value (privacy.md §1.6, §6).
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import numpy as np

from dbdp import filling, packing
from dbdp.algorithms.access import Progress, silent
from dbdp.datasets import Dataset
from dbdp.learning import blocks
from dbdp.sessions import Session, temporary_table


@dataclass(frozen=True)
class Part:
    """Blocks first ≤ block_no < last of a table in a session."""

    session: Session
    table: str
    rows: int
    first: int
    last: int

    def epoch(self, state: bytes) -> bytes:
        """Return the state after one epoch of SGD over the part."""
        sql = (
            f"select dbdp.sgd_epoch(block, $1 order by block_no) as state from {self.table} "
            "where block_no >= $2 and block_no < $3"
        )
        with self.session.uncounted():
            return self.session.query(sql, state, self.first, self.last)[0]["state"]

    def errors(self, models: np.ndarray) -> int:
        """Return how many rows the models (outputs, dimension) classify wrongly; a zero row counts as an error."""
        sql = (
            f"select dbdp.count_errors(block, $1, $2::pg_catalog.int4) as errors from {self.table} "
            "where block_no >= $3 and block_no < $4"
        )
        with self.session.uncounted():
            return self.session.query(sql, models.tobytes(), len(models), self.first, self.last)[0]["errors"]


@dataclass(frozen=True)
class Shuffle:
    """A call of dbdp.shuffle in a session."""

    session: Session
    dataset: str
    table: str
    options: dict[str, Any]
    progress: Progress = silent

    def run(self) -> None:
        """Fill the table anew."""
        filling.fill(self.session, self.dataset, self.table, self.options, self.progress)


@dataclass(frozen=True)
class Shuffled:
    """Parts of one permutation, and how to draw another."""

    parts: Sequence[Part]
    calls: Sequence[Shuffle]

    def shuffle(self) -> None:
        """Pack the dataset anew, in a fresh secret order."""
        side_by_side(Shuffle.run, self.calls)


@contextmanager
def shuffled(
    session: Session,
    dataset: Dataset,
    sizes: Sequence[int],
    *,
    dimension: int,
    options: dict[str, Any],
    progress: Progress = silent,
) -> Iterator[Shuffled]:
    """Pack a dataset in a fresh secret order, cut into parts of these sizes, in this session.

    Parameters
    ----------
    dimension : coordinates of a packed row
    options : of dbdp.shuffle, such as a random projection
    progress : is told how far the packing is
    """
    packing.keep_blocks_at_hand(session, dataset.rows, dimension)
    per_block = blocks.rows_per_block(dimension)
    lasts = list(accumulate(-(-size // per_block) for size in sizes))
    cuts = list(accumulate(sizes))[:-1]
    with packing.room(session, dataset) as (table, found):
        parts = [
            Part(session, table, size, first, last)
            for size, first, last in zip(sizes, [0, *lasts], lasts, strict=False)
        ]
        given = options | found | ({"cuts": cuts} if cuts else {})
        made = Shuffled(parts, [Shuffle(session, dataset.name, table, given, progress)])
        made.shuffle()
        yield made


@contextmanager
def spread(
    session: Session,
    dataset: Dataset,
    sizes: Sequence[int],
    *,
    dimension: int,
    options: dict[str, Any],
    progress: Progress = silent,
) -> Iterator[Shuffled]:
    """The same, each part in a session of its own, where the session can open more; else as `shuffled`.

    All of them permute alike, by a secret key, and see the same snapshot. The first tells how far it is: all of
    them read the whole table.
    """
    is_spread = len(sizes) > 1 and not dataset.group  # a group's rows lie in this session
    with ExitStack() as stack:
        workers = stack.enter_context(session.workers(len(sizes))) if is_spread else [session]
        if len(workers) == 1:
            here = shuffled(session, dataset, sizes, dimension=dimension, options=options, progress=progress)
            yield stack.enter_context(here)
            return
        name, key = f"dbdp_blocks_{secrets.token_hex(8)}", secrets.token_hex(packing.KEY_BYTES)
        ends = list(accumulate(sizes))
        for worker, size in zip(workers, sizes, strict=True):
            packing.keep_blocks_at_hand(worker, size, dimension)
        tables = [stack.enter_context(temporary_table(worker, name, packing.BLOCK_COLUMNS)) for worker in workers]
        places = [{"key": key, "first": end - size, "last": end} for end, size in zip(ends, sizes, strict=True)]
        reports = [progress] + [silent] * (len(workers) - 1)
        calls = [
            Shuffle(worker, dataset.name, table, options | place, report)
            for worker, table, place, report in zip(workers, tables, places, reports, strict=True)
        ]
        parts = [
            Part(worker, table, size, 0, 2**62) for worker, table, size in zip(workers, tables, sizes, strict=True)
        ]
        made = Shuffled(parts, calls)
        with session.one_snapshot(workers):
            made.shuffle()
        yield made


class _InSession(Protocol):
    @property
    def session(self) -> Session: ...


Work = TypeVar("Work", bound=_InSession)
Result = TypeVar("Result")


def side_by_side(action: Callable[..., Result], works: Sequence[Work], *arguments: Sequence[Any]) -> list[Result]:
    """Do all the work at once where each has a session of its own, else one after the other.

    After an error or an interrupt none goes on.
    """
    if len({id(work.session) for work in works}) == 1:
        return list(map(action, works, *arguments))
    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(action, *each) for each in zip(works, *arguments, strict=True)]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            for each in done:
                each.result()  # raises what stopped the first one
        except BaseException:
            _stop(works, running)
            raise
    return [each.result() for each in running]


def _stop(works: Sequence[Work], running: Sequence[Future[Result]]) -> None:
    """Cancel until all have stopped: a cancel that comes between two statements stops nothing."""
    while left := [work for work, each in zip(works, running, strict=True) if not each.done()]:
        for work in left:
            work.session.cancel()
        wait(running, timeout=0.1)
