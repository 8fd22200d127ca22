"""NSGD: mini-batch SGD whose step size falls with the epoch, η₀/s, over one secret permutation.

Chen, Lee & Kifer 2019, Algorithm 1, with the permutation of their §4.2. The sensitivity depends on
the record's position; the noise is calibrated to the mixture (privacy.md §3), by default to the direct
hockey-stick bound.
"""

import numpy as np

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options, Values, anything
from dbdp.algorithms.families.perturbed_once.shared import SHARED, Learning, PerturbedOnce, planned
from dbdp.algorithms.plan import Facts, Request
from dbdp.learning.schedules import NONE, Averaging, Restarted
from dbdp.privacy.sensitivity import REUSED

RESTARTED: dict[str, Values] = {
    **SHARED,
    **anything("batch_size"),
    "schedule": (Restarted.name,),
    "averaging": ("none",),
    "permutation": (REUSED,),
}
OPTIONS = Options(RESTARTED)


def nsgd_plan(request: Request, facts: Facts) -> PerturbedOnce:
    """Return the plan of an NSGD release."""
    return planned(request, facts, restarted_learning(request, facts, interval=0), calibration="hockey_stick")


def restarted_learning(request: Request, facts: Facts, *, interval: int) -> Learning:
    """Return the training parameters of the restarted schedule; `interval` epochs lie between restarts, 0 for none."""
    loss = settings.loss_of(request, facts)
    travel, epochs = settings.travel_of(request, facts, loss), settings.epochs_of(request)
    regularisation = settings.regularisation_of(request, 1 / travel)
    largest = 1 / (loss.smoothness + regularisation)
    step = largest if request.step_size is None else settings.positive_step(request.step_size)
    since = np.arange(epochs) % interval if interval else np.arange(epochs)
    updates = travel / (step * float((1.0 / (since + 1)).sum()))  # of an epoch, so that all steps add up to `travel`
    default = max(settings.least_batch_size(facts.rows, epochs), facts.rows / updates)
    batch_size = settings.batch_size_of(request, facts.rows, default)
    batches = -(-facts.rows // batch_size)
    return Learning(
        loss=loss,
        schedule=Restarted(step, batches, interval),
        averaging=Averaging(1, interval * batches) if interval else NONE,
        averaging_name="restarts" if interval else "none",
        permutation=REUSED,
        batch_size=batch_size,
        epochs=epochs,
        regularisation=regularisation,
        radius=settings.radius_of(request, loss),
        shard_rows=(facts.rows,),
    )
