"""Noisy backtracking line search, and the descent of DP-BLSGD, DP-BLSGD-AC and DP-BLGD.

Chen & Lee 2020, Algorithms 1 and 2, as privacy.md §9 corrects them. Their Theorem 3, which charges a search
with Gaussian noise αρ whatever the number of candidates, is false and not used; nor is Theorem 2. A search is
`AboveThreshold` with Laplace noise: pure ε. Every access is charged to a filter *before* a row is read.
Shapes: a model is (P,), the candidates of a search are (C, P).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from dbdp import checks
from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import LEARNING, OwnSettings, Values, anything, number
from dbdp.algorithms.noisy_sums import (
    Summed,
    clip_of,
    compared_sensitivity,
    gaussian_sum,
    gradient_error,
    loss_error,
    models_worth,
    noisy_gradient_sum,
    penalties,
    spread_of,
)
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Progress, Rows
from dbdp.learning.objectives import Linear, Objective, projected
from dbdp.privacy.accounting.events import MIN_EPSILON, Release
from dbdp.privacy.accounting.filters import Filter
from dbdp.privacy.mechanisms import Gaussian
from dbdp.privacy.selection import AboveThreshold

Batches = Callable[[Rows], Iterator[int | None]]
NETWORK_STEP = 8.0  # the first candidate for a network: 1 was often accepted at once
LEAST_STEP = 1e-9  # of the planned first candidate: a search never begins below it
SCHEDULE = "line_search"
SHARED: dict[str, Values] = {  # the options of every line search
    **LEARNING,
    **anything("step_size", "radius", "clip_norm", "network"),
    "schedule": (SCHEDULE,),
    "averaging": ("none",),
    "mechanism": (Gaussian.name,),
}
REMEDIES = {"epochs": "give planned_steps in settings"}


@dataclass(frozen=True)
class Searching(OwnSettings):
    """The settings of every line search, with the paper's defaults where it has them."""

    network_defaults: ClassVar[Mapping[str, Any]] = {"armijo": 0.001}

    planned_steps: int = number(50, 1, 100_000, "number of steps for which the first budgets last; they only grow")
    armijo: float = number(
        0.5, 1e-6, 1 - 1e-6, "α, the share of η‖g‖² by which the objective must fall; 0.001 for networks"
    )
    shrink: float = number(0.8, 1e-3, 1 - 1e-3, "β, factor of the step after each failed candidate")
    candidates: int = number(15, 1, 1000, "steps that one search tries")
    search_share: float = number(
        0.5, 0.01, 0.99, "share of the budget that is planned for the searches; the gradients use the rest"
    )
    growth: float = number(0.3, 0.01, 100, "ξ, relative growth of a budget after a failure")
    memory: int = number(10, 1, 10**6, "number of accepted steps after which the first candidate falls")
    restart: float = number(1.2, 1, 100, "the first candidate then falls to this × the largest of those steps")
    loss_clip: float = number(
        3.0,
        1e-6,
        1e6,
        "a row's loss is clipped to this for each model; to this · log₁₀ K for a network of K > 10 classes",
    )

    def __post_init__(self) -> None:
        """Check the ranges, and that the last candidate is not too small."""
        super().__post_init__()
        checks.between("shrink^candidates", self.shrink**self.candidates, 1e-30, 1)


class GradientSensitivity(Protocol):
    """A function that bounds the change of a sum of clipped gradients by one record, see `noisy_sums`."""

    def __call__(self, clip: float, summed: Summed, *, evaluated: float = 0.0) -> float:
        """Return the bound for such sums of gradients of norm at most `clip`."""


@dataclass(frozen=True)
class Accounting:
    """The costs of accesses, in one kind of charge, and the first budgets."""

    limit: float  # the largest cost of all accesses together
    gradient: Callable[[float], float]  # cost of a noisy sum of gradients, by its noise multiplier
    search: Callable[[float], float]  # cost of a search, by its ε when all rows are read
    sensitivity: GradientSensitivity  # sensitivity of a sum of gradients; the noise is a multiple of it
    # multiplier, epsilon: noise multiplier of the first gradient, and ε of the first search.
    multiplier: float
    epsilon: float


