"""What both doors release is the exact model plus noise of the scale that the receipt claims."""

import numpy as np
import psycopg
import pytest
from scipy.stats import chi2, laplace, norm

import dbdp
from dbdp.database import Database

pytestmark = pytest.mark.statistical

ALPHA = 1e-9  # false alarms of a test; no seed
LENGTH, RELEASES = 200, 120


@pytest.fixture
def nothing(connection: psycopg.Connection, database: Database) -> str:
    """A dataset in which no label is known: every row is the zero row, and the exact model is 0."""
    connection.execute("select dbdp.drop_dataset(name) from dbdp.datasets where name = 'nothing'")
    connection.execute("drop table if exists nothing")
    connection.execute(
        f"create table nothing as select array_fill(0.1::float8, array[{LENGTH}]) as x, 7 as y "
        "from generate_series(1, 50)"
    )
    features = {"x": {"length": LENGTH, "norm": 1}}
    declared = {"label": "y", "positive": "1", "negative": "0", "features": features, "intercept": False}
    database.register_dataset("nothing", "nothing", **declared, epsilon=1e6, delta=1e-2, mode="basic")
    return "nothing"


def released(database: Database, dataset: str, door: str, delta: float) -> tuple[np.ndarray, float]:
    """Return the coordinates of many releases, and the claimed noise scale."""
    coefficients, scale = [], 0.0
    for _ in range(RELEASES):
        if door == "server":
            sql = "select * from dbdp.dp_logreg($1, 1, $2, epochs => 1, batch_size => 25)"
            row = database.query(sql, dataset, delta)[0]
            coefficients.append(row["coefficients"])
            scale = row["receipt"]["noise_scale"]
        else:
            model = database.train(dataset, dbdp.Request(epsilon=1.0, delta=delta, epochs=1, batch_size=25))
            coefficients.append(model.coefficients)
            scale = model.receipt["noise_scale"]
    return np.ravel(coefficients), scale


def p_value(sample: np.ndarray, scale: float, kind: str) -> float:
    """Two-sided test of a scale: Σ(x/σ)² is chi-square; 2Σ|x|/b is too, with two degrees for each."""
    if kind == "gaussian":
        statistic, degrees = float(((sample / scale) ** 2).sum()), sample.size
    else:
        statistic, degrees = float(2 * np.abs(sample / scale).sum()), 2 * sample.size
    return 2 * min(chi2.cdf(statistic, degrees), chi2.sf(statistic, degrees))


@pytest.mark.parametrize("door", ["server", "client"])
@pytest.mark.parametrize(("kind", "delta"), [("gaussian", 1e-6), ("laplace", 0.0)])
def test_the_noise_has_the_claimed_scale(database: Database, nothing: str, door: str, kind: str, delta: float) -> None:
    noise, scale = released(database, nothing, door, delta)
    assert p_value(noise, scale, kind) > ALPHA
    assert p_value(noise, scale * 0.95, kind) < ALPHA  # it would notice more noise than claimed
    assert p_value(noise, scale * 1.05, kind) < ALPHA  # and less


def test_no_noise_comes_twice(database: Database, nothing: str) -> None:
    noise, _ = released(database, nothing, "server", 1e-6)
    assert np.unique(noise).size == noise.size


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_test_itself_accepts_true_noise(kind: str) -> None:
    law = norm if kind == "gaussian" else laplace
    assert p_value(law.rvs(size=LENGTH * RELEASES), 1.0, kind) > ALPHA
