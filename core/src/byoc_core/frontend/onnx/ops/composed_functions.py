"""Importers for functions without a direct spelling in ONNX."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dtypes import is_float
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.elementwise import emit_cast
from byoc_core.frontend.onnx.ops.float_arithmetic import float_function
from byoc_core.frontend.onnx.weights import dtype_of

__all__ = ["IMPORTERS"]


def _import_isinf(node: NodeContext) -> Sequence[Imported]:
    signs = {name: node.attr_flag(name, default=True) for name in ("detect_negative", "detect_positive")}
    return node.emit_all("isinf", node.values(), dict(signs))


def _import_mod(node: NodeContext) -> Sequence[Imported]:
    fmod = node.attr_flag("fmod")
    dtype = node.type(0).dtype
    if is_float(dtype) and not fmod and node.opset < 28:
        raise node.error("attribute `fmod` is 0 with floating-point inputs", got=dtype, expected="1, or integers")
    return node.emit_all("mod", node.values(), {"fmod": fmod})


def _import_bit_shift(node: NodeContext) -> Sequence[Imported]:
    direction = node.attr_string("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise node.error("attribute `direction` is unknown", got=direction, expected="LEFT or RIGHT")
    return node.emit_all("left_shift" if direction == "LEFT" else "right_shift", node.values(), {})


def _import_prelu(node: NodeContext) -> Sequence[Imported]:
    """Import PReLU; before opset 7 a list of slopes belonged to the channels, which the converter of models ignores."""
    x, slope = node.values()
    rank = len(node.shape(0))
    if node.written_opset < 7 and len(node.shape(1)) == 1 and rank > 2:
        slope = node.reshape(slope, (*node.shape(1), *(1 for _ in range(rank - 2))))
    return (node.emit("nn.prelu", x, slope),)


def _import_shrink(node: NodeContext) -> Sequence[Imported]:
    attrs = {"lambd": node.attr_float("lambd", 0.5), "bias": node.attr_float("bias", 0.0)}
    return (float_function(node, "nn.shrink", node.value(0), **attrs),)


def _import_bit_cast(node: NodeContext) -> Sequence[Imported]:
    dtype = dtype_of(node.attr_int("to"), f"{node.label}, attribute `to`")
    return (node.emit("bitcast", node.value(0), dtype=dtype),)


def _import_cast_like(node: NodeContext) -> Sequence[Imported]:
    return (emit_cast(node, node.type(1).dtype),)


IMPORTERS: dict[str, NodeImporter] = {
    "BitCast": _import_bit_cast,
    "BitShift": _import_bit_shift,
    "CastLike": _import_cast_like,
    "IsInf": _import_isinf,
    "Mod": _import_mod,
    "PRelu": _import_prelu,
    "Shrink": _import_shrink,
}
"""The family's importers, by ONNX name."""
