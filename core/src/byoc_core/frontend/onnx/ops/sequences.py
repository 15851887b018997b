"""Importers for sequences of known length and positions: lists during import, without ops in the IR."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.sequence_value import SequenceValue
from byoc_core.frontend.onnx.shape_value import ShapeValue

__all__ = ["IMPORTERS"]


def _elements(node: NodeContext) -> tuple[Imported, ...]:
    """Return the elements of the sequence in the first input."""
    sequence = node.imported(0)
    if not isinstance(sequence, SequenceValue):
        raise node.error("the first input is not a sequence known during import")
    return sequence.elements


def _position(node: NodeContext, index: int, count: int, *, default: int = -1, may_append: bool = False) -> int:
    """Return a known position among ``count`` elements, from the front; ``default`` if the input is omitted."""
    positions = node.ints(index) if node.has_input(index) else (default,)
    if len(positions) != 1 or not -count <= positions[0] < count + may_append:
        raise node.error(f"the position is outside a sequence of {count} elements", got=", ".join(map(str, positions)))
    return positions[0] + count if positions[0] < 0 else positions[0]


def _import_construct(node: NodeContext) -> Sequence[Imported]:
    return (SequenceValue(tuple(node.imported(index) for index in range(node.num_inputs))),)


def _import_empty(node: NodeContext) -> Sequence[Imported]:
    node.ignore_attrs("dtype")  # inserted elements have a dtype
    return (SequenceValue(()),)


def _import_insert(node: NodeContext) -> Sequence[Imported]:
    elements = list(_elements(node))
    position = _position(node, 2, len(elements), default=len(elements), may_append=True)
    elements.insert(position, node.imported(1))
    return (SequenceValue(tuple(elements)),)


def _import_erase(node: NodeContext) -> Sequence[Imported]:
    elements = list(_elements(node))
    del elements[_position(node, 1, len(elements))]
    return (SequenceValue(tuple(elements)),)


def _import_at(node: NodeContext) -> Sequence[Imported]:
    elements = _elements(node)
    return (elements[_position(node, 1, len(elements))],)


def _import_length(node: NodeContext) -> Sequence[Imported]:
    return (ShapeValue.scalar(len(_elements(node))),)


def _import_concat(node: NodeContext) -> Sequence[Imported]:
    elements, axis, is_new = _elements(node), node.attr_int("axis"), node.attr_flag("new_axis")
    if not elements:
        raise node.error("joins the elements of an empty sequence")
    shapes = [shape for shape in map(node.as_shape_value, elements) if shape is not None]
    is_shape = axis in (0, -1) and all(
        (not shape.shape) == is_new and shape.dtype == shapes[0].dtype for shape in shapes
    )
    if len(shapes) == len(elements) and is_shape:
        return (ShapeValue(tuple(element for shape in shapes for element in shape.elements), shapes[0].dtype),)
    values = [node.to_value(element, "a sequence element") for element in elements]
    axis = node.axis(axis, len(node.shape_of(values[0])) + is_new)
    return (node.stack(values, axis) if is_new else node.emit("concat", *values, axis=axis),)


def _import_split(node: NodeContext) -> Sequence[Imported]:
    shape = node.shape(0)
    axis = node.axis(node.attr_int("axis", 0), len(shape))
    keeps_axis = node.attr_flag("keepdims", default=True) or node.has_input(1)
    sections = _sections(node, shape[axis])
    parts: Sequence[Imported] = node.emit_all("split", (node.value(0),), {"sections": sections, "axis": axis})
    if not keeps_axis:
        rest = [size for other, size in enumerate(shape) if other != axis]
        parts = [node.reshape(node.to_value(part, "a part"), rest) for part in parts]
    return (SequenceValue(tuple(parts)),)


def _sections(node: NodeContext, size: object) -> tuple[int, ...]:
    """Return the sizes of the parts: the listed sizes, or equal sizes except for a possibly smaller last part."""
    step = 1
    if node.has_input(1):
        listed = node.ints(1)
        if node.shape(1):
            return listed
        (step,) = listed
    if not isinstance(size, int) or size < 1 or step < 1:
        raise node.error("splits an axis into an unknown number of parts", got=size)
    node.check_count(size // step)
    ends = [*range(step, size, step), size]
    return tuple(end - begin for begin, end in zip((0, *ends), ends, strict=False))


IMPORTERS: dict[str, NodeImporter] = {
    "ConcatFromSequence": _import_concat,
    "SequenceAt": _import_at,
    "SequenceConstruct": _import_construct,
    "SequenceEmpty": _import_empty,
    "SequenceErase": _import_erase,
    "SequenceInsert": _import_insert,
    "SequenceLength": _import_length,
    "SplitToSequence": _import_split,
}
"""The family's importers, by ONNX name."""
