"""What the public rule of preconditioned_gd loses against settings that were tuned: `python -m benchmarks.regret`.

Every training is the plan's own run over rows in memory. The tuned setting is the best of a grid on the test rows of
other splits, as no user could choose. Every finished training is a line of results.jsonl; an interrupted run goes on
from there.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import track

from benchmarks.accuracy import cells, encoding
from benchmarks.accuracy.datasets import CLASSES, GENERATED, REGRESSION, Split
from benchmarks.accuracy.dp_sgd import from_unit, to_unit
from benchmarks.accuracy.methods import ANY, CONSTANT, REFERENCES, Method
from benchmarks.accuracy.scores import LOSSES, Prediction
from dbdp.algorithms import Facts, Request, plan
from dbdp.learning import kernels, second_moments
from dbdp.learning.counts import tallies
from dbdp.learning.objectives import Objective, additive
from dbdp.learning.rows import blocks, placed
from dbdp.learning.rows.column_blocks import Placed, RowBlocks
from dbdp.learning.rows.encoding import pack

RULE = "rule"
SHARES, PASSES, CLIPS = (0.15, 0.3, 0.5), (8, 20), (0.1, 0.2, 0.4)
FAMILIES = (
    "rows=500:features=3",
    "rows=2000:features=20:share=.1",
    "rows=5000:features=300",
    "rows=10000:features=30:share=.01",
    "rows=20000:features=60:share=.3:correlation=.6",
    "rows=50000:features=100:share=.05:density=.1",
    "rows=50000:features=40:share=.2:tails=1",
    "rows=200000:features=50:share=.01",
    "rows=20000:features=1000",
    "rows=1000000:features=20",
)
TABLES = ("adult", "bank", "covertype_part", "wine", "bike", *(GENERATED + family for family in FAMILIES))
CONSOLE = Console()


# --- trainings ------------------------------------------------------------------------------------------------


class Rows:
    """Packed rows in memory: what a plan of `auto` reads of them, by the kernels that the aggregates call."""

    def __init__(self, features: np.ndarray, labels: np.ndarray) -> None:
        """Pack features (n, d) and labels (n,)."""
        self._all = self._packed = pack(features, labels)
        self._dimension = features.shape[1]

    def pack(self) -> None:
        """Restore the rows; no sum depends on their order."""
        self._packed = self._all

    def second_moment(self) -> np.ndarray:
        """Return Σ xxᵀ, shape (d, d)."""
        return second_moments.SecondMoment(self._dimension).of_rows(self._packed)

    def transform(self, matrix: np.ndarray, placed_by: Placed | None = None) -> None:
        """Replace each row x by Mx."""
        features, labels, _ = kernels.unpacked(self._packed, len(matrix))
        self._packed = pack(features @ matrix.T, labels)

    def gradient_sum(self, objective: Objective, model: np.ndarray, *, clip: float, batch: int | None = None) -> Any:
        """Return the sum of clipped gradients, shape (P,)."""
        return objective.gradient_sum(model, self._packed, clip=clip)

    def loss_sums(
        self, objective: Objective, models: np.ndarray, *, limit: float, batch: int | None = None
    ) -> np.ndarray:
        """Return the sum of clipped losses for each model, shape (C,)."""
        return objective.loss_sums(models, self._packed, limit=limit)

    def recursive_stages(self, objective: Any, model: np.ndarray, centre: np.ndarray, how: Any) -> np.ndarray:
        """Return the model after some stages of steps from fresh gradients, shape (P,)."""
        for _ in range(how.stages):
            gradient = objective.gradient_sum(model, self._packed, clip=math.inf) / how.rows
            model, direction = model.copy(), gradient + how.regularisation * (model - centre)
            drawn = self._packed[np.random.default_rng().integers(how.rows, size=how.steps)]
            objective.recursive_steps(model, direction, drawn, step=how.step, regularisation=how.regularisation)
        return model

    def label_counts(self, classes: int) -> np.ndarray:
        """Return how many rows have each label."""
        named = (-1, 1) if classes == 1 else range(1, classes + 1)
        return np.array([np.sum(self._all[:, -1] == each) for each in named])

    def tally(self, vectors: np.ndarray, tally: dict[str, Any]) -> np.ndarray:
        """Return the tally of all rows by a model's scores."""
        return tallies.tally_of_rows(np.ravel(vectors), self._all, tally)


