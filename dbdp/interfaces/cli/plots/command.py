"""Commands that draw: utility and noise against ε, a budget over time, a descent."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dbdp.algorithms import Facts
from dbdp.interfaces.cli.output import (
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
from dbdp.interfaces.cli.plots import curves, pictures
from dbdp.interfaces.python.progress import progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dbdp.interfaces.python.database import Database

app = typer.Typer()
plot = typer.Typer(no_args_is_help=True, help="Draw a picture: PNG or SVG, as the file's name ends.")
app.add_typer(plot, name="plot")

_EPSILONS = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
_PURE = ["bolt_on", "nsgd", "rsgd_ar", "output_perturbation_gd", "scs13"]
_COMPARED = [*_PURE, "bst14", "dp_sgd"]

Picture = Annotated[Path, typer.Argument(help="Where to write it: a name that ends in .png or .svg.")]
Dataset = Annotated[str | None, typer.Option(help="A registered dataset.")]
Algorithms = Annotated[list[str], typer.Option("--algorithm", help="An algorithm; give each.")]
Epsilons = Annotated[list[float], typer.Option("--epsilon", help="A value of ε; give each.")]
Delta = Annotated[float, typer.Option(help="δ of each release; 0 asks for pure ε.")]
Options = Annotated[str, typer.Option(help='Further options of a training, as JSON: {"batch_size": 100}.')]
Repeats = Annotated[int, typer.Option(min=1, help="Trainings of each algorithm and ε.")]
Yes = Annotated[bool, typer.Option("--yes", help="Spend the budget without asking.")]


@plot.command()
def noise(
    picture: Picture,
    dataset: Dataset = None,
    rows: Annotated[int | None, typer.Option(help="Number of records, public, in place of a dataset.")] = None,
    features: Annotated[int | None, typer.Option(help="Coordinates of one model, with the intercept.")] = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option(
            "--algorithm", help=f"An algorithm; give each. Default: {', '.join(_COMPARED)}; the last two need δ."
        ),
    ] = None,
    epsilons: Epsilons = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0],  # noqa: B006  (typer's own default)
    delta: Delta = 1e-6,
    options: Options = "{}",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Draw the noise scale of plans against ε. Nothing is read or spent; with --rows no database is needed."""
    pictures.check(picture)
    compared = algorithms or (_COMPARED if delta else _PURE)
    asked = curves.requests(compared, sorted(epsilons), {"delta": delta, **_further(options)})
    if rows is not None and features is not None and dataset is None:
        explain = curves.of_facts(Facts(rows, features))
        found = curves.noise(f"{rows:,} rows, {features:,} features", explain, asked)
    elif dataset is not None and rows is None and features is None:
        with opened(url) as database:
            found = curves.noise(dataset, lambda request: database.explain(dataset, request), asked)
    else:
        raise typer.BadParameter("give --dataset, or both of --rows and --features")
    _finish(lambda: pictures.noise(found), picture, asdict(found), as_json)


@plot.command()
def budget(dataset: str, picture: Picture, as_json: AsJson = False, url: Url = None) -> None:
    """Draw what was charged over time, in all and by role, and the limit: the charges that you may see."""
    pictures.check(picture)
    with opened(url) as database:
        found = curves.spending(database, dataset)
    _finish(lambda: pictures.budget(found), picture, asdict(found), as_json)


