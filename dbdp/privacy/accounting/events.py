"""Events: the mechanism of a release, from which its cost is computed; dp_accounting's names where it has them.

privacy.md §13. `divergence` bounds the Rényi divergence of an event at one order α, both ways and for
all neighbours; `leak` the probability with which that bound may fail; `gaussian_square` the μ² of an event
in a ledger of Gaussians, `concentration` its ρ in one of zero-concentrated privacy. Curves that are exact: `curves`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache, singledispatch
from statistics import NormalDist
from typing import Any

import numpy as np

from dbdp import checks
from dbdp.privacy.accounting import curves
from dbdp.privacy.accounting.calibration import mixture_divergence
from dbdp.privacy.accounting.subsampling import MOST_ROWS, poisson_gaussian_divergence

REPLACE_ONE, ADD_REMOVE = "replace-one", "add-remove"
REPLACE_ONE_UNIT = "replace-one-unit"  # neighbours differ in all records of one unit (§11.6)
CHANGE_ONE, CHANGE_ONE_UNIT = "change-one", "change-one-unit"  # one is replaced, added or removed: a capacity (§18)
MIN_EPSILON = 1e-9  # one unit of a charge
MAX_COUNT = 10**12  # of repetitions: below it they are exact in floating point
MOST_CORNERS = 8
MOST_LEVELS = 20  # of nested events; those of our algorithms have five
MAX_EPSILON = 1e6  # far beyond any useful guarantee; keeps α away from 1 and odometers within 64 bits


@dataclass(frozen=True)
class GaussianDpEvent:
    """Exactly rounded Gaussian noise of standard deviation noise_multiplier × sensitivity."""

    noise_multiplier: float


@dataclass(frozen=True)
class ZCDpEvent:
    """A mechanism of which only its ρ-zCDP is used: the discrete Gaussian has ρ = Δ²/2σ²."""

    rho: float


@dataclass(frozen=True)
class EpsilonDeltaDpEvent:
    """A mechanism of which only its (ε, δ) is used; δ = 0 is pure ε."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class SphericalLaplaceDpEvent:
    """Exactly rounded noise with a density ∝ exp(-ε‖z‖₂/sensitivity) on `dimension` coordinates: pure ε, and less."""

    epsilon: float
    dimension: int


@dataclass(frozen=True)
class PerturbedMinimumDpEvent:
    """The exact minimum of an objective with noise (§7): pure ε, or (ε, δ) if the noise is Gaussian.

    Attributes
    ----------
    noise : GaussianDpEvent | SphericalLaplaceDpEvent
        The noise for a sensitivity of 2L, L that of all models together.
    outputs : int
        Number K of models.
    curvature : float
        c/(nΛ): by up to a factor of 1 plus that a row changes the determinant of each model.
    corners : tuple[float, ...]
        Lengths, in units of 2L, of the corners of one model's slopes that are not 0.
    """

    noise: "Event"
    outputs: int
    curvature: float
    corners: tuple[float, ...]
    epsilon: float
    delta: float


@dataclass(frozen=True)
class ShuffledGaussianDpEvent:
    """Gaussian noise on a model whose record sits in position j with probability shares[j] (§3).

    noise_multipliers[j] = σ/Δ_j. The permutation is secret, and new for this release.
    """

    shares: tuple[float, ...]
    noise_multipliers: tuple[float, ...]


@dataclass(frozen=True)
class PoissonGaussianDpEvent:
    """Gaussian noise on the sum over a Poisson-sampled mini-batch, `steps` times, each with a new mini-batch.

    noise_multiplier = σ/C, C the largest norm of one row's contribution to the sum. Neighbours are
    replace-one: the row's contribution g is replaced by any other, so that the worst pair is g, -g; or a unit of
    `rows` rows, each of them in a mini-batch or not by itself (§11.6).
    """

    sampling_probability: float
    noise_multiplier: float
    steps: int
    rows: int = 1


@dataclass(frozen=True)
class ExponentialMechanismDpEvent:
    """A selection whose privacy loss lies in an interval of length ε (bounded range)."""

    epsilon: float


@dataclass(frozen=True)
class RepeatAndSelectDpEvent:
    """The best of a random, secret number of runs (Papernot & Steinke 2022), shape 1 (geometric) or ∞ (Poisson).

    `total_variation` bounds how far the law of the number is from that law (it is cut off at a cap).
    """

    repeated: "Event"
    mean: float
    shape: float
    total_variation: float


