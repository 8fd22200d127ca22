"""One model for each category of a private feature: a record may change its group, so two groups are charged."""

import json
from collections.abc import Callable
from typing import Any

import exact
import numpy as np
import psycopg
import pytest
from pairs import each_value_quick
from released import released

from dbdp.algorithms import Facts, Request, plan
from dbdp.learning.rows import blocks
from dbdp.privacy.accounting.budget import MODES, Budget
from dbdp.privacy.accounting.events import DisjointDpEvent, Release, SelfComposedDpEvent

FEATURES = {"z": [-1, 1], "g": ["a", "b", "c"]}
CAPACITY = 30
KEYS = ["a", "b", "c", "a", "d", None] * 6  # 12, 6, 6, and 12 of no group
Dataset = Callable[..., str]


@pytest.fixture
def dataset(connection: psycopg.Connection, register: Callable[..., str]) -> Dataset:
    """Register a table (z, g, y) with these keys and a capacity; its labels are null unless given."""

    def make(name: str, keys: list[str | None], labels: list[int | None], **given: Any) -> str:
        connection.execute(f"create table {name} (z float8, g text, y int)")
        with connection.cursor() as cursor:
            rows = zip(keys, labels, strict=True)
            cursor.executemany(f"insert into {name} values (0.5, %s, %s)", list(rows))
        declared = {"features": FEATURES, "capacity": CAPACITY, "negative": "-1", "epsilon": 1e4, "delta": 1e-2}
        return register(name, **declared | {"intercept": False} | given)

    return make


def train(connection: psycopg.Connection, name: str, groups: str, **options: Any) -> dict[str, dict[str, Any]]:
    """Train the groups; their receipts."""
    named = ", ".join(f"{each} => %({each})s" for each in options)
    call = f"dbdp.dp_train_groups(%(name)s, 'g', %(groups)s, {named})"
    rows = released(connection, call, options | {"name": name, "groups": list(groups)})
    return {row["group"]: row["receipt"] for row in rows}


# --- the charge ----------------------------------------------------------------------------------------------


def of_two(rows: int, **options: Any) -> Release:
    """Two groups of so many rows, each for half of ε and δ."""
    halved = options | {"epsilon": options["epsilon"] / 2, "delta": options["delta"] / 2}
    each = plan(Request(**halved), Facts(rows, 5)).guarantee.as_replace_one()
    return Release(SelfComposedDpEvent(DisjointDpEvent((each.event,)), 2), options["epsilon"], options["delta"])


CHARGED: dict[str, dict[str, Any]] = {
    "pure": {"delta": 0.0, "algorithm": "bolt_on"},
    "gaussian": {"delta": 1e-6, "algorithm": "bolt_on"},
    "poisson": {"delta": 1e-6, "algorithm": "dp_sgd", "epochs": 1},
}


@pytest.mark.parametrize(("case", "mode"), each_value_quick(list(CHARGED), list(MODES)))
def test_epsilon_covers_the_two_groups_of_a_record(connection, dataset, spent, case, mode):
    name = dataset("t", KEYS, [None] * len(KEYS), mode=mode, intercept=True)
    given = {"epsilon": 1.0, "algorithm": "bolt_on", "batch_size": 5} | CHARGED[case]
    receipts = train(connection, name, "abc", **given)
    budget = Budget.of(epsilon=1e4, delta=1e-2, mode=mode)
    facts_of_each = CAPACITY // 3
    assert spent(name) == budget.cost(of_two(facts_of_each, **given))
    for group, receipt in receipts.items():
        assert (receipt["group"], receipt["epsilon"], receipt["delta"]) == (group, 1.0, given["delta"])
        assert receipt["key"] == (
            "private: a record may go from one group to another; each of these has half of epsilon and delta"
        )
        assert receipt["capacity"] == CAPACITY // 3


def test_one_group_is_charged_once(connection, dataset, spent):
    name = dataset("t", KEYS, [None] * len(KEYS), mode="basic")
    receipt = train(connection, name, "a", epsilon=1.0)["a"]
    assert spent(name) == (10**9, 0)
    assert receipt["key"] == "private: a record may go from one group to another"
    assert receipt["capacity"] == CAPACITY


def test_the_plan_depends_on_no_key(connection, dataset):
    plans = []
    for name, keys in (("spread", KEYS), ("gathered", ["a"] * len(KEYS))):
        call = "select dbdp.dp_explain_groups(%s, 'g', '{a,b,c}', 1, 1e-6)"
        (described,) = connection.execute(call, (dataset(name, keys, [None] * len(keys)),)).fetchone()
        plans.append(json.loads(json.dumps(described).replace(name, "")))
    assert plans[0] == plans[1]


# --- what neighbours differ in -------------------------------------------------------------------------------

