"""Convolutions on one thread, beside ONNX Runtime and, if installed, PyTorch (calling oneDNN).

Each convolution is followed by a bias and ReLU. Each contestant has the image in the preferred layout: channels last
for byoc and PyTorch, channels first for ONNX Runtime. The time of ONNX Runtime includes the moves to and from a
blocked layout. PyTorch gets the weights packed beforehand and allocates the result anew in each call. All compute the
sums of the definition: byoc with ``winograd="off"``. Time and share of the peak are as in :mod:`benchmarks.products`.
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
from benchmarks.peak import peak_contestant
from benchmarks.products import OPSET, compare, session_call

__all__ = ["Convolution", "list_calls", "run"]


@dataclass(frozen=True)
class Convolution:
    """A convolution of a square image with a square filter.

    Attributes:
        size: height and width of the image.
        channels: channels of the image.
        out_channels: channels of the result.
        window: height and width of the filter.
        stride: the stride of both axes.
        padding: the padding on all sides.
        groups: groups of channels.
    """

    size: int
    channels: int
    out_channels: int
    window: int
    stride: int = 1
    padding: int = 0
    groups: int = 1

    @property
    def out_size(self) -> int:
        """Height and width of the result."""
        return (self.size + 2 * self.padding - self.window) // self.stride + 1

    @property
    def num_operations(self) -> int:
        """The number of multiplications and additions."""
        return 2 * self.out_size**2 * self.out_channels * (self.channels // self.groups) * self.window**2

    def __str__(self) -> str:
        step = f" step {self.stride}" if self.stride > 1 else ""
        return f"{self.size}x{self.size} {self.window}x{self.window}{step} {self.channels}->{self.out_channels}"

    def draw(self) -> tuple[NDArray, NDArray, NDArray]:
        """Return a seeded image, channels first, a filter and a bias."""
        rng = np.random.default_rng(0)
        image = rng.standard_normal((1, self.channels, self.size, self.size), np.float32)
        filter_shape = (self.out_channels, self.channels // self.groups, self.window, self.window)
        return image, rng.standard_normal(filter_shape, np.float32), rng.standard_normal(self.out_channels, np.float32)

    def to_ir(self, weight: NDArray, bias: NDArray) -> IRModule:
        """Return the module, channels last."""
        builder: Any = FunctionBuilder("main", ops=default_ops())
        x = builder.param("x", tensor((1, self.size, self.size, self.channels)))
        attrs = {"strides": (self.stride,) * 2, "padding": (self.padding,) * 2, "groups": self.groups}
        value = builder.emit("nn.conv2d", x, builder.const(weight), data_layout="NHWC", **attrs)
        value = builder.emit("nn.relu", builder.emit("nn.bias_add", value, builder.const(bias), axis=3))
        return IRModule({"main": builder.finish(value)}, builder.constants)

    def to_onnx(self, weight: NDArray, bias: NDArray) -> bytes:
        """Return the serialised ONNX model."""
        attrs: Any = {"strides": [self.stride] * 2, "pads": [self.padding] * 4, "group": self.groups}
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["sums"], **attrs),
            helper.make_node("Relu", ["sums"], [OUTPUT]),
        ]
        image = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, self.channels, self.size, self.size))
        output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, (1, self.out_channels, None, None))
        stored = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")]
        opsets = [helper.make_opsetid("", OPSET)]
        graph = helper.make_graph(nodes, "convolution", [image], [output], stored)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data


RESNET_50 = (
    Convolution(224, 3, 64, 7, 2, 3),
    Convolution(56, 64, 64, 1),
    Convolution(56, 64, 64, 3, 1, 1),
    Convolution(56, 64, 256, 1),
    Convolution(56, 256, 64, 1),
    Convolution(56, 256, 128, 1),
    Convolution(56, 128, 128, 3, 2, 1),
    Convolution(28, 128, 512, 1),
    Convolution(56, 256, 512, 1, 2),
    Convolution(28, 512, 128, 1),
    Convolution(28, 128, 128, 3, 1, 1),
    Convolution(28, 512, 256, 1),
    Convolution(28, 256, 256, 3, 2, 1),
    Convolution(14, 256, 1024, 1),
    Convolution(28, 512, 1024, 1, 2),
    Convolution(14, 1024, 256, 1),
    Convolution(14, 256, 256, 3, 1, 1),
    Convolution(14, 1024, 512, 1),
    Convolution(14, 512, 512, 3, 2, 1),
    Convolution(7, 512, 2048, 1),
    Convolution(14, 1024, 2048, 1, 2),
    Convolution(7, 2048, 512, 1),
    Convolution(7, 512, 512, 3, 1, 1),
)
SQUEEZENET = (
    Convolution(224, 3, 64, 3, 2),
    Convolution(55, 64, 16, 1),
    Convolution(55, 16, 64, 1),
    Convolution(55, 16, 64, 3, 1, 1),
    Convolution(55, 128, 16, 1),
    Convolution(27, 128, 32, 1),
    Convolution(27, 32, 128, 1),
    Convolution(27, 32, 128, 3, 1, 1),
    Convolution(27, 256, 32, 1),
    Convolution(13, 256, 48, 1),
    Convolution(13, 48, 192, 1),
    Convolution(13, 48, 192, 3, 1, 1),
    Convolution(13, 384, 48, 1),
    Convolution(13, 384, 64, 1),
    Convolution(13, 64, 256, 1),
    Convolution(13, 64, 256, 3, 1, 1),
    Convolution(13, 512, 64, 1),
    Convolution(13, 512, 1000, 1),
)


def run(num_rounds: int) -> dict[str, Any]:
    """Return the times of each convolution by contestant, ratios to each peer, and shares of the peak."""
    if not has_peer():
        print(f"  {NO_PEER}")
    peak = peak_contestant("float32")
    return {
        str(convolution): compare(
            str(convolution), list_calls(convolution), convolution.num_operations, peak, num_rounds
        )
        for convolution in (*RESNET_50, *SQUEEZENET)
    }


def list_calls(
    convolution: Convolution, winograd: str = "off", further_options: Sequence[str] = ()
) -> Mapping[str, Callable[[], object]]:
    """Return the contestants of a convolution.

    Args:
        convolution: the convolution.
        winograd: the value of byoc's option.
        further_options: further values of this option, each a further contestant.

    Raises:
        ValueError: two contestants have different results.
        RuntimeError: the convolution was not compiled to C.
    """
    image, weight, bias = convolution.draw()
    last = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    calls: dict[str, Callable[[], object]] = {}
    results: dict[str, Callable[[], NDArray]] = {}
    for option in (winograd, *further_options):
        contestant = f"byoc, winograd {option}" if calls else "byoc"
        calls[contestant], results[contestant] = _byoc_call(convolution, last, weight, bias, option)
    if has_peer():
        out = np.empty((1, convolution.out_channels, convolution.out_size, convolution.out_size), np.float32)
        calls["ONNX Runtime"] = session_call(convolution.to_onnx(weight, bias), {"x": image}, out)
        results["ONNX Runtime"] = lambda: out
    if find_spec("torch") is not None:
        calls["PyTorch"], results["PyTorch"] = _torch_call(convolution, last, weight, bias)
    for call in calls.values():
        call()
    expected = results["byoc"]()
    scale = np.abs(expected).max()
    for contestant, read in results.items():
        if not np.allclose(read(), expected, rtol=0, atol=1e-4 * scale):
            raise ValueError(f"{convolution}: {contestant} gives another result than byoc")
    return calls


def _byoc_call(
    convolution: Convolution, image: NDArray, weight: NDArray, bias: NDArray, winograd: str
) -> tuple[Callable[[], object], Callable[[], NDArray]]:
    """Return byoc's call, and a function reading the last result."""
    options = {"ccompiler": {"winograd": winograd}}
    executable = byoc_core.build(convolution.to_ir(weight, bias), ["ccompiler"], options=options)
    if not any(part.type_key != "graph" for part in executable.modules):
        raise RuntimeError(f"{convolution}: nothing was compiled to C")
    result = np.empty((1, convolution.out_size, convolution.out_size, convolution.out_channels), np.float32)
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    (output,) = machine["main"].results
    return machine.bind("main", {"x": image}, out={output.name: result}), lambda: result.transpose(0, 3, 1, 2)


def _torch_call(
    convolution: Convolution, image: NDArray, weight: NDArray, bias: NDArray
) -> tuple[Callable[[], object], Callable[[], NDArray]]:
    """Return PyTorch's call, a primitive of oneDNN with bias and ReLU on packed weights, and a reader of the result."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    x = torch.from_numpy(image).permute(0, 3, 1, 2)
    padding, strides, ones = [convolution.padding] * 2, [convolution.stride] * 2, [1, 1]
    plain = torch.from_numpy(weight).to_mkldnn()
    groups = convolution.groups
    packed = torch._C._nn.mkldnn_reorder_conv2d_weight(plain, padding, strides, ones, groups, list(x.shape))
    offsets = torch.from_numpy(bias)
    last_result: list[Any] = [None]

    def call() -> object:
        with torch.inference_mode():
            last_result[0] = torch.ops.mkldnn._convolution_pointwise(
                x, packed, offsets, padding, strides, ones, groups, "relu", [], ""
            )
        return last_result

    def read() -> NDArray:
        array: NDArray = last_result[0].numpy()
        return array

    return call, read
