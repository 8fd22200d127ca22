"""Shuffle and pack: every row once, in a secret uniform order, whatever the row holds, in bounded memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from nulls import required
from pairs import others_slow
from shuffles import SCALED, assert_places_are_even, growth, multiset, shuffled

from dbdp.learning.losses import Logistic
from dbdp.learning.rows import blocks
from dbdp.learning.schedules import Constant
from dbdp.learning.state import State

Register = Callable[..., str]
TRAIN = "select model from dbdp.dp_logreg(%s, epsilon => 1, algorithm => 'bolt_on', batch_size => 1)"
TEMPORARY = "select count(*) from pg_class where relpersistence = 't' and relname like '%dbdp%'"


def rows_of(connection: psycopg.Connection, name: str, dimension: int, **options: Any) -> np.ndarray:
    return np.concatenate(shuffled(connection, name, dimension, **options))


def expected_row(features: np.ndarray, label: int, *, is_scaled: bool = False) -> np.ndarray:
    """A packed row: of norm 1, or clipped to it where the declaration's radius already divided the features."""
    row = np.zeros(blocks.stride_of(len(features)))
    if label and np.isfinite(features).all():
        largest = np.abs(features).max() or 1.0
        norm = largest * np.linalg.norm(features / largest)
        row[: len(features)] = features / (max(1.0, norm) if is_scaled else norm or 1.0)
        row[-1] = label
    return row


def assert_same_rows(packed: np.ndarray, expected: np.ndarray) -> None:
    """The same multiset, to the rounding of float32 and its margin of 2⁻²²."""
    assert packed.shape == expected.shape
    packed, expected = (rows[np.lexsort(np.round(rows.T, 5))] for rows in (packed.astype(float), expected))
    assert np.abs(packed - expected).max() < 1e-6
    assert (np.linalg.norm(packed[:, :-1], axis=1) <= 1).all()


@pytest.fixture
def vectors(connection: psycopg.Connection, schema: str) -> np.ndarray:
    """Table v: x float8[], f float4[], y; norms from 0 to 3."""
    random = np.random.default_rng(3)
    values = np.round(random.normal(size=(500, 5)) * random.uniform(0, 1.4, size=(500, 1)), 3)
    connection.execute("create table v (x float8[], f float4[], y int)")
    with connection.cursor().copy("copy v from stdin") as copy:
        for number, row in enumerate(values.tolist()):
            text = "{" + ",".join(map(repr, row)) + "}"
            copy.write_row((text, text, number % 3))
    return values


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("column", ["x", "f"])
def test_arrays_are_packed_as_declared(connection, vectors, register, column, intercept):
    name = register("v", features={column: {"length": 5, "norm": 2}}, negative="0", intercept=intercept)
    scaled = np.hstack([vectors / 2, np.ones((500, 1))]) / np.sqrt(2) if intercept else vectors / 2
    unit = np.hstack([vectors / 2, np.full((500, 1), 5**-0.25)]) if intercept else vectors / 2
    labels = [(-1, 1, 0)[number % 3] for number in range(500)]
    for is_scaled, options in ((False, {}), (True, SCALED)):
        pairs = zip(scaled if is_scaled else unit, labels, strict=True)
        expected = np.array([expected_row(row, label, is_scaled=is_scaled) for row, label in pairs])
        assert_same_rows(rows_of(connection, name, 5 + intercept, **options), expected)
    lengths = np.linalg.norm(scaled, axis=1)
    assert (lengths > 1).any()  # some are clipped
    assert (lengths < 1).any()  # and some are made longer


