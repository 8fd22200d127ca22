"""DP-Adam: DP-SGD with the steps of Adam on the noisy gradient (Kingma & Ba 2015).

privacy.md §10: the moments are functions of released values, so that it costs the same as DP-SGD.
"""

from dbdp.algorithms.declared_options import Options
from dbdp.algorithms.families.noisy_sgd import noisy_steps
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request

DECAYS = (0.9, 0.999, 1e-8)  # of the moments, and the constant added to the root of the second: the paper's
LINEAR_STEP, NETWORK_STEP = 0.05, 0.005  # 0.001 learns less within ten passes over MNIST
OPTIONS = Options({**noisy_steps.SAMPLED, "calibration": noisy_steps.CALIBRATIONS})


def dp_adam_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a DP-Adam release; the mini-batch is by default of √m rows, or m/50 if that is more."""
    return noisy_steps.sampled_plan(request, facts, linear_step=LINEAR_STEP, network_step=NETWORK_STEP, moments=DECAYS)
