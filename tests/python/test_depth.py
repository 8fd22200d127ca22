"""How deep the walk is from `fit` to the sum of the rows, in the client and in the server."""

import sys
from pathlib import Path
from types import FrameType

import numpy as np
import psycopg
import pytest

import dbdp
from dbdp.interfaces.python.client.database import Database
from dbdp.sessions.client import ClientSession

PACKAGE = f"{Path(dbdp.__file__).parent}/"
MOST = 19  # frames of both processes together, with the two of PL/Python; a sum in threads has five more than an epoch
COUNTED = """
do $$
import os, sys, dbdp
from dbdp.learning.compiled import _kernel
GD["frames"] = set()
def counting(function):
    def counted(*given):
        frame, files = sys._getframe(1), []
        while frame is not None:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        GD["frames"].add((sum(file.startswith(os.path.dirname(dbdp.__file__)) for file in files), len(files)))
        return function(*given)
    return counted
for name in ("add_rows", "gradient_sum"):
    setattr(_kernel, name, counting(getattr(_kernel, name)))
$$ language plpython3u;
create function pg_temp.frames() returns int[] language plpython3u as $$
return sorted(map(list, GD["frames"]))
$$"""


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
    ("algorithm", "aggregate", "client", "server"),
    [("preconditioned_gd", "measured_gradient_sum", 9, 8), ("bolt_on", "sgd_epoch", 8, 4)],
)
def test_a_fit_is_few_frames_above_its_sum(
    algorithm, aggregate, client, server, walks, server_url: str, database: Database, make_table
):
    """From `fit` to the compiled function that sums the rows, with the name of a dataset that the role may read.

    Counted are the Python frames of dbdp's files: those of the client from `fit` to `ClientSession.query`, both
    included, and those of the backend from the transition of the aggregate to the caller of the compiled function.
    """
    make_table("points", np.array([[0.1], [-0.1]] * 50), np.array([1, -1] * 50))
    label = {"label": "y", "positive": "1", "negative": "-1"}
    features = {"x": {"length": 1, "norm": 1}}
    database.register_dataset("points", "points", **label, features=features, epsilon=1, delta=1e-3)
    options = {"epsilon": 0.1, "delta": 1e-6, "algorithm": algorithm, "progress": False}
    with psycopg.connect(server_url, autocommit=True) as counting:
        counting.execute("select dbdp.about()")
        counting.execute(COUNTED)
        dbdp.LogisticRegression(**options, database=dbdp.connect(counting)).fit("points")
        of_server = counting.execute("select pg_temp.frames()").fetchone()[0]
    walk = ["ClientSession.query", *walks[aggregate]]
    assert walk[-1] == "Estimator.fit"
    assert len(walk) == client, walk
    assert of_server == [[server, server + 2]]
    assert client + server + 2 <= MOST