NEAR = {
    "algorithm": "bolt_on",
    "schedule": "constant",
    "step_size": 0.2,
    "epsilon": 1.0,
    "loss": "huber_svm",
    "huber_width": 0.1,
    "epochs": 3,
}


@pytest.fixture
def exactly(connection: psycopg.Connection) -> Any:
    with exact.installed(connection):
        yield


def models_of(connection: psycopg.Connection, name: str, order: bytes) -> list[np.ndarray]:
    return exact.exact_groups(connection, name, NEAR | {"algorithm": "bolt_on"}, "g", "abc", order)


@pytest.mark.usefixtures("exactly")
def test_a_record_that_changes_groups_moves_both_only(connection, dataset):
    """Both groups are below their shares: each loses or wins a record for a zero row: half of a replaced one."""
    order = exact.order_with(0, 0, CAPACITY // 3)
    labels = [1, *[None] * 5]
    models = [
        models_of(connection, dataset(f"goes_{key}", [key, "a", "b", "c", "a", None], labels), order) for key in "ab"
    ]
    bound = plan(Request(**NEAR), Facts(CAPACITY // 3, 4)).sensitivity.total
    moved = [float(np.linalg.norm(one - other)) for one, other in zip(*models, strict=True)]
    assert moved[2] == 0
    assert 0.49 * bound <= min(moved[:2])
    assert max(moved[:2]) <= bound


@pytest.mark.usefixtures("exactly")
def test_a_record_of_a_full_group_attains_its_bound(connection, dataset):
    order, keys = exact.order_with(0, 0, CAPACITY // 3), ["a"] * (CAPACITY // 3)
    labels = [None] * (len(keys) - 1)
    pair = [dataset(f"full_{label + 1}", keys, [label, *labels]) for label in (1, -1)]
    one, other = (models_of(connection, name, order) for name in pair)
    bound = plan(Request(**NEAR), Facts(CAPACITY // 3, 4)).sensitivity.total
    moved = [float(np.linalg.norm(each - also)) for each, also in zip(one, other, strict=True)]
    assert 0.99 * bound <= moved[0] <= bound
    assert moved[1:] == [0, 0]


# --- what is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["256MB", "1MB"])
def test_each_group_has_its_rows_and_its_share_of_slots(connection, schema, register, memory):
    """Group a has more rows than its share, of which as many are drawn; b has fewer, c none."""
    connection.execute("""
create table n as
select i::float8 as z, case when i <= 9000 then 'a' when i <= 10000 then 'b' else 'other' end as g, 1 as y
from generate_series(1, 11000) as i""")
    features, share = {"z": [0, 11_000], "g": ["a", "b", "c"]}, 4000
    name = register("n", features=features, capacity=3 * share, intercept=False)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    connection.execute("create temporary table packed (block_no int8, block bytea)")
    connection.execute("create temporary table packed_groups (bucket int8, block bytea)")
    call = "select dbdp_internal.deal_groups(%s, 'pg_temp.packed_groups', 'g', '{a,b,c}', %s)"
    connection.execute(call, (name, [share] * 3))
    found = []
    for bucket in range(3):
        connection.execute("truncate packed")
        given = json.dumps({"group": [bucket, "packed_groups"], "coding": {"encoding": "scaled"}, "key": "00" * 32})
        connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, given))
        fetched = connection.execute("select block from packed order by block_no").fetchall()
        rows = np.concatenate([blocks.decode(block, 4) for (block,) in fetched])
        assert len(rows) == share
        present = rows[np.any(rows != 0, axis=1)]
        found.append((len(present), present[:, 0], np.flatnonzero(present[:, 1:4].any(axis=0))))
    assert [each[0] for each in found] == [share, 1000, 0]
    assert [each[2].tolist() for each in found] == [[0], [1], []]
    assert len(set(np.round(found[0][1], 6))) > 0.9 * share  # each row at most once, but for rounding
    assert found[0][1].max() < found[1][1].min()


REFUSED = {
    "a number": ("z", "{a}", {}, "'z' is not among the public columns .*, nor among its features with categories"),
    "no category": ("g", "{a,d}", {}, "group 'd' is not among the categories of 'g': 'a', 'b', 'c'"),
    "no capacity": ("g", "{a}", {"capacity": None}, "'g' is private, and so is the number of rows .* needs a capacity"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_private_key_without_public_facts_is_refused(connection, dataset, spent, case):
    column, groups, given, message = REFUSED[case]
    name = dataset("t", KEYS, [None] * len(KEYS), **given)
    for function in ("dp_train_groups", "dp_explain_groups"):
        with pytest.raises(psycopg.Error, match=message):
            connection.execute(f"select dbdp.{function}(%s, %s, %s, 1, 1e-6)", (name, column, groups))
    assert spent(name) == (0, 0)
