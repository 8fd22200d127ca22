"""NSGD: mini-batch SGD whose step size falls with the epoch, η₀/s, over one secret permutation.

Chen, Lee & Kifer 2019, Algorithm 1, with the permutation of their §4.2. The sensitivity depends on
the record's position; the noise is calibrated to the mixture (privacy.md §3), by default to the direct
hockey-stick bound.
"""

from dbdp.algorithms import settings
from dbdp.algorithms.options import Options, Values, anything
from dbdp.algorithms.perturbed_once.output_perturbation import SHARED, Learning, PerturbedOnce, planned
from dbdp.algorithms.plan import Facts, Request
from dbdp.learning.schedules import NONE, Averaging, Restarted
from dbdp.privacy.sensitivity import REUSED

DEFAULT_STEP_SIZE = 1.0
RESTARTED: dict[str, Values] = {
    **SHARED,
    **anything("batch_size"),
    "schedule": (Restarted.name,),
    "averaging": ("none",),
    "permutation": (REUSED,),
}
REASON = "it makes restarted steps over one permutation and one shard"
OPTIONS = Options(RESTARTED, REASON)


def plan(request: Request, facts: Facts) -> PerturbedOnce:
    """Return the plan of an NSGD release.

    Raises
    ------
    ValueError
        If the request cannot be planned: the message names the value, the limit and the remedy.
    """
    return planned(request, facts, restarted_learning(request, facts, interval=0), calibration="hockey_stick")


def restarted_learning(request: Request, facts: Facts, *, interval: int) -> Learning:
    """Return the training parameters of the restarted schedule; `interval` epochs lie between restarts, 0 for none."""
    loss = settings.loss_of(request, facts)
    regularisation = settings.regularisation_of(request, settings.DEFAULT_REGULARISATION)
    batch_size = settings.batch_size_of(request, facts.rows)
    batches = -(-facts.rows // batch_size)
    largest = 1 / (loss.smoothness + regularisation)
    step = min(DEFAULT_STEP_SIZE, largest) if request.step_size is None else settings.positive_step(request.step_size)
    return Learning(
        loss=loss,
        schedule=Restarted(step, batches, interval),
        averaging=Averaging(1, interval * batches) if interval else NONE,
        averaging_name="restarts" if interval else "none",
        permutation=REUSED,
        batch_size=batch_size,
        epochs=request.epochs,
        regularisation=regularisation,
        radius=settings.radius_of(request, loss),
        shard_rows=(facts.rows,),
    )
