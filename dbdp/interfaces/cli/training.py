"""Commands that plan a training and run it."""

import inspect
import json
import math
from dataclasses import Field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.words import SYNONYMS
from dbdp.controller.training_options import check_without_columns, help_of, keywords
from dbdp.interfaces.cli.click_adapter import Argument, Commands, option, with_options
from dbdp.interfaces.cli.printing import (
    POSTGRESQL,
    AsJson,
    Engine,
    Master,
    Places,
    Url,
    opened,
    opened_on,
    show,
    show_mapping,
)
from dbdp.privacy.accounting.budget import Budget

if TYPE_CHECKING:
    from dbdp.registry.results.models import ReleasedModel

app = Commands()

GroupBy = Annotated[
    str, option(help="A public column of the dataset, or, if it has a capacity, a feature with categories.")
]
Groups = Annotated[list[str], option("--group", help="A value of the column that gets a model; repeat for each.")]
Candidates = Annotated[Path, option(help='JSON file: [{"settings": {"clip": 0.2}}, …].')]
Method = Annotated[
    str | None,
    option(help="disjoint_portions or random_repetition; by default the former, for preconditioned_gd shared_moment."),
]
MeanRuns = Annotated[float | None, option(help="Mean number of runs of random_repetition.")]
SelectionEpsilon = Annotated[
    float | None, option(help="ε of the choice; by default the largest that adds nothing to the charge.")
]
Distribution = Annotated[str | None, option(help="Law of the number of runs: geometric or poisson.")]
Planned = Annotated[str | None, Argument("A registered dataset, instead of --rows and --features.")]
Rows = Annotated[int | None, option(help="Number of records, public.")]
Features = Annotated[int | None, option(help="Coordinates of one model, with the intercept.")]
UnitRows = Annotated[int, option(help="Records of each unit of privacy; ROWS is units times this.")]
BudgetEpsilon = Annotated[
    float,
    option(type=click.FloatRange(0), help="ε of the dataset's budget: the size of Poisson mini-batches depends on it."),
]
Classes = Annotated[int, option(help="Classes of a one-vs-rest training; 1 for a binary label or a number.")]


def _request_options() -> list[inspect.Parameter]:
    def annotated(each: Field[Any], kind: type) -> Any:
        names = [each.name, *(synonym for synonym, name in SYNONYMS.items() if name == each.name)]
        flags = [f"--{name.replace('_', '-')}" for name in names]
        described = option(*flags, help=partial(help_of, each.name))
        return Annotated[kind | None if each.default is None else kind, described]

    return keywords(annotated)


with_request_options = with_options("request", _request_options(), Request)


@app.command()
@with_request_options
def train(
    dataset: str,
    request: Request,
    engine: Engine = POSTGRESQL,
    master: Master = None,
    places: Places = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Train a private model on a registered dataset, and store the release."""
    from dbdp.interfaces.python.progress_bar import progress_bar

    with opened_on(url, engine, master, places) as database, progress_bar() as progress:
        model = database.train(dataset, request, progress)
    _show_model(model, as_json)


def _show_model(model: "ReleasedModel", as_json: bool) -> None:
    if as_json:
        print(json.dumps(vars(model), default=str))
    else:
        show_mapping(model.receipt, False, f"receipt of model {model.id}")


@app.command("train-groups")
@with_request_options
def train_groups(
    dataset: str, request: Request, group_by: GroupBy, groups: Groups, as_json: AsJson = False, url: Url = None
) -> None:
    """Train a private model for each group of rows, for one charge, and store the releases."""
    from dbdp.interfaces.python.progress_bar import progress_bar

    with opened(url) as database, progress_bar() as progress:
        models = database.train_groups(dataset, request, group_by=group_by, groups=groups, progress=progress)
    if as_json:
        print(json.dumps({group: vars(model) for group, model in models.items()}, default=str))
        return
    rows = [
        {
            "group": group,
            "rows": model.receipt.get("capacity", model.receipt.get("rows")),
            "model": model.id,
            "noise_scale": model.receipt.get("noise_scale"),
        }
        for group, model in models.items()
    ]
    show(rows, as_json, f"models of {dataset} by {group_by}")
    receipt = next(iter(models.values())).receipt
    show_mapping({name: receipt[name] for name in ("mode", "order", "charge", "leak")}, False, "charged once")


@app.command()
@with_request_options
def tune(
    dataset: str,
    request: Request,
    candidates: Candidates,
    method: Method = None,
    repetitions: MeanRuns = None,
    distribution: Distribution = None,
    selection_epsilon: SelectionEpsilon = None,
    engine: Engine = POSTGRESQL,
    master: Master = None,
    places: Places = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Choose among settings privately, and store the chosen model."""
    from dbdp.algorithms.combined.tuning import TuningRequest, parsed
    from dbdp.interfaces.python.progress_bar import progress_bar

    own = (method, repetitions, distribution, selection_epsilon)
    tuning = TuningRequest(request, parsed(candidates.read_text()), *own)
    with opened_on(url, engine, master, places) as database, progress_bar() as progress:
        model = database.tune(dataset, tuning, progress)
    _show_model(model, as_json)


@app.command()
@with_request_options
def explain(
    request: Request,
    dataset: Planned = None,
    rows: Rows = None,
    features: Features = None,
    classes: Classes = 1,
    max_rows: UnitRows = 1,
    budget_epsilon: BudgetEpsilon = 0.0,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show plan, sensitivity and noise scale of a training, and spend nothing.

    Of a registered dataset, or of --rows and --features, which needs no database.
    """
    if dataset is not None and (rows, features) == (None, None):
        with opened(url) as database:
            show_mapping(database.explain(dataset, request), as_json, f"plan on {dataset}")
    elif dataset is None and rows is not None and features is not None:
        show_mapping(_planned(request, rows, features, classes, max_rows, budget_epsilon), as_json, "plan")
    else:
        raise click.UsageError("pass either a DATASET, or --rows and --features")


def _planned(
    request: Request, rows: int, features: int, classes: int, max_rows: int, budget_epsilon: float
) -> dict[str, Any]:
    """Return the plan of a training on rows that are nowhere yet."""
    check_without_columns(request)
    is_classifier = request.loss not in ("huber_regression", "squared")
    budget = Budget.of(epsilon=budget_epsilon, delta=request.delta, mode="basic") if budget_epsilon else None
    reach = math.sqrt(2 * features)  # if each feature is a column
    facts = Facts(rows, features, classes, is_classifier, unit_rows=max_rows, budget=budget, reach=reach)
    return plan(request, facts).explain() | request.naming
