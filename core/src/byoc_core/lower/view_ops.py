"""Ops that only rearrange: where their results lie in their operand, and their operands in their result."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim
from byoc_core.ir.module import Binding, Value
from byoc_core.opset.layout import Layout
from byoc_core.opset.opdef import Trait
from byoc_core.opset.types import TensorType

__all__ = ["is_view_op", "is_whole", "operand_layouts", "result_layouts"]

_OPS = frozenset({"permute_dims", "concat", "split", "strided_slice", "broadcast_to"})
_WHOLE = frozenset({"permute_dims"})
_ZERO: Dim = 0


def is_view_op(binding: Binding) -> bool:
    """Tells whether a binding only rearranges elements, so that it may need no code."""
    return binding.op.name in _OPS or Trait.RESHAPING in binding.op.traits


def is_whole(binding: Binding) -> bool:
    """Tells whether the result of a view op has the elements of its operand, each once."""
    return binding.op.name in _WHOLE or Trait.RESHAPING in binding.op.traits


def result_layouts(binding: Binding, layout: Layout) -> list[Layout | None]:
    """Gives where the results of a view op on one operand lie in the buffer in which the operand has that layout.

    ``None`` where that is no layout, or sizes are not provably the declared ones.
    """
    shapes = [_shape(result) for result in binding.results]
    found: list[Layout | None] = [None] * len(shapes)
    match binding.op.name:
        case "permute_dims":
            found = [layout.permuted(_axes(binding, len(layout.shape)))]
        case "split":
            found = _split(binding, layout)
        case "strided_slice":
            found = [_sliced(binding, layout)]
        case "broadcast_to":
            found = [_broadcast(layout, shapes[0])]
        case _ if Trait.RESHAPING in binding.op.traits:
            found = [layout.reshaped(shapes[0])]
    return [one if one is not None and one.shape == shape else None for one, shape in zip(found, shapes, strict=True)]


def operand_layouts(binding: Binding, layout: Layout) -> list[Layout | None]:
    """Gives where the operands of a view op have to lie, so that its only result has that layout with no copy.

    ``None`` for an operand for which there is no such place.
    """
    shapes = [_shape(operand) for operand in binding.operands]
    found: list[Layout | None] = [None] * len(shapes)
    match binding.op.name:
        case "permute_dims":
            axes = _axes(binding, len(layout.shape))
            found = [layout.permuted([axes.index(axis) for axis in range(len(axes))])]
        case "concat":
            axis = _axis(binding, layout)
            found, start = [], _ZERO
            for shape in shapes:
                found.append(layout.sliced(axis, start, shape[axis]))
                start = start + shape[axis]
            if start != layout.shape[axis]:
                found = [None] * len(shapes)
        case _ if Trait.RESHAPING in binding.op.traits:
            found = [layout.reshaped(shapes[0])]
    return [one if one is not None and one.shape == shape else None for one, shape in zip(found, shapes, strict=True)]


def _shape(value: Value) -> tuple[Dim, ...]:
    assert isinstance(value.type, TensorType)
    return value.type.shape or ()


def _axis(binding: Binding, layout: Layout) -> int:
    axis = binding.attrs["axis"]
    assert isinstance(axis, int)
    return axis % len(layout.shape)


def _axes(binding: Binding, rank: int) -> list[int]:
    axes = binding.attrs["axes"]
    return list(range(rank))[::-1] if axes is None else [axis % rank for axis in _ints(axes)]


def _ints(value: object) -> Sequence[int]:
    assert isinstance(value, tuple)
    return value


def _split(binding: Binding, layout: Layout) -> list[Layout | None]:
    axis = _axis(binding, layout)
    sections: Sequence[Dim] = _ints(binding.attrs["sections"])
    if sum(sections, 0) != layout.shape[axis]:
        return [None] * len(sections)
    found: list[Layout | None] = []
    start = _ZERO
    for size in sections:
        found.append(layout.sliced(axis, start, size))
        start = start + size
    return found


def _sliced(binding: Binding, layout: Layout) -> Layout | None:
    """Gives the layout of a slice along axes of known size, with steps forwards."""
    attrs = binding.attrs
    bounds = zip(*(_ints(attrs[name]) for name in ("axes", "begin", "end", "strides")), strict=True)
    for axis, begin, end, step in bounds:
        size = layout.shape[axis]
        if not all(isinstance(value, int) for value in (size, begin, end)) or step < 1:
            return None
        indices = range(*slice(begin, end, step).indices(size))
        layout = layout.sliced(axis % len(layout.shape), indices.start if indices else 0, len(indices), step)
    return layout


def _broadcast(layout: Layout, target: Sequence[Dim]) -> Layout | None:
    added = len(target) - len(layout.shape)
    strides: list[Dim] = [0] * added
    for dim, stride, wanted in zip(layout.shape, layout.strides, target[added:], strict=True):
        if dim not in (1, wanted):
            return None
        strides.append(stride if dim == wanted else 0)
    return Layout(layout.offset, tuple(target), tuple(strides))
