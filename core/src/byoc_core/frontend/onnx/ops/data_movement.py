"""Importers for ops moving elements."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim, broadcast_dim, ceildiv, product
from byoc_core.errors import IRTypeError
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_axes import shape_with_axes, shape_without_axes
from byoc_core.frontend.onnx.ops.data_sizes import (
    as_sizes,
    count_of,
    int_vector,
    is_computed,
    number,
    read_ints,
    read_sizes,
    size_value,
    sizes_value,
)
from byoc_core.frontend.onnx.ops.data_slices import slice_of_data
from byoc_core.frontend.onnx.shape_value import ShapeValue

__all__ = ["IMPORTERS", "read_axes", "read_slice"]


def read_axes(node: NodeContext) -> tuple[int, ...] | None:
    """Return the axes of ``Squeeze`` and ``Unsqueeze``: an attribute before opset 13, then an input; or none."""
    if node.opset < 13:
        return node.attr_ints("axes") if node.has_attr("axes") else None
    return read_ints(node, 1) if node.has_input(1) else None


def _has_computed_axes(node: NodeContext) -> bool:
    return node.opset >= 13 and node.has_input(1) and is_computed(node, 1)


def read_slice(node: NodeContext) -> tuple[tuple[int, ...], tuple[Dim, ...], tuple[Dim, ...], tuple[int, ...]]:
    """Return axes, first indices, end indices and steps of ``Slice``: attributes before opset 10, then inputs.

    The indices may be symbolic.
    """
    begin: tuple[Dim, ...]
    end: tuple[Dim, ...]
    if node.opset < 10:
        begin, end = node.attr_ints("starts"), node.attr_ints("ends")
    else:
        begin, end = node.dims(1), node.dims(2)
    axes, strides = _axes_and_steps(node, len(begin), len(end))
    return axes, begin, end, strides


def _axes_and_steps(node: NodeContext, num_starts: int, num_ends: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    axes, strides = tuple(range(num_starts)), (1,) * num_starts
    if node.opset < 10:
        axes = node.attr_ints("axes", axes)
    else:
        axes = node.ints(3) if node.has_input(3) else axes
        strides = node.ints(4) if node.has_input(4) else strides
    if not len(axes) == num_starts == num_ends == len(strides):
        raise node.error("axes, starts, ends and steps differ in number")
    return axes, strides


def _import_reshape(node: NodeContext) -> Sequence[Imported]:
    if is_computed(node, 1):
        return (node.reshape(node.value(0), _computed_shape(node)),)
    target = list(read_sizes(node, 1))
    if not node.attr_flag("allowzero"):
        for axis, size in enumerate(target):
            if size == 0:
                shape = node.shape(0)
                if axis >= len(shape):
                    raise node.error(f"copies the size of missing axis {axis} of an input of rank {len(shape)}")
                target[axis] = shape[axis]
    return (node.reshape(node.value(0), target),)


def _computed_shape(node: NodeContext) -> tuple[Dim, ...]:
    """Return the target of a reshape with a shape computed at run time: 0 copies a size, -1 is the rest."""
    shape, count, target = node.shape(0), count_of(node, 1), int_vector(node, 1)
    zero, unit = number(node, 0), number(node, 1)
    if not node.attr_flag("allowzero"):
        copied = (*shape[:count], *(0 for _ in range(count - len(shape))))
        target = node.emit("where", node.emit("equal", target, zero), sizes_value(node, copied), target)
    is_rest = node.emit("equal", target, number(node, -1))
    num_known = node.emit("prod", node.emit("where", is_rest, unit, target), axis=(0,), keepdims=False)
    rest = node.emit("divide", size_value(node, product(shape)), node.emit("maximum", num_known, unit))
    # A second -1 stays negative, and is an error when run.
    num_rests = node.emit("sum", node.emit("cast", is_rest, dtype="int64"), axis=(0,), keepdims=False)
    rest = node.emit("where", node.emit("equal", num_rests, unit), rest, number(node, -1))
    return as_sizes(node, node.emit("where", is_rest, rest, target), count)


def _import_flatten(node: NodeContext) -> Sequence[Imported]:
    shape, axis = node.shape(0), node.attr_int("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.error(f"attribute `axis` does not fit an input of rank {len(shape)}", got=axis)
    axis = axis + len(shape) if axis < 0 else axis
    return (node.reshape(node.value(0), (product(shape[:axis]), product(shape[axis:]))),)


def _import_squeeze(node: NodeContext) -> Sequence[Imported]:
    if _has_computed_axes(node):
        return (node.reshape(node.value(0), shape_without_axes(node, 1)),)
    shape, axes = node.shape(0), read_axes(node)
    if axes is None:
        removed = {axis for axis, size in enumerate(shape) if size == 1}
    else:
        removed = {node.axis(axis, len(shape)) for axis in axes}
        for axis in sorted(removed):
            if isinstance(shape[axis], int) and shape[axis] != 1:
                raise node.error(f"removes axis {axis} of a size other than 1", got=shape[axis])
    return (node.reshape(node.value(0), [size for axis, size in enumerate(shape) if axis not in removed]),)


def _import_unsqueeze(node: NodeContext) -> Sequence[Imported]:
    if _has_computed_axes(node):
        return (node.reshape(node.value(0), shape_with_axes(node, 1)),)
    shape, axes = node.shape(0), read_axes(node)
    if axes is None:
        raise node.error("lacks axes")
    rank = len(shape) + len(axes)
    new_axes = {node.axis(axis, rank) for axis in axes}
    if len(new_axes) != len(axes):
        raise node.error("names an axis twice", got=axes)
    rest = iter(shape)
    return (node.reshape(node.value(0), [1 if axis in new_axes else next(rest) for axis in range(rank)]),)


def _import_transpose(node: NodeContext) -> Sequence[Imported]:
    axes = node.attr_ints("perm") if node.has_attr("perm") else None
    return (node.emit("permute_dims", node.value(0), axes=axes),)


def _import_concat(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("concat", *node.values(), axis=node.attr_int("axis")),)


def _import_split(node: NodeContext) -> Sequence[Imported]:
    shape = node.shape(0)
    axis = node.axis(node.attr_int("axis", 0), len(shape))
    count = node.attr_int("num_outputs", node.num_outputs) if node.opset >= 18 else node.num_outputs
    sections: tuple[Dim, ...]
    if node.opset < 13 and node.has_attr("split"):
        sections = node.attr_ints("split")
    elif node.opset >= 13 and node.has_input(1):
        sections = read_sizes(node, 1, node.num_outputs)
    else:
        sections = _even_sections(node, shape[axis], count)
    return node.emit_all("split", (node.value(0),), {"sections": sections, "axis": axis})


def _even_sections(node: NodeContext, size: Dim, count: int) -> tuple[Dim, ...]:
    """Return the sizes of equal parts; since opset 18 the last may be smaller. Dynamic sizes are checked when run."""
    if count < 1:
        raise node.error("splits into fewer than 1 part")
    node.check_count(count)
    step = ceildiv(size, count)
    if isinstance(size, int) and isinstance(step, int):
        if size % count and (node.opset < 18 or step * (count - 1) > size):
            raise node.error(f"cannot split an axis of size {size} into {count} parts")
    elif node.opset < 18:
        return (size // count,) * count
    return (*(step for _ in range(count - 1)), size - step * (count - 1))


def _import_expand(node: NodeContext) -> Sequence[Imported]:
    """Import an expansion; its target may have a 1 for a larger size of the input.

    Two unrelated unknown sizes result in ``broadcast(n, m)``, with a compatibility check at run time.
    """
    shape, target = node.shape(0), read_sizes(node, 1)
    rank = max(len(shape), len(target))
    padded = zip((1,) * (rank - len(shape)) + shape, (1,) * (rank - len(target)) + target, strict=True)
    try:
        joined = tuple(broadcast_dim(left, right) for left, right in padded)
    except IRTypeError as error:
        raise node.error(
            "the input does not broadcast to the shape", got=ShapeValue(shape), expected=ShapeValue(target)
        ) from error
    return (node.imported(0) if joined == shape else node.emit("broadcast_to", node.value(0), shape=joined),)


def _import_slice(node: NodeContext) -> Sequence[Imported]:
    """Import a slice. ONNX clips bounds at the ends of an axis.

    For an axis of known size between symbolic bounds (positions from a table), the bounds are assumed to lie on the
    axis, with a check at run time: otherwise no size after the slice would be the requested size. A slice between
    bounds given as data takes the elements there, of a size only known after running.
    """
    if node.opset >= 10 and any(is_computed(node, index) for index in (1, 2, 3, 4) if node.has_input(index)):
        return (slice_of_data(node),)
    axes, begin, end, strides = read_slice(node)
    shape = node.shape(0)
    axes = tuple(node.axis(axis, len(shape)) for axis in axes)
    is_strict = [
        isinstance(shape[axis], int) and not (isinstance(first, int) and isinstance(last, int))
        for axis, first, last in zip(axes, begin, end, strict=True)
    ]
    value = node.value(0)
    for mode, flag in (("clip", False), ("strict", True)):
        indices = [index for index, strict in enumerate(is_strict) if strict == flag]
        if indices:
            columns = {"axes": axes, "begin": begin, "end": end, "strides": strides}
            parts = {name: [column[index] for index in indices] for name, column in columns.items()}
            value = node.emit("strided_slice", value, **parts, mode=mode)
    return (value,)


def _import_gather(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("take", node.value(0), node.value(1), axis=node.attr_int("axis", 0)),)


IMPORTERS: dict[str, NodeImporter] = {
    "Concat": _import_concat,
    "Expand": _import_expand,
    "Flatten": _import_flatten,
    "Gather": _import_gather,
    "Reshape": _import_reshape,
    "Slice": _import_slice,
    "Split": _import_split,
    "Squeeze": _import_squeeze,
    "Transpose": _import_transpose,
    "Unsqueeze": _import_unsqueeze,
}
"""The family's importers, by ONNX name."""
