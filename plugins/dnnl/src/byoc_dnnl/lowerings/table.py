"""The table of ops, and rules checked before every lowering: dtypes, static sizes, elements, limits of oneDNN.

Lowerings may rely on these rules. The tables of lowerings and dtypes also appear on the page of ops for users
(``docs/dnnl_ops.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from byoc_dnnl.calls import exceeded_limit
from byoc_dnnl.capi import DataType
from byoc_dnnl.lowerings.adaptive_pooling import lower_adaptive_pooling
from byoc_dnnl.lowerings.batch_norm import lower_batch_norm
from byoc_dnnl.lowerings.casts import lower_cast
from byoc_dnnl.lowerings.convolution import lower_convolution
from byoc_dnnl.lowerings.core_functions import (
    CORE_FUNCTIONS,
    ELUS,
    lower_core_function,
    lower_elu,
    lower_log_softmax,
    lower_stepwise_softmax,
)
from byoc_dnnl.lowerings.deconvolution import lower_deconvolution
from byoc_dnnl.lowerings.elementwise import lower_binary, lower_function
from byoc_dnnl.lowerings.epilogue import BINARIES
from byoc_dnnl.lowerings.functions import FUNCTIONS
from byoc_dnnl.lowerings.geometry import declines_windows
from byoc_dnnl.lowerings.group_normalisation import lower_group_norm, lower_instance_norm, lower_rms_norm
from byoc_dnnl.lowerings.normalisation import lower_layer_norm, lower_lrn, lower_softmax
from byoc_dnnl.lowerings.pooling import lower_pooling
from byoc_dnnl.lowerings.prelu import lower_prelu
from byoc_dnnl.lowerings.product import lower_dense, lower_matmul
from byoc_dnnl.lowerings.quantisation import lower_dequantize, lower_quantize
from byoc_dnnl.lowerings.recurrence import NUM_STATES, declines_lengths, lower_recurrence
from byoc_dnnl.lowerings.reduction import REDUCTIONS, lower_reduction
from byoc_dnnl.lowerings.refusals import REFUSALS
from byoc_dnnl.lowerings.reorders import (
    lower_broadcast_to,
    lower_depth_to_space,
    lower_space_to_depth,
    lower_tile,
)
from byoc_dnnl.lowerings.resampling import lower_resize
from byoc_dnnl.lowerings.slicing import lower_roll, lower_split, lower_stack, lower_strided_slice
from byoc_dnnl.lowerings.softsign import lower_softsign
from byoc_dnnl.lowerings.views import lower_concat, lower_permute_dims, lower_reshape
from byoc_dnnl.precision import lacks_instructions

if TYPE_CHECKING:
    from byoc_core.runtime.graph.document import GraphTensor

    from byoc_dnnl.calls import Call
    from byoc_dnnl.planner import Planner

__all__ = ["LOWERINGS", "declines", "dtypes_of", "is_decided", "lower"]

Lowering = Callable[["Call", "Planner"], str | None]

LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(FUNCTIONS, lower_function),
    **dict.fromkeys([*BINARIES, "nn.bias_add"], lower_binary),
    **dict.fromkeys([f"nn.conv{rank}d" for rank in (1, 2, 3)], lower_convolution),
    **dict.fromkeys([f"nn.conv{rank}d_transpose" for rank in (1, 2, 3)], lower_deconvolution),
    **dict.fromkeys(
        [f"nn.adaptive_{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)], lower_adaptive_pooling
    ),
    **dict.fromkeys([f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)], lower_pooling),
    **dict.fromkeys(REDUCTIONS, lower_reduction),
    **dict.fromkeys(CORE_FUNCTIONS, lower_core_function),
    **dict.fromkeys(ELUS, lower_elu),
    "nn.softmax": lower_softmax,
    "nn.log_softmax": lower_log_softmax,
    "nn.stepwise_softmax": lower_stepwise_softmax,
    **dict.fromkeys(["reshape", "squeeze", "expand_dims"], lower_reshape),
    "matmul": lower_matmul,
    "nn.dense": lower_dense,
    "nn.batch_norm": lower_batch_norm,
    "nn.layer_norm": lower_layer_norm,
    "nn.lrn": lower_lrn,
    "quantize": lower_quantize,
    "dequantize": lower_dequantize,
    "concat": lower_concat,
    "permute_dims": lower_permute_dims,
    **dict.fromkeys(NUM_STATES, lower_recurrence),
    "broadcast_to": lower_broadcast_to,
    "cast": lower_cast,
    "depth_to_space": lower_depth_to_space,
    "nn.group_norm": lower_group_norm,
    "nn.instance_norm": lower_instance_norm,
    "nn.prelu": lower_prelu,
    "nn.resize": lower_resize,
    "nn.rms_norm": lower_rms_norm,
    "nn.softsign": lower_softsign,
    "roll": lower_roll,
    "space_to_depth": lower_space_to_depth,
    "split": lower_split,
    "stack": lower_stack,
    "strided_slice": lower_strided_slice,
    "tile": lower_tile,
}
"""Lowerings by op. A lowering adds an op's primitives to a plan, or returns the reason for a refusal."""

