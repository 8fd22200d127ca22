"""Commands for a data owner: register a table, grant rights, renew a budget, estimate bounds, train without privacy."""

import inspect
from dataclasses import MISSING, asdict
from pathlib import Path
from typing import Annotated, Any

from dbdp.algorithms import Request
from dbdp.algorithms.scores.column_bounds import BETA
from dbdp.controller.training_options import HELP
from dbdp.interfaces.cli.click_adapter import Argument, Commands, option, with_options
from dbdp.interfaces.cli.printing import (
    POSTGRESQL,
    SPARK,
    AsJson,
    Delta,
    Engine,
    Epsilon,
    LabelBounds,
    Labels,
    Master,
    Negative,
    Positive,
    Url,
    for_owners,
    json_file,
    numbers,
    opened,
    opened_on,
    print_line,
    show,
    show_budget,
    show_done,
    show_figures,
    show_mapping,
)
from dbdp.interfaces.python.client.database import quoted
from dbdp.registry.registration import MEANINGS, Registration, stated

app = Commands()

_KEYWORD = inspect.Parameter.KEYWORD_ONLY

Reason = Annotated[str, option(help="Why, for the record.")]
Loss = Annotated[str | None, option(help=HELP["loss"])]
Granted = Annotated[str, Argument("Number of a model, name@version, or a name with all its versions.")]
Regularisation = Annotated[float | None, option(help=HELP["regularisation"])]


_KINDS: dict[str, Any] = {"text": str, "float8": float, "int4": int, "int8": int, "bool": bool}
_OWN = {  # options with other values than the fields, or other flags
    "features": Annotated[Path, option(help="JSON file: column → bounds, categories, or length and norm.")],
    "classes": Labels,
    "label_bounds": LabelBounds,
    "public_columns": Annotated[
        list[str] | None, option("--public-column", help="A public column, to group by; repeat for several.")
    ],
}


def _stated_options() -> list[inspect.Parameter]:
    options = []
    for each, sql_type in stated():
        if each.name not in ("name", "source"):
            kind = _KINDS.get(sql_type, Any)
            kind = kind | None if each.default is None else kind
            described = Annotated[kind, option(help=MEANINGS[each.name])]  # type: ignore[valid-type]
            default = inspect.Parameter.empty if each.default is MISSING else each.default
            annotation = _OWN.get(each.name, described)
            options.append(inspect.Parameter(each.name, _KEYWORD, annotation=annotation, default=default))
    return options


