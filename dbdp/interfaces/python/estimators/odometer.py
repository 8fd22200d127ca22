"""What fits on a caller's rows spend together: a sum for this process, and a limit that the caller sets.

A fit on a registered dataset is charged to its budget in the database. A fit on rows at hand is charged to nothing
that outlives it, so its guarantee is counted here.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Any

from dbdp.interfaces.python.estimators.inputs import warn
from dbdp.privacy.accounting.budget import Budget, largest_epsilon
from dbdp.privacy.accounting.events import Release

_SHOWN = 3  # columns that a warning names


class PrivacySpendingWarning(UserWarning):
    """Warns that several fits on rows with the same columns add up, and shows the sum."""


@dataclass
class _Sum:
    """Fits on rows with the same columns: their number, and the sums of their ε and δ as exact decimals."""

    fits: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)

    def add(self, release: Release) -> None:
        self.fits += 1
        self.epsilon += Fraction(repr(float(release.epsilon)))
        self.delta += Fraction(repr(float(release.delta)))


_lock = Lock()
_sums: dict[tuple[str, ...], _Sum] = {}
_limits: list["SpendingLimit"] = []


class SpendingLimit:
    """A limit on the total spending of fits on in-memory data within a block; a context manager.

    A fit that would exceed it is refused before it reads a row. Fits in all threads of this process count; an
    estimator that is sent to another process, as by `n_jobs=2` of scikit-learn, refuses to fit there. The same object
    may limit several blocks, one after the other: its sum goes on.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of all fits together.
    mode : str, optional
        How they add up, as in `register_dataset`: "renyi" by default, "basic" if delta is 0.

    Raises
    ------
    ValueError
        If epsilon or delta is out of range, or too small for the mode.

    Notes
    -----
    Proof. Let all rows be one table, of which each fit reads rows at positions that do not depend on any value. For
    neighbours that differ in one row each fit reads neighbours or the same rows, so that it costs at most its charge.
    Charges are fixed before the fit and their sum stays within the limit surely, so that the theorem of the
    budget's mode holds, also where earlier models decide on later fits (privacy.md §13).

    `KFold` splits by position. `StratifiedKFold`, the default for classifiers, splits by the labels, and one label may
    move other rows: pass `cv=KFold(5)`. Exact scores of held-out rows, and a choice by them, are covered by no ε.
    """

    def __init__(self, *, epsilon: float, delta: float = 0.0, mode: str | None = None) -> None:
        self._budget = Budget.of(epsilon=epsilon, delta=delta, mode=mode or ("renyi" if delta else "basic"))
        self._charge = self._leak = self._fits = 0
        self._process = os.getpid()

    def __enter__(self) -> "SpendingLimit":
        with _lock:
            if self in _limits:
                raise ValueError("this SpendingLimit is already active; exit its `with` block first or create another")
            _limits.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _limits.remove(self)

    def __repr__(self) -> str:
        return f"<SpendingLimit: {self.fits} fits, {self.share:.1%} of ε = {self._budget.epsilon:g}>"

    @property
    def fits(self) -> int:
        """The number of fits that were charged."""
        return self._fits

    @property
    def share(self) -> float:
        """The spent fraction of the limit, from 0 to 1."""
        budget = self._budget
        charged = self._charge / budget.charge_limit
        return max(charged, self._leak / budget.leak_limit) if budget.leak_limit else charged

    def epsilon_left(self, delta: float = 0.0) -> float:
        """Return the largest ε of one more fit.

        Parameters
        ----------
        delta : float
            δ of that fit.

        Returns
        -------
        float
            Its ε, for an algorithm that adds its noise at the end, or 0 if the limit is spent.
        """
        budget = self._budget
        return largest_epsilon(budget, budget.charge_limit - self._charge, budget.leak_limit - self._leak, delta)

    def _check(self, release: Release) -> None:
        """Raise ValueError if a release does not fit, or another process set the limit."""
        check_process(self._process)
        if release.delta and not self._budget.delta:
            raise ValueError(
                f"a fit at delta = {release.delta:g} does not fit a SpendingLimit without a delta; pass "
                f"SpendingLimit(epsilon={self._budget.epsilon:g}, delta={min(10 * release.delta, 0.5):g}), or fit at "
                "delta=0"
            )
        charge, leak = self._budget.cost(release)
        if self._charge + charge > self._budget.charge_limit or self._leak + leak > self._budget.leak_limit:
            raise ValueError(
                f"a fit at epsilon = {release.epsilon:g}, delta = {release.delta:g} would exceed the SpendingLimit of "
                f"epsilon = {self._budget.epsilon:g}, delta = {self._budget.delta:g}, of which {self.fits} fits have "
                f"spent {self.share:.1%}; the largest epsilon that still fits is {self.epsilon_left(release.delta):.4g}"
            )

    def _spend(self, release: Release) -> None:
        charge, leak = self._budget.cost(release)
        self._charge, self._leak, self._fits = self._charge + charge, self._leak + leak, self._fits + 1


def spending() -> list[dict[str, Any]]:
    """Return the spending of this process's fits on in-memory data, for each set of columns.

    Returns
    -------
    list of dict
        `columns`, `fits` (their number), and `epsilon` and `delta`, the sums of the fits' own: a guarantee for all of
        them together. A `SpendingLimit` composes them more tightly.
    """
    with _lock:
        return [
            {"columns": list(columns), "fits": each.fits, "epsilon": float(each.epsilon), "delta": float(each.delta)}
            for columns, each in _sums.items()
        ]


def charge(columns: Sequence[str], release: Release) -> None:
    """Charge a fit on rows with these columns, before it reads them.

    Raises
    ------
    ValueError
        If a limit in force does not allow it, before any charge.

    Warns
    -----
    PrivacySpendingWarning
        At the second fit, the fourth, the eighth, … on rows with the same columns, where no limit is in force.
    """
    with _lock:
        for limit in _limits:
            limit._check(release)
        for limit in _limits:
            limit._spend(release)
        total, is_limited = _sums.setdefault(tuple(columns), _Sum()), bool(_limits)
        total.add(release)
        fits, epsilon, delta = total.fits, float(total.epsilon), float(total.delta)
    if fits > 1 and not fits & (fits - 1) and not is_limited:
        named = ", ".join(columns[:_SHOWN]) + (", …" if len(columns) > _SHOWN else "")
        warn(
            f"{fits} fits of this process on rows with the columns {named} spend epsilon = {epsilon:g}, delta = "
            f"{delta:g} together, as far as they are the same rows; dbdp.spending() has the sum, dbdp.SpendingLimit "
            "sets a limit, and Database.tune chooses among settings for one charge",
            PrivacySpendingWarning,
        )


def limiting_process() -> int | None:
    """Return the number of this process if a limit is in force in it, else None."""
    return os.getpid() if _limits else None


def check_process(process: int | None) -> None:
    """Raise ValueError if a limit is in force in another process, which does not count the fits of this one."""
    if process not in (None, os.getpid()):
        raise ValueError(
            "this estimator comes from a process with a SpendingLimit, which counts only the fits of that process; "
            "use n_jobs=1, or joblib.parallel_config(backend='threading'), or make the estimator here"
        )
