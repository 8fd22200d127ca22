"""Accuracy of dbdp's default beside other systems: `python -m benchmarks.accuracy`, or `make bench-accuracy`.

Every finished training is a line of results.jsonl; a run that was interrupted goes on from there. All have the same
rows for training and testing, and the same public bounds and categories.
"""

import argparse
import json
import logging
import signal
import sys
import warnings
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import server
from benchmarks.accuracy import cells, datasets, report
from benchmarks.accuracy.in_database import InDatabase
from benchmarks.accuracy.methods import PEERS, REFERENCES, Method, chosen, own

CONSOLE = Console()


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument(
        "--only", help="tables, separated by commas, such as adult,generated:rows=5000:share=.1; default: all"
    )
    parser.add_argument(
        "--methods", help="separated by commas, such as dbdp,DP-EBM or dbdp:dp_sgd; default: all systems"
    )
    parser.add_argument("--splits", type=int, default=10, help="random splits, 80 %% for training")
    parser.add_argument("--folder", type=Path, default=Path("build/accuracy"), help="of results, table and picture")
    parser.add_argument("--json", type=Path, help="also write means and standard errors here")
    return parser.parse_args()


def main() -> int:
    """Measure what is missing, then write the table and the picture."""
    warnings.filterwarnings("ignore")  # peers warn of convergence and of their own privacy
    logging.getLogger("absl").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = arguments()
    with server.connect() as connection:
        database = InDatabase(connection)
        methods = chosen([*own(database), *PEERS, *REFERENCES], listed(options.methods))
        try:
            measure(options, [method for method in methods if installed(method)])
        except KeyboardInterrupt:
            CONSOLE.print("Interrupted: the same command goes on from here.")
            return 130
        finally:
            write(options, methods)
            database.close()
    return 0


def listed(text: str | None) -> list[str] | None:
    """Return the parts of a list with commas."""
    return text.split(",") if text else None


def installed(method: Method) -> bool:
    """Return whether a method can run, and print what is missing otherwise."""
    if not method.is_installed:
        CONSOLE.print(f"{method.name} is left out: pip install 'dbdp[accuracy]' brings {method.package}.")
    return method.is_installed


def measure(options: argparse.Namespace, methods: list[Method]) -> None:
    """Run every cell that has no result yet, with progress and the time that is left."""
    path: Path = options.folder / "results.jsonl"
    names = listed(options.only) or datasets.NAMES
    planned, results = cells.planned(names, methods, options.splits), cells.read(path)
    missing = cells.remaining(planned, results)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[left]} left"), console=CONSOLE) as progress:
        bar = progress.add_task("", total=len(planned), completed=len(planned) - len(missing), left="?")
        for place, cell in enumerate(missing):
            left = timedelta(seconds=round(cells.seconds_left(missing[place:], results)))
            progress.update(bar, description=f"{cell.dataset}, {cell.method}", left=str(left))
            results.append(result := cells.measured(cell, methods))
            cells.append(path, result)
            progress.advance(bar)


def write(options: argparse.Namespace, methods: Iterable[Method]) -> None:
    """Write the table, the picture and, if wanted, JSON of all results so far."""
    results = cells.read(options.folder / "results.jsonl")
    if not results:
        return
    text = report.markdown(results, methods)
    (options.folder / "table.md").write_text(text, encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(report.as_json(results), indent=2) + "\n", encoding="utf-8")
    CONSOLE.print(Markdown(text))
    CONSOLE.print(
        f"Written to {options.folder}: table.md, {', '.join(p.name for p in report.draw(results, options.folder))}."
    )


if __name__ == "__main__":
    sys.exit(main())
