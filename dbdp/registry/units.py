"""The unit of privacy of a dataset, if it is not one row: its column, and how many rows of each are read."""

from dataclasses import dataclass

from dbdp.checks import whole
from dbdp.registry.declarations import Declaration

MAX_UNIT_ROWS = 1000  # the noise grows by this factor: with more a model would be noise alone
MAX_UNIT_NUMBERS = 1 << 21  # 16 MB: some units are read together, and must fit memory whatever their rows hold


@dataclass(frozen=True)
class Unit:
    """The unit of privacy, if it is not one row: all rows with one value of a column."""

    column: str  # its values identify the units; a row with null belongs to no unit and is never read
    max_rows: int  # r: at most so many rows of each unit take part, and every unit has so many slots


def unit_of(declaration: Declaration, column: str | None, max_rows: int | None) -> Unit | None:
    """Return the unit of privacy; None where it is one row."""
    if column is None and max_rows is None:
        return None
    if column is None or max_rows is None:
        raise ValueError(
            f"{'unit' if column is None else 'max_rows'} is missing: the two belong together; give the column that "
            "identifies the unit and how many rows of each are read, or neither"
        )
    if column in (declaration.label, *declaration.columns):
        raise ValueError(
            f"unit {column!r} is the label or a feature too, but neighbours have the same units in their rows: remove "
            "the column from the label and the features, or choose another unit"
        )
    whole("max_rows", max_rows, 1, MAX_UNIT_ROWS, "noise grows with it, so choose a number that most units need")
    width = declaration.vector.length if declaration.vector else len(declaration.columns)
    if max_rows * width > MAX_UNIT_NUMBERS:
        raise ValueError(
            f"max_rows = {max_rows} rows of {width} numbers are above the limit of {MAX_UNIT_NUMBERS} numbers in a "
            f"unit; choose max_rows = {MAX_UNIT_NUMBERS // width} at most"
        )
    return Unit(column, max_rows)
