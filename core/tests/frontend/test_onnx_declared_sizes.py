"""Declared sizes of inputs: negative sizes are unknown, as in ONNX Runtime; impossible sizes are refused."""

from __future__ import annotations

from math import prod
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import TensorType
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

_LARGEST = 2**63 - 1
_SIZES = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 2**20, 2**31, 2**32, 2**61 - 1, 2**61, _LARGEST])


def _model(*shapes: list[Any], op: str = "Relu", dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    names = [f"x{index}" for index in range(len(shapes))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"])],
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in zip(names, shapes, strict=True)],
        [helper.make_tensor_value_info("y", dtype, [None] * len(shapes[0]))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _declared(model: onnx.ModelProto) -> list[list[str]]:
    types = [param.type for param in from_onnx(model)["main"].params]
    return [list(map(str, type_.shape or ())) for type_ in types if isinstance(type_, TensorType)]


@pytest.mark.parametrize("size", [-1, -2, -(2**31), -(2**63)])
def test_a_negative_size_is_unknown(size: int) -> None:
    """The oracle accepts calls of any size there."""
    ort = pytest.importorskip("onnxruntime")
    model = _model([size, 4, size])
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString())
    machine = byoc_core.VirtualMachine(byoc_core.build(from_onnx(model), []))
    for shape in ((1, 4, 3), (5, 4, 2), (0, 4, 1)):
        x = np.linspace(-1, 1, prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(machine["main"](x), session.run(None, {"x0": x})[0])


def test_each_negative_size_is_a_size_of_its_own() -> None:
    model = _model([-1, -1, "x0_dim0"], [-1, -7], op="Sum")
    assert _declared(model) == [["x0_dim0", "x0_dim1", "x0_dim0_1"], ["x1_dim0", "x1_dim1"]]


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ([2**62, 2**62], 0),
        ([_LARGEST], 0),
        ([2**31, 2**30], 1),
        (["n", 2**31, -1, 2**31], 3),
        ([0, 3, 2**61], 2),
    ],
)
def test_sizes_of_no_array_are_refused(shape: list[Any], axis: int) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(_model([2], shape, op="Sum"))
    sizes = ", ".join(f"x1_dim{index}" if size == -1 else str(size) for index, size in enumerate(shape))
    assert str(caught.value) == (
        f"ONNX model, input `x1`, axis {axis}: the declared sizes exceed the largest possible array; got float32 of "
        f"shape [{sizes}], expected at most {_LARGEST} bytes"
    )


@given(st.lists(_SIZES, max_size=4), st.sampled_from([TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16]))
def test_what_is_refused_is_what_numpy_refuses(shape: list[int], dtype: int) -> None:
    known = [max(size, 1) if size < 0 else size for size in shape]
    zeros = np.zeros(1, helper.tensor_dtype_to_np_dtype(dtype))
    try:
        np.ndarray(known, zeros.dtype, buffer=zeros, strides=[0] * len(known))
        exists = True
    except ValueError:
        exists = False
    if exists:
        assert [size.isdigit() for size in _declared(_model(shape, dtype=dtype))[0]] == [size >= 0 for size in shape]
    else:
        with pytest.raises(FrontendError, match="exceed the largest possible array"):
            from_onnx(_model(shape, dtype=dtype))
