"""RRPSGD: noisy SGD that stops after a random number of updates (Zhang, Zheng, Mou & Wang 2017, Algorithm 2).

As privacy.md §4 corrects it: the number R is drawn up to a public cap, from a law that does not depend on the data;
the noise is calibrated for all updates up to the cap, on Poisson mini-batches (the published scale is 4
times too small for its own proof); step sizes are public. Losses need not be convex.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from dbdp.algorithms.declared_options import Options
from dbdp.algorithms.families.noisy_sgd import noisy_steps
from dbdp.algorithms.families.noisy_sgd.noisy_steps import NoisySgd
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Progress, Rows
from dbdp.learning.schedules import Constant
from dbdp.privacy.noise.samplers import Entropy

NETWORK_STEP = 0.25
OPTIONS = Options({**noisy_steps.SAMPLED, "schedule": (Constant.name,), "calibration": noisy_steps.CALIBRATIONS})


def rrpsgd_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of an RRPSGD release; `epochs` sets the cap, and R is uniform up to it.

    The law of Theorem 5 is P(R = k) ∝ 2η_k - βη_k², which is uniform for steps of one size.
    """
    base = noisy_steps.sampled_plan(request, facts, network_step=NETWORK_STEP)
    run = base.method
    if not isinstance(run, NoisySgd):
        raise AssertionError("the method of a Poisson plan is NoisySgd")
    most = run.batches
    details = base.details | {
        "steps_law": f"uniform from 1 to {most.updates}",
        "expected_passes": most.passes / 2,
    }
    return replace(base, details=details, method=partial(_stopped, run))


def _stopped(run: NoisySgd, rows: Rows, progress: Progress) -> np.ndarray:
    """Draw R, make the first R updates, and return the model; R may be published."""
    drawn = 1 + Entropy().below(run.batches.updates)
    return replace(run, batches=replace(run.batches, updates=drawn))(rows, progress)
