"""Recurrent layers beyond the IR's ops, step by step: peephole weights, coupled gates, clipping, other activations.

The product of the inputs and the weights is computed once for all steps; the steps are rounds of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops.data_sizes import number, size_value
from byoc_core.frontend.onnx.ops.rounds import Round, Rounds
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value

__all__ = ["ACTIVATIONS", "Activation", "LayerOperands", "LayerVariant", "emit_steps"]

_NODES_PER_STEP = 16
"""The number of nodes counted for a step, for the decision on unrolling."""


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation by ONNX's name in lower case, with its parameters."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "relu": (None, None),
    "scaledtanh": (1.0, 1.0),
    "sigmoid": (None, None),
    "softplus": (None, None),
    "softsign": (None, None),
    "tanh": (None, None),
    "thresholdedrelu": (1.0, None),
}
"""The default of ``alpha`` and ``beta`` of each activation; ``None`` for an activation without the parameter."""


@dataclass(frozen=True)
class LayerVariant:
    """A recurrent layer.

    Attributes:
        kind: ``LSTM``, ``GRU`` or ``RNN``.
        activations: the activations of each direction, in ONNX's order.
        is_reversed: for each direction, whether its first step is the last of the sequence.
        clip: the bound of gates in size, before their activations; ``None`` for no bound. As by ONNX Runtime, the cell
            is not clipped.
        linear_before_reset: of ``GRU``, whether the reset gate multiplies the state after the product.
        input_forget: of ``LSTM``, whether the forget gate is 1 minus the input gate.
    """

    kind: str
    activations: Sequence[Sequence[Activation]]
    is_reversed: Sequence[bool]
    clip: float | None = None
    linear_before_reset: bool = False
    input_forget: bool = False


@dataclass(frozen=True)
class LayerOperands:
    """The operands of a recurrent layer, in the shapes of ``nn.lstm``.

    Attributes:
        x: inputs ``(T, N, I)``.
        weight: weights for inputs ``(D, G * H, I)``.
        recurrence: weights for the state ``(D, G * H, H)``.
        bias: ``(D, 2 * G * H)``.
        states: initial states ``(D, N, H)``.
        lengths: the number of steps of each sequence ``(N,)``, if given.
        peepholes: weights ``(D, 3 * H)`` from the cell to the input, output and forget gate, if given.
    """

    x: Value
    weight: Value
    recurrence: Value
    bias: Value
    states: Sequence[Value]
    lengths: Value | None = None
    peepholes: Value | None = None


def emit_steps(node: NodeContext, variant: LayerVariant, operands: LayerOperands) -> list[Value]:
    """Return the hidden states of all steps ``(T, D, N, H)``, and each state after the last step ``(D, N, H)``."""
    columns = []
    for direction in range(len(variant.is_reversed)):
        results = _Direction(node, variant, operands, direction).emit()
        columns.append([node.to_value(result, "a state") for result in results])
    *last, every = (list(column) for column in zip(*columns, strict=True))
    return [node.stack(every, axis=1), *(node.stack(states) for states in last)]


class _Direction:
    """A direction of a layer: its operands without the axis of directions."""

    def __init__(self, node: NodeContext, variant: LayerVariant, operands: LayerOperands, direction: int) -> None:
        self._node, self._variant, self._operands = node, variant, operands
        self._activations = variant.activations[direction]
        self._is_reversed = variant.is_reversed[direction]

        def part(value: Value) -> Value:
            return node.emit("take", value, number(node, direction), axis=0)

        weight, self._recurrence, bias = part(operands.weight), part(operands.recurrence), part(operands.bias)
        width = node.shape_of(weight)[0]
        input_bias, self._bias = node.emit_all("split", (bias,), {"sections": (width, width), "axis": 0})
        product = node.emit("matmul", operands.x, node.emit("permute_dims", weight, axes=(1, 0)))
        self._projected = node.emit("add", product, input_bias)
        hidden = node.shape_of(self._recurrence)[1]
        # Two unknown sizes of a batch are equal at run time; each step returns the inputs' size.
        state_shape = (node.shape_of(operands.x)[1], hidden)
        self._states = [node.reshape(part(state), state_shape) for state in operands.states]
        self._peepholes: Sequence[Value] = ()
        if operands.peepholes is not None:
            peepholes = part(operands.peepholes)
            self._peepholes = node.emit_all("split", (peepholes,), {"sections": (hidden,) * 3, "axis": 0})

    @property
    def _num_steps(self) -> Dim:
        return self._node.shape_of(self._operands.x)[0]

    def emit(self) -> list[Imported]:
        """Return each state after the last step, then the hidden states of all steps ``(T, N, H)``."""
        rounds = Rounds(
            self._node,
            _NODES_PER_STEP,
            ("initial_h", "initial_c")[: len(self._states)],
            self._step,
            self._num_steps,
            ShapeValue.scalar(self._num_steps),
            np.array(True),
            [self._is_reversed],
        )
        return rounds.emit(self._states)

    def _step(self, inner: NodeContext, index: Imported, carried: Sequence[Imported]) -> Round:
        position = inner.to_value(index, "the number of the step")
        if self._is_reversed:
            position = inner.emit("subtract", size_value(inner, self._num_steps - 1), position)
        step = _Step(inner, self._variant, self._activations)
        projected = inner.emit("take", step.outer(self._projected), position, axis=0)
        states = [inner.to_value(state, "a state") for state in carried]
        compute: Callable[..., Sequence[Value]] = {"LSTM": step.lstm, "GRU": step.gru, "RNN": step.rnn}[
            self._variant.kind
        ]
        following = compute(projected, states, self._recurrence, self._bias, self._peepholes)
        hidden = following[0]
        lengths = self._operands.lengths
        if lengths is not None:
            own = step.outer(lengths)
            reached = inner.emit("cast", position, dtype=inner.tensor_type(own).dtype)
            is_running = inner.emit("less", reached, inner.reshape(own, (inner.shape_of(hidden)[0], 1)))
            following = [inner.emit("where", is_running, new, old) for new, old in zip(following, states, strict=True)]
            hidden = inner.emit("where", is_running, hidden, step.number(0.0))
        return Round(np.array(True), following, [hidden])


class _Step:
    """A step of a direction, from the perspective of the round. Operands are values of the surrounding graph."""

    def __init__(self, node: NodeContext, variant: LayerVariant, activations: Sequence[Activation]) -> None:
        self._node, self._variant, self._activations = node, variant, activations

    def outer(self, value: Value) -> Value:
        """Return a value of the surrounding graph for use in the round."""
        return self._node.to_value(self._node.bring_in(value), "an operand")

    def number(self, value: float) -> Value:
        """Return a scalar in the dtype of the layer."""
        return self._node.scalar(value, 0)

    def lstm(
        self, projected: Value, states: Sequence[Value], recurrence: Value, bias: Value, peepholes: Sequence[Value]
    ) -> Sequence[Value]:
        """Return the hidden state and the cell after a step; the gates are input, output, forget, cell."""
        hidden, cell = states
        enter, leave, keep, new = self._split(self._gates(projected, hidden, recurrence, bias), 4)
        forgetting: Value

        def gate(value: Value, index: int, state: Value) -> Value:
            if peepholes:
                value = self._add(value, self._multiply(state, self.outer(peepholes[index])))
            return self._activate(value, 0)

        enter = gate(enter, 0, cell)
        if self._variant.input_forget:
            forgetting = self._node.emit("subtract", self.number(1.0), enter)
        else:
            forgetting = gate(keep, 2, cell)
        cell = self._add(self._multiply(forgetting, cell), self._multiply(enter, self._activate(new, 1)))
        return self._multiply(gate(leave, 1, cell), self._function(cell, 2)), cell

    def gru(
        self, projected: Value, states: Sequence[Value], recurrence: Value, bias: Value, _: Sequence[Value]
    ) -> Sequence[Value]:
        """Return the hidden state after a step; the gates are update, reset, hidden."""
        (hidden,) = states
        update, reset, new = self._split(projected, 3)
        matrices = self._split(self.outer(recurrence), 3, axis=0)
        shifts = self._split(self.outer(bias), 3, axis=0)

        def product(state: Value, gate: int) -> Value:
            return self._add(self._product(state, matrices[gate]), shifts[gate])

        update = self._activate(self._add(update, product(hidden, 0)), 0)
        reset = self._activate(self._add(reset, product(hidden, 1)), 0)
        if self._variant.linear_before_reset:
            reached = self._multiply(reset, product(hidden, 2))
        else:
            reached = product(self._multiply(reset, hidden), 2)
        new = self._activate(self._add(new, reached), 1)
        rest = self._node.emit("subtract", self.number(1.0), update)
        return (self._add(self._multiply(rest, new), self._multiply(update, hidden)),)

    def rnn(
        self, projected: Value, states: Sequence[Value], recurrence: Value, bias: Value, _: Sequence[Value]
    ) -> Sequence[Value]:
        """Return the hidden state after a step."""
        return (self._activate(self._gates(projected, states[0], recurrence, bias), 0),)

    def _gates(self, projected: Value, hidden: Value, recurrence: Value, bias: Value) -> Value:
        product = self._product(hidden, self.outer(recurrence))
        return self._add(projected, self._add(product, self.outer(bias)))

    def _product(self, state: Value, matrix: Value) -> Value:
        return self._node.emit("matmul", state, self._node.emit("permute_dims", matrix, axes=(1, 0)))

    def _split(self, value: Value, count: int, axis: int = 1) -> Sequence[Value]:
        size = self._node.shape_of(value)[axis] // count
        return self._node.emit_all("split", (value,), {"sections": (size,) * count, "axis": axis})

    def _add(self, left: Value, right: Value) -> Value:
        return self._node.emit("add", left, right)

    def _multiply(self, left: Value, right: Value) -> Value:
        return self._node.emit("multiply", left, right)

    def _activate(self, value: Value, index: int) -> Value:
        """Return the activation of this number of a clipped gate."""
        clip = self._variant.clip
        return self._function(value if clip is None else self._node.emit("clip", value, min=-clip, max=clip), index)

    def _function(self, value: Value, index: int) -> Value:
        """Return the activation of this number of a value."""
        node, activation = self._node, self._activations[index]
        name, alpha, beta = activation.name, activation.alpha, activation.beta
        if name == "affine":
            return self._add(self._multiply(value, self.number(alpha)), self.number(beta))
        if name == "scaledtanh":
            return self._multiply(node.emit("tanh", self._multiply(value, self.number(beta))), self.number(alpha))
        if name == "hardsigmoid":
            return node.emit("nn.hard_sigmoid", value, alpha=alpha, beta=beta)
        ops = {"elu": "nn.elu", "leakyrelu": "nn.leaky_relu", "thresholdedrelu": "nn.thresholded_relu"}
        if name in ops:
            return node.emit(ops[name], value, alpha=alpha)
        plain = {"relu": "nn.relu", "softplus": "nn.softplus", "softsign": "nn.softsign"}
        return node.emit(plain.get(name, name), value)
