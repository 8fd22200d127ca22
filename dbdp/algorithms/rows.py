"""The packed rows of a dataset, as an algorithm sees them: epochs of SGD, sums, and scans of noisy SGD.

Shapes: a model is a vector of P parameters. What comes back is exact and secret: an algorithm adds noise
to it before anything else depends on it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dbdp.learning.noisy import NoisyState
from dbdp.learning.objectives import Objective
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.privacy.accounting.padding import PoissonSamples

Progress = Callable[[str, int, int], None]  # stage, parts that are done, parts in all


def silent(_stage: str, _done: int, _total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Layout:
    """How the rows are packed for a plan, from public facts alone.

    Attributes
    ----------
    dimension : coordinates of a packed row
    slices : rows of each slice; slices are disjoint ranges of one secret order (privacy.md §1.6, §6)
    projection : of the features, by a public seed
    side_by_side : whether each slice has a session of its own, where the session can open more
    coding : the encoding, and perhaps the features as another declaration has them, as `dbdp.packing.options.Coding`
        reads them; None takes the dataset's own
    """

    dimension: int
    slices: tuple[int, ...]
    projection: RandomProjection | None = None
    side_by_side: bool = False
    coding: Mapping[str, Any] | None = None


class Rows(Protocol):
    """The rows of one dataset, as packed last by `shuffle` or `draw`."""

    def shuffle(self) -> None:
        """Pack all rows once, in a fresh secret order."""

    def slice(self, number: int) -> "Rows":
        """Return one slice, from 0, as rows of its own; it cannot be packed anew."""

    def epoch(self, states: Sequence[list[bytes]]) -> list[list[bytes]]:
        """Return the states of the models of each slice after one epoch of SGD over it."""

    def errors(self, models: np.ndarray) -> int:
        """Return how many rows the models (outputs, dimension) classify wrongly; a zero row counts as an error."""

    def draw(self, samples: PoissonSamples, most: int, *, apart: bool = False) -> int:
        """Pack some mini-batches of a run: every row is in each of them with the same probability.

        Each has exactly `samples.size` rows: zero rows fill it, and what is beyond is cut.

        Parameters
        ----------
        samples : every row takes part independently, exactly with their probability
        most : no more mini-batches than these
        apart : whether `gradient_sum` and `loss_sums` may ask for one mini-batch

        Returns
        -------
        How many were drawn, as many as the memory given holds: a public number, at least 1.
        """

    def scan(self, state: NoisyState) -> NoisyState:
        """Return the state after the updates over all that is packed."""

    def gradient_sum(
        self, objective: Objective, model: np.ndarray, *, clip: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' gradients, each of norm at most `clip`, shape (P,).

        `batch` is the number, from 0, of a mini-batch of the last `draw`; None takes all that is packed.
        """

    def loss_sums(
        self, objective: Objective, models: np.ndarray, *, limit: float, batch: int | None = None
    ) -> np.ndarray:
        """Return for each of C models (C, P) the sum of the rows' losses, each at most `limit`, shape (C,)."""

    def label_counts(self, classes: int) -> np.ndarray:
        """Return how many rows have each label: -1 and +1 (classes = 1), or 1, …, K; shape (max(2, classes),)."""
