"""Kernels of activations. Those of floats compute in float64 and round once to the dtype of ``x``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from byoc_core.kernels.elementwise import sigmoid
from byoc_core.kernels.memory import BLOCK_ELEMENTS, in_blocks
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "prelu"]


def _rounded_once(function: Callable[..., Any]) -> NumpyKernel:
    """Gives the kernel that applies a function to ``x`` in float64, and rounds once."""

    def kernel(x: NDArray, *, out: NDArray | None = None, **attrs: float) -> NDArray:
        if x.size > BLOCK_ELEMENTS and x.flags.c_contiguous:
            return in_blocks(kernel, x, out, **attrs)
        return np.asarray(function(x.astype(np.float64, copy=False), **attrs)).astype(x.dtype, copy=False)

    return NumpyKernel(kernel, fresh=True, elementwise=True)


def _gated(x: NDArray, gate: NDArray) -> NDArray:
    """Gives ``x * gate``; zero where the gate is shut, for infinite ``x`` too."""
    return np.asarray(np.where(gate == 0, 0.0, x * gate))


def _softplus(x: NDArray) -> NDArray:
    return np.asarray(np.logaddexp(x, 0.0))


def _softsign(x: NDArray) -> NDArray:
    return np.asarray(np.where(np.isinf(x), np.sign(x), x / (1.0 + np.abs(x))))


def _elu(x: NDArray, *, alpha: float) -> NDArray:
    return np.asarray(np.where(x < 0, alpha * np.expm1(x), x))


def _selu(x: NDArray, *, alpha: float, gamma: float) -> NDArray:
    return np.asarray(gamma * np.where(x < 0, alpha * np.expm1(x), x))


def _celu(x: NDArray, *, alpha: float) -> NDArray:
    return np.asarray(np.maximum(x, 0.0) + np.minimum(alpha * np.expm1(x / alpha), 0.0))


def _hard_sigmoid(x: NDArray, *, alpha: float, beta: float) -> NDArray:
    return np.asarray(np.clip(alpha * x + beta, 0.0, 1.0))


def _hard_swish(x: NDArray) -> NDArray:
    return _gated(x, np.clip(x / 6.0 + 0.5, 0.0, 1.0))


def _swish(x: NDArray, *, alpha: float) -> NDArray:
    return _gated(x, sigmoid(np.asarray(alpha * x)))


def _mish(x: NDArray) -> NDArray:
    return _gated(x, np.tanh(_softplus(x)))


def _thresholded_relu(x: NDArray, *, alpha: float) -> NDArray:
    return np.asarray(np.where(x <= alpha, 0.0, x))


def _shrink(x: NDArray, *, lambd: float, bias: float) -> NDArray:
    return np.asarray(np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, np.where(np.isnan(x), x, 0.0))))


def prelu(x: NDArray, slope: NDArray) -> NDArray:
    """Gives ``x`` where it is zero or more, else ``slope * x``."""
    return np.asarray(np.where(x < 0, x * slope, x))


KERNELS: dict[str, Callable[..., NDArray]] = {
    "nn.softplus": _rounded_once(_softplus),
    "nn.softsign": _rounded_once(_softsign),
    "nn.elu": _rounded_once(_elu),
    "nn.selu": _rounded_once(_selu),
    "nn.celu": _rounded_once(_celu),
    "nn.hard_sigmoid": _rounded_once(_hard_sigmoid),
    "nn.hard_swish": _rounded_once(_hard_swish),
    "nn.swish": _rounded_once(_swish),
    "nn.mish": _rounded_once(_mish),
    "nn.thresholded_relu": _rounded_once(_thresholded_relu),
    "nn.shrink": _rounded_once(_shrink),
    "nn.prelu": NumpyKernel(prelu, fresh=True),
}
