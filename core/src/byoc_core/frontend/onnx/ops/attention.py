"""Importers of attention and rotary position embedding."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.weights import DTYPES
from byoc_core.ir.module import Value
from byoc_core.ir.types import TensorType

__all__ = ["IMPORTERS"]

_STAGES = ("products", "capped", "masked", "weights")
"""The scores that ``qk_matmul_output_mode`` chooses."""


def _import_attention(node: NodeContext) -> Sequence[Imported]:
    """Heads may be an axis of their own, or stand side by side in the last one; then so do those of the result."""
    _check_variant(node)
    flat = len(node.shape(0)) == 3
    query_heads, key_heads = node.attr_int("q_num_heads", 0), node.attr_int("kv_num_heads", 0)
    query = _split_heads(node, 0, query_heads)
    key, value = (_split_heads(node, index, key_heads) for index in (1, 2))
    causal = node.attr_flag("is_causal")
    attrs: dict[str, object] = {"causal": causal, "softcap": node.attr_float("softcap", 0.0), "zero_unseen": True}
    if node.has_attr("scale"):
        attrs["scale"] = node.attr_float("scale")
    if node.has_input(4):
        attrs["offset"] = node.shape(4)[2] if causal else 0
        key, value = (node.emit("concat", node.value(past), new, axis=2) for past, new in ((4, key), (5, value)))
    stage = _read_stage(node)
    mask = [_read_mask(node)] if node.has_input(3) else []
    result, *scores = node.emit_all("nn.attention", (query, key, value, *mask), attrs | {"scores": stage})
    return (_join_heads(node, result) if flat else result, key, value, *scores)


def _read_stage(node: NodeContext) -> str | None:
    """Gives the stage of the scores that the node's last output holds; ``None`` where it has no such output."""
    mode = node.attr_int("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(_STAGES):
        raise node.error("attribute `qk_matmul_output_mode` is unknown", got=mode, expected="0 to 3")
    return _STAGES[mode] if node.num_outputs > 3 else None


def _check_variant(node: NodeContext) -> None:
    """Refuses what is malformed, and what changes the numbers and is not imported."""
    if node.has_input(4) != node.has_input(5):
        raise node.error("has past keys or past values, but not both")
    if node.has_input(6):
        raise node.error("has lengths of keys, which are not imported")
    if node.has_attr("softmax_precision"):
        precision, dtype = DTYPES.get(node.attr_int("softmax_precision")), node.type(0).dtype
        # Kernels compute narrow types in float32 and others in their own.
        if precision == "float64" and dtype != "float64":
            raise node.error("asks for a softmax of more precision than its inputs have", got=precision, expected=dtype)
    for name in ("left_window_size", "right_window_size"):
        if node.attr_int(name, -1) != -1:
            raise node.error(f"attribute `{name}` is not imported", expected="-1")


def _split_heads(node: NodeContext, index: int, heads: int) -> Value:
    """Gives an input as ``(B, H, S, D)``."""
    shape = node.shape(index)
    if len(shape) == 4:
        return node.value(index)
    if len(shape) != 3 or heads < 1:
        raise node.error(f"does not say the heads of input {index}", got=f"rank {len(shape)} and {heads} heads")
    split = node.reshape(node.value(index), (shape[0], shape[1], heads, shape[2] // heads))
    return node.emit("permute_dims", split, axes=(0, 2, 1, 3))


def _join_heads(node: NodeContext, value: Value) -> Value:
    """Gives ``(B, H, S, D)`` as ``(B, S, H * D)``."""
    turned = node.emit("permute_dims", value, axes=(0, 2, 1, 3))
    shape = turned.type.shape if isinstance(turned.type, TensorType) else None
    if shape is None:
        raise node.error("needs a known rank")
    batch, steps, heads, size = shape
    return node.reshape(turned, (batch, steps, heads * size))


def _read_mask(node: NodeContext) -> Value:
    """Gives the mask as what is added to the scores."""
    if node.type(3).dtype != "bool":
        return node.value(3)
    return node.emit("where", node.value(3), node.scalar(0.0, 0), node.scalar(float("-inf"), 0))


def _import_rotary(node: NodeContext) -> Sequence[Imported]:
    node.ignore_attrs("rotary_embedding_dim")  # the width of the caches says it
    flat = len(node.shape(0)) == 3
    x = _split_heads(node, 0, node.attr_int("num_heads", 0))
    angles: list[Value] = [node.value(1), node.value(2)]
    if node.has_input(3):
        angles = [node.emit("take", cache, node.value(3), axis=0) for cache in angles]
    result = node.emit("nn.rotary_embedding", x, *angles, interleaved=node.attr_flag("interleaved"))
    return (_join_heads(node, result) if flat else result,)


IMPORTERS: dict[str, NodeImporter] = {"Attention": _import_attention, "RotaryEmbedding": _import_rotary}
"""The family's importers, by ONNX name."""
