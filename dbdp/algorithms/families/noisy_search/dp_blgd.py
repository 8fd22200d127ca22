"""DP-BLGD: gradient descent over all rows with a noisy line search for each step (Chen & Lee 2020, their §5.3).

privacy.md §8, §9. The searches are those of DP-BLSGD, on all rows. Budgets grow as in DP-AGD (Lee & Kifer 2018):
after a failure only the difference to a larger budget is charged, and both noisy gradients are averaged. Costs
are zCDP, in a filter: ρ = 1/2z² for a Gaussian sum of noise multiplier z, ε²/2 for a search.
"""

import math
from collections.abc import Iterator
from itertools import repeat

import numpy as np

from dbdp.algorithms.declared_options import ALL_ROWS, Options, own_settings
from dbdp.algorithms.families.noisy_search.line_search import (
    REMEDIES,
    SHARED,
    Accounting,
    Estimate,
    Run,
    Searching,
    check_delta,
    descent,
    noisy_plan,
)
from dbdp.algorithms.noisy_sums import multiplier_of_rho, replaced_sensitivity
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request
from dbdp.algorithms.rows import Rows
from dbdp.privacy.accounting.composition import rho_of
from dbdp.privacy.accounting.events import Release, ZCDpEvent

OPTIONS = Options({**SHARED, "batch_size": (ALL_ROWS,)}, REMEDIES, Searching)


def dp_blgd_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a DP-BLGD release.

    There may be more searches than planned steps: after a failure only part of a gradient's cost is charged.
    """
    check_delta(request)
    own = own_settings(request, Searching)
    accounting = accounting_of(request, own)
    rarest = accounting.search(accounting.epsilon) + accounting.gradient(accounting.multiplier) * min(1, own.growth)
    run = descent(
        request,
        facts,
        own,
        accounting,
        adaptation=lambda: AveragingAdaptation(own.growth),
        batches=all_rows,
        packed=facts.rows,
        size=float(facts.rows),
        searches=max(1, math.floor(accounting.limit / rarest)),
    )
    guarantee = Release(ZCDpEvent(accounting.limit), request.epsilon, request.delta)
    return noisy_plan(request, facts, guarantee, run, {"sampling": "all"})


def accounting_of(request: Request, own: Searching) -> Accounting:
    """Return the zCDP costs of accesses, and the first budgets, which would last for the planned steps.

    Proof that a run is ρ-zCDP (§13). Given the earlier outputs, a Gaussian sum of standard deviation zΔ* is
    1/2z²-zCDP, and a pure ε search ε²/2-zCDP. The filter limits their sum to ρ, surely. ∎
    """
    limit = rho_of(request.epsilon, request.delta)
    step, share = limit / own.planned_steps * (1 - 1e-9), own.search_share
    return Accounting(
        limit=limit,
        gradient=lambda multiplier: 0.5 / multiplier**2,
        search=lambda epsilon: epsilon**2 / 2,
        sensitivity=replaced_sensitivity,
        multiplier=multiplier_of_rho(step * (1 - share)),
        epsilon=math.sqrt(2 * step * share),
    )


def all_rows(rows: Rows) -> Iterator[None]:
    """Pack all rows once; yield None, which stands for all rows, for every access."""
    rows.pack()
    yield from repeat(None)


class AveragingAdaptation:
    """Adapt by Algorithm 2 of DP-AGD: after a failed search enlarge the gradient's budget ρ to (1 + ξ)ρ for ξρ.

    The next gradients have the larger budget from the start, if the rest pays for one of them.
    """

    def __init__(self, growth: float) -> None:
        """Store ξ."""
        self._growth = growth

    def multiplier(self, run: Run) -> float:
        """Return the noise multiplier of a gradient of ξρ."""
        return run.multiplier / math.sqrt(self._growth)

    def failed(self, run: Run, first: Estimate, second: Estimate) -> None:
        """Enlarge the budget of gradients."""
        multiplier = run.multiplier / math.sqrt(1 + self._growth)
        if run.affords(multiplier):
            run.multiplier = multiplier

    def stepped(self, direction: np.ndarray) -> None:
        """Do nothing."""
