"""Errors of statistics: `python -m benchmarks.statistics`, or `make bench-statistics`; the table is Markdown."""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import server
from benchmarks.statistics import truth
from benchmarks.statistics.ours import NAME, Ours
from benchmarks.statistics.peers import OpenDp, SmartNoise
from benchmarks.statistics.truth import CATEGORIES, NUMBERS, Figures

DELTA = 1e-6
EPSILONS, OF_ROWS = (0.1, 0.5, 1.0), (0.4, 1.6)
TRAINED = 0.8  # of the rows, for synthetic ones
MANY = 500_000  # rows, for the time
PEERS = {"opendp": OpenDp, "snsql": SmartNoise}


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.statistics", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="releases of dbdp")
    parser.add_argument("--peers", type=int, default=3, help="releases of each other system; 0 leaves them out")
    parser.add_argument("--folder", type=Path, default=Path("build/statistics"), help="of the table")
    return parser.parse_args()


def main() -> int:
    """Measure everything, print the table and write it."""
    warnings.filterwarnings("ignore")
    options = arguments()
    with server.connect() as connection:
        ours = Ours(connection, truth.rows())
        lines = header("ε", EPSILONS)
        lines += of_system(ours, options.repeats)
        for module, system in PEERS.items():
            if options.peers and find_spec(module):
                lines += of_system(system(truth.rows()), options.peers)
        lines += ["", *header("synthetic rows, ε", OF_ROWS), *synthetic(connection, max(options.repeats // 7, 1))]
        lines += ["", *times(connection)]
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0


def header(first: str, epsilons: tuple[float, ...]) -> list[str]:
    """Return the head of a table."""
    return [f"| {first} | system | {' | '.join(map(str, epsilons))} |", "|---" * (2 + len(epsilons)) + "|"]


def line(what: str, system: str, cells: list[str]) -> str:
    """Return a line of a table."""
    return f"| {what} | {system} | {' | '.join(cells)} |"


def of_system(system: Any, repeats: int) -> Iterator[str]:
    """Yield a line for each measure of a system."""
    described, tabled, pure, seconds = [], [], [], []
    for epsilon in EPSILONS:
        begun = time.perf_counter()
        described.append([system.describe(epsilon, DELTA) for _ in range(repeats)])
        seconds.append((time.perf_counter() - begun) / repeats)
        tabled.append([system.table(epsilon, DELTA) for _ in range(repeats)])
        pure.append([system.table(epsilon, 0.0) for _ in range(repeats)])
    measures: dict[str, tuple[list[list[Figures]], Callable[[list[Figures]], str]]] = {
        "error of a mean, in standard deviations: average": (described, of_means(np.mean)),
        "… of the worst column": (described, of_means(np.max)),
        "error of a quartile's rank": (described, of_quartiles),
        "error of a category's count: RMS, rows": (described, root_mean_square(None)),
        "one table of occupation × income: RMS, rows": (tabled, root_mean_square(truth.GROUPS)),
        "… with δ = 0": (pure, root_mean_square(truth.GROUPS)),
    }
    for what, (releases, measured) in measures.items():
        yield line(what, system.name, [measured(each) for each in releases])
    yield line("seconds for a describe", system.name, [f"{each:.2g}" for each in seconds])


def of_means(combined: Callable[[np.ndarray], Any]) -> Callable[[list[Figures]], str]:
    """Return the error of means, of the columns together."""
    return lambda releases: f"{combined(np.mean([truth.mean_errors(each) for each in releases], axis=0)):.4f}"


def of_quartiles(releases: list[Figures]) -> str:
    """Return the mean error of quartiles' ranks; a dash without any."""
    found = [error for each in releases for error in truth.rank_errors(each)]
    return f"{np.mean(found):.5f}" if found else "–"


def root_mean_square(by: tuple[str, ...] | None) -> Callable[[list[Figures]], str]:
    """Return the root mean square error of counts."""
    return lambda releases: f"{np.sqrt(np.mean([np.square(truth.count_errors(each, by)) for each in releases])):.1f}"


def synthetic(connection: Any, repeats: int) -> Iterator[str]:
    """Yield lines for synthetic rows, from a part of the rows; the others test, and show what real rows reach."""
    places = np.random.default_rng(1).permutation(len(truth.rows()))
    cut = round(TRAINED * len(places))
    train, test = (truth.rows().iloc[each].reset_index(drop=True) for each in (places[:cut], places[cut:]))
    real = [f"{truth.distance(train, test, 3):.3f}", f"{truth.boosting_auc(train, test):.3f}"]
    ours, found = Ours(connection, train), []
    for epsilon in OF_ROWS:
        drawn = [ours.synthetic(epsilon, DELTA, cut) for _ in range(repeats)]
        found.append(np.mean([(truth.distance(train, each, 3), truth.boosting_auc(each, test)) for each in drawn], 0))
    for place, what in enumerate(("distance of tables of three columns", "AUC of boosting on real rows")):
        yield line(what, "dbdp", [f"{each[place]:.3f}" for each in found])
        yield line(what, "real rows", [real[place]] * len(OF_ROWS))


def times(connection: Any) -> Iterator[str]:
    """Yield the server's time to describe many rows, and to aggregate the same columns in one plain query."""
    rows = pd.concat([truth.rows()] * (MANY // len(truth.rows()) + 1)).head(MANY)
    ours = Ours(connection, rows)
    connection.execute("set max_parallel_workers_per_gather = 0")
    aggregates = [f"count({name}), avg({name}), stddev({name})" for name in NUMBERS]
    aggregates += [f"count({name})" for name in CATEGORIES]
    scan = ours.seconds(f"select {', '.join(aggregates)} from {NAME}")
    described = ours.seconds(f"select * from dbdp.dp_describe('{NAME}', 0.5, {DELTA})")
    yield f"{MANY:,} rows: a describe takes {described:.2f} s, one plain query of means and counts {scan:.2f} s."
    ours.close()


if __name__ == "__main__":
    sys.exit(main())
