"""The command line: `dbdp`, by typer and rich."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dbdp import __version__
from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.tuning import TuningRequest, parsed
from dbdp.options import HELP, taking_a_request

app = typer.Typer(
    no_args_is_help=True, add_completion=True, help="Differentially private machine learning in PostgreSQL."
)
server = typer.Typer(no_args_is_help=True, help="The private PostgreSQL of this virtual environment.")
app.add_typer(server, name="server")
console = Console()

Url = Annotated[str | None, typer.Option(help="Server to use; default DBDP_URL, else the private one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Positive = Annotated[str | None, typer.Option(help="The label's positive value.")]
Negative = Annotated[str | None, typer.Option(help="Its negative value; default: any other.")]
Labels = Annotated[list[str] | None, typer.Option("--class", help="A class of the label; give each.")]
LabelBounds = Annotated[
    tuple[float, float] | None, typer.Option(metavar="LOWER UPPER", help="Bounds of a label that is a number.")
]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]


def main() -> None:
    """Run the command line; turn our errors into one line and exit code 1."""
    from psycopg import Error

    try:
        app()
    except (ValueError, OSError, RuntimeError, Error) as error:
        Console(stderr=True, highlight=False).print(f"[red]error:[/red] {_plain(error)}", soft_wrap=True)
        sys.exit(1)


def _plain(error: Exception) -> str:
    from rich.markup import escape

    diagnosis = getattr(error, "diag", None)
    text = getattr(diagnosis, "message_primary", None) or str(error).strip()
    hint = getattr(diagnosis, "message_hint", None)
    return escape(text + (f"\n{hint}" if hint else ""))


@contextmanager
def _database(url: str | None) -> Iterator[Any]:
    from dbdp.database import connect

    with connect(url) as database:
        yield database


def _show(rows: list[dict[str, Any]], as_json: bool, title: str) -> None:
    if as_json:
        print(json.dumps(rows, default=str))
        return
    table = Table(title=title)
    for column in rows[0] if rows else ["(none)"]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table)


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose exact decimals are floats, for JSON and for tables."""
    return {key: float(value) if isinstance(value, Decimal) else value for key, value in row.items()}


def show_mapping(values: dict[str, Any], title: str) -> None:
    """Print names and values as a table."""
    table = Table(title=title, show_header=False)
    for name, value in values.items():
        table.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    console.print(table)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def demo(url: Url = None) -> None:
    """Load Adult, train at ε = 1 through both doors, and print all that was done."""
    from dbdp.demo import run

    with _database(url) as database:
        run(database, console)


@app.command()
def install(
    url: Annotated[str, typer.Option(help="libpq URL of a superuser, on the server's machine.")],
) -> None:
    """Put the extension's files in place and create the extension."""
    from dbdp.installer import install as install_extension

    install_extension(url)
    console.print(f"extension dbdp {__version__} is installed")


@app.command()
def uninstall(url: Annotated[str, typer.Option(help="libpq URL of a superuser.")]) -> None:
    """Drop the extension, with all datasets, budgets and models of that database."""
    from dbdp.installer import uninstall as uninstall_extension

    uninstall_extension(url)
    console.print("extension dbdp is dropped")


@app.command()
def register(
    name: str,
    table: str,
    label: Annotated[str, typer.Option(help="The label's column.")],
    features: Annotated[Path, typer.Option(help="JSON file: column → bounds, categories, or length and norm.")],
    delta: Annotated[float, typer.Option(help="Total δ of the dataset.")],
    epsilon: Annotated[float | None, typer.Option(help="Total ε of the dataset.")] = None,
    rho: Annotated[float | None, typer.Option(help="Total ρ of the dataset, in place of ε.")] = None,
    positive: Positive = None,
    negative: Negative = None,
    classes: Labels = None,
    label_bounds: LabelBounds = None,
    intercept: bool = True,
    mode: Annotated[str, typer.Option(help="Composition: renyi, basic, gaussian or zcdp.")] = "renyi",
    url: Url = None,
) -> None:
    """Declare a table once: public facts and a total budget."""
    with _database(url) as database:
        database.register_dataset(
            name,
            table,
            label=label,
            positive=positive,
            negative=negative,
            classes=classes or None,
            label_bounds=label_bounds,
            features=json.loads(features.read_text()),
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            intercept=intercept,
            mode=mode,
        )
    console.print(f"dataset {name} is registered")


