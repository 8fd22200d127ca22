"""Units of privacy: who they are, which of their rows are read, and how far all of them together move a model."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import exact
import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from pairs import others_slow
from perturbed_once import FULL_BATCH, RESTARTED, SCHEDULED, SHARDED, beyond, loose, requests
from public_facts import facts_of_clinic
from released import released
from scipy.stats import chi2
from short import FEW
from shuffles import SCALED, shuffled

from dbdp.algorithms import ALGORITHMS, Facts, Request, plan
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.controller import ChargedError
from dbdp.interfaces.cli.main import app
from dbdp.privacy.accounting.padding import padded_samples
from dbdp.privacy.shuffling import KeyedOrder

Register = Callable[..., str]
ALPHA = 1e-9  # false alarms of a statistical test; the server's entropy has no seed


# --- packing --------------------------------------------------------------------------------------------


def visits(connection: psycopg.Connection, name: str, sizes: Sequence[int]) -> None:
    """A table with so many rows of each patient, numbered from 1 on, and some of nobody."""
    connection.execute(f"create table {name} (patient text, i int, y int)")
    connection.execute(
        f"insert into {name} select 'p' || place - 1, row_number() over (order by place), 1 "
        "from unnest(%s::int[]) with ordinality as u(size, place), generate_series(1, size)",
        (list(sizes),),
    )
    connection.execute(f"insert into {name} select null, i, 1 from generate_series(1, 5) as i")


def registered(register: Register, name: str, most: int, max_rows: int, **more: Any) -> str:
    features = {"i": {"bounds": [0, most]}}
    return register(name, features=features, intercept=False, unit="patient", max_rows=max_rows, **more)


def packed(connection: psycopg.Connection, name: str, dimension: int = 1, **options: Any) -> list[np.ndarray]:
    return shuffled(connection, name, dimension, **SCALED | options)


def numbers(rows: np.ndarray, most: int) -> list[int]:
    """The numbers of packed rows; of a zero row 0, which no row of a table has."""
    assert ((rows[:, -1] == 1) == (rows[:, 0] > 0)).all()
    return np.rint(rows[:, 0].astype(float) * most / (1 - 2**-22)).astype(int).tolist()


def patients(sizes: Sequence[int]) -> np.ndarray:
    """Whose row each number is; number 0 is nobody's."""
    return np.concatenate([[-1], np.repeat(np.arange(len(sizes)), sizes)])


def assert_slots_of(found: list[int], sizes: Sequence[int], max_rows: int) -> None:
    """Exactly min(r, n_u) different rows of each patient, and zero rows for the slots that are left."""
    kept = [number for number in found if number]
    assert len(found) == len(sizes) * max_rows
    assert len(set(kept)) == len(kept)
    counted = Counter(patients(sizes)[kept].tolist())
    assert counted == {patient: min(max_rows, size) for patient, size in enumerate(sizes)}


SIZES = {"few": [1, 2, 3, 4, 7, 1, 60], "many": [1 + patient % 4 for patient in range(30_000)]}
ORDERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "fresh": lambda _slots: {},
    "keyed": lambda _slots: {"key": "ab" * 32},
    "one step": lambda slots: {"poisson": {"probability": 1, "steps": 1, "size": slots}},
}


PACKED = [("few", "256MB"), ("many", "256MB"), ("many", "1MB")]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("sizes", "memory"), others_slow(PACKED, *PACKED[:2]))
def test_every_unit_has_its_slots_and_no_more_rows_than_those(connection, schema, register, sizes, memory, order):
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    counts = SIZES[sizes]
    visits(connection, "v", counts)
    name = registered(register, "v", sum(counts), 3)
    options = ORDERS[order](3 * len(counts))
    found = numbers(np.concatenate(packed(connection, name, **options)), sum(counts))
    assert_slots_of(found, counts, 3)


