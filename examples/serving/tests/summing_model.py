"""A small model with exact results: sums of rows of a table of small integers, and scores of the sums.

Sums of small integers are exact in float32 in any order, so results do not depend on batches. An index outside the
table makes a call fail.
"""

from __future__ import annotations

from pathlib import Path

import byoc_core
import numpy as np
import onnx

NUM_ENTRIES = 50
SUMS = """
<ir_version: 8, opset_import: ["" : 17]>
sums (int64[n, length] ids, float[8] shift) => (float[n, 4] scores, float[n, 8] sums)
<float[50, 8] table, float[8, 4] weights> {
    vectors = Gather(table, ids)
    axis = Constant<value = int64[1] {1}>()
    total = ReduceSum<keepdims = 0>(vectors, axis)
    sums = Add(total, shift)
    positive = Relu(sums)
    scores = MatMul(positive, weights)
}
"""
ROWS = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[n, 8] x) => (float[n, 4] scores)
<float[8, 4] weights> {
    positive = Relu(x)
    scores = MatMul(positive, weights)
}
"""


def write_artifact(path: Path, text: str = SUMS) -> Path:
    """Compile a model by all backends able to compile here, and save the artifact."""
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    for value in model.graph.value_info:  # declared above without values
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        weights = generator.integers(-3, 4, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, value.name))
    byoc_core.build(byoc_core.from_onnx(model), backends="auto").save(path)
    return path
