"""No counter that an analyst may read differs between neighbours, or between two runs on one table.

The counters are enumerated, not listed: every number of `EXPLAIN (ANALYZE, BUFFERS, WAL, SETTINGS)`, and every function
of PostgreSQL that shows what happened to a relation within a transaction, called for the table, what it stores out of
line, and every oid that a relation of the run may have had. So are the numbers of commands, of transactions, of
objects and of portals that the run takes, all locks, and the runs: every algorithm of the catalogue.
"""

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import psycopg
import pytest
from attacker import Arena, allow
from observing import counted_in_session
from pairs import each_value_quick, others_slow
from short import FEW, OF_COLUMNS

from dbdp.algorithms import ALGORITHMS
from dbdp.algorithms.scores.metrics import METRICS, OF_NUMBERS

pytestmark = pytest.mark.security
LENGTH, EPSILON, DELTA = 24, 0.2, 1e-7
PAIR = ("one", "other")
# Runs whose length follows from released numbers have settings here by which it is public.
SETTLED: dict[str, dict[str, Any]] = {
    **{name: {"settings": '{"planned_steps": 1}'} for name in ("dp_blsgd", "dp_blgd", "dp_blsgd_ac")},
    "dp_agd": {"settings": '{"splits": 1, "growth": 1.0}'},
    "rrpsgd": {"epochs": 1, "batch_size": 1100},  # one update: how many are made, it draws and publishes
}
EPSILON_OF_CHOICE = 10.0  # with less a choice does not begin
SAMPLED = ("dp_agd", "privgene")  # read all rows unless they are given a batch_size
CLOCKS = ("Time", "Timing")  # parts of the names of what EXPLAIN measures with a clock
BEFORE = "Planning"  # pages of the catalogue that a plan is made from, before the call: what the session looked up last
LABELLED = "label => 'y', positive => '1'"
KINDS = {  # rows, and what is declared of them
    "rows": (1500, f"{LABELLED}, public_columns => '{{g}}'"),
    "units": (1500, f"{LABELLED}, unit => 'u', max_rows => 3"),
    "numbers": (1500, "label => 'z', label_bounds => '{0,1}'"),
    "many rows": (4500, f"{LABELLED}, public_columns => '{{g}}'"),  # beyond the least memory
    "columns": (1500, LABELLED),
    "classes": (1500, "label => 'g', classes => '{a,b}'"),
}
GROWING = {  # rows of the two tables, below and above the capacity, and what is declared of them
    "rows": ((1400, 2100), f"{LABELLED}, public_columns => '{{g}}', capacity => 1500"),
    "units": ((1400, 2100), f"{LABELLED}, unit => 'u', max_rows => 3, capacity => 900"),
    "numbers": ((1400, 2100), "label => 'z', label_bounds => '{0,1}', capacity => 1500"),
    "many rows": ((4100, 5200), f"{LABELLED}, public_columns => '{{g}}', capacity => 4500"),
    "columns": ((1400, 2100), f"{LABELLED}, capacity => 1500"),
    "classes": ((1400, 2100), "label => 'g', classes => '{a,b}', capacity => 1500"),
}


STATISTICS = {  # of columns, by key
    "describe of columns": "select * from dbdp.dp_describe(%s, epsilon => %s, delta => %s)",
    "quantiles": "select * from dbdp.dp_quantiles(%s, 'z', '{.1,.5}', epsilon => %s, delta => %s)",
    "table of a cohort": """select * from dbdp.dp_table(%s, '{g,y}', epsilon => %s, delta => %s,
    measures => '{count,mean z}', cohort => '{"z": [0, 0.02]}', bins => 2)""",
}
COHORT = '{"z": [0, 0.02]}'  # the changed record is inside on one table, and outside on the other


