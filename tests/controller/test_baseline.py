"""The non-private baseline is the minimiser, for the owner's client alone; nothing is charged or stored."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg
import pytest
from acting import acting
from scipy.optimize import minimize

from dbdp.algorithms import Request
from dbdp.controller import baselines
from dbdp.interfaces.python.client.database import Database
from dbdp.registry.border import ServerSession

ROWS, FEATURES = 400, 3


@pytest.fixture
def dataset(make_table: Callable[..., str], database: Database) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng()
    features = random.normal(size=(ROWS, FEATURES))
    features /= 1.1 * np.linalg.norm(features, axis=1, keepdims=True)
    labels = np.where(features[:, 0] + random.normal(size=ROWS) / 3 > 0, 1, -1)
    make_table("baseline_rows", features, labels)
    database.register_dataset(
        "baseline", "baseline_rows", label="y", positive="1", features={"x": {"length": FEATURES, "norm": 1}},
        epsilon=1.0, delta=1e-6,
    )  # fmt: skip
    return features, labels


def test_it_is_the_minimiser(dataset, database):
    features, labels = dataset
    result = database.baseline("baseline", Request(1.0, algorithm="bolt_on", regularisation=0.01))
    constant = FEATURES**-0.25  # beside an array
    rows = np.column_stack([features, np.full(ROWS, constant)])
    rows /= np.linalg.norm(rows, axis=1)[:, None]

    def objective(w: np.ndarray) -> Any:
        return np.logaddexp(0, -labels * (rows @ w)).mean() + 0.005 * w @ w

    best = minimize(objective, np.zeros(FEATURES + 1), tol=1e-12).x
    assert np.allclose(result.coefficients[0], best[:-1], atol=1e-4)
    assert np.allclose(result.intercepts, best[-1:] * constant, atol=1e-4)
    scores = features @ np.array(result.coefficients[0]) + result.intercepts[0]
    certain, possible = (int((labels * scores <= rounding).sum()) for rounding in (-1e-5, 1e-5))
    assert certain <= result.errors <= possible  # packed rows are rounded to float32
    assert possible < certain + 10
    assert result.accuracy == (ROWS - result.errors) / ROWS
    assert result.majority_share == max((labels > 0).mean(), (labels < 0).mean())
    assert not result.private


def test_a_baseline_charges_and_stores_nothing(dataset, database, connection):
    counts = "select (select count(*) from dbdp.ledger), (select count(*) from dbdp.model)"
    before = connection.execute(counts).fetchone()
    database.baseline("baseline", Request(1.0))
    assert connection.execute(counts).fetchone() == before
    assert connection.execute("select count(*) from pg_class where relname like 'dbdp_rows%'").fetchone() == (0,)


def test_an_analyst_has_no_baseline(dataset, database, connection, analyst):
    database.grant_training("baseline", analyst)
    with acting(connection, analyst), pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.baseline("baseline", Request(1.0))


def test_the_server_itself_refuses_a_baseline():
    server = ServerSession(SimpleNamespace(prepare=str))
    with pytest.raises(ValueError, match="runs in a client"):
        baselines.minimum(server, "baseline", Request(1.0))


def test_it_is_a_linear_model(dataset, database):
    with pytest.raises(ValueError, match="leave network out"):
        database.baseline("baseline", Request(1.0, network="mlp:4"))
