"""Activations named by an attribute of a product or a convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from byoc_core.frontend.onnx import NodeContext
from byoc_core.ir import Value

from byoc_msops.operands import number_like

__all__ = ["apply_activation", "parameter_names", "read_parameters"]

_Parameters = Mapping[str, float]


@dataclass(frozen=True)
class _Activation:
    """An activation.

    Attributes:
        parameters: the names of its parameters, in ONNX Runtime's order.
        emit: emits the ops.
    """

    parameters: tuple[str, ...]
    emit: Callable[[NodeContext, Value, _Parameters], Value]


def _op(name: str, **attributes: str) -> _Activation:
    """Return the activation equal to an op; an attribute of the op is a parameter of the activation."""

    def emit(node: NodeContext, x: Value, parameters: _Parameters) -> Value:
        return node.emit(name, x, **{attribute: parameters[parameter] for attribute, parameter in attributes.items()})

    return _Activation(tuple(attributes.values()), emit)


def _scaled(op: str) -> _Activation:
    """Return ``alpha * op(beta * x)``."""

    def emit(node: NodeContext, x: Value, parameters: _Parameters) -> Value:
        inner = node.emit(op, node.emit("multiply", x, number_like(node, x, parameters["beta"])))
        return node.emit("multiply", inner, number_like(node, x, parameters["alpha"]))

    return _Activation(("alpha", "beta"), emit)


_ACTIVATIONS: Mapping[str, _Activation] = MappingProxyType(
    {
        "Clip": _op("clip", min="min", max="max"),
        "Elu": _op("nn.elu", alpha="alpha"),
        "HardSigmoid": _op("nn.hard_sigmoid", alpha="alpha", beta="beta"),
        "HardSwish": _op("nn.hard_swish"),
        "LeakyRelu": _op("nn.leaky_relu", alpha="alpha"),
        "ParametricSoftplus": _scaled("nn.softplus"),
        "Relu": _op("nn.relu"),
        "ScaledTanh": _scaled("tanh"),
        "Selu": _op("nn.selu", alpha="alpha", gamma="gamma"),
        "Sigmoid": _op("sigmoid"),
        "Softplus": _op("nn.softplus"),
        "Softsign": _op("nn.softsign"),
        "Tanh": _op("tanh"),
        "ThresholdedRelu": _op("nn.thresholded_relu", alpha="alpha"),
    }
)
"""The activations, by the name in the attribute ``activation``."""


def parameter_names(node: NodeContext) -> tuple[str, ...]:
    """Return the names of the parameters of a node's activation, in order; none without activation.

    Raises:
        FrontendError: the activation is unknown.
    """
    name = node.attr_string("activation", "")
    if not name:
        return ()
    if name not in _ACTIVATIONS:
        raise node.error("attribute `activation` is unknown", got=name, expected=", ".join(_ACTIVATIONS))
    return _ACTIVATIONS[name].parameters


def read_parameters(node: NodeContext) -> Mapping[str, float]:
    """Return the attributes ``activation_alpha``, ``activation_beta`` and ``activation_gamma``, by Greek letter."""
    names = ("alpha", "beta", "gamma")
    return {name: node.attr_float(f"activation_{name}") for name in names if node.has_attr(f"activation_{name}")}


def apply_activation(node: NodeContext, x: Value, parameters: Mapping[str, float]) -> Value:
    """Return a value after the node's activation; the value itself without activation.

    Args:
        node: the node.
        x: the value.
        parameters: the parameters by name; further parameters have no effect.

    Raises:
        FrontendError: the activation is unknown, or lacks a parameter.
    """
    names, name = parameter_names(node), node.attr_string("activation", "")
    missing = [parameter for parameter in names if parameter not in parameters]
    if missing:
        raise node.error(f"lacks parameters of the activation {name}", got=sorted(parameters), expected=list(names))
    return _ACTIVATIONS[name].emit(node, x, parameters) if name else x
