"""The demo: train private models on Adult in SQL and in Python, and print every step."""

import csv
import io
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import numpy as np
from psycopg import sql
from psycopg.conninfo import make_conninfo
from rich.syntax import Syntax
from rich.table import Table

from dbdp.interfaces.cli.demo import adult
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.python.estimators.design import design_matrix
from dbdp.interfaces.terminal import Terminal
from dbdp.optional import MissingLibraryError, needing

if TYPE_CHECKING:
    from dbdp.interfaces.python.estimators.linear import LogisticRegression

EPSILON, DELTA = 1.0, 1e-6
BUDGET_EPSILON, BUDGET_DELTA = 4.0, 1e-5
DATASET = "adult"


def run(database: Database, console: Terminal, *, elsewhere: bool = False) -> None:
    """Run the demo on a database; commands that follow name it where it is elsewhere, not the default one."""
    rows, origin = adult.read(adult.download)
    console.rule("1. a table becomes a dataset, with a budget")
    console.print(origin, highlight=False, soft_wrap=True)
    load(database, rows)
    _show(console, _registration(database))
    console.rule("2. the plan, before anything is spent")
    plan, statement = _explanation(database)
    _show(console, statement)
    console.print(f"{plan['algorithm']}; predicted loss: {plan['predicted_loss']}", highlight=False, soft_wrap=True)
    console.rule("3. train, in the server")
    released, statement = _train_in_sql(database)
    _show(console, statement)
    _spent(database, console, released["model"])
    console.rule("4. train, from Python")
    estimator = _train_in_python(database, console)
    console.rule(f"5. accuracy on the held-out rows, at ε = {EPSILON:g} and δ = {DELTA:g}")
    _show(console, _scoring_sql(released["model"]))
    _accuracies(database, console, rows, released["model"], estimator)
    console.rule("what to do next")
    for line in _next_steps(database, released["model"], elsewhere):
        console.print(line, highlight=False, soft_wrap=True)


def _show(console: Terminal, text: str) -> None:
    console.print(Syntax(text, "sql", theme="ansi_light", word_wrap=True, background_color="default"))


def _spent(database: Database, console: Terminal, model: int) -> None:
    """Print what a model is, and what is left of the budget."""
    left = database.budget(DATASET)["left_share"]
    text = f"model {model}, (ε = {EPSILON:g}, δ = {DELTA:g})-private; {left:.0%} of the budget is left"
    console.print(text, highlight=False, soft_wrap=True)


def load(database: Database, text: str) -> None:
    """Load Adult into tables adult and adult_holdout of schema demo, which is replaced."""
    if any(row["name"] == DATASET for row in database.datasets()):
        database.drop_dataset(DATASET)
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL("int" if name in adult.NUMERIC else "text"))
        for name in adult.COLUMNS
    )
    database.query("drop schema if exists demo cascade")
    database.query("create schema demo")
    database.query("grant usage on schema demo to dbdp_owner")
    lines = text.splitlines(keepends=True)
    held_out = 1 + adult.training_rows(len(lines) - 1)
    for table, part in (("adult", lines[1:held_out]), ("adult_holdout", lines[held_out:])):
        place = sql.Identifier("demo", table)
        database.query(sql.SQL("create table {} ({})").format(place, columns).as_string())
        with database.connection.cursor().copy(sql.SQL("copy {} from stdin (format csv)").format(place)) as copy:
            copy.write("".join(part))


def _target(database: Database) -> str:
    """Return the database's connection string as an argument for a shell, without a password."""
    info = database.connection.info
    return shlex.quote(make_conninfo(host=info.host, port=info.port, dbname=info.dbname, user=info.user))


def _next_steps(database: Database, model: int, elsewhere: bool) -> list[str]:
    """Return commands that continue where the demo ends; the first only where the shell does not find `dbdp`."""
    target = _target(database)
    activate = Path(sys.prefix, "bin", "activate")
    found = shutil.which("dbdp") or not activate.is_file()
    option = f" --url {target}" if elsewhere else ""
    return [
        *([] if found else [f"source {activate}  # the shell then finds dbdp and its Python"]),
        f"psql {target}  # continue with the SQL above",
        f"dbdp predict {model} demo.adult_holdout --limit 3{option}  # a prediction costs nothing",
        f"dbdp budget {DATASET}{option}  # what is left of the budget",
        f"dbdp weights {model}{option}  # its coefficients, with the standard errors of the noise",
        "README.md continues with your own table, docs/tutorials has ten minutes for each role, "
        "and `dbdp --help` lists the commands.",
    ]


