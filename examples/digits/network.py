"""A small trainable network in plain numpy: layers with forward and backward, and Adam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


class Layer(ABC):
    """A differentiable step. ``backward`` follows ``forward`` and fills ``gradients`` beside ``parameters``."""

    def __init__(self, *parameters: Array) -> None:
        self.parameters = parameters
        self.gradients = tuple(np.zeros_like(parameter) for parameter in parameters)

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """Return the layer's output and keep the values needed by ``backward``."""

    @abstractmethod
    def backward(self, upstream: Array) -> Array:
        """Return the loss's gradient by the input, from the gradient by the output."""


class Conv2d(Layer):
    """A size-preserving 3x3 convolution: x (N, C, H, W) to (N, O, H, W); weight (O, C, 3, 3), bias (O,)."""

    def __init__(self, channels_in: int, channels_out: int, rng: np.random.Generator) -> None:
        scale = np.sqrt(2.0 / (9 * channels_in))
        self.weight: Array = rng.normal(0.0, scale, (channels_out, channels_in, 3, 3)).astype(np.float32)
        super().__init__(self.weight, np.zeros(channels_out, np.float32))

    def forward(self, x: Array) -> Array:
        """Gather the nine shifted images beside each other, then multiply once."""
        n, c, h, w = x.shape
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        self.columns: Array = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)
        rows = self.columns @ self.weight.reshape(len(self.weight), -1).T + self.parameters[1]
        result: Array = rows.reshape(n, h, w, -1).transpose(0, 3, 1, 2)
        return result

    def backward(self, upstream: Array) -> Array:
        """Add the gradients of all windows back at their places."""
        n, o, h, w = upstream.shape
        c = self.weight.shape[1]
        rows = upstream.transpose(0, 2, 3, 1).reshape(-1, o)
        self.gradients[0][...] = (rows.T @ self.columns).reshape(self.weight.shape)
        self.gradients[1][...] = rows.sum(axis=0)
        windows = (rows @ self.weight.reshape(o, -1)).reshape(n, h, w, c, 3, 3).transpose(0, 3, 1, 2, 4, 5)
        padded: Array = np.zeros((n, c, h + 2, w + 2), np.float32)
        for row in range(3):
            for column in range(3):
                padded[:, :, row : row + h, column : column + w] += windows[..., row, column]
        return padded[:, :, 1:-1, 1:-1]


class Dense(Layer):
    """A fully connected layer: x (N, I) to (N, O); weight (O, I), bias (O,)."""

    def __init__(self, features_in: int, features_out: int, rng: np.random.Generator) -> None:
        scale = np.sqrt(2.0 / features_in)
        self.weight: Array = rng.normal(0.0, scale, (features_out, features_in)).astype(np.float32)
        super().__init__(self.weight, np.zeros(features_out, np.float32))

    def forward(self, x: Array) -> Array:
        """Return ``x @ weight.T + bias``."""
        self.x = x
        result: Array = x @ self.weight.T + self.parameters[1]
        return result

    def backward(self, upstream: Array) -> Array:
        """Fill both gradients."""
        self.gradients[0][...] = upstream.T @ self.x
        self.gradients[1][...] = upstream.sum(axis=0)
        result: Array = upstream @ self.weight
        return result


class Relu(Layer):
    """``max(x, 0)``."""

    def forward(self, x: Array) -> Array:
        """Set negative elements to zero."""
        self.positive = x > 0
        result: Array = x * self.positive
        return result

    def backward(self, upstream: Array) -> Array:
        """Pass the gradient of positive elements."""
        result: Array = upstream * self.positive
        return result


class MaxPool(Layer):
    """The largest of each 2x2 block: (N, C, H, W) to (N, C, H/2, W/2)."""

    def forward(self, x: Array) -> Array:
        """Take maxima; ties share the gradient."""
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        result: Array = blocks.max(axis=(3, 5))
        winners = blocks == result[:, :, :, None, :, None]
        self.share: Array = winners / winners.sum(axis=(3, 5), keepdims=True, dtype=np.float32)
        return result

    def backward(self, upstream: Array) -> Array:
        """Send the gradient to the maxima."""
        expanded = self.share * upstream[:, :, :, None, :, None]
        n, c, h, _, w, _ = expanded.shape
        result: Array = expanded.reshape(n, c, 2 * h, 2 * w)
        return result


class Flatten(Layer):
    """(N, ...) to (N, F)."""

    def forward(self, x: Array) -> Array:
        """Join all axes but the first."""
        self.shape: tuple[int, ...] = x.shape
        return x.reshape(len(x), -1)

    def backward(self, upstream: Array) -> Array:
        """Restore the axes."""
        return upstream.reshape(self.shape)


class Network:
    """Layers in a row, trained by Adam on the cross-entropy of a softmax."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.moments = [(np.zeros_like(p), np.zeros_like(p)) for layer in layers for p in layer.parameters]
        self.step = 0

    def logits(self, x: Array) -> Array:
        """Return the class scores (N, 10)."""
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def train_batch(self, x: Array, labels: Indices, learning_rate: float) -> float:
        """Make a step of Adam (Kingma and Ba 2015, algorithm 1) and return the batch's mean loss before the step."""
        scores = self.logits(x)
        shifted = scores - scores.max(axis=1, keepdims=True)
        log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        rows = np.arange(len(labels))
        upstream: Array = np.exp(log_probabilities)
        upstream[rows, labels] -= 1.0
        upstream /= np.float32(len(labels))
        for layer in reversed(self.layers):
            upstream = layer.backward(upstream)
        self._descend(learning_rate)
        return float(-log_probabilities[rows, labels].mean())

    def _descend(self, learning_rate: float) -> None:
        self.step += 1
        pairs = [pair for layer in self.layers for pair in zip(layer.parameters, layer.gradients, strict=True)]
        for (parameter, gradient), (first, second) in zip(pairs, self.moments, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient * gradient - second)
            rate = learning_rate * np.sqrt(1.0 - 0.999**self.step) / (1.0 - 0.9**self.step)
            parameter -= (rate * first / (np.sqrt(second) + 1e-8)).astype(np.float32)
