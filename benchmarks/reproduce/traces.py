"""Watched runs of DP-AGD and DP-BLSGD: their steps, gradients and noise, which no release has.

The plan's own run reads the rows of the database through an object that notes what it asks for. It is run by the
owner of the rows for the picture, and released to nobody.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.reproduce.cells import Cell, Measured, Result
from benchmarks.reproduce.database import ArrayDatabase, request_of
from benchmarks.reproduce.figures import AUTO
from benchmarks.reproduce.values import accuracy, loss_of, objective
from dbdp.algorithms import plan
from dbdp.algorithms.families.noisy_search import line_search
from dbdp.controller.facts import facts
from dbdp.controller.packed_rows import packed_rows
from dbdp.privacy.accounting.filters import Filter
from dbdp.registry.datasets import load
from dbdp.sessions.client import ClientSession

PREFIX = "watched:"
RATIOS = (0.01, 0.1, 0.5)  # of Figure 2 of DP-BLSGD
NETWORK = {"network": "mlp:64", "clip_norm": 3.0, "batch_size": 400}
FEW_DIGITS = "mnist:rows=10000"
TRAINED = 39_074  # four fifths of Adult


@dataclass
class Watched:
    """Rows that note every model at which a gradient or losses are summed."""

    rows: Any
    models: list[np.ndarray] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)  # standard deviations
    steps: list[float] = field(default_factory=list)  # of line searches
    spent: list[float] = field(default_factory=list)  # share of the budget, after each access
    searches: int = 0

    def gradient_sum(self, objective: Any, model: np.ndarray, **options: Any) -> np.ndarray:
        """Note a model, and pass the request on."""
        self.models.append(model.copy())
        return self.rows.gradient_sum(objective, model, **options)

    def loss_sums(self, objective: Any, models: np.ndarray, **options: Any) -> np.ndarray:
        """Count a search, and pass the request on."""
        self.searches += 1
        return self.rows.loss_sums(objective, models, **options)

    def __getattr__(self, name: str) -> Any:
        """Return whatever else rows have."""
        return getattr(self.rows, name)


def measure(database: ArrayDatabase, cell: Cell) -> Measured:
    """Watch a run over the rows in the database."""
    task = database.place(cell)
    session, request = ClientSession(database.connection), request_of(cell, PREFIX)
    dataset = load(session, database.name)
    planned = plan(request, facts(dataset, request))
    with packed_rows(session, dataset, planned.layout) as rows:
        watched = Watched(rows)
        with noting(type(planned.method), watched):
            planned.run(watched)
    size = getattr(planned.method, "size", None) or planned.method.batch_size
    scale = np.sqrt(planned.method.objective.parameters) / size
    steps = watched.steps or [float(np.linalg.norm(b - a)) for a, b in pairwise(watched.models)]
    counted = {"gradients": len(watched.models), "searches": watched.searches, "rows_read": len(watched.models) * size}
    noise = [each * float(scale) for each in watched.noise]
    own = planned.method.regularisation
    along = {} if request.network else along_the_way(task, cell.loss, watched.models, own)
    return {"steps": steps, "noise": noise, "spent": watched.spent, **along, **counted}


@contextmanager
def noting(descent: type, watched: Watched) -> Iterator[None]:
    """Note the noise of each measurement, each accepted step of a search and each charge, within the block."""
    noise, move, spend = descent.noise, line_search.Run.move, Filter.spend  # type: ignore[attr-defined]

    def noted(self: Any, *arguments: Any) -> Any:
        made = noise(self, *arguments)
        watched.noise.append(float(made.noise_scale))
        return made

    def moved(self: line_search.Run, estimate: line_search.Estimate, step: float) -> None:
        watched.steps.append(step)
        move(self, estimate, step)

    def charged(self: Filter, charge: float) -> None:
        before = watched.spent[-1] if watched.spent else 0.0
        watched.spent.append(before + (1 - before) * charge / self.remaining)
        spend(self, charge)

    with (
        patch.object(descent, "noise", noted),
        patch.object(line_search.Run, "move", moved),
        patch.object(Filter, "spend", charged),
    ):
        yield


def along_the_way(task: Any, loss: str, models: Sequence[np.ndarray], regularisation: float) -> Measured:
    """Return the run's objective, with its λ, the norm of its gradient and its accuracy at each model."""
    kind, norms = loss_of(loss), []
    for model in models:
        slopes = kind.derivative(task.train @ model, task.train_labels)
        norms.append(float(np.linalg.norm(task.train.T @ slopes / len(task.train) + regularisation * model)))
    return {
        "gradient": norms,
        "objective": [objective(task, loss, model, regularisation) for model in models],
        "test_accuracy": [accuracy(task, model[None]) for model in models],
    }


