"""The settings of DP-AGD, and how they differ from the published ones."""

from dataclasses import dataclass

from dbdp.algorithms.declared_options import OwnSettings, number, word
from dbdp.learning.losses import LARGEST, SMALLEST

EXPONENTIAL, LAPLACE = "exponential", "laplace"
SELECTIONS = (EXPONENTIAL, LAPLACE)
HALVES, EQUAL = "halves", "equal"
STEP_SIZES = (HALVES, EQUAL)
EVEN, PUBLISHED = "even", "published"
SHARES = (EVEN, PUBLISHED)
MOST_CANDIDATES = 1000
MOST_SPLITS = 10_000


@dataclass(frozen=True)
class AgdSettings(OwnSettings):
    """The settings of DP-AGD.

    The paper's (§5, §6) are splits 60, 20 equal steps up to 2, no momentum, and the last model: docs/algorithms.md
    compares them. Two are not in it. Its conversion of ε/(2·splits) assigns to the first measurement 1/(2 ln(1.25/δ)),
    that is 1/37 at δ = 10⁻⁸, of the cost of the selection that tests it: here they cost the same. It specifies no γ,
    and observes no difference above 0.2 (Figure 1b; 0.1 in the authors' program): 0.3 is that of DP-BLSGD.
    """

    splits: int = number(50, 1, MOST_SPLITS, "a selection is worth ε/(2·splits) by Laplace noise; fewer are less noisy")
    shares: str = word(
        SHARES, "even: a first measurement costs as much as a selection; published: 1/(2 ln(1.25/δ)) of that"
    )
    growth: float = number(0.3, 1e-2, 1e2, "γ: after a selection of 0, ρ of the measurements grows by this share")
    loss_clip: float = number(
        3.0,
        SMALLEST,
        LARGEST,
        "C_obj: a row's loss is clipped to this for each model; to this · log₁₀ K for a network of K > 10 classes",
    )
    step_candidates: int = number(6, 2, MOST_CANDIDATES, "m: step sizes from 0 to the largest, both included")
    step_sizes: str = word(STEP_SIZES, "halves: each step size but 0 is half of the next one; equal: equally spaced")
    largest_step: float = number(3.0, SMALLEST, LARGEST, "α_max at the start")
    step_window: int = number(10, 1, MOST_SPLITS, "τ: after each τ iterations α_max changes")
    step_growth: float = number(
        0.1, 0, 10, "η: α_max is then (1 + η) times the largest step of them, and not above the first one"
    )
    momentum: float = number(
        0.7, 0, 0.99, "share of the last direction taken that is added to a gradient; half of it after each 0"
    )
    mean_weight: float = number(
        0.85, 0, 0.999, "weight in the mean that is released of each selected model, relative to the next one"
    )
    selection: str = word(SELECTIONS, "exponential, or laplace as published: twice the noise")
