"""Charts as SVG, drawn by the server: positions are computed here, and the template writes them.

matplotlib, which draws for `dbdp plot`, needs 0.3 s for a chart and this 0.1 ms. Its SVG has styles of its own, which
the page's Content-Security-Policy forbids, and no colours for the dark.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any

from dbdp.checks import is_number
from dbdp.interfaces.plain import beginning
from dbdp.interfaces.web.views.rendering import number, percent
from dbdp.sessions.session import Row

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 480.0, 76.0, 14.0, 10.0, 44.0
_HEIGHT = 250.0
ROW, NAMES = 19.0, 150.0  # of a chart with a line for each coefficient: its height, and the width of the names
_MOST_ROWS = 40
_LONGEST_NAME = 20
_WIDE = 1.96  # standard errors on each side of a coefficient: 95 of 100 draws of Gaussian noise
_NOISE = {"noise_scale": "noise scale", "noise_multiplier": "noise multiplier"}  # entries of a plan
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the planned ε
_DAY, _HOUR = 86400.0, 3600.0


@dataclass(frozen=True)
class Tick:
    """A tick of an axis: its position and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A chart, in the units of its viewBox."""

    name: str  # identifier within the page
    title: str  # the contents in words, for readers who cannot see the chart
    x_label: str
    y_label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    curve: str = ""  # points of a line, as SVG writes them; empty without one
    band: str = ""  # corners of an area around the line
    dots: Sequence[tuple[float, float]] = ()  # points that are marked
    bars: Sequence[tuple[float, float, float]] = ()  # horizontal intervals: left end, right end, height
    fills: Sequence[tuple[float, float, float, float]] = ()  # rectangles: left, top, width, height
    guide: tuple[float, float, float, float] | None = None  # a dashed line for comparison: x and y of both ends
    height: float = _HEIGHT
    left: float = LEFT  # where the axes begin

    width, top, right, bottom = WIDTH, TOP, WIDTH - RIGHT, BOTTOM

    @property
    def base(self) -> float:
        """Where the horizontal axis is."""
        return self.height - BOTTOM


def spending(charges: Sequence[Row], limit: float, since: datetime, now: datetime) -> Chart | None:
    """Return the chart of the part of a budget that was spent over time; None if nothing was charged."""
    if not charges or not limit:
        return None
    shares = [share / limit for share in accumulate(float(row["charge"]) for row in charges)]
    x = linear(since.timestamp(), now.timestamp(), LEFT, WIDTH - RIGHT)
    y = linear(0.0, max(1.0, shares[-1]), _HEIGHT - BOTTOM, TOP)
    points = [(x(since.timestamp()), y(0.0))]
    for row, share in zip(charges, shares, strict=True):
        at = x(row["charged_at"].timestamp())
        points += [(at, points[-1][1]), (at, y(share))]
    points.append((x(now.timestamp()), points[-1][1]))
    return Chart(
        "spending",
        f"Part of the budget that was spent, over time: {len(charges)} charges, {percent(shares[-1])} in total.",
        "time, UTC",
        "spent",
        [Tick(x(at), label) for at, label in _times(since, now)],
        [Tick(y(share), percent(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        curve=points_of(points),
        guide=(LEFT, y(1.0), WIDTH - RIGHT, y(1.0)),
    )


def noise_of(plan: Mapping[str, Any]) -> str | None:
    """Return the name of the entry with a plan's noise, None if it has none."""
    return next((name for name in _NOISE if name in plan), None)


