"""Labels of every kind are packed as declared, and no value of a row raises, drops a row or causes a message."""

from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from shuffles import shuffled

Register = Callable[..., str]
FEATURES = {"a": [0, 1]}  # 0.5 in every row, so that only the label can make a zero row
ENUM = "create type colour as enum ('red', 'green', 'it''s \"blue\"'); "


def packed(connection: psycopg.Connection, name: str) -> np.ndarray:
    """The packed rows of a dataset with one feature and an intercept; a word of the server is an error."""
    notices: list[str] = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    connection.execute("set client_min_messages = log")
    rows = np.concatenate(shuffled(connection, name, 2))
    connection.execute("reset client_min_messages")
    assert notices == []
    return rows


def labels_of(
    connection: psycopg.Connection, register: Register, kind: str, values: list[str], **given: Any
) -> list[float | None]:
    """The packed label of each value, None for a zero row; each value stands in a table of its own."""
    made = []
    for number, value in enumerate(values):
        connection.execute(f"create table k{number} (a float8, y {kind})")
        connection.execute(f"insert into k{number} values (0.5, {value}), (0.5, null)")
        rows = packed(connection, register(f"k{number}", **{"features": FEATURES, "positive": None} | given))
        assert len(rows) == 2
        kept = rows[rows.any(axis=1)]
        made.append(float(kept[0, -1]) if len(kept) else None)
    return made


CLASS_LABELS = {
    "text": (
        "text",
        ["a", "B b", "it's \\"],
        ["'a'", "'B b'", "'it''s \\'", "'A'", "'a '", "''", "repeat('a', 3000000)"],
    ),
    "varchar": ("varchar(9)", ["a", "b"], ["'b'", "'a'", "'c'"]),
    "char": ("char(5)", ["a", "b"], ["'b'", "'a   '", "'ab'"]),
    "enum": ("colour", ["green", 'it\'s "blue"'], ["'it''s \"blue\"'", "'green'", "'red'"]),
    "boolean": ("boolean", ["false", "true"], ["true", "false", "null"]),
    "smallint": ("smallint", ["-32768", "7"], ["7", "-32768", "8"]),
    "integer": ("int", ["3", "1", "2"], ["1", "2", "3", "4", "-2147483648"]),
    "bigint": ("bigint", ["9223372036854775807", "0"], ["0", "9223372036854775807", "9223372036854775806"]),
    "real": ("real", ["0.1", "2"], ["0.1", "2", "'NaN'", "'Infinity'", "3e38"]),
    "float8": ("float8", ["0.1", "2"], ["0.1", "2.0", "'NaN'", "'-Infinity'", "1e308", "5e-324"]),
    "numeric": (
        "numeric",
        ["1", "2.5"],
        ["1.000", "2.50", "'NaN'", "'Infinity'", "1e400", "-1e-400", "repeat('9', 20000)::numeric"],
    ),
}
EXPECTED = {
    "text": [1, 2, 3, None, None, None, None],
    "varchar": [2, 1, None],
    "char": [2, 1, None],
    "enum": [2, 1, None],
    "boolean": [2, 1, None],
    "smallint": [2, 1, None],
    "integer": [2, 3, 1, None, None],
    "bigint": [2, 1, None],
    "real": [1, 2, None, None, None],
    "float8": [1, 2, None, None, None, None],
    "numeric": [1, 2, None, None, None, None, None],
}


@pytest.mark.parametrize("kind", CLASS_LABELS)
def test_a_class_is_packed_by_its_place_in_the_declaration(connection, schema, register, kind):
    if kind == "enum":
        connection.execute(ENUM)
    column, classes, values = CLASS_LABELS[kind]
    assert labels_of(connection, register, column, values, classes=classes) == EXPECTED[kind]


TWO = {"positive": "yes", "negative": "no"}
TWO_LABELS = {  # type, values, what is declared, and the labels
    **{kind: (["'1'", "'0'"], {"positive": "1", "negative": "0"}, [1, -1]) for kind in ("text", "char(3)", "bigint")},
    **{kind: (["1", "0"], {"positive": "1", "negative": "0"}, [1, -1]) for kind in ("real", "float8", "numeric")},
    **{kind: (["'1'", "'0'"], {"positive": "1"}, [1, -1]) for kind in ("varchar(3)", "smallint")},
    "numeric(4, 2)": (["1", "0"], {"positive": "1.0", "negative": "0"}, [1, -1]),
    **{
        f"{kind} ": (["'yes'", "'yup'", "'y'", "'no'", "'not'"], TWO, [1, None, None, -1, None])
        for kind in ("char(5)", "varchar(5)", "text")
    },
}


