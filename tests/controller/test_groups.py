"""One model for each group of a public key: each from its own rows alone, one charge for all."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import exact
import numpy as np
import psycopg
import pytest
from acting import acting
from chance import usually
from pairs import each_value_quick
from released import released as released_in_sql
from servers import execute

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.rows import Progress, silent
from dbdp.controller import ChargedError
from dbdp.interfaces.python.client.connecting import connect
from dbdp.learning.rows import blocks
from dbdp.privacy.accounting.budget import MODES, Budget
from dbdp.privacy.accounting.events import Release
from dbdp.registry.results.models import ReleasedModel

Register = Callable[..., str]
SIZES = {"a": 40, "b": 7, "c": 1, "d": 0}
ELSEWHERE = 12  # rows of a group that nobody asks for, and as many without a group
GROUPS = list(SIZES)
EVERY_INTERFACE = pytest.mark.parametrize("interface", ["client", "server"])


def fill(connection: psycopg.Connection, table: str, keys: Sequence[str | None], features: np.ndarray) -> None:
    """Make a table (g, x, y, k, r) with these keys and features; its labels follow from the first feature."""
    connection.execute(f"create table {table} (g text, x float8[], y int, k text, r float8)")
    with connection.cursor().copy(f"copy {table} from stdin") as copy:
        for key, row in zip(keys, features.tolist(), strict=True):
            text = "{" + ",".join(map(repr, row)) + "}"
            copy.write_row((key, text, 1 if row[0] > 0 else -1, "pqr"[int((row[0] + 1) * 1.49)], row[0]))


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> str:
    """Table t: the groups in turns, other rows among them."""
    random = np.random.default_rng()
    keys = [key for key, size in SIZES.items() for _ in range(size)] + ["e"] * ELSEWHERE + [None] * ELSEWHERE
    random.shuffle(keys)
    fill(connection, "t", keys, random.uniform(-1, 1, (len(keys), 3)) / 2)
    return "t"


@pytest.fixture
def dataset(table: str, register: Register) -> Callable[..., str]:
    """Register the table with g as a public column."""

    def call(**given: Any) -> str:
        return register(table, **{"public_columns": ["g"], "epsilon": 1e4, "delta": 1e-2} | given)

    return call


def trained(
    connection: psycopg.Connection,
    interface: str,
    name: str,
    groups: Sequence[str] = GROUPS,
    progress: Progress = silent,
    **options: Any,
) -> dict[str, ReleasedModel]:
    """Train the groups through an interface; the models as both give them."""
    arguments = {"epsilon": 1.0, "delta": 1e-6} | options
    if interface == "client":
        return connect(connection).train_groups(
            name, Request(**arguments), group_by="g", groups=groups, progress=progress
        )
    named = ", ".join(f"{each} => %({each})s" for each in arguments)
    call = f"dbdp.dp_train_groups(%(name)s, 'g', %(groups)s, {named})"
    rows = released_in_sql(connection, call, arguments | {"name": name, "groups": list(groups)})
    models = ("model", "coefficients", "intercept", "intercepts", "receipt")
    return {
        row["group"]: ReleasedModel(number, name, [], *rest) for row in rows for number, *rest in [map(row.get, models)]
    }


def released(connection: psycopg.Connection, name: str) -> int:
    return connection.execute("select count(*) from dbdp.models_details where dataset = %s", (name,)).fetchone()[0]


def ledger(connection: psycopg.Connection, name: str) -> list[tuple]:
    sql = """
