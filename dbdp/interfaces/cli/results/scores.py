"""Commands that score a released model, with noise, and predict with it."""

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from dbdp.algorithms.scores.evaluation import BINS as EVALUATION_BINS
from dbdp.algorithms.scores.evaluation import THRESHOLD
from dbdp.algorithms.scores.metrics import METRICS
from dbdp.algorithms.scores.score_bins import BINS
from dbdp.interfaces.cli.click_adapter import Argument, Commands, option
from dbdp.interfaces.cli.printing import (
    POSTGRESQL,
    AsJson,
    CohortOption,
    Delta,
    Engine,
    Epsilon,
    Master,
    Places,
    Url,
    opened,
    opened_on,
    parsed_cohort,
    show,
    show_done,
    show_figures,
)
from dbdp.sessions.session import Row

if TYPE_CHECKING:
    from dbdp.interfaces.python.client.database import Database

app = Commands()
_FAKES = """
create table {} as
select r.*
from pg_catalog.json_populate_recordset(
  null::{}, dbdp.summary_rows({}::pg_catalog.int8, {}::pg_catalog.int4)
) as r"""

ModelReference = Annotated[str, Argument("Number of a model, its name, or name@version.")]


@app.command()
def score(
    model: ModelReference,
    dataset: str,
    epsilon: Epsilon,
    metric: Annotated[str, option(help=", ".join(METRICS) + ".")] = METRICS[0],
    delta: Delta = 0.0,
    bins: Annotated[int, option(help="Bins of the histogram that auc and calibration use.")] = BINS,
    positive: Annotated[str | None, option(help="Among several classes, the class of auc and calibration.")] = None,
    cohort: CohortOption = None,
    as_json: AsJson = False,
    url: Url = None,
    engine: Engine = POSTGRESQL,
    master: Master = None,
    places: Places = None,
) -> None:
    """Score a released model on a dataset, with noise, charged like a release."""
    with opened_on(url, engine, master, places) as database:
        how: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "bins": bins,
            "positive": positive,
            "cohort": parsed_cohort(cohort),
        }
        result = database.score(model, dataset, metric, **how)
    show_figures(result, as_json, f"model {model} on {dataset}", _rows(result))


@app.command()
def evaluate(
    model: ModelReference,
    dataset: str,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    bins: Annotated[int, option(help="Bins of a binary label's histogram, an even number.")] = EVALUATION_BINS,
    threshold: Annotated[float, option(help="Probability from which a row counts as positive.")] = THRESHOLD,
    cohort: CohortOption = None,
    as_json: AsJson = False,
    url: Url = None,
    engine: Engine = POSTGRESQL,
    master: Master = None,
    places: Places = None,
) -> None:
    """Estimate accuracy, majority fraction and AUC of a model, or RMSE and R², with noise, for one charge."""
    with opened_on(url, engine, master, places) as database:
        how: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "threshold": threshold,
            "cohort": parsed_cohort(cohort),
        }
        figures = database.evaluate(model, dataset, bins=bins, **how)
    show(figures, as_json, f"model {model} on {dataset}")


@app.command()
def weights(model: ModelReference, as_json: AsJson = False, url: Url = None) -> None:
    """List the coefficients of a linear model, with their standard errors where the noise is known."""
    with opened(url) as database:
        rows = database.weights(model)
    show(rows if as_json else _without_class(rows), as_json, f"model {model}")


def _without_class(rows: list[Row]) -> list[Row]:
    """Return rows without their class, unless the label has several."""
    several = any(row["class"] is not None for row in rows)
    return [{key: row[key] for key in row if several or key != "class"} for row in rows]


