"""Draws of packed rows with replacement, in bounded memory, and the steps of a solver that looks at single rows.

Which rows are drawn depends on no value. Rows that are held in a file are read in each stage, in their order.
"""

import math
from collections.abc import Callable

import numpy as np

from dbdp.algorithms.rows import RecursiveStages
from dbdp.learning.compiled import sums
from dbdp.learning.objectives import Linear
from dbdp.learning.rows import blocks
from dbdp.packing import resident
from dbdp.packing.memory import pack_memory
from dbdp.packing.writers import table_name
from dbdp.sessions.server import SpiSession

Collect = Callable[[np.ndarray, slice], None]


def recursive_stages(
    session: SpiSession, table: str, objective: Linear, model: np.ndarray, centre: np.ndarray, how: RecursiveStages
) -> np.ndarray:
    """Return the model after some stages, each the gradient at a model and steps of single rows; shape (P,).

    This session holds the packed rows of the table (a qualified, quoted name), has the setting `dbdp.pack_memory` and
    notices a cancel. The objective is the mean loss, without its regulariser; the first stage begins at `model`, shape
    (P,), and the regulariser's centre is `centre`, shape (P,).
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
    """The packed rows of a table, which this session holds."""

    def __init__(self, session: SpiSession, table: str, objective: Linear, count: int) -> None:
        self._session, self._objective = session, objective
        self._stride, row_bytes = blocks.stride_of(objective.inputs), blocks.row_bytes(objective.inputs)
        store = resident.store_of(table_name(table))
        self._rows = resident.BlockRows(store, 0, count, objective.inputs)
        self.most = max(1, pack_memory(session) // 4 // row_bytes)  # rows that may be drawn together
        if (len(store), store.width) != (count, row_bytes):
            raise ValueError(f"the table does not have the planned {count} packed rows; pack the dataset again")

    def read(self, places: np.ndarray, model: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows at some places, (places, stride), and the sum of gradients at a model, 0 without one."""
        if self._rows.store.memory:
            everything = self._rows.read(slice(0, self._rows.count))
            return np.take(everything, places, axis=0, mode="clip"), self._read_all(model)
        drawn, order = np.empty((len(places), self._stride), blocks.ELEMENT), np.argsort(places)
        ascending = places[order]

        def collect(rows: np.ndarray, piece: slice) -> None:
            here = slice(*np.searchsorted(ascending, [piece.start, piece.stop]))
            drawn[order[here]] = rows[ascending[here] - piece.start]

        return drawn, self._read_all(model, collect)

    def _read_all(self, model: np.ndarray | None, collect: Collect = lambda _rows, _piece: None) -> np.ndarray:
        """Call a function with the rows of each piece; return the sum of gradients, 0 without a model."""
        nothing = np.zeros(self._objective.parameters)

        def of_piece(rows: np.ndarray, piece: slice) -> np.ndarray:
            collect(rows, piece)
            return nothing if model is None else self._objective.gradient_sum(model, rows, clip=math.inf)

        return sums.value(self._rows.sum(self._session, len(nothing), of_piece))
