"""Matrix products on one thread, beside ONNX Runtime and, if installed, PyTorch (calling oneDNN).

The time is processor time of the process, without the time of other processes on a busy machine. Results go into
existing memory. Beside each product stands the share of the multipliers' peak, measured in the same rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.runtime.module import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.calls import NO_PEER, OUTPUT, has_peer, peer_session
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.peak import peak_contestant

__all__ = ["compare", "run", "session_call", "time_processor"]

SAMPLE_S = 10e-3
"""Approximate seconds of a sample."""
OPSET = 17
DTYPE = "float32"


@dataclass(frozen=True)
class ProductModel:
    """``x @ w``, or stacks of these products.

    Attributes:
        left: the shape of ``x``.
        right: the shape of ``w`` as stored.
        is_constant: whether ``w`` is a constant of the model instead of an input.
        is_transposed: whether ``w`` is stored with the last two axes exchanged.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    is_constant: bool = True
    is_transposed: bool = False

    @property
    def num_operations(self) -> int:
        """The number of multiplications and additions."""
        columns = self.right[-2 if self.is_transposed else -1]
        return 2 * int(np.prod(self.left)) * columns

    def draw(self) -> dict[str, NDArray]:
        """Return seeded operands by name."""
        rng = np.random.default_rng(0)
        shapes = {"x": self.left, "w": self.right}
        return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}

    def to_onnx(self, weights: NDArray) -> bytes:
        """Return the serialised ONNX model."""
        last = len(self.right) - 1
        order = [*range(last - 1), last, last - 1]
        turned = helper.make_node("Transpose", ["w"], ["v"], perm=order)
        nodes = [*([turned] if self.is_transposed else [])]
        nodes.append(helper.make_node("MatMul", ["x", "v" if self.is_transposed else "w"], [OUTPUT]))
        shapes = {"x": self.left} | ({} if self.is_constant else {"w": self.right})
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, (*self.left[:-1], None))
        stored = [numpy_helper.from_array(weights, "w")] if self.is_constant else []
        opsets = [helper.make_opsetid("", OPSET)]
        graph = helper.make_graph(nodes, "product", inputs, [output], stored)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data


MODELS: Mapping[str, ProductModel] = {
    "128x768x3072": ProductModel((128, 768), (768, 3072)),
    "128x3072x768": ProductModel((128, 3072), (3072, 768)),
    "3136x64x576": ProductModel((3136, 64), (64, 576)),
    "3136x576x64": ProductModel((3136, 576), (576, 64)),
    "512x512x512": ProductModel((512, 512), (512, 512)),
    "1x4096x4096": ProductModel((1, 4096), (4096, 4096)),
    "512x512x512, both inputs": ProductModel((512, 512), (512, 512), is_constant=False),
    "12x(128x64 by 64x128)": ProductModel((12, 128, 64), (12, 64, 128), is_constant=False),
    "12x(128x64 by 128x64, turned)": ProductModel((12, 128, 64), (12, 128, 64), is_constant=False, is_transposed=True),
}
"""The products by rows, length of the sums, and columns; stacks are from the heads of an attention."""


def run(num_rounds: int) -> dict[str, Any]:
    """Return the times of each product by contestant, ratios to each peer, and shares of the multipliers' peak."""
    if not has_peer():
        print(f"  {NO_PEER}")
    peak = peak_contestant("float32")
    return {
        name: compare(name, list_calls(model), model.num_operations, peak, num_rounds) for name, model in MODELS.items()
    }