@app.command()
@with_options("public", _stated_options(), dict, first=True)
def register(
    name: str,
    table: str,
    public: dict[str, Any],
    engine: Engine = POSTGRESQL,
    master: Master = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Register a table as a dataset: public facts and a total budget."""
    with opened_on(url, engine, master) as database:
        source = table if engine == SPARK else quoted(database, table)
        features = json_file(public["features"], "--features")
        database.register(Registration(name, source, **public | {"features": features}))
    show_done(f"dataset {name} is registered", as_json, dataset=name, table=table)


@app.command("grant-training")
def grant_training(
    dataset: str,
    role: str,
    epsilon: Annotated[
        float | None, option(help="ε that all its releases together keep; default: only the dataset's.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Grant a role the right to train on a dataset that you registered."""
    with opened(url) as database:
        database.grant_training(dataset, role, epsilon=epsilon)
    show_done(f"{role} may train on {dataset}", as_json, dataset=dataset, role=role, epsilon=epsilon)


@app.command("revoke-training")
def revoke_training(dataset: str, role: str, as_json: AsJson = False, url: Url = None) -> None:
    """Revoke a role's grant to train on a dataset. Its spending stays."""
    with opened(url) as database:
        database.revoke_training(dataset, role)
    show_done(f"{role} may no longer train on {dataset}", as_json, dataset=dataset, role=role)


@app.command()
def allowances(as_json: AsJson = False, url: Url = None) -> None:
    """List who may train on which dataset, with limit and spending."""
    with opened(url) as database:
        show(database.allowances(), as_json, "allowances")


@app.command("grant-prediction")
def grant_prediction(model: Granted, role: str, as_json: AsJson = False, url: Url = None) -> None:
    """Allow a role to predict with a model that you released, or that was trained on your dataset."""
    with opened(url) as database:
        database.grant_prediction(model, role)
    show_done(f"{role} may predict with model {model}", as_json, model=model, role=role)


@app.command("revoke-prediction")
def revoke_prediction(model: Granted, role: str, as_json: AsJson = False, url: Url = None) -> None:
    """Revoke a role's right to predict with a model."""
    with opened(url) as database:
        database.revoke_prediction(model, role)
    show_done(f"{role} may no longer predict with model {model}", as_json, model=model, role=role)


@app.command()
def redeclare(
    name: str,
    reason: Reason,
    features: Annotated[Path | None, option(help="JSON file: column → bounds, categories, or length.")] = None,
    positive: Positive = None,
    negative: Negative = None,
    classes: Labels = None,
    label_bounds: LabelBounds = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Correct the declaration of a dataset. Its budget and its models do not change."""
    corrected = json_file(features, "--features") if features else None
    with opened(url) as database:
        database.redeclare(
            name,
            reason,
            features=corrected,
            positive=positive,
            negative=negative,
            classes=classes,
            label_bounds=label_bounds,
        )
    show_done(f"dataset {name} is declared again", as_json, dataset=name, reason=reason)


@app.command()
def renew(
    name: str,
    reason: Reason,
    epsilon: Annotated[float | None, option(help="ε of the new budget; default the same.")] = None,
    delta: Annotated[float | None, option(help="δ of the new budget; default the same.")] = None,
    capacity: Annotated[int | None, option(help="The new capacity; default the same.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """End a dataset's budget and begin a new one. The guarantees of both add up."""
    with opened(url) as database:
        database.renew_budget(name, reason, epsilon=epsilon, delta=delta, capacity=capacity)
        renewed = numbers(database.budget(name))
    show_budget(renewed, as_json)


@app.command("raise-capacity")
def raise_capacity(name: str, capacity: int, reason: Reason, as_json: AsJson = False, url: Url = None) -> None:
    """Raise the capacity of a dataset in rows or units. Budget, grants and models stay."""
    with opened(url) as database:
        database.raise_capacity(name, reason, capacity)
    show_done(f"dataset {name} has capacity {capacity}", as_json, dataset=name, capacity=capacity, reason=reason)


@app.command("answer-at-multiples")
def answer_at_multiples(
    name: str,
    reason: Reason,
    seconds: Annotated[int | None, option(help="From 1 to 86400; by default there is no delay.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Delay each charged result to a multiple of some seconds after its charge, so that its time is public."""
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
    beta: Annotated[float, option(help="Probability that the bounds are wider than the numbers.")] = BETA,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Estimate bounds of numbers, dates or texts, with noise, as the role that registered the dataset."""
    with opened(url) as database:
        estimate = database.bounds(dataset, column, epsilon=epsilon, delta=delta, beta=beta)
    show_figures(estimate, as_json, f"{column} of {dataset}", estimate.get("bins", []))


@app.command()
def categories(
    dataset: str,
    column: str,
    epsilon: Epsilon,
    delta: Annotated[float, option(help="δ of this release, above 0.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List values of a column that many rows have, with noise, as the role that registered the dataset."""
    with opened(url) as database:
        found = database.categories(dataset, column, epsilon=epsilon, delta=delta)
    show(found, as_json, f"{column} of {dataset}")


@app.command()
def baseline(
    dataset: str,
    loss: Loss = None,
    regularisation: Regularisation = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Train WITHOUT privacy, by L-BFGS, for a comparison by the table's owner. It stores nothing.

    You need the right to read the table, and membership in dbdp_data_owner.
    """
    request = Request(1.0, loss=loss, regularisation=regularisation)  # no ε is spent
    with opened(url) as database, for_owners("a baseline"):
        model = database.baseline(dataset, request)
    show_mapping(vars(model), as_json, f"{dataset} without privacy: do not publish")


@app.command("check-declaration")
def check_declaration(dataset: str, as_json: AsJson = False, url: Url = None) -> None:
    """Count rows that do not agree with the declaration, EXACTLY: for the table's owner. It charges and stores nothing.

    It lists unknown labels and categories, categories that never occur, values out of bounds, NULLs and constant
    columns. You need the right to read the table. Do not publish the counts.
    """
    with opened(url) as database:
        checked = database.check_declaration(dataset)
    if as_json:
        show_mapping(asdict(checked), True, "")
        return
    for value, rows in checked.classes.items():
        print_line(f"class {value!r}: {rows} of {checked.rows} rows")
    findings = [vars(each) for each in checked.findings]
    required = f"{checked.lost_if_required} if every column is required"
    print_line(f"NULL loses {checked.lost} of {checked.rows} rows, {required}")
    show(findings, False, f"{dataset}, {checked.rows} rows, exact counts: do not publish")
