"""Winograd and depthwise convolution on one thread, beside ONNX Runtime and, where installed, PyTorch (oneDNN).

Each convolution is followed by a bias and ReLU. byoc and PyTorch have the image channels last, and PyTorch its weights
packed beforehand; ONNX Runtime has it channels first, and its time holds the moves to and from its own layout. All
contestants of one convolution run in turn, each with a copy of the weights of its own, so that large filters come from
beyond the second-level cache, as they do in a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.ir import FunctionBuilder, IRModule, tensor
from byoc_core.ops import default_ops
from byoc_core.runtime.module import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.calls import NO_PEER, OUTPUT, has_peer
from benchmarks.pairing import measure, paired_ratio
from benchmarks.products import OPSET, session_call, time_processor

__all__ = ["run_depthwise", "run_winograd"]


@dataclass(frozen=True)
class Filter:
    """A square image of one batch, convolved with a square filter that keeps its size, or halves it with the stride.

    Attributes:
        size: height and width of the image.
        channels: of the image.
        out_channels: of the result.
        window: height and width of the filter, an odd number.
        stride: down and right.
        groups: groups of channels.
    """

    size: int
    channels: int
    out_channels: int
    window: int = 3
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        step = f" step {self.stride}" if self.stride > 1 else ""
        return f"{self.size}x{self.size} {self.window}x{self.window}{step} {self.channels}->{self.out_channels}"

    @property
    def out_size(self) -> int:
        """Height and width of the result."""
        return (self.size - 1) // self.stride + 1

    def draw(self) -> tuple[NDArray, NDArray, NDArray]:
        """Gives a seeded image, channels last, a filter and a bias."""
        rng = np.random.default_rng(0)
        image = rng.standard_normal((1, self.size, self.size, self.channels), np.float32)
        shape = (self.out_channels, self.channels // self.groups, self.window, self.window)
        return image, rng.standard_normal(shape, np.float32), rng.standard_normal(self.out_channels, np.float32)

    def to_ir(self, weight: NDArray, bias: NDArray) -> IRModule:
        """Gives the module, channels last."""
        builder = FunctionBuilder("main", ops=default_ops())
        x = builder.param("x", tensor((1, self.size, self.size, self.channels)))
        attrs = {"padding": (self.window // 2,) * 2, "strides": (self.stride,) * 2, "groups": self.groups}
        sums = builder.emit("nn.conv2d", x, builder.const(weight), data_layout="NHWC", **attrs)
        result = builder.emit("nn.relu", builder.emit("nn.bias_add", sums, builder.const(bias), axis=3))
        return IRModule({"main": builder.finish(result)}, builder.constants)

    def to_onnx(self, weight: NDArray, bias: NDArray) -> bytes:
        """Gives the serialised ONNX model."""
        pads, strides = [self.window // 2] * 4, [self.stride] * 2
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["sums"], strides=strides, pads=pads, group=self.groups),
            helper.make_node("Relu", ["sums"], [OUTPUT]),
        ]
        image = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, self.channels, self.size, self.size))
        output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, (1, self.out_channels, None, None))
        stored = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")]
        opsets = [helper.make_opsetid("", OPSET)]
        graph = helper.make_graph(nodes, "filter", [image], [output], stored)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data


WINOGRAD = tuple(
    Filter(*sizes)
    for sizes in (
        *((224, 64, 64), (56, 64, 64), (28, 128, 128), (14, 256, 256), (7, 512, 512)),
        *((55, 16, 64), (27, 32, 128), (13, 48, 192), (13, 64, 256), (56, 128, 32), (28, 128, 32), (14, 128, 32)),
    )
)
"""Of VGG-19, ResNet-50, SqueezeNet, DenseNet-121."""

DEPTHWISE = tuple(
    Filter(size, channels, channels, window, stride, channels)
    for size, channels, stride, window in (
        *((112, 32, 1, 3), (112, 96, 2, 3), (56, 144, 1, 3), (56, 144, 2, 3), (28, 192, 1, 3), (28, 192, 2, 3)),
        *((14, 384, 1, 3), (14, 576, 1, 3), (14, 576, 2, 3), (7, 960, 1, 3), (28, 240, 1, 5), (7, 1152, 1, 5)),
    )
)
"""Of MobileNetV2, and two of EfficientNet-B0."""


def run_winograd(num_rounds: int) -> dict[str, Any]:
    """Gives microseconds of 3x3 convolutions by contestant, and ratios; byoc with each value of ``winograd``."""
    return _run(WINOGRAD, ("auto", "f2", "off"), num_rounds)


def run_depthwise(num_rounds: int) -> dict[str, Any]:
    """Gives microseconds of depthwise convolutions by contestant, and ratios."""
    return _run(DEPTHWISE, ("auto",), num_rounds)


def _run(filters: Sequence[Filter], options: Sequence[str], num_rounds: int) -> dict[str, Any]:
    if not has_peer():
        print(f"  {NO_PEER}")
    found: dict[str, Any] = {}
    for model in filters:
        calls = list_calls(model, options)
        seconds = measure({way: time_processor(call) for way, call in calls.items()}, num_rounds=num_rounds)
        first, *others = seconds
        ratios = {way: paired_ratio(seconds[way], seconds[first]) for way in others}
        told = ", ".join(f"{way} takes {ratio.median:.2f} times as long" for way, ratio in ratios.items())
        print(f"  {model!s:28} {seconds[first].median * 1e6:8.1f} us; {told}", flush=True)
        found[str(model)] = {
            "seconds": {way: samples.to_json() for way, samples in seconds.items()},
            "ratios": {way: samples.to_json() for way, samples in ratios.items()},
        }
    return found


def list_calls(model: Filter, options: Sequence[str]) -> Mapping[str, Callable[[], object]]:
    """Gives the contestants of one convolution; byoc's are named after the values of ``winograd``.

    Raises:
        ValueError: two of them give different results.
        RuntimeError: the convolution was not compiled to C.
    """
    image, weight, bias = model.draw()
    calls: dict[str, Callable[[], object]] = {}
    results: dict[str, Callable[[], NDArray]] = {}
    for option in options:
        calls[f"byoc {option}"], results[f"byoc {option}"] = _byoc_call(model, image, weight, bias, option)
    if has_peer():
        out = np.empty((1, model.out_channels, model.out_size, model.out_size), np.float32)
        first = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
        calls["ONNX Runtime"] = session_call(model.to_onnx(weight, bias), {"x": first}, out)
        results["ONNX Runtime"] = lambda: out.transpose(0, 2, 3, 1)
    if find_spec("torch") is not None:
        calls["PyTorch"], results["PyTorch"] = _torch_call(model, image, weight, bias)
    for call in calls.values():
        call()
    expected = results[next(iter(results))]()
    for way, read in results.items():
        if not np.allclose(read(), expected, rtol=0, atol=1e-5 * float(np.abs(expected).max())):
            raise ValueError(f"{model}: {way} gives another result")
    return calls


def _byoc_call(
    model: Filter, image: NDArray, weight: NDArray, bias: NDArray, option: str
) -> tuple[Callable[[], object], Callable[[], NDArray]]:
    """Gives byoc's way with a value of the option ``winograd``, and what reads its last result."""
    executable = byoc_core.build(model.to_ir(weight, bias), ["ccompiler"], options={"ccompiler": {"winograd": option}})
    if not any(part.type_key != "graph" for part in executable.modules):
        raise RuntimeError(f"{model}: nothing was compiled to C")
    result = np.empty((1, model.out_size, model.out_size, model.out_channels), np.float32)
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    (made,) = machine["main"].results
    return machine.bind("main", {"x": image}, out={made.name: result}), lambda: result


def _torch_call(
    model: Filter, image: NDArray, weight: NDArray, bias: NDArray
) -> tuple[Callable[[], object], Callable[[], NDArray]]:
    """Gives PyTorch's way, oneDNN's primitive with bias and ReLU on packed weights, and what reads its last result."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    x = torch.from_numpy(image).permute(0, 3, 1, 2)
    geometry = [model.window // 2] * 2, [model.stride] * 2, [1, 1], model.groups
    packed = torch._C._nn.mkldnn_reorder_conv2d_weight(torch.from_numpy(weight).to_mkldnn(), *geometry, list(x.shape))
    offsets = torch.from_numpy(bias)
    made: list[Any] = [None]

    def call() -> object:
        with torch.inference_mode():
            made[0] = torch.ops.mkldnn._convolution_pointwise(x, packed, offsets, *geometry, "relu", [], "")
        return made

    def read() -> NDArray:
        array: NDArray = made[0].permute(0, 2, 3, 1).numpy()
        return array

    return call, read
