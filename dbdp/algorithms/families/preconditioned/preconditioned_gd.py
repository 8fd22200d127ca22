"""Privately preconditioned gradient descent: noisy steps over all rows, in coordinates where they vary alike.

privacy.md §16. One part of the budget releases the second moment of the rows, or a summary has released it before; W,
from that release alone, maps rows x to x̃ = Wx. There a fixed number of clipped, noisy gradient steps is taken from 0,
and W times the mean of the last half of the iterates is released; of classes, after a table of its scores has
calibrated it (§21). Classes are learned by softmax with one clip. K models are one vector of P = K·d parameters.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options, OwnSettings, anything, automatic, own_settings
from dbdp.algorithms.families.preconditioned.momentum import MOMENTUM, accumulated_noise, last_half
from dbdp.algorithms.families.preconditioned.preconditioning import MomentRelease, Preconditioner, preconditioner_of
from dbdp.algorithms.noisy_sums import gaussian_sum, lipschitz_of, measured_sensitivity, noisy_gradient_sum
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Released, Request
from dbdp.algorithms.rows import Layout, Pace, Progress, Rows, silent
from dbdp.algorithms.stages.label_window import where_labels_are
from dbdp.algorithms.stages.residual_clip import ResidualRelease
from dbdp.algorithms.stages.self_evaluation import SelfEvaluation, are_log_odds
from dbdp.algorithms.stages.table_noise import GaussianTable
from dbdp.checks import between, whole
from dbdp.learning.losses import LARGEST, HuberSvm, Logistic
from dbdp.learning.objectives import Linear, Softmax, projected
from dbdp.learning.rows.column_blocks import RowBlocks
from dbdp.learning.second_moments import MOST_DIMENSION
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release
from dbdp.privacy.mechanisms import ROOM, Gaussian

MOST_PASSES = 1000
RESIDUAL_SHARE = 0.06  # of μ², for the residuals of numbers
LABEL_SHARE = 0.04  # of μ², for where the labels of numbers are
RESIDUAL_SIGNAL = 20  # of nμ/d: with less, the passes of a second descent cost more than its clip gains
LEAST_PASSES = 8  # that two descents share
MOST_SHARED = 0.99  # of μ², for everything but the steps
FAIR = 10  # of nμ/d: from there on more steps and longer clips gain more than their noise costs
STRONG = 20  # … longer steps too
STRONG_OF_SEVERAL = 40  # … for several classes, which share each step's clip
WHOLE_OF_SEVERAL = 100  # … longer clips of several classes; at 36 times that none is clipped as long as rows are usual
RIDGE_OF_SEVERAL = 2  # times the usual ridge: noise in a direction that the moment does not show counts for every class
SOFTMAX_LIPSCHITZ = 1.5  # above √2, the most of ‖p - e_y‖


@dataclass(frozen=True)
class Settings(OwnSettings):
    """What only preconditioned_gd has."""

    passes: int | None = automatic(1, MOST_PASSES, "T: gradient steps over all rows; by default 10, 16, 20 or 40")
    moment_share: float | None = automatic(
        1e-6, 0.99, "fraction of μ² for the second moment; by default .3, .15 or .2, and 0 with a summary"
    )
    evaluation_share: float | None = automatic(
        0.0, 0.9, "fraction of μ² for the table of scores that calibrates and evaluates classes; by default .05 or .02"
    )
    clip: float | None = automatic(
        1e-6, 100.0, "c: a row's gradient is clipped to c·√d_eff; by default .1 to 1.5, of numbers in their spread"
    )


OPTIONS = Options(
    {
        **anything("huber_width", "positive_weight", "step_size", "radius", "summary"),
        "mechanism": (Gaussian.name,),
    },
    {
        "epochs": 'give passes in settings, such as {"passes": 20}',
        "batch_size": "leave it out: each step reads all rows",
        "schedule": "leave it out: all steps have one size, which step_size sets",
        "clip_norm": 'give clip in settings, such as {"clip": 0.4}',
        "regularisation": "leave it out: the coordinates regularise, and radius limits the norm of the model",
        "shards": "leave it out: each step reads all rows",
        "monotone": "leave it out, or choose algorithm => 'private_splines', which has it",
    },
    Settings,
    least_signal=0.1,
)


# --- the public rule -------------------------------------------------------------------------------------


def signal_of(multiplier: float, facts: Facts) -> float:
    """Return nμ/d, μ = 1/multiplier: how far a unit of privacy is below what all rows say, by public facts (§16.6)."""
    return facts.rows / (multiplier * facts.dimension)


def usual_passes(signal: float, facts: Facts) -> int:
    """Return T: more steps have more noise each, which a strong signal affords, and several classes need (§16.6)."""
    if facts.outputs > 1:
        return 40 if signal > STRONG_OF_SEVERAL else 20
    if not facts.is_classifier:
        return 18 if signal >= RESIDUAL_SIGNAL else 16
    return 16 if signal > FAIR else 10


def usual_clip(signal: float, facts: Facts) -> float:
    """Return c: with a weak signal, gradients clipped short have less noise than they lose (§16.6).

    Residuals of numbers are mostly short, and so are the gradients of several classes together: they bear a longer
    clip later. Classes that hardly differ between rows are biased by a short one.
    """
    if facts.outputs > 1:
        return min(SOFTMAX_LIPSCHITZ, 0.25 * max(1.0, signal / WHOLE_OF_SEVERAL) ** 0.5)
    if not facts.is_classifier:
        return min(0.4, 0.13 * (signal / 10) ** 0.4)
    return 0.15 if signal < 5 else 0.4 if signal > FAIR else 0.25


def usual_step(objective: Linear | Softmax, signal: float) -> float:
    """Return η: 1/β, 2/β of the logistic loss with a strong signal, 4/β of softmax: their curvature is seldom β."""
    if isinstance(objective, Softmax):
        return 4 / objective.smoothness
    often = 2 if objective.loss.name == Logistic.name and signal > STRONG else 1
    return often / objective.loss.smoothness


def usual_moment_share(facts: Facts) -> float:
    """Return the share of μ² for the second moment: less where steps have more noise, for several classes (§16.6)."""
    if facts.outputs > 1:
        return 0.15
    return 0.3 if facts.is_classifier else 0.2


def usual_evaluation_share(facts: Facts) -> float:
    """Return the share of μ² for the table of scores: what it costs the steps is next to nothing (§21.3).

    Softmax with its one clip is hardly biased, so that several classes need less of it.
    """
    if not facts.is_classifier:
        return 0.0
    return 0.05 if facts.outputs == 1 else 0.02


# --- the plan --------------------------------------------------------------------------------------------


def preconditioned_gd_plan(request: Request, facts: Facts) -> "PreconditionedPlan":
    """Return the plan of a privately preconditioned descent.

    Proof (privacy.md §16.1, §16.3, §21.1, §24.6). Given what was released before, the second moment, each of the T sums
    of clipped gradients, the table of scores and, of numbers, two counts of the labels are Gaussian releases, whose
    sums move by at most √2, 2C, √(2K) and √2 where one record is replaced. C may depend on what was released before,
    since the quotients of sensitivity and deviation, μ_A, μ_g, μ_h and μ_L, do not. Adaptively composed, Gaussians of
    fixed quotients are one of μ² = μ_A² + Tμ_g² + μ_h² + 2μ_L² (§13), and that is at most 1/z², z the analytic
    multiplier of (ε, δ). With a summary, which was released and charged before, μ_A = 0. ∎

    Raise ValueError if the request cannot be planned: the message names the value, the limit and the remedy.
    """
    if request.delta == 0:
        raise ValueError(
            f"delta = 0: algorithm {request.algorithm!r} adds Gaussian noise and needs a delta > 0; give one, or "
            "choose objective_perturbation"
        )
    whole("features", facts.dimension, 1, MOST_DIMENSION, "give a projection_dimension, or choose dp_sgd")
    descent = _descent(request, facts, own_settings(request, Settings))
    guarantee = Release(GaussianDpEvent(descent.multiplier), request.epsilon, request.delta)
    return PreconditionedPlan(request, facts, guarantee, descent.described(), descent)


def _descent(request: Request, facts: Facts, own: Settings) -> "PreconditionedDescent":
    objective = objective_of(request, facts)
    multiplier = analytic_noise_multiplier(request.epsilon, request.delta)
    signal = signal_of(multiplier, facts)
    return PreconditionedDescent(
        objective=objective,
        facts=facts,
        multiplier=multiplier,
        moment_share=_moment_share(request, facts, own),
        evaluation_share=_evaluation_share(request, facts, own),
        residual_share=_residual_share(signal, request, facts, own),
        label_share=_label_share(request, facts, own),
        passes=own.passes or usual_passes(signal, facts),
        clip=own.clip or usual_clip(signal, facts),
        step_size=usual_step(objective, signal) if request.step_size is None else step_given(request.step_size),
        radius=math.inf if request.radius is None else settings.radius_of(request, settings.loss_of(request, facts)),
        blocks=facts.places,
    )


def _moment_share(request: Request, facts: Facts, own: Settings) -> float:
    """Return the share of μ² for the second moment: none if a summary has it."""
    if request.summary is None:
        return own.moment_share or usual_moment_share(facts)
    if own.moment_share:
        raise ValueError(
            f"moment_share = {own.moment_share} has no effect with summary {request.summary}; drop one of them"
        )
    return 0.0


def _evaluation_share(request: Request, facts: Facts, own: Settings) -> float:
    """Return the share of μ² for the table of scores; raise ValueError if none is left for the steps."""
    return share_for_scores(own.evaluation_share, facts, _moment_share(request, facts, own))


def share_for_scores(share: float | None, facts: Facts, moments: float) -> float:
    """Return the share of μ² for the table of scores, where moments have that share; raise ValueError as above."""
    rest = MOST_SHARED - moments
    if share is None:
        return min(usual_evaluation_share(facts), rest / 2)
    if share and not facts.is_classifier:
        raise ValueError(f"evaluation_share = {share} is for classes, and the label is a number; leave it out")
    if share > rest:
        raise ValueError(
            f"evaluation_share = {share} is above {rest:g}, what moment_share and the steps leave; reduce one of them"
        )
    return share


def _residual_share(signal: float, request: Request, facts: Facts, own: Settings) -> float:
    """Return the share of μ² for residuals: for numbers, where a signal is left after it and no clip is given."""
    if signal < RESIDUAL_SIGNAL or not has_residuals(facts, own.clip, own.passes):
        return 0.0
    return min(RESIDUAL_SHARE, (MOST_SHARED - _moment_share(request, facts, own)) / 2)


def _label_share(request: Request, facts: Facts, own: Settings) -> float:
    """Return the share of μ² for where labels are: of numbers, if no clip is given and rows have a known constant."""
    has_constant = facts.intercept and facts.reach >= 2 and request.projection is None
    return LABEL_SHARE if has_constant and not facts.is_classifier and own.clip is None else 0.0


def _ridge(facts: Facts, usual: float) -> float:
    """Return κ from that of one model."""
    return usual * RIDGE_OF_SEVERAL if facts.outputs > 1 else usual


def has_residuals(facts: Facts, clip: float | None, passes: int | None) -> bool:
    """Return whether a descent with this clip and number of passes, if they are given, has a table of residuals."""
    return clip is None and not facts.is_classifier and (passes is None or passes >= LEAST_PASSES)


def first_passes(passes: int) -> int:
    """Return how many of the passes come before the table of residuals."""
    return round(0.45 * passes)


def step_given(size: float) -> float:
    """Return the step size that was given: no model of T steps is beyond all floats, or below the normal ones."""
    between("step_size", settings.positive_step(size), 1 / LARGEST, LARGEST)
    return size


def objective_of(request: Request, facts: Facts) -> Linear | Softmax:
    """Return the objective: one model, K by softmax, or K of Huber SVM against the rest with one clip."""
    loss = settings.loss_of(request, facts)
    if facts.outputs == 1 or loss.name == HuberSvm.name:
        return Linear(loss, facts.dimension, facts.outputs)
    remedy = "leave it out, or choose loss huber_svm"
    settings.refuse_given(
        request, "positive_weight", of="softmax, which learns several classes together,", remedy=remedy
    )
    return Softmax(facts.dimension, facts.outputs)


@dataclass(frozen=True)
class PreconditionedPlan(NoisyWhileTraining):
    """The plan of a privately preconditioned descent, whose release says how noisy each coefficient is."""

    method: "PreconditionedDescent"

    @property
    def run(self) -> Callable[..., Released]:
        """The method's `released`, which packs the rows and trains."""
        return self.method.released

    @property
    def layout(self) -> Layout:
        """All rows in one slice, in places if the method reads them so."""
        blocks = self.method.blocks
        return super().layout if blocks is None else replace(super().layout, dimension=blocks.places, in_places=True)


