"""Objective perturbation: noise in the objective, and a little in its approximate minimiser.

Chaudhuri, Monteleoni & Sarwate 2011 (pure), Kifer, Smith & Thakurta 2012 (Gaussian) and Iyengar et al. 2019
(approximate minima), corrected for replace-one neighbours (privacy.md §7). With n rows, φ the loss of a row and b
the noise, J(f) = (1/n) Σφ(f; row) + (Λ/2)‖f‖² + ⟨b, f⟩/n. Up to a constant that is the mean loss plus Λ/2 times the
squared distance from -b/(nΛ), which `RecursiveDescent` or `AcceleratedDescent` minimises. Three costs make up ε:

- ε₀ for the noise: `perturbation_of`;
- K ln(1 + c/(nΛ)) for the curvature: `curvature`. Λ is raised until that is at most ε₀;
- a share for the solver, 1 % unless rounding needs more: `error_of`.

With pure noise several classes are learned by softmax, else each against the rest.
Shapes: the K models are one vector f of P = K·d parameters, and so is b.
"""

import math
from dataclasses import dataclass

import numpy as np

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import LEARNING, Options
from dbdp.algorithms.families.perturbed_objective.minimisation import AcceleratedDescent
from dbdp.algorithms.families.perturbed_objective.recursive_descent import RecursiveDescent
from dbdp.algorithms.noisy_sums import UNIT, lipschitz_of
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Progress, Rows
from dbdp.algorithms.stages.evaluated_plan import Evaluates
from dbdp.learning.losses import HuberRegression, HuberSvm, Logistic, Squared
from dbdp.learning.objectives import Linear, Objective, Softmax, projected
from dbdp.privacy.accounting.calibration import Mixture, hockey_stick_multiplier
from dbdp.privacy.accounting.events import (
    MIN_EPSILON,
    ComposedDpEvent,
    EpsilonDeltaDpEvent,
    Event,
    GaussianDpEvent,
    PerturbedMinimumDpEvent,
    Release,
)
from dbdp.privacy.mechanisms import ROOM, Gaussian, SphericalLaplace, grid_for

Perturbation = Gaussian | SphericalLaplace
LOSSES = (Logistic.name, HuberSvm.name, HuberRegression.name, Squared.name)
MECHANISMS: dict[str, type[Gaussian] | type[SphericalLaplace]] = {
    Gaussian.name: Gaussian,
    SphericalLaplace.name: SphericalLaplace,
}
MOST_CLASSES = 256  # with Gaussian noise: δ is shared among 4ᴷ directions
MOST_PASSES = 5000
SOLVER_SHARE = 0.01  # of ε and δ
SOLVER_NOISE = 0.1  # the solver's noise and its error, relative to what b does
LEAST_REGULARISATION = 5e-5  # of the default: less needs thousands of passes
NOISE_ALONE = 2.5  # default of b/(nΛ), the noise where the data do not bend the objective, relative to the usual
OPTIONS = Options(
    {**LEARNING, "loss": LOSSES, "mechanism": tuple(MECHANISMS), "averaging": ("none",)},
    own_settings=Evaluates,
)


@dataclass(frozen=True)
class Shares:
    """The shares of (ε, δ) of the perturbed minimum and of the noise for the solver; their sums are at most (ε, δ)."""

    epsilon: float
    delta: float
    solver_epsilon: float
    solver_delta: float

    @classmethod
    def of(cls, epsilon: float, delta: float, *, moved: float = 0.0) -> "Shares":
        """Return the shares; the solver's grows if rounding moves the minimiser much, `moved` times what b does.

        With a share s the noise of b is ∝ 1/(1 - s) and the solver's ∝ moved/s: the sum of squares is least near there.
        """
        share = max(SOLVER_SHARE, min(0.5, moved ** (2 / 3)))
        if share * epsilon < MIN_EPSILON:
            raise ValueError(f"epsilon = {epsilon:g} is too small to be divided; give {MIN_EPSILON / share:g} or more")
        left = (1 - share) / ROOM
        return cls(left * epsilon, left * delta, share * epsilon, share * delta)

    def solver_noise(self, kind: type[Perturbation], sensitivity: float, parameters: int) -> Perturbation:
        """Return noise for a sensitivity at the solver's share of (ε, δ)."""
        return kind.calibrated(
            epsilon=self.solver_epsilon, delta=self.solver_delta, sensitivity=sensitivity, dimension=parameters
        )


