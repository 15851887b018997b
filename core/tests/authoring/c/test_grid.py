"""Grids: launches equal to a function, and functions without a grid."""

from __future__ import annotations

import random
import textwrap
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.authoring import c
from byoc_core.dims import evaluate, symbol
from byoc_core.errors import InternalError
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.authoring.c.cuda_runs import all_runs
from core.tests.authoring.c.nests import (
    arrays_of,
    cases,
    function_of,
    run,
    schedules,
    schedules_that_fit,
    with_much_work,
)

NDArray = npt.NDArray[Any]
FLOAT = c.CType("float32")
N = symbol("n")
X, OUT = c.Buffer("x", "float32", size=N), c.Buffer("out", "float32", c.MemoryAccess.WRITE, N)
ROW = c.Variable("i")
SCALE = c.Variable("scale", FLOAT)


def _loop(*body: c.Statement, step: int = 1) -> c.For:
    """Return a parallel loop over all elements."""
    return c.For(ROW, c.Size(0), c.Size(N), body, step, c.LoopKind.PARALLEL)


def _grid(*body: c.Statement) -> c.Grid:
    return c.map_to_grid(c.verify(c.Function("f", (X, OUT), body)))


def _interpret(grid: c.Grid, arrays: dict[c.Buffer, NDArray], sizes: dict[str, int], order: random.Random) -> None:
    """Run the launches in order, and the rounds of each in any order."""
    memory: dict[Any, Any] = dict(arrays)
    for buffer in grid.scratch:
        assert buffer.size is not None
        memory[buffer] = np.full(evaluate(buffer.size, sizes), 77, buffer.dtype)
    for launch in grid.launches:
        c.interpret(c.verify(launch.kernel), memory, sizes, order=order)


def _outlined(function: c.Function) -> c.Function:
    return c.outline(with_much_work(function))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_grid_computes_the_bits_of_its_function(data: st.DataObject) -> None:
    case = data.draw(cases())
    function = function_of(case, schedules_that_fit(case, data.draw(schedules(case.nest))))
    expected = run(function, case)
    change = data.draw(
        st.sampled_from([c.simplify, c.hoist, c.serialise, lambda item: c.outline(with_much_work(item))])
    )
    arrays = {item: array for item, array in arrays_of(case).items() if isinstance(item, c.Buffer)}
    _interpret(c.map_to_grid(change(function)), arrays, dict(case.sizes), random.Random(case.seed))
    assert [arrays[buffer].tobytes() for buffer in case.outputs] == expected


def test_functions_of_several_launches_compute_the_same() -> None:
    for item in all_runs(0, ops=False):
        arrays = {buffer: array.copy() for buffer, array in item.arrays.items()}
        _interpret(item.grid, arrays, dict(item.sizes), random.Random(0))
        item.check(arrays)


def test_the_threads_of_a_kernel_share_the_rounds_of_its_loop() -> None:
    value = c.Variable("value", FLOAT)
    pointer = c.Buffer("p", "float32", c.MemoryAccess.WRITE)
    store = c.Store(pointer, ROW, c.Element("exp", (value,), FLOAT))
    body = (c.Let(SCALE, X[0]), c.Alias(pointer, OUT, c.Size(1)), _loop(c.Let(value, X[ROW] * SCALE), store))
    (launch,) = _grid(*body).launches
    assert (launch.kernel.name, launch.kernel.parameters, launch.rounds) == ("f_0", (X, OUT), N)
    text = c.print_definitions([launch.kernel], c.CUDA)
    for name, number in (("THREAD", c.CUDA.thread), ("NUM_THREADS", c.CUDA.num_threads)):
        text = text.replace(number, name)
    assert text == textwrap.dedent("""\
        extern "C" __global__ void f_0(const float *x, float *__restrict__ out, int64_t dim_n) {
          const float scale = x[0];
          float *p = out + 1;
          for (int64_t i = THREAD; i < dim_n; i += NUM_THREADS) {
            const float value = x[i] * scale;
            p[i] = byoc_exp_f32(value);
          }
        }
        """)


def test_a_step_counts_threads() -> None:
    store = c.Store(OUT, ROW, c.Literal(0, FLOAT))
    loop = c.For(ROW, c.Size(2), c.Size(N), (store,), 3, c.LoopKind.PARALLEL)
    (launch,) = _grid(loop).launches
    assert evaluate(launch.rounds, {"n": 9}) == 3
    head = (
        "for (int64_t i = 2 + 3 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x); i < dim_n; "
        "i += 3 * (int64_t)gridDim.x * blockDim.x) {"
    )
    assert head in c.print_function(launch.kernel, c.CUDA)


def test_what_stands_between_loops_is_a_kernel_of_one_round() -> None:
    total, j = c.Variable("total", FLOAT), c.Variable("j")
    grid = _grid(
        _loop(c.Store(OUT, ROW, X[ROW])),
        c.Declare(total, c.Literal(0, FLOAT)),
        c.For(j, c.Size(0), c.Size(N), (c.Assign(total, total + OUT[j]),)),
        c.Store(OUT, c.Size(0), total),
    )
    assert [launch.rounds for launch in grid.launches] == [N, 1]
    assert [launch.kernel.parameters for launch in grid.launches] == [(X, OUT), (OUT,)]


