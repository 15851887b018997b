"""Ops moving elements without computing: reshape, transpose, join, split, gather, slice, pad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from byoc_core.dims import Dim, exact_div, product
from byoc_core.kernels.numpy_kernel import NumpyKernel, dtype_of
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example, integers
from byoc_core.opset.contexts import OpContext, TypeContext, no_flops
from byoc_core.opset.families import shape_kernels as kernels
from byoc_core.opset.families.strided_slice import STRIDED_SLICE
from byoc_core.opset.layout import Layout
from byoc_core.opset.opdef import SELECTING, OpDef, OperandSpec, Trait
from byoc_core.opset.permutation import Order, Permutable, inverse, permute_axis
from byoc_core.opset.split_sizes import SPLIT_INDICES, complete_split
from byoc_core.opset.type_rules import (
    INTEGER_KINDS,
    gathered_nbytes,
    padded_type,
    require_kind,
    require_same_dtype,
    require_sizes,
    resolve_axes,
    resolve_axis,
    shape_text,
)
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import bound_of_any
from byoc_core.opset.views import ViewRule

__all__ = ["OPS"]

_IMAGE = (2, 16, 9, 8)
_TOKENS = (2, 5, 3)


def _infer_reshape(context: TypeContext) -> tuple[Type, ...]:
    type_ = context.tensor(0)
    target: tuple[Dim, ...] = context.attrs["shape"]
    for size in target:
        if isinstance(size, int) and size < -1:
            raise context.error(
                "attribute `shape` has a negative size", got=shape_text(target), expected="0 or more, or -1"
            )
    unknown = [axis for axis, size in enumerate(target) if size == -1]
    if len(unknown) > 1:
        raise context.error("attribute `shape` has more than one -1", got=shape_text(target))
    total = type_.num_elements
    if not unknown:
        _check_elements(context, total, product(target), target)
        return (TensorType(target, type_.dtype),)
    if total is None:
        raise context.error("needs a known rank, because attribute `shape` has a -1", operand=0)
    known_product = product(size for size in target if size != -1)
    rest = exact_div(total, known_product)
    if rest is None:
        if known_product == 0 or (isinstance(total, int) and isinstance(known_product, int)):
            raise context.error(
                f"attribute `shape` does not divide the {total} elements of {shape_text(context.shape(0))}",
                got=shape_text(target),
            )
        rest = total // known_product
    result = list(target)
    result[unknown[0]] = rest
    return (TensorType(tuple(result), type_.dtype),)


def _check_elements(context: TypeContext, total: Dim | None, num_elements: Dim, target: tuple[Dim, ...]) -> None:
    if total is None:
        return
    difference = num_elements - total
    if isinstance(difference, int) and difference != 0:
        raise context.error(
            f"attribute `shape` holds {num_elements} elements, operand `x` has {total}",
            got=shape_text(target),
            expected=f"a shape with as many elements as {shape_text(context.shape(0))}",
        )


def _infer_permute_dims(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    axes = context.attrs["axes"]
    if axes is None:
        return (TensorType(shape[::-1], context.tensor(0).dtype),)
    resolved = resolve_axes(context, axes, len(shape), attribute="axes")
    if len(resolved) != len(shape):
        raise context.error(
            "attribute `axes` is not a permutation of the axes", got=axes, expected=f"{len(shape)} axes"
        )
    return (TensorType(tuple(shape[axis] for axis in resolved), context.tensor(0).dtype),)


def _infer_broadcast_to(context: TypeContext) -> tuple[Type, ...]:
    shape, target = context.shape(0), context.attrs["shape"]
    if len(target) < len(shape):
        raise context.error(
            "attribute `shape` has fewer axes than operand `x`",
            got=shape_text(target),
            expected=f"{len(shape)} or more",
        )
    require_sizes(context, target)
    for axis, size in enumerate(shape):
        target_size = target[axis + len(target) - len(shape)]
        difference = target_size - size
        if size != 1 and isinstance(difference, int) and difference != 0:
            raise context.error(
                f"axis {axis} has size {size} and does not broadcast to {target_size}",
                operand=0,
                got=shape_text(shape),
            )
    return (TensorType(target, context.tensor(0).dtype),)


def _infer_concat(context: TypeContext) -> tuple[Type, ...]:
    if not context.operands:
        raise context.error("has no parts to join", expected="one operand or more")
    dtype = require_same_dtype(context, 0, *range(1, len(context.operands)))
    first = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(first))
    total: Dim = 0
    result = list(first)
    for index in range(len(context.operands)):
        shape = context.shape(index)
        if len(shape) != len(first):
            raise context.error(
                f"has rank {len(shape)}",
                operand=index,
                got=shape_text(shape),
                expected=f"rank {len(first)} as the first",
            )
        for other, (size, expected) in enumerate(zip(shape, result, strict=True)):
            if other == axis:
                continue
            difference = size - expected
            if isinstance(difference, int) and difference != 0:
                raise context.error(
                    f"axis {other} has size {size}",
                    operand=index,
                    got=shape_text(shape),
                    expected=f"{expected}, because only axis {axis} may differ",
                )
            if isinstance(size, int):
                result[other] = size
        total = total + shape[axis]
    result[axis] = total
    return (TensorType(tuple(result), dtype),)


def _infer_split(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    sections: tuple[Dim, ...] = context.attrs["sections"]
    if not sections or any(isinstance(size, int) and size < 0 for size in sections):
        raise context.error(
            "attribute `sections` is not a list of sizes", got=shape_text(sections), expected="one size or more"
        )
    total = sum(sections, start=0)
    difference = shape[axis] - total
    if isinstance(difference, int) and difference != 0:
        error = context.error(
            f"attribute `sections` sums to {total}",
            got=shape_text(sections),
            expected=f"{shape[axis]}, the size of axis {axis}",
        )
        error.hint = f"`sections` are sizes; to cut at indices write `{SPLIT_INDICES}={shape_text(sections)}`."
        raise error
    dtype = context.tensor(0).dtype
    return tuple(TensorType((*shape[:axis], size, *shape[axis + 1 :]), dtype) for size in sections)


def _infer_take(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    require_kind(context, 1, INTEGER_KINDS)
    indices = context.shape(1)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    return (TensorType((*shape[:axis], *indices, *shape[axis + 1 :]), context.tensor(0).dtype),)


def _infer_pad(context: TypeContext) -> tuple[Type, ...]:
    return (padded_type(context),)


def _where_types_agree(_: OpContext) -> bool:
    return True


def _axes_of(context: OpContext) -> Order:
    """Return for each axis of the result of ``permute_dims`` the axis of the operand, counted from the front."""
    axes, rank = context.attrs["axes"], len(context.operand_shape())
    return tuple(reversed(range(rank))) if axes is None else tuple(axis % rank for axis in axes)


def _is_in_order(context: OpContext) -> bool:
    axes = _axes_of(context)
    return axes == tuple(range(len(axes)))


def _broadcast(context: OpContext, layout: Layout) -> Sequence[Layout | None]:
    """Return the layout of the result of ``broadcast_to``: a stride of 0 along axes with repeated elements."""
    target = context.result_shape()
    added = len(target) - len(layout.shape)
    strides: list[Dim] = [0] * added
    for dim, stride, target_size in zip(layout.shape, layout.strides, target[added:], strict=True):
        if dim not in (1, target_size):
            return [None]
        strides.append(stride if dim == target_size else 0)
    return [Layout(layout.offset, target, tuple(strides))]


def _permute_shape(context: OpContext) -> Permutable | None:
    target = context.result_shape()
    if not target or len(target) != len(context.operand_shape()):
        return None

    def attrs(order: Order) -> Mapping[str, Any]:
        return {**context.attrs, "shape": tuple(target[axis] for axis in inverse(order))}

    return Permutable(len(target), (0,), attrs)


def _parts(layout: Layout, axis: int, sizes: Iterable[Dim]) -> Sequence[Layout | None]:
    """Return the layouts of consecutive parts along an axis; ``None`` for all unless the sizes make up the axis."""
    found: list[Layout | None] = []
    start: Dim = 0
    for size in sizes:
        found.append(layout.sliced(axis, start, size))
        start = start + size
    return found if start == layout.shape[axis] else [None] * len(found)


def _split_view(context: OpContext, layout: Layout) -> Sequence[Layout | None]:
    return _parts(layout, context.attrs["axis"] % len(layout.shape), context.attrs["sections"])


def _concat_view(context: OpContext, layout: Layout) -> Sequence[Layout | None]:
    axis = context.attrs["axis"] % len(layout.shape)
    return _parts(layout, axis, [context.operand_shape(index)[axis] for index in range(len(context.operands))])


def _permute_pads(context: OpContext) -> Permutable | None:
    rank, widths = len(context.operand_shape()), context.ints("pad_width")
    if not rank:
        return None

    def attrs(order: Order) -> Mapping[str, Any]:
        pairs = (widths[2 * axis : 2 * axis + 2] for axis in inverse(order))
        return {**context.attrs, "pad_width": tuple(width for pair in pairs for width in pair)}

    return Permutable(rank, (0,), attrs)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "reshape",
        (OperandSpec("x"),),
        _infer_reshape,
        attrs=(
            AttrSpec(
                "shape", AttrKind.DIMS, doc="The sizes of the result; one size may be -1, for all remaining elements."
            ),
        ),
        traits=SELECTING | {Trait.RESHAPING},
        flops=no_flops,
        kernel=NumpyKernel(kernels.reshape),
        bound=bound_of_any,
        cases=lambda: (example((2, 6), shape=(3, 4)), example(_IMAGE, shape=(2, -1)), example(_TOKENS, shape=(10, 3))),
        doc="Return the elements of ``x`` in row-major order in another shape.\n\n"
        "Shapes: any to any with the same number of elements.",
    ),
    OpDef(
        "permute_dims",
        (OperandSpec("x"),),
        _infer_permute_dims,
        attrs=(
            AttrSpec(
                "axes",
                AttrKind.INTS,
                None,
                doc="The axis of ``x`` for each axis of the result; ``None``: the axes in reverse order.",
            ),
        ),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(kernels.permute_dims),
        view=ViewRule(
            results=lambda context, layout: [layout.permuted(_axes_of(context))],
            operands=lambda context, layout: [layout.permuted(inverse(_axes_of(context)))],
            is_whole=True,
        ),
        identity=_is_in_order,
        bound=bound_of_any,
        cases=lambda: (
            example((2, 3)),
            example(_IMAGE, axes=(0, 2, 3, 1)),
            example(_TOKENS, axes=(0, 2, 1)),
            example((2, 5, 4, 3), axes=(0, 2, 1, 3)),
        ),
        doc="Return ``x`` with the axes in another order.\n\n"
        "Shapes: axis ``i`` of the result is axis ``axes[i]`` of ``x``.",
    ),
    OpDef(
        "broadcast_to",
        (OperandSpec("x"),),
        _infer_broadcast_to,
        attrs=(AttrSpec("shape", AttrKind.DIMS, doc="The sizes of the result."),),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(kernels.broadcast_to),
        view=ViewRule(results=_broadcast),
        identity=_where_types_agree,
        permute=_permute_shape,
        bound=bound_of_any,
        cases=lambda: (example((3,), shape=(2, 3)), example((2, 1, 3), shape=(2, 5, 3))),
        doc="Return ``x`` repeated along new leading axes and along axes of size 1.\n\n"
        "Shapes: ``x`` broadcasts to ``shape``.",
    ),
    OpDef(
        "concat",
        (OperandSpec("parts", variadic=True),),
        _infer_concat,
        attrs=(AttrSpec("axis", AttrKind.INT, 0, doc="The axis of the concatenation."),),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(kernels.concat, fresh=True),
        view=ViewRule(operands=_concat_view),
        identity=_where_types_agree,
        permute=permute_axis(operands=None),
        bound=bound_of_any,
        cases=lambda: (
            example((2, 3), (2, 5), axis=1),
            example(_IMAGE, (2, 6, 9, 8), axis=1),
            example((2, 3), (5, 3)),
            example((2, 3), (2, 4), (2, 5), axis=-1),
        ),
        doc="Return the parts concatenated along an axis.\n\n"
        "Shapes: equal except for ``axis``; the sizes of ``axis`` add up.",
    ),
    OpDef(
        "split",
        (OperandSpec("x"),),
        _infer_split,
        attrs=(
            AttrSpec("sections", AttrKind.DIMS, doc="The sizes of the parts, or the number of parts of equal size."),
            AttrSpec("axis", AttrKind.INT, 0, doc="The split axis."),
        ),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(kernels.split),
        view=ViewRule(results=_split_view),
        identity=_where_types_agree,
        permute=permute_axis(),
        bound=bound_of_any,
        cases=lambda: (
            example((2, 6), sections=(2, 4), axis=1),
            example((2, 9), sections=(3, 3, 3), axis=-1),
            example((2, 6, 9, 8), sections=(2, 4), axis=1),
        ),
        complete=complete_split,
        doc="Return consecutive parts of ``x`` along an axis, with a result for each of ``sections``.\n\n"
        "Shapes: the shape of ``x``, with ``sections[i]`` in place of the size of ``axis``.\n\n"
        "A number in place of ``sections`` stands for a number of parts of equal size. ``indices_or_sections``, as in "
        "numpy, is a number of parts, or the start indices of parts.",
    ),
    OpDef(
        "take",
        (OperandSpec("x"), OperandSpec("indices")),
        _infer_take,
        attrs=(
            AttrSpec("axis", AttrKind.INT, 0, doc="The indexed axis."),
            AttrSpec(
                "mode",
                AttrKind.STR,
                "fast",
                ("fast", "clip"),
                doc="``fast``: negative indices count from the end, indices out of range are an error; ``clip``: "
                "indices are limited to the axis.",
            ),
        ),
        nbytes=gathered_nbytes,
        flops=no_flops,
        kernel=NumpyKernel(kernels.take, fresh=True, gives=dtype_of(0)),
        cases=lambda: (
            example((4, 3), integers((5,), 0, 3)),
            example((4, 3), integers((2, 5), 0, 3)),
            example((2, 4), integers((), 0, 3), axis=1),
        ),
        doc="Return the slices of ``x`` at integer ``indices`` along an axis.\n\n"
        "Shapes: ``(A..., N, B...), (I...) -> (A..., I..., B...)``.",
    ),
    STRIDED_SLICE,
    OpDef(
        "nn.pad",
        (OperandSpec("x"),),
        _infer_pad,
        attrs=(
            AttrSpec(
                "pad_width",
                AttrKind.INTS,
                doc="The numbers of elements before and after each axis: before0, after0, before1, ...",
            ),
            AttrSpec("pad_value", AttrKind.FLOAT, 0.0, doc="The value of the new elements."),
        ),
        flops=no_flops,
        kernel=NumpyKernel(kernels.pad),
        identity=_where_types_agree,
        permute=_permute_pads,
        cases=lambda: (
            example((2, 3), pad_width=(0, 0, 1, 1)),
            example(_IMAGE, pad_width=(0, 0, 0, 0, 1, 1, 1, 1)),
        ),
        doc="Return ``x`` padded with a constant.\n\nShapes: each size grows by the two widths of the axis.",
    ),
)
"""The family's ops."""
