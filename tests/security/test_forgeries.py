"""Forged models, states, blocks, rows and plans, passed to internal functions."""

import json
import random
from collections.abc import Callable

import numpy as np
import psycopg
import pytest
from attacker import TRAIN, attempt
from observing import most_memory
from released import released

from dbdp.learning.losses import Logistic
from dbdp.learning.noisy import NoisyState, NoisyTraining, UpdateNoise
from dbdp.learning.objectives import Linear
from dbdp.learning.rows.encoding import pack
from dbdp.learning.schedules import Constant
from dbdp.learning.state import State
from dbdp.privacy.accounting.events import MOST_LEVELS

pytestmark = pytest.mark.security
Given = tuple[bytes | str | int | float | None, ...]

PROBABILITY = "select dbdp.predict_probability(%s, array[.1, .2, .3])"
FORGED = "select dbdp_internal.learn(%s, 0, %s, 'binary')"


def forged(session: psycopg.Connection, model: int) -> str:
    """The description of a model, with weights of the forger's."""
    [(description,)] = session.execute("select dbdp_internal.model_description(%s)", (model,)).fetchall()
    return json.dumps(json.loads(description) | {"coefficients": [0, 0, 0], "intercept": 50})


@pytest.mark.parametrize("call", ["learn", "try_learn"])
@pytest.mark.attack("forged-description")
def test_no_forged_description_is_learned(analyst, dataset, call):
    """Whoever passes it, a function that alice meets in a view too. The control: the server's own text is learned."""
    model = analyst.execute(TRAIN, (dataset,)).fetchone()[0]
    [(true,)] = analyst.execute(PROBABILITY, (model,)).fetchall()
    description = forged(analyst, model)
    analyst.execute("discard all")
    sql = FORGED.replace("learn", call)
    if call == "learn":
        with pytest.raises(psycopg.Error, match=r"the description of model .* is not the server's; call dbdp\.predict"):
            analyst.execute(sql, (model, description))
    else:
        assert analyst.execute(sql, (model, description)).fetchone() == (None,)
    assert analyst.execute(PROBABILITY, (model,)).fetchone() == (true,)
    own = f"select dbdp_internal.learn({model}, 0, dbdp_internal.model_description({model}), 'binary')"
    assert analyst.execute(own).fetchone() == (True,)


@pytest.mark.attack("forged-description")
def test_no_text_is_vouched_for_but_the_servers(arena, analyst, owner, dataset):
    """The one function with its owner's rights shows and lends nothing: a model's number is no right to it."""
    model = owner.execute(TRAIN, (dataset,)).fetchone()[0]
    assert attempt(analyst, "select dbdp_internal.vouch(%s, 0, %s)", model, forged(owner, model)) == "42501"
    assert analyst.execute(f"select dbdp_internal.vouched({model}, 0)").fetchone() == (True,)
    assert analyst.execute(f"select dbdp_internal.described({model}, 0)").fetchone() == (None,)
    for description in (forged(owner, model), None):
        assert attempt(analyst, FORGED, model, description) == "DP001"
    assert attempt(analyst, PROBABILITY, model) == "DP001"


@pytest.mark.attack("forged-description")
def test_a_forged_number_of_a_name_is_not_remembered(arena, analyst, dataset):
    """In the statement that predicts. The control: the name's own number is."""
    named = TRAIN.replace("epochs", "name => '{}', epochs")
    numbers = [
        analyst.execute(named.format(f"{dataset}_{letter}"), (dataset,)).fetchone()[0] for letter in ("right", "wrong")
    ]
    forging = (
        "dbdp_internal.note_number('{d}_right', {n}, 'binary', date_part('epoch', statement_timestamp())) is not null"
    )
    predict = f"select dbdp.predict_probability('{dataset}_right', array[.1, .2, .3])"
    answers = []
    for number in numbers:
        analyst.execute("discard all")
        analyst.execute(PROBABILITY, (numbers[1],))  # it has a scorer
        analyst.execute(PROBABILITY, (numbers[0],))
        answers.append(analyst.execute(f"{predict} where {forging.format(d=dataset, n=number)}").fetchone())
    assert answers[0] == answers[1] == analyst.execute(predict).fetchone()
    assert answers[0] != analyst.execute(PROBABILITY, (numbers[1],)).fetchone()


