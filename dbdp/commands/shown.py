"""What the commands share: options that many have, and how they print, for people or as JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from dbdp.database import Database

console = Console()

Url = Annotated[str | None, typer.Option(help="Server to use; default DBDP_URL, else the private one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Positive = Annotated[str | None, typer.Option(help="The label's positive value.")]
Negative = Annotated[str | None, typer.Option(help="Its negative value; default: any other.")]
Labels = Annotated[list[str] | None, typer.Option("--class", help="A class of the label; give each.")]
LabelBounds = Annotated[
    tuple[float, float] | None, typer.Option(metavar="LOWER UPPER", help="Bounds of a label that is a number.")
]
Epsilon = Annotated[float, typer.Option(help="ε of what is shown.")]
Delta = Annotated[float, typer.Option(help="δ of what is shown; 0 asks for pure ε.")]


@contextmanager
def opened(url: str | None) -> Iterator["Database"]:
    """Connect to a server."""
    from dbdp.database import connect

    with connect(url) as database:
        yield database


def show(rows: list[dict[str, Any]], as_json: bool, title: str) -> None:
    """Print rows: a table, or a JSON list."""
    if as_json:
        print(json.dumps(rows, default=str))
        return
    table = Table(title=title)
    for column in rows[0] if rows else ["(none)"]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table)


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose exact decimals are floats, for JSON and for tables."""
    return {key: float(value) if isinstance(value, Decimal) else value for key, value in row.items()}


def show_mapping(values: dict[str, Any], as_json: bool, title: str) -> None:
    """Print names and values: a table, or a JSON object."""
    if as_json:
        print(json.dumps(values, default=str))
        return
    table = Table(title=title, show_header=False)
    for name, value in values.items():
        table.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    console.print(table)


def show_done(text: str, as_json: bool, **facts: Any) -> None:
    """Say what was done: in words, or its facts as a JSON object."""
    if as_json:
        print(json.dumps(facts, default=str))
    else:
        console.print(text, soft_wrap=True, highlight=False, markup=False)


def show_figures(found: dict[str, Any], as_json: bool, title: str, rows: list[dict[str, Any]]) -> None:
    """Print a figure that was paid for: its rows where it has some, its numbers, the receipt."""
    if as_json:
        print(json.dumps(found))
        return
    if rows:
        show(rows, False, title)
    show_mapping({name: value for name, value in found.items() if not isinstance(value, list | dict)}, False, title)
    show_mapping(found["receipt"], False, "receipt")
