"""The figures of the scale benchmark."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale.cells import Result

MEASURES = {"seconds": "seconds", "processor_seconds": "seconds of a processor", "peak_mb": "peak memory, MB"}


def lines(results: Sequence[Result], features: int, measure: str) -> dict[str, list[tuple[int, float]]]:
    """Return for each method its medians by the number of rows, on tables of so many features."""
    found: dict[str, dict[int, list[float]]] = {}
    for result in results:
        if result.features == features:
            found.setdefault(result.method, {}).setdefault(result.rows, []).append(getattr(result, measure))
    return {
        method: [(rows, statistics.median(figures)) for rows, figures in sorted(by_rows.items())]
        for method, by_rows in found.items()
    }


def draw(results: Sequence[Result], folder: Path, measures: Sequence[str] = tuple(MEASURES)) -> None:
    """Draw time and memory against the number of rows, one column for each number of features."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, rcParams

    rcParams["svg.hashsalt"] = "dbdp"  # the same results give the same bytes
    widths = sorted({result.features for result in results})
    size = 3.6 * len(widths), 3 * len(measures)
    figure, axes = pyplot.subplots(len(measures), len(widths), figsize=size, squeeze=False, layout="constrained")
    for row, measure in zip(axes, measures, strict=True):
        for axis, features in zip(row, widths, strict=True):
            _plot(axis, lines(results, features, measure), measure, features)
    axes[0][0].legend()
    for ending in ("svg", "png"):
        figure.savefig(folder / f"scale.{ending}", metadata={"Date": None} if ending == "svg" else None)
    pyplot.close(figure)


def _plot(axis: Any, by_method: dict[str, list[tuple[int, float]]], measure: str, features: int) -> None:
    for method, points in by_method.items():
        axis.plot(*zip(*points, strict=True), marker="o", label=method)
    axis.set(xscale="log", yscale="log", xlabel="rows", ylabel=MEASURES[measure], title=f"{features} features")
    axis.grid(visible=True, alpha=0.3)
