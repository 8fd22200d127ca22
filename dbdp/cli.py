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
from dbdp.algorithms.bounds import BETA
from dbdp.algorithms.metrics import METRICS
from dbdp.algorithms.score_bins import BINS
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
    unit: Annotated[str | None, typer.Option(help="Column whose rows of one value are protected together.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Rows that are read of each unit, at most.")] = None,
    public_columns: Annotated[
        list[str] | None, typer.Option("--public-column", help="A column of public keys, to group by; give each.")
    ] = None,
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
            unit=unit,
            max_rows=max_rows,
            public_columns=public_columns,
        )
    console.print(f"dataset {name} is registered")


@app.command("grant-training")
def grant_training(
    dataset: str,
    role: str,
    epsilon: Annotated[
        float | None, typer.Option(help="Part of the dataset's ε that it may spend; default: all.")
    ] = None,
    url: Url = None,
) -> None:
    """Let a role train on a dataset that you registered."""
    with _database(url) as database:
        database.grant_training(dataset, role, epsilon=epsilon)
    console.print(f"{role} may train on {dataset}")


@app.command("revoke-training")
def revoke_training(dataset: str, role: str, url: Url = None) -> None:
    """End a role's right to train on a dataset; what it spent stays spent."""
    with _database(url) as database:
        database.revoke_training(dataset, role)
    console.print(f"{role} may no longer train on {dataset}")


@app.command()
def allowances(as_json: AsJson = False, url: Url = None) -> None:
    """List who may train on which dataset, how much each may spend, and has spent."""
    with _database(url) as database:
        _show(database.allowances(), as_json, "allowances")


@app.command("grant-prediction")
def grant_prediction(model: int, role: str, url: Url = None) -> None:
    """Let a role predict with a model that you released, or whose dataset you registered."""
    with _database(url) as database:
        database.grant_prediction(model, role)
    console.print(f"{role} may predict with model {model}")


@app.command("revoke-prediction")
def revoke_prediction(model: int, role: str, url: Url = None) -> None:
    """End a role's right to predict with a model."""
    with _database(url) as database:
        database.revoke_prediction(model, role)
    console.print(f"{role} may no longer predict with model {model}")


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
    """List the datasets that you may train on."""
    with _database(url) as database:
        rows = database.datasets()
    _show(
        rows if as_json else [{k: v for k, v in row.items() if k != "declaration"} for row in rows],
        as_json,
        "datasets",
    )


@app.command()
def models(as_json: AsJson = False, url: Url = None) -> None:
    """List the released models that you may predict with."""
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


GroupBy = Annotated[str, typer.Option(help="A public column of the dataset.")]
Groups = Annotated[list[str], typer.Option("--group", help="A value of the column that gets a model; give each.")]


@app.command("train-groups")
@taking_a_request
def train_groups(
    dataset: str, request: Request, group_by: GroupBy, groups: Groups, as_json: AsJson = False, url: Url = None
) -> None:
    """Train a private model for each group of rows, for one charge, and store the releases."""
    from dbdp.progress import progress_bar

    with _database(url) as database, progress_bar() as progress:
        found = database.train_groups(dataset, request, group_by=group_by, groups=groups, progress=progress)
    if as_json:
        print(json.dumps({group: vars(model) for group, model in found.items()}, default=str))
        return
    rows = [
        {
            "group": group,
            "rows": model.receipt["rows"],
            "model": model.id,
            "noise_scale": model.receipt.get("noise_scale"),
        }
        for group, model in found.items()
    ]
    _show(rows, as_json, f"models of {dataset} by {group_by}")
    receipt = next(iter(found.values())).receipt
    show_mapping({name: receipt[name] for name in ("mode", "order", "charge", "leak")}, "charged once")


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


Epsilon = Annotated[float, typer.Option(help="ε of what is shown.")]
Delta = Annotated[float, typer.Option(help="δ of what is shown; 0 asks for pure ε.")]


