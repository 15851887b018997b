"""Products of floats by dequantised weights, computed on the weights of 4 or 8 bits.

The rewrite takes what products of bytes (:mod:`byoc_ccompiler.regions.byte_products`) leave: float operands. The
weights stay packed in memory, and become floats in registers or in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.csource import C_TYPES
from byoc_core.ir import Binding, Constant, IRModule, Value
from byoc_core.runtime.module import NDArray
from byoc_core.transform import RemoveDeadCode, RewriteGraph, evaluate_binding, rewrite_module

from byoc_ccompiler.quantised_weights import QUANTISED_DENSE, BlockWeights, depth_axis_of, reject_weights
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["use_quantised_products"]


def use_quantised_products(module: IRModule) -> IRModule:
    """Return the module with products by dequantised weights computed on the weights, if supported by the kernel.

    Weights of dtypes without a C type are folded where other ops read their floats.
    """
    module = rewrite_module(module, dict.fromkeys(("nn.dense", "matmul"), (_use_weights,)))
    return rewrite_module(RemoveDeadCode()(module), {"dequantize": (_fold,)})


def _use_weights(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    x, weight = binding.operands
    if dtype_of(binding.result) != "float32" or len(shape_of(weight)) != 2:
        return None
    moves, found = list[Binding](), graph.producer(weight)
    while found is not None and found[0].op.name == "permute_dims":
        moves.append(found[0])
        found = graph.producer(found[0].operands[0])
    depth_axis = depth_axis_of(binding, moves)
    if found is None or found[0].op.name != "dequantize":
        return None
    arrays = _arrays(found[0], graph)
    if arrays is None or reject_weights(found[0], depth_axis, arrays[1]) is not None:
        return None
    weights = BlockWeights.of(found[0], depth_axis, arrays)
    constants = (weights.weight, weights.scale, *(() if weights.zero is None else (weights.zero,)))
    attrs = {"num_bits": weights.num_bits, "block_size": weights.block_size}
    return (graph.emit(QUANTISED_DENSE, (x, *map(graph.const, constants)), attrs),)


def _fold(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Fold weights without a C type."""
    arrays = _arrays(binding, graph)
    if dtype_of(binding.operands[0]) in C_TYPES or arrays is None:
        return None
    return (graph.const(evaluate_binding(binding, list(arrays), {})[0]),)


def _arrays(binding: Binding, graph: RewriteGraph) -> tuple[NDArray, NDArray, NDArray] | None:
    """Return the operands of an op of three constants."""
    first, second, third = (
        graph.array(operand) if isinstance(operand, Constant) else None for operand in binding.operands
    )
    return None if first is None or second is None or third is None else (first, second, third)
