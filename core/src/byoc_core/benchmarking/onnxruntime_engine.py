"""ONNX Runtime in a measuring process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

from byoc_core.benchmarking.engine import EngineTask, OpenedEngine
from byoc_core.runtime.module import NDArray

__all__ = ["open_engine"]

_ERRORS_ONLY = 3


def open_engine(task: EngineTask) -> OpenedEngine:
    """Load the ONNX file of a task, with all graph optimisations, sequential execution and IO binding."""
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task.num_threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _ERRORS_ONLY
    session = onnxruntime.InferenceSession(str(task.file), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in task.inputs.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")

    def read_outputs() -> Sequence[NDArray]:
        arrays: Sequence[NDArray] = binding.copy_outputs_to_cpu()
        return arrays

    return OpenedEngine(partial(session.run_with_iobinding, binding), read_outputs, str(onnxruntime.__version__))
