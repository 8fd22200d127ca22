"""DP-BLSGD-AC: DP-BLSGD that clips more as gradients shrink (Chen & Lee 2020, their §4.4).

Whenever the budget of the gradients grows, at most once in a step, gradients and losses are clipped to 1 - ζ
of what they were: the noise falls with them. It follows from released directions alone: post-processing.
"""

from dataclasses import dataclass

from dbdp import checks
from dbdp.algorithms import dp_blsgd, settings
from dbdp.algorithms.plan import Facts, Request, WhiteBox


@dataclass(frozen=True)
class Adaptive(dp_blsgd.Sampled):
    """The settings of DP-BLSGD, and `clip_decay`: ζ."""

    clip_decay: float = 0.05

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        checks.between("clip_decay", self.clip_decay, 0, 0.99)


def plan(request: Request, facts: Facts) -> WhiteBox:
    """Return the plan of a DP-BLSGD-AC release; see `dp_blsgd.plan`.

    Raises
    ------
    ValueError
        If the request cannot be planned: the message names the value, the limit and the remedy.
    """
    knobs = settings.knobs(request, Adaptive)
    return dp_blsgd.planned(request, facts, knobs, clip_decay=knobs.clip_decay)
