"""The experiments of the papers, measured again: `python -m benchmarks.reproduce`, or `make reproduce`.

Every training has a file of its own in build/reproduce/results; a run that was interrupted goes on from there. The
small run, the default, ends by itself after --minutes; the page has what there is, with the number of repeats.
"""

import argparse
import logging
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import server
from benchmarks.accuracy.cells import seconds_left
from benchmarks.reproduce import report
from benchmarks.reproduce.catalogue import BY_NAME
from benchmarks.reproduce.cells import Cell, Store, measured
from benchmarks.reproduce.figures import Figure, planned
from benchmarks.reproduce.formulas import FORMULAS_BY_NAME
from benchmarks.reproduce.methods import Laboratory
from benchmarks.reproduce.traces import TRACES_BY_NAME, Trace

CONSOLE = Console()
MINUTES, SMALL_REPEATS = 18.0, 2
PROG = "python -m benchmarks.reproduce"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument("--figure", help="figures, separated by commas; default: all. --list has their names")
    parser.add_argument("--dataset", help="only cells of these tables, separated by commas, such as adult,bank")
    parser.add_argument("--repeats", type=int, help="random splits of each table; default: 2, with --full the papers'")
    parser.add_argument("--full", action="store_true", help="all values of every grid, all rows; hours, without limit")
    parser.add_argument("--grid", action="store_true", help="all values of every grid, on the small run's rows")
    parser.add_argument("--minutes", type=float, help="end after so many; default: 18, with --full none")
    parser.add_argument("--folder", type=Path, default=Path("build/reproduce"), help="of results, pictures and page")
    parser.add_argument("--images", type=Path, help="also copy the PNGs of these figures here, such as docs/images")
    parser.add_argument("--list", action="store_true", help="list the figures, and end")
    parser.add_argument("--page-only", action="store_true", help="measure nothing; draw what there is")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure what is missing, then write the page.

    Raises
    ------
    ValueError
        If no figure has a given name.
    """
    warnings.filterwarnings("ignore")  # peers warn of convergence and of their own privacy
    logging.getLogger("absl").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = arguments(given)
    every = {**BY_NAME, **TRACES_BY_NAME, **FORMULAS_BY_NAME}
    if options.list:
        for name, figure in every.items():
            CONSOLE.print(f"{name:28s}{figure.title}")
        return 0
    names = options.figure.split(",") if options.figure else list(every)
    if unknown := [name for name in names if name not in every]:
        CONSOLE.print(f"There is no figure {', '.join(unknown)}: --list has their names.")
        return 2
    code = 0 if options.page_only else measure(options, [every[name] for name in names])
    report.write(options.folder, names, full=options.full)
    if options.images:
        copy(options.folder, names, options.images)
    CONSOLE.print(f"Written to {options.folder}: index.html, and a PNG, an SVG and a CSV of each figure.")
    return code


def copy(folder: Path, names: Sequence[str], images: Path) -> None:
    """Copy the pictures of figures that were drawn."""
    images.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (folder / f"{name}.png").exists():
            shutil.copyfile(folder / f"{name}.png", images / f"{name}.png")


def measure(options: argparse.Namespace, figures: Sequence[object]) -> int:
    """Run every cell that has no result yet, until the time is over; return the exit code."""
    store = Store(options.folder / "results")
    measurable = [figure for figure in figures if isinstance(figure, Figure)]
    watched = [cell for figure in figures if isinstance(figure, Trace) for cell in figure.cells()]
    wanted = [*watched, *planned(measurable, options.full, options.repeats, SMALL_REPEATS, grid=options.grid)]
    if options.dataset:
        wanted = [cell for cell in wanted if cell.dataset.partition(":")[0] in options.dataset.split(",")]
    minutes = options.minutes or (None if options.full else MINUTES)
    until = time.monotonic() + 60 * minutes if minutes else None
    with server.connect() as connection:
        if not connection.execute("select pg_try_advisory_lock(hashtext('reproduce'))").fetchone()[0]:  # type: ignore[index]
            CONSOLE.print("Another run uses this database: wait for its end, or name another one by DBDP_URL.")
            return 2
        laboratory = Laboratory(connection)
        try:
            run(laboratory, store, wanted, until)
        except KeyboardInterrupt:
            CONSOLE.print("Interrupted: the same command goes on from here.")
            return 130
        finally:
            laboratory.close()
    if failed := len(store.failed(wanted)):
        CONSOLE.print(f"{failed} trainings failed: the end of the page says why; the same command tries them again.")
    return 0


def run(laboratory: Laboratory, store: Store, wanted: Sequence[Cell], until: float | None) -> None:
    """Measure the cells that have no result, with progress and the time that is left."""
    missing, results = store.remaining(wanted), store.done(wanted)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[left]} left"), console=CONSOLE) as progress:
        bar = progress.add_task("", total=len(wanted), completed=len(wanted) - len(missing), left="?")
        for place, cell in enumerate(missing):
            if until is not None and time.monotonic() > until:
                CONSOLE.print(f"The time is over with {len(missing) - place} trainings left: the same command goes on.")
                return
            left = timedelta(seconds=round(seconds_left(missing[place:], results)))
            progress.update(bar, description=f"{cell.dataset}, {cell.method}", left=str(left))
            result, *_ = *store.done([cell]), None  # another run may have had it
            if result is None:
                store.write(result := measured(cell, laboratory.measure))
            results.append(result)
            progress.advance(bar)


if __name__ == "__main__":
    sys.exit(main())
