"""A filter: how much of an allowance is left to a mechanism that chooses its steps as it goes.

privacy.md §8, §13. A mechanism with its own adaptive loop charges its whole allowance up front, and
asks its filter before each access.
"""

import math
from fractions import Fraction

from dbdp import checks


class Filter:
    """Charges that surely never exceed a limit, added up exactly.

    The charge of a step is chosen from public facts and from what earlier steps released, it is spent
    before the step reads a row, and a step that is not afforded is not made. Then the whole loop, of
    however many steps, costs no more than `limit`, for charges of ρ-zCDP, of Rényi divergence at one
    order α fixed before the first, or of pure ε.

    Proof (§13). Let step t have D_α(p_t‖q_t) ≤ c_t given the history, for every α with c_t = αρ_t, or
    for the one α. Under Q the process M_t = Π_{i≤t} (p_i/q_i)^α e^{-(α-1)c_i} has conditional mean at
    most M_{t-1}, since c_t is fixed by the history: E M_t ≤ 1. Σc_i ≤ c surely, so that
    E_Q (P/Q)^α ≤ e^{(α-1)c}: D_α(P‖Q) ≤ c, and the same with P and Q exchanged; without end, by Fatou.
    To stop is decided by charges and history alone, and tells nothing more. Pure ε is α → ∞. ∎ The sum
    has to be within the limit *surely*, and for one kind of charge: a step must not pass because any of
    several filters has room. Without a filter it is not enough to test after a step (§8(2)).
    """

    def __init__(self, limit: float) -> None:
        """Start with the whole limit."""
        checks.positive("limit", limit, "give what the loop of a filter may spend")
        self._left = Fraction(limit)

    @property
    def remaining(self) -> float:
        """What is left, rounded down: it can always be spent."""
        nearest = float(self._left)
        return nearest if nearest <= self._left else math.nextafter(nearest, 0.0)

    def affords(self, charge: float) -> bool:
        """Return whether a step of that charge may be made."""
        if not 0 <= charge < math.inf:
            raise ValueError(f"charge = {charge} must be at least 0 and finite; a step without a bound is never made")
        return Fraction(charge) <= self._left

    def spend(self, charge: float) -> None:
        """Spend the charge of a step that is about to be made and is afforded."""
        if not self.affords(charge):
            raise AssertionError(f"a charge of {charge:g} exceeds the {self.remaining:g} left; ask affords() first")
        self._left -= Fraction(charge)
