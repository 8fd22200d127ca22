"""Output-perturbation gradient descent: full-batch steps, noise added once at the end.

Zhang, Zheng, Mou & Wang 2017, Algorithm 1. Every epoch is one update with the sum of all gradients,
which the aggregate computes over the blocks. By privacy.md §4, Δ = 2LTη/n for convex losses, and
(2L/nμ)(1 - (1 - ημ)^T) if they are strongly convex and η ≤ 2/(β + μ), with L without the regulariser (the
paper's 3LTη/n and 5L(μ + β)/(nμβ) are sound, and 1.5 to 17 times too large).
"""

import math

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import ALL_ROWS, Options
from dbdp.algorithms.families.perturbed_once.shared import SHARED, Learning, PerturbedOnce, planned
from dbdp.algorithms.plan import Facts, Request
from dbdp.learning.schedules import NONE, Constant
from dbdp.privacy.sensitivity import REUSED

MOST_EPOCHS = 200  # of the default
OPTIONS = Options(
    {
        **SHARED,
        "batch_size": (ALL_ROWS,),
        "schedule": (Constant.name,),
        "averaging": ("none",),
        "permutation": (REUSED,),
    },
)


def output_perturbation_gd_plan(request: Request, facts: Facts) -> PerturbedOnce:
    """Return the plan of a release by output-perturbation gradient descent; see `settings.travel_of` for its steps."""
    loss = settings.loss_of(request, facts)
    regularisation = settings.regularisation_of(request, 0.0)
    travel = settings.travel_of(request, facts, loss)
    largest = 2 / (loss.smoothness + 2 * regularisation)  # at most 2/(β + λ), β with λ
    wanted = largest if request.step_size is None else settings.positive_step(request.step_size)
    epochs = settings.epochs_of(request, math.ceil(min(travel / wanted, MOST_EPOCHS)))
    step = min(wanted, travel / epochs) if request.step_size is None else wanted
    learning = Learning(
        loss=loss,
        schedule=Constant(step),
        averaging=NONE,
        averaging_name="none",
        permutation=REUSED,
        batch_size=facts.rows,
        epochs=epochs,
        regularisation=regularisation,
        radius=settings.radius_of(request, loss),
        shard_rows=(facts.rows,),
    )
    return planned(request, facts, learning)
