"""Common parts of SGD with noise in every update: mini-batches, calibrated noise, and the loop.

privacy.md §5, §10, §14.8. Mini-batches are fixed and disjoint, over one secret permutation, or Poisson: every
row is in every one of them with the same probability. Each kind has its own accounting.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dbdp import checks
from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import LEARNING, Values, anything
from dbdp.algorithms.noisy_sums import Summed, clip_of, gradient_error, lipschitz_of, sampled_sensitivity
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Progress, Rows
from dbdp.learning.losses import LARGEST
from dbdp.learning.noisy import MOST_STEPS, NoisyState, NoisyTraining, UpdateNoise
from dbdp.learning.objectives import Linear, Objective
from dbdp.learning.schedules import Constant, InverseTime, Schedule, SquareRoot
from dbdp.privacy.accounting.events import Event, PoissonGaussianDpEvent, Release
from dbdp.privacy.accounting.loss_distribution import poisson_gaussian_pld_multiplier
from dbdp.privacy.accounting.padding import PoissonSamples
from dbdp.privacy.accounting.subsampling import poisson_gaussian_multiplier
from dbdp.privacy.mechanisms import ROOM, Gaussian, SphericalLaplace, covered_sensitivity, grid_for
from dbdp.privacy.sensitivity import REUSED

MOST_NORM = 2.0**16  # every linear model is projected onto this ball, which bounds the errors of its scores
COARSER = 2.0**8  # coarser grid of spherical noise, for faster rounding; g√P is still below 2⁻¹⁵ C
RDP, PLD = CALIBRATIONS = ("rdp", "pld")
SCHEDULES = (Constant.name, SquareRoot.name, InverseTime.name)
LOUDER = 2.5  # noise of a default in a score, relative to output perturbation's: later steps reduce it
UPDATES_PER_PASS = 50  # at most, by default: fewer and larger mini-batches have as little noise, and read rows as often
SHARED: dict[str, Values] = {  # the options of all SGD with noise in every update
    **LEARNING,
    **anything("epochs", "batch_size", "radius", "clip_norm"),
    "averaging": ("none",),
    "permutation": (REUSED,),
}
SAMPLED = SHARED | anything("step_size", "network") | {"schedule": SCHEDULES}  # with a choice of steps


@dataclass(frozen=True)
class Batches:
    """The mini-batches of a run: Poisson samples, or, if `samples` is None, fixed ones of `size` rows."""

    rows: int
    size: float  # rows of a mini-batch, for a Poisson one the expected number: the public divisor of the noisy sum
    updates: int  # total number of noisy updates
    samples: PoissonSamples | None = None  # the Poisson mini-batches, padded to a public size

    @property
    def probability(self) -> float | None:
        """Probability of a row to be in a Poisson mini-batch; None for fixed ones."""
        return None if self.samples is None else self.samples.probability

    @property
    def packed_rows(self) -> int:
        """Number of rows packed for one update."""
        return int(self.size) if self.samples is None else self.samples.size

    @property
    def passes(self) -> float:
        """Average number of times that a row is read."""
        return self.updates * (self.probability or self.size / self.rows)

    def scan(self, rows: Rows, states: list[NoisyState], progress: Progress) -> list[NoisyState]:
        """Return the states after all updates, as many Poisson mini-batches at a time as fit in memory."""
        done = 0
        if self.samples is None:
            rows.shuffle()
        while done < self.updates:
            if self.samples is None:
                steps, states = -(-self.rows // int(self.size)), rows.scan(states)
            else:
                steps, states = rows.scan_samples(self.samples, self.updates - done, states)
            done += steps
            progress("update", done, self.updates)
        return states


def fixed(request: Request, facts: Facts) -> Batches:
    """Return fixed mini-batches for the request's passes; the last one of a pass may be short."""
    size = settings.batch_size_of(request, facts.rows)
    return Batches(facts.rows, size, settings.epochs_of(request) * -(-facts.rows // size))


def poisson_size(request: Request, rows: int) -> int:
    """Return b, by default √m, or m/50 for a linear model if that is more."""
    least = 0 if request.network else rows / UPDATES_PER_PASS
    return request.batch_size or max(1, round(max(math.sqrt(rows), least)))


def poisson(request: Request, facts: Facts) -> Batches:
    """Return Poisson mini-batches whose expected size is the request's, for the expected passes."""
    size = poisson_size(request, facts.rows)
    checks.whole("batch_size", size, 1, facts.rows, "the expected rows of a mini-batch cannot exceed all rows")
    updates = max(1, round(settings.epochs_of(request) * facts.rows / size))
    samples = settings.samples_of(request, facts, size / facts.rows, updates)
    return Batches(facts.rows, float(size), updates, samples)


def step_noise(
    law: str, contribution: float, summed: Summed, parameters: int, multiplier: float, *, evaluated: float = 0.0
) -> tuple[UpdateNoise, float]:
    """Return the noise of one update, of scale multiplier × C*, and C*, the change of a computed sum by one row.

    C* = C + 2.02(D + 5)u·bC + g√P (privacy.md §14.8, see `noisy_sums.sampled_sensitivity`). With
    and without the row the sums, on the grid, are C* apart at most, with one row and with another 2C*. `evaluated`
    bounds the error of a row's gradient if its place in the mini-batch differs between the two.
    """
    largest = sampled_sensitivity(contribution, summed, evaluated=evaluated)
    spherical = law == SphericalLaplace.name
    spread = math.sqrt(parameters + 1) if spherical else 1.0  # a coordinate's deviation ÷ the scale
    grid = grid_for(largest, parameters, spread * multiplier) * (COARSER if spherical else 1)
    covered = covered_sensitivity(largest, parameters, grid)
    scale = covered * multiplier * ROOM
    if 64 * spread * scale / grid > MOST_STEPS:  # 64 deviations are never seen
        raise ValueError(f"noise of scale {scale:g} cannot be added exactly; choose a larger epsilon")
    return UpdateNoise(law, math.ceil(Fraction(scale) / Fraction(grid)), grid), covered


def contribution_of(request: Request, facts: Facts) -> tuple[float, float]:
    """Return the clip of a row's gradient, infinite without one, and C, the largest norm of a row's gradient.

    Both are of all outputs together: K linear models have one clip, as a network has for all its parameters. Without
    clipping see `noisy_sums.lipschitz_of`.
    """
    objective = settings.objective_of(request, facts)
    clip, together = clip_of(request, objective), lipschitz_of(objective)
    return (math.inf, together) if clip >= together else (clip, clip)


@dataclass(frozen=True)
class NoisySgd:
    """The updates of a release as planned."""

    batches: Batches
    trainings: tuple[NoisyTraining, ...]  # one for each separately trained output; all use the same mini-batches

    def __call__(self, rows: Rows, progress: Progress) -> np.ndarray:
        """Make the updates; return the models, concatenated. Every iterate is noisy, and may be released."""
        states = [NoisyState.initial(training) for training in self.trainings]
        states = self.batches.scan(rows, states, progress)
        return np.concatenate([state.model for state in states])


def objectives(request: Request, facts: Facts) -> tuple[Objective, ...]:
    """Return the separately trained objectives: one linear model for each output, or all of them, or the network.

    Linear models with a clip are trained together, since it is of all their gradients of a row.
    """
    objective = settings.objective_of(request, facts)
    if not isinstance(objective, Linear) or facts.outputs == 1 or contribution_of(request, facts)[0] < math.inf:
        return (objective,)
    targets = range(1, facts.outputs + 1)
    return tuple(Linear(objective.loss, facts.dimension, 1, target) for target in targets)


def travel_of(request: Request, facts: Facts, batches: Batches, deviation: float) -> float:
    """Return τ, a sum of step sizes after which the noise of the updates moves a row's score as intended.

    Each of T sums has noise of that deviation in a coordinate. T steps of τ/T on sums over b rows add up to noise of
    τ·deviation/(b√T), which is also that of 1/(λt) steps with τ = 1/λ. It is a default, on which no guarantee depends.
    """
    intended = LOUDER * settings.score_noise_of(settings.loss_of(request, facts))
    return intended * batches.size * math.sqrt(batches.updates) / deviation


def step_of(request: Request, facts: Facts, batches: Batches, deviation: float, regularisation: float) -> float:
    """Return the default step of a linear model: `travel_of` in equal steps of at most 2/β."""
    smoothness = settings.loss_of(request, facts).smoothness + regularisation
    return min(2 / smoothness, travel_of(request, facts, batches, deviation) / batches.updates)


def schedule_of(request: Request, facts: Facts, regularisation: float, *, default: str, step: float) -> Schedule:
    """Return the schedule: constant η, square_root η/√t, or inverse_time min(1/β, 1/(λt)); all are equally private.

    `step` is η if the request does not set it.
    """
    name = request.schedule or default
    size = step if request.step_size is None else settings.positive_step(request.step_size)
    checks.between("step_size", size, 0, LARGEST)
    if name == Constant.name:
        return Constant(size)
    if name == SquareRoot.name:
        return SquareRoot(2 / size, 0.0)
    if regularisation == 0 or request.network is not None:
        raise ValueError(f"schedule {name!r} needs a linear model and regularisation > 0; choose {Constant.name!r}")
    return InverseTime(settings.loss_of(request, facts).smoothness + regularisation, regularisation)


def trainings(
    request: Request,
    facts: Facts,
    batches: Batches,
    noise: UpdateNoise,
    schedule: Schedule,
    *,
    regularisation: float,
    moments: tuple[float, float, float] | None = None,
    radius: float | None = None,
) -> tuple[NoisyTraining, ...]:
    """Return the trainings of all objectives; `radius` None stands for the request's."""
    clip, _ = contribution_of(request, facts)
    ball = settings.radius_of(request, settings.loss_of(request, facts)) if radius is None else radius
    ball = min(ball, MOST_NORM)
    if moments is None:
        check_contracting(schedule, regularisation)
    return tuple(
        NoisyTraining(each, schedule, batches.size, batches.packed_rows, regularisation, clip, noise, ball, moments)
        for each in objectives(request, facts)
    )


def check_contracting(schedule: Schedule, regularisation: float) -> None:
    """Raise ValueError for steps at which the regulariser alone would make the model diverge.

    Clipping a row's gradient needs a finite score, and so a finite model. Proof that it stays
    finite. Steps never grow, so |1 - ηλ| ≤ 1 in all updates, and the model is no longer than the sum of all η/b times
    noisy sums: each of b gradients, and of noise below `MOST_STEPS` steps of the grid. With Adam (whose
    directions have coordinates of at most 8, whatever λ is) it is no longer than that times all η.
    """
    first = float(schedule.step_sizes(1, 1)[0])
    if first * regularisation > 2:
        raise ValueError(
            f"steps of {first:g} with regularisation = {regularisation:g} would make the model diverge; "
            f"choose step_size ≤ {math.nextafter(2 / regularisation, 0)}, or less regularisation"
        )


def parameters(request: Request, facts: Facts) -> int:
    """Return the number of parameters of all models together."""
    return sum(each.parameters for each in objectives(request, facts))


def check_delta(request: Request) -> None:
    """Raise ValueError for δ = 0, which Gaussian noise cannot satisfy."""
    if request.delta == 0:
        others = "" if request.network else ", or choose scs13 or bolt_on"
        raise ValueError(
            f"algorithm {request.algorithm!r} adds Gaussian noise and needs a delta > 0; give one, well below one over "
            f"the number of rows{others}"
        )


def poisson_multiplier(request: Request, batches: Batches) -> float:
    """Return the least σ/C* that is (ε, δ)-DP over all updates, by the request's calibration.

    `rdp` converts the Rényi divergences; `pld` uses the privacy loss distribution: less noise for a release
    that stands alone, most of all with few updates, but slower to plan. A ledger charges either by its event.
    Updates on all rows are exactly one Gaussian, whatever the calibration.
    """
    check_delta(request)
    probability = batches.probability or 1.0
    exact = request.calibration == PLD or probability == 1
    least = poisson_gaussian_pld_multiplier if exact else poisson_gaussian_multiplier
    return least(request.epsilon, request.delta, probability, batches.updates)


def sampled_plan(
    request: Request,
    facts: Facts,
    *,
    network_step: float,
    linear_step: float | None = None,
    multiplier: Callable[[Request, Batches], float] | None = None,
    moments: tuple[float, float, float] | None = None,
) -> NoisyWhileTraining:
    """Return the plan of SGD over Poisson mini-batches, by default without a regulariser.

    `network_step` and `linear_step` are η of the constant schedule if the request does not set it; None for `step_of`.
    `multiplier` returns σ/C*, by default the least that is (ε, δ)-DP.
    """
    batches = poisson(request, facts)
    regularisation = settings.regularisation_of(request, 0.0)
    scale = (multiplier or poisson_multiplier)(settings.without_leak(request, batches.samples), batches)
    if request.network is not None:
        step = network_step
    else:
        deviation = scale * contribution_of(request, facts)[1]
        step = linear_step or step_of(request, facts, batches, deviation, regularisation)
    schedule = schedule_of(request, facts, regularisation, default=Constant.name, step=step)
    return poisson_plan(
        request, facts, batches, scale, lambda _scale: schedule, regularisation=regularisation, moments=moments
    )


def poisson_plan(
    request: Request,
    facts: Facts,
    batches: Batches,
    multiplier: float,
    schedule: Callable[[float], Schedule],
    *,
    regularisation: float,
    moments: tuple[float, float, float] | None = None,
    radius: float | None = None,
) -> NoisyWhileTraining:
    """Return the plan of Gaussian noise of multiplier × C* on the sums of Poisson mini-batches."""
    _, contribution = contribution_of(request, facts)
    objective = settings.objective_of(request, facts)
    evaluated = gradient_error(objective, np.array([MOST_NORM * math.sqrt(facts.outputs)]), contribution)
    summed = Summed.by_mini_batch(batches.packed_rows, objectives(request, facts)[0])
    noise, covered = step_noise(
        Gaussian.name, contribution, summed, objective.parameters, multiplier, evaluated=evaluated
    )
    event: Event = PoissonGaussianDpEvent(batches.probability or 1.0, multiplier, batches.updates)
    if batches.samples is not None:
        event = batches.samples.event(event)
    parts = trainings(
        request,
        facts,
        batches,
        noise,
        schedule(noise.steps * noise.grid),
        regularisation=regularisation,
        moments=moments,
        radius=radius,
    )
    guarantee = Release(event, request.epsilon, request.delta)
    plan = noisy_plan(request, facts, guarantee, NoisySgd(batches, parts), noise, covered)
    return replace(
        plan, details=plan.details | {"noise_multiplier": multiplier, "calibration": request.calibration or RDP}
    )


def noisy_plan(
    request: Request, facts: Facts, guarantee: Release, run: NoisySgd, noise: UpdateNoise, covered: float
) -> NoisyWhileTraining:
    """Return the plan of a run with its details; `covered` is C*."""
    batches, training = run.batches, run.trainings[0]
    details: dict[str, Any] = {
        "batch_size": batches.size,
        "sampling": "fixed" if batches.probability is None else "poisson",
        **settings.shown_samples(request, batches.samples),
        "sampling_rate": batches.probability or min(1.0, batches.size / batches.rows),
        "steps": batches.updates,
        "expected_passes": batches.passes,
        "schedule": training.schedule.name,
        "optimiser": "sgd" if training.moments is None else "adam",
        "regularisation": training.regularisation,
        "parameters": parameters(request, facts),
        "contribution": covered,
        "mechanism": noise.law,
        "noise_scale": noise.steps * noise.grid,
    }
    if training.radius < MOST_NORM:
        details["radius"] = training.radius
    return NoisyWhileTraining(request, facts, guarantee, details, run)
