"""Seeded random models of a single ONNX op, with sizes as in networks: for tables of costs, and checks of choices.

Sizes are drawn evenly by their logarithms, so that few channels and many, small windows and large, are as
frequent. Ops with more operations or bytes than :data:`MOST_FLOPS` and :data:`MOST_NBYTES` are drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.single_ops import NDArray, SingleOp

__all__ = ["MOST_FLOPS", "MOST_NBYTES", "list_random_ops"]

MOST_FLOPS, MOST_NBYTES = 4e8, 2e7
_LEAST_FLOPS = 2e4
_BATCHES = (1, 1, 1, 1, 4, 8)


class _Drawing:
    """Random sizes of an op."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def size(self, low: int, high: int) -> int:
        """Return a size: mostly a power of two or a multiple of eight, as the sizes of layers."""
        drawn = math.exp(self.rng.uniform(math.log(low), math.log(high + 1)))
        rounded = 2 ** round(math.log2(drawn)) if self.rng.random() < 0.5 else 8 * round(drawn / 8)
        return int(min(high, max(low, rounded if self.rng.random() < 0.8 else drawn)))

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def tensor(self, *shape: int, scale: float = 1.0) -> NDArray:
        return (self.rng.standard_normal(shape) * scale).astype("float32")


def list_random_ops(count: int, seed: int) -> Iterator[SingleOp]:
    """Yield seeded random ops, the families of ops in turn.

    Args:
        count: the number of ops.
        seed: the seed. Ops of another seed are other ops of the same distribution.
    """
    drawing = _Drawing(seed)
    for index in range(count):
        draw = _FAMILIES[index % len(_FAMILIES)]
        case = draw(drawing)
        while case is None:
            case = draw(drawing)
        yield case


Draw = Callable[[_Drawing], SingleOp | None]


def _fits(flops: float, *counts: int) -> bool:
    """Return whether an op with these operations, and tensors of these numbers of elements, is worth a measurement."""
    return _LEAST_FLOPS <= flops <= MOST_FLOPS and 4 * sum(counts) <= MOST_NBYTES


