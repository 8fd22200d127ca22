"""Private tuning: a private choice among candidate settings.

privacy.md §6. `disjoint_portions` is Algorithm 3 of Wu et al. 2017 (after Chaudhuri et al. 2011): each
candidate trains on its own portion, and the exponential mechanism chooses by the errors on the last
one. `random_repetition` (Liu & Talwar 2019, Papernot & Steinke 2022) trains on the same rows a secret,
random number of times, and releases the run with the best noisy score. `shared_moment`, for preconditioned_gd,
trains all candidates on all rows with parts of one budget. Tuning by the error of models
without noise is not offered: it voids every guarantee.
"""

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import le
from typing import Any

import numpy as np

from dbdp.algorithms import catalogue
from dbdp.algorithms.combined import shared_moment
from dbdp.algorithms.combined.shared_moment import SharedTuning, shared_plan
from dbdp.algorithms.families.perturbed_once.shared import WORST, PerturbedOnce
from dbdp.algorithms.plan import AUTO, Facts, Released, Request, plain
from dbdp.algorithms.rows import Layout, Progress, Rows, silent
from dbdp.algorithms.settings import chosen, shard_rows
from dbdp.algorithms.words import remedy, spelled
from dbdp.checks import between, one_of
from dbdp.learning.losses import HuberRegression, Squared
from dbdp.privacy.accounting import group_privacy
from dbdp.privacy.accounting.budget import rounded_down
from dbdp.privacy.accounting.calibration import least_multiplier
from dbdp.privacy.accounting.composition import least_epsilon
from dbdp.privacy.accounting.events import (
    MIN_EPSILON,
    DisjointDpEvent,
    Event,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    Release,
    RepeatAndSelectDpEvent,
    ZCDpEvent,
    check_epsilon_delta,
)
from dbdp.privacy.mechanisms import ROOM, DiscreteGaussian, Gaussian
from dbdp.privacy.selection import ExponentialMechanism, Repetitions

METHODS = ("disjoint_portions", "random_repetition")  # of algorithms that add noise once, at the end
SHAPES = {"geometric": 1.0, "poisson": math.inf}
MOST_CANDIDATES = 100
HOLDOUT = 5  # one row in this many scores the repetitions
TUNABLE = (*shared_moment.PLANS, *catalogue.PERTURBED_ONCE)
FIXED = (
    *("epsilon", "delta", "shards", "shard_averaging", "permutation"),
    *("projection_dimension", "projection_seed", "pairs", "pair_cells", "monotone", "cohort", "summary", "name"),
)
_NEAR = 1 + 1e-6  # relative precision of the choice's default ε
_TAIL_SHARE = 1e-3  # of δ, for runs beyond the cap
_LEDGER_EPSILON = 20.0  # a ledger multiplies the runs beyond the cap by e^ε of its own: negligible up to this ε


