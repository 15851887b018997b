"""Importers for sequences: lists during import if length and positions are known, else ops on their tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_dependent import emit_range
from byoc_core.frontend.onnx.ops.data_sizes import int_vector, number, size_value
from byoc_core.frontend.onnx.ops.optionals import present_value
from byoc_core.frontend.onnx.ops.run_time_sequences import (
    concatenated,
    element_at,
    erased,
    inserted,
    length_of,
    split,
)
from byoc_core.frontend.onnx.ops.strings import Movement, element_dtype, read_tensor, to_tensor
from byoc_core.frontend.onnx.ops.structured import as_run_time_sequence
from byoc_core.frontend.onnx.sequence_value import STRING, OptionalValue, RunTimeSequence, SequenceValue
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx.weights import dtype_of
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]


def _sequence(node: NodeContext) -> SequenceValue | RunTimeSequence:
    """Return the sequence in the first input."""
    sequence = node.imported(0)
    if isinstance(sequence, OptionalValue) and sequence.value is not None:
        sequence = present_value(node, sequence)
    if not isinstance(sequence, SequenceValue | RunTimeSequence):
        raise node.error("the first input is not a sequence", got=sequence)
    return sequence


def _elements(node: NodeContext, index: int | None = None) -> tuple[Imported, ...] | None:
    """Return the elements of the sequence in the first input; ``None`` if the length is only known at run time.

    ``index``: an input with a position, which must be known too.
    """
    sequence = _sequence(node)
    is_known = index is None or not node.has_input(index) or node.shape_value(index) is not None
    return sequence.elements if isinstance(sequence, SequenceValue) and is_known else None


def _run_time_sequence(node: NodeContext) -> RunTimeSequence:
    return as_run_time_sequence(node, _sequence(node))


def _position(node: NodeContext, index: int, count: int, *, default: int = -1, may_append: bool = False) -> int:
    """Return a known position among ``count`` elements, from the front; ``default`` if the input is omitted."""
    positions = node.ints(index) if node.has_input(index) else (default,)
    if len(positions) != 1 or not -count <= positions[0] < count + may_append:
        raise node.error(f"the position is outside a sequence of {count} elements", got=", ".join(map(str, positions)))
    return positions[0] + count if positions[0] < 0 else positions[0]


def _run_time_position(node: NodeContext, index: int) -> Value:
    return node.value(index) if node.has_input(index) else number(node, -1)


def _import_construct(node: NodeContext) -> Sequence[Imported]:
    return (SequenceValue(tuple(node.imported(index) for index in range(node.num_inputs))),)


def _import_empty(node: NodeContext) -> Sequence[Imported]:
    kind = node.attr_int("dtype", onnx.TensorProto.FLOAT)
    is_text = kind == onnx.TensorProto.STRING
    return (SequenceValue((), STRING if is_text else dtype_of(kind, f"{node.label}, attribute `dtype`")),)


def _import_insert(node: NodeContext) -> Sequence[Imported]:
    listed = _elements(node, 2)
    if listed is None:
        position = node.value(2) if node.has_input(2) else None
        return (inserted(node, _run_time_sequence(node), read_tensor(node, 1), position),)
    elements = list(listed)
    position_ = _position(node, 2, len(elements), default=len(elements), may_append=True)
    elements.insert(position_, node.imported(1))
    return (SequenceValue(tuple(elements)),)


def _import_erase(node: NodeContext) -> Sequence[Imported]:
    listed = _elements(node, 1)
    if listed is None:
        return (erased(node, _run_time_sequence(node), _run_time_position(node, 1)),)
    elements = list(listed)
    position = _position(node, 1, len(elements))
    dtype = element_dtype(node, elements[position])
    del elements[position]
    return (SequenceValue(tuple(elements), dtype),)


def _import_at(node: NodeContext) -> Sequence[Imported]:
    elements = _elements(node, 1)
    if elements is None:
        return (element_at(node, _run_time_sequence(node), _run_time_position(node, 1)),)
    return (elements[_position(node, 1, len(elements))],)


def _import_length(node: NodeContext) -> Sequence[Imported]:
    elements = _elements(node)
    return (ShapeValue.scalar(length_of(node, _run_time_sequence(node)) if elements is None else len(elements)),)


def _import_concat(node: NodeContext) -> Sequence[Imported]:
    elements, axis, is_new = _elements(node), node.attr_int("axis"), node.attr_flag("new_axis")
    if elements is None:
        return (concatenated(node, _run_time_sequence(node), axis, is_new=is_new),)
    if not elements:
        raise node.error("joins the elements of an empty sequence")
    shapes = [shape for shape in map(node.as_shape_value, elements) if shape is not None]
    is_shape = axis in (0, -1) and all(
        (not shape.shape) == is_new and shape.dtype == shapes[0].dtype for shape in shapes
    )
    if len(shapes) == len(elements) and is_shape:
        return (ShapeValue(tuple(element for shape in shapes for element in shape.elements), shapes[0].dtype),)
    movement = Movement(node, [to_tensor(node, element, "a sequence element") for element in elements])
    values = movement.values
    axis = node.axis(axis, len(node.shape_of(values[0])) + is_new)
    return (movement.result(node.stack(values, axis) if is_new else node.emit("concat", *values, axis=axis)),)


def _import_split(node: NodeContext) -> Sequence[Imported]:
    tensor = read_tensor(node, 0)
    shape = node.shape_of(tensor)
    axis = node.axis(node.attr_int("axis", 0), len(shape))
    keeps_axis = node.attr_flag("keepdims", default=True) or node.has_input(1)
    sections = _sections(node, shape[axis])
    if sections is None:
        return (_split_at_run_time(node, tensor, axis, keeps_axis=keeps_axis),)
    if not sections:
        return (SequenceValue((), element_dtype(node, tensor)),)
    movement = Movement(node, [tensor])
    parts: Sequence[Value] = node.emit_all("split", movement.values, {"sections": sections, "axis": axis})
    if not keeps_axis:
        rest = [size for other, size in enumerate(shape) if other != axis]
        parts = [node.reshape(part, rest) for part in parts]
    return (SequenceValue(tuple(map(movement.result, parts)), element_dtype(node, tensor)),)


def _sections(node: NodeContext, size: Dim) -> tuple[int, ...] | None:
    """Return the sizes of the parts: the listed sizes, or equal sizes except for a possibly smaller last part.

    ``None`` if the sizes are only known at run time.
    """
    step = 1
    if node.has_input(1):
        split_value = node.shape_value(1)
        listed = None if split_value is None else split_value.ints
        if listed is None or node.shape(1):
            return listed
        (step,) = listed
        if step < 1:
            raise node.error("splits an axis into parts of no size", got=step)
    if not isinstance(size, int):
        return None
    node.check_count(size // step)
    ends = [*range(step, size, step), size] if size else []
    return tuple(end - begin for begin, end in zip((0, *ends), ends, strict=False))


def _split_at_run_time(
    node: NodeContext, tensor: Value | StringTensor, axis: int, *, keeps_axis: bool
) -> RunTimeSequence:
    shape = node.shape_of(tensor)
    if node.has_input(1) and node.shape(1):
        sizes = int_vector(node, 1) if isinstance(node.shape(1)[0], int) else _as_int64(node, node.value(1))
    else:
        step = node.reshape(int_vector(node, 1), ()) if node.has_input(1) else number(node, 1)
        total, zero = size_value(node, shape[axis]), number(node, 0)
        starts = emit_range(node, zero, total, step)
        left = node.emit("subtract", total, starts)
        sizes = node.emit("minimum", left, step)
    parts = split(node, tensor, axis, sizes)
    if keeps_axis:
        return parts
    other_axes = np.array([other for other in range(len(shape)) if other != axis], np.int64)
    return RunTimeSequence(parts.elements, node.emit("take", parts.shapes, node.constant(other_axes), axis=1))


def _as_int64(node: NodeContext, value: Value) -> Value:
    return value if node.tensor_type(value).dtype == "int64" else node.emit("cast", value, dtype="int64")


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
