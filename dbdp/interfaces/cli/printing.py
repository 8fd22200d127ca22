"""Options that several commands have, and functions that read JSON and print results as tables or JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from dbdp.interfaces.cli.click_adapter import option
from dbdp.interfaces.plain import plain
from dbdp.interfaces.terminal import Terminal
from dbdp.sessions.errors import NOT_ALLOWED

if TYPE_CHECKING:
    from dbdp.interfaces.python.client.database import Database

console = Terminal()
LONGEST_LIST = 12  # numbers that a table shows one by one
_HOW_CHARGES_ADD_UP = ("mode", "rdp_order", "charge_limit", "charged", "leak_limit", "leaked", "recorded", "unrecorded")
_BREAKS = 16  # characters; a longer word in a cell may be broken

Url = Annotated[str | None, option(help="URL of the server; default DBDP_URL, else the private server.")]
AsJson = Annotated[bool, option("--json", help="Print JSON.")]
POSTGRESQL, SPARK = "postgresql", "spark"
Engine = Annotated[
    str,
    option(
        type=click.Choice([POSTGRESQL, SPARK]),
        help="Engine that reads rows and trains; spark: from a table, or files such as spark:parquet:/path.",
    ),
]
Places = Annotated[
    list[str] | None,
    option(
        "--place",
        help="A place of another role's dataset that may be read, as `dbdp datasets` shows it, or a folder above it; "
        "repeat for several. DBDP_PLACES lists more.",
    ),
]
Master = Annotated[str | None, option(help="Master of Spark, such as local[4]; default: its own settings.")]
Positive = Annotated[str | None, option(help="The label's positive value.")]
Negative = Annotated[str | None, option(help="Its negative value; default: any other.")]
Labels = Annotated[list[str] | None, option("--class", help="A class of the label; repeat for each.")]
LabelBounds = Annotated[
    tuple[float, float] | None, option(metavar="LOWER UPPER", help="Bounds of a label that is a number.")
]
Epsilon = Annotated[float, option(help="ε of this release.")]
Delta = Annotated[float, option(help="δ of this release; 0 is pure ε.")]
CohortOption = Annotated[
    str | None, option("--cohort", help='Only some rows, as JSON: {"age": [18, 65], "ward": ["A", "B"]}.')
]


@contextmanager
def opened(url: str | None) -> Iterator["Database"]:
    """Connect to a server, and close the connection at the end."""
    from dbdp.interfaces.python.client.connecting import connect

    with connect(url) as database:
        yield database


@contextmanager
def opened_on(
    url: str | None, engine: str, master: str | None, places: list[str] | None = None
) -> Iterator["Database"]:
    """Connect to a server, with Spark as the place where rows are read and trained on if that is the engine."""
    if engine == POSTGRESQL:
        if master is not None:
            raise ValueError(f"--master {master} is for --engine spark; add that, or leave it out")
        if places:
            raise ValueError(f"--place {places[0]} is for --engine spark; add that, or leave it out")
        with opened(url) as database:
            yield database
        return
    from dbdp.optional import needing

    with needing("Spark", "spark"):
        from dbdp.packing.spark.jobs import started

    with opened(url) as database, started(master) as spark:
        yield database.on_spark(spark, places=places or ())


@contextmanager
def for_owners(what: str) -> Iterator[None]:
    """Add the rights that are needed to the error where the server refuses an exact result."""
    try:
        yield
    except Exception as error:
        if getattr(error, "sqlstate", None) != NOT_ALLOWED:
            raise
        raise PermissionError(
            f"{str(error).splitlines()[0]}; {what} needs the privilege to read the table and membership in "
            "dbdp_data_owner"
        ) from None


def parsed_cohort(text: str | None) -> dict[str, Any] | None:
    """Return the cohort of an option; raise ValueError if it is no JSON object."""
    return None if text is None else json_object(text, "--cohort")


def json_object(text: str, source: str) -> dict[str, Any]:
    """Return the JSON object of a text; raise ValueError, with the source (an option or a file), if it is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} is not a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f'{source} is not a JSON object: write {{"name": value, …}}')
    return value