select l.charge, l.leak, l.algorithm, l.plan from dbdp.ledger as l
join dbdp.dataset as d on d.id = dataset_id where d.name = %s order by l.id"""
    return connection.execute(sql, (name,)).fetchall()


# --- one charge ----------------------------------------------------------------------------------------------


def alone(rows: int, **options: Any) -> Release:
    """What one group would be charged by itself, with mini-batches of all its rows where it has few."""
    request = Request(**options | {"batch_size": min(options["batch_size"], rows)})
    return plan(request, Facts(rows, 4)).guarantee.as_replace_one()


CHARGED: dict[str, dict[str, Any]] = {
    "pure": {"delta": 0.0},
    "gaussian": {"delta": 1e-6},
    "a mixture": {"delta": 1e-6, "algorithm": "rsgd_ar"},
    "noise in every update": {"delta": 1e-6, "algorithm": "scs13", "epochs": 1},
    "poisson": {"delta": 1e-6, "algorithm": "dp_sgd", "epochs": 1},
}


@pytest.mark.parametrize(("case", "mode"), each_value_quick(list(CHARGED), list(MODES)))
def test_the_most_expensive_group_is_charged_once_for_all(connection, dataset, spent, case, mode):
    name, given = dataset(mode=mode), {"epsilon": 1.0, "algorithm": "bolt_on", "batch_size": 10} | CHARGED[case]
    budget = Budget.of(epsilon=1e4, delta=1e-2, mode=mode)
    costs = [budget.cost(alone(rows, **given)) for rows in SIZES.values() if rows]
    models = trained(connection, "server", name, **given)
    assert spent(name) == tuple(map(max, zip(*costs, strict=True)))
    ((charge, leak, algorithm, described),) = ledger(connection, name)
    assert (charge, leak) == spent(name)
    assert algorithm == given.get("algorithm", "bolt_on")
    assert (described["group_by"], described["groups"], described["rows"]) == ("g", SIZES, 48)
    assert described["guarantee"]["event"]["event"] == "DisjointDpEvent"
    for group, model in models.items():
        receipt = model.receipt
        assert (receipt["group_by"], receipt["group"], receipt["rows"]) == ("g", group, SIZES[group])
        assert receipt["charge_shared_by"] == len(SIZES)
        assert (receipt["charge"], receipt["leak"]) == (charge / 1e9, leak / 1e18)
        assert (receipt["epsilon"], receipt["delta"]) == (1.0, given["delta"])
    assert {models[group].receipt.get("batch_size") for group in ("b", "c")} == {7, 1}


def test_equal_groups_are_charged_what_one_of_them_is(connection, schema, register, spent):
    """Not twice as much, and what it would be by itself."""
    fill(connection, "equal", ["a", "b"] * 20, np.full((40, 3), 0.3))
    fill(connection, "one", ["a"] * 20, np.full((20, 3), 0.3))
    both, single = (register(each, public_columns=["g"], mode="renyi") for each in ("equal", "one"))
    trained(connection, "server", both, ["a", "b"], algorithm="bolt_on", batch_size=5)
    connection.execute("select dbdp.dp_train(%s, 1, 1e-6, algorithm => 'bolt_on', batch_size => 5)", (single,))
    assert spent(both) == spent(single)
    assert spent(both)[0] > 0


def test_a_second_call_is_charged_again(connection, dataset, spent):
    """Groups of different calls are not composed in parallel, even if they have no row in common."""
    name = dataset(mode="basic")
    for calls, group in enumerate("ab", start=1):
        trained(connection, "server", name, [group], delta=0.0)
        assert spent(name) == (calls * 10**9, 0)


def test_beyond_the_budget_nothing_is_read_or_spent(connection, dataset, spent):
    name = dataset(mode="basic", epsilon=0.5)
    with pytest.raises(psycopg.Error, match="does not cover this release"):
        trained(connection, "server", name, delta=0.0)
    assert spent(name) == (0, 0)
    assert released(connection, name) == 0


@pytest.mark.parametrize("mode", MODES)
def test_groups_are_explained_with_the_charge_of_all(connection, database, dataset, spent, mode):
    name, options = dataset(mode=mode), {"epsilon": 1.0, "delta": 1e-6, "algorithm": "bolt_on", "batch_size": 10}
    explanation = database.explain_groups(name, Request(**options), group_by="g", groups=GROUPS)
    sql = "select dbdp.dp_explain_groups(%s, 'g', %s, 1, 1e-6, algorithm => 'bolt_on', batch_size => 10)"
    assert connection.execute(sql, (name, GROUPS)).fetchone()[0] == explanation
    assert spent(name) == (0, 0)
    assert ledger(connection, name) == []
    models = trained(connection, "server", name, **options)
    assert explanation["charge"] == spent(name)[0] / 1e9
    for each in explanation["plans"]:
        assert each.items() <= models[each["group"]].receipt.items()


# --- each group from its own rows ------------------------------------------------------------------------------


@pytest.fixture
def hook(connection: psycopg.Connection) -> Iterator[None]:
    with exact.installed(connection):
        yield


NEAR = {  # what neighbours may move most: opposite gradients of a linear piece, among zeros
    "constant": {"schedule": "constant", "step_size": 0.2},
    "strongly convex": {"schedule": "inverse_time", "regularisation": 0.2},
    "mixture": {"algorithm": "nsgd", "regularisation": 0.1},
}
COMMON = {"epsilon": 1.0, "algorithm": "bolt_on", "loss": "huber_svm", "huber_width": 0.1, "epochs": 3}


@pytest.mark.usefixtures("hook")
@pytest.mark.parametrize("case", NEAR)
def test_a_replaced_row_moves_its_own_group_only(connection, schema, register, case):
    """Each group is attacked in turn; the pair attains the bound of that group, and others are equal bit for bit."""
    keys = list("abacabadabacaba")  # 8, 4, 2 and 1
    groups, request = "abcd", COMMON | NEAR[case]
    order, ahead = exact.order_with(0, 0, 8), np.array([0.999999, 0.0, 0.0])
    models: dict[tuple[str, int], list[np.ndarray]] = {}
    for victim in groups:
        for sign in (1, -1):
            rows = np.zeros((len(keys), 3))
            rows[keys.index(victim)] = sign * ahead
            fill(connection, f"twin_{victim}_{sign + 1}", keys, rows)
            connection.execute(f"update twin_{victim}_{sign + 1} set y = 1")
            name = register(f"twin_{victim}_{sign + 1}", public_columns=["g"], intercept=False)
            models[victim, sign] = exact.exact_groups(connection, name, request, "g", groups, order)
    for place, victim in enumerate(groups):
        pairs = list(zip(models[victim, 1], models[victim, -1], strict=True))
        assert all(np.array_equal(*pair) for other, pair in enumerate(pairs) if other != place)
        moved = np.linalg.norm(np.subtract(*pairs[place]))
        bound = plan(Request(**request), Facts(keys.count(victim), 3)).sensitivity.total
        assert moved <= bound
        assert moved >= 0.99 * bound


@pytest.mark.usefixtures("hook")
def test_a_group_is_trained_as_a_table_of_its_rows(connection, schema, register):
    random = np.random.default_rng()
    keys = ["a", "b", None, "b", "a", "c", "é'\"", "b"] * 5
    features = random.uniform(-1, 1, (len(keys), 3)) / 2
    fill(connection, "all_rows", keys, features)
    together = register("all_rows", public_columns=["g"])
    groups, request = ["b", "é'\"", "a"], {"epsilon": 1.0, "algorithm": "bolt_on", "batch_size": 4}
    order = random.bytes(32)
    result = exact.exact_groups(connection, together, request, "g", groups, order)
    for number, group in enumerate(groups):
        mine = [place for place, key in enumerate(keys) if key == group]
        fill(connection, f"only_{number}", [group] * len(mine), features[mine])
        (expected,) = exact.exact_models(connection, register(f"only_{number}"), [request], [order])
        assert np.array_equal(result[number], expected)
    assert not np.array_equal(result[0], result[2])


NUMBERED = 12_000


@pytest.mark.parametrize("memory", ["256MB", "1MB"])
@pytest.mark.parametrize(
    "options",
    [{}, {"key": "00" * 32}, {"poisson": {"probability": 1.0, "steps": 1, "size": NUMBERED // 3}}],
    ids=["fresh", "keyed", "a step"],
)
def test_every_way_of_packing_has_the_rows_of_the_group_once(connection, schema, register, options, memory):
    """Also where they do not fit the memory, and are packed through buckets; 40 numbers a row."""
    connection.execute(f"""
