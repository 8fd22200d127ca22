"""DP-AGD: gradient descent that tests every noisy direction, and measures the gradient again where it fails.

Lee & Kifer 2018, Algorithm 2, as privacy.md §8 repairs it. Each iteration measures the sum of clipped
gradients, then selects privately among some step sizes, including 0, along the unit vector of that direction;
where 0 is selected, the same gradient is measured again and the two measurements are averaged.

Differences from the paper. Neighbours are replace-one: a sum of gradients moves by 2C. A filter is charged for
every access before the access, and one that exceeds the rest ends the run, in the inner loop too. The raw
sum is stored, and a copy of it is normalised, so that measurements are averaged at one scale with
the weights ρ_old and ρ - ρ_old. ρ follows from (ε, δ) by the tight conversion. The selection is by the exponential
mechanism, ε²/8-zCDP. The losses of a row of norm at most 1 differ little between near candidates: the selection's
noise shrinks with the largest step. The regulariser is added to the mean gradient before its norm is computed. The
largest step never exceeds the first one, as in the authors' program (in the text it may): the largest of
τ noisy choices is too large rather than too small, and the range would grow with the noise. By default the
directions have momentum, less of it after each 0; the step sizes are halves of one another, and a mean of the selected
models is released. All of that depends on released and public values alone, and half as many selections come as far.

The unspent rest at the end is less than the cost of one more measurement and selection; it is not refunded.
Shapes: a model is (P,), candidates are (m, P).
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dbdp.algorithms import noisy_sums, settings
from dbdp.algorithms.declared_options import LEARNING, Options, anything, own_settings
from dbdp.algorithms.families.noisy_search.access_prices import AllRows, MiniBatches, Prices, most_selections
from dbdp.algorithms.families.noisy_search.agd_settings import EQUAL, EXPONENTIAL, AgdSettings
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Progress, Rows
from dbdp.learning.objectives import Objective, projected
from dbdp.privacy.accounting.events import (
    Release,
)
from dbdp.privacy.accounting.filters import Filter
from dbdp.privacy.accounting.padding import LEAKED, PoissonSamples
from dbdp.privacy.mechanisms import Gaussian
from dbdp.privacy.noisy_min import NoisyMin
from dbdp.privacy.selection import ExponentialMechanism

OPTIONS = Options(
    {
        **LEARNING,
        **anything("batch_size", "radius", "clip_norm", "network"),
        "mechanism": (Gaussian.name,),
    },
    {"step_size": "give largest_step in settings", "epochs": "give splits in settings"},
    AgdSettings,
)


def dp_agd_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a DP-AGD release."""
    _check_delta(request)
    own = own_settings(request, AgdSettings)
    objective = settings.objective_of(request, facts)
    settings.check_numbers(own.step_candidates, objective.parameters, "give fewer step_candidates in settings")
    batch_size = facts.rows if request.batch_size is None else settings.batch_size_of(request, facts.rows)
    prices: Prices = AllRows.of(request, own)
    if batch_size < facts.rows:
        noised = replace(request, delta=request.delta * (1 - LEAKED))  # the rest: what cutting leaks
        prices = MiniBatches.of(noised, own, batch_size / facts.rows, facts.least_order)
    samples = settings.samples_of(request, facts, prices.probability, 2 * most_selections(prices, own))
    descent = AgdDescent(
        objective=objective,
        own=own,
        prices=prices,
        samples=samples,
        rows=facts.rows,
        batch_size=batch_size,
        clip=noisy_sums.clip_of(request, objective),
        loss_limit=own.loss_clip * noisy_sums.models_worth(objective, facts),
        regularisation=settings.regularisation_of(request, settings.SEARCH_REGULARISATION),
        radius=settings.radius_of(request, settings.loss_of(request, facts)),
    )
    guarantee = Release(samples.event(prices.event), request.epsilon, request.delta)
    details = descent.details() | ({} if prices.probability == 1 else settings.shown_samples(request, samples))
    return NoisyWhileTraining(request, facts, guarantee, details, descent)


def _check_delta(request: Request) -> None:
    """Raise ValueError for δ = 0."""
    if request.delta == 0:
        raise ValueError("delta = 0: dp_agd is accounted by concentrated privacy, which needs a delta > 0; give one")


