"""Reductions and fused ops: against float64, with bounds from the arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.ir import FunctionBuilder, Value, tensor
from byoc_core.runtime.module import NDArray

from plugins.ccompiler.tests.bench import PORTABLE, Bench, Builder, assert_sum, sizes_of

UNIT = float(np.finfo("float32").eps) / 2


def _random(shape: int | Sequence[int], seed: int = 0, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 5), (1,)),
    ((3, 1031), (1,)),
    ((2, 2053), (-1,)),
    ((7,), (0,)),
    ((1,), (0,)),
    ((100003,), (0,)),
    ((5, 3, 7), (0,)),
    ((5, 3, 7), (1,)),
    ((5, 3, 7), (0, 2)),
    ((5, 3, 7), (0, 1)),
    ((2, 300, 17), (1,)),
    ((301, 530), (0,)),
    ((2, 3, 4, 5), (1, 2)),
    ((2, 3, 4, 5), (0, 1, 2, 3)),
    ((2, 3, 1, 5), (2,)),
    ((2, 0, 5), (1,)),
    ((0, 4), (1,)),
    ((3, 0), (1,)),
    ((4, 3), ()),
    ((), ()),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_of_floats(bench: Bench, dtype: str) -> None:
    cases = []
    for shape, axis in SHAPES:
        for op in ("sum", "mean", "max", "min", "prod"):
            for keepdims in (False, True)[: 1 + (op == "sum")]:
                function = bench.op(op, [tensor(shape, dtype)], axis=axis, keepdims=keepdims)
                cases.append((function, op, shape))
    for function, op, shape in cases:
        x = _random(shape, dtype=dtype)
        if op == "prod":
            x = np.exp(x / 64).astype(dtype)
        (actual,), (oracle,) = bench.run(function, x), bench.reference(function, x, wide=True)
        if op in ("max", "min") or 0 in shape:
            np.testing.assert_array_equal(actual, oracle.astype(dtype), err_msg=f"{op} {shape}")
        elif op == "prod":
            unit = float(np.finfo(dtype).eps)
            np.testing.assert_allclose(actual, oracle, rtol=x.size * unit, err_msg=str(shape))
        else:
            (magnitude,) = bench.reference(function, np.abs(x), wide=True)
            # Registers of at least four lanes, four at a time, in pieces of 1024; across memory 256 or 64 at most.
            assert_sum(actual, oracle, magnitude, min(x.size, 280))


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
def test_rows_of_every_short_length(march: str) -> None:
    bench = Bench(march=march)
    functions = {
        (op, dtype): bench.op(op, [tensor(("m", "n"), dtype)], axis=(1,))
        for op in ("sum", "prod", "max", "min")
        for dtype in ("float32", "float64")
    }
    for (op, dtype), function in functions.items():
        for length in range(72):
            x = _random((3, length), length, dtype)
            x = np.exp(x / 64).astype(dtype) if op == "prod" else x
            if length and op in ("max", "min"):
                x[1, length * 5 // 8] = np.nan
                x[2, -1], x[0, 0], x[0, length // 2] = np.inf, -np.inf, np.inf
            (actual,), (oracle,) = bench.run(function, x), bench.reference(function, x, wide=True)
            if op == "sum":
                (magnitude,) = bench.reference(function, np.abs(x), wide=True)
                assert_sum(actual, oracle, magnitude, length)
            elif op == "prod":
                np.testing.assert_allclose(actual, oracle, rtol=(length + 1) * float(np.finfo(dtype).eps))
            else:
                np.testing.assert_array_equal(actual, oracle.astype(dtype), err_msg=f"{op} {length}")


def test_long_sums_are_no_worse_than_pairwise_ones(bench: Bench) -> None:
    x = (np.random.default_rng(0).random(3_000_001) + 1).astype("float32")
    wide = x.astype("float64")
    functions = [bench.op("sum", [tensor(("n",), dtype)]) for dtype in ("float32", "float64")]
    (short,), (long,) = bench.run(functions[0], x), bench.run(functions[1], wide)
    exact = float(np.sum(wide.astype(np.longdouble)))
    pairwise = abs(float(np.sum(x)) - exact)
    assert abs(float(short) - exact) <= max(pairwise, np.spacing(np.float32(exact)))
    assert abs(float(long) - exact) <= max(abs(float(np.sum(wide)) - exact), np.spacing(exact))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_reductions_of_integers_equal_the_kernels(bench: Bench, dtype: str) -> None:
    info = np.iinfo(dtype)
    functions = [
        (bench.op(op, [tensor(shape, dtype)], axis=axis), shape)
        for shape, axis in SHAPES
        for op in ("sum", "max", "min", "prod")
    ]
    for function, shape in functions:
        x = np.random.default_rng(1).integers(info.min, info.max, shape, dtype, endpoint=True)
        np.testing.assert_array_equal(bench.run(function, x)[0], bench.reference(function, x)[0], err_msg=str(shape))


def test_reductions_of_bools_equal_the_kernels(bench: Bench) -> None:
    functions = [
        (bench.op(op, [tensor(shape, "bool")], axis=axis), shape, share)
        for shape, axis in SHAPES
        for op in ("any", "all")
        for share in (0.05, 0.95)
    ]
    for function, shape, share in functions:
        x = np.asarray(np.random.default_rng(2).random(shape) < share)
        np.testing.assert_array_equal(bench.run(function, x)[0], bench.reference(function, x)[0], err_msg=str(shape))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_infinities(bench: Bench, dtype: str) -> None:
    function = bench.op("sum", [tensor(("n",), dtype)])
    for values, expected in (([np.inf], np.inf), ([-np.inf], -np.inf), ([np.inf, -np.inf], np.nan)):
        x = np.ones(70_000, dtype)
        x[3 : 65_003 : 65_000 // len(values)][: len(values)] = values
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(bench.run(function, x)[0], expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_nan_is_the_largest_and_the_smallest(bench: Bench, axis: int) -> None:
    shape = (131, 3) if axis == 0 else (3, 131)
    functions = [bench.op(op, [tensor(shape)], axis=(axis,)) for op in ("max", "min", "sum")]
    for index in (0, 1, 16, 63, 64, 70, 127, 130):
        x = np.moveaxis(_random((131, 3)), 0, axis).copy()
        np.moveaxis(x, axis, 0)[index, 1] = np.nan
        for function in functions:
            np.testing.assert_array_equal(np.isnan(bench.run(function, x)[0]), [False, True, False])


def _softmax_bound(x: NDArray) -> Any:
    # The difference to the maximum is rounded once, which the exponential multiplies by its size.
    return (np.abs(x).max(initial=0) * 2 + 20) * 2 * UNIT


NORMALISATIONS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("nn.softmax", (3, 5), {"axis": -1}),
    ("nn.softmax", (3, 1500), {"axis": 1}),
    ("nn.softmax", (2, 10000), {"axis": 1}),
    ("nn.softmax", (3, 5, 4), {"axis": 1}),
    ("nn.softmax", (2, 700, 33), {"axis": 1}),
    ("nn.softmax", (2, 9000, 3), {"axis": 1}),
    ("nn.softmax", (7,), {"axis": 0}),
    ("nn.softmax", (3, 1), {"axis": 1}),
    ("nn.softmax", (3, 0), {"axis": 1}),
    ("nn.log_softmax", (3, 5), {"axis": -1}),
    ("nn.log_softmax", (5, 3, 4), {"axis": 0}),
    ("logsumexp", (3, 50), {"axis": (1,)}),
    ("logsumexp", (3, 5, 6), {"axis": (0, 2), "keepdims": True}),
    ("logsumexp", (3, 5), {"axis": None}),
]


def test_the_softmax_family(bench: Bench) -> None:
    functions = [bench.op(op, [tensor(shape)], **attrs) for op, shape, attrs in NORMALISATIONS]
    for function, (op, shape, _) in zip(functions, NORMALISATIONS, strict=True):
        x = _random(shape) * 30
        (actual,), (oracle,) = bench.run(function, x), bench.reference(function, x, wide=True)
        bound = _softmax_bound(x)
        scale = oracle if op == "nn.softmax" else 1 + np.abs(x).max(initial=0)
        assert np.all(np.abs(actual - oracle) <= bound * scale + 1e-38), (op, shape)


def test_logsumexp_of_infinities(bench: Bench) -> None:
    function = bench.op("logsumexp", [tensor((5, 2))], axis=(1,))
    inf = np.inf
    x = np.array([[inf, 1], [-inf, -inf], [-inf, 3], [inf, -inf], [np.nan, 1]], "float32")
    np.testing.assert_array_equal(bench.run(function, x)[0], [inf, -inf, 3, inf, np.nan])


def _norm_case(builder: FunctionBuilder, op: str, shape: Sequence[Any], attrs: dict[str, Any]) -> Value:
    x = builder.param("x", tensor(shape))
    axes = attrs.get("axes", (-1,) if op in ("nn.layer_norm", "nn.rms_norm") else (1,))
    sizes = tuple(shape[axis] for axis in axes)
    names = ("gamma",) if op == "nn.rms_norm" else ("gamma", "beta")
    result = builder.emit(op, x, *(builder.param(name, tensor(sizes)) for name in names), **attrs)
    assert not isinstance(result, tuple)
    return result


NORMS: list[tuple[str, Any, dict[str, Any]]] = [
    ("nn.layer_norm", (4, 768), {}),
    ("nn.layer_norm", (2, 3, 5000), {}),
    ("nn.layer_norm", (2, 3, 17), {"axes": (1, 2)}),
    ("nn.layer_norm", (2, 3, 17), {"axes": (1,)}),
    ("nn.layer_norm", ("n", "m", 33), {}),
    ("nn.layer_norm", (0, 5), {}),
    ("nn.rms_norm", (4, 100), {"axes": (-1,)}),
    ("nn.rms_norm", (4, 10, 7), {"axes": (0, 2)}),
    ("nn.instance_norm", (2, 3, 5, 7), {}),
    ("nn.instance_norm", (2, 3, "h", "w"), {}),
    ("nn.instance_norm", (2, 3, 1), {}),
    ("nn.group_norm", (2, 6, 5, 7), {"groups": 3}),
    ("nn.group_norm", (2, 6, 16), {"groups": 1}),
    ("nn.group_norm", ("n", 6, "h", "w"), {"groups": 2}),
    ("nn.group_norm", (2, 6), {"groups": 2}),
]


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
def test_norms(march: str) -> None:
    bench = Bench(march=march)
    functions = []
    for op, shape, attrs in NORMS:
        builder = bench.builder()
        functions.append(bench.add(builder, _norm_case(builder, op, shape, attrs)))
    for function, (op, shape, _) in zip(functions, NORMS, strict=True):
        sizes = [dim if isinstance(dim, int) else 3 + index for index, dim in enumerate(shape)]
        x = _random(sizes) * 3 + 1
        rest = [_random(sizes_of(param), 1 + k) for k, param in enumerate(function.params[1:])]
        (actual,), (oracle,) = bench.run(function, x, *rest), bench.reference(function, x, *rest, wide=True)
        # Sums of registers of four lanes, four at a time, in pieces; then half a dozen roundings.
        gamma = np.abs(rest[0]).max(initial=0) * 2 * UNIT * 160
        assert np.all(np.abs(actual - oracle) <= gamma * (1 + np.abs(x).max(initial=0))), (op, shape)


def _programs() -> dict[str, Callable[[Any], list[Any]]]:
    def parameter(builder: Builder, *shape: int | str) -> Any:
        return builder.param("x", tensor(shape))

    def scaled_and_masked(b: Builder) -> list[Any]:
        x, mask = parameter(b, 3, 4, 20, 33), b.param("mask", tensor((3, 1, 1, 33)))
        scores = b.emit("add", b.emit("multiply", x, b.const(np.float32(0.125))), mask)
        return [b.emit("nn.softmax", scores, axis=-1)]

    def residual_norm(b: Builder) -> list[Any]:
        x, y = parameter(b, 5, 96), b.param("y", tensor((5, 96)))
        total = b.emit("add", x, y)
        return [b.emit("nn.layer_norm", total, b.const(_random(96)), b.const(_random(96, 1))), total]

    def spelled_out(b: Builder) -> list[Any]:
        x = parameter(b, "n", 40)
        centred = b.emit("subtract", x, b.emit("mean", x, axis=(-1,), keepdims=True))
        variance = b.emit("mean", b.emit("multiply", centred, centred), axis=(-1,), keepdims=True)
        root = b.emit("sqrt", b.emit("add", variance, b.const(np.float32(1e-5))))
        return [b.emit("multiply", b.emit("divide", centred, root), b.const(_random(40)))]

    def squeezed(b: Builder) -> list[Any]:
        x = parameter(b, 6, 50)
        total = b.emit("sum", b.emit("abs", x), axis=(1,))
        return [b.emit("sqrt", total), total]

    def over_columns(b: Builder) -> list[Any]:
        x = parameter(b, 70, 9)
        top = b.emit("max", x, axis=(0,))
        return [b.emit("subtract", x, top), b.emit("multiply", top, top)]

    def misaligned(b: Builder) -> list[Any]:
        x = parameter(b, 8, 8)
        return [b.emit("subtract", x, b.emit("max", x, axis=(1,)))]

    def two_axes(b: Builder) -> list[Any]:
        x = parameter(b, 8, 12)
        rows, columns = (b.emit("sum", x, axis=(axis,), keepdims=True) for axis in (0, 1))
        return [b.emit("add", b.emit("multiply", x, rows), columns)]

    def whole_and_spread(b: Builder) -> list[Any]:
        x = parameter(b, 400, 300)
        return [b.emit("divide", x, b.emit("max", b.emit("abs", x), keepdims=True))]

    def long_rows_wait_in_the_result(b: Builder) -> list[Any]:
        return [b.emit("nn.softmax", b.emit("exp", parameter(b, 2, "m")), axis=-1)]

    def long_rows_are_computed_again(b: Builder) -> list[Any]:
        return [b.emit("sum", b.emit("nn.softmax", parameter(b, 2, "m"), axis=-1), axis=(-1,))]

    def all_of_size_one(b: Builder) -> list[Any]:
        return [b.emit("nn.softmax", parameter(b, 1, 1), axis=-1)]

    def channel_bias_from_a_sum(b: Builder) -> list[Any]:
        x = parameter(b, 2, 3, 5)
        return [b.emit("nn.bias_add", x, b.emit("max", x, axis=(0, 2)), axis=1)]

    def large_whole(b: Builder) -> list[Any]:
        x = parameter(b, 70001)
        return [b.emit("sqrt", b.emit("mean", b.emit("multiply", x, x))), b.emit("abs", x)]

    def a_mask_of_its_own(b: Builder) -> list[Any]:
        x = parameter(b, 6, 31)
        top = b.emit("max", x, axis=(1,), keepdims=True)
        return [b.emit("any", b.emit("less", x, b.emit("negative", top)), axis=(1,))]

    return {name: value for name, value in locals().items() if callable(value) and name != "parameter"}


PROGRAMS = _programs()
GROUPS: dict[str, int] = {"misaligned": 2, "two_axes": 2, "whole_and_spread": 2}


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("march", ["generic", "native"])
def test_fused_programs(march: str, *, fuse: bool) -> None:
    from byoc_ccompiler.grouping import form_groups
    from byoc_ccompiler.kernels.composites import take_apart
    from byoc_ccompiler.registry import FAMILIES
    from byoc_ccompiler.steps import flatten
    from byoc_core.authoring.csource import ConstantPool

    bench = Bench(march=march, fuse=fuse)
    functions: dict[str, Any] = {}
    for name, write in PROGRAMS.items():
        builder = bench.builder()
        functions[name] = bench.add(builder, *write(builder))
    for name, function in functions.items():
        steps = take_apart(flatten(function)[0], ConstantPool({}))
        groups = form_groups(steps, FAMILIES, fuse=fuse)
        assert len(groups) == (GROUPS.get(name, 1) if fuse else len(function.bindings)), name
        inputs = []
        for k, param in enumerate(function.params):
            inputs.append(_random([dim if isinstance(dim, int) else 1234 for dim in param.type.shape], k))
        for actual, oracle in zip(
            bench.run(function, *inputs), bench.reference(function, *inputs, wide=True), strict=True
        ):
            if actual.dtype == bool:
                np.testing.assert_array_equal(actual, oracle, err_msg=name)
                continue
            # Every program is a few sums of at most 280 terms' error and a few roundings, of values of this size.
            largest = max(1.0, float(np.abs(oracle).max()))
            assert np.abs(actual - oracle).max() <= 600 * UNIT * largest, name


@pytest.mark.parametrize("opt_level", [1, 2])
def test_an_empty_row_gives_no_warning(opt_level: int) -> None:
    """The functions combining a row's elements get an array, though nothing in the array is read."""
    bench = Bench(opt_level=opt_level)
    functions = {}
    for dtype in ("float32", "float64"):
        for shape in ((1, 0), (3, 0), (2, 4, 6, 0)):
            builder = bench.builder()
            x = builder.param("x", tensor(shape, dtype))
            value = builder.bind("nn.softmax", [x], {"axis": -1}).result
            square = builder.bind("multiply", [x, x], {}).result
            total = builder.bind("sum", [square], {"axis": (-1,)}).result
            function = bench.add(builder, value, total)
            functions[function] = np.empty(shape, dtype)
    for function, empty in functions.items():
        weights, sums = bench.run(function, empty)
        assert weights.shape == empty.shape
        np.testing.assert_array_equal(sums, np.zeros(empty.shape[:-1]))