create table n as select i % 3 as g, array_fill(0::float8, array[39]) || i::float8 as x, 1 as y
from generate_series(0, {NUMBERED - 1}) as i""")
    length = {"x": {"length": 40, "norm": NUMBERED}}
    name = register("n", features=length, public_columns=["g"], intercept=False)
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    connection.execute("create temporary table packed (block_no int8, block bytea)")
    connection.execute("create temporary table packed_groups (bucket int8, block bytea)")
    counted = [NUMBERED // 3] * 2
    connection.execute(
        "select dbdp_internal.deal_groups(%s, 'pg_temp.packed_groups', 'g', '{2,0}', %s)", (name, counted)
    )
    for bucket, group in enumerate((2, 0)):
        connection.execute("truncate packed")
        given = json.dumps(options | {"group": [bucket, "packed_groups"], "coding": {"encoding": "scaled"}})
        connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, given))
        fetched = connection.execute("select block from packed order by block_no").fetchall()
        rows = np.concatenate([blocks.decode(block, 40) for (block,) in fetched])
        numbers = np.rint(rows[:, 39].astype(float) * NUMBERED).astype(int)
        assert sorted(numbers) == list(range(group, NUMBERED, 3))
        assert "poisson" in options or list(numbers) != sorted(numbers)  # a step needs no order


OTHERWISE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "classes": ({"label": "k", "positive": None, "classes": ["p", "q", "r"]}, {}),
    "a number": ({"label": "r", "positive": None, "label_bounds": [-1, 1]}, {"loss": "huber_regression"}),
    "fresh orders": ({}, {"algorithm": "bolt_on", "permutation": "fresh", "epochs": 3}),
    "shards": ({}, {"algorithm": "bolt_on", "shards": 2, "batch_size": 5}),
    "projection": ({}, {"projection_dimension": 2, "projection_seed": 7}),
    "network": ({}, {"network": "mlp:4", "algorithm": "dp_sgd", "epochs": 1}),
}


@EVERY_INTERFACE
@pytest.mark.parametrize("case", OTHERWISE)
def test_what_a_dataset_is_trained_with_a_group_is(connection, dataset, case, interface):
    declared, options = OTHERWISE[case]
    name = dataset(**declared)
    models = trained(connection, interface, name, ["b", "d", "a"], **options)
    assert list(models) == ["b", "d", "a"]
    sql = "select coefficients, intercepts, network is null, parameters from dbdp.model where id = %s"
    for group, model in models.items():
        coefficients, intercepts, is_linear, parameters = connection.execute(sql, (model.id,)).fetchone()
        assert (model.coefficients, model.intercepts, is_linear) == (coefficients, intercepts, case != "network")
        values = np.concatenate([np.ravel(each) for each in (coefficients, intercepts, parameters) if each is not None])
        assert np.isfinite(values).all()
        assert (not values.any()) == (group == "d" and case != "network")


def test_the_models_are_those_of_their_groups_and_predict(connection, schema, register):
    """In group b the labels are turned round; a group without rows knows nothing."""
    random = np.random.default_rng()
    keys, features = ["a", "b"] * 300, random.uniform(-1, 1, (600, 3)) / 2
    fill(connection, "turned", keys, features)
    connection.execute("update turned set y = -y where g = 'b'")
    name = register("turned", public_columns=["g"], negative="-1", epsilon=1e6)
    sql = """
