"""The training options, from which every interface is generated.

`Request` defines their names, types and defaults, and each algorithm declares which of them it has; this module
describes them for users.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

from dbdp.algorithms import ALGORITHMS, AUTO, Request
from dbdp.algorithms.catalogue import algorithms_with, values_of
from dbdp.learning.losses import LOSSES
from dbdp.learning.rows.pairs import NONE

HELP = {  # {values} stands for those that algorithms declare, whose modules are imported when a help is read
    "epsilon": "ε of this release.",
    "delta": "δ of this release; 0 means pure ε.",
    "algorithm": f"{AUTO}, which chooses by public facts, or one of {', '.join(ALGORITHMS)}.",
    "loss": f"{', '.join(LOSSES)}; by default logistic for classes and squared for numbers, or huber_regression with "
    "delta = 0 or an algorithm other than preconditioned_gd.",
    "huber_width": "Half-width h of huber_svm, or δ of huber_regression.",
    "positive_weight": "Factor of the loss of positive rows; public or from dp_class_balance, never from exact label "
    "counts.",
    "epochs": "Passes over the data; by default 10, or from public facts, see docs/algorithms.md.",
    "batch_size": "Rows of a mini-batch, or expected rows of a Poisson sample; by default from public facts.",
    "schedule": "Step sizes: {values}.",
    "step_size": "Step size of the constant and the restarted schedule; of every schedule with noise during training.",
    "exponent": "c of the decreasing and the square_root schedule; default 0.5.",
    "averaging": "Which iterates make up the model: {values}.",
    "averaging_interval": "Epochs between the restarts; default 5.",
    "permutation": "The order of the rows in each epoch: {values}.",
    "shards": "Disjoint parts of the rows that are trained in parallel and averaged.",
    "shard_averaging": "When shards are averaged: {values}.",
    "regularisation": "λ of the L2 regulariser; by default from public facts, see docs/algorithms.md.",
    "radius": "The model is projected onto this norm.",
    "mechanism": "{values}; the default depends on delta.",
    "calibration": "How the noise is calibrated: worst_position, or hockey_stick, rdp_tight or rdp of all positions; "
    "with Poisson mini-batches rdp or pld (less noise, but a larger charge in a renyi ledger), for bst14 published.",
    "projection_dimension": "Features after a Gaussian random projection.",
    "projection_seed": "Public seed of the projection.",
    "clip_norm": "Norm to which a row's gradient, of all classes together, is clipped, with noise during training.",
    "network": "A network instead of a linear model: mlp or cnn, with sizes such as mlp:256.",
    "settings": 'Settings that only this algorithm has, as JSON, such as {"splits": 60}.',
    "summary": "Number of a released summary of the dataset; the second moment then needs no budget.",
    "pairs": "Pairs of columns with their cells as further features, such as age*education, age*sex; or their number; "
    "or auto, which decides by public facts; or chosen, by a part of the privacy budget, if curves are learned; "
    "default none. For linear models of columns.",
    "pair_cells": "Most cells of a pair; default 20, 64 of named pairs, 400 of chosen pairs. Numbers are cut in bins, "
    "and categories merged in the declared order.",
    "monotone": 'Columns that may only raise a score, or only lower it, as JSON, such as {"age": 1, "hours": -1}.',
    "cohort": 'Only rows that meet all of its conditions, as JSON, such as {"age": [18, 65], "ward": ["A", "B"]}. '
    "How many rows that are stays private; the charge and the noise are those of all rows.",
    "name": "Name of the model, such as readmission; each further training run under it is a new version.",
}
_SQL_TYPES = {float: "float8", int: "int", str: "text"}


def check_without_columns(request: Request) -> None:
    """Raise ValueError for a request that names columns, where only numbers of rows and features are known."""
    if request.pairs not in (None, NONE):
        raise ValueError(
            f"pairs = {request.pairs!r} need the columns of a dataset; leave them out, or call dbdp.dp_explain"
        )
    for name in ("monotone", "cohort"):
        if (value := getattr(request, name)) is not None:
            raise ValueError(
                f"{name} = {value!r} needs the columns of a dataset; leave it out, or call dbdp.dp_explain"
            )


def description_of(name: str) -> str:
    """Return the description of an option, with the values that algorithms declare."""
    values = "{values}"
    return HELP[name].replace(values, ", ".join(values_of(name))) if values in HELP[name] else HELP[name]


def help_of(name: str) -> str:
    """Return the description of an option, with the algorithms that have it if not all do."""
    algorithms = algorithms_with(name)
    others = [each for each in ALGORITHMS if each not in algorithms]
    if not others or not algorithms:
        return description_of(name)
    few = f"Only {', '.join(algorithms)}." if len(algorithms) <= len(others) else f"Not {', '.join(others)}."
    return f"{description_of(name)} {few}"


def options(*, without: tuple[str, ...] = ()) -> Iterator[tuple[Field[Any], type]]:
    """Yield the fields of a request and their types (for `T | None`: T)."""
    hints = get_type_hints(Request)
    for each in fields(Request):
        if each.name not in without:
            hint = hints[each.name]
            yield each, next((kind for kind in getattr(hint, "__args__", (hint,)) if kind is not type(None)), hint)


def sql_parameters(*, without: tuple[str, ...] = ()) -> str:
    """Return the options as parameters of an SQL function, one on a line."""
    lines = []
    for each, kind in options(without=without):
        default = None if each.default is MISSING else each.default  # dbdp refuses null by name
        type_name = "jsonb" if each.name == "cohort" else _SQL_TYPES[kind]
        lines.append(f"  {each.name} {type_name} default {_literal(default)}")
    return ",\n".join([*lines, "  regularization float8 default null"])  # a synonym


def keywords(
    annotation: Callable[[Field[Any], type], Any], *, without: tuple[str, ...] = ()
) -> list[inspect.Parameter]:
    """Return the options as keyword parameters of a Python function, annotated by a function of field and type."""
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation(each, kind),
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
        )
        for each, kind in options(without=without)
    ]


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    return f"'{value}'" if isinstance(value, str) else f"{value:g}"