# --- figures ---------------------------------------------------------------------------------------------------

Panels = list[dict[str, Any]]


@dataclass(frozen=True)
class Trace:
    """A figure of watched runs."""

    name: str
    title: str
    says: str
    watched: tuple[Cell, ...]
    panels: Callable[[Sequence[Result]], Panels]
    notes: Callable[[Sequence[Result]], list[str]]

    @property
    def command(self) -> str:
        """Return the command that makes it."""
        return f'make reproduce ARGS="--figure {self.name}"'

    def cells(self) -> tuple[Cell, ...]:
        """Return its runs, one each, and dbdp's default beside them."""
        adult = [replace(cell, method=AUTO, options="{}") for cell in self.watched if cell.dataset == "adult"]
        return (*self.watched, *dict.fromkeys(adult))


def trace(algorithm: str, epsilon: float, dataset: str = "adult", **options: Any) -> Cell:
    """Return the cell of a watched run."""
    return Cell(dataset, "logistic", PREFIX + algorithm, epsilon, 1e-8, json.dumps(options, sort_keys=True))


def accuracies(results: Sequence[Result]) -> dict[str, Any]:
    """Return the panel of the accuracy of each model of watched runs on Adult, beside that of dbdp's default."""
    lines = [curve(named(each), each.figures["test_accuracy"]) for each in watched_of(results)]
    last = max((len(line["x"]) for line in lines), default=2)
    for each in results:
        if each.cell.method == AUTO:
            label, value = f"dbdp (default), ε = {each.cell.epsilon:g}", each.figures["accuracy"]
            lines.append({"label": label, "x": [1, last], "y": [value, value], "ours": True})
    return {"title": "Adult: test accuracy of each model whose gradient is measured", "x": "measurement",
            "y": "test accuracy", "lines": lines}  # fmt: skip


def spending(results: Sequence[Result]) -> dict[str, Any]:
    """Return the panel of the budget that watched runs have spent."""
    lines = [curve(named(each), each.figures["spent"]) for each in results]
    return {"title": "budget spent, gradients and searches or selections", "x": "access", "y": "share", "lines": lines}


def watched_of(results: Sequence[Result], dataset: str = "adult") -> list[Result]:
    """Return the watched runs on a table."""
    return [each for each in results if each.cell.method != AUTO and each.cell.dataset == dataset]


def curve(label: str, values: Sequence[float]) -> dict[str, Any]:
    """Return values by their number."""
    return {"label": label, "x": list(range(1, len(values) + 1)), "y": list(values)}


def named(result: Result) -> str:
    """Return what distinguishes a run."""
    size = json.loads(result.cell.options).get("batch_size")
    rows = f"batches of {size}" if size else "all rows" if "blgd" in result.cell.method else ""
    return f"ε = {result.cell.epsilon:g}" + (f", {rows}" if rows else "")


def agd_panels(results: Sequence[Result]) -> Panels:
    """Return gradient beside noise, objective and steps of DP-AGD."""
    watched = watched_of(results)
    gradients = [curve(f"‖∇f‖, {named(each)}", each.figures["gradient"]) for each in watched]
    noises = [curve(f"noise √(E‖Y‖²), {named(each)}", each.figures["noise"]) for each in watched]
    objectives = [curve(f"objective, {named(each)}", each.figures["objective"]) for each in watched]
    steps = [curve(f"step length, {named(each)}", each.figures["steps"]) for each in watched]
    x = "measurement"
    return [
        {"title": "Adult: gradient and noise", "x": x, "y": "norm", "yscale": "log",
         "lines": [*gradients, *noises]},
        {"title": "objective", "x": x, "y": "objective", "lines": objectives},
        {"title": "length of the step; 0: the budget of the next measurement grows", "x": x, "y": "step",
         "lines": steps},
        spending(watched),
        accuracies(results),
    ]  # fmt: skip


