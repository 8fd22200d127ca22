"""Majority: predict the most frequent class, as a baseline for every classifier (Lee & Kifer 2018, §6).

The paper counts without privacy; here the exponential mechanism selects the class from the counts. The model
is an intercept alone: ±1 for two classes, else +1 for the selected class and -1 for the others.
"""

from dataclasses import dataclass

import numpy as np

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Progress, Rows
from dbdp.privacy.selection import ExponentialMechanism

OPTIONS = Options(
    {"mechanism": ("exponential",), "averaging": ("none",)},
    least_signal=0.0,
)


def majority_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a majority release: one selection, exactly ε-DP for any δ."""
    _check(request, facts)
    selection = ExponentialMechanism(request.epsilon)
    details = {
        "sampling_rate": 1.0,
        "steps": 1,
        "expected_passes": 1,
        "mechanism": "exponential",
        "selection_epsilon": selection.epsilon,
        "noise_scale": 2 / selection.epsilon,  # of Gumbel noise on the counts, which is equivalent
    }
    return NoisyWhileTraining(request, facts, selection.guarantee, details, Counting(selection, facts))


def _check(request: Request, facts: Facts) -> None:
    """Raise ValueError for a label without classes, or a dataset without an intercept."""
    if not facts.is_classifier:
        raise ValueError(
            "algorithm 'majority' predicts a class, and this label is a number; choose one that learns numbers, "
            "such as bolt_on with loss huber_regression"
        )
    if not facts.intercept:
        raise ValueError(
            "algorithm 'majority' sets only the intercept, but this dataset has no intercept; register it with "
            "intercept => true"
        )
    settings.loss_of(request, facts)  # checked because the receipt shows it


@dataclass(frozen=True)
class Counting:
    """Count the labels, select a class, and return it as models.

    Proof. Replacing one record takes 1 from one count at most and adds 1 to one at most: every count moves by at
    most 1, and the selection's proof applies (privacy.md §6). Rows without a declared label are not counted.
    With equal counts all classes are equally likely.
    """

    selection: ExponentialMechanism
    facts: Facts

    def __call__(self, rows: Rows, progress: Progress) -> np.ndarray:
        """Return the models, concatenated."""
        rows.pack()
        counts = rows.label_counts(self.facts.outputs)
        chosen = self.selection.choose([-int(count) for count in counts])
        progress("count", 1, 1)
        models = np.zeros(self.facts.shape)
        models[:, -1] = -1.0
        if self.facts.outputs > 1:
            models[chosen, -1] = 1.0
        elif chosen == 1:
            models[0, -1] = 1.0
        return models.ravel()
