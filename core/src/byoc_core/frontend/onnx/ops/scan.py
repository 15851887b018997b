"""Importer for ``Scan``: a graph applied to each slice of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.independent_rounds import emit_independent_rounds
from byoc_core.frontend.onnx.ops.rounds import Round, Rounds, count_nodes
from byoc_core.frontend.onnx.ops.strings import Movement, read_tensor, stack, to_tensor
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]


@dataclass(frozen=True)
class _Source:
    """A scanned input: a value, the slicing axis, and whether the last slice comes first."""

    value: Value | StringTensor
    axis: int
    is_reversed: bool


def _import_scan(node: NodeContext) -> Sequence[Imported]:
    if node.opset < 9:
        return _import_batched(node)
    num_sources = node.attr_int("num_scan_inputs")
    num_states = _check_counts(node, node.num_inputs, num_sources)
    num_outputs = len(node.attr_graph("body").output) - num_states
    axes = _list(node, "scan_input_axes", num_sources)
    backward = _list(node, "scan_input_directions", num_sources)
    sources = []
    for index, axis, is_reversed in zip(range(num_states, node.num_inputs), axes, backward, strict=True):
        value = read_tensor(node, index)
        sources.append(_Source(value, node.axis(axis, len(node.shape_of(value))), bool(is_reversed)))
    states = [node.imported(index) for index in range(num_states)]
    results = _scan(node, states, sources, _list(node, "scan_output_directions", num_outputs))
    outputs = zip(results[num_states:], _list(node, "scan_output_axes", num_outputs), strict=True)
    return [*results[:num_states], *(_move_first_axis(node, output, axis) for output, axis in outputs)]


def _import_batched(node: NodeContext) -> Sequence[Imported]:
    """Import the op in the form of operator set 8: axis 0 is a batch of independent sequences along axis 1."""
    num_sources = node.attr_int("num_scan_inputs")
    num_states = _check_counts(node, node.num_inputs - 1, num_sources)
    backward = _list(node, "directions", num_sources)
    values = [read_tensor(node, index) for index in range(1, node.num_inputs)]
    shapes = [node.shape_of(value) for value in values]
    if any(len(shape) < 2 for shape in shapes[num_states:]) or not all(shapes):
        raise node.error("the inputs lack the batch axis or the sequence axis")
    batch, length = shapes[-1][:2]
    if not isinstance(batch, int):
        raise node.error("has a batch of dynamic size, an unsupported variant", got=batch)
    lengths = node.array(0) if node.has_input(0) else None
    if node.has_input(0) and (lengths is None or np.any(lengths != length)):
        raise node.error("has sequences of different lengths, an unsupported variant")
    inner = node.repeated(batch)
    members: list[list[Value | StringTensor]] = []
    for member in range(batch):
        items = [_slice_at(inner, value, node.constant(np.int64(member)), 0) for value in values]
        pairs = zip(items[num_states:], backward, strict=True)
        sources = [_Source(item, 0, bool(is_reversed)) for item, is_reversed in pairs]
        num_outputs = len(node.attr_graph("body").output) - num_states
        results = _scan(inner, items[:num_states], sources, [0] * num_outputs)
        members.append([to_tensor(node, result, "a result") for result in results])
    if not members:
        raise node.error("has an empty batch")
    return [stack(node, column) for column in zip(*members, strict=True)]


def _slice_at(node: NodeContext, tensor: Value | StringTensor, position: Value, axis: int) -> Value | StringTensor:
    movement = Movement(node, [tensor])
    (value,) = movement.values
    return movement.result(node.emit("take", value, position, axis=axis))


def _check_counts(node: NodeContext, num_inputs: int, num_sources: int) -> int:
    """Return the number of states, after a check against the body."""
    body, num_states = node.attr_graph("body"), num_inputs - num_sources
    if num_sources < 1 or num_states < 0:
        raise node.error("attribute `num_scan_inputs` does not fit the inputs", got=num_sources)
    if len(body.input) != num_inputs or not len(node.output_names) <= len(body.output) or len(body.output) < num_states:
        raise node.error(
            "attribute `body` has the wrong number of inputs or outputs",
            got=f"{len(body.input)} and {len(body.output)}",
            expected=f"{num_inputs}, and {num_states} or more",
        )
    return num_states


def _list(node: NodeContext, name: str, count: int) -> tuple[int, ...]:
    values = node.attr_ints(name, (0,) * count)
    if len(values) != count:
        raise node.error(f"attribute `{name}` has the wrong number of elements", got=len(values), expected=count)
    return values


def _scan(
    node: NodeContext, states: Sequence[Imported], sources: Sequence[_Source], backward: Sequence[int]
) -> list[Imported]:
    """Return the final states and the scan outputs, stacked on axis 0."""
    body = node.attr_graph("body")
    length = _length(node, sources)
    values = [source.value for source in sources if isinstance(source.value, Value) and source.axis == 0]
    if len(values) == len(sources) and not any(source.is_reversed for source in sources) and not any(backward):
        independent = emit_independent_rounds(node, states, values, length)
        if independent is not None:
            return independent

    def run(inner: NodeContext, number: Imported, carried: Sequence[Imported]) -> Round:
        slices = [_slice(inner, source, number, length) for source in sources]
        outputs = inner.inline("body", (*carried, *slices))
        return Round(np.array(True), outputs[: len(states)], outputs[len(states) :])

    rounds = Rounds(
        node,
        count_nodes(body),
        [value.name for value in body.input[: len(states)]],
        run,
        length,
        ShapeValue.scalar(length),
        np.array(True),
        [bool(direction) for direction in backward],
    )
    return rounds.emit(states)


def _length(node: NodeContext, sources: Sequence[_Source]) -> Dim:
    """Return the number of slices, required to be the same for all sources."""
    sizes = [node.shape_of(source.value)[source.axis] for source in sources]
    for size in sizes:
        difference = size - sizes[0]
        if isinstance(difference, int) and difference != 0:
            raise node.error("the scan inputs differ in length", got=size, expected=sizes[0])
    return next((size for size in sizes if isinstance(size, int)), sizes[0])


def _slice(inner: NodeContext, source: _Source, number: Imported, length: Dim) -> Imported:
    position = inner.to_value(number, "the round's number")
    if source.is_reversed:
        last = inner.to_value(ShapeValue.scalar(length - 1), "the number of slices")
        position = inner.emit("subtract", last, position)
    tensor = to_tensor(inner, inner.bring_in(source.value), "a scan input")
    return _slice_at(inner, tensor, position, source.axis)


def _move_first_axis(node: NodeContext, output: Imported, axis: int) -> Imported:
    tensor = to_tensor(node, output, "a scan output")
    rank = len(node.shape_of(tensor))
    target = node.axis(axis, rank)
    if target == 0:
        return output
    order = list(range(1, rank))
    order.insert(target, 0)
    movement = Movement(node, [tensor])
    (value,) = movement.values
    return movement.result(node.emit("permute_dims", value, axes=order))


IMPORTERS: dict[str, NodeImporter] = {"Scan": _import_scan}
"""The family's importers, by ONNX name."""
