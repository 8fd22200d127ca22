"""Exact samplers of integer noise: integers only, from the operating system's entropy.

Canonne, Kamath & Steinke 2020, Algorithms 1–3. There is no seed.
"""

import os


class Entropy:
    """Uniform integers from the operating system's cryptographic generator, read in portions."""

    def __init__(self) -> None:
        self._portion = b""
        self._used = 0

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound): random bits, drawn again while too large."""
        bits = (bound - 1).bit_length()
        while True:
            value = self._bits(bits)
            if value < bound:
                return value

    def _bits(self, count: int) -> int:
        length = (count + 7) // 8
        if self._used + length > len(self._portion):
            self._portion, self._used = os.urandom(max(4096, length)), 0
        begin, self._used = self._used, self._used + length
        return int.from_bytes(self._portion[begin : self._used], "little") >> (8 * length - count)


def bernoulli_exp(numerator: int, denominator: int, entropy: Entropy) -> bool:
    """Return True with probability exp(-numerator/denominator), exactly (CKS Algorithm 1)."""
    while numerator > denominator:
        if not bernoulli_exp(1, 1, entropy):
            return False
        numerator -= denominator
    trial = 1
    while entropy.below(denominator * trial) < numerator:
        trial += 1
    return trial % 2 == 1


def discrete_laplace(scale: int, entropy: Entropy) -> int:
    """Return an integer k with P(k) ∝ exp(-|k|/scale), exactly (CKS Algorithm 2 with s = 1)."""
    while True:
        remainder = entropy.below(scale)
        if not bernoulli_exp(remainder, scale, entropy):
            continue
        quotient = 0
        while bernoulli_exp(1, 1, entropy):
            quotient += 1
        magnitude = remainder + scale * quotient
        negative = entropy.below(2) == 1
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def discrete_gaussian(sigma: int, entropy: Entropy) -> int:
    """Return an integer k with P(k) ∝ exp(-k²/2σ²), exactly (CKS Algorithm 3)."""
    variance, scale = sigma * sigma, sigma + 1
    while True:
        candidate = discrete_laplace(scale, entropy)
        distance = abs(candidate) * scale - variance
        if bernoulli_exp(distance * distance, 2 * variance * scale * scale, entropy):
            return candidate