@pytest.mark.attack("forged-description")
def test_scorers_of_one_role_are_none_of_anothers(arena, admin, owner, analyst, dataset):
    """A pool may give one backend to several roles, and a function of another role may run in the session."""
    model = analyst.execute(TRAIN, (dataset,)).fetchone()[0]
    analyst.execute("select dbdp.grant_prediction(%s, %s)", (model, arena.names["owner"]))
    [(true,)] = analyst.execute(PROBABILITY, (model,)).fetchall()
    owner.execute(
        f"create function decide() returns float8 language sql security definer as $$ {PROBABILITY % model} $$"
    )
    admin.execute(f"set session authorization {arena.names['analyst']}")
    assert admin.execute(PROBABILITY, (model,)).fetchone() == (true,)
    assert admin.execute(f"select {arena.names['owner']}.decide()").fetchone() == (true,)
    admin.execute(f"set session authorization {arena.names['colleague']}")
    assert attempt(admin, PROBABILITY, model) == "DP001"
    admin.execute("reset session authorization")
    owner.execute("drop function decide()")


def mutated(value: bytes) -> bytes:
    """Bytes with some of them changed, cut off, put in or repeated."""
    changed = bytearray(value)
    for _ in range(random.choice((1, 1, 2, 8))):
        place = random.randrange(len(changed) or 1)
        kind = random.random()
        if kind < 0.5 and changed:
            changed[place] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
        elif kind < 0.7:
            changed[place : place + 8] = random.choice((2**63 - 1, 2**31, 0, 2**64 - 1, 1 << 40)).to_bytes(8, "little")
        elif kind < 0.8:
            del changed[place:]
        elif kind < 0.9:
            changed[place:place] = random.randbytes(random.choice((1, 8, 64)))
        else:
            changed += changed[place:]
    return bytes(changed)


def state() -> bytes:
    how = {"batch_size": 7, "regularisation": 0.1, "dimension": 4}
    return State.initial(loss=Logistic(), schedule=Constant(0.5), **how).encode()


def noisy_state() -> bytes:
    noise = UpdateNoise("gaussian", 1000, 2.0**-30)
    return NoisyState.initial(NoisyTraining(Linear(Logistic(), 4), Constant(0.5), 7.0, 7, 0.1, 1.0, noise)).encode()


def block() -> bytes:
    return pack(np.random.default_rng().normal(size=(20, 4)), np.ones(20)).tobytes()


