"""Objectives: losses and clipped gradients of a model, summed over packed rows.

Shapes: rows (n, stride) float32 as in `blocks`; a model is a vector of P parameters, several are (C, P).
A row without a valid label for the training has loss and gradient 0.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from dbdp.checks import whole
from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import SHRINK, flushed
from dbdp.learning.compiled.sums import outer_sum
from dbdp.learning.losses import Loss, loss_with, of_class, softmax_losses, softmax_slopes
from dbdp.learning.rows import placed
from dbdp.learning.rows.column_blocks import RowBlocks, row_blocks_from

MOST_OUTPUTS = 1000
MOST_PARAMETERS = 1 << 27  # a gigabyte, the most that a value of PostgreSQL holds
SOFTMAX_SMOOTHNESS = 0.5
_AT_ONCE = 1 << 24  # losses, of some models at some rows


class Objective(Protocol):
    """The interface of an objective, which excludes the regulariser."""

    @property
    def parameters(self) -> int:
        """P, the length of a model."""

    @property
    def inputs(self) -> int:
        """Coordinates of a packed row."""

    def initial(self) -> np.ndarray:
        """Return the model before the first step, shape (P,); it is public."""

    def gradient_sum(self, model: np.ndarray, rows: np.ndarray, *, clip: float = math.inf) -> np.ndarray:
        """Return Σ g·min(1, clip/‖g‖) over the rows' gradients g, shape (P,).

        As a real vector each summand has norm ≤ clip, and it depends on its row and the model alone.
        """

    def loss_sums(self, models: np.ndarray, rows: np.ndarray, *, limit: float = math.inf) -> np.ndarray:
        """Return Σ min(loss, limit) over the rows for each model, shape (C,)."""

    def as_data(self) -> dict[str, Any]:
        """Return the objective as data, for `objective_from`."""


@dataclass(frozen=True)
class Linear:
    """One linear model, or one for each class against the rest: K·d parameters; a row's loss is the sum of its K.

    With outputs = 1 a target c ≥ 1 stands for that class against the rest; 0 for labels as they are.
    """

    loss: Loss
    inputs: int
    outputs: int = 1
    target: int = 0

    @property
    def parameters(self) -> int:
        """P = K·d, the length of a model."""
        return self.inputs * self.outputs

    @property
    def smoothness(self) -> float:
        """How much a row's slopes change at most, by how much its scores do."""
        return self.loss.smoothness

    @property
    def slope_error(self) -> float:
        """How much the computed slopes of a row err at given scores, in units of 2⁻⁵³."""
        return math.sqrt(self.outputs) * self.loss.scalar_error

    def initial(self) -> np.ndarray:
        """Return the zero model, shape (P,)."""
        return np.zeros(self.parameters)

    @flushed
    def gradient_sum(
        self, model: np.ndarray, rows: np.ndarray, *, clip: float = math.inf, lengths: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the sum of the clipped gradients; that of a row is c ⊗ x, with slopes c (K,): ‖g‖ = ‖c‖‖x‖.

        With `lengths` (n,) a row's ‖c‖ times its length is clipped instead.
        """
        if self.outputs == 1:
            return kernels.compiled.gradient_sum(self.loss, self.target, model, rows, clip * SHRINK, lengths)
        vectors, slopes, total = model.reshape(self.outputs, -1), np.empty((self.outputs, len(rows))), 0.0
        for output, (features, labels) in enumerate(self._labelled(rows)):
            slopes[output] = self.loss.derivative(features @ vectors[output], labels)
            total = total + _squares(features, lengths) * slopes[output] ** 2
        with np.errstate(divide="ignore"):
            slopes *= np.minimum(1.0, clip * SHRINK / np.sqrt(total))
        return outer_sum(slopes.T, features).ravel()  # all classes have the same rows

    @flushed
    def loss_sums(self, models: np.ndarray, rows: np.ndarray, *, limit: float = math.inf) -> np.ndarray:
        """Return the sum of the losses, each at most `limit`, for each model, shape (C,)."""
        if self.outputs == 1:
            return kernels.compiled.loss_sums(self.loss, self.target, models, rows, limit)
        vectors, at_once = models.reshape(len(models), self.outputs, -1), max(1, _AT_ONCE // max(1, len(rows)))
        parts = [vectors[first : first + at_once] for first in range(0, len(vectors), at_once)]
        return np.concatenate([np.minimum(self._losses(part, rows), limit).sum(axis=1) for part in parts])

    def recursive_steps(
        self, model: np.ndarray, direction: np.ndarray, rows: np.ndarray, *, step: float, regularisation: float
    ) -> None:
        """Change a model and a direction, both (P,), in place, by one step for each row: `kernels.recursive_steps`."""
        targets = range(1, self.outputs + 1) if self.outputs > 1 else [self.target]
        shape = self.outputs, self.inputs
        for target, one, own in zip(targets, model.reshape(shape), direction.reshape(shape), strict=True):
            kernels.recursive_steps(self.loss, target, one, own, rows, step=step, regularisation=regularisation)

    def slopes(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the slopes of several classes' losses in the scores, (n, K); any numbers where there is no label."""
        return np.column_stack(
            [
                self.loss.derivative(each, np.where(labels == target, 1.0, -1.0))
                for target, each in enumerate(scores.T, start=1)
            ]
        )

    def _losses(self, vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        losses = np.zeros((len(vectors), len(rows)))
        for output, (features, labels) in enumerate(self._labelled(rows)):
            values = self.loss.value(vectors[:, output] @ features.T, labels)
            losses += np.where(labels == 0.0, 0.0, values) if self.loss.is_classifier else values
        return losses

    def as_data(self) -> dict[str, Any]:
        """Return the objective as data, for `objective_from`."""
        return {
            "kind": "linear",
            "loss": self.loss.code,
            "settings": list(self.loss.parameters),
            "inputs": self.inputs,
            "outputs": self.outputs,
            "target": self.target,
        }

    def _labelled(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for target in range(1, self.outputs + 1) if self.outputs > 1 else [self.target]:
            yield kernels.labelled(self.loss, target, rows, self.inputs)


@dataclass(frozen=True)
class Softmax:
    """K linear models whose scores are a softmax's: K·d parameters, one cross-entropy for each row; K ≥ 2.

    Labels are 1, …, K. The slopes of a row, p - e_y, have norm ≤ √2, and change by at most half as much as the scores
    do: `smoothness`. Proof. No row of diag p - ppᵀ has more than 2p(1 - p) ≤ 1/2 in absolute values (Gershgorin). ∎
    """

    inputs: int
    outputs: int

    smoothness = SOFTMAX_SMOOTHNESS

    @property
    def parameters(self) -> int:
        """P = K·d."""
        return self.inputs * self.outputs

    @property
    def slope_error(self) -> float:
        """As `Linear.slope_error`, u = 2⁻⁵³.

        Proof. Let t ≥ 0 be the differences from the largest score. Their computed exponentials err by 1.01(t + 4)u of
        themselves, and te⁻ᵗ ≤ 1/e; where t is above 708 they are 0, which is within u². The sum, of 1 at least, so errs
        by 1.02(K/e + 4 + K)u of itself, and p, whose entries add up to 1, by 1.03(K/e + 4 + K/e + 4 + K + 1)u at most:
        (1.8K + 10)u. Taking 1 from an entry adds u. ∎
        """
        return 2.0 * self.outputs + 12.0

    def initial(self) -> np.ndarray:
        """Return the model that training starts from."""
        return np.zeros(self.parameters)

    @flushed
    def gradient_sum(
        self, model: np.ndarray, rows: np.ndarray, *, clip: float = math.inf, lengths: np.ndarray | None = None
    ) -> np.ndarray:
        """See `Linear`. The gradient of a row is c ⊗ x, with c (K,) the slopes: ‖g‖ = ‖c‖‖x‖ (privacy.md §16.4)."""
        features, labels = self._labelled(rows)
        slopes = softmax_slopes(features @ model.reshape(self.outputs, -1).T, labels)
        slopes = kernels.valid_or_zero(slopes, labels != 0.0)
        return outer_sum(_clipped(slopes, _squares(features, lengths), clip), features).ravel()

    def slopes(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the slopes of the losses in the scores, (n, K); any numbers where there is no label."""
        return softmax_slopes(scores, labels)

    @flushed
    def loss_sums(self, models: np.ndarray, rows: np.ndarray, *, limit: float = math.inf) -> np.ndarray:
        """Return the sum of the losses, each at most `limit`, for each model, shape (C,)."""
        features, labels = self._labelled(rows)
        sums = np.empty(len(models))
        for number, model in enumerate(models):
            losses = softmax_losses(features @ model.reshape(self.outputs, -1).T, labels)
            sums[number] = np.where(labels == 0.0, 0.0, np.minimum(losses, limit)).sum()
        return sums

    def as_data(self) -> dict[str, Any]:
        """Return the objective as data, for `objective_from`."""
        return {"kind": "softmax", "inputs": self.inputs, "outputs": self.outputs}

    def _labelled(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return features, shape (n, d), and labels, shape (n,); both 0 where a row has no label of the training."""
        features, labels, valid = kernels.unpacked(rows, self.inputs)
        valid &= of_class(labels, self.outputs)
        return kernels.valid_or_zero(features, valid), kernels.valid_or_zero(labels, valid)


@dataclass(frozen=True)
class Additive:
    """Linear models of the coordinates of rows in places, see `placed`, that the objective `of` has."""

    of: Linear | Softmax
    rows_of: RowBlocks

    @property
    def parameters(self) -> int:
        """P = K·d."""
        return self.of.parameters

    @property
    def inputs(self) -> int:
        """Numbers of a packed row."""
        return self.rows_of.places

    @flushed
    def gradient_sum(self, model: np.ndarray, rows: np.ndarray, *, clip: float, lengths: np.ndarray) -> np.ndarray:
        """Return the sum of the gradients, clipped by `lengths` (n,), shape (P,); see `Linear`."""
        tables = placed.of_cells(model.reshape(self.of.outputs, -1), self.rows_of)
        layout = placed.layout_of(self.rows_of)
        if isinstance(self.of, Linear) and self.of.outputs == 1:
            sums = layout.gradient_sums(self.of.loss, tables[0], rows, clip * SHRINK, lengths)
            return placed.of_rows(sums, self.rows_of)
        labels = np.where(of_class(rows[:, -1], self.of.outputs), rows[:, -1], 0.0).astype(np.float64)
        slopes = self.of.slopes(layout.scores(tables, rows), labels)
        slopes = kernels.valid_or_zero(slopes, labels > 0.0)
        slopes = _clipped(slopes, _squares(rows, lengths), clip)
        return np.concatenate([placed.of_rows(each, self.rows_of) for each in layout.sums(slopes, rows)])

    def as_data(self) -> dict[str, Any]:
        """Return the objective as data, for `objective_from`."""
        return self.of.as_data() | {"rows_of": self.rows_of.as_data()}


def additive(objective: Objective, rows_of: RowBlocks) -> Additive:
    """Return an objective over rows in places; raise ValueError for a network."""
    if not isinstance(objective, (Linear, Softmax)):
        raise ValueError("a network does not train on rows in places; choose a linear objective")
    return Additive(objective, rows_of)


def _clipped(slopes: np.ndarray, squares: np.ndarray, clip: float) -> np.ndarray:
    """Return slopes c (n, K), shortened where ‖c‖ times the root of `squares` (n,) is above the clip."""
    squares = squares * np.einsum("ij,ij->i", slopes, slopes)
    with np.errstate(divide="ignore"):
        return slopes * np.minimum(1.0, clip * SHRINK / np.sqrt(squares))[:, None]


def _squares(features: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """Return the squared norms of rows (n, d), or of their lengths where these are given, shape (n,)."""
    return np.einsum("ij,ij->i", features, features) if lengths is None else lengths.astype(np.float64) ** 2


def projected(models: np.ndarray, radius: float) -> np.ndarray:
    """Return the nearest models with ‖·‖₂ ≤ radius, which may be infinite; the last axis is that of a model."""
    if math.isinf(radius):
        return models
    norms = np.linalg.norm(models, axis=-1, keepdims=True)
    return models * (radius / np.maximum(norms, radius))


@lru_cache(maxsize=8)
def objective_from(text: str) -> Objective:
    """Return the objective that JSON of `as_data` describes."""
    data = json.loads(text)
    if rows_of := data.pop("rows_of", None):
        of, rows_of = objective_from(json.dumps(data)), row_blocks_from(**rows_of)
        return additive(of, rows_of)  # type: ignore[return-value]  # it has gradients only
    if data["kind"] == "linear":
        _check_sizes(data["inputs"], data["outputs"], data["target"])
        return Linear(loss_with(data["loss"], tuple(data["settings"])), data["inputs"], data["outputs"], data["target"])
    if data["kind"] == "softmax":
        _check_sizes(data["inputs"], data["outputs"], 0)
        return Softmax(data["inputs"], data["outputs"])
    from dbdp.learning.networks.architecture import Network  # only a training of one needs it

    return Network.from_data(data)


def _check_sizes(inputs: Any, outputs: Any, target: Any) -> None:
    limits = {"inputs": (inputs, 1, MOST_PARAMETERS), "outputs": (outputs, 1, MOST_OUTPUTS)}
    limits |= {"target": (target, 0, MOST_OUTPUTS)}
    for name, (value, least, most) in limits.items():
        whole(f"{name} of an objective", value, least, most)
    if inputs * outputs > MOST_PARAMETERS:
        raise ValueError(
            f"{inputs * outputs} parameters of an objective are above the limit of {MOST_PARAMETERS}; "
            "use fewer features or classes"
        )