@dataclass(frozen=True)
class Estimate:
    """A noisy mean gradient with the regulariser, shape (P,), and its precision, 1 ÷ the variance of its noise."""

    direction: np.ndarray
    precision: float

    def averaged(self, other: "Estimate") -> "Estimate":
        """Return the weighted mean, with least variance, of two estimates at the same model (§9.8)."""
        precision = self.precision + other.precision
        direction = (self.precision * self.direction + other.precision * other.direction) / precision
        return Estimate(direction, precision)


class Adaptation(Protocol):
    """The interface of the rule that changes the budgets of one run from its released values."""

    def multiplier(self, run: "Run") -> float:
        """Return the noise multiplier of the second gradient, after a search without a result."""

    def failed(self, run: "Run", first: Estimate, second: Estimate) -> None:
        """Update the budgets from both gradients after a failed search, before the next one."""

    def stepped(self, direction: np.ndarray) -> None:
        """Update the state after a step against a direction."""


@dataclass(frozen=True)
class SearchDescent:
    """A descent as planned, from public facts only."""

    objective: Objective
    searching: Searching
    accounting: Accounting
    adaptation: Callable[[], Adaptation]  # returns a new rule for each run
    batches: Batches  # yields the mini-batch of each access, None for all rows; its expected number of rows is `size`
    # rows, packed: n, and the largest number of rows of an access: n, or that to which mini-batches are padded.
    rows: int
    packed: int
    size: float
    regularisation: float
    radius: float
    # first_step, clip, loss_limit: initial values.
    first_step: float
    clip: float
    loss_limit: float
    searches: int  # the largest number of searches

    @property
    def summed(self) -> Summed:
        """How the sums of an access are computed."""
        return Summed.of_objective(self.packed, self.objective)

    def noise(self, model: np.ndarray, clip: float, multiplier: float) -> Gaussian:
        """Return the noise of a sum of gradients at a model, each of norm at most `clip`."""
        evaluated = gradient_error(self.objective, model, clip)
        sensitivity = self.accounting.sensitivity(clip, self.summed, evaluated=evaluated)
        return gaussian_sum(sensitivity, self.objective.parameters, multiplier=multiplier)

    def __call__(self, rows: Rows, progress: Progress) -> np.ndarray:
        """Descend while the budget pays for the next accesses; return the model, shape (P,).

        Every decision depends on noisy or public values alone.
        """
        run = Run(self, rows)
        while run.affords(run.multiplier):
            estimate = run.gradient(run.multiplier)
            step = run.search(estimate)
            while step is None and run.affords(again := run.adaptation.multiplier(run)):
                second = run.gradient(again)
                run.adaptation.failed(run, estimate, second)
                estimate = estimate.averaged(second)
                step = run.search(estimate)
            if step is None:
                break
            run.move(estimate, step)
            progress("search", run.searched, self.searches)
        progress("search", self.searches, self.searches)
        return run.model


