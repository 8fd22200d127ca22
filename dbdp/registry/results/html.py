"""Receipts and values as HTML, which a notebook shows."""

import re
from collections.abc import Mapping
from typing import Any

from dbdp.checks import is_number

_FIRST = (  # of a receipt
    *("dataset", "algorithm", "epsilon", "delta", "rows", "predicted_loss", "noise_scale", "charge", "warning"),
)
_MOST_SHOWN = 200  # rows of a table
OF_ROWS = "^dbdp_rows_[0-9a-f]{16}$"  # the name of a dataset of rows that an estimator loads for one training


class ReceiptData(dict[str, Any]):
    """A receipt as data, which a notebook shows as a short table, with the other entries folded."""

    def _repr_html_(self) -> str:
        first = {name: self[name] for name in _FIRST if name in self}
        if "dataset" in first:
            first["dataset"] = dataset_shown(first["dataset"])
        first |= evaluated(self)
        others = {name: value for name, value in self.items() if name not in first}
        folded = f"<details><summary>all {len(self)} entries</summary>{html_table(others, '')}</details>"
        return html_table(first, "receipt") + (folded if others else "")


class RowsData(list[dict[str, Any]]):
    """Rows as `pandas.DataFrame` takes them, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        names = list(self[0]) if self else []
        head = "".join(f"<th>{escaped(name)}</th>" for name in names)
        rows = (
            f"<tr>{''.join(f'<td>{escaped(_cell(row[name]))}</td>' for name in names)}</tr>"
            for row in self[:_MOST_SHOWN]
        )
        more = f"<p>{len(self) - _MOST_SHOWN} more rows</p>" if len(self) > _MOST_SHOWN else ""
        return f"<table><tr>{head}</tr>{''.join(rows)}</table>{more}"


def evaluated(receipt: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of a model on its own training rows as text, each with its ±; empty without them."""
    figures = receipt.get("evaluation")
    if not isinstance(figures, Mapping):  # a client may have written anything
        return {}
    return {
        f"{name.replace('_', ' ')} (training rows)": f"{figure['value']:.3g} ± {figure['plus_minus']:.2g}"
        for name, figure in figures.items()
        if isinstance(figure, Mapping) and all(map(is_number, (figure.get("value"), figure.get("plus_minus"))))
    }


def dataset_shown(name: str) -> str:
    """Return the name of a dataset for a person: that of rows passed to an estimator says so."""
    return "(rows passed to fit)" if re.fullmatch(OF_ROWS, name) else name


def html_table(values: Mapping[str, Any], caption: str) -> str:
    """Return names and values as an HTML table; names of users are escaped."""
    cells = (
        f"<tr><th style='text-align:left'>{escaped(str(name))}</th><td>{escaped(_short(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table><caption>{escaped(caption)}</caption>{''.join(cells)}</table>"


def escaped(text: str) -> str:
    """Return a text with HTML's special characters escaped."""
    from html import escape  # a notebook needs it, and no server

    return escape(text)


def _cell(value: Any) -> str:
    return "" if value is None else ", ".join(map(_cell, value)) if isinstance(value, list) else _short(value)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
