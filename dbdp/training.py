"""Training: the epochs of a plan over packed parts, to the exact models. They leave it only to be noised."""

from collections.abc import Iterator

import numpy as np

from dbdp import parts
from dbdp.algorithms import Plan
from dbdp.algorithms.access import Progress, silent
from dbdp.learning.state import State
from dbdp.parts import Part, Shuffled
from dbdp.privacy.sensitivity import FRESH


def exact_models(shuffled: Shuffled, plan: Plan, progress: Progress = silent) -> np.ndarray:
    """Return the exact models, shape (outputs, dimension): one part for each shard of the plan."""
    *_, shards = _epochs(shuffled, plan, progress)
    return _mean(shards, plan)


def models_by_epoch(shuffled: Shuffled, plan: Plan) -> Iterator[np.ndarray]:
    """Give the exact models after each epoch, for what is not private and not released."""
    return (_mean(shards, plan) for shards in _epochs(shuffled, plan, silent))


def _epochs(shuffled: Shuffled, plan: Plan, progress: Progress) -> Iterator[list[list[bytes]]]:
    """Give the states of all shards after each epoch."""
    learning = plan.learning
    shards = [[state.encode() for state in plan.initial_states()] for _ in learning.shard_rows]
    progress("epoch", 0, learning.epochs)  # from here on time tells what is left
    for epoch in range(learning.epochs):
        if epoch and learning.permutation == FRESH:
            shuffled.shuffle()
        shards = parts.side_by_side(_epoch, shuffled.parts, shards)
        if learning.shard_averaging == "each_epoch":
            shards = _averaged(shards, _weights(plan))
        progress("epoch", epoch + 1, learning.epochs)
        yield shards


def _weights(plan: Plan) -> np.ndarray:
    sizes = np.array(plan.learning.shard_rows)
    return sizes / sizes.sum()


def _mean(shards: list[list[bytes]], plan: Plan) -> np.ndarray:
    results = np.array([[State.decode(state).result() for state in states] for states in shards])
    return np.einsum("s,sod->od", _weights(plan), results)


def _epoch(part: Part, states: list[bytes]) -> list[bytes]:
    return [part.epoch(state) for state in states]


def _averaged(shards: list[list[bytes]], weights: np.ndarray) -> list[list[bytes]]:
    """Return the states of all shards with their mean model, weighted by rows."""
    states = [[State.decode(state) for state in states] for states in shards]
    for output in zip(*states, strict=True):
        mean = weights @ np.array([state.model for state in output])
        for state in output:
            state.model[:] = mean
    return [[state.encode() for state in each] for each in states]