_FLOATS = ("float32", "bfloat16", "float16")
_COPIED = tuple(dtype for dtype in DataType.__members__ if dtype != "bfloat16")  # subnormal numbers would be lost
_COMPARED = ("float32", "int8", "uint8")
_DTYPES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys([*FUNCTIONS, *CORE_FUNCTIONS, *ELUS, *BINARIES, "nn.bias_add"], _FLOATS),
    **dict.fromkeys([f"nn.conv{rank}d" for rank in (1, 2, 3)], _FLOATS),
    **dict.fromkeys([f"nn.avg_pool{rank}d" for rank in (1, 2, 3)], _FLOATS),
    **dict.fromkeys([f"nn.{kind}_pool{rank}d" for kind in ("max", "adaptive_max") for rank in (1, 2, 3)], _COMPARED),
    **dict.fromkeys(["matmul", "nn.dense", "nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.batch_norm"], _FLOATS),
    **dict.fromkeys(
        ["cast", "concat", "permute_dims", "reshape", "squeeze", "expand_dims"], tuple(DataType.__members__)
    ),
    **dict.fromkeys(["broadcast_to", "depth_to_space", "space_to_depth", "tile"], _COPIED),
    **dict.fromkeys(["roll", "split", "stack", "strided_slice"], _COPIED),
    "nn.stepwise_softmax": ("bfloat16", "float16"),
    "quantize": ("float32", "int8", "uint8"),
    "dequantize": ("float32", "int8", "uint8", "int32", "int4", "uint4"),
}
"""The dtypes of tensors, for ops not limited to float32."""


def lower(call: Call, planner: Planner) -> str | None:
    """Add a call's primitives to a plan, or return the reason why none exist."""
    reason = planner.refusal(call, _declines_call)
    return LOWERINGS[call.op](call, planner) if reason is None else reason


def _declines_call(call: Call, planner: Planner) -> str | None:
    """Return the reason of a rule on op, types and attributes."""
    return declines(call.op) or declines_lengths(call) or _declines_types(call, planner) or declines_windows(call)


def declines(op: str) -> str | None:
    """Return the reason why an op is never taken; ``None`` for ops that may be taken."""
    if op in LOWERINGS:
        return None
    return REFUSALS.get(op, "not yet considered by this plugin")


def is_decided(op: str) -> bool:
    """Return whether an op has a lowering or a reason for having none; ops of later cores may have neither."""
    return op in LOWERINGS or op in REFUSALS


def dtypes_of(op: str) -> tuple[str, ...]:
    """Return the dtypes accepted by a lowering, if the processor has instructions for the dtype."""
    return _DTYPES.get(op, ("float32",))


def _declines_types(call: Call, planner: Planner) -> str | None:
    dtypes = dtypes_of(call.op)
    for tensor in (*call.operands, *call.results):
        if tensor.dtype in dtypes and lacks_instructions(planner.engine.isa, tensor.dtype):
            return f"oneDNN has no instructions for {tensor.dtype} on this processor"
        if tensor.dtype not in dtypes:
            return f"supported are tensors of {', '.join(dtypes)}, not {tensor}"
        if not _is_static(tensor):
            return f"supported are static sizes, not {tensor}"
        if 0 in tensor.shape:
            return f"{tensor} has no elements"
        if (limit := exceeded_limit(tensor)) is not None:
            return f"{tensor} has more than {limit}"
    return None


def _is_static(tensor: GraphTensor) -> bool:
    return all(isinstance(dim, int) for dim in tensor.shape)
