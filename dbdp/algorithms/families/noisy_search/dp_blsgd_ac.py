"""DP-BLSGD-AC: DP-BLSGD that clips more as gradients shrink (Chen & Lee 2020, their §4.4).

Whenever the budget of the gradients grows, at most once in a step, the clips of gradients and losses are multiplied
by 1 - ζ, and the noise falls with them. It follows from released directions alone: post-processing.
"""

from dataclasses import dataclass, replace

from dbdp.algorithms.declared_options import number, own_settings
from dbdp.algorithms.families.noisy_search import dp_blsgd
from dbdp.algorithms.plan import Facts, NoisyWhileTraining, Request


@dataclass(frozen=True)
class Adaptive(dp_blsgd.Sampled):
    """The settings of DP-BLSGD, and one more."""

    clip_decay: float = number(0.05, 0, 0.99, "ζ, share by which clips shrink when the budget of the gradients grows")


OPTIONS = replace(dp_blsgd.OPTIONS, own_settings=Adaptive)


def dp_blsgd_ac_plan(request: Request, facts: Facts) -> NoisyWhileTraining:
    """Return the plan of a DP-BLSGD-AC release; see `dp_blsgd.dp_blsgd_plan`."""
    own = own_settings(request, Adaptive)
    return dp_blsgd.planned(request, facts, own, clip_decay=own.clip_decay)