class PlacedRows(Rows):
    """The same in places, from the coordinates (n, d) of curves and categories, which private splines reads."""

    def __init__(self, features: np.ndarray, labels: np.ndarray, rows_of: RowBlocks) -> None:
        """Pack the place of each column, and the constant."""
        ends = np.cumsum([block.width for block in rows_of.blocks])[:-1]
        parts = np.split(features[:, :-1] * rows_of.radius, ends, axis=1)
        places = [part @ np.arange(part.shape[1]) for part in parts]
        self._all = self._packed = blocks.encode(np.column_stack([np.ones(len(features)), *places]), labels)
        self._rows_of = rows_of

    def transform(self, matrix: np.ndarray, placed_by: Placed | None = None) -> None:
        """Sum gradients at Mx for each row x from now on."""
        self._matrix = matrix
        self._lengths = placed.measured(self._packed, placed_by or Placed(self._rows_of, matrix))

    def gradient_sum(self, objective: Objective, model: np.ndarray, *, clip: float, batch: int | None = None) -> Any:
        """Return the sum of clipped gradients, shape (P,), in the coordinates of the last `transform`."""
        moved = (model.reshape(-1, len(self._matrix)) @ self._matrix).ravel()
        sums = additive(objective, self._rows_of).gradient_sum(moved, self._packed, clip=clip, lengths=self._lengths)
        return (sums.reshape(-1, len(self._matrix)) @ self._matrix.T).ravel()


@lru_cache(maxsize=1)
def encoded(split: Split) -> np.ndarray:
    """Return all rows as packing does: of length 1 for classes, of length at most 1 for numbers."""
    rows = encoding.bounded(split.data)
    return rows if split.data.task == REGRESSION else rows / np.linalg.norm(rows, axis=1, keepdims=True)


@lru_cache(maxsize=1)
def trained(split: Split) -> Rows:
    """Return the packed rows that train."""
    truth, task = split.data.truth[split.train], split.data.task
    if task == REGRESSION:
        labels = to_unit(truth, split.data.declared["label_bounds"])
    else:
        labels = truth + 1 if task == CLASSES else 2 * truth - 1
    return Rows(encoded(split)[split.train], np.asarray(labels, np.float64))


def evaluate(split: Split, epsilon: float, settings: dict[str, float] | None) -> list[Prediction]:
    """Train by `auto`, or by preconditioned_gd with settings; predict the test rows."""
    data, task = split.data, split.data.task
    classes = len(data.declared["classes"]) if task == CLASSES else 1
    facts = Facts(len(split.train), encoded(split).shape[1], classes, task != REGRESSION)
    named = {"algorithm": "preconditioned_gd", "settings": json.dumps(settings)} if settings else {}
    request = Request(epsilon, data.delta, loss="squared" if task == REGRESSION else "logistic", **named)
    models = plan(request, facts).run(trained(split)).models
    scores = encoded(split)[split.test] @ models.T
    if task != REGRESSION:
        return [Prediction.by_log_odds(scores if task == CLASSES else scores[:, 0])]
    return [Prediction(from_unit(scores[:, 0], data.declared["label_bounds"]))]


def methods() -> list[Method]:
    """Return the rule, every setting of the grid, and the larger class or the mean."""
    grid = {
        f"share {share}, {passes} passes, clip {clip}": {"moment_share": share, "passes": passes, "clip": clip}
        for share, passes, clip in product(SHARES, PASSES, CLIPS)
    }
    tuned = [Method(name, partial(evaluate, settings=each), ANY, "dbdp's") for name, each in grid.items()]
    constant = [method for method in REFERENCES if method.name == CONSTANT]
    return [Method(RULE, partial(evaluate, settings=None), ANY, "dbdp's"), *tuned, *constant]


