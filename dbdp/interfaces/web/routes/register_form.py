"""The form of a registration: the columns of a table as fields, and the fields as a registration."""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dbdp.interfaces.python.client.database import Database
from dbdp.registry.registration import Registration

MODES = ("renyi", "basic", "gaussian", "zcdp")
MOST_COLUMNS = 150  # a longer table is declared as JSON
# Tables that the role owns, and that are not registered.
_TABLES = """
select format('%I.%I', n.nspname, c.relname) as name
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where c.relkind = 'r'
and c.relpersistence = 'p'
and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'dbdp')
and pg_has_role(c.relowner, dbdp_internal.membership())
and not exists (select from dbdp.dataset as d where d.source = c.oid and d.dropped_at is null)
order by name
limit 1000
"""
_COLUMNS = """
select a.attname::text as name, format_type(a.atttypid, null) as type, t.typcategory::text as category
from pg_attribute as a
join pg_type as t on t.oid = a.atttypid
where a.attrelid = to_regclass($1::text)
and a.attnum > 0
and not a.attisdropped
order by a.attnum
"""
_EXAMPLES = {float: "a number, such as 0.5", int: "a whole number, such as 1000"}


@dataclass(frozen=True)
class Column:
    """A column of the table, with the names of its fields.

    Attributes
    ----------
    place : int
        Its place in the form, from 0.
    name, type : str
        Name and type of the column.
    category : str
        PostgreSQL's category of the type: N for numbers, A for arrays.
    """

    place: int
    name: str
    type: str
    category: str

    @property
    def bounds(self) -> tuple[tuple[str, str], ...]:
        """The fields of its bounds, each with its label; empty if it has none."""
        labels = {"N": ("lower", "upper"), "A": ("length", "norm")}.get(self.category, ())
        return tuple((f"{label}_{self.place}", label) for label in labels)


def tables(database: Database) -> list[str]:
    """Return the tables that the role may register, as SQL writes their names."""
    return [row["name"] for row in database.query(_TABLES)]


def columns(database: Database, table: str) -> list[Column]:
    """Return the columns of a table; empty if there is no such table."""
    return [Column(place, **row) for place, row in enumerate(database.query(_COLUMNS, table))]


def read(texts: Mapping[str, str]) -> Registration:
    """Return the registration that the fields of the form describe."""
    for name in ("name", "source", "label", "delta"):
        if not texts.get(name, "").strip():
            raise ValueError(f"{name} is empty; a registration needs it")
    bounds = [number_in(texts, f"label_{end}") for end in ("lower", "upper")]
    delta = number_in(texts, "delta")
    return Registration(
        name=texts["name"].strip(),
        source=texts["source"],
        label=texts["label"],
        positive=texts.get("positive") or None,
        negative=texts.get("negative") or None,
        classes=_several(texts.get("classes", "")) or None,
        label_bounds=None if bounds == [None, None] else _both("the bounds of the label", *bounds),
        features=_features(texts),
        epsilon=number_in(texts, "epsilon"),
        delta=0.0 if delta is None else delta,
        mode=texts.get("mode") or MODES[0],
        unit=texts.get("unit") or None,
        max_rows=number_in(texts, "max_rows", int),
        public_columns=[texts[f"column_{place}"] for place in _places(texts) if f"public_{place}" in texts] or None,
        capacity=number_in(texts, "capacity", int),
    )


def _features(texts: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the features: those of the field of JSON if it is used, else of the columns that are filled."""
    if written := texts.get("features", "").strip():
        try:
            features = json.loads(written)
        except ValueError as error:
            raise ValueError(f"the features are not JSON: {error}") from None
        if not isinstance(features, dict):
            raise ValueError('the features must map columns, as {"age": [0, 120]} does')
        return features
    declared = ((texts[f"column_{place}"], _declared(texts, place)) for place in _places(texts))
    return {column: declaration for column, declaration in declared if declaration is not None}


def _declared(texts: Mapping[str, str], place: int) -> Any:
    """Return the declaration of a column, None if its fields are empty."""
    column = texts[f"column_{place}"]
    if values := _several(texts.get(f"values_{place}", "")):
        return values
    if (length := number_in(texts, f"length_{place}", int)) is not None:
        return {"length": length, "norm": number_in(texts, f"norm_{place}")}
    ends = [number_in(texts, f"{end}_{place}") for end in ("lower", "upper")]
    return None if ends == [None, None] else _both(f"the bounds of {column}", *ends)


def _places(texts: Mapping[str, str]) -> Iterator[int]:
    return (place for place in range(MOST_COLUMNS) if f"column_{place}" in texts)


def _several(text: str) -> list[str]:
    """Return the values of a line that are separated by commas; in quotes a value may have commas."""
    return [value.strip() for line in csv.reader([text], skipinitialspace=True) for value in line if value.strip()]


def _both(what: str, lower: float | None, upper: float | None) -> list[float]:
    if lower is None or upper is None:
        raise ValueError(f"{what} have one end; write both, as public facts")
    return [lower, upper]


def number_in(texts: Mapping[str, str], name: str, kind: type = float) -> Any:
    """Return the number of a field, None if it is empty; raise ValueError if it is not one."""
    text = texts.get(name, "").strip()
    try:
        return kind(text) if text else None
    except ValueError:
        place = name.rpartition("_")[2]
        column = texts.get(f"column_{place}")
        field = f"{name.removesuffix(f'_{place}')} of {column}" if column else name
        raise ValueError(f"{field} = {text!r} is not {_EXAMPLES[kind]}") from None
