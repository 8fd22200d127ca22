"""Propose `features` for a registration from a public data dictionary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def propose_declaration(dictionary: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Propose `features` for `register_dataset` from a public data dictionary, for you to check.

    The data are not read: bounds and categories from there would leak.

    Parameters
    ----------
    dictionary : str, Path or mapping
        Column → description, or the path of a JSON file with it. A description has `minimum` and `maximum`, or
        `values`, or `length` and `norm`. Other entries (units, comments) are ignored.

    Returns
    -------
    dict
        Column → `[lower, upper]`, a list of categories, or `{"length": d, "norm": bound}`.

    Raises
    ------
    ValueError
        If it is not a dictionary, or a description has no such entry. The message names the column.
    """
    if not isinstance(dictionary, str | Path | Mapping):
        raise ValueError(
            f"the dictionary is a {type(dictionary).__name__}; pass column → description, or the path of a JSON file "
            "with it: rows are not read, since what is computed from them would leak"
        )
    described = dictionary if isinstance(dictionary, Mapping) else json.loads(Path(dictionary).read_text())
    return {column: _proposed(column, description) for column, description in described.items()}


def _proposed(column: str, description: Mapping[str, Any]) -> Any:
    if not isinstance(description, Mapping):
        raise ValueError(
            f"the dictionary describes {column!r} by {description!r}; write "
            '{"minimum": …, "maximum": …}, or {"values": […]}'
        )
    if {"minimum", "maximum"} <= set(description):
        return [float(description["minimum"]), float(description["maximum"])]
    if description.get("values"):
        return [str(value) for value in description["values"]]
    if {"length", "norm"} <= set(description):
        return {"length": description["length"], "norm": description["norm"]}
    raise ValueError(
        f'the dictionary has neither "minimum" and "maximum" nor "values" of {column!r}; add its public range, or '
        "leave the column out"
    )
