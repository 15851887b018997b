"""Quantised tensors: against exact arithmetic, and guards for multiplication of the integers themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.errors import ArtifactError
from byoc_core.ir import Value, tensor
from byoc_core.runtime.hooks import LoadContext
from byoc_dnnl.capi import Isa
from byoc_dnnl.precision import multiplies_bytes
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module

from plugins.dnnl.tests.dnnl_region import UNIT, NDArray, Quantised, Region, emit, need_products_of_bytes


@pytest.fixture(autouse=True)
def _needs_instructions() -> None:
    need_products_of_bytes()


def _check_floats(region: Quantised, inputs: list[NDArray], length: int) -> None:
    """Check floats within a few roundings of the sum of all magnitudes: sums of integers are exact."""
    (found,), (exact,), (magnitude,) = (
        region.run(*inputs),
        region.oracle(*inputs),
        region.oracle(*inputs, magnitudes=True),
    )
    assert (np.abs(found - exact) <= length * 2 * UNIT * magnitude).all()


def _check_bytes(region: Quantised, inputs: list[NDArray], quotient: NDArray, magnitude: NDArray, zero: int) -> None:
    """Check bytes against exact arithmetic, or a neighbour for quotients within the roundings of a tie."""
    (found,) = region.run(*inputs)
    limits = np.iinfo(found.dtype)
    reach = 8 * 2 * UNIT * magnitude
    least, most = (
        np.clip(np.rint(quotient + side * reach) + zero, limits.min, limits.max).astype(np.int64) for side in (-1, 1)
    )
    assert ((least <= found) & (found <= most)).all()
    assert (least == most).mean() > 0.99
    assert len(np.unique(found)) > 20


CONVOLUTIONS: list[tuple[Any, ...]] = [
    # dtype, zero point, image, filters, attributes
    ("uint8", 128, (1, 16, 9, 7), (24, 16, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("uint8", 0, (2, 8, 9, 9), (16, 8, 1, 1), {"strides": (2, 2)}),
    ("uint8", 77, (1, 3, 15, 15), (8, 3, 7, 7), {"padding": (3, 2, 3, 1), "strides": (2, 2)}),
    ("int8", 0, (1, 16, 9, 7), (24, 16, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("int8", -5, (1, 16, 9, 7), (24, 16, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("uint8", 128, (1, 16, 9, 7), (32, 8, 3, 3), {"groups": 2, "padding": (1, 0, 1, 0)}),
    ("uint8", 128, (1, 32, 9, 7), (32, 1, 3, 3), {"groups": 32, "padding": (1, 1, 1, 1)}),
]


def _layer(case: tuple[Any, ...], ends: str = "float32") -> Quantised:
    """Return a convolution with a bias; ``ends``: quantise the result by 0.021 with the zero point 3, if given."""
    dtype, zero, image, filters, attrs = case
    region = Quantised()
    x = region.restore(region.builder.param("x", tensor(image, dtype)), 0.03, zero, dtype)
    sums = emit(region, "nn.conv2d", x, region.weights(*filters), **attrs)
    value = emit(region, "nn.bias_add", sums, region.builder.const(region.draw(filters[0])), axis=1)
    region.finish(value if ends == "float32" else region.quantise(value, 0.021, 3, ends))
    return region


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case: tuple[Any, ...]) -> None:
    region, (dtype, _, image, *_) = _layer(case), case
    _check_floats(region, [region.integers(*image, dtype=dtype)], 8)
    assert "nn.conv2d + nn.bias_add" in region.source
    assert f":{dtype}" in region.source
    assert "dequantize" not in region.source
    assert "ref" not in region.source


@pytest.mark.parametrize("ends", ["uint8", "int8"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_that_end_in_bytes(case: tuple[Any, ...], ends: str) -> None:
    plain, region = _layer(case), _layer(case, ends)
    inputs = [region.integers(*case[2], dtype=case[0])]
    (exact,), (magnitude,) = plain.oracle(*inputs), plain.oracle(*inputs, magnitudes=True)
    _check_bytes(region, inputs, exact / float(np.float32(0.021)), magnitude / 0.021, 3)
    assert "nn.conv2d + nn.bias_add + quantize" in region.source
    assert "dequantize" not in region.source


@pytest.mark.parametrize("op", ["nn.dense", "matmul"])
@pytest.mark.parametrize("shape", [(1, 64), (33, 64), (2, 5, 64)])
def test_products(op: str, shape: tuple[int, ...]) -> None:
    region = Quantised()
    x = region.builder.param("x", tensor(shape, "uint8"))
    weights = region.weights(40, 64) if op == "nn.dense" else region.weights(64, 40, axis=1)
    value = emit(region, op, region.restore(x, 0.03, 121), weights)
    region.finish(emit(region, "nn.bias_add", value, region.builder.const(region.draw(40)), axis=-1))
    _check_floats(region, [region.integers(*shape, dtype="uint8")], 8)
    assert f"{op} + nn.bias_add" in region.source
    assert "dequantize" not in region.source


def test_the_sums_of_the_largest_bytes_are_exact() -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((3, 4096), "uint8"))
    parameters: list[NDArray] = [np.full((16, 4096), 127, np.int8), np.ones(16, np.float32), np.zeros(16, np.int8)]
    parameters[0][8:] = -128
    weights = emit(region, "dequantize", *map(region.builder.const, parameters), axis=0)
    region.finish(emit(region, "nn.dense", region.restore(x, 1.0, 0), weights))
    (found,) = region.run(np.full((3, 4096), 255, np.uint8))
    expected = np.float32(4096 * 255) * parameters[0][:, 0].astype(np.float32)
    np.testing.assert_array_equal(found, np.broadcast_to(expected, (3, 16)))
    assert ":uint8" in region.source


EDGES = [np.nan, np.inf, -np.inf, 0.5, 1.5, 2.5, -0.5, -1.5, 3e38, -3e38, 126.5, 127.5, -128.5, 255.5, 0.49999997, -0.0]


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 3), ("uint8", 128), ("int8", 0), ("int8", -7)])
def test_quantize_is_the_reference_kernel_at_all_numbers(dtype: str, zero: int) -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((16, 16)))
    region.finish(region.quantise(x, 0.37, zero, dtype))
    given = np.concatenate([np.array(EDGES, np.float32) * np.float32(0.37), region.draw(240) * 30]).reshape(16, 16)
    (found,) = region.run(given)
    with np.errstate(invalid="ignore"):
        quotient = np.rint(given / np.float32(0.37)) + np.float32(zero)
    limits = np.iinfo(dtype)
    expected = np.clip(np.where(np.isnan(quotient), 0, quotient), limits.min, limits.max).astype(dtype)
    np.testing.assert_array_equal(found, expected)
    assert "quantize" in region.source


def test_dequantize_is_rounded_once() -> None:
    for dtype, zero in (("uint8", 7), ("int8", 0), ("int8", -128)):
        region = Quantised()
        x = region.builder.param("x", tensor((5, 33), dtype))
        region.finish(region.restore(x, 0.37, zero, dtype))
        given = region.integers(5, 33, dtype=dtype)
        (found,) = region.run(given)
        expected = (given.astype(np.int64) - zero).astype(np.float32) * np.float32(0.37)
        np.testing.assert_array_equal(found, expected)


def test_what_is_dequantised_and_quantised_again_is_the_same_memory() -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((4, 40), "uint8"))
    first = region.quantise(region.restore(x, 0.3, 5), 0.3, 5)
    region.finish(emit(region, "nn.dense", region.restore(first, 0.3, 5), region.weights(24, 40)))
    _check_floats(region, [region.integers(4, 40, dtype="uint8")], 4)
    assert "quantize" not in region.source


def test_constants_that_no_product_takes_are_dequantised_once() -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((4, 40)))
    region.finish(emit(region, "nn.dense", x, region.weights(24, 40)))
    _check_floats(region, [region.draw(4, 40)], 2 * 40)
    assert "dequantize" not in region.source


def test_a_quantised_model_is_offloaded_saved_and_loaded(tmp_path: Path) -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((1, 8, 12, 12)))
    value = region.restore(region.quantise(x, 0.02, 128), 0.02, 128)
    value = emit(region, "nn.conv2d", value, region.weights(16, 8, 3, 3), padding=(1, 1, 1, 1))
    beside = region.restore(region.quantise(emit(region, "nn.relu", value), 0.05, 0), 0.05, 0)
    value = emit(region, "nn.conv2d", beside, region.weights(16, 16, 3, 3), padding=(1, 1, 1, 1))
    value = emit(region, "add", region.restore(region.quantise(value, 0.04, 128), 0.04, 128), beside)
    region.finish(region.quantise(emit(region, "nn.relu", value), 0.0617, 0))  # of 0.06 a sixth would be ties
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    given = region.draw(1, 8, 12, 12)
    found = byoc_core.VirtualMachine(executable)["f"](given)
    (exact,) = region.oracle(given)
    assert np.abs(np.asarray(found).astype(int) - exact.astype(int)).max() <= 1
    assert (np.asarray(found) == exact).mean() > 0.99
    assert executable.modules[0].get_source().count("nn.conv2d") == 2
    path = tmp_path / "model.byoc"
    executable.save(path)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(byoc_core.load(path))["f"](given), found)


@pytest.mark.parametrize(
    ("scale", "zero", "attrs", "text"),
    [
        ((), (), {"axis": 0, "block_size": 4}, "oneDNN does not support blocks of elements with a common scale"),
        (None, None, {}, "the scales and zero points are not constant"),
    ],
)
def test_refusals_say_why(
    scale: tuple[int, ...] | None, zero: tuple[int, ...] | None, attrs: Mapping[str, object], text: str
) -> None:
    region = Region()
    x = region.builder.param("x", tensor((8, 4)))
    shape = (2, 4) if attrs else ()
    if scale is None:
        given: list[Value] = [
            region.builder.param("s", tensor((4,), "float32")),
            region.builder.param("z", tensor((4,), "int8")),
        ]
    else:
        given = [region.builder.const(np.ones(shape, np.float32)), region.builder.const(np.zeros(shape, np.int8))]
    binding = region.builder.bind("quantize", [x, *given], attrs)
    answer = region.judge(binding)
    assert isinstance(answer, Rejection)
    assert answer.text == f"`quantize`: {text}"


def _changed_scale(change: dict[str, Any]) -> tuple[Quantised, bytes]:
    region = Quantised()
    x = region.builder.param("x", tensor((4, 3), "int8"))
    scale = region.builder.param("scale", tensor((3,), "float32"))
    zero = region.builder.const(np.zeros(3, np.int8))
    region.finish(emit(region, "dequantize", x, scale, zero, axis=1))
    document = json.loads(byoc_save_module(region.module))
    document["functions"][0]["inputs"][1].update(change)
    return region, json.dumps(document).encode()


def test_parameters_of_another_dtype_are_refused() -> None:
    region, payload = _changed_scale({"dtype": "int8"})
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(payload, LoadContext(constants=region.builder.constants))
    assert "operand `scale`: has a dtype not accepted by the op; got int8" in str(caught.value)


def test_parameters_of_other_sizes_are_refused() -> None:
    region, payload = _changed_scale({"shape": [2]})
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(payload, LoadContext(constants=region.builder.constants))
    assert "operand `scale`: axis 0 has size 2; got (2,), expected 3 as axis 1 of operand `x`" in str(caught.value)


def test_dequantised_constants_are_taken() -> None:
    region = Quantised()
    region.finish(region.weights(4, 8))
    (binding,) = region.function.bindings
    assert isinstance(region.judge(binding), Support)


def test_bytes_need_instructions_that_sum_in_32_bits() -> None:
    assert not multiplies_bytes(Isa.AVX512_CORE)
    assert not multiplies_bytes(Isa.AVX2)
    assert multiplies_bytes(Isa.AVX512_CORE_VNNI)
    assert multiplies_bytes(Isa.AVX2_VNNI)
    assert multiplies_bytes(Isa.AVX512_CORE_AMX)


def test_without_such_instructions_floats_are_multiplied(tmp_path: Path) -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((4, 64), "uint8"))
    region.finish(emit(region, "matmul", region.restore(x, 0.05, 128), region.weights(64, 16, axis=1)))
    assert "int8" in region.source
    byoc_core.build(region.ir, backends=["dnnl"], fallback="error").save(tmp_path / "model.byoc")
    given = region.integers(4, 64, dtype="uint8")
    np.save(tmp_path / "x.npy", given)
    script = """