def compare(
    name: str,
    calls: Mapping[str, Callable[[], object]],
    num_operations: int,
    peak: Callable[[], float],
    num_rounds: int,
) -> dict[str, Any]:
    """Print and return the seconds of a case by contestant, the peers' ratios to byoc, and byoc's share of the peak.

    Args:
        name: the name of the case.
        calls: the contestants, including ``byoc``.
        num_operations: multiplications and additions of a call.
        peak: the result of :func:`benchmarks.peak.peak_contestant`.
        num_rounds: the number of measurements of each contestant.
    """
    contestants = {contestant: time_processor(call) for contestant, call in calls.items()}
    seconds = measure(contestants | {"peak": peak}, num_rounds=num_rounds)
    most = seconds.pop("peak")
    ours = seconds["byoc"]
    ratios = {contestant: paired_ratio(theirs, ours) for contestant, theirs in seconds.items() if contestant != "byoc"}
    share = Samples(tuple(num_operations / t / p for t, p in zip(ours.values, most.values, strict=True)))
    summary = ", ".join(f"{contestant} takes {ratio.median:.3f} times as long" for contestant, ratio in ratios.items())
    print(f"  {name:32} {ours.median * 1e6:8.1f} us, {share.median:4.0%} of the peak; {summary}", flush=True)
    return {
        "seconds": {contestant: samples.to_json() for contestant, samples in seconds.items()},
        "ratios": {contestant: samples.to_json() for contestant, samples in ratios.items()},
        "share of peak": share.to_json(),
    }


def list_calls(model: ProductModel) -> dict[str, Callable[[], object]]:
    """Return the contestants of a product.

    Raises:
        ValueError: a result differs from numpy's.
        RuntimeError: the product was not compiled to C.
    """
    operands = model.draw()
    data = model.to_onnx(operands["w"])
    inputs = {"x": operands["x"]} if model.is_constant else operands
    executable = byoc_core.build(byoc_core.from_onnx(data), ["ccompiler"])
    if not any(part.type_key != "graph" for part in executable.modules):
        raise RuntimeError(f"{model}: nothing was compiled to C")
    expected = product_of(model, operands)
    results = {"byoc": np.empty(expected.shape, DTYPE)}
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    calls: dict[str, Callable[[], object]] = {"byoc": machine.bind("main", inputs, out={OUTPUT: results["byoc"]})}
    if has_peer():
        results["ONNX Runtime"] = np.empty_like(expected)
        calls["ONNX Runtime"] = session_call(data, inputs, results["ONNX Runtime"])
    if find_spec("torch") is not None:
        results["PyTorch"] = np.empty_like(expected)
        calls["PyTorch"] = torch_call(model, operands, results["PyTorch"])
    for contestant, call in calls.items():
        call()
        if not np.allclose(results[contestant], expected, atol=1e-3, rtol=1e-3):
            raise ValueError(f"{model}: {contestant} gives another result")
    return calls


def product_of(model: ProductModel, operands: Mapping[str, NDArray]) -> NDArray:
    """Return numpy's result."""
    right = operands["w"]
    result: NDArray = operands["x"] @ (np.swapaxes(right, -1, -2) if model.is_transposed else right)
    return result


def session_call(data: bytes, inputs: Mapping[str, NDArray], out: NDArray) -> Callable[[], object]:
    """Return ONNX Runtime's call, with all buffers bound."""
    session = peer_session(data, num_threads=1)
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output(OUTPUT, "cpu", 0, np.float32, out.shape, out.ctypes.data)
    buffers = (inputs, out)  # not kept alive by the binding

    def call() -> object:
        session.run_with_iobinding(binding)
        return buffers

    return call


def torch_call(model: ProductModel, operands: Mapping[str, NDArray], out: NDArray) -> Callable[[], object]:
    """Return PyTorch's call; constant weights lie by output, as in a linear layer."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    x, w, y = (torch.from_numpy(array) for array in (operands["x"], operands["w"], out))
    if model.is_transposed:
        right = w.transpose(-1, -2)
    else:
        right = w.transpose(-1, -2).contiguous().transpose(-1, -2) if model.is_constant else w

    def call() -> object:
        with torch.inference_mode():
            return torch.matmul(x, right, out=y)

    return call


def time_processor(call: Callable[[], object]) -> Callable[[], float]:
    """Return a contestant for the mean processor seconds of the process in a call."""
    call()
    start = time.process_time()
    call()
    num_calls = max(1, round(SAMPLE_S / max(time.process_time() - start, 1e-6)))

    def contestant() -> float:
        begin = time.process_time()
        for _ in range(num_calls):
            call()
        return (time.process_time() - begin) / num_calls

    return contestant
