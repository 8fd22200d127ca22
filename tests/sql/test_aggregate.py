"""dbdp_internal.sgd_epoch holds the same contract as a plain loop over the rows in the client."""

import math
import struct

import numpy as np
import psycopg
import pytest

from dbdp.learning.losses import Logistic
from dbdp.learning.rows import blocks
from dbdp.learning.schedules import NONE, Averaging, Constant, InverseTime, Schedule
from dbdp.learning.state import State

ROWS, FEATURES, PER_BLOCK = 997, 11, 120
BATCH_SIZES = [1, 7, 40, 120, 121, 500, ROWS]  # dividing and not dividing the block and n, above the block
SCHEDULES = {
    "constant": (Constant(1.7), 0.0),
    "constant, regularised": (Constant(0.9), 0.05),
    "inverse_time": (InverseTime(0.26, 0.01), 0.01),
}


def records() -> tuple[np.ndarray, np.ndarray]:
    """Rows with ‖x‖ < 1 and labels, as float32 stores them."""
    random = np.random.default_rng(5)
    features = random.normal(size=(ROWS, FEATURES))
    features /= np.linalg.norm(features, axis=1)[:, None] * random.uniform(1.001, 3, size=(ROWS, 1))
    return features.astype(np.float32).astype(float), np.where(random.random(ROWS) < 0.4, 1.0, -1.0)


def plain_loop(batch_size: int, schedule: str, epochs: int) -> np.ndarray:
    """Mini-batch SGD as privacy.md §0 writes it, a row at a time; a short batch is divided by batch_size."""
    features, labels = records()
    model, updates = np.zeros(FEATURES), 0
    _, regularisation = SCHEDULES[schedule]
    for _ in range(epochs):
        for first in range(0, ROWS, batch_size):
            gradient = np.zeros(FEATURES)
            for x, y in zip(features[first : first + batch_size], labels[first : first + batch_size], strict=True):
                gradient += -y * x / (1.0 + math.exp(y * float(x @ model)))
            updates += 1
            model = model - step_size(schedule, updates) * (gradient / batch_size + regularisation * model)
    return model


def step_size(schedule: str, update: int) -> float:
    """The published formulas, not the library's."""
    if schedule == "inverse_time":
        return min(1 / 0.26, 1 / (0.01 * update))
    return {"constant": 1.7, "constant, regularised": 0.9}[schedule]


def initial(batch_size: int, schedule: Schedule, regularisation: float, dimension: int = FEATURES) -> bytes:
    return State.initial(
        loss=Logistic(), schedule=schedule, batch_size=batch_size, regularisation=regularisation, dimension=dimension
    ).encode()


@pytest.fixture
def packed(connection: psycopg.Connection) -> psycopg.Connection:
    """The records in a temporary table of blocks, stored in another order than block_no."""
    rows = blocks.encode(*records())
    connection.execute("create temporary table blocks (block_no int8, block bytea)")
    for number in reversed(range(0, ROWS, PER_BLOCK)):
        block = rows[number : number + PER_BLOCK].tobytes()
        connection.execute("insert into blocks values (%s, %s)", (number, block))
    return connection


def in_server(connection: psycopg.Connection, state: bytes, epochs: int) -> State:
    for _ in range(epochs):
        sql = "select dbdp_internal.sgd_epoch(block, %s order by block_no) from blocks"
        state = connection.execute(sql, (state,)).fetchone()[0]
    return State.decode(state)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_the_aggregate_returns_the_model_of_a_plain_loop(packed, schedule, batch_size):
    trained = in_server(packed, initial(batch_size, *SCHEDULES[schedule]), epochs=3)
    expected = plain_loop(batch_size, schedule, epochs=3)
    assert np.abs(trained.model - expected).max() <= 1e-12 * max(1.0, np.abs(expected).max())
    assert np.abs(expected).max() > 1e-3  # else equal models would say nothing
    assert trained.updates == 3 * math.ceil(ROWS / batch_size)
    assert trained.filled == 0
    assert not trained.gradient.any()


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_several_models_in_one_pass_are_those_of_a_pass_each(packed, batch_size):
    states = [initial(batch_size, *SCHEDULES[name]) for name in SCHEDULES] * 2
    sql = "select dbdp_internal.sgd_epoch(block, %s order by block_no) from blocks"
    together = packed.execute(sql, (b"".join(states),)).fetchone()[0]
    alone = [packed.execute(sql, (state,)).fetchone()[0] for state in states]
    assert together == b"".join(alone)
    assert len(set(alone)) == len(SCHEDULES)


def test_models_of_different_dimensions_in_one_pass_are_refused(connection):
    """Equally long states: three vectors of eight numbers, and four of six."""
    states = [
        State.initial(
            loss=Logistic(),
            schedule=Constant(1.0),
            batch_size=4,
            regularisation=0.0,
            dimension=dimension,
            averaging=averaging,
        ).encode()
        for dimension, averaging in ((8, NONE), (6, Averaging(1)))
    ]
    assert len(states[0]) == len(states[1])
    rows = blocks.encode(np.zeros((8, 6)), np.ones(8)).tobytes()
    with pytest.raises(psycopg.Error, match="differ in their dimensions"):
        connection.execute("select dbdp_internal.sgd_epoch(%s::bytea, %s)", (rows, b"".join(states)))


