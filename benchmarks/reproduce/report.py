"""Writes the pictures, the CSV files and the page of whatever results there are."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.reproduce import page, pictures, summaries
from benchmarks.reproduce.catalogue import BY_NAME, FIGURES
from benchmarks.reproduce.cells import Result, Store
from benchmarks.reproduce.figures import Figure
from benchmarks.reproduce.formulas import FORMULAS_BY_NAME, Formula
from benchmarks.reproduce.page import Section
from benchmarks.reproduce.traces import TRACES_BY_NAME, Trace

MOST_REPEATS = 30
INDEX, TABLES = "index.html", "tables.md"


def write(folder: Path, names: Sequence[str], *, full: bool) -> None:
    """Draw the named figures, and write the page of all figures that have results or pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder / "results")
    for name in names:
        if name in FORMULAS_BY_NAME:
            write_formula(folder, FORMULAS_BY_NAME[name])
    sections, failures, results = [], [], []
    for figure in FIGURES:
        found, failed = results_of(store, figure, full)
        results += found
        failures += [f"{figure.name}: {each.cell}: {each.error}" for each in failed]
        sections += section_of(folder, figure, found, full, redraw=figure.name in names)
    sections += [each for trace in TRACES_BY_NAME.values() for each in trace_section(folder, store, trace)]
    sections += [each for formula in FORMULAS_BY_NAME.values() for each in formula_section(folder, formula)]
    text = page.page(sections, facts(results, full), dict.fromkeys(failures))
    (folder / INDEX).write_text(text, encoding="utf-8")
    (folder / TABLES).write_text("\n".join(page.markdown(each) for each in sections), encoding="utf-8")


def results_of(store: Store, figure: Figure, full: bool) -> tuple[list[Result], list[Result]]:
    """Return the results and the failures of a figure, repeats until one has none."""
    found: list[Result] = []
    failed: list[Result] = []
    for repeat in range(MOST_REPEATS):
        cells = list(figure.cells(full, repeat, grid=True))
        done = store.done(cells)
        if not done:
            break
        found += done
        failed += store.failed(cells)
    return found, failed


def section_of(folder: Path, figure: Figure, found: list[Result], full: bool, redraw: bool) -> list[Section]:
    """Return the section of a figure, if it has points; its picture and CSV are written."""
    points = summaries.points(figure, {each.cell: each for each in found}, full, MOST_REPEATS)
    if not points:
        return []
    path = folder / f"{figure.name}.png"
    if redraw or not path.exists():
        pictures.draw(points, path)
        summaries.write_csv(path.with_suffix(".csv"), [point.line for point in points])
    return [Section(figure.name, figure.title, figure.says, figure.command, path, points)]


def write_formula(folder: Path, formula: Formula) -> None:
    """Draw a formula, and write its CSV."""
    write_curves(folder / f"{formula.name}.png", formula.panels())


def write_curves(path: Path, panels: Sequence[dict[str, Any]]) -> None:
    """Draw curves, and write their CSV."""
    pictures.curves(panels, path)
    lines = [
        {"panel": panel["title"], "line": line["label"], "unsound": bool(line.get("unsound")), "x": x, "y": y}
        for panel in panels
        for line in panel["lines"]
        for x, y in zip(line["x"], line["y"], strict=True)
    ]
    summaries.write_csv(path.with_suffix(".csv"), lines)


def formula_section(folder: Path, formula: Formula) -> list[Section]:
    """Return the section of a formula that was drawn."""
    path = folder / f"{formula.name}.png"
    if not path.exists():
        return []
    notes = ["; ".join(at_the_middle(path.with_suffix(".csv")))]
    return [Section(formula.name, formula.title, formula.says, formula.command, path, notes=notes)]


def at_the_middle(path: Path) -> list[str]:
    """Return the values of all curves of a CSV at the middle of their axis, a text for each panel."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    texts = []
    for panel in dict.fromkeys(line["panel"] for line in lines):
        here = [line for line in lines if line["panel"] == panel]
        places = sorted({float(line["x"]) for line in here})
        middle = places[len(places) // 2]
        values = (f"{line['line']} {page.number(float(line['y']))}" for line in here if float(line["x"]) == middle)
        texts.append(f"{panel}, at {middle:.3g}: {', '.join(values)}")
    return texts


def trace_section(folder: Path, store: Store, trace: Trace) -> list[Section]:
    """Return the section of watched runs, if there are any."""
    if not store.done(trace.watched):
        return []
    results = store.done(trace.cells())
    path = folder / f"{trace.name}.png"
    write_curves(path, trace.panels(results))
    return [Section(trace.name, trace.title, trace.says, trace.command, path, notes=trace.notes(results))]


def facts(results: Sequence[Result], full: bool) -> list[str]:
    """Return what a reader has to know of the run."""
    seconds = sum({each.cell: each.seconds for each in results}.values())
    loads = [each.load for each in results]
    busy = f", at a load of {min(loads):.1f} to {max(loads):.1f} processes" if loads else ""
    command = 'make reproduce ARGS="--full"' if full else "make reproduce"
    return [
        f"Made by {command}; it goes on where it was. {len({each.cell for each in results})} trainings, "
        f"{seconds / 60:.0f} minutes{busy}.",
        "One fifth of each table is for testing, at random in each repeat: as many rows as in five-fold "
        "cross-validation. The small run has two repeats where the papers have 5 to 100, and a few values "
        "of ε.",
        "Guarantees are for one row replaced; the papers’ are mostly for one row more or less, at half the noise.",
        'In a clone, dbdp reproduce --figure … --dataset … --repeats … does the same as make reproduce ARGS="…".',
        "Bounds of columns and lists of categories count as public, for every system alike; rows have norm 1.",
        f"{len(BY_NAME)} measured figures, {len(TRACES_BY_NAME)} of watched runs, {len(FORMULAS_BY_NAME)} of formulas.",
    ]
