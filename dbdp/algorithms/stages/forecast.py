"""The forecast of the cost of privacy: noise and bias together, as a range that holds for four of five tables.

It follows from public facts only, before a training, and no guarantee depends on it. The cost depends on the rows too:
on how much the features say, and on how far a label spreads within its bounds. The ends of the range are quantiles of
the costs on generated tables, against a linear model without privacy. `python -m benchmarks.forecast` trains on these
tables and prints `CONSTANTS`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dbdp.algorithms.plan import Facts, Request
from dbdp.learning.losses import HuberSvm
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

MAY_WIN = "noise may exceed the signal"
BENDS = 5.0, 20.0, 100.0  # of nμ/d: from each on a cost falls at another rate
LEAST = {"accuracy": 0.01, "log_loss": 1e-4, "rmse": 1e-5, "noise": 1e-3}  # costs below count as none
MOST = {"accuracy": 100.0, "rmse": 2.0, "noise": 2.0}  # no cost is above: predictions are cut at the label's bounds
# By kind of label: the most that may be hidden without a warning, in log loss, or in half ranges of the label's bounds.
HIDDEN = {"binary": 0.02, "classes": 0.04, "numbers": 0.03}
Ends = tuple[tuple[float, ...], tuple[float, ...]]
# By algorithm, whether δ = 0, and kind of label: the constants of a low and a high quantile of each cost, for
# `covariates`. Accuracy is in points, RMSE and noise in half ranges of the label's bounds.
CONSTANTS: Mapping[tuple[str, bool, str], Mapping[str, Ends]] = {
    ("preconditioned_gd", False, "binary"): {
        "accuracy": (
            (-5.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (4.163, -0.608, -0.007, -1.053, 1.277, -0.314, 0.0),
        ),
        "log_loss": (
            (1.539, -2.327, 3.166, -3.09, 1.735, -1.622, 0.0),
            (1.237, -0.998, 0.739, -1.332, 1.337, -0.452, 0.0),
        ),
    },
    ("objective_perturbation", True, "binary"): {
        "accuracy": (
            (2.365, -0.337, -10.709, 0.0, 0.0, -0.285, 0.0),
            (3.701, -0.359, -0.264, 0.092, -0.142, -0.04, 0.0),
        ),
        "log_loss": (
            (3.591, -0.39, -1.681, -0.538, 1.824, -2.304, 0.0),
            (-0.201, -0.28, -0.336, 0.247, -0.267, -0.126, 0.0),
        ),
    },
    ("preconditioned_gd", False, "classes"): {
        "accuracy": (
            (1.229, -0.376, -0.276, -2.848, 3.425, -0.351, 0.845),
            (2.868, -0.239, -0.705, -0.319, 1.155, -0.135, 0.792),
        ),
        "log_loss": (
            (1.983, -1.375, 0.51, -1.065, 1.307, -0.569, 0.788),
            (2.196, -0.85, -0.377, -0.038, 1.017, -0.291, 0.677),
        ),
    },
    ("objective_perturbation", True, "classes"): {
        "accuracy": (
            (3.128, -0.11, -2.021, 1.547, -1.186, -1.104, 1.581),
            (3.865, 0.105, -0.547, 0.183, -0.458, -0.107, 0.112),
        ),
        "log_loss": (
            (1.455, 0.986, -3.099, 2.588, -1.743, -2.236, 0.119),
            (-0.372, 0.083, -0.797, 0.634, -0.469, -0.221, 0.678),
        ),
    },
    ("preconditioned_gd", False, "numbers"): {
        "rmse": (
            (-3.204, -0.208, -1.349, -0.61, -0.178, -0.034, 0.0),
            (-0.681, -0.352, -0.812, -0.412, 0.312, -0.216, 0.0),
        ),
        "noise": (
            (-2.615, -0.201, -0.863, -0.385, 0.969, 0.06, 0.0),
            (-0.644, -0.282, -0.396, 0.019, -0.01, -0.143, 0.0),
        ),
    },
    ("objective_perturbation", True, "numbers"): {
        "rmse": (
            (-4.922, 0.553, -0.62, -0.228, -0.981, 0.138, 0.0),
            (-0.156, -0.109, -0.18, -0.357, -0.251, -0.106, 0.0),
        ),
        "noise": (
            (-3.023, 0.399, -0.664, 0.183, -0.711, 0.063, 0.0),
            (-0.181, -0.113, -0.115, -0.068, -0.378, -0.084, 0.0),
        ),
    },
}


def signal_of(facts: Facts, epsilon: float, delta: float) -> float:
    """Return nμ/d, how far a unit of privacy is below what all rows say; with δ = 0, ε stands for μ."""
    unit = 1 / analytic_noise_multiplier(epsilon, delta) if delta else epsilon
    return facts.rows * unit / facts.dimension


def covariates(facts: Facts, epsilon: float, delta: float) -> list[float]:
    """Return what the logarithm of a quantile is linear in."""
    signal = signal_of(facts, epsilon, delta)
    beyond = [max(math.log(signal / each), 0.0) for each in BENDS]
    return [1.0, math.log(signal), *beyond, math.log(facts.dimension), math.log(facts.outputs)]


def kind_of(facts: Facts) -> str:
    """Return the kind of label: binary, classes or numbers."""
    if not facts.is_classifier:
        return "numbers"
    return "binary" if facts.outputs == 1 else "classes"


def forecast(request: Request, facts: Facts) -> dict[str, str]:
    """Return `predicted_loss` of a request, and a `warning` if noise may exceed the signal; nothing if none is known.

    The request names its algorithm, and is for single records.
    """
    if request.network is not None:
        return {}
    costs = ranges(request, facts)
    if not costs:
        return {}
    found = Forecast(costs, facts, is_calibrated=request.loss != HuberSvm.name)
    warning = found.warning
    return {"predicted_loss": found.sentence} | ({"warning": warning} if warning else {})


def ranges(request: Request, facts: Facts) -> dict[str, tuple[float, float]]:
    """Return the low and the high end of each cost."""
    constants = CONSTANTS.get((request.algorithm, not request.delta, kind_of(facts)), {})
    by = covariates(facts, request.epsilon, request.delta) if constants else []
    ends = {name: (_end(name, low, by), _end(name, high, by)) for name, (low, high) in constants.items()}
    return {name: (min(low, high), high) for name, (low, high) in ends.items()}


def _end(name: str, constants: tuple[float, ...], by: list[float]) -> float:
    value = math.exp(min(sum(each * of for each, of in zip(constants, by, strict=True)), 10.0))
    value = min(value, MOST.get(name, value))
    return value if value > LEAST[name] * 1.01 else 0.0


@dataclass(frozen=True)
class Forecast:
    """Ranges of costs, and how they are said."""

    ranges: Mapping[str, tuple[float, float]]
    facts: Facts
    is_calibrated: bool  # whether the model has probabilities, and so a log loss

    @property
    def sentence(self) -> str:
        """The range of each cost in words."""
        return f"{self._costs}, against a linear model without privacy, on 4 of 5 tables"

    @cached_property
    def _costs(self) -> str:
        if not self.facts.is_classifier:
            half, unit = self._unit
            return f"RMSE {_range(self.ranges['rmse'], LEAST['rmse'], half)} {unit} higher"
        points = f"{_range(self.ranges['accuracy'], LEAST['accuracy'])} points of accuracy"
        if not self.is_calibrated:
            return points
        return f"{points} and {_range(self.ranges['log_loss'], LEAST['log_loss'])} of log loss"

    @property
    def _unit(self) -> tuple[float, str]:
        """Half of the range of the label, and the unit it is in."""
        if self.facts.label_half is None:
            return 50.0, "% of the range of label_bounds"
        return self.facts.label_half, "units of the label"

    @property
    def warning(self) -> str | None:
        """A sentence if features that matter may say less than the noise hides."""
        name = "log_loss" if self.facts.is_classifier else "noise"
        hidden = self.ranges[name][1]
        if hidden <= HIDDEN[kind_of(self.facts)]:
            return None
        if self.facts.is_classifier:
            less = f"features that lower the log loss by less than {_rounded(hidden)} may leave a model worse than"
            return f"{MAY_WIN}: {less} the majority class; use a larger epsilon, more rows or fewer features"
        half, unit = self._unit
        less = f"features that explain less than ± {_rounded(hidden * half)} {unit} may leave an R² below 0"
        return f"{MAY_WIN}: {less}; use narrower label_bounds, a larger epsilon, more rows or fewer features"


def _range(ends: tuple[float, float], least: float, scale: float = 1.0) -> str:
    """Return a range as text, with two digits."""
    low, high = (each * scale for each in ends)
    return f"{_rounded(low)} to {_rounded(high)}" if high else f"less than {_rounded(least * scale)}"


def _rounded(value: float) -> str:
    """Return a number with two digits, without an exponent unless it is very long."""
    return f"{float(f'{value:.2g}'):.7g}"
