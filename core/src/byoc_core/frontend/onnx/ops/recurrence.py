"""Importers for recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.recurrent_steps import (
    ACTIVATIONS,
    Activation,
    LayerOperands,
    LayerVariant,
    emit_steps,
)
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each direction, whether its first step is the last of the sequence."""


def _import_recurrence(num_gates: int) -> NodeImporter:
    """Build the importer of a layer with ``num_gates`` gates."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        variant = _read_variant(node)
        directions = len(variant.is_reversed)
        batch_first = node.attr_int("layout", 0) == 1
        steps, batch, hidden = _read_sizes(node, batch_first=batch_first)
        if node.has_attr("hidden_size") and node.attr_int("hidden_size") != hidden:
            raise node.error("attribute `hidden_size` differs from the weights", expected=hidden)
        x = node.emit("permute_dims", node.value(0), axes=(1, 0, 2)) if batch_first else node.value(0)
        bias = _optional(node, 3, (directions, hidden * num_gates * 2))
        states = _states(node, (directions, batch, hidden), batch_first=batch_first)
        lengths = _lengths(node, steps, batch)
        attrs = _op_attrs(node, variant)
        if attrs is None:
            _check_weights(node, directions, num_gates, hidden)
            operands = LayerOperands(
                x,
                node.value(1),
                node.value(2),
                bias,
                states,
                lengths[0] if lengths else None,
                _peepholes(node, directions, hidden),
            )
            results: Sequence[Value] = emit_steps(node, variant, operands)
        else:
            op = f"nn.{node.op_type.lower()}"
            results = node.emit_all(op, [x, node.value(1), node.value(2), bias, *states, *lengths], attrs)
        every, *last = results
        if not batch_first:
            return (every, *last)
        return (
            node.emit("permute_dims", every, axes=(2, 0, 1, 3)),
            *(node.emit("permute_dims", state, axes=(1, 0, 2)) for state in last),
        )

    return import_node


def _read_variant(node: NodeContext) -> LayerVariant:
    direction = node.attr_string("direction", "forward")
    if direction not in _DIRECTIONS:
        raise node.error("attribute `direction` is unknown", got=direction)
    if node.attr_int("layout", 0) not in (0, 1):
        raise node.error("attribute `layout` is unknown", got=node.attr_int("layout"), expected="0 or 1")
    is_reversed = _DIRECTIONS[direction]
    clip = node.attr_float("clip") if node.has_attr("clip") else None
    if clip is not None and not clip > 0:
        raise node.error("attribute `clip` is too small", got=clip, expected="above 0")
    return LayerVariant(
        node.op_type,
        _read_activations(node, len(is_reversed)),
        is_reversed,
        clip,
        linear_before_reset=node.op_type == "GRU" and node.attr_flag("linear_before_reset"),
        input_forget=node.op_type == "LSTM" and node.attr_flag("input_forget"),
    )


def _op_attrs(node: NodeContext, variant: LayerVariant) -> dict[str, object] | None:
    """Return the attributes of the layer as an op of the IR; ``None`` if the op has no such variant."""
    if variant.clip is not None or variant.input_forget or (node.op_type == "LSTM" and node.has_input(7)):
        return None
    names = {tuple(activation.name for activation in own) for own in variant.activations}
    attrs: dict[str, object] = {"direction": node.attr_string("direction", "forward")}
    if node.op_type == "RNN":
        if names not in ({("tanh",)}, {("relu",)}):
            return None
        attrs["activation"] = variant.activations[0][0].name
    elif names != {tuple(name.lower() for name in _ACTIVATIONS[node.op_type])}:
        return None
    if node.op_type == "GRU":
        attrs["linear_before_reset"] = variant.linear_before_reset
    return attrs


def _check_weights(node: NodeContext, directions: int, num_gates: int, hidden: Dim) -> None:
    """Check the sizes of the weights of a layer computed step by step.

    Raises:
        FrontendError: a size is unknown, or does not fit the others.
    """
    rows = hidden * num_gates
    expected = {1: (directions, rows, node.shape(1)[-1]), 2: (directions, rows, hidden), 3: (directions, rows * 2)}
    for index, shape in expected.items():
        if node.has_input(index) and node.shape(index) != shape:
            raise node.error(
                f"input {index} does not fit the number of gates and of states, or has an unknown size",
                got=ShapeValue(node.shape(index)),
                expected=ShapeValue(shape),
            )


def _peepholes(node: NodeContext, directions: int, hidden: Dim) -> Value | None:
    if node.op_type != "LSTM" or not node.has_input(7):
        return None
    shape, expected = node.shape(7), (directions, hidden * 3)
    if len(shape) != 2 or any(
        isinstance(rest := a - b, int) and rest != 0 for a, b in zip(shape, expected, strict=True)
    ):
        raise node.error(
            "has peephole weights of the wrong shape", got=ShapeValue(shape), expected=ShapeValue(expected)
        )
    return node.value(7)


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


def _read_activations(node: NodeContext, directions: int) -> list[list[Activation]]:
    """Return the activations of each direction. Parameters are given to activations with the parameter, in order."""
    default = _ACTIVATIONS[node.op_type]
    names = node.attr_strings("activations", default * directions)
    if len(names) != len(default) * directions:
        raise node.error(
            "attribute `activations` has the wrong number of values",
            got=", ".join(names),
            expected=len(default) * directions,
        )
    parameters = [
        iter(node.attr_floats(name) if node.has_attr(name) else ()) for name in ("activation_alpha", "activation_beta")
    ]
    found: list[Activation] = []
    for name in names:
        defaults = ACTIVATIONS.get(name.lower())
        if defaults is None:
            raise node.error("has an unknown activation", got=name, expected="one of " + ", ".join(ACTIVATIONS))
        values = [
            0.0 if own is None else next(iterator, own) for own, iterator in zip(defaults, parameters, strict=True)
        ]
        found.append(Activation(name.lower(), *values))
    return [found[start : start + len(default)] for start in range(0, len(found), len(default))]


IMPORTERS: dict[str, NodeImporter] = {
    "GRU": _import_recurrence(3),
    "LSTM": _import_recurrence(4),
    "RNN": _import_recurrence(1),
}
"""The family's importers, by ONNX name."""
