"""The pictures: one panel beside the other, dbdp's default thick, what has no ε dashed, void claims dotted."""

import io
import math
from collections.abc import Sequence
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
LOGARITHMIC = ("excess", "training_seconds")
MARKERS = "osv^D<>Ph*Xd"


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
    points = [point for point in points if point.mean > 0 or point.panel.metric not in LOGARITHMIC] or points
    titles = list(dict.fromkeys(point.panel.title for point in points))
    labels = list(dict.fromkeys(point.series.label for point in points))
    figure, axes = figure_of(len(titles))
    for axis, title in zip(axes, titles, strict=True):
        draw_panel(axis, [point for point in points if point.panel.title == title], labels)
    return finished(figure, axes, path)


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
    style = {"color": "#d6006c" if series.method == AUTO else "#7a0bc0"} if ours else {"color": f"C{place % 10}"}
    axis.errorbar(
        values, means, [point.deviation for point in line], linewidth=3 if ours else 1.1, capsize=2, elinewidth=0.8,
        marker="o" if ours else MARKERS[place % len(MARKERS)], markersize=5 if ours else 3.5,
        linestyle=":" if series.void else "-", alpha=1 if ours else 0.9, zorder=5 if ours else 2, **style,
    )  # fmt: skip
    axis.lines[-1].set_label("_")
    axis.containers[-1].lines[0].set_label(series.label)


def scale(axis: Any, panel: Panel, values: Sequence[float]) -> None:
    """Set the axes: logarithmic where values span more than a decade."""
    if len(values) > 1 and values[0] > 0 and values[-1] / values[0] >= 5:
        axis.set_xscale("log")
    axis.set_xticks(values, [short(value) for value in values])
    axis.minorticks_off()
    if panel.metric in LOGARITHMIC:
        axis.set_yscale("log", nonpositive="clip")
        if panel.metric == "training_seconds":
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter("{x:g}")


def short(value: float) -> str:
    """Return a number for an axis."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def limit(axis: Any, points: Sequence[Point]) -> None:
    """Show what lies between the worst reference and somewhat above the best; what is far worse leaves the picture."""
    metric, private = points[0].panel.metric, [point.mean for point in points if point.series.has_privacy]
    if metric == "accuracy" and private:
        best = max(point.mean for point in points)
        ends = [point.mean for point in points if not point.series.has_privacy]
        low = max(min(private), min(ends) - (best - min(ends)) * 1.2) if ends else min(private)
        margin = max(0.05 * (best - low), 0.002)
        axis.set_ylim(low - margin, best + margin)
    elif metric in ("objective", "rmse") and private:
        best, typical = min(point.mean for point in points), sorted(private)[len(private) * 3 // 4]
        ends = [point.mean for point in points if point.series.method == CONSTANT]
        high = max(ends) + 0.6 * (max(ends) - best) if ends else max(typical, min(private)) * 1.25
        axis.set_ylim(best - 0.05 * (high - best), max(high, min(private)))


def finished(figure: Any, axes: Sequence[Any], path: Path, columns: int = 3) -> list[Path]:
    """Add the legend of all panels, and write the figure."""
    lines: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            if not label.startswith("_"):
                lines.setdefault(label, handle)
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
    """Reduce a PNG to 64 colours, if Pillow is there: a fraction of the bytes, with no visible difference."""
    try:
        from PIL import Image
    except ImportError:
        return
    small = io.BytesIO()
    Image.open(path).convert("RGB").quantize(64, kmeans=3).save(small, "PNG", optimize=True)
    path.write_bytes(small.getvalue())


def curves(panels: Sequence[dict[str, Any]], path: Path) -> list[Path]:
    """Draw curves: each panel has a title, the names of its axes and lines of x and y, perhaps unsound."""
    figure, axes = figure_of(len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        for place, line in enumerate(panel["lines"]):
            style = "--" if line.get("unsound") else "-"
            axis.plot(line["x"], line["y"], style, color=f"C{place % 10}", label=line["label"], linewidth=1.6,
                      marker="o" if len(line["x"]) < 30 else None, markersize=3)  # fmt: skip
        axis.set(xlabel=panel["x"], ylabel=panel["y"], xscale=panel.get("xscale", "linear"))
        axis.set(yscale=panel.get("yscale", "linear"))
        axis.set_title(panel["title"], fontsize=9)
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.legend(fontsize=7, framealpha=0.7)
    return saved(figure, path)