def agd_notes(results: Sequence[Result]) -> list[str]:
    """Return what happened, in words."""
    return [
        f"{named(each)}: ‖∇f‖ {each.figures['gradient'][0]:.3f} → {min(each.figures['gradient']):.3f}, noise "
        f"{each.figures['noise'][0]:.2f} → {each.figures['noise'][-1]:.2f}, objective "
        f"{each.figures['objective'][0]:.3f} → {each.figures['objective'][-1]:.3f} in {each.figures['gradients']} "
        f"measurements, {each.figures['steps'].count(0)} of which led to no step"
        for each in watched_of(results)
    ]


def blsgd_panels(results: Sequence[Result]) -> Panels:
    """Return the counts by batch size, the steps, the noise and a network's steps of DP-BLSGD."""
    linear, digits = watched_of(results), watched_of(results, FEW_DIGITS)
    read = [int(each.figures["rows_read"]) for each in linear]
    calls = [each.figures["gradients"] + each.figures["searches"] for each in linear]
    ratios = [json.loads(each.cell.options).get("batch_size", TRAINED) / TRAINED for each in linear]
    x = "accepted step"
    panels: Panels = [
        {"title": "evaluations by sampling ratio, ε = 0.4", "x": "sampling ratio", "y": "number", "xscale": "log",
         "yscale": "log", "lines": [
             {"label": "gradients and searches", "x": ratios, "y": calls},
             {"label": "rows read for gradients", "x": ratios, "y": read}]},
        {"title": "Adult: step sizes", "x": x, "y": "η", "yscale": "log",
         "lines": [curve(named(each), each.figures["steps"]) for each in linear]},
        {"title": "Adult: noise of the measured gradients", "x": "measurement", "y": "√(E‖Y‖²)", "yscale": "log",
         "lines": [curve(named(each), each.figures["noise"]) for each in linear]},
        spending(linear),
        accuracies(results),
    ]  # fmt: skip
    for each in digits:
        panels.append({"title": "MNIST, mlp:64: step sizes", "x": x, "y": "η", "yscale": "log",
                       "lines": [curve(named(each), each.figures["steps"])]})  # fmt: skip
    return panels


def blsgd_notes(results: Sequence[Result]) -> list[str]:
    """Return the counts in words."""
    return [
        f"{each.cell.dataset}, {named(each)}: {each.figures['gradients']} gradients, {each.figures['searches']} "
        f"searches, {len(each.figures['steps'])} accepted steps, {int(each.figures['rows_read']):,} rows read for "
        "gradients"
        for each in results
        if each.cell.method != AUTO
    ]


TRACES = (
    Trace("trace-dp_agd", "DP-AGD, Table 1: gradients beside their noise, by steps",
          "A direction helps although its noise is far longer than the gradient. Where no step lowers the objective "
          "the budget of the next measurement grows, and the noise falls.",
          (trace("dp_agd", 0.1), trace("dp_agd", 0.8)), agd_panels, agd_notes),
    Trace("trace-dp_blsgd", "DP-BLSGD, Figures 2 and 5: evaluations, steps and noise",
          "A line search chooses its steps; small samples need far fewer rows. One run each; the last panel is of a "
          "network with 64 units on 8,000 digits.",
          (*(trace("dp_blsgd", 0.4, batch_size=round(ratio * TRAINED)) for ratio in RATIOS), trace("dp_blgd", 0.4),
           trace("dp_blsgd", 8, FEW_DIGITS, **NETWORK)), blsgd_panels, blsgd_notes),
)  # fmt: skip
TRACES_BY_NAME = {each.name: each for each in TRACES}
