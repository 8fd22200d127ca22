"""A budget as a bar: who spent which part of it, and what is left."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from dbdp.sessions.session import Row

UNITS = {"renyi": "Rényi divergence", "basic": "ε", "gaussian": "μ²", "zcdp": "ρ"}  # that charges of a mode are in
_COLOURS = 6  # roles with a colour of their own


@dataclass(frozen=True)
class Part:
    """A part of a bar.

    Attributes
    ----------
    label, kind : what it is, for a reader and for the style sheet
    charge, share : in the unit of the budget's mode, and of its limit
    start, width : of the bar, in hundredths
    releases : charges that make it up, None where that is unknown or none
    """

    label: str
    kind: str
    charge: float
    share: float
    start: float
    width: float
    releases: int | None


@dataclass(frozen=True)
class Rest:
    """What is left within a limit.

    Attributes
    ----------
    limit, now, asked : in whole, before a training, and by it
    """

    limit: Decimal
    now: Decimal
    asked: Decimal

    @classmethod
    def of(cls, limit: float | Decimal, spent: float | Decimal | None, asked: float | Decimal = 0.0) -> "Rest":
        """Return what is left; nothing where nobody knows what was spent."""
        whole = _exactly(limit)
        return cls(whole, Decimal(0) if spent is None else whole - _exactly(spent), _exactly(asked))

    @property
    def after(self) -> Decimal:
        """What would be left after the training."""
        return self.now - self.asked

    @property
    def share(self) -> float:
        """That as a share of the limit."""
        return float(max(self.after, Decimal(0)) / self.limit) if self.limit else 0.0

    @property
    def is_enough(self) -> bool:
        """Whether the training is within the limit."""
        return self.after >= 0


def _exactly(value: float | Decimal) -> Decimal:
    """Return a number as it is written: differences of amounts near a limit keep their sign."""
    return Decimal(str(value))


def parts(limit: float, spent: Sequence[tuple[str, str, float, int | None]]) -> list[Part]:
    """Return the parts of a bar of that limit, with what is left as the last one.

    Parameters
    ----------
    spent : label, kind, charge and number of releases of each part; what is nothing is left out
    """
    shown = [each for each in spent if each[2] > 0]
    total = sum(charge for _, _, charge, _ in shown)
    whole = max(limit, total)
    found: list[Part] = []
    for label, kind, charge, releases in [*shown, ("left", "left", max(0.0, limit - total), None)]:
        start = found[-1].start + found[-1].width if found else 0.0
        found.append(Part(label, kind, charge, charge / limit, start, 100 * charge / whole, releases))
    return found


def budget_bar(budget: Row, spending: Sequence[Row], planned: float = 0.0) -> list[Part]:
    """Return the bar of a dataset's budget; empty where nobody knows what was spent.

    Parameters
    ----------
    budget : a row of dbdp.budget
    spending : what each role spent, of the charges that the reader sees, the largest first
    planned : the charge of a training that is thought of
    """
    if budget["charged"] is None:
        return []
    first, rest = spending[:_COLOURS], spending[_COLOURS:]
    spent = [(row["role"], f"role-{n}", float(row["charge"]), row["releases"]) for n, row in enumerate(first, start=1)]
    if rest:
        of_rest = float(sum(row["charge"] for row in rest)), sum(row["releases"] for row in rest)
        spent.append((f"{len(rest)} other roles", "others", *of_rest))
    unseen = budget["recorded"] - sum(row["charge"] for row in spending)
    spent += [
        ("others, whom you do not see", "others", float(unseen), None),
        ("rolled back or failed", "unrecorded", float(budget["unrecorded"]), None),
        ("this training", "planned", planned, None),
    ]
    return parts(float(budget["charge_limit"]), spent)