@dataclass(frozen=True)
class TuningRequest:
    """A request for a private tuning.

    Attributes
    ----------
    base : Request
        The request that the candidates change. Its ε and δ are those of the tuning.
    candidates : tuple[Mapping[str, Any], ...]
        For each candidate, the settings in which it differs from `base`.
    method : str | None
        disjoint_portions or random_repetition; by default the former, and shared_moment for preconditioned_gd.
    repetitions, distribution : float | None, str | None
        Mean and law (geometric or poisson) of the secret number of runs. The default mean is the number of
        candidates.
    selection_epsilon : float | None
        ε of the choice among disjoint portions. The default is the largest, up to that of the tuning, at which the
        choice is charged no more than the training runs.
    """

    base: Request
    candidates: tuple[Mapping[str, Any], ...]
    method: str | None = None
    repetitions: float | None = None
    distribution: str | None = None
    selection_epsilon: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(map(plain, parsed(self.candidates))))
        object.__setattr__(self, "repetitions", plain(self.repetitions))
        object.__setattr__(self, "selection_epsilon", plain(self.selection_epsilon))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithm of each candidate, `auto` for one that names none."""
        return tuple(str(each.get("algorithm", self.base.algorithm)) for each in self.candidates)


@dataclass(frozen=True)
class TuningPlan:
    """The plan of a tuning: plans of the candidates, on portions of public sizes, and the private choice.

    The last portion scores the models. With `repetitions` every candidate trains on the first portion.
    """

    request: TuningRequest
    facts: Facts
    portions: tuple[int, ...]
    plans: tuple[PerturbedOnce, ...]
    guarantee: Release
    selection: ExponentialMechanism | None
    repetitions: Repetitions | None
    score: DiscreteGaussian | None

    @property
    def layout(self) -> Layout:
        """A slice for each portion."""
        return Layout(self.plans[0].facts.dimension, self.portions, self.request.base.projection)

    def run(self, rows: Rows, progress: Progress = silent) -> tuple[int | None, Released]:
        """Pack the rows, train the candidates, and return the chosen one's index and its noisy models.

        The index is None if no run counted; the models have shape (outputs, dimension).
        """
        rows.shuffle()
        best = self._best_run if self.repetitions else self._best_candidate
        chosen, models = best(rows, progress)
        return chosen, Released(models)

    def _best_candidate(self, rows: Rows, progress: Progress) -> tuple[int | None, np.ndarray]:
        """Run Algorithm 3: each candidate on its own portion, the choice by the errors on the last one."""
        if self.selection is None:
            raise AssertionError("disjoint portions are chosen among by the exponential mechanism")
        models = []
        for number, candidate in enumerate(self.plans):
            models.append(candidate.run(rows.slice(number), is_packed=True).models)
            progress("candidate", number + 1, len(self.plans))
        scored = rows.slice(len(self.plans))
        chosen = self.selection.choose([scored.errors(model) for model in models])
        return chosen, models[chosen]

    def _best_run(self, rows: Rows, progress: Progress) -> tuple[int | None, np.ndarray]:
        """Return the best, by noisy score, of a secret number of runs; all runs up to the cap hide it in time."""
        if self.repetitions is None or self.score is None:
            raise AssertionError("a random repetition has a law of runs and a score")
        trained, scored = rows.slice(0), rows.slice(1)
        counted, passes = self.repetitions.draw(), max(each.learning.epochs for each in self.plans)
        best: tuple[float, int | None, np.ndarray] = (math.inf, None, np.zeros(self.facts.shape))
        for run in range(self.repetitions.cap):
            candidate = secrets.randbelow(len(self.plans))
            model = self.plans[candidate].run(trained, is_packed=True).models
            _read_on(self.plans[candidate], trained, passes)
            errors = np.array([float(scored.errors(model))])
            outcome = (float(self.score.release(errors)[0]), candidate, model)
            best = min(best, outcome, key=lambda each: each[0]) if run < counted else best
            progress("candidate", run + 1, self.repetitions.cap)
        return best[1:]

    def explain(self) -> dict[str, Any]:
        """Return the plan as data; see `PerturbedOnce.explain` for the candidates."""
        secret = self.repetitions and {
            "distribution": self.request.distribution or "geometric",
            "mean_repetitions": self.repetitions.mean,
            "runs": self.repetitions.cap,
            "score_noise_scale": self.score.noise_scale if self.score else None,
        }
        return {
            "algorithm": "tuning",
            "method": self.request.method or METHODS[0],
            **self.facts.relation,
            "portions": list(self.portions),
            "candidates": [dict(candidate) for candidate in self.request.candidates],
            "plans": [plan.explain() for plan in self.plans],
            **(secret or {}),
            **({"selection_epsilon": self.selection.epsilon} if self.selection else {}),
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
        }


def tuning_plan(request: TuningRequest, facts: Facts) -> TuningPlan | SharedTuning:
    """Return the plan of a tuning, from public facts only.

    The rows of a unit of privacy lie in several portions, so the tuning is planned for single rows, at the share
    of (ε, δ) whose group privacy is (ε, δ): the choice and all portions are one mechanism (privacy.md §11.6).
    """
    base, rows = request.base, facts.unit_rows
    check_epsilon_delta(base.epsilon, base.delta)
    if rows == 1:
        return _plan(request, facts)
    epsilon, delta = group_privacy.share(base.epsilon, base.delta, rows)
    choice = None if request.selection_epsilon is None else request.selection_epsilon / rows
    row_request = replace(request, base=replace(base, epsilon=epsilon, delta=delta), selection_epsilon=choice)
    row_plan = _plan(row_request, replace(facts, unit_rows=1, budget=None))  # charged as (ε, δ), whatever the choice
    guarantee = group_privacy.grouped(row_plan.guarantee, rows, epsilon=base.epsilon, delta=base.delta)
    return replace(row_plan, facts=facts, guarantee=guarantee)


def _plan(request: TuningRequest, facts: Facts) -> TuningPlan | SharedTuning:
    """Return the plan for single rows."""
    if request.method is not None:
        one_of("method", request.method, (*METHODS, shared_moment.METHOD))
    if not facts.is_classifier:
        raise ValueError(
            "tuning counts wrongly classified rows, and this label is a number; train with chosen settings instead"
        )
    if not 1 <= len(request.candidates) <= MOST_CANDIDATES:
        raise ValueError(f"{len(request.candidates)} candidates are out of range; give 1 to {MOST_CANDIDATES}")
    requests = [_resolved(_candidate(request.base, settings), facts) for settings in request.candidates]
    _check_losses(requests)
    if _share_a_moment(request, requests):
        for each in requests:
            catalogue.check(each, facts)
        return shared_plan(request.base, request.candidates, requests, facts)
    if request.method == "random_repetition":
        if request.selection_epsilon is not None:
            raise ValueError("selection_epsilon belongs to method 'disjoint_portions'; leave it out")
        return _repeated(request, facts, requests)
    if request.repetitions is not None or request.distribution is not None:
        raise ValueError("repetitions and distribution belong to method 'random_repetition'; leave them out")
    return _disjoint(request, facts, requests)


def _resolved(request: Request, facts: Facts) -> Request:
    """Return the request of a candidate with the algorithm that `auto` chooses, if that can be tuned."""
    if request.algorithm != AUTO:
        return request
    found = catalogue.plan(request, facts).request
    if found.algorithm not in TUNABLE:
        others = TUNABLE if request.delta else tuple(catalogue.PERTURBED_ONCE)
        raise ValueError(
            f"{AUTO} chooses {found.algorithm} by public facts, which is not tuned; train without tuning"
            + ("" if request.network else f", or choose algorithm {', '.join(others)}")
        )
    return replace(request, algorithm=found.algorithm)


def _check_losses(requests: Sequence[Request]) -> None:
    """Raise ValueError for a loss of numbers: its scores of two classes would pass for log-odds."""
    for each in requests:
        loss = each.loss
        if loss in (HuberRegression.name, Squared.name):
            raise ValueError(
                f"loss {loss!r} is for numeric labels, but this label has classes; use logistic or huber_svm"
            )


def _share_a_moment(request: TuningRequest, requests: Sequence[Request]) -> bool:
    """Return whether candidates share a noisy moment; raise ValueError if only some do, or for another method."""
    algorithms, method = {each.algorithm for each in requests}, request.method
    sharing = sorted(algorithms & set(shared_moment.PLANS))
    if sharing and len(algorithms) > 1:
        raise ValueError(f"only some candidates are of {sharing[0]}; give all of them one algorithm")
    if sharing and method not in (None, shared_moment.METHOD):
        raise ValueError(f"method {method!r} does not tune {sharing[0]}; leave method out, or choose bolt_on")
    if not sharing and method == shared_moment.METHOD:
        listed = " and ".join(shared_moment.PLANS)
        raise ValueError(f"method {method!r} tunes only {listed}; leave method out, or choose one of them")
    if sharing and (request.repetitions, request.distribution, request.selection_epsilon) != (None, None, None):
        raise ValueError(
            f"{sharing[0]} is tuned without repetitions, distribution and selection_epsilon; leave them out"
        )
    return bool(sharing)


def _read_on(plan: PerturbedOnce, rows: Rows, passes: int) -> None:
    """Make the passes that a candidate with fewer epochs lacks, so that their number does not reveal the candidate."""
    left = passes - plan.learning.epochs
    if left:
        replace(plan, learning=replace(plan.learning, epochs=left)).exact(rows)


def parsed(candidates: str | Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return candidates from JSON, a list of objects, or from a sequence of mappings."""
    try:
        values = json.loads(candidates) if isinstance(candidates, str) else candidates
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        values = candidates
    if not isinstance(values, list | tuple) or not all(isinstance(each, Mapping) for each in values):
        raise ValueError(f'candidates are {values!r}; give a list of objects: [{{"settings": {{"clip": 0.2}}}}, …]')
    return tuple(map(spelled, values))


