"""PrivGene: a genetic algorithm whose parents and final model are selected privately.

Zhang, Xiao, Yang, Zhang & Winslett 2013 (SIGMOD), with the settings of Lee & Kifer 2018 (§6): some hundred
candidate models lie in a box; each generation selects parents by the exponential mechanism on their fitness,
exchanges segments of them and mutates the offspring, by less each time; a last selection determines the result.

Differences from the paper. Neighbours are replace-one (privacy.md §10): the weight of a candidate is
exp(-ε₀u/2S). The charge is that of all *selections*, generations × parents + 1, each ε₀/(their number),
or ε₀²/8-zCDP. Their "enhanced exponential mechanism" is not used as published, for add-remove neighbours; its
form under replace-one is proved at `sensitivity_among`: S covers the difference of one row's losses
between two of the present candidates, which shrinks as they converge. Every coordinate mutates,
by a uniform amount, and parents survive: the paper's operators are one choice of many, none of which reads a row.
Shapes: a model is (P,), candidates are (C, P).
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp import checks
from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import (
    LEARNING,
    Options,
    OwnSettings,
    anything,
    automatic,
    number,
    own_settings,
    word,
)
from dbdp.algorithms.noisy_sums import UNIT, Summed, compared_sensitivity, penalties, spread_of
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Progress, Rows
from dbdp.learning.losses import LARGEST, SMALLEST, HuberSvm
from dbdp.learning.objectives import Linear, Objective, projected
from dbdp.privacy.accounting.composition import rho_of
from dbdp.privacy.accounting.events import MIN_EPSILON, ExponentialMechanismDpEvent, Release, SelfComposedDpEvent
from dbdp.privacy.accounting.padding import PoissonSamples
from dbdp.privacy.accounting.subsampling import amplified
from dbdp.privacy.selection import ExponentialMechanism

LOSS, ERRORS = "loss", "errors"
FITNESSES = (LOSS, ERRORS)
FEWEST, MOST = 10, 100  # limits of the default number of generations
MOST_GENERATIONS, MOST_CANDIDATES = 10_000, 10_000
STEEPNESS = 2.0**10  # a row of margin above 2⁻¹⁰ counts as no error, one of margin ≤ 0 as one error
_UNAMPLIFIED = 100.0  # above it sampling hardly changes ε


@dataclass(frozen=True)
class Genes(OwnSettings):
    """The settings of PrivGene. Lengths are fractions of the box."""

    population: int = number(200, 2, MOST_CANDIDATES, "candidates of a generation, its parents among them")
    parents: int = number(2, 1, MOST_CANDIDATES - 1, "selected from each generation; fewer than the population")
    generations: int | None = automatic(
        1, MOST_GENERATIONS, "by default 10 to 100, such that each selection has an ε₀ of 1/(growth · rows)"
    )
    growth: float = number(7e-4, 1e-9, 1e3, "c; at pure ε that is the papers' rule, selections = c·n·ε")
    box: float = number(10.0, SMALLEST, LARGEST, "every coordinate of a model stays within ±box")
    start: float = number(0.1, 0, 1, "the first candidates are uniform within ± this fraction of the box")
    crossover: float = number(1.0, 0, 1, "probability that a child has a segment of a second parent")
    mutation: float = number(0.7, 0, 1, "length (root mean square) of the first mutation")
    last_mutation: float = number(0.07, 0, 1, "length of the last mutation")
    fitness: str = word(
        FITNESSES, "loss: the sum of clipped losses; errors, for two classes: the rows classified wrongly"
    )
    loss_clip: float = number(3.0, SMALLEST, LARGEST, "largest loss of a row, for each class")

    def __post_init__(self) -> None:
        """Check the ranges, and that there are fewer parents than candidates."""
        super().__post_init__()
        checks.whole("parents", self.parents, 1, self.population - 1, "fewer than the population; 2 suit most data")

    def generation_count(self, request: Request, facts: Facts) -> int:
        """Return the number of generations, T."""
        if self.generations:
            return self.generations
        scale = self.growth * facts.rows
        selections = max(request.epsilon * scale, 8 * concentrated(request) * scale**2)
        return round(min(max(selections / self.parents, FEWEST), MOST))

    def mutation_at(self, generation: int, generations: int) -> float:
        """Return the length of the mutations of a generation, from 0: it falls geometrically."""
        share = generation / max(1, generations - 1)
        return self.box * self.mutation ** (1 - share) * self.last_mutation**share


OPTIONS = Options(
    {
        **LEARNING,
        **anything("batch_size", "radius"),
        "averaging": ("none",),
        "mechanism": ("exponential",),
    },
    {"epochs": "give generations in settings"},
    Genes,
)


def privgene_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a PrivGene release; with a batch_size each selection has its own Poisson mini-batch."""
    own = own_settings(request, Genes)
    generations = own.generation_count(request, facts)
    selections = generations * own.parents + 1
    probability = 1.0 if request.batch_size is None else settings.batch_size_of(request, facts.rows) / facts.rows
    fitness = fitness_of(request, facts, own)
    settings.check_numbers(own.population, fitness.objective.parameters, "give a smaller population in settings")
    samples = settings.samples_of(request, facts, probability, selections)
    spent, delta = charge_of(settings.without_leak(request, samples), selections)
    breeding = Breeding(
        fitness=fitness,
        own=own,
        generations=generations,
        epsilon=sampled_epsilon(spent, probability),
        rows=facts.rows,
        samples=samples,
        radius=settings.radius_of(request, settings.loss_of(request, facts)),
    )
    event = samples.event(SelfComposedDpEvent(ExponentialMechanismDpEvent(spent), selections))
    claimed = request.delta if delta else samples.leak(request.epsilon)
    details = breeding.details(spent) | ({} if probability == 1 else settings.shown_samples(request, samples))
    return NoisyWhileTraining(request, facts, Release(event, request.epsilon, claimed), details, breeding)