@plot.command()
def loss(
    dataset: str,
    picture: Picture,
    algorithm: Annotated[str, typer.Option(help=f"One of {', '.join(curves.ONCE)}.")] = curves.ONCE[0],
    options: Options = "{}",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Draw the loss of the EXACT model after each epoch: NOT PRIVATE, for the owner of the table alone.

    As `dbdp baseline`: it runs here, with your own right to read the table, releases no model, stores nothing and is
    not charged. No door of the server tells a loss. Choose step sizes and epochs by public data where you can: what is
    chosen by this picture tells of the rows.
    """
    pictures.check(picture)
    if algorithm not in curves.ONCE:
        raise ValueError(
            f"algorithm {algorithm!r} has no exact model after each epoch; choose one of {', '.join(curves.ONCE)}"
        )
    (request,) = curves.requests([algorithm], [1.0], _further(options))  # no ε is spent
    with opened(url) as database, for_owners("a loss"):
        found = database.descent(dataset, request)
    _finish(lambda: pictures.loss(found), picture, asdict(found), as_json)


@plot.command()
def utility(
    picture: Picture,
    csv: Annotated[Path | None, typer.Option(help="PUBLIC rows: CSV with a header; nothing is charged.")] = None,
    label: Annotated[str | None, typer.Option(help="Of the CSV: the label's column.")] = None,
    features: Annotated[Path | None, typer.Option(help="Of the CSV: JSON file, as in `dbdp register`.")] = None,
    positive: Positive = None,
    negative: Negative = None,
    classes: Labels = None,
    label_bounds: LabelBounds = None,
    dataset: Annotated[str | None, typer.Option(help="A registered dataset; each training is CHARGED.")] = None,
    on: Annotated[str | None, typer.Option(help="Of a dataset: the table that judges, which you may read.")] = None,
    baseline: Annotated[bool, typer.Option(help="Of a dataset: with the model without privacy, for you.")] = False,
    yes: Yes = False,
    algorithms: Algorithms = ["bolt_on"],  # noqa: B006
    epsilons: Epsilons = _EPSILONS,
    delta: Delta = 1e-6,
    repeats: Repeats = 5,
    options: Options = "{}",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Draw accuracy against ε, beside the model without privacy and the largest class; of numbers, the error.

    With --csv the rows are public: they are trained on in a database of their own on the private server (or that of
    --url or DBDP_URL, as a superuser), which is dropped at the end; every fifth row judges. With --dataset each
    training is a release that is stored and charged; what it will cost is said first. The table that judges is read as
    it is, also where the models were trained on it: the picture is as secret as that table.
    """
    pictures.check(picture)
    asked = curves.requests(algorithms, sorted(epsilons), {"delta": delta, **_further(options)})
    if csv is not None and label is not None and features is not None and dataset is None and on is None:
        values = {"positive": positive, "negative": negative, "classes": classes or None, "label_bounds": label_bounds}
        described = {"label": label, **values, "features": json_file(features, "--features")}
        with _public(url, csv, described, asked, repeats) as (database, name, judging):
            found = _judged(database, name, judging, asked, repeats, with_baseline=True, public_name=csv.name)
    elif dataset is not None and on is not None and csv is None:
        with opened(url) as database:
            _agree(database, dataset, asked, repeats, yes)
            found = _judged(database, dataset, on, asked, repeats, with_baseline=baseline)
    else:
        raise typer.BadParameter("give --csv, --label and --features, or --dataset and --on")
    _finish(lambda: pictures.utility(found), picture, _plain(asdict(found)), as_json)


@contextmanager
def _public(
    url: str | None, csv: Path, described: dict[str, Any], asked: list[Any], repeats: int
) -> Iterator[tuple["Database", str, str]]:
    from dbdp.interfaces.cli.plots.public_rows import DATASET, HELD_OUT, PublicRows, scratch_database

    total = 1.01 * repeats * sum(request.epsilon for request in asked)
    delta = min(0.5, 1.01 * repeats * sum(request.delta for request in asked))
    with scratch_database(url, PublicRows(csv, described), epsilon=total, delta=delta) as database:
        yield database, DATASET, HELD_OUT


def _judged(
    database: "Database", dataset: str, judging: str, asked: list[Any], repeats: int, **how: Any
) -> curves.Utility:
    judges = curves.Judges.read(database, dataset, judging)
    with progress_bar() as progress:
        return curves.utility(database, dataset, asked, repeats, judges, progress=progress, **how)


def _agree(database: "Database", dataset: str, asked: list[Any], repeats: int, yes: bool) -> None:
    """Say what the trainings cost, and go on if that is agreed to."""
    priced = curves.cost(database, dataset, asked, repeats)
    bill = curves.check_cost(database, dataset, priced)
    if yes:
        typer.echo(f"charging {bill}", err=True)
        return
    console.stderr = True
    show(priced, False, f"charged to {dataset}")
    console.stderr = False
    typer.confirm(f"Charge {bill}?", abort=True, err=True)


def _further(options: str) -> dict[str, Any]:
    return json_object(options, f"--options {options!r}")


def _finish(draw: Callable[[], "Figure"], picture: Path, data: dict[str, Any], as_json: bool) -> None:
    """Draw and save; where that fails, what may have been paid for is printed all the same."""
    try:
        pictures.save(draw(), picture)
    except Exception as error:
        print(json.dumps(data, default=str))
        raise RuntimeError(f"picture {str(picture)!r} is not drawn: {error}; its numbers are on stdout") from error
    show_done(f"{picture} is drawn", as_json, picture=str(picture), **data)


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"scores": {name: values.tolist() for name, values in data["scores"].items()}}
