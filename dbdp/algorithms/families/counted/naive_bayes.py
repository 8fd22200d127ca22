"""Naive Bayes: what each column says about a label by itself, from counts that are released once, added up.

privacy.md §27. The rows are those of private splines: the counts are by the label and the nearest knot or category.
From these follow the base rate, a curve for each number and an effect for each category, smaller the less of it is
clear of the noise. Columns that say the same are counted twice: a table of the scores has a share of the budget, and
its slope corrects that. There are no steps, which a weak signal does not bear.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.algorithms.declared_options import Options, OwnSettings, number, own_settings
from dbdp.algorithms.families.counted.cell_effects import effects, spread, totals
from dbdp.algorithms.families.preconditioned.spline_descent import KNOTS
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Released, Request
from dbdp.algorithms.rows import Layout, Pace, Progress, Rows, silent
from dbdp.algorithms.stages.label_counts import LabelCounts
from dbdp.algorithms.stages.self_evaluation import SelfEvaluation
from dbdp.algorithms.stages.table_noise import GaussianTable
from dbdp.learning.losses import Logistic
from dbdp.learning.rows.column_blocks import CATEGORY, CURVE, ColumnBlock, RowBlocks
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release
from dbdp.privacy.mechanisms import ROOM, Gaussian

SPREAD = 1.5  # the most deviation of scores before calibration: more is what columns have in common
PASSES = 2


@dataclass(frozen=True)
class CountSettings(OwnSettings):
    """What only naive_bayes has."""

    evaluation_share: float = number(
        0.2, 0.01, 0.9, "fraction of μ² for the table of scores that calibrates and evaluates classes"
    )


OPTIONS = Options(
    {
        "mechanism": (Gaussian.name,),
        "loss": (Logistic.name,),
        "projection_dimension": (),  # a projection mixes the columns
        "projection_seed": (),
    },
    {"loss": "choose loss => 'logistic'"},
    CountSettings,
    least_signal=0.1,
)


def naive_bayes_plan(request: Request, facts: Facts) -> "CountedPlan":
    """Return the plan of naive Bayes.

    Proof (privacy.md §27, §21.1). Where a record is replaced, the tables of F columns move by at most √(2F), and given
    the model that follows from them, the table of its scores moves by √2. Adaptively composed, these Gaussians are one
    of μ² = μ_T² + μ_s² (§13), which is at most 1/z², z the analytic multiplier of (ε, δ). The model, and its
    calibration, are post-processing. ∎

    Raise ValueError if the request cannot be planned: the message names the value, the limit and the remedy.
    """
    blocks, own = _checked(request, facts), own_settings(request, CountSettings)
    multiplier = analytic_noise_multiplier(request.epsilon, request.delta)
    method = Counted(facts, blocks, multiplier, own.evaluation_share)
    guarantee = Release(GaussianDpEvent(multiplier), request.epsilon, request.delta)
    return CountedPlan(request, facts, guarantee, method.described(), method)


def _checked(request: Request, facts: Facts) -> RowBlocks:
    """Return the blocks of a row; raise ValueError unless its label and columns can be counted."""
    obstacles = {
        "the label does not have two classes": not facts.is_classifier or facts.outputs > 1,
        "delta = 0, and it adds Gaussian noise": request.delta == 0,
        "it counts the values of columns, and the feature is an array": facts.blocks is None,
        "the dataset has no intercept": not facts.intercept,
    }
    found = next((obstacle for obstacle, is_there in obstacles.items() if is_there), None)
    if found or facts.blocks is None:
        raise ValueError(f"naive_bayes cannot learn this: {found}; choose algorithm => 'auto'")
    return facts.blocks


@dataclass(frozen=True)
class Counted:
    """The release as it is planned: public facts only."""

    facts: Facts
    blocks: RowBlocks
    multiplier: float  # z = 1/μ of the whole run
    evaluation_share: float  # share of μ² for the table of scores

    @property
    def counts(self) -> LabelCounts:
        """The release of the tables."""
        return LabelCounts(self.blocks, self.multiplier / math.sqrt(1 - self.evaluation_share) * ROOM)

    @property
    def evaluation(self) -> SelfEvaluation:
        """The table of scores."""
        noise = GaussianTable(1, self.multiplier / math.sqrt(self.evaluation_share) * ROOM)
        return SelfEvaluation(1, self.facts.dimension, softmax=False, noise=noise, rows_of=self.blocks)

    def described(self) -> dict[str, Any]:
        """Return what `explain` shows of it."""
        return {
            "sampling": "all rows",
            "sampling_rate": 1.0,
            "steps": 1,
            "expected_passes": PASSES,
            "parameters": self.facts.dimension,
            "evaluation_share": self.evaluation_share,
            "knots": KNOTS,
            "mechanism": Gaussian.name,
            "noise_scale": self.counts.noise.noise_scale,
        }

    def __call__(self, rows: Rows, progress: Progress) -> np.ndarray:
        """Return the noisy model as one vector, shape (P,)."""
        return self.released(rows, progress).models.ravel()

    def released(self, rows: Rows, progress: Progress = silent) -> Released:
        """Pack the rows, count them, and return the model of the noisy counts, which its scores calibrate."""
        rows.pack()
        pace = Pace(progress, 0, PASSES)
        models = self._models(self.counts.released(rows))
        pace()
        released = self.evaluation.evaluated(rows, Released(models), 1 / self.blocks.radius)
        pace()
        return released

    def _models(self, tables: list[np.ndarray]) -> np.ndarray:
        """Return the model over packed rows (1, d) of noisy tables."""
        noise, blocks = self.counts.noise.noise_scale, self.blocks.blocks
        found = totals(tables, noise)
        of_cells = effects(tables, [block.kind == CURVE for block in blocks], noise, found)
        size = min(1.0, SPREAD / max(spread(tables, of_cells), SPREAD))
        weights, constants = zip(
            *(_coordinates(block, size * each) for block, each in zip(blocks, of_cells, strict=True)), strict=True
        )
        return np.array([[*np.concatenate(weights), found.log_odds + sum(constants)]]) * self.blocks.radius


def _coordinates(block: ColumnBlock, of_cells: np.ndarray) -> tuple[np.ndarray, float]:
    """Return weights (width,) and a constant that give each cell of a block this effect."""
    if block.kind == CURVE:
        return of_cells, 0.0
    if block.kind == CATEGORY:  # the last cell has no category
        return (of_cells[:-1] - of_cells[-1]) / block.size, float(of_cells[-1])
    slope = (of_cells[1] - of_cells[0]) / (block.size - block.least)
    return np.array([slope]), float(of_cells[0] - slope * block.least)


@dataclass(frozen=True)
class CountedPlan(NoisyWhileTraining):
    """The plan of naive Bayes: its rows are in places."""

    method: Counted

    @property
    def run(self) -> Callable[..., Released]:
        """The method's `released`, which packs the rows and counts them."""
        return self.method.released

    @property
    def layout(self) -> Layout:
        """All rows in one slice, with one number for each column."""
        return Layout(self.blocks.places, (self.facts.rows,), coding=self.request.coding, in_places=True)

    @property
    def blocks(self) -> RowBlocks:
        """The coordinates of each column."""
        return self.method.blocks
