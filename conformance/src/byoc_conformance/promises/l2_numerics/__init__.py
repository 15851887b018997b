"""Level 2: right numbers, op by op, pattern by pattern, and in graphs."""

from byoc_conformance.promises.l2_numerics import (
    blocks,
    layouts,
    onnx_nodes,
    ops,
    patterns,
    random_graphs,
    schedules,
    stated_precision,
)

__all__ = ["PROMISES"]

PROMISES = (
    *stated_precision.PROMISES,
    *ops.PROMISES,
    *layouts.PROMISES,
    *schedules.PROMISES,
    *patterns.PROMISES,
    *onnx_nodes.PROMISES,
    *blocks.PROMISES,
    *random_graphs.PROMISES,
)