# Several steps are put together in memory.
@pytest.mark.parametrize(("memory", "steps"), [("256MB", 2), pytest.param("1MB", 1, marks=pytest.mark.slow)])
def test_every_poisson_step_draws_from_the_slots(connection, schema, register, memory, steps):
    """With probability 1 each of the steps has them all; with 1/2 about half, and zero rows up to the public size."""
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    counts = SIZES["many"]
    visits(connection, "v", counts)
    name, slots = registered(register, "v", sum(counts), 3), 3 * len(counts)
    every = {"probability": 1, "steps": steps, "size": slots, "apart": True}
    found = numbers(np.concatenate(packed(connection, name, poisson=every)), sum(counts))
    for step in np.reshape(found, (steps, slots)).tolist():
        assert_slots_of(step, counts, 3)
    half = padded_samples(slots, 0.5, 1, epsilon=1.0, delta=1e-6)
    sampled = {"probability": half.probability, "steps": half.draws, "size": half.size}
    drawn = numbers(np.concatenate(packed(connection, name, poisson=sampled)), sum(counts))
    assert slots / 2 < len(drawn) == half.size < slots
    kept = sum(min(3, size) for size in counts)
    assert abs(len(drawn) - drawn.count(0) - kept / 2) < 7 * np.sqrt(kept) / 2


@pytest.mark.parametrize("memory", ["256MB", pytest.param("1MB", marks=pytest.mark.slow)])
def test_shares_of_a_key_are_disjoint_and_together_all_slots(connection, schema, register, memory):
    """Each share reads the table anew and has to number the slots like the others, whatever its settings."""
    counts = SIZES["many"]
    visits(connection, "v", counts)
    name, key, found = registered(register, "v", sum(counts), 3), os.urandom(32).hex(), []
    for first, last, settings in ((0, 25_000, "set work_mem = '64kB'"), (25_000, 90_000, "set enable_hashagg = off")):
        connection.execute(f"{settings}; set dbdp.pack_memory = '{memory}'")
        rows = np.concatenate(packed(connection, name, key=key, first=first, last=last))
        assert len(rows) == last - first
        found += numbers(rows, sum(counts))
    assert_slots_of(found, counts, 3)


def test_blocks_do_not_show_how_many_rows_a_unit_has(connection, schema, register):
    lengths = []
    for name, sizes in (("v", [1] * 9000), ("w", [3] * 8999 + [20_000])):
        visits(connection, name, sizes)
        lengths.append([len(block) for block in packed(connection, registered(register, name, sum(sizes), 4))])
    assert lengths[0] == lengths[1]
    assert sum(lengths[0]) == 36_000


RECORDS = {
    "arrays": """
select i, i % 3 as y,
  case when i % 7 > 0 then array(select case when i % 5 = 0 then 0.1 else random() end
                                 from generate_series(1, 594 + i % 2)) end as x
from generate_series(1, 200) as i""",
    "columns": """
select i, i % 3 as y, (i % 9)::numeric as n, i % 5 = 0 as b,
  case i % 4 when 0 then 'u' when 1 then 'v' when 2 then repeat('w', 3000) end as t
from generate_series(1, 200) as i""",
}
DECLARED = {
    "arrays": {"x": {"length": 595, "norm": 30}},
    "columns": {"n": [0, 5], "t": ["v", "u"], "b": ["true", "false"]},
}


@pytest.mark.parametrize("kind", RECORDS)
def test_the_records_of_units_of_one_row_are_those_of_the_rows(connection, schema, register, kind):
    """Whether a value is stored in line, compressed or apart, and whatever it is."""
    connection.execute(f"create table rows as {RECORDS[kind]}; create table units as select * from rows")
    given = {"features": DECLARED[kind], "negative": "0"}
    dimension = 596 if kind == "arrays" else 6
    names = register("rows", **given), register("units", **given, unit="i", max_rows=1)
    found = [np.concatenate(packed(connection, name, dimension)) for name in names]
    assert len(found[0]) == 200
    assert len(np.unique(found[0], axis=0)) > 5
    assert Counter(row.tobytes() for row in found[0]) == Counter(row.tobytes() for row in found[1])


def p_value(cells: np.ndarray) -> float:
    mean = cells.sum() / cells.size
    return float(chi2.sf(((cells - mean) ** 2 / mean).sum(), cells.size - 1))


