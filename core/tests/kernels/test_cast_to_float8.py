"""Casts to 8-bit floats: what lies beyond the range, with and without saturation."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.dtypes import float_limits, to_numpy
from byoc_core.frontend.onnx import from_onnx
from byoc_core.kernels import KERNELS
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

_TARGETS = {"float8_e4m3fn": TensorProto.FLOAT8E4M3FN, "float8_e5m2": TensorProto.FLOAT8E5M2}
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_SOURCES = ("float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("source", _SOURCES)
@given(values=st.lists(st.floats(), min_size=1))
def test_saturation_limits_what_no_saturation_makes_nan_or_infinite(
    source: str, target: str, values: list[float]
) -> None:
    with np.errstate(over="ignore"):
        x = np.array(values).astype(to_numpy(source))
    wide, largest = x.astype(np.float64), float_limits(target).largest
    assert largest == _LARGEST[target]
    found = KERNELS["cast"](x, dtype=target, saturate=True).astype(np.float64)
    plain = KERNELS["cast"](x, dtype=target).astype(np.float64)
    beyond = abs(wide) > largest
    np.testing.assert_array_equal(found[beyond], np.copysign(largest, wide[beyond]))
    np.testing.assert_array_equal(found[~beyond], plain[~beyond])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wide))


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("op", ["Cast", "CastLike"])
@pytest.mark.parametrize("saturate", [None, 0, 1])
def test_onnx_casts_saturate_unless_the_node_says_otherwise(op: str, target: str, saturate: int | None) -> None:
    attrs: dict[str, Any] = {} if saturate is None else {"saturate": saturate}
    if op == "Cast":
        attrs["to"] = _TARGETS[target]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])]
    like = helper.make_tensor("like", _TARGETS[target], [1], [1.0])
    node = helper.make_node(op, ["x", "like"][: 1 + (op == "CastLike")], ["y"], **attrs)
    outputs = [helper.make_tensor_value_info("y", _TARGETS[target], [4])]
    graph = helper.make_graph([node], "g", inputs, outputs, [like])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    run = byoc_core.VirtualMachine(byoc_core.build(from_onnx(model)))["main"]
    found = np.asarray(run(np.array([1e6, -np.inf, np.nan, 2], np.float32))).astype(np.float64)
    largest = _LARGEST[target] if saturate != 0 else (np.nan if target == "float8_e4m3fn" else np.inf)
    np.testing.assert_array_equal(found, [largest, -largest, np.nan, 2])
