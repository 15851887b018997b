"""Rounds of ``Scan`` independent of each other: all rounds at once, by ops with an additional axis at the end.

The axis of the rounds is the last: backends compute several rounds by a vector, also in reductions of short rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import onnx

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.opset.opdef import Trait
from byoc_core.opset.types import TensorType

__all__ = ["emit_independent_rounds"]

_FEWEST = 16
"""The least known number of rounds: of fewer rounds, other axes are better vectors."""

_MOST_ELEMENTS = 1 << 25
"""The most elements of a value of known shape in all rounds: memory holds such values if no backend fuses the ops."""

_MOST_ELEMENTS_OF_A_ROW = 1 << 16
"""The most elements of a value with a symbolic size, divided by this size: the elements of a row of a batch."""


def emit_independent_rounds(
    node: NodeContext, states: Sequence[Imported], sources: Sequence[Value], length: Dim
) -> list[Imported] | None:
    """Return the states and the scan outputs, stacked on axis 0; ``None`` if a loop is needed.

    A round is independent of other rounds if the body returns all states unchanged. The body has to consist of
    elementwise ops and reductions, such as the squared distances of a sample from all rows of a state; backends may sum
    in another order than in a round. Values of all rounds must have at most ``_MOST_ELEMENTS``, or a single symbolic
    size and at most ``_MOST_ELEMENTS_OF_A_ROW`` for each row: if no backend fuses the ops, memory holds all rounds.

    Args:
        node: the node.
        states: the initial states.
        sources: the scanned inputs, sliced along axis 0, the first slice first.
        length: the number of slices.
    """
    body = node.attr_graph("body")
    if not _returns_states(body, len(states)) or (isinstance(length, int) and length < _FEWEST):
        return None
    region, inner = node.open_region("body")
    carried = [inner.bring_in(state) for state in states]
    types = [node.tensor_type(source) for source in sources]
    if any(type_.shape is None or type_.shape[0] != length for type_ in types):
        return None
    slices = [
        region.param(f"slice{index}", TensorType(type_.shape[1:], type_.dtype))
        for index, type_ in enumerate(types)
        if type_.shape is not None
    ]
    results = inner.inline("body", (*carried, *slices))
    if any(after is not before for before, after in zip(carried, results, strict=False)):
        return None
    scanned = [result for result in results[len(states) :] if isinstance(result, Var)]
    if len(scanned) < len(results) - len(states):
        return None
    function, captured = region.finish(scanned)
    if not all(map(_has_rule, function.bindings)) or region.own_symbols:
        return None
    if not all(_is_small(binding.result, length) for binding in function.bindings):
        return None
    if not all(_depends_on(function, slices, result) for result in function.results):
        return None
    outer: dict[Value, Value] = {param: value for value, param in captured.items()}
    stacked: dict[Value, Value] = {
        param: _rotated(node, source, -1) for param, source in zip(slices, sources, strict=True)
    }
    outputs = _Stacking(node, outer, stacked).emit(function)
    return [*states, *(_rotated(node, output, 1) for output in outputs)]


def _rotated(node: NodeContext, value: Value, step: int) -> Value:
    """Return a value with the first axis moved to the end for -1, the last axis to the front for 1."""
    order = [(axis - step) % _rank(value) for axis in range(_rank(value))]
    return node.emit("permute_dims", value, axes=order)


def _depends_on(function: Function, params: Sequence[Value], result: Value) -> bool:
    """Return whether a result is computed from some parameters."""
    dependent = set(params)
    for binding in function.bindings:
        if dependent.intersection(binding.operands):
            dependent.add(binding.result)
    return result in dependent


def _returns_states(body: onnx.GraphProto, num_states: int) -> bool:
    """Return whether a body of ONNX's own ops returns the first inputs unchanged, as far as the names show."""
    if any(node.domain not in ("", "ai.onnx") or any(a.HasField("g") for a in node.attribute) for node in body.node):
        return False  # a nested graph, or perhaps a function of the model: imported once more by the loop
    copies = [node for node in body.node if node.op_type == "Identity" and len(node.input) == len(node.output) == 1]
    sources = {node.output[0]: node.input[0] for node in copies}
    for state, returned in zip(body.input[:num_states], body.output, strict=False):
        name = returned.name
        while name in sources:
            name = sources.pop(name)
        if name != state.name:
            return False
    return True


@dataclass(frozen=True)
class _Stacking:
    """The emission of all rounds at once.

    Attributes:
        node: the node.
        shared: the values equal in all rounds, by value of a round.
        stacked: the values of all rounds, stacked on the last axis, by value of a round.
    """

    node: NodeContext
    shared: dict[Value, Value]
    stacked: dict[Value, Value]

    def emit(self, function: Function) -> list[Value]:
        """Emit the bindings of a round for all rounds, and return the stacked results."""
        for binding in function.bindings:
            attrs = dict(binding.attrs)
            if not any(operand in self.stacked for operand in binding.operands):
                operands = [self.shared.get(operand, operand) for operand in binding.operands]
                self.shared[binding.result] = self.node.emit(binding.op.name, *operands, **attrs)
                continue
            if Trait.REDUCTION in binding.op.traits:
                attrs["axis"] = tuple(axis % _rank(binding.operands[0]) for axis in _axes(binding))
                operands = [self.stacked[binding.operands[0]]]
            else:
                operands = [self._operand(operand, _rank(binding.result)) for operand in binding.operands]
            self.stacked[binding.result] = self.node.emit(binding.op.name, *operands, **attrs)
        return [self.stacked[result] for result in function.results]

    def _operand(self, operand: Value, rank: int) -> Value:
        """Return an operand of an elementwise op with results of a rank in a round."""
        missing = (1,) * (rank - _rank(operand))
        if operand in self.stacked:
            value = self.stacked[operand]
            return self.node.reshape(value, (*missing, *self.node.shape_of(value))) if missing else value
        value = self.shared.get(operand, operand)
        return self.node.reshape(value, (*self.node.shape_of(value), 1)) if _rank(operand) else value


def _rank(value: Value) -> int:
    type_ = value.type
    assert isinstance(type_, TensorType)
    assert type_.shape is not None
    return len(type_.shape)


def _has_rule(binding: Binding) -> bool:
    """Return whether an op is elementwise without an axis, or a reduction along known axes."""
    if binding.regions or len(binding.results) != 1 or Trait.PURE not in binding.op.traits:
        return False
    values = (*binding.operands, binding.result)
    if not all(isinstance(value.type, TensorType) and value.type.shape is not None for value in values):
        return False
    if Trait.REDUCTION in binding.op.traits:
        return len(binding.operands) == 1 and bool(_axes(binding))
    return Trait.ELEMENTWISE in binding.op.traits and "axis" not in binding.attrs


def _is_small(value: Value, length: Dim) -> bool:
    """Return whether memory has room for the values of all rounds."""
    type_ = value.type
    assert isinstance(type_, TensorType)
    assert type_.shape is not None
    dims = (*type_.shape, length)
    sizes = [dim for dim in dims if isinstance(dim, int)]
    num_symbolic = len(dims) - len(sizes)
    return num_symbolic <= 1 and prod(sizes) <= (_MOST_ELEMENTS_OF_A_ROW if num_symbolic else _MOST_ELEMENTS)


def _axes(binding: Binding) -> tuple[int, ...]:
    """Return the axes of a reduction; empty if unknown."""
    axes = binding.attrs.get("axis")
    return tuple(axis for axis in axes if isinstance(axis, int)) if isinstance(axes, tuple) else ()