@dataclass(frozen=True)
class PaddedDpEvent:
    """An event over Poisson samples that are padded, or cut, to a public size (§10.8).

    `total_variation` bounds, in every world, how far the law of the run is from that of the event.
    """

    event: "Event"
    total_variation: float


@dataclass(frozen=True)
class RenyiDpEvent:
    """A mechanism whose Rényi divergence is bounded at one order, as that of a run within a filter (§13)."""

    order: float
    divergence: float


@dataclass(frozen=True)
class ComposedDpEvent:
    """Several events on the same records, in sequence."""

    events: tuple["Event", ...]


@dataclass(frozen=True)
class SelfComposedDpEvent:
    """One event `count` times on the same records, in sequence."""

    event: "Event"
    count: int


@dataclass(frozen=True)
class DisjointDpEvent:
    """Several events on disjoint parts of the records; the parts do not depend on the records' values."""

    events: tuple["Event", ...]


Event = (
    GaussianDpEvent
    | ZCDpEvent
    | EpsilonDeltaDpEvent
    | SphericalLaplaceDpEvent
    | PerturbedMinimumDpEvent
    | ShuffledGaussianDpEvent
    | PoissonGaussianDpEvent
    | ExponentialMechanismDpEvent
    | RepeatAndSelectDpEvent
    | PaddedDpEvent
    | RenyiDpEvent
    | ComposedDpEvent
    | SelfComposedDpEvent
    | DisjointDpEvent
)
EVENTS: dict[str, Any] = {event.__name__: event for event in Event.__args__}


def check_epsilon_delta(epsilon: float, delta: float) -> None:
    """Raise ValueError unless MIN_EPSILON ≤ ε ≤ MAX_EPSILON and 0 ≤ δ < 1."""
    if not (checks.is_number(epsilon) and checks.is_number(delta)):
        raise ValueError(f"epsilon = {epsilon!r} and delta = {delta!r} must be numbers")
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(f"epsilon = {epsilon} must be positive, from {MIN_EPSILON:g} to {MAX_EPSILON:,.0f}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta = {delta} must be at least 0 and below 1")


@singledispatch
def divergence(event: Event, order: float) -> float:
    """Return an upper bound on the Rényi divergence of order α > 1 (the table of §13), infinity if none is known."""
    raise TypeError(f"{type(event).__name__} has no charge")


@divergence.register
def _(event: GaussianDpEvent, order: float) -> float:
    return order / (2 * event.noise_multiplier**2)


@divergence.register
def _(event: ZCDpEvent, order: float) -> float:
    return order * event.rho


@divergence.register
def _(event: EpsilonDeltaDpEvent, order: float) -> float:
    # "leak with probability δ, else ε-randomised response" has the same trade-off function (Blackwell)
    return pure_divergence(event.epsilon, order)


@divergence.register
def _(event: SphericalLaplaceDpEvent, order: float) -> float:
    return min(
        pure_divergence(event.epsilon, order), curves.spherical_divergence(event.epsilon, event.dimension, order)
    )


@divergence.register
def _(event: PerturbedMinimumDpEvent, order: float) -> float:
    if isinstance(event.noise, GaussianDpEvent):
        mean = 1 / event.noise.noise_multiplier
        gain = curves.gaussian_gain(tuple(mean * length for length in event.corners), order)
        ours = curves.perturbed_divergence(mean, event.curvature, event.outputs, order)
        return min(ours, curves.corner_divergence(gain, event.curvature, event.outputs, order))
    pure = pure_divergence(event.epsilon, order)
    if event.outputs > 1 or not isinstance(event.noise, SphericalLaplaceDpEvent):
        return pure  # the noise of several models is not independent
    epsilon, dimension = event.noise.epsilon, event.noise.dimension
    gain = curves.spherical_gain(tuple(epsilon * length for length in event.corners), dimension, order)
    return min(pure, curves.corner_divergence(gain, event.curvature, 1, order))


@divergence.register
def _(event: ShuffledGaussianDpEvent, order: float) -> float:
    return mixture_divergence(np.array(event.shares), np.array(event.noise_multipliers), order)


@divergence.register
def _(event: PoissonGaussianDpEvent, order: float) -> float:
    step = poisson_gaussian_divergence(event.sampling_probability, event.noise_multiplier, order, event.rows)
    return event.steps * step


