"""What the plans of statistics share: their sizes, the noise of whole sums, and the words of their refusals."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dbdp.algorithms.plan import relation
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release, check_epsilon_delta
from dbdp.privacy.mechanisms import ROOM, Gaussian, grid_for
from dbdp.statistics.cohorts import Cohort
from dbdp.statistics.unit_sums import STEPS

MOST_UNITS = 2**53 // STEPS  # integers below 2⁵³ are exact floats
WIDTHS = 1.959963984540055  # standard deviations of a normal number on each side of its 95 % interval


@dataclass(frozen=True)
class Population:
    """The public facts of the rows that a statistic reads."""

    units: int  # public number of units, or of slots for them
    unit_rows: int = 1  # slots of each unit
    is_full: bool = (
        True  # whether the number of units that are read is public: each slot has one, and no cohort is named
    )
    cohort: Cohort = field(default_factory=Cohort)

    def __post_init__(self) -> None:
        """Check that sums are exact."""
        if self.units >= MOST_UNITS:
            raise ValueError(f"{self.units} rows must be fewer than {MOST_UNITS}; use a smaller table")

    def counted(self, value: float) -> float:
        """Return a noisy count, whole where rows are counted."""
        return float(round(value)) if self.unit_rows == 1 else value

    @property
    def explained(self) -> dict[str, Any]:
        """The population as data, for a plan."""
        counted = "rows" if self.unit_rows == 1 else "units"
        return {**relation(self.units * self.unit_rows, self.unit_rows), "counted": counted, **self.cohort.as_data}

    @classmethod
    def of_receipt(cls, receipt: Any) -> "Population":
        """Return the population that a receipt describes, without the codes of its cohort."""
        units = receipt.get("capacity") or receipt.get("units") or receipt["rows"]
        return cls(units, receipt.get("max_rows", 1), not {"capacity", "cohort"} & set(receipt))


@dataclass(frozen=True)
class SteppedGaussian:
    """Gaussian noise of whole sums in steps, for a plan of one (ε, δ) and one sensitivity."""

    epsilon: float
    delta: float
    sensitivity: float  # L2, of the coordinates multiplied by their weights, with rounding to steps
    dimension: int

    @classmethod
    def check(cls, epsilon: float, delta: float, name: str) -> None:
        """Raise ValueError unless δ is above 0."""
        check_epsilon_delta(epsilon, delta)
        if delta == 0:
            raise ValueError(f"delta = 0: {name} has Gaussian noise and needs a delta > 0; give one, such as 1e-6")

    @cached_property
    def multiplier(self) -> float:
        """z: the noise's standard deviation for a sensitivity of 1."""
        return analytic_noise_multiplier(self.epsilon, self.delta)

    @property
    def scale(self) -> float:
        """σ: the standard deviation of the noise of a coordinate of weight 1."""
        return self.sensitivity * self.multiplier

    @property
    def guarantee(self) -> Release:
        """The event and the stand-alone (ε, δ)."""
        return Release(GaussianDpEvent(self.multiplier), self.epsilon, self.delta)

    def of_weight(self, weight: float) -> Gaussian:
        """Return the noise of the coordinates of a weight: σ/weight, on a grid that divides a step.

        Proof that no value is rounded. Each block of a statistic has a squared sensitivity of at most 10, and a
        coordinate at least: with d of them the sensitivity is below 4√d, and the grid at most 2²⁻²⁴ = 2⁻²². ∎
        """
        grid = grid_for(self.sensitivity / max(weight, 1.0), self.dimension, self.multiplier)
        scale = self.scale / weight * ROOM
        return Gaussian.with_scale(
            sensitivity=self.sensitivity / weight, grid=grid, noise_scale=scale, guarantee=self.guarantee
        )
