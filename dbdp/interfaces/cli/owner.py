"""Commands for a data owner: declare a table, let others train and predict, begin a new budget, look for oneself."""

from pathlib import Path
from typing import Annotated

import typer

from dbdp.algorithms import Request
from dbdp.algorithms.scores.bounds import BETA
from dbdp.controller.options import HELP
from dbdp.interfaces.cli.output import (
    AsJson,
    Delta,
    Epsilon,
    LabelBounds,
    Labels,
    Negative,
    Positive,
    Url,
    for_owners,
    json_file,
    numbers,
    opened,
    show,
    show_done,
    show_figures,
    show_mapping,
)
from dbdp.interfaces.python.tables import quoted
from dbdp.registry.registration import Registration

app = typer.Typer()

Reason = Annotated[str, typer.Option(help="Why, for the record.")]
Loss = Annotated[str, typer.Option(help=HELP["loss"])]
Regularisation = Annotated[float | None, typer.Option(help=HELP["regularisation"])]


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
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Declare a table once: public facts and a total budget."""
    with opened(url) as database:
        database.register(
            Registration(
                name=name,
                source=quoted(database, table),
                label=label,
                positive=positive,
                negative=negative,
                classes=classes or None,
                label_bounds=label_bounds,
                features=json_file(features, "--features"),
                epsilon=epsilon,
                delta=delta,
                rho=rho,
                intercept=intercept,
                mode=mode,
                unit=unit,
                max_rows=max_rows,
                public_columns=public_columns,
            )
        )
    show_done(f"dataset {name} is registered", as_json, dataset=name, table=table)


@app.command("grant-training")
def grant_training(
    dataset: str,
    role: str,
    epsilon: Annotated[
        float | None, typer.Option(help="Part of the dataset's ε that it may spend; default: all.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Let a role train on a dataset that you registered."""
    with opened(url) as database:
        database.grant_training(dataset, role, epsilon=epsilon)
    show_done(f"{role} may train on {dataset}", as_json, dataset=dataset, role=role, epsilon=epsilon)


@app.command("revoke-training")
def revoke_training(dataset: str, role: str, as_json: AsJson = False, url: Url = None) -> None:
    """End a role's right to train on a dataset; what it spent stays spent."""
    with opened(url) as database:
        database.revoke_training(dataset, role)
    show_done(f"{role} may no longer train on {dataset}", as_json, dataset=dataset, role=role)


@app.command()
def allowances(as_json: AsJson = False, url: Url = None) -> None:
    """List who may train on which dataset, how much each may spend, and has spent."""
    with opened(url) as database:
        show(database.allowances(), as_json, "allowances")


@app.command("grant-prediction")
def grant_prediction(model: int, role: str, as_json: AsJson = False, url: Url = None) -> None:
    """Let a role predict with a model that you released, or whose dataset you registered."""
    with opened(url) as database:
        database.grant_prediction(model, role)
    show_done(f"{role} may predict with model {model}", as_json, model=model, role=role)


@app.command("revoke-prediction")
def revoke_prediction(model: int, role: str, as_json: AsJson = False, url: Url = None) -> None:
    """End a role's right to predict with a model."""
    with opened(url) as database:
        database.revoke_prediction(model, role)
    show_done(f"{role} may no longer predict with model {model}", as_json, model=model, role=role)


@app.command()
def redeclare(
    name: str,
    reason: Reason,
    features: Annotated[Path | None, typer.Option(help="JSON file: column → bounds, categories, or length.")] = None,
    positive: Positive = None,
    negative: Negative = None,
    classes: Labels = None,
    label_bounds: LabelBounds = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Correct what was declared of a dataset; its budget and its models stay as they are."""
    given = json_file(features, "--features") if features else None
    with opened(url) as database:
        database.redeclare(
            name,
            reason,
            features=given,
            positive=positive,
            negative=negative,
            classes=classes,
            label_bounds=label_bounds,
        )
    show_done(f"dataset {name} is declared anew", as_json, dataset=name, reason=reason)


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
    with opened(url) as database:
        database.renew_budget(name, reason, epsilon=epsilon, delta=delta)
        found = numbers(database.budget(name))
    show_mapping(found, as_json, "budget")


@app.command("answer-at-multiples")
def answer_at_multiples(
    name: str,
    reason: Reason,
    seconds: Annotated[int | None, typer.Option(help="From 1 to 86400; without, the server answers at once.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Have the server answer whole multiples of so many seconds after each charge, so that the time is public."""
    with opened(url) as database:
        database.answer_at_multiples(name, reason, seconds=seconds)
    when = "at once" if seconds is None else f"at multiples of {seconds} s after its charge"
    show_done(f"dataset {name} answers {when}", as_json, dataset=name, seconds=seconds, reason=reason)


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
    with opened(url) as database:
        found = database.bounds(dataset, column, epsilon=epsilon, delta=delta, beta=beta)
    show_figures(found, as_json, f"{column} of {dataset}", found.get("bins", []))


@app.command()
def baseline(
    dataset: str,
    loss: Loss = "logistic",
    regularisation: Regularisation = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Train WITHOUT privacy, by L-BFGS, to compare with; for the owner of the table. Nothing is stored.

    It takes the right to read the table, and membership in dbdp_data_owner.
    """
    request = Request(1.0, loss=loss, regularisation=regularisation)  # no ε is spent
    with opened(url) as database, for_owners("a baseline"):
        found = database.baseline(dataset, request)
    show_mapping(vars(found), as_json, f"{dataset} without privacy: do not publish")
