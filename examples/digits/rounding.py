"""The permitted difference of two float32 programs on a model: a bound from the lengths of the model's sums."""

from __future__ import annotations

import math

import onnx

UNIT_ROUNDOFF = 2.0**-24


def gamma(num_terms: int) -> float:
    """Return ``K u / (1 - K u)``, the error bound of a float32 sum of K products.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, ch. 3.
    """
    return num_terms * UNIT_ROUNDOFF / (1.0 - num_terms * UNIT_ROUNDOFF)


def longest_sum(model: onnx.ModelProto) -> int:
    """Return the largest number of terms added up along a path of the model.

    A convolution or a dense layer adds its fan-in and the bias, an average its window; other ops round once.
    """
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    } | {tensor.name: list(tensor.dims) for tensor in inferred.initializer}
    terms: dict[str, int] = {}
    for node in inferred.node:
        own = 1
        if node.op_type == "Conv":
            own = math.prod(shapes[node.input[1]][1:]) + 1
        elif node.op_type == "Gemm":
            transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            own = shapes[node.input[1]][1 if transposed else 0] + 1
        elif node.op_type == "GlobalAveragePool":
            own = math.prod(shapes[node.input[0]][2:])
        for result in node.output:
            terms[result] = own + max((terms.get(name, 0) for name in node.input), default=0)
    return max(terms.values())
