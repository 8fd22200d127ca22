"""Losses of linear models, with the constants that sensitivity bounds need.

Shapes: features (n, d), labels (n,) in {-1, +1}, model (d,), margins (n,) = y⟨w, x⟩.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(-y⟨w, x⟩)), for rows with ‖x‖₂ ≤ 1."""

    name: str = "logistic"
    code: int = 1  # how the compiled kernel and the state name it
    lipschitz: float = 1.0  # ‖∇‖₂ ≤ ‖x‖₂, since the sigmoid is below 1
    smoothness: float = 0.25  # ‖∇²‖ ≤ ‖x‖₂² / 4, since s(1 - s) ≤ 1/4
    scalar_error: float = 8.0  # |computed - exact derivative| in units of 2⁻⁵³, exp within 1 ulp

    def value(self, margins: np.ndarray) -> np.ndarray:
        """Return the loss of each margin, without overflow."""
        return np.logaddexp(0.0, -margins)

    def derivative(self, margins: np.ndarray) -> np.ndarray:
        """Return dℓ/dmargin in [-1, 0]; exp may overflow to infinity, which gives the right 0."""
        with np.errstate(over="ignore"):
            return -1.0 / (1.0 + np.exp(margins))


LOSSES = {loss.name: loss for loss in (Logistic(),)}


def loss_named(name: str) -> Logistic:
    """Return the loss of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in LOSSES:
        raise ValueError(f"loss {name!r} is unknown; choose one of {', '.join(LOSSES)}")
    return LOSSES[name]