def test_columns_are_packed_as_declared(connection, schema, register):
    connection.execute("""
create table c as select i, (i - 20)::numeric / 100 as n,
  case i % 4 when 0 then 'u' when 1 then 'v' when 2 then 'w' end as t,
  i % 5 = 0 as b, case when i % 3 = 0 then 'no' else 'yes' end as y from generate_series(1, 300) as i""")
    features = {"i": [50, 250], "n": [-1, 1], "t": ["v", "u"], "b": ["true", "false"]}
    name = register("c", features=required(features), label="y", positive="yes")
    for is_scaled, options in ((False, {}), (True, SCALED)):
        expected = [expected_columns(i, is_scaled=is_scaled) for i in range(1, 301)]
        assert_same_rows(rows_of(connection, name, 7, **options), np.array(expected))


def expected_columns(i: int, *, is_scaled: bool) -> np.ndarray:
    clipped = min(max(i, 50), 250)
    numbers = [(clipped - 50) / 200, (min((i - 20) / 100, 1) + 1) / 2]
    if not is_scaled:
        numbers = [2 * number - 1 for number in numbers]
    text = {0: [0, 1], 1: [1, 0], 2: [0, 0], 3: [np.nan, 0]}[i % 4]  # a null makes the zero row
    boolean = [i % 5 == 0, i % 5 != 0]
    features = np.array([*numbers, *text, *boolean, 1.0]) / np.sqrt(5)
    return expected_row(features, -1 if i % 3 == 0 else 1, is_scaled=is_scaled)


def test_setseed_has_no_effect(connection, vectors, register):
    """Two shuffles have two orders of the same rows."""
    name = register("v", features={"x": {"length": 5, "norm": 2}})
    orders = []
    for _ in range(2):
        connection.execute("select setseed(0.25)")
        orders.append(rows_of(connection, name, 6))
    assert multiset(orders[0]) == multiset(orders[1])
    assert (orders[0] != orders[1]).any()


@pytest.mark.parametrize("memory", ["256MB", "1MB"])
def test_every_row_comes_to_every_place_equally_often(connection, schema, register, memory):
    connection.execute(f"set dbdp.pack_memory = '{memory}'")

    def order(name: str, count: int) -> list[int]:
        packed = rows_of(connection, name, 1, **SCALED)
        return np.rint(packed[:, 0].astype(float) * count / (1 - 2**-22)).astype(int).tolist()

    assert_places_are_even(connection, register, order)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        pytest.param("{}", 4 << 20, id="fresh"),
        pytest.param(f'{{"key": "{"ab" * 32}"}}', 6 << 20, id="keyed", marks=pytest.mark.slow),
        pytest.param('{"cuts": [20000, 150000]}', 6 << 20, id="cut", marks=pytest.mark.slow),
    ],  # the last two write full blocks, of 1 MiB
)
def test_a_table_larger_than_the_memory_is_packed_within_it(server_url, connection, schema, register, options, most):
    """170,000 rows of 64 bytes are ten times the memory."""
    connection.execute("""
create table large as
select array_fill(i % 100 / 100.0::float8, array[14]) x, i % 2 y from generate_series(1, 170000) i""")
    name = register("large", features={"x": {"length": 14, "norm": 60}})
    with psycopg.connect(server_url) as fresh:
        assert growth(fresh, name, "1MB", options, warming=options) < most
    if options == "{}":
        with psycopg.connect(server_url) as fresh:
            assert growth(fresh, name, "256MB", options, warming=options) > 10 << 20  # the measure sees what it should


@pytest.mark.parametrize("kind", others_slow(["array", "columns"], "array"))
def test_packing_through_buckets_equals_packing_in_memory(connection, schema, register, kind):
    """115,000 rows of 96 bytes: ten times the memory."""
    connection.execute("""
create table many as
select i, i % 7 as k, i % 2 y, case when i % 11 > 0 then array_fill(i::float8, array[20]) end x
from generate_series(1, 115000) i""")
    features = {
        "array": {"x": {"length": 20, "norm": 1e6}},
        "columns": {"i": [0, 70000], "k": [*"0123456", *map(str, range(10, 22))]},
    }
    dimension = 21
    name = register("many", features=features[kind])
    in_memory = shuffled(connection, name, dimension)
    connection.execute("set dbdp.pack_memory = '1MB'")
    for options in ({}, {"key": "ab" * 32}, {"secret_order": False}):
        in_file = shuffled(connection, name, dimension, **options)
        assert multiset(np.concatenate(in_memory)) == multiset(np.concatenate(in_file))
        assert list(map(len, in_file)) == list(map(len, in_memory))


