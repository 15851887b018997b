"""Ops that move elements without computing: reshape, transpose, join, split, gather, slice, pad."""

from __future__ import annotations

from byoc_core.dims import Dim, ceildiv, dim_max, dim_min, exact_div, is_nonnegative, is_positive, product
from byoc_core.kernels import KERNELS
from byoc_core.kernels.shape import OPEN_BOUND
from byoc_core.opset.opdef import AttrKind, AttrSpec, OpDef, OperandSpec, Trait, TypeContext, no_flops
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

__all__ = ["OPS"]


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
    known = product(size for size in target if size != -1)
    rest = exact_div(total, known)
    if rest is None:
        if known == 0 or (isinstance(total, int) and isinstance(known, int)):
            raise context.error(
                f"attribute `shape` does not divide the {total} elements of {shape_text(context.shape(0))}",
                got=shape_text(target),
            )
        rest = total // known
    result = list(target)
    result[unknown[0]] = rest
    return (TensorType(tuple(result), type_.dtype),)


def _check_elements(context: TypeContext, total: Dim | None, wanted: Dim, target: tuple[Dim, ...]) -> None:
    if total is None:
        return
    difference = wanted - total
    if isinstance(difference, int) and difference != 0:
        raise context.error(
            f"attribute `shape` holds {wanted} elements, operand `x` has {total}",
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
        raise context.error("attribute `axes` does not name every axis once", got=axes, expected=f"{len(shape)} axes")
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
        wanted = target[axis + len(target) - len(shape)]
        difference = wanted - size
        if size != 1 and isinstance(difference, int) and difference != 0:
            raise context.error(
                f"axis {axis} has size {size}, which does not broadcast to {wanted}", operand=0, got=shape_text(shape)
            )
    return (TensorType(target, context.tensor(0).dtype),)


def _infer_concat(context: TypeContext) -> tuple[Type, ...]:
    if not context.operands:
        raise context.error("joins no parts", expected="one operand or more")
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
        for other, (size, wanted) in enumerate(zip(shape, result, strict=True)):
            if other == axis:
                continue
            difference = size - wanted
            if isinstance(difference, int) and difference != 0:
                raise context.error(
                    f"axis {other} has size {size}",
                    operand=index,
                    got=shape_text(shape),
                    expected=f"{wanted}, because only axis {axis} may differ",
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


def _infer_strided_slice(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    attrs = context.attrs
    axes = resolve_axes(context, attrs["axes"], len(shape), attribute="axes")
    for name in ("begin", "end", "strides"):
        if len(attrs[name]) != len(axes):
            raise context.error(
                f"attribute `{name}` has {len(attrs[name])} values",
                got=attrs[name],
                expected=f"one for each of {len(axes)} axes",
            )
    if 0 in attrs["strides"]:
        raise context.error("attribute `strides` has a zero", got=attrs["strides"])
    result = list(shape)
    for axis, begin, end, stride in zip(axes, attrs["begin"], attrs["end"], attrs["strides"], strict=True):
        if attrs["mode"] == "strict":
            result[axis] = _strict_slice_size(context, axis, begin, end, stride)
        else:
            result[axis] = _slice_size(shape[axis], begin, end, stride)
    return (TensorType(tuple(result), context.tensor(0).dtype),)


def _slice_size(size: Dim, begin: Dim, end: Dim, stride: int) -> Dim:
    """Gives how many indices a slice takes from an axis."""
    first = _clipped(begin, size, 0, size if stride > 0 else size - 1)
    last = _clipped(end, size, 0, size) if stride > 0 else _clipped(end, size, -1, size - 1)
    return _count(first, last, stride)


def _strict_slice_size(context: TypeContext, axis: int, begin: Dim, end: Dim, stride: int) -> Dim:
    """Gives how many indices a slice takes whose bounds must lie on the axis."""
    size = context.shape(0)[axis]
    low, high = (0, size) if stride > 0 else (-1, size - 1)
    bounds = []
    for name, bound in (("begin", begin), ("end", end)):
        place = _from_front(bound, size)
        if is_open_bound(bound):
            place = _clipped(bound, size, low, high)
        elif is_positive(low - place) or is_positive(place - high):
            raise context.error(f"attribute `{name}` lies outside axis {axis} of size {size}", got=bound)
        bounds.append(place)
    return _count(bounds[0], bounds[1], stride)


def _count(first: Dim, last: Dim, stride: int) -> Dim:
    return dim_max(0, ceildiv(last - first if stride > 0 else first - last, abs(stride)))


def is_open_bound(bound: Dim) -> bool:
    """Return whether a bound of `strided_slice` stands for the end of its axis, whatever the size."""
    return isinstance(bound, int) and abs(bound) >= OPEN_BOUND


def _clipped(bound: Dim, size: Dim, low: int, high: Dim) -> Dim:
    """Gives a slice's bound counted from the front and limited to the axis."""
    if isinstance(bound, int) and is_open_bound(bound):
        return high if bound > 0 else dim_min(low, high)  # of an empty axis the last index is -1
    return dim_min(dim_max(_from_front(bound, size), low), high)


def _from_front(bound: Dim, size: Dim) -> Dim:
    """Gives a bound counted from the front: a negative one has the size added."""
    if is_nonnegative(bound):
        return bound
    if is_positive(-bound):
        return size + bound
    return bound - dim_max(dim_min(bound, 0), -1) * size


def _infer_pad(context: TypeContext) -> tuple[Type, ...]:
    return (padded_type(context),)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "reshape",
        (OperandSpec("x"),),
        _infer_reshape,
        attrs=(AttrSpec("shape", AttrKind.DIMS, doc="Sizes of the result; one may be -1: what is left."),),
        traits=frozenset({Trait.PURE, Trait.RESHAPING}),
        flops=no_flops,
        kernel=KERNELS["reshape"],
        doc="Gives the elements of ``x`` in row-major order in another shape.\n\n"
        "Shapes: any to any of as many elements.",
    ),
    OpDef(
        "permute_dims",
        (OperandSpec("x"),),
        _infer_permute_dims,
        attrs=(
            AttrSpec(
                "axes", AttrKind.INTS, None, doc="For each axis of the result the axis of ``x``; ``None``: reversed."
            ),
        ),
        flops=no_flops,
        kernel=KERNELS["permute_dims"],
        doc="Gives ``x`` with its axes in another order.\n\n"
        "Shapes: axis ``i`` of the result is axis ``axes[i]`` of ``x``.",
    ),
    OpDef(
        "broadcast_to",
        (OperandSpec("x"),),
        _infer_broadcast_to,
        attrs=(AttrSpec("shape", AttrKind.DIMS, doc="Sizes of the result."),),
        flops=no_flops,
        kernel=KERNELS["broadcast_to"],
        doc="Gives ``x`` repeated along new leading axes and along axes of size 1.\n\n"
        "Shapes: ``x`` broadcasts to ``shape``.",
    ),
    OpDef(
        "concat",
        (OperandSpec("parts", variadic=True),),
        _infer_concat,
        attrs=(AttrSpec("axis", AttrKind.INT, 0, doc="The axis along which the parts are joined."),),
        flops=no_flops,
        kernel=KERNELS["concat"],
        doc="Gives the parts joined along one axis.\n\nShapes: equal but for ``axis``, whose sizes add up.",
    ),
    OpDef(
        "split",
        (OperandSpec("x"),),
        _infer_split,
        attrs=(
            AttrSpec("sections", AttrKind.DIMS, doc="The sizes of the parts; or how many, of one size."),
            AttrSpec("axis", AttrKind.INT, 0, doc="The axis that is split."),
        ),
        flops=no_flops,
        kernel=KERNELS["split"],
        complete=complete_split,
        doc="Gives consecutive parts of ``x`` along one axis, one result for each of ``sections``.\n\n"
        "Shapes: that of ``x``, with ``sections[i]`` in place of the size of ``axis``.\n\n"
        "A number in the place of ``sections`` makes so many parts of one size. ``indices_or_sections``, as in numpy, "
        "is such a number, or the indices at which parts begin.",
    ),
    OpDef(
        "take",
        (OperandSpec("x"), OperandSpec("indices")),
        _infer_take,
        attrs=(
            AttrSpec("axis", AttrKind.INT, 0, doc="The axis indexed."),
            AttrSpec(
                "mode",
                AttrKind.STR,
                "fast",
                ("fast", "clip"),
                doc="``fast``: negative indices count from the end, others outside are an error; ``clip``: limited to "
                "the axis.",
            ),
        ),
        nbytes=gathered_nbytes,
        flops=no_flops,
        kernel=KERNELS["take"],
        doc="Gives the slices of ``x`` at integer ``indices`` along one axis.\n\n"
        "Shapes: ``(A..., N, B...), (I...) -> (A..., I..., B...)``.",
    ),
    OpDef(
        "strided_slice",
        (OperandSpec("x"),),
        _infer_strided_slice,
        attrs=(
            AttrSpec("axes", AttrKind.INTS, doc="The axes that are sliced."),
            AttrSpec("begin", AttrKind.DIMS, doc="The first index along each; negative: from the end."),
            AttrSpec("end", AttrKind.DIMS, doc="The index to stop before; negative: from the end."),
            AttrSpec("strides", AttrKind.INTS, doc="The step along each; not 0."),
            AttrSpec(
                "mode",
                AttrKind.STR,
                "clip",
                ("clip", "strict"),
                doc="``clip``: bounds are cut at the axis's ends; ``strict``: bounds beyond the axis are an error, but "
                "for those of 2**62 and more, which are its ends.",
            ),
        ),
        flops=no_flops,
        kernel=KERNELS["strided_slice"],
        doc="Gives every ``strides``-th slice between two bounds along axes, as ONNX's Slice does; bounds "
        "are cut at the axis's ends, so with a negative stride an ``end`` below minus the size means through the first."
        "\n\n"
        "Shapes: sliced axes get the number of indices taken.",
    ),
    OpDef(
        "nn.pad",
        (OperandSpec("x"),),
        _infer_pad,
        attrs=(
            AttrSpec(
                "pad_width", AttrKind.INTS, doc="Elements before and after each axis: before0, after0, before1, ..."
            ),
            AttrSpec("pad_value", AttrKind.FLOAT, 0.0, doc="The value of the new elements."),
        ),
        flops=no_flops,
        kernel=KERNELS["nn.pad"],
        doc="Gives ``x`` with a constant around it.\n\nShapes: each size grows by its two widths.",
    ),
)
"""The family's ops."""
