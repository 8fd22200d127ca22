"""A summary that is paid once: the noisy second moment of the rows and their labels together (privacy.md §16.7)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms.families.preconditioned.preconditioning import coordinates_of, moment_noise
from dbdp.algorithms.noisy_sums import Summed
from dbdp.algorithms.plan import relation
from dbdp.checks import whole
from dbdp.learning.second_moments import MOST_DIMENSION
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release, check_epsilon_delta
from dbdp.privacy.mechanisms import Gaussian


@dataclass(frozen=True)
class SummaryPlan:
    """The plan of a summary, from public facts only. Neighbours are replace-one, for records or units.

    Proof. A record is z = (x, b·y), a function of itself and of public facts, with ‖x‖ ≤ 1 and |y| ≤ 1, or y the
    indicator of its class: ‖z‖² ≤ 1 + b². b = `weight` has 24 bits, so that the product, rounded to 24 bits, is at
    most b. A neighbour differs in `moved` records, so that Σzzᵀ moves by `moment_sensitivity` at R² = 1 + b², and the
    noise covers it at the analytic multiplier of (ε, δ). What is computed from the release is post-processing. ∎
    """

    epsilon: float
    delta: float
    rows: int  # public number of records; of slots, if units of privacy have several
    dimension: int  # coordinates of x
    labels: int  # coordinates of y: 1, or one for each class
    weight: float  # b, at most 1
    moved: int = 1  # largest number of records in which neighbours differ
    algorithm: ClassVar[str] = "summary"

    def __post_init__(self) -> None:
        """Check ε, δ, the size and the weight."""
        check_epsilon_delta(self.epsilon, self.delta)
        if self.delta == 0:
            raise ValueError("delta = 0: a summary has Gaussian noise and needs a delta > 0; give one, such as 1e-6")
        remedy = "register fewer columns, categories or bins"
        whole("coordinates of a summary", self.dimension + self.labels, 1, MOST_DIMENSION, remedy)
        if not 0 < self.weight <= 1 or self.weight != float(np.float32(self.weight)):
            raise AssertionError(f"weight = {self.weight} must be of 24 bits, above 0 and at most 1")

    @property
    def coordinates(self) -> int:
        """Coordinates of z."""
        return self.dimension + self.labels

    @cached_property
    def multiplier(self) -> float:
        """z: the noise's standard deviation for a sensitivity of 1."""
        return analytic_noise_multiplier(self.epsilon, self.delta)

    @cached_property
    def noise(self) -> Gaussian:
        """The noise of each coordinate of the second moment."""
        square = 1 + self.weight**2
        summed = Summed.of_moment(self.rows, self.coordinates)
        return moment_noise(summed, self.coordinates, self.multiplier, square=square, moved=self.moved)

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return Release(GaussianDpEvent(self.multiplier), self.epsilon, self.delta)

    def release(self, moment: np.ndarray) -> np.ndarray:
        """Return the noisy orthonormal coordinates of the second moment, shape (c(c + 1)/2,)."""
        return self.noise.release(coordinates_of(moment))

    def explain(self) -> dict[str, Any]:
        """Return the plan as data."""
        return {
            "algorithm": self.algorithm,
            **relation(self.rows, self.moved),
            "features": self.dimension,
            "coordinates": self.coordinates,
            "label_weight": self.weight,
            "sensitivity": self.noise.sensitivity,
            "mechanism": self.noise.name,
            "noise_scale": self.noise.noise_scale,
            "epsilon": self.epsilon,
            "delta": self.delta,
        }
