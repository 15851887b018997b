"""Importers for spectra: Fourier transforms, the weights of mel bands, and determinants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_axes import from_front
from byoc_core.frontend.onnx.ops.data_dependent import emit_range
from byoc_core.frontend.onnx.ops.data_sizes import (
    as_sizes,
    elements,
    int_vector,
    is_computed,
    number,
    read_sizes,
    size_value,
    sizes_value,
)
from byoc_core.frontend.onnx.ops.float_arithmetic import compute_in_wide_floats
from byoc_core.frontend.onnx.weights import dtype_of
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_MAX_CONVOLVED = 2048
"""The longest frame transformed by a convolution: for longer frames the weights exceed 16 MiB."""
_MEL_BREAK_HZ, _MEL_PER_DECADE = 700.0, 2595.0
"""The constants of the mel scale: ``2595 * log10(1 + f / 700)``."""


def _size(node: NodeContext, index: int) -> Dim:
    """Return an input of a single element as a size."""
    sizes = read_sizes(node, index, 1)
    if len(sizes) != 1:
        raise node.error(f"input {index} is not a single number", got=len(sizes), expected=1)
    return sizes[0]


# Fourier transforms


def _import_dft(node: NodeContext) -> Sequence[Imported]:
    shape = node.shape(0)
    rank = len(shape)
    inverse, onesided = node.attr_flag("inverse"), node.attr_flag("onesided")
    length = _size(node, 1) if node.has_input(1) else None
    attrs = {"length": length, "inverse": inverse, "onesided": onesided}
    if node.opset >= 20 and node.has_input(2) and is_computed(node, 2):
        return (_dft_along_computed_axis(node, attrs),)
    axis = node.attr_int("axis", 1) if node.opset < 20 else -2
    if node.opset >= 20 and node.has_input(2):
        (axis,) = node.ints(2)
    if node.axis(axis, rank) == rank - 1:
        raise node.error("transforms the axis of real and imaginary parts", got=axis)
    return (node.emit("dft", node.value(0), axis=axis, **attrs),)


def _dft_along_computed_axis(node: NodeContext, attrs: Mapping[str, object]) -> Value:
    """Return the transform along an axis computed at run time: the second of four axes of a view."""
    shape = node.shape(0)
    rank = len(shape) - 1
    (axis,) = elements(node, from_front(node, int_vector(node, 2, 1), rank + 1), 1)
    indices, sizes, unit = (
        node.constant(np.arange(rank, dtype=np.int64)),
        sizes_value(node, shape[:-1]),
        number(node, 1),
    )

    def total(relation: str) -> Value:
        factors = node.emit("where", node.emit(relation, indices, axis), sizes, unit)
        return node.emit("prod", factors, axis=(0,), keepdims=True)

    view = as_sizes(node, node.emit("concat", *map(total, ("less", "equal", "greater")), axis=0), 3)
    result = node.emit("dft", node.reshape(node.value(0), (*view, shape[-1])), axis=1, **attrs)
    _, size, _, parts = node.shape_of(result)
    new_sizes = node.emit("where", node.emit("equal", indices, axis), size_value(node, size), sizes)
    return node.reshape(result, (*as_sizes(node, new_sizes, rank), parts))


def _import_stft(node: NodeContext) -> Sequence[Imported]:
    """Import the transforms of frames of a signal.

    With a known window and step, the windowed waves are the weights of a convolution. Otherwise the frames are gathered
    and transformed.
    """
    signal, onesided = _signal(node), node.attr_flag("onesided", default=True)
    _, signal_length, parts = node.shape_of(signal)
    length, window = _frame_length(node, signal_length), _window(node)
    step = None if is_computed(node, 1) else node.dims(1)[0]
    if isinstance(step, int) and step < 1:
        raise node.error("input `frame_step` is too small", got=step, expected="1 or more")
    if window is not None and isinstance(length, int) and isinstance(step, int) and isinstance(parts, int):
        bins = length // 2 + 1 if onesided else length
        nbytes = 2 * bins * parts * length * dtype_info(node.type(0).dtype).itemsize
        if 1 <= length <= _MAX_CONVOLVED and node.may_generate(nbytes):
            return (_convolved(node, signal, window * np.ones(length), step, bins),)
    return (_gathered(node, signal, length, step, onesided=onesided),)


def _signal(node: NodeContext) -> Value:
    """Return the signal as (batch, length, parts).

    Raises:
        FrontendError: the shape is another, or the transform is one-sided and the signal complex.
    """
    signal, shape, onesided = node.value(0), node.shape(0), node.attr_flag("onesided", default=True)
    if len(shape) == 2:  # ONNX Runtime takes real signals without the last axis, too
        return node.reshape(signal, (*shape, 1))
    if len(shape) != 3 or (isinstance(shape[2], int) and shape[2] not in (1, 2)):
        raise node.error("has an input of a wrong shape", got=node.type(0).shape, expected="(batch, length, 1 or 2)")
    if onesided and shape[2] == 2:
        raise node.error("is one-sided with a complex signal", expected="attribute `onesided` 0")
    return node.reshape(signal, (*shape[:2], 1)) if onesided else signal


def _frame_length(node: NodeContext, signal_length: Dim) -> Dim:
    """Return the length of a frame, from the input, the window or the signal.

    Raises:
        FrontendError: the window has another length, or is no vector.
    """
    window: Dim | None = None
    if node.has_input(2):
        window_shape = node.shape(2)
        if len(window_shape) != 1:
            raise node.error("input `window` is no vector", got=f"rank {len(window_shape)}", expected="rank 1")
        window = window_shape[0]
    if not node.has_input(3):
        return signal_length if window is None else window
    length = _size(node, 3)
    if window is not None and isinstance(difference := window - length, int) and difference != 0:
        raise node.error("input `window` has another length than a frame", got=window, expected=length)
    return length


def _window(node: NodeContext) -> npt.NDArray[np.float64] | None:
    """Return the window in float64 if known; ones if omitted."""
    if not node.has_input(2):
        return np.ones(1)
    array = node.array(2)
    return None if array is None else array.astype(np.float64)


def _convolved(node: NodeContext, signal: Value, window: npt.NDArray[np.float64], step: int, bins: int) -> Value:
    """Return the transforms of frames as a convolution with windowed cosines and sines."""
    batch, _, parts = node.shape_of(signal)
    # Products of frequency and position modulo the length: angles of large products would lose digits.
    turns = np.outer(np.arange(bins), np.arange(window.size)) % window.size
    angles = turns * (2 * np.pi / window.size)
    cosine, sine = np.cos(angles) * window, np.sin(angles) * window
    waves = [[cosine, -sine], [sine, cosine]][: 1 if parts == 1 else 2]  # by part of the signal, then of the result
    weights = np.stack([np.concatenate(pair) for pair in waves], axis=1)

    def convolve(value: Value) -> Value:
        dtype = to_numpy(node.tensor_type(value).dtype)
        channels = node.emit("permute_dims", value, axes=(0, 2, 1))
        return node.emit("nn.conv1d", channels, node.constant(weights.astype(dtype)), strides=(step,))

    result = compute_in_wide_floats(node, signal, convolve)
    frames = node.shape_of(result)[2]
    return node.emit("permute_dims", node.reshape(result, (batch, 2, bins, frames)), axes=(0, 3, 2, 1))


def _gathered(node: NodeContext, signal: Value, length: Dim, step: Dim | None, *, onesided: bool) -> Value:
    """Return the transforms of frames gathered from the signal."""
    end = node.shape_of(signal)[1] - length + 1
    starts: Value
    if isinstance(step, int):
        starts = node.emit("arange", stop=end, step=step)
    else:
        step_value = node.reshape(int_vector(node, 1), ())
        starts = emit_range(node, number(node, 0), size_value(node, end), step_value)
    (frames,) = node.shape_of(starts)
    offsets = node.reshape(node.emit("arange", stop=length), (1, length))
    indices = node.emit("add", node.reshape(starts, (frames, 1)), offsets)
    value: Value = node.emit("take", signal, indices, axis=1)
    if node.has_input(2):
        value = node.emit("multiply", value, node.reshape(node.value(2), (length, 1)))
    return node.emit("dft", value, axis=2, onesided=onesided)


# Mel bands


def _import_mel_weight_matrix(node: NodeContext) -> Sequence[Imported]:
    """Import the weights of triangular bands, equally wide on the mel scale, for the bins of a one-sided spectrum.

    The corners of the bands are whole bins. A weight rises from the lower corner to the middle, and falls to the upper
    corner. A band with equal lower corner and middle has weight 1 there.
    """
    bands, dft_length = _size(node, 0), _size(node, 1)
    bins = dft_length // 2 + 1
    corners = _mel_corners(node, bands, dft_length)
    lower, middle, upper = (
        node.emit("take", corners, node.emit("arange", start=shift, stop=bands + shift), axis=0) for shift in range(3)
    )
    position = node.reshape(node.emit("arange", stop=bins, dtype="float64"), (bins, 1))
    zero, unit = node.constant(np.float64(0)), node.constant(np.float64(1))

    def share(distance: Value, width: Value) -> Value:
        return node.emit("divide", distance, node.emit("maximum", width, unit))

    rising = share(node.emit("subtract", position, lower), node.emit("subtract", middle, lower))
    falling = share(node.emit("subtract", upper, position), node.emit("subtract", upper, middle))
    rising = node.emit("where", node.emit("equal", position, middle), unit, rising)
    is_rising = node.emit("less_equal", position, middle)
    weights = node.emit("maximum", node.emit("where", is_rising, rising, falling), zero)
    dtype = dtype_of(node.attr_int("output_datatype", 1), f"{node.label}, attribute `output_datatype`")
    return (weights if dtype == "float64" else node.emit("cast", weights, dtype=dtype),)


def _mel_corners(node: NodeContext, bands: Dim, dft_length: Dim) -> Value:
    """Return the corners of bands as numbers of bins, in float64: two more than bands."""

    def scalar(index: int) -> Value:
        value = node.reshape(node.value(index), ())
        return value if node.type(index).dtype == "float64" else node.emit("cast", value, dtype="float64")

    def constant(value: float) -> Value:
        return node.constant(np.float64(value))

    def as_double(dim: Dim) -> Value:
        return node.emit("cast", size_value(node, dim), dtype="float64")

    def to_mel(hertz: Value) -> Value:
        ratio = node.emit("add", constant(1), node.emit("divide", hertz, constant(_MEL_BREAK_HZ)))
        return node.emit("multiply", node.emit("log", ratio), constant(_MEL_PER_DECADE / log(10)))

    low, high = to_mel(scalar(3)), to_mel(scalar(4))
    step = node.emit("divide", node.emit("subtract", high, low), as_double(bands + 2))
    numbers = node.emit("arange", stop=bands + 2, dtype="float64")
    mel = node.emit("add", node.emit("multiply", numbers, step), low)
    powers = node.emit("exp", node.emit("multiply", mel, constant(log(10) / _MEL_PER_DECADE)))
    hertz = node.emit("multiply", node.emit("subtract", powers, constant(1)), constant(_MEL_BREAK_HZ))
    scaled = node.emit("divide", node.emit("multiply", hertz, as_double(dft_length + 1)), scalar(2))
    return node.emit("floor", scaled)


def _import_det(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("det", node.value(0)),)


IMPORTERS: dict[str, NodeImporter] = {
    "DFT": _import_dft,
    "Det": _import_det,
    "MelWeightMatrix": _import_mel_weight_matrix,
    "STFT": _import_stft,
}
"""The family's importers, by ONNX name."""