# --- cost -----------------------------------------------------------------------------------------------


def charge_of(request: Request, selections: int) -> tuple[float, float]:
    """Return r, the largest cost of each selection, and the δ that all of them use.

    Proof (privacy.md §10, §13). A selection's privacy loss lies in an interval of length r that holds 0: it is
    pure r, and r²/8-zCDP. Selections depend on earlier ones, and both kinds of cost add up: Σr ≤ ε, or
    Σr²/8 ≤ ρ, which the tight conversion turns into (ε, δ). Which r is larger is public.

    Raise ValueError if ε is too small for that many selections.
    """
    pure = request.epsilon / selections
    each = math.sqrt(8 * concentrated(request) / selections) * (1 - 1e-12)
    each, delta = (each, request.delta) if each > pure else (pure, 0.0)
    if each < MIN_EPSILON:
        raise ValueError(
            f"epsilon = {request.epsilon:g} leaves less than {MIN_EPSILON:g} for each of {selections} selections; give "
            "fewer generations or parents, or a larger epsilon"
        )
    return each, delta


def concentrated(request: Request) -> float:
    """Return ρ of the request's (ε, δ); 0 if δ is 0, or ε is too small for it."""
    try:
        return rho_of(request.epsilon, request.delta) if request.delta else 0.0
    except ValueError:
        return 0.0


def sampled_epsilon(spent: float, probability: float) -> float:
    """Return ε₀ of a selection that costs `spent` on a new Poisson sample of the rows.

    r = 2 ln(1 + q(e^{ε₀/2} - 1)) is `spent`. Proof. Given the other rows of the sample, let a, b, c be the
    probabilities of the candidates without the record, with it, and with its neighbour. Adding a record moves the
    differences of losses by at most S, half of what replacing it does: ln b/a and ln c/a lie
    in intervals of length h = ε₀/2 around 0. With G(x) = ln(1 - q + qe^x), which rises and is convex, the loss
    is G(ln b/a) - G(ln c/a), and each term has a range of at most G(h) - G(0): together r, pure and r²/8-zCDP.
    Rényi divergences are quasi-convex, so the mixture over the other rows has no more. ∎ At q = 1, r = ε₀.
    Two selections from one sample would cost more than this twice (§9.5): each has its own sample.
    """
    if probability == 1 or spent > _UNAMPLIFIED:
        return spent
    epsilon = 2 * math.log1p(math.expm1(spent / 2) / probability) * (1 - 1e-12)
    if 2 * amplified(epsilon / 2, probability) > spent:
        raise ArithmeticError("internal error: the amplified selection costs more than planned")
    return epsilon


