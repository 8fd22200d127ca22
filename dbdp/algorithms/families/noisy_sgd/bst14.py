"""BST14 with a constant number of passes (Bassily, Smith & Thakurta 2014; Wu et al. 2017, Algorithms 4 and 5).

privacy.md §5. Calibration `published` is the paper's: strong composition of amplified steps, with the
replace-one sensitivity 2L (its ι = 1 is add-remove). Calibration `rdp`, the default, has the noise that the
Rényi divergence of the same mechanism needs: 15 to 27 times less in the paper's settings. Mini-batches are
Poisson samples with the probability q of the paper's uniform draws, for which the amplification lemma is the same.
"""

import math

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options
from dbdp.algorithms.families.noisy_sgd import noisy_steps
from dbdp.algorithms.families.noisy_sgd.noisy_steps import Batches
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.learning.schedules import InverseTime, Schedule, SquareRoot
from dbdp.privacy.accounting.composition import strong_share

PUBLISHED = "published"
DEFAULT_RADIUS = 10.0  # of the ball in the convex algorithm
OPTIONS = Options(
    {**noisy_steps.SHARED, "calibration": (*noisy_steps.CALIBRATIONS, PUBLISHED)},
)


def bst14_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a BST14 release: convex over a ball without a regulariser, strongly convex with one."""
    batches = _batches(request, facts)
    noisy_steps.check_delta(request)
    multiplier_of = published_multiplier if request.calibration == PUBLISHED else noisy_steps.poisson_multiplier
    multiplier = multiplier_of(settings.without_leak(request, batches.samples), batches)
    deviation = multiplier * noisy_steps.contribution_of(request, facts)[1]
    default = 1 / noisy_steps.travel_of(request, facts, batches, deviation)
    regularisation = settings.regularisation_of(request, default)
    return noisy_steps.poisson_plan(
        request,
        facts,
        batches,
        multiplier,
        lambda scale: _schedule(request, facts, batches, regularisation, scale),
        regularisation=regularisation,
        radius=None if regularisation else _radius(request, facts),
    )


def _batches(request: Request, facts: Facts) -> Batches:
    """Return k passes of ⌈m/b⌉ updates each, as published."""
    size = settings.batch_size_of(request, facts.rows, noisy_steps.poisson_size(request, facts.rows))
    updates = settings.epochs_of(request) * -(-facts.rows // size)
    return Batches(facts.rows, float(size), updates, settings.samples_of(request, facts, size / facts.rows, updates))


def _radius(request: Request, facts: Facts) -> float:
    radius = settings.radius_of(request, settings.loss_of(request, facts))
    return radius if math.isfinite(radius) else DEFAULT_RADIUS


def _schedule(request: Request, facts: Facts, batches: Batches, regularisation: float, scale: float) -> Schedule:
    """Return η_t = 1/(λt), or 2R/(G√t) with G = √(dσ² + b²L²), for a mini-batch's sum; here rescaled for its mean."""
    loss = settings.loss_of(request, facts)
    if regularisation:
        return InverseTime(loss.smoothness + regularisation, regularisation)
    gradient = math.sqrt(facts.dimension * scale**2 + (batches.size * loss.lipschitz) ** 2)
    return SquareRoot(gradient / (_radius(request, facts) * batches.size), 0.0)


def published_multiplier(request: Request, batches: Batches) -> float:
    """Return σ/C of Algorithms 4 and 5: σ² = 2 ln(1.25/δ₁)(2C)²/ε₂².

    δ₁ = δ/(km); ε₁ with ε = Tε₁(e^ε₁ - 1) + √(2T ln(1/δ₁))ε₁; ε₂ = min(1, ε₁/(2q)). Proof (§5). One update is
    (ε₂, δ₁)-DP with ε₂ ≤ 1 for a change by 2C, hence also for one by C, where a record is left out. Sampled it is
    (ln(1 + q(e^ε₂ - 1)), qδ₁)-DP (`subsampling.amplified`), and ln(1 + q(e^x - 1)) ≤ 2qx for x ≤ 1; T = k⌈m/b⌉ of
    them compose to ε, with (Tq + 1)δ₁ ≤ δ, which is checked.

    Raise ValueError if there are too few rows.
    """
    delta1 = request.delta / (settings.epochs_of(request) * batches.rows)
    q = batches.probability or 1.0
    if q * batches.updates + 1 > settings.epochs_of(request) * batches.rows:
        raise ValueError(f"{batches.rows} rows are too few for calibration 'published'; choose calibration 'rdp'")
    epsilon2 = min(1.0, strong_share(request.epsilon, batches.updates, delta1) / (2 * q))
    return 2 * math.sqrt(2 * math.log(1.25 / delta1)) / epsilon2
