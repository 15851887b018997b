"""Every elementwise op against the reference kernels: dtypes, special values, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ByocError
from byoc_core.ir import tensor
from byoc_core.ops import default_ops
from byoc_core.opset.opdef import Trait

from plugins.ccompiler.tests.bench import Bench, assert_sum, assert_ulp, sizes_of, tensor_type

FLOATS = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
ALL = (*FLOATS, *SIGNED, *UNSIGNED, "bool")

ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
# Units in the last place: the bounds of the C functions, which the core tests against their statement in the headers.
FUNCTIONS: dict[str, tuple[float, dict[str, Any]]] = {
    "exp": (1.5, {}),
    "log": (1, {}),
    "sqrt": (0.51, {}),
    "tanh": (3, {}),
    "erf": (3, {}),
    "sigmoid": (2.5, {}),
    "negative": (0, {}),
    "abs": (0, {}),
    "nn.relu": (0, {}),
    "nn.leaky_relu": (0.51, {"alpha": 0.25}),
    "clip": (0, {"min": -1.5, "max": 2.0}),
    "clip/open": (0, {"max": 2.0}),
}


def _samples(dtype: str, count: int = 400) -> Any:
    rng = np.random.default_rng(7)
    if dtype == "bool":
        return rng.random(count) > 0.5
    if dtype in FLOATS:
        info = np.finfo(dtype)
        special = [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1.0,
            -1.0,
            info.max,
            info.min,
            info.tiny,
            info.smallest_subnormal,
        ]
        return np.concatenate([special, rng.standard_normal(count) * 4, rng.standard_normal(count) * 40]).astype(dtype)
    limits = np.iinfo(dtype)
    special = [0, 1, limits.max, limits.min, limits.max - 1, limits.min + 1, 3]
    small = rng.integers(max(limits.min, -9), 9, count)
    return np.concatenate(
        [np.array(special, dtype), small.astype(dtype), rng.integers(limits.min, limits.max, count, dtype)]
    )


def _pairs(dtype: str) -> tuple[Any, Any]:
    left = _samples(dtype)
    right = np.random.default_rng(8).permutation(left)
    few = left[:11]
    return np.concatenate([left, np.repeat(few, len(few))]), np.concatenate([right, np.tile(few, len(few))])


@pytest.mark.parametrize("dtype", ALL)
def test_arithmetic_and_comparison_equal_the_kernels(bench: Bench, dtype: str) -> None:
    left, right = _pairs(dtype)
    type_ = tensor(left.shape, dtype)
    names = [name for name in (*ARITHMETIC, *COMPARISONS) if dtype != "bool" or name not in ("subtract", "divide")]
    functions = {name: bench.op(name, [type_, type_]) for name in names}
    if dtype not in FLOATS and dtype != "bool":
        functions["power"] = bench.op("power", [type_, type_])
    if dtype == "bool":
        functions |= {name: bench.op(name, [type_, type_]) for name in ("logical_and", "logical_or")}
    for name, function in functions.items():
        (actual,) = bench.run(function, left, right)
        (expected,) = bench.reference(function, left, right)
        np.testing.assert_array_equal(actual, expected, err_msg=name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_power_of_floats(bench: Bench, dtype: str) -> None:
    left, right = np.abs(_samples(dtype)), _samples(dtype)[::-1].copy()
    function = bench.op("power", [tensor(left.shape, dtype)] * 2)
    (oracle,) = bench.reference(function, left, right, wide=True)
    assert_ulp(bench.run(function, left, right)[0], oracle, 1.5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_are_within_their_bounds(bench: Bench, dtype: str) -> None:
    x = _samples(dtype)
    functions = {
        name: bench.op(name.partition("/")[0], [tensor(x.shape, dtype)], **attrs)
        for name, (_, attrs) in FUNCTIONS.items()
    }
    for name, function in functions.items():
        (oracle,) = bench.reference(function, x, wide=True)
        (actual,) = bench.run(function, x)
        # In float64 the oracle errs as well.
        assert_ulp(actual, oracle, FUNCTIONS[name][0] * (1 if dtype == "float32" else 2))


@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_is_within_its_bound_of_the_operand(bench: Bench, dtype: str) -> None:
    x = _samples(dtype)
    x = x[np.isfinite(x)]
    functions = [bench.op("nn.gelu", [tensor(x.shape, dtype)], approximate=name) for name in ("none", "tanh")]
    for function in functions:
        (oracle,) = bench.reference(function, x, wide=True)
        error = np.abs(bench.run(function, x)[0] - oracle)
        assert np.all(error <= 2.5 * np.spacing(np.minimum(np.abs(x), np.finfo(dtype).max / 2)))


def test_every_elementwise_op_is_compiled_for_every_dtype_that_it_takes(bench: Bench) -> None:
    accepted = []
    for name, op in default_ops().items():
        for dtype in ALL if Trait.ELEMENTWISE in op.traits else ():
            types = [tensor((3,), dtype)] * len(op.operands)
            types[:1] = [tensor((3,), "bool")] if name == "where" else types[:1]
            attrs = {"dtype": "float32"} if name == "cast" else {}
            try:
                accepted.append(bench.op(name, types, **attrs))
            except ByocError:  # the op's type rule refuses the dtype
                continue
    assert len(accepted) > len(ALL) * 20
    assert set(bench.module.function_names) == {function.name for function in accepted}


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_integer_functions_equal_the_kernels(bench: Bench, dtype: str) -> None:
    x = _samples(dtype)
    names = [name for name in ("negative", "abs", "nn.relu") if name != "negative" or dtype in SIGNED]
    functions = [bench.op(name, [tensor(x.shape, dtype)]) for name in names]
    for function in functions:
        np.testing.assert_array_equal(bench.run(function, x)[0], bench.reference(function, x)[0])


@pytest.mark.parametrize("source", ALL)
def test_cast_equals_the_kernel(bench: Bench, source: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.random(50) > 0.5 if source == "bool" else (rng.random(50) * 100).astype(source)
    functions = {target: bench.op("cast", [tensor(x.shape, source)], dtype=target) for target in ALL}
    for target, function in functions.items():
        np.testing.assert_array_equal(bench.run(function, x)[0], bench.reference(function, x)[0], err_msg=target)


SHAPES = [
    ((), ()),
    ((1,), ()),
    ((7,), (7,)),
    ((4, 1), (5,)),
    ((2, 1, 3, 1, 2), (4, 1, 5, 1)),
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (3, 1)),
    ((1, 1), (2, 3)),
    ((0, 3), (3,)),
    ((2, 0), (2, 1)),
    ((1,), (0,)),
]


def test_broadcasting_from_0d_to_5d(bench: Bench) -> None:
    rng = np.random.default_rng(1)
    functions = [bench.op("subtract", [tensor(left), tensor(right)]) for left, right in SHAPES]
    functions.append(bench.op("where", [tensor((2, 1), "bool"), tensor((3,)), tensor((1, 3))]))
    functions.append(bench.op("broadcast_to", [tensor((3, 1))], shape=(2, 3, 4)))
    functions.append(bench.op("nn.bias_add", [tensor((2, 3, 4)), tensor((3,))], axis=1))
    for function in functions:
        inputs = []
        for param in function.params:
            numbers, dtype = rng.standard_normal(sizes_of(param)), tensor_type(param).dtype
            inputs.append(np.asarray(numbers > 0 if dtype == "bool" else numbers).astype(dtype))
        np.testing.assert_array_equal(bench.run(function, *inputs)[0], bench.reference(function, *inputs)[0])


@pytest.mark.parametrize(("n", "m"), [(0, 1), (1, 1), (4, 1), (1, 4), (4, 4)])
def test_symbolic_sizes_broadcast_by_what_they_are(bench: Bench, n: int, m: int) -> None:
    functions = [
        bench.op("add", [tensor(("n", 3)), tensor(("m", 3))]),
        bench.op("add", [tensor(("n", 1, 2)), tensor((3, 1))]),
        bench.op("multiply", [tensor(("2*n", "n")), tensor(("n",))]),
    ]
    rng = np.random.default_rng(2)
    shapes: list[Any] = [[(n, 3), (m, 3)], [(n, 1, 2), (3, 1)], [(2 * n, n), (n,)]]
    for function, (left, right) in zip(functions, shapes, strict=True):
        x, y = rng.standard_normal(left).astype("float32"), rng.standard_normal(right).astype("float32")
        np.testing.assert_array_equal(bench.run(function, x, y)[0], bench.reference(function, x, y)[0])


def test_symbolic_sizes_that_do_not_fit_are_an_error(bench: Bench) -> None:
    from byoc_core.errors import ExecutionError

    function = bench.op("add", [tensor(("n", 3)), tensor(("m", 3))])
    x, y, out = (np.zeros((k, 3), "float32") for k in (2, 3, 3))
    with pytest.raises(ExecutionError) as caught:
        bench.module.get_function(function.name).impl(x, y, out)
    assert str(caught.value) == f"function `{function.name}`: sizes 3 and 2 do not broadcast"


def test_batch_norm(bench: Bench) -> None:
    rng = np.random.default_rng(4)
    function = bench.op("nn.batch_norm", [tensor((2, 3, 4, 4)), *[tensor((3,))] * 4])
    x = rng.standard_normal((2, 3, 4, 4)).astype("float32")
    parameters = [(rng.random(3) + 0.5).astype("float32") for _ in range(4)]
    (actual,), (oracle,) = bench.run(function, x, *parameters), bench.reference(function, x, *parameters, wide=True)
    gamma, beta, mean, variance = (parameter.astype("float64")[:, None, None] for parameter in parameters)
    # Eight roundings at most: the difference, the square root and what it is made of, two products, the sum.
    assert_sum(actual, oracle, (np.abs(x) + mean) * gamma / np.sqrt(variance) + beta, 8)
