"""The default algorithm on rows in places, by the real aggregates: neighbours, and the sums of dense rows."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from moved_releases import moved, neighbours

from dbdp.algorithms import Request, plan
from dbdp.algorithms.combined.groups import GroupsRequest, groups_plan
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.algorithms.plan import Released
from dbdp.controller.facts import coded, facts
from dbdp.controller.packed_rows import packed_rows
from dbdp.learning.counts import tallies
from dbdp.privacy.mechanisms import Gaussian
from dbdp.registry import datasets
from dbdp.registry.declarations import declare
from dbdp.registry.results.column_units import smaller_blocks
from dbdp.sessions.session import Session

ROWS = 20_000  # two blocks of rows in places
COLUMNS: dict[str, Any] = {
    "x": [0, 10],
    "b": {"bounds": [0, 10], "bins": 9},
    "n": {"bounds": [-5, 5], "missing": "indicator"},
    "f": [0, 1],
    "c": ["u", "v", "w"],
    "d": {"categories": [f"d{number}" for number in range(30)], "missing": "category"},
}
OTHERS = f"""
select 12 * random() - 1 as x, 10 * random() as b, case when i % 7 > 0 then 10 * random() - 5 end as n, i % 2 as f,
    (array['u', 'v', 'w', 'undeclared'])[1 + i % 4] as c, case when i % 5 > 0 then 'd' || (i * 7) % 31 end as d,
    (random() < 0.5)::int as y, (array['a', 'b', 'c'])[1 + i % 3] as k, 2 * random() - 1 as r
from generate_series(2, {ROWS}) i"""
LOW, HIGH = "0, 0, null, 0, 'u', 'd1'", "10, 10, 5, 0, 'v', 'd2'"  # orthogonal: the numbers outweigh the constant
RECORDS = {
    "low": f"{LOW}, 1, 'a', 1",
    "high": f"{HIGH}, 1, 'a', 1",
    "turned": f"{LOW}, 0, 'b', -1",
    "none": f"{LOW}, null, null, null",
}
LABELS = {
    "two": {"label": "y", "positive": "1"},
    "three": {"label": "k", "classes": ["a", "b", "c"]},
    "numbers": {"label": "r", "label_bounds": [-1, 1]},
}
BUDGET = {"epsilon": 50, "delta": 0.01}
REQUEST = Request(20.0, 1e-3, algorithm="preconditioned_gd", settings='{"passes": 2, "clip": 0.1}')


@pytest.fixture(scope="module", params=LABELS)
def label(request, server_url: str) -> Iterator[str]:
    """Datasets with one kind of label that differ in one record, named after it."""
    options = {"features": COLUMNS} | LABELS[request.param] | BUDGET
    with neighbours(server_url, f"placed_{request.param}", OTHERS, RECORDS, **options):
        yield request.param


def test_a_replaced_record_moves_no_release_beyond_its_bound(database, label, monkeypatch):
    """Rows for classes have norm 1, so that the moment's bound is attained; of numbers they are shorter."""
    names = f"placed_{label}_low", f"placed_{label}_high"
    found, made = moved(database._session, names, REQUEST, monkeypatch)
    assert made.layout.in_places
    assert len(found) == 1 + 2 + (label != "numbers")  # moment, steps, table of scores
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert label == "numbers" or found[0][0] == pytest.approx(np.sqrt(2), rel=1e-4)
    assert found[0][0] > 0.5


def test_a_turned_label_attains_the_bound_of_a_step(database, label, monkeypatch):
    """The same features with another label: the moment stays, and both gradients are clipped."""
    names = f"placed_{label}_low", f"placed_{label}_turned"
    found, _ = moved(database._session, names, REQUEST, monkeypatch)
    assert all(distance <= noise.sensitivity for distance, noise in found)
    assert found[0][0] == 0
    for distance, noise in found[1:3]:
        attained = 0.5 if label == "three" else 0.999  # gradients of two classes are not opposite
        assert distance > attained * noise.sensitivity


def test_a_record_that_is_removed_moves_less(database, label, monkeypatch):
    names = f"placed_{label}_low", f"placed_{label}_none"
    found, _ = moved(database._session, names, REQUEST, monkeypatch)
    assert all(distance <= 0.75 * noise.sensitivity for distance, noise in found)
    assert label == "numbers" or found[0][0] == pytest.approx(1, rel=1e-4)


