"""Bars of budgets: the part that each role spent, and what is left."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from dbdp.sessions.session import Row

UNITS = {"renyi": "Rényi divergence", "basic": "ε", "gaussian": "μ²", "zcdp": "ρ"}  # of charges, by mode
_COLOURS = 6  # roles with a colour of their own


@dataclass(frozen=True)
class Part:
    """A part of a bar."""

    label: str
    kind: str  # class in the style sheet
    charge: float  # in the unit of the budget's mode
    share: float  # the charge divided by the limit
    start: float  # in hundredths of the bar
    width: float  # in hundredths of the bar
    releases: int | None  # number of charges; None if it is unknown or does not apply


@dataclass(frozen=True)
class Rest:
    """The rest of a limit, before and after a planned training."""

    limit: Decimal
    now: Decimal  # what is left before the training
    needed: Decimal  # what the training would use

    @classmethod
    def of(cls, limit: float | Decimal, spent: float | Decimal | None, needed: float | Decimal = 0.0) -> "Rest":
        """Return the rest of a limit; 0 is left if the spending is unknown."""
        exact = _exactly(limit)
        return cls(exact, Decimal(0) if spent is None else exact - _exactly(spent), _exactly(needed))

    @property
    def after(self) -> Decimal:
        """What would be left after the training."""
        return self.now - self.needed

    @property
    def share(self) -> float:
        """What would be left, as a share of the limit."""
        return self._share(self.after)

    @property
    def share_now(self) -> float:
        """What is left before the training, as a share of the limit."""
        return self._share(self.now)

    @property
    def share_needed(self) -> float:
        """What the training would use, as a share of the limit."""
        return self._share(self.needed)

    def _share(self, part: Decimal) -> float:
        return float(max(part, Decimal(0)) / self.limit) if self.limit else 0.0

    @property
    def is_enough(self) -> bool:
        """Whether the training is within the limit."""
        return self.after >= 0


def _exactly(value: float | Decimal) -> Decimal:
    """Return the decimal number that a float is written as, so that differences near a limit have the right sign."""
    return Decimal(str(value))


def parts(limit: float, spent: Sequence[tuple[str, str, float, int | None]]) -> list[Part]:
    """Return the parts of a bar; the last one is what is left.

    A part is spent as label, kind, charge and number of releases; parts without a charge are left out.
    """
    shown = [each for each in spent if each[2] > 0]
    total = sum(charge for _, _, charge, _ in shown)
    length = max(limit, total)
    bar: list[Part] = []
    for label, kind, charge, releases in [*shown, ("left", "left", max(0.0, limit - total), None)]:
        start = bar[-1].start + bar[-1].width if bar else 0.0
        bar.append(Part(label, kind, charge, charge / limit, start, 100 * charge / length, releases))
    return bar


def budget_bar(budget: Row, spending: Sequence[Row], planned: float = 0.0) -> list[Part]:
    """Return the bar of a dataset's budget."""
    if budget["charged"] is None:
        return []
    first, rest = spending[:_COLOURS], spending[_COLOURS:]
    spent = [(row["role"], f"role-{n}", float(row["charge"]), row["releases"]) for n, row in enumerate(first, start=1)]
    if rest:
        of_rest = float(sum(row["charge"] for row in rest)), sum(row["releases"] for row in rest)
        spent.append((f"{len(rest)} other roles", "others", *of_rest))
    unseen = budget["recorded"] - sum(row["charge"] for row in spending)
    spent += [
        ("others, with charges that you may not see", "others", float(unseen), None),
        ("rolled back or failed", "unrecorded", float(budget["unrecorded"]), None),
        ("this training", "planned", planned, None),
    ]
    return parts(float(budget["charge_limit"]), spent)
