"""The plot of a model's shapes: a panel for each column, with one scale of contributions for all of them."""

import math
import re
from dataclasses import dataclass
from itertools import groupby
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from dbdp.interfaces.cli.plots import pictures
from dbdp.interfaces.plain import beginning
from dbdp.interfaces.python.client.database import Database
from dbdp.registry.results.shapes import importance, places_of
from dbdp.sessions.session import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS, ACROSS = 24, 4
MOST_BARS = 12  # of a panel: the longest ones
_LONGEST_NAME = 16
_OTHER = "(any other)"
_NUMBER = r"(-?\d{1,12}(?:\.\d{1,12})?(?:e[-+]\d{1,3})?)"
_BIN = re.compile(rf"\[{_NUMBER},{_NUMBER}[)\]]")


@dataclass(frozen=True)
class Shapes:
    """The shapes of a model, or of one of its classes."""

    subject: str
    measure: str  # of the contributions
    panels: list[tuple[Row, list[Row]]]  # importance and values of each column: noise last, else the largest first


def shapes(database: Database, model: str, label: str | None) -> Shapes:
    """Return the shapes of a model, of one class if the label has several."""
    rows = database.shapes(model)
    ranked = importance(rows)
    classes = list(dict.fromkeys(row["class"] for row in rows))
    if label not in classes:
        named = f"--class {label!r} is none of the model's classes" if label else "the label has several classes"
        raise ValueError(f"{named}; choose one by --class: {', '.join(map(str, classes))}")
    grouped = groupby((row for row in rows if row["class"] == label), key=lambda row: row["column_name"])
    values = {name: list(group) for name, group in grouped}
    panels = [(row, _known(values[row["column_name"]])) for row in ranked if row["class"] == label]
    panels.sort(key=lambda panel: _may_be_noise(panel[1]))
    subject = f"model {model}" if label is None else f"model {model}, class {label}"
    return Shapes(subject, _measure(database.receipt(model)), panels)


def _known(values: list[Row]) -> list[Row]:
    """Return the values with a band, or all if none has one."""
    return [row for row in values if row["upper"] is not None] or values


def _may_be_noise(values: list[Row]) -> bool:
    """Return whether noise alone may be a shape: for m values 95 % of noise is within normal quantiles of .05/2m."""
    if values[0]["upper"] is None:
        return False
    widest = NormalDist().inv_cdf(1 - 0.05 / 2 / len(values)) / NormalDist().inv_cdf(0.975)
    return all(abs(row["contribution"]) <= widest * (row["upper"] - row["contribution"]) for row in values)


def _measure(receipt: dict[str, Any]) -> str:
    if receipt.get("loss") in ("squared", "huber_regression"):
        return "adds to the prediction"
    are_log_odds = "knots" in receipt and receipt.get("loss") == "logistic" and "classes" not in receipt
    return "adds to the log-odds" if are_log_odds else "adds to the score"


@pictures.styled
def drawn(shown: Shapes) -> "Figure":
    """Draw the panels: a curve with its band, or bars with theirs, the most important columns first."""
    panels = shown.panels[:MOST_PANELS]
    across = min(ACROSS, len(panels))
    figure, grid = pictures.panels(math.ceil(len(panels) / across), across)
    for axes, (ranked, values) in zip(grid, panels, strict=False):
        _panel(axes, ranked["column_name"], values)
    least, most = _limits([row for _, values in panels for row in values])
    for place, axes in enumerate(grid):
        axes.set_ylim(least, most)
        axes.set_visible(place < len(panels))
        if place % across == 0:
            axes.set_ylabel(shown.measure)
        else:
            axes.tick_params(labelleft=False)
    few = "" if len(panels) == len(shown.panels) else f", the first {len(panels)} of {len(shown.panels)} columns"
    band = "bands of the noise, 95 % at each value" if panels[0][1][0]["upper"] is not None else "noise not known"
    figure.suptitle(f"{pictures.text(shown.subject)}{few}: {band}", x=0.01, ha="left", fontsize=12)
    return figure


