"""DP-SGD: clipped gradients of Poisson mini-batches, Gaussian noise in every update (Abadi et al. 2016).

privacy.md §10. The sampling is what the accountant takes it for: every row is in every mini-batch with the
same probability, independently. The noise is the least whose Rényi divergence for replace-one neighbours,
composed over all updates, converts to (ε, δ).
"""

from dbdp.algorithms import noisy_sgd, settings
from dbdp.algorithms.plan import Facts, Request, WhiteBox
from dbdp.learning.schedules import Constant

LINEAR_STEP, NETWORK_STEP = 1.0, 0.25


def plan(request: Request, facts: Facts) -> WhiteBox:
    """Return the plan of a DP-SGD release; the mini-batch is by default of about √m rows.

    Raises
    ------
    ValueError
        If the request cannot be planned: the message names the value, the limit and the remedy.
    """
    noisy_sgd.check_white_box(request)
    batches = noisy_sgd.poisson(request, facts)
    regularisation = settings.regularisation_of(request, 0.0)
    step = LINEAR_STEP if request.network is None else NETWORK_STEP
    schedule = noisy_sgd.schedule_of(request, facts, regularisation, default=Constant.name, step=step)
    return noisy_sgd.poisson_plan(
        request,
        facts,
        batches,
        noisy_sgd.poisson_multiplier(request, batches),
        lambda _scale: schedule,
        regularisation=regularisation,
    )
