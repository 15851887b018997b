"""ONNX casts to 8-bit floats: values beyond the range, with and without saturation."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx import from_onnx
from byoc_core.opset.families import KERNELS
from byoc_core.transform import evaluate_function
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

_TARGETS = {"float8_e4m3fn": TensorProto.FLOAT8E4M3FN, "float8_e5m2": TensorProto.FLOAT8E5M2}
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_SOURCES = {
    "bfloat16": TensorProto.BFLOAT16,
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "int32": TensorProto.INT32,
}


def _model(op: str, source: int, target: int, **attrs: Any) -> ModelProto:
    if op == "Cast":
        attrs["to"] = target
    inputs = [helper.make_tensor_value_info("x", source, ["n"])]
    like = helper.make_tensor("like", target, [1], [1.0])
    node = helper.make_node(op, ["x", "like"][: 1 + (op == "CastLike")], ["y"], **attrs)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", target, ["n"])], [like])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("source", _SOURCES)
@given(values=st.lists(st.floats(), min_size=1))
def test_saturation_limits_what_no_saturation_makes_nan_or_infinite(
    source: str, target: str, values: list[float]
) -> None:
    if source == target:
        return
    drawn = np.clip(np.nan_to_num(values), -(2.0**30), 2.0**30) if source == "int32" else np.array(values)
    with np.errstate(over="ignore"):
        x = drawn.astype(to_numpy(source))
    wide, largest = x.astype(np.float64), _LARGEST[target]
    (result,) = evaluate_function(from_onnx(_model("Cast", _SOURCES[source], _TARGETS[target])), "main", [x])
    found, plain = result.astype(np.float64), KERNELS["cast"](x, dtype=target).astype(np.float64)
    beyond = abs(wide) > largest
    np.testing.assert_array_equal(found[beyond], np.copysign(largest, wide[beyond]))
    np.testing.assert_array_equal(found[~beyond], plain[~beyond])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wide))


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("op", ["Cast", "CastLike"])
@pytest.mark.parametrize("saturate", [None, 0, 1])
def test_onnx_casts_saturate_unless_the_node_says_otherwise(op: str, target: str, saturate: int | None) -> None:
    attrs = {} if saturate is None else {"saturate": saturate}
    model = _model(op, TensorProto.FLOAT, _TARGETS[target], **attrs)
    run = byoc_core.VirtualMachine(byoc_core.build(from_onnx(model), []))["main"]
    found = np.asarray(run(np.array([1e6, -np.inf, np.nan, 2], np.float32))).astype(np.float64)
    largest = _LARGEST[target] if saturate != 0 else (np.nan if target == "float8_e4m3fn" else np.inf)
    np.testing.assert_array_equal(found, [largest, -largest, np.nan, 2])
