"""Exact samplers of integer noise: integers only, from the operating system's entropy.

Canonne, Kamath & Steinke 2020, Algorithms 1–3. There is no seed.
"""

import os
from array import array

_WORD = 64


class Entropy:
    """Uniform bits, integers and events from the operating system's cryptographic generator."""

    def __init__(self) -> None:
        self._words: list[int] = []  # each is used once

    def bits(self, count: int) -> int:
        """Return a uniform integer in [0, 2^count)."""
        value = 0
        while count > _WORD:
            value, count = value << _WORD | self._word(), count - _WORD
        return value << count | self._word() >> (_WORD - count)

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound): random bits, drawn again while too large."""
        bits = (bound - 1).bit_length()
        while True:
            value = self.bits(bits)
            if value < bound:
                return value

    def bernoulli(self, numerator: int, denominator: int) -> bool:
        """Return True with probability numerator/denominator, or 1 if that is more.

        A uniform real number is compared with the fraction: its binary digits, drawn word by word, with the
        fraction's, until one differs.
        """
        if numerator >= denominator:
            return True
        while True:
            digits, numerator = divmod(numerator << _WORD, denominator)
            word = self._word()
            if word != digits:
                return word < digits

    def _word(self) -> int:
        if not self._words:
            self._words = array("Q", os.urandom(4096)).tolist()
        return self._words.pop()


def bernoulli_exp(numerator: int, denominator: int, entropy: Entropy) -> bool:
    """Return True with probability exp(-numerator/denominator), exactly (CKS Algorithm 1)."""
    while numerator > denominator:
        if not bernoulli_exp(1, 1, entropy):
            return False
        numerator -= denominator
    trial = 1
    while entropy.bernoulli(numerator, denominator * trial):
        trial += 1
    return trial % 2 == 1


def discrete_laplace(scale: int, entropy: Entropy, divisor: int = 1) -> int:
    """Return an integer k with P(k) ∝ exp(-|k|·divisor/scale), exactly (CKS Algorithm 2)."""
    while True:
        remainder = entropy.below(scale)
        if not bernoulli_exp(remainder, scale, entropy):
            continue
        quotient = 0
        while bernoulli_exp(1, 1, entropy):
            quotient += 1
        magnitude = (remainder + scale * quotient) // divisor
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