@pytest.mark.parametrize("kind", TWO_LABELS)
def test_only_the_declared_value_is_positive(connection, schema, register, kind):
    """Of every plain type; values that begin alike are other values."""
    values, given, expected = TWO_LABELS[kind]
    assert labels_of(connection, register, kind, values, **given) == expected


REAL_LABELS = {
    "float8": (
        "float8",
        [
            *("0", "10", "20", "5", "-0.0", "-1", "1e308", "-1e308", "5e-324"),
            *("'NaN'", "'Infinity'", "'-Infinity'", "null"),
        ],
        [-1, 0, 1, -0.5, -1, -1, 1, -1, -1, None, None, None, None],
    ),
    "real": ("real", ["15", "3e38", "'NaN'", "'-Infinity'"], [0.5, 1, None, None]),
    "numeric": (
        "numeric",
        ["10", "1e400", "-1e400", "1e-400", "repeat('9', 20000)::numeric", "'NaN'", "'Infinity'", "'-Infinity'"],
        [0, 1, -1, -1, 1, None, None, None],
    ),
    "numeric(4, 1)": ("numeric(4, 1)", ["10.04", "'NaN'"], [0, None]),
    "smallint": ("smallint", ["-32768", "20"], [-1, 1]),
    "integer": ("int", ["-2147483648", "5"], [-1, -0.5]),
    "bigint": ("bigint", ["9223372036854775807", "15"], [1, 0.5]),
    "boolean": ("boolean", ["true", "false"], [-0.9, -1]),
}


@pytest.mark.parametrize("kind", REAL_LABELS)
def test_a_number_is_packed_within_its_bounds(connection, schema, register, kind):
    column, values, expected = REAL_LABELS[kind]
    result = labels_of(connection, register, column, values, label_bounds=[0.0, 20.0])
    assert [each is None for each in result] == [each is None for each in expected]
    assert [e for e in result if e is not None] == pytest.approx([e for e in expected if e is not None], abs=1e-6)


def test_a_domain_is_packed_as_the_type_below_it(connection, schema, register):
    connection.execute(ENUM + "create domain painted as colour; create domain share as numeric check (value >= 0)")
    assert labels_of(connection, register, "painted", ["'green'", "'red'"], classes=["red", "green"]) == [2, 1]
    connection.execute("create table s (a float8, y share); insert into s values (0.5, 0.25)")
    row = packed(connection, register("s", features=FEATURES, positive=None, label_bounds=[0.0, 1.0]))[0]
    assert row[-1] == pytest.approx(-0.5)


def test_hostile_rows_keep_their_places(connection, schema, register):
    """As many rows, in blocks of the same sizes, whatever the labels hold."""
    hostile = "case i % 5 when 0 then 'NaN' when 1 then 'Infinity' when 2 then null when 3 then 1e300 else 0.5 end"
    for name, label in (("wild", hostile), ("tame", "0.5")):
        connection.execute(f"create table {name} as select 0.5 a, ({label})::float8 y from generate_series(1, 1000) i")
    wild, tame = (
        packed(connection, register(name, features=FEATURES, positive=None, label_bounds=[0, 1]))
        for name in ("wild", "tame")
    )
    assert len(wild) == len(tame) == 1000
    assert int(wild.any(axis=1).sum()) == 400
    assert (wild[wild.any(axis=1)][:, :-1] == tame[0, :-1]).all()


@pytest.mark.parametrize("given", [{"classes": ["0", "1", "2"]}, {"label_bounds": [0, 2]}])
def test_arrays_are_packed_with_labels_of_every_kind(connection, schema, register, given):
    connection.execute("create table v (x float8[], y int)")
    for values in (
        "'{1, 0}', 0",
        "'{0, 1}', 1",
        "'{0, 0}', 2",
        "'{1}', 1",
        "null, 1",
        "'{1, null}', 1",
        "'{1, 1}', null",
    ):
        connection.execute(f"insert into v values ({values})")
    name = register("v", features={"x": {"length": 2, "norm": 1}}, positive=None, intercept=False, **given)
    rows = packed(connection, name)
    result = sorted((row[1], row[0], row[-1]) for row in np.round(rows.astype(float), 5).tolist())
    labels = [1, 2, 3] if "classes" in given else [-1, 0, 1]
    expected = [(0, 1, labels[0]), (1, 0, labels[1]), (0, 0, labels[2]), *[(0, 0, 0)] * 4]
    assert result == sorted(expected)
