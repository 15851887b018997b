"""The inspection of an ONNX model before compilation."""

from byoc_core.frontend.onnx.inspection.counting import ModelWork
from byoc_core.frontend.onnx.inspection.model_inspection import ModelInspection, inspect_model
from byoc_core.frontend.onnx.inspection.rows import (
    ImportKind,
    MemoryEstimate,
    NodeWork,
    OperatorUse,
    OpWork,
    TensorRow,
    Weight,
)

__all__ = [
    "ImportKind",
    "MemoryEstimate",
    "ModelInspection",
    "ModelWork",
    "NodeWork",
    "OpWork",
    "OperatorUse",
    "TensorRow",
    "Weight",
    "inspect_model",
]