def test_selected_rows_are_a_uniform_choice_by_unit(connection, schema, register):
    """Five rows of each of 600 units, stored one after the other: every two are selected equally often."""
    sizes = [5] * 600
    visits(connection, "v", sizes)
    name, pairs = registered(register, "v", sum(sizes), 2), list(combinations(range(5), 2))
    cells, together = np.zeros(10), np.zeros((10, 10))
    for _ in range(4):
        kept: list[list[int]] = [[] for _ in sizes]
        for number in numbers(np.concatenate(packed(connection, name)), sum(sizes)):
            kept[(number - 1) // 5].append((number - 1) % 5)
        chosen = np.array([pairs.index(tuple(sorted(each))) for each in kept])
        cells += np.bincount(chosen, minlength=10)
        np.add.at(together, (chosen[::2], chosen[1::2]), 1)
    assert p_value(cells) > ALPHA
    assert p_value(together) > ALPHA  # of neighbouring units: neither looks at the other
    cells[0] *= 2
    together[np.diag_indices(10)] *= 5
    assert p_value(cells) < ALPHA  # it would notice twice as many of the first two
    assert p_value(together) < ALPHA  # and units that follow each other


# --- one unit's rows, and how far they move an exact model ----------------------------------------------

UNITS, MAX_ROWS, SLOTS, DIMENSION = 10, 2, 20, 3
AHEAD, NOTHING = "{1,0,0}", "{0,0,0}"
ROWS_OF_ONE = {  # of the last unit, as text: features and label
    "ahead": [(AHEAD, 1)] * 2,
    "behind": [(AHEAD, -1)] * 2,
    "many ahead": [(AHEAD, 1)] * 7,
    "huge and behind": [("{1e300,0,0}", -1)] * 2,
    "one": [("{0,1,0}", 1)],
    "none but nulls": [(None, 1), (AHEAD, None), (None, None)],
    "no numbers": [("{NaN,0,0}", 1), ("{0,Infinity,0}", -1)],
    "arrays of another length": [("{1}", 1), ("{1,0,0,0}", 1)],
}
PLACES = {"first mini-batch": (0, 1), "last mini-batch": (18, 19), "two mini-batches": (4, 5)}


class Households:
    """Tables that differ in all rows of one unit, and what training on them gives."""

    def __init__(self, connection: psycopg.Connection, register: Register) -> None:
        self._connection = connection
        self._keys: dict[frozenset[int], bytes] = {}
        self.names = {value: self._made(number, value, register) for number, value in enumerate(ROWS_OF_ONE)}

    def _made(self, number: int, value: str, register: Register) -> str:
        table = f"household_{number}"
        self._connection.execute(f"create table {table} (person int, x float8[], y int)")
        with self._connection.cursor().copy(f"copy {table} from stdin") as copy:
            for features, label in ROWS_OF_ONE[value]:
                copy.write_row((UNITS, features, label))
            for person in range(1, UNITS):
                for _ in range(MAX_ROWS + person % 2):
                    copy.write_row((person, NOTHING, 1))
            copy.write_row((None, AHEAD, 1))
        features = {"x": {"length": DIMENSION, "norm": 1}}
        given = {"negative": "-1", "intercept": False, "unit": "person", "max_rows": MAX_ROWS}
        return register(table, features=features, **given)

    def models(self, given: dict[str, dict[str, Any]], value: str, places: Sequence[int]) -> list[np.ndarray]:
        """Exact models of each request, the unit's slots at these places."""
        if (wanted := frozenset(places)) not in self._keys:
            self._keys[wanted] = self._key_with(wanted)
        return exact.exact_models(self._connection, self.names[value], list(given.values()), [self._keys[wanted]])

    @staticmethod
    def _key_with(places: frozenset[int]) -> bytes:
        """A key that puts the slots of the last unit at these places, whatever rows it has."""
        while True:
            key = os.urandom(32)
            secret = hashlib.shake_256(key + b"units").digest(32)
            names = [hashlib.sha256(secret + person.to_bytes(8, "big")).digest()[:12] for person in range(1, UNITS + 1)]
            first = MAX_ROWS * sorted(names).index(names[-1])
            order = KeyedOrder(key, SLOTS)
            ranked = order.order(order.words(0, SLOTS)).tolist()
            if {ranked.index(slot) for slot in range(first, first + MAX_ROWS)} == places:
                return key


@pytest.fixture
def households(connection: psycopg.Connection, schema: str, register: Register) -> Iterator[Households]:
    with exact.installed(connection):
        yield Households(connection, register)


def bounds_of(given: dict[str, dict[str, Any]], unit_rows: int) -> dict[str, float]:
    facts = Facts(SLOTS, DIMENSION, intercept=False, unit_rows=unit_rows)
    return {name: plan(Request(**request), facts).sensitivity.total for name, request in given.items()}


@pytest.mark.parametrize("kind", ["mini-batches", "shards", "full batch"])
def test_one_unit_moves_a_model_by_r_delta_at_most(households, kind):
    """Whatever one unit has moves a model by r times delta at most and some attain it."""
    cases = {"mini-batches": SCHEDULED | RESTARTED, "shards": SHARDED, "full batch": FULL_BATCH}[kind]
    given = requests(cases, "huber_svm", **({} if kind == "full batch" else {"batch_size": 5}))
    bounds, single = bounds_of(given, MAX_ROWS), bounds_of(given, 1)
    furthest = dict.fromkeys(given, 0.0)
    for places in PLACES.values():
        found = [households.models(given, value, places) for value in ROWS_OF_ONE]
        for pair in combinations(found, 2):
            moved = {n: float(np.linalg.norm(a - b)) for n, a, b in zip(given, *pair, strict=True)}
            assert beyond(moved, bounds) == {}
            furthest = {name: max(furthest[name], moved[name]) for name in given}
    if kind != "shards":  # there both places of a shard's worst mini-batch are hardly ever among these
        assert loose(furthest, bounds) == {}
    assert set(beyond(furthest, single)) == set(given)  # the bound of one row is not enough


def test_one_unit_in_secret_orders_moves_by_r_delta(households):
    """In secret orders one unit moves a model by r times delta at most."""
    given = requests({"rsgd_ar": RESTARTED["rsgd_ar"]}, "huber_svm", batch_size=5)
    bound, longest = bounds_of(given, MAX_ROWS)["rsgd_ar"], 0.0
    for _ in range(20):
        for value in ("many ahead", "behind", "no numbers"):
            models = exact.exact_models(households._connection, households.names[value], list(given.values()))
            longest = max(longest, float(np.linalg.norm(models[0])))
    assert 0.1 * bound < 2 * longest <= bound  # all others are zero rows: models of two values are no further apart


# --- registration ---------------------------------------------------------------------------------------


def test_a_unit_of_one_row_is_a_unit_still(connection, schema, register, database):
    visits(connection, "v", [5, 2, 3, 1])
    name = registered(register, "v", 11, 1)
    database.train(name, Request(1.0, algorithm="bolt_on", batch_size=2))
    sql = "select plan from dbdp.ledger where dataset_id = (select id from dbdp.dataset where name = $1)"
    for explanation in (database.explain(name, Request(1.0)), database.query(sql, name)[0]["plan"]):
        assert (explanation["neighbours"], explanation["units"], explanation["rows"]) == ("replace-one-unit", 4, 4)


TYPES = {  # a type, its values, and how many units they are
    "smallint": ("1, 2, 2, null", 2),
    "integer": ("1, -5, 7, 7", 3),
    "bigint": ("1, 9e18, 1, null", 2),
    "text": ("'a', 'A', 'a ', ''", 4),
    "varchar(9)": ("'a', 'a ', 'b', null", 3),
    "char(5)": ("'a', 'a  ', 'b', 'A'", 3),
    "uuid": ("gen_random_uuid(), gen_random_uuid(), null, gen_random_uuid()", 3),
    "date": ("'2020-01-01', '2020-01-01', '-infinity', null", 2),
    "timestamp": ("'2020-01-01', '2020-01-01 00:00:01', null, null", 2),
    "timestamptz": ("'2020-01-01 00:00+00', '2020-01-01 01:00+01', null, null", 1),
    "name_of_somebody": ("'a', 'b', 'b', null", 2),
    "text collate blind": ("'a', 'A', 'a', 'b'", 3),
}


@pytest.mark.parametrize("kind", TYPES)
def test_units_are_compared_by_built_in_code_alone(connection, schema, register, database, kind):
    values, expected = TYPES[kind]
    connection.execute("create domain name_of_somebody as text")
    connection.execute("create collation blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    connection.execute(f"create table t (patient {kind}, i int, y int)")
    for number, value in enumerate(values.split(", ")):
        connection.execute(f"insert into t values ({value}, {number + 1}, 1)")
    name = registered(register, "t", 4, 2)
    assert database.query("select rows from dbdp.datasets_details where name = $1", name) == [{"rows": 2 * expected}]
    found = np.concatenate(packed(connection, name))
    assert len(found) == 2 * expected
    assert database.train(name, Request(1.0, algorithm="bolt_on", batch_size=1)).receipt["units"] == expected


@pytest.mark.parametrize("kind", ["float8", "numeric", "boolean", "json", "mood", "int[]", "interval", "citext_like"])
def test_a_unit_of_another_type_is_refused(connection, schema, register, kind):
    connection.execute("create type mood as enum ('x'); create type citext_like as (a text)")
    connection.execute(f"create table t (patient {kind}, i int, y int); insert into t values (null, 1, 1)")
    with pytest.raises(psycopg.Error, match=r"column 'patient' of .* it must be one of smallint, integer"):
        registered(register, "t", 4, 2)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "only a unit": ({"max_rows": None}, "max_rows is missing: the two belong together"),
    "only a number": ({"unit": None}, "unit is missing: the two belong together"),
    "a feature": ({"unit": "i"}, "unit 'i' is the label or a feature too"),
    "the label": ({"unit": "y"}, "unit 'y' is the label or a feature too"),
    "no column": ({"unit": "nobody"}, "column 'nobody' does not exist"),
    "no row": ({"max_rows": 0}, "max_rows = 0 must be a whole number between 1 and 1000"),
    "too many rows": ({"max_rows": 1001}, "max_rows = 1001 must be a whole number between 1 and 1000"),
    "too much at once": (
        {"max_rows": 900, "features": {"x": {"length": 3000, "norm": 1}}},
        "900 rows of 3000 numbers are above the limit of 2097152 numbers in a unit; choose max_rows = 699 at most",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_unit_is_refused(connection, schema, register, case):
    visits(connection, "v", [1, 2])
    connection.execute("alter table v add x float8[]")
    given, message = REFUSED[case]
    with pytest.raises(psycopg.Error, match=message):
        register("v", **{"features": {"i": [0, 3]}, "unit": "patient", "max_rows": 2} | given)
    assert connection.execute("select count(*) from dbdp.dataset where source_name = 'v'").fetchone() == (0,)


def test_a_table_without_units_is_refused(connection, schema, register):
    visits(connection, "v", [])
    with pytest.raises(psycopg.Error, match="is empty; insert at least one row with a unit"):
        registered(register, "v", 4, 2)


# --- changes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interface", ["client", "server"])
def test_the_number_of_rows_is_private_and_that_of_units_is_not(
    connection, schema, register, database, spent, interface
):
    visits(connection, "v", [1, 2, 3])
    name = registered(register, "v", 6, 2)

    def train() -> None:
        if interface == "client":
            database.train(name, Request(1.0, algorithm="bolt_on", batch_size=2))
        else:
            connection.execute(
                "select model from dbdp.dp_logreg(%s, epsilon => 1, algorithm => 'bolt_on', batch_size => 2)", (name,)
            )

    connection.execute("insert into v values ('p0', 3, 1), ('p1', 2, 1), (null, 1, 1); delete from v where i = 5")
    train()
    charged = spent(name)
    for change, found in (("insert into v values ('p9', 1, 1)", 4), ("delete from v where patient <> 'p1'", 1)):
        connection.execute(change)
        with pytest.raises((ValueError, psycopg.Error), match=f"has {found} units .* was registered with 3"):
            train()
    assert spent(name) == charged


def test_a_unit_that_comes_during_training_stops_it(connection, schema, register, database):
    visits(connection, "v", [1, 2, 3])
    name = registered(register, "v", 6, 2)

    def come(stage: str, done: int, _total: int) -> None:
        if (stage, done) == ("shuffle", 0):
            connection.execute(f"insert into {schema}.v values ('p9', 1, 1)")

    with pytest.raises(ChargedError, match=r"had 4 units while it was read, dataset .* has 3: the table changed"):
        database.train(name, Request(1.0, algorithm="bolt_on", batch_size=2), come)


def test_a_unit_column_of_another_type_is_refused(connection, schema, register, database):
    visits(connection, "v", [1, 2, 3])
    name = registered(register, "v", 6, 2)
    connection.execute("alter table v alter patient type varchar(9)")
    with pytest.raises(ValueError, match=r"column 'patient' .* was text when"):
        database.explain(name, Request(1.0))


# --- every interface -----------------------------------------------------------------------------------------


@pytest.fixture
def clinic(connection: psycopg.Connection, schema: str, register: Register) -> str:
    """400 units, one to six rows each, of which three are read; a large budget."""
    connection.execute("""
create table clinic as
select (i % 400) * (i % 3 + 1) % 400 as patient, i % 90 as age, i % 3 = 0 as smoker, i % 90 > 40 as ill
from generate_series(1, 1500) as i""")
    connection.execute("insert into clinic select g, 1, true, true from generate_series(0, 399) g")
    features = {"age": [0, 100], "smoker": ["true", "false"]}
    return register("clinic", label="ill", positive="true", features=features, unit="patient", max_rows=3, delta=0.01)


@pytest.mark.parametrize("algorithm", others_slow(list(ALGORITHMS), *list(ALGORITHMS)[::3], "preconditioned_gd"))
def test_every_algorithm_trains_on_units(connection, clinic, algorithm, spent):
    options = {"epsilon": 2.0, "delta": 1e-5, "algorithm": algorithm} | FEW.get(algorithm, {"epochs": 2})
    given = ", ".join(f"{key} => %({key})s" for key in options)
    [model] = released(connection, f"dbdp.dp_train(%(dataset)s, {given})", options | {"dataset": clinic})
    receipt = model["receipt"]
    explanation = {key: receipt[key] for key in ("neighbours", "unit", "max_rows", "units", "rows", "epsilon")}
    assert explanation == {
        "neighbours": "replace-one-unit", "unit": "patient", "max_rows": 3, "units": 400, "rows": 1200, "epsilon": 2.0,
    }  # fmt: skip
    assert spent(clinic)[0] == 2 * 10**9
    facts = facts_of_clinic(algorithm, 1200, unit_rows=3)
    expected = plan(Request(**options), facts).explain()
    assert receipt["noise_scale"] == pytest.approx(expected["noise_scale"], rel=1e-6)  # without a budget's padding


def test_units_in_shards_learn_the_same_on_connections(connection, clinic, database):
    """A training on units in shards learns as much on connections as in one."""
    settings = {
        "epsilon": 500.0,
        "delta": 1e-5,
        "algorithm": "bolt_on",
        "shards": 3,
        "epochs": 5,
        "regularisation": 0.1,
    }
    call = (
        "dbdp.dp_logreg(%s, epsilon => 200, delta => 1e-5, "
        "algorithm => 'bolt_on', shards => 3, epochs => 5, regularisation => 0.1)"
    )
    [alone] = released(connection, call, (clinic,))
    spread = database.train(clinic, Request(**settings))
    assert spread.receipt["shards"] == alone["receipt"]["shards"] == 3
    assert np.abs(np.array(spread.coefficients) - np.array(alone["coefficients"])).max() < 0.2


def test_a_tuning_and_a_matrix_are_for_units_too(clinic, database, spent):
    base = Request(3.0, 1e-5, algorithm="bolt_on", epochs=1, batch_size=20)
    tuned = database.tune(clinic, TuningRequest(base, ({"regularisation": 0.1}, {"regularisation": 1.0})))
    assert (tuned.receipt["neighbours"], tuned.receipt["unit"]) == ("replace-one-unit", "patient")
    assert tuned.receipt["plans"][0]["epsilon"] == 1.0
    found = database.confusion(tuned.id, clinic, epsilon=600)
    assert (found["receipt"]["sensitivity"], found["receipt"]["units"]) == (6.0, 400)
    assert 800 <= np.sum(found["matrix"]) <= 1200  # zero rows are in no cell
    assert spent(clinic)[0] == 603 * 10**9


def test_the_command_line_explains_what_units_cost(connection, schema, register, database):
    visits(connection, "v", [1, 2, 3])
    name = register("v", features={"i": [0, 6]}, unit="patient", max_rows=2)
    explanation = database.explain(name, Request(epsilon=1.0, algorithm="bolt_on", batch_size=2))
    shape = [
        "--rows",
        "6",
        "--features",
        "2",
        "--max-rows",
        "2",
        "--epsilon",
        "1",
        "--algorithm",
        "bolt_on",
        "--batch-size",
        "2",
        "--json",
    ]
    run = CliRunner().invoke(app, ["explain", *shape])
    assert json.loads(run.output).items() <= explanation.items()
    assert explanation["units"] == 3
