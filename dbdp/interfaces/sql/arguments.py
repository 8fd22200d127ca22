"""Arguments of SQL functions as records and JSON values; nulls and values that cannot be stored are refused."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from dbdp import checks
from dbdp.algorithms import Request
from dbdp.algorithms.combined import tuning
from dbdp.algorithms.combined.groups import GroupsRequest
from dbdp.algorithms.combined.tuning import TuningRequest

_NESTS, _MOST_LEVELS = (list, dict), 100  # levels of JSON that is stored: more than any record of dbdp has


# Examples of required parameters.
_EXAMPLES = {
    "epsilon": "epsilon => 1 (smaller is more private)",
    "delta": "delta => 1e-6, about 1/(10 · rows), or 0 with mode => 'basic'",
    "dataset": "dataset => a name from dbdp.datasets",
    "model": "model => a number from dbdp.models",
    "summary": "summary => a number from dbdp.summaries",
    "statistic": "statistic => a number from dbdp.statistics",
    "quantiles": "quantiles => '{.25,.5,.75}', numbers between 0 and 1",
    "name": "name => 'patients', a name for the dataset",
    "source": "source => 'patients', its table",
    "label": "label => the column to learn",
    "features": """features => '{"age": [0, 120]}', the columns to learn it from""",
    "candidates": """candidates => '[{"regularisation": 0.01}, {"regularisation": 0.001}]', settings to choose among""",
    "group_by": "group_by => a public column of the dataset",
    "by": "by => '{ward}', one or two columns with categories or bins",
    "groups": "groups => array['north', 'south'], the values of it that get a model each",
    "metric": "metric => 'accuracy', or another one in docs/evaluation.md",
    "target": "target => the column to regress on the others, such as the label",
    "role": "role => a name from pg_roles",
    "former": "former => a role_name of dbdp.unconfirmed_roles",
    "capacity": "capacity => 10000, the largest number of rows or units to read",
    "column_name": "column_name => a column of numbers",
    "reason": "reason => 'approved by the board', for the record",
}


def training_request(values: Sequence[Any], **fixed: Any) -> Request:
    """Return a request from fixed options and the values of all others, in order; the last is a synonym's."""
    *values, regularization = values
    options = by_field(Request, values, *fixed)
    if regularization is not None:
        if options["regularisation"] is not None:
            raise ValueError("regularisation is passed twice, also as regularization; pass it once")
        options["regularisation"] = regularization
    return Request(**options, **fixed)


def by_field(record: type[Any], values: Sequence[Any], *without: str) -> dict[str, Any]:
    """Return values by the fields of a record, in order; raise ValueError for a null where it is not the default."""
    named = [each for each in fields(record) if each.name not in without]
    arguments = {each.name: value for each, value in zip(named, values, strict=True)}
    check_not_null(**{each.name: arguments[each.name] for each in named if each.default is MISSING})
    for each in named:
        if arguments[each.name] is None and each.default is not None:
            raise ValueError(f"{each.name} is null; leave it out, or pass a value")
    return arguments


def tuning_request(candidates: str, values: Sequence[Any]) -> TuningRequest:
    """Return a tuning from its candidates, the options of all trainings, and its own four."""
    options, own = values[:-4], values[-4:]
    check_not_null(candidates=candidates)
    return TuningRequest(training_request(options), tuning.parsed(candidates), *own)


def groups_request(group_by: str, groups: list[str], values: Sequence[Any]) -> GroupsRequest:
    """Return a training of groups from its column, its groups and the options of all trainings."""
    check_not_null(group_by=group_by, groups=groups)
    return GroupsRequest(training_request(values), group_by, tuple(groups))


def json_object(name: str, text: str) -> dict[str, Any]:
    """Return a JSON argument; raise ValueError unless it is an object of finite numbers."""
    value = json_value(name, text)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError(f"{name} has a number beyond the range of float8; leave it out") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {text[:200]}; pass a JSON object")
    return value


def client_receipt(text: str) -> dict[str, Any]:
    """Return a client's receipt; raise ValueError for a value that the view dbdp.models could not read."""
    receipt = json_object("receipt", text)
    for name, kind in (("algorithm", str), ("epsilon", float), ("delta", float)):
        value = receipt.get(name)
        if checks.is_whole(value) and abs(value) < 2**53:
            value = float(value)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name} of the receipt is {str(value)[:200]}; pass a {kind.__name__}, or leave it out")
    return receipt


def json_value(name: str, text: str) -> Any:
    """Return a JSON argument; raise ValueError for one that PostgreSQL could store but not read again.

    Its type json accepts a NUL, half a surrogate pair and thousands of levels; a later query that reads such a value
    fails, for everybody who lists what was stored.
    """
    try:
        value = json.loads(text)
        if _levels(value) > _MOST_LEVELS:
            raise ValueError("levels")
        written = json.dumps(value, ensure_ascii=False)
        if "\\u0000" in written.replace("\\\\", ""):
            raise ValueError("a NUL")
        written.encode()
    except (ValueError, RecursionError):
        raise ValueError(
            f"{name} is JSON with a NUL or half a surrogate pair, with more than {_MOST_LEVELS} levels, or with too "
            "many digits; leave that out"
        ) from None
    return value


def _levels(value: Any) -> int:
    """Return how deeply the lists and objects of a JSON value are nested."""
    levels, present = 0, [value]
    while lists := [each.values() if isinstance(each, dict) else each for each in present if isinstance(each, _NESTS)]:
        levels, present = levels + 1, [item for each in lists for item in each]
    return levels


def check_not_null(**arguments: Any) -> None:
    """Raise ValueError that names all arguments that are null, as those that a call leaves out are."""
    missing = [name for name, value in arguments.items() if value is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        examples = [_EXAMPLES.get(name, f"{name} => a value") for name in missing]
        raise ValueError(f"{', '.join(missing)} {verb} required, e.g. {', and '.join(examples)}")