@app.command()
def shapes(
    model: ModelReference,
    importance: Annotated[bool, option("--importance", help="List the spread of each column instead.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List how much each value of a column adds to the score of a linear model, with the band of the noise."""
    with opened(url) as database:
        rows = database.importance(model) if importance else database.shapes(model)
    show(rows if as_json else _without_class(rows), as_json, f"model {model}")


@app.command("export-sql")
def export_sql(
    model: ModelReference,
    name: Annotated[
        str | None, option(help="Name of the function; default: predict_ and the name of the model.")
    ] = None,
    dialect: Annotated[str, option(help="postgresql, or duckdb for a macro.")] = "postgresql",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Print SQL that creates a function with a linear model's predictions, for a database without dbdp."""
    with opened(url) as database:
        text = database.export_sql(model, name, dialect=dialect)
    click.echo(json.dumps({"sql": text}) if as_json else text, nl=as_json)


@app.command("export-sklearn")
def export_sklearn(model: ModelReference, file: str, as_json: AsJson = False, url: Url = None) -> None:
    """Write a linear model as a pickle of scikit-learn's own classes, for a machine without dbdp."""
    with opened(url) as database:
        pipeline = database.load(model).to_sklearn()
    import sklearn

    try:
        Path(file).write_bytes(pickle.dumps(pipeline))
    except OSError as error:
        raise OSError(f"file {file!r} cannot be written ({error.strerror}); name another file") from None
    done = f"{file} has model {model}. pickle.load needs scikit-learn {sklearn.__version__} and pandas."
    show_done(done, as_json, model=model, file=file, scikit_learn=sklearn.__version__)


@app.command()
def confusion(
    model: ModelReference,
    dataset: str,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    as_json: AsJson = False,
    url: Url = None,
    engine: Engine = POSTGRESQL,
    master: Master = None,
    places: Places = None,
) -> None:
    """Count rows by true and predicted class, with noise: the confusion matrix of a released model."""
    with opened_on(url, engine, master, places) as database:
        result = database.confusion(model, dataset, epsilon=epsilon, delta=delta)
    show_figures(result, as_json, f"model {model} on {dataset}", _rows(result))


@app.command("class-balance")
def class_balance(
    dataset: str,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    as_json: AsJson = False,
    url: Url = None,
    engine: Engine = POSTGRESQL,
    master: Master = None,
    places: Places = None,
) -> None:
    """Count the rows of each class, with noise."""
    with opened_on(url, engine, master, places) as database:
        result = database.class_balance(dataset, epsilon=epsilon, delta=delta)
    show_figures(result, as_json, dataset, _rows(result))


@app.command()
def summarize(
    dataset: str,
    epsilon: Epsilon,
    delta: Annotated[float, option(help="δ of this release, above 0.")],
    bins: Annotated[str | None, option(help='Bins for each number, or JSON such as {"age": 8}.')] = None,
    cohort: CohortOption = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Release a noisy second moment of rows and labels: regressions, components and correlations of it are free."""
    with opened(url) as database:
        divided = None if bins is None else _parsed(bins)
        how: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "cohort": parsed_cohort(cohort)}
        summary = database.summarize(dataset, bins=divided, **how)
    show_figures({"summary": summary.id, "receipt": summary.receipt}, as_json, dataset, [])


def _parsed(bins: str) -> Any:
    """Return the value of JSON; raise ValueError for another text."""
    try:
        return json.loads(bins)
    except ValueError:
        raise ValueError(f"--bins {bins} is no whole number and no JSON object, such as '{{\"age\": 8}}'") from None


@app.command("summary")
def show_summary(
    summary: Annotated[int, Argument("Number of a summary in dbdp.summaries.")],
    by: Annotated[str | None, option(help="Instead, count rows by one or two columns, such as ward,smoker.")] = None,
    mean: Annotated[str | None, option(help="With --by, a number: its mean in each group of one column.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Describe a released summary, or list a table of it, each figure with its noise. It is free."""
    if mean is not None and by is None:
        raise ValueError(f"--mean {mean} has no groups; add --by COLUMN, or leave it out to see the mean of all rows")
    with opened(url) as database:
        released = database.summary(summary)
        rows = released.describe() if by is None else released.table(by.split(","), mean=mean)
    show(rows, as_json, f"summary {summary}")


@app.command()
def fake(
    summary: Annotated[int, Argument("Number of a summary in dbdp.summaries.")],
    rows: Annotated[int | None, option(help="How many rows; by default as many as the summary counted.")] = None,
    into: Annotated[str | None, option(help="Create this table of them; needs --like.")] = None,
    like: Annotated[str | None, option(help="Table with the columns and types that --into gets.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Make synthetic rows from a released summary, for developing and exploring, not for results. It is free."""
    if (into is None) != (like is None):
        raise ValueError("--into and --like belong together: a new table, and the table with its columns; pass both")
    with opened(url) as database:
        if into is None or like is None:
            show(database.summary(summary).rows(rows), as_json, f"summary {summary}")
            return
        made = _created(database, summary, rows, into, like)
    show_done(f"created table {into} with {made} synthetic rows", as_json, table=into, rows=made)


def _created(database: "Database", summary: int, rows: int | None, into: str, like: str) -> int:
    """Create a table of synthetic rows with the columns of another one; return how many it has."""
    from psycopg import sql

    from dbdp.interfaces.python.client.database import quoted

    names = database.query("select pg_catalog.parse_ident($1) as names", into)[0]["names"]
    own = sql.Identifier(*names), sql.SQL(quoted(database, like)), sql.Literal(summary), sql.Literal(rows)
    statement = sql.SQL(_FAKES).format(*own)
    return database.connection.execute(statement).rowcount


def _rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a result's table: a confusion matrix, classes or bins; none for a single number."""
    names = ["(other)" if name is None else name for name in result.get("classes", [])]
    if "matrix" in result:
        measures = zip(names, *(result[name] for name in ("matrix", "precision", "recall", "f1")), strict=True)
        return [
            {"true class": name, **{f"as {other}": cell for other, cell in zip(names, cells, strict=True)}}
            | {"precision": precision, "recall": recall, "f1": f1}
            for name, cells, precision, recall, f1 in measures
        ]
    if "shares" in result:
        measures = zip(names, result["counts"], result["shares"], result["share_noise"], strict=True)
        return [dict(zip(("class", "rows", "share", "share_noise"), each, strict=True)) for each in measures]
    return result.get("calibration") or []


@app.command()
def predict(
    model: ModelReference,
    table: str,
    limit: Annotated[int, option(help="Largest number of rows.")] = 20,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show rows of a table, each with a prediction: probability of the positive class, class, or value.

    The column of predictions is `probability`, `class` or `value`; `predicted_probability` etc. if the table has a
    column of that name. A class has its probability next to it, if the model gives one.
    """
    from dbdp.interfaces.python.client.database import quoted

    with opened(url) as database:
        predicted = database.predictions(model, quoted(database, table), most=limit)
    answer = {"binary": "probability", "classes": "class"}.get(predicted.kind, "value")
    predictions = {answer: predicted.answers}
    if predicted.probabilities is not None:
        predictions["probability"] = predicted.probabilities
    rows = predicted.rows
    for name, values in predictions.items():
        column = _free_name(name, rows)
        rows = [row | {column: value} for row, value in zip(rows, values, strict=True)]
    show(rows, as_json, f"model {model} on {table}")


def _free_name(name: str, rows: list[dict[str, Any]]) -> str:
    """Return a name for a column that no row has."""
    while any(name in row for row in rows):
        name = f"predicted_{name}"
    return name