def _candidate(base: Request, settings: Mapping[str, Any]) -> Request:
    known = {each.name for each in fields(Request)} - set(FIXED)
    if unknown := set(settings) - known:
        raise ValueError(
            f"candidate {dict(settings)} sets {', '.join(sorted(unknown))}; it may set {', '.join(sorted(known))}"
            f"{remedy(min(unknown), known)}"
        )
    request = replace(base, **settings)
    if request.shards != 1 or request.permutation not in (None, "reused"):
        raise ValueError("tuning trains on one shard over one permutation; leave shards and permutation out")
    return request


def _planned(request: Request, facts: Facts, rows: int) -> PerturbedOnce:
    if request.algorithm in tuple(catalogue.NOISY_WHILE_TRAINING):  # a tuple, as JSON may contain an unhashable value
        raise ValueError(
            f"algorithm {request.algorithm!r} adds noise while it trains, and of such algorithms only "
            f"{' and '.join(shared_moment.PLANS)} are tuned; choose one of {', '.join(TUNABLE)}"
        )
    own = replace(facts, rows=rows)
    catalogue.check(request, own)
    return catalogue.PERTURBED_ONCE[request.algorithm].plan(request, own)


def _disjoint(request: TuningRequest, facts: Facts, requests: Sequence[Request]) -> TuningPlan:
    """Return the plan of Algorithm 3: each record is in one portion, so the most expensive one sets the cost (§6)."""
    portions = _portions(facts, len(requests) + 1)
    plans = tuple(_planned(each, facts, rows) for each, rows in zip(requests, portions, strict=False))
    events = tuple(each.mechanism.guarantee.event for each in plans)
    trained = Release(DisjointDpEvent(events), request.base.epsilon, max(each.guarantee.delta for each in plans))
    selection = ExponentialMechanism(_selection_epsilon(request, facts, trained))
    guarantee = replace(trained, event=DisjointDpEvent((*events, ExponentialMechanismDpEvent(selection.epsilon))))
    return TuningPlan(request, facts, portions, plans, guarantee, selection, None, None)


