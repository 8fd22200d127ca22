"""Random tests with a computed false-alarm rate of at most ALARM."""

import math
from collections.abc import Callable
from itertools import count

ALARM = 1e-9


def more_runs(missing: float) -> int:
    """Return an odd number of runs of which more than half miss with a probability of at most ALARM / missing."""
    return next(runs for runs in count(1, 2) if missing * beyond_half(runs, missing) <= ALARM)


def beyond_half(runs: int, missing: float) -> float:
    """Return P(more than half of so many independent runs miss)."""
    misses = range(runs // 2 + 1, runs + 1)
    return sum(math.comb(runs, many) * missing**many * (1 - missing) ** (runs - many) for many in misses)


def usually(claim: Callable[[], bool], missing: float = 0.01) -> bool:
    """Return whether a claim holds that an independent run misses with a probability of at most `missing`.

    One run that meets it suffices; if it misses, a majority of `more_runs` further runs must meet it. A false alarm is
    a first miss and then a majority of misses: its probability is at most ALARM. A claim that is false more often than
    not is noticed nearly as often as by one run.
    """
    if claim():
        return True
    runs = more_runs(missing)
    return sum(claim() for _ in range(runs)) > runs / 2


def sometimes(claim: Callable[[], bool], missing: float = 0.1) -> bool:
    """Return whether one of several runs meets a claim; all of them miss with a probability of at most ALARM."""
    return any(claim() for _ in range(math.ceil(math.log(ALARM) / math.log(missing) - 1e-9)))
