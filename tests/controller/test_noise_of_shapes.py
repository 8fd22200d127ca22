"""Bands of shapes hold the noise of repeated training runs on one table."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import psycopg
import pytest
from scipy.stats import binom, norm

from dbdp.interfaces.python.client.database import Database

pytestmark = pytest.mark.statistical

ALPHA, RUNS = 1e-9, 60
TABLE = """
create table t as select g.a, g.b, g.flag,
case when rare then 3 + 10 * d else 0 end as d, (array['u', 'v', 'w'])[i % 3 + 1] as c,
({label}) as y from (select i, random() * 10 as a, random() * 10 as b, random() < .5 as flag,
d, d < .2 as rare, random() as r, random() as s
from (select i, random() as d from generate_series(1, 6000) as i) as h) as g"""
LABELS = {
    "binary": ("(r < 1 / (1 + exp(1 - a / 3 + (i % 3) - 4 * rare::int)))::int", {"positive": "1"}),
    "real": ("a * a / 20 + (i % 3) + r + s - 2 * rare::int", {"positive": None, "label_bounds": [0, 9]}),
}
# Upper limits of the median width, relative to what 95 % needs: noise added once is known, the rest is bounded.
WIDEST = {"bolt_on": 1.5, "private_splines": 8, "preconditioned_gd": 12}
FEATURES = {"a": [0, 10], "b": [0, 10], "d": [0, 10], "c": ["u", "v", "w"], "flag": [0, 1]}


@pytest.fixture(params=LABELS)
def dataset(request, connection: psycopg.Connection, schema: str, register: Callable[..., str]) -> str:
    label, declared = LABELS[request.param]
    connection.execute(TABLE.format(label=label).replace("g.flag", "g.flag::int as flag"))
    return register("t", features=FEATURES, epsilon=1e6, delta=1e-2, **declared)


def bands(database: Database, dataset: str, algorithm: str, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return contributions and half widths of many runs (RUNS, values)."""
    contributions, widths = [], []
    for _ in range(RUNS):
        sql = "select model from dbdp.dp_train($1, $2::float8, 1e-6, algorithm => $3)"
        (trained,) = database.query(sql, dataset, epsilon, algorithm)
        known = [row for row in database.shapes(trained["model"]) if row["upper"] is not None]
        contributions.append([row["contribution"] for row in known])
        widths.append([row["upper"] - row["contribution"] for row in known])
    return np.array(contributions), np.array(widths)


def too_few(contributions: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return the values whose bands hold so few of the runs' noise that chance is below ALPHA.

    The noise of a run is its distance from the mean of all runs, in which it has a part.
    """
    moved = np.abs(contributions - contributions.mean(axis=0)) * sqrt(RUNS / (RUNS - 1))
    held = (moved <= widths).sum(axis=0)
    return np.flatnonzero(binom.cdf(held, RUNS, 0.95) < ALPHA / widths.shape[1])


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("algorithm", ["private_splines", "preconditioned_gd", "bolt_on"])
def test_the_bands_hold_the_noise_of_repeated_runs(database, dataset, algorithm, epsilon):
    contributions, widths = bands(database, dataset, algorithm, epsilon)
    assert widths.shape[1] >= 6
    needed = norm.ppf(0.975) * contributions.std(axis=0, ddof=1)
    assert too_few(contributions, widths).size == 0
    assert too_few(contributions, needed / 3 + 0 * widths).size > 0  # the control: too narrow bands are noticed
    assert np.median(widths.mean(axis=0) / needed) < WIDEST[algorithm]
