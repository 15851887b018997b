"""Tests beyond the kit: the backend takes its intended ops, and gives a reason for declining all others."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.ir import IRModule, tensor

NAME = "scipy"
SINGLE = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        result = R.sigmoid(x)
        return result
"""


def make_layer(dtype: str = "float32", *, relu: bool = True) -> IRModule:
    """Return ``relu(x @ weight.T + bias)`` for any batch, on small whole numbers: floats compute these exactly."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-4, 5, (3, 5)).astype(dtype)
    bias = rng.integers(-4, 5, 3).astype(dtype)
    builder: Any = byoc_core.FunctionBuilder("main")
    x = builder.param("x", tensor(("n", 5), dtype))
    biased = builder.emit("nn.bias_add", builder.emit("nn.dense", x, weight), bias)
    result = builder.emit("nn.relu", biased) if relu else biased
    return IRModule({"main": builder.finish(result)}, builder.constants)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("batch", [7, 1, 0])
def test_a_layer_is_one_call_and_right(batch: int, relu: bool) -> None:
    module = make_layer(relu=relu)
    executable = byoc_core.build(module, [NAME], fallback="error")
    assert [module.type_key for module in executable.modules] == [NAME]
    assert f"{NAME}.dense_bias{'_relu' if relu else ''}(" in executable.get_source()
    x = np.random.default_rng(1).integers(-4, 5, (batch, 5)).astype("float32")
    expected = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"](x)
    assert np.count_nonzero(expected) > 0 or batch == 0
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), expected)


def test_the_approximation_of_gelu_is_refused() -> None:
    module = R.parse(SINGLE.replace("R.sigmoid(x)", 'R.nn.gelu(x, approximate="tanh")'))
    executable = byoc_core.build(module, [NAME])
    assert [found.type_key for found in executable.modules] == ["graph"]
    assert "scipy computes `nn.gelu` exactly only" in str(executable.report())
    exact = byoc_core.build(R.parse(SINGLE.replace("R.sigmoid(x)", "R.nn.gelu(x)")), [NAME])
    assert [found.type_key for found in exact.modules] == [NAME]


def test_what_it_does_not_take_stays_on_the_host_with_a_reason() -> None:
    executable = byoc_core.build(make_layer("int32"), [NAME])
    assert [module.type_key for module in executable.modules] == ["graph"]
    assert f"{NAME} computes float32 and float64, not int32" in str(executable.report())


def test_without_single_ops_only_the_pattern_is_taken() -> None:
    module = R.parse(SINGLE)
    off = byoc_core.build(module, [NAME], options={NAME: {"single_ops": False}})
    assert [found.type_key for found in off.modules] == ["graph"]
    assert [found.type_key for found in byoc_core.build(module, [NAME]).modules] == [NAME]
