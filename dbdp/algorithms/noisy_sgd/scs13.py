"""SCS13: SGD over fixed mini-batches, with noise in every update (Song, Chaudhuri & Sarwate 2013).

As privacy.md §5 corrects it: a record is in one mini-batch of each pass, so that a pass costs as much as one
update, and k passes compose: k releases of ε/k each, or k Gaussians, which are equivalent to one of √k times the
sensitivity. Shuffled mini-batches have no amplification.
"""

import math

from dbdp.algorithms import settings
from dbdp.algorithms.noisy_sgd import noisy_sgd
from dbdp.algorithms.options import Options
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.learning.schedules import InverseTime, SquareRoot
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import EpsilonDeltaDpEvent, GaussianDpEvent, Release, SelfComposedDpEvent
from dbdp.privacy.mechanisms import Gaussian, SphericalLaplace

OPTIONS = Options(noisy_sgd.SAMPLED, noisy_sgd.REASON)


def plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of an SCS13 release; steps are 1/√t, or 1/(λt) with a regulariser.

    Raises
    ------
    ValueError
        If the request cannot be planned: the message names the value, the limit and the remedy.
    """
    batches = noisy_sgd.fixed(request, facts)
    law, multiplier, guarantee = _calibrated(request, facts)
    _, contribution = noisy_sgd.contribution_of(request, facts)
    noise, covered = noisy_sgd.step_noise(
        law, contribution, int(batches.size), noisy_sgd.parameters(request, facts), multiplier
    )
    regularisation = settings.regularisation_of(request, settings.DEFAULT_REGULARISATION)
    default = InverseTime.name if regularisation and request.network is None else SquareRoot.name
    schedule = noisy_sgd.schedule_of(request, facts, regularisation, default=default, step=1.0)
    trainings = noisy_sgd.trainings(request, facts, batches, noise, schedule, regularisation=regularisation)
    return noisy_sgd.noisy_plan(request, facts, guarantee, noisy_sgd.NoisySgd(batches, trainings), noise, covered)


def _calibrated(request: Request, facts: Facts) -> tuple[str, float, Release]:
    """Return the law of the noise, its scale in units of one row's contribution, and the guarantee.

    Replacing a record changes the sum of one mini-batch in each pass, by two contributions. Proof. The other
    mini-batches of a pass are functions of released values; the k changed ones are k releases in sequence:
    pure ε/k adds up to ε, and Gaussians of multipliers √k·m to one of multiplier m. The models of
    several outputs are one release if the noise is Gaussian, and separate releases if it is not.
    """
    epsilon, delta, passes = request.epsilon, request.delta, request.epochs
    if delta > 0:
        multiplier = analytic_noise_multiplier(epsilon, delta)
        guarantee = Release(GaussianDpEvent(multiplier), epsilon, delta)
        return Gaussian.name, 2 * multiplier * math.sqrt(passes), guarantee
    releases = passes * (1 if request.network is not None else facts.outputs)
    event = SelfComposedDpEvent(EpsilonDeltaDpEvent(epsilon / releases, 0.0), releases)
    return SphericalLaplace.name, 2 * releases / epsilon, Release(event, epsilon, 0.0)
