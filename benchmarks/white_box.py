"""The cost of noise in every update: an epoch of each way to add it, beside the epoch of bolt-on, which adds none.

Everything is over rows packed once, with mini-batches of `peer.BATCH_SIZE`; Poisson ones have that size on average.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import psycopg

from benchmarks import ours, peer
from benchmarks.harness import Samples, Side, Spread, alternate, timed
from benchmarks.tables import Table
from dbdp.algorithms import Facts, NoisyWhileTraining, Request, plan
from dbdp.algorithms.families.noisy_sgd.noisy_steps import NoisySgd
from dbdp.algorithms.noisy_sums import gaussian_sum, sampled_sensitivity
from dbdp.algorithms.rows import Layout
from dbdp.controller.packed_rows import PackedRows, packed_rows
from dbdp.learning.losses import Logistic
from dbdp.learning.noisy import NoisyState
from dbdp.learning.objectives import Linear
from dbdp.privacy.noise import streams
from dbdp.registry.datasets import load
from dbdp.sessions.client import ClientSession

SCANS = ("scs13", "dp_sgd", "dp_adam")
CANDIDATES = 21  # step sizes that a step of DP-AGD compares, with none
DRAWS = 1000

# name: (ours, the other side)
RATIOS = {
    **{f"{name}_epoch_ratio": (name, "bolt_on") for name in SCANS},
    "noise_share_of_a_step": ("noise of scs13", "scs13"),
    "pure_noise_share_of_a_step": ("noise of scs13, pure", "scs13, pure"),
    "noise_share_of_a_dp_sgd_step": ("noise of scs13", "dp_sgd"),
    "noise_share_of_a_dp_agd_step": ("noise of dp_agd", "dp_agd step"),
}


def measure(connection: psycopg.Connection, table: Table, repeats: int) -> Samples:
    """Time an epoch of every side."""
    with ours.registered(connection, table), ours.packed(connection, table), noisy_rows(connection, table) as drawn:
        fixed, poisson = drawn
        count = load(ClientSession(connection), ours.dataset_of(table)).rows
        sides: dict[str, Side] = {"bolt_on": partial(ours.epoch, connection, table, peer.BATCH_SIZE)}
        for name in SCANS:
            sides[name] = partial(scan, fixed if name == "scs13" else poisson, name, table, count)
        sides["scs13, pure"] = partial(scan, fixed, "scs13", table, count, delta=0.0)
        sides["noise of scs13"] = partial(noise, table, count)
        sides["noise of scs13, pure"] = partial(noise, table, count, delta=0.0)
        sides["dp_agd step"] = partial(step, fixed, table, count)
        sides["noise of dp_agd"] = partial(noise_of_step, table, count)
        return alternate(sides, repeats)


def ratios(samples: Samples) -> dict[str, Spread]:
    """Return the ratio of each epoch to bolt-on's, and of the noise drawn alone to a step."""
    return {name: samples.ratio(own, other) for name, (own, other) in RATIOS.items()}


@contextmanager
def noisy_rows(connection: psycopg.Connection, table: Table) -> Iterator[tuple[PackedRows, PackedRows]]:
    """Pack the rows in fixed order, and as the Poisson mini-batches of one epoch, within the block."""
    session = ClientSession(connection)
    dataset = load(session, ours.dataset_of(table))
    connection.execute("set dbdp.pack_memory = '2GB'")  # one portion: as if memory were no concern
    layout = Layout(table.features, (dataset.rows,))
    with packed_rows(session, dataset, layout) as fixed, packed_rows(session, dataset, layout) as poisson:
        fixed.shuffle()
        batches = training(table, dataset.rows, "dp_sgd").batches
        if batches.samples is None:
            raise AssertionError("dp_sgd draws Poisson mini-batches")
        drawn = {"probability": batches.samples.probability, "steps": batches.updates, "size": batches.samples.size}
        together = batches.samples.together(batches.updates)  # as a request packs them
        poisson.packings[0].fill({"poisson": drawn | {"together": together}})
        yield fixed, poisson
    connection.execute("reset dbdp.pack_memory")


def training(table: Table, count: int, algorithm: str, delta: float = ours.DELTA) -> NoisySgd:
    """Return the updates of a release with the timed settings."""
    request = Request(
        ours.EPSILON,
        delta,
        algorithm=algorithm,
        epochs=1,
        batch_size=peer.BATCH_SIZE,
        regularisation=peer.REGULARISATION,
    )
    planned = plan(request, Facts(count, table.features, intercept=False))
    if not isinstance(planned, NoisyWhileTraining) or not isinstance(planned.method, NoisySgd):
        raise AssertionError(f"{algorithm} adds its noise in a scan")
    return planned.method


def scan(rows: PackedRows, algorithm: str, table: Table, count: int, delta: float = ours.DELTA) -> float:
    """Return the seconds of one epoch with noise in every update."""
    state = NoisyState.initial(training(table, count, algorithm, delta).trainings[0])
    return timed(lambda: rows.scan([state]))


def noise(table: Table, count: int, delta: float = ours.DELTA) -> float:
    """Return the seconds to draw the noise of one epoch, by itself."""
    run = training(table, count, "scs13", delta)
    how = run.trainings[0].noise

    def draws() -> None:
        for done in range(0, run.batches.updates, DRAWS):
            streams.draw(how.law, how.steps, min(DRAWS, run.batches.updates - done), table.features)

    return timed(draws)


def step(rows: PackedRows, table: Table, count: int) -> float:
    """Return the seconds of one step of DP-AGD: a noisy gradient of all rows, and the losses of all candidates."""
    objective, model = Linear(Logistic(), table.features), np.zeros(table.features)

    def make() -> None:
        mechanism = gaussian_sum(sampled_sensitivity(1.0, count), table.features, multiplier=10.0)
        direction = mechanism.release(rows.gradient_sum(objective, model, clip=1.0))
        rows.loss_sums(objective, np.linspace(0, 2, CANDIDATES)[:, None] * -direction, limit=3.0)

    return timed(make)


def noise_of_step(table: Table, count: int) -> float:
    """Return the seconds of the noise of such a step, by itself."""
    mechanism = gaussian_sum(sampled_sensitivity(1.0, count), table.features, multiplier=10.0)
    return timed(lambda: mechanism.release(np.zeros(table.features)))
