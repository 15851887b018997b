"""Kernels of normalisation: batch norm (inference), layer, group, instance and RMS norm, LRN, the softmax family."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.indices import check_array_shape
from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "log_softmax",
    "lrn",
    "rms_norm",
    "softmax",
    "stepwise_softmax",
]


def batch_norm(
    x: NDArray,
    gamma: NDArray,
    beta: NDArray,
    mean: NDArray,
    variance: NDArray,
    *,
    axis: int,
    epsilon: float,
    out: NDArray | None = None,
) -> NDArray:
    """Return ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with given statistics per channel.

    Shapes: ``(..., C, ...)`` and four times ``(C,)``; the result has the shape of ``x``.

    Raises:
        ExecutionError: a parameter has another shape.
    """
    for name, array in (("gamma", gamma), ("beta", beta), ("mean", mean), ("variance", variance)):
        check_array_shape("nn.batch_norm", name, array.shape, (x.shape[axis],))
    shape = [1] * x.ndim
    shape[axis] = -1
    scale, shift, centre, variances = (parameter.reshape(shape) for parameter in (gamma, beta, mean, variance))
    factor = scale / np.sqrt(variances + np.asarray(epsilon, x.dtype))
    # With a single axis a parameter may be `out`; the last parameter is read after the first write.
    scaled = np.subtract(x, centre, out=None if out is beta else out)
    scaled *= factor
    return np.asarray(np.add(scaled, shift, out=out))


def layer_norm(
    x: NDArray,
    gamma: NDArray,
    beta: NDArray,
    *,
    axes: tuple[int, ...],
    epsilon: float,
    out: NDArray | None = None,
) -> NDArray:
    """Return ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with the statistics of ``x`` over ``axes``.

    Shapes: ``gamma`` and ``beta`` have the sizes of ``axes``, in order; the result has the shape of ``x``.

    Raises:
        ExecutionError: a parameter has another shape.
    """
    normalised = tuple(sorted(axis % x.ndim for axis in axes))
    for name, parameter in (("gamma", gamma), ("beta", beta)):
        check_array_shape("nn.layer_norm", name, parameter.shape, [x.shape[axis] for axis in normalised])
    shape = [size if axis in normalised else 1 for axis, size in enumerate(x.shape)]
    if x.size == 0:
        return x.copy()
    scaled = _standardised(x, normalised, epsilon, out=None if out is gamma or out is beta else out)
    scaled *= gamma.reshape(shape)
    return np.asarray(np.add(scaled, beta.reshape(shape), out=out))


def _standardised(x: NDArray, axes: tuple[int, ...], epsilon: float, out: NDArray | None = None) -> NDArray:
    """Return ``(x - mean) / sqrt(variance + epsilon)`` with the statistics of ``x`` over ``axes``."""
    centred = np.subtract(x, _mean(x, axes), out=out)
    centred /= np.sqrt(_mean(np.square(centred), axes) + np.asarray(epsilon, x.dtype))
    return centred


def _mean(x: NDArray, axes: tuple[int, ...]) -> NDArray:
    """Return ``x.mean`` over kept axes, in a fraction of the overhead."""
    total = np.add.reduce(x, axes, keepdims=True)
    total /= np.asarray(math.prod([x.shape[axis] for axis in axes]), x.dtype)
    return np.asarray(total)


def softmax(x: NDArray, *, axis: int, out: NDArray | None = None) -> NDArray:
    """Return ``exp(x) / sum(exp(x))`` along an axis, shifted by the maximum to prevent overflow."""
    if x.size == 0:
        return x.copy()
    powers = np.subtract(x, np.maximum.reduce(x, axis, keepdims=True), out=out)
    np.exp(powers, out=powers)
    powers /= np.add.reduce(powers, axis, keepdims=True)
    return powers


def log_softmax(x: NDArray, *, axis: int, out: NDArray | None = None) -> NDArray:
    """Return ``x - log(sum(exp(x)))`` along an axis, shifted by the maximum to prevent overflow."""
    if x.size == 0:
        return x.copy()
    shifted = np.subtract(x, np.maximum.reduce(x, axis, keepdims=True), out=out)
    shifted -= np.log(np.add.reduce(np.exp(shifted), axis, keepdims=True))
    return shifted


def stepwise_softmax(x: NDArray, *, axis: int, zero_unseen: bool = False) -> NDArray:
    """Return ``exp(x) / sum(exp(x))`` along an axis, with each step rounded to the dtype of ``x``.

    A line of minus infinities alone yields NaN, or zeros with ``zero_unseen``.

    The steps are the difference to the maximum, the exponential, the sum, and the quotient. Exponentials of float16 are
    summed in float32 and the sum is rounded once. Each addition of another narrow dtype is rounded: the halves of a
    line are added to each other until at most eight numbers are left, which are added in order.
    """
    if x.size == 0:
        return x.copy()
    dtype, wide = x.dtype, working_dtype(x.dtype)

    def rounded(step: NDArray) -> NDArray:
        return step.astype(dtype, copy=False).astype(wide, copy=False)

    # Sum along contiguous rows for any strides.
    lines = np.ascontiguousarray(np.moveaxis(x, axis, -1)).astype(wide, copy=False)
    top = lines.max(axis=-1, keepdims=True)
    is_unseen = np.isneginf(top) if zero_unseen else np.zeros_like(top, bool)
    powers = rounded(np.exp(rounded(lines - np.where(is_unseen, np.zeros_like(top), top))))
    is_exact = dtype == wide or dtype == np.float16
    total = powers.sum(axis=-1, keepdims=True) if is_exact else _sum_of_halves(powers, rounded)
    divisor = np.where(is_unseen, np.ones_like(top), rounded(total))
    return np.asarray(np.moveaxis((powers / divisor).astype(dtype, copy=False), -1, axis))


def _sum_of_halves(lines: NDArray, rounded: Callable[[NDArray], NDArray]) -> NDArray:
    """Return the sums of lines: halves are added to each other down to eight numbers, which are added in order."""
    while (count := lines.shape[-1]) > 8:
        half = (count + 1) // 2
        added = rounded(lines[..., : count - half] + lines[..., half:])
        lines = np.concatenate((added, lines[..., count - half : half]), axis=-1)
    total = lines[..., :1]
    for index in range(1, lines.shape[-1]):
        total = rounded(total + lines[..., index : index + 1])
    return total


def group_norm(x: NDArray, gamma: NDArray, beta: NDArray, *, groups: int, epsilon: float) -> NDArray:
    """Return ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with statistics per image and group of channels.

    Shapes: ``(N, C, ...), (C,), (C,) -> (N, C, ...)``.

    Raises:
        ExecutionError: a parameter has another shape, or the channels are not divisible into the groups.
    """
    if x.shape[1] % groups:
        raise ExecutionError(
            "op `nn.group_norm`, operand `x`",
            "the channels (axis 1) are not divisible into the groups",
            got=x.shape[1],
            expected=f"a multiple of {groups}",
        )
    return _normalise_groups("nn.group_norm", x, gamma, beta, groups, epsilon)


def _normalise_groups(op: str, x: NDArray, gamma: NDArray, beta: NDArray, groups: int, epsilon: float) -> NDArray:
    for name, parameter in (("gamma", gamma), ("beta", beta)):
        check_array_shape(op, name, parameter.shape, (x.shape[1],))
    if x.size == 0:
        return x.copy()
    column = (-1, *[1] * (x.ndim - 2))
    result = _standardised(x.reshape(x.shape[0], groups, -1), (2,), epsilon).reshape(x.shape)
    result *= gamma.reshape(column)
    result += beta.reshape(column)
    return result


def instance_norm(x: NDArray, gamma: NDArray, beta: NDArray, *, epsilon: float) -> NDArray:
    """Return :func:`group_norm` with every channel a separate group.

    Shapes: ``(N, C, ...), (C,), (C,) -> (N, C, ...)``.

    Raises:
        ExecutionError: a parameter has another shape.
    """
    return _normalise_groups("nn.instance_norm", x, gamma, beta, x.shape[1], epsilon)


def rms_norm(x: NDArray, gamma: NDArray, *, axes: tuple[int, ...], epsilon: float) -> NDArray:
    """Return ``x / sqrt(mean(x**2) + epsilon) * gamma`` with the mean over ``axes``.

    Shapes: ``gamma`` has the sizes of ``axes``, in order; the result has the shape of ``x``.

    Raises:
        ExecutionError: ``gamma`` has another shape.
    """
    normalised = tuple(sorted(axis % x.ndim for axis in axes))
    check_array_shape("nn.rms_norm", "gamma", gamma.shape, [x.shape[axis] for axis in normalised])
    if x.size == 0:
        return x.copy()
    shape = [size if axis in normalised else 1 for axis, size in enumerate(x.shape)]
    scaled = x / np.sqrt(_mean(np.square(x), normalised) + np.asarray(epsilon, x.dtype))
    scaled *= gamma.reshape(shape)
    return np.asarray(scaled)


def lrn(x: NDArray, *, size: int, alpha: float, beta: float, bias: float, axis: int) -> NDArray:
    """Return ``x / (bias + alpha / size * s) ** beta``; ``s`` sums the squares of ``size`` neighbouring channels.

    ``(size - 1) // 2`` neighbours come before; neighbours beyond the ends count as zero.

    Shapes: any of rank 2 or more, with the channels on ``axis``; the result has the shape of ``x``.
    """
    squares = np.moveaxis(np.square(x), axis, 0)
    total = np.zeros_like(squares)
    channels = x.shape[axis]
    for step in range(max(-((size - 1) // 2), 1 - channels), min(size // 2, channels - 1) + 1):
        first, last = max(0, -step), max(0, channels - max(0, step))
        total[first:last] += squares[first + step : max(0, last + step)]
    base = np.asarray(bias, x.dtype) + np.asarray(alpha / size, x.dtype) * np.moveaxis(total, 0, axis)
    return np.asarray(x / np.power(base, np.asarray(beta, x.dtype)))
