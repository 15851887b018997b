"""Views and placed values inside regions: remaining copies, and right numbers for random mixtures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import symbol
from byoc_core.ir import Function, FunctionBuilder, TensorType, Value
from byoc_core.runtime.module import NDArray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench

SHAPE = (2, 6, 4)


def _kernels(bench: Bench) -> list[str]:
    """Return the ops of each kernel of the generated source, in order."""
    return re.findall(r"^/\* ([a-z0-9_., ]+) \*/$", bench.module.get_source(), re.MULTILINE)


def _emit(builder: FunctionBuilder, op: str, *operands: Value, **attrs: object) -> Value:
    (result,) = builder.bind(op, operands, attrs).results
    return result


def _check(bench: Bench, function: Function, *inputs: NDArray) -> None:
    for actual, expected in zip(bench.run(function, *inputs), bench.reference(function, *inputs), strict=True):
        np.testing.assert_array_equal(actual, expected)


def _draw(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.integers(-9, 9, shape).astype("float32") for shape in shapes]


def test_operands_of_a_concat_are_made_in_it(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", TensorType((2, 3), "float32"))
    first = _emit(builder, "nn.relu", x)
    second = _emit(builder, "negative", x)
    inner = _emit(builder, "concat", first, second, axis=1)
    third = _emit(builder, "add", x, x)
    joined = _emit(builder, "concat", inner, third, axis=1)
    function = bench.add(builder, _emit(builder, "negative", joined))
    _check(bench, function, *_draw((2, 3)))
    assert not [kernel for kernel in _kernels(bench) if "permute_dims" in kernel or "concat" in kernel]


def test_the_parts_of_a_split_are_read_where_they_are(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", TensorType((4, 9), "float32"))
    parts = builder.bind("split", [x], {"sections": (2, 3, 4), "axis": 1}).results
    results = [_emit(builder, "negative", part) for part in parts]
    function = bench.add(builder, *results)
    _check(bench, function, *_draw((4, 9)))
    assert not [kernel for kernel in _kernels(bench) if "split" in kernel or "permute_dims" in kernel]


def test_results_that_only_move_are_copied(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", TensorType((4, 6), "float32"))
    turned = _emit(builder, "permute_dims", x, axes=(1, 0))
    shaped = _emit(builder, "reshape", turned, shape=(3, 8))
    function = bench.add(builder, turned, shaped, x)
    _check(bench, function, *_draw((4, 6)))


def test_one_value_in_two_concats_is_copied_once(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", TensorType((2, 3), "float32"))
    negated = _emit(builder, "negative", x)
    function = bench.add(
        builder, _emit(builder, "concat", negated, negated, axis=1), _emit(builder, "concat", negated, x, axis=1)
    )
    _check(bench, function, *_draw((2, 3)))


def test_views_of_symbolic_sizes(bench: Bench) -> None:
    n = symbol("n")
    builder = bench.builder()
    x = builder.param("x", TensorType((n, 4, 6), "float32"))
    flat = _emit(builder, "reshape", x, shape=(n * 4, 6))
    left, right = builder.bind("split", [flat], {"sections": (2, 4), "axis": 1}).results
    joined = _emit(builder, "concat", _emit(builder, "negative", right), _emit(builder, "nn.relu", left), axis=1)
    function = bench.add(builder, _emit(builder, "reshape", joined, shape=(n, 4, 6)))
    for size in (0, 1, 5):
        (array,) = _draw((size, 4, 6))
        (actual,) = bench.run(function, array)
        np.testing.assert_array_equal(actual, np.concatenate([-array[..., 2:], np.maximum(array[..., :2], 0)], axis=2))


KINDS = ("reshape", "permute", "split", "concat", "slice", "centre", "negative", "add", "nn.relu")


def _factor(draw: Callable[..., Any], size: int) -> tuple[int, ...]:
    shape: list[int] = []
    while size > 1 and len(shape) < 3:
        factor = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        shape.append(factor)
        size //= factor
    return (*shape, size)


def _add_op(draw: Callable[..., Any], builder: FunctionBuilder, values: list[Value]) -> None:
    x = draw(st.sampled_from(values))
    shape = [int(str(dim)) for dim in x.type.shape or ()] if isinstance(x.type, TensorType) else []
    kind = draw(st.sampled_from(KINDS))
    if kind == "reshape":
        values.append(_emit(builder, "reshape", x, shape=_factor(draw, math.prod(shape))))
    elif kind == "permute":
        values.append(_emit(builder, "permute_dims", x, axes=tuple(draw(st.permutations(range(len(shape)))))))
    elif kind in ("split", "slice"):
        axis = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, shape[axis]))
        if kind == "split":
            sections = {"sections": (at, shape[axis] - at), "axis": axis}
            values += builder.bind("split", [x], sections).results
        else:
            bounds = {"axes": (axis,), "begin": (at,), "end": (shape[axis],), "strides": (draw(st.integers(1, 2)),)}
            values.append(_emit(builder, "strided_slice", x, **bounds))
    elif kind == "centre":
        axes = tuple(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
        if all(shape[axis] for axis in axes):
            reduced = _emit(builder, draw(st.sampled_from(["max", "sum"])), x, axis=axes, keepdims=True)
            values += [reduced, _emit(builder, "subtract", x, reduced)]
    elif kind in ("concat", "add"):
        partners = [v for v in values if v.type == x.type]
        other = draw(st.sampled_from(partners))
        attrs = {"axis": draw(st.integers(0, len(shape) - 1))} if kind == "concat" else {}
        values.append(_emit(builder, kind, x, other, **attrs))
    else:
        values.append(_emit(builder, kind, x))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_mixtures_of_views_are_right(data: st.DataObject) -> None:
    """Several functions in a single source, because a compiler run costs more than their runs."""
    bench = Bench(opt_level=MEANING)
    functions = []
    for _ in range(4):
        builder = bench.builder()
        values: list[Value] = [builder.param(name, TensorType(SHAPE, "float32")) for name in ("x", "y")]
        for _ in range(data.draw(st.integers(1, 9))):
            _add_op(data.draw, builder, values)
        results = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        functions.append(bench.add(builder, *results))
    for function in functions:
        _check(bench, function, *_draw(SHAPE, SHAPE))


@pytest.mark.parametrize("march", ["native", "generic", PORTABLE])
def test_strided_views_reach_every_form_of_kernel(march: str) -> None:
    bench = Bench(march=march)
    builder = bench.builder()
    x = builder.param("x", TensorType((1, 5, 7, 24), "float32"))
    left, right = builder.bind("split", [x], {"sections": (8, 16), "axis": 3}).results
    pooled = _emit(builder, "negative", left)
    halves = [_emit(builder, "nn.relu", right), pooled]
    joined = _emit(builder, "concat", *halves, axis=3)
    turned = _emit(builder, "permute_dims", joined, axes=(0, 3, 1, 2))
    function = bench.add(builder, turned, _emit(builder, "add", joined, x))
    _check(bench, function, *_draw((1, 5, 7, 24)))
