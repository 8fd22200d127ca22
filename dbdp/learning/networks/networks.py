"""Networks for classification: dense layers, after convolutions where the rows are square images.

Shapes: rows (n, stride) float32 as in `blocks`, labels 1, …, K with K outputs, ±1 with one; a model is one
vector of P parameters, layer after layer; scores (n, outputs).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dbdp.checks import whole
from dbdp.learning import kernels
from dbdp.learning.compiled.arithmetic import SHRINK, flushed
from dbdp.learning.losses import Logistic, softmax_losses, softmax_slopes
from dbdp.learning.networks.layers import FAR, KERNEL, Convolution, Dense, Layer

MOST_PARAMETERS = 2**24  # 128 MiB; sums of more squares would err by more than SHRINK leaves room for
LEAST_CLIP = 2.0**-200  # where squares underflow, a norm errs by far less
MOST_LAYERS = 16
_MEMORY = 3 * 2**22  # bytes of one pass: two hundred rows of a dense network, thirty of convolutions
_SEED = 2020  # of the first model: public, the same for every training
_MLP, _CNN = "1000", "6,16:256,128"  # what Chen & Lee 2020 train on MNIST (their §5.7)
_HELP = "choose mlp, or one like mlp:256,256 (units of the hidden layers), cnn, or one like cnn:6,16:256,128"


@dataclass(frozen=True)
class Network:
    """A network and the loss of its labels: softmax cross-entropy of K classes, logistic of ±1 with one output.

    After every layer but the last comes max(0, ·), with slope 0 at 0. Kernels are 5×5 and stay within the
    image (both are usual; the paper does not say), and of every 2×2 outputs the largest is kept.

    Attributes
    ----------
    inputs : coordinates of a packed row
    outputs : classes, or 1
    intercept : whether the last coordinate is an intercept's; it is not read, since layers have biases
    scale : what a row is multiplied by, for coordinates of the order of 1
    channels : maps of each convolution; the rows are then square images
    hidden : units of each dense layer before the last
    """

    inputs: int
    outputs: int
    intercept: bool
    scale: float
    channels: tuple[int, ...]
    hidden: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes = {"inputs": [self.inputs], "outputs": [self.outputs], "channels": self.channels, "hidden": self.hidden}
        for name, value in ((name, value) for name, values in sizes.items() for value in values):
            whole(f"{name} of a network", value, 1, MOST_PARAMETERS, _HELP)
        if not isinstance(self.intercept, bool) or self.features < 1:
            raise ValueError(f"{self.inputs} inputs of a network leave no feature to read; declare one at least")
        if not isinstance(self.scale, int | float) or not 1e-6 <= self.scale <= 1e6:
            raise ValueError(f"scale = {self.scale!r} of a network must be a number from 1e-6 to 1e6")
        layers = len(self.channels) + len(self.hidden) + 1
        if layers > MOST_LAYERS:
            raise ValueError(f"{layers} layers: a network has {MOST_LAYERS} at most; name fewer sizes")
        if self.channels:
            self._check_images()
        if self.parameters > MOST_PARAMETERS:
            raise ValueError(f"{self.parameters} parameters: a network has {MOST_PARAMETERS} at most; take fewer units")

    def _check_images(self) -> None:
        side, least = math.isqrt(self.features), 1
        for _ in self.channels:
            least = 2 * least + KERNEL - 1
        if side**2 != self.features or side < least:
            raise ValueError(
                f"a cnn of {len(self.channels)} convolutions needs square images of at least {least}×{least} in one "
                f"array column, this dataset has {self.features} features; choose mlp"
            )

    @property
    def features(self) -> int:
        """Coordinates that are read."""
        return self.inputs - self.intercept

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers, from the rows on."""
        made: list[Layer] = []
        side, maps = math.isqrt(self.features), 1
        for after in self.channels:
            convolution = Convolution(side, maps, after)
            made.append(convolution)
            side, maps = convolution.pooled, after
        width = made[-1].outputs if made else self.features
        for after in (*self.hidden, self.outputs):
            made.append(Dense(width, after))
            width = after
        return tuple(made)

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """Where each layer's parameters stand in a model."""
        ends = np.cumsum([layer.parameters for layer in self.layers]).tolist()
        return tuple(slice(end - layer.parameters, end) for layer, end in zip(self.layers, ends, strict=True))

    def initial(self) -> np.ndarray:
        """Return weights of variance 2 / fan-in (He et al. 2015) and biases 0, from a public seed.

        The seed tells nothing of the rows.
        """
        generator, model = np.random.RandomState(_SEED), np.zeros(self.parameters)
        for layer, part in zip(self.layers, self.parts, strict=True):
            weights = model[part][: -layer.biases]
            weights[:] = generator.standard_normal(len(weights)) * math.sqrt(2.0 / layer.fan_in)
        return model

    @flushed
    def scores(self, model: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the scores of the classes, or of the label +1, shape (n, outputs).

        A row that is no packed row has those of the zero row; no score is NaN unless the model has diverged.
        """
        with np.errstate(all="ignore"):
            made = [self._forward(model, self._unpacked(piece)[0])[-1] for piece in self._pieces(rows)]
        return np.concatenate(made)

    @flushed
    def gradient_sum(self, model: np.ndarray, rows: np.ndarray, *, clip: float = math.inf) -> np.ndarray:
        """See `Objective`.

        A row's computed gradient g is a dense layer's (a, 1) ⊗ δ of computed a and δ, a convolution's a computed
        vector. Each is made by the same instructions whatever the values of the other rows: it depends on the
        model, on the row, and on place and number of the rows, which neighbours share (privacy.md §14.8).

        Proof of ‖wg‖ ≤ clip for the weight w. The square of ‖g‖ is a sum of fewer than 2²⁴ squares and errs by a
        factor within 1 ± 2⁻²⁸, ‖g‖ by half of that, w and wδ by 4u more: SHRINK = 1 - 2⁻²⁸ covers them. What
        underflows is below 2⁻¹⁰²² a number, times inputs of norm ≤ 2¹⁰⁰: nothing beside clip ≥ 2⁻²⁰⁰. A row whose
        inputs or gradient are longer, or no numbers, has gradient 0: a rule of the row and the model.

        The products and sums of Σ wg err by ≤ γ_b·b·clip in all, b rows, γ_b = bu / (1 - bu) (privacy.md §14.2):
        their errors are not those of the summands, and the noise has to cover them.
        """
        if not clip >= LEAST_CLIP:
            raise ValueError(f"clip = {clip} of a gradient must be at least {LEAST_CLIP:g}; 0.1 to 10 suits most data")
        first, *others = self._pieces(rows)
        with np.errstate(all="ignore"):
            total = self._clipped_sum(model, first, clip)
            for piece in others:
                total += self._clipped_sum(model, piece, clip)
        return total

    @flushed
    def loss_sums(self, models: np.ndarray, rows: np.ndarray, *, limit: float = math.inf) -> np.ndarray:
        """See `Objective`. A loss that is no number, of a diverged model, counts as infinite."""
        sums = np.zeros(len(models))
        with np.errstate(all="ignore"):
            for piece in self._pieces(rows):
                features, labels = self._unpacked(piece)
                for number, model in enumerate(models):
                    losses = self._losses(self._forward(model, features)[-1], labels)
                    losses[np.isnan(losses)] = np.inf
                    sums[number] += np.where(labels == 0.0, 0.0, np.minimum(losses, limit)).sum()
        return sums

    def as_data(self) -> dict[str, Any]:
        return {
            "kind": "network",
            "inputs": self.inputs,
            "outputs": self.outputs,
            "intercept": self.intercept,
            "scale": self.scale,
            "channels": list(self.channels),
            "hidden": list(self.hidden),
        }

    @staticmethod
    def from_data(data: dict[str, Any]) -> "Network":
        """Return the network that `as_data` described.

        Raises
        ------
        ValueError
            If it describes none.
        """
        try:
            inputs, outputs, intercept, scale = (data[name] for name in ("inputs", "outputs", "intercept", "scale"))
            return Network(inputs, outputs, intercept, scale, tuple(data["channels"]), tuple(data["hidden"]))
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{str(data)[:200]} describes no network; give inputs, outputs, intercept, scale, channels and hidden"
            ) from error

    def _pieces(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return the rows in pieces of like sizes, small enough for the memory of a pass.

        The C library gives memory back to the system once twice as much is free as the largest block ever
        freed; a pass would then wait for its pages, as long as it computes. So one such block is freed here.
        """
        np.empty(_MEMORY, np.uint8)
        at_once = max(1, _MEMORY // (8 * sum(layer.held for layer in self.layers)))
        return np.array_split(rows, max(1, -(-len(rows) // at_once)))

    def _unpacked(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return features as the first layer takes them, and labels; 0 for none, and where the row is no packed row."""
        features, labels, valid = kernels._unpacked(rows, self.inputs)
        if self.outputs == 1:
            valid &= np.abs(labels) == 1.0
        else:
            valid &= (labels >= 1.0) & (labels <= self.outputs) & (labels == np.floor(labels))
        features = features[:, : self.features]
        features *= self.scale
        return features, kernels.kept(labels, valid)

    def _forward(self, model: np.ndarray, features: np.ndarray, kept: list[Any] | None = None) -> list[np.ndarray]:
        """Return the inputs of every layer, and the scores; what `backward` needs goes to `kept`."""
        values = [features]
        for number, (layer, part) in enumerate(zip(self.layers, self.parts, strict=True)):
            outputs, keep = layer.forward(model[part], values[-1])
            if number < len(self.layers) - 1:
                np.maximum(outputs, 0.0, out=outputs)
            values.append(outputs)
            if kept is not None:
                kept.append(keep)
        return values

    def _clipped_sum(self, model: np.ndarray, rows: np.ndarray, clip: float) -> np.ndarray:
        """Return the sum of the clipped gradients of a piece."""
        features, labels = self._unpacked(rows)
        kept: list[Any] = []
        *values, scores = self._forward(model, features, kept)
        slopes, gradients, square = self._slopes(scores, labels), [], np.zeros(len(rows))
        for layer, part, keep, inputs in reversed(list(zip(self.layers, self.parts, kept, values, strict=True))):
            gradient = layer.backward(model[part], keep, slopes)
            gradients.append((gradient, part))
            square += gradient.squares()
            if layer is not self.layers[0]:
                slopes = gradient.input_slopes()
                slopes *= inputs > 0.0
        weights, lost = np.minimum(1.0, clip * SHRINK / np.sqrt(square)), ~(square <= FAR**2)
        weights[lost] = 0.0
        total = np.empty(self.parameters)
        for gradient, part in gradients:
            gradient.forget(lost)
            gradient.add_up(weights, total[part])
        return total

    def _losses(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the losses, which are ≥ 0; any number where there is no label."""
        if self.outputs == 1:
            return Logistic().value(scores[:, 0], labels)
        return softmax_losses(scores, labels)

    def _slopes(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the slopes of the losses in the scores; 0 where there is no label."""
        if self.outputs == 1:
            return Logistic().derivative(scores[:, 0], labels)[:, None]
        return kernels.kept(softmax_slopes(scores, labels), labels != 0.0)


def network_named(text: str, inputs: int, outputs: int, intercept: bool, *, scale: float | None = None) -> Network:
    """Return the network of a name and, behind colons, sizes: `mlp:256,256`, `cnn:6,16:256,128`.

    Parameters
    ----------
    inputs : coordinates of a packed row
    scale : None takes √features, times √2 with an intercept, which gives an image's coordinates back as shares
        of white where its norm bound is the norm of a white one

    Raises
    ------
    ValueError
        If it names none, or not one for such rows.
    """
    name, _, sizes = text.partition(":")
    channels: tuple[int, ...] = ()
    if name == "cnn":
        first, _, second = (sizes or _CNN).partition(":")
        channels, hidden = _whole(text, first), _whole(text, second or _CNN.partition(":")[2])
    elif name == "mlp":
        hidden = _whole(text, sizes or _MLP)
    else:
        raise ValueError(f"network {text!r} is unknown; {_HELP}")
    usual = math.sqrt(max(1, inputs - intercept) * (1 + intercept))
    return Network(inputs, outputs, intercept, usual if scale is None else scale, channels, hidden)


def _whole(text: str, sizes: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in sizes.split(","))
    except ValueError:
        raise ValueError(f"network {text!r} has sizes {sizes!r}, which must be whole numbers; {_HELP}") from None