VECTOR = np.zeros(4).tobytes()
OBJECTIVE = json.dumps(Linear(Logistic(), 4).as_data()).encode()
KERNELS: dict[str, tuple[str, Callable[[], Given]]] = {
    "sgd_transition": ("%s, %s, null", lambda: (state(), block())),
    "sgd_terminate": ("%s", lambda: (state(),)),
    "noisy_transition": ("%s, %s, null", lambda: (noisy_state(), block())),
    "noisy_terminate": ("%s", lambda: (noisy_state(),)),
    "gradient_transition": (
        "%s, %s, %s, convert_from(%s, 'latin1'), 1",
        lambda: (2 * VECTOR, block(), VECTOR, OBJECTIVE),
    ),
    "loss_transition": ("%s, %s, %s, convert_from(%s, 'latin1'), 1", lambda: (VECTOR[:16], block(), VECTOR, OBJECTIVE)),
    "label_transition": ("null, %s, 4, 1", lambda: (block(),)),
    "count_errors_transition": ("0, %s, %s, 1", lambda: (block(), VECTOR)),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("times", [60, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.attack("forged-states")
def test_no_forged_state_or_block_brings_a_backend_down(owner, name, times):
    """A data owner may call what trains; the control is what is not forged."""
    arguments, make = KERNELS[name]
    sql = f"select dbdp_internal.{name}({arguments})"
    owner.execute("set statement_timeout = '120s'")
    owner.execute(sql, make())
    pid, refused = owner.info.backend_pid, 0
    for _ in range(times):
        given = list(make())
        place = random.randrange(len(given))
        given[place] = mutated(given[place]).replace(b"\0", b" " if given[place] == OBJECTIVE else b"\0")
        refused += attempt(owner, sql, *given) is not None
        assert not owner.closed, given
    assert owner.execute("select pg_backend_pid()").fetchone() == (pid,)
    assert refused


WIDE = json.dumps({"kind": "linear", "loss": 1, "settings": [0, 1], "inputs": 4, "outputs": 1, "target": 0})
EMPTY, MOST_INT = b"", 2**31 - 1
HUGE = {
    "outputs of no model": ("count_errors_transition(0, %s, %s, %s)", (bytes(64), EMPTY, 20_000_000)),
    "the most outputs": ("count_errors_transition(0, %s, %s, %s)", (bytes(64), EMPTY, MOST_INT)),
    "outputs below zero": ("count_errors_transition(0, %s, %s, %s)", (bytes(64), EMPTY, -1)),
    "no output": ("count_errors_transition(0, %s, %s, %s)", (bytes(64), EMPTY, 0)),
    "outputs of a model without coordinates": ("count_errors_transition(0, %s, %s, %s)", (bytes(64), EMPTY, 1000)),
    "classes": ("label_transition(null, %s, %s, %s)", (bytes(64), 4, MOST_INT)),
    "a dimension below zero": ("label_transition(null, %s, %s, %s)", (bytes(64), -9, 1)),
    "no dimension": ("label_transition(null, %s, %s, %s)", (bytes(64), 0, 1)),
    "a long block": ("label_transition(null, %s, %s, %s)", (bytes(2**21), 4, 1)),
    "a long block, and as many models as there are": (
        "count_errors_transition(0, %s, %s, %s)",
        (bytes(2**25), bytes(8 * 1000), 1000),
    ),
    **{
        f"{name} = {value} of an objective": (
            "gradient_transition(null, %s, %s, %s, 1)",
            (EMPTY, EMPTY, json.dumps(json.loads(WIDE) | {name: value})),
        )
        for name, value in (
            ("inputs", 10**9),
            ("inputs", 10**30),
            ("inputs", 0),
            ("inputs", -4),
            ("inputs", 4.5),
            ("inputs", True),
            ("outputs", 10**9),
            ("outputs", 0),
            ("target", -1),
            ("target", 10**20),
        )
    },
    "a model of another length": ("gradient_transition(null, %s, %s, %s, 1)", (bytes(32), bytes(16), WIDE)),
    "losses at odd models": ("loss_transition(null, %s, %s, %s, 1)", (bytes(32), bytes(8 * 5), WIDE)),
    "an objective without end": ("loss_transition(null, %s, %s, %s, 1)", (bytes(32), bytes(32), "[" * 100_000)),
    "a network of 10^9 units": (
        "gradient_transition(null, %s, %s, %s, 1)",
        (
            EMPTY,
            EMPTY,
            '{"kind": "network", "inputs": 4, "outputs": 1, "intercept": true, "scale": 1, "channels": [], '
            '"hidden": [1000000000]}',
        ),
    ),
}


@pytest.mark.usefixtures("server_machine")
@pytest.mark.attack("proportions")
def test_no_internal_aggregate_takes_excess_memory(arena):
    """The control is the largest call that is none: 1,000 models at a block of a MiB, whose scores are measured."""
    with arena.login("owner") as fresh:
        fresh.execute("set statement_timeout = '60s'")
        fresh.execute("select dbdp_internal.count_errors_transition(0, %s, %s, 1)", (block(), VECTOR))
        begun = most_memory(fresh)
        for name, (call, given) in HUGE.items():
            assert attempt(fresh, f"select dbdp_internal.{call}", *given) is not None, name
        assert most_memory(fresh) - begun < 200 * 2**20  # the longest block itself, some times
        fresh.execute("select dbdp_internal.count_errors_transition(0, %s, %s, 1000)", (bytes(2**20), bytes(32 * 1000)))
        assert most_memory(fresh) - begun > 220 * 2**20


@pytest.mark.parametrize(
    "sizes",
    [
        {"outputs": 10**9},
        {"outputs": 0},
        {"tally": {"kind": "Labels", "classes": 10**9}},
        {"tally": {"kind": "ScoreBins", "bins": 10**10, "output": 0, "softmax": False}},
        {"tally": {"kind": "ScoreBins", "bins": -1, "output": 0, "softmax": False}},
        {"dimension": -1},
        {"dimension": 10**12},
    ],
    ids=str,
)
@pytest.mark.attack("proportions")
def test_a_forged_tally_is_bounded(admin, sizes):
    """Nobody but dbdp_owner may call it; it is bounded all the same."""
    sound = {"tally": {"kind": "Correct"}, "outputs": 1, "dimension": 4, "network": None}
    call = "select dbdp_internal.tally_transition(null, %s, %s, %s)"
    admin.execute(call, (block(), VECTOR, json.dumps(sound)))
    assert attempt(admin, call, block(), VECTOR, json.dumps(sound | sizes)) is not None


@pytest.mark.attack("predictions")
def test_predictions_determine_a_linear_model(analyst, dataset):
    """Stated: who may predict with a model has the model, whatever is shown of it."""
    [made] = released(
        analyst, "dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', batch_size => 20, epochs => 2)", (dataset,)
    )
    model, weights, intercept = (made[each] for each in ("model", "coefficients", "intercept"))
    rows = np.vstack([np.zeros(3), 0.5 * np.eye(3)])
    sql = "select dbdp.predict_probability(%s, %s::float8[])"
    probabilities = np.array([analyst.execute(sql, (model, row.tolist())).fetchone()[0] for row in rows])
    lengths = np.sqrt([3**-0.5, *[0.5**2 + 3**-0.5] * 3])  # a row and the constant beside it are divided by their norm
    scores = lengths * (np.log(probabilities) - np.log1p(-probabilities))
    assert scores[0] == pytest.approx(intercept, rel=1e-6, abs=1e-9)
    assert 2 * (scores[1:] - scores[0]) == pytest.approx(weights, rel=1e-5, abs=1e-6)


@pytest.mark.attack("forged-states")
def test_no_forged_description_brings_a_backend_down(arena, admin, analyst, dataset):
    """Not even one that the server vouches for, with columns of any length and alignment."""
    admin.execute(f"grant execute on function dbdp_internal.vouch to {arena.names['analyst']}")
    model = analyst.execute(TRAIN, (dataset,)).fetchone()[0]
    analyst.execute("create temporary table forged_rows as select 1.5::float8 as v, 'a'::text as k, 3::int2 as i")
    [(row_type,)] = analyst.execute("select 'forged_rows'::regtype::oid::int8").fetchall()
    declaration = {"label": "y", "positive": "1", "features": {"v": [0, 2], "k": ["a", "b"], "i": [0, 9]}}
    columns = {"v": ["double precision", 8, "d"], "k": ["text", -1, "i"], "i": ["smallint", 2, "s"]}
    sound = {"declaration": declaration, "coefficients": [1, 2, 3, 4], "intercept": 0, "intercepts": [0]}
    sound |= {"network": None, "parameters": None, "columns": columns, "dropped": False}
    odd = (1, 3, 0, -2, -1, 2**31, 2**63 - 1, 40_000, "x", None)
    for length in odd:
        for column in columns:
            for align in ("d", "", "cccccc", "\u0000"):
                forging = columns | {column: [columns[column][0], length, align]}
                description = json.dumps(sound | {"columns": forging}).replace("\\u0000", "?")
                analyst.execute("select dbdp_internal.vouch(%s, %s::oid, %s)", (model, row_type, description))
                attempt(analyst, "select dbdp_internal.learn(%s, %s::oid, %s, 'binary')", model, row_type, description)
                attempt(
                    analyst,
                    "select dbdp_internal.predict_stored(%s, dbdp_internal.row_bytes(r), 0) from forged_rows as r",
                    model,
                )
                attempt(
                    analyst,
                    "select dbdp_internal.predict(%s, %s::oid, record_send(r)) from forged_rows as r",
                    model,
                    row_type,
                )
    for _ in range(300):
        row = mutated(analyst.execute("select record_send(r) from forged_rows as r").fetchone()[0])
        assert attempt(analyst, "select dbdp_internal.predict(%s, %s::oid, %s)", model, row_type, row) in (
            None,
            "38000",
        )
        attempt(analyst, "select dbdp_internal.predict_stored(%s, %s, 0)", model, row)
        attempt(analyst, "select dbdp_internal.predict(%s, 0::oid, %s)", model, row)
    assert analyst.execute("select 1").fetchone() == (1,)
    admin.execute(f"revoke execute on function dbdp_internal.vouch from {arena.names['analyst']}")


@pytest.mark.attack("raw-bytes")
def test_the_bytes_of_a_value_are_its_own_and_no_others(arena, analyst):
    """What lies between its parts is empty, whatever the memory held before; so two sessions see the same."""
    analyst.execute("create type pair as (a boolean, b float8, c text, d smallint, e bytea)")
    values = (
        "dbdp_internal.array_bytes(array[1, null, 2]::float8[])",
        "dbdp_internal.array_bytes(array[1]::float4[] || 2::float4)",
        "dbdp_internal.array_bytes('{}'::float8[])",
        "dbdp_internal.row_bytes((true, 1.5, 'abc', 7, null)::pair)",
        "dbdp_internal.row_bytes((null, null, repeat('x', 300), null, null)::pair)",
    )
    garbage = "select md5(string_agg(repeat(chr(65 + i % 50), i), '')) from generate_series(1, 400) as i"
    with arena.login("analyst") as other:
        other.execute(f"set search_path = {arena.names['analyst']}")
        for value in values:
            seen = set()
            for session in (analyst, other) * 10:
                session.execute(garbage)
                seen.add(session.execute(f"select {value}").fetchone()[0])
            assert len(seen) == 1, value
    analyst.execute("drop type pair")


PURE = {"event": "EpsilonDeltaDpEvent", "epsilon": 1, "delta": 0}
OUTER, INNER = '{"event": "SelfComposedDpEvent", "composed": ', ', "count": 1000000000000}'
NESTS = [OUTER * depth + json.dumps(PURE) + INNER * depth for depth in (MOST_LEVELS, 400, 20_000)]
PLANS = (
    "null",
    "5",
    "[]",
    "{}",
    '{"guarantee": null}',
    json.dumps({"guarantee": {"epsilon": 1, "delta": 0, "event": PURE}}),
    json.dumps({"algorithm": 5, "guarantee": {"epsilon": 1, "delta": 0, "event": PURE}}),
    *(
        f'{{"algorithm": "bolt_on", "guarantee": {guarantee}}}'
        for guarantee in (
            '{"epsilon": -1, "delta": 0, "event": {"event": "EpsilonDeltaDpEvent", "epsilon": -1, "delta": 0}}',
            '{"epsilon": 0, "delta": 0, "event": {"event": "EpsilonDeltaDpEvent", "epsilon": 0, "delta": 0}}',
            '{"epsilon": 1, "delta": -0.5, "event": {"event": "EpsilonDeltaDpEvent", "epsilon": 1, "delta": -0.5}}',
            '{"epsilon": true, "delta": false, "event": {"event": "ZCDpEvent", "rho": 1}}',
            '{"epsilon": "1", "delta": 0, "event": {"event": "ZCDpEvent", "rho": 1}}',
            '{"epsilon": 1e400, "delta": 0, "event": {"event": "ZCDpEvent", "rho": 1}}',
            '{"epsilon": 1, "delta": 0, "event": {"event": "ZCDpEvent", "rho": -1}}',
            '{"epsilon": 1, "delta": 0, "event": {"event": "__class__"}}',
            '{"epsilon": 1, "delta": 0, "event": []}',
            '{"epsilon": 1, "delta": 0, "event": {"event": "ComposedDpEvent", "events": []}}',
            '{"epsilon": 1, "delta": 0, "event": {"event": "SelfComposedDpEvent", "composed": {"event": "ZCDpEvent", '
            '"rho": 1}, "count": -1}}',
            *(f'{{"epsilon": 1, "delta": 0, "event": {nest}}}' for nest in NESTS),
            "[" * 3000 + "]" * 3000,
        )
    ),
)


@pytest.mark.parametrize("mode", ["basic", "renyi", "gaussian"])
@pytest.mark.attack("forged-plan")
def test_no_forged_plan_turns_an_odometer_back(arena, admin, owner, spent, make, mode):
    """Who may read a table charges as a client, with a plan in its own words."""
    name = make()
    if mode != "basic":
        owner.execute("select dbdp.drop_dataset(%s)", (name,))
        sql = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 8, 1e-3, mode => %s)"
        owner.execute(sql, (name, name, '{"x": {"length": 3, "norm": 1}}', mode))
    for plan in PLANS:
        assert attempt(owner, "select dbdp_internal.charge(%s, %s::json)", name, plan) in ("DP001", "54001"), plan[:200]
        assert spent(name) == (0, 0), plan[:200]
    sql = "select count(*) from dbdp.ledger as l join dbdp.dataset as d on d.id = l.dataset_id where d.name = %s"
    assert admin.execute(sql, (name,)).fetchone() == (0,)


TABLES = (
    "t (block_no, block) select 1, null; --",
    "t; drop table t; --",
    '"t" (block_no) values (1) --',
    "pg_catalog.pg_class",
    "dbdp.ledger",
    "no_such_table",
    "",
    None,
)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.attack("block-table")
def test_the_table_for_blocks_is_a_name_and_no_sql(owner, dataset, table):
    owner.execute("create temporary table t (block_no int8, block bytea)")
    assert attempt(owner, "select dbdp_internal.shuffle(%s, %s)", dataset, table) in (
        "DP001",
        "42602",
        "42501",
        "42703",
    )
    assert owner.execute("select count(*) from t").fetchone() == (0,)
    odd = 'pg_temp."odd (block_no, block) select 1, null; --"'
    owner.execute(f"create temporary table {odd.removeprefix('pg_temp.')} (block_no int8, block bytea)")
    owner.execute("select dbdp_internal.shuffle(%s, %s)", (dataset, odd))  # whatever its name, a table is filled
    assert owner.execute(f"select octet_length(block) from {odd}").fetchall() == [(60 * 8 * 4,)]