@divergence.register
def _(event: ExponentialMechanismDpEvent, order: float) -> float:
    return min(pure_divergence(event.epsilon, order), curves.range_divergence(event.epsilon, order))


@divergence.register
def _(event: PaddedDpEvent, order: float) -> float:
    return divergence(event.event, order)


@divergence.register
def _(event: RenyiDpEvent, order: float) -> float:
    # D_α rises in α: (E_P t^(α-1))^(1/(α-1)), t = p/q, is a norm of t under P
    return event.divergence if order <= event.order else math.inf


@divergence.register
def _(event: ComposedDpEvent, order: float) -> float:
    return math.fsum(divergence(part, order) for part in event.events)


@divergence.register
def _(event: SelfComposedDpEvent, order: float) -> float:
    return event.count * divergence(event.event, order)


@divergence.register
def _(event: DisjointDpEvent, order: float) -> float:
    return max(divergence(part, order) for part in event.events)


@divergence.register
def _(event: RepeatAndSelectDpEvent, order: float) -> float:
    # a Rényi divergence rises in α, so the bound for any larger order holds too; checked against dp_accounting
    here = _repetition(event, np.array([order]), np.array([divergence(event.repeated, order)]))
    return float(min(here[0], _repetitions(event)[order <= _ORDERS].min(initial=math.inf)))


_ORDERS = 1 + np.geomspace(1e-2, 1e5, 400)  # candidates for the auxiliary order of a repetition


def _repetition(event: RepeatAndSelectDpEvent, orders: np.ndarray, divergences: np.ndarray) -> np.ndarray:
    """Return the divergences of a repetition from those of one run (Papernot & Steinke 2022)."""
    repeated, own = divergences + math.log(event.mean) / (orders - 1), _divergences(event.repeated)
    if math.isinf(event.shape):  # Theorem 6
        gaps, base = np.log1p(1 / (orders - 1)), _ORDERS - 1
        logs = np.log1p(-1 / _ORDERS) * base - np.log(_ORDERS) + base * (own - gaps[:, None])
        return repeated + event.mean * np.exp(np.minimum(0.0, logs.min(axis=1)))
    return repeated + 2 * np.min((1 - 1 / _ORDERS) * own + math.log(event.mean) / _ORDERS)  # Theorem 2, γ = 1/mean


@lru_cache(maxsize=4)
def _repetitions(event: RepeatAndSelectDpEvent) -> np.ndarray:
    return _repetition(event, _ORDERS, _divergences(event.repeated))


@lru_cache(maxsize=4)
def _divergences(event: Event) -> np.ndarray:
    return np.array([divergence(event, float(order)) for order in _ORDERS])


def is_known_at(event: Event, order: float) -> bool:
    """Return whether a divergence of that order is known of an event, and of all of its parts."""
    if isinstance(event, RenyiDpEvent):
        return order <= event.order
    values = [getattr(event, each.name) for each in fields(event)]
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return all(is_known_at(part, order) for part in parts if _is_event(part))


@singledispatch
def leak(event: Event, epsilon: float) -> float:
    """Return the probability to be added to δ, in a ledger of ε."""
    return 0.0


@leak.register
def _(event: EpsilonDeltaDpEvent, epsilon: float) -> float:
    return event.delta


@leak.register
def _(event: PaddedDpEvent, epsilon: float) -> float:
    # P(S) ≤ P*(S) + τ ≤ e^ε Q*(S) + δ + τ ≤ e^ε (Q(S) + τ) + δ + τ (§2), for all of the ledger at once
    return exceedance(event.total_variation, epsilon) + leak(event.event, epsilon)


@leak.register
def _(event: ComposedDpEvent, epsilon: float) -> float:
    return math.fsum(leak(part, epsilon) for part in event.events)


@leak.register
def _(event: SelfComposedDpEvent, epsilon: float) -> float:
    return event.count * leak(event.event, epsilon)


@leak.register
def _(event: DisjointDpEvent, epsilon: float) -> float:
    return max(leak(part, epsilon) for part in event.events)


@leak.register
def _(event: RepeatAndSelectDpEvent, epsilon: float) -> float:
    # P(S) ≤ P*(S) + τ ≤ e^ε Q*(S) + δ + τ ≤ e^ε (Q(S) + τ) + δ + τ (§2), for all of the ledger at once;
    # runs that leak with probability δ each are within E[K]δ of runs that do not
    return exceedance(event.total_variation + event.mean * leak(event.repeated, epsilon), epsilon)


