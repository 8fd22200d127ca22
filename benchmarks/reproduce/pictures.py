"""The pictures: one panel beside the other, dbdp's default thick, what has no ε dashed, void claims dotted."""

import io
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reproduce.figures import AUTO, CONSTANT, EPSILON, NO_PRIVACY, ROWS, Panel
from benchmarks.reproduce.summaries import Point

COLUMNS = 2
LABELS = {
    "accuracy": "test accuracy",
    "objective": "objective, λ = 0.001",
    "excess": "objective above the least",
    "training_seconds": "seconds",
    "rmse": "RMSE on test rows",
}
POWERS, FROM_ZERO = ("excess", "training_seconds"), 4  # shown by powers, unless all is within such a factor
MARKERS = "osv^D<>Ph*Xd"
COLOURS = ("C0", "C1", "C2", "C3", "C5", "C7", "C8", "C9", "#0b3d91", "#1b6b3a", "#333")  # unlike dbdp's own
DEFAULT, DECLARED = "#d6006c", "#7a0bc0"


def figure_of(count: int, height: float = 3.1) -> tuple[Any, list[Any]]:
    """Return a figure and its panels."""
    from matplotlib.figure import Figure

    columns = min(COLUMNS, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(5.0 * columns + 0.4, height * rows + 0.9), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[count:]:
        panel.remove()
    return figure, panels[:count]


def draw(points: Sequence[Point], path: Path) -> list[Path]:
    """Draw the panels of a figure that have points, and return the files; an axis of powers has no place for 0."""
    points = [point for point in points if point.mean > 0 or point.panel.metric not in POWERS] or points
    titles = list(dict.fromkeys(point.panel.title for point in points))
    labels = list(dict.fromkeys(point.series.label for point in points))
    figure, axes = figure_of(len(titles))
    for axis, title in zip(axes, titles, strict=True):
        draw_panel(axis, [point for point in points if point.panel.title == title], labels)
    return finished(figure, axes, path, outside(axes))


def outside(axes: Sequence[Any]) -> set[str]:
    """Return the labels of what is in no panel, since all of it is far worse than the rest."""
    seen: dict[str, bool] = {}
    for axis in axes:
        low, high = axis.get_ylim()
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            heights = (handle.lines[0] if hasattr(handle, "lines") else handle).get_ydata()
            seen[label] = seen.get(label, False) or any(low <= height <= high for height in heights)
    return {label for label, shown in seen.items() if not shown}


def draw_panel(axis: Any, points: Sequence[Point], labels: Sequence[str]) -> None:
    """Draw every series of a panel."""
    panel = points[0].panel
    for label in labels:
        line = [point for point in points if point.series.label == label]
        if not line:
            continue
        draw_series(axis, line, labels.index(label))
    axis.set(xlabel=unit(panel), ylabel=LABELS[panel.metric])
    axis.set_title(panel.title, fontsize=9)
    scale(axis, panel, sorted({point.value for point in points}))
    limit(axis, points)
    axis.grid(alpha=0.25, linewidth=0.5)


def unit(panel: Panel) -> str:
    """Return the name of a panel's axis."""
    return {EPSILON: "ε", ROWS: "rows"}.get(panel.axis, panel.axis.removeprefix("settings.").replace("_", " "))


def draw_series(axis: Any, line: Sequence[Point], place: int) -> None:
    """Draw one series: a line with its spread, or what does not depend on the axis."""
    series, values, means = line[0].series, [point.value for point in line], [point.mean for point in line]
    if not series.has_privacy:
        axis.axhline(means[0], color="black", linestyle="--" if series.method == NO_PRIVACY else ":", linewidth=1)
        axis.lines[-1].set_label(series.label)
        return
    ours = series.method in (AUTO, "columns")
    colour = {AUTO: DEFAULT, "columns": DECLARED}.get(series.method, COLOURS[place % len(COLOURS)])
    axis.errorbar(
        values, means, [point.deviation for point in line], linewidth=3 if ours else 1.1, capsize=2, elinewidth=0.8,
        marker=("" if series.fixed else "o") if ours else MARKERS[place % len(MARKERS)], markersize=5 if ours else 3.5,
        linestyle=":" if series.void else "-", alpha=1 if ours else 0.9, zorder=5 if ours else 2, color=colour,
    )  # fmt: skip
    axis.lines[-1].set_label("_")
    axis.containers[-1].lines[0].set_label(series.label)


def scale(axis: Any, panel: Panel, values: Sequence[float]) -> None:
    """Set the axes: logarithmic where values span more than a decade."""
    if len(values) > 1 and values[0] > 0 and values[-1] / values[0] >= 5:
        axis.set_xscale("log")
    axis.set_xticks(values, [short(value) for value in values])
    axis.minorticks_off()


def by_powers(axis: Any, which: str = "y") -> None:
    """Make an axis logarithmic, with plain numbers at 1, 2 and 5 of every power."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set(**{f"{which}scale": "log"})
    side = getattr(axis, f"{which}axis")
    low, high = getattr(axis, f"get_{which}lim")()
    side.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}" if value < 1e7 else f"{value:.0e}"))
    side.set_minor_locator(NullLocator())


def short(value: float) -> str:
    """Return a number for an axis."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def limit(axis: Any, points: Sequence[Point]) -> None:
    """Show what lies between the worst reference and somewhat above the best; what is far worse leaves the picture."""
    metric, private = points[0].panel.metric, [point.mean for point in points if point.series.has_privacy]
    ours = [point for point in points if point.series.method in (AUTO, "columns")]
    if metric in POWERS and max(private) < FROM_ZERO * min(private):
        axis.set_ylim(0, 1.1 * max(point.mean + point.deviation for point in points))
    elif metric in POWERS:
        axis.set_ylim(min(private) / 1.5, max(private) * 1.5)
        by_powers(axis)
    elif metric == "accuracy" and private:
        best = max([point.mean for point in points] + [point.mean + point.deviation for point in ours])
        ends = [point.mean for point in points if not point.series.has_privacy]
        low = max(min(private), min(ends) - (best - min(ends)) * 1.2) if ends else min(private)
        margin = max(0.05 * (best - low), 0.002)
        axis.set_ylim(low - margin, best + margin)
    elif metric == "objective" and private:
        best, typical = min(point.mean for point in points), sorted(private)[len(private) * 3 // 4]
        axis.set_ylim(best * 0.97, max([typical * 1.25, *(point.mean * 1.1 for point in ours)]))
        by_powers(axis)
    elif metric == "rmse" and private:
        best, typical = min(point.mean for point in points), sorted(private)[len(private) * 3 // 4]
        ends = [point.mean for point in points if point.series.method == CONSTANT]
        high = max(ends) + 0.6 * (max(ends) - best) if ends else max(typical, min(private)) * 1.25
        axis.set_ylim(best - 0.05 * (high - best), max(high, min(private)))


def finished(figure: Any, axes: Sequence[Any], path: Path, unseen: Collection[str], columns: int = 3) -> list[Path]:
    """Add the legend of all panels, and write the figure."""
    lines: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            if not label.startswith("_"):
                lines.setdefault(f"{label}: outside" if label in unseen else label, handle)
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    return saved(figure, path)


def saved(figure: Any, path: Path) -> list[Path]:
    """Write PNG and SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_suffix(f".{kind}") for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=96)
    shrink(files[0])
    return files


def shrink(path: Path) -> None:
    """Reduce a PNG to 32 colours, if Pillow is there: a fraction of the bytes, with no visible difference."""
    try:
        from PIL import Image
    except ImportError:
        return
    small = io.BytesIO()
    Image.open(path).convert("RGB").quantize(32, kmeans=3).save(small, "PNG", optimize=True)
    path.write_bytes(small.getvalue())


def curves(panels: Sequence[dict[str, Any]], path: Path) -> list[Path]:
    """Draw curves: each panel has a title, the names of its axes and lines of x and y, perhaps unsound or dbdp's."""
    figure, axes = figure_of(len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        for place, line in enumerate(panel["lines"]):
            ours = line.get("ours")
            axis.plot(line["x"], line["y"], "--" if line.get("unsound") else "-", label=line["label"],
                      color=line.get("colour", DEFAULT if ours else COLOURS[place % len(COLOURS)]),
                      linewidth=3 if ours else 1.6, marker="o" if len(line["x"]) < 30 else None, markersize=3,
                      zorder=2 if ours else 3)  # fmt: skip
        axis.set(xlabel=panel["x"], ylabel=panel["y"])
        for which in "xy":
            if panel.get(f"{which}scale") == "log":
                by_powers(axis, which)
        axis.set_title(panel["title"], fontsize=9)
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.legend(fontsize=7, framealpha=0.7)
    return saved(figure, path)