select array_agg(dbdp.predict_probability(%s, x) order by x)
from (values ('{-.4,0,0}'::float8[]), ('{.4,0,0}')) v (x)"""

    def learned() -> bool:
        models = trained(
            connection, "server", name, ["a", "b", "none"], epsilon=1e3, algorithm="bolt_on", batch_size=10
        )
        rising, falling, none = (
            connection.execute(sql, (models[group].id,)).fetchone()[0] for group in ("a", "b", "none")
        )
        assert none == [0.5, 0.5]
        return max(rising[0], falling[1]) < 0.4 and min(rising[1], falling[0]) > 0.6

    assert usually(learned)


def test_many_groups_hold_few_locks(connection, schema, register):
    """A table for each group would hold the locks of all of them until the transaction ends.

    Only what was created or dropped is locked exclusively; locks on catalogues come and go with the backend's caches.
    """
    sql = "select count(*) from pg_locks where pid = pg_backend_pid() and mode = 'AccessExclusiveLock'"
    connection.execute(
        "create table many as select i as g, array[.1, .2, .3]::float8[] x, 1 y from generate_series(1, 60) i"
    )
    name, held = register("many", public_columns=["g"]), []
    for count in (2, 60):
        with connection.transaction():
            trained(
                connection,
                "server",
                name,
                [str(number) for number in range(1, count + 1)],
                algorithm="bolt_on",
                epochs=1,
            )
            held.append(connection.execute(sql).fetchone()[0])
    assert held[0] == held[1] > 0


# --- the key -------------------------------------------------------------------------------------------------

KEYS = {
    "smallint": (["-7", "0"], "07"),
    "integer": (["1000000", "-1"], "1.0"),
    "bigint": (["9007199254740993", "9007199254740992"], "x"),
    "text": (["", " a "], None),
    "varchar(5)": (["A", "a"], None),
    "char(3)": (["a", "abc"], None),
    "boolean": (["true", "false"], "yes"),
    "mood": (["sad", "it's"], "glad"),
    "date": (["2024-02-29", "infinity"], "29.02.2024"),
    "uuid": (["00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff"], "A" * 32),
    "short": (["12", "13"], "012"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_every_type_groups_by_its_values(connection, database, schema, register, kind):
    connection.execute("create type mood as enum ('sad', 'it''s'); create domain short as int check (value < 100)")
    (first, second), wrong = KEYS[kind]
    connection.execute(f"create table keyed (g {kind}, x float8[], y int)")
    for value, times in ((first, 3), (second, 5), (None, 2)):
        connection.execute(
            f"insert into keyed select %s::{kind}, array[.1, .2, .3], 1 from generate_series(1, %s)", (value, times)
        )
    name = register("keyed", public_columns=["g"])
    connection.execute("set datestyle = 'German'; set lc_messages = 'C'")
    models = trained(connection, "server", name, [second, first])
    assert [models[each].receipt["rows"] for each in (second, first)] == [5, 3]
    assert len(database.train_groups(name, Request(1.0), group_by="g", groups=[first])) == 1
    if wrong is not None:
        with pytest.raises(psycopg.Error, match="as PostgreSQL writes it"):
            trained(connection, "server", name, [first, wrong])


def test_comparing_keys_runs_no_code_of_a_user(connection, dataset, schema):
    """An operator and a cast that somebody planted first on the search path."""
    name = dataset()
    connection.execute(f"""