def calls() -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Every call that reads rows, by a name: its SQL, with the dataset as %s, and its other arguments."""
    train = "select * from dbdp.dp_train(%s, epsilon => %s, delta => %s, algorithm => %s, {})"
    found = {}
    for name in ALGORITHMS:
        given = FEW.get(name, {"epochs": 2}) | SETTLED.get(name, {})
        for sampled in [False, True] if name in SAMPLED else [False]:
            options = given | ({"batch_size": 60} if sampled else {})
            if name not in FEW:
                options["epochs"] = 2
            named = ", ".join(f"{option} => %s" for option in options)
            sql = train.format(named) if options else train.replace(", {}", "")
            key = f"{name} of mini-batches" if sampled else name
            found[key] = (sql, (EPSILON, DELTA, name, *options.values()))
    found["private_splines of several classes"] = found["private_splines"]
    chosen = (EPSILON_OF_CHOICE, DELTA, "private_splines", "chosen")
    found["private_splines of chosen pairs"] = (train.format("pairs => %s"), chosen)
    stages = (EPSILON, DELTA, "objective_perturbation", 0.005)  # rows by themselves, and not all of them in each step
    found["objective_perturbation in stages"] = (train.format("regularisation => %s"), stages)
    pairs = '[{"epochs": 1}, {"epochs": 2}]'
    for method in ("disjoint_portions", "random_repetition"):
        sql = "select * from dbdp.dp_tune(%s, %s, epsilon => %s, delta => %s, algorithm => 'bolt_on', method => %s)"
        found[f"tune by {method}"] = (sql, (pairs, EPSILON, DELTA, method))
    groups = "select * from dbdp.dp_train_groups(%s, 'g', '{a,b}', epsilon => %s, delta => %s, algorithm => %s"
    for name in ("bolt_on", "dp_sgd"):
        found[f"groups by {name}"] = (f"{groups}, epochs => 1)", (EPSILON, DELTA, name))
    found["class balance"] = ("select dbdp.dp_class_balance(%s, epsilon => %s)", (EPSILON,))
    found["summary"] = ("select * from dbdp.dp_summarize(%s, epsilon => %s, delta => %s)", (EPSILON, DELTA))
    found["describe"] = ("select * from dbdp.dp_describe(%s, epsilon => %s, delta => %s)", (EPSILON, DELTA))
    found["table"] = ("select * from dbdp.dp_table(%s, '{y}', epsilon => %s, delta => %s)", (EPSILON, DELTA))
    found |= {key: (sql, (EPSILON, DELTA)) for key, sql in STATISTICS.items()}
    for name in ("bolt_on", "private_splines"):
        found[f"{name} of a cohort"] = (train.format("cohort => %s"), (EPSILON, DELTA, name, COHORT))
    found["summary of a cohort"] = (
        "select * from dbdp.dp_summarize(%s, epsilon => %s, delta => %s, cohort => %s)",
        (EPSILON, DELTA, COHORT),
    )
    found["bounds"] = ("select dbdp.dp_bounds(%s, 'z', epsilon => %s, delta => %s)", (EPSILON, DELTA))
    return found


CALLS = calls()
SLOW, BATCHED = pytest.mark.slow, ("dp_sgd", "dp_blsgd")
BUCKETED = ("bolt_on", "groups by bolt_on", "objective_perturbation in stages")
UNITED = ("dp_blsgd", "privgene of mini-batches", "class balance", "summary", "describe")
CALLER = {"bounds": "owner"}  # who else may call it
CALLED: list[tuple[psycopg.Connection, str]] = []


Pairs = Callable[[str], dict[str, str]]


@pytest.fixture(scope="module")
def pairs(arena: Arena) -> Pairs:
    """Neighbours of a kind: one row, or unit, has other values, stored as wide at the same place."""

    @cache
    def make(kind: str) -> dict[str, str]:
        rows, more = KINDS[kind]
        return made(arena, {"one": ("0.1", rows), "other": ("-0.2", rows)}, more, FEATURES.get(kind, VECTOR))

    return make


@pytest.fixture(scope="module")
def growing(arena: Arena) -> Pairs:
    """Tables of a kind with one capacity, of which one has fewer rows and the other more."""

    @cache
    def make(kind: str) -> dict[str, str]:
        (fewer, more), declared = GROWING[kind]
        return made(arena, {"one": ("0.1", fewer), "other": ("-0.2", more)}, declared, FEATURES.get(kind, VECTOR))

    return make


VECTOR = {"x": {"length": LENGTH, "norm": 1}}
FEATURES = {  # by kind, for what does not train on an array
    "columns": {"z": [-1, 1], "g": ["a", "b"]},
    "classes": {"z": [-1, 1], "y": ["0", "1"]},
}
KIND_OF = {  # of a call's key
    **dict.fromkeys([*OF_COLUMNS, *STATISTICS, "private_splines of chosen pairs"], "columns"),
    "private_splines of a cohort": "columns",
    **dict.fromkeys(["bolt_on of a cohort", "summary of a cohort"], "numbers"),  # of an array, which is out of line
    "private_splines of several classes": "classes",
}


def made(
    arena: Arena, pair: dict[str, tuple[str, int]], more: str, features: dict[str, Any] = VECTOR
) -> dict[str, str]:
    """Two tables, registered: each with a value of its own in one row, or unit, and so many rows."""
    owner, schema, found = arena.session("owner"), arena.names["owner"], {}
    for each, (value, rows) in pair.items():
        found[each] = name = f"{each}_{secrets.token_hex(4)}"
        owner.execute(f"""
