"""Level 2: right numbers, op by op, pattern by pattern, and in graphs."""

from byoc_conformance.promises.l2_numerics import blocks, onnx_nodes, ops, patterns, random_graphs, stated_precision

__all__ = ["PROMISES"]

PROMISES = (
    *stated_precision.PROMISES,
    *ops.PROMISES,
    *patterns.PROMISES,
    *onnx_nodes.PROMISES,
    *blocks.PROMISES,
    *random_graphs.PROMISES,
)
