"""Poisson samples padded to a public size: that size, and the leak from cutting larger samples.

privacy.md §10.8. The proofs for Poisson samples need the number of drawn rows to stay secret: conditioned on that
number, another row takes the place of an absent record. So every sample is packed as M rows, or several together as a
public number of rows, of which how many are whose is secret.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

from dbdp.privacy.accounting.events import Event, PaddedDpEvent, exceedance

GROUP = 4  # rows; samples that are packed together begin at multiples of it, as many as the kernel adds at a time
LEAKED = 1 / 1000  # largest share of a release's δ
MOST_PACKED = 1 << 33  # rows that are packed for the samples of one call
_LEAST = 1e-300  # a tail is never rounded to 0
_MARGIN = 2.0**-46  # relative error of the exponent below, with room


def binomial_tail(rows: int, probability: float, most: int) -> float:
    """Return an upper bound on P(Bin(n, q) > M), 0 where M ≥ n.

    Proof (Chernoff). For k = M + 1 > μ = nq and s > 0, P(X ≥ k) ≤ e^(-sk)(1 - q + qe^s)^n; at the best s that is
    e^-E, E = k ln(k/μ) + (n - k) ln((n - k)/(n - μ)), 0 ln 0 = 0: here k·log1p(t) + (n - k)·log1p(-r), t = (k - μ)/μ,
    r = (k - μ)/(n - μ). Let u = 2⁻⁵³. |dE/dμ| ≤ max(k/μ, 1), so the rounding of μ moves E by ≤ uk. Given μ, t and r
    are within 3u of themselves; that moves the first term by ≤ 3u of it and the second by ≤ 3u·r(n - μ) ≤ 3uk; log1p
    and the product add ≤ 4u of each. `_MARGIN` has 2⁷u of k and of both terms. At k ≤ μ the bound is 1. ∎
    """
    above, mean = most + 1, rows * probability
    if above > rows:
        return 0.0
    if above <= mean:
        return 1.0
    first = above * math.log1p((above - mean) / mean)
    missing = rows - above
    second = missing * math.log1p(-(above - mean) / (rows - mean)) if missing else 0.0
    return min(1.0, max(_LEAST, math.exp(_MARGIN * (above + first - second) - (first + second))))


@dataclass(frozen=True)
class PoissonSamples:
    """The Poisson mini-batches of a run, each padded or cut to a public size."""

    rows: int  # n, the rows of the dataset
    probability: float  # q, with which each row is in a sample
    draws: int  # T, the largest number of samples: those of every step, sum and selection
    size: int  # M, the rows of each sample: zero rows fill it, and surplus rows are cut whatever their values

    def __post_init__(self) -> None:
        """Check the size."""
        if not 1 <= self.size <= self.rows:
            raise ValueError(f"size = {self.size} of a mini-batch must be from 1 to the {self.rows} rows")

    @property
    def total_variation(self) -> float:
        """Bound on the total variation between the run and one on uncut samples: T·P(Bin(n, q) > M), at most 1."""
        return min(1.0, self.draws * binomial_tail(self.rows, self.probability, self.size) * (1 + 1e-12))

    def leak(self, epsilon: float) -> float:
        """Return what cutting adds to the δ of a run that is (ε, δ)-DP on uncut samples, rounded up: (1 + e^ε)Tτ.

        Proof. Who is drawn depends on no value. Couple the run with one on uncut samples, by the same draws: they
        differ only if one of T samples has more than M rows, or some that are packed `together` need more than their
        number and are drawn again: with probability at most Tτ in either world. A zero row has gradient 0, and one
        loss for all linear models, or none: it moves no difference. So with P*, Q* of uncut samples
        P(S) ≤ P*(S) + Tτ ≤ e^ε Q*(S) + δ + Tτ ≤ e^ε Q(S) + δ + (1 + e^ε)Tτ. ∎
        """
        return exceedance(self.total_variation, epsilon)

    def together(self, steps: int) -> int:
        """Return a public number of rows for some samples that are packed one after the other.

        Each begins at a multiple of GROUP. They need more with probability at most steps·τ, τ = P(Bin(n, q) > M): what
        `total_variation` counts for so many samples, which are drawn again then.

        Proof. k samples need ΣS + ΣU rows, U = -S mod 4 of them zero. ΣS is Bin(kn, q): above `drawn` with probability
        ≤ kτ/2. P(U = u) = ¼Σ_r i^(ru)φ_r, φ_r = E i^(rS) = (1 - q + qi^r)^n: |φ_1| = |φ_3| = (1 - 2q(1 - q))^(n/2) ≤ f,
        f = e^(-q(1-q)n), and |φ_2| = |1 - 2q|^n ≤ f². So E U ≤ 3/2 + ¼(2√8·f + 2f²) ≤ 3/2 + 2f. The U are independent
        and in [0, 3]: by Hoeffding ΣU ≥ k·E U + x with probability ≤ e^(-2x²/9k), which is kτ/2 here; two rows more are
        for rounding. Nor do they need more than GROUP⌈M/GROUP⌉ each, unless one has more than M rows. ∎
        """
        most = steps * GROUP * math.ceil(self.size / GROUP)
        allowed = steps * binomial_tail(self.rows, self.probability, self.size) / 2
        if allowed == 0:
            return most
        mean, cells = self.rows * self.probability * steps, self.rows * steps
        drawn = min(cells, math.ceil(mean + 8 * math.sqrt(mean) + 32))
        drawn += bisect_left(
            range(drawn, cells), True, key=lambda rows: binomial_tail(cells, self.probability, rows) <= allowed
        )
        uneven = math.exp(-self.rows * self.probability * (1 - self.probability))
        filling = steps * min(3.0, 1.5 + 2 * uneven) + 3 * math.sqrt(max(0.0, -math.log(allowed)) * steps / 2)
        return min(most, GROUP * math.ceil((drawn + math.ceil(filling) + 2) / GROUP))

    def event(self, uncut: Event) -> Event:
        """Return the event of a run, from that on uncut samples."""
        return PaddedDpEvent(uncut, self.total_variation) if self.total_variation > 0 else uncut


def padded_samples(
    rows: int, probability: float, draws: int, *, epsilon: float, delta: float, weight: float = 0.0
) -> PoissonSamples:
    """Return samples of the least public size M whose leak is at most δ/1000.

    M ≥ min(n, ⌈μ + 8√μ + 32⌉), μ = nq, for T draws of a run that is to be (ε, δ)-DP. With δ = 0, M = n: no
    row is cut.

    `weight` is the ε of the charged budget: the leak is computed for the larger of both ε (privacy.md §13).
    """
    mean = rows * probability
    least = min(rows, math.ceil(mean + 8 * math.sqrt(mean) + 32))

    def is_enough(size: int) -> bool:
        leak = PoissonSamples(rows, probability, draws, size).leak(max(epsilon, weight))
        return leak <= delta * LEAKED

    sizes = range(least, rows)  # the tail falls in M, and is 0 at n
    size = least + bisect_left(sizes, True, key=is_enough)
    if size > MOST_PACKED:
        raise ValueError(
            f"a mini-batch of {mean:.6g} of {rows} rows is packed as {size}, above the limit of {MOST_PACKED}; choose "
            "a smaller batch_size (with delta = 0 all rows are packed), or an algorithm without mini-batches"
        )
    return PoissonSamples(rows, probability, draws, size)