create table {name} as
select array_fill((i % 7 - 3) / 20.0::float8, array[{LENGTH}]) as x, i % 2 as y, i % 10 / 10.0::float8 as z,
       case i % 3 when 0 then 'a' else 'b' end as g, i / 2 as u
from generate_series(0, {rows - 1}) as i;
update {name} set x = array_fill({value}::float8, array[{LENGTH}]), y = 1 - y, z = {value}::float8 ^ 2 where u = 5""")
        budget = 60 if features is VECTOR else 6000  # a choice of pairs needs more for each run
        register = "select dbdp.register_dataset(name => %s, source => %s::regclass, features => %s, "
        register += f"epsilon => {budget}, "
        declared = json.dumps(features)
        owner.execute(f"{register} delta => 1e-3, mode => 'basic', {more})", (name, f"{schema}.{name}", declared))
        allow(owner, name, arena.names["analyst"])
    return found


def explained(session: psycopg.Connection, sql: str, parameters: tuple[Any, ...]) -> Counter[tuple[str, str]]:
    """Every value that EXPLAIN shows of a call, but for clocks and what was before it."""
    options = "analyze, buffers, wal, settings, verbose, format json"
    with psycopg.ClientCursor(session) as cursor:  # EXPLAIN takes no parameters
        (shown,) = cursor.execute(f"explain ({options}) {sql}", parameters).fetchone()
    return Counter(flattened("", {key: value for key, value in shown[0].items() if key != BEFORE}))


def flattened(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if not any(clock in key for clock in CLOCKS):
                yield from flattened(f"{path}/{key}", item)
    elif isinstance(value, list):
        for item in value:
            yield from flattened(path, item)
    elif isinstance(value, int | float):
        yield path, str(value)


FUNCTIONS = """
select p.proname from pg_proc as p
where p.proname ~ '^pg_stat_get_xact_' and p.proargtypes = '26'::oidvector and p.prorettype = 'int8'::regtype
and p.proname !~ '_function_'  -- their argument is a function
order by 1"""
# The dataset's table, what it stores out of line and the index of that; and every number that a run may have used.
RELATIONS = """
select c.oid::int8 as number from pg_class as c where c.oid = %(source)s::regclass
union all
select c.reltoastrelid from pg_class as c where c.oid = %(source)s::regclass
union all
select i.indexrelid from pg_class as c join pg_index as i on i.indrelid in (c.oid, c.reltoastrelid)
where c.oid = %(source)s::regclass
union all
select number from generate_series(%(first)s::int8, %(last)s) as number"""


def counted(session: psycopg.Connection, source: str, call: Callable[[], Any]) -> Counter[tuple[str, int]]:
    """Every counter, above 0, of every relation that a call may have touched, in one transaction with it.

    What the session counted before, and has not reported for up to a second, would be added to the call's.
    """
    session.execute("select pg_stat_force_next_flush()")
    with session.transaction():
        began, first = taken(session), next_number(session)
        call()
        numbers = {"source": source, "first": first + 1, "last": next_number(session) - 1}
        used = {name: number - began[name] for name, number in taken(session).items()}
        names = [name for (name,) in session.execute(FUNCTIONS).fetchall()]
        assert {"pg_stat_get_xact_blocks_fetched", "pg_stat_get_xact_tuples_inserted"} <= set(names)
        shown = ", ".join(f"{name}(number::oid) as {name}" for name in names)
        cursor = session.execute(f"select {shown} from ({RELATIONS}) as relations", numbers)
        found = [zip(names, row, strict=True) for row in cursor.fetchall()]
    return Counter([*((name, value) for row in found for name, value in row if value), *used.items()])


# Pages, and the rows of catalogues, which grow from call to call: `counted` has those of each relation of the run.
CATALOGUE = {f"pg_stat_get_db_{name}" for name in ("blocks_fetched", "blocks_hit", "tuples_returned", "tuples_fetched")}
OF_DATABASE = """
select p.proname from pg_proc as p
where p.proname ~ '^pg_stat_get_db_' and p.proargtypes = '26'::oidvector and p.prorettype = 'int8'::regtype
order by 1"""


def counted_in_database(session: psycopg.Connection, call: Callable[[], Any]) -> dict[str, int]:
    """By how much each counter of the session's database grows with a call."""
    names = [name for (name,) in session.execute(OF_DATABASE).fetchall() if name not in CATALOGUE]
    assert {f"pg_stat_get_db_{name}" for name in ("temp_bytes", "temp_files", "tuples_inserted")} <= set(names)
    numbers = ", ".join(f"{name}(d.oid)" for name in names)
    read = f"select {numbers} from pg_database as d where datname = current_database()"
    found = []
    for action in (lambda: None, call):
        action()
        session.execute("select pg_stat_force_next_flush()")
        found.append(session.execute(read).fetchone())
    return dict(zip(names, np.subtract(found[1], found[0]).tolist(), strict=True))