def exceedance(delta: float, epsilon: float) -> float:
    """Return (1 + e^ε)δ, rounded up, or a number above 1 if that is above 1.

    A total variation of δ from an (ε, 0)-DP mechanism, in both worlds, adds this to its δ (§2).
    """
    return (delta + math.exp(min(epsilon + math.log(delta), 0.0))) * (1 + 1e-12) if delta > 0 else 0.0


def as_gaussian(event: Event, guarantee: EpsilonDeltaDpEvent) -> tuple[float, Event]:
    """Return μ², and the event whose leak is charged with it: the event itself, or its stand-alone (ε, δ)."""
    own = gaussian_square(event)
    return (pure_mean(guarantee.epsilon) ** 2, guarantee) if own is None else (own, event)


@singledispatch
def gaussian_square(event: Event) -> float | None:
    """Return μ² such that, leaks apart, the event is at least as private as N(μ, 1) against N(0, 1); None without one.

    Of mixtures, a joint distribution with the shares shown has the hockey-sticks' mean, so that the worst μ holds.
    """
    return None


@gaussian_square.register
def _(event: GaussianDpEvent) -> float | None:
    return event.noise_multiplier**-2


@gaussian_square.register
def _(event: EpsilonDeltaDpEvent) -> float | None:
    return pure_mean(event.epsilon) ** 2


@gaussian_square.register
def _(event: SphericalLaplaceDpEvent) -> float | None:
    return min(pure_mean(event.epsilon) ** 2, curves.spherical_gaussian_square(event.epsilon, event.dimension))


@gaussian_square.register
def _(event: PerturbedMinimumDpEvent) -> float | None:
    return None if event.delta else pure_mean(event.epsilon) ** 2


@gaussian_square.register
def _(event: ExponentialMechanismDpEvent) -> float | None:
    return pure_mean(event.epsilon / 2) ** 2


@gaussian_square.register
def _(event: ShuffledGaussianDpEvent) -> float | None:
    return min(event.noise_multipliers) ** -2


@gaussian_square.register
def _(event: PoissonGaussianDpEvent) -> float | None:
    # on all rows in each step the steps are one Gaussian; on samples their curve is none of a Gaussian
    moved = 2 * event.rows / event.noise_multiplier
    return event.steps * moved**2 if event.sampling_probability == 1 else None


@gaussian_square.register
def _(event: PaddedDpEvent) -> float | None:
    return gaussian_square(event.event)


@gaussian_square.register
def _(event: ComposedDpEvent) -> float | None:
    return _of_all(math.fsum, gaussian_square, event.events)


@gaussian_square.register
def _(event: SelfComposedDpEvent) -> float | None:
    once = gaussian_square(event.event)
    return None if once is None else event.count * once


@gaussian_square.register
def _(event: DisjointDpEvent) -> float | None:
    return _of_all(max, gaussian_square, event.events)  # neighbours differ in one part


def pure_mean(epsilon: float) -> float:
    """Return μ = 2Φ⁻¹(e^ε/(1+e^ε)), rounded up: pure ε is at least as private as N(μ, 1) against N(0, 1).

    So is every privacy loss in an interval of length 2ε, which a bounded range of 2ε is.
    Proof. Let a test have the powers p and q. With a loss in [t, t + 2ε] both p/q and (1-p)/(1-q) lie between e^t and
    e^(t+2ε): ln(p/(1-p)) - ln(q/(1-q)) ≤ 2ε. h(x) = Φ⁻¹(1/(1+e^-x)) is odd, and concave for x > 0: that is
    f(z) = (2Φ-1)φ - zΦ(1-Φ) ≥ 0 for z > 0, where f(0) = f(∞) = 0, f' = 2φ² - Φ(1-Φ), and f'' = φ(2Φ-1-4zφ) is first
    negative, then positive; f' > 0 at 0 and 0 at ∞, so that f rises, and then falls to 0. So h rises most around 0:
    Φ⁻¹(p) - Φ⁻¹(q) ≤ h(ε) - h(-ε) = μ, for every test. ∎
    """
    if epsilon > 600:  # Φ(-x) ≤ exp(-x²/2)/2 gives x ≤ √(2 ln((1+e^ε)/2)) ≤ √(2ε)
        return 2 * math.sqrt(2 * epsilon)
    return -2 * NormalDist().inv_cdf(1 / (1 + math.exp(epsilon))) * (1 + 1e-9) + 1e-15


