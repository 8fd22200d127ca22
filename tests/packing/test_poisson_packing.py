"""Packed Poisson steps: a scan of the blocks is exactly these steps, each row in each by its own draw."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import psycopg
import pytest
from pairs import pairwise
from scipy import stats
from shuffles import growth, multiset

from dbdp.learning.rows import blocks
from dbdp.packing import resident
from dbdp.packing.memory import steps_that_fit
from dbdp.packing.packer import shuffle_and_pack
from dbdp.packing.shuffle_options import Coding, Poisson, Share
from dbdp.privacy import shuffling
from dbdp.privacy.accounting.padding import GROUP, PoissonSamples, padded_samples
from dbdp.registry import datasets
from dbdp.sessions.client import ClientSession
from dbdp.sessions.inside import guarded_reads
from dbdp.sessions.session import Row, postgres_type

Register = Callable[..., str]
Block = tuple[int, np.ndarray]
ALPHA = 1e-9  # false alarms of a statistical test; the server's entropy has no seed
TABLE = "create temporary table packed (block_no int8, block bytea)"
COPY = "create temporary table copied (block_no int8, block bytea)"
IN_BLOCK = blocks.rows_per_block(1)


@pytest.fixture
def numbered(connection: psycopg.Connection, schema: str, register: Register) -> Callable[[int], str]:
    """Make a dataset whose one feature numbers its rows."""

    def make(count: int) -> str:
        connection.execute(f"create table numbered as select i, i % 2 y from generate_series(0, {count - 1}) i")
        return register("numbered", features={"i": {"bounds": [0, count]}}, intercept=False)

    return make


def public_size(count: int, poisson: dict[str, Any]) -> int:
    """Rows that each step is padded to, by the rule that plans follow."""
    return samples_of(count, poisson).size


def samples_of(count: int, poisson: dict[str, Any]) -> PoissonSamples:
    return padded_samples(count, poisson["probability"], poisson["steps"], epsilon=1.0, delta=1e-6)


def packed(connection: psycopg.Connection, name: str, dimension: int = 1, **options: Any) -> list[Block]:
    """Number and rows of the blocks, in their order; numbers from 0 to 1, of rows that keep their length."""
    options = {"coding": {"encoding": "scaled"}} | options
    with connection.transaction(force_rollback=True):
        connection.execute(TABLE)
        call = "select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, json.dumps(options))
        if options["poisson"].get("copy"):  # what is read then is a second draw, of a copy that the first has filled
            connection.execute(COPY)
            connection.execute(*call)
            connection.execute("truncate pg_temp.packed")
        connection.execute(*call)
        return read(connection, dimension)


def read(connection: psycopg.Connection, dimension: int = 1) -> list[Block]:
    rows = connection.execute("select block_no, block from packed order by block_no").fetchall()
    return [(no, blocks.decode(block, dimension)) for no, block in rows]


def steps_of(found: list[Block], steps: int, size: int) -> list[np.ndarray]:
    """The rows of each step, without what fills it; every step has exactly its size."""
    rows = np.concatenate([rows for _, rows in found])
    assert len(rows) == steps * size
    return [step[step[:, -1] != 0.0] for step in rows.reshape(steps, size, -1)]


def numbers(rows: np.ndarray, count: int) -> list[int]:
    return np.rint(rows[:, 0].astype(float) * count / (1 - 2**-22)).astype(int).tolist()


def drawn(connection: psycopg.Connection, name: str, count: int, steps: int, **options: Any) -> list[list[int]]:
    """The numbers of the rows of each step."""
    poisson = {"steps": steps, **options}
    size = poisson.setdefault("size", public_size(count, poisson))
    result = packed(connection, name, poisson=poisson)
    assert [number for number, _ in result] == list(range(len(result)))
    assert [len(rows) for _, rows in result] == block_sizes(steps, size, apart=options.get("apart", False))
    return [numbers(rows, count) for rows in steps_of(result, steps, size)]


def block_sizes(steps: int, size: int, *, apart: bool) -> list[int]:
    """How many rows each block has: a function of public numbers alone."""
    each = [size] * steps if apart else [steps * size]
    return [min(IN_BLOCK, rows - first) for rows in each for first in range(0, rows, IN_BLOCK)]


def p_value(sample: np.ndarray, trials: int, probability: float) -> float:
    """Of binomial numbers: neither too far from the law, nor too near to it; rare values are taken together."""
    found = np.bincount(sample, minlength=trials + 1)
    expected = stats.binom(trials, probability).pmf(np.arange(trials + 1)) * len(sample)
    rare = expected < 20
    rare[np.argmin(np.where(rare, np.inf, expected))] |= expected[rare].sum() < 20
    found, expected = (np.append(each[~rare], each[rare].sum()) for each in (found, expected))
    statistic, degrees = ((found - expected) ** 2 / expected).sum(), len(found) - 1
    far, near = stats.chi2.sf(statistic, degrees), stats.chi2.cdf(statistic, degrees)
    return float(2 * min(far, near) if degrees > 5 else far)  # two counts are often exactly those expected


WAYS = {  # rows, steps, probability, memory given
    "in memory": (3000, 300, 0.05, "256MB"),
    "one step, written as it is read": (30_000, 1, 0.5, "1MB"),
    "in little memory": (3000, 20, 0.05, "1MB"),
}
COPIES = [{}, {"copy": "copied"}]


@pairwise(copy=COPIES, apart=[False, True], way=WAYS)
def test_every_row_takes_part_in_every_step_by_its_own_draw(connection, numbered, way, apart, copy):
    """Of each row the number of steps is binomial, and no step has a row twice."""
    count, steps, probability, memory = WAYS[way]
    name, times = numbered(count), np.zeros(0, np.int64)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    while len(times) < 10_000:
        result = drawn(connection, name, count, steps, probability=probability, apart=apart, **copy)
        assert all(len(set(rows)) == len(rows) for rows in result)
        times = np.append(times, np.bincount(np.concatenate(result).astype(int), minlength=count))
    assert p_value(times, steps, probability) > ALPHA
    assert p_value(times, steps, probability * 0.8) < ALPHA
    assert p_value(times, steps, probability * 1.2) < ALPHA


def test_the_numbers_of_rows_that_are_drawn_are_binomial(connection, numbered):
    name = numbered(500)
    result = drawn(connection, name, 500, 4000, probability=0.02)
    sizes = np.array(list(map(len, result)))
    assert p_value(sizes, 500, 0.02) > ALPHA
    assert p_value(sizes, 500, 0.02 * 0.85) < ALPHA
    assert p_value(sizes, 500, 0.02 * 1.15) < ALPHA


@pairwise(copy=COPIES, apart=[False, True], way=WAYS)
def test_what_is_drawn_beyond_the_public_size_is_cut(connection, numbered, way, apart, copy):
    """A size far below the mean: every step is full, of different rows; far above it none is."""
    count, steps, probability, memory = WAYS[way]
    name, mean = numbered(count), int(count * probability)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    result = drawn(connection, name, count, steps, probability=probability, apart=apart, size=mean // 2, **copy)
    assert all(len(set(rows)) == len(rows) == mean // 2 for rows in result)
    result = drawn(connection, name, count, steps, probability=probability, apart=apart, **copy)
    assert all(len(rows) < public_size(count, {"probability": probability, "steps": steps}) for rows in result)


class InThisProcess(ClientSession):
    """Packs here what the server packs there, so that a test knows who was drawn."""

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        if "pg_relation_filepath" in sql:  # relative to the server's folder
            return [{"path": f"{tempfile.gettempdir()}/copied"}]
        types = list(map(postgres_type, parameters))
        return super().query(re.sub(r"\$(\d+)", lambda at: f"{at[0]}::{types[int(at[1]) - 1]}", sql), *parameters)

    def cursor(self, sql: str, *parameters: Any) -> Iterator[Row]:
        return iter(self.query(sql, *parameters))


def scan_here(
    session: InThisProcess,
    _source: str,
    least: int,
    value: str,
    rows: str,
    receive: Callable[[bytes], bool],
    *parameters: Any,
) -> Iterator[None]:
    """Read as the role that runs the test."""
    received = [receive(row["raw"]) for row in session.query(f"select {value} as raw {rows}", *parameters)]
    return iter([None] * max(least, sum(received) + 1))


@pairwise(copy=COPIES, where=["packed", "packed apart", "together"], way=WAYS)
def test_each_step_has_the_rows_that_were_drawn_for_it(connection, numbered, way, where, copy):
    count, steps, probability, memory = WAYS[way]
    name, draw, expected, before = numbered(count), shuffling.hits, [], [0]
    connection.execute(f"set dbdp.pack_memory = '{memory}'; set search_path = pg_catalog, pg_temp; {TABLE}; {COPY}")

    def noted(rows: int, *arguments: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for taking, step in draw(rows, *arguments):
            expected.extend(zip(step.tolist(), (taking + before[0]).tolist(), strict=True))
            yield taking, step
        before[0] += rows

    session = InThisProcess(connection)
    samples = samples_of(count, {"probability": probability, "steps": steps})
    together = samples.together(steps) if where == "together" else None
    poisson = Poisson(probability, steps, samples.size, where == "packed apart", together=together, **copy)
    share = Share(poisson=poisson, coding=Coding("scaled"))
    connection.execute(f"set dbdp.pack_memory = '{'256MB' if together else memory}'")
    with patch.object(shuffling, "hits", noted), patch.object(guarded_reads, "scan", scan_here):
        shuffle_and_pack(session, datasets.load(session, name), "pg_temp.packed", share)
    found = held_steps(connection, together) if together else steps_of(read(connection), steps, samples.size)
    results = [numbers(rows, count) for rows in found]
    assert before == [count]
    assert sorted((step, number) for step, rows in enumerate(results) for number in rows) == sorted(expected)


def held_steps(connection: psycopg.Connection, together: int) -> list[np.ndarray]:
    """The rows of each step that this process holds, without what fills them; what shows is their public number."""
    ((number, block),) = connection.execute("select block_no, block from packed").fetchall()
    held = resident.rows_of(block, 1)
    rows, ends = held.read(slice(0, held.count)), held.ends
    resident.forget("packed")
    assert number == 0
    assert ends is not None
    assert len(rows) == together
    assert not (ends % GROUP).any()
    assert not rows[ends[-1] :].any()
    pieces = np.split(rows, ends)[:-1]
    assert all(np.count_nonzero(piece[:, -1] == 0) < GROUP for piece in pieces)
    return [piece[piece[:, -1] != 0.0] for piece in pieces]


@pytest.mark.parametrize(("count", "probability", "steps"), [(200, 0.3, 500), (1000, 0.001, 300), (9, 1.0, 40)])
def test_steps_together_that_need_more_rows_are_drawn_anew(connection, numbered, count, probability, steps):
    """A number of rows that half of all draws exceed: it is kept all the same, and the rows are of a sound draw."""
    name, need = numbered(count), []
    connection.execute(f"set search_path = pg_catalog, pg_temp; {TABLE}")
    size = min(count, 4 * int(count * probability) + 8)
    generous = GROUP * steps * -(-size // GROUP)
    for together in [generous] * 20 + [0] * 20:
        limit = together or int(np.median(need[:20])) // GROUP * GROUP
        poisson = Poisson(probability, steps, size, together=limit)
        connection.execute("truncate pg_temp.packed")
        session = InThisProcess(connection)
        share = Share(poisson=poisson, coding=Coding("scaled"))
        with patch.object(guarded_reads, "scan", scan_here):
            shuffle_and_pack(session, datasets.load(session, name), "pg_temp.packed", share)
        found = held_steps(connection, limit)
        assert len(found) == steps
        assert all(len(set(numbers(rows, count))) == len(rows) for rows in found)
        need.append(sum(GROUP * -(-len(rows) // GROUP) for rows in found))
        assert need[-1] <= limit
    assert probability == 1 or max(need[:20]) > max(need[20:])


@pytest.mark.parametrize(
    ("count", "steps", "memory"),
    [(70_000, 3, "64MB"), (70_000, 1, "1MB"), (IN_BLOCK, 4, "64MB"), (IN_BLOCK // 4, 8, "64MB"), (100, 40, "1MB")],
)
@pytest.mark.parametrize("copy", COPIES)
def test_a_probability_of_one_draws_all_rows_in_every_step(connection, numbered, count, steps, memory, copy):
    """Steps of several blocks, blocks of several steps, and steps that end with a block."""
    name = numbered(count)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    result = drawn(connection, name, count, steps, probability=1, **copy)
    assert all(sorted(rows) == list(range(count)) for rows in result)


def test_steps_without_a_row_are_as_long_as_others(connection, numbered):
    name = numbered(100)
    assert drawn(connection, name, 100, 3000, probability=1e-12, size=5) == [[]] * 3000
    some = drawn(connection, name, 100, 3000, probability=0.01)
    assert 500 < sum(not rows for rows in some) < 2000  # a third
    assert drawn(connection, name, 100, 3, probability=1e-12, apart=True) == [[]] * 3


@pytest.mark.parametrize(("count", "steps"), [(70_000, 3), (70_000, 1), (IN_BLOCK, 2), (200, 30)])
def test_steps_apart_have_blocks_of_their_own(connection, numbered, count, steps):
    name = numbered(count)
    result = packed(connection, name, poisson={"probability": 1.0, "steps": steps, "size": count, "apart": True})
    of_step = -(-count // IN_BLOCK)
    assert len(result) == of_step * steps
    for first in range(0, len(result), of_step):
        rows = np.concatenate([rows for _, rows in result[first : first + of_step]])
        assert sorted(numbers(rows, count)) == list(range(count))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", ["insert into numbered values (1, 1)", "delete from numbered where i = 7"])
def test_a_table_that_has_another_number_of_rows_is_refused(connection, numbered, way, change):
    count, steps, probability, memory = WAYS[way]
    name = numbered(count)
    connection.execute(f"set dbdp.pack_memory = '{memory}'; {change}")
    with pytest.raises(psycopg.Error, match=rf"had {count + (1 if 'insert' in change else -1)} rows while it was read"):
        packed(connection, name, poisson={"probability": probability, "steps": steps, "size": 10})


@pytest.mark.parametrize("projection", [None, {"dimension": 2, "seed": 3}])
def test_the_rows_are_those_of_a_shuffle_whatever_they_hold(connection, schema, register, projection):
    connection.execute(
        "create table mixed as select array[i, 0.5, -i]::float8[] x, i % 2 y from generate_series(1, 90) i"
    )
    for row in ("null, 1", "'{1, NaN, 2}', 1", "'{1, Infinity, 2}', 1", "'{1, 2}', 1", "'{1, 2, 3}', null"):
        connection.execute(f"insert into mixed values ({row})")
    name = register("mixed", features={"x": {"length": 3, "norm": 9}}, negative="0", intercept=False)
    options = {"projection": projection} if projection else {}
    dimension = 2 if projection else 3
    with connection.transaction(force_rollback=True):
        connection.execute(TABLE)
        scaled = json.dumps({"coding": {"encoding": "scaled"}} | options)
        connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, scaled))
        plain = b"".join(block for (block,) in connection.execute("select block from packed").fetchall())
    for steps, copy in product((1, 3), COPIES):
        poisson = {"probability": 1, "steps": steps, "size": 95} | copy
        rows = np.concatenate([rows for _, rows in packed(connection, name, dimension, poisson=poisson, **options)])
        for step in rows.reshape(steps, 95, -1):
            assert multiset(step) == multiset(blocks.decode(plain, dimension))
    assert len(multiset(blocks.decode(plain, dimension))) == 91


SOUND = {"probability": 0.5, "steps": 1, "size": 9}
NEEDS = 'poisson needs "probability", "steps" and "size", and may have "apart", "copy" and "together"'
REFUSED = [
    ({"poisson": 0.5}, NEEDS),
    ({"poisson": {"probability": 0.5}}, NEEDS),
    ({"poisson": {"probability": 0.5, "steps": 1}}, NEEDS),
    ({"poisson": SOUND | {"seed": 1}}, NEEDS),
    ({"poisson": SOUND | {"size": 0}}, "size of poisson = 0 must be a whole number, at least"),
    ({"poisson": SOUND | {"size": 1.5}}, "size of poisson = 1.5 must be a whole number"),
    ({"poisson": SOUND | {"size": 3001}}, "size = 3001 of poisson is above the 3000 rows"),
    ({"poisson": SOUND | {"probability": 0}}, "probability = 0 of poisson must be above 0 and at most 1; for batches"),
    ({"poisson": SOUND | {"probability": 1.5}}, "probability = 1.5 of poisson must be above 0 and at most 1"),
    ({"poisson": SOUND | {"probability": True}}, "probability = True of poisson must be above 0"),
    ({"poisson": SOUND | {"probability": "0.5"}}, "probability = '0.5' of poisson must be above 0"),
    (
        {"poisson": SOUND | {"steps": 0}},
        "steps of poisson = 0 must be a whole number between 1 and 67108864: draw more",
    ),
    ({"poisson": SOUND | {"steps": 1.5}}, "steps of poisson = 1.5 must be a whole number"),
    ({"poisson": SOUND | {"steps": 67108865}}, "steps of poisson = 67108865 must be a whole number"),
    ({"poisson": SOUND | {"copy": "a; drop table b"}}, "the copy of poisson = 'a; drop table b' must be the name of a"),
    ({"poisson": SOUND | {"together": 3}}, "together of poisson = 3 must be a whole number between 4 and 12"),
    ({"poisson": SOUND | {"together": 13}}, "together of poisson = 13 must be a whole number between 4 and 12"),
    ({"poisson": SOUND | {"together": 8, "apart": True}}, "together of poisson excludes apart"),
    ({"poisson": SOUND | {"apart": 1}}, "apart of poisson = 1 must be true or false"),
    (
        {"poisson": {"probability": 1.0, "steps": 4_000_000, "size": 3000}},
        r"steps = 4000000 of poisson are packed into 1.2e\+10 rows of dataset .*, above the limit of 8589934592; draw",
    ),
    ({"poisson": SOUND, "key": "00" * 32}, "poisson excludes key, first, last"),
    *(
        ({"poisson": SOUND, **more}, "poisson excludes key, first, last and cuts")
        for more in ({"cuts": [5]}, {"first": 5}, {"last": 5})
    ),
]


def test_options_of_poisson_without_sense_are_refused(connection, numbered):
    name, sql = numbered(3000), "select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)"
    connection.execute(TABLE)
    for options, message in REFUSED:
        with pytest.raises(psycopg.Error, match=message) as error:
            connection.execute(sql, (name, json.dumps(options)))
        assert error.value.diag.message_primary.startswith("dbdp: ")
    assert read(connection) == []


def test_more_steps_than_memory_holds_are_refused(connection, numbered):
    name, poisson = numbered(100), {"probability": 1e-9, "steps": 40_000, "size": 3}
    connection.execute("set dbdp.pack_memory = '1MB'")
    with pytest.raises(psycopg.Error, match="steps = 40000 of poisson are packed in memory, and dbdp") as error:
        packed(connection, name, poisson=poisson)
    connection.execute(re.search(r"set dbdp.pack_memory = '\d+MB'", str(error.value))[0])
    assert len(steps_of(packed(connection, name, poisson=poisson), 40_000, 3)) == 40_000


@pytest.mark.parametrize("memory", ["1MB", "3MB", "256MB"])
def test_steps_that_fit_nearly_fill_half_the_memory(connection, memory):
    session = ClientSession(connection)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    for size in (1, 40, 4000):
        half, step_bytes = int(memory[:-2]) << 19, size * (32 + 48) + 32
        steps = steps_that_fit(session, size, 1, 10**9)
        assert steps_that_fit(session, size, 1, 3) == min(3, steps)
        assert steps * step_bytes <= half < (steps + 1) * step_bytes


def test_a_step_that_does_not_fit_is_drawn_alone(connection):
    session = ClientSession(connection)
    connection.execute("set dbdp.pack_memory = '1MB'")
    assert steps_that_fit(session, 40_000, 1, 1000) == 1
    assert steps_that_fit(session, 40, 1, 1000) > 100


def test_a_step_larger_than_memory_is_packed_within_it(server_url, connection, schema, register):
    """80,000 rows of 64 bytes are five times the memory."""
    connection.execute("""
create table large as
select array_fill(i % 100 / 100.0::float8, array[14]) x, i % 2 y from generate_series(1, 80000) i""")
    name, grown = register("large", features={"x": {"length": 14, "norm": 60}}), {}
    one = {"poisson": {"probability": 0.9, "steps": 1, "size": 80_000}}
    two = {"poisson": {"probability": 0.9, "steps": 2, "size": 80_000}}
    for memory, options in (("1MB", one), ("256MB", two)):
        with psycopg.connect(server_url) as fresh:
            grown[memory] = growth(fresh, name, memory, json.dumps(options), warming=json.dumps(one))
    assert grown["1MB"] < 8 << 20
    assert grown["256MB"] > 10 << 20  # the measure sees what it should