def noise(plans: Sequence[Mapping[str, Any]], planned: float) -> Chart | None:
    """Return the chart of the noise of plans against ε; None if they do not all have it, or there are not two.

    The plans are of one training, in ascending order of ε; the planned ε is marked.
    """
    entries = {noise_of(plan) for plan in plans}
    if len(plans) < 2 or len(entries) != 1 or None in entries:
        return None
    entry = str(entries.pop())
    pairs = [(plan["epsilon"], plan[entry]) for plan in plans]
    values = [value for _, value in pairs]
    x = _logarithmic(pairs[0][0], pairs[-1][0], LEFT, WIDTH - RIGHT)
    y = _logarithmic(min(values) / 1.3, max(values) * 1.3, _HEIGHT - BOTTOM, TOP)
    return Chart(
        "noise",
        f"{_NOISE[entry].capitalize()} of this training against its ε, from {number(values[0])} at ε = "
        f"{number(pairs[0][0])} to {number(values[-1])} at ε = {number(pairs[-1][0])}; a table has the numbers.",
        "ε of the release",
        _NOISE[entry],
        [Tick(x(epsilon), number(epsilon)) for epsilon, _ in pairs],
        [Tick(y(value), number(value)) for value in _spread(values)],
        curve=points_of([(x(epsilon), y(value)) for epsilon, value in pairs]),
        dots=[(x(epsilon), y(value)) for epsilon, value in pairs if epsilon == planned],
    )


def coefficients(triples: Sequence[tuple[str, float, float | None]]) -> Chart | None:
    """Return the chart of the first coefficients, each in standard errors of its noise; None without such errors.

    Columns have units of their own, in which one coefficient may be a million times another; their noise has the same.
    """
    known = [(name, value / error) for name, value, error in triples if error][:_MOST_ROWS]
    if not known:
        return None
    height = TOP + BOTTOM + ROW * len(known)
    ends = min(0.0, *(value - _WIDE for _, value in known)), max(0.0, *(value + _WIDE for _, value in known))
    x = linear(*ends, NAMES, WIDTH - RIGHT)
    rows = [TOP + ROW * (place + 0.5) for place in range(len(known))]
    above = sum(abs(value) > _WIDE for _, value in known)
    return Chart(
        "coefficients",
        f"Coefficients in standard errors of their noise, each with the interval that the noise leaves in 5 of 100 "
        f"releases: {above} of {len(known)} intervals do not contain 0; a table has the numbers.",
        "coefficient ÷ standard error of its noise",
        "",
        [Tick(x(value), number(value)) for value in round_steps(*ends)],
        [Tick(y, short(name)) for y, (name, _) in zip(rows, known, strict=True)],
        dots=[(x(value), y) for y, (_, value) in zip(rows, known, strict=True)],
        bars=[(x(value - _WIDE), x(value + _WIDE), y) for y, (_, value) in zip(rows, known, strict=True)],
        guide=(x(0.0), TOP, x(0.0), height - BOTTOM),
        height=height,
        left=NAMES,
    )


def roc(score: Mapping[str, Any]) -> Chart | None:
    """Return the chart of a released ROC curve; None if the score does not have one."""
    rates = [(each["false_positive_rate"], each["true_positive_rate"]) for each in score.get("roc") or []]
    points = [(0.0, 0.0), *(pair for pair in rates if None not in pair), (1.0, 1.0)]
    if len(points) < 3:
        return None
    title = (
        f"ROC curve from noisy counts: the area below it is {number(score['auc'])}, give or take "
        f"{number(score['auc_noise'])} by the noise."
    )
    return _unit_square("roc", title, ("false positive rate", "true positive rate"), points)


def calibration(receipt: Mapping[str, Any]) -> Chart | None:
    """Return the chart of what a model says of classes and what is so; None for a receipt without the curve."""
    pairs = _curve(receipt)
    if len(pairs) < 2:
        return None
    title = (
        "Frequency of the class in the rows of the training against the probability that the model gives: "
        + ", ".join(f"{percent(observed)} at {percent(predicted)}" for predicted, observed in pairs)
        + "; on the dashed line both are equal."
    )
    return _unit_square("calibration", title, ("predicted probability", "observed frequency"), pairs, has_dots=True)


