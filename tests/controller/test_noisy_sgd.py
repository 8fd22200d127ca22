"""SGD with noise in every update, in the server, is what its papers write, update by update."""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import psycopg
import pytest
import recorded
from pairs import others_slow
from scipy import stats

from dbdp.algorithms import Facts, NoisyWhileTraining, Request, plan
from dbdp.algorithms.families.noisy_sgd.noisy_steps import NoisySgd
from dbdp.interfaces.python.client.connecting import connect
from dbdp.learning.compiled.arithmetic import SHRINK
from dbdp.learning.noisy import NoisyTraining

ROWS, FEATURES, DIMENSION = 900, 4, 5
EPSILON, DELTA = 2.0, 1e-5
BASE = {"epsilon": EPSILON, "delta": DELTA, "epochs": 10, "batch_size": 9}
FIXED = {"scs13", "scs13, pure", "scs13, convex"}
REQUESTS: dict[str, dict[str, Any]] = {
    "scs13": {"algorithm": "scs13", "regularisation": 0.05},
    "scs13, pure": {"algorithm": "scs13", "delta": 0.0, "regularisation": 0.05, "epochs": 20},
    "scs13, convex": {"algorithm": "scs13", "regularisation": 0.0, "step_size": 0.8, "schedule": "square_root"},
    "bst14": {"algorithm": "bst14", "regularisation": 0.05},
    "bst14, convex, published": {
        "algorithm": "bst14",
        "regularisation": 0.0,
        "radius": 0.5,
        "calibration": "published",
    },
    "dp_sgd": {"algorithm": "dp_sgd", "step_size": 1.0},
    "dp_sgd, clipped": {"algorithm": "dp_sgd", "step_size": 1.0}
    | {"clip_norm": 0.2, "regularisation": 0.01, "radius": 0.4},
    "dp_adam": {"algorithm": "dp_adam", "regularisation": 0.02},
    "sgd_adv": {"algorithm": "sgd_adv", "schedule": "square_root", "step_size": 2.0},
    "rrpsgd": {"algorithm": "rrpsgd", "step_size": 0.5},
}
SECOND = {"scs13, convex", "bst14, convex, published", "dp_sgd"}  # another setting of an algorithm


def requests_but(*names: str) -> pytest.MarkDecorator:
    """Parametrise a test by the requests; of an algorithm's second ones in the slow suite."""
    cases = [case for case in REQUESTS if case not in names]
    return pytest.mark.parametrize("case", others_slow(cases, *(case for case in cases if case not in SECOND)))


@pytest.fixture(scope="module")
def records(server_url: str) -> Iterator[Callable[[str], recorded.Record]]:
    """A training of each request, on record; all in one session, and each only once."""
    random = np.random.default_rng()
    features = random.normal(size=(ROWS, FEATURES))
    labels = np.where(features[:, 0] + 0.5 * random.normal(size=ROWS) > 0, 1, -1)
    with psycopg.connect(server_url, autocommit=True) as connection, recorded.installed(connection):
        connection.execute("create table noisy_rows (x float8[], y int)")
        with connection.cursor() as cursor:
            rows = list(zip(features.tolist(), labels.tolist(), strict=True))
            cursor.executemany("insert into noisy_rows values (%s, %s)", rows)
        connect(connection).register_dataset(
            "noisy",
            "noisy_rows",
            label="y",
            positive="1",
            features={"x": {"length": FEATURES, "norm": 3}},
            epsilon=1e5,
            delta=0.5,
            mode="basic",
        )

        @cache
        def record(case: str) -> recorded.Record:
            return recorded.noisy_model(connection, "noisy", BASE | REQUESTS[case], DIMENSION)

        yield record
        connection.execute("select dbdp.drop_dataset('noisy')")
        connection.execute("drop table noisy_rows")


def planned(case: str) -> tuple[Request, NoisyWhileTraining, NoisyTraining]:
    request = Request(**(BASE | REQUESTS[case]))
    made = plan(request, Facts(ROWS, DIMENSION))
    assert isinstance(made, NoisyWhileTraining)
    run = made.method.args[0] if isinstance(made.method, partial) else made.method
    assert isinstance(run, NoisySgd)
    return request, made, run.trainings[0]


