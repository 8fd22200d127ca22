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
from dbdp.algorithms.settings import NUMBER_NOISE
from dbdp.learning.losses import HuberSvm, Squared
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

MAY_WIN = "noise may exceed the signal"
BENDS = 5.0, 20.0, 100.0  # of nμ/d: from each on a cost falls at another rate
LEAST = {"accuracy": 0.01, "log_loss": 1e-4, "rmse": 1e-5, "noise": 1e-3}  # costs below count as none
MOST = {"accuracy": 100.0, "rmse": 2.0, "noise": 2.0}  # no cost is above: predictions are cut at the label's bounds
# By kind of label: the most that may be hidden without a warning, in log loss, or in half ranges of the label's bounds.
HIDDEN = {"binary": 0.03, "classes": 0.06, "numbers": 0.05}
Ends = tuple[tuple[float, ...], tuple[float, ...]]
# By algorithm, whether δ = 0, and kind of label: the constants of a low and a high quantile of each cost, for
# `covariates`. Accuracy is in points, RMSE and noise in half ranges of the label's bounds.
CONSTANTS: Mapping[tuple[str, bool, str], Mapping[str, Ends]] = {
    ("preconditioned_gd", False, "binary"): {
        "accuracy": (
            (-5.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (3.576, -0.554, 0.018, -1.483, 1.871, -0.38, 0.144, 0.0),
        ),
        "log_loss": (
            (-8.614, -2.051, 1.326, -2.071, 1.024, -1.164, 1.298, 0.0),
            (0.815, -0.722, 0.164, -0.731, 0.998, -0.404, 0.042, 0.0),
        ),
    },
    ("private_splines", False, "binary"): {
        "accuracy": (
            (-5.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (3.035, -0.875, -0.189, 0.166, 0.403, -0.396, 0.221, 0.0),
        ),
        "log_loss": (
            (-10.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (-0.289, -1.102, 0.538, -0.433, 0.669, -0.283, 0.117, 0.0),
        ),
    },
    ("private_splines", False, "classes"): {
        "accuracy": (
            (-5.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (2.017, -0.195, -0.892, 0.064, -0.11, 0.016, 0.036, 0.63),
        ),
        "log_loss": (
            (-10.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (-1.103, -0.305, -0.739, 0.088, 0.109, -0.168, 0.046, 0.846),
        ),
    },
    ("objective_perturbation", True, "binary"): {
        "accuracy": (
            (-5.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (3.731, -0.303, -0.085, -0.17, 0.149, -0.072, 0.068, 0.0),
        ),
        "log_loss": (
            (-13.15, 0.379, -3.168, -0.651, 2.384, -1.41, 1.968, 0.0),
            (-0.776, -0.175, -0.19, -0.121, 0.267, -0.008, 0.033, 0.0),
        ),
    },
    ("preconditioned_gd", False, "classes"): {
        "accuracy": (
            (-5.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (3.733, -0.572, 0.0, 0.0, 0.0, -0.111, 0.0, 0.498),
        ),
        "log_loss": (
            (4.177, -1.426, 0.0, 0.0, 0.0, -0.631, 0.0, -0.507),
            (2.518, -0.809, 0.0, 0.0, 0.0, -0.36, 0.0, 0.667),
        ),
    },
    ("objective_perturbation", True, "classes"): {
        "accuracy": (
            (-5.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (3.718, -0.093, 0.0, 0.0, 0.0, -0.016, 0.0, 0.193),
        ),
        "log_loss": (
            (-3.719, -0.515, 0.0, 0.0, 0.0, -0.37, 0.0, 1.281),
            (-1.331, -0.129, 0.0, 0.0, 0.0, 0.08, 0.0, 0.778),
        ),
    },
    ("preconditioned_gd", False, "numbers"): {
        "rmse": (
            (-8.275, 1.539, -3.453, -0.452, -2.588, -0.223, 0.352, 0.0),
            (-0.332, -0.402, -0.555, -0.44, 0.265, -0.268, 0.004, 0.0),
        ),
        "noise": (
            (-5.335, 1.005, -2.511, 0.214, 0.831, 0.013, 0.12, 0.0),
            (-0.477, -0.258, -0.25, -0.138, 0.001, -0.13, -0.011, 0.0),
        ),
    },
    ("private_splines", False, "numbers"): {
        "rmse": (
            (-5.437, -1.49, -3.847, 5.656, -0.664, -1.255, 0.584, 0.0),
            (-1.27, -0.417, -0.92, 0.292, 0.263, -0.165, -0.024, 0.0),
        ),
        "noise": (
            (-7.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (-0.99, -0.212, -0.465, 0.354, -0.388, -0.014, -0.063, 0.0),
        ),
    },
    ("objective_perturbation", True, "numbers"): {
        "rmse": (
            (-5.203, -0.269, 2.748, -3.13, -0.935, -0.079, -0.083, 0.0),
            (-0.025, -0.012, -0.531, 0.412, -0.614, -0.074, 0.019, 0.0),
        ),
        "noise": (
            (-3.564, -0.308, 1.072, -1.174, -0.632, -0.019, 0.08, 0.0),
            (0.015, -0.001, -0.399, 0.151, -0.076, -0.064, 0.006, 0.0),
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
    return [1.0, math.log(signal), *beyond, math.log(facts.dimension), math.log(facts.rows), math.log(facts.outputs)]


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


def noise_of_prediction(deviation: float, facts: Facts) -> dict[str, str]:
    """Return `predicted_noise`, the noise of a model of numbers in a prediction, and a `warning` if it is large.

    A row has norm 1 at most, so noise of that deviation in each coordinate has at most that in its score; a default
    aims at NUMBER_NOISE.
    """
    half, unit = _unit_of(facts)
    least = f"± {_rounded(1.96 * deviation * half)} {unit}"
    found = {"predicted_noise": f"up to {least} in a prediction (95 %), by the noise alone"}
    if deviation <= 2 * NUMBER_NOISE:
        return found
    warning = f"{MAY_WIN}: features that explain less than {least} may leave an R² below 0"
    return found | {"warning": f"{warning}; use narrower label_bounds, a larger epsilon, more rows or fewer features"}


def ranges(request: Request, facts: Facts) -> dict[str, tuple[float, float]]:
    """Return the low and the high end of each cost."""
    constants = CONSTANTS.get((request.algorithm, not request.delta, kind_of(facts)), {})
    epsilon = request.epsilon / (2 if request.loss == Squared.name and not request.delta else 1)  # twice Huber's noise
    by = covariates(facts, epsilon, request.delta) if constants else []
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
            half, unit = _unit_of(self.facts)
            return f"RMSE {_range(self.ranges['rmse'], LEAST['rmse'], half)} {unit} higher"
        points = f"{_range(self.ranges['accuracy'], LEAST['accuracy'])} points of accuracy"
        if not self.is_calibrated:
            return points
        return f"{points} and {_range(self.ranges['log_loss'], LEAST['log_loss'])} of log loss"

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
        half, unit = _unit_of(self.facts)
        less = f"features that explain less than ± {_rounded(hidden * half)} {unit} may leave an R² below 0"
        return f"{MAY_WIN}: {less}; use narrower label_bounds, a larger epsilon, more rows or fewer features"


def _unit_of(facts: Facts) -> tuple[float, str]:
    """Return half of the range of the label, and the unit it is in."""
    if facts.label_half is None:
        return 50.0, "% of the range of label_bounds"
    return facts.label_half, "units of the label"


def _range(ends: tuple[float, float], least: float, scale: float = 1.0) -> str:
    """Return a range as text, with two digits."""
    low, high = (each * scale for each in ends)
    return f"{_rounded(low)} to {_rounded(high)}" if high else f"less than {_rounded(least * scale)}"


def _rounded(value: float) -> str:
    """Return a number with two digits, without an exponent unless it is very long."""
    return f"{float(f'{value:.2g}'):.7g}"