@dataclass(frozen=True)
class PerturbedTraining:
    """One training as planned, from public facts only."""

    perturbation: Perturbation  # the noise b
    descent: AcceleratedDescent  # its promise is the solver's
    solver: AcceleratedDescent | RecursiveDescent  # the solver: the descent itself, or one that is faster
    radius: float  # the minimiser is projected onto ‖f‖₂ ≤ radius, see `error_of`
    finishing: Perturbation  # the noise that covers the solver's error

    def __call__(self, rows: Rows, progress: Progress) -> np.ndarray:
        """Return the noisy model, shape (P,), after a public number of passes."""
        rows.pack()
        noise = self.perturbation.release(np.zeros(self.descent.objective.parameters))
        centre = noise / -(self.descent.rows * self.descent.regularisation)
        model = self.solver.minimiser(rows, centre, progress)
        return self.finishing.release(projected(model, self.radius))


def objective_perturbation_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a release by objective perturbation."""
    _check_classes(request, facts)
    objective, kind = _objective(request, facts), _kind(request)
    shares = _shares(request, facts, objective, kind)
    regularisation = _regularisation(request, facts, objective, shares, kind)
    bent = curvature(objective, facts.rows * regularisation)
    perturbation = perturbation_of(objective, kind, epsilon=shares.epsilon - bent, delta=shares.delta)
    start = AcceleratedDescent(objective, facts.rows, regularisation, passes=1)
    training = _training(perturbation, start, shares)
    minimum = minimum_of(objective, perturbation, facts.rows * regularisation, shares)
    event = ComposedDpEvent((minimum, training.finishing.guarantee.event))
    guarantee = Release(event, request.epsilon, request.delta if kind is Gaussian else 0.0)
    details = {
        "regularisation": regularisation,
        "lipschitz": lipschitz_of(objective),
        "smoothness": objective.smoothness,
        **({"classes": "softmax"} if isinstance(objective, Softmax) else {}),
        "parameters": objective.parameters,
        "mechanism": perturbation.name,
        "objective_noise_scale": perturbation.noise_scale,
        "objective_epsilon": shares.epsilon,
        "objective_delta": shares.delta,
        "curvature_epsilon": bent,
        "sampling_rate": 1.0,
        "steps": training.solver.passes,
        "expected_passes": training.solver.passes,
        "radius": training.radius,
        "sensitivity": training.finishing.sensitivity,
        "noise_scale": training.finishing.noise_scale,
    }
    return NoisyWhileTraining(request, facts, guarantee, details, training)


# --- the cost of the perturbed minimum ---------------------------------------------------------------------


def curvature(objective: Linear | Softmax, scale: float) -> float:
    """Return K ln(1 + c/(nΛ)), rounded up, with scale = nΛ: the cost of the change of variables.

    For softmax it is (K - 1) ln(1 + 1/(KnΛ)).

    Proof. f minimises J iff b = -(nΛf + Σ∇φ(f)) =: b_D(f), a map that is one to one and Lipschitz both ways. So f has
    the density ν(b_D(f)) det(nΛI + Σℓ''xxᵀ) (area formula), almost everywhere: a Huber loss has no ℓ'' on finitely
    many hyperplanes. The matrix has a block for each model. There the n - 1 shared rows make A ⪰ nΛI, and
    det(A + ℓ''xxᵀ) = det A·(1 + ℓ''xᵀA⁻¹x): the determinants of neighbours differ by a factor of at most 1 + c/(nΛ).
    For softmax a row adds H ⊗ xxᵀ = BBᵀ, H = diag p - ppᵀ and B = √H ⊗ x: det(A + BBᵀ) = det A·det(I + BᵀA⁻¹B), where
    BᵀA⁻¹B ⪯ H/(nΛ) has K - 1 eigenvalues beside 0, and a trace of at most (1 - Σp²)/(nΛ) ≤ (1 - 1/K)/(nΛ). The
    product of 1 plus each is largest where they are equal, 1/(KnΛ). ∎
    """
    directions, most = _bends(objective)
    return directions * math.log1p(most / scale) * ROOM


def _bends(objective: Linear | Softmax) -> tuple[int, float]:
    """Return in how many directions a row bends the objective, and by how much in each if in all of them the same."""
    if isinstance(objective, Softmax):
        return objective.outputs - 1, 1 / objective.outputs
    return objective.outputs, objective.smoothness


def least_scale(objective: Linear | Softmax, epsilon: float) -> float:
    """Return the least nΛ at which the curvature costs at most half of ε."""
    directions, most = _bends(objective)
    half = min(epsilon / (2 * directions), 50.0)  # e⁻⁵⁰ is negligible, and there is no overflow
    return most / math.expm1(half) * ROOM


def perturbation_of(
    objective: Linear | Softmax, kind: type[Perturbation], *, epsilon: float, delta: float
) -> Perturbation:
    """Return the noise b that costs (ε₀, δ), or (ε₀, 0) for spherical Laplace noise.

    Proof for pure ε. At every f the b_D(f) of neighbours differ by at most 2L, with L for all K models together: the
    log of a density ∝ exp(-ε₀‖b‖/2L) differs by at most ε₀. For Gaussian noise see `gaussian_multiplier`. The noise
    drawn is b rounded to a grid, see `error_of`.
    """
    sensitivity, parameters = 2 * lipschitz_of(objective) * ROOM, objective.parameters
    if kind is SphericalLaplace:
        return kind.calibrated(epsilon=epsilon, delta=0.0, sensitivity=sensitivity, dimension=parameters)
    multiplier = gaussian_multiplier(_one_against_the_rest(objective), epsilon, delta)
    return Gaussian.with_scale(
        sensitivity=sensitivity,
        grid=grid_for(sensitivity, parameters, multiplier),
        noise_scale=sensitivity * multiplier * ROOM,
        guarantee=Release(EpsilonDeltaDpEvent(epsilon, delta), epsilon, delta),
    )


def minimum_of(objective: Linear | Softmax, noise: Perturbation, scale: float, shares: Shares) -> Event:
    """Return the event of the perturbed minimum, with scale = nΛ; its curves have their proofs in `curves`.

    That of softmax, like any of several models with pure noise, has the curves of its ε alone.

    A classifier's slope is between 0 and ∓L, a regression's between ±L: the corners of one of K models are ax - a'x'
    of lengths up to L, L and 2L, or 2L four times, and relative to 2L for all models together.
    """
    if isinstance(objective, Softmax):
        return EpsilonDeltaDpEvent(shares.epsilon, 0.0)
    sensitivity, alone = 2 * lipschitz_of(objective), 2 * objective.loss.lipschitz
    longest = min(alone / sensitivity * ROOM, 1.0)
    lengths = (longest / 2, longest / 2, longest) if objective.loss.is_classifier else 4 * (longest,)
    event = noise.guarantee.event
    if isinstance(noise, Gaussian):  # its event is (ε₀, δ): of noise that a shift may depend on
        event = GaussianDpEvent(noise.noise_scale / sensitivity / ROOM)
    curvature = objective.loss.smoothness / scale * ROOM
    return PerturbedMinimumDpEvent(event, objective.outputs, curvature, lengths, shares.epsilon, shares.delta)


def gaussian_multiplier(objective: Linear, epsilon: float, delta: float) -> float:
    """Return the least σ/2L at which Σ_S δ_Gauss(ε₀; ‖s_S‖/σ) ≤ δ, over the `corners` S.

    Proof. At f the log of the densities' ratio is ⟨b, s⟩/σ² + ‖s‖²/2σ², s = Σ_k e_k ⊗ (a_k x - a'_k x'). The slopes a
    depend on f and so on b: the Gaussian mechanism's formula does not apply. But this is convex in the slopes,
    each of which lies in an interval that its row fixes, so it is at most its largest value ℓ_S at a corner S of them;
    there s_S is fixed, and ℓ_S is the privacy loss of a Gaussian shifted by s_S. The divergence is at most
    E max_S (1 - e^{ε₀ - ℓ_S})₊ ≤ Σ_S E (1 - e^{ε₀ - ℓ_S})₊ = Σ_S δ_Gauss(ε₀; ‖s_S‖/σ). ∎
    One model needs hardly more than the Gaussian mechanism; bounding P(loss > ε₀), as §7 does, takes 9 to 44 % more.
    """
    counts, norms = corners(objective)
    total = float(counts.sum())
    return hockey_stick_multiplier(epsilon, delta / total, Mixture(counts / total, norms)) * ROOM


def corners(objective: Linear) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of corners S and their bounds on ‖s_S‖, without the corner s = 0, whose loss is 0.

    A classifier's slope has the sign of -y: it lies between 0 and ∓L. Where in i of K models neither row's slope is
    0, and in j only one is not, ‖s_S‖² ≤ (4i + j)L². A regression's slope has four corners ±L. No s is longer than
    2L for all models together. Both results have one entry for each bound.
    """
    models, longest = objective.outputs, 2 * lipschitz_of(objective)
    if not objective.loss.is_classifier:
        return np.array([4.0]), np.array([longest])
    ways = [(both, one) for both in range(models + 1) for one in range(models + 1 - both) if both + one]
    counts = [math.comb(models, both) * math.comb(models - both, one) * 2.0**one for both, one in ways]
    norms = [objective.loss.lipschitz * math.sqrt(4 * both + one) for both, one in ways]
    return np.array(counts), np.minimum(norms, longest)


