"""Draws docs/overview.svg from the table of accuracies in the README: `.venv/bin/python docs/draw.py`."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
EPSILONS = (0.1, 0.4, 1.6)
STYLES = (("tab:blue", "o-", 3), ("tab:orange", "s-", 1.5), ("black", "--", 1.2), ("gray", ":", 1.2))


def rows(readme: str) -> list[list[str]]:
    """Return the cells of the table of accuracies: its head, and a row for each dataset."""
    table = readme[readme.index("| | dbdp |") :].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [cells[0], *cells[2:]]


def numbers(cell: str) -> list[float]:
    """Return the accuracies of a cell, in %: one, or one for each ε."""
    return [float(number) for number in re.findall(r"[\d.]+", cell)]


def draw(readme: str) -> Any:
    """Draw a panel for each dataset."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams.update({"svg.hashsalt": "dbdp", "font.size": 11})  # with this salt the same picture has the same bytes
    (_, *methods), *datasets = rows(readme)
    figure = Figure(figsize=(8.5, 3.2), layout="constrained")
    for panel, (name, *cells) in zip(figure.subplots(1, len(datasets)), datasets, strict=True):
        for method, cell, (colour, style, width) in zip(methods, cells, STYLES, strict=True):
            values = numbers(cell)
            across = values if len(values) > 1 else values * len(EPSILONS)
            panel.plot(EPSILONS, across, style, color=colour, linewidth=width, label=method)
        panel.set(title=name, xscale="log", xlabel="ε", xticks=EPSILONS, xticklabels=[f"{each:g}" for each in EPSILONS])
        panel.minorticks_off()
    figure.axes[0].set_ylabel("test accuracy, %")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, columnspacing=1
    )
    return figure


def data(readme: str) -> str:
    """Return the table as one line, which the picture has as its description."""
    return "; ".join(", ".join(cells) for cells in rows(readme))


if __name__ == "__main__":
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    draw(text).savefig(DOCS / "overview.svg", metadata={"Date": None, "Description": data(text)})