def _limits(rows: list[Row]) -> tuple[float, float]:
    """Return the ends of the common scale: all contributions, and nine bands in ten."""
    ends = [row["contribution"] for row in rows]
    known = [row for row in rows if row["upper"] is not None]
    if known:
        lower, upper = ([row[end] for row in known] for end in ("lower", "upper"))
        ends += [float(np.quantile(lower, 0.1)), float(np.quantile(upper, 0.9))]
    least, most = min(ends), max(ends)
    room = 0.05 * (most - least) or 1.0
    return least - room, most + room


def _panel(axes: "Axes", name: str, values: list[Row]) -> None:
    """Draw a column, grey if noise alone may be its shape."""
    is_noise = _may_be_noise(values)
    colour = pictures.GREY if is_noise else pictures.COLOURS[0]
    curve = [row for row in values if row["x"] is not None]
    bars = [row for row in values if row["x"] is None and (row["category"] is not None or not curve)]
    if curve:
        _curve(axes, curve, bars, colour)
    else:
        _bars(axes, bars, colour)
    axes.axhline(0, color=pictures.GREY, linewidth=0.8)
    title = _short(name, 2 * _LONGEST_NAME)
    axes.set_title(f"{title} (within noise)" if is_noise else title, fontsize=10)


def _curve(axes: "Axes", rows: list[Row], nulls: list[Row], colour: str) -> None:
    """Draw a curve on the column's scale, and NULL to the right of it."""
    numbers = np.array([row["x"] for row in rows])
    places = np.array(places_of(numbers.tolist()))
    heights = [row["contribution"] for row in rows]
    axes.plot(places, heights, color=colour, marker="o", markersize=3)
    if all(row["upper"] is not None for row in rows):
        _band(axes, places, rows, colour)
    marked = [*range(0, len(numbers), max(1, len(numbers) // 3)), len(numbers) - 1]
    marked = [place for place in dict.fromkeys(marked) if place in (0, len(numbers) - 1) or place < len(numbers) - 2]
    labels = {float(places[place]): f"{numbers[place]:.3g}" for place in marked}
    for row in nulls:
        at = float(places[-1] + (places[-1] - places[0]) / 8)
        _bar_of(axes, at, row, colour, (places[-1] - places[0]) / 16)
        labels[at] = _short(row["category"] or _OTHER)
    if nulls or (places != numbers).any():
        axes.set_xticks(list(labels), list(labels.values()))


def _band(axes: "Axes", places: np.ndarray, rows: list[Row], colour: str) -> None:
    """Draw the band of a curve; that of a line is 0 in its middle, where its contribution is."""
    ends = np.array([[place, row["lower"], row["upper"]] for place, row in zip(places, rows, strict=True)])
    if len(rows) == 2:
        middle = [ends[:, 0].mean(), *[np.mean([row["contribution"] for row in rows])] * 2]
        ends = np.insert(ends, 1, middle, axis=0)
    axes.fill_between(*ends.T, color=colour, alpha=0.2, linewidth=0)


def _bars(axes: "Axes", rows: list[Row], colour: str) -> None:
    """Draw the longest bars in their order."""
    longest = sorted(rows, key=lambda row: -abs(row["contribution"]))[:MOST_BARS]
    shown = [row for row in rows if row in longest]
    for place, row in enumerate(shown):
        _bar_of(axes, place, row, colour, 0.7)
    labels = [_short(row["category"] or _OTHER) for row in shown]
    axes.set_xticks(range(len(shown)), labels, rotation=90 if sum(map(len, labels)) > 2 * _LONGEST_NAME else 0)
    axes.tick_params(axis="x", labelsize=8)
    if len(shown) < len(rows):
        axes.set_xlabel(f"the longest {len(shown)} of {len(rows)}", fontsize=8)


def _bar_of(axes: "Axes", place: float, row: Row, colour: str, width: float) -> None:
    axes.bar(place, row["contribution"], width=width, color=colour, alpha=0.6)
    if row["upper"] is not None:
        half = row["upper"] - row["contribution"]
        axes.errorbar(place, row["contribution"], yerr=half, color=pictures.COLOURS[-1], linewidth=1, capsize=2)


def _short(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return a name that fits: a bin's ends with three digits, or the beginning of any other."""
    if ends := _BIN.fullmatch(name):
        return "–".join(f"{float(f'{float(end):.3g}'):,.10g}" for end in ends.groups())
    return pictures.text(beginning(name, longest))
