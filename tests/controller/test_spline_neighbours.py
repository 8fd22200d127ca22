"""Private splines of several classes on neighbours, by the real aggregates: no release moves beyond its bound."""

from collections.abc import Iterator

import numpy as np
import pytest
from moved_releases import moved, neighbours

from dbdp.algorithms import Request

ROWS = 4000
RECORDS = {"low": "0, 'u', 0, 'a'", "high": "10, 'v', 1, 'c'", "none": "null, null, null, null"}
REQUEST = Request(20.0, 1e-3, algorithm="private_splines", settings='{"passes": 2, "clip": 0.01}')
OTHERS = f"""
select 10 * random() as x, (array['u', 'v', 'w'])[1 + i % 3] as c, i % 2 as f, (array['a', 'b', 'c'])[1 + i % 3] as k
from generate_series(2, {ROWS}) i"""
OPTIONS = {
    "features": {"x": [0, 10], "c": ["u", "v", "w"], "f": [0, 1]},
    "label": "k",
    "classes": ["a", "b", "c"],
    "epsilon": 50,
    "delta": 0.01,
}


@pytest.fixture(scope="module")
def datasets(server_url: str) -> Iterator[None]:
    """Datasets that differ in one record, named after it: at other knots, in other cells and of another class."""
    with neighbours(server_url, "splined", OTHERS, RECORDS, **OPTIONS):
        yield


def test_a_replaced_record_moves_no_release_beyond_its_bound(database, datasets, monkeypatch):
    found, _ = moved(database._session, ("splined_low", "splined_high"), REQUEST, monkeypatch)
    assert len(found) == 1 + 1 + 2 + 1  # moments of columns, moment of all, steps, table of scores
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert found[0][0] == pytest.approx(found[0][1].sensitivity, rel=1e-5)  # no common knot, cell or class
    assert found[0][0] == pytest.approx(np.sqrt(2 * 4), rel=1e-6)
    assert found[2][0] > 0.5 * found[2][1].sensitivity  # classes apart, at opposite ends


def test_a_record_that_is_removed_moves_less(database, datasets, monkeypatch):
    """Control: a record that is in no cell and has no class."""
    found, _ = moved(database._session, ("splined_low", "splined_none"), REQUEST, monkeypatch)
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert 1 <= found[0][0] <= 2.001