@pytest.mark.parametrize("memory", ["1MB", "256MB"])
def test_rows_without_an_order_are_packed_as_read(connection, schema, register, memory):
    """30,000 rows of 32 bytes; the control is a secret order."""
    connection.execute("create table ascending as select i, i % 2 y from generate_series(0, 29999) i")
    name = register("ascending", features={"i": {"bounds": [0, 29999]}}, intercept=False)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    for secret in (False, True):
        rows = np.concatenate(shuffled(connection, name, **SCALED, secret_order=secret))[:, 0]
        assert np.array_equal(rows, np.sort(rows)) != secret


def test_toasted_arrays_are_read_completely(connection, schema, register):
    random = np.random.default_rng(1)
    values = random.normal(size=(60, 1000)) / 40
    connection.execute("create table wide (x float8[], y int); alter table wide alter x set storage extended")
    for number, row in enumerate(values):
        connection.execute(
            "insert into wide values (%s, %s)", (row.tolist() if number % 2 else [number / 99] * 1000, 1)
        )
    toast = "select pg_relation_size(reltoastrelid) > 0 from pg_class where oid = 'wide'::regclass"
    assert connection.execute(toast).fetchone() == (True,)
    compressed = "select count(*) from wide where pg_column_size(x) < 1000"
    assert connection.execute(compressed).fetchone() == (30,)
    values[::2] = (np.arange(0, 60, 2) / 99)[:, None]
    name = register("wide", features={"x": {"length": 1000, "norm": 3}}, intercept=False)
    assert_same_rows(rows_of(connection, name, 1000), np.array([expected_row(row / 3, 1) for row in values]))


def test_deleted_rows_empty_pages_and_updates_are_no_rows(connection, schema, register):
    connection.execute("""
create table bloat with (autovacuum_enabled = off) as select i, i % 2 y from generate_series(1, 20000) i;
delete from bloat where i between 2000 and 15000;
update bloat set i = i where i % 2 = 0;
delete from bloat where i > 19000""")
    name = register("bloat", features={"i": {"bounds": [0, 20000]}}, intercept=False)
    before = rows_of(connection, name, 1, **SCALED)
    connection.execute("vacuum bloat")
    assert multiset(rows_of(connection, name, 1, **SCALED)) == multiset(before)
    kept = [i for i in range(1, 19001) if not 2000 <= i <= 15000]
    assert np.allclose(np.sort(before[:, 0]), np.array(kept) / 20000, atol=1e-6)


def test_uncommitted_rows_of_others_are_no_rows(server_url, connection, vectors, schema, register):
    name = register("v", features={"x": {"length": 5, "norm": 2}})
    before = multiset(rows_of(connection, name, 6))
    with psycopg.connect(server_url) as other:
        other.execute(f"insert into {schema}.v select * from {schema}.v; update {schema}.v set y = 1")
        assert multiset(rows_of(connection, name, 6)) == before
        other.rollback()


def test_partitions_are_packed_each_once(connection, schema, register):
    connection.execute("""
create table p (i int, y int) partition by range (i);
create table p1 partition of p for values from (0) to (500);
create table p2 partition of p for values from (500) to (2000) partition by hash (y);
create table "p 2'a" partition of p2 for values with (modulus 2, remainder 0);
create table p2b partition of p2 for values with (modulus 2, remainder 1);
create table p3 partition of p default;
insert into p select i, i % 2 from generate_series(0, 3999) i""")
    name = register("p", features={"i": [0, 4000]}, intercept=False)
    packed = rows_of(connection, name, 1, **SCALED)
    assert np.allclose(np.sort(packed[:, 0]), np.arange(4000) / 4000, atol=1e-6)