def _selection_epsilon(request: TuningRequest, facts: Facts, trained: Release) -> float:
    """Return the ε of the choice: the requested one, or the largest that adds nothing to the charge of the trainings.

    Proof that (ε, δ) holds for any of at most ε: a record is in one portion, and the choice's has ε_s ≤ ε. ∎
    """
    epsilon, given, budget = request.base.epsilon, request.selection_epsilon, facts.budget
    if given is not None:
        between("selection_epsilon", given, MIN_EPSILON, epsilon)
        return given
    if budget is None:
        return epsilon
    alone = budget.cost(trained)

    def is_free(choice: float) -> bool:
        event = DisjointDpEvent((trained.event, ExponentialMechanismDpEvent(choice)))
        return all(map(le, budget.cost(replace(trained, event=event)), alone))

    if is_free(epsilon) or not is_free(MIN_EPSILON):
        return epsilon
    low, high = MIN_EPSILON, epsilon
    while high > low * _NEAR:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_free(middle) else (low, middle)
    return max(rounded_down(low), MIN_EPSILON)


def _portions(facts: Facts, parts: int) -> tuple[int, ...]:
    if facts.rows < parts:
        raise ValueError(f"{facts.rows} rows cannot be split into {parts} portions; give fewer candidates")
    return shard_rows(facts.rows, parts)


