"""Importers of attention with merged weights (Attention) and with separate queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.activations import add_bias
from byoc_msops.masks import MaskReader, add_terms
from byoc_msops.operands import join_heads, split_axis, split_heads

__all__ = ["IMPORTERS", "MergedInputs", "attend_merged", "read_scale"]


def read_scale(node: NodeContext) -> float | None:
    """Return the factor of the scores; ``None`` for one over the root of the size of a head."""
    return node.attr_float("scale", 0.0) or None


@dataclass(frozen=True)
class MergedInputs:
    """The positions of the optional inputs of an attention with merged weights; -1: the operator has no such input.

    Attributes:
        mask: the mask.
        past: earlier keys and values.
        term: a term to add to the scores.
        share: the number of earlier keys in a shared buffer.
    """

    mask: int
    past: int
    term: int = -1
    share: int = -1


def _import_attention(node: NodeContext) -> Sequence[Imported]:
    if len(node.shape(0)) != 3 or len(node.shape(1)) != 2:
        raise node.error("input 0 or 1 has the wrong rank", got=(node.shape(0), node.shape(1)), expected="3 and 2")
    product = add_bias(node, node.emit("matmul", node.value(0), node.value(1)), 2)
    sizes = node.attr_ints("qkv_hidden_sizes", ())
    return attend_merged(node, product, sizes, MergedInputs(mask=3, past=4, term=5, share=6))


def attend_merged(node: NodeContext, product: Value, sizes: Sequence[Dim], inputs: MergedInputs) -> Sequence[Imported]:
    """Return the results of an attention from merged queries, keys and values ``(B, S, sum(sizes))``.

    Args:
        node: the attention.
        product: the merged queries, keys and values.
        sizes: the sizes of queries, keys and values; empty for equal sizes.
        inputs: the positions of optional inputs.

    Raises:
        FrontendError: a variant is not supported.
    """
    _refuse_variants(node, inputs)
    heads, causal = node.attr_int("num_heads"), node.attr_flag("unidirectional")
    batch, steps, width = node.shape_of(product)
    if len(sizes) not in (0, 3) or (not sizes and isinstance(width, int) and width % 3):
        raise node.error("attribute `qkv_hidden_sizes` has not three sizes", got=tuple(sizes), expected=width)
    parts = split_axis(node, product, tuple(sizes) or (width // 3,) * 3, 2)
    query, key, value = (split_heads(node, part, heads, "a part of the product") for part in parts)
    offset: Dim = 0
    if node.has_input(inputs.past) and inputs.past >= 0:
        past = _read_past(node, inputs.past)
        offset = node.shape_of(past[0])[2]
        key, value = (node.emit("concat", old, new, axis=2) for old, new in zip(past, (key, value), strict=True))
    reader = MaskReader(node, inputs.mask, query, (batch, steps, offset + steps), offset)
    mask = reader.read(node.attr_float("mask_filter_value", -10000.0))
    if inputs.term >= 0 and node.has_input(inputs.term):
        mask = add_terms(node, mask, node.value(inputs.term))
    band: Mapping[str, object] = {"causal": True, "offset": offset} if causal else {}
    operands = (query, key, value) if mask is None else (query, key, value, mask)
    result = join_heads(node, node.emit("nn.attention", *operands, scale=read_scale(node), **band))
    if node.num_outputs < 2:
        return (result,)
    if node.shape_of(key) != node.shape_of(value):
        raise node.error("has the output of keys and values, of different sizes", got=tuple(sizes))
    return (result, node.stack([key, value]))


def _refuse_variants(node: NodeContext, inputs: MergedInputs) -> None:
    if node.attr_flag("do_rotary"):
        raise node.error("attribute `do_rotary` has an unsupported value", got=1, expected=0)
    node.ignore_attrs("rotary_embedding_dim")
    if node.attr_flag("past_present_share_buffer") or (inputs.share >= 0 and node.has_input(inputs.share)):
        raise node.error("has a buffer shared by past and present keys, an unsupported feature")


def _read_past(node: NodeContext, index: int) -> tuple[Value, Value]:
    """Return earlier keys and values, each ``(B, H, P, D)``."""
    shape = node.shape(index)
    if len(shape) != 5:
        raise node.error(f"input {index}, the past, has the wrong rank", got=shape, expected="(2, B, H, P, D)")
    key, value = (node.reshape(part, shape[1:]) for part in split_axis(node, node.value(index), (1, 1), 0))
    return key, value


IMPORTERS: Mapping[str, NodeImporter] = {"Attention": _import_attention}
"""The module's importers, by operator."""
