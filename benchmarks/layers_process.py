"""A contestant of ``benchmarks.layers``: answers each input line with the times of a model's layers.

An answer is the nanoseconds of a call by layer: the sum over all layers of a name, each the median of some calls. The
times come from the engines: ``byoc_dnnl.profile``, the profiler of ONNX Runtime, the counters of OpenVINO. Engines
fuse and name ops differently. A layer is therefore named by arithmetic, common to all engines: the sizes of a
convolution, or the depth and the number of results of a matrix product. All else is a single layer, ``OTHER``.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models_process import OPENVINO_SETTINGS

__all__ = ["OTHER", "main"]

OTHER = "all else"
_NUM_CALLS = 10

Shape = Sequence[int]
Times = Mapping[str, float]
Timed = Iterable[tuple[str, float]]
"""The layers of a call with nanoseconds, in the order of execution."""


def _convolution(source: Shape, weights: Shape, result: Shape) -> str:
    """Return the name of a convolution; weights may have an axis of groups."""
    num_axes = len(source) - 2
    kernel = weights[len(weights) - num_axes :]
    depth = math.prod(weights) // (math.prod(kernel) * result[1])
    groups = f" in {source[1] // depth} groups" if depth < source[1] else ""
    sizes = (f"{shape[1]} at {'x'.join(map(str, shape[2:]))}" for shape in (source, result))
    return f"{'x'.join(map(str, kernel))}, {' -> '.join(sizes)}{groups}"


def _product(depth: int, result: Shape) -> str:
    """Return the name of a matrix product; engines may compute the transpose of the product."""
    return f"{math.prod(result)} sums of {depth} products"


def _open_byoc(folder: Path, inputs: Mapping[str, Any], num_threads: int) -> Callable[[], Times]:
    import byoc_core
    from byoc_dnnl.profile import StepTime, profile

    executable = byoc_core.load(folder / "model.byoc", allow_native=True)

    def name(step: StepTime) -> str:
        if step.title.startswith("nn.conv"):
            return _convolution(step.shapes[0], step.shapes[1], step.shapes[-1])
        if step.title.startswith(("matmul", "nn.dense")):
            return _product(step.shapes[0][-1], step.shapes[-1])
        return OTHER

    def answer() -> Times:
        found = profile(executable, inputs, num_calls=_NUM_CALLS, num_threads=num_threads)
        return _add((name(step), 1e9 * step.seconds) for region in found.regions for step in region.steps)

    return answer


def _open_onnxruntime(folder: Path, inputs: Mapping[str, Any], num_threads: int) -> Callable[[], Times]:
    ort: Any = import_module("onnxruntime")

    def shapes(event: Mapping[str, Any], key: str) -> list[Shape]:
        return [shape for tensor in event["args"][key] for shape in tensor.values()]

    def name(event: Mapping[str, Any]) -> str:
        op, input_shapes, output_shapes = (
            event["args"]["op_name"],
            shapes(event, "input_type_shape"),
            shapes(event, "output_type_shape"),
        )
        if "Conv" in op:
            return _convolution(input_shapes[0], input_shapes[1], output_shapes[0])
        return _product(input_shapes[0][-1], output_shapes[0]) if "MatMul" in op or "Gemm" in op else OTHER

    def answer() -> Times:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = num_threads, 1
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        session = ort.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        for _ in range(1 + _NUM_CALLS):
            session.run(None, dict(inputs))
        path = Path(session.end_profiling())
        events = [event for event in json.loads(path.read_text(encoding="utf-8")) if event.get("cat") == "Node"]
        path.unlink()
        count = len(events) // (1 + _NUM_CALLS)
        calls = [events[start : start + count] for start in range(count, len(events), count)]
        return _median([[(name(event), 1e3 * event["dur"]) for event in call] for call in calls])

    return answer


def _open_openvino(folder: Path, inputs: Mapping[str, Any], num_threads: int, engine: str) -> Callable[[], Times]:
    openvino: Any = import_module("openvino")
    settings = {**OPENVINO_SETTINGS[engine], "INFERENCE_NUM_THREADS": num_threads, "PERF_COUNT": True}
    compiled = openvino.Core().compile_model(str(folder / "model.onnx"), "CPU", settings)
    request = compiled.create_infer_request()
    nodes = {node.get_friendly_name(): node for node in compiled.get_runtime_model().get_ordered_ops()}

    def name(profile: Any) -> str:
        node = nodes.get(profile.node_name)
        if node is None or profile.node_type not in ("Convolution", "FullyConnected", "MatMul"):
            return OTHER
        input_shapes = [tuple(value.get_shape()) for value in node.inputs()]
        result = tuple(node.output(0).get_shape())
        if profile.node_type == "Convolution":
            return _convolution(input_shapes[0], input_shapes[1], result)
        batch = math.prod(input_shapes[1][:-2])
        return _product(
            math.isqrt(math.prod(input_shapes[0]) * math.prod(input_shapes[1]) // (math.prod(result) * batch)), result
        )

    def answer() -> Times:
        calls = []
        for number in range(1 + _NUM_CALLS):
            request.infer(dict(inputs))
            times = [(name(profile), profile.real_time.total_seconds() * 1e9) for profile in request.profiling_info]
            calls += [times] if number else []
        return _median(calls)

    return answer


def _add(layers: Timed) -> Times:
    """Return the sums over layers of the same name."""
    sums: defaultdict[str, float] = defaultdict(float)
    for name, nanoseconds in layers:
        sums[name] += nanoseconds
    return sums


def _median(calls: Sequence[Sequence[tuple[str, float]]]) -> Times:
    """Return the sums over layers of the same name, each layer the median of calls."""
    return _add((layers[0][0], statistics.median(time for _, time in layers)) for layers in zip(*calls, strict=True))


def main() -> None:
    """Answer each line of the input."""
    folder, engine, num_threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    inputs = dict(np.load(folder / "inputs.npz"))
    if engine == "byoc":
        answer = _open_byoc(folder, inputs, num_threads)
    elif engine == "onnxruntime":
        answer = _open_onnxruntime(folder, inputs, num_threads)
    else:
        answer = _open_openvino(folder, inputs, num_threads, engine)
    for _ in sys.stdin:
        print(json.dumps(answer()), flush=True)


if __name__ == "__main__":
    main()
