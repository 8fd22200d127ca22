"""Commands that draw plots: utility and noise against ε, a budget over time, a loss by epoch, shapes."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from dbdp.algorithms import AUTO, Facts
from dbdp.interfaces.cli.click_adapter import Argument, Commands, option
from dbdp.interfaces.cli.plots import costs, panels, pictures, series
from dbdp.interfaces.cli.printing import (
    AsJson,
    LabelBounds,
    Labels,
    Negative,
    Positive,
    Url,
    console,
    for_owners,
    json_file,
    json_object,
    opened,
    show,
    show_done,
)
from dbdp.interfaces.python.progress_bar import progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dbdp.interfaces.python.client.database import Database

app = Commands()
plot = Commands(no_args_is_help=True, help="Draw a plot as PNG or SVG, by the suffix of the file's name.")
app.add_command(plot, "plot")

_EPSILONS = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
_PURE = ["bolt_on", "nsgd", "rsgd_ar", "output_perturbation_gd", "scs13"]
_COMPARED = [*_PURE, "bst14", "dp_sgd"]

Picture = Annotated[Path, Argument("File to write: a name that ends in .png or .svg.")]
Dataset = Annotated[str | None, option(help="A registered dataset.")]
Algorithms = Annotated[list[str], option("--algorithm", help="An algorithm; repeat for several.")]
Epsilons = Annotated[list[float], option("--epsilon", help="A value of ε; repeat for several.")]
Delta = Annotated[float, option(help="δ of each release; 0 is pure ε.")]
Options = Annotated[str, option(help='Further training options, as JSON: {"batch_size": 100}.')]
Repeats = Annotated[int, option(type=click.IntRange(1), help="Trainings of each algorithm and ε.")]
Yes = Annotated[bool, option("--yes", help="Spend the budget without asking.")]


@plot.command()
def noise(
    picture: Picture,
    dataset: Dataset = None,
    rows: Annotated[int | None, option(help="Public number of records, instead of a dataset.")] = None,
    features: Annotated[int | None, option(help="Coordinates of one model, with the intercept.")] = None,
    algorithms: Annotated[
        list[str] | None,
        option(
            "--algorithm",
            help=f"An algorithm; repeat for several. Default: {', '.join(_COMPARED)}; the last two need δ.",
        ),
    ] = None,
    epsilons: Epsilons = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0],  # noqa: B006  (the default that the help shows)
    delta: Delta = 1e-6,
    options: Options = "{}",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Draw the noise scale of plans against ε. It reads and spends nothing. With --rows no database is needed."""
    pictures.check(picture)
    compared = algorithms or (_COMPARED if delta else _PURE)
    requests = series.requests(compared, sorted(epsilons), {"delta": delta, **_further(options)})
    if rows is not None and features is not None and dataset is None:
        explain = series.of_facts(Facts(rows, features))
        curve = series.noise(f"{rows:,} rows, {features:,} features", explain, requests)
    elif dataset is not None and rows is None and features is None:
        with opened(url) as database:
            curve = series.noise(dataset, lambda request: database.explain(dataset, request), requests)
    else:
        raise click.BadParameter("pass --dataset, or both --rows and --features")
    _finish(lambda: pictures.noise(curve), picture, asdict(curve), as_json)


@plot.command()
def budget(dataset: str, picture: Picture, as_json: AsJson = False, url: Url = None) -> None:
    """Draw the charges over time that you may see, in total and by role, in percent of the budget."""
    pictures.check(picture)
    with opened(url) as database:
        curve = series.spending(database, dataset)
    _finish(lambda: pictures.budget(curve), picture, asdict(curve), as_json)


