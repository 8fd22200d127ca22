"""SCS13: SGD over fixed mini-batches, with noise in every update (Song, Chaudhuri & Sarwate 2013).

As privacy.md §5 corrects it: a record is in one mini-batch of each pass, so that a pass costs as much as one
update, and k passes compose: k releases of ε/k each, or k Gaussians, which are equivalent to one of √k times the
sensitivity. Shuffled mini-batches have no amplification.
"""

import math
from dataclasses import replace

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options
from dbdp.algorithms.families.noisy_sgd import noisy_steps
from dbdp.algorithms.families.noisy_sgd.noisy_steps import Batches
from dbdp.algorithms.noisy_sums import Summed
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.learning.objectives import Objective
from dbdp.learning.schedules import Constant, InverseTime, Schedule, SquareRoot
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release, SelfComposedDpEvent, SphericalLaplaceDpEvent
from dbdp.privacy.mechanisms import Gaussian, SphericalLaplace

MOST_EPOCHS = 100  # of the default
OPTIONS = Options(noisy_steps.SAMPLED)


def scs13_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of an SCS13 release; steps are of one size, or 1/(λt) with a regulariser, for networks η/√t."""
    full = request if request.network is not None else _with_defaults(request, facts)
    batches = noisy_steps.fixed(full, facts)
    law, multiplier, guarantee = _calibrated(full, facts)
    contribution, parameters = _contribution(full, facts), _objectives(full, facts)[0].parameters
    summed = Summed.by_mini_batch(batches.packed_rows, noisy_steps.objectives(full, facts)[0])
    noise, covered = noisy_steps.step_noise(law, contribution, summed, parameters, multiplier)
    decreasing = request.network is None and request.schedule == InverseTime.name
    regularisation = settings.regularisation_of(request, settings.DEFAULT_REGULARISATION if decreasing else 0.0)
    schedule = _schedule(full, facts, batches, regularisation)
    trainings = noisy_steps.trainings(request, facts, batches, noise, schedule, regularisation=regularisation)
    return noisy_steps.noisy_plan(request, facts, guarantee, noisy_steps.NoisySgd(batches, trainings), noise, covered)


def _with_defaults(request: Request, facts: Facts) -> Request:
    """Return the request of a linear model with its passes and batch size: by default few passes, of one batch each.

    k passes cost as much as k updates, and N mini-batches in each of them make the noise √N times as large for
    steps of the same sum. Steps of 2/β that add up to τ are τβ/2; for δ = 0, where τ falls as 1/√k, (τβ/2)^(2/3).
    """
    size = settings.batch_size_of(request, facts.rows, facts.rows)
    single = replace(request, batch_size=facts.rows, epochs=1)
    travel = noisy_steps.travel_of(request, facts, noisy_steps.fixed(single, facts), _deviation(single, facts))
    steps = travel * settings.loss_of(request, facts).smoothness / 2
    passes = min(max(steps ** (1 if request.delta > 0 else 2 / 3), 1), MOST_EPOCHS)
    return replace(request, batch_size=size, epochs=settings.epochs_of(request, round(passes)))


def _deviation(request: Request, facts: Facts) -> float:
    """Return the deviation of a coordinate of an update's noise, nearly."""
    law, multiplier, _ = _calibrated(request, facts)
    spread = 1.0 if law == Gaussian.name else math.sqrt(_objectives(request, facts)[0].parameters + 1)
    return spread * multiplier * _contribution(request, facts)


def _schedule(request: Request, facts: Facts, batches: Batches, regularisation: float) -> Schedule:
    """Return the schedule: steps of one size, 1/(λt) with a regulariser, and η/√t for a network."""
    if request.network is not None:
        return noisy_steps.schedule_of(request, facts, regularisation, default=SquareRoot.name, step=1.0)
    step = noisy_steps.step_of(request, facts, batches, _deviation(request, facts), regularisation)
    default = InverseTime.name if regularisation else Constant.name
    return noisy_steps.schedule_of(request, facts, regularisation, default=default, step=step)


def _objectives(request: Request, facts: Facts) -> tuple[Objective, ...]:
    """Return the objectives whose noisy sums are one release each: all together, or with pure noise each by itself."""
    return noisy_steps.objectives(request, facts) if request.delta == 0 else (settings.objective_of(request, facts),)


def _contribution(request: Request, facts: Facts) -> float:
    """Return C, the largest norm of a row's gradient in one release: of one model, where each is released by itself."""
    clip, together = noisy_steps.contribution_of(request, facts)
    return min(clip, together) if len(_objectives(request, facts)) == 1 else settings.loss_of(request, facts).lipschitz


def _calibrated(request: Request, facts: Facts) -> tuple[str, float, Release]:
    """Return the law of the noise, its scale in units of one row's contribution, and the guarantee.

    Replacing a record changes the sum of one mini-batch in each pass, by two contributions. Proof. The other
    mini-batches of a pass are functions of released values; the k changed ones are k releases in sequence:
    pure ε/k adds up to ε, and Gaussians of multipliers √k·m to one of multiplier m. The models of several outputs
    are one release if the noise is Gaussian, or if they have one clip; else K releases of ε/(kK), and a record
    moves the sum of each by two gradients of that model alone: 2L, not the 2L√K of all of them.
    """
    epsilon, delta, passes = request.epsilon, request.delta, settings.epochs_of(request)
    if delta > 0:
        multiplier = analytic_noise_multiplier(epsilon, delta)
        guarantee = Release(GaussianDpEvent(multiplier), epsilon, delta)
        return Gaussian.name, 2 * multiplier * math.sqrt(passes), guarantee
    models = _objectives(request, facts)
    releases = passes * len(models)
    event = SelfComposedDpEvent(SphericalLaplaceDpEvent(epsilon / releases, models[0].parameters), releases)
    return SphericalLaplace.name, 2 * releases / epsilon, Release(event, epsilon, 0.0)
