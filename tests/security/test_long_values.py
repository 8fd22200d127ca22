"""No value of one row takes memory or ends a run, in a column of any type, whatever its part in the declaration.

The cases are the types that registration accepts, for each part that a column may have: a new one needs its values.
"""

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from attacker import Arena, allow
from observing import most_memory
from pairs import others_slow

from dbdp.registry import register
from dbdp.registry.datasets import LONGEST_PADDED
from dbdp.registry.tables.privacy_units import UNIT_TYPES

pytestmark = pytest.mark.security
LONG = 64_000_000  # bytes of a text, of which 0.7 MB are stored
MUCH = 48 << 20  # bytes
LENGTH = 3
TEXT = ("'a'", "'b'", f"repeat('x', {LONG})")
# Values of two classes, and the longest or most extreme one; of a text, of 64 MB.
VALUES = {
    "text": TEXT,
    "character varying": TEXT,
    "character": ("'a'", "'b'", f"repeat('é', {LONGEST_PADDED})"),
    "enum": ("'a'", "'b'", f"'{'x' * 63}'"),
    "smallint": ("0", "1", "32767"),
    "integer": ("0", "1", "2147483647"),
    "bigint": ("0", "1", "9223372036854775807"),
    "boolean": ("false", "true", "null"),
    "real": ("0", "1", "'infinity'"),
    "double precision": ("0", "1", "1e308"),
    "numeric": ("0", "1", "repeat('7', 131072)::numeric + repeat('7', 16383)::numeric / 10::numeric ^ 16383"),
    "date": ("'2001-01-01'", "'2001-01-02'", "'infinity'"),
    "timestamp without time zone": ("'2001-01-01'", "'2001-01-02'", "'infinity'"),
    "timestamp with time zone": ("'2001-01-01'", "'2001-01-02'", "'-infinity'"),
    "uuid": (f"'{'0' * 32}'", f"'{'1' * 32}'", f"'{'f' * 32}'"),
    "double precision[]": ("'{0,0,.1}'", "'{0,0,.2}'", f"array_fill(0::float8, array[{LONG // 8}])"),
    "real[]": ("'{0,0,.1}'", "'{0,0,.2}'", f"array_fill(0::float4, array[{LONG // 4}])"),
}
DECLARED = {"character": f"character({LONGEST_PADDED})", "enum": "kinds"}  # types as a table declares them
TRAIN = "select model from dbdp.dp_logreg(%(name)s, 1, algorithm => 'bolt_on', epochs => 1)"
REGRESS = TRAIN.replace("logreg", "linreg")
GROUPS = (
    "select model from dbdp.dp_train_groups(%(name)s, 'c', %(groups)s, 1, "
    "algorithm => 'bolt_on', batch_size => 5, epochs => 1)"
)
Part = tuple[tuple[str, ...], Callable[[str, str], dict[str, Any]], str]
# The types that a column c may have in each part, what is declared of it with its two values, and the training.
PARTS: dict[str, Part] = {
    "number": (register.NUMERIC_TYPES, lambda *_: {"features": {"c": [0, 1]}}, TRAIN),
    "category": (register._CATEGORY_TYPES, lambda *both: {"features": {"c": both}}, TRAIN),
    "vector": (register._VECTOR_TYPES, lambda *_: {"features": {"c": {"length": LENGTH, "norm": 1}}}, TRAIN),
    "label": (register._LABEL_TYPES, lambda *both: {"label": "c", "negative": both[0], "positive": both[1]}, TRAIN),
    "real label": (register.NUMERIC_TYPES, lambda *_: {"label": "c", "label_bounds": [0, 1]}, REGRESS),
    "public column": (register._KEY_TYPES, lambda *_: {"public_columns": ["c"]}, GROUPS),
    "private group": (register._CATEGORY_TYPES, lambda *both: {"features": {"c": both}, "capacity": 80}, GROUPS),
    "unit": (tuple(UNIT_TYPES), lambda *_: {"unit": "c", "max_rows": 20, "capacity": 9}, TRAIN),
}
CASES = [(part, kind) for part, (kinds, _, _) in PARTS.items() for kind in kinds]
QUICK = {kind: (part, kind) for part, kind in reversed(CASES)}  # one for each type


@pytest.mark.attack("long-values")
def test_every_type_has_its_values():
    assert set(VALUES) == {kind for _, kind in CASES}


@pytest.mark.usefixtures("server_machine")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell a process's memory")
@pytest.mark.parametrize(("part", "kind"), others_slow(CASES, *QUICK.values()))
@pytest.mark.attack("long-values")
def test_no_value_of_one_row_takes_memory(arena, owner, part, kind):
    """The control, for texts, is a query of the owner's that does need the value."""
    name, (_, declared, train), (zero, one, value) = f"long_{secrets.token_hex(4)}", PARTS[part], VALUES[kind]
    owner.execute(f"drop type if exists kinds cascade; create type kinds as enum ('a', 'b', '{'x' * 63}')")
    owner.execute(f"create table {name} (i int, v float8, y int, c {DECLARED.get(kind, kind)})")
    owner.execute(f"insert into {name} select i, i / 60.0, i % 2, {zero} from generate_series(1, 60) as i")
    owner.execute(f"update {name} set c = {one} where i % 2 = 1")
    groups = [word for (word,) in owner.execute(f"select rtrim(c::text) from {name} where i < 3 order by i desc")]
    owner.execute(f"update {name} set c = {value} where i = 1")
    register(arena, owner, name, declared(*groups))
    with arena.login("analyst") as fresh:
        fresh.execute("select dbdp.about()")
        assert grown(fresh, train, {"name": name, "groups": groups}) < MUCH
    if str(LONG) in value and "[" not in kind:
        with arena.login("owner") as fresh:
            assert grown(fresh, f"select max(length(c || 'x')) from {arena.names['owner']}.{name}") > LONG
    owner.execute(f"select dbdp.drop_dataset('{name}'); drop table {name}")


def register(arena: Arena, owner: psycopg.Connection, name: str, declared: dict[str, Any]) -> None:
    """Register the table with what is declared of its column c."""
    given = {"label": "y", "features": {"v": [0, 1]}, "epsilon": 99, "delta": 1e-3, "mode": "basic"} | declared
    if given["label"] == "y":
        given["positive"] = "1"
    given |= {"name": name, "source": f"{arena.names['owner']}.{name}", "features": json.dumps(given["features"])}
    casts = {"source": "::regclass", "label_bounds": "::float8[]", "public_columns": "::text[]"}
    arguments = ", ".join(f"{key} => %({key})s{casts.get(key, '')}" for key in given)
    owner.execute(f"select dbdp.register_dataset({arguments})", given)
    allow(owner, name, arena.names["analyst"])


def grown(session: psycopg.Connection, sql: str, parameters: dict[str, Any] | None = None) -> int:
    """By how many bytes the most memory of a session grows with a query."""
    before = most_memory(session)
    session.execute(sql, parameters)
    return most_memory(session) - before
