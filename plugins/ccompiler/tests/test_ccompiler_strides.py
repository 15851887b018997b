"""Kernels on non-compact tensors: memory in another order of axes, given as strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import byoc_ccompiler.codegen as codegen
import numpy as np
import pytest
from byoc_ccompiler.kernel import KernelContext
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.authoring.csource_scope import FunctionScope
from byoc_core.dims import Dim
from byoc_core.ir import Function, TensorType, Value, Var, tensor
from byoc_core.runtime.module import NDArray

from plugins.ccompiler.tests.bench import Bench, tensor_type

Orders = Mapping[str, tuple[int, ...]]
"""For values by name: their axes in memory order."""


def _strides(shape: Sequence[Dim], order: tuple[int, ...]) -> tuple[Dim, ...]:
    found: list[Dim] = [0] * len(shape)
    step: Dim = 1
    for axis in reversed(order):
        found[axis] = step
        step = step * shape[axis]
    return tuple(found)


@pytest.fixture
def lay_out(monkeypatch: pytest.MonkeyPatch) -> Callable[[Orders], None]:
    """Lay out values of every function in memory in the given order of axes."""

    def lay_out(orders: Orders) -> None:
        def context(
            scope: FunctionScope, unit: VectorUnit, options: CCompilerOptions, strides: Mapping[Value, tuple[Dim, ...]]
        ) -> KernelContext:
            values = (value for value in (*scope.function.params, *scope.function.results) if isinstance(value, Var))
            all_strides: dict[Value, tuple[Dim, ...]] = {
                value: _strides(tensor_type(value).shape or (), orders[value.name])
                for value in values
                if value.name in orders
            }
            return KernelContext(scope, unit, options, {**strides, **all_strides})

        monkeypatch.setattr(codegen, "KernelContext", context)

    return lay_out


def _in_memory(array: NDArray, order: tuple[int, ...] | None) -> Any:
    """Return an array of the same shape with another order of axes in memory."""
    return array if order is None else np.ascontiguousarray(array.transpose(order)).reshape(array.shape)


def _from_memory(array: NDArray, order: tuple[int, ...] | None) -> Any:
    if order is None:
        return array
    turned = array.reshape([array.shape[axis] for axis in order])
    return turned.transpose(np.argsort(order))


def _run(bench: Bench, function: Function, orders: Orders, *inputs: NDArray) -> list[Any]:
    arrays = [_in_memory(a, orders.get(p.name)) for p, a in zip(function.params, inputs, strict=True)]
    names = [getattr(result, "name", "") for result in function.results]
    results = bench.run(function, *arrays)
    return [_from_memory(array, orders.get(name)) for name, array in zip(names, results, strict=True)]


def _random(shape: int | Sequence[int], seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


ORDERS: list[dict[str, tuple[int, ...]]] = [
    {"x": (1, 0, 2)},
    {"out": (1, 0, 2)},
    {"x": (1, 0, 2), "out": (1, 0, 2)},
    {"y": (2, 0, 1), "out": (1, 0, 2)},
    {"x": (2, 1, 0), "y": (1, 0, 2)},
]


@pytest.mark.parametrize("shape", [(4, 3, 5), (1, 7, 2), (3, 0, 2), ("n", "m", 5)])
@pytest.mark.parametrize("orders", ORDERS, ids=str)
def test_elementwise(bench: Bench, lay_out: Callable[[Orders], None], orders: Orders, shape: tuple[Any, ...]) -> None:
    lay_out(orders)
    builder = bench.builder()
    x, y = builder.param("x", tensor(shape)), builder.param("y", tensor(shape))
    row = builder.param("row", tensor((shape[1], 1)))
    scaled = builder.emit("multiply", builder.emit("add", x, y), row)
    result = builder.emit("subtract", scaled, x, names=("out",))
    function = bench.add(builder, result)
    assert isinstance(result.type, TensorType)
    sizes = [dim if isinstance(dim, int) else 3 + len(dim) for dim in shape]
    inputs = _random(sizes), _random(sizes, 1), _random((sizes[1], 1), 2)
    (actual,) = _run(bench, function, orders, *inputs)
    (expected,) = bench.reference(function, *inputs)
    np.testing.assert_array_equal(actual, expected)


def test_the_loops_follow_the_memory_of_the_result(bench: Bench, lay_out: Callable[[Orders], None]) -> None:
    orders = {"x": (1, 0, 2), "out": (1, 0, 2)}
    lay_out(orders)
    builder = bench.builder()
    x = builder.param("x", tensor((4, 3, 5)))
    function = bench.add(builder, builder.emit("negative", x, names=("out",)))
    assert bench.module.get_source().count("for (") == 1
    (actual,) = _run(bench, function, orders, _random((4, 3, 5)))
    np.testing.assert_array_equal(actual, -_random((4, 3, 5)))


@pytest.mark.parametrize("orders", ORDERS[:3], ids=str)
@pytest.mark.parametrize("axis", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_rows(bench: Bench, lay_out: Callable[[Orders], None], orders: Orders, axis: tuple[int, ...]) -> None:
    lay_out(orders)
    builder = bench.builder()
    x = builder.param("x", tensor((6, 3, 20)))
    top = builder.emit("max", x, axis=axis, keepdims=True)
    function = bench.add(builder, builder.emit("subtract", x, top, names=("out",)))
    (actual,) = _run(bench, function, orders, _random((6, 3, 20)))
    np.testing.assert_array_equal(actual, bench.reference(function, _random((6, 3, 20)))[0])


@pytest.mark.parametrize("orders", ORDERS[:3], ids=str)
def test_softmax_that_is_read_back(bench: Bench, lay_out: Callable[[Orders], None], orders: Orders) -> None:
    lay_out(orders)
    builder = bench.builder()
    x = builder.param("x", tensor((2, 3, 9000)))
    function = bench.add(builder, builder.emit("nn.softmax", x, names=("out",)))
    x_value = _random((2, 3, 9000))
    (actual,) = _run(bench, function, orders, x_value)
    # The difference to the maximum is rounded once, the exponential to 1.25 ulp, the sum and the product to a few.
    bound = (2 * np.abs(x_value).max() + 40) * np.finfo("float32").eps
    (oracle,) = bench.reference(function, x_value, wide=True)
    np.testing.assert_allclose(actual, oracle, rtol=float(bound))
