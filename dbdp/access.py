"""Access to the packed rows of a dataset over SQL: what `dbdp.algorithms.access` promises an algorithm.

Every question is one query, that is one pass over the blocks (of one mini-batch, where it asks for one).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dbdp import filling, packing
from dbdp.algorithms.access import Progress, silent
from dbdp.datasets import Dataset
from dbdp.learning.noisy import NoisyState
from dbdp.learning.objectives import Objective
from dbdp.privacy.padding import PoissonSamples
from dbdp.sessions import Session


class PackedRows:
    """The rows of a dataset in one temporary table of a session; see `dbdp.algorithms.access.Access`.

    Parameters
    ----------
    dimension : coordinates of a packed row
    options : of dbdp.shuffle, such as a random projection
    progress : is told how far a packing is
    """

    def __init__(
        self,
        session: Session,
        dataset: Dataset,
        table: str,
        *,
        dimension: int,
        options: dict[str, Any],
        progress: Progress = silent,
    ) -> None:
        self._session = session
        self._dataset = dataset
        self._table = table
        self._dimension = dimension
        self._options = options
        self._progress = progress
        self._batch_blocks = 1  # of each mini-batch of the last draw

    def shuffle(self) -> None:
        """Pack all rows once, in a fresh secret order."""
        self._pack({})

    def draw(self, samples: PoissonSamples, most: int, *, apart: bool = False) -> int:
        """Pack some mini-batches of a run; return how many, as the memory given allows."""
        steps = packing.steps_that_fit(self._session, samples.size, self._dimension, most)
        self._batch_blocks = packing.blocks_of_step(samples.size, self._dimension)
        how = {"probability": samples.probability, "steps": steps, "size": samples.size, "apart": apart}
        self._pack({"poisson": how})
        return steps

    def scan(self, state: NoisyState) -> NoisyState:
        """Return the state after the updates over all that is packed."""
        sql = f"select dbdp.noisy_steps(block, $1 order by block_no) as found from {self._table}"
        return NoisyState.decode(self._found(sql, state.encode()))

    def gradient_sum(
        self, objective: Objective, model: np.ndarray, *, clip: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' clipped gradients, shape (P,)."""
        return self._sum("gradient_sum", model, objective, clip, batch)

    def loss_sums(
        self, objective: Objective, models: np.ndarray, *, limit: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' clipped losses for each of C models, shape (C,)."""
        return self._sum("loss_sum", models, objective, limit, batch)

    def label_counts(self, classes: int) -> np.ndarray:
        """Return how many rows have each label, shape (max(2, classes),)."""
        sql = f"select dbdp.label_counts(block, $1::pg_catalog.int4, $2::pg_catalog.int4) as found from {self._table}"
        return np.array(self._found(sql, self._dimension, classes))

    def errors(self, models: np.ndarray) -> int:
        """Return how many rows the models (outputs, dimension) classify wrongly; for a baseline, not an algorithm."""
        sql = f"select dbdp.count_errors(block, $1, $2::pg_catalog.int4) as found from {self._table}"
        return self._found(sql, models.tobytes(), len(models))

    def _sum(
        self, aggregate: str, models: np.ndarray, objective: Objective, bound: float, batch: int | None
    ) -> np.ndarray:
        first, last = (0, 2**62) if batch is None else (batch * self._batch_blocks, (batch + 1) * self._batch_blocks)
        sql = (
            f"select dbdp.{aggregate}(block, $1, $2, $3) as found from {self._table} "
            "where block_no >= $4 and block_no < $5"
        )
        asked = models.tobytes(), json.dumps(objective.as_data()), float(bound), first, last
        return np.frombuffer(self._found(sql, *asked), "<f8")

    def _found(self, sql: str, *parameters: Any) -> Any:
        """Return what a query of the packed rows finds; which pages it reads anew, the secret order may decide."""
        with self._session.uncounted():
            return self._session.query(sql, *parameters)[0]["found"]

    def _pack(self, how: dict[str, Any]) -> None:
        filling.fill(self._session, self._dataset.name, self._table, self._options | how, self._progress)


@contextmanager
def packed_rows(
    session: Session, dataset: Dataset, *, dimension: int, options: dict[str, Any], progress: Progress = silent
) -> Iterator[PackedRows]:
    """Have a table for packed rows within the block; nothing is packed yet."""
    packing.keep_blocks_at_hand(session, dataset.rows, dimension)
    with packing.room(session, dataset) as (table, found):
        options = options | found
        yield PackedRows(session, dataset, table, dimension=dimension, options=options, progress=progress)
