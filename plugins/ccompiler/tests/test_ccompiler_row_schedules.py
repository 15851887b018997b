"""Random rows under random legal schedules: a schedule changes the computation of rows, not the results."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import byoc_ccompiler.kernels.rows as rows
import numpy as np
import pytest
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import Layout
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS, row_function
from byoc_ccompiler.kernels.row_schedule import BLOCK_LOOP, RowSchedule, num_passes, row_loops, row_schedule
from byoc_ccompiler.steps import dtype_of
from byoc_core.authoring.c import interpret, problems_of, scalarise
from byoc_core.dims import Dim, symbol
from byoc_core.ir import Function, Value, tensor

from plugins.ccompiler.tests.bench import MEANING, Bench, Builder, sizes_of

SHAPES = [(70,), (1300,), (5, 33), (33, 5), (3, 20, 7), (2, 300, 3), (4, 1, 65), (2, 3, 4, 17)]
EPSILON = float(np.finfo("float32").eps)
Program = Callable[[Builder, Value, tuple[int, ...]], tuple[Value, ...]]


def _reduced(op: str) -> Program:
    return lambda build, x, axis: (build.emit(op, x, axis=axis, keepdims=False),)


def _two_results(build: Builder, x: Value, axis: tuple[int, ...]) -> tuple[Value, ...]:
    """Return two reductions in a single pass."""
    return tuple(build.emit(op, x, axis=axis, keepdims=True) for op in ("sum", "max"))


def _centred(build: Builder, x: Value, axis: tuple[int, ...]) -> tuple[Value, ...]:
    return (build.emit("subtract", x, build.emit("mean", x, axis=axis, keepdims=True)),)


def _three_passes(build: Builder, x: Value, axis: tuple[int, ...]) -> tuple[Value, ...]:
    """Return a computation in three passes, with a value kept in between: roots of squares, exact."""
    apart = build.emit("subtract", x, build.emit("max", x, axis=axis, keepdims=True))
    roots = build.emit("sqrt", build.emit("multiply", apart, apart))
    total = build.emit("sum", roots, axis=axis, keepdims=True)
    return build.emit("subtract", roots, total), total


def _softmax(build: Builder, x: Value, axis: tuple[int, ...]) -> tuple[Value, ...]:
    return (build.emit("nn.softmax", x, axis=axis[-1]),)


PROGRAMS: dict[str, tuple[Program, str]] = {
    **{f"{op} of floats": (_reduced(op), "float32") for op in ("sum", "prod", "max", "min", "mean")},
    **{f"{op} of doubles": (_reduced(op), "float64") for op in ("sum", "min")},
    **{f"{op} of integers": (_reduced(op), "int32") for op in ("sum", "max")},
    "any": (_reduced("any"), "bool"),
    "two results": (_two_results, "float32"),
    "centred": (_centred, "float32"),
    "three passes": (_three_passes, "float32"),
    "softmax": (_softmax, "float32"),
}


def _drawn(draw: random.Random, kernel: Kernel, layouts: Mapping[Any, Layout]) -> RowSchedule:
    """Return a legal schedule of a kernel."""
    group = kernel.group
    outer, inner, _ = row_loops(group, layouts, ())
    columns = draw.choice([(), *map(tuple, outer.groups)])
    dtypes = {dtype_of(step.operands[0]) for step in group.steps if step.op in REDUCTIONS}
    is_alone = num_passes(group) == 1 and not outer.sizes and len(inner.sizes) == 1 and len(dtypes) == 1
    block = draw.choice([0, 7, 64]) if is_alone else 0
    loops = [index.name for index in row_loops(group, layouts, columns)[0].variables]
    return RowSchedule(
        columns,
        draw.choice([1, 5, 16, 48, 512]) if columns else 1,
        draw.choice([None, *loops, *([BLOCK_LOOP] if block or columns else [])]),
        block,
        chunk=draw.choice([3, 16, 64, 1024]),
        vector_nbytes=draw.choice([0, 16, 32, 64]),
        registers=draw.choice([1, 2, 4]),
        fetched=draw.choice([0, 1, 4, 128]),
        buffer_nbytes=draw.choice([0, 1 << 15]),
        lender_nbytes=draw.choice([None, 0, 1 << 10]),
    )


def _function(draw: random.Random, bench: Bench, name: str, sizes: dict[str, int]) -> Function:
    """Return a program on a random shape with some symbolic sizes."""
    program, dtype = PROGRAMS[name]
    shape = draw.choice(SHAPES)
    axis = tuple(sorted(draw.sample(range(len(shape)), draw.randint(1, len(shape)))))
    number = len(bench.functions)
    names = [f"n{number}_{dimension}" for dimension in range(len(shape))]
    sizes.update(zip(names, shape, strict=True))
    dims: list[Dim] = [size if draw.random() < 0.7 else symbol(name) for size, name in zip(shape, names, strict=True)]
    builder = bench.builder()
    return bench.add(builder, *program(builder, builder.param("x", tensor(tuple(dims), dtype)), axis))


def _numbers(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    signs = rng.integers(0, 2, shape) * 2 - 1
    return (signs if name.startswith("prod") else rng.integers(-4, 5, shape)).astype(PROGRAMS[name][1])


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_are_the_same_under_each_schedule(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw, rng, schedules = random.Random(seed), np.random.default_rng(seed), list[RowSchedule]()

    def draw_schedule(kernel: Kernel, layouts: Mapping[Any, Layout]) -> RowSchedule:
        schedules.append(row_schedule(kernel, layouts) if draw.random() < 0.1 else _drawn(draw, kernel, layouts))
        return schedules[-1]

    monkeypatch.setattr(rows, "row_schedule", draw_schedule)
    bench, sizes = Bench(opt_level=MEANING), dict[str, int]()
    functions = {_function(draw, bench, name, sizes): name for name in [*PROGRAMS] * 4}
    for function, name in functions.items():
        x = _numbers(rng, name, sizes_of(function.params[0], sizes))
        tolerance = (x.size + 8) * EPSILON if name == "softmax" else 0.0
        for actual, expected in zip(bench.run(function, x), bench.reference(function, x), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=0, err_msg=f"{name} {x.shape}")
    # A symbolic size may part a program; the others were one kernel of rows each, and each choice was made.
    assert sum(len(bench.calls(function)) == 1 for function in functions) > len(functions) * 3 // 4
    assert len(schedules) >= len(functions)
    assert len(set(schedules)) > len(schedules) * 3 // 4
    for field in RowSchedule.__dataclass_fields__:
        assert len({getattr(schedule, field) for schedule in schedules}) > 1, field
    assert {BLOCK_LOOP, None} < {schedule.parallel for schedule in schedules}


def test_schedules_make_other_code_of_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedules reach the C: equal kernels would be shared."""
    wide = RowSchedule(vector_nbytes=64)
    schedules = [
        *(wide, RowSchedule(), RowSchedule(vector_nbytes=64, registers=2), RowSchedule(vector_nbytes=64, chunk=16)),
        *(RowSchedule((0,), width, chunk=64) for width in (16, 64)),
        *(RowSchedule(vector_nbytes=64, fetched=16), RowSchedule(vector_nbytes=64, lender_nbytes=0)),
        RowSchedule(vector_nbytes=64, parallel="i"),
    ]
    remaining = iter(schedules)
    monkeypatch.setattr(rows, "row_schedule", lambda kernel, layouts: next(remaining))
    bench = Bench(opt_level=MEANING)
    for _ in schedules:
        builder = bench.builder()
        bench.add(builder, *_three_passes(builder, builder.param("x", tensor((2000, 300))), (1,)))
    x = np.random.default_rng(1).integers(-4, 5, (2000, 300)).astype("float32")
    names = set()
    for function in bench.functions:
        names.update(bench.calls(function))
        for actual, expected in zip(bench.run(function, x), bench.reference(function, x), strict=True):
            np.testing.assert_array_equal(actual, expected)
    assert len(names) == len(schedules)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_a_function_of_rows_interpreted_is_the_reduction(op: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    for nbytes, registers in ((0, 4), (16, 1), (32, 4), (64, 2)):
        function = row_function(op, dtype, nbytes, registers)
        assert problems_of(function) == []
        for count in (1, 3, 4, 7, 16, 21, 32, 50, 64, 150):
            x = (rng.integers(0, 2, count) * 2 - 1 if op == "prod" else rng.integers(-9, 9, count)).astype(dtype)
            expected = getattr(np, op)(x).astype(dtype)
            for variant in (function, scalarise(function)):
                assert interpret(variant, dict(zip(variant.parameters, (x, count), strict=True))) == expected
    assert row_function(op, dtype, 0) != row_function(op, dtype, 64) or dtype == "int16"


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("count", [1, 5, 8, 17, 40, 70])
def test_an_extreme_of_rows_with_nan_is_nan_wherever_it_stands(op: str, count: int) -> None:
    function = row_function(op, "float32", 32)
    for index in range(count):
        x = np.arange(count, dtype="float32")
        x[index] = np.nan
        assert np.isnan(interpret(function, dict(zip(function.parameters, (x, count), strict=True))))
    for value in (np.inf, -np.inf):
        x = np.full(count, value, "float32")
        assert interpret(function, dict(zip(function.parameters, (x, count), strict=True))) == value
