"""Rows designed to be noticed: whatever one contains, the result, its messages and its statements are the same."""

import re
import time
from pathlib import Path
from statistics import median

import psycopg
import pytest
from attacker import Arena, allow, attempt
from pairs import others_slow

pytestmark = pytest.mark.security

LENGTH = 50
CRAFTED = {  # the array of one row
    "a plain row": f"array_fill(.1::float8, array[{LENGTH}])",
    "null": "null",
    "a null element": f"array_fill(.1::float8, array[{LENGTH - 1}]) || null::float8",
    "NaN": f"array_fill('NaN'::float8, array[{LENGTH}])",
    "infinity": f"array_fill('-Infinity'::float8, array[{LENGTH}])",
    "1e308": f"array_fill(1e308::float8, array[{LENGTH}])",
    "the least number": f"array_fill(5e-324::float8, array[{LENGTH}])",
    "no element": "'{}'",
    "one element too many": f"array_fill(.1::float8, array[{LENGTH + 1}])",
    "two dimensions": f"array_fill(.1::float8, array[2, {LENGTH // 2}])",
    "another lower bound": f"array_fill(.1::float8, array[{LENGTH}], array[7])",
    "a compressed million": "array_fill(0::float8, array[1000000])",
    "a million stored elsewhere": "(select array_agg(random()) from generate_series(1, 1000000))",
}
RECEIPT = (
    "select receipt::jsonb - array['model', 'ledger', 'dataset', 'released_at', 'released_by'] "
    "from dbdp.models_details where id = %s"
)
INTERFACES = {
    "dp_logreg": "select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', epochs => 2)",
    "dp_sgd": "select model from dbdp.dp_train(%s, 1, 1e-6, 'dp_sgd', epochs => 1)",
    "objective_perturbation": "select model from dbdp.dp_train(%s, 1, 1e-6, 'objective_perturbation')",
}


def with_row(arena: Arena, owner: psycopg.Connection, row: str, rows: int, number: int) -> str:
    """Register a table of rows one of which is crafted."""
    name = f"crafted_{number}_{rows}"
    owner.execute(f"create table {name} (x float8[], y int)")
    owner.execute(
        f"insert into {name} select array_fill(i / {rows}.0, array[{LENGTH}]), i % 2 from generate_series(2, {rows}) i"
    )
    owner.execute(f"insert into {name} values ({CRAFTED[row]}, 1)")
    owner.execute(f"alter table {name} set (autovacuum_enabled = off)")
    declared = f'{{"x": {{"length": {LENGTH}, "norm": 1}}}}'
    sql = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 100000, 1e-2, mode => 'basic')"
    owner.execute(sql, (f"{name}_{arena.names['owner']}", name, declared))
    allow(owner, f"{name}_{arena.names['owner']}", arena.names["analyst"])
    return f"{name}_{arena.names['owner']}"


@pytest.mark.parametrize("interface", others_slow(list(INTERFACES), "dp_logreg"))
@pytest.mark.attack("row-values")
def test_no_row_changes_a_word_of_the_answer(arena, owner, analyst, interface):
    messages: list[str] = []
    analyst.add_notice_handler(lambda notice: messages.append(str(notice.message_primary)))
    receipts = []
    for number, row in enumerate(CRAFTED):
        owner.execute(f"drop table if exists crafted_{number}_60")
        attempt(owner, "select dbdp.drop_dataset(%s)", f"crafted_{number}_60_{arena.names['owner']}")
        name = with_row(arena, owner, row, 60, number)
        model = analyst.execute(INTERFACES[interface], (name,)).fetchone()[0]
        receipts.append(analyst.execute(RECEIPT, (model,)).fetchone())
    assert all(receipt == receipts[0] for receipt in receipts)
    assert len(messages) in (0, len(CRAFTED))  # at most the warning that follows from the public size
    assert len(set(messages)) <= 1, messages
    assert all(
        message.startswith("dbdp: the noise will probably dominate: 60 rows at epsilon = 1 ") for message in messages
    )


