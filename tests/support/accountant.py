"""ε of an event by dp_accounting where it knows the event, else by the bounds of privacy.md §13."""

import math

import dp_accounting
import numpy as np
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import minimize_scalar

from dbdp.privacy.accounting.events import (
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    PerturbedMinimumDpEvent,
    PoissonGaussianDpEvent,
    RenyiDpEvent,
    SelfComposedDpEvent,
    SphericalLaplaceDpEvent,
    ZCDpEvent,
)

PURE = EpsilonDeltaDpEvent | ExponentialMechanismDpEvent | SphericalLaplaceDpEvent | PerturbedMinimumDpEvent


def recomputed(event, delta):
    """ε of an event at δ, with dp_accounting as far as it goes."""
    if isinstance(event, PURE):
        return event.epsilon
    if isinstance(event, PoissonGaussianDpEvent) and event.sampling_probability == 1:
        event = GaussianDpEvent(event.noise_multiplier / (2 * event.rows * math.sqrt(event.steps)))
    if isinstance(event, PoissonGaussianDpEvent | ZCDpEvent):
        return renyi_epsilon(event, delta)
    if isinstance(event, GaussianDpEvent):
        release_plan = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        return (
            dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-5).compose(release_plan).get_epsilon(delta)
        )
    if isinstance(event, RenyiDpEvent):
        return event.bound + tight_conversion(event.order, delta)
    return repeated(event, delta) if isinstance(event, SelfComposedDpEvent) else composed(event, delta)


def repeated(event, delta):
    """Pure releases add up; selections are ε²/8-zCDP each, which dp_accounting composes and converts."""
    pure = event.event.epsilon * event.count
    if delta == 0 or not isinstance(event.event, ExponentialMechanismDpEvent):
        return pure
    accountant = RdpAccountant(1 + np.geomspace(0.05, 1e5, 5000), dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.ZCDpEvent(event.event.epsilon**2 / 8), event.count)
    return min(pure, accountant.get_epsilon(delta))


def renyi_epsilon(event, delta):
    """The best tight conversion over all real orders, by SciPy."""

    def epsilon_at(log_excess):
        order = 1 + math.exp(log_excess)
        return event.divergence(order) + tight_conversion(order, delta)

    coarse = min(np.arange(-4, 10, 0.2), key=epsilon_at)
    return minimize_scalar(epsilon_at, bracket=(coarse - 0.2, coarse, coarse + 0.2)).fun


def tight_conversion(order, delta):
    """κ(α)."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def composed(event, delta):
    """Parts one after the other, each at its share of δ: its own where it has one, the rest for a Gaussian."""
    left = delta - sum(part.delta for part in event.events if hasattr(part, "delta"))
    assert left >= -1e-15
    return sum(recomputed(part, left) for part in event.events)
