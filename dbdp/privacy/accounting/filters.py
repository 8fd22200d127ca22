"""A privacy filter: the remaining budget of a mechanism that chooses its steps adaptively.

privacy.md §8, §13. A mechanism with an adaptive loop charges its total before the loop, and
checks its filter before each access.
"""

import math
from fractions import Fraction

from dbdp import checks


class Filter:
    """A sum of charges that never exceeds a limit; it is exact.

    The charge of a step depends on public facts and on the results of earlier steps; it is spent
    before the step reads a row, and a step that the rest cannot pay does not run. Then the loop, of
    any number of steps, costs at most `limit`, for charges of ρ-zCDP, of Rényi divergence at one
    order α fixed before the first, or of pure ε.

    Proof (§13). Let step t have D_α(p_t‖q_t) ≤ c_t given the history, for every α with c_t = αρ_t, or
    for the one α. Under Q the process M_t = Π_{i≤t} (p_i/q_i)^α e^{-(α-1)c_i} has conditional mean at
    most M_{t-1}, since c_t is fixed by the history: E M_t ≤ 1. Σc_i ≤ c surely, so that
    E_Q (P/Q)^α ≤ e^{(α-1)c}: D_α(P‖Q) ≤ c, and the same with P and Q exchanged; without end, by Fatou.
    Stopping is a function of charges and history alone, and reveals nothing more. Pure ε is α → ∞. ∎ The sum
    must be within the limit *surely*, and for one kind of charge: a step must not pass because one of
    several filters can pay for it. Testing after a step instead of before it is not enough (§8(2)).
    """

    def __init__(self, limit: float) -> None:
        """Start with nothing spent."""
        checks.positive("limit", limit, "give the total that the loop may spend")
        self._left = Fraction(limit)

    @property
    def remaining(self) -> float:
        """The unspent part of the limit, rounded down."""
        nearest = float(self._left)
        return nearest if nearest <= self._left else math.nextafter(nearest, 0.0)

    def affords(self, charge: float) -> bool:
        """Return whether a charge is within the rest; raise ValueError for one that is negative or not finite."""
        if not 0 <= charge < math.inf:
            raise ValueError(f"charge = {charge} must be at least 0 and finite; use more noise in the step")
        return Fraction(charge) <= self._left

    def spend(self, charge: float) -> None:
        """Subtract the charge of a step, before the step runs; `affords` must hold for it."""
        if not self.affords(charge):
            raise AssertionError(f"a charge of {charge:g} exceeds the rest, {self.remaining:g}; call affords() first")
        self._left -= Fraction(charge)