@app.command()
def budget(
    name: str,
    delta: Annotated[float, typer.Option(help="δ of the release that epsilon_left is for.")] = 0.0,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show what a dataset has spent, what is left, and what is promised over all its registrations."""
    with _database(url) as database:
        found = _numbers(database.budget(name, release_delta=delta))
    _show_budget(found, as_json)


def _show_budget(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
    else:
        show_mapping(found, "budget")


@app.command()
def ledger(
    name: Annotated[str | None, typer.Argument(help="A dataset; default all.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the charges: who, when, what for, how much, and what became of it."""
    shown = ("id", "charged_at", "charged_by", "dataset", "algorithm", "charge", "leak", "outcome", "models")
    with _database(url) as database:
        rows = [_numbers(row) for row in database.history(name)]
    _show(rows if as_json else [{key: row[key] for key in shown} for row in rows], as_json, "ledger")


@app.command("check-ledger")
def check_ledger(as_json: AsJson = False, url: Url = None) -> None:
    """Compare ledger, odometers and limits of your registrations; exit code 1 if they do not agree."""
    with _database(url) as database:
        rows = [_numbers(row) for row in database.check_ledger()]
    _show(rows, as_json, "check of the ledger")
    if not all(row["ok"] for row in rows):
        raise typer.Exit(1)


@app.command()
def renew(
    name: str,
    reason: Reason,
    epsilon: Annotated[float | None, typer.Option(help="ε of the new budget; default the same.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of the new budget; default the same.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """End a dataset's budget and begin a new one; what is promised over both adds up."""
    with _database(url) as database:
        database.renew_budget(name, reason, epsilon=epsilon, delta=delta)
        found = _numbers(database.budget(name))
    _show_budget(found, as_json)


@app.command()
def redeclare(
    name: str,
    reason: Reason,
    features: Annotated[Path | None, typer.Option(help="JSON file: column → bounds, categories, or length.")] = None,
    positive: Positive = None,
    negative: Negative = None,
    classes: Labels = None,
    label_bounds: LabelBounds = None,
    url: Url = None,
) -> None:
    """Correct what was declared of a dataset; its budget and its models stay as they are."""
    corrections = {"positive": positive, "negative": negative, "classes": classes, "label_bounds": label_bounds}
    with _database(url) as database:
        given = json.loads(features.read_text()) if features else None
        database.redeclare(name, reason, features=given, **corrections)
    console.print(f"dataset {name} is declared anew")


@app.command()
def datasets(as_json: AsJson = False, url: Url = None) -> None:
    """List the registered datasets."""
    with _database(url) as database:
        rows = database.datasets()
    _show(
        rows if as_json else [{k: v for k, v in row.items() if k != "declaration"} for row in rows],
        as_json,
        "datasets",
    )


@app.command()
def models(as_json: AsJson = False, url: Url = None) -> None:
    """List the released models."""
    shown = ("id", "dataset", "algorithm", "epsilon", "delta")
    with _database(url) as database:
        rows = database.models()
    _show(rows if as_json else [{k: row[k] for k in shown} for row in rows], as_json, "models")


@app.command()
@taking_a_request
def train(dataset: str, request: Request, as_json: AsJson = False, url: Url = None) -> None:
    """Train a private model on a registered dataset, and store the release."""
    from dbdp.progress import progress_bar

    with _database(url) as database, progress_bar() as progress:
        model = database.train(dataset, request, progress)
    _show_model(model, as_json)


def _show_model(model: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(vars(model), default=str))
    else:
        show_mapping(model.receipt, f"receipt of model {model.id}")


Loss = Annotated[str, typer.Option(help=HELP["loss"])]
Regularisation = Annotated[float | None, typer.Option(help=HELP["regularisation"])]


@app.command()
def baseline(
    dataset: str,
    loss: Loss = "logistic",
    regularisation: Regularisation = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Train WITHOUT privacy, by L-BFGS, to compare with; for the owner of the table. Nothing is stored."""
    request = Request(1.0, loss=loss, regularisation=regularisation)  # no ε is spent
    with _database(url) as database:
        found = database.baseline(dataset, request)
    if as_json:
        print(json.dumps(vars(found)))
    else:
        show_mapping(vars(found), f"{dataset} without privacy: do not publish")


Candidates = Annotated[Path, typer.Option(help='JSON file: [{"regularisation": 0.01}, …].')]
Method = Annotated[str, typer.Option(help="disjoint_portions or random_repetition.")]
MeanRuns = Annotated[float | None, typer.Option(help="Mean number of runs of random_repetition.")]
Distribution = Annotated[str | None, typer.Option(help="Law of the number of runs: geometric or poisson.")]


@app.command()
@taking_a_request
def tune(
    dataset: str,
    request: Request,
    candidates: Candidates,
    method: Method = "disjoint_portions",
    repetitions: MeanRuns = None,
    distribution: Distribution = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Choose privately among settings, and store the chosen model."""
    from dbdp.progress import progress_bar

    given = TuningRequest(request, parsed(candidates.read_text()), method, repetitions, distribution)
    with _database(url) as database, progress_bar() as progress:
        model = database.tune(dataset, given, progress)
    _show_model(model, as_json)


@app.command()
def confusion(
    model: int,
    dataset: str,
    epsilon: Annotated[float, typer.Option(help="ε of this matrix.")],
    delta: Annotated[float, typer.Option(help="δ of this matrix; 0 asks for pure ε.")] = 0.0,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Count rows by true and predicted class, with noise: the confusion matrix of a released model."""
    with _database(url) as database:
        found = database.confusion(model, dataset, epsilon=epsilon, delta=delta)
    if as_json:
        print(json.dumps(found))
        return
    names = ["(other)" if name is None else name for name in found["classes"]]
    measures = zip(names, found["matrix"], found["precision"], found["recall"], strict=True)
    rows = [
        {"true class": name, **{f"as {other}": cell for other, cell in zip(names, cells, strict=True)}}
        | {"precision": precision, "recall": recall}
        for name, cells, precision, recall in measures
    ]
    _show(rows, as_json, f"model {model} on {dataset}")
    show_mapping(found["receipt"] | {"accuracy": found["accuracy"]}, "receipt")


@app.command()
def predict(
    model: int,
    table: str,
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = 20,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Score rows of a table: the row, and the probability of the positive class, the class, or the value."""
    from psycopg import sql

    doors = {"binary": ("predict_probability", "probability"), "classes": ("predict_class", "class")}
    with _database(url) as database:
        declaration = _declaration_of(database, model)
        door, column = doors.get(declaration.kind, ("predict_value", "value"))
        vector = declaration.vector
        statement = sql.SQL(
            "select t.*, dbdp.{door}({model}, {argument}) as {column} from {table} as t limit {limit}"
        ).format(
            door=sql.Identifier(door),
            model=sql.Literal(model),
            argument=sql.SQL("t.{}").format(sql.Identifier(vector.column) if vector else sql.SQL("*")),
            column=sql.Identifier(column),
            table=sql.Identifier(*table.split(".")),
            limit=sql.Literal(limit),
        )
        rows = database.query(statement.as_string(database.connection))
    _show(rows, as_json, f"model {model} on {table}")


def _declaration_of(database: Any, model: int) -> Any:
    from dbdp.declarations import Declaration

    found = database.query("select declaration::text as declaration from dbdp.model where id = $1", model)
    if not found:
        raise ValueError(f"model {model} does not exist; see `dbdp models`")
    return Declaration.from_json(found[0]["declaration"])


Rows = Annotated[int, typer.Option(help="Number of records, public.")]
Features = Annotated[int, typer.Option(help="Coordinates of one model, with the intercept.")]
Classes = Annotated[int, typer.Option(help="Classes of a one-vs-rest training; 1 for a binary label or a number.")]


@app.command()
@taking_a_request
def explain(request: Request, rows: Rows, features: Features, classes: Classes = 1, as_json: AsJson = False) -> None:
    """Show plan, sensitivity and noise scale of a training; needs no database and spends nothing."""
    is_classifier = request.loss not in ("huber_regression", "squared")
    described = plan(request, Facts(rows, features, classes, is_classifier)).explain()
    if as_json:
        print(json.dumps(described))
    else:
        show_mapping(described, "plan")


@server.command("start")
def server_start() -> None:
    """Start the private server; make it first when there is none."""
    cluster = _cluster()
    cluster.start()
    console.print(cluster.url, soft_wrap=True, highlight=False)


@server.command("stop")
def server_stop() -> None:
    """Stop the private server; its data stays."""
    _cluster().stop()


@server.command("status")
def server_status(as_json: AsJson = False) -> None:
    """Say whether the private server runs, and where it is."""
    status = _cluster().status()
    if as_json:
        print(json.dumps(status))
    else:
        show_mapping(status, "private server")


@server.command("url")
def server_url() -> None:
    """Print the private server's URL."""
    print(_cluster().url)


@server.command("psql", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def server_psql(context: typer.Context) -> None:
    """Open psql on the private server; further arguments go to psql."""
    sys.exit(_cluster().psql(context.args))


def _cluster() -> Any:
    from dbdp.cluster import Cluster

    return Cluster.default()


if __name__ == "__main__":
    main()
