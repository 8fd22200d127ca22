"""Figures of released statistics in Python: rows, a pandas DataFrame of them, and a table for a notebook."""

from collections.abc import Iterable
from typing import Any

from dbdp.optional import needing
from dbdp.registry.results.html import escaped
from dbdp.sessions.session import Row


class Figures(list[Row]):
    """The figures of a released statistic, a dict for each row, with the names of the SQL function's columns.

    Attributes
    ----------
    statistic : int
        Its number in dbdp.statistics, by which the figures are shown again, for free.
    """

    def __init__(self, rows: Iterable[Row], statistic: int | None = None) -> None:
        rows = list(rows)
        self.statistic: int = rows[0]["statistic"] if statistic is None else statistic
        super().__init__({name: value for name, value in row.items() if name != "statistic"} for row in rows)

    @property
    def frame(self) -> Any:
        """The figures as a pandas.DataFrame, without columns that no row has; pandas must be installed."""
        with needing("frame"):
            import pandas as pd
        return pd.DataFrame({name: [row[name] for row in self] for name in self._names})

    @property
    def _names(self) -> list[str]:
        return [name for name in (self[0] if self else {}) if any(row[name] is not None for row in self)]

    def _repr_html_(self) -> str:
        lines = [self._names, *([_shown(row[name]) for name in self._names] for row in self)]
        marks = ["th", *["td"] * len(self)]
        rows = (
            "".join(f"<{mark}>{escaped(each)}</{mark}>" for each in line)
            for line, mark in zip(lines, marks, strict=True)
        )
        return (
            f"<table><caption>statistic {self.statistic}</caption>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
        )


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
