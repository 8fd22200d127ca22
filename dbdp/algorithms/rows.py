"""The interface between an algorithm and the packed rows: epochs of SGD, sums, and scans of noisy SGD.

Shapes: a model is a vector of P parameters. Results are exact and secret: an algorithm adds noise
to them before anything else depends on them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dbdp.checks import between, whole
from dbdp.learning.noisy import NoisyState
from dbdp.learning.objectives import Linear, Objective
from dbdp.learning.rows.column_blocks import Placed
from dbdp.learning.rows.encoding import RandomProjection
from dbdp.privacy.accounting.padding import PoissonSamples

_MOST_DRAWS = 2**26
Progress = Callable[[str, int, int], None]  # stage, completed parts, all parts


def silent(_stage: str, _done: int, _total: int) -> None:
    """Report nothing."""


@dataclass
class Pace:
    """Reports the passes over the rows to a `Progress`: those done so far, and one more with each call."""

    progress: Progress
    done: int
    every: int

    def __post_init__(self) -> None:
        self.progress("pass", self.done, self.every)

    def __call__(self) -> None:
        """Report one more pass."""
        self.done += 1
        self.progress("pass", self.done, self.every)


@dataclass(frozen=True)
class Layout:
    """How the rows are packed for a plan; it follows from public facts alone."""

    dimension: int  # coordinates of a packed row
    # Number of rows of each slice; slices are disjoint ranges of one secret order (privacy.md §1.6, §6).
    slices: tuple[int, ...]
    projection: RandomProjection | None = None  # random projection of the features, by a public seed
    side_by_side: bool = False  # whether each slice has its own session, if the session can open more
    # The encoding, and optionally the features of another declaration, as `dbdp.packing.shuffle_options.Coding` reads
    # them; None is the dataset's own.
    coding: Mapping[str, Any] | None = None
    marks: bool = False  # whether rows with a label that a model has no answer for are marked, for scores
    in_places: bool = False  # whether the rows are in places, see `learning.rows.placed`


@dataclass(frozen=True)
class RecursiveStages:
    """Stages of `perturbed_objective.recursive_descent.RecursiveDescent`, from public facts only."""

    stages: int  # how many; each begins with the gradient at its model
    steps: int  # rows that each draws, with replacement
    step: float  # size of each step
    regularisation: float  # λ, of λ/2 times the squared distance from a centre
    rows: int  # n, of which each is equally likely in each draw

    def __post_init__(self) -> None:
        """Raise ValueError for a number that is out of range."""
        whole("stages", self.stages, 1, _MOST_DRAWS)
        whole("steps", self.steps, 1, _MOST_DRAWS)
        whole("rows", self.rows, 1, 2**62)
        for name, number in (("step", self.step), ("regularisation", self.regularisation)):
            between(name, number, 0, 1e300)


class Rows(Protocol):
    """The rows of one dataset, as last packed by `shuffle` or `draw`."""

    @property
    def joins_epochs(self) -> bool:
        """Whether several epochs in one call of `epoch` are cheaper than one call for each."""

    def shuffle(self) -> None:
        """Pack all rows once, in a new secret order."""

    def pack(self) -> None:
        """Pack all rows once, in any order: for sums over all of them, and for draws by uniform places.

        Neither depends on the order, but for the rounding of sums, whose bound covers every order (privacy.md §14.8).
        """

    def slice(self, number: int) -> "Rows":
        """Return one slice, counted from 0, as rows; it cannot be packed again."""

    def epoch(self, states: Sequence[list[bytes]], passes: int = 1) -> list[list[bytes]]:
        """Return the states of each slice's models after so many epochs of SGD over it, in the same order."""

    def errors(self, models: np.ndarray) -> int:
        """Return how many rows the models (outputs, dimension) classify wrongly; a zero row counts as an error."""

    def draw(self, samples: PoissonSamples, most: int) -> int:
        """Pack Poisson mini-batches, as many as fit in memory; return their number.

        Each is padded with zero rows, or cut, to `samples.size` rows, and `gradient_sum` and `loss_sums` may read it
        alone.
        """

    def scan(self, states: Sequence[NoisyState]) -> list[NoisyState]:
        """Return the states after the updates over all packed rows."""

    def scan_samples(
        self, samples: PoissonSamples, most: int, states: Sequence[NoisyState]
    ) -> tuple[int, list[NoisyState]]:
        """Draw Poisson mini-batches as `draw`; return their number, and the states after an update for each."""

    def gradient_sum(
        self, objective: Objective, model: np.ndarray, *, clip: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' gradients, each of norm at most `clip`, shape (P,).

        `batch` is the index of a mini-batch of the last `draw`; None stands for all packed rows.
        """

    def recursive_stages(
        self, objective: Linear, model: np.ndarray, centre: np.ndarray, how: RecursiveStages
    ) -> np.ndarray:
        """Return the model after some stages, shape (P,)."""

    def loss_sums(
        self, objective: Objective, models: np.ndarray, *, limit: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of the rows' losses, each at most `limit`, for each of C models (C, P), shape (C,)."""

    def second_moment(self) -> np.ndarray:
        """Return Σ xxᵀ over the packed rows x, shape (d, d)."""

    def transform(self, matrix: np.ndarray, placed: Placed | None = None) -> None:
        """Sum gradients at Mx for each packed row x until the next `shuffle`; M is public, (d, d), of norm below 1."""

    def label_counts(self, classes: int) -> np.ndarray:
        """Return how many rows have each label: -1 and +1 (classes = 1), or 1, …, K; shape (max(2, classes),)."""

    def tally(self, vectors: np.ndarray, tally: dict[str, Any]) -> np.ndarray:
        """Return the exact tally of the rows by their labels and the scores of released models (K, d).

        `tally` is as `learning.tallies.tally_of_rows` reads it; the rows are as they were packed, without `transform`.
        """
