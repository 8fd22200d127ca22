"""Trains on tables of more and more rows, in settings far below their size, and draws the figures.

dbdp's default runs in the server, with `dbdp.pack_memory` and `work_mem` of a few megabytes; scikit-learn's logistic
regression, and diffprivlib's where it is installed, pull the rows to a process of their own first.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql
from rich.console import Console

from benchmarks import ours, server, tables
from benchmarks.harness import write_json
from benchmarks.scale import figures
from benchmarks.scale.cells import Cell, Result, measured_in_server, planned
from benchmarks.tables import Table

CONSOLE = Console()
BASE = 100_000  # rows that are generated; larger tables repeat them
PEERS = {"scikit-learn": "sklearn", "diffprivlib": "diffprivlib"}  # name: module


def main() -> None:
    """Run all cells on the server of DBDP_URL, or on the embedded one, and write the report and the figures."""
    options = arguments()
    results: list[Result] = []
    for cell in planned(options.rows, options.features, options.numbers):
        with CONSOLE.status(f"{cell.rows:,} × {cell.features}"), filled(cell) as table:
            results += [result for name in methods() for result in measured(name, cell, table, options)]
        for result in results[-len(methods()) :]:
            CONSOLE.print(result.shown())
        report = {"settings": vars(options) | {"folder": str(options.folder)}, "results": list(map(asdict, results))}
        write_json(options.folder / "scale.json", report)
    figures.draw(results, options.folder)
    CONSOLE.print(f"Written to {options.folder}: scale.json, scale.svg, scale.png.")


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--features", type=int, nargs="+", default=[10, 100, 2000])
    parser.add_argument("--numbers", type=int, default=10**8, help="the most rows × features; larger tables are cut")
    parser.add_argument("--memory", default="16MB", help="dbdp.pack_memory")
    parser.add_argument("--work-mem", default="1MB", help="work_mem")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each method on each table")
    parser.add_argument("--folder", type=Path, default=Path("build"))
    return parser.parse_args()


def methods() -> list[str]:
    """Return the names of the methods: dbdp, and the peers that are installed."""
    return ["dbdp", *(name for name, module in PEERS.items() if find_spec(module))]


@contextmanager
def filled(cell: Cell) -> Iterator[Table]:
    """Create, fill and register the table of a cell for the block."""
    table = Table(name="scale", raw="scale_rows", array="scale_rows", features=cell.features)
    with server.connect() as connection:
        features, labels = tables.linear_model_rows(min(cell.rows, BASE), cell.features)
        tables.create_arrays(connection, table.array, features, labels)
        repeat(connection, table.array, cell.rows - len(labels))
        ours.register(connection, ours.dataset_of(table), ours.declared_array(table))
        try:
            yield table
        finally:
            connection.execute("select dbdp.drop_dataset(%s)", (ours.dataset_of(table),))
            tables.drop(connection, table)


def repeat(connection: psycopg.Connection, name: str, missing: int) -> None:
    """Append so many rows of a table to itself, again and again."""
    statement = "insert into {0} select t.x, t.y from {0} as t, generate_series(0, %s / %s) limit %s"
    if missing > 0:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)), (missing, BASE, missing))
        tables.vacuum(connection, name)


def measured(name: str, cell: Cell, table: Table, options: argparse.Namespace) -> list[Result]:
    """Return the results of a method on a table."""
    if name == "dbdp":
        return [measured_in_server(cell, table, options.memory, options.work_mem) for _ in range(options.repeats)]
    command = [sys.executable, "-m", "benchmarks.scale.peer", name, table.array, str(cell.features)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(options.repeats)]
    return [Result(name, cell.rows, cell.features, **json.loads(run.stdout)) for run in runs]


if __name__ == "__main__":
    main()
