"""The ways to call a tiny model: byoc's, ONNX Runtime's with the best settings, and the arithmetic in numpy.

A way is a Python statement over names: a measurement adds only a loop. Nothing of the compiler is imported here, for
a quick start of measuring processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

import byoc_core
import numpy as np
from byoc_core.artifact import Executable
from byoc_core.runtime.module import NDArray

__all__ = [
    "NO_PEER",
    "OUTPUT",
    "Call",
    "byoc_calls",
    "has_peer",
    "numpy_call",
    "peer_calls",
    "peer_session",
    "read_result",
]

OUTPUT = "y"
"""The output of every model."""
NO_PEER = "onnxruntime is not installed: no comparison with ONNX Runtime (pip install onnxruntime)"


class Call(NamedTuple):
    """A way to call a model.

    Attributes:
        statement: the measured statement.
        names: the names read by the statement.
        result: an expression for the result, once the statement has run.
    """

    statement: str
    names: Mapping[str, Any]
    result: str


def read_result(call: Call) -> NDArray:
    """Run a call once and return the result."""
    names = dict(call.names)
    exec(call.statement, names)
    result: NDArray = eval(call.result, names)
    return result


def _buffer(inputs: Mapping[str, NDArray]) -> NDArray:
    """Return a buffer for the result, filled with NaN."""
    return np.full_like(next(iter(inputs.values())), np.nan)


def byoc_calls(executable: Executable, inputs: Mapping[str, NDArray], *, num_threads: int = 1) -> dict[str, Call]:
    """Return the ways to call byoc: with fresh results, into buffers, with buffers fixed, and all steps in Python."""
    machine = byoc_core.VirtualMachine(executable, num_threads=num_threads)
    python = byoc_core.VirtualMachine(executable, num_threads=num_threads, native=False)
    session = byoc_core.Session(executable, num_threads=num_threads)
    out, fixed = {OUTPUT: _buffer(inputs)}, {OUTPUT: _buffer(inputs)}
    arguments = ", ".join(inputs)
    names = {
        **inputs,
        "vm": machine,
        "main": machine["main"],
        "session": session,
        "python": python["main"],
        "bound": machine.bind("main", inputs, out=fixed),
        "inputs": inputs,
        "out": out,
    }
    return {
        "byoc call": Call(f"y = vm['main']({arguments})", names, "y"),
        "byoc call, looked up before": Call(f"y = main({arguments})", names, "y"),
        "byoc session": Call(f"y = session({arguments})", names, f"y[{OUTPUT!r}]"),
        "byoc session.run": Call("(y,) = session.run(None, inputs)", names, "y"),
        "byoc bound": Call("bound()", names | {"fixed": fixed}, f"fixed[{OUTPUT!r}]"),
        "byoc run into buffers": Call("vm.run('main', inputs, out=out)", names, f"out[{OUTPUT!r}]"),
        "byoc call, Python path": Call(f"y = python({arguments})", names, "y"),
    }


def numpy_call(arithmetic: str, inputs: Mapping[str, NDArray]) -> Call:
    """Return numpy's way: statements assigning the result to the variable ``y``."""
    return Call(arithmetic, inputs, OUTPUT)


def has_peer() -> bool:
    """Return whether ONNX Runtime is installed."""
    return find_spec("onnxruntime") is not None


def peer_session(model: bytes | str, *, num_threads: int, spinning: bool = True) -> Any:
    """Return a session of ONNX Runtime with all graph optimisations and sequential execution.

    Args:
        model: the model, or the path of the model file.
        num_threads: threads of an op.
        spinning: whether idle threads spin for a while, as by default.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.enable_profiling = False
    options.log_severity_level = 3
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def peer_calls(session: Any, inputs: Mapping[str, NDArray]) -> dict[str, Call]:
    """Return the ways to call a session: with fresh results, and with all buffers bound."""
    import onnxruntime

    out = _buffer(inputs)
    input_values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()}
    binding = session.io_binding()
    for name, value in input_values.items():
        binding.bind_ortvalue_input(name, value)
    output_value = onnxruntime.OrtValue.ortvalue_from_numpy(out)
    binding.bind_ortvalue_output(OUTPUT, output_value)
    names = {
        "session": session,
        "feed": dict(inputs),
        "binding": binding,
        "held": (input_values, output_value),
        "out": out,
    }
    return {
        "ORT session.run": Call("y = session.run(None, feed)", names, "y[0]"),
        "ORT IO binding": Call("session.run_with_iobinding(binding)", names, "held[1].numpy()"),
    }
