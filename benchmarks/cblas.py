"""Perceptrons and the convolutions of ResNet-50 by cblas on one thread, beside ccompiler, dnnl and ONNX Runtime.

All contestants get the same ONNX model: images in NCHW, weights as constants. Each convolution is followed by a bias
and ReLU. The times of ccompiler, dnnl and ONNX Runtime include the moves to and from their own layouts. Time and share
of the peak are as in :mod:`benchmarks.products`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import byoc_core
import numpy as np
from byoc_core.runtime.module import NDArray

from benchmarks.calls import NO_PEER, OUTPUT, has_peer
from benchmarks.convolutions import RESNET_50
from benchmarks.peak import peak_contestant
from benchmarks.products import compare, session_call
from benchmarks.zoo.small_networks import build_mlp

__all__ = ["run"]

BACKENDS = {"byoc": "cblas", "ccompiler": "ccompiler", "dnnl": "dnnl"}
"""Backends by the names of the contestants."""
ROWS = (1, 64, 512)


def run(num_rounds: int) -> dict[str, Any]:
    """Return the times by contestant and model, ratios to cblas, and the share of the peak reached by cblas."""
    if not has_peer():
        print(f"  {NO_PEER}")
    peak = peak_contestant("float32")
    figures = {}
    for rows in ROWS:
        model = build_mlp(rows)
        (value,) = model.graph.input
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        inputs = {value.name: np.random.default_rng(0).standard_normal(shape, np.float32)}
        sizes = [tensor.dims for tensor in model.graph.initializer if len(tensor.dims) == 2]
        num_operations = 2 * rows * sum(int(np.prod(dims)) for dims in sizes)
        model.graph.node[-1].output[0] = model.graph.output[0].name = OUTPUT
        calls = _list_calls(model.SerializeToString(), inputs)
        figures[f"mlp_{rows}"] = compare(f"mlp_{rows}", calls, num_operations, peak, num_rounds)
    for convolution in RESNET_50:
        image, weight, bias = convolution.draw()
        calls = _list_calls(convolution.to_onnx(weight, bias), {"x": image})
        figures[str(convolution)] = compare(str(convolution), calls, convolution.num_operations, peak, num_rounds)
    ratios = _transposed(figures, "ratios")
    ratios["share of the peak"] = {name: figure["share of peak"] for name, figure in figures.items()}
    return {"unit": "s", "time": _transposed(figures, "seconds"), "ratios": ratios}


def _transposed(figures: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    """Return a table of all figures: rows are contestants, columns are models."""
    table: dict[str, dict[str, Any]] = {}
    for name, figure in figures.items():
        for contestant, samples in figure[key].items():
            table.setdefault(contestant, {})[name] = samples
    return table


def _list_calls(data: bytes, inputs: Mapping[str, NDArray]) -> dict[str, Callable[[], object]]:
    """Return the contestants of a model.

    Raises:
        RuntimeError: a backend left ops to the host.
        ValueError: two results differ by more than the rounding of float32 explains.
    """
    module = byoc_core.from_onnx(data)
    calls: dict[str, Callable[[], object]] = {}
    results: dict[str, NDArray] = {}
    for contestant, backend in BACKENDS.items():
        executable = byoc_core.build(module, [backend])
        if not executable.report_data["offloaded_share"] > 0.99:
            raise RuntimeError(f"{backend} left ops to the host:\n{executable.report()}")
        machine = byoc_core.VirtualMachine(executable, num_threads=1)
        first = machine["main"](*inputs.values())
        results[contestant] = np.empty_like(first)
        calls[contestant] = machine.bind("main", inputs, out={OUTPUT: results[contestant]})
    if has_peer():
        results["ONNX Runtime"] = np.empty_like(results["byoc"])
        calls["ONNX Runtime"] = session_call(data, inputs, results["ONNX Runtime"])
    for call in calls.values():
        call()
    largest = float(np.abs(results["byoc"]).max())
    for contestant, result in results.items():
        if not np.allclose(result, results["byoc"], atol=1e-4 * largest, rtol=1e-4):
            raise ValueError(f"{contestant} gives another result")
    return calls