def _repeated(request: TuningRequest, facts: Facts, requests: Sequence[Request]) -> TuningPlan:
    """Return the plan of a random repetition.

    A run is a uniform candidate, its noisy model, and a noisy count of errors on the other portion. It costs what its
    most expensive portion costs; the order of the rows is the same in every run, so the noise covers the worst
    position. The number of runs is cut off at a cap, which leaks a share of δ.
    """
    epsilon, delta = request.base.epsilon, request.base.delta
    if any(each.mechanism not in (None, Gaussian.name) or each.calibration not in (None, WORST) for each in requests):
        raise ValueError(
            f"method 'random_repetition' has mechanism {Gaussian.name!r} and calibration {WORST!r} in every run, since "
            "all runs share one order; leave both out, or choose 'disjoint_portions'"
        )
    if delta == 0:
        raise ValueError("method 'random_repetition' needs a delta > 0; give one, or choose 'disjoint_portions'")
    shape = SHAPES[chosen("distribution", request.distribution, tuple(SHAPES))]
    mean = float(len(requests)) if request.repetitions is None else request.repetitions
    tail = _TAIL_SHARE * delta / (1 + math.exp(min(max(epsilon, _LEDGER_EPSILON), 600.0)))
    repetitions = Repetitions.of(mean=mean, shape=shape, total_variation=tail)
    holdout = max(1, facts.rows // HOLDOUT)
    portions = (facts.rows - holdout, holdout)
    if portions[0] < 1:
        raise ValueError(f"{facts.rows} rows cannot be split into {HOLDOUT} parts; register more rows")

    def event(multiplier: float) -> Event:
        run = DisjointDpEvent((GaussianDpEvent(multiplier), ZCDpEvent(1 / (2 * multiplier**2))))
        return RepeatAndSelectDpEvent(run, repetitions.mean, shape, repetitions.total_variation)

    remaining = delta * (1 - _TAIL_SHARE * 1.001)
    multiplier = least_multiplier(lambda each: least_epsilon(event(each), remaining) <= epsilon) * ROOM
    worst = [replace(each, mechanism=None, calibration=WORST) for each in requests]
    plans = tuple(_with_multiplier(_planned(each, facts, portions[0]), multiplier) for each in worst)
    score = DiscreteGaussian(1.0, 1.0, math.ceil(multiplier * ROOM), epsilon, delta)  # a count, on the grid of integers
    guarantee = Release(event(multiplier / ROOM), epsilon, delta)
    return TuningPlan(request, facts, portions, plans, guarantee, None, repetitions, score)


def _with_multiplier(plan: PerturbedOnce, multiplier: float) -> PerturbedOnce:
    """Return the plan with the Gaussian noise of one run."""
    gaussian = plan.mechanism
    if not isinstance(gaussian, Gaussian):
        raise AssertionError("a run of a random repetition has Gaussian noise")
    event = Release(GaussianDpEvent(multiplier), gaussian.guarantee.epsilon, gaussian.guarantee.delta)
    scale = gaussian.sensitivity * multiplier * ROOM**2
    noise = Gaussian.with_scale(
        sensitivity=gaussian.sensitivity, grid=gaussian.grid, noise_scale=scale, guarantee=event
    )
    return replace(plan, mechanism=noise)