import sys, numpy as np, byoc_core
executable = byoc_core.load(sys.argv[1] + "/model.byoc")
np.save(sys.argv[1] + "/y.npy", byoc_core.VirtualMachine(executable)["f"](np.load(sys.argv[1] + "/x.npy")))
print(executable.modules[0].get_source())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
    )
    assert "matmul  " in done.stdout
    assert "numpy" not in done.stdout
    (exact,), (magnitude,) = region.oracle(given), region.oracle(given, magnitudes=True)
    assert (np.abs(np.load(tmp_path / "y.npy") - exact) <= 64 * 2 * UNIT * magnitude).all()


_ONE_ZERO_POINT = "oneDNN has a single zero point per tensor, not per index of an axis"


@pytest.mark.parametrize("given", ["inputs", "constants"])
def test_a_zero_point_for_each_index_is_refused_and_left_to_others(given: str) -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((1, 3, 3, 2), "uint8"))
    arrays: list[NDArray] = [np.array([2, 4, 5], np.float32), np.array([84, 24, 196], np.uint8)]
    parameters: list[Value] = [region.builder.const(array) for array in arrays]
    if given == "inputs":
        parameters = [region.builder.param("s", tensor((3,))), region.builder.param("z", tensor((3,), "uint8"))]
    region.finish(emit(region, "dequantize", x, *parameters, axis=1))
    answer = region.judge(region.function.bindings[0])
    assert isinstance(answer, Rejection)
    assert answer.text == f"`dequantize`: {_ONE_ZERO_POINT}"
    inputs = [region.integers(1, 3, 3, 2, dtype="uint8"), *(arrays if given == "inputs" else [])]
    found = byoc_core.VirtualMachine(byoc_core.build(region.ir, backends=["dnnl"]))["f"](*inputs)
    np.testing.assert_array_equal(found, region.oracle(*inputs)[0])


