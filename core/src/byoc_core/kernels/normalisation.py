"""Kernels of normalisation: batch norm (inference), layer, group, instance and RMS norm, LRN, the softmax family."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.indices import require_shape
from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = [
    "KERNELS",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "log_softmax",
    "lrn",
    "rms_norm",
    "softmax",
]


def batch_norm(
    x: NDArray, gamma: NDArray, beta: NDArray, mean: NDArray, variance: NDArray, *, axis: int, epsilon: float
) -> NDArray:
    """Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with given statistics per channel.

    Shapes: ``(..., C, ...)`` and four times ``(C,)``; the result has the shape of ``x``.

    Raises:
        ExecutionError: a parameter has another shape.
    """
    for name, given in (("gamma", gamma), ("beta", beta), ("mean", mean), ("variance", variance)):
        require_shape("nn.batch_norm", name, given.shape, (x.shape[axis],))
    wide = working_dtype(x.dtype)
    shape = [1] * x.ndim
    shape[axis] = -1
    scale, shift, centre, spread = (p.astype(wide, copy=False).reshape(shape) for p in (gamma, beta, mean, variance))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(spread + np.asarray(epsilon, wide))
        return np.asarray((x.astype(wide, copy=False) - centre) * factor + shift).astype(x.dtype, copy=False)


def layer_norm(x: NDArray, gamma: NDArray, beta: NDArray, *, axes: tuple[int, ...], epsilon: float) -> NDArray:
    """Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the statistics of ``x`` over ``axes``.

    Shapes: ``gamma`` and ``beta`` have the sizes of ``axes``, in order; the result has the shape of ``x``.

    Raises:
        ExecutionError: a parameter has another shape.
    """
    wide = working_dtype(x.dtype)
    normalised = sorted(axis % x.ndim for axis in axes)
    for name, given in (("gamma", gamma), ("beta", beta)):
        require_shape("nn.layer_norm", name, given.shape, [x.shape[axis] for axis in normalised])
    shape = [size if axis in normalised else 1 for axis, size in enumerate(x.shape)]
    if x.size == 0:
        return x.copy()
    with np.errstate(all="ignore"):
        values = x.astype(wide, copy=False)
        centred = values - values.mean(axis=tuple(normalised), keepdims=True)
        variance = np.square(centred).mean(axis=tuple(normalised), keepdims=True)
        scaled = centred / np.sqrt(variance + np.asarray(epsilon, wide))
        result = scaled * gamma.astype(wide, copy=False).reshape(shape) + beta.astype(wide, copy=False).reshape(shape)
        return np.asarray(result).astype(x.dtype, copy=False)


def softmax(x: NDArray, *, axis: int) -> NDArray:
    """Gives ``exp(x) / sum(exp(x))`` along one axis, shifted by the maximum so that nothing overflows."""
    if x.size == 0:
        return x.copy()
    with np.errstate(all="ignore"):
        values = x.astype(working_dtype(x.dtype), copy=False)
        powers = np.exp(values - values.max(axis=axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis=axis, keepdims=True)).astype(x.dtype, copy=False)


def log_softmax(x: NDArray, *, axis: int) -> NDArray:
    """Gives ``x - log(sum(exp(x)))`` along one axis, shifted by the maximum so that nothing overflows."""
    if x.size == 0:
        return x.copy()
    with np.errstate(all="ignore"):
        values = x.astype(working_dtype(x.dtype), copy=False)
        shifted = values - values.max(axis=axis, keepdims=True)
        total = np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
        return np.asarray(shifted - total).astype(x.dtype, copy=False)


def group_norm(x: NDArray, gamma: NDArray, beta: NDArray, *, groups: int, epsilon: float) -> NDArray:
    """Gives ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with statistics per image and group of channels.

    Shapes: ``(N, C, ...), (C,), (C,) -> (N, C, ...)``.

    Raises:
        ExecutionError: a parameter has another shape, or the groups do not divide the channels.
    """
    if x.shape[1] % groups:
        raise ExecutionError(
            "op `nn.group_norm`, operand `x`",
            "the groups do not divide the channels (axis 1)",
            got=x.shape[1],
            expected=f"a multiple of {groups}",
        )
    return _normalise_groups("nn.group_norm", x, gamma, beta, groups, epsilon)


def _normalise_groups(op: str, x: NDArray, gamma: NDArray, beta: NDArray, groups: int, epsilon: float) -> NDArray:
    for name, given in (("gamma", gamma), ("beta", beta)):
        require_shape(op, name, given.shape, (x.shape[1],))
    if x.size == 0:
        return x.copy()
    wide = working_dtype(x.dtype)
    column = (-1, *[1] * (x.ndim - 2))
    with np.errstate(all="ignore"):
        values = x.astype(wide, copy=False).reshape(x.shape[0], groups, -1)
        centred = values - values.mean(axis=2, keepdims=True)
        variance = np.square(centred).mean(axis=2, keepdims=True)
        scaled = (centred / np.sqrt(variance + np.asarray(epsilon, wide))).reshape(x.shape)
        result = scaled * gamma.astype(wide, copy=False).reshape(column) + beta.astype(wide, copy=False).reshape(column)
        return np.asarray(result).astype(x.dtype, copy=False)


def instance_norm(x: NDArray, gamma: NDArray, beta: NDArray, *, epsilon: float) -> NDArray:
    """Gives :func:`group_norm` with every channel a group of its own.

    Shapes: ``(N, C, ...), (C,), (C,) -> (N, C, ...)``.

    Raises:
        ExecutionError: a parameter has another shape.
    """
    return _normalise_groups("nn.instance_norm", x, gamma, beta, x.shape[1], epsilon)


def rms_norm(x: NDArray, gamma: NDArray, *, axes: tuple[int, ...], epsilon: float) -> NDArray:
    """Gives ``x / sqrt(mean(x**2) + epsilon) * gamma`` with the mean over ``axes``.

    Shapes: ``gamma`` has the sizes of ``axes``, in order; the result has the shape of ``x``.

    Raises:
        ExecutionError: ``gamma`` has another shape.
    """
    normalised = tuple(sorted(axis % x.ndim for axis in axes))
    require_shape("nn.rms_norm", "gamma", gamma.shape, [x.shape[axis] for axis in normalised])
    if x.size == 0:
        return x.copy()
    wide = working_dtype(x.dtype)
    shape = [size if axis in normalised else 1 for axis, size in enumerate(x.shape)]
    with np.errstate(all="ignore"):
        values = x.astype(wide, copy=False)
        power = np.square(values).mean(axis=normalised, keepdims=True)
        scaled = values / np.sqrt(power + np.asarray(epsilon, wide))
        return np.asarray(scaled * gamma.astype(wide, copy=False).reshape(shape)).astype(x.dtype, copy=False)


def lrn(x: NDArray, *, size: int, alpha: float, beta: float, bias: float) -> NDArray:
    """Gives ``x / (bias + alpha / size * s) ** beta``; ``s`` sums the squares of ``size`` channels around each.

    Of the neighbours ``(size - 1) // 2`` come before; those beyond the ends count as zero.

    Shapes: ``(N, C, ...) -> (N, C, ...)``.
    """
    wide = working_dtype(x.dtype)
    with np.errstate(all="ignore"):
        values = x.astype(wide, copy=False)
        squares = np.square(values)
        total = np.zeros_like(squares)
        channels = x.shape[1]
        for step in range(-((size - 1) // 2), size // 2 + 1):
            first, last = max(0, -step), max(0, channels - max(0, step))
            total[:, first:last] += squares[:, first + step : max(0, last + step)]
        base = np.asarray(bias, wide) + np.asarray(alpha / size, wide) * total
        return np.asarray(values / np.power(base, np.asarray(beta, wide))).astype(x.dtype, copy=False)


KERNELS: dict[str, Callable[..., NDArray]] = {
    "nn.batch_norm": batch_norm,
    "nn.group_norm": group_norm,
    "nn.instance_norm": instance_norm,
    "nn.layer_norm": layer_norm,
    "nn.log_softmax": log_softmax,
    "nn.lrn": lrn,
    "nn.rms_norm": rms_norm,
    "nn.softmax": softmax,
}