@dataclass(frozen=True)
class AgdDescent:
    """The descent as planned, from public facts only."""

    objective: Objective
    own: AgdSettings
    prices: Prices
    samples: PoissonSamples  # the mini-batches of the accesses; with probability 1 they read all rows
    # rows, batch_size: n, and the (expected) number of rows of an access: n without mini-batches.
    rows: int
    batch_size: int
    # clip, loss_limit: the largest norm of a row's gradient, and the largest loss of a row.
    clip: float
    loss_limit: float
    regularisation: float
    radius: float

    def __call__(self, rows: Rows, progress: Progress) -> np.ndarray:
        """Descend while the budget pays for a measurement and its selection; return a mean of the models, shape (P,).

        `rho` is the sum of ρ for the gradient at this model, `known` the part of it measured so far, `taken` the last
        direction of a step.
        """
        accesses, steps, mean = _Accesses(self, rows), _StepSizes(self.own), _Mean(self.own.mean_weight)
        model, raw = self.objective.initial(), np.zeros(self.objective.parameters)
        taken = np.zeros_like(raw)
        rho, known, most = self.prices.gradient_rho, 0.0, self.most_selections
        for selections in range(1, most + 1):
            if not accesses.afforded(rho - known):
                break
            raw = (known * raw + (rho - known) * accesses.measured(model, rho - known)) / rho
            direction = raw / self.batch_size + self.regularisation * model + self.own.momentum * taken
            candidates = self.candidates(model, direction, steps.candidates())
            chosen = accesses.selected(candidates)
            progress("selection", selections, most)
            if chosen:
                model, taken, known = candidates[chosen], direction, 0.0
                steps.record(chosen)
            else:
                rho, known, taken = rho * (1 + self.own.growth), rho, taken / 2
            mean.add(model)
        return mean.of(model)

    def candidates(self, model: np.ndarray, direction: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return a model for each step size against the normalised direction, shape (m, P)."""
        norm = float(np.linalg.norm(direction))
        models = model - np.outer(steps, direction / norm if norm > 0 else direction)
        return projected(models, self.radius)

    @property
    def summed(self) -> noisy_sums.Summed:
        """How the sums of an access are computed."""
        return noisy_sums.Summed.of_objective(self.samples.size, self.objective)

    def noise(self, model: np.ndarray, rho: float) -> Gaussian:
        """Return the noise of a measurement at a model."""
        evaluated = noisy_sums.gradient_error(self.objective, model, self.clip)
        return self.prices.noise(self.clip, self.summed, self.objective.parameters, rho, evaluated)

    def selection(self, candidates: np.ndarray, penalties: np.ndarray) -> ExponentialMechanism | NoisyMin:
        """Return the mechanism that selects, with noise for the candidates' clipped losses."""
        sensitivity = noisy_sums.compared_sensitivity(
            self.loss_limit,
            self.summed,
            spread=noisy_sums.spread_of(self.objective, candidates),
            added=float(penalties.max()),
            evaluated=noisy_sums.loss_error(self.objective, candidates),
        )
        kind = ExponentialMechanism if self.own.selection == EXPONENTIAL else NoisyMin
        return kind(self.prices.selection_epsilon, sensitivity)

    @cached_property
    def most_selections(self) -> int:
        """The largest number of selections."""
        return most_selections(self.prices, self.own)

    @cached_property
    def least_selections(self) -> int:
        """The smallest number of selections, which is reached if the first selections are 0 and the others are not.

        Proof. A first measurement costs more after a 0 than before it, and the cost of a 0 depends on the
        zeros before it alone: of all orders of k zeros and other selections, zeros first cost most.
        """
        spent, fewest = 0.0, self.most_selections
        for zeros, (first, more) in enumerate(self._prices_after_zeros()):
            spent += first if zeros == 0 else 0.0
            if spent > self.prices.limit:
                break
            fewest = min(fewest, zeros + 1 + math.floor((self.prices.limit - spent) / first))
            spent += more
            if spent > self.prices.limit:
                fewest = min(fewest, zeros + 1)
        return max(fewest, 1)

    def _prices_after_zeros(self) -> Iterator[tuple[float, float]]:
        """Yield, after 0, 1, … zeros, the costs of a first measurement and of one after a 0, with their selections."""
        rho, selection = self.prices.gradient_rho, self.prices.selection_charge
        while True:
            first, more = (self.prices.gradient_charge(each) for each in (rho, self.own.growth * rho))
            yield first + selection, more + selection
            rho *= 1 + self.own.growth

    def details(self) -> dict[str, Any]:
        """Return the details for `explain`; noise scales are those of the first measurement and selection."""
        prices, parameters = self.prices, self.objective.parameters
        noise = self.noise(self.objective.initial(), prices.gradient_rho)
        return {
            "batch_size": self.batch_size,
            **prices.details(),
            "sampling_rate": prices.probability,
            "parameters": parameters,
            "steps": self.most_selections,
            "selections_at_least": self.least_selections,
            "selections_at_most": self.most_selections,
            "expected_passes": 2 * self.most_selections * prices.probability,
            "regularisation": self.regularisation,
            **({"radius": self.radius} if math.isfinite(self.radius) else {}),
            "clip_norm": self.clip,
            "loss_limit": self.loss_limit,
            **asdict(self.own),
            "mechanism": noise.name,
            "noise_scale": noise.noise_scale,
            "selection_epsilon": prices.selection_epsilon,
        }


class _StepSizes:
    """The step sizes to select from; their range adapts to the selected steps (Lee & Kifer 2018 §5)."""

    def __init__(self, own: AgdSettings) -> None:
        self._own, self._largest = own, own.largest_step
        self._taken: list[float] = []

    def candidates(self) -> np.ndarray:
        """Return the step sizes, ascending from 0, shape (m,)."""
        if self._own.step_sizes == EQUAL:
            return np.linspace(0.0, self._largest, self._own.step_candidates)
        halvings = np.arange(self._own.step_candidates - 2, -1, -1)
        return np.concatenate([[0.0], self._largest * 0.5**halvings])

    def record(self, number: int) -> None:
        """Record a selected step; after τ of them the largest becomes (1 + η) times theirs, up to the first one."""
        self._taken.append(float(self.candidates()[number]))
        if len(self._taken) == self._own.step_window:
            wider = (1 + self._own.step_growth) * max(self._taken)
            self._largest, self._taken = min(wider, self._own.largest_step), []


class _Mean:
    """The mean of some models, in which each weighs a share of the next one; the last alone for a share of 0.

    They are released values, from which any function may be computed (privacy.md §8).
    """

    def __init__(self, share: float) -> None:
        self._share, self._weight = share, 0.0
        self._sum: Any = 0.0

    def add(self, model: np.ndarray) -> None:
        """Add a model (P,)."""
        self._sum, self._weight = self._share * self._sum + model, self._share * self._weight + 1

    def of(self, first: np.ndarray) -> np.ndarray:
        """Return the mean, shape (P,); `first` where there is no model."""
        return np.asarray(self._sum / self._weight) if self._weight else first


class _Accesses:
    """The accesses of one run: each is charged first, and reads a new mini-batch, or all rows."""

    def __init__(self, descent: AgdDescent, rows: Rows) -> None:
        self._descent, self._prices, self._rows = descent, descent.prices, rows
        self._filter = Filter(descent.prices.limit)
        self._batches: Iterator[int] = iter(())
        if self._prices.probability == 1:
            rows.pack()

    def afforded(self, rho: float) -> bool:
        """Return whether the budget pays for a measurement and the selection after it."""
        charge = self._prices.gradient_charge(rho) + self._prices.selection_charge
        return self._filter.affords(math.nextafter(charge, math.inf))  # the sum was rounded

    def measured(self, model: np.ndarray, rho: float) -> np.ndarray:
        """Return the noisy sum of the clipped gradients at a model, shape (P,)."""
        descent = self._descent
        self._filter.spend(self._prices.gradient_charge(rho))
        noise = descent.noise(model, rho)
        return noisy_sums.noisy_gradient_sum(
            self._rows, descent.objective, model, clip=descent.clip, noise=noise, batch=self._batch()
        )

    def selected(self, candidates: np.ndarray) -> int:
        """Return the index of a candidate, selected by the regularised sums of losses."""
        descent = self._descent
        self._filter.spend(self._prices.selection_charge)
        penalties = noisy_sums.penalties(candidates, descent.regularisation, descent.batch_size)
        sums = self._rows.loss_sums(descent.objective, candidates, limit=descent.loss_limit, batch=self._batch())
        return descent.selection(candidates, penalties).choose((sums + penalties).tolist())

    def _batch(self) -> int | None:
        """Return the index of a new mini-batch, or None for all rows."""
        if self._prices.probability == 1:
            return None
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(range(self._rows.draw(self._descent.samples, self._most())))
            batch = next(self._batches)
        return batch

    def _most(self) -> int:
        """Return a public bound on the number of remaining accesses, including this one."""
        descent = self._descent
        share = self._filter.remaining / self._prices.limit
        return 2 * math.ceil(share * descent.most_selections) + 2