def test_arrays_outside_loops_are_scratch_memory_of_the_host() -> None:
    sums, unused = (c.Buffer(name, "float32", c.MemoryAccess.WRITE, 8) for name in ("sums", "unused"))
    own = c.Buffer("own", "float32", c.MemoryAccess.WRITE, 4)
    loop = c.For(ROW, c.Size(0), c.Size(8), (c.LocalArray(own), c.Store(sums, ROW, X[ROW])), kind=c.LoopKind.PARALLEL)
    grid = _grid(c.LocalArray(sums, is_zeroed=True), c.LocalArray(unused), loop)
    assert grid.scratch == (sums, unused)
    assert [launch.kernel.parameters for launch in grid.launches] == [(sums,), (X, sums)]
    (alone,) = _grid(c.LocalArray(own), c.Store(own, c.Size(0), X[0]), c.Store(OUT, c.Size(0), own[0])).launches
    assert alone.kernel.parameters == (X, OUT)


def _text(name: str, **fields: Any) -> c.Call:
    return c.Call(c.Callee(name, abs, **fields), (X[ROW],), FLOAT)


INSIDE = c.For(c.Variable("t"), c.Size(0), c.Size(3), (_loop(c.Store(OUT, ROW, X[ROW])),))
POINTERS = c.PointerArray("rows", "float32", c.MemoryAccess.WRITE, 2)
REFUSED: dict[str, tuple[c.Block, str]] = {
    "a parallel loop inside": ((INSIDE,), "has a parallel loop inside another statement; got For"),
    "a value that changes": (
        (_loop(c.Store(OUT, ROW, X[ROW])), c.Let(SCALE, OUT[0]), _loop(c.Store(OUT, ROW, SCALE))),
        "reads `scale` outside the launch computing `scale`",
    ),
    "a text": (
        (_loop(c.Store(OUT, ROW, c.Raw("sqrtf({0})", FLOAT, (X[ROW],)))),),
        "has the text `sqrtf({0})`; expected statements supported by a grid",
    ),
    "a statement of text": ((_loop(c.RawStatement(("{w0}[0] = 1;",), (), (OUT,))),), "has the statement RawStatement"),
    "a function of a header": (
        (_loop(c.Store(OUT, ROW, _text("twice", header="twice.h"))),),
        "calls `twice`, a C function for processors only",
    ),
    "a function of text": (
        (_loop(c.Store(OUT, ROW, _text("half", definition="static float {name}(float x) { return x / 2; }"))),),
        "calls `half`, a C function for processors only",
    ),
    "pointers of all rounds": (
        (c.LocalArray(POINTERS), _loop(c.Store(OUT, ROW, X[ROW]))),
        "has pointers in `rows` outside the parallel loops",
    ),
    "an end before the end": ((c.Return(), _loop(c.Store(OUT, ROW, X[ROW]))), "has the statement Return"),
}


@pytest.mark.parametrize(("body", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_what_no_grid_can_do_is_an_error(body: c.Block, problem: str) -> None:
    with pytest.raises(InternalError) as found:
        c.map_to_grid(c.Function("f", (X, OUT), body))
    assert str(found.value).startswith("C function `f")
    assert problem in str(found.value)


def test_a_function_with_a_result_is_no_grid() -> None:
    function = c.Function("f", (X,), (c.Return(c.Literal(0, c.CType("int32"))),), c.CType("int32"))
    with pytest.raises(InternalError, match="C function `f`: returns a value, but kernels return nothing; got int32"):
        c.map_to_grid(function)


def test_the_printer_refuses_loops_that_are_no_kernels() -> None:
    with pytest.raises(InternalError, match=r"has parallel loops outside kernels. Call map_to_grid\."):
        c.print_function(c.Function("f", (X, OUT), (INSIDE,)), c.CUDA)


def test_the_printer_refuses_vectors_for_a_target_without() -> None:
    store = c.Store(OUT, c.Size(0), c.Load(X, c.Size(0), 4))
    with pytest.raises(InternalError, match=r"the target has no vectors; got cuda. Call scalarise\."):
        c.print_definitions([c.Function("f", (X, OUT), (store,))], c.CUDA)


def test_functions_that_are_called_are_printed_once_before_their_callers() -> None:
    a = c.Variable("a", FLOAT)
    half = c.Callee("half", function=c.Function("any", (a,), (c.Return(a * 0.5),), FLOAT))
    call = c.Call(half, (c.Call(half, (X[ROW],), FLOAT),), FLOAT)
    (launch,) = _grid(_loop(c.Store(OUT, ROW, call))).launches
    text = c.print_definitions([launch.kernel], c.CUDA)
    assert text.startswith("static __device__ float half(float a) {\n  return a * 0.5f;\n}\nextern")
    assert "out[i] = half(half(x[i]));" in text
    assert text.count("float half(") == 1


def test_a_constant_of_half_precision_is_a_value_of_c_plus_plus() -> None:
    out = c.Buffer("out", "float16", c.MemoryAccess.WRITE)
    store = c.Store(out, c.Size(0), c.Literal(1, c.CType("float16")))
    assert "out[0] = byoc_f16{0x3c00};" in c.print_function(c.Function("f", (out,), (store,)), c.CUDA)