@pytest.mark.parametrize(
    ("scales", "zeros", "text"),
    [
        ([1.0, 2.0, 0.5], [0, 1, 0], _ONE_ZERO_POINT),
        ([1.0, 0.0, 0.5], [1, 1, 1], "the scale is not between 8e-31 and 1e+30"),
        ([1.0, np.nan, 0.5], [1, 1, 1], "the scale is not between 8e-31 and 1e+30"),
        ([1.0, 2.0, 0.5], [3, 3, 3], None),
    ],
)
def test_what_parameters_hold_is_looked_at_when_an_op_is_claimed(
    scales: list[float], zeros: list[int], text: str | None
) -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((4, 3)))
    parameters = [region.builder.const(np.array(scales, np.float32)), region.builder.const(np.array(zeros, np.int8))]
    region.finish(emit(region, "quantize", x, *parameters, axis=1))
    answer = region.judge(region.function.bindings[0])
    if text is None:
        assert isinstance(answer, Support)
        given = 20 * region.draw(4, 3)
        np.testing.assert_array_equal(region.run(given)[0], region.oracle(given)[0])
    else:
        assert isinstance(answer, Rejection)
        assert answer.text == f"`quantize`: {text}"


def test_constants_with_a_zero_point_for_each_index_are_dequantised_when_compiled() -> None:
    region = Quantised()
    arrays = [region.integers(4, 3), np.array([0.5, 2, 4], np.float32), np.array([-84, 24, 96], np.int8)]
    region.finish(emit(region, "dequantize", *map(region.builder.const, arrays), axis=1))
    assert isinstance(region.judge(region.function.bindings[0]), Support)
    np.testing.assert_array_equal(region.run()[0], region.oracle()[0])


def test_a_zero_point_of_32_bits_is_refused() -> None:
    region = Quantised()
    x = region.builder.param("x", tensor((2, 3), "int32"))
    value = region.restore(x, 1.0, 2**30, "int32")
    region.finish(value)
    found = region.judge(region.function.bindings[-1])
    text = "oneDNN rounds int32 numbers before subtracting a zero point"
    assert isinstance(found, Rejection)
    assert found.text.endswith(text)