def taken(session: psycopg.Connection) -> dict[str, int]:
    """Numbers that every statement of the transaction takes that writes, and those of objects and large values."""
    name = f"probe_{secrets.token_hex(4)}"
    with session.transaction():  # its own number shows how many came before
        session.execute(f"create temporary table {name} as select 1 as i")
        sql = f"select cmin::text::int8, xmin::text::int8, tableoid::int8 from {name}"
        numbers = session.execute(sql).fetchone()
        session.execute(f"drop table {name}")
    return dict(zip(("commands", "transactions", "objects"), numbers, strict=True))


def next_number(session: psycopg.Connection) -> int:
    """A number for a relation that nobody had: later ones are above it."""
    name = f"probe_{secrets.token_hex(4)}"
    session.execute(f"create temporary table {name} ()")
    number = session.execute("select %s::regclass::oid::int8", (f"pg_temp.{name}",)).fetchone()[0]
    session.execute(f"drop table {name}")
    return number


def observed(arena: Arena, name: str, key: str) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, int]], Any]:
    """What the analyst can count of one call: by EXPLAIN, by statistics, and of portals, cursors and locks."""
    session, (sql, others) = arena.session(CALLER.get(key, "analyst")), CALLS[key]
    shown: list[Counter[tuple[str, str]]] = []
    left: list[dict[str, Any]] = []

    def call() -> None:
        explain = partial(explained, session, sql, (name, *others))
        left.append(counted_in_session(session, name, lambda: shown.append(explain())))

    found = counted(session, f"{arena.names['owner']}.{name}", call)
    del left[0]["subtransactions"]  # to which waiting for the disk adds: `test_sizes`
    return shown[0], found, left[0]


def runs(arena: Arena, pair: dict[str, str], key: str) -> list[Any]:
    """What is counted on one table, on the other, and on the first again.

    Before it a session calls each function once: the first time it looks the function up, and loads what it needs. What
    a row decides differs in each attempt. Pages of catalogues that a vacuum in between changes do not, nor what the
    released noise decides: a receipt is stored out of line from a length on, which half of the releases have.
    """
    session, (sql, others) = arena.session(CALLER.get(key, "analyst")), CALLS[key]
    function = sql.partition("(")[0]
    if (session, function) not in CALLED:
        session.execute(sql, (pair["one"], *others)).fetchall()
        CALLED.append((session, function))
    for _ in range(60):  # each has a chance of at least 1/4: all fail with 3e-8
        found = [observed(arena, pair[each], key) for each in (*PAIR, "one")]
        if found[0] == found[1] == found[2]:
            break
    return found


@pytest.mark.parametrize("key", others_slow(list(CALLS), *list(CALLS)[::2]))
@pytest.mark.attack("counters")
def test_no_counter_differs_between_neighbours_or_between_runs(arena, pairs, key):
    one, other, again = runs(arena, pairs(KIND_OF.get(key, "rows")), key)
    assert one == other == again


@pytest.mark.attack("counters")
def test_the_choice_of_pairs_begins(arena, pairs):
    """Guard: what is counted above is a run that chooses."""
    sql, parameters = CALLS["private_splines of chosen pairs"]
    explain = sql.replace("select * from dbdp.dp_train", "select dbdp.dp_explain")
    (plan,) = arena.session("analyst").execute(explain, (pairs("columns")["one"], *parameters)).fetchone()
    assert plan["pair_choice"]["candidates"] == 1


