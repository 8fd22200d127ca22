"""What both interfaces release is the exact model plus noise of the scale that the receipt claims."""

from collections.abc import Callable

import numpy as np
import psycopg
import pytest
from scipy.stats import chi2, laplace, norm

import dbdp
from dbdp.interfaces.python.client.database import Database

pytestmark = pytest.mark.statistical

ALPHA = 1e-9  # false alarms of a test; no seed
LENGTH, RELEASES = 200, 120
DELTAS = {"gaussian": 1e-6, "discrete_gaussian": 1e-6, "spherical_laplace": 0.0, "discrete_laplace": 0.0}
MECHANISM = pytest.mark.parametrize("mechanism", DELTAS)
ON_THE_SERVER = """
select model from dbdp.dp_logreg($1, epsilon => 1, delta => $2, mechanism => $3,
    algorithm => 'bolt_on', epochs => 1, batch_size => 25)
"""


@pytest.fixture
def nothing(connection: psycopg.Connection, schema: str, register: Callable[..., str]) -> str:
    """A dataset in which no label is known: every row is the zero row, and the exact model is 0."""
    connection.execute(
        f"create table nothing as select array_fill(0.1::float8, array[{LENGTH}]) as x, 7 as y "
        "from generate_series(1, 50)"
    )
    features = {"x": {"length": LENGTH, "norm": 1}}
    return register("nothing", negative="0", features=features, intercept=False, epsilon=1e6, delta=1e-2)


def release(database: Database, dataset: str, interface: str, mechanism: str) -> tuple[list[float], float]:
    """Return one release's coefficients, and the claimed noise scale."""
    delta = DELTAS[mechanism]
    if interface == "server":
        [made] = database.query(ON_THE_SERVER, dataset, delta, mechanism)
        [row] = database.query("select coefficients, receipt from dbdp.models_details where id = $1", made["model"])
        return row["coefficients"], row["receipt"]["noise_scale"]
    request = dbdp.Request(epsilon=1.0, delta=delta, algorithm="bolt_on", epochs=1, batch_size=25, mechanism=mechanism)
    model = database.train(dataset, request)
    return model.coefficients, model.receipt["noise_scale"]


def released(database: Database, dataset: str, interface: str, mechanism: str) -> tuple[np.ndarray, float]:
    """Return many releases (a row for each), and the claimed noise scale."""
    each = [release(database, dataset, interface, mechanism) for _ in range(RELEASES)]
    return np.array([coefficients for coefficients, _ in each]), each[0][1]


def p_value(sample: np.ndarray, scale: float, mechanism: str) -> float:
    """Two-sided test of a scale: Σ(x/σ)² is chi-square; 2Σ|x|/b and 2Σ‖x‖/b are too, with two degrees for each."""
    degrees = 2 * sample.size
    if mechanism.endswith("gaussian"):
        statistic, degrees = ((sample / scale) ** 2).sum(), sample.size
    elif mechanism == "discrete_laplace":
        statistic = 2 * np.abs(sample / scale).sum()
    else:
        statistic = 2 * np.linalg.norm(sample / scale, axis=1).sum()
    return float(2 * min(chi2.cdf(statistic, degrees), chi2.sf(statistic, degrees)))


@pytest.mark.parametrize("interface", ["server", "client"])
@MECHANISM
def test_the_noise_has_the_claimed_scale(database, nothing, interface, mechanism):
    noise, scale = released(database, nothing, interface, mechanism)
    assert p_value(noise, scale, mechanism) > ALPHA
    # Controls, 14 standard deviations of the statistic away (its relative one is at most 1/sqrt(noise.size) per scale):
    assert p_value(noise, scale * 0.9, mechanism) < ALPHA  # it would notice more noise than claimed
    assert p_value(noise, scale * 1.1, mechanism) < ALPHA  # and less


@MECHANISM
def test_no_noise_comes_twice(database, nothing, mechanism):
    noise, _ = released(database, nothing, "server", mechanism)
    assert np.unique(noise).size == noise.size


@MECHANISM
def test_sessions_have_noise_of_their_own_whatever_they_seed(server_url, nothing, mechanism):
    drawn, seeded = [], []
    for _ in range(2):
        with psycopg.connect(server_url, autocommit=True) as session:
            session.execute("select setseed(0.5)")
            drawn += release(dbdp.connect(session), nothing, "server", mechanism)[0]
            session.execute("select setseed(0.5)")
            seeded.append(session.execute("select random()").fetchone())
    assert np.unique(drawn).size == 2 * LENGTH
    assert seeded[0] == seeded[1]  # the seed itself does work


def spherical(directions: np.ndarray) -> np.ndarray:
    """Return noise of scale 1 in some directions."""
    lengths = np.random.default_rng().gamma(LENGTH, size=RELEASES)
    return lengths[:, None] * directions / np.linalg.norm(directions, axis=1)[:, None]


@MECHANISM
def test_the_test_itself_accepts_true_noise(mechanism):
    normal = norm.rvs(size=(RELEASES, LENGTH))
    laws = {"spherical_laplace": spherical(normal), "discrete_laplace": laplace.rvs(size=(RELEASES, LENGTH))}
    assert p_value(laws.get(mechanism, normal), 1.0, mechanism) > ALPHA
