"""Commands that judge a released model, with noise, and predict with it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dbdp.algorithms.scores.metrics import METRICS
from dbdp.algorithms.scores.score_bins import BINS
from dbdp.interfaces.cli.output import AsJson, Delta, Epsilon, Url, opened, show, show_figures

if TYPE_CHECKING:
    pass

app = typer.Typer()


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
    with opened(url) as database:
        found = database.score(model, dataset, metric, epsilon=epsilon, delta=delta, bins=bins, positive=positive)
    show_figures(found, as_json, f"model {model} on {dataset}", _rows(found))


@app.command()
def confusion(
    model: int, dataset: str, epsilon: Epsilon, delta: Delta = 0.0, as_json: AsJson = False, url: Url = None
) -> None:
    """Count rows by true and predicted class, with noise: the confusion matrix of a released model."""
    with opened(url) as database:
        found = database.confusion(model, dataset, epsilon=epsilon, delta=delta)
    show_figures(found, as_json, f"model {model} on {dataset}", _rows(found))


@app.command("class-balance")
def class_balance(dataset: str, epsilon: Epsilon, delta: Delta = 0.0, as_json: AsJson = False, url: Url = None) -> None:
    """Count the rows of each class, with noise."""
    with opened(url) as database:
        found = database.class_balance(dataset, epsilon=epsilon, delta=delta)
    show_figures(found, as_json, dataset, _rows(found))


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
    return found.get("calibration") or []


@app.command()
def predict(
    model: int,
    table: str,
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = 20,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Score rows of a table: the row, and the probability of the positive class, the class, or the value.

    The answer's column is `predicted_probability`, or its like, where the table has a `probability` of its own.
    """
    from dbdp.interfaces.python import tables

    with opened(url) as database:
        predicted = database.predictions(model, tables.quoted(database, table), most=limit)
    answer = {"binary": "probability", "classes": "class"}.get(predicted.kind, "value")
    while any(answer in row for row in predicted.rows):
        answer = f"predicted_{answer}"
    rows = [row | {answer: value} for row, value in zip(predicted.rows, predicted.answers, strict=True)]
    show(rows, as_json, f"model {model} on {table}")
