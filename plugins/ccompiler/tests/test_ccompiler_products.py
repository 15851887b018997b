"""Matrix products of all forms: against a float64 oracle with the bound of Higham, ch. 3, integers to the last bit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import byoc_ccompiler.kernel as kernel_module
import byoc_core
import numpy as np
import pytest
from byoc_core import FunctionBuilder
from byoc_core.authoring import c
from byoc_core.dims import evaluate
from byoc_core.ir import Function, IRModule, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench, assert_sum
from plugins.ccompiler.tests.emulated_instructions import need_processor

MARCHES = ["generic", "native"]


def _random(shape: int | Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _check(bench: Bench, function: Function, inputs: list[Any], length: int) -> None:
    (actual,) = bench.run(function, *inputs)
    (oracle,) = bench.reference(function, *inputs, wide=True)
    # The magnitude of the terms: the same function of the sizes of all numbers, constants included.
    constants = {digest: np.abs(array) for digest, array in bench.constants.items()}
    bench.constants, previous = constants, bench.constants
    try:
        (magnitude,) = bench.reference(function, *(np.abs(array) for array in inputs), wide=True)
    finally:
        bench.constants = previous
    assert_sum(actual, oracle, magnitude, length)


def _product(
    bench: Bench, op: str, x: Sequence[int], y: Sequence[int], dtype: str, *, is_constant: bool
) -> tuple[Function, list[Any]]:
    """Return a function of a single product and the inputs; the right operand is a constant or an input."""
    arrays = [_random(x, dtype), _random(y, dtype, 1)]
    builder = bench.builder()
    left = builder.param("x", tensor(x, dtype))
    right = builder.const(arrays[1]) if is_constant else builder.param("y", tensor(y, dtype))
    return bench.add(builder, builder.emit(op, left, right)), arrays[: 1 if is_constant else 2]


# Rows, length of the sums, columns: below, at and above the sizes of tiles, chunks and blocks.
SIZES = [
    (1, 1, 1),
    (1, 100, 65),
    (2, 3, 130),
    (3, 800, 15),
    (5, 17, 16),
    (6, 64, 64),
    (13, 1601, 33),
    (49, 769, 70),
    (50, 5, 2),
    (97, 40, 1),
    (200, 900, 37),
    (0, 5, 7),
    (5, 0, 7),
    (5, 7, 0),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("march", [*MARCHES, "x86-64-v3", PORTABLE])
def test_all_forms_on_every_vector_unit(march: str, dtype: str) -> None:
    if march == "x86-64-v3":
        need_processor("avx2", "fma")
    bench = Bench(march=march)
    cases = []
    for m, k, n in SIZES:
        for is_constant in (False, True):
            cases.append((*_product(bench, "matmul", (m, k), (k, n), dtype, is_constant=is_constant), k))
            cases.append((*_product(bench, "nn.dense", (m, k), (n, k), dtype, is_constant=is_constant), k))
    for function, inputs, length in cases:
        _check(bench, function, inputs, length)


RANKS = [
    ((5,), (5,)),
    ((33,), (33, 70)),
    ((33,), (2, 3, 33, 7)),
    ((70, 33), (33,)),
    ((2, 3, 70, 33), (33,)),
    ((2, 1, 7, 33), (4, 33, 9)),
    ((4, 7, 33), (2, 1, 33, 70)),
    ((3, 1, 2, 20, 5), (5, 2, 5, 64)),
    ((12, 16, 8), (12, 8, 16)),
    ((0, 3, 4), (0, 4, 5)),
    ((2, 3, 4, 5), (1, 1, 5, 6)),
    ((4, 7), (1, 7, 5)),
    ((4, 7), (3, 1, 7, 5)),
    ((2, 4, 7), (1, 1, 1, 7, 5)),
]


@pytest.mark.parametrize("is_constant", [False, True])
def test_vectors_and_stacks(bench: Bench, is_constant: bool) -> None:
    cases = [_product(bench, "matmul", x, y, "float32", is_constant=is_constant) for x, y in RANKS]
    for (function, inputs), (x, _) in zip(cases, RANKS, strict=True):
        _check(bench, function, inputs, x[-1])


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_products_of_any_sizes(data: st.DataObject) -> None:
    # Several at a time: a run of the C compiler costs more than a product.
    sizes = st.sampled_from([1, 2, 3, 5, 8, 13, 16, 31, 48, 64, 67, 100])
    bench, cases = Bench(opt_level=MEANING), []
    for _ in range(8):
        m, k, n, batch = (data.draw(sizes) for _ in range(4))
        op = data.draw(st.sampled_from(["matmul", "nn.dense"]))
        dtype = data.draw(st.sampled_from(["float32", "float64"]))
        leads = st.sampled_from([(), (1,), (batch,), (1, 1), (1, batch), (batch, 1), (1, batch, 1)])
        lead = data.draw(leads)
        stack = data.draw(leads) if op == "matmul" else ()
        right = (n, k) if op == "nn.dense" else (*stack, k, n)
        is_constant = data.draw(st.booleans())
        cases.append((*_product(bench, op, (*lead, m, k), right, dtype, is_constant=is_constant), k))
    for function, inputs, length in cases:
        _check(bench, function, inputs, length)


def test_symbolic_sizes(bench: Bench) -> None:
    types: list[tuple[str, Any, Any]] = [
        ("nn.dense", ("n", 20), (70, 20)),
        ("nn.dense", ("n", "k"), ("m", "k")),
        ("matmul", ("n", "k"), ("k", "m")),
        ("matmul", ("b", "n", "k"), ("b", "k", "m")),
        ("matmul", ("b", "n", "k"), ("c", "k", "m")),
        ("matmul", ("k",), ("b", "k", "m")),
        ("matmul", ("b", "m", "k"), ("k",)),
        ("matmul", (1, "k"), ("k", "m")),
        ("matmul", ("n", 3, 33), (33, 70)),
    ]
    functions = [bench.op(op, [tensor(x), tensor(y)]) for op, x, y in types]
    for n, k, m in ((1, 1, 1), (50, 800, 70), (7, 5, 64), (7, 5, 80), (2, 9, 48), (0, 0, 3)):
        sizes = {"b": 2, "c": 1, "n": n, "k": k, "m": m}
        for function, (_, x, y) in zip(functions, types, strict=True):
            shapes = [tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape) for shape in (x, y)]
            inputs = [_random(shape, seed=seed) for seed, shape in enumerate(shapes)]
            _check(bench, function, inputs, inputs[0].shape[-1])


def test_constant_weights_and_any_number_of_rows(bench: Bench) -> None:
    cases = []
    for depth, width in ((20, 70), (900, 130), (2000, 5)):
        builder = bench.builder()
        weights = builder.const(_random((depth, width), seed=1))
        function = bench.add(builder, builder.emit("matmul", builder.param("x", tensor(("n", 2, depth))), weights))
        cases.append((function, depth))
    for rows in (0, 1, 3, 24, 100):
        for function, depth in cases:
            _check(bench, function, [_random((rows, 2, depth))], depth)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_wrap_around(bench: Bench, dtype: str) -> None:
    shapes = [((7, 33), (33, 70)), ((2, 1, 3, 4), (3, 4, 5)), ((5,), (5, 3)), ((3, 0), (0, 2)), ((4, 5), (5,))]
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    cases = []
    for op, x, y in [*(("matmul", x, y) for x, y in shapes), ("nn.dense", (2, 3, 9), (70, 9))]:
        inputs = [rng.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in (x, y)]
        cases.append((bench.op(op, [tensor(x, dtype), tensor(y, dtype)]), inputs))
    for function, inputs in cases:
        np.testing.assert_array_equal(bench.run(function, *inputs)[0], bench.reference(function, *inputs)[0])


def _with_epilogue(bench: Bench, x: Sequence[int | str], weights: NDArray, *, is_constant: bool) -> Function:
    """Return a product with a value for each column, for each row and for each element, stored twice."""
    builder = bench.builder()
    columns = weights.shape[-1]
    left = builder.param("x", tensor(x))
    right = builder.const(weights) if is_constant else builder.param("w", tensor(weights.shape))
    shape = (*x[:-1], columns)
    bias, scale = builder.param("bias", tensor((columns,))), builder.param("scale", tensor((*x[:-1], 1)))
    residual = builder.param("residual", tensor(shape))
    summed = builder.emit("nn.bias_add", builder.emit("matmul", left, right), bias)
    scaled = builder.emit("multiply", summed, scale)
    function: Function = bench.add(
        builder, builder.emit("add", scaled, residual), builder.emit("less", scaled, residual)
    )
    return function


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(("x", "columns"), [((50, 40), 64), ((3, 17, 900), 70), ((1, 40), 130), (("n", 5, 40), 70)])
def test_what_follows_is_computed_on_the_sums(x: tuple[Any, ...], columns: int, is_constant: bool) -> None:
    for march in MARCHES:
        bench = Bench(march=march)
        weights = _random((x[-1], columns), seed=1)
        function = _with_epilogue(bench, x, weights, is_constant=is_constant)
        for n in (1, 13) if x[0] == "n" else (0,):
            shape = (n, *x[1:]) if n else x
            rows = (*shape[:-1], columns)
            inputs = [_random(shape), *([] if is_constant else [weights])]
            addends = [_random(size, seed=2 + seed) for seed, size in enumerate([(columns,), (*shape[:-1], 1), rows])]
            bias, scale, residual = (array.astype("float64") for array in addends)
            actual, is_less = bench.run(function, *inputs, *addends)
            wide = shape[-1] + 3
            exact = inputs[0].astype("float64") @ weights.astype("float64")
            magnitude = np.abs(inputs[0]).astype("float64") @ np.abs(weights).astype("float64")
            unit = np.finfo("float32").eps / 2
            # K products and sums, the bias, the scale and the residual each round once.
            bound = wide * unit / (1 - wide * unit) * ((magnitude + np.abs(bias)) * np.abs(scale) + np.abs(residual))
            scaled = (exact + bias) * scale
            assert np.all(np.abs(actual - (scaled + residual)) <= bound + unit * np.abs(scaled + residual))
            clear = np.abs(scaled - residual) > bound
            np.testing.assert_array_equal(is_less[clear], (scaled < residual)[clear])


def test_a_comparison_alone_is_stored_in_its_own_dtype(bench: Bench) -> None:
    # The scratch memory holds floats whatever the result is made of.
    builder = bench.builder()
    x, y = builder.param("x", tensor((60, 33))), builder.param("y", tensor((33, 70)))
    product = builder.emit("matmul", x, y)
    function = bench.add(builder, builder.emit("less", product, builder.emit("multiply", product, product)))
    x_array, y_array = _random((60, 33)), _random((33, 70), seed=1)
    (actual,), (expected,) = bench.run(function, x_array, y_array), bench.reference(function, x_array, y_array)
    assert np.mean(actual == expected) > 0.999


def _attention(heads: int, length: int, depth: int) -> IRModule:
    """Return scores and their products with values, heads apart: transposes of operands and of the result."""
    builder: Any = FunctionBuilder("main")
    q, k, v = (builder.param(name, tensor((2, length, heads, depth))) for name in "qkv")
    turned = [builder.emit("permute_dims", value, axes=(0, 2, 1, 3)) for value in (q, v)]
    keys = builder.emit("permute_dims", k, axes=(0, 2, 3, 1))
    scores = builder.emit("matmul", turned[0], keys)
    mixed = builder.emit("permute_dims", builder.emit("matmul", scores, turned[1]), axes=(0, 2, 1, 3))
    return IRModule({"main": builder.finish(mixed)})


@pytest.mark.parametrize(("heads", "length", "depth"), [(3, 20, 64), (2, 70, 33)])
def test_transposed_operands_and_results_are_not_copied(heads: int, length: int, depth: int) -> None:
    executable = byoc_core.build(_attention(heads, length, depth), ["ccompiler"], fallback="error")
    source = "".join(module.get_source() for module in executable.modules if module.type_key != "graph")
    assert re.findall(r"^/\* (\w+) \*/$", source, re.MULTILINE) == ["matmul", "matmul"]
    q, k, v = (_random((2, length, heads, depth), seed=seed) for seed in range(3))
    actual = byoc_core.VirtualMachine(executable)["main"](q, k, v)
    expected, magnitude = (
        np.einsum("bihd,bjhd,bjhe->bihe", *(turn(array).astype("float64") for array in (q, k, v)), optimize=True)
        for turn in (np.asarray, np.abs)
    )
    terms = (depth + length + 2) * np.finfo("float32").eps / 2
    error = np.abs(np.asarray(actual) - expected)
    assert np.all(error <= terms / (1 - terms) * magnitude)


def test_parts_of_a_concat_are_written_in_place(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((60, 20)))
    parts = [builder.emit("matmul", x, builder.const(_random((20, n), seed=n))) for n in (64, 7, 33)]
    halves = builder.bind("split", [x], {"sections": (11, 9), "axis": 1}).results
    parts.append(builder.emit("matmul", halves[1], builder.const(_random((9, 70), seed=3))))
    function = bench.add(builder, builder.emit("concat", *parts, axis=1))
    _check(bench, function, [_random((60, 20))], 20)


def test_long_sums_are_no_less_exact_than_those_of_the_reference() -> None:
    depth = 16_384
    x, w = _random((64, depth)), _random((depth, 64), seed=1)
    builder: Any = FunctionBuilder("main")
    module = builder.finish(builder.emit("matmul", builder.param("x", tensor(x.shape)), builder.const(w)))
    executable = byoc_core.build(IRModule({"main": module}, builder.constants), ["ccompiler"], fallback="error")
    exact = x.astype("float64") @ w.astype("float64")
    error = np.sqrt(np.mean((np.asarray(byoc_core.VirtualMachine(executable)["main"](x)) - exact) ** 2))
    # One long chain in float32, as the reference never is: its error grows with the square root of its length.
    chain = np.cumsum(x[:, None, :] * w.T[None, :4, :], axis=2, dtype=np.float32)[..., -1]
    assert error < np.sqrt(np.mean((chain - exact[:, :4]) ** 2)) / 2


@pytest.mark.parametrize("is_constant", [False, True])
def test_the_bits_do_not_depend_on_the_number_of_threads(is_constant: bool) -> None:
    x, w = _random((200, 900)), _random((900, 300), seed=1)
    builder: Any = FunctionBuilder("main")
    left = builder.param("x", tensor(x.shape))
    right = builder.const(w) if is_constant else builder.param("w", tensor(w.shape))
    module = IRModule({"main": builder.finish(builder.emit("matmul", left, right))}, builder.constants)
    executable = byoc_core.build(module, ["ccompiler"], fallback="error")
    inputs = [x] if is_constant else [x, w]
    first, *repeats = (byoc_core.VirtualMachine(executable, num_threads=n)["main"](*inputs) for n in (1, 2, 3))
    for other in repeats:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("rows", [47, 192, 4800])
def test_the_estimate_of_its_work_is_about_that_of_known_rows(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """For few rows, known rows are computed in another way."""
    estimates: list[int] = []

    def recorded(function: c.Function, **options: Any) -> c.Function:
        # The last loop is that of the rows; before it the matrix on the right may be packed.
        estimates.append(evaluate(c.parallel_works(function)[-1].work_ps, {"n": rows}))
        return c.outline(function, **options)

    monkeypatch.setattr(kernel_module, "outline", recorded)
    for size in (rows, "n"):
        bench = Bench(march="x86-64-v3")
        builder = bench.builder()
        x, y = builder.param("x", tensor((size, 300))), builder.param("y", tensor((300, 64)))
        bench.add(builder, builder.emit("matmul", x, y))
        assert "matmul" in bench.module.get_source()
    static, symbolic = estimates
    assert static > 1_000_000
    assert 1 / 1.5 < symbolic / static < 1.5


def test_equal_tiles_are_written_once() -> None:
    bench = Bench()
    for seed in range(5):
        builder = bench.builder()
        x = builder.param("x", tensor((48, 64)))
        bench.add(builder, builder.emit("matmul", x, builder.const(_random((64, 128), seed=seed))))
    source = bench.module.get_source()
    definitions = [line for line in source.splitlines() if "byoc_shared_tile" in line and line.startswith("static")]
    assert len(definitions) == len(set(definitions)) == 1