_REGISTRATION = """select dbdp.register_dataset({dataset}, 'demo.adult',
    label => {label}, positive => {positive}, negative => {negative},
    features => {features},
    epsilon => {epsilon}, delta => {delta});"""
_SCORING = """select avg((dbdp.predict({model}, h) = (h.income = {positive}))::int)::float8 as accuracy
from demo.adult_holdout as h;"""


def _statement(text: LiteralString, **values: Any) -> str:
    """Return a statement with its values as literals."""
    return sql.SQL(text).format(**{name: sql.Literal(value) for name, value in values.items()}).as_string()


def _registration(database: Database) -> str:
    """Register the dataset, and return the statement with the first of its features."""
    facts: dict[str, Any] = {
        "dataset": DATASET,
        "label": adult.LABEL,
        "positive": adult.POSITIVE,
        "negative": adult.NEGATIVE,
    }
    facts |= {"epsilon": BUDGET_EPSILON, "delta": BUDGET_DELTA}
    database.query(_statement(_REGISTRATION, features=json.dumps(adult.DECLARED), **facts))
    first = dict(list(adult.DECLARED.items())[:1])
    others = f", … {len(adult.DECLARED) - 1} more}}"
    return _statement(_REGISTRATION, features=json.dumps(first)[:-1] + others, **facts)


def _explanation(database: Database) -> tuple[dict[str, Any], str]:
    text: LiteralString = "select dbdp.dp_explain({dataset}, epsilon => {epsilon}, delta => {delta});"
    statement = _statement(text, dataset=DATASET, epsilon=EPSILON, delta=DELTA)
    return database.query(statement)[0]["dp_explain"], statement


def _train_in_sql(database: Database) -> tuple[dict[str, Any], str]:
    text: LiteralString = "select * from dbdp.dp_logreg({dataset}, epsilon => {epsilon}, delta => {delta});"
    statement = _statement(text, dataset=DATASET, epsilon=EPSILON, delta=DELTA)
    return database.query(statement)[0], statement


def _train_in_python(database: Database, console: Terminal) -> "LogisticRegression | None":
    """Train an estimator; without scikit-learn, say how it can be installed, and return None."""
    try:
        with needing("this step", "sklearn"):
            from dbdp.interfaces.python.estimators.linear import LogisticRegression
    except MissingLibraryError as error:
        console.print(f"left out: {error}", highlight=False, soft_wrap=True)
        return None
    estimator = LogisticRegression(epsilon=EPSILON, delta=DELTA).fit(database, DATASET)
    text = f'dbdp.LogisticRegression(epsilon={EPSILON:g}, delta={DELTA:g}).fit("{DATASET}")'
    console.print(text, highlight=False, soft_wrap=True)
    _spent(database, console, estimator.model_id_)
    return estimator


def _scoring_sql(model: int) -> str:
    return _statement(_SCORING, model=model, positive=adult.POSITIVE)


def _accuracies(
    database: Database, console: Terminal, text: str, model: int, estimator: "LogisticRegression | None"
) -> None:
    majority = database.query("select avg((income = $1)::int)::float8 as share from demo.adult_holdout", adult.NEGATIVE)
    table = Table("model", "accuracy")
    table.add_row(f"private, trained in SQL (model {model})", f"{_score(database, model):.4f}")
    if estimator is not None:
        in_python = estimator.model_id_
        table.add_row(f"private, trained in Python (model {in_python})", f"{_score(database, in_python):.4f}")
        exact = _not_private(text, estimator)
        table.add_row("not private (scikit-learn, same rows and features)", f"{exact:.4f}")
    table.add_row("majority share", f"{majority[0]['share']:.4f}")
    console.print(table)


def _score(database: Database, model: int) -> float:
    return database.query(_scoring_sql(model))[0]["accuracy"]


def _not_private(text: str, estimator: "LogisticRegression") -> float:
    """Return the accuracy of scikit-learn's logistic regression on the same split, bins and scales of numbers."""
    from sklearn.linear_model import LogisticRegression as NotPrivate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    rows = list(csv.DictReader(io.StringIO(text)))
    declaration = estimator.declaration_
    features = design_matrix(declaration, np.array([[row[c] for c in declaration.columns] for row in rows], object))
    labels = np.array([row[adult.LABEL] == adult.POSITIVE for row in rows])
    split = adult.training_rows(len(rows))
    fitted = make_pipeline(MinMaxScaler(), NotPrivate(max_iter=2000)).fit(features[:split], labels[:split])
    return float(fitted.score(features[split:], labels[split:]))
