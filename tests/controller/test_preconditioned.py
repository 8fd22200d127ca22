"""Preconditioned descent through the database: neighbours that attain its bounds, and audits of what it releases."""

import json
import math
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest
from memory import RowsInMemory
from test_audit_of_releases import audited

from dbdp.algorithms import Facts, Request, plan
from dbdp.algorithms.families.preconditioned.preconditioning import (
    coordinates_of,
    matrix_of,
    moment_sensitivity,
    preconditioner_of,
    ridge_of,
)
from dbdp.algorithms.noisy_sums import Summed, measured_sensitivity
from dbdp.algorithms.rows import Layout
from dbdp.controller.packed_rows import PackedRows, packed_rows
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.learning.losses import HuberSvm
from dbdp.learning.networks.architecture import Network
from dbdp.learning.objectives import Linear, Softmax
from dbdp.privacy.mechanisms import Gaussian
from dbdp.privacy.noise import streams
from dbdp.registry import datasets

RECORDS: dict[str, list[int]] = {"ahead": [1, 0, 0], "behind": [-1, 0, 0], "aside": [0, 1, 0]}
LABELS = {"y": {"label": "y", "positive": "1"}, "k": {"label": "k", "classes": ["a", "b", "c"]}}
ROWS = 30_000  # three blocks
LINEAR = json.dumps(Linear(HuberSvm(), 3).as_data())
NETWORK = json.dumps(Network(3, 1, False, 1.0, (), (1,)).as_data())
SILENT = lambda *_: None  # noqa: E731


@pytest.fixture(scope="module")
def neighbours(server_url: str) -> Iterator[list[str]]:
    """Datasets that differ in one record, named after it; those of each label are neighbours."""
    datasets_of = {f"{name}_{label}": (RECORDS[name], label) for name in RECORDS for label in LABELS}
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create schema neighbours; grant usage on schema neighbours to public")
        connection.execute(f"""
create table neighbours.others as
select array[random() - 0.5, random() - 0.5, random() - 0.5]::float8[] as x, 1 as y, 'a' as k
from generate_series(2, {ROWS})""")
        options = {"features": {"x": {"length": 3, "norm": 1}}, "intercept": False, "epsilon": 10, "delta": 0.5}
        for name, (record, label) in datasets_of.items():
            connection.execute(f"create table neighbours.{name} as table neighbours.others")
            connection.execute(f"insert into neighbours.{name} values ('{{{','.join(map(str, record))}}}', 1, 'a')")
            connect(connection).register_dataset(name, f"neighbours.{name}", **LABELS[label], **options)
        yield list(datasets_of)
        for name in datasets_of:
            connection.execute("select dbdp.drop_dataset(%s)", (name,))
        connection.execute("drop schema neighbours cascade")


def of_both(database: Database, names: list[str], sums: "Sums") -> float:
    """How far apart sums over two datasets are, by the real aggregates."""
    results = []
    for name in names:
        dataset = datasets.load(database._session, name)
        with packed_rows(database._session, dataset, Layout(3, (ROWS,))) as rows:
            rows.shuffle()
            results.append(sums(rows))
    return float(np.linalg.norm(results[0] - results[1]))


class Sums:
    """The coordinates of the second moment."""

    def __call__(self, rows: PackedRows) -> np.ndarray:
        return coordinates_of(rows.second_moment())


class Gradients(Sums):
    """The clipped gradients of rows in other coordinates."""

    def __init__(self, objective: Linear | Softmax, clip: float) -> None:
        self.objective, self.clip = objective, clip

    def __call__(self, rows: PackedRows) -> np.ndarray:
        rows.transform(0.5 * np.eye(3))
        return rows.gradient_sum(self.objective, self.objective.initial(), clip=self.clip)


def test_orthogonal_records_attain_the_aggregated_moments_bound(database, neighbours):
    moved = of_both(database, ["ahead_y", "aside_y"], Sums())
    assert 0.99999 < moved / moment_sensitivity(Summed.together(ROWS)) <= 1
    assert of_both(database, ["ahead_y", "behind_y"], Sums()) < 1e-6  # they have one and the same


@pytest.mark.parametrize(
    ("label", "objective"), [("y", Linear(HuberSvm(), 3)), ("k", Softmax(3, 3)), ("k", Linear(HuberSvm(), 3, 3))]
)
def test_opposite_records_attain_an_aggregated_steps_bound(database, neighbours, label, objective):
    moved = of_both(database, [f"ahead_{label}", f"behind_{label}"], Gradients(objective, 0.3))
    assert 0.99999 < moved / measured_sensitivity(0.3, 2.0, ROWS, 3) <= 1


