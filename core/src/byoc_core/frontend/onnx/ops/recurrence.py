"""Importers for recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def _import_recurrence(num_gates: int) -> NodeImporter:
    """Build the importer of a layer with ``num_gates`` gates."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        direction = node.attr_string("direction", "forward")
        if direction not in _DIRECTIONS:
            raise node.error("attribute `direction` is unknown", got=direction)
        directions = _DIRECTIONS[direction]
        attrs: dict[str, object] = {"direction": direction}
        activations = _read_activations(node, directions)
        if node.op_type == "RNN":
            attrs["activation"] = activations[0].lower()
        if node.op_type == "GRU":
            attrs["linear_before_reset"] = node.attr_flag("linear_before_reset")
        _check_variant(node)
        batch_first = node.attr_int("layout", 0) == 1
        steps, batch, hidden = _read_sizes(node, batch_first=batch_first)
        if node.has_attr("hidden_size") and node.attr_int("hidden_size") != hidden:
            raise node.error("attribute `hidden_size` differs from the weights", expected=hidden)
        operands = [
            node.emit("permute_dims", node.value(0), axes=(1, 0, 2)) if batch_first else node.value(0),
            node.value(1),
            node.value(2),
            _optional(node, 3, (directions, hidden * num_gates * 2)),
            *_states(node, (directions, batch, hidden), batch_first=batch_first),
            *_lengths(node, steps, batch),
        ]
        every, *last = node.emit_all(f"nn.{node.op_type.lower()}", operands, attrs)
        if not batch_first:
            return (every, *last)
        return (
            node.emit("permute_dims", every, axes=(2, 0, 1, 3)),
            *(node.emit("permute_dims", state, axes=(1, 0, 2)) for state in last),
        )

    return import_node


def _read_sizes(node: NodeContext, *, batch_first: bool) -> tuple[Dim, Dim, Dim]:
    """Return the number of steps, the size of the batch, and the size of the hidden state."""
    for index in (0, 2):
        if len(node.shape(index)) != 3:
            raise node.error(f"input {index} has the wrong rank", got=len(node.shape(index)), expected=3)
    first, second, _ = node.shape(0)
    steps, batch = (second, first) if batch_first else (first, second)
    return steps, batch, node.shape(2)[2]


def _states(node: NodeContext, shape: tuple[Dim, ...], *, batch_first: bool) -> list[Value]:
    """Return the initial states as ``(D, N, H)``."""
    states = []
    for index in (5, 6) if node.op_type == "LSTM" else (5,):
        state = _optional(node, index, shape)
        is_turned = batch_first and node.has_input(index)
        states.append(node.emit("permute_dims", state, axes=(1, 0, 2)) if is_turned else state)
    return states


def _lengths(node: NodeContext, steps: Dim, batch: Dim) -> list[Value]:
    """Return the number of steps of each sequence; nothing if all are known to have all steps."""
    if not node.has_input(4):
        return []
    lengths = node.array(4)
    if lengths is not None and isinstance(steps, int) and lengths.shape == (batch,) and np.all(lengths == steps):
        return []
    return [node.value(4)]


def _optional(node: NodeContext, index: int, shape: Sequence[object]) -> Value:
    """Return an input, or zeros if omitted."""
    if node.has_input(index):
        return node.value(index)
    sizes = [size for size in shape if isinstance(size, int)]
    dtype = to_numpy(node.type(0).dtype)
    if len(sizes) == len(shape) and node.may_generate(prod(sizes) * dtype.itemsize):
        return node.constant(np.zeros(sizes, dtype))
    return node.emit("broadcast_to", node.scalar(0.0, 0), shape=tuple(shape))


def _read_activations(node: NodeContext, directions: int) -> tuple[str, ...]:
    """Return the activations of a single direction; both directions must have the same."""
    default = _ACTIVATIONS.get(node.op_type, ("Tanh",))
    activations = node.attr_strings("activations", default * directions)
    accepted = [default] if node.op_type != "RNN" else [("Tanh",), ("Relu",)]
    for names in accepted:
        if [name.lower() for name in activations] == [name.lower() for name in names * directions]:
            return names
    raise node.error(
        "has unsupported activations",
        got=", ".join(activations),
        expected=" or ".join(", ".join(names * directions) for names in accepted),
    )


def _check_variant(node: NodeContext) -> None:
    """Raise an error for unsupported variants with other results."""
    if node.attr_int("layout", 0) not in (0, 1):
        raise node.error("attribute `layout` is unknown", got=node.attr_int("layout"), expected="0 or 1")
    if node.op_type == "LSTM":
        if node.attr_flag("input_forget"):
            raise node.error("couples input and forget gates, an unsupported variant", expected="`input_forget` of 0")
        if node.has_input(7):
            raise node.error("has peephole weights, an unsupported variant")


IMPORTERS: dict[str, NodeImporter] = {
    "GRU": _import_recurrence(3),
    "LSTM": _import_recurrence(4),
    "RNN": _import_recurrence(1),
}
"""The family's importers, by ONNX name."""
