"""Naive Bayes on neighbours, by the real aggregate: no release moves beyond its bound, and one attains it."""

from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

from dbdp.algorithms import Request, plan
from dbdp.controller.facts import coded, facts
from dbdp.controller.packed_rows import packed_rows
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.mechanisms import Gaussian
from dbdp.registry import datasets

ROWS, COLUMNS = 4000, 3
RECORDS = {"low": "0, 'u', 0, 'a'", "high": "10, 'v', 1, 'b'", "none": "null, null, null, null"}
REQUEST = Request(20.0, 1e-3, algorithm="naive_bayes")
Moved = list[tuple[float, Gaussian]]


@pytest.fixture(scope="module")
def neighbours(server_url: str) -> Iterator[None]:
    """Datasets that differ in one record, named after it: in other cells of each column, and with another label."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create schema counted; grant usage on schema counted to public")
        connection.execute(f"""
create table counted.others as
select 10 * random() as x, (array['u', 'v', 'w'])[1 + i % 3] as c, i % 2 as f, (array['a', 'b'])[1 + i % 2] as k
from generate_series(2, {ROWS}) i""")
        features = {"x": [0, 10], "c": ["u", "v", "w"], "f": [0, 1]}
        options = {"features": features, "label": "k", "positive": "b", "epsilon": 50, "delta": 0.01}
        for name, record in RECORDS.items():
            connection.execute(f"create table counted.{name} as table counted.others")
            connection.execute(f"insert into counted.{name} values ({record})")
            connect(connection).register_dataset(f"counted_{name}", f"counted.{name}", **options)
        yield
        for name in RECORDS:
            connection.execute("select dbdp.drop_dataset(%s)", (f"counted_{name}",))
        connection.execute("drop schema counted cascade")


def moved(database: Database, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Moved:
    """How far each release moves from one dataset to the other where those before it were the same, and its noise."""
    seen: list[list[np.ndarray]] = []
    noises: list[Gaussian] = []

    def released(noise: Gaussian, vector: np.ndarray) -> np.ndarray:
        seen[-1].append(np.asarray(vector, float))
        if len(seen) == 1:
            noises.append(noise)
        return seen[0][len(seen[-1]) - 1]

    for name in names:
        seen.append([])
        dataset, request = coded(datasets.load(database._session, f"counted_{name}"), REQUEST)
        made = plan(request, facts(dataset, request))
        with monkeypatch.context() as patch, packed_rows(database._session, dataset, made.layout) as rows:
            patch.setattr(Gaussian, "release", released)
            made.run(rows)
    return [(float(np.linalg.norm(a - b)), noise) for a, b, noise in zip(*seen, noises, strict=True)]


def test_a_replaced_record_moves_no_release_beyond_its_bound(database, neighbours, monkeypatch):
    found = moved(database, ("low", "high"), monkeypatch)
    assert len(found) == 2  # the tables of the columns, the table of scores
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert found[0][0] == pytest.approx(np.sqrt(2 * COLUMNS))
    assert found[1][0] > 0
    parts = sum((noise.sensitivity / noise.noise_scale) ** 2 for _, noise in found)
    assert parts <= analytic_noise_multiplier(REQUEST.epsilon, REQUEST.delta) ** -2


def test_a_record_that_is_removed_moves_less(database, neighbours, monkeypatch):
    """Control: a record that is in no cell and has no label."""
    found = moved(database, ("low", "none"), monkeypatch)
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert found[0][0] == pytest.approx(np.sqrt(COLUMNS))


def test_auto_counts_by_public_facts(connection, neighbours):
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


def test_a_counted_model_has_curves_and_figures(connection, database, neighbours):
    model = database.train("counted_low", Request(0.1, 1e-6))
    assert model.receipt["algorithm"] == "naive_bayes"
    assert {"evaluation", "score_calibration"} <= set(model.receipt)
    rows = [row for row in database.shapes(model.id) if row["column_name"] == "x"]
    assert [row["x"] for row in rows] == pytest.approx(np.linspace(0, 10, 8))
