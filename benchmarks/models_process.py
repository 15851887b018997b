"""A contestant of ``benchmarks.contests``: answers each input line with a line of JSON.

The first answer is the cost of the start: milliseconds of importing the engine and loading the model, milliseconds of
the first call, and the peak memory, in bytes, added to the process (Python, numpy and the inputs are there already).
By then the outputs are written to ``<engine>.npz`` in the folder of the model. All other answers are the seconds of a
call, the median of the calls of a budget. Buffers are bound beforehand if the engine supports this.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["DISTRIBUTIONS", "OPENVINO_SETTINGS", "SETTINGS", "main"]

SETTINGS: Mapping[str, str] = {
    "byoc": "bound buffers",
    "onnxruntime": "all graph optimisations, sequential, IO binding",
    "openvino": "latency, hyper-threads too, float32, tensors shared",
    "openvino as it comes": "latency, hyper-threads too, tensors shared; its own choice of precision",
    "torch": "traced, frozen, optimised for inference",
}
"""The settings of engines."""
DISTRIBUTIONS: Mapping[str, str] = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "openvino as it comes": "openvino",
    "torch": "torch",
}
"""The packages of peers."""
_AS_IT_COMES = {"PERFORMANCE_HINT": "LATENCY", "ENABLE_HYPER_THREADING": True}
OPENVINO_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "openvino": {**_AS_IT_COMES, "INFERENCE_PRECISION_HINT": "f32"},
    "openvino as it comes": _AS_IT_COMES,
}
"""The properties of OpenVINO's models, except the number of threads."""

Inputs = Mapping[str, Any]
Opened = tuple[Callable[[], Any], Callable[[], Sequence[Any]]]
"""The computation, and a function returning the outputs afterwards."""


def _open_byoc(folder: Path, inputs: Inputs, num_threads: int, name: str) -> Opened:
    import byoc_core

    artifact = byoc_core.load(folder / f"{name}.byoc", allow_native=True)
    call = byoc_core.VirtualMachine(artifact, num_threads=num_threads).bind("main", inputs)

    def read() -> Sequence[Any]:
        results = call()
        return results if isinstance(results, tuple) else [results]

    return call, read


def _open_onnxruntime(folder: Path, inputs: Inputs, num_threads: int) -> Opened:
    from benchmarks.calls import peer_session

    session = peer_session(str(folder / "model.onnx"), num_threads=num_threads)
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu


def _open_openvino(folder: Path, inputs: Inputs, num_threads: int, engine: str = "openvino") -> Opened:
    openvino: Any = import_module("openvino")
    settings = {**OPENVINO_SETTINGS[engine], "INFERENCE_NUM_THREADS": num_threads}
    compiled = openvino.Core().compile_model(str(folder / "model.onnx"), "CPU", settings)
    request = compiled.create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    return request.infer, lambda: [tensor.data for tensor in request.output_tensors]


def _open_torch(folder: Path, inputs: Inputs, num_threads: int) -> Opened:
    torch: Any = import_module("torch")
    from benchmarks.torch_graph import to_torch

    torch.set_num_threads(num_threads)
    tensors = [torch.from_numpy(array) for array in inputs.values()]
    function = to_torch(folder / "torch.onnx", tensors)
    found: list[Any] = []

    def call() -> None:
        with torch.inference_mode():
            found[:] = function(*tensors)

    return call, lambda: [tensor.numpy() for tensor in found]


_OPENERS: Mapping[str, Callable[[Path, Inputs, int], Opened]] = {
    "onnxruntime": _open_onnxruntime,
    "openvino": _open_openvino,
    "openvino as it comes": partial(_open_openvino, engine="openvino as it comes"),
    "torch": _open_torch,
}
"""The peers; any other engine is byoc with the artifact of this name."""


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _read_memory(field: str) -> int:
    """Return a number of bytes from ``/proc/self/status``."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    """Answer each line of the input."""
    folder, engine, num_threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    budget_s, least_calls = float(sys.argv[4]), int(sys.argv[5])
    inputs = dict(np.load(folder / "inputs.npz"))
    sys.stdin.readline()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    before = _read_memory("VmRSS")
    start = time.perf_counter()
    call, read = _OPENERS.get(engine, partial(_open_byoc, name=engine))(folder, inputs, num_threads)
    loaded = time.perf_counter() - start
    first = _time(call)
    peak = _read_memory("VmHWM") - before
    np.savez(folder / f"{engine}.npz", **{f"output{k}": result for k, result in enumerate(read())})
    seconds = _time(call)
    print(json.dumps({"load_ms": 1e3 * loaded, "first_ms": 1e3 * first, "peak_bytes": peak}), flush=True)
    for _ in sys.stdin:
        count = max(least_calls, int(budget_s / max(seconds, 1e-6)))
        seconds = statistics.median(_time(call) for _ in range(count))
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
