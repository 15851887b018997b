"""Adaptive pooling: a given number of windows along each spatial axis; with one window it is global pooling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import as_numpy_kernel
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.kernels.windows import channels_first, channels_restored
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, require_rank
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.windows import DATA_LAYOUTS, RANKS, axes_of, axis_letters, axis_names, layout_text

__all__ = ["OPS", "adaptive_avg_pool", "adaptive_max_pool"]


def adaptive_avg_pool(x: NDArray, *, output_size: tuple[int, ...], layout: str) -> NDArray:
    """Gives the mean of every window.

    Window ``i`` of ``OW`` begins at ``i * W // OW`` and ends before ``ceil((i + 1) * W / OW)``.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.

    Source: the adaptive pooling of PyTorch.

    Raises:
        ExecutionError: a spatial axis is empty.
    """
    image = channels_first(x, layout).astype(working_dtype(x.dtype), copy=False)
    for axis, count in enumerate(output_size, start=2):
        image = _reduce(np.add, image, axis, count) / _window_sizes(image.shape[axis], count, image, axis)
    return channels_restored(image.astype(x.dtype, copy=False), layout)


def adaptive_max_pool(x: NDArray, *, output_size: tuple[int, ...], layout: str) -> NDArray:
    """Gives the largest element of every window, NaN where it holds one; windows are those of the mean.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.

    Raises:
        ExecutionError: a spatial axis is empty.
    """
    image = channels_first(x, layout).astype(working_dtype(x.dtype), copy=False)
    for axis, count in enumerate(output_size, start=2):
        image = _reduce(np.maximum, image, axis, count)
    return channels_restored(image.astype(x.dtype, copy=False), layout)


def _bounds(size: int, count: int) -> list[tuple[int, int]]:
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def _window_sizes(size: int, count: int, image: NDArray, axis: int) -> NDArray:
    sizes = np.array([stop - start for start, stop in _bounds(size, count)], image.dtype)
    return sizes.reshape([-1 if other == axis else 1 for other in range(image.ndim)])


def _reduce(combine: np.ufunc, image: NDArray, axis: int, count: int) -> NDArray:
    """Gives one combined slice for each window along an axis."""
    size = image.shape[axis]
    if size == 0:
        raise ExecutionError("op `adaptive pooling`", f"spatial axis {axis} is empty", got=image.shape)
    starts = np.array(_bounds(size, count)).reshape(-1)
    # Every second slice is a window; the ones between them, from a stop to the next start, are left out.
    padded = np.concatenate([image, image.take([0], axis=axis)], axis=axis)
    return np.asarray(combine.reduceat(padded, starts, axis=axis).take(range(0, 2 * count, 2), axis=axis))


KERNELS: dict[str, Callable[..., NDArray]] = {
    f"nn.adaptive_{name}_pool{rank}d": kernel
    for name, kernel in (("max", adaptive_max_pool), ("avg", adaptive_avg_pool))
    for rank in (1, 2, 3)
}


def _infer(kinds: tuple[str, ...]) -> Callable[[TypeContext], tuple[Type, ...]]:
    def infer(context: TypeContext) -> tuple[Type, ...]:
        type_ = require_kind(context, 0, kinds)
        layout, wanted = context.attrs["layout"], context.attrs["output_size"]
        shape = list(require_rank(context, 0, len(layout), layout_text(layout)))
        axes = axes_of(layout, "NC")[2:]
        if len(wanted) != len(axes) or min(wanted) < 1:
            raise context.error(
                "attribute `output_size` does not fit",
                got=wanted,
                expected=f"{len(axes)} sizes of 1 or more: {', '.join(axis_names(len(axes)))}",
            )
        for axis, count in zip(axes, wanted, strict=True):
            if shape[axis] == 0:
                raise context.error(f"axis {axis} is empty", operand=0, got=type_, expected="a size of 1 or more")
            shape[axis] = count
        return (TensorType(tuple(shape), type_.dtype),)

    return infer


def _flops(context: OpContext) -> Dim:
    """Counts one operation for each element of the image; where windows overlap it is a little more."""
    return context.operand_elements(0)


def _op(kind: str, rank: int, doc: str, kinds: tuple[str, ...]) -> OpDef:
    name, letters, layouts = f"nn.adaptive_{kind}_pool{rank}d", axis_letters(rank), DATA_LAYOUTS[rank]
    sizes, out_sizes = ", ".join(letters), ", ".join(f"O{letter}" for letter in letters)
    return OpDef(
        name,
        (OperandSpec("x"),),
        _infer(kinds),
        attrs=(
            AttrSpec("output_size", AttrKind.INTS, doc=f"Number of windows: {', '.join(axis_names(rank))}."),
            AttrSpec("layout", AttrKind.STR, layouts[0], layouts, doc="Axes of ``x`` and of the result."),
        ),
        flops=_flops,
        kernel=as_numpy_kernel(KERNELS[name]),
        doc=f"{doc} Window ``i`` of ``OW`` begins at ``i * W // OW`` and ends before ``ceil((i + 1) * W / OW)``.\n\n"
        f"Shapes (``NC{letters}``): ``(N, C, {sizes}) -> (N, C, {out_sizes})``.",
    )


OPS: tuple[OpDef, ...] = tuple(
    op
    for rank in RANKS
    for op in (
        _op("max", rank, "Gives the largest element of every window; NaN wins.", NUMBER_KINDS),
        _op("avg", rank, "Gives the mean of every window.", FLOAT_KINDS),
    )
)
"""The family's ops."""
