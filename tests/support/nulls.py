"""Features that require a value in every column: null makes a row a zero row, as in versions before."""

from collections.abc import Mapping
from typing import Any


def required(features: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same features, with NULL declared as `required` in each column."""
    return {name: _required(declared) for name, declared in features.items()}


def _required(declared: Any) -> Any:
    if isinstance(declared, Mapping):
        return declared if "length" in declared else {**declared, "missing": "required"}
    key = "categories" if isinstance(declared[0], str) else "bounds"
    return {key: declared, "missing": "required"}