def test_the_aggregates_are_those_of_the_rows_in_memory(database, neighbours):
    features, labels = map(
        np.array, zip(*database.connection.execute("select x, y from neighbours.ahead_y"), strict=True)
    )
    features /= np.linalg.norm(features, axis=1)[:, None]  # as rows for classes are packed
    beside, matrix = RowsInMemory(features, labels), np.array([[0.5, 0.1, 0], [0.1, 0.4, 0.2], [0, 0.2, 0.3]])
    objective = Linear(HuberSvm(), 3)
    with packed_rows(database._session, datasets.load(database._session, "ahead_y"), Layout(3, (ROWS,))) as rows:
        rows.shuffle()
        assert rows.second_moment() == pytest.approx(beside.second_moment())
        for each in (rows, beside):
            each.transform(matrix)
        sums = [each.gradient_sum(objective, np.ones(3), clip=0.2) for each in (rows, beside)]
        assert sums[0] == pytest.approx(sums[1], rel=1e-5, abs=1e-4)
        for each in (rows, beside):
            each.shuffle()
        sums = [each.gradient_sum(objective, np.ones(3), clip=0.2) for each in (rows, beside)]
        assert sums[0] == pytest.approx(sums[1], rel=1e-5, abs=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dbdp_internal.second_moment('\\x00'::bytea, 0)", "dimension = 0 must be a whole number between 1 and 2048"),
        (
            "dbdp_internal.second_moment('\\x00'::bytea, 1000000)",
            "dimension = 1000000 must be a whole number between 1 and 2048",
        ),
        ("dbdp_internal.second_moment('\\x00'::bytea, 3)", "is not a multiple of the 32 bytes of a row"),
        ("dbdp_internal.lengths('\\x00'::bytea, '\\x00', null)", "dimension of the matrix = 0"),
        ("dbdp_internal.lengths('\\x'::bytea, '\\x00112233445566778899', null)", "10 bytes are not a matrix of 1 by 1"),
        ("dbdp_internal.lengths('\\x'::bytea, '\\x0000000000000040', null)", "a matrix of norm 2.0 is above √1"),
        (
            f"dbdp_internal.measured_gradient_sum('\\x', '\\x', '\\x', '{LINEAR}', 1)",
            "the model has 0 numbers, and its objective 3",
        ),
        (
            f"dbdp_internal.measured_gradient_sum('\\x', '\\x00000000', '\\x{bytes(24).hex()}', '{LINEAR}', 1)",
            "0 rows, and 1 lengths",
        ),
        (
            f"dbdp_internal.measured_gradient_sum('\\x', '\\x', '\\x', '{NETWORK}', 1)",
            "a network has no gradients in other",
        ),
    ],
)
def test_arguments_that_are_no_blocks_are_refused(connection, call, message):
    with pytest.raises(psycopg.Error, match=message):
        connection.execute(f"select {call}")


# --- audits ---------------------------------------------------------------------------------------------------


AUDIT = {"epsilon": 2.0, "delta": 0.1, "algorithm": "preconditioned_gd", "loss": "huber_svm", "huber_width": 0.1}
RUNS, COUNT, BORDER = 1000, 20, 0.65  # the border, in deviations from the middle
PAIRS = {  # two records, and the share of the second moment at which they are easiest to tell apart
    "opposite": (([1.0, 0.0], [-1.0, 0.0]), 0.01),
    "orthogonal": (([1.0, 0.0], [0.0, 1.0]), 0.99),
}
Transcript = list[tuple[Gaussian, np.ndarray]]


def transcripts(record: list[float], share: float, monkeypatch: pytest.MonkeyPatch) -> list[Transcript]:
    """All releases of runs on rows that are zero but for a record, each with its noise."""
    seen: Transcript = []
    sound = Gaussian.release

    def released(noise: Gaussian, vector: np.ndarray) -> np.ndarray:
        seen.append((noise, sound(noise, vector)))
        return seen[-1][1]

    features = np.zeros((COUNT, 2))
    features[7] = record
    own = json.dumps({"passes": 2, "moment_share": share, "clip": 0.01, "evaluation_share": 0})
    made = plan(Request(**AUDIT, settings=own), Facts(COUNT, 2))
    with monkeypatch.context() as patch:
        patch.setattr(Gaussian, "release", released)
        for _ in range(RUNS):
            made.run(RowsInMemory(features, np.ones(COUNT)), SILENT)
    return [seen[first : first + 3] for first in range(0, len(seen), 3)]


def by_moment(transcript: Transcript) -> float:
    """The difference of the first two coordinates of the second moment, in its deviations."""
    noise, moment = transcript[0]
    return float(moment[0] - moment[1]) / noise.noise_scale / math.sqrt(2)


def by_steps(transcript: Transcript) -> float:
    """How far the steps are along the first record, as its coordinates were released, in their deviations."""
    (noise, moment), *steps = transcript
    way = preconditioner_of(matrix_of(moment, 2) / COUNT, ridge_of(noise, COUNT, 2))
    direction = way.matrix[0] / np.linalg.norm(way.matrix[0])
    return sum(-float(step @ direction) / noise.noise_scale for noise, step in steps) / math.sqrt(len(steps))


def audit(which: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return a lower bound on ε from the transcripts of both neighbours."""
    records, share = PAIRS[which]
    statistic = by_moment if which == "orthogonal" else by_steps
    ahead, behind = (np.array(list(map(statistic, transcripts(each, share, monkeypatch)))) for each in records)
    return audited(ahead, behind, BORDER, AUDIT["delta"])


@pytest.mark.parametrize("which", PAIRS)
def test_no_transcript_proves_more_than_is_claimed(which, monkeypatch):
    assert audit(which, monkeypatch) <= AUDIT["epsilon"]


@pytest.mark.parametrize("which", PAIRS)
def test_transcripts_with_a_third_of_the_noise_do(which, monkeypatch):
    sound = streams.draw
    monkeypatch.setattr(streams, "draw", lambda law, steps, *shape: sound(law, steps // 3, *shape))
    assert audit(which, monkeypatch) > AUDIT["epsilon"]
