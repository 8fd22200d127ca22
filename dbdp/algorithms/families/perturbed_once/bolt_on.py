"""Bolt-on: permuted mini-batch SGD, noise added once at the end (Wu et al. 2017, Algorithms 1 and 2).

As privacy.md §1 corrects it: the sensitivity uses the Lipschitz constant without the regulariser, is not
divided by the batch size if steps shrink, counts every pass, and is that of the mean if iterates
are averaged; noise is exact (§2). Shards are trained in parallel and averaged (§1.6).
"""

from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options, anything
from dbdp.algorithms.families.perturbed_once.shared import SHARED, Learning, PerturbedOnce, planned
from dbdp.algorithms.plan import Facts, Request
from dbdp.learning.schedules import Constant, InverseTime, Schedule
from dbdp.privacy.sensitivity import FRESH, REUSED

OPTIONS = Options(
    {
        **SHARED,
        **anything("batch_size", "exponent", "shards"),
        "schedule": settings.SCHEDULES,
        "averaging": settings.AVERAGING,
        "permutation": (REUSED, FRESH),
        "shard_averaging": settings.SHARD_AVERAGING,
    },
)


def bolt_on_plan(request: Request, facts: Facts) -> PerturbedOnce:
    """Return the plan of a Bolt-on release; see `settings.travel_of` for the default of λ."""
    name, loss = request.schedule or InverseTime.name, settings.loss_of(request, facts)
    travel = settings.travel_of(request, facts, loss)
    regularisation = settings.regularisation_of(request, 1 / travel if name == InverseTime.name else 0.0)
    schedule = settings.schedule_of(request, name, facts, loss, regularisation)
    shards = settings.shard_rows(facts.rows, request.shards)
    batch_size = settings.batch_size_of(request, shards[-1], _batch_size(request, schedule, shards[-1], travel))
    averaging, permutation = request.averaging or "none", request.permutation or REUSED
    shard_averaging = _shard_averaging(request, averaging, permutation)
    return planned(
        request,
        facts,
        Learning(
            loss=loss,
            schedule=schedule,
            averaging=settings.averaging_of(averaging, -(-shards[0] // batch_size), settings.epochs_of(request)),
            averaging_name=averaging,
            permutation=permutation,
            batch_size=batch_size,
            epochs=settings.epochs_of(request),
            regularisation=regularisation,
            radius=settings.radius_of(request, loss),
            shard_rows=shards,
            shard_averaging=shard_averaging,
        ),
    )


def _batch_size(request: Request, schedule: Schedule, rows: int, travel: float) -> float:
    """Return the default of b: as many updates as add up to `travel`, if all were as long as the first; at least 50.

    With λ = 1/τ the steps of `inverse_time` begin to fall when they add up to τ. The other two schedules have 50 rows,
    or as many as make 10⁷ updates.
    """
    least = settings.least_batch_size(rows, settings.epochs_of(request))
    if not isinstance(schedule, InverseTime | Constant):
        return least
    first = float(schedule.step_sizes(1, 1)[0])
    return max(least, rows * settings.epochs_of(request) * first / travel)


def _shard_averaging(request: Request, averaging: str, permutation: str) -> str | None:
    if request.shards == 1:
        if request.shard_averaging is not None:
            raise ValueError("shard_averaging needs shards > 1; leave it out, or give shards")
        return None
    if averaging != "none" or permutation != "reused":
        raise ValueError(
            f"shards = {request.shards} with averaging {averaging!r} and permutation {permutation!r}: shards average "
            "last iterates over one permutation; leave both out, or choose shards = 1"
        )
    return request.shard_averaging or settings.SHARD_AVERAGING[0]