def zero_concentrated(event: Event, guarantee: EpsilonDeltaDpEvent) -> tuple[float, Event]:
    """Return ρ, and the event whose leak is charged with it: the event itself, or its stand-alone (ε, δ)."""
    own = concentration(event)
    return (pure_concentration(guarantee.epsilon), guarantee) if own is None else (own, event)


@singledispatch
def concentration(event: Event) -> float | None:
    """Return ρ such that D_α ≤ αρ for every α > 1 at once, leaks apart; None for an event without such a ρ (§13)."""
    return None


@concentration.register
def _(event: GaussianDpEvent) -> float | None:
    return 1 / (2 * event.noise_multiplier**2)


@concentration.register
def _(event: ZCDpEvent) -> float | None:
    return event.rho


@concentration.register
def _(event: EpsilonDeltaDpEvent) -> float | None:
    return pure_concentration(event.epsilon)


@concentration.register
def _(event: SphericalLaplaceDpEvent) -> float | None:
    return min(pure_concentration(event.epsilon), curves.spherical_concentration(event.epsilon, event.dimension))


@concentration.register
def _(event: PerturbedMinimumDpEvent) -> float | None:
    if not isinstance(event.noise, GaussianDpEvent):
        return pure_concentration(event.epsilon)
    longest = max(1.0, event.outputs * max(event.corners) ** 2)
    return curves.perturbed_concentration(
        longest / event.noise.noise_multiplier**2, event.curvature, event.outputs, len(event.corners)
    )


@concentration.register
def _(event: PoissonGaussianDpEvent) -> float | None:
    square = gaussian_square(event)
    return None if square is None else square / 2


@concentration.register
def _(event: ShuffledGaussianDpEvent) -> float | None:
    # D_α is jointly quasi-convex: of mixtures with the same shares it is at most that of the worst position
    return 1 / (2 * min(event.noise_multipliers) ** 2)


@concentration.register
def _(event: ExponentialMechanismDpEvent) -> float | None:
    return curves.range_concentration(event.epsilon)


@concentration.register
def _(event: PaddedDpEvent) -> float | None:
    return concentration(event.event)


@concentration.register
def _(event: ComposedDpEvent) -> float | None:
    return _of_all(math.fsum, concentration, event.events)


@concentration.register
def _(event: SelfComposedDpEvent) -> float | None:
    once = concentration(event.event)
    return None if once is None else event.count * once


@concentration.register
def _(event: DisjointDpEvent) -> float | None:
    return _of_all(max, concentration, event.events)


def _of_all(
    join: Callable[[list[float]], float], measure: Callable[[Event], float | None], parts: tuple[Event, ...]
) -> float | None:
    values = [measure(part) for part in parts]
    known = [each for each in values if each is not None]
    return join(known) if len(known) == len(values) else None


def pure_concentration(epsilon: float) -> float:
    """Return the least ρ for which every ε-DP mechanism is ρ-zCDP: ε·tanh(ε/2) ≤ ε²/2 (privacy.md §13).

    Proof. (α-1)D_α ≤ g(α) = ln[cosh((α-½)ε)/cosh(ε/2)], with g(1) = 0 and g' = ε·tanh((2α-1)ε/2). tanh is
    concave on [0, ∞) and 0 at 0, so tanh(cx) ≤ c·tanh(x) for c ≥ 1: g' ≤ (2α-1)ε·tanh(ε/2), whose integral from
    1 is α(α-1)ε·tanh(ε/2). Randomised response has D_α → ε·tanh(ε/2) as α → 1.
    """
    return epsilon * math.tanh(epsilon / 2)


def pure_divergence(epsilon: float, order: float) -> float:
    """Return r(ε, α): the largest order-α Rényi divergence of an ε-DP mechanism (§13).

    (1/(α-1)) ln[(sinh αε - sinh (α-1)ε)/sinh ε] = (1/(α-1)) ln[cosh((α-1/2)ε)/cosh(ε/2)], attained by
    randomised response; at most min(ε, αε²/2).
    """
    exact = (_log_cosh((order - 0.5) * epsilon) - _log_cosh(epsilon / 2)) / (order - 1)
    return min(epsilon, order * epsilon**2 / 2, max(exact, 0.0) + 1e-15)


