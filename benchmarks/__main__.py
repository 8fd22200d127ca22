"""Times every side and writes the report: `python -m benchmarks`."""

import argparse
import os
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

import psycopg
from rich.console import Console

from benchmarks import build, command_line, ours, server, small_table, suite, tables, white_box
from benchmarks.harness import Samples, Spread, ratios_table, times_table, write_json

CONSOLE = Console()
WHITE_BOX = "white_box"  # the group of updates with noise
WIDE = "wide"  # the group of a table of many features
SMALL = "small"  # the group of a small table


def main() -> None:
    """Run the benchmark on the server of DBDP_URL, or on the embedded one."""
    options = arguments()
    report: dict = {}
    for name, measure in {SMALL: small, WIDE: wide}.items():
        report |= measure(options.repeats) if not options.only or name in options.only else {}
    if options.only and {SMALL, WIDE}.issuperset(options.only):
        return
    with server.connect() as connection, build.c_aggregate(connection):
        report |= {"settings": settings(connection, options)}
        CONSOLE.print(tables.create_bench54(connection, options.rows))
        report |= measured(tables.BENCH54, options.repeats, options.only)
        if options.only:
            CONSOLE.print("Only a part was measured: no report is written.")
            return
        CONSOLE.print(tables.create_bench54(connection, options.rows))
        report |= grown(connection, options.repeats)
        tables.drop(connection, tables.BENCH54)
        CONSOLE.print(tables.create_adult(connection))
        report["adult"] = measured(tables.ADULT, options.repeats)
    write_json(options.json, report)
    CONSOLE.print(f"Written to {options.json}.")


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="alternations of each comparison")
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the generated table")
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        choices=[*suite.GROUPS, WHITE_BOX, SMALL, WIDE],
        help="groups to time, without a report",
    )
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="the report")
    return parser.parse_args()


def settings(connection: psycopg.Connection, options: argparse.Namespace) -> dict:
    """Return the settings that the figures depend on."""
    return {
        "repeats": options.repeats,
        "rows": options.rows,
        "processors": os.cpu_count(),
        "server": server.describe(connection),
    }


def measured(table: tables.Table, repeats: int, only: Collection[str] = ()) -> dict:
    """Time all sides on a table, or those of some groups, in a session of its own, and drop the table."""
    with CONSOLE.status(f"timing {table.name}"), server.connect() as connection:
        groups = suite.measure(connection, table, repeats, only)
        CONSOLE.print(times_table(f"{table.name}: times", groups))
        figures = {"seconds": {name: samples.seconds for name, samples in groups.items()}}
        if only:
            CONSOLE.print(ratios_table(f"{table.name}: ours ÷ the other side", suite.ratios(groups)))
            if WHITE_BOX in only:
                noisy(connection, table, repeats)
        elif ours.available(connection):
            figures |= compared(connection, table, groups, repeats)
            figures |= {WHITE_BOX: noisy(connection, table, repeats)}
            figures |= {"command_line": commanded(connection, table, repeats)}
        tables.drop(connection, table)
    return figures


def grown(connection: psycopg.Connection, repeats: int) -> dict:
    """Measure the default's whole run on ten times as many rows."""
    samples = suite.growth(connection, tables.BENCH54, repeats)
    return one_ratio("growth", samples, {"growth_10x_ratio": samples.ratio("bench54_10x", "bench54")})


def wide(repeats: int) -> dict:
    """Measure the default's whole run on 2,000 features, and scikit-learn's, in a new session."""
    with CONSOLE.status("timing a wide table"), server.connect() as connection:
        if not ours.available(connection):
            return {}
        samples = suite.wide(connection, repeats)
    return one_ratio(WIDE, samples, {"wide_ratio": samples.ratio(*suite.WIDE_SIDES)})


def one_ratio(group: str, samples: Samples, spreads: dict[str, Spread]) -> dict:
    """Print the times and the ratio of one group; return them for the report."""
    CONSOLE.print(times_table("the default's whole run", {group: samples}))
    CONSOLE.print(ratios_table(group, spreads))
    return {name: spread.median for name, spread in spreads.items()} | {
        group: {"seconds": samples.seconds, "spread": {name: asdict(spread) for name, spread in spreads.items()}}
    }


def small(repeats: int) -> dict:
    """Measure a training of a small table and predictions, in a new session."""
    with CONSOLE.status("timing a small table"), server.connect() as connection:
        if not ours.available(connection):
            return {}
        groups = small_table.measure(connection, repeats)
    CONSOLE.print(times_table("a small table: times", groups))
    spreads = small_table.figures(groups)
    for name in small_table.PER_SECOND:
        CONSOLE.print(f"{name}: {spreads[name].median:,.0f} ({spreads[name].lower:,.0f} – {spreads[name].upper:,.0f})")
    CONSOLE.print(ratios_table("ours ÷ scikit-learn", {"small_ratio": spreads["small_ratio"]}))
    return {name: spread.median for name, spread in spreads.items()} | {
        SMALL: {
            "seconds": {name: samples.seconds for name, samples in groups.items()},
            "spread": {name: asdict(spread) for name, spread in spreads.items()},
        }
    }


def compared(connection: psycopg.Connection, table: tables.Table, groups: dict[str, Samples], repeats: int) -> dict:
    """Measure our figures beside those of the other sides: medians by name, and their quartiles."""
    memory = suite.peak_memory(connection, table)
    spreads = suite.ratios(groups) | {"first_call_seconds": suite.first_call(repeats)}
    CONSOLE.print(ratios_table(f"{table.name}: ours ÷ the other side", spreads))
    CONSOLE.print(f"Peak of the backend: {memory.peak:.0f} MB, of them {memory.shared:.0f} MB shared.")
    return {
        **{name: spread.median for name, spread in spreads.items()},
        "backend_peak_mb": memory.peak,
        "backend_shared_mb": memory.shared,
        "spread": {name: asdict(spread) for name, spread in spreads.items()},
    }


def noisy(connection: psycopg.Connection, table: tables.Table, repeats: int) -> dict:
    """Measure epochs with noise in every update beside those of bolt-on."""
    samples = white_box.measure(connection, table, repeats)
    CONSOLE.print(times_table(f"{table.name}: one epoch, mini-batches of 50", {"white_box": samples}))
    spreads = white_box.ratios(samples)
    CONSOLE.print(ratios_table(f"{table.name}: noise in every update", spreads))
    return {"seconds": samples.seconds, "spread": {name: asdict(spread) for name, spread in spreads.items()}}


def commanded(connection: psycopg.Connection, table: tables.Table, repeats: int) -> dict:
    """Measure the processor time of short commands beside that of importing psycopg."""
    with ours.registered(connection, table):
        samples = command_line.measure(server.url(), ours.dataset_of(table), repeats)
    CONSOLE.print(times_table(f"{table.name}: processor time", {"command line": samples}))
    spreads = command_line.ratios(samples)
    CONSOLE.print(ratios_table("processor time: command ÷ import psycopg", spreads))
    return {"seconds": samples.seconds, "spread": {name: asdict(spread) for name, spread in spreads.items()}}


if __name__ == "__main__":
    main()
