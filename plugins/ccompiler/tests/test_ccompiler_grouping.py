"""Ops in a shared kernel: lawful on any graph, in time growing with the number of ops, and right."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import byoc_ccompiler.grouping as grouping
import numpy as np
import pytest
from byoc_ccompiler.kernel import Group
from byoc_ccompiler.kernels.composites import take_apart
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.steps import Step, flatten
from byoc_core.authoring.csource import ConstantPool
from byoc_core.ir import FunctionBuilder, tensor
from byoc_core.ops import default_ops
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, Bench, Builder

SHAPE = (6, 17)
BINARY = ("add", "subtract", "maximum", "minimum")
UNARY = ("negative", "abs", "nn.relu")
REDUCING = ("max", "min", "sum")


LARGEST = 2.0**22


def _grow(builder: Builder, values: list[Any], bounds: list[float], pick: Callable[[int], int]) -> None:
    """Add an op of random operands; values keep the rank of 2, for broadcasting.

    None is larger than :data:`LARGEST`: sums of whole values are exact in float32 in any order.
    """
    kind, left, right = pick(10), pick(len(values)), pick(len(values))
    if kind < 3:
        op, axis = REDUCING[pick(3)], ((0,), (1,), (0, 1))[pick(3)]
        bound = bounds[left] * (SHAPE[0] * SHAPE[1] if op == "sum" else 1)
        if bound <= LARGEST:
            values.append(builder.emit(op, values[left], axis=axis, keepdims=True))
            bounds.append(bound)
            return
    if kind < 5 or bounds[left] + bounds[right] > LARGEST:
        values.append(builder.emit(UNARY[pick(3)], values[left]))
        bounds.append(bounds[left])
        return
    values.append(builder.emit(BINARY[pick(4)], values[left], values[right]))
    bounds.append(bounds[left] + bounds[right])


def _check_order(steps: list[Step], groups: list[Group]) -> None:
    assert sorted(map(id, steps)) == sorted(id(step) for group in groups for step in group.steps)
    produced = {result for step in steps for result in step.binding.results}
    available: set[Any] = set()
    for group in groups:
        for step in group.steps:
            assert all(operand in available for operand in step.operands if operand in produced)
            available.update(step.binding.results)


@pytest.mark.parametrize("kind", ["chain", "diamonds", "random"])
def test_thousands_of_ops_are_grouped_in_linear_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0
    takes = grouping._Former._takes

    def count(self: grouping._Former, group: Group, step: Step) -> bool:
        nonlocal tried
        tried += 1
        return takes(self, group, step)

    monkeypatch.setattr(grouping._Former, "_takes", count)
    builder: Any = FunctionBuilder("f", ops=default_ops())
    choose = random.Random(0)
    values: list[Any] = [builder.param("x", tensor(SHAPE))]
    bounds = [2.0]
    for index in range(3000):
        if kind == "random":
            _grow(builder, values, bounds, lambda count: max(0, count - 1 - choose.randrange(40)) % count)
        elif kind == "chain" or index % 3 == 0:
            values.append(builder.emit("nn.softmax" if index % 30 == 0 else "abs", values[-1]))
        else:
            values.append(builder.emit("subtract", values[-2], values[-1]))
    steps = take_apart(flatten(builder.finish(*values[-40:]))[0], ConstantPool({}))
    _check_order(steps, grouping.form_groups(steps, FAMILIES))
    assert tried <= 2 * len(steps)


@st.composite
def programs(draw: st.DrawFn) -> list[int]:
    return draw(st.lists(st.integers(0, 1 << 20), min_size=90, max_size=90))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.lists(programs(), min_size=10, max_size=10), seed=st.integers(0, 100))
def test_random_graphs_of_reductions_are_right(batch: list[list[int]], seed: int) -> None:
    bench = Bench(opt_level=MEANING, march="generic")
    functions = []
    for numbers in batch:
        left = iter(numbers)
        builder = bench.builder()
        values: list[Any] = [builder.param("x", tensor(SHAPE)), builder.param("row", tensor((1, SHAPE[1])))]
        values += [builder.param("column", tensor((SHAPE[0], 1))), builder.const(np.full((1, 1), 2, "float32"))]
        bounds = [2.0] * len(values)

        def pick(count: int, left: Iterator[int] = left) -> int:
            return next(left) % count

        for _ in range(14):
            _grow(builder, values, bounds, pick)
        functions.append(bench.add(builder, *values[-3:]))
    generator = np.random.default_rng(seed)
    inputs = [generator.integers(-2, 3, shape).astype("float32") for shape in (SHAPE, (1, SHAPE[1]), (SHAPE[0], 1))]
    for function in functions:
        expected = bench.reference(function, *inputs)
        for actual, reference in zip(bench.run(function, *inputs), expected, strict=True):
            np.testing.assert_array_equal(actual, reference)


@pytest.mark.parametrize("first", ["nn.relu", "exp", "nn.softmax"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_without_fusion_a_kernel_computes_one_op(first: str, keepdims: bool) -> None:
    builder: Any = FunctionBuilder("f", ops=default_ops())
    x = builder.emit(first, builder.param("x", tensor(SHAPE)))
    total = builder.emit("logsumexp", x, axis=(1,), keepdims=keepdims)
    steps = take_apart(flatten(builder.finish(x, total, builder.emit("nn.log_softmax", x)))[0], ConstantPool({}))
    groups = grouping.form_groups(steps, FAMILIES, fuse=False)
    _check_order(steps, groups)
    assert [len({step.origin or step.binding for step in group.steps}) for group in groups] == [1] * len(groups)
