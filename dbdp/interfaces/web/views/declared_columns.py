"""The declaration of a table's columns, one line for each."""

from collections.abc import Iterator

from dbdp.learning.rows.features import LINEAR, Numeric
from dbdp.registry.declarations import Declaration

_SHOWN = 20  # categories or classes that are listed


def declared(declaration: Declaration) -> Iterator[tuple[str, str, str]]:
    """Yield name, part and declaration of each column, the label first."""
    yield declaration.label, "label", _label(declaration)
    if vector := declaration.vector:
        yield vector.column, "features", f"array of {vector.length} numbers, of norm at most {vector.norm_bound:g}"
    for numeric in declaration.numeric:
        yield numeric.column, "feature", _number(numeric)
    for categorical in declaration.categorical:
        yield categorical.column, "feature", f"one of {_several(categorical.categories)}"
    for column in declaration.public_columns:
        yield column, "public", "its value in every row is public; models may be trained for each of its values"


def _number(numeric: Numeric) -> str:
    bins = f", in {numeric.bins} bins" if numeric.bins else f", with {numeric.knots} knots" if numeric.knots else ""
    scale = f", on the scale {numeric.scale}" if numeric.scale != LINEAR else ""
    return f"number from {numeric.lower:g} to {numeric.upper:g}{bins}{scale}"


def _label(declaration: Declaration) -> str:
    if declaration.label_bounds:
        return "number from {:g} to {:g}".format(*declaration.label_bounds)
    if declaration.classes:
        return f"one of {_several(declaration.classes)}"
    negative = "any other value" if declaration.negative is None else f"“{declaration.negative}”"
    return f"positive “{declaration.positive}”, negative {negative}"


def _several(values: tuple[str, ...]) -> str:
    rest = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(f"“{value}”" for value in values[:_SHOWN]) + rest