@pytest.mark.parametrize("key", others_slow(list(CALLS), *list(CALLS)[::3]))
@pytest.mark.attack("row-count")
def test_no_counter_depends_on_the_number_of_rows_of_a_capacity(arena, growing, key):
    one, other, again = runs(arena, growing(KIND_OF.get(key, "rows")), key)
    assert one == other == again


@pytest.mark.parametrize("memory", ["256MB", pytest.param("1MB", marks=SLOW)])
@pytest.mark.parametrize("keys", ["ab", "ac"])
@pytest.mark.parametrize("rows", [1400, pytest.param(21_000, marks=SLOW)])
@pytest.mark.attack("row-count")
def test_counters_hide_a_record_changing_its_group(arena, keys, rows, memory):
    """Group c is not trained on; the larger table has more rows in each group than its share."""
    owner, features = arena.session("owner"), {"z": [-1, 1], "g": ["a", "b"]}
    pair = made(arena, {each: ("0.1", rows) for each in PAIR}, f"{LABELLED}, capacity => {rows // 10 * 9}", features)
    for name, key in zip(pair.values(), keys, strict=True):
        owner.execute(f"update {name} set g = '{key}' where u = 5")
    with pytest.MonkeyPatch.context() as patched, arena.login("analyst") as small:
        patched.setattr(arena, "session", lambda _kind: small)
        small.execute(f"set dbdp.pack_memory = '{memory}'")
        one, other, again = runs(arena, pair, "groups by bolt_on")
    assert one == other == again


@pytest.mark.parametrize(("kind", "key"), each_value_quick(["units", "many rows"], ["bolt_on", "dp_sgd"]))
@pytest.mark.attack("row-count")
def test_counters_hide_the_number_of_units_and_buckets(arena, growing, kind, key):
    """No counter depends on the number of units or where rows go through buckets."""
    pair = growing(kind)
    with pytest.MonkeyPatch.context() as patched, arena.login("analyst") as small:
        patched.setattr(arena, "session", lambda _kind: small)
        small.execute("set dbdp.pack_memory = '1MB'; set temp_buffers = '1MB'")
        one, other, again = runs(arena, pair, key)
    assert one == other == again