# --- the error of the solver -------------------------------------------------------------------------------


def error_of(perturbation: Perturbation, descent: AcceleratedDescent, radius: float) -> float:
    """Return e: if neighbours have the same exact minimiser f, their projected results are within 2e.

    Proof. The solver uses b rounded to the grid, which moves the minimiser by at most g√P/2nΛ as J is Λ-strongly
    convex, and to floating point, by 4u‖centre‖. With the descent's errors its result q has ‖q - f‖ ≤ A + B‖f‖, and
    e = A + 2B·radius. If ‖f‖ ≤ 2·radius, 2e follows: a projection brings no points further apart. Otherwise, as
    2e ≤ radius, both q have norms above ‖f‖/2 ≥ radius, and the projection multiplies their distance by at most
    2·radius/‖f‖: 2(A + B‖f‖)·2·radius/‖f‖ ≤ 2e. It errs itself by (P + 6)u·radius. ∎ So f and the noisy result are an
    adaptive composition (§13) of the perturbed minimum with noise that covers 2e.

    Raise ValueError if e is above half the radius.
    """
    parameters, scale = descent.objective.parameters, descent.rows * descent.regularisation
    furthest = 2 * (radius + descent.reach)
    grid = perturbation.grid * math.sqrt(parameters) / (2 * scale)
    floating = UNIT * (4 * furthest + (parameters + 6) * radius)
    error = (descent.distance + descent.rounding(furthest) + grid + floating) * ROOM
    if 2 * error > radius:
        raise ValueError(f"models of length {radius:g} would err by {error:g}; use fewer rows, or more regularisation")
    return error


