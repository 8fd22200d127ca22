"""Draws of packed rows from a table of blocks: in memory, or in each pass, they are the rows at the drawn places."""

import json
from itertools import pairwise

import numpy as np
import psycopg
import pytest

from dbdp.algorithms.rows import RecursiveStages
from dbdp.learning.losses import Logistic
from dbdp.learning.objectives import Linear
from dbdp.learning.rows import blocks
from dbdp.learning.rows.encoding import pack
from dbdp.packing.draws import _Rows

FEATURES, ROWS = 50, 12_000  # 2.7 MB
OBJECTIVE = Linear(Logistic(), FEATURES)
CALL = "select dbdp_internal.recursive_stages('pg_temp.packed', %s, %s, %s, %s::json)"


def rows_of(seed, *, same=False):
    random = np.random.default_rng(seed)
    features = random.normal(size=(1 if same else ROWS, FEATURES))
    return np.repeat(pack(features, np.ones(len(features))), ROWS // len(features), axis=0)


def pieces(rows):
    """Blocks of a packing through buckets: each of them ends with a shorter one."""
    full = blocks.rows_per_block(FEATURES)
    bounds = [0, full, full + 77, 2 * full + 77, 2 * full + 78, len(rows)]
    return [rows[first:last] for first, last in pairwise(bounds) if last > first]


class Answers:
    """A session that has the blocks; `scans` counts how often they were read."""

    def __init__(self, rows, memory):
        self.rows, self.memory, self.scans = rows, memory, 0

    def query(self, sql):
        return [{"setting": self.memory}]

    def pause(self):
        pass

    def stream(self, sql):
        self.scans += 1
        yield from ({"block": piece.tobytes()} for piece in pieces(self.rows))


@pytest.mark.parametrize(("memory", "scans"), [("64MB", 1), ("1MB", 4)])
def test_the_rows_at_the_places_are_read_and_once_if_they_fit(memory, scans):
    session = Answers(rows_of(1), memory)
    kept, model = _Rows(session, "packed", OBJECTIVE, ROWS), np.linspace(-1, 1, FEATURES)
    expected = OBJECTIVE.gradient_sum(model, session.rows)
    for _ in range(4):
        places = np.random.default_rng().integers(ROWS, size=kept.most // 2)
        drawn, total = kept.read(places, model)
        assert np.array_equal(drawn, session.rows[places])
        assert total == pytest.approx(expected, abs=1e-9)
    assert session.scans == scans


@pytest.fixture
def packed(connection: psycopg.Connection):
    """Fill the temporary table with rows that are all the same: then it does not matter which are drawn."""
    rows = rows_of(2, same=True)
    with connection.transaction(force_rollback=True):
        connection.execute("create temporary table packed (block_no int8, block bytea)")
        for number, piece in enumerate(pieces(rows)):
            connection.execute("insert into packed values (%s, %s)", (number, piece.tobytes()))
        yield rows


def arguments(how):
    vectors = np.linspace(-1, 1, FEATURES), np.ones(FEATURES)
    return *(each.tobytes() for each in vectors), json.dumps(OBJECTIVE.as_data()), json.dumps(how)


@pytest.mark.parametrize("memory", ["64MB", "1MB"])
def test_stages_in_the_server_are_those_of_the_objective(connection, packed, memory):
    how = {"stages": 3, "steps": 5000, "step": 0.1, "regularisation": 0.01, "rows": ROWS}
    connection.execute(f"set local dbdp.pack_memory = '{memory}'")
    end = np.frombuffer(connection.execute(CALL, arguments(how)).fetchone()[0], "<f8")
    model, centre = np.linspace(-1, 1, FEATURES), np.ones(FEATURES)
    for _ in range(3):
        direction = OBJECTIVE.gradient_sum(model, packed) / ROWS + 0.01 * (model - centre)
        OBJECTIVE.recursive_steps(model, direction, packed[:5000], step=0.1, regularisation=0.01)
    assert end == pytest.approx(model, abs=1e-10)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": ROWS - 1}, "planned 11999 packed rows"),
        ({"rows": ROWS + 1}, "planned 12001 packed rows"),
        ({"steps": 0}, "steps = 0"),
        ({"step": "wide"}, "pass these alone"),
        ({"noise": 1}, "pass these alone"),
    ],
)
def test_stages_that_do_not_fit_the_table_are_refused(connection, packed, changed, message):
    how = {"stages": 1, "steps": 10, "step": 0.1, "regularisation": 0.01, "rows": ROWS} | changed
    with pytest.raises(psycopg.Error, match=message):
        connection.execute(CALL, arguments(how))


def test_stages_are_public_facts_that_are_checked():
    with pytest.raises(ValueError, match="rows = 0"):
        RecursiveStages(1, 1, 0.1, 0.1, 0)
