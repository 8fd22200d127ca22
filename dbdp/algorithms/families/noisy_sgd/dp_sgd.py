"""DP-SGD: clipped gradients of Poisson mini-batches, Gaussian noise in every update (Abadi et al. 2016).

privacy.md §10. Sampling is Poisson, as the accounting assumes: every row is in every mini-batch with the
same probability, independently. The noise is the least whose Rényi divergence for replace-one neighbours,
composed over all updates, converts to (ε, δ).
"""

from dbdp.algorithms.declared_options import Options
from dbdp.algorithms.families.noisy_sgd import noisy_steps
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request

NETWORK_STEP = 0.25
OPTIONS = Options({**noisy_steps.SAMPLED, "calibration": noisy_steps.CALIBRATIONS})


def dp_sgd_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a DP-SGD release; steps and mini-batches are by default those of `noisy_sgd`."""
    return noisy_steps.sampled_plan(request, facts, network_step=NETWORK_STEP)
