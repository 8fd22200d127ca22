"""Naive Bayes on neighbours, by the real aggregate: no release moves beyond its bound, and one attains it."""

from collections.abc import Iterator

import numpy as np
import pytest
from moved_releases import moved, neighbours

from dbdp.algorithms import Request
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

ROWS, COLUMNS = 4000, 3
RECORDS = {"low": "0, 'u', 0, 'a'", "high": "10, 'v', 1, 'b'", "none": "null, null, null, null"}
REQUEST = Request(20.0, 1e-3, algorithm="naive_bayes")
OTHERS = f"""
select 10 * random() as x, (array['u', 'v', 'w'])[1 + i % 3] as c, i % 2 as f, (array['a', 'b'])[1 + i % 2] as k
from generate_series(2, {ROWS}) i"""
OPTIONS = {
    "features": {"x": [0, 10], "c": ["u", "v", "w"], "f": [0, 1]},
    "label": "k",
    "positive": "b",
    "epsilon": 50,
    "delta": 0.01,
}


@pytest.fixture(scope="module")
def datasets(server_url: str) -> Iterator[None]:
    """Datasets that differ in one record, named after it: in other cells of each column, and with another label."""
    with neighbours(server_url, "counted", OTHERS, RECORDS, **OPTIONS):
        yield


def test_a_replaced_record_moves_no_release_beyond_its_bound(database, datasets, monkeypatch):
    found, _ = moved(database._session, ("counted_low", "counted_high"), REQUEST, monkeypatch)
    assert len(found) == 2  # the tables of the columns, the table of scores
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert found[0][0] == pytest.approx(np.sqrt(2 * COLUMNS))
    assert found[1][0] > 0
    parts = sum((noise.sensitivity / noise.noise_scale) ** 2 for _, noise in found)
    assert parts <= analytic_noise_multiplier(REQUEST.epsilon, REQUEST.delta) ** -2


def test_a_record_that_is_removed_moves_less(database, datasets, monkeypatch):
    """Control: a record that is in no cell and has no label."""
    found, _ = moved(database._session, ("counted_low", "counted_none"), REQUEST, monkeypatch)
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert found[0][0] == pytest.approx(np.sqrt(COLUMNS))


def test_auto_counts_by_public_facts(connection, datasets):
    """A weak signal is counted, with knots; pairs, options that counts lack, and a tuning have steps as before."""
    explain = "select dbdp.dp_explain(%s, epsilon => .1, delta => 1e-6{}) ->> 'algorithm'"
    chosen = {
        "": "naive_bayes",
        ", pairs => 'none'": "naive_bayes",
        ", pairs => 'x*c'": "preconditioned_gd",
        ", radius => 3": "preconditioned_gd",
        ", loss => 'huber_svm'": "preconditioned_gd",
    }
    for more, algorithm in chosen.items():
        assert connection.execute(explain.format(more), ("counted_low",)).fetchone() == (algorithm,), more
    tune = "select dbdp.dp_explain_tuning(%s, '[{}, {\"radius\": 9}]', epsilon => .1, delta => 1e-6) ->> 'method'"
    assert connection.execute(tune, ("counted_low",)).fetchone() == ("shared_moment",)


def test_a_counted_model_has_curves_and_figures(connection, database, datasets):
    model = database.train("counted_low", Request(0.1, 1e-6))
    assert model.receipt["algorithm"] == "naive_bayes"
    assert {"evaluation", "score_calibration"} <= set(model.receipt)
    rows = [row for row in database.shapes(model.id) if row["column_name"] == "x"]
    assert [row["x"] for row in rows] == pytest.approx(np.linspace(0, 10, 8))