# --- the table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regret:
    """Means of a table at one ε: of the rule, of the best setting of the grid, and of a constant."""

    dataset: str
    metric: str
    epsilon: float
    rule: float
    tuned: float
    setting: str
    constant: float

    @property
    def loss(self) -> float:
        """Points of accuracy or of AUC, or per cent of the root mean squared error."""
        return 100 * (self.rule / self.tuned - 1 if self.metric in LOSSES else self.tuned - self.rule)

    @property
    def line(self) -> str:
        """The row of the table."""
        numbers = (f"{each:.3g}" for each in (self.rule, self.tuned, self.constant))
        name = self.dataset.removeprefix(GENERATED)
        shown = (name, self.metric, f"{self.epsilon:g}", *numbers, f"{self.loss:.1f}", self.setting)
        return f"| {' | '.join(shown)} |"


HEADER = "| table | figure | ε | rule | tuned | constant | lost | tuned setting |\n|---|---|---|---|---|---|---|---|"


Values = dict[str, dict[int, float]]  # by method, by split


def regrets(results: Iterable[cells.Result]) -> list[Regret]:
    """Return the regret of every table, figure and ε of which the rule and the whole grid have two splits or more."""
    values: dict[tuple[str, str, float | None], Values] = {}
    for each in results:
        for metric, value in each.figures.items():
            key = (each.cell.dataset, metric, each.cell.epsilon)
            values.setdefault(key, {}).setdefault(each.cell.method, {})[each.cell.split] = value
    names = [method.name for method in methods() if method.private]
    return [
        of_cell(*key, {name: every[name] for name in names}, values.get((*key[:2], None), {}))
        for key, every in values.items()
        if key[2] is not None and all(len(every.get(name, {})) > 1 for name in names)
    ]


def of_cell(dataset: str, metric: str, epsilon: float, private: Values, public: Values) -> Regret:
    """Return the regret of one figure on one table at one ε.

    Each half of the splits chooses the setting that the other half measures: otherwise the luckiest would win.
    """
    grid = {name: values for name, values in private.items() if name != RULE}
    halves = [[split for split in private[RULE] if split % 2 == half] for half in (0, 1)]
    pairs = zip(halves, reversed(halves), strict=True)
    tuned = statistics.fmean(mean(grid[best(grid, metric, chosen)], measured) for chosen, measured in pairs)
    every = list(private[RULE])
    constant = mean(public[CONSTANT], list(public[CONSTANT])) if CONSTANT in public else math.nan
    rule = mean(private[RULE], every)
    return Regret(dataset, metric, epsilon, rule, tuned, best(grid, metric, every), constant)


def best(grid: Values, metric: str, splits: list[int]) -> str:
    """Return the setting with the best mean over these splits."""
    return (min if metric in LOSSES else max)(grid, key=lambda name: mean(grid[name], splits))


def mean(values: dict[int, float], splits: list[int]) -> float:
    """Return the mean over these splits, NaN for one without a result."""
    return statistics.fmean(values.get(split, math.nan) for split in splits)


def main() -> int:
    """Train what is missing, then write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=__doc__)
    parser.add_argument("--only", default=",".join(TABLES), help="tables, separated by commas; default: all")
    parser.add_argument("--splits", type=int, default=2, help="random splits, at least 2, 80 %% for training")
    parser.add_argument("--folder", type=Path, default=Path("build/regret"), help="of results and table")
    options = parser.parse_args()
    path, every = options.folder / "results.jsonl", methods()
    planned = cells.planned(options.only.split(","), every, options.splits)
    try:
        for cell in track(cells.remaining(planned, cells.read(path)), "Training", console=CONSOLE):
            cells.append(path, cells.measured(cell, every))
    except KeyboardInterrupt:
        CONSOLE.print("Interrupted: the same command goes on from here.")
        return 130
    text = "\n".join([HEADER, *(each.line for each in regrets(cells.read(path)))])
    (options.folder / "table.md").write_text(f"{text}\n", encoding="utf-8")
    CONSOLE.print(Markdown(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
