"""Loss functions of linear models, with the constants that sensitivity bounds need.

Shapes: features (n, d), labels (n,), model (d,), scores (n,) = ⟨w, x⟩. The labels of classifiers
are -1 and +1, those of regressions in [-1, 1]. The constants exclude the regulariser, assume rows with
‖x‖₂ ≤ 1, and bound the derivative as computed: |derivative| ≤ lipschitz without exception.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from dbdp.checks import between, one_of
from dbdp.learning.compiled.arithmetic import exponential, log1p_exponential

SMALLEST, LARGEST = 1e-6, 1e6  # limits of every parameter: beyond them steps or noise are useless
WIDEST_HINGE = 1.0  # a wider smoothing would touch margin 0, where a hinge has slope -1
_ADVICE = {
    "width": "0.1 to 1 suits most data",
    "radius": "1 to 10 suits most data",
    "positive_weight": "1 treats all rows alike",
}


class Loss(Protocol):
    """The interface of a loss."""

    name: ClassVar[str]
    code: ClassVar[int]  # number of the loss in the compiled kernel and in a state
    is_classifier: ClassVar[bool]  # whether labels are -1 and +1; otherwise they are in [-1, 1]

    @property
    def width(self) -> float | None:
        """Width of the smoothed part, None for a loss without one."""

    @property
    def positive_weight(self) -> float:
        """Factor of the loss of rows with label +1."""

    @property
    def radius(self) -> float | None:
        """Largest norm of a model for which the constants hold; None if they hold for every model."""

    @property
    def lipschitz(self) -> float:
        """A bound on ‖∇‖₂."""

    @property
    def smoothness(self) -> float:
        """A bound on ‖∇²‖."""

    @property
    def scalar_error(self) -> float:
        """|computed - exact derivative| of an exact score, in units of 2⁻⁵³."""

    @property
    def parameters(self) -> tuple[float, float]:
        """The two numbers that a state stores: width or radius (else 0), and positive_weight."""

    def value(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the loss of each row."""

    def derivative(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return dℓ/dscore of each row."""


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(-y⟨w, x⟩)).

    ‖∇‖ ≤ ‖x‖, since the sigmoid s is below 1; ‖∇²‖ ≤ ‖x‖²/4, since s(1 - s) ≤ 1/4.
    """

    positive_weight: float = 1.0
    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = 1
    is_classifier: ClassVar[bool] = True
    width: ClassVar[None] = None
    radius: ClassVar[None] = None

    def __post_init__(self) -> None:
        _check("positive_weight", self.positive_weight, most=LARGEST)

    @property
    def lipschitz(self) -> float:
        return max(1.0, self.positive_weight)

    @property
    def smoothness(self) -> float:
        return 0.25 * max(1.0, self.positive_weight)

    @property
    def scalar_error(self) -> float:
        """Proof: exp errs by a relative 4u at most, sum, quotient and weight add 3u: 7u in all (§14.2 allows 8)."""
        return 8.0 * max(1.0, self.positive_weight)

    @property
    def parameters(self) -> tuple[float, float]:
        return 0.0, self.positive_weight

    def value(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        margins = labels * scores
        return _weights(self, labels) * (np.maximum(0.0, -margins) + log1p_exponential(-np.abs(margins)))

    def derivative(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return dℓ/dscore of each row; it is 0, as it should be, where the exponential is infinite."""
        return -labels * _weights(self, labels) / (1.0 + exponential(labels * scores))


@dataclass(frozen=True)
class HuberSvm:
    """The hinge max(0, 1 - m) of the margin m = y⟨w, x⟩, smoothed by a parabola for |1 - m| ≤ h = width.

    The slope in m falls from 0 to -1 over a stretch of 2h: |ℓ'| ≤ 1, ℓ'' ≤ 1/(2h).
    """

    width: float = 0.5  # the papers' default
    positive_weight: float = 1.0
    name: ClassVar[str] = "huber_svm"
    code: ClassVar[int] = 2
    is_classifier: ClassVar[bool] = True
    radius: ClassVar[None] = None

    def __post_init__(self) -> None:
        _check("width", self.width, most=WIDEST_HINGE)
        _check("positive_weight", self.positive_weight, most=LARGEST)

    @property
    def lipschitz(self) -> float:
        return max(1.0, self.positive_weight)

    @property
    def smoothness(self) -> float:
        return max(1.0, self.positive_weight) / (2.0 * self.width)

    @property
    def scalar_error(self) -> float:
        """§14.2. 1 + h errs by 2u, the difference by 2hu, then / 2h, and weight: 1/h + 3 at most."""
        return 4.0 * (1.0 + 1.0 / self.width) * max(1.0, self.positive_weight)

    @property
    def parameters(self) -> tuple[float, float]:
        return self.width, self.positive_weight

    def value(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        margins = labels * scores
        beyond = np.maximum((1.0 - self.width) - margins, 0.0)
        return _weights(self, labels) * (self._within(margins) ** 2 / (4.0 * self.width) + beyond)

    def derivative(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return -labels * _weights(self, labels) * (self._within(labels * scores) / (2.0 * self.width))

    def _within(self, margins: np.ndarray) -> np.ndarray:
        """Return the distance of each margin from the parabola's upper end 1 + h, clipped to [0, 2h]."""
        return np.clip((1.0 + self.width) - margins, 0.0, 2.0 * self.width)


class _OfResiduals(ABC):
    """A loss of the residual r = ⟨w, x⟩ - y: r²/2 where |r| ≤ L, linear beyond, with L the Lipschitz constant."""

    is_classifier: ClassVar[bool] = False
    positive_weight: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 1.0

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """L."""

    @property
    def scalar_error(self) -> float:
        """The residual errs by u|r|; where it is not clamped |r| is about L at most."""
        return 2.0 * self.lipschitz

    def value(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return _parabola(scores - labels, self.lipschitz)

    def derivative(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.clip(scores - labels, -self.lipschitz, self.lipschitz)


@dataclass(frozen=True)
class HuberRegression(_OfResiduals):
    """r²/2 of the residual r = ⟨w, x⟩ - y where |r| ≤ δ = width, else δ(|r| - δ/2).

    The slope is r clamped to ±δ: |ℓ'| ≤ δ, ℓ'' ≤ 1.
    """

    width: float = 1.0
    name: ClassVar[str] = "huber_regression"
    code: ClassVar[int] = 3
    radius: ClassVar[None] = None

    def __post_init__(self) -> None:
        _check("width", self.width, most=LARGEST)

    @property
    def lipschitz(self) -> float:
        return self.width

    @property
    def parameters(self) -> tuple[float, float]:
        return self.width, self.positive_weight


@dataclass(frozen=True)
class Squared(_OfResiduals):
    """r²/2 of the residual r = ⟨w, x⟩ - y where |r| ≤ L = min(radius, 1) + 1, linear beyond; labels are in [-1, 1].

    A prediction within the labels' bounds, or in the ball ‖w‖₂ ≤ radius, has no longer residual: there it is the
    squared loss. The constants need no ball: |ℓ'| ≤ L ≤ 2, ℓ'' ≤ 1.
    """

    radius: float = 1.0
    name: ClassVar[str] = "squared"
    code: ClassVar[int] = 4
    width: ClassVar[None] = None

    def __post_init__(self) -> None:
        _check("radius", self.radius, most=LARGEST)

    @property
    def lipschitz(self) -> float:
        return min(self.radius, 1.0) + 1.0

    @property
    def parameters(self) -> tuple[float, float]:
        return self.radius, self.positive_weight


def softmax_losses(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the cross-entropy of each row, which is ≥ 0, shape (n,); any number where there is no label.

    Scores have the shape (n, K); labels (n,) are 1, …, K, and 0 for none.
    """
    largest = scores.max(axis=1)
    sums = largest + np.log(exponential(scores - largest[:, None]).sum(axis=1))
    return sums - scores[np.arange(len(scores)), _places(labels)]


def softmax_slopes(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the slopes of `softmax_losses` in the scores, shape (n, K); any numbers where there is no label."""
    slopes = exponential(scores - scores.max(axis=1)[:, None])
    slopes /= slopes.sum(axis=1)[:, None]
    slopes[np.arange(len(scores)), _places(labels)] -= 1.0
    return slopes


def of_class(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return which labels are one of 1, …, K, shape (n,)."""
    return (labels >= 1.0) & (labels <= classes) & (labels == np.floor(labels))


def _places(labels: np.ndarray) -> np.ndarray:
    """Return the place of each label's score; the first where there is no label."""
    return np.maximum(labels, 1.0).astype(np.intp) - 1


# name: the class, and which of loss_named's settings it has
LOSSES: dict[str, tuple[Callable[..., Loss], tuple[str, ...]]] = {
    Logistic.name: (Logistic, ("positive_weight",)),
    HuberSvm.name: (HuberSvm, ("width", "positive_weight")),
    HuberRegression.name: (HuberRegression, ("width",)),
    Squared.name: (Squared, ("radius",)),
}


def loss_named(
    name: str, *, width: float | None = None, radius: float | None = None, positive_weight: float = 1.0
) -> Loss:
    """Return the loss of that name; None stands for the loss's own default."""
    one_of("loss", name, LOSSES)
    values = {"width": width, "radius": radius, "positive_weight": None if positive_weight == 1.0 else positive_weight}
    kind, settings = LOSSES[name]
    for setting, value in values.items():
        if value is not None and setting not in settings:
            alternatives = ", ".join(other for other, (_, known) in LOSSES.items() if setting in known)
            remedy = f"drop {setting} or use {alternatives}"
            raise ValueError(f"loss {name!r} does not support {setting} (got {value}); {remedy}")
    return kind(**{setting: value for setting, value in values.items() if value is not None})


def loss_with(code: int, parameters: tuple[float, float]) -> Loss:
    """Return the loss that a state describes."""
    first, positive_weight = parameters
    if code == Logistic.code:
        return Logistic(positive_weight)
    if code == HuberSvm.code:
        return HuberSvm(first, positive_weight)
    if code == HuberRegression.code:
        return HuberRegression(first)
    if code == Squared.code:
        return Squared(first)
    raise ValueError(f"loss code {code} is unknown; known are 1 to {len(LOSSES)}")


def _check(setting: str, value: float, *, most: float) -> None:
    between(setting, value, SMALLEST, most, _ADVICE[setting])


def _weights(loss: Logistic | HuberSvm, labels: np.ndarray) -> np.ndarray:
    return np.where(labels > 0, loss.positive_weight, 1.0)


def _parabola(residuals: np.ndarray, limit: float) -> np.ndarray:
    """r²/2 up to |r| = limit, and its tangent beyond."""
    sizes = np.abs(residuals)
    within = np.minimum(sizes, limit)
    return within**2 / 2.0 + limit * (sizes - within)