@pytest.mark.parametrize("differing", ["a row", "the number of rows"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.attack("counters", "row-count")
def test_no_counter_of_a_score_differs(arena, pairs, growing, metric, differing):
    kind, algorithm = ("numbers", "dp_linreg") if metric in OF_NUMBERS else ("rows", "dp_logreg")
    pair, analyst = (pairs if differing == "a row" else growing)(kind), arena.session("analyst")
    train = f"select model from dbdp.{algorithm}(%s, epsilon => %s, algorithm => 'bolt_on', epochs => 1)"
    (model,) = analyst.execute(train, (pair["one"], EPSILON)).fetchone()
    call = f"select dbdp.dp_score({model}, %s, %s, epsilon => %s, delta => %s)"
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(CALLS, metric, (call, (metric, EPSILON, DELTA)))
        one, other, again = runs(arena, pair, metric)
    assert one == other == again


@pytest.mark.parametrize("key", ["bolt_on", "dp_sgd", *(pytest.param(key, marks=SLOW) for key in UNITED)])
@pytest.mark.attack("counters")
def test_no_counter_differs_between_neighbouring_units(arena, pairs, key):
    one, other, again = runs(arena, pairs("units"), key)
    assert one == other == again


@pytest.mark.parametrize(
    "key",
    [
        "bolt_on",
        "groups by bolt_on",
        "objective_perturbation in stages",
        *(pytest.param(key, marks=SLOW) for key in BATCHED),
    ],
)
@pytest.mark.attack("counters")
def test_no_counter_differs_where_rows_go_through_buckets(arena, pairs, key):
    """The analyst gives the least memory, and few pages for temporary tables."""
    pair = pairs("many rows")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arena, "session", lambda _kind: small)
        with arena.login("analyst") as small:
            small.execute("set dbdp.pack_memory = '1MB'; set temp_buffers = '1MB'")
            one, other, again = runs(arena, pair, key)
    assert one == other == again


@pytest.mark.parametrize("key", ["bolt_on", "dp_sgd", *(pytest.param(key, marks=SLOW) for key in UNITED)])
@pytest.mark.attack("counters")
def test_no_counter_of_the_database_differs(arena, pairs, key):
    """Other sessions count there too: what a row decides comes back in each of the attempts, what they do does not."""
    pair, (sql, parameters) = pairs("rows"), CALLS[key]
    session = arena.session("analyst")
    runs(arena, pair, key)
    for _ in range(8):
        found = [
            counted_in_database(session, lambda name=pair[each]: session.execute(sql, (name, *parameters)).fetchall())
            for each in (*PAIR, "one")
        ]
        if found[0] == found[1] == found[2]:
            return
    raise AssertionError(f"the counters were never alike; the last are {found}")


@pytest.mark.control("counters")
def test_a_temporary_file_would_be_noticed(arena):
    """A control: a sort that does not fit."""
    session = arena.session("analyst")
    sort = "set work_mem = '64kB'; select i from generate_series(1, 50000) as i order by -i; reset work_mem"
    counts = counted_in_database(session, lambda: session.execute(sort))
    assert counts["pg_stat_get_db_temp_files"] > 0 < counts["pg_stat_get_db_temp_bytes"]


RANDOM_SIZES = """
create schema if not exists test_unpadded;
grant usage on schema test_unpadded to public;
create or replace function test_unpadded.begin() returns void language plpython3u as $begin$
import sys
from dataclasses import replace
import numpy as np
rows, backend = sys.modules["dbdp.controller.packed_rows"], sys.modules["dbdp.sessions.inside.backend"]
def sized(self, samples, most, states):
    size = int(np.random.default_rng().binomial(samples.rows, samples.probability))
    steps, options = self._sampling(replace(samples, size=max(1, size)), most)
    self._pack({"poisson": options, "held": False})
    return steps, self.scan(states)
rows.PackedRows.scan_samples = sized
backend._meters = tuple
$begin$"""


@pytest.mark.control("counters")
def test_the_number_of_drawn_rows_would_be_noticed(arena, admin, pairs):
    """Controls, in a session of their own: as many rows are packed as chance has drawn, and all pages are counted."""
    pair = pairs("rows")
    admin.execute(RANDOM_SIZES)
    try:
        with arena.login("analyst") as fresh, pytest.MonkeyPatch.context() as patched:
            patched.setattr(arena, "session", lambda _kind: fresh)
            fresh.execute("select dbdp.about()")
            padded = runs(arena, pair, "dp_sgd")
            fresh.execute("select test_unpadded.begin()")
            sampled = [observed(arena, pair["one"], "dp_sgd")]
            while len(sampled) < 40 and not (vary(sampled, 0) and vary(sampled, 1)):
                sampled.append(observed(arena, pair["one"], "dp_sgd"))
    finally:
        admin.execute("drop schema test_unpadded cascade")
    assert padded[0] == padded[1] == padded[2]
    for shown, hidden in zip(sampled[0][:2], padded[0][:2], strict=True):
        assert shown != hidden
    assert vary(sampled, 0)  # by EXPLAIN
    assert vary(sampled, 1)  # by statistics


def vary(observations: list[Any], way: int) -> bool:
    """Whether the observations differ in what EXPLAIN (0) or the statistics (1) show."""
    return any(each[way] != observations[0][way] for each in observations)


@pytest.mark.control("counters")
def test_a_row_that_is_stored_wider_would_be_noticed(arena, owner, pairs):
    """A control: the owner's own query of a table shows what no training on it does."""
    name = pairs("rows")["one"]
    source = f"{arena.names['owner']}.{name}"
    read = counted(owner, source, lambda: owner.execute(f"select count(x) from {source}").fetchall())
    assert {("pg_stat_get_xact_tuples_returned", 1500), ("pg_stat_get_xact_numscans", 1)} <= set(read)
    trained = observed(arena, name, "bolt_on")[1]
    assert ("pg_stat_get_xact_tuples_returned", 1500) not in trained


@pytest.mark.control("counters")
def test_counters_notice_an_insert_and_a_large_value(arena):
    """A control of the numbers that a run takes: of two inserts, one with a value that is stored out of line."""
    session = arena.session("analyst")
    session.execute("create temporary table noticed (v text); alter table noticed alter v set storage external")
    source = f"{session.execute('select pg_my_temp_schema()::regnamespace::text').fetchone()[0]}.noticed"
    large = "insert into noticed values (repeat('x', 10000))"
    once, twice = (counted(session, source, lambda n=n: [session.execute(large) for _ in range(n)]) for n in (1, 2))
    for name in ("commands", "objects"):
        (few,), (many,) = ([value for each, value in found if each == name] for found in (once, twice))
        assert many == few + 1, name