def _log_cosh(x: float) -> float:
    """Return ln cosh x for x ≥ 0 without overflow, and without cancellation near 0."""
    return math.log1p(2 * math.sinh(x / 2) ** 2) if x < 1 else x + math.log1p(math.exp(-2 * x)) - math.log(2)


@singledispatch
def replace_one(event: Event) -> Event:
    """Return the replace-one form of an add-remove event (§13); raise ValueError if there is none.

    Replacing a record is removing one and adding one.
    """
    raise ValueError(
        f"an add-remove {type(event).__name__} cannot be charged to a replace-one dataset; analyse it for replace-one"
    )


@replace_one.register
def _(event: GaussianDpEvent) -> Event:
    return GaussianDpEvent(event.noise_multiplier / 2)


@replace_one.register
def _(event: ZCDpEvent) -> Event:
    return ZCDpEvent(4 * event.rho)  # of a Gaussian, whose sensitivity at most doubles


@replace_one.register
def _(event: SphericalLaplaceDpEvent) -> Event:
    return SphericalLaplaceDpEvent(2 * event.epsilon, event.dimension)


@replace_one.register
def _(event: EpsilonDeltaDpEvent) -> Event:
    return EpsilonDeltaDpEvent(*_doubled(event.epsilon, event.delta))


def _doubled(epsilon: float, delta: float) -> tuple[float, float]:
    return 2 * epsilon, exceedance(delta, epsilon)


@dataclass(frozen=True)
class Release:
    """A mechanism's two guarantees: its event, and its stand-alone (ε, δ)."""

    event: Event
    epsilon: float
    delta: float
    neighbours: str = REPLACE_ONE

    def as_replace_one(self) -> "Release":
        """Return the release for replace-one neighbours; raise ValueError if its event has no such form."""
        if self.neighbours == REPLACE_ONE:
            return self
        return Release(replace_one(self.event), *_doubled(self.epsilon, self.delta))

    def as_data(self) -> dict[str, Any]:
        """Return the release as data, for the ledger."""
        return {
            "event": _event_data(self.event),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.neighbours,
        }

    @classmethod
    def from_data(cls, data: Any) -> "Release":
        """Return the release that `as_data` described.

        Raises
        ------
        ValueError
            If the event is unknown, or its numbers are out of range.
        """
        if not isinstance(data, dict) or not {"event", "epsilon", "delta"} <= set(data):
            raise ValueError("the guarantee of a charge is incomplete; give event, epsilon and delta")
        neighbours = data.get("neighbours", REPLACE_ONE)
        if neighbours not in (REPLACE_ONE, ADD_REMOVE):
            raise ValueError(f"neighbours {neighbours!r} are unknown; they are {REPLACE_ONE} or {ADD_REMOVE}")
        check_epsilon_delta(data["epsilon"], data["delta"])
        try:
            return cls(_event_from(data["event"]), data["epsilon"], data["delta"], neighbours)
        except (KeyError, TypeError) as error:
            raise ValueError(
                "the event of a charge does not have the numbers of its kind; give all of them, and no others"
            ) from error


_WRITTEN = {"event": "composed"}  # in data, "event" is the kind of event
_READ = {written: name for name, written in _WRITTEN.items()}


