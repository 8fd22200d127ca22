"""How deep the walk is from `fit` to the statement that sums the rows."""

import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import dbdp
from dbdp.interfaces.python.client.database import Database
from dbdp.sessions.client import ClientSession

PACKAGE = f"{Path(dbdp.__file__).parent}/"
MOST = 10  # of the client; the statement itself and the aggregate in the backend add to them


def running() -> list[str]:
    """Return the functions of dbdp that the innermost frame runs in, from the inside out."""
    frame: FrameType | None = sys._getframe(2)
    found = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The functions of dbdp that run while an aggregate over the packed rows is called, by the aggregate's name."""
    found: dict[str, list[str]] = {}
    query = ClientSession.query

    def noted(self: ClientSession, sql: str, *parameters: object) -> object:
        if " as value from pg_temp." in " ".join(sql.split()):
            found[sql.partition("(")[0].rpartition(".")[2]] = running()
        return query(self, sql, *parameters)

    monkeypatch.setattr(ClientSession, "query", noted)
    return found


@pytest.mark.parametrize(
    ("algorithm", "aggregate"), [("preconditioned_gd", "measured_gradient_sum"), ("bolt_on", "sgd_epoch")]
)
def test_a_fit_is_few_frames_above_its_sum(algorithm, aggregate, walks, database: Database, make_table):
    """From `fit` to `ClientSession.query`, both ends included, with the name of a dataset that the role may read.

    Counted are the Python frames of dbdp's files, of the call that sums the rows: those of the client until the
    statement is handed to psycopg's session. Frames of the backend, where the aggregate runs, are not counted.
    """
    make_table("points", np.array([[0.1], [-0.1]] * 50), np.array([1, -1] * 50))
    label = {"label": "y", "positive": "1", "negative": "-1"}
    features = {"x": {"length": 1, "norm": 1}}
    database.register_dataset("points", "points", **label, features=features, epsilon=1, delta=1e-3)
    options = {"epsilon": 0.1, "delta": 1e-6, "algorithm": algorithm, "progress": False}
    dbdp.LogisticRegression(**options, database=database).fit("points")
    walk = ["ClientSession.query", *walks[aggregate]]
    assert walk[-1] == "Estimator.fit"
    assert len(walk) <= MOST + 1, walk
