"""Draws of packed rows with replacement, in bounded memory, and the steps of a solver that looks at single rows.

Which rows are drawn depends on no value. Rows that fit half of `dbdp.pack_memory` are read once for all stages of a
call; others are read in each stage, in the order of their blocks.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from dbdp.algorithms.rows import RecursiveStages
from dbdp.learning.objectives import Linear
from dbdp.learning.rows import blocks
from dbdp.packing import held
from dbdp.packing.memory import pack_memory
from dbdp.sessions.server import ServerSession

Collect = Callable[[int, np.ndarray], None]


def recursive_stages(
    session: ServerSession, table: str, objective: Linear, model: np.ndarray, centre: np.ndarray, how: RecursiveStages
) -> np.ndarray:
    """Return the model after some stages, each the gradient at a model and steps of single rows; shape (P,).

    Parameters
    ----------
    session : ServerSession
        Reads the table.
    table : str
        Qualified, quoted name of a table (block_no, block) of packed rows.
    objective : Linear
        The mean loss, without its regulariser.
    model, centre : np.ndarray, shape (P,)
        Where the first stage begins, and the centre of the regulariser.
    how : RecursiveStages
        The stages.

    Raises
    ------
    ValueError
        If the table does not have the planned number of rows, or `dbdp.pack_memory` is not a size.
    """
    moved, rows = np.array(model, np.float64), _Rows(session, table, objective, how.rows)
    for _ in range(how.stages):
        _stage(rows, objective, moved, centre, how)
    return moved


def _stage(rows: "_Rows", objective: Linear, model: np.ndarray, centre: np.ndarray, how: RecursiveStages) -> None:
    """Change a model (P,) in place by one stage."""
    places, direction = np.random.default_rng().integers(how.rows, size=how.steps), np.zeros_like(model)
    for first in range(0, how.steps, rows.most):
        drawn, total = rows.read(places[first : first + rows.most], None if first else model)
        if not first:
            direction = total / how.rows + how.regularisation * (model - centre)
        objective.recursive_steps(model, direction, drawn, step=how.step, regularisation=how.regularisation)


class _Rows:
    """The packed rows of a table, in memory where they fit.

    Attributes
    ----------
    most : int
        How many rows may be drawn together.
    """

    def __init__(self, session: ServerSession, table: str, objective: Linear, count: int) -> None:
        self._session, self._table, self._objective, self._count = session, table, objective, count
        memory, self._stride = pack_memory(session), blocks.stride_of(objective.inputs)
        row_bytes = self._stride * blocks.ELEMENT.itemsize
        self.most = max(1, memory // 4 // row_bytes)
        self._kept: np.ndarray | None = None
        if count * row_bytes <= memory // 2:
            kept = np.empty((count, self._stride), blocks.ELEMENT)
            for first, rows in self._blocks():
                kept[first : first + len(rows)] = rows
            self._kept = kept

    def read(self, places: np.ndarray, model: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows at some places, (places, stride), and the sum of gradients at a model, 0 without one."""
        if self._kept is not None:
            return np.take(self._kept, places, axis=0, mode="clip"), self._read_all(model)
        drawn, order = np.empty((len(places), self._stride), blocks.ELEMENT), np.argsort(places)
        ascending = places[order]

        def collect(first: int, rows: np.ndarray) -> None:
            here = slice(*np.searchsorted(ascending, [first, first + len(rows)]))
            drawn[order[here]] = rows[ascending[here] - first]

        return drawn, self._read_all(model, collect)

    def _read_all(self, model: np.ndarray | None, collect: Collect = lambda _first, _rows: None) -> np.ndarray:
        """Call a function with each block and its place; return the sum of gradients at a model, 0 without one."""
        total = np.zeros(self._objective.parameters)
        for first, rows in self._blocks():
            collect(first, rows)
            if model is not None:
                total += self._objective.gradient_sum(model, rows, clip=math.inf)
        return total

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield how many rows came before, and the packed rows of each block; a cancel takes effect between two."""
        first = 0
        for rows in self._pieces():
            if first + len(rows) > self._count:
                break
            yield first, rows
            first += len(rows)
        if first != self._count:
            raise ValueError(f"the table does not have the planned {self._count} packed rows; pack the dataset again")

    def _pieces(self) -> Iterator[np.ndarray]:
        if self._kept is None:
            for row in self._session.stream(f"select block from {self._table} order by block_no"):
                yield held.decode(row["block"], self._objective.inputs)
            return
        together = blocks.rows_per_block(self._objective.inputs)
        for first in range(0, self._count, together):
            self._session.pause()
            yield self._kept[first : first + together]
