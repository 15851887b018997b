"""Single ops: against float64 with bounds from the arithmetic, and refusals with their reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.ir import Binding, Value, tensor
from byoc_core.opset.families import KERNELS

from plugins.dnnl.tests.dnnl_region import UNIT, NDArray, Region, check_sums

EDGES = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-30, -1e-30, 0.3, -0.3, 20.0, -20.0, 90.0, -90.0],
    np.float32,
)


def _one(op: str, *shapes: Sequence[int], **attrs: object) -> tuple[Region, list[Any]]:
    """Return a region of a single op; a shape in a list belongs to a constant."""
    region, inputs = Region(), list[Any]()
    operands: list[Value] = []
    for index, shape in enumerate(shapes):
        array = region.draw(*shape)
        if isinstance(shape, list):
            operands.append(region.builder.const(array))
        else:
            operands.append(region.builder.param(f"x{index}", tensor(shape)))
            inputs.append(array)
    (result,) = region.builder.bind(op, operands, attrs).results
    return region.finish(result), inputs


def _binding(region: Region) -> Binding:
    (binding,) = region.function.bindings
    return binding


CONVOLUTIONS: list[tuple[Any, ...]] = [
    ("nn.conv2d", (1, 3, 9, 7), [8, 3, 3, 3], {"padding": (1, 1, 1, 1)}),
    ("nn.conv2d", (2, 16, 8, 8), [32, 16, 1, 1], {}),
    ("nn.conv2d", (1, 16, 12, 11), [16, 8, 3, 2], {"groups": 2, "strides": (2, 1), "padding": (0, 2, 1, 1)}),
    ("nn.conv2d", (1, 32, 10, 10), [32, 1, 3, 3], {"groups": 32, "padding": (1, 1, 1, 1)}),
    ("nn.conv2d", (1, 16, 13, 13), [24, 16, 3, 3], {"dilation": (2, 3), "padding": (2, 3, 1, 0)}),
    ("nn.conv2d", (1, 9, 7, 5), [3, 3, 5, 6], {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
    ("nn.conv2d", (1, 3, 9, 7), (8, 3, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("nn.conv2d", (1, 16, 12, 11), (3, 2, 8, 16), {"groups": 2, "kernel_layout": "HWIO"}),
    ("nn.conv1d", (2, 8, 30), [16, 8, 5], {"strides": (2,), "padding": (3, 1)}),
    ("nn.conv3d", (1, 4, 5, 6, 7), [8, 4, 2, 3, 3], {"padding": (0, 1, 1, 1, 1, 1)}),
]


@pytest.mark.parametrize(("op", "image", "weights", "attrs"), CONVOLUTIONS)
def test_convolutions(op: str, image: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]) -> None:
    region, inputs = _one(op, image, weights, **attrs)
    assert isinstance(region.judge(_binding(region)), Support)
    check_sums(region, inputs, 2 * int(np.prod(weights)) + 4)
    assert "ref" not in region.source


PRODUCTS: list[tuple[Any, ...]] = [
    ("nn.dense", (5, 7), [3, 7]),
    ("nn.dense", (2, 3, 17), (9, 17)),
    ("matmul", (33, 20), [20, 17]),
    ("matmul", (4, 33, 20), [20, 17]),
    ("matmul", (2, 3, 8, 5), (2, 3, 5, 6)),
    ("matmul", (4, 8, 5), (1, 5, 6)),
    ("matmul", (5,), (5, 6)),
    ("matmul", (4, 5), (5,)),
    ("matmul", (5,), (5,)),
    ("matmul", (5,), (3, 5, 6)),
]


@pytest.mark.parametrize(("op", "left", "right"), PRODUCTS)
def test_products(op: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    region, inputs = _one(op, left, right)
    assert isinstance(region.judge(_binding(region)), Support)
    check_sums(region, inputs, 2 * left[-1] + 4)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        *[((4, 5), (4, 5)), ((2, 3, 4, 5), (3, 1, 1)), ((2, 3, 4), (4,)), ((4, 5), ()), ((), ())],
        *[((5,), (4, 5)), ((), (4, 5)), ((4, 1), (5,)), ((2, 3, 4, 5), (2, 1, 4, 1)), ((3, 1, 7), (2, 1, 4, 1))],
    ],
)
def test_operations_on_two_tensors_are_rounded_once(op: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    region, inputs = _one(op, left, right)
    (found,), (exact,) = region.run(*inputs), region.oracle(*inputs)
    # oneDNN divides by a division; all four are correctly rounded in IEEE 754.
    np.testing.assert_array_equal(found, exact.astype(np.float32))


FUNCTIONS: list[tuple[str, dict[str, float], float, Callable[[Any, Any], Any]]] = [
    # ULP of the largest term: what OpenCL's table asks, and for formulas of what cancels in them.
    ("abs", {}, 0, lambda x, y: abs(y)),
    ("nn.relu", {}, 0, lambda x, y: abs(y)),
    ("nn.leaky_relu", {"alpha": 0.1}, 1, lambda x, y: abs(y)),
    ("negative", {}, 0, lambda x, y: abs(y)),
    ("nn.elu", {"alpha": 1.0}, 2, lambda x, y: abs(y)),
    ("nn.elu", {"alpha": 0.3}, 3, lambda x, y: abs(y)),
    ("nn.elu", {"alpha": -2.0}, 3, lambda x, y: abs(y)),
    ("nn.elu", {"alpha": 0.0}, 3, lambda x, y: abs(y)),
    ("nn.celu", {"alpha": 1.0}, 2, lambda x, y: abs(y)),
    ("nn.selu", {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}, 4, lambda x, y: abs(y)),
    ("nn.selu", {"alpha": 0.5, "gamma": -1.0}, 4, lambda x, y: abs(y)),
    ("sigmoid", {}, 8, lambda x, y: np.maximum(abs(y), 1)),
    ("sqrt", {}, 3, lambda x, y: abs(y)),
    ("tanh", {}, 5, lambda x, y: abs(y)),
]


@pytest.mark.parametrize(("op", "attrs", "ulps", "magnitude"), FUNCTIONS)
def test_functions_of_each_element_at_all_numbers(
    op: str, attrs: Mapping[str, Any], ulps: float, magnitude: Callable[[NDArray, NDArray], NDArray]
) -> None:
    x = np.concatenate([EDGES, np.linspace(-30, 30, 999, dtype=np.float32)])
    region, _ = _one(op, x.shape, **attrs)
    (found,), (exact,) = region.run(x), region.oracle(x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    infinite = np.isinf(exact.astype(np.float32))
    np.testing.assert_array_equal(found[infinite], exact[infinite])
    fine = ~np.isnan(exact) & ~infinite
    error = np.abs(found[fine].astype(np.float64) - exact[fine])
    assert (error <= 2 * ulps * UNIT * magnitude(x[fine].astype(np.float64), exact[fine]) + 2.0**-126).all()


_SIGNED = ("nn.relu", "negative", "abs", "nn.elu", "nn.selu", "nn.leaky_relu", "round", "sqrt", "tanh")
_SIGNED_PAIRS = ("maximum", "minimum", "add", "multiply")


@pytest.mark.parametrize("size", [1, 5, 16, 33])
@pytest.mark.parametrize(
    ("op", "num_operands"),
    [*((op, 1) for op in _SIGNED), *((op, 2) for op in _SIGNED_PAIRS)],
)
def test_zeros_have_the_signs_that_the_reference_gives_them(op: str, num_operands: int, size: int) -> None:
    region, _ = _one(op, *[(size,)] * num_operands)
    inputs = [np.resize(np.array(zeros, np.float32), size) for zeros in ([0.0, -0.0], [0.0, 0.0, -0.0, -0.0])]
    (found,), (binding,) = region.run(*inputs[:num_operands]), region.function.bindings
    expected = KERNELS[op](*inputs[:num_operands], **binding.attrs)
    np.testing.assert_array_equal(found, 0)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_relu_hands_nan_on_and_gives_no_negative_zeros() -> None:
    region, _ = _one("nn.relu", EDGES.shape)
    (found,) = region.run(EDGES)
    assert not np.signbit(found[1:]).any()


@pytest.mark.parametrize(
    ("op", "shape", "attrs"),
    [
        ("nn.avg_pool2d", (1, 16, 9, 9), {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}),
        ("nn.avg_pool2d", (1, 16, 9, 9), {"pool_size": (2, 2), "count_include_pad": True, "padding": (1, 0, 0, 1)}),
        ("nn.avg_pool2d", (1, 8, 8, 16), {"pool_size": (8, 8), "layout": "NHWC"}),
        ("mean", (4, 16, 7, 7), {"axis": (2, 3), "keepdims": True}),
        ("sum", (4, 33), {"axis": (1,)}),
    ],
)
def test_means_and_sums(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    region, inputs = _one(op, shape, **attrs)
    check_sums(region, inputs, 2 * 81 + 4)


def test_softmax() -> None:
    region, inputs = _one("nn.softmax", (4, 16, 20))
    (found,), (exact,) = region.run(*inputs), region.oracle(*inputs)
    # Each exponential has 3 ULP and the rounding of its argument, below 8; their sum of 20 terms, the quotient.
    assert (np.abs(found - exact) <= (2 * 3 + 8 + 20 + 3) * 2 * UNIT * exact).all()


def test_concat_and_views_move_bits() -> None:
    region = Region()
    x = region.builder.param("x", tensor((2, 3, 4, 4)))
    y = region.builder.param("y", tensor((2, 5, 4, 4)))
    joined = region.builder.emit("concat", x, y, axis=1)
    assert not isinstance(joined, tuple)
    turned = region.builder.emit("permute_dims", joined, axes=(0, 2, 3, 1))
    assert not isinstance(turned, tuple)
    flat = region.builder.emit("reshape", turned, shape=(2, 128))
    assert not isinstance(flat, tuple)
    region.finish(flat, turned, x)
    inputs = region.draw(2, 3, 4, 4), region.draw(2, 5, 4, 4)
    for found, exact in zip(region.run(*inputs), region.oracle(*inputs), strict=True):
        np.testing.assert_array_equal(found, exact.astype(np.float32))


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "text"),
    [
        ("clip", [(4,)], {"min": 1.0, "max": 0.5}, "`clip`: no number lies between minimum and maximum"),
        ("sin", [(4,)], {}, "`sin`: oneDNN has no such function"),
        ("nn.relu", [(0,)], {}, "`nn.relu`: float32[0] has no elements"),
        ("nn.lrn", [(1, 8, 4, 4)], {"size": 4}, "`nn.lrn`: oneDNN supports only windows of an odd number of channels"),
        ("nn.layer_norm", [(4, 8), (4,), (4,)], {"axes": (0,)}, "`nn.layer_norm`: the axes are not the last axes"),
    ],
)
def test_refusals_say_why(op: str, shapes: Sequence[tuple[int, ...]], attrs: dict[str, Any], text: str) -> None:
    region = Region()
    operands = [region.builder.param(f"x{index}", tensor(shape)) for index, shape in enumerate(shapes)]
    binding = region.builder.bind(op, operands, attrs)
    answer = region.judge(binding)
    assert isinstance(answer, Rejection)
    assert answer.text == text


def test_other_dtypes_are_refused() -> None:
    region = Region()
    binding = region.builder.bind("nn.relu", [region.builder.param("x", tensor((4,), "float64"))], {})
    answer = region.judge(binding)
    assert isinstance(answer, Rejection)
    assert answer.text == "`nn.relu`: supported are tensors of float32, bfloat16, float16, not float64[4]"
