"""byoc by ONNX's interface of backends, and models of old operator sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import byoc_core.onnx_backend as backend
import numpy as np
import onnx
import pytest
from byoc_core.errors import FrontendError, OptionsError
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, helper

X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)


def _difference(opset: int = 18, op_type: str = "Sub", **attrs: Any) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph([helper.make_node(op_type, ["x", "y"], ["z"], **attrs)], "difference", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_inputs_come_in_order_or_by_name() -> None:
    prepared = backend.prepare(_difference(), "CPU")
    assert (prepared.input_names, prepared.output_names) == (("x", "y"), ("z",))
    given: list[Any] = [[X, Y], (X, Y), {"y": Y, "x": X}]
    for inputs in given:
        (z,) = prepared.run(inputs)
        np.testing.assert_array_equal(z, X - Y)
    (z,) = backend.run_model(_difference(), [X, Y])
    np.testing.assert_array_equal(z, X - Y)


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ([X], "has another number than the model; got 1, expected 2: x, y"),
        ({"x": X}, "lacks `y`; expected 2: x, y"),
        ({"x": X, "y": Y, "yy": Y}, "names no input of the model; got yy, expected 2: x, y"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        backend.prepare(_difference()).run(inputs)


def test_arguments_reach_the_compiler() -> None:
    (z,) = backend.prepare(_difference(), strict=True).run([X, Y])
    np.testing.assert_array_equal(z, X - Y)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        backend.prepare(_difference(), nonsense=1)
    with pytest.raises(OptionsError, match="is no argument"):
        backend.prepare(_difference()).run([X, Y], nonsense=1)


def test_devices() -> None:
    found = {device: backend.supports_device(device) for device in ("CPU", "CPU:0", "CUDA", "CPU:x", "nonsense")}
    assert found == {"CPU": True, "CPU:0": True, "CUDA": False, "CPU:x": False, "nonsense": False}
    with pytest.raises(OptionsError, match="is not supported; got CUDA, expected CPU"):
        backend.prepare(_difference(), "CUDA")


def test_compatible_models() -> None:
    unknown = _difference(op_type="Nonsense")
    assert backend.is_compatible(_difference())
    assert not backend.is_compatible(unknown)
    assert not backend.is_compatible(_difference(), "CUDA")


def test_single_nodes() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    (y,) = backend.run_node(node, [X, np.float32(3)])
    np.testing.assert_array_equal(y, np.minimum(X, 3))
    (y,) = backend.run_node(node, {"x": X, "high": np.float32(2)}, opset_version=12)
    np.testing.assert_array_equal(y, np.minimum(X, 2))
    with pytest.raises(OptionsError, match="another number than the node; got 1, expected 2"):
        backend.run_node(node, [X])


def test_a_part_of_the_suite() -> None:
    """ONNX's test suite takes the module; cases of all its folders."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest

        suite = BackendTest(backend.OnnxBackend, __name__)
        suite.include(
            "^test_(add|reshape|nonmaxsuppression|gridsample|dft|stft|training_dropout|operator_mm|Linear|expand_shape)_.*cpu"
        )
        cases = suite.test_cases
        count = 0
        for case in cases.values():
            for name in dir(case):
                function: Callable[[object], None] = getattr(case, name)
                if name.startswith("test_") and not getattr(function, "__unittest_skip__", False):
                    function(None)
                    count += 1
    assert count >= 30


@pytest.mark.parametrize(
    ("op_type", "attrs", "expected"),
    [
        ("Sub", {}, X - Y),
        ("Sub", {"broadcast": 1, "axis": 0, "consumed_inputs": [0, 0]}, X - Y),
        ("Mul", {"broadcast": 1}, X * Y),
    ],
)
@pytest.mark.parametrize("opset", [1, 6])
def test_models_of_old_operator_sets_are_converted(
    opset: int, op_type: str, attrs: Mapping[str, Any], expected: np.ndarray[Any, np.dtype[np.float32]]
) -> None:
    known = {name: value for name, value in attrs.items() if opset == 1 or name != "consumed_inputs"}
    (z,) = backend.run_model(_difference(opset, op_type, **known), [X, Y])
    np.testing.assert_array_equal(z, expected)


def test_models_without_a_newer_form_are_refused() -> None:
    with pytest.raises(FrontendError, match="cannot be converted to operator set 7; got operator set 5"):
        from_onnx(_difference(5, "Nonsense"))