class Run:
    """A descent in progress. All its attributes are public, or functions of released values."""

    def __init__(self, plan: SearchDescent, rows: Rows) -> None:
        """Begin with the planned values."""
        self.plan, self.rows = plan, rows
        self.filter, self.batches = Filter(plan.accounting.limit), plan.batches(rows)
        self.adaptation = plan.adaptation()
        self.model = plan.objective.initial()
        # Values for the next accesses.
        self.multiplier, self.epsilon = plan.accounting.multiplier, plan.accounting.epsilon
        self.clip, self.loss_limit, self.first_step = plan.clip, plan.loss_limit, plan.first_step
        self.searched = 0  # number of searches so far
        self._taken: list[float] = []

    def affords(self, multiplier: float, epsilon: float | None = None) -> bool:
        """Return whether the budget pays for a gradient and a search; None stands for the present ε."""
        costs = self.plan.accounting
        together = costs.gradient(multiplier) + costs.search(self.epsilon if epsilon is None else epsilon)
        within = together < math.inf and self.filter.affords(math.nextafter(together, math.inf))
        return within and self.searched < self.plan.searches

    def gradient(self, multiplier: float) -> Estimate:
        """Return a noisy gradient at the model, from a new mini-batch."""
        plan = self.plan
        self.filter.spend(plan.accounting.gradient(multiplier))
        noise, batch = plan.noise(self.model, self.clip, multiplier), next(self.batches)
        total = noisy_gradient_sum(self.rows, plan.objective, self.model, clip=self.clip, noise=noise, batch=batch)
        scale = noise.noise_scale / plan.size
        return Estimate(total / plan.size + plan.regularisation * self.model, scale**-2)

    def search(self, estimate: Estimate) -> float | None:
        """Return the first step above a noisy threshold, from a new mini-batch, or None."""
        plan = self.plan
        steps = self.first_step * plan.searching.shrink ** np.arange(plan.searching.candidates)
        models = np.stack([self.model, *(self.moved(estimate, step) for step in steps)])
        self.filter.spend(plan.accounting.search(self.epsilon))
        self.searched += 1
        sums = self.rows.loss_sums(plan.objective, models, limit=self.loss_limit, batch=next(self.batches))
        values = compared(plan, models, steps, sums, self.loss_limit)
        index = threshold_of(self.epsilon).first_above(values, 0.0)
        return None if index is None else float(steps[index])

    def moved(self, estimate: Estimate, step: float) -> np.ndarray:
        """Return the model after a step, projected onto the ball."""
        return projected(self.model - step * estimate.direction, self.plan.radius)

    def move(self, estimate: Estimate, step: float) -> None:
        """Apply and record an accepted step; after `memory` of them reduce the first candidate."""
        self.model = self.moved(estimate, step)
        self._taken.append(step)
        if len(self._taken) == self.plan.searching.memory:
            nearer = max(self.plan.searching.restart * max(self._taken), LEAST_STEP * self.plan.first_step)
            self.first_step = min(nearer, self.first_step)
            self._taken.clear()
        self.adaptation.stepped(estimate.direction)


def compared(plan: SearchDescent, models: np.ndarray, steps: np.ndarray, sums: np.ndarray, limit: float) -> list[float]:
    """Return by how much the fall of the objective exceeds the Armijo condition, per unit of its sensitivity.

    There is one value for each candidate; the first model is the present one. The condition is for sums: the losses
    of the mini-batch and qn times the regulariser must fall by qn·α‖w⁺ - w‖²/η, or qn·αη‖g‖² without a ball (§9.3).
    Proof. What depends on no row is a public number D_i. One record moves Σℓ(w) - Σℓ(w_i) - D_i by at most
    2s_i (`half_range` of these two models), and by at most s_i when it leaves the mini-batch. To divide by the
    public 2s_i > 0 changes no comparison with the threshold 0, so every value has sensitivity 1, or 1/2. The
    two differences and the quotient err by less than 3u·b·limit + 2u|D_i| in either world, which the margin of s_i
    covers. ∎
    """
    moved = models[1:] - models[0]
    penalty = penalties(models, plan.regularisation, plan.size)
    demanded = plan.size * plan.searching.armijo * np.einsum("ij,ij->i", moved, moved) / steps
    demanded += penalty[1:] - penalty[0]
    halves = [half_range(plan, models[[0, i + 1]], limit, abs(public)) for i, public in enumerate(demanded.tolist())]
    return ((sums[0] - sums[1:] - demanded) / (2 * np.array(halves))).tolist()


def half_range(plan: SearchDescent, pair: np.ndarray, limit: float, added: float) -> float:
    """Return s: one record moves the difference of two models' sums by at most 2s if replaced, s if removed."""
    spread, evaluated = spread_of(plan.objective, pair), loss_error(plan.objective, pair)
    return compared_sensitivity(limit, plan.summed, spread=spread, added=added, evaluated=evaluated)


def threshold_of(epsilon: float) -> AboveThreshold:
    """Return the search with pure ε = ε₁ + 2ε₂, ε₁ = ε/2 as in Algorithm 1, over values of sensitivity 1."""
    return AboveThreshold(epsilon / 2, epsilon / 4, 1.0)