BAD_ARRAYS = {
    "null array": "null",
    "null element": "'{0.1, null, 0.2}'",
    "NaN": "'{0.1, NaN, 0.2}'",
    "infinity": "'{0.1, Infinity, 0}'",
    "minus infinity": "'{0.1, -Infinity, 0}'",
    "short": "'{0.1, 0.2}'",
    "long": "'{0.1, 0.2, 0.3, 0.4}'",
    "empty": "'{}'",
    "two dimensions": "'{{0.1, 0.2, 0.3}}'",
    "two dimensions, same bytes": "'{{0.1},{0.2},{0.3}}'",
    "all null": "'{null, null, null}'",
    "huge": "array_fill(0.1, array[200000])",
    "many nulls": "array_fill(null::float8, array[9999])",
}
BAD_LABELS = {"null label": "null", "unknown label": "7", "minus": "-1"}
BAD_NUMBERS = {
    "null": "null, 0.5, 'u', 0.5",
    "null numeric": "0.5, null, 'u', 0.5",
    "null category": "0.5, 0.5, null, 0.5",
    "NaN": "'NaN', 0.5, 'u', 0.5",
    "infinity": "'Infinity', 0.5, 'u', 0.5",
    "minus infinity": "'-Infinity', 0.5, 'u', 0.5",
    "numeric NaN": "0.5, 'NaN', 'u', 0.5",
    "numeric infinity": "0.5, 'Infinity', 'u', 0.5",
    "numeric -infinity": "0.5, '-Infinity', 'u', 0.5",
    "real NaN": "0.5, 0.5, 'u', 'NaN'",
    "real infinity": "0.5, 0.5, 'u', 'Infinity'",
}
CLIPPED = {  # value → the good value that it is packed as
    "numeric 1e-400": ("0.5, 1e-400, 'u', 0.5", "0.5, 0, 'u', 0.5"),
    "numeric -1e-400": ("0.5, -1e-400, 'u', 0.5", "0.5, 0, 'u', 0.5"),
    "1e308": ("1e308, 0.5, 'u', 0.5", "1, 0.5, 'u', 0.5"),
    "-1e308": ("-1e308, 0.5, 'u', 0.5", "0, 0.5, 'u', 0.5"),
    "5e-324": ("5e-324, 0.5, 'u', 0.5", "0, 0.5, 'u', 0.5"),
    "-0.0": ("'-0', 0.5, 'u', 0.5", "0, 0.5, 'u', 0.5"),
    "numeric 1e30": ("0.5, 1e30, 'u', 0.5", "0.5, 1, 'u', 0.5"),
    "numeric 1e305": ("0.5, 1e305, 'u', 0.5", "0.5, 1, 'u', 0.5"),
    "numeric 1e400": ("0.5, 1e400, 'u', 0.5", "0.5, 1, 'u', 0.5"),
    "numeric -1e400": ("0.5, -1e400, 'u', 0.5", "0.5, 0, 'u', 0.5"),
    "numeric of 20000 digits": ("0.5, repeat('9', 20000)::numeric, 'u', 0.5", "0.5, 1, 'u', 0.5"),
    "unknown category": ("0.5, 0.5, 'other', 0.5", "0.5, 0.5, '', 0.5"),
    "long category": ("0.5, 0.5, repeat('u', 3000000), 0.5", "0.5, 0.5, '', 0.5"),
    "category of another case": ("0.5, 0.5, 'U', 0.5", "0.5, 0.5, '', 0.5"),
    "category with a blank": ("0.5, 0.5, 'u ', 0.5", "0.5, 0.5, '', 0.5"),
}
COLUMNS = {"a": [0, 1], "n": [0, 1], "t": ["u", "v"], "r": [0, 1]}


