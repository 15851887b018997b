"""Models with numbers in place of dynamic sizes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

__all__ = ["fix_sizes"]


def fix_sizes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """Return the model with fixed sizes of inputs and outputs; a size may be a sum of names, as ``past + sequence``."""
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = sum(sizes[name] for name in dim.dim_param.split(" + "))
    return model