TEXTS = {
    "a category": "'a'",
    "another": "'never declared'",
    "null": "null",
    "nothing": "''",
    "a long one": "repeat('x', 10000000)",
    "a long one stored elsewhere": "(select string_agg(md5(random()::text), '') from generate_series(1, 100000))",
    "odd characters": "U&'\\202e\\0001'",
    "one of the length of a category": "'b'",
}


@pytest.mark.attack("row-values")
def test_no_text_changes_a_word_of_the_answer(arena, owner, analyst):
    receipts = []
    for number, text in enumerate(TEXTS.values()):
        name = f"texts_{number}_{arena.names['owner']}"
        owner.execute(f"create table texts_{number} (k text, v numeric, y boolean)")
        owner.execute(f"insert into texts_{number} select 'a', i, i % 2 = 0 from generate_series(2, 60) as i")
        owner.execute(f"insert into texts_{number} values ({text}, 'NaN', null)")
        sql = "select dbdp.register_dataset(%s, %s::regclass, 'y', 'true', %s, 100, 0, mode => 'basic')"
        owner.execute(sql, (name, f"texts_{number}", '{"k": ["a", "c"], "v": [0, 60]}'))
        allow(owner, name, arena.names["analyst"])
        model = analyst.execute(
            "select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', batch_size => 20)", (name,)
        ).fetchone()[0]
        receipts.append(analyst.execute(RECEIPT, (model,)).fetchone())
    assert all(receipt == receipts[0] for receipt in receipts)


def milliseconds(session: psycopg.Connection, name: str) -> float:
    """What a training takes of the processor: what its caller sees by the clock, without what other processes add."""
    spent = Path(f"/proc/{session.info.backend_pid}/schedstat")
    before = int(spent.read_text().split()[0])
    session.execute("select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', epochs => 1)", (name,))
    return (int(spent.read_text().split()[0]) - before) / 1e6


def buffers(session: psycopg.Connection, name: str) -> int:
    """Return the number of shared buffers that EXPLAIN shows a caller; the least of several calls."""
    sql = (
        "explain (analyze, buffers, timing off) select model from dbdp.dp_logreg(%s, 1, "
        "algorithm => 'bolt_on', epochs => 1)"
    )
    plans = ["\n".join(line for (line,) in session.execute(sql, (name,)).fetchall()) for _ in range(5)]
    return min(int(re.search(r"Buffers: shared hit=(\d+)", plan)[1]) for plan in plans)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not tell processor times")
@pytest.mark.attack("row-time")
def test_time_and_pages_that_a_row_adds_are_stated(arena, owner, analyst):
    """docs/security.md has the figures. The control: a query that does read the longest row takes far longer."""
    rows = 5000
    names = {row: with_row(arena, owner, row, rows, number) for number, row in enumerate(CRAFTED)}
    taken: dict[str, list[float]] = {row: [] for row in CRAFTED}
    for _ in range(20):
        for row, name in names.items():
            taken[row].append(milliseconds(analyst, name))
    least = {row: median(times) for row, times in taken.items()}
    pages = {row: buffers(analyst, name) for row, name in names.items()}
    for row in CRAFTED:
        print(f"{row}: {least[row] - least['a plain row']:+.2f} ms, {pages[row] - pages['a plain row']:+d} pages")
    print(f"a plain row: {least['a plain row']:.1f} ms, {pages['a plain row']} pages")
    assert all(abs(each - least["a plain row"]) < 0.3 * least["a plain row"] for each in least.values())
    assert all(abs(each - pages["a plain row"]) < 20 for each in pages.values())
    [*_, longest] = names
    began = time.perf_counter()
    owner.execute(f"select sum(v) from crafted_{len(CRAFTED) - 1}_{rows}, unnest(x) as v")
    assert 1000 * (time.perf_counter() - began) > 2 * max(least.values()), longest
