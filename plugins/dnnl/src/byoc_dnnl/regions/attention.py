"""Attention as two products and a softmax.

oneDNN 3.2 has no primitive for attention. Scale, softcap and mask become post-ops of a product, and transposed keys are
another description of the same memory. The result is written in the layout of the permutation after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.ir import AttrValue, Binding, ConstantStore, Function, IRModule, Value, Var
from byoc_core.transform import RewriteGraph, Rules, dtype_of, rewrite_module, shape_of

__all__ = ["parts_of_attention", "spell_out_attention"]


def spell_out_attention(
    functions: Iterable[Function],
) -> tuple[Mapping[str, Function], Mapping[str, npt.NDArray[Any]]]:
    """Return the functions by name with attention in terms of other ops, if correct, and the new constants.

    Left unchanged: causal attention, because hiding a NaN or infinite score is more than adding minus infinity;
    attention with zeros for a step that sees no key; dtypes other than float32; and heads of a symbolic size without a
    scale.
    """
    store = ConstantStore()
    open_functions = {
        function.name: replace(function, attrs=_without_backend(function.attrs)) for function in functions
    }
    return rewrite_module(IRModule(open_functions, store), _RULES).functions, store


def parts_of_attention(binding: Binding) -> tuple[Binding, ...]:
    """Return the ops of an attention; empty for other ops, and for attention left alone."""
    if binding.op.name not in _RULES:
        return ()
    params = tuple(dict.fromkeys(operand for operand in binding.operands if isinstance(operand, Var)))
    functions, _ = spell_out_attention([Function("op", params, (replace(binding, codegen=None),), binding.results)])
    parts = functions["op"].bindings
    return () if any(part.op.name in _RULES for part in parts) else parts


def _without_backend(attrs: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
    """Return the attributes of a function without the owning backend, to open the function to rewriting."""
    return {name: value for name, value in attrs.items() if name != "Codegen"}


def _spell_out(binding: Binding, graph: RewriteGraph) -> tuple[Value, ...] | None:
    query, key, value, *masks = binding.operands
    attrs: Mapping[str, Any] = binding.attrs
    (batch, heads, steps, size), (_, groups, length, _), (*_, width) = (shape_of(x) or () for x in binding.operands[:3])
    scale = attrs["scale"]
    if scale is None and isinstance(size, int):
        scale = 1 / math.sqrt(max(size, 1))
    if attrs["causal"] or attrs["zero_unseen"] or scale is None or dtype_of(query) != "float32":
        return None

    def emit(op: str, *operands: Value, **op_attrs: object) -> Value:
        return graph.emit(op, operands, op_attrs)

    def number(value: float) -> Value:
        return graph.const(np.float32(value))

    is_shared = heads != groups
    if is_shared:  # the queries of the heads that share keys become steps of one head
        if not (isinstance(heads, int) and isinstance(groups, int)):
            return None
        query = emit("reshape", query, shape=(batch, groups, heads // groups * steps, size))
    scores = emit("matmul", query, emit("permute_dims", key, axes=(0, 1, 3, 2)))
    if is_shared:
        scores = emit("reshape", scores, shape=(batch, heads, steps, length))
    stages = {"products": emit("multiply", scores, number(scale))}
    stages["capped"] = stages["products"]
    if attrs["softcap"]:
        capped = emit("tanh", emit("divide", stages["products"], number(attrs["softcap"])))
        stages["capped"] = emit("multiply", capped, number(attrs["softcap"]))
    stages["masked"] = stages["capped"]
    for mask in masks:
        stages["masked"] = emit("add", stages["masked"], mask)
    weights = stages["weights"] = emit("nn.softmax", stages["masked"], axis=3)
    if is_shared:
        weights = emit("reshape", weights, shape=(batch, groups, heads // groups * steps, length))
    result = emit("matmul", weights, value)
    if is_shared:
        result = emit("reshape", result, shape=(batch, heads, steps, width))
    return (result,) if attrs["scores"] is None else (result, stages[attrs["scores"]])


_RULES: Rules = {"nn.attention": [_spell_out]}
