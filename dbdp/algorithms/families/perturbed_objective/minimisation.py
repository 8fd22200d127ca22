"""Solvers for a mean loss with a quadratic regulariser: one with a public number of passes, and a baseline.

The objective is F(f) = (1/n) Σ loss(f; row) + (λ/2)‖f - centre‖². One sum over the rows is one pass.
Shapes: a model, a centre and a gradient are (P,).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from dbdp.algorithms.noisy_sums import UNIT, Summed, lipschitz_of
from dbdp.algorithms.rows import Progress, Rows
from dbdp.learning import kernels
from dbdp.learning.objectives import Linear, Objective, Softmax
from dbdp.optional import needing
from dbdp.privacy.mechanisms import ROOM

MOST_ITERATIONS = 10_000  # of the baseline
_TIGHT = 1e-10  # its largest gradient coordinate, per row


@dataclass(frozen=True)
class AcceleratedDescent:
    """The triple momentum method (Van Scoy, Freeman & Lynch 2018) for a public number of passes.

    Its error bound holds for every dataset and every centre. c and L are the smoothness and the Lipschitz
    constant of the mean loss, r = √(λ/(λ + c)), ρ = 1 - r, θ = 2r/(1 + r), a = λ/(1 - r²).

    Proof that V = ψ + a‖w‖² falls by ρ² in a pass. In offsets from the centre let h be the minimiser, u = y - h,
    w = z - h, and m the mean loss less its tangent at h: convex, c-smooth, m(h) = 0; at a pass's y let
    g = ∇m(y), ψ = m(y) - ‖g‖²/2c ≥ 0 and p = u - g/c. With ' for the next pass, co-coercivity says
    ψ ≥ ψ' + ‖g'‖²/c + ⟨g', p - u'⟩ and 0 ≥ ψ' + ‖g'‖²/c - ⟨g', u'⟩. Weighted by ρ² and 1 - ρ² they give
    ρ²ψ - ψ' ≥ ‖g'‖²/c + ⟨g', ρ²p - u'⟩. The updates are w' = ρw - (r/λ)g and u' = ρ²p + θw', so that
    ρ²ψ - ψ' ≥ ‖g'‖²/c - θ⟨g', w'⟩ = a‖w''‖² - aρ²‖w'‖². Now V = ψ + a‖w'‖² and V' = ψ' + a‖w''‖² ≤ ρ²V. ∎
    """

    objective: Linear | Softmax
    rows: int
    regularisation: float
    passes: int

    @property
    def smoothness(self) -> float:
        """c, rounded up: the proofs hold for any larger one."""
        return self.objective.smoothness * ROOM

    @property
    def reach(self) -> float:
        """L/λ, a bound on the offsets of the minimiser and of all iterates from the centre.

        Proof. λh is minus a mean gradient G, and ‖G‖ ≤ L. z becomes ρz + r(-G/λ), and y a convex combination of z
        and (cy - G)/(λ + c): all are convex combinations of vectors no longer than L/λ.
        """
        return lipschitz_of(self.objective) / self.regularisation

    @property
    def distance(self) -> float:
        """ρᴺL/λ, rounded up: a bound on the distance to the minimiser after N passes, without rounding.

        Proof. At the start u = w = -h. By the second inequality V ≤ a‖ρw - (r/λ)g‖² + ⟨g, u⟩ - ‖g‖²/c =
        aρ²‖h‖² + (1 - θ)⟨g, u⟩, where 1 - θ = ρ²/(1 - r²). With λh minus the mean gradient at h, and G that at 0,
        ⟨g, u⟩ = -⟨G, h⟩ - λ‖h‖²: together V ≤ ρ²‖G‖‖h‖/(1 - r²) ≤ aρ²(L/λ)². After N passes a‖w‖² ≤ aρ²ᴺ(L/λ)². ∎
        Methods that use only gradients of such functions cannot do much better: ρᴺ again (Drori & Taylor 2022).
        """
        return math.exp(self.passes * math.log(self._contraction)) * self.reach * ROOM

    def reaching(self, distance: float) -> "AcceleratedDescent":
        """Return the descent with the fewest passes that end within that distance of the minimiser."""
        passes = math.log(distance / (self.reach * ROOM)) / math.log(self._contraction)
        return replace(self, passes=max(1, math.ceil(passes)))

    def rounding(self, furthest: float) -> float:
        """Return a bound on the error of floating point, including centre + z, if ‖centre‖ + L/λ ≤ `furthest`.

        Proof (privacy.md §14.2), u = 2⁻⁵³. A point errs by u·furthest and a score of depth q by γ_q·furthest, so a
        slope by c times that and c_ℓu; products, and sums by blocks (`Summed`), add (D + 8)uL: a mean gradient has E.
        If y and z are off by D and D' in each pass, ‖g‖ ≤ √c(ρ√V + √V') makes it √V' ≤ ρ√V + √c·D + √a·D', in the
        end ‖w‖ ≤ ρᴺL/λ + (c/λ)D + D'/r. The updates of y and z have D ≤ ρE/((1 + r)(λ + c)) + 20uL/λ and
        D' ≤ (r/λ)E + 14uL/λ: 2E/λ + 34(1 + c/λ)uL/λ in all. ∎
        """
        one = isinstance(self.objective, Linear) and self.objective.outputs == 1  # several models are in any order
        depth = kernels.depth_of_score(self.objective.inputs) if one else self.objective.inputs
        scores = self.smoothness * (depth + 3) * furthest
        sums = (Summed.of_objective(self.rows, self.objective).depth + 8) * lipschitz_of(self.objective)
        gradient = 1.01 * UNIT * (scores + self.objective.slope_error + sums)
        steps = 40 * UNIT * (1 + self.smoothness / self.regularisation) * self.reach
        return 1.01 * (2 * gradient / self.regularisation + steps + UNIT * furthest)

    def minimiser(self, rows: Rows, centre: np.ndarray, progress: Progress) -> np.ndarray:
        """Return a model within `distance` + `rounding` of the minimiser, shape (P,)."""
        smoothness, r, keep = self.smoothness, self._root, self._contraction
        y, z = np.zeros_like(centre), np.zeros_like(centre)
        for done in range(self.passes):
            gradient = rows.gradient_sum(self.objective, centre + y, clip=math.inf) / self.rows
            z = keep * z - (r / self.regularisation) * gradient
            stepped = (smoothness * y - gradient) / (self.regularisation + smoothness)
            y = (keep * stepped + 2 * r * z) / (1 + r)
            progress("pass", done + 1, self.passes)
        return centre + z

    @property
    def _root(self) -> float:
        return math.sqrt(self.regularisation / (self.regularisation + self.smoothness))

    @property
    def _contraction(self) -> float:
        """ρ = 1 - r = (c/(λ + c))/(1 + r), without cancellation."""
        return self.smoothness / (self.regularisation + self.smoothness) / (1 + self._root)


def minimise(rows: Rows, objective: Objective, regularisation: float, n: int) -> np.ndarray:
    """Return the minimiser of (1/n) Σ loss + (λ/2)‖model‖², by L-BFGS, shape (P,).

    It is not private: a baseline for the owner of the rows alone. The number of passes depends on the rows.
    """
    with needing("the minimum without privacy"):
        from scipy.optimize import minimize

    def value(model: np.ndarray) -> float:
        losses = rows.loss_sums(objective, model[None], limit=math.inf)
        return float(losses[0] / n + regularisation / 2 * (model @ model))

    def gradient(model: np.ndarray) -> np.ndarray:
        return rows.gradient_sum(objective, model, clip=math.inf) / n + regularisation * model

    rows.pack()
    limits = {"maxiter": MOST_ITERATIONS, "maxfun": 2 * MOST_ITERATIONS, "ftol": 0.0, "gtol": _TIGHT}
    return minimize(value, objective.initial(), jac=gradient, method="L-BFGS-B", options=limits).x