@plot.command()
def loss(
    dataset: str,
    picture: Picture,
    algorithm: Annotated[str, option(help=f"One of {', '.join(series.ONCE)}.")] = series.ONCE[0],
    options: Options = "{}",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Draw the loss of the EXACT model after each epoch: NOT PRIVATE, only for the owner of the table.

    Like `dbdp baseline`, it runs in this process with your own right to read the table, releases and stores nothing,
    and is not charged. No function of the server returns a loss. Choose step sizes and epochs by public data where you
    can: a choice by this plot leaks information about the rows.
    """
    pictures.check(picture)
    if algorithm not in series.ONCE:
        raise ValueError(
            f"algorithm {algorithm!r} has no exact model after each epoch; choose one of {', '.join(series.ONCE)}"
        )
    (request,) = series.requests([algorithm], [1.0], _further(options))  # no ε is spent
    with opened(url) as database, for_owners("a loss"):
        descent = database.descent(dataset, request)
    _finish(lambda: pictures.loss(descent), picture, asdict(descent), as_json)


@plot.command()
def shapes(
    model: Annotated[str, Argument("Number of a model, its name, or name@version.")],
    picture: Picture,
    of_class: Annotated[str | None, option("--class", help="Among several classes, the class to draw.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Draw how much each value of a column adds to the score of a model, the most important columns first."""
    pictures.check(picture)
    with opened(url) as database:
        shown = panels.shapes(database, model, of_class)
    _finish(lambda: panels.drawn(shown), picture, asdict(shown), as_json)


@plot.command()
def utility(
    picture: Picture,
    csv: Annotated[Path | None, option(help="PUBLIC rows: CSV with a header; nothing is charged.")] = None,
    label: Annotated[str | None, option(help="With --csv: column of the label.")] = None,
    features: Annotated[Path | None, option(help="With --csv: JSON file, as in `dbdp register`.")] = None,
    positive: Positive = None,
    negative: Negative = None,
    classes: Labels = None,
    label_bounds: LabelBounds = None,
    dataset: Annotated[str | None, option(help="A registered dataset; each training is CHARGED.")] = None,
    on: Annotated[str | None, option(help="With --dataset: table to score on, which you may read.")] = None,
    baseline: Annotated[bool, option(help="With --dataset: also train WITHOUT privacy, only for you.")] = False,
    yes: Yes = False,
    algorithms: Algorithms = [AUTO],  # noqa: B006
    epsilons: Epsilons = _EPSILONS,
    delta: Delta = 1e-6,
    repeats: Repeats = 5,
    options: Options = "{}",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Draw accuracy, or the error of a number, against ε, with the model without privacy and the majority class.

    With --csv the rows are public: they are loaded into a new database on the private server (or that of --url or
    DBDP_URL, as a superuser), which is dropped at the end. Every fifth row is held out for scoring. With --dataset
    each training is a release that is stored and charged. The cost is printed first. The table of --on is read without
    noise, even if the models were trained on it: the plot is as secret as that table.
    """
    pictures.check(picture)
    requests = series.requests(algorithms, sorted(epsilons), {"delta": delta, **_further(options)})
    if csv is not None and label is not None and features is not None and dataset is None and on is None:
        values = {"positive": positive, "negative": negative, "classes": classes or None, "label_bounds": label_bounds}
        described = {"label": label, **values, "features": json_file(features, "--features")}
        with _public(url, csv, described, requests, repeats) as (database, name, held_out):
            curve = _scored(database, name, held_out, requests, repeats, with_baseline=True, public_name=csv.name)
    elif dataset is not None and on is not None and csv is None:
        with opened(url) as database:
            _confirm_cost(database, dataset, requests, repeats, yes)
            curve = _scored(database, dataset, on, requests, repeats, with_baseline=baseline)
    else:
        raise click.BadParameter("pass --csv, --label and --features, or --dataset and --on")
    _finish(lambda: pictures.utility(curve), picture, _as_lists(asdict(curve)), as_json)


@contextmanager
def _public(
    url: str | None, csv: Path, described: dict[str, Any], requests: list[Any], repeats: int
) -> Iterator[tuple["Database", str, str]]:
    """Yield a database with public rows, the name of its dataset, and that of the table of held-out rows."""
    from dbdp.interfaces.cli.plots.public_rows import DATASET, HELD_OUT, PublicRows, scratch_database

    total = 1.01 * repeats * sum(request.epsilon for request in requests)
    delta = min(0.5, 1.01 * repeats * sum(request.delta for request in requests))
    with scratch_database(url, PublicRows(csv, described), epsilon=total, delta=delta) as database:
        yield database, DATASET, HELD_OUT


def _scored(
    database: "Database", dataset: str, table: str, requests: list[Any], repeats: int, **options: Any
) -> series.Utility:
    """Train all requests and score the models on the rows of a table."""
    rows = series.ScoringRows.read(database, dataset, table)
    with progress_bar() as progress:
        return series.utility(database, dataset, requests, repeats, rows, progress=progress, **options)


def _confirm_cost(database: "Database", dataset: str, requests: list[Any], repeats: int, yes: bool) -> None:
    """Print the cost of the trainings, and ask for confirmation unless `yes`."""
    priced = costs.cost(database, dataset, requests, repeats)
    bill = costs.check_cost(database, dataset, priced)
    if yes:
        click.echo(f"charging {bill}", err=True)
        return
    console.stderr = True
    shown = ("algorithm", "epsilon", "trainings", "charge", "leak")
    show([{key: row[key] for key in shown} for row in priced], False, f"charged to {dataset}")
    console.stderr = False
    click.confirm(f"Charge {bill}?", abort=True, err=True)


def _further(options: str) -> dict[str, Any]:
    return json_object(options, f"--options {options!r}")


def _finish(draw: Callable[[], "Figure"], picture: Path, data: dict[str, Any], as_json: bool) -> None:
    """Draw and save a plot; if that fails, print its numbers, which may have been charged."""
    try:
        pictures.save(draw(), picture)
    except Exception as error:
        print(json.dumps(data, default=str))
        raise RuntimeError(f"picture {str(picture)!r} is not drawn: {error}; its numbers are on stdout") from error
    show_done(f"{picture} is drawn", as_json, picture=str(picture), **data)


def _as_lists(data: dict[str, Any]) -> dict[str, Any]:
    """Return a plot's numbers with lists instead of arrays."""
    return data | {"scores": {name: values.tolist() for name, values in data["scores"].items()}}
