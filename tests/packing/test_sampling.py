"""Draws of packed rows, in memory or in a file: they are the rows at the drawn places."""

import json

import numpy as np
import psycopg
import pytest

from dbdp.algorithms.rows import RecursiveStages
from dbdp.learning.losses import Logistic
from dbdp.learning.objectives import Linear
from dbdp.learning.rows.encoding import pack
from dbdp.packing import resident
from dbdp.packing.record_store import RecordFile, RecordsInMemory
from dbdp.packing.sampling import _Rows

FEATURES, ROWS = 50, 12_000  # 2.7 MB
OBJECTIVE = Linear(Logistic(), FEATURES)
CALL = "select dbdp_internal.recursive_stages('pg_temp.packed', %s, %s, %s, %s::json)"


def rows_of(seed):
    return pack(np.random.default_rng(seed).normal(size=(ROWS, FEATURES)), np.ones(ROWS))


class Asked:
    """A session that answers with the setting of the memory."""

    def __init__(self, memory):
        self.memory = memory

    def query(self, sql):
        return [{"setting": self.memory}]

    def pause(self):
        pass


@pytest.fixture(params=["in memory", "in a file"])
def stored(request, tmp_path):
    """Hold the rows for the table `packed`."""
    rows = rows_of(1)
    if request.param == "in memory":
        store = RecordsInMemory(rows)
    else:
        store = RecordFile(str(tmp_path), rows.shape[1] * rows.itemsize)
        store.write(0, rows)
    with resident.forgotten():
        resident.hold("packed", store)
        yield rows


@pytest.mark.parametrize("memory", ["64MB", "1MB"])
def test_drawn_places_are_read_and_the_gradient_is_of_all(stored, memory):
    """The rows at the places are read and the gradient is that of all rows."""
    kept, model = _Rows(Asked(memory), "pg_temp.packed", OBJECTIVE, ROWS), np.linspace(-1, 1, FEATURES)
    expected = OBJECTIVE.gradient_sum(model, stored)
    for _ in range(4):
        places = np.random.default_rng().integers(ROWS, size=min(kept.most, 2 * ROWS))
        drawn, total = kept.read(places, model)
        assert np.array_equal(drawn, stored[places])
        assert total == pytest.approx(expected, abs=1e-9)


@pytest.fixture
def packed(connection: psycopg.Connection, schema, register):
    """Hold rows that are all the same: then it does not matter which are drawn."""
    connection.execute(
        "create table equal_rows as select array_fill(0.5::float8, array[%s]) x, 1 y from generate_series(1, %s)",
        (FEATURES, ROWS),
    )
    name = register("equal_rows", features={"x": {"length": FEATURES, "norm": 10}}, intercept=False)

    def fill(memory):
        connection.execute(f"set dbdp.pack_memory = '{memory}'")
        connection.execute("create temporary table packed (block_no int8, block bytea)")
        options = json.dumps({"held": True, "coding": {"encoding": "scaled"}})
        connection.execute("select dbdp_internal.shuffle(%s, 'pg_temp.packed', %s::json)", (name, options))
        return pack(np.full((ROWS, FEATURES), 0.05), np.ones(ROWS))

    yield fill
    connection.execute("select dbdp_internal.forget_blocks('pg_temp.packed'); drop table if exists pg_temp.packed")


def arguments(how):
    vectors = np.linspace(-1, 1, FEATURES), np.ones(FEATURES)
    return *(each.tobytes() for each in vectors), json.dumps(OBJECTIVE.as_data()), json.dumps(how)


@pytest.mark.parametrize("memory", ["64MB", "1MB"])
def test_stages_in_the_server_are_those_of_the_objective(connection, packed, memory):
    rows = packed(memory)
    how = {"stages": 3, "steps": 5000, "step": 0.1, "regularisation": 0.01, "rows": ROWS}
    end = np.frombuffer(connection.execute(CALL, arguments(how)).fetchone()[0], "<f8")
    model, centre = np.linspace(-1, 1, FEATURES), np.ones(FEATURES)
    for _ in range(3):
        direction = OBJECTIVE.gradient_sum(model, rows) / ROWS + 0.01 * (model - centre)
        OBJECTIVE.recursive_steps(model, direction, rows[:5000], step=0.1, regularisation=0.01)
    assert end == pytest.approx(model, abs=1e-10)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": ROWS - 1}, "planned 11999 packed rows"),
        ({"rows": ROWS + 1}, "planned 12001 packed rows"),
        ({"steps": 0}, "steps = 0"),
        ({"step": "wide"}, "pass only these"),
        ({"noise": 1}, "pass only these"),
    ],
)
def test_stages_that_do_not_fit_the_table_are_refused(connection, packed, changed, message):
    packed("64MB")
    how = {"stages": 1, "steps": 10, "step": 0.1, "regularisation": 0.01, "rows": ROWS} | changed
    with pytest.raises(psycopg.Error, match=message):
        connection.execute(CALL, arguments(how))


def test_stages_are_public_facts_that_are_checked():
    with pytest.raises(ValueError, match="rows = 0"):
        RecursiveStages(1, 1, 0.1, 0.1, 0)