def angle_between(one: np.ndarray, other: np.ndarray) -> float:
    """Return the angle between two directions in radians; π/2 if one of them is 0."""
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return math.acos(max(-1.0, min(1.0, float(one @ other) / lengths))) if lengths > 0 else math.pi / 2


# --- plans ----------------------------------------------------------------------------------------------


def check_delta(request: Request) -> None:
    """Raise ValueError for δ = 0."""
    if request.delta == 0:
        raise ValueError(
            f"delta = 0: algorithm {request.algorithm!r} adds Gaussian noise, which has no pure guarantee; "
            "give a delta > 0, such as 1e-6, or choose bolt_on"
        )


def first_step_of(request: Request, objective: Objective, regularisation: float) -> float:
    """Return the first candidate step: 8/β by default, or `NETWORK_STEP`, as the β of a network is unknown.

    Without noise α = 1/2 accepts every step up to 1/β, whatever the rows; along a gradient few data have
    that curvature. By default the last candidate is 0.35/β.
    """
    if request.step_size is not None:
        checks.between("step_size", request.step_size, 1e-9, 1e6)
        return float(request.step_size)
    if isinstance(objective, Linear):
        return 8 / (objective.loss.smoothness + regularisation)
    return NETWORK_STEP


def descent(
    request: Request,
    facts: Facts,
    searching: Searching,
    accounting: Accounting,
    *,
    adaptation: Callable[[], Adaptation],
    batches: Batches,
    packed: int,
    size: float,
    searches: int,
) -> SearchDescent:
    """Return the planned descent of a request."""
    objective, loss = settings.objective_of(request, facts), settings.loss_of(request, facts)
    settings.check_numbers(searching.candidates + 1, objective.parameters, "give fewer candidates in settings")
    regularisation = settings.regularisation_of(request, settings.SEARCH_REGULARISATION)
    planned = SearchDescent(
        objective=objective,
        searching=searching,
        accounting=accounting,
        adaptation=adaptation,
        batches=batches,
        rows=facts.rows,
        packed=packed,
        size=size,
        regularisation=regularisation,
        radius=settings.radius_of(request, loss),
        first_step=first_step_of(request, objective, regularisation),
        clip=clip_of(request, objective),
        loss_limit=searching.loss_clip * models_worth(objective, facts),
        searches=searches,
    )
    if not threshold_of(1.0).query_epsilon * accounting.epsilon >= MIN_EPSILON:
        raise ValueError(
            f"epsilon = {request.epsilon:g} leaves {accounting.epsilon:g} for a search, which is too small for "
            f"{searching.planned_steps} of them; use a larger epsilon, or fewer planned_steps in settings"
        )
    return planned


def noisy_plan(
    request: Request, facts: Facts, guarantee: Release, run: SearchDescent, details: dict[str, Any]
) -> NoisyWhileTraining:
    """Return the plan of a descent; `details` are added to the common ones."""
    accounting = run.accounting
    noise = run.noise(run.objective.initial(), run.clip, accounting.multiplier)
    threshold = threshold_of(accounting.epsilon)
    everything: dict[str, Any] = {
        "batch_size": run.size,
        "sampling_rate": 1.0,
        **details,
        "steps": run.searches,
        "expected_passes": 2 * run.searches * run.size / run.rows,
        "schedule": SCHEDULE,
        "step_size": run.first_step,
        "regularisation": run.regularisation,
        "clip_norm": run.clip,
        **asdict(run.searching),
        "loss_limit": run.loss_limit,
        "parameters": run.objective.parameters,
        "mechanism": noise.name,
        "noise_multiplier": accounting.multiplier,
        "noise_scale": noise.noise_scale,
        "threshold_epsilon": threshold.threshold_epsilon,
        "query_epsilon": threshold.query_epsilon,
        **({"radius": run.radius} if math.isfinite(run.radius) else {}),
    }
    return NoisyWhileTraining(request, facts, guarantee, everything, run)
