"""The tables that every side trains on: 500,000 x 54 from a fixed linear model, and Adult.

Shapes: features (n, d), labels (n,) in {-1, +1}.
"""

from dataclasses import dataclass, replace

import numpy as np
import psycopg
from psycopg import sql

from benchmarks import binary_copy
from dbdp.interfaces.cli.demo import adult

SEED = 54  # the same rows in every run


@dataclass(frozen=True)
class Table:
    """One dataset in the database: as its owner has it, and as arrays (x float8[], y float8)."""

    name: str
    raw: str
    array: str
    features: int

    @property
    def shuffled(self) -> str:
        """Return the arrays in a random order, for the sides that scan them row by row."""
        return f"{self.array}_shuffled"


BENCH54 = Table(name="bench54", raw="bench54", array="bench54", features=54)
ADULT = Table(name="adult", raw="bench_adult", array="bench_adult_array", features=adult.FEATURES)
WIDE = Table(name="bench_wide", raw="bench_wide", array="bench_wide", features=2000)


def create_bench54(connection: psycopg.Connection, rows: int) -> str:
    """Create the table of unit rows with labels from a fixed logistic model, and return a description."""
    features, labels = linear_model_rows(rows)
    create_arrays(connection, BENCH54.array, features, labels)
    return f"bench54 has {rows:,} generated rows."


def create_adult(connection: psycopg.Connection) -> str:
    """Create Adult as raw columns and as one-hot arrays, and return the origin of its rows."""
    text, origin = adult.read()
    create_raw_adult(connection, text)
    create_arrays(connection, ADULT.array, *adult.one_hot(text))
    return origin


def repeated(connection: psycopg.Connection, table: Table, times: int) -> Table:
    """Create a table of the arrays of another, each row so many times."""
    larger = replace(table, name=f"{table.name}_{times}x", raw=f"{table.raw}_{times}x", array=f"{table.raw}_{times}x")
    drop_one(connection, larger.array)
    statement = "create table {} as select t.x, t.y from {} as t, generate_series(1, {})"
    names = sql.Identifier(larger.array), sql.Identifier(table.array), sql.Literal(times)
    connection.execute(sql.SQL(statement).format(*names))
    vacuum(connection, larger.array)
    return larger


def columns_of(connection: psycopg.Connection, table: Table) -> str:
    """Create the table with one column for each number of its arrays, and return its name."""
    name = f"{table.array}_columns"
    drop_one(connection, name)
    columns = sql.SQL(", ").join(
        sql.SQL("x[{}] as {}").format(sql.Literal(place), sql.Identifier(f"x{place}"))
        for place in range(1, table.features + 1)
    )
    statement = sql.SQL("create table {} as select {}, y from {}")
    connection.execute(statement.format(sql.Identifier(name), columns, sql.Identifier(table.array)))
    vacuum(connection, name)
    return name


def with_digits(connection: psycopg.Connection, table: Table, numbers: int, categories: int) -> str:
    """Create a table of as many rows with numbers from 0 to 10, categories of ten and a label; return its name."""
    name = f"{table.array}_{numbers}_{categories}"
    drop_one(connection, name)
    columns = [f"(hashint4(i * 32 + {place}) & 1023) / 102.4::float8 as x{place}" for place in range(1, numbers + 1)]
    columns += [f"'v' || (hashint4(i * 32 - {place}) & 1023) % 10 as c{place}" for place in range(1, categories + 1)]
    statement = sql.SQL(
        "create table {} as select {}, case hashint4(i * 32) & 1 when 1 then 1 else -1 end as y "
        "from (select pg_catalog.row_number() over ()::int4 as i from {}) as numbered"
    )
    listed = sql.SQL(", ").join(map(sql.SQL, columns))
    connection.execute(statement.format(sql.Identifier(name), listed, sql.Identifier(table.array)))
    vacuum(connection, name)
    return name


def drop(connection: psycopg.Connection, table: Table) -> None:
    """Remove every form of a table."""
    for name in {table.raw, table.array, table.shuffled}:
        drop_one(connection, name)


def linear_model_rows(rows: int, width: int = BENCH54.features) -> tuple[np.ndarray, np.ndarray]:
    """Return unit rows in random directions; a label is +1 with the model's probability."""
    random = np.random.default_rng(SEED)
    model = random.normal(size=width)
    features = random.normal(size=(rows, width))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    probability = 1 / (1 + np.exp(-4 * features @ model))
    return features, np.where(random.random(rows) < probability, 1.0, -1.0)


def create_arrays(connection: psycopg.Connection, name: str, features: np.ndarray, labels: np.ndarray) -> None:
    """Create and fill a logged table of arrays."""
    statement = """
        create table {} (
            x float8[] not null,
            y float8 not null
        )
    """
    drop_one(connection, name)
    connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
    binary_copy.write(connection, name, features, labels)
    vacuum(connection, name)


def create_raw_adult(connection: psycopg.Connection, text: str) -> None:
    """Create and fill Adult as its owner has it: numbers and words."""
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL("int" if name in adult.NUMERIC else "text"))
        for name in adult.COLUMNS
    )
    name = sql.Identifier(ADULT.raw)
    drop_one(connection, ADULT.raw)
    connection.execute(sql.SQL("create table {} ({})").format(name, columns))
    statement = sql.SQL("copy {} from stdin (format csv, header)").format(name)
    with connection.cursor().copy(statement) as copy:
        copy.write(text)
    vacuum(connection, ADULT.raw)


def vacuum(connection: psycopg.Connection, name: str) -> None:
    """Set hint bits and statistics now, so that no later scan is slower for them."""
    connection.execute(sql.SQL("vacuum (freeze, analyze) {}").format(sql.Identifier(name)))


def drop_one(connection: psycopg.Connection, name: str) -> None:
    """Remove one table if it is there."""
    connection.execute(sql.SQL("drop table if exists {}").format(sql.Identifier(name)))
