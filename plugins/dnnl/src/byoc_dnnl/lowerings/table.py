"""The table of ops, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from byoc_core.errors import ArtifactError

from byoc_dnnl.capi import MAX_NDIMS
from byoc_dnnl.lowerings.convolution import lower_convolution
from byoc_dnnl.lowerings.elementwise import lower_binary, lower_function
from byoc_dnnl.lowerings.epilogue import BINARIES, FUNCTIONS
from byoc_dnnl.lowerings.movement import lower_concat, lower_permute_dims, lower_reshape
from byoc_dnnl.lowerings.normalisation import lower_batch_norm, lower_layer_norm, lower_lrn, lower_softmax
from byoc_dnnl.lowerings.pooling import lower_pooling
from byoc_dnnl.lowerings.product import lower_dense, lower_matmul
from byoc_dnnl.lowerings.reduction import REDUCTIONS, lower_reduction

if TYPE_CHECKING:
    from byoc_core.runtime.graph_document import GraphTensor

    from byoc_dnnl.planner import Call, Planner

__all__ = ["LOWERINGS", "declines", "lower"]

Lowering = Callable[["Call", "Planner"], str | None]

LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(FUNCTIONS, lower_function),
    **dict.fromkeys([*BINARIES, "nn.bias_add"], lower_binary),
    **dict.fromkeys([f"nn.conv{rank}d" for rank in (1, 2, 3)], lower_convolution),
    **dict.fromkeys([f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)], lower_pooling),
    **dict.fromkeys(REDUCTIONS, lower_reduction),
    "nn.softmax": lower_softmax,
    **dict.fromkeys(["reshape", "squeeze", "expand_dims"], lower_reshape),
    "matmul": lower_matmul,
    "nn.dense": lower_dense,
    "nn.batch_norm": lower_batch_norm,
    "nn.layer_norm": lower_layer_norm,
    "nn.lrn": lower_lrn,
    "concat": lower_concat,
    "permute_dims": lower_permute_dims,
}
"""What adds an op's primitives to a plan, or gives the reason why it does not; by op."""

_NUM_OPERANDS: Mapping[str, int] = {
    **dict.fromkeys(BINARIES, 2),
    **dict.fromkeys([f"nn.conv{rank}d" for rank in (1, 2, 3)], 2),
    **dict.fromkeys(["matmul", "nn.dense", "nn.bias_add"], 2),
    "nn.layer_norm": 3,
    "nn.batch_norm": 5,
}
"""Where it is not one; documents may come from a file."""

_CHANGES_RANK = frozenset({*BINARIES, *REDUCTIONS, "matmul", "reshape", "squeeze", "expand_dims"})
"""Ops whose result may be of another rank than the first operand."""

_INEXACT: Mapping[str, str] = {
    "clip": "oneDNN 3.2 gives a bound for NaN",
    "exp": "oneDNN 3.2 gives infinity for NaN",
    "log": "oneDNN 3.2 is wrong for subnormal numbers",
    "maximum": "oneDNN 3.2 loses a NaN of the first operand",
    "minimum": "oneDNN 3.2 loses a NaN of the first operand",
    "nn.gelu": "oneDNN 3.2 gives NaN for an infinity",
    "nn.hard_swish": "oneDNN 3.2 gives NaN for minus infinity",
    "nn.log_softmax": "oneDNN 3.2 is wrong by 3e-6",
    "nn.mish": "oneDNN 3.2 gives 0 below -17",
    "nn.softplus": "oneDNN 3.2 is wrong by 2e-6 for negative numbers",
    "nn.swish": "oneDNN 3.2 gives NaN for minus infinity",
}
"""Ops that oneDNN computes with another meaning for some numbers."""


def lower(call: Call, planner: Planner) -> str | None:
    """Adds a call's primitives to a plan, or gives the reason why there are none."""
    reason = declines(call.op) or _declines_types(call)
    if reason is not None:
        return reason
    expected = _NUM_OPERANDS.get(call.op, 1)
    if len(call.operands) != expected and not (call.op == "concat" and call.operands):
        raise ArtifactError(f"`{call.op}`", "has a wrong number of operands", got=len(call.operands), expected=expected)
    if call.op not in _CHANGES_RANK and any(len(x.shape) != len(call.result.shape) for x in _of_one_rank(call)):
        got = ", ".join(map(str, (*call.operands, call.result)))
        raise ArtifactError(f"`{call.op}`", "has tensors of different ranks", got=got)
    return LOWERINGS[call.op](call, planner)


def _of_one_rank(call: Call) -> tuple[GraphTensor, ...]:
    return call.operands if call.op == "concat" else call.operands[:1]


def declines(op: str) -> str | None:
    """Gives the reason why an op is never taken; ``None`` where it may be."""
    if op in LOWERINGS:
        return None
    return _INEXACT.get(op, "there is no primitive for it here")


def _declines_types(call: Call) -> str | None:
    for tensor in (*call.operands, call.result):
        if tensor.dtype != "float32":
            return f"only float32 is taken, and this is {tensor}"
        if not _is_static(tensor):
            return f"only static sizes are taken, and this is {tensor}"
        if 0 in tensor.shape:
            return f"{tensor} has no elements"
        if len(tensor.shape) > MAX_NDIMS:
            return f"{tensor} has more than {MAX_NDIMS} axes"
    return None


def _is_static(tensor: GraphTensor) -> bool:
    return all(isinstance(dim, int) for dim in tensor.shape)
