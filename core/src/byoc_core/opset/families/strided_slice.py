"""The op for every n-th slice between bounds along axes."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim, ceildiv, dim_max, dim_min, is_nonnegative, is_positive
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import OpContext, TypeContext, no_flops
from byoc_core.opset.families.shape_kernels import strided_slice
from byoc_core.opset.layout import Layout
from byoc_core.opset.opdef import SELECTING, OpDef, OperandSpec
from byoc_core.opset.open_bounds import is_open_bound
from byoc_core.opset.permutation import Permutable
from byoc_core.opset.type_rules import resolve_axes
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import bound_of_any
from byoc_core.opset.views import ViewRule

__all__ = ["STRIDED_SLICE"]


def _infer_strided_slice(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    attrs = context.attrs
    axes = resolve_axes(context, attrs["axes"], len(shape), attribute="axes")
    for name in ("begin", "end", "strides"):
        if len(attrs[name]) != len(axes):
            raise context.error(
                f"attribute `{name}` has {len(attrs[name])} values",
                got=attrs[name],
                expected=f"a value for each of {len(axes)} axes",
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
    """Return the number of indices taken by a slice of an axis."""
    first = _clipped(begin, size, 0, size if stride > 0 else size - 1)
    last = _clipped(end, size, 0, size) if stride > 0 else _clipped(end, size, -1, size - 1)
    return _count(first, last, stride)


def _strict_slice_size(context: TypeContext, axis: int, begin: Dim, end: Dim, stride: int) -> Dim:
    """Return the number of indices taken by a slice with bounds required to lie on the axis."""
    size = context.shape(0)[axis]
    low, high = (0, size) if stride > 0 else (-1, size - 1)
    bounds = []
    for name, bound in (("begin", begin), ("end", end)):
        position = _from_front(bound, size)
        if is_open_bound(bound):
            position = _clipped(bound, size, low, high)
        elif is_positive(low - position) or is_positive(position - high):
            raise context.error(f"attribute `{name}` lies outside axis {axis} of size {size}", got=bound)
        bounds.append(position)
    return _count(bounds[0], bounds[1], stride)


def _count(first: Dim, last: Dim, stride: int) -> Dim:
    return dim_max(0, ceildiv(last - first if stride > 0 else first - last, abs(stride)))


def _clipped(bound: Dim, size: Dim, low: int, high: Dim) -> Dim:
    """Return a slice's bound counted from the front and limited to the axis."""
    if isinstance(bound, int) and is_open_bound(bound):
        return high if bound > 0 else dim_min(low, high)  # the last index of an empty axis is -1
    return dim_min(dim_max(_from_front(bound, size), low), high)


def _from_front(bound: Dim, size: Dim) -> Dim:
    """Return a bound counted from the front: the size is added to a negative bound."""
    if is_nonnegative(bound):
        return bound
    if is_positive(-bound):
        return size + bound
    return bound - dim_max(dim_min(bound, 0), -1) * size


def _view(context: OpContext, layout: Layout) -> Sequence[Layout | None]:
    """Return the layout of a slice along axes of known size, with steps forwards."""
    attrs = context.attrs
    slices = zip(attrs["axes"], attrs["begin"], attrs["end"], attrs["strides"], strict=True)
    for axis, begin, end, step in slices:
        size = layout.shape[axis]
        if not (isinstance(size, int) and isinstance(begin, int) and isinstance(end, int)) or step < 1:
            return [None]
        indices = range(*slice(begin, end, step).indices(size))
        layout = layout.sliced(axis % len(layout.shape), indices.start if indices else 0, len(indices), step)
    return [layout]


def _has_steps_of_one(context: OpContext) -> bool:
    return set(context.attrs["strides"]) <= {1}


def _permute(context: OpContext) -> Permutable | None:
    rank = len(context.operand_shape())
    if not rank:
        return None
    axes = tuple(axis % rank for axis in context.ints("axes"))
    return Permutable(rank, (0,), lambda order: {**context.attrs, "axes": tuple(order[axis] for axis in axes)})


STRIDED_SLICE = OpDef(
    "strided_slice",
    (OperandSpec("x"),),
    _infer_strided_slice,
    attrs=(
        AttrSpec("axes", AttrKind.INTS, doc="The sliced axes."),
        AttrSpec("begin", AttrKind.DIMS, doc="The first index along each axis; negative: from the end."),
        AttrSpec("end", AttrKind.DIMS, doc="The end index along each axis, not included; negative: from the end."),
        AttrSpec("strides", AttrKind.INTS, doc="The step along each axis; not 0."),
        AttrSpec(
            "mode",
            AttrKind.STR,
            "clip",
            ("clip", "strict"),
            doc="``clip``: bounds are limited to the ends of the axis; ``strict``: bounds beyond the axis are an "
            "error, except for bounds of 2**62 and more, standing for the ends.",
        ),
    ),
    traits=SELECTING,
    flops=no_flops,
    kernel=NumpyKernel(strided_slice),
    view=ViewRule(results=_view),
    identity=_has_steps_of_one,
    permute=_permute,
    bound=bound_of_any,
    cases=lambda: (
        example((4, 6), axes=(1,), begin=(1,), end=(5,), strides=(1,)),
        example((4, 6), axes=(0, 1), begin=(3, 0), end=(0, 6), strides=(-1, 2)),
        example((2, 16, 9, 8), axes=(1,), begin=(0,), end=(2,), strides=(1,)),
    ),
    doc="Return every ``strides``-th slice between two bounds along axes, as in ONNX's Slice. Bounds are limited to "
    "the ends of the axis; with a negative stride, an ``end`` below minus the size therefore includes the first "
    "slice.\n\n"
    "Shapes: sliced axes get the number of selected indices.",
)
"""The op; part of the family :mod:`byoc_core.opset.families.shape`."""
