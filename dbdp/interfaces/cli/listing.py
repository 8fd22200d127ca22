"""Commands that list datasets, models, budgets and charges, and check the ledger."""

from typing import Annotated

import click

from dbdp.interfaces.cli.output import AsJson, Url, numbers, opened, show, show_budget
from dbdp.interfaces.cli.parameters import Argument, Commands, option

app = Commands()
DISAGREES = 3  # exit code: the check ran, and ledger, odometers and limits do not agree


@app.command()
def datasets(as_json: AsJson = False, url: Url = None) -> None:
    """List the datasets that you may train on."""
    with opened(url) as database:
        rows = database.datasets()
    usual = {"mode": "renyi", "unit": None, "place": None, "registered_by": rows[0]["registered_by"] if rows else None}
    shown = ["name", "source", "rows", "epsilon", "delta"]  # and what differs between them: a row has 80 columns
    shown += [key for key, value in usual.items() if any(row[key] != value for row in rows)]
    read = [row | ({} if row["capacity"] is None else {"rows": f"≤ {row['rows']}"}) for row in rows]
    show(rows if as_json else [{key: row[key] for key in shown} for row in read], as_json, "datasets")


@app.command()
def budget(
    name: str,
    delta: Annotated[float | None, option(help="δ of further releases; default: 10 % of the budget's.")] = None,
    epsilon: Annotated[float | None, option(help="ε of further releases; default: 10 % of the budget's.")] = None,
    long: Annotated[bool, option("--long", help="Show also how charges add up, and their sums.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show the remaining and the spent budget of a dataset, and the guarantee over all its registrations."""
    with opened(url) as database:
        row = numbers(database.budget(name, release_delta=delta, release_epsilon=epsilon))
    show_budget(row, as_json, is_long=long)


@app.command()
def ledger(
    name: Annotated[str | None, Argument("A dataset; default all.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the charges: role, time, purpose, amount and outcome, by period if a budget was renewed."""
    with opened(url) as database:
        rows = [numbers(row) for row in database.history(name)]
    if as_json:
        show(rows, True, "")
        return
    hidden = {"dataset"} if name else set()
    if not any(row["leak"] for row in rows):
        hidden.add("leak")
    if len({row["period"] for row in rows}) == len({row["dataset"] for row in rows}):
        hidden.add("period")
    shown = ("id", "at", "by", "dataset", "period", "algorithm", "charge", "leak", "outcome", "models")
    rows = [row | {"at": row["charged_at"], "by": row["charged_by"]} for row in rows]
    rows = [{key: row[key] for key in shown if key not in hidden} for row in rows]
    show(rows, False, f"ledger of {name}" if name else "ledger")


@app.command("check-ledger")
def check_ledger(as_json: AsJson = False, url: Url = None) -> None:
    """Compare ledger, odometers and limits of your registrations. Exit code 3 if they do not agree."""
    with opened(url) as database:
        rows = [numbers(row) for row in database.check_ledger()]
    show(rows, as_json, "check of the ledger")
    if not all(row["ok"] for row in rows):
        raise click.exceptions.Exit(DISAGREES)


@app.command()
def models(as_json: AsJson = False, url: Url = None) -> None:
    """List the released models that you may predict with."""
    shown = ("id", "name", "version", "dataset", "algorithm", "epsilon", "delta")
    with opened(url) as database:
        rows = database.models()
    if not as_json:
        from dbdp.registry.results.html import dataset_shown

        rows = [{k: row[k] for k in shown} | {"dataset": dataset_shown(row["dataset"])} for row in rows]
    show(rows, as_json, "models")
