"""Elementwise chains, softmax, norms, reductions and transposes on one thread, beside ONNX Runtime and PyTorch.

Each is a model of a few ops computed by ccompiler in a single kernel. The time is processor time of the process,
without the time of other processes on a busy machine. Results of ccompiler and ONNX Runtime go into existing memory.
PyTorch is left out if not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import byoc_core
import numpy as np
from byoc_core.runtime.module import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from benchmarks.calls import NO_PEER, OUTPUT, has_peer
from benchmarks.pairing import measure, paired_ratio
from benchmarks.products import session_call, time_processor

__all__ = ["run_chains", "run_row_ops"]

OPSET = 20
DTYPE = "float32"

Torch = Callable[..., Any]


@dataclass(frozen=True)
class RowModel:
    """A few ops in ONNX, and the same ops in PyTorch.

    Attributes:
        nodes: the ops; the inputs are called ``x0``, ``x1``, ..., the result ``y``, like the result of the peers.
        shapes: the shapes of the inputs.
        torch: a function of PyTorch's module and tensors (the inputs, then the constants) returning the result.
        constants: the constants by name, in the order of the arguments of ``torch``.
    """

    nodes: Sequence[NodeProto]
    shapes: Sequence[tuple[int, ...]]
    torch: Torch
    constants: Mapping[str, NDArray] = field(default_factory=dict)

    def draw(self) -> dict[str, NDArray]:
        """Return seeded inputs by name."""
        rng = np.random.default_rng(0)
        return {f"x{index}": rng.standard_normal(shape, np.float32) for index, shape in enumerate(self.shapes)}

    def to_onnx(self) -> bytes:
        """Return the serialised ONNX model."""
        inputs = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, s) for k, s in enumerate(self.shapes)]
        output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, None)
        stored = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "rows", inputs, [output], stored)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        data: bytes = model.SerializeToString()
        return data


def _node(op: str, *operands: str, to: str = OUTPUT, **attrs: Any) -> NodeProto:
    return helper.make_node(op, operands, [to], **attrs)


def _chain(size: int) -> RowModel:
    nodes = [_node("Add", "x0", "x1", to="a"), _node("Sub", "a", "x2", to="b"), _node("Mul", "b", "x3")]
    return RowModel(nodes, [(size,)] * 4, lambda _, a, b, c, d: ((a + b) - c) * d)


CHAINS: Mapping[str, RowModel] = {f"((a + b) - c) * d, {size:,}": _chain(size) for size in (10**k for k in range(3, 8))}


def _numbers(*shape: int) -> NDArray:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def _reduction(op: str, shape: tuple[int, ...], axis: int) -> RowModel:
    method = {"ReduceSum": "sum", "ReduceMax": "amax"}[op]
    initializers = {"axes": np.array([axis])}
    node = _node(op, "x0", "axes", keepdims=0)
    return RowModel([node], [shape], lambda _, x, __: getattr(x, method)(axis), initializers)


def _transpose(shape: tuple[int, ...], order: tuple[int, ...]) -> RowModel:
    node = _node("Transpose", "x0", perm=order)
    return RowModel([node], [shape], lambda _, x: x.permute(order).contiguous())


REDUCTIONS = (((1024, 1024), 1), ((1024, 1024), 0), ((10_000_000,), 0), ((32, 49, 768), 1))
TRANSPOSES = (
    ((1024, 1024), (1, 0)),
    ((1, 128, 12, 64), (0, 2, 1, 3)),
    ((1, 128, 12, 64), (0, 2, 3, 1)),
    ((1, 64, 56, 56), (0, 2, 3, 1)),
    ((1, 56, 56, 64), (0, 3, 1, 2)),
    ((8, 32, 64, 64), (3, 1, 0, 2)),
)

ROW_OPS: Mapping[str, RowModel] = {
    "softmax(x * s + mask), 12x128x128": RowModel(
        [_node("Mul", "x0", "s", to="a"), _node("Add", "a", "x1", to="b"), _node("Softmax", "b")],
        [(12, 128, 128), (1, 1, 128)],
        lambda torch, x, mask, s: torch.softmax(x * s + mask, -1),
        {"s": np.array(0.125, DTYPE)},
    ),
    "softmax, 1024x1024": RowModel([_node("Softmax", "x0")], [(1024, 1024)], lambda torch, x: torch.softmax(x, -1)),
    "layer_norm(x + y), 128x768": RowModel(
        [_node("Add", "x0", "x1", to="a"), _node("LayerNormalization", "a", "scale", "shift")],
        [(128, 768)] * 2,
        lambda torch, x, y, scale, shift: torch.nn.functional.layer_norm(x + y, (768,), scale, shift),
        {"scale": _numbers(768), "shift": _numbers(768)},
    ),
    "gelu(x + bias), 128x3072": RowModel(
        [_node("Add", "x0", "bias", to="a"), _node("Gelu", "a")],
        [(128, 3072)],
        lambda torch, x, bias: torch.nn.functional.gelu(x + bias),
        {"bias": _numbers(3072)},
    ),
    **{
        f"{op}, {'x'.join(map(str, shape))}, axis {axis}": _reduction(op, shape, axis)
        for shape, axis in REDUCTIONS
        for op in ("ReduceSum", "ReduceMax")
    },
    **{f"transpose, {'x'.join(map(str, shape))}, {order}": _transpose(shape, order) for shape, order in TRANSPOSES},
}


def run_chains(num_rounds: int) -> dict[str, Any]:
    """Return the times of elementwise chains by contestant, and ratios to each peer."""
    return _run(CHAINS, num_rounds)


def run_row_ops(num_rounds: int) -> dict[str, Any]:
    """Return the times of ops along rows by contestant, and ratios to each peer."""
    return _run(ROW_OPS, num_rounds)


def _run(models: Mapping[str, RowModel], num_rounds: int) -> dict[str, Any]:
    if not has_peer():
        print(f"  {NO_PEER}")
    found: dict[str, Any] = {}
    for name, model in models.items():
        calls = list_calls(model)
        seconds = measure(
            {contestant: time_processor(call) for contestant, call in calls.items()}, num_rounds=num_rounds
        )
        ours = seconds["byoc"]
        ratios = {
            contestant: paired_ratio(theirs, ours) for contestant, theirs in seconds.items() if contestant != "byoc"
        }
        summary = ", ".join(
            f"{contestant} takes {ratio.median:.2f} times as long" for contestant, ratio in ratios.items()
        )
        print(f"  {name:48} {ours.median * 1e6:9.1f} us; {summary}")
        found[name] = {
            "seconds": {contestant: samples.to_json() for contestant, samples in seconds.items()},
            "ratios": {contestant: samples.to_json() for contestant, samples in ratios.items()},
        }
    return found


def list_calls(model: RowModel) -> dict[str, Callable[[], object]]:
    """Return the contestants of a model.

    Raises:
        ValueError: two contestants have different results.
        RuntimeError: the model was not compiled to C.
    """
    inputs, data = model.draw(), model.to_onnx()
    executable = byoc_core.build(byoc_core.from_onnx(data), ["ccompiler"])
    if not any(part.type_key != "graph" for part in executable.modules):
        raise RuntimeError("nothing was compiled to C")
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    expected = np.array(machine.bind("main", inputs)())
    results = {"byoc": np.empty_like(expected)}
    calls: dict[str, Callable[[], object]] = {"byoc": machine.bind("main", inputs, out={OUTPUT: results["byoc"]})}
    if has_peer():
        results["ONNX Runtime"] = np.empty_like(expected)
        calls["ONNX Runtime"] = session_call(data, inputs, results["ONNX Runtime"])
        calls["ONNX Runtime"]()
        expected = results["ONNX Runtime"]
    if find_spec("torch") is not None:
        results["PyTorch"] = np.empty_like(expected)
        calls["PyTorch"] = _torch_call(model, inputs, results["PyTorch"])
    for contestant, call in calls.items():
        call()
        if not np.allclose(results[contestant], expected, atol=1e-2 if expected.ndim == 0 else 1e-3, rtol=1e-3):
            raise ValueError(f"{contestant} gives another result")
    return calls


def _torch_call(model: RowModel, inputs: Mapping[str, NDArray], out: NDArray) -> Callable[[], object]:
    """Return PyTorch's call; only a first result goes into ``out``, for the comparison."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(array) for array in (*inputs.values(), *model.constants.values())]
    with torch.inference_mode():
        out[...] = model.torch(torch, *tensors).numpy()

    def call() -> object:
        with torch.inference_mode():
            return model.torch(torch, *tensors)

    return call
