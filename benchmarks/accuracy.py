"""Accuracy of every algorithm on Adult and Bank, beside no privacy and the majority: `python -m benchmarks.accuracy`.

Rows are held out by their number: every fifth tests, the others are registered and train, in the database.
Bounds and categories are public: Adult's are those of its documentation, Bank's were set by hand from its own.
"""

import argparse
import csv
import gzip
import io
import json
import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import sql
from rich.console import Console
from rich.progress import track
from rich.table import Table as RichTable

from benchmarks import server
from benchmarks.harness import write_json
from dbdp.algorithms import ALGORITHMS, Request
from dbdp.interfaces.cli.demo import adult
from dbdp.interfaces.cli.plots.curves import ScoringRows
from dbdp.interfaces.python.database import Database, connect

CONSOLE = Console()
EPSILONS, DELTA, REPEATS, HELD_OUT = (0.1, 0.4, 1.6), 1e-8, 5, 5
BANK_FEATURES: dict[str, Any] = {
    "age": [18, 100],
    "balance": [-10_000, 100_000],
    "day": [1, 31],
    "duration": [0, 3600],
    "campaign": [1, 50],
    "pdays": [-1, 999],
    "previous": [0, 50],
    "job": ["admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired", "self-employed", "services",
            "student", "technician", "unemployed", "unknown"],
    "marital": ["divorced", "married", "single"],
    "education": ["primary", "secondary", "tertiary", "unknown"],
    "default": ["no", "yes"],
    "housing": ["no", "yes"],
    "loan": ["no", "yes"],
    "contact": ["cellular", "telephone", "unknown"],
    "month": ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "poutcome": ["failure", "other", "success", "unknown"],
}  # fmt: skip
# Rows are short here (norm 1 for as many columns), so that a regulariser of 1e-3 alone leaves the majority's model.
REGULARISATION = 1e-4
SETTINGS: dict[str, dict[str, Any]] = {
    "bolt_on": {"regularisation": REGULARISATION},
    "nsgd": {"regularisation": REGULARISATION, "batch_size": 500},
    "rsgd_ar": {"regularisation": REGULARISATION, "batch_size": 500},
    "output_perturbation_gd": {"epochs": 50},
    "scs13": {"regularisation": REGULARISATION, "batch_size": 500},
    "bst14": {"regularisation": REGULARISATION},
}
NO_PRIVACY, MAJORITY = "no privacy", "majority, exact"


@dataclass(frozen=True)
class Data:
    """A table of raw columns."""

    name: str
    label: str
    positive: str
    features: Mapping[str, Any]
    rows: list[dict[str, str]]


def bank() -> Data:
    """Return Bank of UCI (Moro, Cortez & Rita 2014)."""
    path = Path(os.environ.get("DBDP_DATA", "../shared/data")) / "bank" / "bank.csv.gz"
    with gzip.open(path, "rt") as file:
        return Data("bank", "y", "yes", BANK_FEATURES, list(csv.DictReader(file)))


def adult_rows() -> Data:
    """Return Adult, real or generated: see `adult.read`."""
    text, origin = adult.read()
    CONSOLE.print(origin)
    return Data("adult", adult.LABEL, adult.POSITIVE, adult.DECLARED, list(csv.DictReader(io.StringIO(text))))


@contextmanager
def loaded(database: Database, data: Data) -> Iterator[None]:
    """Load the two parts of a table, and register the first with a budget that no run exhausts, within the block."""
    columns = [data.label, *data.features]
    for number, table in enumerate(tables(data)):
        kinds = {name: "text" if name == data.label or is_text(data.features[name]) else "float8" for name in columns}
        defined = sql.SQL(", ").join(sql.SQL(f"{{}} {kinds[name]}").format(sql.Identifier(name)) for name in columns)
        connection = database.connection
        connection.execute(sql.SQL("drop table if exists {}").format(sql.Identifier(table)))
        connection.execute(sql.SQL("create table {} ({})").format(sql.Identifier(table), defined))
        with connection.cursor().copy(sql.SQL("copy {} from stdin").format(sql.Identifier(table))) as copy:
            for place, row in enumerate(data.rows):
                if (place % HELD_OUT == 0) == bool(number):
                    copy.write_row([row[name] for name in columns])
    if any(row["name"] == data.name for row in database.datasets()):
        database.drop_dataset(data.name)
    database.register_dataset(
        data.name, tables(data)[0], label=data.label, positive=data.positive, features=data.features, epsilon=1e6,
        delta=0.1, mode="basic",
    )  # fmt: skip
    yield
    database.drop_dataset(data.name)
    for table in tables(data):
        database.connection.execute(sql.SQL("drop table {}").format(sql.Identifier(table)))


