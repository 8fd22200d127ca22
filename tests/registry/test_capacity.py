"""Capacity: as many slots as the owner states, whatever the number of rows, and neighbours that add or remove one."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from math import comb
from typing import Any

import exact
import numpy as np
import psycopg
import pytest
from chance import ALARM
from click.testing import CliRunner
from pairs import others_slow
from perturbed_once import RESTARTED, SCHEDULED, beyond, loose, requests
from public_facts import facts_of_clinic
from released import released, stored
from scipy.stats import chisquare
from short import FEW
from shuffles import SCALED, shuffled

from dbdp.algorithms import ALGORITHMS, Facts, Request, plan
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.controller import ChargedError, baselines
from dbdp.interfaces.cli.main import app
from dbdp.privacy.shuffling import Subset

Register = Callable[..., str]

# --- slots ------------------------------------------------------------------------------------------------------


def numbered(connection: psycopg.Connection, rows: int, start: int = 1) -> None:
    """Rows with the numbers start, …, each of a patient of its own, and two of a group."""
    connection.execute("create table if not exists t (i int, patient text, g int, y int)")
    last = start + rows - 1
    connection.execute(f"insert into t select i, 'p' || i, i / 2 % 2, i % 2 from generate_series({start}, {last}) as i")


def registered(register: Register, **given: Any) -> str:
    numbers = {"label": "y", "positive": "1", "features": {"i": {"bounds": [0, 100_000]}}, "intercept": False}
    return register("t", **numbers | given)


def packed(connection: psycopg.Connection, name: str, **options: Any) -> list[int]:
    """The numbers of the packed rows, in their order; 0 for a zero row, which no row of the table has."""
    rows = np.concatenate(shuffled(connection, name, **SCALED, **options))
    assert ((rows[:, -1] == 0) == (rows[:, 0] == 0)).all()
    return np.rint(rows[:, 0].astype(float) * 100_000 / (1 - 2**-22)).astype(int).tolist()


ORDERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "fresh": lambda _slots: {},
    "keyed": lambda _slots: {"key": "ab" * 32},
    "one step": lambda slots: {"poisson": {"probability": 1, "steps": 1, "size": slots}},
    "steps": lambda slots: {"poisson": {"probability": 1, "steps": 2, "size": slots}},
}
SIZES = {"fewer": (700, 1000), "as many": (1000, 1000), "more": (1700, 1000), "none": (0, 50)}
PACKED = [(size, memory, unit) for size in SIZES for memory in ("256MB", "1MB") for unit in (False, True)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("size", "memory", "unit"), others_slow(PACKED, *PACKED[::2]))
def test_slots_are_the_capacity_for_any_number_of_rows(connection, schema, register, size, memory, unit, order):
    """The number of slots is the capacity, for any number of rows."""
    row_count, capacity = SIZES[size]
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    numbered(connection, row_count)
    slots = capacity * (2 if unit else 1)
    name = registered(register, capacity=capacity, **({"unit": "patient", "max_rows": 2} if unit else {}))
    result = packed(connection, name, **ORDERS[order](slots))
    for step in np.reshape(result, (-1, slots)).tolist():
        present = Counter(number for number in step if number)
        assert set(present.values()) <= {1}
        assert len(present) == min(row_count, capacity)
        assert set(present) <= set(range(1, row_count + 1))


def test_rows_beyond_memory_go_to_the_same_slots(connection, schema, register):
    """Rows beyond the memory go through buckets into the same slots."""
    connection.execute("set dbdp.pack_memory = '1MB'")
    numbered(connection, 60_000)
    for capacity in (50_000, 70_000):
        name = registered(register, capacity=capacity)
        for options in ({}, {"key": "cd" * 32}):
            result = Counter(packed(connection, name, **options))
            assert sum(result.values()) == capacity
            assert (len(result) - (0 in result), result[0]) == (min(60_000, capacity), max(0, capacity - 60_000))
        connection.execute("select dbdp.drop_dataset(%s)", (name,))


def test_shares_of_a_key_are_disjoint_and_of_the_same_rows(connection, schema, register):
    numbered(connection, 900)
    name, key, result = registered(register, capacity=400), "ef" * 32, []
    for first, last, memory in ((0, 150, "1MB"), (150, 400, "256MB")):
        connection.execute(f"set dbdp.pack_memory = '{memory}'")
        result += packed(connection, name, key=key, first=first, last=last)
    assert len(set(result)) == 400
    assert sorted(result) == sorted(packed(connection, name, key=key))


@pytest.mark.parametrize("unit", others_slow([False, True], False))
def test_every_subset_is_read_as_often_as_every_other(connection, schema, register, unit):
    numbered(connection, 5)
    name = registered(register, capacity=2, **({"unit": "patient", "max_rows": 1} if unit else {}))
    counted = Counter(frozenset(packed(connection, name)) for _ in range(150))
    assert set(counted) <= set(map(frozenset, combinations(range(1, 6), 2)))
    expected = [counted[frozenset(pair)] for pair in combinations(range(1, 6), 2)]
    assert chisquare(expected).pvalue > ALARM
    assert chisquare([150 - 9 * 5] + [5] * 9).pvalue < ALARM  # a subset that is favoured would be noticed


@pytest.mark.parametrize(("count", "most"), [(6, 3), (200, 197)])
def test_the_first_slots_of_a_key_are_a_uniform_subset(count, most):
    left: Counter[Any] = Counter()
    for _ in range(2000):
        subset = Subset.of(np.random.bytes(32), count, most)
        here = np.concatenate([subset.contains(0, count // 3), subset.contains(count // 3, count)])
        assert here.sum() == most
        left.update([tuple(np.flatnonzero(~here))] if count < 9 else np.flatnonzero(~here).tolist())
    cells = comb(count, most) if count < 9 else count
    assert len(left) <= cells
    assert chisquare(list(left.values()) + [0] * (cells - len(left))).pvalue > ALARM


# --- neighbours -------------------------------------------------------------------------------------------------

CAPACITY, PLACES = 12, (0, 5, 11)
AHEAD, BEHIND, NOTHING = ("{1,0,0}", 1), ("{-1,0,0}", 1), ("{0,0,0}", 1)


class Neighbours:
    """Tables that differ in one record, with one capacity, and the exact models of the server's own aggregate."""

    def __init__(self, connection: psycopg.Connection, register: Register) -> None:
        self._connection, self._register = connection, register

    def dataset(self, name: str, rows: list[tuple[str, int]], **given: Any) -> str:
        self._connection.execute(f"create table {name} (x float8[], y int)")
        with self._connection.cursor().copy(f"copy {name} from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        features = {"x": {"length": 3, "norm": 1}}
        return self._register(name, features=features, negative="-1", intercept=False, capacity=CAPACITY, **given)

    def models(self, name: str, given: dict[str, dict[str, Any]], key: bytes) -> list[np.ndarray]:
        return exact.exact_models(self._connection, name, list(given.values()), [key])


@pytest.fixture
def neighbours(connection: psycopg.Connection, schema: str, register: Register) -> Iterator[Neighbours]:
    with exact.installed(connection):
        yield Neighbours(connection, register)


def key_with(place: int, slot: int, without: int | None, rows: int) -> bytes:
    """A key that puts a slot at a place; of more rows than the capacity it leaves out the row with this number."""
    while True:
        key = exact.order_with(slot, place, CAPACITY)
        secret = hashlib.shake_256(key + b"capacity").digest(32)
        here = Subset.of(secret, rows, CAPACITY).contains(0, rows)
        if without is None or not here[without]:
            return key


def moved(
    neighbours: Neighbours, given: dict[str, dict[str, Any]], pair: tuple[str, str], keys: list[bytes]
) -> dict[str, float]:
    """How far apart the models of two datasets are at most, over the keys."""
    furthest = dict.fromkeys(given, 0.0)
    for key in keys:
        one, other = (neighbours.models(name, given, key) for name in pair)
        for name, first, second in zip(given, one, other, strict=True):
            furthest[name] = max(furthest[name], float(np.linalg.norm(first - second)))
    return furthest


def test_one_record_moves_a_model_by_its_bound(neighbours):
    """Below the capacity it takes a zero row's place; above it, a row's, which is as far as a replaced record goes."""
    given = requests(SCHEDULED | RESTARTED, "huber_svm", batch_size=5)
    facts = Facts(CAPACITY, 3, intercept=False)
    bounds = {name: plan(Request(**request), facts).sensitivity.total for name, request in given.items()}
    few, full = [NOTHING] * 7, [NOTHING] * (CAPACITY - 1)
    names = {
        "few": neighbours.dataset("few", few),
        "few ahead": neighbours.dataset("few_ahead", [*few, AHEAD]),
        "few behind": neighbours.dataset("few_behind", [*few, BEHIND]),
        "full": neighbours.dataset("full_", [*full, AHEAD]),
        "above": neighbours.dataset("above", [*full, AHEAD, BEHIND]),
        "one above": neighbours.dataset("one_above", [*full, AHEAD, NOTHING, AHEAD]),
        "two above": neighbours.dataset("two_above", [*full, AHEAD, NOTHING, AHEAD, BEHIND]),
    }
    below = [key_with(place, len(few), None, 1) for place in PLACES]
    added = moved(neighbours, given, (names["few"], names["few ahead"]), below)
    replaced = moved(neighbours, given, (names["few ahead"], names["few behind"]), below)
    assert beyond(added, bounds) == beyond(replaced, bounds) == loose(replaced, bounds) == {}
    assert loose(added, {name: bound / 2 for name, bound in bounds.items()}) == {}
    last = CAPACITY - 1
    at_it = [key_with(place, last, last, CAPACITY + 1) for place in PLACES]  # the new row is in the other's slot
    drawn = moved(neighbours, given, (names["full"], names["above"]), at_it)
    assert beyond(drawn, bounds) == loose(drawn, bounds) == {}


def test_a_model_does_not_depend_on_how_a_slot_came_to_be_empty(neighbours):
    """A zero row of the capacity is what a record without a label is."""
    rows = [AHEAD, BEHIND, ("{0,0.5,0}", -1)]
    sparse = neighbours.dataset("sparse", rows)
    whole = neighbours.dataset("whole", [*rows, *[("{1,0,0}", None)] * 9])
    given = requests(SCHEDULED | RESTARTED, "logistic", batch_size=5)
    key = np.random.bytes(32)
    for one, other in zip(*(neighbours.models(name, given, key) for name in (sparse, whole)), strict=True):
        assert (one == other).all()
        assert np.abs(one).max() > 0


# --- every algorithm --------------------------------------------------------------------------------------------

CHANGES = {
    "fewer": "delete from clinic where i > 300",
    "as many": "select",
    "more": "insert into clinic select * from clinic",
}


@pytest.fixture
def clinic(connection: psycopg.Connection, schema: str) -> str:
    connection.execute("""
create table clinic as
select i, i % 90 as age, i % 3 = 0 as smoker, i % 90 > 40 as ill, i % 90 / 10.0 as days, i % 2 as ward
from generate_series(1, 600) as i""")
    return "clinic"


RELEASED = {
    "effective_dimension",
    "clip_norm",
    "standard_errors",
    "intercept_standard_error",
    "score_calibration",
    "evaluation",
}
DECLARED = {"label": "ill", "positive": "true", "features": {"age": [0, 100], "smoker": ["true", "false"]}}


def train(connection: psycopg.Connection, name: str, algorithm: str, **more: Any) -> dict[str, Any]:
    options = {"epsilon": 2.0, "delta": 1e-5, "algorithm": algorithm} | FEW.get(algorithm, {"epochs": 2}) | more
    given = ", ".join(f"{key} => %({key})s" for key in options)
    [model] = released(connection, f"dbdp.dp_train(%(dataset)s, {given})", options | {"dataset": name})
    return model["receipt"]


@pytest.mark.parametrize("algorithm", others_slow(list(ALGORITHMS), *list(ALGORITHMS)[::3], "preconditioned_gd"))
def test_receipt_does_not_depend_on_the_number_of_rows(connection, clinic, register, spent, algorithm):
    """Every algorithm trains on any number of rows, and its receipt does not change."""
    name, receipts = register(clinic, **DECLARED, capacity=600), []
    for change in CHANGES.values():
        connection.execute("delete from clinic where i > 600")
        connection.execute(change)
        receipt = train(connection, name, algorithm)
        assert (receipt["neighbours"], receipt["capacity"]) == ("change-one", 600)
        assert not {"rows", "units"} & set(receipt)
        own = {"model", "ledger", "released_at", "updates", "passes", "sampled", *RELEASED}
        receipts.append({key: value for key, value in receipt.items() if key not in own})
    assert receipts[0] == receipts[1] == receipts[2]
    assert spent(name)[0] == 3 * 2 * 10**9
    request = Request(2.0, 1e-5, algorithm, **FEW.get(algorithm, {"epochs": 2}))
    expected = plan(request, facts_of_clinic(algorithm, 600)).explain()
    assert receipts[0]["noise_scale"] == pytest.approx(expected["noise_scale"], rel=1e-6)  # without a budget's padding


def test_shards_read_one_subset_on_all_connections(connection, clinic, register, database):
    """A sharded training reads one subset on all its connections."""
    name = register(clinic, **DECLARED, capacity=400, delta=0.1)
    model = database.train(name, Request(500.0, 1e-5, "bolt_on", shards=3, epochs=5, regularisation=0.1))
    assert (model.receipt["capacity"], model.receipt["shards"]) == (400, 3)
    assert np.array(model.coefficients)[0] > 0


def test_an_empty_table_may_have_a_capacity_and_is_trained_on(connection, clinic, register):
    connection.execute("delete from clinic")
    with pytest.raises(psycopg.Error, match="is empty; insert at least one row first, or register it with a capacity"):
        register(clinic, **DECLARED)
    name = register(clinic, **DECLARED, capacity=50)
    assert train(connection, name, "dp_sgd")["capacity"] == 50


# --- scores, summaries, groups, tuning, baselines ---------------------------------------------------------------

EXACT = 1e4  # with so much ε counts have no noise


@pytest.mark.parametrize("change", CHANGES)
def test_scores_are_shares_of_the_rows_that_are_read(connection, clinic, register, database, change):
    name = register(clinic, **DECLARED, capacity=600, epsilon=1e6)
    connection.execute(CHANGES[change])
    model = stored(connection, name, [1, 0, 0], [-30.5])
    right = "select avg((ill = (age > 30))::int), count(*) from clinic"
    share, count = map(float, connection.execute(right).fetchone())
    within = 0.08 if change == "more" else 1e-9  # a random half of the rows is read: 600 of 1200, and 8/9 are right
    accuracy = database.score(model, name, "accuracy", epsilon=EXACT)
    assert accuracy["accuracy"] == pytest.approx(share, abs=within)
    assert accuracy["receipt"]["neighbours"] == "change-one"
    matrix = np.array(database.score(model, name, "confusion", epsilon=EXACT)["matrix"])
    balance = database.class_balance(name, epsilon=EXACT)
    assert matrix.sum() == sum(balance["counts"]) == min(count, 600)
    estimate = database.bounds(name, "age", epsilon=EXACT)
    assert sum(each["rows"] for each in estimate["bins"]) == min(count, 600)
    assert estimate["outside"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("metric", ["mean_absolute_error", "mean_squared_error"])
def test_an_error_is_a_mean_over_the_rows_that_are_read(connection, clinic, register, database, metric):
    declared = {"label": "days", "positive": None, "label_bounds": [0, 10], "features": DECLARED["features"]}
    name = register(clinic, **declared, capacity=2000, epsilon=1e6)
    model = stored(connection, name, [0, 0, 0], [4])
    power = 1 if metric == "mean_absolute_error" else 2
    (mean,) = connection.execute(f"select avg(abs(days - 4) ^ {power})::float8 from clinic").fetchone()
    result = database.score(model, name, metric, epsilon=EXACT)
    assert result[metric] == pytest.approx(mean, rel=0.01)
    assert (result["receipt"]["cells"], result["receipt"]["capacity"]) == (2, 2000)
    noisy = [database.score(model, name, metric, epsilon=0.5) for _ in range(40)]
    missed = sum(abs(each[metric] - mean) > each[f"{metric}_noise"] for each in noisy)
    assert missed <= 20  # of 5 in 100: P(more than 20 of Bin(40, 0.08)) is below 1e-9


def test_a_summary_does_not_depend_on_the_empty_slots(connection, clinic, register, database):
    given = {"label": "days", "positive": None, "label_bounds": [0, 10], "features": {"age": [0, 100]}}
    name = register(clinic, **given, capacity=900, epsilon=1e6, delta=0.1)
    number = connection.execute("select summary from dbdp.dp_summarize(%s, 5e5, 1e-3)", (name,)).fetchone()[0]
    (fit,) = connection.execute("select dbdp.summary_linreg(%s, 'days', regularisation => 0)", (number,)).fetchone()
    assert fit["coefficients"]["age"] == pytest.approx(0.1, rel=0.05)
    assert fit["intercept"] == pytest.approx(0, abs=0.2)
    (values,) = connection.execute("select dbdp.summary_correlations(%s)", (number,)).fetchone()
    assert values["correlations"][0][1] > 0.98
    connection.execute("select dbdp.raise_capacity(%s, 'more are to come', 1800)", (name,))
    (again,) = connection.execute("select dbdp.summary_linreg(%s, 'days', regularisation => 0)", (number,)).fetchone()
    assert again == fit
    receipt = train(connection, name, "preconditioned_gd", summary=number, loss="huber_regression")
    assert (receipt["capacity"], receipt["summary"]) == (1800, number)


@pytest.mark.parametrize("row_count", [100, 600])
def test_groups_share_the_capacity_for_any_sizes(connection, clinic, register, database, row_count):
    """Groups share the capacity, for any numbers of rows."""
    name = register(clinic, **DECLARED, capacity=301, public_columns=["ward"], epsilon=1e6)
    connection.execute(f"delete from clinic where i > {row_count} or (ward = 1 and i > 40)")
    models = database.train_groups(name, Request(1.0, 1e-5, "dp_sgd", epochs=1), group_by="ward", groups=["0", "1"])
    for model in models.values():
        assert (model.receipt["capacity"], model.receipt["neighbours"]) == (150, "change-one")
    plans = database.explain_groups(name, Request(1.0), group_by="ward", groups=["0", "1"])
    assert plans["groups"] == {"0": 150, "1": 150}
    with pytest.raises(ValueError, match="capacity = 301 is divided among 302 groups, which leaves none for each"):
        database.explain_groups(name, Request(1.0), group_by="ward", groups=list(map(str, range(302))))


def test_a_tuning_and_a_baseline_read_the_slots(connection, clinic, register, database):
    name = register(clinic, **DECLARED, capacity=900, delta=0.1)
    tuned = database.tune(
        name,
        TuningRequest(Request(3.0, 1e-5, algorithm="bolt_on", epochs=1, batch_size=20), ({"epochs": 1}, {"epochs": 2})),
    )
    assert (tuned.receipt["neighbours"], tuned.receipt["capacity"]) == ("change-one", 900)
    baseline = baselines.minimum(database._session, name, Request(1.0))
    assert baseline.errors is not None and 0 <= baseline.errors < 60  # of 600 rows; 300 slots are empty


# --- raising ----------------------------------------------------------------------------------------------------


def raise_to(connection: psycopg.Connection, name: str, capacity: int | None, reason: str = "the table grows") -> None:
    connection.execute("select dbdp.raise_capacity(%s, %s, %s::int8)", (name, reason, capacity))


def test_raised_capacity_keeps_budget_grants_and_models(connection, clinic, register, database, spent):
    """A raised capacity keeps budget grants and models and is on record."""
    name = register(clinic, **DECLARED, capacity=500)
    first = train(connection, name, "bolt_on")
    before = spent(name), database.query("select id from dbdp.dataset where name = $1 and dropped_at is null", name)
    raise_to(connection, name, 700)
    second = train(connection, name, "bolt_on")
    number = database.query("select id from dbdp.dataset where name = $1 and dropped_at is null", name)
    assert (number, spent(name)[0]) == (before[1], 2 * before[0][0])
    assert (first["capacity"], second["capacity"]) == (500, 700)
    assert database.query("select rows, capacity from dbdp.datasets_details where name = $1", name) == [
        {"rows": 700, "capacity": 700}
    ]
    (former,) = database.query(
        "select capacity, rows, reason, replaced_by = session_user as own from dbdp.former_capacity "
        "where dataset_id = $1",
        number[0]["id"],
    )
    assert former == {"capacity": 500, "rows": 500, "reason": "the table grows", "own": True}
    plans = database.query(
        "select plan ->> 'capacity' as capacity from dbdp.ledger where dataset_id = $1 order by id", number[0]["id"]
    )
    assert [row["capacity"] for row in plans] == ["500", "700"]
    assert all(row["ok"] for row in database.check_ledger() if row["dataset"] == name)


def test_number_of_rows_becomes_capacity_same_budget(connection, clinic, register, spent):
    """A fixed number of rows becomes a capacity under the same budget."""
    name = register(clinic, **DECLARED)
    assert train(connection, name, "bolt_on")["neighbours"] == "replace-one"
    connection.execute("insert into clinic select * from clinic limit 1")
    with pytest.raises(psycopg.Error, match=r"has 601 rows, .* with dbdp.raise_capacity, which keeps the budget"):
        train(connection, name, "bolt_on")
    raise_to(connection, name, 600)
    assert train(connection, name, "bolt_on")["neighbours"] == "change-one"
    assert spent(name)[0] == 4 * 10**9
    former = "select capacity, rows from dbdp.former_capacity order by id desc limit 1"
    assert connection.execute(former).fetchone() == (None, 600)


def test_a_capacity_of_units_is_raised_by_units(connection, schema, register):
    numbered(connection, 10)
    name = registered(register, unit="patient", max_rows=3)
    raise_to(connection, name, 25)
    rows = "select rows, capacity from dbdp.datasets_details where name = %s"
    assert connection.execute(rows, (name,)).fetchone() == (75, 25)
    receipt = train(connection, name, "dp_sgd")
    expected = {"neighbours": "change-one-unit", "unit": "patient", "max_rows": 3, "capacity": 25}
    assert expected.items() <= receipt.items()


REFUSED = {
    "lower": (400, "it grows", "capacity = 400 must be at least 501 .* to start again with it call dbdp.renew_budget"),
    "the same": (500, "it grows", "capacity = 500 must be at least 501"),
    "none": (None, "it grows", "capacity is required"),
    "no reason": (700, " ", "reason is empty"),
    "nothing": (0, "it grows", "capacity = 0 must be a whole number between 1 and"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_raise_is_refused(connection, clinic, register, case):
    name = register(clinic, **DECLARED, capacity=500)
    capacity, reason, message = REFUSED[case]
    with pytest.raises(psycopg.Error, match=message):
        raise_to(connection, name, capacity, reason)
    for stated in (0, -3, 10**12 + 1):
        with pytest.raises(psycopg.Error, match=f"capacity = {stated} must be a whole number between 1 and"):
            register(clinic, **DECLARED, capacity=stated)


def test_a_capacity_that_is_raised_during_a_training_ends_it(connection, clinic, register, database, spent):
    """The release was planned, and its noise computed, for the slots of its charge."""
    name = register(clinic, **DECLARED, capacity=500)

    def rise(stage: str, done: int, _total: int) -> None:
        if (stage, done) == ("shuffle", 0):
            raise_to(connection, name, 900)

    with pytest.raises(ChargedError, match="has 900 slots, and this release was planned for 500: its capacity"):
        database.train(name, Request(1.0, 0.0, "bolt_on", batch_size=20), rise)
    assert spent(name)[0] > 0


def test_a_renewal_keeps_the_capacity_or_states_another(connection, clinic, register, database):
    name = register(clinic, **DECLARED, capacity=500)
    sql = "select capacity from dbdp.datasets_details where name = $1"
    for given, expected in (({}, 500), ({"capacity": 300}, 300), ({"capacity": 1000}, 1000)):
        database.renew_budget(name, "a new quarter", **given)
        assert database.query(sql, name) == [{"capacity": expected}]
    connection.execute("delete from clinic")
    database.renew_budget(name, "the table is empty, which nobody learns")
    assert math.isclose(database.budget(name)["left_share"], 1.0)


def test_command_line_registers_raises_lists_capacity(connection, schema, server_url, tmp_path):
    """The command line registers a capacity raises it and lists it."""
    numbered(connection, 20)
    (features := tmp_path / "features.json").write_text('{"i": [0, 60]}')

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--url", server_url])
        assert result.exit_code == 0, result.output
        return result.output

    declared = ["--label", "y", "--positive", "1", "--features", str(features), "--epsilon", "4", "--delta", "1e-5"]
    run("register", schema, f"{schema}.t", *declared, "--capacity", "30")
    assert "has capacity 45" in run("raise-capacity", schema, "45", "--reason", "it grows")
    (listed,) = [row for row in json.loads(run("datasets", "--json")) if row["name"] == schema]
    assert (listed["rows"], listed["capacity"]) == (45, 45)
    assert "≤ 45" in run("datasets")
    run("renew", schema, "--reason", "a new quarter", "--capacity", "60")
    (explained,) = connection.execute("select dbdp.dp_explain(%s, epsilon => 1)", (schema,)).fetchone()
    assert (explained["capacity"], explained["neighbours"], "rows" in explained) == (60, "change-one", False)
