"""Ops in a shared loop, values reaching memory, and unchanged results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_ccompiler.grouping import form_groups
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.steps import flatten
from byoc_core.authoring.csource import WORKSPACE_ALIGNMENT
from byoc_core.dims import evaluate, symbol
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.symbolic_storage import SymbolicInterval, plan_block
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, Bench, assert_sum


def _random(shape: int | Sequence[int], seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _kernels(function: Function) -> list[list[str]]:
    return [[step.op for step in group.steps] for group in form_groups(flatten(function)[0], FAMILIES)]


def _check(bench: Bench, function: Function, *inputs: NDArray) -> None:
    for actual, expected in zip(bench.run(function, *inputs), bench.reference(function, *inputs), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_s002_3_several_outputs(bench: Bench) -> None:
    builder = bench.builder()
    x, y = builder.param("x", tensor((3, 4))), builder.param("y", tensor((3, 4)))
    function = bench.add(builder, builder.emit("add", x, y), builder.emit("subtract", x, y))
    assert _kernels(function) == [["add", "subtract"]]
    _check(bench, function, _random((3, 4)), _random((3, 4), 1))


def test_s002_3_diamonds_and_repeated_operands(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((3, 4)))
    a = builder.emit("nn.relu", x)
    b = builder.emit("multiply", a, a)
    c = builder.emit("subtract", b, a)
    function = bench.add(builder, builder.emit("add", c, b))
    assert _kernels(function) == [["nn.relu", "multiply", "subtract", "add"]]
    assert bench.module.get_source().count("for (") == 1
    _check(bench, function, _random((3, 4)))


def test_s002_3_reversed_and_unused_parameters(bench: Bench) -> None:
    builder = bench.builder()
    x, _, z = (builder.param(name, tensor((4,))) for name in ("x", "unused", "z"))
    function = bench.add(builder, builder.emit("subtract", z, x))
    _check(bench, function, _random(4), _random(4, 1), _random(4, 2))


def test_s002_3_outputs_that_are_parameters_constants_or_repeated(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((4,)))
    y = builder.emit("nn.relu", x)
    large, small = builder.const(_random((5, 7))), builder.const(np.float32(2.5))
    function = bench.add(builder, y, x, large, y, small, x)
    _check(bench, function, _random(4))


def test_s002_3_constants_of_every_size(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((20, 3)))
    y = builder.emit("multiply", x, builder.const(np.float32(1.25)))
    y = builder.emit("add", y, builder.const(_random(3)))
    y = builder.emit("subtract", y, builder.const(_random((20, 3), 1)))
    y = builder.emit("maximum", y, builder.const(np.array([[np.nan], *[[-np.inf]] * 19], "float32")))
    function = bench.add(builder, y)
    source = bench.module.get_source()
    assert "1.25f" in source
    assert "BYOC_CONSTANT_TABLE(2);" in source
    _check(bench, function, _random((20, 3), 2))


def test_names_that_c_or_the_kernel_uses_itself(bench: Bench) -> None:
    builder = bench.builder()
    names = [
        "int",
        "out",
        "i",
        "status",
        "workspace",
        "malloc",
        "f0_0",
        "dim_n",
        "a b",
        "é",
        "x",
        "x",
        "args",
        "scratch",
    ]
    params = [builder.param(name, tensor(("n", 2))) for name in names]
    total = params[0]
    for param in params[1:]:
        total = builder.emit("add", total, param)
    function = bench.add(builder, total)
    _check(bench, function, *(_random((3, 2), seed) for seed in range(len(names))))


def test_what_follows_a_convolution_is_computed_on_its_sums(bench: Bench) -> None:
    builder = bench.builder()
    x, residual = builder.param("x", tensor((1, 3, 8, 8))), builder.param("r", tensor((1, 4, 8, 8)))
    conv = builder.emit("nn.conv2d", x, builder.const(_random((4, 3, 3, 3))), padding=(1, 1))
    biased = builder.emit("nn.bias_add", conv, builder.const(_random(4)), axis=1)
    added = builder.emit("add", biased, residual)
    # Another op of the same shape has no business in the convolution's loop.
    apart = builder.emit("nn.relu", residual)
    function = bench.add(builder, builder.emit("nn.relu", added), apart)
    assert _kernels(function) == [["nn.conv2d", "nn.bias_add", "add", "nn.relu"], ["nn.relu"]]
    inputs = _random((1, 3, 8, 8)), _random((1, 4, 8, 8), 1)
    actual, expected = bench.run(function, *inputs), bench.reference(function, *inputs, wide=True)
    plain = bench.builder()
    x, residual = plain.param("x", tensor((1, 3, 8, 8))), plain.param("r", tensor((1, 4, 8, 8)))
    conv = plain.emit("nn.conv2d", x, plain.const(np.abs(_random((4, 3, 3, 3)))), padding=(1, 1))
    total = plain.emit("add", plain.emit("nn.bias_add", conv, plain.const(np.abs(_random(4))), axis=1), residual)
    (magnitude,) = bench.reference(bench.add(plain, total), *map(np.abs, inputs), wide=True)
    assert_sum(actual[0], expected[0], magnitude, 3 * 3 * 3 + 2)  # relu does not enlarge an error
    np.testing.assert_array_equal(actual[1], expected[1].astype("float32"))


def test_a_sum_that_is_needed_elsewhere_is_stored_too(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((5, 8)))
    product = builder.emit("nn.dense", x, builder.const(_random((6, 8))))
    active = builder.emit("nn.relu", product)
    top = builder.emit("max", product, axis=(1,), keepdims=True)
    function = bench.add(builder, builder.emit("subtract", active, top), product)
    assert _kernels(function) == [["nn.dense", "nn.relu"], ["max", "subtract"]]
    x_value = _random((5, 8), 3)
    actual, expected = bench.run(function, x_value), bench.reference(function, x_value, wide=True)
    magnitude = np.abs(x_value).astype("float64") @ np.abs(_random((6, 8)).astype("float64")).T
    assert_sum(actual[0], expected[0], magnitude + magnitude.max(axis=1, keepdims=True), 8 + 1)
    assert_sum(actual[1], expected[1], magnitude, 8)


def test_dead_code_is_dropped(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((4,)))
    builder.emit("exp", builder.emit("negative", x))
    function = bench.add(builder, builder.emit("nn.relu", x))
    assert _kernels(function) == [["nn.relu"]]
    _check(bench, function, _random(4))


def test_a_split_of_which_one_part_is_unused(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((2, 6)))
    first, _, last = builder.emit("split", x, sections=(1, 2, 3), axis=1)
    function = bench.add(builder, last, builder.emit("nn.relu", first))
    _check(bench, function, _random((2, 6)))


def test_a_failed_allocation_is_an_error(bench: Bench) -> None:
    from byoc_core.errors import ExecutionError

    builder = bench.builder()
    x = builder.param("x", tensor(("n",)))
    big = builder.emit("broadcast_to", x, shape=(1 << 24, 1 << 22, "n"))
    # Reductions of other axes are other kernels, so that the tensor between them must be stored.
    function = bench.add(builder, builder.emit("max", big), builder.emit("max", big, axis=(0, 1)))
    with pytest.raises(ExecutionError) as caught:
        bench.module.get_function(function.name).impl(_random(3), np.zeros((), "float32"), np.zeros(3, "float32"))
    assert str(caught.value) == f"function `{function.name}`: no memory for intermediate tensors"


_REQUESTS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(0, 6)), max_size=25)


@given(requests=_REQUESTS, scale=st.sampled_from([1, 3]))
def test_workspace_plans_never_overlap(requests: list[tuple[int, int, int]], scale: int) -> None:
    ordered = sorted(requests, key=lambda request: request[1])
    dims = [symbol("n") * nbytes if nbytes % 2 else nbytes for nbytes, _, _ in ordered]
    intervals = [
        SymbolicInterval(dim, first, first + more) for dim, (_, first, more) in zip(dims, ordered, strict=True)
    ]
    offsets, total = plan_block(intervals, WORKSPACE_ALIGNMENT)
    ranges = [
        (evaluate(offset, {"n": scale}), evaluate(r.nbytes, {"n": scale}), r)
        for offset, r in zip(offsets, intervals, strict=True)
    ]
    for start, size, request in ranges:
        assert start % 64 == 0
        assert start + size <= evaluate(total, {"n": scale})
        for other_start, other_size, other in ranges:
            if (
                other is not request
                and other.start <= request.end
                and request.start <= other.end
                and size
                and other_size
            ):
                assert start + size <= other_start or other_start + other_size <= start


OPS = ("add", "subtract", "multiply", "maximum", "minimum", "nn.relu", "negative", "sqrt", "where")
SHAPES = ((3, 4), (4,), (3, 1), (), (2, 3, 4))


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    count = draw(st.integers(2, 14))
    return [(draw(st.sampled_from(OPS)), [draw(st.integers(0, 1 << 16)) for _ in range(3)]) for _ in range(count)]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.lists(programs(), min_size=8, max_size=8), seed=st.integers(0, 100))
def test_random_graphs_equal_the_kernels_bit_for_bit(batch: list[Any], seed: int) -> None:
    bench = Bench(opt_level=MEANING, march="generic")
    functions = []
    for program in batch:
        builder = bench.builder()
        values: list[Any] = [builder.param(f"x{k}", tensor(shape)) for k, shape in enumerate(SHAPES)]
        values.append(builder.const(_random((3, 4), seed)))
        for op, picks in program:
            arity = {"nn.relu": 1, "negative": 1, "sqrt": 1}.get(op, 2)
            operands = [values[pick % len(values)] for pick in picks[:arity]]
            if op == "where":
                operands = [builder.emit("less", *operands), *operands]
            values.append(builder.emit(op, *operands))
        functions.append(bench.add(builder, values[-1], values[len(values) // 2], values[6]))
    inputs = [_random(shape, seed + k) for k, shape in enumerate(SHAPES)]
    for function in functions:
        _check(bench, function, *inputs)


def test_a_batch_norm_of_constants_has_the_bits_of_one_of_inputs(bench: Bench) -> None:
    """The factor is computed while writing the code, with the roundings of the code."""
    shape, rng = (2, 5, 19), np.random.default_rng(0)
    parameters = [rng.uniform(0.1, 2, 5).astype(np.float32) for _ in range(4)]
    functions = []
    for constant in (False, True):
        builder = bench.builder()
        x = builder.param("x", tensor(shape))
        names = ("gamma", "beta", "mean", "variance")
        operands = [
            builder.const(value) if constant else builder.param(name, tensor((5,)))
            for name, value in zip(names, parameters, strict=True)
        ]
        norm = builder.emit("nn.batch_norm", x, *operands, axis=1, epsilon=1e-3)
        functions.append(bench.add(builder, builder.emit("nn.relu", norm)))
    image = _random(shape)
    (expected,), (actual,) = bench.run(functions[0], image, *parameters), bench.run(functions[1], image)
    np.testing.assert_array_equal(actual, expected)
    assert bench.module.get_source().count("sqrtf(") == 1


@pytest.mark.parametrize("sizes", [("int", "_int"), ("\u00e9", "\u00e8"), ("a__b", "a_b")])
def test_sizes_with_similar_names(bench: Bench, sizes: tuple[str, str]) -> None:
    builder = bench.builder()
    x, y = (builder.param(name, tensor((size, 2))) for name, size in zip("xy", sizes, strict=True))
    joined = builder.emit("concat", builder.emit("negative", x), builder.emit("abs", y))
    _check(bench, bench.add(builder, joined), _random((2, 2)), _random((5, 2)))
