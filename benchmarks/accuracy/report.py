"""Tables and pictures of the results."""

import math
import statistics
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.cells import Result
from benchmarks.accuracy.methods import CONSTANT, DEFAULT, NO_PRIVACY, Method
from benchmarks.accuracy.scores import ACCURACY, LOG_LOSS, METRICS, RMSE

COLUMNS = 2
DIGITS = {ACCURACY: 1, LOG_LOSS: 4}


@dataclass(frozen=True)
class Summary:
    """Mean and standard error over the splits of one table, metric, method and ε."""

    dataset: str
    metric: str
    method: str
    epsilon: float | None
    mean: float
    error: float  # NaN for one split
    splits: int


def summaries(results: Iterable[Result]) -> list[Summary]:
    """Return mean and standard error of every figure, in the order of the results."""
    values: dict[tuple[str, str, str, float | None], list[float]] = {}
    for result in results:
        for metric, value in result.figures.items():
            key = (result.cell.dataset, metric, result.cell.method, result.cell.epsilon)
            values.setdefault(key, []).append(value)
    return [Summary(*key, statistics.fmean(each), standard_error(each), len(each)) for key, each in values.items()]


def standard_error(values: list[float]) -> float:
    """Return the standard error of a mean."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def markdown(results: list[Result], methods: Iterable[Method]) -> str:
    """Return a table for each dataset and metric, and the claims."""
    means = summaries(results)
    tables = [table(means, dataset, metric) for dataset, metric in pairs(means)]
    used = {result.cell.method for result in results}
    claims = [f"- **{method.name}**: {method.claim}." for method in methods if method.name in used]
    failed = [f"- {result.cell}: {result.error}" for result in unfinished(results)]
    return "\n".join([*tables, "Guarantees:", "", *claims, *(["", "Failed:", "", *failed] if failed else []), ""])


def unfinished(results: list[Result]) -> list[Result]:
    """Return the failures that no later run mended."""
    done = {result.cell for result in results if not result.error}
    return [result for result in results if result.error and result.cell not in done]


def pairs(means: Iterable[Summary]) -> list[tuple[str, str]]:
    """Return the datasets and metrics there are, in order, without those that only a constant has."""
    return list(dict.fromkeys((mean.dataset, mean.metric) for mean in means))


def table(means: list[Summary], dataset: str, metric: str) -> str:
    """Return one table in Markdown; what has no ε is in its first column."""
    here = [mean for mean in means if (mean.dataset, mean.metric) == (dataset, metric)]
    epsilons = sorted({mean.epsilon for mean in here if mean.epsilon is not None})
    head = ["", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    lines = [f"### {dataset}, {METRICS[metric]}", "", row(head), row(["---"] * len(head))]
    for method in sorted({mean.method for mean in here}, key=order):
        of_method = {mean.epsilon: mean for mean in here if mean.method == method}
        columns = [of_method.get(epsilon, of_method.get(None)) for epsilon in epsilons]
        lines.append(row([f"**{method}**" if method == DEFAULT else method, *(shown(mean) for mean in columns)]))
    return "\n".join([*lines, ""])


def order(method: str) -> tuple[int, str]:
    """Return the place of a method: dbdp first, then others, then references."""
    return (0 if method.startswith(DEFAULT) else 2 if method in (NO_PRIVACY, CONSTANT) else 1, method)


def shown(mean: Summary | None) -> str:
    """Return a mean with its standard error; accuracy in per cent."""
    if mean is None:
        return ""
    factor = 100 if mean.metric == ACCURACY else 1
    digits = DIGITS.get(mean.metric, 3) if abs(mean.mean) < 20 or factor == 100 else 1
    error = "" if math.isnan(mean.error) else f" ± {factor * mean.error:.{digits + (factor == 100)}f}"
    return f"{factor * mean.mean:.{digits}f}{error}"


def row(cells: Iterable[str]) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def as_json(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the means as JSON has them: an unknown standard error is null."""
    return [asdict(mean) | {"error": None if math.isnan(mean.error) else mean.error} for mean in summaries(results)]


def draw(results: Iterable[Result], folder: Path) -> list[Path]:
    """Draw accuracy or RMSE of each dataset by ε, and return the files."""
    from matplotlib.figure import Figure

    means = [mean for mean in summaries(results) if mean.metric in (ACCURACY, RMSE)]
    names, methods = pairs(means), sorted({mean.method for mean in means}, key=order)
    colours = {method: f"C{place}" for place, method in enumerate(methods)}
    height = math.ceil(max(1, len(names)) / COLUMNS)
    figure = Figure(figsize=(10, 3 * height + 0.8), layout="constrained")
    panels = list(figure.subplots(height, COLUMNS, squeeze=False).flat)
    for panel, name in zip(panels, names, strict=False):
        draw_panel(panel, [mean for mean in means if (mean.dataset, mean.metric) == name], colours)
    for panel in panels[len(names) :]:
        panel.remove()
    lines = {line.get_label(): line for panel in panels[: len(names)] for line in panel.lines}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4, frameon=False)
    return [saved(figure, folder / f"accuracy.{kind}") for kind in ("svg", "png")]


def saved(figure: Any, path: Path) -> Path:
    """Write a figure, and return where."""
    figure.savefig(path, dpi=110)
    return path


def draw_panel(panel: Any, means: list[Summary], colours: dict[str, str]) -> None:
    """Draw every method of one dataset: dbdp thick, what has no ε as a dashed line."""
    for method in sorted({mean.method for mean in means}, key=order, reverse=True):
        of_method = sorted((mean for mean in means if mean.method == method), key=lambda mean: mean.epsilon or 0)
        if of_method[0].epsilon is None:
            panel.axhline(
                of_method[0].mean, color="black", linestyle="--" if method == NO_PRIVACY else ":", label=method
            )
            continue
        width = 3.5 if method == DEFAULT else 1.2
        epsilons, heights = [mean.epsilon for mean in of_method], [mean.mean for mean in of_method]
        errors = [0.0 if math.isnan(mean.error) else mean.error for mean in of_method]
        panel.errorbar(
            epsilons, heights, errors, color=colours[method], linewidth=width, marker="o", markersize=width + 2
        )
        panel.lines[-1].set_label(method)
    panel.set_title("\n".join(textwrap.wrap(means[0].dataset.replace(":", " "), 50)), fontsize=9)
    panel.set(xlabel="ε", xscale="log", ylabel=means[0].metric)
    limit_to(panel, means)


def limit_to(panel: Any, means: list[Summary]) -> None:
    """Show the range between the references and half as much beyond the constant; what is worse leaves the picture."""
    references = {mean.method: mean.mean for mean in means if mean.epsilon is None}
    epsilons = sorted({mean.epsilon for mean in means if mean.epsilon is not None})
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    panel.minorticks_off()
    if {NO_PRIVACY, CONSTANT} <= references.keys():
        best, worst = references[NO_PRIVACY], references[CONSTANT]
        panel.set_ylim(sorted((worst - 0.5 * (best - worst), best + 0.15 * (best - worst))))