@dataclass(frozen=True)
class PreconditionedDescent:
    """The release as it is planned: public facts only."""

    objective: Linear | Softmax
    facts: Facts
    multiplier: float  # z = 1/μ of the whole run
    moment_share: float  # share of μ² for the second moment, 0 if a summary has it
    evaluation_share: float  # share of μ² for the table of scores
    residual_share: float  # share of μ² for residuals of numbers; each of the steps has an equal part of the rest
    passes: int  # T
    clip: float  # c: gradients in x̃ are clipped to C = c·√d_eff
    step_size: float  # η, in x̃
    radius: float  # the released model is projected onto ‖w‖ ≤ radius; infinity: it is not
    spared: ClassVar[float] = 1.0  # a clip for the second descent of numbers between this part of c and c is left at c
    blocks: RowBlocks | None = None  # of rows in places
    label_share: float = 0.0  # share of μ² for where the labels of numbers are, 0 if they are not looked for
    momentum: float = MOMENTUM
    reserved: float = 0.0  # share of μ² for the other descents of a tuning, and for the choice among them

    @property
    def moment_multiplier(self) -> float:
        """σ_A/√2 = 1/μ_A, rounded up."""
        return self.multiplier / math.sqrt(self.moment_share) * ROOM

    @property
    def step_multiplier(self) -> float:
        """σ_g/2C = 1/μ_g, rounded up."""
        return self.multiplier * math.sqrt(self.passes / self.steps_share) * ROOM

    @property
    def steps_share(self) -> float:
        """The share of μ² for all steps together."""
        others = self.evaluation_share + self.residual_share + self.label_share + self.reserved
        return 1 - self.moment_share - others

    @property
    def averaged(self) -> int:
        """How many of the iterates, the last ones, make up the model."""
        return last_half(self.passes - first_passes(self.passes) if self.residual_share else self.passes)

    def described(self) -> dict[str, Any]:
        """Return what `explain` shows of it."""
        return {
            "sampling": "all rows",
            "sampling_rate": 1.0,
            "steps": self.passes,
            "expected_passes": self._all_passes,
            "optimiser": "preconditioned gradient descent",
            "parameters": self.objective.parameters,
            **self._shares_before(),
            "evaluation_share": self.evaluation_share,
            **({"residual_share": self.residual_share} if self.residual_share else {}),
            "clip": self.clip,
            "step_size": self.step_size,
            "momentum": self.momentum,
            "averaged_steps": self.averaged,
            **self._described_before(),
            "noise_multiplier": self.step_multiplier,  # of a step, in units of 2C
            **({"radius": self.radius} if self.radius < math.inf else {}),
        }

    def __call__(self, rows: Rows, progress: Progress) -> np.ndarray:
        """Return the noisy models as one vector, shape (P,)."""
        return self.released(rows, progress).models.ravel()

    def released(self, rows: Rows, progress: Progress = silent) -> Released:
        """Pack the rows; return the noisy models after a public number of passes, and what follows from the moment."""
        way = self.prepared(rows)
        pace = Pace(progress, self._passes_before, self._all_passes)
        if (residuals := self.residuals) is not None:
            return self._released_of_numbers(rows, way, residuals, pace)
        clip = self.clip * way.window.width
        descended = self._descended(rows, way, clip, self.passes, pace)
        return self.evaluated(rows, way, self._in_rows(way, *descended, clip), pace)

    def prepared(self, rows: Rows) -> Preconditioner:
        """Pack the rows, and change to the coordinates of their noisy moments."""
        rows.pack()
        way = self._preconditioner(rows)
        rows.transform(way.matrix, way.placed(self.blocks))
        return way

    def trained(self, rows: Rows, way: Preconditioner, pace: Pace) -> Released:
        """Return the noisy models of prepared rows after all passes, for another stage than `evaluated`."""
        clip = self.clip * way.window.width
        return self._in_rows(way, *self._descended(rows, way, clip, self.passes, pace), clip)

    def evaluated(self, rows: Rows, way: Preconditioner, released: Released, pace: Pace) -> Released:
        """Return models that a table of their scores calibrates and evaluates, if it has a share."""
        if (evaluation := self.evaluation) is None:
            return released
        released = evaluation.evaluated(rows, released, way.constant if self.facts.intercept else None)
        pace()
        return replace(released, models=projected(released.models, self.radius))

    def _released_of_numbers(self, rows: Rows, way: Preconditioner, residuals: ResidualRelease, pace: Pace) -> Released:
        """Return the model of two descents, the second with the clip that the first one's residuals suggest."""
        passes, usual = first_passes(self.passes), self.clip * way.window.width
        start, before = self._descended(rows, way, usual, passes, pace)
        table = residuals.table(rows, self._in_rows(way, start, before, usual).models)
        pace()
        later = self.passes - passes
        clip = table.clip(self._noise_of_prediction(way, later), usual)
        clip = usual if self.spared * usual < clip < usual else clip
        model, noise = self._descended(rows, way, clip, later, pace, start)
        released = self._in_rows(way, model, noise, clip)
        evaluation = residuals.evaluation(rows, released.models, table.bound, way.window)
        pace()
        return replace(released, figures={**released.figures, "evaluation": evaluation})

    def _descended(
        self, rows: Rows, way: Preconditioner, clip: float, passes: int, pace: Pace, start: np.ndarray | None = None
    ) -> tuple[np.ndarray, float]:
        """Return the mean of the last half of the iterates in x̃/s, (P,), and the deviation of its noise in each.

        The descent begins at `start`, by default at that of the coordinates, or at 0.
        """
        largest = clip * math.sqrt(way.effective_dimension) / way.scale
        noise, step = self._step_noise(largest), self.step_size * way.scale**2 / self.facts.rows
        averaged = last_half(passes)
        moved, total = np.zeros((2, self.objective.parameters))
        model = next(each for each in (start, way.start, moved) if each is not None)
        for done in range(passes):
            gradients = noisy_gradient_sum(rows, self.objective, model, clip=largest, noise=noise)
            moved = self.momentum * moved - step * gradients
            model = model + moved
            if done >= passes - averaged:
                total += model
            pace()
        return total / averaged, step * noise.noise_scale * accumulated_noise(passes, averaged, self.momentum)

    def _in_rows(self, way: Preconditioner, model: np.ndarray, noise: float, clip: float) -> Released:
        """Return models over packed rows, with noise of that deviation in x̃/s."""
        models = model.reshape(-1, self.facts.dimension) @ way.matrix
        if isinstance(self.objective, Softmax):  # what all have in common is only noise, and changes no probability
            models -= models.mean(axis=0)
        figures = {"effective_dimension": way.effective_dimension}
        figures["clip_norm"] = clip * math.sqrt(way.effective_dimension)
        return Released(projected(models, self.radius), figures, noise * way.matrix)

    def _noise_of_prediction(self, way: Preconditioner, passes: int) -> float:
        """Return about the deviation that noise gives a prediction, for a clip c of 1: E‖x̃‖² is about d_eff."""
        accumulated = accumulated_noise(passes, last_half(passes), self.momentum) * self.step_size
        return 2 * self.step_multiplier * way.effective_dimension * accumulated / self.facts.rows

    @property
    def residuals(self) -> ResidualRelease | None:
        """The table of residuals and the sums, half of their share each, if they have one."""
        if not self.residual_share:
            return None
        multiplier = self.multiplier * math.sqrt(2 / self.residual_share) * ROOM
        return ResidualRelease(self.facts.dimension, multiplier, self.blocks)

    @property
    def evaluation(self) -> SelfEvaluation | None:
        """The table of scores, if it has a share."""
        if not self.evaluation_share:
            return None
        linear = self.objective if isinstance(self.objective, Linear) else None
        return SelfEvaluation(
            self.facts.outputs,
            self.facts.dimension,
            softmax=linear is None,
            noise=GaussianTable(self.facts.outputs, self.multiplier / math.sqrt(self.evaluation_share) * ROOM),
            calibrates=linear is None or are_log_odds(linear.loss),
            rows_of=self.blocks,
        )

    @property
    def _all_passes(self) -> int:
        return self._passes_before + self.passes + bool(self.evaluation_share) + 2 * bool(self.residual_share)

    @property
    def _passes_before(self) -> int:
        """Passes before the first step: moment and two counts of labels, if they have shares, and a change of rows."""
        return 1 + bool(self.moment_share) + 2 * bool(self.label_share)

    def _shares_before(self) -> dict[str, float]:
        return {"moment_share": self.moment_share, **({"label_share": self.label_share} if self.label_share else {})}

    def _described_before(self) -> dict[str, Any]:
        """Return what `explain` shows of the second moment and the mechanism; of a summary's, what is known."""
        if not self.moment_share:
            known = {"ridge": _ridge(self.facts, self.facts.moment.ridge)} if self.facts.moment else {}
            return known | {"mechanism": Gaussian.name}
        ridge, noise = _ridge(self.facts, self._moment.ridge), self._moment.noise
        return {"ridge": ridge, "mechanism": Gaussian.name, "noise_scale": noise.noise_scale}

    def _preconditioner(self, rows: Rows) -> Preconditioner:
        """Return the coordinates, and where the descent begins if the labels are looked for."""
        way = self._coordinates(rows)
        if not self.label_share:
            return way
        window = where_labels_are(rows, self.facts, self.multiplier, self.label_share, self.blocks)
        return way.begun(math.sqrt(2) / self.facts.reach, window)

    def _coordinates(self, rows: Rows) -> Preconditioner:
        """Return what follows from a second moment that is released now, or that a summary has released before."""
        if not self.moment_share:
            if self.facts.moment is None:
                raise AssertionError("a request that names a summary has its second moment among its facts")
            return preconditioner_of(self.facts.moment.mean, _ridge(self.facts, self.facts.moment.ridge))
        return preconditioner_of(self._moment.released(rows), _ridge(self.facts, self._moment.ridge))

    @property
    def _moment(self) -> MomentRelease:
        return MomentRelease(self.facts.rows, self.facts.dimension, self.moment_multiplier, self.blocks)

    def _step_noise(self, clip: float) -> Gaussian:
        """Return the noise of a sum of gradients, each of norm at most `clip` (`measured_sensitivity` has the proof).

        The rows keep their places from one neighbour to the other, and BLAS computes each by its place and its own
        numbers alone: what a row's gradient errs by is not covered, as it is the same function in both worlds.
        """
        largest = SOFTMAX_LIPSCHITZ if isinstance(self.objective, Softmax) else lipschitz_of(self.objective)
        sensitivity = measured_sensitivity(clip, largest, self.facts.rows, self.facts.dimension, rows_of=self.blocks)
        return gaussian_sum(sensitivity, self.objective.parameters, multiplier=self.step_multiplier)