def _training(perturbation: Perturbation, start: AcceleratedDescent, shares: Shares) -> PerturbedTraining:
    """Return the training, with passes enough for the solver's error and its noise to be small.

    They are compared in the objective: curvature of the data reduces the effect of b, but not the solver's noise.
    The mean curvature of a direction is at most Λ + c/d, since that of the data has a trace of at most Kc.
    """
    kind, objective, scale = type(perturbation), start.objective, start.rows * start.regularisation
    alone, unit = perturbation.noise_scale / scale, shares.solver_noise(kind, 1.0, objective.parameters).noise_scale
    curved = math.sqrt(1 + start.smoothness / (objective.inputs * start.regularisation))
    descent = start.reaching(SOLVER_NOISE * alone / (curved * max(1.0, 2 * unit)))
    solver = RecursiveDescent.of(descent) or descent
    if solver.passes > MOST_PASSES:
        enough = 1.2 * start.regularisation * (descent.passes / MOST_PASSES) ** 2  # ln ρ is about -√(Λ/c)
        raise ValueError(
            f"regularisation = {start.regularisation:g} needs {descent.passes} passes over the data, the limit is "
            f"{MOST_PASSES}; give about {enough:.2g}"
        )
    radius = descent.reach + alone * (2 * objective.parameters + 100)  # exceeded with probability e⁻⁸⁰ at most
    finishing = shares.solver_noise(kind, 2 * error_of(perturbation, descent, radius), objective.parameters)
    return PerturbedTraining(perturbation, descent, solver, radius, finishing)


