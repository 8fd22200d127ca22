"""A solver for many rows: recursive gradients of single rows, with a public number of passes and a checked end.

The objective is F(f) = (1/n) Σ loss(f; row) + (λ/2)‖f - centre‖², c the smoothness of a row's loss. Where n is well
above (λ + c)/λ, `AcceleratedDescent` looks at every row √(c/λ) times for each step that single rows could make as well.
Shapes: a model, a centre and a gradient are (P,).
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from dbdp.algorithms.families.perturbed_objective.minimisation import AcceleratedDescent
from dbdp.algorithms.rows import Progress, RecursiveStages, Rows
from dbdp.learning.objectives import Softmax, projected
from dbdp.learning.rows import blocks
from dbdp.privacy.mechanisms import ROOM

FAILURE = 2.0**-100  # probability that the gradient is not small enough after the planned stages, for any rows
TOGETHER = 10  # stages: rows that fit in memory are read once for all of them
MOST_MEMORY = 64 << 20  # bytes of the rows that a stage draws
_LENGTHS = tuple(2.0**power for power in range(1, 9))  # of a stage: steps, relative to (λ + c)/λ
_STEPS = tuple(1.25**-power for power in range(1, 17))  # η(2λ + c)
_SCAN, _STEP = 1.4, 2.0  # the time of a stage for each row, and for each step, relative to a sum of gradients


@dataclass(frozen=True)
class RecursiveDescent:
    """SARAH (Nguyen, Liu, Scheinberg & Takáč 2017) in stages, each of one pass and m steps of single rows.

    A stage begins with the gradient v of F at its model w. A step sets w' = w - ηv, draws a row i uniformly, and sets
    v' = v + ∇F_i(w') - ∇F_i(w), where F_i is F of that row alone: λ-strongly convex and ℓ-smooth, ℓ = λ + c.

    Proof that a stage multiplies √E‖∇F‖² by at most √a + √qᵐ, with x = η(λ + ℓ) ≤ 1, a = x/(2 - x) and
    q = 1 - 2xλℓ/(λ + ℓ)². Let g = ∇F_i(w') - ∇F_i(w), so that v' = v + g. Both convexities give
    -η⟨g, v⟩ ≥ (λℓη²‖v‖² + ‖g‖²)/(λ + ℓ), and so ‖v'‖² ≤ q‖v‖² - (2/x - 1)‖g‖², whichever row is drawn: ‖v‖² falls
    to qᵐ of the first, and all ‖g‖² add up to at most a times the first. Given what came before, g has the mean
    ∇F(w') - ∇F(w): ∇F - v is a martingale from 0, whose increments have second moments of at most E‖g‖², so that
    E‖∇F - v‖² ≤ a times the first ‖v‖². ∎ At the centre ‖∇F‖ ≤ L: after S stages P(‖∇F‖ > t) ≤ (√a + √qᵐ)²ˢL²/t²
    (Markov). Rounding is not in this bound, and so t is half of `threshold`.

    The result does not rest on that. Where the computed gradient is above `threshold` at the end, `descent` begins
    anew; where it is not, the model is as near to the minimiser as `descent` promises: ‖w - f‖ ≤ ‖∇F(w)‖/λ.
    """

    descent: AcceleratedDescent  # has the same promise, by more passes
    # stages, steps: S and m.
    stages: int
    steps: int
    step: float  # η

    @property
    def passes(self) -> int:
        """The number of passes: one for each stage, and one for the gradient at the end."""
        return self.stages + 1

    @property
    def threshold(self) -> float:
        """λ times the promised distance: a larger gradient is not accepted."""
        return self.descent.distance * self.descent.regularisation / ROOM

    @classmethod
    def of(cls, descent: AcceleratedDescent) -> "RecursiveDescent | None":
        """Return the solver that keeps the promise of a descent in the least time; None if the descent is faster.

        There is none for softmax, which has no compiled steps of single rows.
        """
        if isinstance(descent.objective, Softmax):
            return None
        planned = [_planned(descent, length, width) for length, width in product(_LENGTHS, _STEPS)]
        best = min((each for each in planned if each is not None), key=cls._time, default=None)
        return best if best is not None and best._time() < descent.passes * descent.rows else None

    def minimiser(self, rows: Rows, centre: np.ndarray, progress: Progress) -> np.ndarray:
        """Return a model within `descent.distance` + `descent.rounding` of the minimiser, shape (P,)."""
        descent, objective, model = self.descent, self.descent.objective, centre
        if isinstance(objective, Softmax):
            raise AssertionError("softmax has no steps of single rows")
        for first in range(0, self.stages, TOGETHER):
            together = min(TOGETHER, self.stages - first)
            how = RecursiveStages(together, self.steps, self.step, descent.regularisation, descent.rows)
            model = rows.recursive_stages(objective, model, centre, how)
            progress("pass", first + together, self.passes)
        offset = projected(model - centre, descent.reach)  # which brings it no further from the minimiser
        gradient = rows.gradient_sum(objective, centre + offset, clip=math.inf) / descent.rows
        progress("pass", self.passes, self.passes)
        if np.linalg.norm(gradient + descent.regularisation * offset) <= self.threshold:
            return centre + offset
        return descent.minimiser(rows, centre, progress)

    def _time(self) -> float:
        return self.stages * (_SCAN * self.descent.rows + _STEP * self.steps) + self.descent.rows


def _planned(descent: AcceleratedDescent, length: float, width: float) -> RecursiveDescent | None:
    """Return the solver with stages of some length and x = η(λ + ℓ); None if it would not end, or needs much memory."""
    strong, smooth = descent.regularisation, descent.regularisation + descent.smoothness
    steps = math.ceil(length * smooth / strong)
    row_bytes = blocks.row_bytes(descent.objective.inputs)
    left = math.exp(steps * math.log1p(-2 * width * strong * smooth / (strong + smooth) ** 2) / 2)
    factor = (math.sqrt(width / (2 - width)) + left) * ROOM
    if factor >= 1 or steps * row_bytes > MOST_MEMORY:
        return None
    stages = (math.log(descent.distance / (2 * descent.reach)) + math.log(FAILURE) / 2) / math.log(factor)
    return RecursiveDescent(descent, max(1, math.ceil(stages)), steps, width / (strong + smooth))
