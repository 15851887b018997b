"""Kernels need little of the stack: a thread may have only 128 kB, with musl, and kernels are called by others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import byoc_ccompiler.backend as ccompiler
import numpy as np
import pytest
from byoc_ccompiler.options import CCompilerOptions
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.ir import Value, tensor
from byoc_core.native.toolchain import find_toolchain
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, new_function
from pydantic import ValidationError

from plugins.ccompiler.tests.bench import PORTABLE, WARNINGS, Bench

LARGEST_FRAMES = {"generic": 96 << 10, "native": 96 << 10, PORTABLE: 4 << 10}


@pytest.fixture(params=LARGEST_FRAMES)
def make_checked(request: pytest.FixtureRequest) -> Callable[..., Bench]:
    """Return, for an optimisation level and other options, a compiler refusing larger frames."""
    if any("-fsanitize" in word for word in find_toolchain().command):
        pytest.skip("sanitizers put fences between the variables of a frame")
    flags = (*WARNINGS, f"-Wframe-larger-than={LARGEST_FRAMES[request.param]}")
    return lambda opt_level, **options: Bench(march=request.param, opt_level=opt_level, extra_flags=flags, **options)


def test_all_canonical_cases(make_checked: Callable[..., Bench]) -> None:
    bench = make_checked(0)
    context = CompileContext("ccompiler", CCompilerOptions.model_validate({}))
    for name, cases in canonical_cases(default_ops()).items():
        for case in cases:
            function, binding = new_function(
                default_ops()[name], case.types(), case.attrs, name=f"f{len(bench.functions)}"
            )
            if not isinstance(ccompiler.byoc_supports(binding, context), Rejection):
                bench.functions.append(function)
    assert len(bench.functions) > 500
    assert bench.module.function_names


# Operand shapes of float64, and attributes: what makes the arrays of each kernel as large as they become.
LARGE: list[tuple[str, list[tuple[Any, ...]], dict[str, Any]]] = [
    ("matmul", [("m", "k"), ("k", "n")], {}),
    ("matmul", [("m", 1000), (1000, "n")], {}),
    ("nn.dense", [(500, "k"), (2, "k")], {}),
    ("nn.attention", [(1, 2, "s", 512), (1, 2, "t", 512), (1, 2, "t", 512)], {}),
    ("nn.softmax", [("n", 4096)], {}),
    ("nn.softmax", [(8, 4096, "n")], {"axis": 1}),
    ("nn.layer_norm", [("n", 2000), (2000,), (2000,)], {}),
    ("nn.conv2d", [(1, 2, 99, 99), (3, 2, 91, 90)], {}),
    ("nn.conv2d", [(1, 9, "h", "w"), (64, 9, 9, 9)], {}),
    ("nn.conv2d", [(1, 300, 99, 99), (300, 1, 7, 7)], {"groups": 300, "strides": (2, 2)}),
    ("nn.conv2d_transpose", [(1, 9, "h", "w"), (9, 4, 5, 5)], {}),
    ("nn.conv3d", [(1, 9, 9, 9, 99), (4, 9, 5, 5, 5)], {}),
    ("nn.max_pool2d", [(1, 99, 99, 999)], {"pool_size": (9, 9), "layout": "NHWC"}),
    ("nn.avg_pool2d", [(1, 99, 99, 999)], {"pool_size": (3, 3), "layout": "NHWC"}),
]


def test_what_needs_most(make_checked: Callable[..., Bench]) -> None:
    bench = make_checked(2)
    for op, shapes, attrs in LARGE:
        bench.op(op, [tensor(shape, "float64") for shape in shapes], **attrs)
    builder = bench.builder()
    x = builder.param("x", tensor((1, 64, 56, 56), "float64"))
    weight = builder.const(np.ones((64, 64, 3, 3)))
    bench.add(builder, *builder.bind("nn.conv2d", [x, weight], {"padding": (1, 1, 1, 1)}).results)
    for axis in (0, 1):
        builder = bench.builder()
        x = builder.param("x", tensor((900, 1100), "float64"))
        operands = [builder.param(f"y{index}", tensor((900, 1100), "float64")) for index in range(25)]
        sums = [builder.emit("sum", builder.emit("multiply", x, other), axis=(axis,)) for other in operands]
        bench.add(builder, *sums)
    assert bench.module.function_names


# By options: operands and constants that make the arrays of kernels with packed constants as large as they become.
PACKED: dict[str, tuple[dict[str, str], list[tuple[str, tuple[int, ...], tuple[int, ...]]]]] = {
    "few pixels": (
        {"winograd": "off"},
        [("nn.conv2d", (1, 16, 18, 17), (128, 17, 11, 11)), ("nn.conv2d", (1, 22, 22, 17), (128, 17, 15, 15))],
    ),
    "bfloat16": (
        {"precision": "bfloat16"},
        [
            ("nn.conv2d", (1, 40, 40, 32), (32, 32, 5, 8)),
            ("nn.conv2d", (1, 40, 40, 32), (32, 32, 6, 8)),
            ("nn.conv2d", (1, 40, 40, 17), (70, 17, 16, 16)),
            ("matmul", (400, 1280), (1280, 32)),
            ("matmul", (400, 1536), (1536, 32)),
        ],
    ),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_constants(make_checked: Callable[..., Bench], name: str, request: pytest.FixtureRequest) -> None:
    is_portable = request.node.callspec.params["make_checked"] == PORTABLE
    options, cases = PACKED[name]
    if is_portable and "precision" in options:
        with pytest.raises(ValidationError, match="portable C has float32 products only"):
            make_checked(2, **options)
        return
    bench = make_checked(2, **options)
    for op, shape, weight_shape in cases:
        builder = bench.builder()
        operands: list[Value] = [builder.param("x", tensor(shape)), builder.const(np.ones(weight_shape, "float32"))]
        bench.add(builder, *builder.bind(op, operands, {"data_layout": "NHWC"} if op == "nn.conv2d" else {}).results)
    assert bench.module.function_names


def test_a_filter_with_too_many_taps_for_pointers_is_right() -> None:
    bench = Bench(opt_level=1)
    function = bench.op("nn.conv2d", [tensor((1, 2, 92, 92)), tensor((2, 2, 91, 91))])
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-2, 3, shape).astype("float32") for shape in ((1, 2, 92, 92), (2, 2, 91, 91))]
    np.testing.assert_array_equal(bench.run(function, *inputs)[0], bench.reference(function, *inputs)[0])
