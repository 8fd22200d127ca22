"""The packed rows of a dataset over SQL: implements `dbdp.algorithms.rows.Rows`.

Every sum is one query, and so one pass over the blocks of a slice, or of one mini-batch. A slice is a range of
positions in one secret uniform permutation: its size is public, and which rows are in it does not depend on any value
(privacy.md §1.6, §6).
"""

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import numpy as np

from dbdp.algorithms.rows import Layout, Progress, RecursiveStages, silent
from dbdp.learning.compiled import sums
from dbdp.learning.noisy import NoisyState
from dbdp.learning.objectives import Linear, Objective, additive
from dbdp.learning.rows import blocks
from dbdp.learning.rows.column_blocks import Placed
from dbdp.learning.second_moments import OtherCoordinates
from dbdp.packing.memory import blocks_of_step, steps_that_fit
from dbdp.packing.progress import fill
from dbdp.packing.shuffle_options import KEY_BYTES
from dbdp.packing.writers import block_table, temporary_blocks
from dbdp.privacy.accounting.padding import GROUP, PoissonSamples
from dbdp.registry.datasets import RegisteredDataset
from dbdp.sessions.session import Session

_ALL = 2**62  # above every block's number


@dataclass(frozen=True)
class Slice:
    """Blocks first ≤ block_no < last of a table in a session."""

    session: Session
    table: str
    first: int = 0
    last: int = _ALL

    def value(self, call: str, *parameters: Any) -> Any:
        """Return the value of an aggregate over the blocks, uncounted: which pages it reads may depend on the order."""
        first, last = (f"${len(parameters) + place}" for place in (1, 2))
        sql = f"select {call} as value from {self.table} where block_no >= {first} and block_no < {last}"
        with self.session.uncounted():
            return self.session.query(sql, *parameters, self.first, self.last)[0]["value"]


@dataclass(frozen=True)
class Packing:
    """How a table of packed rows is filled: a call of dbdp_internal.shuffle in a session."""

    session: Session
    dataset: str
    table: str
    options: dict[str, Any]
    progress: Progress = silent

    def fill(self, options: dict[str, Any]) -> None:
        """Replace the table's content, with further options of dbdp_internal.shuffle."""
        fill(self.session, self.dataset, self.table, self.options | options, self.progress)