def _event_data(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = {"event": type(event).__name__}
    for each in fields(event):
        if getattr(event, each.name) == each.default:
            continue
        data[_WRITTEN.get(each.name, each.name)] = _value_data(getattr(event, each.name))
    return data


def _value_data(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value_data(item) for item in value]
    if isinstance(value, float):
        return "inf" if math.isinf(value) else value
    return _event_data(value) if type(value).__name__ in EVENTS else value


def _event_from(data: dict[str, Any], levels: int = MOST_LEVELS) -> Event:
    if not levels:
        raise ValueError(f"event cannot be charged: its events are nested more than {MOST_LEVELS} levels deep")
    values = dict(data) if isinstance(data, dict) else {"event": data}
    kind = values.pop("event")
    if kind not in EVENTS:
        raise ValueError(f"event {kind!r} cannot be charged; known are {', '.join(EVENTS)}")
    event = EVENTS[kind](**{_READ.get(name, name): _value_from(value, levels - 1) for name, value in values.items()})
    for each in fields(event):
        _CHECKS[each.name](getattr(event, each.name))
    if kind == ShuffledGaussianDpEvent.__name__ and len(event.shares) != len(event.noise_multipliers):
        raise ValueError(f"event {kind!r} cannot be charged: {len(event.shares)} shares need as many noise_multipliers")
    return event


def _value_from(value: Any, levels: int) -> Any:
    if isinstance(value, list):
        return tuple(_value_from(item, levels) if isinstance(item, dict) else _number(item) for item in value)
    if isinstance(value, dict):
        return _event_from(value, levels)
    return _number(value)


def _number(value: Any) -> Any:
    return math.inf if value == "inf" else value


def _check(condition: Callable[[Any], bool], what: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not condition(value):
            raise ValueError(f"event cannot be charged: {what}")

    return check


def _within(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and low <= value <= high


def _is_count(value: Any) -> bool:
    return checks.is_whole(value) and 1 <= value <= MAX_COUNT


def _is_event(value: Any) -> bool:
    return type(value).__name__ in EVENTS


def _is_run(value: Any) -> bool:
    """Return whether a value is an event without repetitions, each level of which multiplies the computation."""
    if not _is_event(value) or isinstance(value, RepeatAndSelectDpEvent):
        return False
    parts = value.events if isinstance(value, ComposedDpEvent | DisjointDpEvent) else ()
    return all(map(_is_run, (*parts, *([value.event] if isinstance(value, SelfComposedDpEvent) else ()))))


def _is_noise(value: Any) -> bool:
    return isinstance(value, GaussianDpEvent | SphericalLaplaceDpEvent)


_CHECKS: dict[str, Callable[[Any], None]] = {
    "noise_multiplier": _check(_within(1e-9, 1e12), "noise_multiplier must be between 1e-9 and 1e12"),
    "order": _check(_within(1 + 1e-13, 1e30), "order must be above 1 and at most 1e30"),
    "divergence": _check(_within(0, 1e300), "divergence must be from 0 to 1e300"),
    "rho": _check(_within(1e-24, 1e18), "rho must be between 1e-24 and 1e18"),
    "epsilon": _check(_within(MIN_EPSILON, MAX_EPSILON), f"epsilon must be from {MIN_EPSILON:g} to {MAX_EPSILON:g}"),
    "delta": _check(_within(0, math.nextafter(1, 0)), "delta must be at least 0 and below 1"),
    "mean": _check(_within(1, 1e6), "mean must be between 1 and 1e6"),
    "shape": _check(lambda value: value in (1, math.inf), "shape must be 1 or infinite"),
    "total_variation": _check(_within(0, 1), "total_variation must be between 0 and 1"),
    "sampling_probability": _check(_within(1e-15, 1), "sampling_probability must be between 1e-15 and 1"),
    "steps": _check(_is_count, f"steps must be a whole number from 1 to {MAX_COUNT}"),
    "rows": _check(lambda value: _is_count(value) and value <= MOST_ROWS, f"rows must be from 1 to {MOST_ROWS}"),
    "count": _check(_is_count, f"count must be a whole number from 1 to {MAX_COUNT}"),
    "dimension": _check(_is_count, f"dimension must be a whole number from 1 to {MAX_COUNT}"),
    "outputs": _check(_is_count, f"outputs must be a whole number from 1 to {MAX_COUNT}"),
    "curvature": _check(_within(0, 1e6), "curvature must be between 0 and 1e6"),
    "corners": _check(
        lambda value: value and all(map(_within(0, 1), value)) and len(value) <= MOST_CORNERS,
        f"corners must be up to {MOST_CORNERS} lengths from 0 to 1",
    ),
    "noise": _check(_is_noise, "`noise` must be Gaussian or spherical Laplace"),
    "repeated": _check(_is_run, "`repeated` must be an event that is not itself repeated"),
    "event": _check(_is_event, "`composed` must be an event"),
    "events": _check(lambda value: value and all(map(_is_event, value)), "`events` must be a list of events"),
    "shares": _check(
        lambda value: value and all(map(_within(0, 1), value)) and abs(math.fsum(value) - 1) < 1e-9,
        "shares must add up to 1",
    ),
    "noise_multipliers": _check(
        lambda value: value and all(map(_within(1e-9, 1e300), value)), "noise_multipliers must be at least 1e-9"
    ),
}
