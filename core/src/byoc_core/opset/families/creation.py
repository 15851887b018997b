"""Ops creating tensors from sizes: ranges, filled tensors, and shapes as data. Most have no operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim, ceildiv, dim_max
from byoc_core.dtypes import to_numpy
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, Shape, example
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.type_rules import NUMBER_KINDS, require_dtype_kind, require_rank, require_sizes
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]

_SHAPES: tuple[Shape, ...] = ((2, 3), (2, 16, 9, 8), ())


def _arange(*, start: int, stop: int, step: int, dtype: str) -> NDArray:
    """Return ``start``, ``start + step``, ... up to (excluding) ``stop``, each rounded once to ``dtype``."""
    return np.asarray(np.arange(start, stop, step, dtype="int64").astype(to_numpy(dtype)))


def _full(fill_value: NDArray, *, shape: Sequence[int]) -> NDArray:
    """Return a tensor of equal elements (a read-only view)."""
    return np.broadcast_to(fill_value, tuple(shape))


def _shape_of(x: NDArray) -> NDArray:
    """Return the sizes of ``x``."""
    return np.array(x.shape, np.int64)


def _size(x: NDArray) -> NDArray:
    """Return the number of elements of ``x``."""
    return np.array(x.size, np.int64)


def _shape_to_tensor(*, sizes: Sequence[int]) -> NDArray:
    """Return sizes as a vector."""
    return np.array(sizes, np.int64)


def _infer_arange(context: TypeContext) -> tuple[Type, ...]:
    attrs = context.attrs
    require_dtype_kind(context, attrs["dtype"], NUMBER_KINDS)
    if attrs["step"] == 0:
        raise context.error("attribute `step` is 0", expected="another number")
    count = dim_max(0, ceildiv(attrs["stop"] - attrs["start"], attrs["step"]))
    return (TensorType((count,), attrs["dtype"]),)


def _infer_full(context: TypeContext) -> tuple[Type, ...]:
    require_rank(context, 0, 0, "one element")
    shape: tuple[Dim, ...] = context.attrs["shape"]
    require_sizes(context, shape)
    return (TensorType(shape, context.tensor(0).dtype),)


def _infer_shape_of(context: TypeContext) -> tuple[Type, ...]:
    return (TensorType((len(context.shape(0)),), "int64"),)


def _infer_size(context: TypeContext) -> tuple[Type, ...]:
    context.tensor(0)
    return (TensorType((), "int64"),)


def _infer_shape_to_tensor(context: TypeContext) -> tuple[Type, ...]:
    return (TensorType((len(context.attrs["sizes"]),), "int64"),)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "arange",
        (),
        _infer_arange,
        attrs=(
            AttrSpec("stop", AttrKind.DIM, doc="The end, not included."),
            AttrSpec("start", AttrKind.DIM, 0, doc="The first number."),
            AttrSpec("step", AttrKind.DIM, 1, doc="The difference between a number and the number before; not 0."),
            AttrSpec("dtype", AttrKind.DTYPE, "int64", doc="The dtype of the result."),
        ),
        flops=no_flops,
        kernel=NumpyKernel(_arange, gives=fixed_dtype(None)),
        cases=lambda: (
            example(stop=5, dtype="int64"),
            OpCase("", (), {"start": 1, "stop": 7, "step": 2, "dtype": "float32"}),
        ),
        doc="Return the numbers ``start``, ``start + step``, ... before ``stop``.\n\n"
        "Shapes: ``-> (max(0, ceil((stop - start) / step)),)``.",
    ),
    OpDef(
        "full",
        (OperandSpec("fill_value"),),
        _infer_full,
        attrs=(AttrSpec("shape", AttrKind.DIMS, doc="Sizes of the result."),),
        flops=no_flops,
        kernel=NumpyKernel(_full),
        cases=lambda: (example((), shape=(2, 3)),),
        doc="Return a tensor filled with ``fill_value``; ``FoldShapes`` rewrites the op to ``broadcast_to``.\n\n"
        "Shapes: ``() -> shape``.",
    ),
    OpDef(
        "shape_of",
        (OperandSpec("x"),),
        _infer_shape_of,
        flops=no_flops,
        kernel=NumpyKernel(_shape_of, gives=fixed_dtype("int64")),
        cases=lambda: map(example, _SHAPES),
        doc="Return the sizes of ``x``.\n\nShapes: any to ``(rank,)``.",
    ),
    OpDef(
        "size",
        (OperandSpec("x"),),
        _infer_size,
        flops=no_flops,
        kernel=NumpyKernel(_size, gives=fixed_dtype("int64")),
        cases=lambda: map(example, _SHAPES),
        doc="Return the number of elements of ``x``.\n\nShapes: any to ``()``.",
    ),
    OpDef(
        "shape_to_tensor",
        (),
        _infer_shape_to_tensor,
        attrs=(AttrSpec("sizes", AttrKind.DIMS, doc="The elements; negative values are allowed."),),
        flops=no_flops,
        kernel=NumpyKernel(_shape_to_tensor, gives=fixed_dtype("int64")),
        cases=lambda: (example(sizes=(2, 3), dtype="int64"),),
        doc="Return sizes as a tensor.\n\nShapes: ``-> (k,)`` for ``k`` sizes.",
    ),
)
"""The family's ops."""
