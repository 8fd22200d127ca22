"""What follows from the noisy mean of ccᵀ alone: covariances, least squares, correlations, principal components.

privacy.md §16.7: post-processing. Every figure comes with half the width of the 95 % interval of its noise, to first
order. Shapes: c has C coordinates, of which one is the constant 1; noise of standard deviation `scale` lies on each
orthonormal coordinate of the mean, so that the noise E has E[uᵀEv·sᵀEt] = scale²·(⟨u,s⟩⟨v,t⟩ + ⟨u,t⟩⟨v,s⟩)/2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from dbdp.algorithms.families.preconditioned.preconditioning import usual_ridge
from dbdp.algorithms.scores.counting import LEVEL

_QUANTILE = NormalDist().inv_cdf((1 + LEVEL) / 2)


@dataclass(frozen=True)
class LeastSquares:
    """A linear model of one coordinate by others, of k coordinates and the constant, which is last; shapes (k + 1,)."""

    coefficients: np.ndarray
    covariance: np.ndarray  # of the coefficients' noise, shape (k + 1, k + 1)
    ridge: float

    def through(self, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients in other units, change·coefficients, and the half widths of their intervals."""
        variances = np.einsum("ij,jk,ik->i", change, self.covariance, change)
        return change @ self.coefficients, _QUANTILE * np.sqrt(np.maximum(variances, 0.0))


@dataclass(frozen=True)
class JointMoment:
    """A noisy mean of ccᵀ, projected to the positive semidefinite matrices."""

    mean: np.ndarray  # shape (C, C), symmetric, without a negative eigenvalue
    scale: float  # standard deviation of the noise of each orthonormal coordinate
    constant: int  # the place of the coordinate 1

    @classmethod
    def of(cls, noisy: np.ndarray, scale: float, constant: int) -> "JointMoment":
        """Return the projection of a noisy mean."""
        return cls(nearest_positive(noisy), scale, constant)

    @property
    def usual_ridge(self) -> float:
        """κ for all coordinates."""
        return usual_ridge(self.scale, len(self.mean))

    @cached_property
    def centring(self) -> np.ndarray:
        """The matrix A, shape (C, C), whose row i is e_i less the mean of c_i times the constant: AMAᵀ is centred."""
        ones = max(self.mean[self.constant, self.constant], self.scale)  # the share of complete rows
        centring = np.eye(len(self.mean))
        centring[:, self.constant] -= self.mean[:, self.constant] / ones
        return centring

    @cached_property
    def covariance(self) -> np.ndarray:
        """The covariance of all coordinates, shape (C, C); zeros for the constant."""
        return nearest_positive(self.centring @ self.mean @ self.centring.T)

    def least_squares(self, target: int, sources: Sequence[int], ridge: float) -> LeastSquares:
        """Return the least squares of a coordinate by others and the constant, with ridge·‖coefficients‖².

        G θ = g for G = M_ss + ridge·I and g = M_st. To first order dθ = G⁻¹(dg - dG θ) = G⁻¹E_s a, where a is 1 at the
        target and -θ at the sources, and E_s a has the covariance scale²·(‖a‖²I + a_s a_sᵀ)/2.
        """
        places = [*sources, self.constant]
        penalty = np.diag([ridge] * len(sources) + [0.0])
        inverse = np.linalg.pinv(self.mean[np.ix_(places, places)] + penalty, hermitian=True)
        coefficients = inverse @ self.mean[places, target]
        away = np.append(coefficients, -1.0)
        spread = (away @ away) * np.eye(len(places)) + np.outer(coefficients, coefficients)
        return LeastSquares(coefficients, self.scale**2 / 2 * inverse @ spread @ inverse, ridge)

    def correlations(self, places: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return correlations of k coordinates and their half widths, shapes (k, k); NaN where the noise is larger.

        To first order dr = u_iᵀEu_j - r(u_iᵀEu_i + u_jᵀEu_j)/2 for the rows u of `centring` over the deviations.
        """
        variances = np.diagonal(self.covariance)[places]
        deviations = np.sqrt(np.where(variances > self.scale, variances, np.nan))
        values = self.covariance[np.ix_(places, places)] / np.outer(deviations, deviations)
        scaled = self.centring[places] / deviations[:, None]
        inner = scaled @ scaled.T
        own = np.diagonal(inner)
        added, product = own[:, None] + own, np.outer(own, own)
        squares = (product + inner**2) / 2 - values * inner * added
        squares += values**2 / 4 * (added**2 - 2 * product + 2 * inner**2)
        return np.clip(values, -1, 1), _QUANTILE * self.scale * np.sqrt(np.maximum(squares, 0.0))

    def principal_components(self, places: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return variances (k,), half widths (k,) and loadings (k, k), a row each, largest variance first.

        To first order dλ = wᵀEw for the unit vector v of λ and w = Aᵀv: its deviation is scale·‖w‖².
        """
        variances, vectors = np.linalg.eigh(self.covariance[np.ix_(places, places)])
        loadings = vectors.T[::-1] * np.where(vectors.T[::-1].sum(axis=1) < 0, -1, 1)[:, None]
        lengths = np.einsum("ij,ij->i", *[loadings @ self.centring[places]] * 2)
        return np.maximum(variances[::-1], 0.0), _QUANTILE * self.scale * lengths, loadings


def nearest_positive(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix without a negative eigenvalue that is nearest in Frobenius norm."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