def test_a_short_batch_divided_by_its_own_size_would_be_noticed():
    short = ROWS % 500
    assert short
    full, nominal = plain_loop(short, "constant", 1), plain_loop(500, "constant", 1)
    assert np.abs(full - nominal).max() > 1e-6


def test_the_order_of_block_no_counts(packed):
    state = initial(40, *SCHEDULES["constant"])
    backwards = "select dbdp_internal.sgd_epoch(block, %s order by block_no desc) from blocks"
    other = State.decode(packed.execute(backwards, (state,)).fetchone()[0])
    assert np.abs(other.model - in_server(packed, state, 1).model).max() > 1e-9


def test_no_rows_give_no_state(connection):
    sql = "select dbdp_internal.sgd_epoch(block, %s) from (select null::bytea as block where false) as none"
    assert connection.execute(sql, (initial(1, Constant(1.0), 0.0),)).fetchone() == (None,)


def test_the_aggregate_is_never_merged_nor_run_in_parallel(connection):
    sql = """
select aggcombinefn::int8, aggmtransfn::int8, aggserialfn::int8, p.proparallel, t.proparallel, f.proparallel
from pg_aggregate
join pg_proc as p on p.oid = aggfnoid
join pg_proc as t on t.oid = aggtransfn
join pg_proc as f on f.oid = aggfinalfn
where aggfnoid = 'dbdp_internal.sgd_epoch(bytea, bytea)'::regprocedure"""
    assert connection.execute(sql).fetchall() == [(0, 0, 0, "u", "u", "u")]


def damaged_states() -> dict[str, bytes]:
    good = initial(4, Constant(1.0), 0.0, dimension=3)
    field = struct.Struct("<q")

    def changed(offset: int, value: int) -> bytes:
        return good[:offset] + field.pack(value) + good[offset + 8 :]

    return {
        "empty": b"",
        "short": good[:-1],
        "long": good + b"\0",
        "other magic": b"xxxx" + good[4:],
        "unknown loss": good[:4] + b"\xff" + good[5:],
        "unknown schedule": good[:5] + b"\xff" + good[6:],
        "dimension 0": changed(8, 0),
        "dimension huge": changed(8, 2**62),
        "dimension negative": changed(8, -3),
        "batch size 0": changed(16, 0),
        "batch size negative": changed(16, -4),
        "filled above the batch size": changed(24, 4),
        "filled negative": changed(24, -1),
        "updates negative": changed(32, -1),
    }


def test_a_damaged_state_is_refused_and_the_session_lives(connection):
    rows = blocks.encode(np.zeros((8, 3)), np.ones(8)).tobytes()
    for damage in damaged_states():
        with pytest.raises(psycopg.Error, match=r"^ValueError: .+; "):
            connection.execute("select dbdp_internal.sgd_epoch(%s::bytea, %s)", (rows, damaged_states()[damage]))
        assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("length", [1, 31, 33, 8 * 32 - 4])
def test_a_block_of_another_length_is_refused(connection, length):
    state = initial(4, Constant(1.0), 0.0, dimension=3)
    with pytest.raises(psycopg.Error, match=f"block of {length} bytes is not a multiple of the 32 bytes of a row"):
        connection.execute("select dbdp_internal.sgd_epoch(%s::bytea, %s)", (b"\1" * length, state))


@pytest.mark.parametrize("arguments", [(None, b"state"), (b"", None)])
def test_a_null_is_refused_and_the_session_lives(connection, arguments):
    block, state = arguments
    given = (block, state and initial(4, Constant(1.0), 0.0))
    with pytest.raises(psycopg.errors.ExternalRoutineException):
        connection.execute("select dbdp_internal.sgd_epoch(%s::bytea, %s::bytea)", given)
    assert connection.execute("select 1").fetchone() == (1,)


def test_rows_that_no_packing_makes_count_as_zero_rows(connection):
    """Random bytes: NaN, infinities, norms above 1, labels that are none."""
    random = np.random.default_rng(7)
    noise = random.integers(0, 256, (5000, 32), dtype=np.uint8)
    wild = np.frombuffer(noise.tobytes(), np.float32).reshape(-1, 8).copy()
    wild[::2, -1] = 1.0
    with np.errstate(all="ignore"):
        wild[:, :3] *= 1e3
        valid = (np.abs(wild[:, -1]) == 1) & ((wild[:, :3].astype(float) ** 2).sum(1) <= 1)
    tame = np.where(valid[:, None], wild, np.float32(0))
    state, sql = initial(7, Constant(1.0), 0.0, dimension=3), "select dbdp_internal.sgd_epoch(%s::bytea, %s)"
    results = [State.decode(connection.execute(sql, (r.tobytes(), state)).fetchone()[0]) for r in (wild, tame)]
    assert np.isfinite(results[0].model).all()
    assert 0 < valid.sum() < len(valid)
    assert np.abs(results[0].model - results[1].model).max() <= 1e-12