# --- fitness --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitness:
    """The loss of candidates: Σ min(loss, limit) of the objective at scale · model, plus a public penalty."""

    objective: Objective
    limit: float
    scale: float
    regularisation: float

    def losses(self, rows: Rows, models: np.ndarray, batch: int | None, expected: float) -> np.ndarray:
        """Return the loss of each candidate, shape (C,), from one pass over the rows: exact, and secret."""
        sums = rows.loss_sums(self.objective, self.scale * models, limit=self.limit, batch=batch)
        return sums + penalties(models, self.regularisation, expected)


def fitness_of(request: Request, facts: Facts, own: Genes) -> Fitness:
    """Return the fitness; errors are the clipped losses of a hinge so steep that it is 0 or 1."""
    regularisation = settings.regularisation_of(request, 0.0)
    if own.fitness == LOSS:
        return Fitness(settings.objective_of(request, facts), own.loss_clip * facts.outputs, 1.0, regularisation)
    remedy = "leave it out, or choose fitness 'loss'"
    settings.refuse_given(request, "huber_width", "positive_weight", of="fitness 'errors'", remedy=remedy)
    if facts.outputs > 1 or not facts.is_classifier:
        raise ValueError("fitness 'errors' is for a label of two classes; choose fitness 'loss'")
    return Fitness(Linear(HuberSvm(SMALLEST), facts.dimension), 1.0, STEEPNESS, regularisation)


def sensitivity_among(fitness: Fitness, models: np.ndarray, rows: int, expected: float) -> float:
    """Return S: replacing one record moves the computed difference of two candidates' losses by at most 2S.

    Proof that this suffices for the exponential mechanism. Candidates and S are functions of earlier selections:
    public here. Let replacing z by z' move loss i by δ_i = ℓ_i(z') - ℓ_i(z). The log of the ratio of the
    probabilities of i is -ε₀δ_i/2S and a constant, so its range is ε₀(max δ - min δ)/2S ≤ ε₀, as
    δ_i - δ_j = (ℓ_i - ℓ_j)(z') - (ℓ_i - ℓ_j)(z) ≤ 2S, where no row's losses differ by more than S: because they
    are in [0, limit], or because the loss is L-Lipschitz and the candidates are close. ∎ With and without a record
    it is half of that. Floating point (§14.2): `compared_sensitivity` covers the sums; per row a loss errs by
    `evaluated`/2, and where rows are sampled the others' places move, so the errors of b rows may change: it is added.
    """
    scaled = fitness.scale * models
    longest = scaled[np.einsum("ij,ij->i", scaled, scaled).argmax()]
    evaluated = spread_of(fitness.objective, np.stack([longest, longest]))  # of equal models: rounding alone
    apart = spread_of(fitness.objective, farthest(scaled))
    public = float(penalties(models, fitness.regularisation, expected).max()) + rows * evaluated / UNIT
    summed = Summed.of_objective(rows, fitness.objective)
    return compared_sensitivity(fitness.limit, summed, spread=apart + evaluated, added=public)


def farthest(models: np.ndarray) -> np.ndarray:
    """Return the two candidates that are farthest apart, shape (2, P)."""
    best, pair = -1.0, models[:1].repeat(2, axis=0)
    for model in models:
        distances = np.einsum("ij,ij->i", models - model, models - model)
        place = int(distances.argmax())
        if distances[place] > best:
            best, pair = float(distances[place]), np.stack([model, models[place]])
    return pair


