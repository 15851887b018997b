"""Convolution, matrix products, pooling, reductions: against a float64 oracle with the bound of Higham, ch. 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.ir import Function, tensor

from plugins.ccompiler.tests.bench import Bench, assert_sum


def _random(shape: int | Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _check_products(bench: Bench, function: Function, inputs: list[Any], length: int) -> None:
    (actual,) = bench.run(function, *inputs)
    (oracle,) = bench.reference(function, *inputs, wide=True)
    (magnitude,) = bench.reference(function, *(np.abs(array) for array in inputs), wide=True)
    assert_sum(actual, oracle, magnitude, length)


CONVOLUTIONS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": ((2, 4, 13, 12), (10, 4, 3, 3), {}),
    "padded": ((2, 3, 9, 11), (5, 3, 3, 3), {"padding": (1, 1)}),
    "uneven padding": ((1, 3, 9, 11), (5, 3, 3, 2), {"padding": (0, 1, 2, 3)}),
    "strided": ((2, 4, 13, 12), (10, 4, 3, 3), {"strides": (2, 2), "padding": (1, 1)}),
    "strides of two kinds": ((1, 4, 13, 17), (6, 4, 3, 5), {"strides": (1, 3), "padding": (1, 2)}),
    "stride beyond the filter": ((1, 4, 13, 17), (6, 4, 1, 1), {"strides": (3, 2)}),
    "dilated": ((1, 4, 15, 15), (6, 4, 3, 3), {"dilation": (2, 3), "padding": (2, 2)}),
    "dilated and strided": ((1, 4, 15, 15), (6, 4, 3, 3), {"dilation": (2, 3), "padding": (2, 2), "strides": (3, 2)}),
    "pointwise": ((1, 16, 20, 20), (24, 16, 1, 1), {}),
    "groups": ((2, 4, 9, 9), (6, 2, 3, 3), {"groups": 2, "padding": (1, 1)}),
    "depthwise": ((1, 6, 9, 9), (6, 1, 3, 3), {"groups": 6, "padding": (1, 1)}),
    "wide": ((1, 8, 40, 70), (20, 8, 3, 3), {}),
    "one pixel": ((1, 4, 3, 3), (5, 4, 3, 3), {}),
    "empty batch": ((0, 4, 5, 5), (5, 4, 3, 3), {}),
    "one output channel": ((2, 4, 7, 7), (1, 4, 3, 3), {}),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_convolutions(bench: Bench, dtype: str) -> None:
    functions = {}
    for name, (x, w, attrs) in CONVOLUTIONS.items():
        functions[name] = bench.op("nn.conv2d", [tensor(x, dtype), tensor(w, dtype)], **attrs)
    for name, function in functions.items():
        x, w, _ = CONVOLUTIONS[name]
        inputs = [_random(x, dtype), _random(w, dtype, 1)]
        _check_products(bench, function, inputs, int(np.prod(w[1:])))


@pytest.mark.parametrize("layout", ["OIHW", "IOHW", "HWIO"])
def test_kernel_layouts(bench: Bench, layout: str) -> None:
    axes = {"OIHW": (0, 1, 2, 3), "IOHW": (1, 0, 2, 3), "HWIO": (2, 3, 1, 0)}[layout]
    weight = np.ascontiguousarray(_random((10, 2, 3, 3), seed=1).transpose(axes))
    types = [tensor((1, 4, 9, 9)), tensor(weight.shape)]
    function = bench.op("nn.conv2d", types, padding=(1, 1), groups=2, kernel_layout=layout)
    _check_products(bench, function, [_random((1, 4, 9, 9)), weight], 18)


def test_convolution_of_symbolic_images(bench: Bench) -> None:
    attrs: list[dict[str, Any]] = [{}, {"padding": (1, 1)}, {"strides": (2, 2), "padding": (1, 1)}]
    types = [tensor(("n", 4, "h", "w")), tensor((10, 4, 3, 3))]
    for function in [bench.op("nn.conv2d", types, **options) for options in attrs]:
        for shape in ((2, 4, 13, 12), (1, 4, 3, 3), (3, 4, 40, 5)):
            _check_products(bench, function, [_random(shape), _random((10, 4, 3, 3), seed=1)], 36)


PRODUCTS = [
    ("nn.dense", (7, 33), (10, 33)),
    ("nn.dense", (1, 130), (17, 130)),
    ("nn.dense", (2, 3, 64), (8, 64)),
    ("nn.dense", (9, 5), (1, 5)),
    ("nn.dense", (64, 64), (64, 64)),
    ("nn.dense", (3, 0), (4, 0)),
    ("nn.dense", (5,), (4, 5)),
    ("matmul", (7, 33), (33, 70)),
    ("matmul", (2, 3, 7, 5), (5, 9)),
    ("matmul", (2, 3, 7, 5), (3, 5, 9)),
    ("matmul", (2, 1, 7, 5), (1, 3, 5, 100)),
    ("matmul", (7, 5), (4, 5, 6)),
    ("matmul", (1, 5), (5, 300)),
    ("matmul", (64, 64), (64, 96)),
    ("matmul", (5, 7), (7, 1)),
    ("matmul", (3, 0), (0, 4)),
    ("matmul", (0, 3), (3, 4)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrix_products(bench: Bench, dtype: str) -> None:
    functions = [bench.op(op, [tensor(x, dtype), tensor(y, dtype)]) for op, x, y in PRODUCTS]
    for function, (_, x, y) in zip(functions, PRODUCTS, strict=True):
        _check_products(bench, function, [_random(x, dtype), _random(y, dtype, 1)], x[-1])


def test_matrix_products_of_symbolic_sizes(bench: Bench) -> None:
    functions = [
        bench.op("nn.dense", [tensor(("n", 20)), tensor((6, 20))]),
        bench.op("nn.dense", [tensor(("n", "k")), tensor(("m", "k"))]),
        bench.op("matmul", [tensor(("n", 20)), tensor((20, 6))]),
        bench.op("matmul", [tensor(("b", "n", "k")), tensor(("b", "k", "m"))]),
    ]
    for n in (0, 1, 3, 4, 9):
        cases = [((n, 20), (6, 20)), ((n, 17), (5, 17)), ((n, 20), (20, 6)), ((2, n, 17), (2, 17, 50))]
        for function, (x, y) in zip(functions, cases, strict=True):
            _check_products(bench, function, [_random(x), _random(y, seed=1)], x[-1])


WEIGHTS: list[tuple[str, Any, Any]] = [
    ("nn.dense", (9, 33), (70, 33)),
    ("nn.dense", ("n", 20), (6, 20)),
    ("nn.dense", (2, 3, 8), (5, 8)),
    ("nn.dense", (1, 33), (70, 33)),
    ("matmul", (1, 33), (33, 70)),
    ("matmul", (9, 33), (33, 200)),
    ("matmul", ("n", 3, 8), (8, 5)),
    ("matmul", (2, 3, 8), (1, 8, 5)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_with_constant_weights(bench: Bench, dtype: str) -> None:
    functions = []
    for op, x, w in WEIGHTS:
        builder = bench.builder()
        weights = builder.const(_random(w, dtype, 1))
        functions.append(bench.add(builder, builder.emit(op, builder.param("x", tensor(x, dtype)), weights)))
    for function, (op, x, w) in zip(functions, WEIGHTS, strict=True):
        for n in (1, 4, 13) if x[0] == "n" else (None,):
            shape = x if n is None else (n, *x[1:])
            array, weights = _random(shape, dtype), _random(w, dtype, 1)
            (actual,) = bench.run(function, array)
            right = weights.T if op == "nn.dense" else weights
            oracle = array.astype("float64") @ right.astype("float64")
            assert_sum(actual, oracle, np.abs(array.astype("float64")) @ np.abs(right.astype("float64")), x[-1])


@pytest.mark.parametrize(
    ("unit", "march"),
    [
        (VectorUnit(16, 16), "generic"),
        (VectorUnit(16, 32), "generic"),
        (VectorUnit(32, 16), "generic"),
        (VectorUnit(64, 32), "native"),
    ],
)
def test_every_shape_of_vector_unit_gives_right_results(
    monkeypatch: pytest.MonkeyPatch, unit: VectorUnit, march: str
) -> None:
    # Wider vectors than the machine has are split by the C compiler: slower, but right.
    monkeypatch.setattr(VectorUnit, "of_features", classmethod(lambda cls, machine, features: unit))
    bench = Bench(march=march, extra_flags=("-Wall", "-Wextra", "-Wno-psabi", "-Werror"))
    x, w = (2, 4, 13, 12), (10, 4, 3, 3)
    conv = bench.op("nn.conv2d", [tensor(x), tensor(w)], padding=(1, 1))
    product = bench.op("matmul", [tensor((7, 33)), tensor((33, 70))])
    dense = bench.op("nn.dense", [tensor((7, 33)), tensor((10, 33))])
    _check_products(bench, conv, [_random(x), _random(w, seed=1)], 36)
    _check_products(bench, product, [_random((7, 33)), _random((33, 70), seed=1)], 33)
    _check_products(bench, dense, [_random((7, 33)), _random((10, 33), seed=1)], 33)


WINDOWS: list[dict[str, Any]] = [
    {"pool_size": (2, 2)},
    {"pool_size": (3, 2), "strides": (1, 1)},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 0, 0, 1), "ceil_mode": True},
    {"pool_size": (3, 3), "strides": (1, 2), "dilation": (2, 1), "padding": (2, 1)},
    {"pool_size": (10, 9)},
]


def test_pooling(bench: Bench) -> None:
    x = _random((2, 3, 10, 9))
    x[0, 0, 4, 4] = np.nan
    clean = _random((2, 3, 10, 9))
    cases = []
    for attrs in WINDOWS:
        cases.append((bench.op("nn.max_pool2d", [tensor(x.shape)], **attrs), True, attrs))
        cases += [
            (bench.op("nn.avg_pool2d", [tensor(x.shape)], count_include_pad=include, **attrs), False, attrs)
            for include in (False, True)
        ]
    for function, is_max, attrs in cases:
        if is_max:
            np.testing.assert_array_equal(bench.run(function, x)[0], bench.reference(function, x)[0])
        else:
            _check_products(bench, function, [clean], int(np.prod(attrs["pool_size"])))


def test_pooling_of_other_dtypes_and_symbolic_images(bench: Bench) -> None:
    integers = np.random.default_rng(0).integers(-100, 100, (1, 2, 6, 6)).astype("int8")
    bytes_ = integers.view("uint8")
    images, x = [tensor(("n", 2, "h", "w"))], _random((3, 2, 7, 5))
    cases = [
        (bench.op("nn.max_pool2d", [tensor((1, 2, 6, 6), "int8")], pool_size=(2, 2)), integers),
        (bench.op("nn.max_pool2d", [tensor((1, 2, 6, 6), "uint8")], pool_size=(3, 3), padding=(1, 1)), bytes_),
        (bench.op("nn.max_pool2d", images, pool_size=(2, 2), ceil_mode=True), x),
        (bench.op("nn.avg_pool2d", images, pool_size=(2, 2), padding=(1, 1)), x),
    ]
    for function, array in cases:
        (actual,), (expected,) = bench.run(function, array), bench.reference(function, array)
        if function.bindings[0].op.name == "nn.max_pool2d":
            np.testing.assert_array_equal(actual, expected)
        else:
            oracle, magnitude = (bench.reference(function, a, wide=True)[0] for a in (array, np.abs(array)))
            assert_sum(actual, oracle, magnitude, 2 * 2 + 1)


def test_reductions(bench: Bench) -> None:
    x = _random((3, 4, 5))
    attrs: list[dict[str, Any]] = [{}, {"axis": (1,)}, {"axis": (0, -1), "keepdims": True}, {"axis": ()}]
    cases = [(bench.op(op, [tensor((3, 4, 5))], **options), x) for op in ("sum", "mean", "max") for options in attrs]
    cases += [(bench.op(op, [tensor((3, 0))], axis=(1,)), _random((3, 0))) for op in ("sum", "mean", "max")]
    for function, array in cases:
        (actual,) = bench.run(function, array)
        (oracle,) = bench.reference(function, array, wide=True)
        if function.bindings[0].op.name == "max" or array.size == 0:
            np.testing.assert_array_equal(actual, oracle.astype("float32"))
        else:
            assert_sum(actual, oracle, bench.reference(function, np.abs(array), wide=True)[0], 60)


def test_reductions_of_integers(bench: Bench) -> None:
    integers = np.random.default_rng(0).integers(-128, 127, (30, 4)).astype("int8")
    for function in [bench.op(op, [tensor((30, 4), "int8")], axis=(0,)) for op in ("sum", "max")]:
        np.testing.assert_array_equal(bench.run(function, integers)[0], bench.reference(function, integers)[0])


def test_softmax(bench: Bench) -> None:
    cases = [((3, 5), -1), ((3, 5, 4), 1), ((7,), 0), ((3, 0), 1)]
    functions = [bench.op("nn.softmax", [tensor(shape)], axis=axis) for shape, axis in cases]
    for function, (shape, _) in zip(functions, cases, strict=True):
        x = _random(shape) * 30
        (actual,), (oracle,) = bench.run(function, x), bench.reference(function, x, wide=True)
        # The difference to the maximum is rounded once, which the exponential multiplies by its size.
        bound = (np.abs(x).max(initial=0) * 2 + 16) * np.finfo("float32").eps
        np.testing.assert_array_less(np.abs(actual - oracle), bound * oracle + 1e-38)
    x = np.array([[np.nan, 1, 2, 3, 4], [np.inf, 1, 2, 3, 4], [-np.inf, 1, 2, 3, 4]], "float32")
    bound = float((4 * 2 + 16) * np.finfo("float32").eps)  # as above, with 4 the largest finite element
    (actual,), (oracle,) = bench.run(functions[0], x), bench.reference(functions[0], x, wide=True)
    np.testing.assert_allclose(actual, oracle, rtol=bound)


def test_movement(bench: Bench) -> None:
    x, y = _random((2, 6, 3)), _random((2, 1, 3), seed=1)
    cases: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("reshape", [x], {"shape": (4, 9)}),
        ("permute_dims", [x], {"axes": (2, 0, 1)}),
        ("permute_dims", [x], {}),
        ("permute_dims", [np.float32(3).reshape(())], {}),
        ("concat", [x, y, x], {"axis": 1}),
        ("concat", [x, x], {"axis": -1}),
        ("split", [x], {"sections": (1, 3, 2), "axis": 1}),
        ("concat", [x > 0, y > 0], {"axis": 1}),
    ]
    functions = [bench.op(op, [tensor(a.shape, str(a.dtype)) for a in arrays], **attrs) for op, arrays, attrs in cases]
    for function, (op, arrays, _) in zip(functions, cases, strict=True):
        for actual, expected in zip(bench.run(function, *arrays), bench.reference(function, *arrays), strict=True):
            np.testing.assert_array_equal(actual, expected, err_msg=op)