# --- the request -------------------------------------------------------------------------------------------


def _shares(request: Request, facts: Facts, objective: Linear | Softmax, kind: type[Perturbation]) -> Shares:
    """Return the shares for the Λ of the smallest solver's share; another hardly changes Λ."""
    epsilon, delta = request.epsilon, request.delta if kind is Gaussian else 0.0
    regularisation = _regularisation(request, facts, objective, Shares.of(epsilon, delta), kind)
    descent = AcceleratedDescent(objective, facts.rows, regularisation, passes=1)
    covered = lipschitz_of(objective) / (facts.rows * regularisation)  # half of the move that b covers
    return Shares.of(epsilon, delta, moved=descent.rounding(4 * descent.reach) / covered)


def _regularisation(
    request: Request, facts: Facts, objective: Linear | Softmax, shares: Shares, kind: type[Perturbation]
) -> float:
    """Return Λ: the request's, but large enough to leave half of the perturbed minimum's ε to the noise.

    By default b/(nΛ) moves a row's score by NOISE_ALONE times the usual noise of a default,
    and Λ at least LEAST_REGULARISATION.
    """
    least = least_scale(objective, shares.epsilon) / facts.rows * ROOM
    if request.regularisation is not None:
        return max(settings.regularisation_of(request, 0.0), least)
    noise = perturbation_of(objective, kind, epsilon=shares.epsilon, delta=shares.delta)
    deviation = noise.noise_scale * (1.0 if kind is Gaussian else math.sqrt(objective.parameters + 1))
    usual = NOISE_ALONE * settings.score_noise_of(settings.loss_of(request, facts))
    return max(deviation / (usual * facts.rows), LEAST_REGULARISATION, least)


def _check_classes(request: Request, facts: Facts) -> None:
    """Raise ValueError for more classes than the proof for Gaussian noise covers."""
    if _kind(request) is Gaussian and facts.outputs > MOST_CLASSES:
        raise ValueError(
            f"{facts.outputs} classes are more than {MOST_CLASSES}; choose mechanism {SphericalLaplace.name}, or "
            "algorithm bolt_on"
        )


def _objective(request: Request, facts: Facts) -> Linear | Softmax:
    """Return the objective: with pure noise and the logistic loss several classes are learned together, by softmax.

    Their gradients have norms up to √2 then, not √K. A weight of positive rows means one class against the rest.
    """
    objective = _one_against_the_rest(settings.objective_of(request, facts))
    together = objective.loss == Logistic() and _kind(request) is SphericalLaplace
    return Softmax(facts.dimension, facts.outputs) if facts.outputs > 1 and together else objective


def _one_against_the_rest(objective: Objective) -> Linear:
    """Return an objective that is neither softmax nor a network."""
    if not isinstance(objective, Linear):
        raise AssertionError("networks are not accepted, and softmax has pure noise")
    return objective


def _kind(request: Request) -> type[Gaussian] | type[SphericalLaplace]:
    """Return the law of b."""
    if request.mechanism is None:
        return Gaussian if request.delta > 0 else SphericalLaplace
    if request.mechanism == Gaussian.name and request.delta == 0:
        raise ValueError(f"delta = 0 with mechanism 'gaussian'; give a delta > 0, or choose {SphericalLaplace.name}")
    return MECHANISMS[request.mechanism]