# --- breeding -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Breeding:
    """The genetic algorithm as planned, from public facts only."""

    fitness: Fitness
    own: Genes
    generations: int
    epsilon: float  # ε₀ of one selection on the rows that it reads
    rows: int
    # The mini-batches of the selections; with probability 1 all rows are read, once for each generation.
    samples: PoissonSamples
    radius: float  # each linear model is projected onto the ball of this radius

    @property
    def probability(self) -> float:
        """Probability of a row to be read by one selection."""
        return self.samples.probability

    @property
    def selections(self) -> int:
        """Number of selections."""
        return self.generations * self.own.parents + 1

    def __call__(self, rows: Rows, progress: Progress) -> np.ndarray:
        """Run all generations and return the model, shape (P,); it depends on the rows through selections alone."""
        batches = self._all(rows) if self.probability == 1 else self._sampled(rows)
        models = self.first()
        for generation in range(self.generations):
            models = self.offspring(models[self._selected(rows, batches, models, self.own.parents)], generation)
            progress("generation", generation + 1, self.generations)
        return models[self._selected(rows, batches, models, 1)[0]]

    def details(self, spent: float) -> dict[str, Any]:
        """Return the details for `explain`; a selection is charged `spent`."""
        own, passes = self.own, self.generations + 1
        return {
            "sampling": "all" if self.probability == 1 else "poisson",
            "sampling_rate": self.probability,
            "steps": self.generations,
            "population": own.population,
            "parents": own.parents,
            "selections": self.selections,
            "expected_passes": passes if self.probability == 1 else self.selections * self.probability,
            "fitness": own.fitness,
            "loss_clip": self.fitness.limit,
            "regularisation": self.fitness.regularisation,
            "box": own.box,
            "parameters": self.fitness.objective.parameters,
            "mechanism": "exponential",
            "selection_epsilon": self.epsilon,
            "selection_charge": spent,
            "noise_scale": 2 * self.fitness.limit / self.epsilon,  # of Gumbel noise, at most
            **({"radius": self.radius} if math.isfinite(self.radius) else {}),
        }

    def first(self) -> np.ndarray:
        """Return the first candidates, shape (C, P)."""
        shape = (self.own.population, self.fitness.objective.parameters)
        return self.within((2 * uniform(*shape) - 1) * (self.own.box * self.own.start))

    def offspring(self, parents: np.ndarray, generation: int) -> np.ndarray:
        """Return the next candidates: the parents, and mutated children of two of them.

        They depend on the rows only through the parents, which are released: post-processing.
        """
        count, parameters = self.own.population - len(parents), parents.shape[1]
        first, second = (parents[(uniform(count) * len(parents)).astype(int)] for _ in range(2))
        begins, ends = np.sort((uniform(2, count, 1) * (parameters + 1)).astype(int), axis=0)
        places, crossed = np.arange(parameters), uniform(count, 1) < self.own.crossover
        children = np.where((begins <= places) & (places < ends) & crossed, second, first)
        length = self.own.mutation_at(generation, self.generations) * math.sqrt(3 / parameters)
        return self.within(np.concatenate([parents, children + length * (2 * uniform(*children.shape) - 1)]))

    def within(self, models: np.ndarray) -> np.ndarray:
        """Return the candidates, clipped to the box, with each linear model projected onto the ball."""
        boxed = np.clip(models, -self.own.box, self.own.box)
        each = boxed.reshape(-1, self.fitness.objective.inputs)
        return projected(each, self.radius).reshape(boxed.shape)

    def _selected(self, rows: Rows, batches: Iterator[int | None], models: np.ndarray, count: int) -> list[int]:
        """Return the indices of different candidates, one selection for each."""
        expected = self.rows * self.probability
        apart = sensitivity_among(self.fitness, models, self.samples.size, expected)
        mechanism = ExponentialMechanism(self.epsilon, apart)
        if self.probability == 1:
            return mechanism.choose_several(self.fitness.losses(rows, models, next(batches), expected).tolist(), count)
        left, selected = list(range(len(models))), []
        for batch in (next(batches) for _ in range(count)):
            losses = self.fitness.losses(rows, models[left], batch, expected)
            selected.append(left.pop(mechanism.choose(losses.tolist())))
        return selected

    def _all(self, rows: Rows) -> Iterator[None]:
        """Pack all rows once; yield None, which stands for all rows, for every selection."""
        rows.pack()
        while True:
            yield None

    def _sampled(self, rows: Rows) -> Iterator[int]:
        """Yield the index of a new mini-batch for each selection; pack as many at a time as fit."""
        left = self.selections
        while left:
            drawn = rows.draw(self.samples, left)
            yield from range(drawn)
            left -= drawn


def uniform(*shape: int) -> np.ndarray:
    """Return numbers in [0, 1) from the operating system's entropy; privacy does not depend on them."""
    words = np.frombuffer(os.urandom(8 * math.prod(shape)), np.uint64).reshape(shape)
    return (words >> np.uint64(11)) * 2.0**-53