def step(request: Request, made: NoisyWhileTraining, t: int) -> float:
    """The published step sizes, of the update on the mean of a mini-batch."""
    regularisation = request.regularisation or 0.0
    if request.algorithm == "bst14" and not regularisation:
        sigma, b, radius = made.details["noise_scale"], request.batch_size, request.radius
        gradient = math.sqrt(DIMENSION * sigma**2 + b**2)  # G = √(dσ²ι + b²L²), with L = 1
        return 2 * radius * b / (gradient * math.sqrt(t))  # η_t = 2R/(G√t), on the sum
    if request.algorithm in ("scs13", "bst14") and regularisation:
        return min(1 / (0.25 + regularisation), 1 / (regularisation * t))
    if request.schedule == "square_root" or request.algorithm == "scs13":
        return request.step_size / math.sqrt(t)
    return request.step_size or {"dp_adam": 0.05}[request.algorithm]


def reference(
    request: Request, made: NoisyWhileTraining, grid: float, record: recorded.Record
) -> tuple[np.ndarray, float]:
    """The algorithm of the paper, one row at a time, with the noise and the mini-batches on record.

    Also how near a sum is to the middle between two steps of the grid, where floating point decides which it becomes.
    """
    nearest = 1.0
    clip = (request.clip_norm or math.inf) * SHRINK
    model, first, second = np.zeros((3, DIMENSION))
    for t, (rows, noise) in enumerate(zip(batches(request, record), record.noise, strict=True), start=1):
        total = np.zeros(DIMENSION)
        for row in rows:
            x, y = row[:DIMENSION], row[-1]
            gradient = -y * x / (1 + math.exp(y * float(x @ model)))
            norm = float(np.linalg.norm(gradient))
            total += gradient * min(1.0, clip / norm)
        nearest = min(nearest, float(np.abs(total / grid % 1 - 0.5).min()))
        noisy = (np.rint(total / grid) + noise) * grid
        direction = noisy / request.batch_size + (request.regularisation or 0.0) * model
        if request.algorithm == "dp_adam":
            first, second = 0.9 * first + 0.1 * direction, 0.999 * second + 0.001 * direction**2
            direction = (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        model = model - step(request, made, t) * direction
        norm = float(np.linalg.norm(model))
        model *= min(1.0, (request.radius or math.inf) / norm)
    return model, nearest


def batches(request: Request, record: recorded.Record) -> list[np.ndarray]:
    if request.algorithm != "scs13":
        return [batch for packing in record.batches for batch in packing][: len(record.noise)]
    ((rows,),) = record.batches
    size = request.batch_size or 0
    return [rows[first : first + size] for first in range(0, ROWS, size)] * request.epochs


@requests_but()
def test_in_the_server_every_update_is_the_papers(records, case):
    request, made, training = planned(case)
    record = records(case)
    grid = training.noise.grid
    expected, nearest = reference(request, made, grid, record)
    assert np.abs(record.model[0] - expected).max() < (1e-10 if nearest > 1e-4 else 10 * grid)
    assert np.abs(expected).max() > 1e-3
    updates = made.details["steps"]
    assert len(record.noise) == updates if request.algorithm != "rrpsgd" else 1 <= len(record.noise) <= updates


@requests_but("rrpsgd")
def test_the_noise_in_the_server_has_the_plans_scale(records, case):
    """The mean of squares is within 12 deviations of what the law has."""
    _, made, training = planned(case)
    noise = records(case).noise * training.noise.grid
    pure = case == "scs13, pure"
    expected = made.details["noise_scale"] ** 2 * (DIMENSION + 1 if pure else 1)  # E zᵢ² = (d + 1)b² on a sphere
    spread = math.sqrt((8 / 15 + 1 / 3 if pure else 2 / DIMENSION) / len(noise))  # of ‖z‖²: Gamma(5), or χ²
    assert abs((noise**2).mean() / expected - 1) < 12 * spread < 0.3


@requests_but(*FIXED, "rrpsgd")
def test_mini_batches_are_poisson_samples(records, case):
    """Their sizes vary as binomial ones do; a permutation's would all be the same."""
    sizes = [len(batch) for packing in records(case).batches for batch in packing]
    mean, deviation = BASE["batch_size"], math.sqrt(BASE["batch_size"] * (1 - BASE["batch_size"] / ROWS))
    assert abs(np.mean(sizes) - mean) < 7 * deviation / math.sqrt(len(sizes))
    tail = stats.chi2(len(sizes) - 1)  # the law of the sum of squares, nearly: that of a binomial of 9 has a tail
    assert tail.ppf(1e-12) < np.var(sizes) * len(sizes) / deviation**2 < tail.ppf(1 - 1e-12) * 1.1


def test_every_pass_of_fixed_mini_batches_reads_every_row_once(records):
    ((rows,),) = records("scs13").batches
    assert len(rows) == len(np.unique(rows, axis=0)) == ROWS