def tables(data: Data) -> tuple[str, str]:
    """Return the table that trains, and the one that tests."""
    return f"accuracy_{data.name}", f"accuracy_{data.name}_test"


def is_text(feature: Any) -> bool:
    """Return whether a declared feature is a list of categories."""
    return isinstance(feature[0], str)


def accuracy(database: Database, data: Data, model: int) -> float:
    """Return the share of the held-out rows that a released model labels correctly, by dbdp.predict."""
    query = sql.SQL(
        "select avg((dbdp.predict({model}, t) = (t.{label} = {positive}))::int)::float8 as share from {table} t"
    ).format(
        model=sql.Literal(model),
        label=sql.Identifier(data.label),
        positive=sql.Literal(data.positive),
        table=sql.Identifier(tables(data)[1]),
    )
    return database.query(query.as_string(database.connection))[0]["share"]


def references(database: Database, data: Data) -> dict[str, float]:
    """Return the accuracy without privacy, without and with the regulariser, and of the larger class."""
    held_out = [row for place, row in enumerate(data.rows) if place % HELD_OUT == 0]
    positive = statistics.fmean(row[data.label] == data.positive for row in held_out)
    shares = {MAJORITY: max(positive, 1 - positive)}
    scoring_rows = ScoringRows.read(database, data.name, tables(data)[1])
    for regularisation in (1e-5, REGULARISATION, 1e-3):
        model = database.baseline(data.name, Request(1.0, regularisation=regularisation))
        shares[f"{NO_PRIVACY}, λ = {regularisation:g}"] = scoring_rows.score(model.coefficients, model.intercepts)
    return shares


def measured(database: Database, data: Data, options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Return the accuracies of every algorithm at every ε, one for each run."""
    accuracies: dict[str, dict[str, list[float]]] = {}
    for algorithm in track(options.algorithms, f"{data.name}", console=CONSOLE):
        accuracies[algorithm] = {}
        for epsilon in options.epsilons:
            request = Request(epsilon, DELTA, algorithm=algorithm, **SETTINGS.get(algorithm, {}))
            models = [database.train(data.name, request).id for _ in range(options.repeats)]
            accuracies[algorithm][str(epsilon)] = [accuracy(database, data, model) for model in models]
    return accuracies


def shown(data: Data, accuracies: Mapping[str, Mapping[str, list[float]]], beside: Mapping[str, float]) -> RichTable:
    """Return a table of mean and deviation for each algorithm and ε."""
    table = RichTable("algorithm", *(f"ε = {epsilon}" for epsilon in next(iter(accuracies.values()))), title=data.name)
    for algorithm, figures in accuracies.items():
        cells = (f"{statistics.fmean(runs):.3f} ± {statistics.stdev(runs):.3f}" for runs in figures.values())
        table.add_row(algorithm, *cells)
    for name, share in beside.items():
        table.add_row(name, f"{share:.3f}")
    return table


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--datasets", nargs="+", default=["adult", "bank"], choices=["adult", "bank"])
    parser.add_argument("--json", type=Path, default=Path("build/accuracy.json"))
    return parser.parse_args()


def main() -> None:
    """Train everything and write the report."""
    options, report = arguments(), {}
    with server.connect() as connection:
        database = connect(connection)
        for name in options.datasets:
            data = adult_rows() if name == "adult" else bank()
            with loaded(database, data):
                beside, accuracies = references(database, data), measured(database, data, options)
            report[name] = {"accuracy": accuracies, "beside": beside, "settings": SETTINGS}
            CONSOLE.print(shown(data, accuracies, beside))
            write_json(options.json, json.loads(json.dumps(report)))
    CONSOLE.print(f"Written to {options.json}.")


if __name__ == "__main__":
    main()
