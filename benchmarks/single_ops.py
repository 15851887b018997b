"""Models of a single ONNX op: the ops of networks in many forms, to find slow kernels and wrong estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["NDArray", "SingleOp", "list_single_ops"]

NDArray = npt.NDArray[Any]
Shape = Sequence[int]

_OPSET = 20
_NONE: NDArray = np.zeros(0, "float32")


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _draw(*shape: int, scale: float = 1.0, seed: int = 0) -> NDArray:
    return (_rng(seed).standard_normal(shape) * scale).astype("float32")


def _ints(*values: int) -> NDArray:
    return np.array(values, "int64")


@dataclass(frozen=True)
class SingleOp:
    """A model of one op.

    Attributes:
        name: the op and its form.
        op: the name in ONNX.
        shapes: the shapes of the float inputs, by name, in the order of the operands.
        constants: the operands after the inputs, by name.
        attrs: the attributes.
        num_outputs: the number of results.
        low: the least element of the inputs.
        high: the largest element of the inputs.
    """

    name: str
    op: str
    shapes: Mapping[str, Shape]
    constants: Mapping[str, NDArray] = field(default_factory=lambda: MappingProxyType({}))
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    num_outputs: int = 1
    low: float = -9.0
    high: float = 9.0

    def draw(self) -> dict[str, NDArray]:
        """Return seeded inputs by name."""
        rng = _rng()
        drawn = {name: rng.standard_normal(shape).clip(self.low, self.high) for name, shape in self.shapes.items()}
        return {name: np.asarray(array, "float32") for name, array in drawn.items()}

    def to_onnx(self) -> onnx.ModelProto:
        """Return the model."""
        results = [f"y{index}" for index in range(self.num_outputs)]
        node = helper.make_node(self.op, [*self.shapes, *self.constants], results, **self.attrs)
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in self.shapes.items()]
        stored = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph([node], self.op, inputs, outputs, stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)


def list_single_ops() -> Iterator[SingleOp]:
    """Yield the models, families together."""
    yield from _convolutions()
    yield from _transposed_convolutions()
    yield from _products()
    yield from _reductions()
    yield from _normalisations()
    yield from _windows()
    yield from _resizing()
    yield from _movement()
    yield from _elementwise()
    yield from _recurrent()


def _convolution(form: str, shape: Shape, filter_: Shape, op: str = "Conv", **attrs: Any) -> SingleOp:
    return SingleOp(f"{op} {form}", op, {"x": shape}, {"w": _draw(*filter_, scale=0.05)}, attrs)


def _convolutions() -> Iterator[SingleOp]:
    image, narrow, wide = (1, 64, 56, 56), (1, 96, 56, 56), (1, 96, 112, 112)
    pad_1, pad_2, pad_3 = [1] * 4, [2] * 4, [3] * 4
    yield _convolution("3x3", image, (64, 64, 3, 3), pads=pad_1)
    yield _convolution("3x3 dilated", image, (64, 64, 3, 3), pads=pad_2, dilations=[2, 2])
    yield _convolution("3x3 of a pyramid", (1, 960, 14, 14), (256, 960, 3, 3), pads=[12] * 4, dilations=[12, 12])
    yield _convolution("5x5", image, (64, 64, 5, 5), pads=pad_2)
    yield _convolution("7x7 of 3 channels", (1, 3, 224, 224), (64, 3, 7, 7), pads=pad_3, strides=[2, 2])
    yield _convolution("of patches", (1, 3, 224, 224), (256, 3, 16, 16), strides=[16, 16])
    yield _convolution("1x1", image, (256, 64, 1, 1))
    yield _convolution("1x1 with stride", (1, 256, 56, 56), (256, 256, 1, 1), strides=[2, 2])
    yield _convolution("1x7", (1, 128, 17, 17), (128, 128, 1, 7), pads=[0, 3, 0, 3])
    for groups, channels in ((2, 64), (8, 64), (32, 128), (3, 48)):
        filter_ = (channels, channels // groups, 3, 3)
        yield _convolution(f"in {groups} groups", (1, channels, 56, 56), filter_, pads=pad_1, group=groups)
    yield _convolution("depthwise 3x3", narrow, (96, 1, 3, 3), pads=pad_1, group=96)
    yield _convolution("depthwise 3x3 with stride", wide, (96, 1, 3, 3), pads=pad_1, group=96, strides=[2, 2])
    yield _convolution("depthwise 7x7", narrow, (96, 1, 7, 7), pads=pad_3, group=96)
    yield _convolution("depthwise dilated", narrow, (96, 1, 3, 3), pads=pad_2, group=96, dilations=[2, 2])
    yield _convolution("depthwise, two filters", image, (128, 1, 3, 3), pads=pad_1, group=64)
    yield _convolution("of one channel", (1, 1, 112, 112), (32, 1, 3, 3), pads=pad_1)
    yield _convolution("to one channel", (1, 64, 112, 112), (1, 64, 3, 3), pads=pad_1)
    yield _convolution("1x1 to 4 channels", (1, 64, 112, 112), (4, 64, 1, 1))
    yield SingleOp("Conv by a given filter", "Conv", {"x": image, "w": (64, 64, 3, 3)}, attrs={"pads": pad_1})
    yield SingleOp(
        "Conv depthwise by a given filter",
        "Conv",
        {"x": narrow, "w": (96, 1, 3, 3)},
        attrs={"pads": pad_1, "group": 96},
    )
    yield _convolution("1-d", (4, 64, 400), (64, 64, 3), pads=[1, 1])
    yield _convolution("1-d of a waveform", (1, 1, 16000), (128, 1, 10), strides=[5])
    yield _convolution("1-d to one channel", (4, 32, 2500), (1, 32, 3), pads=[1, 1])
    yield _convolution("1-d depthwise 31", (1, 256, 200), (256, 1, 31), pads=[15, 15], group=256)
    yield _convolution("1-d of positions", (1, 256, 100), (256, 16, 128), pads=[64, 64], group=16)
    yield _convolution("1-d dilated", (1, 128, 1000), (128, 128, 3), pads=[8, 8], dilations=[8])
    volume = (1, 32, 8, 28, 28)
    for window in ((3, 3, 3), (1, 3, 3), (3, 1, 1), (1, 1, 1)):
        pads = [size // 2 for size in window] * 2
        yield _convolution(f"3-d {'x'.join(map(str, window))}", volume, (32, 32, *window), pads=pads)
    yield _convolution("3-d 1x1x1 to 2 channels", (1, 32, 16, 28, 28), (2, 32, 1, 1, 1))
    yield _convolution("3-d depthwise", volume, (32, 1, 3, 3, 3), pads=[1] * 6, group=32)
    yield _convolution("3-d in 2 groups", volume, (32, 16, 3, 3, 3), pads=[1] * 6, group=2)
    yield SingleOp("Conv 3-d by a given filter", "Conv", {"x": volume, "w": (32, 32, 3, 3, 3)}, attrs={"pads": [1] * 6})


def _transposed_convolutions() -> Iterator[SingleOp]:
    op, image = "ConvTranspose", (1, 64, 28, 28)
    yield _convolution("2x2", image, (64, 64, 2, 2), op, strides=[2, 2])
    yield _convolution("4x4", image, (64, 64, 4, 4), op, strides=[2, 2], pads=[1] * 4)
    yield _convolution("3x3", image, (64, 64, 3, 3), op, strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    yield _convolution("3x3 without stride", image, (64, 64, 3, 3), op, pads=[1] * 4)
    yield _convolution("depthwise", image, (64, 1, 4, 4), op, strides=[2, 2], pads=[1] * 4, group=64)
    yield _convolution("in 4 groups", image, (64, 16, 3, 3), op, strides=[2, 2], group=4)
    yield _convolution("dilated", image, (64, 64, 3, 3), op, dilations=[2, 2])
    yield _convolution("1-d", (1, 128, 100), (128, 64, 16), op, strides=[8], pads=[4, 4])
    yield _convolution("3-d", (1, 16, 8, 14, 14), (16, 16, 2, 2, 2), op, strides=[2, 2, 2])
    yield SingleOp("ConvTranspose by a given filter", op, {"x": image, "w": (64, 64, 2, 2)}, attrs={"strides": [2, 2]})


def _products() -> Iterator[SingleOp]:
    yield SingleOp("MatMul", "MatMul", {"x": (256, 512), "w": (512, 256)})
    yield SingleOp("MatMul by weights", "MatMul", {"x": (256, 512)}, {"w": _draw(512, 256)})
    yield SingleOp("MatMul in a stack", "MatMul", {"x": (8, 128, 64), "w": (8, 64, 128)})
    yield SingleOp("MatMul by a stack of weights", "MatMul", {"x": (8, 128, 64)}, {"w": _draw(8, 64, 128)})
    yield SingleOp("MatMul of one matrix and a stack", "MatMul", {"x": (128, 64), "w": (8, 64, 128)})
    yield SingleOp("MatMul by a vector", "MatMul", {"x": (512, 1024), "w": (1024,)})
    yield SingleOp("MatMul of a row", "MatMul", {"x": (1, 1024)}, {"w": _draw(1024, 1024)})
    yield SingleOp("MatMul to 3 columns", "MatMul", {"x": (1024, 512)}, {"w": _draw(512, 3)})
    transposed = {"transA": 1, "transB": 1}
    yield SingleOp("Gemm of transposed matrices", "Gemm", {"x": (512, 256), "w": (256, 512)}, attrs=transposed)
    for form, equation, *shapes in (
        ("of three matrices", "ab,bc,cd->ad", (64, 64), (64, 64), (64, 64)),
        ("of a diagonal", "bii->bi", (64, 256, 256)),
        ("of rows", "bi,bi->b", (64, 1024), (64, 1024)),
        ("of channels", "bchw,bchw->bhw", (4, 64, 32, 32), (4, 64, 32, 32)),
        ("of heads", "ibnd,jbnd->bnij", (64, 2, 4, 32), (64, 2, 4, 32)),
    ):
        named = {f"x{index}": shape for index, shape in enumerate(shapes)}
        yield SingleOp(f"Einsum {form}", "Einsum", named, attrs={"equation": equation})


_MATRIX, _STACK, _IMAGE = (256, 1024), (16, 64, 256), (1, 64, 56, 56)


def _reductions() -> Iterator[SingleOp]:
    for op in ("Sum", "Max", "L2"):
        for form, axis, shape in (("rows", -1, _MATRIX), ("columns", 0, (1024, 256)), ("the middle", 1, _STACK)):
            constants, attrs = {"axes": _ints(axis)}, {"keepdims": 0}
            yield SingleOp(f"Reduce{op} of {form}", f"Reduce{op}", {"x": shape}, constants, attrs)
    for op in ("Mean", "Min", "Prod", "L1", "LogSum", "LogSumExp", "SumSquare"):
        low = 0.01 if op == "LogSum" else -9.0
        yield SingleOp(f"Reduce{op} of rows", f"Reduce{op}", {"x": _MATRIX}, {"axes": _ints(-1)}, low=low)
    yield SingleOp("ReduceMean of images", "ReduceMean", {"x": _IMAGE}, {"axes": _ints(2, 3)})
    for form, axis, shape in (("rows", -1, _MATRIX), ("the middle", 1, _STACK)):
        yield SingleOp(f"ArgMax of {form}", "ArgMax", {"x": shape}, attrs={"axis": axis})
        yield SingleOp(f"Softmax of {form}", "Softmax", {"x": shape}, attrs={"axis": axis})
        yield SingleOp(f"CumSum of {form}", "CumSum", {"x": shape}, {"axis": np.array(axis, "int64")})
    for count in (10, 1024):
        yield SingleOp(f"TopK {count}", "TopK", {"x": (64, 1024)}, {"k": _ints(count)}, num_outputs=2)
    yield SingleOp("LogSoftmax", "LogSoftmax", {"x": _MATRIX})
    yield SingleOp("Hardmax", "Hardmax", {"x": _MATRIX})
    yield SingleOp("DFT", "DFT", {"x": (16, 512, 1)}, {"length": np.array(512), "axis": np.array(1)})
    yield SingleOp("Det", "Det", {"x": (64, 16, 16)})


def _normalisations() -> Iterator[SingleOp]:
    scale = {"scale": _draw(64), "bias": _draw(64, seed=1)}
    rows = {"scale": _draw(768), "bias": _draw(768, seed=1)}
    yield SingleOp("LayerNormalization", "LayerNormalization", {"x": (256, 768)}, rows)
    yield SingleOp("InstanceNormalization", "InstanceNormalization", {"x": _IMAGE}, scale)
    yield SingleOp("InstanceNormalization 1-d", "InstanceNormalization", {"x": (4, 64, 1000)}, scale)
    yield SingleOp("InstanceNormalization of many images", "InstanceNormalization", {"x": (8, 64, 28, 28)}, scale)
    statistics = {**scale, "mean": _draw(64, seed=2), "variance": np.abs(_draw(64, seed=3)) + 0.5}
    yield SingleOp("BatchNormalization", "BatchNormalization", {"x": _IMAGE}, statistics)
    yield SingleOp("LRN", "LRN", {"x": _IMAGE}, attrs={"size": 5})
    yield SingleOp("LpNormalization", "LpNormalization", {"x": (256, 512)})
    yield SingleOp("MeanVarianceNormalization", "MeanVarianceNormalization", {"x": _IMAGE})


def _windows() -> Iterator[SingleOp]:
    large, pad_1, pad_2 = (1, 64, 112, 112), [1] * 4, [2] * 4
    for form, shape, attrs in (
        ("3x3 with stride", large, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pad_1}),
        ("2x2", large, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("3x3", _IMAGE, {"kernel_shape": [3, 3], "pads": pad_1}),
        ("5x5", (1, 256, 20, 20), {"kernel_shape": [5, 5], "pads": pad_2}),
        ("1-d", (1, 64, 4000), {"kernel_shape": [4], "strides": [4]}),
        ("3-d", (1, 16, 16, 28, 28), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    ):
        yield SingleOp(f"MaxPool {form}", "MaxPool", {"x": shape}, attrs=attrs)
        yield SingleOp(f"AveragePool {form}", "AveragePool", {"x": shape}, attrs=attrs)
    dilated = {"kernel_shape": [3, 3], "dilations": [2, 2]}
    yield SingleOp("MaxPool dilated", "MaxPool", {"x": _IMAGE}, attrs=dilated)
    pooled = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield SingleOp("MaxPool with indices", "MaxPool", {"x": _IMAGE}, attrs=pooled, num_outputs=2)
    yield SingleOp("LpPool", "LpPool", {"x": _IMAGE}, attrs=pooled)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield SingleOp(op, op, {"x": (1, 512, 14, 14)})


def _resize(form: str, shape: Shape, *factors: float, **attrs: Any) -> SingleOp:
    scales = {"roi": _NONE, "scales": np.array([1, 1, *factors], "float32")}
    return SingleOp(f"Resize {form}", "Resize", {"x": shape}, scales, attrs)


def _resizing() -> Iterator[SingleOp]:
    image, large = (1, 32, 56, 56), (1, 32, 112, 112)
    for mode in ("nearest", "linear", "cubic"):
        yield _resize(mode, image, 2, 2, mode=mode)
    yield _resize("aligned", (1, 32, 28, 28), 4, 4, mode="linear", coordinate_transformation_mode="align_corners")
    yield _resize("to a half", large, 0.5, 0.5, mode="linear")
    yield _resize("to a half, antialiased", large, 0.5, 0.5, mode="linear", antialias=1)
    yield _resize("1-d", (1, 32, 1000), 2, mode="linear")
    yield _resize("3-d", (1, 8, 16, 28, 28), 2, 2, 2, mode="linear")
    for mode in ("linear", "cubic"):
        grid = {"x": image, "grid": (1, 56, 56, 2)}
        yield SingleOp(f"GridSample {mode}", "GridSample", grid, attrs={"mode": mode}, low=-1, high=1)
    yield SingleOp("DepthToSpace", "DepthToSpace", {"x": _IMAGE}, attrs={"blocksize": 2})
    yield SingleOp("SpaceToDepth", "SpaceToDepth", {"x": (1, 16, 112, 112)}, attrs={"blocksize": 2})


def _movement() -> Iterator[SingleOp]:
    for order in ((0, 2, 3, 1), (0, 2, 1, 3), (1, 0, 2, 3), (0, 3, 1, 2), (3, 2, 1, 0), (0, 1, 3, 2)):
        name = f"Transpose {''.join(map(str, order))}"
        yield SingleOp(name, "Transpose", {"x": (8, 32, 48, 64)}, attrs={"perm": order})
    for mode in ("constant", "reflect", "edge", "wrap"):
        widths = {"pads": _ints(0, 0, 3, 3, 0, 0, 3, 3)}
        yield SingleOp(f"Pad {mode}", "Pad", {"x": (1, 32, 56, 56)}, widths, {"mode": mode})
    yield SingleOp("Concat of channels", "Concat", {"x": (8, 32, 28, 28), "z": (8, 32, 28, 28)}, attrs={"axis": 1})
    yield SingleOp("Concat of rows", "Concat", {"x": (4096, 32), "z": (4096, 32)}, attrs={"axis": 1})
    yield SingleOp("Split", "Split", {"x": (4096, 96)}, attrs={"axis": 1, "num_outputs": 3}, num_outputs=3)
    yield SingleOp("Tile", "Tile", {"x": (64, 128)}, {"repeats": _ints(4, 8)})
    yield SingleOp("Expand", "Expand", {"x": (64, 1, 128)}, {"shape": _ints(64, 32, 128)})
    for form, start, end, step in (("with steps", 0, 1024, 2), ("backwards", -1, -9999, -1)):
        constants = {"starts": _ints(start), "ends": _ints(end), "axes": _ints(1), "steps": _ints(step)}
        yield SingleOp(f"Slice {form}", "Slice", {"x": _MATRIX}, constants)
    rows = _rng().integers(0, 1000, 512)
    elements, updates = _rng().integers(0, 1000, (512, 256)), _draw(512, 256)
    # Without a reduction, no index may occur twice.
    apart = np.stack([_rng(column).permutation(1000)[:512] for column in range(256)], 1)
    yield SingleOp("Gather of rows", "Gather", {"x": (1000, 256)}, {"indices": rows})
    yield SingleOp("Gather of columns", "Gather", {"x": (256, 1000)}, {"indices": rows}, {"axis": 1})
    yield SingleOp("GatherElements", "GatherElements", {"x": (1000, 256)}, {"indices": elements}, {"axis": 0})
    yield SingleOp("GatherND", "GatherND", {"x": (1000, 8, 64)}, {"indices": np.stack([rows, rows % 8], 1)})
    for reduction, indices in (("none", apart), ("add", elements)):
        constants, attrs = {"indices": indices, "updates": updates}, {"axis": 0, "reduction": reduction}
        yield SingleOp(f"ScatterElements {reduction}", "ScatterElements", {"x": (1000, 256)}, constants, attrs)
    yield SingleOp("ScatterND", "ScatterND", {"x": (1000, 256)}, {"indices": apart[:, :1], "updates": updates})
    yield SingleOp("Trilu", "Trilu", {"x": (16, 128, 128)})
    yield SingleOp("NonZero", "NonZero", {"x": (256, 256)})
    yield SingleOp("Unique", "Unique", {"x": (10000,)})
    lengths = _rng().integers(1, 100, 32)
    yield SingleOp("ReverseSequence", "ReverseSequence", {"x": (100, 32, 64)}, {"sequence_lens": lengths})


_UNARY = (
    *("Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"),
    *("Asinh", "Acosh", "Atanh", "Softplus", "Softsign", "Gelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish"),
    *("Mish", "LeakyRelu", "Relu", "ThresholdedRelu", "Shrink", "Floor", "Round", "Sign", "Reciprocal", "Neg", "Abs"),
)
_RANGES = {
    **dict.fromkeys(("Asin", "Acos", "Atanh"), (-0.99, 0.99)),
    **dict.fromkeys(("Log", "Sqrt"), (0.01, 9.0)),
    "Acosh": (1.01, 9.0),
}


def _elementwise() -> Iterator[SingleOp]:
    for op in _UNARY:
        low, high = _RANGES.get(op, (-9.0, 9.0))
        yield SingleOp(op, op, {"x": _MATRIX}, low=low, high=high)
    for op in ("Add", "Mul", "Div", "Max", "PRelu", "Less", "Equal"):
        yield SingleOp(op, op, {"x": _MATRIX, "z": _MATRIX})
    yield SingleOp("Pow", "Pow", {"x": _MATRIX, "z": _MATRIX}, low=0.01)
    yield SingleOp("Mod", "Mod", {"x": _MATRIX, "z": _MATRIX}, attrs={"fmod": 1}, low=0.01)
    yield SingleOp("Add of a row", "Add", {"x": _MATRIX, "z": (1024,)})
    yield SingleOp("Add of a column", "Add", {"x": _MATRIX, "z": (256, 1)})
    for exponent in (2.0, 2.5):
        yield SingleOp(
            f"Pow {exponent}", "Pow", {"x": _MATRIX}, {"exponent": np.array([exponent], "float32")}, low=0.01
        )
    yield SingleOp("Cast to int64", "Cast", {"x": _MATRIX}, attrs={"to": TensorProto.INT64})
    yield SingleOp("Cast to float16", "Cast", {"x": _MATRIX}, attrs={"to": TensorProto.FLOAT16})
    limits = {"min": np.array(-1, "float32"), "max": np.array(1, "float32")}
    yield SingleOp("Clip", "Clip", {"x": _MATRIX}, limits)


def _recurrent() -> Iterator[SingleOp]:
    hidden, inputs = 96, 64
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for directions, attrs in ((1, {}), (2, {"direction": "bidirectional"})):
            weights = {
                "w": _draw(directions, gates * hidden, inputs, scale=0.1),
                "r": _draw(directions, gates * hidden, hidden, scale=0.1, seed=1),
                "b": _draw(directions, 2 * gates * hidden, scale=0.1, seed=2),
            }
            form = f"{op} bidirectional" if attrs else op
            yield SingleOp(form, op, {"x": (40, 4, inputs)}, weights, {"hidden_size": hidden, **attrs}, num_outputs=2)
