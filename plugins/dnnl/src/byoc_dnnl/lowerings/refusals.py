"""Reasons why ops are never taken, in the ops' terms; for ops left out although oneDNN has them, the reason says so.

Rejections of the backend and the page of ops for users show the texts. No op has both a reason and a lowering. An op
with neither is refused as new.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REFUSALS"]

_GROUPS: Mapping[str, str] = {
    "this plugin does not support bool tensors": "all any equal greater greater_equal isinf isnan less less_equal "
    "logical_and logical_not logical_or logical_xor not_equal where",
    "oneDNN has no bitwise operations": "bitwise_and bitwise_not bitwise_or bitwise_xor left_shift right_shift",
    "oneDNN has no such function": "acos acosh asin asinh atan atanh ceil cos cosh erf floor mod sign sin sinh tan",
    "oneDNN has no functions with a threshold": "nn.shrink nn.thresholded_relu",
    "oneDNN supports only a scalar exponent": "power",
    "oneDNN has no operations with indices": "gather_elements gather_nd one_hot scatter_elements scatter_nd "
    "scatter_slice take",
    "oneDNN neither sorts nor searches": "argmax argmin argsort compress nonzero sort topk unique",
    "oneDNN does not support negative strides": "flip reverse_sequence",
    "oneDNN has no cumulative sums or products": "cumprod cumsum",
    "oneDNN has no padding primitive; zeros around an image are part of a convolution": "nn.border_pad nn.pad",
    "oneDNN does not create tensors from scalars": "arange full range",
    "the op computes with shapes, not elements": "shape_of shape_to_tensor size",
    "oneDNN has only average and max pooling": "nn.lp_pool1d nn.lp_pool2d nn.lp_pool3d",
    "oneDNN has no Einstein summation": "einsum",
    "oneDNN has no rotary embedding": "nn.rotary_embedding",
    "oneDNN does not extract triangles of matrices": "trilu",
    "oneDNN has no such reduction": "logsumexp",
    "the op contains or calls functions": "call call_dps_packed call_packed composite if loop",
}
"""Ops without support in oneDNN: the reason, and the ops."""

REFUSALS: Mapping[str, str] = {
    **{op: reason for reason, ops in _GROUPS.items() for op in ops.split()},
    "nn.attention": "supported in float32 only, not causal, and without zeros for steps without visible keys",
}
"""The reason for each op without a lowering."""
