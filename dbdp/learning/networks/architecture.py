"""Networks for classification: dense layers, after convolutions if the rows are square images.

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
from dbdp.learning.losses import Logistic, of_class, softmax_losses, softmax_slopes
from dbdp.learning.networks.layers import KERNEL, LARGEST_SQUARE, Convolution, Dense, Layer

MOST_PARAMETERS = 2**24  # 128 MiB; sums of more squares would err by more than SHRINK leaves room for
LEAST_CLIP = 2.0**-200  # far above the error of a norm whose squares underflow
MOST_LAYERS = 16
_MEMORY = 3 * 2**22  # bytes of one pass: two hundred rows of a dense network, thirty of convolutions
_SEED = 2020  # of the initial model: public, the same for every training
_MLP, _CNN = "1000", "6,16:256,128"  # what Chen & Lee 2020 train on MNIST (their §5.7)
_HELP = "choose mlp, or one like mlp:256,256 (units of the hidden layers), cnn, or one like cnn:6,16:256,128"


@dataclass(frozen=True)
class Network:
    """A network and its loss: softmax cross-entropy for K classes, logistic for labels ±1 with one output.

    Every layer but the last is followed by max(0, ·), with slope 0 at 0. Kernels are 5×5 without padding (both
    are usual; the paper does not specify them), followed by max pooling over 2×2 outputs.
    """

    inputs: int  # coordinates of a packed row
    outputs: int  # classes, or 1
    intercept: bool  # whether the last coordinate is an intercept's; it is not read, since layers have biases
    scale: float  # factor of the rows, which brings coordinates to the order of 1
    channels: tuple[int, ...]  # maps of each convolution; the rows are then square images
    hidden: tuple[int, ...]  # units of each dense layer before the last

    def __post_init__(self) -> None:
        sizes = {"inputs": [self.inputs], "outputs": [self.outputs], "channels": self.channels, "hidden": self.hidden}
        for name, value in ((name, value) for name, values in sizes.items() for value in values):
            whole(f"{name} of a network", value, 1, MOST_PARAMETERS, _HELP)
        if not isinstance(self.intercept, bool) or self.features < 1:
            raise ValueError("the network has no feature inputs; declare at least one feature")
        if not isinstance(self.scale, int | float) or not 1e-6 <= self.scale <= 1e6:
            raise ValueError(f"scale = {self.scale!r} of a network must be a number from 1e-6 to 1e6")
        layers = len(self.channels) + len(self.hidden) + 1
        if layers > MOST_LAYERS:
            raise ValueError(f"a network of {layers} layers is above the limit of {MOST_LAYERS}; give fewer sizes")
        if self.channels:
            self._check_images()
        if self.parameters > MOST_PARAMETERS:
            raise ValueError(
                f"a network of {self.parameters} parameters is above the limit of {MOST_PARAMETERS}; give fewer units"
            )

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
        """P, the number of parameters."""
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers, the first one reads the rows."""
        layers: list[Layer] = []
        side, maps = math.isqrt(self.features), 1
        for after in self.channels:
            convolution = Convolution(side, maps, after)
            layers.append(convolution)
            side, maps = convolution.pooled, after
        width = layers[-1].outputs if layers else self.features
        for after in (*self.hidden, self.outputs):
            layers.append(Dense(width, after))
            width = after
        return tuple(layers)

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """The slice of a model that holds each layer's parameters."""
        ends = np.cumsum([layer.parameters for layer in self.layers]).tolist()
        return tuple(slice(end - layer.parameters, end) for layer, end in zip(self.layers, ends, strict=True))

    def initial(self) -> np.ndarray:
        """Return weights of variance 2 / fan-in (He et al. 2015) and biases 0, from a public seed.

        The seed does not depend on the rows.
        """
        generator, model = np.random.RandomState(_SEED), np.zeros(self.parameters)
        for layer, part in zip(self.layers, self.parts, strict=True):
            weights = model[part][: -layer.biases]
            weights[:] = generator.standard_normal(len(weights)) * math.sqrt(2.0 / layer.fan_in)
        return model

    @flushed
    def scores(self, model: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the scores of the classes, or of the label +1, shape (n, outputs).

        An invalid row has the scores of the zero row; no score is NaN unless the model has diverged.
        """
        with np.errstate(all="ignore"):
            scores = [self._forward(model, self._unpacked(piece)[0])[-1] for piece in self._pieces(rows)]
        return np.concatenate(scores)

    @flushed
    def gradient_sum(self, model: np.ndarray, rows: np.ndarray, *, clip: float = math.inf) -> np.ndarray:
        """Return the sum of the clipped gradients, shape (P,); see `Objective`.

        A row's computed gradient g is a dense layer's (a, 1) ⊗ δ of computed a and δ, a convolution's a computed
        vector. Each is computed by the same instructions whatever the values of the other rows: it depends on the
        model, on the row, and on place and number of the rows, which neighbours share (privacy.md §14.8).

        Proof of ‖wg‖ ≤ clip for the weight w. The square of ‖g‖ is a sum of fewer than 2²⁴ squares and errs by a
        factor within 1 ± 2⁻²⁸, ‖g‖ by half of that, w and wδ by 4u more: SHRINK = 1 - 2⁻²⁸ covers them. What
        underflows is below 2⁻¹⁰²² a number, times inputs of norm ≤ 2¹⁰⁰: nothing beside clip ≥ 2⁻²⁰⁰. A row whose
        inputs or gradient are longer, or NaN, has gradient 0, which depends on the row and the model alone.

        The products and sums of Σ wg err by ≤ γ_b·b·clip in all, b rows, γ_b = bu / (1 - bu) (privacy.md §14.2):
        their errors are not those of the summands, and the noise has to cover them.

        Raise ValueError if `clip` is below LEAST_CLIP.
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
        """Return the sum of the losses for each model; see `Objective`. A diverged model's NaN counts as infinite."""
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
        """Return the network as data, for `from_data`."""
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
        """Return the network that `as_data` described."""
        try:
            inputs, outputs, intercept, scale = (data[name] for name in ("inputs", "outputs", "intercept", "scale"))
            return Network(inputs, outputs, intercept, scale, tuple(data["channels"]), tuple(data["hidden"]))
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{str(data)[:200]} is not a network; give inputs, outputs, intercept, scale, channels and hidden"
            ) from error

    def _pieces(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return the rows in pieces of similar sizes, small enough for the memory of a pass.

        The C library returns memory to the system once twice as much is free as the largest block ever
        freed; page faults would then take as long as the computation. So a block of that size is freed here.
        """
        np.empty(_MEMORY, np.uint8)
        at_once = max(1, _MEMORY // (8 * sum(layer.peak_numbers for layer in self.layers)))
        return np.array_split(rows, max(1, -(-len(rows) // at_once)))

    def _unpacked(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs of the first layer, and labels; a row without a valid label has label 0."""
        features, labels, valid = kernels.unpacked(rows, self.inputs)
        valid &= np.abs(labels) == 1.0 if self.outputs == 1 else of_class(labels, self.outputs)
        features = features[:, : self.features]
        features *= self.scale
        return features, kernels.valid_or_zero(labels, valid)

    def _forward(self, model: np.ndarray, features: np.ndarray, saved: list[Any] | None = None) -> list[np.ndarray]:
        """Return the inputs of every layer, and the scores; append what `backward` needs to `saved`."""
        values = [features]
        for number, (layer, part) in enumerate(zip(self.layers, self.parts, strict=True)):
            outputs, saved_here = layer.forward(model[part], values[-1])
            if number < len(self.layers) - 1:
                np.maximum(outputs, 0.0, out=outputs)
            values.append(outputs)
            if saved is not None:
                saved.append(saved_here)
        return values

    def _clipped_sum(self, model: np.ndarray, rows: np.ndarray, clip: float) -> np.ndarray:
        """Return the sum of the clipped gradients of a piece."""
        features, labels = self._unpacked(rows)
        saved: list[Any] = []
        *values, scores = self._forward(model, features, saved)
        slopes, gradients, square = self._slopes(scores, labels), [], np.zeros(len(rows))
        for layer, part, saved_here, inputs in reversed(list(zip(self.layers, self.parts, saved, values, strict=True))):
            gradient = layer.backward(model[part], saved_here, slopes)
            gradients.append((gradient, part))
            square += gradient.squares()
            if layer is not self.layers[0]:
                slopes = gradient.input_slopes()
                slopes *= inputs > 0.0
        weights, lost = np.minimum(1.0, clip * SHRINK / np.sqrt(square)), ~(square <= LARGEST_SQUARE**2)
        weights[lost] = 0.0
        total = np.empty(self.parameters)
        for gradient, part in gradients:
            gradient.clear(lost)
            gradient.add_up(weights, total[part])
        return total

    def _losses(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the losses, which are ≥ 0; an arbitrary number where there is no label."""
        if self.outputs == 1:
            return Logistic().value(scores[:, 0], labels)
        return softmax_losses(scores, labels)

    def _slopes(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the derivatives of the losses by the scores; 0 where there is no label."""
        if self.outputs == 1:
            return Logistic().derivative(scores[:, 0], labels)[:, None]
        return kernels.valid_or_zero(softmax_slopes(scores, labels), labels != 0.0)


def network_named(text: str, inputs: int, outputs: int, intercept: bool, *, scale: float | None = None) -> Network:
    """Return the network of a name and of sizes after colons: `mlp:256,256`, `cnn:6,16:256,128`."""
    name, _, sizes = text.partition(":")
    channels: tuple[int, ...] = ()
    if name == "cnn":
        first, _, second = (sizes or _CNN).partition(":")
        channels, hidden = _sizes(text, first), _sizes(text, second or _CNN.partition(":")[2])
    elif name == "mlp":
        hidden = _sizes(text, sizes or _MLP)
    else:
        raise ValueError(f"network {text!r} is unknown; {_HELP}")
    usual = math.sqrt(max(1, inputs - intercept) * (1 + intercept))
    return Network(inputs, outputs, intercept, usual if scale is None else scale, channels, hidden)


def _sizes(text: str, sizes: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in sizes.split(","))
    except ValueError:
        raise ValueError(f"network {text!r} has sizes {sizes!r}, which must be whole numbers; {_HELP}") from None
