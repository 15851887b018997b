"""The artifacts mutated by the fuzzer: small models, compiled by every backend usable here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import byoc_core
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from core.tests.artifact.fuzzing.members import taken_apart

__all__ = ["Seed", "seeds"]

_SWAPPABLE = "swappable"
"""The name of the model with swappable weights."""


@dataclass(frozen=True)
class Seed:
    """An artifact.

    Attributes:
        name: the names of the model and the backend.
        content: the artifact.
        is_native: whether the artifact holds native code.
    """

    name: str
    content: bytes
    is_native: bool


def _model(nodes: list[onnx.NodeProto], inputs: dict[str, list[int | str]], weights: dict[str, list[int]]) -> bytes:
    """Return an ONNX model with the result of the last node."""
    random = np.random.default_rng(0)
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
        [numpy_helper.from_array(random.random(shape, np.float32), name) for name, shape in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def _images(batch: int | str) -> bytes:
    return _model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("AveragePool", ["c"], ["d"], kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
            helper.make_node("Flatten", ["d"], ["e"]),
            helper.make_node("Gemm", ["e", "v"], ["y"]),
        ],
        {"x": [batch, 2, 8, 8]},
        {"w": [4, 2, 3, 3], "v": [64, 3]},
    )


def _sequences() -> bytes:
    return _model(
        [
            helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2], dilations=[2]),
            helper.make_node("Pad", ["a", "pads"], ["b"]),
            helper.make_node("Transpose", ["b"], ["c"], perm=[0, 2, 1]),
            helper.make_node("Concat", ["c", "c"], ["d"], axis=2),
            helper.make_node("Softmax", ["d"], ["e"], axis=-1),
            helper.make_node("ReduceSum", ["e"], ["f"], keepdims=1),
            helper.make_node("Expand", ["f", "to"], ["g"]),
            helper.make_node("Split", ["g"], ["h", "i"], axis=1, num_outputs=2),
            helper.make_node("Sub", ["h", "i"], ["y"]),
        ],
        {"x": ["n", 3, 16]},
        {},
    )


def _with_integers(model: bytes, **values: list[int]) -> bytes:
    made = onnx.load_from_string(model)
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v, np.int64), name) for name, v in values.items())
    return bytes(made.SerializeToString())


def _pointwise() -> bytes:
    nodes = [
        helper.make_node("Add", ["x", "z"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("Sub", ["b", "z"], ["y"]),
    ]
    return _model(nodes, {"x": [5, 7], "z": [5, 7]}, {})


def _models() -> Iterator[tuple[str, bytes]]:
    yield "images", _images(2)
    yield "batches", _images("n")
    yield "sequences", _with_integers(_sequences(), pads=[0, 0, 1, 0, 0, 2], to=[1, 4, 3])
    yield "pointwise", _pointwise()
    yield _SWAPPABLE, _images(2)


@cache
def seeds() -> tuple[Seed, ...]:
    """Return the artifacts of every model by every backend claiming part of the model."""
    found = []
    usable = [name for name in byoc_core.backends.names() if byoc_core.backends.get(name).compile_status().ok]
    for name, model in _models():
        for backend in usable:
            module = byoc_core.from_onnx(model, swappable_weights=name == _SWAPPABLE)
            executable = byoc_core.build(module, backends=[] if backend == "host" else [backend])
            if backend == "host" or {part.type_key for part in executable.modules} != {"graph"}:
                content = executable.to_bytes()
                native = any(entry["native"] for entry in json.loads(taken_apart(content)["manifest.json"])["modules"])
                found.append(Seed(f"{name}.{backend}", content, native))
    return tuple(found)
