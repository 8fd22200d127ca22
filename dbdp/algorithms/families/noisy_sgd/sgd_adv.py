"""SGD-Adv, the baseline of Lee & Kifer 2018: noisy SGD with amplification by sampling and advanced composition.

Bassily, Smith & Thakurta 2014 with Dwork, Rothblum & Vadhan 2010, for any number of steps. privacy.md §5:
every Gaussian is the analytic one; the amplification, which uses (ε, δ) alone, and the composition remain loose,
which is the purpose of the baseline. The ledger is charged for the mechanism itself, which costs less.
"""

import math
from dataclasses import replace

from dbdp.algorithms.declared_options import Options
from dbdp.algorithms.families.noisy_sgd import noisy_steps
from dbdp.algorithms.families.noisy_sgd.noisy_steps import Batches
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.composition import strong_share

NETWORK_STEP = 1.0
OPTIONS = Options(noisy_steps.SAMPLED)


def sgd_adv_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of an SGD-Adv release; its noise is larger than `dp_sgd`'s, and so its steps are smaller."""
    noisy_steps.check_delta(request)
    base = noisy_steps.sampled_plan(request, facts, network_step=NETWORK_STEP, multiplier=advanced_multiplier)
    return replace(base, details=base.details | {"calibration": "advanced composition"})


def advanced_multiplier(request: Request, batches: Batches) -> float:
    """Return σ/C for T steps of (ε₁, δ/2T) each; the composition uses the other half of δ.

    Proof. A Gaussian step that is (ε₂, δ₂)-DP for a change by 2C is, sampled with probability q,
    (ln(1 + q(e^ε₂ - 1)), qδ₂)-DP for replace-one neighbours (`subsampling.amplified`). ε₂ = ln(1 + (e^ε₁ - 1)/q)
    and δ₂ = δ/(2Tq) make it (ε₁, δ/2T); T of them are (Tε₁(e^ε₁ - 1) + √(2T ln(2/δ))ε₁, δ/2 + δ/2)-DP.
    """
    q, delta = batches.probability or 1.0, request.delta
    share = strong_share(request.epsilon, batches.updates, delta / 2)
    unsampled = math.log1p(math.expm1(share) / q)
    return 2 * analytic_noise_multiplier(unsampled, min(delta / (2 * batches.updates * q), 0.5))