@dataclass
class PackedRows:
    """The packed rows of a dataset in temporary tables of one or several sessions; a `dbdp.algorithms.rows.Rows`."""

    slices: Sequence[Slice]  # the slices, in order
    # How each table is filled, one for each session; empty for a single slice, which cannot be packed again.
    packings: Sequence[Packing]
    layout: Layout  # how the rows are packed
    batch_blocks: int = 1  # blocks of each mini-batch of the last draw
    moved: OtherCoordinates | None = None  # those of the last `transform`; None since the last packing
    placed: Placed | None = None  # of the last `transform` of rows in places
    tables: ExitStack = field(default_factory=ExitStack)  # drops the table of `copy`
    # A temporary table for a packed copy of all rows, from which several draws are made; None until one is needed.
    copy: str | None = None
    joins_epochs = False  # each epoch is one query, and its progress is shown

    def shuffle(self) -> None:
        """Pack all rows once, in a fresh secret order."""
        self._pack({})

    def pack(self) -> None:
        """Pack all rows once, as they are read."""
        self._pack({"secret_order": False})

    def slice(self, number: int) -> "PackedRows":
        """Return one slice as rows of its own."""
        return PackedRows([self.slices[number]], [], self.layout)

    def draw(self, samples: PoissonSamples, most: int) -> int:
        """Pack at most `most` mini-batches, as many as fit `dbdp.pack_memory`; return their number."""
        steps, options = self._sampling(samples, most)
        self.batch_blocks = blocks_of_step(samples.size, self.layout.dimension)
        self._pack({"poisson": options | {"apart": True}})
        return steps

    def scan_samples(
        self, samples: PoissonSamples, most: int, states: Sequence[NoisyState]
    ) -> tuple[int, list[NoisyState]]:
        """Draw as `draw`; return the number of mini-batches, and the states after an update for each.

        Several are packed together, in the server's memory, as a public number of rows; a single one may be too large.
        """
        steps, options = self._sampling(samples, most)
        self._pack({"poisson": options | ({"together": samples.together(steps)} if steps > 1 else {})})
        return steps, self.scan(states)

    def _sampling(self, samples: PoissonSamples, most: int) -> tuple[int, dict[str, Any]]:
        """Return how many mini-batches are drawn together, and the options of their packing."""
        session = self.packings[0].session
        steps = steps_that_fit(session, GROUP * -(-samples.size // GROUP), self.layout.dimension, most)
        if steps < most and self.copy is None:
            self.copy = f"dbdp_copy_{secrets.token_hex(8)}"
            self.tables.enter_context(temporary_blocks(session, self.copy))
        options = {"probability": samples.probability, "steps": steps, "size": samples.size}
        return steps, options | ({"copy": self.copy} if self.copy else {})

    def epoch(self, states: Sequence[list[bytes]], passes: int = 1) -> list[list[bytes]]:
        """Return the states of the models of each slice after so many epochs of SGD over it, each one pass."""
        calls = ["dbdp_internal.sgd_epoch(block, $1 order by block_no)"] * len(self.slices)
        moved, length = [b"".join(of_slice) for of_slice in states], len(states[0][0])
        for _ in range(passes):
            if len(self.packings) <= 1:
                moved = list(map(Slice.value, self.slices, calls, moved))
            else:
                moved = side_by_side(Slice.value, self.slices, calls, moved)
        return [[each[begin : begin + length] for begin in range(0, len(each), length)] for each in moved]

    def scan(self, states: Sequence[NoisyState]) -> list[NoisyState]:
        """Return the states after the noisy updates over all packed rows, in one pass for all of them."""
        calls = (f"dbdp_internal.noisy_steps(block, ${place} order by block_no)" for place in range(1, len(states) + 1))
        moved = self._part().value(f"array[{', '.join(calls)}]", *(state.encode() for state in states))
        return list(map(NoisyState.decode, moved))

    def gradient_sum(
        self, objective: Objective, model: np.ndarray, *, clip: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' clipped gradients, shape (P,), in the coordinates of the last `transform`."""
        own = additive(objective, self.placed.rows_of) if self.placed else objective
        how = json.dumps(own.as_data()), float(clip)
        if self.moved is None:
            call = "dbdp_internal.gradient_sum(block, $1, $2, $3)"
            return _sum_of(self._part(batch).value(call, model.tobytes(), *how))
        call = "dbdp_internal.measured_gradient_sum(block, lengths, $1, $2, $3)"
        return self.moved.gradients(_sum_of(self._part(batch).value(call, self.moved.models(model).tobytes(), *how)))

    def recursive_stages(
        self, objective: Linear, model: np.ndarray, centre: np.ndarray, how: RecursiveStages
    ) -> np.ndarray:
        """Return the model after some stages, shape (P,)."""
        (rows,) = self.slices
        call = "select dbdp_internal.recursive_stages($1, $2, $3, $4, $5::pg_catalog.json) as value"
        data = json.dumps(objective.as_data()), json.dumps(asdict(how))
        with rows.session.uncounted():
            moved = rows.session.query(call, rows.table, model.tobytes(), centre.tobytes(), *data)[0]["value"]
        return np.frombuffer(moved, "<f8")

    def loss_sums(
        self, objective: Objective, models: np.ndarray, *, limit: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' clipped losses for each of C models, shape (C,)."""
        how = json.dumps(objective.as_data()), float(limit)
        return _sum_of(self._part(batch).value("dbdp_internal.loss_sum(block, $1, $2, $3)", models.tobytes(), *how))

    def second_moment(self) -> np.ndarray:
        """Return Σ xxᵀ over the rows, shape (d, d)."""
        total = self._part().value("dbdp_internal.second_moment(block, $1::pg_catalog.int4)", self.layout.dimension)
        return _sum_of(total).reshape(self.layout.dimension, -1)

    def joint_moment(self, labels: int, weight: float) -> np.ndarray:
        """Return Σ zzᵀ over z = (x, weight·y), the rows and their labels, shape (d + labels, d + labels)."""
        call = "dbdp_internal.joint_moment(block, $1::pg_catalog.int4, $2::pg_catalog.int4, $3)"
        total = self._part().value(call, self.layout.dimension, labels, weight)
        return _sum_of(total).reshape(self.layout.dimension + labels, -1)

    def transform(self, matrix: np.ndarray, placed: Placed | None = None) -> None:
        """Sum gradients at matrix·x for each packed row x until they are packed anew; store the lengths of these."""
        (rows,) = self.slices
        with rows.session.uncounted():
            if self.moved is None:  # the table may have been another group's
                rows.session.query(f"alter table {rows.table} add column if not exists lengths bytea")
                rows.session.query(f"alter table {rows.table} alter column lengths set storage external")
            call = f"update {rows.table} set lengths = dbdp_internal.lengths(block, $1, $2::pg_catalog.text)"
            factors = (matrix, None) if placed is None else (placed.factors, placed.as_text())
            rows.session.query(call, factors[0].tobytes(), factors[1])
        self.moved, self.placed = OtherCoordinates(matrix), placed

    def label_counts(self, classes: int) -> np.ndarray:
        """Return how many rows have each label, shape (max(2, classes),)."""
        call = "dbdp_internal.label_counts(block, $1::pg_catalog.int4, $2::pg_catalog.int4)"
        return np.array(self._part().value(call, self.layout.dimension, classes))

    def errors(self, models: np.ndarray) -> int:
        """Return how many rows the models (outputs, dimension) classify wrongly; a zero row counts as an error."""
        errors: int = self._part().value(
            "dbdp_internal.count_errors(block, $1, $2::pg_catalog.int4)", models.tobytes(), len(models)
        )
        return errors

    def tally(self, vectors: np.ndarray, tally: dict[str, Any]) -> np.ndarray:
        """Return the exact tally of the rows by their labels and scores; see `controller.statistics.noisy_scores`."""
        return np.array(self._part().value("dbdp_internal.tally(block, $1, $2)", vectors.tobytes(), json.dumps(tally)))

    def _part(self, batch: int | None = None) -> Slice:
        """Return the only slice, or one mini-batch of the last draw."""
        (rows,) = self.slices
        if batch is None:
            return rows
        return Slice(rows.session, rows.table, batch * self.batch_blocks, (batch + 1) * self.batch_blocks)

    def _pack(self, options: dict[str, Any]) -> None:
        """Replace the content of the tables; several sessions see one snapshot."""
        first, *others = self.packings
        if self.moved is not None:
            first.session.query(f"alter table {first.table} drop column lengths")
            self.moved = self.placed = None
        if not others:
            first.fill(options)
            return
        with first.session.one_snapshot([packing.session for packing in self.packings]):
            side_by_side(Packing.fill, self.packings, [options] * len(self.packings))


def _sum_of(total: bytes) -> np.ndarray:
    """Return the sum that the state of an aggregate stands for, see `sums`."""
    return sums.value(np.frombuffer(total, "<f8").reshape(2, -1))


@contextmanager
def packed_rows(
    session: Session, dataset: RegisteredDataset, layout: Layout, progress: Progress = silent
) -> Iterator[PackedRows]:
    """Yield packed rows in temporary tables of this session, or of one session for each slice; none is packed yet.

    Where the session has an engine, the rows are the engine's.
    """
    with ExitStack() as stack:
        if session.engine is not None:
            yield stack.enter_context(session.engine.rows(dataset, layout, progress))
            return
        stack.enter_context(session.in_one_session())
        apart = layout.side_by_side and len(layout.slices) > 1 and not dataset.group  # this session has a group's rows
        workers = stack.enter_context(session.workers(len(layout.slices))) if apart else [session]
        here = _side_by_side(workers, dataset, layout, progress) if len(workers) > 1 else None
        yield stack.enter_context(here or _together(session, dataset, layout, progress))


@contextmanager
def _together(session: Session, dataset: RegisteredDataset, layout: Layout, progress: Progress) -> Iterator[PackedRows]:
    """Yield packed rows whose slices are one after the other in one table; each begins a new block."""
    per_block = blocks.rows_per_reference(layout.dimension)
    lasts = list(accumulate(-(-rows // per_block) for rows in layout.slices))
    cuts = list(accumulate(layout.slices))[:-1]
    with ExitStack() as tables:
        table, place = tables.enter_context(block_table(session, dataset))
        slices = [Slice(session, table, *ends) for ends in zip([0, *lasts], lasts, strict=False)]
        slices = slices if cuts else [Slice(session, table)]  # padded mini-batches may have more blocks than the rows
        options = _options(dataset, layout) | place | ({"cuts": cuts} if cuts else {})
        packing = Packing(session, dataset.name, table, options, progress)
        yield PackedRows(slices, [packing], layout, tables=tables)


@contextmanager
def _side_by_side(
    workers: Sequence[Session], dataset: RegisteredDataset, layout: Layout, progress: Progress
) -> Iterator[PackedRows]:
    """Yield packed rows with each slice in a session of its own.

    All sessions use the same order, by a secret key, and see the same snapshot. Only the first reports progress, since
    all of them read all rows.
    """
    name, key = f"dbdp_blocks_{secrets.token_hex(8)}", secrets.token_hex(KEY_BYTES)
    slices, packings, reports = [], [], [progress] + [silent] * (len(workers) - 1)
    with ExitStack() as stack:
        for worker, rows, end, report in zip(workers, layout.slices, accumulate(layout.slices), reports, strict=True):
            table = stack.enter_context(temporary_blocks(worker, name))
            options = _options(dataset, layout) | {"key": key, "first": end - rows, "last": end}
            slices.append(Slice(worker, table))
            packings.append(Packing(worker, dataset.name, table, options, report))
        yield PackedRows(slices, packings, layout)


def _options(dataset: RegisteredDataset, layout: Layout) -> dict[str, Any]:
    """Return the options of dbdp_internal.shuffle."""
    own = dict(layout.coding or dataset.declaration.coding)
    if dataset.cohort is not None:
        own = {"encoding": dataset.declaration.encoding} | own | {"cohort": dataset.cohort}
    coding = {"coding": own} if own else {}
    projection = {"projection": asdict(layout.projection)} if layout.projection else {}
    flags = {name: True for name in ("marks", "in_places") if getattr(layout, name)}
    return {"rows": dataset.rows, "held": True, **flags} | coding | projection


class _InSession(Protocol):
    @property
    def session(self) -> Session: ...


Work = TypeVar("Work", bound=_InSession)
Result = TypeVar("Result")


def side_by_side(action: Callable[..., Result], works: Sequence[Work], *arguments: Sequence[Any]) -> list[Result]:
    """Run an action on each work in a thread and a session of its own; an error or an interrupt stops all of them."""
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
    """Cancel repeatedly until all have stopped: a cancel between two statements has no effect."""
    while unfinished := [work for work, each in zip(works, running, strict=True) if not each.done()]:
        for work in unfinished:
            work.session.cancel()
        wait(running, timeout=0.1)
