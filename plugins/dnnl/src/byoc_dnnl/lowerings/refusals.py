"""Reasons why ops are never taken, in the ops' terms; for ops left out although oneDNN has them, the reason says so."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REFUSALS"]

_GROUPS: Mapping[str, str] = {
    "this plugin takes no truth values": "all any equal greater greater_equal isinf isnan less less_equal logical_and "
    "logical_not logical_or logical_xor not_equal where",
    "oneDNN has no operations on bits": "bitwise_and bitwise_not bitwise_or bitwise_xor left_shift right_shift",
    "oneDNN has no such function": "acos acosh asin asinh atan atanh ceil cos cosh erf floor mod sign sin sinh tan",
    "oneDNN has no function with a step": "nn.shrink nn.thresholded_relu",
    "oneDNN has powers of one exponent for all elements only": "power",
    "oneDNN has no operations with indices": "gather_elements gather_nd one_hot scatter_elements scatter_nd "
    "scatter_slice take",
    "oneDNN neither sorts nor searches": "argmax argmin argsort compress nonzero sort topk unique",
    "oneDNN walks memory forwards only": "flip reverse_sequence",
    "oneDNN has no sums over parts": "cumprod cumsum",
    "oneDNN adds no borders; zeros around an image are part of a convolution": "nn.border_pad nn.pad",
    "oneDNN makes no tensors out of numbers": "arange full range",
    "it is about shapes, not elements": "shape_of shape_to_tensor size",
    "oneDNN pools by means and largest elements only": "nn.lp_pool1d nn.lp_pool2d nn.lp_pool3d",
    "oneDNN takes no sums over named axes": "einsum",
    "oneDNN rotates no pairs": "nn.rotary_embedding",
    "oneDNN knows no triangles of matrices": "trilu",
    "oneDNN has no such reduction": "logsumexp",
    "it holds or calls functions": "call call_dps_packed call_packed composite if loop",
}
"""Ops without support in oneDNN: the reason, and the ops."""

REFUSALS: Mapping[str, str] = {
    **{op: reason for reason, ops in _GROUPS.items() for op in ops.split()},
    "nn.attention": "this plugin takes it in float32 only, not causal, and without zeros for a step that sees no key",
}
"""The reason for each op without a lowering."""
