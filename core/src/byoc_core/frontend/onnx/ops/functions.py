"""Importers of mathematical functions, bitwise logic, and activations with parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.dtypes import is_float
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.elementwise import emit_cast
from byoc_core.frontend.onnx.ops.float_arithmetic import float_function

__all__ = ["IMPORTERS"]


def _function(op: str, attrs: Mapping[str, float] | None = None) -> NodeImporter:
    """Gives the importer of ops with the same operands in ONNX as here, and float attributes of these defaults."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        read: dict[str, object] = {name: node.attr_float(name, value) for name, value in (attrs or {}).items()}
        return node.emit_all(op, node.values(), read)

    return import_node


def _import_isinf(node: NodeContext) -> Sequence[Imported]:
    signs = {name: node.attr_flag(name, default=True) for name in ("detect_negative", "detect_positive")}
    return node.emit_all("isinf", node.values(), dict(signs))


def _import_mod(node: NodeContext) -> Sequence[Imported]:
    fmod = node.attr_flag("fmod")
    dtype = node.type(0).dtype
    if is_float(dtype) and not fmod:
        raise node.error("attribute `fmod` is 0 with floating-point inputs", got=dtype, expected="1, or integers")
    return node.emit_all("mod", node.values(), {"fmod": fmod})


def _import_bit_shift(node: NodeContext) -> Sequence[Imported]:
    direction = node.attr_string("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise node.error("attribute `direction` is not known", got=direction, expected="LEFT or RIGHT")
    return node.emit_all("left_shift" if direction == "LEFT" else "right_shift", node.values(), {})


def _import_shrink(node: NodeContext) -> Sequence[Imported]:
    attrs = {"lambd": node.attr_float("lambd", 0.5), "bias": node.attr_float("bias", 0.0)}
    return (float_function(node, "nn.shrink", node.value(0), **attrs),)


def _import_cast_like(node: NodeContext) -> Sequence[Imported]:
    return (emit_cast(node, node.type(1).dtype),)


IMPORTERS: dict[str, NodeImporter] = {
    "Acos": _function("acos"),
    "Acosh": _function("acosh"),
    "Asin": _function("asin"),
    "Asinh": _function("asinh"),
    "Atan": _function("atan"),
    "Atanh": _function("atanh"),
    "BitShift": _import_bit_shift,
    "BitwiseAnd": _function("bitwise_and"),
    "BitwiseNot": _function("bitwise_not"),
    "BitwiseOr": _function("bitwise_or"),
    "BitwiseXor": _function("bitwise_xor"),
    "CastLike": _import_cast_like,
    "Ceil": _function("ceil"),
    "Celu": _function("nn.celu", {"alpha": 1.0}),
    "Cos": _function("cos"),
    "Cosh": _function("cosh"),
    "Elu": _function("nn.elu", {"alpha": 1.0}),
    "Floor": _function("floor"),
    "HardSigmoid": _function("nn.hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": _function("nn.hard_swish"),
    "IsInf": _import_isinf,
    "IsNaN": _function("isnan"),
    "Mish": _function("nn.mish"),
    "Mod": _import_mod,
    "PRelu": _function("nn.prelu"),
    "Reciprocal": _function("reciprocal"),
    "Round": _function("round"),
    "Selu": _function("nn.selu", {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "Shrink": _import_shrink,
    "Sign": _function("sign"),
    "Sin": _function("sin"),
    "Sinh": _function("sinh"),
    "Softplus": _function("nn.softplus"),
    "Softsign": _function("nn.softsign"),
    "Swish": _function("nn.swish", {"alpha": 1.0}),
    "Tan": _function("tan"),
    "ThresholdedRelu": _function("nn.thresholded_relu", {"alpha": 1.0}),
    "Xor": _function("logical_xor"),
}
"""The family's importers, by ONNX name."""