def without_noise(session: Session, name: str, request: Request, monkeypatch, *, dense: bool) -> tuple[Released, Any]:
    """What a training releases without noise, and a tally that reads the packed labels."""
    dataset, named = coded(datasets.load(session, name), request)
    public = facts(dataset, named)
    made = plan(named, replace(public, places=None) if dense else public)
    assert made.layout.in_places is not dense
    with monkeypatch.context() as patch, packed_rows(session, dataset, made.layout) as rows:
        patch.setattr(Gaussian, "release", lambda _, exact: np.asarray(exact, float))
        released = made.run(rows)
        counted = tallies.described(tallies.NumberCells(-4, 4, 16), outputs=1, dimension=made.layout.dimension)
        return released, rows.tally(np.zeros(made.layout.dimension), counted)


REQUESTS: dict[str, list[dict[str, Any]]] = {
    "two": [{}, {"positive_weight": 3.0, "loss": "huber_svm"}, {"radius": 0.5}, {"pairs": "c*f"}],
    "three": [{}, {"loss": "huber_svm"}],
    "numbers": [{}, {"loss": "huber_regression", "huber_width": 0.2}],
}


def test_the_released_model_is_that_of_dense_rows(database, label, monkeypatch):
    """Without noise, and to the rounding of numbers: with NULLs, undeclared values, bins, weights, and pairs."""
    for options in REQUESTS[label]:
        request = Request(20.0, 1e-3, algorithm="preconditioned_gd", **options)
        name = f"placed_{label}_low"
        (one, labels), (other, expected) = (
            without_noise(database._session, name, request, monkeypatch, dense=dense) for dense in (False, True)
        )
        assert (labels == expected).all()
        assert one.models == pytest.approx(other.models, abs=1e-3 * np.abs(other.models).max())
        assert np.abs(other.models).max() > 0.01
        assert one.figures["effective_dimension"] == pytest.approx(other.figures["effective_dimension"], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "in_places"),
    [
        ({}, True),
        ({"algorithm": "dp_sgd"}, False),
        ({"projection_dimension": 5, "projection_seed": 1}, False),
    ],
)
def test_only_smaller_rows_of_the_default_are_in_places(database, label, options, in_places):
    dataset = datasets.load(database._session, f"placed_{label}_low")
    request = Request(20.0, 1e-3, **({"algorithm": "preconditioned_gd"} | options))
    assert plan(request, facts(dataset, request)).layout.in_places is in_places


@pytest.mark.parametrize(
    ("features", "intercept"),
    [
        ({f"x{each}": [0, 1] for each in range(14)}, True),
        ({"x": {"length": 40, "norm": 1}}, True),
        ({"d": COLUMNS["d"]}, False),
    ],
    ids=["numbers", "an array", "no constant"],
)
def test_rows_are_dense_where_places_save_nothing(features, intercept):
    """Rows in places of plain numbers are as long as dense ones, and without a constant a row may be of zeros."""
    declared = {"label": "y", "positive": "1"}
    assert smaller_blocks(declare(**declared, features=features, intercept=intercept)) is None
    assert smaller_blocks(declare(**declared, features={"d": COLUMNS["d"]})) is not None


def test_summaries_and_tunings_train_on_such_tables(database, label):
    """A summary has the second moment of dense rows, in the same coordinates."""
    name, request = f"placed_{label}_high", Request(2.0, 1e-4, algorithm="preconditioned_gd")
    summary = database.summarize(name, epsilon=2.0, delta=1e-4)
    models = [database.train(name, replace(request, summary=summary.id)), database.train_in_server(name, request)]
    if label != "numbers":
        candidates = tuple({"settings": {"clip": clip}} for clip in (0.2, 0.4))
        models.append(database.tune(name, TuningRequest(request, candidates)))
    assert len(models) == 2 + (label != "numbers")


def test_models_by_groups_have_dense_rows(database, label):
    """All groups have one layout, and `auto` may choose an algorithm with dense rows for some."""
    base = Request(2.0, 1e-4, algorithm="preconditioned_gd")
    public = facts(datasets.load(database._session, f"placed_{label}_high"), base)
    made = groups_plan(GroupsRequest(base, "c", ("u", "v")), public, (ROWS // 2, ROWS // 2))
    assert [each.layout.in_places for each in (*made.plans, made)] == [False] * 3
