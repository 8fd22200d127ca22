"""DP-BLSGD: SGD over Poisson mini-batches with a noisy line search for each step (Chen & Lee 2020, Algorithms 2, 3).

privacy.md §9. Differences from the paper: neighbours are replace-one; a search is pure ε, by Laplace noise, and
its Theorems 2 and 3 are not used; every access draws a *new* mini-batch, since costs that were amplified one by
one do not add up on a shared one; the noisy sum is divided by qn, never by the number of rows drawn; costs are
tracked at *one* Rényi order, fixed before the run, and charged before an access; a second gradient is clipped as the
first is (line 3 of Algorithm 3 has a misplaced parenthesis), and averaged with it by their noise; a budget grows
only while the rest pays for a step at the larger one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dbdp import checks
from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options, anything, number, own_settings
from dbdp.algorithms.families.noisy_search.line_search import (
    REMEDIES,
    SHARED,
    Accounting,
    Estimate,
    Run,
    Searching,
    angle_between,
    check_delta,
    descent,
    noisy_plan,
)
from dbdp.algorithms.noisy_sums import sampled_sensitivity
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Rows
from dbdp.privacy.accounting.events import Release, RenyiDpEvent, pure_divergence
from dbdp.privacy.accounting.padding import PoissonSamples
from dbdp.privacy.accounting.renyi import conversion
from dbdp.privacy.accounting.subsampling import amplified, poisson_gaussian_divergence, poisson_gaussian_multiplier

SAMPLED = 0.1  # q, of the paper
RIGHT_ANGLE = math.pi / 2
_LEAST_CLIP = 1e-3  # smallest clip, relative to the first one
_SLACK = 1 - 1e-9
_ORDERS = 1 + np.geomspace(1e-2, 1e6, 129)  # 16 in each factor of ten
_MULTIPLIERS, _INVERSES = (1e-4, 1e9), (1e-5, 1e8)  # ranges of the search for σ/C and 1/ε of the first accesses


@dataclass(frozen=True)
class Sampled(Searching):
    """The settings of DP-BLSGD."""

    angle_decay: float = number(0.8, 0, 1, "ψ, the weight of the past in the moving average of the angles of steps")
    widest_angle: float = number(
        1.1, 1, 100, "φ, multiple of that average above which a failure is attributed to the noise of the gradient"
    )
    narrowest_angle: float = number(0.5, 0, 1, "φ, multiple below which it is attributed to the noise of the search")


OPTIONS = Options(SHARED | anything("batch_size"), REMEDIES, Sampled)


def dp_blsgd_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a DP-BLSGD release; a mini-batch has by default a tenth of the rows, as in the paper."""
    return planned(request, facts, own_settings(request, Sampled), clip_decay=0.0)


def planned(request: Request, facts: Facts, own: Sampled, *, clip_decay: float) -> NoisyWhileTraining:
    """Return the plan of a descent over Poisson mini-batches; `clip_decay` is ζ; raises as `plan`."""
    check_delta(request)
    size = request.batch_size or math.ceil(SAMPLED * facts.rows)
    checks.whole("batch_size", size, 1, facts.rows, "the expected rows of a mini-batch cannot exceed all rows")
    probability = size / facts.rows
    samples = settings.samples_of(request, facts, probability, 2 * own.planned_steps)  # a gradient for each search
    noised = settings.without_leak(request, samples)
    order = order_of(noised, probability, math.ceil(own.planned_steps / (1 - own.search_share)), facts.least_order)
    accounting = accounting_of(noised, own, probability, order)
    run = descent(
        request,
        facts,
        own,
        accounting,
        adaptation=lambda: Checking(own, clip_decay),
        batches=lambda rows: poisson_batches(rows, samples),
        packed=samples.size,
        size=float(size),
        searches=own.planned_steps,
    )
    event = samples.event(RenyiDpEvent(order, accounting.limit))
    guarantee = Release(event, request.epsilon, request.delta)
    details = {"sampling": "poisson", "sampling_rate": probability, "renyi_order": order}
    details |= settings.shown_samples(request, samples)
    return noisy_plan(request, facts, guarantee, run, details)


# --- accounting -------------------------------------------------------------------------------------------


def order_of(request: Request, probability: float, steps: int, least_order: float = 0.0) -> float:
    """Return the Rényi order α at which that many gradients alone cost least, or a larger one: a public choice.

    At `least_order`, the ledger's, or above it the run is charged its own limit, without a leak (§13).
    """
    multiplier = poisson_gaussian_multiplier(request.epsilon, request.delta, probability, steps)

    def epsilon_at(order: float) -> float:
        return steps * poisson_gaussian_divergence(probability, multiplier, order) + conversion(order, request.delta)

    return max(min(map(float, _ORDERS), key=epsilon_at), least_order)


