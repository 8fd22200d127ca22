"""A plan: what one release will do and cost, from public facts only."""

from dataclasses import dataclass
from typing import Any

from dbdp.learning.losses import Logistic
from dbdp.learning.schedules import Schedule
from dbdp.learning.state import State
from dbdp.privacy.mechanisms import Mechanism
from dbdp.privacy.sensitivity import Sensitivity


@dataclass(frozen=True)
class Request:
    """What a user asks for; every door builds this record.

    Attributes
    ----------
    epsilon, delta : the stand-alone guarantee of this release; delta = 0 asks for pure ε
    algorithm, loss, schedule, mechanism : names; mechanism None chooses by delta
    epochs, batch_size : passes over the data, rows of a mini-batch
    step_size : of the constant schedule
    regularisation : λ; None is 0 for the constant schedule, else DEFAULT_REGULARISATION
    """

    epsilon: float
    delta: float = 0.0
    algorithm: str = "bolt_on"
    loss: str = "logistic"
    epochs: int = 10
    batch_size: int = 50
    schedule: str = "inverse_time"
    step_size: float | None = None
    regularisation: float | None = None
    mechanism: str | None = None


@dataclass(frozen=True)
class Plan:
    """What will be done; `explain` is the same as data. Neighbours are replace-one."""

    request: Request
    rows: int
    dimension: int
    updates: int
    loss: Logistic
    schedule: Schedule
    regularisation: float
    sensitivity: Sensitivity
    mechanism: Mechanism

    def initial_state(self) -> State:
        """Return the state before the first row."""
        return State.initial(
            loss=self.loss,
            schedule=self.schedule,
            batch_size=self.request.batch_size,
            regularisation=self.regularisation,
            dimension=self.dimension,
        )

    def explain(self) -> dict[str, Any]:
        """Return the plan as data.

        `sensitivity` is what the noise covers: the exact bound, plus `sensitivity_margin` for
        rounding. `noise_scale` is the standard deviation per coordinate of Gaussian noise, or the
        scale Δ₁/ε of Laplace noise. `smoothness` and `strong_convexity` include the regulariser,
        `lipschitz` does not (privacy.md §1.1).
        """
        step_size = {} if self.request.step_size is None else {"step_size": self.request.step_size}
        return {
            "algorithm": self.request.algorithm,
            "loss": self.request.loss,
            "neighbours": "replace-one",
            "rows": self.rows,
            "features": self.dimension,
            "batch_size": self.request.batch_size,
            "epochs": self.request.epochs,
            "updates": self.updates,
            "schedule": self.request.schedule,
            **step_size,
            "regularisation": self.regularisation,
            "lipschitz": self.loss.lipschitz,
            "smoothness": self.loss.smoothness + self.regularisation,
            "strong_convexity": self.regularisation,
            "sensitivity": self.mechanism.sensitivity,
            "sensitivity_margin": self.mechanism.sensitivity - self.sensitivity.exact,
            "mechanism": self.mechanism.name,
            "noise_scale": self.mechanism.noise_scale,
            "epsilon": self.mechanism.guarantee.epsilon,
            "delta": self.mechanism.guarantee.delta,
        }
