"""Neighbours of any sizes have one outcome, and the session can count nothing by which they differ.

Drawn are units, their numbers of rows, capacity, memory, partitions, types and widths; and a record that is replaced,
added or removed.
"""

import json
import re
import secrets
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from making import ANALYST
from observing import alike, counted_in_session
from watch import SHARES

UNIT_TYPES = {
    "int": "c.u::int",
    "text": "repeat('u', c.u::int)",
    "char(20)": "c.u::text",
    "date": "'2020-01-01'::date + c.u::int",
}
LENGTHS = (3, 60, 300)
ODD = (
    "null",
    "array_fill(.5::float8, array[{0} + 1])",
    "array_fill('NaN'::float8, array[{0}])",
    "array_fill(0::float8, array[300000])",
    "(select array_agg(random()) from generate_series(1, {0}))",
    "(select array_agg(random()) from generate_series(1, 20000))",
)
TRAIN = "select model from dbdp.dp_train(%s, epsilon => .1, delta => 1e-9, epochs => 1, algorithm => '{}')"
GROUPS = (
    "select model from dbdp.dp_train_groups(%s, 'g', '{a,b}', epsilon => .1, "
    "algorithm => 'bolt_on', batch_size => 2, epochs => 1)"
)
CALLS = (
    "select dbdp.dp_class_balance(%s, epsilon => .1)",
    "select * from dbdp.dp_summarize(%s, epsilon => .1, delta => 1e-9)",
    "select * from dbdp.dp_describe(%s, epsilon => .5, delta => 1e-3)",
    "select * from dbdp.dp_table(%s, '{y}', epsilon => 5, delta => 1e-3)",
    TRAIN.format("bolt_on"),
    TRAIN.format("dp_sgd"),
    "select model from dbdp.dp_train(%s, epsilon => .1, delta => 1e-9, algorithm => 'preconditioned_gd')",
)


@dataclass(frozen=True)
class Case:
    """Two neighbours: the rows of each unit, or of the table, and the odd value of one row of the second."""

    rows: tuple[list[int], list[int]]
    odd: str
    unit: str | None
    max_rows: int
    capacity: int | None
    length: int
    partitions: int
    memory: str
    columns: bool
    call: str


def listed(number: int) -> list[int]:
    return [number]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Neighbours, a declaration and a call."""
    unit, limited = draw(st.sampled_from([None, *UNIT_TYPES])), draw(st.booleans())
    least = 0 if limited else 1
    counts = st.lists(st.integers(1, 80), min_size=least, max_size=12) if unit else st.integers(least, 160).map(listed)
    rows = draw(counts)
    other, capacity = list(rows), None
    if limited:
        capacity = draw(st.integers(1, 15 if unit else 170))
        change = draw(st.integers(-1, 1))
        if not unit:
            other = [max(0, rows[0] + change)]
        elif change == 1:
            other.append(draw(st.integers(1, 80)))
        elif change == -1:
            other = other[1:]
    if unit and other and other[:1] == rows[:1]:
        other[0] = draw(st.integers(1, 80))
    columns = draw(st.booleans())
    calls = [*CALLS, *[GROUPS] * 2] if columns and limited and not unit else CALLS
    return Case(
        (rows, other),
        draw(st.sampled_from(ODD)),
        unit,
        draw(st.sampled_from([1, 2, 40, 80, 400, 1000])) if unit else 1,
        capacity,
        draw(st.sampled_from(LENGTHS)),
        draw(st.integers(0, 3)),
        draw(st.sampled_from(["1MB", "1MB", "2MB", "256MB"])),
        columns,
        draw(st.sampled_from(calls)),
    )


def made(owner: psycopg.Connection, place: str, case: Case, number: int) -> str:
    """Make one of the neighbours, and register it."""
    name = f"n_{secrets.token_hex(4)}"
    unit = UNIT_TYPES[case.unit or "int"]
    by = " partition by hash (j)" if case.partitions else ""
    owner.execute(f"create table {name} (u {case.unit or 'int'}, j int, x float8[], y int, z float8, g text){by}")
    for part in range(case.partitions):
        values = f"with (modulus {case.partitions}, remainder {part})"
        owner.execute(f"create table {name}_{part} partition of {name} for values {values}")
    counts = ",".join(map(str, case.rows[number]))
    odd = (case.odd if number else "array_fill(.1::float8, array[{0}])").format(case.length)
    owner.execute(f"""
insert into {name}
select {unit}, j, case when o.odd then {odd} else array_fill(((c.u + j) % 9) / 99.0, array[{case.length}]) end,
       (c.u + j) % 2, case when o.odd then {number} else ((c.u + j) % 5) / 5.0 end,
       case when o.odd and {number} = 1 then repeat('c', 1000000) else chr(97 + ((c.u + j) % 3)::int) end
from unnest('{{{counts}}}'::int[]) with ordinality as c(k, u), generate_series(1, c.k) as j
cross join lateral (select j = 1 and c.u = 1 as odd) as o""")
    features = {"z": [0, 1], "g": ["a", "b"]} if case.columns else {"x": {"length": case.length, "norm": 1}}
    declared = f", unit => 'u', max_rows => {case.max_rows}" if case.unit else ""
    declared += f", capacity => {case.capacity}" if case.capacity else ""
    sql = "select dbdp.register_dataset(name => %s, source => %s::regclass, label => 'y', positive => '1', "
    sql += f"features => %s, epsilon => 1000, delta => .01, mode => 'basic'{declared})"
    owner.execute(sql, (name, f"{place}.{name}", json.dumps(features)))
    owner.execute("select dbdp.grant_training(%s, %s)", (name, ANALYST))
    return name


def seen(session: psycopg.Connection, sql: str, name: str) -> Any:
    """What a call says, or what it leaves; a first one prepares what is prepared once for each table."""
    try:
        session.execute(sql, (name,))
    except psycopg.Error as error:
        return re.sub(name, "T", str(error.diag.message_primary))
    with session.transaction():
        return counted_in_session(session, name, lambda: session.execute(sql, (name,)))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.attack("sizes")
def test_neighbours_of_any_sizes_are_alike(owner, analyst, place, share):
    answered = [0, 0]

    def check(case: Case) -> None:
        pair = [made(owner, place, case, number) for number in (0, 1)]
        analyst.execute(f"set dbdp.pack_memory = '{case.memory}'")
        one, other = alike(lambda each: seen(analyst, case.call, pair["ab".index(each)]))
        for name in pair:
            owner.execute("select dbdp.drop_dataset(%s)", (name,))
            owner.execute(f"drop table {name}")
        assert one == other, (one, other)
        assert "after its charge" not in str(one), one
        answered[isinstance(one, str)] += 1

    share.cases(400, cases(), check)
    assert answered[0] > 0, answered
