"""Layers of networks: outputs, and per-row gradients in the form that clipping needs.

Shapes: inputs (n, `inputs`) and outputs (n, `outputs`) of n rows, an image channel by channel; slopes are
derivatives of the loss and have the shape of the variable; the parameters of a layer are one vector, its
biases last. A row's results depend on its own inputs alone, by the same instructions whatever they are.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

LARGEST_SQUARE = 2.0**200  # of an input's norm: above it the model has diverged and the gradient is 0
KERNEL = 5  # side of a convolution's kernels
WINDOW = KERNEL + 1  # side of the inputs that a 2×2 square of outputs depends on


class Gradients(Protocol):
    """The gradients of n rows in one layer's parameters."""

    def squares(self) -> np.ndarray:
        """Return ‖g‖² of each row, shape (n,); above LARGEST_SQUARE², or NaN, where the inputs have diverged."""

    def clear(self, rows: np.ndarray) -> None:
        """Set the gradients of some rows to 0."""

    def add_up(self, weights: np.ndarray, total: np.ndarray) -> None:
        """Write Σ weight · g into `total`, shape (parameters,)."""

    def input_slopes(self) -> np.ndarray:
        """Return the slopes in the inputs."""


class Layer(Protocol):
    """The interface of a layer."""

    @property
    def inputs(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def fan_in(self) -> int:
        """Number of inputs that one output depends on."""

    @property
    def parameters(self) -> int:
        """Number of parameters, biases included."""

    @property
    def biases(self) -> int: ...

    @property
    def peak_numbers(self) -> int:
        """Largest number of values that one row needs in memory at a time."""

    def forward(self, parameters: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return the outputs, and the values that `backward` needs."""

    def backward(self, parameters: np.ndarray, saved: Any, slopes: np.ndarray) -> Gradients:
        """Return the gradients, from the slopes in the outputs."""


@dataclass(frozen=True)
class Dense:
    """outputs = inputs · weights + biases; the weights have the shape (inputs, outputs)."""

    inputs: int
    outputs: int

    @property
    def fan_in(self) -> int:
        return self.inputs

    @property
    def parameters(self) -> int:
        return (self.inputs + 1) * self.outputs

    @property
    def biases(self) -> int:
        return self.outputs

    @property
    def peak_numbers(self) -> int:
        return 2 * self.inputs + 3 * self.outputs

    def forward(self, parameters: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, Any]:
        outputs = inputs @ self._weights(parameters)
        outputs += parameters[-self.outputs :]
        return outputs, inputs

    def backward(self, parameters: np.ndarray, saved: Any, slopes: np.ndarray) -> Gradients:
        return OuterProducts(saved, slopes, self._weights(parameters))

    def _weights(self, parameters: np.ndarray) -> np.ndarray:
        return parameters[: -self.outputs].reshape(self.inputs, self.outputs)


@dataclass(frozen=True)
class OuterProducts:
    """Gradients of a dense layer: (a, 1) ⊗ δ, for inputs a and slopes δ in the outputs.

    ‖g‖² = (‖a‖² + 1)‖δ‖², so that no row's gradient is computed; Σ w g is one product of two matrices.
    """

    inputs: np.ndarray
    slopes: np.ndarray
    weights: np.ndarray

    def squares(self) -> np.ndarray:
        lengths = _squares(self.inputs)
        return (np.where(lengths <= LARGEST_SQUARE, lengths, np.inf) + 1.0) * _squares(self.slopes)

    def clear(self, rows: np.ndarray) -> None:
        self.inputs[rows], self.slopes[rows] = 0.0, 0.0

    def add_up(self, weights: np.ndarray, total: np.ndarray) -> None:
        scaled, outputs = self.slopes * weights[:, None], self.slopes.shape[1]
        np.matmul(self.inputs.T, scaled, out=total[:-outputs].reshape(-1, outputs))
        scaled.sum(axis=0, out=total[-outputs:])

    def input_slopes(self) -> np.ndarray:
        return self.slopes @ self.weights.T


@dataclass(frozen=True)
class Convolution:
    """5×5 convolution of square images without padding, then max pooling over 2×2 outputs.

    An output is the largest of four sums over its 6×6 window, one for each position of the kernel in it. So
    the kernel is copied into the window at its four positions, and one product computes all sums: with four times
    as many kernels of 36 weights, over a quarter of the windows. Parameters: (channels, 5, 5, maps), biases.
    """

    side: int  # side of an image
    channels: int  # channels of an image
    maps: int  # channels of the outputs

    @property
    def pooled(self) -> int:
        """Side of the outputs."""
        return (self.side - KERNEL + 1) // 2

    @property
    def inputs(self) -> int:
        return self.channels * self.side**2

    @property
    def outputs(self) -> int:
        return self.maps * self.pooled**2

    @property
    def fan_in(self) -> int:
        return self.channels * KERNEL**2

    @property
    def parameters(self) -> int:
        return (self.fan_in + 1) * self.maps

    @property
    def biases(self) -> int:
        return self.maps

    @property
    def peak_numbers(self) -> int:
        windows = self.channels * WINDOW**2
        return 2 * self.inputs + (2 * windows + 8 * self.maps) * self.pooled**2 + 5 * self.maps * windows

    def forward(self, parameters: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, Any]:
        windows, rows = self._windows(inputs), len(inputs)
        first, second, third, fourth = (self._placed(parameters) @ windows).reshape(4, self.maps, windows.shape[1])
        upper, lower = np.maximum(first, second), np.maximum(third, fourth)
        outputs = np.maximum(upper, lower)
        outputs += parameters[-self.maps :, None]
        outputs = outputs.reshape(self.maps, rows, self.pooled**2).swapaxes(0, 1).reshape(rows, self.outputs)
        return outputs, (windows, second > first, fourth > third, lower > upper)

    def backward(self, parameters: np.ndarray, saved: Any, slopes: np.ndarray) -> Gradients:
        """Return the gradients; among equal largest sums the first one has the slope."""
        windows, second, fourth, below = saved
        pooled = np.ascontiguousarray(slopes.reshape(len(slopes), self.maps, self.pooled**2).swapaxes(0, 1))
        spread = np.empty((4, self.maps, second.shape[1]))
        np.multiply(pooled.reshape(below.shape), below, out=spread[2])
        np.subtract(pooled.reshape(below.shape), spread[2], out=spread[0])
        for place, later in ((0, second), (2, fourth)):
            np.multiply(spread[place], later, out=spread[place + 1])
            spread[place] -= spread[place + 1]
        values = np.empty((len(slopes), self.parameters))
        values[:, -self.maps :] = pooled.sum(axis=2).T
        self._correlate(windows, spread, values[:, : -self.maps])
        return PerRowGradients(values, self, parameters, spread)

    def _correlate(self, windows: np.ndarray, spread: np.ndarray, kernels: np.ndarray) -> None:
        """Write each row's slopes in the kernels, shape (n, channels · 25 · maps): the sum over the four positions."""
        rows, outputs = len(kernels), 4 * self.maps
        apart = windows.reshape(len(windows), rows, self.pooled**2).swapaxes(0, 1)
        products = apart @ spread.reshape(outputs, rows, self.pooled**2).transpose(1, 2, 0)
        products = products.reshape(rows, self.channels, WINDOW, WINDOW, 4, self.maps)
        kernels = kernels.reshape(rows, self.channels, KERNEL, KERNEL, self.maps)
        kernels[:] = _at(products[..., 0, :], 0)
        for place in range(1, 4):
            kernels += _at(products[..., place, :], place)

    def _windows(self, images: np.ndarray) -> np.ndarray:
        """Return the window of each output, shape (channels · 36, n · outputs of a channel)."""
        rows, side, step = len(images), self.side, images.itemsize
        images = np.ascontiguousarray(images)
        shape = (self.channels, WINDOW, WINDOW, rows, self.pooled, self.pooled)
        strides = (side * side, side, 1, self.channels * side * side, 2 * side, 2)
        view = as_strided(images, shape, [step * stride for stride in strides], writeable=False)
        return view.reshape(self.channels * WINDOW**2, -1)

    def _placed(self, parameters: np.ndarray) -> np.ndarray:
        """Return the kernels at their four positions in a window, shape (4 · maps, channels · 36)."""
        kernels = parameters[: -self.maps].reshape(self.channels, KERNEL, KERNEL, self.maps)
        placed = np.zeros((4, self.maps, self.channels, WINDOW, WINDOW))
        for place in range(4):
            _at(placed[place].transpose(1, 2, 3, 0)[None], place)[0] = kernels
        return placed.reshape(4 * self.maps, -1)

    def image_slopes(self, parameters: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Return the slopes in the images (n, `inputs`), from those in the four sums of each output."""
        parts = self._placed(parameters).T @ spread.reshape(4 * self.maps, -1)
        parts = parts.reshape(self.channels, WINDOW, WINDOW, -1, self.pooled, self.pooled).swapaxes(0, 3)
        images, reach = np.zeros((len(parts), self.channels, self.side, self.side)), 2 * self.pooled
        for row in range(WINDOW):
            for column in range(WINDOW):
                images[:, :, row : row + reach : 2, column : column + reach : 2] += parts[:, row, column]
        return images.reshape(len(images), self.inputs)


@dataclass(frozen=True)
class PerRowGradients:
    """Gradients of a convolution, one vector for each row: `values` has the shape (n, parameters)."""

    values: np.ndarray
    layer: Convolution
    parameters: np.ndarray
    spread: np.ndarray

    def squares(self) -> np.ndarray:
        return _squares(self.values)

    def clear(self, rows: np.ndarray) -> None:
        self.values[rows] = 0.0

    def add_up(self, weights: np.ndarray, total: np.ndarray) -> None:
        np.matmul(weights, self.values, out=total)

    def input_slopes(self) -> np.ndarray:
        return self.layer.image_slopes(self.parameters, self.spread)


def _squares(values: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", values, values)


def _at(windows: np.ndarray, place: int) -> np.ndarray:
    """Return the part of windows (n, channels, 6, 6, maps) that the kernel covers at one of its four positions."""
    row, column = divmod(place, 2)
    return windows[:, :, row : row + KERNEL, column : column + KERNEL]