def json_file(path: Path, option: str) -> dict[str, Any]:
    """Return the JSON object in a file; raise ValueError if the file is not one."""
    source = f"{option} {str(path)!r}"
    try:
        return json_object(path.read_text(), source)
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not a JSON object: {error}") from None


def cell(value: Any, style: str = "") -> Text:
    """Return a value for a table: a number rounded, a time to the second, text without rich's markup."""
    if value is None:
        return Text()
    if isinstance(value, float):
        return Text(f"{value:.6g}")
    if isinstance(value, datetime):
        return Text(value.isoformat(" ", "seconds").removesuffix("+00:00"))
    return Text(plain(str(value)), style)


def show(rows: list[dict[str, Any]], as_json: bool, title: str) -> None:
    """Print rows as a table, one by one where the console is too narrow for it, or as a JSON list."""
    if as_json:
        print(json.dumps(rows, default=str))
    elif not rows:
        print_line(f"{title}: none")
    elif (table := _table(rows, title)) is not None:
        console.print(table)
    else:
        for number, row in enumerate(rows, start=1):
            show_mapping(row, False, f"{title}: {number} of {len(rows)}")


def _table(rows: list[dict[str, Any]], title: str) -> Table | None:
    """Return rows as a table; None if the console is so narrow that words would be broken."""
    table = Table(title=cell(title, "table.title"), box=SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    width = -2
    for name in rows[0]:
        column = [cell(name), *(cell(row[name]) for row in rows)]
        longest = max(map(_longest_word, column))
        fits = longest <= _BREAKS and not any(" " in each.plain for each in column)
        table.add_column(column[0], overflow="fold", no_wrap=fits)
        width += min(longest, _BREAKS) + 2
    for row in rows:
        table.add_row(*map(cell, row.values()))
    return table if width <= console.width else None


def _longest_word(text: Text) -> int:
    return max((Text(word).cell_len for word in text.plain.split(" ")), default=0)


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with Decimal values as float, for JSON and tables."""
    return {key: float(value) if isinstance(value, Decimal) else value for key, value in row.items()}


def show_mapping(values: dict[str, Any], as_json: bool, title: str) -> None:
    """Print names and values as a table or as a JSON object."""
    if as_json:
        print(json.dumps(values, default=str))
        return
    table = Table(title=cell(title, "table.title"), show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(cell(name), cell(abbreviated(value)))
    console.print(table)


def abbreviated(value: Any) -> Any:
    """Return how many numbers a long list has, and their range; any other value unchanged."""
    if not isinstance(value, list) or len(value) <= LONGEST_LIST or not all(isinstance(each, float) for each in value):
        return value
    return f"{len(value)} numbers, {min(value):g} to {max(value):g}; --json prints them"


def show_budget(row: dict[str, Any], as_json: bool, *, is_long: bool = False) -> None:
    """Print a row of dbdp.budget; without how charges add up unless it is the long form, or JSON."""
    shown = row if is_long or as_json else {key: row[key] for key in row if key not in _HOW_CHARGES_ADD_UP}
    show_mapping(shown, as_json, "budget")


def show_done(text: str, as_json: bool, **facts: Any) -> None:
    """Print what was done, as a sentence or as a JSON object of facts."""
    if as_json:
        print(json.dumps(facts, default=str))
    else:
        print_line(text)


def print_line(text: str) -> None:
    """Print a line of text, with control characters escaped."""
    console.print(Text(plain(text)), soft_wrap=True)


def show_figures(result: dict[str, Any], as_json: bool, title: str, rows: list[dict[str, Any]]) -> None:
    """Print the result of a score: its rows if it has some, its numbers, and the receipt."""
    if as_json:
        print(json.dumps(result))
        return
    if rows:
        show(rows, False, title)
    show_mapping({name: value for name, value in result.items() if not isinstance(value, list | dict)}, False, title)
    show_mapping(result["receipt"], False, "receipt")
