"""The bins of a summary's numbers: an option of dp_summarize, so that a table or synthetic rows can have them."""

from collections.abc import Mapping
from typing import Any

from dbdp import checks
from dbdp.learning.rows.features import CENTRED, Numeric
from dbdp.packing.shuffle_options import Coding
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import MAX_BINS, Declaration

_WHOLE = ("smallint", "integer", "bigint", "boolean")
_EXAMPLE = """such as bins => '16' or bins => '{"age": 8}'"""


def coding_of(dataset: RegisteredDataset, bins: Any) -> Coding:
    """Return how the rows of a summary are encoded, with bins; raise ValueError unless they are valid.

    `bins` is a number for each column of numbers that has no bins, and for a label that is a number, or an object from
    columns to numbers; None adds none. Whole numbers of fewer values than that have a bin for each.
    """
    declaration = dataset.declaration
    if bins is None:
        return Coding(CENTRED)
    if declaration.vector:
        raise ValueError(f"column {declaration.vector.column!r} is an array, which has no bins; leave bins out")
    wanted = _of_each(dataset, bins) if checks.is_whole(bins) else _named(declaration, bins)
    divided = [each for each in declaration.numeric if each.column in wanted]
    features = {each.column: _stated(each.declared, wanted[each.column]) for each in divided}
    return Coding(CENTRED, declaration.features | features, label_bins=wanted.get(declaration.label, 0))


def _stated(declared: Any, bins: int) -> dict[str, Any]:
    """Return the declaration of a number with bins."""
    stated = dict(declared) if isinstance(declared, Mapping) else {"bounds": declared}
    return {name: value for name, value in stated.items() if name != "knots"} | {"bins": bins}


def _numbers(declaration: Declaration) -> dict[str, Numeric]:
    """Return the numbers of a declaration by name, and its label if it is one."""
    numbers = {each.column: each for each in declaration.numeric}
    if declaration.label_bounds:
        numbers[declaration.label] = Numeric(declaration.label, *declaration.label_bounds)
    return numbers


def _of_each(dataset: RegisteredDataset, bins: int) -> dict[str, int]:
    checks.whole("bins", bins, 2, MAX_BINS)
    return {
        name: _fewer(each, dataset.column_types[name], bins)
        for name, each in _numbers(dataset.declaration).items()
        if not each.bins
    }


def _fewer(number: Numeric, type_name: str, bins: int) -> int:
    """Return a bin for each whole number within the bounds, if these are no more than so many."""
    if type_name not in _WHOLE or not (number.lower.is_integer() and number.upper.is_integer()):
        return bins
    return int(min(bins, number.upper - number.lower + 1))


def _named(declaration: Declaration, bins: Any) -> dict[str, int]:
    if not isinstance(bins, Mapping):
        raise ValueError(f"bins = {bins!r} is no whole number and no object; pass one, {_EXAMPLE}")
    numbers = _numbers(declaration)
    for name, number in bins.items():
        if name not in numbers:
            what = "is no number" if name in (*declaration.columns, declaration.label) else "is no column"
            present = ", ".join(list(numbers)[:20]) or "none"
            raise ValueError(f"bins name {name!r}, which {what} of the dataset; choose among {present}")
        checks.whole(f"bins of {name!r}", number, 2, MAX_BINS)
    return dict(bins)
