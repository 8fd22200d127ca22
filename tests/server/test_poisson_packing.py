"""Packed Poisson steps: a scan of the blocks is exactly these steps, each row in each by its own draw."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psycopg
import pytest
from scipy import stats

from dbdp import datasets, packing, sessions, shuffling
from dbdp.learning import blocks
from dbdp.sessions import ClientSession, Row

Register = Callable[..., str]
Block = tuple[int, np.ndarray, list[int]]
ALPHA = 1e-9  # false alarms of a statistical test; the server's entropy has no seed
TABLE = "create temporary table packed (block_no int8, block bytea, ends bytea)"
IN_BLOCK = blocks.rows_per_block(1)


@pytest.fixture
def numbered(connection: psycopg.Connection, schema: str, register: Register) -> Callable[[int], str]:
    """Make a dataset whose one feature numbers its rows."""

    def make(count: int) -> str:
        connection.execute(f"create table numbered as select i, i % 2 y from generate_series(0, {count - 1}) i")
        return register("numbered", features={"i": [0, count]}, intercept=False)

    return make


def packed(connection: psycopg.Connection, name: str, dimension: int = 1, **options: Any) -> list[Block]:
    """Number, rows and ends of the blocks, in their order."""
    with connection.transaction(force_rollback=True):
        connection.execute(TABLE)
        connection.execute("select dbdp.shuffle(%s, 'pg_temp.packed', %s::json)", (name, json.dumps(options)))
        return read(connection, dimension)


def read(connection: psycopg.Connection, dimension: int = 1) -> list[Block]:
    found = connection.execute("select block_no, block, ends from packed order by block_no").fetchall()
    return [(no, blocks.decode(block, dimension), np.frombuffer(ends, "<i8").tolist()) for no, block, ends in found]


def steps_of(found: list[Block], steps: int) -> list[np.ndarray]:
    """The rows of each step; every step ends once, at a place of its block, and nothing is left after the last."""
    pieces: list[list[np.ndarray]] = [[]]
    for _, rows, ends in found:
        assert ends == sorted(ends)
        assert all(0 <= end <= len(rows) for end in ends)
        *whole, rest = np.split(rows, ends)
        for piece in whole:
            pieces[-1].append(piece)
            pieces.append([])
        pieces[-1].append(rest)
    assert sum(map(len, pieces.pop())) == 0
    assert len(pieces) == steps
    return [np.concatenate(piece) for piece in pieces]


def numbers(rows: np.ndarray, count: int) -> list[int]:
    return np.rint(rows[:, 0].astype(float) * count / (1 - 2**-22)).astype(int).tolist()


def drawn(connection: psycopg.Connection, name: str, count: int, steps: int, **options: Any) -> list[list[int]]:
    """The numbers of the rows of each step."""
    found = packed(connection, name, poisson={"steps": steps, **options})
    if not options.get("apart"):
        assert [number for number, _, _ in found] == list(range(len(found)))
        assert all(len(rows) == IN_BLOCK for _, rows, _ in found[:-1])
    return [numbers(rows, count) for rows in steps_of(found, steps)]


def p_value(sample: np.ndarray, trials: int, probability: float) -> float:
    """Of binomial numbers: neither too far from the law, nor too near to it; rare values are taken together."""
    found = np.bincount(sample, minlength=trials + 1)
    expected = stats.binom(trials, probability).pmf(np.arange(trials + 1)) * len(sample)
    rare = expected < 20
    rare[np.argmin(np.where(rare, np.inf, expected))] |= expected[rare].sum() < 20
    found, expected = (np.append(each[~rare], each[rare].sum()) for each in (found, expected))
    statistic, degrees = ((found - expected) ** 2 / expected).sum(), len(found) - 1
    return float(2 * min(stats.chi2.sf(statistic, degrees), stats.chi2.cdf(statistic, degrees)))


WAYS = {  # rows, steps, probability, memory given
    "in memory": (3000, 300, 0.05, "256MB"),
    "through buckets": (3000, 300, 0.05, "1MB"),
    "through a bucket for each step": (30_000, 20, 0.5, "1MB"),
    "one step, written as it is read": (30_000, 1, 0.5, "1MB"),
    "joined in little memory": (3000, 20, 0.05, "1MB"),
}
IN_BUCKETS = ("through buckets", "through a bucket for each step")


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_every_row_takes_part_in_every_step_by_its_own_draw(
    connection: psycopg.Connection, numbered: Callable[[int], str], way: str, apart: bool
) -> None:
    """Of each row the number of steps is binomial, and no step has a row twice."""
    count, steps, probability, memory = WAYS[way]
    name, times = numbered(count), np.zeros(0, np.int64)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    while len(times) < 10_000:
        found = drawn(connection, name, count, steps, probability=probability, apart=apart)
        assert all(len(set(rows)) == len(rows) for rows in found)
        times = np.append(times, np.bincount(np.concatenate(found).astype(int), minlength=count))
    assert p_value(times, steps, probability) > ALPHA
    assert p_value(times, steps, probability * 0.8) < ALPHA
    assert p_value(times, steps, probability * 1.2) < ALPHA


@pytest.mark.parametrize("memory", ["256MB", "1MB"])
def test_the_sizes_of_steps_are_binomial(
    connection: psycopg.Connection, numbered: Callable[[int], str], memory: str
) -> None:
    name = numbered(500)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    found = drawn(connection, name, 500, 4000, probability=0.02)
    sizes = np.array(list(map(len, found)))
    assert p_value(sizes, 500, 0.02) > ALPHA
    assert p_value(sizes, 500, 0.02 * 0.85) < ALPHA
    assert p_value(sizes, 500, 0.02 * 1.15) < ALPHA


@pytest.mark.parametrize("way", WAYS)
def test_the_ways_are_taken_that_are_told(
    connection: psycopg.Connection, numbered: Callable[[int], str], way: str
) -> None:
    """A table that stands where buckets are staged stops what stages them, and nothing else."""
    count, steps, probability, memory = WAYS[way]
    name = numbered(count)
    connection.execute(f"set dbdp.pack_memory = '{memory}'; create temporary table packed_buckets ()")
    poisson = {"probability": probability, "steps": steps}
    if way in IN_BUCKETS:
        with pytest.raises(psycopg.errors.DuplicateTable):
            packed(connection, name, poisson=poisson)
    else:
        packed(connection, name, poisson=poisson)


class InThisProcess(ClientSession):
    """Packs here what the server packs there, so that a test knows who was drawn."""

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        types = list(map(sessions._postgres_type, parameters))
        return super().query(re.sub(r"\$(\d+)", lambda at: f"{at[0]}::{types[int(at[1]) - 1]}", sql), *parameters)

    def stream(self, sql: str, *parameters: Any) -> Iterator[Row]:
        return iter(self.query(sql, *parameters))

    def stream_of(self, _source: str, sql: str, *parameters: Any) -> Iterator[Row]:
        return self.stream(sql, *parameters)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_each_step_has_the_rows_that_were_drawn_for_it(
    connection: psycopg.Connection, numbered: Callable[[int], str], way: str, apart: bool
) -> None:
    count, steps, probability, memory = WAYS[way]
    name, draw, expected, before = numbered(count), shuffling.hits, [], [0]
    connection.execute(f"set dbdp.pack_memory = '{memory}'; set search_path = pg_catalog, pg_temp; {TABLE}")

    def noted(rows: int, *arguments: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for taking, step in draw(rows, *arguments):
            expected.extend(zip(step.tolist(), (taking + before[0]).tolist(), strict=True))
            yield taking, step
        before[0] += rows

    session = InThisProcess(connection)
    share = packing.Share(poisson=packing.Poisson(probability, steps, apart))
    with patch.object(shuffling, "hits", noted):
        packing.shuffle_and_pack(session, datasets.load(session, name), "pg_temp.packed", share)
    found = [numbers(rows, count) for rows in steps_of(read(connection), steps)]
    assert before == [count]
    assert sorted((step, number) for step, rows in enumerate(found) for number in rows) == sorted(expected)


@pytest.mark.parametrize("memory", ["256MB", "1MB"])
@pytest.mark.parametrize(("count", "steps"), [(70_000, 3), (70_000, 1), (IN_BLOCK, 4), (IN_BLOCK // 4, 8), (100, 2000)])
def test_a_probability_of_one_gives_every_step_the_whole_table(
    connection: psycopg.Connection, numbered: Callable[[int], str], count: int, steps: int, memory: str
) -> None:
    """Steps of several blocks, blocks of several steps, and steps that end with a block."""
    name = numbered(count)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    found = drawn(connection, name, count, steps, probability=1)
    assert all(sorted(rows) == list(range(count)) for rows in found)


def test_a_step_that_ends_with_a_block_ends_in_that_block(
    connection: psycopg.Connection, numbered: Callable[[int], str]
) -> None:
    found = packed(connection, numbered(IN_BLOCK // 2), poisson={"probability": 1.0, "steps": 4})
    assert [(number, len(rows), ends) for number, rows, ends in found] == [
        (0, IN_BLOCK, [IN_BLOCK // 2, IN_BLOCK]),
        (1, IN_BLOCK, [IN_BLOCK // 2, IN_BLOCK]),
    ]


@pytest.mark.parametrize("memory", ["256MB", "1MB"])
def test_steps_without_a_row_end_too(
    connection: psycopg.Connection, numbered: Callable[[int], str], memory: str
) -> None:
    name = numbered(100)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    found = packed(connection, name, poisson={"probability": 1e-12, "steps": 5000})
    assert [(number, len(rows), ends) for number, rows, ends in found] == [(0, 0, [0] * 5000)]
    some = drawn(connection, name, 100, 3000, probability=0.01)
    assert 500 < sum(not rows for rows in some) < 2000  # a third
    apart = packed(connection, name, poisson={"probability": 1e-12, "steps": 3, "apart": True})
    assert [(number, len(rows), ends) for number, rows, ends in apart] == [(step << 20, 0, [0]) for step in range(3)]


@pytest.mark.parametrize("memory", ["256MB", "1MB"])
@pytest.mark.parametrize(("count", "steps"), [(70_000, 3), (70_000, 1), (IN_BLOCK, 2), (200, 30)])
def test_steps_apart_have_blocks_of_their_own(
    connection: psycopg.Connection, numbered: Callable[[int], str], count: int, steps: int, memory: str
) -> None:
    name = numbered(count)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    found = packed(connection, name, poisson={"probability": 1.0, "steps": steps, "apart": True})
    of_step = -(-count // IN_BLOCK)
    assert [number for number, _, _ in found] == [
        (step << 20) + index for step in range(steps) for index in range(of_step)
    ]
    assert [ends for _, _, ends in found] == [*[[]] * (of_step - 1), [count - IN_BLOCK * (of_step - 1)]] * steps
    assert all(sorted(numbers(rows, count)) == list(range(count)) for rows in steps_of(found, steps))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", ["insert into numbered values (1, 1)", "delete from numbered where i = 7"])
def test_a_table_that_has_another_number_of_rows_is_refused(
    connection: psycopg.Connection, numbered: Callable[[int], str], way: str, change: str
) -> None:
    count, steps, probability, memory = WAYS[way]
    name = numbered(count)
    connection.execute(f"set dbdp.pack_memory = '{memory}'; {change}")
    with pytest.raises(psycopg.Error, match=rf"had {count + (1 if 'insert' in change else -1)} rows while it was read"):
        packed(connection, name, poisson={"probability": probability, "steps": steps})


def multiset(rows: np.ndarray) -> Counter[bytes]:
    return Counter(row.tobytes() for row in rows + np.float32(0))  # adding 0 makes -0 a 0


@pytest.mark.parametrize("projection", [None, {"dimension": 2, "seed": 3}])
def test_the_rows_are_those_of_a_shuffle_whatever_they_hold(
    connection: psycopg.Connection, schema: str, register: Register, projection: dict[str, int] | None
) -> None:
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
        connection.execute("select dbdp.shuffle(%s, 'pg_temp.packed', %s::json)", (name, json.dumps(options)))
        plain = b"".join(block for (block,) in connection.execute("select block from packed").fetchall())
    for steps in (1, 3):
        found = packed(connection, name, dimension, poisson={"probability": 1, "steps": steps}, **options)
        for rows in steps_of(found, steps):
            assert multiset(rows) == multiset(blocks.decode(plain, dimension))
    assert len(multiset(blocks.decode(plain, dimension))) == 91


REFUSED = {
    "a number": ("0.5", 'poisson needs "probability" and "steps", and may have "apart"'),
    "no steps": ('{"probability": 0.5}', 'poisson needs "probability" and "steps"'),
    "unknown": ('{"probability": 0.5, "steps": 1, "seed": 1}', 'poisson needs "probability" and "steps"'),
    "never": (
        '{"probability": 0, "steps": 1}',
        "probability = 0 of poisson must be above 0 and at most 1; for batches",
    ),
    "too likely": ('{"probability": 1.5, "steps": 1}', "probability = 1.5 of poisson must be above 0 and at most 1"),
    "true": ('{"probability": true, "steps": 1}', "probability = True of poisson must be above 0"),
    "a text": ('{"probability": "0.5", "steps": 1}', "probability = '0.5' of poisson must be above 0"),
    "no step": ('{"probability": 0.5, "steps": 0}', "steps = 0 of poisson must be a whole number from 1 to 67108864"),
    "half a step": ('{"probability": 0.5, "steps": 1.5}', "steps = 1.5 of poisson must be a whole number"),
    "endless": ('{"probability": 0.5, "steps": 67108865}', "steps = 67108865 of poisson must be a whole number"),
    "apart a number": ('{"probability": 0.5, "steps": 1, "apart": 1}', "apart = 1 of poisson must be true or false"),
    "too many rows": (
        '{"probability": 1.0, "steps": 4000000}',
        r"steps = 4000000 of poisson take about 1.2e\+10 rows of dataset .*, above the limit of 8589934592; draw fewer",
    ),
    "a key": ('{"probability": 0.5, "steps": 1}, "key": "' + "00" * 32 + '"', "poisson is given with key, first, last"),
    "cuts": ('{"probability": 0.5, "steps": 1}, "cuts": [5]', "poisson is given with key, first, last or cuts"),
    "a place": ('{"probability": 0.5, "steps": 1}, "first": 5', "poisson is given with key, first, last or cuts"),
    "an end": ('{"probability": 0.5, "steps": 1}, "last": 5', "poisson is given with key, first, last or cuts"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_without_sense_are_refused_in_our_words(
    connection: psycopg.Connection, numbered: Callable[[int], str], case: str
) -> None:
    given, message = REFUSED[case]
    name = numbered(3000)
    connection.execute(TABLE)
    with pytest.raises(psycopg.Error, match=message) as error:
        connection.execute("select dbdp.shuffle(%s, 'pg_temp.packed', %s::json)", (name, f'{{"poisson": {given}}}'))
    assert error.value.diag.message_primary.startswith("dbdp: ")
    assert read(connection) == []


def test_more_steps_than_the_memory_counts_are_refused_with_the_remedy(
    connection: psycopg.Connection, numbered: Callable[[int], str]
) -> None:
    name, poisson = numbered(100), {"probability": 1e-9, "steps": 40_000}
    connection.execute("set dbdp.pack_memory = '1MB'")
    with pytest.raises(psycopg.Error, match="steps = 40000 of poisson are above the 16384 that") as error:
        packed(connection, name, poisson=poisson)
    connection.execute(re.search(r"set dbdp.pack_memory = '\d+MB'", str(error.value))[0])
    assert len(steps_of(packed(connection, name, poisson=poisson), 40_000)) == 40_000


def test_blocks_of_a_step_apart_that_its_numbers_do_not_hold_are_refused(
    connection: psycopg.Connection, numbered: Callable[[int], str]
) -> None:
    session = ClientSession(connection)
    dataset = datasets.load(session, numbered(10))
    share = packing.Share(poisson=packing.Poisson(0.5, 1, apart=True))
    refused = pytest.raises(ValueError, match="could have 10 rows, above the 9 that the blocks of one step hold; leave")
    with patch.object(packing, "APART", 1), patch.object(blocks, "rows_per_block", return_value=9), refused:
        packing.check_share(session, dataset, share)
    packing.check_share(session, dataset, share)


@pytest.mark.parametrize("probability", [1e-6, 1e-3, 0.05, 1.0])
@pytest.mark.parametrize("memory", ["1MB", "3MB", "256MB"])
def test_steps_that_fit_stay_within_half_the_memory_and_nearly_fill_it(
    connection: psycopg.Connection, numbered: Callable[[int], str], memory: str, probability: float
) -> None:
    session = ClientSession(connection)
    dataset = datasets.load(session, numbered(4000))
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    half, row_bytes = int(memory[:-2]) << 19, 32 + 48

    def fits(steps: int, chance: float) -> bool:
        return stats.binom(4000 * steps, probability).isf(chance) * row_bytes + 32 * steps <= half

    steps = packing.steps_that_fit(session, dataset, 1, probability, 10**9)
    assert packing.steps_that_fit(session, dataset, 1, probability, 3) == min(3, steps)
    assert fits(steps, 1e-13)
    assert not fits(2 * steps, 0.5)


def test_a_step_that_does_not_fit_is_drawn_alone(
    connection: psycopg.Connection, numbered: Callable[[int], str]
) -> None:
    session = ClientSession(connection)
    dataset = datasets.load(session, numbered(40_000))
    connection.execute("set dbdp.pack_memory = '1MB'")
    assert packing.steps_that_fit(session, dataset, 1, 0.9, 1000) == 1
    assert packing.steps_that_fit(session, dataset, 1, 0.001, 1000) > 100


@pytest.mark.parametrize("way", IN_BUCKETS)
def test_no_temporary_table_stays(connection: psycopg.Connection, numbered: Callable[[int], str], way: str) -> None:
    count, steps, probability, memory = WAYS[way]
    name, poisson = numbered(count), {"probability": probability, "steps": steps}
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    with connection.transaction():
        connection.execute(TABLE)
        options = json.dumps({"poisson": poisson})
        connection.execute("select dbdp.shuffle(%s, 'pg_temp.packed', %s::json)", (name, options))
        left = "select relname from pg_class where relpersistence = 't' and relkind = 'r'"
        assert connection.execute(left).fetchall() == [("packed",)]


def memory_of(pid: int) -> dict[str, int]:
    """Resident and peak memory of a process, in bytes."""
    found = re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {key: int(value) << 10 for key, value in found}


def growth(connection: psycopg.Connection, name: str, memory: str, options: str) -> int:
    """How far one draw raises the peak of a backend that has drawn in 1 MB before."""
    connection.execute(TABLE)
    connection.execute("set dbdp.pack_memory = '1MB'; set temp_buffers = '1MB'")
    warming = json.dumps({"poisson": {"probability": 0.9, "steps": 2}})
    connection.execute("select dbdp.shuffle(%s, 'pg_temp.packed', %s::json)", (name, warming))
    connection.execute("truncate packed")
    pid = connection.info.backend_pid
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        pytest.skip("only root on the server's machine may reset a peak")
    before = memory_of(pid)["VmRSS"]
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    connection.execute("select dbdp.shuffle(%s, 'pg_temp.packed', %s::json)", (name, options))
    return memory_of(pid)["VmHWM"] - before


@pytest.mark.parametrize(
    ("probability", "steps"), [(1.0, 1), (1.0, 2), (0.02, 50)], ids=["one step", "large steps", "many steps"]
)
def test_steps_that_are_larger_than_the_memory_given_are_packed_within_it(
    server_url: str, connection: psycopg.Connection, schema: str, register: Register, probability: float, steps: int
) -> None:
    """80,000 rows or more of 64 bytes are five times the memory."""
    connection.execute("""
create table large as
select array_fill(i % 100 / 100.0::float8, array[14]) x, i % 2 y from generate_series(1, 80000) i""")
    name, grown = register("large", features={"x": {"length": 14, "norm": 60}}), {}
    options = json.dumps({"poisson": {"probability": probability, "steps": steps}})
    for memory in ("1MB", "256MB"):
        with psycopg.connect(server_url) as fresh:
            grown[memory] = growth(fresh, name, memory, options)
    assert grown["1MB"] < 8 << 20
    assert grown["256MB"] > 10 << 20  # the measure sees what it should