def _convolution(drawing: _Drawing) -> SingleOp | None:
    """Draw a convolution of images: dense, grouped or of each channel alone."""
    size, batch = drawing.size(5, 160), drawing.one_of(_BATCHES)
    windows = ((1, 1), (1, 1), (3, 3), (3, 3), (3, 3), (5, 5), (7, 7), (9, 9), (1, 5), (7, 1), (2, 2), (4, 4))
    window, stride = drawing.one_of(windows), drawing.one_of((1, 1, 1, 2))
    dilation = drawing.one_of((1, 1, 1, 1, 1, 2, 4)) if max(window) > 1 else 1
    kind = drawing.one_of(("dense", "dense", "dense", "depthwise", "grouped"))
    channels, results, groups = drawing.size(1, 512), drawing.size(1, 512), 1
    if kind == "depthwise":
        channels = results = groups = drawing.size(8, 768)
    elif kind == "grouped":
        groups = drawing.one_of((2, 4, 8, 16, 32))
        channels, results = groups * drawing.size(1, 32), groups * drawing.size(1, 32)
    pads = [(extent - 1) * dilation // 2 for extent in window] * 2
    outer = math.ceil(size / stride)
    if any(size + 2 * pad < (extent - 1) * dilation + 1 for pad, extent in zip(pads, window, strict=False)):
        return None
    flops = 2 * batch * results * outer**2 * channels // groups * math.prod(window)
    filter_ = (results, channels // groups, *window)
    if not _fits(flops, batch * channels * size**2, batch * results * outer**2, math.prod(filter_)):
        return None
    attrs = {"pads": pads, "strides": [stride] * 2, "dilations": [dilation] * 2, "group": groups}
    weight = {"w": drawing.tensor(*filter_, scale=0.05)}
    text = f"Conv {kind} {batch}x{channels}x{size} by {'x'.join(map(str, filter_))} s{stride} d{dilation}"
    return SingleOp(text, "Conv", {"x": (batch, channels, size, size)}, weight, attrs)


def _convolution_of_rank(drawing: _Drawing, rank: int) -> SingleOp | None:
    """Draw a convolution of sequences or volumes."""
    size = drawing.size(20, 16000) if rank == 1 else drawing.size(4, 40)
    window = drawing.one_of((1, 3, 3, 5, 7, 10, 15, 31) if rank == 1 else (1, 2, 3, 3, 3, 5))
    stride, batch = drawing.one_of((1, 1, 2) if rank > 1 else (1, 1, 2, 4, 5)), drawing.one_of((1, 1, 4))
    channels, results, groups = drawing.size(1, 512), drawing.size(1, 512), 1
    if drawing.rng.random() < 0.2:
        channels = results = groups = drawing.size(8, 512)
    pad = window // 2
    outer = (size + 2 * pad - window) // stride + 1
    flops = 2 * batch * results * outer**rank * (channels // groups) * window**rank
    filter_ = (results, channels // groups, *[window] * rank)
    if outer < 1 or not _fits(flops, batch * channels * size**rank, batch * results * outer**rank, math.prod(filter_)):
        return None
    attrs = {"pads": [pad] * 2 * rank, "strides": [stride] * rank, "group": groups}
    weight = {"w": drawing.tensor(*filter_, scale=0.05)}
    text = f"Conv {rank}-d {batch}x{channels}x{size} by {'x'.join(map(str, filter_))} s{stride} g{groups}"
    return SingleOp(text, "Conv", {"x": (batch, channels, *[size] * rank)}, weight, attrs)


def _sequence_convolution(drawing: _Drawing) -> SingleOp | None:
    return _convolution_of_rank(drawing, 1)


def _volume_convolution(drawing: _Drawing) -> SingleOp | None:
    return _convolution_of_rank(drawing, 3)


def _transposed_convolution(drawing: _Drawing) -> SingleOp | None:
    """Draw a transposed convolution: of images mostly, with few results as at the end of decoders."""
    rank = drawing.one_of((1, 2, 2, 2, 3))
    window, stride = drawing.one_of(((2, 2), (3, 2), (4, 2), (5, 2), (3, 1), (4, 4), (8, 4), (9, 3)))
    size = drawing.size(8, 4000 if rank == 1 else 112 if rank == 2 else 16)
    channels, results = drawing.size(4, 512), drawing.size(1, 128)
    pad = max(0, (window - stride) // 2)
    outer = stride * (size - 1) + window - 2 * pad
    flops = 2 * channels * results * size**rank * window**rank
    if not _fits(flops, channels * size**rank, results * outer**rank, channels * results * window**rank):
        return None
    filter_ = (channels, results, *[window] * rank)
    attrs = {"pads": [pad] * 2 * rank, "strides": [stride] * rank}
    weight = {"w": drawing.tensor(*filter_, scale=0.05)}
    text = f"ConvTranspose {rank}-d {channels}x{size} by {'x'.join(map(str, filter_))} s{stride}"
    return SingleOp(text, "ConvTranspose", {"x": (1, channels, *[size] * rank)}, weight, attrs)


def _product(drawing: _Drawing) -> SingleOp | None:
    """Draw a product of matrices, by weights or of two inputs, alone or in a stack."""
    rows, inner, columns = drawing.size(1, 1024), drawing.size(4, 4096), drawing.size(1, 4096)
    stack = drawing.size(2, 64) if drawing.rng.random() < 0.3 else 0
    sizes = (rows * inner, inner * columns, rows * columns)
    if not _fits(2 * rows * inner * columns * (stack or 1), *(size * (stack or 1) for size in sizes)):
        return None
    lead = (stack,) if stack else ()
    text = f"MatMul {'x'.join(map(str, (*lead, rows, inner)))} by {columns}"
    if stack:
        return SingleOp(text, "MatMul", {"x": (*lead, rows, inner), "w": (*lead, inner, columns)})
    if drawing.rng.random() < 0.2:
        return SingleOp(f"{text}, inputs", "MatMul", {"x": (rows, inner), "w": (inner, columns)})
    return SingleOp(text, "MatMul", {"x": (rows, inner)}, {"w": drawing.tensor(inner, columns, scale=0.05)})


def _image(drawing: _Drawing) -> tuple[int, ...] | None:
    shape = (drawing.one_of(_BATCHES), drawing.size(1, 512), *[drawing.size(4, 160)] * 2)
    return shape if _fits(float(math.prod(shape)), 2 * math.prod(shape)) else None


def _rows(drawing: _Drawing) -> tuple[int, ...] | None:
    shape = tuple(drawing.size(1, 512) for _ in range(drawing.one_of((2, 3, 3, 4))))
    return shape if _fits(float(math.prod(shape)), 2 * math.prod(shape)) else None


def _pool(drawing: _Drawing) -> SingleOp | None:
    """Draw a pooling of images."""
    shape = _image(drawing)
    if shape is None:
        return None
    op = drawing.one_of(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    text = f"{op} {'x'.join(map(str, shape))}"
    if op.startswith("Global"):
        return SingleOp(text, op, {"x": shape})
    window, stride = drawing.one_of(((2, 2), (3, 2), (3, 1), (5, 1)))
    if shape[-1] < window:
        return None
    attrs = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [window // 2 if window > 2 else 0] * 4}
    return SingleOp(f"{text} by {window} s{stride}", op, {"x": shape}, attrs=attrs)


def _resize(drawing: _Drawing) -> SingleOp | None:
    """Draw a change of the size of images."""
    shape = _image(drawing)
    factor = drawing.one_of((0.5, 2.0, 2.0, 4.0))
    if shape is None or not _fits(float(math.prod(shape)), int(math.prod(shape) * (1 + factor**2))):
        return None
    mode = drawing.one_of(("nearest", "linear", "cubic"))
    scales = {"roi": np.zeros(0, "float32"), "scales": np.array([1, 1, factor, factor], "float32")}
    return SingleOp(
        f"Resize {mode} {'x'.join(map(str, shape))} by {factor}", "Resize", {"x": shape}, scales, {"mode": mode}
    )


def _normalisation(drawing: _Drawing) -> SingleOp | None:
    """Draw a normalisation or a softmax."""
    op = drawing.one_of(("LayerNormalization", "Softmax", "Softmax", "InstanceNormalization", "BatchNormalization"))
    if op in ("LayerNormalization", "Softmax"):
        shape = _rows(drawing)
        if shape is None:
            return None
        axis = -1 if op == "LayerNormalization" or drawing.rng.random() < 0.7 else len(shape) - 2
        scale = {"scale": drawing.tensor(shape[-1]), "bias": drawing.tensor(shape[-1])}
        text = f"{op} {'x'.join(map(str, shape))} along {axis}"
        return SingleOp(text, op, {"x": shape}, scale if op == "LayerNormalization" else {}, {"axis": axis})
    image = _image(drawing)
    if image is None:
        return None
    operands = {"scale": drawing.tensor(image[1]), "bias": drawing.tensor(image[1])}
    if op == "BatchNormalization":
        operands |= {"mean": drawing.tensor(image[1]), "variance": np.abs(drawing.tensor(image[1])) + 0.5}
    return SingleOp(f"{op} {'x'.join(map(str, image))}", op, {"x": image}, operands)


def _reduction(drawing: _Drawing) -> SingleOp | None:
    """Draw a reduction along one or two axes."""
    shape = _rows(drawing)
    if shape is None:
        return None
    first = int(drawing.rng.integers(len(shape)))
    axes = tuple({first, min(first + int(drawing.rng.integers(2)), len(shape) - 1)})
    op = drawing.one_of(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"))
    attrs = {"keepdims": int(drawing.rng.integers(2))}
    text = f"{op} {'x'.join(map(str, shape))} along {','.join(map(str, axes))}"
    return SingleOp(text, op, {"x": shape}, {"axes": np.array(axes, "int64")}, attrs)


_UNARY = ("Relu", "Sigmoid", "Tanh", "Exp", "Gelu", "Erf", "Sqrt", "HardSwish", "Elu", "LeakyRelu", "Softplus", "Neg")
_BINARY = ("Add", "Mul", "Sub", "Div", "Max")


def _elementwise(drawing: _Drawing) -> SingleOp | None:
    """Draw an elementwise op of one operand, or of two, the second in full, of a row or of a column."""
    shape = _rows(drawing)
    if shape is None:
        return None
    text = "x".join(map(str, shape))
    if drawing.rng.random() < 0.5:
        op = drawing.one_of(_UNARY)
        return SingleOp(f"{op} {text}", op, {"x": shape}, low=0.01 if op == "Sqrt" else -9.0)
    op = drawing.one_of(_BINARY)
    other = drawing.one_of((shape, shape, shape[-1:], (*shape[:-1], 1)))
    return SingleOp(f"{op} {text} and {'x'.join(map(str, other))}", op, {"x": shape, "z": other})


def _movement(drawing: _Drawing) -> SingleOp | None:
    """Draw a transpose, a concatenation, a slice or a padding."""
    shape = _rows(drawing)
    if shape is None:
        return None
    text, rank = "x".join(map(str, shape)), len(shape)
    op = drawing.one_of(("Transpose", "Transpose", "Concat", "Slice", "Pad"))
    axis = int(drawing.rng.integers(rank))
    if op == "Transpose":
        order = [int(axis) for axis in drawing.rng.permutation(rank)]
        return SingleOp(f"Transpose {text} to {''.join(map(str, order))}", op, {"x": shape}, attrs={"perm": order})
    if op == "Concat":
        return SingleOp(f"Concat {text} along {axis}", op, {"x": shape, "z": shape}, attrs={"axis": axis})
    if op == "Slice":
        end = max(1, shape[axis] * 3 // 4)
        bounds = {"starts": np.array([0], "int64"), "ends": np.array([end]), "axes": np.array([axis])}
        return SingleOp(f"Slice {text} along {axis}", op, {"x": shape}, bounds)
    widths = np.array([1 if other >= rank - 2 else 0 for other in range(rank)] * 2, "int64")
    return SingleOp(f"Pad {text}", op, {"x": shape}, {"pads": widths})


_FAMILIES: tuple[Draw, ...] = (
    *(_convolution, _transposed_convolution, _sequence_convolution, _convolution, _product, _pool, _volume_convolution),
    *(_convolution, _normalisation, _reduction, _elementwise, _transposed_convolution, _movement, _resize, _product),
)