@app.command()
def score(
    model: int,
    dataset: str,
    epsilon: Epsilon,
    metric: Annotated[str, typer.Option(help=", ".join(METRICS) + ".")] = METRICS[0],
    delta: Delta = 0.0,
    bins: Annotated[int, typer.Option(help="Bins of the histogram behind auc and calibration.")] = BINS,
    positive: Annotated[
        str | None, typer.Option(help="Of several classes, the one auc and calibration are of.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Judge a released model on a dataset, with noise; charged like a release."""
    with _database(url) as database:
        found = database.score(model, dataset, metric, epsilon=epsilon, delta=delta, bins=bins, positive=positive)
    _show_figures(found, as_json, f"model {model} on {dataset}")


@app.command()
def confusion(
    model: int, dataset: str, epsilon: Epsilon, delta: Delta = 0.0, as_json: AsJson = False, url: Url = None
) -> None:
    """Count rows by true and predicted class, with noise: the confusion matrix of a released model."""
    with _database(url) as database:
        found = database.confusion(model, dataset, epsilon=epsilon, delta=delta)
    _show_figures(found, as_json, f"model {model} on {dataset}")


@app.command()
def bounds(
    dataset: str,
    column: str,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    beta: Annotated[float, typer.Option(help="Chance that the bounds are wider than the numbers.")] = BETA,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Find bounds of a numeric column, with noise; for the role that registered the dataset."""
    with _database(url) as database:
        found = database.bounds(dataset, column, epsilon=epsilon, delta=delta, beta=beta)
    _show_figures(found, as_json, f"{column} of {dataset}")


@app.command("class-balance")
def class_balance(dataset: str, epsilon: Epsilon, delta: Delta = 0.0, as_json: AsJson = False, url: Url = None) -> None:
    """Count the rows of each class, with noise."""
    with _database(url) as database:
        found = database.class_balance(dataset, epsilon=epsilon, delta=delta)
    _show_figures(found, as_json, dataset)


def _show_figures(found: dict[str, Any], as_json: bool, title: str) -> None:
    """Print what a score or its like returns: a table where it has rows, the figures, the receipt."""
    if as_json:
        print(json.dumps(found))
        return
    if rows := _rows(found):
        _show(rows, False, title)
    show_mapping({name: value for name, value in found.items() if not isinstance(value, list | dict)}, title)
    show_mapping(found["receipt"], "receipt")


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the table that a score or its like has, if it has one."""
    names = ["(other)" if name is None else name for name in found.get("classes", [])]
    if "matrix" in found:
        measures = zip(names, found["matrix"], found["precision"], found["recall"], strict=True)
        return [
            {"true class": name, **{f"as {other}": cell for other, cell in zip(names, cells, strict=True)}}
            | {"precision": precision, "recall": recall}
            for name, cells, precision, recall in measures
        ]
    if "shares" in found:
        measures = zip(names, found["counts"], found["shares"], found["share_noise"], strict=True)
        return [dict(zip(("class", "rows", "share", "share_noise"), each, strict=True)) for each in measures]
    return found.get("calibration") or found.get("bins") or []


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
UnitRows = Annotated[int, typer.Option(help="Records of each unit of privacy; ROWS is units times this.")]
Classes = Annotated[int, typer.Option(help="Classes of a one-vs-rest training; 1 for a binary label or a number.")]


@app.command()
@taking_a_request
def explain(
    request: Request,
    rows: Rows,
    features: Features,
    classes: Classes = 1,
    max_rows: UnitRows = 1,
    as_json: AsJson = False,
) -> None:
    """Show plan, sensitivity and noise scale of a training; needs no database and spends nothing."""
    is_classifier = request.loss not in ("huber_regression", "squared")
    described = plan(request, Facts(rows, features, classes, is_classifier, unit_rows=max_rows)).explain()
    if as_json:
        print(json.dumps(described))
    else:
        show_mapping(described, "plan")


@app.command()
def web(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 8433,
    host: Annotated[str, typer.Option(help="An address of this machine's own: 127.0.0.1 or ::1.")] = "127.0.0.1",
    url: Url = None,
) -> None:
    """Serve a page of datasets, budgets, models and plans on this machine; sign in as a role of the database."""
    try:
        from dbdp.web.serving import serve
    except ModuleNotFoundError as error:
        raise ValueError(f"dbdp web needs {error.name}; install it by: pip install 'dbdp[web]'") from None
    from dbdp.database import default_url

    serve(url or default_url(), host, port, lambda address: console.print(address, soft_wrap=True, highlight=False))


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
