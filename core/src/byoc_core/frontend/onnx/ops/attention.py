"""Importers for attention and rotary position embedding."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.attention_stages import PRECISIONS, AttentionStages
from byoc_core.frontend.onnx.ops.normalisation import NARROW_FLOATS
from byoc_core.frontend.onnx.weights import DTYPES
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_STAGES = ("products", "capped", "masked", "weights")
"""The scores selected by ``qk_matmul_output_mode``."""


def _import_attention(node: NodeContext) -> Sequence[Imported]:
    """Import attention with heads on an axis, or side by side in the last axis; the result has the same form."""
    _check_variant(node)
    flat = len(node.shape(0)) == 3
    query_heads, key_heads = node.attr_int("q_num_heads", 0), node.attr_int("kv_num_heads", 0)
    query = _split_heads(node, 0, query_heads)
    key, value = (_split_heads(node, index, key_heads) for index in (1, 2))
    offset: Dim = 0
    if node.has_input(4):
        offset = _past_steps(node)
        key, value = (node.emit("concat", node.value(past), new, axis=2) for past, new in ((4, key), (5, value)))
    scale = node.attr_float("scale") if node.has_attr("scale") else None
    softcap, stage, precision = node.attr_float("softcap", 0.0), _read_stage(node), _read_precision(node)
    masks = [_read_mask(node, node.shape_of(key)[2])] if node.has_input(3) else []
    band = _Band.read(node)
    is_causal = band.is_causal_only and not node.has_input(6)
    if (not is_causal or precision is not None) and (not band.is_open or node.has_input(6)):
        masks += _limit(node, band, node.shape_of(query)[2], node.shape_of(key)[2], offset)
    mask = functools.reduce(lambda left, right: node.emit("add", left, right), masks) if masks else None
    attention: Sequence[Value]
    if precision is None:
        attrs: dict[str, object] = {"scale": scale, "softcap": softcap, "scores": stage, "zero_unseen": True}
        attrs |= {"causal": True, "offset": offset} if is_causal else {}
        attention = node.emit_all("nn.attention", (query, key, value, *([mask] if mask else [])), attrs)
    else:
        sees_all = is_causal and not node.has_input(3)  # each step sees its own key at least
        stages = AttentionStages(node, scale, softcap, precision, mask, may_see_none=not sees_all)
        attention = stages.emit(query, key, value, stage)
    result, *scores = attention
    return (_join_heads(node, result) if flat else result, key, value, *scores)


def _past_steps(node: NodeContext) -> Dim:
    past = node.shape(4)
    if len(past) != 4:
        raise node.error("the past keys have the wrong rank", got=past, expected="(batch, heads, steps, size)")
    return past[2]


def _check_variant(node: NodeContext) -> None:
    """Raise an error for malformed inputs."""
    if node.has_input(4) != node.has_input(5):
        raise node.error("has past keys or past values, but not both")
    if node.has_input(4) and node.has_input(6):
        raise node.error("has both past keys and lengths of keys", expected="only past keys or only lengths")


def _read_precision(node: NodeContext) -> str | None:
    """Return the dtype of a softmax with separate rounding of stages; ``None`` if ``nn.attention`` rounds the same way.

    ``nn.attention`` computes narrow types in float32, and others in the same type.

    Raises:
        FrontendError: the softmax is not of floats.
    """
    dtype = node.type(0).dtype
    element_type = node.attr_int("softmax_precision", 0)
    precision = DTYPES.get(element_type) if element_type else dtype
    if precision not in PRECISIONS:
        raise node.error(
            "attribute `softmax_precision` is unknown", got=precision or element_type, expected=", ".join(PRECISIONS)
        )
    return None if precision == dtype and dtype not in NARROW_FLOATS else precision


def _read_stage(node: NodeContext) -> str | None:
    """Return the stage of the scores in the node's last output; ``None`` without such an output."""
    mode = node.attr_int("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(_STAGES):
        raise node.error("attribute `qk_matmul_output_mode` is unknown", got=mode, expected="0 to 3")
    return _STAGES[mode] if node.num_outputs > 3 else None


@dataclass(frozen=True)
class _Band:
    """The numbers of keys seen by a step to the left and to the right of its own place; ``None``: all."""

    left: int | None
    right: int | None

    @classmethod
    def read(cls, node: NodeContext) -> _Band:
        left, right = (node.attr_int(f"{side}_window_size", -1) for side in ("left", "right"))
        bounds = [size for size in (right, 0 if node.attr_flag("is_causal") else -1) if size >= 0]
        return cls(left if left >= 0 else None, min(bounds, default=None))

    @property
    def is_open(self) -> bool:
        return (self.left, self.right) == (None, None)

    @property
    def is_causal_only(self) -> bool:
        return (self.left, self.right) == (None, 0)


def _limit(node: NodeContext, band: _Band, steps: Dim, length: Dim, offset: Dim) -> list[Value]:
    """Return masks to add to the scores of ``(steps, length)``, to limit each step to its keys.

    The own place of the first step is the key ``offset``; with lengths of keys, the place of the last step is the last
    key.
    """
    keys = node.emit("arange", stop=length)
    start = -steps if node.has_input(6) else offset
    positions: Value = node.reshape(node.emit("arange", start=start, stop=start + steps), (steps, 1))
    visible: list[Value] = []
    if node.has_input(6):
        lengths = node.reshape(node.value(6), (*node.shape(6), 1, 1, 1))
        visible.append(node.emit("less", keys, lengths))
        positions = node.emit("add", positions, lengths)
    if band.right is not None:
        visible.append(node.emit("less_equal", keys, node.emit("add", positions, node.constant(np.int64(band.right)))))
    if band.left is not None:
        first = node.emit("subtract", positions, node.constant(np.int64(band.left)))
        visible.append(node.emit("greater_equal", keys, first))
    return [_hide(node, value) for value in visible]


def _split_heads(node: NodeContext, index: int, heads: int) -> Value:
    """Return an input as ``(B, H, S, D)``."""
    shape = node.shape(index)
    if len(shape) == 4:
        return node.value(index)
    if len(shape) != 3 or heads < 1:
        raise node.error(f"the number of heads of input {index} is unknown", got=f"rank {len(shape)} and {heads} heads")
    split = node.reshape(node.value(index), (shape[0], shape[1], heads, shape[2] // heads))
    return node.emit("permute_dims", split, axes=(0, 2, 1, 3))


def _join_heads(node: NodeContext, value: Value) -> Value:
    """Reshape ``(B, H, S, D)`` to ``(B, S, H * D)``."""
    turned = node.emit("permute_dims", value, axes=(0, 2, 1, 3))
    batch, steps, heads, size = node.shape_of(turned)
    return node.reshape(turned, (batch, steps, heads * size))


def _read_mask(node: NodeContext, length: Dim) -> Value:
    """Return the mask as a term to add to the scores; keys beyond the end of the mask are hidden."""
    mask = node.value(3) if node.type(3).dtype != "bool" else _hide(node, node.value(3))
    *leading, columns = node.shape(3) or (1,)
    if node.opset < 24 or not isinstance(columns, int) or columns == length:
        return mask
    if columns == 1:
        problem = "has an ambiguous mask of a single column: for all keys, or for the first key only"
        raise node.error(problem, got=columns, expected=length)
    hidden = node.emit("broadcast_to", node.scalar(float("-inf"), 0), shape=(*leading, length - columns))
    return node.emit("concat", mask, hidden, axis=len(leading))


def _hide(node: NodeContext, seen: Value) -> Value:
    """Return zeros where a condition holds, else minus infinity."""
    return node.emit("where", seen, node.scalar(0.0, 0), node.scalar(float("-inf"), 0))


def _import_rotary(node: NodeContext) -> Sequence[Imported]:
    node.ignore_attrs("rotary_embedding_dim")  # given by the width of the caches
    flat = len(node.shape(0)) == 3
    x = _split_heads(node, 0, node.attr_int("num_heads", 0))
    angles: list[Value] = [node.value(1), node.value(2)]
    if node.has_input(3):
        angles = [node.emit("take", cache, node.value(3), axis=0) for cache in angles]
    result = node.emit("nn.rotary_embedding", x, *angles, interleaved=node.attr_flag("interleaved"))
    return (_join_heads(node, result) if flat else result,)


IMPORTERS: dict[str, NodeImporter] = {"Attention": _import_attention, "RotaryEmbedding": _import_rotary}
"""The family's importers, by ONNX name."""