create function {schema}.spy(text, text) returns bool language plpgsql as $$ begin raise 'spied'; end $$;
create operator {schema}.= (leftarg = text, rightarg = text, function = {schema}.spy);
set search_path = {schema}, pg_catalog""")
    with pytest.raises(psycopg.Error, match="spied"):
        connection.execute("select 'a'::text = 'b'::text")
    try:
        assert trained(connection, "server", name, ["a"])["a"].receipt["rows"] == SIZES["a"]
    finally:
        connection.execute(f"set search_path = {schema}, public, dbdp")


def test_columns_may_have_the_names_that_reading_uses_itself(connection, schema, register):
    connection.execute("""
create table named as
select i % 2 as page, i as number, i as value, i as place, i as source, i % 3 as wanted, i % 2 as y
from generate_series(1, 30) as i""")
    features = {name: [0, 30] for name in ("number", "value", "place", "source")}
    name = register("named", features=features, public_columns=["page", "wanted"])
    assert connection.execute("select count(*) from dbdp.dp_train(%s, 1)", (name,)).fetchone() == (1,)
    for key, groups, rows in (("page", ["0", "1"], 15), ("wanted", ["0", "2"], 10)):
        sql = "select array_agg(dbdp.receipt(model, 'rows')) from dbdp.dp_train_groups(%s, %s, %s, 1)"
        assert connection.execute(sql, (name, key, groups)).fetchone() == ([str(rows)] * 2,)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a column that is not public": ({"group_by": "k"}, "'k' is not among the public columns .*'g'"),
    "no column": ({"group_by": "nothing"}, "'nothing' is not among the public columns"),
    "a null column": ({"group_by": None}, "group_by is required"),
    "no list": ({"groups": None}, "groups is required"),
    "no groups": ({"groups": []}, "groups has 0 values; list 1 to 10000"),
    "a null group": ({"groups": ["a", None]}, "a group is null"),
    "a group twice": ({"groups": ["a", "b", "a"]}, "group 'a' is listed twice"),
    "too many groups": ({"groups": [str(number) for number in range(10_001)]}, "groups has 10001 values"),
    "groups without rows": ({"groups": ["x", "y"]}, "no group of 'g' has a row"),
    "a group too small": (
        {"groups": ["a", "c"], "options": "algorithm => 'bolt_on', shards => 2"},
        "group 'c' of 'g' has 1 rows",
    ),
    "what no group can do": ({"options": "epochs => 0"}, "^dbdp: epochs = 0 must be"),
    "too many numbers": (
        {"options": "network => 'mlp:1000000', algorithm => 'dp_sgd'", "groups": [str(n) for n in range(10)]},
        "10 models of 5000001 parameters are above the limit",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_refused_before_the_charge(connection, dataset, spent, case):
    changed, message = REFUSED[case]
    options = {"group_by": "g", "groups": GROUPS, "options": "algorithm => 'bolt_on', batch_size => 5"} | changed
    name = dataset()
    for interface in ("dp_train_groups", "dp_explain_groups"):
        sql = f"select dbdp.{interface}(%s, %s, %s::text[], 1, 1e-6, {options['options']})"
        with pytest.raises(psycopg.Error, match=message):
            connection.execute(sql, (name, options["group_by"], options["groups"]))
    assert spent(name) == (0, 0)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["y"], "column 'y' is the label, which is private"),
        (["x"], "column 'x' is a feature, which is private"),
        (["g", "g"], "lists a column twice"),
        (["missing"], "column 'missing' does not exist"),
        ([None], "give a list of column names"),
        (["r"], "is double precision; it must be one of"),
    ],
)
def test_only_other_columns_of_plain_types_can_be_public(table, register, columns, message):
    with pytest.raises(psycopg.Error, match=message):
        register(table, public_columns=columns)


def test_a_key_whose_type_changed_is_refused(connection, dataset, spent):
    name = dataset()
    connection.execute("alter table t alter g type varchar(9)")
    with pytest.raises(psycopg.Error, match=r"column 'g' of .* was text .* and is now character varying"):
        trained(connection, "server", name)
    assert spent(name) == (0, 0)


# --- what goes wrong after the charge ----------------------------------------------------------------------------


def test_a_changed_group_is_reported_by_public_facts(connection, server_url, dataset, schema, spent):
    """In the client another session can come between the charge and the reading."""
    name = dataset(mode="basic")

    def move_a_row(stage: str, done: int, _total: int) -> None:
        if (stage, done) == ("group", 0):
            execute(server_url, f"update {schema}.t set g = 'a' where g = 'c'")

    with pytest.raises(ChargedError, match=r"'a' of 'g' had 41 rows while it was read, and 40 when it was counted"):
        trained(connection, "client", name, progress=move_a_row, delta=0.0)
    assert spent(name) == (10**9, 0)
    assert released(connection, name) == 0


@EVERY_INTERFACE
def test_models_are_stored_together_or_not_at_all(connection, dataset, spent, interface):
    """Storing fails at the second of the models."""
    name = dataset(mode="basic")
    refuse = "add constraint refuse check (receipt ->> 'group' is distinct from 'b') not valid"
    connection.execute(f"alter table dbdp.model {refuse}")
    try:
        with pytest.raises((ChargedError, psycopg.Error), match="the call failed after it was charged"):
            trained(connection, interface, name, ["a", "b"], delta=0.0)
    finally:
        connection.execute("alter table dbdp.model drop constraint refuse")
    assert spent(name) == (10**9, 0)
    assert released(connection, name) == 0


def test_groups_are_distributed_to_a_table_only(connection, dataset):
    name = dataset()
    for target in ("", "nowhere", "pg_temp.t (bucket, block); drop table t; --"):
        with pytest.raises(
            psycopg.Error, match=r"^dbdp: target = .* is not a table; create one with the columns bucket"
        ):
            connection.execute("select dbdp_internal.deal_groups(%s, %s, 'g', '{a}', '{1}')", (name, target))
    assert connection.execute("select count(*) > 0 from t").fetchone() == (True,)


# --- interfaces ---------------------------------------------------------------------------------------------------


def test_an_analyst_trains_groups_without_reading_the_table(connection, dataset, analyst):
    name = dataset()
    connection.execute("select dbdp.grant_training(%s, %s)", (name, analyst))
    with acting(connection, analyst):
        database = connect(connection)
        explanation = database.explain_groups(name, Request(1.0), group_by="g", groups=GROUPS)
        models = database.train_groups(name, Request(1.0), group_by="g", groups=GROUPS)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select count(*) from t group by g")
    assert explanation["groups"] == {group: model.receipt["rows"] for group, model in models.items()} == SIZES
    assert {model.receipt["released_by"] for model in models.values()} == {analyst}
    assert all(model.feature_names == ["x[1]", "x[2]", "x[3]"] for model in models.values())


ODD_NAMES = ("$1", "cost $1 $4 $6", "{record} {0} %s", "a'b\"c\\d; --")


@EVERY_INTERFACE
@pytest.mark.parametrize("odd", ODD_NAMES)
def test_names_that_look_like_parameters_are_names(connection, server_url, schema, register, odd, interface):
    """Of columns, labels, categories and groups: all rows of the class are learned as its."""
    names = [psycopg.sql.Identifier(f"{letter}{odd}").as_string(connection) for letter in "lxk"]
    connection.execute(f"create table odd ({names[0]} text, {names[1]} float8, {names[2]} text, g text)")
    for number in range(40):
        row = (odd if number % 2 else "other", float(number % 2), odd, odd if number < 20 else "b")
        connection.execute("insert into odd values (%s, %s, %s, %s)", row)
    features = {f"x{odd}": [0, 1], f"k{odd}": [odd, "none"]}
    given = {"label": f"l{odd}", "positive": odd, "negative": "other", "public_columns": ["g"]}
    name = register("odd", features=features, epsilon=1e6, delta=1e-2, **given)
    if interface == "client":
        with connect(server_url) as database:
            request = Request(1e5, algorithm="bolt_on", batch_size=5, epochs=20)
            models = database.train_groups(name, request, group_by="g", groups=[odd, "b"])
            numbers = [model.id for model in models.values()]
    else:
        sql = (
            "select model from dbdp.dp_train_groups(%s, 'g', %s, 1e5, algorithm => 'bolt_on', batch_size => 5, "
            "epochs => 20)"
        )
        numbers = [number for (number,) in connection.execute(sql, (name, [odd, "b"])).fetchall()]
    for number in numbers:
        label = names[0].replace("%", "%%")
        wrong = f"select count(*) from odd as o where dbdp.predict({number}, o) <> (o.{label} = %s)"
        assert connection.execute(wrong, (odd,)).fetchone() == (0,)
