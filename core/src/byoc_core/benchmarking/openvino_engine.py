"""OpenVINO in a measuring process."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from byoc_core.benchmarking.engine import EngineTask, OpenedEngine
from byoc_core.runtime.module import NDArray

__all__ = ["open_engine"]


def open_engine(task: EngineTask) -> OpenedEngine:
    """Load the ONNX file of a task, for the shortest call in float32; by default OpenVINO may compute in bfloat16."""
    openvino: Any = import_module("openvino")
    properties = {
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_HYPER_THREADING": True,
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": task.num_threads,
    }
    request = openvino.Core().compile_model(str(task.file), "CPU", properties).create_infer_request()
    for name, array in task.inputs.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def read_outputs() -> Sequence[NDArray]:
        return [np.array(tensor.data) for tensor in request.output_tensors]

    version, _, _build = str(openvino.__version__).partition("-")
    return OpenedEngine(request.infer, read_outputs, version, task.inputs)