def _unit_square(
    name: str, title: str, labels: tuple[str, str], points: Sequence[tuple[float, float]], *, has_dots: bool = False
) -> Chart:
    """Return the chart of a curve between shares from 0 to 1, with the dashed line on which both are equal."""
    x, y = linear(0.0, 1.0, LEFT, WIDTH - RIGHT), linear(0.0, 1.0, _HEIGHT - BOTTOM, TOP)
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    placed = [(x(across), y(up)) for across, up in points]
    return Chart(
        name,
        title,
        *labels,
        [Tick(x(value), number(value)) for value in ticks],
        [Tick(y(value), number(value)) for value in ticks],
        curve=points_of(placed),
        dots=placed if has_dots else [],
        guide=(x(0.0), y(0.0), x(1.0), y(1.0)),
    )


def _curve(receipt: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the points of a receipt's calibration curve; those that are none, as a client may write, are left out."""
    evaluation = receipt.get("evaluation")
    points = evaluation.get("calibration") if isinstance(evaluation, dict) else None
    found = []
    for point in points if isinstance(points, list) else []:
        predicted, observed = (
            point.get(name) if isinstance(point, dict) else None for name in ("predicted", "observed")
        )
        if is_number(predicted) and is_number(observed) and 0 <= predicted <= 1 and 0 <= observed <= 1:
            found.append((predicted, observed))
    return found


def attacks(receipt: Mapping[str, Any]) -> Chart | None:
    """Return the chart of an attack's power against its false alarms; None for receipts of before 0.3, without it."""
    powers = {float(rate): power for rate, power in (receipt.get("attack_power") or {}).items()}
    if not powers:
        return None
    least = min(powers)
    x, y = _logarithmic(least, 1.0, LEFT, WIDTH - RIGHT), _logarithmic(least, 1.0, _HEIGHT - BOTTOM, TOP)
    points = [(x(rate), y(power)) for rate, power in sorted(powers.items())]
    ticks = (0.001, 0.01, 0.1, 1.0)
    return Chart(
        "attacks",
        "Largest power of a test for one record against its rate of false alarms: "
        + ", ".join(f"{percent(power)} at {percent(rate)}" for rate, power in sorted(powers.items()))
        + "; the dashed line is guessing.",
        "false alarms",
        "attack's power",
        [Tick(x(value), percent(value)) for value in ticks],
        [Tick(y(value), percent(value)) for value in ticks],
        curve=points_of([*points, (x(1.0), y(1.0))]),
        dots=points,
        guide=(x(least), y(least), x(1.0), y(1.0)),
    )


def linear(first: float, last: float, begin: float, end: float) -> Callable[[float], float]:
    """Return the map from values to positions; a range of one value is widened."""
    span = last - first or 1.0
    return lambda value: round(begin + (end - begin) * (value - first) / span, 2)


def _logarithmic(first: float, last: float, begin: float, end: float) -> Callable[[float], float]:
    position = linear(math.log(first), math.log(last), begin, end)
    return lambda value: position(math.log(value))


def points_of(points: Sequence[tuple[float, float]]) -> str:
    """Return points as SVG writes those of a line or an area."""
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def round_steps(first: float, last: float) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten between two values, four at most; 0 among them if between."""
    span = (last - first) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= span / 4)
    return [step * place for place in range(math.ceil(first / step), math.floor(last / step) + 1)]


def _spread(values: Sequence[float]) -> list[float]:
    """Return up to four of the values, the first and the last among them."""
    step = max(1, (len(values) - 1) // 3)
    return [*values[:-1:step], values[-1]]


def _times(since: datetime, now: datetime) -> list[tuple[float, str]]:
    """Return four times of a range with labels: dates, within two days hours and minutes, within an hour seconds."""
    span = now.timestamp() - since.timestamp()
    form = "%Y-%m-%d" if span > 2 * _DAY else "%H:%M" if span > _HOUR else "%H:%M:%S"
    times = [since + (now - since) * part / 3 for part in range(4)]
    return [(at.timestamp(), f"{at:{form}}") for at in times]


def short(name: str) -> str:
    """Return a name, or the beginning of a long one."""
    return beginning(name, _LONGEST_NAME)