def model_of(connection: psycopg.Connection, parts: list[np.ndarray], dimension: int) -> np.ndarray:
    """The exact model of two epochs over blocks, by the server."""
    connection.execute("create temporary table if not exists chosen (block_no int8, block bytea); truncate chosen")
    for number, part in enumerate(parts):
        connection.execute("insert into chosen values (%s, %s)", (number, part.tobytes()))
    state = State.initial(
        loss=Logistic(), schedule=Constant(1.0), batch_size=7, regularisation=0.01, dimension=dimension
    ).encode()
    for _ in range(2):
        sql = "select dbdp_internal.sgd_epoch(block, %s order by block_no) from chosen"
        state = connection.execute(sql, (state,)).fetchone()[0]
    return State.decode(state).model


def in_order(rows: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """The rows sorted by value, cut into blocks of these sizes."""
    ordered = (rows + np.float32(0))[np.lexsort(rows.T)]
    return np.split(ordered, np.cumsum(sizes)[:-1])


def packed_quietly(
    connection: psycopg.Connection, server_log: Callable[[], str], name: str, dimension: int
) -> list[np.ndarray]:
    """Shuffle and train; neither may send a message."""
    notices: list[str] = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    connection.execute("set client_min_messages = log")
    before = server_log()
    parts = shuffled(connection, name, dimension)
    connection.execute(TRAIN, (name,))
    assert notices == []
    assert server_log()[len(before) :] == ""
    connection.execute("reset client_min_messages")
    return parts


@pytest.fixture
def server_log(connection: psycopg.Connection) -> Callable[[], str]:
    """Read what this session's backend wrote into the server's log: checkpoints and other sessions write there too."""
    directory = connection.execute("show data_directory").fetchone()[0]
    path, mark = Path(directory).parent / "server.log", f"[{connection.info.backend_pid}]"

    def read() -> str:
        text = path.read_text(errors="replace") if path.exists() else ""
        return "".join(line for line in text.splitlines(keepends=True) if mark in line)

    return read


def fill_arrays(connection: psycopg.Connection, table: str, bad: list[str]) -> None:
    connection.execute(f"create table {table} (x float8[], y int)")
    good = "array[i / 50.0, i * i % 17 / 20.0, 0.1]::float8[], i % 2 from generate_series(1, 40) i"
    connection.execute(f"insert into {table} select {good}")
    for row in bad:
        connection.execute(f"insert into {table} values ({row})")


def fill_columns(connection: psycopg.Connection, table: str, rows: list[str]) -> None:
    connection.execute(f"create table {table} (a float8, n numeric, t text, r real, y int)")
    connection.execute(f"""
insert into {table} select i / 50.0, i * i % 17 / 20.0,
  case i % 3 when 0 then 'u' when 1 then 'v' else 'w' end, 0.25, i % 2
from generate_series(1, 40) i""")
    for row in rows:
        connection.execute(f"insert into {table} values ({row}, 1)")


def assert_same_training(
    connection: psycopg.Connection, server_log: Callable[[], str], names: tuple[str, str], dimension: int
) -> None:
    """Same number of rows, same borders, same rows, same exact model, no word."""
    results = [packed_quietly(connection, server_log, name, dimension) for name in names]
    sizes = [[len(part) for part in parts] for parts in results]
    assert sizes[0] == sizes[1]
    rows = [np.concatenate(parts) for parts in results]
    assert multiset(rows[0]) == multiset(rows[1])
    models = [model_of(connection, in_order(each, sizes[0]), dimension) for each in rows]
    assert (models[0] == models[1]).all()
    assert np.abs(models[0]).max() > 1e-3


def test_invalid_arrays_train_as_zero_rows(connection, server_log, schema, register):
    bad = [f"{value}, 1" for value in BAD_ARRAYS.values()] + [f"'{{0.1, 0.1, 0.1}}', {y}" for y in BAD_LABELS.values()]
    fill_arrays(connection, "wild", bad)
    fill_arrays(connection, "tame", ["null, null"] * len(bad))
    options = {"features": {"x": {"length": 3, "norm": 1}}, "negative": "0"}
    names = register("wild", **options), register("tame", **options)
    assert_same_training(connection, server_log, names, 4)
    zeros = sum((row == 0).all() for row in rows_of(connection, names[0], 4))
    assert zeros == len(bad)


def test_invalid_columns_train_as_zero_rows(connection, server_log, schema, register):
    fill_columns(connection, "wild", list(BAD_NUMBERS.values()))
    fill_columns(connection, "tame", ["null, null, null, null"] * len(BAD_NUMBERS))
    names = register("wild", features=required(COLUMNS)), register("tame", features=required(COLUMNS))
    assert_same_training(connection, server_log, names, 6)
    zeros = sum((row == 0).all() for row in rows_of(connection, names[0], 6))
    assert zeros == len(BAD_NUMBERS)


@pytest.mark.parametrize("case", CLIPPED)
def test_values_out_of_bounds_train_as_the_bound(connection, schema, register, case):
    value, packed_as = CLIPPED[case]
    fill_columns(connection, "wild", [value])
    fill_columns(connection, "tame", [packed_as])
    wild, tame = (rows_of(connection, register(table, features=COLUMNS), 6) for table in ("wild", "tame"))
    assert multiset(wild) == multiset(tame)
    assert not any((row == 0).all() for row in wild)


@pytest.mark.parametrize("value", ["1e308", "-1e308", "1.7976931348623157e308"])
def test_an_array_of_any_finite_length_is_clipped_to_norm_one(connection, schema, register, value):
    """privacy.md §11.2, §14.1: finite and too long is clipped, not dropped."""
    fill_arrays(connection, "wild", [f"'{{{value}, {value}, 0}}', 1"])
    fill_arrays(connection, "tame", [f"'{{{float(value) / 1e300}, {float(value) / 1e300}, 0}}', 1"])
    options = {"features": {"x": {"length": 3, "norm": 1}}, "intercept": False}
    wild, tame = (rows_of(connection, register(table, **options), 3) for table in ("wild", "tame"))
    assert_same_rows(wild, tame)
    assert not any((row == 0).all() for row in wild)


@pytest.mark.parametrize(
    ("written", "plain"),
    [("{-0, 0.5, -0}", "{0, 0.5, 0}"), ("[5:7]={0.1, 0.2, 0.3}", "{0.1, 0.2, 0.3}")],
    ids=["minus zero", "another lower bound"],
)
def test_equal_arrays_are_packed_alike(connection, schema, register, written, plain):
    fill_arrays(connection, "wild", [f"'{written}', 1"])
    fill_arrays(connection, "tame", [f"'{plain}', 1"])
    results = [rows_of(connection, register(table), 4) for table in ("wild", "tame")]
    assert multiset(results[0]) == multiset(results[1])
    models = [model_of(connection, [rows[np.lexsort((rows + np.float32(0)).T)]], 4) for rows in results]
    assert (models[0] == models[1]).all()


@pytest.fixture
def slow(connection: psycopg.Connection, schema: str, register: Register) -> str:
    """A dataset that takes long enough to be stopped in the middle."""
    connection.execute(
        "create table slow as select array_fill(0.1::float8, array[50]) x, i % 2 y from generate_series(1, 20000) i"
    )
    return register("slow", features={"x": {"length": 50, "norm": 1}})


def test_no_temporary_table_stays_after_success(connection, slow):
    connection.execute(TRAIN, (slow,))
    assert connection.execute(TEMPORARY).fetchone() == (0,)
    with connection.transaction():
        for _ in range(2):
            connection.execute(TRAIN, (slow,))
            assert connection.execute(TEMPORARY).fetchone() == (0,)
