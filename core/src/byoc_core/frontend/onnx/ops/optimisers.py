"""Importers for steps of optimisers (domain ``ai.onnx.preview.training``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byoc_core.dims import product
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.ir.module import Value

__all__ = ["DOMAIN", "IMPORTERS"]

DOMAIN = "ai.onnx.preview.training"
"""The domain of the family's ops."""

_Update = Callable[["_Arithmetic", Sequence[Value]], Sequence[Value]]
"""Returns the new tensors of an optimised tensor from tensor, gradient and state."""


class _Arithmetic:
    """Elementwise arithmetic of values of a dtype; numbers and values of other dtypes are converted first."""

    def __init__(self, node: NodeContext, dtype: str) -> None:
        self.node, self.dtype = node, dtype

    def convert(self, operand: Value | float) -> Value:
        """Return a number as a constant, or a value in the dtype."""
        if isinstance(operand, int | float):
            return self.node.constant(np.asarray(operand).astype(to_numpy(self.dtype)))
        is_same = self.node.tensor_type(operand).dtype == self.dtype
        return operand if is_same else self.node.emit("cast", operand, dtype=self.dtype)

    def emit(self, op: str, *operands: Value | float) -> Value:
        """Return the result of an op on converted operands."""
        return self.node.emit(op, *map(self.convert, operands))

    def add_product(self, addend: Value, factor: float, value: Value) -> Value:
        """Return ``factor * value + addend``; the addend itself for a factor of 0."""
        return self.emit("add", self.emit("multiply", factor, value), addend) if factor else addend

    def average(self, share: float, old: Value, new: Value) -> Value:
        """Return ``share * old + (1 - share) * new``."""
        return self.emit("add", self.emit("multiply", share, old), self.emit("multiply", 1 - share, new))


def _update_each(node: NodeContext, num_states: int, update: _Update) -> Sequence[Imported]:
    """Return the new tensors of a node: all optimised tensors, then all tensors of each state.

    Args:
        node: the node; after learning rate and count, its inputs are all tensors, then all gradients, then all tensors
            of each state.
        num_states: the number of states of a tensor.
        update: the rule for each tensor; computes in the tensor's dtype.

    Raises:
        FrontendError: the number of inputs is wrong.
    """
    group = num_states + 2
    count, rest = divmod(node.num_inputs - 2, group)
    if rest or count < 1:
        expected = f"2, and {group} for each optimised tensor"
        raise node.error("has the wrong number of inputs", got=node.num_inputs, expected=expected)
    updated = []
    for index in range(2, 2 + count):
        indices = range(index, node.num_inputs, count)
        updated.append(update(_Arithmetic(node, node.type(index).dtype), [node.value(k) for k in indices]))
    return [new for kind in zip(*updated, strict=True) for new in kind]


def _read_rate(node: NodeContext) -> tuple[_Arithmetic, Value, Value]:
    """Return arithmetic in float64, the learning rate, and the count of updates in float64.

    Rates are scalars, computed in float64: ``1 - beta**count`` has few digits left in float32.

    Raises:
        FrontendError: an input is no scalar.
    """
    for index, subject in ((0, "learning rate"), (1, "count of updates")):
        if product(node.shape(index)) != 1:
            raise node.error(f"the {subject} is not a scalar", got=node.shape(index), expected=())
    wide = _Arithmetic(node, "float64")
    rate, count = (wide.convert(node.reshape(node.value(index), ())) for index in (0, 1))
    return wide, rate, count


def _number(node: NodeContext, name: str, default: float) -> float:
    """Return a float attribute; the default is rounded to float32, like an attribute of this value."""
    return node.attr_float(name, float(np.float32(default)))


def _import_adagrad(node: NodeContext) -> Sequence[Imported]:
    """Import a step of AdaGrad (Duchi, Hazan, Singer, 2011) with decaying learning rate."""
    decay, epsilon = _number(node, "decay_factor", 0.0), _number(node, "epsilon", 1e-6)
    norm = _number(node, "norm_coefficient", 0.0)
    wide, rate, count = _read_rate(node)
    if decay:
        rate = wide.emit("divide", rate, wide.emit("add", 1.0, wide.emit("multiply", count, decay)))

    def update(own: _Arithmetic, tensors: Sequence[Value]) -> Sequence[Value]:
        x, gradient, squares = tensors
        gradient = own.add_product(gradient, norm, x)
        squares = own.emit("add", squares, own.emit("multiply", gradient, gradient))
        root = own.emit("add", own.emit("sqrt", squares), epsilon)
        step = own.emit("divide", own.emit("multiply", rate, gradient), root)
        return own.emit("subtract", x, step), squares

    return _update_each(node, 1, update)


def _import_adam(node: NodeContext) -> Sequence[Imported]:
    """Import a step of Adam (Kingma, Ba, 2015); the averages are corrected for their start if the count is positive."""
    alpha, beta = _number(node, "alpha", 0.9), _number(node, "beta", 0.999)
    epsilon, norm = _number(node, "epsilon", 1e-6), _number(node, "norm_coefficient", 0.0)
    final_norm = _number(node, "norm_coefficient_post", 0.0)
    wide, rate, count = _read_rate(node)
    exponent = wide.emit("maximum", count, 1.0)  # no division by zero where the count is not positive
    of_gradients, of_squares = (
        wide.emit("subtract", 1.0, wide.emit("power", share, exponent)) for share in (alpha, beta)
    )
    corrected = wide.emit("divide", wide.emit("multiply", rate, wide.emit("sqrt", of_squares)), of_gradients)
    rate = node.emit("where", wide.emit("greater", count, 0.0), corrected, rate)

    def update(own: _Arithmetic, tensors: Sequence[Value]) -> Sequence[Value]:
        x, gradient, averages, squares = tensors
        gradient = own.add_product(gradient, norm, x)
        averages = own.average(alpha, averages, gradient)
        squares = own.average(beta, squares, own.emit("multiply", gradient, gradient))
        root = own.emit("add", own.emit("sqrt", squares), epsilon)
        step = own.emit("divide", own.emit("multiply", rate, averages), root)
        new = own.emit("subtract", x, step)
        return own.emit("multiply", 1 - final_norm, new) if final_norm else new, averages, squares

    return _update_each(node, 2, update)


def _import_momentum(node: NodeContext) -> Sequence[Imported]:
    """Import a step of gradient descent with momentum (Polyak, 1964), or with the momentum of Nesterov (1983)."""
    alpha, beta, norm = (node.attr_float(name) for name in ("alpha", "beta", "norm_coefficient"))
    mode = node.attr_string("mode")
    if mode not in ("standard", "nesterov"):
        raise node.error("attribute `mode` is unknown", got=mode, expected="standard or nesterov")
    wide, rate, count = _read_rate(node)
    share = node.emit("where", wide.emit("greater", count, 0.0), wide.convert(beta), wide.convert(1.0))

    def update(own: _Arithmetic, tensors: Sequence[Value]) -> Sequence[Value]:
        x, gradient, momentum = tensors
        gradient = own.add_product(gradient, norm, x)
        previous = own.emit("multiply", alpha, momentum)
        momentum = own.emit("add", previous, own.emit("multiply", share, gradient))
        direction = own.add_product(gradient, alpha, momentum) if mode == "nesterov" else momentum
        return own.emit("subtract", x, own.emit("multiply", rate, direction)), momentum

    return _update_each(node, 1, update)


IMPORTERS: dict[str, NodeImporter] = {
    "Adagrad": _import_adagrad,
    "Adam": _import_adam,
    "Momentum": _import_momentum,
}
"""The family's importers, by ONNX name."""