def accounting_of(request: Request, own: Sampled, probability: float, order: float) -> Accounting:
    """Return the costs of accesses at one order, and the first budgets, which would last for the planned steps.

    Proof that a run is (ε, δ)-DP (§13). Given the earlier outputs, an access has D_α ≤ its cost, both
    ways, for replace-one neighbours: its mini-batch is new, its noise multiplier or ε and the model are
    functions of the past. The costs surely add up to at most `limit`, at the one order α that was fixed
    before: D_α ≤ ε - κ(α) for the run, which is (ε, δ)-DP by the conversion. ∎

    Raise ValueError if ε is too small for δ, or for that many steps.
    """
    limit = (request.epsilon - conversion(order, request.delta * _SLACK)) * _SLACK
    if limit <= 0:
        raise ValueError(
            f"epsilon = {request.epsilon:g} is too small for delta = {request.delta:g}; use a larger epsilon or delta"
        )

    def gradient(multiplier: float) -> float:
        return poisson_gaussian_divergence(probability, multiplier, order)

    def search(epsilon: float) -> float:
        return pure_divergence(sampled_epsilon(epsilon, probability), order)

    most, share = limit / own.planned_steps * _SLACK, own.search_share
    return Accounting(
        limit=limit,
        gradient=gradient,
        search=search,
        sensitivity=sampled_sensitivity,
        multiplier=least(lambda multiplier: gradient(multiplier) <= (1 - share) * most, *_MULTIPLIERS),
        epsilon=1 / least(lambda inverse: search(1 / inverse) <= share * most, *_INVERSES),
    )


def sampled_epsilon(epsilon: float, probability: float) -> float:
    """Return the pure ε on a Poisson mini-batch of a search that is pure ε on all rows.

    ln(1 + q(e^(ε/2) - 1)) - ln(1 - q(1 - e^(-ε/2))), which is less than ln(1 + q(e^ε - 1)). Proof. Let p₀ be
    the probability of an outcome given the batch without the record, p₁ and p₂ with it and with its replacement.
    Without it every value moves by 1/2, half the sensitivity (`compared`) and half its steps on the grid, a power
    of two: p₁ ≤ e^(ε/2)p₀ and p₂ ≥ e^(-ε/2)p₀, so
    ((1 - q)p₀ + qp₁)/((1 - q)p₀ + qp₂) ≤ (1 - q + qe^(ε/2))/(1 - q + qe^(-ε/2)). Sum over the batches. ∎
    """
    if probability == 1:
        return epsilon
    return (amplified(epsilon / 2, probability) - math.log1p(probability * math.expm1(-epsilon / 2))) * (1 + 1e-12)


def least(enough: Callable[[float], bool], low: float, high: float) -> float:
    """Return approximately the least number from `low` to `high` that is enough; raise ValueError if none is."""
    if not enough(high):
        raise ValueError(
            "epsilon is too small for so many steps; use a larger epsilon, or fewer planned_steps in settings"
        )
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# --- the run ----------------------------------------------------------------------------------------------


def poisson_batches(rows: Rows, samples: PoissonSamples) -> Iterator[int]:
    """Yield the indices of new mini-batches; about one pass over the rows is drawn at a time."""
    left = samples.draws
    while left:
        drawn = rows.draw(samples, min(left, math.ceil(1 / samples.probability)))
        yield from range(drawn)
        left -= drawn
    raise ArithmeticError(f"internal error: more than the {samples.draws} planned mini-batches are read")


class Checking:
    """Adapt by Algorithm 3: after a failed search enlarge the gradient's or the search's budget; with ζ > 0 clip more.

    A budget does not change if the rest would not pay for a gradient and a search.
    """

    def __init__(self, own: Sampled, clip_decay: float) -> None:
        """Begin with a right angle, the average angle between random directions."""
        self._own, self._clip_decay = own, clip_decay
        self._angle, self._last, self._shrunk = RIGHT_ANGLE, np.zeros(0), False

    def multiplier(self, run: Run) -> float:
        """Return the noise multiplier of the first gradient, for the second one too."""
        return run.multiplier

    def failed(self, run: Run, first: Estimate, second: Estimate) -> None:
        """Enlarge the gradient's budget if two directions at one model differ much, else the search's."""
        own, angle = self._own, angle_between(first.direction, second.direction)
        if angle > min(RIGHT_ANGLE, own.widest_angle * self._angle):
            multiplier = run.multiplier / math.sqrt(1 + own.growth)
            if run.affords(multiplier):
                run.multiplier = multiplier
                self._shrink(run)
        elif angle < own.narrowest_angle * self._angle:
            epsilon = run.epsilon * (1 + own.growth)
            if run.affords(run.multiplier, epsilon):
                run.epsilon = epsilon

    def stepped(self, direction: np.ndarray) -> None:
        """Update the moving average of the angle between successive directions."""
        if len(self._last):
            decay = self._own.angle_decay
            self._angle = decay * self._angle + (1 - decay) * angle_between(direction, self._last)
        self._last, self._shrunk = direction, False

    def _shrink(self, run: Run) -> None:
        """Shrink the clips of gradients and losses, once for each step (their §4.4; post-processing)."""
        if not self._shrunk and run.clip > _LEAST_CLIP * run.plan.clip:
            run.clip *= 1 - self._clip_decay
            run.loss_limit *= 1 - self._clip_decay
            self._shrunk = True
