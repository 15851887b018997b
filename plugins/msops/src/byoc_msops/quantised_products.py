"""Importers of matrix products of quantised operands: sums of products of integers, then a single scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.activations import add_bias
from byoc_msops.attention import MergedInputs, attend_merged
from byoc_msops.operands import emit_standard
from byoc_msops.quantised_tensors import quantised, scale_products

__all__ = ["IMPORTERS"]


def _optional(node: NodeContext, index: int) -> Imported | None:
    return node.imported(index) if node.has_input(index) else None


def _import_to_float(node: NodeContext) -> Sequence[Imported]:
    """Import ``A, B, A's scale, B's scale, A's zero point, B's zero point, bias``."""
    zeros = [_optional(node, index) for index in (4, 5)]
    sums = emit_standard(node, "MatMulInteger", [node.imported(0), node.imported(1), *zeros])
    return (add_bias(node, scale_products(node, sums, (2, 3)), 6),)


def _import_dynamic(node: NodeContext) -> Sequence[Imported]:
    """Import ``A, B, B's scale, B's zero point, bias``; the scale of ``A`` comes from the range of its elements."""
    quantise = node.import_operator("DynamicQuantizeLinear", [node.imported(0)], opset=11, num_outputs=3)
    x, scale, zero = (node.to_value(form, "a result of DynamicQuantizeLinear") for form in quantise)
    sums = emit_standard(node, "MatMulInteger", [x, node.imported(1), zero, _optional(node, 3)])
    weight_scale: Value = node.value(2)
    if node.shape(2) == (1,):
        weight_scale = node.reshape(weight_scale, ())
    product = node.emit("cast", sums, dtype="float32")
    result = node.emit("multiply", product, node.emit("multiply", scale, weight_scale))
    return (add_bias(node, result, 4),)


def _import_gemm(node: NodeContext) -> Sequence[Imported]:
    """Import ``A, scale, zero point, B, scale, zero point, C, scale, zero point``; the scale of ``C`` is the product's.

    Without a scale of the result, the result is float32.
    """
    operands: list[Value] = []
    for index, letter in ((0, "A"), (3, "B")):
        if len(node.shape(index)) != 2:
            raise node.error(f"input {index} is no matrix", got=node.shape(index))
        is_turned = node.attr_flag(f"trans{letter}")
        value: Value = node.value(index)
        operands.append(node.emit("permute_dims", value, axes=(1, 0)) if is_turned else value)
    sums: Value = emit_standard(node, "MatMulInteger", [*operands, _optional(node, 2), _optional(node, 5)])
    if node.has_input(6):
        is_vector = node.shape(6) == node.shape_of(sums)[-1:]
        attrs = {"axis": 1} if is_vector else {}
        sums = node.emit("nn.bias_add" if is_vector else "add", sums, node.value(6), **attrs)
    result = scale_products(node, sums, (1, 4), node.attr_float("alpha", 1.0))
    return (quantised(node, result, 7, node.type(0).dtype) if node.has_input(7) else result,)


def _import_attention(node: NodeContext) -> Sequence[Imported]:
    """Import ``input, weight, bias, input's scale, weight's scale, mask, input's zero point, weight's zero, past``."""
    zeros = [_optional(node, index) for index in (6, 7)]
    sums = emit_standard(node, "MatMulInteger", [node.imported(0), node.imported(1), *zeros])
    product = add_bias(node, scale_products(node, sums, (3, 4)), 2)
    return attend_merged(node, product, (), MergedInputs(mask=5, past=8))


def _import_words(node: NodeContext) -> Sequence[Imported]:
    """Import the product of matrices of int16, summed in int32."""
    operands = [node.emit("cast", node.value(index), dtype="int32") for index in (0, 1)]
    return (node.emit("matmul", *operands),)


IMPORTERS: Mapping[str, NodeImporter] = {
    "DynamicQuantizeMatMul": _import_dynamic,
    "MatMulInteger16": _import_words,
    "MatMulIntegerToFloat": _import_to_float,
    "QAttention": _import_attention,
    "QGemm": _import_gemm,
}
"""The module's importers, by operator."""
